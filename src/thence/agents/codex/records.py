"""The records of one rollout as facts: what every line says by itself.

Text stands in `response_item`s; events that repeat it are book-keeping and give no more than how
calls went. Bills are `token_usage_record`s of the own thread. Older clients write running totals
only, which repeat, start again when a session is resumed, and in a fork begin with what its
parent spent: here they become the total of this very file, which only grows. What a resume must
know of earlier lines is small and travels in the carry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from hashlib import blake2b

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
    version,
)
from thence.agents.files import remembered
from thence.format import joins
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

BILLS_SINCE = (0, 157)
"""The first version that writes a bill for every response."""

_KIN = 32  # sessions that one log may name as owners of its first lines
_TURNS = 1 << 31  # more than any log holds
_SPAWNS = 64  # calls of which the child is still awaited; more are forgotten
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
_SIGNED = frozenset({
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


class State(msgspec.Struct, omit_defaults=True):
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


class Said(msgspec.Struct):
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
    told: tuple[CallStatus, ...] = ()
    about: dict[str, JSON] = {}
    mine: bool = False
    """It is the first line, which no other session owns."""


def _note(what: str, payload: JSON, role: str = "system") -> tuple[Block, ...]:
    return (Block("lifecycle", role, what, payload),)


def _kept_books(what: str, item: Item) -> Said:
    """A record that is not part of what was said. What is encrypted in it is left out."""
    shown = {k: v for k, v in item.items() if k != "encrypted_content"}
    return Said(_note(what, shown), Is.INTERNAL)


class Rollout:
    """The facts of one file."""

    def __init__(self, source: Source, file: File, mark: Mark) -> None:
        self._session = source.session
        self._file = file
        self._generation = mark.generation
        self._segment = "_" in file.path.rpartition("/")[2]
        try:
            self._state = msgspec.convert(mark.carry or {}, State)
        except msgspec.ValidationError:
            self._state = State()

    def carry(self) -> JSON:
        """Give what later lines must know."""
        return msgspec.to_builtins(self._state)

    # -- one record ---------------------------------------------------------------------

    def facts(self, found: RawRecord) -> Iterator[Fact]:
        """Give the facts of one line."""
        value = found.value
        item, kind = value.get("payload"), word(value.get("type"))
        if isinstance(item, dict) and kind:
            what = word(item.get("type"))
            name = f"{kind}/{what}" if what else kind
            said = self._wrapped(kind, what, item, found)
        else:
            item = value
            name = kind or ("session_meta" if is_bare_head(value) else "state")
            said = self._bare(kind, value, found)
        ordinal = value.get("ordinal")
        ordinal = ordinal if isinstance(ordinal, int) and not isinstance(ordinal, bool) else None
        origin = self._origin(name, item, ordinal, said)
        if origin is None and found.place.line <= self._state.handed and not said.mine:
            origin = self._state.copies
        yield self._fact(found, said, name, origin, ordinal)
        if origin is not None and name == "session_meta":
            # What a copied line says is its owner's; that it stands here is ours to tell.
            yield self._about(found, said, origin)

    def _fact(
        self, found: RawRecord, said: Said, name: str, origin: str | None, ordinal: int | None
    ) -> Fact:
        state, place = self._state, found.place
        summed = said.flags & Is.SUMMARY
        digest = _digest(said.name) if said.name else ""
        node = Node(
            f"{self._file.key}#{digest}" if digest else line_name(self._file.key, found.raw),
            PREVIOUS,
            said.flags,
            () if summed else calls_of(said.blocks),
            () if summed else answers_of(said.blocks),
            undo=said.undo,
        )
        copied = state.turn if said.name and state.turn else None
        return Fact(
            node,
            name,
            word(found.value.get("timestamp")) or None,
            said.blocks,
            file=self._file.key,
            channel=self._file.channel,
            generation=self._generation,
            line=place.line,
            offset=place.offset,
            ordinal=ordinal,
            model=state.model if said.flags & Is.REPLY or said.usage or said.running else None,
            usage=said.usage,
            usage_key=said.usage_key,
            running=said.running,
            bill_due=said.bill_due,
            origin=origin,
            # The same words in the same turn: turns have ids that no other session makes.
            copy_key=f"{copied}#{digest}" if copied else None,
            base=said.base,
            edges=() if origin else said.edges,
            told=said.told,
            about=said.about,
        )

    def _about(self, found: RawRecord, said: Said, owner: str) -> Fact:
        """Tell that a log begins with another session's records.

        Unless the writer says where they end, only the owner's log can tell.
        """
        return Fact(
            Node(f"{line_name(self._file.key, found.raw)}+"),
            "session_meta",
            file=self._file.key,
            channel=self._file.channel,
            generation=self._generation,
            line=found.place.line,
            offset=found.place.offset,
            edges=tuple(edge for edge in said.edges if edge.session == owner),
            about={} if self._state.until is not None else {COPIES_OF: owner},
        )

    def _origin(self, name: str, item: Item, ordinal: int | None, said: Said) -> str | None:
        """Whose record it is, when it is not ours."""
        state = self._state
        if said.origin is not None or said.mine:
            return said.origin
        if state.until is not None:
            if ordinal is not None and ordinal < state.until:
                return state.copies
            state.until, state.open = None, False
        thread = item.get("thread_id")
        if isinstance(thread, str) and name in _SIGNED and not self._is_own(thread):
            return thread
        return None

    def _is_own(self, thread: str) -> bool:
        return remembered(thread) in (self._session, self._state.own)

    def _wrapped(self, kind: str, what: str, item: Item, found: RawRecord) -> Said:
        if kind == "response_item":
            return self._item(what, item, bare=False, more=found.value.get("metadata"))
        if kind == "event_msg":
            return self._event(what, item)
        if kind == "session_meta":
            return self._meta(item, found)
        if kind == "turn_context":
            return self._context(item)
        if kind == "token_usage_record":
            return self._bill(item)
        if kind == "compacted":
            return self._compacted(item)
        if kind == "thence_handoff":
            return self._handed(item)
        return _kept_books(kind, item)

    def _bare(self, kind: str, value: Item, found: RawRecord) -> Said:
        if not kind and is_bare_head(value):
            return self._meta(value, found)
        if kind in _BARE or (not kind and "role" in value):
            return self._item(kind, value, bare=True)
        return _kept_books(kind or word(value.get("record_type")) or "record", value)

    def _handed(self, item: Item) -> Said:
        """Read where a session comes from that was handed over: the lines up to one are copies."""
        said = _kept_books("thence_handoff", item)
        said.mine = True
        said.edges = handed_over_edges(item.get("from"), item.get("event"))
        if said.edges:
            self._state.copies = said.edges[0].session
            self._state.handed = count(item.get("lines"))
        return said

    # -- the session --------------------------------------------------------------------

    def _meta(self, meta: Item, found: RawRecord) -> Said:
        said = _kept_books("session_meta", meta)
        state, name = self._state, word(meta.get("id"))
        said.name = ("session_meta", name, word(meta.get("timestamp")))
        if state.own is None and (found.place.line == 1 or remembered(name) in ("", self._session)):
            self._own_meta(meta, said)
        elif not name or self._is_own(name):
            said.about = about_session(meta)
        else:
            said.origin = state.copies = name
            if remembered(name) not in state.kin and len(state.kin) < _KIN:
                state.kin.append(remembered(name))
                said.edges = (Edge("fork", name, "a copy of its first line"),)
        return said

    def _own_meta(self, meta: Item, said: Said) -> None:
        state = self._state
        said.mine = True
        state.own = remembered(word(meta.get("id"))) or self._session
        state.bills = version(meta.get("cli_version")) >= BILLS_SINCE
        said.edges = self._kin(meta)
        state.kin = [remembered(edge.session) for edge in said.edges]
        start = meta.get("subagent_history_start_ordinal")
        if isinstance(start, int) and start > 0 and said.edges:
            state.until, state.copies = start, said.edges[0].session
        said.base = base_of(meta)
        state.based = said.base is not None
        said.about = about_session(meta)

    def _kin(self, meta: Item) -> tuple[Edge, ...]:
        edges = ties(meta, own=(self._session, self._state.own or ""), segment=self._segment)
        return tuple(edge for edge in edges if not self._is_own(edge.session))

    def _context(self, item: Item) -> Said:
        state = self._state
        state.model = word(item.get("model")) or state.model
        state.turn = word(item.get("turn_id")) or state.turn
        said = _named(
            _kept_books("turn_context", item), ("turn_context", word(item.get("turn_id")))
        )
        cwd = item.get("cwd")
        said.about = {"cwd": cwd} if isinstance(cwd, str) and cwd else {}
        return said

    # -- what was said ------------------------------------------------------------------

    def _item(self, what: str, item: Item, *, bare: bool, more: JSON = None) -> Said:
        if what == "message" or (not what and "role" in item):
            said = self._message(item, more)
        elif what == "reasoning":
            block = items.thought(item)
            said = Said((block,), Is.REPLY, ("reasoning", _encoded(block.payload)))
        elif what in items.CALLS or what in items.SERVED:
            said = self._call(item)
        elif what in items.RESULTS:
            block = items.result_block(item)
            # Known by what was written, so that its id stays what it is.
            name = (what, block.call or "", _encoded(block.payload))
            said = Said((items.decoded_result(block),), 0, name)
            said.edges = self._spawned(block)
        elif what == "agent_message":
            said = Said(items.mail(item), 0)
        else:
            said = _kept_books(what or "response_item", item)
        if said.flags & Is.REPLY:
            self._state.replied = True
            said.bill_due = self._due(item, bare=bare)
        return said

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

    def _message(self, item: Item, more: JSON) -> Said:
        state, role = self._state, item.get("role")
        if role == "assistant":
            sums_up = isinstance(more, dict) and more.get("compaction_output") is True
            blocks = items.assistant_blocks(item, compacts=sums_up)
            flags = Is.REPLY | (0 if state.turns else Is.ENDS)
            state.open = state.open and state.turns
            return Said(blocks or _note("message", item), flags, _words(item))
        if role != "user":
            return _named(_kept_books("message", item), _words(item))
        blocks, human = items.user_blocks(item)
        said = Said(blocks or _note("message", item), 0, _words(item))
        if human is not None:
            self._prompted(said)
        return said

    def _prompted(self, said: Said) -> None:
        """Take a message for a human's, unless Codex itself says it again.

        After an interruption it may write the first prompt once more, before any new turn.
        """
        state, name = self._state, _digest(said.name or ())
        if state.aborted and not state.open and name == state.first and state.turns:
            said.blocks = tuple(
                msgspec.structs.replace(block, kind="lifecycle") for block in said.blocks
            )
            return
        state.first = state.first or name
        state.open = True
        said.flags = Is.PROMPT

    def _call(self, item: Item) -> Said:
        block = items.call_block(item)
        self._state.open = True
        if block.tool == "spawn_agent" and block.call is not None:
            self._state.spawns = [*self._state.spawns, remembered(block.call)][-_SPAWNS:]
        name = (word(item.get("type")), block.call or "", block.tool or "", _encoded(block.payload))
        return Said((block,), Is.REPLY, name)

    def _spawned(self, result: Block) -> tuple[Edge, ...]:
        """Tie the parent to a child that the result of a spawn names."""
        state, call = self._state, result.call
        if call is None or remembered(call) not in state.spawns:
            return ()
        state.spawns = [one for one in state.spawns if one != remembered(call)]
        said = result.payload
        if not isinstance(said, str) or not said.startswith("{"):
            return ()
        try:
            child = msgspec.json.decode(said)["agent_id"]
        except (ValueError, LookupError, RecursionError):
            return ()
        return _child(child, "the result of its spawn", call)

    def _compacted(self, item: Item) -> Said:
        blocks = items.replacement(item)
        if not any(block.role != "system" for block in blocks):
            return _kept_books("compacted", item)
        return Said(blocks, Is.SUMMARY, ("compacted", word(item.get("message"))))

    # -- events -------------------------------------------------------------------------

    def _event(self, what: str, item: Item) -> Said:
        what = _RENAMED.get(what, what)
        if what == "item_completed":
            return self._completed(item)
        handler = _EVENTS.get(what)
        said = handler(self, item) if handler is not None else _kept_books(what, item)
        if what in _TURN_EVENTS:
            said.name = (what, word(item.get("turn_id")))
        elif what.endswith(("_end", "_response")) and "call_id" in item:
            said.told = items.told(item)
        return said

    def _started(self, item: Item) -> Said:
        """A turn begins; one that is still open was cut off, by whatever killed its process."""
        state = self._state
        cut = state.open and state.copies is None
        state.turn = word(item.get("turn_id")) or state.turn
        state.open = state.turns = True
        state.aborted = state.reviews = False
        said = _kept_books("task_started", item)
        if cut:
            said.flags = Is.INTERRUPTS
            said.blocks = _note("task_started: the turn before was cut off", item)
        return said

    def _reviewed(self, item: Item) -> Said:
        self._state.reviews = True
        return _kept_books(word(item.get("type")) or "review", item)

    def _ended(self, item: Item) -> Said:
        self._state.open = False
        error = item.get("error")
        if isinstance(error, dict):
            short = one_line(word(error.get("message"))) or "error"
            return Said((Block("error", "system", short, error),), Is.REPLY | Is.ENDS)
        # Said by the client for the model: without REPLY the message before it would be the last.
        return Said(_note("task_complete", item), Is.REPLY | Is.ENDS)

    def _aborted(self, item: Item) -> Said:
        self._state.open, self._state.aborted = False, True
        why = word(item.get("reason")) or "interrupted"
        by_user = Is.BY_USER if why == "interrupted" else 0
        return Said(_note(f"turn_aborted: {why}", item), Is.INTERRUPTS | by_user)

    def _rolled_back(self, item: Item) -> Said:
        said = _kept_books("thread_rolled_back", item)
        turns = item.get("num_turns")
        huge = isinstance(turns, int) and turns > _TURNS
        said.undo = Undo(turns=_TURNS if huge else count(turns))
        return said

    def _failed(self, item: Item) -> Said:
        short = one_line(word(item.get("message"))) or "error"
        return Said((Block("error", "system", short, item),), Is.INTERNAL)

    def _renamed(self, item: Item) -> Said:
        said = _kept_books("thread_name_updated", item)
        name = item.get("thread_name")
        said.about = {"title:custom": name} if isinstance(name, str) else {}
        return said

    def _collab(self, item: Item) -> Said:
        said = _kept_books("collab_agent_spawn_end", item)
        call = word(item.get("call_id")) or None
        said.edges = _child(item.get("new_thread_id"), "collab_agent_spawn_end", call)
        return said

    def _activity(self, item: Item) -> Said:
        said = _kept_books("sub_agent_activity", item)
        said.edges = _child(item.get("agent_thread_id"), "sub_agent_activity", None)
        return said

    def _completed(self, record: Item) -> Said:
        item = record.get("item")
        if not isinstance(item, dict):
            return _kept_books("item_completed", record)
        what = word(item.get("type"))
        said = _kept_books(f"item_completed/{what}", record)
        if what in ("EnteredReviewMode", "ExitedReviewMode"):
            self._state.reviews = True
        elif what in ("CommandExecution", "FileChange", "McpToolCall"):
            said.told = items.told(item)
        elif what == "CollabAgentToolCall" and item.get("tool") == "spawn_agent":
            call = word(item.get("id")) or None
            said.edges = tuple(
                edge
                for child in items.parts(item.get("receiver_thread_ids"))
                for edge in _child(child, "CollabAgentToolCall", call)
            )
        elif what == "SubAgentActivity":
            said.edges = _child(item.get("agent_thread_id"), "SubAgentActivity", None)
        return said

    # -- bills --------------------------------------------------------------------------

    def _bill(self, item: Item) -> Said:
        said = Said(_note("token_usage_record", item))
        usage, thread = usage_of(item.get("usage")), word(item.get("thread_id"))
        response = word(item.get("response_id"))
        if usage is not None:
            said.usage = usage
            said.usage_key = f"{thread or self._session}:{response}" if response else None
            if not thread or self._is_own(thread):
                self._state.bills = True
        said.name = ("token_usage_record", thread, response) if response else None
        return said

    def _counted(self, item: Item) -> Said:
        """A running total. Whoever tells single bills need not be added up once more."""
        said = _kept_books("token_count", item)
        info = item.get("info")
        if not isinstance(info, dict):
            return said
        total = usage_of(info.get("total_token_usage"))
        # By its numbers: who copies it may write a field more.
        said.name = ("token_count", repr(total))
        if total is not None and not self._state.bills:
            more = self._more(total, usage_of(info.get("last_token_usage")) or Usage())
            if more.total:
                self._state.spent = joins.add_usage(self._state.spent, more)
                said.running, said.flags = self._state.spent, 0
        return said

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
            total == last and joins.subtract_usage(total, before) != last
        )
        return total if again else joins.subtract_usage(total, before)


_RENAMED = {"turn_started": "task_started", "turn_complete": "task_complete"}
_EVENTS: dict[str, Callable[[Rollout, Item], Said]] = {
    "task_started": Rollout._started,  # noqa: SLF001 - the table of the class above
    "task_complete": Rollout._ended,  # noqa: SLF001
    "turn_aborted": Rollout._aborted,  # noqa: SLF001
    "entered_review_mode": Rollout._reviewed,  # noqa: SLF001
    "exited_review_mode": Rollout._reviewed,  # noqa: SLF001
    "token_count": Rollout._counted,  # noqa: SLF001
    "thread_rolled_back": Rollout._rolled_back,  # noqa: SLF001
    "error": Rollout._failed,  # noqa: SLF001
    "stream_error": Rollout._failed,  # noqa: SLF001
    "thread_name_updated": Rollout._renamed,  # noqa: SLF001
    "collab_agent_spawn_end": Rollout._collab,  # noqa: SLF001
    "sub_agent_activity": Rollout._activity,  # noqa: SLF001
}


# -- reading foreign values -----------------------------------------------------------------


def _child(session: JSON, how: str, call: str | None) -> tuple[Edge, ...]:
    if not isinstance(session, str) or not session:
        return ()
    return (Edge("subagent", session, how, call=call, child=True),)


def _named(said: Said, name: tuple[str, ...]) -> Said:
    said.name = name
    return said


def _words(item: Item) -> tuple[str, ...]:
    """What a message is known by: its role and all it says, without ids and times."""
    said = []
    for part in items.parts(item.get("content")):
        inner = part.get("text", part.get("image_url")) if isinstance(part, dict) else part
        said.append(inner if isinstance(inner, str) else _encoded(inner))
    return ("message", word(item.get("role")), *said)


def _encoded(value: JSON) -> str:
    return value if isinstance(value, str) else items.encoded(value)


def _digest(name: tuple[str, ...]) -> str:
    joined = "\0".join(name).encode("utf-8", "surrogatepass")
    return blake2b(joined, digest_size=12).hexdigest()
