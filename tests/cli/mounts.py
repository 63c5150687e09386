"""Disks that refuse: a folder that is read-only, or on a disk of few bytes, for one program.

In a namespace of its own the program sees the folder mounted so; nobody else does.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

_READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
_SMALL = 'mount -t tmpfs -o size="$1",mode=700 none "$0" && shift && exec "$@"'


def _in_namespace(script: str, folder: Path, *arguments: str) -> list[str]:
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", script, str(folder), *arguments]


def read_only(folder: Path) -> list[str]:
    """Return how to begin a command that sees a folder read-only; skip where that cannot be."""
    _check()
    return _in_namespace(_READ_ONLY, folder)


def small(folder: Path, size: int) -> list[str]:
    """Return how to begin a command that sees a folder as an empty disk of so many bytes."""
    _check()
    return _in_namespace(_SMALL, folder, str(size))


def _check() -> None:
    if shutil.which("unshare") is None:
        pytest.skip("needs Linux and unshare (util-linux)")
    with TemporaryDirectory() as folder:
        command = _in_namespace(_SMALL, Path(folder), "4096", "true")
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"this system does not let us mount: {done.stderr.strip()[:80]}")
