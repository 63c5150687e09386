"""`thence copy`: a whole store into another one, and proof that it arrived."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import click

from thence.cli import options, wiring
from thence.cli.terminal import answer, clean, several, size

if TYPE_CHECKING:
    from thence.memory.store import Store
    from thence.team.copying import CopyReport


@click.command(
    "copy",
    help="Copy a store into another one, and compare both. A store is a path, sqlite:PATH or"
    " postgresql://…; #objects=URL after it names the place of payloads. Existing data"
    " stays; an interrupted copy continues.",
)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@options.as_json
def command(source: str, target: str, *, json: bool) -> int:
    """Copy everything, then say whether both are the same."""
    from thence.errors import BadConfig, SessionNotFound
    from thence.memory.store import Filter, file_of
    from thence.team import copying

    file = file_of(source)
    if source == target or (file is not None and file == file_of(target)):
        raise BadConfig("source and target are the same store", hint="choose another address")
    with contextlib.ExitStack() as stack:
        ours = _open(stack, source, must_exist=True)
        if not (any(ours.sessions(Filter(limit=1))) or ours.known().forgotten):
            raise SessionNotFound(
                "FROM has no sessions; nothing was copied",
                hint="check its address, and the tenant of a store in Postgres",
            )
        theirs = _open(stack, target)
        shown = sys.stderr.isatty() and not json
        report = copying.copy(ours, theirs, wiring.rules(), _progress if shown else lambda _: None)
    return answer(report, _lines(report), json=json, code=1 if report.different else 0)


def _open(stack: contextlib.ExitStack, address: str, *, must_exist: bool = False) -> Store:
    """Open a store, and keep sweeps out of it until the copy is over."""
    from thence.memory.store import open_store

    store = open_store(address, must_exist=must_exist)
    stack.callback(store.close)
    stack.enter_context(store.sweeping(wiring.SWEEP_WAIT_S))
    return store


def _progress(report: CopyReport) -> None:
    click.echo(f"\r{report.sessions:,} sessions", nl=False, err=True)


def _lines(report: CopyReport) -> list[str]:
    done = (
        f"copied {several(report.copied, 'session')}, {report.unchanged} already there;"
        f" {several(report.events, 'event')},"
        f" {several(report.payloads, 'payload')} of {size(report.bytes)},"
        f" {several(report.digests, 'digest')}"
    )
    if not report.different:
        return [done, "both stores are identical, compared session by session"]
    return [done, "different in the two stores:", *(f"  {clean(uid)}" for uid in report.different)]
