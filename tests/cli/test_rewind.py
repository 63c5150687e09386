"""`thence rewind`: the line or the files of a session of our own, never both, never others'."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from tests.cli.conftest import Run
from thence.cli.file_changes import NotAnswered
from thence.cli.rewind import ForeignSession
from thence.cli.sample_machine import Homes, made_id
from thence.errors import SessionNotFound
from thence.journal import Journal


class OwnSession(NamedTuple):
    """A session of our own that changed a file."""

    id: str
    log: Path
    first: str
    file: Path
    saved: str


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnSession:
    """One prompt, one edit, one more prompt."""
    monkeypatch.setenv("THENCE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    work = tmp_path / "work"
    work.mkdir()
    file = work / "notes.txt"
    file.write_text("before\n")
    with Journal(tmp_path / "home").create(cwd=str(work)) as s:
        s.record("user", {"role": "user", "content": "one"})
        first = s.record("assistant", {"role": "assistant", "content": "first answer"}).uuid
        saved = s.checkpoint([file])
        file.write_text("after\n")
        s.record("user", {"role": "user", "content": "two"})
        s.record("assistant", {"role": "assistant", "content": "second answer"})
        s.flush()
    return OwnSession(s.id, Path(str(s.transcript_path)), first, file, saved.id)


def sent_messages(own_session: OwnSession) -> str:
    """What the model would be sent now."""
    session = Journal(own_session.log.parent.parent.parent).resume(own_session.id, mode="continue")
    return json.dumps(session.messages)


def test_the_line_moves_and_the_files_stay(own: OwnSession, run: Run) -> None:
    """What came after is no longer said, and still in the log; the file is as it was."""
    before = own.log.read_bytes()
    run("rewind", own.id[:13], "--to", own.first, "--yes")

    assert "first answer" in sent_messages(own)
    assert "second answer" not in sent_messages(own)
    assert own.log.read_bytes().startswith(before)
    assert "after\n" == own.file.read_text()


def test_files_return_and_the_line_stays(own: OwnSession, run: Run) -> None:
    """The diff is shown, and what it prints takes it back."""
    shown = run("rewind", own.id, "--files", own.saved[:8], "--yes").stdout

    assert "  -after" in shown
    assert "  +before" in shown
    assert "before\n" == own.file.read_text()
    assert "second answer" in sent_messages(own)

    back = shown.splitlines()[-1].partition("thence ")[2].split()
    run(*back, "--yes")

    assert "after\n" == own.file.read_text()


@pytest.mark.parametrize("how", [["--to"], ["--files"]])
def test_a_dry_run_writes_nothing(own: OwnSession, run: Run, how: list[str]) -> None:
    """Neither log nor file changes; nor do they when nobody says yes."""
    target = own.first if how == ["--to"] else own.saved
    before = own.log.read_bytes()
    answer = json.loads(run("rewind", own.id, *how, target, "-n", "--json").stdout)
    with pytest.raises(NotAnswered):
        run("rewind", own.id, *how, target)

    assert answer["dry_run"]
    assert before == own.log.read_bytes()
    assert "after\n" == own.file.read_text()


def test_without_a_target_checkpoints_are_listed(own: OwnSession, run: Run) -> None:
    """Each with the files it saved."""
    text = run("rewind", own.id).stdout

    assert f"  {own.saved[:12]}  notes.txt" == text.splitlines()[0]
    assert [own.saved] == [c["id"] for c in json.loads(run("rewind", own.id, "--json").stdout)]
    with pytest.raises(SessionNotFound, match="no checkpoint"):
        run("rewind", own.id, "--files", "zzz", "-n")
    with pytest.raises(SessionNotFound, match="no event"):
        run("rewind", own.id, "--to", "zzz", "-n")
    with pytest.raises(click.UsageError, match="not both"):
        run("rewind", own.id, "--to", own.first, "--files", own.saved)


def test_others_sessions_are_refused_with_the_way_to_do_it(looked_at: Homes, run: Run) -> None:
    """What other agents wrote is never written by us."""
    with pytest.raises(ForeignSession) as refused:
        run("rewind", made_id("gauge-import"), "--to", "x", "--yes")

    assert "Esc twice" in (refused.value.hint or "")
    with pytest.raises(SessionNotFound):
        run("rewind", "zzz")
