"""What rows hold: how a call stands, in a word."""

from __future__ import annotations

from typing import Any

import pytest

from thence.format.derived_events import Call
from thence.format.normal import SessionEvent
from thence.format.outcomes import CallOutcome
from thence.format.tools import Effect
from thence.serve.row_fields import status_of

CALL, RESULT = SessionEvent("", 1, "tool_call"), SessionEvent("", 2, "tool_result")


def ended(**how: Any) -> Call:
    """Return a call that came to an end."""
    return Call(CALL, RESULT, Effect(), CallOutcome(ended=True, **how))


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (None, ("no result", True)),
        (Call(CALL, None, Effect(), CallOutcome()), ("open", False)),
        (ended(), ("ok", False)),
        (ended(exit_code=0), ("exit 0", False)),
        (ended(failed=True, reason="denied"), ("denied", True)),
    ],
)
def test_a_call_says_how_it_stands(call: Call | None, expected: tuple[str, bool]) -> None:
    """One without a result is open: a log does not tell whether anybody is still at it."""
    assert expected == status_of(call)
