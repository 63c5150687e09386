"""What two stores must say alike of a session, however it came into them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from thence.format.stored import StoredEvent
from thence.memory.placeholders import count_by_rule
from thence.memory.store import Filter, Store

EXCEPTED: Final = {
    "change": "counts the writes of this store",
    "carried_change": "names one of them",
    "raw_bytes": "what this store takes for it: rows, index and packs",
    "pack_bytes": "how this store packed its payloads",
    "text_bytes": "what this index takes for it",
    "discovered_at": "when this store first had it",
    "ingested_at": "when this store wrote it",
    "analyzed_at": "when this store digested it; that it did is compared",
    "evicted_at": "when this store removed it; that it did is compared",
    "at": "when this store wrote its digest",
    "member": "the machine that wrote it into a team's store, which no store keeps",
}
"""Fields that differ between any two stores, each with the reason."""

OF_A_FILE: Final = {
    "imported": "only what a file or another machine brought says so",
    "source_path": "the log lies elsewhere, or nowhere",
    "files": "nor do its files",
    "source_bytes": "a file brings records, not the log",
    "gone": "its log is not on this machine and never was: nobody deleted it",
    "skipped": "lines that could not be read are in no file that is shared",
    "cursor": "there is no log to go on with",
    "reader": "no reader of this machine read it",
}
"""Further fields that differ where a session comes without its log."""


def picture(store: Store, uid: str, *, of_a_file: bool = False) -> dict[str, Any]:
    """Return all that a store says of a session, without what must differ between two stores.

    Its row, its events with states, outcomes, effects and summaries, the bodies of their payloads,
    what it spent, its digest with the files it touched, and its signals.
    """
    left_out = {*EXCEPTED, *(OF_A_FILE if of_a_file else ())}
    wanted = Filter(uids=(uid,))
    [row] = store.sessions(wanted)
    fields = msgspec.to_builtins(row)
    session = fields.pop("session")
    # Their marks come from the key of a home: elsewhere they are others.
    fields["secrets"] = count_by_rule(row.secrets)
    out: dict[str, Any] = {f"row {name}": value for name, value in (session | fields).items()}
    out["row analysed"] = row.session.analyzed_at is not None
    out["row removed"] = row.session.evicted_at is not None
    out = {name: value for name, value in out.items() if name.split(" ")[1] not in left_out}
    for event in store.events(uid):
        out[f"event {event.event.event_id:013x}"] = _event(store, event)
    for what in ("spend", "signals"):
        entries = [_without(entry, left_out) for entry in store.read_table(what, wanted)]
        out[what] = sorted(entries, key=repr)
    for digest in store.read_table("digests", wanted):
        for name, value in _without(digest, left_out).items():
            out[f"digest {name}"] = value
    return out


def _event(store: Store, stored: StoredEvent) -> dict[str, Any]:
    ref = stored.event.payload_ref
    event_fields: dict[str, Any] = msgspec.to_builtins(stored)
    # A store numbers events as it reads them, and keeps their payloads where it likes.
    event_fields["event"] = {
        name: value
        for name, value in event_fields["event"].items()
        if name not in ("seq", "parent_seq", "payload_ref")
    }
    event_fields["payload"] = None if ref is None else msgspec.json.decode(store.blobs.read(ref))
    return event_fields


def _without(entry: Mapping[str, Any], left_out: set[str]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in left_out}


def differences(first: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the parts of two pictures that differ, by name; of events, their fields."""
    out: dict[str, tuple[Any, Any]] = {}
    for name in sorted({*first, *other}):
        left, right = first.get(name), other.get(name)
        if left == right:
            continue
        if name.startswith("event ") and left is not None and right is not None:
            for field in sorted({*left, *right}):
                if left.get(field) != right.get(field):
                    out[f"{name} {field}"] = (left.get(field), right.get(field))
        else:
            out[name] = (left, right)
    return out
