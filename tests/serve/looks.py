"""How a page is looked at: three widths, light and dark.

Every test in a browser runs at each of them in `make prove`, and at one of them otherwise: which
one follows from its name, so that all together cover all looks. THENCE_LOOK=390-dark names one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Final, NamedTuple
from zlib import crc32

PHONE, USUAL, WIDE = 390, 1440, 2560


class Look(NamedTuple):
    """A width in pixels, and the theme."""

    width: int = USUAL
    dark: bool = False

    @property
    def name(self) -> str:
        """What cases of tests are called."""
        return f"{self.width}-{'dark' if self.dark else 'light'}"


LOOKS: Final = tuple(Look(width, dark) for width in (PHONE, USUAL, WIDE) for dark in (False, True))

current: Look = Look()
"""At which pages are opened in this test, where it says nothing else."""


def looks_of(name: str) -> list[Look]:
    """Return all looks for a test, the one that it is always run at first."""
    names = [look.name for look in LOOKS]
    wanted = os.environ.get("THENCE_LOOK", "")
    start = names.index(wanted) if wanted in names else crc32(name.encode()) % len(LOOKS)
    return [*LOOKS[start:], *LOOKS[:start]]


def looks_from(first: Look) -> Iterator[Look]:
    """Yield all looks again and again, a given one first: for a test that opens many pages."""
    return islice(cycle(LOOKS), LOOKS.index(first), None)
