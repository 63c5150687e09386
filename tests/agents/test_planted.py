"""The planted sessions of the truth suite, read in this process: every day, without our peers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.agents import read_by_steps
from thence.agents.profiles import agents
from thence.format import derived_events
from thence.format.records import Usage
from truth import further, totals
from truth.case import Case

CASES = (*further.CASES, *totals.CASES)


def steps(case: Case, home: Path) -> Iterator[None]:
    """Plant a case, and change it after each reading."""
    case.plant(home)
    for change in case.changes:
        yield
        change(home)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.agent}-{case.name}")
def test_planted_sessions_are_read_exactly(case: Case, tmp_path: Path) -> None:
    """Sessions, tokens of each kind, and which words stand on a branch that was left."""
    reader = agents()[case.agent].reader
    (root,) = reader.roots(tmp_path, {})[:1]
    sessions = read_by_steps(reader, root, steps(case, tmp_path))
    spent = Usage()
    texts: dict[str, str] = {}
    for session in sessions.values():
        for part in (session.spent.live, session.spent.dead, session.spent.side):
            spent = derived_events.add_usage(spent, part)
        shown = [event for event in session.events if event.state not in ("replayed", "internal")]
        texts |= {e.summary: "dead" if e.state == "dead" else "live" for e in shown}

    truth = case.answers
    assert truth.sessions in (None, len(sessions))
    whole_input = truth.usage.input + truth.usage.read
    read = spent.cache_read_input_tokens
    assert (whole_input, truth.usage.output) == (spent.input_tokens + read, spent.output_tokens)
    states = {
        word: state
        for word in (*truth.live_words, *truth.discarded_words)
        for text, state in texts.items()
        if word in text
    }
    expected = dict.fromkeys(truth.live_words, "live")
    expected |= dict.fromkeys(truth.discarded_words, "dead")
    assert expected == states
