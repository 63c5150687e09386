"""`thence store forget` leaves nothing, whatever happened before, or says what is left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from tests.cli.desk import ALERTS, WINDOWS, Desk, Ran, alerts, windows
from tests.postgres import Cluster
from thence import Journal
from thence.memory import retention
from thence.team.postgres import Postgres

UID = f"claude:{WINDOWS}"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine that has swept two sessions."""
    made = Desk(tmp_path, monkeypatch)
    made.write_claude(windows(), alerts())
    made.sweep()
    return made


def _remove(desk: Desk, patch: pytest.MonkeyPatch) -> None:
    assert 0 == desk.run("store", "remove", WINDOWS, "-y", "--lose").code


def _age(desk: Desk, patch: pytest.MonkeyPatch) -> None:
    real = retention.plan

    def later(policy: Any, inventory: Any, now: datetime) -> retention.RetentionPlan:
        return real(policy, inventory, now + timedelta(days=60))

    with patch.context() as context:
        context.setattr(retention, "plan", later)
        desk.run("sweep")
        (desk.home / "notes" / "removal-by-age").write_text("2020-01-01T00:00:00+00:00")
        desk.run("sweep")


def _grow_too_large(desk: Desk, patch: pytest.MonkeyPatch) -> None:
    config = desk.home / "config.toml"
    config.write_text("[session_memory.retention]\nraw_soft_cap_bytes = 1\n")
    assert 0 == desk.run("store", "gc").code
    config.unlink()


def _note(desk: Desk, patch: pytest.MonkeyPatch) -> None:
    for words in (("name", WINDOWS, "tides"), ("tag", WINDOWS, "+sea")):
        assert 0 == desk.run(*words).code


def _named(desk: Desk, *elsewhere: Path) -> list[Path]:
    """Return the files that name the session."""
    paths = [path for top in (desk.home, *elsewhere) for path in top.rglob("*") if path.is_file()]
    return [path for path in paths if WINDOWS.encode() in path.read_bytes()]


def _deleted(desk: Desk) -> list[tuple[str, str | None]]:
    """Return what the doctor says of sessions that were deleted for good."""
    findings = desk.run("doctor", "--deep", "--json").json["findings"]
    return [(entry["level"], entry["fix"]) for entry in findings if entry["topic"] == "deleted"]


@pytest.mark.parametrize("before", [_remove, _age, _grow_too_large, _note])
def test_a_session_is_forgotten_whatever_happened_to_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, before: Any
) -> None:
    """Removed by its user, by age or by size, named: its id is in no byte of the home."""
    before(desk, monkeypatch)
    done = desk.run("store", "forget", WINDOWS[:8], "-y")

    assert (0, "") == (done.code, done.err), done
    assert [] == _named(desk)
    assert [("ok", None)] == _deleted(desk)
    assert 10 == desk.run("store", "forget", WINDOWS, "-y").code
    assert [ALERTS] == [row["native_session_id"] for row in desk.run("ls", "--json").json]


def _leave_removal(desk: Desk) -> None:
    """Leave a line of the list of removals."""
    db = apsw.Connection(str(desk.home / "memory" / "thence.db"))
    body = msgspec.json.encode({"uid": UID, "bytes": 9, "why": "by age"}).decode()
    db.execute("INSERT INTO removals(at, what, body) VALUES(1, 'evict', ?)", (body,))
    db.close()


def _leave_marks(desk: Desk) -> None:
    """Leave the marks of a push, under a name made of a password, and half of others."""
    marks = desk.home / "memory" / "pushed"
    marks.mkdir(mode=0o700)
    (marks / "0123456789abcdef").write_bytes(msgspec.msgpack.encode({UID: [1], "claude:x": [2]}))
    (marks / "0123456789abcdef.new").write_bytes(b"cut short " + UID.encode())


def _leave_request(desk: Desk) -> None:
    """Leave a request to read the session."""
    (desk.home / "queue").mkdir(exist_ok=True)
    (desk.home / "queue" / f"claude-{WINDOWS}.json").write_text("{}")


@pytest.mark.parametrize(
    ("leave", "wanted"),
    [(_leave_removal, WINDOWS[:8]), (_leave_marks, UID), (_leave_request, UID)],
)
def test_what_an_earlier_version_left_is_found_and_goes(
    desk: Desk, leave: Callable[[Desk], None], wanted: str
) -> None:
    """Each by itself: the doctor names it, and a second forget takes it away, and nothing else."""
    desk.run("store", "forget", WINDOWS, "-y")
    leave(desk)
    warnings = _deleted(desk)
    looked = desk.run("store", "forget", wanted, "-n")
    done = desk.run("store", "forget", wanted, "-y")
    marks = desk.home / "memory" / "pushed" / "0123456789abcdef"

    assert [("warning", f"thence store forget {UID}")] == warnings
    assert f"delete what is left of {UID}" in looked.out
    assert (0, "") == (done.code, done.err), done
    assert [] == _named(desk)
    assert [] == [path for path in desk.home.rglob("*") if WINDOWS in path.name]
    if leave is _leave_marks:
        assert {"claude:x": [2]} == msgspec.msgpack.decode(marks.read_bytes())
    assert [("ok", None)] == _deleted(desk)


@pytest.mark.parametrize("place", ["sessions", "history.jsonl", "spill", "sidechains", "audit"])
def test_what_is_left_of_a_session_of_our_own_is_found_and_goes(desk: Desk, place: str) -> None:
    """A log, a prompt or a side file that comes back, as from a copy of the home."""
    journal, name = Journal(desk.home), "job-77-tides"
    with journal.create(cwd=desk.user, session=name) as session:
        journal.history.add("record the tides", session_id=name)
        session.user("record the tides")
    journal.history.close()
    saved = desk.user / "saved"
    shutil.copytree(desk.home, saved, ignore=shutil.ignore_patterns("memory"))
    for folder in ("spill", "sidechains"):
        (saved / folder / name).mkdir(parents=True, exist_ok=True)
        (saved / folder / name / "a.txt").write_text(name)
    (saved / "audit").mkdir(exist_ok=True)
    (saved / "audit" / f"{name}.jsonl").write_text(name)
    desk.run("sweep")
    desk.run("store", "forget", name, "-y")
    clean = _deleted(desk)
    if (saved / place).is_dir():
        shutil.copytree(saved / place, desk.home / place, dirs_exist_ok=True)
    else:
        shutil.copy(saved / place, desk.home / place)
    warnings = _deleted(desk)
    done = desk.run("store", "forget", name, "-y")
    left = [path for path in desk.home.rglob("*") if path.is_file()]

    assert [("ok", None)] == clean
    assert [("warning", f"thence store forget thence:{name}")] == warnings
    assert (0, "") == (done.code, done.err), done
    assert [] == [path for path in left if name.encode() in path.read_bytes() or name in str(path)]
    assert [("ok", None)] == _deleted(desk)


def test_a_session_that_its_project_keeps_goes_there_too(desk: Desk) -> None:
    """Its log, and nothing that links of a clone lead to; what comes back is found."""
    project, outside = desk.user / "pool", desk.user / "outside"
    (outside / "kept").mkdir(parents=True)
    (outside / "kept" / "mine.txt").write_text("mine")
    journal = Journal(desk.home, local=project)
    for name in ("kept", "other"):
        with journal.create(cwd=project, session=name) as session:
            session.user(f"record the tides of {name}")
    log = project / ".transcripts" / "kept.jsonl"
    (project / ".transcripts" / "spill").symlink_to(outside)
    saved = log.read_bytes()
    desk.run("sweep", "--root", f"thence={project}")
    planned = desk.run("store", "forget", "kept", "-n", "--json").json["files"]
    first = desk.run("store", "forget", "kept", "-y", "--json")
    calm = (_deleted(desk), "journals" in desk.run("doctor").out)
    log.write_bytes(saved)
    warnings = (_deleted(desk), "journals" in desk.run("doctor").out)
    again = desk.run("store", "forget", "kept", "-y")

    assert [f"{log}"] == planned
    assert (0, [], True) == (first.code, first.json["traces"], f"{log.parent}" in first.out)
    assert ([("ok", None)], False) == calm
    assert ([("warning", "thence store forget thence:kept")], False) == warnings
    assert (0, False) == (again.code, log.exists()), again
    assert "mine" == (outside / "kept" / "mine.txt").read_text()
    assert ["other"] == [row["native_session_id"] for row in desk.run("ls", "--json").json][:1]


def test_a_store_that_lies_elsewhere_is_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Database and packs, wherever they are; what is left there is named."""
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(windows(), alerts())
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setenv("THENCE_STORE", f"sqlite:{other}/s.db")
    desk.sweep()
    left = apsw.Connection(f"{other}/s.db")
    left.execute("CREATE TABLE strange(name TEXT)")
    left.execute("INSERT INTO strange VALUES(?)", (WINDOWS,))
    left.close()
    done = desk.run("store", "forget", WINDOWS, "-y", "--json")
    looked = {Path(path).parent for path in done.json["files_checked"]}

    assert 1 == done.code
    assert [f"{other}/s.db"] == [trace["path"] for trace in done.json["traces"]]
    assert {other, other / "packs"} <= looked


def test_what_is_noted_of_pushes_goes_too(desk: Desk, tmp_path: Path, postgres: Cluster) -> None:
    """One file a store, whoever asks with which password; a push that follows deletes it there."""
    url = postgres.url(tenant=f"one {tmp_path}", machine="here", password="first")
    other = postgres.url(tenant=f"two {tmp_path}", machine="here")
    marks = desk.home / "memory" / "pushed"
    marks.mkdir(mode=0o700, parents=True)
    (marks / "0123456789abcdef").write_bytes(b"")
    for address in (url, url.replace("password=first", "password=second"), other):
        assert 0 == desk.run("push", address).code
    names = [path.name for path in marks.iterdir()]
    done = desk.run("store", "forget", WINDOWS, "-y")
    left = _named(desk)
    again = desk.run("push", url, "--json").json
    store = Postgres(url)
    rows = [row.session.session_uid for row in store.sessions()]
    store.close()

    assert [32, 32] == [len(name) for name in names]
    assert ((0, ""), []) == ((done.code, done.err), left), done
    assert (1, [f"claude:{ALERTS}"]) == (again["forgotten"], rows)


def test_a_database_is_asked_what_is_left(
    tmp_path: Path, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may not write tables anew is told so; its owner's sweep ends it, whatever his machine."""
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(windows(), alerts())
    name = postgres.database()
    tenant = f"asked {tmp_path}"
    owner = f"postgresql://thence@/{name}?host={postgres.folder}&tenant={tenant}&machine=owner"
    member = owner.replace("thence@", "ada_forgets@").replace("machine=owner", "machine=ada")
    store = Postgres(owner)
    postgres.sql("CREATE ROLE ada_forgets LOGIN")
    store.admit("ada_forgets", writes=True)
    store.close()
    monkeypatch.setenv("THENCE_STORE", member)
    desk.sweep()
    desk.run("store", "remove", WINDOWS, "-y", "--lose")
    mine = desk.run("store", "forget", WINDOWS, "-y")
    looked = desk.run("doctor", "--json").json["findings"]
    again = desk.run("store", "forget", WINDOWS, "-y", "--json")
    monkeypatch.setenv("THENCE_STORE", owner)
    swept = desk.run("sweep")
    over = desk.run("store", "forget", WINDOWS, "-y")
    desk.run("store", "forget", ALERTS, "-y")
    postgres.sql("CHECKPOINT", name)
    oid = postgres.sql("SELECT oid FROM pg_database WHERE datname=current_database()", name)[0][0]
    statistics = postgres.sql("SELECT pg_relation_filepath('pg_statistic')", name)[0][0]
    files = (postgres.data / "base" / str(oid)).iterdir()
    left = [path for path in files if WINDOWS.encode() in path.read_bytes()]

    assert 11 == mine.code, mine
    assert "✗ the database: events, in deleted rows" in mine.out
    assert "✓ the database" not in mine.out
    assert "whoever owns the tables runs thence sweep" in mine.err
    assert "deleted rows are still in tables" in "".join(entry["words"] for entry in looked)
    assert 11 == again.code
    assert "events, in deleted rows" in again.out
    assert (0, 10) == (swept.code, over.code), (swept, over)
    assert [] == [path for path in left if not str(statistics).endswith(path.name)]


POINTS = """
import itertools, os, sys
from thence.cli import deletion, main, push_marks
from thence.memory import notes, packs, sqlite, sqlite_file
from thence.cli import wiring
count, last = itertools.count(1), int(sys.argv.pop(1))
def armed(place, name):
    real = getattr(place, name)
    def step(*words, **more):
        if next(count) == last:
            os.kill(os.getpid(), 9)
        made = real(*words, **more)
        if next(count) == last:
            os.kill(os.getpid(), 9)
        return made
    setattr(place, name, step)
for place, name in (
    (notes, "forget_notes"), (deletion, "forget_marks"), (wiring, "purge_exports"),
    (sqlite, "empty_session"), (sqlite, "note_removal"), (sqlite, "blank_traces"),
    (sqlite.Sqlite, "remove"), (sqlite.Sqlite, "settle"), (packs.Packs, "evict"),
):
    armed(place, name)
main()
"""
"""Ends itself with SIGKILL before or after the nth step of a deletion."""


@pytest.mark.slow
@pytest.mark.sampled(5)
@pytest.mark.parametrize("point", range(1, 19))
def test_a_deletion_that_is_killed_is_made_up_for(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, point: int
) -> None:
    """At each step: the doctor or the list still names it, and doing it again leaves nothing."""
    _note(desk, monkeypatch)
    _remove(desk, monkeypatch)
    killed = subprocess.run(
        [sys.executable, "-c", POINTS, str(point), "store", "forget", WINDOWS, "-y"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=False,
    )
    fixes = [fix for level, fix in _deleted(desk) if level == "warning"]
    again: Ran = desk.run("store", "forget", WINDOWS, "-y")
    desk.run("sweep")

    assert killed.returncode in (-9, 0), killed.stderr
    assert again.code in (0, 10), (again, fixes)
    assert [] == _named(desk)
    assert [("ok", None)] == _deleted(desk)
