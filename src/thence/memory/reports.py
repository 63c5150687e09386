"""What a sweep says of itself: how far it is, what became of sources, what it did in all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from thence.agents import packages
from thence.agents.unread import Unread
from thence.format.figures import several
from thence.format.records import Skipped
from thence.memory.derivation import PARTS, Part
from thence.memory.store import DATA_LOSS, FORGOTTEN, DigestRecord, SessionChange, Store

Stage = Literal["find", "read", "reprocess", "digest", "evict", "embed", "push", "done"]


class Progress(msgspec.Struct, frozen=True):
    """How far a sweep is."""

    stage: Stage
    bytes: int = 0
    all_bytes: int = 0
    sources: int = 0
    all_sources: int = 0
    sessions: int = 0


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one source that is worth telling."""

    uid: str
    path: str
    what: Literal["new", "changed", "failed", "gone", "undigested", "excluded", "vanished"]
    events: int = 0
    skipped: tuple[Skipped, ...] = ()
    why: str | None = None


class SweepPiece(msgspec.Struct):
    """What the reader hands to the writer about one source."""

    outcome: Outcome
    change: SessionChange | None = None
    digested: DigestRecord | None = None
    lines: int = 0
    bytes: int = 0
    more: bool = False
    """Not the last piece of its source."""
    rebuilt: str | None = None
    """Why the session was put together from all of its facts, not continued."""
    problems: list[packages.Problem] = []
    """What of other packages was left out so far, where the source could not be read."""
    secrets: tuple[str, ...] = ()
    """The secrets that were taken out of it, and of nothing of the session before."""
    more_secrets: bool = False
    """There were others: more than are told apart."""


class SweepReport(msgspec.Struct):
    """What a sweep did. The names are those of `thence sweep --json`."""

    sources: int = 0
    read: int = 0
    unchanged: int = 0
    excluded: int = 0
    gone: int = 0
    vanished: int = 0
    """Sessions whose files were deleted after they were found and before they were read."""
    sessions_new: int = 0
    sessions_changed: int = 0
    events: int = 0
    lines: int = 0
    bytes: int = 0
    rebuilt: int = 0
    """Times a session was put together from all of its facts instead of being continued."""
    rebuilt_because: dict[str, int] = {}
    """How often for which reason."""
    reprocessed: dict[Part, int] = msgspec.field(default_factory=lambda: dict.fromkeys(PARTS, 0))
    """Stored sessions that were derived again, by the part that changed."""
    skipped: int = 0
    failed: int = 0
    redactions: dict[str, int] = {}
    """Secrets that were taken out of sessions, by rule; equal ones of a session count once."""
    more_redacted: bool = False
    """There were more: of one session at most 1,000 are told apart."""
    digested: int = 0
    undigested: int = 0
    """Sessions whose digest was left to the next sweep, so that new lines are read first."""
    embedded: int = 0
    """Sessions that got vectors, where semantic search is on."""
    unembedded: int = 0
    """Sessions whose vectors were left to the next sweep."""
    evicted: int = 0
    lost: int = 0
    """Sessions that were evicted without a digest of all of them."""
    losses: dict[str, str] = {}
    """These sessions, and why each was lost."""
    only_copies: int = 0
    """Sessions that were evicted though their source is gone; their digests are all there is."""
    pending: int = 0
    """Evicted ones of which some page may still hold words, until the next sweep."""
    seconds: float = 0.0
    notes: list[str] = []
    """What the user must be told: data that was lost, alerts of the retention."""
    outcomes: list[Outcome] = []
    not_read: list[Unread] = []
    """What was found and is not read."""
    problems: list[packages.Problem] = []
    """What of other packages was left out, and why."""

    def note_rebuild(self, reason: str) -> None:
        """Count a session that was put together from all of its facts."""
        self.rebuilt += 1
        self.rebuilt_because[reason] = self.rebuilt_because.get(reason, 0) + 1


# -- losses ---------------------------------------------------------------------------------


def losses_of(store: Store) -> dict[str, str]:
    """Return the sessions that were removed before a digest covered all of them, and why.

    Of one that its user has forgotten since nothing is missed.
    """
    removals = store.read_table("removals")
    lost = (entry for entry in removals if entry["what"] == DATA_LOSS)
    return {entry["uid"]: entry["why"] for entry in lost if entry["uid"] != FORGOTTEN}


def describe_losses(losses: Mapping[str, str]) -> str:
    """Say in a sentence how many sessions were lost, and why the first of them was."""
    reason = next(iter(losses.values()), "").removesuffix(": data loss")
    return f"{count_losses(losses)}: {reason}"


def count_losses(losses: Mapping[str, str]) -> str:
    """Say how many sessions were lost, without why."""
    were, they = ("was", "it was") if len(losses) == 1 else ("were", "they were")
    return f"{several(len(losses), 'session')} {were} removed before {they} fully analysed"
