"""`thence search`: what is found, shown with what was asked for."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.cli.desk import WINDOWS, Desk, alerts, windows
from thence.cli.search import highlighted, marked
from thence.cli.terminal import columns
from thence.memory.packs import pack_name
from thence.memory.search import CLOSE, OPEN


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Three sessions, kept."""
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(windows())
    desk.write_claude(alerts(), ago=timedelta(days=2, hours=1))
    desk.write_codex()
    desk.sweep()
    return desk


def test_hits_stand_under_their_session(desk: Desk) -> None:
    """The first line counts, each hit says where it is, the last line opens one."""
    ran = desk.run("search", "lighthouse")

    assert ran.lines[0].startswith("1 hit in 1 session, ")
    assert ran.lines[2].startswith("  7f3a91c2  Hourly windows lose an hour")
    assert ran.lines[2].endswith("3 h")
    assert "answer   Windows are cut in UTC. The [lighthouse] keeper agrees." in ran.lines[3]
    assert ran.lines[-1].startswith("open one at the hit:  thence show 7f3a91c2 --around e")


def test_what_lies_on_a_dead_branch_is_marked(desk: Desk) -> None:
    """It was said, and then left behind."""
    assert "╳ answer" in desk.run("search", "lantern").out


def test_object_is_the_contracts(desk: Desk) -> None:
    """Snippets are plain text, with the places of what was asked for beside them."""
    told = desk.run("search", "lighthouse", "--json").json
    hit = told["hits"][0]
    names = {"session_uid", "event_id", "seq", "ts", "kind", "snippet", "score"}

    assert {"hits", "capped", "searched_back_to", "notes"} == set(told)
    assert names <= set(hit)
    assert f"claude:{WINDOWS}" == hit["session_uid"]
    assert ["lighthouse"] == [hit["snippet"][start:end] for start, end in hit["marks"]]


def test_a_broken_pack_costs_only_the_texts_in_it(desk: Desk) -> None:
    """Its hits are shown without a text, and counted; a script can tell by the exit code."""
    asked = ("search", "windows OR clock")
    whole = desk.run(*asked, "--json")
    for pack in (desk.home / "memory" / "packs").glob(f"{pack_name(f'claude:{WINDOWS}')}-*"):
        pack.unlink()
    ran, told = desk.run(*asked), desk.run(*asked, "--json")
    unread = [hit for hit in told.json["hits"] if hit["unread"]]

    assert (0, 3, 3) == (whole.code, ran.code, told.code)
    assert len(whole.json["hits"]) == len(told.json["hits"]) > len(unread) > 0
    assert {f"claude:{WINDOWS}"} == {hit["session_uid"] for hit in unread}
    assert "its text cannot be read" in ran.out
    assert f"{len(unread)} hits without text: the pack " in ran.lines[-1]


def test_a_hit_is_the_event_with_its_number(desk: Desk) -> None:
    """`seq` leads to the event in what `show` gives of the session."""
    hits = desk.run("search", "windows", "--json").json["hits"]
    shown = {
        uid: desk.run("show", uid, "--as", "events", "--json").json["events"]
        for uid in {hit["session_uid"] for hit in hits}
    }

    assert 2 < len(hits)
    for hit in hits:
        event = shown[hit["session_uid"]][hit["seq"]]

        assert (hit["event_id"], hit["seq"]) == (event["event_id"], event["seq"])


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("query", "sessions"),
    [
        (["agent:codex", "dump"], 1),
        (["project:tidepool", "windows"], 1),
        (["kind:user_msg", "clock"], 1),
        (["nine", "OR", "lighthouse"], 2),
        (["--", "windows", "-lantern", "-lighthouse", "-tide"], 1),
        (["nowhere"], 0),
    ],
)
def test_filters(desk: Desk, query: list[str], sessions: int) -> None:
    """The language of a search is told in its help."""
    told = desk.run("search", "--json", *query).json

    assert sessions == len({hit["session_uid"] for hit in told["hits"]})


def test_nothing_found_is_no_error(desk: Desk) -> None:
    """It says so."""
    ran = desk.run("search", "xylophone")

    assert 0 == ran.code
    assert ran.out.startswith("nothing found, ")


@pytest.mark.parametrize("query", ["-only", "before:someday", "kind:nonsense x", "cost>much x"])
def test_questions_that_mean_nothing_are_refused(desk: Desk, query: str) -> None:
    """With a hint, and the exit code of a wrong use."""
    ran = desk.run("search", "--", query)

    assert (2, "") == (ran.code, ran.out)
    assert ran.err.startswith("error: ")


@pytest.mark.parametrize("room", [40, 60, 80])
def test_snippets_fit_and_show_what_was_asked_for(room: int) -> None:
    """However far to the right it stands."""
    snippet = f"{'before ' * 20}{OPEN}needle{CLOSE}{' after' * 20}"
    shown = highlighted(snippet, room)

    assert room >= columns(shown)
    assert "[needle]" in shown


def test_marks_are_parted_from_the_text() -> None:
    """Several of them, side by side too."""
    text, marks = marked(f"a {OPEN}b{CLOSE}{OPEN}c{CLOSE} d")

    assert ("a bc d", [[2, 3], [3, 4]]) == (text, marks)


def test_hits_are_coloured_on_a_terminal(desk: Desk) -> None:
    """Bold yellow in place of brackets."""
    out = desk.run("search", "lighthouse", tty=True).out

    assert "[lighthouse]" not in out
    assert "\x1b[33m\x1b[1mlighthouse\x1b[0m" in out
