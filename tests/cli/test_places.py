"""Logs that come back smaller, and sessions that lie in two folders: nothing is lost or doubled."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.agents import rollouts
from tests.agents.transcripts import A, Script, usage, write
from tests.cli.desk import Desk

MAIN = Path("projects") / "-home-dev-project" / f"{A}.jsonl"
SIDE = MAIN.with_suffix("") / "subagents" / "agent-a1.jsonl"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine with one folder of Claude Code and a second one that is set."""
    made = Desk(tmp_path, monkeypatch)
    made.home.mkdir(mode=0o700)
    for agent in ("claude", "codex"):
        (made.user / f"old-{agent}").mkdir()
    sources = f'claude = ["{made.user}/old-claude"]\ncodex = ["{made.user}/old-codex"]\n'
    text = f"[session_memory.sources]\n{sources}"
    (made.home / "config.toml").write_text(text, encoding="utf-8")
    return made


def talk(*words: str, name: str = "r", frame: dict[str, object] | None = None) -> Script:
    """A session in which each answer is one word and is billed for 10 tokens in and 5 out."""
    script = Script(A, name, **(frame or {}))
    for word in words:
        script.user(f"Say {word}.")
        script.reply([{"type": "text", "text": word}], stop="end_turn", usage=usage(5))
    return script


def answers(desk: Desk, uid: str = f"claude:{A}") -> Counter[str]:
    """Return the answers that `thence show` knows, and how often it shows each."""
    events = desk.run("show", uid, "--json").json["events"]
    replies = [e for e in events if e["kind"] == "assistant_msg" and "derived_from" not in e]
    return Counter(event["payload"]["text"] for event in replies)


def rewritten(desk: Desk) -> set[str]:
    """Return the answers that no log holds any more, as `thence show` says."""
    events = desk.run("show", f"claude:{A}", "--json").json["events"]
    return {e["summary"] for e in events if e.get("why") == "rewritten" and e["role"] != "user"}


def billed(desk: Desk) -> tuple[int, int]:
    """Return the responses and their tokens that `thence cost` counts."""
    total = desk.run("cost", "--json").json["total"]
    return total["responses"], total["tokens"]["output"]


def unread(desk: Desk) -> int:
    """Return how many bytes `thence doctor` says were not read."""
    findings = desk.run("doctor", "--json").json["findings"]
    return sum(f.get("unread", 0) for f in findings)


def test_a_log_that_comes_back_smaller_is_read(desk: Desk) -> None:
    """Its subagent's log stayed where it was; what is new is kept, and so is what was there."""
    write(desk.claude, talk("tern", "gull", "heron"))
    side = desk.claude / SIDE
    side.parent.mkdir(parents=True)
    frame: dict[str, object] = {"isSidechain": True, "agentId": "a1"}
    side.write_bytes(talk("plover", name="s", frame=frame).data)
    desk.sweep()
    (desk.claude / MAIN).unlink()
    desk.sweep()
    write(desk.claude, talk("curlew", name="n"))
    before = unread(desk)
    desk.sweep()

    assert before > 0
    assert dict.fromkeys(["tern", "gull", "heron", "plover", "curlew"], 1) == answers(desk)
    assert (5, 25) == billed(desk)
    assert 0 == unread(desk)
    assert {"tern", "gull", "heron"} == rewritten(desk)


def test_a_log_that_was_cut_is_not_called_read(desk: Desk) -> None:
    """`thence doctor` says so until the next sweep, however small the log is now."""
    write(desk.claude, talk("tern", "gull", "heron"))
    desk.sweep()
    write(desk.claude, talk("curlew", name="n"))
    before = unread(desk)
    desk.sweep()

    assert (desk.claude / MAIN).stat().st_size == before
    assert 0 == unread(desk)


def test_copies_of_a_session_in_two_folders_are_their_union(desk: Desk) -> None:
    """The smaller copy has answers that the larger one lacks; both are rewritten afterwards."""
    old = desk.user / "old-claude"
    write(desk.claude, talk("tern", "gull", "heron"))
    (old / MAIN).parent.mkdir(parents=True)
    shutil.copy(desk.claude / MAIN, old / MAIN)
    desk.sweep()
    shared = talk("tern").data
    (old / MAIN).write_bytes(shared + talk("curlew", name="n").data)
    desk.sweep()

    assert dict.fromkeys(["tern", "gull", "heron", "curlew"], 1) == answers(desk)
    assert (4, 20) == billed(desk)
    assert set() == rewritten(desk)

    (desk.claude / MAIN).write_bytes(shared)
    desk.sweep()

    assert dict.fromkeys(["tern", "gull", "heron", "curlew"], 1) == answers(desk)
    assert (4, 20) == billed(desk)
    assert {"gull", "heron"} == rewritten(desk)
    assert 0 == desk.run("sweep", "--json").json["read"]
    assert 0 == unread(desk)


def test_a_copy_that_was_only_moved_stays_one_session(desk: Desk) -> None:
    """A folder that is moved elsewhere is read where it was left off."""
    write(desk.claude, talk("tern", "gull"))
    desk.sweep()
    old = desk.user / "old-claude" / "projects"
    shutil.move(desk.claude / "projects", old)
    moved = desk.run("sweep", "--json").json
    with (desk.user / "old-claude" / MAIN).open("ab") as log:
        log.write(talk("curlew", name="n").data)
    grown = desk.run("sweep", "--json").json

    assert (0, 2) == (moved["lines"], grown["lines"])
    assert {"tern": 1, "gull": 1, "curlew": 1} == answers(desk)
    assert (3, 15) == billed(desk)


def test_rollouts_in_two_folders_are_their_union(desk: Desk) -> None:
    """Codex gives no ids to records and bills by running totals; each still counts once."""

    def lines(*turns: tuple[str, int]) -> list[rollouts.Line]:
        out = [rollouts.meta(cli_version="0.60.0")]
        for word, total in turns:
            out += [rollouts.user(f"Say {word}."), rollouts.assistant(word)]
            out += [rollouts.counted(rollouts.tokens(0, total), rollouts.tokens(0, 5))]
        return out

    here, there = rollouts.Home(desk.codex), rollouts.Home(desk.user / "old-codex")
    here.write(lines(("tern", 5), ("gull", 10), ("heron", 15)))
    there.write(lines(("tern", 5), ("gull", 10)))
    desk.sweep()

    assert {"tern": 1, "gull": 1, "heron": 1} == answers(desk, f"codex:{rollouts.A}")
    assert (3, 15) == billed(desk)

    there.write(lines(("tern", 5), ("gull", 10), ("curlew", 17)))
    here.write(lines(("tern", 5)))
    desk.sweep()

    assert dict.fromkeys(["tern", "gull", "heron", "curlew"], 1) == answers(
        desk, f"codex:{rollouts.A}"
    )
    assert (4, 22) == billed(desk)
