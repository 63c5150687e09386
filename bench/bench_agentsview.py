"""agentsview and we at the same work: read a home, read it again, search it.

Both run as their users run them, as commands and over HTTP, on the same files in the same run, each
in a home that is thrown away; its server is stopped after. It has to be installed where
`AGENTSVIEW` says, or on the PATH. `BENCH_BIG=1` adds a gigabyte. What is compared:

- the first reading of everything: time, memory, disk;
- reading again with nothing new, and with a line more in ten files;
- searching for rare, mid and common words and phrases. It has two ways to search: one in an index
  of what was said (`search`), and one that also looks at calls and results (`content`). Ours has
  all of it in its index, so that it is put beside both; what each finds is told.
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

from bench.bench_sweep import BIG, COMMON, MID, PHRASES, RARE, Took, ran
from bench.corpus import write_claude
from bench.measure import verdict
from thence.format.records import time_text

WORDS = {"rare": RARE, "mid": MID, "common": COMMON, "phrase": PHRASES}
LINES = 10
"""Files that get a line more."""
ASKED = 60
"""Questions of each kind."""


class Side:
    """One of the two tools, with a home of its own."""

    name: str
    reads: Sequence[str]
    serves: Sequence[str]

    def __init__(self, root: Path, home: Path) -> None:
        self.root = root
        self.home = home
        self.kept = home / "kept"
        self.env = {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8"}

    def fresh(self) -> None:
        """Forget everything."""
        shutil.rmtree(self.home, ignore_errors=True)
        self.kept.mkdir(parents=True)

    def read(self) -> Took:
        """Read what there is."""
        return ran([*self.reads], self.env)

    @property
    def disk(self) -> int:
        """Bytes that it keeps."""
        return sum(path.stat().st_size for path in self.kept.rglob("*") if path.is_file())

    @contextlib.contextmanager
    def serving(self) -> Iterator[http.client.HTTPConnection]:
        """Serve what was read; all questions go over one connection."""
        raise NotImplementedError

    def ways(self) -> dict[str, str]:
        """Ways to search: a name, and the path up to the words."""
        raise NotImplementedError

    def headers(self) -> dict[str, str]:
        """What every question carries."""
        return {}


class Ours(Side):
    """thence, as it is installed here."""

    name = "thence"
    token = ""

    def __init__(self, root: Path, home: Path) -> None:
        super().__init__(root, home)
        self.env["THENCE_HOME"] = str(self.kept)
        self.program = str(Path(sys.executable).parent / "thence")
        self.reads = (self.program, "sweep", "--json", "--root", f"claude={root}")

    @contextlib.contextmanager
    def serving(self) -> Iterator[http.client.HTTPConnection]:
        """Serve what was swept."""
        command = [self.program, "serve", "--json", "--no-open", "--token", "--port", "0"]
        process = subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE, text=True)
        try:
            told = _first_json(process)
            self.token = told["token"]
            yield _connected(told["port"])
        finally:
            process.terminate()
            process.wait(60)

    def ways(self) -> dict[str, str]:
        """One, for everything."""
        return {"everything": "/api/search?limit=50&q="}

    def headers(self) -> dict[str, str]:
        """The token that the server printed."""
        return {"Authorization": f"Bearer {self.token}"}


class Theirs(Side):
    """agentsview."""

    name = "agentsview"

    def __init__(self, root: Path, home: Path, program: str) -> None:
        super().__init__(root, home)
        self.env["AGENTSVIEW_DATA_DIR"] = str(self.kept)
        self.env["CLAUDE_PROJECTS_DIR"] = str(root / "projects")
        self.env["AGENTSVIEW_NO_DAEMON"] = "1"  # it works in the process that is asked
        self.program = program
        self.reads = (program, "sync")

    @contextlib.contextmanager
    def serving(self) -> Iterator[http.client.HTTPConnection]:
        """Serve what was synced, and look for nothing new meanwhile."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        quiet = ("--no-sync", "--no-browser", "--no-update-check")
        command = [self.program, "serve", *quiet, "--port", str(port)]
        process = subprocess.Popen(
            command, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            yield _connected(port)
        finally:
            process.terminate()
            process.wait(60)

    def ways(self) -> dict[str, str]:
        """In what was said, and in calls and results as well."""
        more = urlencode({"include_one_shot": "true", "include_automated": "true", "limit": 50})
        return {
            "what was said": f"/api/v1/search?{more}&q=",
            "everything": f"/api/v1/search/content?{more}&pattern=",
        }


def _first_json(process: subprocess.Popen[str]) -> dict[str, str]:
    assert process.stdout is not None
    told = ""
    for line in process.stdout:
        told += line
        with contextlib.suppress(ValueError):
            found: dict[str, str] = json.loads(told)
            return found
    raise RuntimeError("the server ended before it began")


def _connected(port: str | int, patience: float = 60) -> http.client.HTTPConnection:
    until = time.perf_counter() + patience
    while True:
        link = http.client.HTTPConnection("127.0.0.1", int(port), timeout=120)
        try:
            link.connect()
        except OSError:
            if time.perf_counter() > until:
                raise
            time.sleep(0.05)
        else:
            return link


# -- reading --------------------------------------------------------------------------------


def reading(sides: Sequence[Side], size: int, rounds: int) -> int:
    """Everything for the first time, in turn."""
    took: dict[str, list[Took]] = {side.name: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            side.fresh()
            took[side.name].append(side.read())
    middle = {
        name: Took(*(statistics.median(column) for column in zip(*all_, strict=True)))
        for name, all_ in took.items()
    }
    for side in sides:
        one = middle[side.name]
        print(
            f"{side.name}: {size / 1e6:.0f} MB in {one.wall:.2f} s, {one.cpu:.1f} s of processors,"
            f" {one.memory / 1e6:.0f} MB of memory, {side.disk / size:.2f} byte per byte"
        )
    ours, theirs = middle[sides[0].name], middle[sides[1].name]
    told = f"of {size / 1e6:.0f} MB / agentsview"
    missed = verdict(f"first reading {told}", ours.wall / theirs.wall, 0.5)
    missed += verdict(f"memory {told}", ours.memory / theirs.memory, 1)
    return missed + verdict(f"disk {told}", sides[0].disk / sides[1].disk, 1)


def again(sides: Sequence[Side], root: Path, rounds: int = 5) -> int:
    """Nothing new, and a line more in ten files, in turn."""
    files = sorted(root.rglob("*.jsonl"), key=lambda path: path.stat().st_size)[-40:]
    took: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds):
        for side in sides:
            took.setdefault((side.name, "nothing new"), []).append(side.read().wall)
        now = f'"timestamp":"{time_text(time.time())}"'.encode()  # as an agent that is at work
        for path in files[:LINES]:
            lines = path.read_bytes().splitlines(keepends=True)
            last = next(line for line in reversed(lines) if b'"timestamp":"' in line)
            line = re.sub(rb'"timestamp":"[^"]*"', now, last, count=1)
            with path.open("ab") as file:
                file.write(line.replace(b'"uuid":"', b'"uuid":"%x' % number))
        for side in sides:
            took.setdefault((side.name, "a line more in ten files"), []).append(side.read().wall)
    missed = 0
    for what in ("nothing new", "a line more in ten files"):
        ours, theirs = (statistics.median(took[side.name, what]) for side in sides)
        print(f"{what}: thence {ours * 1e3:.0f} ms, agentsview {theirs * 1e3:.0f} ms")
        missed += verdict(f"{what} / agentsview", ours / theirs, 1)
    return missed


# -- searching ------------------------------------------------------------------------------


def searching(sides: Sequence[Side], size: int) -> int:
    """Words of all kinds, each side by each of its ways."""
    high: dict[tuple[str, str, str], float] = {}
    for side in sides:
        with side.serving() as link:
            for way, path in side.ways().items():
                for kind, words in WORDS.items():
                    took, found = _asked(side, link, path, words)
                    middle, top = took[len(took) // 2], took[int(len(took) * 0.95)]
                    high[side.name, way, kind] = top
                    print(
                        f"{side.name}: {kind} words in {way}: p50 {middle * 1e3:.1f} ms,"
                        f" p95 {top * 1e3:.1f} ms, {found} on the first page"
                    )
            link.close()
    missed = 0
    for kind in WORDS:
        ours = high["thence", "everything", kind]
        for way in sides[1].ways():
            theirs = high["agentsview", way, kind]
            told = f"p95 of {kind} words in {size / 1e6:.0f} MB / agentsview in {way}"
            missed += verdict(told, ours / theirs, 1)
    return missed


def _asked(
    side: Side, link: http.client.HTTPConnection, path: str, words: Sequence[str]
) -> tuple[list[float], int]:
    """How long questions took, in order of that, and how much was found on first pages."""
    chance, took, found = random.Random(3), [], 0
    for number in range(ASKED + 2):
        start = time.perf_counter()
        text = chance.choice(words)
        if path.endswith("pattern="):  # which it takes as it stands
            text = text.strip('"')
        link.request("GET", path + quote(text), headers=side.headers())
        answer = link.getresponse()
        told = json.loads(answer.read())
        if number > 1:  # the first ones open files
            took.append(time.perf_counter() - start)
        if answer.status != 200:
            raise RuntimeError(f"{side.name} answered {answer.status}: {told}")
        hits = told.get("hits") or told.get("results") or told.get("matches") or []
        found = max(found, len(hits))
    return sorted(took), found


def main() -> int:
    """Measure, print, and say how many budgets were missed."""
    program = os.environ.get("AGENTSVIEW") or shutil.which("agentsview")
    if program is None:
        print("agentsview: not installed (AGENTSVIEW=path): no comparison")
        return 0
    missed = 0
    for megabytes, rounds in ((121, 3), *(((1000, 1),) if BIG else ())):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            root = folder / "claude"
            write_claude(root, megabytes)
            size = sum(path.stat().st_size for path in root.rglob("*.jsonl"))
            sides = (Ours(root, folder / "ours"), Theirs(root, folder / "theirs", program))
            missed += reading(sides, size, rounds) + searching(sides, size)
            missed += again(sides, root) if megabytes < 1000 else 0
    return missed


if __name__ == "__main__":
    sys.exit(main())
