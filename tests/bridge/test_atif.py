"""ATIF: valid for its owners, equal when it comes back, and readable from other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.pace import by_pace
from thence.agents import adapters
from thence.agents.row_sources import sources_at
from thence.agents.sessions import Generation, LoadedSession, join_generations, load, load_source
from thence.bridge import atif, trajectories
from thence.errors import NotReadable
from thence.format.records import JSON
from thence.format.session_graph import SessionGraph
from thence.format.stored import StoredEvent, events_of_session
from thence.journal import Journal
from thence.memory.readouts import readout_of

DATA = Path(__file__).resolve().parent.parent.parent.parent / "shared" / "data"
ELSEWHERE = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 7}


def _call(name: str, arguments: JSON) -> JSON:
    return {"type": "tool_use", "id": name, "name": "Bash", "input": arguments}


def _reply(*blocks: JSON, **more: JSON) -> JSON:
    return {"role": "assistant", "content": list(blocks), **more}


def _text(text: str) -> JSON:
    return {"type": "text", "text": text}


@pytest.fixture
def branched(tmp_path: Path) -> Path:
    """A session with a discarded branch, a subagent, a failed call and a compaction."""
    journal = Journal(tmp_path / "home")
    with journal.create(cwd="/work/made-up", model="claude-sonnet-4-5") as session:
        first = session.record("user", {"role": "user", "content": "Count the files."})
        session.record("assistant", _reply(_text("Wrong way."), id="m0", usage=ELSEWHERE))
        session.rewind(to=first.uuid)
        thought = {"type": "thinking", "thinking": "Let me look.", "signature": "abc"}
        blocks = (thought, _text("I look."), _call("c1", {"command": "ls"}))
        session.record("assistant", _reply(*blocks, id="m1", usage=ELSEWHERE))
        with session.sidechain("helper", tool_use_id="c1") as side:
            side.record("user", {"role": "user", "content": "Help."})
            side.record("assistant", _reply(_text("Helped."), id="s1", usage=ELSEWHERE))
            side.finish("done")
        result = {"type": "tool_result", "tool_use_id": "c1", "content": "a b", "is_error": True}
        receipt = session.record("user", {"role": "user", "content": [result]})
        session.record("assistant", _reply(_text("Two."), id="m2", usage=ELSEWHERE))
        session.compact("Counted: two.", keep_from=receipt.uuid)
        session.record("user", {"role": "user", "content": "Thanks."})
        path = journal.root / "sessions"
    return next(path.rglob("*.jsonl"))


def _rows(session: SessionGraph) -> dict[int, tuple[StoredEvent, JSON]]:
    bodies = {event.event_id: event.payload for event in session.events}
    return {
        row.event.event_id: (row, bodies[row.event.event_id]) for row in events_of_session(session)
    }


def _back(document: JSON) -> SessionGraph:
    parcels = list(trajectories.parcels_in(document, name="file"))
    return join_generations(
        [
            Generation(
                parcel.uid, parcel.facts, parcel.torn, parcel.replayed, parcel.billed, parcel.ties
            )
            for parcel in reversed(parcels)
        ]
    )


def _document(loaded: LoadedSession) -> dict[str, Any]:
    made = atif.trajectory_of(loaded, agent="made-up", by="test")
    read: dict[str, Any] = json.loads(json.dumps(made))
    return read


def _check(loaded: LoadedSession) -> None:
    """A session validates, and comes back equal in rows, payloads, messages and totals."""
    document = _document(loaded)
    _validate(document)
    session = _back(document)

    assert _rows(loaded.graph) == _rows(session)
    assert readout_of(loaded.graph).messages() == readout_of(session).messages()
    assert loaded.graph.spent == session.spent


def _validate(document: JSON) -> None:
    package = pytest.importorskip("atif")
    package.Trajectory.model_validate(document)


def test_a_session_comes_back_as_it_was(branched: Path) -> None:
    """Messages, calls, results, usage, models, times and states are the same."""
    _check(load(branched))


def test_branches_and_subagents_are_trajectories_of_their_own(branched: Path) -> None:
    """The root is the live line; what was discarded and what a subagent said stand beside it."""
    root = _document(load(branched))
    below = root["subagent_trajectories"]
    roles = {trajectory["extra"]["thence"]["role"]: trajectory for trajectory in below}
    messages = [step["message"] for step in root["steps"]]

    assert {"discarded branch", "subagent"} == set(roles)
    assert "Wrong way." not in messages
    assert ["Wrong way."] == [step["message"] for step in roles["discarded branch"]["steps"]]
    assert ["Help.", "Helped."] == [step["message"] for step in roles["subagent"]["steps"]]


def test_a_step_has_what_the_model_said_and_what_its_calls_gave(branched: Path) -> None:
    """Text, thought, call, result and metrics of one response are one step."""
    root = _document(load(branched))
    step = next(step for step in root["steps"] if step.get("tool_calls"))

    assert ("agent", "I look.", "Let me look.") == (
        step["source"],
        step["message"],
        step["reasoning_content"],
    )
    assert {"command": "ls"} == step["tool_calls"][0]["arguments"]
    assert "a b" == step["observation"]["results"][0]["content"]
    assert [root["subagent_trajectories"][-1]["trajectory_id"]] == [
        ref["trajectory_id"] for ref in step["observation"]["results"][0]["subagent_trajectory_ref"]
    ]
    assert (17, 5, 7) == tuple(
        step["metrics"][name] for name in ("prompt_tokens", "completion_tokens", "cached_tokens")
    )


def test_every_bill_is_on_one_step(branched: Path) -> None:
    """The metrics of all trajectories add up to what the session took."""
    loaded = load(branched)
    root = _document(loaded)
    finals = [trajectory["final_metrics"] for trajectory in (root, *root["subagent_trajectories"])]
    total = sum(metrics["total_completion_tokens"] for metrics in finals)

    assert sum(usage.output_tokens for usage in loaded.graph.bills.values()) == total


def test_a_step_that_somebody_changed_is_refused(branched: Path) -> None:
    """A text that is shorter than its frame says is no session of ours."""
    document = _document(load(branched))
    next(step for step in document["steps"] if step["message"] == "I look.")["message"] = ""

    with pytest.raises(NotReadable, match="changed after thence wrote it"):
        _back(document)


FOREIGN: dict[str, Any] = {
    "schema_version": "ATIF-v1.6",
    "session_id": "made-up-1",
    "agent": {"name": "other", "version": "1", "model_name": "gpt-5"},
    "steps": [
        {"step_id": 1, "source": "system", "message": "Be brief."},
        {"step_id": 2, "source": "user", "message": "Hello", "timestamp": "2026-01-01T00:00:00Z"},
        {
            "step_id": 3,
            "source": "agent",
            "message": "Hi",
            "reasoning_content": "Greet.",
            "tool_calls": [{"tool_call_id": "c", "function_name": "bash", "arguments": {"a": 1}}],
            "observation": {"results": [{"source_call_id": "c", "content": "out"}]},
            "metrics": {"prompt_tokens": 10, "completion_tokens": 3, "cached_tokens": 4},
        },
    ],
    "subagent_trajectories": [
        {
            "schema_version": "ATIF-v1.7",
            "trajectory_id": "sub",
            "agent": {"name": "other", "version": "1"},
            "steps": [{"step_id": 1, "source": "user", "message": "Help"}],
        }
    ],
}


def test_a_trajectory_of_another_program_is_a_session() -> None:
    """Prompts, answers, calls, results and tokens come in; its subagent is a channel."""
    session = _back(FOREIGN)
    usage = next(iter(session.bills.values()))

    assert "atif:made-up-1" == session.uid
    assert ["user", "assistant", "user"] == [
        m["role"] for m in readout_of(session).messages().messages
    ]
    assert (6, 3, 4) == (usage.input_tokens, usage.output_tokens, usage.cache_read_input_tokens)
    assert {"main", "sub"} == {event.channel for event in session.events}
    assert [("bash", "tool_call"), ("bash", "tool_result")] == [
        (event.tool, event.kind) for event in session.events if event.call
    ]


@pytest.mark.parametrize(
    "broken",
    [
        {"schema_version": "ATIF-v1.8"},
        {"schema_version": "ATIF-v1.8", "steps": [1, {"source": []}, {"message": {}}]},
        {"schema_version": "ATIF-v1.8", "agent": 3, "steps": "x", "subagent_trajectories": {}},
        {
            "schema_version": "ATIF-v1.8",
            "steps": [{"source": "agent", "metrics": {"prompt_tokens": "x"}, "observation": []}],
        },
    ],
)
def test_shapes_that_nobody_should_write_raise_nothing_else(broken: JSON) -> None:
    """A foreign document of any shape is a session, if an empty one."""
    session = _back(broken)

    assert "atif:file" == session.uid


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.skipif(not DATA.is_dir(), reason="the shared sessions are not here")
@pytest.mark.parametrize("folder", ["claude-code", "codex", "grok", "agents", "public"])
def test_every_shared_session_comes_back_as_it_was(folder: str) -> None:
    """So do all real sessions that we have, of every agent; some of them outside of prove."""
    number = 0
    for adapter, source in _sources(DATA / folder)[:: by_pace(everyday=20, full=20, prove=1)]:
        _check(load_source(adapter, source))
        number += 1

    assert number


def _sources(folder: Path) -> list[tuple[Any, Any]]:
    sources: dict[tuple[str, str], tuple[Any, Any]] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        for adapter in adapters().values():
            source = adapter.at(path)
            if source is None:
                continue
            is_rows = any(file.rows is not None for file in source.files)
            for listed in sources_at(adapter, path) if is_rows else [source]:
                sources.setdefault((listed.uid, listed.path), (adapter, listed))
    return list(sources.values())
