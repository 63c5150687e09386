"""`thence show` as a user runs it: one process, its exit code and both of its streams."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence import __version__
from thence.cli import COMMANDS
from thence.cli.show import text
from thence.cli.terminal import columns
from thence.format.repair import problems
from thence.format.transcript import Transcript
from thence.testing import SAMPLE_SESSION, Draft, sample

ENTRY = [sys.executable, "-c", "from thence.cli import main; main()"]
OURS = ("NO_COLOR", "COLUMNS", "FORCE_COLOR", "PYTHONIOENCODING")
BARE = {name: value for name, value in os.environ.items() if name not in OURS}

EVIL = (
    "\x1b[2J\x1b]0;owned\x07 a\rb \x9b31m \u202egnp.exe\u202c \u2066x\u2069 \u200b\u2028 "
    "\ud800 \U000e0041 \x00\x7f\n● 9  you  00:00\ttab"
)
"""What a log must not be able to do to a terminal, and a second line that looks like ours."""

HARMFUL = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def thence(*arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command line; it has half a minute to end."""
    return subprocess.run(
        [*ENTRY, *map(str, arguments)],
        check=False,
        capture_output=True,
        encoding="utf-8",
        env=BARE | env,
        timeout=30,
        stdin=subprocess.DEVNULL,
    )


def shown(*arguments: str | Path, **env: str) -> str:
    """What a command that works prints."""
    result = thence(*arguments, **env)

    assert (0, "") == (result.returncode, result.stderr)
    return result.stdout


def refused(result: subprocess.CompletedProcess[str], code: int) -> str:
    """The error of a command that does not work; it prints nothing else."""
    assert (code, "") == (result.returncode, result.stdout)
    assert "Traceback" not in result.stderr
    return result.stderr


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """The sample as a file of its own."""
    path = tmp_path / "session.jsonl"
    path.write_bytes(sample())
    return path


def evil() -> Draft:
    """A session with something hostile wherever a log can hold text."""
    draft = Draft()
    draft.header(session_id=EVIL, cwd=f"/w/{EVIL}", model=EVIL)
    draft.prompt(EVIL)
    draft.reply(
        EVIL,
        f"I still need to fix {EVIL}",
        Draft.call("a", EVIL, pattern=EVIL),
        Draft.call("b", "Bash", command=f"pytest {EVIL}"),
        Draft.call("c", "Edit", file_path=EVIL),
        Draft.call("d", "Bash", command=EVIL),
        model=EVIL,
    )
    for call in "abc":
        draft.result(call, EVIL, failed=True)
    draft.prompt(EVIL)
    draft.add(EVIL, {EVIL: EVIL}, parent=EVIL)
    draft.add("todos", {EVIL: EVIL})
    draft.add("sidechain", {"agent_id": EVIL}, moves=False)
    at = draft.prompt("\x1b[2J")
    draft.events[-1] = type(draft.events[-1])("user", EVIL * 2, at, EVIL, draft.events[-1].payload)
    return draft


# -- as text ----------------------------------------------------------------------------------


def test_sample_is_shown() -> None:
    """What it was about, what was done, what became of it and what is left to do."""
    assert """\
The hourly tide table for Europe/Lisbon loses 02:00 to 03:00 on 29 March. Find…
7f3a91c2 · claude-opus-5-5 · tidepool · 3 turns · 11,520 tokens

═    compacted, 6 events summed up
│    Cause: windows walked local time. Fixed in windows.py and feed.py; 43
│    tests pass. Open: a test for Lord Howe, and alerts.py:88 uses the label as
│    a key.
├─╳  dead branch, 4 events
● 2  you  13:16
│    No. Do not patch the gap afterwards. Cut the windows in UTC and use local
│    time only for the label.
■    edited tidepool/windows.py
✗    ran pytest tests/windows   2 failed, 41 passed in 3.1s
■    edited tidepool/feed.py
✓    ran pytest tests/windows   43 passed in 3.1s
│    Windows are cut in UTC now. I still need to add a test for Lord Howe.
● 3  you  13:17
│    Fix alerts.py too and run the whole suite.
│    A helper looks for other callers while I edit.
│    asked a subagent: callers of label
■    edited tidepool/alerts.py
○    ran pytest -q tests: interrupted, no result was ever written
●    running; its last line is torn

live 20 · orphaned 1 · dead 4 · internal 4
open: add a test for Lord Howe
skipped line 30, 57 bytes: torn
note: not closed: no terminator, so still running or crashed
""" == shown("show", "--sample", COLUMNS="80")


def test_file_is_shown_like_the_sample(session: Path) -> None:
    """A path is all it takes."""
    assert shown("show", "--sample") == shown("show", session)


def test_dead_branch_is_shown_where_it_parts(tmp_path: Path) -> None:
    """Short, on the live line."""
    draft = Draft()
    draft.header()
    draft.prompt("one")
    rest = draft.reply("two")
    draft.prompt("in vain")
    draft.rewind(rest)
    draft.prompt("instead")
    path = tmp_path / "s.jsonl"
    path.write_bytes(draft.bytes())

    assert "│    two\n├─╳  dead branch, 1 event\n● 2  you" in shown("show", path)


def test_empty_and_broken_files_are_shown(tmp_path: Path) -> None:
    """A session of nothing is no error; what was skipped is told."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"")
    empty = shown("show", path)
    path.write_bytes(b"garbage\n\xff\xfe\n")
    broken = shown("show", path)

    assert empty.startswith("empty session\nno header · 0 turns · 0 tokens\n")
    assert "skipped line 1, 7 bytes: bad json\n" in broken
    assert "skipped line 2, 2 bytes: bad utf-8\n" in broken


# -- as json ----------------------------------------------------------------------------------


def test_messages_are_given_as_the_api_takes_them() -> None:
    """The live chain, every call answered."""
    messages = json.loads(shown("show", "--sample", "--as", "messages", "--json"))

    assert Transcript.read(sample()).messages().messages == messages
    assert [] == problems(messages)


@pytest.mark.parametrize(("orphans", "length"), [("answer", 15), ("drop", 13), ("mark", 14)])
def test_orphans_are_treated_as_asked(orphans: str, length: int) -> None:
    """Answered, left out, or put in words."""
    printed = shown("show", "--sample", "--as", "messages", "--orphans", orphans)

    assert length == len(json.loads(printed))


@pytest.mark.parametrize("form", [["--as", "events", "--json"], ["--as", "events"], ["--json"]])
def test_events_are_given_with_their_states(form: list[str]) -> None:
    """Every event, where it stands and what became of it, and what was found besides."""
    told = json.loads(shown("show", "--sample", *form))
    transcript = Transcript.read(sample())

    assert {
        "session_id",
        "events",
        "counts",
        "turn",
        "pending",
        "skipped",
        "notices",
    } == set(told)
    assert SAMPLE_SESSION == told["session_id"]
    assert transcript.counts() == told["counts"]
    assert [
        {"state": state.value, "line": place.line, "offset": place.offset, "uuid": event.uuid}
        for state, place, event in zip(
            transcript.states, transcript.places, transcript.events, strict=True
        )
    ] == [
        {**{name: one[name] for name in ("state", "line", "offset")}, "uuid": one["event"]["uuid"]}
        for one in told["events"]
    ]
    assert {"state": "running", "torn": True, "open_calls": ["toolu_lost"], "since": 28} == (
        told["turn"]
    )
    assert ["add a test for Lord Howe"] == [todo["text"] for todo in told["pending"]]
    assert [("torn", 30)] == [(skip["why"], skip["line"]) for skip in told["skipped"]]


def test_numbers_and_texts_of_any_kind_are_printed(tmp_path: Path) -> None:
    """What the codec keeps of a log, JSON output shows."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(
        b'{"type":"user","ts":"","uuid":"a","prev_uuid":null,"payload":'
        b'{"role":"user","content":"\\ud800","big":%b,"far":1e999,"deep":%b}}\n'
        % (b"9" * 400, b"[" * 200 + b"]" * 200)
    )
    event = json.loads(shown("show", path, "--json"))["events"][0]["event"]

    assert "\ud800" == event["payload"]["content"]
    assert int("9" * 400) == event["payload"]["big"]


@pytest.mark.parametrize("depth", [984, 100_000])
def test_value_nested_beyond_all_sense_is_no_crash(tmp_path: Path, depth: int) -> None:
    """Its line is printed, skipped, or refused in words, whichever Python can do."""
    path = tmp_path / "s.jsonl"
    start = b'{"type":"user","ts":"","uuid":"a","prev_uuid":null,"payload":'
    path.write_bytes(start + b"[" * depth + b"]" * depth + b"}\n")
    result = thence("show", path, "--json")

    assert "Traceback" not in result.stderr
    assert result.returncode in (0, 1)
    assert thence("show", path).returncode == 0


# -- errors -----------------------------------------------------------------------------------


def test_missing_file_is_not_found(tmp_path: Path) -> None:
    """Exit code 10, what and where, and what to do next."""
    error = refused(thence("show", tmp_path / "none.jsonl"), 10)

    assert (
        f"error: no such file: {tmp_path}/none.jsonl\nhint:  thence show --sample shows a session\n"
        == error
    )


def test_link_is_refused(session: Path) -> None:
    """Also when it leads to a session: what was named is what is read."""
    link = session.with_name("link.jsonl")
    link.symlink_to(session)
    error = refused(thence("show", link), 1)

    assert error.startswith(f"error: cannot open {link}: ")
    assert "\nhint:  thence opens regular files, not links\n" in error


def test_folder_is_refused(tmp_path: Path) -> None:
    """With the same two lines as any other error."""
    error = refused(thence("show", tmp_path), 1)

    assert (
        f"error: not a regular file: {tmp_path}\nhint:  give the path of one session file\n"
        == error
    )


def test_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    """Nobody writes into it, and nobody has to."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    assert refused(thence("show", pipe), 1).startswith(f"error: not a regular file: {pipe}\n")


def test_device_is_refused() -> None:
    """Some never end."""
    assert refused(thence("show", "/dev/zero"), 1).startswith("error: not a regular file")


def test_name_of_a_file_cannot_speak_to_the_terminal(tmp_path: Path) -> None:
    """Errors are cleaned like everything else."""
    error = refused(thence("show", tmp_path / "\x1b[2J\u202e"), 10)

    assert not HARMFUL.search(error)


@pytest.mark.parametrize(
    "arguments",
    [
        ["show"],
        ["show", ""],
        ["show", "a", "b"],
        ["show", "a", "--sample"],
        ["show", "--nonsense"],
        ["show", "--sample", "--as", "poetry"],
        ["show", "--sample", "--orphans", "adopt"],
        ["nonsense"],
        [],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    """And shows how it is used, on stderr."""
    assert "Usage: thence" in refused(thence(*arguments), 2)


def test_reader_that_goes_away_is_no_error() -> None:
    """`thence show | head` ends quietly."""
    with subprocess.Popen(
        [*ENTRY, "show", "--sample", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=BARE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()

    assert b"" == said


# -- help -------------------------------------------------------------------------------------


def test_help_lists_every_command_and_imports_none() -> None:
    """So that it stays quick."""
    code = (
        "import sys; from thence.cli import thence; "
        "thence(['--help'], standalone_mode=False); "
        "print([m for m in sys.modules if m.startswith('thence.format')])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, encoding="utf-8", env=BARE
    )

    assert all(f"  {name}  " in result.stdout for name in COMMANDS)
    assert result.stdout.endswith("[]\n")


def test_command_says_in_its_help_what_the_list_says() -> None:
    """One sentence in both places."""
    for name, sentence in COMMANDS.items():
        assert sentence in " ".join(shown(name, "--help").split())


def test_version_is_the_version() -> None:
    """Of the package that runs."""
    assert f"thence, version {__version__}\n" == shown("--version")


# -- hostile content --------------------------------------------------------------------------


@pytest.mark.parametrize("form", [[], ["--as", "messages"], ["--as", "events"]], ids=str)
def test_nothing_in_a_log_reaches_the_terminal_as_a_command(
    tmp_path: Path, form: list[str]
) -> None:
    """No escape, no bidirectional mark, nothing invisible, in no form of output."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(evil().bytes())
    printed = shown("show", path, *form)

    assert "owned" in printed
    assert [] == HARMFUL.findall(printed)


def test_json_loses_nothing_of_a_hostile_log(tmp_path: Path) -> None:
    """Escaped on the way out, the same again when it is read."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(evil().bytes())
    told = json.loads(shown("show", path, "--as", "events"))

    assert EVIL == told["session_id"]
    assert EVIL == told["events"][1]["event"]["payload"]["content"]


def test_log_cannot_forge_lines() -> None:
    """A line feed in content starts no line that looks like ours."""
    lines = text(Transcript.read(evil().bytes()), 200)

    assert not any("\n" in line for line in lines)
    assert [] == [line for line in lines if line.startswith("● 9")]


# -- the terminal -----------------------------------------------------------------------------


@pytest.mark.parametrize("room", [40, 80])
@pytest.mark.parametrize("draft", [None, evil()], ids=["sample", "hostile"])
def test_no_line_is_wider_than_the_terminal(tmp_path: Path, room: int, draft: Draft | None) -> None:
    """Narrow ones too."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(draft.bytes() if draft else sample())
    lines = shown("show", path, COLUMNS=str(room)).split("\n")

    assert [] == [line for line in lines if columns(line) > room]


def on_a_terminal(**env: str) -> str:
    """What `thence show --sample` prints on a real terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*ENTRY, "show", "--sample"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=BARE | {"TERM": "xterm", "COLUMNS": "80"} | env,
    ) as process:
        os.close(theirs)
        said = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # how a terminal says that nobody is left on its other side
                part = b""
            if not part:
                break
            said += part
    os.close(ours)

    assert 0 == process.returncode
    return said.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("env", [{}, {"NO_COLOR": ""}], ids=["unset", "empty"])
def test_terminal_gets_colour(env: dict[str, str]) -> None:
    """The same text, coloured."""
    said = on_a_terminal(**env)

    assert "\x1b[" in said
    assert shown("show", "--sample", COLUMNS="80") == re.sub(r"\x1b\[\d*m", "", said)


def test_no_color_is_respected() -> None:
    """Plain text on a terminal, the same as in a pipe."""
    assert shown("show", "--sample", COLUMNS="80") == on_a_terminal(NO_COLOR="1")


# -- read only --------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [[], ["--as", "messages"], ["--json"]], ids=str)
def test_source_is_not_touched(session: Path, form: list[str]) -> None:
    """Its bytes, time and mode stay, and nothing is put beside it."""
    session.chmod(0o440)
    os.utime(session, ns=(10**18, 10**18 + 1))

    def state() -> Any:
        known = session.stat()
        return (
            hashlib.sha256(session.read_bytes()).hexdigest(),
            (known.st_mtime_ns, known.st_mode, known.st_ino, known.st_size),
            sorted(session.parent.iterdir()),
        )

    before = state()
    shown("show", session, *form)

    assert before == state()


# -- anything ---------------------------------------------------------------------------------

WORDS = st.text(max_size=30) | st.sampled_from([EVIL, "漢" * 60, "e\u0301" * 60, "word " * 30])
DRAFTS = st.lists(st.tuples(st.sampled_from(["prompt", "reply", "call", "odd"]), WORDS), max_size=6)


@given(DRAFTS, st.integers(40, 130))
def test_every_session_fits_and_is_harmless(said: list[tuple[str, str]], room: int) -> None:
    """Whatever was said in it, in whatever script."""
    draft = Draft()
    for at, (verb, word) in enumerate(said):
        if verb == "prompt":
            draft.prompt(word)
        elif verb == "reply":
            draft.reply(word)
        elif verb == "call":
            draft.reply(Draft.call(f"c{at}", "Bash", command=word))
            draft.result(f"c{at}", word)
        else:
            draft.add("model", {"model": word}, parent=word)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_COLOR", "1")
        lines = text(Transcript.read(draft.bytes()), room)

    assert [] == [line for line in lines if columns(line) > room or HARMFUL.search(line)]


def test_another_agents_log_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """Not a page of skipped lines: an error, and a hint that says how things stand."""
    foreign = tmp_path / "foreign.jsonl"
    foreign.write_text('{"type":"user","message":{"role":"user","content":"hi"}}\n' * 3)
    done = subprocess.run(
        [sys.executable, "-c", "from thence.cli import main; main()", "show", str(foreign)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (1, "") == (done.returncode, done.stdout)
    assert ["error: not a session of thence", "hint"] == [
        line.partition(": /")[0].partition(":  ")[0] for line in done.stderr.splitlines()
    ]
