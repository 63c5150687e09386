"""Sweeps, pushes and evictions into a Postgres to be killed, for a warm parent to fork."""

from __future__ import annotations

import os
from pathlib import Path

from tests.memory import killed
from tests.memory.stored import KEY
from tests.rules import rules
from thence.agents import adapters
from thence.memory.gate import Gate
from thence.memory.sqlite import Sqlite
from thence.memory.sweep import Sweep
from thence.team import pushing
from thence.team.objects import Objects
from thence.team.postgres import Postgres
from thence.team.postgres_write import Writer
from thence.team.pushing import Pusher

_SWEEPING = (
    *((Postgres, name) for name in ("write", "_connect")),
    *((Objects, name) for name in ("append", "sync", "evict")),
    *((Writer, name) for name in ("_put_sessions", "_put_events", "_stage", "_claim", "_tell")),
    (Writer, "_copy_packed"),
)
_PUSHING = (
    *((Postgres, name) for name in ("push", "write", "_connect")),
    *((Objects, name) for name in ("append", "sync")),
    *((Writer, name) for name in ("push", "put_packs", "write_digests", "_tell", "_many")),
    *((Writer, name) for name in ("_put_sessions", "_put_events", "_stage", "_claim")),
    (Writer, "_copy_packed"),
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
        Sweep(store, adapters(), Gate(key=KEY), rules(), address=url).run({"claude": [Path(home)]})
    store.close()


def pushed(local: str, url: str, point: int = 0) -> None:
    """Push; with a point, until so many things have been done to the other store."""
    os.setsid()
    killed._arm(point, _PUSHING)
    small()
    push(local, url)


def small() -> None:
    """Let even a small push go in many steps."""
    pushing.PIECE_BYTES = 3000
    pushing.BATCH_SESSIONS = 2


def push(local: str, url: str) -> None:
    """Push everything."""
    source, target = Sqlite(local), Postgres(url)
    try:
        with target.sweeping(wait=60):
            Pusher(source, target, Gate(key=KEY), rules()).run()
    finally:
        source.close()
        target.close()


def evicted(url: str, uid: str, point: int) -> None:
    """Evict one session, until so many things have been done to the store."""
    os.setsid()
    killed._arm(point, _REMOVING)
    store = Postgres(url)
    store.remove([uid], why={})
    store.close()
