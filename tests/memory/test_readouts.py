"""What is read out of a store: all of it, its end, and as much as a digest needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.agents.transcripts import Script
from tests.memory import logs
from tests.memory.stored import opened, sweep
from thence.memory import readouts
from thence.memory.readouts import read_for_digest
from thence.memory.store import Filter

LONG = "first line\n" + "x" * 9000 + "\n3 passed in 0.1s"


def payloads(folder: Path, kind: str) -> list[Any]:
    """Return the payloads that a digest is given of events of a kind."""
    store = opened(folder)
    row = next(iter(store.sessions(Filter())))
    events = read_for_digest(store, row).events
    store.close()
    return [event.payload for event in events if event.kind == kind]


def test_of_a_session_larger_than_memory_results_come_by_their_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a digest; calls are always whole."""
    script = Script(logs.name(1), "r-")
    script.user("Run it.")
    script.call("c1", "Bash", command=f"echo {LONG}")
    script.result("c1", LONG)
    logs.write(tmp_path / "home", script)
    sweep(tmp_path, {"claude": [tmp_path / "home"]}, digests=False)
    (all_of_it,) = payloads(tmp_path, "tool_result")
    monkeypatch.setattr(readouts, "DIGESTED_BYTES", 5_000)
    (cut,) = payloads(tmp_path, "tool_result")
    (call,) = payloads(tmp_path, "tool_call")

    assert LONG == all_of_it
    assert (True, True) == (cut.startswith("first line\n"), cut.endswith("3 passed in 0.1s"))
    assert len(cut) < 4100
    assert f"echo {LONG}" == call["command"]
