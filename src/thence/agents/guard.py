"""An adapter of another package, guarded: what it raises costs its own sessions, never a command.

A method that fails gives what a machine without that agent would, and the package is noted with
the reason (`packages.problems`). Only `read` raises, a NotReadable: a sweep tells of that source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from thence.agents.packages import ForeignFailure, foreign, note_problem
from thence.errors import NotReadable

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from thence.agents import Adapter, AgentPrompt, Batch, Cursor, Live, Source

_T = TypeVar("_T")


class GuardedAdapter:
    """What an `Adapter` is, whatever the adapter behind it does."""

    def __init__(self, adapter: Adapter, point: EntryPoint) -> None:
        self.name = adapter.name
        self._adapter = adapter
        self._point = point

    @property
    def looks_for(self) -> str | None:
        """What the adapter takes for a session, in words."""
        words = getattr(self._adapter, "looks_for", None)
        return words if isinstance(words, str) else None

    def roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """Return the folders that the adapter names; none where it fails."""
        return self._ask(lambda: [Path(path) for path in self._adapter.roots(home, env)], [])

    def find(self, root: Path) -> Iterator[Source]:
        """Yield the sessions that the adapter finds, as far as it comes."""
        from thence.agents import Source

        return self._each(lambda: self._adapter.find(root), Source)

    def at(self, path: Path) -> Source | None:
        """Return the session that a path belongs to; None where the adapter fails."""
        from thence.agents import Source

        source: Source | None = self._ask(
            lambda: _check_type(self._adapter.at(path), Source | None), None
        )
        return source

    def sources_at(self, path: Path) -> list[Source]:
        """Return all sessions that a path belongs to; none where the adapter fails."""
        from thence.agents import Source
        from thence.agents.row_sources import sources_at

        return list(self._each(lambda: iter(sources_at(self._adapter, path)), Source))

    def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
        """Return what the adapter reads; NotReadable where it fails."""
        from thence.agents import Batch

        try:
            with foreign():
                batch = self._adapter.read(source, cursor)
                if not isinstance(batch, Batch):
                    raise TypeError(f"read gave no Batch but {type(batch).__name__}")
                return batch
        except ForeignFailure as error:
            note_problem(self._point, str(error))
            raise NotReadable(
                f"the adapter {self.name} failed: {error}", hint="update or uninstall its package"
            ) from error

    def live(self, root: Path) -> Iterator[Live]:
        """Yield the sessions that the adapter calls running, as far as it comes."""
        from thence.agents import Live

        return self._each(lambda: self._adapter.live(root), Live)

    def prompts(self, root: Path) -> Iterator[AgentPrompt]:
        """Yield the prompts that the adapter knows, as far as it comes."""
        from thence.agents import AgentPrompt

        return self._each(lambda: self._adapter.prompts(root), AgentPrompt)

    def keeps_days(self, root: Path) -> int | None:
        """Return after how many days the agent deletes a session; None where the adapter fails."""
        days: int | None = self._ask(
            lambda: _check_type(self._adapter.keeps_days(root), int | None), None
        )
        return days

    def _ask(self, question: Callable[[], _T], otherwise: _T) -> _T:
        try:
            with foreign():
                return question()
        except ForeignFailure as error:
            note_problem(self._point, str(error))
            return otherwise

    def _each(self, question: Callable[[], Iterable[Any]], kind: type[_T]) -> Iterator[_T]:
        """Yield what an iterator of the adapter gives, each checked, until it ends or fails."""
        items: Iterator[Any] = self._ask(lambda: iter(question()), iter(()))
        nothing: list[_T] = []
        while some := self._ask(
            lambda: [_check_type(it, kind) for it in islice(items, 1)], nothing
        ):
            yield from some


def _check_type(value: Any, kind: Any) -> Any:
    """Return a value if its fields are of the types that they should be; raise if not."""
    return msgspec.convert(msgspec.to_builtins(value), kind)
