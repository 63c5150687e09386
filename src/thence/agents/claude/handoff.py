"""A session in Claude Code's own format: one transcript, in the folder of its project.

Kept to what every version of the client takes: envelopes in full, a message id of its own per
answer, a linear chain, results in one record directly after their calls, rising times, the tip
last. Who wrote it and from what stands in a record outside the chain, which clients pass over.
No record says anything about permissions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from thence.agents.handoffs import HandoffHistory, HandoffWriter, is_recorded, runs
from thence.format.records import JSON, blocks

WRITTEN_AS_VERSION: Final = "2.1.325"
"""The version whose records these are."""
MAX_NAME_CHARS: Final = 200


def folder_name(cwd: str) -> str:
    """Name the folder of a project as the client does: letters and digits stay, all else is `-`."""
    units = cwd.encode("utf-16-le", "surrogatepass")
    codes = [units[i] | units[i + 1] << 8 for i in range(0, len(units), 2)]
    name = re.sub(r"[^A-Za-z0-9]", "-", "".join(map(chr, codes)))
    if len(name) <= MAX_NAME_CHARS:
        return name
    total = 0
    for code in codes:
        total = (total * 31 + code) & 0xFFFFFFFF
    return f"{name[:MAX_NAME_CHARS]}-{_base36(abs(total - (1 << 32) if total >> 31 else total))}"


def _base36(number: int) -> str:
    out = ""
    while number:
        number, digit = divmod(number, 36)
        out = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + out
    return out or "0"


def files(history: HandoffHistory) -> dict[str, list[JSON]]:
    """Return the file of a session, by its place below the client's folder."""
    path = f"projects/{folder_name(history.cwd)}/{history.session}.jsonl"
    return {path: list(_records(history))}


def _records(history: HandoffHistory) -> Iterator[JSON]:
    yield {"type": "thence-handoff", "sessionId": history.session, **history.provenance}
    parts = [part for message in history.messages for part in _parts(message)]
    uid, event = history.provenance["from"], history.provenance["event"]
    origin = {"sessionId": uid.partition(":")[2], "messageUuid": event, "thence_handoff": uid}
    parent: str | None = None
    for at, message in enumerate(parts):
        uuid = history.uuid(at)
        yield {
            "parentUuid": parent,
            "isSidechain": False,
            "userType": "external",
            "entrypoint": "cli",
            "cwd": history.cwd,
            "sessionId": history.session,
            "version": WRITTEN_AS_VERSION,
            "gitBranch": history.git_branch or "HEAD",
            "type": message["role"],
            # As the client marks what it put into the user's mouth itself.
            **({"isMeta": True} if is_recorded(message["content"][0]) else {}),
            "message": _message(message, f"msg_{uuid.replace('-', '')}", history.model),
            "uuid": uuid,
            # The client's own word for a copy: what was said and paid elsewhere counts there.
            "forkedFrom": origin,
            "timestamp": history.time(at - len(parts)),
        }
        parent = uuid


def _parts(message: JSON) -> Iterator[JSON]:
    """Part results, recorded texts and a user's words, as the client writes them."""
    for _, run in runs(blocks(message["content"])):
        yield {"role": message["role"], "content": run}


def _message(message: JSON, name: str, model: str | None) -> JSON:
    if message["role"] == "user":
        content = message["content"]
        if len(content) == 1 and content[0].get("type") == "text":
            return {"role": "user", "content": content[0]["text"]}
        return {"role": "user", "content": content}
    called = any(block.get("type") == "tool_use" for block in message["content"])
    return {
        "id": name,
        "type": "message",
        "role": "assistant",
        # It would complain about a model that it does not know; without one it takes its own.
        **({"model": model} if model else {}),
        "content": message["content"],
        "stop_reason": "tool_use" if called else "end_turn",
        "stop_sequence": None,
        # Paid for where it was said: here it costs nothing a second time.
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }


WRITER: Final = HandoffWriter(
    files, takes=("image", "document"), takes_signed_thoughts=True, takes_failures=True
)
