"""The nouns: every payload has its struct, and no JSON at all makes reading one raise."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.format import records
from thence.format.records import (
    INTERNAL,
    MESSAGES,
    PAYLOADS,
    Boundary,
    Cwd,
    Decision,
    Event,
    FileRecord,
    Header,
    Interrupted,
    Malformed,
    Message,
    Model,
    Origin,
    Payload,
    SidechainRecord,
    Terminator,
    Tip,
    Todos,
    Turn,
    Usage,
    Waiting,
    Worktree,
    blocks,
    count,
    is_permission,
    parse_payload,
    text_of,
    time_text,
    usage_of,
    word,
)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from([10**400, -(10**30), Decimal("1e400"), "\ud800", "user", "text"])
)
NAMES = sorted({field for shape in PAYLOADS.values() for field in shape.__struct_fields__})
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*NAMES, "type", "text"]) | st.text(), inner, max_size=5)
    ),
    max_leaves=12,
)


def event(kind: str, payload: Any) -> Event:
    """Some event of a type with a payload."""
    return Event(kind, "2026-11-15T13:12:00.000Z", "e1", None, payload)


WRITTEN: list[tuple[str, dict[str, Any], Payload]] = [
    (
        "header",
        {
            "session_id": "s",
            "start_ts": "t",
            "resumed_from": {"session": "p", "event": "e", "offset": 7, "length": 9},
            "schema_version": 3,
            "cwd": "/w",
            "model": "m",
            "inherited_cost": 0.5,
            "segment": 2,
            "base_offset": 4096,
            "base_line": 31,
            "agent_id": "explorer",
        },
        Header(
            "s",
            "t",
            Origin("p", "e", offset=7, length=9),
            3,
            "/w",
            "m",
            0.5,
            2,
            4096,
            31,
            "explorer",
        ),
    ),
    ("terminator", {"end_ts": "t", "reason": "exit"}, Terminator("t", "exit")),
    ("user", {"role": "user", "content": "hi"}, Message("user", "hi")),
    (
        "assistant",
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "yes"}],
            "id": "msg_1",
            "model": "m",
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 1},
            "cost_usd": 0.25,
        },
        Message(
            "assistant",
            [{"type": "text", "text": "yes"}],
            "msg_1",
            "m",
            "end_turn",
            {"input_tokens": 1},
            0.25,
        ),
    ),
    ("summary", {"role": "user", "content": "so far"}, Message("user", "so far")),
    (
        "boundary",
        {
            "head_uuid": "h",
            "anchor_uuid": "a",
            "tail_uuid": "t",
            "summary_event_uuid": "a",
            "kept": [[1, 0, 80]],
            "summary": [80, 40],
            "state": {"version": 1},
            "totals": {"usd": 1},
        },
        Boundary("a", "a", "h", "t", [[1, 0, 80]], [80, 40], {"version": 1}, {"usd": 1}),
    ),
    ("tip", {"to": "e"}, Tip("e")),
    (
        "turn",
        {"state": "done", "totals": {}, "model": "m", "branch": "b", "title": "t"},
        Turn("done", {}, "m", "b", "t"),
    ),
    ("waiting", {"waiting_for": "answer", "tool_use_id": "c"}, Waiting("answer", "c")),
    ("interrupted", {"by": "signal", "reason": "TERM"}, Interrupted("signal", "TERM")),
    ("decision", {"text": "cut in UTC", "title": "zones"}, Decision("cut in UTC", "zones")),
    ("todos", {"todos": [{"content": "x"}]}, Todos([{"content": "x"}])),
    ("model", {"model": "m", "overrides": {"effort": "high"}}, Model("m", {"effort": "high"})),
    ("cwd", {"cwd": "/w"}, Cwd("/w")),
    (
        "worktree",
        {"path": "/w", "branch": "b", "commit": "c", "dirty": True},
        Worktree("/w", "b", "c", dirty=True),
    ),
    ("file", {"path": "a.py", "how": "add", "hash": "h"}, FileRecord("a.py", "add", "h")),
    (
        "sidechain",
        {"agent_id": "a", "tool_use_id": "c", "completion_status": "crashed", "summary": "s"},
        SidechainRecord("a", "c", "crashed", "s"),
    ),
]


# -- payloads ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "payload", "expected"), WRITTEN, ids=[w[0] for w in WRITTEN])
def test_every_type_gives_its_struct(kind: str, payload: Any, expected: Payload) -> None:
    """All fields of the wire format are read under their names."""
    assert expected == parse_payload(event(kind, payload))


def test_no_type_is_left_out() -> None:
    """The cases above hold one of every type that has a payload."""
    assert set(PAYLOADS) == {kind for kind, _, _ in WRITTEN}


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("header", {"session_id": "s"}),
        ("terminator", {}),
        ("boundary", {"anchor_uuid": "a", "summary_event_uuid": "a"}),
        ("turn", {}),
        ("waiting", {}),
        ("interrupted", {}),
        ("decision", {"text": "t"}),
        ("model", {"model": "m"}),
        ("worktree", {}),
        ("file", {"path": "p"}),
        ("sidechain", {"agent_id": "a"}),
    ],
)
def test_only_what_a_type_cannot_do_without_is_required(kind: str, payload: Any) -> None:
    """Other writers leave fields out; defaults stand in."""
    assert isinstance(parse_payload(event(kind, payload)), PAYLOADS[kind])


@pytest.mark.parametrize("kind", ["header", "user", "boundary", "tip", "todos", "cwd", "file"])
@pytest.mark.parametrize("payload", [None, 1, "x", [], {}, {"session_id": 1, "to": [], "path": 2}])
def test_payload_of_the_wrong_shape_is_a_value(kind: str, payload: Any) -> None:
    """What a type promises and a line does not keep is told, never raised."""
    parsed = parse_payload(event(kind, payload))

    assert isinstance(parsed, Malformed)
    assert parsed.why


def test_unknown_fields_of_a_payload_do_no_harm() -> None:
    """A newer writer's fields are passed over; the event itself keeps them."""
    newer = event("tip", {"to": "e", "because": "asked"})

    assert Tip("e") == parse_payload(newer)
    assert {"to": "e", "because": "asked"} == newer.fields


def test_unknown_type_has_no_struct() -> None:
    """A harness's own events are none of ours."""
    assert None is parse_payload(event("deploy", {"to": "e"}))


def test_boundary_is_read_in_the_other_spelling() -> None:
    """`headUuid` and its kin, which other writers of this format use, mean the same."""
    boundary = parse_payload(
        event(
            "boundary",
            {"headUuid": "h", "anchorUuid": "a", "tailUuid": "t", "summaryEventUuid": "s"},
        )
    )

    assert Boundary("a", "s", "h", "t") == boundary


def test_older_name_of_the_summary_is_read() -> None:
    """Version 2 called it `summary_uuid`."""
    boundary = parse_payload(event("boundary", {"anchor_uuid": "a", "summary_uuid": "s"}))

    assert Boundary("a", "s") == boundary


@pytest.mark.parametrize("cache", [5, "text", {"a": 1}, [[1, "x"]], [None]])
def test_caches_of_a_boundary_do_not_spoil_it(cache: Any) -> None:
    """Of whatever shape they are: a bad one costs time, never the compaction."""
    fields = {"anchor_uuid": "a", "summary_event_uuid": "a"}
    caches = dict.fromkeys(("kept", "summary", "state", "totals"), cache)

    assert isinstance(parse_payload(event("boundary", fields | caches)), Boundary)


def test_other_spelling_is_renamed_and_nothing_else() -> None:
    """Fields that are no uuids keep their names, and our own spelling is given back as it is."""
    ours = {"head_uuid": "h", "kept": []}

    assert ours is records.snake(ours)
    assert {"tail_uuid": "t", "maxTokens": 5} == records.snake({"tailUuid": "t", "maxTokens": 5})


@given(st.sampled_from([*PAYLOADS, "permission_grant", "deploy"]), JSON)
def test_no_payload_makes_reading_raise(kind: str, payload: Any) -> None:
    """Arbitrary JSON is the promised struct, malformed, or not ours."""
    parsed = parse_payload(event(kind, payload))

    assert isinstance(parsed, (PAYLOADS.get(kind, type(None)), Malformed))


def test_payload_nested_beyond_all_sense_does_not_raise() -> None:
    """Depth that Python does not follow costs that payload at most."""
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]

    for payload in (deep, {"role": "user", "content": [deep]}, {"to": deep}, {"todos": deep}):
        for kind in PAYLOADS:
            parsed = parse_payload(event(kind, payload))

            assert isinstance(parsed, (PAYLOADS[kind], Malformed))


@given(JSON)
def test_fields_are_an_object_whatever_was_written(payload: Any) -> None:
    """Folds may ask any event for its fields."""
    expected = payload if isinstance(payload, dict) else {}

    assert expected == event("user", payload).fields


def test_event_cannot_be_changed() -> None:
    """What was recorded stays as it was recorded."""
    with pytest.raises(AttributeError):
        event("user", {}).uuid = "other"  # type: ignore[misc]


def test_envelope_order_is_frozen() -> None:
    """A search backwards through bytes relies on `type` being the first key of a line."""
    first_five = Event.__struct_fields__[:5]

    assert ("type", "ts", "uuid", "prev_uuid", "payload") == first_five


# -- kinds of types ---------------------------------------------------------------------------


def test_messages_and_books_are_told_apart() -> None:
    """No type both goes to the model and keeps the books."""
    assert frozenset() == MESSAGES & INTERNAL
    assert set(PAYLOADS) >= MESSAGES | INTERNAL


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("permission", True),
        ("permission-mode", True),
        ("permission_grant", True),
        ("permissions.allow", True),
        ("user", False),
        ("my_permission", False),
        ("", False),
    ],
)
def test_permission_events_are_known_by_their_name(kind: str, expected: bool) -> None:
    """Whatever a log calls them, they begin with the word."""
    assert expected == is_permission(kind)


# -- usage ------------------------------------------------------------------------------------


def test_usage_is_read_under_the_names_of_the_api() -> None:
    """Four counts, and their sum is what was billed."""
    usage = usage_of(
        {
            "input_tokens": 1,
            "output_tokens": 20,
            "cache_creation_input_tokens": 300,
            "cache_read_input_tokens": 4000,
            "service_tier": "standard",
        }
    )

    assert Usage(1, 20, 300, 4000) == usage
    assert usage is not None
    assert 4321 == usage.total


@pytest.mark.parametrize("value", [None, 0, "12", [], [1], True])
def test_what_is_no_usage_object_is_no_usage(value: Any) -> None:
    """A response without a bill differs from one that cost nothing."""
    assert None is usage_of(value)
    assert Usage() == usage_of({})


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (0, 0),
        (12, 12),
        (12.0, 12),
        ("12", 12),
        (2**53 - 1, 2**53 - 1),
        (2**53, 0),
        (10**400, 0),
        (1e300, 0),
        (12.5, 0),
        (-12, 0),
        (-12.0, 0),
        ("-12", 0),
        ("12.5", 0),
        ("1_000", 0),
        ("٣", 0),
        ("²", 0),
        ("9" * 17, 0),
        ("9" * 5000, 0),
        ("", 0),
        (True, 0),
        (None, 0),
        ([12], 0),
        ({"value": 12}, 0),
        (float("inf"), 0),
        (float("nan"), 0),
        (Decimal(12), 0),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_odd_numbers_count_as_what_they_say_or_as_nothing(written: Any, expected: int) -> None:
    """Some writers spell counts as floats or text; what is no count adds nothing to a bill."""
    assert expected == count(written)
    assert Usage(output_tokens=expected) == usage_of({"output_tokens": written})


@pytest.mark.parametrize(
    ("written", "expected"),
    [(0.25, 0.25), (3, 3.0), (0, 0.0), (-0.25, None), (10**400, None), (1e300, None)]
    + [(value, None) for value in (True, "0.25", None, [1], float("nan"), float("inf"))],
    ids=lambda value: repr(value)[:20],
)
def test_a_cost_is_a_number_that_can_be_one(written: Any, expected: float | None) -> None:
    """What is none, or absurd, is no cost, however long its digits are."""
    assert expected == records.dollars(written)


@given(JSON)
def test_usage_is_never_absurd(value: Any) -> None:
    """No log makes a bill negative or larger than a JSON number holds."""
    usage = usage_of(value) or Usage()

    assert all(0 <= getattr(usage, name) < 2**53 for name in Usage.__struct_fields__)


# -- content ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("hi", [{"type": "text", "text": "hi"}]),
        (
            ["a", {"type": "image"}, 5, None, ["x"]],
            [{"type": "text", "text": "a"}, {"type": "image"}],
        ),
        ([], []),
        (None, []),
        ({"type": "text", "text": "not a list"}, []),
    ],
)
def test_content_is_a_list_of_blocks_whatever_shape_it_has(content: Any, expected: Any) -> None:
    """Bare texts become text blocks; what is no block is left out."""
    assert expected == blocks(content)


def test_text_is_prose_alone() -> None:
    """Thinking, calls and results are no prose; blocks stay apart."""
    content = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "one"},
        {"type": "tool_use", "id": "c", "name": "Bash", "input": {"text": "no"}},
        {"type": "text", "text": ["odd"]},
        "two",
    ]

    assert "one\ntwo" == text_of(content)
    assert "as it is\n" == text_of("as it is\n")


@given(JSON)
def test_no_content_makes_reading_raise(content: Any) -> None:
    """Blocks are objects and prose is text, of any JSON."""
    assert all(isinstance(block, dict) for block in blocks(content))
    assert isinstance(text_of(content), str)


@pytest.mark.parametrize(("value", "expected"), [("Bash", "Bash"), (None, ""), (5, ""), ({}, "")])
def test_names_are_text_or_nothing(value: Any, expected: str) -> None:
    """A name of another shape is no name."""
    assert expected == word(value)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1794748320.25, "2026-11-15T13:12:00.250Z"),
        (-0.5, "1969-12-31T23:59:59.500Z"),
        (1e18, ""),
        (10**400, ""),
        (float("nan"), ""),
        (float("inf"), ""),
        ("2026-11-15", "2026-11-15"),
        (True, True),
        (None, None),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_seconds_become_text(written: Any, expected: Any) -> None:
    """Out of range they are no time; what is no number is left alone."""
    assert expected == time_text(written)


def test_thousandths_of_seconds_become_text() -> None:
    """A number of any length is a time or none; it is not divided before that is known."""
    assert "2026-11-15T13:12:00.250Z" == time_text(1794748320250, per_second=1000)
    assert "" == time_text(10**400, per_second=1000)
