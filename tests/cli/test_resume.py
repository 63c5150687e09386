"""`thence resume`: the right command of the right agent in the right folder."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from tests.cli.conftest import Run
from thence.cli import resume, thence, wiring
from thence.cli.picker import PickCancelled, Picker, PickerChoice, split
from thence.cli.sample_machine import Homes, made_id
from thence.cli.terminal import columns
from thence.errors import NotReadable, SessionNotFound
from thence.format.figures import argument

CLOCK = made_id("clock-change")


def ways(run: Run, *more: str) -> list[dict[str, Any]]:
    """Every session and how it is gone on with."""
    rows: list[dict[str, Any]] = json.loads(run("resume", "--json", *more).stdout)
    return rows


@pytest.mark.slow
def test_each_agent_is_called_its_own_way(looked_at: Homes, run: Run) -> None:
    """The command is the agent's own, in the session's folder."""
    by_agent = {way["agent"]: way for way in ways(run)}
    name = {agent: way["session_uid"].partition(":")[2] for agent, way in by_agent.items()}

    assert ["codex", "resume", name["codex"]] == by_agent["codex"]["argv"]
    assert ["grok", "-r", name["grok"]] == by_agent["grok"]["argv"]
    assert ["claude", "--resume", name["claude"]] == by_agent["claude"]["argv"]
    assert str(looked_at.work / "tidepool") == by_agent["grok"]["cwd"]
    assert name["thence"] in by_agent["thence"]["command"]


def test_the_command_alone_is_on_stdout(looked_at: Homes, run: Run) -> None:
    """A shell can take it as it is; what does not come back is said beside it."""
    result = run("resume", CLOCK[:8])

    assert f"cd {looked_at.work}/tidepool && claude --resume {CLOCK}\n" == result.stdout
    assert "Permissions are not restored" in result.stderr


def test_a_folder_that_is_not_the_usual_one_is_named(
    looked_at: Homes, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that would look elsewhere is told where."""
    monkeypatch.delenv("CLAUDE_CONFIG_DIR")
    monkeypatch.setenv("HOME", str(looked_at.work))
    line = run("resume", CLOCK).stdout

    assert f"&& CLAUDE_CONFIG_DIR={looked_at.claude} claude --resume" in line


@pytest.mark.slow
def test_exec_becomes_the_agent_in_the_folder(looked_at: Homes, tmp_path: Path) -> None:
    """`--exec` runs it there, with its arguments."""
    agent = tmp_path / "claude"
    agent.write_text('#!/bin/sh\necho "$PWD $*"\n')
    agent.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", "from thence.cli import main; main()", "resume", CLOCK, "--exec"],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )

    assert f"{looked_at.work}/tidepool --resume {CLOCK}\n" == done.stdout


def test_exec_says_what_is_missing(
    looked_at: Homes, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that is not installed is named."""
    monkeypatch.setenv("PATH", "/nonexistent")

    with pytest.raises(NotReadable, match="claude is not installed"):
        run("resume", CLOCK, "--exec")


def test_our_own_sessions_open_through_the_library(looked_at: Homes, run: Run) -> None:
    """The line that is printed opens the session."""
    way = next(way for way in ways(run) if way["agent"] == "thence")
    argv = [part for part in way["argv"] if part != "-i"]
    code = f"{argv[-1]}; print(len(session.messages))"
    done = subprocess.run(
        [*argv[:-1], code], capture_output=True, text=True, check=True, timeout=30
    )

    assert int(done.stdout) > 0


def test_without_a_terminal_there_is_a_list(looked_at: Homes, run: Run) -> None:
    """Where nobody can choose, the newest are listed with their ids."""
    lines = run("resume").stdout.splitlines()

    assert any(re.match(f"  ○ {CLOCK[:8]} +Claude Code ", line) for line in lines)
    assert all(len(line) <= 80 for line in lines)
    assert "thence resume ID" in lines[-1]


def test_filters_and_unknown_ids(looked_at: Homes, run: Run) -> None:
    """Agents and projects narrow the list; what is not there is said."""
    assert {"codex"} == {way["agent"] for way in ways(run, "--agent", "codex")}
    with pytest.raises(SessionNotFound):
        run("resume", "--project", "nowhere")
    with pytest.raises(SessionNotFound):
        run("resume", "zzz")


def test_what_the_agent_deleted_cannot_go_on(machine: Homes, run: Run) -> None:
    """The session is still kept, and the hint says how to read it."""
    gone = made_id("what-does-clock-do")
    for path in machine.claude.rglob(f"{gone}.jsonl"):
        path.unlink()
    run("sweep")
    result = CliRunner().invoke(thence, ["resume", gone])

    assert isinstance(result.exception, SessionNotFound)
    assert f"thence show {gone[:13]}" in (result.exception.hint or "")


# -- choosing -------------------------------------------------------------------------------

CHOICES = [
    PickerChoice("one  red fish", "one red fish", ("about one",)),
    PickerChoice("two  blue fish", "two blue fish", ("about two",)),
    PickerChoice("three  red bird", "three red bird"),
]


def typed(*keys: str) -> Picker:
    """A picker after some keys."""
    picker = Picker(CHOICES, colour=False)
    for key in keys:
        assert picker.press(key) is None
    return picker


def test_typing_filters_by_all_words_in_any_order() -> None:
    """Each word must be somewhere; taking letters back widens it again."""
    assert [0, 1, 2] == typed().matching
    assert [0] == typed(*"fish RED").matching
    assert [0, 1] == typed(*"fishx", "\x7f").matching
    assert [0, 1, 2] == typed(*"zzz", "\x15").matching


def test_enter_takes_what_is_marked() -> None:
    """Arrows move the mark and stop at the ends; nothing fitting takes nothing."""
    assert 1 == typed("\x1b[B").press("\r")
    assert 2 == typed(*["\x1b[B"] * 9).press("\r")
    assert 0 == typed("\x1b[B", "\x1b[A", "\x1b[A").press("\n")
    assert 2 == typed(*"red", "\x0e").press("\r")
    assert typed(*"nothing").press("\r") is None
    for key in ("\x1b", "\x03"):
        with pytest.raises(PickCancelled):
            typed().press(key)


def test_the_screen_fits_and_shows_what_is_marked() -> None:
    """Mark, count and preview are there at any size."""
    lines = list(typed("\x1b[B").lines(30, 12))

    assert "> " == lines[0][:2]
    assert "3 of 3" == lines[0][-6:]
    assert ["  one  red fish", "▸ two  blue fish"] == lines[1:3]
    assert "  about two" in lines
    for width, height in ((20, 5), (80, 40)):
        screen = list(typed().lines(width, height))

        assert all(len(line) <= width for line in screen)


def test_a_key_that_is_held_down_counts_each_time() -> None:
    """What comes at once is cut into keys: sequences, letters of any script, and escape alone."""
    assert ["\x1b[B", "\x1b[B", "\x1bOA", "\x1b[5~"] == split("\x1b[B\x1b[B\x1bOA\x1b[5~")
    assert ["漢", "a", "\x1b"] == split("漢a\x1b")
    assert ["\x1b", "\r"] == split("\x1b\r")


def test_wide_characters_move_no_column(looked_at: Homes) -> None:
    """Whatever the folder is called, titles stand under one another, and no line is too long."""
    now = datetime.now(UTC)
    with wiring.store() as store:
        row = next(iter(store.sessions()))
    choices = []
    for folder in ("tide", "潮位表", "潮位表の計算プログラム", "e\u0301te\u0301"):
        session = msgspec.structs.replace(row.session, cwd=f"/home/dev/{folder}")
        other = msgspec.structs.replace(row, session=session, title="漢字 | title " + "長" * 40)
        choices.append(resume._choice(other, "01234567", now, wiring.status()))
    shown = list(Picker(choices, colour=False).lines(60, 12))

    assert 1 == len({columns(choice.line.partition("漢字 |")[0]) for choice in choices})
    assert all(columns(line) <= 60 for line in shown)


@pytest.mark.slow
def test_choosing_on_a_terminal(looked_at: Homes) -> None:
    """Typing on a real terminal finds the session, and stdout has the command only."""
    here, there = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", "from thence.cli import main; main()", "resume"],
        stdin=there,
        stderr=there,
        stdout=subprocess.PIPE,
        env=os.environ | {"TERM": "xterm"},
        text=True,
    )
    os.close(there)
    seen = _until(here, "Esc to cancel")
    os.write(here, b"gauge import")
    seen += _until(here, "1 of ")
    os.write(here, b"\r")
    stdout, _ = child.communicate(timeout=30)
    os.close(here)

    assert re.search(r"\x1b\[\?1049h", seen)
    assert made_id("gauge-import") in shlex.split(stdout)
    assert 0 == child.returncode


def _on_terminal(tmp_path: Path, *arguments: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start a command on a terminal of its own, with agents that print where and how they run."""
    for name in ("claude", "codex", "grok"):
        agent = tmp_path / name
        agent.write_text(f'#!/bin/sh\necho "RUN {name} $PWD $*"\n')
        agent.chmod(0o755)
    here, there = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", "from thence.cli import main; main()", *arguments],
        stdin=there,
        stdout=there,
        stderr=there,
        env=os.environ | {"TERM": "xterm", "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    os.close(there)
    return child, here


@pytest.mark.slow
def test_what_is_chosen_on_a_terminal_runs(looked_at: Homes, tmp_path: Path) -> None:
    """Enter is enough: the agent starts in the session's folder."""
    child, here = _on_terminal(tmp_path, "resume")
    _until(here, "Esc to cancel")
    os.write(here, b"gauge import")
    _until(here, "1 of ")
    os.write(here, b"\r")
    seen = _until(here, made_id("gauge-import"))

    assert re.search(rf"RUN \w+ {re.escape(str(looked_at.work))}", seen)
    assert 0 == child.wait(30)
    os.close(here)


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "is_written"), [(b"n\n", False), (b"\n", True), (None, True)])
def test_a_handoff_on_a_terminal_asks_before_it_writes(
    machine: Homes, tmp_path: Path, answer: bytes | None, *, is_written: bool
) -> None:
    """It shows the file; no writes nothing; --yes is not asked."""
    folder = machine.work.parent
    before = {*folder.rglob("rollout-*.jsonl")}
    child, here = _on_terminal(
        tmp_path, "resume", CLOCK, "--with", "codex", *(["-y"] if answer is None else [])
    )
    if answer is not None:
        assert "rollout-" in _until(here, "Write this session?")
        os.write(here, answer)
    if is_written:
        _until(here, "codex resume")
    code = child.wait(30)
    os.close(here)

    assert (0 if is_written else 130) == code
    assert is_written == bool({*folder.rglob("rollout-*.jsonl")} - before)


def _until(handle: int, wanted: str) -> str:
    seen, until = "", time.monotonic() + 30
    while wanted not in seen and time.monotonic() < until:
        if select.select([handle], [], [], 1)[0]:
            seen += os.read(handle, 65536).decode("utf-8", "replace")
    assert wanted in seen
    return seen


# -- ids that look like options -------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "session"),
    [("claude", "--dangerously-skip-permissions"), ("grok", "--always-approve")],
)
def test_an_id_never_becomes_an_option_of_the_agent(
    machine: Homes, run: Run, tmp_path: Path, agent: str, session: str
) -> None:
    """A log named like an option is passed on as a name: printed, in JSON, and when it is run."""
    if agent == "claude":
        (log,) = machine.claude.glob(f"projects/*/{CLOCK}.jsonl")
        log.with_name(f"{session}.jsonl").write_text(log.read_text().replace(CLOCK, session))
    else:
        folder = next(path.parent for path in (machine.grok / "sessions").glob("*/*/summary.json"))
        shutil.copytree(folder, folder.with_name(session))
        for path in folder.with_name(session).iterdir():
            path.write_text(path.read_text().replace(folder.name, session))
    run("sweep")
    printed = run("resume", "--", session).stdout
    answer = json.loads(run("resume", "--json", "--", session).stdout)
    program = tmp_path / agent
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "thence", "resume", "--exec", "--", session],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert session not in shlex.split(printed.partition("&& ")[2])
    assert session not in answer["argv"]
    assert [f"--resume={session}"] == done.stdout.splitlines(), done.stderr


def test_the_line_that_is_copied_from_the_viewer_is_one_word_and_no_option() -> None:
    """Whatever a log is called, a shell hands its id to `thence resume` as a name."""
    assert "7f3a91c2" == argument("7f3a91c2")
    assert ["--", "--exec"] == shlex.split(argument("--exec"))
    assert ["$(reboot)"] == shlex.split(argument("$(reboot)"))
