"""A session the way OpenCode keeps it: rows of its database, and the events that tell of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from thence.agents.opencode.handoff import files
from thence.agents.samples import (
    Machine,
    Record,
    SampleHistory,
    handoff_history_of,
    history,
    put_rows,
)

MODEL = "glm-4.6"
SCHEMA = """
CREATE TABLE session (id text PRIMARY KEY, project_id text, parent_id text, directory text NOT NULL,
  title text NOT NULL, version text NOT NULL, revert text, time_created integer NOT NULL,
  time_updated integer NOT NULL);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
  time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
  time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE event_sequence (aggregate_id text PRIMARY KEY, seq integer NOT NULL, owner_id text);
CREATE TABLE event (id text PRIMARY KEY, aggregate_id text NOT NULL, seq integer NOT NULL,
  type text NOT NULL, data text NOT NULL);
CREATE UNIQUE INDEX event_aggregate_seq_idx ON event (aggregate_id, seq);
"""


def write(machine: Machine, now: datetime) -> None:
    """Write a made-up session below a home."""
    story = history("opencode", "lamp", machine, now - timedelta(hours=4))
    write_rows(machine.home / "opencode.db", story)


def write_rows(path: Path, story: SampleHistory) -> None:
    """Write a database with one session."""
    put_rows(path, SCHEMA, _rows(story))


def _rows(story: SampleHistory) -> Iterator[tuple[str, Record]]:
    session = f"ses_{story.session.replace('-', '')[:26]}"
    bound = handoff_history_of(story._replace(session=session), MODEL, "zai")
    ((document,),) = files(bound).values()
    info = {**document["info"], "time": {"created": story.messages[0].millis}}
    yield (
        "session",
        {
            "id": session,
            "directory": story.cwd,
            "title": story.title,
            "version": info["version"],
            "time_created": story.messages[0].millis,
            "time_updated": story.messages[-1].millis,
        },
    )
    events: list[tuple[str, Record]] = [("session.created.1", {"info": info})]
    words = [message for message in story.messages if message.content[0]["type"] != "tool_result"]
    for message, written in zip(words, document["messages"], strict=True):
        frame, parts = written["info"], written["parts"]
        _pace(frame, parts, story, message.millis)
        if message.tokens is not None:
            tokens = message.tokens
            cache = {"read": tokens.cached, "write": 0}
            counts = {"input": tokens.fresh, "output": tokens.output, "reasoning": 0}
            frame["tokens"] = {**counts, "cache": cache}
        events.append(("message.updated.1", {"info": frame}))
        events += [("message.part.updated.1", {"part": part}) for part in parts]
    for number, (kind, data) in enumerate(events):
        place = {"id": f"evt_{session}_{number:03}", "aggregate_id": session, "seq": number}
        yield "event", {**place, "type": kind, "data": data}
    yield "event_sequence", {"aggregate_id": session, "seq": len(events) - 1}


def _pace(frame: Record, parts: list[Record], story: SampleHistory, millis: int) -> None:
    """Set the times of a message and its parts, and the exit codes of its calls."""
    frame["time"] = dict.fromkeys(frame["time"], millis)
    for part in parts:
        del part["metadata"]
        state: Record = part.get("state", {})
        for holder in (part, state):
            if "time" in holder:
                holder["time"] = {"start": millis, "end": millis + 1800}
        if part["type"] == "tool":
            output = state.pop("error", state.get("output"))
            state |= {"status": "completed", "output": output, "title": part["tool"]}
            state["metadata"] = {"exit": story.exit_codes[part["callID"]]}
