"""The words of a store in Postgres: vectors that say what SQLite's index says, and questions.

Texts are cut into words by the tokenizer of SQLite's index itself, so that both stores hold the
same words at the same places and give the same hits; the server's own parsers, which take paths
and addresses for one word, are never asked. A vector holds no more than so many places, bytes and
occurrences: a longer text is cut into pieces, which overlap so that a phrase is not cut in two.

A search goes from the newest rows back, in steps that grow. For that every vector also holds the
number of its run of rows as a word: the index itself then narrows a common word down to some
runs, and a rare word is looked up in all of them at once. No plan goes back through the rows
themselves. Few questions go to the database for one search (`met`, `shown`), as a server may be
far away.

Not the same as SQLite's: words of more than `MAX_WORD_BYTES` are equal if their beginnings are; a
phrase of more than `OVERLAP_CHARS` words may be missed where it crosses two pieces; of a digest the
first piece is searched.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from typing import Any, Final

import apsw
import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

from thence.format.normal import KINDS
from thence.memory.cjk_pairs import index_text
from thence.memory.index import MAX_TITLES, of_session, time_column
from thence.memory.ranking import DIGEST, TITLE, Lists, Row
from thence.memory.search import Query, SearchMatch, meta
from thence.memory.statements import like
from thence.memory.store import STATES, EventRow
from thence.memory.vocabulary import MIN_PART

MAX_WORD_BYTES: Final = 2040
"""Bytes of a word; the database takes 2,046."""

MAX_PLACES: Final = 16_000
"""Words of a piece: a vector numbers its places up to 16,383."""

MAX_WORD_PLACES: Final = 255
"""Times that a word stands in a piece: more places of it are not kept."""

PIECE_CHARS: Final = 256 << 10
"""Bytes of the words of a piece."""

OVERLAP_CHARS: Final = 32
"""Words that the next piece says again."""

RUN, ERA = 12, 18
"""Bits of an event's number below the number of its run, and of the era that holds 64 runs."""

BUDGET_S: Final = 0.012
"""Seconds after which the database stops going further back."""

_NEVER: Final = "'!'"  # no vector holds it

Db = psycopg.Connection[Any]

_OWN = threading.local()


def _two_bytes(number: int) -> str:
    """Return a number of two bytes as text that is these bytes when it is encoded."""
    return struct.pack(">H", number).decode("ascii", "surrogateescape")


# What a packed vector says of places: each of them, and how many there are, by their size.
_PLACED: Final = [_two_bytes(place) for place in range(1, MAX_PLACES + 1)]
_COUNTS: Final = ["\0" + _two_bytes(size // 2) for size in range(2 * MAX_WORD_PLACES + 1)]


def words_in(text: str) -> list[str]:
    """Cut a text into words, as SQLite's index does."""
    tokenizer = getattr(_OWN, "tokenizer", None)
    if tokenizer is None:
        _OWN.db = apsw.Connection(":memory:")
        tokenizer = _OWN.tokenizer = _OWN.db.fts5_tokenizer("unicode61", [])
    body = text.encode("utf-8", "replace")
    words: list[str] = tokenizer(
        body, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False
    )
    return words


def _word(word: str) -> str:
    """Cut a word off where the database would refuse it."""
    if len(word) * 4 <= MAX_WORD_BYTES:
        return word
    return word.encode()[:MAX_WORD_BYTES].decode(errors="ignore")


# -- vectors --------------------------------------------------------------------------------


class Vector(bytes):
    """A vector as the database itself sends it: no text that it would have to read again."""

    __slots__ = ()


class VectorDumper(Dumper):
    """Lets a vector be given to a statement."""

    oid = 3614  # tsvector, in every Postgres
    format = Format.BINARY

    def dump(self, obj: Vector) -> bytes:
        """Return the vector unchanged."""
        return bytes(obj)


def vectors(body: str, marks: Sequence[str]) -> list[Vector]:
    """Spell a text as vectors, one a piece, each with all of the marks."""
    body = index_text(body)
    words = words_in(body)
    short = (
        _short_places(words) if len(words) <= MAX_PLACES and len(body) * 4 <= PIECE_CHARS else None
    )
    pieces = _pieces(words) if short is None else [short]
    nowhere = dict.fromkeys(marks, "")
    return [_pack_vector({**piece, **nowhere}) for piece in pieces]


def _pack_vector(places: dict[str, str]) -> Vector:
    """Pack words and their places: how many words, then each with its end, count and places.

    No word is there twice, which the database takes on trust; it sorts them itself. There are a
    hundred thousand words in a megabyte, so no step of Python is taken for each.
    """
    counts = map(_COUNTS.__getitem__, map(len, places.values()))
    lexemes = "".join(chain.from_iterable(zip(places, counts, places.values(), strict=True)))
    return Vector(len(places).to_bytes(4, "big") + lexemes.encode("utf-8", "surrogateescape"))


def _short_places(words: Sequence[str]) -> dict[str, str] | None:
    """Return the places of each word of a text of one piece, as nearly all are; None if not."""
    places: dict[str, str] = {}
    get = places.get
    for word, place in zip(words, _PLACED, strict=False):
        places[word] = get(word, "") + place
    if len(words) >= MAX_WORD_PLACES and max(map(len, places.values())) >= 2 * MAX_WORD_PLACES:
        return None
    return None if max(map(len, places), default=0) * 4 > MAX_WORD_BYTES else places


def _pieces(words: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield the places of words, piece by piece; one piece at least."""
    start = 0
    while True:
        piece: dict[str, str] = {}
        size = 0
        end = start
        for end in range(start, len(words)):
            word = _word(words[end])
            places = piece.get(word)
            if places is None:
                places = ""
                size += len(word.encode())
            place = end - start
            piece[word] = places + _PLACED[place]
            full = (
                place + 1 >= MAX_PLACES
                or len(places) // 2 + 1 >= MAX_WORD_PLACES
                or size >= PIECE_CHARS
            )
            if full and place + 1 > 2 * OVERLAP_CHARS:
                break
        yield piece
        if end + 1 >= len(words):
            return
        start = end + 1 - OVERLAP_CHARS


def marks_of(meta: str, tenant: str, number: int) -> list[str]:
    """Return the words by which an event is filtered, and by which its run is found."""
    who = _short(tenant)
    runs = (f"#{who}", f"@{who}.{number >> RUN}", f"^{who}.{number >> ERA}")
    return [*(_word(f"={word}") for word in meta.split()), *runs]


_MARK_AGAIN: Final = """
    UPDATE words AS t SET body = ts_delete(t.body, m.marks) || v.marks::tsvector
    FROM unnest(%s::text[], %s::bigint[], %s::text[]) AS v(uid, event_id, marks)
    JOIN words AS w ON w.tenant=%s AND w.uid = v.uid AND w.event_id = v.event_id
    CROSS JOIN LATERAL (SELECT ARRAY(
        SELECT lexeme FROM unnest(w.body) WHERE lexeme ~ '^=(kind|tool)'
    ) AS marks, tsvector_to_array(v.marks::tsvector) AS wanted) AS m
    WHERE t.tenant=w.tenant AND t.uid = w.uid AND t.event_id = w.event_id AND t.piece = w.piece
        AND NOT (m.marks @> m.wanted AND m.wanted @> m.marks)
"""
_WITHOUT_WORDS: Final = """
    SELECT e.uid, e.event_id, e.id, e.ts FROM unnest(%s::text[], %s::bigint[]) AS v(uid, event_id)
    JOIN events AS e ON e.uid = v.uid AND e.event_id = v.event_id AND e.tenant=%s
    WHERE NOT EXISTS (
        SELECT 1 FROM words AS t
        WHERE t.tenant=e.tenant AND t.uid = e.uid AND t.event_id = e.event_id
    )
"""


def mark_again(db: Db, tenant: str, machine: str, events: Sequence[tuple[str, EventRow]]) -> None:
    """Let words have the marks of events as later records tell of them, before their rows do."""
    metas = {
        (uid, row.event_id): meta(uid.partition(":")[0], KINDS[row.kind], row.tool, row.implied)
        for uid, row in events
    }
    marks = [
        " ".join(_quote(_word(f"={word}")) for word in metas[uid, row.event_id].split()[1:])
        for uid, row in events
    ]
    uids, ids = [uid for uid, _ in events], [row.event_id for _, row in events]
    db.execute(_MARK_AGAIN, (uids, ids, marks, tenant))
    # Texts without a word had no vector before other events were derived from them.
    implying = [(uid, row.event_id) for uid, row in events if row.implied]
    if not implying:
        return
    missing = (*map(list, zip(*implying, strict=True)), tenant)
    for uid, event, number, ts in db.execute(_WITHOUT_WORDS, missing).fetchall():
        [body] = vectors("", marks_of(metas[uid, event], tenant, number))
        db.execute(
            "INSERT INTO words(tenant, machine, uid, event_id, piece, pieces, id, ts, body)"
            " VALUES(%s, %s, %s, %s, 0, 1, %s, %s, %s)",
            (tenant, machine, uid, event, number, ts, body),
        )


def digest_vector(text: str, agent: str, tenant: str) -> Vector:
    """Spell a digest as a vector."""
    return vectors(text, [f"=agent{word}" for word in words_in(agent)] + [f"#{_short(tenant)}"])[0]


@lru_cache(maxsize=64)
def _short(tenant: str) -> str:
    return blake2b(tenant.encode("utf-8", "replace"), digest_size=6).hexdigest()


# -- questions ------------------------------------------------------------------------------


class TextQuery:
    """A question in the words of the database."""

    def __init__(self, query: Query, tenant: str) -> None:
        who = _short(tenant)
        self.groups = [_either(group) for group in query.wanted]
        self.nots = [ask for term in query.without if (ask := _term(term)) is not None]
        self.marks = [_quote(_word(f"={word}")) for mark in query.marks for word in words_in(mark)]
        self.all = _quote(f"#{who}")
        self.who = who

    @property
    def simple(self) -> bool:
        """Whether each piece of a text answers for itself."""
        return len(self.groups) <= 1 and not self.nots

    @property
    def full_query(self) -> str:
        """All of the question; which runs is said by who goes back through them."""
        return " & ".join([*self.groups, *self.marks, *(f"!({ask})" for ask in self.nots)])

    @property
    def some(self) -> str:
        """What a piece must meet at least to matter."""
        near = [f"({' | '.join(self.groups)})"] if self.groups else []
        return " & ".join([*near, *self.marks]) or self.all

    @property
    def parts(self) -> list[str]:
        """What a text must meet, each in one piece of it."""
        return [*self.groups, self.all]


def _either(terms: Iterable[str]) -> str:
    known = [ask for term in terms if (ask := _term(term)) is not None]
    return f"({' | '.join(known)})" if known else _NEVER


def _term(term: str) -> str | None:
    """Spell a term of a question: words that follow each other, the last maybe a beginning."""
    begins = term.endswith("*")
    words = [_quote(_word(word)) for word in words_in(term)]
    if not words:
        return None
    if begins:
        words[-1] += ":*"
    return f"({' <-> '.join(words)})"


def _quote(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"


# -- answers --------------------------------------------------------------------------------


class PostgresWords:
    """Questions to the words of a tenant, from the newest back, as a source of `ranking`.

    All questions of a list are one statement.
    """

    def __init__(self, db: Db, tenant: str) -> None:
        self._db = db
        self._tenant = tenant
        self.shown: dict[str, bytes] = {}
        """The rows of the sessions of what was looked up."""

    def lists(
        self, queries: Sequence[Query], cap: int, enough: int, *, narrowing: bool = False
    ) -> Lists:
        """Return for each question the newest rows; few where there is no time for more."""
        del narrowing  # a statement that is not sent saves more than one that finds nothing
        statement = b" UNION ALL ".join(MET % number for number in range(len(queries)))
        values = [self._met(query, cap, enough) for query in queries]
        rows: list[list[Row]] = [[] for _ in queries]
        capped, back_to = False, None
        for number, is_capped, back, *row in self._db.execute(
            statement, [value for some in values for value in some]
        ):
            if row[0] is not None:
                rows[number].append(tuple(row))
            elif number == 0:
                capped, back_to = is_capped, time_column(back)
        return Lists(rows, capped, back_to)

    def _met(self, query: Query, cap: int, enough: int) -> tuple[Any, ...]:
        """Return all that one question is made of."""
        asked = TextQuery(query, self._tenant)
        near = None if asked.simple else asked.some
        return (
            *(_plain(self._tenant), asked.who, asked.full_query, near, asked.parts),
            *(" | ".join(asked.nots), part_of(query.project), part_of(query.model)),
            *(_plain(query.outcome), query.after, query.before),
            *(query.ticks_over, query.ticks_under, bool(query.wanted)),
            *(enough, cap, MAX_TITLES, BUDGET_S if enough else BUDGET_S / 2, RUN, ERA),
        )

    def look_up(self, rows: Sequence[tuple[Row, float]]) -> list[SearchMatch]:
        """Look up rows, each with its worth, that are to be shown."""
        ids = [row[0] for row, _ in rows if row[0] > 0]
        uids = list({row[1] for row, _ in rows})
        digests = [row[1] for row, _ in rows if row[3] == DIGEST]
        if not rows:
            return []
        events: dict[int, tuple[int, str | None, int]] = {}
        accounts: dict[str, bytes] = {}
        for number, uid, event, ref, seq, row, digest in self._db.execute(
            "SELECT * FROM shown(%s, %s::bigint[], %s::text[], %s::text[])",
            (_plain(self._tenant), ids, uids, digests),
        ):
            if number is not None:
                events[number] = event, ref, seq
                continue
            self.shown[uid] = row
            if digest is not None:
                accounts[uid] = digest
        out = []
        for (number, session, ts, kind, state), worth in rows:
            uid = str(session)
            if kind < 0:
                body = self.shown[uid] if kind == TITLE else accounts[uid]
                out.append(of_session(uid, ts, kind, body, worth))
            elif number in events:
                event, ref, seq = events[number]
                name, event_state = KINDS[kind], STATES[state].value
                out.append(
                    SearchMatch(uid, event, ts, name, event_state, ref, worth, seq, row=number)
                )
        return out

    def words(self, beginning: str, part: str) -> list[str]:
        """Return words of the index with a beginning, and a part; some, where there are many."""
        rows = self._db.execute(
            "SELECT * FROM words_like(%s, %s, %s, %s, %s, %s)",
            (_plain(self._tenant), _short(self._tenant), beginning, part, MIN_PART, RUN),
        )
        return sorted(word for (word,) in rows)


def _plain(value: str | None) -> str | None:
    """Return a value that the database takes; it refuses zeros and half characters."""
    return value and value.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def part_of(name: str | None) -> str | None:
    """Return what LIKE ... ESCAPE '!' takes for a part of a name that is kept in lower case."""
    return None if name is None else like(_plain(name) or "", inside=True)


MET: Final = (
    b"SELECT %d, m.* FROM met(%%s, %%s, %%s, %%s, %%s::text[], nullif(%%s, ''), %%s, %%s, %%s,"
    b" %%s::bigint, %%s::bigint, %%s::bigint, %%s::bigint, %%s, %%s, %%s, %%s, %%s, %%s, %%s) AS m"
)
