"""The context: what is asked for twice is made once, and never stale."""

from __future__ import annotations

import msgspec
import pytest

from tests.serve.conftest import House
from thence.errors import SessionNotFound
from thence.memory.activity import pulse
from thence.serve.context import _TimedValue


def test_a_session_is_put_together_once_for_one_state_of_it(house: House) -> None:
    """Asked again it is the same; of another change it is another."""
    row = next(iter(house.store.sessions()))

    first, again = (house.context.open_session(row) for _ in range(2))
    grown = house.context.open_session(msgspec.structs.replace(row, change=row.change + 1))

    assert first is again
    assert grown is not first
    assert grown.session.uid == first.session.uid


def test_how_busy_a_session_was_is_counted_once(house: House) -> None:
    """Lists draw the same sessions again and again."""
    row = next(iter(house.store.sessions()))

    assert house.context.pulse(row) is house.context.pulse(row)
    assert pulse(house.store, row.session.session_uid) == house.context.pulse(row)


def test_what_agents_say_is_asked_again_when_it_is_old() -> None:
    """And not before."""
    clock, asked = [100.0], []
    timed = _TimedValue(
        1.0,
        lambda: asked.append(1) or len(asked),  # type: ignore[func-returns-value]
        lambda: clock[0],
    )

    values = []
    for moment in (100.0, 100.9, 101.1, 101.2):
        clock[0] = moment
        values.append(timed.get())

    assert [1, 1, 2, 2] == values


def test_standing_and_risks_are_those_of_the_machine(house: House) -> None:
    """What the agents' own files say."""
    assert {risk.source.adapter for risk in house.context.risks()} <= set(house.roots)
    assert house.context.now() is house.context.now()


@pytest.mark.parametrize("odd", ["", "../x", "a/b", "a b", "é", "x" * 200, "claude:", "a:b:c"])
def test_an_odd_id_is_not_looked_for(house: House, odd: str) -> None:
    """It names no session, and never a place."""
    with pytest.raises(SessionNotFound) as caught:
        house.context.row(odd)

    assert caught.value.hint


def test_the_beginning_of_an_id_is_enough_if_one_session_has_it(house: House) -> None:
    """Several are named, so that the user can say which."""
    uid, *others = (row.session.session_uid for row in house.store.sessions())
    beginnings = (uid[:length] for length in range(1, len(uid)))
    enough = next(start for start in beginnings if not any(o.startswith(start) for o in others))

    assert uid == house.context.row(enough).session.session_uid
    with pytest.raises(SessionNotFound, match="is ambiguous"):
        house.context.row("claude:"[:-1])
