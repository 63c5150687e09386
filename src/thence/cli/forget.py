"""`thence forget`: a session that is gone everywhere, with proof.

Everywhere is: the rows, index, digest and packs of the store; the files that `thence sql` asks;
nudges; its decisions, notes, name and tags; what is noted of pushes; and, of a session of our own,
its files and its prompts in the history. What other agents wrote is theirs: it is named and left
alone, and sweeps will not read it again. The proof is a look through every byte of the home and of
the store; a database is asked for rows that name it, and for deleted ones that are still in pages.
What is left of a session that was forgotten before, by an older program or before a kill, goes too.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from thence.agents.profiles import agents, label_of
from thence.cli import options, wiring
from thence.cli.columns import short_id, tell, tilde, title_text
from thence.cli.deletion import OURS, forget, own_files
from thence.cli.file_changes import confirm
from thence.cli.terminal import as_json, clean, cut, say, several, size, style, width
from thence.errors import SessionBusy, SessionNotFound, ThenceError

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
    database: Sequence[str] = ()
    """Where a store that is no file still has something of it."""
    is_asked: bool | None = None
    """Whether such a store can tell; None for a store in a file."""


@click.command(
    "forget",
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
        journals = wiring.local_journals(store)  # while the store still knows their projects
        uid, row, needles = _meant(store, wanted, journals)
        own = list(own_files(store, uid))
        about = _about(row) if row is not None else {"session_uid": uid}
        if not json:
            left = [f"delete what is left of {clean(uid)}, which was forgotten before"]
            tell(_plan(row, own) if row is not None else left)
        if dry_run:
            if json:
                say(as_json({**about, "dry_run": True, "files": [str(p) for p in own]}))
            return 0
        confirm(yes=yes, json=json, what="delete it")
        pending = forget(store, uid, "deleted by thence store forget")
        proof = _prove(store, uid, needles, journals)
    if json:
        say(as_json({**about, **_as_object(proof), "pending": bool(pending)}))
    else:
        tell(_describe_proof(proof))
    if pending and proof.database:
        raise SessionBusy(
            f"deleted rows are not erased yet in {several(len(proof.database), 'table')}",
            hint="whoever owns the tables runs thence sweep with this store; see docs/scale.md",
        )
    if pending:
        raise SessionBusy(
            "some pages are still in use by a reader of the store",
            hint="run thence sweep to erase them, then check again",
        )
    if proof.traces:
        path, what = proof.traces[0]
        raise StillThere(f"{what} is still in {path}", hint="see thence doctor --deep")
    if proof.database:
        raise StillThere(f"{uid} is still in the table {proof.database[0]}", hint="try again")
    return 0


def _meant(
    store: Store, wanted: str, journals: Sequence[Path]
) -> tuple[str, SessionRow | None, list[str]]:
    """Return a session, its row, and texts that must be nowhere once it is deleted.

    One without a row was forgotten before, and is still named somewhere.
    """
    try:
        row = wiring.session(store, wanted)
    except SessionNotFound:
        uid = _forgotten(store, wanted)
        if uid is None:
            raise
        needles = _names(store, uid) or [uid]
        proof = _prove(store, uid, needles, journals)
        if not (proof.traces or proof.database):
            raise
        return uid, None, needles
    return row.session.session_uid, row, _needles(store, row)


def _forgotten(store: Store, wanted: str) -> str | None:
    """Return the forgotten session that an id means, or its beginning where it is still listed."""
    listed = [str(removal["uid"]) for removal in store.read_table("removals")]
    named = [uid for uid in listed if uid.startswith(wanted) or f":{wanted}" in uid]
    known = store.known(())
    ids = [wanted, *(f"{agent}:{wanted}" for agent in agents()), *named]
    return next((uid for uid in ids if known.is_forgotten(uid)), None)


# -- proof ----------------------------------------------------------------------------------


def _needles(store: Store, row: SessionRow) -> list[str]:
    """Return texts that must be nowhere afterwards: only this session has them."""
    session = row.session
    needles = _names(store, session.session_uid)
    titles = {
        other.title
        for other in store.sessions()
        if other.session.session_uid != session.session_uid
    }
    if row.title and len(row.title) >= MIN_TITLE_CHARS and row.title not in titles:
        needles.append(row.title)
    return needles


def _names(store: Store, uid: str) -> list[str]:
    """Return the id of a session, as others do not name it: what comes from it may go on to."""
    name = uid.partition(":")[2]
    others = (other for other in store.sessions() if other.session.session_uid != uid)
    is_named = any(edge.session == name for other in others for edge in other.edges)
    return [] if is_named else [name]


def _prove(store: Store, uid: str, needles: list[str], journals: Sequence[Path]) -> ErasureProof:
    """Look through every byte of the home and of a store in a file; ask a database.

    Of a session of our own also through the journals that projects keep with themselves.
    """
    from thence.format.layout import LOCAL_SESSIONS, LOCAL_SIDECHAINS
    from thence.memory.disk import paths_below

    own = journals if uid.startswith(f"{OURS}:") else ()
    folders = [project / name for project in own for name in (LOCAL_SESSIONS, LOCAL_SIDECHAINS)]
    path = getattr(store, "path", None)
    beside: list[Path] = []
    if isinstance(path, Path):
        beside = [path.with_name(f"{path.name}{end}") for end in ("", "-wal", "-shm")]
        folders.append(getattr(store.blobs, "folder", path.with_name("packs")))
    proof = prove(wiring.home(), needles, [*beside, *chain(*map(paths_below, folders))])
    if isinstance(path, Path):
        return proof
    ask = getattr(store, "traces", None)
    left = ask(uid) if ask is not None else ()
    return proof._replace(database=left, is_asked=ask is not None)


def prove(home: Path, needles: list[str], others: Iterable[Path] = ()) -> ErasureProof:
    """Look through every byte of the home, names of files too, and of others that lie elsewhere."""
    from thence.memory.disk import paths_below

    elsewhere = (path for path in others if home not in path.parents)
    files: list[Path] = []
    traces: list[tuple[Path, str]] = []
    total = 0
    wanted = [(needle, needle.encode("utf-8", "replace")) for needle in needles]
    longest = max((len(raw) for _, raw in wanted), default=1)
    for path in chain(paths_below(home), elsewhere):
        if path.is_symlink() or not path.is_file():
            continue
        files.append(path)
        # Removed by a process that is still working.
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            name = os.fsencode(path.name)
            present = {needle for needle, raw in wanted if raw in name}
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
        "database": list(proof.database) if proof.is_asked else None,
    }


def _plan(row: SessionRow, own: list[Path]) -> Iterator[str]:
    from thence.memory.stored_paths import locate

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
    if proof.is_asked is False:
        yield "  ? the store is no file and cannot be asked: not checked"
    elif proof.is_asked and not proof.database:
        yield "  ✓ the database: no row names it, none is left in deleted rows"
    for place in proof.database:
        yield cut(f"  ✗ the database: {clean(place)}", width())
