"""`thence decide` and `thence note`: files first, a hub only when one is set."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from tests.cli.conftest import Run
from tests.posts import listening
from thence.cli.file_changes import NotAnswered
from thence.cli.notes import write
from thence.cli.sample_machine import Homes, made_id
from thence.errors import BadConfig, SessionNotFound


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home."""
    monkeypatch.setenv("THENCE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("THENCE_NO_PERSISTENCE", raising=False)
    return tmp_path / "home"


def test_each_kind_is_a_file_of_event_lines(home: Path, run: Run) -> None:
    """What is written down is there, newest first, private, and apart from the other kind."""
    run("decide", "Cut", "windows in UTC")
    run("decide", "Labels stay local")
    run("note", "half done")
    path = home / "notes" / "decisions.jsonl"
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]

    assert ["Cut windows in UTC", "Labels stay local"] == [
        line["payload"]["text"] for line in lines
    ]
    assert {"decision"} == {line["type"] for line in lines}
    assert 0o600 == path.stat().st_mode & 0o777
    assert ["half done"] == [note["text"] for note in json.loads(run("note", "--json").stdout)]

    shown = run("decide").stdout

    assert shown.index("Labels stay local") < shown.index("Cut windows")


def test_notes_of_one_moment_stay_in_the_order_of_their_lines(home: Path, run: Run) -> None:
    """Their ids say nothing about it."""
    texts = [f"step {number}" for number in range(6)]
    for text in texts:
        run("note", text)
    path = home / "notes" / "notes.jsonl"
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    body = "".join(json.dumps(line | {"ts": lines[0]["ts"]}) + "\n" for line in lines)
    path.write_text(body, encoding="utf-8")

    assert texts == [note["text"] for note in json.loads(run("note", "--json").stdout)]


def test_a_damaged_line_costs_itself_only(home: Path, run: Run) -> None:
    """The others are still listed."""
    run("note", "one")
    with (home / "notes/notes.jsonl").open("ab") as file:
        file.write(b'{"torn\n')
    run("note", "two")

    assert ["one", "two"] == [note["text"] for note in json.loads(run("note", "--json").stdout)]


def test_a_decision_may_belong_to_a_session(looked_at: Homes, run: Run) -> None:
    """It names the session, and touches none of its files."""
    name = made_id("gauge-import")
    before = {path: path.read_bytes() for path in looked_at.claude.rglob("*.jsonl")}
    answer = json.loads(
        run("decide", "leave empty rows out", "--session", name[:8], "--json").stdout
    )

    assert f"claude:{name}" == answer["session_uid"]
    assert before == {path: path.read_bytes() for path in looked_at.claude.rglob("*.jsonl")}
    assert 1 == len(json.loads(run("decide", "--session", name[:8], "--json").stdout))
    with pytest.raises(SessionNotFound):
        run("decide", "x", "--session", "zzz")


def test_nothing_is_posted_unless_a_hub_is_set(home: Path, run: Run) -> None:
    """With a hub the line is posted after it is in the file; one that is down changes nothing."""
    with listening() as (address, posted):
        run("note", "before")

        assert [] == posted

        (home / "config.toml").write_text(f'[session_memory]\nhub = "{address}/x"\n')
        run("note", "after")

    assert ["after"] == [post.json["text"] for post in posted]

    result = run("note", "nobody listens")

    assert "did not accept it" in result.stderr
    assert 3 == len(json.loads(run("note", "--json").stdout))


def test_switched_off_is_off(home: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written where nothing may be kept."""
    monkeypatch.setenv("THENCE_NO_PERSISTENCE", "1")
    with pytest.raises(BadConfig, match="switched off"):
        run("note", "x")

    assert not home.exists()


# -- decisions and notes of a session --------------------------------------------------------


def test_a_decision_of_a_session_is_an_event_of_it_everywhere(machine: Homes, run: Run) -> None:
    """`show`, its events, `digest`, `search kind:decision` and the list all have it."""
    name = made_id("clock-change")
    run("decide", "leave empty rows out", "--session", name)
    run("note", "half done", "--session", name)
    events = json.loads(run("show", name, "--as", "events", "--json").stdout)["events"]
    own = [event for event in events if event.get("channel") == "notes"]
    digest = json.loads(run("digest", name, "--json").stdout)
    answer = json.loads(run("search", "kind:decision empty", "--json").stdout)

    assert [("decision", "leave empty rows out"), ("lifecycle", "half done")] == [
        (event["kind"], event["summary"]) for event in own
    ]
    assert "leave empty rows out" in run("show", name).stdout
    assert "leave empty rows out" in run("digest", name).stdout
    assert ["leave empty rows out", "half done"] == [note["text"] for note in digest["notes"]]
    assert f"claude:{name}" in {note["session_uid"] for note in answer["notes"]}
    assert f"session {name[:8]}" in run("decide").stdout


def test_digests_are_posted_to_the_hub_when_that_is_set(
    machine: Homes, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that is digested arrives there with what its digest says; else nothing does."""
    posted: list[dict[str, object]] = []
    monkeypatch.setattr("thence.cli.notes.post", posted.append)
    name = made_id("gauge-import")
    path = next(machine.claude.rglob(f"{name}.jsonl"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, lines[-1]]))
    run("sweep")

    assert [] == posted

    settings = '[session_memory]\nhub = "http://127.0.0.1:9/x"\nhub_digests = true\n'
    (machine.thence / "config.toml").write_text(settings)
    path.write_bytes(b"".join([*lines, lines[-1], lines[-1]]))
    run("sweep")

    assert [("digest", f"claude:{name}")] == [
        (message["type"], message["session_uid"]) for message in posted
    ]
    assert "outcome" in posted[0]


def test_money_of_a_digest_is_told_in_dollars_beside_its_unit(looked_at: Homes, run: Run) -> None:
    """`ticks` are 1e-10 dollars; `usd` stands beside them."""
    text = run("digest", made_id("gauge-import"), "--json").stdout
    costs: list[dict[str, float]] = []
    json.loads(text, object_hook=lambda part: costs.append(part) if "ticks" in part else part)

    assert costs
    assert all(cost["usd"] == cost["ticks"] / 1e10 for cost in costs)


def test_an_event_has_the_fields_of_the_contract_whatever_they_hold(
    looked_at: Homes, run: Run
) -> None:
    """0, false and null are written: no reader needs to know the defaults."""
    answer = json.loads(run("show", made_id("gauge-import"), "--as", "events", "--json").stdout)
    fields = {"seq", "ts", "kind", "role", "tool", "summary", "tokens", "is_sidechain"}

    assert all(fields <= event.keys() for event in answer["events"])


def test_a_decision_of_an_agent_is_confirmed_by_whoever_has_read_it(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is shown whole and clean; without a terminal or --yes nothing is confirmed."""
    text = "Paint it red.\n" + "wet " * 200 + "\x1b[2J\u202eend"
    write("decision", text, None, origin="mcp")
    run("decide", "My own.")
    uuid = next(n["uuid"] for n in json.loads(run("decide", "--json").stdout) if n["text"] == text)
    listed = run("decide").stdout
    with pytest.raises(NotAnswered):
        run("decide", "--confirm", uuid[:18])
    with pytest.raises(click.UsageError):
        run("decide", "--confirm", "zzz")
    with pytest.raises(click.UsageError):
        run("decide", "--confirm")
    done = run("decide", "--confirm", uuid[:18], "--yes")
    again = run("decide", "--confirm", uuid, "--yes")

    assert f"by an agent, unconfirmed  {uuid[:18]}" in listed
    assert "thence note --confirm ID" in listed
    assert 200 == done.stderr.count("wet")
    assert not {"\x1b", "\u202e"} & {*done.stderr}
    assert ("confirmed", "nothing to confirm") == (
        done.stdout.strip()[20:],
        again.stdout.strip()[20:],
    )
    assert [True, None] == [
        note.get("is_confirmed") for note in json.loads(run("decide", "--json").stdout)
    ]
