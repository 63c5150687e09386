"""`thence sync`: one person's machines share their sessions, encrypted."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

import click
import msgspec

from thence.cli import options, wiring
from thence.cli.columns import ago as age_of
from thence.cli.columns import present, tilde, when
from thence.cli.terminal import answer, as_json, clean, cut, say, several, size, width
from thence.errors import SKIPS, BadConfig
from thence.format.normal import one_line

if TYPE_CHECKING:
    from thence.bridge.sync import Standing, Sync, Synced
    from thence.bridge.sync_places import SyncPlace
    from thence.bridge.sync_state import SyncFiles
    from thence.memory.store import SessionRow, Store

WAIT_S: Final = 60.0
"""How long a sync waits for a sweep to end."""
MAX_LABEL: Final = 40
MAX_NAMED: Final = 10
"""Bundles that are left out and named one by one."""


@click.group(
    "sync",
    invoke_without_command=True,
    help="Share sessions between your machines, encrypted. Without a command: send and receive.",
    epilog="TARGET is a folder that some tool synchronises, a folder by ssh"
    " (ssh://HOST/FOLDER), a git remote, or an object store (s3://…, gs://…, az://…)."
    " Anyone who can read it sees only sizes and times.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Show what would happen; write nothing.")
@options.as_json
@click.pass_context
def command(ctx: click.Context, *, dry_run: bool, json: bool) -> int:
    """Send what is new here, and receive what is new elsewhere."""
    if ctx.invoked_subcommand is not None:
        return 0
    _sync_files().setup()
    with wiring.store(must_exist=False) as store, store.sweeping(WAIT_S):
        if not dry_run:
            wiring.sweep_of(store).run(wiring.roots(wiring.adapters()))
            wiring.refresh_folders(store)
        report = _sync(store, is_dry=dry_run).run()
        if not dry_run and any(change.status in ("new", "updated") for change in report.received):
            wiring.sweep_of(store).run({})  # digests, and who owns what
            wiring.refresh_folders(store)
    answer(msgspec.to_builtins(report), _lines(report), json=json)
    return SKIPS if report.damaged else 0


@command.command("init", help="Begin a sync at TARGET; prints the phrase for your other machines.")
@click.argument("target")
@click.option("--name", help="What this machine is called on the others; default: its host name.")
@options.as_json
def init(target: str, name: str | None, *, json: bool) -> int:
    """Make the key, and show it once."""
    from thence.bridge.sync import set_up
    from thence.bridge.sync_places import absolute_target

    sync_files = _sync_files()
    before = sync_files.setup_if_any()
    if before is not None:
        raise BadConfig(
            f"this machine syncs with {before.target}",
            hint="thence sync rotate makes a new phrase; thence sync leave ends it here",
        )
    phrase = set_up(sync_files, absolute_target(target), _label(name), partial(_place, sync_files))
    _show_phrase(phrase, "Next: thence sync here, then on each other machine:", target, json=json)
    return 0


@command.command("join", help="Join the sync at TARGET with the phrase of another machine.")
@click.argument("target")
@click.option("--name", help="What this machine is called on the others; default: its host name.")
@options.as_json
def join(target: str, name: str | None, *, json: bool) -> int:
    """Ask for the phrase, and take its key; a phrase is never an argument, which others can see."""
    from thence.bridge import sync
    from thence.bridge.sync_keys import secret_in
    from thence.bridge.sync_places import absolute_target

    phrase = click.prompt("phrase", err=True) if sys.stdin.isatty() else sys.stdin.readline()
    sync_files = _sync_files()
    where = absolute_target(target)
    sync.join(sync_files, where, _label(name), secret_in(phrase), partial(_place, sync_files))
    outcome = f"joined {clean(tilde(where))}; thence sync sends and receives"
    return answer({"target": where}, [outcome], json=json)


@command.command("rotate", help="Change the key: a lost machine cannot read what comes after.")
@options.as_json
def rotate(*, json: bool) -> int:
    """Make a new key, and show it once."""
    from thence.bridge import sync

    sync_files = _sync_files()
    target = sync_files.setup().target
    phrase = sync.rotate(sync_files, partial(_place, sync_files))
    then = "The old key is closed. On each machine that you still have:"
    _show_phrase(phrase, then, target, json=json)
    return 0


@command.command("status", help="Show what waits to be sent and received.")
@options.as_json
def status(*, json: bool) -> int:
    """Tell how the sync stands."""
    _sync_files().setup()
    with wiring.store(must_exist=False) as store:
        standing = _sync(store, is_dry=True).standing()
    return answer(msgspec.to_builtins(standing), _standing_lines(standing), json=json)


@command.command("leave", help="End the sync on this machine; sessions stay, keys are deleted.")
@options.as_json
def leave(*, json: bool) -> int:
    """Remove keys and state of this machine."""
    sync_files = _sync_files()
    target = sync_files.setup().target
    sync_files.leave()
    outcome = f"this machine no longer syncs with {clean(tilde(target))}; its sessions stay"
    return answer({"target": target}, [outcome], json=json)


def _sync_files() -> SyncFiles:
    from thence.bridge.sync_state import SyncFiles

    return SyncFiles(wiring.home())


def _place(sync_files: SyncFiles, target: str) -> SyncPlace:
    from thence.bridge.sync_places import place_at

    return place_at(target, sync_files.folder)


def _sync(store: Store, *, is_dry: bool) -> Sync:
    from thence.bridge.folders import read_book
    from thence.bridge.sync import Sync

    sync_files = _sync_files()
    return Sync(
        sync_files,
        _place(sync_files, sync_files.setup().target),
        store,
        wiring.gate(),
        wiring.rules(),
        home=wiring.home(),
        exclude=wiring.settings()["session_memory.exclude"],
        forget=partial(_forget, store),
        folders=read_book(wiring.home()).sightings(),
        is_dry=is_dry,
    )


def _forget(store: Store, row: SessionRow) -> None:
    from thence.cli.deletion import forget

    forget(store, row.session.session_uid, "deleted on another machine")


def _label(name: str | None) -> str:
    made = one_line(clean(name or socket.gethostname().partition(".")[0]), MAX_LABEL)
    return wiring.gate().text(made) or "machine"


# -- telling ----------------------------------------------------------------------------------


def _show_phrase(phrase: str, then: str, target: str, *, json: bool) -> None:
    if json:
        say(as_json({"target": target, "phrase": phrase}))
        return
    click.echo("Write this phrase down; it is shown once and opens all synced sessions:\n")
    click.echo(f"  {phrase}\n")
    click.echo(f"{then}\n  thence sync join {clean(target)}")


def _lines(report: Synced) -> Iterator[str]:
    would = "would send" if report.dry_run else "sent"
    if report.sent_bundles:
        records = several(report.sent_records, "record")
        sessions = several(report.sent_sessions, "session")
        yield f"{would} {sessions}, {records}, {size(report.sent_bytes)} encrypted"
    else:
        yield "nothing new to send"
    by_status: dict[str, int] = {}
    for change in report.received:
        by_status[change.status] = by_status.get(change.status, 0) + 1
    would = "would receive" if report.dry_run else "received"
    new, grown = by_status.pop("new", 0), by_status.pop("updated", 0)
    if new or grown:
        yield f"{would} {several(new + grown, 'session')}, {new} of them new"
    elif report.received_bundles:
        yield "nothing new received"
    yield from _notable(report, by_status)


def _notable(report: Synced, by_status: dict[str, int]) -> Iterator[str]:
    """Yield a line for each thing that did not go as usual."""
    for number, thing, words in (
        (by_status.get("has its own log", 0), "session", "had their own log here"),
        (by_status.get("excluded", 0), "session", "of excluded projects not received"),
        (report.excluded, "session", "of excluded projects not sent"),
        (report.forgotten, "session", "deleted on another machine, and now here"),
        (report.notes, "line", "of names, tags, notes and decisions received"),
        (report.erased_bundles, "bundle", "rewritten without deleted sessions"),
        (report.waiting, "bundle", "cannot be read yet: incomplete, or another key"),
        (report.refused, "bundle", "ignored: written with a closed key"),
    ):
        if number:
            yield f"  {several(number, thing)} {words}"
    for name, why in sorted(report.damaged.items())[:MAX_NAMED]:
        yield f"  left out bundle {name}: {clean(why)}"
    if report.damaged:
        yield f"  {several(len(report.damaged), 'bundle')} left out, all others read"


def _standing_lines(standing: Standing) -> Iterator[str]:
    yield cut(f"{clean(standing.machine)} syncs with {clean(tilde(standing.target))}", width())
    last = when(standing.last_sync) if standing.last_sync else None
    yield f"  last sync: {age_of(last, present()) if last else 'never'}"
    yield f"  to send: {several(standing.unsent, 'session')}"
    yield f"  to receive: {several(standing.unread, 'bundle')} of {standing.bundles:,}"
    if standing.machines:
        yield f"  sessions from: {', '.join(map(clean, standing.machines))}"
    if standing.key_rotated:
        yield f"  the key was changed: thence sync join {clean(standing.target)}"
