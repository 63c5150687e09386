"""`thence status`: what `thence` alone shows."""

from __future__ import annotations

import click

from thence.cli import options


@click.command("status")
@options.utc
@options.as_json
def command(*, utc: bool, json: bool) -> int:
    """Print the status summary."""
    from thence.cli.home import show

    show(json=json, utc=utc)
    return 0
