"""Sweeps and evictions to be killed, for a warm parent to fork: the whole group ends at a point."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.memory.stored import sweep
from thence.memory import ingest, parcels, sqlite
from thence.memory import sweep as module
from thence.memory.packs import Packs
from thence.memory.pricelist import SHIPPED
from thence.memory.prices import tariff
from thence.memory.sqlite import Sqlite

tariff(SHIPPED, "-")  # the list of prices is read by the parent, once

BROKEN = 5
"""The exit code of a sweep that was told that its reader died."""

_SWEEPING = (
    *((Sqlite, name) for name in ("write", "_migrate")),
    *((Packs, name) for name in ("append", "_sync", "evict")),
    *((sqlite, name) for name in ("put_session", "put_events", "put_digest", "claim")),
)
_REMOVING = (
    *((Sqlite, name) for name in ("settle",)),
    *((Packs, name) for name in ("evict", "_unlink")),
    *((sqlite, name) for name in ("note_removal", "empty_session")),
)


def small() -> None:
    """Let even a small sweep use all processes, and go in many steps."""
    module.OWN_PARCEL_BYTES = 0
    module.PARCEL_BYTES = module.COMMIT_BYTES = 2500
    module.DIGEST_BATCH = 2


def swept(folder: str, home: str, point: int = 0) -> None:
    """Sweep; with a point, until so many things have been done to the disk."""
    os.setsid()
    small()
    _arm(point, _SWEEPING)
    sweep(Path(folder), {"claude": [Path(home)]}, address=f"{folder}/s.db")


def evicted(folder: str, uid: str, point: int) -> None:
    """Evict one session, until so many things have been done to the disk."""
    os.setsid()
    _arm(point, _REMOVING)
    store = Sqlite(f"{folder}/s.db")
    store.remove([uid], why={})
    store.close()


def broken(folder: str, home: str) -> None:
    """Sweep with readers that die at the third session."""
    os.setsid()
    small()
    real_read, calls = ingest.Ingester.read, [0]

    def keeps(*args: Any, **more: Any) -> Any:
        calls[0] += 1
        if calls[0] == 2:
            os._exit(9)
        return real_read(*args, **more)

    ingest.Ingester.read = keeps  # type: ignore[method-assign]
    try:
        sweep(Path(folder), {"claude": [Path(home)]}, address=f"{folder}/s.db")
    except parcels.SweepBroken as error:
        sys.exit(BROKEN if "ended with 9" in error.message else 1)


def _arm(point: int, works: tuple[tuple[Any, str], ...]) -> None:
    left = [point]
    for owner, name in works:
        setattr(owner, name, _counted(getattr(owner, name), left))


def _counted(work: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    def done(*args: Any, **more: Any) -> Any:
        _tick(left)
        out = work(*args, **more)
        _tick(left)
        return out

    return done


def _tick(left: list[int]) -> None:
    left[0] -= 1
    if left[0] == 0:
        os.killpg(0, signal.SIGKILL)
        time.sleep(60)
