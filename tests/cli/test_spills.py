"""Large results that Claude Code writes beside its log, named in the text of the result alone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.agents.transcripts import Script
from tests.cli.desk import Desk
from thence.agents.claude import spills

SESSION = "f3000000-0000-4000-8000-000000000001"
TEXT = (
    "<persisted-output>\nOutput too large (190 KB). Full output saved to: {path}\n\n"
    "Preview (first 2KB):\nline 0\n</persisted-output>"
)


def write_session(desk: Desk, *paths: str, together: bool = False) -> Path:
    """Write a session whose results name these files; return the folder of its outputs."""
    script = Script(SESSION, "f301", cwd="/home/dev/tidepool")
    script.user("print a lot")
    results = []
    for at, path in enumerate(paths):
        script.call(f"c{at}", "mcp__depth__list", page=at)
        text = [{"type": "text", "text": TEXT.format(path=path)}]
        results.append({"type": "tool_result", "tool_use_id": f"c{at}", "content": text})
        if not together:
            script.user([results.pop()])
    if together:
        script.user(results)
    script.say("done")
    folder = desk.write_claude(script) / SESSION / "tool-results"
    folder.mkdir(parents=True)
    return folder


def is_found(desk: Desk, word: str) -> bool:
    """Return whether a search finds a word."""
    return bool(desk.run("search", "--json", word).json["hits"])


@pytest.mark.parametrize("together", [False, True])
def test_an_output_named_in_the_text_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, together: bool
) -> None:
    """All of it is searched, without its secrets, also after the client deleted it."""
    desk = Desk(tmp_path, monkeypatch)
    folder = write_session(
        desk,
        "/home/dev/.claude/projects/x/tool-results/b1.txt",
        "C:\\Users\\dev\\tool-results\\b2.txt",
        together=together,
    )
    (folder / "b1.txt").write_text("all of it\nnarwhal\nAKIAQYLPMN5HFIQR7XYA\n", encoding="utf-8")
    (folder / "b2.txt").write_text("all of that\nbeluga\n", encoding="utf-8")
    desk.sweep()
    shutil.rmtree(folder.parent)
    shown = desk.run("show", SESSION, "--json").out

    assert [True, True] == [is_found(desk, word) for word in ("narwhal", "beluga")]
    assert "narwhal" in shown
    assert "AKIAQYLPMN5HFIQR7XYA" not in shown


def test_no_file_outside_of_the_sessions_own_folder_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a log names: absolute paths, steps up, links, pipes, other sessions' outputs."""
    desk = Desk(tmp_path, monkeypatch)
    outside = tmp_path / "outside.txt"
    outside.write_text("porpoise", encoding="utf-8")
    folder = write_session(
        desk,
        str(outside),
        "../../outside.txt",
        "tool-results/linked.txt",
        "tool-results/..",
        "tool-results/pipe.txt",
        "tool-results/folder",
        "tool-results/hard\0.txt",
    )
    (folder / "linked.txt").symlink_to(outside)
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe.txt")
    other = folder.parent.with_name("f3000000-0000-4000-8000-000000000009") / "tool-results"
    other.mkdir(parents=True)
    (other / "outside.txt").write_text("porpoise", encoding="utf-8")
    desk.sweep()

    assert not is_found(desk, "porpoise")
    assert is_found(desk, "print")


@pytest.mark.slow
def test_no_more_is_stored_than_there_is_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log may name a large file, and the same one for ever."""
    monkeypatch.setattr(spills, "MAX_STORED_BYTES_PER_LOG", 4 << 20)
    desk = Desk(tmp_path, monkeypatch)
    folder = write_session(desk, *["tool-results/large.txt", *["tool-results/same.txt"] * 40])
    (folder / "large.txt").write_bytes(b"leviathan " * (5 << 17))
    (folder / "same.txt").write_bytes(b"dugong " * (1 << 15))
    desk.sweep()
    stored = desk.run("show", SESSION, "--json").out

    assert not is_found(desk, "leviathan")
    assert is_found(desk, "dugong")
    assert 3 << 20 < len(stored) < 5 << 20
