"""Sessions as OpenTelemetry spans, by the GenAI semantic conventions, in a file or to a collector.

A session is a trace: a span of the agent, below it one for each response of the model and each call
of a tool; a subagent is a span of its own with the same below it. Every bill is on exactly one
span, so sums over a trace are those of the session, discarded branches included (`thence.state`
tells them apart). Ids are hashes of the session and of what the span stands for: what is sent twice
is the same.

All of it is made here, with msgspec and 60 lines of protobuf: the SDK draws ids at random and
measures the time of its own calls, while these spans are of the past.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import msgspec

from thence.errors import BadConfig, ThenceError
from thence.format.derived_events import sum_usages, time_of
from thence.format.facts import words_of
from thence.format.graph import State
from thence.format.records import JSON, Usage, text_of
from thence.format.stored import StoredEvent

if TYPE_CHECKING:
    from thence.format.normal import SessionEvent
    from thence.format.readout import Readout

CONVENTIONS: Final = "1.41.1"
"""The version of the semantic conventions: the last that held those of GenAI; later ones have moved
to a repository without releases. All GenAI attributes in it have the status Development."""
SCHEMA_URL: Final = f"https://opentelemetry.io/schemas/{CONVENTIONS}"
BATCH_BYTES: Final = 2 << 20
"""About how large one request to a collector is."""
_TICKS: Final = 10**10
_INTERNAL, _CLIENT = 1, 3
_ERROR: Final = 2  # STATUS_CODE_ERROR of the protocol
_MAIN: Final = "main"

Attributes = dict[str, Any]


class TraceSpan(msgspec.Struct):
    """One span, in plain values."""

    name: str
    key: str
    """What it stands for within its session; its id is made of it."""
    above: str | None
    start_ns: int
    end_ns: int
    kind: int = _INTERNAL
    attributes: Attributes = {}
    error: str | None = None


class Trace(msgspec.Struct):
    """The spans of one session."""

    uid: str
    agent: str
    spans: list[TraceSpan]
    version: str = ""

    @property
    def trace_id(self) -> bytes:
        """The id of the trace."""
        return blake2b(self.uid.encode("utf-8", "backslashreplace"), digest_size=16).digest()

    def span_id(self, key: str) -> bytes:
        """Return the id of a span."""
        name = f"{self.uid}\n{key}".encode("utf-8", "backslashreplace")
        return blake2b(name, digest_size=8).digest()


# -- spans of a session ---------------------------------------------------------------------


def trace_of(
    session: Readout,
    *,
    agent: str,
    version: str = "",
    has_content: bool = False,
    is_openinference: bool = False,
) -> Trace:
    """Return a session as spans; `has_content` adds what was said, which may be private."""
    spans = _Spans(session, agent, has_content=has_content).made()
    if is_openinference:
        for span in spans:
            span.attributes |= _openinference(span)
    return Trace(session.uid, agent, spans, version)


class _Response:
    """The rows of one response of the model."""

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns
        self.rows: list[StoredEvent] = []
        self.asked: list[StoredEvent] = []


class _Spans:
    def __init__(self, readout: Readout, agent: str, *, has_content: bool) -> None:
        self._readout = readout
        self._agent = agent
        self._has_content = has_content
        self._session = readout.head.portable_session
        self._bodies = {event.event_id: event for event in readout.events} if has_content else {}
        self._rows = sorted(readout.rows, key=lambda row: row.seq)
        self._start = _ns(self._session.started_at) or 0
        self._end = max(_ns(self._session.ended_at) or 0, self._start)
        self._last: dict[str, int] = {}
        self._responses: dict[tuple[str, str], _Response] = {}
        self._waiting: dict[str, list[StoredEvent]] = {}
        self._calls: list[StoredEvent] = []
        self._times: dict[int, int] = {}

    def made(self) -> list[TraceSpan]:
        """Return the spans, those of the agents first."""
        for row in self._rows:
            self._read(row)
        spans = [self._root(), *self._subagents()]
        spans += [self._chat(key, response) for key, response in self._responses.items()]
        spans += [self._tool(row) for row in self._calls]
        return spans

    def _read(self, row: StoredEvent) -> None:
        event = row.event
        channel = event.channel
        at = _ns(event.ts) or self._last.get(channel) or self._start
        before = self._last.get(channel, at)
        self._times[event.event_id] = at
        self._last[channel] = max(at, before)
        if event.state is State.REPLAYED:
            return  # of another session, which has its own trace
        is_said = event.role == "assistant" and event.state is not State.INTERNAL
        if is_said or row.is_billed:
            name = self._response_name(event)
            response = self._responses.get((channel, name))
            if response is None:
                response = self._responses[channel, name] = _Response(min(before, at))
                response.asked = self._waiting.pop(channel, [])
            response.rows.append(row)
        elif event.state is not State.INTERNAL and event.role in ("user", "tool"):
            self._waiting.setdefault(channel, []).append(row)
        if event.kind == "tool_call":
            self._calls.append(row)

    def _response_name(self, event: SessionEvent) -> str:
        if event.block == 0:
            self._name = (event.native_id, event.usage_key or event.native_id)
        native, name = self._name
        return name if native == event.native_id else event.native_id

    _name: tuple[str, str] = ("", "")

    # -- agents -----------------------------------------------------------------------------

    def _root(self) -> TraceSpan:
        session = self._session
        attributes: Attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": self._agent,
            "gen_ai.agent.id": session.flavor,
            "gen_ai.conversation.id": session.native_session_id,
            "gen_ai.provider.name": provider_of(session.model),
            "gen_ai.request.model": session.model,
            "thence.session.uid": session.session_uid,
            "thence.session.title": self._readout.title if self._has_content else None,
            "thence.session.cwd": session.cwd if self._has_content else None,
        }
        name = f"invoke_agent {self._agent}"
        return TraceSpan(
            name, _MAIN, None, self._start, self._end, attributes=_without_nulls(attributes)
        )

    def _subagents(self) -> Iterator[TraceSpan]:
        starts = self._readout.started_by()
        times: dict[str, list[int]] = {}
        for row in self._rows:
            if row.event.channel != _MAIN and row.event.state is not State.REPLAYED:
                times.setdefault(row.event.channel, []).append(self._times[row.event.event_id])
        known = {row.event.call: row for row in self._calls}
        for channel, moments in times.items():
            call = starts.get(channel)
            above = f"call {known[call].event.event_id}" if call in known else _MAIN
            attributes = {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": self._agent,
                "gen_ai.agent.id": channel,
                "gen_ai.conversation.id": self._session.native_session_id,
                "gen_ai.provider.name": provider_of(self._session.model),
                "thence.session.uid": self._session.session_uid,
            }
            name = f"invoke_agent {channel}"
            key, start, end = f"channel {channel}", min(moments), max(moments)
            yield TraceSpan(name, key, above, start, end, attributes=_without_nulls(attributes))

    def _above(self, channel: str) -> str:
        return _MAIN if channel == _MAIN else f"channel {channel}"

    # -- responses and calls ----------------------------------------------------------------

    def _chat(self, key: tuple[str, str], response: _Response) -> TraceSpan:
        channel, name = key
        first = response.rows[0].event
        models = (row.event.model for row in response.rows)
        model = next((m for m in models if m), None) or self._session.model
        attributes: Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.conversation.id": self._session.native_session_id,
            "gen_ai.provider.name": provider_of(model),
            "gen_ai.request.model": model,
            "gen_ai.response.model": model,
            "thence.session.uid": self._session.session_uid,
            "thence.state": first.state.value if first.state is not None else None,
        }
        usages = [row.usage for row in response.rows if row.usage is not None]
        if usages:
            attributes |= usage_attributes(sum_usages(usages))
        ticks = [row.ticks for row in response.rows if row.ticks is not None and row.is_billed]
        if ticks:
            attributes["thence.cost.usd"] = sum(ticks) / _TICKS
        if self._has_content:
            attributes["gen_ai.input.messages"] = self._messages(response.asked)
            attributes["gen_ai.output.messages"] = self._messages(response.rows)
        end = max(self._times[row.event.event_id] for row in response.rows)
        return TraceSpan(
            f"chat {model}" if model else "chat",
            f"response {channel} {name}",
            self._above(channel),
            min(response.start_ns, end),
            end,
            _CLIENT,
            _without_nulls(attributes),
        )

    def _tool(self, row: StoredEvent) -> TraceSpan:
        event = row.event
        start = self._times[event.event_id]
        end = self._times.get(row.other or 0, start)
        outcome = row.outcome
        if outcome is not None and outcome.duration_ms is not None:
            end = start + outcome.duration_ms * 1_000_000
        has_failed = outcome is not None and outcome.failed
        attributes: Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": event.tool or "unknown",
            "gen_ai.tool.call.id": event.call,
            "gen_ai.tool.type": "function",
            "gen_ai.conversation.id": self._session.native_session_id,
            "thence.session.uid": self._session.session_uid,
            "thence.state": event.state.value if event.state is not None else None,
            "error.type": "tool_error" if has_failed else None,
        }
        if self._has_content:
            attributes["gen_ai.tool.call.arguments"] = _json(self._payload(event.event_id))
            if row.other is not None:
                attributes["gen_ai.tool.call.result"] = text_of(self._payload(row.other))
        return TraceSpan(
            f"execute_tool {event.tool or 'unknown'}",
            f"call {event.event_id}",
            self._above(event.channel),
            start,
            max(start, end),
            _INTERNAL,
            _without_nulls(attributes),
            "the call failed" if has_failed else None,
        )

    # -- what was said ----------------------------------------------------------------------

    def _payload(self, event_id: int) -> JSON:
        event = self._bodies.get(event_id)
        return self._readout.payload(event) if event is not None else None

    def _messages(self, rows: Iterable[StoredEvent]) -> str | None:
        """Return messages as the conventions spell them, as JSON."""
        out: list[JSON] = []
        for row in rows:
            event = self._readout.with_payload(self._bodies[row.event.event_id])
            part = self._part(event)
            if part is None:
                continue
            if not out or out[-1]["role"] != event.role:
                out.append({"role": event.role, "parts": []})
            out[-1]["parts"].append(part)
        return _json(out) if out else None

    def _part(self, event: SessionEvent) -> JSON:
        if event.kind == "tool_call":
            return {
                "type": "tool_call",
                "id": event.call,
                "name": event.tool,
                "arguments": event.payload,
            }
        if event.kind == "tool_result":
            result = text_of(event.payload)
            return {"type": "tool_call_response", "id": event.call, "response": result}
        text = words_of(event)
        if not text:
            return None
        kind = "reasoning" if event.kind == "thinking" else "text"
        return {"type": kind, "content": text}


def usage_attributes(usage: Usage) -> Attributes:
    """Return a usage as the conventions spell it: input includes what the cache gave and took."""
    cached, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
    out = {
        "gen_ai.usage.input_tokens": usage.input_tokens + cached + written,
        "gen_ai.usage.output_tokens": usage.output_tokens,
    }
    if cached:
        out["gen_ai.usage.cache_read.input_tokens"] = cached
    if written:
        out["gen_ai.usage.cache_creation.input_tokens"] = written
    return out


_PROVIDERS: Final = (
    ("claude", "anthropic"),
    ("gpt", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("codex", "openai"),
    ("gemini", "gcp.gemini"),
    ("grok", "x_ai"),
    ("mistral", "mistral_ai"),
    ("devstral", "mistral_ai"),
    ("deepseek", "deepseek"),
)


def provider_of(model: str | None) -> str:
    """Return the provider of a model, as far as its name tells."""
    name = (model or "").rpartition("/")[2].lower()
    return next((provider for start, provider in _PROVIDERS if name.startswith(start)), "unknown")


_KINDS: Final = {"invoke_agent": "AGENT", "chat": "LLM", "execute_tool": "TOOL"}
_SAME: Final = {
    "gen_ai.request.model": "llm.model_name",
    "gen_ai.provider.name": "llm.provider",
    "gen_ai.conversation.id": "session.id",
    "gen_ai.usage.input_tokens": "llm.token_count.prompt",
    "gen_ai.usage.output_tokens": "llm.token_count.completion",
    "gen_ai.usage.cache_read.input_tokens": "llm.token_count.prompt_details.cache_read",
    "gen_ai.usage.cache_creation.input_tokens": "llm.token_count.prompt_details.cache_write",
    "gen_ai.tool.name": "tool.name",
    "gen_ai.tool.call.id": "tool.id",
    "gen_ai.tool.call.arguments": "input.value",
    "gen_ai.tool.call.result": "output.value",
    "gen_ai.input.messages": "input.value",
    "gen_ai.output.messages": "output.value",
    "gen_ai.agent.name": "agent.name",
    "thence.cost.usd": "llm.cost.total",
}


def _openinference(span: TraceSpan) -> Attributes:
    """Return what OpenInference calls the attributes of a span."""
    attributes = span.attributes
    out: Attributes = {"openinference.span.kind": _KINDS[attributes["gen_ai.operation.name"]]}
    out |= {theirs: attributes[name] for name, theirs in _SAME.items() if name in attributes}
    if "llm.token_count.prompt" in out:
        total = out["llm.token_count.prompt"] + out["llm.token_count.completion"]
        out["llm.token_count.total"] = total
    return out


def _without_nulls(attributes: Mapping[str, Any]) -> Attributes:
    return {name: value for name, value in attributes.items() if value is not None}


def _json(value: JSON) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _ns(ts: str | None) -> int | None:
    moment = time_of(ts)
    if moment is None:
        return None
    past = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return max(((past.days * 86400 + past.seconds) * 10**6 + past.microseconds) * 1000, 0)


# -- as JSON --------------------------------------------------------------------------------


def otlp_json(trace: Trace) -> dict[str, JSON]:
    """Return spans as OTLP/JSON: ids in hexadecimal, large numbers as texts."""
    made = [_json_span(trace, span) for span in trace.spans]
    scope = {"name": "thence", "version": trace.version}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _json_attributes(_resource(trace))},
                "scopeSpans": [{"scope": scope, "spans": made, "schemaUrl": SCHEMA_URL}],
                "schemaUrl": SCHEMA_URL,
            }
        ]
    }


def _resource(trace: Trace) -> Attributes:
    return {"service.name": trace.agent, "telemetry.sdk.name": "thence"}


def _json_span(trace: Trace, span: TraceSpan) -> dict[str, JSON]:
    out: dict[str, JSON] = {
        "traceId": trace.trace_id.hex(),
        "spanId": trace.span_id(span.key).hex(),
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": _json_attributes(span.attributes),
    }
    if span.above is not None:
        out["parentSpanId"] = trace.span_id(span.above).hex()
    if span.error is not None:
        out["status"] = {"code": _ERROR, "message": span.error}
    return out


def _json_attributes(attributes: Attributes) -> list[JSON]:
    return [{"key": name, "value": _json_value(value)} for name, value in attributes.items()]


def _json_value(value: Any) -> dict[str, JSON]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": str(value)}


# -- as protobuf ----------------------------------------------------------------------------


def otlp_protobuf(trace: Trace, spans: Sequence[TraceSpan]) -> bytes:
    """Return spans as an ExportTraceServiceRequest, which every collector reads."""
    scope = _text(1, "thence") + _text(2, trace.version)
    made = b"".join(_field(2, _span(trace, span)) for span in spans)
    scoped = _field(1, scope) + made + _text(3, SCHEMA_URL)
    resource = b"".join(_field(1, attribute) for attribute in _attributes(_resource(trace)))
    return _field(1, _field(1, resource) + _field(2, scoped) + _text(3, SCHEMA_URL))


def _span(trace: Trace, span: TraceSpan) -> bytes:
    parts = [_field(1, trace.trace_id), _field(2, trace.span_id(span.key))]
    if span.above is not None:
        parts.append(_field(4, trace.span_id(span.above)))
    parts += [
        _text(5, span.name),
        b"\x30" + _varint(span.kind),
        b"\x39" + struct.pack("<Q", span.start_ns),
        b"\x41" + struct.pack("<Q", span.end_ns),
        *(_field(9, attribute) for attribute in _attributes(span.attributes)),
    ]
    if span.error is not None:
        parts.append(_field(15, _text(2, span.error) + b"\x18" + _varint(_ERROR)))
    return b"".join(parts)


def _attributes(attributes: Attributes) -> Iterator[bytes]:
    for name, value in attributes.items():
        if isinstance(value, bool):
            body = b"\x10" + _varint(int(value))
        elif isinstance(value, int):
            body = b"\x18" + _varint(value & (2**64 - 1))
        elif isinstance(value, float):
            body = b"\x21" + struct.pack("<d", value)
        else:
            body = _text(1, str(value))
        yield _text(1, name) + _field(2, body)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode("utf-8", "replace"))


# -- to a collector -------------------------------------------------------------------------


class CollectorFailed(ThenceError):
    """A collector refused spans, or does not answer."""


def send(
    trace: Trace, endpoint: str, headers: Mapping[str, str] | None = None, timeout_s: float = 30.0
) -> int:
    """Send the spans of a session to a collector by OTLP/HTTP; return how many requests it took."""
    url = traces_url(endpoint)
    number = 0
    for batch in _batches(trace):
        number += 1
        _post(url, otlp_protobuf(trace, batch), headers or {}, timeout_s)
    return number


def traces_url(endpoint: str) -> str:
    """Return where traces are sent to; an endpoint with a path of its own is taken as it is."""
    from urllib.parse import urlsplit

    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise BadConfig(f"not an address: {endpoint!r}", hint="write http://127.0.0.1:4318")
    return endpoint if parts.path.strip("/") else f"{endpoint.rstrip('/')}/v1/traces"


def _batches(trace: Trace) -> Iterator[list[TraceSpan]]:
    batch: list[TraceSpan] = []
    size = 0
    for span in trace.spans:
        length = 200 + sum(len(str(value)) for value in span.attributes.values())
        if batch and size + length > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(span)
        size += length
    if batch:
        yield batch


def _post(url: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> None:
    from urllib.error import HTTPError, URLError
    from urllib.request import ProxyHandler, Request, build_opener

    request = Request(url, body, {**headers, "Content-Type": "application/x-protobuf"})  # noqa: S310 - its scheme is checked
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=timeout_s) as answer:
            answer.read()
    except HTTPError as error:
        raise CollectorFailed(
            f"the collector at {url} answers {error.code} {error.reason}",
            hint="check the address, and whether it needs --header 'authorization=…'",
        ) from error
    except (URLError, OSError) as error:
        why = getattr(error, "reason", error)
        raise CollectorFailed(f"no collector at {url}: {why}", hint="is it running?") from error
