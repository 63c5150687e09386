"""`thence hook`: the change is shown first, others' settings stay, undo is exact."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.agents.transcripts import Script, write
from thence.agents.profiles import USUAL_EVENTS as EVENTS
from thence.cli import thence
from thence.cli.launcher import NUDGE
from thence.config import settings
from thence.memory import nudges

MARK = f"bin/thence {NUDGE} "
"""What a command of ours is known by."""
NINE = {
    *("SessionStart", "SessionEnd", "UserPromptSubmit", "PreToolUse", "PostToolUse"),
    *("Stop", "SubagentStop", "PreCompact", "Notification"),
}
SETTINGS = b"""{
    "model": "opus",
    "hooks": {
        "Stop": [
            {"hooks": [{"type": "command", "command": "say done"}]}
        ]
    },
    "env": {"A": "\\u00e9"}
}"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with the three agents."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("THENCE_HOME", raising=False)
    for name in ("claude", "codex", "grok"):
        (tmp_path / f".{name}").mkdir()
        variable = {"claude": "CLAUDE_CONFIG_DIR"}.get(name, f"{name.upper()}_HOME")
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def run(*arguments: str) -> Result:
    """Run a command that is meant to go well."""
    return CliRunner().invoke(thence, ["hook", *arguments], catch_exceptions=False)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    files = (
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.parent.name != "bin"  # the launcher stays
    )
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def settle(home: Path, cadence: str) -> None:
    """Have settings of our own that name a cadence."""
    (home / ".thence").mkdir(mode=0o700)
    text = f'[session_memory.retention]\ncadence = "{cadence}"\n'
    (home / ".thence/config.toml").write_text(text)


def hear(home: Path, agent: str, *sessions: str) -> None:
    """Have an agent's hook called for sessions, as its settings say."""
    path = home / (".claude/settings.json" if agent == "claude" else ".grok/hooks/thence.json")
    line = json.loads(path.read_bytes())["hooks"]["Stop"][0]["hooks"][0]["command"]
    for session in sessions:
        payload = json.dumps({"session_id": session}).encode()
        subprocess.run(["sh", "-c", line], input=payload, check=True)


def ours(path: Path) -> list[str]:
    """The events that call us."""
    hooks = json.loads(path.read_bytes())["hooks"]
    return [event for event, entries in hooks.items() if MARK in json.dumps(entries)]


def test_only_events_that_every_version_knows_are_asked_for(home: Path) -> None:
    """An older Claude Code drops all settings for one event that it does not know."""
    run("install", "claude", "--yes")

    assert set(ours(home / ".claude/settings.json")) <= NINE
    assert {"SessionStart", "Stop", "SessionEnd"} <= set(EVENTS)


def test_install_shows_the_change_and_asks(home: Path) -> None:
    """With nobody there to say yes the diff is shown and nothing is written."""
    result = CliRunner().invoke(thence, ["hook", "install", "claude"])

    assert result.exception is not None
    assert f"+++ {home}/.claude/settings.json" in result.output
    assert '+    "Stop": [' in result.output
    assert {} == tree(home / ".claude")


@pytest.mark.few(4)
@pytest.mark.parametrize("agent", ["claude", "codex", "grok"])
@pytest.mark.parametrize("before", [None, "usual", "odd"])
def test_undo_leaves_every_byte_as_it_was(home: Path, agent: str, before: str | None) -> None:
    """Whatever the file was like, or if there was none, it is so again; twice in is once in."""
    root = home / f".{agent}"
    if before:
        odd = before == "odd"
        if agent == "codex":
            text = b"# mine\r\nmodel='o3'\nnotify = [ 'x',\n  \"y\" ] # bell\n[a]\nnotify=1"
            (root / "config.toml").write_bytes(text if odd else b'model = "o3"\n\n[tui]\nx = 1\n')
        else:
            (root / "settings.json").write_bytes(SETTINGS if odd else b'{\n\t"a": {}\n}\n')
    was = tree(root)

    run("install", agent, "--yes")
    once = tree(root)
    run("install", agent, "--yes")

    assert once == tree(root)
    assert once != was

    run("uninstall", agent, "--yes")

    assert was == tree(root)


def test_others_hooks_and_settings_stay(home: Path) -> None:
    """What stood there stands there, and comes first."""
    path = home / ".claude/settings.json"
    path.write_bytes(SETTINGS)
    run("install", "claude", "--yes")
    now = json.loads(path.read_bytes())

    assert "say done" == now["hooks"]["Stop"][0]["hooks"][0]["command"]
    assert ("opus", {"A": "é"}) == (now["model"], now["env"])
    assert SETTINGS == Path(f"{path}.before-thence").read_bytes()


def test_what_was_changed_after_us_is_kept_when_we_go(home: Path) -> None:
    """Only our lines go from a file that somebody changed since."""
    path = home / ".claude/settings.json"
    path.write_bytes(SETTINGS)
    run("install", "claude", "--yes")
    changed = json.loads(path.read_bytes()) | {"theme": "dark"}
    path.write_text(json.dumps(changed))
    run("uninstall", "claude", "--yes")

    assert json.loads(SETTINGS) | {"theme": "dark"} == json.loads(path.read_bytes())
    assert ["settings.json"] == list(tree(home / ".claude"))


@pytest.mark.parametrize(
    "before",
    [
        '{"n": 1e5, "list": [1,  2], "env": {}}',
        '{\n\t"a": [1, 2],\n\t"hooks": {\n\t\t"Stop": [ {"hooks": [{"command": "x"}]} ]\n\t}\n}\n',
        '{\r\n  "hooks": {"Stop": [{"hooks": [{"command": "x"}], "matcher": ""}]}, "n": 1.50\r\n}',
        '\ufeff{ "text": "\\u00e9 \\"hooks\\": {" }',
    ],
)
def test_somebody_elses_change_costs_no_byte_of_the_rest(home: Path, before: str) -> None:
    """Numbers, spaces and lists stay as they were written, when we come and when we go."""
    path = home / ".claude/settings.json"
    path.write_bytes(before.encode())
    run("install", "claude", "--yes")
    now = path.read_bytes().decode()

    assert set(EVENTS) == set(ours(path))

    path.write_bytes(now.replace("{", '{"theme": "dark", ', 1).encode())
    run("uninstall", "claude", "--yes")

    assert before.replace("{", '{"theme": "dark", ', 1) == path.read_bytes().decode()


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"a":1,"a":2}', b'{"hooks": []}', b"// x\n{}"])
def test_settings_that_are_not_understood_are_refused(home: Path, body: bytes) -> None:
    """Nothing is written, and the error names the file."""
    path = home / ".claude/settings.json"
    path.write_bytes(body)
    result = CliRunner().invoke(thence, ["hook", "install", "claude", "--yes"])

    assert "settings.json" in str(result.exception)
    assert {"settings.json": body} == tree(home / ".claude")


def test_a_link_to_settings_stays_a_link(home: Path) -> None:
    """People keep settings elsewhere and link to them; the mode stays too."""
    real = home / "dotfiles.json"
    real.write_bytes(b"{}\n")
    real.chmod(0o640)
    (home / ".claude/settings.json").symlink_to(real)
    run("install", "claude", "--yes")

    assert (home / ".claude/settings.json").is_symlink()
    assert [*EVENTS] == ours(real)
    assert 0o640 == real.stat().st_mode & 0o777


def test_codex_runs_the_program_that_was_there_before(home: Path) -> None:
    """Its `notify` comes after ours, and the rest of the text is untouched."""
    path = home / ".codex/config.toml"
    path.write_text('# top\nnotify = [\n  "bell", # loud\n  "x",\n]\n[profiles.a]\nmodel = "m"\n')
    run("install", "codex", "--yes")
    config = tomllib.loads(path.read_text())

    assert ["--then", "bell", "x"] == config["notify"][-3:]
    assert path.read_text().startswith("# top\nnotify = [")
    assert path.read_text().endswith(', # loud\n  "x",\n]\n[profiles.a]\nmodel = "m"\n')


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_notify_of_the_users_own_runs_whether_our_python_is_there_or_not(
    home: Path, *, is_gone: bool
) -> None:
    """It gets the words that Codex says, and its exit code is that of the command."""
    settle(home, "daily")
    bell = home / "bell"
    bell.write_text(f'#!/bin/sh\nprintf "%s|" "$@" > {home}/rang\nexit 7\n')
    bell.chmod(0o755)
    path = home / ".codex/config.toml"
    path.write_text(f'notify = ["{bell}", "loud \\"x\\""]\n')
    run("install", "codex", "--yes")
    if is_gone:
        path.write_text(path.read_text().replace(str(home / ".thence/bin"), "/gone/bin"))
    payload = json.dumps({"type": "agent-turn-complete", "thread-id": "t-1", "text": "it's $HOME"})
    command = [*tomllib.loads(path.read_text())["notify"], payload]
    done = subprocess.run(command, check=False, capture_output=True)

    assert (7, b"", b"") == (done.returncode, done.stdout, done.stderr)
    assert f'loud "x"|{payload}|' == (home / "rang").read_text()
    queue = [nudge.name for nudge in (home / ".thence/queue").iterdir()]
    assert ([] if is_gone else ["codex-t-1.json"]) == queue


@pytest.mark.parametrize("agent", ["claude", "grok"])
def test_an_agent_hears_nothing_of_a_python_that_is_gone(home: Path, agent: str) -> None:
    """The line in its settings ends with 0 and prints nothing."""
    run("install", agent, "--yes")
    path = home / (".claude/settings.json" if agent == "claude" else ".grok/hooks/thence.json")
    line = json.loads(path.read_bytes())["hooks"]["Stop"][0]["hooks"][0]["command"]
    gone = line.replace(str(home / ".thence/bin"), "/gone/bin")
    done = subprocess.run(["sh", "-c", gone], input=b"{}", check=False, capture_output=True)

    assert (0, b"", b"") == (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    "before",
    [
        'model = "o3"\nnotify = ["bell"] # mine\n',
        'notify = [\n  "bell", # loud\n  "x",\n]\n[tui]\nx = 1\n',
        "\ufeff# top\nmodel = 'o3'\n",
        "\ufeffnotify = [ 'bell' ]\n",
    ],
)
def test_comments_around_notify_outlast_somebody_elses_change(home: Path, before: str) -> None:
    """Only our own words come and go; what somebody wrote meanwhile and all comments stay."""
    path = home / ".codex/config.toml"
    path.write_bytes(before.encode())
    run("install", "codex", "--yes")

    assert path.read_bytes() != before.encode()

    path.write_bytes(path.read_bytes() + b"\n[later]\ny = 2\n")
    run("uninstall", "codex", "--yes")

    assert f"{before}\n[later]\ny = 2\n" == path.read_bytes().decode()


@pytest.mark.parametrize(
    ("agent", "name", "body"),
    [
        ("claude", "settings.json", b""),
        ("claude", "settings.json", b"\n"),
        ("codex", "config.toml", b"\xef\xbb\xbfmodel = 'o3'\n"),
    ],
)
def test_files_that_the_agent_takes_are_taken(
    home: Path, agent: str, name: str, body: bytes
) -> None:
    """Empty settings and a byte order mark are no reason to refuse, and are there again after."""
    path = home / f".{agent}" / name
    path.write_bytes(body)
    run("install", agent, "--yes")

    assert json.loads(run("status", agent, "--json").output)[0]["installed"]

    run("uninstall", agent, "--yes")

    assert body == path.read_bytes()


@pytest.mark.slow
def test_a_pipe_in_place_of_settings_is_said_and_never_waited_for(home: Path) -> None:
    """Neither status nor doctor hangs; the other agents are still told of."""
    os.mkfifo(home / ".claude/settings.json")
    for words in (["hook", "status"], ["doctor"], ["hook", "install", "claude", "--yes"]):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "thence", *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=os.environ | {"COLUMNS": "200"},
        )

        assert "settings.json is not a regular file" in done.stdout + done.stderr
        assert "install" in words or "codex" in done.stdout


def test_codex_may_have_hooks_instead(home: Path) -> None:
    """`--via hooks` writes hooks.json, and uninstalling finds it."""
    run("install", "codex", "--via", "hooks", "--yes")

    assert ["hooks.json"] == list(tree(home / ".codex"))

    run("uninstall", "codex", "--yes")

    assert {} == tree(home / ".codex")


@pytest.mark.parametrize("agent", ["claude", "grok"])
def test_the_installed_command_leaves_a_nudge_that_status_hears(home: Path, agent: str) -> None:
    """The very line in the settings, given to a shell, works."""
    settle(home, "daily")
    run("install", agent, "--yes")
    path = home / (".claude/settings.json" if agent == "claude" else ".grok/hooks/thence.json")
    line = json.loads(path.read_bytes())["hooks"]["Stop"][0]["hooks"][0]["command"]
    done = subprocess.run(
        ["sh", "-c", line], input=b'{"session_id": "s"}', check=True, capture_output=True
    )
    (status,) = json.loads(run("status", agent, "--json").stdout)
    names = [nudge.name for nudge in (home / ".thence/queue").iterdir()]
    nudges.take(home / ".thence").done()

    assert (b"", b"") == (done.stdout, done.stderr)
    assert [f"{agent}-s.json"] == names
    assert [] == list((home / ".thence/queue").iterdir())
    assert status["installed"]
    assert status["last_nudge"] is not None
    assert (1, 0) == (status["heard"], status["stored"])
    assert [status | {"heard": 0}] == json.loads(run("status", agent, "--json").stdout)


def test_status_tells_what_is_wrong(home: Path) -> None:
    """Not there, in part, of another Python, switched off: each is said."""
    path = home / ".claude/settings.json"

    assert "○ Claude Code  not installed" in run("status").output

    run("install", "claude", "--yes")
    text = path.read_text()

    assert "✓ Claude Code  installed, no report yet" in run("status").output

    path.write_text(text.replace(str(home / ".thence/bin"), "/gone/bin"))

    assert (
        "▲ Claude Code  the hook starts a program that is gone: /gone/bin/thence"
        in run("status").output
    )

    path.write_text(text.replace('"SessionEnd"', '"Other"'))

    assert "▲ Claude Code  partly installed" in run("status").output

    path.write_text(json.dumps(json.loads(text) | {"disableAllHooks": True}))

    assert "▲ Claude Code  installed, but hooks are disabled" in run("status").output


def test_installing_again_mends_a_hook_of_another_python(home: Path) -> None:
    """Our old lines go, the new ones come once, and undo still knows the file as it was."""
    path = home / ".claude/settings.json"
    path.write_bytes(SETTINGS)
    run("install", "claude", "--yes")
    path.write_text(path.read_text().replace(str(home / ".thence/bin"), "/gone/bin"))
    run("install", "claude", "--yes")

    assert "/gone" not in path.read_text()
    assert len(EVENTS) == path.read_text().count(MARK)

    run("uninstall", "claude", "--yes")

    assert SETTINGS == path.read_bytes()


# -- what install means: sessions are stored ------------------------------------------------

SESSION = "5e550000-0000-4000-8000-000000000002"


@pytest.mark.slow
def test_a_session_is_stored_without_any_sweep_by_hand(home: Path) -> None:
    """Install the hook, work with the agent, and the list of sessions holds what was done."""
    run("install", "claude", "--yes")
    script = Script(SESSION, cwd="/home/dev/tidepool")
    script.user("Why does the tide table lose an hour?")
    script.reply([{"type": "text", "text": "The clock changes."}], stop="end_turn")
    write(home / ".claude", script)
    hear(home, "claude", SESSION)
    stop = time.monotonic() + 120
    while (home / ".thence/sweep.due").exists() or list((home / ".thence/queue").iterdir()):
        assert time.monotonic() < stop, "no sweep came"
        time.sleep(0.1)
    listed = CliRunner().invoke(thence, ["ls", "--json"], catch_exceptions=False)

    assert [SESSION] == [row["native_session_id"] for row in json.loads(listed.stdout)]
    assert "✓ Claude Code  installed, last report just now" in run("status", "claude").output


def test_install_says_that_hooks_start_sweeps(home: Path) -> None:
    """The change of our own settings is shown like any other, and what it means is said."""
    shown = run("install", "claude", "--yes").output

    assert f"+++ {home}/.thence/config.toml" in shown
    assert '+cadence = "on-hook"' in shown
    assert "new activity is imported a few seconds after" in shown


def test_a_cadence_that_was_chosen_stays_and_the_missing_line_is_named(home: Path) -> None:
    """Who chose another cadence is told what to write."""
    settle(home, "weekly")
    before = tree(home / ".thence")
    shown = run("install", "claude", "--yes").output

    assert before == tree(home / ".thence")
    assert 'cadence = "on-hook" in [session_memory.retention]' in shown
    assert "~/.thence/config.toml" in shown


@pytest.mark.parametrize(
    "before",
    [
        None,
        "# mine\n",
        '[session_memory]\nexclude = ["x"]',
        "[session_memory.retention]\n",
        "[session_memory.retention] # mine\nraw_max_age_days = 3",
        "[session_memory.retention]\r\nraw_max_age_days = 3\r\n[session_memory.domains]\r\n",
    ],
)
def test_undo_leaves_our_own_settings_as_they_were(home: Path, before: str | None) -> None:
    """The line goes with the last hook, and every other byte is as before."""
    (home / ".thence").mkdir(mode=0o700)
    path = home / ".thence/config.toml"
    if before is not None:
        path.write_bytes(before.encode())
    run("install", "claude", "grok", "--yes")

    assert "on-hook" == settings(home / ".thence")["session_memory.retention.cadence"]

    run("uninstall", "grok", "--yes")

    assert "on-hook" == settings(home / ".thence")["session_memory.retention.cadence"]

    run("uninstall", "claude", "--yes")

    assert before == (path.read_bytes().decode() if path.exists() else None)


def test_what_was_written_below_our_line_stays(home: Path) -> None:
    """Only our own line goes from settings that somebody changed since."""
    run("install", "claude", "--yes")
    path = home / ".thence/config.toml"
    path.write_text(path.read_text() + "raw_max_age_days = 3\n")
    run("uninstall", "claude", "--yes")

    assert "daily" == settings(home / ".thence")["session_memory.retention.cadence"]
    assert 3 == settings(home / ".thence")["session_memory.retention.raw_max_age_days"]


def test_on_hook_that_the_user_wrote_stays_when_hooks_go(home: Path) -> None:
    """It is not ours to take out."""
    settle(home, "on-hook")
    before = tree(home / ".thence")
    run("install", "claude", "--yes")
    run("uninstall", "claude", "--yes")

    assert before == tree(home / ".thence")


def test_status_and_doctor_say_what_was_heard_and_not_stored(home: Path) -> None:
    """Hooks that nobody sweeps for capture nothing, and that is said."""
    run("install", "claude", "--yes")
    (home / ".thence/config.toml").unlink()
    hear(home, "claude", "a", "b", "c")
    doctor = CliRunner().invoke(thence, ["doctor"], env={"COLUMNS": "200"})

    assert "▲ Claude Code" in run("status", "claude").output
    assert "reported 3, imported 0" in run("status", "claude").output
    assert "reported 3, imported 0" in doctor.output
    assert "thence hook install claude" in doctor.output


def test_a_sweep_that_never_came_is_said(home: Path) -> None:
    """With hooks that start sweeps, nudges that are old show that none ran."""
    run("install", "grok", "--yes")
    (home / ".thence/sweep.due").touch(0o600)  # as if one were waiting
    hear(home, "grok", "a")
    (nudge,) = (home / ".thence/queue").iterdir()
    os.utime(nudge, (1, 1))
    doctor = CliRunner().invoke(thence, ["doctor"], env={"COLUMNS": "200"})

    assert "reported 1, imported 0: the import is late" in run("status", "grok").output
    assert "thence sweep" in doctor.output
