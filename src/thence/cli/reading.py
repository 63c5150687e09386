"""What a reading command has to tell besides its answer: what was skipped, mended, or missing.

Skipped lines decide the exit code, so that a script notices damage: 3 when lines were left out.
A torn last line is none of these, for its writer may still be writing it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from thence.agents.profiles import agent_of
from thence.agents.sessions import Loaded
from thence.cli.terminal import clean, columns, cut, several, size
from thence.errors import SKIPS
from thence.format import joins
from thence.format.codec import TORN
from thence.format.facts import Block, text_in
from thence.format.records import Notice, Skipped
from thence.format.todos import Step, Todo, pending
from thence.format.whole import Part, Whole


def exit_code(skipped: Sequence[Skipped]) -> int:
    """Tell how a command ends that had to skip these."""
    return SKIPS if any(skip.why != TORN for skip in skipped) else 0


def notices(loaded: Loaded) -> list[Notice]:
    """Give all that a reader of a session should be told, each kind once."""
    whole = loaded.whole
    links = (Notice(f"{b.what} link", f"{b.wanted}") for b in whole.graph.breaks)
    unknown = _not_understood(loaded.source.adapter, whole)
    return [*grouped([*loaded.notices, *links, *whole.unbilled]), *unknown]


def _not_understood(name: str, whole: Whole) -> list[Notice]:
    """Return what is said of records that nobody knows, as a newer client may write them."""
    agent = agent_of(name)
    unknown = agent.unknown_records(whole.facts) if agent is not None else None
    if not unknown:
        return []
    types = ", ".join(f"{one} {number}" for one, number in unknown.most_common(5))
    more = f", {several(len(unknown) - 5, 'more type')}" if len(unknown) > 5 else ""
    return [
        Notice("records of unknown type", f"{unknown.total()}, stored unchanged: {types}{more}")
    ]


def grouped(found: Iterable[Notice]) -> Iterable[Notice]:
    """Sum up notices of one kind: the first is quoted, the others are counted."""
    kinds: dict[str, list[str]] = {}
    for notice in found:
        kinds.setdefault(notice.what, []).append(notice.detail)
    for what, details in kinds.items():
        more = f" and {len(details) - 1:,} more" if len(details) > 1 else ""
        yield Notice(what, f"{details[0]}{more}")


def promises(whole: Whole) -> list[Todo]:
    """Return what is open on the live line, compacted parts included; see `format.todos`.

    What the sessions left open that this one continues is open here as well.
    """
    from thence.memory.course import Course
    from thence.memory.outcome import judge

    parts = [*whole.inherited(boundaries=False), Part(whole, whole.graph.chain(boundaries=False))]
    steps = [step for part in parts for step in _steps(part)]
    course = Course(whole)
    return pending(steps, ended_well=course.has_ended_well(judge(course).outcome))


def _steps(part: Part) -> Iterator[Step]:
    """Yield what was said and done on a part of a line."""
    results = {pair.call.call: pair for pair in part.whole.calls}
    for place in part.places:
        fact = part.whole.facts[place]
        for block in fact.blocks:
            if block.kind in ("user_msg", "assistant_msg"):
                role = "assistant" if block.kind == "assistant_msg" else "user"
                yield Step(fact.node.id, role, text_in(block))
            elif block.kind == "tool_call":
                yield _step(fact.node.id, block, results.get(block.call))


def _step(event: str, block: Block, pair: joins.Call | None) -> Step:
    result = pair.result if pair is not None else None
    return Step(
        event,
        "assistant",
        tool=block.tool or "",
        input=block.payload,
        result=result.payload if result is not None else None,
        failed=pair is None or not pair.outcome.succeeded,
    )


def skipped_line(skip: Skipped) -> str:
    """Say which line was skipped, why, and what was recovered."""
    saved = f", {several(skip.salvaged, 'record')} recovered" if skip.salvaged else ""
    where = f"line {skip.line:,}, {size(skip.length)}" if skip.line else f"file {skip.source}"
    return f"skipped {where}: {skip.why}{saved}"


def flowed(parts: Iterable[str], room: int) -> list[str]:
    """Set short facts one after the other, broken between them and not inside."""
    out: list[str] = []
    for part in (cut(clean(part), room) for part in parts if part):
        if out and columns(out[-1]) + columns(part) + 3 <= room:
            out[-1] += f" · {part}"
        else:
            out.append(part)
    return out
