"""Links in agents' folders: a whole folder on another disk is read, others are told of."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.desk import ALERTS, DUMP, WINDOWS, Desk, alerts, windows
from thence.cli import sample_machine


@pytest.mark.parametrize("agent", ["claude", "codex", "grok"])
def test_sessions_on_another_disk_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: str
) -> None:
    """The agent's folder of sessions is a link, as one makes it when a disk is full."""
    homes = sample_machine.write(
        tmp_path / "machine", datetime.now(UTC), ("claude", "codex", "grok")
    )
    desk = Desk(tmp_path / "desk", monkeypatch)
    root = getattr(homes, agent)
    name = "projects" if agent == "claude" else "sessions"
    direct = desk.run("sweep", "-n", "--root", f"{agent}={root}", "--json").json
    disk = tmp_path / "disk"
    disk.mkdir()
    (root / name).rename(disk / name)
    (root / name).symlink_to(disk / name)
    linked = desk.run("sweep", "--root", f"{agent}={root}", "--json").json

    assert direct["sources"] == linked["sources"] == linked["sessions_new"] > 0
    assert [] == linked["not_read"]


def test_links_that_are_not_followed_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a project, a log, a day of rollouts; what is behind them is not read."""
    desk = Desk(tmp_path, monkeypatch)
    folder = desk.write_claude(windows(), alerts())
    rollout = desk.write_codex()
    away = tmp_path / "away"
    away.mkdir()
    for path in (folder / f"{ALERTS}.jsonl", rollout.parent):
        path.rename(away / path.name)
        path.symlink_to(away / path.name)
    (folder.parent / "-linked").symlink_to(away, target_is_directory=True)
    (folder.parent / "-dangling").symlink_to(tmp_path / "nothing")
    (folder.parent / "-loop").symlink_to(folder.parent / "-loop")
    (folder / "notes").symlink_to(away)
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "pipe2.jsonl").symlink_to(folder / "pipe.jsonl")
    links = sorted(
        map(str, (folder / f"{ALERTS}.jsonl", rollout.parent, folder.parent / "-linked"))
    )
    ran = desk.run("sweep", columns=200)
    answer = desk.run("sweep", "--json").json
    listed = desk.run("ls", "--json").json
    looked = desk.run("doctor", "--json").json

    assert (0, "") == (ran.code, ran.err)
    assert ran.out.startswith("▲ Claude Code: 2 links are not read: links are not followed,")
    assert links == sorted(item["path"] for item in answer["not_read"])
    assert answer["not_read"] == looked["not_read"]
    assert [[WINDOWS]] == [[row["native_session_id"]] for row in listed]
    assert DUMP not in str(listed)
    assert ["warning"] * 2 == [
        finding["level"] for finding in looked["findings"] if finding["topic"] == "unread"
    ]
