"""Derived kinds in the index: a search by kind finds the events of that kind that are shown."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from uuid import UUID

import pytest

from tests.agents.rollouts import Line, assistant, call, event, meta, output, user
from tests.agents.transcripts import Script
from tests.memory import logs, stored
from tests.memory.logs import DERIVED
from tests.memory.stored import opened, sweep
from tests.memory.test_sweep import files_with, real_roots
from tests.pace import by_pace
from thence.agents import adapters
from thence.cli import sample_machine
from thence.memory.recall import as_read, load_session
from thence.memory.search import parse
from thence.memory.sqlite import Sqlite
from thence.memory.store import Filter
from thence.team.postgres import Postgres

PAGE = 50
THREAD = "00000004-0000-7000-8000-000000000000"
Events = set[tuple[str, int | None]]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)], autouse=True)
def place(request: pytest.FixtureRequest) -> Iterator[str]:
    """Let stores lie in files, and then in a database."""
    if request.param == "postgres":
        stored.use(request.getfixturevalue("postgres").url())
    yield request.param
    stored.use(None)


def shown(store: Sqlite | Postgres, kinds: Sequence[str] = DERIVED) -> dict[str, Events]:
    """Return the events of each kind that are shown when the sessions of a store are."""
    out: dict[str, Events] = {kind: set() for kind in kinds}
    for row in store.sessions(Filter(evicted=False)):
        session = load_session(store, row, as_read).graph
        for shown_event in (*session.events, *session.derived):
            if shown_event.kind in out:
                out[shown_event.kind].add((session.uid, shown_event.event_id))
    return out


def searched(
    store: Sqlite | Postgres, kinds: Sequence[str] = DERIVED, words: str = ""
) -> dict[str, Events]:
    """Return the events that a search for each kind finds, page by page, none of them twice."""
    out: dict[str, Events] = {}
    for kind in kinds:
        hits: list[tuple[str, int | None]] = []
        query = parse(f"kind:{kind} {words}")
        while page := store.search(query, PAGE, len(hits)).matches:
            assert {kind} == {hit.kind for hit in page}
            hits += [(hit.session_uid, hit.event_id) for hit in page]
        out[kind] = set(hits)

        assert len(hits) == len(out[kind])
    return out


def thread() -> list[Line]:
    """A session of Codex: other records tell how calls ended, some of them later."""
    return [
        meta(THREAD),
        user("Please mend the ferry."),
        call("exec_command", "c1", cmd="make ferry"),
        output("c1", "no rule for the ferry"),
        event("exec_command_end", call_id="c1", exit_code=2),
        call("exec_command", "c2", cmd="make ferry"),
        output("c2", "ferry made"),
        call("exec_command", "c3", cmd="sed -i s/oar/sail/ ferry.md"),
        event("exec_command_end", call_id="c3", exit_code=1),
        output("c3", "ferry.md: permission denied"),
        user("The ferry has no oars."),
        assistant("Then it sails."),
    ]


def sample() -> str:
    """Return the session of our own that comes with the package."""
    return (resources.files("thence") / "samples" / "tidepool.jsonl").read_text("utf-8")


def grow(path: Path, line: bytes) -> None:
    """Append a line to a log."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(line)


def compare(folder: Path) -> dict[str, Events]:
    """Check that a store finds what it shows, and return it."""
    store = opened(folder)
    try:
        expected = shown(store)

        assert expected == searched(store)
        return expected
    finally:
        store.close()


@pytest.mark.slow
@pytest.mark.sampled
def test_a_search_by_kind_finds_what_is_shown_after_every_line(tmp_path: Path) -> None:
    """Calls that fail later, answers that turn out not to be the last; equal to one sweep.

    In `make prove` it is compared after every line, else after some of them.
    """
    script, home = logs.trials(1), tmp_path / "home"
    lines = [(logs.path(home, script), line) for line in script.data.splitlines(keepends=True)]
    rollout = home / "sessions/2026/01/01" / f"rollout-2026-01-01T00-00-00-{THREAD}.jsonl"
    lines += [(rollout, json.dumps(line).encode() + b"\n") for line in thread()]
    roots = {"claude": [home], "codex": [home]}
    for number, (path, line) in enumerate(lines, start=1):
        grow(path, line)
        sweep(tmp_path / "grown", roots, digests=False)
        if number == len(lines) or not number % by_pace(everyday=8, full=8, prove=1):
            grown = compare(tmp_path / "grown")
    sweep(tmp_path / "once", roots)
    counts = {kind: len(events) for kind, events in grown.items()}

    assert grown == compare(tmp_path / "once")
    assert {
        "error": 6,
        "test_run": 2,
        "edit": 1,
        "retry": 4,
        "human_intervention": 3,
        "completion": 2,
    } == counts


def test_a_kind_and_a_word_find_the_events_whose_source_has_the_word(tmp_path: Path) -> None:
    """The words of a derived event are those of the event it comes from."""
    home = tmp_path / "home"
    logs.write(home, logs.trials(1))
    sweep(tmp_path / "store", {"claude": [home]})
    store = opened(tmp_path / "store")
    expected = shown(store)
    by_kind = searched(store, words="lantern")
    none = searched(store, words="saffron")
    store.close()

    assert all(by_kind[kind] for kind in DERIVED)
    assert all(by_kind[kind] <= expected[kind] for kind in DERIVED)
    assert 2 == len(expected["error"] - by_kind["error"])  # one has no text, one another
    assert not any(none.values())


@pytest.mark.few(8)
@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(8))
def test_random_pieces_of_sessions_are_found_by_kind(tmp_path: Path, seed: int) -> None:
    """Branches that are left, forks that hold copies of another session's records."""
    chance = random.Random(seed)
    home = tmp_path / "home"
    first = logs.script(1, 12, seed)
    scripts = [first, logs.trials(2), logs.fork(3, first, 9)]
    left = [(log, log.data.splitlines(keepends=True)) for log in scripts]
    while any(lines for _, lines in left):
        script, lines = chance.choice([pair for pair in left if pair[1]])
        count = chance.randint(1, 9)
        grow(logs.path(home, script), b"".join(lines[:count]))
        del lines[:count]
        sweep(tmp_path / "store", {"claude": [home]})
        by_kind = compare(tmp_path / "store")

    assert by_kind["retry"]


def test_long_sessions_are_found_by_kind_when_most_of_them_is_sealed(tmp_path: Path) -> None:
    """What failed long ago makes a call a retry; a new line costs no look at all of it."""
    home = tmp_path / "home"
    script = Script(logs.name(1), "long-")
    script.user("Start the ferry.")
    script.call("first", command="make ferry")
    script.result("first", "no such ferry", wrong=True)
    for number in range(60):
        script.call(f"c{number}", command=f"echo {number}")
        script.result(f"c{number}", "harbour", wrong=number % 7 == 0)
        script.say(f"Number {number} is done.")
        script.user("Go on.")
    logs.write(home, script)
    sweep(tmp_path / "store", {"claude": [home]}, digests=False)
    done = len(script.records)
    script.call("last", command="make ferry")
    script.result("last", "a ferry")
    script.user("Stop there.")
    script.say("Stopped.")
    rebuilt = 0
    for line in script.data.splitlines(keepends=True)[done:]:
        grow(logs.path(home, script), line)
        rebuilt += sweep(tmp_path / "store", {"claude": [home]}, digests=False).rebuilt
        by_kind = compare(tmp_path / "store")

    assert 0 == rebuilt
    assert 1 == len(by_kind["retry"])
    assert 1 == len(by_kind["human_intervention"])


def test_a_text_that_was_indexed_again_goes_with_its_session(tmp_path: Path, place: str) -> None:
    """No word of it is left in any file, however often its kinds changed."""
    if place != "sqlite":
        pytest.skip("a server keeps removed rows in its files until they are vacuumed")
    home, folder = tmp_path / "home", tmp_path / "store"
    logs.write(home, logs.script(2, 2))
    script = Script(logs.name(1))
    script.user("Go.")
    script.say("A quixotic answer, and an end.")
    script.call("c1", command="make quixotic")  # so it was none
    script.result("c1", "quixotic")
    script.say("An end.")
    for line in script.data.splitlines(keepends=True):
        grow(logs.path(home, script), line)
        sweep(folder, {"claude": [home]}, digests=False)
    before = files_with(folder, "quixotic")
    store = opened(folder)
    store.remove([f"claude:{script.session}"], why={}, forget=True)
    store.close()

    assert before
    assert [] == files_with(folder, "quixotic")


def test_derived_kinds_of_an_older_database_are_found_after_the_next_sweep(
    tmp_path: Path, place: str
) -> None:
    """Made as the schema before left it: rows that say nothing, marks by single records."""
    if place != "postgres":
        pytest.skip("the same of a file is tested with a store of that schema, see test_migration")
    home, folder = tmp_path / "home", tmp_path / "store"
    logs.write(home, logs.trials(1))
    sweep(folder, {"claude": [home]})
    store = opened(folder)
    assert isinstance(store, Postgres)
    expected = shown(store)
    kinds = "'=kindretry', '=kindcompletion', '=kinderror', '=kindhumanintervention'"
    without = "NOT EXISTS (SELECT FROM unnest(body) WHERE positions IS NOT NULL)"
    for sql in (
        "DELETE FROM event_pages WHERE tenant=%s",
        "UPDATE events SET implied=-1, seq=NULL WHERE tenant=%s",
        f"UPDATE words SET body=ts_delete(body, ARRAY[{kinds}]) WHERE tenant=%s",
        "UPDATE words SET body=body || $$'=kindedit'$$ WHERE body @@ $$'=tooledit'$$ AND tenant=%s",
        f"DELETE FROM words WHERE {without} AND tenant=%s",
        "UPDATE sessions SET fold=1 WHERE tenant=%s",
    ):
        store._run(sql, store.tenant)
    gap = {kind for kind in DERIVED if searched(store)[kind] != expected[kind]}
    store.close()
    report = sweep(folder, {"claude": [home]})

    assert {"error", "edit", "retry", "human_intervention", "completion"} == gap
    assert 1 == report.reprocessed["fold"]
    assert expected == compare(folder)


@pytest.mark.slow
def test_sessions_of_every_agent_are_found_by_kind(tmp_path: Path) -> None:
    """Our own harnesses among them, which say themselves that a file was changed."""
    homes = sample_machine.write(
        tmp_path / "machine", datetime(2026, 1, 2, tzinfo=UTC), ("claude", "codex", "grok")
    )
    lines = sample().splitlines(keepends=True)[:-1]  # the last one is torn
    last = json.loads(lines[-1])
    file = {"type": "file", "uuid": str(UUID(int=1)), "prev_uuid": last["uuid"], "ts": last["ts"]}
    lines.append(json.dumps(file | {"payload": {"path": "tides.py", "how": "edit"}}) + "\n")
    name = json.loads(lines[0])["payload"]["session_id"]
    grow(homes.thence / "sessions" / "tidepool" / f"{name}.jsonl", "".join(lines).encode())
    roots = {
        name: [path for path in adapter.roots(homes.work.parent, homes.env) if path.is_dir()]
        for name, adapter in adapters().items()
    }
    sweep(tmp_path / "store", roots)
    by_kind = compare(tmp_path / "store")
    agents = {uid.partition(":")[0] for uid, _ in by_kind["edit"]}

    assert {"claude", "codex", "grok", "thence"} == agents


@pytest.mark.slow
@pytest.mark.sampled
def test_all_real_sessions_are_found_by_kind(request: pytest.FixtureRequest, place: str) -> None:
    """Of all agents, in one store; in a database those of some homes, in `make prove` all."""
    if place == "sqlite":
        folder = request.getfixturevalue("real_store").folder
    else:
        folder, step = request.getfixturevalue("tmp_path"), by_pace(8, 8, 1)
        roots = real_roots(request.getfixturevalue("shared"))
        sweep(folder, {agent: homes[::step] for agent, homes in roots.items()})
    by_kind = compare(folder)

    assert 30 < sum(map(len, by_kind.values()))
    assert place == "postgres" or all(len(by_kind[kind]) > 20 for kind in DERIVED)


@pytest.mark.slow
@pytest.mark.sampled
def test_real_sessions_are_found_by_kind_line_by_line(shared: Path, tmp_path: Path) -> None:
    """Some of each size; that all of them fold to the same kinds is tested with the fold."""
    data = shared / "data"
    paths = sorted(data.glob("claude-code/v*/*/claude/projects/*/*.jsonl"))
    few = [path for path in paths if path.read_bytes().count(b"\n") < 60]
    for path in random.Random(1).sample(few, by_pace(1, 1, 4)):
        folder = tmp_path / path.parent.parent.parent.parent.name / path.stem
        for line in path.read_bytes().splitlines(keepends=True):
            grow(folder / "home/projects/p" / path.name, line)
            sweep(folder / "store", {"claude": [folder / "home"]}, digests=False)
            compare(folder / "store")
