"""Words that do not count, and words that may have been meant."""

from __future__ import annotations

import pytest

from thence.memory.vocabulary import distance, forms_of, like, nearest, other_number, parts_of


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("parseTideWindow", ["parse", "tide", "window"]),
        ("HTTPServerError", ["http", "server", "error"]),
        ("tide_window_v2", ["tide", "window"]),
        ("plain", []),
        ("", []),
    ],
)
def test_names_have_parts(name: str, parts: list[str]) -> None:
    """Of camelCase and snake_case, with short ones left out; a plain word has none."""
    assert parts == parts_of(name)


@pytest.mark.parametrize(
    ("word", "other"),
    [
        ("migrations", "migration"),
        ("migration", "migrate"),
        ("failed", "failing"),
        ("stopped", "stop"),
        ("tokenisation", "tokenization"),
        ("configuration", "configure"),
        ("queries", "query"),
    ],
)
def test_other_forms_of_a_word_are_known(word: str, other: str) -> None:
    """Plurals, tenses, nouns of verbs, British and American."""
    assert other in forms_of(word)


@pytest.mark.parametrize(
    ("word", "other", "slips"),
    [
        ("tide", "tide", 0),
        ("tide", "tdie", 1),
        ("tide", "tides", 1),
        ("tide", "tid", 1),
        ("tide", "side", 1),
        ("tide", "window", 3),
    ],
)
def test_slips_are_counted(word: str, other: str, slips: int) -> None:
    """A letter more, less, changed or swapped is one."""
    assert slips == distance(word, other)


def test_forms_come_before_near_spellings() -> None:
    """And what is neither is left out."""
    assert ["harbours", "harbout"] == like("harbour", ["harbout", "harbours", "labour", "harbour"])


def test_short_words_are_not_respelled() -> None:
    """Everything would be near to them."""
    assert [] == like("cat", ["car", "bat"])


def test_name_that_was_meant_is_near() -> None:
    """Two slips at most."""
    assert "project" == nearest("projct", ["project", "model"])
    assert nearest("branch", ["project", "model"]) is None


@pytest.mark.parametrize(
    ("word", "other"),
    [
        ("window", "windows"),
        ("Windows", "window"),
        ("entries", "entry"),
        ("entry", "entries"),
        ("keys", "key"),
        ("day", None),
        ("key_name", None),
        ("class", None),
        ("x86", None),
    ],
)
def test_a_word_has_another_number(word: str, other: str | None) -> None:
    """Short words, names and what only looks like a plural have none."""
    assert other == other_number(word)
