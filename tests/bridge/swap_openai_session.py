"""pytest plugin: openai-agents' own tests with our session in place of SQLiteSession."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import agents
import agents.memory

from thence.bridge.openai_agents import JournalSession
from thence.journal import Journal


class SwappedSession(JournalSession):
    """Ours, made with the words of theirs."""

    def __init__(
        self,
        session_id: str,
        db_path: str | Path = ":memory:",
        sessions_table: str = "agent_sessions",
        messages_table: str = "agent_messages",
        session_settings: Any = None,
    ) -> None:
        enabled = str(db_path) != ":memory:"
        journal = Journal(f"{db_path}.journal", enabled=enabled)
        super().__init__(session_id, journal, session_settings=session_settings)


for module in (agents, agents.memory):
    module.SQLiteSession = SwappedSession
