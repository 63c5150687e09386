"""A complete agent harness in one file. Kill it at any point: `--resume` continues its session.

    python examples/tiny_harness.py HOME                  run; everything is written below HOME
    TINY_KILL_AT=2 python examples/tiny_harness.py HOME   crash in the middle of the 2nd tool call
    python examples/tiny_harness.py HOME --resume         continue the last session

The model is a script, so that it runs offline. There are two tools: `edit` saves a checkpoint of
the file before it changes it, `task` runs a subagent in a sidechain. Long sessions are compacted.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import thence
from thence.format.records import Event
from thence.format.repair import INTERRUPTED
from thence.format.state import Domain, Domains

Reply = str | tuple[str, dict[str, str]]
"""A reply of the model: a text, or the name and the input of a tool."""

MAX_MESSAGES = 6
"""A session with more messages than this is compacted at the end of the turn."""

EDIT = ("edit", {"path": "greeting.txt", "old": "hello", "new": "goodbye"})
TASK = ("task", {"agent": "reviewer", "prompt": "Read greeting.txt and say what you think."})
SCRIPT: list[tuple[str | None, Reply]] = [
    ("Make greeting.txt say goodbye.", EDIT),
    (None, "It says goodbye now."),
    ("Ask somebody to review it.", TASK),
    (None, "The reviewer agrees."),
    ("Are we done?", "Yes, we are."),
    ("Really?", "Really."),
]
"""Each step: the user's prompt, or None inside a turn, and the model's reply."""


def count_steps(step: int, event: Event) -> int:
    """Count the replies of the session, without retries: the position in the script.

    This is a domain, state that thence derives from the events. A compaction does not reset it.
    """
    is_reply = event.type == "assistant" and not event.fields.get("is_retry")
    return step + is_reply


class Harness:
    """The agent loop: prompt, reply, tool, result, until the script ends."""

    def __init__(self, session: thence.Session, workspace: Path) -> None:
        self.session = session
        self.workspace = workspace
        self.tool_calls = 0
        self.kill_at = int(os.environ.get("TINY_KILL_AT", "0"))

    def run(self) -> None:
        """Play the rest of the script."""
        while (step := self.session.state.step) < len(SCRIPT):
            prompt, reply = SCRIPT[step]
            messages = self.session.messages
            if prompt and (not messages or messages[-1]["role"] == "assistant"):
                self.session.record("user", {"role": "user", "content": prompt})
                print(f"you    {prompt}")
            if was_interrupted(messages):  # the model sees it, and calls the tool again
                self.answer(SCRIPT[step - 1][1], is_retry=True)
            else:
                self.answer(reply, is_retry=False)

    def answer(self, reply: Reply, *, is_retry: bool) -> None:
        """Record a reply; run the tool that it calls, or end the turn."""
        message: dict[str, Any] = {
            "role": "assistant",
            "usage": {"input_tokens": 120, "output_tokens": 12},
            "cost_usd": 0.001,
        }
        if isinstance(reply, str):
            receipt = self.session.record(
                "assistant", message | {"content": reply, "stop_reason": "end_turn"}
            )
            print(f"agent  {reply}")
            self.end_turn(receipt.uuid)
            return
        tool, arguments = reply
        call_id = f"call_{os.urandom(4).hex()}"
        call = {"type": "tool_use", "id": call_id, "name": tool, "input": arguments}
        message |= {"content": [call], "stop_reason": "tool_use", "is_retry": is_retry}
        self.session.record("assistant", message)
        print(f"tool   {tool}{' (retry)' if is_retry else ''}")
        output = self.edit(**arguments) if tool == "edit" else self.task(call_id, **arguments)
        result = {"type": "tool_result", "tool_use_id": call_id, "content": output}
        self.session.record("user", {"role": "user", "content": [result]})

    def end_turn(self, reply_uuid: str) -> None:
        """Compact a long session up to its last reply, and sync the turn to disk."""
        if len(self.session.messages) > MAX_MESSAGES:
            self.session.compact("greeting.txt was changed and reviewed.", keep_from=reply_uuid)
            print("       (compacted)")
        self.session.flush()

    def edit(self, path: str, old: str, new: str) -> str:
        """Replace a text in a file, and return the tool's output; a checkpoint saves the file."""
        file = self.workspace / path
        self.session.checkpoint([file])
        file.write_text(file.read_text().replace(old, new))
        self.maybe_crash()
        return f"{path} was changed"

    def task(self, call_id: str, agent: str, prompt: str) -> str:
        """Run a subagent with a log of its own, and return its summary."""
        with self.session.sidechain(agent, tool_use_id=call_id) as sidechain:
            sidechain.record("user", {"role": "user", "content": prompt})
            self.maybe_crash()
            sidechain.record("assistant", {"role": "assistant", "content": "Short and polite."})
            sidechain.finish("Short and polite.")
        return sidechain.summary or ""

    def maybe_crash(self) -> None:
        """Exit without any cleanup in the tool call that TINY_KILL_AT names."""
        self.tool_calls += 1
        if self.tool_calls == self.kill_at:
            os._exit(9)


def was_interrupted(messages: list[dict[str, Any]]) -> bool:
    """Return whether the last message has the result of a tool call that a crash interrupted."""
    blocks = messages[-1]["content"] if messages else []
    return any(block.get("content") == INTERRUPTED for block in blocks)


def main(home: str, *options: str) -> None:
    """Start a session, or resume the last one, and run it to its end."""
    workspace = Path(home).absolute() / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    domains = Domains()
    domains.register(Domain("step", int, count_steps))
    journal = thence.Journal(home, domains=domains)
    if "--resume" in options:
        session = journal.resume(project=workspace)
        print(f"       (resumed; interrupted tool calls: {len(session.recovery.mended)})")
    else:
        (workspace / "greeting.txt").write_text("hello\n")
        session = journal.create(cwd=workspace, model="script-1")
    with session:
        Harness(session, workspace).run()
        print(f"       (done; total cost ${session.cumulative_cost:.3f})")


if __name__ == "__main__":
    main(*sys.argv[1:])
