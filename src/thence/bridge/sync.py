"""One person's machines share their sessions: what is new goes out, what others wrote comes in.

Conflict-free by construction. Sessions are sets of records that only grow; each machine writes
those whose logs it has, in parts of its own. Notes, names and tags are lines with ids, of which
the set is united; pins are decided by the latest time; a session that is deleted anywhere is
deleted everywhere and does not come back. So any order of any syncs ends in the same store.

Order of writes: a bundle, then what this home knows of it. A kill leaves at worst a bundle that is
written again under the same name, or one that is read again with the same outcome.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

import msgspec

from thence.bridge import sync_bundles as bundles
from thence.bridge.import_files import Arrival, Importer
from thence.bridge.record_json import Parcel, frame_of, parcel_in, parcel_of
from thence.bridge.sync_bundles import Bundle, SessionPart, SyncedNote, SyncedPin
from thence.bridge.sync_keys import Key, closed_name, new_secret, phrase_of, ring_name
from thence.bridge.sync_places import SyncPlace
from thence.bridge.sync_state import PartAt, Sent, Setup, SyncFiles, SyncState
from thence.errors import BadConfig, Conflict
from thence.format.copies import merge_places
from thence.format.records import Event
from thence.memory.exclusion import Exclusion
from thence.memory.notes import Kind, note_lines, note_path
from thence.memory.store import SYNCED, Filter, SessionRow, Store, uid_hash

if TYPE_CHECKING:
    from thence.format.facts import Fact
    from thence.memory.gate import Gate
    from thence.memory.rulebook import Rulebook

MAX_PARTS: Final = 16
"""Parts of a session after which all of it is written once more, in few."""
TOGETHER: Final = 16
"""Bundles that are read before what they say is stored and noted."""
_OPEN: Final = 4
"""Bundles that are in memory at a time."""


class KeyRotated(Conflict):
    """Another machine changed the key."""


class Synced(msgspec.Struct):
    """What a sync did. The names are those of `thence sync --json`."""

    dry_run: bool = False
    sent_sessions: int = 0
    sent_records: int = 0
    sent_bundles: int = 0
    sent_bytes: int = 0
    excluded: int = 0
    """Sessions of excluded projects: they stay here."""
    received_bundles: int = 0
    received: list[Arrival] = []
    notes: int = 0
    pins: int = 0
    forgotten: int = 0
    erased_bundles: int = 0
    """Rewritten in the shared place without sessions that were deleted for good."""
    waiting: int = 0
    """Bundles that have not arrived whole, or that no key of this machine opens."""
    refused: int = 0
    """Bundles that were written with an old key after it was changed."""
    damaged: dict[str, str] = {}
    """Why a bundle is left out, by its name; the others are read."""


class Standing(msgspec.Struct):
    """How a sync stands. The names are those of `thence sync status --json`."""

    target: str
    machine: str
    bundles: int
    unread: int
    unsent: int
    machines: list[str]
    last_sync: str
    key_rotated: bool


# -- setting up -------------------------------------------------------------------------------


def set_up(
    sync_files: SyncFiles, target: str, label: str, open_place: Callable[[str], SyncPlace]
) -> str:
    """Make a key and the first file of a new sync; returns the phrase."""
    secret = new_secret()
    key = Key(secret)
    place = open_place(target)
    place.write(ring_name(secret), bundles.sealed_ring(bundles.Ring(), key))
    sync_files.save_setup(Setup(target, _new_machine(), label, [secret]))
    return phrase_of(secret)


def join(
    sync_files: SyncFiles,
    target: str,
    label: str,
    secret: bytes,
    open_place: Callable[[str], SyncPlace],
) -> None:
    """Take a key for the sync at a place; one that was there before keeps its earlier keys."""
    key = Key(secret)
    body = open_place(target).read(ring_name(secret))
    ring = bundles.opened_ring(body, key) if body is not None else None
    if ring is None:
        raise BadConfig(
            f"this phrase opens nothing at {target}",
            hint="check the address and the phrase; has the folder arrived on this machine yet?",
        )
    before = sync_files.setup_if_any()
    if before is not None and before.target != target:
        raise BadConfig(
            f"this machine syncs with {before.target}",
            hint="thence sync leave first; what was received stays",
        )
    machine = before.machine if before is not None else _new_machine()
    older = [*ring.secrets, *(before.secrets if before is not None else ())]
    keys = [older_key for older_key in dict.fromkeys(older) if older_key != secret]
    state = sync_files.state()
    if before is not None and not _own_bundles(state, machine) <= set(ring.names):
        # What this machine wrote with an older key came too late: it is written once more.
        state.sent, state.notes, state.forgotten, state.pins = {}, set(), set(), {}
        state.folders_sent = []
    sync_files.save_setup(Setup(target, machine, label, [*keys, secret], accepted=ring.names))
    state.read -= set(ring.names)  # an older key may open them now
    sync_files.save_state(state)


def rotate(sync_files: SyncFiles, open_place: Callable[[str], SyncPlace]) -> str:
    """Change the key; returns the new phrase. Goes on where a kill has left it."""
    setup = sync_files.setup()
    secret = setup.pending or new_secret()
    # Noted before anything is written at the place: after a kill the same key is taken.
    setup.pending = secret
    sync_files.save_setup(setup)
    place, key, old = open_place(setup.target), Key(secret), setup.secrets[-1]
    names = place.names()
    if closed_name(old) in names and ring_name(secret) not in names:
        raise _rotated(setup)
    body = place.read(ring_name(secret))
    ring = bundles.opened_ring(body, key) if body is not None else None
    if ring is None:
        ring = bundles.Ring(list(setup.secrets), sorted(names))
        place.write(ring_name(secret), bundles.sealed_ring(ring, key))
    # Closed when the new ring is there: a kill between the two leaves a key that works.
    place.write(closed_name(old), Key(old).encrypted(b"closed"))
    setup.secrets, setup.pending, setup.accepted = [*setup.secrets, secret], None, ring.names
    sync_files.save_setup(setup)
    return phrase_of(secret)


def _new_machine() -> str:
    return new_secret().hex()


def _own_bundles(state: SyncState, machine: str) -> set[str]:
    return {
        stored_part.bundle
        for parts in state.parts.values()
        for stored_part in parts
        if stored_part.part.machine == machine
    }


def _rotated(setup: Setup) -> KeyRotated:
    return KeyRotated(
        "another machine changed the key of this sync",
        hint=f"thence sync join {setup.target} and type the new phrase",
    )


# -- one sync ---------------------------------------------------------------------------------


class Sync:
    """One sync of a home, whose store should be held (`store.sweeping()`) meanwhile."""

    def __init__(
        self,
        sync_files: SyncFiles,
        place: SyncPlace,
        store: Store,
        gate: Gate,
        rules: Rulebook,
        *,
        home: Path,
        exclude: Sequence[str] = (),
        forget: Callable[[SessionRow], object],
        folders: Iterable[bundles.FolderSeen] = (),
        is_dry: bool = False,
        checkpoint: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Get ready. `forget` deletes a session for good; `checkpoint` is told of every step."""
        self._sync_files, self._place, self._store = sync_files, place, store
        self._gate, self._rules = gate, rules
        self._home, self._exclude, self._is_dry = home, tuple(exclude), is_dry
        self._excluded = Exclusion(exclude)
        self._forget = forget
        self._folders = list(folders)
        self._checkpoint = checkpoint
        self._setup = sync_files.setup()
        self._state = sync_files.state()
        self._keys = [Key(secret) for secret in self._setup.secrets]
        self._open: OrderedDict[str, Bundle] = OrderedDict()
        self._notes: list[SyncedNote] = []
        """Lines of other machines that are not here yet."""
        self.report = Synced(dry_run=is_dry)

    def run(self) -> Synced:
        """Read what others wrote, then write what is new here."""
        self._check_key()
        # In before out: what others have deleted is not sent once more.
        self.pull()
        self.push()
        if not self._is_dry:
            self._erase()
            self._state.last_sync = datetime.now(UTC).isoformat(timespec="seconds")
            self._save()
        return self.report

    def standing(self) -> Standing:
        """Return how the sync stands, changing nothing."""
        names = self._place.names()
        state, setup = self._state, self._setup
        unread = self._unread(names)
        unsent = [row for row in self._own_rows() if not self._is_sent(row)]
        labels = {row.machine for row in self._store.sessions() if row.machine is not None}
        return Standing(
            setup.target,
            setup.label,
            len(names),
            len(unread),
            len(unsent),
            sorted(labels),
            state.last_sync,
            closed_name(setup.secrets[-1]) in names,
        )

    def _check_key(self) -> None:
        """Refuse to write with a key that was changed: a lost machine has it."""
        if closed_name(self._setup.secrets[-1]) in self._place.names():
            if self._setup.pending is not None:
                raise KeyRotated(
                    "the key was being changed when thence ended",
                    hint="thence sync rotate ends it and prints the phrase",
                )
            raise _rotated(self._setup)

    def _save(self) -> None:
        if not self._is_dry:
            self._sync_files.save_state(self._state)
            self._checkpoint("state")

    # -- in ---------------------------------------------------------------------------------

    def pull(self) -> None:
        """Read the bundles that are new, and store what they say."""
        new = sorted(self._unread(self._place.names()))
        for at in range(0, len(new), TOGETHER):
            touched: dict[str, str] = {}
            for name in new[at : at + TOGETHER]:
                bundle = self._bundle(name)
                if bundle is not None:
                    self.report.received_bundles += 1
                    self._note_parts(name, bundle, touched)
                    self._take_others(bundle)
                    self._state.read.add(name)
                    self._checkpoint("read")
            # Deletions first: what was deleted on one machine must not come back from another.
            self._bury()
            self._bring_in(touched)
            self._take_pins()
            self._save()

    def _unread(self, names: Collection[str]) -> set[str]:
        setup = self._setup
        # Key rings and marks of closed keys lie among the bundles.
        control = {name(key) for key in setup.secrets for name in (ring_name, closed_name)}
        return set(names) - self._state.read - control

    def _bundle(self, name: str) -> Bundle | None:
        """Return what a bundle says, by whatever key opens it; None if it cannot be read yet."""
        if name in self._open:
            self._open.move_to_end(name)
            return self._open[name]
        body = self._place.read(name) if name not in self.report.damaged else None
        if body is None:
            return None
        *older, newest = self._keys
        # A lost machine still has the old key: only what was there when it was changed is opened.
        keys = self._keys if name in self._setup.accepted else [newest]
        try:
            # The newest key first: nearly all bundles were written with it.
            made = (bundles.opened(name, body, key) for key in reversed(keys))
            bundle = next((opened for opened in made if opened is not None), None)
        except bundles.BundleDamaged as error:
            self.report.damaged[name] = f"{error.message}; {error.hint}"
            return None
        if bundle is not None:
            self._open[name] = bundle
            while len(self._open) > _OPEN:
                self._open.popitem(last=False)
        elif len(keys) == 1 and any(key.opens(body) for key in older):
            self.report.refused += 1
        else:
            self.report.waiting += 1
        return bundle

    def _note_parts(self, name: str, bundle: Bundle, touched: dict[str, str]) -> None:
        for part in bundle.sessions:
            session = _hash(part.uid)
            known = self._state.parts.setdefault(session, [])
            known[:] = [other for other in known if other.part != part.part]
            known.append(PartAt(part.part, name))
            if part.part.machine != self._setup.machine:
                touched[part.uid] = session

    def _take_others(self, bundle: Bundle) -> None:
        self._state.forgotten |= set(bundle.forgotten)
        for session, pin in bundle.pins.items():
            waiting = self._state.pins_waiting
            waiting[session] = max(pin, waiting.get(session, pin))
        known = self._state.folders
        known += [sighting for sighting in bundle.folders if sighting not in known]
        self._notes += [note for note in bundle.notes if note.uuid not in self._state.notes]
        self._state.notes |= {note.uuid for note in bundle.notes}

    def _bury(self) -> None:
        """Delete what was deleted on another machine."""
        known = self._store.known().forgotten
        new = {bytes.fromhex(digest) for digest in self._state.forgotten} - known
        if not new:
            return
        rows = [row for row in self._store.sessions() if uid_hash(row.session.session_uid) in new]
        self.report.forgotten += len(rows)
        if self._is_dry:
            return
        for row in rows:
            self._forget(row)
        self._store.remove((), why={}, buried=new)
        self._checkpoint("buried")

    def _bring_in(self, touched: dict[str, str]) -> None:
        known = self._store, self._gate, self._rules
        importer = Importer(*known, exclude=self._exclude, is_dry=self._is_dry)
        for uid, session in touched.items():
            made = self._put_together(session)
            if made is not None and made[0].uid == uid:
                arrival = importer.bring_in(made[0], SYNCED, name=made[1], by="thence")
                self.report.received.append(arrival)
                self._checkpoint("session")
        self._add_notes()

    def _put_together(self, session: str) -> tuple[Parcel, str] | None:
        """Return a session as all machines have it, and the name of the machine with most of it.

        Each machine counts with the last edition of which the beginning has arrived.
        """
        copies: list[tuple[list[Fact], str, SessionPart]] = []
        by_machine: dict[str, list[PartAt]] = {}
        for copy in self._state.parts.get(session, ()):
            by_machine.setdefault(copy.part.machine, []).append(copy)
        for machine, parts in by_machine.items():
            made = self._edition(session, parts)
            if made is not None:
                copies.append((made[0], machine, made[1]))
        if not copies:
            return None
        copies.sort(key=lambda copy: (-len(copy[0]), copy[1]))
        facts, _, last = copies[0]
        if len(copies) > 1:
            facts = merge_places([copy[0] for copy in copies])
        parcel = parcel_in(last.head, facts)
        # What one machine has from a file is from a file, whoever has more of it.
        heads = (parcel_in(copy[2].head, []) for copy in copies)
        parcel.imported = next((head.imported for head in heads if head.imported), None)
        return parcel, last.label

    def _edition(
        self, session: str, parts: Sequence[PartAt]
    ) -> tuple[list[Fact], SessionPart] | None:
        """Return the records of the last edition that can be read, and its last part."""
        for edition in sorted({stored_part.part.edition for stored_part in parts}, reverse=True):
            facts: list[Fact] = []
            last: SessionPart | None = None
            own = [stored_part for stored_part in parts if stored_part.part.edition == edition]
            for stored_part in sorted(
                own, key=lambda stored_part: (stored_part.part.start, -stored_part.part.end)
            ):
                if stored_part.part.start > len(facts):
                    break
                part = self._part(session, stored_part)
                if part is not None and stored_part.part.end > len(facts):
                    facts += part.facts()[len(facts) - stored_part.part.start :]
                    last = part
            if last is not None:
                return facts, last
        return None

    def _part(self, session: str, at: PartAt) -> SessionPart | None:
        bundle = self._bundle(at.bundle)
        for part in bundle.sessions if bundle is not None else ():
            if part.part == at.part and _hash(part.uid) == session:
                return part
        return None

    def _add_notes(self) -> None:
        """Append the lines of other machines that are not here yet."""
        from thence.journal.notebook import append_event

        forgotten = self._store.known()
        here = {event.uuid for _, event in note_lines(self._home)}
        for note in self._notes:
            uid = note.payload.get("session_uid")
            is_gone = isinstance(uid, str) and forgotten.is_forgotten(uid)
            if note.uuid in here or note.kind not in get_args(Kind) or is_gone:
                continue
            here.add(note.uuid)
            self.report.notes += 1
            if not self._is_dry:
                kind: Kind = note.kind  # type: ignore[assignment]
                payload = self._gate.value(note.payload)
                event = Event(note.kind, note.ts, note.uuid, None, payload)
                append_event(note_path(self._home, kind), event)
                self._checkpoint("note")
        self._notes = []

    def _take_pins(self) -> None:
        """Pin and unpin what others did later than this machine."""
        from thence.memory.labels import set_pinned

        self._stamp_pins()
        state = self._state
        rows = {_hash(row.session.session_uid): row for row in self._store.sessions()}
        for session, pin in list(state.pins_waiting.items()):
            if pin <= state.pins.get(session, SyncedPin("", "", is_pinned=False)):
                del state.pins_waiting[session]
            elif session in rows:  # else its session has not come yet
                row = rows[session]
                self.report.pins += row.pinned is not pin.is_pinned
                if not self._is_dry:
                    set_pinned(self._store, [row], is_pinned=pin.is_pinned)
                state.pins[session] = pin
                state.pins_unsent.discard(session)
                del state.pins_waiting[session]

    def _stamp_pins(self) -> None:
        """Note the time of pins that were set or taken here since."""
        now, state = datetime.now(UTC).isoformat(), self._state
        for row in self._store.sessions():
            session = _hash(row.session.session_uid)
            known = state.pins.get(session)
            if row.pinned is not (known is not None and known.is_pinned):
                state.pins[session] = SyncedPin(now, self._setup.machine, row.pinned)
                state.pins_unsent.add(session)

    # -- out --------------------------------------------------------------------------------

    def push(self) -> None:
        """Write bundles of what is new here."""
        waiting: list[bytes] = []
        size = 0
        marks: dict[str, Sent] = {}
        for row in self._own_rows():
            if self._is_sent(row):
                continue
            for lines, session, mark in self._session_lines(row):
                if size and size + len(lines) > bundles.BUNDLE_BYTES:
                    self._write(waiting, marks)
                    waiting, size, marks = [], 0, {}
                if lines:
                    waiting.append(lines)
                size += len(lines)
                marks[session] = mark
        others = self._other_news()
        waiting += bundles.other_lines(others)
        self._write(waiting, marks, others)

    def _own_rows(self) -> Iterator[SessionRow]:
        """Yield the sessions that this machine writes, the oldest first."""
        self.report.excluded = 0
        for row in self._store.sessions(Filter(order="oldest", evicted=False)):
            if row.machine is not None:
                continue
            if self._excluded.means(row.session.cwd):
                self.report.excluded += 1
            else:
                yield row

    def _is_sent(self, row: SessionRow) -> bool:
        mark = self._state.sent.get(_hash(row.session.session_uid))
        origin = row.session.discovered_at or ""
        return mark is not None and (mark.change, mark.origin) == (row.change, origin)

    def _session_lines(self, row: SessionRow) -> Iterator[tuple[bytes, str, Sent]]:
        """Yield what is new of a session in pieces, each with how far it goes."""
        from thence.memory.recall import stored_generation

        uid = row.session.session_uid
        session = _hash(uid)
        generation = stored_generation(self._store, uid)
        if generation is None:
            return
        parcel = parcel_of(generation)
        parcel.imported = row.imported or row.file
        mark = self._state.sent.get(session)
        start, edition, parts = self._start(session, parcel, mark)
        origin = row.session.discovered_at or ""
        check = blake2b(digest_size=16)
        _add_records(check, parcel.facts[:start])
        self.report.sent_sessions += 1
        if start == len(parcel.facts):
            self.report.sent_sessions -= 1
            yield b"", session, Sent(row.change, origin, edition, start, check.digest(), parts)
            return
        machine, label = self._setup.machine, self._setup.label
        end = start
        for lines in bundles.session_lines(parcel, label, machine, edition, start):
            added = lines.count(b"\n") - 1
            _add_records(check, parcel.facts[end : end + added])
            end, parts = end + added, parts + 1
            self.report.sent_records += added
            change = row.change if end == len(parcel.facts) else -1
            yield lines, session, Sent(change, origin, edition, end, check.digest(), parts)

    def _start(self, session: str, parcel: Parcel, mark: Sent | None) -> tuple[int, int, int]:
        """Return from which record a session is written, in which edition, after how many parts."""
        if mark is not None and mark.parts < MAX_PARTS and mark.records <= len(parcel.facts):
            check = blake2b(digest_size=16)
            _add_records(check, parcel.facts[: mark.records])
            if check.digest() == mark.check:
                return mark.records, mark.edition, mark.parts
        known = [
            stored_part.part.edition
            for stored_part in self._state.parts.get(session, ())
            if stored_part.part.machine == self._setup.machine
        ]
        return 0, max([*known, mark.edition if mark is not None else 0], default=0) + 1, 0

    def _other_news(self) -> Bundle:
        """Return notes, pins, folders and deletions of this home that are in no bundle yet."""
        out = Bundle()
        known = self._store.known()
        for kind, event in note_lines(self._home):
            payload = event.payload
            if event.uuid is None or event.uuid in self._state.notes:
                continue
            if not isinstance(payload, dict) or payload.get("origin") == "thence":
                continue
            cwd, uid = payload.get("cwd"), payload.get("session_uid")
            if isinstance(cwd, str) and self._excluded.means(cwd):
                continue
            if isinstance(uid, str) and known.is_forgotten(uid):
                continue
            clean = {"machine": self._setup.label, **self._gate.value(payload)}
            out.notes.append(SyncedNote(kind, event.ts or "", event.uuid, clean))
        self._stamp_pins()
        out.pins = {session: self._state.pins[session] for session in self._state.pins_unsent}
        out.forgotten = sorted({digest.hex() for digest in known.forgotten} - self._state.forgotten)
        sent = self._state.folders_sent
        out.folders = [
            sighting
            for sighting in self._folders
            if sighting not in sent and not self._excluded.means(sighting.path)
        ]
        return out

    def _write(
        self, lines: list[bytes], marks: dict[str, Sent], others: Bundle | None = None
    ) -> None:
        """Write a bundle, then note it."""
        if lines:
            name, body = bundles.sealed(lines, self._setup.machine, self._keys[-1])
            self.report.sent_bundles += 1
            self.report.sent_bytes += len(body)
            if not self._is_dry:
                own = bundles.opened(name, body, self._keys[-1])  # what others could not read stays
                self._place.write(name, body)
                self._checkpoint("bundle")
                self._note_parts(name, own or Bundle(), {})
                self._state.read.add(name)
        self._state.sent |= marks
        if others is not None:
            self._state.notes |= {note.uuid for note in others.notes}
            self._state.forgotten |= set(others.forgotten)
            self._state.folders_sent += others.folders
            self._state.pins_unsent = set()
        self._save()

    def _erase(self) -> None:
        """Rewrite bundles with sessions that were deleted for good, without these."""
        gone = self._state.forgotten & self._state.parts.keys()
        names = {note.bundle for session in gone for note in self._state.parts[session]}
        for name in sorted(names & self._place.names()):
            bundle = self._bundle(name)
            if bundle is None:
                continue
            bundle.sessions = [note for note in bundle.sessions if _hash(note.uid) not in gone]
            bundle.notes = [
                note
                for note in bundle.notes
                if _hash(f"{note.payload.get('session_uid')}") not in gone
            ]
            lines = [*map(bundles.part_lines, bundle.sessions), *bundles.other_lines(bundle)]
            if lines:
                made, body = bundles.sealed(lines, bundle.machine, self._keys[-1])
                self._place.write(made, body)
                self._checkpoint("rewritten")
                self._note_parts(made, bundle, {})
                self._state.read.add(made)
            self._place.remove([name])
            self._open.pop(name, None)
            self._checkpoint("erased")
            self.report.erased_bundles += 1
        for session in gone:
            self._state.parts.pop(session, None)
            self._state.sent.pop(session, None)
            self._state.pins.pop(session, None)
            self._state.pins_unsent.discard(session)


def _add_records(check: blake2b, facts: Iterable[Fact]) -> None:
    for fact in facts:
        check.update(msgspec.msgpack.encode(frame_of(fact), order="sorted"))


def _hash(uid: str) -> str:
    """Return how the state names a session, which is how the store names a deleted one."""
    return uid_hash(uid).hex()
