"""What of a call's result is worth a line."""

from __future__ import annotations

import pytest

from thence.cli.session_text import answer_of, run_of, telling_line
from thence.format import testruns


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
    assert line == telling_line(text, at_end=at_end)


@pytest.mark.parametrize(
    ("text", "line"), [("<x>y</x>\n\nfine\nmore", "fine"), ("<x>\n<y>", "<x>"), ("", "")]
)
def test_answer_is_the_first_line_that_is_no_mark_up(text: str, line: str) -> None:
    """Of a subagent's report."""
    assert line == answer_of(text)


def test_tests_are_said_in_words() -> None:
    """What failed first; what there is none of is not said."""
    assert "2 failed, 1,041 passed" == run_of(
        testruns.Tests("pytest", passed=1041, failed=2, skipped=0)
    )
