"""A made-up session of Pebble, for `thence demo`."""

from __future__ import annotations

from datetime import datetime

from thence.agents.samples import Machine, SampleClock, made_id, put

CONVERSATION = (("user", "Is the tide table complete?"), ("pebble", "Yes, it is."))


def write(machine: Machine, now: datetime) -> None:
    """Write one session that ended at `now`; the same moment gives the same bytes."""
    time = SampleClock(now).text
    records = [
        {
            "id": f"p{number}",
            "parent": f"p{number - 1}" if number else None,
            "speaker": speaker,
            "text": text,
            "time": time,
        }
        for number, (speaker, text) in enumerate(CONVERSATION)
    ]
    put(machine.home / f"{made_id('pebble')}.jsonl", records)
