"""A redaction rule that a user adds holds for everything that is stored, at the next sweep."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import apsw
import pytest
import zstandard

from tests.agents.transcripts import Script, usage
from tests.cli.desk import Desk
from thence.cli import wiring

VALUE = "ACME-471128"
RULE = """
[[session_memory.redact]]
name = "ticket"
pattern = "ACME-[0-9]{6}"
keywords = ["acme-"]
"""
FRAME = b"\x28\xb5\x2f\xfd"

PRESENT, GONE, EVICTED, RUNNING, UNREADABLE = (
    f"{n:08x}-0000-4000-8000-0000000000aa" for n in range(1, 6)
)
CODEX = "01a00000-0000-7000-8000-00000000000b"
SESSIONS = (PRESENT, GONE, EVICTED, RUNNING, UNREADABLE, CODEX)


def _script(session: str) -> Script:
    """A session with the value in its title, prompt, call, failing result and last answer."""
    script = Script(session, session[:8], cwd="/home/dev/tidepool")
    script.note("custom-title", customTitle=f"The customer {VALUE} waits")
    script.user(f"Look up {VALUE} please. Why does it fail?")
    for call in ("c1", "c2", "c3"):
        script.call(call, command=f"lookup --customer {VALUE}")
        script.result(call, f"Error: no row for {VALUE}\n", wrong=True)
    script.reply(
        [{"type": "text", "text": f"There is no row for {VALUE}."}],
        stop="end_turn",
        usage=usage(1000, input_tokens=1000),
        model="claude-sonnet-4-5",
    )
    return script


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Stored sessions whose sources are present, deleted, evicted, in use, and unreadable.

    The folder of another agent is deleted altogether.
    """
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(*(_script(name) for name in (PRESENT, GONE, EVICTED, UNREADABLE)))
    desk.write_claude(_script(RUNNING), ago=timedelta(seconds=5))
    rollout = desk.write_codex(CODEX)
    rollout.write_text(rollout.read_text().replace("yearly dump", f"dump of {VALUE}"))
    desk.sweep()
    folder = desk.claude / "projects" / "-home-dev-project"
    (folder / f"{GONE}.jsonl").unlink()
    shutil.rmtree(desk.codex)
    assert 0 == desk.run("evict", EVICTED, "--yes").code
    (folder / f"{UNREADABLE}.jsonl").chmod(0)
    return desk


def _add_rule(desk: Desk) -> None:
    (desk.home / "config.toml").write_text(RULE)


def _frames(data: bytes) -> Iterator[bytes]:
    """Yield what every compressed frame in some bytes holds."""
    for match in re.finditer(re.escape(FRAME), data):
        try:
            yield zstandard.ZstdDecompressor().decompressobj().decompress(data[match.start() :])
        except zstandard.ZstdError:
            continue


def _holding(folder: Path, value: str) -> list[str]:
    """Return files and tables below a home that hold a value, compressed or not."""
    word = value.encode()
    places = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != "config.toml":
            data = path.read_bytes()
            if word in data or any(word in body for body in _frames(data)):
                places.append(path.name)
    with apsw.Connection(str(folder / "memory" / "thence.db")) as db:
        tables = [
            name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type='table'")
        ]
        for table in tables:
            for row in db.execute(f'SELECT * FROM "{table}"'):
                blobs = [cell for cell in row if isinstance(cell, bytes)]
                if word in repr(row).encode() or any(word in b for c in blobs for b in _frames(c)):
                    places.append(table)
                    break
    return places


def _answers(desk: Desk) -> str:
    """Return all that commands print of the sessions."""
    texts = [
        desk.run("search", VALUE, "--exact", "--json").out,
        desk.run("search", "lookup", "--json").out,
    ]
    texts.append(desk.run("ls", "--all", "--json").out)
    for session in SESSIONS:
        for more in ((), ("--json",)):
            texts.append(desk.run("show", session, *more).out if session != EVICTED else "")
            texts.append(desk.run("digest", session, *more).out)
    return "\n".join(texts)


@pytest.mark.slow
def test_a_new_rule_holds_for_everything_that_is_stored(desk: Desk) -> None:
    """Source present, deleted, evicted, in use or unreadable: the value is gone, and it is said."""
    before = _answers(desk)
    assert VALUE in before
    assert {"sessions", "digests"} <= set(_holding(desk.home, VALUE))

    _add_rule(desk)
    warned = desk.run("doctor").out
    ran = desk.run("sweep")
    after = _answers(desk)
    again = desk.run("sweep", "--json").json

    assert "6 sessions stored under other redaction rules" in warned
    assert "the redaction rules changed: 6 sessions processed again" in ran.out
    assert VALUE not in after
    assert [] == _holding(desk.home, VALUE)
    assert "[REDACTED:ticket:" in after
    assert 0 == sum(again["reprocessed"].values())
    assert (0, 0) == (again["lines"], again["digested"])
    assert "redaction rules" not in desk.run("doctor").out


def test_the_counts_say_why_sessions_are_processed_again(desk: Desk) -> None:
    """A script reads how many, by the part that changed; progress names the stage."""
    _add_rule(desk)
    ran = desk.run("sweep", "--json", "--progress", "json")
    stages = {json.loads(line)["stage"] for line in ran.err.splitlines()}

    expected = {"redaction": 6, "reader": 0, "tools": 0, "fold": 0, "prices": 0, "digest": 0}

    assert expected == ran.json["reprocessed"]
    assert "reprocess" in stages


def test_a_dry_run_says_that_sources_will_be_read_again(desk: Desk) -> None:
    """And writes nothing: the value is there still."""
    _add_rule(desk)
    answer = desk.run("sweep", "-n", "--json").json

    assert 3 == answer["sessions_changed"]
    assert [] != _holding(desk.home, VALUE)


@pytest.mark.slow
def test_a_rule_that_is_taken_back_brings_words_back_from_sources(desk: Desk) -> None:
    """Where there is one; what is in the store alone stays redacted."""
    _add_rule(desk)
    desk.run("sweep")
    (desk.home / "config.toml").unlink()
    desk.run("sweep")

    assert VALUE in desk.run("show", PRESENT).out
    assert VALUE not in desk.run("show", GONE).out


@pytest.mark.slow
@pytest.mark.parametrize("how", ["shortened", "rewritten"])
def test_a_new_rule_loses_nothing_of_a_log_that_changed_meanwhile(desk: Desk, how: str) -> None:
    """What the log no longer has stays in the store, redacted."""
    path = desk.claude / "projects" / "-home-dev-project" / f"{PRESENT}.jsonl"
    before = desk.run("show", PRESENT, "--json").json
    lines = path.read_bytes().splitlines(keepends=True)
    other = Script(PRESENT, "other", cwd="/home/dev/tidepool")
    other.user("Something else")
    path.write_bytes(b"".join(lines[:3]) if how == "shortened" else other.data)
    _add_rule(desk)
    desk.run("sweep")
    after = desk.run("show", PRESENT, "--json").json
    written = {event["event_id"] for event in before["events"] if "derived_from" not in event}

    assert written
    assert written <= {event["event_id"] for event in after["events"]}
    assert [] == _holding(desk.home, VALUE)


KILLED = """
import os, signal, sys
from thence import cli
from thence.memory import packs, sqlite
left = [int(sys.argv.pop())]
def counted(work):
    def done(*args, **more):
        for _ in range(2):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            if _ == 0:
                out = work(*args, **more)
        return out
    return done
for owner, name in (
    *((sqlite.Sqlite, name) for name in ("write", "settle", "_shrink")),
    *((packs.Packs, name) for name in ("append", "_sync", "evict", "repack", "_unlink")),
    *((sqlite, name) for name in ("put_session", "put_events", "put_digest", "rename_refs")),
):
    setattr(owner, name, counted(getattr(owner, name)))
cli.main()
"""


@pytest.mark.parametrize("point", [1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 70])
@pytest.mark.few(11)
@pytest.mark.sampled(4)
def test_a_sweep_that_is_killed_while_it_applies_a_rule_is_finished_by_the_next(
    desk: Desk, point: int
) -> None:
    """Wherever it is killed, nothing that the next sweep leaves holds the value."""
    _add_rule(desk)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, "sweep", str(point)], check=False, capture_output=True
    )
    desk.run("sweep")
    again = desk.run("sweep", "--json").json

    assert -signal.SIGKILL == killed.returncode
    assert [] == _holding(desk.home, VALUE)
    assert VALUE not in _answers(desk)
    assert 0 == sum(again["reprocessed"].values())


@pytest.mark.slow
def test_a_new_rule_takes_the_value_out_of_the_export_for_sql(desk: Desk) -> None:
    """The files that `thence sql` made go with the sweep, and come back without it."""
    desk.run("sql", "SELECT 1")
    before = {path.name for path in wiring.analytics().rglob("*.parquet")}
    _add_rule(desk)
    desk.run("sweep")
    left = before & {path.name for path in wiring.analytics().rglob("*.parquet")}
    titles = desk.run("sql", "SELECT title FROM sessions").out

    assert before
    assert set() == left
    assert "REDACTED" in titles
    assert VALUE not in titles
