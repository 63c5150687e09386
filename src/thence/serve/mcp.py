"""The MCP server over HTTP on loopback: agents ask their own past. `stdio` is the usual one.

Only a coat around `questions`, in the words of the official package: tools with small schemas,
all but one marked as reading only, answers as one text each. The gate of `thence serve` stands
before it: exact host, no other origin, a bearer token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from anyio import to_thread
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from thence.errors import ThenceError
from thence.serve.questions import Questions
from thence.serve.stdio import INSTRUCTIONS, tool_list
from thence.serve.untrusted_text import flatten

if TYPE_CHECKING:
    from thence.serve.auth import ASGIApp, AuthMiddleware

PATH: Final = "/mcp"


def tools() -> list[types.Tool]:
    """Describe every question, in the words of the official package."""
    return [types.Tool.model_validate(tool) for tool in tool_list()]


def server(questions: Questions, version: str) -> Server[Any]:
    """Make the server of these questions."""
    described = tools()

    async def list_tools(
        _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=described)

    async def call_tool(
        _: ServerRequestContext[Any], asked: types.CallToolRequestParams
    ) -> types.CallToolResult:
        try:
            text = await to_thread.run_sync(questions.answer, asked.name, asked.arguments or {})
        except ThenceError as error:
            hint = f"; {error.hint}" if error.hint else ""
            return _tool_result(flatten(f"{error.message}{hint}", 400), failed=True)
        return _tool_result(text)

    return Server(
        "thence",
        version=version,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _tool_result(text: str, *, failed: bool = False) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], is_error=failed
    )


def over_http(made: Server[Any], gate: AuthMiddleware) -> ASGIApp:
    """Return the application that answers over HTTP, behind the gate."""
    app = made.streamable_http_app(
        streamable_http_path=PATH, json_response=True, stateless_http=True, host=gate.host
    )
    return gate.around(app)
