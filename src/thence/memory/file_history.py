"""Which sessions touched a file, and why: one of the questions that a memory is asked.

The digests tell which sessions read or changed it, evicted ones included; the events of those
that are still whole tell for which prompt that was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from thence.format.graph import State
from thence.format.records import JSON
from thence.format.stored import StoredEvent
from thence.memory.labels import Label
from thence.memory.session_status import Now, digests_now
from thence.memory.store import Filter, Store

# -- which ----------------------------------------------------------------------------------


def sessions_touching(
    store: Store, wanted: Filter, path: str, now: Now, labels: Mapping[str, Label]
) -> list[dict[str, JSON]]:
    """Return the sessions whose digest names the file, the newest first."""
    names = _names(path)
    touched: dict[str, list[dict[str, JSON]]] = {}
    digests: list[dict[str, JSON]] = []
    for digest in store.read_table("digests", wanted):
        listed = digest.get("files")
        files = [
            {name: entry.get(name) or 0 for name in ("path", "reads", "edits", "broke")}
            for entry in (listed if isinstance(listed, list) else ())
            if isinstance(entry, dict) and _is(entry.get("path"), digest.get("cwd"), names)
        ]
        if files:
            touched[digest["uid"]] = files
            digests.append(digest)
    out: list[dict[str, JSON]] = [
        {
            "session_uid": digest["uid"],
            **{name: digest.get(name) for name in ("title", "ended_at", "outcome", "cwd")},
            "files": touched[digest["uid"]],
        }
        for digest in digests_now(store, digests, now, labels)
    ]
    out.sort(key=lambda entry: entry["ended_at"] or "", reverse=True)
    return out


def _names(path: str) -> list[str]:
    """Return what a path may be called: as it was given, and in full if it is there."""
    relative = path.removeprefix("./").rstrip("/")
    full = str(Path(path).expanduser().absolute())
    return list(dict.fromkeys([relative, full] if Path(full).exists() else [relative]))


def _is(value: JSON, cwd: JSON, names: Sequence[str]) -> bool:
    """Whether a path that a session names is one of these, or ends in it."""
    if not isinstance(value, str):
        return False
    full = value if value.startswith("/") or not isinstance(cwd, str) else f"{cwd}/{value}"
    return any(full == name or full.endswith(f"/{name}") for name in names)


# -- why ------------------------------------------------------------------------------------


def reasons(store: Store, uid: str, paths: Sequence[str]) -> list[dict[str, JSON]]:
    """Return the prompts for which a session touched files; none of one that was evicted."""
    rows = sorted(store.events(uid), key=lambda row: (row.event.ts or "", row.seq))
    out: list[dict[str, JSON]] = []
    counts: dict[str, JSON] | None = None
    is_in_prompt = False
    for row in rows:
        event = row.event
        is_prompt = event.kind == "user_msg" and not event.is_sidechain
        if is_prompt and not (is_in_prompt and event.block):
            named = {"ts": event.ts, "event_id": event.event_id, "prompt": event.summary}
            counts = {**named, "edits": 0, "reads": 0}
            out.append(counts)
        elif is_prompt and counts is not None and not counts["prompt"]:
            counts["prompt"] = event.summary
        is_in_prompt = is_prompt
        if counts is not None and (touch := _touch(row, paths)) is not None:
            counts[touch] += 1
    return [entry for entry in out if entry["edits"] + entry["reads"]]


def _touch(row: StoredEvent, paths: Sequence[str]) -> Literal["edits", "reads"] | None:
    """Return how a call touched one of the files; None unless it is known to have done so."""
    if row.effect is None or row.outcome is None or not row.outcome.succeeded:
        return None
    if row.event.state is State.REPLAYED:
        return None
    hows = {how for path, how in row.effect.touches if _is_one_of(path, paths)}
    return None if not hows else "reads" if hows == {"read"} else "edits"


def _is_one_of(path: str, paths: Sequence[str]) -> bool:
    return any(
        path == other or path.endswith(f"/{other}") or other.endswith(f"/{path}") for other in paths
    )
