"""Sessions of Hermes Agent: rows of `state.db`, one database per profile.

Only sessions of a terminal, an editor or a schedule are read, and what these delegated: as a chat
gateway Hermes keeps the talk of other people in the same tables. `.env`, `auth.json`, settings,
dumps of requests and the tables of the gateway are never looked at. Hermes deletes ended sessions
only when it is told to, and does not list running ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from thence.agents import Batch, Cursor, Source
from thence.agents.records import QuietAgent, roots_of, subfolders
from thence.agents.row_sources import RowSources


class Hermes(RowSources, QuietAgent):
    """The reader of Hermes Agent's sessions."""

    name = "hermes"
    looks_for = "state.db"
    pattern = "state.db"
    keys = ("messages", "usage")

    def roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """Return the folder that the variable names, and the usual one, with their profiles."""
        above = roots_of(home, env, "HERMES_HOME", ".hermes")
        return [root for folder in above for root in (folder, *subfolders(folder / "profiles"))]

    def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
        """Read what is new since the cursor."""
        from thence.agents.hermes.rows import open_log
        from thence.agents.sqlite_rows import read

        return read(source, cursor, open_log)

    def versions(self, path: str) -> Iterator[tuple[str, str, float, int]]:
        """Yield id, version, time and size of the sessions in a database."""
        from thence.agents.hermes.rows import versions
        from thence.agents.sqlite_rows import query

        return iter(query(path, versions))
