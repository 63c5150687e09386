"""The viewer from login on: a systemd user unit, or an agent of launchd, one per home."""

from __future__ import annotations

import sys
from typing import Final, Protocol

from thence import config
from thence.cli import launcher, scheduling
from thence.cli.file_changes import EditRefused
from thence.cli.scheduling import SchedulePlan

NAME: Final = "thence-serve"
LABEL: Final = "local.thence.serve"
RETRY_S: Final = 30
"""Seconds after which a viewer that failed is started again: another one may have ended."""


class Service(scheduling.Way, Protocol):
    """One way to have a program run from login on."""

    def start(self) -> SchedulePlan:
        """Plan how it comes."""

    def restart_command(self, pid: int) -> list[str] | None:
        """Return what starts it again if it runs as this process, else None."""


def service() -> Service:
    """Return the way that this machine knows."""
    if sys.platform == "darwin":
        return Launchd()
    if scheduling.has_systemd():
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


def _program() -> list[str]:
    return launcher.command(config.home(), "serve", "--service", "--no-open")


class SystemdService(scheduling.SystemdTimer):
    """A unit of this user."""

    plain_name = NAME
    kinds = ("service",)

    def start(self) -> SchedulePlan:
        """Plan the unit."""
        run = " ".join(scheduling.quote_word(word) for word in _program())
        # It fails for as long as another viewer of the home runs: no number of tries is too many.
        text = (
            "[Unit]\nDescription=Viewer of the sessions of coding agents\n"
            "StartLimitIntervalSec=0\n\n"
            f"[Service]\nType=exec\nWorkingDirectory=/\n{scheduling.unit_variables()}"
            f"ExecStart={run}\nRestart=on-failure\nRestartSec={RETRY_S}\nNice=5\n\n"
            "[Install]\nWantedBy=default.target\n"
        )
        return self.plan_start([self.edit("service", text)])

    def restart_command(self, pid: int) -> list[str] | None:
        """Return the command of systemd if this is the unit's process."""
        is_running = self.properties(self.started).get("MainPID") == str(pid)
        return ["systemctl", "--user", "restart", self.unit] if is_running else None


class Launchd(scheduling.LaunchdAgent):
    """An agent of launchd."""

    plain_label = LABEL

    def start(self) -> SchedulePlan:
        """Plan the file."""
        # Started again after a crash, and left alone when it ended by itself.
        keep = {"KeepAlive": {"SuccessfulExit": False}, "ThrottleInterval": RETRY_S}
        return self.plan_start(_program(), {"RunAtLoad": True, **keep})

    def restart_command(self, pid: int) -> list[str] | None:
        """Return the command of launchd if this is the agent's process."""
        is_running = f"pid = {pid}\n" in scheduling.output_of(["launchctl", "print", self.target])
        return ["launchctl", "kickstart", "-k", self.target] if is_running else None
