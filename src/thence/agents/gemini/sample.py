"""A session the way Gemini CLI writes it."""

from __future__ import annotations

from datetime import datetime, timedelta

from thence.agents.gemini.handoff import files
from thence.agents.gemini.profile import PROFILE
from thence.agents.samples import Machine, by_forms, handoff_history_of, history, put

MODEL = "gemini-2.5-pro"


def write(machine: Machine, now: datetime) -> None:
    """Write a made-up session below a home, and the client's name for its project."""
    call = by_forms(PROFILE.forms)
    story = history("gemini", "lamp", machine, now - timedelta(hours=26), call)
    answers = iter([message for message in story.messages if message.tokens is not None])
    for name, lines in files(handoff_history_of(story, MODEL)).items():
        for line in lines:
            line.pop("handedFrom", None)
            line.pop("thenceHandoff", None)
            if line.get("type") == "gemini" and (tokens := next(answers).tokens):
                line["tokens"] = {
                    "input": tokens.fresh + tokens.cached,
                    "cached": tokens.cached,
                    "output": tokens.output,
                    "thoughts": 0,
                    "tool": 0,
                    "total": sum(tokens),
                }
        put(machine.home / name, lines)
        project = (machine.home / name).parents[1]
        (project / ".project_root").write_text(story.cwd)
