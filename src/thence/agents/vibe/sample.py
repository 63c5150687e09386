"""A session the way Mistral Vibe writes it: a snapshot of all entries, and a card."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from hashlib import sha256

from thence.agents.samples import Machine, Record, SampleHistory, history, put_document

MODEL = "devstral-2"


def write(machine: Machine, now: datetime) -> None:
    """Write a made-up session below a home."""
    story = history("vibe", "neap", machine, now - timedelta(hours=125))
    folder = machine.home / "logs" / "session" / "unified" / story.session
    last, total = story.messages[-1].at, story.total()
    entries = list(_entries(story))
    chunk = sha256(json.dumps(entries, ensure_ascii=False).encode()).hexdigest()
    put_document(folder / "chunks" / f"{chunk}.json", entries, last)
    generation = f"{len(entries):016}"
    counts = {"inputTokens": total.fresh + total.cached, "cachedInputTokens": total.cached}
    usage = {"tokenUsage": {**counts, "outputTokens": total.output}}
    state: Record = {"snapshot": {"session": usage, "history": {"entries": []}}}
    place = folder / "generations" / generation
    put_document(place / "projection-state.json", state, last)
    put_document(place / "manifest.json", {"projection_state": {"chunks": [chunk]}}, last)
    current: Record = {"generation": generation, "snapshot_sequence": len(entries)}
    put_document(folder / "CURRENT", current, last)
    about: Record = {"environment": {"working_directory": story.cwd}, "title": story.title}
    about |= {"title_source": "auto", "config": {"active_model": MODEL, "model_name": MODEL}}
    put_document(folder / "meta.json", about, last)


def _entries(story: SampleHistory) -> Iterator[Record]:
    results = story.results()
    for number, message in enumerate(story.messages):
        block = message.content[0]
        times = {"createdAt": message.millis, "updatedAt": message.millis}
        frame = {"generationStatus": "completed", **times}
        if block["type"] == "text":
            source = "turn_start" if message.role == "user" else "harness"
            entry = {"id": f"message-{number}", "type": "message", "role": message.role}
            yield {**frame, **entry, "content": [block], "source": source}
        elif block["type"] == "tool_use":
            ended = results[block["id"]]
            code, text = story.exit_codes[block["id"]], ended.content[0]["content"]
            output = {"returncode": code, "stdout": text, "stderr": ""}
            success = {"type": "success", "structured_content": output}
            detail: Record = {
                "kind": "tool",
                "toolName": f"file_system.{block['name']}",
                "input": block["input"],
            }
            state = {"status": "completed", "decision": "execute", "output": success}
            call: Record = {"id": f"effect-{number}", "type": "effect", "detail": detail}
            yield {**frame, **call, "state": state, "updatedAt": ended.millis}
