"""Times for the eye: short where the day is known, absolute beside it, in one zone."""

from __future__ import annotations

from datetime import datetime, tzinfo

import msgspec

from thence.format import derived_events


class DisplayClock:
    """Formats times in one zone: absolute, and short where the day is known."""

    def __init__(self, zone: tzinfo | None = None) -> None:
        """Use a zone; the machine's own by default."""
        self.zone = zone

    def of(self, text: str | None) -> datetime | None:
        """Read a time of a log."""
        moment = derived_events.time_of(text)
        return moment.astimezone(self.zone) if moment else None

    def time(self, text: str | None) -> str:
        """Return the time of day."""
        moment = self.of(text)
        return f"{moment:%H:%M}" if moment else ""

    def day(self, text: str | None) -> str:
        """Return the day, with the year unless it is the current one."""
        moment = self.of(text)
        if moment is None:
            return ""
        year = "" if moment.year == datetime.now(self.zone).year else f" {moment.year}"
        return f"{moment:%a} {moment.day} {moment:%b}{year}"

    def full(self, text: str | None) -> str:
        """Return day and time, with seconds and zone."""
        moment = self.of(text)
        return f"{moment:%Y-%m-%d %H:%M:%S %Z}".rstrip() if moment else ""

    def iso(self, text: str | None) -> str:
        """Return the time in ISO 8601."""
        moment = self.of(text)
        return moment.isoformat(timespec="seconds") if moment else ""


class DisplayTime(msgspec.Struct, frozen=True):
    """One time, for a `time` element."""

    text: str = ""
    iso: str = ""
    full: str = ""


def display_time(clock: DisplayClock, text: str | None) -> DisplayTime:
    """Return a time of a log with all attributes of a `time` element."""
    return DisplayTime(clock.time(text), clock.iso(text), clock.full(text))
