"""The events of one log of Copilot CLI as facts.

The link of an event is only the line before it, so lines follow one another; those of a subagent
are a channel of their own, by the agent's id, or in older logs by the call that started it. Each
request is billed by a `session.usage_record`. Logs of older versions have totals only, written
when the client shuts down, over all of its runs: what each adds to the one before is billed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any

from thence.agents import File, Mark, Source
from thence.agents.records import (
    LineReader,
    Record,
    answer,
    call,
    fields,
    injected_text,
    integer_of,
    moment,
    note,
    objects,
    parse_arguments,
    prompt,
    result,
    text,
    thought,
    unindexed_note,
    usage_with_cache,
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
from thence.format.nodes import PREVIOUS, Is, Node
from thence.format.normal import one_line
from thence.format.records import Usage, count, word

COMPACTION = "the compaction request is not in the log"

_BULKY_TYPES = frozenset({"system.message", "hook.start", "hook.end", "session.binary_asset"})
_MAX_REQUEST_IDS = 16  # ids of the last requests, to know the one that made a summary
_USAGE_NAMES = (
    ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens"),
    ("input", "output", "cachedInput", "cacheWrite"),
)


def is_record(value: Record) -> bool:
    """Return whether an object on a damaged line is an event and no part of one."""
    return isinstance(value.get("type"), str) and isinstance(value.get("data"), dict)


class CopilotEvents(LineReader):
    """The events of one log."""

    carries = ("bills", "runs", "thought", "requests")
    """How the log is billed, and the last thought and requests."""

    def __init__(self, source: Source, file: File, mark: Mark) -> None:
        super().__init__(source, file, mark)
        self._bills = self._carried.get("bills") is True
        self._runs = count(self._carried.get("runs"))
        self._thought = word(self._carried.get("thought"))
        requests = self._carried.get("requests")
        self._requests = [r for r in requests if isinstance(r, str)] if requests else []
        self._makers: dict[str, Callable[[RawRecord, Record, Record], list[Fact]]] = {
            "session.start": self._begin,
            "session.resume": self._begin,
            "session.context_changed": self._begin,
            "user.message": self._user,
            "assistant.message": self._assistant,
            "assistant.reasoning": self._reasoning,
            "tool.execution_complete": self._result,
            "session.usage_record": self._usage,
            "session.shutdown": self._shutdown,
            "session.compaction_complete": self._compaction,
            "session.context_cleared": self._context_reset,
            "session.error": self._error,
            "abort": self._abort,
            "subagent.started": self._subagent,
        }

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Return the facts of one event."""
        data = fields(entry.value.get("data"))
        maker = self._makers.get(word(entry.value.get("type")), self._other)
        return maker(entry, entry.value, data)

    # -- frame --------------------------------------------------------------------------

    def _node(self, entry: RawRecord, event: Record, flags: int = 0, **more: Any) -> Node:
        return Node(text(event.get("id")) or self._name(entry), PREVIOUS, flags, **more)

    def _event(
        self, entry: RawRecord, event: Record, node: Node, *parts: Block, **more: Any
    ) -> Fact:
        if tie := handed_over_edges(event.get("handedFrom"), None):
            more["origin"] = tie[0].session  # counted where it was said
        return self._fact(
            entry,
            node,
            word(event.get("type")),
            ts=moment(event.get("timestamp")),
            blocks=parts,
            channel=_channel(event),
            **more,
        )

    def _internal_event(
        self, entry: RawRecord, event: Record, line: str, flags: int = Is.INTERNAL, **more: Any
    ) -> list[Fact]:
        """Return an event that is book-keeping."""
        node = self._node(entry, event, flags)
        make = unindexed_note if word(event.get("type")) in _BULKY_TYPES else note
        return [self._event(entry, event, node, make(line, event.get("data")), **more)]

    # -- conversation -------------------------------------------------------------------

    def _user(self, entry: RawRecord, event: Record, data: Record) -> list[Fact]:
        content = word(data.get("content"))
        is_human = not data.get("source") and not data.get("isAutopilotContinuation")
        is_human = is_human and _channel(event) == "main"
        parts = [prompt(content) if is_human else injected_text(content)]
        if attached := objects(data.get("attachments")):
            parts.append(note(f"{len(attached)} attachments", attached))
        node = self._node(entry, event, Is.PROMPT if is_human else 0)
        return [self._event(entry, event, node, *parts)]

    def _assistant(self, entry: RawRecord, event: Record, data: Record) -> list[Fact]:
        parts: list[Block] = []
        reasoning = word(data.get("reasoningText"))
        # Some versions write the thought as an event of its own, too, just before.
        if reasoning and _digest(reasoning) != self._thought:
            parts.append(thought(reasoning))
        if content := text(data.get("content")):
            parts.append(answer(content))
        for request in objects(data.get("toolRequests")):
            arguments = parse_arguments(request.get("arguments"))
            name = text(request.get("toolCallId"))
            parts.append(call(word(request.get("name")), arguments, name))
        self._thought = ""
        calls = calls_of(parts)
        flags = Is.REPLY | (Is.ENDS if content and not calls else 0)
        node = self._node(entry, event, flags, calls=calls, response=text(data.get("apiCallId")))
        return [
            self._event(
                entry,
                event,
                node,
                *(parts or [note("empty answer", data)]),
                model=text(data.get("model")),
                usage_key=None if self._bills else self._run_key(),
            )
        ]

    def _reasoning(self, entry: RawRecord, event: Record, data: Record) -> list[Fact]:
        content = word(data.get("content"))
        self._thought = _digest(content) if content else ""
        return [self._event(entry, event, self._node(entry, event, Is.REPLY), thought(content))]

    def _result(self, entry: RawRecord, event: Record, data: Record) -> list[Fact]:
        name, error = text(data.get("toolCallId")), fields(data.get("error"))
        content = fields(data.get("result")).get("content")
        if not isinstance(content, (str, list)):
            content = word(error.get("message"))
        code = integer_of(fields(data.get("shellExecution")).get("exitCode"))
        done = data.get("success")
        # "Success" is said of a command that ran, however it ended: its exit code decides then.
        failed = (
            (not done if isinstance(done, bool) else None) if code is None or not done else None
        )
        parts = [result(content, name, None, failed=failed)]
        if edits := objects(data.get("fileEdits")):
            parts.append(note("files edited", edits))
        is_repair = data.get("model") == "resumed"
        node = self._node(entry, event, Is.SYNTHETIC if is_repair else 0, answers=answers_of(parts))
        statuses = (CallStatus(name, failed, code),) if name and code is not None else ()
        return [self._event(entry, event, node, *parts, told=statuses)]

    def _error(self, entry: RawRecord, event: Record, data: Record) -> list[Fact]:
        line = word(data.get("message")) or "error"
        node = self._node(entry, event, Is.REPLY | Is.ENDS)
        return [self._event(entry, event, node, Block("error", "system", one_line(line), data))]

    def _abort(self, entry: RawRecord, event: Record, data: Record) -> list[Fact]:
        line = f"aborted: {word(data.get('reason'))}"
        node = self._node(entry, event, Is.INTERRUPTS)
        return [self._event(entry, event, node, note(line, data))]

    # -- context ------------------------------------------------------------------------

    def _compaction(self, entry: RawRecord, event: Record, data: Record) -> list[Fact]:
        spent = fields(data.get("compactionTokensUsed"))
        request = text(spent.get("requestId")) or text(data.get("requestId"))
        bill: dict[str, Any] = {}
        if request is None or request not in self._requests:
            usage = _usage_of(spent)
            key = f"request:{request}" if request else text(event.get("id"))
            bill = {"usage": usage, "usage_key": key} if usage else {"unbilled": COMPACTION}
            self._remember_request(request)
        summary = text(data.get("summaryContent"))
        if summary is None or data.get("success") is False:
            return self._internal_event(entry, event, "compaction", **bill)
        node = self._node(entry, event, Is.SUMMARY)
        return [self._event(entry, event, node, injected_text(summary), **bill)]

    def _context_reset(self, entry: RawRecord, event: Record, data: Record) -> list[Fact]:
        """Return the start of a new context; what was said before it is no longer sent."""
        node = self._node(entry, event, Is.SUMMARY)
        return [self._event(entry, event, node, note("context cleared", data))]

    # -- bills --------------------------------------------------------------------------

    def _usage(self, entry: RawRecord, event: Record, data: Record) -> list[Fact]:
        usage_record = fields(data.get("usage"))
        source = fields(usage_record.get("accounting"))
        request = text(usage_record.get("apiCallId"))
        key = text(event.get("id")) or self._name(entry)
        if request and request in self._requests:  # the compaction before it told the same bill
            key = f"request:{request}"
        elif owner := text(source.get("sourceSessionId")):
            number = f"{source.get('sequence')}:{source.get('usageId')}"
            key = f"{owner}:{number[:200]}"
        self._remember_request(request)
        self._bills = True
        usage = _usage_of(usage_record) or Usage()
        return self._internal_event(
            entry,
            event,
            f"model call, {usage.total} tokens",
            0,
            model=text(usage_record.get("model")),
            usage=usage,
            usage_key=key,
        )

    def _remember_request(self, request: str | None) -> None:
        if request:
            self._requests = [*self._requests, request[:200]][-_MAX_REQUEST_IDS:]

    def _run_key(self) -> str:
        return f"{self._session}:run {self._runs}"

    def _shutdown(self, entry: RawRecord, event: Record, data: Record) -> list[Fact]:
        snapshot = fields(data.get("accountingSnapshot")) or data
        more: dict[str, Any] = {}
        # Where requests are billed one by one, the total counts them once more.
        if not self._bills:
            total, model = _total(snapshot, data)
            if total.total:
                more = {"running": total, "usage_key": self._run_key(), "model": model}
                self._runs += 1
        return self._internal_event(entry, event, "shut down", Is.INTERNAL | Is.CLOSES, **more)

    # -- the session --------------------------------------------------------------------

    def _begin(self, entry: RawRecord, event: Record, data: Record) -> list[Fact]:
        context = fields(data.get("context")) or data
        about = {
            "cwd": text(context.get("cwd")),
            "git_branch": text(context.get("branch")),
            "version": text(data.get("copilotVersion")),
            "model": text(data.get("selectedModel")),
        }
        parent = text(data.get("detachedFromSpawningParentSessionId"))
        how = "detachedFromSpawningParentSessionId"
        source = fields(data.get("thenceHandoff"))
        edges = handed_over_edges(source.get("from"), source.get("event"))
        return self._internal_event(
            entry,
            event,
            word(event.get("type")),
            about={name: value for name, value in about.items() if value},
            edges=(Edge("subagent", parent, how),) if parent else edges,
        )

    def _subagent(self, entry: RawRecord, event: Record, data: Record) -> list[Fact]:
        """Return the start of a subagent, and the call that asked for it."""
        channel = _channel(event)
        line = f"subagent: {word(data.get('agentDescription')) or word(data.get('agentName'))}"
        out = self._internal_event(entry, event, line)
        named = {
            channel: text(data.get("toolCallId")),
            f"{channel}:type": text(data.get("agentType")) or text(data.get("agentName")),
            f"{channel}:description": text(data.get("agentDescription")),
        }
        if channel != "main":
            node = Node(f"{out[0].node.id} link", flags=Is.INTERNAL)
            about = {name: value for name, value in named.items() if value}
            out.append(self._fact(entry, node, "subagent", about=about, channel="main"))
        return out

    def _other(self, entry: RawRecord, event: Record, data: Record) -> list[Fact]:
        kind = word(event.get("type")) or "unknown"
        more = word(data.get("message")) or word(data.get("toolName"))
        return self._internal_event(entry, event, f"{kind}: {more}" if more else kind)


def _channel(event: Record) -> str:
    """Return whose event it is: the session's own, or that of a subagent."""
    agent = text(event.get("agentId"))
    if agent is None and event.get("type") not in ("subagent.completed", "subagent.failed"):
        agent = text(fields(event.get("data")).get("parentToolCallId"))
    return f"agent:{agent}" if agent else "main"


def _digest(content: str) -> str:
    return blake2b(content.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _usage_of(counts: Record) -> Usage | None:
    """Return a usage of either spelling; its input includes the cache."""
    for input_name, output_name, read_name, written_name in _USAGE_NAMES:
        if input_name in counts:
            return usage_with_cache(
                counts[input_name],
                count(counts.get(output_name)),
                read=counts.get(read_name),
                written=counts.get(written_name),
            )
    return None


def _total(snapshot: Record, data: Record) -> tuple[Usage, str | None]:
    """Return all tokens of a session so far, and the model that took most of them."""
    parts: list[tuple[Usage, str]] = []
    for model, metrics in fields(snapshot.get("modelMetrics")).items():
        usage = _usage_of(fields(fields(metrics).get("usage")))
        if usage is not None:
            parts.append((usage, model))
    if not parts:
        details = fields(data.get("tokenDetails"))
        numbers = [
            count(fields(details.get(name)).get("tokenCount"))
            for name in ("input", "output", "cache_write", "cache_read")
        ]
        return Usage(*numbers), text(data.get("currentModel"))
    sums = [sum(getattr(usage, name) for usage, _ in parts) for name in Usage.__struct_fields__]
    return Usage(*sums), max(parts, key=lambda part: part[0].total)[1]
