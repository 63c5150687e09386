"""All ways out of a store give equal numbers of a session: a number is decided once.

Mirrors no module: each number is asked at every door that gives it (`doors`): ls, show, digest,
cost, the page of the viewer, the API, the Parquet export, what agents are told.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.agreement.conftest import Data, all_numbers
from tests.agreement.doors import DOORS
from tests.agreement.homes import Home
from thence.agents.claude.sample import SampleTranscript

Answers = Mapping[str, Mapping[str, Mapping[str, Any]]]


@pytest.mark.parametrize("number", DOORS)
def test_every_door_gives_the_same(numbers: Answers, number: str) -> None:
    """For each session, whatever its agent, and of a fork, a rewind or a subagent too."""
    different = {
        uid: answers
        for uid, answers in numbers[number].items()
        if len({json.dumps(value) for value in answers.values()}) > 1
    }

    assert {} == different


def test_every_number_is_asked_at_every_door_that_gives_it(numbers: Answers, data: Data) -> None:
    """So that no comparison becomes empty when the words of a page change."""
    asked = {
        number: sorted({door for answers in sessions.values() for door in answers})
        for number, sessions in numbers.items()
    }

    assert {name: sorted(doors) for name, doors in DOORS.items()} == asked, data.folder


@pytest.mark.parametrize(
    ("ago", "outcome", "end"), [(20, "running", "running"), (9999, "unknown", "stopped")]
)
def test_an_open_turn_runs_by_every_door_or_by_none(
    tmp_path: Path, ago: int, outcome: str, end: str
) -> None:
    """Written just now it runs; hours later it has stopped, and nobody knows what became of it."""
    began = datetime.now(UTC) - timedelta(seconds=ago)
    log = SampleTranscript("open", tmp_path / "work", began)
    log.prompt("Run the job.")
    log.edit("job.py", "a", "b")
    log.call("Bash", {"command": "sleep 300"}, None)
    log.save(tmp_path / "claude")
    home = Home(tmp_path / ".thence", {"CLAUDE_CONFIG_DIR": str(tmp_path / "claude")})
    home.run("sweep")
    numbers = all_numbers(home)
    uid = f"claude:{log.id}"
    [file] = home.run("files", "job.py", "--json").json
    [recalled] = home.run("ask", "the job", "--json").json["sessions"]

    assert (outcome, outcome) == (file["outcome"], recalled["outcome"])
    assert dict.fromkeys(DOORS["outcome"], outcome) == numbers["outcome"][uid]
    assert dict.fromkeys(DOORS["end"], end) == numbers["end"][uid]
    assert dict.fromkeys(DOORS["running"], end == "running") == numbers["running"][uid]
