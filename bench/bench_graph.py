"""The cost of building the graph and the live chain, compared with decoding the bytes.

The session is synthetic but shaped like real ones: prompts, prose, calls and results of a few
hundred bytes to a few kilobytes, rewinds, parallel results, and a few compactions.
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


def make_session(events: int, *, seed: int = 1) -> bytes:
    """Return the bytes of a session with so many events, the same for the same seed."""
    rng = random.Random(seed)
    draft = Draft("bench")
    draft.header()
    turn_ends: list[str] = []
    while len(draft.events) < events:
        turn_ends.append(draft.prompt(_prose(rng, 10, 60)))
        for _ in range(rng.randint(1, 6)):
            names = [f"toolu_{len(draft.events)}_{k}" for k in range(rng.choice((1, 1, 1, 2, 3)))]
            calls = [draft.call(n, "Bash", command=_prose(rng, 5, 30)) for n in names]
            draft.reply(_prose(rng, 5, 40), *calls)
            for name in names:
                draft.result(name, _prose(rng, 20, 400))
        turn_ends.append(draft.reply(_prose(rng, 20, 200)))
        if rng.random() < 0.05:
            draft.rewind(rng.choice(turn_ends[-6:]))
        if rng.random() < 0.001:
            draft.compact(_prose(rng, 100, 200), keep_from=turn_ends[-2])
    return draft.bytes()


def _prose(rng: random.Random, low: int, high: int) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(low, high)))


def read_graph(events: list[Event]) -> list[int]:
    """Return the live chain, with the work of a reader after decoding: nodes, links and states."""
    graph = Graph([node_of(event) for event in events])
    chain = graph.chain()
    assert len(graph.states) == len(events)
    return chain


def main() -> int:
    """Measure and print; return how many budgets were missed."""
    missed = 0
    data = make_session(100_000)
    decode = seconds(lambda: codec.decode(data))
    events = codec.decode(data).events
    graph = seconds(lambda: read_graph(events))
    print(
        f"graph: {len(events):,} events, {len(data) / 1e6:.0f} MB; decoding "
        f"{len(data) / decode / 1e6:.0f} MB/s, graph {graph / len(events) * 1e6:.2f} µs an event"
    )
    missed += verdict("graph + chain + states / decoding, 100,000 events", graph / decode, 0.5)

    large = codec.decode(make_session(1_000_000)).events
    per_event = seconds(lambda: read_graph(large), rounds=3) / len(large)
    missed += verdict("per event, 1,000,000 / 100,000", per_event / (graph / len(events)), 1.5)
    return missed
