"""What is marked: whole words, beginnings while a word is typed, by one rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from thence.memory.highlighting import NOTHING, marking_of
from thence.memory.packs import Packs
from thence.memory.search import (
    CLOSE,
    OPEN,
    SearchAnswer,
    SearchMatch,
    begun,
    hits,
    parse,
    snippet,
)

MARKED_TERMS = [("exit", "code", "2"), ("curs*",), ("file not", "found"), ("login", "错误"), ("é",)]
MARKED_TEXTS = [
    "at 23:13 gcode: exit_code 2, 22, v2, 2",
    "EXIT Code=2",
    "cursors curs Precursor",
    "the File not_Found, profile nothing",
    "修复login错误 logins",
    "é été",
]
"""Terms and texts that the browser is asked to mark as well."""


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("exit code 2", "23:13 gcode exit code 2, 22", "23:13 gcode [exit] [code] [2], 22"),
        ("code", "gcode codes code", "gcode codes [code]"),
        ("exit_code", "exit-code exit codes", "[exit-code] exit codes"),
        ("curs*", "cursor precursor", "[curs]or precursor"),
        ('"exit code"', "exit, code exits code", "[exit, code] exits code"),
        ("修", "维修login", "维[修]login"),
        ("login", "维修login了", "维修[login]了"),
        ("Ä", "ä häuser", "[ä] häuser"),
    ],
)
def test_whole_words_are_marked(query: str, text: str, expected: str) -> None:
    """Not a part of another word, time or number; an underscore is a gap."""
    shown = snippet(text, parse(query).terms)

    assert expected == shown.replace(OPEN, "[").replace(CLOSE, "]")


def test_only_the_word_that_is_typed_is_a_beginning() -> None:
    """A space behind it ends it; a phrase and a filter have no beginnings."""
    typed = [
        parse(begun(text)).terms for text in ("exit co", "exit co ", '"exit co"', "exit agent:co")
    ]

    assert [("exit", "co*"), ("exit", "co"), ("exit co",), ("exit",)] == typed


def test_a_word_that_a_snippet_cuts_is_not_another_word() -> None:
    """Neither at its beginning nor at its end."""
    text = "2" * 100 + " 2 " + "ab" * 200

    assert 1 == snippet(text, ["2", "a", "b", "ab"]).count(OPEN)


def test_words_that_were_looked_for_instead_are_marked(tmp_path: Path) -> None:
    """The answer names them; the terms that were typed are nowhere."""
    match = SearchMatch("claude:a", None, 0, "title", None, None, 1.0, text="two cursors here")
    answer = SearchAnswer([match], how="near", instead=(("cursers", "cursors or curser"),))
    [hit] = hits(answer, parse("cursers"), Packs(tmp_path)).hits

    assert f"two {OPEN}cursors{CLOSE} here" == hit.snippet


def test_nothing_marks_nothing() -> None:
    """A query of filters alone leaves texts as they are."""
    assert not NOTHING
    assert not marking_of(("->", "..."))
    assert "" == NOTHING.script
    assert [] == NOTHING.spans("text")
    assert NOTHING.first("text") is None
    assert not NOTHING.is_met("text")
