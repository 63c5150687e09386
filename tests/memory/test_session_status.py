"""What counts as running: a process, or a line of the last minutes; any other open turn stopped."""

from __future__ import annotations

import pytest

from thence.agents import Live
from thence.format.derived_events import time_of
from thence.format.normal import Session
from thence.format.records import JSON
from thence.format.turn import TurnNow, TurnState
from thence.memory.session_status import (
    MAX_WAIT_S,
    RECENT_S,
    TURN_WORDS,
    Now,
    session_object,
    turn_now,
    turn_object,
)
from thence.memory.store import SessionRow

ENDED = "2026-11-15T13:00:00.000Z"
SESSION = Session("codex:s", "codex", "s", ended_at=ENDED)
NOBODY = Now({}, frozenset())
WRITTEN = time_of(ENDED).timestamp()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("left", "passed", "expected"),
    [
        ("running", RECENT_S - 1, "running"),
        ("running", RECENT_S + 1, "stopped"),
        ("answered", RECENT_S - 1, "running"),
        ("answered", RECENT_S + 1, "done"),
        ("waiting", MAX_WAIT_S - 1, "waiting"),
        ("waiting", MAX_WAIT_S + 1, "stopped"),
        ("interrupted", 1, "interrupted"),
        ("done", 1, "done"),
    ],
)
def test_open_turn_runs_for_some_minutes_after_its_last_line(
    left: str, passed: float, expected: str
) -> None:
    """Where no agent tells what runs; then it has stopped, or was done with its last answer."""
    standing = NOBODY.standing(SESSION, left, WRITTEN + passed)

    assert expected == turn_now(left, standing)


@pytest.mark.parametrize(("left", "expected"), [("running", "stopped"), ("answered", "done")])
def test_agent_that_tells_what_runs_is_believed(left: str, expected: str) -> None:
    """A process keeps a turn going for days; without one it has stopped at once."""
    telling = frozenset({"codex"})
    open_now = Now({"codex:s": Live("s", 7, "busy")}, telling)
    later = WRITTEN + 9 * 86_400

    assert "running" == turn_now(left, open_now.standing(SESSION, left, later))
    assert expected == turn_now(left, Now({}, telling).standing(SESSION, left, WRITTEN + 1))


def test_every_state_of_a_log_has_a_word() -> None:
    """For people, and the same under the names of the contract."""
    for state in TurnState:
        row = SessionRow(SESSION, turn=state)
        shown: JSON = session_object(row)["turn"]

        assert shown in TURN_WORDS
        assert shown == turn_object(TurnNow(state), None)["state"]
