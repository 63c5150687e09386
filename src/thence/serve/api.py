"""The JSON beside every page: typed answers, cursors for what is long, OpenAPI of all of it.

Everything here reads. Lists are paged by a cursor, a text that is handed back as it was given; it
says where a page ended, so that sessions that come in meanwhile shift nothing out of sight. Money
of discarded branches and of subagents stands apart from that of the live line. What a session says
is redacted, as it is kept.
"""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from litestar import Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery, QueryParameter

from thence.errors import SessionNotFound, ThenceError
from thence.format import layout
from thence.format.figures import TICKS
from thence.format.graph import State
from thence.format.records import JSON
from thence.format.stored import StoredEvent
from thence.memory import recall, retention, standing
from thence.memory.bills import By, CostTable, with_dollars
from thence.memory.labels import tagged_uids, with_tagged
from thence.memory.notes import matching_notes, note_events
from thence.memory.patterns import memories, patterns
from thence.memory.places import only_copies
from thence.memory.readouts import place_in
from thence.memory.recap import Recap, recap
from thence.memory.search import hits, moment, parse
from thence.memory.store import Filter, SessionRow, Total
from thence.memory.zones import midnight, millis, zone_label, zone_named
from thence.serve.answers import (
    AgentOut,
    AgentSession,
    Border,
    Costs,
    Digests,
    EventOut,
    Events,
    Found,
    Messages,
    NowOut,
    Patterns,
    PlanOut,
    ProjectOut,
    Projects,
    Removal,
    RiskOut,
    SessionDetail,
    SessionOut,
    Sessions,
    Signals,
    StoreOut,
    Sum,
    Tie,
)
from thence.serve.charts import charts_of
from thence.serve.desk import AtDesk, Desk
from thence.serve.timeline import timelines_of

PAGE: Final = 50
LARGEST: Final = 200
"""Sessions of one page, usually and at most."""
EVENTS: Final = 200
NOTES_FROM: Final = 1 << 40
"""The number of a session's first decision or note: above those of all events."""
MOST_EVENTS: Final = 1000
FOUND: Final = 500
"""Hits that are looked at for a list of the sessions that hold them."""

Limit = Annotated[int, QueryParameter(ge=1, le=LARGEST, description="How many, at most.")]
EventLimit = Annotated[int, QueryParameter(ge=1, le=MOST_EVENTS, description="How many, at most.")]
CursorText = Annotated[
    str | None, QueryParameter(max_length=512, description="Where the page before ended.")
]
Text = Annotated[str | None, QueryParameter(max_length=512)]
When = Annotated[
    str | None, QueryParameter(max_length=32, description="2026-01-31, 2026-01, or 7d ago.")
]
Sort = Literal["recent", "oldest", "cost", "tokens", "size"]
Outcome = Literal["success", "fail", "abandoned", "waiting", "unknown"]


_CLAUDE_DASH = re.compile(r"[^A-Za-z0-9]")
"""What becomes a dash in the names of Claude Code's project folders."""


class BadCursor(ThenceError):
    """A cursor that no page gave."""


# -- cursors --------------------------------------------------------------------------------


class At(msgspec.Struct, frozen=True, array_like=True):
    """Where a page ended: so many came before, and the last of them was this one."""

    offset: int
    last: str = ""


T = TypeVar("T")
_AT = msgspec.msgpack.Decoder(At)


def cursor_text(at: At) -> str:
    """Give a cursor as a text."""
    return urlsafe_b64encode(msgspec.msgpack.encode(at)).decode().rstrip("=")


def cursor_at(text: str | None) -> At:
    """Read a cursor back."""
    if text is None:
        return At(0)
    try:
        at = _AT.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError):
        at = At(-1)
    if not 0 <= at.offset < 1 << 40:
        raise BadCursor("invalid cursor", hint="start again without a cursor")
    return at


def paged(found: Sequence[T], cursor: str | None, limit: int) -> tuple[list[T], str | None]:
    """Cut a page out of what is at hand as a whole."""
    start = cursor_at(cursor).offset
    end = start + limit
    return list(found[start:end]), cursor_text(At(end)) if end < len(found) else None


SHIFTED: Final = 200
"""Sessions that may have come in before a page, since the one before it was given."""


def _page(desk: Desk, wanted: Filter, cursor: str | None, limit: int) -> Sessions:
    at = cursor_at(cursor)
    total = desk.store.totals((), wanted)[0].sessions
    window = limit + 1 + (SHIFTED if at.last else 0)
    asked = msgspec.structs.replace(wanted, limit=window, offset=max(at.offset - 1, 0))
    rows = list(desk.store.sessions(asked))
    # The page goes on after the last one that was given, wherever that stands by now.
    behind = [n for n, row in enumerate(rows) if row.session.session_uid == at.last]
    start = behind[0] + 1 if behind else min(at.offset, 1)
    shown = rows[start : start + limit]
    cursor = None
    if len(rows) > start + limit:
        offset = asked.offset + start + len(shown)
        cursor = cursor_text(At(offset, shown[-1].session.session_uid))
    now = desk.now()
    shown = desk.display(shown)
    return Sessions([session_out(desk, row, now) for row in shown], total, cursor)


def session_out(desk: Desk, row: SessionRow, now: standing.Now | None = None) -> SessionOut:
    """Give a session as the API does."""
    told = (now or desk.now()).of(row, desk.clock())
    return msgspec.convert(standing.session_object(row, told), SessionOut)


# -- sessions -------------------------------------------------------------------------------


@get("/api/now", sync_to_thread=True)
def now(desk: AtDesk, tz: Text = None) -> NowOut:
    """What waits, what runs, what is about to be deleted, and today's spending in a zone."""
    zone = zone_named(tz)
    told, at = desk.now(), desk.clock()
    found: dict[str, list[SessionOut]] = {"waiting": [], "running": [], "idle": []}
    for row in standing.open_sessions(desk.store, Filter(), told, at, desk.labels()):
        found[told.of(row, at) or "idle"].append(session_out(desk, row, told))
    waits = {uid: one.waiting_for for uid, one in told.live.items() if one.waiting_for}
    risks = [
        RiskOut(r.source.uid, r.source.path, r.size, round(r.days, 2), r.row is not None)
        for r in desk.risks()
    ]
    today, week = (
        msgspec.convert(_sums(desk, Filter(after=_midnight(at, back, zone))), Sum)
        for back in (0, 6)
    )
    budgets = desk.budget_uses(zone)
    return NowOut(
        **found, waiting_for=waits, at_risk=risks, today=today, week=week, budgets=budgets
    )


def _midnight(at: float, back: int, zone: tzinfo | None) -> int:
    """Return the start of the day so many days ago in a zone, in milliseconds."""
    today = datetime.fromtimestamp(at, UTC).astimezone(zone).date()
    return millis(midnight(today - timedelta(days=back), zone))


def _sums(desk: Desk, wanted: Filter) -> dict[str, JSON]:
    from thence.memory.bills import sums

    return sums(desk.store.totals((), wanted)[0])


@get("/api/projects", sync_to_thread=True)
def projects(desk: AtDesk) -> Projects:
    """The folders that agents worked in, the costliest first."""
    found = [one for one in desk.store.totals(["project"]) if one.key[0]]
    found.sort(key=lambda one: (-one.ticks, -one.sessions, one.key[0] or ""))
    return Projects([_project(one) for one in found])


def _project(one: Total) -> ProjectOut:
    path = one.key[0] or ""
    money = one.ticks / TICKS, one.dead / TICKS
    return ProjectOut(layout.project_id(path), path, one.sessions, *money, one.unpriced)


@get("/api/sessions", sync_to_thread=True)
def sessions(
    desk: AtDesk,
    *,
    q: Text = None,
    agent: Text = None,
    project: Text = None,
    model: Text = None,
    outcome: FromQuery[Outcome | None] = None,
    after: When = None,
    before: When = None,
    tag: Text = None,
    sort: FromQuery[Sort] = "recent",
    cursor: CursorText = None,
    limit: Limit = PAGE,
) -> Sessions:
    """Sessions that fit; with `q` those that hold what is looked for."""
    uids = tuple(tagged_uids(desk.labels(), tag)) if tag else None
    if q and q.strip():
        answer = desk.search(parse(q), FOUND)
        matched = dict.fromkeys(found.session_uid for found in answer.matches)
        uids = tuple(uid for uid in matched if uids is None or uid in uids)
    wanted = Filter(
        uids=uids,
        agent=agent or None,
        project=_project_filter(desk, project),
        model=model or None,
        outcome=outcome,
        after=_moment(after),
        before=_moment(before),
        order=sort,
    )
    return _page(desk, wanted, cursor, limit)


def _moment(text: str | None) -> int | None:
    return moment(text) if text else None


@get("/api/sessions/{uid:str}", sync_to_thread=True)
def session(desk: AtDesk, uid: FromPath[str]) -> SessionDetail:
    """One session: what it is, what it is tied to, and its digest."""
    row = desk.row(uid)
    wanted = Filter(uids=(row.session.session_uid,))
    agents, notices = [], []
    if row.session.evicted_at is None:
        agents = agents_of(row)
        notices = [f"{one.what}: {one.detail}" for one in recall.notices_of(row)]
    ties = [
        Tie(edge.link, edge.uid(row.session.flavor), edge.child, edge.how, edge.event)
        for edge in row.edges
    ]
    digest = next(map(with_dollars, desk.store.read_table("digests", wanted)), None)
    notes = [note for note in desk.notes() if note.session_uid == row.session.session_uid]
    out = session_out(desk, desk.display([row])[0])
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
    """Give the id of a subagent from the name of its channel."""
    return channel.removeprefix("agent:")


# -- what was said --------------------------------------------------------------------------


@get("/api/sessions/{uid:str}/chain", sync_to_thread=True)
def chain(
    desk: AtDesk,
    *,
    uid: FromPath[str],
    compacted: FromQuery[bool] = True,
    own: FromQuery[bool] = False,
    cursor: CursorText = None,
    limit: EventLimit = EVENTS,
) -> Events:
    """The live chain: what the model sees; with `compacted=false` all that led to it.

    Events of the sessions that it continues come first, unless only its `own` are wanted.
    """
    row, timeline = timelines_of(desk).get(desk, desk.row(uid))
    line = timeline.seen if compacted else timeline.line
    before = () if own else timeline.inherited[1 if compacted else 0]
    page = _chain(desk, row, [*before, *line], cursor=cursor, limit=limit)
    return msgspec.structs.replace(page, continued_from=_borders(before))


def _borders(rows: Sequence[StoredEvent]) -> list[Border]:
    """Say how many of these events stand in which session, in their order."""
    groups = groupby(rows, lambda row: row.event.session_uid)
    return [Border(uid, len(list(group))) for uid, group in groups]


@get("/api/sessions/{uid:str}/branch/{event:str}", sync_to_thread=True)
def branch(
    desk: AtDesk,
    *,
    uid: FromPath[str],
    event: FromPath[str],
    cursor: CursorText = None,
    limit: EventLimit = EVENTS,
) -> Events:
    """The chain that leads to one event, live or dead."""
    row = desk.row(uid)
    session = charts_of(desk).get(desk, row).session
    place = recall.place_of(session, event)
    before = session.inherited_events(place, boundaries=False)
    chain = [*before, *session.along(session.graph.chain(place, boundaries=False))]
    page = _chain(desk, row, chain, cursor=cursor, limit=limit)
    return msgspec.structs.replace(page, continued_from=_borders(before))


@get("/api/sessions/{uid:str}/events", sync_to_thread=True)
def events(
    desk: AtDesk,
    *,
    uid: FromPath[str],
    kind: Text = None,
    became: Annotated[State | None, QueryParameter(name="state")] = None,
    channel: Text = None,
    cursor: CursorText = None,
    limit: EventLimit = EVENTS,
) -> Events:
    """All events in the order in which they were read; decisions and notes of it are last."""
    row = desk.row(uid)
    notes = _notes_of(desk, row)
    if not (kind or became or channel):
        return _range(desk, row, cursor, limit, notes=notes)
    found = [
        one
        for one in (*desk.events(row), *notes)
        if kind in (None, one.event.kind)
        and became in (None, one.event.state)
        and channel in (None, one.event.channel, agent_name(one.event.channel))
    ]
    return _range(desk, row, cursor, limit, found)


def _notes_of(desk: Desk, row: SessionRow) -> list[StoredEvent]:
    """Return the decisions and notes of a session as events that come after all others."""
    events = note_events(desk.notes(), row.session.session_uid)
    return [
        StoredEvent(msgspec.structs.replace(event, seq=NOTES_FROM + number))
        for number, event in enumerate(events)
    ]


def _event(desk: Desk, uid: str, wanted: str) -> StoredEvent:
    """Return the event that a name means, or the decision or note."""
    row = desk.row(uid)
    try:
        return desk.event(row, wanted)
    except SessionNotFound:
        return recall.named_event(_notes_of(desk, row), row.session.session_uid, wanted)


@get("/api/sessions/{uid:str}/messages", sync_to_thread=True)
def messages(
    desk: AtDesk, uid: FromPath[str], at: Text = None, *, own: FromQuery[bool] = False
) -> Messages:
    """The live chain, or the one to an event, as messages that a model API accepts.

    With `own=1` without those of the sessions that it continues.
    """
    row = desk.row(uid)
    whole = desk.whole(row).whole
    place = place_in(whole, at) if at else None
    return Messages(list(whole.messages(to=place, own=own).messages), row.change)


@get("/api/sessions/{uid:str}/events/{event:str}", sync_to_thread=True)
def one_event(desk: AtDesk, uid: FromPath[str], event: FromPath[str]) -> EventOut:
    """One event, whole."""
    return event_out(desk, _event(desk, uid, event))


@get("/api/sessions/{uid:str}/events/{event:str}/raw", sync_to_thread=True, media_type="text/plain")
def raw_event(desk: AtDesk, uid: FromPath[str], event: FromPath[str]) -> Response[bytes]:
    """What an event holds, as it is kept: a file to save, never a page to show."""
    found = event_out(desk, _event(desk, uid, event))
    body = msgspec.json.format(msgspec.json.encode(found.payload), indent=2)
    headers = {"content-disposition": f'attachment; filename="{found.name}.txt"'}
    return Response(body, media_type="text/plain", headers=headers)


def _range(
    desk: Desk,
    row: SessionRow,
    cursor: str | None,
    limit: int,
    found: Sequence[StoredEvent] | None = None,
    *,
    notes: Sequence[StoredEvent] = (),
) -> Events:
    """Return a page of a session's events and notes, or of those that were found among them."""
    after = cursor_at(cursor).offset - 1
    if found is None:
        later = list(desk.events(row, after=after, limit=limit + 1))
        later += (note for note in notes if note.seq > after)
        later = later[: limit + 1]
        total = row.events + len(notes)
    else:
        later = [one for one in found if one.seq > after][: limit + 1]
        total = len(found)
    shown = later[:limit]
    following = cursor_text(At(shown[-1].seq + 1)) if len(later) > limit else None
    return Events([event_out(desk, one) for one in shown], total, row.change, following)


def _chain(
    desk: Desk, row: SessionRow, rows: Sequence[StoredEvent], *, cursor: str | None, limit: int
) -> Events:
    """Return one page of a chain; only its events are those whose payloads are read."""
    shown, following = paged(rows, cursor, limit)
    return Events([event_out(desk, one) for one in shown], len(rows), row.change, following)


def event_out(desk: Desk, one: StoredEvent) -> EventOut:
    """Return an event as the API gives it, with its payload."""
    event = recall.with_body(desk.store.blobs, one.event)
    fields: dict[str, Any] = msgspec.structs.asdict(event)
    return EventOut(**fields, name=recall.event_name(event.event_id), outcome=one.outcome)


@get("/api/projects/{project:str}/agent-sessions/{agent:str}", sync_to_thread=True)
def agent_session(
    desk: AtDesk,
    project: FromPath[str],
    agent: FromPath[str],
    cursor: CursorText = None,
    limit: EventLimit = EVENTS,
) -> AgentSession:
    """What one subagent of a project did, whichever session started it."""
    row, channel = _started(desk, project, agent)
    own = [
        one
        for one in desk.events(row)
        if channel in (None, one.event.channel) and one.event.state != State.INTERNAL
    ]
    page = _range(desk, row, cursor, limit, own)
    uid = row.session.session_uid
    return AgentSession(project, agent, uid, page.events, page.total, page.cursor)


def _path_of(desk: Desk, project: str) -> str | None:
    """Return the folder of a project by its id, ours or the name of Claude Code's folder."""
    paths = [one.key[0] for one in desk.store.totals(["project"]) if one.key[0]]
    ours = (path for path in paths if layout.project_id(path) == project)
    claudes = (path for path in paths if _CLAUDE_DASH.sub("-", path) == project)
    return next(ours, None) or next(claudes, None)


def _project_filter(desk: Desk, project: str | None) -> str | None:
    """Return what the folder of a session must hold: an id names a folder, all else is a part."""
    is_id = project is not None and "/" not in project and "-" in project
    return (_path_of(desk, project) if is_id and project else None) or project or None


def _started(desk: Desk, project: str, agent: str) -> tuple[SessionRow, str | None]:
    """Find the session that holds what a subagent said, and the channel it said it on."""
    hint = "/api/projects lists projects, /api/sessions/{uid} the agents of a session"
    if not layout.is_id(agent):
        raise SessionNotFound("no such agent", hint=hint)
    path = _path_of(desk, project)
    if path is None:
        raise SessionNotFound(f"no such project: {project[:80]!r}", hint=hint)
    rows = [r for r in desk.store.sessions(Filter(project=path)) if r.session.cwd == path]
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
    desk: AtDesk,
    *,
    q: Annotated[str, QueryParameter(max_length=2000, description="Words, phrases, filters.")],
    cursor: CursorText = None,
    limit: Limit = 20,
    prefix_last: Annotated[
        bool, QueryParameter(description="The last word may be the beginning of one.")
    ] = False,
) -> Found:
    """Events that hold what is looked for, the best first; decisions and notes apart."""
    query = with_tagged(parse(q, prefix_last=prefix_last), desk.labels())
    offset = cursor_at(cursor).offset
    answer = desk.search(query, limit, offset)
    told = hits(answer, query, desk.store.blobs)
    full = len(told.hits) == limit
    following = cursor_text(At(offset + limit)) if full else None
    notes = [] if offset else matching_notes(desk.searchable_notes(), query)[:limit]
    return Found(
        *(told.hits, told.capped, told.searched_back_to, following, notes),
        *(told.how, told.explanation, told.hints),
    )


@get("/api/ask", sync_to_thread=True)
def ask(
    desk: AtDesk,
    *,
    q: Annotated[str, QueryParameter(max_length=2000, description="A question, or words.")],
) -> Recap:
    """The two or three sessions that answer a question: what was asked, decided, changed, fixed."""
    return recap(desk.store, desk.notes(), q)


@get("/api/sessions/{uid:str}/digest", sync_to_thread=True)
def digest(desk: AtDesk, uid: FromPath[str]) -> dict[str, JSON]:
    """The account of a session that is kept for good."""
    row = desk.row(uid)
    found = map(
        with_dollars, desk.store.read_table("digests", Filter(uids=(row.session.session_uid,)))
    )
    told = next(iter(found), None)
    if told is None:
        raise SessionNotFound("this session is not analysed yet", hint="run thence sweep")
    return told


@get("/api/digests", sync_to_thread=True)
def digests(
    desk: AtDesk,
    *,
    agent: Text = None,
    project: Text = None,
    after: When = None,
    cursor: CursorText = None,
    limit: Limit = PAGE,
) -> Digests:
    """The accounts of sessions, in the order in which they were first kept."""
    wanted = Filter(agent=agent, project=_project_filter(desk, project), after=_moment(after))
    shown, following = paged(list(desk.store.read_table("digests", wanted)), cursor, limit)
    return Digests(list(map(with_dollars, shown)), following)


@get("/api/signals", sync_to_thread=True)
def signals(
    desk: AtDesk,
    *,
    kind: Text = None,
    agent: Text = None,
    project: Text = None,
    session: Text = None,
    after: When = None,
    cursor: CursorText = None,
    limit: Limit = PAGE,
) -> Signals:
    """What went wrong in sessions: loops, repeated errors, corrections."""
    uids = (desk.row(session).session.session_uid,) if session else None
    wanted = Filter(uids=uids, agent=agent, project=project, after=_moment(after))
    found = [one for one in desk.store.read_table("signals", wanted) if kind in (None, one["kind"])]
    shown, following = paged(found, cursor, limit)
    return Signals(shown, following)


@get("/api/patterns", sync_to_thread=True)
def all_patterns(
    desk: AtDesk,
    *,
    kind: Text = None,
    agent: Text = None,
    project: Text = None,
    after: When = None,
) -> Patterns:
    """What comes back in many sessions, with what helped and where it was seen."""
    wanted = Filter(agent=agent, project=_project_filter(desk, project), after=_moment(after))
    known = memories(
        desk.store.read_table("digests", wanted), desk.store.read_table("signals", wanted)
    )
    found = [one for one in patterns(known) if kind in (None, one.kind)]
    return Patterns(len(known), found)


@get("/api/costs", sync_to_thread=True)
def costs(
    desk: AtDesk,
    *,
    by: FromQuery[By] = "day",
    agent: Text = None,
    project: Text = None,
    model: Text = None,
    after: When = None,
    before: When = None,
    tz: Text = None,
) -> Costs:
    """What was spent, by day, model, project, agent, session, branch, pr or tag; discarded apart.

    Days are those of `tz`, the server's own zone by default; the answer names it.
    """
    zone = zone_named(tz)
    label = zone_label(zone, datetime.fromtimestamp(desk.clock(), UTC))
    wanted = Filter(
        agent=agent, project=project, model=model, after=_moment(after), before=_moment(before)
    )
    bill = CostTable(desk.store, by, wanted, zone, desk.labels())
    return msgspec.convert({**bill.object(), "tz": label}, Costs)


@get("/api/plan", sync_to_thread=True)
def plan(desk: AtDesk) -> PlanOut:
    """What `thence store gc` would let go of now, and why."""
    known = desk.store.known()
    held = retention.inventory(known, desk.now().live, only_copies=only_copies(known))
    planned = retention.plan(desk.policy, held, datetime.fromtimestamp(desk.clock(), UTC))
    return PlanOut(planned.usage_before, planned.usage_after, list(planned.items))


LAST: Final = 50
"""Removals that are told."""


@get("/api/store", sync_to_thread=True)
def store(desk: AtDesk) -> StoreOut:
    """How full the store is, what is in it, what went, and what is still to be done."""
    known = desk.store.known()
    held = known.sessions.values()
    rows = list(desk.store.sessions())
    skips = [row.skipped for row in rows if row.skipped]
    gone = list(desk.store.read_table("removals"))[-LAST:]
    return StoreOut(
        sessions=len(known.sessions),
        evicted=sum(one.evicted is not None for one in held),
        not_analysed=sum(one.analysed is None and one.evicted is None for one in held),
        raw_bytes=sum(one.bytes for one in held if one.evicted is None),
        distilled_bytes=known.distilled_bytes,
        policy=desk.policy,
        skipped=sum(skips),
        sessions_with_skips=len(skips),
        sources_gone=sum(one.gone for one in held),
        pending=known.pending,
        to_be_repacked=len(known.untidy),
        forgotten=len(known.forgotten),
        redacted=dict(sum((Counter(row.redacted) for row in rows if row.redacted), Counter())),
        removals=[_removal(one) for one in reversed(gone)],
    )


def _removal(one: dict[str, JSON]) -> Removal:
    told: Callable[[str, JSON], JSON] = one.get
    at = datetime.fromtimestamp(one["at"] / 1000, UTC).isoformat(timespec="seconds")
    return Removal(
        at=at,
        what=one["what"],
        uid=str(told("uid", "")),
        bytes=int(told("bytes", 0) or 0),
        why=str(told("why", "")),
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
    plan,
    store,
]
