"""`thence ask`: one page about what was done before, whatever is left of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.desk import Desk
from tests.memory import logs

QUESTION = "what did we do about the lantern?"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """One session with events of every kind, kept, and a decision about it."""
    desk = Desk(tmp_path, monkeypatch)
    script = logs.trials(1)
    desk.write_claude(script)
    desk.sweep()
    desk.run("decide", "The lantern burns oil.", "--session", script.session)
    return desk


def test_a_page_tells_what_was_asked_decided_and_changed(desk: Desk) -> None:
    """What failed too, and how it ended; events have their names."""
    ran = desk.run("ask", QUESTION, columns=200)

    assert 0 == ran.code
    assert f"Claude Code {logs.name(1)[:13]} · " in ran.lines[1]
    assert "  decided, " in ran.out
    assert ": The lantern burns oil." in ran.out
    for part in ("  corrected e", "  changed: /p/lantern.py", "  failed e", "  ended: "):
        assert part in ran.out, part


def test_an_event_of_the_page_can_be_opened(desk: Desk) -> None:
    """By the name that stands beside it."""
    [page] = desk.run("ask", QUESTION, "--json").json["sessions"]
    event = page["failed"][0]["event_id"]
    opened = desk.run("show", logs.name(1), "--around", f"e{event:013x}"[:7])

    assert 0 == opened.code


def test_an_evicted_session_is_told_from_its_digest(desk: Desk) -> None:
    """As much as is left of it."""
    before = desk.run("ask", QUESTION, "--json").json["sessions"][0]
    desk.run("evict", logs.name(1), "--yes")
    after = desk.run("ask", QUESTION, "--json").json["sessions"][0]
    fields = ("session_uid", "asked", "decided", "files", "commands", "failed", "ended")

    assert (False, True) == (before["is_evicted"], after["is_evicted"])
    assert {name: before[name] for name in fields} == {name: after[name] for name in fields}


def test_the_page_is_the_same_each_time_and_of_bounded_length(desk: Desk) -> None:
    """Four characters are about a token."""
    asked = ("ask", QUESTION, "--tokens", "100")
    pages = [desk.run(*asked, columns=300).out for _ in range(2)]

    assert pages[0] == pages[1]
    assert 200 < len(pages[0]) <= 4 * 100
    assert "more lines: thence show --digest" in pages[0]


def test_nothing_found_is_said(desk: Desk) -> None:
    """And is no error."""
    ran = desk.run("ask", "xylophone quartet")

    assert (0, ["no matches"]) == (ran.code, ran.lines)


def test_a_narrow_terminal_wraps_each_fact_into_a_few_rows(desk: Desk) -> None:
    """Nothing is wider than the terminal; the last line opens an event of the page."""
    ran = desk.run("ask", QUESTION, columns=44)
    words = ran.lines[-1].split()

    assert 44 >= max(len(line) for line in ran.lines[:-1])
    assert any(line.startswith("    ") for line in ran.lines)
    assert ["open", "one:", "thence", "show"] == words[:4]
    assert 0 == desk.run(*words[3:]).code
