"""`thence keep`: a session that is never evicted."""

from __future__ import annotations

import click

from thence.cli import options, wiring
from thence.cli.columns import short_id, tell
from thence.cli.terminal import as_json, clean, say


@click.command("keep", help="Pin sessions: their transcripts are never removed.")
@click.argument(
    "wanted", metavar="ID...", nargs=-1, required=True, shell_complete=options.complete_ids
)
@click.option("--off", is_flag=True, help="Unpin them.")
@options.as_json
def command(wanted: tuple[str, ...], *, off: bool, json: bool) -> int:
    """Pin sessions, or let them go."""
    from thence.memory.pins import set_pinned

    with wiring.store() as store, store.sweeping(wiring.SWEEP_WAIT_S):
        rows = [wiring.session(store, name) for name in wanted]
        set_pinned(store, rows, is_pinned=not off)
        evicted = [row for row in rows if row.session.evicted_at]
    if json:
        say(as_json([{"session_uid": r.session.session_uid, "pinned": not off} for r in rows]))
        return 0
    names = ", ".join(short_id(row.session.native_session_id) for row in rows)
    tell([f"{'unpinned' if off else 'pinned'} {clean(names)}"])
    if evicted and not off:
        tell(["  transcript already removed; only the digest is left"])
    return 0
