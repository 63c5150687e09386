"""The rules by which sessions are derived, besides those of redaction: made once, and passed on.

Whatever way a session comes into a store, what is derived of it depends on these and on its log
alone. Whoever makes sessions needs them: there is no default that would hide that they are missing.

A session that lies in no store, or that an older fold put together, is priced where it is read, by
the list that ships with the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from thence.format.tools import Toolbox

if TYPE_CHECKING:
    from thence.memory.digest import Digester
    from thence.memory.outcome import TaskPattern
    from thence.memory.pricelist import Prices


class Rulebook(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of tools and prices, and what the user's settings say."""

    toolbox: Toolbox
    """The names of tools, those of all installed agents among them."""
    prices: Prices
    """What usage costs, by model, day and tier."""
    domains: Mapping[str, str]
    """The domains of repositories."""
    tasks: tuple[TaskPattern, ...] | None
    """How tasks are named; None for the usual ways."""
    digesters: Mapping[str, Digester] | None
    """Who tells something of a session; None for all that are installed."""
