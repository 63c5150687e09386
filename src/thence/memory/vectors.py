"""Search by meaning: vectors of digests, prompts and answers, the same for every store.

Off unless a store is given an encoder. A session has one row: the vector of its digest, and those
of its prompts and of the last answer of each turn. They are made from what is stored, so they are
of redacted text; they go with what they were made from: those of events at an eviction, all when a
session is forgotten, read again or digested again. A search by words and one by meaning each put
sessions in an order; both are fused by their ranks (RRF). A session that both have comes first.

How a store holds vectors is `VectorRows`; they are compared here, so that all stores give the same
order.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec

from thence.errors import ThenceError
from thence.format.graph import State
from thence.format.normal import KINDS
from thence.memory import ranking
from thence.memory.encoder import Encoder
from thence.memory.ranking import DIGEST, FEW_SESSIONS, RankingSource, Row, Sessions
from thence.memory.search import Query, SearchAnswer, SearchMatch, payload_words
from thence.memory.store import STATES, Store

if TYPE_CHECKING:
    import numpy as np

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
PROMPT, ANSWER = KINDS.index("user_msg"), KINDS.index("assistant_msg")
_LEFT_OUT = frozenset(
    number for number, state in enumerate(STATES) if state not in (State.LIVE, State.ORPHANED)
)


class VectorProgress(NamedTuple):
    """How far vectors are built, in sessions."""

    done: int
    left: int


class StaleSession(NamedTuple):
    """A session whose vectors are missing or old."""

    session: int
    uid: str
    change: int
    is_evicted: bool


class SpokenRow(NamedTuple):
    """A prompt or an answer: its event, the number of its row, kind and state."""

    event_id: int
    number: int
    kind: int
    state: int


class StoredVectors(NamedTuple):
    """The vectors of one session: of its digest, and of events by the numbers of their rows."""

    session: int
    digest: bytes | None
    numbers: array[int]
    body: bytes


class VectorRows(Protocol):
    """How a store holds vectors. Sessions are their numbers in the store."""

    def claim(self) -> AbstractContextManager[bool]:
        """Hold the right to make vectors; false where another process has it, or nobody may."""

    def stale_sessions(self, model: str) -> list[StaleSession]:
        """Return the sessions whose vectors are missing or old, the newest first."""

    def digest(self, session: StaleSession) -> bytes | None:
        """Return the digest of a session."""

    def spoken_rows(self, session: StaleSession) -> list[SpokenRow]:
        """Return the prompts and answers of a session in their order."""

    def stored_vectors(self, session: StaleSession, model: str) -> StoredVectors | None:
        """Return the vectors of a session that are there."""

    def write(self, session: StaleSession, model: str, vectors: StoredVectors) -> None:
        """Write the vectors of a session, unless it went on or is gone."""

    def version(self) -> object:
        """Return a value that is another one whenever vectors have changed."""

    def all_vectors(self, model: str) -> Iterable[StoredVectors]:
        """Return all vectors, of the session that ended first before others."""

    def session_ids(self, query: Query) -> frozenset[int] | None:
        """Return the sessions that the filters of a question leave; None for all."""

    def rows(self, wanted: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Row]:
        """Return the rows of events, by session and number; those that are gone are missing.

        The number 0 asks for the digest: of an evicted session that, or else its first prompt.
        """


class Vectors:
    """The vectors of one store and what they find."""

    def __init__(self, rows: VectorRows, encoder: Encoder) -> None:
        self._rows = rows
        self.encoder = encoder
        self._matrix: tuple[object, _Matrix] | None = None

    # -- building -----------------------------------------------------------------------

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
        stale = self._rows.stale_sessions(self.encoder.name)
        if stale:
            self.encoder.check()
        done = 0
        with self._rows.claim() as is_mine:
            for session in stale if is_mine else ():
                if limit_s is not None and time.monotonic() - began > limit_s:
                    break
                self._build(store, session)
                done += 1
                progress(VectorProgress(done, len(stale) - done))
        return VectorProgress(done, len(stale) - done)

    def _build(self, store: Store, stale: StaleSession) -> None:
        rows, model = self._rows, self.encoder.name
        digest = rows.digest(stale)
        spoken = [] if stale.is_evicted else rows.spoken_rows(stale)
        texts = dict(_texts(store, stale.uid, last_answers(spoken)))
        there = rows.stored_vectors(stale, model)
        before = dict(zip(there.numbers, _cut(there), strict=True)) if there else {}
        new = [number for number in texts if number not in before]
        made = dict(zip(new, self._encode([texts[number] for number in new]), strict=True))
        vectors = {number: made.get(number) or before[number] for number in texts}
        [summary] = self._encode([_digest_words(digest)]) if digest else [None]
        body = b"".join(vectors.values())
        rows.write(stale, model, StoredVectors(stale.session, summary, array("q", vectors), body))

    def _encode(self, texts: Sequence[str]) -> list[bytes]:
        return [
            vector
            for at in range(0, len(texts), BATCH)
            for vector in self.encoder.encode(texts[at : at + BATCH])
        ]

    # -- searching ----------------------------------------------------------------------

    def fuse(
        self, source: RankingSource, query: Query, answer: SearchAnswer, limit: int, offset: int
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
        more = len(order_) - len(by_words)
        return msgspec.structs.replace(
            answer,
            matches=ordered[offset : offset + limit],
            total=answer.total + len(ordered) - len(answer.matches),
            sessions=answer.sessions + more,
            # Of those that were not looked at, some may be near in meaning as well.
            capped=answer.capped or answer.total > len(answer.matches),
            is_by_meaning=more > 0,
        )

    def _near(self, source: RankingSource, query: Query) -> Iterator[SearchMatch]:
        """Yield what is near to a question in meaning, the nearest session first."""
        matrix = self._load_matrix()
        if not matrix.sessions:
            return
        [wanted] = self.encoder.encode([query.text])
        best: dict[int, list[tuple[float, int]]] = {}
        allowed = self._rows.session_ids(query)
        for score, at in matrix.nearest(wanted):
            session = matrix.sessions[at]
            if allowed is not None and session not in allowed:
                continue
            if session not in best and len(best) == MAX_SESSIONS:
                break
            some = best.setdefault(session, [])
            if len(some) < FEW_SESSIONS:
                some.append((score, matrix.events[at]))
        places = [(score, (at, number)) for at, some in best.items() for score, number in some]
        rows = self._rows.rows([place for _, place in places])
        yield from source.look_up(
            [
                (rows[place], score)
                for score, place in places
                if place in rows and _is_in_time(rows[place], query)
            ]
        )

    def _load_matrix(self) -> _Matrix:
        """Return all vectors; read again only when some have changed."""
        version = self._rows.version()
        if self._matrix is None or self._matrix[0] != version:
            self._matrix = (version, _matrix_of(self._rows.all_vectors(self.encoder.name)))
        return self._matrix[1]


def _is_in_time(row: Row, query: Query) -> bool:
    """Return whether an event is of the days that are asked for; a digest is of its session."""
    _, _, ts, kind, _ = row
    is_early = query.after is not None and ts < query.after
    is_late = query.before is not None and ts >= query.before
    return kind == DIGEST or not (is_early or is_late)


def search(
    store: tuple[RankingSource, Sessions],
    query: Query,
    limit: int,
    offset: int,
    vectors: Vectors | None,
) -> SearchAnswer:
    """Return the best answers to a question: by words, and by meaning where there are vectors."""
    source, sessions = store
    if vectors is None or query.lists_sessions:
        return ranking.search(source, sessions, query, limit, offset)
    by_words = ranking.search(source, sessions, query, max(limit + offset, FUSED_HITS), 0)
    return vectors.fuse(source, query, by_words, limit, offset)


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


def _matrix_of(stored: Iterable[StoredVectors]) -> _Matrix:
    import numpy as np

    sessions, events, bodies = array("q"), array("q"), list[bytes]()
    for vectors in stored:
        numbers = vectors.numbers
        if vectors.digest:
            numbers = array("q", [0, *numbers])
            bodies.append(vectors.digest)
        bodies.append(vectors.body)
        events += numbers
        sessions += array("q", [vectors.session]) * len(numbers)
    raw = np.frombuffer(b"".join(bodies), dtype=np.int8)
    return _Matrix(sessions, events, raw.reshape(len(events), -1) if len(events) else raw)


def is_fused(query: Query) -> bool:
    """Return whether meaning counts: for plain words and filters of sessions, nothing else."""
    is_plain = bool(query.wanted) and all(query.words) and not query.has_phrases
    is_plain = is_plain and not query.exact and not query.without
    return is_plain and all(mark.startswith("agent") for mark in query.marks)


def _fuse_hits(by_words: list[SearchMatch], by_meaning: list[SearchMatch]) -> list[SearchMatch]:
    events = {hit.event_id for hit in by_words}
    return by_words + [hit for hit in by_meaning if hit.event_id not in events]


def _cut(vectors: StoredVectors) -> Iterator[bytes]:
    body, count = vectors.body, len(vectors.numbers)
    width = len(body) // count if count else 0
    return (body[at * width : (at + 1) * width] for at in range(count))


def _texts(store: Store, uid: str, numbers: Mapping[int, int]) -> Iterator[tuple[int, str]]:
    """Yield the texts of some events of a session, by the numbers of their rows."""
    for row in store.events(uid) if numbers else ():
        number, ref = numbers.get(row.event.event_id), row.event.payload_ref
        if number is None or ref is None:
            continue
        with suppress(ThenceError):  # a text that is lost; doctor tells of it
            text = payload_words(store.blobs, ref)[:TEXT_CHARS].strip()
            if len(text) >= MIN_TEXT_CHARS:
                yield number, text


def last_answers(spoken: Iterable[SpokenRow]) -> dict[int, int]:
    """Return the rows of prompts and of the last answers of turns, by the ids of their events."""
    out: dict[int, int] = {}
    answer: SpokenRow | None = None
    for row in spoken:
        if row.state in _LEFT_OUT:
            continue
        if row.kind == ANSWER:
            answer = row
            continue
        if answer is not None:
            out[answer.event_id] = answer.number
        out[row.event_id], answer = row.number, None
    if answer is not None:
        out[answer.event_id] = answer.number
    return out


def _digest_words(body: bytes) -> str:
    """Return what a digest says first of a session."""
    digest: dict[str, Any] = msgspec.msgpack.decode(body)
    snippets = digest.get("snippets") or {}
    parts = (digest.get("title"), snippets.get("first_prompt"), snippets.get("last_reply"))
    return "\n".join(dict.fromkeys(f"{part}"[: TEXT_CHARS // 3] for part in parts if part))
