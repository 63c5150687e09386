"""How the rest of the program names and resumes an agent: data from the agent's own folder.

Each agent's package has a `PROFILE`. It is imported when somebody asks for that agent.
"""

from __future__ import annotations

from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Final

import msgspec

PROFILED: Final = (
    *("cline", "continue", "copilot", "droid", "gemini", "goose", "hermes", "kilo", "kimi"),
    *("opencode", "pi", "qwen", "vibe"),
)
"""Agents whose folder has a profile, by the name of their adapter."""


class Profile(msgspec.Struct, frozen=True):
    """What is particular to an agent beyond the format of its logs."""

    label: str
    """What people call it."""
    resume_option: tuple[str, ...]
    """The program and the option that takes a session id."""
    home_variable: str
    """The variable that names its folder."""
    rewind_hint: str
    """How a person goes back in a session, in the agent itself."""
    home_is_parent: bool = False
    """The variable names the folder above the agent's own."""
    takes_equals: bool = True
    """The option and its value may be one word, with an equals sign between them."""

    more_variables: tuple[str, ...] = ()
    """Further variables that say where sessions lie."""
    id_prefix: str = ""
    """What stands before the id of a session on a command line."""
    lost_on_resume: str = ""
    """What a resumed session does not get back, where that is not its permissions."""
    needs_equals: bool = False
    """The value of the option may be left out, so it must stand in the same word."""

    def resume_command(self, session: str) -> list[str]:
        """Return the command line that resumes a session.

        An id may begin with a dash. It is then passed so that it cannot be taken for an option.
        """
        *before, option = self.resume_option
        session = f"{self.id_prefix}{session}"
        if self.needs_equals or (session.startswith("-") and self.takes_equals):
            return [*before, f"{option}={session}"]
        return [*before, option, session]

    def home_of(self, root: Path) -> str:
        """Return the value that the variable must have for this folder."""
        return str(root.parent if self.home_is_parent else root)

    @property
    def not_restored(self) -> str:
        """What a resumed session does not get back."""
        usual = f"permissions granted for that session only; {self.label} asks again"
        return self.lost_on_resume or usual


def folder_variables() -> tuple[str, ...]:
    """Return all variables that name folders of agents with a profile."""
    known = [profile for name in PROFILED if (profile := profile_of(name)) is not None]
    return tuple(
        variable
        for profile in known
        for variable in (profile.home_variable, *profile.more_variables)
    )


def profile_of(agent: str) -> Profile | None:
    """Return the profile of an agent; None if it has none."""
    if agent not in PROFILED:
        return None
    folder = f"{agent}_" if iskeyword(agent) else agent
    profile = import_module(f"thence.agents.{folder}.profile").PROFILE
    return profile if isinstance(profile, Profile) else None
