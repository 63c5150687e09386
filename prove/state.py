"""The progress of a run: one line per finished part, written once and never changed.

A line is valid only for the code that produced it. Half a line at the end belongs to a part whose
run was killed while the line was written; that part runs again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

import msgspec

from prove.trial import Outcome, Part

ROOT = Path(__file__).resolve().parent.parent


class FinishedPart(msgspec.Struct):
    """A finished part."""

    trial: str
    key: str
    seed: int
    outcome: Outcome
    seconds: float
    code: str


class State:
    """All finished parts, on disk and in memory."""

    def __init__(self, path: Path, code: str) -> None:
        self.path = path
        self.code = code
        self._finished: dict[tuple[str, str], FinishedPart] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        data = path.read_bytes() if path.exists() else b""
        for line in data.split(b"\n"):
            with contextlib.suppress(msgspec.DecodeError):  # half a line, or a foreign one
                record = msgspec.json.decode(line, type=FinishedPart)
                if record.code == code:
                    self._finished.setdefault((record.trial, record.key), record)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        if data and not data.endswith(b"\n"):
            os.write(self._file, b"\n")

    def get(self, trial: str, part: Part) -> FinishedPart | None:
        """Return the record of a part, or None if it has not finished."""
        return self._finished.get((trial, part.key))

    def add(self, trial: str, part: Part, outcome: Outcome, seconds: float) -> FinishedPart:
        """Record a finished part, and return the record."""
        record = FinishedPart(trial, part.key, part.seed, outcome, round(seconds, 2), self.code)
        os.write(self._file, msgspec.json.encode(record) + b"\n")
        os.fdatasync(self._file)
        self._finished[trial, part.key] = record
        return record

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def hash_code(root: Path = ROOT) -> str:
    """Return a short hash of all code that a trial runs."""
    digest = hashlib.sha256()
    for folder in ("src", "prove", "tests/faults"):
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
