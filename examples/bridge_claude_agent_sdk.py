"""A store of the Claude Agent SDK on thence, with checkpoints of files.

    python examples/bridge_claude_agent_sdk.py HOME     everything is kept below HOME

In your program: `ClaudeAgentOptions(session_store=JournalSessionStore(thence.Journal()))`. Here
the client is a script, so that it runs offline: it appends what a client mirrors to its store.
Needs `pip install 'thence[claude-sdk]'`.
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


def said(role: str, text: str, parent: str | None) -> dict[str, Any]:
    """An entry as the client writes it."""
    message = {"role": role, "content": [{"type": "text", "text": text}]}
    when = "2026-11-15T13:12:00.000Z"
    known = {"type": role, "uuid": str(uuid4()), "parentUuid": parent, "timestamp": when}
    return {**known, "isSidechain": False, "message": message}


async def main(home: str, work: Path) -> None:
    """Mirror a turn, save a file before an edit, and let the SDK read the session back."""
    (work / "tide.txt").write_text("low\n")
    store = JournalSessionStore(thence.Journal(home), cwd=work)
    key = {"project_key": project_key_for_directory(work), "session_id": str(uuid4())}
    prompt = said("user", "Make it high tide.", None)
    await store.append(key, [prompt])

    session = await store.session(key)  # ours, on the same log
    before = session.checkpoint([work / "tide.txt"])
    (work / "tide.txt").write_text("high\n")
    await store.append(key, [said("assistant", "It is high tide.", prompt["uuid"])])
    session.rewind_files(before)
    session.close()

    named = {"directory": str(work)}
    (info, *_) = await list_sessions_from_store(store, **named)
    messages = await get_session_messages_from_store(store, info.session_id, **named)
    print("session", info.summary, "·", len(messages), "messages")
    print("file   ", (work / "tide.txt").read_text().strip())
    await store.aclose()


if __name__ == "__main__":
    folder = Path(sys.argv[1], "work")
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(sys.argv[1], folder))
