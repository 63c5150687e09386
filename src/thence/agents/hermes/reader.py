"""Sessions of Hermes Agent: rows of `state.db`, one database per profile.

Only sessions of a terminal, an editor or a schedule are read, and what these delegated: as a chat
gateway Hermes keeps the talk of other people in the same tables. `.env`, `auth.json`, settings,
dumps of requests and the tables of the gateway are never looked at. Hermes deletes ended sessions
only when it is told to. It lists open ones in `runtime/active_sessions.json`, if its settings limit
how many there may be (`max_concurrent_sessions`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from thence.agents import Live, files
from thence.agents.records import QuietAgent, is_running, moment, objects, subfolders, text
from thence.agents.row_sources import RowSources

ACTIVE = "runtime/active_sessions.json"


class Hermes(RowSources, QuietAgent):
    """The reader of Hermes Agent's sessions."""

    name = "hermes"
    looks_for = "state.db"
    pattern = "state.db"
    keys = ("messages", "usage")
    opens = "thence.agents.hermes.rows:open_log"

    def roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """Return the folder that the variable names, and the usual one, with their profiles."""
        above = super().roots(home, env)
        return [root for folder in above for root in (folder, *subfolders(folder / "profiles"))]

    def live(self, root: Path) -> Iterator[Live]:
        """Yield the sessions that Hermes lists and whose process runs."""
        for entry in objects(files.document(f"{root}/{ACTIVE}").get("entries")):
            session, since = text(entry.get("session_id")), moment(entry.get("started_at"))
            if session and is_running(pid := entry.get("pid"), since):
                yield Live(session, pid, "running", since=since)
