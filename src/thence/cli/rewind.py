"""`thence rewind`: move a session of our own back, its line or its files, never both unasked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from thence.cli import options, wiring
from thence.cli.columns import DIM, short_id, tell
from thence.cli.file_changes import confirm
from thence.cli.terminal import as_json, clean, cut, say, several, style, width
from thence.errors import SessionNotFound, ThenceError

if TYPE_CHECKING:
    from thence.format.readout import Readout
    from thence.format.records import JSON
    from thence.journal import Session
    from thence.journal.checkpoint import Checkpoint, FileChange

OURS = "thence"


class ForeignSession(ThenceError):
    """Another agent's session: it is read, never written."""


class Move(NamedTuple):
    """Where the line would go."""

    uuid: str
    leaving: int
    """Events that leave the live line."""


@click.command(
    "rewind",
    epilog="Without --to and --files: list its checkpoints. Nothing is deleted: a rewound branch"
    " stays readable, and files are saved before they change, so that you can undo it.",
)
@click.argument("wanted", metavar="ID", shell_complete=options.complete_ids)
@click.option("--to", metavar="EVENT", help="Continue from this event; files stay.")
@click.option(
    "--files",
    metavar="CHECKPOINT",
    help="Restore files to this checkpoint; the conversation stays.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Show what would change; change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@options.as_json
def command(
    wanted: str, to: str | None, files: str | None, *, dry_run: bool, yes: bool, json: bool
) -> int:
    """Rewind a session."""
    if to is not None and files is not None:
        raise click.UsageError("use --to (conversation) or --files, not both")
    name, path = _own(wanted)
    if to is not None:
        return _line(name, path, to, dry_run=dry_run, yes=yes, json=json)
    session = _open(name)
    if files is None:
        return _list(session.checkpoints, json=json)
    target = _checkpoint(session.checkpoints, files)
    return _files(session, target, dry_run=dry_run, yes=yes, json=json)


def _own(wanted: str) -> tuple[str, Path]:
    """Find a session of our own by its id, kept or not; refuse those of others."""
    from thence import Journal

    sessions = [
        session
        for session in Journal().sessions(limit=10**9)
        if session.session_id.startswith(wanted)
    ]
    exact = [session for session in sessions if session.session_id == wanted]
    if len(exact or sessions) == 1:
        session = (exact or sessions)[0]
        return session.session_id, session.path
    if sessions:
        names = ", ".join(short_id(session.session_id) for session in sessions[:5])
        raise SessionNotFound(f"{wanted!r} is ambiguous: {names}", hint="give more characters")
    with wiring.store() as store:
        row = wiring.session(store, wanted)
    flavor, native = row.session.flavor, row.session.native_session_id
    if flavor == OURS:
        raise SessionNotFound(
            f"the files of {native} are not in this data folder", hint="thence show"
        )
    from thence.agents.profiles import agent_of

    agent = agent_of(flavor)
    hint = agent.profile.rewind_hint if agent is not None else ""
    label = agent.label if agent is not None else flavor
    raise ForeignSession(
        f"{short_id(native)} belongs to {label}: thence never changes sessions of other tools",
        hint=hint or f"rewind it in {label}",
    )


def _open(name: str) -> Session:
    """Open a session so that opening alone writes nothing."""
    from thence import Journal

    return Journal().resume(name, mode="continue", orphans="mark")


# -- the line -------------------------------------------------------------------------------


def _line(name: str, path: Path, to: str, *, dry_run: bool, yes: bool, json: bool) -> int:
    from thence.agents.sessions import load
    from thence.memory.readouts import readout_of
    from thence.memory.recall import place_of

    session_read = readout_of(load(path).graph)
    move = _move(session_read, place_of(session_read, to))
    if not json:
        verb = "would leave" if dry_run else "leave"
        tell([f"{several(move.leaving, 'event')} {verb} the active branch; they stay in the log"])
    if not dry_run:
        confirm(yes=yes, json=json, what="rewind")
        session = _open(name)
        session.rewind(move.uuid)
        session.flush()
        if not json:
            tell([f"rewound {short_id(name)}; files are unchanged"])
    if json:
        report = {"session": name, "to": move.uuid, "leaving": move.leaving, "dry_run": dry_run}
        say(as_json(report))
    return 0


def _move(session: Readout, place: int) -> Move:
    """Tell what leaves the live line when the tip moves to a record."""
    chain = session.graph.chain(boundaries=False)
    staying = set(session.graph.chain(place, boundaries=False))
    return Move(session.records[place].id, sum(other not in staying for other in chain))


# -- files ----------------------------------------------------------------------------------


def _checkpoint(known: Sequence[Checkpoint], wanted: str) -> Checkpoint:
    matches = {
        checkpoint.id: checkpoint for checkpoint in known if checkpoint.id.startswith(wanted)
    }
    if len(matches) == 1:
        return next(iter(matches.values()))
    what = "several checkpoints" if matches else "no checkpoint"
    names = ", ".join(checkpoint.id[:12] for checkpoint in known) or "none"
    raise SessionNotFound(f"{wanted!r} matches {what}", hint=f"checkpoints: {names}")


def _list(known: Sequence[Checkpoint], *, json: bool) -> int:
    if json:
        say(as_json([checkpoint.payload for checkpoint in known]))
        return 0
    for checkpoint in known:
        paths = ", ".join(clean(saved.path) for saved in checkpoint.files)
        tell([cut(f"  {checkpoint.id[:12]}  {paths}", width())])
    tell(
        [f"{several(len(known), 'checkpoint')}; thence rewind ID --files CHECKPOINT -n shows more"]
    )
    return 0


def _files(session: Session, target: Checkpoint, *, dry_run: bool, yes: bool, json: bool) -> int:
    from thence.journal.checkpoint import MAKING

    planned = session.rewind_files(target, dry_run=True).changes
    due = [change for change in planned if change.what != "leave"]
    if not json:
        tell(_changes(due))
    before: Checkpoint | None = None
    if any(change.what in MAKING for change in due) and not dry_run:
        confirm(yes=yes, json=json, what="change these files")
        before = session.rewind_files(target).before
        session.flush()
    if json:
        say(as_json(_as_object(planned, before, dry_run=dry_run)))
    elif before is not None:
        tell([f"done; to undo it: thence rewind {session.id} --files {before.id[:12]}"])
    return 0


def _as_object(changes: Sequence[FileChange], before: Checkpoint | None, *, dry_run: bool) -> JSON:
    return {
        "dry_run": dry_run,
        "before": before.id if before is not None else None,
        "changes": list(changes),
    }


def _changes(due: Sequence[FileChange]) -> Iterator[str]:
    if not due:
        yield "all files match the checkpoint"
    for change in due:
        yield f"{change.what} {clean(change.path)}"
        for line in (change.diff or change.reason).splitlines():
            colour = {"+": "green", "-": "red"}.get(line[:1], DIM)
            yield style(f"  {clean(line)}", fg=colour)
