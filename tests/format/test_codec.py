"""Bytes and events: what is written comes back, and damage is a value with a place.

A line costs itself and no other; whatever is not read is reported; nothing is invented. The
counts of `tools/truth.py`, which knows nothing of this code, are the judge on real files.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.independent import tool
from tests.pace import by_pace, grows_linearly, one_quick
from thence.format import codec
from thence.format.codec import RawRecord, decode, encode, objects
from thence.format.records import EXTRA, JSON, Event, Place, Skipped
from thence.testing import sample

BLANK = b" \t\r\n\v\f"
BOM = b"\xef\xbb\xbf"


def event(uuid: str = "u1", payload: JSON = None, **extra: JSON) -> Event:
    """Make up an event."""
    return Event("user", "2026-11-15T13:12:00.000Z", uuid, None, payload, extra)


def line(uuid: str = "u1", payload: bytes = b"null", more: bytes = b"") -> bytes:
    """Write an event line by hand, without its LF; `more` goes behind the payload."""
    head = b'{"type":"user","ts":"2026-11-15T13:12:00.000Z","uuid":"%s","prev_uuid":null,"payload":'
    return (head + b"%s%s}") % (uuid.encode(), payload, more)


def uuids(decoded: codec.Decoded) -> list[str]:
    """Name the events that were read."""
    return [event.uuid for event in decoded.events]


def whys(decoded: codec.Decoded) -> list[tuple[int, str, int]]:
    """Return line, reason and salvaged events of what was skipped."""
    return [(skip.line, skip.why, skip.salvaged) for skip in decoded.skipped]


def between(raw: bytes) -> codec.Decoded:
    """Read a line that stands between two good ones, which must come to no harm."""
    decoded = decode(line("before") + b"\n" + raw + b"\n" + line("after") + b"\n")

    assert ["before", "after"] == [uuids(decoded)[0], uuids(decoded)[-1]]
    return decoded


def payload_of(raw: bytes) -> JSON:
    """Read the payload of one good line."""
    decoded = decode(raw)

    assert [] == decoded.skipped
    return decoded.events[0].payload


# -- what is written comes back ---------------------------------------------------------------


def joined(text: str) -> str:
    """Join surrogates that stand as a pair: JSON has one spelling for both."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


texts = st.text(st.characters(exclude_categories=())).map(joined)
huge = st.integers(-(10**400), 10**400)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | huge
    | texts
    | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=12
)
KNOWN = {"type", "ts", "uuid", "prev_uuid", "payload", EXTRA}
extras = st.dictionaries(texts.filter(lambda name: name not in KNOWN), values, max_size=3)
slots: st.SearchStrategy[dict[str, JSON]] = st.just({}) | values.filter(
    lambda value: value != {}
).map(lambda value: {EXTRA: value})
events = st.builds(
    lambda kind, ts, uuid, prev, payload, extra, slot: Event(
        kind, ts, uuid, prev, payload, extra | slot
    ),
    texts,
    texts,
    texts,
    st.none() | texts,
    values,
    extras,
    slots,
)


@pytest.mark.slow
@given(events)
def test_any_event_reads_back_as_it_was_written(written: Event) -> None:
    """Payloads and unknown envelope fields survive, whatever JSON can say."""
    raw = encode(written)
    decoded = decode(raw)

    assert 1 == raw.count(b"\n")
    assert ([written], []) == (decoded.events, decoded.skipped)


@given(events)
def test_writing_what_was_read_gives_the_same_bytes(written: Event) -> None:
    """A second trip changes nothing any more."""
    raw = encode(written)

    assert raw == encode(decode(raw).events[0])


def test_a_line_begins_with_its_type() -> None:
    """A search backwards through bytes finds boundaries by how their lines begin."""
    plain, odd = encode(event()), encode(event(payload="\ud800", later=1))

    assert [b'{"type":"user","ts":"2026', b'{"type":"user","ts":"2026'] == [plain[:25], odd[:25]]


def test_an_unknown_type_and_unknown_fields_survive() -> None:
    """What a newer writer added is kept in its place: envelope, payload, type."""
    raw = (
        b'{"type":"weather","ts":"t","uuid":"u","prev_uuid":"p","payload":{"sky":[1,{"x":null}]},'
        b'"lamport":7,"sig":{"by":"desk"}}\n'
    )
    decoded = decode(raw)

    assert {"lamport": 7, "sig": {"by": "desk"}} == decoded.events[0].extra
    assert raw == encode(decoded.events[0])


def test_a_field_named_like_the_slot_for_unknown_ones_survives() -> None:
    """The name that stands for unknown fields inside is an ordinary name on the wire."""
    decoded = decode(line(more=b',"(extra)":{"a":1}'))

    assert {EXTRA: {"a": 1}} == decoded.events[0].extra


def test_a_field_cannot_pose_as_one_of_the_envelope() -> None:
    """Unknown fields never replace known ones when they are written."""
    posing = Event("user", "t", "u", None, 1, {"uuid": "other", "kept": 2})

    assert Event("user", "t", "u", None, 1, {"kept": 2}) == decode(encode(posing)).events[0]


def test_order_of_keys_and_white_space_do_not_matter() -> None:
    """A line another program wrote is the same event."""
    raw = b' { "payload" : 1 , "uuid" : "u" , "prev_uuid" : null , "ts" : "t" , "type" : "x" } \n'

    assert [Event("x", "t", "u", None, 1)] == decode(raw).events


def test_time_and_parent_may_be_missing() -> None:
    """An event needs a type, a uuid and a payload."""
    assert [Event("x", "", "u", None, 1)] == decode(b'{"type":"x","uuid":"u","payload":1}').events


def test_a_deep_payload_with_a_lone_surrogate_is_written() -> None:
    """What had to be written out by hand may be as deep as what was read."""
    deep = payload_of(line(payload=b'{"k":[' * 200 + b'"\\ud800"' + b"]}" * 200))

    assert deep == payload_of(encode(event(payload=deep)))


# -- lines end at LF and nowhere else ---------------------------------------------------------

SEPARATORS = ["\u2028", "\u2029", "\u0085", "\v", "\f", "\x1c", "\x1d", "\x1e", "\r"]


@pytest.mark.parametrize("mark", SEPARATORS, ids=ascii)
def test_only_lf_ends_a_line(mark: str) -> None:
    """What other readers take for a line end is text: raw where JSON allows it, or escaped."""
    escaped = json.dumps(mark).encode()
    raw = escaped if mark < " " else f'"{mark}"'.encode()
    decoded = decode(line("a", raw) + b"\n" + line("b", escaped) + b"\n")

    assert [(mark, 1), (mark, 2)] == [
        (read.payload, place.line)
        for read, place in zip(decoded.events, decoded.places, strict=True)
    ]


def test_a_cr_before_lf_is_white_space() -> None:
    """Lines that a CRLF writer ended are whole."""
    decoded = decode(line("a") + b"\r\n" + line("b") + b"\r\n\r\n")

    assert (["a", "b"], [], 3) == (uuids(decoded), decoded.skipped, decoded.lines)


def test_cr_alone_ends_no_line() -> None:
    """Objects between CRs are several records on one line."""
    decoded = decode(line("a") + b"\r" + line("b") + b"\n")

    assert (["a", "b"], [(1, codec.GLUED, 2)]) == (uuids(decoded), whys(decoded))


@pytest.mark.parametrize("blank", [b"", b" \t ", b"\r", b"\v\f"], ids=ascii)
def test_blank_lines_are_counted_and_not_reported(blank: bytes) -> None:
    """White space is nobody's record and nobody's damage."""
    decoded = decode(blank + b"\n" + line("a") + b"\n" + blank + b"\n")

    assert (["a"], [], 3) == (uuids(decoded), decoded.skipped, decoded.lines)


def test_nothing_at_all_is_no_damage() -> None:
    """An empty file is a session that has not begun."""
    assert codec.Decoded([], [], []) == decode(b"")


# -- the last line ----------------------------------------------------------------------------


def test_a_whole_last_line_without_lf_is_read() -> None:
    """The LF may come later; `end` still points behind the last one that came."""
    complete = line("a") + b"\n"
    decoded = decode(complete + line("b"))

    assert (["a", "b"], False, len(complete)) == (uuids(decoded), decoded.torn, decoded.end)


def test_a_torn_last_line_is_a_value() -> None:
    """The cut half is reported with line, offset and length, and the rest is read."""
    complete = line("a") + b"\n"
    decoded = decode(complete + line("b")[:40])

    assert (["a"], True, len(complete)) == (uuids(decoded), decoded.torn, decoded.end)
    assert [Skipped(2, len(complete), 40, codec.TORN)] == decoded.skipped


def test_a_torn_line_that_was_ended_later_is_not_torn() -> None:
    """Once somebody wrote the LF, the half is one bad line of many."""
    decoded = decode(line("a")[:40] + b"\n" + line("b") + b"\n")

    assert (["b"], [(1, codec.BAD_JSON, 0)], False) == (
        uuids(decoded),
        whys(decoded),
        decoded.torn,
    )


def test_a_record_saved_from_the_last_line_does_not_hide_that_it_is_torn() -> None:
    """A writer that opens the file must know that the line is not finished."""
    decoded = decode(line("a") + line("b")[:40])

    assert (["a"], [(1, codec.BAD_JSON, 1)], True) == (uuids(decoded), whys(decoded), decoded.torn)


def test_reading_on_from_the_end_is_reading_at_once() -> None:
    """Offsets and line numbers go on where the last read stopped."""
    data = sample()
    middle = data.index(b"\n", len(data) // 2) + 1
    first = decode(data[: middle + 20])
    second = decode(data[first.end :], offset=first.end, line=1 + data[: first.end].count(b"\n"))
    at_once = decode(data)

    assert middle == first.end
    assert (at_once.events, at_once.places) == (
        first.events + second.events,
        first.places + second.places,
    )
    assert (at_once.skipped, at_once.end, at_once.torn) == (second.skipped, second.end, second.torn)


# -- bad bytes, odd but whole records ---------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        b'"gr\xfc\xdfe"',
        b'"\xc0\x80"',
        b'"\xe2\x82"',
        b'"\xf4\x90\x80\x80"',
        b'"\xed\xa0\x80"',
        b'{"\xff":1}',
    ],
    ids=ascii,
)
def test_bad_utf8_is_reported_and_salvaged_with_marks(bad: bytes) -> None:
    """Bytes that are no UTF-8 cost their line its good name, not the record its text."""
    decoded = between(line("bad", bad))

    assert [(2, codec.BAD_UTF8, 1)] == whys(decoded)
    assert "\ufffd" in json.dumps(decoded.events[1].payload, ensure_ascii=False)


@pytest.mark.parametrize("escaped", [rb"\ud800", rb"\udfff", rb"a\udc00b\ud83c"])
def test_lone_surrogates_are_kept(escaped: bytes) -> None:
    """They are valid JSON, in values and in names."""
    text = json.loads(b'"%s"' % escaped)

    assert {text: [text]} == payload_of(line(payload=b'{"%s":["%s"]}' % (escaped, escaped)))


@pytest.mark.parametrize(
    ("written", "number"),
    [
        (b"1e999", Decimal("1e999")),
        (b"-1.25E+400", Decimal("-1.25e400")),
        (b"1.5e308", 1.5e308),
        (b"1e-999", 0.0),
        (b"18446744073709551616", 2**64),
        (b"-9223372036854775809", -(2**63) - 1),
        (b"1" + b"0" * 400, 10**400),
        (b"9" * 4300, Decimal("9" * 4300)),
    ],
    ids=lambda value: str(value)[:12],
)
def test_a_number_out_of_range_is_kept(written: bytes, number: JSON) -> None:
    """No number is rounded to infinity or refused, beside a lone surrogate neither."""
    beside = payload_of(line(payload=b'[%s,"\\ud800"]' % written))

    assert [number, number] == [payload_of(line(payload=written)), beside[0]]
    assert number == payload_of(encode(event(payload=beside)))[0]


def test_a_number_that_no_type_holds_is_clamped() -> None:
    """An exponent of twenty digits costs its number, not its record."""
    assert [sys.float_info.max, -sys.float_info.max] == payload_of(
        line(payload=b"[1e99999999999999999999,-1e99999999999999999999]")
    )


def test_a_number_of_5000_digits_makes_a_bad_line_that_is_salvaged() -> None:
    """Other readers refuse such a line; the event is kept all the same, and written back."""
    digits = b"9" * 5000
    decoded = between(line("long", digits))

    assert [(2, codec.BAD_JSON, 1)] == whys(decoded)
    assert Decimal(digits.decode()) == decoded.events[1].payload
    assert line("long", digits) + b"\n" == encode(decoded.events[1])


@pytest.mark.parametrize("name", [b"NaN", b"Infinity", b"-Infinity"])
def test_nan_and_infinity_are_not_json(name: bytes) -> None:
    """They never come in, not by salvage either."""
    assert [(2, codec.BAD_JSON, 0)] == whys(between(line("x", name)))


@pytest.mark.parametrize(("opens", "closes"), [(b"[", b"]"), (b'{"k":', b"}")])
def test_400_levels_are_kept(opens: bytes, closes: bytes) -> None:
    """Deep is not damaged."""
    raw = line(payload=opens * 400 + b"1" + closes * 400)

    assert raw + b"\n" == encode(event(payload=payload_of(raw)))


@pytest.mark.parametrize(("opens", "closes"), [(b"[", b"]"), (b'{"k":', b"}")])
def test_100_000_levels_are_refused(opens: bytes, closes: bytes) -> None:
    """A hostile depth is a bad line, no exception and no crash."""
    raw = line("deep", opens * 100_000 + b"1" + closes * 100_000)

    assert [(2, codec.BAD_JSON, 0)] == whys(between(raw))


def test_of_duplicate_keys_the_last_wins() -> None:
    """The same in the envelope and in the payload, as everywhere else."""
    raw = b'{"type":"a","type":"b","ts":"t","uuid":"u","prev_uuid":null,"payload":{"x":1,"x":2}}'

    assert [Event("b", "t", "u", None, {"x": 2})] == decode(raw).events


@pytest.mark.parametrize("raw", [b"1", b'"x"', b"null", b"true", b"[]", b"[" + line() + b"]"])
def test_scalars_and_arrays_are_no_records(raw: bytes) -> None:
    """Nothing is taken out of them."""
    assert [(2, codec.NOT_OBJECT, 0)] == whys(between(raw))


def test_a_number_for_a_time_is_read_as_version_1_wrote_it() -> None:
    """An old writer that goes on in a newer session's file loses nothing."""
    line = b'{"type":"user","uuid":"u","prev_uuid":null,"ts":1767323045.5,"payload":1}\n'

    assert ["2026-01-02T03:04:05.500Z"] == [e.ts for e in codec.decode(line).events]


@pytest.mark.parametrize(
    "raw",
    [
        b"{}",
        b'{"type":"user","uuid":"u"}',
        b'{"type":1,"uuid":"u","payload":1}',
        b'{"type":"user","uuid":null,"payload":1}',
        b'{"type":"user","uuid":"u","prev_uuid":1,"payload":1}',
    ],
    ids=bytes.decode,
)
def test_an_object_that_is_no_event_is_reported(raw: bytes) -> None:
    """A foreign record in our log is neither an event nor silence."""
    assert [(2, codec.NOT_EVENT, 0)] == whys(between(raw))


@pytest.mark.parametrize("raw", [b"// comment", b"{'a':1}", b'{"a":1,}', b'{"a":"x\x01y"}', b"{"])
def test_what_is_no_json_is_reported(raw: bytes) -> None:
    """Comments, single quotes, trailing commas, control characters, lone braces."""
    assert [(2, codec.BAD_JSON, 0)] == whys(between(raw))


# -- what can be saved from a bad line --------------------------------------------------------

NUL = b"\0" * 300


@pytest.mark.parametrize(
    ("raw", "saved", "why"),
    [
        pytest.param(NUL, [], codec.NULS, id="NULs alone"),
        pytest.param(NUL + line("a"), ["a"], codec.NULS, id="NULs in front"),
        pytest.param(line("a") + NUL, ["a"], codec.NULS, id="NULs behind"),
        pytest.param(line("a") + NUL + line("b"), ["a", "b"], codec.NULS, id="NULs between"),
        pytest.param(BOM + line("a"), ["a"], codec.BAD_JSON, id="BOM in mid-file"),
        pytest.param(line("a") + line("b"), ["a", "b"], codec.GLUED, id="two glued"),
        pytest.param(line("a") + b" garbage", ["a"], codec.BAD_JSON, id="garbage behind"),
        pytest.param(b"garbage" + line("a"), ["a"], codec.BAD_JSON, id="garbage in front"),
        pytest.param(b"\xff" + line("a"), ["a"], codec.BAD_UTF8, id="stray byte in front"),
        pytest.param(
            line("a") + line("x")[:40] + line("b") + line("c"),
            ["a", "b", "c"],
            codec.GLUED,
            id="whole, torn, whole, whole",
        ),
        pytest.param(line("a") + b"{}" + line("b"), ["a", "b"], codec.GLUED, id="no event between"),
    ],
)
def test_whole_records_at_either_end_of_a_bad_line_are_saved(
    raw: bytes, saved: list[str], why: str
) -> None:
    """The line is reported as bad; its whole records are events with the line's place."""
    decoded = between(raw)
    start = len(line("before")) + 1

    assert (["before", *saved, "after"], [(2, why, len(saved))]) == (uuids(decoded), whys(decoded))
    assert [Place(2, start, len(raw))] * len(saved) == decoded.places[1:-1]


@pytest.mark.parametrize(
    "half",
    [
        pytest.param(b'{"type":"user","payload":{"text":"half of', id="inside a string"),
        pytest.param(b'{"type":"user","payload":{"te', id="inside a name"),
        pytest.param(b'{"type":"user","payload":{"text":"a \\', id="inside an escape"),
        pytest.param(b'{"type":"user","payload":{"n":12', id="in a number"),
        pytest.param(b'{"type":"user","payload":{"n":tr', id="in a word"),
        pytest.param(b'{"type":"user","payload":{"in":{"x":1}', id="right after an inner object"),
        pytest.param(b'{"type":"user","payload":[{"x":1}', id="after an object in an array"),
        pytest.param('{"payload":"größe 漢'.encode()[:-1], id="inside a UTF-8 character"),
        pytest.param(b'{"payload":"code: {\\"a\\":[{', id="among braces in a string"),
        pytest.param(b'{"payload":"ends in a backslash \\\\"', id="right after a string"),
        pytest.param(b"{", id="after its first brace"),
    ],
)
def test_a_record_behind_a_torn_half_is_saved(half: bytes) -> None:
    """Two lines became one because the first was cut: the second one is whole."""
    record = line("whole", b'{"text":"} \\" { \\\\","in":[{"y":{}}]}')
    decoded = between(half + record)

    assert ["before", "whole", "after"] == uuids(decoded)
    assert [(2, 1)] == [(skip.line, skip.salvaged) for skip in decoded.skipped]


def test_a_glued_record_is_lost_only_where_it_might_be_part_of_the_torn_one() -> None:
    """Cut before a value, the half would take the next record as its own: no guess is made."""
    half = line("half", '{"a":[1,{"b":"x:,[{ é"},"y"],"c":-1.5e3,"d":{"e":null}}'.encode())
    lost = [
        half[:cut]
        for cut in range(1, len(half))
        if ["glued"] != uuids(decode(half[:cut] + line("glued") + b"\n"))
    ]
    ends = Counter(cut[-1:] for cut in lost)

    assert {b":": 10, b"[": 1, b",": 2} == ends


INNER = line("inner")


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(line("x", INNER)[:-1], id="cut right behind it"),
        pytest.param(line("x", b"[1," + INNER + b"]")[:-2], id="cut behind it in an array"),
        pytest.param(line("x", INNER)[:-1] + NUL, id="NULs from there on"),
        pytest.param(INNER + b"}", id="cut in front of it"),
        pytest.param(INNER + b"],1]}", id="cut in front of it in an array"),
        pytest.param(INNER + b"," + INNER + b"]}", id="two, cut in front of them"),
        pytest.param(b"[[" + INNER + b"," + INNER, id="an array cut behind them"),
        pytest.param(b'"y":' + INNER + b"}", id="the rest of a line"),
        pytest.param(b'{"a":' * 2000 + INNER, id="too deep to tell"),
    ],
)
@pytest.mark.parametrize("end", [b"", b"\n"], ids=["no LF", "LF"])
def test_an_event_inside_a_payload_is_never_taken_for_a_line(raw: bytes, end: bytes) -> None:
    """Whatever is left of the line around it, what stood inside is not invented as an event."""
    decoded = decode(raw + end)

    assert ([], 1) == (uuids(decoded), len(decoded.skipped))


def test_a_guard_keeps_fragments_out() -> None:
    """A reader of foreign logs says what a record is; other objects are not salvaged."""
    raw = b'{"id":1}{"x":2}\n{"x":3}\ngarbage {"id":4}\n'
    read = list(objects(raw, is_record=lambda value: "id" in value))

    assert [{"id": 1}, {"x": 3}, {"id": 4}] == [r.value for r in read if isinstance(r, RawRecord)]
    assert [(1, 1), (3, 1)] == [(r.line, r.salvaged) for r in read if isinstance(r, Skipped)]


def test_a_bom_on_the_first_line_is_removed() -> None:
    """One BOM never blocks a file; the place still counts its bytes."""
    decoded = decode(BOM + line("a") + b"\n" + line("b") + b"\n")

    assert (["a", "b"], []) == (uuids(decoded), decoded.skipped)
    assert Place(1, 0, len(line("a")) + 3) == decoded.places[0]


def test_a_bom_and_nothing_else_is_blank() -> None:
    """A file that an editor touched and left empty is empty."""
    assert ([], []) == (decode(BOM).events, decode(BOM).skipped)


# -- the limit, places, chunks ----------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 7, 10_000])
def test_a_line_over_the_limit_is_skipped_and_the_next_is_read(chunk: int) -> None:
    """A giant costs itself, in whatever pieces it comes; at the limit a line is still read."""
    fits = line("fits", b'"' + b"x" * 20 + b'"')
    giant = line("giant", b'"' + b"x" * 21 + b'"')
    data = fits + b"\n" + giant + b"\n" + fits + b"\n" + giant
    pieces = [data[at : at + chunk] for at in range(0, len(data), chunk)]
    decoded = decode(iter(pieces), limit=len(fits))

    assert ["fits", "fits"] == uuids(decoded)
    assert [
        Skipped(2, len(fits) + 1, len(giant), codec.TOO_LONG),
        Skipped(4, data.rindex(giant), len(giant), codec.TOO_LONG),
    ] == decoded.skipped
    assert (4, data.rindex(giant)) == (decoded.lines, decoded.end)


PIECES = [
    line("a"),
    line("b", b'{"in":' + INNER + b"}"),
    line("c", '"größe \\ud800 \u2028"'.encode()),
    line("d", b"1", b',"later":[1]'),
    INNER[:60],
    BOM,
    NUL[:3],
    b"\n",
    b"\n",
    b"\r\n",
    b" ",
    b"{",
    b"}",
    b'"',
    b"\\",
    b"[",
    b",",
    b":",
    b"1e999",
    b"\xff",
    b"\xe2\x82",
    b"null",
    b"{}",
    b"\v",
]
hostile = st.lists(st.sampled_from(PIECES) | st.binary(max_size=4), max_size=12).map(b"".join)


@given(hostile, st.lists(st.integers(0, 2000)), st.sampled_from([codec.LINE_LIMIT, 150]))
def test_chunks_cut_anywhere_give_the_same(data: bytes, cuts: list[int], limit: int) -> None:
    """How the bytes arrive does not matter, empty chunks included."""
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[a:b] for a, b in pairwise(edges)]

    assert decode(data, limit=limit) == decode(iter(chunks), limit=limit)


@given(hostile)
def test_every_line_is_read_blank_or_reported(data: bytes) -> None:
    """No bytes raise, and no line that is not blank goes without an event or a reason."""
    decoded = decode(data)
    lines = data.removeprefix(BOM).split(b"\n")
    reported = [skip.line for skip in decoded.skipped]

    assert {n for n, raw in enumerate(lines, 1) if raw.strip(BLANK)} == {
        *(place.line for place in decoded.places),
        *reported,
    }
    assert len(reported) == len(set(reported))
    assert len(decoded.events) == len(decoded.places)


@given(hostile)
def test_places_are_where_the_bytes_stand(data: bytes) -> None:
    """Line, offset and length of every event and every skip lead back to that very line."""
    decoded = decode(data)
    places = decoded.places + [Place(s.line, s.offset, s.length) for s in decoded.skipped]
    lines = data.split(b"\n")

    assert [(lines[p.line - 1], b"\n".join(lines[: p.line - 1])) for p in places] == [
        (data[p.offset : p.offset + p.length], data[: max(0, p.offset - 1)]) for p in places
    ]


@given(hostile)
def test_a_skip_counts_what_it_saved(data: bytes) -> None:
    """An unreported line has one event; a reported one as many as it says."""
    decoded = decode(data)
    saved = {skip.line: skip.salvaged for skip in decoded.skipped}
    counts = Counter(place.line for place in decoded.places)

    assert {n: saved.get(n, 1) for n in counts} == counts


# -- cut and written on -----------------------------------------------------------------------

nested = st.builds(
    lambda uuid, outer: event(uuid, {"in": [{**json.loads(INNER)}], "and": outer, "last": 1}),
    st.sampled_from("abc"),
    values,
)
logs = st.lists(events | nested, min_size=1, max_size=4)


def cuts(raw: bytes) -> st.SearchStrategy[int]:
    """Cut anywhere, and often right behind an inner object."""
    behind = [at + 1 for at, byte in enumerate(raw) if byte in b"}]"]
    return st.integers(0, len(raw)) | st.sampled_from(behind)


def whole_lines(log: list[Event], cut: int) -> list[Event]:
    """Return the events whose lines, with or without LF, lie before the cut."""
    size, out = 0, []
    for written in log:
        size += len(encode(written))
        if size - 1 <= cut:
            out.append(written)
    return out


@pytest.mark.slow
@given(logs, st.data())
def test_a_prefix_loses_at_most_its_last_event_and_invents_none(
    log: list[Event], data: st.DataObject
) -> None:
    """Whole lines are all read and a cut one is reported, whatever its payload held."""
    raw = b"".join(map(encode, log))
    cut = data.draw(cuts(raw))
    decoded = decode(raw[:cut])
    half = raw[:cut].rpartition(b"\n")[2]
    expected = whole_lines(log, cut)

    assert expected == decoded.events
    assert len(expected) >= raw[:cut].count(b"\n")
    assert decoded.torn == bool(decoded.skipped) == (half + b"\n" not in (b"\n", *map(encode, log)))


@pytest.mark.slow
@given(logs, events, st.data())
def test_appending_behind_a_torn_tail_with_lf_first_loses_only_the_torn_one(
    log: list[Event], new: Event, data: st.DataObject
) -> None:
    """The torn half stays as one bad line; everything before and after it is read."""
    raw = b"".join(map(encode, log))
    cut = data.draw(cuts(raw))
    prefix = raw[:cut]
    first = b"" if prefix.endswith(b"\n") or not prefix else b"\n"
    decoded = decode(prefix + first + encode(new))

    assert [*whole_lines(log, cut), new] == decoded.events
    assert len(decoded.skipped) == decode(prefix).torn


# -- time -------------------------------------------------------------------------------------


HOSTILE_LINES: dict[str, Callable[[int], bytes]] = {
    "openings": lambda n: b"{" * n,
    "closings": lambda n: b"}" * n,
    "deep objects": lambda n: b'{"a":' * (n // 5),
    "deep arrays": lambda n: b'[{"x":1},' * (n // 9),
    "deep and closed": lambda n: b'{"a":' * (n // 6) + b"}" * (n // 6),
    "deep ending in an object": lambda n: b'{"a":' * (n // 5) + b"{}",
    "small objects": lambda n: b"x" + b"{}" * (n // 2),
    "small objects, torn": lambda n: b"{}" * (n // 2) + b"x",
    "names": lambda n: b'{"' * (n // 2) + b"}",
    "escaped quotes": lambda n: b'{"a":"' + b'\\"' * (n // 2) + b"}",
    "backslashes": lambda n: b'{"a":"' + b"\\" * n + b'"}',
    "NULs": lambda n: b"\0" * n + b"}",
    "records, NULs, garbage": lambda n: b"x" + line() * 200 + b"\0" * n + b"x",
    "records, NULs, torn": lambda n: line() * 200 + b"\0" * n + b"{",
    "a long string behind depth": lambda n: b"x" + b'{"a":' * 900 + b'"' + b"y" * n,
    "digits": lambda n: b'{"a":' * 900 + b"9" * n + b"}",
    "digits of a fraction": lambda n: b'{"a":1.' + b"9" * n + b"e999}x",
    "wide characters": lambda n: "🎉{}".encode() * (n // 6),
    "bad bytes": lambda n: b"\xff{" * (n // 2) + b"}",
}


@pytest.mark.slow
@pytest.mark.sampled(6)
@pytest.mark.parametrize("shape", one_quick(HOSTILE_LINES))
@pytest.mark.parametrize("is_record", [codec.accept_any, codec.is_event])
def test_a_hostile_line_takes_linear_time(
    shape: str, is_record: Callable[[dict[str, JSON]], bool]
) -> None:
    """Eight times the bytes take about eight times as long."""

    def read(n: int) -> None:
        for _read in objects(HOSTILE_LINES[shape](n), is_record=is_record):
            pass

    assert grows_linearly(read, 50_000)


@pytest.mark.slow
def test_many_small_chunks_of_one_line_take_linear_time() -> None:
    """A long line that arrives byte by byte is not copied again for every byte."""
    assert grows_linearly(lambda n: decode(b"x" for _ in range(n)), 25_000)


# -- the independent counts -------------------------------------------------------------------

OTHER_VALUE = {"huge_numbers.jsonl": "1e999 is infinite there, a Decimal here"}
"""Files whose good lines are counted alike but do not all hold equal values."""


@pytest.fixture(scope="module")
def truth(shared: Path) -> ModuleType:
    """The counting program, loaded from where it lies."""
    return tool(shared, "truth")


def logs_below(folder: Path) -> list[Path]:
    """Every JSONL file that can be opened without harm."""
    paths = sorted(folder.rglob("*.jsonl"))
    return [p for p in paths if p.is_file() and not p.is_symlink() and os.access(p, os.R_OK)]


def by_truth(truth: ModuleType, path: Path) -> tuple[dict[int, Any], list[int], int]:
    """Return the good lines with their values, the bad lines, and how many are blank."""
    good: dict[int, Any] = {}
    bad: list[int] = []
    blank = 0
    for number, (raw, _) in enumerate(truth.lines_of(path), 1):
        text = raw.removeprefix(BOM) if number == 1 else raw
        if not text.strip(BLANK):
            blank += 1
            continue
        kind, value = truth.parse(text)
        if kind == "ok":
            good[number] = value
        else:
            bad.append(number)
    return good, bad, blank


def by_codec(data: bytes) -> tuple[dict[int, Any], list[int], int]:
    """Return the same from our own reading; a line with a skip is bad, saved records or not."""
    read = list(objects(data))
    bad = [r.line for r in read if isinstance(r, Skipped)]
    known = set(bad)
    good = {
        r.place.line: r.value
        for r in read
        if isinstance(r, RawRecord) and r.place.line not in known
    }
    lines = data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
    return good, bad, lines - len(good) - len(bad)


def agree(truth: ModuleType, path: Path) -> int:
    """Compare one file line by line; give the number of lines."""
    theirs, ours = by_truth(truth, path), by_codec(path.read_bytes())
    if path.name in OTHER_VALUE:
        theirs, ours = ((dict.fromkeys(t[0]), *t[1:]) for t in (theirs, ours))

    assert theirs == ours, path
    return len(ours[0]) + len(ours[1]) + ours[2]


@pytest.mark.slow
def test_real_logs_are_counted_as_the_independent_program_counts(
    shared: Path, truth: ModuleType, record_property: Callable[[str, object], None]
) -> None:
    """Good, bad and blank lines of every real file agree, by number and by value."""
    paths = logs_below(shared / "data")
    lines = sum(agree(truth, path) for path in paths)
    files = json.loads((shared / "data" / "public" / "truth.json").read_bytes())["files"]
    public = {
        p.relative_to(shared / "data" / "public").as_posix(): p
        for p in paths
        if "public" in p.parts
    }
    counted = {name: by_codec(path.read_bytes()) for name, path in public.items()}
    record_property("files", len(paths))
    record_property("lines", lines)

    assert {
        name: (file["good_records"], file["bad_lines"], file["blank_lines"])
        for name, file in files.items()
    } == {name: (len(good), len(bad), blank) for name, (good, bad, blank) in counted.items()}
    assert (True, True) == (len(paths) >= 600, lines >= 19_000)


@pytest.mark.slow
@pytest.mark.sampled
def test_hostile_files_are_counted_as_the_independent_program_counts(
    corpus: Path, truth: ModuleType, record_property: Callable[[str, object], None]
) -> None:
    """The corpus reads without an exception, and counts agree with its manifest too."""
    step = by_pace(everyday=10, full=10, prove=1)
    paths = logs_below(corpus)[::step]
    lines = sum(agree(truth, path) for path in paths)
    cases = json.loads((corpus / "manifest.json").read_bytes())["cases"]
    counts = {c["path"]: c["expect"] for c in cases if "expect" in c}
    record_property("files", len(paths))
    record_property("lines", lines)

    for name, expect in list(counts.items())[::step]:
        good, bad, blank = by_codec((corpus / name).read_bytes())
        assert expect == {"good": len(good), "bad": len(bad), "blank": blank}, name
    assert 113 == len(cases)


def test_a_salvaged_record_has_the_same_bytes_whatever_it_was_glued_to() -> None:
    """What has no id but its bytes keeps it when the next record is written onto its line."""
    alone = next(iter(codec.objects(b'{"a": 1}')))
    glued = list(codec.objects(b'{"a": 1}{"b": 2}\n'))
    torn = list(codec.objects(b'{"c": {"d"{"b": 2}\n'))

    assert isinstance(alone, codec.RawRecord)
    assert [b'{"a": 1}', b'{"b": 2}'] == [f.raw for f in glued if isinstance(f, codec.RawRecord)]
    assert [b'{"b": 2}'] == [f.raw for f in torn if isinstance(f, codec.RawRecord)]
    assert b'{"a": 1}' == alone.raw
