"""Bundles: what one machine tells the others, as one file that only they can read.

A bundle is JSON lines, compressed, encrypted with age: a head, then records of sessions, notes,
pins, folders, and hashes of sessions that were deleted for good. Its name is a keyed hash of its
content, so that writing it twice writes it once, and a name vouches for what it names.

A session comes in parts. A part says which machine wrote it, which edition of the session it
belongs to, and from which record to which it goes. Parts are added, never changed: a log that was
written anew is a new edition.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec
import zstandard

from thence.bridge.record_json import Parcel, fact_in, frame_of, head_of, parcel_in
from thence.bridge.sync_keys import Key, content_name
from thence.errors import NotReadable
from thence.format.facts import check_values
from thence.format.records import JSON, parse_json
from thence.memory.packs import FrameDamaged, unpack_frame

if TYPE_CHECKING:
    from thence.format.facts import Fact

TYPE: Final = "thence-sync"
VERSION: Final = 1
MAX_CONTENT_BYTES: Final = 1 << 30  # what comes from a shared folder may be anybody's
"""A bundle that unpacks to more is refused."""
_DIGEST: Final = re.compile(r"[0-9a-f]{32}")
_WRITER: Final = "update thence on the machine that wrote it, or remove the file if it is lost"
BUNDLE_NAME: Final = re.compile(r"[0-9a-f]{32}")
MAX_BUNDLE_BYTES: Final = 1 << 30
"""Larger files are none of ours."""
BUNDLE_BYTES: Final = 4 << 20
"""Bytes of lines after which a bundle is complete."""


class BundleDamaged(NotReadable):
    """What one machine wrote cannot be read here; the message says of it what is wrong."""


class Part(msgspec.Struct, frozen=True):
    """Some records of a session, from `start` up to `end`, as one machine has them."""

    machine: str
    edition: int
    start: int
    end: int


class SessionPart(msgspec.Struct):
    """A part with its records."""

    part: Part
    label: str
    """What the machine calls itself."""
    head: JSON
    records: list[JSON]

    @property
    def uid(self) -> str:
        """The id of the session."""
        return str(self.head["uid"])

    def facts(self) -> list[Fact]:
        """Return its records; NotReadable when one of them is none."""
        return [fact_in(record) for record in self.records]

    def check(self) -> None:
        """Raise where it does not hold the records that it says it holds."""
        check_values(self.part)
        if not 0 <= self.part.start <= self.part.end or self.part.edition < 0:
            raise ValueError("a part of a session that begins after its end")
        if len(self.facts()) != self.part.end - self.part.start:
            raise ValueError(f"{len(self.records)} records of a part of another length")


class SyncedNote(msgspec.Struct, frozen=True):
    """A line of a notes file."""

    kind: str
    ts: str
    uuid: str
    payload: dict[str, JSON]


class SyncedPin(msgspec.Struct, frozen=True, order=True):
    """Whether a session is pinned; the latest counts, of equal times that of the last machine."""

    at: str
    machine: str
    is_pinned: bool


class FolderSeen(msgspec.Struct, frozen=True):
    """The repository that a machine found in a folder."""

    path: str
    top: str
    remote: str = ""
    root: str = ""


class Bundle(msgspec.Struct):
    """All that a bundle says."""

    machine: str = ""
    sessions: list[SessionPart] = []
    notes: list[SyncedNote] = []
    pins: dict[str, SyncedPin] = {}
    """By hashes of the ids of sessions."""
    folders: list[FolderSeen] = []
    forgotten: list[str] = []


def session_lines(
    parcel: Parcel, label: str, machine: str, edition: int, start: int
) -> Iterator[bytes]:
    """Yield parts of a session from a record on, each as lines of at most about a bundle."""
    lines: list[bytes] = []
    size, first = 0, start
    for at, fact in enumerate(parcel.facts[start:], start=start):
        lines.append(_line({"type": "record", "record": frame_of(fact)}))
        size += len(lines[-1])
        if size >= BUNDLE_BYTES or at + 1 == len(parcel.facts):
            part = Part(machine, edition, first, at + 1)
            yield _part_line(part, label, head_of(parcel)) + b"".join(lines)
            lines, size, first = [], 0, at + 1


def part_lines(part: SessionPart) -> bytes:
    """Return a part as it came."""
    records = (_line({"type": "record", "record": record}) for record in part.records)
    return _part_line(part.part, part.label, part.head) + b"".join(records)


def _part_line(part: Part, label: str, head: JSON) -> bytes:
    about = {"type": "session", "label": label, "part": msgspec.to_builtins(part)}
    return _line({**about, "head": head})


def other_lines(bundle: Bundle) -> Iterator[bytes]:
    """Yield a line for each thing in a bundle that is no session."""
    for note in bundle.notes:
        yield _line({"type": "note", "note": msgspec.to_builtins(note)})
    for session, pin in sorted(bundle.pins.items()):
        yield _line({"type": "pin", "session": session, "pin": msgspec.to_builtins(pin)})
    for folder in bundle.folders:
        yield _line({"type": "folder", "folder": msgspec.to_builtins(folder)})
    if bundle.forgotten:
        yield _line({"type": "forgotten", "hashes": sorted(bundle.forgotten)})


def _line(value: JSON) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def sealed(lines: Iterable[bytes], machine: str, key: Key) -> tuple[str, bytes]:
    """Return the name of a bundle and its bytes, encrypted."""
    content = _line({"type": TYPE, "version": VERSION, "machine": machine}) + b"".join(lines)
    packed = zstandard.ZstdCompressor(level=3).compress(content)
    return content_name(key.secret, content), key.encrypted(packed)


def opened(name: str, body: bytes, key: Key) -> Bundle | None:
    """Return what a bundle says; None if another key opens it, or it has not arrived whole.

    BundleDamaged where a machine that has the key wrote what is no bundle.
    """
    packed = key.decrypted(body)
    if packed is None:
        return None
    # What a key opens has arrived whole: whatever is wrong with it was written so.
    try:
        content = unpack_frame(packed, MAX_CONTENT_BYTES)
        if content_name(key.secret, content) != name:
            raise BundleDamaged("it holds something else than its name says", hint=_WRITER)
        return _bundle_in(content)
    except BundleDamaged:
        raise
    except FrameDamaged as error:
        raise BundleDamaged(f"it {error}", hint=_WRITER) from error
    except (KeyError, TypeError, ValueError, msgspec.MsgspecError, NotReadable) as error:
        raise BundleDamaged(f"it says what makes no sense: {error}", hint=_WRITER) from error
    except (RecursionError, MemoryError) as error:
        raise BundleDamaged("it is nested too deep or too large", hint=_WRITER) from error


def _bundle_in(content: bytes) -> Bundle:
    lines = io.BytesIO(content)  # a list of all of them may take many times as much
    head = parse_json(lines.readline())
    if not isinstance(head, dict) or head.get("type") != TYPE:
        raise BundleDamaged("it is not a bundle of thence sync", hint=_WRITER)
    if head.get("version") != VERSION:
        raise BundleDamaged(
            f"it has version {str(head.get('version'))[:20]}, this program reads {VERSION}",
            hint="update thence on this machine",
        )
    out = Bundle(str(head.get("machine", "")))
    for line in lines:
        value = parse_json(line)
        if isinstance(value, dict):
            _add(out, value)
    for session in out.sessions:
        session.check()
    return out


def _add(out: Bundle, value: dict[str, JSON]) -> None:
    """Add what a line says; one that no version so far knows is left out."""
    kind = value.get("type")
    if kind == "record" and out.sessions:
        out.sessions[-1].records.append(value["record"])
    elif kind == "session":
        parcel_in(value["head"], [])  # refuses what is no session
        part = msgspec.convert(value["part"], Part)
        label = str(value.get("label", ""))
        out.sessions.append(SessionPart(part, label, value["head"], []))
    elif kind == "note":
        out.notes.append(msgspec.convert(value["note"], SyncedNote))
    elif kind == "pin":
        out.pins[_digest(value["session"])] = msgspec.convert(value["pin"], SyncedPin)
    elif kind == "folder":
        out.folders.append(msgspec.convert(value["folder"], FolderSeen))
    elif kind == "forgotten":
        out.forgotten += map(_digest, value["hashes"])


def _digest(value: JSON) -> str:
    """Return the hash of the id of a session as others write it; ValueError where it is none."""
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ValueError(f"not the hash of a session: {str(value)[:40]!r}")
    return value


# -- key rings --------------------------------------------------------------------------------


class Ring(msgspec.Struct):
    """What a new key opens: the keys before it, and the bundles that were there when it was made.

    What is encrypted with an older key and is not among these is not read: a machine that was lost
    has the older key and may write with it.
    """

    secrets: list[bytes] = []
    names: list[str] = []


def sealed_ring(ring: Ring, key: Key) -> bytes:
    """Return a key ring, encrypted."""
    return key.encrypted(zstandard.ZstdCompressor().compress(msgspec.msgpack.encode(ring)))


def opened_ring(body: bytes, key: Key) -> Ring | None:
    """Return a key ring; None when the key does not open it."""
    packed = key.decrypted(body)
    if packed is None:
        return None
    try:
        return msgspec.msgpack.decode(unpack_frame(packed, MAX_CONTENT_BYTES), type=Ring)
    except (FrameDamaged, msgspec.DecodeError, UnicodeDecodeError):
        # Of another version: as if the key did not open it.
        return None
