"""No text of a log reaches a terminal as anything but text, whatever command shows it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import threading

import pytest

from tests import hostile
from tests.cli.desk import in_process
from tests.processes import run_thence
from thence.cli.sample_machine import Homes, homes

pytestmark = pytest.mark.slow

PAYLOADS = (
    "\x1b]0;owned\x07",
    "\x1b]52;c;ZXZpbA==\x07",
    "\x1b]8;;http://evil.example/\x1b\\link\x1b]8;;\x1b\\",
    "\x1b[2J\x1b[H",
    "\x1b[38;5;201mpink",
    "\x1b[?1049h",
    "\x1bP$q\x1b\\",
    "\x9b2J\x9d0;owned\x9c",
    "\x07\x08\x7f",
    "\u202egnirts\u2066\u2069\u200f",
    "\U000e0041\U000e0042\U000e007f",
    "\x00nul",
    "line\rover\x0bdown\x0cfeed\x85next\u2028sep",
)
"""Titles, clipboard, links, clearing, colours, modes, C1, bells, direction, tags, NUL."""

OURS = re.compile(r"\x1b\[(?!38;5;201)[0-9;]*m|\r\x1b\[2K")
"""Colours and the line of progress, the only escapes that commands print themselves."""

FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\U000e0000-\U000e007f]|\r(?!\n)"
)

EVERYWHERE = (
    ("ls",),
    ("ls", "--all"),
    ("search", "gauge OR owned OR clock"),
    ("search", "kind:decision"),
    ("cost", "--by", "model"),
    ("cost", "--by", "project"),
    ("cost", "--by", "session"),
    ("signals",),
    ("patterns",),
    ("todos",),
    ("files", "api.py"),
    ("history",),
    ("decide",),
    ("note",),
    ("sql", "select * from sessions"),
    ("sql", "select * from events limit 200"),
    ("gc", "-n"),
    ("doctor",),
    (),
)
"""Commands that read, over all sessions."""

OF_ONE = (
    ("show", "{}"),
    ("show", "{}", "--branch", "all", "--full"),
    ("show", "{}", "--as", "messages"),
    ("show", "{}", "--as", "events"),
    ("show", "{}", "--as", "markdown"),
    ("show", "{}", "--as", "html"),
    ("tree", "{}"),
    ("tree", "{}", "--json"),
    ("digest", "{}"),
    ("inspect", "{}"),
    ("handoff", "{}", "--to", "codex", "-n"),
    ("resume", "{}"),
    ("rewind", "{}"),
)
"""Commands that read one session. The forms of `thence export` are tested beside that command."""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Homes:
    """A machine whose logs of three agents, decisions and notes hold nothing but escapes."""
    folder = tmp_path_factory.mktemp("escapes")
    hostile.plant(folder, ("claude", "codex", "grok"), PAYLOADS, 1)
    made = homes(folder)
    made.work.mkdir()
    shown(made, "sweep")
    for payload in PAYLOADS:
        words = payload.replace("\x00", "").encode("utf-8", "replace").decode()
        for command, text in (("decide", "decided"), ("note", "noted")):
            in_process(command, f"x {words} {text}", env=environment(made))
    return made


def environment(machine: Homes) -> dict[str, str]:
    """Return what a terminal of this machine has set."""
    return {
        **machine.env,
        "HOME": str(machine.work.parent),
        "PATH": os.environ["PATH"],
        "TERM": "xterm-256color",
        "PAGER": "cat",
        "COLUMNS": "120",
        "LANG": "C.UTF-8",
    }


def shown(machine: Homes, *arguments: str) -> str:
    """Run a command on a terminal and return all that reached it."""
    main, terminal = pty.openpty()
    parts: list[bytes] = []
    reader = threading.Thread(target=_read, args=(main, parts))
    reader.start()
    run_thence(*arguments, env=environment(machine), terminal=os.ttyname(terminal))
    os.close(terminal)
    reader.join()
    os.close(main)
    return b"".join(parts).decode("utf-8", "replace")


def _read(main: int, parts: list[bytes]) -> None:
    """Read until nobody has the other end open."""
    with contextlib.suppress(OSError):
        while part := os.read(main, 65_536):
            parts.append(part)


def harmful(text: str) -> list[str]:
    """Return what a terminal would obey, each with what stands around it."""
    text = OURS.sub("", text)
    return [repr(text[max(m.start() - 30, 0) : m.end() + 30]) for m in FORBIDDEN.finditer(text)]


@pytest.mark.parametrize("arguments", EVERYWHERE, ids=" ".join)
def test_no_list_lets_an_escape_through(machine: Homes, arguments: tuple[str, ...]) -> None:
    """Every command that reads all sessions, on a terminal."""
    text = shown(machine, *arguments)

    assert [] == harmful(text)
    assert "Traceback" not in text
    assert text.strip()


@pytest.mark.parametrize("arguments", OF_ONE, ids=" ".join)
def test_no_session_lets_an_escape_through(machine: Homes, arguments: tuple[str, ...]) -> None:
    """Every command that reads one session, for a session of each agent."""
    folders = (machine.claude, machine.codex, machine.grok)
    names = ("projects/*/*.jsonl", "**/rollout-*.jsonl", "**/updates.jsonl")
    for folder, name in zip(folders, names, strict=True):
        path = max(folder.glob(name), key=lambda path: path.stat().st_size)
        session = path.parent.name if path.stem == "updates" else path.stem[-36:]
        text = shown(machine, *(argument.format(session) for argument in arguments))

        assert [] == harmful(text)
        assert "Traceback" not in text
        assert text.strip()
        if arguments[0] in ("show", "tree"):
            assert "no session" not in text


def test_a_terminal_would_have_obeyed(machine: Homes) -> None:
    """The payloads are in the logs, and the test sees them when nothing makes them harmless."""
    logs = [*machine.claude.rglob("*.jsonl"), *machine.codex.rglob("*.jsonl")]
    body = "".join(path.read_text() for path in [*logs, *machine.grok.rglob("*.jsonl")])

    for payload in PAYLOADS:
        assert json.dumps(payload)[1:-1] in body
        assert harmful(payload)
