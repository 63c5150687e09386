"""What runs here needs the real clients, and a network to fetch them: `make e2e` only."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Take these tests up only when they are asked for by their mark."""
    asked = "e2e" in (config.getoption("markexpr") or "")
    return None if asked or not collection_path.name.startswith("test_") else True
