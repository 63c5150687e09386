"""What sessions did: calls by tool and edits by file, of all sessions that are asked for.

Digests say it. Each is read once, and again when there is another: then a sum over thousands of
sessions takes a look at the list of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from thence.format.records import JSON
from thence.memory.store import Filter
from thence.serve.context import AppContext

BATCH_SESSIONS: Final = 500
"""Digests that are read at once."""

File = tuple[str, str]
"""A folder, and the path of a file that a session changed there."""


class SessionWork(NamedTuple):
    """What one session did."""

    calls: dict[str, int]
    failed: dict[str, int]
    edits: dict[File, int]


class Work(NamedTuple):
    """What some sessions did together."""

    calls: Counter[str]
    failed: Counter[str]
    edits: Counter[File]
    sessions: Counter[File]
    """How many sessions changed a file."""


_Digested = tuple[int | None, SessionWork]
"""When a session was digested, and what it did."""


def work_of(context: AppContext, *, after: int = 0, uids: Collection[str] | None = None) -> Work:
    """Add up what all sessions did that ended after a time, or some of them."""
    entries = context.store.known(uids).sessions
    cache: dict[str, _Digested] = context.cached(work_of, dict)
    for gone in (cache.keys() - entries.keys()) if uids is None else ():
        cache.pop(gone, None)  # what was forgotten is not kept here
    cached = cache.copy()
    digested = {uid: e.analysed for uid, e in entries.items() if (e.ended or 0) >= after}
    stale = [uid for uid, at in digested.items() if cached.get(uid, (-1,))[0] != at]
    read = _read(context, digested, stale)
    cache.update(read)
    cached.update(read)
    work = Work(Counter(), Counter(), Counter(), Counter())
    for session in (cached[uid][1] for uid in digested):
        work.calls.update(session.calls)
        work.failed.update(session.failed)
        work.edits.update(session.edits)
        work.sessions.update(session.edits.keys())
    return work


def _read(
    context: AppContext, digested: Mapping[str, int | None], uids: Sequence[str]
) -> dict[str, _Digested]:
    """Read the digests of sessions; one without a digest did nothing yet."""
    out = {uid: (digested[uid], SessionWork({}, {}, {})) for uid in uids}
    for at in range(0, len(uids), BATCH_SESSIONS):
        wanted = Filter(uids=tuple(uids[at : at + BATCH_SESSIONS]))
        for digest in context.store.read_table("digests", wanted):
            uid = f"{digest['uid']}"
            out[uid] = digested[uid], _work(digest)
    return out


def _work(digest: Mapping[str, JSON]) -> SessionWork:
    tools = {f"{tool.get('tool')}": tool for tool in _entries(digest.get("tools"))}
    folder = f"{digest.get('cwd') or ''}"
    files = {(folder, f"{file.get('path')}"): file for file in _entries(digest.get("files"))}
    return SessionWork(
        {name: _number(tool.get("calls")) for name, tool in tools.items()},
        {name: _number(tool.get("failed")) for name, tool in tools.items()},
        {file: number for file, entry in files.items() if (number := _number(entry.get("edits")))},
    )


def _entries(value: JSON) -> list[dict[str, JSON]]:
    """Return the objects of a list; a digest of another program may hold anything."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _number(value: JSON) -> int:
    return value if isinstance(value, int) else 0
