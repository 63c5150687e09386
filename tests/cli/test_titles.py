"""Titles that a client or its user made: searched, in both stores, and gone when forgotten."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from tests.agents import rollouts
from tests.agents.transcripts import Script
from tests.cli.desk import Desk, alerts
from tests.postgres import Cluster

MADE = "f2000000-0000-4000-8000-000000000001"
PLAIN = "f2000000-0000-4000-8000-000000000002"
THREAD = "01a00000-0000-7000-8000-00000000000e"
SECRET = "AKIAQYLPMN5HFIQR7XYA"


@pytest.fixture(params=["sqlite", "postgres"])
def desk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Sessions with titles of their clients and one without, stored."""
    desk = Desk(tmp_path, monkeypatch)
    if request.param == "postgres":
        cluster: Cluster = request.getfixturevalue("postgres")
        address = cluster.url(tenant=f"titles {tmp_path}", machine="here")
        monkeypatch.setenv("THENCE_STORE", address)
    script = Script(MADE, "f201", cwd="/home/dev/tidepool")
    script.user("make it quicker")
    script.say("done")
    script.note("ai-title", aiTitle=f"Pelican 登录缓存 speedup {SECRET}")
    desk.write_claude(script, alerts(PLAIN, "walrus counting is slow"))
    folder = desk.codex / "sessions" / "2026" / "01" / "01"
    folder.mkdir(parents=True)
    lines = [rollouts.meta(THREAD, cwd="/home/dev/books"), rollouts.user("speed up the dump")]
    path = folder / f"rollout-2026-01-01T00-00-00-{THREAD}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    names = desk.codex / "session_index.jsonl"
    named = {"id": THREAD, "thread_name": "Flamingo ledger", "updated_at": "2026-01-01T00:00:00Z"}
    names.write_text(json.dumps(named) + "\n", encoding="utf-8")
    desk.sweep()
    return desk


def hits(desk: Desk, *query: str) -> list[tuple[str, str, str]]:
    """Return session, kind and snippet of what a search finds."""
    answer_hits = desk.run("search", "--json", "--", *query).json["hits"]
    return [
        (hit["session_uid"].partition(":")[2], hit["kind"], hit["snippet"]) for hit in answer_hits
    ]


@pytest.mark.slow
def test_a_word_of_a_title_finds_the_session(desk: Desk) -> None:
    """In any agent, with filters of sessions, by characters of any script; a prompt is no title."""
    session, kind, snippet = hits(desk, "pelican")[0]  # then the record that gave it

    assert (MADE, "title") == (session, kind)
    assert snippet.startswith("Pelican 登录缓存 speedup [REDACTED:")
    assert (MADE, "title") == hits(desk, "录缓")[0][:2]
    assert [(THREAD, "title", "Flamingo ledger")] == hits(desk, "flamingo")
    assert [(THREAD, "title")] == [hit[:2] for hit in hits(desk, "flamingo agent:codex")]
    assert [] == hits(desk, "flamingo agent:claude")
    assert [] == hits(desk, "flamingo kind:user_msg")
    assert [] == hits(desk, "flamingo project:tidepool")
    assert [] == hits(desk, "flamingo -ledger")
    assert [(PLAIN, "user_msg")] == [hit[:2] for hit in hits(desk, "walrus")]


@pytest.mark.slow
def test_the_terminal_names_the_session(desk: Desk) -> None:
    """The title stands over the hit, and what was asked for is marked."""
    ran = desk.run("search", "flamingo")

    assert ran.lines[0].startswith("1 match in 1 session")
    assert "title" in ran.out
    assert "[Flamingo] ledger" in ran.out


def test_a_new_title_takes_the_place_of_the_old_one(desk: Desk) -> None:
    """The next sweep indexes it."""
    script = Script(MADE, "f201", cwd="/home/dev/tidepool")
    script.user("make it quicker")
    script.say("done")
    script.note("ai-title", aiTitle="Cormorant speedup")
    desk.write_claude(script, ago=timedelta(hours=1))
    desk.sweep()

    assert ["lifecycle"] == [kind for _, kind, _ in hits(desk, "pelican")]  # the older record
    assert (MADE, "title", "Cormorant speedup") == hits(desk, "cormorant")[0]


def test_a_forgotten_title_is_gone(desk: Desk) -> None:
    """From the search and from the files of the store; secrets never were there."""
    before = [path for path in desk.home.rglob("*") if path.is_file()]
    ran = desk.run("forget", MADE, "--yes")
    data = b"".join(path.read_bytes() for path in desk.home.rglob("*") if path.is_file())

    assert before
    assert 0 == ran.code, ran
    assert [] == hits(desk, "pelican")
    assert [False, False] == [
        word in data.lower() for word in (b"pelican", SECRET.lower().encode())
    ]
