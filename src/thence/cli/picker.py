"""Choosing one of many on a terminal: type to filter, look at it below, enter takes it.

`Picker` is what is on the screen and how keys change it; `pick` lends it a terminal. The screen
is drawn on stderr, so that what is chosen can be the only thing on stdout.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import click

from thence.cli.screen import is_coloured
from thence.cli.terminal import columns, cut

_ENTER: Final = ("\r", "\n")
_LEAVE: Final = ("\x1b", "\x03", "\x04")
_UP: Final = ("\x1b[A", "\x1bOA", "\x10")
_DOWN: Final = ("\x1b[B", "\x1bOB", "\x0e")
_RUBOUT: Final = ("\x7f", "\x08")
_CLEAR: Final = ("\x15", "\x17")
_KEY: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO.|.", re.DOTALL)
"""A sequence that a key sends, or a character."""
_PAGES: Final = {"\x1b[5~": -1, "\x1b[6~": 1}


class PickerChoice(NamedTuple):
    """One thing that can be chosen. All its texts are clean."""

    line: str
    words: str
    """What is looked into when something is typed."""
    preview: tuple[str, ...] = ()


class PickCancelled(Exception):
    """Nothing was chosen."""


class Picker:
    """The state of choosing."""

    def __init__(self, choices: Sequence[PickerChoice], *, colour: bool = True) -> None:
        self._choices = choices
        self._colour = colour
        self.typed = ""
        self.at = 0
        self._page = 10

    @property
    def matching(self) -> list[int]:
        """Which choices hold all words that were typed."""
        words = self.typed.lower().split()
        return [
            number
            for number, choice in enumerate(self._choices)
            if all(word in choice.words.lower() for word in words)
        ]

    def press(self, key: str) -> int | None:
        """Take a key; return the choice once it is made, raise `PickCancelled` on leaving."""
        if key in _LEAVE:
            raise PickCancelled
        fitting = self.matching
        if key in _ENTER:
            return fitting[self.at] if fitting else None
        if key in _UP or key in _DOWN:
            self._move(-1 if key in _UP else 1, len(fitting))
        elif key in _PAGES:
            self._move(_PAGES[key] * self._page, len(fitting))
        else:
            self._type(key)
        return None

    def _move(self, by: int, number: int) -> None:
        self.at = min(max(self.at + by, 0), max(number - 1, 0))

    def _type(self, key: str) -> None:
        if key in _RUBOUT:
            self.typed = self.typed[:-1]
        elif key in _CLEAR:
            self.typed = ""
        elif key.isprintable():
            self.typed += key
        else:
            return
        self.at = 0

    def lines(self, width: int, height: int) -> Iterator[str]:
        """Draw it."""
        fitting = self.matching
        chosen = self._choices[fitting[self.at]] if fitting else None
        preview = chosen.preview if chosen else ()
        room = max(height - 3 - min(len(preview), 6), 3)
        self._page = room
        first = max(min(self.at - room // 2, len(fitting) - room), 0)
        counts = f"{len(fitting):,} of {len(self._choices):,}"
        typed = cut(f"> {self.typed}", max(width - len(counts) - 2, 4))
        yield typed + " " * max(width - columns(typed) - len(counts), 1) + self._dim(counts)
        for number in fitting[first : first + room]:
            here = number == fitting[self.at]
            line = cut(self._choices[number].line, width - 2)
            yield self._bold(f"▸ {line}") if here else f"  {line}"
        yield ""
        for line in preview[:6]:
            yield self._dim(cut(f"  {line}", width))
        yield self._dim(cut("  type to filter, Enter to choose, Esc to cancel", width))

    def _bold(self, text: str) -> str:
        return click.style(text, bold=True) if self._colour else text

    def _dim(self, text: str) -> str:
        return click.style(text, fg="bright_black") if self._colour else text


def possible() -> bool:
    """Whether there is a terminal to choose on."""
    return sys.stdin.isatty() and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def pick(choices: Sequence[PickerChoice]) -> int:
    """Let the user choose; `click.Abort` when nothing is chosen."""
    picker = Picker(choices, colour=is_coloured(sys.stderr))
    with _raw():
        try:
            while True:
                _draw(picker)
                for key in _keys():
                    if (chosen := picker.press(key)) is not None:
                        return chosen
        except PickCancelled:
            raise click.Abort from None


def _draw(picker: Picker) -> None:
    wide, high = os.get_terminal_size(sys.stderr.fileno())
    wide, high = wide or 80, high or 24  # some terminals do not say
    lines = list(picker.lines(wide, high))[:high]
    sys.stderr.write("\x1b[H" + "\x1b[K\r\n".join(lines) + "\x1b[K\x1b[J")
    sys.stderr.write(f"\x1b[1;{min(columns(picker.typed) + 3, wide)}H")
    sys.stderr.flush()


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """Keys as they are pressed, on a screen of our own; all as before when it is over."""
    import termios
    import tty

    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    try:
        tty.setraw(handle)
        sys.stderr.write("\x1b[?1049h")
        yield
    finally:
        sys.stderr.write("\x1b[?1049l")
        sys.stderr.flush()
        termios.tcsetattr(handle, termios.TCSADRAIN, before)


def _keys() -> Iterator[str]:
    """Yield the keys that were pressed: a sequence for those that send one, else a character."""
    handle = sys.stdin.fileno()
    body = os.read(handle, 1024)
    while select.select([handle], [], [], 0.02)[0] and len(body) < 1 << 16:
        more = os.read(handle, 1024)
        if not more:
            break
        body += more
    if not body:
        raise PickCancelled
    yield from split(body.decode("utf-8", "replace"))


def split(text: str) -> list[str]:
    """Cut what was read into keys: one that is held down comes several times at once."""
    return _KEY.findall(text)
