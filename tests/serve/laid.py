"""Machines with many sessions: real ones, laid out as the clients lay them, or made-up ones.

Sources are copied, never changed.
"""

from __future__ import annotations

import random
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.corpus import Session
from tests.serve.conftest import House
from thence.agents.claude.sample import SampleTranscript

LARGE_BYTES = 40_000_000


def real(shared: Path, folder: Path, each: int = 1) -> House:
    """Return a machine with the real sessions of all clients; it is not swept yet.

    Of the many public logs it has every one, or each so many-th.
    """
    (folder / ".thence").mkdir(parents=True)
    copy_real(shared, folder, each)
    return House(folder)


def copy_real(shared: Path, folder: Path, each: int = 1) -> None:
    """Copy the real sessions of all clients into a home, as the clients lay them."""
    data = shared / "data"
    for home in sorted(data.glob("claude-code/*/*/claude")):
        _merge(home, folder / ".claude")
    for home in sorted(data.glob("codex/*/codex_home")):
        _merge(home, folder / ".codex")
    for home in sorted(data.glob("grok/*/grok_home")):
        _merge(home, folder / ".grok")
    for home in sorted(data.glob("agents/*/*/home")):
        _merge(home, folder)
    for log in sorted(data.glob("public/claude/**/*.jsonl"))[::each]:
        place = folder / ".claude" / "projects" / f"-public-{log.parent.name}"
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(log, place / log.name)
    for home in sorted(data.glob("public/codex/*/sessions")):
        _merge(home, folder / ".codex" / "sessions")


def many(folder: Path, number: int, large_bytes: int = LARGE_BYTES) -> House:
    """Return a machine with many small made-up sessions and a large one; it is not swept yet."""
    (folder / ".thence").mkdir(parents=True)
    now = datetime.now(UTC)
    for at in range(number):
        work = folder / "work" / f"project-{at % 40:02}"
        log = SampleTranscript(f"small {at}", work, now - timedelta(minutes=20 * at + 5))
        log.prompt(f"Mend the {WORDS[at % len(WORDS)]} number {at}")
        log.text(f"The {WORDS[at % 7]} of step {at} is mended.")
        log.save(folder / ".claude")
    large = Session(random.Random(7), large_bytes)
    path = folder / ".claude" / "projects" / "-home-dev-large" / f"{large.id}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.writelines(large.lines())
    return House(folder)


WORDS = ("harbour", "lantern", "gauge", "rudder", "compass", "anchor", "beacon", "ledger", "sluice")


def _merge(source: Path, into: Path) -> None:
    """Copy a home into another; a file that is there already stays."""
    for path in sorted(source.rglob("*")):
        to = into / path.relative_to(source)
        if path.is_file() and not to.exists():
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, to)
