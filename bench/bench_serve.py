"""The server beside its clients, each in a process of its own, over real sockets.

A hundred clients follow one session while twenty events a second are published: from the moment
an event is handed out until a client has read it. A thousand clients are held: memory for each,
and memory when they do not read. Lines are written to a log: from the write until a client has
read the event, through watching, sweeping and publishing. Words are searched over HTTP. Times
stand beside that of a bare exchange over a socket in the same run.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import random
import re
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from bench.bench_sweep import BIG, COMMON, MID, PHRASES, RARE
from bench.corpus import write_claude
from bench.measure import verdict

CLIENTS, RATE, SECONDS = 100, 20, 10
MANY = 1000
KEY = bytes(32)


# -- the server -----------------------------------------------------------------------------


def serve(folder: Path) -> None:
    """Serve a folder, and publish ticks to who follows a session; ends with its input."""
    from thence import config
    from thence.agents import adapters
    from thence.memory.redact import Redactor
    from thence.memory.reports import SweepReport
    from thence.memory.retention import Policy
    from thence.memory.sqlite import Sqlite
    from thence.memory.sweep import Sweep
    from thence.serve import app
    from thence.serve.auth import AuthMiddleware
    from thence.serve.context import AppContext

    home, known = folder / ".thence", {"claude": adapters()["claude"]}
    home.mkdir(exist_ok=True)
    store = Sqlite(str(home / "thence.db"))

    def sweep_home(
        known: Any,
        roots: Any,
        *,
        wait_s: float = 600.0,
        digests: bool = True,
        digest_limit_s: float | None = None,
    ) -> SweepReport:
        address = str(home / "thence.db")
        with store.sweeping(wait_s):
            sweep = Sweep(store, known, Redactor(key=KEY), digests=digests, address=address)
            return sweep.run(roots, digest_limit_s)

    context = AppContext(
        store,
        home=home,
        settings=config.settings(home, {}),
        known=known,
        roots={"claude": [folder / ".claude"]},
        policy=Policy(),
        sweep_home=sweep_home,
    )
    sweep_home(known, context.roots)
    listener = app.listener("127.0.0.1", 0, backlog=2048)
    gate = AuthMiddleware("127.0.0.1", listener.getsockname()[1], key=KEY)
    made = app.create(context, gate)
    server = app.server(made)
    app.settle()
    print(json.dumps([gate.port, gate.token]), flush=True)
    threading.Thread(target=_ticking, args=(made.hub, server), daemon=True).start()
    server.run([listener])


def _ticking(hub: Any, server: Any) -> None:
    from thence.serve.clients import frame

    stop = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait, daemon=True).start()
    while not stop.wait(1 / RATE):
        for stream in list(hub._streams.values()):  # noqa: SLF001 - as a sweep would
            text = {"at": time.perf_counter_ns(), "payload": "x" * 700}
            made = frame("tick", text, "0000000000000-0-00000000")
            hub._send(stream.clients, [made])  # noqa: SLF001
    server.should_exit = True


class Server(NamedTuple):
    """A server in another process."""

    process: subprocess.Popen[str]
    port: int
    token: str

    @property
    def memory(self) -> int:
        """Bytes that it holds."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int((re.search(r"VmRSS:\s+(\d+)", status) or ["", "0"])[1]) * 1024

    @property
    def worked(self) -> float:
        """Processor seconds that it took so far."""
        told = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii")
        spent = told.rpartition(")")[2].split()[11:13]
        return sum(map(int, spent)) / os.sysconf("SC_CLK_TCK")


def started(folder: Path) -> Server:
    """Start a server on a folder."""
    command = [sys.executable, "-m", "bench.bench_serve", str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port, token = json.loads(process.stdout.readline())
    return Server(process, port, token)


def ended(server: Server) -> None:
    """End it."""
    assert server.process.stdin is not None
    assert server.process.stdout is not None
    server.process.stdin.close()
    server.process.wait(60)
    server.process.stdout.close()


# -- clients --------------------------------------------------------------------------------


async def connected(server: Server, uid: str, last: int = 1) -> asyncio.StreamReader:
    """Follow a session."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 22)
    asked = f"GET /api/sessions/{uid}/live?last={last} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}"
    writer.write(f"{asked}\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode())
    _WRITERS.append(writer)
    return reader


_WRITERS: list[asyncio.StreamWriter] = []


async def gone() -> None:
    """Let all clients go."""
    for writer in _WRITERS:
        writer.close()
    _WRITERS.clear()
    await asyncio.sleep(1)


async def heard(reader: asyncio.StreamReader, until: float, took: list[float]) -> None:
    """Read what comes, and note how long each tick was on its way.

    Frame by frame, with one clock for all of them: a hundred clients that take their time over
    each line would measure themselves.
    """
    with contextlib.suppress(TimeoutError, asyncio.IncompleteReadError):
        async with asyncio.timeout(until - time.perf_counter()):
            while True:
                frame = await reader.readuntil(b"\n\n")
                now = time.perf_counter_ns()
                at = frame.find(b'data: {"at":')
                if at >= 0:
                    took.append((now - int(frame[at + 12 : frame.index(b",", at)])) / 1e9)


def followed(server: Server, uid: str) -> socket.socket:
    """Follow a session over a socket of one's own."""
    link = socket.create_connection(("127.0.0.1", server.port))
    asked = f"GET /api/sessions/{uid}/live?last=1 HTTP/1.1\r\nHost: 127.0.0.1:{server.port}"
    link.sendall(f"{asked}\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode())
    return link


def watched(links: list[socket.socket], seconds: float) -> list[float]:
    """Read what comes to all clients, and note how long each tick was on its way.

    The time is taken when the bytes are there, and nothing is done with them: a hundred clients
    on one core that took their time over each event would measure themselves.
    """
    took: list[float] = []
    rest = dict.fromkeys(links, b"")
    with selectors.DefaultSelector() as ready:
        for link in links:
            ready.register(link, selectors.EVENT_READ, link)
        until = time.perf_counter() + seconds
        while (left := until - time.perf_counter()) > 0:
            for key, _ in ready.select(left):
                data = key.data.recv(1 << 16)
                now = time.perf_counter_ns()
                *frames, rest[key.data] = (rest[key.data] + data).split(b"\n\n")
                for frame in frames:
                    at = frame.find(b'data: {"at":')
                    if at >= 0:
                        took.append((now - int(frame[at + 12 : frame.index(b",", at)])) / 1e9)
    return took


def fanned(server: Server, uid: str) -> list[float]:
    """A hundred clients for some seconds."""
    links = [followed(server, uid) for _ in range(CLIENTS)]
    watched(links, 2)
    before = server.worked
    took = watched(links, SECONDS)
    each = (server.worked - before) / max(len(took), 1)
    print(f"serve: each event to each client takes {each * 1e6:.0f} us of processor time")
    for link in links:
        link.close()
    time.sleep(1)
    return took


async def held(server: Server, uid: str) -> tuple[int, int, int, int]:
    """A thousand clients: the memory before, with them, when they read, when they do not."""
    before = server.memory
    readers = [await connected(server, uid) for _ in range(MANY)]
    await asyncio.gather(*(heard(r, time.perf_counter() + 3, []) for r in readers))
    there = server.memory
    took: list[float] = []
    await asyncio.gather(*(heard(r, time.perf_counter() + 10, took) for r in readers))
    reading = server.memory
    await asyncio.sleep(30)  # nobody reads any more
    silent = server.memory
    await gone()
    print(f"serve: {MANY} clients got {len(took):,} events, p99 {_high(took, 0.99) * 1e3:.0f} ms")
    return before, there, reading, silent


async def written(server: Server, uid: str, path: Path, times: int = 60) -> list[float]:
    """Lines written to a log, from the write to the client."""
    reader = await connected(server, uid)
    took: list[float] = []
    at: dict[str, float] = {}

    async def read() -> None:
        while len(took) < times:
            line = await reader.readline()
            now = time.perf_counter()
            if line.startswith(b'data: {"session_uid"'):
                took.extend(now - at.pop(name) for name in list(at) if name.encode() in line)

    reading = asyncio.create_task(read())
    await asyncio.sleep(2)
    last = _last(path)
    for _ in range(times):
        name = str(uuid.uuid4())
        said = {"role": "user", "content": f"line {name}"}
        record = {"type": "user", "uuid": name, "parentUuid": last.get("uuid"), "message": said}
        last = {**last, **record}
        at[name] = time.perf_counter()
        _append(path, json.dumps(last) + "\n")
        await asyncio.sleep(random.uniform(0.2, 0.6))
    await asyncio.wait_for(reading, 30)
    await gone()
    return took


def _last(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes().splitlines()[-1])
    return found


def _append(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(line)


def searched(server: Server, rounds: int = 200) -> list[float]:
    """Questions of all kinds over one connection, as a page asks them."""
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    token = {"Authorization": f"Bearer {server.token}"}
    chance, took = random.Random(5), []
    for _ in range(rounds):
        words = chance.choice((*RARE, *MID, *COMMON, *PHRASES))
        start = time.perf_counter()
        link.request("GET", f"/api/search?q={quote(words)}", headers=token)
        answer = link.getresponse()
        answer.read()
        took.append(time.perf_counter() - start)
        assert answer.status == 200, answer.status
    link.close()
    return took


def bare() -> float:
    """What one exchange over a socket takes here, with another thread: the floor of all times."""
    here, there = socket.socketpair()

    def echo() -> None:
        while data := there.recv(4096):
            there.sendall(data)

    threading.Thread(target=echo, daemon=True).start()
    took = []
    for _ in range(2000):
        start = time.perf_counter()
        here.sendall(b"x" * 800)
        here.recv(4096)
        took.append(time.perf_counter() - start)
    here.close()
    return sorted(took)[len(took) // 2]


def _high(took: list[float], share: float) -> float:
    return sorted(took)[min(int(len(took) * share), len(took) - 1)] if took else float("inf")


def _told(what: str, took: list[float], share: float, budget: float) -> int:
    name = f"p{round(share * 100)}"
    middle, high = _high(took, 0.5), _high(took, share)
    print(f"serve: {what}: {len(took):,}, p50 {middle * 1e3:.1f} ms, {name} {high * 1e3:.1f} ms")
    return verdict(f"{name} of {what} / {budget * 1e3:g} ms", high / budget, 1)


def main() -> int:
    """Measure, print, and say how many budgets were missed."""
    print(f"serve: a bare exchange over a socket takes {bare() * 1e6:.0f} us here")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_claude(folder / ".claude", 1000 if BIG else 121)
        logs = sorted((folder / ".claude").rglob("*.jsonl"), key=lambda path: path.stat().st_size)
        path = logs[len(logs) // 2]
        uid = f"claude:{path.stem}"
        server = started(folder)
        run: Callable[[Awaitable[Any]], Any] = asyncio.run  # type: ignore[assignment]
        try:
            missed = _told("search over HTTP", searched(server), 0.95, 0.040)
            missed += _told("publishing", fanned(server, uid), 0.99, 0.015)
            missed += _told("write to client", run(written(server, uid, path)), 0.95, 0.500)
            before, there, reading, silent = run(held(server, uid))
        finally:
            ended(server)
        each = (there - before) / MANY
        print(
            f"serve: memory {before / 1e6:.0f} MB, with {MANY} clients {there / 1e6:.0f} MB"
            f" ({each / 1e3:.0f} KB each), while they read {reading / 1e6:.0f} MB,"
            f" while they do not {silent / 1e6:.0f} MB"
        )
        missed += verdict("memory of a client / 250 KB", each / 250e3, 1)
        missed += verdict("growth while nobody reads / 100 MB", (silent - reading) / 100e6, 1)
    return missed


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    serve(Path(sys.argv[1]))
