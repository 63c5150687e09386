"""One way past the rules: payloads, names, paths and cursors without secrets, and never a part."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.agents.transcripts import Script, usage
from tests.agreement.test_no_secret import values_of
from tests.cli.desk import Desk
from tests.memory import logs, stored
from tests.rules import rules
from tests.secrets import sample
from thence.agents import adapters
from thence.format.facts import Block, Fact
from thence.format.nodes import PREVIOUS, Is, Node
from thence.memory.gate import Gate
from thence.memory.redact import RULES
from thence.memory.stored_paths import locate
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


def test_pieces_of_one_text_are_joined_before_they_are_searched() -> None:
    """Whoever passes records that a log wrote in pieces, as the viewer of a removed session."""
    facts = [
        Fact(
            Node(f"n{at}", PREVIOUS, Is.REPLY),
            "chunk",
            f"2026-01-01T00:00:0{at}.000Z",
            (Block("assistant_msg", "assistant", text, {"type": "text", "text": text}),),
            piece="p",
        )
        for at, text in enumerate((f"use {TOKEN[:20]}", f"{TOKEN[20:]} now"))
    ]
    clean = repr(Gate(key=b"k").facts(facts))

    assert "[REDACTED:github-token" in clean
    assert (False, False) == (TOKEN[4:20] in clean, TOKEN[20:] in clean)


def test_a_clean_path_leads_to_its_file(tmp_path: Path) -> None:
    """Also where an agent spelled the folder with dashes; not where it may mean several."""
    gate = Gate(key=b"k")
    cwd = gate.text(f"/w/{TOKEN}/app")
    dashed = f"-w-{TOKEN.replace('_', '-')}-app"
    for folder in (TOKEN, dashed):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.jsonl").write_text("{}")
    plain = gate.path(str(tmp_path / TOKEN / "a.jsonl"))
    spelled = gate.path(str(tmp_path / dashed / "a.jsonl"), cwd)

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
    older = Gate([rule for rule in RULES if rule.name not in NEW], key=stored.KEY)
    store = stored.opened(tmp_path)
    with store.sweeping():
        Sweep(store, adapters(), older, rules()).run(roots)
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
    return b"\n".join(values_of(path))
