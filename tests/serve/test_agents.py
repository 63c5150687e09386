"""Agents as people and the style know them."""

from __future__ import annotations

import pytest

from thence.agents.profiles import Agent, Profile, agents
from thence.serve import agents as served
from thence.serve.agents import agent_class, agent_label, stylesheet


def test_every_agent_has_its_name_and_its_colour() -> None:
    """The name people use, and a colour of its own in lists and charts."""
    style = stylesheet().decode()
    labels = {name: agent_label(name) for name in agents()}

    assert "Copilot CLI" == labels["copilot"]
    assert "Claude Code" == labels["claude"]
    for name in agents().keys() - {"thence"}:
        assert name == agent_class(name)
        assert f'data-agent="{name}"' in style
        assert f".f-{name} " in style
        assert f"--a-{name}:" in style


def test_an_unknown_agent_goes_by_the_name_of_its_adapter() -> None:
    """Cleaned, for anybody may have chosen it."""
    assert ("notes", "own") == (agent_label("notes"), agent_class("notes"))


@pytest.mark.parametrize(
    ("name", "colours"),
    [("x} * {", ("#112233", "#445566")), ("fine", ("red; } * {", "#445566")), ("none", None)],
)
def test_what_is_no_name_or_colour_stays_out_of_the_style(
    monkeypatch: pytest.MonkeyPatch, name: str, colours: tuple[str, str] | None
) -> None:
    """Another package chose them."""
    agent = Agent(name, Profile(label="x", colours=colours))
    monkeypatch.setattr(served, "agents", lambda: {name: agent})

    assert b"" == stylesheet.__wrapped__()
