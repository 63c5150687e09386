"""The JSON beside every page: typed answers, cursors for what is long, OpenAPI of all of it.

Everything here reads. Lists are paged by a cursor, a text that is handed back as it was given; it
says where a page ended, so that sessions that come in meanwhile shift nothing out of sight. Money
of discarded branches and of subagents stands apart from that of the live line. What a session says
is redacted, as it is kept.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

import msgspec
from litestar import Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery, QueryParameter

from thence.agents.unread import as_objects
from thence.errors import SessionNotFound, ThenceError
from thence.format import layout
from thence.format.figures import TICKS
from thence.format.graph import State
from thence.format.records import JSON
from thence.format.stored import StoredEvent
from thence.memory import recall, session_status
from thence.memory.cost_totals import By, CostTable, sums, with_dollars
from thence.memory.labels import stored_agent, tagged_uids, with_tagged
from thence.memory.local_days import midnight, millis, zone_label, zone_named
from thence.memory.notes import matching_notes, note_events
from thence.memory.patterns import Kind as PatternKind
from thence.memory.patterns import memories, patterns
from thence.memory.recap import Recap, recap
from thence.memory.reports import losses_of
from thence.memory.search import (
    EVENT_KINDS,
    MAX_ROWS,
    moment,
    named,
    parse,
    stored_outcome,
)
from thence.memory.session_sources import plan_removals
from thence.memory.signals import Kind as SignalKind
from thence.memory.store import Filter, SessionRow, Total
from thence.memory.stored_paths import dash_path
from thence.memory.unread import read_unread
from thence.serve.api_types import (
    AgentOut,
    AgentSession,
    Border,
    ChangedFileOut,
    CostsOut,
    Digests,
    EventOut,
    EventsOut,
    MessagesOut,
    NowOut,
    Patterns,
    PlanOut,
    ProjectOut,
    Projects,
    RelatedSession,
    Removal,
    RiskOut,
    SearchOut,
    SessionDetail,
    SessionOut,
    Sessions,
    SignalsOut,
    StoreOut,
    Sum,
    ToolOut,
    UnreadOut,
    WorkOut,
)
from thence.serve.chart_cache import charts_of
from thence.serve.context import AppContext, ContextDependency
from thence.serve.session_work import work_of
from thence.serve.timeline import timelines_of

DEFAULT_PAGE_SESSIONS: Final = 50
MAX_PAGE_SESSIONS: Final = 200
"""Sessions of one page, usually and at most."""
DEFAULT_PAGE_EVENTS: Final = 200
FIRST_NOTE_SEQ: Final = 1 << 40
"""The number of a session's first decision or note: above those of all events."""
MAX_PAGE_EVENTS: Final = 1000

T = TypeVar("T")
Limit = Annotated[int, QueryParameter(ge=1, le=MAX_PAGE_SESSIONS, description="Maximum number.")]
EventLimit = Annotated[int, QueryParameter(ge=1, le=MAX_PAGE_EVENTS, description="Maximum number.")]
CursorText = Annotated[
    str | None, QueryParameter(max_length=512, description="Cursor of the previous page.")
]
Text = Annotated[str | None, QueryParameter(max_length=512)]
When = Annotated[
    str | None, QueryParameter(max_length=32, description="2026-01-31, 2026-01, or 7d ago.")
]
Sort = Literal["recent", "oldest", "cost", "tokens", "size"]


# -- cursors --------------------------------------------------------------------------------


class BadCursor(ThenceError):
    """A cursor that no page gave."""


class PagePosition(msgspec.Struct, frozen=True, array_like=True):
    """Where a page ended: so many came before, and the last of them was this one."""

    offset: int
    last: str = ""


_AT = msgspec.msgpack.Decoder(PagePosition)


def cursor_text(at: PagePosition) -> str:
    """Return a cursor as a text."""
    return urlsafe_b64encode(msgspec.msgpack.encode(at)).decode().rstrip("=")


def cursor_at(text: str | None) -> PagePosition:
    """Read a cursor back."""
    if text is None:
        return PagePosition(0)
    try:
        at = _AT.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError):
        at = PagePosition(-1)
    if not 0 <= at.offset < 1 << 40:
        raise BadCursor("invalid cursor", hint="start again without a cursor")
    return at


def paginate(items: Sequence[T], cursor: str | None, limit: int) -> tuple[list[T], str | None]:
    """Cut a page out of what is at hand as a whole."""
    start = cursor_at(cursor).offset
    end = start + limit
    return list(items[start:end]), cursor_text(PagePosition(end)) if end < len(items) else None


MAX_SHIFTED_SESSIONS: Final = 200
"""New sessions that may have moved a page since the page before it was sent."""


def _page(context: AppContext, wanted: Filter, cursor: str | None, limit: int) -> Sessions:
    at = cursor_at(cursor)
    total = context.store.totals((), wanted)[0].sessions
    window = limit + 1 + (MAX_SHIFTED_SESSIONS if at.last else 0)
    asked = msgspec.structs.replace(wanted, limit=window, offset=max(at.offset - 1, 0))
    rows = list(context.store.sessions(asked))
    # The page goes on after the last one that was given, wherever that stands by now.
    behind = [n for n, row in enumerate(rows) if row.session.session_uid == at.last]
    start = behind[0] + 1 if behind else min(at.offset, 1)
    shown = rows[start : start + limit]
    cursor = None
    if len(rows) > start + limit:
        offset = asked.offset + start + len(shown)
        cursor = cursor_text(PagePosition(offset, shown[-1].session.session_uid))
    now = context.now()
    shown = context.display(shown)
    return Sessions([session_out(context, row, now) for row in shown], total, cursor)


def session_out(
    context: AppContext, row: SessionRow, now: session_status.Now | None = None
) -> SessionOut:
    """Return a session as the API does."""
    standing_now = (now or context.now()).of(row, context.clock())
    return msgspec.convert(session_status.session_object(row, standing_now), SessionOut)


# -- sessions -------------------------------------------------------------------------------


@get("/api/now", sync_to_thread=True)
def now(context: ContextDependency, tz: Text = None) -> NowOut:
    """What waits, what runs, what is about to be deleted, and today's spending in a zone."""
    zone = zone_named(tz)
    current, at = context.now(), context.clock()
    open_now = session_status.sessions_by_standing(context.store, current, at, context.labels())
    by_standing = {
        how: [session_out(context, row, current) for row in rows] for how, rows in open_now.items()
    }
    waits = {uid: status.waiting_for for uid, status in current.live.items() if status.waiting_for}
    risks = [
        RiskOut(r.source.uid, r.source.path, r.size, round(r.days, 2), r.row is not None)
        for r in context.risks()
    ]
    today, week = (
        msgspec.convert(sums(context.store.totals((), Filter(after=start))[0]), Sum)
        for start in (_midnight(context, 0, zone), _midnight(context, 6, zone))
    )
    return NowOut(
        **by_standing,
        waiting_for=waits,
        at_risk=risks,
        today=today,
        week=week,
        budgets=context.budget_uses(zone),
        lost=losses_of(context.store),
        not_read=msgspec.convert(as_objects(read_unread(context.home)), list[UnreadOut]),
    )


def _midnight(context: AppContext, back: int, zone: tzinfo | None) -> int:
    """Return the start of the day so many days ago in a zone, in milliseconds."""
    today = context.moment(zone).date()
    return millis(midnight(today - timedelta(days=back), zone))


@get("/api/projects", sync_to_thread=True)
def projects(context: ContextDependency) -> Projects:
    """The folders that agents worked in, the costliest first."""
    totals = [total for total in context.store.totals(["project"]) if total.key[0]]
    totals.sort(key=lambda total: (-total.ticks, -total.sessions, total.key[0] or ""))
    return Projects([_project(total) for total in totals])


def _project(total: Total) -> ProjectOut:
    path = total.key[0] or ""
    money = total.ticks / TICKS, total.dead / TICKS
    is_bound = total.is_minimum
    return ProjectOut(
        layout.project_id(path), path, total.sessions, *money, total.unpriced, is_bound
    )


@get("/api/sessions", sync_to_thread=True)
def sessions(
    context: ContextDependency,
    *,
    q: Text = None,
    agent: Text = None,
    project: Text = None,
    model: Text = None,
    outcome: Text = None,
    after: When = None,
    before: When = None,
    tag: Text = None,
    tz: Text = None,
    sort: FromQuery[Sort] = "recent",
    cursor: CursorText = None,
    limit: Limit = DEFAULT_PAGE_SESSIONS,
) -> Sessions:
    """Sessions that fit; with `q` those that hold what is looked for. Days are those of `tz`."""
    zone = zone_named(tz)
    uids = tuple(tagged_uids(context.labels(), tag)) if tag else None
    if q and q.strip():
        answer = context.search(parse(q, zone=zone), MAX_ROWS)
        matched = dict.fromkeys(hit.session_uid for hit in answer.matches)
        uids = tuple(uid for uid in matched if uids is None or uid in uids)
    wanted = Filter(
        uids=uids,
        agent=_agent(context, agent),
        project=_project_filter(context, project),
        model=model or None,
        outcome=stored_outcome(outcome) if outcome else None,
        after=_moment(after, zone),
        before=_moment(before, zone),
        order=sort,
    )
    return _page(context, wanted, cursor, limit)


def _agent(context: AppContext, name: str | None) -> str | None:
    return stored_agent(context.store, name) if name else None


def _moment(text: str | None, zone: tzinfo | None = None) -> int | None:
    return moment(text, zone) if text else None


@get("/api/sessions/{uid:str}", sync_to_thread=True)
def session(context: ContextDependency, uid: FromPath[str]) -> SessionDetail:
    """One session: what it is, what it is tied to, and its digest."""
    row = context.row(uid)
    wanted = Filter(uids=(row.session.session_uid,))
    agents, notices = [], []
    if row.session.evicted_at is None:
        agents = agents_of(row)
        notices = [f"{notice.what}: {notice.detail}" for notice in recall.notices_of(row)]
    ties = [
        RelatedSession(edge.link, edge.uid(row.session.flavor), edge.child, edge.how, edge.event)
        for edge in row.edges
    ]
    digest = next(_digests_now(context, context.store.read_table("digests", wanted)), None)
    notes = [note for note in context.notes() if note.session_uid == row.session.session_uid]
    out = session_out(context, context.display([row])[0])
    return SessionDetail(out, row.change, ties, agents, digest, notices, notes)


def agents_of(row: SessionRow) -> list[AgentOut]:
    """Name the subagents of a session: channels of its own, and sessions below it."""
    own = [
        AgentOut(agent_name(channel), number, row.session.session_uid)
        for channel, number in row.channels.items()
    ]
    below = (edge for edge in row.edges if edge.link == "subagent" and edge.child)
    return own + [AgentOut(e.session, 0, f"{row.session.flavor}:{e.session}") for e in below]


def agent_name(channel: str) -> str:
    """Return the id of a subagent from the name of its channel."""
    return channel.removeprefix("agent:")


# -- what was said --------------------------------------------------------------------------


@get("/api/sessions/{uid:str}/chain", sync_to_thread=True)
def chain(
    context: ContextDependency,
    *,
    uid: FromPath[str],
    compacted: FromQuery[bool] = True,
    own: FromQuery[bool] = False,
    cursor: CursorText = None,
    limit: EventLimit = DEFAULT_PAGE_EVENTS,
) -> EventsOut:
    """The live chain: what the model sees; with `compacted=false` all that led to it.

    Events of the sessions that it continues come first, unless only its `own` are wanted.
    """
    row, timeline = timelines_of(context).get(context, context.row(uid))
    line = timeline.seen if compacted else timeline.line
    before = () if own else timeline.inherited[1 if compacted else 0]
    return _chain(context, row, before, line, (cursor, limit))


@get("/api/sessions/{uid:str}/branch/{event:str}", sync_to_thread=True)
def branch(
    context: ContextDependency,
    *,
    uid: FromPath[str],
    event: FromPath[str],
    cursor: CursorText = None,
    limit: EventLimit = DEFAULT_PAGE_EVENTS,
) -> EventsOut:
    """The chain that leads to one event, live or dead."""
    row = context.row(uid)
    session = charts_of(context).get(context, row).session
    place = recall.place_of(session, event)
    before = session.inherited_events(place, boundaries=False)
    line = session.along(session.graph.chain(place, boundaries=False))
    return _chain(context, row, before, line, (cursor, limit))


@get("/api/sessions/{uid:str}/events", sync_to_thread=True)
def events(
    context: ContextDependency,
    *,
    uid: FromPath[str],
    kind: Text = None,
    became: Annotated[State | None, QueryParameter(name="state")] = None,
    channel: Text = None,
    cursor: CursorText = None,
    limit: EventLimit = DEFAULT_PAGE_EVENTS,
) -> EventsOut:
    """All events in the order in which they were read; decisions and notes of it are last."""
    row = context.row(uid)
    notes = _notes_of(context, row)
    if kind:
        named("kind", kind, EVENT_KINDS)
    if not (kind or became or channel):
        return _range(context, row, cursor, limit, notes=notes)
    matches = [
        stored
        for stored in (*context.events(row), *notes)
        if kind in (None, stored.event.kind)
        and became in (None, stored.event.state)
        and channel in (None, stored.event.channel, agent_name(stored.event.channel))
    ]
    return _range(context, row, cursor, limit, matches)


def _notes_of(context: AppContext, row: SessionRow) -> list[StoredEvent]:
    """Return the decisions and notes of a session as events that come after all others."""
    events = note_events(context.notes(), row.session.session_uid)
    return [
        StoredEvent(msgspec.structs.replace(event, seq=FIRST_NOTE_SEQ + number))
        for number, event in enumerate(events)
    ]


def _event(context: AppContext, uid: str, wanted: str) -> StoredEvent:
    """Return the event that a name means, or the decision or note."""
    row = context.row(uid)
    try:
        return context.event(row, wanted)
    except SessionNotFound:
        return recall.named_event(_notes_of(context, row), row.session.session_uid, wanted)


@get("/api/sessions/{uid:str}/messages", sync_to_thread=True)
def messages(
    context: ContextDependency, uid: FromPath[str], at: Text = None, *, own: FromQuery[bool] = False
) -> MessagesOut:
    """The live chain, or the one to an event, as messages that a model API accepts.

    With `own=1` without those of the sessions that it continues.
    """
    row = context.row(uid)
    session = context.open_session(row).session
    place = recall.place_of(session, at) if at else None
    return MessagesOut(list(session.messages(to=place, own=own).messages), row.change)


@get("/api/sessions/{uid:str}/events/{event:str}", sync_to_thread=True)
def one_event(context: ContextDependency, uid: FromPath[str], event: FromPath[str]) -> EventOut:
    """One event, whole."""
    return event_out(context, _event(context, uid, event))


@get("/api/sessions/{uid:str}/events/{event:str}/raw", sync_to_thread=True, media_type="text/plain")
def raw_event(
    context: ContextDependency, uid: FromPath[str], event: FromPath[str]
) -> Response[bytes]:
    """What an event holds, as it is kept: a file to save, never a page to show."""
    shown = event_out(context, _event(context, uid, event))
    body = msgspec.json.format(msgspec.json.encode(shown.payload), indent=2)
    headers = {"content-disposition": f'attachment; filename="{shown.name}.txt"'}
    return Response(body, media_type="text/plain", headers=headers)


def _range(
    context: AppContext,
    row: SessionRow,
    cursor: str | None,
    limit: int,
    matches: Sequence[StoredEvent] | None = None,
    *,
    notes: Sequence[StoredEvent] = (),
) -> EventsOut:
    """Return a page of a session's events and notes, or of those that were found among them."""
    after = cursor_at(cursor).offset - 1
    if matches is None:
        later = list(context.events(row, after=after, limit=limit + 1))
        later += (note for note in notes if note.seq > after)
        later = later[: limit + 1]
        total = row.events + len(notes)
    else:
        later = [match for match in matches if match.seq > after][: limit + 1]
        total = len(matches)
    shown = later[:limit]
    following = cursor_text(PagePosition(shown[-1].seq + 1)) if len(later) > limit else None
    return EventsOut([event_out(context, stored) for stored in shown], total, row.change, following)


def _chain(
    context: AppContext,
    row: SessionRow,
    before: Sequence[StoredEvent],
    rows: Sequence[StoredEvent],
    page: tuple[str | None, int],
) -> EventsOut:
    """Return one page of a chain, by cursor and limit; only the payloads of its events are read.

    Events `before` it are of the sessions that it continues.
    """
    every = [*before, *rows]
    shown, following = paginate(every, *page)
    groups = groupby(before, lambda row: row.event.session_uid)
    borders = [Border(uid, len(list(group))) for uid, group in groups]
    events = [event_out(context, stored) for stored in shown]
    return EventsOut(events, len(every), row.change, following, borders)


def event_out(context: AppContext, stored: StoredEvent) -> EventOut:
    """Return an event as the API gives it, with its payload."""
    event = recall.with_body(context.store.blobs, stored.event)
    fields: dict[str, Any] = msgspec.structs.asdict(event)
    return EventOut(**fields, name=recall.event_name(event.event_id), outcome=stored.outcome)


@get("/api/projects/{project:str}/agent-sessions/{agent:str}", sync_to_thread=True)
def agent_session(
    context: ContextDependency,
    project: FromPath[str],
    agent: FromPath[str],
    cursor: CursorText = None,
    limit: EventLimit = DEFAULT_PAGE_EVENTS,
) -> AgentSession:
    """What one subagent of a project did, whichever session started it."""
    row, channel = _find_agent_source(context, project, agent)
    own = [
        stored
        for stored in context.events(row)
        if channel in (None, stored.event.channel) and stored.event.state != State.INTERNAL
    ]
    page = _range(context, row, cursor, limit, own)
    uid = row.session.session_uid
    return AgentSession(project, agent, uid, page.events, page.total, page.cursor)


def _path_of(context: AppContext, project: str) -> str | None:
    """Return the folder of a project by its id, ours or the name of Claude Code's folder."""
    paths = [total.key[0] for total in context.store.totals(["project"]) if total.key[0]]
    ours = (path for path in paths if layout.project_id(path) == project)
    claudes = (path for path in paths if dash_path(path) == project)
    return next(ours, None) or next(claudes, None)


def _project_filter(context: AppContext, project: str | None) -> str | None:
    """Return what the folder of a session must hold: an id names a folder, all else is a part."""
    is_id = project is not None and "/" not in project and "-" in project
    return (_path_of(context, project) if is_id and project else None) or project or None


def _find_agent_source(
    context: AppContext, project: str, agent: str
) -> tuple[SessionRow, str | None]:
    """Find the session that holds what a subagent said, and the channel it said it on."""
    hint = "/api/projects lists projects, /api/sessions/{uid} the agents of a session"
    if not layout.is_id(agent):
        raise SessionNotFound("no such agent", hint=hint)
    path = _path_of(context, project)
    if path is None:
        raise SessionNotFound(f"no such project: {project[:80]!r}", hint=hint)
    rows = [r for r in context.store.sessions(Filter(project=path)) if r.folder == path]
    for row in rows:
        if row.session.native_session_id == agent:
            return row, None
    for row in rows:
        # Its file is called after it; a name is compared, never opened.
        if any(agent in Path(file).name for file in row.files[1:]):
            mine = next((c for c in row.channels if agent_name(c) == agent), None)
            if mine is not None:
                return row, mine
    raise SessionNotFound(f"no agent {agent} in this project", hint=hint)


# -- what is known --------------------------------------------------------------------------


@get("/api/search", sync_to_thread=True)
def search(
    context: ContextDependency,
    *,
    q: Annotated[str, QueryParameter(max_length=2000, description="Words, phrases, filters.")],
    cursor: CursorText = None,
    limit: Limit = 20,
    tz: Text = None,
) -> SearchOut:
    """Events that hold what is looked for, the best first; decisions and notes apart.

    Days in `q` are those of `tz`, the server's own zone by default.
    """
    query = with_tagged(parse(q, zone=zone_named(tz)), context.labels())
    offset = cursor_at(cursor).offset
    answer = context.search(query, limit, offset)
    answers = recall.read_hits(context.store, answer, query)
    full = len(answers.hits) == limit
    following = cursor_text(PagePosition(offset + limit)) if full else None
    notes = [] if offset else matching_notes(context.searchable_notes(), query)[:limit]
    return SearchOut(
        *(answers.hits, answer.total, answer.sessions, answer.capped, answer.searched_back_to),
        *(following, notes, answer.how, answer.explanation, answer.hints),
    )


@get("/api/ask", sync_to_thread=True)
def ask(
    context: ContextDependency,
    *,
    q: Annotated[str, QueryParameter(max_length=2000, description="A question, or words.")],
) -> Recap:
    """The two or three sessions that answer a question: what was asked, decided, changed, fixed."""
    return recap(context.store, context.searchable_notes(), q, context.now())


def _digests_now(
    context: AppContext, digests: Iterable[dict[str, JSON]]
) -> Iterator[dict[str, JSON]]:
    """Yield digests as they are to be read now, with dollars."""
    now, labels, at = context.now(), context.labels(), context.clock()
    return map(with_dollars, session_status.digests_now(context.store, digests, now, labels, at))


@get("/api/sessions/{uid:str}/digest", sync_to_thread=True)
def digest(context: ContextDependency, uid: FromPath[str]) -> dict[str, JSON]:
    """The account of a session that is kept for good."""
    row = context.row(uid)
    wanted = Filter(uids=(row.session.session_uid,))
    account = next(_digests_now(context, context.store.read_table("digests", wanted)), None)
    if account is None:
        raise SessionNotFound("this session is not analysed yet", hint="run thence sweep")
    return account


def _filter(
    context: AppContext, agent: str | None, project: str | None, after: str | None
) -> Filter:
    return Filter(
        agent=_agent(context, agent),
        project=_project_filter(context, project),
        after=_moment(after),
    )


@get("/api/digests", sync_to_thread=True)
def digests(
    context: ContextDependency,
    *,
    agent: Text = None,
    project: Text = None,
    after: When = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_PAGE_SESSIONS,
) -> Digests:
    """The accounts of sessions, in the order in which they were first kept."""
    wanted = _filter(context, agent, project, after)
    shown, following = paginate(list(context.store.read_table("digests", wanted)), cursor, limit)
    return Digests(list(_digests_now(context, shown)), following)


@get("/api/signals", sync_to_thread=True)
def signals(
    context: ContextDependency,
    *,
    kind: Text = None,
    agent: Text = None,
    project: Text = None,
    session: Text = None,
    after: When = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_PAGE_SESSIONS,
) -> SignalsOut:
    """What went wrong in sessions: loops, repeated errors, corrections."""
    uids = (context.row(session).session.session_uid,) if session else None
    wanted = msgspec.structs.replace(_filter(context, agent, project, after), uids=uids)
    if kind:
        named("kind", kind, get_args(SignalKind))
    matches = [
        signal
        for signal in context.store.read_table("signals", wanted)
        if kind in (None, signal["kind"])
    ]
    shown, following = paginate(matches, cursor, limit)
    return SignalsOut(shown, following)


@get("/api/patterns", sync_to_thread=True)
def all_patterns(
    context: ContextDependency,
    *,
    kind: Text = None,
    agent: Text = None,
    project: Text = None,
    after: When = None,
) -> Patterns:
    """What comes back in many sessions, with what helped and where it was seen."""
    wanted = _filter(context, agent, project, after)
    if kind:
        named("kind", kind, get_args(PatternKind))
    known = memories(
        context.store.read_table("digests", wanted), context.store.read_table("signals", wanted)
    )
    matches = [pattern for pattern in patterns(known) if kind in (None, pattern.kind)]
    return Patterns(len(known), matches)


@get("/api/costs", sync_to_thread=True)
def costs(
    context: ContextDependency,
    *,
    by: FromQuery[By] = "day",
    agent: Text = None,
    project: Text = None,
    model: Text = None,
    after: When = None,
    before: When = None,
    tz: Text = None,
) -> CostsOut:
    """What was spent, by day, model, project, agent, session, branch, pr or tag; discarded apart.

    Days are those of `tz`, the server's own zone by default; the answer names it.
    """
    zone = zone_named(tz)
    label = zone_label(zone, context.moment())
    since, until = _moment(after, zone), _moment(before, zone)
    wanted = Filter(
        agent=_agent(context, agent), project=project, model=model, after=since, before=until
    )
    bill = CostTable(context.store, by, wanted, zone, context.labels())
    return msgspec.convert({**bill.object(), "tz": label}, CostsOut)


@get("/api/work", sync_to_thread=True)
def work(context: ContextDependency, after: When = "30d") -> WorkOut:
    """Calls by tool and edits by file, of all sessions that ended after a date."""
    done = work_of(context, after=_moment(after) or 0)
    tools = [ToolOut(name, n, done.failed[name]) for name, n in done.calls.most_common()]
    files = [ChangedFileOut(*file, n, done.sessions[file]) for file, n in done.edits.most_common()]
    return WorkOut(tools, files)


@get("/api/plan", sync_to_thread=True)
def plan(context: ContextDependency) -> PlanOut:
    """What `thence store gc` would let go of now, and why."""
    known = context.store.known()
    now = context.moment()
    planned = plan_removals(context.policy, known, context.now().live, now)
    return PlanOut(planned.usage_before, planned.usage_after, list(planned.items))


MAX_REMOVALS: Final = 50
"""Removals that an answer lists."""


@get("/api/store", sync_to_thread=True)
def store(context: ContextDependency) -> StoreOut:
    """How full the store is, what is in it, what went, and what is still to be done."""
    known = context.store.known()
    entries = known.sessions.values()
    odd = list(context.store.read_table("oddities"))
    skips = [entry["skipped"] for entry in odd if entry["skipped"]]
    gone = list(context.store.read_table("removals"))[-MAX_REMOVALS:]
    return StoreOut(
        sessions=len(known.sessions),
        evicted=sum(entry.evicted is not None for entry in entries),
        not_analysed=sum(entry.analysed is None and entry.evicted is None for entry in entries),
        raw_bytes=sum(entry.bytes for entry in entries if entry.evicted is None),
        distilled_bytes=known.distilled_bytes,
        policy=context.policy,
        skipped=sum(skips),
        sessions_with_skips=len(skips),
        sources_gone=sum(entry.gone for entry in entries),
        pending=known.pending,
        to_be_repacked=len(known.untidy),
        forgotten=len(known.forgotten),
        redacted=dict(sum((Counter(entry["redacted"]) for entry in odd), Counter())),
        more_redacted=any(entry["more_redacted"] for entry in odd),
        removals=[_removal(entry) for entry in reversed(gone)],
    )


def _removal(entry: dict[str, JSON]) -> Removal:
    value_of: Callable[[str, JSON], JSON] = entry.get
    at = datetime.fromtimestamp(entry["at"] / 1000, UTC).isoformat(timespec="seconds")
    return Removal(
        at=at,
        what=entry["what"],
        uid=str(value_of("uid", "")),
        bytes=int(value_of("bytes", 0) or 0),
        why=str(value_of("why", "")),
    )


ROUTES: list[HTTPRouteHandler] = [
    now,
    projects,
    agent_session,
    sessions,
    session,
    chain,
    branch,
    events,
    one_event,
    raw_event,
    messages,
    digest,
    search,
    ask,
    digests,
    signals,
    all_patterns,
    costs,
    work,
    plan,
    store,
]
