"""Frames: what is inside them cannot get out, hide, or grow."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.serve.untrusted_text import (
    MAX_ANSWER_CHARS,
    QUOTE,
    flatten,
    frame_answer,
    quote_lines,
    strip_invisible,
)

HIDDEN = [
    "\x1b[31m",
    "\x00",
    "\x9b",
    "\u202e",
    "\u2066",
    "\u200b",
    "\ufeff",
    "\u00ad",
    "\U000e0041\U000e0042",
    "\ufe0f",
    "\U000e0100",
    "\u3164",
    "\ud800",
    "\ue000",
    "\u2028",
]


@pytest.mark.parametrize("sign", HIDDEN)
def test_what_hides_or_reorders_is_gone(sign: str) -> None:
    """Controls, marks of direction, tags, selectors, fillers, private signs, halves."""
    shown = strip_invisible(f"a{sign}b")

    assert "a" == shown[0]
    assert "b" == shown[-1]
    assert not set(sign) & set(shown) - set("[31m")


def test_letters_of_all_scripts_stay() -> None:
    """Nothing that is seen is lost."""
    text = "naïve Straße 日本語 עברית العربية हिन्दी 🦀 → ≤ “x”"

    assert text == strip_invisible(text)


@given(st.lists(st.text(max_size=300), max_size=60), st.text(max_size=80))
def test_a_frame_is_two_lines_with_one_boundary(lines: list[str], origin: str) -> None:
    """Whatever stands inside: bounded, closed once, and without anything that is not seen."""
    text = frame_answer(origin, lines)
    framed = text.split("\n")
    head, end = framed[0], framed[-1]
    boundary = head[1:17]

    assert re.fullmatch(r"[0-9a-f]{16}", boundary)
    assert f"[{boundary} end of data]" == end
    assert 2 == text.count(boundary)
    assert len(text) <= MAX_ANSWER_CHARS
    hidden = {c for c in text if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Co"}}
    assert hidden <= {"\n"}


def test_no_two_answers_have_the_same_boundary() -> None:
    """Who saw one cannot end the next."""
    assert 100 == len({frame_answer("x", [])[:18] for _ in range(100)})


def test_lines_that_do_not_fit_are_counted() -> None:
    """Nothing is left out silently, and nothing small slips in behind what was left out."""
    text = frame_answer("x", ["a" * 2000] * 5 + ["last"])

    assert "(4 more lines omitted)" in text
    assert "last" not in text


@given(st.text(max_size=400))
def test_quoted_lines_all_begin_with_a_mark(text: str) -> None:
    """No line of a text can pass for one of ours, whatever ends its lines."""
    lines = list(quote_lines(text, 1000))

    assert all(line.startswith(QUOTE) for line in lines)
    assert not any("\n" in line or "\r" in line for line in lines)


def test_long_texts_are_cut_and_say_so() -> None:
    """In one line by a sign, in many by a count."""
    assert "aaaa…" == flatten("a" * 50, 5)
    assert "a b" == flatten(" a\n\tb ", 5)
    assert ["| aa", "(3 more characters)"] == list(quote_lines("aaaaa", 2))


def test_a_huge_text_costs_no_more_than_what_is_shown() -> None:
    """Only the beginning is looked at."""
    huge = "\u202e" * 10_000_000

    assert "" == flatten(huge, 10).strip("…")
    assert 2 == len(list(quote_lines(huge, 10)))
