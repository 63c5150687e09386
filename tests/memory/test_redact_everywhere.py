"""No field of any record is exempt from redaction, and no way out of the store either.

A token stands in every field of every type of record of every agent, in names of folders, files,
branches and titles. Nothing that thence stores, answers, exports or sends has one of them.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import zstandard

from tests.cli.desk import Desk
from tests.memory import stored
from tests.memory.planted import Planted
from tests.pace import by_pace
from tests.postgres import Cluster
from tests.serve.conftest import House
from tests.serve.test_mcp import over_stdio
from thence.agents import adapters
from thence.cli import sample_machine
from thence.team.postgres import Postgres
from thence.team.postgres_schema import TABLES

if TYPE_CHECKING:
    from mcp import Client

CANARY = b"tides"
"""Stands beside the tokens and is none: what is looked through does hold what was said."""


_TOKEN = re.compile(rb"ghp[_-][a-z0-9]{36}")
STEP = by_pace(everyday=12, full=12, prove=1)
"""A token stands in every so-many-th field of a record."""

pytestmark = pytest.mark.sampled


def unpacked(body: bytes | memoryview, *, across: bool = True) -> bytes:
    """Return bytes, and what they hold when they are compressed."""
    try:
        reader = zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=across)
        return bytes(body[: 1 << 16]) + reader.read()
    except zstandard.ZstdError:
        return bytes(body)


def frames(body: bytes) -> Iterator[bytes]:
    """Yield each compressed frame of a file, unpacked."""
    at = body.find(b"\x28\xb5\x2f\xfd")
    while at >= 0:
        yield unpacked(memoryview(body)[at:], across=False)
        at = body.find(b"\x28\xb5\x2f\xfd", at + 4)


def leaks(tokens: Iterable[str], parts: Iterable[bytes]) -> list[str]:
    """Return the tokens that stand in some bytes, in any case of letters; an index folds it."""
    known = {token.lower().encode(): token for token in tokens}
    seen = {token for part in parts for token in _TOKEN.findall(part.lower())}
    return sorted(known[token] for token in seen & known.keys())


def store_bytes(memory: Path) -> Iterator[bytes]:
    """Yield every byte of a store: its files, what is compressed in them, every value."""
    for path in memory.rglob("*"):
        if path.is_file():
            body = path.read_bytes()
            yield str(path).encode()
            yield body
            yield from frames(body)
    with closing(sqlite3.connect(memory / "thence.db")) as database:
        database.text_factory = bytes
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
        for table in tables:
            try:
                rows = database.execute(f'SELECT * FROM "{table.decode()}"').fetchall()
            except sqlite3.Error:
                continue  # an index, or a part of one
            for row in rows:
                for value in row:
                    yield unpacked(value) if isinstance(value, bytes) else str(value).encode()


def sessions(desk: Desk) -> list[str]:
    """Return the ids of all sessions, as they are listed."""
    return [row["session_uid"] for row in desk.run("ls", "-n", "9999", "--json").json]


@pytest.fixture(scope="module")
def sample_path() -> Iterator[Path]:
    """The session that ships with thence."""
    with resources.as_file(resources.files("thence") / "samples" / "tidepool.jsonl") as path:
        yield path


@pytest.fixture(scope="module")
def machine(
    tmp_path_factory: pytest.TempPathFactory, sample_path: Path
) -> Iterator[tuple[Desk, Planted]]:
    """A machine whose logs were read in two parts, so that cursors were stored in the middle."""
    folder = tmp_path_factory.mktemp("machine")
    with pytest.MonkeyPatch.context() as patch:
        desk = Desk(folder, patch)
        planted = Planted(desk.user, folder / "scratch", sample_path, step=STEP)
        planted.name_after_tokens()
        planted.write(0.5)
        first = desk.run("sweep", "--json")
        shutil.copytree(desk.home / "memory", folder / "half")
        planted.write()
        second = desk.run("sweep", "--json")

        assert (0, 0) == (first.code, second.code), second
        assert 0 == second.json["failed"]
        yield desk, planted


@pytest.mark.slow
@pytest.mark.parametrize("where", ["half", "user/.thence/memory"])
def test_the_store_holds_no_token_of_any_field(machine: tuple[Desk, Planted], where: str) -> None:
    """Not in a row, a cursor, a fold state, a pack, an index, the write-ahead log, a name."""
    desk, planted = machine
    parts = list(store_bytes(desk.user.parent / where))

    assert [] == leaks(planted.garden.tokens, parts)
    assert len(planted.garden.tokens) > 5000 // STEP
    assert any(CANARY in part for part in parts)
    assert any(b"[REDACTED:github-token:" in part for part in parts)


@pytest.mark.slow
def test_a_log_read_in_parts_says_the_same_as_one_read_at_once(
    tmp_path: Path, sample_path: Path
) -> None:
    """A cursor without secrets leads on: no event, fact, bill or tie is other than without it."""
    user = tmp_path / "user"
    env = sample_machine.homes(user).env
    roots = {name: adapter.roots(user, env) for name, adapter in adapters().items()}
    planted = Planted(user, tmp_path / "scratch", sample_path, step=3 * STEP)
    planted.name_after_tokens()
    for share in (0.3, 0.5, 0.7, 1.0):
        planted.write(share)
        stored.sweep(tmp_path / "parts", roots)
    stored.sweep(tmp_path / "at-once", roots)
    parts, at_once = stored.dump(tmp_path / "parts"), stored.dump(tmp_path / "at-once")

    assert at_once["events"] == parts["events"]
    assert at_once["facts"] == parts["facts"]
    assert at_once["spend"] == parts["spend"]
    assert at_once["families"] == parts["families"]


@pytest.mark.slow
def test_no_answer_over_http_holds_a_token(machine: tuple[Desk, Planted]) -> None:
    """Neither pages nor the API, down to the raw payload of single events."""
    desk, planted = machine
    house = House(desk.user)
    uids = sessions(desk)[::6]
    paths = ["/", "/sessions", "/costs", "/patterns", "/store", "/api/now", "/api/projects"]
    paths += ["/api/sessions?limit=500", "/api/digests", "/api/signals", "/api/patterns"]
    paths += ["/api/costs?by=session", "/api/store", "/api/plan", "/api/search?q=tides"]
    with house.serving():
        parts = [house.ask(path).body for path in paths]
        for at, uid in enumerate(quote(uid, safe="") for uid in uids):
            path = f"/api/sessions/{uid}"
            wanted = [path, f"{path}/events", f"{path}/chain", f"{path}/messages", f"{path}/digest"]
            parts += [house.ask(path).body for path in (*wanted, f"/sessions/{uid}")]
            if at % 8:
                continue
            for event in house.ask(f"{path}/events").json["events"]:
                parts.append(house.ask(f"{path}/events/{event['event_id']}").body)
                parts.append(house.ask(f"{path}/events/{event['event_id']}/raw").body)
    house.close()

    assert [] == leaks(planted.garden.tokens, parts)
    assert sum(b"[REDACTED:github-token:" in part for part in parts) > len(uids)


@pytest.mark.slow
def test_no_answer_over_mcp_holds_a_token(machine: tuple[Desk, Planted]) -> None:
    """Whatever an agent asks for."""
    desk, planted = machine

    async def talk(client: Client) -> list[str]:
        asked: list[tuple[str, dict[str, Any]]] = [
            ("search", {"query": "tides"}),
            ("search", {"query": "REDACTED", "limit": 20}),
        ]
        asked += [("todos", {}), ("costs", {"by": "session"}), ("costs", {"by": "model"})]
        asked += [("files", {"path": "a.py"}), ("seen_error", {"text": "no such file"})]
        asked += [("outline", {"session": uid}) for uid in sessions(desk)[::8]]
        answers = [await client.call_tool(name, arguments) for name, arguments in asked]
        return [repr(block) for answer in answers for block in answer.content]

    homes = sample_machine.homes(desk.user)
    parts = [text.encode() for text in over_stdio(homes, talk)]

    assert [] == leaks(planted.garden.tokens, parts)
    assert any(b"REDACTED:github-token" in part for part in parts)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["jsonl", "markdown", "html", "messages"])
def test_no_redacted_export_holds_a_token(machine: tuple[Desk, Planted], form: str) -> None:
    """Of a source that is there: `--redacted` goes over all of it."""
    desk, planted = machine
    parts = [
        desk.run("export", uid, "--as", form, "--redacted").out.encode()
        for uid in sessions(desk)[::12]
    ]

    assert [] == leaks(planted.garden.tokens, parts)
    assert any(b"REDACTED:github-token" in part for part in parts)


@pytest.mark.slow
def test_no_parquet_file_holds_a_token(machine: tuple[Desk, Planted], tmp_path: Path) -> None:
    """Whatever the column, read back as anybody reads it."""
    import duckdb

    desk, planted = machine
    ran = desk.run("export", "parquet", str(tmp_path / "lake"))
    files = [path for path in (tmp_path / "lake").rglob("*") if path.is_file()]
    parts = [path.read_bytes() for path in files] + [str(path).encode() for path in files]
    for path in files:
        if path.suffix == ".parquet":
            rows = duckdb.connect().execute("SELECT * FROM read_parquet(?)", [str(path)]).fetchall()
            parts.append(repr(rows).encode())

    assert 0 == ran.code
    assert [] == leaks(planted.garden.tokens, parts)
    assert any(b"[REDACTED:github-token:" in part for part in parts)


@pytest.mark.parametrize("objects", [False, True], ids=["database", "objects"])
def test_no_token_is_pushed(
    machine: tuple[Desk, Planted], postgres: Cluster, tmp_path: Path, objects: bool
) -> None:
    """In no column of any table of the other store, and in no object."""
    desk, planted = machine
    url = postgres.url(postgres.database(), tenant="team", machine="m")
    address = f"{url}#objects=file://{tmp_path / 'objects'}" if objects else url
    ran = desk.run("push", address, "--json")
    store = Postgres(url)
    parts = [
        unpacked(bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode())
        for table in TABLES
        for row in store._every(f"SELECT * FROM {table}")
        for value in row
    ]
    store.close()
    for path in (tmp_path / "objects").rglob("*"):
        if path.is_file():
            parts += [str(path).encode(), *frames(path.read_bytes())]

    assert 0 == ran.code, ran
    assert [] == leaks(planted.garden.tokens, parts)
    assert any(b"[REDACTED:github-token:" in part for part in parts)
    assert any(CANARY in part for part in parts)
