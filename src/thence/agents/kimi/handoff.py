"""A session of another agent as Kimi Code writes its own: a folder with a card and one log.

Turns of steps: a step has the texts and calls of one answer, and the results of its calls. No
usage: nothing was paid here. Each event says whose it is; the client passes over what it does not
know. Tried with version 2.1.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Final

from thence.agents.handoffs import HandoffHistory, HandoffWriter, runs
from thence.agents.kimi.names import CARD, LOG, MAIN, PREFIX
from thence.format.records import JSON, blocks, text_of, word

PROTOCOL: Final = "1.5"
"""The version of the protocol whose events these are."""


def folder_name(cwd: str) -> str:
    """Return the name of a project's folder, as the client spells it."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", PurePosixPath(cwd).name) or "root"
    return f"wd_{name}_{sha256(cwd.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def files(bound: HandoffHistory) -> dict[str, list[JSON]]:
    """Return the files of a session, by their places below the client's folder."""
    folder = f"sessions/{folder_name(bound.cwd)}/{PREFIX}{bound.session}"
    at = bound.milliseconds
    card = {"id": f"{PREFIX}{bound.session}", "version": 2, "cwd": bound.cwd, "createdAt": at}
    card |= {"updatedAt": at, "archived": False, "agents": {MAIN: {"type": "main"}}, "custom": {}}
    card |= {"lastTurnReason": "completed", "isCustomTitle": bool(bound.title)}
    return {
        f"{folder}/agents/{MAIN}/{LOG}": list(_Events(bound).all()),
        f"{folder}/{CARD}": [{**card, **({"title": bound.title} if bound.title else {})}],
    }


class _Events:
    """The events of a history."""

    def __init__(self, bound: HandoffHistory) -> None:
        self._bound = bound
        self._count = self._turn = self._step = 0
        self._results = bound.results

    def all(self) -> Iterator[JSON]:
        """Yield the lines of the log."""
        now = self._bound.milliseconds
        head = {"type": "metadata", "protocol_version": PROTOCOL, "created_at": now}
        yield {**head, "thenceHandoff": self._bound.provenance}
        for message in self._bound.messages:
            message_blocks = blocks(message["content"])
            if message["role"] == "assistant":
                yield from self._answer(message_blocks)
                continue
            texts = [block for block in message_blocks if block.get("type") != "tool_result"]
            for kind, run in runs(texts):
                content = [{"type": "text", "text": word(block.get("text"))} for block in run]
                make = self._injection_events if kind == "recorded" else self._prompt_events
                yield from make(content)
        if self._turn:
            yield self._event("turn.ended", turnId=self._turn - 1, reason="completed")

    def _name(self, what: str) -> str:
        return self._bound.uuid(f"{what}:{self._count}")

    def _event(self, kind: str, /, **fields: JSON) -> JSON:
        self._count += 1
        place = {"time": self._bound.milliseconds + self._count}
        origin = {"handedFrom": self._bound.provenance["from"]}
        return {"type": kind, "agentId": MAIN, **fields, **place, **origin}

    def _prompt_events(self, content: list[JSON]) -> Iterator[JSON]:
        """Yield a prompt, and the same prompt entering the context."""
        if self._turn:
            yield self._event("turn.ended", turnId=self._turn - 1, reason="completed")
        name, origin = f"msg_{self._name('prompt')}", {"kind": "user"}
        turn, self._turn, self._step = self._turn, self._turn + 1, 0
        frame = {"origin": origin, "promptId": name, "turnId": turn}
        yield self._event("turn.prompt", input=content, **frame)
        message = {"role": "user", "content": content, "id": name, "toolCalls": []}
        yield self._event("context.append_message", message={**message, "origin": origin})

    def _injection_events(self, content: list[JSON]) -> Iterator[JSON]:
        """Yield what the model sees and is no prompt of the user's."""
        message = {"role": "user", "content": content, "toolCalls": []}
        origin = {"kind": "injection", "variant": "thence"}
        yield self._event("context.append_message", message={**message, "origin": origin})

    def _answer(self, content: list[JSON]) -> Iterator[JSON]:
        """Yield a step: the parts of an answer, its calls, and what they gave."""
        self._step += 1
        step = self._name("step")
        frame = {"turnId": str(max(self._turn - 1, 0)), "step": self._step}
        yield self._loop("step.begin", uuid=step, **frame)
        calls: list[tuple[str, str]] = []
        for block in content:
            if block.get("type") == "tool_use":
                name = self._name("call")
                calls.append((name, block["id"]))
                call = {"toolCallId": block["id"], "name": block["name"], "args": block["input"]}
                yield self._loop("tool.call", uuid=name, **frame, stepUuid=step, **call)
            else:
                part = {"type": "text", "text": word(block.get("text"))}
                yield self._loop(
                    "content.part", uuid=self._name("part"), **frame, stepUuid=step, part=part
                )
        for name, call_id in calls:
            result = self._results.get(call_id, {})
            outcome: JSON = {"output": text_of(result.get("content"))}
            if result.get("is_error") is True:
                outcome["isError"] = True
            yield self._loop("tool.result", parentUuid=name, toolCallId=call_id, result=outcome)
        reason = "tool_use" if calls else "end_turn"
        yield self._loop("step.end", uuid=step, **frame, finishReason=reason)

    def _loop(self, kind: str, /, **fields: JSON) -> JSON:
        return self._event("context.append_loop_event", event={"type": kind, **fields})


WRITER: Final = HandoffWriter(
    files, needs_uuid4=True, is_folder=True, takes=(), takes_failures=True
)
