"""Cookies of browsers that are signed in: random, each with an end, known by their hashes.

With a file, a browser stays signed in when the server is started again. The file holds hashes only:
who reads it cannot sign in with it. It belongs to one port; remove it to sign all browsers out.

Invariants: a cookie ends at its time, whoever reads the clock; of too many the oldest is void; a
file that cannot be read signs nobody in, and one that cannot be written costs only the restart.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from thence import config, system

MAX_SIGNED_IN: Final = 64
"""Browsers that are signed in at a time, at most."""
MAX_FILE_BYTES: Final = 64 << 10


class SignedIn(msgspec.Struct, frozen=True):
    """One browser that is signed in."""

    hash: str
    end: float
    """When its cookie ends, in seconds since 1970."""


class Cookies:
    """The cookies that let a browser in, in memory and, if a path is known, in a file."""

    def __init__(
        self, clock: Callable[[], float], max_age_s: float, path: Path | None = None
    ) -> None:
        """Read the cookies that the file holds; without a file they end with the process."""
        self.max_age_s = max_age_s
        self._clock = clock
        self._path = path
        self._mutex = threading.Lock()
        self._ends = self._read()

    def add(self) -> str:
        """Return a new cookie."""
        cookie = secrets.token_urlsafe(32)
        with self._mutex:
            self._ends[_hash(cookie)] = self._clock() + self.max_age_s
            while len(self._ends) > MAX_SIGNED_IN:
                del self._ends[next(iter(self._ends))]
            self._drop_ended()
            self._write()
        return cookie

    def has_any(self, values: Iterable[str]) -> bool:
        """Return whether one of some values is a cookie that has not ended."""
        hashes = [_hash(value) for value in values]
        with self._mutex:
            self._drop_ended()
            return any(hmac.compare_digest(a, b) for a in hashes for b in self._ends)

    def _drop_ended(self) -> None:
        now = self._clock()
        # A cookie that ends later than a new one would was written under another clock.
        latest = now + self.max_age_s
        self._ends = {name: end for name, end in self._ends.items() if now < end <= latest}

    def _read(self) -> dict[str, float]:
        if self._path is None:
            return {}
        try:
            descriptor = system.open_file(self._path, os.O_RDONLY)
            with os.fdopen(descriptor, "rb") as file:
                rows = msgspec.json.decode(file.read(MAX_FILE_BYTES), type=list[SignedIn])
        except (OSError, msgspec.MsgspecError):  # a lost file costs signing in again
            return {}
        return {row.hash: row.end for row in rows[-MAX_SIGNED_IN:] if row.hash.isascii()}

    def _write(self) -> None:
        """Replace the file at once: a killed process leaves the old one or the new one."""
        if self._path is None:
            return
        rows = [SignedIn(name, end) for name, end in self._ends.items()]
        with (
            contextlib.suppress(OSError),  # a full disk: who is signed in signs in again
            config.replacing(self._path, sync=False) as file,
        ):
            file.write(msgspec.json.encode(rows))


def _hash(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).hexdigest()
