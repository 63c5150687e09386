"""Modules of the standard library that libraries of ours import and short commands never use.

Each is replaced by an empty one, which loads the real module when anything of it is asked for:
`inspect` with what it imports is a tenth of the start of a command.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from threading import RLock
from types import ModuleType
from typing import Any, Final

NAMES: Final = ("inspect", "textwrap", "ipaddress", "gettext", "platform")
"""Modules that are loaded when they are used."""

_loading = RLock()


class LateModule(ModuleType):
    """A module that is loaded when it is used."""

    def load(self) -> ModuleType:
        """Return the real module, which takes the place of this one."""
        with _loading:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
            real = import_module(self.__name__)
            self.__dict__.update(real.__dict__)
        return real

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the real module."""
        if name == "__path__":  # asked for by every import: none of them is a package
            raise AttributeError(name)
        return getattr(self.load(), name)


class LateInspect(LateModule):
    """`inspect`, of which the help of every option needs one function."""

    def cleandoc(self, doc: str) -> str:
        """Return a text without its indentation; that of one line loads nothing."""
        is_line = "\n" not in doc
        return doc.expandtabs().lstrip() if is_line else str(self.load().cleandoc(doc))


class LateGettext(LateModule):
    """`gettext`: our messages are in English, so are those of libraries beside them."""

    def gettext(self, message: str) -> str:
        """Return a message as it is."""
        return message

    def ngettext(self, singular: str, plural: str, n: int) -> str:
        """Return the message for a number of things."""
        return singular if n == 1 else plural


class LatePlatform(LateModule):
    """`platform`, which `uuid` and `zstandard` ask where they are when they are loaded."""

    def python_implementation(self) -> str:
        """Return the name of the Python that runs."""
        is_usual = sys.implementation.name == "cpython"
        return "CPython" if is_usual else str(self.load().python_implementation())

    def system(self) -> str:
        """Return the name of the system."""
        return os.uname().sysname if hasattr(os, "uname") else str(self.load().system())


_KINDS: Final = {"inspect": LateInspect, "gettext": LateGettext, "platform": LatePlatform}


def delay_loading() -> None:
    """Let modules be loaded when they are used; those that are loaded already stay."""
    for name in NAMES:
        sys.modules.setdefault(name, _KINDS.get(name, LateModule)(name))


def load_msgspec() -> None:
    """Load msgspec as where `typing_extensions` is not installed.

    It asks that module for what `typing` has as well, and it takes longer to load than msgspec.
    """
    if sys.modules.keys().isdisjoint(("msgspec", "typing_extensions")):
        sys.modules["typing_extensions"] = None  # type: ignore[assignment] # Python's "not there"
        try:
            import_module("msgspec")
        finally:
            del sys.modules["typing_extensions"]
