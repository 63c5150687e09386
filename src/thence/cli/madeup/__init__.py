"""A made-up machine for a first look: sessions of every agent that has samples, and of our own.

The sessions hold what real ones hold: forks, rewinds, subagents, a compaction, a crash, failed
tests, a secret that was printed.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from pathlib import Path

from thence.agents.profiles import Agent, agents
from thence.agents.samples import Machine, Record, fake_token, made_id, timed_id

__all__ = ["Homes", "Record", "fake_token", "homes", "made_id", "timed_id", "write"]

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
            for agent in _sampled()
        }
        return variables | {"THENCE_HOME": str(self.thence)}


def homes(folder: Path) -> Homes:
    """Lay a machine out below a folder."""
    return Homes(folder)


def write(folder: Path, now: datetime, only: Collection[str] = ()) -> Homes:
    """Write the sessions of all agents below a folder, as of a moment, or `only` of some."""
    from thence.cli.madeup import own

    places = Homes(folder)
    for project in PROJECTS:
        (places.work / project).mkdir(parents=True, exist_ok=True)
    for agent in _sampled():
        if (sample := agent.sample) is not None and (not only or agent.name in only):
            agent.ask(sample, Machine(places.of(agent.name), places.work), now)
    own.write(places, now)
    return places


def _sampled() -> list[Agent]:
    return [agent for agent in agents().values() if agent.offers("sample")]
