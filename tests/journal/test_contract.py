"""What a session promises its harness: side files of a lineage, outputs, idleness."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from thence.errors import Conflict, ThenceError
from thence.format.spills import spilled_in
from thence.journal import Journal


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A journal in a fresh home."""
    return Journal(tmp_path / "home", durability="none")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A project with one file."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("first")
    return folder


@pytest.mark.parametrize("mode", ["adopt", "continue", "fork"])
def test_files_return_to_a_checkpoint_of_an_ancestor(
    journal: Journal, workspace: Path, mode: str
) -> None:
    """However the session was opened, the saved content is there and the later edits are known."""
    with journal.create(cwd=workspace) as session:
        session.record("user", {"role": "user", "content": "edit"})
        before = session.checkpoint(["a.txt"])
        (workspace / "a.txt").write_text("second")
    with journal.resume(session.id, mode=mode) as later:  # type: ignore[arg-type]
        later.record("user", {"role": "user", "content": "edit more"})
        later.checkpoint(["a.txt", "b.txt"])
        (workspace / "a.txt").write_text("third")
        (workspace / "b.txt").write_text("new")

        later.rewind_files(before)

        assert "first" == (workspace / "a.txt").read_text()
        assert not (workspace / "b.txt").exists()
        assert [before.id] == [c.id for c in later.checkpoints[:1]]


def test_a_rewind_of_files_can_be_taken_back(journal: Journal, workspace: Path) -> None:
    """What a rewind changed was saved first, and the log names it."""
    with journal.create(cwd=workspace) as session:
        before = session.checkpoint(["a.txt"])
        (workspace / "a.txt").write_text("second")
        done = session.rewind_files(before)
        assert done.before is not None

        session.rewind_files(done.before)

        assert "second" == (workspace / "a.txt").read_text()


def test_edits_on_a_dead_branch_are_rewound_with_the_rest(
    journal: Journal, workspace: Path
) -> None:
    """The conversation went back, the files did not: their checkpoints still count."""
    with journal.create(cwd=workspace) as session:
        start = session.record("user", {"role": "user", "content": "go"}).uuid
        before = session.checkpoint(["a.txt"])
        session.checkpoint(["b.txt"])
        (workspace / "b.txt").write_text("made on the branch")
        session.rewind(start)

        session.rewind_files(before)

        assert not (workspace / "b.txt").exists()


def test_a_spilled_result_is_found_from_an_adopted_session(
    journal: Journal, workspace: Path
) -> None:
    """The placeholder is the ancestor's, the bytes are the lineage's."""
    content = "x" * 50_000
    with journal.create(cwd=workspace) as session:
        session.record("user", {"role": "user", "content": "go"})
        call = {"type": "tool_use", "id": "c", "name": "Bash", "input": {}}
        session.record("assistant", {"role": "assistant", "content": [call]})
        result = {"type": "tool_result", "tool_use_id": "c", "content": content}
        session.record("user", {"role": "user", "content": [result]})
    with journal.resume(session.id) as later:
        shown = later.messages[-1]["content"][0]["content"]
        (spilled,) = spilled_in(shown)

        assert len(shown) < 10_000
        assert session.messages == later.messages
        assert content.encode() in later.full_result(spilled)


def test_an_id_that_is_taken_is_refused(journal: Journal, workspace: Path) -> None:
    """Two sessions never share a file by accident."""
    session = journal.create(cwd=workspace)

    with pytest.raises(Conflict):
        journal.create(cwd=workspace, session=session.id)


def test_a_session_yields_the_outputs_of_its_contract(journal: Journal, workspace: Path) -> None:
    """Where it is written, where its prompt stands, what was saved; and what is not yet so."""
    with journal.create(cwd=workspace) as session:
        assert (None, False) == (session.history_offset, session.history_appended)
        offset = journal.history.add("edit it", session_id=session.id)
        session.record("user", {"role": "user", "content": "edit it"})
        saved = session.checkpoint(["a.txt"])
        before = session.transcript_flushed
        session.flush()

        assert (False, True) == (before, session.transcript_flushed)
        assert (offset, True) == (session.history_offset, session.history_appended)
        assert saved.id == session.checkpoint_hash
        assert session.transcript_path is not None
        assert session.transcript_path.exists()


def test_an_idle_session_is_closed_and_says_why(journal: Journal, workspace: Path) -> None:
    """The turn ended and nobody came: flushed, a terminator, the handle let go, then the call."""
    now, calls = [0.0], []
    session = journal.create(cwd=workspace)
    session.record("user", {"role": "user", "content": "hello"})
    session.record("assistant", {"role": "assistant", "content": "hi"})
    idle = session.idle(300, clock=lambda: now[0], on_idle=lambda: calls.append(session.closed))
    idle.turn_started()
    now[0] = 1000.0
    assert [] == idle.poll()
    idle.turn_ended()
    now[0] += 299
    assert [] == idle.poll()
    now[0] += 1
    idle.poll()

    assert [True] == calls
    assert session.transcript_path is not None
    last = session.transcript_path.read_bytes().split(b"\n")[-2]
    assert b'"reason":"idle"' in last
    assert journal.resume(session.id).recovery.closed


def test_an_approval_nobody_gives_is_answered(journal: Journal, workspace: Path) -> None:
    """The turn goes on with a synthetic result; a later real one would win."""
    now = [0.0]
    session = journal.create(cwd=workspace)
    session.record("user", {"role": "user", "content": "delete it"})
    call = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {}}
    session.record("assistant", {"role": "assistant", "content": [call]})
    idle = session.idle(approval_timeout=60, clock=lambda: now[0])
    idle.turn_started()
    idle.approval_asked("c1")
    now[0] = 60.0

    assert ["c1"] == [due.call_id for due in idle.poll()]
    assert [] == session.mended().open_calls
    assert "c1" == session.messages[-1]["content"][0]["tool_use_id"]
    assert not session.closed


def test_no_rewind_of_files_reaches_a_transcript(tmp_path: Path) -> None:
    """A home or a local folder inside the workspace is closed to checkpoints."""
    workspace = tmp_path / "project"
    workspace.mkdir()
    journal = Journal(workspace / ".thence", local=workspace, durability="none")
    with journal.create(cwd=workspace) as session:
        assert session.transcript_path is not None
        inside = session.transcript_path.relative_to(workspace)

        with pytest.raises(ThenceError):
            session.checkpoint([inside])


def test_names_that_are_not_text_can_be_saved(journal: Journal, workspace: Path) -> None:
    """The event that names them is written and read back."""
    name = os.fsdecode(b"odd-\xff.txt")
    (workspace / name).write_text("first")
    with journal.create(cwd=workspace) as session:
        before = session.checkpoint([name])
        (workspace / name).write_text("second")
    with journal.resume(session.id) as later:
        later.rewind_files(before)

        assert [before] == later.checkpoints[:1]
        assert "first" == (workspace / name).read_text()
