"""Live: what agents write is swept and published while it happens, as server-sent events.

    GET /api/live                  all sessions: `changed`, `standing`
    GET /api/sessions/{uid}/live   one session: what is on its line (`event`), then what comes
                                   (`?branch=EVENT`: on the branch of an event; `?own=1`: without
                                   the sessions that it continues)

A late client gets the line from its beginning, or the last so many events, pairs whole; then it
is `ready`, and gets what comes. Ids are marks (`lines`) that say where a client stands, so that
`Last-Event-ID` resumes exactly, over a restart of the server as well: no gap, no double. When the
line moves (a rewind, a late result) `rewound` says how much of what was sent still holds. A
subagent that went on has an event of its own, `agent`, and `agentSessionChanged` with its project.

Invariants: what waits for a client is bounded; one that does not take it is told that it `lost`
the stream and let go, and finds the rest when it comes back. Nothing here keeps state that a
restart would lose.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import parse_qs

from litestar import get
from litestar.di import NamedDependency
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from thence.errors import BudgetExceeded, ThenceError
from thence.format import layout
from thence.format.derived_events import time_of
from thence.memory import session_status
from thence.memory.readouts import read_end, read_session
from thence.memory.recall import event_name
from thence.memory.store import Filter, SessionRow
from thence.memory.sweeper import Sweeper
from thence.serve.api import agent_name, event_out, session_out
from thence.serve.cache import SessionKey, session_key
from thence.serve.clients import Client, frame
from thence.serve.event_lines import EventLine, StreamPosition
from thence.serve.listeners import StoreListener

if TYPE_CHECKING:
    from thence.format.readout import Readout
    from thence.serve.auth import Receive, Scope, Send
    from thence.serve.context import AppContext

CHECK_INTERVAL_S: Final = 1.0
UNUSED_CHECK_INTERVAL_S: Final = 5.0
"""Seconds between two checks of the clients; and while there is none."""
HEARTBEAT_S: Final = 15.0  # proxies close what is silent for a minute, some sooner
"""Seconds of silence after which a client gets a heartbeat."""
SEND_TIMEOUT_S: Final = 20.0  # a client that does not read holds what is sent in memory
"""Seconds that a client may take to receive what is sent."""
MAX_CLIENTS: Final = 4000  # each takes a descriptor, and most systems allow a few thousand
MAX_WRITES_PER_S: Final = 10_000
"""Writes to all clients together in a second: what comes quicker is gathered for the next."""
REPLAY_BATCH_EVENTS: Final = 64
"""Events of a replay that are read at a time."""

HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


Name = tuple[str, str | None, bool]
"""What is followed: a session, the event whose branch it is, and whether its own part alone."""


class Stream:
    """One session, or one branch of it, that somebody follows."""

    def __init__(self, name: Name, row: SessionRow, line: EventLine, key: SessionKey) -> None:
        self.name = name
        self.uid, self.via, self.own = name
        """The event whose branch is followed; None for the live line."""
        self.row = row
        self.line = line
        self.key = key
        """The session, and those that it continues, as they were when the line was made."""
        self.clients: set[Client] = set()
        self.mutex = threading.Lock()
        """Held by threads: what is sent and where the line stands move together."""


class Hub:
    """All streams of one server."""

    def __init__(self, context: AppContext) -> None:
        self.context = context
        self._streams: dict[Name, Stream] = {}
        self._followers_of_all: set[Client] = set()
        self._clients: set[Client] = set()
        self._mutex = threading.Lock()
        """Held for moments only, in the loop as well: who is there."""
        self._publishing = threading.Lock()
        """Held by threads: what all clients hear of comes in one order."""
        self._published: dict[str, int] = {}
        self._standing: bytes = b""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watch: asyncio.Task[None] | None = None
        self._asleep: dict[Client, None] = {}
        """Who has something waiting, in the order of its coming; the loop alone looks."""
        self._waking = False
        self._next = 0.0
        """When clients may be woken next, by the clock of the loop."""
        self.sweeper: Sweeper | None = None
        """Imports new lines of logs; None where nothing may be written."""
        if (sweep_home := context.sweep_home) is not None:
            store, home, known, roots = context.store, context.home, context.known, context.roots
            self.sweeper = Sweeper(store, home, known, roots, sweep_home=sweep_home, hub=self)
        self._listener = StoreListener(context.store, self.publish_changes)

    # -- living -------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to watch, in the loop that runs."""
        self._loop = asyncio.get_running_loop()
        # So that nobody is told of what was there before the server.
        self._published = {
            uid: entry.change for uid, entry in self.context.store.known().sessions.items()
        }
        self._watch = asyncio.create_task(self._look_after())
        if self.sweeper is not None:
            self.sweeper.start()
        self._listener.start()

    def close(self) -> None:
        """End all streams, so that the server can end."""
        for client in list(self._clients):  # a copy: a client that ends takes itself out of the set
            client.close()

    async def stop(self) -> None:
        """End everything; when this returns nothing touches the store any more."""
        self.close()
        if self._watch is not None:
            self._watch.cancel()
        if self.sweeper is not None:
            await asyncio.to_thread(self.sweeper.stop)
        await asyncio.to_thread(self._listener.stop)

    async def _look_after(self) -> None:
        """Break the silence, and cut off clients that take nothing."""
        while True:
            interval_s = CHECK_INTERVAL_S if self._clients else UNUSED_CHECK_INTERVAL_S
            await asyncio.sleep(min(interval_s, HEARTBEAT_S))
            now = time.monotonic()
            for client in list(self._clients):
                if client.sending is None:
                    if client.last_sent < now - HEARTBEAT_S:
                        client.push((b": \n\n",))  # a comment, which clients of such streams ignore
                        client.wake()
                elif client.sending < now - SEND_TIMEOUT_S and client.task is not None:
                    client.task.cancel()

    def enter(self, client: Client) -> None:
        """Count a client."""
        with self._mutex:
            if len(self._clients) >= MAX_CLIENTS:
                raise BudgetExceeded("too many open streams", hint="close some pages")
            self._clients.add(client)

    def leave(self, client: Client, stream: Stream | None = None) -> None:
        """Forget a client; a session that nobody follows is not looked at any more."""
        with self._mutex:
            self._clients.discard(client)
            self._followers_of_all.discard(client)
            if stream is not None:
                stream.clients.discard(client)
                # Another stream may have taken the name meanwhile.
                if not stream.clients and self._streams.get(stream.name) is stream:
                    del self._streams[stream.name]

    def _send(self, clients: set[Client], frames: Sequence[bytes]) -> None:
        """Hand frames to clients, from any thread, in the order of the calls."""
        with self._mutex:
            to = list(clients)
        if self._loop is None or not to or not frames:
            return

        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens
            self._loop.call_soon_threadsafe(self._deliver, self._loop, to, frames)

    def _deliver(
        self, loop: asyncio.AbstractEventLoop, to: list[Client], frames: Sequence[bytes]
    ) -> None:
        """Queue frames for clients, in the loop, and wake them: at once, or rate-limited."""
        for client in to:
            client.push(frames)
        self._asleep.update(dict.fromkeys(to))
        if not self._waking:
            self._waking = True
            # Many clients at once are woken in turns: one change must not stall the loop.
            loop.call_at(self._next, self._wake, loop)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake clients with pending frames; the more there are, the longer the next wait."""
        self._waking = False
        self._next = loop.time() + len(self._asleep) / MAX_WRITES_PER_S
        asleep, self._asleep = self._asleep, {}
        for client in asleep:
            client.wake()

    # -- all sessions -------------------------------------------------------------------

    def publish_changes(self, uids: Iterable[str], *, again: bool = False) -> None:
        """Publish what is new in sessions; who has it already gets nothing, unless `again`."""
        wanted = tuple(dict.fromkeys(uids))
        if not wanted:
            return
        rows = self._rows(wanted)
        for row in rows:
            uid, news = row.session.session_uid, self._changed_frame(row)
            # In one order for all, or a client could hear of an older state last.
            with self._publishing:
                if self._published.get(uid) == row.change and not again:
                    continue
                self._published[uid] = row.change
                with self._mutex:
                    here = list(self._followers_of_all)
                to = {
                    client
                    for client in here
                    # It got this one with what it had missed.
                    if again or client.known_changes.pop(uid, 0) != row.change
                }
                self._send(to, [news])
            for stream in self._of(uid):
                self._refresh(stream, row)
            self._publish_to_parent(row)

    def _rows(self, uids: Sequence[str]) -> list[SessionRow]:
        """Return the rows of sessions in the order of their sweeps."""
        store = self.context.store
        rows = list(store.sessions(Filter(uids=tuple(uids)))) if uids else []
        return sorted(self.context.display(rows), key=_ingest_order)

    def _changed_frame(self, row: SessionRow) -> bytes:
        data = {"change": row.change, "session": session_out(self.context, row)}
        return frame("changed", data, _place(row))

    def _publish_to_parent(self, row: SessionRow) -> None:
        """Publish to the followers of the session that started this one."""
        agent = row.session
        for edge in row.edges:
            if edge.link == "subagent" and not edge.child:
                news = _agent(agent.native_session_id, agent.session_uid, row.events, agent.cwd)
                for stream in self._of(f"{agent.flavor}:{edge.session}"):
                    self._send(stream.clients, [news])

    def follow_all(self, client: Client, last: str | None) -> list[bytes]:
        """Let a client follow all sessions; return the frames that it missed since `last`."""
        # No change may fall between the list of what was missed and the first that is sent.
        with self._publishing:
            with self._mutex:
                self._followers_of_all.add(client)
            known = self.context.store.known().sessions
            places = sorted((entry.ingested or 0, uid) for uid, entry in known.items())
            since = _read_place(last)
            missed = [uid for at, uid in places if since is not None and (at, uid) > since]
            rows = self._rows(missed)
            client.known_changes = {row.session.session_uid: row.change for row in rows}
            frames = [self._changed_frame(row) for row in rows]
        at = _place_text(*places[-1]) if places else None
        self._standing = self._standing_frame()
        return [*frames, frame("ready", {"sessions": len(known)}, at), self._standing]

    @property
    def has_clients(self) -> bool:
        """Whether any page or program listens."""
        return bool(self._clients)

    def publish_standing(self) -> None:
        """Publish how sessions stand, when that has changed."""
        if not self._followers_of_all:  # nobody would hear it
            return
        standings = self._standing_frame()
        if standings != self._standing:
            self._standing = standings
            self._send(self._followers_of_all, [standings])

    def _standing_frame(self) -> bytes:
        now, at = self.context.now(), self.context.clock()
        open_now = session_status.sessions_by_standing(self.context.store, now, at)
        by_standing: dict[str, object] = {
            how: [row.session.session_uid for row in rows] for how, rows in open_now.items()
        }
        waits = {uid: status.waiting_for for uid, status in now.live.items() if status.waiting_for}
        return frame("standing", {**by_standing, "waiting_for": waits})

    # -- one session --------------------------------------------------------------------

    def _of(self, uid: str) -> list[Stream]:
        with self._mutex:
            return [stream for stream in self._streams.values() if stream.uid == uid]

    def follow(
        self, client: Client, uid: str, via: str | None = None, *, own: bool = False
    ) -> tuple[Stream, SessionRow, EventLine]:
        """Let a client follow a session; events after the returned line are queued for it."""
        row = self.context.row(uid)
        name = (row.session.session_uid, via, own)
        stream, key = self._streams.get(name), session_key(row, self.context.store)
        if stream is None:
            stream = Stream(name, row, EventLine(self._readout(row), via, own=own), key)
        elif stream.key.ancestors != key.ancestors:  # some were evicted, or forgotten
            with stream.mutex:
                stream.line, stream.key = EventLine(self._readout(row), via, own=own), key
        self._refresh(stream, row)  # it may have gone on since the last change that was heard of
        while True:
            with stream.mutex, self._mutex:
                there = self._streams.setdefault(name, stream)
                if there is stream:
                    stream.clients.add(client)
                    return stream, stream.row, stream.line
            stream = there  # somebody else was quicker

    def _readout(self, row: SessionRow) -> Readout:
        return read_session(self.context.store, row, self.context.clean)

    def _extend_line(self, stream: Stream) -> tuple[EventLine, SessionRow] | None:
        """Return a followed line after new records, at a cost that does not grow with it.

        None when it must be put together anew: a branch is followed, or the session was rebuilt
        since the line was sent.
        """
        if stream.via is not None:
            return None
        end = read_end(self.context.store, stream.uid, since=stream.row.change)
        if end is None:
            return None
        line = stream.line.extend(end.readout, end.state, lambda: self._readout(end.row))
        return None if line is None else (line, end.row)

    def _refresh(self, stream: Stream, row: SessionRow) -> None:
        """Send what is new on a session's line to who follows it."""
        if stream.row.change >= row.change:
            return
        with stream.mutex:
            if stream.row.change >= row.change:  # another thread was quicker
                return
            line, row = self._extend_line(stream) or (
                EventLine(self._readout(row), stream.via, own=stream.own),
                row,
            )
            frames = [
                *self._new_frames(stream, line, row),
                frame("session", session_out(self.context, self.context.display([row])[0])),
            ]
            stream.line, stream.row = line, row
            self._send(stream.clients, frames)

    def _new_frames(self, stream: Stream, line: EventLine, row: SessionRow) -> Iterator[bytes]:
        before = stream.line
        step = line.after(before.ids, line.shared)
        if step.back_to is not None:
            yield rewind_frame(line, step.back_to)
        yield from self.event_frames(line, step.start, len(line.events))
        if line.pending or before.pending:
            yield self.pending_frame(line)
        for channel, number in row.channels.items():
            if number != stream.row.channels.get(channel):
                session = row.session
                yield _agent(agent_name(channel), session.session_uid, number, session.cwd)

    def event_frames(self, line: EventLine, start: int, end: int) -> Iterator[bytes]:
        """Yield the frames of some events of a line, with their bodies."""
        for at in range(start, end):
            yield frame("event", event_out(self.context, line.events[at]), line.mark(at + 1))

    def pending_frame(self, line: EventLine) -> bytes:
        """Return the frame with the calls that have no result yet."""
        return frame("pending", [event_out(self.context, row) for row in line.pending])


def rewind_frame(line: EventLine, count: int) -> bytes:
    """Return the frame that says how many of the sent events are still on the line."""
    end = line.ids[count - 1] if count else None
    data = {"count": count, "event_id": end, "name": None if end is None else event_name(end)}
    return frame("rewound", data, line.mark(count))


def _agent(agent: str, uid: str, events: int, cwd: str | None) -> bytes:
    """Return the frames that announce news of a subagent: with its session, and its project."""
    project = layout.project_id(cwd) if cwd else None
    nudge = {"projectId": project, "agentSessionId": agent}
    data = {"agent": agent, "session_uid": uid, "events": events}
    return frame("agent", data) + frame("agentSessionChanged", nudge)


def _ingest_order(row: SessionRow) -> tuple[str, str]:
    return row.session.ingested_at or "", row.session.session_uid


def _place(row: SessionRow) -> str | None:
    """Return the place of a session among all, by when it was imported last."""
    moment = time_of(row.session.ingested_at)
    millis = 0 if moment is None else round(moment.timestamp() * 1000)
    return _place_text(millis, row.session.session_uid)


def _place_text(millis: int, uid: str) -> str | None:
    # It becomes a header of the stream, which takes printable ASCII only.
    return f"{millis}-{uid}" if uid.isascii() and uid.isprintable() else None


def _read_place(text: str | None) -> tuple[int, str] | None:
    millis, dash, uid = (text or "").partition("-")
    # The id comes from the client: a number of any length would be a long one to parse.
    return (int(millis), uid) if dash and millis.isdecimal() and len(millis) < 16 else None


# -- streams --------------------------------------------------------------------------------


class EventStreams:
    """The two streams as ASGI apps."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub

    async def all_sessions(self, scope: Scope, receive: Receive, send: Send) -> None:
        """All sessions."""
        client = Client()
        self.hub.enter(client)
        try:
            opening = await asyncio.to_thread(self.hub.follow_all, client, _last_id(scope))
            await self._run(client, iter([b"".join(opening)]), receive, send)
        finally:
            self.hub.leave(client)

    async def session(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One session."""
        client, stream = Client(), None
        self.hub.enter(client)
        try:
            uid: str = scope["path_params"]["uid"]
            via = _query(scope).get("branch", [None])[0]
            own = _query(scope).get("own", ["0"])[0] not in ("0", "false", "")
            follow = partial(self.hub.follow, client, uid, via, own=own)
            stream, row, line = await asyncio.to_thread(follow)
            opening = self._opening(line, row, _last_id(scope), _requested_events(scope))
            await self._run(client, opening, receive, send)
        finally:
            self.hub.leave(client, stream)

    def _opening(
        self, line: EventLine, row: SessionRow, last_id: str | None, last: int | None
    ) -> Iterator[bytes]:
        """What a client gets first: what it lacks, then that it is up to date."""
        mark = StreamPosition.read(last_id) if last_id else None
        step = line.step(mark) if mark is not None else None
        if step is None:
            start = 0 if last is None else line.start(last)
            yield frame("start", {"from": start, "total": len(line.events)})
        else:
            start = step.start
            if step.back_to is not None:
                yield rewind_frame(line, step.back_to)
        for at in range(start, len(line.events), REPLAY_BATCH_EVENTS):
            yield b"".join(
                self.hub.event_frames(line, at, min(at + REPLAY_BATCH_EVENTS, len(line.events)))
            )
        if line.pending:
            yield self.hub.pending_frame(line)
        uid = row.session.session_uid
        if step is None or mark != line.mark():
            for channel, number in row.channels.items():
                yield _agent(agent_name(channel), uid, number, row.session.cwd)
        data = {
            "change": row.change,
            "events": len(line.events),
            "turn": session_out(self.hub.context, row).turn,
        }
        yield frame("ready", data, line.mark())

    async def _run(
        self, client: Client, opening: Iterator[bytes], receive: Receive, send: Send
    ) -> None:
        """Send the opening and then all that comes, until either side ends it."""

        async def put(body: bytes) -> None:
            client.sending = client.last_sent = time.monotonic()
            await send({"type": "http.response.body", "body": body, "more_body": True})
            client.sending = None

        async def listen() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            client.close()

        client.task = asyncio.current_task()
        first = await asyncio.to_thread(next, opening, b"")  # what fails does so before the start
        await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
        listening = asyncio.create_task(listen())
        try:
            await put(b"retry: 1000\n\n" + first)
            while not client.closed and (piece := await asyncio.to_thread(next, opening, b"")):
                await put(piece)
            await client.send(put)
            if client.lost:
                await put(frame("lost", {"hint": "too slow; reconnect with Last-Event-ID"}))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            listening.cancel()


HubDependency = NamedDependency[Hub]
"""How a handler asks for the hub: `hub: AtHub`."""


@get("/api/live", include_in_schema=False)
async def all_sessions(hub: HubDependency) -> ASGIApp:
    """What changes in all sessions, and how they stand."""
    return cast("ASGIApp", EventStreams(hub).all_sessions)


@get("/api/sessions/{uid:str}/live", include_in_schema=False)
async def session(hub: HubDependency) -> ASGIApp:
    """What is on the line of a session, and what comes."""
    return cast("ASGIApp", EventStreams(hub).session)


ROUTES: list[HTTPRouteHandler] = [all_sessions, session]


def _last_id(scope: Scope) -> str | None:
    """Where the client stands: as a browser says it, or as a page says it the first time."""
    for name, value in scope["headers"]:
        if name.lower() == b"last-event-id":
            return str(value.decode("latin-1"))
    return _query(scope).get("after", [None])[0]


def _requested_events(scope: Scope) -> int | None:
    """How many of the last events are wanted; None for all."""
    number = _query(scope).get("last", [""])[0] or ""
    if not number:
        return None
    if not number.isdecimal() or len(number) > 9:
        raise ThenceError(f"last={number[:20]}: not a number", hint="use last=200")
    return int(number)


def _query(scope: Scope) -> dict[str, list[str | None]]:
    fields = parse_qs(scope["query_string"].decode("latin-1"))
    return {name: list(values) for name, values in fields.items()}
