"""T12: lines that were spoiled by chance, and trees of records made up by chance.

Of each batch of lines some are spoiled. Nothing raises, every line is read, blank or reported,
and the lines that were left alone are read as before, each at its own number.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from prove.suites import TREES, played
from prove.trial import Outcome, Part, Trial, shares
from thence.format import codec
from thence.testing import sample

BATCH = 200
SPOILED = "spoiled lines"


def _flip(line: bytearray, chance: Random) -> None:
    for _ in range(chance.randint(1, 4)):
        line[chance.randrange(len(line))] = chance.randrange(256)


def _cut(line: bytearray, chance: Random) -> None:
    del line[chance.randrange(len(line)) :]


def _hole(line: bytearray, chance: Random) -> None:
    at = chance.randrange(len(line))
    del line[at : at + chance.randint(1, 60)]


def _zero(line: bytearray, chance: Random) -> None:
    at = chance.randrange(len(line))
    line[at : at + 64] = bytes(len(line[at : at + 64]))


def _noise(line: bytearray, chance: Random) -> None:
    line[:] = chance.randbytes(chance.randint(0, 300))


def _twice(line: bytearray, chance: Random) -> None:
    line += line[: chance.randint(1, len(line))]


def _nest(line: bytearray, chance: Random) -> None:
    at = chance.randrange(len(line))
    line[at:at] = chance.choice((b"[", b'{"a":', b"\\", b'"', b"\\ud800", b"9")) * chance.choice(
        (1, 7, 300, 3000)
    )


WAYS: tuple[Callable[[bytearray, Random], None], ...] = (
    _flip,
    _cut,
    _hole,
    _zero,
    _noise,
    _twice,
    _nest,
)


def batch(chance: Random, good: list[bytes]) -> tuple[bytes, dict[int, bytes]]:
    """Give some lines as bytes, and those of them that were left alone by number."""
    out, alone = [], {}
    for number in range(1, BATCH + 1):
        line = chance.choice(good)
        if chance.random() < 0.5:
            spoiled = bytearray(line)
            chance.choice(WAYS)(spoiled, chance)
            out.append(bytes(spoiled).replace(b"\n", b" "))
        else:
            alone[number] = line
            out.append(line)
    return b"\n".join(out) + b"\n", alone


def wrong(data: bytes, alone: dict[int, bytes], known: dict[bytes, object]) -> str | None:
    """Say what is wrong about how a batch is read; None when nothing is."""
    found = codec.decode(data)
    told = {skip.line for skip in found.skipped}
    read: dict[int, list[object]] = {}
    for event, place in zip(found.events, found.places, strict=True):
        read.setdefault(place.line, []).append(event)
    for number, line in alone.items():
        if read.get(number) != [known[line]]:
            return f"line {number} was left alone and is read as {read.get(number)}"[:300]
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        if line.strip(b" \t\r\n\v\f") and number not in told and number not in read:
            return f"line {number} is neither read nor reported: {line[:100]!r}"
    return None


def _spoil(part: Part) -> Outcome:
    decoded = {line: codec.decode(line + b"\n") for line in sample().split(b"\n")}
    known: dict[bytes, object] = {
        line: found.events[0] for line, found in decoded.items() if len(found.events) == 1
    }
    good = list(known)
    out = Outcome()
    for turn in range(part.size // BATCH or 1):
        seed = f"{part.seed}/{turn}"
        data, alone = batch(Random(seed), good)
        try:
            problem = wrong(data, alone, known)
        except Exception as error:  # noqa: BLE001 - that nothing raises is what is looked at
            problem = repr(error)
        if problem:
            out.violations.append(f"batch {seed}: {problem}")
        out.done += BATCH
    return out


def _parts(scale: float) -> list[Part]:
    examples = max(round(20_000 / len(TREES.tests) * scale), 1)
    return [
        *shares(SPOILED, 1_000_000, 50_000, scale),
        *shares(TREES.what, examples, 125, 1),
    ]


def _run(part: Part, folder: Path) -> Outcome:
    if part.what == SPOILED:
        return _spoil(part)
    out = played(TREES, part, folder)
    return Outcome(out.done, out.violations, {"trees": out.done}, out.skipped)


TRIALS = (
    Trial(
        "T12",
        "random bytes and random trees",
        "inputs",
        "1,000,000 lines, 20,000 trees",
        _parts,
        _run,
    ),
)
