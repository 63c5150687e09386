"""Sessions of goose: rows of `sessions/sessions.db` in its data folder.

Settings, secrets and the logs of requests are never opened, nor are the one-file sessions of
versions before 1.10, which the client takes over into its database. goose deletes nothing by age
and does not list running sessions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from thence.agents import Batch, Cursor, Source
from thence.agents.records import QuietAgent
from thence.agents.row_sources import RowSources

_LINUX = ".local/share/goose"
_MAC = "Library/Application Support/Block.goose"


class Goose(RowSources, QuietAgent):
    """The reader of goose's sessions."""

    name = "goose"
    looks_for = "sessions/sessions.db"
    pattern = "sessions/sessions.db"
    keys = ("messages", "usage")

    def roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """Return the folder that a variable moved, and the usual ones."""
        moved, data = env.get("GOOSE_PATH_ROOT"), env.get("XDG_DATA_HOME")
        out = [Path(moved).expanduser() / "data"] if moved else []
        out += [Path(data).expanduser() / "goose"] if data else []
        return list(dict.fromkeys([*out, home / _LINUX, home / _MAC]))

    def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
        """Read what is new since the cursor."""
        from thence.agents.goose.rows import open_log
        from thence.agents.sqlite_rows import read

        return read(source, cursor, open_log)

    def versions(self, path: str) -> Iterator[tuple[str, str, float, int]]:
        """Yield id, version, time and size of the sessions in a database."""
        from thence.agents.goose.rows import versions
        from thence.agents.sqlite_rows import query

        return iter(query(path, versions))
