"""What installed packages offer us, by the entry points they declare.

To ask all of them takes as long as a sweep with nothing new, and nearly always only we ourselves
offer anything. A look at their files tells whether that is so.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def others_offer(group: str) -> bool:
    """Whether a package besides this one brings something for a group of entry points."""
    for folder in sys.path:
        with contextlib.suppress(OSError):
            for name in os.listdir(folder or "."):  # noqa: PTH208 - names are all that is needed
                if not name.endswith((".dist-info", ".egg-info")) or name.startswith("thence-"):
                    continue
                with (
                    contextlib.suppress(OSError),
                    open(  # noqa: PTH123
                        f"{folder or '.'}/{name}/entry_points.txt", "rb"
                    ) as file,
                ):
                    if f"[{group}]".encode() in file.read():
                        return True
    return False


def entry_points(group: str) -> list[EntryPoint]:
    """Ask all installed packages, always in the same order."""
    from importlib.metadata import entry_points as installed

    return sorted(installed(group=group), key=lambda point: (point.name, point.value))
