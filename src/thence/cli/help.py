"""`thence help`: all commands, or the help of one."""

from __future__ import annotations

import click

from thence.cli import options
from thence.cli.terminal import as_json, say


@click.command("help")
@click.argument("name", metavar="[COMMAND]", required=False)
@options.as_json
@click.pass_context
def command(ctx: click.Context, name: str | None, *, json: bool) -> int:
    """Print help."""
    from thence.cli import COMMANDS, GROUPS, MOVED, thence

    above = ctx.parent or ctx
    if name is not None:
        _, wanted, _ = thence.resolve_command(above, [name])
        if wanted is not None:
            click.echo(click.Context(wanted, above, name).get_help())
        return 0
    if json:
        say(as_json(COMMANDS))
        return 0
    listed = {name for names in GROUPS.values() for name in names}
    more = tuple(name for name in COMMANDS if name not in listed and name not in MOVED)
    formatter = ctx.make_formatter()
    for title, names in {**GROUPS, "More": more}.items():
        with formatter.section(title):
            formatter.write_dl([(command_name, COMMANDS[command_name]) for command_name in names])
    with formatter.section("Earlier names that still work"):
        formatter.write_dl([(command_name, f"thence {now}") for command_name, now in MOVED.items()])
    click.echo(formatter.getvalue().strip())
    return 0
