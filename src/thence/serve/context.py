"""The context: all that a page or a call of the API may ask for, made ready once.

Threads may share it. Agent status is asked for at most once a second, the sessions about to be
deleted once a minute. Loaded sessions are cached up to a number of bytes, the least recently used
are dropped first, and an entry is used only while the store has the session as it was.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from litestar.di import NamedDependency
from litestar.exceptions import PermissionDeniedException

from thence import config
from thence.agents import Adapter
from thence.errors import SessionNotFound
from thence.format.stored import StoredEvent
from thence.memory import recall, session_status
from thence.memory.activity import Pulse, pulse
from thence.memory.budgets import Budgets, BudgetUse, budget_uses
from thence.memory.labels import Label, read_labels, search, searchable_notes, texts_of, with_tagged
from thence.memory.notes import Note
from thence.memory.readouts import OpenedSession, open_session
from thence.memory.retention import Policy
from thence.memory.search import Query, SearchAnswer
from thence.memory.store import SessionRow, Store
from thence.serve.cache import LruCache, session_key

if TYPE_CHECKING:
    from thence.agents.sessions import LoadedSession
    from thence.memory.gate import Gate
    from thence.memory.reports import Progress
    from thence.memory.sweeper import SweepHome

STATUS_MAX_AGE_S = 1.0  # every page asks, and an answer takes a look at each agent's files
"""How long agent status is cached, in seconds."""
RISKS_MAX_AGE_S = 60.0
"""How long the list of sessions about to be deleted is cached, in seconds."""
MAX_CACHED_BYTES = 256 << 20
"""Memory for loaded sessions, in bytes."""
MAX_CACHED_PULSES = 10_000
"""Sessions whose activity is cached."""
MEMORY_PER_LOG_BYTE = 6
"""Bytes of memory that a byte of a log takes, about."""

_UID = re.compile(r"(?:[a-z][a-z0-9_-]{0,31}:)?[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
T = TypeVar("T")


class AppContext:
    """The store, the settings and the live state that handlers read."""

    def __init__(
        self,
        store: Store,
        *,
        home: Path,
        settings: config.Settings,
        known: Mapping[str, Adapter],
        roots: Mapping[str, Sequence[Path]],
        policy: Policy,
        gate: Callable[[], Gate],
        sweep_home: SweepHome | None = None,
        first_import: Callable[[], Progress | None] | None = None,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
        idle_timeout: float = config.TIMEOUT_S,
        approval_timeout: float = config.TIMEOUT_S,
        writes: bool = True,
        is_read_only: bool = False,
        room: int = MAX_CACHED_BYTES,
    ) -> None:
        """Set up; without `sweep_home` new lines of logs are not imported here.

        While all logs are read for the first time, `first_import` returns how far that is.
        What is read from a source, because it was evicted, passes the `gate`. The
        timeouts, by `ticks`, are those of sessions that clients write into; 0 means never.
        Without `writes` nobody may; pages say so where the home `is_read_only`.
        """
        self.store = store
        self.home = home
        self.settings = settings
        self.known = known
        self.roots = roots
        self.policy = policy
        self.sweep_home = sweep_home
        self.first_import = first_import or (lambda: None)
        self.clock = clock
        self._gate = gate
        self._gate_turn = threading.Lock()
        self.ticks = ticks
        self.idle_timeout = idle_timeout
        self.approval_timeout = approval_timeout
        self.writes = writes
        self.is_read_only = is_read_only
        self._now = _TimedValue(
            STATUS_MAX_AGE_S,
            lambda: session_status.now(self.known, self.roots, self.as_stored),
        )
        self._risks = _TimedValue(RISKS_MAX_AGE_S, self._at_risk)
        self._sessions: LruCache[OpenedSession] = LruCache(room)
        self._pulses: LruCache[Pulse | None] = LruCache(MAX_CACHED_PULSES)
        self._cached: dict[object, _TimedValue[Any]] = {}

    def cached(self, what: object, make: Callable[[], T], *, seconds: float = math.inf) -> T:
        """Return what was made before for this context; made again once it is older."""
        value: _TimedValue[T] = self._cached.setdefault(what, _TimedValue(seconds, make))
        return value.get()

    def check_writable(self) -> None:
        """Refuse a request that writes where nobody may."""
        if not self.writes:
            raise PermissionDeniedException("this store is read-only")

    def moment(self, zone: tzinfo | None = UTC) -> datetime:
        """Return the time in a zone; None is that of this machine."""
        return datetime.fromtimestamp(self.clock(), UTC).astimezone(zone)

    def now(self) -> session_status.Now:
        """Return which sessions run or wait."""
        return self._now.get()

    def risks(self) -> list[session_status.Risk]:
        """Return the sessions that will be deleted soon and are not stored."""
        return self._risks.get()

    def _at_risk(self) -> list[session_status.Risk]:
        return session_status.at_risk(
            self.known, self.roots, self.store, self.as_stored, at=self.clock()
        )

    def row(self, prefix: str) -> SessionRow:
        """Find the one session that an id, or the beginning of one, means."""
        if _UID.fullmatch(prefix) is None:
            raise SessionNotFound(
                f"no session {prefix[:80]!r}", hint="ids have letters, digits and dashes"
            )
        return recall.session(self.store, prefix)

    def open_session(self, row: SessionRow) -> OpenedSession:
        """Return a session with its payloads, from the store or from its source."""
        size = MEMORY_PER_LOG_BYTE * max(row.session.source_bytes, row.text_bytes)
        key = session_key(row, self.store)
        return self._sessions.get(
            key, lambda: open_session(self.store, row, self.clean), lambda _: size
        )

    def events(
        self, row: SessionRow, *, after: int = -1, limit: int | None = None
    ) -> Iterable[StoredEvent]:
        """Return the events of a session after a number, from the store or from its source."""
        if row.session.evicted_at is None:
            return self.store.events(row.session.session_uid, after=after, limit=limit)
        later = (event for event in self._events_of_evicted(row) if event.seq > after)
        return islice(later, limit)

    def event(self, row: SessionRow, wanted: str) -> StoredEvent:
        """Return the event that a name means; of a derived one that from which it is derived."""
        if row.session.evicted_at is None:
            return recall.stored_event(self.store, row.session.session_uid, wanted)
        uid = row.session.session_uid
        return recall.named_event(self._events_of_evicted(row), uid, wanted)

    def _events_of_evicted(self, row: SessionRow) -> list[StoredEvent]:
        return sorted(self.open_session(row).session.rows, key=lambda event: event.seq)

    def notes(self) -> list[Note]:
        """Return the decisions and notes of this home, redacted."""
        return texts_of(self.searchable_notes())

    def searchable_notes(self) -> list[Note]:
        """Return all that was written down, names and tags of sessions too, redacted."""
        notes = searchable_notes(self.home)
        with self._gate_turn:
            return self._gate().notes(notes)

    def labels(self) -> dict[str, Label]:
        """Return the names and tags that the user gave to sessions; redacted when written."""
        return read_labels(self.home)

    def budget_uses(self, zone: tzinfo | None) -> list[BudgetUse]:
        """Return the budgets of this home with what was spent of them today in a zone."""
        prefix = "session_memory.budget."
        limits = Budgets(self.settings[f"{prefix}daily_usd"], self.settings[f"{prefix}projects"])
        return budget_uses(self.store, limits, self.moment(zone))

    def display(self, rows: Sequence[SessionRow]) -> list[SessionRow]:
        """Return rows for the eye: with the user's names and tags, else the title they inherit."""
        return recall.with_lineage(self.store, rows, self.labels())

    def search(self, query: Query, limit: int, offset: int = 0) -> SearchAnswer:
        """Return the best answers to a question, tags looked up."""
        return search(self.store, with_tagged(query, self.labels()), limit, offset)

    def as_stored(self, text: str) -> str:
        """Return a text that is not from the store as it would be stored."""
        with self._gate_turn:
            return self._gate().text(text)

    def pulse(self, row: SessionRow) -> Pulse | None:
        """Return how busy a session was, part by part; None when nothing of it is stored."""
        return self._pulses.get(
            session_key(row), lambda: pulse(self.store, row.session.session_uid)
        )

    def clean(self, loaded: LoadedSession) -> LoadedSession:
        """Return a session that was read from its source as it would be stored."""
        with self._gate_turn:
            return self._gate().session(loaded)


ContextDependency = NamedDependency[AppContext]
"""How a handler asks for the context: `context: ContextDependency`."""


class _TimedValue(Generic[T]):
    """A value that is made again once it is older than `seconds`."""

    def __init__(
        self, seconds: float, make: Callable[[], T], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._make = make
        self._clock = clock
        self._mutex = threading.Lock()
        self._made: tuple[float, T] | None = None

    def get(self) -> T:
        """Return the value; callers that ask while it is being made wait for it."""
        with self._mutex:
            now = self._clock()
            if self._made is None or now - self._made[0] > self._seconds:
                self._made = now, self._make()
            return self._made[1]
