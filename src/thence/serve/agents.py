"""Agents as people and the style know them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Final

from thence.agents.profiles import agent_of, agents
from thence.format.figures import clean

OTHER: Final = "own"
"""The class of agents without a colour."""

STYLESHEET: Final = "agents.css"
"""The name under which the colours are served."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_COLOUR: Final = re.compile(r"#[0-9a-fA-F]{6}")


@lru_cache(maxsize=1024)
def agent_label(flavor: str) -> str:
    """Return the name by which people know an agent."""
    agent = agent_of(flavor)
    return clean(agent.label if agent is not None else flavor)


@lru_cache(maxsize=1024)
def agent_class(flavor: str) -> str:
    """Return the name by which the style knows an agent."""
    return flavor if flavor in dict(_agent_colours()) else OTHER


@cache
def stylesheet() -> bytes:
    """Return the style sheet with the colours of all agents."""
    rules = [
        f":root {{ --a-{name}: light-dark({light}, {dark}); }}\n"
        f".f-{name} {{ fill: var(--a-{name}); }}\n"
        f'.agent[data-agent="{name}"]::before {{ background: var(--a-{name}); }}\n'
        for name, (light, dark) in _agent_colours()
    ]
    return "".join(rules).encode()


def _agent_colours() -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield agents with their colours; what is no name or colour stays out of a style sheet."""
    for name, agent in agents().items():
        colours = agent.profile.colours
        if colours is not None and _NAME.fullmatch(name) and all(map(_COLOUR.fullmatch, colours)):
            yield name, colours
