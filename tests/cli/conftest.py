"""A made-up machine with sessions of all agents, swept, for commands that act on what is kept."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.restored import restore
from thence.cli import sample_machine, thence

Run = Callable[..., Result]


def built(folder: Path, patch: pytest.MonkeyPatch) -> sample_machine.Homes:
    """Write the sessions, let all variables lead there, and sweep."""
    homes = sample_machine.write(folder, datetime.now(UTC), ("claude", "codex", "grok"))
    for name, value in (homes.env | {"HOME": str(folder), "COLUMNS": "80"}).items():
        patch.setenv(name, value)
    for name in ("THENCE_STORE", "THENCE_NO_PERSISTENCE", "CLAUDE_NO_SESSION_PERSISTENCE"):
        patch.delenv(name, raising=False)
    done = CliRunner().invoke(thence, ["sweep", "--json"], catch_exceptions=False)
    assert 0 == done.exit_code, done.output
    return homes


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sample_machine.Homes]:
    """A machine for a whole file of tests that change nothing."""
    patch = pytest.MonkeyPatch()
    yield built(tmp_path_factory.mktemp("machine"), patch)
    patch.undo()


@pytest.fixture(scope="module")
def as_built(looked_at: sample_machine.Homes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All its files, as they were when it was built."""
    copy = tmp_path_factory.mktemp("copy") / "machine"
    shutil.copytree(looked_at.work.parent, copy, symlinks=True)
    return copy


@pytest.fixture
def machine(looked_at: sample_machine.Homes, as_built: Path) -> Iterator[sample_machine.Homes]:
    """The same machine to change things on; afterwards all is as it was built."""
    yield looked_at
    restore(looked_at.work.parent, as_built)


@pytest.fixture
def run() -> Run:
    """Run a command in this process; its errors are raised."""

    def run(*arguments: str, **more: str) -> Result:
        return CliRunner().invoke(
            thence, arguments, catch_exceptions=False, standalone_mode=False, env=more or None
        )

    return run
