"""How busy sessions were, from a store that counts and from one that does not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.rules import rules
from thence.agents import adapters
from thence.cli import sample_machine
from thence.memory.activity import PULSE_PARTS, TimedStore, pulse
from thence.memory.gate import Gate
from thence.memory.sqlite import Sqlite
from thence.memory.sweep import Sweep


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sqlite]:
    """A store with the made-up sessions."""
    folder: Path = tmp_path_factory.mktemp("activity")
    sample_machine.write(folder, datetime.now(UTC), ("claude", "codex", "grok"))
    homes = sample_machine.homes(folder)
    made = Sqlite(str(folder / "kept.db"))
    roots = {name: adapter.roots(folder, homes.env) for name, adapter in adapters().items()}
    with made.sweeping():
        Sweep(made, adapters(), Gate(key=bytes(32)), rules()).run(
            {name: [path for path in paths if path.is_dir()] for name, paths in roots.items()}
        )
    yield made
    made.close()


class Plain:
    """The same store without its own way of counting."""

    def __init__(self, store: Sqlite) -> None:
        self.events = store.events


@pytest.mark.slow
def test_every_event_with_a_time_is_in_one_part(store: Sqlite) -> None:
    """The parts add up to the events, derived errors apart."""
    for row in store.sessions():
        drawn = pulse(store, row.session.session_uid)
        assert drawn is not None
        rows = store.events(row.session.session_uid)
        timed = [1 for row in rows if row.event.ts for _ in (row, *row.derived)]

        assert sum(drawn.events) + sum(drawn.errors) == len(timed)
        assert len(drawn.events) == PULSE_PARTS


def test_a_store_that_does_not_count_gives_the_same_events(store: Sqlite) -> None:
    """By the pages of its events."""
    plain: Any = Plain(store)
    assert isinstance(store, TimedStore)
    assert not isinstance(plain, TimedStore)
    for row in store.sessions():
        uid = row.session.session_uid

        assert pulse(store, uid) == pulse(plain, uid) is not None


def test_a_session_that_nobody_holds_has_none(store: Sqlite) -> None:
    """Evicted or unknown: there is nothing to draw."""
    assert pulse(store, "claude:none") is None
