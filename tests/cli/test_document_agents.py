"""A machine with sessions of agents that write documents anew, swept while they work."""

from __future__ import annotations

import json
import shutil
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from tests.agents import test_cline, test_continue, test_droid, test_vibe
from tests.cli.test_agents import thence
from thence.agents.profiles import label_of

FOLDERS = {
    "cline": (".cline", test_cline),
    "continue": (".continue", test_continue),
    "droid": (".factory", test_droid),
    "vibe": (".vibe", test_vibe),
}
RESUMED = {
    "cline": (test_cline.SESSION, "cline --id {}"),
    "continue": (test_continue.SESSION, "cn --fork {}"),
    "droid": (test_droid.PARENT, "droid --resume {}"),
    "vibe": (test_vibe.SESSION, "vibe --resume {}"),
}
TOKENS = {
    "cline": 1030 + 1120 + 1210 + 1305 + 1407 + 505 + 2009,
    "continue": 1030 + 1210 + 1305 + 1407 + 2009,
    "droid": 4767 + 505 + 2009,
    "vibe": 3360 + 2009,
}

State = dict[str, tuple[bytes, int, int]]


def state_of(home: Path) -> State:
    """Bytes, time and mode of each file of the agents."""
    paths = (path for place, _ in FOLDERS.values() for path in (home / place).rglob("*"))
    return {
        str(path): (path.read_bytes(), status.st_mtime_ns, status.st_mode)
        for path in paths
        if path.is_file() and (status := path.stat())
    }


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[State, State]]]:
    """A home that was swept after every step, and its files before and after each sweep."""
    folder = tmp_path_factory.mktemp("home")
    steps = []
    for place, module in FOLDERS.values():
        root = folder / place
        root.mkdir(parents=True)
        steps.append(module.write(root))
    states: list[tuple[State, State]] = []
    for _ in zip_longest(*steps):
        before = state_of(folder)
        thence(folder, "sweep")
        states.append((before, state_of(folder)))
    thence(folder, "sweep")
    return folder, states


@pytest.fixture(scope="module")
def home(machine: tuple[Path, list[tuple[State, State]]]) -> Path:
    """The home alone."""
    return machine[0]


@pytest.mark.slow
def test_no_sweep_leaves_a_trace(machine: tuple[Path, list[tuple[State, State]]]) -> None:
    """Bytes, times, modes and names of the agents' files are as they were."""
    _, states = machine

    assert len(states) > 5
    assert [before for before, _ in states] == [after for _, after in states]


@pytest.mark.slow
def test_all_of_it_counts_as_read(home: Path) -> None:
    """Files that are read with others included."""
    assert "not read yet" not in thence(home, "doctor")


@pytest.mark.parametrize("agent", ["cline", "continue", "vibe"])
def test_a_document_is_one_record(home: Path, agent: str) -> None:
    """However many lines it has, none of them is bad."""
    (row,) = [
        row
        for row in json.loads(thence(home, "ls", "--json"))
        if row["session_uid"] == f"{agent}:{RESUMED[agent][0]}"
    ]
    answer = json.loads(thence(home, "inspect", row["source_path"], "--json"))

    assert (1, 0) == (answer["good_records"], answer["bad_lines"])


def test_sessions_of_every_agent_are_listed(home: Path) -> None:
    """With their titles; copies are sessions of their own."""
    listed = json.loads(thence(home, "ls", "--json"))

    agents = sorted(row["flavor"] for row in listed)
    assert [*["cline"] * 2, *["continue"] * 2, *["droid"] * 3, *["vibe"] * 2] == agents
    assert all(label_of(name) in thence(home, "ls") for name in FOLDERS)
    assert 7 == sum(row["title"] == "Mending" for row in listed)  # forks have that of the original


@pytest.mark.parametrize("agent", sorted(FOLDERS))
def test_a_session_is_shown_and_resumed(home: Path, agent: str) -> None:
    """Its prompts, the failed command; the command of its own agent."""
    session, command = RESUMED[agent]
    shown = thence(home, "show", f"{agent}:{session}", "--branch", "all")

    assert "Mend it" in shown
    assert "exit 2" in shown
    assert command.format(session) in thence(home, "resume", f"{agent}:{session}", "--json")


@pytest.mark.parametrize("agent", ["cline", "continue"])
def test_what_the_client_took_back_is_still_shown(home: Path, agent: str) -> None:
    """It was swept before: its events are dead, and found."""
    uid = f"{agent}:{RESUMED[agent][0]}"
    shown = json.loads(thence(home, "show", uid, "--as", "events", "--json"))
    answer = json.loads(thence(home, "search", f"Try this agent:{agent}", "--json"))

    states = [event["state"] for event in shown["events"] if event["summary"] == "Try this"]
    assert ["dead"] == states
    assert uid in {hit["session_uid"] for hit in answer["hits"]}
    assert "deleted: Try this" in thence(home, "show", uid)


def test_what_was_said_is_found(home: Path) -> None:
    """In sessions of all of them."""
    answer = json.loads(thence(home, "search", "Mend", "--json"))

    agents = {hit["session_uid"].partition(":")[0] for hit in answer["hits"]}
    assert sorted(FOLDERS) == sorted(agents)


def test_tokens_are_counted_once(home: Path) -> None:
    """Over copies, subagents, totals that grew, and what was taken back."""
    costs = json.loads(thence(home, "cost", "--by", "agent", "--json"))

    assert TOKENS == {part["key"]: sum(part["tokens"].values()) for part in costs["parts"]}


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["cline", "droid", "vibe"])
def test_a_killed_session_that_goes_on_is_what_it_is_when_read_at_once(
    shared: Path, tmp_path: Path, agent: str
) -> None:
    """Swept at the kill and again after the client went on; totals may be told in two parts."""
    scenario = shared / "data" / "agents" / agent / "killed"
    twice, once = tmp_path / "twice", tmp_path / "once"
    shutil.copytree(scenario / "at-kill", twice)
    shutil.copytree(scenario / "home", once)
    thence(twice, "sweep")
    shutil.rmtree(twice / FOLDERS[agent][0])
    shutil.copytree(scenario / "home", twice, dirs_exist_ok=True)

    readings: list[Any] = []
    for machine in (once, twice):
        thence(machine, "sweep")
        (row,) = json.loads(thence(machine, "ls", "--json"))
        shown = json.loads(thence(machine, "show", row["session_uid"], "--as", "events", "--json"))
        events = [
            {**event, "payload_ref": None, "seq": 0, "parent_seq": 0} for event in shown["events"]
        ]
        costs = json.loads(thence(machine, "cost", "--by", "agent", "--json"))
        spoken = [event for event in events if event["role"] != "system"]
        readings.append((spoken, [part["tokens"] for part in costs["parts"]]))
    assert readings[0] == readings[1]
