"""`thence import` and `thence share`: sessions from files, and files for others."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from thence.agents.profiles import folder_variables
from thence.bridge import share
from thence.cli import import_, thence
from thence.cli.sample_machine import Homes, fake_token, made_id
from thence.errors import ThenceError
from thence.format import layout

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
    """She imports the file: the session is listed with its origin."""
    home = tmp_path / "colleague"
    answer = _arrived(run, home, str(_shared(run, tmp_path)))
    listed = json.loads(run("ls", "--json", env=_elsewhere(home)).stdout)

    assert ["new"] == [session["status"] for session in answer["sessions"]]
    assert [UID] == [row["session_uid"] for row in listed]
    assert ("share", "session.thence") == (
        listed[0]["imported"]["form"],
        listed[0]["imported"]["name"],
    )


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
    from thence.memory.gate import Gate

    gate = Gate(key=bytes(32))
    with pytest.raises(share.SecretLeft, match="line 1"):
        share._check([{"type": "record", "record": {"text": fake_token()}}], gate)


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


@pytest.mark.parametrize("tokens", [2**70, 2**62, -5])
@pytest.mark.parametrize("form", ["share", "jsonl"])
def test_numbers_that_nobody_can_store_are_refused_in_a_sentence(
    looked_at: Homes, run: Run, tmp_path: Path, form: str, tokens: int
) -> None:
    """Whatever kind of file they stand in."""
    path = tmp_path / "file"
    command = ["share"] if form == "share" else ["export", "--as", form]
    run(*command, CLOCK, "-o", str(path))
    body = re.sub(r'"input_tokens":\d+', f'"input_tokens":{tokens}', path.read_text("utf-8"))
    path.write_text(body, "utf-8")
    done = run("import", str(path), env=_elsewhere(tmp_path / "home"))

    assert 1 == done.returncode
    assert "input_tokens is " in done.stderr


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


def _wait_for(home: Path) -> list[str]:
    """Return what the hook leaves out until it is confirmed."""
    from thence.memory.notes import read_confirmations
    from thence.memory.sqlite import Sqlite

    confirmed = read_confirmations(home / "thence")
    store = Sqlite(str(home / "thence" / "memory" / "thence.db"))
    rows = list(store.sessions())
    store.close()
    return [row.session.session_uid for row in rows if row.is_withheld(confirmed)]


def test_a_file_is_confirmed_once_and_for_what_it_says(
    looked_at: Homes, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scripts say so; a terminal is asked, no by default; another content is asked for anew."""
    path = _shared(run, tmp_path)
    homes = [tmp_path / name for name in ("silent", "script", "later", "no", "yes")]
    for home in homes:
        home.mkdir()
    silent, script, later, no, yes = homes
    printed = run("import", str(path), env=_elsewhere(silent)).stdout
    answer = _arrived(run, script, str(path), "--confirm")
    _arrived(run, later, str(path))
    run("import", "--confirm", CLOCK[:8], env=_elsewhere(later))
    run("import", "--confirm", CLOCK[:8], env=_elsewhere(later))
    monkeypatch.setattr(import_, "_is_terminal", lambda: True)
    for home, typed in ((no, "\n"), (yes, "y\n")):
        done = CliRunner().invoke(thence, ["import", str(path)], input=typed, env=_elsewhere(home))

        assert "session.thence, 1 session: may later sessions" in done.stderr
    longer = tmp_path / "longer.thence"
    longer.write_text(path.read_text().replace("clock", "klock"))
    changed = _arrived(run, yes, str(longer))

    assert f"thence import --confirm {UID}" in printed
    assert [UID] == answer["confirmed"]
    assert [[UID], [], [], [UID]] == [_wait_for(home) for home in (silent, script, later, no)]
    assert 1 == (later / "thence/notes/decisions.jsonl").read_text().count("confirms")
    assert (["updated"], []) == ([s["status"] for s in changed["sessions"]], changed["confirmed"])
    assert [UID] == _wait_for(yes)


BAD_IDS = [
    *("claude:../../../x", "claude:a\nb", "claude:a\0b", "claude:", "claude:-x", "claude:a/b"),
    *("x y:s1", "claude", "claude:" + "x" * 5_000, "claude:a b", "claude:\x1b[31m", "clau/de:x"),
]


def test_a_session_with_a_bad_id_is_refused_and_the_others_are_not(
    looked_at: Homes, run: Run, tmp_path: Path
) -> None:
    """Each is named and counted; nothing of it is stored."""
    home, path = tmp_path / "colleague", tmp_path / "mixed.thence"
    first, *session = FIRST_VERSION.splitlines()
    head = json.loads(session[0])
    heads = [json.dumps({**head, "uid": uid}) for uid in (*BAD_IDS, "claude:s1")]
    lines = [first, *(line for opening in heads for line in (opening, *session[1:]))]
    path.write_text("\n".join(lines) + "\n")
    done = run("import", str(path), env=_elsewhere(home))
    listed = json.loads(run("ls", "--json", env=_elsewhere(home)).stdout)

    assert 3 == done.returncode
    assert len(BAD_IDS) == done.stdout.count("not the id of a session; not imported")
    assert f"{len(BAD_IDS)} sessions refused because of their ids" in done.stdout
    assert "thence open claude:s1 opens it" in done.stdout
    assert ["claude:s1"] == [row["session_uid"] for row in listed]


def test_what_another_program_calls_a_session_becomes_an_id(
    looked_at: Homes, run: Run, tmp_path: Path
) -> None:
    """A name that is no id keeps what can stand in one; two names are never one session."""
    steps = [{"step_id": 1, "source": "user", "message": "Hi"}]
    agent = {"name": "made-up", "version": "1"}
    uids = []
    for number, name in enumerate(("../../x", "a b", "a/b", "fine-1")):
        path = tmp_path / f"{number}.json"
        document = {"schema_version": "ATIF-v1.4", "session_id": name, "agent": agent}
        path.write_text(json.dumps({**document, "steps": steps}))
        uids += [row["session_uid"] for row in _arrived(run, tmp_path / "c", str(path))["sessions"]]

    assert 4 == len(set(uids))
    assert uids[3].endswith(":fine-1")
    assert all(layout.is_uid(uid) for uid in uids)


def test_the_ids_of_all_agents_are_ids(looked_at: Homes, run: Run) -> None:
    """Nothing that thence stores is refused where it is sent to."""
    uids = [row["session_uid"] for row in json.loads(run("ls", "--json", "-n", "999").stdout)]

    assert uids
    assert [] == [uid for uid in uids if not layout.is_uid(uid)]
