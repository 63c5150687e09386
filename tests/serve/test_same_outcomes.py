"""Terminal, viewer, API, digest, exports and the replay for editors say the same of every call."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from tests.agents.rollouts import A, Line, assistant, call, event, meta, output, user
from tests.pace import by_pace
from tests.rules import rules
from tests.serve.conftest import House, empty
from thence.agents import Adapter, Source, adapters
from thence.agents.profiles import toolbox
from thence.agents.sessions import LoadedSession, find_source, read_all
from thence.bridge.acp_agent import replay
from thence.bridge.otlp import trace_of
from thence.cli import thence
from thence.cli.session_text import Page
from thence.errors import ThenceError
from thence.format.facts import Fact
from thence.format.graph import State
from thence.format.normal import DERIVED
from thence.format.outcomes import CallOutcome, add_effects
from thence.format.readout import Readout
from thence.format.session_graph import SessionGraph
from thence.format.stored import StoredEvent
from thence.memory.gate import Gate
from thence.memory.growth import Growing
from thence.memory.ingest import Ingester
from thence.memory.packs import Packs
from thence.memory.readouts import open_loaded, open_session, read_session
from thence.memory.recall import as_read
from thence.memory.session_timeline import SessionTimeline
from thence.memory.store import unpack_facts
from thence.serve.chart import Chart

LONG = "/home/dev/" + "a-long-folder-name/" * 8
FAILED_TESTS = "=== 1 failed, 4 passed in 0.1s ==="

CALLS: list[tuple[str, dict[str, Any], Any, list[Line], str, str]] = [
    # Tool, input, result, what other records tell; the viewer's row kind and status.
    (
        *("exec_command", {"cmd": "exit 7"}, "Process exited with code 7\nOutput:\n", []),
        *("error", "exit 7"),
    ),
    (
        "exec_command",
        {"cmd": f"cd {LONG} && pytest -q"},
        f"Process exited with code 1\nOutput:\n{FAILED_TESTS}",
        [],
        *("test", "1 failed"),
    ),
    (
        "exec_command",
        {"cmd": f"cd {LONG} && pytest -q | tail -3"},
        f"Process exited with code 0\nOutput:\n{FAILED_TESTS}",
        [],
        *("test", "1 failed"),
    ),
    (
        *("shell", {"command": ["bash", "-lc", "false"]}),
        json.dumps({"output": "x" * 300, "metadata": {"exit_code": 3}}),
        *([], "error", "exit 3"),
    ),
    (
        *("exec_command", {"cmd": "make"}, "no rule"),
        [event("exec_command_end", call_id="c4", exit_code=2, duration={"secs": 5, "nanos": 0})],
        *("error", "exit 2"),
    ),
    ("exec_command", {"cmd": "rm -r x"}, "exec command rejected by user", [], "error", "denied"),
    (
        *("exec_command", {"cmd": f"cd {LONG} && sed -i s/a/b/ notes.md"}),
        *("Process exited with code 0\nOutput:\n", [], "edit", "exit 0"),
    ),
    ("exec_command", {"cmd": "ls"}, "Process exited with code 0\nOutput:\na", [], "tool", "exit 0"),
]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A machine with one session that holds all of these calls, swept and served."""
    folder = tmp_path_factory.mktemp("machine")
    house = empty(folder)
    lines = [meta(), user("Go.")]
    for number, (tool, asked, answer, more, _, _) in enumerate(CALLS):
        lines += [call(tool, f"c{number}", **asked), *more, output(f"c{number}", answer)]
    lines.append(assistant("Done."))
    path = house.homes.codex / "sessions/2026/01/01" / f"rollout-2026-01-01T00-00-00-{A}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    house.close()
    house = House(folder)
    house.swept()
    with house.serving():
        yield house
    house.close()


def api_outcomes(house: House) -> dict[str, CallOutcome]:
    """Return the outcomes that the API gives, by call."""
    events = house.ask(f"/api/sessions/codex:{A}/events?kind=tool_call").json["events"]
    return {entry["call"]: msgspec.convert(entry["outcome"], CallOutcome) for entry in events}


def test_page_and_api_tell_how_each_call_went(machine: House) -> None:
    """An exit code that only the text tells, one that another record tells, a denial, tests."""
    row = machine.context.row(f"codex:{A}")
    chart = Chart(read_session(machine.store, row, as_read))
    shown = [(chart.records[row.place].blocks[row.block], row.kind) for row in chart.every_row]
    kinds = {block.call: kind for block, kind in shown if block.kind == "tool_call"}
    page = machine.ask(f"/sessions/codex:{A}").body.decode()
    drawn = dict(re.findall(r'<li [^>]*id="(e[0-9a-f]{13})"(.*?)(?=<li |\Z)', page, re.DOTALL))
    names = {
        block.call: f"e{block.event_id:013x}"
        for record in chart.records
        for block in record.blocks
        if block.kind == "tool_call"
    }
    api = api_outcomes(machine)

    assert row.events
    assert {f"c{n}": kind for n, (*_, kind, _) in enumerate(CALLS)} == kinds
    for number, (*_, status) in enumerate(CALLS):
        assert api[f"c{number}"] == chart.calls[f"c{number}"].outcome
        assert status in drawn[names[f"c{number}"]]


@pytest.mark.slow
def test_terminal_marks_the_calls_that_the_viewer_marks(machine: House) -> None:
    """One cross for each failed call and each run with failed tests."""
    env = machine.homes.env | {"HOME": str(machine.folder), "COLUMNS": "400"}
    shown = CliRunner().invoke(thence, ["show", f"codex:{A}"], env=env, catch_exceptions=False)
    api = api_outcomes(machine)
    wrong = [name for name, outcome in api.items() if outcome.is_red]

    assert ["c0", "c1", "c2", "c3", "c4", "c5"] == wrong
    assert len(wrong) == len(re.findall("^✗", shown.output, re.MULTILINE)), shown.output
    assert 1 == len(re.findall("^■", shown.output, re.MULTILINE)), shown.output
    assert 5000 == api["c4"].duration_ms


def test_digest_counts_what_the_api_says(machine: House) -> None:
    """Failed calls by tool, test runs, edited files."""
    digest = machine.ask(f"/api/sessions/codex:{A}/digest").json
    api = api_outcomes(machine).values()
    failed = sum(outcome.failed and not outcome.is_cut_short for outcome in api)

    assert failed == sum(tool["failed"] for tool in digest["tools"])
    assert [(2, 2)] == [(run["runs"], run["red"]) for run in digest["tests"]]
    assert ["notes.md"] == [file["path"] for file in digest["files"] if file["edits"]]


@pytest.mark.parametrize(
    ("kind", "calls"),
    [
        ("error", {"c0", "c1", "c3", "c4", "c5"}),  # of c4 another record tells that it failed
        ("test_run", {"c1", "c2"}),
        ("edit", {"c6"}),  # not the one that was denied
        ("retry", {"c2"}),
        ("human_intervention", {"c5"}),
    ],
)
def test_search_finds_by_kind_what_calls_and_results_say(
    machine: House, kind: str, calls: set[str | None]
) -> None:
    """Each answer is a derived event, and names the call or the result that it comes from."""
    events = machine.ask(f"/api/sessions/codex:{A}/events").json["events"]
    named = {entry["event_id"]: entry.get("call") for entry in events}
    hits = machine.ask(f"/api/search?q=kind:{kind}").json["hits"]
    opened = machine.ask(f"/api/sessions/codex:{A}/events/{hits[0]['event_id']}").json
    env = machine.homes.env | {"HOME": str(machine.folder)}
    result = CliRunner().invoke(thence, ["search", f"kind:{kind}", "--json"], env=env)
    printed_hits = json.loads(result.output)["hits"]

    assert calls == {named[hit["derived_from"]] for hit in hits}
    assert {hit["event_id"] for hit in hits} == {hit["event_id"] for hit in printed_hits}
    assert hits[0]["derived_from"] == opened["event_id"]


def failed_spans(session: Readout) -> set[int]:
    """Return the calls that an export as spans marks as failed."""
    spans = trace_of(session, agent="Codex").spans
    return {int(span.key.removeprefix("call ")) for span in spans if span.error is not None}


def failed_updates(session: Readout) -> set[int]:
    """Return the calls that a replay of the live line for an editor marks as failed."""
    updates = (u for u in replay(session) if u["sessionUpdate"] == "tool_call_update")
    names = {update["toolCallId"] for update in updates if update["status"] == "failed"}
    return {pair.call.event_id for pair in session.calls if pair.call.call in names}


def test_exports_and_handoffs_tell_what_the_api_says(machine: House) -> None:
    """Spans and a replay fail where the API does; a handoff takes every call along."""
    api = api_outcomes(machine)
    row = machine.context.row(f"codex:{A}")
    session = open_session(machine.store, row, as_read).session
    names = {pair.call.event_id: pair.call.call for pair in session.calls}
    failed = {name for name, outcome in api.items() if outcome.failed}
    env = machine.homes.env | {"HOME": str(machine.folder)}
    asked = ["handoff", f"codex:{A}", "--to", "claude", "--dry-run", "--json"]
    answer = json.loads(CliRunner().invoke(thence, asked, env=env, catch_exceptions=False).output)

    assert failed == {names[at] for at in failed_spans(session)}
    assert failed == {names[at] for at in failed_updates(session)}
    assert len(api) == answer["calls"] == len(CALLS)


# -- all calls of real clients --------------------------------------------------------------


def sources(folder: Path) -> list[tuple[Adapter, Source]]:
    """Return all sessions in a folder of several homes."""
    known = adapters()
    owners = (find_source(path, known) for path in sorted(folder.rglob("*.jsonl")))
    known_owners = [owner for owner in owners if owner is not None]
    return list(
        {(source.uid, source.path): (adapter, source) for adapter, source in known_owners}.values()
    )


def stored(
    keeper: Ingester, adapter: Adapter, source: Source
) -> tuple[list[Fact], dict[int, StoredEvent]]:
    """Return the facts and events of a session as they are stored, without payloads."""
    out: list[Fact] = []
    rows: dict[int, StoredEvent] = {}
    grown: Growing | None = None
    while True:
        result = keeper.read(adapter, source, None, grown)
        if (change := result.change) is not None:
            out += unpack_facts(change.facts) if change.facts else []
            rows = {} if change.rebuilt else rows
            rows |= {row.event.event_id: row for row in (*change.events, *change.altered)}
            rows = {at: row for at, row in rows.items() if at not in change.vanished}
        if result.rest is None:
            return out, rows
        grown = result.rest


@pytest.mark.slow
@pytest.mark.sampled
def test_every_reader_agrees_on_every_call_of_real_clients(shared: Path, tmp_path: Path) -> None:
    """The terminal on a file; viewer, digest and API on what is stored; facts without payloads."""
    calls = sessions = 0
    keeper = Ingester(Packs(tmp_path / "packs"), Gate((), key=bytes(32)), rules())
    step = by_pace(everyday=10, full=10, prove=1)
    for adapter, source in list(sources(shared / "data"))[::step]:
        try:
            facts, batch = read_all(adapter, source)
        except ThenceError:
            continue
        add_effects(facts, toolbox().of(source.adapter))
        read = SessionGraph(source.uid, facts, torn=batch.torn)
        expected = [(e.event_id, e.kind, e.summary, e.failed) for e in read.derived]
        outcomes = {pair.call.event_id: pair.outcome for pair in read.calls}
        light_facts, rows = stored(keeper, adapter, source)
        light = SessionGraph(source.uid, light_facts, torn=batch.torn)
        terminal = Page(open_loaded(LoadedSession(source, read, [], [])), 100)
        session = Readout(source.uid, rows.values(), terminal.session.head)
        viewer, digest = Chart(session), SessionTimeline(session)
        own = [row for row in rows.values() if row.event.state is not State.REPLAYED]
        sessions += 1
        calls += len(outcomes)

        assert not any(block.payload for fact in light.facts for block in fact.blocks if block.ref)
        assert outcomes == light.outcomes
        assert outcomes == {row.event.event_id: row.outcome for row in own if row.outcome}
        assert outcomes == {pair.call.event_id: pair.outcome for pair in digest.session.calls}
        assert all(outcomes[pair.call.event_id] == pair.outcome for pair in digest.calls)
        assert sorted(row for row in expected if row[1] in DERIVED) == sorted(
            (e.event_id, e.kind, e.summary, e.failed)
            for row in rows.values()
            for e in row.derived_events()
        )
        assert expected == [(e.event_id, e.kind, e.summary, e.failed) for e in light.derived]
        failed = {at for at, outcome in outcomes.items() if outcome.failed}
        assert failed == failed_spans(session)
        assert failed_updates(session) <= failed
        assert terminal.calls.keys() == viewer.calls.keys()
        for name, pair in terminal.calls.items():
            assert pair.outcome == viewer.calls[name].outcome, name
            if pair.call.state is not State.REPLAYED:
                assert pair.outcome == outcomes[pair.call.event_id], name
    assert sessions > 300 // step
    assert calls > 2000 // step // 2
