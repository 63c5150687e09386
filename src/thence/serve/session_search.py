"""Find in session: which events of one session say something, in reading order, folded or not.

Terms are whole words, in any case (see `highlighting`); an event matches when it has all terms
(with OR: any). Where none does, the last word may be the beginning of one, as while it is typed;
where none does even then, terms match anywhere in a text, as in a browser's own search. Texts are
read once per session and stay at hand for the next key stroke, up to so many characters.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final
from weakref import WeakKeyDictionary, ref

import msgspec

from thence.format.facts import words_of
from thence.memory.cjk_pairs import usual_form
from thence.memory.highlighting import NOTHING, Marking, marking_of
from thence.memory.search import BadQuery, begun, parse
from thence.memory.vocabulary import MIN_BEGINNING
from thence.serve.chart import Chart
from thence.serve.event_positions import Paths

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

    marking: Marking = NOTHING
    """What is to be marked."""
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
                    (place, number, usual_form(words_of(chart.filled(block))).lower())
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


def markings_of(query: str) -> list[Marking]:
    """Return what a query may mean, without its filters, the narrowest first."""
    text = query[:400].rstrip()
    try:
        typed, meant = parse(text).terms, parse(begun(text)).terms
    except BadQuery:
        return []
    if not typed:
        return []
    if len(typed[-1]) < MIN_BEGINNING:
        meant = typed
    return [marking_of(typed), marking_of(meant), marking_of(typed, is_anywhere=True)]


def find(chart: Chart, query: str, at: str = "") -> Matches:
    """Return the events of a session that say what a query looks for; none without words.

    With the event that a page is opened at, the words are meant so that it has some of them.
    """
    meant = markings_of(query)
    texts = _index_of(chart).texts(chart)  # also for who opens the box: they will type
    opened = chart.find(at) if at else None
    shown = [text for place, block, text in texts if (place, block) == opened]
    best = Matches(meant[0] if meant else NOTHING)
    for marking in meant:
        result = Matches(marking, _matches(chart, texts, query, marking))
        if result.matches and all(marking.is_met(text, by_any=True) for text in shown):
            return result
        best = result if result.matches and not best.matches else best
    return best


def _matches(
    chart: Chart, texts: Iterable[tuple[int, int, str]], query: str, marking: Marking
) -> tuple[Match, ...]:
    """Return the events whose texts have what is meant, in reading order."""
    paths, by_any = _index_of(chart).paths, " OR " in query
    matches = []
    for place, number, text in texts:
        if marking.is_met(text, by_any=by_any):
            row = paths.row_number(place, number)
            if row is not None:
                event = f"e{chart.event_id(place, number):013x}"
                matches.append(Match(event, row, place, number))
    matches.sort(key=lambda match: (match.row, match.place, match.block))
    return tuple(matches[:MAX_MATCHES])
