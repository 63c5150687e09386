"""`thence store`: what is stored, and for how long; one command for each thing to do with it."""

from __future__ import annotations

import click

from thence.cli import load_command

PARTS = {
    "gc": "gc",
    "pin": "keep",
    "remove": "evict",
    "forget": "forget",
    "backup": "backup",
    "push": "push",
    "copy": "copy",
}
"""Commands by the names that they have here."""


@click.group(
    "store",
    commands={name: load_command(command) for name, command in PARTS.items()},
    epilog="To remove is to drop a transcript and keep its digest. To forget is to delete"
    " everything about a session.",
)
def command() -> None:
    """Do one thing with the store."""
