"""The graph against decoding: what finding the live chain costs beside reading the bytes.

The session is made up but shaped like real ones: prompts, prose, calls and results of a few
hundred bytes to a few kilobytes, rewinds, parallel results, now and then a compaction.
"""

from __future__ import annotations

import random

from bench.measure import seconds, verdict
from thence.format import codec
from thence.format.graph import Graph
from thence.format.records import Event
from thence.format.transcript import node_of
from thence.testing import Draft

WORDS = [
    "the",
    "window",
    "walks",
    "local",
    "time",
    "so",
    "in",
    "spring",
    "one",
    "hour",
    "is",
    "skipped",
    "and",
    "tests/feed.py",
    "fails",
]


def session(events: int, *, seed: int = 1) -> bytes:
    """Give the bytes of a session of so many events, the same for the same seed."""
    dice = random.Random(seed)
    draft = Draft("bench")
    draft.header()
    rests: list[str] = []
    while len(draft.events) < events:
        rests.append(draft.prompt(_prose(dice, 10, 60)))
        for _ in range(dice.randint(1, 6)):
            names = [f"toolu_{len(draft.events)}_{k}" for k in range(dice.choice((1, 1, 1, 2, 3)))]
            calls = [draft.call(n, "Bash", command=_prose(dice, 5, 30)) for n in names]
            draft.reply(_prose(dice, 5, 40), *calls)
            for name in names:
                draft.result(name, _prose(dice, 20, 400))
        rests.append(draft.reply(_prose(dice, 20, 200)))
        if dice.random() < 0.05:
            draft.rewind(dice.choice(rests[-6:]))
        if dice.random() < 0.001:
            draft.compact(_prose(dice, 100, 200), keep_from=rests[-2])
    return draft.bytes()


def _prose(dice: random.Random, low: int, high: int) -> str:
    return " ".join(dice.choices(WORDS, k=dice.randint(low, high)))


def live(events: list[Event]) -> list[int]:
    """Do what a reader does after decoding: nodes, links, the live chain, a state for each."""
    graph = Graph([node_of(event) for event in events])
    chain = graph.chain()
    assert len(graph.states) == len(events)
    return chain


def main() -> int:
    """Measure, print, and say how many budgets were missed."""
    missed = 0
    data = session(100_000)
    decode = seconds(lambda: codec.decode(data))
    events = codec.decode(data).events
    graph = seconds(lambda: live(events))
    print(
        f"graph: {len(events):,} events, {len(data) / 1e6:.0f} MB; decoding "
        f"{len(data) / decode / 1e6:.0f} MB/s, graph {graph / len(events) * 1e6:.2f} µs an event"
    )
    missed += verdict("graph + chain + states / decoding, 100,000 events", graph / decode, 0.5)

    many = codec.decode(session(1_000_000)).events
    per_event = seconds(lambda: live(many), rounds=3) / len(many)
    missed += verdict("per event, 1,000,000 / 100,000", per_event / (graph / len(events)), 1.5)
    return missed
