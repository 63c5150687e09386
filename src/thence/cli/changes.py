"""Changes of files: shown as a diff, asked about, and then made."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from thence.cli.columns import TextCell, tell, tilde
from thence.cli.hooking import Edit
from thence.cli.terminal import clean
from thence.errors import ThenceError


class NotAnswered(ThenceError):
    """There is nobody to say yes."""

    exit_code = 2


def show(edits: Sequence[tuple[str, Edit]], already: str) -> None:
    """Show what would change, as a diff."""
    for agent, edit in edits:
        if not edit.changes:
            tell([f"{agent}: {already} already, no change in {tilde(str(edit.path))}"])
            continue
        colours = {"+": "green", "-": "red", "@": "cyan"}
        lines = map(clean, edit.diff())
        tell((TextCell(line, colours.get(line[:1])).paint(line) for line in lines), pager=False)


def confirm(*, yes: bool, what: str, json: bool = False) -> None:
    """Ask, unless that was answered before; a program is not asked."""
    if yes:
        return
    if json or not sys.stdin.isatty():
        raise NotAnswered(
            "nothing was changed: there is no terminal to ask on", hint="add --yes to confirm"
        )
    click.confirm(f"{what}?", default=True, abort=True)
