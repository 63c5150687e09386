"""Sessions of Kilo Code's client: a fork of OpenCode that keeps the same tables in `kilo.db`."""

from __future__ import annotations

from thence.agents.opencode.reader import OpenCode


class Kilo(OpenCode):
    """The reader of Kilo's sessions."""

    name = "kilo"
    looks_for = "kilo.db"
    pattern = "kilo*.db"
    variable = "KILO_DB"
