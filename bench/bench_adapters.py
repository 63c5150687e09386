"""The cost of reading Claude Code's logs, compared with decoding them.

The corpus is synthetic but shaped like a real home (see `corpus`). Decoding the lines is the lower
bound for any reader. Sessions are read one after the other, as the readers of a sweep do, with the
same settings of the garbage collector; memory is that of a separate process, which drops each
session before it reads the next.
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

CORPUS_MB = 40
TARGET_MB_PER_S = 100.0
"""Throughput that one core should reach, for all steps together."""

ADAPTER = Claude()


def decode_all(sources: Iterable[Source]) -> None:
    """Decode all lines and drop the result: the lower bound."""
    for source in sources:
        for file in source.files:
            for line in Path(file.path).read_bytes().split(b"\n"):
                codec.quick(line)


def read_facts(source: Source) -> list[Fact]:
    """Return the facts of a session."""
    return read_all(ADAPTER, source)[0]


def sweep_all(sources: Iterable[Source]) -> int:
    """Derive all that a sweep stores, and return the number of events."""
    events = 0
    for source in sources:
        graph = SessionGraph(source.uid, read_facts(source))
        events += len(graph.events) + len(graph.derived)
        del graph  # freed before the next one is read, as in a sweep
    return events


def link_all(read: list[tuple[Source, list[Fact]]]) -> list[SessionGraph]:
    """Return the graphs of sessions, with a state for each record."""
    graphs = [SessionGraph(source.uid, facts) for source, facts in read]
    for graph in graphs:
        _ = graph.states
    return graphs


def derive_again(graphs: list[SessionGraph], name: str, *dependencies: str) -> None:
    """Compute a cached attribute of all sessions again."""
    for graph in graphs:
        for attribute in (name, *dependencies):
            vars(graph).pop(attribute, None)
        getattr(graph, name)


def measure_speed(sources: list[Source], megabytes: float) -> int:
    """Compare each step, and all of them together, with decoding."""
    read = [(source, read_facts(source)) for source in sources]
    graphs = link_all(read)
    steps: dict[str, Callable[[], object]] = {
        "decoding alone": lambda: decode_all(sources),
        "facts, decoding included": lambda: [len(read_facts(source)) for source in sources],
        "linked, with states": lambda: link_all(read),
        "events": lambda: derive_again(graphs, "events"),
        "derived events": lambda: derive_again(graphs, "derived", "calls"),
        "all steps": lambda: sweep_all(sources),
    }
    times = {name: seconds(work, rounds=7, clock=time.process_time) for name, work in steps.items()}
    floor, total = times["decoding alone"], times["all steps"]
    print(f"adapters: {len(sources)} sessions, {megabytes:.0f} MB")
    for name, elapsed in times.items():
        print(f"  {name:<40} {megabytes / elapsed:8.0f} MB/s {elapsed / floor:6.2f} times decoding")
    missed = verdict("all steps / decoding alone", total / floor, 5)
    return missed + verdict(
        f"{TARGET_MB_PER_S:g} MB/s / throughput of one core", TARGET_MB_PER_S * total / megabytes, 1
    )


# -- processes ------------------------------------------------------------------------------

CHILD_PROGRAM = """
import gc, resource, sys, time
from bench.bench_adapters import assign_sources, sweep_all
from thence.memory.sweep import COLLECTOR_THRESHOLDS
gc.freeze()
gc.set_threshold(*COLLECTOR_THRESHOLDS)
sources = assign_sources(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
print("ready", flush=True)
sys.stdin.readline()
start = time.perf_counter()
sweep_all(sources)
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def assign_sources(root: str, index: int, count: int) -> list[Source]:
    """Return the sources of one process: the largest go first, to the process with the least."""
    sizes = {
        source: sum(Path(f.path).stat().st_size for f in source.files)
        for source in find_sources(root)
    }
    parts: list[tuple[int, list[Source]]] = [(0, []) for _ in range(count)]
    for source in sorted(sizes, key=lambda candidate: (-sizes[candidate], candidate.uid)):
        lightest = min(range(count), key=lambda candidate: parts[candidate][0])
        total, assigned = parts[lightest]
        parts[lightest] = (total + sizes[source], [*assigned, source])
    return parts[index][1]


def find_sources(root: str) -> list[Source]:
    """Return all sessions of a folder."""
    return list(ADAPTER.find(Path(root)))


def run_processes(root: Path, count: int) -> tuple[float, float]:
    """Share the work among processes; return the seconds of the slowest, the MB of the largest."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD_PROGRAM, str(root), str(index), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for index in range(count)
    ]
    for child in processes:
        assert child.stdout is not None
        child.stdout.readline()
    for child in processes:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    results = [child.communicate()[0].split() for child in processes]
    return max(float(elapsed) for elapsed, _ in results), max(
        float(memory_mb) for _, memory_mb in results
    )


def measure_processes(root: Path) -> int:
    """Compare two processes with one, on a corpus that makes their start-up negligible."""
    rounds = [(run_processes(root, 1)[0], run_processes(root, 2)[0]) for _ in range(5)]
    single_s, double_s = (statistics.median(column) for column in zip(*rounds, strict=True))
    print(f"  two processes: {single_s / double_s:.2f} times one")
    return verdict("time of two processes / of one", double_s / single_s, 1 / 1.8)


def measure_memory(small: Path, large: Path, sizes: tuple[int, int]) -> int:
    """Compare the peak memory of a sweep over a small and a large home of similar sessions."""
    peaks_mb = [run_processes(root, 1)[1] for root in (small, large)]
    for size, peak_mb in zip(sizes, peaks_mb, strict=True):
        print(f"  {size} MB are swept in {peak_mb:.0f} MB of memory")
    return verdict(f"memory for {sizes[1]} MB / for {sizes[0]} MB", peaks_mb[1] / peaks_mb[0], 1.15)


def main() -> int:
    """Measure and print; return how many budgets were missed."""
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    sizes = (100, 1000) if os.environ.get("BENCH_BIG") else (100, 200)
    with tempfile.TemporaryDirectory() as name:
        homes = [Path(name) / part for part in ("speed", "small", "large")]
        for home, megabytes in zip(homes, (CORPUS_MB, *sizes), strict=True):
            write_claude(home, megabytes)
        sources = list(ADAPTER.find(homes[0]))
        size = sum(Path(f.path).stat().st_size for s in sources for f in s.files) / 1e6
        missed = measure_speed(sources, size)
        missed += measure_processes(homes[1])
        return missed + measure_memory(homes[1], homes[2], sizes)
