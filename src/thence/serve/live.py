"""Live: what agents write is swept and published while it happens, as server-sent events.

    GET /api/live                  all sessions: `changed`, `standing`
    GET /api/sessions/{uid}/live   one session: what is on its line (`event`), then what comes
                                   (`?branch=EVENT`: on the branch of an event)

A late client gets the line from its beginning, or the last so many events, pairs whole; then it
is `ready`, and gets what comes. Ids are marks (`lines`) that say where a client stands, so that
`Last-Event-ID` resumes exactly, over a restart of the server as well: no gap, no double. When the
line moves (a rewind, a late result) `rewound` says how much of what was sent still holds. A
subagent that went on has an event of its own, `agent`.

Invariants: what waits for a client is bounded; one that does not take it is told that it `lost`
the stream and let go, and finds the rest when it comes back. One thread sweeps; a sweep that
fails is logged and the next one tried. Nothing here keeps state that a restart would lose.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import parse_qs

import msgspec
from litestar import get
from litestar.di import NamedDependency
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from thence.errors import BudgetExceeded, ThenceError
from thence.format.whole import Whole
from thence.memory import nudges, spelling, standing
from thence.memory.recall import event_name
from thence.memory.store import Filter, SessionRow, StoreLocked
from thence.memory.watching import changes, narrowed
from thence.serve.api import agent_name, event_out, session_out
from thence.serve.heard import Listener
from thence.serve.lines import Line, Mark

if TYPE_CHECKING:
    from thence.format.normal import SessionEvent
    from thence.serve.desk import Desk
    from thence.serve.gate import Receive, Scope, Send

GATHER_MS: Final = 120
STEP_MS: Final = 40
"""How long changes are gathered, and how long a pause hands them out earlier."""
TICK: Final = 1.0
"""Seconds between two looks at what agents say of themselves."""
QUIET: Final = 5.0
"""Seconds without a change after which what was swept is digested."""
LATEST: Final = 60.0
"""Seconds after which that is done though there is no quiet."""
REST: Final = 0.5
"""How long the sweeps rest, for each second that one took; at most a second."""
PATIENCE: Final = 2.0
"""Seconds that a sweep waits for another one to end."""
BEAT: Final = 15.0
"""Seconds of silence after which a client is told that the server is there."""
STALL: Final = 20.0
"""Seconds that a client may take for what is sent to it."""
CLIENTS: Final = 4000
FRAMES: Final = 1024
BYTES: Final = 4 << 20
"""Frames and bytes that may wait for one client."""
PACE: Final = 10_000
"""Writes to all clients together in a second: what comes quicker is gathered for the next."""
PIECE: Final = 64
"""Events of a replay that are read at a time."""

HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)

_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode


def frame(kind: str, data: object, mark: object = None) -> bytes:
    """Give one server-sent event. JSON has no line break in it."""
    name = b"" if mark is None else b"id: %s\n" % str(mark).encode()
    return b"event: %s\n%sdata: %s\n\n" % (kind.encode(), name, _encode(data))


class Client:
    """One stream to one client, and what waits for it."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()
        self.lost = False
        """It was too slow: what waited for it is gone, and the stream ends."""
        self.closed = False
        self.told: dict[str, int] = {}
        """Sessions that it heard of while it came in, and their changes."""
        self.sending: float | None = None
        """Since when it has not taken what is sent to it."""
        self.heard = time.monotonic()
        """When something was sent to it last."""
        self.task: asyncio.Task[Any] | None = None

    def push(self, frames: Iterable[bytes]) -> None:
        """Let something wait for it until it is woken, in the loop; too much and it is let go."""
        if self.lost or self.closed:
            return
        for one in frames:
            self._waiting.append(one)
            self._bytes += len(one)
        if len(self._waiting) > FRAMES or self._bytes > BYTES:
            self.lost = True
            self._waiting.clear()
            self._bytes = 0

    def wake(self) -> None:
        """Have it send what waits."""
        self._wake.set()

    def close(self) -> None:
        """End the stream."""
        self.closed = True
        self._wake.set()

    async def take(self) -> bytes:
        """Wait for what is to be sent; nothing when it is to end."""
        if not self._waiting and not self.lost and not self.closed:
            self._wake.clear()
            await self._wake.wait()
        taken = b"".join(self._waiting)
        self._waiting.clear()
        self._bytes = 0
        return taken


class Stream:
    """One session, or one branch of it, that somebody follows."""

    def __init__(self, uid: str, via: str | None, row: SessionRow, line: Line) -> None:
        self.uid = uid
        self.via = via
        """The event whose branch is followed; None for the live line."""
        self.row = row
        self.line = line
        self.clients: set[Client] = set()
        self.mutex = threading.Lock()
        """Held by threads: what is sent and where the line stands move together."""


class Hub:
    """All streams of one server."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._streams: dict[tuple[str, str | None], Stream] = {}
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
            await asyncio.sleep(min(TICK, BEAT))
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
                raise BudgetExceeded("too many streams are open", hint="close some pages")
            self._clients.add(client)

    def leave(self, client: Client, stream: Stream | None = None) -> None:
        """Forget a client; a session that nobody follows is not looked at any more."""
        with self._mutex:
            self._clients.discard(client)
            self._everywhere.discard(client)
            if stream is not None:
                stream.clients.discard(client)
                name = (stream.uid, stream.via)
                if not stream.clients and self._streams.get(name) is stream:
                    del self._streams[name]

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
        rows = sorted(self._desk.store.sessions(Filter(uids=wanted)), key=_when)
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

    def _changed(self, row: SessionRow) -> bytes:
        told = {"change": row.change, "session": session_out(self._desk, row)}
        return frame("changed", told, _place(row))

    def _above(self, row: SessionRow) -> None:
        """Tell who follows the session that started this one."""
        agent = row.session
        for edge in row.edges:
            if edge.link == "subagent" and not edge.child:
                told = _agent(agent.native_session_id, agent.session_uid, row.events)
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
            rows = sorted(self._desk.store.sessions(Filter(uids=tuple(missed))), key=_when)
            client.told = {row.session.session_uid: row.change for row in rows}
            frames = [self._changed(row) for row in rows]
        at = _named(*places[-1]) if places else None
        self._standing = self._stands()
        return [*frames, frame("ready", {"sessions": len(known)}, at), self._standing]

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
        for row in standing.open_ones(self._desk.store, Filter(), now, at):
            found[now.of(row, at) or "idle"].append(row.session.session_uid)
        waits = {uid: one.waiting_for for uid, one in now.live.items() if one.waiting_for}
        return frame("standing", {**found, "waiting_for": waits})

    # -- one session --------------------------------------------------------------------

    def _of(self, uid: str) -> list[Stream]:
        with self._mutex:
            return [stream for (session, _), stream in self._streams.items() if session == uid]

    def follow(
        self, client: Client, uid: str, via: str | None = None
    ) -> tuple[Stream, SessionRow, Line]:
        """Let a client follow a session; what comes after the line that is given waits for it."""
        row = self._desk.row(uid)
        name = (row.session.session_uid, via)
        stream = self._streams.get(name)
        if stream is None:
            stream = Stream(*name, row, self._line(row, via))
        self._refresh(stream, row)  # it may have gone on since the last change that was heard of
        while True:
            with stream.mutex, self._mutex:
                there = self._streams.setdefault(name, stream)
                if there is stream:
                    stream.clients.add(client)
                    return stream, stream.row, stream.line
            stream = there  # somebody else was quicker

    def _line(self, row: SessionRow, via: str | None) -> Line:
        """Put the line of a session together, without the bodies of its events if that can be."""
        uid = row.session.session_uid
        held = self._desk.store.held(uid)
        if held is None or any(fact.piece is not None for fact in held.facts):
            return Line(self._desk.whole(row).whole, via)
        whole = Whole(
            uid, held.facts, replayed=held.replayed, billed=held.billed, torn=held.row.torn
        )
        return Line(whole, via)

    def _refresh(self, stream: Stream, row: SessionRow) -> None:
        """Send what is new on a session's line to who follows it."""
        if stream.row.change >= row.change:
            return
        line = self._line(row, stream.via)
        with stream.mutex:
            if stream.row.change >= row.change:
                return
            frames = [
                *self._news(stream, line, row),
                frame("session", session_out(self._desk, row)),
            ]
            stream.line, stream.row = line, row
            self._send(stream.clients, frames)

    def _news(self, stream: Stream, line: Line, row: SessionRow) -> Iterator[bytes]:
        step, before = line.after(stream.line.ids), stream.line
        if step.back_to is not None:
            yield rewound(line, step.back_to)
        yield from self.told(line, step.start, len(line.events))
        if line.pending or before.pending:
            yield self.pending(line)
        for channel, number in line.agents.items():
            if number != before.agents.get(channel):
                yield _agent(agent_name(channel), row.session.session_uid, number)

    def told(self, line: Line, start: int, end: int) -> Iterator[bytes]:
        """Give events of a line as frames, bodies and all."""
        for at in range(start, end):
            yield frame("event", event_out(self._with_body(line.events[at])), line.mark(at + 1))

    def pending(self, line: Line) -> bytes:
        """Say what may be on the line soon."""
        return frame("pending", [event_out(self._with_body(event)) for event in line.pending])

    def _with_body(self, event: SessionEvent) -> SessionEvent:
        if event.payload is not None or event.payload_ref is None:
            return event
        body = spelling.load(self._desk.store.blobs.read(event.payload_ref))
        return msgspec.structs.replace(event, payload=body)


def rewound(line: Line, count: int) -> bytes:
    """Say that only so many of the events that were sent are on the line still."""
    end = line.ids[count - 1] if count else None
    told = {"count": count, "event_id": end, "name": None if end is None else event_name(end)}
    return frame("rewound", told, line.mark(count))


def _agent(agent: str, uid: str, events: int) -> bytes:
    return frame("agent", {"agent": agent, "session_uid": uid, "events": events})


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


# -- sweeping -------------------------------------------------------------------------------


class Sweeper:
    """Sweeps what changed, and tells the hub; digests it when it rests."""

    def __init__(self, desk: Desk, hub: Hub) -> None:
        self._desk = desk
        self._hub = hub
        self._stop = threading.Event()
        self._told: queue.SimpleQueue[tuple[set[Path], threading.Event]] = queue.SimpleQueue()
        self._undigested: set[str] = set()
        self._threads = [
            threading.Thread(target=run, name=f"thence-{run.__name__}", daemon=True)
            for run in (self.watch, self.work)
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End, and wait for that."""
        self._stop.set()
        self.nudge(())
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def nudge(self, paths: Iterable[Path]) -> threading.Event:
        """Sweep files without waiting for the system to tell of them; set when that is done."""
        done = threading.Event()
        self._told.put((set(paths), done))
        return done

    def watch(self) -> None:
        """Hear of what is written."""
        folders = [path for paths in self._desk.roots.values() for path in paths]
        inbox = self._desk.home / nudges.FOLDER
        told = changes(folders, inbox, gather_ms=GATHER_MS, step_ms=STEP_MS, stop=self._stop)
        for paths in told:
            self.nudge(paths)

    def work(self) -> None:
        """Sweep and publish, again and again."""
        while not self._caught_up() and not self._stop.wait(TICK):
            pass  # another one sweeps, maybe for the first time
        last = digested = time.monotonic()
        while not self._stop.is_set():
            paths, done = self._taken()
            try:
                rest = 0.0
                heard = nudges.take(self._desk.home)
                paths |= set(self._named(heard.nudges))
                if paths:
                    rest = self.sweep(paths)
                    last = time.monotonic()
                heard.done()
                for one in done:
                    one.set()
                self._stop.wait(rest)
                now = time.monotonic()
                if now - last > QUIET or now - digested > LATEST:
                    self._digest()
                    digested = now
                self._hub.stand()
            except Exception:  # noqa: BLE001 - the next change must be heard of, whatever this was
                _log.exception("live.failed paths=%d", len(paths))
                self._stop.wait(TICK)

    def _caught_up(self) -> bool:
        """Sweep what was written while nobody watched; False when another one sweeps."""
        assert self._desk.sweeps is not None  # noqa: S101 - it was started
        before = {uid: one.change for uid, one in self._desk.store.known().sessions.items()}
        try:
            with self._desk.store.sweeping(PATIENCE):
                # The first sweep of all makes digests as it reads; later ones leave them for then.
                self._desk.sweeps(self._desk.known, digests=not before).run(self._desk.roots)
        except StoreLocked:
            return False
        except Exception:  # noqa: BLE001 - what changes from now on must be heard of
            _log.exception("live.failed first=1")
        after = self._desk.store.known().sessions
        changed = {uid for uid, one in after.items() if before.get(uid) != one.change}
        self._undigested |= changed
        self._hub.changed(changed)
        return True

    def _taken(self) -> tuple[set[Path], list[threading.Event]]:
        """Take all that waits, or nothing after a while."""
        paths: set[Path] = set()
        done: list[threading.Event] = []
        with contextlib.suppress(queue.Empty):
            told = self._told.get(timeout=TICK)
            while True:
                paths |= told[0]
                done.append(told[1])
                told = self._told.get_nowait()
        return paths, done

    def _named(self, heard: Iterable[nudges.Nudge]) -> Iterator[Path]:
        """Give the files that hooks say were written; only an agent's reader opens any."""
        for one in heard:
            if one.transcript_path:
                yield Path(one.transcript_path)
                continue
            uids = (f"{one.agent}:{one.session}",)  # not every hook is told the path
            for row in self._desk.store.sessions(Filter(uids=uids)):
                yield from map(Path, row.files)

    def sweep(self, paths: set[Path]) -> float:
        """Keep what is new in files, and publish it; the seconds to rest then."""
        assert self._desk.sweeps is not None  # noqa: S101 - it was started
        known, roots = narrowed(self._desk.known, self._desk.roots, paths)
        if not roots:
            return 0.0
        rest = TICK
        try:
            with self._desk.store.sweeping(PATIENCE):
                report = self._desk.sweeps(known, digests=False).run(roots)
            rest = min(REST * report.seconds, TICK)
        except StoreLocked:
            self.nudge(paths)  # another one sweeps, and may have passed them already
        uids = {s.uid for name in roots for s in known[name].find(roots[name][0])}
        self._undigested |= uids
        self._hub.changed(uids)
        return rest

    def _digest(self) -> None:
        """Digest what has come to rest."""
        assert self._desk.sweeps is not None  # noqa: S101 - it was started
        if not self._undigested:
            return
        with contextlib.suppress(StoreLocked):
            with self._desk.store.sweeping():
                self._desk.sweeps(self._desk.known, digests=True).run({})
            done, self._undigested = self._undigested, set()
            self._hub.changed(done, again=True)


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
            stream, row, line = await asyncio.to_thread(self.hub.follow, client, uid, via)
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
            for channel, number in line.agents.items():
                yield _agent(agent_name(channel), uid, number)
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
            while not client.closed and not client.lost:
                await put(await client.take())
            if client.lost:
                await put(frame("lost", {"hint": "too slow; come back with Last-Event-ID"}))
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
        raise ThenceError(f"last={told[:20]}: not a number", hint="write last=200")
    return int(told)


def _query(scope: Scope) -> dict[str, list[str | None]]:
    found: dict[str, list[str | None]] = {}
    for name, values in parse_qs(scope["query_string"].decode("latin-1")).items():
        found[name] = list(values)
    return found
