"""Archives of old homes and stores that are committed beside the tests."""

from __future__ import annotations

import tarfile
from pathlib import Path

SAFE = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Options that keep members inside the folder; Python knows them from 3.11.4 on."""


def extract(archive: Path, folder: Path) -> None:
    """Extract all of an archive into a folder."""
    with tarfile.open(archive) as members:
        members.extractall(folder, **SAFE)  # type: ignore[arg-type]
