"""Expressions compiled late: what `re.compile` gives, and every one of ours can be compiled."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest

import thence
from thence.format.expressions import Late, expression
from thence.format.output import Table

OURS = ("thence.format", "thence.memory", "thence.agents")


def late() -> Iterator[Late[str] | Late[bytes]]:
    """All that stand in modules, in tables of theirs, and in those of `output`."""
    for module in pkgutil.walk_packages(thence.__path__, "thence."):
        if not module.name.startswith(OURS):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Late):
                yield value
            elif isinstance(value, Table):
                yield from (pattern for pattern in [value.any, *(p for _, p in value.each)])  # type: ignore[misc]
            elif isinstance(value, tuple):
                cells = [cell for row in value if isinstance(row, tuple) for cell in row]
                yield from (cell for cell in cells if isinstance(cell, Late))


def test_every_one_can_be_compiled() -> None:
    """Which importing their modules does not show."""
    patterns = list(late())

    assert 150 < len(patterns)
    for pattern in patterns:
        pattern.match  # noqa: B018 - it is compiled now, or raises


@pytest.mark.parametrize(
    ("text", "flags", "haystack"),
    [(r"(a+)(?P<b>b?)", 0, "xaab aa"), ("É", re.IGNORECASE, "é"), ("^b$", re.MULTILINE, "a\nb\nc")],
)
def test_it_does_what_a_compiled_one_does(text: str, flags: int, haystack: str) -> None:
    """Asked for the first time and again."""
    lazy, real = expression(text, flags), re.compile(text, flags)
    for _ in range(2):
        assert real.findall(haystack) == lazy.findall(haystack)
        assert real.sub("-", haystack) == lazy.sub("-", haystack)
        assert real.split(haystack) == lazy.split(haystack)
        assert [match.span() for match in real.finditer(haystack)] == [
            match.span() for match in lazy.finditer(haystack)
        ]
        assert (real.pattern, real.flags) == (lazy.pattern, lazy.flags)
        assert (real.groups, real.groupindex) == (lazy.groups, lazy.groupindex)


def test_nothing_is_compiled_before_it_is_asked_for() -> None:
    """A wrong one is told then, by the error that `re` has for it."""
    wrong = expression("(")

    with pytest.raises(re.error):
        wrong.match("x")
