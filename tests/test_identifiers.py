"""The vocabulary of the code: names say what a thing is, and a class name means one thing.

Things are nouns, functions are verbs, docstrings say what is returned. Exceptions stand here, each
with its reason.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "thence"

BANNED = frozenset({"told", "said", "found", "given", "one", "kept", "held", "whole"})
"""Words that say how something came about instead of what it is."""

ALLOWED = {
    ("format/facts.py", "told"): "a field of Fact: FROZEN, share files and exports name it",
}
"""Where a banned word stays, and why."""

SHARED = {
    "Journal": "the root gives it out lazily, under the name that it has in journal/",
    "Session": "the session that is written, and the normalised record of any (DECISIONS 3)",
}
"""Public class names that more than one module defines, and why."""


PROSE = re.compile(
    r'''"""(?:[^\\]|\\.)*?"""|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|#[^\n]*''', re.DOTALL
)
"""Texts and comments of a module."""
BANNED_WORD = re.compile(rf"\b_*(?:{'|'.join(sorted(BANNED))})_*\b", re.IGNORECASE)


def sources() -> Iterator[tuple[str, str]]:
    """Yield every module of the package: its name below the package, and its text."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8")


def suspects() -> Iterator[tuple[str, ast.Module]]:
    """Yield the modules whose code has a banned word; parsing all of them takes seconds."""
    for name, text in sources():
        if BANNED_WORD.search(PROSE.sub("", text)):
            yield name, ast.parse(text)


def defined(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield every name that a module defines: functions, parameters, variables, attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def banned_names(name: str, tree: ast.Module) -> list[str]:
    """Return where a module defines a banned name that no exception allows."""
    return [
        f"{name}:{line} {word}"
        for line, word in defined(tree)
        if word.strip("_").lower() in BANNED and (name, word.strip("_")) not in ALLOWED
    ]


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of functions and classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            text = ast.get_docstring(node)
            if text:
                yield node.lineno, text


@pytest.mark.slow
def test_names_say_what_a_thing_is() -> None:
    """No identifier is a word that says how something came about."""
    wrong = [place for name, tree in suspects() for place in banned_names(name, tree)]

    assert [] == wrong


@pytest.mark.slow
def test_docstrings_say_what_is_returned() -> None:
    """They say "Return", not "Give"."""
    wrong = [
        f"{name}:{line}"
        for name, source in sources()
        if '"""Give ' in source
        for line, text in docstrings(ast.parse(source))
        if text.startswith("Give ")
    ]

    assert [] == wrong


@pytest.mark.slow
def test_a_public_class_name_is_used_once() -> None:
    """Whoever reads a class name knows which class is meant."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for name, text in sources():
        for defined_class in re.findall(r"^class ([A-Za-z]\w*)", text, re.MULTILINE):
            places[defined_class].append(name)

    assert {} == {
        name: where for name, where in places.items() if len(where) > 1 and name not in SHARED
    }


@pytest.mark.slow
def test_every_exception_is_needed() -> None:
    """An exception whose name is gone goes, too."""
    used = {
        (name, word.strip("_"))
        for name, tree in suspects()
        for _, word in defined(tree)
        if word.strip("_") in BANNED
    }

    assert set() == set(ALLOWED) - used


@pytest.mark.parametrize(
    "source", ["told = 1", "def kept(): ...", "def f(one): ...", "self.held = 1"]
)
def test_a_planted_name_is_seen(source: str) -> None:
    """The check can fail."""
    assert banned_names("x.py", ast.parse(source))
