"""An agent of the OpenAI Agents SDK with its session in thence: every run remembers the last one.

    python examples/bridge_openai_agents.py HOME     run it twice; everything is written below HOME

The model is a class, so that it runs offline. Requires `pip install 'thence[agents-sdk]'`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

import thence
from thence.bridge.openai_agents import JournalSession


class OfflineModel(Model):  # type: ignore[misc] # not installed everywhere
    """A model that replies with the number of items that it gets."""

    async def get_response(self, **request: Any) -> ModelResponse:
        """Return the reply; yours calls an API."""
        text = f"I remember {len(request['input'])} items."
        content = ResponseOutputText(text=text, type="output_text", annotations=[])
        message = ResponseOutputMessage(
            id="msg-1", content=[content], role="assistant", status="completed", type="message"
        )
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        """Raise: this example does not stream."""
        raise NotImplementedError


async def main(home: str) -> None:
    """Run one turn of the session "demo"."""
    set_tracing_disabled(disabled=True)
    session = JournalSession("demo", thence.Journal(home))
    agent = Agent(name="demo", model=OfflineModel())
    result = await Runner.run(agent, "Do you remember?", session=session)
    items = await session.get_items()
    print(f"agent:  {result.final_output}")
    print(f"stored: {len(items)} items in session {session.name[:8]}")
    await session.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
