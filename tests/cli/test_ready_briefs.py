"""Briefs that are ready: quick, as new as what they are made of, and gone with what they quote."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bench.measure import count_executed_lines
from tests.cli.desk import Desk
from tests.cli.test_brief_hook import hook_text, plain_session
from thence.agents import Cursor, Mark
from thence.cli import brief as brief_command
from thence.format.derived_events import Spent
from thence.format.normal import Cost, Session
from thence.format.records import Usage, time_text
from thence.memory.derivation import DIGEST_VERSION
from thence.memory.redact import RULES, rules_version
from thence.memory.sqlite import Sqlite
from thence.memory.store import DigestRecord, SessionChange, SessionRow
from thence.serve import ready_briefs

LOADED_LATE = ("msgspec", "click", "re2", "thence.cli", "thence.memory.store")
"""What the quick way never loads: it takes longer than all else."""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine whose first session in a repository has just ended."""
    made = Desk(tmp_path, monkeypatch)
    (tmp_path / "tidepool" / ".git").mkdir(parents=True)
    made.write_claude(plain_session(tmp_path / "tidepool", 1, "Mend the tide table."))
    made.sweep()
    return made


def run_hook(desk: Desk, folder: Path, session: str = "new") -> tuple[str, bool]:
    """Return what the hook says as a process of its own, and whether it was ready."""
    done = subprocess.run(
        [
            sys.executable,
            "-E",
            "-P",
            "-X",
            "importtime",
            "-m",
            "thence",
            "brief",
            "--hook",
            "claude",
        ],
        input=json.dumps({"cwd": str(folder), "session_id": session}),
        env={**os.environ, "HOME": str(desk.user), "THENCE_HOME": str(desk.home)},
        capture_output=True,
        text=True,
        check=True,
    )
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    answer = json.loads(done.stdout)["hookSpecificOutput"] if done.stdout else {}
    return answer.get("additionalContext", ""), modules.isdisjoint(LOADED_LATE)


def without_boundary(text: str) -> list[str]:
    """Return the lines of a brief without what is drawn anew for each."""
    first, *lines, _ = text.split("\n")
    return [first[18:], *lines]


@pytest.mark.slow
def test_the_second_hook_and_those_after_a_sweep_are_quick(desk: Desk, tmp_path: Path) -> None:
    """The first one makes the brief; sweeps make it anew from then on, and nobody waits."""
    first, *_ = made = [run_hook(desk, tmp_path / "tidepool") for _ in range(2)]

    assert [False, True] == [is_quick for _, is_quick in made]
    assert without_boundary(made[0][0]) == without_boundary(made[1][0])
    assert made[0][0][:18] != made[1][0][:18]
    assert "It ended with: Mend the tide table." in first[0]

    desk.write_claude(
        plain_session(tmp_path / "tidepool", 2, "Ask the harbour."), ago=timedelta(hours=1)
    )
    desk.sweep()
    text, is_quick = run_hook(desk, tmp_path / "tidepool")

    assert is_quick
    assert "It ended with: Ask the harbour." in text


def test_a_folder_without_sessions_is_answered_quickly(desk: Desk, tmp_path: Path) -> None:
    """Most folders are such."""
    assert ("", True) == run_hook(desk, tmp_path / "other")


def test_a_session_that_goes_on_is_not_told_of_itself(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After a compaction too; that is ready for the newest session."""
    project = tmp_path / "tidepool"
    hook_text(desk, monkeypatch, project)
    newest = plain_session(project, 2, "Ask the harbour.")
    desk.write_claude(newest, ago=timedelta(hours=1))
    desk.sweep()
    text, is_quick = run_hook(desk, project, newest.session)

    assert is_quick
    assert "Mend the tide table." in text
    assert "harbour" not in text


def test_nothing_stale_is_said(desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Decisions, settings, and to-dos that are too old count at once."""
    project = tmp_path / "tidepool"
    monkeypatch.chdir(project)
    before = hook_text(desk, monkeypatch, project)
    desk.run("decide", "Tides are in metres.")
    decided = hook_text(desk, monkeypatch, project)

    assert "Tides are in metres." not in before
    assert "Tides are in metres." in decided
    assert "Open to-dos:" in decided

    late = time.time() + 15 * 86_400
    with monkeypatch.context() as patch:
        patch.setattr("time.time", lambda: late)
        fields = json.dumps({"cwd": str(project)})

        assert ready_briefs.answer_hook("claude", fields) is None

    (desk.home / "config.toml").write_text(f'session_memory.brief.skip = ["{project}"]\n')

    assert "" == hook_text(desk, monkeypatch, project)

    (desk.home / "config.toml").write_text("session_memory.budget.daily_usd = 0.000001\n")

    assert "Tides are in metres." in hook_text(desk, monkeypatch, project)
    assert ready_briefs.answer_hook("claude", json.dumps({"cwd": str(project)})) is None


def test_what_is_ready_is_redacted_and_private(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A rule that is added later takes what it finds out of what was ready before."""
    project = tmp_path / "tidepool"
    hook_text(desk, monkeypatch, project)
    folder = desk.home / ready_briefs.FOLDER
    (page,) = folder.iterdir()

    assert (0o700, 0o600) == (folder.stat().st_mode & 0o777, page.stat().st_mode & 0o777)
    assert "tide table" in page.read_text()

    rule = '[[session_memory.redact]]\nname = "tide"\npattern = "tide table"\n'
    (desk.home / "config.toml").write_text(rule)

    assert "tide table" not in hook_text(desk, monkeypatch, project)

    desk.sweep()

    assert not any("tide table" in file.read_text() for file in folder.iterdir())
    assert "REDACTED" in hook_text(desk, monkeypatch, project)


def test_a_forgotten_session_is_in_no_brief(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither in what is said nor in what is ready: forgetting proves that for every byte."""
    project = tmp_path / "tidepool"
    script = plain_session(project, 3, "The lantern of the harbour master is red.")
    desk.write_claude(script, ago=timedelta(minutes=50))
    desk.sweep()

    assert "lantern" in hook_text(desk, monkeypatch, project)
    assert 0 == desk.run("forget", script.session, "--yes").code
    assert [] == list((desk.home / ready_briefs.FOLDER).iterdir())
    assert "lantern" not in hook_text(desk, monkeypatch, project)


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"project": 1}', "\x00", '{"stamp": null}'])
def test_a_damaged_file_is_made_anew(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str
) -> None:
    """Whoever wrote it."""
    project = tmp_path / "tidepool"
    before = hook_text(desk, monkeypatch, project)
    (page,) = (desk.home / ready_briefs.FOLDER).iterdir()
    page.write_text(body)

    assert without_boundary(before) == without_boundary(hook_text(desk, monkeypatch, project))
    assert "lines" in json.loads(page.read_text())


def test_a_home_that_cannot_be_written_still_gets_a_brief(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is made each time."""
    (desk.home / ready_briefs.FOLDER).write_text("a file in the way")

    assert "Mend the tide table." in hook_text(desk, monkeypatch, tmp_path / "tidepool")


# -- how the work grows ---------------------------------------------------------------------


def fill(path: Path, sessions: int, project: str, own: int) -> None:
    """Write made-up sessions with their digests, the newest `own` of them in a project."""
    store = Sqlite(str(path))
    now, rules = datetime.now(UTC), rules_version(RULES)
    changes, digests = [], []
    for number in range(sessions):
        uid, cwd = f"claude:{number:08}", project if number < own else f"/home/dev/p{number % 99}"
        ended = time_text((now - timedelta(minutes=number)).timestamp())
        session = Session(
            uid, "claude", f"{number:08}", cwd=cwd, ended_at=ended, cost=Cost(1, 2, 3, 1.0, 5, 1)
        )
        row = SessionRow(
            session, title=f"t{number}", spent=Spent(Usage(1, 1, 1, 1)), change=1, redactor=rules
        )
        changes.append(SessionChange(row, Cursor({"main": Mark(1, number, 1000, 1)})))
        todo = {"text": f"To do {number}", "status": "pending", "origin": "tool"}
        digest = {
            "version": DIGEST_VERSION,
            "agent": "claude",
            "outcome": "success",
            "confidence": 1.0,
            "reasons": [],
            "ended_at": ended,
            "todos": [todo],
        }
        digests.append(DigestRecord(uid, 1, digest, []))
    store.write(changes, digests)
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("own", [20, 2_000])
def test_a_brief_is_as_much_work_in_a_large_store_as_in_a_small_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: int
) -> None:
    """Ten times the sessions, in the repository or elsewhere, cost a fifth more lines at most."""
    project = str(tmp_path / "tidepool")
    figures: dict[str, list[int]] = {"made": [], "ready": []}
    for sessions in (200, 2_000):
        home = tmp_path / f"home{sessions}"
        fill(home / "memory" / "thence.db", sessions, project, own)
        monkeypatch.setenv("THENCE_HOME", str(home))
        request = json.dumps({"cwd": project, "session_id": "new"})

        def hook(request: str = request) -> Any:
            monkeypatch.setattr(sys, "stdin", io.StringIO(request))
            return brief_command._hook_answer("claude")

        assert "To do 0" in hook()  # loads what is loaded once
        ready_briefs.remove_all(home)
        figures["made"].append(count_executed_lines(hook))
        figures["ready"].append(count_executed_lines(hook))

    for few, many in figures.values():
        assert 0 < many <= 1.2 * few
    assert 5 * figures["ready"][1] < figures["made"][1]
