"""The records of Qwen Code's logs as facts.

Records are linked by uuids; book-keeping records are links of the same chain. Every request of the
session stands in a telemetry record, also those that no answer follows (compaction, memory): there
it is billed. The answer that follows repeats the numbers under the same key. Requests of subagents
stand in the parent's telemetry and in the subagent's own log, and share a key as well. A fork's
copies name the session they were copied from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from thence.agents import File, Mark, Source, files
from thence.agents.gemini_parts import (
    answer_blocks,
    calls_in,
    media,
    output_of,
    parts_of,
    responses_in,
    summary_blocks,
    usage_of_counts,
)
from thence.agents.records import (
    LineReader,
    Record,
    call,
    fields,
    injected_text,
    integer_of,
    moment,
    note,
    parse_arguments,
    prompt,
    result,
    text,
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
from thence.format.nodes import Is, Node
from thence.format.normal import one_line
from thence.format.records import JSON, count, text_of, word

_ANSWER_TOKEN_KEYS = (
    *("promptTokenCount", "candidatesTokenCount", "cachedContentTokenCount"),
    *("thoughtsTokenCount", "totalTokenCount"),
)
_TELEMETRY_TOKEN_KEYS = (
    *("input_token_count", "output_token_count", "cached_content_token_count"),
    *("thoughts_token_count", "total_token_count"),
)
_INJECTED = ("<system-reminder>", "<qwen:user-prompt-submit-context>")
_NO_PROMPT = frozenset({"notification", "cron", "goal_runtime"})
_EXIT = re.compile(r"^Exit Code: (-?\d{1,9})$", re.MULTILINE)
_ABOUT_FIELDS = (("cwd", "cwd"), ("gitBranch", "git_branch"), ("version", "version"))
_REPEATED = ("originalContent", "newContent", "text", "output", "result", "taskPrompt")


def open_records(source: Source, file: File, mark: Mark) -> files.Records:
    """Return the reader of one file of a session."""
    return AgentCard(source, file, mark) if file.is_document else Chat(source, file, mark)


def is_record(value: Record) -> bool:
    """Return whether an object on a damaged line is a record and no part of one."""
    return isinstance(value.get("uuid"), str) and isinstance(value.get("type"), str)


class AgentCard(LineReader):
    """What the small document beside a subagent's log says of it."""

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Return the call that started the subagent, its type and how it stands."""
        agent = f"agent:{self._file.key.removeprefix('side/').partition('.meta')[0]}"
        named = {
            agent: entry.value.get("toolUseId"),
            f"{agent}:type": entry.value.get("agentType"),
            f"{agent}:description": entry.value.get("description"),
            f"{agent}:parent": entry.value.get("parentAgentId"),
        }
        about = {name: value for name, value in named.items() if isinstance(value, str)}
        if about:
            yield self._document(entry, "meta", about=about, channel="main")


class Chat(LineReader):
    """The records of one log."""

    carries = ("pending", "forked")
    """The telemetry that awaits its answer, and the session it was forked from."""

    def __init__(self, source: Source, file: File, mark: Mark) -> None:
        super().__init__(source, file, mark)
        pending = self._carried.get("pending")
        self._pending: list[JSON] = pending if isinstance(pending, list) else []
        self._forked: str | None = text(self._carried.get("forked"))
        self._makers: dict[str, Callable[[RawRecord, Record], list[Fact]]] = {
            "user": self._user,
            "assistant": self._assistant,
            "tool_result": self._result,
            "system": self._system,
        }

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Return the facts of one record."""
        record = entry.value
        made = self._makers.get(word(record.get("type")), self._other)(entry, record)
        return made + self._tie(entry, record)

    # -- frame --------------------------------------------------------------------------

    def _node(self, entry: RawRecord, record: Record, flags: int = 0, **more: Any) -> Node:
        own = text(record.get("uuid")) or self._name(entry)
        return Node(own, text(record.get("parentUuid")), flags, **more)

    def _event(
        self, entry: RawRecord, record: Record, node: Node, *parts: Block, **more: Any
    ) -> Fact:
        subtype = word(record.get("subtype"))
        kind = word(record.get("type"))
        about = {name: text(record.get(field)) for field, name in _ABOUT_FIELDS}
        about |= more.pop("about", {})
        return self._fact(
            entry,
            node,
            f"{kind}/{subtype}" if subtype else kind,
            ts=moment(record.get("timestamp")),
            blocks=parts,
            origin=self._origin(record),
            about={name: value for name, value in about.items() if value},
            **more,
        )

    def _origin(self, record: Record) -> str | None:
        return text(fields(record.get("forkedFrom")).get("sessionId"))

    def _tie(self, entry: RawRecord, record: Record) -> list[Fact]:
        """Return the tie to the session that this one was forked from, told once."""
        origin = self._origin(record)
        if origin is None or self._forked == origin:
            return []
        self._forked = origin
        node = Node(f"{self._file.key}#forked {origin}", flags=Is.INTERNAL)
        source = fields(record.get("forkedFrom"))
        edges = handed_over_edges(source.get("from"), source.get("event"))
        edges = edges or (Edge("fork", origin, "forkedFrom"),)
        return [self._fact(entry, node, "forkedFrom", edges=edges)]

    # -- conversation -------------------------------------------------------------------

    def _user(self, entry: RawRecord, record: Record) -> list[Fact]:
        content = fields(record.get("message")).get("parts")
        typed = text(fields(record.get("systemPayload")).get("displayText"))
        provenance = record.get("provenance")
        is_human = word(record.get("subtype")) not in _NO_PROMPT and (
            not isinstance(provenance, str) or provenance == "real_user"
        )
        is_human = is_human and self._file.channel == "main"
        parts = [_user_block(part, typed, is_human=is_human) for part in parts_of(content)]
        flags = Is.PROMPT if any(part.kind == "user_msg" for part in parts) else 0
        node = self._node(entry, record, flags)
        return [self._event(entry, record, node, *(parts or [injected_text("")]))]

    def _assistant(self, entry: RawRecord, record: Record) -> list[Fact]:
        content = fields(record.get("message")).get("parts")
        parts = [*answer_blocks(content), *map(_call, calls_in(content))]
        calls = calls_of(parts)
        ends = any(part.kind == "assistant_msg" for part in parts) and not calls
        counts = fields(record.get("usageMetadata"))
        usage = usage_of_counts(counts, _ANSWER_TOKEN_KEYS)
        fact = self._event(
            entry,
            record,
            self._node(entry, record, Is.REPLY | (Is.ENDS if ends else 0), calls=calls),
            *(parts or [note("model call", counts)]),
            model=text(record.get("model")),
            usage=usage,
            usage_key=self._key(record, _numbers(counts, _ANSWER_TOKEN_KEYS)) if usage else None,
        )
        return [fact]

    def _key(self, record: Record, numbers: list[int]) -> str:
        """Return the key of an answer's bill: that of the telemetry before it, if it fits."""
        agent, rounds = text(record.get("agentId")), record.get("agentRound")
        if agent:
            return _side_key(self._session, agent, count(rounds), numbers)
        pending, self._pending = self._pending, []
        if len(pending) == 2 and pending[1] == numbers:
            return word(pending[0])
        return word(record.get("uuid"))

    def _result(self, entry: RawRecord, record: Record) -> list[Fact]:
        outcome = fields(record.get("toolCallResult"))
        parts: list[Block] = []
        statuses: list[CallStatus] = []
        for response in responses_in(fields(record.get("message")).get("parts")):
            name = text(response.get("id")) or text(outcome.get("callId"))
            content, is_error = output_of(response)
            failed = _has_failed(outcome, is_error=is_error)
            parts.append(result(content, name, None, failed=failed))
            if name:
                code = _exit_code(outcome, content)
                statuses.append(
                    CallStatus(name, failed, code, count(outcome.get("durationMs")) or None)
                )
        node = self._node(entry, record, answers=answers_of(parts))
        parts.append(note("details of the result", _details(outcome)))
        return [self._event(entry, record, node, *parts, told=tuple(statuses))]

    # -- book-keeping -------------------------------------------------------------------

    def _system(self, entry: RawRecord, record: Record) -> list[Fact]:
        subtype = word(record.get("subtype"))
        payload = fields(record.get("systemPayload"))
        if subtype == "ui_telemetry":
            return self._telemetry(entry, record, fields(payload.get("uiEvent")))
        if subtype == "chat_compression":
            history = summary_blocks(payload.get("compressedHistory"))
            if history:
                above = text(record.get("parentUuid"))
                own = text(record.get("uuid")) or self._name(entry)
                node = Node(own, None, Is.SUMMARY, logical=above)
                return [self._event(entry, record, node, *history)]
        more: dict[str, Any] = {}
        node = self._node(entry, record, Is.INTERNAL)
        if subtype == "rewind":  # the line ends here until something follows
            node = self._node(entry, record)
        elif subtype == "custom_title" and (title := text(payload.get("customTitle"))):
            source = "ai" if payload.get("titleSource") == "auto" else "custom"
            more["about"] = {f"title:{source}": title}
        elif subtype == "parent_session" and (parent := text(payload.get("parentSessionId"))):
            more["edges"] = (Edge("subagent", parent, "parent_session"),)
        return [self._event(entry, record, node, note(subtype or "system", payload), **more)]

    def _telemetry(self, entry: RawRecord, record: Record, event: Record) -> list[Fact]:
        name = word(event.get("event.name")).removeprefix("qwen-code.")
        if name == "api_error":
            line = word(event.get("error_message")) or "the request failed"
            node = self._node(entry, record, Is.REPLY | Is.ENDS)
            return [
                self._event(entry, record, node, Block("error", "system", one_line(line), event))
            ]
        usage = usage_of_counts(event, _TELEMETRY_TOKEN_KEYS) if name == "api_response" else None
        if usage is None:
            block = note(name or "telemetry", event)
            return [self._event(entry, record, self._node(entry, record, Is.INTERNAL), block)]
        numbers = _numbers(event, _TELEMETRY_TOKEN_KEYS)
        line = f"model call, {usage.total} tokens"
        bill = {"model": text(event.get("model")), "usage": usage}
        if agent := text(event.get("subagent_id")):
            rounds = word(event.get("prompt_id")).rpartition("#")[2]
            key = _side_key(self._session, agent, count(rounds) + 1, numbers)
            node = self._node(entry, record, Is.INTERNAL)
            side = Node(f"{node.id} bill", None, Is.INTERNAL)
            channel = f"agent:{agent}"
            return [
                self._event(entry, record, node, note(line, event)),
                self._event(
                    entry, record, side, note(line, None), channel=channel, usage_key=key, **bill
                ),
            ]
        key = f"{word(event.get('response_id'))}:{word(record.get('uuid'))}"
        self._pending = [key, numbers]
        node = self._node(entry, record)
        return [self._event(entry, record, node, note(line, event), usage_key=key, **bill)]

    def _other(self, entry: RawRecord, record: Record) -> list[Fact]:
        block = note(word(record.get("type")) or "unknown", record)
        return [self._event(entry, record, self._node(entry, record, Is.INTERNAL), block)]


# -- parts ----------------------------------------------------------------------------------


def _user_block(part: Record, typed: str | None, *, is_human: bool) -> Block:
    """Return a part of a prompt: what was typed, or what the harness added."""
    content = text(part.get("text"))
    if content is None:
        picture = media(part) or {"type": "text", "text": ""}
        return Block("user_msg" if is_human else "lifecycle", "user", "", picture)
    if not is_human or content.lstrip().startswith(_INJECTED):
        return injected_text(content)
    shown = prompt(content)
    return shown if typed is None else Block("user_msg", "user", one_line(typed), shown.payload)


def _call(function: Record) -> Block:
    """Return a call; a deferred tool is called through another one, which names it."""
    tool, arguments = word(function.get("name")), parse_arguments(function.get("args"))
    inner = text(fields(arguments).get("name")) if tool == "tool_call" else None
    if inner:
        tool, arguments = inner, parse_arguments(fields(arguments).get("arguments"))
    return call(tool, arguments, text(function.get("id")))


def _has_failed(outcome: Record, *, is_error: bool) -> bool | None:
    status = outcome.get("status")
    if status in ("error", "cancelled") or is_error:
        return True
    return False if status == "success" else None


def _exit_code(outcome: Record, content: JSON) -> int | None:
    code = integer_of(fields(outcome.get("resultDisplay")).get("exitCode"))
    if code is not None:
        return code
    shown = _EXIT.search(text_of(content)[-400:])
    return int(shown[1]) if shown else None


def _details(outcome: Record) -> JSON:
    """Return what a result says beside its text, without texts that stand in it already."""
    display = outcome.get("resultDisplay")
    if not isinstance(display, dict):
        return {name: value for name, value in outcome.items() if name != "resultDisplay"}
    trimmed = {name: value for name, value in display.items() if name not in _REPEATED}
    return {**outcome, "resultDisplay": trimmed}


def _numbers(counts: Record, names: tuple[str, ...]) -> list[int]:
    return [count(counts.get(name)) for name in names[:3]]


def _side_key(session: str, agent: str, rounds: int, numbers: list[int]) -> str:
    return f"{session}:{agent}:{rounds}:{':'.join(map(str, numbers))}"
