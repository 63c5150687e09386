"""Local days: the store keeps times in UTC, people count days in their own zone.

A zone is a `tzinfo`, or None for the zone of this machine, daylight saving included.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final, Literal

from thence.errors import BadConfig

Period = Literal["day", "week", "month"]
"""A week begins on Monday."""


def period_start(day: date, period: Period) -> date:
    """Return the first day of the period that a day is in."""
    if period == "week":
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if period == "month" else day


def period_end(day: date, period: Period) -> date:
    """Return the first day after the period that a day is in."""
    first = period_start(day, period)
    if period == "month":
        return (first + timedelta(days=31)).replace(day=1)
    return first + timedelta(days=7 if period == "week" else 1)


def zone_named(name: str | None) -> tzinfo | None:
    """Return the zone of an IANA name such as `Europe/Berlin`; None, the machine's, for none."""
    if not name:
        return None
    if name.upper() == "UTC":
        return UTC
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # here: most ask for no zone by its name

    try:
        return ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError) as error:
        hint = "use a name such as Europe/Berlin, America/New_York or UTC"
        raise BadConfig(f"unknown time zone {name[:60]!r}", hint=hint) from error


def zone_label(zone: tzinfo | None, at: datetime) -> str:
    """Return the name of a zone as people read it: `Europe/Berlin`, `CET`, `UTC`."""
    name: str | None = getattr(zone, "key", None)
    return name or f"{at.astimezone(zone):%Z}"


SLOT_CHARS: Final = 16
"""Characters of a slot of time, `2026-01-31T13:45`."""


def local_date(slot: str, zone: tzinfo | None) -> str:
    """Return the day in a zone of a moment of UTC, `2026-01-31T13:45`; what is none stays."""
    try:
        moment = datetime.fromisoformat(slot).replace(tzinfo=UTC)
        return moment.astimezone(zone).date().isoformat()
    except (ValueError, OverflowError, OSError):  # a day of an older store has no minute to move
        return slot[:10]


class LocalDays:
    """Finds the days in a zone of many moments: each day of UTC is worked out once."""

    def __init__(self, zone: tzinfo | None) -> None:
        self._zone = zone
        self._starts: dict[str, list[tuple[str, str]]] = {}

    def day(self, slot: str) -> str:
        """Return the day of a moment of UTC as `local_date` does."""
        utc_day = slot[:10]
        starts = self._starts.get(utc_day)
        if starts is None:
            starts = self._starts[utc_day] = self._starts_near(utc_day)
        if len(slot) == SLOT_CHARS:
            for start, day in starts:
                if slot >= start:
                    return day
        return local_date(slot, self._zone)

    def _starts_near(self, utc_day: str) -> list[tuple[str, str]]:
        """Return when the days that touch a day of UTC begin, and which they are, latest first."""
        try:
            noon = date.fromisoformat(utc_day)
            days = [noon + timedelta(days=number) for number in (1, 0, -1)]
            starts = [midnight(day, self._zone).isoformat()[:SLOT_CHARS] for day in days]
        except (ValueError, OverflowError, OSError):
            return []
        return list(zip(starts, (day.isoformat() for day in days), strict=True))


def midnight(day: date, zone: tzinfo | None) -> datetime:
    """Return when a day begins in a zone, as a moment of UTC."""
    start = datetime.combine(day, time())
    if zone is not None:
        start = start.replace(tzinfo=zone)
    return start.astimezone(UTC)


def millis(moment: datetime) -> int:
    """Return a moment in milliseconds since 1970."""
    return int(moment.timestamp() * 1000)
