"""Packages of other people that break: each costs its own part, is named, and all else goes on.

Real distributions on the path of a real process, as pip would leave them.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.desk import Desk, alerts
from tests.processes import run_thence

READER = """
from pathlib import Path
from thence.agents import Batch, Cursor, File, Source

class Reader:
    name = "acme"
    def roots(self, home, env): return [home / ".acme"]
    def find(self, root): yield Source("acme", "s1", (File(str(root / "a.log")),), str(root))
    def at(self, path): return None
    def read(self, source, cursor=None): return Batch([], [], Cursor())
    def live(self, root): return iter(())
    def prompts(self, root): return iter(())
    def keeps_days(self, root): return None
"""

DIGESTER = """
class Reader:
    name = "acme"
    def digest(self, course, row): {}
"""

READERS = {
    "import raises": ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
    "import exits": ("import sys; sys.exit(5)", "ended the process with 5"),
    "no such class": ("x = 1", "Reader"),
    "init exits": ("class Reader:\n    def __init__(self): raise SystemExit", "ended the process"),
    "lacks methods": ("class Reader:\n    name = 'acme'", "lacks a method of the protocol"),
    "taken name": (READER.replace('name = "acme"', 'name = "claude"'), "is called claude"),
    "roots exit": (READER + "    def roots(self, home, env): raise SystemExit(0)", "ended the"),
    "roots are junk": (READER + "    def roots(self, home, env): return 7", "TypeError"),
    "find raises": (READER + "    def find(self, root): raise OSError('gone')", "OSError: gone"),
    "find exits": (READER + "    def find(self, root):\n        yield from exit(9)", "with 9"),
    "find gives junk": (
        READER + "    def find(self, root): yield 'a session'",
        "Expected `object`",
    ),
    "live exits": (READER + "    def live(self, root): exit(9)", None),
}


def install(place: Path, group: str, body: str) -> None:
    """Leave a package as pip does: a module, and what it offers."""
    place.mkdir()
    (place / "acme_tools.py").write_text(body, encoding="utf-8")
    info = place / "acme_tools-1.4.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-tools\nVersion: 1.4\n")
    (info / "entry_points.txt").write_text(f"[{group}]\nacme = acme_tools:Reader\n")


def thence(place: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, with the package installed."""
    env = {**os.environ, "PYTHONPATH": str(place), "COLUMNS": "200", **more}
    return run_thence(*arguments, env=env, path=[place])


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine with one session of Claude Code, and a folder of the other agent."""
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(alerts())
    (desk.user / ".acme").mkdir()
    (desk.user / ".acme" / "a.log").write_text("x\n", encoding="utf-8")
    return desk


def findings(ran: subprocess.CompletedProcess[str]) -> list[Any]:
    """What the doctor says of packages."""
    return [
        finding for finding in json.loads(ran.stdout)["findings"] if finding["topic"] == "packages"
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("desk")
@pytest.mark.sampled(3)
@pytest.mark.parametrize(("body", "why"), READERS.values(), ids=READERS)
def test_a_broken_reader_is_left_out_and_named(tmp_path: Path, body: str, why: str | None) -> None:
    """Sessions of other agents are kept; sweep, its JSON and doctor say which package, and why."""
    place = tmp_path / "site"
    install(place, "thence.agents", body)
    swept = thence(place, "sweep")
    again = thence(place, "sweep", "--json")
    strict = thence(place, "sweep", "--strict")
    listed = thence(place, "ls", "--json")
    looked = thence(place, "doctor", "--json")

    assert "" == swept.stderr == looked.stderr
    assert 0 == swept.returncode == again.returncode
    assert ["claude:" + alerts().session] == [
        row["session_uid"] for row in json.loads(listed.stdout) if row["flavor"] == "claude"
    ]
    problems = json.loads(again.stdout)["problems"]
    if why is None:
        assert ([], []) == (problems, findings(looked))
        return
    assert [("thence.agents", "acme", "acme-tools 1.4")] == [
        (problem["group"], problem["name"], problem["package"]) for problem in problems
    ]
    assert why in problems[0]["why"]
    assert "agent acme of acme-tools 1.4 is not used" in swept.stdout
    assert 3 == strict.returncode
    [finding] = findings(looked)
    assert ("warning", True) == (finding["level"], why in finding["words"])


@pytest.mark.usefixtures("desk")
@pytest.mark.parametrize("how", ["raise ValueError('bad line')", "exit(4)", "return None"])
def test_a_reader_that_fails_at_a_session_costs_that_session(tmp_path: Path, how: str) -> None:
    """It is told as not read, and the sweep ends with 3; the others are kept."""
    place = tmp_path / "site"
    install(place, "thence.agents", f"{READER}    def read(self, source, cursor=None): {how}\n")
    swept = thence(place, "sweep", "--json")
    answer = json.loads(swept.stdout)

    assert (3, "") == (swept.returncode, swept.stderr)
    assert (1, 1) == (answer["failed"], answer["sessions_new"])
    assert ["acme:s1"] == [
        outcome["uid"] for outcome in answer["outcomes"] if outcome["what"] == "failed"
    ]
    assert ["acme"] == [problem["name"] for problem in answer["problems"]]


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.usefixtures("desk")
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("raise RuntimeError('no licence')", "no licence"),
        ("import sys; sys.exit(5)", "ended the process with 5"),
        ("class Reader: pass", "lacks a name"),
        (DIGESTER.replace("{}", "exit(3)"), "ended the process with 3"),
        (DIGESTER.replace("{}", "raise KeyError('x')"), "KeyError"),
        (DIGESTER.replace('"acme"', '"thence"'), "is called thence"),
    ],
)
def test_a_broken_digester_is_left_out_and_named(tmp_path: Path, body: str, why: str) -> None:
    """Sessions are kept and digested by ours."""
    place = tmp_path / "site"
    install(place, "thence.digesters", body)
    swept = thence(place, "sweep", "--json")
    answer = json.loads(swept.stdout)
    digest = thence(place, "digest", alerts().session, "--json")

    assert (0, "") == (swept.returncode, swept.stderr)
    assert (1, 1) == (answer["sessions_new"], answer["digested"])
    assert [("thence.digesters", "acme")] == [(p["group"], p["name"]) for p in answer["problems"]]
    assert why in answer["problems"][0]["why"]
    assert 0 == digest.returncode


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.usefixtures("desk")
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("raise RuntimeError('no licence')", "no licence"),
        ("import sys; sys.exit(5)", "ended the process with 5"),
        ("class Reader:\n    def __init__(self, url): pass", "it lacks"),
        ("class Reader:\n    def __init__(self, url): exit(6)", "ended the process with 6"),
    ],
)
def test_a_broken_store_is_an_error_only_where_it_is_asked_for(
    tmp_path: Path, body: str, why: str
) -> None:
    """Ours is used as ever; theirs, where it is set, ends with 2, its name and the reason."""
    place = tmp_path / "site"
    install(place, "thence.stores", body)
    ours = thence(place, "sweep", "--json")
    theirs = thence(place, "sweep", THENCE_STORE="acme://x")
    looked = thence(place, "doctor", "--json")

    assert (0, 1) == (ours.returncode, json.loads(ours.stdout)["sessions_new"])
    assert (2, "") == (theirs.returncode, theirs.stdout)
    assert "the store acme (acme_tools:Reader) cannot be opened" in theirs.stderr
    assert why in theirs.stderr
    assert "Traceback" not in theirs.stderr
    if not body.startswith("class"):
        assert [True] == [why in finding["words"] for finding in findings(looked)]
