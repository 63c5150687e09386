"""Local days: found one by one and many at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from thence.memory.local_days import LocalDays, local_date


@pytest.mark.parametrize(
    "name",
    [
        *("UTC", "Europe/Berlin", "America/Los_Angeles", "Asia/Kathmandu", "Pacific/Apia"),
        *("America/Havana", "Australia/Lord_Howe", "Pacific/Kiritimati", "Etc/GMT+12"),
    ],
)
def test_many_days_are_found_as_each_is(name: str) -> None:
    """At every quarter of an hour around each change of a clock, and of a day that was left out."""
    zone = ZoneInfo(name)
    days = LocalDays(zone)
    for first in ("2011-12-28", "2026-03-07", "2026-03-28", "2026-10-24", "2026-10-31"):
        begin = datetime.fromisoformat(first).replace(tzinfo=UTC)
        for quarter in range(4 * 24 * 4):
            slot = (begin + timedelta(minutes=15 * quarter)).isoformat()[:16]
            assert local_date(slot, zone) == days.day(slot), (name, slot)
    for odd in ("2026-01-31", "", "no time at all", "9999-12-31T23:45", "0001-01-01T00:00"):
        assert local_date(odd, zone) == days.day(odd), (name, odd)
