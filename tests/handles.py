"""Which files this process has open."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

HANDLES = Path("/proc/self/fd")


def open_below(folder: Path) -> list[str]:
    """Return the open files below a folder; none where the system does not list them.

    Those of a folder, because a server that several tests share opens and closes others.
    """
    targets: list[str] = []
    for handle in HANDLES.iterdir() if HANDLES.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            targets.append(os.readlink(handle))  # noqa: PTH115 - a target may be no path
    return [target for target in targets if target.startswith(f"{folder}/")]
