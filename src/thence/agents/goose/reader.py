"""Sessions of goose: rows of `sessions/sessions.db` in its data folder.

Settings, secrets and the logs of requests are never opened, nor are the one-file sessions of
versions before 1.10, which the client takes over into its database. goose deletes nothing by age
and does not list running sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from thence.agents.records import QuietAgent
from thence.agents.row_sources import RowSources


class Goose(RowSources, QuietAgent):
    """The reader of goose's sessions."""

    name = "goose"
    looks_for = "sessions/sessions.db"
    pattern = "sessions/sessions.db"
    keys = ("messages", "usage")
    opens = "thence.agents.goose.rows:open_log"

    def roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """Return the folder that a variable moved, and the usual ones."""
        moved = env.get("GOOSE_PATH_ROOT")
        own = [Path(moved).expanduser() / "data"] if moved else []
        return list(dict.fromkeys([*own, *super().roots(home, env)]))
