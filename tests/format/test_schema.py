"""Old and future versions of the format: read as the present one, never rewritten.

`tests/data/native` holds one session four times, as each version would have written it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.format import codec, schema
from thence.format.records import JSON, Event, Header, Notice, Terminator, parse_payload
from thence.format.transcript import Transcript

NATIVE = Path(__file__).resolve().parent.parent / "data" / "native"
PRESENT = NATIVE / "v3.jsonl"
OLD = {1: NATIVE / "v1.jsonl", 2: NATIVE / "v2.jsonl"}
NEWER = NATIVE / "v4.jsonl"


def records(path: Path) -> list[schema.Record]:
    """Read the lines of a session as plain objects."""
    return [json.loads(raw) for raw in path.read_bytes().splitlines()]


def upcast(version: int, record: schema.Record) -> schema.Record:
    """Read one record as the present version."""
    step = schema.upcaster(version)
    return record if step is None else step(record)


def old_record(kind: str, payload: JSON, ts: JSON = 0) -> schema.Record:
    """Make up a record of an old version."""
    return {"type": kind, "ts": ts, "uuid": "u", "prev_uuid": None, "payload": payload}


# -- old sessions -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", OLD)
def test_an_old_session_reads_as_the_present_version_event_by_event(version: int) -> None:
    """Every line of it is the event that today's writer would have written."""
    old, present = (Transcript.read(path.read_bytes()) for path in (OLD[version], PRESENT))

    assert (version, [], []) == (old.version, old.skipped, old.notices)
    assert present.events == old.events


def test_the_first_name_of_a_boundary_is_known() -> None:
    """In a session of version 1 it compacts like any other."""
    named = OLD[1].read_bytes().replace(b'"type":"boundary"', b'"type":"compaction-boundary"')
    named = named.replace(b'"type": "boundary"', b'"type": "compaction-boundary"')
    old, present = Transcript.read(named), Transcript.read(PRESENT.read_bytes())

    assert b"compaction-boundary" in named
    assert present.events == old.events
    assert present.messages().messages == old.messages().messages


@pytest.mark.parametrize("version", OLD)
def test_an_old_record_differs_from_the_present_one(version: int) -> None:
    """The samples are not the present version under another name."""
    pairs = zip(records(OLD[version]), records(PRESENT), strict=True)
    changed = {new["type"] for old, new in pairs if old != new}

    assert {"header", "boundary", "terminator"} <= changed


@pytest.mark.parametrize("version", OLD)
def test_reading_an_old_session_leaves_its_bytes_alone(version: int) -> None:
    """The file is read, the bytes stay, and places still point into them."""
    path = OLD[version]
    before = path.read_bytes()
    session = Transcript.read(before)
    lines = [before[p.offset : p.offset + p.length] for p in session.places]

    assert before == path.read_bytes()
    assert before == b"".join(raw + b"\n" for raw in lines)


@pytest.mark.parametrize("version", OLD)
def test_an_old_session_gives_the_same_chain_messages_and_state(version: int) -> None:
    """Boundary, rewind, calls and todos mean what they mean today."""
    old, present = (Transcript.read(path.read_bytes()) for path in (OLD[version], PRESENT))

    assert present.chain() == old.chain()
    assert present.messages() == old.messages()
    assert present.state == old.state
    assert (present.states, present.turn(), present.pending, []) == (
        old.states,
        old.turn(),
        old.pending,
        old.report(),
    )


def test_the_boundary_of_the_samples_is_at_work() -> None:
    """The live chain is shorter than the line: otherwise the test above would show little."""
    session = Transcript.read(OLD[1].read_bytes())
    first = session.messages().messages[0]

    assert "The lamp burned 12:39" in json.dumps(first)
    assert len(session.chain()) < session.counts()["live"]


@pytest.mark.parametrize("version", OLD)
def test_a_glued_old_line_is_salvaged_as_the_present_version(version: int) -> None:
    """Salvage knows what an old record looks like."""
    raw = OLD[version].read_bytes()
    second = raw.index(b"\n", raw.index(b"\n") + 1)
    glued = raw[:second] + raw[second + 1 :]
    session = Transcript.read(glued)

    assert Transcript.read(PRESENT.read_bytes()).events == session.events
    assert [(2, codec.GLUED, 2)] == [(s.line, s.why, s.salvaged) for s in session.skipped]


# -- the steps --------------------------------------------------------------------------------


def test_there_is_a_step_from_each_version_to_the_next() -> None:
    """None is missing, and the present one needs none."""
    assert (schema.CURRENT - 1, None) == (len(schema.STEPS), schema.upcaster(schema.CURRENT))


@pytest.mark.parametrize("version", OLD)
def test_steps_compose(version: int) -> None:
    """From any version the whole way is one step and then the rest of the way."""
    step = schema.STEPS[version - 1]

    assert [upcast(version, r) for r in records(OLD[version])] == [
        upcast(version + 1, step(r)) for r in records(OLD[version])
    ]


def test_one_step_from_version_1_gives_version_2() -> None:
    """A step knows its own version and the next, and nothing of the present."""
    assert records(OLD[2])[1:] == [schema.STEPS[0](r) for r in records(OLD[1])][1:]


@pytest.mark.parametrize("version", OLD)
@pytest.mark.parametrize("path", [*OLD.values(), PRESENT], ids=lambda path: path.stem)
def test_an_upcast_record_is_a_fixed_point(version: int, path: Path) -> None:
    """A record that is of the present version already comes through unchanged."""
    present = [upcast(1, r) for r in records(path)]

    assert present == [upcast(version, r) for r in present]


def test_steps_leave_what_they_were_given_alone() -> None:
    """A record is read, not changed in place."""
    originals, untouched = records(OLD[1]), records(OLD[1])
    for record in originals:
        upcast(1, record)

    assert untouched == originals


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1772600767.25, "2026-03-04T05:06:07.250Z"),
        (1772600767.0006, "2026-03-04T05:06:07.001Z"),
        (-1.5, "1969-12-31T23:59:58.500Z"),
        (1e300, ""),
        (10**400, ""),
        ("2026-03-04T05:06:07.250Z", "2026-03-04T05:06:07.250Z"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_seconds_become_text(seconds: JSON, text: str) -> None:
    """Times are RFC 3339 UTC with milliseconds; absurd ones are unknown, not fatal."""
    assert text == upcast(1, old_record("user", {}, seconds))["ts"]


def test_an_origin_becomes_an_object() -> None:
    """A header that named a session names a session and, as yet, no event."""
    header = upcast(2, old_record("header", {"session_id": "new", "resumed_from": "old"}))

    assert {"session": "old", "event": None} == header["payload"]["resumed_from"]


@pytest.mark.parametrize("version", OLD)
def test_a_bare_old_event_is_still_one(version: int) -> None:
    """Times that were not written stay unwritten: no field is made up that the reader refuses."""
    lines = b'{"type":"header","uuid":"h","payload":{"session_id":"s"}}\n'
    lines += b'{"type":"user","uuid":"u","payload":1}\n'
    lines += b'{"type":"terminator","uuid":"t","payload":{}}\n'
    decoded = codec.decode(lines, upcast=schema.upcaster(version))

    assert (["h", "u", "t"], []) == ([e.uuid for e in decoded.events], decoded.skipped)
    assert Header("s", schema_version=3) == parse_payload(decoded.events[0])
    assert Terminator() == parse_payload(decoded.events[2])


scalars = (
    st.none() | st.booleans() | st.integers() | st.integers(-(10**400), 10**400) | st.text()
) | st.floats(allow_nan=False, allow_infinity=False)
NAMES = """
    type ts payload start_ts end_ts schema_version resumed_from reason
    headUuid head_uuid summaryEventUuid summary_event_uuid summary_uuid
"""
names = st.sampled_from(NAMES.split())
anything = st.recursive(
    scalars | st.sampled_from(["header", "boundary", "terminator"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names | st.text(), inner),
    max_leaves=10,
)
wild = st.dictionaries(names | st.text(), anything)
shaped = st.fixed_dictionaries(
    {"type": st.sampled_from(["header", "boundary", "terminator", "user"]), "payload": wild},
    optional={"ts": scalars, "uuid": st.text(), "lamport": scalars},
)


@given(wild | shaped, st.integers(1, 5))
def test_no_record_makes_a_step_raise(record: schema.Record, version: int) -> None:
    """Whatever stands on a line, it is upcast or left alone, once and for all."""
    once = upcast(version, record)

    assert once == upcast(version, once)
    assert record.keys() <= once.keys()


@pytest.mark.slow
@given(wild | shaped)
def test_no_record_makes_telling_the_version_raise(record: schema.Record) -> None:
    """A version is a number from 1 on, whatever a header states."""
    assert 1 <= schema.version_of(record)
    assert schema.guess(record) in range(1, schema.CURRENT + 1)


# -- which version ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stated", "version"),
    [({}, 1), ({"schema_version": 2}, 2), ({"schema_version": 9}, 9), ("odd", 1), (None, 1)]
    + [({"schema_version": odd}, 1) for odd in (None, "new", True, -1, 2.5, 0, 10**400)],
    ids=lambda value: str(value)[:30],
)
def test_a_header_that_states_no_version_is_of_the_first(stated: JSON, version: int) -> None:
    """Nothing and nonsense count as nothing stated; steps do no harm to newer records."""
    assert version == schema.version_of({"type": "header", "payload": stated})


def test_a_lost_header_is_guessed_from_the_time() -> None:
    """Seconds tell version 1: everything but the header reads as ever, and it is said."""
    data = OLD[1].read_bytes().partition(b"\n")[2]
    session = Transcript.read(data)

    assert (1, [Notice("no header", "the first line is no header")]) == (
        session.version,
        session.notices,
    )
    assert Transcript.read(PRESENT.read_bytes()).events[1:] == session.events


def test_a_lost_header_of_the_present_version_changes_nothing_else() -> None:
    """Text tells little: the oldest version with such times is assumed, which is safe."""
    session = Transcript.read(PRESENT.read_bytes().partition(b"\n")[2])

    assert 2 == session.version
    assert Transcript.read(PRESENT.read_bytes()).events[1:] == session.events


def test_a_damaged_header_still_states_its_version() -> None:
    """NULs in front of it cost the line its good name, not the session its version."""
    session = Transcript.read(b"\0" * 40 + OLD[1].read_bytes())

    assert (1, []) == (session.version, session.notices)
    assert Transcript.read(PRESENT.read_bytes()).events == session.events


# -- the future -------------------------------------------------------------------------------


def test_a_newer_version_is_read_with_a_notice() -> None:
    """No line is refused because it comes from a newer writer, and the reader is told."""
    session = Transcript.read(NEWER.read_bytes())

    assert (4, []) == (session.version, session.skipped)
    assert [Notice("newer schema", "version 4, this reader knows 3")] == session.report()


def test_a_newer_version_keeps_what_we_do_not_know() -> None:
    """Unknown types, envelope fields and payload fields are written back as they were."""
    events = Transcript.read(NEWER.read_bytes()).events
    weather = next(event for event in events if event.type == "weather")

    assert records(NEWER) == [json.loads(codec.encode(event)) for event in events]
    assert Event(
        "weather", weather.ts, "beacon-1", weather.prev_uuid, {"sky": "clear", "wind_m_s": 3},
        {"lamport": 3},
    ) == weather  # fmt: skip


def test_fields_we_know_keep_their_meaning_in_a_newer_version() -> None:
    """The same session from the future has the same messages, turn and header."""
    newer, present = (Transcript.read(path.read_bytes()) for path in (NEWER, PRESENT))

    assert present.messages() == newer.messages()
    assert [e.uuid for e in present.chain()] == [e.uuid for e in newer.chain()]
    assert present.turn().state == newer.turn().state
    assert newer.header is not None
    assert present.header is not None
    assert (present.header.session_id, 4) == (newer.header.session_id, newer.header.schema_version)


def test_the_present_version_needs_no_notice() -> None:
    """Only what is newer is worth a word."""
    assert [None, None, None] == [schema.notice(version) for version in (1, 2, schema.CURRENT)]
