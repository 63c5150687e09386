"""What an agent may ask about the past: each question one method, each answer a framed text.

Read from the store alone, where all has passed the gate; no source is opened, so that no secret
gets out. Nothing is written but a decision that is
asked for. Answers are short: names of sessions and events stand in them, with which the next
question can be put.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import chain, groupby, islice
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from thence.errors import ThenceError
from thence.format import errors, spills
from thence.format.facts import words_of
from thence.format.figures import money, several
from thence.format.graph import State
from thence.format.normal import SessionEvent
from thence.format.readout import Readout
from thence.format.records import JSON
from thence.format.stored import StoredEvent
from thence.memory import patterns, recall, search
from thence.memory.cost_totals import PERIODS, By, CostTable
from thence.memory.file_history import reasons, sessions_touching
from thence.memory.labels import labels_of, texts_of, with_tagged
from thence.memory.labels import search as search_tagged
from thence.memory.notes import Note, matching_notes
from thence.memory.open_todos import open_promises
from thence.memory.origins import in_brackets
from thence.memory.readouts import read_session
from thence.memory.recap import lines as recap_lines
from thence.memory.recap import recap
from thence.memory.session_status import TURN_WORDS, Now, Standing, digest_now, turn_now
from thence.memory.store import Filter, SessionRow, Store, Total
from thence.serve.untrusted_text import flatten, frame_answer, quote_lines

ID_CHARS: Final = 13
"""Characters of a session's id: enough to tell any two apart that began at another moment."""
MAX_PROMPTS: Final = 40
MAX_EVENT_CHARS: Final = 2_000
"""Characters of an event that is asked for."""
SPILL_PART_CHARS: Final = 5_400
"""Characters of a spilled result that one answer gives, quoted: they fit into its frame."""
MAX_ANCESTORS: Final = 8
"""Sessions back in which a spill is looked for."""
MAX_NEIGHBOUR_CHARS: Final = 500
"""Characters of an event beside it."""

Number = Annotated[int, msgspec.Meta(ge=1, le=50)]
Words = Annotated[str, msgspec.Meta(min_length=1, max_length=20_000)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class InvalidQuestion(ThenceError):
    """A question that cannot be answered as it was put."""

    exit_code = 2


class SearchQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """Search past sessions: words, "phrases", filters agent: project: kind: after:."""

    query: Words
    limit: Number = 8


class RecallQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """Answer a question from past sessions: what was asked, decided, changed, fixed."""

    question: Words


class OutlineQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """Summarize one session: task, outcome, cost, prompts, files, errors."""

    session: Name


class AroundQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """Show messages and actions around one event of a session."""

    session: Name
    event: Name
    before: Annotated[int, msgspec.Meta(ge=0, le=20)] = 2
    after: Annotated[int, msgspec.Meta(ge=0, le=20)] = 4


class SeenErrorQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """Check whether an error was seen before and what fixed it. Pass the failing output."""

    text: Words


class FilesQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """List the sessions that touched a file, with the prompts."""

    path: Name
    limit: Number = 8


class TodosQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """List open to-dos of past sessions."""

    project: Name | None = None
    limit: Number = 15


class CostsQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """Show costs by day, week, month, model, project, agent, session, branch, PR or tag."""

    by: By = "day"
    since: Name = "30d"
    limit: Number = 12


class DecideQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """Record a decision for later sessions. The only tool that writes."""

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=4_000)]
    session: Name | None = None


class ReadSpillQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """Read a large result that a session stored in a separate file, in parts, by its name."""

    session: Name
    name: Name
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0


TOOLS: Final[dict[str, type[msgspec.Struct]]] = {
    "search": SearchQuestion,
    "recall": RecallQuestion,
    "outline": OutlineQuestion,
    "around": AroundQuestion,
    "seen_error": SeenErrorQuestion,
    "files": FilesQuestion,
    "todos": TodosQuestion,
    "costs": CostsQuestion,
    "read_spill": ReadSpillQuestion,
    "decide": DecideQuestion,
}
"""Every question, and what it is asked with."""

Decision = Callable[[str, str | None], dict[str, JSON]]
Notes = Callable[[], Iterable[Note]]
Place = tuple[str, int]
"""An event: the uid of its session and its id."""


class Reply(NamedTuple):
    """What a question is answered with, before it is framed."""

    origin: str
    lines: Iterable[str]
    place: Place | None = None
    """The first event that the lines name."""


class Questions:
    """Everything that may be asked of one store. Threads may share it; they take turns."""

    def __init__(
        self,
        store: Store,
        decide: Decision,
        notes: Notes = tuple,
        dismissed: Callable[[], AbstractSet[str]] = frozenset,
        *,
        status: Callable[[], Now] = lambda: Now({}, frozenset()),
    ) -> None:
        """Answer from a store and from the decisions and notes that `notes` returns.

        To-dos whose names `dismissed` returns are left out; `status` tells what is open now.
        """
        self._status = status
        self._dismissed = dismissed
        self._store, self._write, self._notes = store, decide, notes
        self._turn = threading.Lock()

    def answer(self, tool: str, arguments: JSON) -> str:
        """Answer one question; raises when it cannot be meant."""
        if tool not in TOOLS:
            raise InvalidQuestion(
                f"unknown tool {flatten(tool, 40)}", hint=f"one of {', '.join(TOOLS)}"
            )
        try:
            asked = msgspec.convert(arguments, TOOLS[tool])
        except msgspec.ValidationError as error:
            message = f"{tool}: {flatten(str(error))}"
            raise InvalidQuestion(message, hint="see the tool's schema") from error
        with self._turn:
            reply: Reply = getattr(self, f"_{tool}")(asked)
            links = self._link(reply.place)
            return frame_answer(f"thence {tool}, {reply.origin}", reply.lines, last=links)

    def _link(self, place: Place | None) -> Iterator[str]:
        """Yield the line that says how a person opens an event of the answer in the viewer.

        One for all events of an answer: it shows the form, and a line each would double the answer.
        A command, no link: the host name of the viewer is a secret, and answers stay in logs.
        """
        if place is None:
            return
        uid, event = place[0], recall.event_name(place[1])
        command = f"thence open {shlex.quote(_name(uid))} --at {event}"
        yield f"open in the viewer, each event likewise: {command}"

    def _who(self, uid: str) -> str:
        """Name a session for the next question, and say where it comes from if not from here."""
        return f"{_name(uid)}{in_brackets(recall.origins_of(self._store, [uid]).get(uid, ''))}"

    # -- finding ------------------------------------------------------------------------

    def _search(self, asked: SearchQuestion) -> Reply:
        query = with_tagged(search.parse(asked.query), labels_of(self._notes()))
        notes = matching_notes(self._notes(), query)
        answer = self._events(query, asked.limit + 1)
        room = max(asked.limit // 2, asked.limit - len(answer.matches))
        lines = [_note(note, query) for note in notes[:room]]
        events = answer.matches[: asked.limit - len(lines)]
        hits = recall.read_hits(self._store, search.SearchAnswer(events), query).hits
        lines += [_hit(hit) for hit in hits]
        number = answer.total or answer.sessions
        shown = f"the first {len(hits)} are shown" if len(hits) < number else ""
        note_count = several(len(notes), "note") if notes else ""
        count = answer.count if answer.sessions or not notes else ""
        about = (count, shown, note_count, answer.explanation, *answer.hints)
        origin = "; ".join(filter(None, about))
        places = ((hit.session_uid, hit.shown_at) for hit in hits)
        return Reply(origin, lines, _first(places))

    def _events(self, query: search.Query, number: int) -> search.SearchAnswer:
        """Return at least so many events that match, if there are; internal ones left out."""
        events: list[search.SearchMatch] = []
        offset, size = 0, number
        while True:
            answer = search_tagged(self._store, query, size, offset)
            events += [event for event in answer.matches if event.state != "internal"]
            if len(events) >= number or len(answer.matches) < size:
                return msgspec.structs.replace(answer, matches=events)
            offset, size = offset + size, 2 * size

    def _recall(self, asked: RecallQuestion) -> Reply:
        page = recap(self._store, self._notes(), asked.question, self._status())
        number = len(page.sessions)
        places = (
            (session.session_uid, mention.event_id)
            for session in page.sessions
            for some in (session.quotes, session.decided, session.commands, session.failed)
            for mention in some
        )
        many = f"{number} session{'' if number == 1 else 's'}"
        return Reply(many, recap_lines(page), _first(places))

    def _around(self, asked: AroundQuestion) -> Reply:
        row = self._row(asked.session)
        uid = row.session.session_uid
        rows = list(self._store.events(uid))
        wanted = recall.named_event(rows, uid, asked.event).event
        records = list(_records(rows, wanted).items())
        names = [name for name, _ in records]
        at = names.index(wanted.native_id)
        part = records[max(at - asked.before, 0) : at + asked.after + 1]
        lines = self._record_lines(part, wanted.native_id)
        missing = asked.before - min(at, asked.before)
        if missing and recall.origin_of(row) is not None:
            lines = chain(self._records_before(uid, asked.event, missing), lines)
        return Reply(self._who(uid), lines, (uid, wanted.event_id))

    def _records_before(self, uid: str, event: str, number: int) -> Iterator[str]:
        """Yield the last records before a session began, from those that it continues."""
        session = self._session(uid)[1]
        place = recall.place_of(session, event)
        records = [
            (part.session.uid, list(part.session.records[at].blocks))
            for part in session.inherited(place, boundaries=False)
            for at in part.places
            if part.session.states[at] is not State.INTERNAL
        ]
        for origin, some in groupby(records[len(records) - number :], lambda record: record[0]):
            yield from self._record_lines([("", events) for _, events in some], wanted=" ")
            yield f"continued from {self._who(origin)}"

    def _record_lines(
        self, records: list[tuple[str, list[SessionEvent]]], wanted: str
    ) -> Iterator[str]:
        for name, events in records:
            for event in events:
                mark = " <- asked for" if name == wanted else ""
                yield _head(event) + mark
                text = words_of(recall.with_body(self._store.blobs, event)) or event.summary
                yield from quote_lines(
                    text, MAX_EVENT_CHARS if name == wanted else MAX_NEIGHBOUR_CHARS
                )

    def _read_spill(self, asked: ReadSpillQuestion) -> Reply:
        wanted: str | None = asked.session
        for _ in range(MAX_ANCESTORS):
            if wanted is None:
                break
            row, session = self._session(wanted)
            text = self._find_spill(session, asked.name)
            if text is not None:
                return _part(self._who(row.session.session_uid), text, asked.offset)
            older = (e.uid(row.session.flavor) for e in session.edges if not e.child)
            wanted = next((uid for uid in older if self._store.events(uid, limit=1)), None)
        raise InvalidQuestion(
            f"no spill {flatten(asked.name, 80)} in {flatten(asked.session, 80)}",
            hint="the name is in a placeholder in the session; import first if it is new",
        )

    def _find_spill(self, session: Readout, name: str) -> str | None:
        """Find what was spilled in a session under a name."""
        for event in session.events:
            if event.kind == "lifecycle" and event.summary == spills.NOTE:
                text = spills.text_in(session.payload(event), name)
                if text is not None:
                    return text
        return None

    def _session(self, wanted: str) -> tuple[SessionRow, Readout]:
        row = self._row(wanted)
        return row, read_session(self._store, row, None)

    def _row(self, wanted: str) -> SessionRow:
        """Find the session that an id means, whose transcript is there."""
        row = recall.session(self._store, wanted)
        if row.session.evicted_at is not None:
            name = _name(row.session.session_uid)
            raise InvalidQuestion(
                f"{name} was removed: only its digest is left", hint="use outline"
            )
        return row

    # -- one session --------------------------------------------------------------------

    def _outline(self, asked: OutlineQuestion) -> Reply:
        row = recall.session(self._store, asked.session)
        uid = row.session.session_uid
        digest = next(self._store.read_table("digests", Filter(uids=(uid,))), None)
        notes = [_note(note) for note in texts_of(self._notes()) if note.session_uid == uid]
        labels = labels_of(self._notes())
        standing = self._status().of(row)
        shown = recall.with_lineage(self._store, [row], labels)[0]
        about = _about(shown, standing)
        account = _account(digest_now(digest, shown, standing) if digest is not None else None)
        lines = [*about, *account, *notes, *self._prompts(row)]
        events = (event.event.event_id for event in self._store.events(uid, limit=1))
        return Reply(self._who(uid), lines, _first((uid, event) for event in events))

    def _prompts(self, row: SessionRow) -> Iterator[str]:
        uid = row.session.session_uid
        yield f"turns: {row.session.cost.turns}"
        events = [row.event for row in self._store.events(uid)]
        if not events:
            yield "transcript: removed"
            return
        if recall.origin_of(row) is not None:
            for part in self._session(uid)[1].inherited(boundaries=False):
                yield f"continued from {self._who(part.session.uid)}, {part.messages} messages"
                rows = part.session.along(part.places)
                yield from _named_prompts(row.event for row in rows)
        yield from _named_prompts(events)

    # -- learning -----------------------------------------------------------------------

    def _seen_error(self, asked: SeenErrorQuestion) -> Reply:
        shape = errors.error_shape(asked.text)
        if shape is None:
            return Reply("no error recognised in this text", [])
        known = patterns.memories(self._store.read_table("digests"))
        pattern = patterns.seen_before(known, shape)
        if pattern is None:
            return Reply("not seen before", [f"fingerprint: {flatten(shape)}"])
        often = f"{pattern.count} times in {pattern.sessions} sessions"
        proofs = [*pattern.evidence, *(proof for cure in pattern.cures for proof in cure.evidence)]
        origins = recall.origins_of(self._store, (proof.uid for proof in proofs))
        places = ((proof.uid, event) for proof in proofs for event in proof.events)
        origin = f"{often}, fixed in {pattern.data['settled']}"
        return Reply(origin, _cure_lines(pattern, origins), _first(places))

    def _files(self, asked: FilesQuestion) -> Reply:
        labels = labels_of(self._notes())
        touches = sessions_touching(self._store, Filter(), asked.path, self._status(), labels)
        number = len(touches)
        prompts = [
            reasons(self._store, touch["session_uid"], [file["path"] for file in touch["files"]])
            for touch in touches[: asked.limit]
        ]
        shown = list(zip(touches, prompts, strict=False))
        places = ((t["session_uid"], entry["event_id"]) for t, some in shown for entry in some)
        many = f"{number} session{'' if number == 1 else 's'} touched it"
        return Reply(many, _touch_lines(shown, self._who), _first(places))

    def _todos(self, asked: TodosQuestion) -> Reply:
        wanted, labels = Filter(project=asked.project), labels_of(self._notes())
        todos = open_promises(self._store, wanted, labels, self._dismissed())
        places = ((todo["session_uid"], todo["event_id"]) for todo in todos)
        return Reply(
            f"{len(todos)} open",
            [
                f"{self._who(todo['session_uid'])}{_event_part(todo['event_id'])} "
                f"{_day(todo['ended_at'])} {todo['status']}: {flatten(todo['text'], 160)}"
                for todo in todos[: asked.limit]
            ],
            _first(places),
        )

    def _costs(self, asked: CostsQuestion) -> Reply:
        labels = labels_of(self._notes())
        wanted = Filter(after=search.moment(asked.since))
        bill = CostTable(self._store, asked.by, wanted, labels=labels)
        parts = bill.parts[-asked.limit :] if asked.by in PERIODS else bill.parts[: asked.limit]
        lines = [
            f"{_cost(part)} in {part.sessions} sessions, "
            f"{money(part.dead)} on discarded branches, {money(part.side)} by subagents: "
            f"{_key(part.key[0], asked.by)}"
            for part in parts
        ]
        return Reply(f"{_cost(bill.total)} in {bill.total.sessions} sessions", lines)

    # -- writing ------------------------------------------------------------------------

    def _decide(self, asked: DecideQuestion) -> Reply:
        uid = None
        if asked.session is not None:
            uid = recall.session(self._store, asked.session).session.session_uid
        text = "\n".join(line.removeprefix("| ") for line in quote_lines(asked.text, 4_000))
        decision = self._write(text, uid)
        return Reply("saved", [f"decision {decision['uuid']} at {decision['ts']}"])


# -- lines ----------------------------------------------------------------------------------


def _name(uid: str) -> str:
    """Name a session so that the next question can use it."""
    agent, _, native = uid.partition(":")
    return flatten(f"{agent}:{native[:ID_CHARS]}", 60)


def _first(places: Iterable[tuple[str, int | None]]) -> Place | None:
    """Return the first event among places in sessions."""
    return next(((uid, event) for uid, event in places if event is not None), None)


def _event_part(event: int | None) -> str:
    return "" if event is None else f" {recall.event_name(event)}"


def _touch_lines(
    touches: Iterable[tuple[dict[str, JSON], list[dict[str, JSON]]]], who: Callable[[str], str]
) -> Iterator[str]:
    """Yield lines about sessions that touched a file, each with the prompts that led to it."""
    for touch, prompts in touches:
        edits, reads = (sum(f[name] for f in touch["files"]) for name in ("edits", "reads"))
        did = f"{edits} edits" if edits else f"{reads} reads"
        yield (
            f"{who(touch['session_uid'])} {_day(touch['ended_at'])} {did}, "
            f"{_outcome(touch['outcome'])}: {flatten(touch['title'] or '', 100)}"
        )
        for entry in prompts[:2]:
            yield f"  for{_event_part(entry['event_id'])}: {flatten(entry['prompt'], 120)}"


def _prompts_in(events: Iterable[SessionEvent]) -> Iterator[SessionEvent]:
    for event in events:
        if event.kind == "user_msg" and not event.is_sidechain and event.summary:
            yield event


def _named_prompts(events: Iterable[SessionEvent]) -> Iterator[str]:
    for event in islice(_prompts_in(events), MAX_PROMPTS):
        state = "" if event.state == "live" else f" ({event.state})"
        yield f"{recall.event_name(event.event_id)}{state}: {flatten(event.summary, 120)}"


def _day(text: Any) -> str:
    return text[:10] if isinstance(text, str) else "undated"


def _cost(total: Total) -> str:
    return _amount(total.ticks, total.unpriced, is_bound=total.is_minimum)


def _amount(ticks: int, unpriced: int, *, is_bound: bool) -> str:
    """Return an amount in words that need no legend: a price, at least so much, or unknown."""
    amount = money(ticks, unpriced, is_bound=is_bound)
    if amount == "?":
        return "unknown"
    return f"at least {amount[:-1]}" if amount.endswith("+") else amount


def _key(key: str | None, by: str) -> str:
    return _name(key) if by == "session" and key else flatten(key or "unknown", 80)


def _part(name: str, text: str, offset: int) -> Reply:
    """Return a part of a long text, and where the next one begins."""
    part = text[offset : offset + SPILL_PART_CHARS]
    while sum(len(line) + 1 for line in quote_lines(part, SPILL_PART_CHARS)) > SPILL_PART_CHARS:
        part = part[: len(part) * 7 // 8]  # quoting makes short lines longer
    end = offset + len(part)
    more = f"continue with offset {end}" if end < len(text) else "the end"
    origin = f"{name}, characters {offset} to {end} of {len(text)}"
    return Reply(f"{origin}; {more}", quote_lines(part, SPILL_PART_CHARS))


def _hit(hit: search.Hit) -> str:
    event = recall.event_name(hit.event_id) if hit.event_id is not None else hit.kind
    gone = f" ({hit.state})" if hit.state not in (None, "live") else ""
    snippet = hit.snippet.replace(search.OPEN, "").replace(search.CLOSE, "")
    if hit.unread is not None:
        snippet = f"(unreadable: {hit.unread})"
    name = f"{_name(hit.session_uid)}{in_brackets(hit.origin)}"
    return f"{event} {name} {_day(hit.ts)} {hit.kind}{gone}: {flatten(snippet, 260)}"


def _note(note: Note, query: search.Query | None = None) -> str:
    """Return a decision or note as one line; it says who wrote it before what."""
    text = search.snippet(note.text, query.terms if query else ())
    shown = text.replace(search.OPEN, "").replace(search.CLOSE, "")
    of = f" of {_name(note.session_uid)}" if note.session_uid else ""
    return f"{note.kind}{of} {_day(note.ts)}, {note.author}: {flatten(shown, 260)}"


def _head(event: SessionEvent) -> str:
    name = recall.event_name(event.event_id)
    # A result is told by the call that it follows.
    tool = f" {flatten(event.tool, 60)}" if event.tool and event.kind != "tool_result" else ""
    gone = "" if event.state in (None, State.LIVE) else f" ({event.state})"
    return f"{name} {(event.ts or '')[:19]} {event.role} {event.kind}{tool}{gone}"


def _records(rows: list[StoredEvent], wanted: SessionEvent) -> dict[str, list[SessionEvent]]:
    """Return the events of the live line by their records, or of the line that leads to one."""
    names = {
        row.event.native_id
        for row in rows
        if row.event.state in _ON_LINE and not row.event.is_sidechain
    }
    if wanted.native_id not in names:
        names = _names_above(rows, wanted)
    out: dict[str, list[SessionEvent]] = {}
    for row in rows:
        if row.event.native_id in names:
            out.setdefault(row.event.native_id, []).append(row.event)
    return out


def _names_above(rows: list[StoredEvent], wanted: SessionEvent) -> set[str]:
    """Return the records that lead to an event, and the results of calls among them."""
    by_id = {row.event.event_id: row for row in rows}
    ids: set[int] = set()
    at = by_id.get(wanted.event_id)
    while at is not None and at.event.event_id not in ids:
        ids.add(at.event.event_id)
        at = by_id.get(at.event.parent_id or 0)
    above = [row for row in rows if row.event.event_id in ids or (row.other or 0) in ids]
    names = {row.event.native_id for row in above if row.event.state is not State.INTERNAL}
    return names | {wanted.native_id}


_ON_LINE: Final = (State.LIVE, State.ORPHANED, State.REPLAYED)


def _about(row: SessionRow, standing: Standing | None) -> Iterator[str]:
    session = row.session
    yield f"title: {flatten(row.title or 'untitled')}"
    if row.tags:
        yield f"tags: {', '.join(row.tags)}"
    when = f"{(session.started_at or '')[:16]} to {(session.ended_at or '')[:16]}"
    model = flatten(session.model or "unknown", 60)
    yield f"agent {flatten(session.flavor, 40)}, model {model}, {when}"
    branch = flatten(session.git_branch or "-", 80)
    yield f"folder: {flatten(session.cwd or 'unknown')}, branch {branch}"
    cost = _amount(sum(row.ticks.values()), row.unpriced, is_bound=bool(row.lower_bound))
    turn = TURN_WORDS[turn_now(row.turn, standing)]
    yield f"cost {cost}, {row.events} events, last turn: {turn}"


def _outcome(stored: JSON) -> str:
    """Return the word that people and models read for an outcome."""
    return search.OUTCOME_NAMES.get(str(stored), str(stored))


def _account(digest: dict[str, JSON] | None) -> Iterator[str]:
    if digest is None:
        yield "digest: none yet"
        return
    because = "; ".join(map(flatten, digest.get("reasons") or ()))
    yield f"outcome: {_outcome(digest.get('outcome'))} ({because})"
    edited = [f for f in digest.get("files") or () if f.get("edits")]
    if edited:
        yield f"changed: {', '.join(flatten(f['path'], 80) for f in edited[:10])}"
    for error in (digest.get("errors") or ())[:5]:
        settled = ", fixed" if error.get("settled_by") is not None else ""
        yield f"error {error['count']}x{settled}: {flatten(error['fingerprint'], 140)}"
    for todo in (digest.get("todos") or ())[:5]:
        yield f"open: {flatten(todo.get('text') or '', 140)}"


def _cure_lines(pattern: patterns.Pattern, origins: Mapping[str, str]) -> Iterator[str]:
    yield f"fingerprint: {flatten(pattern.name)}"
    for cure in pattern.cures:
        met = dict.fromkeys(origins.get(proof.uid, "") for proof in cure.evidence)
        by = in_brackets("; ".join(filter(None, met)))
        yield f"worked after{by}: {flatten(cure.what, 160)} ({cure.sessions} sessions)"
        for proof in cure.evidence[-2:]:
            yield f"  {_where(proof, origins)}: {flatten(proof.quote, 160)}"
    for proof in pattern.evidence:
        yield f"seen {_where(proof, origins)}: {flatten(proof.quote, 160)}"


def _where(proof: patterns.PatternEvidence, origins: Mapping[str, str]) -> str:
    events = " ".join(recall.event_name(event) for event in proof.events[:2])
    return f"{_name(proof.uid)}{in_brackets(origins.get(proof.uid, ''))} {events}"
