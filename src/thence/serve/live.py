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
from thence.memory import standing
from thence.memory.readouts import read_end, read_session
from thence.memory.recall import event_name
from thence.memory.store import Filter, SessionRow
from thence.serve.api import agent_name, event_out, session_out
from thence.serve.clients import Client, frame
from thence.serve.heard import Listener
from thence.serve.lines import Line, Mark
from thence.serve.shelf import Key, key_of
from thence.serve.sweeper import Sweeper

if TYPE_CHECKING:
    from thence.format.readout import Readout
    from thence.serve.desk import Desk
    from thence.serve.gate import Receive, Scope, Send

LOOK: Final = 1.0
"""Seconds between two looks at the clients."""
BEAT: Final = 15.0
"""Seconds of silence after which a client is told that the server is there."""
STALL: Final = 20.0
"""Seconds that a client may take for what is sent to it."""
CLIENTS: Final = 4000
PACE: Final = 10_000
"""Writes to all clients together in a second: what comes quicker is gathered for the next."""
PIECE: Final = 64
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

    def __init__(self, name: Name, row: SessionRow, line: Line, key: Key) -> None:
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

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._streams: dict[Name, Stream] = {}
        self._everywhere: set[Client] = set()
        self._clients: set[Client] = set()
        self._mutex = threading.Lock()
        """Held for moments only, in the loop as well: who is there."""
        self._publishing = threading.Lock()
        """Held by threads: what all clients hear of comes in one order."""
        self._told: dict[str, int] = {}
        self._standing: bytes = b""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watch: asyncio.Task[None] | None = None
        self._asleep: dict[Client, None] = {}
        """Who has something waiting, in the order of its coming; the loop alone looks."""
        self._waking = False
        self._next = 0.0
        """When clients may be woken next, by the clock of the loop."""
        self.sweeper = Sweeper(desk, self)
        self._listener = Listener(desk.store, self.changed)

    # -- living -------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to watch, in the loop that runs."""
        self._loop = asyncio.get_running_loop()
        self._told = {uid: one.change for uid, one in self._desk.store.known().sessions.items()}
        self._watch = asyncio.create_task(self._look_after())
        if self._desk.sweeps is not None:
            self.sweeper.start()
        self._listener.start()

    def close(self) -> None:
        """End all streams, so that the server can end."""
        for client in list(self._clients):
            client.close()

    async def stop(self) -> None:
        """End everything; when this returns nothing touches the store any more."""
        self.close()
        if self._watch is not None:
            self._watch.cancel()
        if self._desk.sweeps is not None:
            await asyncio.to_thread(self.sweeper.stop)
        await asyncio.to_thread(self._listener.stop)

    async def _look_after(self) -> None:
        """Break the silence, and cut off clients that take nothing."""
        while True:
            await asyncio.sleep(min(LOOK, BEAT))
            now = time.monotonic()
            for client in list(self._clients):
                if client.sending is None:
                    if client.heard < now - BEAT:
                        client.push((b": \n\n",))
                        client.wake()
                elif client.sending < now - STALL and client.task is not None:
                    client.task.cancel()

    def enter(self, client: Client) -> None:
        """Count a client."""
        with self._mutex:
            if len(self._clients) >= CLIENTS:
                raise BudgetExceeded("too many open streams", hint="close some pages")
            self._clients.add(client)

    def leave(self, client: Client, stream: Stream | None = None) -> None:
        """Forget a client; a session that nobody follows is not looked at any more."""
        with self._mutex:
            self._clients.discard(client)
            self._everywhere.discard(client)
            if stream is not None:
                stream.clients.discard(client)
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
        """Let frames wait for clients, in the loop, and wake them: at once, or at the pace."""
        for client in to:
            client.push(frames)
        self._asleep.update(dict.fromkeys(to))
        if not self._waking:
            self._waking = True
            loop.call_at(self._next, self._wake, loop)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have clients send what waits for them; the more there are, the longer the next wait."""
        self._waking = False
        self._next = loop.time() + len(self._asleep) / PACE
        asleep, self._asleep = self._asleep, {}
        for client in asleep:
            client.wake()

    # -- all sessions -------------------------------------------------------------------

    def changed(self, uids: Iterable[str], *, again: bool = False) -> None:
        """Publish what is new in sessions; who has it already gets nothing, unless `again`."""
        wanted = tuple(dict.fromkeys(uids))
        if not wanted:
            return
        rows = self._rows(wanted)
        for row in rows:
            uid, told = row.session.session_uid, self._changed(row)
            with self._publishing:
                if self._told.get(uid) == row.change and not again:
                    continue
                self._told[uid] = row.change
                with self._mutex:
                    here = list(self._everywhere)
                to = {one for one in here if again or one.told.pop(uid, 0) != row.change}
                self._send(to, [told])
            for stream in self._of(uid):
                self._refresh(stream, row)
            self._above(row)

    def _rows(self, uids: Sequence[str]) -> list[SessionRow]:
        """Return the rows of sessions in the order of their sweeps."""
        store = self._desk.store
        rows = list(store.sessions(Filter(uids=tuple(uids)))) if uids else []
        return sorted(self._desk.display(rows), key=_when)

    def _with_lineage(self, row: SessionRow) -> SessionRow:
        return self._desk.display([row])[0]

    def _changed(self, row: SessionRow) -> bytes:
        told = {"change": row.change, "session": session_out(self._desk, row)}
        return frame("changed", told, _place(row))

    def _above(self, row: SessionRow) -> None:
        """Tell who follows the session that started this one."""
        agent = row.session
        for edge in row.edges:
            if edge.link == "subagent" and not edge.child:
                told = _agent(agent.native_session_id, agent.session_uid, row.events, agent.cwd)
                for stream in self._of(f"{agent.flavor}:{edge.session}"):
                    self._send(stream.clients, [told])

    def everywhere(self, client: Client, last: str | None) -> list[bytes]:
        """Let a client hear of all sessions; give what it missed since the last it heard."""
        with self._publishing:
            with self._mutex:
                self._everywhere.add(client)
            known = self._desk.store.known().sessions
            places = sorted((one.ingested or 0, uid) for uid, one in known.items())
            since = _read_place(last)
            missed = [uid for at, uid in places if since is not None and (at, uid) > since]
            rows = self._rows(missed)
            client.told = {row.session.session_uid: row.change for row in rows}
            frames = [self._changed(row) for row in rows]
        at = _named(*places[-1]) if places else None
        self._standing = self._stands()
        return [*frames, frame("ready", {"sessions": len(known)}, at), self._standing]

    @property
    def has_clients(self) -> bool:
        """Whether any page or program listens."""
        return bool(self._clients)

    def stand(self) -> None:
        """Publish how sessions stand, when that has changed."""
        if not self._everywhere:  # nobody would hear it
            return
        told = self._stands()
        if told != self._standing:
            self._standing = told
            self._send(self._everywhere, [told])

    def _stands(self) -> bytes:
        now, at = self._desk.now(), self._desk.clock()
        found: dict[str, list[str]] = {"waiting": [], "running": [], "idle": []}
        for row in standing.open_sessions(self._desk.store, Filter(), now, at, self._desk.labels()):
            found[now.of(row, at) or "idle"].append(row.session.session_uid)
        waits = {uid: one.waiting_for for uid, one in now.live.items() if one.waiting_for}
        return frame("standing", {**found, "waiting_for": waits})

    # -- one session --------------------------------------------------------------------

    def _of(self, uid: str) -> list[Stream]:
        with self._mutex:
            return [stream for stream in self._streams.values() if stream.uid == uid]

    def follow(
        self, client: Client, uid: str, via: str | None = None, *, own: bool = False
    ) -> tuple[Stream, SessionRow, Line]:
        """Let a client follow a session; what comes after the line that is given waits for it."""
        row = self._desk.row(uid)
        name = (row.session.session_uid, via, own)
        stream, key = self._streams.get(name), key_of(row, self._desk.store)
        if stream is None:
            stream = Stream(name, row, self._line(row, via, own=own), key)
        elif stream.key.ancestors != key.ancestors:  # some were evicted, or forgotten
            with stream.mutex:
                stream.line, stream.key = self._line(row, via, own=own), key
        self._refresh(stream, row)  # it may have gone on since the last change that was heard of
        while True:
            with stream.mutex, self._mutex:
                there = self._streams.setdefault(name, stream)
                if there is stream:
                    stream.clients.add(client)
                    return stream, stream.row, stream.line
            stream = there  # somebody else was quicker

    def _line(self, row: SessionRow, via: str | None, *, own: bool) -> Line:
        """Return the line of a session, without the bodies of its events where possible."""
        return Line(self._readout(row), via, own=own)

    def _readout(self, row: SessionRow) -> Readout:
        return read_session(self._desk.store, row, self._desk.clean)

    def _continued(self, stream: Stream) -> tuple[Line, SessionRow] | None:
        """Return a followed line after new records, at a cost that does not grow with it.

        None when it must be put together anew: a branch is followed, or the session was rebuilt
        since the line was sent.
        """
        if stream.via is not None:
            return None
        end = read_end(self._desk.store, stream.uid, since=stream.row.change)
        if end is None:
            return None
        line = stream.line.continued(end.readout, end.state, lambda: self._readout(end.row))
        return None if line is None else (line, end.row)

    def _refresh(self, stream: Stream, row: SessionRow) -> None:
        """Send what is new on a session's line to who follows it."""
        if stream.row.change >= row.change:
            return
        with stream.mutex:
            if stream.row.change >= row.change:
                return
            line, row = self._continued(stream) or (
                self._line(row, stream.via, own=stream.own),
                row,
            )
            frames = [
                *self._news(stream, line, row),
                frame("session", session_out(self._desk, self._with_lineage(row))),
            ]
            stream.line, stream.row = line, row
            self._send(stream.clients, frames)

    def _news(self, stream: Stream, line: Line, row: SessionRow) -> Iterator[bytes]:
        before = stream.line
        step = line.after(before.ids, line.shared)
        if step.back_to is not None:
            yield rewound(line, step.back_to)
        yield from self.told(line, step.start, len(line.events))
        if line.pending or before.pending:
            yield self.pending(line)
        for channel, number in row.channels.items():
            if number != stream.row.channels.get(channel):
                session = row.session
                yield _agent(agent_name(channel), session.session_uid, number, session.cwd)

    def told(self, line: Line, start: int, end: int) -> Iterator[bytes]:
        """Give events of a line as frames, bodies and all."""
        for at in range(start, end):
            yield frame(
                "event",
                event_out(self._desk, line.events[at]),
                line.mark(at + 1),
            )

    def pending(self, line: Line) -> bytes:
        """Say what may be on the line soon."""
        return frame(
            "pending",
            [event_out(self._desk, row) for row in line.pending],
        )


def rewound(line: Line, count: int) -> bytes:
    """Say that only so many of the events that were sent are on the line still."""
    end = line.ids[count - 1] if count else None
    told = {"count": count, "event_id": end, "name": None if end is None else event_name(end)}
    return frame("rewound", told, line.mark(count))


def _agent(agent: str, uid: str, events: int, cwd: str | None) -> bytes:
    """Say that a subagent went on: with its session, and with its project as a nudge to look."""
    project = layout.project_id(cwd) if cwd else None
    nudge = {"projectId": project, "agentSessionId": agent}
    told = {"agent": agent, "session_uid": uid, "events": events}
    return frame("agent", told) + frame("agentSessionChanged", nudge)


def _when(row: SessionRow) -> tuple[str, str]:
    return row.session.ingested_at or "", row.session.session_uid


def _place(row: SessionRow) -> str | None:
    """Name the place of a session among all, by when it was written last."""
    from thence.format.joins import time_of

    moment = time_of(row.session.ingested_at)
    millis = 0 if moment is None else round(moment.timestamp() * 1000)
    return _named(millis, row.session.session_uid)


def _named(millis: int, uid: str) -> str | None:
    return f"{millis}-{uid}" if uid.isascii() and uid.isprintable() else None


def _read_place(text: str | None) -> tuple[int, str] | None:
    millis, dash, uid = (text or "").partition("-")
    return (int(millis), uid) if dash and millis.isdecimal() and len(millis) < 16 else None


# -- streams --------------------------------------------------------------------------------


class Live:
    """The two streams as ASGI apps."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub

    async def everything(self, scope: Scope, receive: Receive, send: Send) -> None:
        """All sessions."""
        client = Client()
        self.hub.enter(client)
        try:
            opening = await asyncio.to_thread(self.hub.everywhere, client, _last_id(scope))
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
            opening = self._opening(line, row, _last_id(scope), _asked(scope))
            await self._run(client, opening, receive, send)
        finally:
            self.hub.leave(client, stream)

    def _opening(
        self, line: Line, row: SessionRow, last_id: str | None, last: int | None
    ) -> Iterator[bytes]:
        """What a client gets first: what it lacks, then that it is up to date."""
        mark = Mark.read(last_id) if last_id else None
        step = line.step(mark) if mark is not None else None
        if step is None:
            start = 0 if last is None else line.start(last)
            yield frame("start", {"from": start, "total": len(line.events)})
        else:
            start = step.start
            if step.back_to is not None:
                yield rewound(line, step.back_to)
        for at in range(start, len(line.events), PIECE):
            yield b"".join(self.hub.told(line, at, min(at + PIECE, len(line.events))))
        if line.pending:
            yield self.hub.pending(line)
        uid = row.session.session_uid
        if step is None or mark != line.mark():
            for channel, number in row.channels.items():
                yield _agent(agent_name(channel), uid, number, row.session.cwd)
        told = {"change": row.change, "events": len(line.events), "turn": row.turn}
        yield frame("ready", told, line.mark())

    async def _run(
        self, client: Client, opening: Iterator[bytes], receive: Receive, send: Send
    ) -> None:
        """Send the opening and then all that comes, until either side ends it."""

        async def put(body: bytes) -> None:
            client.sending = client.heard = time.monotonic()
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


AtHub = NamedDependency[Hub]
"""How a handler asks for the hub: `hub: AtHub`."""


@get("/api/live", include_in_schema=False)
async def everything(hub: AtHub) -> ASGIApp:
    """What changes in all sessions, and how they stand."""
    return cast("ASGIApp", Live(hub).everything)


@get("/api/sessions/{uid:str}/live", include_in_schema=False)
async def session(hub: AtHub) -> ASGIApp:
    """What is on the line of a session, and what comes."""
    return cast("ASGIApp", Live(hub).session)


ROUTES: list[HTTPRouteHandler] = [everything, session]


def _last_id(scope: Scope) -> str | None:
    """Where the client stands: as a browser says it, or as a page says it the first time."""
    for name, value in scope["headers"]:
        if name.lower() == b"last-event-id":
            return str(value.decode("latin-1"))
    return _query(scope).get("after", [None])[0]


def _asked(scope: Scope) -> int | None:
    """How many of the last events are wanted; None for all."""
    told = _query(scope).get("last", [""])[0] or ""
    if not told:
        return None
    if not told.isdecimal() or len(told) > 9:
        raise ThenceError(f"last={told[:20]}: not a number", hint="use last=200")
    return int(told)


def _query(scope: Scope) -> dict[str, list[str | None]]:
    found: dict[str, list[str | None]] = {}
    for name, values in parse_qs(scope["query_string"].decode("latin-1")).items():
        found[name] = list(values)
    return found
