"""Files of prompts that were rolled over: they go after a month, and somebody says so."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.desk import Desk
from thence.format.layout import HISTORY, rollover
from thence.journal.journal import Journal


def write(folder: Path, number: int, days_ago: float, count: int = 3) -> Path:
    """Write a file of the history, of which the last prompt is so many days old."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (rollover(number) if number else HISTORY)
    ts = (datetime.now(UTC) - timedelta(days=days_ago)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    line = {"type": "prompt", "ts": ts, "session_id": "s", "project": None, "prompt": "hello"}
    path.write_text((json.dumps(line) + "\n") * count)
    os.utime(path, (0, 0))
    return path


def test_cleanup_removes_rolled_prompts_after_a_month(tmp_path: Path) -> None:
    """It says which and why; looking first changes nothing; the current file stays."""
    old = [write(tmp_path, number, 100 * number) for number in (1, 2)]
    current, young = write(tmp_path, 0, 0), write(tmp_path, 3, 20)
    journal = Journal(tmp_path)
    looked = journal.cleanup(dry_run=True)

    assert all(path.exists() for path in old)

    steps = journal.cleanup()

    assert [("prune", path.name) for path in old] == [(s.what, s.session) for s in steps]
    assert looked == steps
    assert "31 days" in steps[0].reason
    assert [False, False, True, True] == [p.exists() for p in (*old, current, young)]


def test_cleanup_warns_of_a_history_that_is_nearly_full(tmp_path: Path) -> None:
    """As a step that keeps the file."""
    write(tmp_path, 0, 0, count=8_100)

    (step,) = Journal(tmp_path).cleanup()

    assert ("keep", HISTORY) == (step.what, step.session)
    assert "81% full" in step.reason


def test_gc_and_doctor_tell_of_old_prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`gc` asks first and then removes them; `doctor` names the command."""
    desk = Desk(tmp_path, monkeypatch)
    old = write(desk.home, 1, 100)
    write(desk.home, 0, 0, count=8_100)
    output = desk.run("doctor").out

    assert "the history has 1 old file" in output
    assert "81% full" in output

    shown = desk.run("gc", "-n").out

    assert rollover(1) in shown
    assert "81% full" in shown
    assert old.exists()

    acted = desk.run("gc", "-y", "--json").json

    assert [("prune", rollover(1))] == [(s["action"], s["session"]) for s in acted["journal"]]
    assert not old.exists()
    assert "old file" not in desk.run("doctor").out
