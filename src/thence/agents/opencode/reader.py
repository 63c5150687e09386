"""Sessions of OpenCode: rows of one SQLite file.

`opencode.db` in the data folder holds all sessions; other channels of the client have files of
their own. Messages and their parts are rows that the client updates and deletes; `event` has every
version of them and only grows, so that it is what is read. Sessions that are older than that table
are read from the rows themselves. The tables of accounts and credentials, and `auth.json`, are
never looked at. OpenCode deletes nothing by age and does not list running sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from thence.agents.records import QuietAgent
from thence.agents.row_sources import RowSources


class OpenCode(RowSources, QuietAgent):
    """The reader of OpenCode's sessions."""

    name = "opencode"
    looks_for = "opencode.db"
    pattern = "opencode*.db"
    variable = "OPENCODE_DB"
    keys = ("events",)
    opens = "thence.agents.opencode.rows:OpenCodeLog"

    def roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """Return the folder of a database that is named, one that was moved, and the usual one."""
        named = Path(env.get(self.variable, ""))
        own = [named.parent] if named.is_absolute() else []
        return list(dict.fromkeys([*own, *super().roots(home, env)]))
