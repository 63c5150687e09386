"""What a reading command has to tell besides its answer: what was skipped, mended, or missing.

Skipped lines decide the exit code, so that a script notices damage: 3 when lines were left out.
A torn last line is none of these, for its writer may still be writing it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from thence.agents.profiles import agent_of
from thence.cli.terminal import clean, columns, cut, several, size
from thence.errors import SKIPS
from thence.format.codec import TORN
from thence.format.facts import text_in
from thence.format.readout import Readout, ReadoutPart
from thence.format.records import Notice, Skipped
from thence.format.session_graph import MINIMUM
from thence.format.todos import Step, Todo, pending_todos
from thence.memory.readouts import OpenedSession


def exit_code(skipped: Sequence[Skipped]) -> int:
    """Tell how a command ends that had to skip these."""
    return SKIPS if any(skip.why != TORN for skip in skipped) else 0


def notices(opened: OpenedSession) -> list[Notice]:
    """Return all that a reader of a session should be told, each kind once."""
    session = opened.session
    links = (Notice(f"{b.what} link", f"{b.wanted}") for b in session.graph.breaks)
    unbilled = (Notice(MINIMUM, why) for why in session.head.lower_bound)
    unknown = _not_understood(opened.agent, session)
    return [*group_notices([*opened.notices, *links, *unbilled]), *unknown]


def _not_understood(name: str, session: Readout) -> list[Notice]:
    """Return what is said of records that nobody knows, as a newer client may write them."""
    agent = agent_of(name)
    unknown = agent.unknown_records(session.records) if agent is not None else None
    if not unknown:
        return []
    types = ", ".join(f"{type_} {number}" for type_, number in unknown.most_common(5))
    more = f", {several(len(unknown) - 5, 'more type')}" if len(unknown) > 5 else ""
    return [
        Notice("records of unknown type", f"{unknown.total()}, stored unchanged: {types}{more}")
    ]


def group_notices(items: Iterable[Notice]) -> Iterable[Notice]:
    """Sum up notices of one kind: the first is quoted, the others are counted."""
    kinds: dict[str, list[str]] = {}
    for notice in items:
        kinds.setdefault(notice.what, []).append(notice.detail)
    for what, details in kinds.items():
        more = f" and {len(details) - 1:,} more" if len(details) > 1 else ""
        yield Notice(what, f"{details[0]}{more}")


def promises(session: Readout) -> list[Todo]:
    """Return what is open on the live line, compacted parts included; see `format.todos`.

    What the sessions left open that this one continues is open here as well.
    """
    from thence.memory.outcome import judge
    from thence.memory.session_timeline import SessionTimeline

    own = ReadoutPart(session, session.graph.chain(boundaries=False))
    parts = [*session.inherited(boundaries=False), own]
    steps = [step for part in parts for step in _steps(part)]
    course = SessionTimeline(session)
    return pending_todos(steps, ended_well=course.has_ended_well(judge(course).outcome))


def _steps(part: ReadoutPart) -> Iterator[Step]:
    """Yield what was said and done on a part of a line."""
    from thence.memory.session_timeline import call_step

    session = part.session
    results = {pair.call.call: pair for pair in session.calls}
    for place in part.places:
        record = session.records[place]
        for block in map(session.with_payload, record.blocks):
            if block.kind in ("user_msg", "assistant_msg"):
                role = "assistant" if block.kind == "assistant_msg" else "user"
                yield Step(record.id, role, text_in(block))
            elif block.kind == "tool_call" and (pair := results.get(block.call)) is not None:
                yield call_step(record.id, replace(pair, call=block))


def skipped_line(skip: Skipped) -> str:
    """Say which line was skipped, why, and what was recovered."""
    saved = f", {several(skip.salvaged, 'record')} recovered" if skip.salvaged else ""
    where = f"line {skip.line:,}, {size(skip.length)}" if skip.line else f"file {skip.source}"
    return f"skipped {where}: {skip.why}{saved}"


def flow(parts: Iterable[str], room: int) -> list[str]:
    """Set short facts one after the other, broken between them and not inside."""
    out: list[str] = []
    for part in (cut(clean(part), room) for part in parts if part):
        if out and columns(out[-1]) + columns(part) + 3 <= room:
            out[-1] += f" · {part}"
        else:
            out.append(part)
    return out
