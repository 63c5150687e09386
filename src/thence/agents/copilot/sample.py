"""A session the way Copilot CLI writes it."""

from __future__ import annotations

from datetime import datetime, timedelta

from thence.agents.copilot.handoff import files
from thence.agents.samples import (
    Machine,
    Record,
    handoff_history_of,
    history,
    made_id,
    put,
    written_logs,
)

MODEL = "gpt-5.5"


def write(machine: Machine, now: datetime) -> None:
    """Write a made-up session below a home."""
    story = history("copilot", "lamp", machine, now - timedelta(hours=31))
    bills = story.bills()
    for path, records in written_logs(machine.home, files(handoff_history_of(story, MODEL))):
        events: list[Record] = []
        for event in records:
            if event["type"] == "tool.execution_complete":
                code = story.exit_codes[event["data"]["toolCallId"]]
                event["data"] |= {"success": True, "shellExecution": {"exitCode": code}}
            events.append(event)
            if event["type"] == "assistant.message":
                tokens = next(bills)
                usage = {
                    "inputTokens": tokens.fresh + tokens.cached,
                    "cacheReadTokens": tokens.cached,
                    "cacheWriteTokens": 0,
                    "outputTokens": tokens.output,
                    "model": MODEL,
                    "accounting": {"sourceSessionId": story.session, "sequence": len(events)},
                }
                bill = {"type": "session.usage_record", "data": {"usage": usage}}
                place = {"id": made_id(f"{event['id']} bill"), "timestamp": event["timestamp"]}
                events.append({**bill, **place, "parentId": event["id"]})
        put(path, events)
