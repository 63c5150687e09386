"""What the records of a session say together: pieces, results told elsewhere, bills of turns."""

from __future__ import annotations

import pytest

from thence.format.fact_assembly import gather_facts, owed_bills
from thence.format.facts import Block, CallStatus, Edge, Fact, Share, TurnBill, merge_statuses
from thence.format.nodes import PREVIOUS, Is, Node
from thence.format.records import JSON, Usage
from thence.format.session_graph import NEVER_BILLED, SessionGraph


def prompt(name: str, text: str, piece: str | None = None, **more: JSON) -> Fact:
    """A text of the model."""
    block = Block("assistant_msg", "assistant", text, {"type": "text", "text": text})
    return Fact(Node(name, PREVIOUS, Is.REPLY), "said", blocks=(block,), piece=piece, **more)


def call(name: str, *, response: str | None = None) -> Fact:
    """A call of a tool."""
    block = Block("tool_call", "assistant", "", {}, "ls", name)
    return Fact(Node(f"ask {name}", PREVIOUS, calls=(name,), response=response), blocks=(block,))


def tells(*statuses: CallStatus) -> Fact:
    """A record that is no event and tells how calls went."""
    return Fact(Node("side"), file="2", told=statuses)


def bill(
    name: str, tokens: int, *, key: str = "", others: int = 0, ts: str | None = None, **more: JSON
) -> Fact:
    """The bill of a turn."""
    block = Block("lifecycle", "system", "turn")
    return Fact(
        Node(name, PREVIOUS),
        ts=ts,
        blocks=(block,),
        usage=Usage(tokens),
        usage_key=key or name,
        turn_bill=TurnBill(others),
        **more,
    )


def share(tokens: int, calls: int, ended: str | None = None, **more: JSON) -> Fact:
    """A record of what another session was billed."""
    entry = Share(more.pop("session", "kid"), Usage(tokens), calls, ended, **more)
    return Fact(Node("shares"), file="9", shares=(entry,))


def texts(facts: list[Fact]) -> list[str]:
    """The texts of all blocks."""
    return [block.payload["text"] for fact in facts for block in fact.blocks]


def left(facts: list[Fact], *others: Fact) -> tuple[list[int], dict[str, int]]:
    """What bills come to, and which of them hold requests that nobody could take off."""
    out, shared = gather_facts(facts, others)
    return [fact.usage.total for fact in out if fact.usage is not None], shared


# -- pieces -----------------------------------------------------------------------------------


def test_pieces_in_a_row_are_one_text() -> None:
    """The first record's id stands for the text, so that it keeps its name while it grows."""
    facts, _ = gather_facts(
        [prompt("a", "Hel", "p"), prompt("b", "lo", "p"), prompt("c", "!", "q")], []
    )

    assert ["Hello", "!"] == texts(facts)
    assert ["a", "c"] == [fact.node.id for fact in facts]
    assert "Hello" == facts[0].blocks[0].summary


@pytest.mark.parametrize(
    "between", [prompt("x", "no piece"), prompt("x", "other", "q"), prompt("x", "p", "p", file="2")]
)
def test_pieces_apart_are_texts_of_their_own(between: Fact) -> None:
    """Nothing is joined across another record or another file."""
    facts, _ = gather_facts([prompt("a", "1", "p"), between, prompt("b", "2", "p")], [])

    assert 3 == len(facts)


def test_pieces_that_are_no_text_stand_beside_it() -> None:
    """A picture between two texts parts them, inside one event."""
    picture = {"type": "image", "source": {}}
    shown = Fact(Node("b"), blocks=(Block("user_msg", "user", payload=picture),), piece="p")
    facts, _ = gather_facts(
        [prompt("a", "1", "p"), shown, prompt("c", "2", "p"), prompt("d", "3", "p")], []
    )

    (fact,) = facts
    assert ["1", None, "23"] == [block.payload.get("text") for block in fact.blocks]


# -- results ----------------------------------------------------------------------------------


def test_a_result_told_elsewhere_stands_after_its_response() -> None:
    """A call without a result gets the one that was told, behind all calls of its response."""
    facts, _ = gather_facts(
        [call("c1", response="r"), call("c2", response="r"), prompt("z", "next")],
        [tells(CallStatus("c1", output="found"), CallStatus("other", output="x"))],
    )

    assert ["ask c1", "ask c2", "told c1", "z"] == [fact.node.id for fact in facts]
    assert ("found", ("c1",)) == (facts[2].blocks[0].payload, facts[2].node.answers)


def test_a_result_in_the_log_is_the_result() -> None:
    """What was told is then not needed."""
    block = Block("tool_result", "tool", "", "real", None, "c1")
    real = Fact(Node("r", PREVIOUS, answers=("c1",)), blocks=(block,))
    facts, _ = gather_facts([call("c1"), real], [tells(CallStatus("c1", output="mirror"))])

    assert ["ask c1", "r"] == [fact.node.id for fact in facts]


def test_a_told_result_answers_its_call() -> None:
    """It is no orphan, and its place on the line is where its call is."""
    session = SessionGraph(
        "x:y", [call("c1"), prompt("z", "next"), tells(CallStatus("c1", output="found"))]
    )

    assert [] == session.graph.open_calls
    assert ["ask c1", "told c1", "z"] == [session.facts[i].node.id for i in session.graph.chain()]


def test_what_several_records_tell_of_a_call_adds_up() -> None:
    """A failure stands; of the rest the first word counts."""
    statuses = merge_statuses(
        [tells(CallStatus("c", False, took_ms=5)), tells(CallStatus("c", True, exit_code=2))]
    )

    assert {"c": CallStatus("c", True, exit_code=2, took_ms=5)} == statuses


# -- bills ------------------------------------------------------------------------------------


def test_a_bill_written_again_counts_once() -> None:
    """The last word on a turn, be it smaller."""
    assert ([40, 7], {}) == left([bill("a", 90, key="k"), bill("b", 40, key="k"), bill("c", 7)])


def test_requests_of_others_are_taken_off() -> None:
    """As many as the bill says it holds, field by field."""
    assert ([70], {}) == left([bill("a", 100, others=2)], share(30, 2))


def test_a_bill_of_its_own_requests_is_left_alone() -> None:
    """What another session spent is not on every bill."""
    assert ([100], {}) == left([bill("a", 100)], share(30, 2))


def test_nothing_falls_below_zero() -> None:
    """A share that is larger than the bill takes it all."""
    assert ([0], {}) == left([bill("a", 10, others=2)], share(30, 2))


def test_requests_that_nobody_knows_stay_and_are_told() -> None:
    """The total is then too high, and says so."""
    assert ([100], {"a": 2}) == left([bill("a", 100, others=2)])
    session = SessionGraph("x:y", [bill("a", 100, others=2)])
    assert ["billed for others"] == [notice.what for notice in session.unbilled]


def test_a_share_belongs_to_the_first_bill_after_it() -> None:
    """What ended before an earlier bill is on no later one."""
    bills = [
        bill("a", 100, ts="2026-01-01T00:00:10Z", line=1),
        bill("b", 100, others=2, ts="2026-01-01T00:00:20Z", line=2),
    ]
    late = share(5, 2, "2026-01-01T00:00:15.123456789Z")

    assert ([100, 95], {}) == left(bills, share(30, 2, "2026-01-01T00:00:05Z"), late)


def test_shares_of_those_who_were_asked_come_first() -> None:
    """Two ended in the turn, the bill holds one: the one that this turn asked for."""
    asked = Fact(
        Node("s", PREVIOUS),
        blocks=(Block("lifecycle", "system"),),
        usage_key="a",
        edges=(Edge("subagent", "mine", "spawned", child=True),),
    )
    shares = share(30, 2), share(50, 2, session="mine")

    assert ([50], {}) == left([asked, bill("a", 100, others=2)], *shares)


def test_models_are_taken_off_their_own_part() -> None:
    """A record that bills two models is one bill."""
    parts = [
        bill("a", 100, others=1, model="big", line=3),
        bill("b", 50, model="small", line=3),
    ]

    assert ([100, 20], {}) == left(parts, share(30, 1, model="small"))


def test_a_cost_shrinks_with_its_bill() -> None:
    """Where both say what they cost."""
    facts, _ = gather_facts([bill("a", 100, others=1, cost_usd=1.0)], [share(30, 1, cost_usd=0.25)])

    assert 0.75 == facts[0].cost_usd


def test_bills_that_never_came_are_missed_once() -> None:
    """Records that wait for a bill say so by its key; one that tells why is enough."""
    waiting = [prompt("a", "1", usage_key="k"), prompt("b", "2", usage_key="k")]
    lost = prompt("c", "3", usage_key="k", unbilled="killed")

    assert ["k"] == owed_bills(waiting) == owed_bills([], owed_bills(waiting))
    assert [] == owed_bills([*waiting, lost]) == owed_bills([*waiting, bill("z", 1, key="k")])
    assert [NEVER_BILLED] == [notice.detail for notice in SessionGraph("x:y", waiting).unbilled]
    assert ["killed"] == [n.detail for n in SessionGraph("x:y", [*waiting, lost]).unbilled]
