"""Real sessions of further agents, recorded on loopback, with what the API billed.

They are outside the repository, in `../shared/data/agents`, and are only read; without that folder
there are no such cases.
"""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from truth.case import Answers, Case, Usage

DATA_FOLDER = Path(__file__).resolve().parent.parent / ".." / "shared" / "data" / "agents"
UNLOGGED_KINDS = {
    "gemini": ("compaction",),
    "pi": ("compaction",),
    "opencode": ("side",),
    "kilo": ("side",),
    "goose": ("side",),
    "hermes": ("unanswered",),
}
"""Kinds of requests that the client does not log, so that no tool can count them."""
AGENTS_THAT_LOSE_KILLED_REQUESTS = ("opencode", "goose", "continue")
"""Agents that log nothing of a request if the process is killed."""
KILLED_PROMPT = "Wait for the server"
AGENTS_WITH_SEPARATE_REASONING = ("gemini",)
"""Agents whose API bills reasoning in addition to the output, not as a part of it."""
DESCRIPTIONS = {
    "tools": "a session with four calls, one of which fails",
    "resume": "a session that a second process continues",
    "resume-twice": "a session that a second and a third process continue",
    "parallel": "two calls in one answer",
    "subagent": "a call that starts a subagent",
    "fork": "a session, and a second one that starts as its copy",
    "fork-twice": "a session whose two forks the client removed",
    "compact": "a session whose history was compacted",
    "compress-resume": "a session that compactions continue in two others",
    "error": "a prompt that the API refuses",
    "killed": "a process is killed in a call; a second one continues",
    "revert": "a session whose last turn was rewound",
}


def sum_usage(agent: str, scenario: str, requests: list[dict[str, Any]]) -> Usage:
    """Return the sum of what the API billed, without requests that are not logged."""
    total = Usage()
    for request in requests:
        loses_killed = scenario == "killed" and agent in AGENTS_THAT_LOSE_KILLED_REQUESTS
        is_billed = request.get("completed", request.get("delivered"))
        if not is_billed or request["kind"] in UNLOGGED_KINDS.get(agent, ()):
            continue
        if loses_killed and request["rule"] == KILLED_PROMPT:
            continue
        tokens = request["usage"]
        separate_reasoning = tokens["reasoning"] if agent in AGENTS_WITH_SEPARATE_REASONING else 0
        cached = tokens["cached"]
        total += Usage(
            tokens["input"] - cached,
            tokens["output"] + separate_reasoning,
            read=cached,
            reasoning=tokens["reasoning"],
        )
    return total


def _plant(source: Path, home: Path) -> None:
    shutil.copytree(source, home, dirs_exist_ok=True)


def _is_there(session: str | None, truth: dict[str, Any]) -> bool:
    """Return whether a session was still on the disk when the last process had ended."""
    runs = truth.get("runs") or [{}]
    return session in runs[-1].get("sessions_on_disk", [session])


def _case(folder: Path) -> Case:
    agent, scenario = folder.parent.name, folder.name
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    sessions = {"fork": 2, "compress-resume": 3, "subagent": None}.get(scenario, 1)
    requests = [r for r in truth["requests"] if _is_there(r.get("session"), truth)]
    return Case(
        agent,
        f"real {scenario}",
        DESCRIPTIONS.get(scenario, scenario),
        partial(_plant, folder / "home"),
        Answers(sessions, sum_usage(agent, scenario, requests)),
    )


CASES = tuple(_case(path.parent) for path in sorted(DATA_FOLDER.glob("*/*/truth.json")))
