"""A session the way Kilo keeps it: in the tables of OpenCode."""

from __future__ import annotations

from datetime import datetime, timedelta

from thence.agents.opencode.sample import write_rows
from thence.agents.samples import Machine, history


def write(machine: Machine, now: datetime) -> None:
    """Write a made-up session below a home."""
    story = history("kilo", "neap", machine, now - timedelta(hours=75))
    write_rows(machine.home / "kilo.db", story)
