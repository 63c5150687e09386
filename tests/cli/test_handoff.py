"""`thence handoff`: any session to any agent, from the command line, and on with it."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.desk import Desk, windows
from thence.agents.samples import fake_token
from thence.agents.sessions import load
from thence.bridge.handoff import targets
from thence.bridge.portable_history import writer_of
from thence.cli.sample_machine import Homes, made_id
from thence.format.repair import problems
from thence.memory.readouts import readout_of

CLOCK, IMPORT = made_id("clock-change"), made_id("gauge-import")
WRITTEN = [name for name in targets() if writer_of(name).accept is None]
"""Agents that find a session where it is written; other clients take it in (tests/e2e)."""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine."""
    return Desk(tmp_path, monkeypatch)


def bodies(folder: Path) -> dict[str, str]:
    """Return a hash of every file below a folder."""
    files = [path for path in folder.rglob("*") if path.is_file() and ".thence" not in path.parts]
    return {str(path): sha256(path.read_bytes()).hexdigest() for path in files}


def texts(messages: list[dict[str, Any]], role: str) -> list[str]:
    """Return what one side said."""
    return [
        block["text"]
        for message in messages
        if message["role"] == role
        for block in message["content"]
        if block["type"] == "text" and not block["text"].startswith("<")
    ]


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("to", WRITTEN)
def test_every_session_can_be_handed_to_every_agent(looked_at: Homes, run: Run, to: str) -> None:
    """Of every agent and state: it reads back whole, what was there before is untouched."""
    before = bodies(looked_at.work.parent)
    for uid in [row["session_uid"] for row in json.loads(run("ls", "--json").stdout)]:
        answer = json.loads(run("handoff", uid, "--to", to, "--json").stdout)
        path = next(Path(name) for name in answer["files"] if "summary.json" not in name)
        source = json.loads(run("export", uid, "--as", "messages").stdout)
        made = readout_of(load(path).graph).messages().messages

        assert [] == problems(made), uid
        assert f"{to}:{answer['session']}" == load(path).graph.uid
        spoken = "\n\n".join(texts(made, "assistant"))
        assert [] == [text for text in texts(source, "assistant") if text not in spoken], uid
        asked = texts(made, "user")
        assert [] == [text for text in texts(source, "user") if not _is_in(text, asked)], uid
        assert answer["calls"] == sum(
            sum(answer[name].values()) for name in ("kept", "mapped", "told")
        )
    after = bodies(looked_at.work.parent)
    assert before.items() <= after.items()


def _is_in(prompt: str, asked: list[str]) -> bool:
    return any(prompt.strip() in text for text in asked)


def test_a_history_goes_on_as_it_was_and_not_redacted(looked_at: Homes, run: Run) -> None:
    """A secret that the model saw is still there; the report does not claim otherwise."""
    answer = json.loads(run("handoff", IMPORT, "--to", "codex", "--json").stdout)

    assert fake_token() in Path(answer["files"][0]).read_text()
    assert [] == [note for note in answer["notes"] if "redacted" in note]


def test_a_session_whose_source_is_gone_is_handed_as_it_was_kept(desk: Desk) -> None:
    """Out of the store, redacted, and the report says so."""
    folder = desk.write_claude(windows())
    desk.sweep()
    next(folder.glob("*.jsonl")).unlink()
    answer = desk.run("handoff", "7f3a91c2", "--to", "codex", "--json").json

    assert any("redacted" in note for note in answer["notes"])
    assert "Cut the windows in UTC" in Path(answer["files"][0]).read_text()


def test_a_dry_run_writes_nothing(desk: Desk) -> None:
    """It says what would be, and the file is not there."""
    path = next(desk.write_claude(windows()).glob("*.jsonl"))
    ran = desk.run("handoff", str(path), "--to", "grok", "-n", "--json")

    assert (0, True) == (ran.code, ran.json["dry_run"])
    assert [] == [name for name in ran.json["files"] if Path(name).exists()]
    assert not (desk.user / ".grok").exists()


def test_the_words_say_what_became_of_it_and_how_to_go_on(desk: Desk) -> None:
    """Mapped, told, left behind; the last line is what to type."""
    path = next(desk.write_claude(windows()).glob("*.jsonl"))
    ran = desk.run("handoff", str(path), "--to", "codex", "-y", columns=120)

    assert 0 == ran.code, ran.err
    assert "copied to codex" in ran.lines[0]
    assert any("Bash → exec_command 1" in line for line in ran.lines)
    assert any("calls as text: Read 1, Edit 1" in line for line in ran.lines)
    assert any("not copied: permissions" in line for line in ran.lines)
    assert "codex resume" in ran.lines[-1]


def test_a_dead_branch_can_be_gone_on_with(desk: Desk) -> None:
    """By any event of it, under the name that search gives it or the log's own."""
    path = next(desk.write_claude(windows()).glob("*.jsonl"))
    shown = desk.run("show", str(path), "--as", "events").json
    wrong = next(e for e in shown["events"] if e["summary"].startswith("try it with fold"))
    for name in (wrong["native_id"], f"e{wrong['event_id']:013x}"[:7]):
        answer = desk.run("handoff", str(path), "--to", "claude", "--branch", name, "--json").json
        body = Path(answer["files"][0]).read_text()

        assert "hidden under a lantern" in body
        assert "Cut the windows in UTC" not in body


def test_an_event_says_where_to_end(desk: Desk) -> None:
    """What led to it is handed over, and nothing that came after."""
    path = next(desk.write_claude(windows()).glob("*.jsonl"))
    shown = desk.run("show", str(path), "--as", "events").json
    two = next(e for e in shown["events"] if e["summary"].startswith("Two places"))
    answer = desk.run(
        "handoff", str(path), "--to", "claude", "--at", two["native_id"], "--json"
    ).json
    body = Path(answer["files"][0]).read_text()

    assert two["native_id"] == answer["event"]
    assert "Two places walk the hours." in body
    assert "fold=1" not in body


def test_what_cannot_be_is_refused(desk: Desk) -> None:
    """Two ends, an event that is not there, no such session: each with its exit code."""
    path = str(next(desk.write_claude(windows()).glob("*.jsonl")))

    assert 2 == desk.run("handoff", path, "--to", "codex", "--at", "a", "--branch", "b").code
    assert 10 == desk.run("handoff", path, "--to", "codex", "--at", "none").code
    assert 10 == desk.run("handoff", "/no/such/file", "--to", "codex").code
    assert 2 == desk.run("handoff", path, "--to", "nobody").code


def test_resume_with_another_agent_hands_over_in_one_step(looked_at: Homes, run: Run) -> None:
    """The command is the other agent's, with the id of a session that is now there."""
    before = json.loads(run("resume", CLOCK, "--json").stdout)
    answer = json.loads(run("resume", CLOCK, "--with", "codex", "--json").stdout)
    same = json.loads(run("resume", CLOCK, "--with", "claude", "--json").stdout)
    name = answer["argv"][-1]

    assert ["codex", "resume", name] == answer["argv"]
    assert before["cwd"] == answer["cwd"]
    assert before == same
    paths = list(looked_at.work.parent.rglob(f"rollout-*-{name}.jsonl"))
    assert 1 == len(paths)
    line = run("resume", CLOCK, "--with", "grok", "-y").stdout
    assert line.startswith(f"cd {before['cwd']} && grok")


@pytest.mark.slow
def test_without_a_terminal_nothing_is_written_unless_confirmed(desk: Desk) -> None:
    """A line of a script that only looks like printing a command writes into no agent's folder."""
    desk.write_claude(windows())
    desk.sweep()
    for command in (("handoff", "7f3a", "--to", "codex"), ("resume", "7f3a", "--with", "codex")):
        ran = desk.run(*command)

        assert 2 == ran.code
        assert "error: nothing was written" in ran.err
        assert "hint:  add --yes to confirm" in ran.err
        assert [] == [*desk.codex.rglob("rollout-*.jsonl")]
    assert 0 == desk.run("handoff", "7f3a", "--to", "codex", "--yes").code
    assert 1 == len([*desk.codex.rglob("rollout-*.jsonl")])
