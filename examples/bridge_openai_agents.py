"""An agent of the OpenAI Agents SDK on thence: it remembers what earlier runs said.

    python examples/bridge_openai_agents.py HOME     run it once more; everything is below HOME

The model is a script, so that it runs offline. Needs `pip install 'thence[agents-sdk]'`.
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


class Scripted(Model):  # type: ignore[misc] # not installed everywhere
    """A model that says how much it was sent."""

    async def get_response(self, **given: Any) -> ModelResponse:
        """Answer; yours calls an API."""
        text = f"I remember {len(given['input'])} items."
        said = ResponseOutputText(text=text, type="output_text", annotations=[])
        message = ResponseOutputMessage(
            id="msg-1", content=[said], role="assistant", status="completed", type="message"
        )
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        """Stream nothing: this example does not ask for it."""
        raise NotImplementedError


async def main(home: str) -> None:
    """Run one turn of a session that lives as long as its home."""
    set_tracing_disabled(disabled=True)
    session = JournalSession("demo", thence.Journal(home))
    agent = Agent(name="demo", model=Scripted())
    result = await Runner.run(agent, "Do you remember?", session=session)
    print("agent ", result.final_output)
    print("kept  ", len(await session.get_items()), "items in", session.name[:8])
    await session.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
