"""`SessionStore` of the Claude Agent SDK, kept in the journal.

    options = ClaudeAgentOptions(session_store=JournalSessionStore(thence.Journal()))

A transcript is a session of ours, a subagent's transcript one of its sidechains, an entry an
event: messages are messages, linked as the client linked them, and the rest of each entry stands
beside its message, so that nothing is kept twice and everything comes back equal. Invariants: an
entry's uuid counts once, entries without one are never left out; a batch counts whole or not at
all; `delete` is a tombstone and removes nothing; a damaged entry costs itself; any number of
threads and processes may append; the event loop waits for no disk longer than `PATIENCE`. Entries
about permissions are data here: no ledger is ever filled from them.
"""

from __future__ import annotations

import re
import time
from collections import ChainMap, OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from thence.bridge.sdk_records import importing, mark_of, plain, session_name, shown_in
from thence.bridge.worker import Worker
from thence.format.records import JSON, Event
from thence.journal import Journal, Session
from thence.journal.batches import MARK, BatchEntry, Batches

BRIDGE = "claude-agent-sdk"

OPEN = 128
"""Transcripts whose ids are held at a time, and their files if they were written to."""

PATIENCE = 0.05
"""Seconds that the loop waits for a call at most. The SDK mirrors a transcript frame by frame, and
what is kept before the next frame is read is not lost with it."""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class TranscriptStore(Protocol):
    """Where transcripts lie, as one thread sees it."""

    def append(self, key: TranscriptKey, entries: list[JSON]) -> None:
        """Append a batch: whole or not at all, each uuid once."""

    def load(self, key: TranscriptKey) -> list[JSON] | None:
        """Return all entries; None when there are none."""

    def sessions(self, project: str) -> list[dict[str, JSON]]:
        """List the sessions of a project."""

    def summaries(self, project: str) -> list[dict[str, JSON]]:
        """Return the summary of each."""

    def delete(self, key: TranscriptKey) -> None:
        """Write a tombstone."""

    def subkeys(self, key: TranscriptKey) -> list[str]:
        """List the subagents of a session."""

    def close(self) -> None:
        """Let go of everything; it can be used again."""


class Front:
    """What the SDK calls; has the shape of `claude_agent_sdk.SessionStore`."""

    def __init__(self, transcripts: TranscriptStore) -> None:
        self._transcripts = transcripts
        self._worker = Worker(PATIENCE)

    async def append(self, key: Mapping[str, Any], entries: list[Any]) -> None:
        """Append a batch of entries."""
        if entries:
            await self._worker.run(self._transcripts.append, TranscriptKey.of(key), plain(entries))

    async def load(self, key: Mapping[str, Any]) -> list[Any] | None:
        """Return all entries of a transcript; None for one that was never written, or deleted."""
        return await self._worker.run(self._transcripts.load, TranscriptKey.of(key))

    async def list_sessions(self, project_key: str) -> list[Any]:
        """List the sessions of a project with the time they were last written."""
        return await self._worker.run(self._transcripts.sessions, project_key)

    async def list_session_summaries(self, project_key: str) -> list[Any]:
        """Return the SDK's own summary of every session of a project."""
        return await self._worker.run(self._transcripts.summaries, project_key)

    async def delete(self, key: Mapping[str, Any]) -> None:
        """Write a tombstone: the SDK sees the transcript no more, but nothing is removed."""
        await self._worker.run(self._transcripts.delete, TranscriptKey.of(key))

    async def list_subkeys(self, key: Mapping[str, Any]) -> list[str]:
        """List the subagents of a session."""
        return await self._worker.run(self._transcripts.subkeys, TranscriptKey.of(key))

    async def aclose(self) -> None:
        """End cleanly; the store can be used again."""
        await self._worker.run(self._transcripts.close)


class JournalSessionStore(Front):
    """Transcripts in one journal."""

    def __init__(self, journal: Journal, *, cwd: Path | str | None = None) -> None:
        """Keep transcripts in a journal.

        `cwd` is the folder the agents work in. With it `session(key)` can make checkpoints of
        files, which the SDK itself does not do for a client with a store.
        """
        self._journal = _OpenTranscripts(journal, cwd)
        super().__init__(self._journal)

    async def session(self, key: Mapping[str, Any]) -> Session:
        """Open a transcript as a session of ours: for checkpoints, decisions, notes.

        What is recorded there stands in the same log and does not come back through `load`.
        """
        return await self._worker.run(self._journal.session, TranscriptKey.of(key))

    async def flush(self) -> None:
        """Return when everything appended so far is on the disk itself."""
        await self._worker.run(self._journal.flush)


class TranscriptKey(msgspec.Struct, frozen=True):
    """Which transcript."""

    project: str
    session: str
    subpath: str | None = None

    @staticmethod
    def of(key: Mapping[str, Any]) -> TranscriptKey:
        """Read a key of the SDK."""
        return TranscriptKey(key["project_key"], key["session_id"], key.get("subpath") or None)

    @property
    def name(self) -> str:
        """The id of the session in the journal."""
        return session_name(BRIDGE, self.project, self.session)

    @property
    def owner(self) -> tuple[str, str]:
        """Which session, the subagent left aside."""
        return self.project, self.session

    @property
    def agent(self) -> str | None:
        """The id of the subagent's channel."""
        if self.subpath is None:
            return None
        return session_name(BRIDGE, f"{self.project}\0{self.session}", f"/{self.subpath}")


class _OpenTranscripts:
    """The transcripts at hand, for one thread."""

    def __init__(self, journal: Journal, cwd: Path | str | None) -> None:
        self._journal = journal
        self._cwd = cwd
        self._open: OrderedDict[TranscriptKey, _Transcript] = OrderedDict()
        self._now = 0

    def _transcript(self, key: TranscriptKey) -> _Transcript:
        """The transcript of a key. Those not used for long are let go, what they hold with them."""
        transcript = self._open.get(key) or _Transcript(key, self._batches(key))
        self._open[key] = transcript
        self._open.move_to_end(key)
        while len(self._open) > OPEN and self._journal.enabled:
            self._open.popitem(last=False)[1].batches.close()
        return transcript

    def _batches(self, key: TranscriptKey) -> Batches:
        header = {"bridge": BRIDGE, "project_key": key.project, "name": key.subpath or key.session}
        return self._journal.batches(
            key.name, project=key.project, cwd=self._cwd, agent=key.agent, **header
        )

    def append(self, key: TranscriptKey, entries: list[JSON]) -> None:
        transcript = self._transcript(key)
        if key.agent is not None and not transcript.is_begun:
            payload = {"agent_id": key.agent, "completion_status": "running", "name": key.subpath}
            main = self._transcript(TranscriptKey(key.project, key.session))
            main.batches.append([BatchEntry("sidechain", payload)])
        transcript.append(entries)
        # Looked at after the write: no two writes are as old as each other then, however coarse
        # the clock of the files is, and the later one is the younger.
        self._now = max(self._now + 1, time.time_ns() // 1_000_000)
        transcript.written = self._now

    def load(self, key: TranscriptKey) -> list[JSON] | None:
        return self._transcript(key).load()

    def sessions(self, project: str) -> list[dict[str, JSON]]:
        transcripts = [(key, self._transcript(key)) for key in self._keys(project)]
        return [
            {"session_id": key.session, "mtime": transcript.modified}
            for key, transcript in transcripts
            if transcript.has_entries
        ]

    def _keys(self, project: str) -> list[TranscriptKey]:
        """All sessions of a project that this bridge began, by their headers."""
        names = self._journal.read_headers(project)
        mine = [header for header in names if header.get("bridge") == BRIDGE]
        stored = [
            TranscriptKey(project, header["name"])
            for header in mine
            if header.get("project_key") == project and isinstance(header.get("name"), str)
        ]
        opened = [key for key in self._open if key.project == project and key.subpath is None]
        return list(dict.fromkeys(stored + opened))

    def summaries(self, project: str) -> list[dict[str, JSON]]:
        transcripts = [(key, self._transcript(key)) for key in self._keys(project)]
        return [transcript.summary() for _, transcript in transcripts if transcript.has_entries]

    def delete(self, key: TranscriptKey) -> None:
        if key.subpath is None:
            for subpath in self.subkeys(key):
                self.delete(TranscriptKey(key.project, key.session, subpath))
        self._transcript(key).delete()

    def subkeys(self, key: TranscriptKey) -> list[str]:
        headers = self._journal.read_headers(key.project, session=key.name)
        named = [
            header.get("name") for header in headers if header.get("project_key") == key.project
        ]
        opened = [k.subpath for k in self._open if (k.project, k.session) == key.owner]
        subpaths = dict.fromkeys(name for name in named + opened if isinstance(name, str))
        every = [TranscriptKey(key.project, key.session, subpath) for subpath in subpaths]
        return [k.subpath for k in every if k.subpath and self._transcript(k).has_entries]

    def session(self, key: TranscriptKey) -> Session:
        main = self._transcript(TranscriptKey(key.project, key.session))
        with main.batches.exclusive():
            pass  # begun now, if it was not
        return self._journal.resume(key.name, mode="continue", orphans="mark", project=key.project)

    def flush(self) -> None:
        for transcript in self._open.values():
            transcript.batches.sync()

    def close(self) -> None:
        for transcript in self._open.values():
            transcript.batches.close()


class _Transcript:
    """One transcript: which entries count, and where they stand."""

    def __init__(self, key: TranscriptKey, batches: Batches) -> None:
        self.key = key
        self.batches = batches
        self._line: list[str] = []
        self._own: set[str] = set()
        self._events: dict[str, str] = {}  # an entry's uuid -> its event's
        self.written = 0
        """When this process last wrote it, in milliseconds."""
        self._summary: dict[str, JSON] | None = None
        self._folded = 0

    def _look(self) -> None:
        for event in self.batches.look():
            if event.type == "tip" and event.fields.get("deleted") is True:
                self._line, self._events = [], {}
                self._summary, self._folded = None, 0
            elif _mark(event) is not None:
                self._line.append(event.uuid)
                self._own.add(event.uuid)
                uuid = uuid_of(entry_of(event))
                if uuid is not None:
                    self._events.setdefault(uuid, event.uuid)

    @property
    def is_begun(self) -> bool:
        self._look()
        return self.batches.root is not None

    @property
    def has_entries(self) -> bool:
        self._look()
        return bool(self._line)

    def append(self, entries: list[JSON]) -> None:
        with self.batches.exclusive():
            self._look()
            seen: ChainMap[str, str] = ChainMap({}, self._events)
            last = self._last_entry()
            made: list[BatchEntry] = []
            for entry in entries:
                uuid = uuid_of(entry)
                if uuid is None:
                    made.append(event_of(entry, None, seen, last))
                elif uuid not in seen:
                    own = uuid if uuid not in self.batches.links else None
                    made.append(event_of(entry, own, seen, last))
                    seen[uuid] = own or ""
                last = None  # the first one only: what comes with it is linked as it says
            self.batches.append(made)

    def _last_entry(self) -> str | None:
        """The entry that the tip stands on or goes on from; what a harness noted comes after it."""
        at = self.batches.tip
        while at is not None and at not in self._own:
            at = self.batches.links.get(at)
        return at

    def load(self) -> list[JSON] | None:
        self._look()
        entries = [entry_of(event) for event in self.batches.read(self._line)]
        return entries or None

    def delete(self) -> None:
        if self.has_entries:
            self.batches.rewind(None, deleted=True)

    @property
    def modified(self) -> int:
        """When it was last written, in milliseconds: the clock of lists and summaries alike."""
        return max(int((self.batches.modified() or 0) * 1000), self.written)

    def summary(self) -> dict[str, JSON]:
        """The SDK's own fold over the entries, those that came since the last time added."""
        self._look()
        new = [entry_of(event) for event in self.batches.read(self._line[self._folded :])]
        if new:
            self._summary = fold_summary(self.key, self._summary, new)
            self._folded = len(self._line)
        return {**(self._summary or {}), "mtime": self.modified}


def fold_summary(key: TranscriptKey, known: JSON, new: list[JSON]) -> dict[str, JSON]:
    """Return the SDK's own summary of a session, with further entries added."""
    with importing("claude-agent-sdk", extra="claude-sdk"):
        from claude_agent_sdk import fold_session_summary

    names = {"project_key": key.project, "session_id": key.session}
    folded: dict[str, JSON] = fold_session_summary(known, names, new)
    return folded


# -- entries as events ----------------------------------------------------------------------


def event_of(
    entry: JSON, uuid: str | None, known: Mapping[str, str], last: str | None = None
) -> BatchEntry:
    """Return the event of an entry: a message with the rest beside it, or the entry as it is.

    One that follows the last entry goes on from the tip: from what was noted since, if anything.
    """
    if not isinstance(entry, dict):
        return BatchEntry(MARK, {MARK: {"is": BRIDGE, "whole": entry}}, uuid)
    message: JSON = entry.get("message")
    parent, ts = entry.get("parentUuid"), entry.get("timestamp")
    when = ts if isinstance(ts, str) and _TIME.fullmatch(ts) else None
    above = known.get(parent) if isinstance(parent, str) else None
    above = None if above == last else above
    if entry.get("type") not in ("user", "assistant") or not _is_message(message, entry["type"]):
        return BatchEntry(MARK, {MARK: {"is": BRIDGE, "whole": entry}}, uuid, above, when)
    rest = {name: value for name, value in entry.items() if name != "message"}
    payload = {**message, MARK: {"is": BRIDGE, "entry": rest}}
    return BatchEntry(entry["type"], payload, uuid, above, when)


def entry_of(event: Event) -> JSON:
    """Return the entry of an event, equal to what was appended."""
    mark = _mark(event) or {}
    if "entry" not in mark:
        return mark.get("whole")
    return {**mark["entry"], "message": shown_in(event)}


def _is_message(message: JSON, role: JSON) -> bool:
    """Whether a message can stand as an event of ours without a word changed."""
    if not isinstance(message, dict) or MARK in message or message.get("role") != role:
        return False
    return isinstance(message.get("content"), (str, list))


def _mark(event: Event) -> dict[str, JSON] | None:
    mark = mark_of(event, BRIDGE)
    if mark is None:
        return None
    return mark if "whole" in mark or isinstance(mark.get("entry"), dict) else None


def uuid_of(entry: JSON) -> str | None:
    """Return the uuid by which an entry counts once, if it has one."""
    uuid = entry.get("uuid") if isinstance(entry, dict) else None
    return uuid if isinstance(uuid, str) and uuid else None
