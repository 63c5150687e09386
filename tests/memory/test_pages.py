"""Events in pages: whatever changes, each is there once, in order, under its number."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.memory import logs
from tests.memory.stored import dump, opened, sweep
from tests.memory.test_migration import extracted, scripts
from thence.agents import Cursor
from thence.format import fold
from thence.format.facts import fact_of
from thence.format.normal import SEQ_STEP, Session, SessionEvent, event_id
from thence.format.session_graph import SessionGraph
from thence.format.stored import (
    DerivedEvent,
    StoredEvent,
    decode_events,
    decode_refs,
    encode_events,
    events_of_session,
    number_events,
)
from thence.memory import pages
from thence.memory.store import SessionChange, SessionRow
from thence.testing import Draft

UID = "claude:s"


def row(number: int, text: str = "") -> StoredEvent:
    """An event that says something."""
    native = f"r{number}"
    above = event_id(UID, f"r{number - 1}") if number else None
    event = SessionEvent(UID, event_id(UID, native), "user_msg", above, summary=text)
    return StoredEvent(msgspec.structs.replace(event, native_id=native), "main", number)


def draft() -> SessionGraph:
    """A session with calls, a failure and a subagent."""
    made = Draft()
    made.prompt("Go.")
    made.reply("", made.call("c1", "Bash", command="pytest -q"))
    made.prompt("And?")
    made.reply("Done.")
    return SessionGraph(UID, [fact_of(event) for event in made.events])


def test_refs_are_read_by_themselves_as_they_are_with_all_else() -> None:
    """Numbers that are left out are put in again; an event without a payload has no ref."""
    made = number_events([*events_of_session(draft()), *(row(n) for n in range(5))], 160)
    last = msgspec.structs.replace(
        made[-1], event=msgspec.structs.replace(made[-1].event, payload_ref="p#1", seq=9_999)
    )
    rows = [*made[:-1], last]
    body = encode_events(UID, rows)

    assert {at.seq: at.event.payload_ref for at in rows} == decode_refs(body)
    assert "p#1" == decode_refs(body)[9_999]


def test_events_come_back_as_they_were() -> None:
    """Ids, parents and numbers that are left out are put in again; odd ones are written down."""
    rows = number_events([*events_of_session(draft()), *(row(n) for n in range(5))], 160)
    odd = row(9)
    odd = msgspec.structs.replace(
        odd, event=msgspec.structs.replace(odd.event, event_id=7, seq=999)
    )
    derived = msgspec.structs.replace(rows[0], derived=(DerivedEvent("edit", "edited a", None),))

    assert [derived, *rows[1:], odd] == decode_events(
        UID, encode_events(UID, [derived, *rows[1:], odd])
    )


class Stored:
    """What a store does with pages, beside a plain list of the same events."""

    def __init__(self) -> None:
        self.pages: dict[int, bytes] = {}
        self.numbers: dict[int, int] = {}
        self.texts: dict[int, str] = {}

    def change(self, new: list[StoredEvent], altered: list[StoredEvent], gone: list[int]) -> None:
        """Write a change."""
        change = SessionChange(
            SessionRow(Session(UID, "claude", "s")), Cursor(), b"", new, altered, gone
        )
        ids = [*(stored_event.event.event_id for stored_event in altered), *gone]
        known: dict[int, int | None] = {at: self.numbers[at] for at in ids}
        lowest = min((seq for seq in known.values() if seq is not None), default=1 << 62)
        start = max((at for at in self.pages if at <= lowest), default=0)
        touched = {at: body for at, body in self.pages.items() if at >= start}
        made = pages.change_pages(UID, touched, change, known)
        for at in made.dropped:
            del self.pages[at]
        self.pages |= made.pages
        self.numbers |= made.numbers
        self.texts |= {
            stored_event.event.event_id: stored_event.event.summary
            for stored_event in (*altered, *new)
        }
        for at in gone:
            del self.texts[at], self.numbers[at]

    def rows(self) -> list[StoredEvent]:
        """Return all events as they are read."""
        bodies = [body for _, body in sorted(self.pages.items())]
        return pages.select_events(UID, bodies, after=-1, limit=None, ids=None)


@given(st.data())
def test_pages_hold_what_was_written_whatever_changed(data: st.DataObject) -> None:
    """Events come, change and vanish; what was numbered keeps its number."""
    stored, written = Stored(), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "PAGE_EVENTS", 4)
        for step in range(data.draw(st.integers(1, 8))):
            count = data.draw(st.integers(0, 9))
            there = list(stored.texts)
            some = data.draw(st.lists(st.sampled_from(there), unique=True)) if there else []
            gone = some[: data.draw(st.integers(0, len(some)))]
            by_id = {stored_event.event.event_id: stored_event for stored_event in stored.rows()}
            altered = [
                row(int(by_id[at].event.native_id[1:]), f"step {step}") for at in some[len(gone) :]
            ]
            before = dict(stored.numbers)
            stored.change([row(written + n) for n in range(count)], altered, gone)
            written += count
            rows = stored.rows()

            assert stored.texts == {
                stored_event.event.event_id: stored_event.event.summary for stored_event in rows
            }
            assert stored.numbers == {
                stored_event.event.event_id: stored_event.seq for stored_event in rows
            }
            assert sorted(stored_event.seq for stored_event in rows) == [
                stored_event.seq for stored_event in rows
            ]
            assert before == {**before, **{a: s for a, s in stored.numbers.items() if a in before}}
            sizes = [len(pages.unpack_page(UID, body) or ()) for body in stored.pages.values()]
            assert not sizes or max(sizes) <= 4


def test_a_page_that_grows_decodes_no_event_and_is_as_if_it_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A line more in a live session must not cost the whole page again."""
    monkeypatch.setattr(pages, "PAGE_EVENTS", 8)
    stored, decoded = Stored(), []
    monkeypatch.setattr(pages, "decode_events", lambda *what: decoded.append(what))
    stored.change([row(n) for n in range(5)], [], [])
    stored.change([row(n) for n in range(5, 7)], [row(3, "altered")], [])
    stored.change([row(n) for n in range(7, 12)], [row(6, "altered")], [])
    monkeypatch.setattr(pages, "decode_events", decode_events)

    assert [] == decoded
    texts = {3: "altered", 6: "altered"}
    expected = number_events([row(n, texts.get(n, "")) for n in range(12)], -1)
    assert expected == stored.rows()


def test_a_page_of_another_version_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its events have another shape, perhaps."""
    body = pages.pack_page(UID, number_events([row(1)], -1))
    monkeypatch.setattr(fold, "VERSION", fold.VERSION + 1)

    assert None is pages.unpack_page(UID, body)


@pytest.fixture
def swept(tmp_path: Path) -> tuple[Path, str]:
    """A store with a session of several pages."""
    script = logs.script(1, 150)
    logs.write(tmp_path / "home", script)
    sweep(tmp_path, {"claude": [tmp_path / "home"]})
    return tmp_path, f"claude:{script.session}"


def test_ranges_of_a_session_are_read(swept: tuple[Path, str]) -> None:
    """After a number, so many, or by their ids; together they are all of it."""
    folder, uid = swept
    store = opened(folder)
    rows = store.events(uid)
    after, parts = -1, []
    while part := store.events(uid, after=after, limit=100):
        parts += part
        after = part[-1].seq
    wanted = rows[333].event.event_id
    events = store.events(uid, ids=(wanted, wanted))
    none = store.events("claude:none"), store.events(uid, after=rows[-1].seq)
    store.close()

    assert len(rows) > 2 * pages.PAGE_EVENTS
    assert [SEQ_STEP * at for at in range(len(rows))] == [stored_event.seq for stored_event in rows]
    assert rows == parts
    assert [rows[333]] == events
    assert ([], []) == none


@pytest.mark.slow
@pytest.mark.parametrize("schema", ["schema-4", "schema-8"])
def test_events_of_an_old_store_are_the_same_before_and_after_the_next_sweep(
    tmp_path: Path, schema: str
) -> None:
    """Until its pages are written they are derived from its facts; then both stores are equal."""
    old = extracted(schema, tmp_path)
    home = tmp_path / "home"
    logs.write(home, *scripts())
    store = opened(old)
    uids = [entry.session.session_uid for entry in store.sessions()]
    before = {uid: store.events(uid) for uid in uids}
    first = before[uids[0]][0].event.event_id
    events = store.events(uids[0], ids=(first, first))
    store.close()
    sweep(old, {"claude": [home]})
    store = opened(old)
    after = {uid: store.events(uid) for uid in uids}
    store.close()

    assert all(before.values())
    assert [first] == [stored_event.event.event_id for stored_event in events]
    assert {uid: ids(rows) for uid, rows in before.items()} == {
        uid: ids(rows) for uid, rows in after.items()
    }
    sweep(tmp_path / "new", {"claude": [home]})
    assert dump(old)["events"] == dump(tmp_path / "new")["events"]


def ids(rows: list[StoredEvent]) -> list[tuple[int, str]]:
    """Which events there are, and what became of them."""
    return [(stored_event.event.event_id, f"{stored_event.event.state}") for stored_event in rows]
