"""What stored sessions are derived by: the version of each part, compared with those of today.

Four parts turn a log into what the store has of it: redaction rules, the readers, the fold and the
digest. Each stored session has the version of each part that made it. `Fingerprint.changed` names
the parts that are others today, so that only what depends on them is derived again. Redaction
rules have no number that somebody must raise: their version is a hash over all of them, the user's
own included (`redact.rules_version`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from thence.format import fold

if TYPE_CHECKING:
    from thence.memory.store import SweepEntry

READER_VERSION = 7
"""Version of the readers: raise it when the same bytes give other facts, or are indexed anew."""

DIGEST_VERSION = 5
"""Version of digests: raise it when a field gets another meaning, or a better value, or when what
is counted for them (`DigestTally`) gets another shape."""

Part = Literal["redaction", "reader", "fold", "digest"]

PARTS: Final[tuple[Part, ...]] = ("redaction", "reader", "fold", "digest")
"""In the order in which one change includes the next: what is read again is digested again."""


class Fingerprint(msgspec.Struct, frozen=True):
    """The version of each part by which sessions are derived."""

    redaction: int
    reader: int
    fold: int
    digest: int

    def changed_parts(self, known: SweepEntry) -> tuple[Part, ...]:
        """Return the parts whose version is not the one that a stored session was derived by.

        An evicted session has nothing left that a reader, a fold or a digest could be made from.
        """
        parts: list[Part] = []
        if known.redactor != self.redaction:
            parts.append("redaction")
        if known.evicted is not None:
            return tuple(parts)
        if known.reader != self.reader:
            parts.append("reader")
        if known.fold != self.fold:
            parts.append("fold")
        if known.analysed is not None and known.digest != self.digest:
            parts.append("digest")
        return tuple(parts)

    def needs_source(self, known: SweepEntry) -> bool:
        """Return whether a session with a source is read again from its start."""
        return known.redactor != self.redaction or (
            known.evicted is None and known.reader != self.reader
        )


def fingerprint(redaction: int) -> Fingerprint:
    """Return the versions of today, with that of the redaction rules in use."""
    return Fingerprint(redaction, READER_VERSION, fold.VERSION, DIGEST_VERSION)
