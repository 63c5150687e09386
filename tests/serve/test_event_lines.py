"""Lines: whoever follows the steps has the line, from wherever it stood."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.format.histories import History, Script, scripts
from thence.format.facts import fact_of
from thence.format.normal import SessionEvent
from thence.format.session_graph import SessionGraph
from thence.format.stored import StoredEvent
from thence.memory.readouts import readout_of
from thence.serve.event_lines import EventLine, StreamPosition, _common
from thence.testing import Draft


def events_in(rows: list[StoredEvent]) -> list[SessionEvent]:
    """Return events without what was derived of them."""
    return [row.event for row in rows]


def line_of(draft: Draft, events: int | None = None) -> EventLine:
    """The line of a session of which so many events are written."""
    facts = [
        fact_of(event, file="a", line=at + 1, offset=at)
        for at, event in enumerate(draft.events[:events])
    ]
    return EventLine(readout_of(SessionGraph("thence:model", facts)))


@given(scripts, st.integers(0, 200), st.integers(0, 200))
def test_from_any_mark_of_any_moment_the_steps_lead_to_the_line(
    script: Script, then: int, now: int
) -> None:
    """A client that had some of the line long ago comes to the line of now, or begins anew."""
    draft = History(script).draft
    then, now = sorted((then % (len(draft.events) + 1), now % (len(draft.events) + 1)))
    old, new = line_of(draft, then), line_of(draft, now)

    for count in {0, len(old.ids) // 2, len(old.ids)}:
        step = new.step(old.mark(count))
        have = old.ids[:count] if step is not None else []
        if step is not None and step.back_to is not None:
            have = have[: step.back_to]
        start = step.start if step is not None else 0

        assert new.ids == have + new.ids[start:]


@given(scripts, st.integers(0, 200))
def test_on_a_line_that_only_grew_nothing_is_taken_back(script: Script, then: int) -> None:
    """Without rewinds and late results a client only gets what is new."""
    verbs = ("prompt", "reply", "calls")
    draft = History(script, verbs=verbs).draft
    old, new = line_of(draft, then % (len(draft.events) + 1)), line_of(draft)

    step = new.step(old.mark())

    assert step is not None
    assert (None, len(old.ids)) == step


@given(scripts)
def test_no_call_is_on_the_line_without_its_result_while_that_may_come(script: Script) -> None:
    """Calls that are open at the end are pending; what follows them is not shown either."""
    line = line_of(History(script).draft)
    events, pending = events_in(line.events), events_in(line.pending)
    answered = {event.call for event in events if event.kind == "tool_result"}
    spoken_kinds = ("user_msg", "assistant_msg", "thinking")
    last = max((at for at, e in enumerate(events) if e.kind in spoken_kinds), default=-1)

    open_ones = [e for e in events[last + 1 :] if e.kind == "tool_call"]

    assert all(event.call in answered for event in open_ones)
    assert all(event.kind != "tool_result" for event in pending)
    assert set(line.ids).isdisjoint(event.event_id for event in pending)


@given(scripts, st.integers(0, 40))
def test_the_last_so_many_events_have_their_pairs_whole(script: Script, last: int) -> None:
    """No result is shown without the call that it answers."""
    line = line_of(History(script).draft)
    start = line.start(last)
    shown = events_in(line.events[start:])
    calls = {event.call for event in events_in(line.events) if event.kind == "tool_call"}

    for event in shown:
        if event.kind == "tool_result" and event.call in calls:
            assert event.call in {other.call for other in shown if other.kind == "tool_call"}
    assert min(last, len(line.events)) <= len(shown)


@given(
    st.builds(
        StreamPosition,
        st.integers(0, 2**52 - 1),
        st.integers(0, 10**9 - 1),
        st.integers(0, 2**32 - 1),
    )
)
def test_a_mark_is_read_back(mark: StreamPosition) -> None:
    """As the id of a server-sent event."""
    assert mark == StreamPosition.read(str(mark))


@given(st.text(max_size=40))
def test_no_text_is_a_mark_that_breaks(text: str) -> None:
    """It is one, or none."""
    mark = StreamPosition.read(text)

    assert mark is None or str(mark) == text


@given(scripts, st.integers(1, 2**52 - 1), st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_a_forged_mark_is_known_as_such(script: Script, end: int, count: int, check: int) -> None:
    """Nobody has a line that there never was: such a client begins anew."""
    line = line_of(History(script).draft)
    forged = StreamPosition(end, count, check)
    marks = {line.mark(number) for number in range(len(line.ids) + 1)}

    assert forged in marks or line.step(forged) is None


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_what_two_lists_have_in_common_is_their_beginning(
    first: list[int], second: list[int]
) -> None:
    """As many as are the same, and no more."""
    common = _common(first, second)

    assert first[:common] == second[:common]
    assert first[common : common + 1] != second[common : common + 1] or common == len(first) == len(
        second
    )


def test_an_open_call_waits_for_its_result() -> None:
    """Then both are on the line, in order."""
    draft = Draft("model")
    draft.header()
    draft.prompt("go")
    asked = draft.reply(Draft.call("c1", "Bash", command="make"))
    before = line_of(draft)
    draft.result("c1", "done", parent=asked)
    after = line_of(draft)

    assert (["user_msg"], ["tool_call"]) == (
        [event.kind for event in events_in(before.events)],
        [event.kind for event in events_in(before.pending)],
    )
    kinds = [event.kind for event in events_in(after.events)]
    assert ["user_msg", "tool_call", "tool_result"] == kinds
    assert (None, 1) == after.step(before.mark())


def test_a_call_that_was_left_behind_is_shown() -> None:
    """The conversation went on without its result: nobody waits for that any more."""
    draft = Draft("model")
    draft.header()
    draft.prompt("go")
    draft.reply(Draft.call("c1", "Bash", command="make"))
    draft.prompt("never mind")

    line = line_of(draft)

    assert ["user_msg", "tool_call", "user_msg"] == [event.kind for event in events_in(line.events)]
    assert [] == line.pending
