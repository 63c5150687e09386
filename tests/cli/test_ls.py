"""`thence ls`: the list as people and programs read it."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

import pytest

from tests.agents.transcripts import Script
from tests.cli.desk import ALERTS, DUMP, TITLE, WINDOWS, Desk, alerts, windows
from thence.cli.terminal import columns


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Three sessions of two agents, kept."""
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(windows())
    desk.write_claude(alerts(), ago=timedelta(days=2, hours=1))
    desk.write_codex()
    desk.sweep()
    return desk


def test_list_at_80_columns(desk: Desk) -> None:
    """The newest first; mark, id, agent, age, title, cost; the sums last."""
    ran = desk.run("ls")
    first, second, third, sums, *_ = ran.lines

    assert 0 == ran.code
    assert ["7f3a91c2", "Claude", "Code", "3", "h"] == first.split()[1:6]
    assert TITLE[:30] in first
    assert ["01a00000-0000", "Codex", "1", "d"] == second.split()[1:5]
    assert ["a41e90bd", "Claude", "Code", "2", "d"] == third.split()[1:6]
    assert sums.startswith("3 sessions, $")
    assert "on discarded branches" in sums
    assert 80 >= max(map(columns, ran.lines))
    assert {80} == {columns(line) for line in (first, second, third)}


def test_list_at_120_columns_has_more_columns(desk: Desk) -> None:
    """Project, branch, a drawing, and what discarded branches cost."""
    head, first, *_ = desk.run("ls", columns=120).lines

    assert ["id", "agent", "age", "project", "branch", "title", "graph", "discarded", "cost"] == (
        head.split()
    )
    assert ["tidepool", "fix/dst-gap"] == first.split()[6:8]
    assert "╾┬╴" in first


def test_narrow_list_takes_two_lines_a_session(desk: Desk) -> None:
    """Under 60 columns the title has a line of its own."""
    lines = desk.run("ls", "-n", "1", columns=44).lines

    assert 44 >= max(map(columns, lines))
    assert lines[0].startswith("✗ Hourly windows")
    assert ["7f3a91c2", "Claude", "Code"] == lines[1].split()[:3]


def test_objects_are_sessions(desk: Desk) -> None:
    """Every field of a Session is there under its name, and what the list shows besides."""
    from thence.format.normal import Session

    rows = desk.run("ls", "--json").json

    assert set(Session.__struct_fields__) <= set(rows[0])
    assert [WINDOWS, DUMP, ALERTS] == [row["native_session_id"] for row in rows]
    assert (TITLE, "/home/dev/tidepool") == (rows[0]["title"], rows[0]["cwd"])
    assert rows[0]["usd"]["dead"] > 0


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--agent", "codex"], [DUMP]),
        (["--project", "TIDE"], [WINDOWS]),
        (["--model", "sonnet"], [WINDOWS, ALERTS]),
        (["--since", "1d"], [WINDOWS]),
        (["--sort", "oldest"], [ALERTS, DUMP, WINDOWS]),
        (["--sort", "cost", "-n", "1"], [WINDOWS]),
        (["--project", "nowhere"], []),
        (["--running"], []),
    ],
)
def test_filters(desk: Desk, options: list[str], expected: list[str]) -> None:
    """Each option leaves out what does not fit."""
    rows = desk.run("ls", "--json", *options).json

    assert expected == [row["native_session_id"] for row in rows]


def test_what_is_left_out_is_counted(desk: Desk) -> None:
    """The sums are of all that fit, and the last line says how to see the rest."""
    assert desk.run("ls", "-n", "1").lines[-1].endswith("2 more: -n 3")
    assert ["no matching sessions"] == desk.run("ls", "--agent", "grok").lines
    assert ["no session is running"] == desk.run("ls", "--running").lines


def test_running_sessions_are_those_with_a_process(desk: Desk) -> None:
    """The agent's own registry decides; this process is one that runs."""
    registry = desk.claude / "sessions"
    registry.mkdir()
    process = {
        "pid": os.getpid(),
        "sessionId": ALERTS,
        "status": "waiting",
        "cwd": "/home/dev/lumen",
    }
    process["waitingFor"] = "permission prompt"
    (registry / "1.json").write_text(json.dumps(process), encoding="utf-8")

    assert [(ALERTS, "waiting")] == [
        (row["native_session_id"], row["standing"])
        for row in desk.run("ls", "--running", "--json").json
    ]
    assert desk.run("ls", "--running").lines[0].startswith("  ◆ a41e90bd")


def test_at_risk_is_what_is_deleted_soon_and_not_kept(desk: Desk) -> None:
    """A session that was kept as it is, is not at risk; one that never was, is."""
    other = "2b90f4d1-0000-4000-8000-000000000009"
    desk.write_claude(alerts(other), ago=timedelta(days=27, hours=12))

    rows = desk.run("ls", "--at-risk", "--json").json
    ran = desk.run("ls", "--at-risk")

    assert [(other, False)] == [(row["native_session_id"], row["kept"]) for row in rows]
    assert 2 < rows[0]["deleted_in_days"] < 3
    assert ran.lines[0].startswith("  ▲ 2b90f4d1  Claude Code")
    assert ran.lines[0].endswith("in 2 d")
    assert [] == desk.run("ls", "--at-risk", "--agent", "codex", "--json").json
    desk.sweep()
    assert [] == desk.run("ls", "--at-risk", "--json").json


def test_forks_stand_below_their_origin(desk: Desk) -> None:
    """With --tree a session that comes from another one is drawn under it."""
    fork = "b20c77e1-0000-4000-8000-00000000000b"
    script = windows()
    script.session = fork
    script.records = [
        {**record, "sessionId": fork, "forkedFrom": {"sessionId": WINDOWS, "messageUuid": "w8"}}
        for record in script.records[1:9]
    ]
    last = script.records[-1]["uuid"]
    script.user("Try it with an ordinal key instead", uuid="own1", parentUuid=last)
    desk.write_claude(script, ago=timedelta(hours=1))
    desk.sweep()

    lines = desk.run("ls", "--tree").lines
    at = next(number for number, line in enumerate(lines) if "7f3a91c2" in line)

    assert ["└", "b20c77e1"] == lines[at + 1].split()[1:3]


def test_marks_without_utf8_are_ascii(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The columns stay where they are."""
    usual = desk.run("ls")
    monkeypatch.setenv("TERM", "dumb")
    plain = desk.run("ls")

    assert plain.out.isascii()
    assert list(map(len, usual.lines)) == list(map(len, plain.lines))


def test_terminal_of_another_encoding_gets_what_it_knows(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A title in Greek breaks nothing on a terminal of Latin letters."""
    desk.write_claude(alerts("cc000000-0000-4000-8000-00000000000c", "Ελλάδα"))
    desk.sweep()
    monkeypatch.setenv("LC_ALL", "en_US.ISO-8859-1")

    ran = desk.run("ls", encoding="iso-8859-1")

    assert 0 == ran.code
    assert "??????" in ran.out


def test_titles_cannot_command_the_terminal(desk: Desk) -> None:
    """What a log says is cleaned, on every line."""
    evil = "\x1b[2J\u202egnp.exe\nsecond line"
    desk.write_claude(alerts("ee000000-0000-4000-8000-00000000000e", evil))
    desk.sweep()

    out = desk.run("ls").out

    assert "\x1b" not in out
    assert "\u202e" not in out


def test_without_a_store_the_hint_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is made by asking."""
    desk = Desk(tmp_path, monkeypatch)

    ran = desk.run("ls")

    assert (10, "") == (ran.code, ran.out)
    assert "error: no sessions stored yet\nhint:  run thence sweep" in ran.err
    assert not desk.home.exists()


def test_list_and_status_are_what_people_try_first(desk: Desk) -> None:
    """`list` prints what `ls` does, `status` what `thence` alone does."""
    assert desk.run("ls").out == desk.run("list").out
    assert desk.run("status", "--json").json == desk.run("--json").json


def test_an_earlier_name_works_and_names_the_new_one(desk: Desk) -> None:
    """In one line on a terminal; programs see no notice."""
    on_terminal, in_a_pipe = desk.run("todos", tty=True), desk.run("todos")

    assert 0 == on_terminal.code == in_a_pipe.code
    assert "note: `thence todos` is now `thence ls --todos`\n" == on_terminal.err
    assert "" == in_a_pipe.err


def test_an_unknown_agent_is_named(desk: Desk) -> None:
    """A filter that can match nothing is an error, which names the nearest that there is."""
    ran = desk.run("ls", "--agent", "cluade")

    assert (2, "") == (ran.code, ran.out)
    assert "unknown agent 'cluade'" in ran.err
    assert "did you mean claude?" in ran.err


def test_the_sum_has_its_mark_whatever_is_listed(desk: Desk) -> None:
    """Usage that is missing in a session further down makes the sum a minimum, too."""
    script = Script("5e55105e-0000-4000-8000-000000000005", "s", cwd="/home/dev/tidepool")
    script.user("Compact it.")
    script.say()
    script.boundary()
    desk.write_claude(script, ago=timedelta(days=5))
    desk.sweep()
    rows = desk.run("ls", "--json").json
    few = desk.run("ls", "-n", "1").lines

    assert 1 == sum(bool(row["lower_bound"]) for row in rows)
    assert few[1].split(", ")[1].endswith("+")
    assert few[2].startswith("+ at least")
    screen = next(line for line in desk.run().lines if "Claude Code" in line and "$" in line)
    assert screen.split()[-2].endswith("+")
    spent = desk.run("cost", "--by", "agent")
    assert spent.lines[0].split()[0].endswith("+")
    assert all(line.rstrip().endswith("+") for line in spent.lines if "▲ claude" in line)
    parts = desk.run("cost", "--by", "agent", "--json").json
    assert [True] == [part["is_lower_bound"] for part in parts["parts"]]
    assert parts["total"]["is_lower_bound"]
