"""Sessions that others write as well: what a handle learns of it, and what of calls that run."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.journal.test_journal import path_of
from thence.errors import NotAppendable, ThenceError, remedy
from thence.format.repair import INTERRUPTED, NO_RESULT_YET
from thence.journal import Journal, Session
from thence.journal.aio import AsyncSession
from thence.journal.beginnings import begin
from thence.journal.log import Disk

OTHER = """
import sys, thence
session = thence.Journal(sys.argv[1]).create(cwd="/w", session="run-1")
session.user("go")
session.assistant([{"type": "tool_use", "id": "c1", "name": "Bash", "input": {}}])
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A home."""
    return Journal(tmp_path, durability="none")


def pair(journal: Journal) -> tuple[Session, Session]:
    """Two handles of one session, with a first prompt."""
    first = journal.create(cwd="/w")
    first.user("first")
    return first, journal.resume(first.id, mode="continue")


def texts(session: Session) -> list[Any]:
    """What the model sees, as plain texts."""
    return [b.get("text") for m in session.messages for b in m["content"]]


def result_of(session: Session, call: str) -> Any:
    """What the model sees as the result of a call."""
    results = [b for m in session.messages for b in m["content"] if b.get("tool_use_id") == call]
    return results[0]["content"]


def use(*names: str) -> list[dict[str, Any]]:
    """Calls, as an answer has them."""
    return [{"type": "tool_use", "id": name, "name": "Bash", "input": {}} for name in names]


# -- refresh ------------------------------------------------------------------------------


def test_refresh_goes_to_the_newest_event_of_the_branch(journal: Journal) -> None:
    """Messages, state and cost are those of the other writer; the next record goes on from it."""
    first, second = pair(journal)
    second.assistant("second", cost_usd=0.5)
    last = second.record("todos", {"todos": [{"content": "third"}]})
    before = texts(first)
    moved, again = first.refresh(), first.refresh()
    receipt = first.user("fourth")

    assert (["first"], True, False) == (before, moved, again)
    assert ["first", "second", "fourth"] == texts(first)
    assert [{"content": "third"}] == first.state.todos
    assert (0.0, 0.5) == (first.cost, first.cumulative_cost)
    assert not receipt.branched
    assert second.refresh()
    assert receipt.uuid == second.tip != last.uuid


def test_refresh_stays_on_its_branch(journal: Journal) -> None:
    """What others said elsewhere is theirs, unless they moved the tip."""
    first, second = pair(journal)
    fork = first.tip
    assert fork is not None
    second.assistant("theirs")
    mine = first.assistant("mine")

    assert (mine.branched, first.refresh(), first.tip) == (True, False, mine.uuid)

    second.refresh()
    second.rewind(fork)
    second.user("from the start")

    assert first.refresh()
    assert ["first", "from the start"] == texts(first) == texts(second)


def test_refresh_follows_a_compaction_and_the_next_segment(tmp_path: Path) -> None:
    """The other writer compacted, and went on in the next file."""
    journal = Journal(tmp_path, durability="none", max_bytes=2000)
    first, second = pair(journal)
    for number in range(20):
        second.assistant(f"answer {number}" * 10)
    second.compact("Twenty answers.")
    second.flush()
    second.user("after")

    assert first.refresh()
    assert texts(second) == texts(first)
    assert not first.user("last").branched


@pytest.mark.parametrize("close", [True, False])
def test_refresh_of_what_nobody_else_writes_changes_nothing(tmp_path: Path, close: bool) -> None:
    """Closed, or kept in memory only."""
    session = Journal(tmp_path, enabled=close).create()
    session.user("x")
    if close:
        session.close()

    assert not session.refresh()
    assert ["x"] == texts(session)


# -- receipts -----------------------------------------------------------------------------


def test_a_record_on_a_stale_tip_is_told_in_its_receipt(journal: Journal) -> None:
    """Once, when the others were passed by; bookkeeping of theirs is nothing to tell of."""
    first, second = pair(journal)
    second.flush()
    quiet = first.assistant("a")
    second.assistant("b")
    late = second.assistant("c")
    stale, next_one = first.assistant("d"), first.assistant("e")
    known = second.record("note", {}, expected_tip=next_one.uuid)

    assert not quiet.branched
    assert late.branched is False
    assert (True, False) == (stale.branched, next_one.branched)
    assert not known.branched
    assert not first.record("note", {}, parent=known.uuid).branched


@pytest.mark.parametrize("seen", [True, False])
def test_a_record_that_others_left_behind_in_an_old_segment_is_told(
    tmp_path: Path, seen: bool
) -> None:
    """They went on in the next file, of which the old one says nothing; told once."""
    journal = Journal(tmp_path, durability="none", max_bytes=2000)
    first, second = pair(journal)
    second.assistant("long " * 500)
    if seen:
        first.refresh()
    second.flush()
    second.user("in the next file")
    receipts = [first.user(text) for text in ("one", "two", "three")]

    assert [1, 2, 2] == [receipt.segment for receipt in receipts]
    assert [True, False, False] == [receipt.branched for receipt in receipts]


def test_what_was_written_while_a_session_was_opened_is_others(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it was read, before it could be appended to: a refresh finds it, a receipt tells it."""
    first = journal.create(cwd="/w")
    first.user("first")
    opening = Journal._open

    def open_late(*arguments: Any) -> Any:
        first.assistant("meanwhile", cost_usd=0.5)
        return opening(*arguments)

    monkeypatch.setattr(Journal, "_open", open_late)
    behind, refreshed = (journal.resume(first.id, mode="continue") for _ in range(2))
    monkeypatch.undo()

    assert behind.user("mine").branched
    assert refreshed.refresh()
    assert ["first", "meanwhile", "meanwhile"] == texts(refreshed)
    assert 1.0 == behind.cumulative_cost == refreshed.cumulative_cost


def test_a_line_that_a_kill_cut_is_nobodys(journal: Journal) -> None:
    """It was there when the session was opened: no receipt tells of it, and no bill counts it."""
    first, second = pair(journal)
    first.assistant("one", cost_usd=0.5)
    data = path_of(first).read_bytes()
    first.close()
    second.close()
    for cut, cost in ((1, 0.75), (5, 0.25)):  # only its LF is missing; a part of the line
        path_of(first).write_bytes(data[:-cut])
        resumed = journal.resume(first.id, mode="continue")
        receipt = resumed.assistant("two", cost_usd=0.25)

        assert not receipt.branched
        assert cost == resumed.cumulative_cost


def test_an_answer_that_passes_others_by_is_billed_once(journal: Journal) -> None:
    """Both bills count, whichever way it was recorded, and so say the totals of the turn."""
    first, second = pair(journal)
    second.assistant("theirs", cost_usd=1.0)
    first.assistant("mine", cost_usd=0.5)
    second.assistant("theirs", cost_usd=1.0)
    payload = {"role": "assistant", "content": "mine", "cost_usd": 0.5}
    first.record("assistant", payload, uuid="u-1")
    first.flush()

    assert (1.0, 3.0) == (first.cost, first.cumulative_cost)
    assert 3.0 == journal.resume(first.id, mode="continue").cumulative_cost


def test_a_compaction_that_passes_others_by_is_told_in_its_receipt(journal: Journal) -> None:
    """What they said is not in the summary: the summary is a branch of it."""
    first, second = pair(journal)
    quiet = first.compact("nothing yet")
    second.refresh()
    second.assistant("theirs")
    stale = first.compact("without theirs")

    assert (False, True) == (quiet.branched, stale.branched)


# -- resuming what runs -------------------------------------------------------------------


def test_resuming_a_session_that_another_process_writes_is_told(tmp_path: Path) -> None:
    """Who has it open, and when it was written; its open call may still get its result."""
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    assert other.stdin is not None
    assert "ready\n" == other.stdout.readline()
    journal = Journal(tmp_path)
    adopted = journal.resume("run-1")
    going = journal.resume("run-1", mode="continue", orphans="mark")
    notices = [notice for notice in going.recovery.notices if notice.what == "another writer"]
    marked = going.messages[-1]["content"][-1]["text"]
    going.close()
    other.kill()
    other.communicate()
    after = journal.resume("run-1", mode="continue")

    assert ["another writer"] == [notice.what for notice in adopted.recovery.notices]
    assert notices[0].detail.startswith(f"pid {other.pid} has the session open; last written ")
    assert NO_RESULT_YET == result_of(adopted, "c1")
    assert NO_RESULT_YET[:20] == marked[:20]
    assert [] == after.recovery.notices
    assert INTERRUPTED == result_of(after, "c1")


def test_a_call_of_an_open_session_has_no_result_yet(journal: Journal) -> None:
    """Between two results of parallel tools, and until the session is closed."""
    session = journal.create()
    session.user("go")
    session.assistant(use("a", "b"))
    session.tool_result("a", "done")
    between = (result_of(session, "a"), result_of(session, "b"))
    session.tool_result("b", "too")
    both = result_of(session, "b")
    session.assistant(use("c"))
    session.close()

    assert ("done", NO_RESULT_YET) == between
    assert "too" == both
    assert INTERRUPTED == result_of(session, "c")


WORDS = ("permissions", "open files", "free some space")


class Refusing(Disk):
    """A disk that opens no file, for one reason."""

    def __init__(self, number: int) -> None:
        self.open = self._refuse
        self._why = OSError(number, os.strerror(number))

    def _refuse(self, *_: object, **__: object) -> int:
        raise self._why


# -- hints --------------------------------------------------------------------------------


def test_the_hint_fits_what_the_system_refused() -> None:
    """Permission, descriptors, space: each has its own remedy; the rest is not guessed at."""
    words = {
        13: "owner",
        30: "read-only",
        24: "open files",
        28: "free some space",
        5: "check the disk",
    }

    assert dict.fromkeys(words, True) == {n: w in remedy(OSError(n, "x")) for n, w in words.items()}


def test_a_folder_of_somebody_else_is_told_as_such(tmp_path: Path) -> None:
    """Of a home that cannot be written to, not "free space"."""
    journal = Journal(tmp_path / "file" / "home")
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(NotAppendable) as caught:
        journal.create()

    assert "check the path" in str(caught.value.hint)


def test_a_folder_that_may_not_be_looked_into_is_told_as_such(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The home of another user: where even looking is refused, the error still has its hint."""

    def refuse(path: Path) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "is_dir", refuse)
    with pytest.raises(NotAppendable, match="Permission denied") as caught:
        journal.create(cwd="/w")

    assert "permissions" in str(caught.value.hint)


def test_the_hint_at_the_beginning_of_a_session_fits_as_well(journal: Journal) -> None:
    """A folder that may not be written to is not "free space", and nothing is left."""
    folder = path_of(journal.create(cwd="/w")).parent
    before = list(folder.iterdir())
    errors = []
    for number in (errno.EACCES, errno.EMFILE, errno.ENOSPC):
        with pytest.raises(NotAppendable) as caught:
            begin(folder / "s.jsonl", b"{}\n", disk=Refusing(number))
        errors.append(str(caught.value.hint))

    assert list(WORDS) == [w for w, hint in zip(WORDS, errors, strict=True) if w in hint]
    assert before == list(folder.iterdir())


def test_a_history_that_fails_is_a_thence_error(tmp_path: Path) -> None:
    """So that a harness can guard it by one line; the session is not concerned."""
    (tmp_path / "history.jsonl").mkdir(parents=True)
    journal = Journal(tmp_path)
    session = journal.create()
    session.user("hello")
    with pytest.raises(ThenceError):
        journal.history.add("hello", session_id=session.id)

    assert ["hello"] == texts(session)


def test_an_async_session_has_the_same_verbs(journal: Journal) -> None:
    """User, assistant, tool_result, refresh: awaited."""

    async def run() -> tuple[bool, str]:
        async with AsyncSession(journal.create()) as session:
            await session.user("go")
            await session.assistant(use("a"), model="m-1")
            await session.tool_result("a", "done", failed=True)
            return await session.refresh(), json.dumps(await session.messages())

    moved, messages = asyncio.run(run())

    assert not moved
    assert 1 == messages.count("done")
