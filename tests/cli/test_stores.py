"""The commands on the store of a team: one setting, and everything is as it was."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from tests.cli.desk import Desk, alerts, windows
from tests.postgres import Cluster
from thence.team.objects import Objects, shelf_at

ASKED = (
    ("ls", "--json"),
    ("ls",),
    ("cost", "--json", "--by", "model"),
    ("search", "windows", "--json"),
    ("search", '"the hourly tide" OR nine', "--json"),
    ("show", "7f3a91c2"),
    ("tree", "7f3a91c2"),
    ("digest", "7f3a91c2", "--json"),
    ("files", "windows.py", "--json"),
    ("todos", "--json"),
    ("signals", "--json"),
    ("gc", "--dry-run", "--json"),
)


@pytest.mark.slow
def test_commands_say_the_same_on_both_stores(
    tmp_path: Path, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with packs beside it, and a database with an object store."""
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(windows())
    desk.write_claude(alerts(), ago=timedelta(hours=4))  # not in the same millisecond
    desk.write_codex()
    desk.sweep()
    file = [output_of(desk, *asked) for asked in ASKED]
    address = postgres.url(tenant=f"cli {tmp_path}", machine="here")
    monkeypatch.setenv("THENCE_STORE", address)
    config = desk.home / "config.toml"
    config.write_text(f"session_memory.objects = 'file://{tmp_path}/objects'\n", encoding="utf-8")
    desk.sweep()
    database = [output_of(desk, *asked) for asked in ASKED]
    backup = desk.run("backup", str(tmp_path / "saved"))

    assert dict(zip(ASKED, file, strict=True)) == dict(zip(ASKED, database, strict=True))
    assert [] == [(asked, out) for asked, out in zip(ASKED, database, strict=True) if out[0]]
    assert 3 == len({path.parent for path in (tmp_path / "objects").glob("*/*")})
    assert 2 == backup.code
    assert "not postgresql:\n" in backup.err


def output_of(desk: Desk, *asked: str) -> tuple[int, str, str]:
    """What a command says, but for the times of the sweep and sizes and names of payloads."""
    ran = desk.run(*asked)
    out = re.sub(r'"(discovered_at|ingested_at|analyzed_at|at)": ?("[^"]*"|\d+)', r"\1", ran.out)
    out = re.sub(r'"payload_ref": ?"[^"]*"', "ref", out)
    out = re.sub(r"\d+ ms|\d+(\.\d+)? s\b", "a moment", out)
    return ran.code, out, ran.err


@pytest.mark.slow
def test_forgotten_session_is_gone_from_database_and_objects(
    tmp_path: Path, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its payloads too; the others stay."""
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(windows(), alerts())
    monkeypatch.setenv("THENCE_STORE", postgres.url(tenant=f"forget {tmp_path}"))
    desk.home.mkdir(exist_ok=True)
    config = desk.home / "config.toml"
    config.write_text(f"session_memory.objects = 'file://{tmp_path}/objects'\n", encoding="utf-8")
    desk.sweep()
    ran = desk.run("forget", "7f3a91c2", "--yes")
    left = Objects(shelf_at(f"file://{tmp_path}/objects")).shelf.sizes("")

    assert 0 == ran.code, ran
    assert 1 == len(left)
    assert 1 == len(desk.run("ls", "--json").json)
    desk.sweep()
    assert 1 == len(desk.run("ls", "--json").json)


@pytest.mark.slow
def test_store_is_copied_and_compared(
    tmp_path: Path, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a file into a database and back into another file."""
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(windows(), alerts())
    desk.sweep()
    home = f"sqlite:{desk.home}/memory/thence.db"
    team = postgres.url(tenant=f"copy {tmp_path}") + f"#objects=file://{tmp_path}/objects"
    there = desk.run("copy", home, team)
    back = desk.run("copy", team, f"{tmp_path}/back/s.db", "--json")
    again = desk.run("copy", home, team, "--json")
    same = desk.run("copy", home, home)
    before = output_of(desk, "ls", "--json")
    monkeypatch.setenv("THENCE_STORE", f"sqlite:{tmp_path}/back/s.db")

    assert (0, "") == (there.code, there.err), there
    assert "both stores are identical, compared session by session" in there.out
    assert (2, 2, []) == tuple(back.json[name] for name in ("sessions", "copied", "different"))
    assert (2, 0, 2) == tuple(again.json[name] for name in ("sessions", "copied", "unchanged"))
    assert 2 == same.code
    assert before == output_of(desk, "ls", "--json")


def test_forgetting_in_one_tenant_leaves_the_payloads_of_another(
    tmp_path: Path, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have the same session, and its payloads under one prefix of an object store."""
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(windows(), alerts())
    desk.sweep()
    folder = tmp_path / "objects"
    stores = {name: postgres.url(tenant=f"{name} {tmp_path}") for name in ("one", "two")}
    pushed = [desk.run("push", f"{url}#objects=file://{folder}") for url in stores.values()]
    home = tmp_path / "home of the team"
    home.mkdir()
    config = home / "config.toml"
    config.write_text(f"session_memory.objects = 'file://{folder}'\n", encoding="utf-8")
    monkeypatch.setenv("THENCE_HOME", str(home))
    before = {path for path in folder.rglob("*") if path.is_file()}
    monkeypatch.setenv("THENCE_STORE", stores["one"])
    forgotten = desk.run("forget", "7f3a91c2", "--yes")
    left = {path for path in folder.rglob("*") if path.is_file()}
    gone = desk.run("show", "7f3a91c2")
    monkeypatch.setenv("THENCE_STORE", stores["two"])
    shown = desk.run("show", "7f3a91c2")
    looked = desk.run("doctor", "--deep", "--json")

    assert [0, 0] == [ran.code for ran in pushed]
    assert (0, 10) == (forgotten.code, gone.code)
    assert (4, 3) == (len(before), len(left))
    assert (0, "") == (shown.code, shown.err)
    assert "lighthouse keeper" in shown.out
    assert [] == [
        finding
        for finding in looked.json["findings"]
        if finding["topic"] == "packs" and finding["fix"]
    ]
