"""What made-up sessions are written with: a clock, ids that follow from names, lines.

Each agent's `sample` writes what its client would have written; `thence demo` shows it. All of it
is invented: a small library of tide tables, and people who mend it. Ids follow from names and times
from the moment that is given, so that two runs of one moment write the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

Record = dict[str, Any]


class Machine(NamedTuple):
    """Where an agent of the made-up machine works."""

    home: Path
    """The folder in which the agent keeps its sessions."""
    work: Path
    """The folder of the projects."""


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


def token() -> str:
    """Give something that looks like a secret and opens nothing."""
    import hashlib
    from string import ascii_letters, digits

    letters = ascii_letters + digits
    drawn = hashlib.sha256(b"made up, opens nothing").digest() * 2
    return "ghp_" + "".join(letters[byte % len(letters)] for byte in drawn[:36])
