"""`make team-demo` lets three machines push into one store, and ends when it is told to."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.postgres import programs


@pytest.mark.slow
def test_demo_of_a_team_runs_and_ends() -> None:
    """All machines push at once, nothing of one is another's, and a second push sends nothing."""
    if programs() is None:
        pytest.skip("no Postgres server here: apt-get install postgresql")
    command = [sys.executable, str(ROOT / "scripts" / "team-demo"), "--once"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    lines = done.stdout.splitlines()

    assert (0, "") == (done.returncode, done.stderr)
    assert ["ada", "bo", "cyd"] == [line.split()[0] for line in lines[1:4]]
    [pushed] = {" ".join(line.split()[2:4]) for line in lines[1:4]}
    count = int(pushed.split()[0])
    assert f"the team has {3 * count} sessions" in lines[4]
    assert f"ada pushes again: nothing new: {count} sessions already there" == lines[5]
