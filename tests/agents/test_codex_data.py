"""The real client's rollouts: tokens and calls as the API itself counted them, and every state."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from thence.agents import Cursor, File, Source
from thence.agents.codex.reader import Codex
from thence.agents.codex.records import NO_USAGE
from thence.agents.profiles import toolbox
from thence.agents.sessions import LoadedSession, load_source, read_all
from thence.format import derived_events
from thence.format.facts import Fact
from thence.format.graph import State
from thence.format.outcomes import add_effects
from thence.format.repair import problems
from thence.format.session_graph import SessionGraph
from thence.format.turn import TurnState
from thence.memory.readouts import readout_of

CUTS = 40
"""How many pieces a file is read in."""

NO_FILE = {"01a1e078-4499-7141-9ae6-d17b63478282"}
"""A thread that was deleted: the API knows it, the disk does not."""


def scenario(shared: Path, name: str) -> dict[str, LoadedSession]:
    """All threads of one scenario."""
    adapter = Codex()
    sources = adapter.find(shared / "data" / "codex" / name / "codex_home")
    return {source.session: load_source(adapter, source) for source in sources}


def thread_of(shared: Path, name: str, end: str = "") -> SessionGraph:
    """The thread of a scenario whose id ends so."""
    return next(
        loaded.graph for thread, loaded in scenario(shared, name).items() if thread.endswith(end)
    )


def prompts(session: SessionGraph, *states: State) -> list[str]:
    """The prompts in these states."""
    return [e.summary for e in session.events if e.kind == "user_msg" and e.state in states]


def sent(session: SessionGraph) -> list[str]:
    """What a human said in the messages that the model would see next."""
    texts = [
        block["text"]
        for message in readout_of(session).messages().messages
        for block in message["content"]
        if message["role"] == "user" and block["type"] == "text"
    ]
    return [text for text in texts if not text.startswith("<")]


def truths(shared: Path) -> list[tuple[str, str, dict[str, Any]]]:
    """Scenario, thread, and what the API counted, of all threads that hold turns."""
    out = []
    for path in sorted((shared / "data" / "codex").glob("*/truth.json")):
        for thread, truth in json.loads(path.read_bytes())["threads"].items():
            kinds = [v for k, v in truth["by_kind"].items() if k in ("turn", "compaction")]
            if kinds:
                sums = {name: sum(kind[name] for kind in kinds) for name in kinds[0]}
                out.append((path.parent.name, thread, {**sums, "calls": truth["tool_calls"]}))
    return out


@pytest.mark.slow
def test_tokens_and_calls_are_those_the_api_counted(shared: Path) -> None:
    """X9, X10: per thread, in all scenarios; where the log lacks it, a lower bound that says so."""
    wrong: list[str] = []
    loaded: dict[str, dict[str, LoadedSession]] = {}
    checked = 0
    for name, thread, truth in truths(shared):
        if thread in NO_FILE:
            continue
        sessions = loaded.setdefault(name, scenario(shared, name))
        session = sessions[thread].graph
        usage = derived_events.add_usage(session.spent.live, session.spent.dead)
        read = usage.total - usage.output_tokens
        got = (usage.total, read, usage.output_tokens)
        if [NO_USAGE] == [notice.detail for notice in session.unbilled]:
            wrong += [f"{thread}: more than was billed"] if got[0] > truth["total"] else []
        elif got != (truth["total"], truth["input"], truth["output"]):
            wrong.append(f"{name} {thread}: {got}")
        calls = derived_events.calls(session.events)
        tools = Counter((pair.call.tool or "").rpartition("__")[2] for pair in calls)
        # Calls that were written by hand were never made by the API.
        if tools != Counter(truth["calls"]) and name != "handwritten-resume":
            wrong.append(f"{name} {thread}: {tools}")
        checked += 1

    assert [] == wrong
    assert 39 == checked


def test_totals_are_exact_but_for_the_bare_form(shared: Path) -> None:
    """Of the real client's threads only that of 0.20 is a lower bound."""
    open_ = {
        name
        for name, thread, _ in truths(shared)
        if thread not in NO_FILE and scenario(shared, name)[thread].graph.unbilled
    }

    assert {"old-0.20.0", "handwritten-resume"} == open_


def test_no_line_is_lost(shared: Path) -> None:
    """R4: every line of every thread is an event, or told to be bad."""
    adapter = Codex()
    bad = 0
    for home in sorted((shared / "data" / "codex").glob("*/codex_home")):
        for source in adapter.find(home):
            facts, batch = read_all(adapter, source)
            lines = {(f.file, f.line) for f in facts if f.blocks}
            files = [Path(file.path).read_bytes() for file in source.files]
            bad += len(batch.skipped)

            assert sum(data.count(b"\n") for data in files) == len(lines) + len(batch.skipped)
    assert 1 == bad


def test_messages_are_what_the_api_accepts(shared: Path) -> None:
    """Of every thread, orphans and pictures included."""
    problems_of = {
        loaded.source.path: problems(readout_of(loaded.graph).messages().messages)
        for name in sorted(p.name for p in (shared / "data" / "codex").iterdir() if p.is_dir())
        for loaded in scenario(shared, name).values()
    }

    assert {} == {path: wrong for path, wrong in problems_of.items() if wrong}


# -- scenarios, event by event --------------------------------------------------------------


def test_fork_shows_three_prompts(shared: Path) -> None:
    """X7: two inherited by reference and one of its own; the parent's third is not among them."""
    threads = scenario(shared, "fork")
    fork, parent = (thread_of(shared, "fork", end) for end in ("ac094f", "59dcbd"))

    assert ["What does calc.py do?", "Is that a bug?", "Suggest a docstring"] == sent(fork)
    assert ["Suggest a docstring"] == prompts(fork, State.LIVE)
    assert ["What does calc.py do?", "Is that a bug?", "Name the function"] == prompts(
        parent, State.LIVE
    )
    assert [parent.native] == [edge.session for edge in fork.edges]
    assert [] == [notice for loaded in threads.values() for notice in loaded.notices]


def test_rewind_leaves_one_turn_dead(shared: Path) -> None:
    """X7: TUI: an answer, Esc, /compact, two answers, a rewind, /rename, /fork."""
    session = thread_of(shared, "tui-mixed-rewind-fork", "2819bf")
    dead = [(e.kind, e.summary) for e in session.events if e.state == State.DEAD]
    fork = thread_of(shared, "tui-mixed-rewind-fork", "dde925")

    assert [
        ("user_msg", "Suggest a docstring"),
        ("assistant_msg", '"""Return the sum of a and b."""'),
        ("lifecycle", "token_usage_record"),
        ("lifecycle", "task_complete"),
    ] == dead
    assert [
        "What does calc.py do?",
        "Run the long job",
        "Is that a bug?",
        "Name the function",
    ] == prompts(session, State.LIVE)
    assert (1412, "my calc thread") == (session.spent.dead.total, session.title)
    assert ["Is that a bug?", "Name the function", "And once more"] == sent(fork)[-3:]
    assert "my calc thread" == fork.title


def test_rewind_inside_a_rewind(shared: Path) -> None:
    """X7: three segments; the live line passes through parts of all of them."""
    session = thread_of(shared, "tui-rewind-nested")

    assert ["What does calc.py do?", "Name the function", "And once more"] == sent(session)
    assert ["What does calc.py do?", "Name the function", "And once more"] == prompts(
        session, State.LIVE
    )
    assert ["Is that a bug?", "Suggest a docstring"] == prompts(session, State.DEAD)
    assert 1230 + 1412 == session.spent.dead.total


def test_compaction_in_the_middle_of_a_turn(shared: Path) -> None:
    """X16: what the model sees is the kept prompts, the summary, and what followed."""
    session = thread_of(shared, "compact-auto")
    steps = [f"Step {n} of the long task" for n in ("one", "two", "three")]

    assert steps == prompts(session, State.LIVE)
    assert [*steps[:2], steps[2]] == [text for text in sent(session) if text.startswith("Step")]
    assert any(text.startswith("Another language model") for text in sent(session))


def test_killed_and_resumed(shared: Path) -> None:
    """Both calls of the killed turn are orphans, whatever an item said of one of them."""
    session = thread_of(shared, "killed-mid-tool")
    orphans = [e.call for e in session.events if e.state == State.ORPHANED]

    assert ["call_long", "call_second"] == orphans
    assert TurnState.DONE == session.turn().state
    assert ["call_push"] == [
        e.call for e in thread_of(shared, "tui-approval-killed").events if e.state == State.ORPHANED
    ]


def test_interrupted_by_the_user(shared: Path) -> None:
    """X17: the call has its result, the turn its end, and a late item changes neither."""
    session = thread_of(shared, "sigint")
    (long, second) = derived_events.calls(session.events)

    assert TurnState.INTERRUPTED == session.turn().state
    assert long.ending is not None
    assert second.ending is not None
    assert (True, "interrupted", False) == (
        long.ending.failed,
        long.ending.why,
        second.ending.failed,
    )


def test_tools_that_ran_failed_or_never_ran(shared: Path) -> None:
    """X12: of nine calls four went well, two failed, three were refused."""
    calls = derived_events.calls(thread_of(shared, "tools").events)
    failed = [pair.call.call for pair in calls if pair.ending and pair.ending.failed]

    assert 9 == len(calls)
    assert ["call_fail", "call_patch_bad", "call_plan", "call_unknown", "call_badjson"] == failed


def test_servers_tools_and_code(shared: Path) -> None:
    """X12: a failed tool of a server; of three scripts one throws, and one edits files."""
    served = derived_events.calls(thread_of(shared, "mcp").events)
    coded = thread_of(shared, "code-mode")
    edits = [e.summary for e in coded.derived if e.kind == "edit"]

    assert [False, True] == [pair.ending.failed for pair in served if pair.ending]
    assert [False, False, True] == [
        pair.ending.failed for pair in derived_events.calls(coded.events) if pair.ending
    ]
    assert ["edited calc.py, test_calc.py"] == edits


def test_parent_and_children(shared: Path) -> None:
    """X5, X18: both sides tell of the tie; the child with context does not own its parent's."""
    threads = scenario(shared, "subagents-v1")
    parent, plain, context = (
        thread_of(shared, "subagents-v1", e) for e in ("5b45", "e35c", "c97f")
    )

    assert {plain.native, context.native} == {e.session for e in parent.edges if e.child}
    assert [parent.native] * 2 == [child.edges[0].session for child in (plain, context)]
    assert ["Ask two helpers"] == prompts(context, State.REPLAYED)
    assert ["HELPER-B: count the lines"] == prompts(context, State.LIVE)
    assert 3 == len(threads)


def test_error_of_the_api(shared: Path) -> None:
    """X17: the turn rests; the next one went well."""
    session = thread_of(shared, "api-error")

    assert 1 == sum(1 for e in session.events if e.kind == "error")
    assert TurnState.DONE == session.turn().state


def test_archived_thread_is_found(shared: Path) -> None:
    """X1: one lies in the archive, one came back from it."""
    assert 2 == len(scenario(shared, "archive"))


# -- growth ---------------------------------------------------------------------------------


def logs(shared: Path) -> list[Path]:
    """Every rollout there is."""
    data = shared / "data"
    paths = [*(data / "codex").rglob("rollout-*.jsonl"), *(data / "public/codex").rglob("*.jsonl")]
    return sorted(p for p in paths if p.name != "history.jsonl" and p.stat().st_size < 200_000)


def view(session: SessionGraph) -> object:
    """All that a session comes to."""
    return session.events, session.about, session.edges, session.unbilled, session.spent


def grown(adapter: Codex, source: Source, data: bytes, cuts: list[int]) -> list[Fact]:
    """Read a file that grows from cut to cut."""
    path = Path(source.path)
    path.write_bytes(b"")
    facts: list[Fact] = []
    cursor: Cursor | None = None
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        with path.open("ab") as file:
            file.write(data[start:end])
        batch = adapter.read(source, cursor)
        facts, cursor = facts + batch.events, batch.cursor
    again = adapter.read(source, cursor)

    assert (0, []) == (again.lines, again.events)
    return facts


@pytest.mark.slow
def test_reading_in_pieces_equals_reading_at_once(shared: Path, tmp_path: Path) -> None:
    """R1, R3: cut anywhere, every file; lines in any order; and nothing raises."""
    adapter = Codex()
    chance = random.Random(7)
    for path in logs(shared):
        known = adapter.at(path)
        assert known is not None
        data = path.read_bytes()
        key = next(file.key for file in known.files if file.path == str(path))
        copy = tmp_path / path.name
        copy.write_bytes(data)
        source = Source("codex", known.session, (File(str(copy), key),))
        facts, _ = read_all(adapter, source)
        session = SessionGraph(source.uid, facts)
        ends = [at + 1 for at, byte in enumerate(data) if byte == 10]
        cuts = chance.sample(ends, min(len(ends), CUTS // 2))
        cuts += [chance.randrange(len(data) + 1) for _ in range(CUTS // 2)]
        pieces = grown(adapter, source, data, sorted(cuts))
        chance.shuffle(facts)

        assert view(session) == view(SessionGraph(source.uid, pieces)), path.name
        assert view(session) == view(SessionGraph(source.uid, facts)), path.name


@pytest.mark.parametrize("name", ["killed-mid-tool", "tui-approval-killed"])
def test_state_at_the_kill_then_the_end(shared: Path, tmp_path: Path, name: str) -> None:
    """What was read at the kill and what came later are one session; at the kill it was running."""
    folder = shared / "data" / "codex" / name
    adapter = Codex()
    shutil.copytree(folder / "at-kill", tmp_path / "home")
    (source,) = adapter.find(tmp_path / "home")
    first = adapter.read(source)
    killed = SessionGraph(source.uid, first.events, torn=first.torn)
    (end,) = (folder / "codex_home" / "sessions").rglob("*.jsonl")
    Path(source.path).write_bytes(end.read_bytes())
    second = adapter.read(source, first.cursor)
    facts = first.events + second.events
    add_effects(facts, toolbox())
    session = SessionGraph(source.uid, facts)

    assert TurnState.RUNNING == killed.turn().state
    assert TurnState.INTERRUPTED == killed.turn(alive=False).state
    assert ([], view(thread_of(shared, name))) == (second.notices, view(session))


@pytest.mark.slow
def test_public_files_hold_the_calls_that_are_in_them(shared: Path) -> None:
    """Calls, results and orphans of other people's rollouts, counted by another program."""
    root = shared / "data" / "public"
    adapter = Codex()
    wrong = []
    for name, truth in json.loads((root / "truth.json").read_bytes())["files"].items():
        if truth.get("family") != "codex" or not name.startswith("codex/"):
            continue
        source = adapter.at(root / name)
        assert source is not None
        blocks = [block for fact in read_all(adapter, source)[0] for block in fact.blocks]
        calls = {b.call for b in blocks if b.kind == "tool_call"} - {None}
        results = {b.call for b in blocks if b.kind == "tool_result"} - {None}
        counts = (len(calls), len(results), sorted(filter(None, calls - results)))
        if counts != (truth["tool_use"], truth["tool_result"], truth["orphaned_tool_use_ids"]):
            wrong.append((name, counts))

    assert [] == wrong


def test_history_of_the_terminal(shared: Path) -> None:
    """X22: what was typed, with its session; the public one is long."""
    adapter = Codex()
    home = shared / "data" / "codex" / "tui-rewind-nested" / "codex_home"
    typed = list(adapter.prompts(home))
    public = list(adapter.prompts(shared / "data" / "public" / "codex" / "openprintkit"))

    assert "What does calc.py do?" == typed[0].text
    assert {thread_of(shared, "tui-rewind-nested").native} == {prompt.session for prompt in typed}
    assert 115 == len(public)
