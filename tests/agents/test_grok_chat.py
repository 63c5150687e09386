"""Grok's chat history as the log of older versions, and as the history of a compaction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agents.groks import Folder, Growing, contents_of
from thence.agents.grok.chat import NO_BILLS, replacement, row_of
from thence.format import derived_events
from thence.format.graph import State
from thence.format.repair import problems
from thence.format.session_graph import REWRITTEN
from thence.format.turn import TurnState
from thence.memory.readouts import readout_of


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A session that has a chat history and no other log."""
    return Folder(tmp_path)


def text(content: str) -> list[dict[str, str]]:
    """Content of one text."""
    return [{"type": "text", "text": content}]


CALL = {"id": "c1", "name": "read_file", "arguments": '{"target_file": "a.py"}'}


def test_without_another_log_it_is_the_log(folder: Folder) -> None:
    """G2: rows are events then, without times, since nobody tells any."""
    folder.chat(type="system", content="be good")
    folder.chat(type="user", content=text("Read a.py"), prompt_index=0)
    folder.chat(type="reasoning", id="r1", summary=[{"type": "summary_text", "text": "Open it."}])
    folder.chat(type="assistant", content="Reading.", tool_calls=[CALL], model_id="grok-x")
    folder.chat(type="tool_result", tool_call_id="c1", content="x = 1")
    folder.chat(type="assistant", content="It is 1.", tool_calls=[])

    session = folder.graph
    assert [
        "lifecycle",
        "user_msg",
        "thinking",
        "assistant_msg",
        "tool_call",
        "tool_result",
        "assistant_msg",
    ] == [event.kind for event in session.events]
    assert {None} == {event.ts for event in session.events}
    assert {"target_file": "a.py"} == session.events[4].payload
    assert TurnState.DONE == session.turn().state
    assert [NO_BILLS] == [notice.detail for notice in session.unbilled]


def test_rows_of_the_oldest_versions(folder: Folder) -> None:
    """G3: they say `role`, and spell calls as functions."""
    function = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    folder.chat(role="user", content="go")
    folder.chat(role="assistant", content="on it", tool_calls=[function], reasoning_content="hm")
    folder.chat(role="tool", tool_call_id="c1", content="a.py")

    (pair,) = derived_events.calls(folder.graph.events)
    assert ("ls", "a.py") == (pair.call.tool, pair.result and pair.result.payload)
    assert ["user_msg", "thinking", "assistant_msg"] == [e.kind for e in folder.graph.events[:3]]


@pytest.mark.parametrize(
    "row",
    [
        {"content": text("rules"), "synthetic_reason": "project_instructions"},
        {"content": text("<user_info>\nOS: linux\n</user_info>")},
        {"content": text("<system-reminder>be brief</system-reminder>")},
        {"content": text(" <git_status>clean</git_status>")},
    ],
)
def test_injected_text_is_no_prompt(row: dict[str, Any]) -> None:
    """G3: the harness speaks with the user's mouth; the model hears it, the human never said it."""
    made = row_of({"type": "user", **row})

    assert (False, ["lifecycle"], ["user"]) == (
        made.prompt,
        [block.kind for block in made.blocks],
        [block.role for block in made.blocks],
    )


@pytest.mark.parametrize(
    "row",
    [
        {"content": text("dig")},
        {"content": "dig"},
        {"content": text("<user_query>\ndig\n</user_query>")},
        {"content": text("<system-reminder>x</system-reminder>\n<user_query>\ndig\n</user_query>")},
        {"content": text("dig"), "synthetic_reason": "interjection"},
    ],
)
def test_prompts_are_taken_out_of_their_wrapping(row: dict[str, Any]) -> None:
    """G3: what stands in `<user_query>` is the prompt; an interjection is one as well."""
    made = row_of({"type": "user", **row})

    assert (True, {"type": "text", "text": "dig"}) == (made.prompt, made.blocks[0].payload)


def test_tools_of_the_api_are_told_once(folder: Folder) -> None:
    """G4: a backend call stands in a row of its own and again among the raw items of the reply."""
    search = {"id": "ws1", "status": "completed", "action": {"query": "tides"}}
    folder.chat(type="user", content="look it up")
    folder.chat(type="backend_tool_call", kind={"tool_type": "web_search", **search})
    folder.chat(
        type="assistant",
        content="Found.",
        raw_output=[{"type": "web_search_call", **search}, {"type": "function_call", "id": "f"}],
    )
    folder.chat(type="assistant", content="", tool_calls=[CALL])
    folder.chat(type="assistant", content="", tool_calls=[{**CALL, "id": "ws2"}])

    assert [("web_search", False), ("read_file", None), ("read_file", None)] == [
        (pair.call.tool, pair.ending and pair.ending.failed)
        for pair in derived_events.calls(folder.graph.events)
    ]


def test_a_better_log_that_comes_later_takes_its_place(folder: Folder) -> None:
    """G2: what was read from the chat history is superseded, not doubled."""
    growing = Growing(folder)
    folder.chat(type="user", content="go")
    growing.read()
    folder.turn("go", 0)
    session = growing.read()

    assert [("user_msg", State.LIVE), ("user_msg", State.DEAD)] == [
        (e.kind, e.state) for e in session.events if e.kind == "user_msg"
    ]
    assert [REWRITTEN] == [e.why for e in session.events if e.why]


def test_reading_row_by_row_gives_the_same(tmp_path: Path) -> None:
    """R1: whatever the pieces."""
    complete, part = Folder(tmp_path / "a"), Folder(tmp_path / "b")
    growing = Growing(part)
    search = {"type": "web_search_call", "id": "ws1", "status": "completed"}
    for folder in (complete, part):
        for row in (
            {"type": "user", "content": "go"},
            {"type": "assistant", "content": "a", "raw_output": [search]},
            {"type": "backend_tool_call", "kind": {**search, "tool_type": "web_search"}},
            {"type": "assistant", "content": "b"},
        ):
            folder.chat(**row)
            if folder is part:
                got = growing.read()

    assert contents_of(complete.graph) == contents_of(got)


def test_a_replacement_goes_to_the_model_and_is_nobodys_event() -> None:
    """G11: calls and prompts that a compaction kept were events before, and are none again."""
    rows = [
        {"type": "system", "content": "be good"},
        {"type": "user", "content": "dig"},
        {"type": "assistant", "content": "", "tool_calls": [CALL]},
        {"type": "tool_result", "tool_call_id": "c1", "content": "x"},
        "junk",
    ]

    assert [("lifecycle", "user"), ("lifecycle", "assistant"), ("lifecycle", "tool")] == [
        (block.kind, block.role) for block in replacement(rows)
    ]


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "id", "name", "function", "arguments", "content"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
ROWS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            ["user", "assistant", "tool_result", "reasoning", "backend_tool_call", "system", "x", 1]
        )
    },
    optional=dict.fromkeys(
        ("content", "tool_calls", "raw_output", "kind", "tool_call_id", "summary"), JUNK
    ),
)


@given(st.lists(ROWS, max_size=6))
def test_no_row_raises(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    """R6: whatever a row holds, it is read, as the log and as a mirror."""
    folder, beside = (Folder(tmp_path_factory.mktemp("rows")) for _ in range(2))
    beside.turn("go", 0)
    for row in rows:
        folder.chat(**row)
        beside.chat(**row)

    assert len(rows) == len(folder.graph.facts if rows else [])
    assert 3 == len(beside.graph.events)
    assert [] == problems(readout_of(folder.graph).messages().messages) if rows else True
