"""Sessions of claude."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from thence.adapters import Batch, Cursor, Live, Prompt, Source


class Claude:
    """The reader."""

    name = "claude"

    def roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        raise NotImplementedError

    def find(self, root: Path) -> Iterator[Source]:
        raise NotImplementedError

    def at(self, path: Path) -> Source | None:
        return None

    def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
        raise NotImplementedError

    def live(self, root: Path) -> Iterator[Live]:
        return iter(())

    def prompts(self, root: Path) -> Iterator[Prompt]:
        return iter(())

    def keeps_days(self, root: Path) -> int | None:
        return None
