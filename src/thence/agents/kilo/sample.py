"""A session the way Kilo keeps it: in the tables of OpenCode."""

from __future__ import annotations

from datetime import datetime, timedelta

from thence.agents.kilo.profile import PROFILE
from thence.agents.opencode.sample import write_rows
from thence.agents.samples import Machine, by_forms, history


def write(machine: Machine, now: datetime) -> None:
    """Write a made-up session below a home."""
    call = by_forms(PROFILE.forms)
    story = history("kilo", "neap", machine, now - timedelta(hours=75), call)
    write_rows(machine.home / "kilo.db", story)
