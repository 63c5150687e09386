"""The MCP server over HTTP on loopback: agents ask their own past. `stdio` is the usual one.

It is the same server: a message comes in a POST, its answer is the response. Requests are
independent, so there are no sessions of the protocol. The gate of `thence serve` stands before it:
exact host, no other origin, a bearer token.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final

from thence.serve.stdio import ENVELOPE_VERSIONS, HANDSHAKE_VERSIONS

if TYPE_CHECKING:
    from thence.serve.auth import ASGIApp, AuthMiddleware, Receive, Scope, Send
    from thence.serve.stdio import StdioServer

PATH: Final = "/mcp"
MAX_MESSAGE_BYTES: Final = 1 << 20
"""A question is a line or two; a client that sends more wants memory."""
_VERSIONS: Final = {version.encode() for version in (*HANDSHAKE_VERSIONS, *ENVELOPE_VERSIONS)}


def over_http(server: StdioServer, gate: AuthMiddleware) -> ASGIApp:
    """Return the application that answers over HTTP, behind the gate."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            status, body = _refusal(scope), b""
            if not status:
                status, body = await _answer(server, receive)
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    return gate.around(app)


def _refusal(scope: Scope) -> int:
    """Return the status with which a request is refused before it is read; 0 if it is not."""
    headers = {name.lower(): value for name, value in scope["headers"]}
    if scope["path"] != PATH:
        return 404
    if scope["method"] != "POST":
        return 405
    if headers.get(b"content-type", b"").partition(b";")[0].strip() != b"application/json":
        return 415
    return 400 if headers.get(b"mcp-protocol-version") not in (None, *_VERSIONS) else 0


async def _answer(server: StdioServer, receive: Receive) -> tuple[int, bytes]:
    """Read a message and return the status and the body of its answer."""
    message = bytearray()
    has_more = True
    while has_more:
        part = await receive()
        message += part.get("body", b"")
        has_more = part.get("more_body", False)
        if len(message) > MAX_MESSAGE_BYTES:
            return 413, b""
    answer = await asyncio.to_thread(server.answer, bytes(message))
    if answer is None:  # a notification
        return 202, b""
    return 200, json.dumps(answer, ensure_ascii=False).encode()
