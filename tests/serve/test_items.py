"""What rows hold: how a call stands, in a word."""

from __future__ import annotations

import pytest

from thence.format import kinds
from thence.format.facts import Block, Told
from thence.serve.chart import Call
from thence.serve.items import status_of

RESULT = Block("tool_result", "tool", "done")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (None, ("no result", True)),
        (Call(None, None, None, None), ("open", False)),
        (Call(None, None, Told("c", ended=False), None), ("open", False)),
        (Call(RESULT, 1, None, None), ("ok", False)),
        (Call(RESULT, 1, Told("c", exit_code=0), None), ("exit 0", False)),
        (Call(RESULT, 1, None, kinds.Ending(failed=True, why="denied")), ("denied", True)),
    ],
)
def test_a_call_says_how_it_stands(call: Call | None, expected: tuple[str, bool]) -> None:
    """One without a result is open: a log does not tell whether anybody is still at it."""
    assert expected == status_of(call)
