"""Nudges that hooks left: which sessions of which agents went on.

A hook writes one small file into `queue/`; a sweep takes each by renaming it before it reads it,
so that none is taken twice and one that is written meanwhile stays for the next sweep. What a
sweep that was killed had taken is taken again. Nothing a nudge says is trusted: of a path only an
agent's own reader decides whether it is a session.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from thence import system
from thence.agents import Adapter

FOLDER = "queue"
TAKEN_PREFIX = ".taken-"
LAST_NUDGES_FOLDER = "hooks"
"""Folder of the last nudge of each agent."""
MAX_NUDGE_BYTES = 64 << 10
"""Bytes of a nudge; what is larger is none."""


class Nudge(msgspec.Struct, frozen=True):
    """What a hook says."""

    agent: str
    session: str = ""
    transcript_path: str | None = None
    event: str = ""
    ts: str | float | None = None


_NUDGE = msgspec.json.Decoder(Nudge)


class NudgeBatch(msgspec.Struct):
    """The nudges of one sweep, one per session, and the files they were read from."""

    nudges: list[Nudge]
    files: list[Path]

    def done(self) -> None:
        """Remove what was taken: the sessions it was about are kept.

        The last of each agent stays elsewhere, to tell when its hook was last heard.
        """
        for path in self.files:
            _heard(path)
            path.unlink(missing_ok=True)

    def roots(self, known: Mapping[str, Adapter]) -> Iterator[tuple[str, Path]]:
        """Yield the folders of agents in which the sessions lie that were nudged about."""
        for nudge in self.nudges:
            if nudge.agent not in known or not nudge.transcript_path:
                continue
            source = known[nudge.agent].at(Path(nudge.transcript_path))
            if source is not None and source.root:
                yield nudge.agent, Path(source.root)


def take(home: Path, *, only: Collection[str] = ()) -> NudgeBatch:
    """Take the nudges that are there; with `only`, those of other agents are left there."""
    nudges: dict[tuple[str, str], Nudge] = {}
    files: list[Path] = []
    for path in _waiting_files(home / FOLDER):
        if (mine := _claim(path)) is None:
            continue
        nudge = _read(mine)
        if nudge is not None and only and nudge.agent not in only:
            mine.rename(mine.with_name(mine.name.removeprefix(TAKEN_PREFIX)))
            continue
        files.append(mine)
        if nudge is not None:
            before = nudges.get((nudge.agent, nudge.session))
            if before is None or nudge.transcript_path:  # not every hook is told the path
                nudges[nudge.agent, nudge.session] = nudge
    return NudgeBatch(list(nudges.values()), files)


def waiting_nudges(home: Path) -> Iterator[tuple[Nudge, float]]:
    """Yield the nudges that no sweep has finished with, and when each was written."""
    for path in _waiting_files(home / FOLDER):
        nudge = _read(path)
        with contextlib.suppress(OSError):
            if nudge is not None:
                yield nudge, path.stat().st_mtime


def last_heard(home: Path) -> dict[str, datetime]:
    """Return when the hook of each agent last left a nudge, taken or not, the latest first."""
    last: dict[str, float] = {}
    for folder in (LAST_NUDGES_FOLDER, FOLDER):
        with contextlib.suppress(OSError):
            for entry in os.scandir(home / folder):
                agent = entry.name.removeprefix(TAKEN_PREFIX).partition("-")[0]
                if agent.isalnum():
                    written = entry.stat(follow_symlinks=False).st_mtime
                    last[agent] = max(last.get(agent, 0), written)
    latest = sorted(last.items(), key=lambda pair: -pair[1])
    return {agent: datetime.fromtimestamp(seen, UTC) for agent, seen in latest}


def _heard(path: Path) -> None:
    """Let a nudge take the place of an earlier one as its agent's last."""
    agent = path.name.removeprefix(TAKEN_PREFIX).partition("-")[0]
    last = path.parent.parent / LAST_NUDGES_FOLDER / agent
    with contextlib.suppress(OSError):  # only for the eye: when an agent was last heard of
        if not agent.isalnum() or (last.exists() and last.stat().st_mtime > path.stat().st_mtime):
            return
        last.parent.mkdir(exist_ok=True, mode=0o700)
        path.replace(last)


def _waiting_files(folder: Path) -> list[Path]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return []
    names = sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
    return [folder / name for name in names if not name.endswith(".tmp")]


def _claim(path: Path) -> Path | None:
    """Make a file ours; None when somebody else was quicker."""
    if path.name.startswith(TAKEN_PREFIX):
        return path  # of a sweep that was killed: only one sweeps at a time
    mine = path.with_name(f"{TAKEN_PREFIX}{path.name}")
    try:
        path.rename(mine)
    except OSError:  # another sweep took it: one is enough
        return None
    return mine


def _read(path: Path) -> Nudge | None:
    """Read a nudge; None when it is none, whatever it is."""
    try:
        handle = system.open_file(path, os.O_RDONLY)
    except OSError:  # taken by another sweep between listing and opening
        return None
    try:
        return _NUDGE.decode(os.read(handle, MAX_NUDGE_BYTES + 1))
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        os.close(handle)
