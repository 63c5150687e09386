"""`thence digest`: the account of one session that stays when its events are evicted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from thence.cli import options, wiring
from thence.cli.columns import DIM, agent_label, money, project, row_cost, short_id, when
from thence.cli.read_notices import flow
from thence.cli.terminal import (
    answer,
    clean,
    cut,
    format_duration,
    several,
    short,
    style,
    width,
    wrap,
)
from thence.errors import SessionNotFound
from thence.memory.cost_totals import with_dollars
from thence.memory.notes import read_notes
from thence.memory.recall import with_lineage
from thence.memory.rows import digests_of
from thence.memory.search import OUTCOME_NAMES
from thence.memory.session_status import digest_now

if TYPE_CHECKING:
    from thence.format.records import JSON
    from thence.memory.notes import Note
    from thence.memory.store import SessionRow, Store

MAX_ROWS = 6
_NAME_COLUMNS = 10


@click.command("digest")
@click.argument("session")
@options.utc
@options.as_json
def command(session: str, *, utc: bool, json: bool) -> int:
    """Print the digest of a session."""
    with wiring.store() as store:
        row = with_lineage(store, [wiring.session(store, session)], wiring.labels())[0]
        digest, signals = load_digest(store, row)
    digest = digest_now(digest, row, wiring.status().of(row))
    uid = row.session.session_uid
    notes = [note for note in read_notes(wiring.home()) if note.session_uid == uid]
    report = {"session_uid": uid, **digest, "signals": signals, "notes": notes}
    report |= {"tags": list(row.tags)}
    lines = DigestText(row, digest, signals, notes, utc=utc).lines(width())
    return answer(with_dollars(report), lines, json=json)


def load_digest(store: Store, row: SessionRow) -> tuple[dict[str, JSON], list[JSON]]:
    """Return the digest and the signals that are stored of a session."""
    made = next(digests_of(store, row), None)
    if made is None and row.session.evicted_at is not None:
        raise SessionNotFound(
            f"{row.session.session_uid} was removed before it was analysed",
            hint="thence note lists such losses",
        )
    if made is None:
        raise SessionNotFound(
            f"no digest for {row.session.session_uid} yet", hint="run thence sweep"
        )
    return made.digest, made.signals


class DigestText:
    """A digest as text. What is not there is not said; any shape is tolerated."""

    def __init__(
        self,
        row: SessionRow,
        digest: Mapping[str, JSON],
        signals: Sequence[JSON],
        notes: Sequence[Note] = (),
        *,
        utc: bool,
    ) -> None:
        self._row = row
        self._digest = digest
        self._signals = signals
        self._notes = notes
        self._utc = utc

    def lines(self, room: int) -> Iterator[str]:
        """Yield the digest as lines."""
        row, digest = self._row, self._digest
        yield style(cut(_flat(row.title or digest.get("title") or "untitled"), room), bold=True)
        for line in flow(self._about(), room):
            yield style(line, fg=DIM)
        yield ""
        yield from self._outcome(room)
        yield from self._part("took", flow(self._took(), room - _NAME_COLUMNS - 2), room)
        yield from self._snippets(room)
        yield from self._part("tests", map(_tests, self._list("tests")), room)
        yield from self._part("files", map(_file, self._list("files")), room)
        yield from self._part(
            "did", (_flat(command.get("line")) for command in self._list("commands")), room
        )
        own = [_error(entry) for entry in self._list("errors")]
        apart = [f"in a subagent: {_error(entry)}" for entry in self._list("subagent_errors")]
        yield from self._part("errors", [*own, *apart], room)
        yield from self._part(
            "you", (_flat(o.get("what")) for o in self._list("interventions")), room
        )
        yield from self._part("branches", map(_branch, self._list("branches")), room)
        yield from self._part("subagents", map(_agent, self._list("subagents")), room)
        yield from self._part("to-dos", (_flat(o.get("text")) for o in self._list("todos")), room)
        for kind, name in (("decision", "decided"), ("note", "noted")):
            notes = (note for note in self._notes if note.kind == kind)
            yield from self._part(name, (_flat(note.marked_text) for note in notes), room)
        yield from self._part("signals", map(_signal, self._signals), room)

    def _list(self, name: str) -> list[dict[str, JSON]]:
        entries = self._digest.get(name)
        return (
            [entry for entry in entries if isinstance(entry, dict)]
            if isinstance(entries, list)
            else []
        )

    def _about(self) -> Iterator[str]:
        session = self._row.session
        start = when(session.started_at)
        zone = None if not self._utc else start.tzinfo if start else None
        parts = [
            short_id(session.native_session_id),
            agent_label(session.flavor),
            clean(self._row.origin),
            session.model,
            " ".join(filter(None, (project(session.cwd), session.git_branch))),
            f"{start.astimezone(zone):%Y-%m-%d %H:%M}" if start else None,
            "transcript removed" if session.evicted_at else None,
            *(f"#{tag}" for tag in self._row.tags),
        ]
        yield from filter(None, parts)

    def _outcome(self, room: int) -> Iterator[str]:
        digest = self._digest
        outcome = digest.get("outcome") or self._row.session.outcome
        sure = digest.get("confidence")
        share = f", {sure:.0%} sure" if isinstance(sure, float) else ""
        task = f" · {_flat(digest['task_ref'])}" if digest.get("task_ref") else ""
        colour = {"success": "green", "fail": "red"}.get(outcome, "")
        name = OUTCOME_NAMES.get(outcome, outcome)
        word = style(name, fg=colour) if colour else name
        rest = cut(f"{share}{task}", room - _NAME_COLUMNS - 2 - len(name))
        yield f"  {'outcome':<{_NAME_COLUMNS}}{word}{rest}"
        reasons = digest.get("reasons")
        for reason in reasons if isinstance(reasons, list | tuple) else ():
            first, *more = wrap(f"because {_flat(reason)}", room - _NAME_COLUMNS - 4)
            yield f"  {'':<{_NAME_COLUMNS}}{first}"
            yield from (f"  {'':<{_NAME_COLUMNS}}  {line}" for line in more)

    def _took(self) -> list[str]:
        row, digest = self._row, self._digest
        ticks = row.ticks
        parts = [row_cost(row)]
        if ticks.get("dead"):
            parts.append(f"{money(ticks['dead'])} discarded")
        if ticks.get("side"):
            parts.append(f"{money(ticks['side'])} by subagents")
        parts.append(several(row.session.cost.turns, "turn"))
        parts.append(several(row.events, "event"))
        if seconds := row.session.cost.wall_clock_s:
            parts.append(format_duration(round(1000 * seconds)))
        if peak := digest.get("context_peak"):
            parts.append(f"context up to {short(peak)}")
        if number := digest.get("compactions"):
            parts.append(several(number, "compaction"))
        if row.session.cost.retries:
            retries = row.session.cost.retries
            parts.append("1 retry" if retries == 1 else f"{retries} retries")
        return parts

    def _snippets(self, room: int) -> Iterator[str]:
        snippets = self._digest.get("snippets")
        snippets = snippets if isinstance(snippets, dict) else {}
        first, last = _flat(snippets.get("first_prompt")), _flat(snippets.get("last_prompt"))
        yield from self._prose("asked", first, room)
        if last != first:
            yield from self._prose("last", last, room)
        yield from self._prose("answered", _flat(snippets.get("last_reply")), room)

    def _prose(self, name: str, text: str, room: int) -> Iterator[str]:
        if text:
            for at, line in enumerate(wrap(text, room - _NAME_COLUMNS - 2)[:4]):
                yield f"  {name if not at else '':<{_NAME_COLUMNS}}{line}"

    def _part(self, name: str, texts: Iterator[str] | Sequence[str], room: int) -> Iterator[str]:
        lines = [line for line in texts if line]
        for at, line in enumerate(lines[:MAX_ROWS]):
            yield cut(f"  {name if not at else '':<{_NAME_COLUMNS}}{line}", room)
        if len(lines) > MAX_ROWS:
            yield style(f"  {'':<{_NAME_COLUMNS}}and {len(lines) - MAX_ROWS} more: --json", fg=DIM)


# -- rows -----------------------------------------------------------------------------------


def _flat(value: JSON) -> str:
    return clean(" ".join(value.split())) if isinstance(value, str) else ""


def _number(entry: Mapping[str, JSON], name: str) -> int:
    value = entry.get(name)
    return value if isinstance(value, int) else 0


def _tests(entry: Mapping[str, JSON]) -> str:
    counts = [f"{_number(entry, n)} {n}" for n in ("failed", "passed", "skipped") if entry.get(n)]
    mark = "✗" if entry.get("last_red") else "✓"
    runs = f"{several(_number(entry, 'runs'), 'run')}, {_number(entry, 'red')} failed"
    return f"{mark} {_flat(entry.get('runner'))}  {', '.join(counts)}  ({runs})"


def _file(entry: Mapping[str, JSON]) -> str:
    counts = [
        several(_number(entry, "edits"), "edit") if entry.get("edits") else "",
        several(_number(entry, "reads"), "read") if entry.get("reads") else "",
        f"tests failed after it {_number(entry, 'broke')}×" if entry.get("broke") else "",
    ]
    return f"{_flat(entry.get('path'))}  {', '.join(filter(None, counts))}"


def _error(entry: Mapping[str, JSON]) -> str:
    times = f"{_number(entry, 'count')}× " if _number(entry, "count") > 1 else ""
    fixes = entry.get("fix")
    fixed = fixes[0].get("what") if isinstance(fixes, list) and fixes else None
    after = f"  fixed by {_flat(fixed)}" if fixed else ""
    return f"{times}{_flat(entry.get('quote')) or _flat(entry.get('fingerprint'))}{after}"


def _branch(entry: Mapping[str, JSON]) -> str:
    cost = entry.get("cost")
    ticks = _number(cost, "ticks") if isinstance(cost, dict) else 0
    much = f", {money(ticks)}" if ticks else ""
    asked = f": {prompt}" if (prompt := _flat(entry.get("prompt"))) else ""
    return f"discarded, {several(_number(entry, 'events'), 'event')}{much}{asked}"


def _agent(entry: Mapping[str, JSON]) -> str:
    name = _flat(entry.get("channel")).removeprefix("agent:")
    return f"{name}, {several(_number(entry, 'events'), 'event')}: {_flat(entry.get('asked'))}"


def _signal(entry: Mapping[str, JSON]) -> str:
    mark = {"high": "▲", "medium": "◆"}.get(_flat(entry.get("severity")), "·")
    return f"{mark} {_flat(entry.get('text'))}"
