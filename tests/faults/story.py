"""One of everything a journal does, told as it goes; and what must be there afterwards.

The story is run with system calls that fail or kill. What it has been promised it writes down
with `writev`, which no fault is aimed at: a step and what identifies it. After an error it says
so, records one more event in the same session and ends. `check` opens what is left.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from thence.errors import ThenceError
from thence.format import codec, layout
from thence.format.records import JSON
from thence.journal import Journal, Session
from thence.journal.checkpoint import Checkpoint
from thence.journal.log import Durability
from thence.journal.spill import Spill

Say = Callable[..., None]

BIG = "0123456789abcdef" * 2500
EVENTS = 20
SUMMARY = "what was said so far"
READY = b"\n"
"""Written before the story: a fault that strikes earlier would hit the telling, not the told."""


def tell(root: str, receipts: str, go: str, durability: Durability) -> None:
    """Say that the door is open, wait for the word, then do everything once."""
    out = os.open(receipts, os.O_WRONLY | os.O_APPEND)
    work = Path(root, "work")
    os.writev(out, [READY])
    while not os.path.exists(go):  # noqa: PTH110 - polled
        time.sleep(0.001)
    sessions: list[Session] = []

    def say(*what: str) -> None:
        os.writev(out, [msgspec.json.encode(what) + b"\n"])

    try:
        _everything(Journal(Path(root, "home"), durability=durability), work, sessions, say)
    except ThenceError as error:
        say("error", error.message)
        with contextlib.suppress(ThenceError):
            for session in sessions[-1:]:
                _record(session, "after", say)
        sys.exit(error.exit_code)
    finally:
        os.close(out)


def _everything(journal: Journal, work: Path, sessions: list[Session], say: Say) -> None:
    session = journal.create(cwd=work)
    sessions.append(session)
    say("session", session.id)
    for number in range(EVENTS):
        _record(session, f"event {number}", say)
        if number % 7 == 6:
            session.flush()
    for call in ("one", "two"):
        session.record("assistant", _call(call))
        receipt = session.record("user", _result(call, f"{call} {BIG}"))
        say("spill", session.id, receipt.uuid, f"{call} {BIG}")
    checkpoint = session.checkpoint([work / "file.txt"])
    say("checkpoint", session.id, msgspec.json.encode(checkpoint).decode())
    start = _record(session, "kept", say)
    session.compact(SUMMARY, keep_from=start)
    say("compacted", session.id)
    _record(session, "after the boundary", say)
    session.close()
    for verb in (journal.fork, journal.resume):
        other = verb(session.id)
        sessions.append(other)
        _record(other, verb.__name__, say)
        other.close()
    going = journal.resume(session.id, mode="continue")
    sessions.append(going)
    _record(going, "going on", say)
    going.close()


def _record(session: Session, text: str, say: Say) -> str:
    receipt = session.record("user", {"role": "user", "content": text})
    say("event", session.id, receipt.uuid, text)
    return receipt.uuid


def _call(call: str) -> JSON:
    use = {"type": "tool_use", "id": call, "name": "Bash", "input": {}}
    return {"role": "assistant", "content": [use], "stop_reason": "tool_use"}


def _result(call: str, text: str) -> JSON:
    return {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": call, "content": text}],
    }


# -- afterwards -----------------------------------------------------------------------------


def check(root: Path, receipts: list[list[str]]) -> list[str]:
    """Say which promises were broken."""
    journal = Journal(root / "home")
    broken: list[str] = []
    sessions = list(dict.fromkeys(line[1] for line in receipts if line[0] != "error"))
    for name in sessions:
        try:
            broken += _check_session(journal, root, name, [t for t in receipts if t[1] == name])
        except ThenceError as error:
            broken.append(f"{name} cannot be opened: {error.message}")
    return broken


def _check_session(journal: Journal, root: Path, name: str, receipts: list[list[str]]) -> list[str]:
    broken = []
    with journal.resume(name, mode="continue") as session:
        last = session.record("user", {"role": "user", "content": "next"}).uuid
        seen = str(session.messages)
        loaded = [(t[2], t[3]) for t in receipts if t[0] == "spill"]
        broken += _spilled(journal, name, loaded)
        for _, _, saved in (t for t in receipts if t[0] == "checkpoint"):
            (root / "work" / "file.txt").write_text("spoiled")
            session.rewind_files(msgspec.json.decode(saved, type=Checkpoint))
            if (root / "work" / "file.txt").read_text() != "as it was":
                broken.append("checkpoint does not come back")
    compacted = SUMMARY in seen
    if ["compacted", name] in receipts and not compacted:
        broken.append("the compaction is not seen")
    if "next" not in seen:
        broken.append("the next event is not seen")
    texts = _texts(journal, name)
    if texts.get(last) != ["next"]:
        broken.append("the next event is not read")
    for _, _, uuid, text in (t for t in receipts if t[0] == "event"):
        if texts.get(uuid) != [text]:
            broken.append(f"{text} is read as {texts.get(uuid)}")
        if not compacted and text.startswith("event ") and text not in seen:
            broken.append(f"{text} is not seen by the model")
    return broken


def _texts(journal: Journal, name: str) -> dict[str, list[JSON]]:
    """Contents by id; a second copy counts when it says something else."""
    out: dict[str, list[JSON]] = {}
    for path in sorted(journal.root.rglob(f"{name}*.jsonl")):
        for event in codec.decode(path.read_bytes()).events:
            content = event.fields.get("content")
            if content not in out.setdefault(event.uuid, []):
                out[event.uuid].append(content)
    return out


def _spilled(journal: Journal, name: str, spills: list[tuple[str, str]]) -> list[str]:
    """Load what was moved to side files."""
    broken = []
    spill = Spill(journal.root / layout.SPILL / name)
    texts = _texts(journal, name)
    for uuid, content in spills:
        contents = [block.get("content") for blocks in texts.get(uuid, []) for block in blocks]
        if len(contents) != 1 or spill.restore(contents[0]) != content:
            broken.append(f"spill {uuid} does not come back")
    return broken
