"""Where an export lies, and its manifest: what a reader goes by.

    DIR/_manifest.json                                  schema, files with rows, bytes and hashes
    DIR/_state-HASH.json.zst                            what was exported of which session
    DIR/events/day=2026-01-31/HASH.parquet

Files are named by a hash of their bytes and never change. An export puts new ones beside the old,
swaps the manifest, then removes what the new one does not name: whoever reads by the manifest
sees one export or the other, whole. A kill leaves files that no manifest names; the next export
removes them. Nothing but these names is ever touched in a folder.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

import msgspec
import zstandard

from thence import system
from thence.analytics.tables import SCHEMA_VERSION, TABLES, Day
from thence.errors import BadConfig, NotAppendable
from thence.memory.packs import unpack_frame
from thence.memory.store import StoreLocked, SweepEntry
from thence.team.objects import BackendError, Bucket, ObjectAbsent, shelf_at

FORMAT: Final = "thence analytics"
MANIFEST: Final = "_manifest.json"
NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
"""What the readers of such folders call a day that is none."""

LOCK_WAIT_S: Final = 60.0
"""Seconds that whoever lets go waits for an export to end, which may bring back what went."""

_STAGING, _LOCK = "_staging", "_lock"
_DAY: Final = rf"(?:\d{{4}}-\d\d-\d\d|{NO_DAY})"
_DATA = re.compile(rf"(?:{'|'.join(TABLES)})/day={_DAY}/[0-9a-f]{{32}}\.parquet", re.ASCII)
_STATE = re.compile(r"_state-[0-9a-f]{32}\.json\.zst")
_STATE_BYTES: Final = 1 << 30


class ExportFile(msgspec.Struct, frozen=True):
    """One file of an export."""

    path: str
    day: Day
    rows: int
    bytes: int
    hash: str
    """BLAKE2b of its bytes, 16 of them."""


class ExportPart(msgspec.Struct, frozen=True):
    """One table of an export."""

    columns: dict[str, str]
    files: tuple[ExportFile, ...] = ()
    rows: int = 0
    bytes: int = 0


class Manifest(msgspec.Struct, frozen=True):
    """One export."""

    format: str
    schema: int
    made_at: str
    tables: dict[str, ExportPart]
    state: str

    def names(self) -> set[str]:
        """Return the names of all files of it."""
        return {file.path for part in self.tables.values() for file in part.files} | {self.state}


class ExportEntry(msgspec.Struct, frozen=True, array_like=True):
    """What was exported of a session: a hash of its row, and the days its rows stand under."""

    stamp: str
    """Empty where it must be read again, whatever its row says."""
    days: tuple[Day, ...]
    has_events: bool = False
    """Whether its events are among them."""


State = dict[str, ExportEntry]


def read_manifest(body: bytes | None) -> Manifest | None:
    """Read a manifest; None when there is none, or none that this program could go on from."""
    try:
        manifest = msgspec.json.decode(body or b"", type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # Not ours, or of another version: the export is made anew.
        return None
    if (
        manifest.format != FORMAT
        or manifest.schema != SCHEMA_VERSION
        or set(manifest.tables) != set(TABLES)
    ):
        return None
    # It may be anybody's: no name in it may lead out of the folder.
    good = all(_DATA.fullmatch(f.path) for part in manifest.tables.values() for f in part.files)
    return manifest if good and _STATE.fullmatch(manifest.state) else None


def pack_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of a manifest, for people as well."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1)


def part_of(columns: dict[str, str], files: Sequence[ExportFile]) -> ExportPart:
    """Return a table of some files."""
    rows, size = sum(file.rows for file in files), sum(file.bytes for file in files)
    return ExportPart(columns, tuple(files), rows, size)


def pack_state(state: State) -> tuple[str, bytes]:
    """Return the name and the bytes of a state."""
    encoded = msgspec.json.encode(dict(sorted(state.items())))
    body = zstandard.ZstdCompressor(level=3).compress(encoded)
    return f"_state-{hash_of(body)}.json.zst", body


def unpack_state(name: str, body: bytes | None) -> State | None:
    """Read a state; None when it is not what its name says."""
    if body is None or name != f"_state-{hash_of(body)}.json.zst":
        return None
    encoded = unpack_frame(body, _STATE_BYTES)
    return msgspec.json.decode(encoded, type=State)


def hash_of(body: bytes) -> str:
    """Hash bytes, as names of files do."""
    return blake2b(body, digest_size=16).hexdigest()


def hash_file(path: Path) -> str:
    """Hash a file."""
    digest = blake2b(digest_size=16)
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


class Target(Protocol):
    """Where an export goes. Errors are ThenceErrors."""

    address: str

    def lock(self) -> contextlib.AbstractContextManager[Path]:
        """Keep other exports out, and give an empty folder for what is under way."""

    def get(self, name: str) -> bytes | None:
        """Return a small file; None when there is none."""

    def local(self, name: str) -> Path | None:
        """Return a file of the export as one of this machine; None when there is none."""

    def put(self, path: Path, name: str) -> None:
        """Keep a file, durable on return; the one that was given is gone."""

    def swap(self, body: bytes) -> None:
        """Put another manifest in the place of the one that was got."""

    def names(self) -> set[str]:
        """Return the names of all files that an export may have left here."""

    def delete(self, names: Collection[str]) -> None:
        """Remove files; those that are gone do not matter."""


def target_at(address: str) -> Target:
    """Return the place that a folder or an address means."""
    parts = urlsplit(address)
    if "://" not in address:
        return FolderTarget(Path(address).expanduser())
    if parts.scheme == "file":
        return FolderTarget(Path(unquote(parts.path)))
    return RemoteTarget(shelf_at(address), address)


class FolderTarget:
    """An export in a folder of this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.address = str(self.path)

    @contextlib.contextmanager
    def lock(self, wait: float = 0.0) -> Iterator[Path]:
        """Keep other exports out, and give an empty folder for what is under way."""
        with _name_errors(self.address):
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = system.open_file(self.path / _LOCK, os.O_RDWR | os.O_CREAT)
        until = time.monotonic() + wait
        while not system.try_lock(handle):
            if time.monotonic() >= until:
                os.close(handle)
                raise StoreLocked(
                    f"another export into {self.address} is running", hint="wait for it to end"
                )
            time.sleep(0.05)
        staging = self.path / _STAGING
        try:
            with _name_errors(self.address):
                shutil.rmtree(staging, ignore_errors=True)
                staging.mkdir(mode=0o700)
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)
            os.close(handle)

    def get(self, name: str) -> bytes | None:
        """Return a small file; None when there is none."""
        path = self.local(name)
        with _name_errors(self.address):
            return None if path is None else path.read_bytes()

    def local(self, name: str) -> Path | None:
        """Return a file of the export; None when there is none, or a link."""
        path = self.path / name
        return path if path.is_file() and not path.is_symlink() else None

    def put(self, path: Path, name: str) -> None:
        """Keep a file, durable on return."""
        place = self.path / name
        with _name_errors(self.address):
            path.chmod(0o600)
            system.sync_file(path)
            for folder in (place.parent.parent, place.parent):
                folder.mkdir(exist_ok=True, mode=0o700)
            path.replace(place)
            for folder in {place.parent, place.parent.parent, self.path}:
                system.sync_folder(folder)

    def swap(self, body: bytes) -> None:
        """Put another manifest in the place of the one that was got."""
        passing = self.path / _STAGING / MANIFEST
        with _name_errors(self.address):
            handle = system.open_file(passing, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            with os.fdopen(handle, "wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            passing.replace(self.path / MANIFEST)
            system.sync_folder(self.path)

    def names(self) -> set[str]:
        """Return the names of all files that an export may have left here."""
        names = {path.name for path in self.path.glob("_state-*") if _STATE.fullmatch(path.name)}
        for table in TABLES:
            for path in self.path.glob(f"{table}/day=*/*.parquet"):
                name = path.relative_to(self.path).as_posix()
                if _DATA.fullmatch(name):
                    names.add(name)
        return names

    def delete(self, names: Collection[str]) -> None:
        """Remove files, and folders of days that are empty then."""
        with _name_errors(self.address):
            for name in names:
                path = self.path / name
                path.unlink(missing_ok=True)
                if path.parent != self.path:
                    with contextlib.suppress(OSError):  # others are in it
                        path.parent.rmdir()

    def let_go(self, known: Mapping[str, SweepEntry], wait: float = LOCK_WAIT_S) -> int:
        """Take out at once what a store has let go since; the days that went with it.

        Their files go whole. The next export reads again what else stood there.
        """
        if not self.path.is_dir():
            return 0
        with self.lock(wait):
            manifest, state = last(self)
            gone = {uid for uid, entry in state.items() if _is_gone(entry, known.get(uid))}
            days = {day for uid in gone for day in state[uid].days}
            if manifest is None or not gone:
                self.delete(self.names() - (manifest.names() if manifest else set()))
                return 0
            left = {
                uid: msgspec.structs.replace(
                    entry, stamp="", has_events=entry.has_events and uid not in gone
                )
                if not days.isdisjoint(entry.days)
                else entry
                for uid, entry in state.items()
                if uid in known
            }
            self._shorten(manifest, left, days)
        return len(days)

    def _shorten(self, manifest: Manifest, state: State, days: set[Day]) -> None:
        """Let an export go on without some days."""
        name, body = pack_state(state)
        passing = self.path / _STAGING / "state"
        passing.write_bytes(body)
        self.put(passing, name)
        tables = {
            table: part_of(part.columns, [file for file in part.files if file.day not in days])
            for table, part in manifest.tables.items()
        }
        short = msgspec.structs.replace(manifest, tables=tables, state=name)
        self.swap(pack_manifest(short))
        self.delete(self.names() - short.names())


class RemoteTarget:
    """An export in an object store. Only one export at a time: the manifest's tag tells others."""

    def __init__(self, bucket: Bucket, address: str) -> None:
        self._bucket = bucket
        self.address = address
        self._tag: str | None = None
        self._staging: Path | None = None

    @contextlib.contextmanager
    def lock(self) -> Iterator[Path]:
        """Return an empty folder for what is under way."""
        with tempfile.TemporaryDirectory(prefix="thence-export-") as folder:
            self._staging = Path(folder)
            yield self._staging

    def get(self, name: str) -> bytes | None:
        """Return a small file; None when there is none."""
        with _name_errors(self.address):
            try:
                body, tag = self._bucket.read_versioned(name)
            except ObjectAbsent:  # nothing was exported there yet
                return None
        if name == MANIFEST:
            self._tag = tag
        return body

    def local(self, name: str) -> Path | None:
        """Fetch a file of the export; None when there is none."""
        path = (self._staging or Path()) / f"old-{hash_of(name.encode())}"
        if not path.exists():
            with _name_errors(self.address):
                try:
                    self._bucket.fetch(name, path)
                except ObjectAbsent:  # removed by somebody, or replaced by a later export
                    return None
        return path

    def put(self, path: Path, name: str) -> None:
        """Send a file, large ones in parts."""
        with _name_errors(self.address):
            self._bucket.send(path, name)
            path.unlink()

    def swap(self, body: bytes) -> None:
        """Put another manifest in the place of the one that was got; not of any other."""
        with _name_errors(self.address):
            if not self._bucket.swap(MANIFEST, body, self._tag):
                raise StoreLocked(
                    f"another export into {self.address} finished first",
                    hint="it is complete; export again to add later changes",
                )

    def names(self) -> set[str]:
        """Return the names of all files that an export may have left here."""
        with _name_errors(self.address):
            sizes = self._bucket.sizes("")
        return {name for name in sizes if _DATA.fullmatch(name) or _STATE.fullmatch(name)}

    def delete(self, names: Collection[str]) -> None:
        """Remove objects."""
        if names:
            with _name_errors(self.address):
                self._bucket.delete(sorted(names))


def last(target: Target) -> tuple[Manifest | None, State]:
    """Return the last export and its state; nothing when one cannot be gone on from."""
    manifest = read_manifest(target.get(MANIFEST))
    if manifest is None:
        return None, {}
    state = unpack_state(manifest.state, target.get(manifest.state))
    return (manifest, state) if state is not None else (None, {})


def _is_gone(entry: ExportEntry, now: SweepEntry | None) -> bool:
    return now is None or (entry.has_events and now.evicted is not None)


def own_folder(path: Path) -> FolderTarget:
    """Return the folder of an export that is there to be read; an error when there is none."""
    folder = FolderTarget(path)
    if read_manifest(folder.get(MANIFEST)) is None:
        raise BadConfig(
            f"no export of schema {SCHEMA_VERSION} in {path}", hint=f"thence export parquet {path}"
        )
    return folder


@contextlib.contextmanager
def _name_errors(address: str) -> Iterator[None]:
    """Turn what a disk or an object store says into what the user can do."""
    try:
        yield
    except (OSError, BackendError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise NotAppendable(
            f"cannot export to {address}: {why}",
            hint="the previous export is intact; free some space or choose another place",
        ) from error
