"""The records of one rollout as facts: what every line says by itself.

Text stands in `response_item`s; events that repeat it are book-keeping and give no more than how
calls went. Bills are `token_usage_record`s of the own thread. A log without them has running totals
only, which repeat, start again when a session is resumed, and in a fork begin with what its
parent spent: here they become the total of this very file, which only grows. What a resume must
know of earlier lines is small and travels in the carry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path

import msgspec

from thence.agents import File, Mark, Source
from thence.agents.codex import items
from thence.agents.codex.items import Item
from thence.agents.codex.meta import (
    about_session,
    base_of,
    is_bare_head,
    ties,
    usage_of,
)
from thence.agents.files import clean_carry
from thence.format import derived_events
from thence.format.codec import RawRecord
from thence.format.facts import (
    COPIES_OF,
    Base,
    Block,
    CallStatus,
    Edge,
    Fact,
    answers_of,
    calls_of,
    handed_over_edges,
    line_name,
)
from thence.format.nodes import PREVIOUS, Is, Node, Undo
from thence.format.normal import one_line
from thence.format.records import JSON, Usage, count, word

NO_USAGE = "this version of Codex writes no usage"
CUT_OFF = "a response was cut off before its usage was written"

_MIGRATED = re.compile(r"item-\d+")
"""Ids that a migration of old rollouts gives to items."""

_MAX_KIN = 32  # sessions that one log may name as owners of its first lines
_MAX_TURNS = 1 << 31  # more than any log holds
_MAX_SPAWNS = 64  # calls of which the child is still awaited; more are forgotten
_BARE = frozenset({"message", "reasoning"}) | items.CALLS | items.RESULTS | items.SERVED
_ENVELOPES = frozenset({
    "session_meta",
    "response_item",
    "event_msg",
    "turn_context",
    "compacted",
    "world_state",
    "token_usage_record",
    "inter_agent_communication",
    "inter_agent_communication_metadata",
    "security_risk_score",
    "realtime_item",
})  # fmt: skip
_WITH_THREAD_ID = frozenset({
    "token_usage_record",
    "event_msg/item_completed",
    "event_msg/thread_settings_applied",
})  # fmt: skip
"""Records that name the thread they belong to."""
_TURN_EVENTS = frozenset({"task_started", "task_complete", "turn_aborted"})


def is_record(value: Item) -> bool:
    """Whether an object has the shape of a line of a rollout, in an envelope or bare."""
    kind = word(value.get("type"))
    if isinstance(value.get("payload"), dict):
        return bool(kind) and "timestamp" in value and "uuid" not in value
    return kind in _BARE or is_bare_head(value) or "record_type" in value


def is_ours(value: Item) -> bool:
    """Whether a line shows that its file is a rollout."""
    kind = word(value.get("type"))
    if isinstance(value.get("payload"), dict):
        return kind in _ENVELOPES and "timestamp" in value and "uuid" not in value
    if "parentUuid" in value or "sessionId" in value or "parentId" in value:
        return False
    head = is_bare_head(value) and "instructions" in value
    return head or "record_type" in value or kind in _BARE - {"message"}


class RolloutState(msgspec.Struct, omit_defaults=True):
    """What later lines of the same file must know of the earlier ones."""

    own: str | None = None
    """The id on the first line."""
    kin: list[str] = []
    """Sessions that it is tied to already."""
    copies: str | None = None
    """The session whose lines stand copied at the start."""
    until: int | None = None
    """The ordinal at which those copies end, where the writer says so."""
    handed: int = 0
    """The line that they reach to, in a session that was handed over."""
    based: bool = False
    bills: bool = False
    """Every response has a bill of its own: running totals say nothing more."""
    model: str | None = None
    turn: str | None = None
    open: bool = False
    turns: bool = False
    """The log tells where turns begin and end."""
    replied: bool = False
    total: Usage | None = None
    spent: Usage = Usage()
    spawns: list[str] = []
    aborted: bool = False
    reviews: bool = False
    """The turn is a review: another thread makes it and has its bill."""
    first: str | None = None
    """The first prompt, by its name."""


class RecordContent(msgspec.Struct):
    """What one record says, before its place is known."""

    blocks: tuple[Block, ...]
    flags: int = 0
    name: tuple[str, ...] | None = None
    """What it is known by; its bytes when there is nothing better."""
    undo: Undo | None = None
    usage: Usage | None = None
    usage_key: str | None = None
    running: Usage | None = None
    bill_due: str | None = None
    origin: str | None = None
    base: Base | None = None
    edges: tuple[Edge, ...] = ()
    statuses: tuple[CallStatus, ...] = ()
    about: dict[str, JSON] = {}
    mine: bool = False
    """It is the first line, which no other session owns."""


def _note(what: str, payload: JSON, role: str = "system") -> tuple[Block, ...]:
    return (Block("lifecycle", role, what, payload),)


def _book_entry(what: str, item: Item) -> RecordContent:
    """A record that is not part of what was said. What is encrypted in it is left out."""
    shown = {k: v for k, v in item.items() if k != "encrypted_content"}
    return RecordContent(_note(what, shown), Is.INTERNAL)


class RolloutReader:
    """The facts of one file."""

    def __init__(self, source: Source, file: File, mark: Mark) -> None:
        self._session = source.session
        self._file = file
        self._generation = mark.generation
        self._segment = "_" in Path(file.path).name
        try:
            self._state = msgspec.convert(mark.carry or {}, RolloutState)
        except msgspec.ValidationError:
            self._state = RolloutState()

    def carry(self) -> JSON:
        """Return what later lines must know."""
        return msgspec.to_builtins(self._state)

    # -- one record ---------------------------------------------------------------------

    def facts(self, entry: RawRecord) -> Iterator[Fact]:
        """Yield the facts of one line."""
        value = entry.value
        item, kind = value.get("payload"), word(value.get("type"))
        if isinstance(item, dict) and kind:
            what = word(item.get("type"))
            name = f"{kind}/{what}" if what else kind
            content = self._read_enveloped(kind, what, item, entry)
        else:
            item = value
            name = kind or ("session_meta" if is_bare_head(value) else "state")
            content = self._read_bare(kind, value, entry)
        ordinal = value.get("ordinal")
        ordinal = ordinal if isinstance(ordinal, int) and not isinstance(ordinal, bool) else None
        origin = self._origin(name, item, ordinal, content)
        if origin is None and entry.place.line <= self._state.handed and not content.mine:
            origin = self._state.copies
        yield self._fact(entry, content, name, origin, ordinal)
        if origin is not None and name == "session_meta":
            # What a copied line says is its owner's; that it stands here is ours to tell.
            yield self._about(entry, content, origin)

    def _fact(
        self,
        entry: RawRecord,
        content: RecordContent,
        name: str,
        origin: str | None,
        ordinal: int | None,
    ) -> Fact:
        state, place = self._state, entry.place
        summed = content.flags & Is.SUMMARY
        digest = _digest(content.name) if content.name else ""
        node = Node(
            f"{self._file.key}#{digest}" if digest else line_name(self._file.key, entry.raw),
            PREVIOUS,
            content.flags,
            () if summed else calls_of(content.blocks),
            () if summed else answers_of(content.blocks),
            undo=content.undo,
        )
        copied = state.turn if content.name and state.turn else None
        return Fact(
            node,
            name,
            word(entry.value.get("timestamp")) or None,
            content.blocks,
            file=self._file.key,
            channel=self._file.channel,
            generation=self._generation,
            line=place.line,
            offset=place.offset,
            ordinal=ordinal,
            model=state.model
            if content.flags & Is.REPLY or content.usage or content.running
            else None,
            usage=content.usage,
            usage_key=content.usage_key,
            running=content.running,
            bill_due=content.bill_due,
            origin=origin,
            # The same words in the same turn: turns have ids that no other session makes.
            copy_key=f"{copied}#{digest}" if copied else None,
            base=content.base,
            edges=() if origin else content.edges,
            told=content.statuses,
            about=content.about,
        )

    def _about(self, entry: RawRecord, content: RecordContent, owner: str) -> Fact:
        """Tell that a log begins with another session's records.

        Unless the writer says where they end, only the owner's log can tell.
        """
        return Fact(
            Node(f"{line_name(self._file.key, entry.raw)}+"),
            "session_meta",
            file=self._file.key,
            channel=self._file.channel,
            generation=self._generation,
            line=entry.place.line,
            offset=entry.place.offset,
            edges=tuple(edge for edge in content.edges if edge.session == owner),
            about={} if self._state.until is not None else {COPIES_OF: owner},
        )

    def _origin(
        self, name: str, item: Item, ordinal: int | None, content: RecordContent
    ) -> str | None:
        """Whose record it is, when it is not ours."""
        state = self._state
        if content.origin is not None or content.mine:
            return content.origin
        if state.until is not None:
            if ordinal is not None and ordinal < state.until:
                return state.copies
            state.until, state.open = None, False
        thread = item.get("thread_id")
        if isinstance(thread, str) and name in _WITH_THREAD_ID and not self._is_own(thread):
            return thread
        return None

    def _is_own(self, thread: str) -> bool:
        return clean_carry(thread) in (self._session, self._state.own)

    def _read_enveloped(self, kind: str, what: str, item: Item, entry: RawRecord) -> RecordContent:
        if kind == "response_item":
            return self._item(what, item, bare=False, more=entry.value.get("metadata"))
        if kind == "event_msg":
            return self._event(what, item)
        if kind == "session_meta":
            return self._meta(item, entry)
        if kind == "turn_context":
            return self._context(item)
        if kind == "token_usage_record":
            return self._bill(item)
        if kind == "compacted":
            return self._compaction(item)
        if kind == "thence_handoff":
            return self._handoff(item)
        return _book_entry(kind, item)

    def _read_bare(self, kind: str, value: Item, entry: RawRecord) -> RecordContent:
        if not kind and is_bare_head(value):
            return self._meta(value, entry)
        if kind in _BARE or (not kind and "role" in value):
            return self._item(kind, value, bare=True)
        return _book_entry(kind or word(value.get("record_type")) or "record", value)

    def _handoff(self, item: Item) -> RecordContent:
        """Read where a session comes from that was handed over: the lines up to one are copies."""
        content = _book_entry("thence_handoff", item)
        content.mine = True
        content.edges = handed_over_edges(item.get("from"), item.get("event"))
        if content.edges:
            self._state.copies = content.edges[0].session
            self._state.handed = count(item.get("lines"))
        return content

    # -- the session --------------------------------------------------------------------

    def _meta(self, meta: Item, entry: RawRecord) -> RecordContent:
        content = _book_entry("session_meta", meta)
        state, name = self._state, word(meta.get("id"))
        content.name = ("session_meta", name, word(meta.get("timestamp")))
        if state.own is None and (
            entry.place.line == 1 or clean_carry(name) in ("", self._session)
        ):
            self._own_meta(meta, content)
        elif not name or self._is_own(name):
            content.about = about_session(meta)
        else:
            content.origin = state.copies = name
            if clean_carry(name) not in state.kin and len(state.kin) < _MAX_KIN:
                state.kin.append(clean_carry(name))
                content.edges = (Edge("fork", name, "a copy of its first line"),)
        return content

    def _own_meta(self, meta: Item, content: RecordContent) -> None:
        state = self._state
        content.mine = True
        state.own = clean_carry(word(meta.get("id"))) or self._session
        content.edges = self._kin(meta)
        state.kin = [clean_carry(edge.session) for edge in content.edges]
        start = meta.get("subagent_history_start_ordinal")
        if isinstance(start, int) and start > 0 and content.edges:
            state.until, state.copies = start, content.edges[0].session
        content.base = base_of(meta)
        state.based = content.base is not None
        content.about = about_session(meta)

    def _kin(self, meta: Item) -> tuple[Edge, ...]:
        edges = ties(meta, own=(self._session, self._state.own or ""), segment=self._segment)
        return tuple(edge for edge in edges if not self._is_own(edge.session))

    def _context(self, item: Item) -> RecordContent:
        state = self._state
        state.model = word(item.get("model")) or state.model
        state.turn = word(item.get("turn_id")) or state.turn
        content = _with_name(
            _book_entry("turn_context", item), ("turn_context", word(item.get("turn_id")))
        )
        cwd = item.get("cwd")
        content.about = {"cwd": cwd} if isinstance(cwd, str) and cwd else {}
        return content

    # -- what was said ------------------------------------------------------------------

    def _item(self, what: str, item: Item, *, bare: bool, more: JSON = None) -> RecordContent:
        if what == "message" or (not what and "role" in item):
            content = self._message(item, more)
        elif what == "reasoning":
            block = items.thought(item)
            content = RecordContent((block,), Is.REPLY, ("reasoning", _encode(block.payload)))
        elif what in items.CALLS or what in items.SERVED:
            content = self._call(item)
        elif what in items.RESULTS:
            block = items.result_block(item)
            # Known by what was written, so that its id stays what it is.
            name = (what, block.call or "", _encode(block.payload))
            content = RecordContent((items.decoded_result(block),), 0, name)
            content.edges = self._spawn_edges(block)
        elif what == "agent_message":
            content = RecordContent(items.mail(item), 0)
        else:
            content = _book_entry(what or "response_item", item)
        if content.flags & Is.REPLY:
            self._state.replied = True
            content.bill_due = self._due(item, bare=bare)
        return content

    def _due(self, item: Item, *, bare: bool) -> str | None:
        """Return why the bill of a reply is missing unless it follows; None if none has to.

        The thread of a review has no usage of its own: the reviewer's thread has it. A migration
        keeps running totals, but not behind the replies that they belong to.
        """
        state = self._state
        if bare:
            return NO_USAGE
        if not state.turns or state.reviews:
            return None
        if _MIGRATED.fullmatch(word(item.get("id"))):
            return None if state.total is not None else NO_USAGE
        return CUT_OFF

    def _message(self, item: Item, more: JSON) -> RecordContent:
        state, role = self._state, item.get("role")
        if role == "assistant":
            sums_up = isinstance(more, dict) and more.get("compaction_output") is True
            blocks = items.assistant_blocks(item, compacts=sums_up)
            flags = Is.REPLY | (0 if state.turns else Is.ENDS)
            state.open = state.open and state.turns
            return RecordContent(blocks or _note("message", item), flags, _words(item))
        if role != "user":
            return _with_name(_book_entry("message", item), _words(item))
        blocks, human = items.user_blocks(item)
        content = RecordContent(blocks or _note("message", item), 0, _words(item))
        if human is not None:
            self._mark_prompt(content)
        return content

    def _mark_prompt(self, content: RecordContent) -> None:
        """Take a message for a human's, unless Codex itself says it again.

        After an interruption it may write the first prompt once more, before any new turn.
        """
        state, name = self._state, _digest(content.name or ())
        if state.aborted and not state.open and name == state.first and state.turns:
            content.blocks = tuple(
                msgspec.structs.replace(block, kind="lifecycle") for block in content.blocks
            )
            return
        state.first = state.first or name
        state.open = True
        content.flags = Is.PROMPT

    def _call(self, item: Item) -> RecordContent:
        block = items.call_block(item)
        self._state.open = True
        if block.tool == "spawn_agent" and block.call is not None:
            self._state.spawns = [*self._state.spawns, clean_carry(block.call)][-_MAX_SPAWNS:]
        name = (word(item.get("type")), block.call or "", block.tool or "", _encode(block.payload))
        return RecordContent((block,), Is.REPLY, name)

    def _spawn_edges(self, result: Block) -> tuple[Edge, ...]:
        """Tie the parent to a child that the result of a spawn names."""
        state, call = self._state, result.call
        if call is None or clean_carry(call) not in state.spawns:
            return ()
        state.spawns = [spawn for spawn in state.spawns if spawn != clean_carry(call)]
        output = result.payload
        if not isinstance(output, str) or not output.startswith("{"):
            return ()
        try:
            child = msgspec.json.decode(output)["agent_id"]
        except (ValueError, LookupError, RecursionError):
            return ()
        return _child(child, "the result of its spawn", call)

    def _compaction(self, item: Item) -> RecordContent:
        blocks = items.replacement(item)
        if not any(block.role != "system" for block in blocks):
            return _book_entry("compacted", item)
        return RecordContent(blocks, Is.SUMMARY, ("compacted", word(item.get("message"))))

    # -- events -------------------------------------------------------------------------

    def _event(self, what: str, item: Item) -> RecordContent:
        what = _NEW_EVENT_NAMES.get(what, what)
        if what == "item_completed":
            return self._item_completion(item)
        handler = _EVENTS.get(what)
        content = handler(self, item) if handler is not None else _book_entry(what, item)
        if what in _TURN_EVENTS:
            content.name = (what, word(item.get("turn_id")))
        elif what.endswith(("_end", "_response")) and "call_id" in item:
            content.statuses = items.call_statuses(item)
        return content

    def _turn_start(self, item: Item) -> RecordContent:
        """A turn begins; one that is still open was cut off, by whatever killed its process."""
        state = self._state
        cut = state.open and state.copies is None
        state.turn = word(item.get("turn_id")) or state.turn
        state.open = state.turns = True
        state.aborted = state.reviews = False
        content = _book_entry("task_started", item)
        if cut:
            content.flags = Is.INTERRUPTS
            content.blocks = _note("task_started: the turn before was cut off", item)
        return content

    def _review(self, item: Item) -> RecordContent:
        self._state.reviews = True
        return _book_entry(word(item.get("type")) or "review", item)

    def _turn_end(self, item: Item) -> RecordContent:
        self._state.open = False
        error = item.get("error")
        if isinstance(error, dict):
            short = one_line(word(error.get("message"))) or "error"
            return RecordContent((Block("error", "system", short, error),), Is.REPLY | Is.ENDS)
        # Said by the client for the model: without REPLY the message before it would be the last.
        return RecordContent(_note("task_complete", item), Is.REPLY | Is.ENDS)

    def _turn_abort(self, item: Item) -> RecordContent:
        self._state.open, self._state.aborted = False, True
        why = word(item.get("reason")) or "interrupted"
        by_user = Is.BY_USER if why == "interrupted" else 0
        return RecordContent(_note(f"turn_aborted: {why}", item), Is.INTERRUPTS | by_user)

    def _rollback(self, item: Item) -> RecordContent:
        content = _book_entry("thread_rolled_back", item)
        turns = item.get("num_turns")
        huge = isinstance(turns, int) and turns > _MAX_TURNS
        content.undo = Undo(turns=_MAX_TURNS if huge else count(turns))
        return content

    def _error(self, item: Item) -> RecordContent:
        short = one_line(word(item.get("message"))) or "error"
        return RecordContent((Block("error", "system", short, item),), Is.INTERNAL)

    def _rename(self, item: Item) -> RecordContent:
        content = _book_entry("thread_name_updated", item)
        name = item.get("thread_name")
        content.about = {"title:custom": name} if isinstance(name, str) else {}
        return content

    def _collab(self, item: Item) -> RecordContent:
        content = _book_entry("collab_agent_spawn_end", item)
        call = word(item.get("call_id")) or None
        content.edges = _child(item.get("new_thread_id"), "collab_agent_spawn_end", call)
        return content

    def _activity(self, item: Item) -> RecordContent:
        content = _book_entry("sub_agent_activity", item)
        content.edges = _child(item.get("agent_thread_id"), "sub_agent_activity", None)
        return content

    def _item_completion(self, record: Item) -> RecordContent:
        item = record.get("item")
        if not isinstance(item, dict):
            return _book_entry("item_completed", record)
        what = word(item.get("type"))
        content = _book_entry(f"item_completed/{what}", record)
        if what in ("EnteredReviewMode", "ExitedReviewMode"):
            self._state.reviews = True
        elif what in ("CommandExecution", "FileChange", "McpToolCall"):
            content.statuses = items.call_statuses(item)
        elif what == "CollabAgentToolCall" and item.get("tool") == "spawn_agent":
            call = word(item.get("id")) or None
            content.edges = tuple(
                edge
                for child in items.parts(item.get("receiver_thread_ids"))
                for edge in _child(child, "CollabAgentToolCall", call)
            )
        elif what == "SubAgentActivity":
            content.edges = _child(item.get("agent_thread_id"), "SubAgentActivity", None)
        return content

    # -- bills --------------------------------------------------------------------------

    def _bill(self, item: Item) -> RecordContent:
        content = RecordContent(_note("token_usage_record", item))
        usage, thread = usage_of(item.get("usage")), word(item.get("thread_id"))
        response = word(item.get("response_id"))
        if usage is not None:
            content.usage = usage
            content.usage_key = f"{thread or self._session}:{response}" if response else None
            if not thread or self._is_own(thread):
                self._state.bills = True
        content.name = ("token_usage_record", thread, response) if response else None
        return content

    def _token_count(self, item: Item) -> RecordContent:
        """A running total. Whoever tells single bills need not be added up once more."""
        content = _book_entry("token_count", item)
        info = item.get("info")
        if not isinstance(info, dict):
            return content
        total = usage_of(info.get("total_token_usage"))
        # By its numbers: who copies it may write a field more.
        content.name = ("token_count", repr(total))
        if total is not None and not self._state.bills:
            more = self._more(total, usage_of(info.get("last_token_usage")) or Usage())
            if more.total:
                self._state.spent = derived_events.add_usage(self._state.spent, more)
                content.running, content.flags = self._state.spent, 0
        return content

    def _more(self, total: Usage, last: Usage) -> Usage:
        """What a total adds to the one before it in this file.

        A total that falls, or that equals the last response, has started again. The first one of
        a file that goes on from another holds what that one spent.
        """
        state, before = self._state, self._state.total
        state.total = total
        if before is None and state.based:
            return last if state.replied else Usage()
        if before is None or total == before:
            return total if before is None else Usage()
        again = total.total < before.total or (
            total == last and derived_events.subtract_usage(total, before) != last
        )
        return total if again else derived_events.subtract_usage(total, before)


_NEW_EVENT_NAMES = {"turn_started": "task_started", "turn_complete": "task_complete"}
_EVENTS: dict[str, Callable[[RolloutReader, Item], RecordContent]] = {
    "task_started": RolloutReader._turn_start,  # noqa: SLF001 - the table of the class above
    "task_complete": RolloutReader._turn_end,  # noqa: SLF001
    "turn_aborted": RolloutReader._turn_abort,  # noqa: SLF001
    "entered_review_mode": RolloutReader._review,  # noqa: SLF001
    "exited_review_mode": RolloutReader._review,  # noqa: SLF001
    "token_count": RolloutReader._token_count,  # noqa: SLF001
    "thread_rolled_back": RolloutReader._rollback,  # noqa: SLF001
    "error": RolloutReader._error,  # noqa: SLF001
    "stream_error": RolloutReader._error,  # noqa: SLF001
    "thread_name_updated": RolloutReader._rename,  # noqa: SLF001
    "collab_agent_spawn_end": RolloutReader._collab,  # noqa: SLF001
    "sub_agent_activity": RolloutReader._activity,  # noqa: SLF001
}


# -- reading foreign values -----------------------------------------------------------------


def _child(session: JSON, how: str, call: str | None) -> tuple[Edge, ...]:
    if not isinstance(session, str) or not session:
        return ()
    return (Edge("subagent", session, how, call=call, child=True),)


def _with_name(content: RecordContent, name: tuple[str, ...]) -> RecordContent:
    content.name = name
    return content


def _words(item: Item) -> tuple[str, ...]:
    """What a message is known by: its role and all it says, without ids and times."""
    texts = []
    for part in items.parts(item.get("content")):
        inner = part.get("text", part.get("image_url")) if isinstance(part, dict) else part
        texts.append(inner if isinstance(inner, str) else _encode(inner))
    return ("message", word(item.get("role")), *texts)


def _encode(value: JSON) -> str:
    return value if isinstance(value, str) else items.encode_json(value)


def _digest(name: tuple[str, ...]) -> str:
    joined = "\0".join(name).encode("utf-8", "surrogatepass")
    return blake2b(joined, digest_size=12).hexdigest()
