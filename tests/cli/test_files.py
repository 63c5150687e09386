"""`thence files` and `thence history`: what was touched and typed, over all sessions."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from tests.agents.transcripts import Script
from tests.cli.desk import ALERTS, WINDOWS, Desk, alerts, windows
from thence.cli import picker, wiring
from thence.cli.terminal import columns


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Sessions of two agents, kept."""
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(windows())
    desk.write_claude(alerts(), ago=timedelta(days=2))
    desk.write_codex()
    desk.sweep()
    return desk


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "path", ["windows.py", "./windows.py", "tidepool/windows.py", "/home/dev/tidepool/windows.py"]
)
def test_sessions_that_touched_a_file_and_why(desk: Desk, path: str) -> None:
    """Known by its name, by the end of its path or by all of it."""
    rows = desk.run("files", path, "--json").json

    assert [f"claude:{WINDOWS}"] == [row["session_uid"] for row in rows]
    assert [(1, 1)] == [(file["edits"], file["reads"]) for file in rows[0]["files"]]
    assert [
        ("The hourly tide table loses 02:00 to 03:00 on 29 March. Fix it.", 0, 1),
        ("Cut the windows in UTC instead.", 1, 0),
    ] == [(why["prompt"], why["edits"], why["reads"]) for why in rows[0]["why"]]


def test_screen(desk: Desk) -> None:
    """The prompt for which it was changed stands below its session."""
    ran = desk.run("files", "windows.py")

    assert "1 session touched windows.py, 1 edit" == ran.lines[0]
    assert ran.lines[2].startswith("  ■ 7f3a91c2  Hourly windows")
    assert re.match(r"      e\w{6} › Cut the windows in UTC instead\.", ran.lines[3])
    assert ran.lines[3].endswith("1 edit")


def test_other_files_and_other_sessions_are_not_told(desk: Desk) -> None:
    """A name that ends alike is another file."""
    assert ["no stored session touched dows.py"] == desk.run("files", "dows.py").lines
    assert [] == desk.run("files", "windows.py", "--agent", "codex", "--json").json
    assert [] == desk.run("files", "windows.py", "--since", "1h", "--json").json


def test_evicted_sessions_are_told_by_their_digest(desk: Desk) -> None:
    """That it was touched is kept; for which prompt is not."""
    with wiring.store() as store:
        store.remove([f"claude:{WINDOWS}"], why={})
    rows = desk.run("files", "windows.py", "--edited", "--json").json

    assert [(f"claude:{WINDOWS}", [])] == [(row["session_uid"], row["why"]) for row in rows]


def test_failed_edits_are_no_reason(desk: Desk) -> None:
    """A call that went wrong changed nothing."""
    script = alerts("fa000000-0000-4000-8000-00000000000f")
    for number, wrong in enumerate((True, False)):
        arguments = {"file_path": "/p/one.py", "old_string": "a", "new_string": "b"}
        script.call(f"f{number}", "Edit", **arguments)
        script.result(f"f{number}", "String to replace not found" if wrong else "ok", wrong=wrong)
    desk.write_claude(script)
    desk.sweep()

    assert [1] == [why["edits"] for why in desk.run("files", "one.py", "--json").json[0]["why"]]


# -- history --------------------------------------------------------------------------------


def test_edits_that_nobody_knows_the_end_of_are_no_reason(desk: Desk) -> None:
    """The list and the reasons count the same edits: a call without a result is none."""
    script = Script("5b0d1c2e-0000-4000-8000-000000000008", "h", cwd="/home/dev/hail")
    for number in (1, 2):
        script.user(f"Mend it, part {number}.")
        script.call(f"c{number}", "Edit", file_path="hail.py", old_string="x", new_string="y")
        if number == 1:
            script.result("c1", "edited")
    desk.write_claude(script)
    desk.sweep()
    [row] = desk.run("files", "hail.py", "--json").json

    assert 1 == sum(file["edits"] for file in row["files"])
    assert ["Mend it, part 1."] == [why["prompt"] for why in row["why"]]


def typed(desk: Desk, *texts: str) -> None:
    """Let the agent's own history hold prompts."""
    lines = [
        json.dumps(
            {"display": text, "timestamp": 1_767_225_600_000 + at, "project": "/home/dev/quayside"}
        )
        for at, text in enumerate(texts)
    ]
    (desk.claude / "history.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_prompts_of_all_agents_are_one_list(desk: Desk) -> None:
    """The newest first, from sessions and from the agents' own histories."""
    typed(desk, "an older thought", "only in the history")
    prompts = desk.run("history", "--json").json

    assert [
        ("claude", "Cut the windows in UTC instead."),
        ("claude", "try it with fold=1 then"),
        ("claude", "The hourly tide table loses 02:00 to 03:00 on 29 March. Fix it."),
        ("codex", "Speed up the yearly dump"),
        ("claude", "Alerts fire twice at the clock change"),
        ("claude", "only in the history"),
        ("claude", "an older thought"),
    ] == [(prompt["agent"], prompt["text"]) for prompt in prompts]
    assert (WINDOWS, ALERTS) == (prompts[0]["session"], prompts[4]["session"])


def test_prompt_that_stands_in_both_places_is_one(desk: Desk) -> None:
    """One that was typed again is there as often as it was typed."""
    typed(desk, "Alerts fire twice at the clock change", "twice", "twice")
    texts = [prompt["text"] for prompt in desk.run("history", "--json").json]

    assert (2, 1) == (texts.count("twice"), texts.count("Alerts fire twice at the clock change"))


def test_repeated_prompts_of_a_session_stay(desk: Desk) -> None:
    """Typed three times in one session, known to the agent's own history as well."""
    log = Script("c0ffee00-0000-4000-8000-000000000003", "g")
    for _ in range(3):
        log.user("go on")
        log.say("Went on.")
    desk.write_claude(log)
    desk.sweep()
    alone = [prompt["text"] for prompt in desk.run("history", "--json").json]
    typed(desk, "go on", "go on", "go on")
    both = [prompt["text"] for prompt in desk.run("history", "--json").json]

    assert (3, 3) == (alone.count("go on"), both.count("go on"))


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["FOLD=1"], ["try it with fold=1 then"]),
        (["--prefix", "speed"], ["Speed up the yearly dump"]),
        (["--prefix", "yearly"], []),
        (["--agent", "codex"], ["Speed up the yearly dump"]),
        (["--project", "lumen"], ["Alerts fire twice at the clock change"]),
        (["-n", "1"], ["Cut the windows in UTC instead."]),
    ],
)
def test_history_is_searched(desk: Desk, options: list[str], expected: list[str]) -> None:
    """By any part of a text, in any case."""
    assert expected == [prompt["text"] for prompt in desk.run("history", "--json", *options).json]


def test_history_screen(desk: Desk) -> None:
    """One line each; no matches is no error."""
    ran = desk.run("history")

    assert ["›", "3", "h", "Claude", "Code", "tidepool", "Cut"] == ran.lines[0].split()[:7]
    assert 80 >= max(map(columns, ran.lines))
    assert 44 >= max(map(columns, desk.run("history", columns=44).lines))
    assert ["no prompt found"] == desk.run("history", "xylophone").lines


def test_history_before_the_first_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agents' own files are enough, and nothing is made."""
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(alerts())
    typed(desk, "hello there")

    assert ["hello there"] == [prompt["text"] for prompt in desk.run("history", "--json").json]
    assert not desk.home.exists()


def test_secrets_in_a_history_are_not_printed(desk: Desk) -> None:
    """The agent's file holds them; the screen does not."""
    secret = "ghp_" + "x1Y2z3W4v5U6t7S8r9Q0p1O2n3M4l5K6j7H8"
    typed(desk, f"push with {secret}")
    os.utime(desk.claude / "history.jsonl")

    assert secret not in desk.run("history").out


def test_a_prompt_is_chosen_and_printed_whole(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with the Up-arrow: the newest first, and all of what was typed comes out."""
    offered: list[picker.PickerChoice] = []

    def pick(choices: Sequence[picker.PickerChoice]) -> int:
        offered.extend(choices)
        return 1

    monkeypatch.setattr(picker, "possible", lambda: True)
    monkeypatch.setattr(picker, "pick", pick)
    ran = desk.run("history", "--pick")

    assert "Cut the windows in UTC instead." in offered[0].line
    assert ["try it with fold=1 then"] == ran.lines


def test_nobody_is_asked_to_choose_without_a_terminal(desk: Desk) -> None:
    """A program is told so."""
    ran = desk.run("history", "--pick")

    assert (2, "") == (ran.code, ran.out)
    assert "terminal" in ran.err
