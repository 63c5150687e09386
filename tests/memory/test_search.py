"""Whatever a user types is a question, and no text is an operator by accident."""

from __future__ import annotations

from datetime import UTC, datetime

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.memory.search import CLOSE, OPEN, BadQuery, meta, moment, parse, snippet, token


@pytest.fixture(scope="module")
def index() -> apsw.Connection:
    """An index with a few texts, as the store makes it."""
    db = apsw.Connection(":memory:")
    db.execute("CREATE VIRTUAL TABLE w USING fts5(body, meta, tokenize='unicode61')")
    texts = {
        1: ("the cat sat on the mat", meta("claude", "user_msg", None)),
        2: ("a dog in test_calc.py", meta("codex", "tool_call", "exec_command")),
        3: ("cat and dog, dead", meta("claude", "tool_result", "Bash")),
    }
    for row, (body, tokens) in texts.items():
        db.execute("INSERT INTO w(rowid, body, meta) VALUES(?,?,?)", (row, body, tokens))
    return db


def rows(index: apsw.Connection, text: str) -> list[int]:
    """The texts that answer a question."""
    match = parse(text).match
    return [row for (row,) in index.execute("SELECT rowid FROM w WHERE w MATCH ?", (match,))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cat", [1, 3]),
        ("CAT", [1, 3]),
        ("cat dog", [3]),
        ('"cat sat"', [1]),
        ('"sat cat"', []),
        ("mat OR dead", [1, 3]),
        ("d*", [2, 3]),
        ("cat -dog", [1]),
        ("test_calc", [2]),
        ("file:test_calc.py", [2]),
        ("file:mat", []),
        ("agent:claude cat", [1, 3]),
        ("agent:codex", [2]),
        ("tool:Bash", [3]),
        ("tool:exec_command", [2]),
        ("kind:user_msg", [1]),
        ("cat AND dog", [3]),
        ("OR cat", [1, 3]),
        ("where is the cat", [1, 3]),
        ("the", [1]),
        ("NEAR(cat dog)", []),
    ],
)
def test_questions_mean_what_they_look_like(
    index: apsw.Connection, text: str, expected: list[int]
) -> None:
    """Words are all wanted, phrases stand together, operators of the index are words."""
    assert expected == rows(index, text)


@given(st.text(max_size=60))
def test_any_text_is_a_question(text: str) -> None:
    """Pasted errors, quotes, operators: the index understands what comes out, or we say why not."""
    db = apsw.Connection(":memory:")
    db.execute("CREATE VIRTUAL TABLE w USING fts5(body, meta)")
    try:
        query = parse(text)
    except BadQuery:
        return
    if query.match:
        db.execute("SELECT rowid FROM w WHERE w MATCH ?", (query.match,)).fetchall()


def test_filters_beyond_the_index_are_told() -> None:
    """They are values, not words."""
    query = parse(
        "project:tide model:opus outcome:fail cost>1.50 after:2026-01-02 before:2026-02 x"
    )

    assert ("tide", "opus", "fail", 15_000_000_000) == (
        query.project,
        query.model,
        query.outcome,
        query.ticks_over,
    )
    assert (day(2026, 1, 2), day(2026, 2, 1)) == (query.after, query.before)
    assert (("x",), True) == (query.terms, query.narrows_sessions)


def day(year: int, month: int, number: int) -> int:
    """Midnight in milliseconds."""
    return int(datetime(year, month, number, tzinfo=UTC).timestamp() * 1000)


def test_time_ago_is_a_moment() -> None:
    """A week ago is seven days ago."""
    now = datetime.now(UTC).timestamp() * 1000

    assert abs(now - moment("7d") - 7 * 86_400_000) < 60_000
    assert abs(moment("1w") - moment("7d")) < 60_000


@pytest.mark.parametrize(
    "text", ["before:someday", "after:2026-13-01", "cost>much", "kind:poem", "-only", "-a -b"]
)
def test_what_cannot_be_meant_is_refused(text: str) -> None:
    """With a sentence, and not with the index's own words."""
    with pytest.raises(BadQuery) as caught:
        parse(text)

    assert 2 == caught.value.exit_code


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("why the password for authentication", '"password for authentication"'),
        ("tide window", '"tide window"'),
        ("how did the tide", ""),
        ("to be or not", '"to be or not"'),
        ("tide OR window clock", ""),
    ],
)
def test_question_words_are_no_part_of_a_phrase(text: str, phrase: str) -> None:
    """At its ends; between words they are."""
    assert phrase == parse(text).phrase


def test_unknown_names_are_words() -> None:
    """An error message with a colon in it can be pasted."""
    assert '"ValueError bad" AND "thing"' == parse("ValueError:bad thing").match


def test_snippet_points_at_what_was_asked_for() -> None:
    """Whatever stands around it, in any case, over gaps."""
    text = "x" * 300 + " the File not_Found here " + "y" * 300
    shown = snippet(text, ["file not", "found"])

    assert f"{OPEN}File not{CLOSE}_{OPEN}Found{CLOSE}" in shown
    assert shown.startswith("…")
    assert shown.endswith("…")


@given(st.text(max_size=200), st.lists(st.text(max_size=8), max_size=3))
def test_snippet_is_one_short_line(text: str, terms: list[str]) -> None:
    """No text and no term breaks it, and no mark comes from the text itself."""
    shown = snippet(text, terms)

    assert "\n" not in shown
    assert shown.count(OPEN) == shown.count(CLOSE)


@given(st.text(max_size=20))
def test_token_is_a_word_of_the_index(text: str) -> None:
    """Letters and digits alone."""
    assert token(text) == "".join(c for c in token(text) if c.isalnum())


def test_a_snippet_begins_with_a_word() -> None:
    """Unless no space is near: a path or a line of code is cut where it must be."""
    spaced = snippet("lighthouse keepers " * 20 + "saw the comet", ["comet"])
    long = snippet("lighthousekeepers" * 20 + " comet", ["comet"])

    assert spaced.startswith(("…lighthouse ", "…keepers "))
    assert "comet" in long
