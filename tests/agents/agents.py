"""Real sessions of further agents, and what the API really billed for them."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from thence.agents import Adapter, Cursor
from thence.agents.sessions import read_all
from thence.format import derived_events, lineage
from thence.format.facts import Fact
from thence.format.records import Usage
from thence.format.session_graph import SessionGraph


class Bill(msgspec.Struct, frozen=True):
    """Tokens of requests: `input` includes what the cache gave."""

    requests: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0


class Scenario(msgspec.Struct, frozen=True):
    """What a home holds, or what the API answered: comparable."""

    own: Bill
    side: Bill
    calls: dict[str, int]
    prompts: int


def billed(
    scenario: Path,
    *,
    unlogged: tuple[str, ...] = (),
    side: tuple[str, ...] = ("subagent",),
    unasked: int = 0,
    thoughts_beside: bool = False,
) -> Scenario:
    """Return what the API billed, without the kinds of request that no file holds.

    `side` are the kinds that subagents made, `unasked` the prompts that no request was made for.
    With `thoughts_beside` the API's output does not include what the model thought.
    """
    truth = json.loads((scenario / "truth.json").read_text())
    bills = {"own": Bill(), "side": Bill()}
    calls: Counter[str] = Counter()
    prompts = unasked
    for request in truth["requests"]:
        kind = request["kind"]
        prompts += kind == "turn" and request["step"] == 0
        if kind in unlogged or not request.get("completed", request.get("delivered")):
            continue
        calls.update(call if isinstance(call, str) else call["name"] for call in request["calls"])
        where = "side" if kind in side else "own"
        usage, bill = request["usage"], bills[where]
        bills[where] = Bill(
            bill.requests + 1,
            bill.input + usage["input"],
            bill.cached + usage["cached"],
            bill.output + usage["output"] + thoughts_beside * usage["reasoning"],
        )
    return Scenario(bills["own"], bills["side"], dict(calls), prompts)


def sessions_of(adapter: Adapter, root: Path) -> dict[str, SessionGraph]:
    """Return all sessions of a home, each record and bill owned by one of them."""
    facts: dict[str, list[Fact]] = {}
    torn: dict[str, bool] = {}
    for source in adapter.find(root):
        facts[source.session], batch = read_all(adapter, source)
        torn[source.session] = batch.torn
        assert [] == batch.skipped
    shared = lineage.find_shared(facts)
    return {
        name: SessionGraph(
            f"{adapter.name}:{name}",
            facts[name],
            replayed=shared.replayed[name],
            billed=shared.billed[name],
            torn=torn[name],
        )
        for name in facts
    }


def counted(adapter: Adapter, root: Path) -> Scenario:
    """Return what the sessions of a home hold together."""
    own, side = Usage(), Usage()
    requests = {"own": 0, "side": 0}
    calls: Counter[str] = Counter()
    prompts = 0
    for session in sessions_of(adapter, root).values():
        spent = session.spent
        own = derived_events.add_usage(own, derived_events.add_usage(spent.live, spent.dead))
        side = derived_events.add_usage(side, spent.side)
        for event in session.events:
            if event.event_id in session.bills:
                requests["side" if event.is_sidechain else "own"] += 1
        calls.update(pair.call.tool or "" for pair in session.calls)
        prompts += sum(
            event.kind == "user_msg" and not event.is_sidechain and event.state != "replayed"
            for event in session.events
        )
    return Scenario(
        _bill(own, requests["own"]), _bill(side, requests["side"]), dict(calls), prompts
    )


def _bill(usage: Usage, requests: int) -> Bill:
    read = usage.cache_read_input_tokens
    input_tokens = usage.input_tokens + usage.cache_creation_input_tokens + read
    return Bill(requests, input_tokens, read, usage.output_tokens)


def outcomes(session: SessionGraph) -> list[tuple[str, bool, bool, int | None]]:
    """Return tool, whether it ended, whether it failed and the exit code of each call."""
    return [
        (pair.call.tool or "", pair.outcome.ended, pair.outcome.failed, pair.outcome.exit_code)
        for pair in session.calls
    ]


def write_lines(path: Path, *records: Any) -> Path:
    """Write records, one to a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


WRITTEN = 1_777_888_800
"""When made-up documents were written, in seconds since 1970."""


def write_document(path: Path, value: Any) -> Path:
    """Write a document as clients do: beside its place, and then moved over the one before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.tmp")
    beside.write_text(json.dumps(value))
    os.utime(beside, (WRITTEN, WRITTEN))
    return beside.replace(path)


def write_all(steps: Iterable[None]) -> None:
    """Write all steps of a made-up client."""
    for _ in steps:
        pass


def read_by_steps(adapter: Adapter, root: Path, steps: Iterable[None]) -> dict[str, SessionGraph]:
    """Return all sessions of a home that was read after each step of its client."""
    facts: dict[str, list[Fact]] = {}
    cursors: dict[str, Cursor] = {}
    for _ in chain(steps, (None,)):
        for source in adapter.find(root):
            batch = adapter.read(source, cursors.get(source.session))
            cursors[source.session] = batch.cursor
            facts.setdefault(source.session, []).extend(batch.events)
    shared = lineage.find_shared(facts)
    return {
        name: SessionGraph(
            f"{adapter.name}:{name}",
            own,
            replayed=shared.replayed[name],
            billed=shared.billed[name],
        )
        for name, own in facts.items()
    }


def without_requests(scenario: Scenario) -> Scenario:
    """Return a scenario without the number of requests, of agents that write totals only."""
    own = msgspec.structs.replace(scenario.own, requests=0)
    return msgspec.structs.replace(scenario, own=own)


def prompts_of(session: SessionGraph) -> list[tuple[str, str]]:
    """Return each prompt with its state."""
    return [(e.summary, str(e.state)) for e in session.events if e.kind == "user_msg"]
