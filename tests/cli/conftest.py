"""A made-up machine with sessions of all agents, swept, for commands that act on what is kept."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from thence.cli import madeup, thence

Run = Callable[..., Result]


def built(folder: Path, patch: pytest.MonkeyPatch) -> madeup.Homes:
    """Write the sessions, let all variables lead there, and sweep."""
    homes = madeup.write(folder, datetime.now(UTC), ("claude", "codex", "grok"))
    for name, value in (homes.env | {"HOME": str(folder), "COLUMNS": "80"}).items():
        patch.setenv(name, value)
    for name in ("THENCE_STORE", "THENCE_NO_PERSISTENCE", "CLAUDE_NO_SESSION_PERSISTENCE"):
        patch.delenv(name, raising=False)
    done = CliRunner().invoke(thence, ["sweep", "--json"], catch_exceptions=False)
    assert 0 == done.exit_code, done.output
    return homes


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[madeup.Homes]:
    """A machine for a whole file of tests that change nothing."""
    patch = pytest.MonkeyPatch()
    yield built(tmp_path_factory.mktemp("machine"), patch)
    patch.undo()


@pytest.fixture(scope="module")
def as_built(looked_at: madeup.Homes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All its files, as they were when it was built."""
    copy = tmp_path_factory.mktemp("copy") / "machine"
    shutil.copytree(looked_at.work.parent, copy, symlinks=True)
    return copy


@pytest.fixture
def machine(looked_at: madeup.Homes, as_built: Path) -> Iterator[madeup.Homes]:
    """The same machine to change things on; afterwards all is as it was built."""
    yield looked_at
    folder = looked_at.work.parent
    for path in sorted(folder.rglob("*"), reverse=True):
        if not os.path.lexists(as_built / path.relative_to(folder)):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    for path in sorted(as_built.rglob("*")):
        _restore(path, folder / path.relative_to(as_built))


def _restore(was: Path, path: Path) -> None:
    """Put a file back, unless it is the same still."""
    if was.is_dir():
        path.mkdir(exist_ok=True)
    elif not path.exists() or was.read_bytes() != path.read_bytes():
        shutil.copy2(was, path)


@pytest.fixture
def run() -> Run:
    """Run a command in this process; its errors are raised."""

    def run(*arguments: str, **more: str) -> Result:
        return CliRunner().invoke(
            thence, arguments, catch_exceptions=False, standalone_mode=False, env=more or None
        )

    return run
