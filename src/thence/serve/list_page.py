"""Sessions: where was that session? Searched, filtered, sorted, by their days."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta, tzinfo
from typing import Final
from urllib.parse import urlencode

import msgspec
from markupsafe import Markup, escape

from thence.format.figures import clean, money, several
from thence.memory.ancestry import nest_by_ancestry
from thence.memory.cost_totals import totals_by_day
from thence.memory.labels import stored_agent, with_tagged
from thence.memory.local_days import midnight, millis, zone_label
from thence.memory.notes import matching_notes
from thence.memory.ranking import session_filter
from thence.memory.search import (
    MAX_ROWS,
    OPEN,
    OUTCOME_NAMES,
    OUTCOME_WORDS,
    BadQuery,
    Hit,
    Query,
    SearchMatch,
    hits,
    moment,
    named,
    parse,
)
from thence.memory.session_status import open_sessions
from thence.memory.store import Filter, SessionRow, Total
from thence.serve.agents import agent_label
from thence.serve.cards import SessionCard, Snippet, card
from thence.serve.clock import DisplayClock
from thence.serve.context import AppContext
from thence.serve.project_names import unique_labels
from thence.serve.session_head import NoteLine, address, note_line

PAGE_SESSIONS: Final = 50
"""Sessions of one page of the list."""
SNIPPET_LEAD_CHARS: Final = 32
"""Characters of a snippet before its match."""
MAX_SNIPPETS: Final = 3
"""Matches of one session that are shown."""
MAX_REMARKS: Final = 3
MAX_SUGGESTIONS: Final = 7
"""Sessions that the box at the top lists while somebody types."""
# Every page has these lists, and they change with new projects only.
OPTIONS_MAX_AGE_S: Final = 10.0
"""Seconds for which the lists of projects and models are used again."""
SORTS: Final = {"recent": "Newest", "cost": "Cost", "tokens": "Tokens"}
SYNTAX: Final = (
    ("agent", "agent:codex", "sessions of one agent"),
    ("project", "project:tidepool", "part of the folder's path"),
    ("model", "model:opus", "part of the model's name"),
    ("tool", "tool:Bash", "calls of one tool"),
    ("kind", "kind:error", "events of one kind"),
    ("file", "file:src/app*", "files that were read or changed"),
    ("before", "before:2026-02", "before a date, or 7d for a week ago"),
    ("after", "after:2026-01-31", "since a date"),
    ("outcome", "outcome:failed", "done, failed, abandoned, waiting, unclear"),
    ("tag", "tag:release", "sessions that you tagged"),
    ("cost", "cost>1.50", "sessions that cost more (or <) dollars"),
)
"""The filters of a query: name, an example, what it does."""
_RULER: Final = re.compile(r"([-_=*~#.])\1{3,}")
"""A line that a program drew; a few of its signs say as much."""
_OUTCOMES: Final = tuple(
    (outcome, OUTCOME_NAMES[outcome]) for outcome in ("success", "fail", "waiting", "abandoned")
)
"""Outcomes to choose from, and what each is called."""

_RANKS: Final[dict[str, Callable[[SessionRow], str]]] = {
    "recent": lambda row: row.session.ended_at or "",
    "cost": lambda row: f"{sum(row.ticks.values()):030}",
    "tokens": lambda row: f"{row.spent.own:030}",
}


class Day(msgspec.Struct, frozen=True):
    """Sessions of one day."""

    name: str
    date: str
    sums: str
    cards: list[SessionCard]


class ListQuery(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the address of the list asks for."""

    q: str = ""
    agent: str = ""
    project: str = ""
    model: str = ""
    outcome: str = ""
    standing: str = ""
    after: str = ""
    before: str = ""
    until: str = ""
    """The last day, which is listed too."""
    cost: str = ""
    """Dollars that a session cost at least."""
    sort: str = ""
    cursor: str = ""
    tz: str = ""
    """The zone of days; this machine's if none is named."""

    def href(self, **changed: str) -> str:
        """Return the address of the list with something changed; another filter starts anew."""
        fields = {**msgspec.structs.asdict(self), "cursor": "", **changed}
        filters = {name: value for name, value in fields.items() if value}
        return f"/sessions?{urlencode(filters, safe='*')}" if filters else "/sessions"


class FilterChoice(msgspec.Struct, frozen=True):
    """One filter that can be put on or taken off."""

    text: str
    href: str
    on: bool


class Option(msgspec.Struct, frozen=True):
    """One value of a filter to choose from."""

    value: str
    label: str
    is_chosen: bool = False


class Control(msgspec.Struct, frozen=True):
    """A filter with all its values."""

    name: str
    label: str
    options: list[Option]


class Pager(msgspec.Struct, frozen=True):
    """Which sessions of a list are shown, and the ways to the others."""

    position: str
    first: str = ""
    previous: str = ""
    next: str = ""
    last: str = ""


class ListPage(msgspec.Struct, frozen=True):
    """What answers: where was that session."""

    wanted: ListQuery
    lede: str
    days: list[Day]
    choices: list[FilterChoice]
    sorts: list[FilterChoice]
    controls: list[Control] = []
    pager: Pager | None = None
    wrong: str = ""
    hint: str = ""
    remarks: list[str] = []
    """What was understood otherwise than it was typed."""
    notes: list[NoteLine] = []
    zone: str = ""
    """What the zone of days is called."""


def page(context: AppContext, wanted: ListQuery, clock: DisplayClock) -> ListPage:
    """List the sessions that are wanted."""
    if OUTCOME_WORDS.get(wanted.outcome) == "running":  # never stored
        wanted = msgspec.structs.replace(wanted, outcome="", standing="open")
    try:
        query = _query(context, wanted, clock)
    except BadQuery as error:
        return _page(context, wanted, "", [], wrong=error)
    remarks = list(query.hints[:MAX_REMARKS])
    if query.match and not query.lists_sessions:
        cards, lede, total = _search_cards(context, query, wanted, clock)
        days = [Day("", "", "", cards)] if cards else []
        made = _page(context, wanted, lede, days, looking=True)
        matches = matching_notes(context.searchable_notes(), query)[:PAGE_SESSIONS]
        notes = [note_line(note, clock) for note in matches]
        pager = _pager(wanted, _offset(wanted, total), len(cards), total)
        return msgspec.structs.replace(made, notes=notes, remarks=remarks, pager=pager)
    base = _filter(wanted, query)
    rows, total, lede = _list_sessions(context, wanted, base, query)
    offset = _offset(wanted, total)
    days = list(
        _by_day(
            context, context.display(rows[:PAGE_SESSIONS]), clock, wanted, base=base, query=query
        )
    )
    pager = _pager(wanted, offset, len(rows[:PAGE_SESSIONS]), total)
    made = _page(context, wanted, lede, days)
    zone = clean(zone_label(clock.zone, context.moment()))
    return msgspec.structs.replace(made, pager=pager, remarks=remarks, zone=zone)


def _list_sessions(
    context: AppContext, wanted: ListQuery, base: Filter, query: Query
) -> tuple[list[SessionRow], int, str]:
    """Return the sessions of one page of the list, how many there are, and what they sum up to."""
    if wanted.standing == "open":
        rows = [
            row
            for row in open_sessions(
                context.store, base, context.now(), context.clock(), context.labels()
            )
            if query.takes(sum(row.ticks.values()))
        ]
        return rows, len(rows), several(len(rows), "session")
    if query.ticks_over is not None or query.ticks_under is not None:
        rows = [r for r in context.store.sessions(base) if query.takes(sum(r.ticks.values()))]
        ticks = sum(sum(row.ticks.values()) for row in rows)
        unpriced = sum(row.unpriced for row in rows)
        is_bound = any(row.lower_bound for row in rows)
        lede = f"{several(len(rows), 'session')}, {money(ticks, unpriced, is_bound=is_bound)}"
        return rows[_offset(wanted, len(rows)) :], len(rows), lede
    total = context.store.totals((), base)[0]
    some = msgspec.structs.replace(
        base, limit=PAGE_SESSIONS, offset=_offset(wanted, total.sessions)
    )
    return list(context.store.sessions(some)), total.sessions, _sums(total)


def _offset(wanted: ListQuery, total: int) -> int:
    offset = int(wanted.cursor) if wanted.cursor.isdecimal() and len(wanted.cursor) < 9 else 0
    return offset if offset < total else 0


def _pager(wanted: ListQuery, offset: int, number: int, total: int) -> Pager | None:
    """Return the ways through a list of several pages; None when it is one."""
    if total <= PAGE_SESSIONS or wanted.standing == "open":
        return None
    last = (total - 1) // PAGE_SESSIONS * PAGE_SESSIONS
    return Pager(
        f"{offset + 1:,} to {offset + number:,} of {total:,}",
        wanted.href() if offset else "",
        wanted.href(cursor=f"{max(offset - PAGE_SESSIONS, 0)}" if offset > PAGE_SESSIONS else "")
        if offset
        else "",
        wanted.href(cursor=f"{offset + PAGE_SESSIONS}") if offset + PAGE_SESSIONS < total else "",
        wanted.href(cursor=f"{last}") if offset + PAGE_SESSIONS < total else "",
    )


# -- what is typed --------------------------------------------------------------------------


def _query(context: AppContext, wanted: ListQuery, clock: DisplayClock) -> Query:
    """Return what an address asks for: its words, and its filters as if they were typed.

    Days are those of the clock's zone.
    """
    for name, value, known in (
        ("sort", wanted.sort, ("best", *SORTS)),
        ("standing", wanted.standing, ("open",)),
    ):
        if value:
            named(name, value, known)
    text = wanted.q[:400]
    text += '"' * (text.count('"') % 2)
    for name in ("agent", "project", "model", "outcome"):
        if value := getattr(wanted, name).replace('"', ""):
            text += f' {name}:"{value}"'
    query = parse(text + (f" cost>{wanted.cost}" if wanted.cost else ""), zone=clock.zone)
    if wanted.after:
        query = msgspec.structs.replace(query, after=_day_start(wanted.after, clock.zone))
    if end := wanted.until or wanted.before:
        until = _day_start(end, clock.zone, is_end=bool(wanted.until))
        query = msgspec.structs.replace(query, before=until)
    if query.agent is not None:
        stored_agent(context.store, query.agent)
    return with_tagged(query, context.labels())


def suggestions(
    context: AppContext, wanted: ListQuery, clock: DisplayClock
) -> tuple[list[SessionCard], str]:
    """Return the sessions to offer while somebody types, and how many matches there are."""
    try:
        query = _query(context, wanted, clock)
    except BadQuery as error:
        return [], error.message
    if not query.match or query.lists_sessions:
        base = msgspec.structs.replace(_filter(wanted, query), limit=5)
        rows = context.store.sessions(base)
        return [card(context, row, clock, drawn=False) for row in context.display(list(rows))], ""
    return _search_cards(context, query, wanted, clock, most=MAX_SUGGESTIONS)[:2]


def _page(
    context: AppContext,
    wanted: ListQuery,
    lede: str,
    days: list[Day],
    *,
    wrong: BadQuery | None = None,
    looking: bool = False,
) -> ListPage:
    return ListPage(
        wanted,
        lede,
        days,
        list(_choices(wanted)),
        list(_sorts(wanted, looking=looking)),
        _controls(context, wanted),
        None,
        wrong.message if wrong else "",
        (wrong.hint or "") if wrong else "",
    )


def _sorts(wanted: ListQuery, *, looking: bool) -> Iterator[FilterChoice]:
    """Return the ways to sort; what was looked for is sorted by how well it fits, unless asked."""
    usual = "best" if looking else "recent"
    asked = wanted.sort if wanted.sort in SORTS else usual
    for name, label in ({"best": "Best match", **SORTS} if looking else SORTS).items():
        yield FilterChoice(label, wanted.href(sort="" if name == usual else name), name == asked)


def _sort(wanted: ListQuery) -> str:
    return wanted.sort if wanted.sort in SORTS else "recent"


def _day_start(text: str, zone: tzinfo | None, *, is_end: bool = False) -> int:
    """Return when a day of a zone begins, or ends, in milliseconds; other dates as in a query."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return moment(text, zone)
    return millis(midnight(day + timedelta(days=is_end), zone))


def _filter(wanted: ListQuery, query: Query) -> Filter:
    return msgspec.structs.replace(session_filter(query), order=_sort(wanted))


def _choices(wanted: ListQuery) -> Iterator[FilterChoice]:
    """Return the filters that are on, to be taken off, and those that are one click away."""
    chosen = {
        "project": wanted.project,
        "model": wanted.model,
        "agent": agent_label(wanted.agent) if wanted.agent else "",
        "after": f"since {wanted.after}" if wanted.after else "",
        "before": f"before {wanted.before}" if wanted.before else "",
        "until": f"to {wanted.until}" if wanted.until else "",
        "cost": f"over ${wanted.cost}" if wanted.cost else "",
    }
    for name, label in chosen.items():
        if label:
            yield FilterChoice(clean(label)[-40:], wanted.href(**{name: ""}), on=True)
    is_open = wanted.standing == "open"
    yield FilterChoice("active", wanted.href(standing="" if is_open else "open"), on=is_open)
    for name, outcome in _OUTCOMES:
        is_on = wanted.outcome in (name, outcome)
        yield FilterChoice(outcome, wanted.href(outcome="" if is_on else name), on=is_on)


def _controls(context: AppContext, wanted: ListQuery) -> list[Control]:
    """Return the filters that have a list of values."""
    projects, agents, models = _options(context)
    return [
        Control("project", "Project", _options_with(projects, wanted.project)),
        Control("agent", "Agent", _options_with(agents, wanted.agent)),
        Control("model", "Model", _options_with(models, wanted.model)),
    ]


def _options_with(options: Sequence[tuple[str, str]], value: str) -> list[Option]:
    known = [Option(name, label, name == value) for name, label in options]
    if value and not any(option.is_chosen for option in known):
        known.insert(0, Option(value, clean(value)[-40:], is_chosen=True))
    return known


_Options = tuple[list[tuple[str, str]], list[tuple[str, str]], list[tuple[str, str]]]


def _options(context: AppContext) -> _Options:
    """Return projects, agents and models as (value, label), the ones with most sessions first."""
    return context.cached(_options, lambda: _read_options(context), seconds=OPTIONS_MAX_AGE_S)


def _read_options(context: AppContext) -> _Options:
    names = [
        [f"{total.key[0]}" for total in _most_first(context.store.totals([group])) if total.key[0]]
        for group in ("project", "agent", "model")
    ]
    labels = unique_labels(names[0])
    return (
        [(name, labels[name]) for name in names[0]],
        [(name, agent_label(name)) for name in names[1]],
        [(name, clean(name)[:60]) for name in names[2]],
    )


def _most_first(totals: Sequence[Total]) -> list[Total]:
    return sorted(totals, key=lambda total: -total.sessions)[:200]


def _sums(total: Total) -> str:
    parts = [several(total.sessions, "session"), total.cost_phrase]
    if total.dead:
        parts.append(f"{money(total.dead)} on discarded branches")
    return ", ".join(parts)


def _by_day(
    context: AppContext,
    rows: Sequence[SessionRow],
    clock: DisplayClock,
    wanted: ListQuery,
    *,
    base: Filter,
    query: Query,
) -> Iterator[Day]:
    """Group a list by days where it is in their order; a heading sums up all of its day."""
    if _sort(wanted) != "recent":
        if rows:
            yield Day("", "", "", [card(context, row, clock) for row in rows])
        return
    today = context.moment(clock.zone).date()
    groups: dict[int, list[tuple[SessionRow, int]]] = {}
    back = 0
    for row, depth in nest_by_ancestry(rows):
        if not depth:  # what comes from a session stands with it
            last = clock.of(row.session.ended_at)
            back = min((today - last.date()).days if last else 7, 7)
        groups.setdefault(back, []).append((row, depth))
    is_priced = query.ticks_over is not None or query.ticks_under is not None
    sums: dict[int, str] = {}
    if wanted.standing != "open" and not is_priced:
        sums = _sums_by_day(context, base, today, clock, with_earlier=7 in groups)
    for back, some in groups.items():
        cards = [msgspec.structs.replace(card(context, r, clock), depth=d) for r, d in some]
        day = today - timedelta(days=back)
        name = {0: "Today", 1: "Yesterday", 7: "Earlier"}.get(back, f"{day:%A}")
        shown = clock.day(some[0][0].session.ended_at) if back < 7 else ""
        yield Day(name, shown, sums.get(back, ""), cards)


def _sums_by_day(
    context: AppContext, base: Filter, today: date, clock: DisplayClock, *, with_earlier: bool
) -> dict[int, str]:
    """Say of each of the last days, by how long ago it was, who worked then and what was spent."""
    week = millis(midnight(today - timedelta(days=6), clock.zone))
    recent = msgspec.structs.replace(base, after=max(base.after or week, week))
    sums = {}
    for total in totals_by_day(context.store, recent, clock.zone):
        with contextlib.suppress(ValueError):  # spend of a log without a time
            back = (today - date.fromisoformat(total.key[0] or "")).days
            sums[back] = _sum(total)
    if with_earlier:
        earlier = msgspec.structs.replace(base, before=min(base.before or week, week))
        sums[7] = _sum(context.store.totals((), earlier)[0])
    return sums


def _sum(total: Total) -> str:
    return f"{several(total.sessions, 'session')}, {total.cost_phrase}"


def _search_cards(
    context: AppContext,
    query: Query,
    wanted: ListQuery,
    clock: DisplayClock,
    *,
    most: int | None = None,
) -> tuple[list[SessionCard], str, int]:
    """List the sessions that match, each with the sentences that do and how many there are.

    Returns also what was found in words, and how many sessions there are to list.
    """
    answer = context.search(query, MAX_ROWS)
    matches: dict[str, list[SearchMatch]] = {}
    for match in answer.matches:
        matches.setdefault(match.session_uid, []).append(match)
    order = list(matches)
    is_open = context.now().of if wanted.standing == "open" else None
    rows: dict[str, SessionRow] = {}
    if is_open is not None or wanted.sort in SORTS:  # else a look at those that are shown will do
        rows = _rows(context, order)
        order = [uid for uid in order if uid in rows and (is_open is None or is_open(rows[uid]))]
    if wanted.sort in SORTS:
        order.sort(key=lambda uid: _RANKS[wanted.sort](rows[uid]), reverse=True)
    first = _offset(wanted, len(order))
    listed = order[first : first + (most or PAGE_SESSIONS)]
    rows = rows or _rows(context, listed)
    shown = {uid: matches[uid][:MAX_SNIPPETS] for uid in listed if uid in rows}
    # Only what is shown is read: texts lie in packs.
    shown_hits = [hit for some in shown.values() for hit in some]
    looked_at = msgspec.structs.replace(answer, matches=shown_hits)
    left = iter(hits(looked_at, query, context.store.blobs).hits)
    cards = []
    for uid, some in shown.items():
        snippets = [_snippet(uid, next(left), wanted.q) for _ in some]
        made = card(context, rows[uid], clock, drawn=most is None)
        count = len(matches[uid])
        cards.append(
            msgspec.structs.replace(
                made,
                snippets=list({snippet.text: snippet for snippet in snippets[::-1]}.values())[::-1],
                href=snippets[0].href,
                hits=f"{count:,}{'+' * answer.capped} matches" if count > 1 else "",
            )
        )
    return cards, "; ".join(filter(None, (answer.count, answer.explanation))), len(order)


def _rows(context: AppContext, uids: Sequence[str]) -> dict[str, SessionRow]:
    """Return sessions as they are displayed, by their uids."""
    stored = list(context.store.sessions(Filter(uids=tuple(uids))))
    return {row.session.session_uid: row for row in context.display(stored)}


def _snippet(uid: str, hit: Hit, typed: str) -> Snippet:
    """Return a sentence that matches, with the address of its event."""
    if hit.unread is not None:
        return Snippet(address(uid, hit.shown_at, typed), escape(f"unreadable: {hit.unread}"))
    return Snippet(address(uid, hit.shown_at, typed), mark_matches(start_near_match(hit.snippet)))


def start_near_match(snippet: str) -> str:
    """Return a snippet from shortly before its match: a card shows its beginning only."""
    snippet = _RULER.sub(r"\1\1\1", snippet)
    at = snippet.find(OPEN)
    if at <= SNIPPET_LEAD_CHARS:
        return snippet
    start = snippet.find(" ", at - SNIPPET_LEAD_CHARS, at) + 1 or at
    return f"…{snippet[start:]}"


def mark_matches(snippet: str) -> Markup:
    """Return a snippet with the matches marked."""
    out, on = Markup(""), False
    piece = ""
    for sign in f"{snippet}\x03":
        if sign in ("\x02", "\x03"):
            text = escape(clean(piece))
            out += Markup("<mark>") + text + Markup("</mark>") if on and piece else text
            piece, on = "", sign == "\x02"
        else:
            piece += sign
    return out
