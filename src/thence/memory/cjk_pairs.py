"""Chinese, Japanese and Korean in the index: runs of their characters as overlapping pairs.

These scripts put few or no spaces between words, and the tokenizer takes a run of letters for one
word. So a run goes to the index as its pairs, then its last character: `登录系统` becomes `登录`,
`录系`, `系统`, `统`. A search for two or more characters is a phrase of pairs; one for a single
character asks for the pairs that begin with it. A run ends where another script begins: `修复login`
has the word `login`.

Full-width letters and half-width kana, and syllables that are written in parts, are the same as
their usual form (NFKC). Text without any such character is left as it is, at the cost of one look.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final, NamedTuple

from thence.format.expressions import expression

CHARACTERS: Final = (
    "\u1100-\u11ff\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3040-\u3096\u309d-\u309f"
    "\u30a1-\u30fa\u30fc-\u30ff\u3100-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97f\uac00-\ud7a3\ud7b0-\ud7ff\uf900-\ufaff\uff66-\uff9f"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
"""The characters of these scripts, for a set of a regular expression; all are letters there."""

_ANY = expression(f"[{CHARACTERS}\u2f00-\u2fd5\uff10-\uff19\uff21-\uff3a\uff41-\uff5a]")
_RUN = expression(f"[{CHARACTERS}]+")
_PIECE = expression(rf"[{CHARACTERS}]+|[^\W_{CHARACTERS}]+")
_VARIANT = expression(
    "[\u1100-\u115f\ua960-\ua97c][\u1160-\u11a7\ud7b0-\ud7c6][\u11a8-\u11ff\ud7cb-\ud7fb]?"
    "|[\u3046-\u30fd][\u3099\u309a]|[\uff66-\uff9d][\uff9e\uff9f]?"
    "|[\u2f00-\u2fd5\uf900-\ufaff\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\U0002f800-\U0002fa1d]"
)
"""One character in a form that is not its usual one."""


_LEADS: Final = {0xE1, *range(0xE3, 0xEE), 0xEF, *range(0xF0, 0xF5)}
_OTHER_BYTES: Final = bytes(byte for byte in range(256) if byte not in _LEADS)
_RADICALS: Final = (b"\xe2\xbc", b"\xe2\xbd", b"\xe2\xbe", b"\xe2\xbf")
"""What characters of these scripts begin with in UTF-8."""


class Term(NamedTuple):
    """Words of a search that follow each other in the index."""

    words: tuple[str, ...]
    is_prefix: bool
    """Whether the last word is the beginning of one in the index."""


def index_text(text: str) -> str:
    """Return a text as the tokenizer of the index takes it."""
    return _RUN.sub(_pairs, usual_form(text)) if has_characters(text) else text


def search_term(text: str, *, is_prefix: bool) -> Term:
    """Return the words of the index that a text of a search stands for, if it has any."""
    pieces = pieces_of(text)
    words: list[str] = []
    for piece in pieces[:-1]:
        words += index_text(piece).split()
    for piece in pieces[-1:]:
        # What comes after the last character is not asked for: it may be inside a run.
        inside = is_run(piece) and len(piece) > 1
        words += index_text(piece).split()[:-1] if inside else [piece]
        is_prefix |= is_run(piece) and not inside
    return Term(tuple(words), is_prefix)


def pieces_of(text: str) -> list[str]:
    """Return the words of a text in their usual form, runs of these scripts by themselves."""
    return _PIECE.findall(usual_form(text))


def is_run(piece: str) -> bool:
    """Return whether a piece is a run of characters of these scripts."""
    return _RUN.match(piece) is not None


def usual_form(text: str) -> str:
    """Return a text with its characters in their usual form."""
    return _VARIANT.sub(_usual, text) if has_characters(text) else text


def place_in(text: str, place: int) -> int:
    """Return the place in a text of what stands at `place` in its usual form."""
    longer = 0
    for variant in _VARIANT.finditer(text) if has_characters(text) else ():
        start, size = variant.start() - longer, len(_usual(variant))
        if place < start:
            break
        if place < start + size:
            return variant.start()
        longer += variant.end() - variant.start() - size
    return place + longer


def has_characters(text: str) -> bool:
    """Return whether a text has a character of these scripts, or a variant of a letter."""
    if text.isascii():
        return False
    # Most texts that are more than ASCII have dashes, arrows and frames: their bytes tell soon.
    body = text.encode("utf-8", "surrogatepass")
    if not body.translate(None, _OTHER_BYTES) and not any(map(body.__contains__, _RADICALS)):
        return False
    return _ANY.search(text) is not None


def _usual(variant: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC", variant[0])


def _pairs(run: re.Match[str]) -> str:
    characters = run[0]
    pairs = map(str.__add__, characters, characters[1:])
    return f" {' '.join((*pairs, characters[-1]))} "
