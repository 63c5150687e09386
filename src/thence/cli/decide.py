"""`thence decide`: write down what was decided."""

from __future__ import annotations

import click

from thence.cli import options


@click.command("decide", help="Record a decision. Without TEXT: list them.")
@click.argument("words", metavar="[TEXT]...", nargs=-1)
@click.option("--session", "wanted", metavar="ID", help="The session it belongs to.")
@options.as_json
def command(words: tuple[str, ...], wanted: str | None, *, json: bool) -> int:
    """Write a decision down, or list what was decided."""
    from thence.cli.notes import handle

    return handle("decision", words, wanted, json=json)
