"""Paths as they are stored, and back: as text, whatever bytes they are made of.

A path with a placeholder is no longer where a file lies; `locate` returns the file it stands for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from thence.agents import Source
from thence.memory.placeholders import BEGINNING, PLACEHOLDER

_MOST_CANDIDATES: Final = 64
"""Paths that one path with placeholders may stand for."""


def printable_source(source: Source) -> Source:
    """Return a source whose names can be stored, whatever bytes its files are named with."""
    for file in source.files:
        if not file.path.isascii():
            break
    else:
        if source.session.isascii():
            return source
    files = tuple(
        msgspec.structs.replace(file, key=printable(file.key), channel=printable(file.channel))
        for file in source.files
    )
    return msgspec.structs.replace(source, session=printable(source.session), files=files)


def printable(path: str) -> str:
    """Return a path that can be stored as text, whatever bytes it is made of."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def dash_path(text: str) -> str:
    """Return a path as some agents make the name of a folder of it."""
    return re.sub(r"[^0-9A-Za-z]", "-", text)


def locate(path: str) -> str:
    """Return where the file of a stored path lies; the path itself where nothing is known of it.

    A placeholder stands for any name: of several files the path may mean, none is returned.
    """
    if BEGINNING not in path or os.path.lexists(path):
        return path
    places = [Path("/" if path.startswith("/") else "")]
    for name in path.strip("/").split("/"):
        places = list(_entries(places, name))
        if len(places) > _MOST_CANDIDATES:
            return path
    return str(places[0]) if len(places) == 1 else path


def _entries(places: Iterable[Path], name: str) -> Iterator[Path]:
    """Yield what of a name with placeholders is there in some folders."""
    pieces = PLACEHOLDER.split(name)
    if len(pieces) == 1:
        yield from (place / name for place in places if os.path.lexists(place / name))
        return
    form = re.compile(".+?".join(map(re.escape, pieces)))
    for place in places:
        try:
            yield from (entry for entry in place.iterdir() if form.fullmatch(entry.name))
        except OSError:
            continue
