"""Text on a terminal: nothing in it is obeyed, no line is wider than the screen."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.cli.terminal import (
    TEXT_WIDTH,
    as_json,
    clean,
    columns,
    cut,
    escape,
    format_duration,
    justify,
    pad_to,
    say,
    several,
    short,
    size,
    width,
    wrap,
)
from thence.errors import NotReadable

MARK = "\N{REPLACEMENT CHARACTER}"

HOSTILE = [
    "\x00",
    "\x07",
    "\x08",
    "\n",
    "\r",
    "\x0b",
    "\x1b",
    "\x7f",
    "\x80",
    "\x85",
    "\x9b",
    "\x9d",
    "\u061c",
    "\u200b",
    "\u200d",
    "\u200e",
    "\u200f",
    "\u2028",
    "\u2029",
    "\u202a",
    "\u202e",
    "\u2060",
    "\u2066",
    "\u2069",
    "\ufeff",
    "\ud800",
    "\udfff",
    "\U000e0001",
    "\U000e0041",
]

ODD = st.sampled_from([*HOSTILE, "a", " ", "\t", "-", "漢", "\uff57", "e\u0301", "…", "🧭"])
TEXTS = st.text(max_size=60) | st.lists(ODD, max_size=60).map("".join)


def harmless(text: str) -> bool:
    """Whether a terminal shows a text and does nothing else. Written apart from `clean`."""
    return all(
        unicodedata.category(c) not in ("Cc", "Cs", "Zl", "Zp")
        and unicodedata.bidirectional(c) not in BIDI
        and not 0xE0000 <= ord(c) <= 0xE007F
        and c not in "\u200b\u200c\u200d\u200e\u200f\u061c\u2060\ufeff"
        for c in text
    )


BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


# -- harmless ---------------------------------------------------------------------------------


@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
def test_what_a_terminal_would_obey_becomes_a_mark(hostile: str) -> None:
    """Control characters, line ends, text direction, invisible characters, lone surrogates."""
    assert f"a{MARK}b" == clean(f"a{hostile}b")


@pytest.mark.parametrize(
    "text", ["plain", "naïve", "漢字", "עברית", "e\u0301", "🧭", "a\N{NO-BREAK SPACE}b", ""]
)
def test_what_is_harmless_stays(text: str) -> None:
    """People write in their own scripts."""
    assert text == clean(text)


def test_tabs_become_spaces() -> None:
    """Their width is known then."""
    assert "a   b" == clean("a\tb")


@given(TEXTS)
def test_no_text_gets_through(text: str) -> None:
    """Whatever a log holds, and cleaning it twice changes nothing more."""
    assert harmless(clean(text))
    assert clean(text) == clean(clean(text))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_json_is_made_harmless_without_loss(value: Any) -> None:
    """The same characters as escapes: whoever reads the JSON gets what the log holds."""
    value = json.loads(json.dumps(value))  # two halves of a surrogate pair become one character
    line = escape(json.dumps(value, ensure_ascii=False))

    assert harmless(line)
    assert value == json.loads(line)


# -- width ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("abc", 3), ("漢字", 4), ("e\u0301", 1), ("\uff57", 2), ("🧭", 2), ("⚠\ufe0f", 1)],
)
def test_columns_are_what_a_terminal_shows(text: str, expected: int) -> None:
    """Wide characters take two, combining ones none."""
    assert expected == columns(text)


@pytest.mark.parametrize(
    "text", ["", "ab", "漢字", "e\u0301e\u0301", "much longer than that", "漢字漢字"]
)
def test_padded_text_takes_its_room(text: str) -> None:
    """Whatever stands behind it is in its column."""
    assert 7 == columns(pad_to(text, 7))


@pytest.mark.parametrize(
    ("text", "room", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("ab cd", 4, "ab…"),
        ("漢字漢", 5, "漢字…"),
        ("漢字漢", 6, "漢字漢"),
        ("漢字漢", 4, "漢…"),
        ("e\u0301e\u0301e\u0301", 3, "e\u0301e\u0301e\u0301"),
        ("", 1, ""),
    ],
)
def test_text_is_cut_to_its_room(text: str, room: int, expected: str) -> None:
    """What was cut says so."""
    assert expected == cut(text, room)


@given(TEXTS.map(clean), st.integers(1, 40))
def test_cut_text_fits_and_is_a_beginning(text: str, room: int) -> None:
    """At every width; what fits is not touched."""
    short = cut(text, room)

    assert columns(short) <= room
    assert (short == text) == (columns(text) <= room)
    assert short == text or text.startswith(short[:-1])


@pytest.mark.parametrize(
    ("text", "room", "expected"),
    [
        ("", 10, [""]),
        ("one two three", 7, ["one two", "three"]),
        ("one\n\ntwo\r\nthree", 10, ["one", "", "two", "three"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("a bcdefgh", 3, ["a", "bcd", "efg", "h"]),
        ("  indented text", 10, ["  indented", "text"]),
        ("  abcdefgh", 4, ["  ab", "cdef", "gh"]),
        ("漢字漢字 漢", 5, ["漢字", "漢字", "漢"]),
        ("漢a", 1, ["漢", "a"]),
        ("a\x1b[2Jb", 10, [f"a{MARK}[2Jb"]),
    ],
)
def test_prose_is_broken_at_spaces(text: str, room: int, expected: list[str]) -> None:
    """Inside a word only when that is longer than a line; line ends of the text are kept."""
    assert expected == wrap(text, room)


@given(TEXTS, st.integers(2, 40))
def test_wrapped_prose_fits_and_loses_nothing(text: str, room: int) -> None:
    """Every line is harmless and within its room; only spaces go."""
    lines = wrap(text, room)
    plain = "".join(clean(part) for part in text.replace("\r\n", "\n").split("\n"))

    assert all(harmless(line) and columns(line) <= room for line in lines)
    assert "".join(plain.split()) == "".join("".join(lines).split())


def test_prose_stops_where_reading_is_easy() -> None:
    """However wide the terminal is."""
    assert TEXT_WIDTH == max(columns(line) for line in wrap("x" * 500, 500))


def test_endless_line_is_cut_and_wrapped_in_one_go() -> None:
    """Work is linear: a megabyte without a space is no reason to wait."""
    text = "漢" * 500_000

    assert 80 >= columns(cut(text, 80))
    assert 12_500 == len(wrap(text, 80))


@pytest.mark.parametrize(("value", "expected"), [("100", 100), ("40", 40), ("7", 40)])
def test_width_is_what_the_terminal_says(
    monkeypatch: pytest.MonkeyPatch, value: str, expected: int
) -> None:
    """Never less than can be read."""
    monkeypatch.setenv("COLUMNS", value)

    assert expected == width()


# -- figures ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1 s"),
        (3140, "3.1 s"),
        (41_400, "41 s"),
        (59_600, "1 min"),
        (180_000, "3 min"),
        (6_600_000, "1 h 50"),
        (3_600_000, "1 h 00"),
    ],
)
def test_times_are_said_in_few_words(milliseconds: int, text: str) -> None:
    """As exact as a reader needs them."""
    assert text == format_duration(milliseconds)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (950, "950"), (1200, "1.2k"), (2000, "2k"), (19_400, "19k"), (2_430_000, "2.4M")],
)
def test_tokens_are_said_in_little_room(number: int, text: str) -> None:
    """Two or three digits."""
    assert text == short(number)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (4100, "4.1 KB"),
        (380_000, "380 KB"),
        (999_900, "1 MB"),
        (1_200_000_000, "1.2 GB"),
        (5_000_000_000_000, "5,000 GB"),
    ],
)
def test_sizes_are_said_in_their_unit(number: int, text: str) -> None:
    """Two or three digits."""
    assert text == size(number)


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [(1, "event", "1 event"), (0, "event", "0 events"), (2, "dead branch", "2 dead branches")],
)
def test_several_are_named_in_the_plural(number: int, noun: str, text: str) -> None:
    """One is one."""
    assert text == several(number, noun)


@given(TEXTS, TEXTS.map(lambda text: text[:20]), st.integers(30, 120))
def test_two_texts_share_a_line(left: str, right: str, room: int) -> None:
    """The right one is never cut, the left one where they meet."""
    line = justify(clean(left), clean(right), room)

    assert columns(line) <= max(room, columns(clean(right)) + 3)
    assert line.endswith(clean(right)) or not right


# -- JSON -------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=10,
)


@given(VALUES)
def test_json_is_the_value_again(value: Any) -> None:
    """However it is cut into lines, and whatever was escaped."""
    assert value == json.loads("\n".join(as_json(value)))


def test_json_has_a_line_per_field_and_element() -> None:
    """So that `grep` and `head` are of use."""
    value = {"a": 1, "ids": [1, 2], "events": [{"x": 1}, {"x": [2]}], "end": {}}

    assert [
        "{",
        '  "a": 1,',
        '  "ids": [1, 2],',
        '  "events": [',
        '    {"x": 1},',
        '    {"x": [2]}',
        "  ],",
        '  "end": {}',
        "}",
    ] == list(as_json(value))


@pytest.mark.slow
def test_json_too_deep_is_refused_in_words() -> None:
    """An error with a hint, not a page of calls."""
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]

    with pytest.raises(NotReadable, match="nested too deeply"):
        list(as_json({"deep": deep}))


def test_many_lines_are_all_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """In batches, with nothing between them."""
    say(f"{number}" for number in range(2500))

    assert [f"{number}" for number in range(2500)] == capsys.readouterr().out.splitlines()
