"""Handoffs of sessions to other agents of this machine: worked out, asked about, reported."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from thence import __version__
from thence.bridge.handoff import Handoff, carry_out, end_of, plan
from thence.bridge.portable_history import writer_of
from thence.cli import wiring
from thence.cli.columns import tilde
from thence.cli.file_changes import NotAnswered
from thence.cli.terminal import cut, several, width
from thence.format.figures import clean
from thence.journal.ids import uuid7

if TYPE_CHECKING:
    from thence.bridge.handoff import HandoffReport
    from thence.memory.readouts import OpenedSession

STORED_COPY = "the original log is gone: this is the stored copy, secrets redacted"


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
    opened, notes = read_original(wanted)
    handoff = prepare(opened, target, notes=notes, here=here)
    ask_before(handoff, yes=yes)
    carry_out(handoff)
    return handoff.report


def read_original(wanted: str) -> tuple[OpenedSession, tuple[str, ...]]:
    """Return a session as its agent wrote it, unredacted; where that is gone, as it is stored."""
    from thence.agents.sessions import load
    from thence.cli.lookup import open_original
    from thence.memory.readouts import open_loaded

    if not wiring.has_store():
        return open_loaded(load(Path(wanted))), ()
    opened, row = open_original(wanted)
    if row is None:
        return opened, ()
    if row.machine is not None:
        return opened, (f"recorded on {row.machine}; secrets are redacted",)
    return opened, (STORED_COPY,)


def prepare(
    opened: OpenedSession,
    target: str,
    *,
    event: str | None = None,
    branch: str | None = None,
    notes: tuple[str, ...] = (),
    here: str | None = None,
) -> Handoff:
    """Work out a handoff to an agent of this machine."""
    from thence.memory.recall import place_of

    name = event if event is not None else branch
    session = opened.session
    place = place_of(session, name) if name is not None else None
    return plan(
        opened,
        target,
        root=wiring.root_of(wiring.agents()[target]),
        session=str(uuid4()) if writer_of(target).needs_uuid4 else uuid7(),
        at=datetime.now(UTC),
        here=here or str(Path.cwd()),
        event=end_of(session, place, branch=branch is not None) if place is not None else None,
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
