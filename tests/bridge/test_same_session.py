"""Messages, exports and handoffs say the same of a session in its log and in the store.

The messages are also compared with what the records of the log say by themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.memory.stored import opened
from tests.rules import rules
from thence.agents import Adapter
from thence.agents.profiles import agents
from thence.agents.samples import Machine
from thence.agents.sessions import LoadedSession, load_source
from thence.bridge.handoff import plan
from thence.bridge.otlp import trace_of
from thence.format import export_formats, repair
from thence.format.facts import Block
from thence.format.nodes import Is
from thence.format.readout import Readout
from thence.format.session_graph import SessionGraph
from thence.format.turn import running_calls
from thence.memory.gate import Gate
from thence.memory.readouts import OpenedSession, open_loaded, open_session, read_session
from thence.memory.recall import as_read
from thence.memory.store import Filter, Store
from thence.memory.sweep import Sweep

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
SESSION = "0195600d-0000-4000-8000-00000000000a"
SOURCES = [name for name in agents() if agents()[name].offers("sample")]
TARGETS = ("claude", "codex")


class Silent(Gate):
    """Finds no secrets, so that a stored text is the text of the log."""

    def __init__(self) -> None:
        """Get ready without rules."""
        super().__init__([], key=b"0" * 32)


@pytest.fixture(params=SOURCES)
def sessions(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[list[tuple[LoadedSession, OpenedSession, Readout]]]:
    """Made-up sessions of an agent: from the log, and from a store in either way."""
    agent = agents()[request.param]
    assert agent.sample is not None
    home = tmp_path / agent.name
    agent.sample(Machine(home, tmp_path / "work"), NOW)
    store = opened(tmp_path)
    with store.sweeping():
        Sweep(store, {agent.name: agent.reader}, Silent(), rules(), digests=False).run(
            {agent.name: [home]}
        )
    yield list(both(store, agent.reader, home))
    store.close()


def both(
    store: Store, reader: Adapter, home: Path
) -> Iterator[tuple[LoadedSession, OpenedSession, Readout]]:
    """Yield each session of a home with what a store says of it.

    Without those that share records with others: a log alone does not know whose these are.
    """
    for source in reader.find(home):
        for row in store.sessions(Filter(uids=(source.uid,))):
            if any(edge.link != "subagent" for edge in row.edges):
                continue
            loaded = load_source(reader, source)
            yield loaded, open_session(store, row, as_read), read_session(store, row, as_read)


def api_block(block: Block) -> Any:
    """Return a block of a record as the API has it."""
    if block.kind == "tool_call":
        return {"type": "tool_use", "id": block.call, "name": block.tool, "input": block.payload}
    if block.kind == "tool_result":
        out = {"type": "tool_result", "tool_use_id": block.call, "content": block.payload}
        return out if block.failed is None else {**out, "is_error": block.failed}
    payload = block.payload
    return {"type": "text", "text": payload} if isinstance(payload, str) else payload


def messages_of(graph: SessionGraph) -> list[Any]:
    """Return the messages of a live line by its records alone, one a block."""
    out = []
    for part in graph.line():
        for at in part.places:
            fact = part.session.facts[at]
            if part.session.graph.nodes[at].flags & Is.SIDE:
                continue
            for block in fact.blocks:
                if block.role == "system" or not isinstance(made := api_block(block), dict):
                    continue
                role = "assistant" if block.role == "assistant" else "user"
                message: dict[str, Any] = {"role": role, "content": [made]}
                if role == "assistant" and fact.node.response is not None:
                    message["id"] = fact.node.response
                out.append(message)
    running = running_calls(graph.graph, graph.turn())
    return repair.mend(out, reasons=repair.no_result_yet(running)).messages


def test_messages_are_what_the_records_say(
    sessions: list[tuple[LoadedSession, OpenedSession, Readout]],
) -> None:
    """Payloads at hand or behind refs; of a result no failure that only another record tells."""
    assert sessions
    for loaded, stored, lazy in sessions:
        expected = messages_of(loaded.graph)

        assert expected == open_loaded(loaded).session.messages().messages, loaded.graph.uid
        assert expected == stored.session.messages().messages, loaded.graph.uid
        assert expected == lazy.messages().messages, loaded.graph.uid


def exports(opened_session: OpenedSession) -> dict[str, Any]:
    """Return a session in all forms; where its payloads lie is left out."""
    session = opened_session.session
    lines = [json.loads(msgspec.json.encode(line)) for line in export_formats.lines(session)]
    spans = trace_of(session, agent="Made-up", has_content=True).spans
    return {
        "lines": [{k: v for k, v in line.items() if k != "payload_ref"} for line in lines],
        "journal": list(export_formats.flat(session)),
        "markdown": list(export_formats.markdown(session, export_formats.BranchChoice(every=True))),
        "page": list(export_formats.page(session)),
        "spans": [(span.name, span.start_ns, span.end_ns, span.attributes) for span in spans],
    }


def test_exports_are_the_same_from_the_log_and_the_store(
    sessions: list[tuple[LoadedSession, OpenedSession, Readout]],
) -> None:
    """Every form."""
    for loaded, stored, _ in sessions:
        expected, actual = exports(open_loaded(loaded)), exports(stored)
        for name, form in expected.items():
            assert form == actual[name], (loaded.graph.uid, name)


@pytest.mark.parametrize("target", TARGETS)
def test_a_handoff_is_the_same_from_the_log_and_the_store(
    sessions: list[tuple[LoadedSession, OpenedSession, Readout]], target: str, tmp_path: Path
) -> None:
    """Files and report."""
    where: dict[str, Any] = {"root": tmp_path, "session": SESSION, "at": NOW, "here": "/here"}
    for loaded, stored, _ in sessions:
        expected = plan(open_loaded(loaded), target, **where)

        assert expected == plan(stored, target, **where), loaded.graph.uid


def test_exports_judge_calls_as_their_rows_do(
    sessions: list[tuple[LoadedSession, OpenedSession, Readout]],
) -> None:
    """A span has failed if its call has; a line of Markdown says so if its result does."""
    calls = 0
    for _, stored, _ in sessions:
        session = stored.session
        outcomes = {pair.call.event_id: pair.outcome for pair in session.calls}
        failed = {at for at, outcome in outcomes.items() if outcome.failed}
        spans = trace_of(session, agent="Made-up").spans
        errors = {span.key for span in spans if span.error is not None}
        calls += len(outcomes)

        assert {f"call {at}" for at in failed} == errors
    assert calls
