"""`thence setup`: each change is shown, remembered, checked by doctor and undone exactly."""

from __future__ import annotations

import json
import os
import plistlib
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.desk import Desk
from thence.cli import launcher, scheduling

SETTINGS = b"""{
    "model": "opus",
    "hooks": {
        "Stop": [ {"hooks": [{"type": "command", "command": "say done"}]} ]
    },
    "mcpServers": {"db": {"command": "db"}},
    "env": {"A": "\\u00e9"}
}"""
CODEX = b"# mine\r\nmodel='o3'\nnotify = [ 'x',\n  \"y\" ] # bell\n[a]\nnotify=1"
FILES = {
    ".claude/settings.json": SETTINGS,
    ".claude.json": b'{"numStartups": 3}',
    ".codex/config.toml": CODEX,
    ".gemini/settings.json": SETTINGS,
    ".qwen/settings.json": b"{}",
    ".bashrc": b"alias ll='ls -l'",
}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine with four agents, systemd and cron, whose user wrote settings by hand."""
    made = Desk(tmp_path, monkeypatch)
    for name, body in FILES.items():
        path = made.user / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "systemctl").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/told\n')
    (tools / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("SHELL", "/bin/bash")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    return made


def files(desk: Desk) -> dict[str, bytes]:
    """Return every file of the user, but for the home of thence."""
    return {
        path.relative_to(desk.user).as_posix(): path.read_bytes()
        for path in desk.user.rglob("*")
        if path.is_file() and desk.home not in path.parents
    }


def setup_findings(desk: Desk) -> list[tuple[str, str]]:
    """Return what doctor says of the setup: level and words."""
    findings = desk.run("doctor", "--json").json["findings"]
    return [
        (finding["level"], finding["words"]) for finding in findings if finding["topic"] == "setup"
    ]


def test_a_dry_run_shows_every_change_and_writes_nothing(desk: Desk) -> None:
    """Hooks, brief, server, daily sweep and completion, each as a diff."""
    ran = desk.run("setup", "--dry-run")

    assert 0 == ran.code, ran
    assert "agents found: Claude Code, Codex" in ran.out
    for text in ("bin/thence nudge claude", "bin/thence brief --hook", "mcpServers", "OnCalendar"):
        assert text in ran.out
    assert f"+++ {desk.user}/.bashrc" in ran.out
    assert FILES == files(desk)
    assert not desk.home.exists()


def test_nobody_there_to_be_asked_means_nothing_is_done(desk: Desk) -> None:
    """A program says --yes."""
    ran = desk.run("setup", "--json")

    assert (2, FILES) == (ran.code, files(desk))
    assert "add --yes to confirm" in ran.err


def test_everything_comes_and_goes_byte_for_byte(desk: Desk) -> None:
    """After --remove all settings are as they were, and of ours nothing is left."""
    report = desk.run("setup", "--yes", "--json").json
    installed = files(desk)

    assert {"hooks", "brief", "mcp", "sweep", "completion"} == {
        change["part"] for change in report["changes"]
    }
    assert all(change["done"] and change["diff"] for change in report["changes"])
    assert FILES != installed
    assert [("ok", "hooks, brief, mcp, sweep, completion: as thence setup left them")] == (
        setup_findings(desk)
    )

    again = desk.run("setup", "--yes", "--json").json

    assert [] == again["changes"]
    assert installed == files(desk)

    desk.run("setup", "--remove", "--yes")

    assert FILES == files(desk)
    assert not (desk.home / "setup.json").exists()
    assert "none" == launcher.look(desk.home).state
    assert [] == setup_findings(desk)


def test_settings_changed_meanwhile_stay_valid_and_keep_the_change(desk: Desk) -> None:
    """Only our own lines go."""
    desk.run("setup", "--yes")
    path = desk.claude / "settings.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"later": [1]}))
    desk.run("setup", "--remove", "--yes")

    assert json.loads(SETTINGS) | {"later": [1]} == json.loads(path.read_bytes())


def test_what_the_user_installed_before_stays(desk: Desk) -> None:
    """Setup removes what setup installed."""
    desk.run("hook", "install", "claude", "--yes")
    before = (desk.claude / "settings.json").read_bytes()
    desk.run("setup", "--yes")
    desk.run("setup", "--remove", "--yes")

    assert json.loads(before) == json.loads((desk.claude / "settings.json").read_bytes())
    assert CODEX == (desk.codex / "config.toml").read_bytes()
    assert "current" == launcher.look(desk.home).state


def test_a_part_can_be_left_out(desk: Desk) -> None:
    """And comes with the next run."""
    desk.run("setup", "--yes", "--without", "brief", "--without", "sweep")

    assert "brief --hook" not in (desk.claude / "settings.json").read_text()

    report = desk.run("setup", "--yes", "--json").json

    assert {"brief", "sweep"} == {change["part"] for change in report["changes"]}


def test_each_part_is_asked_about(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A no leaves that part out and the others in; the service is a no unless one says yes."""
    asked: dict[str, bool] = {}

    def answer(question: str, *, default: bool) -> bool:
        asked[question] = default
        return default and "mcp" not in question

    monkeypatch.setattr("thence.cli.setup.click.confirm", answer)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    desk.run("setup")
    installed = json.loads((desk.home / "setup.json").read_bytes())["installed"]

    assert {"hooks", "brief", "sweep", "completion"} == set(installed)
    assert [False] == [default for question, default in asked.items() if "service" in question]
    assert FILES[".claude.json"] == (desk.user / ".claude.json").read_bytes()


def test_a_part_that_is_not_possible_says_why(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """In words and in the report; the other parts come, and a dry run ends with what to do."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    shown = desk.run("setup", "--dry-run")
    report = desk.run("setup", "--dry-run", "--json").json["changes"]

    for text in (
        "sweep: left out: this machine has neither systemd user units nor cron",
        "completion: left out: your shell is none that thence knows",
        "Install hooks, so that sessions are stored as they go on",
        "Nothing was changed.",
    ):
        assert text in shown.out
    assert {"sweep", "service", "completion"} == {c["part"] for c in report if "error" in c}
    assert {"hooks", "brief", "mcp"} == {c["part"] for c in report if "diff" in c}


def test_doctor_says_which_part_is_missing(desk: Desk) -> None:
    """Somebody took a hook out, and the timer; the fix is named."""
    desk.run("setup", "--yes")
    (desk.claude / "settings.json").write_bytes(SETTINGS)
    shutil.rmtree(desk.user / ".config/systemd")

    assert [
        ("warning", "hooks of claude is not there any more"),
        ("warning", "brief of claude is not there any more"),
        ("warning", "sweep of systemd is not there any more"),
    ] == setup_findings(desk)


def test_settings_that_cannot_be_read_do_not_keep_others_from_theirs(desk: Desk) -> None:
    """The part is left out and said so; the file stays."""
    (desk.claude / "settings.json").write_bytes(b"{ // mine\n}")
    report = desk.run("setup", "--yes", "--json").json
    errors = {change["part"] for change in report["changes"] if "error" in change}

    assert {"hooks", "brief"} == errors
    assert b"{ // mine\n}" == (desk.claude / "settings.json").read_bytes()
    assert "thence" in (desk.user / ".claude.json").read_text()


def test_uninstall_removes_what_setup_installed(desk: Desk) -> None:
    """Completion and all."""
    desk.run("setup", "--yes", "--service")
    desk.run("uninstall", "--yes")

    assert FILES == files(desk)
    assert not (desk.home / "setup.json").exists()


def test_the_service_is_a_unit_that_starts_the_launcher(desk: Desk, tmp_path: Path) -> None:
    """Only when it is asked for; systemd is told to start it, and to stop it."""
    desk.run("setup", "--yes")
    unit = desk.user / ".config/systemd/user/thence-serve.service"

    assert not unit.exists()

    desk.run("setup", "--yes", "--service")
    text = unit.read_text()

    assert f'ExecStart="{desk.home}/bin/thence" "serve" "--service" "--no-open"\n' in text
    assert "Restart=on-failure\nRestartSec=30\n" in text
    assert "StartLimitIntervalSec=0\n" in text
    assert "WantedBy=default.target\n" in text
    assert "--user enable --now thence-serve.service" in (tmp_path / "told").read_text()
    if checker := shutil.which("systemd-analyze", path="/usr/bin:/bin"):
        done = subprocess.run([checker, "--user", "verify", unit], check=False, capture_output=True)
        assert b"thence-serve" not in done.stderr

    desk.run("setup", "--remove", "--yes")

    assert not unit.exists()
    assert "--user disable --now thence-serve.service" in (tmp_path / "told").read_text()


def test_the_agent_of_launchd_starts_the_launcher(desk: Desk) -> None:
    """Its file is made and read back; launchd itself is not here."""
    (edit,) = scheduling.Launchd().start().edits
    made = plistlib.loads(edit.after or b"")

    assert [str(desk.home / "bin/thence"), "serve", "--service", "--no-open"] == (
        made["ProgramArguments"]
    )
    assert edit.path == desk.user / "Library/LaunchAgents/local.thence.serve.plist"


@pytest.fixture
def mac(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine with launchd, which notes what it is told and has nothing loaded."""
    tool = tmp_path / "tools" / "launchctl"
    tool.write_text(f'#!/bin/sh\necho "$1 $2" >> {tmp_path}/told\n[ "$1" != bootout ]\n')
    tool.chmod(0o755)
    monkeypatch.setattr("sys.platform", "darwin")
    return desk


def test_launchd_runs_the_viewer_and_the_daily_import(mac: Desk, tmp_path: Path) -> None:
    """An older one is unloaded before a new one is loaded; the user is told it is untested."""
    shown = mac.run("setup", "--yes", "--service").out
    folder, domain = mac.user / "Library/LaunchAgents", f"gui/{os.getuid()}"
    sweep = plistlib.loads((folder / "local.thence.sweep.plist").read_bytes())
    calls = (tmp_path / "told").read_text().splitlines()

    assert 2 == shown.count("by launchd (not tested on macOS)")
    assert {"Hour": 12, "Minute": 0} == sweep["StartCalendarInterval"]
    assert [
        f"bootout {domain}/local.thence.sweep",
        f"bootstrap {domain}",
        f"bootout {domain}/local.thence.serve",
        f"bootstrap {domain}",
    ] == calls

    mac.run("setup", "--remove", "--yes")

    assert [] == list(folder.iterdir())
    assert FILES == files(mac)


def test_launchd_can_be_asked_for_by_name(mac: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """As systemd and cron can; on another system it is refused, and nothing is written."""
    folder = mac.user / "Library/LaunchAgents"
    mac.run("schedule", "install", "--by", "launchd", "--yes")

    assert ["local.thence.sweep.plist"] == [path.name for path in folder.iterdir()]

    mac.run("schedule", "uninstall", "--yes")
    monkeypatch.setattr("sys.platform", "linux")

    refused = mac.run("schedule", "install", "--by", "launchd", "--yes")

    assert (1, []) == (refused.code, list(folder.iterdir()))
    assert "launchd is there on macOS only" in refused.err


def test_each_home_has_a_service_of_its_own(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second home does not overwrite the unit of the first, and removes its own."""
    desk.run("setup", "--yes", "--service")
    units = desk.user / ".config/systemd/user"
    first = {path.name: path.read_bytes() for path in units.iterdir()}
    monkeypatch.setenv("THENCE_HOME", str(tmp_path / "other"))

    assert [] == scheduling.active_services()

    desk.run("setup", "--yes", "--service")
    suffix = scheduling.SystemdService().unit.removeprefix("thence-serve")

    assert {
        *first,
        f"thence-serve{suffix}.service",
        f"thence-sweep{suffix}.service",
        f"thence-sweep{suffix}.timer",
    } == {path.name for path in units.iterdir()}
    assert scheduling.Launchd().label == f"local.thence.serve{suffix}"
    assert 9 == len(suffix)

    desk.run("setup", "--remove", "--yes")

    assert first == {path.name: path.read_bytes() for path in units.iterdir()}


STOPPED_UNITS = {
    "disabled": (
        "thence-serve.service",
        "UnitFileState=disabled ActiveState=active",
        ("thence-serve.service is disabled", "systemctl --user enable --now thence-serve.service"),
    ),
    "stopped": (
        "thence-sweep.timer",
        "UnitFileState=enabled ActiveState=inactive",
        ("thence-sweep.timer is stopped", "systemctl --user enable --now thence-sweep.timer"),
    ),
    "masked": (
        "thence-sweep.timer",
        "UnitFileState=masked ActiveState=inactive",
        (
            "thence-sweep.timer is masked",
            (
                "systemctl --user unmask thence-sweep.timer && "
                "systemctl --user enable --now thence-sweep.timer"
            ),
        ),
    ),
    "failed": (
        "thence-sweep.service",
        "UnitFileState=static ActiveState=failed",
        (
            "thence-sweep.service failed; see journalctl --user -u thence-sweep.service -n 5",
            "systemctl --user restart thence-sweep.service",
        ),
    ),
    "retried": (
        "thence-serve.service",
        "UnitFileState=enabled ActiveState=activating SubState=auto-restart",
        (
            "thence-serve.service could not start; systemd tries again",
            "journalctl --user -u thence-serve.service -n 5",
        ),
    ),
}


@pytest.mark.parametrize("case", STOPPED_UNITS)
def test_doctor_says_which_unit_does_not_run(desk: Desk, tmp_path: Path, case: str) -> None:
    """With what starts it; a unit that nobody can be asked about is not called stopped."""
    unit, state, expected = STOPPED_UNITS[case]
    desk.run("setup", "--yes", "--service")

    assert "ok" == setup_findings(desk)[0][0]

    (tmp_path / "tools" / "systemctl").write_text(
        f'#!/bin/sh\ncase "$*" in *show*{unit}) printf "%s\\n" {state};;'
        " *show*) echo ActiveState=active;; esac\n"
    )
    findings = desk.run("doctor", "--json").json["findings"]

    assert [("warning", *expected)] == [
        (finding["level"], finding["words"], finding["fix"])
        for finding in findings
        if finding["topic"] == "setup"
    ]

    (tmp_path / "tools" / "systemctl").write_text("#!/bin/sh\nexit 1\n")

    assert "ok" == setup_findings(desk)[0][0]


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"installed": {"hooks": [7], "x": 1}}'])
def test_a_broken_record_says_nothing(desk: Desk, body: bytes) -> None:
    """Nothing is removed for it, and nothing raises."""
    desk.home.mkdir(mode=0o700)
    (desk.home / "setup.json").write_bytes(body)

    assert 0 == desk.run("setup", "--remove", "--yes").code
    assert FILES == files(desk)


@pytest.mark.parametrize("rc", [None, b"", b"x=1\n", b"x=1"])
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_loaded_by_a_line_that_comes_and_goes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, shell: str, rc: bytes | None
) -> None:
    """The shell runs no program of ours to load it."""
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    monkeypatch.delenv("ZDOTDIR", raising=False)
    path = desk.user / f".{shell}rc"
    path.unlink(missing_ok=True)
    if rc is not None:
        path.write_bytes(rc)
    before = files(desk)
    others = [word for name in ("hooks", "brief", "mcp", "sweep") for word in ("--without", name)]
    desk.run("setup", "--yes", *others)

    assert before != files(desk) or shell != "fish"
    if shell != "fish":
        assert f"{desk.home}/completion.{shell}" in path.read_text()
        assert "_THENCE_COMPLETE" in (desk.home / f"completion.{shell}").read_text()
    if shell == "bash" and os.access("/bin/bash", os.X_OK):
        done = subprocess.run(
            ["/bin/bash", "-c", f". {path}; complete -p thence"], check=True, capture_output=True
        )
        assert b"_thence_completion" in done.stdout

    desk.run("setup", "--remove", "--yes")

    assert before == files(desk)
