"""What the terminal shows: colour or not, which marks, and a pager for what is longer than it.

The only place that decides about any of these. Colour: `--color`, else `NO_COLOR`, else
`FORCE_COLOR`, else whether a terminal listens. Marks are ASCII, one for one so that columns stay,
where the terminal knows no UTF-8. Only what a terminal shows goes through a pager: the one of
`THENCE_PAGER` or `PAGER`, else `less -FRX`; a pager that cannot be had is done without.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Final, Literal, TextIO

import click

Colour = Literal["auto", "always", "never"]
PAGER: Final = "less -FRX"
NO_PAGER: Final = ("", "cat")

_ASCII = str.maketrans(
    "●◆▲✓✗○╳═■◦·…│├└─┬╮╯┊╌▸━╸╾╼╴┃█░▁▂▃▄▅▆▇▉“”≥→×◇›\N{MINUS SIGN}",
    '*!!+xox=#o..||`-+\\/::>=->>-|#.__--=+##"">>x*>-',
)
_BEYOND = re.compile("[^\x00-\x7f]+")


class ScreenOptions:
    """What was asked for on the command line; each command starts with the defaults."""

    def __init__(self) -> None:
        self.colour: Colour = "auto"
        self.pager = True


screen_options = ScreenOptions()


def width() -> int:
    """Columns to fill."""
    return max(40, _size("COLUMNS", 0) or 80)


def _size(name: str, at: int) -> int:
    """Ask the environment, then the terminal, for one of its measures; 0 if nobody says."""
    text = os.environ.get(name, "")
    if text.isdecimal() and int(text):
        return int(text)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1)[at]
    except (OSError, ValueError):  # no terminal: as wide as is usual
        return 0


def is_coloured(stream: TextIO | None = None) -> bool:
    """Whether to colour what is printed there, else to stdout."""
    if screen_options.colour != "auto":
        return screen_options.colour == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return (stream or sys.stdout).isatty() and os.environ.get("TERM") != "dumb"


def style(text: str, **how: str | bool) -> str:
    """Colour a text, if colour is wanted."""
    return click.style(text, **how) if is_coloured() else text  # type: ignore[arg-type]


def unicode() -> bool:
    """Whether the terminal shows more than ASCII, as far as it says so."""
    locale = next((v for n in ("LC_ALL", "LC_CTYPE", "LANG") if (v := os.environ.get(n))), "utf-8")
    return _is_utf8() and "utf" in locale.lower() and os.environ.get("TERM") != "dumb"


def _is_utf8() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


# -- printing -------------------------------------------------------------------------------


def tell(lines: Iterable[str], *, pager: bool = True) -> None:
    """Print lines of text with the marks that the terminal knows, many through a pager.

    Without one where a question follows.
    """
    _print(lines if unicode() else _in_ascii(lines), pager=pager)


def say(lines: Iterable[str]) -> None:
    """Print lines of JSON; where the stream knows no UTF-8, all in escapes."""
    _print(lines if _is_utf8() else (_BEYOND.sub(_escape, line) for line in lines))


def _escape(match: re.Match[str]) -> str:
    import json

    return json.dumps(match[0])[1:-1]


def _in_ascii(lines: Iterable[str]) -> Iterator[str]:
    encoding = sys.stdout.encoding or "ascii"
    for line in lines:
        yield line.translate(_ASCII).encode(encoding, "replace").decode(encoding)


def _print(lines: Iterable[str], *, pager: bool = True) -> None:
    lines = iter(lines)
    if pager and sys.stdout.isatty() and (command := _pager()):
        all_lines = list(lines)
        if len(all_lines) >= (_size("LINES", 1) or 24) and _print_paged(command, all_lines):
            return
        lines = iter(all_lines)
    while batch := list(itertools.islice(lines, 1000)):  # long answers need little room
        _out(batch)


def _out(lines: list[str]) -> None:
    if lines:
        click.echo("\n".join(lines), color=is_coloured())


# -- the pager ------------------------------------------------------------------------------


def _pager() -> str:
    """Return the command of the pager; nothing if none is wanted."""
    # A pager writes where this process does: what a caller has put in that place would be missed.
    if (
        not screen_options.pager
        or os.environ.get("TERM") == "dumb"
        or sys.stdout is not sys.__stdout__
    ):
        return ""
    commands = (os.environ.get(name) for name in ("THENCE_PAGER", "PAGER"))
    command = next((text for text in commands if text is not None), PAGER)
    return "" if command.strip() in NO_PAGER else command


def _print_paged(command: str, lines: Iterable[str]) -> bool:
    """Hand lines to a pager and wait for it; False if there is no such thing.

    A reader who has seen enough ends it: what is left is not needed. Ctrl-C is the pager's.
    """
    import signal
    import subprocess

    sys.stdout.flush()
    pager = subprocess.Popen(  # noqa: S602 - the user's own words
        command,
        shell=True,
        stdin=subprocess.PIPE,
        env={"LESS": "FRX", "LV": "-c", **os.environ},
        encoding=sys.stdout.encoding or "utf-8",
        errors="replace",
    )
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pager.communicate("".join(f"{line}\n" for line in lines))
    finally:
        signal.signal(signal.SIGINT, before)
    return pager.returncode not in (126, 127)  # as a shell says that there is none
