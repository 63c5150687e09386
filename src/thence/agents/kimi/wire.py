"""The events of Kimi Code's logs as facts.

What was said stands in prompts and in the events of each step; messages that are mirrored at the
end of a turn, or when they enter the context, are book-keeping. A step has one bill: its
`usage.record` and its end say the same, and old clients write the record last. Another record in a
step is another request; one of the session, as for a compaction, is of no step. A fork is a copy of
all lines up to a line `forked`, and its card names the session that it was copied from.
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
    fields,
    injected_text,
    integer_of,
    linked_image,
    moment,
    note,
    parse_arguments,
    prompt,
    result,
    text,
    thought,
    unindexed_note,
    usage_beside_cache,
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

CUT_OFF = "a response was cut off before its usage was written"

_COUNTS = ("inputOther", "output", "inputCacheCreation", "inputCacheRead")
_BULKY_TYPES = frozenset({"llm.tools_snapshot", "profile.bind"})
_MIRROR_TYPES = frozenset({"agent.message.appended"})
_EXIT = re.compile(r"Command failed with exit code: (-?\d{1,9})\.\s*\Z")
_FORKED = re.compile(rb'^\{"type":"forked"', re.MULTILINE)
_FORKED_BYTES = len(b'{"type":"forked"')
_MAX_PROMPT_CHARS = 20_000  # characters of the running prompt, which a compaction leaves in view
_MAX_PROMPTS = 4096  # prompts that a switch of branches may go back to


def open_records(source: Source, file: File, mark: Mark) -> files.Records:
    """Return the reader of one file of a session."""
    return KimiCard(source, file, mark) if file.is_document else Wire(source, file, mark)


def is_record(value: Record) -> bool:
    """Return whether an object on a damaged line is an event and no part of one."""
    kind = value.get("type")
    if not isinstance(kind, str):
        return False
    return "time" in value or kind in ("metadata", "forked")


class KimiCard(LineReader):
    """What the card of a session says."""

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Return folder, title and origin."""
        card = entry.value
        about: Record = {}
        if cwd := text(card.get("cwd")):
            about["cwd"] = cwd
        title = text(card.get("title"))
        if title and card.get("titleKind") != "replaceable":  # "Fork: …", until there is a better
            about["title:custom" if card.get("isCustomTitle") is True else "title:ai"] = title
        origin = session_id(word(card.get("forkedFrom")))
        edges = (Edge("fork", origin, "forkedFrom"),) if origin else ()
        if about or edges:
            yield self._document(entry, "state", about=about, edges=edges)


class Wire(LineReader):
    """The events of one agent."""

    carries = (
        *("model", "alias", "step", "records"),
        *("asked", "prompt", "prompts", "undone", "origin"),
    )
    """The model, the running prompt, and where a copy comes from."""

    def __init__(self, source: Source, file: File, mark: Mark) -> None:
        super().__init__(source, file, mark)
        carried = self._carried
        self._model, self._alias = text(carried.get("model")), text(carried.get("alias"))
        self._step, self._records = text(carried.get("step")), count(carried.get("records"))
        self._asked: str | None = text(carried.get("asked"))
        self._prompt = word(carried.get("prompt"))
        lines = carried.get("prompts")
        self._prompts: list[int] = [n for n in lines if isinstance(n, int)] if lines else []
        self._undone = count(carried.get("undone"))
        if "copies" in carried:
            self._copies, self._origin = count(carried["copies"]), text(carried.get("origin"))
        else:
            self._copies, self._origin = _count_copies(file)
        self._makers: dict[str, Callable[[RawRecord, Record], list[Fact]]] = {
            "turn.prompt": self._prompt_event,
            "turn.steer": self._prompt_event,
            "context.append_message": self._context_message,
            "context.append_loop_event": self._step_event,
            "config.update": self._settings,
            "context.apply_compaction": self._compaction,
            "context.clear": self._context_reset,
            "context.undo": self._undo,
            "agent.switched": self._branch_switch,
            "llm.request": self._request,
            "usage.record": self._usage,
            "turn.step.interrupted": self._interruption,
            "turn.ended": self._turn_end,
            "subagent.spawned": self._subagent,
            "forked": self._fork_end,
            "metadata": self._header,
        }

    def carry(self) -> JSON:
        """Return it, and how many copied parts are still to come."""
        return {"copies": self._copies, **fields(super().carry())}

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Return the facts of one event."""
        event = entry.value
        return self._makers.get(word(event.get("type")), self._other)(entry, event)

    # -- frame --------------------------------------------------------------------------

    def _event(
        self, entry: RawRecord, event: Record, node: Node, *parts: Block, **more: Any
    ) -> Fact:
        return self._fact(
            entry,
            node,
            more.pop("kind", None) or word(event.get("type")),
            ts=moment(event.get("time")),
            blocks=parts,
            origin=self._origin_of(event),
            copy_key=_digest(entry) if "time" in event else None,
            **more,
        )

    def _origin_of(self, event: Record) -> str | None:
        """Return the session in which an event was said first, and counts."""
        if tie := handed_over_edges(event.get("handedFrom"), None):
            return tie[0].session
        return self._origin if self._copies else None

    def _internal_event(
        self, entry: RawRecord, event: Record, line: str, flags: int = Is.INTERNAL, **more: Any
    ) -> list[Fact]:
        """Return an event that is book-keeping."""
        kind = word(event.get("type"))
        payload = None if kind in _MIRROR_TYPES else event
        block = unindexed_note(line, payload) if kind in _BULKY_TYPES else note(line, payload)
        node = Node(self._name(entry), PREVIOUS, flags)
        return [self._event(entry, event, node, block, **more)]

    # -- conversation -------------------------------------------------------------------

    def _prompt_event(self, entry: RawRecord, event: Record) -> list[Fact]:
        """Return a prompt: a human's, or one that the client made."""
        is_human = _is_human(event) and self._file.channel == "main"
        parts = [_user_block(part, is_human=is_human) for part in blocks(event.get("input"))]
        name = text(event.get("promptId")) or self._name(entry)
        self._asked, self._prompt = name, text_of(event.get("input"))[:_MAX_PROMPT_CHARS]
        if is_human:
            self._prompts = [*self._prompts, entry.place.line][-_MAX_PROMPTS:]
        node = Node(name, PREVIOUS, Is.PROMPT if is_human else 0)
        return [self._event(entry, event, node, *(parts or [injected_text("")]))]

    def _context_message(self, entry: RawRecord, event: Record) -> list[Fact]:
        """Return a message that enters the context; prompts were told before."""
        message = fields(event.get("message"))
        name = text(message.get("id"))
        if name is not None and name == self._asked:
            node = Node(self._name(entry), PREVIOUS, Is.INTERNAL)
            return [self._event(entry, event, node, note("prompt sent to the model", None))]
        if message.get("role") != "user":
            return self._internal_event(entry, event, f"message of {word(message.get('role'))}")
        parts = [_user_block(part, is_human=False) for part in blocks(message.get("content"))]
        node = Node(self._name(entry), PREVIOUS)
        return [self._event(entry, event, node, *(parts or [injected_text("")]))]

    def _step_event(self, entry: RawRecord, event: Record) -> list[Fact]:
        inner = fields(event.get("event"))
        kind = word(inner.get("type"))
        name = text(inner.get("uuid")) or self._name(entry)
        step = text(inner.get("stepUuid"))
        more = {"kind": kind, "model": self._model, "bill_due": None if self._records else CUT_OFF}
        if kind == "content.part":
            node = Node(name, PREVIOUS, Is.REPLY, response=step)
            return [self._event(entry, event, node, _part(fields(inner.get("part"))), **more)]
        if kind == "tool.call":
            arguments = parse_arguments(inner.get("args"))
            block = call(word(inner.get("name")), arguments, text(inner.get("toolCallId")))
            node = Node(name, PREVIOUS, Is.REPLY, calls=calls_of([block]), response=step)
            return [self._event(entry, event, node, block, **more)]
        if kind == "tool.result":
            return self._result(entry, event, inner)
        if kind == "step.end":
            return self._step_end(entry, event, inner, name)
        if kind == "step.begin":
            self._step, self._records = name, 0
        node = Node(name, PREVIOUS, Is.INTERNAL)
        return [self._event(entry, event, node, note(kind or "step", inner), kind=kind)]

    def _step_end(self, entry: RawRecord, event: Record, inner: Record, name: str) -> list[Fact]:
        """Return the end of a model call, with its bill if no record has told it yet."""
        reason = word(inner.get("finishReason"))
        flags = Is.INTERNAL if reason in ("tool_use", "error") else Is.REPLY | Is.ENDS
        self._step = name
        usage = None if self._records else usage_beside_cache(inner.get("usage"), _COUNTS)
        return [
            self._event(
                entry,
                event,
                Node(f"{name} end", PREVIOUS, flags, response=name),
                note(f"step ended: {reason}" if reason else "step ended", inner),
                kind="step.end",
                model=self._model,
                usage=usage,
                usage_key=name if usage else None,
            )
        ]

    def _result(self, entry: RawRecord, event: Record, inner: Record) -> list[Fact]:
        name, outcome = text(inner.get("toolCallId")), fields(inner.get("result"))
        output = outcome.get("output")
        content = (
            [linked_image(part) for part in blocks(output)] if isinstance(output, list) else output
        )
        content = content if isinstance(content, (str, list)) else ""
        failed = outcome.get("isError") is True
        parts = [result(content, name, None, failed=failed)]
        if remark := text(outcome.get("note")):
            parts.append(note(remark, remark))
        code = _EXIT.search(text_of(content)[-200:])
        took = count(outcome.get("durationMs")) or None
        statuses = (CallStatus(name, failed, int(code[1]) if code else None, took),) if name else ()
        above = text(inner.get("parentUuid"))
        node = Node(
            f"{above} result" if above else self._name(entry), PREVIOUS, answers=answers_of(parts)
        )
        return [self._event(entry, event, node, *parts, kind="tool.result", told=statuses)]

    def _interruption(self, entry: RawRecord, event: Record) -> list[Fact]:
        line = word(event.get("message")) or word(event.get("reason")) or "interrupted"
        node = Node(self._name(entry), PREVIOUS, Is.REPLY | Is.INTERRUPTS)
        block = note(line, event)
        if event.get("reason") == "error":
            node = Node(node.id, PREVIOUS, Is.REPLY | Is.ENDS)
            block = Block("error", "system", one_line(line), event)
        return [self._event(entry, event, node, block)]

    def _turn_end(self, entry: RawRecord, event: Record) -> list[Fact]:
        self._prompt = ""
        reason = word(event.get("reason"))
        is_cut = reason in ("cancelled", "interrupted", "aborted")
        return self._internal_event(
            entry, event, f"turn {reason}", Is.INTERRUPTS if is_cut else Is.INTERNAL
        )

    # -- context ------------------------------------------------------------------------

    def _compaction(self, entry: RawRecord, event: Record) -> list[Fact]:
        """Return what stands for the context: the prompt that is worked on, and the summary."""
        summary = text(event.get("contextSummary")) or word(event.get("summary"))
        parts = [injected_text(self._prompt)] if self._prompt else []
        node = Node(self._name(entry), PREVIOUS, Is.SUMMARY)
        return [self._event(entry, event, node, *parts, injected_text(summary))]

    def _context_reset(self, entry: RawRecord, event: Record) -> list[Fact]:
        """Return the start of a new context; what was said before it is no longer sent."""
        return self._internal_event(entry, event, "context cleared", Is.SUMMARY)

    def _undo(self, entry: RawRecord, event: Record) -> list[Fact]:
        turns = count(event.get("count"))
        self._undone = entry.place.line
        if turns:
            del self._prompts[-turns:]
        block = note(f"undid {turns} turns", event)
        node = Node(self._name(entry), PREVIOUS, Is.INTERNAL, undo=Undo(turns=turns))
        return [self._event(entry, event, node, block)]

    def _branch_switch(self, entry: RawRecord, event: Record) -> list[Fact]:
        """Return a switch to a branch that begins after a line; a paired undo counts once."""
        base = integer_of(fields(event.get("base")).get("line"))
        is_paired = self._undone and event.get("legacyUndoLine") is not None
        if base is None or is_paired:
            self._undone = 0
            return self._internal_event(entry, event, "branch switched")
        keep = len([line for line in self._prompts if line <= base])
        del self._prompts[keep:]
        node = Node(self._name(entry), PREVIOUS, Is.INTERNAL, undo=Undo(to=keep))
        return [self._event(entry, event, node, note("branch switched", event))]

    # -- bills --------------------------------------------------------------------------

    def _request(self, entry: RawRecord, event: Record) -> list[Fact]:
        self._model = text(event.get("model")) or self._model
        self._alias = text(event.get("modelAlias"))
        return self._internal_event(entry, event, f"request: {word(event.get('kind'))}")

    def _settings(self, entry: RawRecord, event: Record) -> list[Fact]:
        """Return a change of settings; an old client names the model nowhere else."""
        if (alias := text(event.get("modelAlias"))) not in (None, self._alias):
            self._model = self._alias = alias
        return self._other(entry, event)

    def _usage(self, entry: RawRecord, event: Record) -> list[Fact]:
        usage = usage_beside_cache(event.get("usage"), _COUNTS) or Usage()
        alias = text(event.get("model"))
        # Bills name a model by its alias in the settings; the request has its real name.
        model = self._model if self._model and alias in (None, self._alias) else alias
        key: str | None = None
        if event.get("usageScope") != "session":
            self._records += 1
            key = self._step if self._records == 1 else None
        return self._internal_event(
            entry,
            event,
            f"model call, {usage.total} tokens",
            0,
            model=model,
            usage=usage,
            usage_key=key or _digest(entry),
        )

    # -- the rest -----------------------------------------------------------------------

    def _subagent(self, entry: RawRecord, event: Record) -> list[Fact]:
        """Return the start of a subagent, and the call that asked for it."""
        out = self._internal_event(entry, event, f"subagent: {word(event.get('description'))}")
        if agent := text(event.get("subagentId")):
            named = {
                f"agent:{agent}": event.get("parentToolCallId"),
                f"agent:{agent}:type": event.get("subagentName"),
                f"agent:{agent}:description": event.get("description"),
            }
            about = {name: value for name, value in named.items() if text(value)}
            node = Node(f"{self._name(entry)} link", flags=Is.INTERNAL)
            out.append(self._fact(entry, node, "subagent", about=about, channel="main"))
        return out

    def _fork_end(self, entry: RawRecord, event: Record) -> list[Fact]:
        """Return the end of what was copied from another session."""
        self._copies = max(self._copies - 1, 0)
        return self._internal_event(entry, event, "forked")

    def _header(self, entry: RawRecord, event: Record) -> list[Fact]:
        source = fields(event.get("thenceHandoff"))
        edges = handed_over_edges(source.get("from"), source.get("event"))
        return self._internal_event(entry, event, "metadata", edges=edges)

    def _other(self, entry: RawRecord, event: Record) -> list[Fact]:
        return self._internal_event(entry, event, word(event.get("type")) or "unknown")


def _count_copies(file: File) -> tuple[int, str | None]:
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


def _digest(entry: RawRecord) -> str:
    return blake2b(entry.raw.strip(), digest_size=12).hexdigest()


def _is_human(event: Record) -> bool:
    return bool(fields(event.get("origin")).get("kind", "user") == "user")


def _user_block(part: Record, *, is_human: bool) -> Block:
    content = part.get("text")
    if not isinstance(content, str):
        return Block("user_msg" if is_human else "lifecycle", "user", "", linked_image(part))
    if not is_human or content.lstrip().startswith(("<system-reminder>", "<system>")):
        return injected_text(content)
    return prompt(content)


def _part(part: Record) -> Block:
    if part.get("type") == "think":
        return thought(word(part.get("think")))
    if part.get("type") == "text":
        return answer(word(part.get("text")))
    return Block("assistant_msg", "assistant", "", linked_image(part))
