"""How a session is resumed: the command of its own agent, in its own folder."""

from __future__ import annotations

import shlex

from thence.agents.profiles import agent_of
from thence.format.figures import clean
from thence.memory.store import SessionRow


def own_command(row: SessionRow) -> str:
    """Return what resumes a session in its agent, as a shell reads it; empty if nothing does."""
    session = row.session
    agent = agent_of(session.flavor)
    if agent is None or not agent.offers("resume"):
        return ""
    command = shlex.join(agent.profile.resume_command(session.native_session_id))
    line = f"cd {shlex.quote(session.cwd)} && {command}" if session.cwd else command
    return line if clean(line) == line else ""  # what cannot be shown as it is is not offered
