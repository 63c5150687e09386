"""One session read back: its bytes become events, graph, state and messages. Pure.

Two passes (SPEC B-5). The first folds the full state. If the history itself cannot be rebuilt
that way, the second takes the messages alone, from whatever lines still hold one, and `degraded`
says so. Whatever was found on the way (skipped lines, a newer schema, mended links) is listed;
the bytes are never touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from thence.format import codec, repair, schema
from thence.format.graph import Graph, State
from thence.format.nodes import Is, Node, Span
from thence.format.records import (
    INTERNAL,
    JSON,
    MESSAGES,
    PAYLOADS,
    Boundary,
    Event,
    Header,
    Notice,
    Skipped,
    blocks,
    is_permission,
    parse_payload,
    text_of,
    word,
)
from thence.format.state import Domains
from thence.format.state import SessionState as DomainState
from thence.format.turn import TurnNow, running_calls, turn_of

if TYPE_CHECKING:
    from thence.format.todos import Step, Todo

_ROLE = {"user": Is.PROMPT, "assistant": Is.REPLY, "summary": Is.SUMMARY}
_BOOKS = {
    "terminator": Is.INTERNAL | Is.CLOSES,
    "waiting": Is.INTERNAL | Is.WAITS,
    "interrupted": Is.INTERRUPTS,
}


def node_of(event: Event) -> Node:
    """Make the light node of one of our own events."""
    kind = event.type
    if kind in _ROLE:
        return _message_node(event, _ROLE[kind])
    if kind == "boundary":
        return _boundary_node(event)
    if kind == "tip":
        to = event.fields.get("to")
        tip = to if isinstance(to, str) else None
        return Node(event.uuid, event.prev_uuid, Is.INTERNAL, tip=tip)
    flags = _BOOKS.get(kind, 0)
    if kind == "interrupted" and event.fields.get("by", "user") == "user":
        flags |= Is.BY_USER
    if kind in INTERNAL or is_permission(kind):
        flags |= Is.INTERNAL
    return Node(event.uuid, event.prev_uuid, flags)


def _message_node(event: Event, flags: int) -> Node:
    fields = event.fields
    content = fields.get("content")
    if not isinstance(content, list):
        ends = Is.ENDS if flags & Is.REPLY and fields.get("stop_reason") != "tool_use" else 0
        return Node(event.uuid, event.prev_uuid, flags | ends)
    calls: list[str] = []
    answers: list[str] = []
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_use" and isinstance(block.get("id"), str):
            calls.append(block["id"])
        elif kind == "tool_result" and isinstance(block.get("tool_use_id"), str):
            answers.append(block["tool_use_id"])
    if answers:
        flags &= ~Is.PROMPT
    if flags & Is.REPLY and not calls and fields.get("stop_reason") != "tool_use":
        flags |= Is.ENDS
    if fields.get("synthetic") is True:
        flags |= Is.SYNTHETIC
    response = fields.get("id") if flags & Is.REPLY else None
    return Node(
        event.uuid,
        event.prev_uuid,
        flags,
        tuple(calls),
        tuple(answers),
        response if isinstance(response, str) else None,
    )


def _boundary_node(event: Event) -> Node:
    """Link a boundary. One that is malformed is book-keeping and patches nothing."""
    payload = parse_payload(event)
    span = Span("")  # leads nowhere, and is noted as a boundary that was not applied
    if isinstance(payload, Boundary) and payload.anchor_uuid == payload.summary_event_uuid:
        span = Span(payload.anchor_uuid, payload.head_uuid, payload.tail_uuid)
    return Node(event.uuid, event.prev_uuid, Is.INTERNAL, span=span)


class Transcript:
    """A session as its bytes tell it. Everything is worked out once, when first asked for."""

    def __init__(
        self,
        decoded: codec.Decoded,
        *,
        version: int = schema.CURRENT,
        notices: Sequence[Notice] = (),
        domains: Domains | None = None,
    ) -> None:
        self.events = decoded.events
        self.places = decoded.places
        self.skipped: list[Skipped] = decoded.skipped
        self.torn = decoded.torn
        self.end = decoded.end
        self.version = version
        self.notices = list(notices)
        self._domains = domains or Domains()

    @classmethod
    def read(cls, data: bytes, *, domains: Domains | None = None) -> Transcript:
        """Read a whole session from its bytes. No bytes make this raise."""
        version, notices = _version(data)
        decoded = codec.decode(data, upcast=schema.upcaster(version))
        return cls(decoded, version=version, notices=notices, domains=domains)

    @cached_property
    def header(self) -> Header | None:
        """The session's header; None when it was lost or makes no sense."""
        for event in self.events[:1]:
            payload = parse_payload(event) if event.type == "header" else None
            return payload if isinstance(payload, Header) else None
        return None

    @cached_property
    def graph(self) -> Graph:
        """All events, linked."""
        return Graph([node_of(event) for event in self.events])

    @property
    def states(self) -> list[State]:
        """One state per event, by place."""
        return self.graph.states

    def chain(self, to: int | None = None) -> list[Event]:
        """Events of the path to one event (the live end by default), internal ones included."""
        return [self.events[i] for i in self.graph.chain(to)]

    def line(self) -> list[Event]:
        """Events of the live line as they were written, compactions not applied."""
        return [self.events[i] for i in self.graph.chain(boundaries=False)]

    @cached_property
    def state(self) -> DomainState:
        """All domains as of the live end. Of a boundary's own state what holds is taken."""
        places = self.graph.chain(boundaries=False)
        if self.events and self.events[0].type == "header" and 0 not in places[:1]:
            places = [0, *places]
        line = [self.events[i] for i in places]
        boundary = self.graph.boundary()
        if boundary is None:
            return self._domains.fold(line, self.chain())
        snapshot = self.events[boundary].fields.get("state")
        since = places.index(boundary) + 1
        return self._domains.fold(line, self.chain(), snapshot=snapshot, since=since)

    @cached_property
    def degraded(self) -> str | None:
        """Why only the messages could be read; None when the full state could."""
        return self.state.failed.get("messages")

    def messages(self, orphans: repair.Orphans = "answer") -> repair.Mended:
        """Return the live chain as messages that the API accepts."""
        reasons = repair.no_result_yet(running_calls(self.graph, self.turn()))
        if self.degraded is None:
            fields = (event.fields for event in self.chain() if event.type in MESSAGES)
            return repair.mend(fields, orphans, reasons)
        return repair.mend(
            (m for event in self.chain() if (m := _lenient(event))), orphans, reasons
        )

    @cached_property
    def pending(self) -> list[Todo]:
        """Promises of the live line, compacted parts included, that nobody kept yet."""
        from thence.format.todos import pending_todos  # its patterns take long to be made

        return pending_todos(steps(self.line()))

    def turn(self, *, alive: bool | None = None) -> TurnNow:
        """Tell where the last turn stands."""
        return turn_of(self.graph, torn=self.torn, alive=alive)

    def counts(self) -> dict[str, int]:
        """How many events ended in each state."""
        out = {state.value: 0 for state in State}
        for state in self.states:
            out[state.value] += 1
        return out

    def report(self) -> list[Notice]:
        """All that a reader should be told: what a crash left half done, what was mended."""
        out = list(self.notices)
        if self.events and self.events[0].type == "header" and self.header is None:
            out.append(Notice("malformed header", self.events[0].uuid))
        out += [Notice(f"{b.what} link", self.events[b.at].uuid) for b in self.graph.breaks]
        summaries = {e.uuid for e in self.events if e.type == "summary"}
        committed = {node.span.anchor for node in self.graph.nodes if node.span}
        out += [Notice("half a compaction", uuid) for uuid in sorted(summaries - committed)]
        out += [Notice("subagent never ended", agent) for agent in self._lost_agents()]
        out += [Notice("state lost", f"{n}: {why}") for n, why in self.state.failed.items()]
        if self.events and not any(e.type == "terminator" for e in self.events):
            out.append(Notice("not closed", "no terminator, so still running or crashed"))
        return out

    def _lost_agents(self) -> list[str]:
        """Subagents that were started and of which nothing more was heard."""
        status: dict[str, JSON] = {}
        for event in self.events:
            if event.type == "sidechain":
                status[word(event.fields.get("agent_id"))] = event.fields.get("completion_status")
        return [agent for agent, ended in status.items() if ended in (None, "running")]


def _version(data: bytes) -> tuple[int, list[Notice]]:
    """Find the version of a session in its first line, or guess it from the first good one."""
    for record in codec.objects(data[: 1 << 20]):
        if isinstance(record, Skipped):
            continue
        if record.value.get("type") == "header":
            version = schema.version_of(record.value)
            notice = schema.notice(version)
            return version, [notice] if notice else []
        return schema.guess(record.value), [Notice("no header", "the first line is no header")]
    return schema.CURRENT, []


def _lenient(event: Event) -> dict[str, JSON] | None:
    """Find a message in an event of any shape: in its payload, or one level below.

    Not in events that are known to be something else, and never in one about permissions.
    """
    if (event.type in PAYLOADS and event.type not in MESSAGES) or is_permission(event.type):
        return None
    for fields in (event.fields, event.fields.get("message")):
        if isinstance(fields, dict) and fields.get("content"):
            role = fields.get("role") or ("assistant" if event.type == "assistant" else "user")
            return {"role": role, "content": fields["content"], "id": fields.get("id")}
    return None


def steps(chain: Sequence[Event]) -> list[Step]:
    """Return what was said and done on a chain, for whoever looks for open promises."""
    from thence.format.todos import Step

    results = {
        word(block.get("tool_use_id")): block
        for event in chain
        if event.type in MESSAGES
        for block in blocks(event.fields.get("content"))
        if block.get("type") == "tool_result"
    }
    out: list[Step] = []
    for event in chain:
        if event.type == "todos":  # a harness keeps the list itself
            listed = {"todos": event.fields.get("todos")}
            out.append(Step(event.uuid, "assistant", tool="TodoWrite", input=listed))
        if event.type not in MESSAGES:
            continue
        content = event.fields.get("content")
        if text := text_of(content):
            role = "assistant" if event.type == "assistant" else "user"
            out.append(Step(event.uuid, role, text))
        out += [
            _call_step(event.uuid, block, results.get(word(block.get("id"))))
            for block in blocks(content)
            if block.get("type") == "tool_use"
        ]
    return out


def _call_step(uuid: str, call: dict[str, JSON], result: dict[str, JSON] | None) -> Step:
    from thence.format.todos import Step

    return Step(
        uuid,
        "assistant",
        tool=word(call.get("name")),
        input=call.get("input"),
        result=result.get("content") if result else None,
        failed=result is None or result.get("is_error") is True,
    )
