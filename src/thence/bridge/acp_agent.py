"""An agent of the Agent Client Protocol: the sessions of all agents, to list and to read.

An editor lists them, loads one and gets all of its live line again: prompts, answers, thoughts,
calls with their results. A prompt is answered by what thence is and by the command that resumes the
session in its own agent: no model runs here. Sessions come from the store, so they are redacted.

JSON-RPC by hand: five methods over lines of JSON need no framework. Tests speak to it with that
package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec

from thence.errors import ThenceError
from thence.format.facts import words_of
from thence.format.records import JSON, text_of
from thence.format.tools import Effect
from thence.memory import recall
from thence.memory.readouts import open_session
from thence.memory.recall import Clean
from thence.memory.store import Filter

if TYPE_CHECKING:
    from thence.format.normal import SessionEvent
    from thence.format.readout import Readout
    from thence.memory.store import SessionRow, Store

PROTOCOL: Final = 1
PAGE: Final = 100
"""Sessions in one answer of `session/list`."""
_PARSE, _NO_METHOD, _BAD_PARAMS, _INTERNAL, _NOT_FOUND = -32700, -32601, -32602, -32603, -32002

Object = dict[str, Any]


class RequestRefused(Exception):
    """A request that cannot be answered; says so in JSON-RPC."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class ArchiveAgent:
    """Answers one client."""

    def __init__(
        self,
        store: Store,
        *,
        version: str,
        resume: Callable[[SessionRow], str],
        clean: Clean,
        label: Callable[[str], str] = str,
    ) -> None:
        """Get ready; `resume` returns the command that resumes a session, `label` names agents.

        What is read from the log of a removed session goes through `clean`.
        """
        self._store = store
        self._clean = clean
        self._version = version
        self._resume = resume
        self._label = label
        self._loaded: str | None = None

    def serve(self, lines: Iterable[bytes], out: IO[bytes]) -> None:
        """Answer requests, a line each, until there are no more."""
        for line in lines:
            if line.strip():
                for message in self.answers(line):
                    out.write(msgspec.json.encode(message) + b"\n")
                out.flush()

    def answers(self, line: bytes) -> Iterator[Object]:
        """Yield what is sent for one line: notifications, then the answer."""
        try:
            request = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            yield _error(None, _PARSE, "not JSON")
            return
        if not isinstance(request, dict) or not isinstance(request.get("method"), str):
            return
        number, raw_params = request.get("id"), request.get("params")
        try:
            result: JSON = {}
            params: Object = raw_params if isinstance(raw_params, dict) else {}
            for message in self._handle(request["method"], params):
                if "method" in message:
                    yield message
                else:
                    result = message["result"]
            answer: Object = {"jsonrpc": "2.0", "id": number, "result": result}
        except RequestRefused as error:
            answer = _error(number, error.code, str(error))
        except ThenceError as error:
            answer = _error(number, _INTERNAL, error.message)
        if number is not None:
            yield answer

    def _handle(self, method: str, params: Object) -> Iterator[Object]:
        """Yield the notifications that a request brings, and its result last."""
        result: JSON = {}
        if method == "session/load":
            yield from self._load(params)
        elif method == "session/prompt":
            yield from self._prompt(params)
            result = {"stopReason": "end_turn"}
        elif method in _METHODS:
            result = getattr(self, _METHODS[method])(params)
        else:
            raise RequestRefused(_NO_METHOD, f"thence has no method {method[:80]}")
        yield {"result": result}

    # -- methods ----------------------------------------------------------------------------

    def _initialize(self, _params: Object) -> JSON:
        return {
            "protocolVersion": PROTOCOL,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
                "sessionCapabilities": {"list": {}},
            },
            "agentInfo": {"name": "thence", "title": "Past sessions", "version": self._version},
            "authMethods": [],
        }

    def _authenticate(self, _params: Object) -> JSON:
        return {}

    def _new(self, _params: Object) -> JSON:
        self._loaded = None
        return {"sessionId": "thence:new"}

    def _list(self, params: Object) -> JSON:
        cursor, folder = params.get("cursor"), params.get("cwd")
        start = int(cursor) if isinstance(cursor, str) and cursor.isdecimal() else 0
        wanted = Filter(
            project=folder if isinstance(folder, str) and folder else None,
            limit=PAGE + 1,
            offset=start,
        )
        rows = list(self._store.sessions(wanted))
        shown = recall.with_lineage(self._store, rows[:PAGE])
        if wanted.project:
            shown = [row for row in shown if row.session.cwd == wanted.project]
        out: Object = {"sessions": [self._info(row) for row in shown]}
        if len(rows) > PAGE:
            out["nextCursor"] = str(start + PAGE)
        return out

    def _info(self, row: SessionRow) -> JSON:
        session = row.session
        title = " ".join((row.title or "").split())[:200] or session.native_session_id
        info: Object = {
            "sessionId": session.session_uid,
            "cwd": session.cwd or "/",
            "title": f"{self._label(session.flavor)}: {title}",
        }
        if session.ended_at:
            info["updatedAt"] = session.ended_at
        return info

    def _load(self, params: Object) -> Iterator[Object]:
        row = self._row(params)
        session = open_session(self._store, row, self._clean).session
        self._loaded = row.session.session_uid
        for update in replay(session):
            yield _notice(row.session.session_uid, update)

    def _row(self, params: Object) -> SessionRow:
        wanted = params.get("sessionId")
        if not isinstance(wanted, str):
            raise RequestRefused(_BAD_PARAMS, "sessionId is missing")
        rows = list(self._store.sessions(Filter(uids=(wanted,))))
        if not rows:
            raise RequestRefused(_NOT_FOUND, f"no session {wanted[:120]}")
        return rows[0]

    def _prompt(self, params: Object) -> Iterator[Object]:
        """Say that no model runs here, and how the session goes on."""
        wanted = params.get("sessionId")
        text = "thence shows past sessions; it does not run a model."
        rows = list(self._store.sessions(Filter(uids=(wanted,)))) if isinstance(wanted, str) else []
        if rows:
            text += f" To continue this session, run:\n\n    {self._resume(rows[0])}\n"
        else:
            text += " Choose a session from the list to read it."
        content = {"type": "text", "text": text}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        yield _notice(str(wanted), update)


_METHODS: Final = {
    "initialize": "_initialize",
    "authenticate": "_authenticate",
    "session/new": "_new",
    "session/list": "_list",
    "session/cancel": "_authenticate",
}


def _error(number: JSON, code: int, message: str) -> Object:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}


def _notice(session: str, update: Object) -> Object:
    params = {"sessionId": session, "update": update}
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}


# -- replay ---------------------------------------------------------------------------------


def replay(session: Readout) -> Iterator[Object]:
    """Yield the live line of a session as updates, what it continues first."""
    for part in session.line(boundaries=False):
        yield from _updates(part.session, part.session.events_along(part.places))


def _updates(session: Readout, events: Iterable[SessionEvent]) -> Iterator[Object]:
    calls = session.every_call
    failed = {pair.call.event_id: pair.outcome.failed for pair in calls}
    effects = {pair.call.event_id: pair.effect for pair in calls}
    results = {pair.result.event_id: pair.call.event_id for pair in calls if pair.result}
    for event in events:
        if event.role == "system":
            continue
        if event.kind == "tool_call":
            yield _call(event, effects.get(event.event_id))
        elif event.kind == "tool_result":
            has_failed = failed.get(results.get(event.event_id, 0), bool(event.failed))
            yield _result(event, has_failed=has_failed)
        else:
            name = "agent_message_chunk" if event.role == "assistant" else "user_message_chunk"
            name = "agent_thought_chunk" if event.kind == "thinking" else name
            for content in _contents(event):
                yield {"sessionUpdate": name, "content": content, "messageId": event.native_id}


def _contents(event: SessionEvent) -> Iterator[JSON]:
    payload = event.payload
    if isinstance(payload, dict) and payload.get("type") == "image":
        source = payload.get("source")
        if isinstance(source, dict) and isinstance(source.get("data"), str):
            kind = str(source.get("media_type") or "image/png")
            yield {"type": "image", "data": source["data"], "mimeType": kind}
            return
    text = _text(event)
    if text:
        yield {"type": "text", "text": text}


def _text(event: SessionEvent) -> str:
    payload = event.payload
    if isinstance(payload, dict):
        for name in ("text", "thinking"):
            if isinstance(payload.get(name), str):
                return str(payload[name])
    return words_of(event) or event.summary


def _name(event: SessionEvent) -> str:
    return event.call or str(event.event_id)


def _call(event: SessionEvent, effect: Effect | None) -> Object:
    out: Object = {
        "sessionUpdate": "tool_call",
        "toolCallId": _name(event),
        "title": event.summary or event.tool or "tool",
        "kind": _kind(effect),
        "status": "in_progress",
        "rawInput": event.payload,
        "_meta": {"thence": {"tool": event.tool}},
    }
    if effect is not None and effect.touches:
        # Absolute paths only, as the protocol wants them; an editor decides what it opens.
        paths = [path for path, _ in effect.touches if path.startswith("/")]
        out["locations"] = [{"path": path} for path in paths]
    return out


def _kind(effect: Effect | None) -> str:
    if effect is None:
        return "other"
    if effect.is_script:
        return "execute"
    if effect.edited:
        return "edit"
    return "read" if effect.touches else "other"


def _result(event: SessionEvent, *, has_failed: bool) -> Object:
    text = text_of(event.payload)
    content = [{"type": "content", "content": {"type": "text", "text": text}}] if text else []
    return {
        "sessionUpdate": "tool_call_update",
        "toolCallId": _name(event),
        "status": "failed" if has_failed else "completed",
        "content": content,
        "rawOutput": event.payload,
    }
