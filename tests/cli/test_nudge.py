"""What agents call: one small file, always 0, never a word."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from thence.cli import nudge
from thence.memory import nudges

ENTRY = [sys.executable, "-I", "-S", nudge.__file__]
CLAUDE = {
    "session_id": "11111111-2222-4333-8444-555555555555",
    "transcript_path": "/home/dev/.claude/projects/-p/11111111-2222-4333-8444-555555555555.jsonl",
    "cwd": "/home/dev/p",
    "hook_event_name": "Stop",
    "last_assistant_message": "the secret plan",
}


def call(agent: str, home: Path, *more: str, payload: bytes = b"", **env: str) -> tuple[int, bytes]:
    """Run it as an agent does; its exit code and all it printed."""
    done = subprocess.run(
        [*ENTRY, agent, str(home), *more],
        input=payload,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=30,
        env={**os.environ, **env},
    )
    return done.returncode, done.stdout


def left(home: Path) -> list[dict[str, object]]:
    """Read all nudges that lie there."""
    return [json.loads(path.read_bytes()) for path in sorted((home / "queue").iterdir())]


def test_a_nudge_names_the_session_and_nothing_that_was_said(tmp_path: Path) -> None:
    """Only these five fields are written, and sweeps can read them."""
    ended = call("claude", tmp_path, payload=json.dumps(CLAUDE).encode())
    (nudge_fields,) = left(tmp_path)

    assert (0, b"") == ended
    assert ["agent", "event", "session", "transcript_path", "ts"] == sorted(nudge_fields)
    assert ("claude", "Stop") == (nudge_fields["agent"], nudge_fields["event"])
    assert CLAUDE["transcript_path"] == nudge_fields["transcript_path"]
    assert CLAUDE["session_id"] == nudges.take(tmp_path).nudges[0].session


def test_nudges_of_one_session_are_one_file(tmp_path: Path) -> None:
    """The latest takes the place of the earlier; another session has its own."""
    for event in ("SessionStart", "Stop"):
        call("claude", tmp_path, payload=json.dumps(CLAUDE | {"hook_event_name": event}).encode())
    call("claude", tmp_path, payload=json.dumps(CLAUDE | {"session_id": "other"}).encode())

    assert ["Stop", "Stop"] == [fields["event"] for fields in left(tmp_path)]


def test_codex_says_it_in_an_argument(tmp_path: Path) -> None:
    """What comes as an argument is read, and stdin is left alone."""
    payload = json.dumps({"type": "agent-turn-complete", "thread-id": "t-1", "cwd": "/p"})

    ended = call("codex", tmp_path, payload)

    assert (0, b"") == ended
    assert [("codex", "t-1")] == [(fields["agent"], fields["session"]) for fields in left(tmp_path)]


def test_grok_is_known_when_it_runs_the_hooks_of_claude_code(tmp_path: Path) -> None:
    """Grok reads Claude Code's settings too; its sessions are not Claude Code's."""
    call("claude", tmp_path, payload=b'{"sessionId": "g"}', GROK_HOOK_EVENT="stop")

    assert [("grok", "g")] == [(fields["agent"], fields["session"]) for fields in left(tmp_path)]


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "payload",
    [b"", b"\x00\xff garbage", b"[1, 2", b'"text"', b"[" * 100_000, b'{"session_id": 7}', b"{} x"],
)
def test_no_stdin_disturbs_the_agent(tmp_path: Path, payload: bytes) -> None:
    """Whatever comes, it ends with 0, says nothing, and what it leaves can be read."""
    assert (0, b"") == call("claude", tmp_path, payload=payload)
    assert [""] == [entry.session for entry in nudges.take(tmp_path).nudges]


def test_a_long_message_is_cut_and_still_names_the_session(tmp_path: Path) -> None:
    """Of an event with a huge tool result the beginning is enough."""
    body = json.dumps(CLAUDE | {"tool_response": "x" * (2 << 20)}).encode()

    assert (0, b"") == call("claude", tmp_path, payload=body)
    assert [CLAUDE["session_id"]] == [fields["session"] for fields in left(tmp_path)]


@pytest.mark.parametrize("session", ["../../../etc/passwd", "a/b", "\x00", "x" * 5000, "é\ud800"])
def test_an_id_never_becomes_a_path(tmp_path: Path, session: str) -> None:
    """A session called like a path is written into the queue, under a name that is none."""
    ended = call("claude", tmp_path, payload=json.dumps({"session_id": session}).encode())

    assert (0, b"") == ended
    assert 1 == len(left(tmp_path))
    assert ["queue"] == [path.name for path in tmp_path.iterdir()]


def test_no_home_and_no_room_are_nobodys_trouble(tmp_path: Path) -> None:
    """Without a home nothing is made; a queue that is no folder changes nothing."""
    nowhere = tmp_path / "none"
    (tmp_path / "queue").write_text("a file")

    assert (0, b"") == call("claude", nowhere, payload=b"{}")
    assert not nowhere.exists()
    assert (0, b"") == call("claude", tmp_path, payload=b"{}")
    assert (0, b"") == call("claude", Path("/dev/full"), payload=b"{}")


def test_a_full_disk_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that is cut short leaves no file."""
    monkeypatch.setattr(os, "write", lambda _handle, _body: 3)
    nudge.leave("claude", str(tmp_path), "{}")

    assert [] == list((tmp_path / "queue").iterdir())


def test_it_loads_nothing_but_what_python_has_anyway(tmp_path: Path) -> None:
    """The usual nudge needs no json, no re, none of our modules: that is what makes it quick."""
    run = (
        f"import sys; sys.argv = ['x', 'claude', {str(tmp_path)!r}]\n"
        f"exec(compile(open({nudge.__file__!r}).read(), 'n', 'exec'), {{'__name__': '__main__'}})\n"
        "print(sorted({'json', 're', 'pathlib', 'subprocess', 'thence'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", run],
        input=json.dumps(CLAUDE).encode(),
        capture_output=True,
        check=True,
        timeout=30,
    )

    assert b"[]\n" == done.stdout
    assert 1 == len(left(tmp_path))


def test_on_hook_announces_one_sweep_for_many_nudges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cadence of on-hook starts one sweep; a comment, another cadence or no file start none."""
    started: list[str] = []

    def fork() -> int:
        started.append("sweep")
        return 1

    monkeypatch.setattr(os, "fork", fork)
    config = tmp_path / "config.toml"
    for setting in ('cadence = "daily" # not on-hook', '# cadence = "on-hook"'):
        config.write_text(f"[session_memory.retention]\n{setting}\n")
        nudge.leave("claude", str(tmp_path), "{}")

    assert [] == started

    config.write_text('[session_memory.retention]\n  cadence = "on-hook"\n')
    for _ in range(3):
        nudge.leave("claude", str(tmp_path), "{}")

    assert ["sweep"] == started

    os.utime(tmp_path / "sweep.due", (1, 1))
    nudge.leave("claude", str(tmp_path), "{}")

    assert ["sweep", "sweep"] == started
