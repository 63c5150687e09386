"""Now, as it is answered: the same figures as the store's."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from tests.agents.transcripts import write
from tests.cli.desk import alerts
from tests.serve.conftest import House, empty
from thence.agents.unread import Unread
from thence.memory.unread import FILE
from thence.serve import store_page
from thence.serve.clock import DisplayClock
from thence.serve.now_page import page


def test_now_says_who_waits_and_what_today_cost(house: House) -> None:
    """The heading is the answer; spending agrees with the store."""
    made = page(house.context, DisplayClock())
    total = house.store.totals()[0]

    assert made.heading == "Nothing needs you"
    assert made.sessions == total.sessions
    assert len(made.columns) == 14
    assert made.week
    assert made.promises


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[House]:
    """A machine with one session."""
    made = empty(tmp_path)
    write(made.homes.claude, alerts())
    made.swept()
    yield made
    made.close()


def test_what_was_lost_and_what_is_not_read_is_no_peace(machine: House) -> None:
    """Both pages and the answer say it with its number; without either, Now says all is well."""
    calm = page(machine.context, DisplayClock())
    path = str(machine.homes.claude / "x.jsonl")
    item = Unread("claude", path, "it is damaged", "session", 2)
    file = machine.homes.thence / FILE
    file.write_bytes(msgspec.json.encode({"reader": 0, "items": [item]}))
    row = next(iter(machine.store.sessions()))
    uid = row.session.session_uid
    machine.store.remove([uid], why={uid: "no digest is left"}, lost=True)
    made = page(machine.context, DisplayClock())
    checks = [check.text for check in store_page.page(machine.context).checks if not check.ok]
    with machine.serving():
        answer = machine.ask("/api/now").json
        text = machine.ask("/").body.decode()
    lines = [
        "1 session was removed before it was fully analysed",
        "Claude Code: 2 sessions are not read: it is damaged",
    ]

    assert ("Nothing needs you", []) == (calm.heading, calm.missing)
    assert ("No session waits for you", lines) == (made.heading, made.missing)
    assert set(lines) <= set(checks)
    assert 0 < text.index(lines[0]) < text.index(lines[1]) < text.index("Running</h2>")
    assert ({uid: "no digest is left"}, [(2, path)]) == (
        answer["lost"],
        [(item["count"], item["path"]) for item in answer["not_read"]],
    )


def test_hours_add_up_to_what_sessions_cost(house: House) -> None:
    """Discarded branches and subagents as well; on a day with spending there are 24 of them."""
    slots, total = house.store.totals(["slot"]), house.store.totals()[0]

    assert (total.dead, total.ticks) == (
        sum(slot.dead for slot in slots),
        sum(slot.ticks for slot in slots),
    )
    days = {entry.key[0]: entry.ticks for entry in house.store.totals(["day"])}
    for day in (max(days, key=lambda name: days[name]), "1999-01-01"):
        then = datetime.fromisoformat(f"{day}T12:00:00+00:00").timestamp()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(house.context, "clock", lambda then=then: then)
            made = page(house.context, DisplayClock(UTC))

        assert (24 if day in days else 0) == len(made.hours)
