"""How the benchmark of watching waits for lines."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from bench import bench_watch


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        pytest.param([1, 1, 2, 3], (3, 150.0), id="late"),
        pytest.param([1, 2, 2, 2, 2], (2, 50.0), id="lost"),
        pytest.param([3], (3, 0.0), id="at once"),
    ],
)
def test_a_line_is_lost_only_when_no_more_are_stored(
    monkeypatch: pytest.MonkeyPatch, counts: list[int], expected: tuple[int, float]
) -> None:
    """Of three lines; a look every 50 seconds, and 120 may pass without a new one."""
    now = 0.0

    def sleep(_: float) -> None:
        nonlocal now
        now += 50.0

    stored: Iterator[int] = iter(counts)
    monkeypatch.setattr(bench_watch, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    monkeypatch.setattr(bench_watch, "count_events", lambda _: {"a": next(stored)})
    store: Any = None

    assert expected == bench_watch.wait_for_lines(store, 3)
