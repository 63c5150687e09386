"""Made-up transcripts of Claude Code: a configuration folder, written record by record."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from thence.agents import File, Source
from thence.agents.claude.reader import Claude
from thence.agents.sessions import LoadedSession, load_source
from thence.format.graph import State
from thence.format.session_graph import SessionGraph
from thence.memory.readouts import readout_of

A = "0a000000-0000-4000-8000-00000000000a"
B = "0b000000-0000-4000-8000-00000000000b"
PROJECT = "-home-dev-project"

Record = dict[str, Any]


class Script:
    """A transcript in the making. Records follow one another unless they name a parent."""

    def __init__(self, session: str = A, name: str = "r", **frame: Any) -> None:
        self.session = session
        self.records: list[Record] = []
        self._name = name
        self._frame = frame
        self._last: str | None = None

    def add(self, kind: str, /, **fields: Any) -> str:
        """Add a linked record; gives its id. `uuid` and `parentUuid` may be given."""
        number = len(self.records) + 1
        record = {
            "parentUuid": self._last,
            "isSidechain": False,
            "type": kind,
            "uuid": f"{self._name}{number}",
            "timestamp": f"2026-01-01T00:{number // 60:02}:{number % 60:02}.000Z",
            "cwd": "/home/dev/project",
            "sessionId": self.session,
            "version": "2.1.325",
            "gitBranch": "main",
            **self._frame,
            **fields,
        }
        self.records.append({key: value for key, value in record.items() if value is not ...})
        self._last = record["uuid"] if isinstance(record["uuid"], str) else self._last
        return str(record["uuid"])

    def note(self, kind: str, /, **fields: Any) -> None:
        """Add a record without links."""
        self.records.append({"type": kind, "sessionId": self.session, **fields})

    def user(self, content: Any = "Go.", **fields: Any) -> str:
        """What the user, or the harness in the user's name, says."""
        return self.add("user", message={"role": "user", "content": content}, **fields)

    def say(self, text: str = "Done.", **fields: Any) -> str:
        """An answer that ends a turn."""
        return self.reply([{"type": "text", "text": text}], stop="end_turn", **fields)

    def call(self, call: str, name: str = "Bash", **arguments: Any) -> str:
        """A call; `arguments` is its input."""
        block = {
            "type": "tool_use",
            "id": call,
            "name": name,
            "input": arguments or {"command": "ls"},
        }
        return self.reply([block], stop="tool_use")

    def reply(
        self,
        content: Any,
        *,
        id: str | None = None,  # noqa: A002 - the API's name
        stop: str | None = None,
        usage: Any = None,
        model: str = "claude-opus-5-5",
        request: str | None = None,
        **fields: Any,
    ) -> str:
        """A record of an answer."""
        message = {"role": "assistant", "content": content, "model": model, "stop_reason": stop}
        number = len(self.records) + 1
        message["id"] = id if id is not None else f"msg_{self._name}{number}"
        if usage is not None:
            message["usage"] = usage
        if request is not None:
            fields["requestId"] = request
        return self.add("assistant", message=message, **fields)

    def result(self, call: str, content: Any = "ok", *, wrong: Any = ..., **fields: Any) -> str:
        """The result of a call."""
        block = {"type": "tool_result", "tool_use_id": call, "content": content}
        if wrong is not ...:
            block["is_error"] = wrong
        return self.user([block], **fields)

    def boundary(self, **fields: Any) -> str:
        """A compaction."""
        before = fields.pop("logicalParentUuid", self._last)
        return self.add(
            "system",
            subtype="compact_boundary",
            logicalParentUuid=before,
            **{"parentUuid": None, **fields},
        )

    @property
    def data(self) -> bytes:
        """The bytes of the file."""
        return b"".join(json.dumps(record).encode() + b"\n" for record in self.records)


def write(home: Path, *scripts: Script, project: str = PROJECT) -> Path:
    """Write sessions below a configuration folder; gives the project's folder."""
    folder = home / "projects" / project
    folder.mkdir(parents=True, exist_ok=True)
    for script in scripts:
        (folder / f"{script.session}.jsonl").write_bytes(script.data)
    return folder


def sources(home: Path) -> dict[str, Source]:
    """All sessions of a configuration folder."""
    return {source.session: source for source in Claude().find(home)}


def read(home: Path, session: str = A) -> LoadedSession:
    """One session, as its folder has it."""
    return load_source(Claude(), sources(home)[session])


def session_of(home: Path, *scripts: Script) -> SessionGraph:
    """The session that the first of some scripts tells."""
    write(home, *scripts)
    return read(home, scripts[0].session).graph


def alone(path: Path, channel: str = "main") -> Source:
    """A source of one file and nothing beside it."""
    return Source("claude", A, (File(str(path), "main", channel),))


def sent_lines(session: SessionGraph, *, orphans: Any = "answer") -> list[str]:
    """What the model would be sent, in short."""
    out: list[str] = []
    for message in readout_of(session).messages(orphans).messages:
        for block in message["content"]:
            what = block.get("text") or block.get("id") or block.get("tool_use_id")
            out.append(f"{message['role'][0]} {what or block['type']}")
    return out


def states(session: SessionGraph, state: State) -> list[str]:
    """The records that are in a state, by id."""
    pairs = zip(session.facts, session.states, strict=True)
    return [fact.node.id for fact, now in pairs if now is state]


def kinds(session: SessionGraph, record: str) -> list[tuple[str, str | None, str]]:
    """The events of one record: kind, role, summary."""
    return [
        (event.kind, event.role, event.summary)
        for event in session.events
        if event.native_id == record
    ]


def prompts(session: SessionGraph) -> list[str]:
    """What a human said, as events."""
    return [event.summary for event in session.events if event.kind == "user_msg"]


def text(value: str) -> Record:
    """A text block."""
    return {"type": "text", "text": value}


def usage(output: int, **more: Any) -> Record:
    """A bill."""
    return {"input_tokens": 10, "output_tokens": output, **more}


def lines(records: Iterable[Record]) -> bytes:
    """Records as the lines of a file."""
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)
