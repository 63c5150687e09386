"""What tests of the memory share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres import Cluster, cluster


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """A Postgres server: one for each process that runs tests, and only where one is asked for."""
    with cluster() as running:
        yield running
