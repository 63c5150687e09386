"""A Pydantic AI agent with its history in thence: it continues after a crash in a tool call.

    python examples/bridge_pydantic_ai.py HOME     run it twice; everything is written below HOME

The model is a function, so that it runs offline. Requires `pip install 'thence[pydantic-ai]'`.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel

import thence
from thence.bridge.pydantic_ai import JournalHistory


def call_model(messages: list[Any], _: Any) -> ModelResponse:
    """Reply with the number of messages so far; yours calls an API."""
    return ModelResponse(parts=[TextPart(f"I remember {len(messages)} messages.")])


async def main(home: str) -> None:
    """Run one turn. The first run starts with a tool call without a result, as after a crash."""
    history = JournalHistory("demo", thence.Journal(home))
    messages = await history.load()
    if not messages:
        prompt = ModelRequest(parts=[UserPromptPart("Deploy it.")])
        call = ToolCallPart("deploy", {"to": "prod"}, tool_call_id="c1")
        await history.add([prompt, ModelResponse(parts=[call])])
        messages = await history.load()  # the call now has a result, which says what happened
        print(f"result: {messages[-1].parts[0].content[:40]} ...")
    result = await Agent(FunctionModel(call_model)).run("What happened?", message_history=messages)
    await history.save(result.all_messages())
    print(f"agent:  {result.output}")
    print(f"stored: {len(await history.load())} messages in session {history.name[:8]}")
    await history.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
