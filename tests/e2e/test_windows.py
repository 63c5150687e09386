"""A Windows Python under Wine imports, searches and shows what one on this system does.

`make windows` brings both. Wine is not Windows: what passes here is likely to work there, no more.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.conftest import ROOT
from thence.agents.claude.sample import SampleTranscript
from thence.cli import sample_machine
from thence.cli.sample_machine import Homes

WINE = Path("/usr/lib/wine/wine64")
FOLDER = ROOT / ".venv" / "windows"
START = "import os, sys; os.environ.update(USERPROFILE=sys.argv[1]); del sys.argv[1]; {}"
"""Wine gives each program its own idea of the user's folder."""
EVENTS = """
SELECT s.uid, e.event_id, e.ts, e.kind, e.state, e.tool, e.tokens, e.derived, e.implied, e.seq
FROM events e JOIN sessions s ON s.id = e.session
"""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not (FOLDER / "ready").exists(), reason="no Wine: make windows brings it"),
]


class Machine:
    """Made-up sessions of all agents, seen by a program on Windows and by one on this system."""

    def __init__(self, folder: Path) -> None:
        self.homes = sample_machine.write(folder, datetime.now(UTC))
        shutil.rmtree(self.homes.thence)  # what a journal recorded, which Windows cannot
        self.folder = folder

    def here(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command on this system."""
        env = os.environ | {"HOME": str(self.folder), "THENCE_HOME": str(self.folder / "linux")}
        command = [sys.executable, "-m", "thence", *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    def start(self, *words: str, code: str = "") -> subprocess.Popen[str]:
        """Start a command on Windows."""
        run = START.format(code or "from thence.__main__ import main; main()")
        python = str(FOLDER / "python" / "cp311" / "python.exe")
        return subprocess.Popen(
            [str(WINE), python, "-X", "utf8", "-c", run, f"Z:{self.folder}", *words],
            env=os.environ
            | {
                "THENCE_HOME": f"Z:{self.folder}/windows",
                "WINEPREFIX": str(FOLDER / "prefix"),
                "WINEDEBUG": "-all",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",  # a program that was started by another writes as its console does
        )

    def there(self, *words: str, code: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command on Windows."""
        process = self.start(*words, code=code)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def events(self, system: str) -> set[tuple[Any, ...]]:
        """Return what the store of a system has."""
        store = apsw.Connection(str(self.folder / system / "memory" / "thence.db"))
        return set(store.execute(EVENTS))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Return a machine whose sessions both systems have imported."""
    made = Machine(tmp_path_factory.mktemp("machine"))
    for run in (made.here, made.there):
        done = run("sweep", "--json")
        assert (0, "") == (done.returncode, done.stderr)
    return made


def grow(homes: Homes) -> None:
    """Let a session begin, and be written after the first import."""
    log = SampleTranscript("later", homes.work / "tidepool", datetime.now(UTC))
    log.prompt("Is the barometer right?")
    log.text("It is.")
    log.save(homes.claude)


def test_both_systems_import_the_same(machine: Machine) -> None:
    """Every event of every agent, at first and when there is more."""
    first = machine.events("linux")

    assert first == machine.events("windows")
    assert 14 < len({event[0].split(":")[0] for event in first})

    grow(machine.homes)
    for run in (machine.here, machine.there):
        run("sweep")

    assert machine.events("linux") == machine.events("windows")
    assert len(first) < len(machine.events("linux"))


@pytest.mark.parametrize(
    "words", ["cost --by agent --tz Europe/Lisbon --json", "search clock --json", "ls --json"]
)
def test_both_systems_answer_the_same(machine: Machine, words: str) -> None:
    """Costs, matches and lists; paths and times of the import aside."""
    answers = [run(*words.split()) for run in (machine.here, machine.there)]
    here, there = (plain(json.loads(answer.stdout)) for answer in answers)

    assert here == there


def plain(value: Any) -> Any:
    """Leave out of an answer what differs from machine to machine."""
    own = {"source_path", "path", "discovered_at", "ingested_at", "analyzed_at", "ms", "seconds"}
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items() if name not in own}
    if isinstance(value, str):
        return value.removeprefix("Z:").replace("\\", "/")
    return [plain(part) for part in value] if isinstance(value, list) else value


@contextlib.contextmanager
def viewer(machine: Machine) -> Iterator[str]:
    """Run the viewer on Windows, and yield the link that signs in."""
    process = machine.start("serve", "--no-open", "--port", "0")
    assert process.stdout is not None
    try:
        text = ""
        while "http" not in text:
            text = process.stdout.readline()
        yield text.strip()
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_the_viewer_shows_a_session(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list, a search and the page of a session, after signing in."""
    look_up = socket.getaddrinfo  # browsers look up names below localhost themselves
    monkeypatch.setattr(socket, "getaddrinfo", lambda _host, *rest: look_up("127.0.0.1", *rest))
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    with viewer(machine) as link:
        browser.open(link).read()
        host = link.partition("/enter")[0]
        listed = browser.open(f"{host}/sessions?q=clock").read().decode()
        session = re.search(r'href="(/sessions/claude:[\w-]+)', listed)
        assert session is not None
        page = browser.open(f"{host}{session[1]}").read().decode()

    assert "clock" in page


def test_the_demo_can_be_looked_around_in(machine: Machine) -> None:
    """It leaves a command that lives there."""
    made = machine.there("demo", "--dir", f"Z:{machine.folder}/demo", "--json")
    command = json.loads(made.stdout)["command"]
    listed = machine.there(code=f"import subprocess; subprocess.run([{command!r}, 'ls'])")

    assert command.endswith("thence.cmd")
    assert "tide table" in listed.stdout


def test_what_windows_lacks_is_said(machine: Machine) -> None:
    """In one sentence, with a way out, and without a traceback; doctor says what is untested."""
    refused = machine.there("setup", "--yes")
    journal = machine.there(code="import thence; thence.Journal")
    doctor = machine.there("doctor")

    assert (2, 1) == (refused.returncode, journal.returncode)
    assert "does not work on Windows itself" in refused.stderr
    assert "NotSupported: the journal does not work on Windows itself" in journal.stderr
    assert "Windows is untested" in doctor.stdout
    assert "check failed" not in doctor.stdout
