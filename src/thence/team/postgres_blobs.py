"""Payloads in the database itself: the backend of `Objects` where no object store is named."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Final

import psycopg

from thence.team.objects import BackendError, ObjectAbsent
from thence.team.postgres_events import TenantConnection
from thence.team.postgres_text import first_line
from thence.team.postgres_write import Writer

CONNECTION_ERRORS: Final = (psycopg.OperationalError, psycopg.InterfaceError)
"""What is raised where a connection is lost: the same may be tried once more on another."""


class PostgresBlobs:
    """Payloads in rows of the table `packs`."""

    parallel = False

    def __init__(self, store: TenantConnection) -> None:
        self._store = store

    def put(self, name: str, body: bytes) -> None:
        """Keep an object under a name that nothing has; durable on return."""
        pack, _, batch = name.partition("/")
        self._do(
            "INSERT INTO packs(tenant, machine, pack, batch, body) VALUES(%s, %s, %s, %s, %s)",
            *(self._store.tenant, self._store.machine, pack, batch, body),
        )

    def put_all(self, objects: Sequence[tuple[str, bytes]]) -> None:
        """Keep several, all or none of them; once more where the connection was lost."""
        store = self._store
        try:
            with contextlib.suppress(*CONNECTION_ERRORS):
                Writer(store._db, store.tenant, store.machine).put_packs(objects)  # noqa: SLF001 - its own
                return
            Writer(store._db, store.tenant, store.machine).put_packs(objects)  # noqa: SLF001
        except psycopg.Error as error:
            raise BackendError(first_line(error)) from error

    def get(self, name: str, start: int, length: int) -> bytes:
        """Return a part of an object."""
        pack, _, batch = name.partition("/")
        rows = self._do(
            "SELECT substring(body FROM %s FOR %s) FROM packs"
            " WHERE tenant=%s AND pack=%s AND batch=%s",
            *(start + 1, length, self._store.tenant, pack, batch),
        )
        if not rows:
            raise ObjectAbsent(name)
        return bytes(rows[0][0])

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the names below a prefix, and their sizes."""
        rows = self._do(
            "SELECT pack || '/' || batch, length(body) FROM packs WHERE tenant=%s AND pack=%s",
            *(self._store.tenant, prefix.rstrip("/")),
        )
        return dict(rows)

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects; those that are gone already do not matter."""
        for name in names:
            pack, _, batch = name.partition("/")
            self._do(
                "DELETE FROM packs WHERE tenant=%s AND pack=%s AND batch=%s",
                *(self._store.tenant, pack, batch),
            )

    def _do(self, statement: str, *values: Any) -> list[Any]:
        try:
            cursor = self._store._db.execute(statement.encode(), values)  # noqa: SLF001 - its own
            return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise BackendError(first_line(error)) from error
