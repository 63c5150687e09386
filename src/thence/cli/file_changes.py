"""Changes of files: planned, shown as a diff, asked about, and then made.

Invariants: a file is written whole or not at all, and only if nobody changed it since the change
was planned. Where a copy of it is kept, it lies beside it until our lines go.
"""

from __future__ import annotations

import difflib
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click

from thence import config, system
from thence.cli.columns import TextCell, tell, tilde
from thence.cli.terminal import as_json, clean, say
from thence.errors import BadConfig, ThenceError

BACKUP: Final = ".before-thence"


class EditRefused(BadConfig):
    """The agent's settings cannot be changed safely."""

    exit_code = 1


class NotAnswered(ThenceError):
    """There is nobody to say yes."""

    exit_code = 2


class Edit(NamedTuple):
    """A file before and after; None where there is none."""

    path: Path
    before: bytes | None
    after: bytes | None
    ours: tuple[str, ...] | None = None
    """The lines of ours that come or go, where nobody else's may be shown."""

    @property
    def changes(self) -> bool:
        """Whether anything would be written."""
        return self.before != self.after

    def diff(self) -> Iterator[str]:
        """Show the change."""
        if self.ours is not None:
            yield from (f"--- {self.path}", f"+++ {self.path}", *self.ours) if self.changes else ()
            return
        old, new = (_lines(body) for body in (self.before, self.after))
        here = str(self.path)
        was, is_ = (here if body is not None else os.devnull for body in (self.before, self.after))
        yield from difflib.unified_diff(old, new, was, is_, lineterm="")


def _lines(body: bytes | None) -> list[str]:
    return (body or b"").decode("utf-8", "replace").splitlines()


# -- asking ---------------------------------------------------------------------------------


def show(edits: Sequence[tuple[str, Edit]], already: str) -> None:
    """Show what would change, as a diff."""
    for agent, edit in edits:
        if not edit.changes:
            tell([f"{agent}: {already} already, no change in {tilde(str(edit.path))}"])
            continue
        show_diff(edit)


def show_diff(edit: Edit) -> None:
    """Show a change, line by line."""
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


def change(
    edits: Sequence[tuple[str, Edit]],
    write: Callable[[Sequence[tuple[str, Edit]]], None],
    *,
    already: str,
    dry_run: bool,
    yes: bool,
    json: bool,
) -> list[str]:
    """Show changes, ask, make them, and return whose files were changed."""
    due = [(whose, edit) for whose, edit in edits if edit.changes]
    done = due if not dry_run else []
    if not json:
        show(edits, already)
    if done:
        confirm(yes=yes, json=json, what="write this" if len(due) == 1 else "write these")
        write(due)
    if json:
        report = [
            {
                "agent": whose,
                "path": str(edit.path),
                "changes": edit.changes,
                "done": edit.changes and not dry_run,
                "diff": "\n".join(edit.diff()),
            }
            for whose, edit in edits
        ]
        say(as_json(report))
    return list(dict.fromkeys(whose for whose, _ in done))


# -- files ----------------------------------------------------------------------------------


def carry_out(edit: Edit, *, keep: bool | None = False, was_ours: bool = False) -> None:
    """Write a change whole or not at all.

    With `keep` the file as it was stays beside it, unless our lines were in it already; without
    it that copy goes. None leaves the copy as it is.
    """
    if body_of(edit.path) != edit.before:
        raise EditRefused(
            f"{edit.path} was changed by another program", hint="run the command again"
        )
    if not edit.changes:
        return
    path = edit.path.resolve()  # a link, as people have them to where they keep settings, stays one
    backup = backup_of(edit.path)
    if edit.after is None:
        path.unlink()
    else:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new_mode = 0o700 if edit.after.startswith(b"#!") else 0o600
        mode = path.stat().st_mode & 0o7777 if edit.before is not None else new_mode
        # A file with our lines and nothing beside it was made by us.
        if keep and edit.before is not None and not backup.exists() and not was_ours:
            write_file(backup, edit.before, mode)
        write_file(path, edit.after, mode)
    if keep is False:
        backup.unlink(missing_ok=True)


def write_file(path: Path, body: bytes, mode: int) -> None:
    """Write a file whole or not at all."""
    try:
        with config.replacing(path, mode=mode) as file:
            file.write(body)
    except OSError as error:
        raise EditRefused(
            f"{path} cannot be written: {error.strerror}", hint="nothing was changed"
        ) from error


def backup_of(path: Path) -> Path:
    """Return where a file lies as it was before our lines came."""
    return path.with_name(path.name + BACKUP)


def body_of(path: Path) -> bytes | None:
    """Return what a file of settings holds; None where there is none."""
    try:
        # Opening a pipe that nobody writes to would wait for ever.
        handle = system.open_linked(path, os.O_RDONLY)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise EditRefused(
                    f"{path} is not a regular file", hint="replace it with a regular file"
                )
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EditRefused(
            f"{path} cannot be read: {error.strerror}", hint="check its permissions"
        ) from error
