"""Reading Claude Code's logs against decoding them: facts, the whole session, what follows from it.

The corpus is made up but shaped like a real home (see `corpus`). Decoding the lines is the floor:
nobody who reads them can do with less. Sessions are read one behind the other, as a sweep's
readers do, with the collector as calm as theirs; memory is that of a process of its own, which
forgets each session before the next.
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from bench.corpus import write_claude
from bench.measure import seconds, verdict
from thence.agents import Source
from thence.agents.claude.reader import Claude
from thence.agents.sessions import read_all
from thence.format import codec
from thence.format.facts import Fact
from thence.format.session_graph import SessionGraph
from thence.memory.sweep import COLLECTOR_THRESHOLDS

SIZE = 40
WANTED = 100.0
"""Megabytes per second of one core, for all of it."""

ADAPTER = Claude()


def decoded(sources: Iterable[Source]) -> None:
    """The floor: cut into lines and decode, and keep nothing."""
    for source in sources:
        for file in source.files:
            for line in Path(file.path).read_bytes().split(b"\n"):
                codec.quick(line)


def facts_of(source: Source) -> list[Fact]:
    """What the records of a session say, one by one."""
    return read_all(ADAPTER, source)[0]


def swept(sources: Iterable[Source]) -> int:
    """All that a sweep wants to know of sessions: events, states, bills, derived events."""
    events = 0
    for source in sources:
        whole = SessionGraph(source.uid, facts_of(source))
        events += len(whole.events) + len(whole.derived)
        del whole  # forgotten before the next one is read, as a sweep does
    return events


def linked(read: list[tuple[Source, list[Fact]]]) -> list[SessionGraph]:
    """Sessions put together from their facts, with a state for each record."""
    out = [SessionGraph(source.uid, facts) for source, facts in read]
    for whole in out:
        _ = whole.states
    return out


def asked(wholes: list[SessionGraph], name: str, *forgotten: str) -> None:
    """Work out one thing of all sessions anew."""
    for whole in wholes:
        for known in (name, *forgotten):
            vars(whole).pop(known, None)
        getattr(whole, name)


def speed(sources: list[Source], size: float) -> int:
    """Each step alone and all of them, beside decoding."""
    read = [(source, facts_of(source)) for source in sources]
    wholes = linked(read)
    steps: dict[str, Callable[[], object]] = {
        "decoding alone": lambda: decoded(sources),
        "facts, decoding included": lambda: [len(facts_of(source)) for source in sources],
        "linked, with states": lambda: linked(read),
        "events": lambda: asked(wholes, "events"),
        "derived events": lambda: asked(wholes, "derived", "calls"),
        "all of it": lambda: swept(sources),
    }
    taken = {name: seconds(work, rounds=7, clock=time.process_time) for name, work in steps.items()}
    floor, all_of_it = taken["decoding alone"], taken["all of it"]
    print(f"adapters: {len(sources)} sessions, {size:.0f} MB")
    for name, one in taken.items():
        print(f"  {name:<40} {size / one:8.0f} MB/s {one / floor:6.2f} times decoding")
    missed = verdict("all of it / decoding alone", all_of_it / floor, 5)
    return missed + verdict(f"{WANTED:g} MB/s / what one core reads", WANTED * all_of_it / size, 1)


# -- processes ------------------------------------------------------------------------------

CHILD = """
import gc, resource, sys, time
from bench.bench_adapters import share, swept
from thence.memory.sweep import COLLECTOR_THRESHOLDS
gc.freeze()
gc.set_threshold(*COLLECTOR_THRESHOLDS)
sources = share(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
print("ready", flush=True)
sys.stdin.readline()
start = time.perf_counter()
swept(sources)
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def share(root: str, at: int, number: int) -> list[Source]:
    """Give one process its part of the work: the largest first, to whoever has the least."""
    sizes = {
        source: sum(Path(f.path).stat().st_size for f in source.files) for source in found(root)
    }
    parts: list[tuple[int, list[Source]]] = [(0, []) for _ in range(number)]
    for source in sorted(sizes, key=lambda one: (-sizes[one], one.uid)):
        least = min(range(number), key=lambda one: parts[one][0])
        much, own = parts[least]
        parts[least] = (much + sizes[source], [*own, source])
    return parts[at][1]


def found(root: str) -> list[Source]:
    """All sessions of a folder."""
    return list(ADAPTER.find(Path(root)))


def children(root: Path, number: int) -> tuple[float, float]:
    """Let so many processes share the work: seconds of the longest, megabytes of the largest."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, str(root), str(at), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for at in range(number)
    ]
    for child in started:
        assert child.stdout is not None
        child.stdout.readline()
    for child in started:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    told = [child.communicate()[0].split() for child in started]
    return max(float(took) for took, _ in told), max(float(memory) for _, memory in told)


def processes(root: Path) -> int:
    """Two processes against one, in turn, on so much that their beginning does not count."""
    rounds = [(children(root, 1)[0], children(root, 2)[0]) for _ in range(5)]
    one, two = (statistics.median(column) for column in zip(*rounds, strict=True))
    print(f"  two processes: {one / two:.2f} times one")
    return verdict("time of two processes / of one", two / one, 1 / 1.8)


def memory(small: Path, large: Path, sizes: tuple[int, int]) -> int:
    """The most memory that a sweep takes, over a small and a large home of like sessions."""
    held = [children(root, 1)[1] for root in (small, large)]
    for size, most in zip(sizes, held, strict=True):
        print(f"  {size} MB are swept in {most:.0f} MB of memory")
    return verdict(f"memory for {sizes[1]} MB / for {sizes[0]} MB", held[1] / held[0], 1.15)


def main() -> int:
    """Measure, print, and say how many budgets were missed."""
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    sizes = (100, 1000) if os.environ.get("BENCH_BIG") else (100, 200)
    with tempfile.TemporaryDirectory() as name:
        homes = [Path(name) / part for part in ("speed", "small", "large")]
        for home, room in zip(homes, (SIZE, *sizes), strict=True):
            write_claude(home, room)
        sources = list(ADAPTER.find(homes[0]))
        size = sum(Path(f.path).stat().st_size for s in sources for f in s.files) / 1e6
        missed = speed(sources, size)
        missed += processes(homes[1])
        return missed + memory(homes[1], homes[2], sizes)
