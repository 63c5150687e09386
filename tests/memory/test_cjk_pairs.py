"""Pairs: what goes to the index, and where it stands in the text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.memory import cjk_pairs
from thence.memory.cjk_pairs import index_text, place_in, search_term, usual_form
from thence.team.postgres_search import words_in

VARIANTS = "a\uff211\uff11 かが\u3099ｶﾞｱ修復한\u1112\u1161\u11ab\uf900.é"


@pytest.mark.parametrize("text", ["", "plain", "café naïve ΣΊΣΥΦΟΣ", "“quotes” — ✓ 🦀 Привет"])
def test_other_text_goes_to_the_index_as_it_is(text: str) -> None:
    """Letters of other scripts are left to the tokenizer."""
    assert text == index_text(text)


@given(st.text(VARIANTS))
def test_a_place_in_the_usual_form_leads_back_to_the_text(text: str) -> None:
    """What stands from there on is the same in its usual form."""
    usual = usual_form(text)
    places = [place_in(text, place) for place in range(len(usual) + 1)]

    assert sorted(places) == places
    assert [len(text), usual] == [places[-1], usual_form(text[: places[-1]])]


@given(st.text("修复登录错误かなカナ한글 ab,"), st.data())
def test_any_part_of_a_text_is_a_phrase_of_its_words(text: str, data: st.DataObject) -> None:
    """Its words stand one after the other among those of the text, if it begins at one."""
    start = data.draw(st.integers(0, len(text)))
    term = search_term(text[start:], is_prefix=False)
    words = words_in(index_text(text))
    asked = words_in(" ".join(term.words))
    if text[:start][-1:] in ("a", "b"):
        return  # other scripts are found by the beginning of a word
    size = len(asked)

    assert any(
        words[at : at + size - 1] == asked[:-1]
        and (words[at + size - 1].startswith(asked[-1]) if asked else True)
        for at in range(len(words) - size + 1)
    )


def test_bytes_tell_which_texts_have_no_such_character() -> None:
    """For every seventh character there is, beside another."""
    every = [chr(code) for code in range(0x80, 0x40000) if not 0xD800 <= code < 0xE000][::7]

    assert [bool(cjk_pairs._ANY.search(sign)) for sign in every] == [
        cjk_pairs.has_characters(f"→ {sign}") for sign in every
    ]
