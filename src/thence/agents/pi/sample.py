"""A session the way pi writes it."""

from __future__ import annotations

from datetime import datetime, timedelta

from thence.agents.pi.handoff import files
from thence.agents.samples import Machine, Record, handoff_history_of, history, put, written_logs

MODEL = "claude-sonnet-4-5"


def write(machine: Machine, now: datetime) -> None:
    """Write a made-up session below a home."""
    story = history("pi", "neap", machine, now - timedelta(hours=7))
    bills = story.bills()
    bound = handoff_history_of(story, MODEL, "anthropic")
    for path, entries in written_logs(machine.home, files(bound)):
        for entry in entries:
            message: Record = entry.get("message", {})
            if message.get("role") == "assistant":
                tokens = next(bills)
                message["usage"] = {
                    "input": tokens.fresh,
                    "output": tokens.output,
                    "cacheRead": tokens.cached,
                    "cacheWrite": 0,
                    "totalTokens": sum(tokens),
                }
        put(path, entries)
