"""A home that is read-only or on a full disk: every command says so, and nothing is lost."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.agents.transcripts import Script, write
from tests.cli import mounts
from tests.processes import run_thence
from thence.cli import sample_machine

LONG = 60.0
THENCE = [sys.executable, "-c", "from thence.cli import main; main()"]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A user without sessions."""
    names = ("THENCE", "CLAUDE", "CODEX", "GROK")
    rest = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    return rest | {"HOME": str(tmp_path), "THENCE_HOME": str(tmp_path / "home"), "COLUMNS": "200"}


@pytest.fixture
def swept(env: dict[str, str], tmp_path: Path) -> Path:
    """The home of a user with sessions that are kept."""
    homes = sample_machine.write(tmp_path, datetime.now(UTC), ("claude", "codex", "grok"))
    env |= homes.env
    assert 0 == run(env, "sweep", "--json").returncode
    return homes.thence


def run(
    env: dict[str, str], *arguments: str, on: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run one command, behind another one where that is asked for."""
    if not on:
        return run_thence(*arguments, env=env)
    return subprocess.run(
        [*on, *THENCE, *arguments],
        env=env, check=False, capture_output=True, text=True, timeout=LONG,
    )  # fmt: skip


# -- read-only ------------------------------------------------------------------------------


@pytest.mark.slow
def test_doctor_says_that_an_intact_home_is_read_only(env: dict[str, str], swept: Path) -> None:
    """The store is intact, nothing advises to move it away; writable again all is well."""
    there = run(env, "doctor", "--deep", on=mounts.read_only(swept))
    again = run(env, "doctor", "--deep")

    assert (3, 0) == (there.returncode, again.returncode)
    assert "is read-only: stored sessions can be read, nothing can be added" in there.stdout
    assert "integrity ok" in there.stdout
    assert "move it away" not in there.stdout + there.stderr
    assert "read-only" not in again.stdout


@pytest.mark.slow
@pytest.mark.sampled(2, 1)
@pytest.mark.parametrize("has_key", [False, True])
def test_serve_shows_what_a_read_only_home_holds(
    env: dict[str, str], swept: Path, has_key: bool
) -> None:
    """With and without a key in it; the terminal and every page say that nothing new is read."""
    if has_key:
        (swept / "serve.key").write_bytes(bytes(32))
    before = sorted(path.name for path in swept.rglob("*"))
    command = [*THENCE, "serve", "--port", "0", "--no-open", "--token", "--json"]
    process = subprocess.Popen(
        [*mounts.read_only(swept), *command],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    started = json.loads(process.stdout.readline())
    answers = {
        path: _ask(started, path)
        for path in ("/", "/sessions", "/costs", "/patterns", "/store", "/api/sessions")
    }
    refused = _ask(started, "/api/sessions", body=b"{}")
    time.sleep(1.5)  # whatever runs behind it has had its turn
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LONG)

    assert {200} == {status for status, _ in answers.values()}
    assert json.loads(answers.pop("/api/sessions")[1])["sessions"]
    assert [] == [path for path, (_, body) in answers.items() if b"Read-only." not in body]
    assert (507, True) == (refused[0], b"is read-only" in refused[1])
    assert ["note: ~/home is read-only: no new sessions are imported"] == [
        line.replace(f"~/{swept.name}", "~/home") for line in err.strip().splitlines()
    ]
    assert before == sorted(path.name for path in swept.rglob("*"))


def _ask(started: dict[str, str], path: str, body: bytes | None = None) -> tuple[int, bytes]:
    link = http.client.HTTPConnection("127.0.0.1", int(started["port"]), timeout=LONG)
    headers = {"Authorization": f"Bearer {started['token']}", "Content-Type": "application/json"}
    link.request("GET" if body is None else "POST", path, body, headers)
    answer = link.getresponse()
    content = answer.read()
    link.close()
    return answer.status, content


# -- full -----------------------------------------------------------------------------------


def _many(folder: Path, count: int, size: int) -> None:
    """Write sessions that cannot be compressed."""
    chance = random.Random(7)
    for number in range(count):
        script = Script(f"7f3a91c2-0000-4000-8000-{number:012}", f"s{number}", cwd="/home/dev/x")
        script.user("Read it.")
        text = b64encode(chance.randbytes(size * 3 // 4), altchars=b"  ").decode()
        script.reply([{"type": "text", "text": text}], stop="end_turn")
        write(folder, script)


@pytest.mark.slow
@pytest.mark.sampled(3, 1)
@pytest.mark.parametrize("size", [100_000, 400_000, 1_500_000, 4_000_000, 8_000_000])
def test_a_sweep_on_a_full_disk_says_so_whoever_meets_it(
    env: dict[str, str], tmp_path: Path, size: int
) -> None:
    """In words with a hint and without a traceback; the doctor says it too, as an error."""
    _many(tmp_path / ".claude", 24, 500_000)
    home = tmp_path / "home"
    home.mkdir()
    both = "$0 sweep; echo exit $?; $0 doctor --json; echo exit $?"
    script = both.replace("$0", f"'{sys.executable}' -c 'from thence.cli import main; main()'")

    done = subprocess.run(
        [*mounts.small(home, size), "sh", "-c", script],
        env=env, check=False, capture_output=True, text=True, timeout=2 * LONG,
    )  # fmt: skip
    swept, _, rest = done.stdout.partition("exit 1\n")
    report = json.loads(rest.partition("\nexit")[0])
    findings = {finding["topic"]: finding for finding in report["findings"]}

    assert "error: the disk is full: " in done.stderr
    assert "hint:  free some space, then try again" in done.stderr
    assert "Traceback" not in done.stderr + swept
    assert "bad" == findings.get("setup", findings["disk"])["level"]
    assert findings["disk"]["words"].startswith("too little disk space: ")
    assert rest.endswith("exit 1\n")


@pytest.mark.slow
def test_doctor_warns_of_a_full_disk_though_nothing_is_new(
    env: dict[str, str], tmp_path: Path
) -> None:
    """The next session will not fit; a disk with room is no matter."""
    home = tmp_path / "home"
    home.mkdir()
    full = run(env, "doctor", "--json", on=mounts.small(home, 1 << 20))
    roomy = run(env, "doctor", "--json", on=mounts.small(home, 1 << 28))
    levels = [
        [
            finding["level"]
            for finding in json.loads(done.stdout)["findings"]
            if finding["topic"] == "disk"
        ]
        for done in (full, roomy)
    ]

    assert [["warning"], ["ok"]] == levels
    assert (3, 0) == (full.returncode, roomy.returncode)


# -- damaged --------------------------------------------------------------------------------


@pytest.mark.slow
def test_serve_says_what_is_wrong_with_a_damaged_store(env: dict[str, str], swept: Path) -> None:
    """As every other command: error, hint and exit code; no URL that leads nowhere."""
    path = swept / "memory" / "thence.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        [(page,)] = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'sessions'")
        [(size,)] = db.execute("PRAGMA page_size")
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(bytes(size))

    listed = run(env, "ls")
    served = run(env, "serve", "--port", "0", "--no-open")

    assert (listed.returncode, listed.stderr) == (served.returncode, served.stderr)
    assert "error: the store" in served.stderr
    assert "hint:" in served.stderr
    assert "" == served.stdout


@pytest.mark.slow
def test_mend_mends_all_that_a_deep_look_finds(env: dict[str, str], swept: Path) -> None:
    """A pack that is gone, one that is cut and one with a flipped byte, in one run."""
    packs = sorted(
        (swept / "memory" / "packs").glob("*.pack"), key=lambda path: path.stat().st_size
    )
    gone, cut, flipped = packs[-3:]
    gone.unlink()
    os.truncate(cut, cut.stat().st_size // 2)
    body = bytearray(flipped.read_bytes())
    body[len(body) // 2] ^= 0xFF
    flipped.write_bytes(body)

    deep = run(env, "doctor", "--deep", "--json")
    mended = run(env, "doctor", "--mend", "--json")
    after = run(env, "doctor", "--deep", "--json")
    broken = {
        finding["session_uid"]
        for finding in json.loads(deep.stdout)["findings"]
        if "session_uid" in finding
    }

    assert 3 == len(broken)
    assert sorted(broken) == json.loads(mended.stdout)["mended"]
    assert (1, 0) == (deep.returncode, after.returncode)
