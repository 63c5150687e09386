"""The time of commands, compared with starting Python, with 10,000 sessions in the store.

Budgets are in milliseconds for a machine that starts Python in 11 ms, and are checked as ratios:
help 60, a list and the home screen 150, the hook 30 more than starting Python, the brief of a new
session 50, in a repository with a third of all sessions and in a folder without any. The times on
this machine, and what they mean for such a machine, are printed. The disk has the sessions of a
month.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from bench.measure import medians, verdict
from thence.agents import Cursor, Mark
from thence.cli import launcher
from thence.cli.hook_settings import program
from thence.format.derived_events import Spent
from thence.format.normal import Cost, Session
from thence.format.records import Usage, time_text
from thence.memory.derivation import DIGEST_VERSION
from thence.memory.sqlite import Sqlite
from thence.memory.store import DigestRecord, SessionChange, SessionRow, Spend

STORED_SESSIONS = 10_000
FILES_ON_DISK = 2_000
REFERENCE_PYTHON_MS = 11
"""Time to start Python on the machine that the budgets were written for."""
HOOK = "hook"
BRIEFS = {"brief": "/home/dev/tidepool", "brief without sessions": "/home/dev/new"}
BUDGETS_MS = {
    "--help": 60,
    "ls": 150,
    "": 150,
    HOOK: REFERENCE_PYTHON_MS + 30,
    **dict.fromkeys(BRIEFS, 50),
}
TITLES = {"--help": "thence --help", "ls": "thence ls", "": "thence"}
HOOK_INPUT = (
    '{"session_id": "7f3a91c2-0000-4000-8000-000000000001", "hook_event_name": "Stop",'
    ' "transcript_path": "/home/dev/.claude/projects/p/7f3a.jsonl", "cwd": "/home/dev/p"}'
)
"""What Claude Code sends to a hook."""


def fill_store(path: Path) -> None:
    """Write rows of synthetic sessions, as after half a year of heavy use."""
    rng = random.Random(1)
    store = Sqlite(str(path))
    now = datetime.now(UTC)
    for start in range(0, STORED_SESSIONS, 1000):
        changes = [_change(rng, number, now) for number in range(start, start + 1000)]
        store.write(changes, [_digest(change.row) for change in changes])
    store.close()


def _change(rng: random.Random, number: int, now: datetime) -> SessionChange:
    agent = rng.choice(["claude"] * 6 + ["codex"] * 3 + ["grok"])
    name = str(uuid.UUID(int=rng.getrandbits(128), version=4))
    ended = now - timedelta(hours=rng.expovariate(1 / 3000))
    source = f"/home/dev/.claude/projects/-home-dev-p/{name}.jsonl"
    usage = Usage(1000, 2000, 30_000, 40_000)
    live, dead = rng.randrange(3 * 10**10), rng.choice([0, 0, 10**9])
    session = Session(
        f"{agent}:{name}",
        agent,
        name,
        cwd=f"/home/dev/{rng.choice(['tidepool', 'lumen', 'quayside'])}",
        git_branch="main",
        model="claude-opus-4-5",
        started_at=time_text(ended.timestamp() - 3600),
        ended_at=time_text(ended.timestamp()),
        cost=Cost(1, 2, 3, 100.0, 5, 1),
        source_path=source,
        source_bytes=rng.randrange(10**6),
    )
    row = SessionRow(
        session,
        title=f"Hourly windows lose an hour when the clock changes {number}",
        turn="done",
        files=(source,),
        spent=Spent(usage, responses=30),
        ticks={"live": live, "dead": dead},
        states={"live": 100, "dead": 3},
        events=103,
        raw_bytes=50_000,
        change=1,
    )
    day = (session.ended_at or "")[:10]
    spend = [Spend(day, "claude-opus-4-5", "live", usage, 30, live)]
    if dead:
        spend.append(Spend(day, "claude-opus-4-5", "dead", usage, 3, dead))
    return SessionChange(row, Cursor({"main": Mark(1, number, 1000, 1)}), spend=spend)


def _digest(row: SessionRow) -> DigestRecord:
    session = row.session
    digest = {
        "version": DIGEST_VERSION,
        "agent": session.flavor,
        "outcome": "success",
        "confidence": 1.0,
        "reasons": ["the last test run passed"],
        "title": row.title,
        "ended_at": session.ended_at,
        "todos": [{"text": "Test Lord Howe", "status": "pending", "origin": "tool"}],
        "snippets": {"first_prompt": row.title, "last_reply": "The table is right now."},
    }
    return DigestRecord(session.session_uid, 1, digest, [])


def write_logs(home: Path) -> None:
    """Write as many files as Claude Code does in a month."""
    rng = random.Random(2)
    for number in range(FILES_ON_DISK):
        folder = home / ".claude" / "projects" / f"-home-dev-p{number % 40}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{uuid.UUID(int=rng.getrandbits(128), version=4)}.jsonl"
        path.write_text("{}\n", encoding="utf-8")
        then = time.time() - rng.random() * 22 * 86_400
        os.utime(path, (then, then))


def main() -> int:
    """Measure and print; return how many budgets were missed."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        fill_store(home / ".thence" / "memory" / "thence.db")
        write_logs(home)
        env = {"PATH": os.environ["PATH"], "HOME": folder, "PYTHONPYCACHEPREFIX": f"{folder}/pyc"}

        def run(*arguments: str, program: str = sys.executable, stdin: str = HOOK_INPUT) -> None:
            subprocess.run(
                [program, *arguments],
                env=env,
                check=True,
                capture_output=True,
                input=stdin,
                text=True,
            )

        entry = "from thence.__main__ import main; main()"
        operations: dict[str, Callable[[], object]] = {
            operation: partial(run, "-c", entry, *operation.split())
            for operation in ("--help", "ls", "")
        }
        launcher.write(home / ".thence")
        launcher_path, *arguments = program("claude", home / ".thence")
        operations[HOOK] = partial(run, *arguments, program=launcher_path)
        for operation, project in BRIEFS.items():
            brief_input = json.dumps({"cwd": project, "session_id": "new"})
            operations[operation] = partial(
                run, "brief", "--hook", "claude", program=launcher_path, stdin=brief_input
            )
        for work in operations.values():
            work()  # compiles the modules
        times = medians({"bare": partial(run, "-c", "pass"), **operations}, rounds=11)
        assert list((home / ".thence" / "queue").iterdir()), "the hook wrote nothing"
    python = times["bare"]
    print(f"cli: starting Python takes {python * 1000:.0f} ms")
    missed = 0
    for operation, budget in BUDGETS_MS.items():
        name = TITLES.get(operation, operation)
        elapsed = times[operation]
        scaled = REFERENCE_PYTHON_MS * elapsed / python
        print(f"cli: {name}: {elapsed * 1000:.0f} ms, scaled {scaled:.0f} of {budget} ms")
        limit = round(budget / REFERENCE_PYTHON_MS, 1)
        missed += verdict(f"{name} / bare Python", elapsed / python, limit)
    return missed
