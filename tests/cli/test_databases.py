"""Sessions in a database that its client writes to between two sweeps, from the command line."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agents import test_opencode
from tests.agents.databases import OPENCODE, run, state
from tests.cli.test_agents import thence

PLACE = ".local/share/opencode"


def sources(home: Path) -> dict[str, tuple[bytes, int]]:
    """Return what the client left, without the index that it shares with itself."""
    return {k: v for k, v in state(home / ".local/share/opencode").items() if "-shm" not in k}


def tokens(home: Path) -> int:
    """Return all tokens of the sessions on a machine."""
    costs = json.loads(thence(home, "cost", "--by", "agent", "--json"))
    return sum(sum(part["tokens"].values()) for part in costs["parts"])


@pytest.mark.slow
def test_a_database_that_grows_is_swept_to_what_it_holds(tmp_path: Path) -> None:
    """The client is running; what it deletes later stays here, and its files stay as they are."""
    home = tmp_path / "home"
    path = run(home / PLACE / "opencode.db", OPENCODE, ())
    steps = test_opencode.steps()
    client = sqlite3.connect(path)
    client.execute("PRAGMA journal_mode=WAL")
    for part in (steps[:40], steps[40:90], steps[90:]):
        for statement, values in part:
            client.execute(statement, values)
        client.commit()
        before = sources(home)
        report = json.loads(thence(home, "sweep", "--json"))
        assert 0 == report["failed"] + report["skipped"]
        assert before == sources(home)

    assert 1010 + 1111 + 1212 + 1313 + 3030 + 1414 + 505 + 2020 == tokens(home)
    assert 3 == len(json.loads(thence(home, "ls", "--json")))
    uid = f"opencode:{test_opencode.PARENT}"
    assert "Still there?" in thence(home, "show", uid)
    hits = json.loads(thence(home, "search", "Another way", "--json"))["hits"]
    fork = f"opencode:{test_opencode.FORK}"
    assert {fork} == {hit["session_uid"] for hit in hits}
    assert 0 == json.loads(thence(home, "sweep", "--json"))["lines"]

    for table, column in (("session", "id"), ("event", "aggregate_id")):
        client.execute(f"DELETE FROM {table} WHERE {column} = ?", (test_opencode.FORK,))
    client.commit()
    assert 1 == json.loads(thence(home, "sweep", "--json"))["gone"]
    assert 3 == len(json.loads(thence(home, "ls", "--json")))
    assert "So be it." in thence(home, "export", fork)
    assert "Mend it" in thence(home, "export", uid)
    for table in ("session", "event"):
        client.execute(f"DELETE FROM {table}")
    client.commit()
    client.close()
    assert "Mend it" in thence(home, "export", uid)


@pytest.mark.slow
def test_a_damaged_database_is_told_and_costs_nothing_that_was_read(tmp_path: Path) -> None:
    """Its sessions stay, and the sweep says why it could not look for more."""
    path = run(tmp_path / PLACE / "opencode.db", OPENCODE, test_opencode.steps())
    thence(tmp_path, "sweep")
    path.write_bytes(b"not a database" * 1000)
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-m", "thence", "sweep", "--json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)

    assert (1, 0) == (report["failed"], report["gone"])
    assert "not a database" in done.stdout
    assert 3 == len(json.loads(thence(tmp_path, "ls", "--json")))
