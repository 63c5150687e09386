"""`thence evict`: let go of transcripts; what was learned from them stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from thence.cli import options, wiring
from thence.cli.columns import short_id, tell, title_text
from thence.cli.file_changes import confirm
from thence.cli.terminal import as_json, cut, say, several, size, width
from thence.errors import ThenceError

if TYPE_CHECKING:
    from thence.memory.store import SessionRow

WHY = "removed by thence store remove"


class NotEvicted(ThenceError):
    """Something would be lost that nobody asked to lose."""


@click.command("evict")
@click.argument(
    "wanted", metavar="ID...", nargs=-1, required=True, shell_complete=options.complete_ids
)
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be removed; change nothing.")
@click.option("--lose", is_flag=True, help="Also sessions that are not fully analysed yet.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@options.as_json
def command(wanted: tuple[str, ...], *, dry_run: bool, lose: bool, yes: bool, json: bool) -> int:
    """Evict sessions."""
    with wiring.store() as store, store.sweeping(wiring.SWEEP_WAIT_S):
        rows = [wiring.session(store, name) for name in dict.fromkeys(wanted)]
        due = [row for row in rows if not row.session.evicted_at]
        _check(due, lose=lose)
        if not json:
            _tell(rows, due)
        pending: list[str] = []
        if due and not dry_run:
            confirm(yes=yes, json=json, what="remove them" if len(due) > 1 else "remove it")
            for lost in (False, True):
                some = [r.session.session_uid for r in due if bool(r.session.analyzed_at) != lost]
                if some:
                    pending += store.remove(some, why=dict.fromkeys(some, WHY), lost=lost)
            wiring.purge_exports(store)
    if json:
        items = [
            {
                "session_uid": row.session.session_uid,
                "bytes": row.raw_bytes,
                "source_gone": row.gone,
            }
            for row in due
        ]
        say(as_json({"dry_run": dry_run, "pending": pending, "items": items}))
    elif due and not dry_run:
        freed = size(sum(row.raw_bytes for row in due))
        wait = "; some pages are still in use, the next sweep erases them" if pending else ""
        tell([f"removed {several(len(due), 'transcript')}, {freed}{wait}"])
    return 0


def _check(rows: Sequence[SessionRow], *, lose: bool) -> None:
    for row in rows:
        name = short_id(row.session.native_session_id)
        if row.pinned:
            raise NotEvicted(f"{name} is pinned", hint=f"thence store pin --off {name}")
        if not row.session.analyzed_at and not lose:
            raise NotEvicted(
                f"{name} is not fully analysed, so it would be lost",
                hint="run thence sweep to analyse it, or remove it anyway with --lose",
            )


def _tell(rows: Sequence[SessionRow], due: Sequence[SessionRow]) -> None:
    for row in rows:
        name = short_id(row.session.native_session_id)
        title = title_text(row.title)
        what = size(row.raw_bytes) if row in due else "already removed"
        gone = (
            ", its original log is gone: this is the only copy" if row.gone and row in due else ""
        )
        tell([cut(f"  {name}  {what}{gone}  {title}", width())])
