"""What is told of agents beside their sessions passes the gate, too.

Mirrors no module: names of files that are not read, or deleted soon, what a client waits for, and
where a repository was cloned from. None of it stands in a log.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from tests.agents.transcripts import Script, usage
from tests.cli.desk import ALERTS, WINDOWS, Desk
from tests.cli.test_home import runs
from tests.secrets import sample
from tests.serve.conftest import House

TOKEN = sample("ghp" + "_{A36}")
MARK = "[REDACTED:github-token"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine without sessions."""
    return Desk(tmp_path, monkeypatch)


def put(
    desk: Desk, folder: str, rest: str = "", *, cwd: str = "/w/tide", session: str = WINDOWS
) -> Path:
    """Write a session of Claude Code into a project's folder of this name."""
    script = Script(session, "r", cwd=cwd)
    script.user("Look at the tides.")
    script.say("Done.", usage=usage(1))
    path = desk.claude / "projects" / folder / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in script.records) + rest)
    return path


def served(desk: Desk, *pages: str) -> str:
    """Return what the server answers."""
    house = House(desk.user)
    with closing(house), house.serving():
        return "".join(house.ask(page).body.decode() for page in pages)


def printed(desk: Desk, *commands: str) -> str:
    """Return what some commands print, on a wide terminal and as JSON."""
    words = [[*command.split(), *more] for command in commands for more in ([], ["--json"])]
    runs = [desk.run(*some, columns=300) for some in words]
    return "\n".join(f"{ran.out}{ran.err}" for ran in runs)


def test_files_with_skipped_lines_are_named_without_secrets(desk: Desk) -> None:
    """In the form with dashes, too, where the session says in which folder it is."""
    dashed = TOKEN.replace("_", "-")
    put(desk, f"-w-{TOKEN}", '{"torn": \n')
    lines = desk.run("sweep", columns=300).out
    put(desk, f"-w-{dashed}", '{"torn": \n', cwd=f"/w/{TOKEN}", session=ALERTS)
    values = desk.run("sweep", "--json").out
    text = lines + values

    assert MARK in lines
    assert MARK in values
    assert TOKEN[:12] not in text
    assert dashed[:12] not in text


@pytest.mark.skipif(os.name != "posix", reason="links need rights elsewhere")
def test_what_is_not_read_is_named_without_secrets(desk: Desk) -> None:
    """By whoever looks: before a sweep, in it and after it."""
    link = desk.claude / "projects" / f"-w-{TOKEN}" / f"{WINDOWS}.jsonl"
    link.parent.mkdir(parents=True)
    link.symlink_to(put(desk, "-w-tide").rename(desk.user / "elsewhere.jsonl"))
    looks = "sweep -n", "doctor", "status"
    text = printed(desk, *looks, "sweep", *looks)

    assert 8 <= text.count(MARK)
    assert TOKEN[:12] not in text


def test_what_is_deleted_soon_is_named_without_secrets(desk: Desk) -> None:
    """On the command line, and wherever the server tells of it, which imports it at once."""
    put(desk, "-w-tide", session=ALERTS)
    desk.sweep()
    path = put(desk, f"-w-{TOKEN}")
    old = time.time() - timedelta(days=26).total_seconds()
    os.utime(path, (old, old))
    text = printed(desk, "status", "ls --at-risk", "")
    with closing(House(desk.user)) as house:
        risks = repr(house.context.risks())

    assert 4 <= text.count(MARK)
    assert MARK in risks
    assert TOKEN[:12] not in text + risks


def test_what_a_client_waits_for_is_told_without_secrets(desk: Desk) -> None:
    """On the command line, over HTTP and on pages."""
    put(desk, "-w-tide")
    desk.sweep()
    runs(desk, WINDOWS, status="waiting", waitingFor=f"run curl -H 'X-Key: {TOKEN}'")
    text = printed(desk, "status", "")
    answers = served(desk, "/", "/api/now", f"/sessions/claude:{WINDOWS}")

    assert MARK in text
    assert 3 <= answers.count(MARK)
    assert TOKEN[:12] not in text + answers


def test_what_is_noted_of_repositories_has_no_secrets(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither where one was cloned from nor where it is; other machines are told of both."""
    places = [desk.user / "tide", desk.user / TOKEN / "tide"]
    for place in places:
        (place / ".git" / "objects").mkdir(parents=True)
        (place / ".git" / "refs").mkdir()
        (place / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        url = f'[remote "origin"]\n\turl = https://host/{TOKEN}/tide.git\n'
        (place / ".git" / "config").write_text(url)
    put(desk, "-w-tide", cwd=str(places[0]))
    desk.sweep()
    monkeypatch.chdir(places[1])
    desk.run("resume", "--json")
    body = (desk.home / "folders.json").read_text()

    assert MARK in body
    assert TOKEN[:12] not in body
