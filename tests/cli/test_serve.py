"""`thence serve`: from the command to the first answer, in a process of its own."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.memory import logs
from thence.cli import viewer
from thence.serve import app

LONG = 60.0
NAME = r"http://[0-9a-f]{32}\.localhost"
"""Where a browser is signed in."""
NOBODY = 65534
"""The uid of a user of this machine who may read nothing of ours."""

BROWSER = """
import html, json, os, pathlib, re, socket, sys, time, urllib.request
from http.cookiejar import CookieJar
look_up = socket.getaddrinfo  # browsers look up names below localhost themselves
socket.getaddrinfo = lambda host, *rest, **more: look_up(
    "localhost" if host.endswith(".localhost") else host, *rest, **more)
folder = pathlib.Path(sys.argv[0]).parent
(folder / "started").touch()
while folder.exists() and not (folder / "go").exists():
    time.sleep(0.02)
opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
url = sys.argv[1]
if url.startswith("file:"):
    page = opener.open(url).read().decode()
    url = html.unescape(re.search('url=([^"]+)', page)[1])
statuses = [opener.open(url, timeout=50).status]
statuses.append(opener.open(url.partition("/enter")[0] + "/", timeout=50).status)
(folder / ".seen").write_text(json.dumps(statuses))
(folder / ".seen").rename(folder / "seen")
while (folder / "stay").exists():
    time.sleep(0.02)
"""
"""A browser in the foreground, as w3m is: it ends when its user ends it."""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A user without anything."""
    variables = {
        n: v for n, v in os.environ.items() if not n.startswith(("THENCE", "CLAUDE", "CODEX"))
    }
    return variables | {
        "HOME": str(tmp_path),
        "THENCE_HOME": str(tmp_path / "home"),
        "COLUMNS": "80",
    }


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


@pytest.mark.skipif(not viewer._has_ipv6(), reason="nobody can listen at ::1")
def test_nobody_else_listens_where_a_browser_looks_first() -> None:
    """It tries `::1` before 127.0.0.1: both are ours, or the port is another one."""
    with contextlib.ExitStack() as stack:
        first, second = map(stack.enter_context, viewer.listen(viewer.HOST, 0))
        taken = stack.enter_context(app.listener("::1", 0))

        assert ("::1", first.getsockname()[1]) == second.getsockname()[:2]
        with pytest.raises(viewer.PortTaken, match="cannot listen on ::1 port"):
            viewer.listen(viewer.HOST, taken.getsockname()[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second", "code"),
    [((), ("--host", "localhost"), 11), (("--host", "localhost"), (), 0)],
    ids=["its own name", "localhost"],
)
def test_only_links_that_the_server_accepts_are_given(
    env: dict[str, str], first: tuple[str, ...], second: tuple[str, ...], code: int
) -> None:
    """Asked for under localhost, a server accepts both names; else its own alone."""
    process = started(env, "--port", "0", "--no-open", "--json", *first)
    assert process.stdout is not None
    url = json.loads(process.stdout.readline())["url"]
    again = started(env, "--port", f"{urlsplit(url).port}", "--no-open", "--json", *second)
    out, err = again.communicate(timeout=LONG)
    links = [url] if code else [url, json.loads(out)["url"]]
    entered = [_entered(link) for link in links]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=LONG)

    assert (code, {200}) == (again.returncode, {*entered})
    assert ("cannot listen on localhost" in err) == bool(code)
    assert url.startswith("http://localhost:") == bool(first)


@pytest.mark.slow
def test_it_tells_where_it_is_answers_and_ends_when_told(
    served: tuple[subprocess.Popen[str], dict[str, str]],
) -> None:
    """Without anything kept yet; Ctrl-C ends it without a word."""
    process, about = served
    link = http.client.HTTPConnection("127.0.0.1", int(about["port"]), timeout=LONG)
    link.request("GET", "/api/sessions", headers={"Authorization": f"Bearer {about['token']}"})
    answer = link.getresponse()
    body = json.loads(answer.read())
    link.close()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LONG)

    assert (200, []) == (answer.status, body["sessions"])
    assert re.match(rf"{NAME}:{about['port']}/enter\?ticket=", about["url"])
    assert "" == err.strip()


def _entered(url: str) -> int:
    """Follow a URL as a browser does."""
    where = urlsplit(url)
    link = http.client.HTTPConnection("127.0.0.1", where.port, timeout=LONG)
    link.request("GET", f"{where.path}?{where.query}", headers={"Host": where.netloc})
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

    assert (0, [200, 200]) == (again.returncode, entered)
    assert "Viewer on this machine only" == lines[0]
    assert re.fullmatch(rf"{NAME}:\d+/enter\?ticket=[\w-]{{43}}", lines[2])
    assert (11, True) == (other.returncode, f"cannot listen on 127.0.0.1 port {port}" in err)
    assert "--port" in err


@pytest.fixture
def town(env: dict[str, str]) -> Iterator[Path]:
    """A folder that every user can enter, with a home in it and a browser that waits for `go`."""
    folder = Path(tempfile.mkdtemp(prefix="thence-test-"))
    folder.chmod(0o755)
    program = folder / "browser.py"
    program.write_text(BROWSER, encoding="utf-8")
    env |= {
        "HOME": str(folder),
        "THENCE_HOME": str(folder / "home"),
        "BROWSER": f"{sys.executable} {program} %s",
    }
    yield folder
    shutil.rmtree(folder)


def await_(path: Path) -> None:
    """Wait until a file exists."""
    await_until(path.exists)


@pytest.mark.slow
def test_a_browser_in_the_foreground_gets_its_page(env: dict[str, str], town: Path) -> None:
    """Neither its start nor its end is waited for; the file that it was given is removed."""
    (town / "go").touch()
    (town / "stay").touch()
    process = started(env, "--port", "0")
    await_(town / "seen")
    seen = json.loads((town / "seen").read_text(encoding="utf-8"))
    files = [path.name for path in (town / "home").glob("*.html")]
    process.send_signal(signal.SIGINT)
    process.wait(LONG)
    (town / "stay").unlink()
    _, err = process.communicate(timeout=LONG)

    assert ([200, 200], [], "") == (seen, files, err.strip())


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.sampled(2, 1)
@pytest.mark.parametrize("again", [False, True], ids=["first", "while one serves"])
def test_another_user_of_the_machine_learns_nothing_that_lets_in(
    env: dict[str, str], town: Path, again: bool
) -> None:
    """Neither the list of processes nor any file that he can read holds a link or a secret."""
    script = (
        'while [ ! -e "$0/stop" ]; do cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\\0" " ";'
        " sleep 0.05; done;"
        ' find "$0/home" -type f -exec cat {} + 2>/dev/null'
    )
    with tempfile.TemporaryFile() as seen:
        spy = subprocess.Popen(
            ["/bin/sh", "-c", script, str(town)],
            user=NOBODY, group=NOBODY, extra_groups=[], stdout=seen,
        )  # fmt: skip
        process = started(env, "--port", "0", *(["--no-open"] if again else []))
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(4)]
        second = started(env, "--port", f"{urlsplit(lines[2]).port}") if again else None
        await_(town / "started")
        await_until(lambda: b"browser.py" in os.pread(seen.fileno(), 1 << 24, 0))
        modes = {
            path.relative_to(town): stat.S_IMODE(path.lstat().st_mode)
            for path in (town / "home", *(town / "home").rglob("*"))
        }
        (town / "go").touch()
        await_(town / "seen")
        (town / "stop").touch()
        process.send_signal(signal.SIGTERM)
        for server in (process, second) if second else (process,):
            server.communicate(timeout=LONG)
        spy.wait(LONG)
        seen.seek(0)
        read = seen.read().decode(errors="replace")

    where = urlsplit(lines[2])
    assert "browser.py" in read
    assert (False, False) == (f":{where.port}/" in read, where.query in read)
    assert [] == [f"{path}: {mode:o}" for path, mode in modes.items() if mode & 0o077]
    assert [200, 200] == json.loads((town / "seen").read_text(encoding="utf-8"))
    assert [] == [path.name for path in (town / "home").glob("*.html")]


@pytest.mark.slow
def test_a_server_that_stood_still_loses_nothing(env: dict[str, str], tmp_path: Path) -> None:
    """Lines, a new session and a deletion while it is stopped: all there when it goes on."""
    home = tmp_path / ".claude"
    first, born = logs.script(1, 3), logs.script(2, 2)
    logs.write(home, first, logs.script(3, 2))
    process = started(env, "--port", "0", "--no-open", "--token", "--json")
    assert process.stdout is not None
    info = json.loads(process.stdout.readline())
    bearer = {"Authorization": f"Bearer {info['token']}"}
    link = http.client.HTTPConnection("127.0.0.1", int(info["port"]), timeout=LONG)

    def get(path: str) -> dict[str, Any]:
        link.request("GET", path, headers=bearer)
        answer: dict[str, Any] = json.loads(link.getresponse().read())
        return answer

    try:
        await_until(lambda: 2 == len(get("/api/sessions")["sessions"]))
        process.send_signal(signal.SIGSTOP)
        for number in range(200):
            first.user(f"line {number}")
        logs.write(home, first, born)
        logs.path(home, logs.script(3, 2)).unlink()
        time.sleep(1)
        process.send_signal(signal.SIGCONT)
        await_until(lambda: 3 == len(get("/api/sessions")["sessions"]))
        chain = f"/api/sessions/claude:{first.session}/events?kind=user_msg&limit=1"
        await_until(lambda: 203 == get(chain)["total"])
    finally:
        link.close()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LONG)

    assert "" == err.strip()


@pytest.mark.slow
def test_two_sweeps_beside_a_server_come_to_one_store(env: dict[str, str], tmp_path: Path) -> None:
    """On an empty store: every request is answered, and all sessions are there once."""
    home = tmp_path / ".claude"
    logs.write(home, *(logs.script(number, 4) for number in range(60)))
    process = started(env, "--port", "0", "--no-open", "--token", "--json")
    assert process.stdout is not None
    info = json.loads(process.stdout.readline())
    sweep = [sys.executable, "-c", "from thence.cli import main; main()", "sweep", "--json"]
    sweeps = [
        subprocess.Popen(sweep, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    bearer = {"Authorization": f"Bearer {info['token']}"}
    link = http.client.HTTPConnection("127.0.0.1", int(info["port"]), timeout=LONG)
    statuses: list[int] = []
    total = 0
    until = time.monotonic() + LONG
    try:
        while total < 60 and time.monotonic() < until:
            link.request("GET", "/api/sessions?limit=200", headers=bearer)
            answer = link.getresponse()
            total = len(json.loads(answer.read())["sessions"])
            statuses.append(answer.status)
    finally:
        link.close()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LONG)
        for started_sweep in sweeps:
            started_sweep.communicate(timeout=LONG)
        codes = [process.returncode, *(started_sweep.returncode for started_sweep in sweeps)]

    assert ("", 130) == (err.strip(), codes[0])
    assert set(codes[1:]) <= {0, 11}
    assert (60, {200}) == (total, set(statuses))


def await_until(is_done: Callable[[], bool]) -> None:
    """Wait until something is so."""
    until = time.monotonic() + LONG
    while not is_done():
        assert time.monotonic() < until
        time.sleep(0.1)
