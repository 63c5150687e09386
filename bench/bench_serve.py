"""The server and its clients, each in a process of its own, over real sockets.

A hundred clients follow one session while twenty events per second are published: the time from
publishing an event until a client has read it. A thousand clients stay connected: the memory of
each, and the memory when they do not read. Lines are written to a log: the time from the write
until a client has read the event, through watching, sweeping and publishing. Words are searched
over HTTP. The time of one exchange over a plain socket is printed for comparison.
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

from bench.bench_sweep import BIG, COMMON, MEDIUM, PHRASES, RARE
from bench.corpus import write_claude
from bench.measure import verdict
from tests.rules import rules

CLIENT_COUNT, TICKS_PER_S, DURATION_S = 100, 20, 10
IDLE_CLIENT_COUNT = 1000
KEY = bytes(32)


# -- the server -----------------------------------------------------------------------------


def serve(folder: Path, *, only_import: bool = False) -> None:
    """Serve a folder, and publish ticks to the clients of a session, until stdin is closed."""
    from thence import config
    from thence.agents import adapters
    from thence.memory.gate import Gate
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
        only_found: bool = False,
    ) -> SweepReport:
        address = str(home / "thence.db")
        with store.sweeping(wait_s):
            sweep = Sweep(store, known, Gate(key=KEY), rules(), digests=digests, address=address)
            return sweep.run(roots, digest_limit_s, only_found=only_found)

    passes = Gate(key=KEY)
    context = AppContext(
        store,
        home=home,
        settings=config.settings(home, {}),
        known=known,
        gate=lambda: passes,
        roots={"claude": [folder / ".claude"]},
        policy=Policy(),
        sweep_home=sweep_home,
    )
    if only_import:  # in a process of its own, as `thence serve` does: the server stays small
        sweep_home(known, context.roots)
        return
    listener = app.listener("127.0.0.1", 0, backlog=2048)
    gate = AuthMiddleware("127.0.0.1", listener.getsockname()[1], key=KEY)
    application = app.App(context, gate)
    server = app.server(application)
    app.settle()
    print(json.dumps([gate.port, gate.token]), flush=True)
    threading.Thread(target=_publish_ticks, args=(application.hub, server), daemon=True).start()
    server.run([listener])


def _publish_ticks(hub: Any, server: Any) -> None:
    from thence.serve.clients import frame

    stop = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait, daemon=True).start()
    while not stop.wait(1 / TICKS_PER_S):
        for stream in list(hub._streams.values()):  # noqa: SLF001 - as a sweep would
            text = {"at": time.perf_counter_ns(), "payload": "x" * 700}
            event_frame = frame("tick", text, "0000000000000-0-00000000")
            hub._send(stream.clients, [event_frame])  # noqa: SLF001
    server.should_exit = True


class Server(NamedTuple):
    """A server in another process."""

    process: subprocess.Popen[str]
    port: int
    token: str

    @property
    def memory_bytes(self) -> int:
        """Return its resident memory in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int((re.search(r"VmRSS:\s+(\d+)", status) or ["", "0"])[1]) * 1024

    @property
    def cpu_seconds(self) -> float:
        """Return the CPU seconds that it has used so far."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii")
        ticks = stat.rpartition(")")[2].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def start_server(folder: Path) -> Server:
    """Start a server for a folder, and return it."""
    command = [sys.executable, "-m", "bench.bench_serve", str(folder)]
    subprocess.run([*command, "import"], check=True)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port, token = json.loads(process.stdout.readline())
    return Server(process, port, token)


def stop_server(server: Server) -> None:
    """Stop a server."""
    assert server.process.stdin is not None
    assert server.process.stdout is not None
    server.process.stdin.close()
    server.process.wait(60)
    server.process.stdout.close()


# -- clients --------------------------------------------------------------------------------


async def connect(server: Server, uid: str, last: int = 1) -> asyncio.StreamReader:
    """Connect a client to the live stream of a session."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 22)
    request = f"GET /api/sessions/{uid}/live?last={last} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}"
    writer.write(f"{request}\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode())
    _WRITERS.append(writer)
    return reader


_WRITERS: list[asyncio.StreamWriter] = []


async def close_clients() -> None:
    """Close all clients."""
    for writer in _WRITERS:
        writer.close()
    _WRITERS.clear()
    await asyncio.sleep(1)


async def read_ticks(reader: asyncio.StreamReader, deadline: float, delays: list[float]) -> None:
    """Read frames until a deadline, and add the delay of each tick to a list.

    It reads complete frames, not lines: a hundred clients that handle each line would measure
    themselves.
    """
    with contextlib.suppress(TimeoutError, asyncio.IncompleteReadError):
        async with asyncio.timeout(deadline - time.perf_counter()):
            while True:
                frame = await reader.readuntil(b"\n\n")
                now = time.perf_counter_ns()
                position = frame.find(b'data: {"at":')
                if position >= 0:
                    delays.append(
                        (now - int(frame[position + 12 : frame.index(b",", position)])) / 1e9
                    )


def open_stream(server: Server, uid: str) -> socket.socket:
    """Connect to the live stream of a session over a plain socket."""
    connection = socket.create_connection(("127.0.0.1", server.port))
    request = f"GET /api/sessions/{uid}/live?last=1 HTTP/1.1\r\nHost: 127.0.0.1:{server.port}"
    connection.sendall(f"{request}\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode())
    return connection


def read_all_ticks(connections: list[socket.socket], seconds: float) -> list[float]:
    """Read from all clients for some seconds, and return the delays of all ticks.

    The time is taken when the bytes arrive, and nothing else is done with them: a hundred clients
    on one core that process each event would measure themselves.
    """
    delays: list[float] = []
    partial = dict.fromkeys(connections, b"")
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ, connection)
        deadline = time.perf_counter() + seconds
        while (remaining := deadline - time.perf_counter()) > 0:
            for key, _ in selector.select(remaining):
                data = key.data.recv(1 << 16)
                now = time.perf_counter_ns()
                *frames, partial[key.data] = (partial[key.data] + data).split(b"\n\n")
                for frame in frames:
                    position = frame.find(b'data: {"at":')
                    if position >= 0:
                        delays.append(
                            (now - int(frame[position + 12 : frame.index(b",", position)])) / 1e9
                        )
    return delays


def measure_publishing(server: Server, uid: str) -> list[float]:
    """Return the delays of events to a hundred clients over some seconds."""
    connections = [open_stream(server, uid) for _ in range(CLIENT_COUNT)]
    read_all_ticks(connections, 2)
    cpu_before = server.cpu_seconds
    delays = read_all_ticks(connections, DURATION_S)
    cpu_per_event = (server.cpu_seconds - cpu_before) / max(len(delays), 1)
    print(f"serve: one event to one client takes {cpu_per_event * 1e6:.0f} us of CPU time")
    for connection in connections:
        connection.close()
    time.sleep(1)
    return delays


async def measure_memory(server: Server, uid: str) -> tuple[int, int, int, int]:
    """Return the memory before and with a thousand clients, while they read, while they stall."""
    before = server.memory_bytes
    readers = [await connect(server, uid) for _ in range(IDLE_CLIENT_COUNT)]
    await asyncio.gather(*(read_ticks(r, time.perf_counter() + 3, []) for r in readers))
    connected = server.memory_bytes
    delays: list[float] = []
    await asyncio.gather(*(read_ticks(r, time.perf_counter() + 10, delays) for r in readers))
    reading = server.memory_bytes
    await asyncio.sleep(30)  # the clients stop reading
    stalled = server.memory_bytes
    await close_clients()
    print(
        f"serve: {IDLE_CLIENT_COUNT} clients got {len(delays):,} events,"
        f" p99 {_percentile(delays, 0.99) * 1e3:.0f} ms"
    )
    return before, connected, reading, stalled


async def measure_write_to_client(
    server: Server, uid: str, path: Path, count: int = 60
) -> list[float]:
    """Return the times from writing a line to a log until a client has it."""
    reader = await connect(server, uid)
    delays: list[float] = []
    sent_at: dict[str, float] = {}

    async def read() -> None:
        while len(delays) < count:
            line = await reader.readline()
            now = time.perf_counter()
            if line.startswith(b'data: {"session_uid"'):
                delays.extend(
                    now - sent_at.pop(name) for name in list(sent_at) if name.encode() in line
                )

    reading = asyncio.create_task(read())
    await asyncio.sleep(2)
    record_before = _last_record(path)
    for _ in range(count):
        name = str(uuid.uuid4())
        message = {"role": "user", "content": f"line {name}"}
        record = {
            "type": "user",
            "uuid": name,
            "parentUuid": record_before.get("uuid"),
            "message": message,
        }
        record_before = {**record_before, **record}
        sent_at[name] = time.perf_counter()
        _append(path, json.dumps(record_before) + "\n")
        await asyncio.sleep(random.uniform(0.2, 0.6))
    await asyncio.wait_for(reading, 30)
    await close_clients()
    return delays


def _last_record(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(path.read_bytes().splitlines()[-1])
    return record


def _append(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(line)


def measure_search(server: Server, rounds: int = 200) -> list[float]:
    """Return the times of searches of all kinds over one connection, as a page sends them."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    headers = {"Authorization": f"Bearer {server.token}"}
    rng, times = random.Random(5), []
    for _ in range(rounds):
        words = rng.choice((*RARE, *MEDIUM, *COMMON, *PHRASES))
        start = time.perf_counter()
        connection.request("GET", f"/api/search?q={quote(words)}", headers=headers)
        response = connection.getresponse()
        response.read()
        times.append(time.perf_counter() - start)
        assert response.status == 200, response.status
    connection.close()
    return times


def measure_socket() -> float:
    """Return the median seconds of one exchange over a socket with another thread."""
    local, remote = socket.socketpair()

    def echo() -> None:
        while data := remote.recv(4096):
            remote.sendall(data)

    threading.Thread(target=echo, daemon=True).start()
    times = []
    for _ in range(2000):
        start = time.perf_counter()
        local.sendall(b"x" * 800)
        local.recv(4096)
        times.append(time.perf_counter() - start)
    local.close()
    return sorted(times)[len(times) // 2]


def _percentile(times: list[float], share: float) -> float:
    return sorted(times)[min(int(len(times) * share), len(times) - 1)] if times else float("inf")


def _check_percentile(what: str, times: list[float], share: float, budget: float) -> int:
    name = f"p{round(share * 100)}"
    p50, value = _percentile(times, 0.5), _percentile(times, share)
    print(f"serve: {what}: {len(times):,}, p50 {p50 * 1e3:.1f} ms, {name} {value * 1e3:.1f} ms")
    return verdict(f"{name} of {what} / {budget * 1e3:g} ms", value / budget, 1)


def main() -> int:
    """Measure and print; return how many budgets were missed."""
    print(f"serve: one exchange over a plain socket takes {measure_socket() * 1e6:.0f} us")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_claude(folder / ".claude", 1000 if BIG else 121)
        logs = sorted((folder / ".claude").rglob("*.jsonl"), key=lambda path: path.stat().st_size)
        path = logs[len(logs) // 2]
        uid = f"claude:{path.stem}"
        server = start_server(folder)
        run: Callable[[Awaitable[Any]], Any] = asyncio.run  # type: ignore[assignment]
        try:
            missed = _check_percentile("search over HTTP", measure_search(server), 0.95, 0.040)
            missed += _check_percentile("publishing", measure_publishing(server, uid), 0.99, 0.015)
            missed += _check_percentile(
                "write to client", run(measure_write_to_client(server, uid, path)), 0.95, 0.500
            )
            before, connected, reading, stalled = run(measure_memory(server, uid))
        finally:
            stop_server(server)
        per_client = (connected - before) / IDLE_CLIENT_COUNT
        print(
            f"serve: memory {before / 1e6:.0f} MB,"
            f" with {IDLE_CLIENT_COUNT} clients {connected / 1e6:.0f} MB"
            f" ({per_client / 1e3:.0f} KB each), while they read {reading / 1e6:.0f} MB,"
            f" while they do not {stalled / 1e6:.0f} MB"
        )
        missed += verdict("memory of a client / 250 KB", per_client / 250e3, 1)
        missed += verdict(
            "memory growth while clients do not read / 100 MB", (stalled - reading) / 100e6, 1
        )
    return missed


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    serve(Path(sys.argv[1]), only_import="import" in sys.argv[2:])
