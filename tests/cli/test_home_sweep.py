"""What follows a sweep, whoever began it: `thence sweep`, `sweep --watch` or the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cli.desk import Desk, windows
from tests.serve.test_live import wait_until
from thence.cli import home_sweep, processes, serve, wiring
from thence.cli.home_sweep import HomeSweep, ServerSweep
from thence.memory import sweeper, watching
from thence.memory.reports import Progress, SweepReport
from thence.memory.store import StoreLocked
from thence.serve import now_page
from thence.serve.clock import DisplayClock
from thence.serve.live import Hub

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
        wait_until(lambda: any(row.session.evicted_at is not None for row in store.sessions()))
        hub.sweeper.stop()

        assert [False] == [row.session.evicted_at is None for row in store.sessions()]


def test_a_server_leaves_a_large_first_sweep_to_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own sweeps wait for that one, publish what it stores, and find nothing new then."""
    monkeypatch.setattr(home_sweep, "MIN_FIRST_SWEEP_BYTES", 0)
    monkeypatch.setattr(sweeper, "TICK_S", 0.05)
    Desk(tmp_path, monkeypatch).write_claude(windows())
    reports: list[tuple[int, int]] = []
    waits: list[str] = []
    own_sweep = HomeSweep.__call__

    def note_report(self: HomeSweep, *what: Any, **options: Any) -> SweepReport:
        report = own_sweep(self, *what, **options)
        reports.append((report.sessions_new, report.events))
        return report

    monkeypatch.setattr(HomeSweep, "__call__", note_report)
    with wiring.store(must_exist=False) as store:
        context = serve.make_context(store)
        hub = Hub(context)
        assert isinstance(context.sweep_home, ServerSweep)
        assert hub.sweeper is not None
        try:
            context.sweep_home(context.known, context.roots)
        except StoreLocked as error:
            waits.append(error.message)
        hub.sweeper.start()
        wait_until(lambda: bool(hub._published and reports))
        hub.sweeper.stop()
        context.sweep_home.stop()
        stored = [row.session.session_uid for row in store.sessions()]

    assert ["the first sweep goes on"] == waits
    assert (0, 0) == reports[0]
    assert 1 == len(stored)
    assert set(stored) == set(hub._published)


def test_a_server_sweeps_few_logs_itself(desk: Desk) -> None:
    """Another process would take longer than they do; what is stored already needs none either."""
    known = wiring.adapters()
    assert desk.home.is_dir()
    with wiring.store(must_exist=False) as store:
        sweep = ServerSweep(store)
        first = sweep(known, wiring.roots(known), digests=False)
        again = ServerSweep(store)(known, wiring.roots(known), digests=False)

    assert (1, 0) == (first.sessions_new, again.sessions_new)


def test_the_first_page_shows_how_far_the_first_sweep_is(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its process reports, whose warnings are passed over; nothing when it has ended."""
    progress = msgspec.json.encode(Progress("read", 42, 100, 3, 7)).decode()
    program = f"import sys, time; print('note: x\\n{progress}', file=sys.stderr); time.sleep(60)"
    monkeypatch.setattr(home_sweep, "MIN_FIRST_SWEEP_BYTES", 0)
    monkeypatch.setattr(processes, "thence", lambda *_: processes.python("-c", program))
    assert desk.home.is_dir()
    with wiring.store(must_exist=False) as store:
        context = serve.make_context(store)
        sweep = context.sweep_home
        assert isinstance(sweep, ServerSweep)
        with pytest.raises(StoreLocked):
            sweep(context.known, context.roots)
        wait_until(lambda: sweep.progress() is not None)
        during = now_page.page(context, DisplayClock()).importing
        sweep.stop()
        wait_until(lambda: sweep.progress() is None)
        after = now_page.page(context, DisplayClock()).importing

    assert "Importing the logs of your agents: 3 of 7 sessions read, 42 %" == during
    assert "" == after


def test_a_server_that_stops_ends_its_first_sweep(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had not read is read by the next sweep."""
    monkeypatch.setattr(home_sweep, "MIN_FIRST_SWEEP_BYTES", 0)
    known = wiring.adapters()
    assert desk.home.is_dir()
    with wiring.store(must_exist=False) as store:
        sweep = ServerSweep(store)
        with pytest.raises(StoreLocked):
            sweep(known, wiring.roots(known))
        sweep.stop()
        sweep(known, wiring.roots(known), digests=False)

        assert 1 == len(list(store.sessions()))
