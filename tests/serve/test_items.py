"""What rows hold: how a call stands, in a word."""

from __future__ import annotations

import pytest

from thence.format.facts import Block
from thence.format.outcomes import CallOutcome
from thence.serve.chart import Call
from thence.serve.items import status_of

RESULT = Block("tool_result", "tool", "done")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (None, ("no result", True)),
        (Call(None, None, CallOutcome()), ("open", False)),
        (Call(RESULT, None, CallOutcome(ended=True)), ("ok", False)),
        (Call(RESULT, None, CallOutcome(ended=True, exit_code=0)), ("exit 0", False)),
        (
            Call(RESULT, None, CallOutcome(ended=True, failed=True, reason="denied")),
            ("denied", True),
        ),
    ],
)
def test_a_call_says_how_it_stands(call: Call | None, expected: tuple[str, bool]) -> None:
    """One without a result is open: a log does not tell whether anybody is still at it."""
    assert expected == status_of(call)
