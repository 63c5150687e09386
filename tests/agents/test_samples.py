"""Made-up sessions of every agent, and each part that an agent offers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from thence.agents.profiles import agents
from thence.agents.samples import Machine
from thence.agents.sessions import load_source
from thence.format.session_graph import SessionGraph
from thence.testing import offers

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
OFFERS = (
    *(offers.labelling, offers.resuming, offers.tool_forms, offers.settings),
    *(offers.handing_over, offers.made_up),
)
SAMPLED = [name for name in agents() if name != "thence"]


def sampled(name: str, folder: Path) -> list[SessionGraph]:
    """Return the made-up sessions of an agent, read as any others."""
    agent = agents()[name]
    assert agent.sample is not None
    machine = Machine(folder / "home", folder / "work")
    agent.sample(machine, NOW)
    loaded = [load_source(agent.reader, source) for source in agent.reader.find(machine.home)]

    assert {"torn"} >= {skipped.why for session in loaded for skipped in session.skipped}
    return [session.graph for session in loaded]


@pytest.mark.parametrize("name", SAMPLED)
@pytest.mark.parametrize("offer", OFFERS, ids=lambda offer: offer.__name__)
def test_every_part_that_an_agent_offers_is_sound(offer: object, name: str) -> None:
    """Commands, tools, settings, handoff, samples: the suite that other packages run too."""
    assert callable(offer)
    assert [] == list(offer(agents()[name]))


@pytest.mark.parametrize("name", SAMPLED)
def test_a_sample_is_a_whole_session(name: str, tmp_path: Path) -> None:
    """A prompt, calls with results, an answer, tokens, a folder, a title."""
    sessions = sampled(name, tmp_path)
    events = [event for session in sessions for event in session.events]
    pairs = [pair for session in sessions for pair in session.calls]

    assert {"user_msg", "assistant_msg", "tool_call", "tool_result"} <= {e.kind for e in events}
    assert any(pair.outcome.ended and not pair.outcome.failed for pair in pairs)
    assert all(sum(session.spent.live.total for session in sessions) > 0 for _ in sessions)
    assert all(session.session().cwd and session.title for session in sessions)
    assert {} == agents()[name].unknown_records(f for session in sessions for f in session.facts)
