"""`thence project`: folders that count as one project."""

from __future__ import annotations

import os
from pathlib import Path

import click

from thence.cli import options, wiring
from thence.cli.columns import tilde
from thence.cli.terminal import answer, clean
from thence.errors import SessionNotFound


@click.group("project")
def command() -> None:
    """Group what is done with folders."""


@command.command(
    "merge",
    help="Count the sessions of folder OLD as those of folder NEW.",
    epilog="A folder that was moved or cloned again is recognised by its git remote or first"
    " commit; use this for all others. Lists, search, costs and the viewer use the merged project.",
)
@click.argument("old")
@click.argument("new", required=False)
@click.option("--undo", is_flag=True, help="Make OLD a separate project again.")
@options.as_json
def merge(old: str, new: str | None, *, undo: bool, json: bool) -> int:
    """Note that a folder counts as another one."""
    from thence.bridge.folders import read_book, save_book

    if undo is (new is not None):
        raise click.UsageError("give OLD and NEW, or OLD and --undo")
    home = wiring.home()
    with wiring.store() as store, store.sweeping(wiring.SWEEP_WAIT_S):
        book = read_book(home)
        known = {total.key[0] or "" for total in store.totals(["project"])}
        known |= book.merged.keys() | book.applied.keys()
        source = _named(known, old)
        target = _named(known, new) if new is not None else None
        if target is None:
            if book.merged.pop(source, None) is None:
                raise SessionNotFound(f"{source} is not merged", hint="thence project list")
        elif source == target:
            raise click.UsageError("OLD and NEW are the same folder")
        else:
            book.merged[source] = target
            if book.merged.get(target) == source:
                del book.merged[target]
        save_book(home, book)
        wiring.refresh_folders(store)
    outcome = f"counts as {tilde(target)}" if target else "is a project of its own again"
    lines = [clean(f"{tilde(source)} {outcome}")]
    return answer({"folder": source, "counts_as": target}, lines, json=json)


@command.command("list", help="List merged folders.")
@options.as_json
def list_(*, json: bool) -> int:
    """Tell what folders count as."""
    from thence.bridge.folders import read_book

    book = read_book(wiring.home())
    rows, lines = [], []
    for old, new in sorted(book.applied.items()):
        is_own = old in book.merged
        rows.append({"folder": old, "counts_as": new, "by": "you" if is_own else "git"})
        by = "merged by you" if is_own else "the same repository"
        lines.append(clean(f"{tilde(old)} counts as {tilde(new)}: {by}"))
    return answer(rows, lines or ["every folder counts as itself"], json=json)


def _named(known: set[str], name: str) -> str:
    """Return the folder that a path or the last part of one means."""
    path = os.path.normpath(Path(name).expanduser().absolute())
    if path in known or (Path(path).is_dir() and os.sep in name):
        return path
    ends = sorted(folder for folder in known if folder.endswith(f"/{name.strip('/')}"))
    if len(ends) == 1:
        return ends[0]
    if Path(path).is_dir():
        return path
    why = f"{name} means {len(ends)} folders" if ends else f"no session was in {name}"
    raise SessionNotFound(why, hint="give the full path; thence cost --by project lists folders")
