"""`thence self-check`: this version works, and opens the home of every released version."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import apsw
import pytest

from tests.archives import extract
from tests.cli.conftest import Run
from tests.pace import PROVING
from tests.processes import run_thence
from thence import __version__
from thence.cli import self_check

HOMES = Path(__file__).parent.parent / "data" / "homes"
RELEASED = sorted(path.name.removesuffix(".tar.xz") for path in HOMES.iterdir())


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home of the first release."""
    return _extracted("0.1.0", tmp_path)


def _extracted(version: str, folder: Path) -> Path:
    extract(HOMES / f"{version}.tar.xz", folder)
    return folder / ".thence"


def _files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_release_has_a_home() -> None:
    """`scripts/old-home` writes it; the first release has the schema that it had."""
    assert "0.1.0" in RELEASED
    assert __version__ not in RELEASED or __version__ == max(RELEASED)


class _Forked:
    """Takes the place of `subprocess` in the check: commands start without an interpreter."""

    TimeoutExpired = subprocess.TimeoutExpired

    @staticmethod
    def run(
        command: list[str], *, env: dict[str, str], cwd: str, **_options: object
    ) -> subprocess.CompletedProcess[str]:
        """Run a thence command in a process of its own."""
        return run_thence(*command[command.index("thence") + 1 :], env=env, cwd=cwd)


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("version", RELEASED)
def test_the_home_of_a_release_is_opened(
    version: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All sessions are listed, read, searched and imported on; the home itself is as it was."""
    if not PROVING:
        monkeypatch.setattr(self_check, "subprocess", _Forked)
    home = _extracted(version, tmp_path)
    before = _files(home)
    done = run("self-check", "--home", str(home), "--json")
    report = json.loads(done.stdout)

    assert 0 == done.return_value
    assert report["ok"]
    assert {"copy", "list", "show", "upgrade", "doctor"} <= {
        check["name"] for check in report["checks"]
    }
    assert before == _files(home)


@pytest.mark.slow
def test_this_installation_is_checked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages, and commands on sample sessions; test_processes starts it as a user does."""
    monkeypatch.setattr(self_check, "subprocess", _Forked)
    done = run("self-check")

    assert 0 == done.return_value
    assert f"thence {__version__}: no problems" in done.stdout


def test_a_home_whose_sessions_cannot_be_read_fails(home: Path, run: Run) -> None:
    """A store of a newer version, here: the check says what the command said."""
    db = apsw.Connection(str(home / "memory" / "thence.db"))
    db.execute("PRAGMA user_version=1000")
    db.close()
    done = run("self-check", "--home", str(home), "--json")
    problems = [check["problem"] for check in json.loads(done.stdout)["checks"] if check["problem"]]

    assert 1 == done.return_value
    assert 1 == len(problems)
    assert "newer thence" in problems[0]


@pytest.mark.slow
def test_a_store_elsewhere_is_left_alone(home: Path, run: Run, tmp_path: Path) -> None:
    """The settings of the home name it; the check uses the copy all the same."""
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(home / "memory", elsewhere)
    (home / "config.toml").write_text(
        f'[session_memory]\nstore = "sqlite:///{elsewhere}/thence.db"\n', encoding="utf-8"
    )
    before = _files(elsewhere)
    report = json.loads(run("self-check", "--home", str(home), "--json").stdout)

    assert report["ok"]
    assert before == _files(elsewhere)


def test_a_folder_without_a_store_is_told(home: Path, run: Run, tmp_path: Path) -> None:
    """With what to name instead; nothing is made there."""
    shutil.rmtree(home / "memory")
    before = _files(home)
    done = run("self-check", "--home", str(home), "--json")

    assert 1 == done.return_value
    assert "has no store" in done.stdout
    assert before == _files(home)


def test_doctor_names_the_copy_that_was_saved_before_the_upgrade(
    home: Path, run: Run, tmp_path: Path
) -> None:
    """Whoever wants to go back to the release finds where its store is."""
    env = {"HOME": str(tmp_path), "THENCE_HOME": str(home)}
    run("sweep", **env)
    findings = json.loads(run("doctor", "--json", **env).stdout)["findings"]
    (copy,) = (finding for finding in findings if "upgrade_copy" in finding)

    assert Path(copy["upgrade_copy"]).is_file()
    assert "saved before the upgrade from schema " in copy["words"]
    assert "~/.thence/memory/backups/thence.db.schema-" in copy["words"]
