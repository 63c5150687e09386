"""A session of another agent as OpenCode exports its own: a document that its client takes in.

Its sessions are rows of a database that others may be writing, so the client's own `import` writes
them. Every message names a provider and a model, which the client then goes on with: those of the
settings, else those that were used last. Nothing was paid here, so tokens are zero. The metadata of
each part says whose it is. Tried with version 1.18.33, and with Kilo 7.7.9, which takes the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final

from thence.agents.handoffs import (
    HandoffHistory,
    HandoffSettings,
    HandoffWriter,
    is_recorded,
    read_settings,
)
from thence.agents.opencode.messages import HANDED_OVER
from thence.agents.records import fields
from thence.format.records import JSON, blocks, parse_json, text_of, word

WRITTEN_AS_VERSION: Final = "1.18.33"
"""The version whose export this is."""
PROVIDER, MODEL = "thence", "handed-over"
"""What stands for a model that nobody named."""

_LETTERS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_TIME_BITS: Final = 36
_COUNT_BITS: Final = 12
_NO_TOKENS: Final = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}


def session_id(uuid: str) -> str:
    """Return an id as the client makes them, of a UUID."""
    digits = uuid.replace("-", "")
    return f"ses_{digits[:12]}{_letters(digits)}"


def _letters(seed: str) -> str:
    drawn = blake2b(seed.encode(), digest_size=14).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in drawn)


def files(bound: HandoffHistory) -> dict[str, list[JSON]]:
    """Return the document that the client takes in."""
    return {f"thence/{bound.session}.json": [_Document(bound).export()]}


class _Document:
    """One session, as the client exports it."""

    def __init__(self, bound: HandoffHistory) -> None:
        self._bound = bound
        self._start = bound.milliseconds
        self._count = 0
        self._asked = ""
        self._model = (bound.provider or PROVIDER, bound.model or MODEL)
        self._results = bound.results
        source = {"from": bound.provenance["from"], "event": bound.provenance["event"]}
        self._mark = {"metadata": {HANDED_OVER: source}}

    def export(self) -> JSON:
        """Return the session and its messages."""
        title = self._bound.title or "Continued from another agent"
        info = {
            "id": self._bound.session,
            "slug": "handed-over",
            "version": WRITTEN_AS_VERSION,
            "projectID": "global",
            "directory": self._bound.cwd,
            "title": title,
            "time": {"created": self._start, "updated": self._start},
        }
        return {"info": info, "messages": list(self._messages())}

    def _messages(self) -> Iterator[JSON]:
        for message in self._bound.messages:
            listed = blocks(message["content"])
            if message["role"] == "assistant":
                yield self._answer(listed)
            elif words := [block for block in listed if block.get("type") != "tool_result"]:
                yield self._prompt(words)

    def _id(self, prefix: str) -> str:
        """Return the next id: they sort by the time in them, and so do messages."""
        self._count += 1
        time = (self._start + self._count) % (1 << _TIME_BITS)
        number = f"{time << _COUNT_BITS | 1:012x}"
        return f"{prefix}_{number}{_letters(f'{self._bound.session}:{self._count}')}"

    def _frame(self, role: str) -> tuple[JSON, str]:
        name = self._id("msg")
        when = self._start + self._count
        agent = {"agent": "build"}
        return {"id": name, "sessionID": self._bound.session, "role": role, **agent}, f"{when}"

    def _part(self, message: str, **part: JSON) -> JSON:
        place = {"id": self._id("prt"), "sessionID": self._bound.session, "messageID": message}
        return {**place, **part}

    def _prompt(self, words: list[JSON]) -> JSON:
        info, when = self._frame("user")
        self._asked = info["id"]
        provider, model = self._model
        info |= {"time": {"created": int(when)}}
        info |= {"model": {"providerID": provider, "modelID": model}}
        return {"info": info, "parts": [self._word(info["id"], block) for block in words]}

    def _word(self, message: str, block: JSON) -> JSON:
        if (picture := _picture(block)) is not None:
            return self._part(message, **picture)
        content = word(block.get("text"))
        more = {"synthetic": True} if is_recorded(block) else {}
        return self._part(message, type="text", text=content, **more, **self._mark)

    def _answer(self, listed: list[JSON]) -> JSON:
        info, when = self._frame("assistant")
        provider, model = self._model
        has_calls = any(block.get("type") == "tool_use" for block in listed)
        cwd = self._bound.cwd
        info |= {
            "parentID": self._asked,
            "mode": "build",
            "path": {"cwd": cwd, "root": cwd},
            "cost": 0,
            "tokens": _NO_TOKENS,
            "modelID": model,
            "providerID": provider,
            "time": {"created": int(when), "completed": int(when)},
            "finish": "tool-calls" if has_calls else "stop",
        }
        return {"info": info, "parts": [self._answer_part(info["id"], block) for block in listed]}

    def _answer_part(self, message: str, block: JSON) -> JSON:
        now = self._start + self._count
        times = {"start": now, "end": now}
        if block.get("type") != "tool_use":
            content = word(block.get("text"))
            return self._part(message, type="text", text=content, time=times, **self._mark)
        result = self._results.get(block["id"], {})
        output = text_of(result.get("content"))
        state: dict[str, JSON] = {"input": block["input"], "time": times}
        if result.get("is_error") is True:
            state |= {"status": "error", "error": output}
        else:
            pictures = [_picture(part) for part in blocks(result.get("content"))]
            state |= {"status": "completed", "output": output, "title": "", "metadata": {}}
            state["attachments"] = [self._part(message, **part) for part in pictures if part]
        called = {"callID": block["id"], "tool": block["name"]}
        return self._part(message, type="tool", **called, state=state, **self._mark)


def _picture(block: JSON) -> dict[str, JSON] | None:
    """Return an image as a file of a message; None for a block that is none."""
    source = fields(block.get("source"))
    if block.get("type") != "image" or not source:
        return None
    media, data = word(source.get("media_type")), word(source.get("data"))
    url = word(source.get("url")) or f"data:{media};base64,{data}"
    return {"type": "file", "mime": media or "image/png", "filename": "image", "url": url}


# -- settings -------------------------------------------------------------------------------


def settings_of(config: str, database: str) -> Callable[[Path], HandoffSettings]:
    """Return what reads the model of the settings, else the one that was used last.

    `config` is the file of settings below the home, `database` a pattern below the client's folder.
    """

    def settings(root: Path) -> HandoffSettings:
        home = root.parents[2] if len(root.parents) > 2 else root
        provider, _, model = word(read_settings(home / config).get("model")).partition("/")
        if not model:
            provider, model = _last_used_model(root, database)
        return HandoffSettings(model or None, provider or None)

    return settings


def _last_used_model(root: Path, pattern: str) -> tuple[str, str]:
    from thence.agents.sqlite_rows import Database, UnreadableError, query

    def model(database: Database) -> tuple[str, str]:
        newest = "ORDER BY time_created DESC LIMIT 20"
        for (data,) in database.select("message", ("data",), newest):
            named = fields(fields(parse_json(data)).get("model"))
            if named:
                return word(named.get("providerID")), word(named.get("modelID"))
        return "", ""

    for path in sorted(root.glob(pattern)):
        try:
            if names := query(str(path), model):
                return names
        except UnreadableError:
            continue
    return "", ""


def import_command(program: str) -> Callable[[str], list[str]]:
    """Return what names the command that takes a document in."""
    return lambda path: [program, "import", path]


WRITER: Final = HandoffWriter(
    files,
    settings=settings_of(".config/opencode/opencode.json", "opencode*.db"),
    session_id=session_id,
    accept=import_command("opencode"),
    takes_failures=True,
)
