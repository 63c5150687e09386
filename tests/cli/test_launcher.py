"""The launcher: settings name it, it starts the thence that is installed, it never disturbs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.desk import Desk
from thence import __version__
from thence.cli import launcher
from thence.errors import BadConfig


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine with Claude Code, whose hook is installed."""
    made = Desk(tmp_path, monkeypatch)
    made.claude.mkdir()
    monkeypatch.chdir(tmp_path)
    made.run("hook", "install", "claude", "--brief", "--yes")
    return made


def start(desk: Desk, *arguments: str, payload: str = "{}") -> subprocess.CompletedProcess[str]:
    """Run the launcher as other programs do."""
    return subprocess.run(
        [launcher.path_in(desk.home), *arguments],
        env={"HOME": str(desk.user)},
        input=payload,
        capture_output=True,
        text=True,
        check=False,
    )


def make_dead(desk: Desk) -> None:
    """Remove the program that the launcher starts, as `make clean` in a clone does."""
    path = launcher.path_in(desk.home)
    path.write_text(path.read_text().replace(sys.executable, "/gone/bin/python"))


def test_it_starts_this_thence_with_its_home(desk: Desk) -> None:
    """Whatever the PATH is; only its user can read it."""
    done = start(desk, "--version")

    assert (0, __version__) == (done.returncode, done.stdout.split()[-1])
    assert 0o700 == launcher.path_in(desk.home).stat().st_mode & 0o777
    assert launcher.Launcher(launcher.path_in(desk.home), "current", sys.executable) == (
        launcher.look(desk.home)
    )


def test_a_hook_does_nothing_when_the_program_is_gone(desk: Desk) -> None:
    """It ends with 0 and prints nothing; a person who calls it reads why."""
    make_dead(desk)
    hooks = [start(desk, "nudge", "claude", str(desk.home)), start(desk, "brief", "--hook", "x")]
    person = start(desk, "ls")

    assert [(0, "", "")] * 2 == [(done.returncode, done.stdout, done.stderr) for done in hooks]
    assert 127 == person.returncode
    assert "/gone/bin/python is gone: install thence again" in person.stderr


def test_a_later_thence_mends_it_and_says_so_once(desk: Desk) -> None:
    """The next command writes it anew, and tells that hooks could not run."""
    make_dead(desk)
    start(desk, "nudge", "claude", str(desk.home))
    first, second = desk.run(), desk.run()

    assert "note: hooks could not run: /gone/bin/python is gone; they use this" in first.err
    assert "" == second.err
    assert "current" == launcher.look(desk.home).state


def test_json_is_not_disturbed_by_the_note(desk: Desk) -> None:
    """A program reads no notes."""
    make_dead(desk)

    assert "" == desk.run("hook", "status", "--json").err


def test_one_of_an_older_version_is_written_anew(desk: Desk) -> None:
    """Without a word: an upgrade is nothing to worry about."""
    path = launcher.path_in(desk.home)
    path.write_text(path.read_text().replace(f"thence {__version__}", "thence 0.0.1"))
    ran = desk.run("hook", "status")

    assert "" == ran.err
    assert launcher.script(desk.home) == path.read_text()


def test_another_installation_that_works_is_left_alone(desk: Desk, tmp_path: Path) -> None:
    """Two of them would write over each other's for ever."""
    other = tmp_path / "python"
    other.symlink_to(sys.executable)
    path = launcher.path_in(desk.home)
    text = path.read_text().replace(sys.executable, str(other))
    path.write_text(text)
    desk.run("hook", "status")

    assert text == path.read_text()

    desk.run("hook", "install", "claude", "--yes")  # nothing to change in the settings

    assert text == path.read_text()


def test_hooks_are_not_set_up_from_uvs_cache(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """`uvx thence setup` says how to install, and no settings name a program that may go."""
    desk.run("hook", "uninstall", "claude", "--yes")
    launcher.path_in(desk.home).unlink(missing_ok=True)
    before = {path: path.read_bytes() for path in desk.claude.rglob("*") if path.is_file()}
    monkeypatch.setattr(launcher, "is_in_uv_cache", lambda: True)
    for command in (["setup", "--yes"], ["hook", "install", "claude", "--yes"]):
        ran = desk.run(*command)

        assert BadConfig.exit_code == ran.code
        assert "thence runs from uv's cache here" in ran.err
        assert "uv tool install thence" in ran.err
    assert before == {path: path.read_bytes() for path in desk.claude.rglob("*") if path.is_file()}
    assert "none" == launcher.look(desk.home).state


def test_a_launcher_is_not_mended_from_uvs_cache(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command says that hooks cannot run, until an installed thence mends it."""
    make_dead(desk)
    monkeypatch.setattr(launcher, "is_in_uv_cache", lambda: True)
    notes = [desk.run().err for _ in range(2)]

    assert all("/gone/bin/python is gone; uv tool install thence" in note for note in notes)
    assert "dead" == launcher.look(desk.home).state


def test_doctor_says_that_hooks_point_to_a_program_that_is_gone(desk: Desk) -> None:
    """Where the launcher itself is gone, and where settings name another that is gone."""
    launcher.path_in(desk.home).unlink()
    findings = desk.run("doctor", "--json").json["findings"]
    (hooks,) = (finding for finding in findings if finding["topic"] == "hooks")

    assert "warning" == hooks["level"]
    assert "the hook starts a program that is gone: ~/.thence/bin/thence" in hooks["words"]
    assert "thence hook install claude --brief" == hooks["fix"]

    desk.run("hook", "install", "claude", "--brief", "--yes")

    assert "current" == launcher.look(desk.home).state


def test_a_nudge_goes_the_same_way(desk: Desk) -> None:
    """The command that captures leaves its file in the queue."""
    (desk.home / "config.toml").write_text('[session_memory.retention]\ncadence = "daily"\n')
    settings = json.loads((desk.claude / "settings.json").read_bytes())
    line = settings["hooks"]["Stop"][0]["hooks"][0]["command"]
    subprocess.run(["sh", "-c", line], input=b'{"session_id": "s1"}', check=True)

    assert ["claude-s1.json"] == [path.name for path in (desk.home / "queue").iterdir()]


@pytest.mark.parametrize("own", [False, True])
def test_a_notify_whose_program_is_gone_is_told(desk: Desk, *, own: bool) -> None:
    """Whether it stands alone or before a program of the user's."""
    desk.codex.mkdir()
    (desk.codex / "config.toml").write_text('notify = ["bell"]\n' if own else "")
    desk.run("hook", "install", "codex", "--yes")

    assert "gone" not in desk.run("hook", "status", "codex").out

    launcher.path_in(desk.home).unlink()

    assert "a program that is gone: ~/.thence" in desk.run("hook", "status", "codex").out
