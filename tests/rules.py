"""The rules by which tests derive sessions: those of all installed agents, and no settings."""

from __future__ import annotations

from typing import Any

from thence.agents.profiles import toolbox
from thence.memory.pricelist import SHIPPED
from thence.memory.rulebook import Rulebook


def rules(**settings: Any) -> Rulebook:
    """Return the rules, with settings of a user."""
    usual: dict[str, Any] = {"prices": SHIPPED, "domains": {}, "tasks": None, "digesters": None}
    return Rulebook(toolbox=toolbox(), **usual | settings)
