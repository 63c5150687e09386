"""Agents as people and the style know them."""

from __future__ import annotations

from pathlib import Path

import thence.serve
from thence.agents.profiles import PROFILED
from thence.serve.agents import agent_class, agent_label

STATIC = Path(thence.serve.__file__).parent / "web" / "static"


def test_every_agent_has_its_name_and_its_colour() -> None:
    """The name people use, and a colour of its own in lists and charts."""
    style = (STATIC / "viewer.css").read_text() + (STATIC / "tokens.css").read_text()
    labels = {name: agent_label(name) for name in PROFILED}

    assert "Copilot CLI" == labels["copilot"]
    assert "Qwen Code" == labels["qwen"]
    for name in ("claude", "codex", "grok", *PROFILED):
        assert name == agent_class(name)
        assert f'data-agent="{name}"' in style
        assert f".f-{name} " in style
        assert f"--a-{name}:" in style


def test_an_unknown_agent_goes_by_the_name_of_its_adapter() -> None:
    """Cleaned, for anybody may have chosen it."""
    assert ("notes", "own") == (agent_label("notes"), agent_class("notes"))
