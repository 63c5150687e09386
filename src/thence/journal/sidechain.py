"""The channel of one subagent: a log of its own that its parent never reads.

The parent's transcript gets three facts about a child: that it was started, how it ended, and
its summary. A child that is lost is told as `running` or `crashed`, never as an empty string.
Invariants: what a child recorded is on the disk before its parent hears that it ended; all
children of a session together stay under a byte cap, and passing it is an error that says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple, Self

from thence.errors import BudgetExceeded, Conflict, NotAppendable, ThenceError
from thence.format import codec
from thence.format.records import JSON, Event, word
from thence.journal.arguments import Text, check_event, checked, checks_itself, line_of
from thence.journal.beginnings import begin
from thence.journal.cleanup import is_held
from thence.journal.ids import checked_id, now_text, uuid7
from thence.journal.log import Durability, Log, make_folder
from thence.journal.messages import MessageRecorder
from thence.journal.reader import UnfinishedSubagent, head
from thence.journal.segmented_log import header_of
from thence.journal.segments import Segments, names_in
from thence.journal.spill import Spill

CAP_BYTES = 256 << 20

Status = Literal["finished", "crashed", "cancelled"]


class Parent(NamedTuple):
    """The session that starts a subagent, as far as its channel knows it."""

    id: str
    record: Callable[[str, JSON], object]
    """Appends one event."""


class Sidechains:
    """The subagents' logs of one session, in a folder of their own.

    Or, local to a project, in one that its sessions share: then `session` says whose are counted.
    """

    def __init__(
        self,
        folder: Path,
        *,
        cap: int = CAP_BYTES,
        durability: Durability = "turn",
        session: str | None = None,
        spill: Callable[[], Spill] | None = None,
    ) -> None:
        """Keep logs in a folder; `spill` opens the side files of one subagent's results."""
        self.spill = spill
        self.folder = folder
        self.cap = cap
        self._session = session
        self._owners: dict[str, str | None] = {}  # by file name; a header is written once
        self.durability = durability
        self._mutex = threading.Lock()
        self._room = 0
        self._looked_for = 0  # bytes that may be taken before the disk is looked at again

    def open(
        self,
        parent: Parent,
        agent: str,
        *,
        tool_use_id: str | None = None,
        agent_id: str | None = None,
    ) -> Sidechain:
        """Open a new channel and tell the parent."""
        make_folder(self.folder, durable=self.durability != "none")
        return Sidechain(parent, agent, self, tool_use_id=tool_use_id, agent_id=agent_id)

    def unfinished(self, session: str) -> list[UnfinishedSubagent]:
        """Find the subagents of a session whose logs have no end, oldest name first."""
        paths = self._logs(session)
        return [entry for path in paths if (entry := _read_unfinished(path)) is not None]

    def used(self) -> int:
        """How many bytes all children of the session have written, those of others included."""
        return sum(path.stat().st_size for path in self._logs(self._session))

    def _logs(self, session: str | None) -> list[Path]:
        """List the logs of a session's children."""
        paths = [self.folder / name for name in names_in(self.folder) if name.endswith(".jsonl")]
        if self._session is None:
            return paths
        return [path for path in paths if self._owner(path) == session]

    def _owner(self, path: Path) -> str | None:
        """Whose child wrote a file, by its header; None when it does not say."""
        if self._owners.get(path.name) is None:
            with Segments([path]) as file:
                header = head(file).header
            self._owners[path.name] = header.session_id if header is not None else None
        return self._owners[path.name]

    def take(self, size: int, *, end: bool = False) -> None:
        """Take room for a line from what all children share; the end of one is always told."""
        with self._mutex:
            if size > self._room or size > self._looked_for:  # other processes have children, too
                self._room, self._looked_for = self.cap - self.used(), max(self.cap // 16, size)
            if size > self._room and not end:
                raise BudgetExceeded(
                    f"the subagents of this session have written their {self.cap:,} bytes",
                    hint="finish or cancel subagents, or raise the cap for sidechains",
                )
            self._room -= size
            self._looked_for -= size


@checked
class Sidechain(MessageRecorder[str]):
    """One subagent's channel, open for writing."""

    def __init__(
        self,
        parent: Parent,
        agent: str,
        home: Sidechains | None,
        *,
        tool_use_id: str | None,
        agent_id: str | None = None,
    ) -> None:
        """Begin a log under an id of the caller's, or one that is drawn."""
        self.agent_id = uuid7() if agent_id is None else checked_id(agent_id)
        self.name = agent
        self.completion_status: Status | Literal["running"] = "running"
        self.summary: str | None = None
        self._parent = parent
        self._call = tool_use_id
        self._home = home
        self._tip: str | None = None
        self._log: Log | None = None
        self._spill = home.spill() if home is not None and home.spill is not None else None
        header = header_of(parent.id, agent_id=self.agent_id, name=agent)
        self._tip, line = self._encode("header", header)
        if home is not None:
            self.path = home.folder / f"{self.agent_id}.jsonl"
            if not begin(self.path, line, durable=home.durability != "none"):
                raise Conflict(f"subagent {agent_id} exists", hint="choose another id, or none")
            self._log = Log(self.path, durability=home.durability, begun=True)
        self._tell()

    @checks_itself
    def record(self, kind: str, payload: JSON) -> str:
        """Append one event to the child's own log and return its id."""
        check_event(kind, payload)
        if self.completion_status != "running":
            raise NotAppendable(
                f"subagent {self.name} has ended: {self.completion_status}",
                hint="session.sidechain(agent) opens another channel",
            )
        return self._write(kind, payload)

    def _write(self, kind: str, payload: JSON) -> str:
        """Append one event that was checked, or that is the library's own."""
        uuid, line = self._encode(kind, payload)
        if self._log is not None:
            self._log.append(line)
        self._tip = uuid
        return uuid

    def _encode(self, kind: str, payload: JSON) -> tuple[str, bytes]:
        """Return the id and the line of an event for which there is room."""
        if self._spill is not None:
            payload = self._spill.record(kind, payload)
        event = Event(kind, now_text(), uuid7(), self._tip, payload)
        line = line_of(event)
        if self._home is not None:
            self._home.take(len(line), end=kind == "terminator")
        return event.uuid, line

    def finish(self, summary: Text) -> None:
        """The child is done: its log is on the disk, then the parent gets the summary."""
        self._end("finished", summary)

    def cancel(self, reason: str = "cancelled") -> None:
        """The child was stopped."""
        self._end("cancelled", reason)

    def crash(self, reason: str) -> None:
        """The child broke; what it had written stays."""
        self._end("crashed", reason)

    def _end(self, status: Status, summary: str) -> None:
        if self.completion_status != "running":
            return
        self.completion_status, self.summary = status, summary
        try:
            self._close(status)
        finally:  # the parent hears of the end even when the child's own file cannot be finished
            self._tell()

    def _close(self, status: Status) -> None:
        """Write the end of the child's log and bring it to the disk."""
        if self._log is None:
            return
        try:
            self._write("terminator", {"end_ts": now_text(), "reason": status})
        finally:
            self._log.close()

    def _tell(self) -> None:
        self._parent.record(
            "sidechain",
            {
                "agent_id": self.agent_id,
                "tool_use_id": self._call,
                "completion_status": self.completion_status,
                "summary": self.summary,
                "name": self.name,
            },
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: object
    ) -> None:
        if kind is not None:
            self.crash(f"{kind.__name__}: {error}")
        else:
            self.crash("ended without finish()")


def _read_unfinished(path: Path) -> UnfinishedSubagent | None:
    """Look at the first and the last line of a subagent's log; None when it has an end.

    Nor is one that was never begun a subagent: its parent never heard of it.
    """
    with Segments([path]) as file:
        if not file.is_begun:
            return None
        first = codec.decode(file.read(0, file.line_end(0))).events
        stop = file.size
        if stop and file.read(stop - 1, stop) != b"\n":  # cut short by what killed it
            stop = file.line_start(stop - 1)
        last = codec.decode(file.read(file.line_start(max(stop - 1, 0)), stop)).events
    if last and last[-1].type == "terminator":
        return None
    ending = last[-1] if last else Event("nothing", "", "", None, None)
    return UnfinishedSubagent(
        path.name.removesuffix(".jsonl"),
        word(first[0].fields.get("name")) if first else "",
        "running" if _is_held(path) else "lost",
        ending.type,
        ending.ts,
        ending.uuid,
    )


def _is_held(path: Path) -> bool:
    """Whether somebody writes a log; of one that cannot be opened nobody knows."""
    try:
        return is_held(path)
    except (ThenceError, OSError):  # unknown: treated as ended
        return False
