"""Decisions and notes that people write down: files first, a hub only when one is set.

Each kind is a file of its own below `notes/` in the home, in the form of our event lines, so that
every tool that reads them reads these; no session's file is touched. What is written is on the
disk before anything else happens, with its origin: the command line, or an agent via MCP. With
`session_memory.hub` set, what a person writes is also posted there; a hub that does not answer
changes nothing about the file.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from thence import config
from thence.cli import wiring
from thence.cli.columns import DIM, ago, present, project, short_id, tell, tilde, when
from thence.cli.file_changes import NotAnswered
from thence.cli.terminal import answer, as_json, clean, say, style, width, wrap
from thence.errors import BadConfig, ThenceError
from thence.memory.notes import (
    confirmation_of,
    note_path,
    read_confirmations,
    read_notes,
    session_confirmation,
)
from thence.memory.store import DATA_LOSS, Filter

if TYPE_CHECKING:
    from thence.format.normal import Session
    from thence.format.records import JSON
    from thence.memory.labels import Label
    from thence.memory.notes import Kind, Note, Origin
    from thence.memory.store import SessionRow, Store

# A command that waits for a hub that is down is worse than a note that is not posted.
HUB_TIMEOUT_S: Final = 5.0
"""Seconds that a hub may take to answer."""
MAX_LISTED: Final = 20
NOTE_ID_CHARS: Final = 18
"""Characters of a decision's id that tell it from those of the same moment."""


def file_of(kind: Kind) -> Path:
    """Return the file of one kind."""
    return note_path(wiring.home(), kind)


def write(kind: Kind, text: str, session: str | None, *, origin: Origin) -> dict[str, JSON]:
    """Write one down, durable on return; it says whether a person or an agent asked for it."""
    payload: dict[str, JSON] = {"text": text, "cwd": str(Path.cwd()), "origin": origin}
    if session is not None:
        payload["session_uid"] = session
    return _append(kind, payload)


def label(session: Session, *, name: str | None = None, tags: Sequence[str] | None = None) -> Label:
    """Name and tag a session and return its label; None changes nothing, durable on return."""
    from thence.memory.labels import Label, label_changes, read_labels

    notes = read_notes(wiring.home(), "name", "tag")
    for kind, payload in label_changes(notes, session, name=name, tags=tags):
        _append(kind, payload)
    return read_labels(wiring.home()).get(session.session_uid, Label())


def _append(kind: Kind, payload: dict[str, JSON]) -> dict[str, JSON]:
    from thence.journal.notebook import append_note

    if not config.persistence():
        raise BadConfig("recording is switched off", hint=f"unset {config.OFF}")
    event = append_note(file_of(kind), kind, payload)
    return {"type": kind, "ts": event.ts, "uuid": event.uuid, **payload}


def post(message: dict[str, JSON]) -> str | None:
    """Post a line to the hub without secrets, if one is set; why that failed, if it did."""
    hub = wiring.settings()["session_memory.hub"]
    if not hub:
        return None
    import json
    from urllib.error import URLError
    from urllib.request import Request, urlopen

    body = json.dumps(wiring.gate().value(message)).encode()
    request = Request(hub, body, {"Content-Type": "application/json"})  # noqa: S310 - checked
    try:
        with urlopen(request, timeout=HUB_TIMEOUT_S):  # noqa: S310 - http and https only
            return None
    except (URLError, OSError, ValueError) as error:
        return f"{hub} did not accept it: {error}"


def write_losses(losses: Mapping[str, str]) -> list[str]:
    """Write a note of each session that was lost and post it; why some were not, if so."""
    problems: list[str] = []
    for uid, reason in losses.items():
        try:
            note = write("note", f"{DATA_LOSS}: {uid}: {reason}", uid, origin="thence")
        except (ThenceError, OSError) as error:
            problems.append(f"the loss of {uid} could not be recorded: {error}")
            continue
        if failed := post(note):
            problems.append(f"the hub was not informed of the loss of {uid}: {failed}")
    return list(dict.fromkeys(problems))


def post_digests(store: Store, uids: Sequence[str]) -> str | None:
    """Post the digests of sessions to the hub, if that is set; why that did not work, if so."""
    settings = wiring.settings()
    if not (uids and settings["session_memory.hub"] and settings["session_memory.hub_digests"]):
        return None
    for sent, digest in enumerate(store.read_table("digests", Filter(uids=tuple(uids)))):
        if failed := post({"type": "digest", "session_uid": digest["uid"], **digest}):
            return f"{len(uids) - sent} digests were not posted: {failed}"
    return None


def _confirm_decisions(names: Sequence[str], *, yes: bool, json: bool) -> int:
    """Show decisions that somebody else wrote, ask, and let later sessions be told of them."""
    if not names:
        raise click.UsageError("name decisions by their ids: thence note --decision lists them")
    written = read_notes(wiring.home(), "decision")
    notes = [_named_note(written, name) for name in dict.fromkeys(names)]
    due = [note for note in notes if note.is_withheld]
    for note in due:
        click.echo(f"{note.uuid}  {clean(note.author)}, {clean(note.ts[:16])}", err=True)
        for line in wrap(note.text, width() - 4):  # all of it: what is confirmed has been seen
            click.echo(f"    {line}", err=True)
    if due and not yes:
        if json or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise NotAnswered(
                "nothing was confirmed: there is no terminal to ask on", hint="add --yes to confirm"
            )
        click.confirm("May later sessions be told of this?", abort=True, err=True)
    for note in due:
        _append("decision", confirmation_of(note))
    lines = [
        f"{note.uuid[:NOTE_ID_CHARS]}  {'confirmed' if note in due else 'nothing to confirm'}"
        for note in notes
    ]
    return answer({"confirmed": [note.uuid for note in due]}, lines, json=json)


def _named_note(notes: Sequence[Note], name: str) -> Note:
    matching = [note for note in notes if name and note.uuid.startswith(name)]
    if len(matching) != 1:
        number = "several decisions have" if matching else "no decision has"
        raise click.UsageError(
            f"{number} an id that starts with {name!r}: thence note --decision lists them"
        )
    return matching[0]


def unconfirmed_sessions(rows: Sequence[SessionRow]) -> list[SessionRow]:
    """Return the sessions that files brought and that the user has not confirmed."""
    confirmed = read_confirmations(wiring.home())
    return [row for row in rows if row.is_withheld(confirmed)]


def confirm_sessions(rows: Sequence[SessionRow]) -> None:
    """Let later sessions be told of sessions that files brought."""
    for row in {row.confirmation: row for row in rows}.values():
        _append("decision", session_confirmation(row))


def handle(
    kind: Kind,
    words: tuple[str, ...],
    wanted: str | None,
    *,
    confirm: bool,
    yes: bool,
    json: bool,
) -> int:
    """Write one down, confirm decisions, or without words list what is there."""
    if confirm:
        return _confirm_decisions(words, yes=yes, json=json)
    session = _session(wanted)
    if not words:
        return _list(kind, session, json=json)
    text = " ".join(words).strip()
    if not text:
        raise click.UsageError("no text given")
    note = write(kind, text, session, origin="cli")
    failed = post(note)
    if failed:
        click.echo(f"note: {clean(failed)}; it is saved in the file", err=True)
    return answer(note, [f"saved to {clean(tilde(str(file_of(kind))))}"], json=json)


def _session(wanted: str | None) -> str | None:
    if wanted is None:
        return None
    with wiring.store() as store:
        uid: str = wiring.session(store, wanted).session.session_uid
        return uid


def _list(kind: Kind, session: str | None, *, json: bool) -> int:
    notes = [
        note for note in read_notes(wiring.home(), kind) if session in (None, note.session_uid)
    ]
    if json:
        say(as_json([_object(note) for note in notes]))
        return 0
    now = present()
    for note in reversed(notes[-MAX_LISTED:]):
        of = f"session {short_id(note.session_uid.partition(':')[2])}" if note.session_uid else ""
        name = note.uuid[:NOTE_ID_CHARS] if note.is_withheld else ""
        parts = (project(note.cwd), clean(of), clean(note.author), clean(name))
        tell([style(f"{ago(when(note.ts), now):>6}  {'  '.join(filter(None, parts))}", fg=DIM)])
        tell([f"        {line}" for line in wrap(note.text, width() - 8)])
    if any(note.is_withheld for note in notes[-MAX_LISTED:]):
        tell(["hooks leave out what is unconfirmed: thence note --confirm ID"])
    if not notes:
        tell([f"no {kind} yet: thence {'decide' if kind == 'decision' else 'note'} TEXT"])
    return 0


def _object(note: Note) -> JSON:
    """Return a note under the names of the contract."""
    fields: dict[str, JSON] = msgspec.to_builtins(note)
    kind = fields.pop("kind")
    return {"type": kind, **{name: value for name, value in fields.items() if value is not None}}
