"""`thence share`: one session in one file for a colleague, redacted, encrypted if wanted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from thence import __version__, config
from thence.cli import options, wiring
from thence.cli.terminal import answer, clean, several, size
from thence.errors import NotAppendable, NotReadable, remedy

if TYPE_CHECKING:
    from thence.agents.sessions import LoadedSession
    from thence.memory.gate import Gate


@click.command(
    "share",
    help="Write a session to one file for a colleague, redacted. --to encrypts it.",
    epilog="Your colleague runs: thence import FILE. Then thence open ID shows it in the"
    " viewer, and thence resume ID --with AGENT continues it in an agent. Redaction finds"
    " known kinds of secrets: read the file before you share it.",
)
@click.argument("wanted", metavar="ID|PATH", shell_complete=options.complete_ids)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file."
)
@click.option(
    "--to",
    "recipients",
    multiple=True,
    metavar="KEY",
    help="Encrypt to this public key: age1… or ssh-ed25519 …; may be repeated.",
)
@click.option("--html", is_flag=True, help="Write a page to read only, for any browser.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@options.as_json
def command(
    wanted: str,
    output: Path | None,
    recipients: tuple[str, ...],
    *,
    html: bool,
    force: bool,
    json: bool,
) -> int:
    """Write a share file, and say what was redacted."""
    from thence.bridge.share import encrypt_file, share_file
    from thence.cli.lookup import load_named
    from thence.memory.labels import Label

    loaded = load_named(wanted)  # as it is stored, redacted; else as its file has it
    gate = wiring.gate()
    uid = gate.text(loaded.graph.uid)
    label = wiring.labels().get(uid, Label())
    by = f"thence {__version__}"
    body, counts = share_file(loaded, gate, by=by, name=label.name, tags=label.tags)
    if html:
        body = _page(loaded, gate, label.name)
    if recipients:
        body = encrypt_file(body, recipients)
    path = output or Path(_file_name(uid, html=html, is_encrypted=bool(recipients)))
    _write(path, body, force=force)
    report = {"session_uid": uid, "path": str(path), "bytes": len(body)}
    report |= {"redacted": counts, "encrypted_to": len(recipients)}
    lines = _lines(path, len(body), counts, len(recipients), html=html)
    return answer(report, lines, json=json)


def _page(loaded: LoadedSession, gate: Gate, name: str | None) -> bytes:
    from thence.format import export_formats
    from thence.memory.readouts import readout_of

    session = readout_of(gate.session(loaded).graph)
    return export_formats.document(
        export_formats.page(session, name=name and gate.text(name))
    ).encode()


def _file_name(uid: str, *, html: bool, is_encrypted: bool) -> str:
    """Return a name for the file: of the agent and the id, without what a name must not have."""
    safe = "".join(sign if sign.isalnum() or sign == "-" else "-" for sign in uid)[:80]
    return f"{safe}.{'html' if html else 'thence'}{'.age' if is_encrypted else ''}"


def _write(path: Path, body: bytes, *, force: bool) -> None:
    if path.exists() and not force:
        raise NotReadable(f"{path} exists", hint="choose another name with -o, or add --force")
    try:
        with config.replacing(path, sync=False) as file:
            file.write(body)
    except OSError as error:
        raise NotAppendable(f"cannot write {path}: {error.strerror}", hint=remedy(error)) from error


def _lines(
    path: Path, length: int, counts: dict[str, int], recipients: int, *, html: bool
) -> Iterator[str]:
    keys = f", encrypted to {several(recipients, 'key')}" if recipients else ""
    yield f"wrote {clean(str(path))}, {size(length)}{keys}"
    number = sum(counts.values())
    kinds = ", ".join(f"{clean(name)} {times}" for name, times in counts.items())
    named = f": {kinds}" if kinds else ""
    yield f"{several(number, 'secret')} redacted{named}; a second check found none"
    if not html:
        yield f"your colleague runs: thence import {clean(path.name)}"
