"""One warm parent for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.warm import Warm


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """Start the parent that the processes to be killed are forked from."""
    with Warm("tests.faults.crowd", "tests.faults.story", "tests.faults.test_disk") as warm:
        yield warm
