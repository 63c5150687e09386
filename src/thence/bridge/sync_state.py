"""What a home knows of its sync: where it meets the others, its keys, and how far it came.

Two files below `sync/` in the home, which only its owner can read. `setup` has the keys; without
`state` everything is read and written once more, with the same outcome. Sessions stand in it by
hashes of their ids, so that a session that is deleted for good leaves no trace here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeVar

import msgspec

from thence import config
from thence.bridge.sync_bundles import FolderSeen, Part, SyncedPin
from thence.errors import BadConfig

FOLDER: Final = "sync"
_SETUP: Final = "setup.json"
_STATE: Final = "state.msgpack"
_Kind = TypeVar("_Kind")


class Setup(msgspec.Struct):
    """Where a home meets the others, and with which keys."""

    target: str
    machine: str
    label: str
    secrets: list[bytes]
    """The present key last; earlier ones open what was written with them."""
    pending: bytes | None = None
    """A key that is being changed to: a kill may have come between."""
    accepted: list[str] = []
    """Bundles that were there when the key was changed: only these are read with older keys."""


class Sent(msgspec.Struct, array_like=True):
    """How far a session of this machine was written."""

    change: int
    origin: str
    """When the store first had it: a store that was made anew counts changes from 1 again."""
    edition: int
    records: int
    check: bytes
    """A hash of these records: only if they are still the same, more can follow them."""
    parts: int


class PartAt(msgspec.Struct, frozen=True, array_like=True):
    """A part, and the bundle that holds it."""

    part: Part
    bundle: str


class SyncState(msgspec.Struct):
    """How far a home came with its sync. Sessions stand by hashes of their ids."""

    read: set[str] = set()
    """Bundles that were read and applied."""
    parts: dict[str, list[PartAt]] = {}
    sent: dict[str, Sent] = {}
    notes: set[str] = set()
    """Lines of notes that are in bundles."""
    forgotten: set[str] = set()
    """Hashes of deleted sessions that are in bundles."""
    pins: dict[str, SyncedPin] = {}
    pins_unsent: set[str] = set()
    pins_waiting: dict[str, SyncedPin] = {}
    """Of sessions that have not come yet."""
    folders: list[FolderSeen] = []
    """What other machines say of their folders."""
    folders_sent: list[FolderSeen] = []
    last_sync: str = ""


class SyncFiles:
    """The files of a home's sync."""

    def __init__(self, home: Path) -> None:
        self.folder = home / FOLDER

    def setup(self) -> Setup:
        """Return where the others are met; BadConfig before `thence sync init`."""
        made = self.setup_if_any()
        if made is None:
            raise BadConfig(
                "this machine does not sync yet",
                hint="thence sync init TARGET on the first machine, sync join TARGET on others",
            )
        return made

    def setup_if_any(self) -> Setup | None:
        """Return where the others are met; None before `thence sync init`."""
        return self._read(_SETUP, Setup, is_json=True)

    def save_setup(self, setup: Setup) -> None:
        """Write the setup, durable on return."""
        config.make_private(self.folder)
        with config.replacing(self.folder / _SETUP) as file:
            file.write(msgspec.json.encode(setup))

    def state(self) -> SyncState:
        """Return how far this home came; nothing where that is lost."""
        try:
            return self._read(_STATE, SyncState, is_json=False) or SyncState()
        except BadConfig:  # then all is sent once more; who has it ignores it
            return SyncState()

    def save_state(self, state: SyncState) -> None:
        """Write the state, durable on return."""
        with config.replacing(self.folder / _STATE) as file:
            file.write(msgspec.msgpack.encode(state))

    def leave(self) -> None:
        """Remove keys and state of this home."""
        import shutil

        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self, name: str, kind: type[_Kind], *, is_json: bool) -> _Kind | None:
        path = self.folder / name
        try:
            body = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            decode = msgspec.json.decode if is_json else msgspec.msgpack.decode
            return decode(body, type=kind)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise BadConfig(
                f"{path} is damaged: {error}",
                hint="thence sync leave, then thence sync join TARGET",
            ) from error
