"""What the facts of a reader must mean: types, names, prompts, calls, bills, logs.

Each function takes what was read of one session and says in words what should not be.
"""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import msgspec

import thence
from thence.agents import Batch, Source
from thence.agents.guard import check
from thence.agents.package_protocol import plain
from thence.agents.packages import ForeignFailure, reason_of
from thence.agents.profiles import Agent
from thence.format.facts import Fact
from thence.format.nodes import Is


class Reading(msgspec.Struct, frozen=True):
    """One session as it was read."""

    agent: Agent
    source: Source
    facts: list[Fact]
    batch: Batch

    def line(self, fact: Fact) -> str:
        """Return where a fact stands."""
        paths = {file.key: file.path for file in self.source.files}
        return f"{Path(paths.get(fact.file, self.source.path)).name} line {fact.line}"


def error_text(error: BaseException) -> str:
    """Return what was raised, and the last place in the author's code that led to it."""
    ours, standard = str(Path(thence.__file__).parent), sysconfig.get_path("stdlib")
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [
        frame
        for frame in frames
        if not frame.filename.startswith(("<", ours, f"{standard}{os.sep}"))
        or frame.filename.startswith(sysconfig.get_path("purelib"))
        or Path(frame.filename).parent.parent == Path(ours, "agents")
    ]
    place = (theirs or frames)[-1]
    where = f"{Path(place.filename).name} line {place.lineno}, in {place.name}: {place.line}"
    return f"{reason_of(error)} ({'' if theirs else 'what the agent gave was used in '}{where})"


def values(reading: Reading) -> Iterator[str]:
    """Every value has the type that its field has, and names what is there."""
    parts: list[tuple[str, Source | Fact | Batch]] = [("find()", reading.source)]
    parts += [(reading.line(fact), fact) for fact in reading.facts]
    for where, value in [*parts, ("read()", reading.batch)]:
        try:
            made = check(plain(value), type(value))
        except (TypeError, ValueError, ForeignFailure) as error:
            yield f"{where}: {reason_of(error)}"
            return
        for name in value.__struct_fields__:  # of which plain values say too little
            if type(field := getattr(value, name)) is not type(getattr(made, name)):
                yield f"{where}: {name} is a {type(field).__name__}"
                return
    keys = {file.key for file in reading.source.files}
    has_rows = any(file.rows is not None for file in reading.source.files)  # parts of a database
    for fact in reading.facts:
        if fact.blocks and fact.file not in keys and not has_rows:
            yield f"{reading.line(fact)}: Fact.file is {fact.file!r}, which no File has as its key"
            return
        if fact.ts is not None and not _is_time(fact.ts):
            yield f"{reading.line(fact)}: {fact.ts!r} is no time: write 2026-01-02T03:04:05Z"
            return


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def records(reading: Reading) -> Iterator[str]:
    """Nothing of a sound log is skipped, and something of it is shown."""
    for skipped in reading.batch.skipped[:1]:
        name = Path(skipped.source).name
        yield f"{name} line {skipped.line}: skipped in the sample: {skipped.why}"
    if not any(fact.blocks for fact in reading.facts):
        yield f"{reading.source.uid}: no record has a block, so nothing of it is shown"


ROLES = ("user", "assistant", "tool", "system")


def roles(reading: Reading) -> Iterator[str]:
    """Prompts and replies are known for what they are."""
    for fact in reading.facts:
        for block in fact.blocks:
            if block.role not in ROLES:
                yield f"{reading.line(fact)}: no role is called {block.role!r}: {', '.join(ROLES)}"
                return
    for kind, flag, name in (
        ("user_msg", Is.PROMPT, "Is.PROMPT"),
        ("assistant_msg", Is.REPLY, "Is.REPLY"),
    ):
        having = [f for f in reading.facts if any(block.kind == kind for block in f.blocks)]
        if having and not any(fact.node.flags & flag for fact in having):
            yield f"{reading.line(having[0])}: a {kind}, and no record of the session has {name}"


def calls(reading: Reading) -> Iterator[str]:
    """Every result names its call, in its block and in its node."""
    made = {block.call for fact in reading.facts for block in fact.blocks if block.tool}
    for fact in reading.facts:
        for block in fact.blocks:
            here, known = reading.line(fact), (fact.node.calls, fact.node.answers)
            if block.kind == "tool_call" and not block.call:
                yield f"{here}: Block.call is missing: no result can name this call"
            elif block.kind == "tool_call" and block.call not in known[0]:
                yield f"{here}: Node.calls does not name the call {block.call!r} of its block"
            elif block.kind == "tool_result" and block.call not in made:
                yield f"{here}: a result of {block.call!r}, which no call of the session has as id"
            elif block.kind == "tool_result" and block.call not in known[1]:
                yield f"{here}: Node.answers does not name the call {block.call!r} of its result"
            else:
                continue
            return


def bills(reading: Reading) -> Iterator[str]:
    """Every response is billed once, and its price can be known."""
    billed = [fact for fact in reading.facts if fact.usage is not None]
    for fact in billed:
        if fact.usage_key is None:
            yield f"{reading.line(fact)}: a usage without usage_key: a repeated one counts twice"
            break
    prompts: Counter[str] = Counter()  # by log
    first: dict[tuple[str, str], tuple[int, Fact]] = {}
    for fact in reading.facts:
        prompts[fact.file] += bool(fact.node.flags & Is.PROMPT)
        if fact.usage is None or fact.usage_key is None or fact.turn_bill is not None:
            continue
        turn = prompts[fact.file]
        began, before = first.setdefault((fact.file, fact.usage_key), (turn, fact))
        if began != turn or _differ(before, fact):
            yield (
                f"{reading.line(fact)}: another response has its usage_key, {fact.usage_key!r}:"
                " only one of the two is counted"
            )
            break
    if billed and all(fact.model is None and fact.cost_usd is None for fact in billed):
        yield (
            f"{reading.line(billed[0])}: a usage and no Fact.model, nor Fact.cost_usd:"
            " what it cost is unknown"
        )


def _differ(fact: Fact, other: Fact) -> bool:
    """Whether two usages are of two responses: of one, only the output grows."""
    first, second = fact.usage, other.usage
    assert first is not None and second is not None  # noqa: S101, PT018 - they have one
    return first.input_tokens != second.input_tokens


def channels(reading: Reading) -> Iterator[str]:
    """The logs of subagents have channels of their own."""
    main: dict[str, Fact] = {}
    for file in reading.source.files:
        if file.channel == "main" and not file.is_document and file.rows is None:
            own = [fact for fact in reading.facts if fact.file == file.key]
            first = next((fact for fact in own if fact.node.flags & (Is.PROMPT | Is.REPLY)), None)
            if first is not None:
                main[Path(file.path).name] = first
    times = {name: _times(reading, fact.file) for name, fact in main.items()}
    for (name, first), (other, second) in pairwise(main.items()):
        (begin, end), (start, last) = times[name], times[other]
        is_own = first.node.parent is None and second.node.parent is None
        if is_own or (begin and start and end and last and begin < last and start < end):
            yield (
                f"{name} and {other} are both on the channel main: a subagent's log has its own,"
                " File(…, channel=its name)"
            )


def _times(reading: Reading, file: str) -> tuple[str, str]:
    known = sorted(fact.ts for fact in reading.facts if fact.file == file and fact.ts)
    return (known[0], known[-1]) if known else ("", "")
