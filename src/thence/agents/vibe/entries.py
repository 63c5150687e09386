"""The entries of a session of Mistral Vibe as facts.

The list of entries is that of the last snapshot, changed by the journal since. It is the same list
at any time, wherever its entries lie, and it is read as one that grows. An entry of a tool call
changes in place: its call and its result are items of their own here. Ids of entries are the same
in other sessions. What a session took stands in its snapshot, and in the journal, as a total.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from thence.agents import File, Mark, Source, files
from thence.agents.documents import ListReader, TotalReader, version_name
from thence.agents.files import Unreadable
from thence.agents.records import (
    Record,
    answer,
    call,
    fields,
    injected,
    moment,
    note,
    objects,
    prompt,
    result,
    text,
    thought,
    usage_with_cache,
)
from thence.agents.vibe.names import CARD, JOURNAL
from thence.format import codec
from thence.format.codec import RawRecord
from thence.format.facts import Block, CallStatus, Edge, Fact
from thence.format.nodes import Is
from thence.format.records import JSON, Usage, blocks, count, text_of, word

NOT_WHOLE = "a file of the session is missing or was changed"

_GENERATION = re.compile(r"\d{1,20}")
_SUM = re.compile(r"[0-9a-f]{64}")
_PREFIX = "file_system."
_NAMES = {"search_replace": "edit"}  # what the client calls it, and what the model does
_BY_CLIENT = ("harness", "hook", "system", "injected")
_ENDED = ("completed", "failed", "cancelled")


class View(msgspec.Struct):
    """A session as it stands: its entries, and what the client says of it."""

    entries: list[Record]
    session: Record


class _Opener:
    """Makes the readers of the files of a session, which share its view."""

    def __init__(self) -> None:
        self._views: dict[tuple[bytes, tuple[int, int]], View] = {}

    def __call__(self, source: Source, file: File, mark: Mark) -> files.Records:
        if file.key == "state":
            return Card(source, file, mark)
        made = Total(source, file, mark) if file.key == "total" else Entries(source, file, mark)
        made.view = partial(self._view, Path(file.path).parent, (mark.size, mark.mtime_ns))
        return made

    def _view(self, folder: Path, status: tuple[int, int], found: RawRecord) -> View:
        key = found.raw, status
        if key not in self._views:
            self._views[key] = view_of(folder, found.value)
        return self._views[key]


def opener() -> files.Opened:
    """Return what makes the readers of a session for one read."""
    return _Opener()


# -- the view -------------------------------------------------------------------------------


def view_of(folder: Path, current: Record) -> View:
    """Return a session as it stands; raise Unreadable while the client changes its files."""
    generation = word(current.get("generation"))
    if not _GENERATION.fullmatch(generation):
        raise Unreadable(NOT_WHOLE)
    place = folder / "generations" / generation
    if any(
        path.is_symlink() for path in (place.parent, place, folder / "chunks", folder / JOURNAL)
    ):
        raise Unreadable(NOT_WHOLE)
    manifest = fields(_document(place / "manifest.json"))
    named = fields(manifest.get("projection_state"))
    state = fields(_document(place / "projection-state.json"))
    snapshot = fields(state.get("snapshot"))
    entries: list[Record] = []
    room = files.LIST_LIMIT
    chunks = named.get("chunks")
    for name in chunks if isinstance(chunks, list) else ():
        if not _SUM.fullmatch(word(name)):
            raise Unreadable(NOT_WHOLE)
        path = folder / "chunks" / f"{name}.json"
        room -= path.stat().st_size if path.is_file() else 0
        if room < 0:
            raise Unreadable(codec.TOO_LONG)
        entries += objects(_document(path))
    entries += objects(fields(snapshot.get("history")).get("entries"))
    out = View(entries, fields(snapshot.get("session")))
    _replay(out, folder, count(current.get("snapshot_sequence")))
    return out


def _document(path: Path) -> JSON:
    """Return a document of a snapshot. One that is cut short is no JSON: no checksum is needed."""
    raw = files.read_small(str(path), files.LIST_LIMIT)
    try:
        return msgspec.json.decode(raw or b"")
    except (ValueError, RecursionError):
        raise Unreadable(NOT_WHOLE, is_torn=True) from None


def _replay(view: View, folder: Path, since: int) -> None:
    """Apply the changes that the journal tells of since the snapshot."""
    places = {entry.get("id"): at for at, entry in enumerate(view.entries)}
    for file in files.walk(str(folder / JOURNAL), 0):
        for line in codec.objects(files.chunks_of(file.path)):
            if not isinstance(line, RawRecord) or count(line.value.get("sequence")) <= since:
                continue
            for change in objects(fields(line.value.get("payload")).get("delta")):
                entry = fields(change.get("entry"))
                name = text(entry.get("id"))
                if change.get("op") == "set_envelope":
                    state = fields(change.get("state"))
                    view.session = fields(state.get("session")) or view.session
                elif name in places:
                    view.entries[places[name]] = entry
                elif name is not None:
                    places[name] = len(view.entries)
                    view.entries.append(entry)


# -- readers --------------------------------------------------------------------------------


class Card(ListReader):
    """What the card of a session says."""

    def about(self, document: Record) -> dict[str, Any]:
        """Return folder, branch, title and model, and the session above."""
        settings, title = fields(document.get("config")), document.get("title")
        is_own = document.get("title_source") not in ("auto", None)
        named = {
            "cwd": fields(document.get("environment")).get("working_directory"),
            "git_branch": document.get("git_branch"),
            "title:custom" if is_own else "title:ai": title,
            "model": settings.get("model_name") or settings.get("active_model"),
        }
        told = {name: value for name, value in named.items() if text(value)}
        parent = text(document.get("parent_session_id"))
        edges = (Edge("subagent", parent, "parent_session_id"),) if parent else ()
        return {"about": told, "edges": edges} if told or edges else {}


class Total(TotalReader):
    """What a session took so far."""

    view: Callable[[RawRecord], View]

    def total(self, found: RawRecord) -> tuple[Usage, str | None] | None:
        """Return the total; its input includes what the cache gave."""
        usage = fields(self.view(found).session.get("tokenUsage"))
        card = files.document(str(Path(self._file.path).parent / CARD))
        settings = fields(card.get("config"))
        return (
            usage_with_cache(
                usage.get("inputTokens"),
                count(usage.get("outputTokens")),
                read=usage.get("cachedInputTokens"),
            ),
            text(settings.get("model_name")) or text(settings.get("active_model")),
        )


class Entries(ListReader):
    """What was said in a session."""

    view: Callable[[RawRecord], View]

    def items(self, found: RawRecord) -> Sequence[Record]:
        """Return messages, thoughts, calls and results, each an item of its own."""
        out: list[Record] = []
        running: list[Record] = []  # calls whose results are still to be put in their place
        for entry in self.view(found).entries:
            is_call = entry.get("type") == "effect"
            began = count(entry.get("createdAt")) if is_call else None
            running = _put_results(out, running, began)
            if is_call:
                detail = fields(entry.get("detail"))
                shown = _picked(detail, "kind", "toolName", "input")
                out.append({"call": entry.get("id"), "at": entry.get("createdAt"), **shown})
                running.append(entry)
            elif entry.get("generationStatus") != "in_progress":
                names = ("id", "type", "role", "source", "content", "text", "createdAt")
                out.append(_picked(entry, *names))
        _put_results(out, running, None)
        return out

    def item_facts(self, found: RawRecord) -> Iterable[Fact]:
        """Return the fact of an item."""
        item = found.value
        if "call" in item:
            return [self._call(found, item)]
        if "result" in item:
            return [self._result(found, item)]
        return [self._entry(found, item)]

    def _event(self, found: RawRecord, kind: str, name: str, *parts: Block, **more: Any) -> Fact:
        # With the mark of names that say nothing in other sessions.
        return self._said(found, kind, f"{self._file.key}#{name}", parts, **more)

    def _entry(self, found: RawRecord, item: Record) -> Fact:
        said = item.get("content", item.get("text"))
        name = version_name(text(item.get("id")), said, self._name(found))
        line = text_of(said)
        kind, flags = word(item.get("type")), 0
        if kind == "reasoning":
            parts, flags = [thought(line)], Is.REPLY
        elif kind == "message" and item.get("role") == "assistant":
            parts, flags = [answer(line)], Is.REPLY | Is.ENDS
        elif kind == "message" and item.get("role") == "user":
            is_human = item.get("source") not in _BY_CLIENT
            parts = [_asked(part, is_human=is_human) for part in blocks(said)]
            flags = Is.PROMPT if is_human else 0
        else:
            parts, flags = [note(kind or "unknown", item)], Is.INTERNAL
        when = moment(item.get("createdAt"))
        return self._event(found, kind or "unknown", name, *parts, flags=flags, ts=when)

    def _call(self, found: RawRecord, item: Record) -> Fact:
        name, tool = word(item["call"]), word(item.get("toolName")).removeprefix(_PREFIX)
        given = item.get("input")
        if tool in _NAMES:
            given = {**fields(given)}
            given["edits"] = given.pop("content", None)
        block = call(_NAMES.get(tool, tool), given, name)
        when = moment(item.get("at"))
        return self._event(found, "effect", f"{name} call", block, flags=Is.REPLY, ts=when)

    def _result(self, found: RawRecord, item: Record) -> Fact:
        """Return how a call ended; for the client a command that failed is a success."""
        name, output = word(item["result"]), fields(item.get("output"))
        given, error = output.get("structured_content"), fields(item.get("error"))
        code = fields(given).get("returncode")
        is_code = isinstance(code, int) and not isinstance(code, bool)
        is_error = item.get("status") != "completed"
        shown = word(error.get("message")) or _shown(given) or text_of(output.get("content"))
        block = result(shown, name, None, failed=True if is_error else None if is_code else False)
        told = (CallStatus(name, None, code),) if is_code and not is_error else ()
        when = moment(item.get("at"))
        return self._event(found, "effect", f"{name} result", block, told=told, ts=when)


def _put_results(out: list[Record], running: list[Record], began: int | None) -> list[Record]:
    """Add results in the order in which calls ended, and return the calls that go on.

    With `began`, when the next call began, only of those that had ended by then.
    """
    left: list[Record] = []
    for entry in sorted(running, key=lambda entry: count(entry.get("updatedAt"))):
        state = fields(entry.get("state"))
        if state.get("status") not in _ENDED:
            left += [entry] if began is not None else []
        elif began is not None and count(entry.get("updatedAt")) > began:
            left.append(entry)
        else:
            shown = _picked(state, "status", "output", "error")
            if isinstance(shown.get("output"), dict):  # may hold the file as it was before
                shown["output"] = {k: v for k, v in shown["output"].items() if k != "_meta"}
            out.append({"result": entry.get("id"), "at": entry.get("updatedAt"), **shown})
    return left


def _picked(record: Record, *names: str) -> Record:
    """Return some fields of a record; others may change later."""
    return {name: record[name] for name in names if name in record}


def _asked(part: Record, *, is_human: bool) -> Block:
    said = part.get("text")
    if not isinstance(said, str):
        return Block("user_msg" if is_human else "lifecycle", "user", "", part)
    return prompt(said) if is_human else injected(said)


def _shown(given: JSON) -> str:
    """Return what a tool gave as text: the output of a command, the content of a file."""
    told = fields(given)
    if "stdout" in told:
        return word(told.get("stdout")) + word(told.get("stderr"))
    if text(told.get("content")):
        return word(told["content"])
    return codec.dump(given).decode("utf-8", "replace") if given is not None else ""
