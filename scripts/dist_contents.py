"""Check a wheel and an sdist against the folder they were built from.

    .venv/bin/python scripts/dist_contents.py FOLDER FOLDER/dist/*

The wheel has the package, licences and metadata; the sdist has all files of the folder. A file that
is missing, or that nobody put there on purpose, is an error.
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

LICENSES = (
    "LICENSE",
    "THIRD-PARTY-NOTICES.txt",
    "src/thence/serve/web/static/htmx-license.txt",
)
"""Our licence, and those of the parts that we ship."""


def main(source: Path, paths: Iterable[str]) -> int:
    """Print the files that are missing or unexpected; return 1 if there are any."""
    problems: list[str] = []
    for path in paths:
        check = wheel_problems if path.endswith(".whl") else sdist_problems
        problems += (f"{Path(path).name}: {problem}" for problem in check(source, path))
    print("\n".join(problems) or "complete")
    return 1 if problems else 0


def wheel_problems(source: Path, path: str) -> Iterator[str]:
    """Yield what is wrong with the files of a wheel."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    metadata = {name.partition(".dist-info/")[2] for name in names} - {""}
    modules = {name for name in names if ".dist-info/" not in name}
    yield from compare({f"thence/{name}" for name in files(source / "src" / "thence")}, modules)
    expected = {"METADATA", "RECORD", "WHEEL", "entry_points.txt"}
    yield from compare(expected | {f"licenses/{name}" for name in LICENSES}, metadata)


def sdist_problems(source: Path, path: str) -> Iterator[str]:
    """Yield what is wrong with the files of an sdist."""
    with tarfile.open(path) as archive:
        actual = {name.name.partition("/")[2] for name in archive if name.isfile()}
    yield from compare(files(source) | {"PKG-INFO", *LICENSES}, actual)


def files(folder: Path) -> set[str]:
    """Return the files of a folder, without those that a build or an import makes."""
    names = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    return {
        name.as_posix()
        for name in names
        if name.parts[0] != "dist" and "__pycache__" not in name.parts
    }


def compare(expected: set[str], actual: set[str]) -> Iterator[str]:
    """Yield what is missing and what is unexpected."""
    yield from (f"missing: {name}" for name in sorted(expected - actual))
    yield from (f"unexpected: {name}" for name in sorted(actual - expected))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
