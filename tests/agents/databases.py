"""Made-up databases in the schema of the clients that keep their sessions in one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from thence.agents import Adapter, Cursor, Source
from thence.format.facts import Fact
from thence.format.session_graph import SessionGraph

Step = tuple[str, tuple[Any, ...]]
"""A statement and its values."""

START_MS = 1_777_888_800_000


def run(path: Path, schema: str, steps: Iterable[Step]) -> Path:
    """Write a database with all that the steps put into it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(path)
    database.executescript(schema)
    for statement, values in steps:
        database.execute(statement, values)
    database.commit()
    database.close()
    return path


def insert(table: str, **row: Any) -> Step:
    """A new row; objects and lists become JSON."""
    names = ", ".join(row)
    marks = ", ".join("?" for _ in row)
    values = tuple(json.dumps(v) if isinstance(v, (dict, list)) else v for v in row.values())
    return f"INSERT INTO {table} ({names}) VALUES ({marks})", values


def grown(
    adapter: Adapter, root: Path, path: Path, schema: str, steps: list[Step]
) -> dict[str, SessionGraph]:
    """Return the sessions of a database that is read after each step that is put into it.

    Cursors go through JSON, as in a store.
    """
    run(path, schema, ())
    facts: dict[str, list[Fact]] = {}
    cursors: dict[str, Cursor] = {}
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode=WAL")
    for statement, values in steps:
        database.execute(statement, values)
        database.commit()
        for source in adapter.find(root):
            batch = adapter.read(source, cursors.get(source.session))
            assert [] == batch.skipped
            facts.setdefault(source.session, []).extend(batch.events)
            cursor = msgspec.json.decode(msgspec.json.encode(batch.cursor), type=Cursor)
            cursors[source.session] = cursor
    database.close()
    return {
        name: SessionGraph(f"{adapter.name}:{name}", own_facts) for name, own_facts in facts.items()
    }


def at_once(adapter: Adapter, root: Path) -> dict[str, SessionGraph]:
    """Return the sessions of a database that is read once."""
    return {
        source.session: SessionGraph(source.uid, adapter.read(source).events)
        for source in adapter.find(root)
    }


def event_rows(session: SessionGraph) -> list[tuple[Any, ...]]:
    """Return what a session says, without the totals, which are told as often as it is read."""
    return [
        (e.native_id, e.kind, e.summary, str(e.state), e.parent_id, e.call, e.failed)
        for e in session.events
        if e.native_type != "usage"
    ]


def state(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return the bytes and times of all files below a folder."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def only(adapter: Adapter, root: Path) -> Source:
    """Return the one session of a folder."""
    (source,) = adapter.find(root)
    return source


# -- OpenCode -------------------------------------------------------------------------------

OPENCODE = """
CREATE TABLE event_sequence (aggregate_id text PRIMARY KEY, seq integer NOT NULL, owner_id text);
CREATE TABLE event (id text PRIMARY KEY, aggregate_id text NOT NULL, seq integer NOT NULL,
  type text NOT NULL, data text NOT NULL);
CREATE UNIQUE INDEX event_aggregate_seq_idx ON event (aggregate_id, seq);
CREATE TABLE session (id text PRIMARY KEY, project_id text, parent_id text, directory text NOT NULL,
  title text NOT NULL, version text NOT NULL, revert text, time_created integer NOT NULL,
  time_updated integer NOT NULL);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
  time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
  time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE credential (id text PRIMARY KEY, value text);
"""
