"""Find in session: which events of one session say something, in reading order, folded or not.

Terms match anywhere in a text, in any case, as a browser's own search does; an event matches when
it has all terms (with OR: any). Texts are read once per session and stay at hand for the next key
stroke, up to so many characters.
"""

from __future__ import annotations

import threading
from typing import Final
from weakref import WeakKeyDictionary, ref

import msgspec

from thence.format.facts import words_of
from thence.memory.search import BadQuery, parse
from thence.serve.chart import Chart
from thence.serve.paths import Paths

MAX_CACHED_CHARACTERS: Final = 96_000_000
"""Characters of texts that stay in memory, of all sessions together."""

MAX_MATCHES: Final = 5_000
"""Matches that are listed."""


class Match(msgspec.Struct, frozen=True):
    """One event that matches, and the row that shows it."""

    event: str
    row: int
    place: int
    block: int


class Matches(msgspec.Struct, frozen=True):
    """What was found in one session, in reading order."""

    terms: tuple[str, ...] = ()
    matches: tuple[Match, ...] = ()

    def position(self, event: str) -> int:
        """Return the index of an event's match, or -1."""
        return next((n for n, match in enumerate(self.matches) if match.event == event), -1)


class _SearchIndex:
    """The texts of one session, in small letters, and where each is drawn."""

    def __init__(self, chart: Chart) -> None:
        self.paths = Paths(chart)
        self._texts: list[tuple[int, int, str]] | None = None
        self.characters = 0
        """Of the texts that it holds."""
        self._mutex = threading.Lock()

    def texts(self, chart: Chart) -> list[tuple[int, int, str]]:
        """Return place, block and text of all events."""
        with self._mutex:
            texts = self._texts
            if texts is None:
                texts = [
                    (place, number, words_of(chart.filled(block)).lower())
                    for place, record in enumerate(chart.records)
                    for number, block in enumerate(record.blocks)
                ]
                size = sum(len(text) for _, _, text in texts)
                if size <= MAX_CACHED_CHARACTERS:
                    self._texts, self.characters = texts, size
        _make_room(self)
        return texts

    def drop(self) -> None:
        """Let go of the texts; they are read again when they are needed."""
        self._texts, self.characters = None, 0


def _make_room(newest: _SearchIndex) -> None:
    """Drop the texts of the sessions that were searched longest ago, if they are too many."""
    with _MUTEX:
        known = (entry() for entry in _USED)
        used = [index for index in known if index is not None and index is not newest]
        total = newest.characters + sum(index.characters for index in used)
        while used and total > MAX_CACHED_CHARACTERS:
            oldest = used.pop(0)
            total -= oldest.characters
            oldest.drop()
        _USED[:] = [ref(index) for index in (*used, newest)]


_USED: Final[list[ref[_SearchIndex]]] = []
"""Indexes that hold texts, the one used last at the end."""
_INDEXES: WeakKeyDictionary[Chart, _SearchIndex] = WeakKeyDictionary()
_MUTEX: Final = threading.Lock()


def _index_of(chart: Chart) -> _SearchIndex:
    with _MUTEX:
        index = _INDEXES.get(chart)
    if index is None:
        index = _SearchIndex(chart)
        with _MUTEX:
            index = _INDEXES.setdefault(chart, index)
    return index


def paths_of(chart: Chart) -> Paths:
    """Return where the events of a chart are drawn; worked out once."""
    return _index_of(chart).paths


def terms_of(query: str) -> tuple[str, ...]:
    """Return the words and phrases that a query looks for, without its filters."""
    try:
        terms = parse(query[:400]).terms
    except BadQuery:
        terms = ()
    clean = (" ".join(term.lower().rstrip("*").split()) for term in terms)
    return tuple(dict.fromkeys(term for term in clean if term))


def find(chart: Chart, query: str) -> Matches:
    """Return the events of a session that say what a query looks for; none without words."""
    terms = terms_of(query)
    index = _index_of(chart)
    if not terms:
        index.texts(chart)  # who opens the box will type
        return Matches()
    enough = any if " OR " in query else all
    matches = []
    for place, number, text in index.texts(chart):
        if enough(term in text for term in terms):
            row = index.paths.row_number(place, number)
            if row is not None:
                event = f"e{chart.event_id(place, number):013x}"
                matches.append(Match(event, row, place, number))
    matches.sort(key=lambda match: (match.row, match.place, match.block))
    return Matches(terms, tuple(matches[:MAX_MATCHES]))
