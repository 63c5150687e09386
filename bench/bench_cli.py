"""Commands from start to end against bare Python, with 10,000 sessions in the store.

Budgets are milliseconds where bare Python takes 11, told as ratios: help 60, a list and the home
screen 150, the hook 30 more than bare Python, the brief of a new session 50, in a repository with
a third of all sessions and in a folder without any. Beside each stands what it took here, and what
that is on such a machine. On disk lie as many sessions as an agent keeps for a month.
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

KEPT = 10_000
ON_DISK = 2_000
BARE = 11
"""Milliseconds of bare Python on the machine the budgets were written for."""
HOOK = "hook"
BRIEFS = {"brief": "/home/dev/tidepool", "brief of nothing": "/home/dev/new"}
BUDGETS = {"--help": 60, "ls": 150, "": 150, HOOK: BARE + 30, **dict.fromkeys(BRIEFS, 50)}
SAID = (
    '{"session_id": "7f3a91c2-0000-4000-8000-000000000001", "hook_event_name": "Stop",'
    ' "transcript_path": "/home/dev/.claude/projects/p/7f3a.jsonl", "cwd": "/home/dev/p"}'
)
"""What Claude Code tells a hook."""


def fill(path: Path) -> None:
    """Write rows of made-up sessions: what half a year of heavy use leaves."""
    dice = random.Random(1)
    store = Sqlite(str(path))
    now = datetime.now(UTC)
    for start in range(0, KEPT, 1000):
        changes = [_change(dice, number, now) for number in range(start, start + 1000)]
        store.write(changes, [_digest(change.row) for change in changes])
    store.close()


def _change(dice: random.Random, number: int, now: datetime) -> SessionChange:
    agent = dice.choice(["claude"] * 6 + ["codex"] * 3 + ["grok"])
    name = str(uuid.UUID(int=dice.getrandbits(128), version=4))
    ended = now - timedelta(hours=dice.expovariate(1 / 3000))
    source = f"/home/dev/.claude/projects/-home-dev-p/{name}.jsonl"
    usage = Usage(1000, 2000, 30_000, 40_000)
    live, dead = dice.randrange(3 * 10**10), dice.choice([0, 0, 10**9])
    session = Session(
        f"{agent}:{name}",
        agent,
        name,
        cwd=f"/home/dev/{dice.choice(['tidepool', 'lumen', 'quayside'])}",
        git_branch="main",
        model="claude-opus-4-5",
        started_at=time_text(ended.timestamp() - 3600),
        ended_at=time_text(ended.timestamp()),
        cost=Cost(1, 2, 3, 100.0, 5, 1),
        source_path=source,
        source_bytes=dice.randrange(10**6),
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


def lay_out(home: Path) -> None:
    """Write files such as Claude Code leaves in a month."""
    dice = random.Random(2)
    for number in range(ON_DISK):
        folder = home / ".claude" / "projects" / f"-home-dev-p{number % 40}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{uuid.UUID(int=dice.getrandbits(128), version=4)}.jsonl"
        path.write_text("{}\n", encoding="utf-8")
        then = time.time() - dice.random() * 22 * 86_400
        os.utime(path, (then, then))


def main() -> int:
    """Measure; 1 for each budget that was missed."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        fill(home / ".thence" / "memory" / "thence.db")
        lay_out(home)
        env = {"PATH": os.environ["PATH"], "HOME": folder, "PYTHONPYCACHEPREFIX": f"{folder}/pyc"}

        def run(*arguments: str, program: str = sys.executable, said: str = SAID) -> None:
            subprocess.run(
                [program, *arguments],
                env=env,
                check=True,
                capture_output=True,
                input=said,
                text=True,
            )

        entry = "from thence.cli import main; main()"
        works: dict[str, Callable[[], object]] = {
            name: partial(run, "-c", entry, *name.split()) for name in ("--help", "ls", "")
        }
        launcher.write(home / ".thence")
        starter, *words = program("claude", home / ".thence")
        works[HOOK] = partial(run, *words, program=starter)
        for name, project in BRIEFS.items():
            asked = json.dumps({"cwd": project, "session_id": "new"})
            works[name] = partial(run, "brief", "--hook", "claude", program=starter, said=asked)
        for work in works.values():
            work()  # compiled once
        took = medians({"bare": partial(run, "-c", "pass"), **works}, rounds=11)
        assert list((home / ".thence" / "queue").iterdir()), "the hook left nothing"
    print(f"bare Python {took['bare'] * 1000:.0f} ms")
    return sum(
        verdict(
            f"{name if name in (HOOK, *BRIEFS) else f'thence {name}'.rstrip()},"
            f" {took[name] * 1000:.0f} ms here,"
            f" {BARE * took[name] / took['bare']:.0f} of {budget} ms",
            took[name] / took["bare"],
            round(budget / BARE, 1),
        )
        for name, budget in BUDGETS.items()
    )
