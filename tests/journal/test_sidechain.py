"""Subagents: their log is theirs, and however they end the parent hears how."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.journal.runs import drop
from thence.errors import BudgetExceeded, NotAppendable
from thence.format import codec
from thence.format.records import Event
from thence.format.transcript import Transcript
from thence.journal.journal import Journal
from thence.journal.log import Log
from thence.journal.session import Session
from thence.journal.sidechain import Sidechain

SECRET = "what only the child saw"


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A journal in a folder of its own."""
    return Journal(tmp_path / "home", durability="none")


@pytest.fixture
def parent(journal: Journal) -> Session:
    """A session that starts subagents."""
    session = journal.create(cwd="/w")
    session.record("user", {"role": "user", "content": "look into it"})
    return session


def events(path: Path | None) -> list[Event]:
    """The events of a file."""
    assert path is not None
    return codec.decode(path.read_bytes()).events


def child_reports(parent: Session) -> list[tuple[Any, Any]]:
    """What the parent's log says of its children: how it stands, and the summary."""
    reports = [e.fields for e in events(parent.transcript_path) if e.type == "sidechain"]
    return [(fields["completion_status"], fields["summary"]) for fields in reports]


def work(child: Sidechain, count: int = 3) -> None:
    """A child says something."""
    for _ in range(count):
        child.record("user", {"role": "user", "content": SECRET})


def work_in_turn(*children: Sidechain) -> None:
    """Children say something in turn, until there is no room."""
    for _ in range(100):
        for child in children:
            child.record("user", {"role": "user", "content": "x" * 200})


def test_a_child_that_finished_leaves_its_summary(parent: Session) -> None:
    """Started, finished, summary; a second end changes nothing."""
    child = parent.sidechain("explorer", tool_use_id="toolu_1")
    work(child)
    child.finish("three callers")
    child.finish("again")
    child.cancel()

    assert [("running", None), ("finished", "three callers")] == child_reports(parent)
    assert ("finished", "three callers") == (child.completion_status, child.summary)
    assert "finished" == events(child.path)[-1].fields["reason"]


def test_a_child_that_raised_is_told_as_crashed(parent: Session) -> None:
    """With the error's own words, and the error goes on."""
    child = parent.sidechain("explorer")
    work(child)
    with pytest.raises(RuntimeError), child:
        raise RuntimeError("out of tokens")

    assert ("crashed", "RuntimeError: out of tokens") == child_reports(parent)[-1]
    assert 5 == len(events(child.path))


def test_a_child_that_ended_without_a_word_is_told_as_crashed(parent: Session) -> None:
    """Never an empty string for a summary that was not given."""
    with parent.sidechain("explorer") as child:
        work(child)

    assert ("crashed", "ended without finish()") == child_reports(parent)[-1]
    assert "crashed" == child.completion_status


def test_a_child_that_was_cancelled_is_told_as_cancelled(parent: Session) -> None:
    """Cancelled is no crash."""
    with parent.sidechain("explorer") as child:
        child.cancel("the user pressed escape")

    assert ("cancelled", "the user pressed escape") == child_reports(parent)[-1]


def test_a_child_that_was_lost_is_still_running_in_the_log(
    journal: Journal, parent: Session
) -> None:
    """The whole process died: resuming works, and the reader says that nothing more was heard."""
    child = parent.sidechain("explorer")
    work(child)
    drop(parent)
    assert parent.transcript_path is not None
    read = Transcript.read(parent.transcript_path.read_bytes())

    assert [("running", None)] == child_reports(parent)
    assert child.agent_id in [n.detail for n in read.report() if n.what == "subagent never ended"]
    assert parent.messages == journal.resume(parent.id).messages


def test_the_parent_knows_nothing_of_what_a_child_saw(journal: Journal, parent: Session) -> None:
    """Id, name, call, status, summary: five fields; not in messages, not in state, not resumed."""
    before = parent.messages
    with parent.sidechain("explorer", tool_use_id="toolu_1") as child:
        work(child)
        child.finish("nothing found")
    last = [e for e in events(parent.transcript_path) if e.type == "sidechain"][-1]
    again = journal.resume(parent.id)
    assert parent.transcript_path is not None

    assert {"agent_id", "tool_use_id", "completion_status", "summary", "name"} == set(last.fields)
    assert (child.agent_id, "toolu_1") == (last.fields["agent_id"], last.fields["tool_use_id"])
    assert SECRET.encode() not in parent.transcript_path.read_bytes()
    assert before == parent.messages == again.messages
    assert SECRET not in json.dumps(again.state.values)


def test_a_child_names_its_parent_and_is_a_session_of_its_own(parent: Session) -> None:
    """The same format: header with the parent's id, a chain of its own, a terminator."""
    with parent.sidechain("explorer") as child:
        work(child)
        child.finish("x")
    made = events(child.path)

    assert (parent.id, child.agent_id) == (
        made[0].fields["session_id"],
        made[0].fields["agent_id"],
    )
    assert [None, *(event.uuid for event in made[:-1])] == [event.prev_uuid for event in made]
    assert ["header", "user", "user", "user", "terminator"] == [event.type for event in made]


def test_the_childs_log_is_on_the_disk_before_the_parent_hears_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its header before its start is told; all of it, synced and closed, before its end is."""
    parent = Journal(tmp_path, durability="turn").create()
    seen: list[tuple[str, list[str], bool]] = []
    plain = Session._write

    def watched(self: Session, kind: str, payload: Any, **how: Any) -> Any:
        path = next((tmp_path / "sidechains" / parent.id).glob("*.jsonl"))
        done = child is not None and child._log is not None and not child._log._unsynced
        seen.append((payload["completion_status"], [e.type for e in events(path)], done))
        return plain(self, kind, payload, **how)

    child: Sidechain | None = None
    monkeypatch.setattr(Session, "_write", watched)
    child = parent.sidechain("explorer")
    work(child, 1)
    child.finish("x")

    assert [
        ("running", ["header"], False),
        ("finished", ["header", "user", "terminator"], True),
    ] == seen


def test_children_share_one_cap_and_passing_it_is_an_error(tmp_path: Path) -> None:
    """The error says how much and what to do; both children's words stay, the end is told."""
    journal = Journal(tmp_path, durability="none", sidechain_cap=4000)
    parent = journal.create()
    first, second = parent.sidechain("one"), parent.sidechain("two")
    with pytest.raises(BudgetExceeded) as error:
        work_in_turn(first, second)
    first.finish("as far as it went")
    size = sum(path.stat().st_size for path in (tmp_path / "sidechains").rglob("*.jsonl"))

    assert "4,000" in error.value.message
    assert error.value.hint
    assert 3500 < size < 4000 + 300
    assert ("finished", "as far as it went") == child_reports(parent)[-1]


def test_a_child_that_passes_the_cap_in_its_block_is_told_as_crashed(tmp_path: Path) -> None:
    """The reason is the cap, once."""
    journal = Journal(tmp_path, durability="none", sidechain_cap=2000)
    parent = journal.create()
    with pytest.raises(BudgetExceeded), parent.sidechain("one") as child:
        work(child, 100)

    assert "crashed" == child_reports(parent)[-1][0]
    assert "BudgetExceeded" in child_reports(parent)[-1][1]
    assert "terminator" == events(child.path)[-1].type


def test_a_child_there_is_no_room_for_is_not_begun(tmp_path: Path) -> None:
    """The parent is not told of a child that never was."""
    parent = Journal(tmp_path, durability="none", sidechain_cap=10).create()
    with pytest.raises(BudgetExceeded):
        parent.sidechain("one")

    assert [] == child_reports(parent)


def test_the_caps_of_two_sessions_are_apart(tmp_path: Path) -> None:
    """One session's children do not take another's room."""
    journal = Journal(tmp_path, durability="none", sidechain_cap=2000)
    for _ in range(3):
        work(journal.create().sidechain("one"), 4)

    assert 3 == len(list((tmp_path / "sidechains").iterdir()))


def test_a_hostile_name_is_no_path(journal: Journal, parent: Session) -> None:
    """Files are named by ids we drew; what an agent is called is display text."""
    child = parent.sidechain("../../../etc/passwd")
    assert child.path is not None

    assert child.path == journal.root / "sidechains" / parent.id / f"{child.agent_id}.jsonl"
    assert "../../../etc/passwd" == events(child.path)[0].fields["name"]


def test_an_ended_child_takes_nothing_more(parent: Session) -> None:
    """Its log is closed; the error says so."""
    child = parent.sidechain("explorer")
    child.finish("done")
    with pytest.raises(NotAppendable):
        work(child)

    assert 2 == len(events(child.path))


@pytest.mark.parametrize("enabled", [True, False])
def test_an_ended_child_says_what_to_do_instead(tmp_path: Path, enabled: bool) -> None:
    """It is not the session that is closed; and one that is takes no other child."""
    journal = Journal(tmp_path, enabled=enabled)
    parent = journal.create(cwd="/w")
    child = parent.sidechain("explorer")
    child.cancel()
    with pytest.raises(NotAppendable, match="explorer has ended: cancelled") as error:
        child.user("on")
    parent.close()
    with pytest.raises(NotAppendable, match="is closed"):
        parent.sidechain("late")

    assert "session.sidechain" in (error.value.hint or "")
    assert [] == (journal.resume(parent.id).recovery.subagents if enabled else [])


@pytest.mark.parametrize("end", ["finish", "cancel", "crash"])
def test_the_parent_hears_of_the_end_although_the_log_cannot_be_closed(
    parent: Session, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fails under the child: the caller gets the error, the parent's log the end."""
    child = parent.sidechain("reader")
    work(child)

    def fails(_log: Log) -> None:
        raise NotAppendable("cannot sync", hint="made up")

    monkeypatch.setattr(Log, "close", fails)
    with pytest.raises(NotAppendable, match="cannot sync"):
        getattr(child, end)("so far")

    assert ("running", None) == child_reports(parent)[0]
    assert (child.completion_status, "so far") == child_reports(parent)[1]


def test_local_to_a_project_each_session_has_its_own_cap(tmp_path: Path) -> None:
    """Sessions share a folder there, and not each other's room."""
    journal = Journal(
        tmp_path / "home", local=tmp_path / "w", durability="none", sidechain_cap=4000
    )
    first, second = journal.create(cwd="/w"), journal.create(cwd="/w")
    greedy, other = first.sidechain("greedy"), second.sidechain("modest")
    with pytest.raises(BudgetExceeded):
        work_in_turn(greedy)
    for _ in range(3):
        other.record("user", {"role": "user", "content": "x" * 200})
    with pytest.raises(BudgetExceeded):
        journal.resume(first.id, mode="continue").sidechain("greedy again")

    assert greedy.path.parent == other.path.parent
    assert 4000 < greedy.path.stat().st_size + other.path.stat().st_size
