"""What follows a sweep, whoever began it: `thence sweep`, `sweep --watch` or the server."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cli.desk import Desk, windows
from thence.cli import serve, wiring
from thence.cli.home_sweep import HomeSweep
from thence.memory import watching
from thence.serve.live import Hub

LONG_S = 60.0
LIMITS = """\
[session_memory.retention]
raw_soft_cap_bytes = 1
raw_hard_cap_bytes = 2
"""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A session that is larger than the storage limits."""
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(windows())
    desk.home.mkdir(mode=0o700)
    (desk.home / "config.toml").write_text(LIMITS, encoding="utf-8")
    return desk


def test_storage_limits_wait_for_the_sweep_that_digests(desk: Desk) -> None:
    """Each line that is written would otherwise plan what to remove."""
    known = wiring.adapters()
    with wiring.store(must_exist=False) as store:
        sweep = HomeSweep(store)
        read = sweep(known, wiring.roots(known), digests=False)
        digested = sweep(known, {})

    assert (1, 0, 0) == (read.sessions_new, read.digested, read.evicted)
    assert (0, 1, 1) == (digested.sessions_new, digested.digested, digested.evicted)
    assert digested is sweep.report


def test_the_server_applies_storage_limits(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has it run in the background needs no daily sweep besides."""
    monkeypatch.setattr(watching, "IDLE_BEFORE_DIGEST_S", 0.0)
    assert desk.home.is_dir()
    with wiring.store(must_exist=False) as store:
        hub = Hub(serve.make_context(store))
        assert hub.sweeper is not None
        hub.sweeper.start()
        until = time.monotonic() + LONG_S
        while time.monotonic() < until:
            if [row for row in store.sessions() if row.session.evicted_at is not None]:
                break
            time.sleep(0.05)
        hub.sweeper.stop()

        assert [False] == [row.session.evicted_at is None for row in store.sessions()]
