"""Packages that gave no answer in time, as a home remembers them: one costs its time once.

They are asked again when somebody changed them, after a day, by a sweep and by the doctor.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Final

import click
import msgspec

from thence import config
from thence.errors import ThenceError

FILE: Final = "memory/silent-packages.json"
MAX_AGE_S: Final = 86_400.0
ASKING_AGAIN: Final = ("sweep", "doctor")


class _Silent(msgspec.Struct, frozen=True):
    why: str
    since: float


def leave_out(ctx: click.Context) -> None:
    """Leave out packages that gave no answer before; remember at the end those that give none."""
    try:
        home = config.home()
    except ThenceError:  # who needs a home says so
        return
    recall(home, ctx.invoked_subcommand)
    ctx.call_on_close(lambda: remember(home))


def recall(home: Path, command: str | None) -> None:
    """Let a command leave packages out that gave no answer before; the doctor begins anew."""
    if command == "doctor":
        with contextlib.suppress(OSError):
            (home / FILE).unlink()
    elif command not in ASKING_AGAIN and (known := _read(home)):
        from thence.agents.packages import remember_silent

        remember_silent({name: silent.why for name, silent in known.items()})


def remember(home: Path) -> None:
    """Remember packages that gave no answer to this command."""
    from thence.agents.packages import silent

    now = time.time()
    new = {name: _Silent(why, now) for name, why in silent().items()}
    if new and config.persistence() and (home / FILE).parent.is_dir():
        # Who cannot write it waits again the next time.
        with contextlib.suppress(OSError), config.replacing(home / FILE) as file:
            file.write(msgspec.json.encode(_read(home) | new))


def _read(home: Path) -> dict[str, _Silent]:
    try:
        known = msgspec.json.decode((home / FILE).read_bytes(), type=dict[str, _Silent])
    except (OSError, msgspec.DecodeError):  # all answered, or another version wrote it
        return {}
    now = time.time()
    return {name: item for name, item in known.items() if 0 <= now - item.since < MAX_AGE_S}
