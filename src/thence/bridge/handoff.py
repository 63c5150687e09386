"""Handing a session over: its live chain, or one that leads to an event, written for another agent.

The other agent's own client then goes on with it, whole history and all. Invariants: the source is
read and never touched; the new session has a new id, its files are written whole or not at all,
readable by their owner alone, and never over anything that is there; nothing that was allowed
comes along; what was mapped, told in words or left behind stands in the report. Not redacted:
a history goes on as it was, from its source where that is still there.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections import Counter
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from thence.agents.handoffs import HandoffHistory, HandoffSettings
from thence.agents.profiles import agents
from thence.bridge import portable_history
from thence.errors import BadConfig, Conflict, NotAppendable, SessionNotFound
from thence.format import repair
from thence.format.nodes import Is
from thence.format.records import JSON, blocks
from thence.journal.log import make_folder, sync_folder

if TYPE_CHECKING:
    from thence.format.readout import Readout
    from thence.memory.readouts import OpenedSession

NOT_HANDED: Final = (
    "permissions: the new agent will ask",
    "saved files and messages between subagents",
    "costs: they stay with the original session",
)
"""What never goes along, whatever the session holds."""
ACCEPT_S: Final = 120
"""How long a client may take to take a session in, in seconds."""


def targets() -> list[str]:
    """Return the agents that can be given a session."""
    return [name for name, agent in agents().items() if agent.offers("handoff")]


class HandoffReport(msgspec.Struct, frozen=True):
    """What was handed over, and what became of it on the way."""

    session_uid: str
    agent: str
    to: str
    session: str
    cwd: str
    event: str | None
    messages: int
    calls: int
    unchanged: dict[str, int] = msgspec.field(name="kept")
    mapped: dict[str, int]
    as_text: dict[str, int] = msgspec.field(name="told")
    left: dict[str, int]
    answered: list[str]
    """Calls that never got a result, and were given one that says so."""
    mended: list[str]
    not_handed: tuple[str, ...]
    files: list[str]
    argv: list[str]
    command: str
    notes: list[str]
    accept: list[str] = []
    """The command of the new agent that takes the file in and removes it."""


class Handoff(msgspec.Struct, frozen=True):
    """A session about to be written, and the report of it."""

    files: dict[str, bytes]
    """By their paths."""
    folder: str | None
    """The folder that appears at once with all of them; None for a single file."""
    report: HandoffReport


def plan(
    opened: OpenedSession,
    to: str,
    *,
    root: Path,
    session: str,
    at: datetime,
    here: str,
    event: int | None = None,
    by: str = "thence",
    notes: tuple[str, ...] = (),
) -> Handoff:
    """Work out what would be written below `root`, without writing it.

    `event` is the place of the last event that goes along; without one it is the live chain's.
    `here` is the folder it goes on in if the session's own is not there, `at` the time in UTC.
    """
    readout, agent = opened.session, opened.agent
    mended = readout.messages(to=event, full=True)
    if not mended.messages:
        raise SessionNotFound(f"no messages yet in {readout.uid}", hint="see thence show")
    writer, target = portable_history.writer_of(to), agents()[to]
    if writer.session_id is not None:
        session = writer.session_id(session)
    settings = writer.settings(root) if writer.settings is not None else HandoffSettings()
    messages, account = portable_history.convert_messages(mended.messages, agent, to)
    last = readout.records[event].id if event is not None else None
    end = event if event is not None else readout.graph.end
    known = readout.head.session
    cwd, moved = _folder(known.cwd, here)
    bound = HandoffHistory(
        session,
        messages,
        cwd,
        at,
        {
            "from": readout.uid,
            "event": readout.records[end].id if end is not None else None,
            "by": by,
            "at": at.isoformat(),
        },
        " ".join(readout.title.split())[:200] if readout.title else None,
        known.model if agent == to else settings.model,
        known.git_branch,
        settings.provider,
        settings.projects.get(cwd),
    )
    written = {str(_inside(root, name)): rows for name, rows in writer.files(bound).items()}
    argv = target.profile.resume_command(session)
    accept = writer.accept(next(iter(written))) if writer.accept is not None else []
    report = HandoffReport(
        readout.uid,
        agent,
        to,
        session,
        cwd,
        last,
        len(messages),
        sum(b.get("type") == "tool_use" for m in mended.messages for b in blocks(m["content"])),
        dict(account.unchanged),
        dict(account.mapped),
        dict(account.as_text),
        dict(account.left + Counter(mended.reworded)),
        list(map(portable_history.call_id, mended.answered)),
        _repair_notes(mended),
        NOT_HANDED,
        list(written),
        argv,
        f"cd {shlex.quote(cwd)} && {shlex.join(argv)}",
        [*notes, *moved],
        accept,
    )
    bodies = {path: _body(path, rows) for path, rows in written.items()}
    folder = (
        os.path.commonpath([Path(path).parent for path in bodies]) if writer.is_folder else None
    )
    return Handoff(bodies, folder, report)


def _inside(root: Path, name: str) -> Path:
    """Return the path of a file; a writer has nothing to write outside its agent's folder."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts:
        raise BadConfig(f"not below {root}: {name}", hint="update the package of that agent")
    return root / path


def _body(path: str, rows: list[JSON]) -> bytes:
    """Write rows as lines; a card is one object."""
    if not path.endswith(".jsonl"):
        return json.dumps(rows[0], indent=2).encode() + b"\n"
    return b"".join(json.dumps(row, allow_nan=False).encode() + b"\n" for row in rows)


def _repair_notes(mended: repair.Mended) -> list[str]:
    out = [f"{left.why}: {left.id}" if left.id else left.why for left in mended.left_out]
    out += [f"call has a new id: {name or 'it had none'}" for name in mended.renamed]
    return [*out, *(["the history started with the model"] if mended.opened else [])]


def _folder(folder: str | None, here: str) -> tuple[str, list[str]]:
    """Return the folder a session goes on in: its own if there is one, else where we are."""
    if folder and os.path.isabs(folder) and os.path.isdir(folder):  # noqa: PTH112, PTH117
        return os.path.realpath(folder), []
    return here, [f"its folder is missing ({folder}); it continues in {here}"] if folder else []


# -- which chain ----------------------------------------------------------------------------


def end_of(session: Readout, place: int, *, branch: bool = False) -> int:
    """Return the last event that is handed over: this one, or the end of the branch it is on."""
    if session.graph.nodes[place].flags & Is.SIDE:
        raise BadConfig(
            "this event belongs to a subagent, whose history cannot be continued",
            hint="use the event that called the subagent",
        )
    return session.graph.end_from(place) if branch else place


# -- writing --------------------------------------------------------------------------------


def carry_out(handoff: Handoff) -> None:
    """Write a session where its agent looks for it: all of it, or nothing."""
    program = _find_program(handoff.report) if handoff.report.accept else None
    try:
        if handoff.folder is None:
            for path, body in handoff.files.items():
                _appear(Path(path), body)
        else:
            _appear_together(Path(handoff.folder), handoff.files)
    except FileExistsError as error:
        raise Conflict(f"already there: {error.filename}", hint="nothing was written") from error
    except OSError as error:
        where = error.filename or next(iter(handoff.files))
        message = f"{where} cannot be written: {error.strerror}"
        raise NotAppendable(message, hint="check the permissions of the agent's folder") from error
    if program is not None:
        try:
            _accept(handoff.report, program)
        finally:
            for path in handoff.files:
                Path(path).unlink(missing_ok=True)
                with suppress(OSError):  # others may have put something there
                    Path(path).parent.rmdir()


def _find_program(report: HandoffReport) -> str:
    """Return the path of the client that takes a session in.

    It is looked for from where the user is, not in the project's folder, where it runs: PATH may
    name the current folder.
    """
    program = report.accept[0]
    path = shutil.which(program)
    if path is None:
        raise BadConfig(
            f"{program} is not on PATH, and only it can take a session in",
            hint=f"install {agents()[report.to].label}, or add its folder to PATH",
        )
    return str(Path(path).absolute())


def _accept(report: HandoffReport, program: str) -> None:
    """Let the client take its file in; it says nothing that can be relied on but how it ended."""
    command = shlex.join(report.accept)
    try:
        done = subprocess.run(  # noqa: S603 - the client that was asked for
            [program, *report.accept[1:]],
            cwd=report.cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=ACCEPT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotAppendable(f"{command} failed: {error}", hint="nothing was handed over") from error
    if done.returncode != 0:
        last = (done.stderr or done.stdout).decode("utf-8", "replace").strip()[-300:]
        raise NotAppendable(f"{command} failed: {last}", hint="nothing was handed over")


def _appear(path: Path, body: bytes) -> None:
    make_folder(path.parent)
    passing = path.with_name(f".{path.name}.thence")
    try:
        _write(passing, body)
        os.link(passing, path)  # unlike a rename, it takes nobody's place
    finally:
        passing.unlink(missing_ok=True)
    sync_folder(path.parent)


def _appear_together(folder: Path, files: dict[str, bytes]) -> None:
    if os.path.lexists(folder):
        raise FileExistsError(17, "already there", str(folder))
    make_folder(folder.parent)
    passing = folder.with_name(f".{folder.name}.thence")
    passing.mkdir(mode=0o700)
    try:
        for path, body in files.items():
            place = passing / Path(path).relative_to(folder)
            make_folder(place.parent)
            _write(place, body)
            sync_folder(place.parent)
        sync_folder(passing)
        passing.rename(folder)
    except OSError:
        shutil.rmtree(passing, ignore_errors=True)
        raise
    sync_folder(folder.parent)


def _write(path: Path, body: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
