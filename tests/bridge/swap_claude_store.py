"""pytest plugin: claude-agent-sdk's own tests with our store in place of InMemorySessionStore.

Some of their tests count how often the loop goes round and give no time to a disk. So our store
works on the loop's own thread here, unless THENCE_THREAD=1 leaves it its worker: the same code,
and the difference is told in docs/bridges.md.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import claude_agent_sdk

from thence.bridge.claude_agent_sdk import JournalSessionStore, _Key
from thence.bridge.worker import Worker
from thence.journal import Journal

T = TypeVar("T")

HOMES = tempfile.TemporaryDirectory(prefix="thence-")
"""All homes, removed at the end: their tests watch who removes folders meanwhile."""


class AtOnce(Worker):
    """A worker that makes the loop wait."""

    async def run(self, call: Callable[..., T], *args: Any, **options: Any) -> T:
        """Do it at once."""
        return call(*args, **options)


class SwappedStore(JournalSessionStore):
    """Ours, made without a word, as theirs is: each in a home of its own."""

    def __init__(self) -> None:
        super().__init__(Journal(tempfile.mkdtemp(dir=HOMES.name)))
        self._projects: set[str] = set()
        if os.environ.get("THENCE_THREAD") != "1":
            self._worker = AtOnce()

    async def append(self, key: Mapping[str, Any], entries: list[Any]) -> None:
        """Note the project, for `size`."""
        self._projects.add(key["project_key"])
        await super().append(key, entries)

    def get_entries(self, key: Mapping[str, Any]) -> list[Any]:
        """What their class offers to tests."""
        return self._desk.load(_Key.of(key)) or []

    @property
    def size(self) -> int:
        """The same."""
        return sum(len(self._desk.sessions(project)) for project in self._projects)

    def clear(self) -> None:
        """The same."""
        for project in self._projects:
            for listed in self._desk.sessions(project):
                self._desk.delete(_Key(project, listed["session_id"]))


claude_agent_sdk.InMemorySessionStore = SwappedStore
