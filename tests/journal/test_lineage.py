"""Sessions that go on from others: what a reference means, and when it is followed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.journal.runs import drop
from thence.errors import NotReadable
from thence.format import codec
from thence.format.records import Event
from thence.journal.journal import Journal
from thence.journal.segmented_log import MAX_SEGMENT_BYTES
from thence.journal.session import Session

CALL = {"type": "tool_use", "id": "c", "name": "Bash", "input": {}}


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A journal in a folder of its own."""
    return Journal(tmp_path / "home", durability="none")


def say(session: Session, text: str, **how: Any) -> str:
    """One prompt."""
    return session.record("user", {"role": "user", "content": text}, **how).uuid


def texts(session: Session) -> list[str]:
    """What is said in a session, block by block."""
    return [b["text"] for m in session.messages for b in m["content"] if b["type"] == "text"]


def path_of(session: Session) -> Path:
    """The file of a session."""
    assert session.transcript_path is not None
    return session.transcript_path


def origin_of(session: Session) -> dict[str, Any]:
    """What a session's header says that it goes on from."""
    origin = codec.decode(path_of(session).read_bytes()).events[0].fields["resumed_from"]
    assert isinstance(origin, dict)
    return origin


def large(journal: Journal) -> Session:
    """A session of a megabyte that was never compacted."""
    session = journal.create(cwd="/w")
    for n in range(1000):
        say(session, f"{n} {'x' * 1000}")
    session.flush()
    return session


# -- forks ------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [True, False])
def test_a_fork_reads_the_place_it_goes_on_from_and_no_more(
    journal: Journal, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However large the session: the rest is read when somebody asks for it."""
    session = large(journal)
    read: list[int] = []
    plain = os.pread

    def watched(handle: int, size: int, offset: int) -> bytes:
        data = plain(handle, size, offset)
        read.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", watched)
    fork = journal.fork(session.id, at=session.tip if named else None)
    forked = sum(read)

    assert 64_000 > forked
    assert 1000 == len(texts(fork))
    assert 1_000_000 < sum(read)


USES: dict[str, Callable[[Session], object]] = {
    "messages": lambda fork: fork.messages,
    "state": lambda fork: fork.state,
    "tip": lambda fork: fork.tip,
    "recovery": lambda fork: fork.recovery,
    "record": lambda fork: say(fork, "more"),
    "record with an id": lambda fork: say(fork, "more", uuid="u"),
    "compact": lambda fork: fork.compact("all"),
    "rewind": lambda fork: fork.rewind("first"),
}


@pytest.mark.parametrize("use", USES)
def test_whatever_is_asked_first_a_fork_has_taken_over(journal: Journal, use: str) -> None:
    """A call that a crash left open is answered before anything else is said."""
    session = journal.create(cwd="/w")
    say(session, "go", uuid="first")
    session.record("assistant", {"role": "assistant", "content": [CALL]})
    drop(session)
    fork = journal.fork(session.id)
    USES[use](fork)
    kinds = [e.fields.get("synthetic") for e in codec.decode(path_of(fork).read_bytes()).events]

    assert [None, True] == kinds[:2]
    assert ["c"] == fork.recovery.mended == fork.recovery.open_calls
    assert "go" not in texts(fork)[1:]


@pytest.mark.parametrize("named", [True, False])
def test_what_happens_after_a_fork_is_not_in_it(journal: Journal, named: bool) -> None:
    """The ancestor goes on, moves its tip, rolls on; the fork reads what stood there then."""
    session = journal.create(cwd="/w")
    first = say(session, "first")
    last = say(session, "last")
    fork = journal.fork(session.id, at=last if named else None)
    session.rewind(first)
    say(session, "elsewhere")
    session.compact("all of it")
    session.close()

    assert ["first", "last"] == texts(fork)
    assert ["first", "last"] == texts(journal.resume(fork.id))


def test_a_fork_at_a_moved_tip_stands_there(journal: Journal) -> None:
    """Where the end of the session is, its log says: not the last line, but the last move."""
    session = journal.create()
    first = say(session, "first")
    say(session, "left")
    session.rewind(first)
    theirs = Event("user", "", "late", origin_event(session), {"role": "user", "content": "late"})
    with path_of(session).open("ab") as file:
        file.write(codec.encode(theirs))
    fork = journal.fork(session.id)

    assert texts(journal.resume(session.id)) == texts(fork) == ["first"]


def origin_event(session: Session) -> str:
    """An event on a branch that the session left."""
    events = codec.decode(path_of(session).read_bytes()).events
    return next(e.uuid for e in events if e.fields.get("content") == "left")


def test_a_fork_of_a_torn_session_names_the_event(journal: Journal) -> None:
    """A last line that may still be written is no place to go on from."""
    session = journal.create()
    first = say(session, "first")
    drop(session)
    with path_of(session).open("ab") as file:
        file.write(b'{"type":"user"')
    fork = journal.fork(session.id)

    assert (first, ["first"]) == (origin_of(fork)["event"], texts(fork))


def test_a_fork_right_after_a_new_segment_names_the_event(tmp_path: Path) -> None:
    """Lines that come late to the old segment must not become the end of what was forked."""
    journal = Journal(tmp_path, durability="none", max_bytes=200)
    session = journal.create()
    say(session, "first " + "x" * 300)
    late = Journal(tmp_path, durability="none").resume(session.id, mode="continue")
    session.flush()
    fork = journal.fork(session.id)
    say(late, "late")

    assert origin_of(fork)["event"] is not None
    assert 1 == len(texts(fork)) == len(texts(journal.resume(fork.id)))
    assert MAX_SEGMENT_BYTES > path_of(late).stat().st_size


def test_a_fork_that_is_closed_unused_reads_nothing(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds a header and an end, and can be resumed like any other."""
    session = journal.create()
    say(session, "first")
    fork = journal.fork(session.id)

    def never(*_: object) -> None:
        raise AssertionError

    with monkeypatch.context() as patch:
        patch.setattr(Session, "take", never)
        fork.close()

    assert ["first"] == texts(journal.resume(fork.id))


def test_a_fork_whose_ancestor_went_before_it_was_read_says_so(journal: Journal) -> None:
    """As with any ancestor that is missing: history starts at the reference."""
    session = journal.create()
    say(session, "first")
    fork = journal.fork(session.id)
    path_of(session).unlink()

    assert [] == texts(fork)
    assert ["ancestor missing"] == [notice.what for notice in fork.recovery.notices]
    say(fork, "fresh")
    assert ["fresh"] == texts(journal.resume(fork.id))


def test_a_place_that_holds_other_bytes_is_told(journal: Journal) -> None:
    """A reference by place is checked by its hash; what can be read is read, with a notice."""
    session = journal.create()
    say(session, "first")
    fork = journal.fork(session.id)
    say(session, "second")
    data = path_of(session).read_bytes()
    path_of(session).write_bytes(data.replace(b'"first"', b'"fIrst"'))

    assert ["fIrst", "second"] == texts(fork)
    assert ["ancestor damaged"] == [notice.what for notice in fork.recovery.notices]


def test_a_take_over_that_failed_is_tried_again(journal: Journal) -> None:
    """The disk fails just then: the error is the caller's, and the next try succeeds."""
    session = journal.create()
    say(session, "first")
    fork = journal.fork(session.id)
    last = path_of(session).with_name(f"{session.id}.0002.jsonl")
    last.mkdir()
    with pytest.raises(NotReadable):
        texts(fork)
    last.rmdir()

    assert ["first"] == texts(fork)


def test_a_fork_begins_with_what_was_spent(journal: Journal) -> None:
    """The header says so without anything having been read back."""
    session = journal.create(cwd="/w", model="m-1")
    session.record("assistant", {"role": "assistant", "content": "x", "cost_usd": 0.5})
    session.close()
    fork = journal.fork(session.id)
    header = json.loads(path_of(fork).read_bytes())["payload"]

    assert (0.5, "/w", "m-1") == (header["inherited_cost"], header["cwd"], header["model"])
    assert (0.0, 0.5) == (fork.cost, fork.cumulative_cost)
