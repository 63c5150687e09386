"""A session the way Qwen Code writes it."""

from __future__ import annotations

from datetime import datetime, timedelta

from thence.agents.qwen.handoff import files
from thence.agents.samples import Machine, handoff_history_of, history, put, written_logs

MODEL = "qwen3-coder-plus"


def write(machine: Machine, now: datetime) -> None:
    """Write a made-up session below a home."""
    story = history("qwen", "umlaut", machine, now - timedelta(hours=11))
    bills = story.bills()
    for path, records in written_logs(machine.home, files(handoff_history_of(story, MODEL))):
        for record in records:
            if record["type"] == "assistant":
                tokens = next(bills)
                record["usageMetadata"] = {
                    "promptTokenCount": tokens.fresh + tokens.cached,
                    "cachedContentTokenCount": tokens.cached,
                    "candidatesTokenCount": tokens.output,
                    "totalTokenCount": sum(tokens),
                }
        put(path, records)
