"""A session of another agent for Kilo: the document that OpenCode takes, and its own command."""

from __future__ import annotations

from typing import Final

from thence.agents.handoffs import HandoffWriter
from thence.agents.opencode.handoff import files, import_command, session_id, settings_of

WRITER: Final = HandoffWriter(
    files,
    settings=settings_of(".config/kilo/kilo.json", "kilo*.db"),
    session_id=session_id,
    accept=import_command("kilo"),
    takes_failures=True,
)
