"""Real sessions of further agents, made on loopback: what the API billed stands beside them.

They lie outside the repository, in `../shared/data/agents`, and are only read; where they are
missing there are no such cases.
"""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from truth.case import Answers, Case, Usage

DATA = Path(__file__).resolve().parent.parent / ".." / "shared" / "data" / "agents"
UNLOGGED = {
    "gemini": ("compaction",),
    "pi": ("compaction",),
    "opencode": ("side",),
    "kilo": ("side",),
    "goose": ("side",),
    "hermes": ("unanswered",),
}
"""Kinds of request that no file of the client holds: nobody can count them."""
LOST_WHEN_KILLED = ("opencode", "goose", "continue")
"""Agents that write nothing of a request whose process was killed."""
KILLED_PROMPT = "Wait for the server"
THOUGHTS_BESIDE = ("gemini",)
"""Agents whose API bills thoughts beside the output, not as a part of it."""
ABOUT = {
    "tools": "a session with four calls, one of which fails",
    "resume": "a session that a second process goes on with",
    "resume-twice": "a session that a second and a third process go on with",
    "parallel": "two calls in one answer",
    "subagent": "a call that starts a subagent",
    "fork": "a session, and a second one that began as its copy",
    "compact": "a session whose history was compacted",
    "error": "a prompt that the API refuses",
    "killed": "a process that was killed in a call; a second one goes on",
    "revert": "a session whose last turn was taken back",
}


def usage(agent: str, scenario: str, requests: list[dict[str, Any]]) -> Usage:
    """Add up what the API billed, without the requests that no file holds."""
    total = Usage()
    for request in requests:
        lost = scenario == "killed" and agent in LOST_WHEN_KILLED
        if not request["completed"] or request["kind"] in UNLOGGED.get(agent, ()):
            continue
        if lost and request["rule"] == KILLED_PROMPT:
            continue
        tokens = request["usage"]
        thoughts = tokens["reasoning"] if agent in THOUGHTS_BESIDE else 0
        cached = tokens["cached"]
        total += Usage(
            tokens["input"] - cached,
            tokens["output"] + thoughts,
            read=cached,
            thought=tokens["reasoning"],
        )
    return total


def _plant(source: Path, home: Path) -> None:
    shutil.copytree(source, home, dirs_exist_ok=True)


def _case(folder: Path) -> Case:
    agent, scenario = folder.parent.name, folder.name
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    sessions = {"fork": 2, "subagent": None}.get(scenario, 1)
    return Case(
        agent,
        f"real {scenario}",
        ABOUT.get(scenario, scenario),
        partial(_plant, folder / "home"),
        Answers(sessions, usage(agent, scenario, truth["requests"])),
    )


CASES = tuple(_case(path.parent) for path in sorted(DATA.glob("*/*/truth.json")))
