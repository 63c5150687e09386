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
from thence.agents.files import UnreadableDocument
from thence.agents.records import (
    Record,
    answer,
    call,
    fields,
    injected_text,
    integer_of,
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

INCOMPLETE = "a file of the session is missing or was changed"

_GENERATION = re.compile(r"\d{1,20}")
_SUM = re.compile(r"[0-9a-f]{64}")
_PREFIX = "file_system."
_MODEL_TOOL_NAMES = {"search_replace": "edit"}  # what the client calls it, and what the model does
_BY_CLIENT = ("harness", "hook", "system", "injected")
_ENDED = ("completed", "failed", "cancelled")


class VibeView(msgspec.Struct):
    """A session as it stands: its entries, and what the client says of it."""

    entries: list[Record]
    session: Record


class _Opener:
    """Makes the readers of the files of a session, which share its view."""

    def __init__(self) -> None:
        self._views: dict[tuple[bytes, tuple[int, int]], VibeView] = {}

    def __call__(self, source: Source, file: File, mark: Mark) -> files.Records:
        if file.key == "state":
            return VibeCard(source, file, mark)
        make = VibeTotal if file.key == "total" else VibeEntries
        made = make(source, file, mark)
        made.view = partial(self._view, Path(file.path).parent, (mark.size, mark.mtime_ns))
        return made

    def _view(self, folder: Path, status: tuple[int, int], entry: RawRecord) -> VibeView:
        key = entry.raw, status
        if key not in self._views:
            self._views[key] = view_of(folder, entry.value)
        return self._views[key]


def opener() -> files.OpenRecords:
    """Return what makes the readers of a session for one read."""
    return _Opener()


# -- the view -------------------------------------------------------------------------------


def view_of(folder: Path, current: Record) -> VibeView:
    """Return a session as it stands; raise Unreadable while the client changes its files."""
    generation = word(current.get("generation"))
    if not _GENERATION.fullmatch(generation):
        raise UnreadableDocument(INCOMPLETE)
    place = folder / "generations" / generation
    if any(
        path.is_symlink() for path in (place.parent, place, folder / "chunks", folder / JOURNAL)
    ):
        raise UnreadableDocument(INCOMPLETE)
    manifest = fields(_document(place / "manifest.json"))
    named = fields(manifest.get("projection_state"))
    state = fields(_document(place / "projection-state.json"))
    snapshot = fields(state.get("snapshot"))
    entries: list[Record] = []
    room = files.MAX_LIST_BYTES
    chunks = named.get("chunks")
    for name in chunks if isinstance(chunks, list) else ():
        if not _SUM.fullmatch(word(name)):
            raise UnreadableDocument(INCOMPLETE)
        path = folder / "chunks" / f"{name}.json"
        room -= path.stat().st_size if path.is_file() else 0
        if room < 0:
            raise UnreadableDocument(codec.TOO_LONG)
        entries += objects(_document(path))
    entries += objects(fields(snapshot.get("history")).get("entries"))
    out = VibeView(entries, fields(snapshot.get("session")))
    _replay(out, folder, count(current.get("snapshot_sequence")))
    return out


def _document(path: Path) -> JSON:
    """Return a document of a snapshot. One that is cut short is no JSON: no checksum is needed."""
    raw = files.read_small(str(path), files.MAX_LIST_BYTES)
    try:
        return msgspec.json.decode(raw or b"")
    except (ValueError, RecursionError):
        raise UnreadableDocument(INCOMPLETE, is_torn=True) from None


def _replay(view: VibeView, folder: Path, since: int) -> None:
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


class VibeCard(ListReader):
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
        about = {name: value for name, value in named.items() if text(value)}
        parent = text(document.get("parent_session_id"))
        edges = (Edge("subagent", parent, "parent_session_id"),) if parent else ()
        return {"about": about, "edges": edges} if about or edges else {}


class VibeTotal(TotalReader):
    """What a session took so far."""

    view: Callable[[RawRecord], VibeView]

    def total(self, entry: RawRecord) -> tuple[Usage, str | None] | None:
        """Return the total; its input includes what the cache gave."""
        usage = fields(self.view(entry).session.get("tokenUsage"))
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


class VibeEntries(ListReader):
    """What was said in a session."""

    view: Callable[[RawRecord], VibeView]

    def items(self, entry: RawRecord) -> Sequence[Record]:
        """Return messages, thoughts, calls and results, each an item of its own."""
        out: list[Record] = []
        running: list[Record] = []  # calls whose results are still to be put in their place
        for view_entry in self.view(entry).entries:
            is_call = view_entry.get("type") == "effect"
            began = count(view_entry.get("createdAt")) if is_call else None
            running = _put_results(out, running, began)
            if is_call:
                detail = fields(view_entry.get("detail"))
                shown = _pick(detail, "kind", "toolName", "input")
                out.append(
                    {"call": view_entry.get("id"), "at": view_entry.get("createdAt"), **shown}
                )
                running.append(view_entry)
            elif view_entry.get("generationStatus") != "in_progress":
                names = ("id", "type", "role", "source", "content", "text", "createdAt")
                out.append(_pick(view_entry, *names))
        _put_results(out, running, None)
        return out

    def item_facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Return the fact of an item."""
        item = entry.value
        if "call" in item:
            return [self._call(entry, item)]
        if "result" in item:
            return [self._result(entry, item)]
        return [self._entry(entry, item)]

    def _event(self, entry: RawRecord, kind: str, name: str, *parts: Block, **more: Any) -> Fact:
        # With the mark of names that say nothing in other sessions.
        return self._message_fact(entry, kind, f"{self._file.key}#{name}", parts, **more)

    def _entry(self, entry: RawRecord, item: Record) -> Fact:
        content = item.get("content", item.get("text"))
        name = version_name(text(item.get("id")), content, self._name(entry))
        line = text_of(content)
        kind, flags = word(item.get("type")), 0
        if kind == "reasoning":
            parts, flags = [thought(line)], Is.REPLY
        elif kind == "message" and item.get("role") == "assistant":
            parts, flags = [answer(line)], Is.REPLY | Is.ENDS
        elif kind == "message" and item.get("role") == "user":
            is_human = item.get("source") not in _BY_CLIENT
            parts = [_user_block(part, is_human=is_human) for part in blocks(content)]
            flags = Is.PROMPT if is_human else 0
        else:
            parts, flags = [note(kind or "unknown", item)], Is.INTERNAL
        when = moment(item.get("createdAt"))
        return self._event(entry, kind or "unknown", name, *parts, flags=flags, ts=when)

    def _call(self, entry: RawRecord, item: Record) -> Fact:
        name, tool = word(item["call"]), word(item.get("toolName")).removeprefix(_PREFIX)
        arguments = item.get("input")
        if tool in _MODEL_TOOL_NAMES:
            arguments = {**fields(arguments)}
            arguments["edits"] = arguments.pop("content", None)
        block = call(_MODEL_TOOL_NAMES.get(tool, tool), arguments, name)
        when = moment(item.get("at"))
        return self._event(entry, "effect", f"{name} call", block, flags=Is.REPLY, ts=when)

    def _result(self, entry: RawRecord, item: Record) -> Fact:
        """Return how a call ended; for the client a command that failed is a success."""
        name, output = word(item["result"]), fields(item.get("output"))
        structured, error = output.get("structured_content"), fields(item.get("error"))
        code = integer_of(fields(structured).get("returncode"))
        is_error = item.get("status") != "completed"
        shown = (
            word(error.get("message")) or _show_output(structured) or text_of(output.get("content"))
        )
        block = result(
            shown, name, None, failed=True if is_error else None if code is not None else False
        )
        statuses = (CallStatus(name, None, code),) if code is not None and not is_error else ()
        when = moment(item.get("at"))
        return self._event(entry, "effect", f"{name} result", block, told=statuses, ts=when)


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
            shown = _pick(state, "status", "output", "error")
            if isinstance(shown.get("output"), dict):  # may hold the file as it was before
                shown["output"] = {k: v for k, v in shown["output"].items() if k != "_meta"}
            out.append({"result": entry.get("id"), "at": entry.get("updatedAt"), **shown})
    return left


def _pick(record: Record, *names: str) -> Record:
    """Return some fields of a record; others may change later."""
    return {name: record[name] for name in names if name in record}


def _user_block(part: Record, *, is_human: bool) -> Block:
    content = part.get("text")
    if not isinstance(content, str):
        return Block("user_msg" if is_human else "lifecycle", "user", "", part)
    return prompt(content) if is_human else injected_text(content)


def _show_output(value: JSON) -> str:
    """Return what a tool gave as text: the output of a command, the content of a file."""
    output = fields(value)
    if "stdout" in output:
        return word(output.get("stdout")) + word(output.get("stderr"))
    if text(output.get("content")):
        return word(output["content"])
    return codec.dump(value).decode("utf-8", "replace") if value is not None else ""
