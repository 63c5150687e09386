"""The events of Kimi Code's logs as facts.

What was said stands in prompts and in the events of each step; messages that are mirrored at the
end of a turn, or when they enter the context, are book-keeping. Requests are billed by
`usage.record`. A fork is a copy of all lines up to a line `forked`, and its card names the session
that it was copied from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Any

from thence.agents import File, Mark, Source, files
from thence.agents.kimi.names import CARD, MAIN, session_id
from thence.agents.records import (
    LineReader,
    Record,
    answer,
    call,
    decoded,
    fields,
    injected,
    linked_image,
    moment,
    note,
    prompt,
    result,
    text,
    thought,
    unindexed,
)
from thence.format.codec import RawRecord
from thence.format.facts import (
    Block,
    CallStatus,
    Edge,
    Fact,
    answers_of,
    calls_of,
    handed_over_edges,
)
from thence.format.nodes import PREVIOUS, Is, Node, Undo
from thence.format.normal import one_line
from thence.format.records import JSON, Usage, blocks, count, text_of, word

_BULKY = frozenset({"llm.tools_snapshot", "profile.bind"})
_MIRRORS = frozenset({"agent.message.appended"})
_EXIT = re.compile(r"Command failed with exit code: (-?\d{1,9})\.\s*\Z")
_FORKED = re.compile(rb'^\{"type":"forked"', re.MULTILINE)
_FORKED_BYTES = len(b'{"type":"forked"')
_PROMPT_KEPT = 20_000  # characters of the running prompt, which a compaction leaves in view
_PROMPTS_KEPT = 4096  # prompts that a switch of branches may go back to


def opened(source: Source, file: File, mark: Mark) -> files.Records:
    """Return the reader of one file of a session."""
    return Card(source, file, mark) if file.whole else Wire(source, file, mark)


def is_record(value: Record) -> bool:
    """Return whether an object on a damaged line is an event and no part of one."""
    kind = value.get("type")
    if not isinstance(kind, str):
        return False
    return "time" in value or kind in ("metadata", "forked")


class Card(LineReader):
    """What the card of a session says."""

    def facts(self, found: RawRecord) -> Iterable[Fact]:
        """Return folder, title and origin."""
        card = found.value
        about: Record = {}
        if cwd := text(card.get("cwd")):
            about["cwd"] = cwd
        title = text(card.get("title"))
        if title and card.get("titleKind") != "replaceable":  # "Fork: …", until there is a better
            about["title:custom" if card.get("isCustomTitle") is True else "title:ai"] = title
        origin = session_id(word(card.get("forkedFrom")))
        edges = (Edge("fork", origin, "forkedFrom"),) if origin else ()
        if about or edges:
            yield self._document(found, "state", about=about, edges=edges)


class Wire(LineReader):
    """The events of one agent."""

    def __init__(self, source: Source, file: File, mark: Mark) -> None:
        super().__init__(source, file, mark)
        carried = self._carried
        self._model, self._alias = text(carried.get("model")), text(carried.get("alias"))
        self._billed = carried.get("billed") is True
        self._asked: str | None = text(carried.get("asked"))
        self._prompt = word(carried.get("prompt"))
        lines = carried.get("prompts")
        self._prompts: list[int] = [n for n in lines if isinstance(n, int)] if lines else []
        self._undone = count(carried.get("undone"))
        if "copies" in carried:
            self._copies, self._origin = count(carried["copies"]), text(carried.get("origin"))
        else:
            self._copies, self._origin = _copied(file)
        self._makers: dict[str, Callable[[RawRecord, Record], list[Fact]]] = {
            "turn.prompt": self._said,
            "turn.steer": self._said,
            "context.append_message": self._appended,
            "context.append_loop_event": self._step,
            "context.apply_compaction": self._compaction,
            "context.clear": self._cleared,
            "context.undo": self._undo,
            "agent.switched": self._switched,
            "llm.request": self._request,
            "usage.record": self._usage,
            "turn.step.interrupted": self._interrupted,
            "turn.ended": self._ended,
            "subagent.spawned": self._subagent,
            "forked": self._forked,
            "metadata": self._header,
        }

    def carry(self) -> JSON:
        """Return the model, the running prompt, and how many copied parts are still to come."""
        known = {
            "model": self._model,
            "alias": self._alias,
            "billed": self._billed,
            "asked": self._asked,
            "prompt": self._prompt,
            "prompts": self._prompts,
            "undone": self._undone,
            "origin": self._origin,
        }
        return {"copies": self._copies, **{name: value for name, value in known.items() if value}}

    def facts(self, found: RawRecord) -> Iterable[Fact]:
        """Return the facts of one event."""
        event = found.value
        return self._makers.get(word(event.get("type")), self._other)(found, event)

    # -- frame --------------------------------------------------------------------------

    def _event(
        self, found: RawRecord, event: Record, node: Node, *parts: Block, **more: Any
    ) -> Fact:
        return self._fact(
            found,
            node,
            more.pop("kind", None) or word(event.get("type")),
            ts=moment(event.get("time")),
            blocks=parts,
            origin=self._origin_of(event),
            copy_key=_digest(found) if "time" in event else None,
            **more,
        )

    def _origin_of(self, event: Record) -> str | None:
        """Return the session in which an event was said first, and counts."""
        if tie := handed_over_edges(event.get("handedFrom"), None):
            return tie[0].session
        return self._origin if self._copies else None

    def _noted(
        self, found: RawRecord, event: Record, line: str, flags: int = Is.INTERNAL, **more: Any
    ) -> list[Fact]:
        """Return an event that is book-keeping."""
        kind = word(event.get("type"))
        payload = None if kind in _MIRRORS else event
        block = unindexed(line, payload) if kind in _BULKY else note(line, payload)
        node = Node(self._name(found), PREVIOUS, flags)
        return [self._event(found, event, node, block, **more)]

    # -- conversation -------------------------------------------------------------------

    def _said(self, found: RawRecord, event: Record) -> list[Fact]:
        """Return a prompt: a human's, or one that the client made."""
        is_human = _is_human(event) and self._file.channel == "main"
        parts = [_asked(part, is_human=is_human) for part in blocks(event.get("input"))]
        name = text(event.get("promptId")) or self._name(found)
        self._asked, self._prompt = name, text_of(event.get("input"))[:_PROMPT_KEPT]
        if is_human:
            self._prompts = [*self._prompts, found.place.line][-_PROMPTS_KEPT:]
        node = Node(name, PREVIOUS, Is.PROMPT if is_human else 0)
        return [self._event(found, event, node, *(parts or [injected("")]))]

    def _appended(self, found: RawRecord, event: Record) -> list[Fact]:
        """Return a message that enters the context; prompts were told before."""
        message = fields(event.get("message"))
        name = text(message.get("id"))
        if name is not None and name == self._asked:
            node = Node(self._name(found), PREVIOUS, Is.INTERNAL)
            return [self._event(found, event, node, note("prompt sent to the model", None))]
        if message.get("role") != "user":
            return self._noted(found, event, f"message of {word(message.get('role'))}")
        parts = [_asked(part, is_human=False) for part in blocks(message.get("content"))]
        node = Node(self._name(found), PREVIOUS)
        return [self._event(found, event, node, *(parts or [injected("")]))]

    def _step(self, found: RawRecord, event: Record) -> list[Fact]:
        inner = fields(event.get("event"))
        kind = word(inner.get("type"))
        name = text(inner.get("uuid")) or self._name(found)
        step = text(inner.get("stepUuid"))
        if kind == "content.part":
            node = Node(name, PREVIOUS, Is.REPLY, response=step)
            block = _part(fields(inner.get("part")))
            return [self._event(found, event, node, block, kind=kind, model=self._model)]
        if kind == "tool.call":
            arguments = decoded(inner.get("args"))
            block = call(word(inner.get("name")), arguments, text(inner.get("toolCallId")))
            node = Node(name, PREVIOUS, Is.REPLY, calls=calls_of([block]), response=step)
            return [self._event(found, event, node, block, kind=kind, model=self._model)]
        if kind == "tool.result":
            return self._result(found, event, inner)
        if kind == "step.end":
            return self._step_end(found, event, inner, name)
        self._billed = kind != "step.begin" and self._billed
        node = Node(name, PREVIOUS, Is.INTERNAL)
        return [self._event(found, event, node, note(kind or "step", inner), kind=kind)]

    def _step_end(self, found: RawRecord, event: Record, inner: Record, name: str) -> list[Fact]:
        """Return the end of a model call; it is billed here if no record did so before."""
        reason = word(inner.get("finishReason"))
        flags = Is.INTERNAL if reason in ("tool_use", "error") else Is.REPLY | Is.ENDS
        usage = None if self._billed else _usage_of(inner.get("usage"))
        return [
            self._event(
                found,
                event,
                Node(f"{name} end", PREVIOUS, flags, response=name),
                note(f"step ended: {reason}" if reason else "step ended", inner),
                kind="step.end",
                model=self._model,
                usage=usage,
                usage_key=_digest(found) if usage else None,
            )
        ]

    def _result(self, found: RawRecord, event: Record, inner: Record) -> list[Fact]:
        name, given = text(inner.get("toolCallId")), fields(inner.get("result"))
        output = given.get("output")
        content = (
            [linked_image(part) for part in blocks(output)] if isinstance(output, list) else output
        )
        content = content if isinstance(content, (str, list)) else ""
        failed = given.get("isError") is True
        parts = [result(content, name, None, failed=failed)]
        if said := text(given.get("note")):
            parts.append(note(said, said))
        code = _EXIT.search(text_of(content)[-200:])
        took = count(given.get("durationMs")) or None
        told = (CallStatus(name, failed, int(code[1]) if code else None, took),) if name else ()
        above = text(inner.get("parentUuid"))
        node = Node(
            f"{above} result" if above else self._name(found), PREVIOUS, answers=answers_of(parts)
        )
        return [self._event(found, event, node, *parts, kind="tool.result", told=told)]

    def _interrupted(self, found: RawRecord, event: Record) -> list[Fact]:
        line = word(event.get("message")) or word(event.get("reason")) or "interrupted"
        node = Node(self._name(found), PREVIOUS, Is.REPLY | Is.INTERRUPTS)
        block = note(line, event)
        if event.get("reason") == "error":
            node = Node(node.id, PREVIOUS, Is.REPLY | Is.ENDS)
            block = Block("error", "system", one_line(line), event)
        return [self._event(found, event, node, block)]

    def _ended(self, found: RawRecord, event: Record) -> list[Fact]:
        self._prompt = ""
        reason = word(event.get("reason"))
        is_cut = reason in ("cancelled", "interrupted", "aborted")
        return self._noted(found, event, f"turn {reason}", Is.INTERRUPTS if is_cut else Is.INTERNAL)

    # -- context ------------------------------------------------------------------------

    def _compaction(self, found: RawRecord, event: Record) -> list[Fact]:
        """Return what stands for the context: the prompt that is worked on, and the summary."""
        said = text(event.get("contextSummary")) or word(event.get("summary"))
        parts = [injected(self._prompt)] if self._prompt else []
        node = Node(self._name(found), PREVIOUS, Is.SUMMARY)
        return [self._event(found, event, node, *parts, injected(said))]

    def _cleared(self, found: RawRecord, event: Record) -> list[Fact]:
        """Return the start of a new context; what was said before it is no longer sent."""
        return self._noted(found, event, "context cleared", Is.SUMMARY)

    def _undo(self, found: RawRecord, event: Record) -> list[Fact]:
        turns = count(event.get("count"))
        self._undone = found.place.line
        if turns:
            del self._prompts[-turns:]
        block = note(f"undid {turns} turns", event)
        node = Node(self._name(found), PREVIOUS, Is.INTERNAL, undo=Undo(turns=turns))
        return [self._event(found, event, node, block)]

    def _switched(self, found: RawRecord, event: Record) -> list[Fact]:
        """Return a switch to a branch that begins after a line; a paired undo counts once."""
        base = fields(event.get("base")).get("line")
        is_paired = self._undone and event.get("legacyUndoLine") is not None
        if isinstance(base, bool) or not isinstance(base, int) or is_paired:
            self._undone = 0
            return self._noted(found, event, "branch switched")
        keep = len([line for line in self._prompts if line <= base])
        del self._prompts[keep:]
        node = Node(self._name(found), PREVIOUS, Is.INTERNAL, undo=Undo(to=keep))
        return [self._event(found, event, node, note("branch switched", event))]

    # -- bills --------------------------------------------------------------------------

    def _request(self, found: RawRecord, event: Record) -> list[Fact]:
        self._model = text(event.get("model")) or self._model
        self._alias = text(event.get("modelAlias"))
        return self._noted(found, event, f"request: {word(event.get('kind'))}")

    def _usage(self, found: RawRecord, event: Record) -> list[Fact]:
        usage = _usage_of(event.get("usage")) or Usage()
        alias = text(event.get("model"))
        model = self._model if self._model and alias in (None, self._alias) else alias
        self._billed = True
        return self._noted(
            found,
            event,
            f"model call, {usage.total} tokens",
            0,
            model=model,
            usage=usage,
            usage_key=_digest(found),
        )

    # -- the rest -----------------------------------------------------------------------

    def _subagent(self, found: RawRecord, event: Record) -> list[Fact]:
        """Return the start of a subagent, and the call that asked for it."""
        out = self._noted(found, event, f"subagent: {word(event.get('description'))}")
        if agent := text(event.get("subagentId")):
            named = {
                f"agent:{agent}": event.get("parentToolCallId"),
                f"agent:{agent}:type": event.get("subagentName"),
                f"agent:{agent}:description": event.get("description"),
            }
            about = {name: value for name, value in named.items() if text(value)}
            node = Node(f"{self._name(found)} link", flags=Is.INTERNAL)
            out.append(self._fact(found, node, "subagent", about=about, channel="main"))
        return out

    def _forked(self, found: RawRecord, event: Record) -> list[Fact]:
        """Return the end of what was copied from another session."""
        self._copies = max(self._copies - 1, 0)
        return self._noted(found, event, "forked")

    def _header(self, found: RawRecord, event: Record) -> list[Fact]:
        source = fields(event.get("thenceHandoff"))
        edges = handed_over_edges(source.get("from"), source.get("event"))
        return self._noted(found, event, "metadata", edges=edges)

    def _other(self, found: RawRecord, event: Record) -> list[Fact]:
        return self._noted(found, event, word(event.get("type")) or "unknown")


def _copied(file: File) -> tuple[int, str | None]:
    """Return how many copied parts a log begins with, and the session that it was copied from.

    A fork of a fork has several. The card is written with the copy: a log that has no line
    `forked` yet is one all the same.
    """
    card = Path(file.path).parent.parent.parent / CARD
    origin = session_id(word(files.document(str(card)).get("forkedFrom")))
    if not origin:
        return 0, None
    ends, tail = 0, b""
    for chunk in files.chunks_of(file.path):
        ends += len(_FORKED.findall(tail + chunk))
        tail = chunk[-_FORKED_BYTES + 1 :]
    return (max(ends, 1) if file.key == MAIN else ends), origin


def _digest(found: RawRecord) -> str:
    return blake2b(found.raw.strip(), digest_size=12).hexdigest()


def _is_human(event: Record) -> bool:
    return bool(fields(event.get("origin")).get("kind", "user") == "user")


def _asked(part: Record, *, is_human: bool) -> Block:
    said = part.get("text")
    if not isinstance(said, str):
        return Block("user_msg" if is_human else "lifecycle", "user", "", linked_image(part))
    if not is_human or said.lstrip().startswith(("<system-reminder>", "<system>")):
        return injected(said)
    return prompt(said)


def _part(part: Record) -> Block:
    if part.get("type") == "think":
        return thought(word(part.get("think")))
    if part.get("type") == "text":
        return answer(word(part.get("text")))
    return Block("assistant_msg", "assistant", "", linked_image(part))


def _usage_of(value: JSON) -> Usage | None:
    """Return the usage of a request; its input does not include the cache."""
    if not isinstance(value, dict):
        return None
    names = ("inputOther", "output", "inputCacheCreation", "inputCacheRead")
    return Usage(*(count(value.get(name)) for name in names))
