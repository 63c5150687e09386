"""Sessions that run now: by the process that a client left word of, and by no other."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from thence.agents import Adapter, Live
from thence.agents.hermes.reader import Hermes
from thence.agents.profiles import agents
from thence.agents.qwen.reader import Qwen
from thence.agents.vibe.reader import Vibe
from thence.errors import BadConfig

SESSION = "01a1e000-0000-7000-8000-000000000001"
NOT_LISTED = {
    *("aider", "codex", "continue", "droid", "gemini", "goose", "kilo", "kimi", "opencode", "pi"),
    "thence",
}
"""Clients that leave no word of a running session: looked for while each of them ran."""


def put(path: Path, value: Any) -> None:
    """Write a document."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


def put_qwen(root: Path, pid: Any, noted: Any, **more: Any) -> None:
    """Write what Qwen Code leaves beside a chat."""
    state = {
        "schema_version": 1,
        "pid": pid,
        "session_id": SESSION,
        "work_dir": "/harbour",
        "hostname": socket.gethostname(),
        "started_at": noted,
        "qwen_version": "0.24.4",
    }
    put(root / "projects" / "-harbour" / "chats" / f"{SESSION}.runtime.json", state | more)


def put_vibe(root: Path, pid: Any, noted: Any) -> None:
    """Write the lease of Mistral Vibe."""
    time_ = datetime.fromtimestamp(noted, UTC).isoformat() if isinstance(noted, float) else noted
    lease = {"acquired_at": time_, "lease_version": 1, "process_id": pid, "session_id": SESSION}
    put(root / "logs" / "session" / "active" / f"{SESSION}.lock.json", lease)


def put_hermes(root: Path, pid: Any, noted: Any) -> None:
    """Write the list of Hermes."""
    entry = {"lease_id": "1", "session_id": SESSION, "surface": "cli", "pid": pid}
    listing = {"entries": [{**entry, "started_at": noted, "updated_at": noted}, "odd", None]}
    put(root / "runtime" / "active_sessions.json", listing)


WRITERS: dict[str, tuple[Adapter, Callable[..., None]]] = {
    "hermes": (Hermes(), put_hermes),
    "qwen": (Qwen(), put_qwen),
    "vibe": (Vibe(), put_vibe),
}


@pytest.fixture
def child() -> Iterator[int]:
    """Return the number of a process that runs."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


@pytest.mark.parametrize("name", WRITERS)
def test_a_session_runs_as_long_as_its_process_does(name: str, child: int, tmp_path: Path) -> None:
    """What a killed client left behind names nobody, nor does a number that another one has now."""
    reader, write = WRITERS[name]
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    lists: list[list[str]] = []
    for pid, noted in ((child, time.time()), (child, time.time() - 86_400), (ended.pid, None)):
        write(tmp_path, pid, noted)
        lists.append([live.session for live in reader.live(tmp_path)])

    assert [[SESSION], [], []] == lists


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("pid", [None, True, 0, -1, 1 << 40, "12", [], 1.5])
def test_strange_numbers_and_documents_are_nobody(name: str, pid: Any, tmp_path: Path) -> None:
    """Nothing raises."""
    reader, write = WRITERS[name]
    write(tmp_path, pid, "long ago")

    assert [] == list(reader.live(tmp_path))

    (path,) = (path for path in tmp_path.rglob("*") if path.is_file())
    for text in ("", "[", "[]", "null", '{"entries": {}}', "\0"):
        path.write_text(text)

        assert [] == list(reader.live(tmp_path))


def test_what_qwen_wrote_on_another_machine_is_not_of_this_one(tmp_path: Path) -> None:
    """A home may be shared."""
    put_qwen(tmp_path, os.getpid(), time.time(), hostname="elsewhere")

    assert [] == list(Qwen().live(tmp_path))

    put_qwen(tmp_path, os.getpid(), now := time.time())
    (live,) = Qwen().live(tmp_path)
    (path,) = (path for path in tmp_path.rglob("*.json"))
    os.utime(path, (now, now - 40 * 86_400))

    assert [] == list(Qwen().live(tmp_path))  # the files stay for ever: old ones are not opened

    assert (SESSION, "/harbour", os.getpid()) == (live.session, live.cwd, live.pid)
    assert abs(datetime.fromisoformat(live.since or "").timestamp() - now) < 1


@pytest.mark.parametrize("name", sorted(agents()))
def test_an_agent_lists_running_sessions_or_says_that_it_does_not(name: str) -> None:
    """In words, and by the reader."""
    agent = agents()[name]

    assert (name in NOT_LISTED) is not agent.offers("status")
    if not agent.offers("status"):
        with pytest.raises(BadConfig, match="does not say which of its sessions are running"):
            agent.require("status")
    assert all(isinstance(live, Live) for live in agent.reader.live(Path("/nowhere")))
