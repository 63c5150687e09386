"""Made-up Grok sessions: folders with the files the client writes, one record at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from thence.agents import Cursor, Source
from thence.agents.grok.folder import source_of
from thence.agents.grok.reader import Grok
from thence.agents.profiles import toolbox
from thence.agents.sessions import LoadedSession, load_source
from thence.format.facts import Fact
from thence.format.outcomes import add_effects
from thence.format.session_graph import SessionGraph
from thence.memory.readouts import readout_of

FIRST = "01a1e000-0000-7000-8000-000000000001"
SECOND = "01a1e000-0000-7000-8000-000000000002"
THIRD = "01a1e000-0000-7000-8000-000000000003"

START_MS = 1_794_767_765_000


class Folder:
    """A session's folder below a home; each method writes what the client would."""

    def __init__(self, home: Path, session: str = FIRST, group: str = "%2Fwork%2Ftidepool") -> None:
        self.home = home
        self.session = session
        self.path = home / "sessions" / group / session
        self.path.mkdir(parents=True, exist_ok=True)
        self.author = session
        self._n = 0
        self._turn = 0
        self._stream = 0

    # -- files --------------------------------------------------------------------------

    def write(self, name: str, value: Any) -> Path:
        """A document."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
        return path

    def line(self, name: str, value: Any) -> None:
        """A line of a log."""
        with (self.path / name).open("a", encoding="utf-8") as log:
            log.write((value if isinstance(value, str) else json.dumps(value)) + "\n")

    def summary(self, **more: Any) -> None:
        """`summary.json`."""
        info = {"id": self.session, "cwd": "/work/tidepool"}
        self.write("summary.json", {"info": info, "current_model_id": "grok-x", **more})

    def chat(self, **row: Any) -> None:
        """A row of the chat history."""
        self.line("chat_history.jsonl", row)

    def event(self, kind: str, **more: Any) -> None:
        """A line of the telemetry."""
        self.line("events.jsonl", {"ts": "2026-11-15T18:00:00.000Z", "type": kind, **more})

    # -- the log ------------------------------------------------------------------------

    def record(
        self, kind: str, meta: dict[str, Any] | None = None, **update: Any
    ) -> dict[str, Any]:
        """A record as it would be written next."""
        self._n += 1
        ours = {"eventId": f"{self.author}-{self._n}", "agentTimestampMs": START_MS + self._n}
        return {
            "timestamp": (START_MS + self._n) // 1000,
            "method": "session/update",
            "params": {
                "sessionId": self.session,
                "update": {"sessionUpdate": kind, **update},
                "_meta": {**ours, **(meta or {})},
            },
        }

    def update(self, kind: str, meta: dict[str, Any] | None = None, **update: Any) -> None:
        """A record of the log."""
        self.line("updates.jsonl", self.record(kind, meta, **update))

    @property
    def prompt_id(self) -> str:
        """The id of the prompt that runs."""
        return f"prompt-{self.author[-1]}-{self._turn}"

    def _meta(self) -> dict[str, Any]:
        return {"promptId": self.prompt_id, "streamStartMs": self._stream, "totalTokens": 100}

    def prompt(self, text: str, index: int | None = None) -> None:
        """What the human says."""
        self._turn += 1
        self._stream += 1
        meta = {"modelId": "grok-x"} | ({} if index is None else {"promptIndex": index})
        self.update("user_message_chunk", content={"type": "text", "text": text}, _meta=meta)

    def say(self, text: str) -> None:
        """What the model says."""
        self.update("agent_message_chunk", self._meta(), content={"type": "text", "text": text})

    def thought(self, text: str) -> None:
        """What the model thinks."""
        self.update("agent_thought_chunk", self._meta(), content={"type": "text", "text": text})

    def call(self, call: str, tool: str = "run_terminal_command", **arguments: Any) -> None:
        """A call, and the client's word that it began."""
        meta = {"x.ai/tool": {"name": tool}}
        self.update(
            "tool_call", self._meta(), toolCallId=call, title=tool, rawInput=arguments, _meta=meta
        )
        self.update("tool_call_update", self._meta(), toolCallId=call, title=f"Run {tool}")

    def result(self, call: str, text: str, code: int = 0, **more: Any) -> None:
        """What a command gave."""
        raw = {"type": "Bash", "output": [*text.encode()], "exit_code": code}
        raw |= {"output_for_prompt": f"exit: {code}\n{text}", **more}
        self._stream += 1
        self.update(
            "tool_call_update", self._meta(), toolCallId=call, status="completed", rawOutput=raw
        )

    def done(self, tokens: int = 100, stop: str = "end_turn", **usage: Any) -> None:
        """The end of the turn, with its bill; none for no tokens."""
        bill = {"usage": bill_of(tokens, **usage)} if tokens else {}
        self.update("turn_completed", prompt_id=self.prompt_id, stop_reason=stop, **bill)

    def turn(self, text: str, index: int, answer: str = "fine", tokens: int = 100) -> None:
        """A whole turn."""
        self.prompt(text, index)
        self.say(answer)
        self.done(tokens)

    # -- reading ------------------------------------------------------------------------

    @property
    def source(self) -> Source:
        """The session as it lies there now."""
        return source_of(self.path, str(self.home))

    def load(self) -> LoadedSession:
        """Read all of it."""
        return load_source(Grok(), self.source)

    @property
    def graph(self) -> SessionGraph:
        """The session, read at once."""
        return self.load().graph


def bill_of(tokens: int, calls: int = 1, turns: int = 1, **more: Any) -> dict[str, Any]:
    """A usage of so many tokens, a tenth of them output."""
    out = tokens // 10
    counts = {"inputTokens": tokens - out, "outputTokens": out, "totalTokens": tokens}
    return {**counts, "modelCalls": calls, "numTurns": turns, **more}


class Growing:
    """A session that is read again and again while it grows."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._cursor = Cursor()
        self.facts: list[Fact] = []
        self.lines = 0

    def read(self) -> SessionGraph:
        """Read what is new, and put all that was ever read together."""
        source, done, torn = self._folder.source, False, False
        while not done:
            batch = Grok().read(source, self._cursor)
            self.facts += batch.events
            self.lines += batch.lines
            done, torn = batch.done, batch.torn
            self._cursor = batch.cursor
        add_effects(self.facts, toolbox())
        return SessionGraph(source.uid, self.facts, torn=torn)


def contents_of(session: SessionGraph) -> dict[str, Any]:
    """All that a session says, to compare two readings of it."""
    return {
        "events": session.events,
        "states": session.states,
        "turn": session.turn(),
        "spent": session.spent,
        "unbilled": session.unbilled,
        "about": session.about,
        "edges": session.edges,
        "messages": readout_of(session).messages().messages,
    }


def log_lines(session: SessionGraph) -> list[tuple[str, str]]:
    """What stands in the log: summary of the first block, and state."""
    return [
        (fact.blocks[0].summary, state.value)
        for fact, state in zip(session.facts, session.states, strict=True)
        if fact.file == "1-log"
    ]


HISTORY = [
    {"type": "system", "content": "be good"},
    {"type": "user", "content": [{"type": "text", "text": "<user_query>\none\n</user_query>"}]},
    {"type": "user", "content": [{"type": "text", "text": "Summary: all is well"}],
     "synthetic_reason": "compaction_meta"},
    {"type": "assistant", "content": "", "tool_calls": [
        {"id": "k1", "name": "ls", "arguments": "{}"}]},
    {"type": "tool_result", "tool_call_id": "k1", "content": "a"},
]  # fmt: skip


def compacted(folder: Folder, name: str = "c.json", file: str = "x/c.json") -> None:
    """Two turns with a compaction between them."""
    folder.turn("one", 0)
    folder.write(f"compaction_checkpoints/{name}", {"compacted_history": HISTORY})
    folder.update("compaction_checkpoint", checkpoint_file=file)
    folder.turn("two", 1)


def child(folder: Folder, session: str, tokens: int, ended: str, calls: int = 2) -> None:
    """A subagent of a session, with its own folder and bill."""
    folder.write(f"subagents/{session}/meta.json", {"child_session_id": session})
    beside = Folder(folder.home, session)
    bill = bill_of(tokens, calls)
    beside.write("usage.json", {"sessionId": session, "turns": [{"endedAt": ended, **bill}]})
