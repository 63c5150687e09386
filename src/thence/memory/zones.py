"""Local days: the store keeps times in UTC, people count days in their own zone.

A zone is a `tzinfo`, or None for the zone of this machine, daylight saving included.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

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
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError) as error:
        hint = "use a name such as Europe/Berlin, America/New_York or UTC"
        raise BadConfig(f"unknown time zone {name[:60]!r}", hint=hint) from error


def zone_label(zone: tzinfo | None, at: datetime) -> str:
    """Return the name of a zone as people read it: `Europe/Berlin`, `CET`, `UTC`."""
    return zone.key if isinstance(zone, ZoneInfo) else f"{at.astimezone(zone):%Z}"


def local_date(slot: str, zone: tzinfo | None) -> str:
    """Return the day in a zone of a moment of UTC, `2026-01-31T13:45`; what is none stays."""
    try:
        moment = datetime.fromisoformat(slot).replace(tzinfo=UTC)
        return moment.astimezone(zone).date().isoformat()
    except (ValueError, OverflowError, OSError):  # a day of an older store has no minute to move
        return slot[:10]


def midnight(day: date, zone: tzinfo | None) -> datetime:
    """Return when a day begins in a zone, as a moment of UTC."""
    start = datetime.combine(day, time())
    if zone is not None:
        start = start.replace(tzinfo=zone)
    return start.astimezone(UTC)


def millis(moment: datetime) -> int:
    """Return a moment in milliseconds since 1970."""
    return int(moment.timestamp() * 1000)
