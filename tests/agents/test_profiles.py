"""Profiles of agents: what they are called, and the command line that resumes a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from thence.agents.profiles import PROFILED, folder_variables, profile_of


def test_an_agent_without_a_profile_has_none() -> None:
    """Whatever its name is, nothing is imported for it."""
    assert [None, None] == [profile_of("nobody"), profile_of("../etc")]


@pytest.mark.parametrize("agent", PROFILED)
def test_an_id_that_looks_like_an_option_is_no_option(agent: str) -> None:
    """An id is the name of a file that anybody may have written."""
    profile = profile_of(agent)
    assert profile is not None
    command = profile.resume_command("--yolo")

    if profile.takes_equals and not profile.id_prefix:
        assert f"{profile.resume_option[-1]}=--yolo" == command[-1]
    else:  # it takes the next word as it is, or the word does not begin with a dash
        assert profile.resume_option == tuple(command[:-1])
        assert f"{profile.id_prefix}--yolo" == command[-1]


def test_a_home_elsewhere_is_named_by_the_agents_variable() -> None:
    """Some of them name the folder above their own."""
    homes = {
        agent: profile.home_of(Path("/h/.agent"))
        for agent in PROFILED
        if (profile := profile_of(agent)) is not None
    }

    above = ("droid", "gemini", "goose", "kilo", "opencode")
    assert {"/h"} == {homes.pop(name) for name in above}
    assert {"/h/.agent"} == set(homes.values())


def test_all_variables_of_folders_are_known() -> None:
    """A timer passes them on, and a demonstration unsets them."""
    assert {
        "CLINE_DATA_DIR",
        "CLINE_DIR",
        "CLINE_SESSION_DATA_DIR",
        "CONTINUE_GLOBAL_DIR",
        "COPILOT_HOME",
        "FACTORY_HOME_OVERRIDE",
        "GEMINI_CLI_HOME",
        "GOOSE_PATH_ROOT",
        "HERMES_HOME",
        "KILO_DB",
        "KIMI_CODE_HOME",
        "OPENCODE_DB",
        "PI_CODING_AGENT_DIR",
        "PI_CODING_AGENT_SESSION_DIR",
        "QWEN_HOME",
        "QWEN_RUNTIME_DIR",
        "VIBE_HOME",
        "XDG_DATA_HOME",
    } == set(folder_variables())
