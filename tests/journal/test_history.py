"""The prompt history: whatever happens to it, prompts that were kept are found again."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import json
import os
import stat
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pace import by_pace
from thence.errors import NotAppendable
from thence.format.codec import LINE_LIMIT
from thence.format.layout import rollover
from thence.journal import history as module
from thence.journal.history import BLOCK_BYTES, NOWHERE, History, Prompt
from thence.journal.log import Disk

KILLS = by_pace(everyday=20, full=30, prove=150)
MEGABYTES = by_pace(everyday=32, full=32, prove=256)
START = datetime(2031, 5, 4, 3, 2, 1, 987654, tzinfo=UTC)
EVERYTHING = 10**9
WRITERS, EACH = 4, 500

ROLLED = """
import os, signal, sys
from pathlib import Path
from thence.journal.history import History
history, least = History(Path(sys.argv[1]), limit_entries=2), int(sys.argv[2])
rename, calls = Path.rename, []
def deadly(self, target):
    calls.append(target)
    if len(calls) > least:
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(self, target)
Path.rename = deadly
history.add("the last", session_id="s")
"""

WRITER = """
import sys
from pathlib import Path
from thence.journal.history import History
folder, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
history = History(folder, limit_entries=60, limit_bytes=40_000)
for number in range(count):
    history.add(f"{name} {number} " + "x" * (number * 37 % 900), session_id=name)
history.close()
"""

KILLED = """
import os, random, signal, sys, time
from pathlib import Path
from thence.journal.history import History
folder, kills, chance = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
steady = History(folder, limit_entries=25, limit_bytes=6_000_000)
for round in range(kills):
    told, tell = os.pipe()
    sizes = [chance.choice((10, 10, 10, 3_000, 3_000, 200_000, 4_000_000)) for _ in range(50)]
    child = os.fork()
    if not child:
        os.close(told)
        history = History(folder, limit_entries=25, limit_bytes=6_000_000)
        for number, size in enumerate(sizes * 1_000):
            history.add(f"{round} {number} " + "y" * size, session_id="s")
            os.write(tell, b".")
    os.close(tell)
    time.sleep(chance.uniform(0.001, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    kept = 0
    while some := os.read(told, 1 << 16):
        kept += len(some)
    os.close(told)
    print(kept)
    steady.add(f"steady {round} y", session_id="s")
"""

FORKED = """
import os, sys, threading
from pathlib import Path
from thence.journal.history import History
history = History(Path(sys.argv[1]), limit_entries=40)
def work():
    for number in range(400):
        history.add(f"parent {number}", session_id="s")
thread = threading.Thread(target=work)
thread.start()
for number in range(20):
    child = os.fork()
    if not child:
        history.add(f"child {number}", session_id="s")
        history.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
thread.join()
"""


class Faulty(Disk):
    """A disk that counts what is read from it, and fails or lets others in when told to."""

    def __init__(self, *, syncs: bool = True) -> None:
        self.bytes_read = 0
        self.faults: dict[str, int] = {}
        self.before: dict[str, Callable[[], object]] = {}
        for name in ("open", "write", "pread", "fsync", "datasync", "close"):
            call = getattr(Disk, name) if syncs or "sync" not in name else bool
            setattr(self, name, self.guarded(name, call))

    def guarded(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a system call: it fails while `faults` names it; `before` happens once."""

        def guard(*arguments: Any) -> Any:
            self.before.pop(name, int)()
            if name in self.faults:
                raise OSError(self.faults[name], os.strerror(self.faults[name]))
            answer = call(*arguments)
            self.bytes_read += len(answer) if name == "pread" else 0
            return answer

        return guard


def clock(start: datetime = START) -> Callable[[], datetime]:
    """A clock that goes on by a second each time it is asked."""
    return (start + timedelta(seconds=n) for n in itertools.count()).__next__


def fill(history: History, prompts: list[str]) -> list[int]:
    """Add prompts, and give their offsets."""
    return [history.add(prompt, session_id="s") for prompt in prompts]


def texts(prompts: list[Prompt]) -> list[str]:
    """What was said, in order."""
    return [prompt.prompt for prompt in prompts]


def everything(folder: Path) -> list[str]:
    """All prompts there are, oldest first, read both ways to the same end."""
    history = History(folder)
    forwards = [row["prompt"] for row in history.read(EVERYTHING, reverse=False)]

    assert forwards == texts(history.recent(EVERYTHING))[::-1]

    return forwards


def python(script: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a process of its own."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


# -- adding -----------------------------------------------------------------------------------


def test_a_prompt_is_one_line_of_the_frozen_form(tmp_path: Path) -> None:
    """Names, order, time format and LF of a line are what other readers rely on."""
    history = History(tmp_path, now=clock())
    history.add("Grüß Gott\n", session_id="s1", project="/home/dev/a")
    history.add("x", session_id="s2")

    expected = (
        '{"type":"prompt","ts":"2031-05-04T03:02:01.988Z","session_id":"s1",'
        '"project":"/home/dev/a","prompt":"Grüß Gott\\n"}\n'
        '{"type":"prompt","ts":"2031-05-04T03:02:02.988Z","session_id":"s2",'
        '"project":null,"prompt":"x"}\n'
    )
    assert expected == (tmp_path / "history.jsonl").read_text(encoding="utf-8")


def test_folder_and_files_are_for_the_owner_alone(tmp_path: Path) -> None:
    """Whatever the umask is, nobody else can read prompts."""
    folder = tmp_path / "a" / "b"
    before = os.umask(0)
    try:
        fill(History(folder, limit_entries=1), ["one", "two"])
    finally:
        os.umask(before)

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert {0o600} == set(modes.values())
    assert {"history.jsonl", "history.jsonl.1", "history.jsonl.lock"} == set(modes)
    assert [0o700] * 2 == [stat.S_IMODE(f.stat().st_mode) for f in (folder, folder.parent)]


def test_an_offset_points_at_the_line_within_its_own_file(tmp_path: Path) -> None:
    """What `add` gives and what reading gives is where the line starts."""
    history = History(tmp_path, limit_entries=2)
    offsets = fill(history, ["one", "two", "three"])

    assert offsets[::-1] == [p.offset for p in history.recent()]
    assert 0 == offsets[2]
    line = (tmp_path / "history.jsonl.1").read_bytes()[offsets[1] :]
    assert "two" == json.loads(line)["prompt"]


ODD = {
    "nul": "a\0b",
    "separators": "a\u2028b\u2029c\u0085d\v\f\r\n",
    "lone surrogates": "\ud800 and \udfff",
    "empty": "",
    "looks like a line": '{"type":"prompt"}\n{"type":"prompt"}',
    "5 MB": "paste " * 900_000,
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_every_text_survives(tmp_path: Path, text: str) -> None:
    """Text of any kind and size comes back as it was, in every field."""
    history = History(tmp_path)
    fill(history, ["before"])
    history.add(text, session_id=text[:99], project=text[:99])
    fill(history, ["after"])

    assert ["before", text, "after"] == everything(tmp_path)
    prompt = history.recent()[1]
    assert (text[:99], text[:99], 0) == (prompt.session_id, prompt.project, history.skipped)


@pytest.mark.slow
def test_a_line_over_the_limit_is_passed_over_and_no_other(tmp_path: Path) -> None:
    """The longest line that is parsed is the codec's."""
    history = History(tmp_path, limit_bytes=LINE_LIMIT * 4)
    fill(history, ["before", "x" * LINE_LIMIT, "after"])

    assert ["before", "after"] == everything(tmp_path)
    assert ["after", "before"] == texts(history.recent())
    assert 1 == history.skipped


def test_adding_reads_nothing_back(tmp_path: Path) -> None:
    """Neither lines nor counts cost a look at what we wrote ourselves."""
    disk = Faulty()
    history = History(tmp_path, disk=disk)
    fill(history, ["one", "two", "three"])

    assert 0 == disk.bytes_read


def test_a_closed_history_can_be_read_but_not_added_to(tmp_path: Path) -> None:
    """Closing is final for writing, and asks for nothing twice."""
    history = History(tmp_path)
    fill(history, ["one"])
    history.sync()
    history.close()
    history.close()

    with pytest.raises(NotAppendable, match="closed"):
        fill(history, ["two"])
    assert ["one"] == texts(history.recent())


def test_switched_off_it_touches_nothing(tmp_path: Path) -> None:
    """The same calls, no file, nothing found: not even what is there."""
    fill(History(tmp_path), ["there"])
    before = sorted((p.name, p.read_bytes()) for p in tmp_path.iterdir())
    history = History(tmp_path, enabled=False)

    assert NOWHERE == history.add("x", session_id="s")
    calls = (history.recent, history.read, lambda: history.search(""), history.sweep)
    assert [[], [], [], []] == [call() for call in calls]
    assert (None, None, None) == (history.cursor().up(), history.cursor().down(), history.warning())
    history.sync()
    history.close()
    assert before == sorted((p.name, p.read_bytes()) for p in tmp_path.iterdir())


# -- reading ----------------------------------------------------------------------------------


@pytest.mark.slow
@given(
    prompts=st.lists(
        st.text(max_size=30) | st.integers(BLOCK_BYTES - 120, BLOCK_BYTES + 20).map("z".__mul__),
        max_size=30,
    ),
    limit=st.integers(0, 35),
    entries=st.integers(1, 40),
    size=st.integers(1, 3000),
    block=st.sampled_from([1, 2, 64, 100, BLOCK_BYTES]),
)
def test_recent_is_the_end_of_what_was_added(
    prompts: list[str], limit: int, entries: int, size: int, block: int
) -> None:
    """Whatever the sizes, the blocks and the rollovers: the last ones, newest first."""
    block = block if sum(map(len, prompts)) < 2000 else BLOCK_BYTES
    with TemporaryDirectory() as folder, patch.object(module, "BLOCK_BYTES", block):
        history = History(
            Path(folder), limit_entries=entries, limit_bytes=size, disk=Faulty(syncs=False)
        )
        fill(history, prompts)

        assert prompts[::-1][:limit] == texts(history.recent(limit))
        first = [row["prompt"] for row in history.read(limit, reverse=False)]
        assert prompts[:limit] == first


def test_recent_can_be_asked_by_project_and_session(tmp_path: Path) -> None:
    """Both filters hold at once, and the limit counts what they let through."""
    history = History(tmp_path, limit_entries=5)
    for number, (session, project) in enumerate(itertools.product("ab", "xyz")):
        history.add(str(number), session_id=session, project=project)

    assert ["3", "0"] == texts(history.recent(project="x"))
    assert ["5", "4"] == texts(history.recent(2, session_id="b"))
    assert ["1"] == texts(history.recent(project="y", session_id="a"))
    assert [] == history.recent(0)


def test_read_gives_the_shape_of_the_tool(tmp_path: Path) -> None:
    """Plain objects of four fields, newest first by default."""
    history = History(tmp_path, now=clock())
    offsets = fill(history, ["one", "two"])

    expected = ("two", "2031-05-04T03:02:02.988Z", "s", offsets[1])
    names = ("prompt", "ts", "session_id", "offset")
    assert dict(zip(names, expected, strict=True)) == history.read()[0]


def test_search_finds_each_text_once_in_whatever_case(tmp_path: Path) -> None:
    """Newest first, substring or prefix; the newest of equal texts stands for all."""
    history = History(tmp_path, limit_entries=3)
    fill(history, ["Fix it", "fix it", "do FIX", "STRASSE", "Fix it", "other"])

    assert ["Fix it", "do FIX", "fix it"] == texts(history.search("fix"))
    assert ["Fix it", "fix it"] == texts(history.search("FIX", prefix=True))
    assert ["Fix it"] == texts(history.search("fix", limit=1))
    assert ["STRASSE"] == texts(history.search("straße"))
    assert [] == history.search("fix", limit=0)


@pytest.mark.sampled
def test_a_few_blocks_of_a_big_history_are_read(tmp_path: Path) -> None:
    """The last fifty cost the same however much there is."""
    line = b'{"type":"prompt","ts":"%s","session_id":"s","project":null,"prompt":"%s"}\n'
    some = b"".join(line % (b"2031-05-04T03:02:01.000Z", b"q" * (n % 400)) for n in range(4000))
    with (tmp_path / "history.jsonl").open("wb") as file:
        for _ in range(MEGABYTES * (1 << 20) // len(some) + 1):
            file.write(some)
    disk = Faulty()
    history = History(tmp_path, disk=disk)

    assert 50 == len(history.recent(50))
    assert disk.bytes_read <= 2 * BLOCK_BYTES
    cursor = history.cursor()
    assert all(cursor.up() for _ in range(50))
    assert disk.bytes_read <= 4 * BLOCK_BYTES
    fill(history, ["rolls without being counted"])
    assert disk.bytes_read <= 5 * BLOCK_BYTES


def test_prompts_past_their_time_are_hidden(tmp_path: Path) -> None:
    """One clock gone wrong hides nobody; a long run of old ones ends the reading."""
    for days, text in ((20, "old"), (2, "young"), (9000, "wrong clock"), (1, "younger")):
        fill(History(tmp_path, now=clock(START - timedelta(days=days))), [text] * 3)
    disk = Faulty()
    history = History(tmp_path, retain_days=7, now=clock(), disk=disk)

    assert ["younger"] * 3 + ["young"] * 3 == texts(history.recent())
    assert ["young"] * 3 == [row["prompt"] for row in history.read(3, reverse=False)]
    assert 12 == len(History(tmp_path).recent())
    assert 12 == len(History(tmp_path, retain_days=1e300, now=clock()).recent())
    fill(History(tmp_path, now=clock(START - timedelta(days=30))), ["x" * 5000] * 300)
    disk.bytes_read = 0
    assert [] == history.recent()
    assert disk.bytes_read < 300 * 5000 / 2


# -- up and down ------------------------------------------------------------------------------


def test_a_cursor_goes_up_and_down_like_a_shell(tmp_path: Path) -> None:
    """Up to the oldest and no further, down to the empty line, repeats in a row once."""
    history = History(tmp_path, limit_entries=2)
    fill(history, ["a", "b", "b", "a", "a"])
    cursor = history.cursor()

    moves = {"u": cursor.up, "d": cursor.down}
    walked = [moves[step]() for step in "dduuuudduddu"]

    expected = [None, None, "a", "b", "a", "a", "b", "a", "b", "a", None, "a"]
    assert expected == [prompt.prompt if prompt else None for prompt in walked]


def test_a_cursor_back_at_the_empty_line_sees_what_came_since(tmp_path: Path) -> None:
    """On its way it stands still; a new way up starts at the newest."""
    history = History(tmp_path)
    fill(history, ["one", "two"])
    cursor = history.cursor()
    cursor.up()
    fill(history, ["three"])
    walked = [cursor.up(), cursor.down(), cursor.down(), cursor.up()]

    assert ["one", "two", None, "three"] == [prompt.prompt if prompt else None for prompt in walked]


def test_a_cursor_with_a_prefix_meets_only_what_starts_with_it(tmp_path: Path) -> None:
    """Repeats are judged among what matches."""
    history = History(tmp_path)
    fill(history, ["git log", "make", "Git push", "ls", "git log", "cd", "git log"])
    cursor = history.cursor("git")

    met = [cursor.up() for _ in range(5)]
    assert ["git log", "Git push", "git log", "git log", "git log"] == texts([p for p in met if p])
    assert history.cursor("nothing").up() is None


def test_rollovers_under_a_reader_cost_and_double_nothing(tmp_path: Path) -> None:
    """A cursor on its way up goes on through files that are renamed meanwhile."""
    history = History(tmp_path, limit_entries=3)
    fill(history, [f"{n}" for n in range(20)])
    cursor = history.cursor()
    met = []
    for number in range(20):
        met.append(cursor.up())
        fill(history, [f"new {number}"])

    assert [f"{n}" for n in reversed(range(20))] == texts([p for p in met if p])


# -- rolling over -----------------------------------------------------------------------------


def test_a_full_file_is_renamed_before_the_next_prompt(tmp_path: Path) -> None:
    """By entries or by bytes; the numbers grow with age; older files stay as they were."""
    by_entries, by_bytes = tmp_path / "entries", tmp_path / "bytes"
    fill(History(by_entries, limit_entries=2), list("abcde"))
    fill(History(by_bytes, limit_bytes=150), list("abcde"))

    for folder in (by_entries, by_bytes):
        prompts = [
            "".join(json.loads(line)["prompt"] for line in path.read_bytes().splitlines())
            for path in (folder / rollover(number) for number in range(3))
        ]
        assert ["e", "cd", "ab"] == prompts


def test_prompts_of_other_writers_count(tmp_path: Path) -> None:
    """The limit is the file's, whoever fills it; only what is new is read to count it."""
    disk = Faulty()
    mine, other = History(tmp_path, limit_entries=100, disk=disk), History(tmp_path)
    fill(other, ["x" * 1000] * 60)
    fill(mine, ["mine"])
    first = disk.bytes_read
    fill(other, ["y"] * 39)
    fill(mine, ["rolls over"])
    path = tmp_path / "history.jsonl"
    disk.before["write"] = lambda: path.write_bytes(path.read_bytes() * 99)
    fill(mine, ["just after theirs", "rolls over, too"])

    assert first >= 60 * 1000
    assert disk.bytes_read - first < 39 * 200 + 99 * 200
    assert ["rolls over, too"] == [json.loads(path.read_bytes())["prompt"]]


def test_a_writer_notices_that_another_rolled_over(tmp_path: Path) -> None:
    """Nobody goes on writing into a file that has a number, or into one that was removed."""
    first, second = History(tmp_path, limit_entries=2), History(tmp_path, limit_entries=2)
    fill(first, ["a", "b"])
    fill(second, ["c"])
    fill(first, ["d", "e"])
    (tmp_path / "history.jsonl").unlink()
    fill(second, ["f"])
    fill(first, ["g"])

    assert ["a", "b", "c", "d", "f", "g"] == everything(tmp_path)


def test_a_file_emptied_by_hand_is_gone_on_with(tmp_path: Path) -> None:
    """Whoever clears the history has cleared it, and the next prompt is kept."""
    history = History(tmp_path)
    fill(history, ["a", "b"])
    os.truncate(tmp_path / "history.jsonl", 0)

    assert [0] == fill(history, ["c"])
    assert ["c"] == everything(tmp_path)


@pytest.mark.few(3)
@pytest.mark.parametrize("least", range(5))
def test_killed_between_two_renames_nothing_is_lost(tmp_path: Path, least: int) -> None:
    """Every state on the way is read in order, and the next writer rolls on from it."""
    fill(History(tmp_path, limit_entries=2), list("abcdefgh"))
    killed = python(ROLLED, tmp_path, least)
    killed.communicate(timeout=60)
    expected = [*"abcdefgh", "the last"][: 8 + (least == 4)]

    assert expected == everything(tmp_path)
    fill(History(tmp_path, limit_entries=2), ["and", "on"])
    assert [*expected, "and", "on"] == everything(tmp_path)


@pytest.mark.parametrize("half", [False, True])
def test_a_rollover_between_a_look_and_an_opening_is_noticed(tmp_path: Path, half: bool) -> None:
    """A reader who finds another file, or none, under the name it wants looks again."""
    disk = Faulty()
    history = History(tmp_path, disk=disk)
    fill(other := History(tmp_path, limit_entries=2), list("abcdef"))
    cursor = history.cursor()
    met = [cursor.up(), cursor.up()]
    last = tmp_path / "history.jsonl.2"

    def rename() -> None:
        last.rename(tmp_path / "history.jsonl.3")
        (tmp_path / "history.jsonl.1").rename(last)

    disk.before["open"] = rename if half else lambda: fill(other, ["new"])
    met += [cursor.up() for _ in range(4)]

    assert {} == disk.before
    assert [*"fedcba"] == texts([p for p in met if p])


def test_a_rollover_while_a_writer_opens_is_noticed(tmp_path: Path) -> None:
    """Nobody takes the new file for the one it has open."""
    disk = Faulty()
    fill(History(tmp_path), ["a"])
    path = tmp_path / "history.jsonl"

    def roll() -> None:
        path.rename(tmp_path / "history.jsonl.1")
        path.write_bytes((tmp_path / "history.jsonl.1").read_bytes().replace(b'"a"', b'"b"'))

    disk.before["pread"] = roll
    history = History(tmp_path, disk=disk)
    fill(history, ["c", "d"])

    assert {} == disk.before
    assert [*"abcd"] == everything(tmp_path)
    assert 3 == path.read_bytes().count(b"\n")


def test_who_holds_the_lock_stops_nobody(tmp_path: Path) -> None:
    """While another renames or removes files, prompts are kept and the sweep does nothing."""
    fill(History(tmp_path, limit_entries=1), ["a", "b"])
    history = History(tmp_path, limit_entries=1, now=clock(START + timedelta(days=9999)))
    with (tmp_path / "history.jsonl.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fill(history, ["c", "d"])

        assert ([], 1) == (history.sweep(), len(history.sweep(dry_run=True)))
    assert [*"abcd"] == everything(tmp_path)
    assert 1 == len(history.sweep())
    assert [*"bcd"] == everything(tmp_path)


def test_gaps_and_foreign_names_are_tolerated(tmp_path: Path) -> None:
    """What has a number of ours is read in its order, the rest is left alone."""
    fill(History(tmp_path, limit_entries=1), list("abcd"))
    (tmp_path / "history.jsonl.3").rename(tmp_path / "history.jsonl.70")
    (tmp_path / "history.jsonl.1").unlink()
    (tmp_path / "history.jsonl.zst").touch()
    fill(History(tmp_path, limit_entries=1), ["e"])
    for name in ("history.jsonl.01", "history.jsonl.bak", "history.jsonl.", "history.jsonl.x.1"):
        (tmp_path / name).write_bytes((tmp_path / "history.jsonl").read_bytes())

    assert ["a", "b", "d", "e"] == everything(tmp_path)


def test_a_warning_comes_before_the_rollover(tmp_path: Path) -> None:
    """From four fifths of either limit on, and in a process that only reads, too."""
    history = History(tmp_path, limit_entries=10)

    assert history.warning() is None
    fill(history, ["x"] * 7)
    assert history.warning() is None
    fill(history, ["x"])
    expected = "history.jsonl is 80% full and rolls over to history.jsonl.1 when it is"
    assert expected == history.warning()
    size = (tmp_path / "history.jsonl").stat().st_size
    assert expected == History(tmp_path, limit_bytes=size * 10 // 8).warning()


def test_a_rollover_that_cannot_be_done_is_put_off(tmp_path: Path) -> None:
    """Prompts go on being kept, the warning says why, and it is done when it can be."""
    history = History(tmp_path, limit_entries=2)
    (tmp_path / "history.jsonl.lock").mkdir()
    fill(history, ["a", "b", "c"])

    assert "cannot be rolled over: Is a directory" in (history.warning() or "")
    assert not (tmp_path / "history.jsonl.1").exists()
    (tmp_path / "history.jsonl.lock").rmdir()
    fill(history, ["d"])
    assert history.warning() is None
    assert (tmp_path / "history.jsonl.1").exists()
    assert ["a", "b", "c", "d"] == everything(tmp_path)


def test_a_sweep_removes_rolled_files_of_a_month_ago(tmp_path: Path) -> None:
    """By the last prompt, by the file's time when none is readable; never the current one."""
    for days in (90, 40, 30, 60):
        moment = clock(START - timedelta(days=days))
        fill(History(tmp_path, limit_entries=1, now=moment), [f"{days}"])
    for number, days in ((8, 32), (9, 30)):
        path = tmp_path / rollover(number)
        path.write_bytes(b"\0garbage")
        moment_ago = (START - timedelta(days=days)).timestamp()
        os.utime(path, (moment_ago, moment_ago))
    (tmp_path / rollover(7)).symlink_to(tmp_path / rollover(8))
    history = History(tmp_path, now=clock())
    expected = [tmp_path / rollover(number) for number in (2, 3, 8)]
    before = sorted(tmp_path.iterdir())

    assert expected == history.sweep(dry_run=True)
    assert before == sorted(tmp_path.iterdir())
    assert expected == history.sweep()
    assert set(before) - set(expected) == set(tmp_path.iterdir())
    assert [] == history.sweep()
    assert ["30", "60"] == everything(tmp_path)
    assert [] == History(tmp_path / "none").sweep()


# -- damage -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.sampled
def test_damage_costs_only_what_it_touches(tmp_path: Path) -> None:
    """Random bytes changed anywhere: the other prompts are there, in order, and nothing raises."""
    fill(History(tmp_path), prompts := [f"prompt {n} " + "é\u2028" * (n % 7) for n in range(40)])
    path = tmp_path / "history.jsonl"
    undamaged = path.read_bytes()
    ends = [0, *itertools.accumulate(len(line) + 1 for line in undamaged.split(b"\n")[:-1])]
    for seed in range(by_pace(everyday=60, full=100, prove=600)):
        chance, data = Random(seed), bytearray(undamaged)
        hits = [chance.randrange(len(data)) for _ in range(chance.randrange(1, 6))]
        for at in hits:
            data[at] = chance.randrange(256)
        path.write_bytes(data)
        # A line is touched by a change in it or in the LF before it.
        safe = [n for n in range(40) if not any(ends[n] - 1 <= at < ends[n + 1] for at in hits)]

        left = everything(tmp_path)
        assert [prompts[n] for n in safe] == [
            text for text in left if text in {prompts[n] for n in safe}
        ]
        assert len(left) <= 40, seed


@pytest.mark.slow
def test_a_file_cut_anywhere_keeps_what_was_whole(tmp_path: Path) -> None:
    """At every byte: whole lines are read, nothing is cut off, the next prompt stands alone."""
    fill(History(tmp_path), ["a", "b \u2028", "c"])
    path = tmp_path / "history.jsonl"
    undamaged = path.read_bytes()
    for cut in range(len(undamaged) + 1):
        path.write_bytes(undamaged[:cut])
        # A last line that lacks nothing but its LF is whole.
        expected = ["a", "b \u2028", "c"][: (undamaged[:cut] + b"\n").count(b"}\n")]

        assert expected == everything(tmp_path)
        with contextlib.closing(History(tmp_path, disk=Faulty(syncs=False))) as history:
            fill(history, ["next"])
        data = path.read_bytes()
        assert [*expected, "next"] == everything(tmp_path)
        assert data.startswith(
            undamaged[:cut] + b"\n" * (undamaged[cut - 1 : cut] not in (b"", b"\n"))
        )


def test_bad_lines_are_counted_and_blank_ones_are_not(tmp_path: Path) -> None:
    """Each line that is no prompt counts once, whatever is wrong with it."""
    line = b'{"type":"prompt","ts":"","session_id":"","project":null,"prompt":"%s"}'
    bad = [
        b"\0" * 5000,
        line % b"\xff",
        b"[]",
        b"{}",
        b"{" * 100_000,
        b'{"a":' + b"[" * 100_000,
        line.replace(b'"prompt",', b'"other",') % b"x",
        line.replace(b"null", b"7") % b"x",
        line[:40] + line % b"glued",
        line % b"glued" + line % b"twice",
    ]
    good = [line % b"one", b" " + line % b"two" + b"\r", line % b"three"]
    data = b"\n".join([good[0], *bad[:5], b"", b"  ", b"\r", good[1], *bad[5:], good[2]])
    (tmp_path / "history.jsonl").write_bytes(data)
    history = History(tmp_path)

    assert ["three", "two", "one"] == texts(history.recent())
    assert len(bad) == history.skipped
    assert ["one", "two", "three"] == everything(tmp_path)
    history.recent(1)
    assert 0 == history.skipped


@given(data=st.binary(max_size=300), ts=st.text(max_size=12) | st.sampled_from(["0001-01-01", ""]))
def test_no_content_raises(data: bytes, ts: str) -> None:
    """Anything at all may stand in the files, times included."""
    line = {"type": "prompt", "ts": ts, "session_id": "s", "project": None, "prompt": "p"}
    with TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(2):
            content = data + b"\n" + json.dumps(line).encode() + b"\n" + data
            (folder / rollover(number)).write_bytes(content)
        history = History(folder, retain_days=3, disk=Faulty(syncs=False))
        fill(history, ["next"])

        assert "next" == history.recent()[0].prompt
        assert "next" == history.search("")[0].prompt
        assert {"next"} <= {row["prompt"] for row in history.read(reverse=False)}
        history.sweep(dry_run=True)
        history.warning()


@pytest.mark.parametrize("kind", ["a folder", "a symbolic link", "a pipe"])
def test_what_is_no_file_is_refused_and_read_as_nothing(tmp_path: Path, kind: str) -> None:
    """Adding says what is in the way and what to do; reading leaves a notice, and reads on."""
    folder, target = tmp_path / "home", tmp_path / "target"
    history = History(folder, limit_entries=1)
    fill(history, ["rolled", "gone"])
    path = folder / "history.jsonl"
    path.rename(target)
    before = target.read_bytes()
    makers: dict[str, Callable[[], None]] = {
        "a folder": path.mkdir,
        "a symbolic link": lambda: path.symlink_to(target),
        "a pipe": lambda: os.mkfifo(path),
    }
    makers[kind]()

    with pytest.raises(NotAppendable, match=f"is {kind}, not a regular file") as raised:
        fill(history, ["x"])
    assert "move it out of" in (raised.value.hint or "")
    assert ["rolled"] == texts(history.recent())
    assert ["history.jsonl"] == [note.detail.partition(":")[0] for note in history.notes]
    assert history.warning() is None
    assert before == target.read_bytes()


def test_what_is_no_file_among_the_rolled_ones_hides_nothing(tmp_path: Path) -> None:
    """A folder with a number is renamed with the rest and passed over."""
    history = History(tmp_path, limit_entries=1)
    (tmp_path / "history.jsonl.1").mkdir()
    fill(history, ["a", "b", "c"])

    assert ["c", "b", "a"] == texts(history.recent())
    assert ["history.jsonl.3: a folder"] == [note.detail for note in history.notes]


def test_a_home_that_is_no_folder_is_a_clear_error(tmp_path: Path) -> None:
    """Adding says so with a hint; reading finds nothing and leaves a notice."""
    (tmp_path / "home").touch()
    for folder in (tmp_path / "home", tmp_path / "home" / "below"):
        history = History(folder)
        with pytest.raises(NotAppendable, match="cannot add to the history in") as raised:
            fill(history, ["x"])
        assert raised.value.hint
        assert [] == history.recent()
        assert 1 == len(history.notes)


def test_a_failed_write_is_told_and_the_next_one_goes_on(tmp_path: Path) -> None:
    """No prompt is said to be kept when it is not, and a full disk ends nothing."""
    disk = Faulty()
    history = History(tmp_path, disk=disk, limit_entries=2)
    fill(history, ["a"])
    for call in ("write", "datasync", "open", "fsync"):
        disk.faults = {call: errno.ENOSPC}
        with contextlib.suppress(NotAppendable):
            fill(history, [f"during {call}"])
            history.sync()
        disk.faults = {}
        fill(history, [f"after {call}"])
    history.sync()
    prompts = everything(tmp_path)

    assert {"a", "after write", "after datasync", "after open", "after fsync"} <= set(prompts)
    assert "during write" not in prompts


def test_what_a_failed_sync_may_have_lost_is_said_again(tmp_path: Path) -> None:
    """Also when the file was to be left for a new one: told to the caller, then said once more."""
    disk = Faulty()
    history = History(tmp_path, disk=disk, limit_entries=2)
    fill(history, ["a", "b"])
    disk.faults = {"datasync": errno.EIO}
    with pytest.raises(NotAppendable, match="sync"):
        fill(history, ["not kept"])
    disk.faults = {}
    fill(history, ["c"])

    assert [*"ababc"] == everything(tmp_path)
    disk.faults = {"datasync": errno.EIO}
    with pytest.raises(NotAppendable, match="sync"):
        history.close()
    disk.faults = {}
    history.close()
    assert [*"ababcc"] == everything(tmp_path)


def test_a_file_that_goes_bad_under_a_reader_ends_its_reading(tmp_path: Path) -> None:
    """Who clears the file meanwhile, or a bad disk, costs that file's rest; the disk is told of."""
    disk = Faulty()
    history = History(tmp_path, disk=disk, limit_entries=2)
    fill(history, ["a", "b", "c"])
    disk.before["pread"] = lambda: os.truncate(tmp_path / "history.jsonl", 0)

    assert ["b", "a"] == texts(history.recent())
    disk.faults = {"pread": errno.EIO}
    assert [] == history.recent()
    assert ["history.jsonl.1: Input/output error"] == [note.detail for note in history.notes]


def test_no_handle_is_left_open(tmp_path: Path) -> None:
    """Whatever was asked, and however far it was read."""
    before = len(list(Path("/dev/fd").iterdir()))
    history = History(tmp_path, limit_entries=2)
    fill(history, list("abcde"))
    cursor = history.cursor()
    asked = [cursor.up(), history.recent(1), history.read(1), history.search("a"), history.sweep()]
    cursor.close()
    history.warning()
    history.close()

    assert all(asked[:4])
    assert before == len(list(Path("/dev/fd").iterdir()))


# -- several at once --------------------------------------------------------------------------


@pytest.mark.slow
def test_many_processes_lose_double_and_tear_nothing(tmp_path: Path) -> None:
    """Under constant rollovers; who reads meanwhile sees each writer's prompts without a gap."""
    names = [f"w{n}" for n in range(WRITERS)]
    writers = [python(WRITER, tmp_path, name, EACH) for name in names]
    history = History(tmp_path)
    reads = 0
    while any(writer.poll() is None for writer in writers):
        prompts = texts(history.recent(EVERYTHING))[::-1]
        for name in names:
            numbers = [int(text.split()[1]) for text in prompts if text.startswith(f"{name} ")]
            assert list(range(len(numbers))) == numbers
        reads += 1
    codes = [(writer.communicate(timeout=60), writer.returncode)[1] for writer in writers]

    assert [0] * WRITERS == codes
    expected = {f"{w} {n} " + "x" * (n * 37 % 900) for w in names for n in range(EACH)}
    prompts = everything(tmp_path)
    assert (len(expected), expected) == (len(prompts), set(prompts))
    assert reads > 3
    assert len(list(tmp_path.iterdir())) > 8


def test_threads_share_one_history(tmp_path: Path) -> None:
    """One object serves many threads, rollovers, syncs and readers included."""
    history = History(tmp_path, limit_entries=30)

    def work(name: str) -> None:
        for number in range(100):
            history.add(f"{name}{number}", session_id=name)
            if not number % 10:
                history.sync()
                history.recent(5)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    expected = sorted(f"{name}{n}" for name in "abcd" for n in range(100))
    assert expected == sorted(everything(tmp_path))


@pytest.mark.slow
@pytest.mark.sampled
def test_a_killed_writer_loses_and_doubles_nothing_it_had_kept(tmp_path: Path) -> None:
    """At random times, with lines of many sizes: what `add` returned for is there, once, whole."""
    output, _ = python(KILLED, tmp_path, KILLS, 20).communicate(timeout=600)
    counts = [int(line) for line in output.split()]
    history = History(tmp_path)
    prompts = [text.split(" ") for text in texts(history.recent(EVERYTHING))[::-1]]

    assert KILLS == len(counts)
    assert list(range(KILLS)) == [int(number) for name, number, _ in prompts if name == "steady"]
    for name, least in enumerate(counts):
        mine = [int(number) for writer, number, _ in prompts if writer == str(name)]
        assert list(range(len(mine))) == mine
        assert least <= len(mine) <= least + 1  # one may have been written and not yet told
    assert history.skipped <= KILLS
    assert {1, 10, 3_000, 200_000, 4_000_000} >= {len(text) for *_, text in prompts}


@pytest.mark.slow
def test_a_forked_child_finds_its_history_at_rest(tmp_path: Path) -> None:
    """Though another thread was adding just then, parent and children add on, each for itself."""
    process = python(FORKED, tmp_path)
    process.communicate(timeout=60)

    assert 0 == process.returncode
    expected = {f"parent {n}" for n in range(400)} | {f"child {n}" for n in range(20)}
    assert (420, expected) == (len(prompts := everything(tmp_path)), set(prompts))


def test_forgotten_prompts_are_gone_from_all_files_and_others_stay(tmp_path: Path) -> None:
    """Rolled files too, a torn line as well; an id that another prompt quotes is no reason."""
    history = History(tmp_path, limit_entries=4)
    for number in range(10):
        history.add(f"secret {number}", session_id="gone")
        history.add(f"kept {number}", session_id="stays")
    history.add('{"session_id":"gone"} is what I mean', session_id="stays")
    history.add("gone", session_id="stays", project="gone")
    history.close()
    with (tmp_path / "history.jsonl").open("ab") as file:
        file.write(b'{"type":"prompt","ts":"","session_id":"gone","prompt":"secret half')
    size = sum(path.stat().st_size for path in tmp_path.glob("history.jsonl*"))
    counts = [history.forget("gone") for _ in range(2)]
    body = b"".join(path.read_bytes() for path in tmp_path.glob("history.jsonl*"))

    assert [11, 0] == counts
    assert b"secret" not in body
    assert size == len(body)
    assert {"stays": 12} == Counter(prompt.session_id for prompt in history.recent(EVERYTHING))
    assert 0 == history.skipped
    assert 0 == History(tmp_path / "nowhere").forget("gone")
