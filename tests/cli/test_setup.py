"""Whether what should run by itself runs, and whether all journals of the machine are swept."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.desk import ALERTS, Desk, alerts
from thence.cli import scheduling
from thence.journal import Journal


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine without timers, on which nobody stands in a project."""
    monkeypatch.setattr(scheduling, "active_means", list)
    made = Desk(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    return made


def finding(desk: Desk, topic: str) -> dict[str, Any]:
    """What the doctor says of one topic."""
    findings = desk.run("doctor", "--json").json["findings"]
    return next((entry for entry in findings if entry["topic"] == topic), {})


def test_doctor_says_that_nothing_runs_the_daily_sweep(desk: Desk) -> None:
    """A cadence alone starts nothing; the fix is named, and all is not simply well."""
    desk.write_claude(alerts())
    desk.sweep()
    cadence = finding(desk, "cadence")

    assert ("note", "thence schedule install") == (cadence["level"], cadence["fix"])
    assert "no timer is installed" in cadence["words"]
    assert "no problems, but nothing imports new sessions automatically" in desk.run("doctor").out


def test_a_late_sweep_that_nothing_runs_is_a_warning(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two days after the last one the doctor ends with 3."""
    desk.write_claude(alerts())
    desk.sweep()
    later = (datetime.now(UTC) + timedelta(days=3)).timestamp()
    monkeypatch.setattr("thence.cli.checks.time.time", lambda: later)

    assert "warning" == finding(desk, "cadence")["level"]


def test_a_timer_or_hooks_are_enough(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a timer the cadence is kept; with sweeps by hooks there is none to keep."""
    desk.write_claude(alerts())
    desk.sweep()
    (desk.home / "config.toml").write_text('[session_memory.retention]\ncadence = "on-hook"\n')

    assert {} == finding(desk, "cadence")

    (desk.home / "config.toml").unlink()
    answers = {"where": lambda _: "/x/thence.timer", "problem": lambda _: None}
    timer = type("Timer", (), {"name": "systemd", **answers})()
    monkeypatch.setattr(scheduling, "active_means", lambda: [timer])

    assert "ok" == finding(desk, "cadence")["level"]


@pytest.fixture
def project(tmp_path: Path, desk: Desk) -> Path:
    """A project that keeps a session of the journal with itself."""
    folder = tmp_path / "tidepool"
    folder.mkdir()
    journal = Journal(desk.home, local=folder)
    with journal.create(cwd=folder) as session:
        session.record("user", {"role": "user", "content": "Kept with the project"})
        session.record("assistant", {"role": "assistant", "content": "Yes."})
        session.flush()
    return folder


def known(desk: Desk, project: Path) -> None:
    """Let another agent work in a project, so that it is known."""
    script = alerts()
    desk.write_claude(script)
    path = next(desk.claude.rglob(f"{ALERTS}.jsonl"))
    path.write_text(path.read_text().replace("/home/dev/lumen", str(project)))


def test_a_sweep_finds_the_journals_of_known_projects(desk: Desk, project: Path) -> None:
    """The project is known by the first sweep, and its own journal read by the next."""
    known(desk, project)
    desk.sweep()
    desk.sweep()
    titles = {row["title"] for row in desk.run("ls", "--json").json}

    assert "Kept with the project" in titles


def test_an_excluded_project_keeps_its_journal_to_itself(desk: Desk, project: Path) -> None:
    """Exclusion counts before any file of it is opened."""
    known(desk, project)
    desk.sweep()
    settings = f"[session_memory]\nexclude = {json.dumps([str(project)])}\n"
    (desk.home / "config.toml").write_text(settings)
    desk.sweep()

    assert 1 == len(desk.run("ls", "--json").json)


def test_doctor_names_journals_that_nobody_sweeps(
    desk: Desk, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one in the folder one stands in, as long as no sweep has read it."""
    monkeypatch.chdir(project)
    journals = finding(desk, "journals")

    assert "1 session recorded in" in journals["words"]
    assert journals["fix"].startswith("thence sweep --root thence=")

    desk.run("sweep", "--root", f"thence={project}")

    assert {} == finding(desk, "journals")


def test_doctor_tells_of_logs_in_a_layout_that_is_not_read(desk: Desk) -> None:
    """`projects/ID/sessions/UUID.jsonl` is named, not passed over."""
    desk.write_claude(alerts())
    log = next(desk.claude.rglob(f"{ALERTS}.jsonl"))
    (log.parent / "sessions").mkdir()
    log.rename(log.parent / "sessions" / log.name)
    layout_finding = finding(desk, "layout")

    assert "1 log in projects/*/sessions" in layout_finding["words"]
    assert 1 == len(layout_finding["logs"])
