"""A Pydantic AI agent on thence, killed in a tool call: the next run goes on all the same.

    python examples/bridge_pydantic_ai.py HOME     run it twice; everything is kept below HOME

The model is a script, so that it runs offline. Needs `pip install 'thence[pydantic-ai]'`.
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


def model(messages: list[Any], _: Any) -> ModelResponse:
    """Say how much was said so far; yours calls an API."""
    return ModelResponse(parts=[TextPart(f"I remember {len(messages)} messages.")])


async def main(home: str) -> None:
    """Begin with a call that nobody answers, as a crash leaves it; then go on."""
    history = JournalHistory("demo", thence.Journal(home))
    before = await history.load()
    if not before:
        crashed = ModelResponse(parts=[ToolCallPart("deploy", {"to": "prod"}, tool_call_id="c1")])
        await history.add([ModelRequest(parts=[UserPromptPart("Deploy it.")]), crashed])
        before = await history.load()
        print("mended", before[-1].parts[0].content[:40], "...")
    result = await Agent(FunctionModel(model)).run("What happened?", message_history=before)
    await history.save(result.all_messages())
    print("agent ", result.output)
    print("kept  ", len(await history.load()), "messages in", history.name[:8])
    await history.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
