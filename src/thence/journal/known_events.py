"""Which events a session has and where its tip stands, while others write to it, too."""

from __future__ import annotations

from thence.format import codec
from thence.format.records import INTERNAL, Event, is_permission
from thence.journal.segmented_log import SegmentedLog

_BOOKS = INTERNAL - {"boundary"}


def moves_tip(event: Event) -> bool:
    """Return whether a session goes on from an event: it neither keeps the books nor permits."""
    return event.type not in _BOOKS and not is_permission(event.type)


def next_tip(event: Event, tip: str | None) -> str | None:
    """Return the tip after an event, as readers see it."""
    if event.type == "tip":
        return event.fields.get("to") or tip
    return event.uuid if moves_tip(event) else tip


class KnownEvents:
    """Ids in a session and its tip, kept up with what other writers add, late lines included."""

    def __init__(self, run: SegmentedLog | None) -> None:
        self.places: dict[str, tuple[int, int]] = {}
        """Where each event stands: its segment and its offset."""
        self._tips: dict[int, str | None] = {0: None}
        self._run = run
        self._seen: dict[int, int] = {}

    @property
    def tip(self) -> str | None:
        """The tip as readers see it: what came late to an old segment stands before the rest."""
        return self._tips[max(self._tips)]

    def catch_up(self, tip: str | None) -> None:
        """Read what was added since the last look, up to its last LF and no further."""
        self._tips[0] = tip
        for grown in self._run.grown(self._seen) if self._run is not None else ():
            decoded = codec.decode(grown.data, offset=grown.base + grown.start)
            for event, place in zip(decoded.events, decoded.places, strict=True):
                self.places.setdefault(event.uuid, (grown.segment, place.offset))
                tip = next_tip(event, self.tip)
                if tip != self.tip:
                    self._tips[grown.segment] = tip
