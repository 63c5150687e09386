"""A session is the same whatever order its facts come in, and nothing is counted twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.format.histories import History, Script, scripts
from thence.format.codec import encode
from thence.format.derived_events import add_usage
from thence.format.facts import Base, Block, Edge, Fact, fact_of, line_name
from thence.format.graph import State
from thence.format.nodes import PREVIOUS, Is, Node, Undo
from thence.format.normal import one_line
from thence.format.records import Usage
from thence.format.session_graph import REWRITTEN, SessionGraph
from thence.format.transcript import Transcript
from thence.memory.readouts import readout_of

UID = "codex:s"


def text(content: str, role: str = "user") -> Block:
    """What a human or the model says."""
    kind: Any = f"{role}_msg"
    return Block(kind, role, content, {"type": "text", "text": content})


def prompt(content: str, line: int, **more: Any) -> Fact:
    """A prompt in a log without links."""
    node = Node(line_name(more.get("file", ""), content.encode()), PREVIOUS, Is.PROMPT)
    return Fact(node, "user", blocks=(text(content),), line=line, offset=100 * line, **more)


def reply(content: str, line: int, **more: Any) -> Fact:
    """An answer in a log without links."""
    node = Node(line_name(more.get("file", ""), content.encode()), PREVIOUS, Is.REPLY | Is.ENDS)
    blocks = (text(content, "assistant"),)
    return Fact(node, "assistant", blocks=blocks, line=line, offset=100 * line, **more)


def mark(line: int, **more: Any) -> Fact:
    """A record of the harness."""
    node = Node(f"mark#{line}", PREVIOUS, Is.INTERNAL)
    node = msgspec.structs.replace(node, undo=more.pop("undo", None))
    return Fact(node, "mark", blocks=(Block("lifecycle", "system"),), line=line, **more)


def visible_texts(session: SessionGraph) -> list[str]:
    """The texts the model sees."""
    return [b["text"] for m in readout_of(session).messages().messages for b in m["content"]]


def states(session: SessionGraph) -> dict[str, State | None]:
    """What became of each text."""
    return {e.summary: e.state for e in session.events if e.summary}


def own(script: Script) -> tuple[Transcript, list[Fact]]:
    """A random session of ours, as a transcript and as facts."""
    transcript = Transcript.read(b"".join(map(encode, History(script).events)))
    placed = zip(transcript.events, transcript.places, strict=True)
    facts = [msgspec.structs.replace(fact_of(e), line=place.line) for e, place in placed]
    return transcript, facts


# -- our own events -------------------------------------------------------------------------


@given(scripts)
def test_own_events_are_the_same_session(script: Script) -> None:
    """The facts of our events tell the same states and messages as the transcript does."""
    transcript, facts = own(script)
    session = SessionGraph("thence:s", facts)

    assert transcript.states == session.states
    assert transcript.messages().messages == readout_of(session).messages().messages
    assert transcript.turn().state == session.turn().state


@given(scripts, st.randoms(use_true_random=False), st.integers(1, 4))
def test_order_and_pieces_do_not_matter(script: Script, chance: Any, copies: int) -> None:
    """C-6: facts in any order, some of them read twice, give the same events."""
    _, facts = own(script)
    shuffled = facts + [chance.choice(facts) for _ in range(copies) if facts]
    chance.shuffle(shuffled)

    assert SessionGraph("thence:s", facts).events == SessionGraph("thence:s", shuffled).events


# -- logs without links ---------------------------------------------------------------------


def test_log_without_links_is_one_line() -> None:
    """Each record goes on from the one before."""
    session = SessionGraph(UID, [reply("b", 2), prompt("a", 1), prompt("c", 3)])

    assert ["a", "b", "c"] == visible_texts(session)
    assert [None, *(e.event_id for e in session.events[:2])] == [
        e.parent_id for e in session.events
    ]


def test_rollback_takes_turns_off_the_line() -> None:
    """What is undone stays, rolled back, and is still billed."""
    undone = reply("b2", 4, usage=Usage(5, 5), usage_key="x")
    facts = [prompt("a", 1), reply("b", 2), prompt("a2", 3), undone]
    session = SessionGraph(UID, [*facts, mark(5, undo=Undo(turns=1)), prompt("a3", 6)])

    assert ["a", "b", "a3"] == visible_texts(session)
    assert {"a2", "b2"} == {t for t, s in states(session).items() if s is State.ROLLED_BACK}
    assert (Usage(), Usage(5, 5)) == (session.spent.live, session.spent.dead)


def test_second_log_goes_on_from_inside_the_first() -> None:
    """A rewind that opens a new log leaves the tail of the old one dead."""
    first = [prompt("a", 1), reply("b", 2), prompt("old", 3), reply("older", 4)]
    base = Base("", offset=300)
    second = [mark(1, file="2", base=base), prompt("new", 2, file="2")]
    session = SessionGraph(UID, [*second, *first])

    assert ["a", "b", "new"] == visible_texts(session)
    assert {"old": State.DEAD, "older": State.DEAD} == {
        t: s for t, s in states(session).items() if s is State.DEAD
    }


def test_rewind_of_a_rewind_is_followed_through_all_logs() -> None:
    """The third log goes on from the second, and through it from the first."""
    logs = [
        *(prompt("a", 1), reply("b", 2), prompt("x", 3)),
        *(mark(1, file="2", base=Base("", offset=300)), prompt("c", 2, file="2")),
        *(reply("y", 3, file="2"), mark(1, file="3", base=Base("2", offset=300))),
        prompt("d", 2, file="3"),
    ]

    assert ["a", "b", "c", "d"] == [
        t for m in readout_of(SessionGraph(UID, logs)).messages().messages for t in texts(m)
    ]


def texts(message: Any) -> list[str]:
    """The texts of a message."""
    return [block["text"] for block in message["content"]]


def test_ordinals_tell_the_base_where_offsets_do_not() -> None:
    """Some forks name only the ordinal."""
    first = [prompt("a", 1, ordinal=0), prompt("b", 2, ordinal=1)]
    second = [mark(1, file="2", base=Base("", ordinal=1)), prompt("c", 2, file="2")]

    assert ["a", "c"] == visible_texts(SessionGraph(UID, [*first, *second]))


def test_base_in_another_session_is_a_root() -> None:
    """What cannot be found here is the ancestor's, whose messages are given."""
    facts = [mark(1, base=Base("elsewhere", offset=9)), prompt("mine", 2)]
    above = SessionGraph("codex:elsewhere", [prompt("theirs", 1), prompt("later", 2)])
    session = SessionGraph(UID, facts, origin=(above, 0))

    assert ["theirs", "mine"] == visible_texts(session)


def test_messages_before_a_base_are_those_of_its_line() -> None:
    """A fork sees what its ancestor's model saw at that place, not what came later."""
    session = SessionGraph(UID, [prompt("a", 1), reply("b", 2), prompt("later", 3)])
    before = readout_of(session).messages(to=session.place_before(Base("", offset=300))).messages

    assert ["a", "b"] == [t for m in before for t in texts(m)]


def test_summary_stands_for_what_was_before_it() -> None:
    """A compaction's replacement is what the model sees; what it replaced is live all the same."""
    node = Node("c#1", PREVIOUS, Is.SUMMARY)
    blocks = (Block("lifecycle", "user", "sum", {"type": "text", "text": "sum"}),)
    session = SessionGraph(
        UID, [prompt("a", 1), Fact(node, "compacted", blocks=blocks, line=2), reply("b", 3)]
    )

    assert ["sum", "b"] == visible_texts(session)
    assert {State.LIVE} == set(states(session).values())


# -- the same record again ------------------------------------------------------------------


def test_same_line_written_twice_is_two_events() -> None:
    """Records without an id are known by their bytes and by how often they came."""
    session = SessionGraph(UID, [prompt("yes", 1), prompt("yes", 2)])

    assert 2 == len({event.event_id for event in session.events})


def test_same_line_read_twice_is_one_event() -> None:
    """A last line without its LF is read again when it has one."""
    assert 1 == len(SessionGraph(UID, [prompt("yes", 1), prompt("yes", 1)]).events)


def test_same_id_with_other_content_is_another_event() -> None:
    """Nothing vanishes: the second is told apart by its occurrence, and is no copy to follow."""
    first = Fact(Node("u", None, Is.PROMPT), "user", blocks=(text("one"),), line=1)
    second = Fact(Node("u", None, Is.PROMPT), "user", blocks=(text("two"),), line=2)
    session = SessionGraph(UID, [first, second, msgspec.structs.replace(first, line=3)])

    assert ["one", "two"] == [event.summary for event in session.events]
    assert 2 == len({event.event_id for event in session.events})


# -- rewritten logs -------------------------------------------------------------------------


def test_what_a_rewritten_log_no_longer_holds_is_dead() -> None:
    """G9, X2: it stays, says why, and keeps its id; what is still there is the same event."""
    before = [prompt("a", 1), reply("b", 2), prompt("lost", 3)]
    after = [prompt("a", 1, generation=1), prompt("new", 2, generation=1)]
    session = SessionGraph(UID, [*before, *after])
    ids = {e.summary: e.event_id for e in SessionGraph(UID, before).events}

    assert ["a", "new"] == visible_texts(session)
    assert {"b": REWRITTEN, "lost": REWRITTEN} == {
        e.summary: e.why for e in session.events if e.why
    }
    assert ids == {e.summary: e.event_id for e in session.events if e.summary in ids}


def test_rewritten_document_leaves_nothing_behind() -> None:
    """A fact that is no event is only about the session, and the newest word counts."""
    old = Fact(Node("d"), "summary", file="d", about={"cwd": "/old"})
    new = Fact(Node("d"), "summary", file="d", about={"cwd": "/new"}, generation=1)
    session = SessionGraph(UID, [old, new])

    assert ([], "/new") == (session.events, session.session().cwd)


# -- other sessions -------------------------------------------------------------------------


def test_copies_of_another_session_are_replayed_and_not_billed() -> None:
    """They stand on the line and cost nothing here."""
    copied = Fact(
        Node("u", None, Is.REPLY), blocks=(text("a", "assistant"),), line=1, usage=Usage(9, 9)
    )
    session = SessionGraph("claude:s", [copied], replayed={"u"})

    assert ([State.REPLAYED], Usage()) == (session.states, session.spent.live)


def test_record_that_names_its_owner_is_a_copy() -> None:
    """Known without the other session."""
    here, there = (prompt(name, n, origin=name) for n, name in enumerate(("s", "other"), 1))

    assert [State.LIVE, State.REPLAYED] == SessionGraph(UID, [here, there]).states


def test_bill_that_another_session_pays_is_struck() -> None:
    """U4: the same response logged in two sessions is paid in one."""
    fact = reply("b", 1, usage=Usage(1, 1), usage_key="k")

    assert Usage() == SessionGraph(UID, [fact], billed={"k"}).spent.live


def test_edges_are_told_once_and_not_to_itself() -> None:
    """A record repeats them at every start."""
    edge, own = Edge("fork", "other", "named"), Edge("fork", "s", "named")
    facts = [prompt("a", 1, edges=(edge, own)), prompt("b", 2, edges=(edge,))]

    assert [edge] == SessionGraph(UID, facts).edges


# -- running totals -------------------------------------------------------------------------


def running(*totals: Usage) -> Usage:
    """What a session took that tells only how much it is so far."""
    facts = [reply(f"r{n}", n, running=total) for n, total in enumerate(totals)]
    return SessionGraph(UID, facts).spent.live


def test_running_totals_are_their_last() -> None:
    """They hold all that came before, and are written again without having grown."""
    assert Usage(50, 7, 0, 5) == running(Usage(10, 1), Usage(10, 1), Usage(50, 7, 0, 5))
    assert Usage() == running()


def test_running_totals_that_start_again_are_added_up() -> None:
    """A fall is a new count: what stood before it was spent."""
    totals = [Usage(10, 1), Usage(20, 2), Usage(3, 1), Usage(9, 5), Usage(1, 1)]

    assert Usage(30, 8) == running(*totals)


STEPS = st.lists(st.builds(Usage, st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=5)


@given(st.lists(STEPS, max_size=4))
def test_running_totals_lose_nothing_at_a_reset(runs: list[list[Usage]]) -> None:
    """Counts that grow, each begun below the end of the last, are the sum of their ends."""
    totals: list[Usage] = []
    expected = Usage()
    for steps in runs:
        totals.append(Usage(1))  # below the end of any run: every step adds at least two
        for step in steps:
            totals.append(add_usage(totals[-1], step))
        expected = add_usage(expected, totals[-1])

    assert expected == running(*totals)


def test_single_bills_are_believed_before_totals() -> None:
    """From the first of them on, totals say the same once more."""
    facts = [
        reply("a", 1, running=Usage(10)),
        reply("b", 2, usage=Usage(5), usage_key="k"),
        reply("c", 3, running=Usage(15)),
    ]

    assert Usage(15) == SessionGraph(UID, facts).spent.live


def test_running_totals_of_several_logs_are_added_up() -> None:
    """A segment that goes on from another counts on its own."""
    facts = [reply("a", 1, file="1", running=Usage(10)), reply("b", 1, file="2", running=Usage(15))]

    assert 25 == SessionGraph(UID, facts).spent.own


# -- what is said of the session ------------------------------------------------------------


def about(*descriptions: dict[str, Any]) -> SessionGraph:
    """A session whose records say these things of it."""
    return SessionGraph(UID, [mark(n, about=a) for n, a in enumerate(descriptions)])


def test_first_word_counts_and_of_titles_the_last() -> None:
    """R8."""
    session = about({"cwd": "", "title:ai": "one"}, {"cwd": "/a", "title:ai": "two"}, {"cwd": "/b"})

    assert ("/a", "two") == (session.session().cwd, session.title)


def test_given_title_beats_a_made_up_one() -> None:
    """F8: and an empty one takes it back."""
    titles: Sequence[dict[str, Any]] = ({"title:custom": "mine"}, {"title:ai": "its"})

    assert "mine" == about(*titles).title
    assert "its" == about(*titles, {"title:custom": ""}).title


@pytest.mark.parametrize(
    ("content", "title"),
    [
        (
            "Implement the following plan:\n\n# Plan: Mend the gauge\n\n## Goal\n\nNo gap.",
            "Plan: Mend the gauge",
        ),
        ("# Mend the tide gauge\nAnd then rest.", "Mend the tide gauge And then rest."),
        ("## Mend the tide gauge\n## Why\nIt leaks.", "Mend the tide gauge"),
        ("see issue # 12: it leaks", "see issue # 12: it leaks"),
        ("# Short", "# Short"),
        ("#!/bin/sh\nset -eu", "#!/bin/sh set -eu"),
    ],
)
def test_a_prompt_that_begins_with_a_heading_is_named_by_it(content: str, title: str) -> None:
    """Though a lead-in stands before it; what only looks like one is left as it is."""
    fact = prompt(content, 1)
    block = msgspec.structs.replace(fact.blocks[0], summary=one_line(content))

    assert title == SessionGraph(UID, [msgspec.structs.replace(fact, blocks=(block,))]).title


def test_first_prompt_is_the_last_resort_for_a_title() -> None:
    """A session always has a name, unless nobody said a word."""
    assert ("hello", None) == (
        SessionGraph(UID, [prompt("hello", 1)]).title,
        SessionGraph(UID, []).title,
    )


def test_missing_bills_are_told() -> None:
    """A total that lacks some is a lower bound, and says why."""
    facts = [prompt("a", 1, unbilled="killed"), prompt("b", 2, unbilled="copied", origin="other")]

    assert ["killed"] == [notice.detail for notice in SessionGraph(UID, facts).unbilled]


def test_bill_that_is_due_and_follows_is_not_missing() -> None:
    """Only one in the same log and before the next prompt settles it."""
    due = reply("a", 2, bill_due="cut off")
    bill = mark(3, usage=Usage(1))

    def missing(*facts: Fact) -> list[str]:
        return [notice.detail for notice in SessionGraph(UID, facts).unbilled]

    assert [] == missing(prompt("p", 1), due, bill)
    assert ["cut off"] == missing(prompt("p", 1), due)
    assert ["cut off"] == missing(due, mark(1, usage=Usage(1)))
    assert ["cut off"] == missing(due, prompt("q", 3), mark(4, usage=Usage(1)))
    assert ["cut off"] == missing(due, mark(3, usage=Usage(1), file="other"))


def test_ties_of_a_copied_record_are_its_owners() -> None:
    """What another session spawned is not this one's child."""
    edge = Edge("subagent", "child", "said so", child=True)

    assert [] == SessionGraph(UID, [prompt("a", 1, edges=(edge,), origin="other")]).edges


def test_what_no_model_saw_is_in_no_message() -> None:
    """Blocks of one side stand together; those of the harness are left out."""
    blocks = (
        text("a"),
        Block("lifecycle", "system", payload="x"),
        text("b"),
        text("c", "assistant"),
    )

    session = SessionGraph(UID, [Fact(Node("n", flags=Is.PROMPT), blocks=blocks)])
    messages = readout_of(session).messages().messages

    assert [("user", ["a", "b"]), ("assistant", ["c"])] == [(m["role"], texts(m)) for m in messages]


def linked(
    name: str, parent: str | None, line: int, *, flags: int = Is.PROMPT, **more: Any
) -> Fact:
    """A prompt that names its parent."""
    node = Node(name, parent, flags, tip=more.pop("tip", None), span=more.pop("span", None))
    return Fact(node, "user", blocks=(text(name),), line=line, offset=100 * line, **more)


def begun(base: Base) -> Fact:
    """The first record of a session that goes on from another."""
    return linked("head", None, 1, flags=Is.INTERNAL, file="b", base=base)


OLDER = [linked("one", None, 1, file="a"), linked("two", "one", 2, file="a")]
NAMED = Base("a", session="a", event="one")


def after(base: Base, *own: Fact) -> SessionGraph:
    """A session that goes on from an older one, which goes on itself."""
    later = [linked("three", "two", 3, file="a")]
    before = SessionGraph("x:a", [*OLDER, *later]).up_to(base)
    return SessionGraph("x:b", [begun(base), *own], before=before)


def test_session_that_names_an_event_sees_its_line_only() -> None:
    """What the other one said later, or beside it, is none of it; its events stay its own."""
    session = after(NAMED, linked("four", "head", 2, file="b"))

    assert ["one", "four"] == [b for b in visible_texts(session) if b != "head"]
    assert {"head", "four"} == {fact.node.id for fact in session.facts}


def test_session_that_said_nothing_yet_sees_what_it_names() -> None:
    """Up to the event, wherever the other one's tip is."""
    assert ["one"] == visible_texts(after(NAMED))


def test_event_that_is_not_there_is_taken_for_the_place_before_it() -> None:
    """What stood before the offset counts, what came after does not."""
    lost = Base("a", offset=250, session="a", event="lost")

    assert ["one", "two"] == visible_texts(after(lost))


def test_tip_may_be_moved_to_what_another_session_said() -> None:
    """The line goes on from there, inside the other one."""
    moved = linked("moved", "head", 2, flags=Is.INTERNAL, file="b", tip="one")
    session = after(Base("a", session="a", event="two"), moved)

    assert ["one"] == visible_texts(session)


def test_lineage_of_three_is_read_through() -> None:
    """What a session goes on from holds what that one went on from."""
    second = after(NAMED, linked("four", "head", 2, file="b"))
    base = Base("b", session="b", event="four")
    first = linked("start", None, 1, flags=Is.INTERNAL, file="c", base=base)
    third = SessionGraph(
        "x:c", [first, linked("five", "start", 2, file="c")], before=second.up_to(base)
    )

    assert ["one", "four", "five"] == [
        t for t in visible_texts(third) if t not in ("head", "start")
    ]


def test_summary_leaves_out_what_an_ancestor_said() -> None:
    """It stands for that as well."""
    session = SessionGraph(
        "codex:b",
        [
            prompt("in short", 1, file="b"),
            msgspec.structs.replace(
                mark(2, file="b"),
                node=Node("s#1", PREVIOUS, Is.SUMMARY),
                blocks=(Block("lifecycle", "user", "", "all in all"),),
            ),
        ],
        origin=(SessionGraph("codex:a", [prompt("long ago", 1)]), 0),
    )

    assert ["all in all"] == visible_texts(session)


def test_repeated_records_of_a_rewritten_log_are_kept_apart() -> None:
    """Two of them once, one of them now: the other one is dead."""
    session = SessionGraph(UID, [prompt("a", 1), prompt("a", 2), prompt("a", 1, generation=1)])

    assert [None, REWRITTEN] == [event.why for event in session.events]
    assert 2 == len({event.event_id for event in session.events})


def test_session_that_names_book_keeping_sees_the_line_to_it() -> None:
    """Not the last thing said before it, which may stand on another branch."""
    older = [*OLDER, linked("beside", "one", 3, flags=Is.INTERNAL, file="a")]
    base = Base("a", session="a", event="beside")
    session = SessionGraph("x:b", [begun(base)], before=SessionGraph("x:a", older).up_to(base))

    assert ["one"] == [text for text in visible_texts(session) if text != "beside"]


def test_moves_of_an_ancestors_tip_do_not_move_ours() -> None:
    """It went back to its first event; the session that named another line goes on with that."""
    older = [
        *OLDER,
        linked("back", "one", 3, flags=Is.INTERNAL, file="a", tip="one"),
        linked("late", "two", 4, file="a"),
    ]
    base = Base("a", session="a", event="late")
    own = [begun(base), linked("ours", "head", 2, file="b")]
    session = SessionGraph("x:b", own, before=SessionGraph("x:a", older).up_to(base))

    assert ["one", "two", "late", "ours"] == [
        text for text in visible_texts(session) if text != "head"
    ]


def test_result_that_an_ancestor_got_later_is_not_ours() -> None:
    """Forked while a call was open, it stays open here, however it went there."""
    call = Block("tool_call", "assistant", "ls", {}, "ls", "c")
    result = Block("tool_result", "tool", "files", "files", None, "c")
    older = [
        *OLDER,
        Fact(Node("ask", "two", Is.REPLY, ("c",)), blocks=(call,), line=3, file="a"),
        Fact(Node("got", "ask", 0, (), ("c",)), blocks=(result,), line=4, file="a"),
    ]
    base = Base("a", session="a", event="ask")
    before = SessionGraph("x:a", older).up_to(base)
    session = SessionGraph("x:b", [begun(base), linked("ours", "head", 2, file="b")], before=before)

    assert ["c"] == [block["id"] for block in readout_of(session).messages().open_calls]
