"""The page that signs a browser in: a file of the home that leads to the one-time URL.

A browser is started with the path of this file, never with the URL: every user of the machine can
read the arguments of every process, and who uses the URL first is signed in.

Invariants: only the user can read the file; its name follows from a hash of the ticket, so that it
can be removed as soon as the ticket is used and reveals nothing until then.
"""

from __future__ import annotations

import contextlib
import hashlib
import html
import os
import time
from pathlib import Path
from typing import Final

from thence import system

PREFIX: Final = "sign-in-"
SUFFIX: Final = ".html"
LEFTOVER_AGE_S: Final = 120.0
"""Age after which such a file is a leftover of a process that was killed, in seconds."""

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>thence</title>
</head>
<body><p><a href="{url}">Open thence</a></p></body>
</html>
"""


def write(home: Path, url: str, ticket: str) -> Path:
    """Write the page that leads to a URL with this ticket, and return its path."""
    path = _path(home, ticket)
    handle = system.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(_PAGE.format(url=html.escape(url)))
    return path


def remove(home: Path, ticket: str) -> None:
    """Remove the page of a ticket, if there is one."""
    with contextlib.suppress(OSError):  # it does not exist, or the home cannot be written to
        _path(home, ticket).unlink()


def remove_leftovers(home: Path) -> None:
    """Remove the pages that killed processes left behind."""
    oldest = time.time() - LEFTOVER_AGE_S
    for path in home.glob(f"{PREFIX}*{SUFFIX}"):
        # Removed by another process, or read-only: the next start tries.
        with contextlib.suppress(OSError):
            if path.lstat().st_mtime < oldest:
                path.unlink()


def _path(home: Path, ticket: str) -> Path:
    return home / f"{PREFIX}{hashlib.sha256(ticket.encode()).hexdigest()[:16]}{SUFFIX}"
