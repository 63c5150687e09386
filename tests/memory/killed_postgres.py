"""Sweeps and evictions into a Postgres to be killed, for a warm parent to fork."""

from __future__ import annotations

import os
from pathlib import Path

from tests.memory import killed
from tests.memory.stored import KEY
from thence.adapters import adapters
from thence.memory.objects import Objects
from thence.memory.postgres import Postgres
from thence.memory.postgres_write import Writer
from thence.memory.redact import Redactor
from thence.memory.sweep import Sweep

_SWEEPING = (
    *((Postgres, name) for name in ("write", "digested", "_connect")),
    *((Objects, name) for name in ("append", "sync", "evict")),
    *((Writer, name) for name in ("_put_sessions", "_put_events", "_stage", "_claim", "_tell")),
)
_REMOVING = (
    *((Postgres, name) for name in ("settle", "_rewrite")),
    *((Objects, name) for name in ("evict",)),
    *((Writer, name) for name in ("remove", "pend")),
)


def swept(url: str, home: str, point: int = 0) -> None:
    """Sweep; with a point, until so many things have been done to the store."""
    os.setsid()
    killed.small()
    killed._arm(point, _SWEEPING)
    store = Postgres(url)
    with store.sweeping(wait=60):
        Sweep(store, adapters(), Redactor(key=KEY), address=url).run({"claude": [Path(home)]})
    store.close()


def evicted(url: str, uid: str, point: int) -> None:
    """Evict one session, until so many things have been done to the store."""
    os.setsid()
    killed._arm(point, _REMOVING)
    store = Postgres(url)
    store.remove([uid], why={})
    store.close()
