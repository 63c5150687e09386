"""Decisions and notes that people write down: files first, a hub only when one is set.

Each kind is a file of its own below `notes/` in the home, in the form of our event lines, so that
every tool that reads them reads these; no session's file is touched. What is written is on the
disk before anything else happens. With `session_memory.hub` set, the line is also posted there;
a hub that does not answer changes nothing about the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from thence import config
from thence.cli import wiring
from thence.cli.columns import DIM, ago, present, project, tell, tilde, when
from thence.cli.terminal import as_json, clean, say, style, width, wrap
from thence.errors import BadConfig

if TYPE_CHECKING:
    from thence.format.records import JSON

Kind = Literal["decision", "note"]
FOLDER: Final = "notes"
PATIENCE: Final = 5.0
"""Seconds that a hub may take to answer."""
LISTED: Final = 20


def file_of(kind: Kind) -> Path:
    """Give the file of one kind."""
    return wiring.home() / FOLDER / f"{kind}s.jsonl"


def write(kind: Kind, text: str, session: str | None) -> dict[str, JSON]:
    """Write one down, durable on return."""
    from thence.format import codec
    from thence.format.records import Event
    from thence.journal.ids import now_text, uuid7
    from thence.journal.log import Log, make_folder

    if not config.persistence():
        raise BadConfig("keeping anything is switched off", hint=f"unset {config.OFF}")
    payload: dict[str, JSON] = {"text": text, "cwd": str(Path.cwd())}
    if session is not None:
        payload["session_uid"] = session
    event = Event(kind, now_text(), uuid7(), None, payload)
    path = file_of(kind)
    make_folder(path.parent)
    log = Log(path, durability="event")
    try:
        log.append(codec.encode(event))
    finally:
        log.close()
    return {"type": kind, "ts": event.ts, "uuid": event.uuid, **payload}


def read(kind: Kind) -> Iterator[dict[str, JSON]]:
    """Give all of one kind, the newest last; lines that are none are passed over."""
    from thence.format import codec
    from thence.format.records import Skipped

    try:
        body = file_of(kind).read_bytes()
    except FileNotFoundError:
        return
    for found in codec.decode(body).events:
        if not isinstance(found, Skipped) and isinstance(found.payload, dict):
            yield {"type": found.type, "ts": found.ts, "uuid": found.uuid, **found.payload}


def post(told: dict[str, JSON]) -> str | None:
    """Post a line to the hub, if one is set; why that did not work, if it did not."""
    hub = wiring.settings()["session_memory.hub"]
    if not hub:
        return None
    import json
    from urllib.error import URLError
    from urllib.request import Request, urlopen

    body = json.dumps(told).encode()
    request = Request(hub, body, {"Content-Type": "application/json"})  # noqa: S310 - checked
    try:
        with urlopen(request, timeout=PATIENCE):  # noqa: S310 - http and https only
            return None
    except (URLError, OSError, ValueError) as error:
        return f"{hub} did not take it: {error}"


def handle(kind: Kind, words: tuple[str, ...], wanted: str | None, *, json: bool) -> int:
    """Write one down, or without words list what is there."""
    session = _session(wanted)
    if not words:
        return _list(kind, session, json=json)
    text = " ".join(words).strip()
    if not text:
        raise click.UsageError("say what to write down")
    told = write(kind, text, session)
    failed = post(told)
    if failed:
        click.echo(f"note: {clean(failed)}; it is in the file", err=True)
    if json:
        say(as_json(told))
    else:
        tell([f"written down in {clean(tilde(str(file_of(kind))))}"])
    return 0


def _session(wanted: str | None) -> str | None:
    if wanted is None:
        return None
    with wiring.store() as store:
        uid: str = wiring.session(store, wanted).session.session_uid
        return uid


def _list(kind: Kind, session: str | None, *, json: bool) -> int:
    found = [one for one in read(kind) if session is None or one.get("session_uid") == session]
    if json:
        say(as_json(found))
        return 0
    now = present()
    for one in reversed(found[-LISTED:]):
        place = project(one.get("cwd") if isinstance(one.get("cwd"), str) else None)
        head = f"{ago(when(one['ts']), now):>6}  {place}"
        tell([style(head.rstrip(), fg=DIM)])
        tell([f"        {line}" for line in wrap(str(one.get("text", "")), width() - 8)])
    if not found:
        tell([f"no {kind} yet: thence {'decide' if kind == 'decision' else 'note'} TEXT"])
    return 0
