"""Reading from the end: the same as reading everything, or slower, never something else."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.journal.runs import Run, Script, open_calls, scripts
from thence.format import codec
from thence.format.records import MESSAGES, Event
from thence.format.state import Domains
from thence.format.transcript import Transcript
from thence.journal import reader
from thence.journal.journal import Journal
from thence.journal.reader import ReadBack, SessionSource, find_event, head, read_back
from thence.journal.segments import Segments
from thence.journal.session import Session

FEWER = settings(max_examples=(settings.default or settings()).max_examples // 3)
"""Four tests share what one would take."""

DAMAGE: tuple[tuple[str, Any], ...] = (
    ("kept", None),
    ("kept", "x"),
    ("kept", [[1, 0, 10]]),
    ("kept", [[1, -1, 2**70]]),
    ("kept", [["1", None, 3.5, {}]]),
    ("kept", [[1, 0, 1 << 50]]),
    ("kept", [[1, 0, 9, "../../etc/passwd"]]),
    ("summary", None),
    ("summary", [0, 5]),
    ("summary", ["a"]),
    ("summary", []),
    ("state", None),
    ("state", {"version": 99, "domains": {}}),
    ("state", {"version": 1, "domains": {"cwd": {"version": 1, "value": "/lies"}}}),
    ("totals", [None]),
)


def read(data: bytes, folder: Path, at: str | None = None) -> ReadBack:
    """Read bytes as the journal reads a session of no ancestors."""
    path = folder / "read.jsonl"
    path.write_bytes(data)
    with Segments([path]) as segments:
        source = SessionSource("read", segments, lambda _: None)
        return read_back(source, at=at, covers=Domains().covers)


def slowly(data: bytes) -> tuple[list[str], dict[str, Any]]:
    """Read everything: the ids the model sees, and the state folded from the root."""
    transcript = Transcript.read(data)
    line = [event for event in transcript.line() if event.type != "header"]
    state = Domains().fold([*transcript.events[:1], *line], [])
    state.values.pop("messages")
    return [event.uuid for event in transcript.chain() if event.type in MESSAGES], state.values


def quickly(back: ReadBack) -> tuple[list[str], dict[str, Any]]:
    """The same, of what was read from the end."""
    state = Domains().fold(back.since, [], snapshot=back.snapshot)
    state.values.pop("messages")
    return [event.uuid for event in back.chain], state.values


def with_roots(script: Script, folder: Path) -> list[bytes]:
    """Run a script and give the files of its sessions that go on from nothing."""
    run = Run(folder / "home", script)
    logs = [p.read_bytes() for p in (folder / "home").rglob("*.jsonl")]
    assert run.session.transcript_path is not None
    return [data for data in logs if b'"resumed_from":null' in data.splitlines()[0]]


def damaged(data: bytes, field: str, value: Any) -> bytes:
    """Put another value into a field of every boundary."""
    lines = data.splitlines(keepends=True)
    for k, line in enumerate(lines):
        events = codec.decode(line).events
        if events and events[0].type == "boundary":
            event = events[0]
            payload = {**event.fields, field: value}
            hurt = Event("boundary", event.ts, event.uuid, event.prev_uuid, payload)
            lines[k] = codec.encode(hurt)
    return b"".join(lines)


def grow(session: Session, count: int, size: int = 1000) -> list[str]:
    """Record so many prompts of so many bytes."""
    payload = {"role": "user", "content": "x" * size}
    return [session.record("user", payload).uuid for _ in range(count)]


# -- the same as reading everything -----------------------------------------------------


@FEWER
@given(script=scripts)
def test_reading_from_the_end_is_reading_everything(script: Script) -> None:
    """Chain, state and places: by the ranges of the last boundary or by all bytes, one answer."""
    with tempfile.TemporaryDirectory() as folder:
        for data in with_roots(script, Path(folder)):
            back = read(data, Path(folder))
            places = [back.where()[event.uuid] for event in back.chain]
            decoded = [codec.decode(data[w.offset : w.offset + w.length]).events for w in places]

            assert slowly(data) == quickly(back)
            assert [[event] for event in back.chain] == decoded


@FEWER
@given(script=scripts, what=st.sampled_from(DAMAGE))
def test_a_boundary_with_bad_caches_costs_time_only(script: Script, what: tuple[str, Any]) -> None:
    """Ranges and state are caches: damaged ones lead to the same chain and state, slowly."""
    with tempfile.TemporaryDirectory() as folder:
        for data in with_roots(script, Path(folder)):
            hurt = damaged(data, *what)
            chain, state = slowly(data)

            assert (chain, state) == quickly(read(hurt, Path(folder)))
            assert chain == slowly(hurt)[0]


def again(line: bytes, *, after: bytes) -> bytes:
    """The event of a line once more, going on from another one."""
    event, last = codec.decode(line).events[0], codec.decode(after).events[0]
    return codec.encode(Event(event.type, event.ts, event.uuid, last.uuid, event.payload))


LEFT_OUT = ("where", "settled")
"""What is compared by what it gives, and what only spares a look."""

ODD_TAILS: dict[str, Callable[[list[bytes]], bytes]] = {
    "as it is": b"".join,
    "a blank line": lambda lines: b"".join([*lines[:-2], b"\n", *lines[-2:]]),
    "two events on one line": lambda lines: b"".join([*lines[:-2], lines[-2][:-1], lines[-1]]),
    "an event over two lines": lambda lines: b"".join(
        [*lines[:-1], lines[-1].replace(b'"payload":', b'"payload":\n')]
    ),
    "a torn line": lambda lines: b"".join(lines)[:-9],
    "a whole line without its end": lambda lines: b"".join(lines)[:-1],
    "a field nobody knows": lambda lines: b"".join([*lines[:-1], b'{"x":1,' + lines[-1][1:]]),
    "a copy": lambda lines: b"".join([*lines, lines[-2]]),
    "an id that comes again further down": lambda lines: b"".join(
        [*lines, again(lines[-2], after=lines[-1])]
    ),
    "its own parent": lambda lines: b"".join([*lines, again(lines[-1], after=lines[-1])]),
    "a line lost": lambda lines: b"".join([*lines[:-4], *lines[-3:]]),
    "bad bytes": lambda lines: b"".join([*lines[:-3], b"\xff\0\n", *lines[-3:]]),
    "a line that is no event": lambda lines: b"".join([*lines[:-3], b"[1]\n", *lines[-3:]]),
    "an open call": lambda lines: b"".join(lines).replace(b'"tool_use_id":"c"', b'"by":"d"'),
}


@pytest.mark.parametrize("compacted", [True, False])
@pytest.mark.parametrize("odd", ODD_TAILS)
def test_the_quick_way_is_the_graphs(
    odd: str, compacted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a boundary or the header on: read without a graph or with one, the same is found."""
    session = Journal(tmp_path / "home", durability="none").create()
    uuids = grow(session, 3)
    if compacted:
        session.compact("so far", keep_from=uuids[1])
    call = {"type": "tool_use", "id": "c", "name": "Bash", "input": {}}
    session.record("assistant", {"role": "assistant", "content": [call]})
    result = {"type": "tool_result", "tool_use_id": "c", "content": "done"}
    session.record("user", {"role": "user", "content": [result]})
    grow(session, 3)
    assert session.transcript_path is not None
    data = ODD_TAILS[odd](session.transcript_path.read_bytes().splitlines(keepends=True))
    quick = read(data, tmp_path)
    asked = open_calls(quick.chain)
    monkeypatch.setattr(reader, "_straight", lambda *_: None)
    slow = read(data, tmp_path)

    assert not (quick.settled and asked)
    assert slow.where() == quick.where()
    for name in (name for name in ReadBack.__struct_fields__ if name not in LEFT_OUT):
        assert getattr(slow, name) == getattr(quick, name)


@FEWER
@given(script=scripts, at=st.integers(0, 2**16))
def test_any_event_can_be_read_to(script: Script, at: int) -> None:
    """The chain to an event is the graph's, whichever boundaries stand before or after it.

    Where calls are open, results that came later may be taken or not: there is no one answer.
    """
    with tempfile.TemporaryDirectory() as folder:
        for data in with_roots(script, Path(folder)):
            transcript = Transcript.read(data)
            place = at % len(transcript.events)
            back = read(data, Path(folder), at=transcript.events[place].uuid)
            alone = [transcript.events[i] for i in transcript.graph.chain(place, beside=False)]
            expected = [e.uuid for e in transcript.chain(place) if e.type in MESSAGES]

            if not open_calls([event for event in alone if event.type in MESSAGES]):
                assert expected == [event.uuid for event in back.chain]


@FEWER
@given(script=scripts, cut=st.floats(0, 1))
def test_any_prefix_of_a_file_reads_as_far_as_it_goes(script: Script, cut: float) -> None:
    """Torn at any byte: what the whole lines say, and no error."""
    with tempfile.TemporaryDirectory() as folder:
        for data in with_roots(script, Path(folder)):
            part = data[: int(len(data) * cut)]

            assert slowly(part) == quickly(read(part, Path(folder)))


# -- no more than is needed -------------------------------------------------------------


@pytest.mark.parametrize("keep", [True, False])
def test_a_compacted_session_is_opened_by_its_tail(tmp_path: Path, keep: bool) -> None:
    """Five megabytes were said; a summary, what was kept and what followed are read."""
    journal = Journal(tmp_path, durability="none")
    session = journal.create()
    uuids = grow(session, 5000)
    session.compact("all of it", keep_from=uuids[-5] if keep else None)
    grow(session, 5)
    path = session.transcript_path
    assert path is not None
    back = journal._load(path.parent, session.id)

    assert 5_000_000 < path.stat().st_size
    assert 30_000 > back.bytes_read
    assert [e.uuid for e in session._chain] == [e.uuid for e in back.chain]


def test_an_adopted_compacted_session_reads_its_ancestors_tail(tmp_path: Path) -> None:
    """The ancestor is read by its boundary too, up to the event that was gone on from."""
    journal = Journal(tmp_path, durability="none")
    session = journal.create()
    grow(session, 2000)
    session.compact("all of it")
    grow(session, 5)
    child = journal.resume(session.id)
    grow(child, 5)
    path = child.transcript_path
    assert path is not None
    back = journal._load(path.parent, child.id)

    assert 30_000 > back.bytes_read
    assert 11 == len(back.chain)


def test_a_boundary_on_a_dead_branch_is_not_applied(tmp_path: Path) -> None:
    """The last boundary in the file is not the live line's: it is passed by."""
    journal = Journal(tmp_path, durability="none")
    session = journal.create()
    uuids = grow(session, 3, 10)
    session.compact("dead")
    session.rewind(uuids[-1])
    more = grow(session, 1, 10)

    assert [*uuids, *more] == [e.uuid for e in journal.resume(session.id)._chain]


def test_what_a_compaction_kept_may_stand_in_an_ancestor(tmp_path: Path) -> None:
    """Ranges lead there; without the ancestor the chain is what is left, and that is said."""
    journal = Journal(tmp_path, durability="none")
    old = journal.create()
    uuids = grow(old, 5, 10)
    new = journal.resume(old.id)
    uuids += grow(new, 2, 10)
    new.compact("sum", keep_from=uuids[3])
    before = [event.uuid for event in new._chain]
    assert before == [e.uuid for e in journal.resume(new.id)._chain]
    assert before[1:] == uuids[3:]
    assert old.transcript_path is not None
    old.transcript_path.unlink()
    again = journal.resume(new.id)

    assert uuids[5:] == [e.uuid for e in again._chain if e.type != "summary"]
    assert "ancestor missing" in [notice.what for notice in again.recovery.notices]


# -- small things -----------------------------------------------------------------------


@pytest.mark.parametrize("uuid", ["plain", 'quo"te', "back\\slash", "é\u2028", "a\x00b"])
def test_an_event_is_found_by_its_id(tmp_path: Path, uuid: str) -> None:
    """Also by an id that must be escaped, and not by a text that only mentions it."""
    wanted = codec.encode(Event("user", "", uuid, None, {"role": "user", "content": "x"}))
    mention = codec.encode(Event("user", "", "other", uuid, {"content": f'"uuid":"{uuid}"'}))
    path = tmp_path / "s.jsonl"
    path.write_bytes(mention + wanted + mention)
    with Segments([path]) as segments:
        assert (len(mention), len(wanted) - 1) == find_event(segments, uuid)
        assert find_event(segments, "nowhere") is None


def test_a_head_says_what_is_odd_about_it(tmp_path: Path) -> None:
    """No header, a foreign first line, a newer version: told, never raised."""
    heads = {}
    for name, data in {
        "empty": b"",
        "foreign": b'{"type":"user","uuid":"u"}\n',
        "newer": b'{"type":"header","ts":"","uuid":"h","prev_uuid":null,'
        b'"payload":{"session_id":"s","schema_version":999}}\n',
    }.items():
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(data)
        with Segments([path]) as segments:
            header, _, notices, _ = head(segments)
        heads[name] = (header is not None, [notice.what for notice in notices])

    assert (False, ["no header"]) == heads["empty"]
    assert (False, ["no header"]) == heads["foreign"]
    assert heads["newer"][0]
    assert 1 == len(heads["newer"][1])


def test_an_unknown_domain_of_the_harness_is_folded_from_the_root(tmp_path: Path) -> None:
    """A boundary written before a domain was registered does not hold it: all is read."""
    from thence.format.state import BUILT_IN, Domain

    journal = Journal(tmp_path, durability="none")
    session = journal.create()
    grow(session, 5, 10)
    session.compact("sum")
    grow(session, 2, 10)
    count = Domain("prompts", lambda: 0, lambda n, event: n + (event.type == "user"))
    later = Journal(tmp_path, durability="none", domains=Domains([*BUILT_IN, count]))

    assert 7 == later.resume(session.id).state.prompts
