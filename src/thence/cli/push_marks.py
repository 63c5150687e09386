"""How far this machine has pushed to each store of a team, for when nobody answers there.

What counts is what the other store says; this is a copy of it, a file for each store below
`memory/pushed`. Its name is a hash of where the store is, never of who asks and with which
password. A session that is forgotten is taken out of all of these files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from thence import config

if TYPE_CHECKING:
    from thence.team.pushing import PushMark

_FOLDER: Final = ("memory", "pushed")
_NAME_BYTES: Final = 16
_PLACE: Final = ("host", "hostaddr", "port", "dbname", "service", "tenant")
"""What of an address says which store it is."""


class PushMarks:
    """The marks of one store."""

    def __init__(self, home: Path, address: str) -> None:
        self._path = home.joinpath(*_FOLDER, _name_of(address))

    def read(self) -> dict[str, tuple[PushMark, bool]]:
        """Return the marks of the last push; none when there are none, or none that can be read."""
        from thence.team.pushing import PushMark

        try:
            marks = msgspec.msgpack.decode(self._path.read_bytes(), type=dict[str, PushMark])
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            # Then the store is asked how far it came.
            return {}
        return {uid: (mark, True) for uid, mark in marks.items()}

    def write(self, marks: Mapping[str, PushMark]) -> None:
        """Note marks; what cannot be noted is not missed."""
        # A cache: without it the next push asks the store.
        with contextlib.suppress(OSError, UnicodeEncodeError):
            config.make_private(self._path.parent)
            _replace(self._path, dict(marks))
            for path in self._path.parent.iterdir():
                if len(path.name) != 2 * _NAME_BYTES:  # hashes of addresses with passwords
                    path.unlink(missing_ok=True)


def forget_marks(home: Path, uid: str) -> None:
    """Take a session out of the marks of all stores; what cannot be read is deleted."""
    folder = home.joinpath(*_FOLDER)
    for path in folder.iterdir() if folder.is_dir() else ():
        try:
            marks = msgspec.msgpack.decode(path.read_bytes(), type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            path.unlink(missing_ok=True)
            continue
        if marks.pop(uid, None) is not None:
            _replace(path, marks)


def _replace(path: Path, marks: dict[str, Any]) -> None:
    with config.replacing(path, sync=False) as file:
        file.write(msgspec.msgpack.encode(marks))


def _name_of(address: str) -> str:
    parts = urlsplit(address.partition("#")[0])
    place = {
        "host": parts.netloc.rpartition("@")[2],
        "dbname": parts.path.strip("/"),
        **{name: value for name, value in parse_qsl(parts.query) if name in _PLACE},
    }
    body = msgspec.json.encode(sorted(place.items()))
    return blake2b(body, digest_size=_NAME_BYTES).hexdigest()
