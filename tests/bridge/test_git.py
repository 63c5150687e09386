"""git runs what we ask of it, on the repository that we name, and nothing that this one brings."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.machines import Machine
from thence.bridge import git

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

SESSION = "aaaaaaaa-1111-4111-8111-111111111111"


def _wrapped_git(folder: Path, line: str) -> str:
    """Return a PATH on which `git` runs a line of shell first."""
    folder.mkdir()
    program = folder / "git"
    program.write_text(f'#!/bin/sh\n{line}\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def _git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_a_hostile_repository_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor with a git that fetches missing objects whatever it is told: no transport is allowed."""
    machine, planted = Machine(tmp_path / "alpha"), tmp_path / "planted"
    repository = tmp_path / "repository"
    repository.mkdir()
    _git(repository, "init", "--quiet")
    (repository / "read.me").write_text("hello")
    _git(repository, "add", ".")
    _git(repository, "commit", "--quiet", "-m", "one")
    head = _git(repository, "rev-parse", "HEAD")
    (repository / ".git" / "objects" / head[:2] / head[2:]).unlink()
    with (repository / ".git" / "config").open("a") as file:
        file.write(
            '[protocol "ext"]\n\tallow = always\n[extensions]\n\tpartialClone = origin\n'
            f'[remote "origin"]\n\tpromisor = true\n\turl = "ext::touch {planted}"\n'
            f"[core]\n\trepositoryformatversion = 1\n\tfsmonitor = touch {planted}\n"
        )
    machine.write_claude(SESSION, ["look around", "done"], str(repository))
    monkeypatch.setenv("PATH", _wrapped_git(tmp_path / "bin", "unset GIT_NO_LAZY_FETCH"))
    done = machine.run("sweep")
    was_planted = planted.exists()
    # The same without our guard, to know that the trap works.
    subprocess.run(["git", "rev-list", "HEAD"], cwd=repository, capture_output=True, check=False)

    assert (0, False) == (done.returncode, was_planted)
    assert planted.exists()


def test_sync_by_git_uses_its_own_clone_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where git trusts no bare repository it was not told, and where it runs us as a hook."""
    other, target = tmp_path / "other", tmp_path / "shared.git"
    for bare in (other, target):
        subprocess.run(["git", "init", "--quiet", "--bare", str(bare)], check=True)
    settings = tmp_path / "settings"
    settings.write_text("[safe]\n\tbareRepository = explicit\n")
    before = sorted(path for path in other.rglob("*"))
    for name, value in (
        ("GIT_CONFIG_GLOBAL", settings),
        ("GIT_DIR", other),
        ("GIT_OBJECT_DIRECTORY", other / "objects"),
        ("GIT_INDEX_FILE", other / "index"),
        ("GIT_WORK_TREE", other),
        ("GIT_NAMESPACE", "elsewhere"),
        ("GIT_CONFIG_COUNT", 1),
        ("GIT_CONFIG_KEY_0", "core.bare"),
        ("GIT_CONFIG_VALUE_0", "no boolean"),
    ):
        monkeypatch.setenv(name, str(value))
    first, second = Machine(tmp_path / "alpha"), Machine(tmp_path / "beta")
    first.write_claude(SESSION, ["mend the gauge", "mended"], "/work/tidepool")
    phrase = first.begin(str(target), "alpha-host")
    first.sync()
    joined = second.join(str(target), phrase, "beta-host")
    second.sync()

    assert 0 == joined.returncode, joined.stderr
    assert [f"claude:{SESSION}"] == list(second.sessions())
    assert before == sorted(path for path in other.rglob("*"))


def test_a_git_that_hangs_or_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it says, or with how long it was waited for."""
    with pytest.raises(git.GitFailed, match="git rev-list: fatal: "):
        git.run(tmp_path, "rev-list", "HEAD", timeout_s=60)
    monkeypatch.setenv("PATH", _wrapped_git(tmp_path / "bin", "exec sleep 60"))
    with pytest.raises(git.GitFailed, match="did not end within 0 seconds"):
        git.run(tmp_path, "rev-list", "HEAD", timeout_s=0.1)
