"""The screen: colour, marks and pager are decided in one place, and told in one order."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.desk import Desk, alerts
from thence.cli import screen
from thence.cli.terminal import columns

ENTRY = [sys.executable, "-c", "from thence.cli import main; main()"]


def terminal(*arguments: str, rows: int = 10, **env: str) -> tuple[int, str]:
    """Run a command on a real terminal of so many rows, with nothing else in its environment."""
    ours, theirs = pty.openpty()
    bare = {"PATH": os.environ["PATH"], "TERM": "xterm", "LANG": "C.UTF-8", "TZ": "UTC"}
    size = {"COLUMNS": "80", "LINES": str(rows), "LESSHISTFILE": "-"}
    with subprocess.Popen(
        [*ENTRY, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=bare | size | env
    ) as process:
        os.close(theirs)
        output = b""
        while part := _read(ours):
            output += part
    os.close(ours)
    return process.returncode, output.decode("utf-8", "replace").replace("\r\n", "\n")


def _read(handle: int) -> bytes:
    try:
        return os.read(handle, 65536)
    except OSError:  # how a terminal says that nobody is left on its other side
        return b""


# -- the pager --------------------------------------------------------------------------------


@pytest.fixture
def pager(tmp_path: Path) -> Path:
    """A pager that says who it is."""
    path = tmp_path / "pager"
    path.write_text("#!/bin/sh\necho PAGED\ncat\n")
    path.chmod(0o755)
    return path


@pytest.mark.slow
def test_what_is_longer_than_the_screen_goes_through_the_pager(pager: Path) -> None:
    """Ours before everybody's; short answers do not."""
    long = terminal("show", "--sample", THENCE_PAGER=str(pager), PAGER="false")
    short = terminal("show", "--sample", rows=99, THENCE_PAGER=str(pager))

    assert (0, True) == (long[0], long[1].startswith("PAGED\n"))
    assert "skipped line 30" in long[1]
    assert short == (0, long[1].removeprefix("PAGED\n"))
    assert terminal("show", "--sample", PAGER=str(pager)) == long


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "env"),
    [
        (["--no-pager", "show", "--sample"], {}),
        (["show", "--sample", "--no-pager"], {}),
        (["show", "--sample"], {"THENCE_PAGER": ""}),
        (["show", "--sample"], {"THENCE_PAGER": "cat"}),
        (["show", "--sample"], {"TERM": "dumb"}),
    ],
    ids=["before", "after", "empty", "cat", "dumb"],
)
def test_no_pager_where_none_is_wanted(
    pager: Path, arguments: list[str], env: dict[str, str]
) -> None:
    """Whichever way that is said."""
    env = {"THENCE_PAGER": str(pager)} | env
    code, output = terminal(*arguments, rows=10, **env)

    assert (0, False) == (code, "PAGED" in output)
    assert "skipped line 30" in output


@pytest.mark.slow
def test_a_pager_that_is_not_there_is_done_without() -> None:
    """The answer is printed all the same."""
    code, output = terminal("show", "--sample", THENCE_PAGER="/nowhere/at/all")

    assert 0 == code
    assert "skipped line 30" in output


@pytest.mark.slow
def test_a_reader_who_has_seen_enough_may_leave(tmp_path: Path) -> None:
    """A pager that ends early is no error, however much there was to say."""
    path = tmp_path / "pager"
    path.write_text("#!/bin/sh\nread line\necho SEEN\n")
    path.chmod(0o755)
    code, output = terminal("show", "--sample", "--full", THENCE_PAGER=str(path))

    assert (0, "SEEN") == (code, output.strip())


@pytest.mark.slow
def test_never_a_pager_without_a_terminal(pager: Path) -> None:
    """A pipe gets the answer itself."""
    done = subprocess.run(
        [*ENTRY, "show", "--sample"],
        env={"PATH": os.environ["PATH"], "LINES": "5", "THENCE_PAGER": str(pager)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert "PAGED" not in done.stdout


# -- colour -----------------------------------------------------------------------------------


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("option", "env", "tty", "expected"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"FORCE_COLOR": "0"}, False, False),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
        ("auto", {"TERM": "dumb"}, True, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_colour_is_decided_in_one_order(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    env: dict[str, str],
    *,
    tty: bool,
    expected: bool,
) -> None:
    """The option, then NO_COLOR, then FORCE_COLOR, then whether a terminal listens."""
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(alerts())
    desk.sweep()
    for name in ("FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    before = desk.run("--color", option, "ls", tty=tty)
    after = desk.run("ls", "--color", option, tty=tty)

    assert expected == ("\x1b[" in before.out)
    assert before.out == after.out


# -- marks ------------------------------------------------------------------------------------


def test_ascii_marks_are_one_for_one() -> None:
    """So that columns stay where they are."""
    for mark, plain in screen._ASCII.items():
        assert 1 == columns(chr(mark))
        assert chr(plain).isascii()


@pytest.mark.parametrize(
    "arguments", [["show", "--sample"], ["show", "--sample", "--json"]], ids=str
)
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_stream_that_knows_no_utf8_gets_what_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], encoding: str
) -> None:
    """Every command's marks, and JSON that means the same."""
    desk = Desk(tmp_path, monkeypatch)
    known = desk.run(*arguments)
    ran = desk.run(*arguments, encoding=encoding)

    assert 0 == ran.code
    assert ran.out.isascii()
    if "--json" in arguments:
        assert known.json == ran.json
    else:
        assert "o    ran pytest -q tests" in ran.out
        assert len(known.lines) == len(ran.lines)
