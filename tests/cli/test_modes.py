"""What thence writes is the user's alone, whichever command comes first and whatever the umask."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.agents.transcripts import Script, write
from tests.processes import run_thence

FIRST = [
    ["hook", "install", "claude", "--yes"],
    ["hook", "status"],
    ["mcp", "install", "claude", "--yes"],
    ["mcp"],
    ["config", "--exclude", "~/private/*"],
    ["sweep"],
    ["exec", "--", "true"],
    ["note", "tides"],
    ["decide", "cut the windows in UTC"],
    ["doctor"],
    ["gc"],
    ["sql", "select 1"],
    ["ls"],
]


def open_to_others(folder: Path) -> list[str]:
    """Files and folders that some other user can read, change or enter."""
    paths = [folder, *folder.rglob("*")] if folder.exists() else []
    return [
        f"{path} {path.stat().st_mode & 0o777:o}" for path in paths if path.stat().st_mode & 0o77
    ]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("first", FIRST, ids=" ".join)
def test_no_other_user_gets_into_a_home_whatever_made_it(first: list[str], tmp_path: Path) -> None:
    """Folders are 0700 and files 0600 with a umask that forbids nothing; so it stays."""
    home = tmp_path / "data" / "thence"
    script = Script()
    script.user("Why does the tide table lose an hour?")
    write(tmp_path / ".claude", script)
    env = {"HOME": str(tmp_path), "THENCE_HOME": str(home), "PATH": os.environ["PATH"]}
    ran = [
        run_thence(*words, env=env, umask=0)
        for words in (first, ["sweep"], ["hook", "install", "claude", "-y"], ["ls"])
    ]

    assert 0 == ran[-1].returncode, ran
    assert [] == open_to_others(home)
