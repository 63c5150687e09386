"""T13: load. Ten thousand sessions with storage limits, fifty live files, one huge rollout.

Checks that everything is stored once, that the limits hold, and that memory is bounded.
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

from bench import bench_watch
from bench.corpus import write_copies
from prove.trial import Outcome, Part, Trial

SESSIONS, ROLLOUT, LIVE = "sessions against caps", "one rollout of MB", "live files for seconds"
SESSION_BYTES = 2_000_000
"""Size of a session; ten thousand of them are 20 GB."""
SWEEP_CODE = (
    *("thence.cli", "thence.cli.sweep", "thence.cli.gc"),  # these import what they need of others
    *("thence.memory.*", "thence.agents.*"),
)
MAX_MEMORY_BYTES = 600 << 20
"""Memory limit of each process of a sweep."""


def _thence(home: Path, *arguments: str) -> tuple[int, dict[str, Any], int]:
    """Run a command; return its exit code, its report and the peak memory of one process."""
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "NO_COLOR": "1"}
    entry = [sys.executable, "-c", "from thence.cli import main; main()"]
    process = subprocess.run(
        [*entry, *arguments, "--json"], env=env, capture_output=True, check=False
    )
    peak_bytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    try:
        report = json.loads(process.stdout)
    except ValueError:
        report = {"error": process.stderr.decode(errors="replace")[-300:]}
    return process.returncode, report, peak_bytes


def _run_sessions(part: Part, folder: Path) -> Outcome:
    outcome = Outcome(part.size)
    total_bytes = write_copies(folder / ".claude", part.size, SESSION_BYTES, seed=part.seed + 1)
    caps = folder / ".thence"
    caps.mkdir(parents=True)
    soft_cap_bytes = total_bytes // 10
    (caps / "config.toml").write_text(
        "[session_memory.retention]\n"
        f"raw_soft_cap_bytes = {soft_cap_bytes}\nraw_hard_cap_bytes = {2 * soft_cap_bytes}\n",
        encoding="ascii",
    )
    code, report, peak_bytes = _thence(folder, "sweep")
    lines = sum(path.read_bytes().count(b"\n") for path in (folder / ".claude").rglob("*.jsonl"))
    outcome.counts = {
        "MB": total_bytes // 10**6,
        "lines": lines,
        "events": report.get("events", 0),
        "evicted": report.get("evicted", 0),
        "MB of memory for many": peak_bytes >> 20,
    }
    expected = {"sessions_new": part.size, "lines": lines, "skipped": 0, "lost": 0}
    actual = {
        name: report.get(name, report.get("error")) for name in expected if name in report or code
    }
    outcome.violations += [
        f"{name}: {actual[name]}, not {expected[name]}"
        for name in actual
        if actual[name] != expected[name]
    ]
    _, second, _ = _thence(folder, "sweep")
    if second.get("sources") != second.get("unchanged"):
        outcome.violations.append(f"a second sweep reads sources again: {second}"[:300])
    stored_bytes = _stored_bytes(folder)
    if stored_bytes > 2 * soft_cap_bytes:
        outcome.violations.append(
            f"{stored_bytes} bytes are stored, above the hard cap of {2 * soft_cap_bytes}"
        )
    if peak_bytes > MAX_MEMORY_BYTES:
        outcome.violations.append(f"a process used {peak_bytes >> 20} MB of memory")
    return outcome


def _stored_bytes(home: Path) -> int:
    """Return the bytes of stored payloads, which the caps limit."""
    _, report, _ = _thence(home, "gc", "--dry-run")
    stored_bytes = report.get("usage_after", 0)
    return stored_bytes if isinstance(stored_bytes, int) else 0


def _run_rollout(part: Part, folder: Path) -> Outcome:
    """Sweep a rollout as large as Codex users have had them."""
    thread = "019a2c00-0000-7000-8000-000000000001"
    path = folder / ".codex/sessions/2026/11/16" / f"rollout-2026-11-16T01-00-00-{thread}.jsonl"
    path.parent.mkdir(parents=True)
    calls = written = 0
    with path.open("w", encoding="ascii") as file:

        def put(kind: str, payload: Mapping[str, object]) -> int:
            record = {"timestamp": "2026-11-16T01:00:00.000Z", "type": kind, "payload": payload}
            return file.write(json.dumps(record) + "\n")

        put("session_meta", {"id": thread, "cwd": "/home/dev/p", "cli_version": "0.152.0"})
        message = {"type": "message", "role": "user"}
        put("response_item", message | {"content": [{"type": "input_text", "text": "Go."}]})
        while written < part.size * 10**6:
            call_id = f"call_{calls}"
            call = {"type": "function_call", "name": "shell", "call_id": call_id}
            put("response_item", call | {"arguments": '{"command":["cat","notes.txt"]}'})
            result = f"run {calls}\n" + f"line of output {calls % 97}, all is well\n" * 500
            written += put(
                "response_item",
                {"type": "function_call_output", "call_id": call_id, "output": result},
            )
            calls += 1
    code, report, peak_bytes = _thence(folder, "sweep")
    outcome = Outcome(calls * 2 + 2, counts={"MB in one file": path.stat().st_size // 10**6})
    if (code, report.get("sessions_new")) != (0, 1) or report.get("lines", 0) != 2 * calls + 2:
        outcome.violations.append(
            f"{2 * calls + 2} lines expected; exit code {code}, report {report}"[:400]
        )
    outcome.counts["MB of memory"] = peak_bytes >> 20
    return outcome


def _run_live(part: Part, folder: Path) -> Outcome:
    """Watch fifty files that grow by twenty lines a second; no line may be missed.

    How long a line takes is a budget of `bench watch`, and depends on what else the machine does.
    """
    bench_watch.DURATION_S = float(part.size)
    result = bench_watch.measure_watch(folder / "home", 0)
    outcome = Outcome(result.lines, [], {"live lines": result.stored})
    outcome.counts["MB of memory while they grew"] = result.memory >> 20
    outcome.counts["% of a core"] = round(100 * result.busy)
    outcome.counts["s until the last line was stored"] = round(result.behind_s)
    if result.stored != result.lines or result.lines != part.size * 20 * 50:
        outcome.violations.append(f"{result.lines:,} lines written, {result.stored:,} stored")
    return outcome


def _parts(scale: float) -> list[Part]:
    return [
        Part(SESSIONS, 1, max(round(10_000 * scale), 10)),
        Part(ROLLOUT, 1, max(round(1000 * scale), 5)),
        Part(LIVE, 1, max(round(3600 * scale), 5)),
    ]


def _run(part: Part, folder: Path) -> Outcome:
    return {SESSIONS: _run_sessions, ROLLOUT: _run_rollout, LIVE: _run_live}[part.what](
        part, folder
    )


TRIALS = (
    Trial(
        "T13",
        "load: many sessions, live files, one huge rollout",
        "sessions and lines",
        "10,000 sessions, 20 GB, 50 live files for an hour, 1 GB rollout",
        _parts,
        _run,
        is_exclusive=True,
        code=(
            "thence.cli",
            "thence.cli.sweep",
            "thence.cli.gc",
            "thence.memory.*",
            "thence.agents.*",
        ),
    ),
)
