"""Lists: columns that fit, ages, money and ids."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.cli.columns import TextCell, TextColumn, ago, money, short_ids, since, table
from thence.cli.terminal import columns

NOW = datetime(2026, 11, 15, 18, 6, tzinfo=UTC)


@given(
    st.lists(st.lists(st.text("ab日é ", max_size=30), min_size=4, max_size=4), max_size=5),
    st.integers(40, 140),
)
def test_no_row_is_wider_than_the_screen(texts: list[list[str]], room: int) -> None:
    """Whatever the cells hold; wide characters count two."""
    rows = [[TextCell("●"), *map(TextCell, row[:3]), TextCell(row[3][:8])] for row in texts]
    set_as = (
        TextColumn(),
        TextColumn(),
        TextColumn(slack=True),
        TextColumn(),
        TextColumn(right=True),
    )

    assert room >= max((columns(line) for line in table(set_as, rows, room)), default=0)


def test_columns_stand_under_one_another() -> None:
    """Text to the left, numbers to the right, what is cut ends in an ellipsis."""
    set_as = (
        TextColumn(),
        TextColumn("name"),
        TextColumn("title", slack=True),
        TextColumn("cost", right=True),
    )
    rows = [
        [TextCell("●"), TextCell("one"), TextCell("a long title that is cut"), TextCell("$3.54")],
        [TextCell("○"), TextCell("three"), TextCell("short"), TextCell("$12.00")],
    ]

    assert [
        "    name   title        cost",
        "  ● one    a long t…   $3.54",
        "  ○ three  short      $12.00",
    ] == list(table(set_as, rows, 28, head=True))


@pytest.mark.parametrize(
    ("passed", "expected", "in_a_sentence"),
    [
        (timedelta(seconds=59), "now", "just now"),
        (timedelta(minutes=41), "41 min", "41 min ago"),
        (timedelta(hours=4), "4 h", "4 h ago"),
        (timedelta(days=7), "7 d", "7 d ago"),
        (timedelta(days=28), "18 Oct", "18 Oct"),
        (timedelta(days=400), "2025-10", "2025-10"),
        (timedelta(seconds=-9), "now", "just now"),
    ],
)
def test_ages(passed: timedelta, expected: str, in_a_sentence: str) -> None:
    """Relative for a week, then dates; a clock that was set back breaks nothing."""
    assert expected == ago(NOW - passed, NOW)
    assert in_a_sentence == since(NOW - passed, NOW)


@pytest.mark.parametrize(
    ("ticks", "unpriced", "expected"),
    [(0, 0, "$0.00"), (35_400_000_000, 0, "$3.54"), (10**14, 5, "$10,000.00+"), (0, 7, "?")],
)
def test_money(ticks: int, unpriced: int, expected: str) -> None:
    """What is not known is not guessed: a lower bound ends in +, nothing known is a ?."""
    assert expected == money(ticks, unpriced)


@given(st.lists(st.text("01a-", min_size=1, max_size=36), unique=True, max_size=8))
def test_ids_of_a_list_are_unique(names: list[str]) -> None:
    """Each is a beginning of its id, or both its ends, and of no other that does not go on."""
    short = short_ids(names)
    for name, shown in short.items():
        start, _, end = shown.partition("…")
        others = [
            other
            for other in names
            if other != name and other.startswith(start) and other.endswith(end)
        ]

        assert name.startswith(start)
        assert name.endswith(end)
        assert [] == others or shown == name
