"""What several files of these tests look at: the real sessions, swept once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.memory.stored import RealStore, sweep
from tests.memory.test_sweep import real_roots
from thence.memory.reports import SweepReport


@pytest.fixture(scope="session")
def real_store(
    shared: Path,
    made_once: Callable[[str, Callable[[Path], None]], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> RealStore:
    """All real sessions, swept once for all processes that run tests; change nothing."""
    roots = real_roots(shared)

    def make(folder: Path) -> None:
        folder.mkdir()
        report = sweep(folder, roots)
        (folder / "report.json").write_bytes(msgspec.json.encode(report))

    made = made_once("real-store", make)
    report = msgspec.json.decode((made / "report.json").read_bytes(), type=SweepReport)
    own = tmp_path_factory.mktemp("real") / "store"  # a file that is read is locked, and grows
    return RealStore(shutil.copytree(made, own), roots, report)
