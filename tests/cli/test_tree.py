"""`thence tree`: one session drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.desk import ALERTS, WINDOWS, Desk, alerts, windows
from thence.cli.terminal import columns


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A session with a branch left behind, kept."""
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(windows())
    desk.sweep()
    return desk


def test_line_branches_and_sums(desk: Desk) -> None:
    """Turns at the left, the discarded branch where it parted, the money of each part last."""
    ran = desk.run("tree", "7f3a")
    start = ran.lines.index("") + 1
    marks = [line[2:7].rstrip() for line in ran.lines[start:-2]]
    branch = ran.lines[start + 2]

    assert ran.lines[0].startswith("Hourly windows lose an hour")
    assert " · $0.37 · " in ran.lines[1]
    assert ["●   1", "├─╮", "│ ╳", "●   2", "●"] == marks
    assert "try it with fold=1 then" in branch
    assert "discarded" in branch
    assert "done" in ran.lines[start + 4]
    assert "live 12 events $0.23 · discarded 2 events $0.14 · 1 internal" == ran.lines[-1]
    assert 80 >= max(map(columns, ran.lines))


def test_paths_are_told_from_the_sessions_own_folder(desk: Desk) -> None:
    """What every line would begin with is left out."""
    ran = desk.run("tree", "7f3a", "--all", columns=120)

    assert "edited windows.py" in ran.out
    assert "/home/dev/tidepool" not in ran.out


def test_object_names_the_events(desk: Desk) -> None:
    """Branches, turns and ties by the ids of their events."""
    tree = desk.run("tree", WINDOWS, "--json").json

    assert [1, 2] == [turn["number"] for turn in tree["turns"]]
    assert ["dead"] == [branch["state"] for branch in tree["branches"]]
    assert 2 == len(tree["branches"][0]["events"])
    assert 0.14 == round(tree["branches"][0]["usd"], 2)


def test_compaction_subagents_and_orphans_are_drawn(desk: Desk) -> None:
    """What a session was summed up to, who helped, what never came back."""
    script = alerts()
    script.boundary(compactMetadata={"trigger": "manual", "preTokens": 1000})
    script.user("This session is being continued: all is well.", isCompactSummary=True)
    script.user("Count the files with a helper")
    block = {"type": "tool_use", "id": "t1", "name": "Task", "input": {"prompt": "count them"}}
    script.reply([block], stop="tool_use")
    folder = desk.write_claude(script)
    helper = folder / ALERTS / "subagents" / "agent-h1.jsonl"
    helper.parent.mkdir(parents=True)
    side = alerts()
    side.records = [
        {**record, "isSidechain": True, "agentId": "h1", "uuid": f"h{at}", "parentUuid": None}
        for at, record in enumerate(side.records)
    ]
    helper.write_bytes(side.data)
    desk.sweep()

    out = desk.run("tree", "a41e").out

    assert "  ═     compacted, 1 prompt, 2 events" in out
    assert "  ├─▸   h1  Alerts fire twice" in out
    assert "orphaned" in out
    assert "stopped in the middle of a turn" in out


def test_files_are_drawn_too(desk: Desk) -> None:
    """Without a store, by the path of a session's file."""
    path = desk.claude / "projects" / "-home-dev-project" / f"{WINDOWS}.jsonl"

    assert desk.run("tree", "7f3a").lines[2:] == desk.run("tree", str(path)).lines[2:]


def test_every_event_on_demand(desk: Desk) -> None:
    """With --all what was done in a turn stands below its prompt."""
    assert "edited" in desk.run("tree", "7f3a", "--all").out


def test_unknown_and_ambiguous_ids(desk: Desk) -> None:
    """Exit code 10, and what to type instead."""
    desk.write_claude(alerts("7f90be11-0000-4000-8000-000000000005"))
    desk.sweep()
    unknown, several = desk.run("tree", "zzz"), desk.run("tree", "7f")

    assert (10, 10) == (unknown.code, several.code)
    assert "no session id starts with 'zzz'" in unknown.err
    assert "7f90be11" in several.err


@pytest.mark.few(3)
@pytest.mark.parametrize("room", [40, 60, 120])
def test_any_width(desk: Desk, room: int) -> None:
    """No line is longer than the screen."""
    assert room >= max(map(columns, desk.run("tree", "7f3a", "--all", columns=room).lines))
