"""`thence note`: write down how it goes."""

from __future__ import annotations

from typing import Any

import click

from thence.cli import options


@click.command("note", help="Record a note. Without TEXT: list them.")
@options.view("--decision", "Record a decision instead, or list them.")
@options.notes
def command(**asked: Any) -> int:
    """Write a note down, list them, or confirm what an agent decided."""
    from thence.cli.notes import handle

    return handle("note", **asked)
