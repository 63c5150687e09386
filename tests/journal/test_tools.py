"""The journal as tools: the pack's names, idempotent, and safe in an agent's hands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from thence.errors import SessionNotFound, ThenceError
from thence.journal import Journal
from thence.journal.tools import Tools, definitions


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A journal in a folder of its own."""
    return Journal(tmp_path)


@pytest.fixture
def tools(journal: Journal) -> Iterator[Tools]:
    """Its tools, closed afterwards."""
    with Tools(journal) as made:
        yield made


def event(uuid: str, text: str = "hello", **more: Any) -> dict[str, Any]:
    """An event as an agent passes it."""
    return {"type": "user", "uuid": uuid, "payload": {"role": "user", "content": text}, **more}


def lines(journal: Journal, session: str) -> list[dict[str, Any]]:
    """The lines of a session's file."""
    path = next(entry.path for entry in journal.sessions() if entry.session_id == session)
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_place_told_is_where_the_line_stands(journal: Journal, tools: Tools) -> None:
    """Byte offset and line number lead to the event, behind the header that was made for it."""
    place = tools.append_transcript({"session_id": "s1", "event": event("e1")})
    path = journal.sessions()[0].path
    data = path.read_bytes()

    assert {"byte_offset", "line_number"} == set(place)
    assert 2 == place["line_number"]
    assert "e1" == json.loads(data[place["byte_offset"] :].split(b"\n")[0])["uuid"]
    assert "header" == lines(journal, "s1")[0]["type"]


def test_the_same_uuid_again_writes_nothing(journal: Journal, tools: Tools) -> None:
    """The first place is given again, whatever the second payload says."""
    first = tools.append_transcript({"session_id": "s1", "event": event("e1")})
    tools.append_transcript({"session_id": "s1", "event": event("e2")})
    again = tools.append_transcript({"session_id": "s1", "event": event("e1", "other")})

    assert first == again
    assert ["e1", "e2"] == [line["uuid"] for line in lines(journal, "s1")[1:]]


def test_a_uuid_is_known_across_reopening(tmp_path: Path) -> None:
    """Another process that tries again gets the first place."""
    with Tools(Journal(tmp_path)) as tools:
        first = tools.append_transcript({"session_id": "s1", "event": event("e1")})
    with Tools(Journal(tmp_path)) as tools:
        again = tools.append_transcript({"session_id": "s1", "event": event("e1")})

    assert first == again


def test_the_same_uuid_in_another_session_is_another_event(tools: Tools) -> None:
    """Identity is the pair of session and uuid."""
    first = tools.append_transcript({"session_id": "s1", "event": event("e1")})
    other = tools.append_transcript({"session_id": "s2", "event": event("e1")})

    assert 2 == first["line_number"] == other["line_number"]


def test_a_prefix_of_another_id_is_a_session_of_its_own(journal: Journal, tools: Tools) -> None:
    """Ids are taken whole: an agent never writes into a session that it did not name."""
    tools.append_transcript({"session_id": "s1-long", "event": event("e1")})
    tools.append_transcript({"session_id": "s1", "event": event("e2")})

    assert ["e2"] == [line["uuid"] for line in lines(journal, "s1")[1:]]


def test_a_session_that_is_open_here_is_written_through(journal: Journal, tools: Tools) -> None:
    """What its harness sees stays true, and it stays open when the tools are closed."""
    with journal.create() as session:
        tools.append_transcript({"session_id": session.id, "event": event("e1", "by a tool")})
        tools.close()
        session.record("assistant", {"role": "assistant", "content": "seen"})
        roles = [message["role"] for message in session.messages]

    assert ["user", "assistant"] == roles


def test_an_event_may_name_what_it_goes_on_from(journal: Journal, tools: Tools) -> None:
    """prev_uuid is the caller's; left out it is the last event."""
    for made in (event("e1"), event("e2"), event("e3", prev_uuid="e1")):
        tools.append_transcript({"session_id": "s1", "event": made})
    links = {line["uuid"]: line["prev_uuid"] for line in lines(journal, "s1")}

    assert "e1" == links["e2"] == links["e3"]


@pytest.mark.parametrize(
    "opts",
    [
        {},
        {"session_id": "s1"},
        {"session_id": 7, "event": {}},
        {"session_id": "s1", "event": {"type": "user", "payload": {}}},
        {"session_id": "s1", "event": {"type": "user", "uuid": "", "payload": {}}},
        {"session_id": "s1", "event": {"type": 1, "uuid": "e", "payload": {}}},
        {"session_id": "s1", "event": {"type": "u", "uuid": "e", "payload": 1, "more": 2}},
        "not an object",
    ],
)
def test_bad_input_is_explained_and_writes_nothing(
    journal: Journal, tools: Tools, opts: Any
) -> None:
    """An agent's mistake is an error with a hint, and leaves no session behind."""
    with pytest.raises(ThenceError, match=r"^append_transcript: ") as caught:
        tools.append_transcript(opts)

    assert caught.value.hint
    assert [] == journal.sessions()


@pytest.mark.parametrize("name", ["../up", "a/b", "", "x" * 65, "a.b", "a\0b"])
def test_no_session_id_becomes_a_path(tmp_path: Path, tools: Tools, name: str) -> None:
    """An id from an agent names a session in the home, or nothing."""
    with pytest.raises(SessionNotFound):
        tools.append_transcript({"session_id": name, "event": event("e1")})

    assert [] == list(tmp_path.iterdir())


def test_the_history_is_read_newest_first_by_default(journal: Journal, tools: Tools) -> None:
    """Up-arrow's order, 50 at most, with the four fields and no other."""
    for number in range(60):
        journal.history.add(f"prompt {number}", session_id="s1", project="tidepool")
    newest = tools.read_history()
    oldest = tools.read_history({"limit": 2, "reverse": False})

    assert ["prompt 59", "prompt 58"] == [row["prompt"] for row in newest[:2]]
    assert 50 == len(newest)
    assert {"prompt", "ts", "session_id", "offset"} == set(newest[0])
    assert ["prompt 0", "prompt 1"] == [row["prompt"] for row in oldest]


@pytest.mark.parametrize("opts", [{"limit": "many"}, {"order": "new"}, {"reverse": 1}])
def test_bad_input_to_the_history_is_explained(tools: Tools, opts: dict[str, Any]) -> None:
    """The same for the second tool."""
    with pytest.raises(ThenceError, match=r"^read_history: "):
        tools.read_history(opts)


def test_definitions_are_what_the_api_takes_and_the_tools_do(tools: Tools) -> None:
    """Each has name, description and a schema, and can be called by its name."""
    shown = definitions()

    assert ["append_transcript", "read_history", "read_spill"] == [tool["name"] for tool in shown]
    assert [] == tools.call("read_history", {})
    assert tools.call("append_transcript", {"session_id": "s1", "event": event("e1")})
    for tool in shown:
        schema = tool["input_schema"]
        assert json.loads(json.dumps(schema)) == schema
        assert set(schema["required"]) <= set(schema["properties"])
        assert schema["additionalProperties"] is False


def test_an_unknown_tool_is_refused(tools: Tools) -> None:
    """Names come from an agent as well."""
    with pytest.raises(ThenceError, match="no tool 'rm'"):
        tools.call("rm", {})


def test_switched_off_it_answers_the_same_and_writes_nothing(tmp_path: Path) -> None:
    """Idempotence holds in memory, too."""
    journal = Journal(tmp_path / "home", enabled=False)
    with Tools(journal) as tools:
        first = tools.append_transcript({"session_id": "s1", "event": event("e1")})
        again = tools.append_transcript({"session_id": "s1", "event": event("e1")})
        messages = journal.open_sessions[0].messages

    assert first == again
    assert 1 == len(messages)
    assert not (tmp_path / "home").exists()
