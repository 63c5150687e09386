"""What Claude Code's sessions cost: every bill once, whole, and what is billed nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.agents.transcripts import (
    A,
    Script,
    kinds,
    read,
    sent_lines,
    session_of,
    text,
    usage,
    write,
)
from thence.format.records import Usage
from thence.format.turn import TurnState

# -- usage ----------------------------------------------------------------------------------


def test_the_record_with_the_highest_output_counts_whole(tmp_path: Path) -> None:
    """U1: early records of a stream hold less; fields are never mixed."""
    log = Script()
    log.user("Go.")
    log.reply([text("a")], id="m", request="q", usage=usage(1, cache_read_input_tokens=9))
    log.reply([text("b")], id="m", request="q", usage=usage(30, cache_read_input_tokens=7))
    log.reply([text("c")], id="m", request="q", usage=usage(2, cache_read_input_tokens=9))
    session = session_of(tmp_path, log)

    assert Usage(10, 30, 0, 7) == session.spent.live


def test_without_a_request_the_message_is_the_key(tmp_path: Path) -> None:
    """U2: third-party endpoints send no request id; without both each record counts."""
    log = Script()
    log.user("Go.")
    log.reply([text("a")], id="m", usage=usage(5))
    log.reply([text("b")], id="m", usage=usage(5))
    log.reply([text("c")], id="", usage=usage(1))
    log.reply([text("d")], id="", usage=usage(1))
    session = session_of(tmp_path, log)

    assert 15 + 2 * 11 == session.spent.own


def test_a_sidechain_that_repeats_the_session_is_not_billed_again(tmp_path: Path) -> None:
    """U3: a side question replays answers of the session under a request of its own."""
    log, side = Script(), Script(name="s", isSidechain=True, agentId="abc")
    log.user("Go.")
    log.reply([text("Yes.")], id="m", request="q1", usage=usage(5))
    side.reply([text("Yes.")], id="m", request="q2", usage=usage(5))
    side.reply([text("Own.")], id="n", request="q3", usage=usage(3))
    folder = write(tmp_path, log)
    agents = folder / A / "subagents"
    agents.mkdir(parents=True)
    (agents / "agent-abc.jsonl").write_bytes(side.data)
    spent = read(tmp_path).graph.spent

    assert (15, 13) == (spent.own, spent.side.total)


def test_a_tie_goes_to_the_first_written(tmp_path: Path) -> None:
    """U5: whatever order the facts come in, the same event carries the bill."""
    log = Script()
    log.user("Go.")
    log.reply([text("a")], id="m", usage=usage(5))
    log.reply([text("b")], id="m", usage=usage(5))
    session = session_of(tmp_path, log)
    turned = type(session)(session.uid, session.facts[::-1])

    assert session.spent == turned.spent
    assert session.events == turned.events


def test_what_the_client_wrote_itself_costs_nothing(tmp_path: Path) -> None:
    """U6: synthetic answers and API errors; an error is nothing the model saw."""
    log = Script()
    log.user("Go.")
    log.reply([text("No response requested.")], model="<synthetic>", usage=usage(9))
    log.user("Again.")
    log.reply([text("API Error: 529")], usage=usage(9), isApiErrorMessage=True)
    session = session_of(tmp_path, log)

    assert 0 == session.spent.own
    assert ["u Go.", "a No response requested.", "u Again."] == sent_lines(session)
    assert [("error", "system", "API Error: 529")] == kinds(session, "r4")
    assert TurnState.INTERRUPTED == session.turn().state


def test_hour_long_cache_writes_are_told_apart(tmp_path: Path) -> None:
    """U7, U8: they cost more; each response keeps its own numbers."""
    log = Script()
    parts = {"ephemeral_5m_input_tokens": 40, "ephemeral_1h_input_tokens": 60}
    log.reply([text("a")], usage=usage(5, cache_creation_input_tokens=100, cache_creation=parts))
    session = session_of(tmp_path, log)

    assert Usage(10, 5, 100, 0, 60) == session.spent.live
    assert 115 == session.spent.own


def test_web_searches_are_counted_where_they_are_told(tmp_path: Path) -> None:
    """U9, U10: the usage says 0 for the client's own search; its request is in no log."""
    log = Script()
    log.call("t", "WebSearch", query="x")
    result = {"query": "x", "results": ["y"], "durationSeconds": 1.5, "searchCount": 3}
    log.result("t", "found", toolUseResult=result)
    log.reply([text("a")], usage=usage(5, server_tool_use={"web_search_requests": 2}))
    session = session_of(tmp_path, log)

    assert 5 == session.spent.live.web_searches
    assert (15, 1) == (session.spent.own, session.spent.responses)
    assert ["the web search request is not in the log"] == [n.detail for n in session.unbilled]
    assert [1500] == [e.took_ms for e in session.events if e.kind == "tool_result"]


def test_requests_that_leave_no_bill_make_the_total_a_lower_bound(tmp_path: Path) -> None:
    """U10: titles, compactions and answers that were cut off."""
    log = Script()
    log.note("ai-title", aiTitle="A")
    log.user("Go.")
    log.reply([text("Half")], isAbortedMidStream=True)
    log.boundary()
    session = session_of(tmp_path, log)

    assert 3 == len(session.unbilled)


def test_a_subagents_spend_is_the_sessions_but_apart(tmp_path: Path) -> None:
    """U11: nothing of it is in the session's own log."""
    log, side = Script(), Script(name="s", isSidechain=True, agentId="abc")
    log.reply([text("a")], usage=usage(5))
    side.reply([text("b")], usage=usage(7))
    agents = write(tmp_path, log) / A / "subagents"
    agents.mkdir(parents=True)
    (agents / "agent-abc.jsonl").write_bytes(side.data)
    spent = read(tmp_path).graph.spent

    assert (15, 17, 32) == (spent.own, spent.side.total, spent.rolled_up)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({"service_tier": "standard"}, None), ({"service_tier": "batch"}, "batch"),
     ({"service_tier": "standard", "speed": "fast"}, "fast"), ({"service_tier": None}, None)],
)  # fmt: skip
def test_an_unusual_rate_is_kept(tmp_path: Path, fields: Any, expected: str | None) -> None:
    """U13: speed and tier change the price."""
    log = Script()
    log.reply([text("a")], usage=usage(5, **fields))

    assert [expected] == [event.tier for event in session_of(tmp_path, log).events]


def test_costs_that_old_clients_wrote_are_kept(tmp_path: Path) -> None:
    """U14: costUSD per answer once, a running total later."""
    log = Script()
    log.reply([text("a")], usage=usage(5), costUSD=0.25)
    log.note("cost-state", totalCostUSD=0.5)
    log.note("cost-state", totalCostUSD=0.75)
    session = session_of(tmp_path, log)

    assert [0.25] == [e.cost_usd for e in session.events if e.cost_usd is not None]
    assert 0.75 == session.about["status:cost_usd"]


@pytest.mark.parametrize("odd", ["12", 12.0, None, -1, True, [], 2**60])
def test_odd_token_counts_are_read_or_count_as_nothing(tmp_path: Path, odd: Any) -> None:
    """R9: numbers in quotes, nulls and nonsense."""
    log = Script()
    log.reply([text("a")], usage={"input_tokens": odd, "output_tokens": 1})

    assert (13 if odd in ("12", 12.0) else 1) == session_of(tmp_path, log).spent.own
