"""What is found and not read is named with its number, by every command that could say so."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agents import test_goose, test_hermes, test_opencode
from tests.agents.databases import OPENCODE, run
from tests.cli.desk import ALERTS, Desk, alerts
from thence.memory.sqlite import Sqlite

OPENCODE_HOME = ".local/share/opencode"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine without sessions."""
    return Desk(tmp_path, monkeypatch)


def not_read(desk: Desk) -> list[dict[str, Any]]:
    """Return what is not read; a sweep, a look before one, doctor and the first page agree."""
    swept = desk.run("sweep", "--json").json["not_read"]
    before = desk.run("sweep", "-n", "--json").json["not_read"]
    examined = desk.run("doctor", "--json").json["not_read"]
    home = desk.run("--json").json["not_read"]

    assert [swept] * 3 == [before, examined, home]
    return list(swept)


def screens(desk: Desk) -> dict[str, str]:
    """Return what the same commands print, on one line each."""
    commands = {"sweep": ["sweep"], "doctor": ["doctor"], "home": []}
    return {
        name: " ".join(desk.run(*words, columns=200).out.split())
        for name, words in commands.items()
    }


# -- databases ------------------------------------------------------------------------------


def _spoil_head(path: Path) -> None:
    path.write_bytes(b"\x17" * 2900 + path.read_bytes()[2900:])


def _spoil_pages(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\x17" * (len(data) - 4096))


def _spoil_schema(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("PRAGMA writable_schema=ON")
    database.execute("UPDATE sqlite_master SET sql = 'CREATE TABLE nonsense(' WHERE type = 'table'")
    database.commit()
    database.close()


def _make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _make_log_a_pipe(path: Path) -> None:
    os.mkfifo(f"{path}-wal")


def _make_view(path: Path) -> None:
    """Let the table of sessions be a view that counts for ever."""
    database = sqlite3.connect(path)
    for table in ("session", "sessions"):
        database.execute(f"DROP TABLE IF EXISTS {table}")
        database.execute(
            f"CREATE VIEW {table} AS WITH RECURSIVE c(n) AS"
            " (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT 's' || n AS id FROM c"
        )
    database.commit()
    database.close()


DAMAGES: dict[Callable[[Path], None], str] = {
    _spoil_head: "not a database",
    _spoil_pages: "a damaged database",
    _spoil_schema: "a damaged database",
    _make_pipe: "not a regular file",
    _make_folder: "not a regular file",
    _make_log_a_pipe: "its write-ahead log: not a regular file",
    _make_view: "a view, not a table",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_database_is_named_everywhere(desk: Desk, damage: Callable[[Path], None]) -> None:
    """Whose it is, where and why; what was stored of it stays, and once mended it is read."""
    path = run(desk.user / OPENCODE_HOME / "opencode.db", OPENCODE, test_opencode.steps())
    desk.sweep()
    content = path.read_bytes()
    damage(path)
    (item,) = not_read(desk)
    shown = screens(desk)
    examined = desk.run("doctor", "--json").json

    assert ("opencode", "database", 1, str(path)) == tuple(
        item[key] for key in ("agent", "kind", "count", "path")
    )
    assert item["why"].endswith(DAMAGES[damage])
    assert [3, 3] == [desk.run("sweep").code, desk.run("doctor").code]
    line = f"OpenCode: 1 database is not read: {item['why']}, ~/{OPENCODE_HOME}/opencode.db"
    assert all(line in text for text in shown.values())
    assert shown["sweep"].startswith(f"▲ {line}")
    assert "unread" == examined["findings"][0]["topic"]
    assert not any(
        "OpenCode" in f["words"] and "all stored" in f["words"] for f in examined["findings"]
    )
    assert "Nothing needs you" not in shown["home"]
    assert 3 == len(desk.run("ls", "--json").json)

    if path.is_dir():
        path.rmdir()
    Path(f"{path}-wal").unlink(missing_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    desk.sweep()

    assert [] == not_read(desk)
    assert "Nothing needs you" in screens(desk)["home"]


@pytest.mark.parametrize(
    ("module", "folder", "name"),
    [
        (test_hermes, ".hermes", "state.db"),
        (test_goose, ".local/share/goose", "sessions/sessions.db"),
    ],
)
def test_every_agent_with_a_database_opens_it_in_the_same_way(
    desk: Desk, module: Any, folder: str, name: str
) -> None:
    """One that is damaged is named; so is one whose table is a view."""
    root = desk.user / folder
    root.mkdir(parents=True)
    module.write(root)
    desk.sweep()
    _make_view(root / name)
    first = not_read(desk)
    _spoil_head(root / name)
    second = not_read(desk)

    assert ["sessions is a view, not a table"] == [item["why"] for item in first]
    assert ["not a database"] == [item["why"] for item in second]


def test_a_session_that_cannot_be_read_is_told_until_its_database_is_written(desk: Desk) -> None:
    """Three of them in a database that can be listed: one line, and no second try."""
    path = run(desk.user / OPENCODE_HOME / "opencode.db", OPENCODE, test_opencode.steps())
    database = sqlite3.connect(path)
    (page,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name='event'").fetchone()
    database.close()
    data = bytearray(path.read_bytes())
    data[(page - 1) * 4096 : page * 4096] = b"\x17" * 4096
    path.write_bytes(data)
    first = desk.run("sweep", "--json")
    again = desk.run("sweep", "--json")

    assert [(3, 3, 3), (3, 3, 0)] == [
        (ran.code, ran.json["failed"], ran.json["read"]) for ran in (first, again)
    ]
    assert [("session", 3, "a damaged database")] == [
        (item["kind"], item["count"], item["why"]) for item in not_read(desk)
    ]


# -- files and folders ----------------------------------------------------------------------

CHATS = ".gemini/tmp/abc/chats/session-2026-11-18T10-36-"


def test_a_log_that_does_not_begin_as_one_is_named(desk: Desk) -> None:
    """Damaged, or of a client that wrote something else; not one that has only been begun."""
    for name, text in {
        "f96c76b0": "no\n",
        "f96c76b1": '{\n  "sessionId": "f96c76b1"\n}\n',
        "f96c76b2": "",
        "f96c76b3": '{"sessionId":"f9',
    }.items():
        file = desk.user / f"{CHATS}{name}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    items = not_read(desk)
    line = "Gemini CLI: 2 files are not read: it does not begin as a session does, ~/.gemini/tmp/"

    assert ["f96c76b0.jsonl", "f96c76b1.jsonl"] == [item["path"][-14:] for item in items]
    assert all(line in text for text in screens(desk).values())
    assert "0 files 0 bytes 2 files not read" in screens(desk)["doctor"]


def test_a_folder_that_is_locked_is_named(desk: Desk) -> None:
    """Of logs, of a database, or all of an agent; what lies beside it is read."""
    prefix: list[str] = []
    if os.geteuid() == 0:
        if (program := shutil.which("setpriv")) is None:
            pytest.skip("root may read all, and no setpriv takes that away")
        prefix = [program, "--bounding-set=-dac_override,-dac_read_search"]
    desk.write_claude(alerts())
    locked = [
        desk.claude / "projects/-locked",
        desk.user / OPENCODE_HOME,
        desk.user / ".local/share/goose/sessions",
        desk.home / "sessions",
    ]
    for folder in locked:
        folder.mkdir(parents=True)
        folder.chmod(0)
    words = [sys.executable, "-m", "thence", "sweep", "--json"]
    done = subprocess.run([*prefix, *words], capture_output=True, check=False)
    for folder in locked:
        folder.chmod(0o700)
    report = json.loads(done.stdout)
    items = report["not_read"]

    assert (3, 1) == (done.returncode, report["read"]), report
    assert {("folder", str(path), "Permission denied") for path in locked} == {
        (item["kind"], item["path"], item["why"]) for item in items
    }
    assert {"claude", "opencode", "goose", "thence"} == {item["agent"] for item in items}


# -- sessions of older versions -------------------------------------------------------------

EDITOR = ".config/Code/User/globalStorage/saoudrizwan.claude-dev"
OLD_CLINE = "versions before 3 and of the VS Code extension"
OLDER = {
    ".gemini/tmp/abc/chats/session-2025-10-29T10-36-f96c76b0.json": (
        "Gemini CLI: 1 session of versions before 0.40 is not read, ~/.gemini/tmp"
    ),
    ".gemini/antigravity-cli/conversations/4715f285d392b48b945ae44c52e7cda7.db": (
        "Gemini CLI: 1 session of Antigravity is not read, ~/.gemini"
    ),
    ".vibe/logs/session/session_20261118_214722_9bd8e617.json": (
        "Mistral Vibe: 1 session of Vibe 1 is not read, ~/.vibe/logs/session"
    ),
    ".vibe/logs/session/session_20261118_214722_9bd8e617/meta.json": (
        "Mistral Vibe: 1 session of Vibe 2 is not read, ~/.vibe/logs/session"
    ),
    ".local/share/opencode/storage/session/abc/ses_1.json": (
        "OpenCode: 1 session of versions before 1.2 is not read, ~/.local/share/opencode/storage/"
    ),
    ".local/share/opencode/project/abc/storage/session/info/ses_1.json": (
        "OpenCode: 1 session of versions of 2025 is not read, ~/.local/share/opencode/project"
    ),
    ".local/share/goose/sessions/20250101_120000.jsonl": (
        "goose: 1 session of versions before 1.10 is not read, ~/.local/share/goose/sessions"
    ),
    ".cline/data/tasks/1795038851504/api_conversation_history.json": (
        f"Cline: 1 session of {OLD_CLINE} is not read, ~/.cline/data/tasks"
    ),
    f"{EDITOR}/tasks/17/api_conversation_history.json": (
        f"Cline: 1 session of {OLD_CLINE} is not read, ~/.config/Code"
    ),
    ".kimi/sessions/abc/2a9385bb/context.jsonl": (
        "Kimi Code: 1 session of kimi-cli is not read, ~/.kimi/sessions"
    ),
    ".copilot/history-session-state/session_1.json": (
        "Copilot CLI: 1 session of versions of 2025 is not read, ~/.copilot/history-session-state"
    ),
    ".qwen/tmp/abc/chats/session-1.json": (
        "Qwen Code: 1 session of versions before 0.2 is not read, ~/.qwen/tmp"
    ),
}  # fmt: skip


@pytest.mark.parametrize("path", OLDER)
def test_sessions_of_older_versions_are_counted(desk: Desk, path: str) -> None:
    """They are no fault, yet no command says that there are none or that all is stored."""
    file = desk.user / path
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    first = " ".join(desk.run(columns=200).out.split())
    desk.write_claude(alerts())
    (item,) = not_read(desk)
    shown = screens(desk)

    assert ("older", 1) == (item["kind"], item["count"])
    assert all(OLDER[path] in text for text in (first, *shown.values()))
    assert shown["doctor"].startswith("1 session not read; nothing imports")
    label = OLDER[path].partition(":")[0]
    assert f"{label} 0 files 0 bytes 1 session not read" in shown["doctor"]
    assert (0, 3) == (desk.run("sweep").code, desk.run("sweep", "--strict").code)


def test_a_session_that_a_newer_version_took_over_is_not_counted(desk: Desk) -> None:
    """By the name of its log, or by its id in the database; one that lies twice counts once."""
    run(desk.user / OPENCODE_HOME / "opencode.db", OPENCODE, test_opencode.steps())
    storage = desk.user / OPENCODE_HOME / "storage/session"
    for folder, name in (("a", test_opencode.PARENT), ("a", "ses_left"), ("b", "ses_left")):
        (storage / folder).mkdir(parents=True, exist_ok=True)
        (storage / folder / f"{name}.json").write_text("{}")

    assert [("older", 1, str(storage))] == [
        (item["kind"], item["count"], item["path"]) for item in not_read(desk)
    ]


# -- losses ---------------------------------------------------------------------------------


def test_what_was_lost_stands_first(desk: Desk) -> None:
    """With its number, in the head of doctor and on the first page; what is forgotten is none."""
    others = [f"a41e90bd-0000-4000-8000-00000000000{n}" for n in (3, 4)]
    desk.write_claude(alerts(), *(alerts(name, "Again") for name in others))
    desk.sweep()
    store = Sqlite(str(desk.home / "memory" / "thence.db"))
    uids = [f"claude:{name}" for name in (ALERTS, *others)]
    store.remove(uids, why=dict.fromkeys(uids, "no digest is left"), lost=True)
    store.close()
    shown = screens(desk)
    sentence = "3 sessions were removed before they were fully analysed"

    assert shown["home"].startswith(f"▲ {sentence}")
    assert shown["doctor"].startswith(f"{sentence}; 1 warning")
    assert "Nothing needs you" not in shown["home"]
    assert "3 transcripts removed" in shown["doctor"]
    assert not any(word in shown["doctor"] for word in ("all stored", "the rest is", "no problems"))
    assert set(uids) == set(desk.run("--json").json["lost"])
    for name in others:
        desk.run("store", "forget", name, "-y")
    assert {uids[0]} == set(desk.run("--json").json["lost"])
    desk.run("store", "forget", ALERTS, "-y")
    assert "removed before" not in "".join(screens(desk).values())


def test_what_is_remembered_of_a_session_goes_with_it(desk: Desk) -> None:
    """`store forget` leaves no name of it behind; the file is for its owner alone."""
    folder = desk.write_claude(alerts())
    desk.sweep()
    path = folder / f"{ALERTS}.jsonl"
    item = {"agent": "claude", "path": str(path), "why": "no", "kind": "session"}
    file = desk.home / "memory" / "unread.json"
    file.write_text(json.dumps({"reader": 0, "items": [item]}))
    file.chmod(0o600)

    assert [str(path)] == [item["path"] for item in desk.run("doctor", "--json").json["not_read"]]
    assert 0 == desk.run("store", "forget", ALERTS, "-y").code
    assert ALERTS not in file.read_text()
    assert 0o600 == file.stat().st_mode & 0o777
