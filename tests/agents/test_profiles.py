"""Agents: what each offers, and how a session of it is resumed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from thence.agents import adapters
from thence.agents.profiles import (
    PARTS,
    Agent,
    LazyReaders,
    Profile,
    agent_of,
    agents,
    folder_variables,
)
from thence.agents.sessions import read_all
from thence.errors import BadConfig
from thence.format.facts import Block, Fact
from thence.format.nodes import Node
from thence.format.normal import Kind

ROOT = Path(__file__).parents[2]
RESUMED = [name for name, agent in agents().items() if agent.offers("resume")]


def test_an_agent_that_is_not_there_is_none() -> None:
    """Whatever its name is, nothing is imported for it."""
    assert [None, None] == [agent_of("nobody"), agent_of("../etc")]


def test_every_folder_with_a_profile_is_an_agent() -> None:
    """There is no list of them to forget one in; our own journal is one of them."""
    names = (path.parent.name for path in (ROOT / "src/thence/agents").glob("*/profile.py"))
    folders = {name.removesuffix("_") for name in names}  # some are words of Python

    assert {"claude", "codex", "grok", "thence"} <= folders
    assert folders == set(agents())
    assert list(agents()) == [agent.reader.name for agent in agents().values()]


@pytest.mark.parametrize("name", RESUMED)
def test_an_id_that_looks_like_an_option_is_no_option(name: str) -> None:
    """An id is the name of a file that anybody may have written."""
    profile = agents()[name].profile
    *before, last = profile.resume_command("--yolo")

    if profile.resumes_by_folder:  # the id is no part of the command
        assert profile.resume_option == (*before, last)
    elif profile.is_positional:
        assert ["--", "--yolo"] == [*before[-1:], last]
    elif profile.takes_equals and not profile.id_prefix:
        assert f"{profile.long_option or profile.resume_option[-1]}=--yolo" == last
    else:  # it takes the next word as it is, or the word does not begin with a dash
        assert profile.resume_option == tuple(before)
        assert f"{profile.id_prefix}--yolo" == last


def test_a_home_elsewhere_is_named_by_the_agents_variable() -> None:
    """Some of them name the folder above their own, one a file in it."""
    homes = {name: agent.profile.home_of(Path("/h/.x")) for name, agent in agents().items()}

    above = ("droid", "gemini", "goose", "kilo", "opencode")
    assert {"/h"} == {homes.pop(name) for name in above}
    assert "/h/.x/.aider.chat.history.md" == homes.pop("aider")
    assert {"/h/.x"} == set(homes.values())


def test_all_variables_of_folders_are_known() -> None:
    """A timer passes them on, and a demonstration unsets them."""
    assert {
        *("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GROK_HOME", "PI_CODING_AGENT_SESSION_DIR"),
        *("COPILOT_HOME", "GEMINI_CLI_HOME", "KIMI_CODE_HOME", "PI_CODING_AGENT_DIR"),
        *("QWEN_HOME", "QWEN_RUNTIME_DIR", "CLINE_DATA_DIR", "CLINE_DIR", "VIBE_HOME"),
        *("CLINE_SESSION_DATA_DIR", "CONTINUE_GLOBAL_DIR", "FACTORY_HOME_OVERRIDE"),
        *(
            "GOOSE_PATH_ROOT",
            "HERMES_HOME",
            "AIDER_CHAT_HISTORY_FILE",
            "KILO_DB",
            "OPENCODE_DB",
            "XDG_DATA_HOME",
        ),
    } <= set(folder_variables())


def test_what_an_agent_lacks_is_said_in_words() -> None:
    """With those that have it: whoever asked can go on."""
    bare = Agent("bare", Profile(label="Bare"))

    assert [] == [part for part in PARTS if bare.offers(part)]
    assert [None, None, None] == [bare.writer, bare.side_file, bare.sample]
    for part, words in PARTS.items():
        with pytest.raises(BadConfig, match=r"^Bare ") as caught:
            bare.require(part)
        assert words in caught.value.message
        assert "claude" in (caught.value.hint or "")


def test_asking_what_an_agent_is_loads_no_reader() -> None:
    """Names, labels, commands and settings are data: lists and help are as quick as before."""
    code = (
        "import sys; from thence.agents.profiles import PARTS, agents\n"
        "for agent in agents().values(): agent.label, [agent.offers(part) for part in PARTS]\n"
        "names = {'profile', 'profiles', 'packages', 'thence', 'continue_'} | set(agents())\n"
        "print([m for m in sys.modules if m.startswith('thence.agents.')"
        " and m.rpartition('.')[2] not in names])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "[]" == done.stdout.strip()


@pytest.mark.parametrize("name", agents())
def test_an_agent_with_a_folder_counts_as_used(tmp_path: Path, name: str) -> None:
    """A sweep imports no reader of an agent that has none: all usual folders must be named."""
    agent = agents()[name]
    for root in agent.reader.roots(tmp_path, {}):
        root.mkdir(parents=True)
        assert agent.is_used(tmp_path, {}), root
        shutil.rmtree(tmp_path)
    for variable in agent.profile.variables:
        assert agent.is_used(tmp_path, {variable: "elsewhere"})


def test_lazy_readers_are_those_of_all_agents() -> None:
    """In the same order, and nothing else is there."""
    lazy = LazyReaders()

    assert list(adapters().items()) == list(lazy.items())
    assert (len(adapters()), True, False) == (len(lazy), "claude" in lazy, "nobody" in lazy)
    with pytest.raises(KeyError):
        lazy["nobody"]


@pytest.mark.parametrize("name", [name for name in agents() if name != "thence"])
def test_every_agent_is_described(name: str) -> None:
    """Under the name that people know it by."""
    assert agents()[name].label in (ROOT / "docs" / "agents.md").read_text()


def fact(type_: str, kind: Kind = "lifecycle") -> Fact:
    """Return a record of a type."""
    return Fact(Node("n", None, 0), type_, blocks=(Block(kind, "system", type_),))


def test_a_record_of_a_type_that_nobody_knows_is_counted() -> None:
    """One that has words was understood, and so is one of a family that is known."""
    facts = [fact("assistant", "assistant_msg"), fact("system/new"), fact("zorp"), fact("zorp")]

    assert {"zorp": 2} == agents()["claude"].unknown_records(facts)
    assert {} == Agent("bare", Profile(label="x")).unknown_records(facts)


SHARED = ROOT.parent / "shared" / "data"
CLIENTS = {"claude": "claude-code", "codex": "codex", "grok": "grok"}
PLANTED = {"(none)", "our-own-record", "future_thing", "response_item/hologram", "event_msg/zorp"}
"""Records that were put into real logs on purpose."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in agents() if agents()[name].profile.records])
def test_all_records_of_real_clients_are_known(name: str) -> None:
    """Else every session of today would be said not to be understood."""
    folder = SHARED / CLIENTS.get(name, f"agents/{name}")
    if not folder.is_dir():
        pytest.skip("no logs of real clients here")
    reader = agents()[name].reader
    sources = {
        source.path: source for path in folder.rglob("*.jsonl") if (source := reader.at(path))
    }
    for home in folder.glob("*/home"):
        for root in reader.roots(home, {}):
            sources |= {source.path: source for source in reader.find(root)}
    unknown = {
        type_
        for source in sources.values()
        for type_ in agents()[name].unknown_records(read_all(reader, source)[0])
    }

    assert sources
    assert set() == unknown - PLANTED
