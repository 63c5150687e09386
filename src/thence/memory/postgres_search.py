"""The words of a store in Postgres: vectors that say what SQLite's index says, and questions.

Texts are cut into words by the tokenizer of SQLite's index itself, so that both stores hold the
same words at the same places and give the same hits; the server's own parsers, which take paths
and addresses for one word, are never asked. A vector holds no more than so many places, bytes and
occurrences: a longer text is cut into pieces, which overlap so that a phrase is not cut in two.

A search goes from the newest rows back, in steps that grow. For that every vector also holds the
number of its run of rows as a word: the index itself then narrows a common word down to some
runs, and a rare word is looked up in all of them at once. No plan goes back through the rows
themselves.

Not the same as SQLite's: words of more than `LONGEST` bytes are equal if their beginnings are; a
phrase of more than `OVERLAP` words may be missed where it crosses two pieces; of a digest the
first piece is searched.
"""

from __future__ import annotations

import heapq
import struct
import threading
import time
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
from thence.memory.index import digest_text, score, time_told
from thence.memory.search import BUDGET, CAP, Answer, Found, Query
from thence.memory.store import STATES

LONGEST: Final = 2040
"""Bytes of a word; the database takes 2,046."""

PLACES: Final = 16_000
"""Words of a piece: a vector numbers its places up to 16,383."""

OFTEN: Final = 255
"""Times that a word stands in a piece: more places of it are not kept."""

PIECE: Final = 256 << 10
"""Bytes of the words of a piece."""

OVERLAP: Final = 32
"""Words that the next piece says again."""

RUN, ERA = 12, 18
"""Bits of an event's number below the number of its run, and of the era that holds 64 runs."""

_STEP: Final = 4  # how much further each look goes than the one before
_NEVER: Final = "'!'"  # no vector holds it

Db = psycopg.Connection[Any]

_OWN = threading.local()


def _told(number: int) -> str:
    """Give a number of two bytes as text that is these bytes when it is encoded."""
    return struct.pack(">H", number).decode("ascii", "surrogateescape")


# What a packed vector says of places: each of them, and how many there are, by their size.
_PLACED: Final = [_told(place) for place in range(1, PLACES + 1)]
_COUNTS: Final = ["\0" + _told(size // 2) for size in range(2 * OFTEN + 1)]


def words_in(text: str) -> list[str]:
    """Cut a text into words, as SQLite's index does."""
    tokenizer = getattr(_OWN, "tokenizer", None)
    if tokenizer is None:
        _OWN.db = apsw.Connection(":memory:")
        tokenizer = _OWN.tokenizer = _OWN.db.fts5_tokenizer("unicode61", [])
    body = text.encode("utf-8", "replace")
    found: list[str] = tokenizer(
        body, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False
    )
    return found


def _word(word: str) -> str:
    """Cut a word off where the database would refuse it."""
    if len(word) * 4 <= LONGEST:
        return word
    return word.encode()[:LONGEST].decode(errors="ignore")


# -- vectors --------------------------------------------------------------------------------


class Vector(bytes):
    """A vector as the database itself sends it: no text that it would have to read again."""

    __slots__ = ()


class VectorDumper(Dumper):
    """Lets a vector be given to a statement."""

    oid = 3614  # tsvector, in every Postgres
    format = Format.BINARY

    def dump(self, obj: Vector) -> bytes:
        """Give it as it is."""
        return bytes(obj)


def vectors(body: str, marks: Sequence[str]) -> list[Vector]:
    """Spell a text as vectors, one a piece, each with all of the marks."""
    words = words_in(body)
    short = _short_places(words) if len(words) <= PLACES and len(body) * 4 <= PIECE else None
    pieces = _pieces(words) if short is None else [short]
    nowhere = dict.fromkeys(marks, "")
    return [_packed({**piece, **nowhere}) for piece in pieces]


def _packed(places: dict[str, str]) -> Vector:
    """Pack words and their places: how many words, then each with its end, count and places.

    No word is there twice, which the database takes on trust; it sorts them itself. There are a
    hundred thousand words in a megabyte, so no step of Python is taken for each.
    """
    counts = map(_COUNTS.__getitem__, map(len, places.values()))
    told = "".join(chain.from_iterable(zip(places, counts, places.values(), strict=True)))
    return Vector(len(places).to_bytes(4, "big") + told.encode("utf-8", "surrogateescape"))


def _short_places(words: Sequence[str]) -> dict[str, str] | None:
    """Give the places of each word of a text that is one piece, as nearly all are; None if not."""
    places: dict[str, str] = {}
    get = places.get
    for word, place in zip(words, _PLACED, strict=False):
        places[word] = get(word, "") + place
    if len(words) >= OFTEN and max(map(len, places.values())) >= 2 * OFTEN:
        return None
    return None if max(map(len, places), default=0) * 4 > LONGEST else places


def _pieces(words: Sequence[str]) -> Iterator[dict[str, str]]:
    """Give the places of words, piece by piece; one piece at least."""
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
            full = place + 1 >= PLACES or len(places) // 2 + 1 >= OFTEN or size >= PIECE
            if full and place + 1 > 2 * OVERLAP:
                break
        yield piece
        if end + 1 >= len(words):
            return
        start = end + 1 - OVERLAP


def marks_of(meta: str, tenant: str, number: int) -> list[str]:
    """Give the words by which an event is filtered, and by which its run is found."""
    who = _short(tenant)
    runs = (f"#{who}", f"@{who}.{number >> RUN}", f"^{who}.{number >> ERA}")
    return [*(_word(f"={word}") for word in meta.split()), *runs]


def digest_vector(text: str, agent: str, tenant: str) -> Vector:
    """Spell a digest as a vector."""
    return vectors(text, [f"=agent{word}" for word in words_in(agent)] + [f"#{_short(tenant)}"])[0]


@lru_cache(maxsize=64)
def _short(tenant: str) -> str:
    return blake2b(tenant.encode("utf-8", "replace"), digest_size=6).hexdigest()


# -- questions ------------------------------------------------------------------------------


class Asked:
    """A question in the words of the database."""

    def __init__(self, query: Query, tenant: str) -> None:
        who = _short(tenant)
        self.groups = [_either(group) for group in query.wanted]
        self.nots = [ask for term in query.without if (ask := _term(term)) is not None]
        self.marks = [_quoted(_word(f"={word}")) for mark in query.marks for word in words_in(mark)]
        self.all = _quoted(f"#{who}")
        self._who = who

    @property
    def simple(self) -> bool:
        """Whether each piece of a text answers for itself."""
        return len(self.groups) <= 1 and not self.nots

    def whole(self, where: str) -> str:
        """All of the question, of some runs."""
        return " & ".join([*self.groups, *self.marks, *(f"!({ask})" for ask in self.nots), where])

    def some(self, where: str) -> str:
        """What a piece must meet at least to matter."""
        near = [f"({' | '.join(self.groups)})"] if self.groups else []
        return " & ".join([*near, *self.marks, where])

    def parts(self) -> list[str]:
        """What a text must meet, each in one piece of it."""
        return [*self.groups, self.all]

    def runs(self, sign: str, numbers: Iterable[int]) -> str:
        """Name runs, or eras."""
        names = [_quoted(f"{sign}{self._who}.{number}") for number in numbers]
        return f"({' | '.join(names)})"


def _either(terms: Iterable[str]) -> str:
    known = [ask for term in terms if (ask := _term(term)) is not None]
    return f"({' | '.join(known)})" if known else _NEVER


def _term(term: str) -> str | None:
    """Spell a term of a question: words that follow each other, the last maybe a beginning."""
    begins = term.endswith("*")
    words = [_quoted(_word(word)) for word in words_in(term)]
    if not words:
        return None
    if begins:
        words[-1] += ":*"
    return f"({' <-> '.join(words)})"


def _quoted(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"


# -- answers --------------------------------------------------------------------------------


class Search:
    """One question to the words of a tenant, from the newest back."""

    def __init__(self, db: Db, tenant: str, query: Query) -> None:
        self._db = db
        self._tenant = tenant
        self._query = query
        self._asked = Asked(query, tenant)
        self._sessions = _uids(db, tenant, query) if query.narrows_sessions else None
        self._rows: dict[int, tuple[int, int, int]] = {}

    def run(self, limit: int, offset: int) -> Answer:
        """Look until there is enough, or no time left."""
        if not self._query.match:
            return Answer([])
        until = time.monotonic() + BUDGET
        back, capped = None, False
        wanted = limit + offset
        newest = _first(self._db, "SELECT max(id) FROM events WHERE tenant=%s", (self._tenant,))
        for start, where in () if newest is None else _steps(self._asked, newest):
            if capped := len(self._rows) >= CAP or (
                len(self._rows) > wanted and time.monotonic() > until
            ):
                break
            self._look(where)
            back = start
        best = heapq.nlargest(
            wanted, ((score(number, *told), number) for number, told in self._rows.items())
        )
        found = self._found(best) + self._digests()
        found.sort(key=lambda f: (-f.score, -f.ts))
        capped = capped or len(self._rows) >= CAP
        return Answer(found[offset:wanted], capped, self._since(back) if back is not None else None)

    def _look(self, where: str) -> None:
        """Take in the newest candidates of some runs, filters applied before the cap."""
        asked, query, room = self._asked, self._query, CAP - len(self._rows)
        narrow = (self._sessions, query.after, query.before, room)
        found = "found(%s, %s, %s, %s::text[], %s, %s, %s)"
        given = (self._tenant, asked.whole(where), not asked.simple, *narrow)
        self._take(found, given)
        if not asked.simple:
            found = "found_in_pieces(%s, %s, %s::text[], %s, %s::text[], %s, %s, %s)"
            nots = " | ".join(asked.nots) or None
            self._take(found, (self._tenant, asked.some(where), asked.parts(), nots, *narrow))

    def _take(self, found: str, given: tuple[Any, ...]) -> None:
        rows = self._db.execute(
            # One look for each, by its key: a join may rather read all events.
            f"SELECT f.id, e.ts, e.kind, e.state FROM {found} AS f CROSS JOIN LATERAL"  # noqa: S608
            " (SELECT ts, kind, state FROM events WHERE tenant=%s AND uid=f.uid"
            " AND event_id=f.event_id LIMIT 1) AS e",
            (*given, self._tenant),
        )
        for number, *told in rows.fetchall():
            self._rows[number] = tuple(told)

    def _found(self, best: Sequence[tuple[float, int]]) -> list[Found]:
        """Look up the events that are to be shown."""
        numbers = [number for _, number in best]
        rows = self._db.execute(
            "SELECT id, uid, event_id, ts, kind, state, ref FROM events"
            " WHERE tenant=%s AND id=ANY(%s)",
            (self._tenant, numbers),
        ).fetchall()
        told = {number: more for number, *more in rows}
        out = []
        for worth, number in best:
            if number in told:
                uid, event, ts, kind, state, ref = told[number]
                name, what = KINDS[kind], STATES[state].value
                out.append(Found(uid, event, ts, name, what, ref, worth, row=number))
        return out

    def _since(self, number: int) -> str | None:
        ts = _first(
            self._db,
            "SELECT ts FROM events WHERE tenant=%s AND id>=%s AND ts>0 ORDER BY id LIMIT 1",
            (self._tenant, number),
        )
        return time_told(ts)

    def _digests(self) -> list[Found]:
        """Sessions whose events are gone are found by their digest."""
        rows = self._db.execute(
            "SELECT uid, ended, body FROM found_digests(%s, %s, 50)",
            (self._tenant, self._asked.whole(self._asked.all)),
        )
        return [
            Found(uid, None, ended or 0, "digest", None, None, 1.0, text=digest_text(body))
            for uid, ended, body in rows.fetchall()
        ]


def _steps(asked: Asked, newest: int) -> Iterator[tuple[int, str]]:
    """Give runs from the newest back, each step further: where it starts, and their names.

    After a full era of single runs the steps go by eras: by then a word that has not filled the
    answer is rare enough.
    """
    runs = 1 << (ERA - RUN)
    run, count = newest >> RUN, 1
    # Down to the start of the era before: between one era and two.
    last = max(((newest >> ERA) - 1) * runs, 0)
    while run >= last:
        low = max(run - count + 1, last)
        yield low << RUN, asked.runs("@", range(low, run + 1))
        run, count = low - 1, count * _STEP
    era, count = (last // runs) - 1, 1
    while era >= 0:
        low = max(era - count + 1, 0)
        yield low << ERA, asked.runs("^", range(low, era + 1))
        era, count = low - 1, min(count * _STEP, 1024)


def _uids(db: Db, tenant: str, query: Query) -> list[str]:
    """Give the sessions that a question is about."""
    tests: dict[str, Any] = {
        "position(lower(%s COLLATE \"C\") IN lower(coalesce(project, '')))>0": query.project,
        "position(lower(%s COLLATE \"C\") IN lower(coalesce(model, '')))>0": query.model,
        "outcome=%s": query.outcome,
        "ended>=%s": query.after,
        "started<%s": query.before,
        "ticks>%s": query.ticks_over,
        "ticks<%s": query.ticks_under,
    }
    asked = {test: value for test, value in tests.items() if value is not None}
    rows = db.execute(
        f"SELECT uid FROM sessions WHERE tenant=%s AND {' AND '.join(asked)}",  # noqa: S608
        (tenant, *(_plain(value) for value in asked.values())),
    )
    return [uid for (uid,) in rows.fetchall()]


def _plain(value: Any) -> Any:
    """Give a value that the database takes; it refuses a text with a zero in it."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


def _first(db: Db, sql: str, given: tuple[Any, ...]) -> Any:
    found = db.execute(sql, given).fetchone()
    return None if found is None else found[0]
