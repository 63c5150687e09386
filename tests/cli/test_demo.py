"""`thence demo`: a machine that is not there, with everything that real ones have."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest

from tests.cli.conftest import Run
from thence.agents.profiles import agents
from thence.cli import demo, sample_machine, serve, viewer, wiring
from thence.errors import NotAppendable

MOMENT = datetime(2026, 5, 4, 12, tzinfo=UTC)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without any agent; what the demo sets is undone."""
    home = tmp_path / "user"
    home.mkdir()
    for name in (*sample_machine.homes(home).env, "HOME"):
        monkeypatch.setenv(name, str(home / ".none"))
    monkeypatch.setenv("HOME", str(home))
    for name in ("THENCE_STORE", "THENCE_NO_PERSISTENCE", "CLAUDE_NO_SESSION_PERSISTENCE"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.mark.slow
def test_it_has_what_real_machines_have(elsewhere: Path, run: Run, tmp_path: Path) -> None:
    """All agents; a fork, a rewind, a subagent, a compaction, a crash, a secret."""
    answer = json.loads(run("demo", "--dir", str(tmp_path / "demo"), "--json").stdout)
    with wiring.store() as store:
        rows = {row.session.native_session_id: row for row in store.sessions()}
    states = {name for row in rows.values() for name, number in row.states.items() if number}
    links = {edge.link for row in rows.values() for edge in row.edges}

    assert set(agents()) == {row.session.flavor for row in rows.values()}
    assert {"live", "dead", "rolled_back", "side", "internal", "orphaned"} <= states
    assert {"fork", "subagent"} <= links
    assert any(row.torn for row in rows.values())
    assert {"github-token": 1} == answer["sweep"]["redactions"]
    assert (0, 0) == (answer["sweep"]["failed"], answer["sweep"]["skipped"])
    assert 0 < sum(sum(row.ticks.values()) for row in rows.values())


def test_the_command_that_is_left_is_one_for_windows_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leads every program to the made-up machine; `make windows` runs it."""
    monkeypatch.setattr("thence.system.IS_WINDOWS", True)
    script = demo._script(sample_machine.homes(tmp_path))
    lines = script.read_text().splitlines()

    assert "thence.cmd" == script.name
    assert ["@echo off", "setlocal"] == lines[:2]
    assert f'set "USERPROFILE={tmp_path}"' in lines
    assert 'set "THENCE_STORE="' in lines
    assert lines[-1].endswith('"thence" %*')


@pytest.mark.slow
def test_nothing_of_the_users_is_touched(elsewhere: Path, run: Run, tmp_path: Path) -> None:
    """The user's home is as it was, and the script that is left lives in the folder alone."""
    before = sorted(elsewhere.rglob("*"))
    answer = json.loads(run("demo", "--dir", str(tmp_path / "demo"), "--json").stdout)

    assert before == sorted(elsewhere.rglob("*"))

    done = subprocess.run(
        [answer["command"], "ls", "-n", "100", "--json"],
        env={"PATH": os.environ["PATH"], "HOME": str(elsewhere)},
        capture_output=True,
        check=True,
        timeout=60,
    )

    assert 27 == len(json.loads(done.stdout))
    assert before == sorted(elsewhere.rglob("*"))


@pytest.mark.slow
def test_it_says_what_to_type(elsewhere: Path, run: Run, tmp_path: Path) -> None:
    """Where it is, what to look at, how to be rid of it."""
    text = run("demo", "--dir", str(tmp_path / "demo")).stdout

    assert text.startswith(f"sample sessions of every agent, in {tmp_path}/demo\n")
    assert f"{tmp_path}/demo/thence ls --tree" in text
    assert f"rm -r {tmp_path}/demo" in text


@pytest.mark.slow
def test_only_where_there_is_nothing(machine: sample_machine.Homes, run: Run) -> None:
    """With sessions on the machine `--if-empty` shows where one stands."""
    text = run("demo", "--if-empty").stdout

    assert "made-up" not in text
    assert "last 7 days" in text


@pytest.mark.slow
def test_what_the_agents_wrote_is_swept_first(machine: sample_machine.Homes, run: Run) -> None:
    """Where a store is not there yet it is said what will be done, then done, then shown."""
    store = Path(machine.env["THENCE_HOME"]) / "memory"
    shutil.rmtree(store)
    text = run("demo", "--if-empty").stdout

    assert text.startswith("No sessions stored yet.")
    assert (
        text.index("thence sweep") < text.index("imported 13 sessions") < text.index("last 7 days")
    )


def test_a_sweep_that_is_refused_keeps_nobody_from_looking(
    machine: sample_machine.Homes, run: Run
) -> None:
    """Somebody else sweeps: what is kept is shown, with a note."""
    with wiring.store() as store, store.sweeping():
        done = run("demo", "--if-empty")

    assert "last 7 days" in done.stdout
    assert "note: not imported" in done.stderr


@pytest.mark.few(2)
@pytest.mark.parametrize("taken", [False, True])
def test_the_viewer_is_opened_when_that_is_asked_for(
    elsewhere: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    """With what was made up; on another port where the usual one is taken."""
    served: list[tuple[int, int]] = []

    def command(port: int = 7331) -> int:
        if taken and port:
            raise viewer.PortTaken("taken")
        with wiring.store() as store:
            served.append((port, len(list(store.sessions()))))
        return 0

    option = click.Option(["--port"], type=int, default=7331)
    stub = click.Command("serve", params=[option], callback=command)
    monkeypatch.setattr(serve, "command", stub)
    run("demo", "--dir", str(tmp_path / "demo"), "--serve")

    assert [(0 if taken else 7331, 27)] == served


@pytest.mark.slow
def test_nobody_is_asked_where_nobody_can_answer(elsewhere: Path, run: Run, tmp_path: Path) -> None:
    """Without a terminal it prints and ends."""
    assert "browser?" not in run("demo", "--dir", str(tmp_path / "demo")).stdout


def test_a_folder_with_something_in_it_is_left_alone(run: Run, tmp_path: Path) -> None:
    """Nobody's files are mixed with made-up ones."""
    (tmp_path / "mine").touch()
    with pytest.raises(NotAppendable, match="not empty"):
        run("demo", "--dir", str(tmp_path))

    assert ["mine"] == [path.name for path in tmp_path.iterdir()]


def test_one_moment_writes_the_same_bytes(tmp_path: Path) -> None:
    """What agents wrote follows from the moment alone; our own journal has its own clock."""
    wrote = []
    for _ in range(2):
        homes = sample_machine.write(tmp_path / "here", MOMENT)
        files = [
            path
            for part in (homes.claude, homes.codex, homes.grok)
            for path in sorted(part.rglob("*"))
            if path.is_file()
        ]
        wrote.append({path: path.read_bytes() for path in files})

    assert wrote[0] == wrote[1]
    assert 12 < len(wrote[0])
