"""Sessions: where was that session? Searched, filtered, sorted, by their days."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

import msgspec
from markupsafe import Markup, escape

from thence.format.figures import clean, money, several
from thence.memory.descent import descent
from thence.memory.notes import matching_notes
from thence.memory.recall import with_lineage
from thence.memory.search import OPEN, Answer, BadQuery, Found, Query, hits, moment, parse
from thence.memory.standing import open_ones
from thence.memory.store import Filter, SessionRow, Total
from thence.serve.cards import Card, card
from thence.serve.clock import Clock
from thence.serve.desk import Desk
from thence.serve.head import NoteLine, address, note_line

PAGE: Final = 50
"""Sessions of one page of the list."""
LEAD: Final = 32
"""Signs of a snippet that stand before what was looked for."""
HITS: Final = 120
SORTS: Final = {"recent": "Newest", "cost": "Cost", "tokens": "Longest"}

_OUTCOMES: Final = (
    ("success", "done"),
    ("fail", "failed"),
    ("waiting", "no answer yet"),
    ("abandoned", "abandoned"),
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
    cards: list[Card]


class Wanted(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the address of the list asks for."""

    q: str = ""
    agent: str = ""
    project: str = ""
    model: str = ""
    outcome: str = ""
    standing: str = ""
    after: str = ""
    before: str = ""
    sort: str = ""
    cursor: str = ""

    def href(self, **changed: str) -> str:
        """Give the address of the list with something changed; another filter starts anew."""
        fields = {**msgspec.structs.asdict(self), "cursor": "", **changed}
        given = {name: value for name, value in fields.items() if value}
        return f"/sessions?{urlencode(given)}" if given else "/sessions"


class Choice(msgspec.Struct, frozen=True):
    """One filter that can be put on or taken off."""

    said: str
    href: str
    on: bool


class ListPage(msgspec.Struct, frozen=True):
    """What answers: where was that session."""

    wanted: Wanted
    lede: str
    days: list[Day]
    choices: list[Choice]
    sorts: list[Choice]
    more: str = ""
    more_said: str = ""
    wrong: str = ""
    hint: str = ""
    notes: list[NoteLine] = []


def page(desk: Desk, wanted: Wanted, clock: Clock) -> ListPage:
    """List the sessions that are wanted."""
    began = time.monotonic()
    try:
        query = parse(wanted.q[:400], prefix_last=True)
        base = _filter(wanted, query)
    except BadQuery as error:
        return _page(desk, wanted, "nothing looked for yet", [], wrong=error)
    if query.match and not query.lists_sessions:
        narrowed = _narrowed(query, base)
        cards, found = _searched(desk, narrowed, base, wanted, clock)
        took = round(1000 * (time.monotonic() - began))
        days = [Day("", "", "", cards)] if cards else []
        made = _page(desk, wanted, f"{found}, {took} ms", days, looking=True)
        notes = [note_line(note, clock) for note in matching_notes(desk.notes(), narrowed)[:PAGE]]
        return msgspec.structs.replace(made, notes=notes)
    offset = int(wanted.cursor) if wanted.cursor.isdigit() and len(wanted.cursor) < 9 else 0
    total = desk.store.totals((), base)[0]
    if wanted.standing == "open":
        rows = open_ones(desk.store, base, desk.now(), desk.clock())
        more = ""
    else:
        some = msgspec.structs.replace(base, limit=PAGE + 1, offset=offset)
        rows = [row for row in desk.store.sessions(some) if query.takes(sum(row.ticks.values()))]
        more = f"{offset + PAGE}" if len(rows) > PAGE else ""
        rows = rows[:PAGE]
    lede = _sums(total) if wanted.standing != "open" else several(len(rows), "session")
    days = list(_by_day(desk, with_lineage(desk.store, rows), clock, wanted))
    left = max(total.sessions - offset - len(rows), 0)
    return _page(desk, wanted, lede, days, more=more, left=left)


def _page(
    desk: Desk,
    wanted: Wanted,
    lede: str,
    days: list[Day],
    *,
    more: str = "",
    left: int = 0,
    wrong: BadQuery | None = None,
    looking: bool = False,
) -> ListPage:
    return ListPage(
        wanted,
        lede,
        days,
        list(_choices(desk, wanted)),
        list(_sorts(wanted, looking=looking)),
        wanted.href(cursor=more) if more else "",
        f"{left:,} more" if left else "More",
        wrong.message if wrong else "",
        (wrong.hint or "") if wrong else "",
    )


def _sorts(wanted: Wanted, *, looking: bool) -> Iterator[Choice]:
    """Give the ways to sort; what was looked for is sorted by how well it fits, unless asked."""
    usual = "best" if looking else "recent"
    asked = wanted.sort if wanted.sort in SORTS else usual
    for name, said in ({"best": "Best match", **SORTS} if looking else SORTS).items():
        yield Choice(said, wanted.href(sort="" if name == usual else name), name == asked)


def _sort(wanted: Wanted) -> str:
    return wanted.sort if wanted.sort in SORTS else "recent"


def _filter(wanted: Wanted, query: Query) -> Filter:
    outcome = (
        wanted.outcome if wanted.outcome in dict(_OUTCOMES) or wanted.outcome == "unknown" else ""
    )
    after = moment(wanted.after) if wanted.after else query.after
    before = moment(wanted.before) if wanted.before else query.before
    return Filter(
        agent=wanted.agent or query.agent or None,
        project=wanted.project or query.project or None,
        model=wanted.model or query.model or None,
        outcome=outcome or query.outcome or None,
        after=after,
        before=before,
        order=_sort(wanted),  # type: ignore[arg-type]  # one of its own words
    )


def _choices(desk: Desk, wanted: Wanted) -> Iterator[Choice]:
    if wanted.project:
        yield Choice(clean(wanted.project)[:40], wanted.href(project=""), on=True)
    if wanted.model:
        yield Choice(clean(wanted.model)[:40], wanted.href(model=""), on=True)
    if wanted.after or wanted.before:
        said = f"{wanted.after or '…'} to {wanted.before or 'now'}"
        yield Choice(clean(said)[:40], wanted.href(after="", before=""), on=True)
    is_open = wanted.standing == "open"
    yield Choice("waits or runs", wanted.href(standing="" if is_open else "open"), on=is_open)
    for name, said in _OUTCOMES:
        is_on = wanted.outcome == name
        yield Choice(said, wanted.href(outcome="" if is_on else name), on=is_on)
    agents = sorted(f"{one.key[0]}" for one in desk.store.totals(["agent"]) if one.key[0])
    for name in agents if len(agents) > 1 else ():
        is_on = wanted.agent == name
        from thence.serve.agents import agent_label

        yield Choice(agent_label(name), wanted.href(agent="" if is_on else name), on=is_on)


def _sums(total: Total) -> str:
    parts = [several(total.sessions, "session"), money(total.ticks, total.unpriced)]
    if total.dead:
        parts.append(f"{money(total.dead)} of it discarded")
    return ", ".join(parts)


def _by_day(desk: Desk, rows: Sequence[SessionRow], clock: Clock, wanted: Wanted) -> Iterator[Day]:
    """Group a list by days where it is in their order."""
    if _sort(wanted) != "recent":
        if rows:
            yield Day("", "", "", [card(desk, row, clock) for row in rows])
        return
    today = datetime.fromtimestamp(desk.clock(), UTC).astimezone(clock.zone).date()
    groups: dict[str, list[tuple[SessionRow, int]]] = {}
    name = ""
    for row, depth in descent(rows):
        if not depth:  # what comes from a session stands with it
            last = clock.of(row.session.ended_at)
            back = (today - last.date()).days if last else 9
            name = {0: "Today", 1: "Yesterday"}.get(back, "Earlier" if back > 6 else f"{last:%A}")
        groups.setdefault(name, []).append((row, depth))
    for name, some in groups.items():
        ticks = sum(sum(row.ticks.values()) for row, _ in some)
        cards = [msgspec.structs.replace(card(desk, r, clock), depth=d) for r, d in some]
        date = clock.day(some[0][0].session.ended_at) if name != "Earlier" else ""
        yield Day(name, date, f"{several(len(some), 'session')}, {money(ticks)}", cards)


def _narrowed(query: Query, base: Filter) -> Query:
    """Return a question with the filters of the page."""
    return msgspec.structs.replace(
        query,
        agent=base.agent,
        project=base.project,
        model=base.model,
        outcome=base.outcome,
        after=base.after,
        before=base.before,
    )


def _searched(
    desk: Desk, narrowed: Query, base: Filter, wanted: Wanted, clock: Clock
) -> tuple[list[Card], str]:
    """List the sessions in which something was found, each with the sentence it is in."""
    answer = desk.store.search(narrowed, HITS)
    first: dict[str, list[Found]] = {}
    for one in answer.found:
        if base.agent is None or one.session_uid.startswith(f"{base.agent}:"):
            first.setdefault(one.session_uid, []).append(one)
    found = with_lineage(desk.store, list(desk.store.sessions(Filter(uids=tuple(first)))))
    rows = {row.session.session_uid: row for row in found}
    order = list(first)
    if wanted.sort in SORTS:
        order.sort(key=lambda uid: _RANKS[wanted.sort](rows[uid]) if uid in rows else "")
        order.reverse()
    shown = {
        uid: first[uid][0]
        for uid in order[:PAGE]
        if uid in rows and (wanted.standing != "open" or desk.now().of(rows[uid]) is not None)
    }
    # Only what is shown is read: texts lie in packs.
    told = hits(Answer(list(shown.values())), narrowed, desk.store.blobs)
    cards = []
    for uid, hit in zip(shown, told.hits, strict=True):
        made = card(desk, rows[uid], clock)
        href = address(uid, hit.shown_at)
        said = hit.snippet if hit.unread is None else f"cannot be read: {hit.unread}"
        cards.append(msgspec.structs.replace(made, snippet=marked(near(said)), href=href))
    number = sum(map(len, first.values()))
    least = "at least " if answer.capped or number >= HITS else ""
    said = f"{least}{several(number, 'hit')} in {several(len(first), 'session')}"
    said = said if first else "nothing found"
    return cards, "; ".join(filter(None, (said, answer.explanation, *answer.hints)))


def near(snippet: str) -> str:
    """Give a snippet from shortly before what was looked for: a card shows its beginning only."""
    at = snippet.find(OPEN)
    if at <= LEAD:
        return snippet
    start = snippet.find(" ", at - LEAD, at) + 1 or at
    return f"…{snippet[start:]}"


def marked(snippet: str) -> Markup:
    """Show a snippet with what was looked for marked in it."""
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
