"""Check a wheel: it holds every file of the package, and nothing besides but its own metadata."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

LICENSES = ("licenses/LICENSE", "licenses/src/thence/serve/web/static/htmx-license.txt")
"""Ours, and that of the part that the viewer ships."""
ROOT = Path(__file__).resolve().parent.parent


def main(wheel: str) -> int:
    """Print what is missing or too much; 1 if anything is."""
    source = ROOT / "src"
    wanted = {
        str(path.relative_to(source))
        for path in (source / "thence").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as opened:
        packed = {name for name in opened.namelist() if ".dist-info/" not in name}
        metadata = {name.partition(".dist-info/")[2] for name in opened.namelist()} - {""}
    problems = [f"missing: {name}" for name in sorted(wanted - packed)]
    problems += [f"too much: {name}" for name in sorted(packed - wanted)]
    problems += [
        f"missing: {name}"
        for name in ("METADATA", "entry_points.txt", *LICENSES)
        if name not in metadata
    ]
    print("\n".join(problems) or f"{len(packed)} files")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
