"""Work in other processes arrives whole, once, and never without bound."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from thence.memory.parcels import MAX_WAITING_PARCELS, Turns, in_turns, may_fork

STORY = f"""
import os, sys, time
from pathlib import Path
from thence.memory.parcels import Parcels, SweepBroken, may_fork
folder, readers, dies = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
assert may_fork()
folder.mkdir(exist_ok=True)
left = folder / "sweep-left-behind"
left.mkdir()
def made(turns):
    for number in turns:
        if number >= 200:
            return
        if number == dies:
            os._exit(9)
        yield number, 1, "now"
got, most = [], 0
parcels = Parcels(folder, int, made, lambda: None, size=3, readers=readers)
try:
    for number in parcels:
        got.append(number)
        most = max(most, sum(1 for _ in folder.glob("sweep-*/*")))
        time.sleep(0.0005)
except SweepBroken as error:
    print("broken", error.message)
else:
    limit = {MAX_WAITING_PARCELS} + readers
    print(sorted(got) == list(range(200)), most <= limit)
print(sorted(path.name for path in folder.iterdir()))
"""


def _arrivals(folder: Path, readers: int, dies: int = -1) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", STORY, str(folder), str(readers), str(dies)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.splitlines()


@pytest.mark.slow
def test_everything_arrives_once_from_any_number_of_readers(tmp_path: Path) -> None:
    """Few parcels lie between, and nothing is left: neither ours nor a killed sweep's."""
    expected = ["True True", "[]"]

    assert expected == _arrivals(tmp_path / "one", 1)
    assert expected == _arrivals(tmp_path / "three", 3)


@pytest.mark.slow
def test_reader_that_dies_is_told(tmp_path: Path) -> None:
    """With how it ended, however many go on."""
    expected = ["broken the reading process ended with 9", "[]"]

    assert expected == _arrivals(tmp_path, 2, 50)


LARGE_STORY = """
import sys
from pathlib import Path
from thence.memory.parcels import Parcels, in_turns
sizes = [3] * 20
sizes[12] = 60
def read(at):
    yield from ((at, size) for size in range(0, sizes[at], 3))
def made(turns):
    return ((piece, 3, order) for piece, order in in_turns(turns, sizes, read, lambda piece: 3))
parcels = Parcels(Path(sys.argv[1]), tuple, made, lambda: None, size=6, readers=int(sys.argv[2]))
print([at for at, _ in parcels])
"""


@pytest.mark.parametrize("readers", [1, 2])
def test_large_source_is_begun_first_and_arrives_in_its_turn(tmp_path: Path, readers: int) -> None:
    """The writer has the newer ones before it, and its pieces in their order."""
    done = subprocess.run(
        [sys.executable, "-c", LARGE_STORY, str(tmp_path), str(readers)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    order = json.loads(done.stdout.splitlines()[-1])

    assert [*range(12), *[12] * 20, *range(13, 20)] == sorted(order)
    if readers == 1:
        assert sorted(order) == order
    assert order.index(12) >= 12 - readers


def test_beginning_of_a_large_source_is_taken_before_its_end_is_read() -> None:
    """Who writes is told of its turn, and need not wait until the rest was read."""
    read_pieces: list[int] = []

    def read(at: int) -> Iterator[int]:
        for _ in range(sizes[at]):
            read_pieces.append(at)
            yield at

    sizes = [1, 1, 1, 8, 1]
    turns = cast("Turns", range(len(sizes) + 2))
    read_when_told = [
        list(read_pieces) for piece, _ in in_turns(turns, sizes, read, lambda _: 1) if piece is None
    ]

    assert [[3, 3, 3, 3, 0, 1, 2]] == read_when_told


@pytest.mark.slow
def test_process_with_threads_is_not_forked() -> None:
    """A lock that another thread holds would stay locked in the child for ever."""
    story = (
        "import threading, time\n"
        "from thence.memory.parcels import may_fork\n"
        "print(may_fork())\n"
        "threading.Thread(target=time.sleep, args=(0.5,)).start()\n"
        "print(may_fork())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", story], check=True, capture_output=True, text=True, timeout=60
    )

    assert ["True", "False"] == done.stdout.splitlines()
    assert may_fork() == (1 == len(list(Path("/proc/self/task").iterdir())))


@pytest.mark.slow
def test_parcels_of_a_sweep_that_runs_are_left_alone(tmp_path: Path) -> None:
    """Sweeps into stores without a folder of their own share one."""
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        (tmp_path / f"sweep-{other.pid}-x").mkdir()
        (tmp_path / f"sweep-{2**40}-x").mkdir()

        assert ["True True", f"['sweep-{other.pid}-x']"] == _arrivals(tmp_path, 1)
    finally:
        other.communicate(b"\n")
