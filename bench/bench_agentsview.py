"""thence and agentsview at the same work: import a home, import it again, search it.

Both run as users run them, as commands and over HTTP, on the same files in the same run, each in a
temporary home. agentsview must be installed at `AGENTSVIEW`, or on the PATH. `BENCH_BIG=1` adds a
gigabyte. What is compared:

- the first import of everything: time, memory, disk;
- later imports with nothing new, and with one new line in ten files;
- searches for rare, medium and common words and phrases. agentsview has two searches: one in an
  index of messages (`search`), and one that also covers calls and results (`content`). Our index
  has all text, so that it is compared with both; the number of hits is printed.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote, urlencode

from bench.bench_sweep import BIG, COMMON, MEDIUM, PHRASES, RARE, RunCost, measure_command
from bench.corpus import write_claude
from bench.measure import verdict
from thence.format.records import time_text

WORDS = {"rare": RARE, "medium": MEDIUM, "common": COMMON, "phrase": PHRASES}
GROWING_FILES = 10
"""Files that get a new line."""
QUERY_COUNT = 60
"""Queries of each kind."""


class MeasuredTool:
    """One of the two tools, with its own home."""

    name: str
    import_command: Sequence[str]

    def __init__(self, root: Path, home: Path) -> None:
        self.root = root
        self.home = home
        self.store = home / "store"
        self.env = {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8"}

    def reset(self) -> None:
        """Delete everything that was imported."""
        shutil.rmtree(self.home, ignore_errors=True)
        self.store.mkdir(parents=True)

    def import_logs(self) -> RunCost:
        """Import what is new; return the cost."""
        return measure_command([*self.import_command], self.env)

    @property
    def disk(self) -> int:
        """Return the bytes of its store."""
        return sum(path.stat().st_size for path in self.store.rglob("*") if path.is_file())

    @contextlib.contextmanager
    def serving(self) -> Iterator[http.client.HTTPConnection]:
        """Run the server; all queries go over the connection that is returned."""
        raise NotImplementedError

    def search_paths(self) -> dict[str, str]:
        """Return the URL paths of searches, up to the words, by what they cover."""
        raise NotImplementedError

    def headers(self) -> dict[str, str]:
        """Return the headers of every request."""
        return {}


class ThenceTool(MeasuredTool):
    """thence, as installed in this environment."""

    name = "thence"
    token = ""

    def __init__(self, root: Path, home: Path) -> None:
        super().__init__(root, home)
        self.env["THENCE_HOME"] = str(self.store)
        self.program = str(Path(sys.executable).parent / "thence")
        self.import_command = (self.program, "sweep", "--json", "--root", f"claude={root}")

    @contextlib.contextmanager
    def serving(self) -> Iterator[http.client.HTTPConnection]:
        """Run `thence serve`."""
        command = [self.program, "serve", "--json", "--no-open", "--token", "--port", "0"]
        process = subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE, text=True)
        try:
            address = _first_json(process)
            self.token = address["token"]
            yield _connect(address["port"])
        finally:
            process.terminate()
            process.wait(60)

    def search_paths(self) -> dict[str, str]:
        """Return the one search, which covers all text."""
        return {"all text": "/api/search?limit=50&q="}

    def headers(self) -> dict[str, str]:
        """Return the token that the server printed."""
        return {"Authorization": f"Bearer {self.token}"}


class AgentsviewTool(MeasuredTool):
    """agentsview."""

    name = "agentsview"

    def __init__(self, root: Path, home: Path, program: str) -> None:
        super().__init__(root, home)
        self.env["AGENTSVIEW_DATA_DIR"] = str(self.store)
        self.env["CLAUDE_PROJECTS_DIR"] = str(root / "projects")
        self.env["AGENTSVIEW_NO_DAEMON"] = "1"  # so that the command itself does the work
        self.program = program
        self.import_command = (program, "sync")

    @contextlib.contextmanager
    def serving(self) -> Iterator[http.client.HTTPConnection]:
        """Run `agentsview serve` without importing."""
        with socket.create_server(("127.0.0.1", 0)) as free_socket:
            port = free_socket.getsockname()[1]
        options = ("--no-sync", "--no-browser", "--no-update-check")
        command = [self.program, "serve", *options, "--port", str(port)]
        process = subprocess.Popen(
            command, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            yield _connect(port)
        finally:
            process.terminate()
            process.wait(60)

    def search_paths(self) -> dict[str, str]:
        """Return both searches: in messages, and also in calls and results."""
        options = urlencode({"include_one_shot": "true", "include_automated": "true", "limit": 50})
        return {
            "messages": f"/api/v1/search?{options}&q=",
            "all text": f"/api/v1/search/content?{options}&pattern=",
        }


def _first_json(process: subprocess.Popen[str]) -> dict[str, str]:
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        with contextlib.suppress(ValueError):
            value: dict[str, str] = json.loads(text)
            return value
    raise RuntimeError("the server ended before it printed its address")


def _connect(port: str | int, timeout_s: float = 60) -> http.client.HTTPConnection:
    deadline = time.perf_counter() + timeout_s
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=120)
        try:
            connection.connect()
        except OSError:
            if time.perf_counter() > deadline:
                raise
            time.sleep(0.05)
        else:
            return connection


# -- reading --------------------------------------------------------------------------------


def measure_first_import(tools: Sequence[MeasuredTool], size: int, rounds: int) -> int:
    """Compare first imports, alternating between the tools."""
    costs: dict[str, list[RunCost]] = {tool.name: [] for tool in tools}
    for _ in range(rounds):
        for tool in tools:
            tool.reset()
            costs[tool.name].append(tool.import_logs())
    medians = {
        name: RunCost(*(statistics.median(column) for column in zip(*runs, strict=True)))
        for name, runs in costs.items()
    }
    for tool in tools:
        cost = medians[tool.name]
        print(
            f"{tool.name}: {size / 1e6:.0f} MB in {cost.wall:.2f} s, {cost.cpu:.1f} s of CPU time,"
            f" {cost.memory / 1e6:.0f} MB of memory, {tool.disk / size:.2f} bytes per source byte"
        )
    ours, theirs = medians[tools[0].name], medians[tools[1].name]
    suffix = f"of {size / 1e6:.0f} MB / agentsview"
    missed = verdict(f"first import {suffix}", ours.wall / theirs.wall, 0.5)
    missed += verdict(f"memory {suffix}", ours.memory / theirs.memory, 1)
    return missed + verdict(f"disk {suffix}", tools[0].disk / tools[1].disk, 1)


def measure_later_imports(tools: Sequence[MeasuredTool], root: Path, rounds: int = 5) -> int:
    """Compare imports with nothing new and with one new line in ten files, alternating."""
    files = sorted(root.rglob("*.jsonl"), key=lambda path: path.stat().st_size)[-40:]
    times: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds):
        for tool in tools:
            times.setdefault((tool.name, "nothing new"), []).append(tool.import_logs().wall)
        now = f'"timestamp":"{time_text(time.time())}"'.encode()  # as if an agent were working
        for path in files[:GROWING_FILES]:
            lines = path.read_bytes().splitlines(keepends=True)
            last = next(line for line in reversed(lines) if b'"timestamp":"' in line)
            line = re.sub(rb'"timestamp":"[^"]*"', now, last, count=1)
            with path.open("ab") as file:
                file.write(line.replace(b'"uuid":"', b'"uuid":"%x' % number))
        for tool in tools:
            times.setdefault((tool.name, "one new line in ten files"), []).append(
                tool.import_logs().wall
            )
    missed = 0
    for change in ("nothing new", "one new line in ten files"):
        ours, theirs = (statistics.median(times[tool.name, change]) for tool in tools)
        print(f"{change}: thence {ours * 1e3:.0f} ms, agentsview {theirs * 1e3:.0f} ms")
        missed += verdict(f"{change} / agentsview", ours / theirs, 1)
    return missed


# -- searching ------------------------------------------------------------------------------


def measure_search(tools: Sequence[MeasuredTool], size: int) -> int:
    """Compare searches for words of all kinds, in every scope of each tool."""
    p95s: dict[tuple[str, str, str], float] = {}
    for tool in tools:
        with tool.serving() as link:
            for scope, path in tool.search_paths().items():
                for kind, words in WORDS.items():
                    times, hit_count = _time_queries(tool, link, path, words)
                    p50, p95 = times[len(times) // 2], times[int(len(times) * 0.95)]
                    p95s[tool.name, scope, kind] = p95
                    print(
                        f"{tool.name}: {kind} words in {scope}: p50 {p50 * 1e3:.1f} ms,"
                        f" p95 {p95 * 1e3:.1f} ms, {hit_count} on the first page"
                    )
            link.close()
    missed = 0
    (everything,) = tools[0].search_paths()
    for kind in WORDS:
        ours = p95s["thence", everything, kind]
        for scope in tools[1].search_paths():
            theirs = p95s["agentsview", scope, kind]
            name = f"p95 of {kind} words in {size / 1e6:.0f} MB / agentsview in {scope}"
            missed += verdict(name, ours / theirs, 1)
    return missed


def _time_queries(
    tool: MeasuredTool, connection: http.client.HTTPConnection, path: str, words: Sequence[str]
) -> tuple[list[float], int]:
    """Return the sorted times of queries, and the largest number of hits on a first page."""
    rng, times, hit_count = random.Random(3), [], 0
    for number in range(QUERY_COUNT + 2):
        start = time.perf_counter()
        text = rng.choice(words)
        if path.endswith("pattern="):  # takes quotation marks literally
            text = text.strip('"')
        connection.request("GET", path + quote(text), headers=tool.headers())
        response = connection.getresponse()
        body = json.loads(response.read())
        if number > 1:  # the first two open files
            times.append(time.perf_counter() - start)
        if response.status != 200:
            raise RuntimeError(f"{tool.name} answered {response.status}: {body}")
        hits = body.get("hits") or body.get("results") or body.get("matches") or []
        hit_count = max(hit_count, len(hits))
    return sorted(times), hit_count


def main() -> int:
    """Measure and print; return how many budgets were missed."""
    program = os.environ.get("AGENTSVIEW") or shutil.which("agentsview")
    if program is None:
        print("agentsview: not installed (set AGENTSVIEW=path); nothing to compare")
        return 0
    missed = 0
    for megabytes, rounds in ((121, 3), *(((1000, 1),) if BIG else ())):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            root = folder / "claude"
            write_claude(root, megabytes)
            size = sum(path.stat().st_size for path in root.rglob("*.jsonl"))
            tools = (
                ThenceTool(root, folder / "ours"),
                AgentsviewTool(root, folder / "theirs", program),
            )
            missed += measure_first_import(tools, size, rounds) + measure_search(tools, size)
            missed += measure_later_imports(tools, root) if megabytes < 1000 else 0
    return missed


if __name__ == "__main__":
    sys.exit(main())
