"""A session the way pi writes it."""

from __future__ import annotations

from datetime import datetime, timedelta

from thence.agents.pi.handoff import files
from thence.agents.pi.profile import PROFILE
from thence.agents.samples import Machine, Record, by_forms, handoff_history_of, history, put

MODEL = "claude-sonnet-4-5"


def write(machine: Machine, now: datetime) -> None:
    """Write a made-up session below a home."""
    call = by_forms(PROFILE.forms)
    story = history("pi", "neap", machine, now - timedelta(hours=7), call)
    answers = iter([message for message in story.messages if message.tokens is not None])
    for name, entries in files(handoff_history_of(story, MODEL, "anthropic")).items():
        for entry in entries:
            entry.pop("handedFrom", None)
            entry.pop("thenceHandoff", None)
            message: Record = entry.get("message", {})
            if message.get("role") == "assistant" and (tokens := next(answers).tokens):
                message["usage"] = {
                    "input": tokens.fresh,
                    "output": tokens.output,
                    "cacheRead": tokens.cached,
                    "cacheWrite": 0,
                    "totalTokens": sum(tokens),
                }
        put(machine.home / name, entries)
