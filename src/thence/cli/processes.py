"""Command lines of the Python processes that we start or write into other programs' settings.

Such a process often begins in a project's folder, and what lies there is hostile: a file
`json.py`, a folder `thence`. Python must never look there for modules.
"""

from __future__ import annotations

import sys
from typing import Final

ISOLATED: Final = ("-E", "-P")
"""Options of Python: no variable such as PYTHONPATH and no current folder says where modules lie.
Unlike with -I, the packages that the user installed for themselves are there."""


def python(*arguments: str) -> list[str]:
    """Return the command line of a Python that loads installed modules only."""
    return [sys.executable, *ISOLATED, *arguments]


def thence(*arguments: str) -> list[str]:
    """Return the command line of a thence command that loads installed modules only."""
    return python("-m", "thence", *arguments)
