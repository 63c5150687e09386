"""What a turn is, and where the last one stands: each state, and what a log alone cannot tell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.format.facts import Block, Fact
from thence.format.graph import Graph, State
from thence.format.nodes import Is, Node
from thence.format.records import Event, Usage
from thence.format.repair import synthetic
from thence.format.transcript import node_of
from thence.format.turn import TurnNow, TurnState, begins_turn, turn_of
from thence.testing import Draft


def begun(text: str = "go") -> Draft:
    """A session with one prompt."""
    draft = Draft()
    draft.header()
    draft.prompt(text)
    return draft


def calling(*calls: str) -> Draft:
    """A session whose model has asked for tools and nothing more."""
    draft = begun()
    draft.reply("on it", *(Draft.call(call, "Bash", command="ls") for call in calls))
    return draft


def crashed() -> Draft:
    """A session that was killed in a call and mended afterwards."""
    draft = calling("a")
    mend(draft, "a")
    return draft


def mend(draft: Draft, call: str) -> None:
    """Answer an orphan as a repair does."""
    made = synthetic(draft.session, call, ts=draft.ts, prev_uuid=draft.tip)
    draft.events.append(made)
    draft.tip = made.uuid


def now(draft: Draft | list[Event], *, torn: bool = False, alive: bool | None = None) -> TurnNow:
    """The turn a session is in."""
    events = draft.events if isinstance(draft, Draft) else draft
    return turn_of(Graph([node_of(event) for event in events]), torn=torn, alive=alive)


def now_of(facts: list[Fact], *, alive: bool | None) -> str:
    """The state of the last turn of a session of these records."""
    return turn_of(Graph([fact.node for fact in facts]), alive=alive, records=facts).state


# -- what a turn is -----------------------------------------------------------------------------


@pytest.mark.parametrize("state", State)
def test_prompt_of_the_own_live_line_begins_a_turn(state: State) -> None:
    """Not one that was copied, discarded, taken back, or asked of a subagent; nor a reply."""
    is_own = state in (State.LIVE, State.ORPHANED)

    assert is_own == begins_turn(Node("a", flags=Is.PROMPT), state)
    assert not begins_turn(Node("a", flags=Is.REPLY), state)


# -- answered --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alive", "state"), [(None, "answered"), (True, "answered"), (False, "done")]
)
def test_complete_reply_that_ends_no_turn_is_an_answer(alive: bool | None, state: str) -> None:
    """Done as soon as it is known that nobody goes on; an open call keeps the turn running."""
    reply, usage = Block("assistant_msg", "assistant", "so"), Usage(output_tokens=1)
    answer = [
        Fact(Node("a", flags=Is.PROMPT), "user", None, (Block("user_msg", "user", "go"),)),
        Fact(Node("b", "a", Is.REPLY), "assistant", None, (reply,)),
    ]
    bill = Fact(Node("c", "b", Is.INTERNAL), "bill", None, (), usage=usage)
    asked = Fact(Node("b", "a", Is.REPLY, ("call",)), "assistant", None, (reply,))

    assert state == now_of([*answer, bill], alive=alive)
    assert now_of(answer, alive=alive) in ("running", "interrupted")
    assert now_of([answer[0], asked, bill], alive=alive) in ("running", "interrupted")


# -- running ----------------------------------------------------------------------------------


def test_prompt_without_answer_is_running() -> None:
    """The model has yet to speak."""
    assert TurnNow(TurnState.RUNNING, since=1) == now(begun())


def test_open_call_is_running() -> None:
    """A tool is at work as far as the log knows; the call is named."""
    assert TurnNow(TurnState.RUNNING, open_calls=("a",), since=2) == now(calling("a"))


def test_answered_call_is_running_until_the_model_speaks() -> None:
    """A result is not the end of a turn."""
    draft = calling("a")
    draft.result("a", "done")

    assert TurnNow(TurnState.RUNNING, since=3) == now(draft)


def test_calls_still_open_are_named() -> None:
    """Of parallel calls only those without a result are open."""
    draft = calling("a", "b", "c")
    draft.result("b", "done")

    assert ("a", "c") == now(draft).open_calls


def test_text_of_a_reply_that_calls_does_not_end_the_turn() -> None:
    """A response written block by block has not ended while it promises a call."""
    draft = begun()
    draft.reply("I will look.", stop_reason="tool_use")

    assert TurnState.RUNNING == now(draft).state


def test_last_word_beside_an_open_call_is_running() -> None:
    """A turn does not rest while a tool may still answer."""
    draft = calling("a")
    draft.reply("meanwhile")

    assert TurnNow(TurnState.RUNNING, open_calls=("a",), since=3) == now(draft)


# -- done -------------------------------------------------------------------------------------


def test_last_word_of_the_model_is_done() -> None:
    """It said what it had to say and called nothing."""
    draft = calling("a")
    draft.result("a", "done")
    draft.reply("finished")

    assert TurnNow(TurnState.DONE, since=4) == now(draft)


@pytest.mark.parametrize("events", [0, 1])
def test_session_in_which_nobody_spoke_is_done(events: int) -> None:
    """No bytes and a header alone are sessions at rest."""
    assert TurnNow(TurnState.DONE) == now(begun().events[:events])


def test_books_after_the_last_word_change_nothing() -> None:
    """Totals at the end of a turn, a terminator and state are no part of it."""
    draft = begun()
    draft.reply("finished")
    draft.add("cwd", {"cwd": "/elsewhere"})
    draft.add("turn", {"state": "done"}, moves=False)
    draft.close()

    assert TurnNow(TurnState.DONE, since=2) == now(draft)


def test_calls_of_a_dead_branch_are_not_open() -> None:
    """What was rewound does not keep the session busy."""
    draft = begun()
    rest = draft.reply("finished")
    draft.prompt("more")
    draft.reply(Draft.call("a", "Bash", command="ls"))
    draft.rewind(rest)

    assert TurnNow(TurnState.DONE, since=2) == now(draft)


def test_subagents_do_not_decide() -> None:
    """A subagent's open call is not the session's."""
    nodes = [
        Node("a", None, Is.PROMPT),
        Node("b", "a", Is.REPLY | Is.ENDS),
        Node("s", None, Is.SIDE | Is.PROMPT),
        Node("t", "s", Is.SIDE | Is.REPLY, calls=("x",)),
    ]

    assert TurnNow(TurnState.DONE, since=1) == turn_of(Graph(nodes))


# -- waiting ----------------------------------------------------------------------------------


@pytest.mark.parametrize("moves", [True, False])
def test_asking_is_waiting(moves: bool) -> None:
    """The agent said that it waits, on the line or beside it."""
    draft = calling("a")
    draft.add("waiting", {"waiting_for": "approval", "tool_use_id": "a"}, moves=moves)

    assert TurnNow(TurnState.WAITING, open_calls=("a",), since=2) == now(draft)


def test_answer_ends_the_waiting() -> None:
    """What was said after the question decides."""
    draft = calling("a")
    draft.add("waiting", {"tool_use_id": "a"}, moves=False)
    draft.result("a", "approved and run")

    assert TurnState.RUNNING == now(draft).state


# -- interrupted ------------------------------------------------------------------------------


def test_interruption_is_interrupted_until_the_next_prompt() -> None:
    """The log says so itself."""
    draft = calling("a")
    draft.add("interrupted", {})
    cut = now(draft)
    draft.prompt("try again")

    assert TurnNow(TurnState.INTERRUPTED, open_calls=("a",), since=3) == cut
    assert TurnState.RUNNING == now(draft).state


@pytest.mark.parametrize("asks", [True, False])
def test_close_in_the_middle_of_a_turn_interrupts_it(asks: bool) -> None:
    """A writer that said good-bye runs nothing and waits for nobody."""
    draft = calling("a")
    if asks:
        draft.add("waiting", {"tool_use_id": "a"}, moves=False)
    draft.close()

    assert TurnNow(TurnState.INTERRUPTED, open_calls=("a",), since=2) == now(draft)


def test_session_that_goes_on_after_its_close_is_running_again() -> None:
    """An old terminator does not cut the next turn short."""
    draft = begun()
    draft.close()
    cut = now(draft)
    draft.prompt("go on")

    assert (TurnState.INTERRUPTED, TurnState.RUNNING) == (cut.state, now(draft).state)


def test_synthetic_result_after_a_crash_is_interrupted() -> None:
    """A repair answered for a writer that was gone; no call is open any more."""
    assert TurnNow(TurnState.INTERRUPTED, since=3) == now(crashed())


def test_synthetic_result_beside_a_real_one_is_interrupted() -> None:
    """One of two parallel calls had come back when the process died."""
    draft = calling("a", "b")
    draft.result("a", "done")
    mend(draft, "b")

    assert TurnNow(TurnState.INTERRUPTED, since=4) == now(draft)


def test_mended_session_with_a_living_writer_is_running() -> None:
    """Whoever resumed it is about to ask the model."""
    assert TurnState.RUNNING == now(crashed(), alive=True).state


def test_mended_session_goes_on_to_its_rest() -> None:
    """Once the model has spoken again the crash is history."""
    draft = crashed()
    draft.reply("the call was lost; nothing more to do")

    assert TurnState.DONE == now(draft).state


# -- what the log cannot tell -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("draft", "unknown", "dead"),
    [
        (begun(), "running", "interrupted"),
        (calling("a"), "running", "interrupted"),
        (crashed(), "interrupted", "interrupted"),
    ],
    ids=["prompt", "call", "mended"],
)
def test_open_turn_of_a_dead_writer_is_interrupted(draft: Draft, unknown: str, dead: str) -> None:
    """Without that knowledge an open turn counts as running."""
    states = [now(draft, alive=alive).state for alive in (None, True, False)]

    assert [unknown, "running", dead] == states


def test_waiting_of_a_dead_writer_is_interrupted() -> None:
    """Nobody is there to hear the answer."""
    draft = calling("a")
    draft.add("waiting", {"tool_use_id": "a"}, moves=False)
    states = [now(draft, alive=alive).state for alive in (None, True, False)]

    assert ["waiting", "waiting", "interrupted"] == states


@pytest.mark.parametrize("alive", [None, True, False])
def test_turn_that_is_done_stays_done(alive: bool | None) -> None:
    """How the process ended does not matter after its last word."""
    draft = begun()
    draft.reply("finished")

    assert TurnState.DONE == now(draft, alive=alive).state


@pytest.mark.parametrize("draft", [Draft(), begun(), calling("a"), crashed()])
@pytest.mark.parametrize("alive", [None, True, False])
def test_torn_line_is_a_flag_beside_the_state(draft: Draft, alive: bool | None) -> None:
    """It never replaces what the whole lines say."""
    intact, torn = now(draft, alive=alive), now(draft, torn=True, alive=alive)

    assert (intact.state, intact.open_calls, intact.since) == (
        torn.state,
        torn.open_calls,
        torn.since,
    )
    assert (False, True) == (intact.torn, torn.torn)


IDS = st.sampled_from("abcdef")
NODES = st.lists(
    st.builds(
        Node,
        IDS,
        st.none() | IDS,
        st.integers(0, 4095),
        st.lists(IDS, max_size=2).map(tuple),
        st.lists(IDS, max_size=2).map(tuple),
    ),
    max_size=8,
)


@given(NODES, st.booleans(), st.none() | st.booleans())
def test_every_graph_has_a_turn(nodes: list[Node], torn: bool, alive: bool | None) -> None:
    """No log makes the question raise, and a dead writer never runs or waits."""
    turn = turn_of(Graph(nodes), torn=torn, alive=alive)

    assert torn == turn.torn
    assert alive is not False or turn.state in (TurnState.DONE, TurnState.INTERRUPTED)


# -- other people's logs ----------------------------------------------------------------------


def foreign(*nodes: Node) -> TurnNow:
    """The turn that a line of plain nodes is in."""
    return turn_of(Graph(nodes))


def test_calls_an_earlier_turn_left_open_are_history() -> None:
    """A turn that came to its rest is done, whatever an interrupted one before it left."""
    asked = Node("a", None, Is.PROMPT)
    called = Node("b", "a", Is.REPLY, calls=("c1",))
    cut = Node("c", "b", Is.INTERRUPTS)
    again = Node("d", "c", Is.PROMPT)
    rest = Node("e", "d", Is.REPLY | Is.ENDS)

    assert (TurnState.INTERRUPTED, ("c1",)) == (
        foreign(asked, called, cut).state,
        foreign(asked, called, cut).open_calls,
    )
    assert TurnNow(TurnState.DONE, since=4) == foreign(asked, called, cut, again, rest)


def test_what_was_waited_for_may_come() -> None:
    """The last word on waiting counts."""
    asked = Node("a", None, Is.PROMPT)
    waits = Node("b", None, Is.INTERNAL | Is.WAITS)
    goes_on = Node("c", None, Is.INTERNAL | Is.GOES_ON)

    assert TurnState.WAITING == foreign(asked, waits).state
    assert TurnState.RUNNING == foreign(asked, waits, goes_on).state
    assert TurnState.WAITING == foreign(asked, goes_on, waits).state


def test_a_call_that_was_given_up_is_history_once_a_later_prompt_was_answered() -> None:
    """Some clients write nothing about a killed call when they are resumed."""
    draft = calling("a")
    draft.prompt("And now?")
    assert (TurnState.RUNNING, ("a",)) == (now(draft).state, now(draft).open_calls)

    draft.reply("All done.")
    assert (TurnState.DONE, ()) == (now(draft).state, now(draft).open_calls)
