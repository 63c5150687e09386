"""The words of a block: what of a payload is worth finding again."""

from __future__ import annotations

import pytest

from thence.format.facts import Block, words_of
from thence.format.records import JSON


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ("plain", "plain"),
        ({"type": "text", "text": "said", "id": "x"}, "said"),
        ({"command": "ls", "why": ["to", "look"]}, "ls\nto\nlook"),
        ([{"type": "image", "source": {"data": "AAAA"}}, {"type": "text", "text": "b"}], "b"),
        ({"type": {"type": "object"}, "name": "schema"}, "object\nschema"),
        ({"type": ["string", "null"]}, "string\nnull"),
        ({"type": 7, "n": None}, ""),
        (None, ""),
    ],
)
def test_words_of_any_payload(payload: JSON, expected: str) -> None:
    """Texts in their order, pictures left out; what calls itself a type may be of any shape."""
    assert expected == words_of(Block("tool_call", "assistant", payload=payload))


def test_words_are_bounded() -> None:
    """However long and deep a payload is, no more is given than was asked for."""
    deep: JSON = "x" * 50
    for _ in range(2000):
        deep = [deep, "y"]

    assert 10 == len(words_of(Block("tool_call", "assistant", payload=deep), limit=10))
