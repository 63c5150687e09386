"""Questions to a store in Postgres: conditions, orders, groups and sums in its SQL."""

from __future__ import annotations

from typing import Any, Final

from thence.memory.rows import PLACES, plain_conditions
from thence.memory.store import Filter, Group
from thence.team.postgres_search import part_of
from thence.team.postgres_text import text

PARTS: Final = "SELECT part, length(body) AS size FROM facts WHERE tenant=%s AND uid=%s"
ORDER = {
    "recent": "ended DESC NULLS LAST, id DESC",
    "oldest": "ended NULLS FIRST, id",
    "cost": "ticks DESC, id DESC",
    "tokens": "tokens DESC, id DESC",
    "size": "raw_bytes DESC, id DESC",
}
TABLE_QUERIES: dict[str, str] = {
    "digests": "SELECT sessions.uid, digests.change, digests.at, body FROM digests JOIN sessions"
    " ON sessions.tenant=digests.tenant AND sessions.uid=digests.uid"
    " WHERE {where} ORDER BY sessions.id",
    "signals": "SELECT sessions.uid, kind, body FROM signals JOIN sessions"
    " ON sessions.tenant=signals.tenant AND sessions.uid=signals.uid"
    " WHERE {where} ORDER BY signals.id",
    "spend": "SELECT sessions.uid, agent, project, day, spend.model, place, input, output,"
    " cache_creation, cache_read, cache_1h, searches, responses, spend.ticks, unpriced FROM spend"
    " JOIN sessions ON sessions.tenant=spend.tenant AND sessions.uid=spend.uid"
    " WHERE {where} ORDER BY day, sessions.uid, spend.model, place",
    "oddities": f"SELECT uid, row FROM sessions WHERE {{where}} ORDER BY {ORDER['recent']}",  # noqa: S608
}
_SLOT = (
    "(CASE length(day) WHEN 10 THEN day||'T12:00' ELSE coalesce(day, to_char("
    "to_timestamp(ended/1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI')) END)"
)
"""A slot of time; a day of an older store counts at its noon."""

GROUPS: dict[Group, str] = {
    "day": f"left({_SLOT}, 10)",
    "slot": _SLOT,
    "model": "coalesce(spend.model, sessions.model)",
    "project": "project",
    "agent": "agent",
    "session": "sessions.uid",
}


def _sum(what: str, test: str = "") -> str:
    return f"coalesce(sum({what}){test}, 0)::bigint"


SUMS = {
    "sessions": "count(DISTINCT sessions.uid)",
    **{name: _sum("spend.ticks", f" FILTER (WHERE place='{name}')") for name in PLACES},
    **{name: _sum(name) for name in ("unpriced", "input", "output", "responses")},
    "cache": _sum("cache_creation+cache_read"),
    "is_lower_bound": "coalesce(bool_or(bound), false)",
    "first_slot": "min(day)",
    "ended": "max(ended)",
}


def where_clause(tenant: str, wanted: Filter) -> tuple[str, tuple[Any, ...]]:
    """Return the conditions of a filter on the table of sessions, and their values."""
    tests: dict[str, Any] = {
        "sessions.tenant=%s": tenant,
        "lower(coalesce(project, '')) LIKE %s ESCAPE '!'": part_of(wanted.project),
        "lower(coalesce(sessions.model, '')) LIKE %s ESCAPE '!'": part_of(wanted.model),
    }
    conditions = [(test, value) for test, value in tests.items() if value is not None]
    conditions += plain_conditions(wanted, "%s")
    plain = [test for test, _ in conditions]
    values = [text(value) if isinstance(value, str) else value for _, value in conditions]
    if wanted.uid is not None:
        start = "".join(f"!{c}" if c in "!%_" else c for c in text(wanted.uid)) + "%"
        plain.append(
            "(lower(sessions.uid) LIKE lower(%s COLLATE \"C\") ESCAPE '!'"
            ' OR lower(substr(sessions.uid, length(agent)+2)) LIKE lower(%s COLLATE "C")'
            " ESCAPE '!')"
        )
        values += [start, start]
    if wanted.folder is not None:
        plain.append("(project=%s OR starts_with(project, %s))")
        folder = text(wanted.folder)
        values += [folder, f"{folder.rstrip('/')}/"]
    if wanted.uids is not None:
        plain.append("sessions.uid=ANY(%s)")
        values.append([text(uid) for uid in wanted.uids])
    if wanted.is_lower_bound:
        plain.append("bound")
    for column, is_wanted in (("evicted", wanted.evicted), ("analysed", wanted.analysed)):
        if is_wanted is not None:
            plain.append(f"{column} IS {'NOT ' if is_wanted else ''}NULL")
    return " AND ".join(plain), tuple(values)
