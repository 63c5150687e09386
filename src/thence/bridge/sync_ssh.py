"""A folder on another machine, by ssh: nothing but sshd has to run there.

The `ssh` of the system logs in with the user's own settings and keys, and starts the server's sftp
subsystem; this module speaks version 3 of its protocol, which every sshd has. One connection serves
a whole sync. A bundle is written under another name, synced where the server can, then renamed.
"""

from __future__ import annotations

import itertools
import re
import secrets
import shlex
import shutil
import stat
import struct
import subprocess
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final
from urllib.parse import unquote

from thence.bridge.sync_bundles import BUNDLE_NAME, MAX_BUNDLE_BYTES
from thence.errors import BadConfig, NotReadable

_ADDRESS: Final = re.compile(
    r"(?:ssh|sftp)://(?:(?P<user>[\w.+][\w.+-]*)@)?"
    r"(?P<host>[A-Za-z0-9][\w.-]*|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?/(?P<path>.+)"
)
CHUNK_BYTES: Final = 32 << 10
"""Bytes that every server takes and returns in one packet."""
MAX_IN_FLIGHT: Final = 32
"""Requests that are sent before their answers have come."""
MAX_PACKET_BYTES: Final = 1 << 20
CLOSE_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 120.0
"""How long a server has for what is asked at one time: a list, a file, a rename."""
MIN_BYTES_PER_S: Final = 4 << 10
"""How slow a connection may be: a large file has more time."""
MAX_NAMES: Final = 1_000_000
"""Names in a folder after which it is no shared place."""

# Types of packets, as version 3 of the protocol numbers them.
_INIT, _VERSION = 1, 2
_OPEN, _CLOSE, _READ, _WRITE, _OPENDIR, _READDIR, _REMOVE, _STAT, _RENAME = (
    *(3, 4, 5, 6),
    *(11, 12, 13, 17, 18),
)
_STATUS, _HANDLE, _DATA, _NAME = 101, 102, 103, 104
_EXTENDED = 200
_OK, _EOF, _NO_SUCH_FILE = 0, 1, 2
_READABLE, _WRITABLE, _CREATE, _EXCLUSIVE = 0x01, 0x02, 0x08, 0x20
_HAS_SIZE, _HAS_OWNER, _HAS_MODE = 0x1, 0x2, 0x4
_HAS_TIMES, _HAS_MORE = 0x8, 0x80000000

_HINTS: Final = (
    ("Host key verification failed", "connect once by hand and compare its key: {login}"),
    (
        "Permission denied",
        "ssh must log in without a question: ssh-add your key, or ssh-copy-id to that machine",
    ),
    ("subsystem request failed", "that server offers no sftp; choose another TARGET"),
)


def is_ssh_folder(target: str) -> bool:
    """Return whether an address means a folder by ssh; one that ends in .git is a git remote."""
    is_git = target.rstrip("/").endswith(".git")
    return target.startswith(("ssh://", "sftp://")) and not is_git


class _SftpFailure(Exception):
    """The server refuses a request."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message or f"status {code}")
        self.code = code


class SshPlace:
    """A folder on another machine."""

    def __init__(self, target: str) -> None:
        match = _ADDRESS.fullmatch(target)
        if match is None or "\0" in unquote(target):
            raise BadConfig(
                f"not an address of a folder: {target}",
                hint="ssh://HOST/absolute/folder, or ssh://HOST/~/folder below the home there",
            )
        program = shutil.which("ssh")
        if program is None:
            raise BadConfig("ssh is not installed", hint="install OpenSSH, or use a folder")
        path = unquote(match["path"])
        self._folder = path.removeprefix("~/") if path.startswith("~/") else f"/{path}"
        self._host = match["host"].strip("[]")
        login = [*(("-p", match["port"]) if match["port"] else ())]
        login += ["-l", match["user"]] if match["user"] else []
        self._login = [str(Path(program).absolute()), *login]
        self._connection: _Connection | None = None

    def names(self) -> set[str]:
        """Return the names of all bundles that are there now."""
        with self._refusals("list") as connection:
            return connection.list_bundles(self._folder)

    def read(self, name: str) -> bytes | None:
        """Return a bundle; None when it is gone."""
        path = self._path(name)
        try:
            with self._refusals("read") as connection:
                size = connection.size_of(path)
                return connection.read(path, size) if size <= MAX_BUNDLE_BYTES else None
        except NotReadable as error:
            if isinstance(error.__cause__, _SftpFailure) and error.__cause__.code == _NO_SUCH_FILE:
                return None
            raise

    def write(self, name: str, body: bytes) -> None:
        """Add a bundle, durable and visible to others on return; nothing if it is there."""
        path, passing = self._path(name), self._path(f".{name}.{secrets.token_hex(6)}")
        with self._refusals("write") as connection:
            if connection.has(path):
                return
            try:
                connection.write(passing, body)
                connection.rename(passing, path)
            except _SftpFailure:
                connection.remove(passing)
                if not connection.has(path):  # else another machine has written it meanwhile
                    raise

    def remove(self, names: Sequence[str]) -> None:
        """Remove bundles; those that are gone already do not matter."""
        for name in names:
            with self._refusals("remove") as connection:
                connection.remove(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._folder.rstrip('/')}/{name}"

    @contextmanager
    def _refusals(self, verb: str) -> Iterator[_Connection]:
        """Yield the connection, made when it is first needed; say what the server refuses.

        It ends when what is done with it takes too long.
        """
        try:
            if self._connection is None:
                made = _Connection(self._login, self._host)
                with made.limited():
                    self._check_folder(made)
                self._connection = made
            with self._connection.limited():
                yield self._connection
        except _SftpFailure as error:
            raise NotReadable(
                f"{self._host} does not let you {verb} in {self._folder}: {error}",
                hint="may you write there, and is there space?",
            ) from error
        except (struct.error, KeyError) as error:  # packets that are none
            raise _not_sftp(self._host) from error

    def _check_folder(self, connection: _Connection) -> None:
        connection.greet()
        if not connection.is_folder(self._folder):
            raise NotReadable(
                f"no such folder on {self._host}: {self._folder}",
                hint=f"create it there: {connection.by_hand} mkdir -p {shlex.quote(self._folder)}",
            )


class _Connection:
    """The sftp subsystem of a server, through a process of ssh that ends with this object."""

    def __init__(self, login: Sequence[str], host: str) -> None:
        self._host = host
        self.by_hand = " ".join(["ssh", *login[1:], host])
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - ends with the process
        # No question is asked: a sync may run where nobody could answer. A machine that is gone
        # is noticed by ssh itself, which then ends.
        settings = {
            "BatchMode": "yes",
            "ConnectTimeout": "20",
            "ServerAliveInterval": "15",
            "ServerAliveCountMax": "4",
            "ClearAllForwardings": "yes",
            "ForwardAgent": "no",
            "RemoteCommand": "none",
        }
        words = [f"-o{name}={value}" for name, value in settings.items()]
        self._process = subprocess.Popen(  # noqa: S603 - ssh of the system; no word is an option
            [*login, "-T", "-x", *words, "-s", "--", host, "sftp"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._to: IO[bytes] = self._process.stdin  # type: ignore[assignment] # it is a pipe
        self._from: IO[bytes] = self._process.stdout  # type: ignore[assignment] # so is this
        weakref.finalize(self, _end, self._process, self._errors)
        self._ids = itertools.count(1)
        self._limit_s: float | None = None
        """How long the server had, once that was too long."""
        self._moved = 0
        """Bytes of files that have come or were taken."""
        self._extensions: dict[bytes, bytes] = {}

    def greet(self) -> None:
        """Agree on the version of the protocol."""
        self._send(_INIT, struct.pack(">I", 3))
        kind, body = self._receive()
        if kind != _VERSION:
            raise _not_sftp(self._host)
        self._extensions = _pairs(body[4:])

    @contextmanager
    def limited(self) -> Iterator[None]:
        """End the connection if what is done meanwhile takes too long.

        A server has more time as bytes of a file come or are taken, not for those that it claims.
        """
        before, started = self._moved, time.monotonic()
        is_done = threading.Event()

        def limit_s() -> float:
            return ANSWER_TIMEOUT_S + (self._moved - before) / MIN_BYTES_PER_S

        def watch() -> None:
            while not is_done.wait(max(started + limit_s() - time.monotonic(), 0)):
                if time.monotonic() >= started + limit_s():
                    self._limit_s = limit_s()
                    self._process.kill()  # whoever waits for the server finds it closed
                    return

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_done.set()

    # -- what is asked ----------------------------------------------------------------------

    def list_bundles(self, folder: str) -> set[str]:
        """Return the names of the bundles in a folder."""
        handle = self._ask_handle(_OPENDIR, _string(folder))
        names: set[str] = set()
        number = 0
        while True:
            kind, body = self._ask(_READDIR, _string(handle))
            if kind != _NAME:
                break
            listed = _listed(body)
            names.update(filter(BUNDLE_NAME.fullmatch, listed))
            number += len(listed)
            if number > MAX_NAMES:
                raise NotReadable(
                    f"{self._host} lists more than {MAX_NAMES:,} names in {folder}",
                    hint="choose a folder of its own for the sync",
                )
        self._ask(_CLOSE, _string(handle))
        return names

    def is_folder(self, path: str) -> bool:
        """Return whether a path is a folder."""
        try:
            _, mode = self._attributes(path)
        except _SftpFailure as error:
            if error.code == _NO_SUCH_FILE:
                return False
            raise
        return mode is None or stat.S_ISDIR(mode)

    def has(self, path: str) -> bool:
        """Return whether there is something at a path."""
        try:
            self._attributes(path)
        except _SftpFailure:
            return False
        return True

    def size_of(self, path: str) -> int:
        """Return the size of a file."""
        return self._attributes(path)[0]

    def read(self, path: str, size: int) -> bytes:
        """Return the first bytes of a file; fewer where it has become shorter."""
        handle = self._ask_handle(_OPEN, _string(path) + struct.pack(">II", _READABLE, 0))
        out = bytearray()  # as long as what has come, whatever the server claims
        wanted = deque((at, min(CHUNK_BYTES, size - at)) for at in range(0, size, CHUNK_BYTES))
        asked: dict[int, tuple[int, int]] = {}
        end = size
        while wanted or asked:
            while wanted and len(asked) < MAX_IN_FLIGHT:
                at, length = wanted.popleft()
                number = self._request(_READ, _string(handle) + struct.pack(">QI", at, length))
                asked[number] = (at, length)
            number, kind, body = self._answer()
            at, length = asked.pop(number)
            data = _leading_string(body) if kind == _DATA else b""
            if not data:
                end = min(end, at)
                continue
            data = data[:length]
            out.extend(bytes(max(at + len(data) - len(out), 0)))
            out[at : at + len(data)] = data
            self._moved += len(data)
            if len(data) < length:
                wanted.append((at + len(data), length - len(data)))
        self._ask(_CLOSE, _string(handle))
        return bytes(out[:end])

    def write(self, path: str, body: bytes) -> None:
        """Write a new file that only its owner can read; durable where the server can."""
        attributes = struct.pack(">II", _HAS_MODE, 0o600)
        flags = struct.pack(">I", _WRITABLE | _CREATE | _EXCLUSIVE)
        handle = self._ask_handle(_OPEN, _string(path) + flags + attributes)
        in_flight = 0
        refusal: _SftpFailure | None = None
        for at in range(0, len(body), CHUNK_BYTES):
            piece = body[at : at + CHUNK_BYTES]
            self._request(_WRITE, _string(handle) + struct.pack(">Q", at) + _string(piece))
            in_flight += 1
            if in_flight == MAX_IN_FLIGHT:
                refusal = self._refusal() or refusal
                in_flight -= 1
                self._moved += CHUNK_BYTES
        for _ in range(in_flight):
            refusal = self._refusal() or refusal
        if b"fsync@openssh.com" in self._extensions and refusal is None:
            self._ask(_EXTENDED, _string("fsync@openssh.com") + _string(handle))
        self._ask(_CLOSE, _string(handle))
        if refusal is not None:
            raise refusal

    def rename(self, before: str, after: str) -> None:
        """Rename a file."""
        paths = _string(before) + _string(after)
        if b"posix-rename@openssh.com" in self._extensions:
            self._ask(_EXTENDED, _string("posix-rename@openssh.com") + paths)
        else:
            self._ask(_RENAME, paths)

    def remove(self, path: str) -> None:
        """Remove a file; nothing when it is gone."""
        try:
            self._ask(_REMOVE, _string(path))
        except _SftpFailure as error:
            if error.code != _NO_SUCH_FILE:
                raise

    def _attributes(self, path: str) -> tuple[int, int | None]:
        """Return size and mode of what is at a path."""
        _, body = self._ask(_STAT, _string(path))
        (flags,) = struct.unpack_from(">I", body)
        at, size, mode = 4, 0, None
        if flags & _HAS_SIZE:
            (size,) = struct.unpack_from(">Q", body, at)
            at += 8
        if flags & _HAS_OWNER:
            at += 8
        if flags & _HAS_MODE:
            (mode,) = struct.unpack_from(">I", body, at)
        return size, mode

    # -- packets ----------------------------------------------------------------------------

    def _ask(self, kind: int, body: bytes) -> tuple[int, bytes]:
        """Return the answer to a request; `_SftpFailure` for a refusal other than the end."""
        self._request(kind, body)
        _, answer, content = self._answer()
        if answer == _STATUS:
            failure = _failure(content)
            if failure is not None:
                raise failure
        return answer, content

    def _ask_handle(self, kind: int, body: bytes) -> bytes:
        answer, content = self._ask(kind, body)
        if answer != _HANDLE:
            raise _not_sftp(self._host)
        return _leading_string(content)

    def _refusal(self) -> _SftpFailure | None:
        """Return why the next request in flight was refused; None if it was not."""
        _, kind, body = self._answer()
        return _failure(body) if kind == _STATUS else None

    def _request(self, kind: int, body: bytes) -> int:
        number = next(self._ids)
        self._send(kind, struct.pack(">I", number) + body)
        return number

    def _answer(self) -> tuple[int, int, bytes]:
        kind, body = self._receive()
        if len(body) < 4:
            raise _not_sftp(self._host)
        (number,) = struct.unpack_from(">I", body)
        return number, kind, body[4:]

    def _send(self, kind: int, body: bytes) -> None:
        try:
            self._to.write(struct.pack(">IB", len(body) + 1, kind) + body)
            self._to.flush()
        except OSError as error:
            raise self._lost() from error

    def _receive(self) -> tuple[int, bytes]:
        (length,) = struct.unpack(">I", self._bytes(4))
        if not 0 < length <= MAX_PACKET_BYTES:
            raise _not_sftp(self._host)
        packet = self._bytes(length)
        return packet[0], packet[1:]

    def _bytes(self, number: int) -> bytes:
        out = self._from.read(number)
        if len(out) < number:
            raise self._lost()
        return out

    def _lost(self) -> NotReadable:
        """Return what ssh says of its end."""
        self._process.kill()
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        text = "\n".join(lines)
        if self._limit_s is not None:
            return NotReadable(
                f"{self._host} gave no end of an answer within {self._limit_s:.0f} seconds",
                hint="is it the server you mean? what was sent stays; try again later",
            )
        if not lines:
            return NotReadable(
                f"the connection to {self._host} was lost",
                hint="run thence sync again: it goes on where it stopped",
            )
        hint = next((hint for words, hint in _HINTS if words in text), "does {login} work here?")
        return NotReadable(f"{self._host}: {lines[-1][:300]}", hint=hint.format(login=self.by_hand))


def _not_sftp(host: str) -> NotReadable:
    return NotReadable(
        f"{host} does not answer as sftp does",
        hint="does a start file of the shell there print something?",
    )


def _end(process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
    """End a connection."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # what was not sent is not wanted any more
                continue
    try:
        process.wait(CLOSE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    errors.close()


def _string(value: str | bytes) -> bytes:
    body = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    return struct.pack(">I", len(body)) + body


def _leading_string(body: bytes) -> bytes:
    """Return the string that a packet begins with."""
    (length,) = struct.unpack_from(">I", body)
    return body[4 : 4 + length]


def _pairs(body: bytes) -> dict[bytes, bytes]:
    """Return the extensions that a server offers."""
    strings = []
    while body:
        strings.append(_leading_string(body))
        body = body[4 + len(strings[-1]) :]
    return dict(zip(strings[::2], strings[1::2], strict=False))


def _failure(body: bytes) -> _SftpFailure | None:
    """Return why a request was refused; None if it was not, or where the end is reached."""
    (code,) = struct.unpack_from(">I", body)
    if code in (_OK, _EOF):
        return None
    return _SftpFailure(code, _leading_string(body[4:]).decode("utf-8", "replace")[:300])


def _listed(body: bytes) -> list[str]:
    """Return the names of a packet of a folder."""
    (number,) = struct.unpack_from(">I", body)
    at, out = 4, []
    for _ in range(number):
        name = _leading_string(body[at:])
        at += 4 + len(name)
        at += 4 + len(_leading_string(body[at:]))  # the line that `ls -l` would print
        at += _attributes_size(body, at)
        out.append(name.decode("utf-8", "replace"))
    return out


def _attributes_size(body: bytes, start: int) -> int:
    """Return how many bytes the attributes at a place take."""
    (flags,) = struct.unpack_from(">I", body, start)
    at = start + 4
    for flag, size in ((_HAS_SIZE, 8), (_HAS_OWNER, 8), (_HAS_MODE, 4), (_HAS_TIMES, 8)):
        at += size if flags & flag else 0
    if flags & _HAS_MORE:
        (number,) = struct.unpack_from(">I", body, at)
        at += 4
        for _ in range(2 * number):
            at += 4 + len(_leading_string(body[at:]))
    return at - start
