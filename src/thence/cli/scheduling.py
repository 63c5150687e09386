"""What the machine starts for us: a sweep every day, and the viewer from login on.

A sweep by a systemd timer, launchd, or a line for cron; the viewer by a systemd user unit or an
agent of launchd. What is ours is known by its names and by a mark at the end of a line; everything
else stays. Each home has its own: the default one has plain names, another one names with a hash of
its path. Launchd's files are made by its documentation; they are untested.
"""

from __future__ import annotations

import hashlib
import os
import plistlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol

from thence import config, system
from thence.agents.profiles import folder_variables
from thence.cli import launcher
from thence.cli.file_changes import Edit, EditRefused, body_of, carry_out

Every = Literal["hourly", "daily", "weekly"]
NAME: Final = "thence-sweep"
LABEL: Final = "local.thence.sweep"
MARK: Final = "# thence sweep"
VIEWER_NAME: Final = "thence-serve"
VIEWER_LABEL: Final = "local.thence.serve"
RETRY_S: Final = 30
"""Seconds after which a viewer that failed is started again: another one may have ended."""
PASSED_ON: Final = ("THENCE_HOME", "THENCE_STORE")
"""Variables that a sweep needs and a timer does not have, besides those of agents."""


class SchedulePlan(NamedTuple):
    """Changes of files, and what to run afterwards."""

    edits: list[Edit]
    commands: list[list[str]]

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        return any(edit.changes for edit in self.edits)


class UnitProblem(NamedTuple):
    """What is wrong with something that the machine is to start, and what to type."""

    words: str
    fix: str


class Way(Protocol):
    """One way to have the machine start a program."""

    name: str

    def problem(self) -> UnitProblem | None:
        """Return why it does not run; None where it does, or where nobody can be asked."""

    def uninstall(self) -> SchedulePlan:
        """Plan how it goes."""

    def carry_out(self, plan: SchedulePlan) -> None:
        """Do it."""

    def where(self) -> str | None:
        """Say where it stands; None when it does not."""


class Means(Way, Protocol):
    """One way to have something run again and again."""

    def install(self, every: Every) -> SchedulePlan:
        """Plan how it comes."""


def means(name: str | None = None) -> Means:
    """Return how this machine runs things again and again; by name, that one."""
    has_launchd = sys.platform == "darwin"
    if name == "launchd" and not has_launchd:
        raise EditRefused("launchd is there on macOS only", hint="leave out --by")
    if has_launchd and name in (None, "launchd"):
        return LaunchdTimer()
    ways: list[Means] = []
    if name != "cron" and (name == "systemd" or has_systemd()):
        ways.append(SystemdTimer())
    if name != "systemd" and shutil.which("crontab"):
        ways.append(Cron())
    if not ways:
        raise EditRefused(
            "this machine has neither systemd user units nor cron",
            hint='use thence sweep --watch, or cadence = "on-hook" in config.toml',
        )
    return ways[0]


def active_means() -> list[Means]:
    """Return the ways in which a sweep is scheduled now."""
    ways: list[Means] = [SystemdTimer(), LaunchdTimer()]
    if shutil.which("crontab"):
        ways.append(Cron())
    return [way for way in ways if way.where() is not None]


def home_suffix() -> str:
    """Return what the names of this home end with: nothing for the default one."""
    home = config.home().resolve()
    if home == (Path.home() / ".thence").resolve():
        return ""
    return f"-{hashlib.sha256(os.fsencode(home)).hexdigest()[:8]}"


def has_systemd() -> bool:
    """Whether a systemd for this user runs."""
    if not shutil.which("systemctl"):
        return False
    done = _run(["systemctl", "--user", "show-environment"])
    return done.returncode == 0


def _run(words: list[str], stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - systemctl and crontab, with our own words
        words, check=False, capture_output=True, text=True, input=stdin, timeout=30, cwd="/"
    )


def output_of(words: list[str]) -> str:
    """Return what a command prints; nothing where it fails or is not installed."""
    if not shutil.which(words[0]):
        return ""
    done = _run(words)
    return "" if done.returncode else done.stdout


def _program() -> list[str]:
    return launcher.command(config.home(), "sweep")


def variables() -> Iterator[tuple[str, str]]:
    """Yield the variables that a program started by the machine must be given."""
    names = (*PASSED_ON, *folder_variables())
    yield from ((name, os.environ[name]) for name in names if os.environ.get(name))


def unit_variables() -> str:
    """Return the lines of a unit that set variables."""
    return "".join(f"Environment={quote_word(f'{n}={v}')}\n" for n, v in variables())


def run_all(commands: list[list[str]], *, must: bool, hint: str = "run it yourself") -> None:
    """Run commands one after another; where they `must` go well, raise for one that does not."""
    for words in commands:
        done = _run(words)
        if done.returncode and must:
            raise EditRefused(
                f"{shlex.join(words)}: {done.stderr.strip()}", hint=f"the files are written; {hint}"
            )


class SystemdTimer:
    """A timer of this user."""

    name = "systemd"
    plain_name = NAME
    kinds: tuple[str, ...] = ("service", "timer")
    """The files of it; the last one is the unit that is started."""

    def __init__(self) -> None:
        config_home = os.environ.get("XDG_CONFIG_HOME")
        base = Path(config_home) if config_home else Path.home() / ".config"
        self._folder = base / "systemd" / "user"
        self.unit = self.plain_name if self._is_plain() else f"{self.plain_name}{home_suffix()}"
        self.started = f"{self.unit}.{self.kinds[-1]}"

    def _is_plain(self) -> bool:
        """Whether the unit without a suffix is of this home: earlier versions knew no suffix."""
        path = self._folder / f"{self.plain_name}.service"
        variable = quote_word(f"THENCE_HOME={config.home()}").encode()
        return path.is_file() and variable in path.read_bytes()

    def install(self, every: Every) -> SchedulePlan:
        """Plan the two units."""
        env = unit_variables()
        run = " ".join(quote_word(word) for word in _program())
        # 3 and 11: some lines were skipped, or another sweep runs. No failure of the unit.
        service = (
            "[Unit]\nDescription=Import the sessions of coding agents\n\n"
            f"[Service]\nType=oneshot\nWorkingDirectory=/\n{env}ExecStart={run}\n"
            "SuccessExitStatus=3 11\nNice=10\nIOSchedulingClass=idle\n"
        )
        # Persistent: what was missed while the machine was off is made up for.
        timer = (
            "[Unit]\nDescription=Import the sessions of coding agents\n\n"
            f"[Timer]\nOnCalendar={every}\nPersistent=true\nRandomizedDelaySec=10min\n\n"
            "[Install]\nWantedBy=timers.target\n"
        )
        return self.plan_start([self.edit("service", service), self.edit("timer", timer)])

    def plan_start(self, edits: list[Edit]) -> SchedulePlan:
        """Plan to write units and to start them, now and at every login."""
        reload = ["systemctl", "--user", "daemon-reload"]
        return SchedulePlan(
            edits, [reload, ["systemctl", "--user", "enable", "--now", self.started]]
        )

    def uninstall(self) -> SchedulePlan:
        """Plan to remove them."""
        edits = [self.edit(kind, None) for kind in self.kinds]
        stop = ["systemctl", "--user", "disable", "--now", self.started]
        return SchedulePlan(edits, [stop, ["systemctl", "--user", "daemon-reload"]])

    def edit(self, kind: str, text: str | None) -> Edit:
        """Plan the file of a unit."""
        path = self._folder / f"{self.unit}.{kind}"
        before = path.read_bytes() if path.exists() else None
        return Edit(path, before, None if text is None else text.encode())

    def carry_out(self, plan: SchedulePlan) -> None:
        """Write the units and tell systemd; what is to go is stopped first."""
        going = all(edit.after is None for edit in plan.edits)
        if going:
            _run(plan.commands[0])
        else:
            launcher.write(config.home())
        for edit in plan.edits:
            if edit.changes:
                carry_out(edit)
        hint = "run it yourself, or use --by cron"
        run_all(plan.commands[1:] if going else plan.commands, must=not going, hint=hint)

    def where(self) -> str | None:
        """Return the file of the unit that is started."""
        path = self._folder / self.started
        return str(path) if path.exists() else None

    def problem(self) -> UnitProblem | None:
        """Return what systemd says is wrong with the units."""
        state = self.properties(self.started)
        start = f"systemctl --user enable --now {self.started}"
        if state.get("UnitFileState") == "masked":
            unmask = f"systemctl --user unmask {self.started} && {start}"
            return UnitProblem(f"{self.started} is masked", unmask)
        if state.get("UnitFileState") == "disabled":
            return UnitProblem(f"{self.started} is disabled", start)
        if state.get("ActiveState") == "inactive":
            return UnitProblem(f"{self.started} is stopped", start)
        problems = (self._failure(f"{self.unit}.{kind}") for kind in self.kinds)
        return next((problem for problem in problems if problem), None)

    def _failure(self, unit: str) -> UnitProblem | None:
        state = self.properties(unit)
        logs = f"journalctl --user -u {unit} -n 5"
        if state.get("SubState") == "auto-restart":
            return UnitProblem(f"{unit} could not start; systemd tries again", logs)
        if state.get("ActiveState") == "failed":
            return UnitProblem(f"{unit} failed; see {logs}", f"systemctl --user restart {unit}")
        return None

    def properties(self, unit: str) -> dict[str, str]:
        """Return what systemd knows of a unit; nothing where it cannot be asked."""
        names = "ActiveState,SubState,UnitFileState,MainPID"
        lines = output_of(["systemctl", "--user", "show", "-p", names, unit]).splitlines()
        return {name: value for name, _, value in (line.partition("=") for line in lines)}


def quote_word(word: str) -> str:
    """Quote a word the way unit files want it."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


class LaunchdAgent:
    """A program that launchd starts for this user."""

    name = "launchd"
    plain_label: str

    def __init__(self) -> None:
        self.label = f"{self.plain_label}{home_suffix()}"
        self._path = Path.home() / "Library" / "LaunchAgents" / f"{self.label}.plist"
        self._domain = f"gui/{system.owner_id()}"

    def plan_start(self, program: list[str], settings: Mapping[str, Any]) -> SchedulePlan:
        """Plan the file, and to load it: launchd refuses one that is loaded already."""
        agent = {
            "Label": self.label,
            "ProgramArguments": program,
            "EnvironmentVariables": dict(variables()),
            "ProcessType": "Background",
            "WorkingDirectory": "/",
            **settings,
        }
        load = ["launchctl", "bootstrap", self._domain, str(self._path)]
        return SchedulePlan([self._edit(plistlib.dumps(agent))], [self._unload, load])

    def uninstall(self) -> SchedulePlan:
        """Plan to remove it."""
        return SchedulePlan([self._edit(None)], [self._unload])

    @property
    def target(self) -> str:
        """The name by which launchd is asked about it."""
        return f"{self._domain}/{self.label}"

    @property
    def _unload(self) -> list[str]:
        return ["launchctl", "bootout", self.target]

    def _edit(self, body: bytes | None) -> Edit:
        return Edit(self._path, body_of(self._path), body)

    def carry_out(self, plan: SchedulePlan) -> None:
        """Unload what is there, write or remove the file, and load it."""
        (edit,) = plan.edits
        unload, *load = plan.commands
        run_all([unload], must=False)  # fails where nothing is loaded
        if load:
            launcher.ensure(config.home())
        if edit.changes:
            carry_out(edit)
        run_all(load, must=True)

    def where(self) -> str | None:
        """Return the file."""
        return str(self._path) if self._path.exists() else None

    def problem(self) -> UnitProblem | None:
        """Return nothing: launchd is not asked."""
        return None


class LaunchdTimer(LaunchdAgent):
    """A sweep that launchd starts; one that was missed during sleep comes after it."""

    plain_label = LABEL

    def install(self, every: Every) -> SchedulePlan:
        """Plan the file."""
        times = {
            "hourly": {"Minute": 0},
            "daily": {"Hour": 12, "Minute": 0},
            "weekly": {"Weekday": 1, "Hour": 12, "Minute": 0},
        }
        settings = {"StartCalendarInterval": times[every], "LowPriorityIO": True}
        return self.plan_start(_program(), settings)


class Cron:
    """A line in the user's table."""

    name = "cron"

    def install(self, every: Every) -> SchedulePlan:
        """Plan the line."""
        env = "".join(f"{name}={shlex.quote(value)} " for name, value in variables())
        # A percent sign ends the command of a line.
        run = f"cd / && {env}{shlex.join(_program())}".replace("%", "\\%")
        line = f"@{every} {run} >/dev/null 2>&1 {MARK}{home_suffix()}\n"
        return SchedulePlan([self._edit(line)], [["crontab", "-"]])

    def uninstall(self) -> SchedulePlan:
        """Plan to take it out."""
        return SchedulePlan([self._edit("")], [["crontab", "-"]])

    def _edit(self, line: str) -> Edit:
        before = self._table()
        lines = before.splitlines(keepends=True)
        rest = "".join(entry for entry in lines if not self._is_ours(entry))
        gap = "\n" if line and rest and not rest.endswith("\n") else ""
        return Edit(Path("crontab"), before.encode(), f"{rest}{gap}{line}".encode())

    def _is_ours(self, entry: str) -> bool:
        """Whether a line is of this home; earlier versions marked those of all homes alike."""
        variable = f"THENCE_HOME={shlex.quote(str(config.home()))} ".replace("%", "\\%")
        marks = (f"{MARK}{home_suffix()}", *([MARK] if variable in entry else []))
        return entry.rstrip().endswith(marks)

    def _table(self) -> str:
        done = _run(["crontab", "-l"])
        return done.stdout if done.returncode == 0 else ""

    def carry_out(self, plan: SchedulePlan) -> None:
        """Hand the table over."""
        (edit,) = plan.edits
        body = (edit.after or b"").decode()
        if MARK in body:
            launcher.write(config.home())
        # A table in which nothing is left is removed, as it was before ours came.
        done = _run(["crontab", "-"], body) if body else _run(["crontab", "-r"])
        if done.returncode:
            raise EditRefused(f"crontab: {done.stderr.strip()}", hint="nothing was changed")

    def where(self) -> str | None:
        """Return our line of the table."""
        return next((line for line in self._table().splitlines() if self._is_ours(line)), None)

    def problem(self) -> UnitProblem | None:
        """Return nothing: cron says nothing of its lines."""
        return None


# -- the viewer -----------------------------------------------------------------------------


class Service(Way, Protocol):
    """One way to have a program run from login on."""

    def start(self) -> SchedulePlan:
        """Plan how it comes."""

    def restart_command(self, pid: int) -> list[str] | None:
        """Return what starts it again if it runs as this process, else None."""


def service() -> Service:
    """Return the way that this machine knows."""
    if sys.platform == "darwin":
        return Launchd()
    if has_systemd():
        return SystemdService()
    raise EditRefused("no systemd for users is here", hint="thence serve --background needs none")


def active_services() -> list[Service]:
    """Return the ways in which the viewer is started at login now."""
    ways: list[Service] = [SystemdService(), Launchd()]
    return [way for way in ways if way.where() is not None]


def restart_command(pid: int) -> list[str] | None:
    """Return what restarts the service that runs as a process; None if it is no service."""
    commands = (way.restart_command(pid) for way in active_services())
    return next((words for words in commands if words), None)


def _viewer_program() -> list[str]:
    return launcher.command(config.home(), "serve", "--service", "--no-open")


class SystemdService(SystemdTimer):
    """A unit of this user."""

    plain_name = VIEWER_NAME
    kinds = ("service",)

    def start(self) -> SchedulePlan:
        """Plan the unit."""
        run = " ".join(quote_word(word) for word in _viewer_program())
        # It fails for as long as another viewer of the home runs: no number of tries is too many.
        text = (
            "[Unit]\nDescription=Viewer of the sessions of coding agents\n"
            "StartLimitIntervalSec=0\n\n"
            f"[Service]\nType=exec\nWorkingDirectory=/\n{unit_variables()}"
            f"ExecStart={run}\nRestart=on-failure\nRestartSec={RETRY_S}\nNice=5\n\n"
            "[Install]\nWantedBy=default.target\n"
        )
        return self.plan_start([self.edit("service", text)])

    def restart_command(self, pid: int) -> list[str] | None:
        """Return the command of systemd if this is the unit's process."""
        is_running = self.properties(self.started).get("MainPID") == str(pid)
        return ["systemctl", "--user", "restart", self.unit] if is_running else None


class Launchd(LaunchdAgent):
    """An agent of launchd."""

    plain_label = VIEWER_LABEL

    def start(self) -> SchedulePlan:
        """Plan the file."""
        # Started again after a crash, and left alone when it ended by itself.
        keep = {"KeepAlive": {"SuccessfulExit": False}, "ThrottleInterval": RETRY_S}
        return self.plan_start(_viewer_program(), {"RunAtLoad": True, **keep})

    def restart_command(self, pid: int) -> list[str] | None:
        """Return the command of launchd if this is the agent's process."""
        is_running = f"pid = {pid}\n" in output_of(["launchctl", "print", self.target])
        return ["launchctl", "kickstart", "-k", self.target] if is_running else None
