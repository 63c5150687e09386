"""`thence exec`, `schedule`, `completion`, `uninstall`: what lies around the sessions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from thence.cli import completion, options, scheduling, wiring
from thence.cli.file_changes import EditRefused, NotAnswered
from thence.cli.sample_machine import Homes, made_id
from thence.errors import NotReadable
from thence.memory.store import Filter

QUESTION = made_id("what-does-clock-do")


# -- exec -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_exec_runs_the_command_and_keeps_what_it_wrote(machine: Homes, run: Run) -> None:
    """Its arguments are its own, and its session is in the store when it has ended."""
    path = next(machine.claude.rglob(f"{QUESTION}.jsonl"))
    new = path.with_name(f"{made_id('brand-new')}.jsonl")
    body = path.read_text().replace(QUESTION, made_id("brand-new")).replace('"uuid":"', '"uuid":"0')
    code = f"import sys; open({str(new)!r}, 'w').write({body!r}); sys.exit(len(sys.argv))"
    result = run("exec", "--", sys.executable, "-c", code, "--json", "-n")

    assert 3 == result.return_value
    with wiring.store() as store:
        assert 1 == len(list(store.sessions(Filter(uid=made_id("brand-new")))))


def test_exec_tells_how_the_command_died_and_sweeps_all_the_same(machine: Homes, run: Run) -> None:
    """A signal is told as shells tell it; a store that cannot be used is a note, no more."""
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"

    assert 128 + signal.SIGTERM == run("exec", "--", sys.executable, "-c", kill).return_value

    (machine.thence / "config.toml").write_text("bad = 1\n")
    result = run("exec", "--", sys.executable, "-c", "raise SystemExit(7)")

    assert 7 == result.return_value
    assert "note: not imported" in result.stderr
    (machine.thence / "config.toml").unlink()
    with pytest.raises(NotReadable, match="cannot run"):
        run("exec", "--", str(machine.work / "nothing"))


def test_exec_tells_programs_what_it_kept(machine: Homes, run: Run) -> None:
    """On stderr: what is on stdout is the command's own."""
    path = next(machine.claude.rglob(f"{QUESTION}.jsonl"))
    last = path.read_bytes().splitlines(keepends=True)[-1].replace(b'"uuid":"', b'"uuid":"0')
    code = f"import sys; open({str(path)!r}, 'ab').write({last!r}); sys.exit(4)"
    result = run("exec", "--json", "--", sys.executable, "-c", code)
    answer = json.loads(result.stderr)

    assert (4, 4, "") == (result.return_value, answer["exit_code"], result.stdout)
    assert [sys.executable, "-c", code] == answer["command"]
    assert (1, None) == (answer["sweep"]["sessions_changed"], answer["not_swept"])

    (machine.thence / "config.toml").write_text("bad = 1\n")
    answer = json.loads(run("exec", "--json", "--", sys.executable, "-c", "").stderr)

    assert (0, None) == (answer["exit_code"], answer["sweep"])
    assert "bad" in answer["not_swept"]


# -- schedule -------------------------------------------------------------------------------


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A systemctl and a crontab that only note what they are told."""
    folder = tmp_path / "bin"
    folder.mkdir()
    table = tmp_path / "table"
    scripts = {
        "systemctl": f'echo "$*" >> {tmp_path}/told',
        "crontab": f'case "$1" in -l) cat {table} 2>/dev/null;; -r) rm {table};; '
        f"-) cat > {table};; esac",
    }
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("THENCE_HOME", str(tmp_path / "home with 100% room"))
    for name in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "GROK_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_a_timer_is_shown_written_and_taken_away(tools: Path, run: Run) -> None:
    """Two units come and go, and systemd is told in the right order."""
    units = tools / ".config/systemd/user"
    with pytest.raises(NotAnswered):
        run("schedule", "install")

    assert not units.exists()

    planned = json.loads(run("schedule", "install", "--dry-run", "--json").stdout)

    assert [("systemd", True, False)] == [(p["by"], p["changes"], p["done"]) for p in planned]
    assert "+OnCalendar=daily" in planned[0]["diff"]
    assert not units.exists()

    shown = run("schedule", "install", "--yes", "--every", "weekly").stdout
    name = f"thence-sweep{scheduling.home_suffix()}"
    service = (units / f"{name}.service").read_text()

    assert "+OnCalendar=weekly" in shown
    assert f'Environment="THENCE_HOME={tools}/home with 100%% room"' in service
    assert f'ExecStart="{tools}/home with 100%% room/bin/thence" "sweep"' in service
    assert "already" in run("schedule", "install", "--yes", "--every", "weekly").stdout
    assert ["systemd"] == [
        timer["by"] for timer in json.loads(run("schedule", "status", "--json").stdout)
    ]

    gone = json.loads(run("schedule", "uninstall", "--yes", "--json").stdout)

    assert [("systemd", True)] == [(timer["by"], timer["done"]) for timer in gone]

    calls = (tools / "told").read_text().splitlines()

    assert [] == list(units.iterdir())
    assert f"--user enable --now {name}.timer" in calls
    assert [f"--user disable --now {name}.timer", "--user daemon-reload"] == calls[-2:]
    assert "no import is scheduled" in run("schedule", "status").stdout


@pytest.mark.parametrize("before", ["", "# mine\n0 4 * * * backup\n", "0 4 * * * no-newline"])
def test_a_line_of_cron_leaves_the_others_alone(tools: Path, run: Run, before: str) -> None:
    """The table is as it was, but for the line; taken out, all lines are as before."""
    table = tools / "table"
    if before:
        table.write_text(before)
    run("schedule", "install", "--by", "cron", "--yes")
    run("schedule", "install", "--by", "cron", "--yes")
    lines = table.read_text().splitlines()

    assert before.splitlines() == lines[:-1]
    assert lines[-1].startswith(f"@daily cd / && THENCE_HOME='{tools}/home with 100\\% room' ")
    assert lines[-1].endswith(f">/dev/null 2>&1 {scheduling.MARK}{scheduling.home_suffix()}")

    run("schedule", "uninstall", "--yes")

    assert before.splitlines() == (table.read_text().splitlines() if table.exists() else [])


@pytest.mark.parametrize("by", ["systemd", "cron"])
def test_each_home_has_a_timer_of_its_own(
    tools: Path, run: Run, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """The default home has plain names; the timer of another one comes and goes beside it."""
    other = os.environ["THENCE_HOME"]
    run("schedule", "install", "--by", by, "--yes")
    monkeypatch.delenv("THENCE_HOME")

    assert [] == scheduling.active_means()

    run("schedule", "install", "--by", by, "--yes")
    plain = _timers(tools)
    monkeypatch.setenv("THENCE_HOME", other)

    assert 2 == len(plain)
    assert {"thence-sweep.timer", f"{scheduling.MARK}\n"} & set(plain)

    run("schedule", "uninstall", "--yes")

    assert 1 == len(_timers(tools))
    monkeypatch.delenv("THENCE_HOME")
    assert [by] == [way.name for way in scheduling.active_means()]


def _timers(tools: Path) -> list[str]:
    """Return the names of the timers and the marks in the table of cron."""
    table = tools / "table"
    lines = table.read_text().splitlines() if table.exists() else []
    units = (tools / ".config/systemd/user").glob("*.timer")
    return [*(path.name for path in units), *(f"# {line.rpartition('# ')[2]}\n" for line in lines)]


@pytest.mark.parametrize("by", ["systemd", "cron"])
def test_a_timer_with_a_plain_name_stays_that_of_its_home(
    tools: Path, run: Run, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Earlier versions gave every home the plain names: no second timer comes, and it goes."""
    with monkeypatch.context() as patch:
        patch.setattr(scheduling, "home_suffix", lambda: "")
        run("schedule", "install", "--by", by, "--yes")
    run("schedule", "install", "--by", by, "--yes")

    assert 1 == len(_timers(tools))

    run("schedule", "uninstall", "--yes")

    assert [] == _timers(tools)


def test_neither_is_said(tools: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without systemd and cron the hint names what works without."""
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(EditRefused, match="neither systemd"):
        run("schedule", "install", "--yes")


# -- uninstall ------------------------------------------------------------------------------


def test_uninstall_takes_out_all_that_was_installed(tools: Path, run: Run) -> None:
    """Hooks of all agents and the timer go; settings are as they were; what is kept stays."""
    for name in ("claude", "codex", "grok"):
        (tools / f".{name}").mkdir()
    (tools / ".claude/settings.json").write_text('{"a":1}')
    (tools / ".codex/config.toml").write_text("x=1")
    changed = {".claude/settings.json", ".codex/config.toml"}
    before = {name: (tools / name).read_bytes() for name in changed}
    run("hook", "install", "--yes")
    run("schedule", "install", "--yes")
    shown = run("uninstall", "-n").stdout

    assert "would be removed" in shown
    assert before != {name: (tools / name).read_bytes() for name in changed}

    run("uninstall", "--yes")
    left = {
        str(path.relative_to(tools)): path.read_bytes()
        for path in tools.rglob("*")
        if path.is_file()
        and path.parts[len(tools.parts)] in (".claude", ".codex", ".grok", ".config")
    }

    assert before == left
    assert (Path(os.environ["THENCE_HOME"]) / "queue").is_dir()
    assert "none were installed" in run("uninstall", "--yes").stdout


# -- completion -----------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(run: Run, shell: str) -> None:
    """It names our command and the variable that asks for completions; programs get it named."""
    text = run("completion", shell).stdout
    answer = json.loads(run("completion", shell, "--json").stdout)

    assert "_THENCE_COMPLETE" in text
    assert "thence" in text
    assert (shell, text) == (answer["shell"], f"{answer['script']}\n")
    assert f"thence completion {shell}" in answer["use"]


@pytest.mark.slow
def test_commands_and_ids_are_completed(looked_at: Homes) -> None:
    """As a shell asks: the beginning of a command, and of an id."""

    def asked(words: str, at: int) -> str:
        env = {"_THENCE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        done = subprocess.run(
            [sys.executable, "-c", "from thence.cli import main; main()"],
            env=os.environ | env,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        return done.stdout

    assert "plain,forget" in asked("thence forg", 1)
    assert f"plain,{QUESTION[:8]}" in asked(f"thence resume {QUESTION[:3]}", 2)


def test_completing_without_a_store_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No error lands in the user's line."""
    import click

    monkeypatch.setenv("THENCE_HOME", str(tmp_path))
    context = click.Context(completion.command)

    assert [] == options.complete_ids(context, completion.command.params[0], "")
