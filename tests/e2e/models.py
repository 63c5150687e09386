"""A model on loopback: answers what a test scripted, in the words of four APIs.

`Models(script)` listens on 127.0.0.1. A request is answered by the script of the last prompt that
it holds, by the answer whose number is that of the tool results after that prompt: so the server
keeps no state about a conversation. Other questions of a client (titles, quotas) get `ok`. The
first request for each answer is kept: it is what the model was told. Some clients ask again when
all is over, for a line about the session, or not, as time allows. Every answer is billed, no two
alike, and `bills` has what was billed.
"""

from __future__ import annotations

import gzip
import itertools
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

PORT = 8765


class Call(NamedTuple):
    """An answer that asks for a tool."""

    tool: str
    arguments: dict[str, Any]
    server: str = ""
    """The namespace of a server's tool, where an API knows such."""


Answer = str | Call


Item = dict[str, Any]


class Models(ThreadingHTTPServer):
    """The server; `before` is called with the number of the answer that comes next."""

    daemon_threads = True

    def __init__(
        self,
        script: Mapping[str, Sequence[Answer]],
        before: Callable[[int], None],
        *,
        needs_tools: bool = True,
    ) -> None:
        super().__init__(("127.0.0.1", PORT), _Handler)
        self.asked: dict[tuple[str, int], Item] = {}
        self.bills: list[Item] = []
        self.numbers = itertools.count(1)
        self._script, self._before, self._needs_tools = script, before, needs_tools
        self._turn = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def answer(self, body: Item) -> Answer:
        """Return what is said to a request."""
        items = _items(body)
        last = {prompt: _place(prompt, items) for prompt in self._script}
        prompt = max(last, key=last.__getitem__, default="")
        if last.get(prompt, -1) < 0 or (self._needs_tools and not body.get("tools")):
            return "ok"
        answers = self._script[prompt]
        at = min(sum(map(_results, items[last[prompt] :])), len(answers) - 1)
        with self._turn:
            if (prompt, at) not in self.asked:
                self.asked[prompt, at] = body
                self._before(at)
        return answers[at]

    def bill(self, answer: Answer, number: int) -> Bill:
        """Return what a request costs, and note it."""
        bill = Bill(1000 + 37 * number, 111 * number if number % 2 else 0, 20 + 3 * number)
        side = answer == "ok"
        with self._turn:
            self.bills.append({"side": side, **bill._asdict()})
        return bill


class Bill(NamedTuple):
    """Tokens of a request: `input` includes what the cache gave."""

    input: int
    cached: int
    output: int


def _items(body: Item) -> list[Item]:
    """Return the messages of a request, in any API."""
    listed = body.get("input") or body.get("messages") or body.get("contents") or []
    if isinstance(listed, str):
        return [{"role": "user", "content": listed}]
    return [item for item in listed if isinstance(item, dict)]


def _place(prompt: str, items: list[Item]) -> int:
    """Return the place of the last message of the user that holds a prompt; -1 for none."""
    places = (
        number
        for number, item in enumerate(items)
        if item.get("role") == "user" and prompt in json.dumps(item, ensure_ascii=False)
    )
    return max(places, default=-1)


def _results(item: Item) -> int:
    """Count the tool results of a message, in any API."""
    if str(item.get("type", "")).endswith("_call_output") or item.get("role") == "tool":
        return 1
    parts = item.get("content") or item.get("parts")
    if not isinstance(parts, list):
        return 0
    blocks = [part for part in parts if isinstance(part, dict)]
    return sum(part.get("type") == "tool_result" or "functionResponse" in part for part in blocks)


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
        if path.endswith(("/count_tokens", ":countTokens")):
            self._json({"input_tokens": 100, "totalTokens": 100})
            return
        form = next((form for end, form in _FORMS.items() if path.endswith(end)), None)
        if form is None:
            self._json({})
            return
        answer = self.server.answer(body)
        bill = self.server.bill(answer, number)
        events = form(body, answer, number, bill)
        if path.endswith(":generateContent"):
            self._json(next(events))
        elif path.endswith("/chat/completions") and not body.get("stream"):
            self._json(_completed(body, answer, number, bill))
        else:
            self._stream(events, path)

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

    def _stream(self, events: Iterator[Item], path: str) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        for event in events:
            name = f"event: {event['type']}\n" if "type" in event else ""
            self.wfile.write(f"{name}data: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()
        if path.endswith("/chat/completions"):
            self.wfile.write(b"data: [DONE]\n\n")


def _messages(body: Item, answer: Answer, number: int, bill: Bill) -> Iterator[Item]:
    """Yield an answer as the Messages API streams it."""
    usage = {
        "input_tokens": bill.input - bill.cached,
        "cache_read_input_tokens": bill.cached,
        "output_tokens": bill.output,
    }
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
        delta = {"type": "input_json_delta", "partial_json": json.dumps(answer.arguments)}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    stop = {"stop_reason": "end_turn" if isinstance(answer, str) else "tool_use"}
    yield {"type": "message_delta", "delta": stop, "usage": usage}
    yield {"type": "message_stop"}


def _responses(body: Item, answer: Answer, number: int, bill: Bill) -> Iterator[Item]:
    """Yield an answer as the Responses API streams it."""
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
        encoded = json.dumps(answer.arguments)
        call = {"type": "function_call", "call_id": f"call_{number:04}", "name": answer.tool}
        if answer.server:
            call["namespace"] = answer.server
        item, start = {**call, "arguments": encoded}, {**call, "arguments": ""}
        steps = [event("response.function_call_arguments.delta", delta=encoded)]
    mark = {"id": f"item_{number:04}", "status": "completed"}
    yield event("response.created", response={**base, "status": "in_progress", "output": []})
    yield event("response.output_item.added", output_index=0, item={**start, **mark})
    yield from ({**step, "item_id": mark["id"], "output_index": 0} for step in steps)
    yield event("response.output_item.done", output_index=0, item={**item, **mark})
    usage = {
        "input_tokens": bill.input,
        "input_tokens_details": {"cached_tokens": bill.cached},
        "output_tokens": bill.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": bill.input + bill.output,
    }
    done = {**base, "status": "completed", "output": [{**item, **mark}], "usage": usage}
    yield event("response.completed", response=done)


def _usage(bill: Bill) -> Item:
    return {
        "prompt_tokens": bill.input,
        "completion_tokens": bill.output,
        "total_tokens": bill.input + bill.output,
        "prompt_tokens_details": {"cached_tokens": bill.cached},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def _message(answer: Answer, number: int) -> tuple[Item, str]:
    """Return a message of the Chat Completions API, and why it ends."""
    if isinstance(answer, str):
        return {"role": "assistant", "content": answer}, "stop"
    function = {"name": answer.tool, "arguments": json.dumps(answer.arguments)}
    call = {"index": 0, "id": f"call_{number:04}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"


def _chat(body: Item, answer: Answer, number: int, bill: Bill) -> Iterator[Item]:
    """Yield an answer as the Chat Completions API streams it."""
    base = {
        "id": f"chatcmpl-{number:04}",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": body.get("model"),
    }
    message, reason = _message(answer, number)
    yield {**base, "choices": [{"index": 0, "delta": message, "finish_reason": None}]}
    yield {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    yield {**base, "choices": [], "usage": _usage(bill)}


def _completed(body: Item, answer: Answer, number: int, bill: Bill) -> Item:
    """Return an answer of the Chat Completions API that is not streamed."""
    message, reason = _message(answer, number)
    return {
        "id": f"chatcmpl-{number:04}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": body.get("model"),
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": _usage(bill),
    }


def _gemini(_: Item, answer: Answer, number: int, bill: Bill) -> Iterator[Item]:
    """Yield an answer as the Gemini API has it, in one piece."""
    part: Item = {"text": answer} if isinstance(answer, str) else {}
    if not isinstance(answer, str):
        call = {"id": f"call_{number:04}", "name": answer.tool, "args": answer.arguments}
        part = {"functionCall": call}
    content = {"role": "model", "parts": [part]}
    yield {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {
            "promptTokenCount": bill.input,
            "cachedContentTokenCount": bill.cached,
            "candidatesTokenCount": bill.output,
            "totalTokenCount": bill.input + bill.output,
        },
        "modelVersion": "made-up",
        "responseId": f"resp_{number:04}",
    }


_FORMS: dict[str, Callable[[Item, Answer, int, Bill], Iterator[Item]]] = {
    "/v1/messages": _messages,
    "/responses": _responses,
    "/chat/completions": _chat,
    ":streamGenerateContent": _gemini,
    ":generateContent": _gemini,
}
