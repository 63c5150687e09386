"""`thence decide`: write down what was decided, and confirm what agents decided."""

from __future__ import annotations

from typing import Any

import click

from thence.cli import options


@click.command(
    "decide",
    help="Record a decision. Without TEXT: list them.",
    epilog="Later sessions of the repository are told of your decisions. One that an agent recorded"
    " via MCP is marked as such everywhere, and the hook leaves it out until you confirm it.",
)
@options.notes
def command(**asked: Any) -> int:
    """Write a decision down, list what was decided, or confirm what an agent decided."""
    from thence.cli.notes import handle

    return handle("decision", **asked)
