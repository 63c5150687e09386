"""`Session` and `SessionEvent`: the names others rely on, ids that never change, dense numbers."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.format.derived import normalise
from thence.format import codec
from thence.format.graph import State
from thence.format.normal import (
    KINDS,
    SEQ_STEP,
    SUMMARY_LENGTH,
    Cost,
    Kind,
    Session,
    SessionEvent,
    event_id,
    number_events,
    one_line,
    session_uid,
)
from thence.format.records import PAYLOADS, Event, Usage
from thence.format.transcript import Transcript
from thence.testing import SAMPLE_SESSION, Draft, sample

UID = session_uid("thence", SAMPLE_SESSION)


def normal(draft: Draft, **how: Any) -> list[SessionEvent]:
    """The events of a draft, normalised as if all were live."""
    return normalise(draft.events, [State.LIVE] * len(draft.events), UID, **how)


def normal_sample() -> list[SessionEvent]:
    """The sample's events with their true states."""
    transcript = Transcript.read(sample())
    return normalise(transcript.events, transcript.states, UID)


def made(number: int, parent: int | None = None) -> SessionEvent:
    """An event that has no more than an id and a parent."""
    return SessionEvent(UID, number, "user_msg", parent)


# -- the contract -----------------------------------------------------------------------------


def test_session_has_the_fields_of_the_contract() -> None:
    """Field names are stable across all agents; stores and other people's tools hold them."""
    expected = """session_uid flavor native_session_id repo domain cwd git_branch model started_at
        ended_at outcome cost task_ref source_path source_bytes schema_version discovered_at
        ingested_at analyzed_at evicted_at"""

    assert expected.split() == list(Session.__struct_fields__)


def test_cost_has_the_fields_of_the_contract() -> None:
    """Tokens, time, turns and retries of one session."""
    expected = "input_tokens output_tokens cache_tokens wall_clock_s turns retries"

    assert expected.split() == list(Cost.__struct_fields__)


def test_event_has_the_fields_of_the_contract() -> None:
    """Those of the contract, and more that none of its readers needs."""
    expected = """session_uid seq parent_seq ts kind role tool summary payload_ref tokens
        is_sidechain"""

    assert set(expected.split()) <= set(SessionEvent.__struct_fields__)


def test_there_are_thirteen_kinds() -> None:
    """What an event can be, for every agent."""
    expected = """user_msg assistant_msg thinking tool_call tool_result error test_run edit retry
        human_intervention decision lifecycle completion"""

    assert tuple(expected.split()) == KINDS
    assert get_args(Kind) == KINDS


def test_outcome_is_one_of_six() -> None:
    """Unknown until somebody has looked."""
    outcomes = get_args(get_type_hints(Session)["outcome"])

    assert {"success", "fail", "abandoned", "waiting", "running", "unknown"} == set(outcomes)
    assert "unknown" == Session("thence:s", "thence", "s").outcome


def test_uid_names_the_agent_and_its_session() -> None:
    """Two agents may draw the same id."""
    assert "claude:17092961" == session_uid("claude", "17092961")


# -- identity ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "of"),
    [
        (1745729674295145, ("thence:s", "e1")),
        (901609857800506, ("thence:s", "e1", 1)),
        (1518671619120190, ("thence:s", "e1", 0, 1)),
        (3278932949116466, ("claude:s", "e1")),
        (3055546266262609, ("thence:s", "naïve 日本")),
        (2987370729301146, ("thence:s", "\ud800")),
    ],
)
def test_event_id_never_changes(expected: int, of: tuple[Any, ...]) -> None:
    """Rows and pointers on users' disks hold these numbers: the recipe is frozen."""
    assert expected == event_id(*of)


PARTS = st.tuples(st.text(max_size=5), st.text(max_size=5), st.integers(0, 3), st.integers(0, 3))


@given(PARTS)
def test_event_id_fits_into_a_json_number(of: tuple[str, str, int, int]) -> None:
    """52 bits: JavaScript reads it without loss."""
    assert 0 <= event_id(*of) < 2**52


@given(st.sets(PARTS, max_size=30))
def test_ids_of_different_events_differ(of: set[tuple[str, str, int, int]]) -> None:
    """No two parts run into each other."""
    assert len(of) == len({event_id(*parts) for parts in of})


def test_ids_of_a_real_session_differ() -> None:
    """All blocks of the sample, and the places they hold."""
    events = normal_sample()

    assert len(events) == len({event.event_id for event in events})
    assert len(events) == len({(event.native_id, event.block) for event in events})


@given(st.permutations(range(12)))
def test_id_does_not_depend_on_order(order: list[int]) -> None:
    """The same events read in another order have the same ids."""
    draft = Draft()
    for number in range(12):
        draft.prompt(f"prompt {number}")
    events = [draft.events[at] for at in order]
    ids = {e.native_id: e.event_id for e in normal(draft)}

    assert ids == {
        e.native_id: e.event_id for e in normalise(events, [State.LIVE] * len(events), UID)
    }


@given(st.lists(st.integers(0, len(sample())), max_size=6))
def test_id_does_not_depend_on_how_bytes_come_in(cuts: list[int]) -> None:
    """Chunks may be cut anywhere, in the middle of a line too."""
    data = sample()
    ends = [0, *sorted(cuts), len(data)]
    chunks = [data[a:b] for a, b in pairwise(ends)]
    at_once, pieces = codec.decode(data).events, codec.decode(chunks).events
    states = [State.LIVE] * len(at_once)

    assert normalise(at_once, states, UID) == normalise(pieces, states, UID)


@given(st.integers(0, 29))
def test_growth_changes_no_id(length: int) -> None:
    """What was read of a log before it grew keeps its ids and parents."""
    events = Transcript.read(sample()).events
    states = [State.LIVE] * len(events)
    early = normalise(events[:length], states[:length], UID)

    assert early == normalise(events, states, UID)[: len(early)]


def test_record_that_was_written_twice_is_one() -> None:
    """Another read of the same line gives nothing new."""
    draft = Draft()
    draft.prompt("one")
    draft.prompt("two")
    again = [*draft.events, *draft.events]

    assert normal(draft) == normalise(again, [State.LIVE] * 4, UID)


def test_uuid_that_occurs_again_with_other_words_is_another_event() -> None:
    """It gets an id of its own, and children stay with the first."""
    first = Event("user", "t", "a", None, {"role": "user", "content": "one"})
    copy = Event("user", "t", "a", None, {"role": "user", "content": "two"})
    child = Event("user", "t", "b", "a", {"role": "user", "content": "three"})
    original, double, follower = normalise([first, copy, child], [State.LIVE] * 3, UID)

    assert event_id(UID, "a") == original.event_id
    assert event_id(UID, "a", 0, 1) == double.event_id
    assert original.event_id == follower.parent_id


# -- our own events ---------------------------------------------------------------------------


def test_blocks_of_one_record_are_chained() -> None:
    """Each block follows the one before; what comes next hangs off the last."""
    draft = Draft()
    prompt = draft.prompt("go")
    draft.reply("one", Draft.call("c1", "Bash", command="ls"), "two")
    draft.result("c1", "files")
    asked, intro, call, closing, result = normal(draft)

    assert prompt == asked.native_id
    assert [0, 1, 2] == [intro.block, call.block, closing.block]
    assert [None, asked.event_id, intro.event_id, call.event_id, closing.event_id] == [
        e.parent_id for e in (asked, intro, call, closing, result)
    ]


def test_every_block_has_its_kind() -> None:
    """Every block of a message becomes the event of its kind, with what it said."""
    draft = Draft()
    draft.prompt("find\n  it")
    draft.add(
        "assistant",
        {
            "role": "assistant",
            "model": "opus",
            "content": [
                {"type": "thinking", "thinking": "hm"},
                {"type": "redacted_thinking", "data": "…"},
                {"type": "text", "text": "looking"},
                {"type": "tool_use", "id": "c1", "name": "Grep", "input": {"pattern": "x"}},
                {"type": "server_tool_use", "id": "c2"},
            ],
        },
    )
    draft.result("c1", "a.py:1", failed=True)
    events = normal(draft)

    assert [
        ("user_msg", "user", None, None, "find it", None),
        ("thinking", "assistant", None, None, "hm", "opus"),
        ("thinking", "assistant", None, None, "", "opus"),
        ("assistant_msg", "assistant", None, None, "looking", "opus"),
        ("tool_call", "assistant", "Grep", "c1", "searched for x", "opus"),
        ("assistant_msg", "assistant", None, None, "", "opus"),
        ("tool_result", "tool", "Grep", "c1", "a.py:1", None),
    ] == [(e.kind, e.role, e.tool, e.call, e.summary, e.model) for e in events]


@pytest.mark.parametrize(("wrong", "expected"), [(True, True), (False, False), (None, None)])
def test_result_says_of_itself_no_more_than_it_knows(wrong: Any, expected: bool | None) -> None:
    """How a call ended is told with the call at hand: a file may hold the words of an error."""
    block = {"type": "tool_result", "tool_use_id": "c", "content": "Exit code 1", "is_error": wrong}
    draft = Draft()
    draft.add("user", {"role": "user", "content": [block]})

    assert [expected] == [event.failed for event in normal(draft)]


@pytest.mark.parametrize(
    ("kind", "payload", "expected"),
    [
        ("header", {"session_id": "s"}, "lifecycle"),
        ("terminator", {}, "lifecycle"),
        ("turn", {}, "lifecycle"),
        ("boundary", {}, "lifecycle"),
        ("todos", {"todos": []}, "lifecycle"),
        ("deploy", None, "lifecycle"),
        ("permission_grant", {}, "lifecycle"),
        ("decision", {"text": "use UTC"}, "decision"),
        ("file", {"path": "a", "how": "add"}, "lifecycle"),
    ],
)
def test_events_that_are_no_messages_have_a_kind(kind: str, payload: Any, expected: str) -> None:
    """Nothing is dropped, the unheard of included; its type is its summary."""
    draft = Draft()
    draft.add(kind, payload)
    (event,) = normal(draft)

    assert (expected, "system", kind, kind, payload) == (
        event.kind,
        event.role,
        event.summary,
        event.native_type,
        event.payload,
    )


def test_summary_of_a_compaction_is_nobodys_message() -> None:
    """It has the form of a prompt, but no human said it."""
    draft = Draft()
    draft.compact("so far:\nall well")
    summary, boundary = normal(draft)

    assert ("lifecycle", "user", "so far: all well") == (
        summary.kind,
        summary.role,
        summary.summary,
    )
    assert summary.event_id == boundary.parent_id


def test_bill_stands_on_the_first_block_alone() -> None:
    """One record repeats its usage for none of its blocks."""
    draft = Draft()
    draft.reply("one", "two", usage=(30, 12))
    first, second = normal(draft)

    assert (Usage(30, 12), "msg_0000", 42) == (first.usage, first.usage_key, first.tokens)
    assert (None, None, 0) == (second.usage, second.usage_key, second.tokens)


def test_bill_without_a_response_is_known_by_its_record() -> None:
    """Endpoints of third parties name no response."""
    draft = Draft()
    uuid = draft.reply("hi", id=None)

    assert [uuid] == [event.usage_key for event in normal(draft)]


def test_users_have_no_bill() -> None:
    """Usage on a prompt is a stray field."""
    draft = Draft()
    draft.add("user", {"role": "user", "content": "hi", "usage": {"input_tokens": 5}})

    assert [(None, 0)] == [(event.usage, event.tokens) for event in normal(draft)]


def test_state_and_time_come_from_the_record() -> None:
    """Every block has those of its record."""
    transcript = Transcript.read(sample())
    events = normal_sample()
    by_uuid = dict(zip((e.uuid for e in transcript.events), transcript.states, strict=True))

    assert [by_uuid[e.native_id] for e in events] == [e.state for e in events]
    assert "2026-11-15T13:12:00.000Z" == events[0].ts


def test_sidechain_is_marked() -> None:
    """A subagent's events are told from the session's own."""
    draft = Draft()
    draft.prompt("look around")
    (main,), (side,) = normal(draft), normal(draft, channel="explorer")

    assert (False, "main") == (main.is_sidechain, main.channel)
    assert (True, "explorer") == (side.is_sidechain, side.channel)


def test_parent_that_is_not_there_is_none_in_the_numbers() -> None:
    """A dangling link points nowhere, never at the wrong event; so does one to itself."""
    events = [Event("user", "t", "", None, {}), Event("user", "t", "a", None, {})]
    events += [Event("user", "t", "b", "gone", {}), Event("user", "t", "c", "c", {})]
    out = normalise(events, [State.LIVE] * 4, UID)

    assert [None, None, None] == [e.parent_id for e in out[:3]]
    assert [None] * 4 == [e.parent_seq for e in number_events(out)]


def test_parent_that_was_written_later_is_found() -> None:
    """Links do not depend on order either."""
    parent = Event("user", "t", "a", None, {"role": "user", "content": ["one", "two"]})
    child = Event("user", "t", "b", "a", {"role": "user", "content": "three"})

    assert event_id(UID, "a", 1) == normalise([child, parent], [State.LIVE] * 2, UID)[0].parent_id


def test_result_is_named_by_its_call() -> None:
    """Wherever the call stands; one that nobody asked for has no name."""
    draft = Draft()
    draft.result("a", "ok")
    draft.reply(Draft.call("a", "Bash", command="ls"))
    draft.result("b", "ok")

    assert ["Bash", "Bash", None] == [event.tool for event in normal(draft)]


SMALL = st.none() | st.booleans() | st.integers() | st.sampled_from(["a", "b", "text"])
FIELDS = ["type", "text", "id", "name", "input", "content", "usage", "tool_use_id", "how"]
ANY = st.recursive(
    SMALL,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(FIELDS),
            inner | st.sampled_from(["text", "tool_use", "tool_result", "thinking"]),
            max_size=5,
        )
    ),
    max_leaves=12,
)
EVENTS = st.lists(
    st.builds(
        Event,
        st.sampled_from([*PAYLOADS, "decision", "deploy"]),
        st.sampled_from(["", "2026-11-15T13:12:00.000Z"]),
        st.sampled_from("abcdef"),
        st.none() | st.sampled_from("abcdefgh"),
        ANY,
    ),
    max_size=8,
)


@given(EVENTS)
def test_every_record_is_normalised(events: list[Event]) -> None:
    """Whatever a payload holds: nothing raises, nothing is dropped, ids differ, kinds are known."""
    out = normalise(events, [State.LIVE] * len(events), UID)

    assert {event.uuid for event in events} == {event.native_id for event in out}
    assert len(out) == len({event.event_id for event in out})
    assert {event.kind for event in out} <= set(KINDS)
    assert out == msgspec.convert(msgspec.to_builtins(out), list[SessionEvent])


# -- one line ---------------------------------------------------------------------------------


@given(st.text())
def test_summary_is_one_short_line(text: str) -> None:
    """However long the text, and whatever it breaks its lines with."""
    line = one_line(text * 50)

    assert len(line) <= SUMMARY_LENGTH
    assert not re.search(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]", line)


def test_cut_text_says_so() -> None:
    """A summary that ends early ends in `…`; one that fits is whole."""
    assert ("a b", "aaaa…") == (one_line(" a\n b "), one_line("a" * 9, 5))
    assert "aaaaa" == one_line("aaaaa", 5)


@given(st.text("ab \n", max_size=60), st.integers(1, 16))
def test_summary_holds_the_first_words_of_four_times_its_length(text: str, length: int) -> None:
    """However much white space stands before and between them."""
    flat = " ".join(text[: 4 * length].split())
    short = flat if len(flat) <= length else flat[: length - 1] + "…"

    assert short == one_line(text, length)


# -- numbers for the eye ----------------------------------------------------------------------


def test_written_order_is_kept_where_parents_allow() -> None:
    """A log in order is numbered as it is written."""
    events = number_events(normal_sample())

    assert normal_sample() == [
        msgspec.structs.replace(event, seq=None, parent_seq=None) for event in events
    ]


def test_parent_written_late_comes_first_all_the_same() -> None:
    """Only what has to move moves."""
    events = [made(1), made(3, 2), made(4), made(2, 1)]

    assert [(1, None), (2, 0), (3, SEQ_STEP), (4, None)] == [
        (event.event_id, event.parent_seq) for event in number_events(events)
    ]


FORESTS = st.lists(st.none() | st.integers(0, 40), max_size=40).flatmap(
    lambda parents: st.permutations(
        [
            # `parent` is taken among the earlier ones, so that no cycle can be.
            made(100 + at, None if parent is None or not at else 100 + parent % at)
            for at, parent in enumerate(parents)
        ]
    )
)


@given(FORESTS)
def test_numbers_grow_in_steps_and_parents_come_first(events: list[SessionEvent]) -> None:
    """For every forest in every order `parent_seq` is the number of the parent."""
    out = number_events(events)

    assert [SEQ_STEP * at for at in range(len(events))] == [event.seq for event in out]
    assert {event.event_id for event in events} == {event.event_id for event in out}
    for event in out:
        if event.parent_id is None:
            assert event.parent_seq is None
        else:
            assert event.parent_seq is not None
            assert event.seq is not None
            assert event.parent_seq < event.seq
            assert event.parent_id == out[event.parent_seq // SEQ_STEP].event_id


@given(st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(0, 12)), max_size=10))
def test_links_that_lead_nowhere_or_in_circles_are_cut(links: list[tuple[int, int | None]]) -> None:
    """Numbers stay dense, and no event is numbered before its parent."""
    events = list({number: made(number, parent) for number, parent in links}.values())
    out = number_events(events)

    assert [SEQ_STEP * at for at in range(len(events))] == [event.seq for event in out]
    for event in out:
        assert event.parent_seq is None or event.parent_seq < (event.seq or 0)
        assert (
            event.parent_seq is None
            or event.parent_id == out[event.parent_seq // SEQ_STEP].event_id
        )


def test_long_chain_is_numbered() -> None:
    """Depth is no recursion: a chain written backwards, as long as logs get."""
    events = [made(n, n - 1 if n else None) for n in range(20_000)]

    expected = [None, *(SEQ_STEP * at for at in range(19_999))]
    assert expected == [event.parent_seq for event in number_events(events[::-1])]
