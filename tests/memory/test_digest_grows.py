"""A digest that goes on from the last one equals the digest made from nothing, at no more cost."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.measure import count_executed_lines
from tests.agents import test_growth
from tests.format.growing import Grown
from tests.format.test_fold import PHASES, interleaved, logs
from tests.memory import logs as claude
from tests.memory.stored import opened, sweep
from tests.memory.test_growth import SIZES, grow
from tests.pace import by_pace
from thence.agents import files
from thence.agents.sessions import read_all
from thence.format import sealing
from thence.format.facts import Fact
from thence.format.normal import SessionEvent
from thence.format.readout import Readout, SessionHead, anchor_events
from thence.format.session_graph import SessionGraph
from thence.memory.digest import DigestState, StateMissing, digest, digest_stored, unpack_state
from thence.memory.outcome import TASKS
from thence.memory.readouts import read_for_digest
from thence.memory.rows import digests_of
from thence.memory.store import DigestRecord, SessionRow
from thence.memory.sweep import Sweep


class Digested:
    """A session that grows, and the state of its digest, which goes through bytes."""

    def __init__(self, uid: str) -> None:
        self.grown = Grown(uid)
        self.state: DigestState | None = None
        self.known: set[int] = set()
        self.rebuilt = 0
        self.continued = 0

    def add(self, facts: Sequence[Fact]) -> None:
        """Add records to the session; a rebuilt session is digested from nothing."""
        before = self.grown.rebuilt.total()
        self.grown.add(facts)
        if self.grown.rebuilt.total() > before:
            self.state = None

    def differences(self) -> list[str]:
        """Digest both ways; name the fields that differ."""
        grown = self.grown
        delta, fold = grown.delta, grown.state
        assert delta is not None
        assert fold is not None
        events = {event.event_id: event for event in SessionGraph(grown.uid, grown.facts).events}
        head = SessionHead(delta.session, delta.title, edges=tuple(delta.edges))
        row = SessionRow(delta.session, change=1)
        expected = digest(Readout(grown.uid, grown.rows.values(), head, events=events), row)
        made = None
        if self.state is not None:
            end = self._end(self.state, head, events)
            try:
                made = digest(end, row, fold=fold, before=self.state)
                self.continued += 1
            except StateMissing:
                pass
        if made is None:
            session = Readout(grown.uid, grown.rows.values(), head, events=events)
            made = digest(session, row, fold=fold)
        self.state = None if made.state is None else unpack_state(made.state, fold.since, TASKS)
        self.known = set(grown.rows)
        return compare(expected, made)

    def _end(
        self, state: DigestState, head: SessionHead, events: dict[int, SessionEvent]
    ) -> Readout:
        grown = self.grown
        ids = [*anchor_events(grown.uid, state.anchors), *state.window]
        ids += [at for at in grown.rows if at not in self.known]
        nodes = {fact.node.id: fact.node for fact in state.anchors}
        rows = grown.fetch(dict.fromkeys(ids))
        return Readout(grown.uid, rows, head, events=events, anchors=nodes)


def compare(record: DigestRecord, other: DigestRecord) -> list[str]:
    """Name what two digests say differently."""
    parts = [{**made.digest, "signals": made.signals} for made in (record, other)]
    return [
        f"{name}: {parts[1].get(name)} instead of {parts[0].get(name)}"
        for name in parts[0].keys() | parts[1].keys()
        if parts[0].get(name) != parts[1].get(name)
    ]


@pytest.mark.slow
@settings(max_examples=by_pace(everyday=10, full=12, prove=300), phases=PHASES)
@given(logs(), st.data())
def test_a_digest_that_goes_on_is_the_digest_made_from_nothing(
    log: list[Fact], data: st.DataObject
) -> None:
    """After every step, wherever the log is split, whatever branches and repeats it holds."""
    session = Digested("claude:s")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealing, "WINDOW_RECORDS", 3)
        patch.setattr(sealing, "SIDE_RECORDS", 1)
        while log:
            size = data.draw(st.integers(1, 7))
            session.add(log[:size])
            log = log[size:]

            assert [] == session.differences()


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("part", range(4))
def test_every_real_session_is_digested_alike_from_wherever_it_goes_on(
    shared: Path, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In random pieces, its files in turn and mixed; windows are small, so that much is sealed."""
    monkeypatch.setattr(sealing, "WINDOW_RECORDS", 6)
    monkeypatch.setattr(sealing, "SIDE_RECORDS", 2)
    each = by_pace(everyday=32, full=32, prove=4)
    continued = 0
    for number, (adapter, source) in enumerate(test_growth.sessions(shared / "data")[part::each]):
        facts = read_all(adapter, source)[0]
        if not facts or len(facts) > by_pace(everyday=400, full=800, prove=20_000):
            continue
        chance = random.Random(number)
        left = interleaved(facts, number) if number % 2 else list(facts)
        session = Digested(source.uid)
        while left:
            size = min(len(left), chance.randint(1, max(len(facts) // 5, 1)))
            while size < len(left) and (left[size - 1].file, left[size - 1].line) == (
                left[size].file,
                left[size].line,
            ):
                size += 1
            session.add(left[:size])
            left = left[size:]

            assert [] == session.differences(), source.path
        continued += session.continued

    assert continued


def redigested(folder: Path, home: Path) -> tuple[int, DigestRecord, DigestRecord]:
    """Sweep without digests; count the lines of digesting then; return that digest, and anew."""
    sweep(folder, {"claude": [home]}, digests=False)
    store = opened(folder)
    try:
        (row,) = store.sessions()
        made: list[DigestRecord] = []
        number = count_executed_lines(
            lambda: made.append(digest_stored(store, row, tasks=None, others=None))
        )
        anew = digest(read_for_digest(store, row), row)
        store.write(digests=made)
        return number, anew, made[0]
    finally:
        store.close()


@pytest.mark.slow
def test_to_digest_a_line_more_costs_the_same_in_a_session_of_any_length(tmp_path: Path) -> None:
    """Counted in executed lines; the digest says what one made from nothing says."""
    work = []
    for turns in SIZES:
        home, folder = tmp_path / f"home{turns}", tmp_path / f"store{turns}"
        script = claude.script(1, turns)
        claude.write(home, script)
        sweep(folder, {"claude": [home]})
        for _ in range(3):
            grow(home, script)
            number, anew, made = redigested(folder, home)

            assert [] == compare(anew, made)
        work.append(number)

    assert max(work) <= 1.2 * min(work)


def test_no_state_of_a_digest_outlives_what_it_was_made_of(tmp_path: Path) -> None:
    """An evicted session leaves nothing for the next digest."""
    home, folder = tmp_path / "home", tmp_path / "store"
    script = claude.script(1, 64)
    claude.write(home, script)
    sweep(folder, {"claude": [home]})
    store = opened(folder)
    (row,) = store.sessions()
    uid = row.session.session_uid
    states = [store.digest_state(uid)]
    store.remove([uid], why={uid: "tests"})
    states.append(store.digest_state(uid))
    store.close()

    assert [True, False] == [state is not None for state in states]


@pytest.mark.slow
def test_session_read_in_pieces_is_digested_as_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not read again from the store, and its digest is that of one read at once."""
    home = tmp_path / "home"
    claude.write(home, claude.script(1, 256))
    reports = [sweep(tmp_path / "at-once", {"claude": [home]})]
    monkeypatch.setattr(files, "Limits", partial(files.Limits, bytes=60_000))
    monkeypatch.delattr(Sweep, "_digest_stored")
    reports.append(sweep(tmp_path / "pieces", {"claude": [home]}))
    made: list[DigestRecord] = []
    changes: list[int] = []
    for name in ("at-once", "pieces"):
        store = opened(tmp_path / name)
        (row,) = store.sessions()
        made += digests_of(store, row)
        changes.append(row.change)
        store.close()

    assert [] == compare(*made)
    assert [1, 1] == [report.digested for report in reports]
    assert changes[0] == 1
    assert changes[1] > 2
