"""Sessions that go on with another one are read with it on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.agents import rollouts
from tests.cli.desk import Desk
from thence import Journal
from thence.memory.sqlite import Sqlite

PROMPTS = ["Why is the build red?", "Which one?", "And now?", "Push it."]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine without sessions."""
    return Desk(tmp_path, monkeypatch)


def turn(session: Any, prompt: str, reply: str) -> None:
    """Record one turn that cost a cent."""
    session.record("user", {"role": "user", "content": prompt})
    answer = {"role": "assistant", "content": reply, "model": "claude-sonnet-4-5", "cost_usd": 0.01}
    session.record("assistant", {**answer, "usage": {"input_tokens": 10, "output_tokens": 5}})
    session.flush()


@pytest.fixture
def ids(desk: Desk) -> list[str]:
    """Three generations of a session of the journal, swept."""
    journal = Journal(desk.home)
    with journal.create(cwd="/home/dev/tidepool", model="m-1") as first:
        turn(first, PROMPTS[0], "A test fails.")
        turn(first, PROMPTS[1], "The tide table.")
    with journal.resume(first.id) as second:
        turn(second, PROMPTS[2], "It is green.")
    with journal.resume(second.id) as third:
        turn(third, PROMPTS[3], "Pushed.")
    desk.sweep()
    return [first.id, second.id, third.id]


def prompts_of(messages: list[Any]) -> list[str]:
    """What the user said in messages."""
    return [message["content"][0]["text"] for message in messages if message["role"] == "user"]


@pytest.mark.parametrize("form", [("show",), ("tree",), ("show", "--as", "markdown")])
def test_an_adopted_session_is_shown_with_its_ancestors_and_borders(
    desk: Desk, ids: list[str], form: tuple[str, ...]
) -> None:
    """Each form holds all prompts in their order, and says where a session ends."""
    text = desk.run(form[0], ids[2], *form[1:]).out
    places = [text.rindex(prompt) for prompt in PROMPTS]

    assert sorted(places) == places
    assert f"ontinued from {ids[0][:13]}, 4 messages" in text
    assert f"ontinued from {ids[1][:13]}, 2 messages" in text


@pytest.mark.parametrize("form", [("show",), ("tree",), ("show", "--as", "markdown")])
def test_own_shows_only_the_sessions_own_part(
    desk: Desk, ids: list[str], form: tuple[str, ...]
) -> None:
    """`--own` leaves out what others said."""
    text = desk.run(form[0], ids[2], *form[1:], "--own").out

    assert "Which one?" not in text
    assert PROMPTS[3] in text


def test_messages_are_whole_and_own_ones_can_be_had(desk: Desk, ids: list[str]) -> None:
    """`--as messages` is what the model saw; `--own` the end of it."""
    messages = desk.run("show", ids[2], "--as", "messages").json
    own = desk.run("show", ids[2], "--as", "messages", "--own").json

    assert (PROMPTS, PROMPTS[3:]) == (prompts_of(messages), prompts_of(own))


def test_json_holds_the_ancestors_apart(desk: Desk, ids: list[str]) -> None:
    """Events of ancestors have their own session; the session's events are not mixed with them."""
    shown = desk.run("show", ids[2], "--json").json
    parts = shown["continued_from"]

    assert [f"thence:{name}" for name in ids[:2]] == [part["session_uid"] for part in parts]
    assert [4, 2] == [part["messages"] for part in parts]
    assert {f"thence:{ids[2]}"} == {event["session_uid"] for event in shown["events"]}


def test_a_title_is_that_of_the_lineage_in_every_listing(desk: Desk, ids: list[str]) -> None:
    """Sessions that nobody named are called as what they continue; money stays apart."""
    listed = desk.run("ls", "--json").json
    resumable = desk.run("resume", "--json").json

    assert {PROMPTS[0]} == {row["title"] for row in listed}
    assert {PROMPTS[0]} == {row["title"] for row in resumable}
    assert [0.01, 0.01, 0.02] == sorted(round(sum(o["usd"].values()), 4) for o in listed)
    assert desk.run("show", ids[2]).out.startswith(PROMPTS[0])


def test_the_title_of_the_lineage_is_shown_and_never_stored(desk: Desk, ids: list[str]) -> None:
    """`keep` writes the row of a session: its own title stays what it is."""
    assert desk.run("digest", ids[2]).out.startswith(PROMPTS[0])
    assert 0 == desk.run("keep", ids[2]).code
    store = Sqlite(str(desk.home / "memory" / "thence.db"))
    rows = {row.session.native_session_id: row for row in store.sessions()}
    store.close()

    assert (True, PROMPTS[3]) == (rows[ids[2]].pinned, rows[ids[2]].title)


def test_resume_takes_the_last_session_when_asked(desk: Desk, ids: list[str]) -> None:
    """`--last` needs no id and asks nothing."""
    assert f"thence:{ids[2]}" == desk.run("resume", "--last", "--json").json["session_uid"]


# -- Codex, which refers to the log it goes on from ------------------------------------------


def fork(desk: Desk) -> tuple[Path, Path]:
    """Write a session of Codex and one that goes on from it by reference."""
    folder = desk.codex / "sessions" / "2026" / "01" / "01"
    folder.mkdir(parents=True)
    first = [rollouts.meta(rollouts.A), rollouts.user("one"), rollouts.assistant("1")]
    base = {"thread_id": rollouts.A, "end_byte_offset": len(rollouts.bytes_of(first))}
    head = rollouts.meta(rollouts.B, forked_from_id=rollouts.A, history_base=base)
    second = [head, rollouts.user("two"), rollouts.assistant("2")]
    paths = []
    for name, lines in ((rollouts.A, first), (rollouts.B, second)):
        paths.append(folder / f"rollout-2026-01-01T00-00-00-{name}.jsonl")
        paths[-1].write_bytes(rollouts.bytes_of(lines))
    return paths[0], paths[1]


def test_a_fork_by_reference_is_read_whole_from_the_store(desk: Desk) -> None:
    """With both sources gone the stored parent gives its part."""
    sources = fork(desk)
    desk.sweep()
    for path in sources:
        path.unlink()
    shown = desk.run("show", rollouts.B)

    assert ["one", "two"] == prompts_of(desk.run("show", rollouts.B, "--as", "messages").json)
    assert f"continued from {rollouts.A[:13]}, 2 messages" in shown.out


def test_a_fork_whose_parent_was_evicted_is_read_whole(desk: Desk) -> None:
    """The parent's part comes from its source as long as that is there."""
    fork(desk)
    desk.sweep()
    uid = f"codex:{rollouts.A}"
    store = Sqlite(str(desk.home / "memory" / "thence.db"))
    store.remove([uid], why={uid: "too old"})
    store.close()

    assert ["one", "two"] == prompts_of(desk.run("show", rollouts.B, "--as", "messages").json)


def test_a_fork_is_handed_over_whole_though_its_parents_source_is_gone(desk: Desk) -> None:
    """The session itself comes from its source, what it continues from the store."""
    parent, _ = fork(desk)
    desk.sweep()
    parent.unlink()
    report = desk.run("handoff", rollouts.B, "--to", "claude", "-n", "--json").json

    assert 4 == report["messages"]


def test_a_list_names_the_model_that_answered_last(desk: Desk) -> None:
    """Not the one that the session began with; that one where no answer names its own."""
    journal = Journal(desk.home)
    with journal.create(cwd="/home/dev/tidepool", model="m-1") as answered:
        turn(answered, PROMPTS[0], "A test fails.")
    with journal.create(cwd="/home/dev/tidepool", model="m-1") as asked:
        asked.record("user", {"role": "user", "content": PROMPTS[1]})
    desk.sweep()
    models = {row["native_session_id"]: row["model"] for row in desk.run("ls", "--json").json}
    shown = desk.run("show", answered.id, "--as", "events").json["session"]["model"]

    assert {answered.id: "claude-sonnet-4-5", asked.id: "m-1"} == models
    assert "claude-sonnet-4-5" == shown
