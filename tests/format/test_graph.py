"""The graph against a model in memory, and each oddity of real logs by name."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.format.histories import VERBS, History, Script, scripts
from thence.format import codec
from thence.format.graph import Graph, State
from thence.format.nodes import Is, Node, Span
from thence.format.records import Event
from thence.format.repair import mend, problems
from thence.format.transcript import Transcript, node_of


def graph_of(events: list[Event]) -> Graph:
    """Link the light nodes of events."""
    return Graph([node_of(event) for event in events])


def ids(graph: Graph, places: list[int]) -> list[str]:
    """Name the events at these places."""
    return [graph.nodes[i].id for i in places]


def chain(*parts: str, flags: int = Is.PROMPT) -> list[Node]:
    """Nodes a <- b <- c from the words given."""
    return [Node(part, parts[k - 1] if k else None, flags) for k, part in enumerate(parts)]


def states(graph: Graph) -> dict[str, str]:
    """Return the state of each event by its id."""
    return {node.id: state.value for node, state in zip(graph.nodes, graph.states, strict=True)}


# -- against the model ----------------------------------------------------------------------


@given(scripts)
def test_live_chain_is_what_the_model_in_memory_saw(script: Script) -> None:
    """Whatever was said, rewound, compacted and killed: the same history goes to the model."""
    history = History(script)

    transcript = Transcript.read(history.draft.bytes())

    seen = [e.uuid for e in transcript.chain() if e.uuid not in history.internal]
    assert set(history.seen) - history.internal == set(seen)
    assert len(seen) == len(set(seen))
    assert mend(history.messages()).messages == transcript.messages().messages


@given(scripts)
def test_chain_keeps_the_order_things_were_said_in(script: Script) -> None:
    """Without parallel results the chain is the model's list, event by event."""
    history = History(script, verbs=tuple(verb for verb in VERBS if verb != "parallel"))

    graph = graph_of(history.events)

    expected = [u for u in history.seen if u not in history.internal]
    assert expected == [u for u in ids(graph, graph.chain()) if u not in history.internal]


@given(scripts)
def test_every_event_ends_in_exactly_the_state_the_model_gives_it(script: Script) -> None:
    """No event is lost and none has two states."""
    history = History(script)

    graph = graph_of(history.events)

    expected = {event.uuid: history.state_of(event.uuid) for event in history.events}
    assert expected == states(graph)
    assert len(history.events) == len(graph.states)


@given(scripts, st.randoms(use_true_random=False))
def test_shuffling_dead_branches_changes_nothing(script: Script, dice: random.Random) -> None:
    """Where in the file a dead branch stands has no say in what is live."""
    verbs = ("prompt", "reply", "calls", "parallel", "branch", "kill_answer")
    history = History(script, verbs=verbs)
    before = graph_of(history.events)
    dead = [e for e in history.events if states(before)[e.uuid] == "dead"]
    remaining = [e for e in history.events if states(before)[e.uuid] != "dead"]
    dice.shuffle(dead)

    mixed = list(remaining)
    for event in dead:
        mixed.insert(dice.randrange(len(mixed)), event)  # never behind the last live one
    after = graph_of(mixed)

    assert ids(before, before.chain()) == ids(after, after.chain())
    assert states(before) == states(after)


@given(scripts, st.integers(0, 10**6))
def test_any_byte_prefix_loses_at_most_its_last_event(script: Script, cut: int) -> None:
    """A kill at any byte costs the torn event and nothing before it."""
    history = History(script)
    data = history.draft.bytes()
    cut %= len(data) + 1
    complete_lines = data[:cut].count(b"\n")

    transcript = Transcript.read(data[:cut])

    read = len(transcript.events)
    assert history.events[:read] == transcript.events
    assert complete_lines <= read <= complete_lines + 1
    assert (cut > 0 and data[cut - 1 : cut] != b"\n" and read == complete_lines) == transcript.torn
    assert [] == problems(transcript.messages().messages)


@given(scripts, st.integers(0, 50))
def test_chain_to_any_event_ends_there(script: Script, pick: int) -> None:
    """Every event has a chain: it starts at a root or a summary and ends in that event."""
    history = History(script)
    graph = graph_of(history.events)
    place = pick % len(graph.nodes)

    path = graph.chain(place, beside=False)

    assert place == path[-1]
    assert len(path) == len(set(path))


@given(scripts)
def test_a_boundary_holds_back_nothing_from_who_asks(script: Script) -> None:
    """Through any number of compactions the original events stay on the line."""
    history = History(script)

    graph = graph_of(history.events)

    line = ids(graph, graph.chain(boundaries=False))
    assert set(history.line) - {history.events[0].uuid} <= set(line) | history.internal


nodes = st.lists(
    st.builds(
        Node,
        st.sampled_from("abcdefgh"),
        st.none() | st.sampled_from("abcdefghz"),
        st.sampled_from([0, 1, 2, 8, 16, 32, 64, 128, 128 | 1, 256]),
        st.lists(st.sampled_from("xyz"), max_size=2).map(tuple),
        st.lists(st.sampled_from("xyz"), max_size=2).map(tuple),
        st.none() | st.sampled_from("rs"),
        st.none() | st.sampled_from("abcdefghz"),
        st.none() | st.builds(Span, *[st.sampled_from("abcdefghz")] * 3),
        st.none() | st.sampled_from("abcz"),
    ),
    max_size=12,
)


@given(nodes)
def test_no_links_whatever_make_it_raise_or_loop(junk: list[Node]) -> None:
    """Cycles, doubles, boundaries onto themselves: an answer, always, with one state each."""
    graph = Graph(junk)

    for place in range(len(junk)):
        path = graph.chain(place)
        assert len(path) == len(set(path))
    assert len(junk) == len(graph.states)
    off = {i for branch in graph.branches for i in branch.events}
    gone = (State.DEAD, State.ROLLED_BACK)
    assert {i for i, s in enumerate(graph.states) if s in gone} == off
    assert set(graph.tips) <= set(range(len(junk)))
    assert graph.end is None or graph.states[graph.end] in (
        State.LIVE,
        State.ORPHANED,
        State.REPLAYED,
        State.INTERNAL,  # a boundary that holds
    )


# -- oddities by name -----------------------------------------------------------------------


def test_dangling_parent_is_bridged_and_marked() -> None:
    """A lost event costs itself: the chain goes on from the record before."""
    graph = Graph([*chain("a", "b"), Node("d", "lost", 1), Node("e", "d", 1)])

    assert ["a", "b", "d", "e"] == ids(graph, graph.chain())
    assert [("bridged", "lost")] == [(b.what, b.wanted) for b in graph.breaks]


def test_first_event_with_a_lost_parent_is_a_root() -> None:
    """Nothing to bridge to: it starts the chain, and is marked."""
    graph = Graph([Node("c", "lost", 1), Node("d", "c", 1)])

    assert ["c", "d"] == ids(graph, graph.chain())
    assert [0] == graph.roots


def test_side_events_are_bridged_to_their_own_channel() -> None:
    """A subagent's broken link never reaches into the main line."""
    graph = Graph([Node("a", None, 1), Node("s", None, Is.SIDE), Node("t", "gone", Is.SIDE)])

    assert 1 == graph.parents[2]


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_cycles_are_cut_at_their_first_event(size: int) -> None:
    """A ring becomes a chain that starts with its first-written event."""
    ring = [Node(f"n{k}", f"n{(k + 1) % size}", 1) for k in range(size)]

    graph = Graph(ring)

    assert size == len(graph.chain(1 % size))
    assert 1 == len(graph.breaks)
    assert all(graph.chain(k)[-1] == k for k in range(0, size, 97))


def test_repeated_ids_are_copies_of_the_first() -> None:
    """A record written twice is one event and one replayed copy."""
    graph = Graph([*chain("a", "b", "c"), Node("b", "a", 1)])

    assert ["live", "live", "live", "replayed"] == [s.value for s in graph.states]
    assert ["a", "b", "c"] == ids(graph, graph.chain())


def test_of_doubled_ids_the_one_that_knows_its_parent_is_kept() -> None:
    """One client once doubled an event, one copy with its link lost."""
    graph = Graph([Node("a", None, 1), Node("b", None, 1), Node("b", "a", 1), Node("c", "b", 1)])

    assert [State.REPLAYED, State.LIVE] == graph.states[1:3]
    assert ["a", "b", "c"] == ids(graph, graph.chain())


def test_several_roots_live_side_by_side() -> None:
    """The tree of the last-written event is live, the other is kept and dead."""
    graph = Graph([*chain("a", "b"), *chain("x", "y")])

    assert ["x", "y"] == ids(graph, graph.chain())
    assert {"a": "dead", "b": "dead", "x": "live", "y": "live"} == states(graph)


def fan(*order: str) -> list[Node]:
    """Three calls of one response, chained; results hang off their own calls, as in the log."""
    out = [Node("p", None, Is.PROMPT)]
    for k, above in enumerate(("p", "a1", "a2"), 1):
        out.append(Node(f"a{k}", above, Is.REPLY, (f"c{k}",), response="m"))
    return out + [Node(f"r{k}", f"a{k}", 0, answers=(f"c{k}",)) for k in order]


@pytest.mark.parametrize("order", ["123", "321", "213", "132"])
def test_parallel_results_off_their_own_calls_are_live(order: str) -> None:
    """Results that end no line are no dead branches, in whatever order they came."""
    graph = Graph(fan(*order))

    assert {"live"} == set(states(graph).values())
    assert {"p", "a1", "a2", "a3", "r1", "r2", "r3"} == set(ids(graph, graph.chain()))
    assert [] == graph.branches


@pytest.mark.parametrize("last", ["r1", "r2", "r3"])
def test_conversation_goes_on_from_any_of_the_parallel_results(last: str) -> None:
    """The next event hangs off one result; the other calls and results stay live."""
    graph = Graph([*fan("3", "1", "2"), Node("n", last, Is.REPLY)])

    assert {"live"} == set(states(graph).values())
    assert "n" == ids(graph, graph.chain())[-1]


def test_a_late_parallel_result_does_not_pull_the_tip_back() -> None:
    """The answer went on before the slowest tool was through."""
    graph = Graph([*fan("3"), Node("n", "r3", Is.REPLY), Node("r1", "a1", 0, answers=("c1",))])

    assert "n" == graph.nodes[graph.end or 0].id
    assert {"r1"} <= set(ids(graph, graph.chain()))


def test_an_unanswered_parallel_call_is_orphaned_not_dead() -> None:
    """Killed while one of three tools ran: two results count, one call is open."""
    graph = Graph(fan("1", "2"))

    assert "orphaned" == states(graph)["a3"]
    assert {"live"} == {states(graph)[k] for k in ("a1", "a2", "r1", "r2")}
    assert [("a3", "c3")] == [(graph.nodes[i].id, call) for i, call in graph.open_calls]


def test_tip_is_the_last_complete_event() -> None:
    """New input attaches before the open call when it is left behind."""
    graph = Graph([*chain("a", "b"), Node("call", "b", Is.REPLY, ("c",))])

    assert (2, 1) == (graph.end, graph.tip)


def test_results_are_looked_for_everywhere() -> None:
    """A result on another branch, or before its call, still answers it."""
    graph = Graph(
        [
            Node("p", None, 1),
            Node("early", "p", 0, answers=("c",)),
            Node("call", "p", Is.REPLY, ("c",)),
        ]
    )

    assert [] == graph.open_calls
    assert "live" == states(graph)["call"]


def test_the_last_tip_event_beats_a_newer_branch() -> None:
    """Moved back, then somebody with a stale view wrote to the old line: it stays dead."""
    log = [*chain("a", "b", "c"), Node("t", "a", Is.INTERNAL, tip="a"), Node("stale", "c", 1)]

    assert ["a"] == ids(Graph(log), Graph(log).chain())

    log.append(Node("d", "a", 1))

    assert ["a", "d"] == ids(Graph(log), Graph(log).chain())
    assert "dead" == states(Graph(log))["stale"]


def test_a_tip_event_that_points_nowhere_is_no_tip_event() -> None:
    """Then the last-written line is live."""
    graph = Graph([*chain("a", "b"), Node("t", "b", Is.INTERNAL, tip="gone")])

    assert ["a", "b"] == ids(graph, graph.chain())


def test_internal_events_inside_a_chain_are_walked_through() -> None:
    """They link, they are never the tip, and they are told apart."""
    graph = Graph([Node("a", None, 1), Node("i", "a", Is.INTERNAL), Node("b", "i", 1)])

    assert ["a", "i", "b"] == ids(graph, graph.chain())
    assert {"a": "live", "i": "internal", "b": "live"} == states(graph)


# -- boundaries -----------------------------------------------------------------------------


def ours(head: str | None = None, tail: str | None = None) -> list[Node]:
    """A b c | summary, boundary | d, in our own form."""
    return [
        *chain("a", "b", "c"),
        Node("s", "c", Is.SUMMARY),
        Node("B", "s", Is.INTERNAL, span=Span("s", head, tail)),
        Node("d", "B", 1),
    ]


def claude(head: str | None = None, tail: str | None = None, *, logical: str = "c") -> list[Node]:
    """A b c | boundary (a root), summary under it | d, in Claude Code's form."""
    span = Span("s", head, tail) if head else None
    return [
        *chain("a", "b", "c"),
        Node("B", None, 0, logical=logical, span=span),
        Node("s", "B", Is.SUMMARY | Is.PROMPT),
        Node("d", "s", 1),
    ]


def shown(log: list[Node]) -> str:
    """Spell the live chain, the boundary left out."""
    graph = Graph(log)
    return "".join(i for i in ids(graph, graph.chain()) if i != "B")


@pytest.mark.parametrize("form", [ours, claude])
def test_a_boundary_leaves_summary_kept_events_and_what_follows(form: object) -> None:
    """Head to tail come after the summary, the rest of the past is summed up."""
    assert callable(form)

    assert "sbcd" == shown(form("b", "c"))
    assert "scd" == shown(form("c", "c"))
    assert {"live"} == {states(Graph(form("b", "c")))[k] for k in "abcsd"}


def test_a_boundary_that_keeps_nothing_leaves_the_summary() -> None:
    """Ours says so with empty fields, the other form with none."""
    assert "sd" == shown(ours(None, None))
    assert "sd" == shown(claude())


@pytest.mark.parametrize(
    "ends", [("gone", "c"), ("b", "gone"), ("c", "b"), ("s", "s"), ("b", "d"), ("B", "B")]
)
def test_a_boundary_that_points_nowhere_is_not_applied(ends: tuple[str, str]) -> None:
    """Swapped, missing or overlapping ends: the chain before it, and a mark."""
    graph = Graph(ours(*ends))

    assert ["a", "b", "c", "B", "d"] == ids(graph, graph.chain())
    assert "boundary" in {b.what for b in graph.breaks}


def test_a_summary_without_its_boundary_is_half_a_compaction() -> None:
    """The commit record is missing: the chain before it holds."""
    assert "abc" == shown(ours("b", "c")[:4])
    assert "abcd" == shown([*ours("b", "c")[:4], Node("d", "c", 1)])


def test_a_boundary_without_its_summary_is_half_a_compaction() -> None:
    """The other form writes the boundary first: its logical parent is followed."""
    log = claude("b", "c")

    assert "abcd" == shown([*log[:4], Node("d", "B", 1)])


def test_a_boundary_may_go_on_from_nothing() -> None:
    """The past it names was deleted: what is there is shown, and a mark."""
    graph = Graph(claude(logical="gone")[3:])

    assert "sd" == shown(claude(logical="gone")[3:])
    assert ["boundary"] == [b.what for b in graph.breaks]


def test_boundaries_nest() -> None:
    """The second compaction keeps events that the first had kept."""
    log = [
        *ours("b", "c"),
        Node("S", "d", Is.SUMMARY),
        Node("C", "S", Is.INTERNAL, span=Span("S", "c", "d")),
        Node("e", "C", 1),
    ]
    graph = Graph(log)

    assert "Scde" == "".join(i for i in ids(graph, graph.chain()) if i not in "BC")
    assert "sbcd" == "".join(i for i in ids(graph, graph.chain(5)) if i != "B")
    assert log.index(log[-2]) == graph.boundary()


def test_a_fork_whose_links_were_patched_when_it_was_copied_reads_the_same() -> None:
    """The copy carries the boundary and, besides, parents that already follow it."""
    log = [
        Node("B", None, 0, logical="gone", span=Span("s", "b", "c")),
        Node("s", "B", Is.SUMMARY | Is.PROMPT),
        Node("b", "s", 1),
        Node("c", "b", 1),
        Node("d", "c", 1),
    ]

    assert "sbcd" == shown(log)


def test_chain_to_an_event_before_a_boundary_is_not_patched() -> None:
    """Rewinding behind a compaction brings the originals back."""
    graph = Graph(ours("b", "c"))

    assert ["a", "b", "c"] == ids(graph, graph.chain(2))


def test_five_hundred_compactions_are_read_in_linear_work() -> None:
    """Each boundary names the last event before it."""
    log = chain("a", "b")
    for k in range(500):
        log.append(Node(f"B{k}", None, 0, logical=log[-1].id))
        log.append(Node(f"s{k}", f"B{k}", Is.SUMMARY | Is.PROMPT))

    graph = Graph(log)

    assert ["B499", "s499"] == ids(graph, graph.chain())
    assert len(log) == len(graph.chain(boundaries=False))


def test_branches_name_where_they_parted() -> None:
    """Two dead ends at one event are two branches."""
    graph = Graph([*chain("a", "x", "y"), Node("z", "a", 1), Node("b", "a", 1)])

    branches = [(ids(graph, [b.at or 0]), ids(graph, list(b.events))) for b in graph.branches]
    assert [(["a"], ["x", "y"]), (["a"], ["z"])] == branches
    assert {0} == {branch.at for branch in graph.branches}


def test_internal_records_and_compactions_do_not_cut_a_branch() -> None:
    """A branch holds all that was said on it; a late result does not end it."""
    log = [
        *chain("a", "x"),
        Node("note", "x", Is.INTERNAL),
        Node("call", "note", Is.REPLY, calls=("c",)),
        Node("B", None, Is.INTERNAL, logical="call"),
        Node("s", "B", Is.SUMMARY | Is.PROMPT),
        Node("y", "s", Is.REPLY),
        Node("late", "call", 0, answers=("c",)),
        Node("end", "y", Is.INTERNAL),
        Node("b", "a", Is.PROMPT),
    ]
    graph = Graph(log)

    assert [["x", "call", "s", "y", "late"]] == [ids(graph, list(b.events)) for b in graph.branches]
    assert [0] == list(graph.parting_events(graph.branches, {0, 9}))
    assert {"y"} == {log[graph.end_from(i)].id for i in (1, 2, 3, 4, 5, 6, 7)}
    assert ["b", "b"] == [log[graph.end_from(i)].id for i in (0, 9)]


# -- size -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_hundred_thousand_deep_needs_no_recursion() -> None:
    """Depth costs memory, never the stack."""
    log = [Node(str(k), str(k - 1) if k else None, 1) for k in range(100_000)]

    graph = Graph(log)

    assert 100_000 == len(graph.chain())
    assert {State.LIVE} == set(graph.states)


@pytest.mark.slow
def test_twenty_thousand_branches_at_one_event() -> None:
    """A star is one branch point with all its ends but one dead."""
    log = [Node("hub", None, 1), *(Node(f"{k}", "hub", 1) for k in range(20_000))]

    graph = Graph(log)

    assert ["hub", "19999"] == ids(graph, graph.chain())
    assert 19_999 == len(graph.branches)
    assert {0} == {branch.at for branch in graph.branches}


def test_bytes_and_nodes_agree() -> None:
    """Encoding a history and reading it back gives the same graph."""
    history = History([("prompt", 0, 0), ("parallel", 2, 5), ("compact", 1, 1), ("reply", 0, 0)])

    read = codec.decode(history.draft.bytes()).events

    assert graph_of(history.events).states == graph_of(read).states


@pytest.mark.parametrize(("goes_on", "expected"), [(True, State.DEAD), (False, State.ORPHANED)])
def test_a_call_left_open_beside_the_line_is_dead_once_the_line_goes_on(
    goes_on: bool, expected: State
) -> None:
    """A client that drops an orphan goes on from the block before it, in the same response."""
    nodes = [
        Node("p", None, Is.PROMPT),
        Node("text", "p", Is.REPLY, response="m"),
        Node("open", "text", Is.REPLY, ("c2",), response="m"),
        Node("next", "text", Is.PROMPT),
    ]
    graph = Graph(nodes if goes_on else nodes[:3])

    assert expected == graph.states[2]


def test_a_tip_that_trails_is_followed_to_what_was_written_before_it() -> None:
    """Some writers note the tip late: what goes on from there is not left behind by the note."""
    line = [Node("p", None, Is.PROMPT), Node("a", "p", Is.REPLY), Node("b", "a", Is.PROMPT)]

    late = Graph([*line, Node("t", None, Is.INTERNAL | Is.TRAILS, tip="a")])
    moved = Graph([*line, Node("t", None, Is.INTERNAL, tip="a")])

    assert [2, 1] == [late.end, moved.end]


def test_a_boundary_may_keep_an_older_summary_and_what_that_had_kept() -> None:
    """The kept run begins with a summary that was written after the events behind it."""
    nodes = [
        Node("u", None, Is.PROMPT),
        Node("s", "u", Is.SUMMARY),
        Node("b", "s", Is.INTERNAL, span=Span("s", "u", "u")),
        Node("S", "b", Is.SUMMARY),
        Node("B", "S", Is.INTERNAL, span=Span("S", "s", "u")),
        Node("T", "B", Is.SUMMARY),
        Node("C", "T", Is.INTERNAL, span=Span("T", "S", "u")),
        Node("v", "C", Is.PROMPT),
    ]
    graph = Graph(nodes)

    assert ["T", "S", "s", "u", "C", "v"] == [nodes[i].id for i in graph.chain()]
    assert [] == graph.breaks


def test_a_boundary_that_names_a_summary_and_a_stranger_is_not_applied() -> None:
    """Only what the older boundary had kept can stand behind its summary."""
    nodes = [
        Node("x", None, Is.PROMPT),
        Node("u", "x", Is.PROMPT),
        Node("s", "u", Is.SUMMARY),
        Node("b", "s", Is.INTERNAL, span=Span("s", "u", "u")),
        Node("S", "b", Is.SUMMARY),
        Node("B", "S", Is.INTERNAL, span=Span("S", "s", "x")),
    ]

    assert ["boundary"] == [b.what for b in Graph(nodes).breaks]


def test_a_cycle_at_the_end_does_not_win_over_what_was_said_before() -> None:
    """It is told, and follows the sound conversation instead of taking its place."""
    ring = [Node("x", "y", Is.PROMPT), Node("y", "x", Is.PROMPT)]
    graph = Graph([*chain("a", "b", "c"), *ring])

    assert ["a", "b", "c", "x", "y"] == ids(graph, graph.chain())
    assert ["cycle"] == [problem.what for problem in graph.breaks]


def test_a_cycle_that_is_led_into_from_before_is_still_cut() -> None:
    """Bridging it to what names it would close it again."""
    graph = Graph([Node("p", "y", 1), Node("x", "y", 1), Node("y", "x", 1)])

    assert ["x", "y", "p"] == ids(graph, graph.chain(0))
