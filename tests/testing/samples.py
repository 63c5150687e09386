"""Small made-up sessions of every built-in agent, for the suite that all adapters stand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import zstandard

from tests.agents import groks, rollouts
from thence.format import layout
from thence.testing import SAMPLE_SESSION, Draft, sample

CLAUDE = "11111111-0000-4000-8000-000000000001"
ANSWER = "The windows walk local time; one hour is skipped in spring."


def native(root: Path) -> None:
    """The sample in two segments, one sealed, a subagent, and a session that goes on from it."""
    folder = root / layout.SESSIONS / layout.project_id("/home/dev/tidepool")
    side = root / layout.SIDECHAINS / SAMPLE_SESSION
    for made in (folder, side):
        made.mkdir(parents=True)
    lines = sample().splitlines(keepends=True)
    sealed = zstandard.ZstdCompressor().compress(b"".join(lines[:12]))
    (folder / f"{SAMPLE_SESSION}.jsonl.zst").write_bytes(sealed)
    (folder / f"{SAMPLE_SESSION}.0002.jsonl").write_bytes(b"".join(lines[12:]))
    child, fork = Draft("child"), Draft("fork")
    child.header(session_id=SAMPLE_SESSION, agent_id="explorer")
    child.prompt("who uses label?")
    child.close()
    (side / "explorer.jsonl").write_bytes(child.bytes())
    fork.header(resumed_from={"session": SAMPLE_SESSION, "event": None})
    fork.prompt("And in the south?")
    (folder / "fork.jsonl").write_bytes(fork.bytes())


def codex(root: Path) -> None:
    """A turn with a call and a running total, and one that was rolled back."""
    home = rollouts.Home(root)
    home.write(
        [
            rollouts.meta(),
            rollouts.started("t1"),
            rollouts.user("<environment_context>\n<cwd>/p</cwd>\n</environment_context>"),
            rollouts.user("Why is the build red?"),
            rollouts.call("shell", "c1", command=["make", "test"]),
            rollouts.output("c1", "1 failed"),
            rollouts.counted(rollouts.tokens(100, 10)),
            rollouts.assistant(ANSWER),
            rollouts.completed("t1"),
            rollouts.started("t2"),
            rollouts.user("Delete the test."),
            rollouts.assistant("Done."),
            rollouts.counted(rollouts.tokens(300, 30), rollouts.tokens(200, 20)),
            rollouts.completed("t2"),
            rollouts.event("thread_rolled_back", num_turns=1),
        ]
    )
    other = [rollouts.meta(rollouts.B), rollouts.user("Hello."), rollouts.assistant("Hello.")]
    home.write(other, rollouts.B)


def grok(root: Path) -> None:
    """Two turns, one with a call, and all the files around them."""
    folder = groks.Folder(root)
    folder.summary()
    folder.prompt("Why is the build red?", 0)
    folder.thought("Run it first.")
    folder.call("c1", command="make test")
    folder.event("permission_requested", tool="run_terminal_command")
    folder.result("c1", "1 failed", 1)
    folder.say(ANSWER)
    folder.done()
    folder.turn("Thanks.", 1)
    folder.chat(type="user", content=[{"type": "text", "text": "Why is the build red?"}])


class Claude:
    """A project of Claude Code's, written record by record."""

    def __init__(self, path: Path, **more: Any) -> None:
        self.path = path
        self.more = more
        self.last: str | None = None
        self.count = 0
        path.parent.mkdir(parents=True, exist_ok=True)

    def line(self, kind: str, **fields: Any) -> None:
        """Any record."""
        record = {"type": kind, "sessionId": CLAUDE, **fields}
        with self.path.open("a", encoding="utf-8") as log:
            log.write(json.dumps(record) + "\n")

    def say(self, role: str, content: Any, **message: Any) -> None:
        """A record on the line."""
        self.count += 1
        uuid = f"{self.path.stem[-4:]}-{self.count}"
        known = {
            "uuid": uuid,
            "parentUuid": self.last,
            "isSidechain": False,
            "cwd": "/home/dev/tidepool",
            "version": "2.1.0",
            "gitBranch": "main",
            "timestamp": f"2026-01-01T00:00:{self.count:02}.000Z",
            "message": {"role": role, "content": content, **message},
        }
        self.line(role, **known | self.more)
        self.last = uuid


def claude(root: Path) -> None:
    """A turn with a call and its subagent, titles, and records that are no messages."""
    project = root / "projects" / "-home-dev-tidepool"
    main = Claude(project / f"{CLAUDE}.jsonl")
    main.line("file-history-snapshot", messageId="m", snapshot={})
    main.say("user", "Why is the build red?")
    usage = {"input_tokens": 10, "output_tokens": 5}
    call = {"type": "tool_use", "id": "c1", "name": "Task", "input": {"prompt": "look"}}
    text = {"type": "text", "text": "Somebody looks."}
    for block in (text, call):
        main.say("assistant", [block], id="msg_1", model="m-1", usage=usage)
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "One test fails."}
    main.say("user", [result])
    end = {"type": "text", "text": ANSWER}
    main.say("assistant", [end], id="msg_2", model="m-1", usage=usage, stop_reason="end_turn")
    main.line("custom-title", customTitle="Red build")
    main.line("queue-operation", operation="enqueue", timestamp="2026-01-01T00:00:09.000Z")
    side = Claude(project / CLAUDE / "subagents" / "agent-a1.jsonl", isSidechain=True, agentId="a1")
    side.say("user", "look")
    side.say("assistant", [end], id="msg_3", model="m-1", usage=usage, stop_reason="end_turn")


WRITERS = {"claude": claude, "codex": codex, "grok": grok, "thence": native}
