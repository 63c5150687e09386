"""Words of questions: those that do not count, and other words that may have been meant.

A question in a sentence is mostly words that every session has. They do not count where others are
there. Where a word is found nowhere, the parts of a name, other forms of the word and near
spellings are asked for instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from thence.format.expressions import expression

_STOP_WORDS: Final = """
    a an the and or but if then than so because as while of in on at to for from with by
    about into onto over under between through during per via is are was were be been being
    am do does did done doing have has had having can could should would will shall may
    might must i me my mine we us our ours you your yours he him his she her it its they
    them their this that these those there here what when where which who whom whose why how
    again ever never just also only very really please not no yes any anybody anyone
    anything some somebody someone something all both each more most such same other another
    s t re ve ll d m don didn doesn isn wasn weren aren can't cannot gonna wanna want wanted
    like think know tell let lets ok okay hey hi up out off
"""
STOP_WORDS: Final = frozenset(_STOP_WORDS.split())
"""English words, and question words, that say nothing of what is looked for."""

MIN_BEGINNING: Final = 2
"""Characters of a word that may be the beginning of another."""
MIN_PART: Final = 3
"""Characters of a part of a name, and of a stem."""
MIN_NEAR: Final = 4
"""Characters of a word that may be meant by a near spelling; twice as many allow two slips."""

_HUMP = expression(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W_a-zA-Z0-9]+")
_ENDINGS: Final = (
    *("izations", "isations", "ization", "isation", "ations", "ation", "ating", "ated", "ates"),
    *("ments", "ment", "ness", "ings", "ing", "iers", "ies", "ied", "ers", "er", "ed", "es"),
    *("ions", "ion", "ors", "or", "ly", "al", "s", "e"),
)
_FORMS: Final = (
    *("", "s", "es", "e", "ed", "ing", "er", "ers", "ion", "ions", "ation", "ations"),
    *("ate", "ated", "ating", "ize", "ise", "ized", "ised", "ization", "isation", "ment", "y"),
    *("ies", "ied", "al", "or"),
)


def parts_of(name: str) -> list[str]:
    """Return the parts of a camelCase or snake_case name; none where it has a single one."""
    parts = [part.lower() for part in _HUMP.findall(name)]
    return [part for part in parts if len(part) >= MIN_PART] if len(parts) > 1 else []


def forms_of(word: str) -> list[str]:
    """Return other forms of an English word: plurals, tenses, nouns and verbs of its stem."""
    word = word.lower()
    if not word.isascii() or not word.isalpha() or len(word) <= MIN_PART:
        return []
    ending = next((e for e in _ENDINGS if word.endswith(e) and len(word) - len(e) >= MIN_PART), "")
    stem = word.removesuffix(ending)
    stems = [stem]
    if len(stem) > MIN_PART and stem[-1] == stem[-2]:
        stems.append(stem[:-1])  # "stopp" of "stopped"
    forms = dict.fromkeys(stem + form for stem in stems for form in _FORMS)
    forms.pop(word, None)
    return list(forms)


def other_number(word: str) -> str | None:
    """Return the plural of an English word, or its singular; None where it is no such word."""
    word = word.lower()
    if not word.isascii() or not word.isalpha() or len(word) <= MIN_PART or word.endswith("ss"):
        return None
    if word.endswith("s"):
        return f"{word[:-3]}y" if word.endswith("ies") else word[:-1]
    ends_in_y = word.endswith("y") and word[-2] not in "aeiou"
    return f"{word[:-1]}ies" if ends_in_y else f"{word}s"


def like(word: str, known: Iterable[str]) -> list[str]:
    """Return those of some words that are other forms of one, then those a slip or two away."""
    known = set(known) - {word}
    forms = [form for form in forms_of(word) if form in known]
    if len(word) < MIN_NEAR:
        return forms
    most = 1 if len(word) < 2 * MIN_NEAR else 2
    near = sorted((distance(word, other), other) for other in known)
    return forms + [other for slips, other in near if slips <= most and other not in forms]


def distance(word: str, other: str) -> int:
    """Return how many slips lie between two words; more than two count as three."""
    if abs(len(word) - len(other)) > 2:
        return 3
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(word, 1):
        older, before, row = before, row, [at]
        for to, sign in enumerate(other, 1):
            cost = min(row[-1] + 1, before[to] + 1, before[to - 1] + (letter != sign))
            if at > 1 and to > 1 and letter == other[to - 2] and word[at - 2] == sign:
                cost = min(cost, older[to - 2] + 1)
            row.append(cost)
    return min(row[-1], 3)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the one of some names that was meant by a word, if it is near to any."""
    ranked = sorted((distance(word, name), name) for name in known)
    return ranked[0][1] if ranked and ranked[0][0] <= min(2, len(word) // 2) else None
