"""The launcher: a small script in the home that starts the thence that is installed now.

Hooks, timers, services and MCP entries name this script, never a Python: an upgrade or a moved
environment changes the script and no settings of anybody. A later thence that finds it stale writes
it anew. When the program it starts is gone, it does nothing for a hook and ends with 0, leaves
a mark, and `thence` and `thence doctor` tell of it.

Invariants: the script uses nothing but the shell's own words, so that no PATH and no current
folder decides what runs; Python starts isolated (`thence.cli.processes`).
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path
from typing import Final, Literal, NamedTuple

from thence import __version__, config, system
from thence.cli import processes
from thence.errors import BadConfig, is_in_uv_cache

FOLDER: Final = "bin"
NAME: Final = "thence"
MISSED: Final = "launcher.missed"
"""The mark that a hook could not run; it says which program was gone."""
NUDGE: Final = "nudge"
"""The first word of the command that leaves a nudge; it is no command of `thence`."""

_SCRIPT: Final = """#!/bin/sh
# Starts thence {version} with the home {home}. Written by thence; rewritten after an upgrade.
python={python}
nudge={nudge}
THENCE_HOME={home}
export THENCE_HOME
if [ ! -x "$python" ] || [ ! -f "$nudge" ]; then
  [ -e "$THENCE_HOME/{missed}" ] || printf '%s\\n' "$python" >"$THENCE_HOME/{missed}"
  case "$1 $2" in "{word} "* | "brief --hook") exit 0 ;; esac
  echo "thence: $python is gone: install thence again, then run thence setup" >&2
  exit 127
fi
if [ "$1" = {word} ]; then
  shift
  exec "$python" -I -S "$nudge" "$@"
fi
exec {python_command} -c 'from thence.__main__ import main; main()' "$@"
"""
_PYTHON: Final = r"(?m)^python=(.*)$"
_NUDGE: Final = r"(?m)^nudge=(.*)$"
_VERSION: Final = r"(?m)^# Starts thence (\d+)\.(\d+)"

State = Literal["none", "current", "other", "old", "dead"]


class Launcher(NamedTuple):
    """How the launcher of a home stands."""

    path: Path
    state: State
    """`other`: it starts another thence that is there and no older than this one. `old`: it was
    written by an older one. `dead`: the program that it starts is gone."""
    python: str = ""
    """The Python that it starts."""


def path_in(home: Path) -> Path:
    """Return where the launcher of a home is."""
    return home / FOLDER / NAME


def command(home: Path, *arguments: str) -> list[str]:
    """Return the command line that starts a thence command by the launcher."""
    return [str(path_in(home)), *arguments]


def script(home: Path) -> str:
    """Return the text of the launcher that starts this thence."""
    system.refuse_windows("what starts thence by itself (hooks, services, timers)")
    nudge = Path(__file__).with_name("nudge.py")
    return _SCRIPT.format(
        version=__version__,
        home=shlex.quote(str(home)),
        python=shlex.quote(processes.python()[0]),
        nudge=shlex.quote(str(nudge)),
        missed=MISSED,
        word=NUDGE,
        python_command=" ".join(['"$python"', *processes.ISOLATED]),
    )


def look(home: Path) -> Launcher:
    """Return how the launcher of a home stands."""
    path = path_in(home)
    try:
        text = path.read_text("utf-8", "replace")
        is_runnable = os.access(path, os.X_OK)
    except OSError:  # a home that was never set up has none
        return Launcher(path, "none")
    if is_runnable and text == script(home):
        return Launcher(path, "current", processes.python()[0])
    python, nudge = (_value(pattern, text) for pattern in (_PYTHON, _NUDGE))
    if not is_runnable or not os.access(python, os.X_OK) or not Path(nudge).is_file():
        return Launcher(path, "dead", python)
    version = re.search(_VERSION, text)
    written = tuple(map(int, version.groups())) if version else (0, 0)
    is_same_python = python == sys.executable
    is_old = is_same_python or written < _numbers(__version__)
    return Launcher(path, "old" if is_old else "other", python)


def write(home: Path) -> None:
    """Write the launcher that starts this thence, whole or not at all.

    Raises BadConfig under `uvx`: hooks would stop when uv cleans up its cache.
    """
    if is_in_uv_cache():
        raise BadConfig(
            "thence runs from uv's cache here; hooks, timers and services need an installed one",
            hint="uv tool install thence, then run this command again",
        )
    path = path_in(home)
    config.make_private(path.parent)
    with config.replacing(path, mode=0o700, sync=False) as file:
        file.write(script(home).encode())


def ensure(home: Path) -> None:
    """Write the launcher unless one is there that starts a thence no older than this one."""
    if look(home).state in ("none", "old", "dead"):
        write(home)


def remove(home: Path) -> None:
    """Remove the launcher, and what it left."""
    path_in(home).unlink(missing_ok=True)
    (home / MISSED).unlink(missing_ok=True)
    if path_in(home).parent.is_dir() and not any(path_in(home).parent.iterdir()):
        path_in(home).parent.rmdir()


def refresh(home: Path, *, tells: bool = True) -> str | None:
    """Write a stale launcher anew; return what a person is told of it, once.

    Who does not tell it leaves the mark to the next one.
    """
    missed = home / MISSED
    try:
        there = look(home)
        if there.state == "dead" and not missed.exists():
            missed.write_text(f"{there.python}\n", "utf-8")
            missed.chmod(0o600)
        if there.state in ("old", "dead") and not is_in_uv_cache():
            write(home)
        if not tells or not missed.exists():
            return None
        gone = missed.read_text("utf-8", "replace").strip()
        if is_in_uv_cache():  # the mark stays until an installed thence has written the launcher
            return f"hooks cannot run: {gone} is gone; uv tool install thence, then run thence"
        missed.unlink(missing_ok=True)
    except OSError:  # a home that is read-only: doctor tells of it
        return None
    return f"hooks could not run: {gone} is gone; they use this thence from now on"


def _value(pattern: str, text: str) -> str:
    """Return the word that a line of the script assigns."""
    match = re.search(pattern, text)
    try:
        words = shlex.split(match[1]) if match else []
    except ValueError:
        words = []
    return words[0] if words else ""


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"(\d+)\.(\d+)", version)
    return tuple(map(int, match.groups())) if match else (0, 0)
