"""Figures and names for the eye, the same in terminal and browser."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from thence.format import figures

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_a_text_keeps_its_lines_and_shows_what_would_hide_others() -> None:
    """Line ends and tabs stay; escapes, overrides and halves of characters become a mark."""
    text = figures.clean_text("one\r\n\ttwo\x1b[2J\u202ethree\ud800")

    assert text == "one\n\ttwo\ufffd[2J\ufffdthree\ufffd"


def test_one_line_stays_one_line() -> None:
    """What is shown on a line cannot end it."""
    assert figures.clean("one\ntwo\x85") == "one\ufffdtwo\ufffd"


@pytest.mark.parametrize(
    ("passed", "text"),
    [
        (timedelta(seconds=59), "now"),
        (timedelta(minutes=41), "41 min"),
        (timedelta(hours=4), "4 h"),
        (timedelta(days=7), "7 d"),
        (timedelta(days=20), "9 Feb"),
        (timedelta(days=400), "2025-01"),
    ],
)
def test_ages_are_relative_for_a_week(passed: timedelta, text: str) -> None:
    """Later a date says more."""
    assert text == figures.ago(NOW - passed, NOW)


def test_money_says_when_it_is_not_all() -> None:
    """A lower bound ends in +, what nobody knows is no zero."""
    assert figures.money(35_400_000_000) == "$3.54"
    assert figures.money(35_400_000_000, 12) == "$3.54+"
    assert figures.money(0, 12) == "?"


def test_sizes_and_counts_have_their_unit() -> None:
    """Each the way people read it."""
    assert [figures.size(n) for n in (1, 57, 4_100, 1_200_000_000)] == [
        "1 byte",
        "57 bytes",
        "4.1 KB",
        "1.2 GB",
    ]
    limits = (4 << 30, 50 << 20, 1_500_000_000, 1_024_000_000, 100 << 10, 57, 1_234_567)
    assert [figures.size_limit(n) for n in limits] == [
        "4 GiB",
        "50 MiB",
        "1.5 GB",
        "1,024 MB",
        "100 KiB",
        "57 bytes",
        "1,234,567 bytes",
    ]
    used = 3_300_000_000
    assert ["3.1 GiB", "3.3 GB"] == [figures.size(used, n) for n in (4 << 30, 4 * 10**9)]
    assert [figures.several(n, "branch") for n in (1, 1204)] == ["1 branch", "1,204 branches"]
    assert [figures.format_duration(n) for n in (31, 3_100, 41_000, 6_600_000)] == [
        "31 ms",
        "3.1 s",
        "41 s",
        "1 h 50",
    ]
    assert [figures.short(n) for n in (950, 1_200, 19_000, 2_400_000)] == [
        "950",
        "1.2k",
        "19k",
        "2.4M",
    ]


def test_names_are_short_and_clean() -> None:
    """Ids that begin with the time need more of themselves to be told apart."""
    assert figures.short_id("7f3a91c2-aaaa-4bbb-8ccc-dddddddddddd") == "7f3a91c2"
    assert figures.short_id("019a91c2-aaaa-7bbb-8ccc-dddddddddddd") == "019a91c2-aaaa"
    assert figures.project("/home/dev/tide\x1bpool/") == "tide\ufffdpool"


def test_signs_that_join_letters_and_emoji_stay_and_hide_nothing_elsewhere() -> None:
    """Persian, Hindi and families of emoji keep them; between other letters they are shown."""
    for text in ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0915\u094d\u200d\u0937"):
        assert text == figures.clean(text) == figures.clean_text(text)
    family = "\U0001f469\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f\u200d\U0001f525"
    assert family == figures.clean(family)

    assert "pass\ufffdword" == figures.clean("pass\u200dword")
    assert "\ufffda\ufffd" == figures.clean("\u200ca\u200d")
