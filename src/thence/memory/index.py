"""The words of a store in SQLite: FTS5 tables of bounded size, and questions to them.

A full table is followed by a new one, so that evicting a session rewrites no more than the tables
it stands in, and a search may stop at any table, going back from the newest. Rows of the index are
numbered as rows of events are. The numbers rise with the time of sessions, so that a search may go
by them: what is new is numbered above all others, what a first sweep reads later, since it is
older, below them. Each table has a range of numbers, from its `first` up to that of the next.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import apsw
import msgspec

from thence.format.normal import DERIVED, KINDS, kind_bit
from thence.format.records import JSON, time_text
from thence.memory.cjk_pairs import index_text
from thence.memory.packs import full_ref
from thence.memory.ranking import DIGEST, TITLE, Lists, Row
from thence.memory.search import BUDGET_S, Query, SearchMatch, token
from thence.memory.store import STATES, SessionChange

TABLE_BYTES = 32 << 20
"""Text that one table of the index holds; evicting a session rewrites no more than that."""

MAX_TITLES = 50
"""Sessions that one search finds by their titles, and by their digests."""

PROBED_TERMS = 3
"""Terms of a question from which on the longest is looked for first."""

WORDS_BUDGET_S = 0.05
"""Seconds after which words that are like one that nothing has are looked for no further back."""

ROW_S = 1.5e-6
"""Seconds that it takes to rank a row, which are part of the budget."""

FIRST_ROW = 1 << 27
"""The number of the first row of a store: as many fit below, for sessions that are older."""

_MERGE_AT_DELETED_PERCENT = (
    10  # percent of a table that may be marked as deleted, unless many go at once
)


MIGRATION = "ALTER TABLE events ADD COLUMN implied INTEGER NOT NULL DEFAULT 0"
"""FROZEN: adds the kinds of events that are derived from each one; then `note_tokens` is due."""


TITLES_MIGRATION = """
    CREATE VIRTUAL TABLE title_words USING fts5(
        body, meta, content='', contentless_delete=1, tokenize='unicode61'
    );
    INSERT INTO title_words(title_words, rank) VALUES('secure-delete', 1);
"""
"""FROZEN: adds the words of titles; then `index_digests_again` is due."""


def index_digests_again(db: apsw.Connection) -> None:
    """Index digests by pairs of characters; without events nothing else would."""
    digests = "SELECT session, body, agent FROM digests JOIN sessions ON id=session"
    for session, body, agent in every(db, digests):
        text = digest_text(body)
        if (indexed := index_text(text)) == text:
            continue
        db.execute("DELETE FROM digest_words WHERE rowid=?", (session,))
        insert = "INSERT INTO digest_words(rowid, body, meta) VALUES(?,?,?)"
        db.execute(insert, (session, indexed, f"agent{agent}"))


def note_tokens(db: apsw.Connection) -> None:
    """Note with events the derived kinds that their words have tokens of.

    So whoever finds other kinds knows which words to index again.
    """
    for (name,) in every(db, "SELECT name FROM tables"):
        for kind in DERIVED:
            db.execute(
                f"UPDATE events SET implied=implied|{kind_bit(kind)}"  # noqa: S608 - our own names
                f" WHERE id IN (SELECT rowid FROM {name} WHERE {name} MATCH ?)",
                (f'meta : "kind{token(kind)}"',),
            )


class WordIndex:
    """The tables of the index, inside one transaction."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        self.next_id = (first(db, "SELECT max(id) FROM events") or FIRST_ROW - 1) + 1

    def arrange(self, changes: Sequence[SessionChange]) -> list[tuple[SessionChange, int]]:
        """Return changes in the order of their rows, each with the number of its first row.

        A table takes rows of rising numbers cheaply: of sessions that go below all others, of
        which the newest comes first, the last one is written first. A number of 0 leaves it to
        `place`.
        """
        older: dict[str, SessionChange] = {}
        for change in changes:
            uid = change.row.session.session_uid
            stored = "SELECT 1 FROM sessions WHERE uid=?"
            if change.older and uid not in older and not first(self._db, stored, uid):
                older[uid] = change
        sizes = {uid: max(len(change.events), change.room) for uid, change in older.items()}
        lowest = first(self._db, "SELECT min(id) FROM events") or FIRST_ROW
        start = lowest - sum(sizes.values())
        if start < 1:
            return [(change, 0) for change in changes]
        arranged = []
        for uid, change in reversed(older.items()):
            arranged.append((change, start))
            start += sizes[uid]
        rest = (c for c in changes if older.get(c.row.session.session_uid) is not c)
        return arranged + [(change, 0) for change in rest]

    def place(self, session: int, change: SessionChange) -> int:
        """Return the number of the first row: after the session's own if there is room, or last."""
        if change.older:
            last = "SELECT max(id) FROM events WHERE session=? AND NOT derived"
            start = (first(self._db, last, session) or self.next_id) + 1
            other = first(self._db, "SELECT min(id) FROM events WHERE id>=?", start)
            if other is not None and start + len(change.events) <= other:
                return int(start)
        return self.next_id

    def add(self, rows: Iterable[tuple[int, str, str]]) -> None:
        """Index texts by the row of their event, in the order of these."""
        batch: list[tuple[int, str, str]] = []
        name, size, is_last = "", 0, False
        for number, text, meta in rows:
            if not name:
                name, size, is_last = self._table(number)
            body = index_text(text)
            batch.append((number, body, meta))
            size += len(body)
            if is_last and size >= TABLE_BYTES:
                self._flush(name, batch, size)
                batch, name = [], ""
        if batch:
            self._flush(name, batch, size)

    def replace(self, row: int, body: str, meta: str) -> None:
        """Index the text of a row that has one already, or lies among others that have."""
        holder = "SELECT name FROM tables WHERE first<=? ORDER BY first DESC LIMIT 1"
        name = first(self._db, holder, row)
        if name is None:
            self.add([(row, body, meta)])
            return
        self._db.execute(f"DELETE FROM {name} WHERE rowid=?", (row,))  # noqa: S608
        insert = f"INSERT INTO {name}(rowid, body, meta) VALUES(?,?,?)"
        self._db.execute(insert, (row, index_text(body), meta))

    def _table(self, row: int) -> tuple[str, int, bool]:
        """Return the table of a row, the bytes of its text, and whether no other comes after it."""
        tables = every(self._db, "SELECT name, bytes, first FROM tables ORDER BY first")
        at = bisect_right(tables, row, key=lambda table: int(table[2])) - 1
        is_last = at == len(tables) - 1
        if at < 0 and tables and tables[0][1] < TABLE_BYTES:
            name, size, _ = tables[0]
            self._db.execute("UPDATE tables SET first=? WHERE name=?", (row, name))
            return name, size, False
        if at < 0 or (is_last and tables[at][1] >= TABLE_BYTES):
            self._begin(row)
            return self._table(row)
        return tables[at][0], tables[at][1], is_last

    def _flush(self, name: str, batch: list[tuple[int, str, str]], size: int) -> None:
        insert = f"INSERT INTO {name}(rowid, body, meta) VALUES(?,?,?)"
        self._db.executemany(insert, batch)
        self._db.execute("UPDATE tables SET bytes=? WHERE name=?", (size, name))

    def _begin(self, start: int) -> None:
        db = self._db
        last = first(db, "SELECT max(name) FROM tables") or "_0"
        name = f"words_{int(last.rpartition('_')[2]) + 1:06d}"
        db.execute(
            f"CREATE VIRTUAL TABLE {name} USING fts5(body, meta, content='',"
            " contentless_delete=1, tokenize='unicode61')"
        )
        # Few large pieces come from a first sweep: putting them together gains nothing.
        for setting in (f"'hashsize', {TABLE_BYTES}", "'secure-delete', 1", "'automerge', 8"):
            db.execute(f"INSERT INTO {name}({name}, rank) VALUES({setting})")
        db.execute("INSERT INTO tables VALUES(?, 0, ?)", (name, start))

    def drop(self, session: int, events: Iterable[int]) -> None:
        """Take out single events, rows and words."""
        db = self._db
        tables = every(db, "SELECT name, first FROM tables ORDER BY first DESC")
        for event in events:
            row = first(
                db, "DELETE FROM events WHERE session=? AND event_id=? RETURNING id", session, event
            )
            name = next((name for name, start in tables if row is not None and start <= row), None)
            if name is not None:
                db.execute(f"DELETE FROM {name} WHERE rowid=?", (row,))  # noqa: S608

    def delete(self, sessions: Iterable[int]) -> set[str]:
        """Take sessions' words out; the tables that were touched and still hold others.

        The rows of their events must still be there. A table that holds nothing else goes as a
        whole; of the others, words are only marked, and gone when the table is optimised.
        """
        db = self._db
        tables = every(db, "SELECT name, first FROM tables ORDER BY first")
        starts = [start for _, start in tables]
        going: dict[int, array[int]] = {}
        for session in sessions:
            for (row,) in db.execute("SELECT id FROM events WHERE session=?", (session,)):
                at = bisect_right(starts, row) - 1
                going.setdefault(at, array("q")).append(row)
        going.pop(-1, None)  # before the first table: events without a word
        touched: set[str] = set()
        for at, rows in going.items():
            name = tables[at][0]
            count_rows = "SELECT count(*) FROM events WHERE id>=? AND id<?"
            if at + 1 < len(tables) and first(db, count_rows, *starts[at : at + 2]) == len(rows):
                db.execute(f"DROP TABLE {name}")
                db.execute("DELETE FROM tables WHERE name=?", (name,))
                continue
            # Left to itself FTS5 writes the table anew whenever a tenth of it is marked.
            merges = f"INSERT INTO {name}({name}, rank) VALUES('deletemerge', ?)"
            db.execute(merges, (0,))
            db.executemany(f"DELETE FROM {name} WHERE rowid=?", ((row,) for row in rows))  # noqa: S608
            db.execute(merges, (_MERGE_AT_DELETED_PERCENT,))
            touched.add(name)
        return touched


class SqliteWords:
    """Questions to the tables of the index, from the newest back, as a source of `ranking`."""

    def __init__(self, db: apsw.Connection, query: Query) -> None:
        self._db = db
        self._sessions = _session_ids(db, query) if query.narrows_sessions else None
        self._has_digests = bool(
            first(db, "SELECT 1 FROM sessions WHERE evicted IS NOT NULL LIMIT 1")
        )
        self._lacking: dict[str, set[str]] = {}
        """Tables that are known to lack a term."""
        self._row_count = 0
        self._until = time.monotonic() + BUDGET_S
        self._words_until = self._until + WORDS_BUDGET_S

    def lists(
        self, queries: Sequence[Query], cap: int, enough: int, *, narrowing: bool = False
    ) -> Lists:
        """Return for each question the newest rows; few where there is no time for more."""
        until = self._until if enough else self._until - BUDGET_S / 2
        tables = every(self._db, "SELECT name, first FROM tables ORDER BY first DESC")
        lists: list[list[Row]] = []
        is_small = len(tables) == 1  # then the answer never depends on the clock
        capped, furthest = False, None
        for query in queries:
            rows: list[Row] = []
            back: int | None = None
            is_cut, having = False, []
            for name, start in tables:
                # What narrows only puts the answers in another order.
                is_enough = len(rows) >= enough or (narrowing and bool(lists))
                late = is_enough and time.monotonic() + ROW_S * self._row_count > until
                is_first = back is None and (enough >= 0 or is_small)
                if is_cut := (late and not is_first) or len(rows) >= cap:
                    break
                some = [] if self._lacks(name, query) else self._table(name, query, cap - len(rows))
                self._row_count += len(some)
                having += [(name, start)] if some else []
                rows += some
                back = start
            if not lists:  # the first question is the one that the answer tells of
                furthest, capped = back, is_cut or len(rows) >= cap
                tables = having if narrowing else tables
            lists.append([*rows, *self._titles(query), *self._digests(query)])
        since = "SELECT ts FROM events WHERE id>=? AND ts>0 LIMIT 1"
        back_to = None if furthest is None else time_column(first(self._db, since, furthest))
        return Lists(lists, capped, back_to)

    def _lacks(self, name: str, query: Query) -> bool:
        """Return whether a table is known to lack a term that all answers have.

        Of many terms the longest is looked for by itself: where it is nowhere, as the path of an
        error mostly is, the index need not go through the other ones.
        """
        needed = [group[0] for group in query.wanted if len(group) == 1]
        if any(name in self._lacking.get(term, ()) for term in needed):
            return True
        if len(needed) < PROBED_TERMS:
            return False
        rarest = max(needed, key=len)
        match = f"SELECT 1 FROM {name} WHERE {name} MATCH ? LIMIT 1"  # noqa: S608 - our own name
        is_lacking = first(self._db, match, rarest) is None
        if is_lacking:
            self._lacking.setdefault(rarest, set()).add(name)
        return is_lacking

    def _table(self, name: str, query: Query, cap: int) -> list[Row]:
        """Return the newest rows of one table, filters applied before the cap."""
        tests, values = [f"{name} MATCH ?"], [query.match]
        if self._sessions is not None:
            marks = ",".join(map(str, self._sessions)) or "NULL"
            tests.append(f"e.session IN ({marks})")
        for test, value in (("e.ts>=?", query.after), ("e.ts<?", query.before)):
            if value is not None:
                tests.append(test)
                values.append(f"{value}")
        if (kind := query.derived) is not None:
            # Words of a text that is lost may have a token of a kind that it no longer implies.
            tests.append(f"(e.implied & {kind_bit(kind)} OR e.kind={KINDS.index(kind)})")
        sql = (
            f"SELECT e.id, e.session, e.ts, e.kind, e.state FROM {name}"  # noqa: S608
            f" JOIN events AS e ON e.id={name}.rowid WHERE {' AND '.join(tests)}"
            f" ORDER BY {name}.rowid DESC LIMIT {cap}"
        )
        return every(self._db, sql, *values)

    def look_up(self, rows: Sequence[tuple[Row, float]]) -> list[SearchMatch]:
        """Look up rows, each with its worth, that are to be shown."""
        numbers = ",".join(str(row[0]) for row, _ in rows if row[3] >= 0)
        sql = (
            "SELECT e.id, s.uid, e.event_id, e.ref, e.seq FROM events AS e"  # noqa: S608 - numbers
            f" JOIN sessions AS s ON s.id=e.session WHERE e.id IN ({numbers or 'NULL'})"
        )
        events = {number: about for number, *about in every(self._db, sql)}
        out = []
        for (number, session, ts, kind, state), worth in rows:
            if kind < 0:
                out.append(self._session(int(session), ts, kind, worth))
                continue
            uid, event, ref, seq = events[number]
            ref = None if ref is None else full_ref(ref, uid)
            name, state_name = KINDS[kind], STATES[state].value
            out.append(
                SearchMatch(
                    *(uid, event, ts, name, state_name, ref, worth, seq),
                    row=number,
                    session=int(session),
                )
            )
        return out

    def _session(self, session: int, ts: int, kind: int, worth: float) -> SearchMatch:
        body = "d.body" if kind == DIGEST else "s.row"
        [(uid, text)] = every(
            self._db,
            f"SELECT s.uid, {body} FROM sessions AS s"  # noqa: S608 - one of two columns
            " LEFT JOIN digests AS d ON d.session=s.id WHERE s.id=?",
            session,
        )
        return of_session(uid, ts, kind, text, worth)

    def words(self, beginning: str, part: str) -> list[str]:
        """Return words of the index with a beginning, and a part; some, where there are many."""
        out: set[str] = set()
        end = f"{beginning[:-1]}{chr(ord(beginning[-1]) + 1)}" if beginning else ""
        tables = every(self._db, "SELECT name FROM tables ORDER BY first DESC")
        for at, (name,) in enumerate(tables):
            if at and time.monotonic() > self._words_until:
                break  # the newest are always looked at
            words = f"temp.vocabulary_{name}"
            self._db.execute(
                f"CREATE VIRTUAL TABLE IF NOT EXISTS {words} USING fts5vocab(main, {name}, row)"
            )
            tests = ["instr(term, ?)"] if part else ["term>=?", "term<?"]
            values = [part] if part else [beginning, end]
            sql = f"SELECT term FROM {words} WHERE {' AND '.join(tests)}"  # noqa: S608
            out.update(term for (term,) in every(self._db, sql, *values))
        return sorted(out)

    def _titles(self, query: Query) -> list[Row]:
        """Return the sessions whose title, made by the client or the user, has the words."""
        if not query.wanted:
            return []
        rows = self._whole_sessions(query, "title_words", "s.evicted IS NULL")
        return [(-2 * number, number, ended or 0, TITLE, 0) for number, ended in rows]

    def _digests(self, query: Query) -> list[Row]:
        """Sessions whose events are gone are found by their digest."""
        if not self._has_digests:
            return []
        rows = self._whole_sessions(query, "digest_words", "s.evicted IS NOT NULL")
        return [(-2 * number - 1, number, ended or 0, DIGEST, 0) for number, ended in rows]

    def _whole_sessions(self, query: Query, table: str, test: str) -> list[tuple[int, int | None]]:
        """Return the newest sessions whose words in a table answer, and when each ended."""
        tests = [f"{table} MATCH ?", test]
        if self._sessions is not None:
            tests.append(f"s.id IN ({','.join(map(str, self._sessions)) or 'NULL'})")
        return every(
            self._db,
            f"SELECT s.id, s.ended FROM {table} AS w JOIN sessions AS s ON s.id=w.rowid"  # noqa: S608
            f" WHERE {' AND '.join(tests)} ORDER BY w.rowid DESC LIMIT {MAX_TITLES}",
            query.match,
        )


def _session_ids(db: apsw.Connection, query: Query) -> list[int]:
    """Return the sessions that a question is about."""
    tests: dict[str, Any] = {
        "instr(lower(ifnull(project, '')), lower(?))>0": query.project,
        "instr(lower(ifnull(model, '')), lower(?))>0": query.model,
        "outcome=?": query.outcome,
        "ended>=?": query.after,
        "started<?": query.before,
        "ticks>?": query.ticks_over,
        "ticks<?": query.ticks_under,
    }
    asked = {test: value for test, value in tests.items() if value is not None}
    sql = f"SELECT id FROM sessions WHERE {' AND '.join(asked)}"  # noqa: S608
    return [number for (number,) in every(db, sql, *asked.values())]


def narrowed_ids(db: apsw.Connection, query: Query) -> frozenset[int] | None:
    """Return the sessions that the filters of a question leave; None for all."""
    wanted = frozenset(_session_ids(db, query)) if query.narrows_sessions else None
    if query.agent is None:
        return wanted
    rows = every(db, "SELECT id FROM sessions WHERE agent=?", query.agent)
    own = frozenset(number for (number,) in rows)
    return own if wanted is None else own & wanted


def digest_text(body: bytes) -> str:
    """Return all that a digest says."""
    return "\n".join(_strings(msgspec.msgpack.decode(body)))


def _strings(value: JSON) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def of_session(uid: str, ts: int, kind: int, body: bytes, worth: float) -> SearchMatch:
    """Return a session as found by its title, or by its digest."""
    if kind == TITLE:
        title = _TITLE.decode(body).title
        return SearchMatch(uid, None, ts, "title", None, None, worth, text=title)
    return SearchMatch(uid, None, ts, "digest", None, None, worth, text=digest_text(body))


class _Titled(msgspec.Struct):
    title: str = ""


_TITLE = msgspec.msgpack.Decoder(_Titled)


# -- small things ---------------------------------------------------------------------------


def every(db: apsw.Connection, sql: str, *values: Any) -> list[Any]:
    """Return all rows at once, so that no reader stays open behind."""
    return db.execute(sql, values).fetchall()


def first(db: apsw.Connection, sql: str, *values: Any) -> Any:
    """Return the first column of the first row; None when there is none."""
    row = db.execute(sql, values).fetchone()
    return None if row is None else row[0]


def time_column(millis: int | None) -> str | None:
    """Return a time as text; lists have thousands, and most share their minute with others."""
    if millis is None:
        return None
    minute, rest = divmod(millis, 60_000)
    start = _minute_text(minute)
    return f"{start}{rest // 1000:02}.{rest % 1000:03}Z" if start else ""


@lru_cache(maxsize=4096)
def _minute_text(minute: int) -> str:
    """Return a minute since 1970 up to its seconds, `2026-01-31T13:45:`; empty if it is no time."""
    return str(time_text(minute * 60))[:17]
