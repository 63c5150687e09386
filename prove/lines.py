"""T12: lines that are damaged at random, and random trees of records.

About half of the lines of a batch are damaged. Nothing may raise; every line is read, blank or
reported; and the undamaged lines are read as before, each at its own line number.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from prove.suites import TREE_TESTS, run_suite
from prove.trial import Outcome, Part, Trial, split_rounds
from thence.format import codec
from thence.testing import sample

BATCH_LINES = 200
DAMAGED = "damaged lines"


def _change_bytes(line: bytearray, rng: Random) -> None:
    for _ in range(rng.randint(1, 4)):
        line[rng.randrange(len(line))] = rng.randrange(256)


def _truncate(line: bytearray, rng: Random) -> None:
    del line[rng.randrange(len(line)) :]


def _remove_bytes(line: bytearray, rng: Random) -> None:
    at = rng.randrange(len(line))
    del line[at : at + rng.randint(1, 60)]


def _zero_bytes(line: bytearray, rng: Random) -> None:
    at = rng.randrange(len(line))
    line[at : at + 64] = bytes(len(line[at : at + 64]))


def _replace(line: bytearray, rng: Random) -> None:
    line[:] = rng.randbytes(rng.randint(0, 300))


def _repeat(line: bytearray, rng: Random) -> None:
    line += line[: rng.randint(1, len(line))]


def _insert(line: bytearray, rng: Random) -> None:
    at = rng.randrange(len(line))
    line[at:at] = rng.choice((b"[", b'{"a":', b"\\", b'"', b"\\ud800", b"9")) * rng.choice(
        (1, 7, 300, 3000)
    )


DAMAGES: tuple[Callable[[bytearray, Random], None], ...] = (
    _change_bytes,
    _truncate,
    _remove_bytes,
    _zero_bytes,
    _replace,
    _repeat,
    _insert,
)


def make_batch(rng: Random, good: list[bytes]) -> tuple[bytes, dict[int, bytes]]:
    """Return a batch of lines as bytes, and the undamaged ones by line number."""
    lines, intact = [], {}
    for number in range(1, BATCH_LINES + 1):
        line = rng.choice(good)
        if rng.random() < 0.5:
            damaged = bytearray(line)
            rng.choice(DAMAGES)(damaged, rng)
            lines.append(bytes(damaged).replace(b"\n", b" "))
        else:
            intact[number] = line
            lines.append(line)
    return b"\n".join(lines) + b"\n", intact


def find_problem(
    data: bytes, intact: dict[int, bytes], expected: dict[bytes, object]
) -> str | None:
    """Return what is wrong about how a batch is read, or None."""
    decoded = codec.decode(data)
    skipped_lines = {skip.line for skip in decoded.skipped}
    events: dict[int, list[object]] = {}
    for event, place in zip(decoded.events, decoded.places, strict=True):
        events.setdefault(place.line, []).append(event)
    for number, line in intact.items():
        if events.get(number) != [expected[line]]:
            return f"line {number} is not damaged and is read as {events.get(number)}"[:300]
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        if line.strip(b" \t\r\n\v\f") and number not in skipped_lines and number not in events:
            return f"line {number} is neither read nor reported: {line[:100]!r}"
    return None


def _run_batches(part: Part) -> Outcome:
    decoded = {line: codec.decode(line + b"\n") for line in sample().split(b"\n")}
    expected: dict[bytes, object] = {
        line: result.events[0] for line, result in decoded.items() if len(result.events) == 1
    }
    lines = list(expected)
    outcome = Outcome()
    for number in range(part.size // BATCH_LINES or 1):
        seed = f"{part.seed}/{number}"
        data, intact = make_batch(Random(seed), lines)
        try:
            problem = find_problem(data, intact, expected)
        except Exception as error:  # noqa: BLE001 - that nothing raises is what is looked at
            problem = repr(error)
        if problem:
            outcome.violations.append(f"batch {seed}: {problem}")
        outcome.done += BATCH_LINES
    return outcome


def _parts(scale: float) -> list[Part]:
    examples = max(round(20_000 / len(TREE_TESTS.tests) * scale), 1)
    return [
        *split_rounds(DAMAGED, 1_000_000, 50_000, scale),
        *split_rounds(TREE_TESTS.what, examples, 125, 1),
    ]


def _run(part: Part, folder: Path) -> Outcome:
    if part.what == DAMAGED:
        return _run_batches(part)
    outcome = run_suite(TREE_TESTS, part, folder)
    return Outcome(outcome.done, outcome.violations, {"trees": outcome.done}, outcome.skipped)


TRIALS = (
    Trial(
        "T12",
        "random bytes and random trees",
        "inputs",
        "1,000,000 lines, 20,000 trees",
        _parts,
        _run,
        code=("thence.format.*", "thence.journal.*"),
    ),
)
