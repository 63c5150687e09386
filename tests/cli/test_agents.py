"""A machine with sessions of further agents, used from the command line."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.agents import (
    test_copilot,
    test_gemini,
    test_goose,
    test_hermes,
    test_kilo,
    test_kimi,
    test_opencode,
    test_pi,
    test_qwen,
)
from tests.agents.databases import state
from tests.cli.desk import in_process
from thence.agents.profiles import label_of

FOLDERS = {
    "copilot": (".copilot", test_copilot),
    "gemini": (".gemini", test_gemini),
    "goose": (".local/share/goose", test_goose),
    "hermes": (".hermes", test_hermes),
    "kilo": (".local/share/kilo", test_kilo),
    "kimi": (".kimi-code", test_kimi),
    "opencode": (".local/share/opencode", test_opencode),
    "pi": (".pi/agent", test_pi),
    "qwen": (".qwen", test_qwen),
}
RESUMED = {
    "copilot": (test_copilot.SESSION, "copilot --resume={}"),
    "gemini": (test_gemini.SESSION, "gemini --resume {}"),
    "goose": (test_goose.PARENT, "goose session --resume --session-id {}"),
    "hermes": (test_hermes.PARENT, "hermes --resume {}"),
    "kilo": (test_kilo.PARENT, "kilo --session {}"),
    "kimi": (test_kimi.PARENT, "kimi --session session_{}"),
    "opencode": (test_opencode.PARENT, "opencode --session {}"),
    "pi": (test_pi.PARENT, "pi --session {}"),
    "qwen": (test_qwen.PARENT, "qwen --resume {}"),
}


def thence(home: Path, *arguments: str) -> str:
    """Run a command as a user of this machine would, and return what it prints."""
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "COLUMNS": "100", "NO_COLOR": "1"}
    with contextlib.chdir(home):
        done = in_process(*arguments, env=env)

    assert 0 == done.code, done.err
    return done.out


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A machine on which all of them were used, swept."""
    folder = tmp_path_factory.mktemp("home")
    for place, module in FOLDERS.values():
        root = folder / place
        root.mkdir(parents=True)
        module.write(root)
    thence(folder, "sweep")
    return folder


@pytest.mark.slow
def test_sessions_of_every_agent_are_listed(home: Path) -> None:
    """With their titles; forks are sessions of their own."""
    listed = json.loads(thence(home, "ls", "--json"))

    agents = [row["flavor"] for row in listed]
    several = {"goose": 2, "hermes": 3, "kilo": 3, "kimi": 2, "opencode": 3, "pi": 2, "qwen": 2}
    assert {name: several.get(name, 1) for name in FOLDERS} == Counter(agents)
    assert all(label_of(name) in thence(home, "ls", "-n", "99") for name in FOLDERS)


@pytest.mark.parametrize("agent", sorted(FOLDERS))
def test_a_session_is_shown_and_resumed(home: Path, agent: str) -> None:
    """Its prompts, the failed command, the discarded branch; the command of its own agent."""
    session, command = RESUMED[agent]
    shown = thence(home, "show", f"{agent}:{session}", "--branch", "all")

    assert "Mend it" in shown
    assert "exit 2" in shown
    assert "Try this" in shown
    assert command.format(session) in thence(home, "resume", f"{agent}:{session}", "--json")


def test_what_was_said_is_found(home: Path) -> None:
    """In sessions of all of them."""
    answer = json.loads(thence(home, "search", "Mend", "--json"))

    assert sorted(FOLDERS) == sorted(
        {hit["session_uid"].partition(":")[0] for hit in answer["hits"]}
    )


def test_tokens_are_counted_once(home: Path) -> None:
    """Over forks, subagents, mirrors and copies, by agent."""
    costs = json.loads(thence(home, "cost", "--by", "agent", "--json"))
    tokens = {part["key"]: sum(part["tokens"].values()) for part in costs["parts"]}

    side = 505
    opencode = 1010 + 1111 + 1212 + 1313 + 3030 + 1414 + side + 2020
    assert {
        "copilot": 1030 + 1120 + 1210 + 1305 + 3300 + side,
        "gemini": 1015 + 1115 + 1215 + 1415 + 1515 + 1315 + 515,
        "goose": 4440 + side,
        "hermes": 3171 + side + 707,
        "kilo": opencode,
        "kimi": 1030 + 1120 + 1210 + 3300 + 1407 + 1305 + side + 2009,
        "opencode": opencode,
        "pi": 4 * 1250,
        "qwen": 1030 + 1120 + 1210 + 1407 + 3300 + 1305 + side + 2009,
    } == tokens


@pytest.mark.slow
def test_sources_are_left_as_they_were(home: Path, tmp_path: Path) -> None:
    """Bytes, times and names, after all that was asked of them."""
    for place, module in FOLDERS.values():
        root = tmp_path / place
        root.mkdir(parents=True)
        module.write(root)
    before = state(tmp_path)
    thence(tmp_path, "sweep")
    thence(tmp_path, "doctor")
    after = {name: content for name, content in state(tmp_path).items() if "thence" not in name}

    assert before == after


@pytest.mark.slow
@pytest.mark.parametrize("agent", sorted(FOLDERS))
def test_a_killed_session_that_goes_on_is_what_it_is_when_read_at_once(
    shared: Path, tmp_path: Path, agent: str
) -> None:
    """Swept at the kill and again after the client resumed it, event by event."""
    scenario = shared / "data" / "agents" / agent / "killed"
    if not scenario.is_dir():
        pytest.skip(f"no killed session of {agent} in the lab's data")
    twice, once = tmp_path / "twice", tmp_path / "once"
    shutil.copytree(scenario / "at-kill", twice)
    shutil.copytree(scenario / "home", once)
    thence(twice, "sweep")
    for path in (path for path in once.rglob("*") if path.is_file()):
        place = twice / path.relative_to(once)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(path.read_bytes())

    shown: list[Any] = []
    for machine in (once, twice):
        thence(machine, "sweep")
        (row,) = json.loads(thence(machine, "ls", "--json"))
        events = json.loads(thence(machine, "show", row["session_uid"], "--as", "events", "--json"))
        shown.append(
            [
                {**event, "payload_ref": None, "seq": None, "parent_seq": None}
                for event in events["events"]
                if event["summary"] != "tokens so far"  # told as often as they are read
            ]
        )
    assert shown[0] == shown[1]


def test_listing_loads_no_reader(home: Path) -> None:
    """The code that reads records is loaded when something is read."""
    code = (
        "import sys; from thence import cli; sys.argv = ['thence', 'ls']\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "names = ('events', 'messages', 'wire', 'entries', 'chat')\n"
        "print([m for m in sys.modules if m.startswith('thence.agents.') and"
        " m.rpartition('.')[2] in names and m.count('.') == 3], file=sys.stderr)"
    )
    env = {"HOME": str(home), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )

    read = json.loads(done.stderr.splitlines()[-1].replace("'", '"'))
    assert [] == [name for name in read if name.split(".")[2] in FOLDERS]
