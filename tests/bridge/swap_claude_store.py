"""pytest plugin: claude-agent-sdk's own tests with our store in place of InMemorySessionStore.

The store works as it is shipped, with its thread. Some of their tests count how often the loop
goes round and give a disk no time, so that the homes lie in memory where there is any. With the
address of a database in THENCE_STORE it is the shared store, each one a tenant of its own.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import claude_agent_sdk

from thence.bridge.claude_agent_sdk import (
    Front,
    JournalSessionStore,
    TranscriptKey,
    TranscriptStore,
)
from thence.bridge.claude_shared import SharedSessionStore
from thence.journal import Journal

MEMORY = Path("/dev/shm")

HOMES = tempfile.TemporaryDirectory(
    prefix="thence-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None
)
"""All homes, removed at the end: their tests watch who removes folders meanwhile."""
SHARED = os.environ.get("THENCE_STORE")
NUMBERS = count()


def made() -> Front:
    """Return an empty store."""
    if SHARED:
        return SharedSessionStore(f"{SHARED}&tenant=t{next(NUMBERS)}")
    return JournalSessionStore(Journal(tempfile.mkdtemp(dir=HOMES.name)))


class SwappedStore(Front):
    """Ours, made without a word, as theirs is: each in a place of its own."""

    def __init__(self) -> None:
        self._transcripts: TranscriptStore
        super().__init__(made()._transcripts)
        self._projects: set[str] = set()

    async def append(self, key: Mapping[str, Any], entries: list[Any]) -> None:
        """Note the project, for `size`."""
        self._projects.add(key["project_key"])
        await super().append(key, entries)

    def get_entries(self, key: Mapping[str, Any]) -> list[Any]:
        """What their class offers to tests."""
        return self._transcripts.load(TranscriptKey.of(key)) or []

    @property
    def size(self) -> int:
        """The same."""
        return sum(len(self._transcripts.sessions(project)) for project in self._projects)

    def clear(self) -> None:
        """The same."""
        for project in self._projects:
            for listed in self._transcripts.sessions(project):
                self._transcripts.delete(TranscriptKey(project, listed["session_id"]))


claude_agent_sdk.InMemorySessionStore = SwappedStore
