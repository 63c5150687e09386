"""`thence demo`: a machine that is not there, to look around on."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from thence import system
from thence.cli import load_command, options, processes, viewer, wiring
from thence.cli.columns import DIM, tell
from thence.cli.terminal import as_json, clean, columns, say, style
from thence.errors import NotAppendable, ThenceError

if TYPE_CHECKING:
    from thence.cli.sample_machine import Homes

OVERRIDES = ("THENCE_STORE", "THENCE_NO_PERSISTENCE", "CLAUDE_NO_SESSION_PERSISTENCE")
"""Variables that would lead away from the made-up machine, or keep it empty."""


@click.command("demo", help="Try thence on sample sessions. Nothing of yours is touched.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder to create them in.",
)
@click.option(
    "--if-empty", is_flag=True, help="Only if this machine has no sessions; otherwise import those."
)
@click.option("--serve", is_flag=True, help="Then run the viewer until stopped.")
@options.as_json
@click.pass_context
def command(
    ctx: click.Context, folder: Path | None, *, if_empty: bool, serve: bool, json: bool
) -> int:
    """Make the sessions, sweep them, say what to type, and offer to open the viewer."""
    from thence.cli.home import show

    if if_empty and _has_sessions():
        _keep_up(ctx, json=json)
        show(json=json, utc=False)
        return _look(ctx) if serve and not json else 0
    homes = made(folder)
    _live_there(homes)
    report = _swept()
    script = _script(homes)
    if json:
        out = {"folder": str(homes.work.parent), "command": str(script), "env": homes.env}
        say(as_json({**out, "sweep": report}))
        return 0
    tell([f"sample sessions of every agent, in {homes.work.parent}", ""])
    show(json=False, utc=False)
    tell(["", *_next(script, homes)])
    return _look(ctx) if serve or _is_wanted() else 0


def _keep_up(ctx: click.Context, *, json: bool) -> None:
    """Sweep what the agents of this machine wrote; the first time it is said before it is done."""
    from thence.cli.home import show

    if not wiring.has_store() and not json:
        show(json=False, utc=False)
        tell([""])
    try:
        with contextlib.redirect_stdout(io.StringIO()) if json else contextlib.nullcontext():
            ctx.invoke(load_command("sweep"))
    except ThenceError as error:  # another sweep, perhaps; what is kept can be looked at
        click.echo(f"note: not imported: {clean(error.message)}", err=True)


# -- the viewer -----------------------------------------------------------------------------


def _is_wanted() -> bool:
    """Ask whether to open the viewer, where somebody can answer and there is one."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    click.echo()
    try:
        return click.confirm("Open it in the browser?", default=True)
    except click.Abort:
        click.echo()
        return False


def _look(ctx: click.Context) -> int:
    """Serve what is kept, on a port of its own if the usual one is taken."""
    serve = load_command("serve")
    tell([""])
    try:
        code: int = ctx.invoke(serve)
    except viewer.PortTaken:
        code = ctx.invoke(serve, port=0)
    return code


# -- the sessions ---------------------------------------------------------------------------


def _has_sessions() -> bool:
    """Whether any agent of this machine has a session; our own store counts too."""
    if wiring.has_store():
        return True
    known = wiring.adapters()
    searches = (known[name].find(place) for name, ps in wiring.roots(known).items() for place in ps)
    return any(next(iter(sessions), None) is not None for sessions in searches)


def made(folder: Path | None) -> Homes:
    """Write the sessions into an empty folder."""
    from thence.cli import sample_machine

    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="thence-demo-"))
    elif folder.is_dir() and any(folder.iterdir()):
        raise NotAppendable(f"{folder} is not empty", hint="choose a new folder, or leave it out")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return sample_machine.write(folder.resolve(), datetime.now(UTC))


def _live_there(homes: Homes) -> None:
    """Let this process find the made-up agents only."""
    for name in _unset():
        os.environ.pop(name, None)
    os.environ.update(_variables(homes))


def _variables(homes: Homes) -> dict[str, str]:
    """Return the variables that lead to the made-up agents."""
    name = "USERPROFILE" if system.IS_WINDOWS else "HOME"
    return homes.env | {name: str(homes.work.parent)}


def _unset() -> tuple[str, ...]:
    """Return the variables that lead elsewhere: to other stores, and to other folders of agents."""
    from thence.agents.profiles import folder_variables

    return (*OVERRIDES, *folder_variables())


def _swept() -> object:
    with wiring.store(must_exist=False) as store, store.sweeping():
        known = wiring.adapters()
        return msgspec.to_builtins(wiring.sweep_of(store).run(wiring.roots(known)))


def _script(homes: Homes) -> Path:
    """Write a command that lives there, so that nothing has to be set or undone."""
    folder, env = homes.work.parent, _variables(homes)
    if system.IS_WINDOWS:
        values = dict.fromkeys(_unset(), "") | env
        lines = [f'set "{name}={value}"' for name, value in values.items()]
        path = folder / "thence.cmd"
        run = " ".join(f'"{word}"' for word in processes.thence())
        path.write_text("\n".join(["@echo off", "setlocal", *lines, f"{run} %*", ""]))
        return path
    assigned = " ".join(f"{name}={shlex.quote(value)}" for name, value in env.items())
    run = shlex.join(processes.thence())
    path = folder / "thence"
    unset = " ".join(_unset())
    path.write_text(f'#!/bin/sh\nunset {unset}\n{assigned} exec {run} "$@"\n')
    path.chmod(0o700)
    return path


def _next(script: Path, homes: Homes) -> list[str]:
    from thence.cli.sample_machine import made_id

    main = made_id("clock-change")[:4]
    remove = "rmdir /s" if system.IS_WINDOWS else "rm -r"
    rows = (
        (f"{script} ls --tree", "forks and subagents below their parents"),
        (f"{script} show {main}", "a rewind, a compaction, a subagent, a correction"),
        (f"{script} search clock change", "across the sessions of all agents"),
        (f"{script} resume", "choose a session to resume"),
        (f"{remove} {homes.work.parent}", "remove the samples"),
    )
    wide = max(columns(line) for line, _ in rows)
    return [
        f"  {style(line, bold=True)}{' ' * (wide - columns(line))}  {style(why, fg=DIM)}"
        for line, why in rows
    ]
