"""`thence inspect`: the counts of one file under the names of the contract, and its session."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.desk import Ran, in_process
from tests.pace import by_pace
from thence.cli import inspect
from thence.cli.inspect import inspect_file, text
from thence.cli.terminal import columns
from thence.format.session_graph import SessionGraph
from thence.testing import SAMPLE_SESSION, sample

CONTRACT = {
    "claude": (
        "lines",
        "bad_lines",
        "records_by_type",
        "unique_uuids",
        "roots",
        "leaves",
        "broken_parents",
        "tool_use",
        "tool_result",
        "orphaned_tool_use_ids",
        "sidechain_records",
        "compact_boundaries",
        "tokens",
    ),
    "codex": (
        "lines",
        "bad_lines",
        "records_by_type",
        "tool_use",
        "tool_result",
        "orphaned_tool_use_ids",
    ),
}


def thence(command: str, *arguments: str | Path) -> Ran:
    """Run the command line."""
    return in_process(command, *arguments, env=os.environ | {"COLUMNS": "80", "NO_COLOR": "1"})


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """The sample as a file of its own."""
    path = tmp_path / "session.jsonl"
    path.write_bytes(sample())
    return path


def claude(number: int, parent: str | None, kind: str, content: Any, **more: Any) -> bytes:
    """A line as Claude Code writes it."""
    message = {"role": kind, "content": content, "id": f"m{number}"}
    if kind == "assistant":
        message["usage"] = {"input_tokens": 3, "output_tokens": 10 * number}
    record = {
        "parentUuid": parent,
        "isSidechain": False,
        "sessionId": "6f0d8d2e-0000-4000-8000-000000000001",
        "type": kind,
        "uuid": f"u{number}",
        "timestamp": f"2026-01-02T03:04:{number:02}.000Z",
        "message": message,
    }
    return json.dumps(record | more).encode() + b"\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A small log of Claude Code: a rewind, an open call, a bad line."""
    call = [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "true"}}]
    lines = [
        claude(1, None, "user", "one"),
        claude(2, "u1", "assistant", [{"type": "text", "text": "two"}]),
        claude(3, "u2", "user", "in vain"),
        b"garbage\n",
        claude(4, "u2", "user", "instead"),
        claude(5, "u4", "assistant", call),
    ]
    path = tmp_path / "6f0d8d2e-0000-4000-8000-000000000001.jsonl"
    path.write_bytes(b"".join(lines))
    return path


def test_sample_is_told_in_a_screen(session: Path) -> None:
    """The answer first, then the proof, then what is wrong."""
    result = thence("inspect", session)

    assert (0, "") == (result.code, result.err)
    assert (
        """\
The hourly tide table for Europe/Lisbon loses 02:00 to 03:00 on 29 March. Find…
thence · 7f3a91c2-55d0-4c1e-9a53-0d6c1f2b7e10 · 10 KB

lines     30 · 1 bad · longest 633 bytes · no newline at the end
records   user 13 · assistant 11 · boundary 1 · header 1 · sidechain 1
          summary 1 · tip 1
states    internal 4 · live 24 · discarded 5 · no result 1
spent     11k live · 2.6k discarded
turn      stopped in the middle of a turn · torn last line

skipped line 30, 57 bytes: torn
"""
        == result.out
    )


def test_json_has_the_names_of_the_contract(log: Path) -> None:
    """File-local counts, and what the session tells besides."""
    result = thence("inspect", log, "--json")
    answer = result.json

    assert 3 == result.code
    assert {
        "lines": 6,
        "bad_lines": 1,
        "records_by_type": {"assistant": 2, "user": 3},
        "unique_uuids": 5,
        "roots": 1,
        "leaves": 2,
        "broken_parents": 0,
        "tool_use": 1,
        "tool_result": 0,
        "orphaned_tool_use_ids": ["t1"],
        "sidechain_records": 0,
        "compact_boundaries": 0,
        "tokens": {"input": 6, "output": 70, "cache_creation": 0, "cache_read": 0},
        "agent": "claude",
        "session_id": log.stem,
        "salvaged": 0,
        "states": {"live": 3, "dead": 1, "orphaned": 1},
        "bytes": log.stat().st_size,
        "sha256": hashlib.sha256(log.read_bytes()).hexdigest(),
        "lower_bound": [],
        "edges": [],
    }.items() <= answer.items()
    assert [(4, "bad json")] == [(skip["line"], skip["why"]) for skip in answer["skipped"]]


def test_live_and_dead_are_the_events_of_the_session(log: Path) -> None:
    """By their ids; every event is in one of the states, and in no other."""
    report = inspect_file(log)
    shown = thence("show", log, "--json").json
    by_state = {
        state: {
            e["event_id"]
            for e in shown["events"]
            if e["state"] == state and "derived_from" not in e
        }
        for state in ("live", "orphaned", "dead")
    }

    assert by_state["live"] | by_state["orphaned"] == set(report["live"])
    assert by_state["dead"] == set(report["dead"])


def test_glued_line_is_bad_and_what_was_saved_is_told_apart(log: Path) -> None:
    """Two records on one line: neither is counted, both are saved."""
    glued = claude(6, "u5", "user", "six").strip() + claude(7, "u6", "user", "seven")
    log.write_bytes(log.read_bytes().replace(b"garbage\n", b"") + glued)
    report = inspect_file(log)

    assert (6, 1, 5, 2) == (
        report["lines"],
        report["bad_lines"],
        report["good_records"],
        report["salvaged"],
    )


def test_file_of_nobody_is_counted_all_the_same(tmp_path: Path) -> None:
    """Without a session; a notice says so."""
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"type":"a","id":"1","parentId":null}\n{"type":"b"}\n')
    report = inspect_file(path)

    assert (None, None, None) == (report["agent"], report["session_id"], report["states"])
    assert (2, {"a": 1, "b": 1}, 1) == (
        report["lines"],
        report["records_by_type"],
        report["unique_ids"],
    )
    assert ["unknown"] == [notice.what for notice in report["notices"]]
    assert 0 == thence("inspect", path).code


@pytest.mark.parametrize("limit", ["MAX_ANALYSED_BYTES", "MAX_ANALYSED_RECORDS"])
def test_session_too_large_is_counted_and_not_put_together(
    session: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Memory stays bounded; a notice says what is missing."""
    monkeypatch.setattr(inspect, limit, 10)
    monkeypatch.setattr(SessionGraph, "__init__", None)
    report = inspect_file(session)

    assert (30, [], [], None) == (report["lines"], report["live"], report["dead"], report["states"])
    assert ["too large to tell active and discarded branches apart"] == [
        notice.what for notice in report["notices"]
    ]
    assert SAMPLE_SESSION == report["session_id"]


@pytest.mark.slow
def test_errors_have_the_exit_codes_of_the_contract(tmp_path: Path) -> None:
    """10 for what is not there, 1 for what cannot be read, 2 for wrong usage."""
    link = tmp_path / "link.jsonl"
    link.symlink_to(tmp_path / "x")
    folder = tmp_path / "folder"
    folder.mkdir()
    results = [
        thence("inspect", tmp_path / "none"),
        thence("inspect", link),
        thence("inspect", folder),
        thence("inspect", "/dev/zero"),
        thence("inspect"),
    ]

    assert [10, 1, 1, 1, 2] == [result.code for result in results]
    assert ["", "", "", "", ""] == [result.out for result in results]
    assert not any("Traceback" in result.err for result in results)


def test_help_says_the_exit_codes() -> None:
    """A script can rely on them."""
    assert "3 done but lines were skipped" in thence("inspect", "--help").out


@pytest.mark.parametrize("room", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal(log: Path, room: int) -> None:
    """Whatever the names are."""
    odd = {"type": "漢" * 90 + "\x1b[2J\u202e", "parentUuid": None, "uuid": "x" * 300}
    log.write_bytes(log.read_bytes() + json.dumps(odd).encode() + b"\n")
    lines = list(text(inspect_file(log), room))

    assert [] == [line for line in lines if columns(line) > room]
    assert not any(mark in line for line in lines for mark in "\x1b\u202e\n")


# -- the real clients' files ------------------------------------------------------------------


@pytest.mark.slow
def test_public_files_are_counted_as_by_the_independent_counter(shared: Path) -> None:
    """Every field of the contract, on every file; the fields of all other files as well."""
    root = shared / "data" / "public"
    known = json.loads((root / "truth.json").read_text())["files"]
    wrong: dict[str, Any] = {}
    for name, expected in known.items():
        got = json.loads(json.dumps(inspect._count_file(root / name)))
        wrong |= {
            f"{name} {field}": (value, got.get(field))
            for field, value in expected.items()
            if field != "broken_parents_in_tree" and got.get(field) != value
        }

    assert {} == wrong
    assert 150 < sum(1 for file in known.values() if file["family"] in CONTRACT)


@pytest.mark.slow
@pytest.mark.sampled
def test_every_session_of_the_real_clients_is_told(shared: Path) -> None:
    """No file makes it fail, and every event has a state."""
    logs = sorted((shared / "data").rglob("*.jsonl"))
    for path in logs[:: by_pace(everyday=8, full=4, prove=1)]:
        report = inspect_file(path)
        if report["states"] is not None:
            on, off = len(report["live"]), len(report["dead"])

            assert report["states"].get("live", 0) + report["states"].get("orphaned", 0) == on
            assert report["states"].get("dead", 0) + report["states"].get("rolled_back", 0) == off
