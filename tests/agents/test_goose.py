"""goose: databases as its client writes them, against what the API billed."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.agents.agents import billed, counted, outcomes, sessions_of
from tests.agents.databases import Step, at_once, event_rows, grown, insert, run
from thence.agents.goose.reader import Goose
from thence.agents.goose.rows import KILLED, TITLE
from thence.format.session_graph import SessionGraph
from thence.memory.readouts import readout_of
from thence.testing import AdapterSuite
from thence.testing.readers import CHECKS

HOME = "home/.local/share/goose"
PARENT, CHILD = "20260504_1", "20260504_2"
ADAPTER = Goose()
START_S = 1_777_888_800
SCHEMA = """
CREATE TABLE sessions (id TEXT PRIMARY KEY, name TEXT NOT NULL DEFAULT '', user_set_name BOOLEAN,
  session_type TEXT NOT NULL DEFAULT 'user', working_dir TEXT NOT NULL,
  created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
  accumulated_input_tokens INTEGER, accumulated_output_tokens INTEGER, model_config_json TEXT);
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT,
  session_id TEXT NOT NULL, role TEXT NOT NULL, content_json TEXT NOT NULL,
  created_timestamp INTEGER NOT NULL, metadata_json TEXT);
CREATE INDEX idx_messages_session ON messages(session_id);
"""


def session(name: str, kind: str = "user", title: str = "Mending") -> Step:
    """A session."""
    row = {"working_dir": "/home/dev/demo", "created_at": "2026-05-04 10:00:00"}
    model = {"model_name": "mock-1"}
    more = {"updated_at": "2026-05-04 10:00:30", "model_config_json": model}
    return insert("sessions", id=name, name=title, session_type=kind, **row, **more)


def total(input_tokens: int, output: int, name: str = PARENT) -> Step:
    """The total of a session so far."""
    query = "UPDATE sessions SET accumulated_input_tokens = ?, accumulated_output_tokens = ?"
    return f"{query} WHERE id = ?", (input_tokens, output, name)


def message(second: int, role: str, *parts: dict[str, Any], **more: Any) -> Step:
    """A row of a session."""
    place = {"session_id": more.pop("name", PARENT), "created_timestamp": START_S + second}
    shown = {"userVisible": True, "agentVisible": True, **more}
    name = f"msg_{second}"
    content = list(parts)
    return insert(
        "messages", message_id=name, role=role, content_json=content, metadata_json=shown, **place
    )


def text(line: str) -> dict[str, Any]:
    """A text."""
    return {"type": "text", "text": line}


def asked(call: str, tool: str, **arguments: Any) -> dict[str, Any]:
    """A call."""
    value = {"name": tool, "arguments": arguments}
    return {"type": "toolRequest", "id": call, "toolCall": {"status": "success", "value": value}}


def gave(call: str, line: str, **more: Any) -> dict[str, Any]:
    """The result of a call."""
    value = {"content": [text(line)], "isError": False, **more}
    return {"type": "toolResponse", "id": call, "toolResult": {"status": "success", "value": value}}


def steps() -> list[Step]:
    """A session with a subagent and a killed step."""
    thought = {"type": "thinking", "thinking": "Hm.", "signature": ""}
    return [
        session(PARENT),
        message(1, "user", text("Mend it")),
        message(2, "assistant", thought, text("Let me look.")),
        message(3, "assistant", asked("c1", "shell", command="make")),
        message(4, "user", gave("c1", "no rule", structuredContent={"exit_code": 2})),
        total(1000, 10),
        session(CHILD, "sub_agent", "Delegated task"),
        message(5, "user", text("Count the files"), name=CHILD),
        message(6, "assistant", text("Two."), name=CHILD),
        total(500, 5, CHILD),
        message(7, "assistant", asked("c2", "delegate", instructions="Count the files")),
        message(8, "user", gave("c2", "Two.", _meta={"subagent_session_id": CHILD})),
        message(9, "assistant", text("It has no rule.")),
        total(3300, 30),
        message(10, "user", text("Wait")),
        message(11, "user", text("Try this")),
        message(12, "assistant", asked("c3", "edit", path="a.py", before="x", after="y")),
        message(13, "user", gave("c3", "No match", isError=True)),
        message(14, "assistant", text("No.")),
        total(4400, 40),
    ]


def write(root: Path) -> None:
    """Write the made-up sessions."""
    run(root / "sessions/sessions.db", SCHEMA, steps())


# -- real sessions --------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["tools", "resume", "subagent"])
def test_tokens_calls_and_prompts_are_what_the_api_billed(shared: Path, scenario: str) -> None:
    """Every field that the client keeps is exact; it does not tell what the cache gave."""
    home = shared / "data" / "agents" / "goose" / scenario
    sessions = sessions_of(ADAPTER, home / HOME).values()
    truth = billed(home, unlogged=("side",), side=())
    counts = counted(ADAPTER, home / HOME)

    assert (truth.own.input, truth.own.output) == (counts.own.input, counts.own.output)
    assert (truth.calls, truth.prompts) == (counts.calls, counts.prompts)
    assert {TITLE} == {notice.detail for graph in sessions for notice in graph.unbilled}
    assert {"done"} == {str(graph.turn().state) for graph in sessions}
    assert {"/home/dev/demo"} == {graph.session().cwd for graph in sessions}


def test_a_killed_step_is_a_lower_bound(shared: Path) -> None:
    """Its prompt alone is on the disk; the total says that something is missing."""
    home = shared / "data" / "agents" / "goose" / "killed"
    truth, counts = billed(home, unlogged=("side",), side=()), counted(ADAPTER, home / HOME)
    (killed,) = sessions_of(ADAPTER, home / "at-kill/.local/share/goose").values()
    (graph,) = sessions_of(ADAPTER, home / HOME).values()

    assert (truth.own.input - 1230, truth.own.output - 33) == (counts.own.input, counts.own.output)
    assert ({"tree": 2}, truth.prompts) == (counts.calls, counts.prompts)
    assert {KILLED, TITLE} == {notice.detail for notice in graph.unbilled}
    assert ("running", "done") == (str(killed.turn().state), str(graph.turn().state))


def test_a_real_subagent_is_linked_to_its_call(shared: Path) -> None:
    """By the result of the call."""
    home = shared / "data" / "agents" / "goose" / "subagent"
    parent, child = sessions_of(ADAPTER, home / HOME).values()

    assert [("subagent", child.native, "call_2_0", True)] == [
        (e.link, e.session, e.call, e.child) for e in parent.edges
    ]


# -- made-up sessions -----------------------------------------------------------------------


@pytest.mark.parametrize("check", CHECKS)
def test_the_adapter_suite_passes(check: str) -> None:
    """Growth, damage, deleted rows, moving and hostile values change nothing that must stay."""
    assert [] == AdapterSuite(ADAPTER, write, rounds=10).complaints(check)


def test_read_after_every_row_it_is_the_session_read_at_once(tmp_path: Path) -> None:
    """Totals are told as often as they are read, and their sum is the last one."""
    write(tmp_path / "whole")
    expected = at_once(ADAPTER, tmp_path / "whole")
    path = tmp_path / "grown/sessions/sessions.db"
    one_by_one = grown(ADAPTER, tmp_path / "grown", path, SCHEMA, steps())

    assert {name: event_rows(graph) for name, graph in expected.items()} == {
        name: event_rows(graph) for name, graph in one_by_one.items()
    }
    assert {name: graph.spent.own for name, graph in expected.items()} == {
        name: graph.spent.own for name, graph in one_by_one.items()
    }


def test_made_up_sessions_are_told_in_full(tmp_path: Path) -> None:
    """Calls with their outcome, thoughts, the subagent, and what was lost with a kill."""
    write(tmp_path)
    parent, child = sessions_of(ADAPTER, tmp_path).values()

    assert [
        ("shell", True, True, 2),
        ("delegate", True, False, None),
        ("edit", True, True, None),
    ] == outcomes(parent)
    assert ("Mending", "/home/dev/demo", "mock-1") == (
        parent.title,
        parent.session().cwd,
        parent.session().model,
    )
    assert (4440, 505) == (parent.spent.own, child.spent.own)
    assert ["Hm."] == [e.summary for e in parent.events if e.kind == "thinking"]
    assert {KILLED, TITLE} == {notice.detail for notice in parent.unbilled}
    assert [] == [e for e in child.events if e.kind == "user_msg"]


def test_a_compaction_replaces_all_rows_and_loses_none(tmp_path: Path) -> None:
    """The rows come back under other numbers, out of the model's sight, before a summary."""
    write(tmp_path)
    source = next(s for s in ADAPTER.find(tmp_path) if s.session == PARENT)
    batch = ADAPTER.read(source)
    before = {e.event_id for e in SessionGraph(source.uid, batch.events).events}
    database = sqlite3.connect(tmp_path / "sessions/sessions.db")
    columns = "message_id, session_id, role, content_json, created_timestamp"
    hidden = '{"userVisible":true,"agentVisible":false}'
    database.execute("CREATE TEMP TABLE old AS SELECT * FROM messages ORDER BY id")
    database.execute("DELETE FROM messages WHERE session_id = ?", (PARENT,))
    query = f"INSERT INTO messages ({columns}, metadata_json) SELECT {columns}, ? FROM old"
    database.execute(f"{query} WHERE session_id = ? ORDER BY id", (hidden, PARENT))
    for statement, values in (
        message(20, "user", text("It was mended."), userVisible=False),
        message(21, "user", text("And now?")),
    ):
        database.execute(statement, values)
    database.commit()
    database.close()
    source = next(s for s in ADAPTER.find(tmp_path) if s.session == PARENT)
    again = ADAPTER.read(source, batch.cursor)
    graph = SessionGraph(source.uid, [*batch.events, *again.events])
    texts = [p.get("text") for m in readout_of(graph).messages().messages for p in m["content"]]

    assert before <= {e.event_id for e in graph.events}
    assert ["It was mended.", "And now?"] == texts
    assert 4440 == graph.spent.own


def test_roots_follow_the_variables() -> None:
    """One variable moves all of it, another the data of all programs."""
    home = Path("/home/dev")
    paths = ADAPTER.roots(home, {"GOOSE_PATH_ROOT": "/g", "XDG_DATA_HOME": "/data"})

    assert [Path("/g/data"), Path("/data/goose")] == paths[:2]
    assert home / ".local/share/goose" in paths
