"""The lines of a history of aider as facts.

The history is Markdown: `#### ` begins the lines of a prompt, `> ` those of aider itself, both end
in two spaces; everything else is what the model said. It has no ids, and a time only where a chat
starts. aider changes files from the text of an answer: an edit that it applied is a call here.
Tokens are rounded (`1.2k sent`): the least that such a number can mean is counted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from thence.agents import Batch, Cursor, File, Mark, Source, files
from thence.agents.contents import Plain
from thence.agents.marks import mark_of
from thence.agents.records import (
    LineReader,
    answer,
    call,
    fields,
    moment,
    note,
    prompt,
    result,
    usage_with_cache,
)
from thence.format import codec
from thence.format.codec import RawRecord
from thence.format.facts import Block, Fact
from thence.format.nodes import PREVIOUS, Is, Node
from thence.format.records import JSON, Notice, Place, Skipped, count, word

ROUNDED = "aider rounds token counts"
NO_COUNT = "aider wrote no token count for a response"
EDIT = "applied_edit"
RESTORED = "Restored previous conversation history."

_START = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*\Z")
_TOKENS = re.compile(r"Tokens: (?=.*\breceived)(.*)")
_COUNT = re.compile(r"(\d{1,9}(?:\.\d)?)(k?) (sent|received|cache write|cache hit)")
_COST = re.compile(r"Cost: \$(\d{1,6}(?:\.\d{1,10})?) message")
_MODEL = re.compile(r"(?:Main model|Model): (\S+) with ")
_VERSION = re.compile(r"Aider v(\S+)\s*\Z")
_APPLIED = re.compile(r"Applied edit to (.+?)\s*\Z")
_ASKS = re.compile(r"/(?:ask|code|architect|context|chat-mode) ")
_EDGE_BYTES = 4096  # as of other logs: `files` compares them too
_INTERRUPTED = re.compile(r"\^C(?: again to exit)?\s*\Z|KeyboardInterrupt")


def read(source: Source, cursor: Cursor | None) -> Batch:
    """Read what is new in a history since the cursor."""
    batch = Batch([], [], Cursor(dict(cursor.marks) if cursor else {}), notices=[])
    (file,) = source.files
    before = batch.cursor.marks.get(file.key)
    if cursor is not None and files.is_unchanged(source, cursor):
        batch.torn = before is not None and before.torn
        return batch
    try:
        handle = files.open_regular(file.path)
    except FileNotFoundError as error:
        if before is not None:
            batch.notices.append(Notice(files.SOURCE_GONE, file.path))
        else:
            batch.skipped.append(_skipped(file, files.reason_of(error)))
        return batch
    except (OSError, ValueError) as error:
        batch.skipped.append(_skipped(file, files.reason_of(error)))
        return batch
    try:
        _read_lines(source, file, before, handle, batch)
    except OSError as error:
        batch.skipped.append(_skipped(file, files.reason_of(error)))
    finally:
        os.close(handle)
    return batch


def _skipped(file: File, why: str, place: Place | None = None) -> Skipped:
    line, offset, length = (place.line, place.offset, place.length) if place else (0, 0, 0)
    return Skipped(line, offset, length, why, source=file.path)


def _read_lines(source: Source, file: File, before: Mark | None, handle: int, batch: Batch) -> None:
    status = os.fstat(handle)
    content = Plain(handle, status.st_size)
    mark = mark_of(status, file.path)
    if before is not None and _edges(content, before.offset) == (before.head, before.anchor):
        mark = msgspec.structs.replace(
            mark,
            offset=before.offset,
            line=before.line,
            generation=before.generation,
            carry=before.carry,
        )
    elif before is not None:
        mark = msgspec.structs.replace(mark, generation=before.generation + 1)
        batch.notices.append(Notice(files.REWRITTEN, file.path))
        batch.events.append(files.rewritten_fact(file, mark.generation))
    chat = AiderChat(source, file, mark)
    limits = files.Limits()
    until, offset, line = monotonic() + limits.seconds, mark.offset, mark.line
    torn = False
    for place, raw, ended in codec.split(content.chunks(offset), offset=offset, line=line):
        if not ended:
            torn = bool(place.length)
            break
        if raw is None:
            batch.skipped.append(_skipped(file, "the line is too long", place))
        else:
            batch.events += chat.facts(RawRecord({}, place, raw))
        line += 1
        offset = place.offset + place.length + 1
        if offset - mark.offset >= limits.bytes or (not line % 256 and monotonic() > until):
            batch.done = False
            break
    batch.lines += line - mark.line
    batch.bytes += offset - mark.offset
    batch.torn = torn
    head, anchor = _edges(content, offset)
    size = status.st_size if batch.done else offset
    batch.cursor.marks[file.key] = msgspec.structs.replace(
        mark,
        size=size,
        offset=offset,
        line=line,
        head=head,
        anchor=anchor,
        torn=torn,
        carry=chat.carry(),
    )


def _edges(content: Plain, end: int) -> tuple[str, str]:
    """Return hashes of the first bytes of a file, and of the last ones before an offset."""
    length = min(end, _EDGE_BYTES)
    pieces = (content.piece(0, length), content.piece(end - length, length))
    head, anchor = (blake2b(piece, digest_size=12).hexdigest() for piece in pieces)
    return (head, anchor) if length else ("", "")


class AiderChat(LineReader):
    """The lines of one history."""

    carries = ("block", "number", "blank", "bills", "edits", "time", "chat", "fresh")
    """What later lines need to know, beside the model."""

    def __init__(self, source: Source, file: File, mark: Mark) -> None:
        super().__init__(source, file, mark)
        carried = self._carried
        self._folder = str(Path(file.path).parent)
        self._block = word(carried.get("block"))
        """What the line before belongs to: `prompt`, `answer`, or nothing."""
        self._number = count(carried.get("number"))
        self._blank = count(carried.get("blank"))
        """Empty lines that belong to the answer if it goes on."""
        self._bills = count(carried.get("bills"))
        self._edits = count(carried.get("edits"))
        self._time = word(carried.get("time")) or None
        self._model = word(carried.get("model")) or None
        self._chat = carried.get("chat") is True
        """A chat has started before."""
        self._fresh = carried.get("fresh") is True
        """The model knows nothing of the chats before: none was restored so far."""

    def carry(self) -> JSON:
        """Return what later lines need to know."""
        return {"model": files.clean_carry(self._model or ""), **fields(super().carry())}

    def facts(self, entry: RawRecord) -> Iterator[Fact]:
        """Yield the facts of one line."""
        line = entry.raw.decode("utf-8", "replace").removesuffix("\r")
        if not line.strip():
            self._blank += self._block == "answer"
            self._block = "" if self._block == "prompt" else self._block
        elif match := _START.match(line):
            yield self._start(entry, match[1])
        elif line.startswith("#### ") and line.endswith("  "):
            yield self._prompt(entry, line[5:].removesuffix("  "))
        elif line.startswith("> ") and line.endswith("  "):
            self._begin("")
            yield self._own_line(entry, line[2:].removesuffix("  "))
        else:
            yield self._answer(entry, line)

    def _begin(self, block: str) -> None:
        if block != self._block or not block:
            self._number += 1
        if block != "answer" or block != self._block:
            self._blank = 0
        self._block = block

    def _event(
        self, entry: RawRecord, type_: str, *parts: Block, flags: int = 0, **more: Any
    ) -> Fact:
        parent: str | None = PREVIOUS
        if self._fresh and type_ not in ("start", "note"):
            # Only now is it known that aider did not restore the chats before.
            parent, flags, self._fresh = None, flags | Is.CLEARS, False
        calls, answers = more.pop("calls", ()), more.pop("answers", ())
        node = Node(self._name(entry), parent, flags, calls=calls, answers=answers)
        return self._fact(
            entry, node, type_, ts=self._time, blocks=parts, model=self._model, **more
        )

    def _start(self, entry: RawRecord, time: str) -> Fact:
        """Return the start of a chat: the model knows nothing of those before, unless told so."""
        self._begin("")
        self._time = _local_time(time)
        self._fresh, self._chat = self._chat, True
        return self._event(
            entry,
            "start",
            note(f"aider chat started at {time}", {"type": "text", "text": time}),
            about={"cwd": self._folder},
        )

    def _prompt(self, entry: RawRecord, words: str) -> Fact:
        is_first = self._block != "prompt"
        self._begin("prompt")
        if is_first and words.startswith("/") and not _ASKS.match(words):
            self._block = ""
            payload = {"type": "text", "text": words}
            return self._event(entry, "command", Block("lifecycle", "user", words, payload))
        text = words if is_first else f"\n{words}"
        return self._event(
            entry, "prompt", prompt(text), flags=Is.PROMPT, piece=f"prompt-{self._number}"
        )

    def _answer(self, entry: RawRecord, line: str) -> Fact:
        blank = self._blank if self._block == "answer" else 0
        is_first = self._block != "answer"
        self._begin("answer")
        self._blank = 0
        text = line if is_first else "\n" * (blank + 1) + line
        return self._event(
            entry,
            "answer",
            answer(text),
            flags=Is.REPLY,
            piece=f"answer-{self._number}",
            bill_due=NO_COUNT,
        )

    def _own_line(self, entry: RawRecord, words: str) -> Fact:
        """Return a line of aider's own."""
        shown = note(words, {"type": "text", "text": words})
        if match := _TOKENS.match(words):
            return self._usage(entry, shown, match[1])
        if match := _APPLIED.match(words):
            return self._edit(entry, match[1])
        about: dict[str, JSON] = {}
        if match := _MODEL.match(words):
            self._model = about["model"] = match[1]
        elif match := _VERSION.match(words):
            about["version"] = match[1]
        if words == RESTORED:
            self._fresh = False
        flags = Is.INTERRUPTS | Is.BY_USER if _INTERRUPTED.match(words) else 0
        return self._event(entry, "note", shown, flags=flags, about=about)

    def _usage(self, entry: RawRecord, shown: Block, words: str) -> Fact:
        """Return the bill of the answer before; the turn has come to its rest."""
        self._bills += 1
        counts = {name: (number, unit) for number, unit, name in _COUNT.findall(words)}
        least = {name: _least(*value) for name, value in counts.items()}
        cost = _COST.search(words)
        return self._event(
            entry,
            "usage",
            shown,
            flags=Is.ENDS,
            usage=usage_with_cache(
                least.get("sent"),
                least.get("received", 0),
                read=least.get("cache hit", 0),
                written=least.get("cache write", 0),
            ),
            usage_key=f"{self._session}:{self._bills}",
            cost_usd=float(cost[1]) if cost else None,
            unbilled=ROUNDED if any(unit for _, unit in counts.values()) else None,
        )

    def _edit(self, entry: RawRecord, path: str) -> Fact:
        """Return an edit that was applied: a call, and that it went well."""
        self._edits += 1
        own = f"edit-{self._edits}"
        return self._event(
            entry,
            "edit",
            call(EDIT, {"path": path}, own),
            result(f"Applied edit to {path}", own, EDIT, failed=False),
            calls=(own,),
            answers=(own,),
        )


def _local_time(time: str) -> str | None:
    """Return a time that was written without a zone, on this machine as far as anybody knows."""
    try:
        return moment(datetime.fromisoformat(time).astimezone().timestamp())
    except (ValueError, OverflowError, OSError):
        return None


def _least(number: str, unit: str) -> int:
    """Return the least number of tokens that is written so: `1.2k` is 1,150 to 1,249."""
    if not unit:
        return int(float(number))
    return int(float(number) * 1000 - (50 if "." in number else 500))
