"""A whole agent harness on thence, small enough to read: killed anywhere, it goes on.

    python examples/tiny_harness.py HOME              run it; everything is kept below HOME
    TINY_KILL_AT=2 python examples/tiny_harness.py HOME   die in the middle of the 2nd tool call
    python examples/tiny_harness.py HOME --resume     go on where the last run stopped

The model is a script, so that it runs offline. It has two tools: `edit` saves a checkpoint of the
file before it changes it, `task` starts a subagent in a sidechain. Long sessions are compacted.
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

COMPACT_AFTER = 6
"""Messages the model may see before they are summed up."""

EDIT = ("edit", {"path": "greeting.txt", "old": "hello", "new": "goodbye"})
TASK = ("task", {"agent": "reviewer", "prompt": "Read greeting.txt and say what you think."})
SCRIPT: list[tuple[str | None, str | tuple[str, dict[str, str]]]] = [
    ("Make greeting.txt say goodbye.", EDIT),
    (None, "It says goodbye now."),
    ("Let somebody look at it.", TASK),
    (None, "The reviewer agrees."),
    ("Are we done?", "Yes, we are."),
    ("Really?", "Really."),
]
"""What the user says, if it is the user's turn, and what the model answers: words or a call."""


def count_steps(done: int, event: Event) -> int:
    """Fold of our own domain: how far the script has come, compacted or not."""
    return done + (event.type == "assistant" and not event.fields.get("again"))


class Harness:
    """The loop: prompt, reply, tools, results, until the script ends."""

    def __init__(self, session: thence.Session, workspace: Path) -> None:
        self.session, self.workspace = session, workspace
        self.kill_at, self.calls = int(os.environ.get("TINY_KILL_AT", "0")), 0

    def run(self) -> None:
        """Do what is left of the script."""
        while (step := self.session.state.step) < len(SCRIPT):
            prompt, reply = SCRIPT[step]
            messages = self.session.messages
            if prompt and (not messages or messages[-1]["role"] == "assistant"):
                self.session.record("user", {"role": "user", "content": prompt})
                print(f"you    {prompt}")
            if interrupted(messages):  # the script's way of checking and trying again
                self.answer(SCRIPT[step - 1][1], again=True)
            else:
                self.answer(reply, again=False)

    def answer(self, reply: str | tuple[str, dict[str, str]], *, again: bool) -> None:
        """Record the model's reply, run the tool it asks for, end the turn if it asks for none."""
        usage = {"input_tokens": 120, "output_tokens": 12}
        said: dict[str, Any] = {"role": "assistant", "usage": usage, "cost_usd": 0.001}
        if isinstance(reply, str):
            told = {**said, "content": reply, "stop_reason": "end_turn"}
            receipt = self.session.record("assistant", told)
            print(f"agent  {reply}")
            self.end_turn(receipt.uuid)
            return
        name, given = reply
        call = f"call_{os.urandom(4).hex()}"
        asks = [{"type": "tool_use", "id": call, "name": name, "input": given}]
        told = {**said, "content": asks, "stop_reason": "tool_use", "again": again}
        self.session.record("assistant", told)
        print(f"tool   {name}{' again' if again else ''}")
        output = self.edit(**given) if name == "edit" else self.task(call, **given)
        result = {"type": "tool_result", "tool_use_id": call, "content": output}
        self.session.record("user", {"role": "user", "content": [result]})

    def end_turn(self, reply: str) -> None:
        """Sum up what has become long, but for the last reply; bring the turn to the disk."""
        if len(self.session.messages) > COMPACT_AFTER:
            self.session.compact("greeting.txt was changed and reviewed.", keep_from=reply)
            print("       (compacted)")
        self.session.flush()

    def edit(self, path: str, old: str, new: str) -> str:
        """Tool: change a file, its content saved first."""
        file = self.workspace / path
        self.session.checkpoint([file])
        file.write_text(file.read_text().replace(old, new))
        self.maybe_die()
        return f"{path} was changed"

    def task(self, call: str, agent: str, prompt: str) -> str:
        """Tool: a subagent with a log of its own; the parent gets its summary."""
        with self.session.sidechain(agent, tool_use_id=call) as side:
            side.record("user", {"role": "user", "content": prompt})
            self.maybe_die()
            side.record("assistant", {"role": "assistant", "content": "Short and polite."})
            side.finish("Short and polite.")
        return side.summary or ""

    def maybe_die(self) -> None:
        """Die as a crash does: no cleaning up, in the middle of a call."""
        self.calls += 1
        if self.calls == self.kill_at:
            os._exit(9)


def interrupted(messages: list[dict[str, Any]]) -> bool:
    """Whether the last thing the model sees is the result of a call that a crash cut short."""
    last = messages[-1]["content"] if messages else []
    return any(block.get("content") == INTERRUPTED for block in last)


def main(home: str, *options: str) -> None:
    """Run, or go on."""
    workspace = Path(home).absolute() / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    domains = Domains()
    domains.register(Domain("step", int, count_steps))
    journal = thence.Journal(home, domains=domains)
    if "--resume" in options:
        session = journal.resume(project=workspace)
        print(f"       (resumed; {len(session.recovery.mended)} call was cut short)")
    else:
        (workspace / "greeting.txt").write_text("hello\n")
        session = journal.create(cwd=workspace, model="script-1")
    with session:
        Harness(session, workspace).run()
        print(f"       (done; {session.cumulative_cost:.3f} dollars in all)")


if __name__ == "__main__":
    main(*sys.argv[1:])
