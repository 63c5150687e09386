"""Lists give the title what is left, and never less than it needs to be known by."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.agents.transcripts import Script
from tests.cli.desk import DUMP, Desk, windows
from thence.cli import picker
from thence.cli.picker import PickerChoice
from thence.cli.terminal import columns, cut

LONG = "Rename every station to gauge in the public interface, with a deprecation period"
TWIN = "01a00000-0000-7000-8000-00000000000b"
LEAST = 30
WIDTHS = [80, 100, 120, 160]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Sessions whose folder, branch, id and title are all long."""
    desk = Desk(tmp_path, monkeypatch)
    for at, name in enumerate(("99999999-0000-4000-8000-000000000001", TWIN)):
        script = Script(
            *(name, f"s{at}"),
            cwd="/home/dev/the-harbour-books-and-ledgers",
            gitBranch="feature/rename-every-station-to-gauge",
        )
        script.note("custom-title", customTitle=LONG)
        script.user("Rename it.")
        desk.write_claude(script, ago=timedelta(minutes=59 - at))
    desk.write_claude(windows())
    # Yesterday at any hour of the day: not so long ago that it may have been the day before.
    desk.write_codex(DUMP.replace("01a00000-0000", "01a00000-0001"), ago=timedelta(hours=25))
    desk.sweep()
    return desk


@pytest.mark.parametrize("room", WIDTHS)
def test_a_title_has_thirty_columns_or_is_whole(desk: Desk, room: int) -> None:
    """At every width; ids have 8 to 13 columns, and no line is too long."""
    lines = desk.run("ls", columns=room).lines
    rows = [line for line in lines if line[2:3] in "●◆✓✗○" and line.startswith("  ")]

    assert 4 == len(rows)
    assert all(cut(LONG, LEAST)[:-1] in row for row in rows[:2])
    assert {True} == {8 <= len(row.split()[1]) <= 13 for row in rows}
    assert room >= max(map(columns, lines))


@pytest.mark.parametrize(
    ("room", "heads"),
    [
        (100, "id agent age project title discarded cost"),
        (120, "id agent age project branch title discarded cost"),
        (160, "id agent age project branch title graph discarded cost"),
    ],
)
def test_columns_come_as_there_is_room(desk: Desk, room: int, heads: str) -> None:
    """The title comes first, then the project, then what discarded branches cost."""
    shown = desk.run("ls", columns=room).lines[0].split()

    assert [name for name in heads.split() if name in shown] == shown
    assert {"id", "agent", "age", "title", "cost"} <= set(shown)


def test_wider_screens_show_no_less(desk: Desk) -> None:
    """A column that 100 columns have is there at 160, which have all."""
    few, some, every = (set(desk.run("ls", columns=n).lines[0].split()) for n in WIDTHS[1:])

    assert few <= some <= every
    assert {"project", "branch", "graph", "discarded"} <= every


@pytest.mark.parametrize("room", WIDTHS)
def test_the_picker_shows_as_much_of_a_title(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """It is what people choose by."""
    offered: list[PickerChoice] = []

    def pick(choices: Sequence[PickerChoice]) -> int:
        offered.extend(choices)
        return 0

    monkeypatch.setattr(picker, "possible", lambda: True)
    monkeypatch.setattr(picker, "pick", pick)
    desk.run("resume", columns=room)

    assert 4 == len(offered)
    assert all(cut(LONG, LEAST)[:-1] in cut(choice.line, room - 2) for choice in offered[:2])


@pytest.mark.parametrize("command", ["show", "tree"])
@pytest.mark.parametrize("room", WIDTHS)
def test_the_head_of_a_session_starts_with_date_project_and_cost(
    desk: Desk, command: str, room: int
) -> None:
    """In this order, below the title."""
    title, facts, *_ = desk.run(command, "7f3a", columns=room).lines
    day, project, cost, *_ = facts.split(" · ")

    assert title.startswith("Hourly windows lose an hour")
    assert 16 == len(day)
    assert day[:2] == "20"
    assert project == "tidepool fix/dst-gap"
    assert cost.startswith("$")


@pytest.mark.parametrize("since", ["7d", "2026-01-31"])
def test_since_takes_words_and_dates(desk: Desk, since: str) -> None:
    """What happened before is left out."""
    rows = desk.run("ls", "--since", since, "--json").json

    assert len(rows) == 4


def test_since_yesterday_begins_with_that_day(desk: Desk) -> None:
    """At whatever hour it is asked: early in a day, a session of 26 hours ago is older."""
    midnight = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}T00:00"
    rows = desk.run("ls", "--json").json
    expected = {row["session_uid"] for row in rows if row["ended_at"] >= midnight}

    assert expected == {
        row["session_uid"] for row in desk.run("ls", "--since", "yesterday", "--json").json
    }
    assert len(expected) >= 3


def test_since_today_leaves_out_what_is_older(desk: Desk) -> None:
    """The session of Codex is of yesterday or before."""
    agents = {row["flavor"] for row in desk.run("ls", "--since", "today", "--json").json}

    assert "codex" not in agents


def test_an_outcome_that_is_none_is_refused(desk: Desk) -> None:
    """With those that there are."""
    assert "'abandoned'" in desk.run("ls", "--outcome", "lost").err
