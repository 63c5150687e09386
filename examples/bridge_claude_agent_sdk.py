"""The Claude Agent SDK stores its sessions in thence, and a file is restored from a checkpoint.

    python examples/bridge_claude_agent_sdk.py HOME     everything is written below HOME

In your program: `ClaudeAgentOptions(session_store=JournalSessionStore(thence.Journal()))`. To run
offline, this example has no client: it appends the entries that a client would send to the store.
Requires `pip install 'thence[claude-sdk]'`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

from claude_agent_sdk import (
    get_session_messages_from_store,
    list_sessions_from_store,
    project_key_for_directory,
)

import thence
from thence.bridge.claude_agent_sdk import JournalSessionStore


def make_entry(role: str, text: str, parent: str | None) -> dict[str, Any]:
    """Return a transcript entry as the client writes it."""
    return {
        "type": role,
        "uuid": str(uuid4()),
        "parentUuid": parent,
        "timestamp": "2026-11-15T13:12:00.000Z",
        "isSidechain": False,
        "message": {"role": role, "content": [{"type": "text", "text": text}]},
    }


async def main(home: str, workspace: Path) -> None:
    """Store a turn, undo its edit, and let the SDK read the session back."""
    file = workspace / "tide.txt"
    file.write_text("low\n")
    store = JournalSessionStore(thence.Journal(home), cwd=workspace)
    key = {"project_key": project_key_for_directory(workspace), "session_id": str(uuid4())}
    prompt = make_entry("user", "Make it high tide.", None)
    await store.append(key, [prompt])

    session = await store.session(key)  # the thence session on the same log
    checkpoint = session.checkpoint([file])
    file.write_text("high\n")
    await store.append(key, [make_entry("assistant", "It is high tide.", prompt["uuid"])])
    session.rewind_files(checkpoint)
    session.close()

    (info, *_) = await list_sessions_from_store(store, directory=str(workspace))
    messages = await get_session_messages_from_store(
        store, info.session_id, directory=str(workspace)
    )
    print(f"session: {info.summary}, {len(messages)} messages")
    print(f"file:    {file.read_text().strip()}")
    await store.aclose()


if __name__ == "__main__":
    folder = Path(sys.argv[1], "workspace")
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(sys.argv[1], folder))
