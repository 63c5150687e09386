"""`thence import` and `thence share`: sessions from files, and files for others."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from thence.agents.profiles import folder_variables
from thence.bridge import share
from thence.cli import thence
from thence.cli.sample_machine import Homes, fake_token, made_id
from thence.errors import ThenceError

CLOCK, IMPORT = made_id("clock-change"), made_id("gauge-import")
UID = f"claude:{CLOCK}"


class Done(NamedTuple):
    """How a command ended."""

    stdout: str
    stderr: str
    returncode: int


Run = Callable[..., Done]


@pytest.fixture
def run() -> Run:
    """Run a command in this process; an error is what the user would see of it."""

    def run(*words: str, env: dict[str, str | None] | None = None) -> Done:
        done = CliRunner().invoke(thence, words, env=env, standalone_mode=False)
        if isinstance(done.exception, ThenceError):
            message = f"error: {done.exception.message}\nhint:  {done.exception.hint}\n"
            return Done(done.stdout, done.stderr + message, done.exception.exit_code)
        if done.exception is not None:
            raise done.exception
        return Done(done.stdout, done.stderr, done.return_value or 0)

    return run


def _arrived(run: Run, home: Path, *words: str) -> dict[str, Any]:
    """Import into another home, where no agent has ever run."""
    done = run("import", *words, "--json", env=_elsewhere(home))
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _elsewhere(home: Path) -> dict[str, str | None]:
    """Name the home of somebody else, in which no variable leads to agents of ours."""
    home.mkdir(exist_ok=True)
    unset: dict[str, str | None] = dict.fromkeys(folder_variables())
    return {**unset, "HOME": str(home), "THENCE_HOME": str(home / "thence")}


def _shared(run: Run, folder: Path, wanted: str = CLOCK, *more: str) -> Path:
    path = folder / "session.thence"
    run("share", wanted, "-o", str(path), "--force", *more)
    return path


@pytest.mark.slow
def test_a_shared_session_is_read_by_a_colleague(
    looked_at: Homes, run: Run, tmp_path: Path
) -> None:
    """She imports the file: the session is listed with its origin, with the same events."""
    home = tmp_path / "colleague"
    answer = _arrived(run, home, str(_shared(run, tmp_path)))
    listed = json.loads(run("ls", "--json", env=_elsewhere(home)).stdout)
    ours = json.loads(run("show", CLOCK, "--as", "messages", "--json").stdout)
    theirs = json.loads(
        run("show", CLOCK, "--as", "messages", "--json", env=_elsewhere(home)).stdout
    )

    assert ["new"] == [session["status"] for session in answer["sessions"]]
    assert [UID] == [row["session_uid"] for row in listed]
    assert ("share", "session.thence") == (
        listed[0]["imported"]["form"],
        listed[0]["imported"]["name"],
    )
    assert ours == theirs


@pytest.mark.parametrize("form", ["share", "atif", "jsonl"])
def test_what_is_imported_twice_is_there_once(
    looked_at: Homes, run: Run, tmp_path: Path, form: str
) -> None:
    """The second import changes nothing, and says so."""
    home, path = tmp_path / "colleague", tmp_path / "file"
    if form == "share":
        path = _shared(run, tmp_path)
    else:
        run("export", CLOCK, "--as", form, "--redacted", "-o", str(path))
    first = _arrived(run, home, str(path))
    second = _arrived(run, home, str(path))
    listed = json.loads(run("ls", "--json", env=_elsewhere(home)).stdout)
    original = json.loads(run("ls", "--json", "-n", "100").stdout)
    states = next(row["states"] for row in original if row["session_uid"] == UID)
    usd = next(row["usd"] for row in original if row["session_uid"] == UID)

    assert ["new"] == [session["status"] for session in first["sessions"]]
    assert ["unchanged"] == [session["status"] for session in second["sessions"]]
    assert [(UID, usd)] == [(row["session_uid"], row["usd"]) for row in listed]
    assert form == "jsonl" or states == listed[0]["states"]


def test_a_dry_run_writes_nothing(looked_at: Homes, run: Run, tmp_path: Path) -> None:
    """It says what would be imported, and the store stays empty."""
    home = tmp_path / "colleague"
    answer = _arrived(run, home, str(_shared(run, tmp_path)), "--dry-run")
    listed = run("ls", "--json", env=_elsewhere(home))

    assert [("new", True)] == [
        (session["status"], answer["dry_run"]) for session in answer["sessions"]
    ]
    assert [] == json.loads(listed.stdout)


def test_a_log_of_this_machine_is_never_replaced(
    looked_at: Homes, run: Run, tmp_path: Path
) -> None:
    """Whoever gets her own session back keeps what her agent wrote."""
    path = _shared(run, tmp_path)
    answer = json.loads(run("import", str(path), "--json").stdout)

    assert ["has its own log"] == [session["status"] for session in answer["sessions"]]


def test_a_shared_file_has_no_secret_and_says_what_was_redacted(
    looked_at: Homes, run: Run, tmp_path: Path
) -> None:
    """Also of a log that is not stored: it is redacted on the way out."""
    path = tmp_path / "out.thence"
    answer = json.loads(run("share", IMPORT, "-o", str(path), "--json").stdout)
    page = tmp_path / "out.html"
    run("share", IMPORT, "-o", str(page), "--html")

    assert fake_token() not in path.read_text() + page.read_text()
    assert sum(answer["redacted"].values())
    assert answer["redacted"] == json.loads(path.read_text().splitlines()[0])["redacted"]
    assert 0o600 == path.stat().st_mode & 0o777


def test_a_secret_that_is_left_stops_the_file() -> None:
    """What redaction missed and the second look finds is never written."""
    from thence.memory.redact import Redactor

    redactor = Redactor(key=bytes(32))
    with pytest.raises(share.SecretLeft, match="line 1"):
        share._check([{"type": "record", "record": {"text": fake_token()}}], redactor)


def test_an_encrypted_file_is_for_its_recipient(looked_at: Homes, run: Run, tmp_path: Path) -> None:
    """Nothing of the session is legible; the private key opens it, another one does not."""
    pyrage = pytest.importorskip("pyrage")
    mine, other = pyrage.x25519.Identity.generate(), pyrage.x25519.Identity.generate()
    for name, key in (("mine", mine), ("other", other)):
        (tmp_path / name).write_text(f"# made up\n{key}\n")
    path = _shared(run, tmp_path, CLOCK, "--to", str(mine.to_public()))
    home = tmp_path / "colleague"
    wrong = run("import", str(path), "-i", str(tmp_path / "other"), env=_elsewhere(home))
    none = run("import", str(path), env=_elsewhere(home))
    answer = _arrived(run, home, str(path), "-i", str(tmp_path / "mine"))

    assert CLOCK.encode() not in path.read_bytes()
    assert "none of these keys opens the file" in wrong.stderr
    assert "--identity" in none.stderr
    assert ["new"] == [session["status"] for session in answer["sessions"]]


def test_a_forgotten_session_does_not_come_back(looked_at: Homes, run: Run, tmp_path: Path) -> None:
    """Deleting for good holds against files as well."""
    home, path = tmp_path / "colleague", _shared(run, tmp_path)
    _arrived(run, home, str(path))
    run("forget", CLOCK, "--yes", env=_elsewhere(home))
    done = run("import", str(path), "--json", env=_elsewhere(home))

    assert ["forgotten"] == [session["status"] for session in json.loads(done.stdout)["sessions"]]
    assert 3 == done.returncode


def test_an_imported_session_goes_on_in_another_agent(
    looked_at: Homes, run: Run, tmp_path: Path
) -> None:
    """Its own agent does not have it here, so a copy is handed over from the store."""
    home = tmp_path / "colleague"
    _arrived(run, home, str(_shared(run, tmp_path)))
    alone = run("resume", CLOCK, env=_elsewhere(home))
    handed = run("resume", CLOCK, "--with", "codex", "--json", env=_elsewhere(home))

    assert "was imported from session.thence" in alone.stderr
    assert "codex" == json.loads(handed.stdout)["argv"][0]
    assert list((home / ".codex").rglob("rollout-*.jsonl"))


@pytest.mark.slow
def test_a_log_that_turns_up_takes_the_place_of_the_file(
    looked_at: Homes, run: Run, tmp_path: Path
) -> None:
    """After a sweep the session is that of its agent's own log, once."""
    home = tmp_path / "colleague"
    env = _elsewhere(home)
    before = json.loads(run("ls", "--json", "-n", "100").stdout)
    _arrived(run, home, str(_shared(run, tmp_path)))
    run("sweep", env={**env, **looked_at.env, "THENCE_HOME": env["THENCE_HOME"]})
    listed = json.loads(run("ls", "--json", "-n", "100", env=env).stdout)
    ours, theirs = (
        next(row for row in rows if row["session_uid"] == UID) for rows in (before, listed)
    )

    assert theirs["imported"] is None
    assert (ours["events"], ours["states"], ours["usd"]) == (
        theirs["events"],
        theirs["states"],
        theirs["usd"],
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"{",
        b"[]",
        b"\x00" * 64,
        b'{"type":"thence-share","version":9}\n',
        b"age-encrypt",
    ],
)
def test_what_is_no_session_is_refused_in_a_sentence(
    looked_at: Homes, run: Run, tmp_path: Path, body: bytes
) -> None:
    """Whatever a file holds: an error, a hint, and no traceback."""
    path = tmp_path / "file"
    path.write_bytes(body)
    done = run("import", str(path))

    assert done.returncode in (1, 2)
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert os.fspath(path) in done.stderr or "share file" in done.stderr


FIRST_VERSION = """\
{"type":"thence-share","version":1,"by":"thence 0.1.0","session":"claude:s1","redacted":{}}
{"type":"session","uid":"claude:s1","torn":true,"replayed":["r"],"billed":["b"]}
{"type":"record","record":{"node":{"id":"a","parent":null,"flags":1,"calls":[],"answers":[],\
"response":null,"logical":null,"span":null,"tip":null,"undo":null},"type":"user","file":"f",\
"ts":"2026-01-01T00:00:00.000Z","line":1,"about":{"cwd":"/work/made-up"},\
"blocks":[{"kind":"user_msg","role":"user","summary":"Hi","payload":{"type":"text","text":"Hi"}}]}}
{"type":"record","record":{"node":{"id":"b","parent":"a","flags":2,"calls":["c1"],"answers":[],\
"response":"m1","logical":null,"span":null,"tip":null,"undo":null},"type":"assistant","file":"f",\
"line":2,"model":"made-up","usage":{"input_tokens":3,"output_tokens":2},"usage_key":"m1",\
"told":[{"call":"c1","failed":true,"took_ms":5}],"edges":[{"link":"fork","session":"s0","how":"x"}],\
"blocks":[{"kind":"tool_call","role":"assistant","tool":"Bash","call":"c1","payload":{"a":1}}]}}
"""


def test_files_of_the_first_version_are_read_for_ever(
    looked_at: Homes, run: Run, tmp_path: Path
) -> None:
    """Names in share files are those of the records: FROZEN with version 1."""
    home, path = tmp_path / "colleague", tmp_path / "old.thence"
    path.write_text(FIRST_VERSION)
    answer = _arrived(run, home, str(path))
    row = json.loads(run("ls", "--json", env=_elsewhere(home)).stdout)[0]

    assert [("claude:s1", "new", 2)] == [
        (session["session_uid"], session["status"], session["events"])
        for session in answer["sessions"]
    ]
    assert ("/work/made-up", "made-up", 3) == (
        row["cwd"],
        row["model"],
        row["cost"]["input_tokens"],
    )
