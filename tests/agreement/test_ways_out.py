"""All ways out of a store give equal numbers of a session: a number is decided once.

Mirrors no module: each number is asked at every door that gives it (`doors`): ls, show, digest,
cost, the page of the viewer, the API, the Parquet export, what agents are told.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.agents.transcripts import usage
from tests.agreement.conftest import Data, all_numbers
from tests.agreement.doors import DOORS, ticks_of
from tests.agreement.homes import Home
from tests.memory import logs
from tests.pace import one_quick
from tests.serve.conftest import House
from thence.agents.claude.sample import SampleTranscript

Answers = Mapping[str, Mapping[str, Mapping[str, Any]]]


@pytest.mark.parametrize("number", DOORS)
def test_every_door_gives_the_same(numbers: Answers, number: str) -> None:
    """For each session, whatever its agent, and of a fork, a rewind or a subagent too."""
    different = {
        uid: answers
        for uid, answers in numbers[number].items()
        if len({json.dumps(value) for value in answers.values()}) > 1
    }

    assert {} == different


def test_every_number_is_asked_at_every_door_that_gives_it(numbers: Answers, data: Data) -> None:
    """So that no comparison becomes empty when the words of a page change."""
    asked = {
        number: sorted({door for answers in sessions.values() for door in answers})
        for number, sessions in numbers.items()
    }

    assert {name: sorted(doors) for name, doors in DOORS.items()} == asked, data.folder


@pytest.mark.parametrize(
    ("ago", "outcome", "end"), [(20, "running", "running"), (9999, "unknown", "stopped")]
)
def test_an_open_turn_runs_by_every_door_or_by_none(
    tmp_path: Path, ago: int, outcome: str, end: str
) -> None:
    """Written just now it runs; hours later it has stopped, and nobody knows what became of it."""
    began = datetime.now(UTC) - timedelta(seconds=ago)
    log = SampleTranscript("open", tmp_path / "work", began)
    log.prompt("Run the job.")
    log.edit("job.py", "a", "b")
    log.call("Bash", {"command": "sleep 300"}, None)
    log.save(tmp_path / "claude")
    home = Home(tmp_path / ".thence", {"CLAUDE_CONFIG_DIR": str(tmp_path / "claude")})
    home.run("sweep")
    numbers = all_numbers(home)
    uid = f"claude:{log.id}"
    [file] = home.run("files", "job.py", "--json").json
    [recalled] = home.run("ask", "the job", "--json").json["sessions"]

    assert (outcome, outcome) == (file["outcome"], recalled["outcome"])
    assert dict.fromkeys(DOORS["outcome"], outcome) == numbers["outcome"][uid]
    assert dict.fromkeys(DOORS["end"], end) == numbers["end"][uid]
    assert dict.fromkeys(DOORS["running"], end == "running") == numbers["running"][uid]


def forked(tmp_path: Path) -> Home:
    """Return a home of a session and its fork, which did and left open what doors tell of."""
    first = logs.script(1, turns=3)
    first.note("ai-title", aiTitle="A lamp for the pier")
    fork = logs.fork(2, first, 6, turns=0)
    start = fork.records[-1]["uuid"]
    fork.user("Mend the lamp.", parentUuid=start)
    fork.say("A dark lamp.", usage=usage(900))
    fork.user("Mend the lamp with oil.", parentUuid=start)
    fork.call("e1", "Edit", file_path="/p/lamp.py", old_string="wax", new_string="oil")
    fork.result("e1", "The file /p/lamp.py has been updated.")
    todo = {"content": "Trim the wick", "status": "pending", "activeForm": "Trimming"}
    fork.call("t1", "TodoWrite", todos=[todo])
    fork.result("t1", "Todos have been modified")
    fork.say("It burns.", usage=usage(90))
    home = Home(tmp_path / ".thence", {"CLAUDE_CONFIG_DIR": str(tmp_path / "claude")})
    logs.write(tmp_path / "claude", first, fork)
    home.run("sweep")
    return home


@pytest.mark.parametrize("name", one_quick(["", "The lamp of the harbour"]))
def test_a_session_has_one_title_by_every_door(tmp_path: Path, name: str) -> None:
    """A fork has that of the session it goes on from, or the name that the user gave it."""
    home, uid = forked(tmp_path), f"claude:{logs.name(2)}"
    if name:
        home.run("name", uid, name)
    [title] = {row["title"] for row in home.run("ls", "--json").json if row["session_uid"] == uid}
    house = House(home.path.parent)
    with house.serving():
        page = house.ask("/costs?days=0").body.decode()
        account = house.ask(f"/api/sessions/{uid}").json["digest"]
        accounts = house.ask("/api/digests").json["digests"]
    house.close()
    [file] = home.run("files", "lamp.py", "--json").json
    [todo] = home.run("todos", "--json").json
    recalled = home.run("ask", "oil burns", "--json").json["sessions"]
    matches = home.run("search", "oil burns").out
    costs = home.run("cost", "--by", "session").out
    titles = [
        entry["title"] for entry in (file, todo, account, *accounts) if entry.get("uid", uid) == uid
    ]

    assert title == (name or "A lamp for the pier")
    assert [title] * 4 == titles
    assert [title] == [entry["title"] for entry in recalled if entry["session_uid"] == uid]
    assert [True] * 3 == [title[:40] in text for text in (matches, costs, page)]


def test_a_session_that_grows_has_the_same_numbers_by_every_door(tmp_path: Path) -> None:
    """Its digest is made again when it rests; what it says of the whole session does not wait."""
    log = SampleTranscript("grows", tmp_path / "work", datetime.now(UTC) - timedelta(seconds=99))
    log.prompt("Run the job.")
    log.call("Bash", {"command": "sleep 3"}, "ok")
    log.save(tmp_path / "claude")
    home = Home(tmp_path / ".thence", {"CLAUDE_CONFIG_DIR": str(tmp_path / "claude")})
    home.run("sweep")
    log.text("Done.")
    log.prompt("Once more.")
    log.save(tmp_path / "claude")
    home.run("sweep")

    assert {} == {
        number: doors
        for number, sessions in all_numbers(home).items()
        for doors in sessions.values()
        if len({json.dumps(value) for value in doors.values()}) > 1
    }


def test_an_export_of_a_log_bills_no_copies(tmp_path: Path) -> None:
    """The log of a fork has records of another session; each list says which."""
    home = forked(tmp_path)
    different = []
    for row in home.run("ls", "--json").json:
        metrics = home.run("export", row["session_uid"], "--as", "atif").json["final_metrics"]
        if ticks_of(row["usd"]["live"]) != ticks_of(metrics["total_cost_usd"]):
            different.append((row["session_uid"], row["usd"], metrics))

    assert [] == different


def test_a_removed_session_keeps_its_numbers(tmp_path: Path) -> None:
    """Its log, which is read again, says neither what is a copy in it nor how it was judged."""
    home = forked(tmp_path)
    before = all_numbers(home)
    home.run("store", "remove", *before["turns"], "--yes")
    after = all_numbers(home)
    different = {
        (number, uid, door): (was, now)
        for number, sessions in before.items()
        for uid, doors in sessions.items()
        for door, was in doors.items()
        if (now := after.get(number, {}).get(uid, {}).get(door, was)) != was
    }

    assert {} == different


@pytest.mark.parametrize("second", one_quick(["claude", "other"]))
def test_a_session_in_two_places_is_whole_by_every_door(tmp_path: Path, second: str) -> None:
    """Its log lies in two folders, of one home of the agent or of two: both are read again."""
    began = datetime.now(UTC) - timedelta(days=1)
    log = SampleTranscript("split", tmp_path / "work", began)
    log.prompt("Oil the lamp.")
    log.text("It burns.")
    path = log.save(tmp_path / "claude")
    start = path.read_text()
    log.prompt("Trim the wick.")
    log.edit("lamp.py", "wax", "oil")
    log.text("It is trimmed.")
    rest = log.save(tmp_path / "claude").read_text().removeprefix(start)
    path.write_text(start)
    target = tmp_path / second / "projects" / "elsewhere" / path.name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(rest)
    home = Home(tmp_path / ".thence", {"CLAUDE_CONFIG_DIR": str(tmp_path / "claude")})
    places = [f"--root=claude={tmp_path / name}" for name in ("claude", second)]
    home.run("sweep", *places)
    before = all_numbers(home)
    stored = home.run("show", log.id, "--json").json["events"]
    original = home.run("export", log.id, "--as", "messages").json
    home.run("store", "remove", log.id, "--yes")
    removed = home.run("show", log.id, "--json").json

    assert "It is trimmed." in json.dumps(original)
    assert [event["event_id"] for event in stored] == [e["event_id"] for e in removed["events"]]
    assert [] == removed["notices"]
    assert before == all_numbers(home)
