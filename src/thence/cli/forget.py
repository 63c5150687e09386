"""`thence forget`: a session that is gone everywhere, with proof.

Everywhere is: the rows, index, digest and packs of the store; the files that `thence sql` asks;
nudges; its decisions, notes, name and tags; and, of a session of our own, its files and its
prompts in the history. What other agents wrote is theirs: it is named and left alone, and sweeps
will not read it again. The proof is a look through every byte of the home.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from thence.agents.profiles import label_of
from thence.cli import options, wiring
from thence.cli.columns import short_id, tell, tilde, title_text
from thence.cli.deletion import OURS, forget, own_files
from thence.cli.file_changes import confirm
from thence.cli.terminal import as_json, clean, cut, say, several, size, style, width
from thence.errors import SessionBusy, ThenceError

if TYPE_CHECKING:
    from thence.format.records import JSON
    from thence.memory.store import SessionRow, Store

PIECE_BYTES: Final = 1 << 20
"""How much of a file is looked through at once."""
MIN_TITLE_CHARS = 24
"""Characters of a text that is looked for: shorter ones may be anywhere by chance."""


class StillThere(ThenceError):
    """The proof failed."""


class ErasureProof(NamedTuple):
    """What was looked through, and what was found."""

    files: list[Path]
    bytes: int
    traces: list[tuple[Path, str]]


@click.command(
    "forget",
    help="Delete a session for good, and check that it is gone.",
    epilog="Removes it from store, index, digest and packs; if thence recorded it, its files too."
    " Files of other agents are listed, left alone and not imported again.",
)
@click.argument("wanted", metavar="ID", shell_complete=options.complete_ids)
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be removed; change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@options.as_json
def command(wanted: str, *, dry_run: bool, yes: bool, json: bool) -> int:
    """Forget a session, and prove it."""
    with wiring.store() as store, store.sweeping(wiring.SWEEP_WAIT_S):
        row = wiring.session(store, wanted)
        own = list(own_files(row))
        if not json:
            tell(_plan(row, own))
        if dry_run:
            if json:
                say(as_json({**_about(row), "dry_run": True, "files": [str(p) for p in own]}))
            return 0
        confirm(yes=yes, json=json, what="delete it")
        needles = _needles(store, row)
        pending = forget(store, row, "deleted by thence store forget")
    proof = prove(wiring.home(), needles)
    if json:
        say(as_json({**_about(row), **_as_object(proof), "pending": bool(pending)}))
    else:
        tell(_describe_proof(proof))
    if pending:
        raise SessionBusy(
            "some pages are still in use by a reader of the store",
            hint="run thence sweep to erase them, then check again",
        )
    if proof.traces:
        path, what = proof.traces[0]
        raise StillThere(f"{what} is still in {path}", hint="see thence doctor --deep")
    return 0


# -- proof ----------------------------------------------------------------------------------


def _needles(store: Store, row: SessionRow) -> list[str]:
    """Return texts that must be nowhere afterwards: only this session has them."""
    session = row.session
    others = [
        other for other in store.sessions() if other.session.session_uid != session.session_uid
    ]
    name = session.native_session_id  # what comes from it may go on naming it
    named = any(edge.session == name for other in others for edge in other.edges)
    needles = [] if named else [name]
    titles = {other.title for other in others}
    if row.title and len(row.title) >= MIN_TITLE_CHARS and row.title not in titles:
        needles.append(row.title)
    return needles


def prove(home: Path, needles: list[str]) -> ErasureProof:
    """Look through every byte of the home."""
    from thence.memory.disk import paths_below

    files: list[Path] = []
    traces: list[tuple[Path, str]] = []
    total = 0
    wanted = [(needle, needle.encode("utf-8", "replace")) for needle in needles]
    longest = max((len(raw) for _, raw in wanted), default=1)
    for path in paths_below(home):
        if path.is_symlink() or not path.is_file():
            continue
        files.append(path)
        # Removed by a process that is still working.
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            present: set[str] = set()
            tail = b""  # a text may lie across two pieces
            while piece := file.read(PIECE_BYTES):
                total += len(piece)
                present.update(needle for needle, raw in wanted if raw in tail + piece)
                tail = piece[-longest:]
            traces += [(path, needle) for needle in needles if needle in present]
    return ErasureProof(files, total, traces)


# -- telling --------------------------------------------------------------------------------


def _about(row: SessionRow) -> dict[str, JSON]:
    session = row.session
    return {
        "session_uid": session.session_uid,
        "bytes": row.raw_bytes,
        "source_path": session.source_path,
        "source_left": session.flavor != OURS and not row.gone,
    }


def _as_object(proof: ErasureProof) -> dict[str, JSON]:
    return {
        "files_checked": [str(path) for path in proof.files],
        "bytes_checked": proof.bytes,
        "traces": [{"path": str(path), "text": text} for path, text in proof.traces],
    }


def _plan(row: SessionRow, own: list[Path]) -> Iterator[str]:
    from thence.memory.fields import locate

    session = row.session
    title = title_text(row.title)
    yield cut(f"forget {short_id(session.native_session_id)}  {title}", width())
    yield f"  {several(row.events, 'event')}, {size(row.raw_bytes)}, its digest and costs"
    for path in own:
        yield cut(f"  {clean(tilde(str(path)))}", width())
    if session.flavor != OURS and session.source_path and not row.gone:
        agent = clean(label_of(session.flavor))
        yield f"  {agent}'s own log stays and is not imported again. To remove it:"
        yield style(f"    rm {clean(tilde(locate(session.source_path)))}", bold=True)


def _describe_proof(proof: ErasureProof) -> Iterator[str]:
    yield f"deleted; checked {several(len(proof.files), 'file')}, {size(proof.bytes)}:"
    folders = Counter(path.parent for path in proof.files)
    for folder, number in sorted(folders.items()):
        places = sorted({place for place, _ in proof.traces if place.parent == folder})
        words = f"{clean(tilde(str(folder)))}  {several(number, 'file')}"
        mark = f"✗ {words}: {places[0].name}" if places else f"✓ {words}"
        yield cut(f"  {mark}", width())
