"""Patterns: what several sessions have in common, each with its evidence and nothing without."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.format.derived import judged
from tests.rules import rules
from thence.agents import adapters
from thence.agents.sessions import load
from thence.format import errors
from thence.format.facts import fact_of
from thence.format.session_graph import SessionGraph
from thence.memory.account import Digest
from thence.memory.digest import digest
from thence.memory.gate import Gate
from thence.memory.growth import Growth
from thence.memory.patterns import (
    MAX_EVIDENCE,
    MAX_PATTERNS,
    Memory,
    Pattern,
    memories,
    patterns,
    seen_before,
    unmask,
)
from thence.memory.pricelist import SHIPPED
from thence.memory.readouts import readout_of
from thence.memory.session_timeline import SessionTimeline
from thence.memory.sqlite import Sqlite
from thence.memory.store import SessionRow
from thence.memory.sweep import Sweep
from thence.testing import Draft

NOT_READ = "<tool_use_error>File has not been read yet. Read it first.</tool_use_error>"


class Day(Draft):
    """A session of one day, in one project."""

    def __init__(self, number: int) -> None:
        super().__init__(f"day{number}", start=f"2026-11-{number:02}T08:00:00Z")
        self.header()
        self.prompt(f"Work of day {number}.")

    def did(self, tool: str, text: str = "ok", *, failed: bool = False, **arguments: str) -> None:
        """One call and its result."""
        call = f"c{len(self.events)}"
        self.reply(self.call(call, tool, **arguments))
        self.result(call, text, failed=failed)

    def edited(self, path: str) -> None:
        """One edit."""
        self.did("Edit", file_path=path, old_string="a", new_string="b")

    def tests(self, *, red: bool) -> None:
        """One run of the tests."""
        text = "FAILED t.py::test_tick\n1 failed in 0.1s" if red else "9 passed in 0.1s"
        self.did("Bash", text, failed=red, command="pytest -q")

    def memory(self, repo: str = "tidepool", cwd: str = "/w/tidepool") -> Memory:
        """What is left of it."""
        facts = judged([fact_of(event, line=line) for line, event in enumerate(self.events)])
        session = SessionGraph(f"thence:{self.session}", facts)
        facts = [*session.about_only, *session.facts]
        growth = Growth(session.uid, None, facts, torn=session.torn, prices=SHIPPED)
        row = growth.change(SessionRow(session.session(repo=repo, cwd=cwd))).row
        made = digest(session, row)
        body = msgspec.msgpack.decode(msgspec.msgpack.encode([made.digest, made.signals]))
        (memory,) = memories(
            [{"uid": made.uid, **body[0]}], [{"uid": made.uid, **signal} for signal in body[1]]
        )
        return memory


def patterns_of(kind: str, *past: Memory) -> list[Pattern]:
    """The patterns of one kind."""
    return [pattern for pattern in patterns(past) if pattern.kind == kind]


# -- errors ---------------------------------------------------------------------------------


def unread(number: int, path: str) -> Memory:
    """A session that edits a file it has not read, reads it, and edits it."""
    day = Day(number)
    day.did("Edit", NOT_READ, failed=True, file_path=path, old_string="a", new_string="b")
    day.did("Read", "text", file_path=path)
    day.edited(path)
    return day.memory()


def test_the_same_error_is_told_with_what_helped() -> None:
    """Two sessions, other files, the same error and the same cure."""
    first, second = unread(1, "/w/tidepool/a.py"), unread(2, "/w/tidepool/b.py")
    (error,) = patterns_of("recurring_error", first, second)
    (cure,) = error.cures

    assert "tool: File has not been read yet. Read it first." == error.name
    assert (2, 2, 2) == (error.sessions, error.count, error.data["settled"])
    assert ["thence:day2", "thence:day1"] == [evidence.uid for evidence in error.evidence]
    assert "File has not been read yet. Read it first." == error.evidence[0].quote
    assert ("read the file", 2) == (cure.what, cure.sessions)
    assert all(evidence.events for evidence in (*error.evidence, *cure.evidence))


def test_a_command_that_helped_is_told_without_its_plumbing() -> None:
    """What is done with the output of a command is no part of the cure."""
    past = []
    for number, tail in ((1, ""), (2, " 2>&1 | tail -5")):
        day = Day(number)
        day.did("Bash", "error: unrecognized subcommand 'bun'", failed=True, command="rtk bun test")
        day.did("Bash", "9 pass\n 0 fail", command="rm -rf cache" + tail)
        day.did("Bash", "9 pass\n 0 fail", command="rtk bun test")
        past.append(day.memory())
    (error,) = patterns_of("recurring_error", *past)

    assert [("ran rm -rf cache", 2)] == [(cure.what, cure.sessions) for cure in error.cures]


def test_a_pattern_says_what_all_its_cases_share() -> None:
    """A masked part that is the same everywhere is shown; one that differs stays masked."""
    name = "unrecognized subcommand <name> in <path>"
    same = [f"error: unrecognized subcommand 'bun' in /src/{n}" for n in range(3)]

    assert "unrecognized subcommand 'bun' in <path>" == unmask(name, same)
    assert name == unmask(name, [*same, "error: unrecognized subcommand 'npm' in /src/9"])
    assert name == unmask(name, [*same, "something else"])
    assert "plain" == unmask("plain", ["plain", "plain"])


def test_a_ruler_of_a_terminal_is_no_error() -> None:
    """Though two sessions have it."""
    past = []
    for number in (1, 2):
        day = Day(number)
        day.did("Bash", "Error: xxxxxxxxxxxxxxxx", failed=True, command="bar")
        past.append(day.memory())

    assert ["xxxxxxxxxxxxxxxx"] * 2 == [memory.digest.errors[0].quote[-16:] for memory in past]
    assert [] == patterns_of("recurring_error", *past)


def test_one_session_makes_no_recurring_error() -> None:
    """What happened once is told by its session."""
    day = Day(1)
    for _ in range(5):
        day.did("Edit", NOT_READ, failed=True, file_path="a", old_string="a", new_string="b")

    assert [] == patterns_of("recurring_error", day.memory())


def test_errors_that_nothing_names_are_not_the_same() -> None:
    """An exit code in two sessions is a coincidence."""
    days = [Day(1), Day(2)]
    for day in days:
        day.did("Bash", "", failed=True, command="grep clock a.py")

    assert [] == patterns_of("recurring_error", *(day.memory() for day in days))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("cat: /a/b.txt: No such file or directory", "cat: /c: No such file or directory"),
        ("KeyError: 'a'", "KeyError: 'b'"),
        ("a.go:12:3: undefined: foo", "b.go:7:1: undefined: foo"),
        ("Error: took 12.5 s at 10:11:12", "Error: took 3 s at 2026-01-02T03:04:05Z"),
        ("fatal: bad object 1234abcd99", "fatal: bad object deadbeef01"),
        ("Error: 0x7ffe1 of 3f2504e0-4f89-11d3-9a0c-0305e82c3301", "Error: 0x1 of a1b2c3d4"),
    ],
)
def test_fingerprints_leave_out_what_differs_between_sessions(first: str, second: str) -> None:
    """Paths, names, numbers, hashes and times do not matter; the words do."""
    shapes = {errors.error_shape(f"Exit code 1\n{text}") for text in (first, second)}

    assert 1 == len(shapes - {None})


def test_fingerprints_of_other_errors_differ() -> None:
    """Two errors that only look alike stay two."""
    texts = (
        "KeyError: 'a'",
        "ValueError: 'a'",
        "cat: a: Permission denied",
        "cat: a: Is a directory",
    )

    assert len(texts) == len({errors.error_shape(f"Exit code 1\n{text}") for text in texts})


def test_one_error_can_be_asked_for_by_its_fingerprint() -> None:
    """However few sessions saw it; of two or more it is what the pattern says."""
    first, second = unread(1, "/w/a.py"), unread(2, "/w/b.py")
    name = first.digest.errors[0].fingerprint
    alone, both = seen_before([first], name), seen_before([second, first], name)

    assert alone is not None
    assert (1, first.uid) == (alone.sessions, alone.evidence[0].uid)
    assert patterns_of("recurring_error", first, second) == [both]
    assert seen_before([first], "text: nobody saw this") is None


# -- money ----------------------------------------------------------------------------------


def given_up(number: int, tokens: int) -> Memory:
    """A session that went back from an answer of so many tokens."""
    day = Day(number)
    reply = day.reply("Two ways.")
    day.prompt(f"Try way {number}.")
    day.reply("Tried.", usage=(tokens, 10))
    day.rewind(reply)
    day.reply("Works.")
    return day.memory()


def test_detours_in_one_folder_are_one_pattern() -> None:
    """With the money of all, the costliest session first, and what was asked there."""
    (detour,) = patterns_of(
        "costly_detour", given_up(1, 2000), given_up(2, 90_000), given_up(3, 5000)
    )

    assert ("work was discarded in /w/tidepool", 3, 3) == (
        detour.shared,
        detour.sessions,
        detour.count,
    )
    assert 97_030 == detour.data["tokens"]
    assert [("thence:day2", "Try way 2."), ("thence:day3", "Try way 3.")] == [
        (proof.uid, proof.quote) for proof in detour.evidence[:2]
    ]
    assert detour.data["ticks"] > 0


def test_one_session_makes_no_detour() -> None:
    """However often it went back, and however much that cost."""
    assert [] == patterns_of("costly_detour", given_up(1, 90_000))
    assert [] == patterns_of("costly_detour", looped(1, "make release"), looped(2, "make docs"))


def looped(number: int, command: str) -> Memory:
    """A session in which a command fails again and again."""
    day = Day(number)
    for _ in range(4):
        day.did("Bash", "make: *** Error 2", failed=True, command=command)
    return day.memory()


def test_a_call_that_keeps_failing_in_several_sessions_is_a_detour() -> None:
    """Trying the same again costs as well."""
    (detour,) = patterns_of("costly_detour", looped(1, "make release"), looped(2, "make release"))

    assert ("make release", "kept failing: make release") == (detour.name, detour.shared)
    assert ("retry_loop", 2 * 4 * 1280) == (detour.data["signal"], detour.data["tokens"])


@pytest.mark.slow
def test_so_many_detours_are_told_and_no_more() -> None:
    """The list is for reading."""
    past = [
        looped(1 + day, f"make part{number}")
        for number in range(MAX_PATTERNS + 2)
        for day in range(2)
    ]

    assert MAX_PATTERNS == len(patterns_of("costly_detour", *past))


# -- files and tests ------------------------------------------------------------------------


def broke(number: int, path: str, times: int, **where: str) -> Memory:
    """A session in which tests are red after edits of a file."""
    day = Day(number)
    for _ in range(times):
        day.edited(path)
        day.tests(red=True)
    day.edited(path)
    day.tests(red=False)
    return day.memory(**where)


def test_a_file_that_keeps_breaking_is_told() -> None:
    """In two checkouts of one project it is the same file."""
    first = broke(1, "/w/tidepool/clock.py", 2)
    second = broke(2, "/w/two/clock.py", 1, cwd="/w/two")
    (file,) = patterns_of("breaking_file", first, second)

    assert ("clock.py", 2, 3) == (file.name, file.sessions, file.count)
    assert {"project": "tidepool", "edits": 5} == file.data
    assert "1 of 2 runs of pytest failed" == file.evidence[0].quote
    assert all(evidence.events for evidence in file.evidence)


def test_files_of_one_name_in_two_projects_are_two() -> None:
    """A name alone says nothing."""
    first = broke(1, "/w/tidepool/clock.py", 2)
    second = broke(2, "/w/tidepool/clock.py", 2, repo="another")

    assert [] == patterns_of("breaking_file", first, second)


def test_a_file_that_broke_now_and_then_does_not_keep_breaking() -> None:
    """Once in each of two sessions is work."""
    assert [] == patterns_of("breaking_file", broke(1, "a.py", 1), broke(2, "a.py", 1))


def test_a_flaky_test_is_told_by_its_name() -> None:
    """Two sessions saw it; what one session saw is told by that session."""
    past = []
    for number in (1, 2):
        day = Day(number)
        day.tests(red=True)
        day.tests(red=False)
        past.append(day.memory())
    (both,) = patterns_of("flaky_test", *past)

    assert ("t.py::test_tick", 2, 2) == (both.name, both.sessions, both.count)
    assert "both results without an edit: t.py::test_tick" == both.shared
    assert [] == patterns_of("flaky_test", past[0])
    assert 2 == len(both.evidence[0].events)


# -- all ------------------------------------------------------------------------------------


@pytest.mark.slow
@given(st.permutations([1, 2, 3, 4, 5, 6, 7]))
def test_the_order_of_sessions_changes_nothing(order: list[int]) -> None:
    """The same memories give the same patterns; only so much evidence is quoted."""
    by_number = {number: unread(number, f"/w/tidepool/{number}.py") for number in order}
    (error,) = patterns_of("recurring_error", *(by_number[number] for number in order))

    assert MAX_EVIDENCE == len(error.evidence)
    assert "thence:day7" == error.evidence[0].uid


def test_digests_of_another_version_are_left_out() -> None:
    """What a newer program wrote is not guessed at."""
    digest = msgspec.to_builtins(Digest(99, "claude", "success", 0.5, ()))

    assert [] == memories([{"uid": "claude:x", **digest}])
    assert [] == patterns([])


def test_what_a_store_keeps_can_be_asked(shared: Path, tmp_path: Path) -> None:
    """Real sessions, swept: the error that five of them share, with what helped all of them."""
    store = Sqlite(str(tmp_path / "s.db"))
    with store.sweeping():
        reader = Sweep(store, adapters(), Gate(key=b"a key for tests, 32 bytes long!!"), rules())
        reader.run({"claude": [shared / "data/public/claude/context-evaluator"]})
    known = memories(store.read_table("digests"), store.read_table("signals"))
    store.close()
    error = patterns_of("recurring_error", *known)[0]

    assert "error: error: unrecognized subcommand <name>" == error.name
    assert ("ran bun run test", error.sessions) == (error.cures[0].what, error.cures[0].sessions)


@pytest.mark.slow
def test_a_real_session_says_the_same_twice(shared: Path) -> None:
    """The largest public session gives the same digest whenever it is read."""
    (path,) = (shared / "data/public/codex").rglob("*97b66f6c*.jsonl")
    first, second = (load(path).graph for _ in range(2))

    assert SessionTimeline(readout_of(first)).line == SessionTimeline(readout_of(second)).line
    assert [e.event_id for e in first.derived] == [e.event_id for e in second.derived]
