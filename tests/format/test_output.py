"""Whatever a client puts around an output, its text, exit code and lines are found."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given

from tests.format import foreign
from thence.format import output
from thence.format.output import CLIP, LINES, Row


@pytest.mark.parametrize("row", output.ENVELOPES, ids=lambda row: row.name)
def test_every_envelope_is_found_by_its_own_row_first(row: Row) -> None:
    """No row is shadowed by one above it, and none takes its near miss."""
    assert row == output.first(output.ENVELOPES, row.yes)
    assert not re.match(row.pattern, row.no)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("plain", "plain"),
        (None, ""),
        (7, ""),
        ([{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}], "a\nb"),
        ({"stdout": "out", "stderr": "err", "code": 1}, "out\nerr"),
        ({"content": [{"text": "deep"}]}, "deep"),
        ({"NoMatchesFound": {"message": "none"}}, "none"),
        ([[[[["too deep"]]]]], ""),
        (["x"] * 100, "\n".join(["x"] * 64)),
    ],
)
def test_results_of_every_shape_have_a_text(result: Any, expected: str) -> None:
    """Blocks, structures and nested ones become the text a human would read."""
    assert expected == output.text(result)


def test_of_a_long_result_both_ends_are_kept() -> None:
    """A cut text is longer than any whole one, so that the cut can be told."""
    text = "a" * CLIP + "b" * CLIP

    assert text == output.text(text)
    assert "a" * CLIP + "\n" + "b" * CLIP == output.text("a" * CLIP + "-" + "b" * CLIP)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fine", (None, "fine")),
        ("Exit code 2\nuse", (2, "use")),
        ("exit: -1\nTrace", (-1, "Trace")),
        ("Exit code: 0\nWall time: 0 seconds\nOutput:\nExit code: 9", (0, "Exit code: 9")),
        ("Wall time: 1 seconds\nOutput:\nx", (None, "x")),
        ('{"output":"a\\nb","metadata":{"exit_code":7}}', (7, "a\nb")),
        ('{"output":"a\\nb", and so on "metadata": {"exit_code":7}',
         (7, '{"output":"a\nb", and so on "metadata": {"exit_code":7}')),
        ('{"output":5,"metadata":{"exit_code":7}}', (7, "")),
        ('{"output":"a"}', (None, '{"output":"a"}')),
    ],
)  # fmt: skip
def test_an_envelope_gives_its_exit_code_and_the_output(
    text: str, expected: tuple[int | None, str]
) -> None:
    """What the client added is taken off, and only what stands at the start is the client's."""
    assert expected == output.open_envelope(text)


def test_lines_are_bare_of_colours_and_blanks() -> None:
    """Colour, closing space and empty lines say nothing."""
    assert ["  red", "end"] == output.lines("\x1b[31m  red\x1b[0m  \n\n \t\nend\n")


def test_of_many_lines_the_first_and_last_are_kept() -> None:
    """What closes an output stands at its end, what opens it at its start."""
    lines = [str(n) for n in range(3 * LINES)]

    assert lines[:LINES] + lines[-LINES:] == output.lines("\n".join(lines))
    assert lines[: 2 * LINES] == output.lines("\n".join(lines[: 2 * LINES]))


@given(foreign.json_values | foreign.scripts)
def test_nothing_raises_and_no_text_is_long(result: Any) -> None:
    """Results of every shape are read, and never more than their ends."""
    text = output.text(result)
    _, body = output.open_envelope(text)

    assert len(body) <= len(text) <= 2 * CLIP + 1
    assert all(line.strip() for line in output.lines(body))
