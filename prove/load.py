"""T13: much of everything. Ten thousand sessions against caps, fifty live files, one huge rollout.

Looked at: all is there, once; caps are kept; memory is bounded.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.corpus import write_great
from prove.state import ROOT
from prove.trial import Outcome, Part, Trial

SESSIONS, ROLLOUT, LIVE = "sessions against caps", "one rollout of MB", "live files for seconds"
EACH = 2_000_000
"""Bytes of a session: 20 GB in all."""
MEMORY = 600 << 20
"""Bytes that no process of a sweep may exceed."""


def _thence(home: Path, *given: str) -> tuple[int, dict[str, Any], int]:
    """Run the command: how it ended, what it told, and the most memory of one of its processes."""
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "NO_COLOR": "1"}
    entry = [sys.executable, "-c", "from thence.cli import main; main()"]
    done = subprocess.run([*entry, *given, "--json"], env=env, capture_output=True, check=False)
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    try:
        told = json.loads(done.stdout)
    except ValueError:
        told = {"error": done.stderr.decode(errors="replace")[-300:]}
    return done.returncode, told, most


def _sessions(part: Part, folder: Path) -> Outcome:
    out = Outcome(part.size)
    size = write_great(folder / ".claude", part.size, EACH, seed=part.seed + 1)
    caps = folder / ".thence"
    caps.mkdir(parents=True)
    soft = size // 10
    (caps / "config.toml").write_text(
        "[session_memory.retention]\n"
        f"raw_soft_cap_bytes = {soft}\nraw_hard_cap_bytes = {2 * soft}\n",
        encoding="ascii",
    )
    code, told, most = _thence(folder, "sweep")
    lines = sum(path.read_bytes().count(b"\n") for path in (folder / ".claude").rglob("*.jsonl"))
    out.seen = {
        "MB": size // 10**6,
        "lines": lines,
        "events": told.get("events", 0),
        "evicted": told.get("evicted", 0),
        "MB of memory for many": most >> 20,
    }
    wanted = {"sessions_new": part.size, "lines": lines, "skipped": 0, "lost": 0}
    found = {name: told.get(name, told.get("error")) for name in wanted if name in told or code}
    out.violations += [
        f"{name}: {found[name]}, not {wanted[name]}"
        for name in found
        if found[name] != wanted[name]
    ]
    _, again, _ = _thence(folder, "sweep")
    if again.get("sources") != again.get("unchanged"):
        out.violations.append(f"a second sweep reads again: {again}"[:300])
    held = _held(folder)
    if held > 2 * soft:
        out.violations.append(f"{held} bytes are kept over a hard cap of {2 * soft}")
    if most > MEMORY:
        out.violations.append(f"a process took {most >> 20} MB")
    return out


def _held(home: Path) -> int:
    """What the caps are about: the payloads of sessions."""
    _, told, _ = _thence(home, "gc", "--dry-run")
    held = told.get("usage_after", 0)
    return held if isinstance(held, int) else 0


def _rollout(part: Part, folder: Path) -> Outcome:
    """A rollout as large as Codex users have had them."""
    thread = "019a2c00-0000-7000-8000-000000000001"
    path = folder / ".codex/sessions/2026/11/16" / f"rollout-2026-11-16T01-00-00-{thread}.jsonl"
    path.parent.mkdir(parents=True)
    calls = written = 0
    with path.open("w", encoding="ascii") as file:

        def put(kind: str, payload: Mapping[str, object]) -> int:
            record = {"timestamp": "2026-11-16T01:00:00.000Z", "type": kind, "payload": payload}
            return file.write(json.dumps(record) + "\n")

        put("session_meta", {"id": thread, "cwd": "/home/dev/p", "cli_version": "0.152.0"})
        said = {"type": "message", "role": "user"}
        put("response_item", said | {"content": [{"type": "input_text", "text": "Go."}]})
        while written < part.size * 10**6:
            name = f"call_{calls}"
            call = {"type": "function_call", "name": "shell", "call_id": name}
            put("response_item", call | {"arguments": '{"command":["cat","notes.txt"]}'})
            result = f"run {calls}\n" + f"line of output {calls % 97}, all is well\n" * 500
            written += put(
                "response_item",
                {"type": "function_call_output", "call_id": name, "output": result},
            )
            calls += 1
    code, told, most = _thence(folder, "sweep")
    out = Outcome(calls * 2 + 2, seen={"MB in one file": path.stat().st_size // 10**6})
    if (code, told.get("sessions_new")) != (0, 1) or told.get("lines", 0) != 2 * calls + 2:
        out.violations.append(f"{2 * calls + 2} lines, told {code} {told}"[:400])
    out.seen["MB of memory"] = most >> 20
    return out


def _live(part: Part, folder: Path) -> Outcome:
    """Fifty files that grow by twenty lines a second: none is missed."""
    env = {**os.environ, "THENCE_WATCH_SECONDS": str(part.size), "TMPDIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "bench", "watch"],
        env=env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = part.size * 20 * 50
    wrong = [] if done.returncode == 0 else [(done.stdout + done.stderr)[-400:]]
    return Outcome(lines, wrong, {"live lines": lines})


def _parts(scale: float) -> list[Part]:
    return [
        Part(SESSIONS, 1, max(round(10_000 * scale), 10)),
        Part(ROLLOUT, 1, max(round(1000 * scale), 5)),
        Part(LIVE, 1, max(round(3600 * scale), 5)),
    ]


def _run(part: Part, folder: Path) -> Outcome:
    return {SESSIONS: _sessions, ROLLOUT: _rollout, LIVE: _live}[part.what](part, folder)


TRIALS = (
    Trial(
        "T13",
        "load: many sessions, live files, one huge rollout",
        "sessions and lines",
        "10,000 sessions, 20 GB, 50 live files for an hour, 1 GB rollout",
        _parts,
        _run,
        alone=True,
    ),
)
