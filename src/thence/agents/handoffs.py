"""How a history of another agent becomes a session of this one: what its writer gets and gives.

A writer is pure: it takes a history that its agent can take, and returns files. Who hands over
decides which history, writes the files and reports (`thence.bridge.handoff`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from thence.format.records import JSON


class HandoffHistory(msgspec.Struct, frozen=True):
    """A history on its way to one agent: all that its writer needs to know."""

    session: str
    """The new session's id."""
    messages: list[JSON]
    cwd: str
    at: datetime
    provenance: dict[str, JSON]
    title: str | None = None
    model: str | None = None
    git_branch: str | None = None
    provider: str | None = None
    """The model provider of the target's settings, where its sessions name one."""
    project: str | None = None
    """The target's own name for the folder, where it gives folders names."""

    def time(self, after: int) -> str:
        """Return a time so many milliseconds after this one, as every agent writes it."""
        moment = self.at + timedelta(milliseconds=after)
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


class HandoffSettings(msgspec.Struct, frozen=True):
    """What of an agent's settings a new session must name."""

    model: str | None = None
    provider: str | None = None
    projects: dict[str, str] = {}
    """The agent's own names for folders, by their paths."""


class HandoffWriter(msgspec.Struct, frozen=True):
    """What writes a session for one agent, and what of a history the agent takes."""

    files: Callable[[HandoffHistory], dict[str, list[JSON]]]
    """Returns the records of each file by its place below the agent's folder. One that ends in
    `.jsonl` is a log of lines; any other has a single record, written as JSON."""
    settings: Callable[[Path], HandoffSettings] | None = None
    """Reads the settings in the agent's folder."""
    needs_uuid4: bool = False
    """The client takes no id of a later version for one of a session."""
    is_folder: bool = False
    """A session is a folder of its own."""
    session_id: Callable[[str], str] | None = None
    """Returns an id as the client makes them, of a UUID."""
    accept: Callable[[str], list[str]] | None = None
    """Returns the command of the client that takes the one file in, by its path: for a client whose
    sessions are rows of a database that nobody else may write. The file is then removed."""
    takes: tuple[str, ...] = ("image",)
    """Kinds of blocks besides texts, calls and results that it takes."""
    takes_signed_thoughts: bool = False
    """It takes thoughts back that its own model has signed."""
    takes_failures: bool = False
    """It knows results that are marked as failed."""
