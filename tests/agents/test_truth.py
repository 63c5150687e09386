"""The commands against programs that know nothing of this code: what is in files, what was sent.

`check_truth.py` counts records, links, calls and tokens in its own way; `check_sent.py` holds
against a transcript what the real client sent to the API. Here both run the command as a user
does, once per file; in `make prove` each in a process of its own. `test_inspect` and
`test_claude_data` ask the same questions every day.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.cli.desk import in_process
from tests.independent import tool
from tests.pace import PROVING
from tests.processes import run_thence

pytestmark = [
    # The programs leave files to the collector.
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NEVER_SENT = "v2.0.76/tui_history_checkpoints"
"""The session with one text more than was sent: the last command's caveat, not yet sent on."""

CLIENT_ADDS = ("assistant", "No response requested.")
"""What 2.1.325 puts between an interrupted turn and the next prompt; no log holds it."""


def run(shared: Path, name: str, command: str, folder: str) -> tuple[int, list[str]]:
    """Run one of the independent programs on the real command: its exit code, what it said."""
    program = tool(shared, name)
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setattr(program, "subprocess", _Commands)
        asked = ["--cmd", f"thence {command}", str(shared / "data" / folder)]
        patch.setattr(sys, "argv", [name, *asked])
        code = program.main()
    return int(code), out.getvalue().splitlines()


_TURN = threading.Lock()


def run_command(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a thence command; `make prove` gives each a process of its own."""
    if PROVING:
        return run_thence(*words)
    with _TURN:
        ran = in_process(*words, env=os.environ)
    return subprocess.CompletedProcess(words, ran.code, ran.out, ran.err)


class _Commands:
    """Takes the place of `subprocess` in the programs."""

    @staticmethod
    def run(command: list[str], **_options: object) -> subprocess.CompletedProcess[str]:
        """Run a thence command."""
        return run_command(*command[1:])


# -- what is in the files -------------------------------------------------------------------


@pytest.mark.slow
def test_inspect_counts_what_is_in_the_files(
    shared: Path, record_property: Callable[[str, object], None]
) -> None:
    """R4, R7, D3, U1: records, links, calls and tokens of every file, bad lines included."""
    code, lines = run(shared, "check_truth", "inspect {file} --json", "public")
    record_property("files", 172)

    assert (0, ["172 files equal, 0 different"]) == (code, lines)


# -- what was sent --------------------------------------------------------------------------


@pytest.mark.slow
def test_show_gives_the_history_that_was_sent(shared: Path) -> None:
    """D5, D11, D14: 49 of 50 sessions are what the client sent; the fiftieth is known."""
    _, lines = run(shared, "check_sent", "show {file} --as messages --json", "claude-code")

    assert "49 sessions equal, 1 different" == lines[-1]
    assert [True] == [NEVER_SENT in line for line in lines[:-1]]


@pytest.mark.slow
def test_show_gives_a_crashed_session_as_its_next_request_had_it(shared: Path) -> None:
    """A1, D11, L7: before the resume all is there that was sent after it, but the new prompt."""
    check = tool(shared, "check_sent")
    paths = sorted((shared / "data" / "claude-code").glob("*/*/before_resume/projects/*/*.jsonl"))
    logs = [path for path in paths if not path.name.startswith("agent-")]
    added: set[tuple[str, ...]] = set()
    for path in logs:
        mine, sent = check.keys(shown(path)), requests(check, path)
        after = next(keys for keys in sent if any(key[0] == "user" for key in keys - mine))
        added |= after - mine

        assert set() == mine - after, path

    assert 4 <= len(logs)
    assert {("user", "Go on please."), ("user", "Still there?"), CLIENT_ADDS} == added


def shown(path: Path) -> Any:
    """What the command shows of a session; older clients left open calls behind."""
    orphans = "answer" if "v2.1.325" in path.parts else "drop"
    asked = ["show", str(path), "--as", "messages", "--json", "--orphans", orphans]
    return json.loads(run_command(*asked).stdout)


def requests(check: ModuleType, path: Path) -> list[set[tuple[str, ...]]]:
    """What the requests of one session held, in the order in which they were sent."""
    keys: Callable[[Any], set[tuple[str, ...]]] = check.keys
    sent = (path.parents[3] / "api_messages.jsonl").read_text(encoding="utf-8").splitlines()
    requested = (json.loads(line) for line in sent)
    return [
        keys(r["messages"]) for r in requested if (r["kind"], r["session"]) == ("main", path.stem)
    ]
