"""Outputs of Codex's versions of 2025, JSON inside of a text: read as what the program printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agents import rollouts
from tests.cli.desk import DUMP, Desk

PRINTED = 'collected 3 tests\nzebrafish failed\n\tquagga passed\nsaid "kiwi"\n'


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """One session of an early Codex, stored."""
    desk = Desk(tmp_path, monkeypatch)
    folder = desk.codex / "sessions" / "2025" / "09" / "01"
    folder.mkdir(parents=True)
    wrapped = {"output": PRINTED, "metadata": {"exit_code": 3, "duration_seconds": 1.5}}
    secret = {"output": "first\nAKIAQYLPMN5HFIQR7XYA\n", "metadata": {"exit_code": 0}}
    lines = [
        rollouts.meta(DUMP, version="0.39.0", cwd="/home/dev/tidepool"),
        rollouts.user("Run the tests"),
        rollouts.call("shell", "k1", command=["bash", "-lc", "./run-tests"]),
        rollouts.output("k1", json.dumps(wrapped)),
        rollouts.call("shell", "k2", command=["bash", "-lc", "cat keys"]),
        rollouts.output("k2", json.dumps(secret)),
        rollouts.assistant("done"),
    ]
    path = folder / f"rollout-2025-09-01T00-00-00-{DUMP}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    desk.sweep()
    return desk


@pytest.mark.parametrize("word", ["collected", "zebrafish", "quagga", "kiwi"])
def test_words_at_the_start_of_a_line_are_found(word: str, desk: Desk) -> None:
    """The snippet is what the program printed, without escapes."""
    hits = desk.run("search", "--json", word).json["hits"]

    assert ["tool_result"] == [hit["kind"] for hit in hits]
    assert hits[0]["snippet"].endswith(" ".join(PRINTED.split()))


def test_show_gives_the_lines_and_the_exit_code(desk: Desk) -> None:
    """As events and on the page of the terminal."""
    events = desk.run("show", DUMP, "--json").json["events"]
    shown = desk.run("show", DUMP).out
    [result] = [
        event for event in events if event["kind"] == "tool_result" and event["call"] == "k1"
    ]

    assert result["payload"].endswith(f"\n{PRINTED}")
    assert "exit 3" in shown
    assert 'said "kiwi"' in shown
    assert "\\n" not in shown


def test_a_secret_at_the_start_of_a_line_is_redacted(desk: Desk) -> None:
    """The escape before it does not hide it."""
    stored = desk.run("show", DUMP, "--json").out

    assert "AKIAQYLPMN5HFIQR7XYA" not in stored
    assert "first\\n[REDACTED:" in stored
