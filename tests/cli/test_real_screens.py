"""Lists and heads of real sessions, and of the made-up machine, at four widths.

The sessions are those of the real clients, laid out as the clients lay them. What is compared is
what a reader needs on every line: a title that can be recognized, an id that can be typed, and
date, project and cost where a session begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cli.desk import Ran, in_process
from tests.pace import by_pace
from tests.serve.laid import copy_real
from thence.cli import picker, sample_machine
from thence.cli.picker import PickerChoice
from thence.cli.terminal import columns, cut

WIDTHS = [80, 100, 120, 160]
LEAST_TITLE = 30
ROW = re.compile(r"^  [●◆✓✗○] (?:[ └]*)(\S+) ")
DATE = re.compile(r"^20\d\d-\d\d-\d\d \d\d:\d\d$")
COST = re.compile(r"^(\$[\d,]+\.\d\d\+?|cost unknown)$")

Run = Callable[..., Ran]


def environment(home: Path) -> dict[str, str]:
    """Return what a terminal of this home has set."""
    return {"HOME": str(home), "TZ": "UTC", "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}


@pytest.fixture(scope="module", params=[pytest.param("real", marks=pytest.mark.slow), "made up"])
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A machine whose sessions are imported: of the real clients, or of `thence demo`."""
    home = tmp_path_factory.mktemp("screens")
    env = environment(home)
    if request.param == "real":
        copy_real(request.getfixturevalue("shared"), home, each=by_pace(40, 40, 10))
    else:
        env |= sample_machine.write(home, datetime.now(UTC)).env

    def run(*arguments: str, room: int = 80) -> Ran:
        return in_process(*arguments, env={**env, "COLUMNS": str(room)})

    assert 0 == run("sweep").code
    return run


def sessions(run: Run) -> dict[str, str]:
    """Return the titles of all sessions, by id."""
    rows = run("ls", "-n", "9999", "--json").json
    return {row["native_session_id"]: " ".join((row["title"] or "").split()) for row in rows}


def title_of(titles: dict[str, str], short: str) -> str:
    """Return the title of the session that a short id means."""
    start, _, end = short.partition("…")
    meant = [
        title for name, title in titles.items() if name.startswith(start) and name.endswith(end)
    ]
    return (titles[short] if short in titles else meant[0]) or "untitled"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("room", WIDTHS)
def test_a_list_has_titles_and_ids_that_can_be_used(machine: Run, room: int) -> None:
    """Thirty columns of every title, or all of it; ids of 8 to 13 columns that mean one session."""
    titles = sessions(machine)
    ran = machine("ls", "-n", "9999", room=room)
    rows = [(match[1], line) for line in ran.lines if (match := ROW.match(line))]

    assert len(titles) == len(rows)
    assert room >= max(map(columns, ran.lines))
    for short, line in rows:
        title = title_of(titles, short)
        assert cut(title, LEAST_TITLE).removesuffix("…") in line
        assert 8 <= len(short) <= 13 or short in titles


@pytest.mark.sampled(3)
@pytest.mark.parametrize("room", WIDTHS)
def test_the_picker_has_titles_that_can_be_recognized(
    machine: Run, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """It is what people choose by."""
    offered: list[PickerChoice] = []

    def pick(choices: Sequence[PickerChoice]) -> int:
        offered.extend(choices)
        raise KeyboardInterrupt

    monkeypatch.setattr(picker, "possible", lambda: True)
    monkeypatch.setattr(picker, "pick", pick)
    machine("resume", room=room)

    assert len(offered) > 5
    for choice in offered:
        title = choice.preview[0]
        assert cut(title, LEAST_TITLE).removesuffix("…") in cut(choice.line, room - 2)


def has_bill(row: dict[str, Any]) -> bool:
    """Return whether a session has money or tokens without a price."""
    return any(row["usd"].values()) or row["unpriced_tokens"] > 0


@pytest.mark.parametrize("command", ["show", "tree"])
@pytest.mark.sampled(3)
@pytest.mark.parametrize("room", WIDTHS)
def test_a_session_starts_with_date_project_and_cost(machine: Run, command: str, room: int) -> None:
    """Below the title, in this order; one session of every agent is looked at."""
    rows = machine("ls", "-n", "9999", "--json").json
    by_agent = {row["flavor"]: row for row in rows if row["started_at"] and row["cwd"]}

    assert len(by_agent) > 3
    for row in by_agent.values():
        ran = machine(command, row["native_session_id"], room=room)
        title, facts, *_ = ran.lines
        day, project, *rest = facts.split(" · ")

        assert columns(title) <= room
        assert DATE.match(day)
        assert project.split()[0] == Path(row["cwd"]).name
        assert not has_bill(row) or COST.match(rest[0])
        assert room >= max(map(columns, ran.lines[:4]))
