"""The store: what is kept of all sessions, behind one small protocol.

Tier 1 is a bounded cache: thin rows of events, their words in an index, their bodies in packs.
Tier 2 is small and kept: digests, signals, what each session took, who owns which bill. Promises
that every backend keeps, told by `thence.testing.StoreSuite`: one `write` is one transaction, so
that rows and cursor move together and a kill leaves either; what is evicted or forgotten is gone
from rows, index and free pages when `remove` returns, or it says that the rest is pending; one
process sweeps at a time, and any number reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec
import zstandard

from thence.agents import Cursor
from thence.agents.packages import ForeignFailure, entry_points, foreign, is_ours, note_problem
from thence.errors import BadConfig, MissingPackage, ThenceError
from thence.format import fold
from thence.format.derived_events import Spent
from thence.format.facts import Edge, Fact
from thence.format.figures import money
from thence.format.fold import FoldState, Index
from thence.format.graph import State
from thence.format.layout import LOCAL_SESSIONS, LOCAL_SIDECHAINS
from thence.format.lineage import key_of
from thence.format.normal import Session
from thence.format.records import JSON, Usage
from thence.format.stored import StoredEvent
from thence.memory.decoders import late_decoder
from thence.memory.origins import Confirmations, describe_origin

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from thence.memory.packs import BlobStore
    from thence.memory.search import Query, SearchAnswer

GROUP = "thence.stores"
BLOBS_GROUP = "thence.blobs"
"""Entry points of what keeps payloads elsewhere: the object store of a team, above this layer."""

SYNCED = "sync"
"""The form of sessions that another machine of the same person has sent."""

PROJECT = "project"
"""The form of sessions whose log a project keeps with itself."""

FORGOTTEN = "(forgotten)"
"""What stands in the list of removals for the id of a session that was forgotten."""

DATA_LOSS = "session_memory.data_loss"
"""What the list of removals calls an eviction of what was not analysed."""

STATES: tuple[State, ...] = tuple(State)
"""FROZEN order: rows hold the place of a state in it, and of a kind in `KINDS`."""


class StoreLocked(BadConfig):
    """Somebody else is sweeping into this store, or holds it for longer than we wait."""

    exit_code = 11


class StoreDamaged(ThenceError):
    """The file of a store holds other bytes than were written to it, or cannot be read."""


class Spend(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a session took in one slot of time with one model, on one kind of branch."""

    day: str
    """A quarter of an hour of UTC, `2026-01-31T13:45`; of older stores a day."""
    model: str
    where: Literal["live", "dead", "side"]
    usage: Usage
    responses: int
    ticks: int
    """Money in units of 1e-10 dollars: sums agree in any order and any grouping."""
    unpriced: int = 0
    """Tokens whose price is not known."""


class ImportedFrom(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a session comes from that no log of this machine holds."""

    form: str
    """What kind of file it was: atif, share, jsonl, journal; sync: another machine sent it;
    project: a log that its project keeps with itself."""
    name: str = ""
    """The name of the file, without its folder; of the machine where it was synced."""
    by: str = ""
    """The program that wrote it, as it says itself."""
    content_hash: str = ""
    """Over all records of the session in that file: the same file changes nothing. Of a log that
    a project keeps over its folder: what is added there needs no other word."""
    first: ImportedFrom | None = None
    """Of a synced session: the file that the other machine imported it from."""


class SessionRow(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One session as the store lists it."""

    session: Session
    title: str | None = None
    is_named: bool = False
    """Its client or its user made the title: it is searched. Others are the first prompt."""
    turn: str | None = None
    """Where its last turn stands, as far as the log tells."""
    torn: bool = False
    gone: bool = False
    """The source was deleted: this is all there is."""
    automated: bool = False
    pull_request: str | None = None
    """The link to the pull request that its client noted for it."""
    files: tuple[str, ...] = ()
    edges: tuple[Edge, ...] = ()
    spent: Spent = Spent()
    ticks: dict[str, int] = {}
    """Money by where it went (live, dead, side), in units of 1e-10 dollars."""
    unpriced: int = 0
    """Tokens of models whose price is not known: the money is a lower bound."""
    lower_bound: tuple[str, ...] = ()
    """Why the total is a lower bound."""
    states: dict[str, int] = {}
    channels: dict[str, int] = {}
    """Events of each subagent within it, book-keeping left out."""
    agents: dict[str, tuple[str, str]] = {}
    """The call that started each of them, and its type, where the log tells either."""
    events: int = 0
    skipped: int = 0
    raw_bytes: int = 0
    """What it takes in tier 1: rows, index and packs."""
    text_bytes: int = 0
    """Text of it that is indexed."""
    pack_bytes: int = 0
    """What its payloads take in packs."""
    carried: tuple[Spend, ...] = ()
    """What was spent in a part that its source no longer holds, as an earlier digest tells."""
    carried_until: str | None = None
    """Up to when that goes: what the source says before this is counted there."""
    carried_change: int = 0
    """The first change that went on from there."""
    secrets: tuple[str, ...] = ()
    """The different secrets that were taken out of it, by kind and mark; see `placeholders`."""
    pinned: bool = False
    change: int = 0
    """Grows with every write of this session."""
    redactor: int = 0
    reader: int = 0
    fold: int = 0
    """Versions of the redaction rules, the readers and the fold that it was derived by."""
    tags: tuple[str, ...] = ()
    """What the user tagged it with; on rows for the eye only, stores do not keep it."""
    imported: ImportedFrom | None = None
    """Set for sessions that `thence import` or `thence sync` brought."""

    member: str | None = None
    """The machine that wrote it into a team's store, where that is another one; on rows that are
    read only, stores do not keep it."""
    project: str | None = None
    """The folder that it counts as, where that is not the one its log names: see `folders`."""

    @property
    def folder(self) -> str | None:
        """The folder that it counts as."""
        return self.project or self.session.cwd

    @property
    def machine(self) -> str | None:
        """The other machine that has its log; None for sessions of this one and of files."""
        origin = self.imported
        return origin.name if origin is not None and origin.form == SYNCED else None

    @property
    def file(self) -> ImportedFrom | None:
        """The file that brought it, to this machine or to the one that sent it; None for logs.

        A log that lies in a project is such a file: whoever copies a repository copies it too.
        """
        origin = self.imported
        if origin is None:
            folder, _, where = (self.session.source_path or "").rpartition("/")[0].rpartition("/")
            if self.session.flavor != "thence" or where not in (LOCAL_SESSIONS, LOCAL_SIDECHAINS):
                return None
            of_folder = blake2b(folder.encode("utf-8", "replace"), digest_size=16).hexdigest()
            return ImportedFrom(PROJECT, f"{folder.rpartition('/')[2]}/{where}", "", of_folder)
        return origin.first if origin.form == SYNCED else origin

    @property
    def confirmation(self) -> tuple[str, str] | None:
        """What a user confirms, so that hooks tell of it; None for a session that none brought.

        That is what a file says of one session, or for all sessions that it keeps a project.
        """
        file = self.file
        if file is None:
            return None
        whose = PROJECT if file.form == PROJECT else self.session.session_uid
        return whose, file.content_hash

    @property
    def origin(self) -> str:
        """Where it comes from, in words; empty for a session of this machine."""
        return self._describe_origin()

    def is_withheld(self, confirmed: Confirmations) -> bool:
        """Whether hooks leave it out: a file brought it, and the user has not confirmed that."""
        wanted = self.confirmation
        return wanted is not None and wanted not in confirmed

    def origin_and_state(self, confirmed: Confirmations) -> str:
        """Return the origin, and of what a file brought whether the user confirmed it."""
        if self.file is None:
            return self.origin
        return self._describe_origin(is_confirmed=not self.is_withheld(confirmed))

    def _describe_origin(self, *, is_confirmed: bool | None = None) -> str:
        file, machine = self.file, self.machine or self.member
        name = "" if file is None else file.name or file.form
        is_kept = file is not None and file.form == PROJECT
        return describe_origin(
            file=name, is_kept=is_kept, machine=machine or "", is_confirmed=is_confirmed
        )


class EventRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What of an event a store looks for; all else is in the pages of its session."""

    event_id: int
    ts: int
    """Milliseconds since 1970, 0 when the log does not say."""
    kind: int
    state: int
    tool: str | None
    tokens: int
    ref: str | None
    implied: int = 0
    """The kinds of events that are derived from it, as `normal.kind_bit`."""


class Words(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What of an event is searched: its text, and tokens to filter by."""

    event_id: int
    body: str
    meta: str


class SessionChange(msgspec.Struct):
    """All that one read changes about one session.

    One whose row has the number of the change that is stored already restates the row alone:
    that the source is gone, that it is pinned. All else stays, its analysis too.
    """

    row: SessionRow
    cursor: Cursor
    facts: bytes = b""
    """New ones, their payloads replaced by refs, as `pack_facts` gives them."""
    events: list[StoredEvent] = []
    """New ones in the order in which they were read; of a session that is `rebuilt`, all."""
    altered: list[StoredEvent] = []
    """Earlier events of which later records tell otherwise: another state, a bill that came."""
    vanished: list[int] = []
    """Earlier events that are none any more: a text's pieces, a result that was only told."""
    words: list[Words] = []
    """Of new events, and of those that are `retold`."""
    retold: frozenset[int] = frozenset()
    """Earlier events whose text goes on: their words take the place of those that are stored."""
    untidy: bool = False
    """Payloads were replaced of which the packs should not keep what they had before."""
    spend: list[Spend] = []
    """All of the session's, in place of what was there."""
    calls: list[int] = []
    """Keys of the calls that new records make, answer or tell of."""
    records: list[str] = []
    """Ids of new records of a session that grew, for the sessions that may hold copies of them."""
    fold: bytes = b""
    """The state by which the session can be continued, as `pack_fold` gives it; empty: none."""
    claims: list[int] = []
    """Keys of bills and of records that copies begin with; the first to claim one owns it."""
    replayed: frozenset[str] | None = None
    billed: frozenset[str] | None = None
    """What other sessions own of this one's records and bills, when that has been worked out."""
    ties: tuple[Edge, ...] = ()
    """Edges that were found together with it."""
    without_own: bool = False
    """Of a compared session: it shares all of its records, and is compared again when it grows."""
    settled: bool = False
    """It has been compared with its kin; with the number of the stored change nothing else."""
    owned: list[tuple[int, str]] = []
    """Keys and the sessions that own them from now on, whoever claimed them first."""
    renamed: dict[str, str] = {}
    """Refs that lead elsewhere now; where there are any, nothing else changes."""
    fresh: bool = False
    """Read from the start: what was kept of it in tier 1 is replaced."""
    rebuilt: bool = False
    """All events are given: the store compares them with those it has, which keep their numbers."""
    older: bool = False
    """The session is older than all that were stored when the sweep began: its rows are numbered
    below theirs, so that the numbers of rows rise with time whatever is read first."""
    room: int = 0
    """Rows of an older session that later changes of the same sweep add, estimated."""


class StoredSession(msgspec.Struct):
    """What tier 1 holds of a session."""

    row: SessionRow
    cursor: Cursor
    facts: list[Fact]
    replayed: frozenset[str] = frozenset()
    billed: frozenset[str] = frozenset()
    ties: tuple[Edge, ...] = ()
    foreign: frozenset[int] = frozenset()
    """Keys of its bills that evicted sessions own."""


Position = tuple[int, int]
"""The last part of a session's facts, and its size; parts that are joined later have another."""


class Tail(msgspec.Struct):
    """The end of a stored session: enough to continue it, whatever its length."""

    row: SessionRow
    cursor: Cursor
    state: FoldState | None
    """None when the session can only be rebuilt."""
    spend: tuple[Spend, ...]
    """What the sealed part of the session took."""
    replayed: frozenset[str]
    billed: frozenset[str]
    ties: tuple[Edge, ...]
    index: Index
    position: Position = (0, 0)
    """Where its facts end."""


class NothingStored:
    """The index of a session of which nothing is stored."""

    def has_event(self, event_id: int) -> bool:  # noqa: ARG002 - the protocol's
        """Return False."""
        return False

    def has_call(self, call: str) -> bool:  # noqa: ARG002 - the protocol's
        """Return False."""
        return False

    def has_bill(self, usage_key: str) -> bool:  # noqa: ARG002 - the protocol's
        """Return False."""
        return False


class SweepEntry(msgspec.Struct, frozen=True, gc=False):
    """What a sweep must know of a session before it opens a file."""

    cursor: Cursor
    change: int
    redactor: int
    reader: int
    path: str = ""
    """The file that stands for it, as it was found last."""
    gone: bool = False
    pinned: bool = False
    bytes: int = 0
    ended: int | None = None
    ingested: int | None = None
    analysed: int | None = None
    evicted: int | None = None
    """Times in milliseconds; None when that has not happened to it as it is."""
    fold: int = 0
    digest: int = 0
    """Versions of the fold and of the digest; see `derivation`."""


class Inventory(msgspec.Struct):
    """What a store holds, for whoever is about to sweep."""

    sessions: dict[str, SweepEntry]
    forgotten: frozenset[bytes]
    distilled_bytes: int = 0
    untidy: frozenset[str] = frozenset()
    """Sessions with payloads in their packs that were replaced: to be repacked."""
    unsettled: dict[str, set[str]] = {}
    """Sessions that were not compared with their kin since they changed, and these."""
    pending: bool = False
    """An eviction is not yet in every page: `remove` nothing more to have it tried again."""
    takes_older: bool = False
    """The store numbers rows of older sessions below the others (`Change.older`)."""

    def is_new(self, uid: str) -> bool:
        """Whether a session is neither stored nor forgotten."""
        return uid not in self.sessions and not self.is_forgotten(uid)

    def is_forgotten(self, uid: str) -> bool:
        """Whether a session must not come back: its uid was kept as a hash only."""
        return uid_hash(uid) in self.forgotten


class DigestRecord(msgspec.Struct):
    """A digest and what hangs on it, written together."""

    uid: str
    change: int
    """Of the session as it was read; an older one leaves it un-analysed."""
    digest: JSON
    signals: list[JSON]
    outcome: str = "unknown"
    task_ref: str | None = None
    title: str | None = None
    state: bytes | None = None
    """What the next digest of the session goes on from."""


class Filter(msgspec.Struct, frozen=True):
    """Which sessions; what is not given does not matter."""

    uid: str | None = None
    """An id or the unique beginning of one, with or without the agent before it."""
    uids: tuple[str, ...] | None = None
    """Whole uids, any of them."""
    agent: str | None = None
    project: str | None = None
    """Part of the path of its folder, in any case; so is the model of its name."""
    folder: str | None = None
    """A whole path: sessions in this folder and in those below it."""
    model: str | None = None
    outcome: str | None = None
    after: int | None = None
    before: int | None = None
    evicted: bool | None = None
    analysed: bool | None = None
    is_lower_bound: bool = False
    """Only sessions whose cost is a minimum, because usage is missing."""
    order: Literal["recent", "oldest", "cost", "tokens", "size"] = "recent"
    limit: int | None = None
    offset: int = 0


Tier2 = Literal["digests", "signals", "spend", "removals", "oddities"]
"""What is kept of sessions beside their records. Oddities are the lines that could not be read and
the secrets that were redacted, with whether there may be more, of sessions that have any."""

EventIds = tuple[int, int]
"""The first and the last of a range of event ids."""

Group = Literal["day", "slot", "model", "project", "agent", "session"]
"""What totals are added up by; days are those of UTC, a slot is a quarter of an hour."""


class Total(msgspec.Struct, frozen=True, gc=False):
    """What some sessions took together. `key` says which: a value for each thing grouped by."""

    key: tuple[str | None, ...]
    sessions: int = 0
    live: int = 0
    dead: int = 0
    side: int = 0
    """Money in units of 1e-10 dollars, by what became of it."""
    unpriced: int = 0
    """Tokens whose price is not known: the money is a lower bound."""
    input: int = 0
    output: int = 0
    cache: int = 0
    responses: int = 0
    is_lower_bound: bool = False
    """Usage of one of its sessions is missing or incomplete: the money is a minimum."""
    first_slot: str | None = None
    """The first quarter of an hour in which something was spent; of older stores a day."""
    ended: int | None = None
    """When the last of them ended, in milliseconds."""
    raw_bytes: int = 0
    """What they take in tier 1; told only where sessions are not cut into days and models."""

    @property
    def ticks(self) -> int:
        """All of the money."""
        return self.live + self.dead + self.side

    @property
    def is_minimum(self) -> bool:
        """Whether more was spent than this money: prices or usage are missing."""
        return self.is_lower_bound or self.unpriced > 0

    @property
    def cost_text(self) -> str:
        """The money as text: `$1.20`, `$1.20+` if it is a minimum, `?` if nothing is known."""
        return money(self.ticks, self.unpriced, is_bound=self.is_lower_bound)

    @property
    def cost_phrase(self) -> str:
        """The money within a sentence."""
        return self.cost_text.replace("?", "cost unknown")


class Store(Protocol):
    """Where everything is kept. All times are in UTC, all methods may be called from threads."""

    blobs: BlobStore

    def sweeping(self, wait: float = 0.0) -> AbstractContextManager[None]:
        """Hold the right to sweep; StoreLocked when somebody else has it."""

    def known(self, uids: Collection[str] | None = None) -> Inventory:
        """Return the cursors of all sessions, and which ones must not come back.

        With `uids`, return those sessions only, without the totals of the store; the cost then
        follows their number.
        """

    def write(
        self, changes: Sequence[SessionChange] = (), digests: Sequence[DigestRecord] = ()
    ) -> dict[str, set[str]]:
        """Write what reads found and what was learned: all of it or nothing.

        Digests are durable on return. The answer names, for each session that has claims in
        common with others, directly or through others, all of these.
        """

    def load_session(self, uid: str) -> StoredSession | None:
        """Return what tier 1 holds of a session; None when nothing is."""

    def events(
        self, uid: str, *, after: int = -1, limit: int | None = None, ids: EventIds | None = None
    ) -> Iterable[StoredEvent]:
        """Return the events of a session after a number, in the order of their numbers.

        With `ids` only those of them whose ids lie in a range. Nothing of a session that tier 1
        does not hold. Cost follows what is returned.
        """

    def tail(self, uid: str) -> Tail | None:
        """Return the end of a session, to continue it; None when tier 1 holds nothing of it."""

    def digest_state(self, uid: str) -> bytes | None:
        """Return what the next digest of a session goes on from; None when there is nothing."""
        ...

    def facts_after(
        self, uid: str, position: Position, lines: Mapping[str, tuple[int, int]]
    ) -> list[Fact]:
        """Return the facts of a session after a position, those up to `lines` left out.

        `lines` has generation and line by file, as the state of a fold does. Cost follows what
        is returned; a session that was written anew since cannot be asked this way.
        """

    def sessions(self, wanted: Filter = Filter()) -> Iterator[SessionRow]:  # noqa: B008
        """List sessions."""

    def read_table(self, what: Tier2, wanted: Filter = Filter()) -> Iterator[dict[str, JSON]]:  # noqa: B008
        """Return what tier 2 keeps of the sessions that are wanted, each with its `uid`."""

    def totals(self, by: Sequence[Group] = (), wanted: Filter = Filter()) -> list[Total]:  # noqa: B008
        """Add up what sessions took; of a time that is asked for, what was spent in its days."""

    def search(self, query: Query, limit: int = 20, offset: int = 0) -> SearchAnswer:
        """Find events by their words, the best first, within a budget of time."""

    def remove(
        self,
        uids: Collection[str],
        *,
        why: Mapping[str, str],
        forget: bool = False,
        lost: bool = False,
        buried: Collection[bytes] = (),
    ) -> list[str]:
        """Evict sessions from tier 1, or forget them altogether; the uids still pending.

        `lost` says that no digest covers them, which the list of removals calls a data loss.
        `buried` are hashes of sessions that another store has forgotten: they must not come back.
        """

    def close(self) -> None:
        """Let go of everything."""


OBJECTS = "#objects="
"""What may follow the address of a store: where its payloads lie, if not with the rest."""


def open_store(url: str, *, must_exist: bool = False) -> Store:
    """Open the store at an address: a path or sqlite:PATH, or what an entry point answers to.

    `ADDRESS#objects=URL` keeps payloads in an object store. With `must_exist` a store of ours that
    is not there is an error, and nothing is made.
    """
    url, _, objects = url.partition(OBJECTS)
    store = _open_backend(url, must_exist=must_exist)
    return with_objects(store, objects) if objects else store


def file_of(url: str) -> Path | None:
    """Return the file of the store at an address; None for a store that is no file."""
    scheme, rest = _scheme(url.partition(OBJECTS)[0])
    return Path(rest).expanduser().resolve() if scheme == "sqlite" else None


def with_objects(store: Store, url: str) -> Store:
    """Let the payloads of a store lie in an object store."""
    point = next(point for point in entry_points(BLOBS_GROUP) if is_ours(point))
    store.blobs = point.load()(url, tenant=getattr(store, "tenant", None))
    return store


def _scheme(url: str) -> tuple[str, str]:
    """Return what comes before the colon of an address, and what after it; a path is SQLite's."""
    scheme, colon, rest = url.partition(":")
    return (scheme, rest) if colon and "/" not in scheme else ("sqlite", url)


def _open_backend(url: str, *, must_exist: bool) -> Store:
    scheme, rest = _scheme(url)
    points = {point.name: point for point in sorted(entry_points(GROUP), key=is_ours)}
    if scheme not in points:
        raise BadConfig(
            f"no store type {scheme}:",
            hint=f"stores here: {', '.join(sorted(points)) or 'none'}; a path is an SQLite file",
        )
    point = points[scheme]
    where = rest if scheme == "sqlite" else url
    if not is_ours(point):
        return _foreign_store(point, where)
    try:
        made = point.load()
    except ImportError as error:
        raise MissingPackage(f"a store at {scheme}:", error.name, extra="postgres") from error
    store: Store = made(where, must_exist=must_exist)
    return store


def _foreign_store(point: EntryPoint, where: str) -> Store:
    """Open a store of another package; BadConfig names the package where it fails."""
    try:
        with foreign():
            store: Store = point.load()(where)
            lacks = [name for name in vars(Store) if name[0] != "_" and not hasattr(store, name)]
            if lacks or not hasattr(store, "blobs"):
                raise TypeError(f"it lacks {', '.join(lacks or ['blobs'])}")
            return store
    except ForeignFailure as error:
        if isinstance(error.__cause__, ThenceError):
            raise error.__cause__ from None
        note_problem(point, str(error))
        raise BadConfig(
            f"the store {point.name} ({point.value}) cannot be opened: {error}",
            hint="update or uninstall its package, or name another store",
        ) from error


_FACTS = late_decoder(list[Fact])


encode_facts = msgspec.msgpack.Encoder().encode
"""Returns facts as bytes."""


def compress_facts(encoded: bytes) -> bytes:
    """Return the bytes of facts small enough to lie in a row."""
    return zstandard.ZstdCompressor(level=1).compress(encoded)


def pack_facts(facts: list[Fact]) -> bytes:
    """Return facts as bytes, small enough to lie in a row."""
    return compress_facts(encode_facts(facts))


def unpack_facts(body: bytes) -> list[Fact]:
    """Return the facts of a row."""
    return _FACTS.decode(zstandard.ZstdDecompressor().decompress(body))


def facts_behind(
    parts: Iterable[Position],
    read: Callable[[int], bytes],
    position: Position,
    lines: Mapping[str, tuple[int, int]],
) -> list[Fact]:
    """Return what `facts_after` does; `parts` has the last first, `read` returns one."""
    new: list[list[Fact]] = []
    for part in parts:
        if part == position:
            break
        facts = unpack_facts(read(part[0]))
        later = [f for f in facts if _is_later(f, lines.get(f.file, (-1, -1)))]
        new.append(later)
        if len(later) < len(facts):
            break  # what was written before this is not later
    return [fact for part in reversed(new) for fact in part]


def _is_later(fact: Fact, last: tuple[int, int]) -> bool:
    """Return whether a fact comes after a line; a text of it may have gone on since."""
    now = fact.generation, fact.line
    return now > last or (now == last and fact.piece is not None)


_PACKED_FOLD = msgspec.msgpack.Decoder(list[msgspec.Raw])
_FOLD_VERSION = msgspec.msgpack.Decoder(int)
_FOLD_STATE = late_decoder(FoldState)
_FOLD_SPEND = late_decoder(tuple[Spend, ...])


def pack_fold(state: FoldState, spend: Sequence[Spend]) -> bytes:
    """Return the state of a fold and what its sealed part took, as bytes, with their version."""
    parts = (fold.VERSION, state, spend)
    return zstandard.ZstdCompressor(level=1).compress(msgspec.msgpack.encode(parts))


def unpack_fold(body: bytes) -> tuple[FoldState | None, tuple[Spend, ...]]:
    """Return what `pack_fold` was given; nothing of what another version of the fold wrote."""
    parts = _PACKED_FOLD.decode(zstandard.ZstdDecompressor().decompress(body))
    if len(parts) != 3 or _FOLD_VERSION.decode(parts[0]) != fold.VERSION:
        return None, ()
    return _FOLD_STATE.decode(parts[1]), _FOLD_SPEND.decode(parts[2])


def call_key(call: str) -> int:
    """Return the hash by which a store knows a call: 63 bits."""
    name = call.encode("utf-8", "backslashreplace")
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "big") >> 1


def claims(facts: Iterable[Fact]) -> list[int]:
    """Return what a session claims: its bills, and the records that a copy would begin with."""
    names: dict[tuple[Literal["bill", "copy"], str], None] = {}
    for fact in facts:
        if fact.usage_key is not None and fact.usage is not None:  # a bill yet to come is nobody's
            names["bill", fact.usage_key] = None
        if fact.node.parent is None and (key := key_of(fact)) is not None:
            names["copy", key] = None
    return [owner_key(kind, key) for kind, key in names]


def uid_hash(uid: str) -> bytes:
    """Hash a session's uid, for what may remember that it was but not what it was."""
    return blake2b(uid.encode("utf-8", "backslashreplace"), digest_size=16).digest()


def owner_key(kind: Literal["bill", "copy", "session"], key: str) -> int:
    """Hash a key of ownership: 63 bits, so that every database holds it as an integer."""
    what = f"{kind}:{key}".encode("utf-8", "backslashreplace")
    return int.from_bytes(blake2b(what, digest_size=8).digest(), "big") >> 1
