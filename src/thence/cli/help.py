"""`thence help`: all commands, or the help of one."""

from __future__ import annotations

import click

from thence.cli import options
from thence.cli.terminal import as_json, say


@click.command("help", help="List all commands, or show the help of one.")
@click.argument("name", metavar="[COMMAND]", required=False)
@options.as_json
@click.pass_context
def command(ctx: click.Context, name: str | None, *, json: bool) -> int:
    """Print help."""
    from thence.cli import COMMANDS, thence

    above = ctx.parent or ctx
    if name is not None:
        _, wanted, _ = thence.resolve_command(above, [name])
        if wanted is not None:
            click.echo(click.Context(wanted, above, name).get_help())
        return 0
    if json:
        say(as_json(COMMANDS))
        return 0
    formatter = ctx.make_formatter()
    formatter.write_dl(list(COMMANDS.items()))
    click.echo(formatter.getvalue().rstrip())
    return 0
