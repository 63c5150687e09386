"""A session the way Qwen Code writes it."""

from __future__ import annotations

from datetime import datetime, timedelta

from thence.agents.qwen.handoff import files
from thence.agents.qwen.profile import PROFILE
from thence.agents.samples import Machine, by_forms, handoff_history_of, history, put

MODEL = "qwen3-coder-plus"


def write(machine: Machine, now: datetime) -> None:
    """Write a made-up session below a home."""
    call = by_forms(PROFILE.forms)
    story = history("qwen", "umlaut", machine, now - timedelta(hours=11), call)
    answers = iter([message for message in story.messages if message.tokens is not None])
    for name, records in files(handoff_history_of(story, MODEL)).items():
        for record in records:
            del record["forkedFrom"]
            if record["type"] == "assistant" and (tokens := next(answers).tokens):
                record["usageMetadata"] = {
                    "promptTokenCount": tokens.fresh + tokens.cached,
                    "cachedContentTokenCount": tokens.cached,
                    "candidatesTokenCount": tokens.output,
                    "totalTokenCount": sum(tokens),
                }
        put(machine.home / name, records)
