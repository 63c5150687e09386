"""Sessions of a client that nobody has seen: read as far as understood, and the rest is named."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from thence.agents.profiles import agents, folder_variables
from thence.agents.samples import Machine
from thence.agents.sessions import read_all
from thence.cli import thence

NOW = datetime(2026, 5, 4, tzinfo=UTC)
AT = "2026-05-04T00:00:00.000Z"
LINE = {"type": "zorp", "id": "z1", "uuid": "z1", "sessionId": "s", "timestamp": AT, "time": 1}


def line(path: Path, **more: Any) -> None:
    """Add a record to a log."""
    with path.open("a") as log:
        log.write(json.dumps({**LINE, **more}) + "\n")


def item(path: Path, name: str, **entry: Any) -> None:
    """Add an item to the list in a document."""
    document = json.loads(path.read_bytes())
    (document if not name else document[name]).append(entry)
    path.write_text(json.dumps(document))


def row(path: Path, table: str, **changes: Any) -> None:
    """Add a row like the last one of a table, but for this."""
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        last = dict(database.execute(f"SELECT * FROM {table} ORDER BY rowid DESC").fetchone())
        last |= changes
        names, marks = ", ".join(last), ", ".join("?" for _ in last)
        database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(last.values()))
        database.commit()


def opencode(path: Path) -> None:
    """Add a part of a new kind to the last message."""
    with closing(sqlite3.connect(path)) as database:
        (data,) = database.execute(
            "SELECT data FROM event WHERE type LIKE 'message.part%' ORDER BY rowid DESC"
        ).fetchone()
        (seq,) = database.execute("SELECT max(seq) FROM event").fetchone()
    part = {**json.loads(data)["part"], "type": "zorp", "id": "prt_zzz"}
    kind = "message.part.updated.1"
    row(path, "event", id="evt_zzz", seq=seq + 1, type=kind, data=json.dumps({"part": part}))


def goose(path: Path) -> None:
    """Add a row with a part of a new kind beside a text."""
    parts = [{"type": "text", "text": "And this."}, {"type": "zorp", "n": 1}]
    row(path, "messages", id=999, message_id="m999", content_json=json.dumps(parts))


PLANTED: dict[str, tuple[str, Callable[[Path], None]]] = {
    "claude": ("projects/**/*.jsonl", line),
    "cline": ("**/*.messages.json", lambda path: item(path, "messages", id="z", role="zorp")),
    "codex": ("sessions/**/*.jsonl", lambda path: line(path, payload={"n": 1})),
    "continue": (
        "sessions/????????-*.json",
        lambda path: item(path, "history", message={"role": "zorp", "content": "x"}),
    ),
    "copilot": ("**/events.jsonl", lambda path: line(path, data={})),
    "droid": ("sessions/**/*.jsonl", line),
    "gemini": ("**/chats/*.jsonl", line),
    "goose": ("sessions/sessions.db", goose),
    "grok": (
        "**/updates.jsonl",
        lambda path: line(path, method="x", params={"update": {"sessionUpdate": "zorp"}}),
    ),
    "hermes": ("state.db", lambda path: row(path, "messages", id=999, role="zorp")),
    "kilo": ("kilo.db", opencode),
    "kimi": ("**/wire.jsonl", line),
    "opencode": ("opencode.db", opencode),
    "pi": ("**/*.jsonl", lambda path: line(path, parentId=None)),
    "qwen": ("projects/**/*.jsonl", lambda path: line(path, parentUuid=None)),
    "vibe": (
        "logs/**/chunks/*.json",
        lambda path: item(path, "", id="z", type="zorp", n=1),
    ),
}


def test_every_agent_is_tried() -> None:
    """But aider: whatever stands in a history is prose; and our own journal, which has a test."""
    assert {*PLANTED, "aider", "thence"} == set(agents())
    assert set() == {name for name in PLANTED if not agents()[name].profile.records}


@pytest.mark.parametrize("name", PLANTED)
def test_a_record_that_nobody_knows_costs_nothing_and_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All else of the session is read; `doctor` says which records were not understood."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in (*folder_variables(), "THENCE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    agent = agents()[name]
    root = agent.reader.roots(tmp_path, {})[0]
    write = agent.sample
    assert write is not None
    write(Machine(root, tmp_path / "work"), NOW)

    def events() -> set[str]:
        sources = agent.reader.find(root)
        facts = [fact for source in sources for fact in read_all(agent.reader, source)[0]]
        return {fact.node.id for fact in facts if any(b.kind != "lifecycle" for b in fact.blocks)}

    before = events()
    pattern, plant = PLANTED[name]
    plant(min(root.glob(pattern)))
    doctor = CliRunner().invoke(thence, ["doctor", "--json"])
    findings = [f for f in json.loads(doctor.stdout)["findings"] if f["topic"] == "agents"]
    (finding,) = (entry for entry in findings if entry["agent"] == name)

    assert before
    assert set() == before - events()
    assert 1 == sum(n for type_, n in finding["not_understood"].items() if "zorp" in type_), finding
    assert 1 == sum(finding["not_understood"].values())
    assert agent.profile.newest_version == finding["newest_tried"]
    assert "resume" in finding["offers"]
