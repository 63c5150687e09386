"""The viewer from login on: a systemd user unit, or an agent of launchd.

Launchd's file is made by its documentation; it is untested.
"""

from __future__ import annotations

import os
import plistlib
import sys
from pathlib import Path
from typing import Final, Protocol

from thence import config
from thence.cli import launcher, scheduling
from thence.cli.file_changes import Edit, EditRefused, body_of, carry_out
from thence.cli.scheduling import SchedulePlan

NAME: Final = "thence-serve"
LABEL: Final = "local.thence.serve"


class Service(scheduling.Way, Protocol):
    """One way to have a program run from login on."""

    def start(self) -> SchedulePlan:
        """Plan how it comes."""


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


def _program() -> list[str]:
    return launcher.command(config.home(), "serve", "--service", "--no-open")


class SystemdService(scheduling.SystemdTimer):
    """A unit of this user."""

    unit = NAME
    started = f"{NAME}.service"
    kinds = ("service",)

    def start(self) -> SchedulePlan:
        """Plan the unit."""
        run = " ".join(scheduling.quote_word(word) for word in _program())
        text = (
            "[Unit]\nDescription=Viewer of the sessions of coding agents\n\n"
            f"[Service]\nType=exec\nWorkingDirectory=/\n{scheduling.unit_variables()}"
            f"ExecStart={run}\nRestart=on-failure\nRestartSec=30\nNice=5\n\n"
            "[Install]\nWantedBy=default.target\n"
        )
        return self.plan_start([self.edit("service", text)])


class Launchd:
    """An agent of launchd."""

    name = "launchd"

    def __init__(self) -> None:
        self._path = Path.home() / "Library" / "LaunchAgents" / f"{LABEL}.plist"

    def start(self) -> SchedulePlan:
        """Plan the file."""
        body = plistlib.dumps(
            {
                "Label": LABEL,
                "ProgramArguments": _program(),
                "EnvironmentVariables": dict(scheduling.variables()),
                "RunAtLoad": True,
                # Started again after a crash, and left alone when it ended by itself.
                "KeepAlive": {"SuccessfulExit": False},
                "ProcessType": "Background",
                "WorkingDirectory": "/",
            }
        )
        return SchedulePlan(
            [self._edit(body)], [["launchctl", "bootstrap", _domain(), str(self._path)]]
        )

    def uninstall(self) -> SchedulePlan:
        """Plan to remove it."""
        return SchedulePlan([self._edit(None)], [["launchctl", "bootout", f"{_domain()}/{LABEL}"]])

    def _edit(self, body: bytes | None) -> Edit:
        return Edit(self._path, body_of(self._path), body)

    def carry_out(self, plan: SchedulePlan) -> None:
        """Write the file and tell launchd; what is to go is stopped first."""
        (edit,) = plan.edits
        if edit.after is None:
            scheduling.run_all(plan.commands, must=False)
        else:
            launcher.ensure(config.home())
        if edit.changes:
            carry_out(edit)
        if edit.after is not None:
            scheduling.run_all(plan.commands, must=True)

    def where(self) -> str | None:
        """Return the file."""
        return str(self._path) if self._path.exists() else None


def _domain() -> str:
    return f"gui/{os.getuid()}"
