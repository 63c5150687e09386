"""A program: read every hostile file in a process of its own, and tell what that took.

For each path on stdin one line of JSON on stdout: seconds of processor time per step, the most
memory the process held, what was found, and what was wrong with it. Nothing is judged here but
what must hold for every input.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from thence.agents import Batch, Source, adapters
from thence.agents.sessions import load, read_all
from thence.cli.inspect import inspect_file
from thence.cli.session_text import Page
from thence.cli.show import events
from thence.cli.terminal import as_json, columns
from thence.format.facts import Fact
from thence.format.repair import problems
from thence.memory.readouts import open_loaded as opened_session
from thence.memory.readouts import readout_of

HARMFUL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
ROOM = 80
KNOWN = adapters()
"""Found and imported before the first child is born."""

Report = dict[str, Any]


def step(report: Report, name: str, run: Callable[[], Any]) -> Any:
    """Do one thing and note what it took; what it raises is wrong."""
    start = time.process_time()
    try:
        return run()
    except BaseException as error:  # noqa: BLE001 - whatever it is, it must not be
        report["wrong"].append(f"{name}: {type(error).__name__}: {error}"[:300])
    finally:
        report["seconds"][name] = round(time.process_time() - start, 3)
    return None


def inspect(report: Report, path: Path) -> None:
    """Count the file."""
    counts = step(report, "inspect", lambda: inspect_file(path))
    if counts is not None:
        report["counts"] = json.loads("\n".join(as_json(counts)))


def read(report: Report, path: Path) -> None:
    """Let every adapter have a look; what one claims must be there to the last line."""
    for name, adapter in KNOWN.items():
        source = step(report, f"{name}.at", partial(adapter.at, path))
        if source is not None:
            report["agents"].append(name)
            result = step(report, f"{name}.read", partial(read_all, adapter, source))
            report["wrong"] += list(lost(source, *result))[:3] if result else []


def lost(source: Source, facts: list[Fact], batch: Batch) -> Iterator[str]:
    """Find lines that are no fact, not skipped, not blank and not the torn end."""
    for file in source.files:
        if file.is_document or not file.path.endswith(".jsonl"):
            continue
        lines = Path(file.path).read_bytes().split(b"\n")[:-1]
        known = {fact.line for fact in facts if fact.file == file.key}
        known |= {skip.line for skip in batch.skipped if skip.source == file.path}
        for number, line in enumerate(lines, 1):
            if number not in known and line.strip(b" \t\r\n\v\f\xef\xbb\xbf"):
                yield f"line {number} is nowhere"


def closed(report: Report, path: Path) -> None:
    """Show the session as text, and as messages."""
    _page(report, path, opened=False)
    loaded = load(path, KNOWN)
    mended = step(report, "messages", readout_of(loaded.graph).messages)
    if mended is not None:
        report["wrong"] += problems(mended.messages)[:3]
        step(report, "messages as JSON", lambda: json.loads("".join(as_json(mended.messages))))


def opened(report: Report, path: Path) -> None:
    """Show it with everything opened."""
    _page(report, path, opened=True)


def _page(report: Report, path: Path, *, opened: bool) -> None:
    def lines() -> list[str]:
        return Page(opened_session(load(path, KNOWN)), ROOM, opened=opened).lines()

    page = step(report, f"text, {opened=}", lines) or []
    bad = [line for line in page if HARMFUL.search(line) or columns(line) > ROOM]
    report["wrong"] += [f"unfit to print: {line!r}"[:200] for line in bad[:3]]


def told_as_events(report: Report, path: Path) -> None:
    """Show all events as JSON, each on a line; every one has a state."""

    def lines() -> None:
        for line in as_json(events(opened_session(load(path, KNOWN)))):
            if HARMFUL.search(line):
                report["wrong"].append(f"unfit to print: {line!r}"[:200])
            if line.startswith('    {"session_uid"'):
                event = json.loads(line.rstrip(","))
                if not event.get("state"):
                    report["wrong"].append(f"no state: {line}"[:200])

    step(report, "events", lines)


WAYS = (inspect, read, closed, opened, told_as_events)


def apart(way: Callable[[Report, Path], None], path: Path) -> Report:
    """Look at a file in a child, so that its memory can be told."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        report: Report = {"seconds": {}, "wrong": [], "agents": []}
        with os.fdopen(theirs, "w") as out:
            way(report, path)
            json.dump(report, out)
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        text = pipe.read()
    _, status, usage = os.wait4(child, 0)
    outcome: Report = json.loads(text) if text else {"wrong": [f"{way.__name__} died: {status}"]}
    return outcome | {"megabytes": usage.ru_maxrss // 1024}


def looked_at(path: Path) -> Report:
    """Read one file in every way there is, and put together what that gave."""
    out: Report = {"seconds": {}, "wrong": [], "agents": [], "megabytes": 0, "counts": {}}
    for way in WAYS:
        if way not in (inspect, read) and not out["agents"]:
            continue
        report = apart(way, path)
        out["seconds"] |= report.get("seconds", {})
        out["counts"] |= report.get("counts", {})
        out["wrong"] += report["wrong"]
        out["agents"] += report.get("agents", [])
        out["megabytes"] = max(out["megabytes"], report["megabytes"])
    return out


SAMPLE = (
    {"type": "user", "uuid": "a", "message": {"role": "user", "content": "Run the tests."}},
    {"type": "user", "uuid": "b", "parentUuid": "a", "message": {"role": "user", "content": "?"}},
)
"""A small session of Claude Code."""


def warm_up() -> None:
    """Look at a small file in every way here: what is loaded and compiled late, children have."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sample.jsonl")
        frame = {"sessionId": "sample", "timestamp": "2026-01-01T00:00:00.000Z"}
        path.write_text("".join(f"{json.dumps(record | frame)}\n" for record in SAMPLE))
        for way in WAYS:
            way({"seconds": {}, "wrong": [], "agents": []}, path)


if __name__ == "__main__":
    warm_up()
    for line in sys.stdin:
        print(json.dumps(looked_at(Path(line.rstrip("\n")))), flush=True)  # noqa: T201 - its answer
