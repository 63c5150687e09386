"""Exports to be looked at, and exports to be killed, for a warm parent to fork."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.memory.killed import _arm
from tests.memory.stored import opened
from thence import system
from thence.analytics import parquet, views
from thence.analytics.exports import MANIFEST, FolderTarget, Manifest, read_manifest
from thence.analytics.parquet import ExportReport, export, load_duckdb
from thence.analytics.tables import TABLES

_STEPS = (
    *((FolderTarget, name) for name in ("put", "swap", "delete")),
    *((parquet._Scratch, name) for name in ("flush", "touch", "write")),
    *((system, name) for name in ("sync_file", "sync_folder")),
)


def exported(folder: Path, target: Path) -> ExportReport:
    """Export the store of a folder."""
    store = opened(folder)
    try:
        return export(store, FolderTarget(target))
    finally:
        store.close()


def killed(folder: str, target: str, point: int) -> None:
    """Export, until so many things have been done to the disk."""
    os.setsid()
    _arm(point, _STEPS)
    exported(Path(folder), Path(target))


def manifest(target: Path) -> Manifest:
    """The manifest of an export."""
    parsed = read_manifest((target / MANIFEST).read_bytes())
    assert parsed is not None
    return parsed


def tables(target: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables, as a reader sees them."""
    with views._open_engine(load_duckdb(), FolderTarget(target), manifest(target)) as db:
        return {
            name: db.execute(f"SELECT * FROM {name} ORDER BY ALL").fetchall() for name in TABLES
        }
