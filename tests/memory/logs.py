"""Made-up sessions of Claude Code on disk, for sweeps."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tests.agents.transcripts import Script, usage

WORDS = (
    *("harbour", "lantern", "cobble", "thistle", "marble", "orchard", "ferry", "copper"),
    *("willow", "saffron", "tundra", "velvet", "anchor", "bramble", "cinder", "dapple"),
)

DERIVED = ("error", "test_run", "edit", "retry", "human_intervention", "completion")
"""Kinds of events that others imply."""


def name(number: int) -> str:
    """The id of a session."""
    return f"{number:08x}-0000-4000-8000-000000000000"


def script(number: int, turns: int = 3, seed: int = 0, **frame: Any) -> Script:
    """A session: prompts, calls with results, answers with bills, a branch left behind."""
    chance = random.Random(seed * 1000 + number)
    made = Script(name(number), f"s{number}-", **frame)
    back = ""
    for turn in range(turns):
        more: dict[str, Any] = {"parentUuid": back} if back and chance.random() < 0.3 else {}
        made.user(some_words(chance, 12), **more)
        call = f"c{number}-{turn}"
        made.reply(
            [{"type": "tool_use", "id": call, "name": "Bash", "input": {"command": "make test"}}],
            stop="tool_use",
            usage=usage(chance.randrange(1, 99), cache_read_input_tokens=chance.randrange(9000)),
        )
        made.result(call, some_words(chance, 60), wrong=chance.random() < 0.2)
        made.reply(
            [{"type": "text", "text": some_words(chance, 20)}],
            stop="end_turn",
            usage=usage(chance.randrange(1, 99)),
        )
        back = made.records[-1]["uuid"]
    return made


def trials(number: int) -> Script:
    """A session of every kind of event: work that fails, is tried again, stopped and finished."""
    made = Script(name(number), f"t{number}-")
    made.user("Please mend the lantern.")
    thought = {"type": "thinking", "thinking": "The wick of the lantern, then.", "signature": "s"}
    made.reply([thought])
    made.call("edit-1", "Edit", file_path="/p/lantern.py", old_string="wax", new_string="oil")
    made.result("edit-1", "String to replace not found: lantern wax", wrong=True)
    made.call("test-1", command="pytest tests/test_lantern.py")
    made.result("test-1", "Exit code 1\nlantern: 1 failed, 2 passed in 0.1s", wrong=True)
    made.user("Look at the lantern oil first.")  # while the agent is at work
    made.call("edit-2", "Edit", file_path="/p/lantern.py", old_string="wick", new_string="oil")
    made.result("edit-2", "The file /p/lantern.py has been updated.")
    made.say("The lantern burns oil now.")
    made.call("test-2", command="pytest tests/test_lantern.py")
    made.result("test-2", "3 passed in 0.1s, lantern included")
    made.call("push-1", command="git push origin lantern")
    made.result("push-1", "", wrong=True)  # nothing but the mark that it failed
    made.call("push-2", command="git push origin lantern")
    refused = "The user doesn't want to proceed with this tool use. The tool use was rejected"
    made.result("push-2", refused, wrong=True)
    made.add("system", subtype="informational", content="The lantern was left burning.")
    made.say("The lantern is mended.")
    return made


def fork(number: int, parent: Script, at: int, turns: int = 2) -> Script:
    """A session that begins with copies of another's first records, as older clients fork."""
    made = script(number, turns)
    for record in made.records:
        record["timestamp"] = record["timestamp"].replace("2026-01-01", "2026-01-02")
    copies = [{**record, "sessionId": made.session} for record in parent.records[:at]]
    if copies and made.records:
        made.records[0]["parentUuid"] = copies[-1].get("uuid")
    made.records[:0] = copies
    return made


def some_words(chance: random.Random, count: int) -> str:
    """Some words."""
    return " ".join(chance.choices(WORDS, k=count))


def write(home: Path, *scripts: Script, project: str = "-home-dev-project") -> None:
    """Write sessions into a configuration folder."""
    folder = home / "projects" / project
    folder.mkdir(parents=True, exist_ok=True)
    for log in scripts:
        path(home, log, project).write_bytes(log.data)


def path(home: Path, log: Script, project: str = "-home-dev-project") -> Path:
    """Where a session lies."""
    return home / "projects" / project / f"{log.session}.jsonl"
