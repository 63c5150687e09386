"""Copies of one session in several places: the union of what they hold."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from thence.format.copies import name_in, place_of
from thence.format.facts import Block, Fact, line_name
from thence.format.nodes import PREVIOUS, Is, Node
from thence.format.records import Usage
from thence.format.session_graph import SessionGraph
from thence.memory.readouts import readout_of

UID = "codex:s"
B, C = "//0000000b", "//0000000c"


def log(words: str, place: str = "", generation: int = 0) -> list[Fact]:
    """A log of one-letter answers without ids; later letters were written later."""
    return [
        Fact(
            Node(line_name("log", word.encode()), PREVIOUS, Is.REPLY),
            "message",
            f"2026-01-01T00:00:{ord(word) - 97:02}.000Z",
            (Block("assistant_msg", "assistant", word, {"type": "text", "text": word}),),
            file=f"log{place}",
            generation=generation,
            line=line,
        )
        for line, word in enumerate(words, 1)
    ]


def with_totals(words: str, totals: list[int], place: str = "", generation: int = 0) -> list[Fact]:
    """A log whose records say how many tokens the session took so far."""
    facts = log(words, place, generation)
    pairs = zip(facts, totals, strict=True)
    return [msgspec.structs.replace(f, running=Usage(output_tokens=n)) for f, n in pairs]


def summaries(session: SessionGraph, *, rewritten: bool = False) -> str:
    """The answers, in the order in which they are read."""
    return "".join(e.summary for e in session.events if (e.why == "rewritten") is rewritten)


@pytest.mark.parametrize(
    ("file", "name", "place"),
    [
        ("main", "main", ""),
        ("main//5f0c11d2", "main", "//5f0c11d2"),
        ("side/run/a1//5f0c11d2", "side/run/a1", "//5f0c11d2"),
        ("side//a1", "side//a1", ""),
        ("", "", ""),
    ],
)
def test_a_log_has_one_name_in_all_places(file: str, name: str, place: str) -> None:
    """Only an ending of eight digits says where it lies."""
    assert (name, place) == (name_in(file), place_of(file))


def test_what_two_places_hold_is_one() -> None:
    """Their ids are those of a session that lies in one place."""
    alone = SessionGraph(UID, log("abc"))
    session = SessionGraph(UID, [*log("abc"), *log("abc", B)])

    assert [e.event_id for e in alone.events] == [e.event_id for e in session.events]
    assert readout_of(alone).messages().messages == readout_of(session).messages().messages


def test_lines_that_are_there_twice_stay_two() -> None:
    """In the place that has both; another that has one of them adds none."""
    session = SessionGraph(UID, [*log("ab"), *log("aba", B)])

    assert "aab" == "".join(sorted(summaries(session)))
    assert len(session.events) == len({event.event_id for event in session.events})


def test_a_place_that_went_on_has_the_last_word() -> None:
    """Whichever place that is; what each place adds follows what stands before it there."""
    logs = ["abe", "abcd"]
    sessions = [
        SessionGraph(UID, [*log(first), *log(second, B)])
        for first, second in itertools.permutations(logs)
    ]

    assert ["abcde", "abcde"] == [summaries(session) for session in sessions]
    for session in sessions:
        chain = session.graph.chain()
        assert ["a", "b", "e"] == [session.facts[at].blocks[0].summary for at in chain]


def test_only_what_no_place_holds_is_rewritten() -> None:
    """What a copy still has is live; what two places had is there once."""
    before = [*log("abc"), *log("abc", B), *log("abd", C)]
    session = SessionGraph(UID, [*before, *log("a", generation=1), *log("ab", B, generation=1)])

    assert ("abd", "c") == (summaries(session), summaries(session, rewritten=True))


def test_totals_count_by_what_stands_before_them_in_their_place() -> None:
    """Each record is billed what its own log says that it added."""
    places = [*with_totals("abc", [5, 10, 15]), *with_totals("abd", [5, 10, 17], B)]
    cut = [*with_totals("abc", [5, 10, 15]), *with_totals("a", [5], generation=1)]

    assert 22 == SessionGraph(UID, places).spent.own
    assert 15 == SessionGraph(UID, cut).spent.own
