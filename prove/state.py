"""The progress of a run: one line per finished part, written once and never changed.

A line is valid only for the code that produced it: the modules that its trial runs, and all that
they import. Half a line at the end belongs to a part whose run was killed while the line was
written; that part runs again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import grimp
import msgspec

from prove.trial import ALL_CODE, Outcome, Part

ROOT = Path(__file__).resolve().parent.parent
KEPT_TRIALS = ROOT / "docs" / "trials.jsonl"
"""Finished parts that `make proof` puts beside the page: another machine goes on from them."""
BOOKKEEPING = ("__main__.py", "budgets.py", "page.py", "report.py", "run.py", "state.py")
"""Files of this package that make no faults: they start trials and say what came of them."""


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

    def __init__(self, path: Path, code_of: Callable[[str], str]) -> None:
        """`code_of` returns the hash of the code of a trial."""
        self.path = path
        self.code_of = code_of
        self._finished: dict[tuple[str, str], FinishedPart] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        data = path.read_bytes() if path.exists() else b""
        for line in data.split(b"\n"):
            with contextlib.suppress(msgspec.DecodeError):  # half a line, or a foreign one
                record = msgspec.json.decode(line, type=FinishedPart)
                if record.code == code_of(record.trial):
                    self._finished.setdefault((record.trial, record.key), record)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        if data and not data.endswith(b"\n"):
            os.write(self._file, b"\n")

    def get(self, trial: str, part: Part) -> FinishedPart | None:
        """Return the record of a part, or None if it has not finished."""
        return self._finished.get((trial, part.key))

    def add(self, trial: str, part: Part, outcome: Outcome, seconds: float) -> FinishedPart:
        """Record a finished part, and return the record."""
        code = self.code_of(trial)
        record = FinishedPart(trial, part.key, part.seed, outcome, round(seconds, 2), code)
        os.write(self._file, msgspec.json.encode(record) + b"\n")
        os.fdatasync(self._file)
        self._finished[trial, part.key] = record
        return record

    def export(self, path: Path) -> None:
        """Write the finished parts that are valid for this code to a file."""
        records = self._finished.values()
        path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def start_state(folder: Path, source: Path, code_of: Callable[[str], str], *, fresh: bool) -> State:
    """Return the state of a run; a new folder goes on from `source`, unless all is to run again."""
    path = folder / "state.jsonl"
    if fresh:
        path.unlink(missing_ok=True)
    elif source.exists() and not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, path)
    return State(path, code_of)


@functools.cache
def hash_code(modules: tuple[str, ...] = ALL_CODE) -> str:
    """Return a short hash of modules, of all that they import, and of what makes the faults."""
    files = {_source_of(name) for name in find_imported(modules)}
    files |= {path for path in (ROOT / "prove").glob("*.py") if path.name not in BOOKKEEPING}
    files |= set((ROOT / "tests" / "faults").glob("*.py"))
    return hash_files(files, ROOT)


def find_imported(modules: Iterable[str]) -> set[str]:
    """Return modules and all of ours that they import; `a.*` is a package with all in it."""
    graph = _build_graph()
    imported: set[str] = set()
    for module in modules:
        name = module.removesuffix(".*")
        is_package = name != module
        imported |= {name, *graph.find_upstream_modules(name, as_package=is_package)}
        if is_package:
            imported |= graph.find_descendants(name)
    return imported


@functools.cache
def _build_graph() -> grimp.ImportGraph:
    return grimp.build_graph("thence", exclude_type_checking_imports=True, cache_dir=None)


def _source_of(module: str) -> Path:
    path = ROOT.joinpath("src", *module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def hash_files(files: Iterable[Path], root: Path) -> str:
    """Return a short hash of the names and the bytes of files below a folder."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
