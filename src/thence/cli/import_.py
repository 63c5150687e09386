"""`thence import`: bring sessions of files into the store."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from thence.cli import load_command, options, wiring
from thence.cli.columns import tell
from thence.cli.terminal import as_json, clean, cut, say, several
from thence.errors import SKIPS
from thence.format.normal import Session, one_line

if TYPE_CHECKING:
    from thence.bridge.import_files import Arrival, Incoming
    from thence.bridge.record_json import Parcel


@click.command(
    "import",
    help="Import sessions from files: ATIF, share files, exports, logs. Without FILE: what your"
    " agents wrote, as thence sweep does.",
    epilog="Secrets are redacted. A second import of a file changes nothing, and a session whose"
    " own log is on this machine stays as it is. Continue an imported session in your agent:"
    " thence resume ID --with AGENT. What a file brought is marked as such everywhere, and the hook"
    " tells later sessions of it once you confirm: with --confirm, or on the terminal when asked.",
)
@click.argument("paths", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "-i",
    "--identity",
    "identities",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Your age or SSH private key, for encrypted files.",
)
@click.option(
    "--confirm",
    is_flag=True,
    help="Let later sessions be told of these, without asking. Also takes ids of imported"
    " sessions.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be imported; write nothing.")
@options.as_json
@click.pass_context
def command(
    ctx: click.Context,
    paths: tuple[Path, ...],
    identities: tuple[Path, ...],
    *,
    confirm: bool,
    dry_run: bool,
    json: bool,
) -> int:
    """Read files, and store the sessions in them."""
    from thence.bridge.import_files import read_file

    if not paths:
        swept: int = ctx.invoke(load_command("sweep"), dry_run=dry_run, json=json)
        return swept
    ids = [f"{path}" for path in paths if confirm and not path.exists()]
    files = [(path, read_file(path, identities)) for path in paths if f"{path}" not in ids]
    brought = _store(files, dry_run=dry_run)
    arrivals = [arrival for _, some in brought for arrival in some]
    if not json:
        tell(_lines(arrivals, dry_run=dry_run))
    confirmed = [] if dry_run else _confirm(brought, ids, is_sure=confirm, is_silent=json)
    if json:
        say(as_json({"dry_run": dry_run, "sessions": arrivals, "confirmed": confirmed}))
    return SKIPS if any(arrival.status in _REFUSED for arrival in arrivals) else 0


def _store(
    files: Sequence[tuple[Path, Incoming]], *, dry_run: bool
) -> list[tuple[str, list[Arrival]]]:
    """Store what files hold; returns the name of each with what became of its sessions."""
    from thence.bridge.import_files import Importer

    out: list[tuple[str, list[Arrival]]] = []
    with wiring.store(must_exist=False) as store, store.sweeping(wiring.SWEEP_WAIT_S):
        importer = Importer(
            store,
            wiring.gate(),
            wiring.rules(),
            exclude=wiring.settings()["session_memory.exclude"],
            is_dry=dry_run,
        )
        for path, incoming in files:
            out.append((path.name, []))
            for parcel in incoming.parcels:
                arrival = importer.bring_in(parcel, incoming.form, name=path.name, by=incoming.by)
                out[-1][1].append(arrival)
                if arrival.status == "new" and not dry_run:
                    _label(arrival, parcel)
        statuses = {arrival.status for _, some in out for arrival in some}
        if statuses & {"new", "updated"} and not dry_run:
            wiring.sweep_of(store).run({})  # digests, and who owns what
    return out


def _confirm(
    brought: Sequence[tuple[str, list[Arrival]]],
    ids: Sequence[str],
    *,
    is_sure: bool,
    is_silent: bool,
) -> list[str]:
    """Ask once for each file whether later sessions may be told of it; returns what may be.

    A copy that is older than what is stored confirms nothing: it is not what would be told.
    """
    from thence.cli import notes
    from thence.memory.store import Filter

    confirmed: list[str] = []
    with wiring.store(must_exist=False) as store:
        chosen = [(name, [wiring.session(store, name)]) for name in ids]
        for name, some in brought:
            uids = tuple(arrival.session_uid for arrival in some if arrival.status in _STORED)
            chosen.append((name, list(store.sessions(Filter(uids=uids))) if uids else []))
        for name, rows in chosen:
            due = notes.unconfirmed_sessions(rows)
            if due and (is_sure or (not is_silent and _is_agreed(name, len(due)))):
                notes.confirm_sessions(due)
                confirmed += [row.session.session_uid for row in due]
            elif due and not is_silent:
                uid = clean(due[0].session.session_uid)
                tell([f"hooks leave it out until you confirm it: thence import --confirm {uid}"])
    if confirmed and not is_silent:
        tell([f"later sessions may be told of {several(len(confirmed), 'session')}"])
    return confirmed


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _is_agreed(name: str, number: int) -> bool:
    if not _is_terminal():
        return False
    many = several(number, "session")
    question = f"{clean(name)}, {many}: may later sessions in the same folder be told of it?"
    return click.confirm(question, default=False, err=True)


def _label(arrival: Arrival, parcel: Parcel) -> None:
    """Add the name and the tags that a session had where it comes from."""
    from thence.cli import notes
    from thence.memory.labels import MAX_NAME_CHARS, BadTag, tag_of

    gate = wiring.gate()
    tags = []
    for text in parcel.tags:
        try:
            tags.append(tag_of(gate.text(text)))
        except BadTag:
            continue
    name = one_line(gate.text(parcel.name), MAX_NAME_CHARS) if parcel.name else None
    if name or tags:
        agent, _, native = parcel.uid.partition(":")
        session = Session(arrival.session_uid, agent, native)
        notes.label(session, name=name, tags=tags or None)


MAX_ID_COLUMNS = 80
_REFUSED = ("forgotten", "excluded", "bad id")
_STORED = ("new", "updated", "unchanged")
_WORDS = {
    "unchanged": "already imported",
    "older": "an older copy than the stored one; not imported",
    "has its own log": "its own log is on this machine; not imported",
    "forgotten": "you deleted it for good; not imported",
    "excluded": "its project is excluded; not imported",
    "bad id": "not the id of a session; not imported",
}


def _lines(arrivals: Sequence[Arrival], *, dry_run: bool) -> Iterator[str]:
    for arrival in arrivals:
        what = _WORDS.get(arrival.status)
        if what is None:
            done = "would be " if dry_run else ""
            what = f"{done}{'imported' if arrival.status == 'new' else 'updated'}"
            what += f", {several(arrival.events, 'event')}"
            if secrets := sum(arrival.redacted.values()):
                redacted = several(secrets, "secret", is_bound=arrival.more_redacted)
                what += f", {redacted} redacted"
        title = f"  {clean(arrival.title)}" if arrival.title else ""
        yield f"{cut(clean(arrival.session_uid), MAX_ID_COLUMNS)}  {what}{title}"
    if bad := sum(arrival.status == "bad id" for arrival in arrivals):
        yield f"{several(bad, 'session')} refused because of their ids"
    stored = [arrival for arrival in arrivals if arrival.status not in _REFUSED]
    if stored and not dry_run:
        uid = clean(stored[-1].session_uid)
        yield f"thence open {uid} opens it; thence resume {uid} --with AGENT continues it"
