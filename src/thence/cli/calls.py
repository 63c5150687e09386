"""How a call went, for the eye: its result, what other records tell of it, and what it said."""

from __future__ import annotations

import msgspec

from thence.format import joins, kinds, output
from thence.format.facts import Told
from thence.format.whole import Whole


class Pair(msgspec.Struct, frozen=True):
    """A call with all that is known of how it went."""

    call: joins.Call
    told: Told | None = None

    @property
    def exit_code(self) -> int | None:
        """What the program returned, if anybody says so."""
        if self.told is not None and self.told.exit_code is not None:
            return self.told.exit_code
        return self.call.ending.exit_code if self.call.ending else None

    @property
    def failed(self) -> bool:
        """Whether it is known to have gone wrong."""
        if self.call.ending is not None and self.call.ending.failed:
            return True
        return self.told is not None and (self.told.failed or bool(self.told.exit_code))

    @property
    def ended(self) -> bool:
        """Whether it came to an end that was written down."""
        return self.call.result is not None or (self.told is not None and self.told.ended)

    @property
    def took(self) -> int | None:
        """Milliseconds: told, or from the call to its result as far as the clock shows them."""
        call, result = self.call.call, self.call.result
        if self.told is not None and self.told.took_ms is not None:
            return self.told.took_ms
        if result is None:
            return None
        if result.took_ms is not None:
            return result.took_ms
        if kinds.touches(call.tool or "", call.payload):
            return None  # done at once; what passed is the time somebody took to allow it
        start, end = joins.time_of(call.ts), joins.time_of(result.ts)
        passed = (end - start).total_seconds() if start and end else 0.0
        return round(1000 * passed) if 1 <= passed < 86_400 else None


def pairs_of(whole: Whole) -> dict[str, Pair]:
    """Give all calls of a session by their id; of a repeated one the first."""
    told = {one.call: one for fact in whole.facts for one in fact.told}
    out: dict[str, Pair] = {}
    for pair in joins.calls(whole.events):
        if (call := pair.call.call) is not None:
            out.setdefault(call, Pair(pair, told.get(call)))
    return out


def answer_of(text: str) -> str:
    """The first line that is no mark-up of the harness."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return next((line for line in lines if not line.startswith("<")), "".join(lines[:1]))


def telling(text: str, *, at_end: bool) -> str:
    """The line of a failure that says most: a program's last, a tool's first."""
    lines = output.lines(output.opened(text)[1].replace("<tool_use_error>", ""))
    return (lines[-1] if at_end else lines[0]).strip() if lines else ""


def run_of(tests: kinds.Tests) -> str:
    """Say how many tests failed, passed and were skipped."""
    named = (("failed", tests.failed), ("passed", tests.passed), ("skipped", tests.skipped))
    return ", ".join(f"{number:,} {name}" for name, number in named if number)
