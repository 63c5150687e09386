"""Check a wheel: it contains every file of the package, its metadata, and nothing else."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

LICENSES = ("licenses/LICENSE", "licenses/src/thence/serve/web/static/htmx-license.txt")
"""Our licence, and that of the library that the viewer contains."""
ROOT = Path(__file__).resolve().parent.parent


def main(wheel: str) -> int:
    """Print the files that are missing or unexpected; return 1 if there are any."""
    source = ROOT / "src"
    expected = {
        str(path.relative_to(source))
        for path in (source / "thence").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        actual = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = {name.partition(".dist-info/")[2] for name in archive.namelist()} - {""}
    problems = [f"missing: {name}" for name in sorted(expected - actual)]
    problems += [f"unexpected: {name}" for name in sorted(actual - expected)]
    problems += [
        f"missing: {name}"
        for name in ("METADATA", "entry_points.txt", *LICENSES)
        if name not in metadata
    ]
    print("\n".join(problems) or f"{len(actual)} files")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
