"""`thence store`: what is stored, and for how long; one command for each thing to do with it."""

from __future__ import annotations

import click

from thence.cli import backup, copy, evict, forget, gc, keep, push

PARTS = {
    "gc": gc.command,
    "pin": keep.command,
    "remove": evict.command,
    "forget": forget.command,
    "backup": backup.command,
    "push": push.command,
    "copy": copy.command,
}
"""Commands by the names that they have here."""


@click.group(
    "store",
    commands=PARTS,
    help="Manage what is stored: limits, pins, removal, backup, team.",
    epilog="To remove is to drop a transcript and keep its digest. To forget is to delete"
    " everything about a session.",
)
def command() -> None:
    """Do one thing with the store."""
