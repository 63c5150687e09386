"""What stored sessions are derived by: the version of each part, compared with those of today.

Six parts turn a log into what the store has of it: redaction rules, the readers, the names of
tools, the fold, the price list and the digest. Each stored session has the version of each part
that made it, the names of tools in one number with the reader, the price list with the fold.
`Fingerprint.changed_parts` names the parts that are others today, so that only what depends on them
is derived again. Redaction rules, names of tools and prices have no number that somebody must
raise: their version is a hash over all of them, the user's own and those of installed agents
included (`redact.rules_version`, `Toolbox.version`, `Prices.version`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from thence.format import fold

if TYPE_CHECKING:
    from thence.format.tools import Toolbox
    from thence.memory.pricelist import Prices
    from thence.memory.store import SweepEntry

READER_VERSION = 9
"""Version of the readers: raise it when the same bytes give other facts, or are indexed anew."""

DIGEST_VERSION = 6
"""Version of digests: raise it when a field gets another meaning, or a better value, or when what
is counted for them (`DigestTally`) gets another shape."""

_READER_BITS = 8
"""Bits that hold the version of the readers; those above hold that of the names of tools."""
_READER_MASK = (1 << _READER_BITS) - 1

_FOLD_BITS = 16
"""Bits that hold the version of the fold; those above hold that of the price list."""
_FOLD_MASK = (1 << _FOLD_BITS) - 1

Part = Literal["redaction", "reader", "tools", "fold", "prices", "digest"]

PARTS: Final[tuple[Part, ...]] = ("redaction", "reader", "tools", "fold", "prices", "digest")
"""In the order in which one change includes the next: what is read again is digested again."""


class Fingerprint(msgspec.Struct, frozen=True):
    """The version of each part by which sessions are derived."""

    redaction: int
    reader: int
    fold: int
    digest: int
    toolbox: Toolbox

    def reader_of(self, uid: str, *, read_by: int | None = None) -> int:
        """Return the number of the readers and of the names of tools for a session.

        With `read_by`, such a number, it was read by the readers of that one.
        """
        tools = self.toolbox.of(uid.partition(":")[0]).version
        return tools << _READER_BITS | (self.reader if read_by is None else read_by) & _READER_MASK

    def changed_parts(self, uid: str, known: SweepEntry) -> tuple[Part, ...]:
        """Return the parts whose version is not the one that a stored session was derived by.

        An evicted session has nothing left that a reader, a fold or a digest could be made from.
        What tools do stays as it is where their agent is not installed.
        """
        parts: list[Part] = []
        if known.redactor != self.redaction:
            parts.append("redaction")
        if known.evicted is not None:
            return tuple(parts)
        if known.reader != self.reader_of(uid):
            if known.reader & _READER_MASK != self.reader:
                parts.append("reader")
            is_known = uid.partition(":")[0] in self.toolbox.agents
            if is_known and known.reader != self.reader_of(uid, read_by=known.reader):
                parts.append("tools")
        if known.fold != self.fold:
            parts.append("prices" if is_of_this_fold(known.fold) else "fold")
        if known.analysed is not None and known.digest != self.digest:
            parts.append("digest")
        return tuple(parts)

    def needs_source(self, known: SweepEntry) -> bool:
        """Return whether a session with a source is read again from its start."""
        return known.redactor != self.redaction or (
            known.evicted is None and known.reader & _READER_MASK != self.reader
        )


def is_of_this_fold(number: int) -> bool:
    """Return whether a session with such a number was put together by the fold of today."""
    return number & _FOLD_MASK == fold.VERSION


def fold_number(prices: Prices) -> int:
    """Return the number of the fold of today and of a price list."""
    return prices.version << _FOLD_BITS | fold.VERSION


def fingerprint(redaction: int, toolbox: Toolbox, prices: Prices) -> Fingerprint:
    """Return the versions of today, with those of the rules in use."""
    return Fingerprint(redaction, READER_VERSION, fold_number(prices), DIGEST_VERSION, toolbox)
