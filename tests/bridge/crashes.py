"""Our bridges and the SDKs' own stores as subjects of the crash suite."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from thence.journal import Journal
from thence.testing import CrashReport, CrashSuite

ROOT = Path(__file__).resolve().parent.parent.parent
SDKS = ROOT / ".venv" / "conformance"

KEY = {"project_key": "p", "session_id": "7f3a91c2-55d0-4c1e-9a53-0d6c1f2b7e10"}


class Store(Protocol):
    """An open store that takes texts."""

    def add(self, number: int, text: str) -> None:
        """Return when it is acknowledged."""

    def texts(self) -> list[str]:
        """Return everything, in order."""


def waited(coroutine: Any) -> Any:
    """Run a coroutine on the one loop of this process."""
    return LOOP[0].run_until_complete(coroutine)


LOOP: list[asyncio.AbstractEventLoop] = []


class ClaudeStore:
    """Our `SessionStore`."""

    def __init__(self, path: Path) -> None:
        from thence.bridge.claude_agent_sdk import JournalSessionStore

        self.store: Any = JournalSessionStore(Journal(path))

    def add(self, number: int, text: str) -> None:
        """As the SDK mirrors it."""
        message = {"role": "user", "content": text}
        entry = {"type": "user", "uuid": f"u-{number}", "message": message}
        waited(self.store.append(KEY, [entry]))

    def texts(self) -> list[str]:
        """What a resumed client would get."""
        return [entry["message"]["content"] for entry in waited(self.store.load(KEY)) or ()]


class SharedStore(ClaudeStore):
    """Our `SessionStore` for many machines, on a folder of objects."""

    def __init__(self, path: Path) -> None:
        from thence.bridge.claude_shared import SharedSessionStore

        self.store = SharedSessionStore(path.as_uri())


class OpenAISession:
    """Our `Session`."""

    def __init__(self, path: Path) -> None:
        from thence.bridge.openai_agents import JournalSession

        self.session: Any = JournalSession("crash", Journal(path))

    def add(self, number: int, text: str) -> None:
        """One item."""
        waited(self.session.add_items([{"role": "user", "content": text}]))

    def texts(self) -> list[str]:
        """What the next run would send."""
        return [item["content"] for item in waited(self.session.get_items())]


class TheirSession(OpenAISession):
    """The SDK's own, on a file."""

    def __init__(self, path: Path) -> None:
        from agents import SQLiteSession

        self.session = SQLiteSession("crash", path)


class LangGraphSaver:
    """Our checkpointer."""

    def __init__(self, path: Path) -> None:
        from thence.bridge.langgraph import JournalSaver

        self.saver: Any = JournalSaver(Journal(path))

    def add(self, number: int, text: str) -> None:
        """One checkpoint of one channel."""
        checkpoint = {
            "v": 1,
            "id": f"{time.time_ns():020d}-{number:012d}",
            "ts": "2026-11-15T13:12:00+00:00",
            "channel_values": {"text": text},
            "channel_versions": {"text": f"{number:032d}.0"},
            "versions_seen": {},
            "updated_channels": None,
        }
        config = {"configurable": {"thread_id": "crash", "checkpoint_ns": ""}}
        self.saver.put(config, checkpoint, {"step": number}, checkpoint["channel_versions"])

    def texts(self) -> list[str]:
        """All checkpoints, oldest first."""
        config = {"configurable": {"thread_id": "crash", "checkpoint_ns": ""}}
        texts = [
            checkpoint.checkpoint["channel_values"]["text"]
            for checkpoint in self.saver.list(config)
        ]
        return texts[::-1]


class TheirSaver(LangGraphSaver):
    """LangGraph's own, on SQLite."""

    def __init__(self, path: Path) -> None:
        import sqlite3

        from langgraph.checkpoint.sqlite import SqliteSaver

        self.saver = SqliteSaver(sqlite3.connect(path, check_same_thread=False))


class PydanticHistory:
    """Our history."""

    def __init__(self, path: Path) -> None:
        from thence.bridge.pydantic_ai import JournalHistory

        self.history = JournalHistory("crash", Journal(path))

    def add(self, number: int, text: str) -> None:
        """One request."""
        waited(self.history.add([_request(text)]))

    def texts(self) -> list[str]:
        """All prompts."""
        return [message.parts[0].content for message in waited(self.history.load())]


class TheirFile:
    """What Pydantic AI's documentation shows: the whole history as JSON in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _load(self) -> Any:
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        data = self.path.read_bytes() if self.path.exists() else b"[]"
        return ModelMessagesTypeAdapter.validate_json(data)

    def add(self, number: int, text: str) -> None:
        """Read, add, write."""
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        self.path.write_bytes(ModelMessagesTypeAdapter.dump_json([*self._load(), _request(text)]))

    def texts(self) -> list[str]:
        """All prompts."""
        return [message.parts[0].content for message in self._load()]


def _request(text: str) -> Any:
    from pydantic_ai.messages import ModelRequest, UserPromptPart

    return ModelRequest(parts=[UserPromptPart(text)])


STORES: dict[str, Callable[[Path], Store]] = {
    "claude": ClaudeStore,
    "claude-shared": SharedStore,
    "openai": OpenAISession,
    "openai-own": TheirSession,
    "langgraph": LangGraphSaver,
    "langgraph-own": TheirSaver,
    "pydantic": PydanticHistory,
    "pydantic-own": TheirFile,
}

NAMES = {
    "claude": "claude-agent-sdk: `JournalSessionStore`",
    "claude-shared": "claude-agent-sdk: `SharedSessionStore`",
    "openai": "openai-agents: `JournalSession`",
    "openai-own": "openai-agents: `SQLiteSession`",
    "langgraph": "langgraph: `JournalSaver`",
    "langgraph-own": "langgraph: `SqliteSaver`",
    "pydantic": "pydantic-ai: `JournalHistory`",
    "pydantic-own": "pydantic-ai: one JSON file",
}


def text_of(number: int) -> str:
    """A text whose length follows from its number."""
    return f"{number} " + "abcdefghij"[number % 10] * (100 + number * 7919 % 300)


class Bridged:
    """A store of texts as the crash suite sees it."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def write_script(self, path: Path) -> list[str]:
        """Return the program that runs `write`; it needs this tree, and the SDKs."""
        script = (
            "import sys; kind, path, first, count = sys.argv[1:]\n"
            f"sys.path += {[str(ROOT), str(SDKS)]!r}\n"
            "from tests.bridge.crashes import write; write(kind, path, int(first), int(count))\n"
        )
        return [sys.executable, "-c", script, self.kind, str(path)]

    def append_one(self, path: Path, number: int) -> None:
        """Open it anew, as the next run of a program would."""
        _on_a_loop(lambda: STORES[self.kind](path).add(number, text_of(number)))

    def read(self, path: Path) -> list[int]:
        """Read the numbers of the texts that are whole."""
        texts = _on_a_loop(lambda: STORES[self.kind](path).texts())
        numbers = [int(text.partition(" ")[0]) for text in texts]
        return [n for n, text in zip(numbers, texts, strict=True) if text == text_of(n)]


def _on_a_loop(call: Callable[[], Any]) -> Any:
    LOOP.insert(0, asyncio.new_event_loop())
    try:
        return call()
    finally:
        LOOP.pop(0).close()


def write(kind: str, path: str, first: int, count: int) -> None:
    """Append numbers, and print each once it is acknowledged."""
    LOOP.insert(0, asyncio.new_event_loop())
    store = STORES[kind](Path(path))
    for number in range(first, first + count):
        store.add(number, text_of(number))
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


def table(rounds: int) -> Iterator[str]:
    """Kill, crowd and compare: the table of docs/bridges.md, line by line."""
    yield "| store | kills | acknowledged | lost | next unreadable | four writers, one killed |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for kind, name in NAMES.items():
        suite = CrashSuite(Bridged(kind), wait=(0.001, 0.06))
        killed, crowd = _tried(suite.kills, rounds), _tried(suite.writers, 4, 50, 1)
        kills = (
            f"{killed.rounds} | {killed.acknowledged} | {killed.lost} | {killed.unreadable_next}"
            if isinstance(killed, CrashReport)
            else f"{killed} | | |"
        )
        writers = (
            f"{crowd.acknowledged} acknowledged, {crowd.violations} lost or doubled"
            if isinstance(crowd, CrashReport)
            else crowd
        )
        yield f"| {name} | {kills} | {writers} |"


def _tried(run: Callable[..., CrashReport], *args: int) -> CrashReport | str:
    """Run a part of the suite; what a store raises is its result."""
    try:
        return run(*args)
    except (RuntimeError, ValueError, json.JSONDecodeError) as error:
        return f"failed: {type(error).__name__}: {str(error).splitlines()[0][:80]}"
