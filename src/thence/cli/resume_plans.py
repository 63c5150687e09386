"""How sessions are resumed: the command, its folder and its variables."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from thence.cli import processes
from thence.errors import NotReadable, ThenceError

if TYPE_CHECKING:
    from thence.agents import Adapter
    from thence.agents.profiles import Agent
    from thence.format.records import JSON
    from thence.memory.store import SessionRow

OURS = "thence"
"""The agent whose sessions a program that embeds us resumes."""


class ResumePlan(NamedTuple):
    """The command that resumes a session, with its folder and variables."""

    row: SessionRow
    argv: list[str]
    env: dict[str, str]
    cwd: str | None
    copied_to: str | None = None
    """The agent that continues a copy of it; None where its own agent resumes it."""

    @property
    def line(self) -> str:
        """Return the command as a line to type."""
        env = "".join(f"{name}={shlex.quote(value)} " for name, value in self.env.items())
        place = f"cd {shlex.quote(self.cwd)} && " if self.cwd else ""
        return f"{place}{env}{shlex.join(self.argv)}"

    def as_object(self) -> JSON:
        """Return the plan as an object of JSON."""
        session = self.row.session
        return {
            "session_uid": session.session_uid,
            "agent": session.flavor,
            "title": self.row.title,
            "ended_at": session.ended_at,
            "cwd": self.cwd,
            "env": self.env,
            "argv": self.argv,
            "command": self.line,
            "machine": self.row.machine,
            "obstacle": None if self.copied_to is not None else obstacle_of(self.row),
            "not_restored": [not_restored(self.copied_to or session.flavor)],
        }


def plan_resume(
    row: SessionRow, known: dict[str, Adapter], prompt: str | None = None
) -> ResumePlan:
    """Return how a session is resumed; raise if its agent has no command for it.

    With a prompt the agent answers without its interface.
    """
    from thence.agents.profiles import agent_of

    session = row.session
    name, agent = session.native_session_id, agent_of(session.flavor)
    if agent is not None and agent.offers("resume"):
        argv = agent.profile.resume_command(name)
        if prompt is not None:
            argv = _with_prompt(agent, name, prompt)
    elif session.flavor != OURS:
        raise _no_way(session.flavor)
    elif prompt is not None:
        raise NotReadable(
            "sessions of the journal take no prompt", hint="their harness resumes them"
        )
    else:
        opened = f"import thence; session = thence.Journal().resume({name!r})"
        argv = processes.python("-i", "-c", opened)
    return ResumePlan(row, argv, _env(row, known), session.cwd or None)


def _with_prompt(agent: Agent, session: str, prompt: str) -> list[str]:
    """Return the command that resumes a session with a prompt; raise if there is none."""
    agent.require("prompt")
    if not agent.profile.resumes_with_prompt:
        raise NotReadable(
            f"{agent.label} takes no prompt when it resumes a session",
            hint="leave out --prompt: it opens its interface",
        )
    return agent.profile.prompt_argv(prompt, session=session)


def obstacle_of(row: SessionRow) -> str | None:
    """Return why its own agent cannot go on with a session on this machine; None if it can."""
    from thence.agents.profiles import label_of
    from thence.memory.stored_paths import locate

    session, imported = row.session, row.imported
    name, label = session.native_session_id[:13], label_of(session.flavor)
    path = locate(session.source_path or "")
    if row.machine is not None:
        return f"{name} was recorded on {row.machine}: {label} does not have it here"
    if imported is not None:
        return f"{name} was imported from {imported.name}: {label} does not have it here"
    if row.gone or (path and not Path(path).exists()):
        return f"{label} has deleted {name}, so it cannot resume it"
    if session.cwd and not Path(session.cwd).is_dir():
        moved = f"; it is {row.project} now" if row.project else ""
        return f"the folder of {name} is gone: {session.cwd}{moved}"
    return None


def _no_way(name: str) -> ThenceError:
    """Return what is said of an agent whose sessions cannot be resumed by a command."""
    from thence.agents.profiles import PARTS, agent_of

    agent = agent_of(name)
    why = f"{agent.label} {PARTS['resume']}" if agent else f"the agent {name} is not installed"
    return NotReadable(why, hint="continue it in another agent: thence resume ID --with AGENT")


def is_resumable(name: str) -> bool:
    """Return whether a command resumes the sessions of an agent."""
    from thence.agents.profiles import agent_of

    agent = agent_of(name)
    return name == OURS or (agent is not None and agent.offers("resume"))


def not_restored(agent: str) -> str:
    """Return what a resumed session of an agent does not get back."""
    from thence.agents.profiles import agent_of

    known = agent_of(agent)
    return known.profile.not_restored if known is not None else "Permissions are not restored."


def _env(row: SessionRow, known: dict[str, Adapter]) -> dict[str, str]:
    """Return the variable that leads an agent to a folder that is not its usual one."""
    from thence.agents.profiles import agent_of
    from thence.memory.stored_paths import locate

    flavor, path = row.session.flavor, row.session.source_path
    agent, adapter = agent_of(flavor), known.get(flavor)
    if agent is None or adapter is None or not agent.profile.home_variable or not path:
        return {}
    source = adapter.at(Path(locate(path)))
    if source is None or not source.root:
        return {}
    root = Path(source.root)
    usual = adapter.roots(Path.home(), os.environ)
    if root in usual or not root.is_dir():
        return {}
    return {agent.profile.home_variable: agent.profile.home_of(root)}
