"""How far a run is: a line for each part that ended, written once and never changed.

A line counts only for the code it was made with. Half a line at the end is that of a part which
was killed while it was noted; it is run again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

import msgspec

from prove.trial import Outcome, Part

ROOT = Path(__file__).resolve().parent.parent


class Ended(msgspec.Struct):
    """A part that ended."""

    trial: str
    key: str
    seed: int
    outcome: Outcome
    seconds: float
    code: str


class State:
    """All parts that ended, on disk and in memory."""

    def __init__(self, path: Path, code: str) -> None:
        self.path = path
        self.code = code
        self._ended: dict[tuple[str, str], Ended] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        data = path.read_bytes() if path.exists() else b""
        for line in data.split(b"\n"):
            with contextlib.suppress(msgspec.DecodeError):  # half a line, or none of ours
                ended = msgspec.json.decode(line, type=Ended)
                if ended.code == code:
                    self._ended.setdefault((ended.trial, ended.key), ended)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        if data and not data.endswith(b"\n"):
            os.write(self._file, b"\n")

    def get(self, trial: str, part: Part) -> Ended | None:
        """What a part came to; None when it has not ended."""
        return self._ended.get((trial, part.key))

    def add(self, trial: str, part: Part, outcome: Outcome, seconds: float) -> Ended:
        """Note that a part ended, once."""
        ended = Ended(trial, part.key, part.seed, outcome, round(seconds, 2), self.code)
        os.write(self._file, msgspec.json.encode(ended) + b"\n")
        os.fdatasync(self._file)
        self._ended[trial, part.key] = ended
        return ended

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)


def code_of(root: Path = ROOT) -> str:
    """Give a short hash of all code that a trial runs."""
    digest = hashlib.sha256()
    for folder in ("src", "prove", "tests/faults"):
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
