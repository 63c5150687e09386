"""Agents as people and the style know them."""

from __future__ import annotations

from typing import Final

from thence.agents.profiles import PROFILED, profile_of
from thence.format.figures import clean

AGENTS: Final = {
    "claude": "Claude Code",
    "codex": "Codex",
    "grok": "Grok",
    "thence": "journal",
}
"""What people call the agents; others go by the name of their adapter."""


def agent_label(flavor: str) -> str:
    """Give the name by which people know an agent."""
    profile = profile_of(flavor)
    return profile.label if profile else AGENTS.get(flavor, clean(flavor))


def agent_class(flavor: str) -> str:
    """Give the name by which the style knows an agent."""
    return flavor if flavor in ("claude", "codex", "grok", *PROFILED) else "own"
