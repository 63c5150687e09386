"""The order of answers: sessions that are about what was asked for come before those that name it.

A store gives rows of events for a question, the newest first (`Source.lists`). All words together
are asked for first. Where few sessions have them, each word is asked for by itself: then an event
counts by the share of the words that it has, rare ones more, and a word that is found nowhere is
looked for in other forms (see `vocabulary`). What people and models say counts more than what tools
print, an event with the exact phrase more than one with its words.

A session is worth its best event, the words it has in all, how often it has them, and how new it
is. Of each session the best three events are told before more of any. Everything is reckoned here,
from the same rows, so that all stores give the same order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from math import log, log2
from typing import Final, NamedTuple, Protocol

import msgspec

from thence.format.derived_events import time_of
from thence.format.graph import State
from thence.format.normal import KINDS
from thence.memory import cjk_pairs, vocabulary
from thence.memory.local_days import millis
from thence.memory.search import MAX_ROWS, How, Query, SearchAnswer, SearchMatch, narrow
from thence.memory.store import STATES, Filter, SessionRow

FEW_SESSIONS: Final = 3
"""Sessions with all words below which any of them will do; and events of a session in a row."""
MAX_WORD_ROWS: Final = 500
"""Rows that are looked at for one word, the newest."""
MAX_WORDS: Final = 8
"""Words of a question that are looked for one by one."""
MAX_MISSING_WORDS: Final = 3
"""Words found nowhere for which others are looked for, and the words for each of them."""
MAX_OTHER_WORDS: Final = 4
OTHER_NUMBER_SHARE: Final = 0.5
"""What a plural counts where the singular was typed, and the other way round."""
TITLE: Final = -1
DIGEST: Final = -2
"""In the place of a kind: what a session is called, and what is left of an evicted one."""

_COMMON: Final = 2_000.0
_PHRASE_FACTOR: Final = 1.3  # times as much is an event that says it word by word
_MIN_SHARE_OF_BEST: Final = 0.2  # of the best session's worth: what is less does not answer
_SIGNS: Final = "*?!.,;:()"
_MONTH_MS: Final = 30 * 86_400_000.0


Row = tuple[int, int | str, int, int, int]
"""A row that answers: its number, its session, time, kind and state.

Of a title or a digest the number is below zero, and of that session alone.
"""


class Lists(NamedTuple):
    """Rows for each of some questions, and how far back they come from."""

    rows: list[list[Row]]
    capped: bool
    back_to: str | None


class RankingSource(Protocol):
    """What a store knows of its words."""

    def lists(
        self, queries: Sequence[Query], cap: int, enough: int, *, narrowing: bool = False
    ) -> Lists:
        """Return for each question the newest rows; few where there is no time for more.

        Where none is enough there is half of the time; with less than none, nothing is looked for
        when that is over. `narrowing` says that all answers to the
        later ones are among those to the first.
        """

    def look_up(self, rows: Sequence[tuple[Row, float]]) -> list[SearchMatch]:
        """Look up rows, each with its worth, that are to be shown."""

    def words(self, beginning: str, part: str) -> list[str]:
        """Return words of the index with a beginning, and a part; some, where there are many."""


Sessions = Callable[[Filter], Iterable[SessionRow]]
"""Returns sessions, the newest first."""


def search(
    source: RankingSource, sessions: Sessions, query: Query, limit: int, offset: int
) -> SearchAnswer:
    """Return the best answers to a question."""
    is_known = query.tag is None or query.uids is not None  # somebody looked up who has it
    if is_known and query.lists_sessions:
        return _by_filters(sessions, query, limit, offset)
    if not is_known or not query.match:
        return SearchAnswer([], hints=query.hints)
    return _Ranking(source, query, limit + offset).answer(limit, offset)


def _by_filters(sessions: Sessions, query: Query, limit: int, offset: int) -> SearchAnswer:
    """List the sessions that filters alone ask for."""
    wanted = session_filter(query)
    priced = query.ticks_over is not None or query.ticks_under is not None
    if not priced:
        wanted = msgspec.structs.replace(wanted, limit=limit, offset=offset)
    rows = [row for row in sessions(wanted) if query.takes(sum(row.ticks.values()))]
    shown = rows[offset : offset + limit] if priced else rows
    matches = [_session(row) for row in shown]
    return SearchAnswer(matches, 0, len(rows), how="filters", hints=query.hints)


def session_filter(query: Query) -> Filter:
    """Return the sessions that the filters of a question leave, costs apart."""
    return Filter(
        uids=None if query.uids is None else tuple(query.uids),
        agent=query.agent,
        project=query.project,
        model=query.model,
        outcome=query.outcome,
        after=query.after,
        before=query.before,
    )


def _session(row: SessionRow) -> SearchMatch:
    session = row.session
    moment = time_of(session.ended_at)
    ended = millis(moment) if moment is not None else 0
    return SearchMatch(
        session.session_uid, None, ended, "session", None, None, 1.0, text=row.title or ""
    )


class _Word(msgspec.Struct):
    """A group of terms that is looked for by itself."""

    typed: str
    terms: tuple[str, ...]
    rows: list[Row]
    share: float = 1.0
    """Less than 1 where other words stand for what was typed."""
    weight: float = 0.0
    other_rows: list[Row] = []
    """Rows that have it in the other number: a plural, or the singular."""


class _Ranking:
    """One question on its way to an answer."""

    def __init__(self, source: RankingSource, query: Query, enough: int) -> None:
        self._source = source
        self._query = query
        self._enough = enough
        self._rows: dict[int, Row] = {}
        self._values: dict[int, float] = {}
        self._shares: dict[int | str, float] = {}
        self._instead: list[tuple[str, str]] = []

    def answer(self, limit: int, offset: int) -> SearchAnswer:
        """Ask for all words, then for any of them, and put what was found in order."""
        query = self._query
        # Where any word will do there is no need to go on for what has all.
        needed = self._enough + 1 if query.exact or len(query.wanted) < FEW_SESSIONS else 0
        phrase = [narrow(query, [query.phrase])] if query.phrase else []
        lists = self._source.lists([query, *phrase], MAX_ROWS, needed, narrowing=True)
        every, *exact = lists.rows
        phrases = {row[0] for rows in exact for row in rows}
        for row in every:
            number, _, _, kind, state = row
            self._rows[number] = row
            self._values[number] = WORTHS[kind][state] * (
                _PHRASE_FACTOR if number in phrases else 1.0
            )
        has_all = bool(self._rows)
        words = self._any_words() if self._is_few() else []
        order, total, sessions = _order_rows(self._rows, self._values, self._shares, self._enough)
        is_cut = any(len(word.rows) >= MAX_WORD_ROWS for word in words)
        how: How = "near" if self._instead else "any" if words and not has_all else "all"
        return SearchAnswer(
            self._source.look_up(order[offset : offset + limit]),
            total,
            sessions,
            lists.capped or is_cut,
            lists.back_to if lists.capped or not is_cut else None,
            how,
            () if has_all else tuple(word.typed for word in words),
            tuple(self._instead),
            query.hints,
        )

    def _is_few(self) -> bool:
        """Return whether any of the words will do: few sessions have all, and none is a must."""
        if self._query.exact or not self._query.wanted or not all(self._query.words):
            return False  # phrases and files are meant as they are
        if self._query.has_phrases and self._rows:
            return False
        return len({row[1] for row in self._rows.values()}) < FEW_SESSIONS

    # -- any words ----------------------------------------------------------------------

    def _any_words(self) -> list[_Word]:
        """Count events by the words that they have; return the words, the rarest first."""
        query = self._query
        typed = dict(zip(query.words, query.wanted, strict=True))
        # Long words are rare ones, mostly; each is a look into the whole index.
        groups = sorted(typed.items(), key=lambda group: -len(group[0]))[:MAX_WORDS]
        lists: list[list[Row]] = [[]]
        if len(groups) > 1:
            queries = [narrow(query, terms) for _, terms in groups]
            lists = self._source.lists(queries, MAX_WORD_ROWS, 1).rows
        elif self._rows:
            return []
        words = [_Word(*group, rows) for group, rows in zip(groups, lists, strict=True)]
        missing = [word for word in words if not word.rows]
        for word in missing[:MAX_MISSING_WORDS]:
            other = vocabulary.other_number(word.typed.strip(_SIGNS))
            self._replace(word, [[f'"{other}"']] if other else [])
        missing = [word for word in missing if not word.rows]
        if 2 * len(missing) > len(words):
            for word in missing[:MAX_MISSING_WORDS]:
                self._replace(word, self._others(word.typed, is_last=len(missing) == len(words)))
        words = [word for word in words if word.rows]
        self._find_other_numbers(words)
        for word in words:
            word.weight = word.share * log(1 + _COMMON / len(word.rows))
        self._count(words)
        return sorted(words, key=lambda word: -word.weight)

    def _find_other_numbers(self, words: Sequence[_Word]) -> None:
        """Look, while there is time, for the plurals of words, or for their singulars."""
        others = {
            word.typed: other
            for word in words
            if word.share == 1.0 and len(word.rows) < MAX_WORD_ROWS
            if (other := vocabulary.other_number(word.typed.strip(_SIGNS))) is not None
        }
        queries = [narrow(self._query, [f'"{other}"']) for other in others.values()]
        lists = self._source.lists(queries, MAX_WORD_ROWS, -1).rows if queries else []
        other_rows = dict(zip(others, lists, strict=True))
        for word in words:
            word.other_rows = other_rows.get(word.typed, [])

    def _count(self, words: Sequence[_Word]) -> None:
        total = sum(word.weight for word in words) or 1.0
        shares, weights = self._shares, dict[int, float]()
        for word in words:
            weight = word.weight / total
            best: dict[int | str, float] = {}
            own = {row[0] for row in word.rows} if word.other_rows else ()
            others = [row for row in word.other_rows if row[0] not in own]
            for rows, share in ((word.rows, weight), (others, OTHER_NUMBER_SHARE * weight)):
                for row in rows:
                    number, session, _, kind, state = row
                    if number not in weights:
                        weights[number] = share
                        self._rows[number] = row
                    else:
                        weights[number] += share
                    worth = WORTHS[kind][state] * share
                    if best.get(session, 0.0) < worth:
                        best[session] = worth
            for session, worth in best.items():
                shares[session] = shares.get(session, 0.0) + worth
        for number, weight in weights.items():
            _, _, _, kind, state = self._rows[number]
            self._values.setdefault(number, WORTHS[kind][state] * weight * weight)

    def _replace(self, word: _Word, others: Iterable[Sequence[str]]) -> None:
        """Look for other terms in the place of a word that is found nowhere."""
        for terms in others:
            [rows] = self._source.lists([narrow(self._query, terms)], MAX_WORD_ROWS, 1).rows
            if rows:
                word.rows, word.share = rows, 0.7
                shown = [term.replace('"', "") for term in terms]
                self._instead.append((word.typed, " or ".join(shown)))
                return

    def _others(self, typed: str, *, is_last: bool) -> Iterator[list[str]]:
        """Yield terms for the place of a word: its parts, beginnings, forms, near spellings."""
        typed = typed.strip(_SIGNS)
        pieces = cjk_pairs.pieces_of(typed)
        if not pieces or any(cjk_pairs.is_run(piece) for piece in pieces):
            return
        if parts := vocabulary.parts_of(typed):
            yield [f'"{part}"' for part in parts]
        word = pieces[0].lower()
        if len(pieces) > 1 or len(word) < vocabulary.MIN_BEGINNING:
            return
        yield [f'"{word}"*']
        if len(word) < vocabulary.MIN_PART:
            return
        known = self._source.words(word[: vocabulary.MIN_PART], "")
        others = vocabulary.like(word, known)
        if not others and is_last:
            others = vocabulary.like(word, self._source.words(word[:1], ""))
        if not others and is_last and len(word) > vocabulary.MIN_PART:
            others = sorted(self._source.words("", word), key=len)[:MAX_OTHER_WORDS]
        if others:
            yield [f'"{other}"' for other in others[:MAX_OTHER_WORDS]]


# -- worth ----------------------------------------------------------------------------------


def _order_rows(
    rows: Mapping[int, Row],
    values: Mapping[int, float],
    shares: Mapping[int | str, float],
    enough: int,
) -> tuple[list[tuple[Row, float]], int, int]:
    """Put rows in order: those of the best session first, three of each session at a time.

    Returns as many as are enough, and how many there are in all, in how many sessions.
    """
    newest = max((row[2] for row in rows.values()), default=0)
    by: defaultdict[int | str, list[tuple[float, int, int]]] = defaultdict(list)
    for number, worth in values.items():
        _, session, ts, _, _ = rows[number]
        by[session].append((worth + 0.2 / (1 + (newest - ts) / _MONTH_MS), ts, number))
    best = {session: max(some) for session, some in by.items()}
    worths = {
        session: best[session][0]
        + 0.5 * shares.get(session, 0.0)
        + 0.1 * log2(1 + sum([value for value, _, _ in some]))
        for session, some in by.items()
    }
    least = _MIN_SHARE_OF_BEST * max(worths.values(), default=0.0) if shares else 0.0
    answering = [session for session, worth in worths.items() if worth >= least]
    # Each of them has a row at least: as many of the best are enough.
    order = nlargest(enough, answering, key=lambda session: (worths[session], *best[session][1:]))
    out: list[tuple[Row, float]] = []
    place = 0
    while order and len(out) < enough:
        for session in order:
            if not place:
                by[session].sort(reverse=True)
            some = by[session][place : place + FEW_SESSIONS]
            out += [(rows[number], worths[session]) for _, _, number in some]
            if len(out) >= enough:
                break
        place += FEW_SESSIONS
        order = [session for session in order if len(by[session]) > place]
    return out, sum(len(by[session]) for session in answering), len(answering)


_WORTH = {"user_msg": 1.5, "assistant_msg": 1.3, "error": 1.3, "tool_call": 1.1, "thinking": 0.9}
_OFF_LINE = frozenset({"dead", "rolled_back", "replayed"})
# A harness's own note often repeats a message: whoever looks for it wants the message.
_SHARES = [
    0.25 if state == State.INTERNAL else 0.5 if state.value in _OFF_LINE else 1.0
    for state in STATES
]
WORTHS: Final = [
    *([_WORTH.get(name, 1.0) * share for share in _SHARES] for name in KINDS),
    *([1.0] * len(STATES), [2.0] * len(STATES)),
]
"""What an event with all words is worth, by kind and state; a digest and a title are the last."""
