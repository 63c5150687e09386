"""The vocabulary of the code: names say what a thing is, and a class name means one thing.

Things are nouns, functions are verbs, docstrings say what is returned. This holds for the package,
for the examples, for everything that measures, proves and builds, and for the tests. Exceptions
stand here, each with its reason.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

FOLDERS = ("src/thence", "examples", "bench", "prove", "truth", "scripts")
"""Each is a namespace: whoever reads a class name in one of them knows which class is meant."""

TESTS = "tests"
"""Its names and docstrings are checked too; a class of a test module is read in that module alone,
so that its name may stand in another one as well."""

PROGRAMS = ("scripts/clients", "scripts/shots", "scripts/team-demo")
"""Python without a suffix."""

BANNED = frozenset({"told", "said", "found", "given", "one", "kept", "held", "whole"})
"""Words that say how something came about instead of what it is."""

ALLOWED = {
    ("src/thence/format/facts.py", "told"): "a field of Fact: FROZEN, exports name it",
}
"""Where a banned word stays, and why."""

SHARED = {
    ("src/thence", "Session"): "what is written, and the normalised record of any (DECISIONS 3)",
}
"""Public class names that more than one module of a folder defines, and why."""


PROSE = re.compile(
    r'''"""(?:[^\\]|\\.)*?"""|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|#[^\n]*''', re.DOTALL
)
"""Texts and comments of a module."""
HYPOTHESIS = re.compile(r"@given\b|\bimport given\b")
"""A decorator of many tests, which somebody else named."""
BANNED_WORD = re.compile(rf"\b_*(?:{'|'.join(sorted(BANNED))})_*\b", re.IGNORECASE)
PUBLIC_CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)


def sources(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Yield every module that is checked: its path below the root, and its text."""
    folders = (*FOLDERS, TESTS)
    paths = [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]
    for path in (*paths, *(root / name for name in PROGRAMS)):
        name = path.relative_to(root).as_posix()
        if path.is_file():
            yield name, path.read_text(encoding="utf-8")


@cache
def suspects(root: Path = ROOT) -> list[tuple[str, ast.Module]]:
    """Return the modules whose code has a banned word; parsing all of them takes seconds."""
    return [
        (name, ast.parse(text))
        for name, text in sources(root)
        if BANNED_WORD.search(HYPOTHESIS.sub("", PROSE.sub("", text)))
    ]


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


def wrong_docstrings(root: Path = ROOT) -> list[str]:
    """Return where a docstring begins with "Give"."""
    return [
        f"{name}:{line}"
        for name, source in sources(root)
        if '"""Give ' in source
        for line, text in docstrings(ast.parse(source))
        if text.startswith("Give ")
    ]


def repeated_classes(root: Path = ROOT) -> dict[tuple[str, str], list[str]]:
    """Return the modules that define a public class, for classes that a folder has twice."""
    places: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for name, text in sources(root):
        for folder in FOLDERS:
            if name.startswith(f"{folder}/"):
                for class_name in PUBLIC_CLASS.findall(text):
                    places[folder, class_name].append(name)
    return {key: where for key, where in places.items() if len(where) > 1}


@pytest.mark.slow
def test_names_say_what_a_thing_is() -> None:
    """No identifier is a word that says how something came about."""
    wrong = [place for name, tree in suspects() for place in banned_names(name, tree)]

    assert [] == wrong


@pytest.mark.slow
def test_docstrings_say_what_is_returned() -> None:
    """They say "Return", not "Give"."""
    assert [] == wrong_docstrings()


@pytest.mark.slow
def test_a_public_class_name_is_used_once() -> None:
    """Whoever reads a class name knows which class is meant."""
    assert set(SHARED) == set(repeated_classes())


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


def test_every_folder_and_program_is_checked() -> None:
    """A folder that was moved would be checked no more."""
    names = [name for name, _ in sources()]

    folders = {*FOLDERS, TESTS}
    assert folders == {folder for folder in folders for name in names if name.startswith(folder)}
    assert {*PROGRAMS} <= {*names}


@pytest.mark.parametrize(
    "source", ["told = 1", "def kept(): ...", "def f(one): ...", "self.held = 1"]
)
def test_a_planted_name_is_seen(source: str) -> None:
    """The check can fail."""
    assert banned_names("x.py", ast.parse(source))


@pytest.mark.parametrize("folder", [*FOLDERS, TESTS])
def test_a_violation_is_seen_in_every_folder(tmp_path: Path, folder: str) -> None:
    """A banned name, a docstring that begins with "Give", and a class that is there twice."""
    place = tmp_path / folder
    place.mkdir(parents=True)
    (place / "first.py").write_text("class Row:\n    '''A row.'''\n\ntold = 1\n")
    (place / "second.py").write_text('class Row:\n    """Give a row."""\n')
    names = [place for name, tree in suspects(tmp_path) for place in banned_names(name, tree)]
    repeated = {(folder, "Row"): [f"{folder}/first.py", f"{folder}/second.py"]}

    assert [f"{folder}/first.py:4 told"] == names
    assert [f"{folder}/second.py:1"] == wrong_docstrings(tmp_path)
    assert ({} if folder == TESTS else repeated) == repeated_classes(tmp_path)
