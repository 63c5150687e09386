"""Sessions of OpenCode: rows of one SQLite file.

`opencode.db` in the data folder holds all sessions; other channels of the client have files of
their own. Messages and their parts are rows that the client updates and deletes; `event` has every
version of them and only grows, so that it is what is read. Sessions that are older than that table
are read from the rows themselves. The tables of accounts and credentials, and `auth.json`, are
never looked at. OpenCode deletes nothing by age and does not list running sessions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from thence.agents import Batch, Cursor, Source
from thence.agents.records import QuietAgent
from thence.agents.row_sources import RowSources


class OpenCode(RowSources, QuietAgent):
    """The reader of OpenCode's sessions."""

    name = "opencode"
    looks_for = "opencode.db"
    pattern = "opencode*.db"
    folder = ".local/share/opencode"
    variable = "OPENCODE_DB"
    keys = ("events",)

    def roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """Return the folder of a database that is named, one that was moved, and the usual one."""
        out: list[Path] = []
        data = env.get("XDG_DATA_HOME")
        above = [Path(data).expanduser()] if data else []
        named = env.get(self.variable, "")
        if Path(named).is_absolute():
            out.append(Path(named).parent)
        usual = Path(self.folder)
        out += [*(folder / usual.name for folder in above), home / usual]
        return list(dict.fromkeys(out))

    def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
        """Read what is new since the cursor."""
        from thence.agents.opencode.rows import OpenCodeLog
        from thence.agents.sqlite_rows import read

        return read(source, cursor, OpenCodeLog)

    def versions(self, path: str) -> Iterator[tuple[str, str, float, int]]:
        """Yield id, version, time and size of the sessions in a database."""
        from thence.agents.opencode.rows import versions
        from thence.agents.sqlite_rows import query

        return iter(query(path, versions))
