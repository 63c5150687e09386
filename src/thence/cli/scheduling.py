"""A sweep every day, by the machine's own means: a systemd user timer, or a line for cron.

What is ours is known by its names and by a mark at the end of a line; everything else stays.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

from thence import config
from thence.agents.profiles import folder_variables
from thence.cli import launcher
from thence.cli.file_changes import Edit, EditRefused, carry_out

Every = Literal["hourly", "daily", "weekly"]
NAME: Final = "thence-sweep"
MARK: Final = "# thence sweep"
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


class Way(Protocol):
    """One way to have the machine start a program."""

    name: str

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
    ways: list[Means] = [SystemdTimer()]
    if shutil.which("crontab"):
        ways.append(Cron())
    return [way for way in ways if way.where() is not None]


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
    unit = NAME
    started = f"{NAME}.timer"
    """The unit that is started."""
    kinds: tuple[str, ...] = ("service", "timer")

    def __init__(self) -> None:
        config_home = os.environ.get("XDG_CONFIG_HOME")
        base = Path(config_home) if config_home else Path.home() / ".config"
        self._folder = base / "systemd" / "user"

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


def quote_word(word: str) -> str:
    """Quote a word the way unit files want it."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


class Cron:
    """A line in the user's table."""

    name = "cron"

    def install(self, every: Every) -> SchedulePlan:
        """Plan the line."""
        env = "".join(f"{name}={shlex.quote(value)} " for name, value in variables())
        # A percent sign ends the command of a line.
        run = f"cd / && {env}{shlex.join(_program())}".replace("%", "\\%")
        line = f"@{every} {run} >/dev/null 2>&1 {MARK}\n"
        return SchedulePlan([self._edit(line)], [["crontab", "-"]])

    def uninstall(self) -> SchedulePlan:
        """Plan to take it out."""
        return SchedulePlan([self._edit("")], [["crontab", "-"]])

    def _edit(self, line: str) -> Edit:
        before = self._table()
        lines = [
            entry for entry in before.splitlines(keepends=True) if not entry.rstrip().endswith(MARK)
        ]
        rest = "".join(lines)
        gap = "\n" if line and rest and not rest.endswith("\n") else ""
        return Edit(Path("crontab"), before.encode(), f"{rest}{gap}{line}".encode())

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
        lines = self._table().splitlines()
        return next((line for line in lines if line.rstrip().endswith(MARK)), None)
