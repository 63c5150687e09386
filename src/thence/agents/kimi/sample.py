"""A session the way Kimi Code writes it."""

from __future__ import annotations

from datetime import datetime, timedelta

from thence.agents.kimi.handoff import files
from thence.agents.kimi.profile import PROFILE
from thence.agents.samples import (
    Machine,
    Record,
    by_forms,
    handoff_history_of,
    history,
    put,
    put_documents,
)

MODEL = "kimi-k2"


def write(machine: Machine, now: datetime) -> None:
    """Write a made-up session below a home."""
    call = by_forms(PROFILE.forms)
    story = history("kimi", "umlaut", machine, now - timedelta(hours=50), call)
    answers = iter([message for message in story.messages if message.tokens is not None])
    for path, records in put_documents(machine.home, files(handoff_history_of(story, MODEL))):
        events: list[Record] = []
        for event in records:
            event.pop("handedFrom", None)
            event.pop("thenceHandoff", None)
            if event.get("event", {}).get("type") == "step.end" and (
                tokens := next(answers).tokens
            ):
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
