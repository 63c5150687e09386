"""Hermes Agent: databases as its client writes them, against what the API billed."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.agents.agents import Bill, Scenario, billed, counted, outcomes, sessions_of
from tests.agents.databases import Step, at_once, event_rows, grown, insert, run
from thence.agents.hermes.reader import Hermes
from thence.format.session_graph import SessionGraph
from thence.memory.readouts import readout_of
from thence.testing import AdapterSuite
from thence.testing.readers import CHECKS

HOME = "home/.hermes"
PARENT, CHILD, BRANCH, CHAT = "20260504_100000_aaaaaa", "20260504_1_child", "2_branch", "3_chat"
ADAPTER = Hermes()
START_S = 1_777_888_800.25
SCHEMA = """
CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, model TEXT,
  model_config TEXT, parent_session_id TEXT, started_at REAL NOT NULL, ended_at REAL,
  end_reason TEXT, input_tokens INTEGER DEFAULT 0, output_tokens INTEGER DEFAULT 0,
  cache_read_tokens INTEGER DEFAULT 0, cache_write_tokens INTEGER DEFAULT 0, cwd TEXT,
  git_branch TEXT, title TEXT, rewind_count INTEGER NOT NULL DEFAULT 0);
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL,
  role TEXT NOT NULL, content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT,
  timestamp REAL NOT NULL, finish_reason TEXT, reasoning TEXT, reasoning_content TEXT,
  observed INTEGER DEFAULT 0, active INTEGER NOT NULL DEFAULT 1,
  compacted INTEGER NOT NULL DEFAULT 0);
CREATE INDEX idx_messages_session_active ON messages (session_id, active, timestamp);
CREATE TABLE session_model_usage (session_id TEXT NOT NULL, model TEXT NOT NULL,
  task TEXT NOT NULL DEFAULT '', input_tokens INTEGER NOT NULL DEFAULT 0,
  output_tokens INTEGER NOT NULL DEFAULT 0, cache_read_tokens INTEGER NOT NULL DEFAULT 0,
  cache_write_tokens INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (session_id, model, task));
"""


def session(name: str, source: str = "cli", **more: Any) -> Step:
    """A session."""
    more = {"cwd": "/home/dev/demo", "model": "mock-1", **more}
    return insert("sessions", id=name, source=source, started_at=START_S, **more)


def message(second: int, role: str, content: str | None, name: str = PARENT, **more: Any) -> Step:
    """A row of a session."""
    row = {"session_id": name, "role": role, "content": content, "timestamp": START_S + second}
    return insert("messages", **row, **more)


def called(second: int, tool: str, arguments: str, call: str, **more: Any) -> Step:
    """An answer that is a call."""
    asked = [{"id": call, "type": "function", "function": {"name": tool, "arguments": arguments}}]
    return message(second, "assistant", "", tool_calls=asked, finish_reason="tool_calls", **more)


def billed_for(tokens: int, name: str = PARENT, task: str = "") -> Step:
    """The total of a session so far: a hundred of it from the cache."""
    query = "INSERT OR REPLACE INTO session_model_usage VALUES (?, ?, ?, ?, ?, 100, 0)"
    return query, (name, "mock-1", task, tokens - 100, tokens // 100)


def steps() -> list[Step]:
    """A session with a refused answer, a subagent, a rewind and a compaction; and others."""
    return [
        session(PARENT, git_branch="main", title="Mending"),
        message(1, "user", "Mend it"),
        billed_for(1000),
        called(
            2, "terminal", '{"command": "make"}', "c1", reasoning="Hm.", reasoning_content="Hm."
        ),
        message(3, "tool", '{"output": "no rule", "exit_code": 2}', tool_call_id="c1"),
        message(4, "assistant", "It is mended.", finish_reason="verification_required"),
        billed_for(2000),
        message(5, "assistant", "It has no rule.", finish_reason="stop"),
        message(6, "user", "Delegate"),
        called(7, "delegate_task", '{"goal": "Count the files"}', "c2"),
        message(8, "tool", '{"status": "dispatched"}', tool_call_id="c2"),
        session(CHILD, "subagent", parent_session_id=PARENT, cwd=None),
        message(9, "user", "Count the files", CHILD),
        message(10, "assistant", "Two.", CHILD, finish_reason="stop"),
        billed_for(500, CHILD),
        message(11, "user", "Try this"),
        message(12, "assistant", "No.", finish_reason="stop"),
        ("UPDATE messages SET active = 0 WHERE timestamp >= ?", (START_S + 11,)),
        message(13, "user", "Go on"),
        message(14, "assistant", "Yes.", finish_reason="stop"),
        billed_for(3000),
        billed_for(140, task="title_generation"),
        session(BRANCH, parent_session_id=PARENT, model_config={"_branched_from": PARENT}),
        message(1, "user", "Mend it", BRANCH),
        message(20, "user", "Another way", BRANCH),
        message(21, "assistant", "So be it.", BRANCH, finish_reason="stop"),
        billed_for(700, BRANCH),
        session(CHAT, "telegram", user_id="of somebody"),
        message(30, "user", "Hello, this is a friend", CHAT),
    ]


def write(root: Path) -> None:
    """Write the made-up sessions."""
    run(root / "state.db", SCHEMA, steps())


def without_requests(scenario: Scenario) -> tuple[Bill, dict[str, int], int]:
    """Return what can be compared: totals do not tell how many requests there were."""
    return (
        Bill(0, scenario.own.input, scenario.own.cached, scenario.own.output),
        scenario.calls,
        scenario.prompts,
    )


# -- real sessions --------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["tools", "resume", "subagent", "error", "killed"])
def test_tokens_calls_and_prompts_are_what_the_api_billed(shared: Path, scenario: str) -> None:
    """Every field is exact, killed and refused answers included; nothing is a lower bound."""
    home = shared / "data" / "agents" / "hermes" / scenario
    sessions = sessions_of(ADAPTER, home / HOME).values()
    truth = without_requests(billed(home, unlogged=("unanswered",), side=()))

    assert truth == without_requests(counted(ADAPTER, home / HOME))
    assert [] == [notice for graph in sessions for notice in graph.unbilled]
    assert {"/home/dev/demo"} == {graph.session().cwd for graph in sessions}
    assert {"mock-1"} == {graph.session().model for graph in sessions}


def test_a_real_subagent_is_linked_to_its_call(shared: Path) -> None:
    """Nothing but its goal tells which call it was; it was cut off with its parent."""
    home = shared / "data" / "agents" / "hermes" / "subagent"
    parent, child = sessions_of(ADAPTER, home / HOME).values()

    assert [("subagent", child.native, "call_1_0", True)] == [
        (e.link, e.session, e.call, e.child) for e in parent.edges
    ]
    assert [("subagent", parent.native)] == [(e.link, e.session) for e in child.edges]
    assert ("done", "interrupted") == (str(parent.turn().state), str(child.turn().state))


def test_a_real_killed_call_has_no_result(shared: Path) -> None:
    """Its bill is there already."""
    home = shared / "data" / "agents" / "hermes" / "killed"
    (killed,) = sessions_of(ADAPTER, home / "at-kill/.hermes").values()
    (graph,) = sessions_of(ADAPTER, home / HOME).values()

    assert ("terminal", False, False, None) == outcomes(graph)[0]
    assert ("running", "done") == (str(killed.turn().state), str(graph.turn().state))
    assert 1263 == killed.spent.own


# -- made-up sessions -----------------------------------------------------------------------


@pytest.mark.parametrize("check", CHECKS)
def test_the_adapter_suite_passes(check: str) -> None:
    """Growth, damage, deleted rows, moving and hostile values change nothing that must stay."""
    assert [] == AdapterSuite(ADAPTER, write, rounds=10).complaints(check)


def test_read_after_every_row_it_is_the_session_read_at_once(tmp_path: Path) -> None:
    """Totals are told as often as they are read, and their sum is the last one."""
    write(tmp_path / "whole")
    expected = at_once(ADAPTER, tmp_path / "whole")
    one_by_one = grown(ADAPTER, tmp_path / "grown", tmp_path / "grown/state.db", SCHEMA, steps())
    for name, graph in expected.items():
        left = [row for row in event_rows(one_by_one[name]) if "taken back" not in row[2]]
        if name != PARENT:  # the rewind was seen before the rows after it
            assert event_rows(graph) == left
        assert [row[:4] for row in event_rows(graph)] == [row[:4] for row in left]
        assert graph.spent.own == one_by_one[name].spent.own


def test_made_up_sessions_are_told_in_full(tmp_path: Path) -> None:
    """Refused answers, taken back rows, requests for titles; no chat of other people."""
    write(tmp_path)
    sessions = sessions_of(ADAPTER, tmp_path)
    parent, child, branch = sessions[PARENT], sessions[CHILD], sessions[BRANCH]

    assert {PARENT, CHILD, BRANCH} == set(sessions)
    assert [("terminal", True, True, 2), ("delegate_task", True, False, None)] == outcomes(parent)
    assert ("Mending", "/home/dev/demo", "main") == (
        parent.title,
        parent.session().cwd,
        parent.session().git_branch,
    )
    assert (3030 + 141, 505, 707) == (parent.spent.own, child.spent.own, branch.spent.own)
    prompts = [(e.summary, str(e.state)) for e in parent.events if e.kind == "user_msg"]
    assert [
        ("Mend it", "live"),
        ("Delegate", "live"),
        ("Try this", "dead"),
        ("Go on", "live"),
    ] == prompts
    answers = [e.summary for e in parent.events if e.kind == "assistant_msg"]
    assert ["It has no rule.", "No.", "Yes."] == answers
    assert "Count the files" == child.title
    assert {"2026-05-04"} == {(event.ts or "")[:10] for event in parent.events if event.usage}
    assert [("subagent", CHILD, "c2")] == [(e.link, e.session, e.call) for e in parent.edges]
    assert [("fork", PARENT)] == [(e.link, e.session) for e in branch.edges]
    assert ["replayed", "live"] == [str(e.state) for e in branch.events if e.kind == "user_msg"]


def test_a_compaction_begins_with_its_summary(tmp_path: Path) -> None:
    """Rows before it are kept as they were; the last ones are written once more, and said once."""
    summary = "[CONTEXT COMPACTION - REFERENCE ONLY] It was mended."
    more = [
        (
            "UPDATE messages SET active = 0, compacted = 1 WHERE session_id = ? AND active",
            (PARENT,),
        ),
        message(40, "user", summary),
        message(13, "user", "Go on"),
        message(14, "assistant", "Yes.", finish_reason="stop"),
        message(41, "user", "And now?"),
    ]
    run(tmp_path / "state.db", SCHEMA, [*steps(), *more])
    graph = sessions_of(ADAPTER, tmp_path)[PARENT]
    texts = [p.get("text") for m in readout_of(graph).messages().messages for p in m["content"]]

    assert [summary, "Go on", "Yes.", "And now?"] == texts
    assert 5 == sum(e.kind == "user_msg" for e in graph.events)


def test_rows_that_were_replaced_stay(tmp_path: Path) -> None:
    """A retry deletes the last rows and writes others: both are here, the first ones dead."""
    write(tmp_path)
    source = next(s for s in ADAPTER.find(tmp_path) if s.session == PARENT)
    batch = ADAPTER.read(source)
    database = sqlite3.connect(tmp_path / "state.db")
    database.execute("DELETE FROM messages WHERE timestamp >= ?", (START_S + 13,))
    for statement, values in (message(50, "user", "Go on, please"),):
        database.execute(statement, values)
    database.commit()
    database.close()
    source = next(s for s in ADAPTER.find(tmp_path) if s.session == PARENT)
    again = ADAPTER.read(source, batch.cursor)
    graph = SessionGraph(source.uid, [*batch.events, *again.events])
    prompts = {e.summary: str(e.state) for e in graph.events if e.kind == "user_msg"}

    assert ("dead", "live") == (prompts["Go on"], prompts["Go on, please"])
    assert 3171 == graph.spent.own


def test_totals_of_several_providers_are_added(tmp_path: Path) -> None:
    """One model may be billed by two of them."""
    schema = SCHEMA.replace(", PRIMARY KEY (session_id, model, task)", "")
    twice = [billed_for(1000), billed_for(1000), message(1, "user", "Hi"), session(PARENT)]
    run(tmp_path / "state.db", schema, twice)

    assert 2020 == sessions_of(ADAPTER, tmp_path)[PARENT].spent.own


def test_roots_are_those_of_all_profiles(tmp_path: Path) -> None:
    """Each profile has a database of its own."""
    (tmp_path / ".hermes/profiles/work").mkdir(parents=True)
    usual = tmp_path / ".hermes"

    assert [usual, usual / "profiles/work"] == ADAPTER.roots(tmp_path, {})
    assert [Path("/h"), usual, usual / "profiles/work"] == ADAPTER.roots(
        tmp_path, {"HERMES_HOME": "/h"}
    )
