"""`thence` alone: where you stand, and the first screen before anything is kept."""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from tests.cli.desk import ALERTS, WINDOWS, Desk, alerts, windows
from thence.cli.home import spark
from thence.cli.terminal import columns


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine with sessions of two agents, nothing kept yet."""
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(windows(), ago=timedelta(seconds=30))
    desk.write_codex()
    return desk


def runs(desk: Desk, session: str, **fields: str) -> None:
    """Let the agent say that this very process is at a session."""
    registry = desk.claude / "sessions"
    registry.mkdir(exist_ok=True)
    body = {"pid": os.getpid(), "sessionId": session, "status": "busy", **fields}
    (registry / f"{session}.json").write_text(json.dumps(body), encoding="utf-8")


def test_first_screen_says_what_it_found_and_would_do(desk: Desk) -> None:
    """Before anything is written, and without writing anything."""
    ran = desk.run()

    assert 0 == ran.code
    assert "No sessions stored yet. Found here:" == ran.lines[0]
    assert ["Claude", "Code", "1", "session"] == ran.lines[2].split()[:4]
    assert "~/.claude" in ran.lines[2]
    assert "Nothing leaves this machine." in ran.out
    assert any(line.startswith("  thence sweep ") for line in ran.lines)
    assert 80 >= max(map(columns, ran.lines))
    assert not desk.home.exists()


def test_first_screen_warns_of_what_is_deleted_soon(desk: Desk) -> None:
    """That is the reason to sweep today."""
    desk.write_claude(alerts(), ago=timedelta(days=29))

    assert "1 session will be deleted by Claude Code within a week." in desk.run().lines
    assert 1 == desk.run("--json").json["at_risk"]


def test_first_screen_of_a_machine_without_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is still something to try."""
    ran = Desk(tmp_path, monkeypatch).run()

    assert "No sessions stored yet." == ran.lines[0]
    assert "thence show --sample" in ran.out
    assert "not found (looked in ~/.grok)" in ran.out


def test_hooks_say_when_they_were_last_heard(desk: Desk) -> None:
    """Of nudges that were taken and of those that wait, the latest of each agent first."""
    desk.sweep()
    assert "hooks" not in desk.run().out
    for name, ago in (("hooks/codex", 41), ("hooks/claude", 200), ("queue/claude-x-1", 2)):
        path = desk.home / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
        os.utime(path, (time.time() - 60 * ago, time.time() - 60 * ago))
    hooks = desk.run("--json").json["hooks_heard"]

    assert "hooks  active: Claude Code 2 min ago, Codex 41 min ago" in desk.run().lines
    assert ["claude", "codex"] == [*hooks]


def test_quiet_day(desk: Desk) -> None:
    """Money by agent, the store against its caps, and what to type next."""
    desk.sweep()
    ran = desk.run()
    body = ran.out.partition("\n")[2]
    claude = next(line for line in ran.lines if line.startswith("    Claude Code"))

    assert ran.lines[0].startswith("Nothing needs you ")
    assert "running" not in body
    assert "at risk" not in body
    assert ["1", "$0.37"] == claude.split()[4:6]  # of the week: today may have just begun
    assert "█" in claude
    assert any("discarded branches" in line and "$0.14" in line for line in ran.lines)
    assert "last 7 days" in body
    assert "stored  2 sessions, transcripts " in body
    assert " of 4 GiB  " in body
    assert 5 == sum(line.startswith("  thence ") for line in ran.lines)
    assert 80 >= max(map(columns, ran.lines))


def test_what_waits_and_runs_comes_first(desk: Desk) -> None:
    """The first line counts it, with what it waits for; resume is the first thing to type."""
    desk.write_claude(alerts(), ago=timedelta(minutes=5))
    desk.sweep()
    runs(desk, WINDOWS, status="waiting", waitingFor="permission prompt")
    runs(desk, ALERTS)
    ran = desk.run()

    assert ran.lines[0].startswith("1 session needs you ")
    assert ran.lines[2].startswith("  ◆ 7f3a91c2  Claude Code  tidepool  permission prompt: Hourly")
    assert ran.lines[2].endswith(" now")
    assert "running" == ran.lines[4]
    assert ran.lines[5].startswith("  ● a41e90bd  Claude Code  lumen")
    assert ran.lines[5].endswith(" 5 min")


def test_at_risk_is_shown_with_the_days_that_are_left(desk: Desk) -> None:
    """Two are named, the rest is counted, and a sweep is what to type."""
    desk.sweep()
    for number in range(4):
        name = f"2b90f4d{number}-0000-4000-8000-000000000009"
        desk.write_claude(alerts(name), ago=timedelta(days=24 + number))
    ran = desk.run()
    at = ran.lines.index(
        "at risk: Claude Code deletes these soon, and thence has not stored them yet"
    )

    assert ran.lines[at + 1].startswith("  ▲ 2b90f4d3  Claude Code")
    assert ran.lines[at + 1].endswith("in 2 d")
    assert "    and 2 more within a week" == ran.lines[at + 3]
    assert "  thence sweep           store the 4 at risk, about 1 s" in ran.lines


def test_wide_screen_has_more(desk: Desk) -> None:
    """At 120 columns: branch, cost, two weeks."""
    desk.sweep()
    runs(desk, WINDOWS)
    ran = desk.run(columns=120)

    assert "fix/dst-gap" in ran.out
    assert "14 days" in ran.out
    assert 120 >= max(map(columns, ran.lines))


@pytest.mark.few(5)
@pytest.mark.parametrize("room", [40, 59, 80, 100, 200])
def test_no_line_is_longer_than_the_screen(desk: Desk, room: int) -> None:
    """On any terminal."""
    assert room >= max(map(columns, desk.run(columns=room).lines))
    desk.sweep()
    runs(desk, WINDOWS, status="waiting")

    assert room >= max(map(columns, desk.run(columns=room).lines))


def test_object_says_the_same(desk: Desk) -> None:
    """For status bars and scripts."""
    desk.sweep()
    runs(desk, WINDOWS)
    answer = desk.run("--json").json

    assert [WINDOWS] == [session["native_session_id"] for session in answer["running"]]
    assert ["claude", "codex"] == [agent["agent"] for agent in answer["spent"]]
    assert 0.37 == round(answer["spent"][0]["week"]["usd"], 2)
    assert 0.37 == round(sum(answer["spent"][0]["days"]), 2)
    assert 0 < answer["store"]["raw_bytes"] < answer["store"]["raw_soft_cap_bytes"]


def test_turn_of_an_agent_that_tells_nothing_goes_on_for_a_while(desk: Desk) -> None:
    """Codex keeps no registry: a turn that was just written is taken to be running."""
    path = desk.write_codex(ago=timedelta(seconds=5))
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(lines[:3]) + "\n", encoding="utf-8")  # the call has no result yet
    desk.sweep()

    assert [1] == [len(desk.run("--json").json["running"])]


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], ""), ([0, 0], "▁▁"), ([1, 7, 0], "▂█▁"), ([5], "█"), ([1, 1000], "▂█")],
)
def test_sparks(values: list[int], expected: str) -> None:
    """The largest is highest, nothing is lowest, and a little is more than nothing."""
    assert expected == spark(values)


def test_an_empty_store_shows_the_first_screen(desk: Desk) -> None:
    """`thence serve` makes a store before anything is imported: what to do is still said."""
    from thence.cli import wiring

    with wiring.store(must_exist=False):
        pass
    ran = desk.run()

    assert wiring.has_store()
    assert "No sessions stored yet. Found here:" == ran.lines[0]
    assert desk.run("--json").json["first_run"]


def test_amounts_are_explained(desk: Desk) -> None:
    """`+` and `?` have a word below the table, and only where they stand."""
    desk.sweep()
    ran = desk.run()
    marks = [word for line in ran.lines for word in line.split() if word.startswith("$")]

    assert any(mark.endswith("+") for mark in marks) == ("+ at least" in ran.out)
    assert ("?" in ran.out.split()) == ("? cost unknown" in ran.out)
