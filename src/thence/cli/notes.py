"""Decisions and notes that people write down: files first, a hub only when one is set.

Each kind is a file of its own below `notes/` in the home, in the form of our event lines, so that
every tool that reads them reads these; no session's file is touched. What is written is on the
disk before anything else happens, with its origin: the command line, or an agent via MCP. With
`session_memory.hub` set, what a person writes is also posted there; a hub that does not answer
changes nothing about the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from thence import config
from thence.cli import wiring
from thence.cli.columns import DIM, ago, present, project, short_id, tell, tilde, when
from thence.cli.terminal import answer, as_json, clean, say, several, style, width, wrap
from thence.errors import BadConfig, ThenceError
from thence.memory.notes import note_path, read_notes
from thence.memory.store import DATA_LOSS

if TYPE_CHECKING:
    from thence.format.normal import Session
    from thence.format.records import JSON
    from thence.memory.labels import Label
    from thence.memory.notes import Kind, Note, Origin
    from thence.memory.store import Store

# A command that waits for a hub that is down is worse than a note that is not posted.
HUB_TIMEOUT_S: Final = 5.0
"""Seconds that a hub may take to answer."""
MAX_LISTED: Final = 20


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
    """Post a line to the hub, if one is set; why that did not work, if it did not."""
    hub = wiring.settings()["session_memory.hub"]
    if not hub:
        return None
    import json
    from urllib.error import URLError
    from urllib.request import Request, urlopen

    body = json.dumps(message).encode()
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
    from thence.memory.store import Filter

    for sent, digest in enumerate(store.read_table("digests", Filter(uids=tuple(uids)))):
        if failed := post({"type": "digest", "session_uid": digest["uid"], **digest}):
            return f"{len(uids) - sent} digests were not posted: {failed}"
    return None


def handle(kind: Kind, words: tuple[str, ...], wanted: str | None, *, json: bool) -> int:
    """Write one down, or without words list what is there."""
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
        parts = (ago(when(note.ts), now), project(note.cwd), clean(of), note.author)
        tell([style(f"{parts[0]:>6}  {'  '.join(filter(None, parts[1:]))}", fg=DIM)])
        tell([f"        {line}" for line in wrap(note.text, width() - 8)])
    if not notes:
        tell([f"no {kind} yet: thence {'decide' if kind == 'decision' else 'note'} TEXT"])
    return 0


def _object(note: Note) -> JSON:
    """Return a note under the names of the contract."""
    import msgspec

    fields: dict[str, JSON] = msgspec.to_builtins(note)
    kind = fields.pop("kind")
    return {"type": kind, **{name: value for name, value in fields.items() if value is not None}}


def describe_losses(losses: Mapping[str, str]) -> str:
    """Say in a sentence how many sessions were lost, and why the first of them was."""
    many, reason = several(len(losses), "session"), next(iter(losses.values()), "")
    were = "was" if len(losses) == 1 else "were"
    why = reason.removesuffix(": data loss")
    return f"{many} {were} removed before it was fully analysed: {why}"
