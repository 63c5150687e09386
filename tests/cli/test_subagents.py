"""Subagents of Claude Code, whether their own logs are there or only their parent's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.agents.transcripts import A, Script, usage
from tests.cli.desk import Desk

AGENT = "a102bdd"
MODEL = "claude-sonnet-4-5"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine without sessions."""
    return Desk(tmp_path, monkeypatch)


def helper() -> Script:
    """What the subagent says: it looks around and answers."""
    log = Script(name="s", isSidechain=True, agentId=AGENT)
    log.user("Look for the quillfern.")
    look = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls brackenloft"}}
    for output in (1, 400):  # the client tells a response twice, the bill growing
        block = {"type": "text", "text": "I look."} if output == 1 else look
        bill = usage(output, input_tokens=1000)
        log.reply([block], id="msg_s", request="req_s", usage=bill, model=MODEL)
    log.result("t1", "a marshlamp")
    log.say("It is in the copperweir.", usage=usage(100, input_tokens=2000), model=MODEL)
    return log


def parent(side: Script) -> Script:
    """A session that starts the subagent and writes down all that it says."""
    log = Script()
    log.user("Ask somebody.")
    log.call("task", "Task", prompt="Look for the quillfern.", description="look")
    for record in side.records:
        names = ("type", "message", "uuid", "timestamp", "requestId")
        message = {name: record[name] for name in names if name in record}
        data = {"type": "agent_progress", "agentId": AGENT, "message": message, "prompt": "Look."}
        log.add("progress", data=data, parentToolUseID="task", toolUseID="agent_msg")
    log.result("task", "It is in the copperweir.")
    log.say("Somebody says it is there.", usage=usage(50, input_tokens=500), model=MODEL)
    return log


def write_log(desk: Desk, side: Script) -> None:
    """Write the subagent's own log where the client does."""
    folder = next(desk.claude.rglob(f"{A}.jsonl")).with_suffix("") / "subagents"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"agent-{AGENT}.jsonl").write_bytes(side.data)


def report_of(desk: Desk) -> dict[str, Any]:
    """Return what the commands say of the subagent: its cost, its events, where words are found."""
    desk.sweep()
    cost = desk.run("cost", "--json").json["total"]
    tree = desk.run("tree", A, "--json").json
    words = ("marshlamp", "copperweir", "brackenloft")
    return {
        "responses": cost["responses"],
        "subagents_usd": round(cost["subagents_usd"], 6),
        "tokens": cost["tokens"],
        "subagents": [(subagent["channel"], subagent["events"]) for subagent in tree["subagents"]],
        "found": [word for word in words if desk.run("search", word, "--json").json["hits"]],
    }


def test_a_subagent_of_which_only_the_parent_tells_is_there_whole(desk: Desk) -> None:
    """Its messages, calls and bills are the same as with its own log: shown, found, paid once."""
    side = helper()
    folder = desk.write_claude(parent(side))
    alone = report_of(desk)
    shown = desk.run("show", A, "--branch", "all").out
    from_file = desk.run("show", str(folder / f"{A}.jsonl"), "--branch", "all").out
    write_log(desk, side)
    with_log = report_of(desk)

    assert 3 == alone["responses"]
    assert 0 < alone["subagents_usd"]
    assert [(f"agent:{AGENT}", 5)] == alone["subagents"]
    assert ["marshlamp", "copperweir", "brackenloft"] == alone["found"]
    assert "ls brackenloft" in shown
    assert "ls brackenloft" in from_file
    assert alone == with_log


@pytest.mark.slow
@pytest.mark.parametrize("log_after", [0, 4, 9])
def test_a_log_that_grows_tells_the_same(desk: Desk, log_after: int) -> None:
    """Swept line by line, whenever the subagent's own log appears, if it ever does."""
    side = helper()
    path = desk.write_claude(parent(side)) / f"{A}.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"")
    for number, line in enumerate(lines):
        with path.open("ab") as log:
            log.write(line)
        if number == log_after:
            write_log(desk, side)
        desk.sweep()
    seen = report_of(desk)

    assert (3, [(f"agent:{AGENT}", 5)]) == (seen["responses"], seen["subagents"])
    assert ["marshlamp", "copperweir", "brackenloft"] == seen["found"]
