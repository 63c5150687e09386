"""What a sweep that finds nothing new does per file, counted; for any agent as for the first."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import UUID, uuid5

import pytest

from tests.memory.stored import KEY, opened
from tests.rules import rules
from thence.agents import adapters, samples
from thence.agents.profiles import agents
from thence.memory.gate import Gate
from thence.memory.sweep import Sweep

FIRST = ("claude", "codex", "grok")
"""The agents that were read before all others."""

FEW, MORE = 1, 3
NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)


def _write_sessions(home: Path, copies: Iterable[int], patch: pytest.MonkeyPatch) -> None:
    """Write the made-up sessions of all agents, each copy with ids of its own."""
    for copy in copies:

        def own_id(space: UUID, name: str, copy: int = copy) -> UUID:
            return uuid5(space, f"{copy} {name}")

        patch.setattr(samples, "uuid5", own_id)
        for agent in agents().values():
            if agent.sample is not None:
                root = agent.reader.roots(home, {})[0]
                machine = samples.Machine(root, home / "work")
                agent.sample(machine, NOW + timedelta(minutes=copy))


def _count_calls(run: Any) -> int:
    """Return how many functions were called, of Python and of C."""
    calls = 0

    def note(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return calls


class _Home:
    """A home that was swept, and what a sweep costs that finds nothing new."""

    def __init__(self, home: Path, store: Path) -> None:
        self._home, self._known = home, adapters()
        self._store = opened(store)

    def measure(self, names: Iterable[str]) -> tuple[int, int]:
        """Return the calls of such a sweep of some agents, and their files."""
        roots = {name: self._known[name].roots(self._home, {})[:1] for name in names}
        sources = [s for name in roots for s in self._known[name].find(roots[name][0])]
        with self._store.sweeping():

            def run() -> Any:
                sweep = Sweep(self._store, self._known, Gate(key=KEY), rules(), digests=False)
                return sweep.run(roots)

            run()
            report = run()
            calls = _count_calls(run)
        assert (0, 0) == (report.sessions_new, report.sessions_changed)
        return calls, sum(len(source.files) for source in sources)

    def close(self) -> None:
        """Close its store."""
        self._store.close()


@pytest.mark.slow
def test_a_sweep_with_nothing_new_does_no_more_per_file_for_all_agents_than_for_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What each further file costs is counted: by call, at two sizes, whatever a sweep costs."""
    names = [name for name, agent in agents().items() if agent.sample is not None]
    homes = [_Home(tmp_path / "home", tmp_path / name) for name in ("first", "all")]
    try:
        costs: list[tuple[int, int]] = []
        for copies in (range(FEW), range(FEW, MORE)):
            _write_sessions(tmp_path / "home", copies, monkeypatch)
            costs += [homes[0].measure(FIRST), homes[1].measure(names)]
    finally:
        for home in homes:
            home.close()
    few_first, few_all, first, every = costs
    per_file = [
        (more[0] - less[0]) / (more[1] - less[1])
        for less, more in ((few_first, first), (few_all, every))
    ]

    assert every[1] - few_all[1] > 1.5 * (first[1] - few_first[1])
    assert per_file[1] <= per_file[0], per_file
    assert per_file[0] < 60, per_file  # 90 before files were found by one listing a folder
