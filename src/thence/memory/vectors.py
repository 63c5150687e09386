"""Search by meaning in a store in SQLite: vectors of digests, prompts and answers.

Off unless a store is given an encoder. A session has one row: the vector of its digest, and those
of its prompts and of the last answer of each turn. They are made from what is stored, so they are
of redacted text; they go with what they were made from: those of events at an eviction, all when a
session is forgotten, read again or digested again. A search by words and one by meaning each put
sessions in an order; both are fused by their ranks (RRF). A session that both have comes first.

FROZEN: `MIGRATION` is a step of the schema.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import apsw
import msgspec

from thence.errors import ThenceError
from thence.format.graph import State
from thence.format.normal import KINDS
from thence.memory.encoder import Encoder
from thence.memory.index import SqliteWords, every, first
from thence.memory.ranking import DIGEST, FEW_SESSIONS, Row
from thence.memory.search import Query, SearchAnswer, SearchMatch, payload_words
from thence.memory.store import STATES, Store

if TYPE_CHECKING:
    import numpy as np

MIGRATION: Final = """
    CREATE TABLE vectors(
        session INTEGER PRIMARY KEY, change INTEGER NOT NULL, model TEXT NOT NULL,
        digest BLOB, events BLOB NOT NULL, body BLOB NOT NULL
    );
    CREATE TABLE vector_changes(number INTEGER NOT NULL);
    INSERT INTO vector_changes VALUES(0);
    CREATE TRIGGER vectors_added AFTER INSERT ON vectors
        BEGIN UPDATE vector_changes SET number=number+1; END;
    CREATE TRIGGER vectors_changed AFTER UPDATE ON vectors
        BEGIN UPDATE vector_changes SET number=number+1; END;
    CREATE TRIGGER vectors_gone AFTER DELETE ON vectors
        BEGIN UPDATE vector_changes SET number=number+1; END;
"""

FUSED_HITS: Final = 100
"""Answers of a search by words that are fused with those by meaning."""
MAX_SESSIONS: Final = 50
"""Sessions that a search by meaning puts in order."""
MIN_SIMILARITY: Final = 0.3
"""Cosine from which on a text answers a question."""
RRF_RANK: Final = 10
"""The constant of reciprocal rank fusion. Usually it is 60; with less, the first places count more,
so that the session that has the very words is rarely displaced."""
OUTPUT_WEIGHT: Final = 0.3
"""How much meaning counts where the best match is an output or a call: these have no vectors.
Chosen on the tuning half of `bench_questions`."""
MIN_TEXT_CHARS: Final = 12
TEXT_CHARS: Final = 1_500
"""Texts that are shorter say nothing by themselves; of longer ones the beginning is looked at."""
BATCH: Final = 16
SCORED_ROWS: Final = 16_384
"""Vectors that are compared at once."""

_SPOKEN: Final = ("user_msg", "assistant_msg", "thinking", "title", "digest")
_PROMPT, _ANSWER = KINDS.index("user_msg"), KINDS.index("assistant_msg")
_LEFT_OUT = frozenset(
    number for number, state in enumerate(STATES) if state not in (State.LIVE, State.ORPHANED)
)


class VectorProgress(NamedTuple):
    """How far vectors are built, in sessions."""

    done: int
    left: int


def drop_vectors(db: apsw.Connection, session: int, *, keep_digest: bool = False) -> None:
    """Delete the vectors of a session, those of its digest only where that goes as well."""
    if keep_digest:
        db.execute("UPDATE vectors SET events=x'', body=x'' WHERE session=?", (session,))
    else:
        db.execute("DELETE FROM vectors WHERE session=?", (session,))


def drop_digest_vector(db: apsw.Connection, session: int) -> None:
    """Delete the vector of a digest that is written anew."""
    db.execute("UPDATE vectors SET digest=NULL WHERE session=?", (session,))


class _Stale(NamedTuple):
    """A session whose vectors are missing or old."""

    session: int
    uid: str
    change: int
    evicted: int | None


class Vectors:
    """The vectors of one store and what they find."""

    def __init__(
        self,
        db: Callable[[], apsw.Connection],
        transaction: Callable[[], AbstractContextManager[apsw.Connection]],
        encoder: Encoder,
    ) -> None:
        self._connection = db
        self._transaction = transaction
        self.encoder = encoder
        self._matrix: tuple[int, _Matrix] | None = None

    # -- building -----------------------------------------------------------------------

    def _stale(self) -> list[_Stale]:
        """Return the sessions whose vectors are missing or old, the newest first."""
        rows = every(
            self._connection(),
            "SELECT s.id, s.uid, s.change, s.evicted FROM sessions AS s"
            " LEFT JOIN vectors AS v ON v.session=s.id"
            " WHERE v.session IS NULL OR v.change!=s.change OR v.model!=?"
            " OR (v.digest IS NULL AND EXISTS (SELECT 1 FROM digests AS d WHERE d.session=s.id))"
            " ORDER BY s.ended DESC",
            self.encoder.name,
        )
        return [_Stale(*row) for row in rows]

    def build(
        self,
        store: Store,
        *,
        limit_s: float | None = None,
        progress: Callable[[VectorProgress], None] = lambda _: None,
    ) -> VectorProgress:
        """Make the vectors that are missing, of the newest sessions first; return how far it is.

        What is done is stored session by session. After `limit_s` seconds the rest is left.
        """
        began = time.monotonic()
        stale = self._stale()
        if stale:
            self.encoder.check()
        done = 0
        for session in stale:
            if limit_s is not None and time.monotonic() - began > limit_s:
                break
            self._build(store, session)
            done += 1
            progress(VectorProgress(done, len(stale) - done))
        return VectorProgress(done, len(stale) - done)

    def _build(self, store: Store, stale: _Stale) -> None:
        db = self._connection()
        digest = first(db, "SELECT body FROM digests WHERE session=?", stale.session)
        texts = {} if stale.evicted is not None else dict(_texts(db, store, stale))
        before = self._stored_vectors(stale.session)
        new = [number for number in texts if number not in before]
        made = dict(zip(new, self._encode([texts[number] for number in new]), strict=True))
        vectors = {number: made.get(number) or before[number] for number in texts}
        [summary] = self._encode([_digest_words(digest)]) if digest else [None]
        with self._transaction() as db:
            state = "SELECT 1 FROM sessions WHERE id=? AND uid=? AND change=? AND evicted IS ?"
            if not first(db, state, *stale):
                return  # it went on, or is gone: the next build looks again
            db.execute(
                "INSERT OR REPLACE INTO vectors VALUES(?,?,?,?,?,?)",
                (
                    *(stale.session, stale.change, self.encoder.name, summary),
                    *(array("q", vectors).tobytes(), b"".join(vectors.values())),
                ),
            )

    def _stored_vectors(self, session: int) -> dict[int, bytes]:
        """Return the vectors of a session that are there, by the rows of their events."""
        sql = "SELECT events, body FROM vectors WHERE session=? AND model=?"
        for events, body in every(self._connection(), sql, session, self.encoder.name):
            return dict(zip(array("q", events), _cut(body, len(events) // 8), strict=True))
        return {}

    def _encode(self, texts: Sequence[str]) -> list[bytes]:
        return [
            vector
            for at in range(0, len(texts), BATCH)
            for vector in self.encoder.encode(texts[at : at + BATCH])
        ]

    # -- searching ----------------------------------------------------------------------

    def fuse(
        self, source: SqliteWords, query: Query, answer: SearchAnswer, limit: int, offset: int
    ) -> SearchAnswer:
        """Return an answer by words, `FUSED_HITS` of it, fused with what is near in meaning."""
        if not is_fused(query) or (len(query.wanted) == 1 and answer.matches):
            return msgspec.structs.replace(answer, matches=answer.matches[offset : offset + limit])
        by_words: dict[str, list[SearchMatch]] = {}
        for hit in answer.matches:
            by_words.setdefault(hit.session_uid, []).append(hit)
        by_meaning: dict[str, list[SearchMatch]] = {}
        for hit in self._near(source, query):
            by_meaning.setdefault(hit.session_uid, []).append(hit)
        weight = 1.0 if not by_words or answer.matches[0].kind in _SPOKEN else OUTPUT_WEIGHT
        if by_words and answer.how == "all":
            weight = 0.0  # meaning only adds sessions behind those that have the words
        worths: dict[str, float] = {}
        for order, share in ((by_words, 1.0), (by_meaning, weight)):
            for rank, uid in enumerate(order):
                worths[uid] = worths.get(uid, 0.0) + 0.5 * share * RRF_RANK / (RRF_RANK + rank)
        order_ = sorted(worths, key=worths.__getitem__, reverse=True)
        hits = {uid: _fuse_hits(by_words.get(uid, []), by_meaning.get(uid, [])) for uid in order_}
        ordered: list[SearchMatch] = []
        place = 0
        while any(len(some) > place for some in hits.values()):
            for uid in order_:
                some = hits[uid][place : place + FEW_SESSIONS]
                ordered += [msgspec.structs.replace(hit, score=worths[uid]) for hit in some]
            place += FEW_SESSIONS
        return msgspec.structs.replace(
            answer,
            matches=ordered[offset : offset + limit],
            is_by_meaning=any(uid not in by_words for uid in order_),
        )

    def _near(self, source: SqliteWords, query: Query) -> Iterator[SearchMatch]:
        """Yield what is near to a question in meaning, the nearest session first."""
        matrix = self._load_matrix()
        if not matrix.sessions:
            return
        [wanted] = self.encoder.encode([query.text])
        best: dict[int, list[tuple[float, int]]] = {}
        allowed = source.session_ids(query)
        for score, at in matrix.nearest(wanted):
            session = matrix.sessions[at]
            if allowed is not None and session not in allowed:
                continue
            if session not in best and len(best) == MAX_SESSIONS:
                break
            some = best.setdefault(session, [])
            if len(some) < FEW_SESSIONS:
                some.append((score, matrix.events[at]))
        for session, some in best.items():
            for score, event in some:
                if (row := self._row(session, event, query)) is not None:
                    yield from source.look_up([(row, score)])

    def _row(self, session: int, event: int, query: Query) -> Row | None:
        db = self._connection()
        if not event:
            evicted = "SELECT ended FROM sessions WHERE id=? AND evicted IS NOT NULL"
            for (ended,) in every(db, evicted, session):
                return (-2 * session - 1, session, ended or 0, DIGEST, 0)
            # The digest of a session whose events are there: its first prompt stands for it.
            event = first(
                db,
                "SELECT id FROM events WHERE session=? AND kind=? ORDER BY seq LIMIT 1",
                *(session, _PROMPT),
            )
        sql = "SELECT id, session, ts, kind, state FROM events WHERE id=? AND session=?"
        for row in every(db, sql, event, session):
            is_late = query.after is not None and row[2] < query.after
            is_early = query.before is not None and row[2] >= query.before
            return None if is_late or is_early else row
        return None

    def _load_matrix(self) -> _Matrix:
        """Return all vectors; read again only when some have changed."""
        db = self._connection()
        number = first(db, "SELECT number FROM vector_changes")
        if self._matrix is None or self._matrix[0] != number:
            self._matrix = (number, _read_matrix(db, self.encoder.name))
        return self._matrix[1]


class _Matrix(NamedTuple):
    """All vectors of a store, with the session and the event of each; 0 for a digest."""

    sessions: array[int]
    events: array[int]
    rows: np.ndarray[Any, np.dtype[np.int8]]

    def nearest(self, wanted: bytes) -> Iterator[tuple[float, int]]:
        """Yield the cosine and the place of vectors near to another, the nearest first."""
        import numpy as np

        vector = np.frombuffer(wanted, dtype=np.int8).astype(np.float32)
        length = float(np.linalg.norm(vector)) or 1.0
        parts = []
        for at in range(0, len(self.rows), SCORED_ROWS):
            some = self.rows[at : at + SCORED_ROWS].astype(np.float32)
            lengths = np.sqrt(np.einsum("ij,ij->i", some, some))
            parts.append(some @ vector / (np.maximum(lengths, 1.0) * length))
        scores = np.concatenate(parts)
        near = np.flatnonzero(scores >= MIN_SIMILARITY)
        # Where some are the same, the newest row comes first.
        for at in near[np.lexsort((near, scores[near]))][::-1].tolist():
            yield float(scores[at]), at


def _read_matrix(db: apsw.Connection, model: str) -> _Matrix:
    import numpy as np

    sessions, events, bodies = array("q"), array("q"), list[bytes]()
    sql = "SELECT session, digest, events, body FROM vectors WHERE model=? ORDER BY session"
    for session, digest, ids, body in every(db, sql, model):
        numbers = array("q", ids)
        if digest:
            numbers.insert(0, 0)
            bodies.append(digest)
        bodies.append(body)
        events += numbers
        sessions += array("q", [session]) * len(numbers)
    raw = np.frombuffer(b"".join(bodies), dtype=np.int8)
    return _Matrix(sessions, events, raw.reshape(len(events), -1) if len(events) else raw)


def is_fused(query: Query) -> bool:
    """Return whether meaning counts: for plain words and filters of sessions, nothing else."""
    is_plain = bool(query.wanted) and all(query.words) and not query.exact and not query.without
    return is_plain and all(mark.startswith("agent") for mark in query.marks)


def _fuse_hits(by_words: list[SearchMatch], by_meaning: list[SearchMatch]) -> list[SearchMatch]:
    events = {hit.event_id for hit in by_words}
    return by_words + [hit for hit in by_meaning if hit.event_id not in events]


def _cut(body: bytes, count: int) -> Iterator[bytes]:
    width = len(body) // count if count else 0
    return (body[at * width : (at + 1) * width] for at in range(count))


def _texts(db: apsw.Connection, store: Store, stale: _Stale) -> Iterator[tuple[int, str]]:
    """Yield the prompts of a session and the last answer of each turn, by their rows."""
    numbers = _spoken_rows(db, stale.session)
    for row in store.events(stale.uid) if numbers else ():
        number, ref = numbers.get(row.event.event_id), row.event.payload_ref
        if number is None or ref is None:
            continue
        with suppress(ThenceError):  # a text that is lost; doctor tells of it
            text = payload_words(store.blobs, ref)[:TEXT_CHARS].strip()
            if len(text) >= MIN_TEXT_CHARS:
                yield number, text


def _spoken_rows(db: apsw.Connection, session: int) -> dict[int, int]:
    """Return the rows of prompts and of the last answers of turns, by the ids of their events."""
    out: dict[int, int] = {}
    answer: tuple[int, int] | None = None
    sql = (
        "SELECT event_id, id, kind, state FROM events"
        " WHERE session=? AND kind IN (?, ?) AND NOT derived ORDER BY seq, id"
    )
    for event, number, kind, state in every(db, sql, session, _PROMPT, _ANSWER):
        if state in _LEFT_OUT:
            continue
        if kind == _ANSWER:
            answer = event, number
            continue
        if answer is not None:
            out[answer[0]] = answer[1]
        out[event], answer = number, None
    if answer is not None:
        out[answer[0]] = answer[1]
    return out


def _digest_words(body: bytes) -> str:
    """Return what a digest says first of a session."""
    digest: dict[str, Any] = msgspec.msgpack.decode(body)
    snippets = digest.get("snippets") or {}
    parts = (digest.get("title"), snippets.get("first_prompt"), snippets.get("last_reply"))
    return "\n".join(dict.fromkeys(f"{part}"[: TEXT_CHARS // 3] for part in parts if part))
