"""The examples of the bridges run as they are, twice: the second run remembers the first."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.bridge.crashes import ROOT, SDKS

pytestmark = pytest.mark.filterwarnings("ignore")  # what an SDK says of itself is its business

EXPECTED = {
    "claude_agent_sdk": ("claude_agent_sdk", "low", "2 messages"),
    "langgraph": ("langgraph.graph", "I remember 3 messages.", "6 checkpoints"),
    "openai_agents": ("agents", "I remember 3 items.", "4 items"),
    "pydantic_ai": ("pydantic_ai", "I remember 5 messages.", "messages in"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_remembers_its_first_run(
    tmp_path: Path, name: str, sdk: Callable[[str], ModuleType]
) -> None:
    """In a process of its own, offline."""
    needed, *expected = EXPECTED[name]
    sdk(needed)
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, ROOT / "examples" / f"bridge_{name}.py", tmp_path / "home"],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ
            | {"PYTHONPATH": str(SDKS), "THENCE_NO_PERSISTENCE": ""}
            | {"CLAUDE_NO_SESSION_PERSISTENCE": ""},
        )
        assert 0 == done.returncode, done.stderr

    assert all(words in done.stdout for words in expected), done.stdout
