"""A made-up session of Pebble, for `thence demo`."""

from __future__ import annotations

from datetime import datetime

from thence.agents.samples import Machine, SampleClock, made_id, put


def write(machine: Machine, now: datetime) -> None:
    """Write one session, as of a moment."""
    clock = SampleClock(now)
    words = (("you", "Is the tide table whole?"), ("pebble", "It is."))
    records = [
        {"id": f"p{n}", "after": f"p{n - 1}" if n else None, "who": who, "text": text}
        | {"at": clock.text}
        for n, (who, text) in enumerate(words)
    ]
    put(machine.home / f"{made_id('pebble')}.jsonl", records)
