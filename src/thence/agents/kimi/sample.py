"""A session the way Kimi Code writes it."""

from __future__ import annotations

from datetime import datetime, timedelta

from thence.agents.kimi.handoff import files
from thence.agents.samples import Machine, Record, handoff_history_of, history, put, written_logs

MODEL = "kimi-k2"


def write(machine: Machine, now: datetime) -> None:
    """Write a made-up session below a home."""
    story = history("kimi", "umlaut", machine, now - timedelta(hours=50))
    bills = story.bills()
    for path, records in written_logs(machine.home, files(handoff_history_of(story, MODEL))):
        events: list[Record] = []
        for event in records:
            if event.get("event", {}).get("type") == "step.end":
                tokens = next(bills)
                usage = {
                    "inputOther": tokens.fresh,
                    "inputCacheRead": tokens.cached,
                    "inputCacheCreation": 0,
                    "output": tokens.output,
                }
                place = {"agentId": "main", "time": event["time"], "usageScope": "turn"}
                events.append({"type": "usage.record", "model": MODEL, "usage": usage, **place})
            events.append(event)
        put(path, events)
