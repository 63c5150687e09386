"""How a history of another agent becomes a session of this one: what its writer gets and gives.

A writer is pure: it takes a history that its agent can take, and returns files. Who hands over
decides which history, writes the files and reports (`thence.bridge.handoff`).
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

import msgspec

from thence.format.facts import RECORDED
from thence.format.records import JSON, blocks, word


class HandoffHistory(msgspec.Struct, frozen=True):
    """A history on its way to one agent: all that its writer needs to know."""

    session: str
    """The new session's id."""
    messages: list[JSON]
    cwd: str
    at: datetime
    provenance: dict[str, JSON]
    title: str | None = None
    model: str | None = None
    git_branch: str | None = None
    provider: str | None = None
    """The model provider of the target's settings, where its sessions name one."""
    project: str | None = None
    """The target's own name for the folder, where it gives folders names."""

    def time(self, after: int) -> str:
        """Return a time so many milliseconds after this one, as every agent writes it."""
        moment = self.at + timedelta(milliseconds=after)
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"

    @property
    def milliseconds(self) -> int:
        """The time of the handoff, in milliseconds since 1970."""
        return int(self.at.timestamp() * 1000)

    def uuid(self, what: str | int) -> str:
        """Return an id for a part of the session: the same whenever it is written."""
        return str(uuid5(NAMESPACE_URL, f"thence:{self.session}:{what}"))

    def _blocks(self, kind: str) -> Iterator[JSON]:
        for message in self.messages:
            for block in blocks(message["content"]):
                if block.get("type") == kind:
                    yield block

    @property
    def tools(self) -> dict[str, str]:
        """The names of the tools that were called, by the ids of the calls."""
        return {block["id"]: block["name"] for block in self._blocks("tool_use")}

    @property
    def results(self) -> dict[str, JSON]:
        """The results, by the ids of their calls."""
        return {block["tool_use_id"]: block for block in self._blocks("tool_result")}


def is_recorded(block: JSON) -> bool:
    """Return whether a text was recorded by a client: the model sees it, and no user wrote it."""
    return word(block.get("text")).startswith(RECORDED)


def message_runs(message: JSON) -> Iterator[tuple[str, list[JSON]]]:
    """Yield the blocks of a message as `runs` does; those of the model as one `answer`."""
    content = blocks(message["content"])
    yield from [("answer", content)] if message["role"] == "assistant" else runs(content)


def runs(content: Iterable[JSON]) -> Iterator[tuple[str, list[JSON]]]:
    """Yield blocks of one kind that follow each other: `result`, `recorded` or `words`."""
    for kind, run in groupby(content, key=_kind):
        yield kind, list(run)


def _kind(block: JSON) -> str:
    if block.get("type") == "tool_result":
        return "result"
    return "recorded" if is_recorded(block) else "words"


def image_url(source: JSON) -> str:
    """Return the address of an image; one that has none holds the image."""
    if source.get("type") == "url":
        return word(source.get("url"))
    return f"data:{word(source.get('media_type'))};base64,{word(source.get('data'))}"


def image_data(source: JSON) -> JSON:
    """Return an image as its data, for a client that has no room for an address."""
    if source.get("type") == "url":
        return {"type": "text", "text": f"[image: {word(source.get('url'))}]"}
    data, media = word(source.get("data")), word(source.get("media_type"))
    return {"type": "image", "data": data, "mimeType": media}


def read_settings(path: Path) -> dict[str, JSON]:
    """Return what a client's settings say, in TOML or JSON; nothing where they cannot be read."""
    try:
        text = path.read_text("utf-8-sig")
        named: JSON = (tomllib if path.suffix == ".toml" else json).loads(text)
    except (OSError, ValueError, RecursionError):
        return {}
    return named if isinstance(named, dict) else {}


class HandoffSettings(msgspec.Struct, frozen=True):
    """What of an agent's settings a new session must name."""

    model: str | None = None
    provider: str | None = None
    projects: dict[str, str] = {}
    """The agent's own names for folders, by their paths."""


class HandoffWriter(msgspec.Struct, frozen=True):
    """What writes a session for one agent, and what of a history the agent takes."""

    files: Callable[[HandoffHistory], dict[str, list[JSON]]]
    """Returns the records of each file by its place below the agent's folder. One that ends in
    `.jsonl` is a log of lines; any other has a single record, written as JSON."""
    settings: Callable[[Path], HandoffSettings] | None = None
    """Reads the settings in the agent's folder."""
    needs_uuid4: bool = False
    """The client takes no id of a later version for one of a session."""
    is_folder: bool = False
    """A session is a folder of its own."""
    session_id: Callable[[str], str] | None = None
    """Returns an id as the client makes them, of a UUID."""
    accept: Callable[[str], list[str]] | None = None
    """Returns the command of the client that takes the one file in, by its path: for a client whose
    sessions are rows of a database that nobody else may write. The file is then removed."""
    takes: tuple[str, ...] = ("image",)
    """Kinds of blocks besides texts, calls and results that it takes."""
    takes_signed_thoughts: bool = False
    """It takes thoughts back that its own model has signed."""
    takes_failures: bool = False
    """It knows results that are marked as failed."""
