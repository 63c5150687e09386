"""How a call went, put together from its result and from what other records tell."""

from __future__ import annotations

import pytest

from thence.cli.calls import Pair, answer_of, run_of, telling
from thence.format import joins, kinds
from thence.format.facts import Told
from thence.format.normal import SessionEvent


def pair(
    *, ended: bool = True, told: Told | None = None, took: int | None = None, **given: str
) -> Pair:
    """A call of a shell a minute before its result."""
    call = SessionEvent(
        "a:b", 1, "tool_call", ts="2026-01-01T00:00:00Z", tool="Bash", payload=given
    )
    result = SessionEvent("a:b", 2, "tool_result", ts="2026-01-01T00:01:00Z", took_ms=took)
    ending = kinds.Ending(failed=False, exit_code=0) if ended else None
    return Pair(joins.Call(call, result if ended else None, ending), told)


def test_what_another_record_tells_comes_first() -> None:
    """Exit code, time, failure."""
    one = pair(told=Told("c", failed=True, exit_code=2, took_ms=5), took=9)

    assert (2, 5, True, True) == (one.exit_code, one.took, one.failed, one.ended)


def test_time_is_taken_from_the_result_then_from_the_clock() -> None:
    """But not for what is done at once: there it is the time somebody took to allow it."""
    edit = SessionEvent("a:b", 1, "tool_call", tool="Edit", payload={"file_path": "a"})

    assert 9 == pair(took=9).took
    assert 60_000 == pair(command="make").took
    assert None is Pair(joins.Call(edit, pair().call.result, None)).took
    assert None is pair(ended=False).took


def test_call_ended_if_anybody_says_so() -> None:
    """Its result, or another record."""
    assert [True, False, True, False] == [
        one.ended
        for one in (
            pair(),
            pair(ended=False),
            pair(ended=False, told=Told("c")),
            pair(ended=False, told=Told("c", ended=False)),
        )
    ]


@pytest.mark.parametrize(
    ("text", "at_end", "line"),
    [
        ("make\nmake: *** Error 2\n\n", True, "make: *** Error 2"),
        ("<tool_use_error>no such file\nx", False, "no such file"),
        ("Exit code 3\nboom", True, "boom"),
        ("", True, ""),
    ],
)
def test_line_that_tells_most_is_found(text: str, at_end: bool, line: str) -> None:
    """A program's last, a tool's first."""
    assert line == telling(text, at_end=at_end)


@pytest.mark.parametrize(
    ("text", "line"), [("<x>y</x>\n\nfine\nmore", "fine"), ("<x>\n<y>", "<x>"), ("", "")]
)
def test_answer_is_the_first_line_that_is_no_mark_up(text: str, line: str) -> None:
    """Of a subagent's report."""
    assert line == answer_of(text)


def test_tests_are_said_in_words() -> None:
    """What failed first; what there is none of is not said."""
    assert "2 failed, 1,041 passed" == run_of(
        kinds.Tests("pytest", passed=1041, failed=2, skipped=0)
    )
