"""Marks: where a text says what was looked for. One rule for snippets, terminal and viewer.

A term is marked as whole words, as the index has them: `2` not in `23:13`, `code` not in `gcode`.
One that ends in `*`, or that is still typed (`search.parse` adds the star), is marked as the
beginning of a word. Chinese, Japanese and Korean have no gaps between words: they are marked
anywhere.

The same rule is spelled twice: as an expression of Python, and as one of a browser's script.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from thence.memory import cjk_pairs

MIN_INSIDE_CHARS: Final = 3
"""Characters of a term from which on it may be looked for inside of other words."""


PIECE_CHARS: Final = 2_048
"""Characters of a text that are looked through at once."""


class _Dialect(NamedTuple):
    """How a language of expressions names a letter or digit, and what stands between words."""

    letter: str
    gap: str


# The index takes an underscore for a gap between words, and needs none beside some scripts.
_PYTHON: Final = _Dialect(r"[^\W_]", r"[\W_]")
_WITH_RUNS: Final = _Dialect(rf"[^\W_{cjk_pairs.CHARACTERS}]", r"[\W_]")
_SCRIPT: Final = _Dialect(rf"(?![{cjk_pairs.CHARACTERS}])[\p{{L}}\p{{N}}]", r"[^\p{L}\p{N}]")


class _Words(NamedTuple):
    """The words of a term, one after the other, and whether letters may stand beside them."""

    words: tuple[str, ...]
    is_open_before: bool
    is_open_after: bool

    def source(self, dialect: _Dialect) -> str:
        """Return the expression of these words, without what may stand beside them."""
        out = ""
        for before, word in pairwise(["", *self.words]):
            if before:
                is_run = cjk_pairs.is_run(before) or cjk_pairs.is_run(word)
                out += f"{dialect.gap}{'*' if is_run else '+'}"
            out += re.escape(word)
        return out


def _words(term: str, *, is_anywhere: bool) -> _Words | None:
    """Return the words of a term; None where it has none."""
    words = tuple(cjk_pairs.pieces_of(term))
    if not words:
        return None
    is_inside = is_anywhere and sum(map(len, words)) >= MIN_INSIDE_CHARS
    is_open_after = is_inside or term.endswith("*") or cjk_pairs.is_run(words[-1])
    return _Words(words, is_inside or cjk_pairs.is_run(words[0]), is_open_after)


class Marking:
    """What to mark of some terms; with `is_anywhere`, longer ones inside of other words, too."""

    def __init__(self, terms: Iterable[str] = (), *, is_anywhere: bool = False) -> None:
        known = (_words(term, is_anywhere=is_anywhere) for term in terms)
        some = dict.fromkeys(term for term in known if term is not None)
        self._terms = tuple(sorted(some, key=lambda term: -sum(map(len, term.words))))
        self._first_words = {term.words[0].lower() for term in self._terms}

    def __bool__(self) -> bool:
        return bool(self._terms)

    @property
    def script(self) -> str:
        """The expression for a browser, with the flags `iu`; empty where nothing is marked."""
        return _source(self._terms, _SCRIPT)

    def first(self, text: str) -> int | None:
        """Return where a text first says any of the terms; None where it says none."""
        if not self._terms:
            return None
        if not cjk_pairs.has_characters(text):
            match = _compiled(self._terms, has_runs=False).search(text, self._earliest(text))
            return None if match is None else match.start()
        match = _compiled(self._terms, has_runs=True).search(cjk_pairs.usual_form(text))
        return None if match is None else cjk_pairs.place_in(text, match.start())

    def spans(self, text: str, start: int = 0, end: int | None = None) -> list[tuple[int, int]]:
        """Return the places that are to be marked in a part of a text, from its own start.

        What stands beside the part counts: a word that is cut in two is not another one.
        """
        if not self._terms:
            return []
        before = min(start, 1)
        end = len(text) if end is None else min(end, len(text))
        piece = text[start - before : end + 1]
        if cjk_pairs.has_characters(piece):
            matches = _compiled(self._terms, has_runs=True).finditer(cjk_pairs.usual_form(piece))
            places = [
                (cjk_pairs.place_in(piece, m.start()), cjk_pairs.place_in(piece, m.end()))
                for m in matches
            ]
        else:
            matches = _compiled(self._terms, has_runs=False).finditer(piece)
            places = [match.span() for match in matches]
        shifted = ((at - before, to - before) for at, to in places)
        return [(at, to) for at, to in shifted if at >= 0 and to <= end - start]

    def is_met(self, lowered: str, *, by_any: bool = False) -> bool:
        """Return whether a text has all terms, or any; it is in lower case and its usual form."""
        enough, has_runs = any if by_any else all, cjk_pairs.has_characters(lowered)
        return bool(self._terms) and enough(
            (at := lowered.find(term.words[0].lower())) >= 0
            and _compiled((term,), has_runs=has_runs).search(lowered, at) is not None
            for term in self._terms
        )

    def _earliest(self, text: str) -> int:
        """Return a place before which a text has no term; quicker than an expression.

        Most texts say soon what was looked for: piece by piece no more of them is read.
        """
        longest = max(map(len, self._first_words))
        for start in range(0, len(text), PIECE_CHARS):
            piece = text[start : start + PIECE_CHARS + longest]
            lower = piece.lower()
            if len(lower) != len(piece):
                return start  # another case of a letter may have another length
            earliest = len(piece)
            for word in self._first_words:
                # Only what begins before the earliest one so far counts.
                at = lower.find(word, 0, earliest + len(word) - 1)
                earliest = at if at >= 0 else earliest
            if earliest < len(piece):
                return start + earliest
        return len(text)


def _source(terms: Sequence[_Words], dialect: _Dialect) -> str:
    """Return the expression that finds any of some terms, whole words and longer ones first.

    What stands beside a word is looked at once for all of them: inside of other words, where most
    letters are, the expression ends there.
    """
    sides: dict[tuple[bool, bool], list[str]] = {}
    for term in terms:
        sides.setdefault(term[1:], []).append(term.source(dialect))
    out = []
    for (is_open_before, is_open_after), some in sorted(sides.items()):
        before = "" if is_open_before else f"(?<!{dialect.letter})"
        after = "" if is_open_after else f"(?!{dialect.letter})"
        out.append(f"{before}(?:{'|'.join(some)}){after}")
    return "|".join(out)


@lru_cache(maxsize=256)
def _compiled(terms: tuple[_Words, ...], *, has_runs: bool) -> re.Pattern[str]:
    """Return the expression for texts with characters that need no gaps, or without.

    With them it takes a hundred times as long to make, and few texts have any.
    """
    return re.compile(_source(terms, _WITH_RUNS if has_runs else _PYTHON), re.IGNORECASE)


@lru_cache(maxsize=256)
def marking_of(terms: tuple[str, ...], *, is_anywhere: bool = False) -> Marking:
    """Return the marking of some terms; made once."""
    return Marking(terms, is_anywhere=is_anywhere)


NOTHING: Final = Marking()
"""Marks nothing."""
