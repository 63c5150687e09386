"""One session of which several places hold a copy: the union of what they hold. Pure.

A log keeps its name in every place, so that a record has the same id wherever it lies; which place
a fact was read from stands behind the name: `main` and `main//5f0c11d2` are copies of one log. The
first place has no such ending, and most sessions have no other place.

Invariant: records of two places with the same id are one, and none is left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from thence.format.facts import Fact, occurrences

_PLACE = re.compile("//[0-9a-f]{8}$")


def place_of(file: str) -> str:
    """Return the ending of a log's name that tells the place; empty for the first place."""
    match = _PLACE.search(file) if "//" in file else None
    return match[0] if match else ""


def name_in(file: str) -> str:
    """Return the name that a log has in every place."""
    return file.removesuffix(place_of(file))


def by_place(facts: list[Fact]) -> list[list[Fact]]:
    """Return facts by the place that holds them, the first place first; nearly always one list."""
    places = {file: place_of(file) for file in {fact.file for fact in facts}}
    if len(set(places.values())) <= 1:
        return [facts]
    out: dict[str, list[Fact]] = {place: [] for place in sorted(places.values())}
    for fact in facts:
        out[places[fact.file]].append(fact)
    return list(out.values())


def merge_places(places: Sequence[list[Fact]]) -> list[Fact]:
    """Return the facts of all places, each record once, as they were written.

    Of two places that hold a record the first counts. Copies of one log are put together by time:
    a place that went on has the last word, whichever place that is.
    """
    known: set[tuple[str, int]] = set()
    out: list[tuple[str, str, Fact]] = []
    for facts in places:
        times = occurrences(facts)
        new = [
            (fact, moment)
            for fact, nth, moment in zip(facts, times, _moments(facts), strict=True)
            if nth is not None and (fact.node.id, nth) not in known
        ]
        known.update(
            (f.node.id, nth) for f, nth in zip(facts, times, strict=True) if nth is not None
        )
        out += [(name_in(fact.file), moment, fact) for fact, moment in new]
    out.sort(key=lambda entry: entry[:2])
    return [fact for _, _, fact in out]


def _moments(facts: Sequence[Fact]) -> list[str]:
    """Return for each fact the latest time that it or one before it in its log tells."""
    latest: dict[str, str] = {}
    out: list[str] = []
    for fact in facts:
        latest[fact.file] = max(latest.get(fact.file, ""), fact.ts or "")
        out.append(latest[fact.file])
    return out
