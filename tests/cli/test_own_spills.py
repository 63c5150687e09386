"""Results that our own sessions moved to side files: searched, exported, handed on, asked for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.desk import Desk
from thence.agents.sessions import load
from thence.errors import ThenceError
from thence.format.spills import spilled_in
from thence.journal.journal import Journal
from thence.journal.session import Session
from thence.journal.tools import MAX_PART_CHARS, Tools, definitions


def large(word: str) -> str:
    """A result of 120 kB with a word in its middle, where no preview shows it."""
    return "".join(f"line {n}\n" for n in range(6000)) + f"{word}\n" + "row of text\n" * 5000


def use(session: Session, name: str, word: str) -> None:
    """Record a call with a large result, and what it took."""
    call = {"type": "tool_use", "id": name, "name": "Bash", "input": {"command": "cat"}}
    bill = {"usage": {"input_tokens": 1000, "output_tokens": 50}, "cost_usd": 0.5, "model": "m-1"}
    session.record("assistant", {"role": "assistant", "id": f"r-{name}", "content": [call], **bill})
    result = {"type": "tool_result", "tool_use_id": name, "content": large(word)}
    session.record("user", {"role": "user", "content": [result]})


class Spilled(Desk):
    """A machine with sessions of our own whose results were spilled."""

    younger = ""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spilled:
    """A home with a session, one that goes on from it and one of a subagent, all swept."""
    desk = Spilled(tmp_path, monkeypatch)
    journal = Journal(desk.home, durability="none")
    with journal.create(cwd="/work/tidepool", session="older") as session:
        session.record("user", {"role": "user", "content": "print it"})
        use(session, "c1", "narwhal")
        with session.sidechain("reader") as side:
            result = {"type": "tool_result", "tool_use_id": "c9", "content": large("dugong")}
            side.record("user", {"role": "user", "content": [result]})
            side.finish("read")
        session.record("assistant", {"role": "assistant", "content": "printed"})
    with journal.resume("older") as again:
        again.record("user", {"role": "user", "content": "and once more"})
        use(again, "c2", "beluga")
        again.record("assistant", {"role": "assistant", "content": "printed again"})
    desk.younger = again.id
    desk.sweep()
    return desk


def placeholder_names(desk: Spilled) -> list[str]:
    """The names that the placeholders of the younger session say, the ancestor's first."""
    journal = Journal(desk.home)
    content = [b for m in journal.resume(desk.younger).messages for b in m["content"]]
    results = [block["content"] for block in content if block["type"] == "tool_result"]
    return [spilled.name for result in results for spilled in spilled_in(result)]


def test_what_was_spilled_is_searched(desk: Spilled) -> None:
    """In the session, in one that goes on from it, and in a subagent."""
    for word in ("narwhal", "beluga", "dugong"):
        assert 1 == len(desk.run("search", "--json", word).json["hits"]), word


def test_what_was_spilled_is_shown_in_full(desk: Spilled) -> None:
    """And stays out of view when nobody asks for all of it."""
    for form in ("text", "messages"):
        short = desk.run("show", desk.younger, "--as", form).out
        full = desk.run("show", desk.younger, "--as", form, "--full").out

        assert ("beluga" in short, "beluga" in full) == (False, True), form


def test_a_flat_journal_holds_what_was_spilled_and_what_it_took(
    desk: Spilled, tmp_path: Path
) -> None:
    """It needs no other file: ancestors' results stand in it, too, and the bill is the same."""
    path = tmp_path / "flat.jsonl"
    desk.run("export", desk.younger, "--flatten", "-o", str(path))
    text = path.read_text()
    flat = load(path).graph

    assert [1, 1, 0] == [text.count(word) for word in ("narwhal", "beluga", "Spilled:")]
    assert 1050 == flat.spent.live.total
    bills = [json.loads(line)["payload"].get("cost_usd") for line in text.splitlines()]
    assert [0.5] == [bill for bill in bills if bill is not None]


def test_a_handoff_takes_along_what_was_spilled(desk: Spilled, tmp_path: Path) -> None:
    """The other agent cannot ask for it."""
    desk.run("handoff", desk.younger, "--to", "claude", "--yes")
    written = "".join(p.read_text() for p in desk.user.rglob("*.jsonl") if "claude" in str(p))

    assert [True, True] == [word in written for word in ("narwhal", "beluga")]


@pytest.mark.slow
def test_results_under_types_of_a_harness_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a payload of its own, and as a block of its content."""
    desk = Desk(tmp_path, monkeypatch)
    results = [
        {"type": "tool_result", "tool_use_id": "c1", "content": large(word)}
        for word in ("narwhal", "dugong")
    ]
    with Journal(desk.home, durability="none").create(cwd="/x", session="s1") as session:
        session.record("tool_output", results[0])
        session.record("batch", {"content": [results[1]]})
    desk.sweep()

    for word in ("narwhal", "dugong"):
        assert 1 == len(desk.run("search", "--json", word).json["hits"]), word
        assert word in desk.run("show", "s1", "--full").out


def test_exports_hold_what_was_spilled(desk: Spilled, tmp_path: Path) -> None:
    """Markdown, HTML and messages need no other file; `show` resolves it when asked to."""
    for form in ("markdown", "html", "messages"):
        path = tmp_path / f"export.{form}"
        desk.run("export", desk.younger, "--as", form, "-o", str(path))
        text = path.read_text()

        assert [True, True, False] == [w in text for w in ("narwhal", "beluga", "Spilled:")], form
    for form in ("markdown", "html"):
        short = desk.run("show", desk.younger, "--as", form).out
        full = desk.run("show", desk.younger, "--as", form, "--full").out

        assert ("beluga" in short, "beluga" in full) == (False, True), form


def test_what_a_project_spilled_lies_in_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every reader finds it there; the next session too; and it is removed with its session."""
    desk, project = Desk(tmp_path, monkeypatch), tmp_path / "tidepool"
    project.mkdir()
    journal = Journal(desk.home, durability="none", local=project)
    with journal.create(cwd=project, session="s1") as session:
        session.record("user", {"role": "user", "content": "print it"})
        use(session, "c1", "narwhal")
    path = str(project / ".transcripts" / "s1.jsonl")
    (file,) = (project / ".transcripts" / "spill" / "s1").iterdir()
    desk.run("sweep", "--root", f"thence={project}")

    assert not (desk.home / "spill").exists()
    assert 1 == len(desk.run("search", "--json", "narwhal").json["hits"])
    assert "narwhal" in desk.run("show", path, "--full").out
    assert "narwhal" in desk.run("export", path, "--as", "markdown").out
    assert large("narwhal") == journal.read_spill("s1", file.name).decode()
    with journal.resume("s1") as again:
        assert large("narwhal") == again.full_result(file.name).decode()
    journal.cleanup(max_sessions=0)
    assert not file.exists()


def test_what_a_project_spilled_into_the_home_before_is_still_read(tmp_path: Path) -> None:
    """Versions before wrote the side files of such a session into the home."""
    with Journal(tmp_path / "home", durability="none").create(session="s1") as session:
        use(session, "c1", "narwhal")
    (file,) = (tmp_path / "home" / "spill" / "s1").iterdir()
    shutil.rmtree(tmp_path / "home" / "sessions")
    local = Journal(tmp_path / "home", durability="none", local=tmp_path)
    with local.create(session="s1"):
        assert large("narwhal") == local.read_spill("s1", file.name).decode()


def test_a_damaged_side_file_is_not_taken_for_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor a link, nor a file that is named by something else than a hash."""
    desk = Desk(tmp_path, monkeypatch)
    with Journal(desk.home, durability="none").create(cwd="/x", session="s1") as session:
        session.record("user", {"role": "user", "content": "print it"})
        use(session, "c1", "narwhal")
    (path,) = (desk.home / "spill" / "s1").iterdir()
    path.write_text(large("porpoise"))
    desk.sweep()

    assert [] == desk.run("search", "--json", "porpoise").json["hits"]
    assert [] != desk.run("search", "--json", "print").json["hits"]


def test_the_model_gets_by_a_tool_what_a_placeholder_offers(desk: Spilled) -> None:
    """Part by part, from the session itself and from one that goes on from it."""
    older, _ = placeholder_names(desk)
    with Tools(Journal(desk.home)) as tools:
        for session in ("older", desk.younger):
            text = ""
            offset: int | None = 0
            while offset is not None:
                opts = {"session_id": session, "name": older, "offset": offset}
                part: Any = tools.call("read_spill", opts)
                text, offset = text + part["text"], part["next_offset"]

            assert large("narwhal") == text
            assert len(part["text"]) <= MAX_PART_CHARS
        for bad in ("../../etc/passwd", "0" * 64 + ".txt"):
            with pytest.raises(ThenceError):
                tools.call("read_spill", {"session_id": "older", "name": bad})
        with pytest.raises(ThenceError):
            tools.call("read_spill", {"session_id": "nobody", "name": older})
    assert "read_spill" in [tool["name"] for tool in definitions()]


def test_mcp_answers_what_a_placeholder_offers(desk: Spilled) -> None:
    """Framed and quoted, from the store alone; an ancestor's result is found as well."""
    from thence.cli import wiring
    from thence.cli.mcp import questions

    names = placeholder_names(desk)
    with wiring.store() as store:
        asking = questions(store)
        for name, word in zip(names, ("narwhal", "beluga"), strict=True):
            offset = large(word).index(word) - 100
            arguments = {"session": f"thence:{desk.younger}", "name": name, "offset": offset}
            answer = asking.answer("read_spill", arguments)

            assert f"| {word}" in answer
            assert "continue with offset" in answer.splitlines()[0]
        with pytest.raises(ThenceError):
            asking.answer("read_spill", {"session": desk.younger, "name": "0" * 64 + ".txt"})
