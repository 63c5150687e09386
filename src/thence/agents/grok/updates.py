"""Grok's log, `updates.jsonl`: the stream of what the client showed, one record a line.

Each record becomes one event, in the order of the lines; event ids of the client are no names,
since they start again with every process. A record is named by what a fork's copy of it keeps:
all but the session's id and the second it was written in. Calls come from `tool_call`, results
from the update that says how the call ended; what stands between keeps the books.

Invariants: nothing in a record raises; no path of a log is opened but a checkpoint in the
session's own folder; reading in pieces gives what reading at once gives.

Never here: the client's side requests (titles, summaries of turns, suggestions). It logs none of
them, so that no total holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath

import msgspec

from thence.agents import File, Mark, Source, files
from thence.agents.grok.chat import is_injected, picture, replacement, result_content
from thence.agents.grok.file_facts import by_model, cost_of, usage_of
from thence.agents.grok.folder import within
from thence.agents.records import (
    LineReader,
    Record,
    call,
    fields,
    integer_of,
    note,
    objects,
    text,
    thought,
)
from thence.format.codec import RawRecord
from thence.format.facts import (
    RECORDED,
    Block,
    CallStatus,
    Edge,
    Fact,
    TurnBill,
    calls_of,
    handed_over_edges,
    line_name,
)
from thence.format.nodes import PREVIOUS, Is, Node, Undo
from thence.format.normal import one_line
from thence.format.records import JSON, count, time_text, word

COMPACTION = "this client logs no usage of compactions"
KILLED = "the turn was cut off before its usage was written"
INCOMPLETE = "the client marks the usage of this turn as incomplete"

_STOPS = {"cancelled": Is.INTERRUPTS | Is.BY_USER, "interrupted": Is.INTERRUPTS}
_ENDED = ("completed", "failed")
_HIDDEN = "hideFromScrollback"
_SHELLS = ("Bash", "")
_FOR_PROMPT = (
    "tool_output_for_prompt",
    "summary_for_prompt",
    "content",
    "OkayOutput",
    "Error",
    "message",
    "output",
    "text",
    "FileNotFound",
)
_MAX_OBJECTS = 1000  # a structure is searched no further for its text


class Update:
    """One record, taken apart."""

    __slots__ = ("entry", "kind", "meta", "own", "ts", "update")

    def __init__(self, entry: RawRecord) -> None:
        """Find the parts of a record; what has another shape counts as empty."""
        value = entry.value
        params = fields(value.get("params"))
        self.entry = entry
        self.update = fields(params.get("update"))
        self.own = word(params.get("sessionId"))
        self.meta = fields(params.get("_meta")) or fields(value.get("_meta"))
        self.kind = word(self.update.get("sessionUpdate")) or word(value.get("method"))
        made = self.meta.get("agentTimestampMs")
        if isinstance(made, (int, float)) and not isinstance(made, bool):
            self.ts = text(time_text(made, per_second=1000))
        else:
            self.ts = text(time_text(value.get("timestamp")))

    @property
    def prompt(self) -> str | None:
        """The prompt that it belongs to."""
        return text(self.meta.get("promptId"))

    @property
    def response(self) -> str | None:
        """The response that it is a block of."""
        begun = self.meta.get("streamStartMs")
        return f"{self.prompt} {begun}" if self.prompt and isinstance(begun, int) else None

    @property
    def author(self) -> str:
        """The session whose process wrote it, by its event id."""
        return word(self.meta.get("eventId")).rpartition("-")[0]

    def word(self, name: str) -> str:
        """A text of the update."""
        return word(self.update.get(name))


class Updates(LineReader):
    """The log."""

    carries = ("model", "origin", "own", "end", "piece", "prompts")
    """The model, whose records these are, and the prompts that stand."""

    def __init__(self, source: Source, file: File, mark: Mark) -> None:
        """Go on after the records before."""
        super().__init__(source, file, mark)
        carry = self._carried
        self._folder = Path(file.path).parent
        self._model = text(carry.get("model"))
        self._origin = text(carry.get("origin"))
        """Whose copied records these are; None once the session's own have begun."""
        self._end = text(carry.get("end"))
        """The event that they lead to, where they were handed over."""
        self._own = carry.get("own") is True
        self._piece = text(carry.get("piece"))
        known = carry.get("prompts")
        self._prompts: list[int] = (
            [count(index) for index in known] if isinstance(known, list) else []
        )
        """The index of each prompt that stands."""
        self._kinds: dict[str, Callable[[Update], list[Fact]]] = {
            "user_message_chunk": self._user,
            "agent_message_chunk": self._message,
            "agent_thought_chunk": self._thought,
            "tool_call": self._call,
            "tool_call_update": self._call_update,
            "plan": self._plan,
            "turn_completed": self._turn,
            "rewind_marker": self._rewind,
            "compaction_checkpoint": self._checkpoint,
            "auto_compact_failed": self._compaction_failed,
            "subagent_spawned": self._subagent,
            "subagent_finished": self._subagent,
            "task_completed": self._task,
            "hook_execution": self._hook,
        }

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Return the event of one record, more where it bills several models."""
        record = Update(entry)
        edges = self._ownership_edges(record)
        made = self._kinds.get(record.kind, self._other)(record)
        if edges:
            made[0] = msgspec.structs.replace(made[0], edges=made[0].edges + edges)
        self._piece = made[0].piece
        return made

    # -- whose it is --------------------------------------------------------------------

    def _ownership_edges(self, record: Update) -> tuple[Edge, ...]:
        """Tell copies from own records; the first own one after copies ends a fork's share."""
        author = record.author
        if self._own or not author:
            return ()
        if files.clean_carry(author) != self._session and author != record.own:
            self._origin = author
            self._end = text(record.meta.get("thence_handoff"))
            return ()
        self._own = True
        parent, self._origin = self._origin, None
        if parent is None:
            return ()
        # One that was handed over is named by its full id. The client drops what its card says.
        own = Edge("fork", parent, "its log begins with that session's")
        return handed_over_edges(parent, self._end) or (own,)

    def _node(self, record: Update, flags: int = 0, **more: JSON) -> Node:
        raw = record.entry.raw
        begin = max(raw.find(b'"update":'), 0)
        return Node(line_name(self._file.key, raw[begin:]), PREVIOUS, flags, **more)

    def _event(self, record: Update, node: Node, *blocks: Block, **more: JSON) -> Fact:
        return self._fact(
            record.entry,
            node,
            record.kind,
            ts=record.ts,
            blocks=blocks,
            origin=self._origin,
            # Without an event id two sessions may hold the same record and share nothing.
            copy_key=node.id if record.author else None,
            **more,
        )

    def _note_facts(self, record: Update, line: str, flags: int = 0, **more: JSON) -> list[Fact]:
        """A record that keeps the books."""
        block = note(line, record.update or record.entry.value)
        return [self._event(record, self._node(record, Is.INTERNAL | flags), block, **more)]

    # -- what was said ------------------------------------------------------------------

    def _user(self, record: Update) -> list[Fact]:
        meta = fields(record.update.get("_meta"))
        self._model = text(meta.get("modelId")) or self._model
        part = picture(fields(record.update.get("content")))
        line = word(part.get("text")) or word(part.get("type"))
        if meta.get("hostTurn") is True:  # a command to the client; no model saw it
            return self._note_facts(record, line)
        if line.startswith(RECORDED) or _is_injected(record, line):  # no human's words
            block = Block("lifecycle", "user", one_line(line), part)
            return [self._event(record, self._node(record), block, model=self._model)]
        index = integer_of(meta.get("promptIndex"))
        piece = f"user {index}" if index is not None else None
        if piece is None or piece != self._piece:
            last = self._prompts[-1] if self._prompts else 0
            self._prompts.append(last if index is None else count(index))
        block = Block("user_msg", "user", one_line(line), part)
        node = self._node(record, Is.PROMPT)
        return [self._event(record, node, block, model=self._model, piece=piece)]

    def _message(self, record: Update) -> list[Fact]:
        part = picture(fields(record.update.get("content")))
        words = word(part.get("text"))
        block = Block("assistant_msg", "assistant", one_line(words), part)
        return self._reply(record, block)

    def _thought(self, record: Update) -> list[Fact]:
        words = word(fields(record.update.get("content")).get("text"))
        return self._reply(record, thought(words))

    def _reply(self, record: Update, block: Block) -> list[Fact]:
        response = record.response
        return [
            self._event(
                record,
                self._node(record, Is.REPLY, response=response),
                block,
                model=self._model,
                usage_key=record.prompt,
                piece=f"{record.kind} {response}" if response else None,
                about=_context(record),
            )
        ]

    # -- calls --------------------------------------------------------------------------

    def _call(self, record: Update) -> list[Fact]:
        tool_info = fields(fields(record.update.get("_meta")).get("x.ai/tool"))
        tool = word(tool_info.get("name")) or record.word("title")
        block = call(tool, record.update.get("rawInput"), text(record.update.get("toolCallId")))
        node = self._node(record, Is.REPLY, response=record.response, calls=calls_of([block]))
        return [
            self._event(
                record,
                node,
                block,
                model=self._model,
                usage_key=record.prompt,
                about=_context(record),
            )
        ]

    def _call_update(self, record: Update) -> list[Fact]:
        name, status = text(record.update.get("toolCallId")), record.word("status")
        if status not in _ENDED or name is None:
            return self._note_facts(record, record.word("title") or record.kind)
        raw = fields(record.update.get("rawOutput"))
        output, images = _output(record.update, raw), _images(record.update.get("content"))
        line = one_line(output) or ("[image]" if images else "")
        content = result_content(output, images)
        blocks = [Block("tool_result", "tool", line, content, None, name, _has_failed(status, raw))]
        if raw.get("truncated") is True:  # only a name: it is looked for in the own folder
            file_note = {"file": f"{name}.log", "bytes": count(raw.get("total_bytes"))}
            blocks.append(note("the whole output lies in a file", file_note))
        node = self._node(record, answers=(name,))
        return [self._event(record, node, *blocks)]

    def _plan(self, record: Update) -> list[Fact]:
        todos = objects(record.update.get("entries"))
        block = note(f"plan of {len(todos)} steps", {"todos": todos})
        return [self._event(record, self._node(record), block)]

    # -- turns --------------------------------------------------------------------------

    def _turn(self, record: Update) -> list[Fact]:
        stop, result = record.word("stop_reason"), record.word("agent_result")
        flags = _STOPS.get(stop, Is.ENDS | Is.REPLY)
        line = one_line(f"turn {stop}: {result}" if result else f"turn {stop}")
        wrong = stop == "error"
        block = Block("error" if wrong else "lifecycle", "system", line, record.update)
        key = text(record.update.get("prompt_id"))
        usage = fields(record.update.get("usage"))
        parts = by_model(usage) if usage else []
        if not parts:
            lost = KILLED if stop == "interrupted" else None
            node = self._node(record, flags)
            key = key if lost else None
            return [self._event(record, node, block, unbilled=lost, usage_key=key)]
        others = max(count(usage.get("modelCalls")) - count(usage.get("numTurns")), 0)
        others = others if usage.get("numTurns") is not None else 0
        short = INCOMPLETE if usage.get("usageIsIncomplete") is True else None
        out: list[Fact] = []
        for nth, (model, part) in enumerate(parts):
            node = self._node(record, flags if not nth else 0)
            if nth:
                node = msgspec.structs.replace(node, id=f"{node.id} {model}")
                block = Block("lifecycle", "system", f"bill of {model}", part)
            bill = self._event(
                record,
                node,
                block,
                model=model or self._model,
                usage=usage_of(part),
                usage_key=f"{key} {model}" if nth else key,
                turn_bill=TurnBill(0 if nth else others),
                cost_usd=cost_of(part),
                unbilled=None if nth else short,
            )
            out.append(bill)
        return out

    def _rewind(self, record: Update) -> list[Fact]:
        target = integer_of(record.update.get("target_prompt_index"))
        if target is None:
            return self._note_facts(record, "rewind to nowhere")
        standing = len(self._prompts)
        keep = next((at for at in range(standing) if self._prompts[at] >= target), standing)
        del self._prompts[keep:]
        node = self._node(record, Is.INTERNAL, undo=Undo(to=keep))
        block = note(f"rewound to prompt {target}", record.update)
        return [self._event(record, node, block)]

    # -- compaction ---------------------------------------------------------------------

    def _checkpoint(self, record: Update) -> list[Fact]:
        name = PurePosixPath(record.word("checkpoint_file")).name
        path = within(self._folder, "compaction_checkpoints", name)
        history = files.document(str(path)).get("compacted_history") if path else None
        blocks = replacement(history)
        if not blocks:  # without what replaces it, the history goes on as it was
            return self._note_facts(record, "compaction, its history lost", unbilled=COMPACTION)
        node = self._node(record, Is.SUMMARY)
        return [self._event(record, node, *blocks, unbilled=COMPACTION)]

    def _compaction_failed(self, record: Update) -> list[Fact]:
        return self._note_facts(
            record, f"compaction failed: {record.word('error')}", unbilled=COMPACTION
        )

    # -- the rest -----------------------------------------------------------------------

    def _subagent(self, record: Update) -> list[Fact]:
        child = text(record.update.get("child_session_id")) or text(
            record.update.get("subagent_id")
        )
        line = f"{record.kind}: {record.word('description') or record.word('status')}"
        edge = (Edge("subagent", child, f"{record.kind} in its log", child=True),) if child else ()
        asked = text(record.update.get("parent_prompt_id"))
        return self._note_facts(record, line, edges=edge, usage_key=asked)

    def _task(self, record: Update) -> list[Fact]:
        """A command in the background has ended: how, its call's result could not tell yet."""
        snapshot = fields(record.update.get("task_snapshot"))
        name = text(record.update.get("tool_call_id")) or text(snapshot.get("tool_call_id"))
        code = integer_of(snapshot.get("exit_code"))
        statuses: tuple[CallStatus, ...] = ()
        if name and code is not None:
            statuses = (CallStatus(name, code != 0, code),)
        return self._note_facts(
            record, f"{record.kind}: {word(snapshot.get('command'))}", told=statuses
        )

    def _hook(self, record: Update) -> list[Fact]:
        name = record.word("event_name")
        return self._note_facts(record, f"hook: {name}", Is.CLOSES if name == "session_end" else 0)

    def _other(self, record: Update) -> list[Fact]:
        more = record.word("message") or record.word("reason") or record.word("title")
        line = record.kind or "unknown"
        return self._note_facts(record, f"{line}: {more}" if more else line)


def _is_injected(record: Update, line: str) -> bool:
    """Return whether the client put a text into the user's mouth: it hides it, or tags it."""
    content = fields(record.update.get("content"))
    notes = (record.meta, record.update.get("_meta"), content.get("_meta"), content)
    return any(fields(place).get(_HIDDEN) is True for place in notes) or is_injected(line)


def _context(record: Update) -> Record:
    """How much the model had before it, by the client's estimate: no bill."""
    tokens = record.meta.get("totalTokens")
    return {"status:context": {"tokens": count(tokens)}} if tokens is not None else {}


# -- results --------------------------------------------------------------------------------


def _has_failed(status: str, raw: Record) -> bool | None:
    """Whether a call failed. A command that fails is `completed` all the same."""
    if status == "failed" or raw.get("is_error") is True:
        return True
    kind = word(raw.get("type"))
    if kind == "BackgroundTaskStarted":  # how it ends is told later
        return None
    if kind not in _SHELLS:
        return False
    code = integer_of(raw.get("exit_code"))
    if raw.get("timed_out") is True or raw.get("signal") is not None:
        return True
    return code != 0 if code is not None else None


def _output(update: Record, raw: Record) -> str:
    """The text of a result, as near to what the model got as the record has it."""
    if isinstance(shown := raw.get("output_for_prompt"), str):
        return shown
    for name in ("stdout", "output"):
        if isinstance(raw.get(name), list) and (words := _bytes(raw[name])) is not None:
            return words
    if words := _content(update.get("content")):
        return words
    return "\n".join(_texts(raw))


def _texts(raw: Record) -> Iterator[str]:
    """The texts of a structure: of each object in it the one that was meant for the model."""
    todo: list[JSON] = [raw]
    for _ in range(_MAX_OBJECTS):
        if not todo:
            return
        value = todo.pop()
        if isinstance(value, dict):
            name = next((n for n in _FOR_PROMPT if isinstance(value.get(n), str)), None)
            if name is not None:
                yield value[name]
            else:
                todo += [v for v in value.values() if isinstance(v, (dict, list))][::-1]
        elif isinstance(value, list):
            todo += value[:_MAX_OBJECTS][::-1]


def _content(parts: JSON) -> str:
    inner = (fields(part).get("content") for part in parts) if isinstance(parts, list) else ()
    texts = (part for part in inner if isinstance(part, dict) and part.get("type") != "image")
    return "\n".join(word(part.get("text")) for part in texts)


def _images(parts: JSON) -> list[Record]:
    inner = (fields(part).get("content") for part in parts) if isinstance(parts, list) else ()
    return [part for part in inner if isinstance(part, dict) and part.get("type") == "image"]


def _bytes(values: JSON) -> str | None:
    try:
        return bytes(values).decode("utf-8", "replace")
    except (ValueError, TypeError):
        return None
