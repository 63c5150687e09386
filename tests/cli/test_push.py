"""`thence store push` says what leaves, sends it once, and waits for who does not answer."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.cli.desk import Desk, alerts, windows
from tests.postgres import Cluster
from thence.team.postgres import Postgres


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine that has swept."""
    made = Desk(tmp_path, monkeypatch)
    made.write_claude(windows(), alerts())
    made.write_codex()
    made.sweep()
    return made


@pytest.fixture
def url(tmp_path: Path, postgres: Cluster) -> str:
    """The store of a team."""
    return postgres.url(tenant=f"push {tmp_path}", machine="here")


def test_dry_run_tells_what_push_sends(desk: Desk, url: str) -> None:
    """Projects, sessions, events and bytes; nothing is written by it."""
    plan = desk.run("push", url, "--dry-run", "--json").json
    dry_run = desk.run("push", url, "-n")
    done = desk.run("push", url, "--json").json
    later = desk.run("push", url, "--dry-run", "--json").json

    assert plan["reached"]
    assert (3, 0) == (plan["sessions"], plan["unchanged"])
    assert [3, plan["events"], plan["bytes"]] == [
        sum(project[name] for project in plan["projects"])
        for name in ("sessions", "events", "bytes")
    ]
    assert (3, plan["events"]) == (done["sessions"], done["events"])
    assert (0, 3, []) == (later["sessions"], later["unchanged"], later["projects"])
    assert "would send 3 sessions" in dry_run.out
    assert "/home/dev/tidepool: " in dry_run.out


def test_second_push_has_nothing_to_send(desk: Desk, url: str) -> None:
    """And says so; what comes later is all that is sent."""
    first = desk.run("push", url)
    second = desk.run("push", url)
    desk.write_codex("01a00000-0000-7000-8000-00000000000b")
    desk.sweep()
    third = desk.run("push", url, "--json").json

    assert (0, "") == (first.code, first.err), first
    assert first.out.startswith("pushed 3 sessions, 0 already there; ")
    assert "nothing new: 3 sessions already there\n" == second.out
    assert (1, 3) == (third["sessions"], third["unchanged"])


def test_projects_are_excluded_by_a_setting(desk: Desk, url: str) -> None:
    """By that of pushing and by that of capturing; both are told."""
    (desk.home / "config.toml").write_text(
        f'session_memory.exclude = ["*/harbour-books"]\n'
        f'[session_memory.push]\nurl = "{url}"\nprivate = ["/home/dev/tidepool"]\n',
        encoding="utf-8",
    )
    plan = desk.run("push", "-n", "--json").json
    dry_run = desk.run("push", "-n")
    done = desk.run("push", "--json").json
    store = Postgres(url)
    rows = [row.session.cwd for row in store.sessions()]
    store.close()

    assert [] == [
        path for path in rows if path in ("/home/dev/tidepool", "/home/dev/harbour-books")
    ]
    assert len(rows) == done["sessions"] == plan["sessions"]
    assert 3 == done["sessions"] + done["excluded"]
    assert "excluded, never sent:\n" in dry_run.out


def test_machine_without_a_network_waits(desk: Desk, url: str, tmp_path: Path) -> None:
    """It says how many sessions wait; the next push that gets through sends them."""
    server = url.partition("host=")[2].partition("&")[0]
    away = url.replace(server, quote(str(tmp_path), safe=""))
    first = desk.run("push", away)
    plan = desk.run("push", away, "--dry-run", "--json").json
    desk.run("push", url)
    desk.write_codex("01a00000-0000-7000-8000-00000000000b")
    desk.sweep()

    assert (1, "") == (first.code, first.out)
    assert first.err.startswith("error: not reachable, 3 sessions waiting: ")
    assert "what arrived stays; the next push continues from here\n" in first.err
    assert (False, 3) == (plan["reached"], plan["sessions"])
    assert 1 == desk.run("push", url, "--json").json["sessions"]


def test_server_that_went_away_leaves_the_rest_waiting(
    desk: Desk, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What had arrived is not counted as waiting."""
    from thence.team import pushing
    from thence.team.postgres import StoreLost

    push, left = Postgres.push, [2]

    def breaks(self: Postgres, sent: object) -> object:
        left[0] -= 1
        if not left[0]:
            raise StoreLost("lost the store: gone")
        return push(self, sent)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(pushing, "BATCH_SESSIONS", 1)
        patch.setattr(Postgres, "push", breaks)
        cut = desk.run("push", url)
    done = desk.run("push", url, "--json").json

    assert 1 == cut.code
    assert "not reachable, 2 sessions waiting: lost the store" in cut.err
    assert (2, 1) == (done["sessions"], done["unchanged"])


def test_where_to_must_be_told(desk: Desk) -> None:
    """Nothing is guessed, and files are no team's store."""
    nowhere, file = desk.run("push"), desk.run("push", "sqlite:/nowhere/s.db")

    assert (2, 2) == (nowhere.code, file.code)
    assert "session_memory.push.url" in nowhere.err
    assert "thence store copy" in file.err


def test_what_push_notes_is_the_users_alone(desk: Desk, url: str) -> None:
    """After a push no file of the home is open to others, so the doctor has nothing to say."""
    before = os.umask(0)
    try:
        desk.run("push", url)
    finally:
        os.umask(before)
    noted = [path for path in desk.home.rglob("*") if path.stat().st_mode & 0o077]

    assert (desk.home / "memory" / "pushed").is_dir()
    assert [] == noted


@pytest.mark.parametrize("admitted", ["reads this tenant", "writes another tenant"])
def test_push_where_one_may_not_write_says_so(
    desk: Desk, url: str, postgres: Cluster, admitted: str
) -> None:
    """Permission denied, and who can change that; not that the next push will go on."""
    role = f"r{abs(hash((url, admitted)))}"
    postgres.sql(f"CREATE ROLE {role} LOGIN")
    other = url.replace("&machine", "%20other&machine")
    for tenant in (url, other):
        Postgres(tenant).close()
    store = Postgres(url if admitted == "reads this tenant" else other)
    store.admit(role, writes=admitted != "reads this tenant")
    store.close()
    ran = desk.run("push", url.replace("thence@", f"{role}@"))

    assert (2, "") == (ran.code, ran.out), ran
    assert "permission denied for tenant" in ran.err
    assert "its owner admits you" in ran.err
    assert "not reachable" not in ran.err
    assert "the next push" not in ran.err
