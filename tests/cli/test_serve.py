"""`thence serve`: from the command to the first answer, in a process of its own."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

LONG = 60.0


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A user without anything."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("THENCE", "CLAUDE", "CODEX"))}
    return kept | {"HOME": str(tmp_path), "THENCE_HOME": str(tmp_path / "home"), "COLUMNS": "80"}


def started(env: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    """Run the command."""
    program = [sys.executable, "-c", "from thence.cli import main; main()", "serve", *arguments]
    return subprocess.Popen(
        program, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture
def served(env: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """A server, and what it told about itself."""
    process = started(env, "--port", "0", "--no-open", "--token", "--json")
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr and process.stderr.read()
    yield process, json.loads(line)
    if process.poll() is None:
        process.kill()
    process.communicate()


@pytest.mark.slow
def test_it_tells_where_it_is_answers_and_ends_when_told(
    served: tuple[subprocess.Popen[str], dict[str, str]],
) -> None:
    """Without anything kept yet; Ctrl-C ends it without a word."""
    process, told = served
    link = http.client.HTTPConnection("127.0.0.1", int(told["port"]), timeout=LONG)
    link.request("GET", "/api/sessions", headers={"Authorization": f"Bearer {told['token']}"})
    answer = link.getresponse()
    body = json.loads(answer.read())
    link.close()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LONG)

    assert (200, []) == (answer.status, body["sessions"])
    assert told["url"].startswith(f"http://127.0.0.1:{told['port']}/enter?ticket=")
    assert "" == err.strip()


def _entered(url: str) -> int:
    """Follow a URL as a browser does."""
    where = urlsplit(url)
    link = http.client.HTTPConnection(where.hostname or "", where.port, timeout=LONG)
    link.request("GET", f"{where.path}?{where.query}")
    status = link.getresponse().status
    link.close()
    return status


@pytest.mark.slow
def test_it_says_so_on_a_terminal(env: dict[str, str], tmp_path: Path) -> None:
    """Where to look, that it works once, how to stop.

    Once more it lets another browser in; somebody else's taken port is told with a way out.
    """
    process = started(env, "--port", "0", "--no-open")
    assert process.stdout is not None
    lines = [process.stdout.readline().strip() for _ in range(4)]
    port = urlsplit(lines[2]).port
    again = started(env, "--port", f"{port}", "--no-open", "--json")
    out, _ = again.communicate(timeout=LONG)
    stranger = env | {"THENCE_HOME": str(tmp_path / "another")}
    other = started(stranger, "--port", f"{port}", "--no-open")
    _, err = other.communicate(timeout=LONG)
    entered = [_entered(url) for url in (json.loads(out)["url"], lines[2])]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=LONG)

    assert (0, [303, 303]) == (again.returncode, entered)
    assert "thence serves, and listens to this machine only" == lines[0]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/enter\?ticket=[\w-]{43}", lines[2])
    assert (11, True) == (other.returncode, f"cannot listen on 127.0.0.1 port {port}" in err)
    assert "--port" in err
