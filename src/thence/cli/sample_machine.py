"""A made-up machine for a first look: sessions of every agent that has samples, and of our own.

The sessions hold what real ones hold: forks, rewinds, subagents, a compaction, a crash, failed
tests, a secret that was printed.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thence import system
from thence.agents.profiles import Agent, agents
from thence.agents.samples import Machine, Record, fake_token, made_id, timed_id

if TYPE_CHECKING:
    from thence.journal import Session

__all__ = ["Homes", "Record", "fake_token", "homes", "made_id", "timed_id", "write"]

MODEL = "claude-sonnet-4-5"
PROJECTS = ("tidepool", "harbour-books", "lumen")


class Homes:
    """Where each agent of the made-up machine keeps its sessions: `homes.of(name)`."""

    def __init__(self, folder: Path) -> None:
        self.thence = folder / ".thence"
        self.work = folder / "work"
        """The folder of the projects."""
        self._folder = folder

    def of(self, agent: str) -> Path:
        """Return the folder of an agent, where its client would have it in a home."""
        usual = agents()[agent].profile.usual_folders
        return self._folder / (usual[0] if usual else f".{agent}")

    def __getattr__(self, agent: str) -> Path:
        """Return the folder of an agent, as an attribute of its name."""
        if agent not in agents():
            raise AttributeError(agent)
        return self.of(agent)

    @property
    def env(self) -> dict[str, str]:
        """The variables that lead every program there."""
        variables = {
            agent.profile.home_variable: agent.profile.home_of(self.of(agent.name))
            for agent in _sample_agents()
        }
        return variables | {"THENCE_HOME": str(self.thence)}


def homes(folder: Path) -> Homes:
    """Lay a machine out below a folder."""
    return Homes(folder)


def write(folder: Path, now: datetime, only: Collection[str] = ()) -> Homes:
    """Write the sessions of all agents below a folder, as of a moment, or `only` of some."""
    places = Homes(folder)
    for project in PROJECTS:
        (places.work / project).mkdir(parents=True, exist_ok=True)
    for agent in _sample_agents():
        if (sample := agent.sample) is not None and (not only or agent.name in only):
            sample(Machine(places.of(agent.name), places.work), now)
    if not system.IS_WINDOWS:
        _write_own(places)
    return places


def _sample_agents() -> list[Agent]:
    return [agent for agent in agents().values() if agent.offers("sample")]


# -- sessions of our own journal, as a harness that embeds it makes them -----------------------


def _write_own(homes: Homes) -> None:
    """Write sessions with a rewind, a subagent, a saved file, a compaction, a fork and a crash."""
    from thence.journal import Journal

    journal = Journal(homes.thence)
    cwd = homes.work / "tidepool"
    notes = cwd / "NOTES.md"
    notes.write_text("# Notes\n")
    with journal.create(cwd=str(cwd), model=MODEL) as s:
        _say(s, "user", "Write release notes for 2.4.")
        first = _say(s, "assistant", "I will read the changelog.")
        _call(s, "toolu_1", "Bash", {"command": "git log --oneline v2.3.."}, "a1b2 Fix the gap\n")
        with s.sidechain("reader", tool_use_id="toolu_1") as side:
            _say(side, "user", "Sum up the changes.")
            _say(side, "assistant", "Two fixes, one rename.")
            side.finish("Two fixes, one rename.")
        _say(s, "assistant", "Two fixes and a rename. Shall I invent a joke?")
        s.rewind(first)
        s.checkpoint([notes])
        notes.write_text("# Notes\n\n2.4: the clock change\n")
        answer = _say(s, "assistant", "The notes say what changed, no jokes.")
        s.compact("Notes for 2.4 are written.", keep_from=answer)
        s.flush()
    with journal.fork(s.id, at=answer) as other:
        _say(other, "user", "The same in Portuguese.")
        _say(other, "assistant", "Feito.")
        other.flush()
    crashed = journal.create(cwd=str(cwd), model=MODEL)
    _say(crashed, "user", "Tag the release.")
    call = {"type": "tool_use", "id": "toolu_9", "name": "Bash", "input": {"command": "git tag"}}
    crashed.record("assistant", {"role": "assistant", "content": [call]})
    # Nobody ends it: it looks as if the harness had been killed here.


def _say(s: Any, role: str, text: str) -> str:
    payload: dict[str, Any] = {"role": role, "content": text}
    if role == "assistant":
        payload |= {"model": MODEL, "usage": {"input_tokens": 2100, "output_tokens": 90}}
    record = s.record(role, payload)
    return record if isinstance(record, str) else str(record.uuid)


def _call(s: Session, name: str, tool: str, arguments: dict[str, Any], result: str) -> None:
    use = {"type": "tool_use", "id": name, "name": tool, "input": arguments}
    s.record("assistant", {"role": "assistant", "model": MODEL, "content": [use]})
    answer = {"type": "tool_result", "tool_use_id": name, "content": result}
    s.record("user", {"role": "user", "content": [answer]})
