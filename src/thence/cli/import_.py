"""`thence import`: bring sessions of files into the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from thence.cli import load_command, options, wiring
from thence.cli.terminal import answer, clean, several
from thence.errors import SKIPS

if TYPE_CHECKING:
    from thence.bridge.import_files import Arrival, Incoming
    from thence.bridge.record_json import Parcel


@click.command(
    "import",
    help="Import sessions from files: ATIF, share files, exports, logs. Without FILE: what your"
    " agents wrote, as thence sweep does.",
    epilog="Secrets are redacted. A second import of a file changes nothing, and a session whose"
    " own log is on this machine stays as it is. Continue an imported session in your agent:"
    " thence resume ID --with AGENT.",
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
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be imported; write nothing.")
@options.as_json
@click.pass_context
def command(
    ctx: click.Context,
    paths: tuple[Path, ...],
    identities: tuple[Path, ...],
    *,
    dry_run: bool,
    json: bool,
) -> int:
    """Read files, and store the sessions in them."""
    from thence.bridge.import_files import read_file

    if not paths:
        swept: int = ctx.invoke(load_command("sweep"), dry_run=dry_run, json=json)
        return swept
    files = [(path, read_file(path, identities)) for path in paths]
    arrivals = _store(files, dry_run=dry_run)
    code = SKIPS if any(arrival.status in _REFUSED for arrival in arrivals) else 0
    report = {"dry_run": dry_run, "sessions": arrivals}
    return answer(report, _lines(arrivals, dry_run=dry_run), json=json, code=code)


def _store(files: Sequence[tuple[Path, Incoming]], *, dry_run: bool) -> list[Arrival]:
    from thence.bridge.import_files import Importer

    out: list[Arrival] = []
    with wiring.store(must_exist=False) as store, store.sweeping(wiring.SWEEP_WAIT_S):
        importer = Importer(
            store,
            wiring.redactor(),
            exclude=wiring.settings()["session_memory.exclude"],
            is_dry=dry_run,
        )
        for path, incoming in files:
            for parcel in incoming.parcels:
                arrival = importer.bring_in(parcel, incoming.form, name=path.name, by=incoming.by)
                out.append(arrival)
                if arrival.status == "new" and not dry_run:
                    _label(arrival, parcel)
        if any(arrival.status in ("new", "updated") for arrival in out) and not dry_run:
            wiring.sweep_of(store).run({})  # digests, and who owns what
    return out


def _label(arrival: Arrival, parcel: Parcel) -> None:
    """Add the name and the tags that a session had where it comes from."""
    from thence.cli import notes
    from thence.format.normal import Session, one_line
    from thence.memory.labels import MAX_NAME_CHARS, BadTag, tag_of

    redact = wiring.redactor().redact
    tags = []
    for text in parcel.tags:
        try:
            tags.append(tag_of(redact(text)))
        except BadTag:
            continue
    name = one_line(redact(parcel.name), MAX_NAME_CHARS) if parcel.name else None
    if name or tags:
        agent, _, native = parcel.uid.partition(":")
        session = Session(arrival.session_uid, agent, native)
        notes.label(session, name=name, tags=tags or None)


_REFUSED = ("forgotten", "excluded")
_WORDS = {
    "unchanged": "already imported",
    "older": "an older copy than the stored one; not imported",
    "has its own log": "its own log is on this machine; not imported",
    "forgotten": "you deleted it for good; not imported",
    "excluded": "its project is excluded; not imported",
}


def _lines(arrivals: Sequence[Arrival], *, dry_run: bool) -> Iterator[str]:
    for arrival in arrivals:
        what = _WORDS.get(arrival.status)
        if what is None:
            done = "would be " if dry_run else ""
            what = f"{done}{'imported' if arrival.status == 'new' else 'updated'}"
            what += f", {several(arrival.events, 'event')}"
            if secrets := sum(arrival.redacted.values()):
                what += f", {several(secrets, 'secret')} redacted"
        title = f"  {clean(arrival.title)}" if arrival.title else ""
        yield f"{clean(arrival.session_uid)}  {what}{title}"
    if arrivals and not dry_run:
        uid = clean(arrivals[-1].session_uid)
        yield f"thence open {uid} opens it; thence resume {uid} --with AGENT continues it"
