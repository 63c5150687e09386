"""A Postgres of one's own: made in a passing folder, listening on a socket there, gone at the end.

The server refuses to run as root, so that root runs it as another user. Nothing of it outlives
the tests, so nothing of it waits for the disk.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

_PLACES = ("/usr/lib/postgresql/*/bin", "/usr/local/pgsql/bin", "/usr/local/bin")
_SETTINGS = {
    "listen_addresses": "''",
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_connections": "100",
    "shared_buffers": "32MB",
    "autovacuum": "off",
    "jit": "off",
}


def programs() -> Path | None:
    """The folder of a server's programs, the newest of several; None when there is none."""
    folders = [path.parent for place in _PLACES for path in Path("/").glob(f"{place[1:]}/initdb")]
    folders += [Path(path).parent for path in [shutil.which("initdb")] if path]
    complete = [
        path for path in folders if (path / "postgres").exists() and (path / "pg_ctl").exists()
    ]
    return max(complete, key=lambda path: path.as_posix(), default=None)


class Cluster:
    """A running server, in a folder."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self._programs = programs
        self._databases = 0

    @property
    def data(self) -> Path:
        """Where its files lie."""
        return self.folder / "data"

    def make(self) -> None:
        """Make it."""
        self._run("initdb", "-D", str(self.data), "-U", "thence", "-A", "trust", "-E", "UTF8")
        settings = "".join(f"{name} = {value}\n" for name, value in _SETTINGS.items())
        settings += f"unix_socket_directories = '{self.folder}'\n"
        with (self.data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.write(settings)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        log = str(self.folder / "log")
        self._run("pg_ctl", "-D", str(self.data), "-l", log, "-w", "-t", "120", "start")

    def stop(self, how: str = "fast") -> None:
        """Stop it; `immediate` is what a crash leaves."""
        self._run("pg_ctl", "-D", str(self.data), "-m", how, "-w", "-t", "120", "stop")

    def url(self, database: str = "postgres", user: str = "thence", **more: str) -> str:
        """The address of a database."""
        extra = "".join(f"&{name}={quote(value)}" for name, value in more.items())
        return f"postgresql://{user}@/{database}?host={quote(str(self.folder), safe='')}{extra}"

    def database(self) -> str:
        """Make a new, empty database; its name."""
        self._databases += 1
        name = f"d{self._databases}"
        self.sql(f"CREATE DATABASE {name}")
        return name

    def sql(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run a statement as the one who may do everything."""
        with psycopg.connect(self.url(database), autocommit=True) as db:
            cursor = db.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Let the server end when this process does, be it killed: somebody else waits for that."""
        ends = 'read _; "$0" -D "$1/data" -m immediate stop >/dev/null 2>&1; rm -rf "$1"'
        command = ("sh", "-c", ends, str(self._programs / "pg_ctl"), str(self.folder))
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, start_new_session=True, **_as_somebody()
        ):
            yield  # leaving closes the pipe, as a kill does, and waits for the other

    def _run(self, program: str, *args: str) -> None:
        command: Sequence[str] = (str(self._programs / program), *args)
        process = subprocess.run(
            command,
            **_as_somebody(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if process.returncode:
            output = (process.stdout or b"").decode(errors="replace")
            raise RuntimeError(f"{program} ended with {process.returncode}: {output[-2000:]}")


def _as_somebody() -> dict[str, Any]:
    """How to start a program that refuses to run as root."""
    user = _other_user() if os.getuid() == 0 else None
    return {
        "cwd": "/",
        "env": {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"},
        "user": user,
        "group": user and pwd.getpwuid(user).pw_gid,
        "extra_groups": [] if user else None,
    }


def _other_user() -> int:
    """Somebody who is not root."""
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
    return 65534


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A server, stopped and gone afterwards; the test is skipped where none can be had."""
    binaries = programs()
    if binaries is None:
        pytest.skip("no Postgres server here: apt-get install postgresql")
    memory = Path("/dev/shm")
    parent = memory if os.access(memory, os.W_OK) else None
    # A short path: sockets have names of 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="pg-", dir=parent, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if os.getuid() == 0:
            user = _other_user()
            os.chown(folder, user, -1)
        server = Cluster(folder, binaries)
        server.make()
        with server.watched():
            server.start()
            try:
                yield server
            finally:
                server.stop("immediate")
