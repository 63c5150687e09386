"""The page `docs/cli.md`, made from the commands themselves: `python -m thence.cli.reference`.

A test holds the page against this, so that no option is ever described that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

WIDTH = 80


def text() -> str:
    """Give the whole page."""
    from thence.cli import COMMANDS, thence

    top = _context(thence, "thence")
    lines = [
        "# The command line",
        "",
        "Made from the commands by `make docs`; do not edit. `--json` gives the same for programs.",
        "Exit codes: 0 ok, 1 failure, 2 usage, 3 done with skips, 10 not found, 11 busy,",
        "130 interrupted. Ids may be cut to what is unique.",
        "",
        "| command | does |",
        "| --- | --- |",
        *(f"| [`thence {name}`](#thence-{name}) | {does} |" for name, does in COMMANDS.items()),
        *_section(top, "thence"),
    ]
    for name in COMMANDS:
        command = thence.get_command(top, name)
        if command is not None:
            lines += _described(command, f"thence {name}", top)
    return "\n".join(lines) + "\n"


def _described(command: click.Command, name: str, above: click.Context) -> Iterator[str]:
    context = _context(command, name.rpartition(" ")[2], above)
    yield from _section(context, name)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            if found is not None:
                yield from _described(found, f"{name} {below}", context)


def _section(context: click.Context, name: str) -> Iterator[str]:
    yield from ("", f"## {name}", "", "```text")
    yield from (line.rstrip() for line in context.get_help().splitlines())
    yield "```"


def _context(
    command: click.Command, name: str, above: click.Context | None = None
) -> click.Context:
    return click.Context(
        command, above, name, terminal_width=WIDTH, help_option_names=["-h", "--help"]
    )


if __name__ == "__main__":
    click.echo(text(), nl=False)
