"""Handoffs of sessions to other agents of this machine: worked out, asked about, reported."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from thence import __version__
from thence.bridge.handoff import Handoff, carry_out, end_of, plan
from thence.cli import wiring
from thence.cli.changes import NotAnswered
from thence.cli.columns import tilde
from thence.cli.terminal import cut, several, width
from thence.errors import SessionNotFound
from thence.format.figures import clean

if TYPE_CHECKING:
    from thence.agents.sessions import LoadedSession
    from thence.bridge.handoff import HandoffReport

REDACTED = "the original log is gone: this is the stored copy, secrets redacted"


def ask_before(handoff: Handoff, *, yes: bool) -> None:
    """Show what would be written into another agent's folder and ask; `yes` was said before."""
    if yes:
        return
    for line in lines(handoff.report, width(), dry_run=True):
        click.echo(line, err=True)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise NotAnswered(
            "nothing was written: there is no terminal to ask on", hint="add --yes to confirm"
        )
    click.confirm("Write this session?", default=True, abort=True, err=True)


def hand_over(wanted: str, target: str, *, yes: bool, here: str | None = None) -> HandoffReport:
    """Hand a session over as it stands; it goes on in `here` if its own folder is gone."""
    loaded, notes = load_original(wanted)
    handoff = prepare(loaded, target, notes=notes, here=here)
    ask_before(handoff, yes=yes)
    carry_out(handoff)
    return handoff.report


def load_original(wanted: str) -> tuple[LoadedSession, tuple[str, ...]]:
    """Load a session from its source, unredacted; where that is gone, as it was kept."""
    from thence.agents.sessions import load
    from thence.memory.fields import locate
    from thence.memory.recall import load_session, stored_ancestors

    if "/" in wanted or os.path.lexists(wanted) or not wiring.has_store():
        return load(Path(wanted)), ()
    with wiring.store() as store:
        row = wiring.session(store, wanted)
        source = locate(row.session.source_path or "")
        if source and os.path.lexists(source):
            with suppress(SessionNotFound):  # its agent deleted it from a database
                uid, ancestors = row.session.session_uid, stored_ancestors(store)
                return load(Path(source), uid=uid, elsewhere=ancestors), ()
        return load_session(store, row), (REDACTED,)


def prepare(
    loaded: LoadedSession,
    target: str,
    *,
    event: str | None = None,
    branch: str | None = None,
    notes: tuple[str, ...] = (),
    here: str | None = None,
) -> Handoff:
    """Work out a handoff to an agent of this machine."""
    from datetime import UTC, datetime
    from uuid import uuid4

    from thence.bridge.portable import writer_of
    from thence.journal.ids import uuid7
    from thence.memory.readouts import place_in

    name = event if event is not None else branch
    place = place_in(loaded.whole, name) if name is not None else None
    return plan(
        loaded,
        target,
        root=wiring.root_of(wiring.agents()[target]),
        session=str(uuid4()) if writer_of(target).needs_uuid4 else uuid7(),
        at=datetime.now(UTC),
        here=here or str(Path.cwd()),
        event=end_of(loaded.whole, place, branch=branch is not None) if place is not None else None,
        by=f"thence {__version__}",
        notes=notes,
    )


def lines(report: HandoffReport, room: int, *, dry_run: bool) -> Iterator[str]:
    """Tell what was handed over, and what became of it on the way."""
    done = "would be copied" if dry_run else "copied"
    yield f"{several(report.messages, 'message')} {done} to {report.to}"
    for what, counts in (
        ("calls unchanged", report.unchanged),
        ("calls renamed", report.mapped),
        ("calls as text", report.as_text),
        ("left out", report.left),
    ):
        if counts:
            named = ", ".join(f"{clean(name)} {number}" for name, number in counts.items())
            yield cut(f"  {what}: {named}", room)
    if report.answered:
        yield f"  without a result, now marked as such: {several(len(report.answered), 'call')}"
    for note in (*report.mended, *report.notes):
        yield cut(f"  {clean(note)}", room)
    yield cut(f"  not copied: {'; '.join(report.not_handed)}", room)
    if report.accept:
        yield cut(
            f"  {'would run' if dry_run else 'ran'}: {clean(shlex.join(report.accept))}", room
        )
        return
    for path in report.files:
        yield cut(f"  {clean(tilde(path))}", room)
