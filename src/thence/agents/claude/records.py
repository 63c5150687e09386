"""What single records of Claude Code's files say, for all four generations of the format.

`ClaudeLog` reads transcripts: the session's own, its subagents' and those of workflows.
The small JSON files beside them are `documents`. It returns the facts of one record at a
time; what it must remember from one record to the next (where the log stood, prompts of
subagents, queued prompts) is small, bounded, and part of the carry, so that a log read in pieces
says the same as one read at once. Nothing in a record raises, and no record is without an event.

What the records of a session say of its subagents stands in `about`, under `agent:<id>`: the
call that started it, and under `agent:<id>:<name>` its type, description, parent and end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import msgspec

from thence.agents import File, Mark, Source
from thence.agents.claude import attachments, blocks, spills
from thence.agents.claude import text as texts
from thence.agents.claude.fields import (
    automated_by,
    compaction_line,
    digest_of,
    error_text,
    is_small_bill,
    preserved_span,
    prompt_marks,
    remember,
)
from thence.agents.files import clean_carry
from thence.agents.records import moment
from thence.format.codec import RawRecord
from thence.format.facts import (
    MIRRORED,
    Block,
    CallStatus,
    Edge,
    Fact,
    answers_of,
    calls_of,
    handed_over_edges,
    line_name,
)
from thence.format.nodes import Is, Node
from thence.format.normal import one_line
from thence.format.records import JSON, text_of, word

SYNTHETIC = "<synthetic>"
"""The model of answers that the client wrote itself; they cost nothing."""

CLEARED = "context cleared"
"""Summary of the event that says that the model saw nothing of what stands before."""

Record = dict[str, JSON]
Names = tuple[str, str | None, str]  # a record's id, its parent, its channel
Frame = tuple[JSON, ...]  # what `_FRAME` names, looked up at once

_FINAL_STOPS = frozenset({"end_turn", "stop_sequence", "refusal", "max_tokens"})
_ENVELOPE = frozenset(
    {
        *("parentUuid", "isSidechain", "type", "uuid", "timestamp", "userType", "entrypoint"),
        *("cwd", "sessionId", "session_id", "version", "gitBranch", "slug", "agentId"),
    }
)
_MIRRORED_KEYS = frozenset({"message", "normalizedMessages", "prompt", "output", "fullOutput"})
_SESSION_FIELDS = (("cwd", "cwd"), ("gitBranch", "git_branch"), ("version", "version"))
_TITLES = {
    "custom-title": ("customTitle", "title:custom"),
    "ai-title": ("aiTitle", "title:ai"),
    "agent-name": ("agentName", "agent_name"),
    "pr-link": ("prUrl", "pr"),
}
_FRAME = (
    *("uuid", "parentUuid", "isSidechain", "timestamp"),
    *("cwd", "gitBranch", "version", "sessionId"),
)
"""What every record of a talk says, in the order of a `Frame`."""

_NO_SESSION_FIELDS = (None, None, None, None)
_AGENT_TOOLS = frozenset({"Task", "Agent"})
_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})")
_ATTACHES_SINCE = (2, 1, 92)  # the first version seen to write down attachments
_MAX_QUEUED = 16


class ClaudeLog:
    """The records of one transcript."""

    def __init__(self, source: Source, file: File, mark: Mark) -> None:
        self._source = source
        self._session = source.session
        self._key = file.key
        self._channel = file.channel
        self._generation = mark.generation
        self._main = file.channel == "main"
        carry = mark.carry if isinstance(mark.carry, dict) else {}
        self._stated: Record = dict(carry.get("said", {}))
        self._says: tuple[JSON, ...] = ()  # of these, what the last record said
        self._last: str | None = carry.get("last")
        self._talked: bool = carry.get("talked", False)  # somebody said something before
        self._rewound: bool = carry.get("rewound", False)  # by hand, and nothing was said since
        self._opening: list[int] = list(carry.get("opening", []))  # words of the last first prompt
        self._queue: list[JSON] = list(carry.get("queue", []))
        self._attaches: bool = carry.get("attaches", False)
        self._under: str | None = carry.get("under")  # the boundary that awaits its summary
        self._sides: dict[str, str] = dict(carry.get("sides", {}))
        self._tasks: dict[str, str] = dict(carry.get("tasks", {}))
        self._agents: dict[str, str] = dict(carry.get("agents", {}))
        self._foreign: dict[str, str] = dict(carry.get("foreign", {}))
        self._mirrored: dict[str, str] = dict(carry.get("mirrored", {}))  # last ids, by subagent
        self._logs = frozenset(log.channel for log in source.files)
        self._spilled: int = carry.get("spilled", 0)  # bytes of outputs that were kept
        self._makers: dict[str, Callable[[RawRecord, Record, Frame], tuple[Fact, ...]]] = {
            "user": self._user,
            "assistant": self._assistant,
            "system": self._system,
            "attachment": self._attachment,
            "progress": self._progress,
            "queue-operation": self._queue_operation,
            "last-prompt": self._last_prompt,
            "summary": self._summary,
            "cost-state": self._cost_state,
        }

    def carry(self) -> JSON:
        """Return what later records need to know of those before them."""
        known: Record = {
            "said": dict(self._stated),
            "last": self._last,
            "talked": self._talked,
            "rewound": self._rewound,
            "opening": list(self._opening),
            "queue": list(self._queue),
            "attaches": self._attaches,
            "under": self._under,
            "sides": dict(self._sides),
            "tasks": dict(self._tasks),
            "agents": dict(self._agents),
            "foreign": dict(self._foreign),
            "mirrored": dict(self._mirrored),
            "spilled": self._spilled,
        }
        return {name: value for name, value in known.items() if value}

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Return the facts of one record."""
        record = entry.value
        kind = record.get("type")
        maker = self._makers.get(kind) if type(kind) is str else None
        frame = tuple(map(record.get, _FRAME))
        facts = (maker or self._other)(entry, record, frame)
        if self._main and facts[0].channel == "main":
            if frame[1] is None and type(frame[0]) is str and kind != "assistant":
                facts = self._mark_cleared(record, facts)
            if kind in ("user", "assistant"):
                self._talked, self._rewound = True, False
                self._opening = self._opening or prompt_marks(facts[0])
        return facts

    def _mark_cleared(self, record: Record, facts: tuple[Fact, ...]) -> tuple[Fact, ...]:
        """Return the facts of a record that continues nothing: the context may be cleared.

        So it is when the user lets a plan be carried out with an empty context. A rewind to the
        first prompt looks the same: the client says so, or much of that prompt comes again.
        """
        first = facts[0]
        if first.node.logical is not None or first.node.answers:
            return facts
        before, self._opening = self._opening, prompt_marks(first)
        again = texts.is_alike(before, self._opening) and "planContent" not in record
        if not self._talked or self._rewound or again:
            return facts
        note = Block("lifecycle", "system", CLEARED)
        node = msgspec.structs.replace(first.node, flags=first.node.flags | Is.CLEARS)
        made = msgspec.structs.replace(first, node=node, blocks=(*first.blocks, note))
        return made, *facts[1:]

    # -- the frame of a record ----------------------------------------------------------

    def _names(
        self, entry: RawRecord, record: Record, frame: Frame, *, book: bool = False
    ) -> Names:
        """Name a record, what it goes on from and whose it is; `book` is no part of a talk."""
        uuid, parent = frame[0], frame[1]
        if type(parent) is not str:
            parent = None
        native = type(uuid) is str and uuid != ""
        if not native:
            uuid = line_name(self._key, entry.raw)
            if parent is None and not book:
                parent = self._last  # a log without links is a line
        if not self._main:
            return uuid, parent, self._channel
        if frame[2] is True:
            return uuid, parent, self._side(record, uuid, parent)
        if native or not book:
            self._last = uuid
        return uuid, parent, "main"

    def _side(self, record: Record, uuid: str, parent: str | None) -> str:
        """Name the subagent of a record that stands in the session's own log."""
        agent = record.get("agentId")
        if isinstance(agent, str) and agent:
            return f"agent:{agent}"
        root = uuid if parent is None else self._sides.get(clean_carry(parent), parent)
        remember(self._sides, clean_carry(uuid), root)
        return f"agent:{root}"

    def _fact(  # noqa: PLR0917 - the frame of every record
        self,
        entry: RawRecord,
        frame: Frame,
        node: Node,
        channel: str,
        parts: tuple[Block, ...],
        kind: str,
        statuses: tuple[CallStatus, ...] = (),
        unbilled: str | None = None,
    ) -> Fact:
        """Put the frame around what a record says."""
        place, ts = entry.place, frame[3]
        return Fact(
            node,
            kind,
            ts if type(ts) is str else moment(ts),
            parts,
            self._key,
            channel,
            self._generation,
            place.line,
            place.offset,
            told=statuses,
            unbilled=unbilled,
        )

    def _with_about(
        self, record: Record, frame: Frame, fact: Fact, about: Record | None = None
    ) -> tuple[Fact, ...]:
        """Return a fact, and beside it what its record says of the session or of another one."""
        says = frame[4:]
        if says != self._says and fact.channel == "main" and says != _NO_SESSION_FIELDS:
            # Nearly all records repeat the one before.
            self._says = says
            about = self._note_changes(record, about)
            if self._is_new(says[3]):
                return self._from_elsewhere(record, fact, about)
        if "forkedFrom" in record and fact.channel == "main":
            return self._from_elsewhere(record, fact, about)
        return (fact, self._tell(fact, about)) if about else (fact,)

    def _tell(self, fact: Fact, about: Record, edges: tuple[Edge, ...] = ()) -> Fact:
        """Say something of the session, true also when the record is a subagent's or a copy."""
        return Fact(
            Node(f"{fact.node.id}#about", flags=Is.INTERNAL),
            "about",
            file=fact.file,
            generation=fact.generation,
            line=fact.line,
            offset=fact.offset,
            copy_key=f"{self._session}:{fact.node.id}",
            about=about,
            edges=edges,
        )

    def _note_changes(self, record: Record, about: Record | None) -> Record | None:
        """Say of the session what this record says otherwise than those before it."""
        stated = self._stated
        for name, key in _SESSION_FIELDS:
            value = record.get(name)
            if value is None or value == stated.get(key) or not isinstance(value, str):
                continue
            known, stated[key] = stated.get(key), clean_carry(value)
            if stated[key] != known and value != "HEAD":  # no branch, or none with a name
                about = {**(about or {}), key: value}
        return about

    def _is_new(self, session: JSON) -> bool:
        """Whether a session's name is another one, and no record before has named it."""
        if not isinstance(session, str) or session in ("", self._session):
            return False
        name = clean_carry(session)
        return name != self._session and name not in self._foreign

    def _from_elsewhere(self, record: Record, fact: Fact, about: Record | None) -> tuple[Fact, ...]:
        """A record that names another session: copied by /branch, or from before a resume."""
        fork, named = record.get("forkedFrom"), word(record.get("sessionId"))
        beside = (self._tell(fact, about),) if about else ()
        session = word(fork.get("sessionId")) if isinstance(fork, dict) else ""
        if isinstance(fork, dict) and session and clean_carry(session) != self._session:
            event = word(fork.get("messageUuid")) or None
            edges = handed_over_edges(fork.get("thence_handoff"), event)
            tie = self._tell(fact, {}, edges or (Edge("fork", session, "forkedFrom", event),))
            return msgspec.structs.replace(fact, origin=session), *beside, tie
        if not self._is_new(named):
            return fact, *beside
        remember(self._foreign, clean_carry(named), clean_carry(named))
        edge = Edge("resume", named, "sessionId of records in this log")
        return fact, *beside, self._tell(fact, {}, (edge,))

    def _note(  # noqa: PLR0917 - the same
        self,
        entry: RawRecord,
        record: Record,
        frame: Frame,
        kind: str,
        block: Block | None = None,
        about: Record | None = None,
        unbilled: str | None = None,
    ) -> tuple[Fact, ...]:
        """Put a frame around a record that keeps the books."""
        uuid, parent, channel = self._names(entry, record, frame, book=True)
        if block is None:
            payload = {name: value for name, value in record.items() if name not in _ENVELOPE}
            block = Block("lifecycle", "system", kind, payload)
        node = Node(uuid, parent, Is.INTERNAL)
        fact = self._fact(entry, frame, node, channel, (block,), kind, (), unbilled)
        return self._with_about(record, frame, fact, about)

    # -- what the user's side says ------------------------------------------------------

    def _user(self, entry: RawRecord, record: Record, frame: Frame) -> tuple[Fact, ...]:
        uuid, parent, channel = self._names(entry, record, frame)
        message = record.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list) and blocks.has_results(content):
            return self._answer(entry, record, frame, (uuid, parent, channel), content)
        if record.get("isCompactSummary") is True or self._sums_up(record, parent):
            parts, flags = blocks.user_blocks(content, human=False)
            node = Node(uuid, parent, Is.SUMMARY)
            return self._with_about(
                record, frame, self._fact(entry, frame, node, channel, parts, "user")
            )
        parts, flags = blocks.user_blocks(content, human=blocks.is_by_human(record))
        if channel == "main":
            about = automated_by(record, content)
        else:
            flags &= ~Is.PROMPT  # the model asks here, not a human
            about = self._about_agent(channel, parent, content)
        node = Node(uuid, parent, flags)
        fact = self._fact(entry, frame, node, channel, parts, "user")
        return self._with_about(record, frame, fact, about)

    def _sums_up(self, record: Record, parent: str | None) -> bool:
        """Whether a record without the mark is a summary: the first below a boundary."""
        if self._under is None or parent is None or clean_carry(parent) != self._under:
            return False
        self._under = None
        return record.get("isMeta") is not True

    def _about_agent(self, channel: str, parent: str | None, content: JSON) -> Record | None:
        """What the first record of a subagent says of it: that it is noise, or who asked."""
        if parent is not None:
            return None
        text = text_of(content)
        if text == texts.WARMUP:
            return {f"{channel}:automated": "warmup"}
        call = self._tasks.get(digest_of(clean_carry(text))) if self._main else None
        return {channel: call} if call is not None else None

    def _answer(
        self, entry: RawRecord, record: Record, frame: Frame, names: Names, content: list[JSON]
    ) -> tuple[Fact, ...]:
        """A record that answers calls, and what its structured form says beside."""
        uuid, parent, channel = names
        parts, flags = blocks.user_blocks(content, human=False)
        first = parts[0] if len(parts) == 1 else next(b for b in parts if b.kind == "tool_result")
        result = record.get("toolUseResult")
        if record.get("toolDenialKind") == "interrupted" and blocks.is_repair(first):
            flags |= Is.SYNTHETIC
        node = Node(uuid, parent, flags, (), answers_of(parts))
        statuses = blocks.call_statuses(parts, result)
        fields = result if isinstance(result, dict) else {}
        detail = texts.details(result, first.payload)
        parts += self._details(parts, first, detail)
        agent = word(fields.get("agentId")) or (
            None if fields else texts.agent_named(first.payload)
        )
        about = self._link_agent(agent, first.call) if agent and first.call is not None else None
        fact = self._fact(entry, frame, node, channel, parts, "user", statuses)
        if "searchCount" in fields:
            fact = msgspec.structs.replace(fact, **blocks.search_bill(fields, first.call))
        return self._with_about(record, frame, fact, about)

    def _details(self, results: tuple[Block, ...], first: Block, detail: JSON) -> tuple[Block, ...]:
        """Return what is stored beside the results of a record: details, and whole outputs.

        The client deletes the file of an output with the log, so it is stored with its result.
        """
        out: list[Block] = []
        for block in results:
            if block is not first and block.kind != "tool_result":
                continue
            beside = detail if block is first else None
            room = min(spills.MAX_STORED_BYTES, spills.MAX_STORED_BYTES_PER_LOG - self._spilled)
            body = spills.read_spill(self._source, block, room)
            if body is not None:
                self._spilled += len(body)
                beside = spills.with_full_output(beside, body)
            if beside is not None:
                out.append(Block("lifecycle", "system", "details", beside, None, block.call))
        return tuple(out)

    def _link_agent(self, agent: str, call: str) -> Record | None:
        """Say which call a subagent answers to, once."""
        name, known = clean_carry(agent), clean_carry(call)
        if self._agents.get(name) == known:
            return None
        remember(self._agents, name, known)
        return {f"agent:{agent}": call}

    # -- what the model says ------------------------------------------------------------

    def _assistant(self, entry: RawRecord, record: Record, frame: Frame) -> tuple[Fact, ...]:
        uuid, parent, channel = self._names(entry, record, frame)
        message = record.get("message")
        if not isinstance(message, dict):
            message = {}
        content, model = message.get("content"), message.get("model")
        if record.get("isApiErrorMessage") is True:
            failed = Block("error", "system", one_line(text_of(content)), content)
            node = Node(uuid, parent, Is.REPLY | Is.INTERRUPTS)
            fact = self._fact(entry, frame, node, channel, (failed,), "assistant")
            return self._with_about(record, frame, fact)
        parts = blocks.assistant_blocks(content) or (Block("assistant_msg", "assistant"),)
        summed = record.get("isCompactSummary") is True
        if summed or model == SYNTHETIC:
            flags = Is.SUMMARY if summed else Is.REPLY | Is.SYNTHETIC
            node = Node(uuid, parent, flags, calls_of(parts))
            parts = tuple(map(blocks.as_client_text, parts))
            return self._with_about(
                record, frame, self._fact(entry, frame, node, channel, parts, "assistant")
            )
        calls = calls_of(parts)
        stop = word(message.get("stop_reason"))
        flags = Is.REPLY
        # Before 2.1.325 the records of a response that came first said nothing of its end.
        if not calls and (stop in _FINAL_STOPS if stop else parts[-1].kind == "assistant_msg"):
            flags |= Is.ENDS
        if calls and self._main:
            self._remember_tasks(parts)
        response = message.get("id")
        node = Node(uuid, parent, flags, calls, (), response if isinstance(response, str) else None)
        usage, key, cost, tier = blocks.bill(record, message)
        cut, ts = record.get("isAbortedMidStream") is True, frame[3]
        fact = Fact(  # by place: with names for so many fields this takes twice as long
            node,
            "assistant",
            ts if type(ts) is str else moment(ts),
            parts,
            self._key,
            channel,
            self._generation,
            entry.place.line,
            entry.place.offset,
            None,
            model if isinstance(model, str) else None,
            usage,
            key,
            None,
            (),
            cost,
            None,
            tier,
            "a response was cut off before its usage was written" if cut else None,
            blocks.text_chars(parts) if is_small_bill(usage) else 0,
        )
        return self._with_about(record, frame, fact)

    def _remember_tasks(self, parts: tuple[Block, ...]) -> None:
        """Remember what subagents were asked: the oldest ones have no other link to the call."""
        for block in parts:
            if (
                block.tool in _AGENT_TOOLS
                and block.call is not None
                and isinstance(block.payload, dict)
            ):
                asked = clean_carry(word(block.payload.get("prompt")))
                remember(self._tasks, digest_of(asked), block.call)

    # -- what the harness says ----------------------------------------------------------

    def _system(self, entry: RawRecord, record: Record, frame: Frame) -> tuple[Fact, ...]:
        what = word(record.get("subtype"))
        kind = f"system/{what}" if what else "system"
        if what == "compact_boundary":
            return self._boundary(entry, record, frame, kind)
        content = record.get("content")
        text = content if isinstance(content, str) else ""
        if what == "local_command":
            uuid, parent, channel = self._names(entry, record, frame)
            note = Block("lifecycle", "user", texts.note(text), {"type": "text", "text": text})
            fact = self._fact(entry, frame, Node(uuid, parent), channel, (note,), kind)
            return self._with_about(record, frame, fact)
        payload = {name: value for name, value in record.items() if name not in _ENVELOPE}
        failed = what in ("api_error", "error", "api_refusal")
        block = Block(
            "error" if failed else "lifecycle",
            "system",
            one_line(text or error_text(record) or what or "system"),
            payload,
        )
        return self._note(entry, record, frame, kind, block)

    def _boundary(
        self, entry: RawRecord, record: Record, frame: Frame, kind: str
    ) -> tuple[Fact, ...]:
        """A compaction. Copies of one in a fork name nothing that they go on from."""
        before = self._last or ""
        uuid, parent, channel = self._names(entry, record, frame)
        self._under = clean_carry(uuid)
        logical = record.get("logicalParentUuid")
        about = record.get("compactMetadata")
        segment = about.get("preservedSegment") if isinstance(about, dict) else None
        node = Node(
            uuid,
            parent,
            Is.INTERNAL,
            logical=(logical if isinstance(logical, str) else before) if parent is None else None,
            span=preserved_span(segment),
        )
        block = Block("lifecycle", "system", one_line(compaction_line(about)), about)
        unbilled = "the compaction request is not in the log"
        fact = self._fact(entry, frame, node, channel, (block,), kind, (), unbilled)
        return self._with_about(record, frame, fact)

    def _attachment(self, entry: RawRecord, record: Record, frame: Frame) -> tuple[Fact, ...]:
        self._attaches = True
        attachment = record.get("attachment")
        what = word(attachment.get("type")) if isinstance(attachment, dict) else ""
        kind = f"attachment/{what}" if what else "attachment"
        if what != "queued_command" or not isinstance(attachment, dict):
            above = record.get("parentUuid")
            if isinstance(above, str) and self._under == clean_carry(above):
                self._under = clean_carry(word(record.get("uuid"))) or None
            if what in attachments.SENT and isinstance(attachment, dict):
                return self._sent_attachment(entry, record, frame, attachment, kind)
            return self._note(entry, record, frame, kind)
        native = isinstance(record.get("uuid"), str)
        uuid, parent, channel = self._names(entry, record, frame, book=True)
        parts, flags = blocks.user_blocks(
            attachment.get("prompt"), human=blocks.is_by_human(attachment)
        )
        # Without an id of its own nothing can go on from it: it stands beside the line.
        node = Node(uuid, parent, flags if native else flags | Is.INTERNAL)
        return self._with_about(record, frame, self._fact(entry, frame, node, channel, parts, kind))

    def _sent_attachment(
        self, entry: RawRecord, record: Record, frame: Frame, attachment: Record, kind: str
    ) -> tuple[Fact, ...]:
        """A file that the user named, or that was read again: the model sees what is in it."""
        native = isinstance(record.get("uuid"), str)
        uuid, parent, channel = self._names(entry, record, frame, book=True)
        note = Block(
            "lifecycle", "system", kind, attachments.note_of(record, attachment, _ENVELOPE)
        )
        sent = attachments.sent_blocks(record, attachment)
        # Without an id of its own nothing can go on from it: it stands beside the line.
        node = Node(uuid, parent, 0 if native and sent else Is.INTERNAL)
        fact = self._fact(entry, frame, node, channel, (note, *sent), kind)
        return self._with_about(record, frame, fact)

    def _progress(self, entry: RawRecord, record: Record, frame: Frame) -> tuple[Fact, ...]:
        """A sign of life of a running call. What it repeats of a log or a result is left out.

        A message of a subagent is repeated, unless the subagent's own log is not there.
        """
        data, call = record.get("data"), record.get("parentToolUseID")
        about = None
        mirrored: tuple[Fact, ...] = ()
        if isinstance(data, dict):
            agent = data.get("agentId")
            if isinstance(agent, str) and isinstance(call, str):
                about = self._link_agent(agent, call)
            if isinstance(agent, str) and f"agent:{agent}" not in self._logs:
                mirrored = self._mirrored_message(entry, record, agent, data.get("message"))
            data = {name: value for name, value in data.items() if name not in _MIRRORED_KEYS}
            what = word(data.get("type"))
        else:
            what = ""
        block = Block(
            "lifecycle",
            "system",
            what or "progress",
            data,
            None,
            call if isinstance(call, str) else None,
        )
        kind = f"progress/{what}" if what else "progress"
        return self._note(entry, record, frame, kind, block, about) + mirrored

    def _mirrored_message(
        self, entry: RawRecord, record: Record, agent: str, message: JSON
    ) -> tuple[Fact, ...]:
        """Return the facts of a subagent's message that its parent's log holds.

        They are those of a record in a log of its own, each following the one before.
        """
        if not self._main or not agent or not isinstance(message, dict):
            return ()
        kind = message.get("type")
        maker = {"user": self._user, "assistant": self._assistant}.get(word(kind))
        if maker is None:
            return ()
        frame = {name: record.get(name) for name in _FRAME}
        uuid = word(message.get("uuid")) or f"{word(record.get('uuid'))}#message"
        inner = {
            **frame,
            **message,
            "uuid": uuid,
            "parentUuid": self._mirrored.get(agent),
            "isSidechain": True,
            "agentId": agent,
        }
        remember(self._mirrored, agent, uuid)
        first, *rest = maker(entry, inner, tuple(map(inner.get, _FRAME)))
        return msgspec.structs.replace(first, type=f"{MIRRORED}{kind}"), *rest

    def _queue_operation(self, entry: RawRecord, record: Record, frame: Frame) -> tuple[Fact, ...]:
        """A prompt that waits for its turn.

        It is told again when it is taken: by a user's record (`dequeue`), or, in the middle of
        a turn (`remove`), by an attachment. Clients that wrote no attachments said it nowhere
        else: there it counts as said when it is removed.
        """
        what = word(record.get("operation"))
        content = record.get("content")
        waits = self._queue
        if what == "enqueue":
            waits.append(content)
            del waits[:-_MAX_QUEUED]
        elif what == "popAll":
            waits.clear()
        elif waits:
            first = waits.pop(0)
            content = content or first
        kind = f"queue-operation/{what}" if what else "queue-operation"
        if (
            what == "remove"
            and content
            and not record.get("content")
            and self._writes_no_attachments()
        ):
            parts, flags = blocks.user_blocks(content, human=True)
            if flags & Is.PROMPT:
                uuid, parent, channel = self._names(entry, record, frame, book=True)
                node = Node(uuid, parent, flags | Is.INTERNAL)
                return self._with_about(
                    record, frame, self._fact(entry, frame, node, channel, parts, kind)
                )
        named = texts.parse_notification(text_of(content))
        about = self._link_agent(*named) if named else None
        return self._note(entry, record, frame, kind, None, about)

    def _writes_no_attachments(self) -> bool:
        """Whether this client is one that wrote down no attachments."""
        version = _VERSION.match(word(self._stated.get("version")))
        old = version is None or tuple(map(int, version.groups())) < _ATTACHES_SINCE
        return old and not self._attaches

    def _last_prompt(self, entry: RawRecord, record: Record, frame: Frame) -> tuple[Fact, ...]:
        """Where the client says that its line ends; it may say so late, or before the record."""
        facts = self._note(entry, record, frame, "last-prompt")
        leaf = record.get("leafUuid")
        if not isinstance(leaf, str):
            return facts
        by_hand = record.get("explicit") is True
        self._rewound = self._rewound or by_hand
        late = 0 if by_hand else Is.TRAILS
        node = msgspec.structs.replace(facts[0].node, flags=Is.INTERNAL | late, tip=leaf)
        return (msgspec.structs.replace(facts[0], node=node), *facts[1:])

    def _summary(self, entry: RawRecord, record: Record, frame: Frame) -> tuple[Fact, ...]:
        """A title for the session, often another one, that holds the record it names."""
        leaf, title = record.get("leafUuid"), record.get("summary")
        about = None
        if isinstance(leaf, str) and isinstance(title, str):
            about = {"titles": {leaf: title}}
        block = Block("lifecycle", "system", one_line(word(title)) or "summary", record)
        return self._note(entry, record, frame, "summary", block, about)

    def _cost_state(self, entry: RawRecord, record: Record, frame: Frame) -> tuple[Fact, ...]:
        cost = record.get("totalCostUSD")
        known = isinstance(cost, (int, float)) and not isinstance(cost, bool)
        return self._note(
            entry, record, frame, "cost-state", None, {"status:cost_usd": cost} if known else None
        )

    def _other(self, entry: RawRecord, record: Record, frame: Frame) -> tuple[Fact, ...]:
        """Titles, modes, checkpoints, and whatever a newer client may write."""
        kind = word(record.get("type")) or "(none)"
        named = _TITLES.get(kind)
        if named is None:
            return self._note(entry, record, frame, kind)
        value = record.get(named[0])
        about = {named[1]: value} if isinstance(value, str) else None
        unbilled = "the title request is not in the log" if kind == "ai-title" else None
        return self._note(entry, record, frame, kind, None, about, unbilled)
