"""`thence keep`: a session that is never evicted."""

from __future__ import annotations

import click

from thence.cli import options, wiring
from thence.cli.columns import short_id
from thence.cli.terminal import answer, clean


@click.command("keep")
@click.argument(
    "wanted", metavar="ID...", nargs=-1, required=True, shell_complete=options.complete_ids
)
@click.option("--off", is_flag=True, help="Unpin them.")
@options.as_json
def command(wanted: tuple[str, ...], *, off: bool, json: bool) -> int:
    """Pin sessions, or let them go."""
    from thence.memory.labels import set_pinned

    with wiring.store() as store, store.sweeping(wiring.SWEEP_WAIT_S):
        rows = [wiring.session(store, name) for name in wanted]
        set_pinned(store, rows, is_pinned=not off)
        evicted = [row for row in rows if row.session.evicted_at]
    names = ", ".join(short_id(row.session.native_session_id) for row in rows)
    lines = [f"{'unpinned' if off else 'pinned'} {clean(names)}"]
    if evicted and not off:
        lines.append("  transcript already removed; only the digest is left")
    report = [{"session_uid": row.session.session_uid, "pinned": not off} for row in rows]
    return answer(report, lines, json=json)
