"""Figures and names the way people read them: one vocabulary for terminal and browser. Pure.

What a log says is hostile. `clean` shows control characters (C0, C1), bidirectional marks, halves
of characters and invisible tags as one visible mark each, so that no text can hide or reorder
another one.
"""

from __future__ import annotations

import shlex
from datetime import datetime
from typing import Final

from thence.format.expressions import expression

TICKS: Final = 10**10  # the smallest unit that an agent records: grok's ticks
"""Units of money in a dollar."""

_JOINED: Final = (
    "[\u0590-\u08ff\u0900-\u109f\u1780-\u18af\ufb1d-\ufdff\ufe0f\ufe70-\ufefc"
    "\u2190-\u2bff\U0001f000-\U0001faff]"
)
"""Letters of scripts that join or split by zero-width signs, and emoji."""

_HARMFUL: Final = (
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
    f"|(?<!{_JOINED})[\u200c\u200d]|[\u200c\u200d](?!{_JOINED})"
)
HARMFUL: Final = expression(_HARMFUL)
"""What a terminal would obey, or what would hide text. Line ends are among it.

U+200C and U+200D stay between letters that they join or split and between the parts of an emoji.
"""

_HARMFUL_IN_TEXT: Final = expression(_HARMFUL.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f", 1))


def clean(text: str) -> str:
    """Replace what would be obeyed, or would hide text, by a visible mark.

    Line ends are among it: what is shown on one line stays on one line.
    """
    if text.isascii() and text.isprintable():  # nearly all; the expression takes long to be made
        return text
    return HARMFUL.sub("\N{REPLACEMENT CHARACTER}", text.expandtabs(4))


def clean_text(text: str) -> str:
    """Do the same to a text of many lines, whose line ends and tabs stay."""
    return _HARMFUL_IN_TEXT.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def format_duration(milliseconds: int) -> str:
    """Say how long something took: `31 ms`, `3.1 s`, `41 s`, `3 min`, `1 h 50`."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 10_000:
        return f"{milliseconds / 1000:.1f}".removesuffix(".0") + " s"
    seconds = round(milliseconds / 1000)
    if seconds < 60:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02}"


def short(number: int) -> str:
    """Say a number of tokens in little room: `950`, `19k`, `1.2k`, `2.4M`."""
    for unit, size in (("M", 1_000_000), ("k", 1000)):
        if number >= size:
            digits = f"{number / size:.1f}" if number < 10 * size else f"{number // size}"
            return digits.removesuffix(".0") + unit
    return f"{number}"


_UNITS: Final = {1000: ("KB", "MB", "GB", "TB"), 1024: ("KiB", "MiB", "GiB", "TiB")}


def size(count: int, limit: int = 0) -> str:
    """Return a number of bytes as text: `57 bytes`, `4.1 KB`, `380 KB`, `4 GB`.

    What has a limit is told in the units of its limit: `3.1 GiB` of `4 GiB`.
    """
    base = 1024 if size_limit(limit).endswith("iB") else 1000
    if count < base:
        return "1 byte" if count == 1 else f"{count} bytes"
    amount = float(count)
    units = _UNITS[base][:3]
    for unit in units:
        amount /= base
        if amount < 999.5 or unit == units[-1]:
            break
    digits = f"{amount:.1f}".removesuffix(".0") if amount < 9.95 else f"{amount:,.0f}"
    return f"{digits} {unit}"


def size_limit(count: int) -> str:
    """Return a set number of bytes as people write it: `4 GiB`, `1.5 GB`, `50 MiB`, `1,024 MB`.

    Of the units that say it exactly the one with the fewest digits, else a whole number of bytes.
    """
    forms = [(15, f"{count:,} bytes")]
    for base, units in _UNITS.items():
        for power, unit in enumerate(units, start=1):
            tenths, rest = divmod(10 * count, base**power)
            if not rest and 10 <= tenths < 100_000:
                text = f"{tenths // 10:,}" + (f".{tenths % 10}" if tenths % 10 else "")
                forms.append((len(f"{tenths}".strip("0")), f"{text} {unit}"))
    return min(forms, key=lambda form: (form[0], len(form[1])))[1]


def several(number: int, noun: str, *, is_bound: bool = False) -> str:
    """Say how many of a thing: `1 event`, `1,204 events`, `2 branches`; `1,000+ secrets`.

    `is_bound` says that there may be more.
    """
    if number == 1 and not is_bound:
        return f"1 {noun}"
    plus = "+" if is_bound else ""
    return f"{number:,}{plus} {noun}{'es' if noun.endswith('ch') else 's'}"


def money(ticks: int, unpriced: int = 0, *, is_bound: bool = False) -> str:
    """Return an amount in dollars: `$1.20`, `$1.20+` for at least so much, `?` if nothing is known.

    `unpriced` are tokens without a known price; `is_bound` says that bills are missing.
    """
    if not ticks and (unpriced or is_bound):
        return "?"
    return f"${ticks / TICKS:,.2f}{'+' if unpriced or is_bound else ''}"


_AGE_UNITS: Final = ((60, "min", 3600), (3600, "h", 86_400), (86_400, "d", 8 * 86_400))
"""Seconds of a unit of age, its name, and the seconds from which the next one is taken."""


def ago(then: datetime | None, now: datetime) -> str:
    """Say how long ago something was: relative for a week, then its date."""
    if then is None:
        return "-"
    passed = (now - then).total_seconds()
    if passed < 60:
        return "now"
    for seconds, unit, limit in _AGE_UNITS:
        if passed < limit:
            return f"{int(passed // seconds)} {unit}"
    here = then.astimezone(now.tzinfo)
    recent = passed < 300 * 86_400 or here.year == now.year
    return f"{here.day} {here:%b}" if recent else f"{here:%Y-%m}"


def since(then: datetime, now: datetime) -> str:
    """Say how long ago something was in a sentence: `5 min ago`, `just now`, `25 Mar`."""
    passed = ago(then, now)
    is_age = any(passed.endswith(f" {unit}") for _, unit, _ in _AGE_UNITS)
    return "just now" if passed == "now" else f"{passed} ago" if is_age else passed


def short_id(name: str) -> str:
    """Enough of an id to know it by; those that begin with the time need more."""
    timed = len(name) == 36 and name[14] == "7"
    return clean(name[:13] if timed else name[:8])


def argument(name: str) -> str:
    """Return a name as the last word of a shell command, which no program takes for an option."""
    quoted = shlex.quote(name)
    return f"-- {quoted}" if name.startswith("-") else quoted


def project(cwd: str | None) -> str:
    """Name the folder a session works in."""
    return clean((cwd or "").replace("\\", "/").rstrip("/").rpartition("/")[2])
