"""`thence brief`: what the next session in a repository is told, and that it stays data."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from tests.agents.transcripts import Script
from tests.cli.desk import Desk
from tests.serve.past import SPELL, evil, install_what_is_missing
from thence.cli import sample_machine


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine without sessions."""
    return Desk(tmp_path, monkeypatch)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository."""
    folder = tmp_path / "tidepool"
    (folder / ".git").mkdir(parents=True)
    (folder / "src").mkdir()
    return folder


def session(project: Path, name: str = "a1") -> Script:
    """A session that meets an error, gets over it, edits a file and leaves a to-do."""
    script = Script(f"{name}000000-0000-4000-8000-000000000001", name, cwd=str(project))
    script.user("Run the tide table.")
    install_what_is_missing(script)
    script.call("c4", "Edit", file_path=f"{project}/feed.py", old_string="a", new_string="b")
    script.result("c4", "The file has been updated.")
    todo = {"content": "Test Lord Howe", "status": "pending", "activeForm": "Testing"}
    script.call("c5", "TodoWrite", todos=[todo])
    script.result("c5", "ok")
    script.say("The table is right now.")
    return script


def hook_answer(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, payload: object, agent: str = "claude"
) -> str:
    """Return what the hook prints for what an agent gives it."""
    body = payload if isinstance(payload, str) else json.dumps(payload)
    monkeypatch.setattr(sys, "stdin", io.StringIO(body))
    ran = desk.run("brief", "--hook", agent)

    assert (0, "") == (ran.code, ran.err)
    return ran.out


def test_a_brief_tells_what_the_last_session_left(desk: Desk, project: Path) -> None:
    """Its end, its to-do, what helped against an error, what it changed, and a decision."""
    desk.write_claude(session(project))
    desk.sweep()
    desk.run("decide", "Windows are cut in UTC.", "--session", "a1000000")
    brief = desk.run("brief", str(project / "src"), "--json").json

    assert "Run the tide table." == brief["last"]["title"]
    assert ["Test Lord Howe"] == [todo["text"] for todo in brief["todos"]]
    assert ["Windows are cut in UTC."] == [item["text"] for item in brief["decisions"]]
    assert ["ran pip install tidal"] == brief["errors"][0]["helped"]
    assert ["feed.py"] == [path.rpartition("/")[2] for path in brief["files"]]
    for text in ("Test Lord Howe", "pip install tidal", "It ended with: The table is right now."):
        assert text in brief["text"]


def test_a_brief_is_of_one_repository_alone(desk: Desk, project: Path, tmp_path: Path) -> None:
    """A folder whose name begins alike is another one."""
    desk.write_claude(session(tmp_path / "tidepool-old"))
    desk.sweep()
    ran = desk.run("brief", str(project))

    assert f"no session in {project} is stored yet" == ran.out.strip()


def test_a_brief_keeps_to_its_length(desk: Desk, project: Path) -> None:
    """What does not fit is counted."""
    script = session(project)
    todos = [{"content": f"Do part {n} " + "x " * 90, "status": "pending"} for n in range(40)]
    script.call("c9", "TodoWrite", todos=todos)
    script.result("c9", "ok")
    desk.write_claude(script)
    desk.sweep()
    text = desk.run("brief", str(project), "--tokens", "150").out

    assert len(text) <= 150 * 4 + 1
    assert "more lines omitted" in text


def test_a_hook_gets_the_brief_as_additional_context(
    desk: Desk, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, framed; the session that starts is not told of itself."""
    desk.write_claude(session(project))
    desk.write_claude(session(project, "b2"))
    desk.sweep()
    payload = {
        "hook_event_name": "SessionStart",
        "cwd": str(project),
        "session_id": "b2000000-0000-4000-8000-000000000001",
    }
    answer = json.loads(hook_answer(desk, monkeypatch, payload))["hookSpecificOutput"]

    assert "SessionStart" == answer["hookEventName"]
    assert 1 == answer["additionalContext"].count("end of data]")
    assert "id claude:a1000000" in answer["additionalContext"]


@pytest.mark.parametrize("setting", ["exclude", "brief.skip"])
def test_an_excluded_project_gets_no_brief(
    desk: Desk, project: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    """Neither one that is never captured nor one for which briefs are off."""
    desk.write_claude(session(project))
    desk.sweep()
    (desk.home / "config.toml").write_text(f'session_memory.{setting} = ["{project}"]\n')

    assert "" == hook_answer(desk, monkeypatch, {"cwd": str(project), "session_id": "x"})


@pytest.mark.parametrize("payload", ["", "[]", "{", '{"cwd": 7}', '{"cwd": "\\u0000"}', "null"])
def test_a_hook_is_never_disturbed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, payload: str
) -> None:
    """Whatever it is given, and with no store: no word and no error."""
    assert "" == hook_answer(desk, monkeypatch, payload)


def test_what_a_session_says_stays_in_the_frame(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session full of orders and fake frames becomes lines of data; its secret is redacted."""
    script = evil()
    desk.write_claude(script)
    desk.sweep()
    folder = "/home/dev/" + SPELL.replace("/", "-")
    out = hook_answer(desk, monkeypatch, {"cwd": folder, "session_id": "x"})
    text = json.loads(out)["hookSpecificOutput"]["additionalContext"]
    first, *lines, last = text.split("\n")
    boundary = first[1:17]

    assert f"[{boundary} end of data]" == last
    assert not any(boundary in line or line.startswith("[") for line in lines)
    assert sample_machine.fake_token() not in text
    assert text.isprintable() or all(line.isprintable() for line in [first, *lines, last])
