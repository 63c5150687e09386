"""No secret that was planted leaves the machine: not in a table, a file of the server, an object.

What is compressed is looked into, and what was planted beside the secrets shows that the look
would have found them.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from tests.agents.transcripts import Script, usage
from tests.memory import logs
from tests.memory.stored import KEY
from tests.memory.test_redact_recall import planted
from tests.pace import by_pace
from tests.postgres import Cluster
from thence.agents import adapters
from thence.memory.redact import Redactor
from thence.memory.sqlite import Sqlite
from thence.memory.store import with_objects
from thence.memory.sweep import Sweep
from thence.team.postgres import Postgres
from thence.team.postgres_schema import TABLES
from thence.team.pushing import Pusher

CANARY = "brackenfold"
"""Is no secret, and stands beside each of them."""


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    """A machine whose sessions are full of secrets, and what must not leave it."""
    folder = tmp_path_factory.mktemp("machine")
    clean = Redactor(key=KEY)
    gone: list[bytes] = []
    texts = [
        (text, secrets)
        for _, text, secrets in list(planted())[:: by_pace(12, 12, 6)]
        if not any(piece in clean.redact(text) for piece in secrets)
    ]
    for number in range(4):
        script = Script(logs.name(number), f"p{number}-")
        for at, (text, secrets) in enumerate(texts[number::4]):
            script.user(f"{text}\n{CANARY}")
            call = {"type": "tool_use", "id": f"c{at}", "name": "Bash", "input": {"command": text}}
            script.reply([call], stop="tool_use", usage=usage(3))
            script.result(f"c{at}", f"Error: {text}\n{CANARY}", wrong=at % 3 == 0)
            gone += [piece.encode() for piece in secrets]
        logs.write(folder / "home", script)
    store = Sqlite(str(folder / "s.db"))
    with store.sweeping():
        Sweep(store, adapters(), Redactor(key=KEY)).run({"claude": [folder / "home"]})
    store.close()
    return folder, gone


def pushed(folder: Path, url: str, objects: Path | None = None) -> Postgres:
    """Push everything; the other store."""
    source, target = Sqlite(str(folder / "s.db")), Postgres(url)
    if objects is not None:
        with_objects(target, f"file://{objects}")
    with target.sweeping():
        Pusher(source, target, Redactor(key=KEY)).run()
    source.close()
    return target


def looked_into(body: bytes) -> bytes:
    """Bytes, and what they are when they are taken for compressed ones."""
    try:
        reader = zstandard.ZstdDecompressor().stream_reader(
            io.BytesIO(body), read_across_frames=True
        )
        return body + reader.read()
    except zstandard.ZstdError:
        return body


def values(store: Postgres) -> Iterator[tuple[str, bytes]]:
    """All that stands in all tables of a database, whoever's it is."""
    for table in TABLES:
        for row in store._every(f"SELECT * FROM {table}"):
            for value in row:
                data = (
                    bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode()
                )
                yield table, looked_into(data)


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("objects", [False, True], ids=["database", "objects"])
def test_no_planted_secret_leaves_the_machine(
    pieces: tuple[Path, list[bytes]], tmp_path: Path, postgres: Cluster, objects: bool
) -> None:
    """In no column of no table, no file of the server, no object."""
    folder, gone = pieces
    database = postgres.database()
    store = pushed(
        folder, postgres.url(database, machine="m"), tmp_path / "objects" if objects else None
    )
    cells = list(values(store))
    store.close()
    postgres.sql("CHECKPOINT")
    [(number,)] = postgres.sql(f"SELECT oid FROM pg_database WHERE datname='{database}'")
    base = postgres.data / "base" / f"{number}"
    files = [path.read_bytes() for path in base.iterdir() if path.is_file()]
    shelf = [path for path in (tmp_path / "objects").rglob("*") if path.is_file()]
    bodies = [looked_into(path.read_bytes()) for path in shelf]
    everything = b"\n".join([*(body for _, body in cells), *files, *bodies])
    source = b"".join(path.read_bytes() for path in (folder / "home").rglob("*.jsonl"))
    holds = {table for table, body in cells if CANARY.encode() in body}

    assert len(gone) > by_pace(100, 100, 200)
    assert [] == [piece for piece in gone if piece in everything]
    assert len(gone) // 2 < sum(piece in source for piece in gone)
    assert b"[REDACTED:" in everything
    assert {"words", "facts", "digests"} <= holds
    assert (objects, not objects) == (bool(bodies), "packs" in holds)
    assert not objects or all(CANARY.encode() in body for body in bodies)
