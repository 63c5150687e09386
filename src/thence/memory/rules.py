r"""The secrets redaction knows: one table, one row per kind.

A row has the kind, an RE2 pattern, keywords, and two texts: one that holds such a secret and one
that only looks like it. The tests run over the rows. Invariants:

- The first group of a pattern that took part is the secret; without groups it is the whole match.
- Every text that a pattern matches holds one of the row's keywords, in any case of letters.
- Where a row says what stands `near` its secrets, every such text, and all JSON of it, holds that.
- Patterns are plain RE2: one pass over the text, however hostile it is.
- No secret stands in this file. Texts are templates that `sample` fills, so that neither a reader
  nor a secret scanner takes the repository for a leak.

Which services have which prefixes, lengths and entropies was learned from gitleaks
(https://github.com/gitleaks/gitleaks, MIT licence, Copyright (c) 2019 Zachary Rice) and from the
services' own pages. The patterns are written anew for RE2 and for the texts of sessions: escaped
JSON, lines wrapped by a terminal, numbered lines, URLs, env dumps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from thence.errors import BadConfig


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of secret."""

    name: str
    """The kind, as placeholders show it."""
    pattern: str
    keywords: tuple[str, ...]
    """In lower case; without any, the pattern is tried on every text."""
    example: str = ""
    """A template whose filling holds this secret."""
    near_miss: str = ""
    """A template whose filling holds no secret at all."""
    entropy: float = 0.0
    """The least bits per character of a secret; less is a word or a placeholder."""
    hashed: bool = True
    """Whether its placeholder carries a keyed hash: never for what can be guessed."""
    shape: str = ""
    """What the secret is once line breaks are taken out, as a pattern for the whole of it."""
    strict: bool = False
    """Only the name before it speaks for this secret, so its letters must look like chance."""
    ids: bool = False
    """Of a strict rule: a UUID or a hash in hexadecimal is a secret too."""
    near: str = ""
    """What to look for in place of the keywords, where these are in every third text."""
    check: str = ""
    """The name of a check that the secret must pass as well; see `plausibility.CHECKS`."""


def rule_of(
    name: str,
    pattern: str,
    *,
    keywords: tuple[str, ...] = (),
    entropy: float = 0.0,
    hashed: bool = True,
) -> Rule:
    """Make a user's rule; `BadConfig` says why it cannot be one.

    Give keywords: lower-case words one of which is in every match. Without them the pattern runs
    over every text.
    """
    import re2  # type: ignore[import-untyped]

    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,39}", name):
        raise BadConfig(
            f"redaction rule {name!r}: not a name for a kind of secret",
            hint="use up to 40 lower-case letters, digits and dashes",
        )
    options = re2.Options()
    options.log_errors = False
    try:
        empty = re2.compile(pattern, options).search("") is not None
    except re2.error as error:
        reason = error.args[0]
        why = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise BadConfig(
            f"redaction rule {name!r}: RE2 refuses its pattern: {why}",
            hint="RE2 has no look-around and no back-references; put the secret into a group",
        ) from error
    if empty:
        raise BadConfig(
            f"redaction rule {name!r}: its pattern matches the empty text",
            hint="ask for at least one character, say with + in place of *",
        )
    # Other letters have cases that a search over bytes does not know.
    plain = tuple(word.lower() for word in keywords if word)
    known = plain if all(map(str.isascii, plain)) else ()
    return Rule(name, pattern, known, entropy=entropy, hashed=hashed)


# --- parts of patterns ---------------------------------------------------------------------------

FOLD = r"""(?:\\?\r?\n[ \t]*|(?:\\{1,2}r)?\\{1,2}n[ \t]*|["'][ \t]*\+?\s*["'])"""
"""Where a long text goes on in the next line: plain, escaped, or as two string literals."""

LINE_END = r"""(?:\r?\n|[\\"'\x60<]|\z)"""

START = r"(?:\b|\\[nrt]|%[0-9A-Fa-f]{2})"
"""Before a short prefix: no letter, unless it belongs to an escape."""

STOP = r"(?:[^0-9A-Za-z_+/=-]|\z)"
"""After a text of a fixed length: it really ends."""

SET = (
    r"(?:[\\\"'\x60\])]{0,6}[ \t]{0,4}(?:=>|:=|={1,3}|::?|>)\s{0,4}(?:\\{0,3}[\"'\x60(\[]){0,2}"
    r"|\\{0,3}[\"'\x60],\s{0,4}\\{0,3}[\"'\x60])"
)
"""Between a name and the value it is given."""

UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


def fixed_length(prefix: str, letters: str, count: int) -> str:
    """Return the pattern of a prefix and so many letters, broken over lines or not."""
    return f"({prefix}(?:[{letters}]{FOLD}?){{{count - 1}}}[{letters}])"


def long(prefix: str, letters: str, least: int) -> str:
    """Return the pattern of a prefix and an open number of letters.

    It goes on in the next line if that line holds nothing else.
    """
    first = f"{prefix}[{letters}]{{{least},}}"
    return f"(?:({first}(?:{FOLD}[{letters}]{{4,}})+){LINE_END}|({first}))"


def word(pattern: str) -> str:
    """Return the pattern of a secret with a short prefix, at the start of a word."""
    return f"{START}({pattern})"


def assignment(words: str, value: str) -> str:
    """Return the pattern of a value that a name with one of the words is given."""
    return rf"(?i:{words})[\w .-]{{0,24}}{SET}({value}){STOP}"


def row(
    name: str,
    pattern: str,
    keywords: str,
    example: str,
    near_miss: str,
    *,
    entropy: float = 3.0,
    hashed: bool = True,
    shape: str = "",
    strict: bool = False,
    ids: bool = False,
    near: str = "",
    check: str = "",
) -> Rule:
    """Make a row of the table; keywords are separated by blanks."""
    words = tuple(keywords.split())
    return Rule(
        *(name, pattern, words, example, near_miss, entropy, hashed, shape, strict, ids, near),
        check=check,
    )
