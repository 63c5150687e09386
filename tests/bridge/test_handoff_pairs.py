"""Sessions of every agent, handed to every agent that takes some: what a pair loses is reported."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from thence.agents.profiles import agents
from thence.agents.samples import Machine
from thence.agents.sessions import LoadedSession, load_source
from thence.bridge.handoff import plan, targets
from thence.format.records import blocks
from thence.memory.readouts import open_loaded, readout_of

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
SESSION = "0195600d-0000-4000-8000-00000000000a"
SOURCES = [name for name in agents() if agents()[name].offers("sample")]


def longest(name: str, folder: Path) -> LoadedSession:
    """Return the made-up session of an agent with the most calls."""
    agent = agents()[name]
    assert agent.sample is not None
    home = folder / name
    agent.sample(Machine(home, folder / "work"), NOW)
    loaded = [load_source(agent.reader, source) for source in agent.reader.find(home)]
    return max(loaded, key=lambda session: len(session.graph.calls))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("target", targets())
@pytest.mark.parametrize("source", SOURCES)
def test_every_pair_says_what_became_of_each_call(source: str, target: str, tmp_path: Path) -> None:
    """Texts stay word for word, in order; each call is kept, renamed or written as text."""
    loaded = longest(source, tmp_path)
    root = tmp_path / "target"
    root.mkdir()
    messages = readout_of(loaded.graph).messages().messages
    handoff = plan(
        open_loaded(loaded), target, root=root, session=SESSION, at=NOW, here=str(tmp_path)
    )
    report = handoff.report
    written = b"\n".join(handoff.files.values()).decode()
    texts = [
        json.dumps(block["text"])[1:-1]
        for message in messages
        for block in blocks(message["content"])
        if block["type"] == "text" and not block["text"].startswith("<")
    ]
    at = 0
    for text in texts:
        at = written.index(text, at)

    assert report.calls == sum(
        sum(n.values()) for n in (report.unchanged, report.mapped, report.as_text)
    )
    assert report.calls == _calls(messages).total() > 0
    if source == target:
        assert {} == report.mapped


def _calls(messages: list[Any]) -> Counter[str]:
    return Counter(
        block["name"]
        for message in messages
        for block in blocks(message["content"])
        if block["type"] == "tool_use"
    )


@pytest.mark.sampled(5)
@pytest.mark.parametrize("target", targets())
@pytest.mark.parametrize("source", SOURCES)
def test_what_a_pair_loses_is_in_the_report(source: str, target: str, tmp_path: Path) -> None:
    """A call whose tool the target does not have is text, by its name; no shell command is."""
    loaded = longest(source, tmp_path)
    root = tmp_path / "target"
    root.mkdir()
    report = plan(
        open_loaded(loaded), target, root=root, session=SESSION, at=NOW, here=str(tmp_path)
    ).report
    shells = {
        tool
        for agent in agents().values()
        for name, form in agent.profile.forms.items()
        if name == "shell" and (tool := form.tool)
    }

    assert set() == shells & report.as_text.keys()
    assert report.not_handed
    assert SESSION in json.dumps(report.argv) or report.session in report.argv[-1]
