"""Made-up sessions of all agents, written the way the agents write them, for a first look.

All of it is invented: a small library of tide tables, and people who mend it. The sessions hold
what real ones hold: forks, rewinds, subagents, a compaction, a crash, failed tests, a secret that
was printed. Ids follow from names and times from the moment that is given, so that two runs of
one moment write the same bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

Record = dict[str, Any]


class Homes(NamedTuple):
    """Where each agent of the made-up machine keeps its sessions."""

    claude: Path
    codex: Path
    grok: Path
    thence: Path
    work: Path
    """The folder of the projects."""

    @property
    def env(self) -> dict[str, str]:
        """The variables that lead every program there."""
        return {
            "CLAUDE_CONFIG_DIR": str(self.claude),
            "CODEX_HOME": str(self.codex),
            "GROK_HOME": str(self.grok),
            "THENCE_HOME": str(self.thence),
        }


def homes(folder: Path) -> Homes:
    """Lay a machine out below a folder."""
    claude, codex, grok, ours = (folder / f".{n}" for n in ("claude", "codex", "grok", "thence"))
    return Homes(claude, codex, grok, ours, folder / "work")


def write(folder: Path, now: datetime) -> Homes:
    """Write all sessions below a folder, as of a moment."""
    from thence.cli.madeup import claude, codex, grok, own

    places = homes(folder)
    for project in ("tidepool", "harbour-books", "lumen"):
        (places.work / project).mkdir(parents=True, exist_ok=True)
    for module in (claude, codex, grok, own):
        module.write(places, now)
    return places


class Clock:
    """Time in a made-up session: it goes on with every record."""

    def __init__(self, start: datetime) -> None:
        self.now = start.astimezone(UTC)

    def after(self, seconds: float) -> datetime:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)
        return self.now

    @property
    def text(self) -> str:
        """Give the moment the way agents write it."""
        return self.now.strftime("%Y-%m-%dT%H:%M:%S") + f".{self.now.microsecond // 1000:03}Z"

    @property
    def millis(self) -> int:
        """Give it as a number."""
        return int(self.now.timestamp() * 1000)


def made_id(name: str) -> str:
    """Give the id that goes with a name."""
    made = uuid5(NAMESPACE_URL, f"thence:made-up:{name}").hex
    return f"{made[:8]}-{made[8:12]}-4{made[13:16]}-a{made[17:20]}-{made[20:]}"


def timed_id(name: str, at: datetime) -> str:
    """Give an id that begins with its time."""
    start, rest = f"{int(at.timestamp() * 1000):012x}", made_id(name)
    return f"{start[:8]}-{start[8:]}-7{rest[15:18]}-{rest[19:]}"


def put(path: Path, records: Iterable[Record], *, torn: bool = False) -> None:
    """Write records as lines; a torn file ends in the middle of its last one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(r, ensure_ascii=False, separators=(",", ":")) + "\n" for r in records)
    body = text.encode()
    path.write_bytes(body[:-40] if torn else body)


def folder_name(cwd: Path) -> str:
    """Name the folder of a project the way Claude Code does."""
    return re.sub(r"[^A-Za-z0-9]", "-", str(cwd))


def token() -> str:
    """Give something that looks like a secret and opens nothing."""
    import hashlib
    from string import ascii_letters, digits

    letters = ascii_letters + digits
    drawn = hashlib.sha256(b"made up, opens nothing").digest() * 2
    return "ghp_" + "".join(letters[byte % len(letters)] for byte in drawn[:36])
