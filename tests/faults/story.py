"""A story: everything that a journal does, once, with a log of what was promised.

It runs with system calls that fail or kill. It logs every promise with `writev`, into which no
fault is injected: a step and what identifies it. After an error it logs the error, records one
more event in the same session and ends. `check` opens what is left.
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

Log = Callable[..., None]

LARGE_TEXT = "0123456789abcdef" * 2500
EVENT_COUNT = 20
MAX_BYTES = 3000
"""A segment is full after some events, so that the story begins a second one."""

SUMMARY = "what was said so far"
READY = b"\n"
"""Logged before the story starts, so that no fault strikes before."""


def run_story(root: str, log_path: str, go_path: str, durability: Durability) -> None:
    """Log that this process is ready, wait for the file `go_path`, then do everything once."""
    descriptor = os.open(log_path, os.O_WRONLY | os.O_APPEND)
    work = Path(root, "work")
    os.writev(descriptor, [READY])
    while not os.path.exists(go_path):  # noqa: PTH110 - polled
        time.sleep(0.001)
    sessions: list[Session] = []

    def log(*entry: str) -> None:
        os.writev(descriptor, [msgspec.json.encode(entry) + b"\n"])

    try:
        journal = Journal(Path(root, "home"), durability=durability, max_bytes=MAX_BYTES)
        _run_all_steps(journal, work, sessions, log)
    except ThenceError as error:
        log("error", error.message)
        with contextlib.suppress(ThenceError):
            for session in sessions[-1:]:
                _record(session, "after", log)
        sys.exit(error.exit_code)
    finally:
        os.close(descriptor)


def _run_all_steps(journal: Journal, work: Path, sessions: list[Session], log: Log) -> None:
    session = journal.create(cwd=work)
    sessions.append(session)
    log("session", session.id)
    for number in range(EVENT_COUNT):
        _record(session, f"event {number}", log)
        if number % 7 == 6:
            session.flush()
    for call in ("one", "two"):
        session.record("assistant", _call(call))
        receipt = session.record("user", _result(call, f"{call} {LARGE_TEXT}"))
        log("spill", session.id, receipt.uuid, f"{call} {LARGE_TEXT}")
    child = session.sidechain("reader")
    child.record("user", {"role": "user", "content": "look"})
    child.finish("seen")
    log("child", session.id, child.agent_id)
    checkpoint = session.checkpoint([work / "file.txt"])
    log("checkpoint", session.id, msgspec.json.encode(checkpoint).decode())
    first_kept = _record(session, "kept", log)
    session.compact(SUMMARY, keep_from=first_kept)
    log("compacted", session.id)
    _record(session, "after the boundary", log)
    session.close()
    for verb in (journal.fork, journal.resume):
        other = verb(session.id)
        sessions.append(other)
        _record(other, verb.__name__, log)
        other.close()
    for continued in (
        journal.resume(session.id, mode="continue"),
        journal.create_or_resume(session.id, cwd=work),
        journal.create_or_resume("own", cwd=work),
    ):
        sessions.append(continued)
        _record(continued, "going on", log)
        continued.close()


def _record(session: Session, text: str, log: Log) -> str:
    receipt = session.record("user", {"role": "user", "content": text})
    log("event", session.id, receipt.uuid, text)
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


def check(root: Path, log: list[list[str]]) -> list[str]:
    """Return the promises that are broken."""
    journal = Journal(root / "home")
    violations = _check_beginnings(journal, root / "work", log)
    sessions = list(dict.fromkeys(line[1] for line in log if line[0] != "error"))
    for name in sessions:
        try:
            violations += _check_session(journal, root, name, [t for t in log if t[1] == name])
        except ThenceError as error:
            violations.append(f"{name} cannot be opened: {error.message}")
    return violations


def _check_beginnings(journal: Journal, work: Path, log: list[list[str]]) -> list[str]:
    """Check that what was begun is whole, and that the project goes on where it was."""
    violations = [
        f"{path.name} has no header"
        for kind in (layout.SESSIONS, layout.SIDECHAINS)
        for path in (journal.root / kind).rglob("*.jsonl")
        if [event.type for event in codec.decode(path.read_bytes().split(b"\n")[0] + b"\n").events]
        != ["header"]
    ]
    for _, name, agent in (line for line in log if line[0] == "child"):
        path = journal.root / layout.SIDECHAINS / name / f"{agent}.jsonl"
        if codec.decode(path.read_bytes()).events[-1].type != "terminator":
            violations.append("the subagent has no end")
    if any(line[0] == "session" for line in log):
        with journal.resume(project=work) as session:
            where = session.transcript_path
            if where is None or where.parent.name != layout.project_id(str(work)):
                violations.append("the project is poisoned")
    return violations


def _check_session(journal: Journal, root: Path, name: str, log: list[list[str]]) -> list[str]:
    violations = []
    with journal.resume(name, mode="continue") as session:
        last = session.record("user", {"role": "user", "content": "next"}).uuid
        messages = str(session.messages)
        spills = [(entry[2], entry[3]) for entry in log if entry[0] == "spill"]
        violations += _check_spills(journal, name, spills)
        for _, _, checkpoint in (entry for entry in log if entry[0] == "checkpoint"):
            (root / "work" / "file.txt").write_text("spoiled")
            session.rewind_files(msgspec.json.decode(checkpoint, type=Checkpoint))
            if (root / "work" / "file.txt").read_text() != "as it was":
                violations.append("checkpoint does not come back")
    compacted = SUMMARY in messages
    if ["compacted", name] in log and not compacted:
        violations.append("the compaction is not seen")
    if "next" not in messages:
        violations.append("the next event is not seen")
    texts = _texts(journal, name)
    if texts.get(last) != ["next"]:
        violations.append("the next event is not read")
    for _, _, uuid, text in (entry for entry in log if entry[0] == "event"):
        if texts.get(uuid) != [text]:
            violations.append(f"{text} is read as {texts.get(uuid)}")
        if not compacted and text.startswith("event ") and text not in messages:
            violations.append(f"{text} is not seen by the model")
    return violations


def _texts(journal: Journal, name: str) -> dict[str, list[JSON]]:
    """Return contents by id; a second copy counts if it is different."""
    texts: dict[str, list[JSON]] = {}
    for path in sorted(journal.root.rglob(f"{name}*.jsonl")):
        for event in codec.decode(path.read_bytes()).events:
            content = event.fields.get("content")
            if content not in texts.setdefault(event.uuid, []):
                texts[event.uuid].append(content)
    return texts


def _check_spills(journal: Journal, name: str, spills: list[tuple[str, str]]) -> list[str]:
    """Return the spills that cannot be loaded."""
    violations = []
    spill = Spill(journal.root / layout.SPILL / name)
    texts = _texts(journal, name)
    for uuid, expected in spills:
        contents = [block.get("content") for message in texts.get(uuid, []) for block in message]
        if len(contents) != 1 or spill.restore(contents[0]) != expected:
            violations.append(f"spill {uuid} does not come back")
    return violations
