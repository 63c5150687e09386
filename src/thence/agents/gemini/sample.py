"""A session the way Gemini CLI writes it."""

from __future__ import annotations

from datetime import datetime, timedelta

from thence.agents.gemini.handoff import files
from thence.agents.samples import Machine, handoff_history_of, history, put, written_logs

MODEL = "gemini-2.5-pro"


def write(machine: Machine, now: datetime) -> None:
    """Write a made-up session below a home, and the client's name for its project."""
    story = history("gemini", "lamp", machine, now - timedelta(hours=26))
    bills = story.bills()
    for path, lines in written_logs(machine.home, files(handoff_history_of(story, MODEL))):
        for line in lines:
            if line.get("type") == "gemini":
                tokens = next(bills)
                line["tokens"] = {
                    "input": tokens.fresh + tokens.cached,
                    "cached": tokens.cached,
                    "output": tokens.output,
                    "thoughts": 0,
                    "tool": 0,
                    "total": sum(tokens),
                }
        put(path, lines)
        (path.parents[1] / ".project_root").write_text(story.cwd)
