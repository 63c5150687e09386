"""Parts of messages in the shape of the Gemini API."""

from __future__ import annotations

from typing import Any

import pytest

from thence.agents import gemini_parts
from thence.format.records import Usage

ANYTHING: tuple[Any, ...] = (
    None,
    True,
    7,
    "",
    "x",
    [],
    [7, "y", None],
    {},
    {"text": 7},
    [{"a": {}}],
)
NAMES = ("input", "output", "cached", "thoughts", "total")


@pytest.mark.parametrize("content", ANYTHING)
def test_no_content_raises(content: Any) -> None:
    """Whatever stands in a message."""
    list(gemini_parts.answer_blocks(content)), list(gemini_parts.calls_in(content))
    list(gemini_parts.responses_in(content)), gemini_parts.summary_blocks(content)
    gemini_parts.text_of_parts(content)

    assert isinstance(gemini_parts.parts_of(content), list)


@pytest.mark.parametrize("value", ANYTHING)
def test_no_output_raises(value: Any) -> None:
    """A function may give anything."""
    assert not gemini_parts.output_of({"response": value})[1]
    assert gemini_parts.output_of({"response": {"error": value}})[1]


def test_thoughts_beside_the_output_are_added_and_those_in_it_are_not() -> None:
    """The total tells which of both it is."""
    beside = {"input": 100, "output": 10, "cached": 40, "thoughts": 5, "total": 115}
    inside = {**beside, "total": 110}

    assert Usage(60, 15, 0, 40) == gemini_parts.usage_of_counts(beside, NAMES)
    assert Usage(60, 10, 0, 40) == gemini_parts.usage_of_counts(inside, NAMES)
    assert None is gemini_parts.usage_of_counts({}, NAMES)


def test_an_image_stays_an_image() -> None:
    """As the Messages API has it."""
    (block,) = gemini_parts.answer_blocks([{"inlineData": {"mimeType": "image/png", "data": "aa"}}])

    assert {"type": "base64", "media_type": "image/png", "data": "aa"} == block.payload["source"]
