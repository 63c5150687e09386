"""`thence note`: write down how it goes."""

from __future__ import annotations

import click

from thence.cli import options


@click.command("note", help="Record a note. Without TEXT: list them.")
@click.argument("words", metavar="[TEXT]...", nargs=-1)
@click.option("--session", "wanted", metavar="ID", help="The session it belongs to.")
@options.view("--decision", "Record a decision instead, or list them.")
@options.as_json
def command(words: tuple[str, ...], wanted: str | None, *, json: bool) -> int:
    """Write a note down, or list them."""
    from thence.cli.notes import handle

    return handle("note", words, wanted, json=json)
