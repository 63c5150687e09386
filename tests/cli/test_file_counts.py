"""The counts of one log file, by their definitions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.cli.file_counts import UNDECIDED, Counts, Other
from thence.format import codec


def counted(data: bytes, *, limit: int = codec.LINE_LIMIT) -> dict[str, Any]:
    """Count the lines of a file."""
    counts = Counts()
    for place, raw, ended in codec.split(data, limit=limit):
        counts.add(place, raw, ended=ended)
    return counts.to_dict()


def lines(*records: Any) -> bytes:
    """A log of these records."""
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def linked(uuid: str, parent: Any = None, **more: Any) -> dict[str, Any]:
    """A record that names its parent."""
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "sessionId": "s"} | more


def reply(uuid: str, output: Any, *, message: Any = "m", request: Any = "r") -> dict[str, Any]:
    """A record of a response with its bill."""
    usage = {"input_tokens": 3, "output_tokens": output}
    reply = {"id": message, "usage": usage, "content": []}
    return linked(uuid, type="assistant", message=reply, requestId=request)


# -- lines ------------------------------------------------------------------------------------


def test_line_is_blank_good_or_bad() -> None:
    """Each is counted once, and bad ones by what is wrong with them."""
    counts = counted(b' \t\r\n{"a":1}\n{"a":NaN}\n\xff\n[]\n\n{"a":"\x00"}\n{"a"')

    assert {
        "lines": 8,
        "blank_lines": 2,
        "good_records": 1,
        "bad_lines": 5,
        "bad_utf8": 1,
        "bad_json": 3,
        "not_object": 1,
        "bad_line_numbers": [3, 4, 5, 7, 8],
        "lines_with_nul": 1,
        "longest_line": 9,
        "no_final_newline": True,
    }.items() <= counts.items()


def test_mark_at_the_start_is_taken_off_and_nowhere_else() -> None:
    """A BOM on line 1 is no damage; on another line it is."""
    mark = b"\xef\xbb\xbf"
    counts = counted(mark + b'{"a":1}\n' + mark + b'{"a":1}\n')

    assert (True, 1, 1) == (counts["bom"], counts["good_records"], counts["bad_lines"])


def test_line_beyond_the_limit_is_bad_without_being_read() -> None:
    """So that one line cannot take all memory."""
    counts = counted(b'{"a":1}\n{"a":"' + b"x" * 100 + b'"}\n{"a":1}\n', limit=50)

    assert (2, 1, [2], 108) == (
        counts["good_records"],
        counts["bad_lines"],
        counts["bad_line_numbers"],
        counts["longest_line"],
    )


def test_odd_but_valid_json_is_good() -> None:
    """Lone surrogates and numbers beyond every column."""
    counts = counted(b'{"a":"\\ud800"}\n{"a":1e999}\n{"a":' + b"9" * 400 + b"}\n")

    assert (3, 0) == (counts["good_records"], counts["bad_lines"])


@given(st.lists(st.binary(max_size=12) | st.sampled_from([b'{"a":1}', b"", b" ", b"[1]"])))
def test_lines_add_up(pieces: list[bytes]) -> None:
    """No bytes raise, and no line is lost."""
    counts = counted(b"\n".join(pieces))

    assert counts["lines"] == counts["blank_lines"] + counts["good_records"] + counts["bad_lines"]


# -- the kind of log --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "record"),
    [
        ("claude", {"parentUuid": None}),
        ("claude", {"sessionId": "s", "uuid": "u"}),
        ("claude", {"type": "summary", "leafUuid": "u"}),
        ("codex", {"timestamp": "t", "payload": {}}),
        ("codex", {"record_type": "state"}),
        ("codex", {"type": "function_call"}),
        ("codex", {"type": "message", "role": "user"}),
        ("other", {"type": "message", "role": "user", "message": {}}),
        ("other", {"timestamp": "t", "payload": []}),
        ("other", {}),
    ],
)
def test_kind_is_told_by_the_first_records(family: str, record: dict[str, Any]) -> None:
    """By their shape, whatever the file is called."""
    assert family == counted(lines(record))["family"]


def test_kind_is_settled_after_the_first_records() -> None:
    """What comes later changes nothing, and is counted by the kind alone."""
    first = [{"type": "x"}] * UNDECIDED
    counts = counted(lines(*first, *[linked(f"u{n}") for n in range(300)]))

    assert ("other", {"user": 300, "x": UNDECIDED}) == (counts["family"], counts["records_by_type"])


# -- linked logs ------------------------------------------------------------------------------


def test_links_are_counted_by_distinct_uuids() -> None:
    """Roots, tips, broken parents, forks, repeated uuids."""
    counts = counted(
        lines(
            linked("a"),
            linked("b", "a"),
            linked("c", "a"),
            linked("c", "b"),
            linked("d", "gone"),
            linked("e", ""),
            linked("f", 7),
            {"uuid": "g", "sessionId": "s"},
        )
    )

    assert {
        "unique_uuids": 7,
        "duplicate_uuid_records": 1,
        "roots": 1,
        "broken_parents": 2,
        "broken_parent_uuids": ["d", "e"],
        "leaves": 5,
        "fork_points": 1,
        "uuids_on_cycles": 0,
    }.items() <= counts.items()


def test_cycles_are_counted_and_end() -> None:
    """One of itself, one of three, and a tail that leads into it."""
    counts = counted(
        lines(
            linked("a", "a"),
            linked("b", "c"),
            linked("c", "d"),
            linked("d", "b"),
            linked("e", "b"),
        )
    )

    assert 4 == counts["uuids_on_cycles"]


def test_uuids_are_told_apart_byte_by_byte() -> None:
    """Kept in half of their room, they are still texts: no case is folded, none normalised."""
    low = "0123abcd-0000-4000-8000-00000000000a"
    counts = counted(
        lines(linked(low), linked(low.upper(), low), linked(low.replace("-", ""), low))
    )

    assert (3, 1, 2) == (counts["unique_uuids"], counts["roots"], counts["leaves"])
    assert low == counted(lines(linked("x"), linked(low, "gone")))["broken_parent_uuids"][0]


def test_bill_is_counted_once_and_the_last_one_counts() -> None:
    """By message and request together; without either each counts."""
    counts = counted(
        lines(
            reply("a", 1),
            reply("b", 50),
            reply("c", 20),
            reply("d", 7, request="other"),
            reply("e", 1, message=None, request=None),
            reply("f", 1, message=None, request=None),
        )
    )

    assert {"input": 12, "output": 29, "cache_creation": 0, "cache_read": 0} == counts["tokens"]
    assert (10, 80, 2) == (
        counts["tokens_first"]["output"],
        counts["tokens_naive"]["output"],
        counts["token_keys"],
    )
    assert (1, 2) == (counts["assistant_messages"], counts["assistant_without_id"])


@pytest.mark.parametrize("value", ["12", 1.5, True, None, [], {}])
def test_token_number_that_is_none_counts_nothing(value: Any) -> None:
    """Texts, fractions and yes or no are no counts."""
    assert 0 == counted(lines(reply("a", value)))["tokens"]["output"]


def test_token_number_of_any_size_is_added() -> None:
    """Beyond every column, and taken off again when a later bill replaces it."""
    assert (
        10**400 + 5
        == counted(lines(reply("a", 10**400), reply("b", 5, request="q")))["tokens"]["output"]
    )
    assert 5 == counted(lines(reply("a", 10**400), reply("b", 5)))["tokens"]["output"]


def test_calls_are_paired_by_id() -> None:
    """Results before their call count; without a partner both are named."""

    def line_with(kind: str, **block: Any) -> dict[str, Any]:
        return linked("u", type=kind, message={"content": [block]})

    counts = counted(
        lines(
            line_with("user", type="tool_result", tool_use_id="a"),
            line_with("assistant", type="tool_use", id="a"),
            line_with("assistant", type="tool_use", id="b"),
            line_with("user", type="tool_result", tool_use_id="c", is_error=True),
            line_with("user", type="tool_use", id="nobody's"),
        )
    )

    assert {
        "tool_use": 2,
        "tool_result": 2,
        "orphaned_tool_use_ids": ["b"],
        "unmatched_tool_result_ids": ["c"],
        "tool_result_errors": 1,
    }.items() <= counts.items()


def test_marks_of_records_are_counted() -> None:
    """Sidechains, summaries, injected records, boundaries."""
    counts = counted(
        lines(
            linked("a", isSidechain=True, isMeta=True, agentId="x"),
            linked("b", isSidechain="yes", isCompactSummary=True),
            linked("c", type="system", subtype="compact_boundary", logicalParentUuid="a"),
            linked("d", type="system"),
        )
    )

    assert {
        "sidechain_records": 1,
        "meta_records": 1,
        "compact_summaries": 1,
        "compact_boundaries": 1,
        "logical_parent_links": 1,
        "agent_ids": ["x"],
        "system_subtypes": {"(none)": 1, "compact_boundary": 1},
    }.items() <= counts.items()


# -- other logs -------------------------------------------------------------------------------


def test_rollout_is_counted_in_both_forms() -> None:
    """Items in wrappers and bare ones, calls and outputs, the last total and the sum."""

    def item(kind: str, **payload: Any) -> dict[str, Any]:
        return {"timestamp": "2026-01-01T00:00:00Z", "type": kind, "payload": payload}

    bill = {"total_token_usage": {"input_tokens": 9}, "last_token_usage": {"input_tokens": 4}}
    counts = counted(
        lines(
            item("session_meta", id="s", cli_version="1"),
            item("response_item", type="function_call", call_id="a"),
            item("response_item", type="function_call_output", call_id="a"),
            item("response_item", type="custom_tool_call", call_id="b"),
            item("event_msg", type="token_count", info=bill),
            item("event_msg", type="token_count", info=bill),
            item("event_msg", type="thread_rolled_back"),
            {"type": "message", "role": "user"},
        )
    )

    assert {
        "records_by_type": {"event_msg": 3, "message": 1, "response_item": 3, "session_meta": 1},
        "wrapped_lines": 7,
        "bare_lines": 1,
        "session_ids": ["s"],
        "tool_use": 2,
        "tool_result": 1,
        "orphaned_tool_use_ids": ["b"],
        "tokens_total_last": {"input_tokens": 9},
        "tokens_sum_of_last": {"input_tokens": 8},
        "token_count_events": 2,
        "thread_rolled_back": 1,
        "messages_by_role": {"user": 1},
    }.items() <= counts.items()


def test_any_other_log_is_counted_by_types_and_ids() -> None:
    """Roles in the record or in its message; parents by the other spelling."""
    other = Other()
    for record in (
        {"id": "a", "parentId": None, "role": "user"},
        {"id": "b", "parentId": "a", "message": {"role": "assistant"}},
        {"id": "b", "parentId": "gone"},
    ):
        other.add(record)

    assert {
        "records_by_type": {"(none)": 3},
        "messages_by_role": {"assistant": 1, "user": 1},
        "unique_ids": 2,
        "duplicate_ids": 1,
        "null_parentIds": 1,
        "broken_parentIds": 1,
    } == other.to_dict()
