"""A model on loopback: answers what a test scripted, in the words of two APIs.

`Models(answers)` listens on 127.0.0.1. A request that holds the prompt is answered by the answer
whose number is that of the tool results the request already holds: so the server keeps no state
about a conversation. Other questions of a client (titles, quotas) get `ok`. The first request for
each answer is kept: it is what the model was told. Some clients ask again when all is over, for a
line about the session, or not, as time allows.
"""

from __future__ import annotations

import gzip
import itertools
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

PORT = 8765


class Call(NamedTuple):
    """An answer that asks for a tool."""

    tool: str
    given: dict[str, Any]
    server: str = ""
    """The namespace of a server's tool, where an API knows such."""


Answer = str | Call


class Models(ThreadingHTTPServer):
    """The server; `before` is called with the number of the answer that comes next."""

    daemon_threads = True

    def __init__(
        self, prompt: str, answers: Sequence[Answer], before: Callable[[int], None]
    ) -> None:
        super().__init__(("127.0.0.1", PORT), _Handler)
        self.asked: dict[int, dict[str, Any]] = {}
        self.numbers = itertools.count(1)
        self._prompt, self._answers, self._before = prompt, answers, before
        self._turn = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def answer(self, body: dict[str, Any]) -> Answer:
        """Give what is said to a request."""
        told = json.dumps(body)
        if self._prompt not in told or not body.get("tools"):
            return "ok"
        at = min(_results(body), len(self._answers) - 1)
        with self._turn:
            if at not in self.asked:
                self.asked[at] = body
                self._before(at)
        return self._answers[at]


def _results(body: dict[str, Any]) -> int:
    """Count the tool results of a request, in either API."""
    items = body.get("input")
    if isinstance(items, list):
        return sum(str(one.get("type", "")).endswith("_call_output") for one in items)
    said = [m["content"] for m in body.get("messages", []) if isinstance(m.get("content"), list)]
    return sum(block.get("type") == "tool_result" for blocks in said for block in blocks)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Models

    def log_message(self, *_: Any) -> None:
        """Say nothing: what is printed here would be taken for the client's."""

    def do_HEAD(self) -> None:
        """Be there."""
        self._json({})

    def do_GET(self) -> None:
        """Tell which models there are."""
        self._json({"object": "list", "data": [{"id": "made-up", "object": "model"}]})

    def do_POST(self) -> None:
        """Answer a request."""
        body = self._body()
        path = self.path.partition("?")[0]
        number = next(self.server.numbers)
        if path.endswith("/v1/messages"):
            self._stream(_messages(body, self.server.answer(body), number))
        elif path.endswith("/responses"):
            self._stream(_responses(body, self.server.answer(body), number))
        elif path.endswith("/count_tokens"):
            self._json({"input_tokens": 100})
        else:
            self._json({})

    def _body(self) -> dict[str, Any]:
        raw = b"".join(self._pieces())
        if self.headers.get("content-encoding") == "gzip":
            raw = gzip.decompress(raw)
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            return {}
        return body if isinstance(body, dict) else {}

    def _pieces(self) -> Iterator[bytes]:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            yield self.rfile.read(int(self.headers.get("content-length") or 0))
            return
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _json(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _stream(self, events: Iterator[dict[str, Any]]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        for event in events:
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()


def _messages(body: dict[str, Any], answer: Answer, number: int) -> Iterator[dict[str, Any]]:
    """Tell an answer as the Messages API streams it."""
    usage = {"input_tokens": 12, "output_tokens": 42}
    head = {
        "id": f"msg_{number:04}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model", "made-up"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    yield {"type": "message_start", "message": head}
    if isinstance(answer, str):
        block: dict[str, Any] = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": answer}
    else:
        block = {"type": "tool_use", "id": f"toolu_{number:04}", "name": answer.tool, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(answer.given)}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    stop = {"stop_reason": "end_turn" if isinstance(answer, str) else "tool_use"}
    yield {"type": "message_delta", "delta": stop, "usage": usage}
    yield {"type": "message_stop"}


def _responses(body: dict[str, Any], answer: Answer, number: int) -> Iterator[dict[str, Any]]:
    """Tell an answer as the Responses API streams it."""
    count = itertools.count()

    def event(kind: str, **more: Any) -> dict[str, Any]:
        return {"type": kind, "sequence_number": next(count), **more}

    name = f"resp_{number:04}"
    base = {"id": name, "object": "response", "created_at": 0, "model": body.get("model")}
    item: dict[str, Any]
    if isinstance(answer, str):
        text = {"type": "output_text", "text": answer, "annotations": []}
        item = {"type": "message", "role": "assistant", "content": [text]}
        start = {**item, "content": []}
        steps = [event("response.output_text.delta", content_index=0, delta=answer)]
    else:
        given = json.dumps(answer.given)
        call = {"type": "function_call", "call_id": f"call_{number:04}", "name": answer.tool}
        if answer.server:
            call["namespace"] = answer.server
        item, start = {**call, "arguments": given}, {**call, "arguments": ""}
        steps = [event("response.function_call_arguments.delta", delta=given)]
    mark = {"id": f"item_{number:04}", "status": "completed"}
    yield event("response.created", response={**base, "status": "in_progress", "output": []})
    yield event("response.output_item.added", output_index=0, item={**start, **mark})
    yield from ({**step, "item_id": mark["id"], "output_index": 0} for step in steps)
    yield event("response.output_item.done", output_index=0, item={**item, **mark})
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 110,
    }
    done = {**base, "status": "completed", "output": [{**item, **mark}], "usage": usage}
    yield event("response.completed", response=done)
