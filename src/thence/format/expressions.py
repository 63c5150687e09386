"""Regular expressions that are compiled when they are first used.

There are some two hundred of them, and to compile all takes longer than a sweep that finds nothing
new: a command pays for those it meets. Otherwise they are what `re.compile` gives.

Invariant: one that cannot be compiled is found by the tests, which compile every one.
"""

from __future__ import annotations

import re
from typing import AnyStr, Generic, cast

_METHODS = (
    "match",
    "search",
    "fullmatch",
    "sub",
    "subn",
    "split",
    "findall",
    "finditer",
    "pattern",
)


class Late(Generic[AnyStr]):
    """Stands for a compiled expression; asked for anything it becomes one, and is as quick then."""

    def __init__(self, text: AnyStr, flags: int) -> None:
        self._of: tuple[AnyStr, int] = text, flags

    def __getattr__(self, name: str) -> object:
        """Compile, once: what is found here then is not asked for in this way again."""
        made = re.compile(*self._of)
        self.__dict__.update((method, getattr(made, method)) for method in _METHODS)
        return getattr(made, name)


def expression(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what `re.compile` would, later."""
    return cast("re.Pattern[AnyStr]", Late(text, flags))


def source_of(pattern: re.Pattern[AnyStr]) -> tuple[AnyStr, int]:
    """Return the text and the flags that an expression was made from, without compiling it."""
    return cast("Late[AnyStr]", pattern)._of  # noqa: SLF001 - of this module
