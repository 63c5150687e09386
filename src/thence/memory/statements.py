"""Questions to a store that is a database, written once for SQLite and for Postgres.

What the two spell differently is a `Dialect`. A store inherits `SqlReads`, which asks with its
`_every`; a statement for rows that only one of them has stays with that store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from thence.format.facts import Edge
from thence.format.records import JSON
from thence.memory.index import time_column
from thence.memory.rows import NAMES, PLACES, ROW, SHARES, oddities, plain_conditions, with_marks
from thence.memory.store import Filter, Group, SessionRow, Tier2, Total

INVENTORY: Final = (
    "SELECT uid, cursor, change, redactor, reader, path, gone, pinned, raw_bytes, ended,"
    " ingested, analysed, evicted, fold, digest FROM sessions"
)
"""What a sweep must know of every session; `rows.inventory` reads it."""

_TABLES: Final = {
    "digests": "sessions.uid, digests.change, digests.at, body",
    "signals": "sessions.uid, kind, body",
    "spend": "sessions.uid, agent, project, day, spend.model, place, input, output, cache_creation,"
    " cache_read, cache_1h, searches, responses, spend.ticks, unpriced",
}
"""What `read_table` reads of each table: the columns of `rows.NAMES`."""


class Dialect(NamedTuple):
    """What one database spells otherwise than another."""

    mark: str
    """Stands for a value."""
    of_session: str
    """Whether a row of the table `{table}` is of a row of sessions."""
    signals: str
    """Sessions joined with their signals, without the condition."""
    minute_of_end: str
    """The minute in which a session ended, as spend has it in `day`."""
    session_key: str
    """By what the sums of each session are grouped."""
    machine: str
    """The machine that wrote a row of sessions, where a store has several."""
    is_bound: str
    """Whether the cost of one of some sessions is a minimum."""
    orders: dict[str, str]
    """In which order `read_table` yields the rows of a table."""


def _sum(what: str, test: str = "") -> str:
    # Cast, because Postgres adds up to a type without bounds.
    return f"CAST(coalesce(sum({what}){test}, 0) AS bigint)"


_SUMS: Final = {
    "sessions": "count(DISTINCT sessions.id)",
    **{name: _sum("spend.ticks", f" FILTER (WHERE place='{name}')") for name in PLACES},
    **{name: _sum(name) for name in ("unpriced", "input", "output")},
    "cache": _sum("cache_creation+cache_read"),
    "responses": _sum("responses"),
}


class SqlReads:
    """What is read the same way from every database."""

    dialect: Dialect

    def _every(self, statement: str, *values: Any) -> list[Any]:
        """Return all rows that a statement yields."""
        raise NotImplementedError

    def _where(self, wanted: Filter) -> tuple[str, tuple[Any, ...]]:
        """Return the conditions of a filter on the table of sessions, and their values."""
        tests, values = conditions(wanted, self.dialect.mark)
        return " AND ".join(tests) or "1=1", tuple(values)

    def _listed(self, row: SessionRow, machine: str | None) -> SessionRow:  # noqa: ARG002
        """Return a row that a machine wrote as it may be listed."""
        return row

    def sessions(self, wanted: Filter = Filter()) -> Iterator[SessionRow]:  # noqa: B008
        """List sessions."""
        where, values = self._where(wanted)
        limit = "" if wanted.limit is None else f" LIMIT {wanted.limit} OFFSET {wanted.offset}"
        machine, order = self.dialect.machine, _ORDERS[wanted.order]
        rows = self._every(
            "SELECT row, discovered, ingested, analysed, evicted, outcome, pinned, raw_bytes,"  # noqa: S608
            f" {machine} FROM sessions WHERE {where} ORDER BY {order}{limit}",
            *values,
        )
        for row, *marks, machine in rows:
            yield self._listed(with_marks(ROW.decode(row), *marks), machine)

    def read_table(self, what: Tier2, wanted: Filter = Filter()) -> Iterator[dict[str, JSON]]:  # noqa: B008
        """Yield what tier 2 keeps of the sessions that are wanted, each with its `uid`."""
        if what == "removals":
            for at, kind, body in self._removals():
                yield {"at": at, "what": kind, **msgspec.json.decode(body)}
            return
        where, values = self._where(wanted)
        if what == "oddities":
            sql = f"SELECT uid, row FROM sessions WHERE {where} ORDER BY {_ORDERS['recent']}"  # noqa: S608
            yield from oddities(self._every(sql, *values))
            return
        joined = self.dialect.signals if what == "signals" else f"{what} JOIN sessions"
        rows = self._every(
            f"SELECT {_TABLES[what]} FROM {joined} ON {self._of_session(what)}"  # noqa: S608
            f" WHERE {where} ORDER BY {self.dialect.orders[what]}",
            *values,
        )
        for row in rows:
            entry = dict(zip(NAMES[what], row, strict=True))
            body = entry.pop("body", None)
            yield {**entry, **(msgspec.msgpack.decode(body) if body is not None else {})}

    def _removals(self) -> list[Any]:
        # A method of its own: a store of several tenants leaves out those of others.
        return self._every("SELECT at, what, body FROM removals ORDER BY id")

    def _of_session(self, table: str) -> str:
        return self.dialect.of_session.format(table=table)

    def totals(self, by: Sequence[Group] = (), wanted: Filter = Filter()) -> list[Total]:  # noqa: B008
        """Add up what sessions took; of a time that is asked for, what was spent in its days."""
        where, values = self._where(wanted)
        groups = self._groups()
        tests, times = [where], list[str]()
        for test, moment in ((">=", wanted.after), ("<", wanted.before)):
            if moment is not None:
                tests.append(f"{groups['slot']}{test}{self.dialect.mark}")
                times.append((time_column(moment) or "")[:16])
        keys = ", ".join(groups[name] for name in by)
        named = {**groups, "session": self.dialect.session_key}
        order = ", ".join(named[name] for name in by)
        rows = self._every(self._sums(keys, order, " AND ".join(tests)), *values, *times)
        sizes: dict[tuple[Any, ...], int] = {}
        if {"day", "slot", "model"}.isdisjoint(by):
            sizes = self._sizes(keys, order, where, values)
        out: list[Total] = []
        for row in rows:
            key = tuple(row[: len(by)])
            *sums, is_bound, first_slot, ended = row[len(by) :]
            size = sizes.get(key, 0)
            out.append(Total(key, *sums, bool(is_bound), first_slot, ended, size))  # type: ignore[call-arg] # the order of _figures
        return out

    def _groups(self) -> dict[Group, str]:
        # A day of an older store has no minute; it counts at its noon.
        slot = (
            "(CASE length(day) WHEN 10 THEN day||'T12:00'"
            f" ELSE coalesce(day, {self.dialect.minute_of_end}) END)"
        )
        return {
            "day": f"substr({slot}, 1, 10)",
            "slot": slot,
            "model": "coalesce(spend.model, sessions.model)",
            "project": "project",
            "agent": "agent",
            "session": "sessions.uid",
        }

    def _figures(self) -> dict[str, str]:
        """Return the figures of a `Total`, in the order of its fields."""
        is_bound = self.dialect.is_bound
        return {
            **_SUMS,
            "is_lower_bound": is_bound,
            "first_slot": "min(day)",
            "ended": "max(ended)",
        }

    def _sums(self, keys: str, order: str, where: str) -> str:
        """Return the statement that adds up what was spent, by keys."""
        sql = (
            f"SELECT {keys}{keys and ', '}{', '.join(self._figures().values())} FROM sessions"  # noqa: S608
            f" LEFT JOIN spend ON {self._of_session('spend')} WHERE {where}"
        )
        return f"{sql} GROUP BY {order}" if keys else sql

    def _sizes(
        self, keys: str, order: str, where: str, values: tuple[Any, ...]
    ) -> dict[tuple[Any, ...], int]:
        """Return what sessions take in tier 1, by the same keys."""
        group = f" GROUP BY {order}" if keys else ""
        sql = f"SELECT {_sum('raw_bytes')}{keys and ', '}{keys} FROM sessions WHERE {where}{group}"  # noqa: S608
        return {tuple(key): size for size, *key in self._every(sql, *values)}


_ORDERS: Final = {
    # SQLite's own order of absent times, which Postgres has to be told.
    "recent": "ended DESC NULLS LAST, uid DESC",
    "oldest": "ended NULLS FIRST, uid",
    "cost": "ticks DESC, uid DESC",
    "tokens": "tokens DESC, uid DESC",
    "size": "raw_bytes DESC, uid DESC",
}

_LOWER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def like(name: str, *, inside: bool = False) -> str:
    """Return what `LIKE ... ESCAPE '!'` takes for names that begin so, or have this inside.

    Upper and lower case are those of ASCII in both databases, so not those of Python.
    """
    spelled = "".join(f"!{c}" if c in "!%_" else c for c in name).translate(_LOWER)
    return f"%{spelled}%" if inside else f"{spelled}%"


def conditions(wanted: Filter, mark: str) -> tuple[list[str], list[Any]]:
    """Return the conditions of a filter on the table of sessions, and their values."""
    plain = plain_conditions(wanted, mark)
    tests, values = [test for test, _ in plain], [value for _, value in plain]
    for column, part in (("project", wanted.project), ("sessions.model", wanted.model)):
        if part is not None:
            tests.append(f"lower(coalesce({column}, '')) LIKE {mark} ESCAPE '!'")
            values.append(like(part, inside=True))
    if wanted.uid is not None:
        names = ("sessions.uid", "substr(sessions.uid, length(agent)+2)")
        either = " OR ".join(f"lower({name}) LIKE {mark} ESCAPE '!'" for name in names)
        tests.append(f"({either})")
        values += [like(wanted.uid)] * 2
    if wanted.folder is not None:
        # A range, which an index answers; 0 comes after / in ASCII.
        tests.append(f"(project={mark} OR (project>{mark} AND project<{mark}))")
        below = wanted.folder.rstrip("/")
        values += [wanted.folder, f"{below}/", f"{below}0"]
    if wanted.uids is not None:
        tests.append(f"sessions.uid IN ({','.join([mark] * len(wanted.uids)) or 'NULL'})")
        values += wanted.uids
    if wanted.is_lower_bound:
        tests.append("bound")
    for column, is_wanted in (("evicted", wanted.evicted), ("analysed", wanted.analysed)):
        if is_wanted is not None:
            tests.append(f"{column} IS {'NOT ' if is_wanted else ''}NULL")
    return tests, values


def shared(
    shares: bytes | None,
) -> tuple[frozenset[str], frozenset[str], tuple[Edge, ...]]:
    """Return which records and bills of a session others own, and its ties to them."""
    return SHARES.decode(shares) if shares else (frozenset(), frozenset(), ())
