"""What several files of these tests look at: the real sessions, swept once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.memory.stored import RealStore, sweep
from tests.memory.test_sweep import real_roots


@pytest.fixture(scope="session")
def real_store(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> RealStore:
    """All real sessions, swept once in each process that runs tests; change nothing."""
    folder, roots = tmp_path_factory.mktemp("real"), real_roots(shared)
    return RealStore(folder, roots, sweep(folder, roots))
