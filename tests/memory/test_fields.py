"""Names, paths and cursors without secrets; the files they stand for are found all the same."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.agents.transcripts import Script, usage
from tests.cli.desk import Desk
from tests.memory import logs, stored
from tests.serve.conftest import House
from thence.agents import adapters
from thence.memory.fields import clean_path, locate
from thence.memory.redact import RULES, Redactor
from thence.memory.rules import sample
from thence.memory.sweep import Sweep

NEW = {"pgpass", "setx-secret", "yaml-password", "xml-password", "said-password", "seed-phrase"}
TOKEN = sample("ghp" + "_{A36}", 77)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine with a session in a folder that is named after a token."""
    desk = Desk(tmp_path, monkeypatch)
    script = Script("7f3a91c2-0000-4000-8000-00000000000a", "r", cwd=f"/home/dev/{TOKEN}")
    script.user("Go.")
    script.say("Done.", usage=usage(3))
    folder = desk.claude / "projects" / f"-home-dev-{TOKEN.replace('_', '-')}"
    folder.mkdir(parents=True)
    (folder / f"{script.session}.jsonl").write_bytes(script.data)
    return desk


def test_a_source_in_a_folder_named_after_a_token_is_neither_lost_nor_read_twice(
    desk: Desk,
) -> None:
    """Its stored path holds a placeholder; later sweeps know it, and see when it is deleted."""
    desk.sweep()
    again = desk.run("sweep", "--json").json
    [row] = desk.run("ls", "--json").json
    handed = desk.run("handoff", row["session_uid"], "--to", "codex", "--dry-run")
    shutil.rmtree(desk.claude / "projects")
    (desk.claude / "projects").mkdir()
    after = desk.run("sweep", "--json").json

    assert (0, 1, 0) == (again["read"], again["unchanged"], again["gone"])
    assert TOKEN not in json.dumps(row)
    assert TOKEN.replace("_", "-") not in json.dumps(row)
    assert "redacted" not in handed.out + handed.err
    assert 1 == after["gone"]


@pytest.mark.slow
def test_an_evicted_session_shows_and_keeps_no_token(desk: Desk) -> None:
    """What is shown of it comes from its source, and goes through the same redaction."""
    name = sample("ghp" + "_{A36}", 78)
    script = Script("7f3a91c2-0000-4000-8000-00000000000b", "r", gitBranch=name)
    script.note("queue-operation", operation="enqueue", content=f"use {name}")
    script.call("c1", name)
    script.result("c1", "ok")
    logs.write(desk.claude, script)
    desk.sweep()
    uid = f"claude:{script.session}"
    evicted = desk.run("evict", uid, "--yes")
    house = House(desk.user)
    with house.serving():
        answers = [
            house.ask(path).body
            for path in (f"/api/sessions/{uid}", f"/api/sessions/{uid}/events", f"/sessions/{uid}")
        ]
    house.close()

    assert 0 == evicted.code, evicted
    assert any(b"REDACTED:github-token" in answer for answer in answers)
    assert [] == [answer for answer in answers if name.encode() in answer]
    assert name.encode() not in _every_value(desk.home / "memory" / "thence.db")


def test_a_clean_path_leads_to_its_file(tmp_path: Path) -> None:
    """Also where an agent spelled the folder with dashes; not where it may mean several."""
    redactor = Redactor(key=b"k")
    cwd = redactor.redact(f"/w/{TOKEN}/app")
    dashed = f"-w-{TOKEN.replace('_', '-')}-app"
    for folder in (TOKEN, dashed):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.jsonl").write_text("{}")
    plain = clean_path(str(tmp_path / TOKEN / "a.jsonl"), redactor)
    spelled = clean_path(str(tmp_path / dashed / "a.jsonl"), redactor, cwd)

    assert TOKEN not in plain
    assert TOKEN[4:] not in spelled
    assert str(tmp_path / dashed / "a.jsonl") == locate(spelled)
    assert plain == locate(plain)
    assert str(tmp_path / "b") == locate(str(tmp_path / "b"))


def test_new_built_in_rules_go_over_what_is_stored(tmp_path: Path) -> None:
    """Sessions of older rules are redacted at the next sweep, also when the source is gone."""
    texts = ["db.internal:5432:app:deploy:tr0ub4dor&3", "the admin password is Marmalade7 now"]
    script = Script(logs.name(1), "r", gitBranch="db.internal:5432:app:me:tr0ub4dor&3")
    for text in texts:
        script.note("queue-operation", operation="enqueue", content=text)
        script.user(text)
        script.say("Done.", usage=usage(1))
    logs.write(tmp_path / "home", script)
    roots = {"claude": [tmp_path / "home"]}
    older = Redactor([rule for rule in RULES if rule.name not in NEW], key=stored.KEY)
    store = stored.opened(tmp_path)
    with store.sweeping():
        Sweep(store, adapters(), older).run(roots)
    store.close()
    before = _every_value(tmp_path / "s.db")
    shutil.rmtree(tmp_path / "home")
    (tmp_path / "home").mkdir()
    report = stored.sweep(tmp_path, roots)
    after = _every_value(tmp_path / "s.db")

    assert b"tr0ub4dor" in before
    assert 1 == report.reprocessed["redaction"]
    assert (False, False) == (b"tr0ub4dor" in after, b"Marmalade7" in after)
    assert 0 == stored.sweep(tmp_path, roots).reprocessed["redaction"]


def _every_value(path: Path) -> bytes:
    from tests.memory.test_redact_everywhere import unpacked

    values: list[bytes] = []
    with closing(sqlite3.connect(path)) as database:
        database.text_factory = bytes
        for (name,) in database.execute("SELECT name FROM sqlite_master").fetchall():
            try:
                rows = database.execute(f'SELECT * FROM "{name.decode()}"').fetchall()
            except sqlite3.Error:
                continue
            values += [unpacked(v) for row in rows for v in row if isinstance(v, bytes)]
    return b"\n".join(values)
