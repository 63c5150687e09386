"""`thence show` as a user runs it: its exit code and both of its streams.

What is about the process itself has one of its own: what Python makes of its arguments and streams,
a reader that goes away, a real terminal, a value nested deeper than a stack.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pty
import re
import subprocess
import sys
from collections import Counter
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agents.transcripts import Script, write
from tests.cli.desk import Ran, in_process
from tests.format.derived import judged
from tests.format.messages_api import refusals
from thence import __version__
from thence.agents import Source, adapters
from thence.agents.sessions import LoadedSession
from thence.cli import ALIASES, COMMANDS, GROUPS, MOVED, VIEWS
from thence.cli.session_text import Page
from thence.cli.terminal import columns
from thence.format.facts import fact_of
from thence.format.normal import SEQ_STEP
from thence.format.repair import problems
from thence.format.session_graph import SessionGraph
from thence.format.transcript import Transcript
from thence.memory.readouts import open_loaded as opened_session
from thence.testing import SAMPLE_SESSION, Draft, sample

ENTRY = [sys.executable, "-c", "from thence.cli import main; main()"]
OURS = ("NO_COLOR", "COLUMNS", "FORCE_COLOR", "PYTHONIOENCODING", "LC_ALL", "LC_CTYPE", "LANG")
BARE = {name: value for name, value in os.environ.items() if name not in OURS}
BARE |= {"THENCE_PAGER": "", "TZ": "UTC"}

EVIL = (
    "\x1b[2J\x1b]0;owned\x07 a\rb \x9b31m \u202egnp.exe\u202c \u2066x\u2069 \u200b\u2028 "
    "\ud800 \U000e0041 \x00\x7f\n● 9  you  00:00\ttab"
)
"""What a log must not be able to do to a terminal, and a second line that looks like ours."""

HARMFUL = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def thence(*arguments: str | Path, **env: str) -> Ran:
    """Run the command line."""
    return in_process(*arguments, env=BARE | env)


def as_process(*arguments: str | Path, **env: str) -> Ran:
    """Run the command line in a process of its own; it has a minute to end."""
    result = subprocess.run(
        [*ENTRY, *map(str, arguments)],
        check=False,
        capture_output=True,
        encoding="utf-8",
        env=BARE | env,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    return Ran(result.returncode, result.stdout, result.stderr)


def shown(*arguments: str | Path, **env: str) -> str:
    """What a command that works prints."""
    result = thence(*arguments, **env)

    assert (0, "") == (result.code, result.err)
    return result.out


def refused(result: Ran, code: int) -> str:
    """The error of a command that does not work; it prints nothing else."""
    assert (code, "") == (result.code, result.out)
    assert "Traceback" not in result.err
    return result.err


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """The sample as a file of its own."""
    path = tmp_path / "session.jsonl"
    path.write_bytes(sample())
    return path


def text(draft: Draft, room: int) -> list[str]:
    """The page of a draft, without a file."""
    facts = judged([fact_of(event, line=line) for line, event in enumerate(draft.events, 1)])
    graph = SessionGraph(f"thence:{draft.session}", facts)
    return Page(
        opened_session(LoadedSession(Source("thence", draft.session, ()), graph, [], [])), room
    ).lines()


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
2026-11-15 13:12 · tidepool · $0.07 · 3 turns · 14k tokens, 2.6k discarded
journal · claude-opus-5-5 · 7f3a91c2

═    compacted 13:16, 1 prompt, 7 events, 2.6k tokens summed up
│    Cause: windows walked local time. Fixed in windows.py and feed.py; 43
│    tests pass. Open: a test for Lord Howe, and alerts.py:88 uses the label as
│    a key.
├─╳  discarded branch, 1 prompt, 5 events, 2.6k tokens          --branch e320bd7
● 2  you  13:16                                                ctx 1.2k  out 400
│    No. Do not patch the gap afterwards. Cut the windows in UTC and use local
│    time only for the label.
■    edited tidepool/windows.py
✗    ran pytest tests/windows   2 failed, 41 passed                          2 s
■    edited tidepool/feed.py
✓    ran pytest tests/windows   43 passed                                    2 s
│    Windows are cut in UTC now. I still need to add a test for Lord Howe.
● 3  you  13:17                                                ctx 1.2k  out 160
│    Fix alerts.py too and run the whole suite.
│    A helper looks for other callers while I edit.
│  › asked a subagent: callers of label                                      2 s
■    edited tidepool/alerts.py
○    ran pytest -q tests                                           no result yet
○    stopped in the middle of a turn · no process is working on it
its last line is cut off

events: live 24 · no result 1 · discarded 5 · internal 4
skipped line 30, 57 bytes: torn
""" == shown("show", "--sample", COLUMNS="80")


def test_file_is_shown_like_the_sample(session: Path) -> None:
    """A path is all it takes."""
    assert shown("show", "--sample") == shown("show", session)


@pytest.mark.slow
def test_a_process_says_the_same() -> None:
    """As what the tests run within their own."""
    calls = (("show", "--sample"), ("show", "/dev/zero"), ("show", "--nonsense"))

    assert [thence(*call) for call in calls] == [as_process(*call) for call in calls]


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

    printed = shown("show", path, COLUMNS="50")  # no room to say how it is shown

    assert "│    two\n├─╳  discarded branch, 1 prompt, 1 event\n● 2  you" in printed


def test_branches_are_opened_when_asked_for() -> None:
    """Discarded branches a step to the right, what was compacted in its place."""
    printed = shown("show", "--sample", "--branch", "all", COLUMNS="80")

    assert "├─╮  discarded branch, 1 prompt, 5 events, 2.6k tokens\n│ ●    you  13:13\n" in printed
    assert "│ ■    edited tidepool/windows.py\n│ │    Added the hour" in printed
    assert printed.index("● 1  you") < printed.index("═    compacted 13:16\n")


def named_branch() -> str:
    """The event that the page names its discarded branch by."""
    match = re.search(r"--branch (e\w+)", shown("show", "--sample", COLUMNS="80"))

    assert match is not None
    return match[1]


def test_one_branch_is_shown_when_its_event_is_named() -> None:
    """Its own line from the root to its end, and no word of what came instead."""
    printed = shown("show", "--sample", "--branch", named_branch(), COLUMNS="80")

    assert "│    Added the hour" in printed
    assert "╳    end of a discarded branch; the active branch is elsewhere" in printed
    assert "No. Do not patch the gap afterwards" not in printed


@pytest.mark.slow
@pytest.mark.parametrize("form", ["markdown", "html", "messages"])
def test_every_form_shows_the_branch_that_is_asked_for(form: str) -> None:
    """Live: what the session went on with. Its event: what was left. All: both."""
    left, instead = "Added the hour", "No. Do not patch the gap"
    of = {
        b: shown("show", "--sample", "--as", form, "--branch", b) for b in ("live", named_branch())
    }
    live, branch = of.values()

    assert (False, True) == (left in live, instead in live)
    assert (True, False) == (left in branch, instead in branch)
    if form != "messages":
        every = shown("show", "--sample", "--as", form, "--branch", "all")

        assert (True, True) == (left in every, instead in every)
        assert "discarded branch" in every


def test_an_unknown_branch_is_not_found() -> None:
    """With the way to find names of events."""
    assert "hint:" in refused(thence("show", "--sample", "--branch", "nonsense"), 10)


def test_a_page_runs_nothing_and_loads_nothing() -> None:
    """One file: a policy that allows its own style by its hash, which is what stands there."""
    page = shown("show", "--sample", "--as", "html")
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)

    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in page
    assert "prefers-color-scheme:dark" in page
    assert not re.search(r"<script|<link|<img|\ssrc=|\shref=|\son\w+=", page)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["markdown", "html"])
def test_forms_are_harmless_on_a_terminal(tmp_path: Path, form: str) -> None:
    """Whatever a log holds, no control character comes out."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(evil().bytes())

    assert not HARMFUL.search(shown("show", path, "--as", form, "--branch", "all"))


@pytest.mark.parametrize(("zone", "hour"), [("UTC", "13:16"), ("XYZ-2", "15:16")])
def test_times_are_told_in_the_local_zone(zone: str, hour: str) -> None:
    """Unless `--utc` asks for the other one."""
    assert f"● 2  you  {hour}" in shown("show", "--sample", TZ=zone)
    assert "● 2  you  13:16" in shown("show", "--sample", "--utc", TZ=zone)


@pytest.mark.slow
def test_long_text_is_cut_unless_it_is_asked_for(tmp_path: Path) -> None:
    """And how much is missing stands in its place."""
    draft = Draft()
    draft.header()
    draft.prompt("\n".join(f"line {number}" for number in range(500)))
    path = tmp_path / "s.jsonl"
    path.write_bytes(draft.bytes())

    assert "line 499" not in shown("show", path)
    assert re.search(r"… [\d.]+ KB more +--full\n", shown("show", path))
    assert "│    line 499\n" in shown("show", path, "--full")


def test_skipped_lines_are_told_and_change_the_exit_code(session: Path) -> None:
    """3: done, but something had to be left out. A torn last line alone is none of that."""
    session.write_bytes(b"garbage\n" + sample() + b"\n\xff\xfe\n")
    result = thence("show", session)

    assert 3 == result.code
    assert "skipped line 1, 7 bytes: bad json\n" in result.out
    assert "skipped line 32, 2 bytes: bad utf-8\n" in result.out
    assert 3 == thence("show", session, "--as", "messages").code


@pytest.mark.parametrize("content", [b"", b"garbage\n", b'{"a":1}\n'])
def test_file_that_is_nobodys_is_refused(tmp_path: Path, content: bytes) -> None:
    """In one sentence, with a hint that names whose sessions are read."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(content)
    error = refused(thence("show", path), 1)

    assert [
        f"error: not a session of a known agent: {path}",
        f"hint:  thence reads sessions of {min(adapters())}",
    ] == [line.partition(",")[0] for line in error.splitlines()]


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
    """Every event, numbered, what became of it, what follows from it, and what was found."""
    answer = json.loads(shown("show", "--sample", *form))
    events = answer["events"]
    own = [event for event in events if "derived_from" not in event]
    derived = [event for event in events if "derived_from" in event]

    assert SAMPLE_SESSION == answer["session_id"] == answer["session"]["native_session_id"]
    numbers = [event["seq"] for event in events]
    assert sorted(set(numbers)) == numbers
    bases = {event["event_id"]: event["seq"] for event in own}
    assert {True} == {0 < e["seq"] - bases[e["derived_from"]] < SEQ_STEP for e in derived}
    assert {"live": 24, "orphaned": 1, "dead": 5, "internal": 4} == answer["counts"]
    assert answer["counts"] == dict(Counter(event["state"] for event in own))
    assert {"test_run", "edit", "error", "retry"} <= {event["kind"] for event in derived}
    assert {event["derived_from"] for event in derived} <= {event["event_id"] for event in own}
    assert {"state": "stopped", "torn": True, "open_calls": ["toolu_lost"], "since": 28} == (
        answer["turn"]
    )
    assert 2560 == sum(answer["spent"]["dead"].values())
    assert [] == answer["pending"]
    assert [("torn", 30)] == [(skip["why"], skip["line"]) for skip in answer["skipped"]]


def test_numbers_and_texts_of_any_kind_are_printed(tmp_path: Path) -> None:
    """What the codec keeps of a log, JSON output shows."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(
        b'{"type":"user","ts":"","uuid":"a","prev_uuid":null,"payload":'
        b'{"role":"user","content":"\\ud800","big":%b,"far":1e999,"deep":%b}}\n'
        % (b"9" * 400, b"[" * 200 + b"]" * 200)
    )
    events = json.loads(shown("show", path, "--json"))["events"]

    assert "\ud800" == events[0]["payload"]["text"]


@pytest.mark.slow
@pytest.mark.parametrize("depth", [984, 100_000])
def test_value_nested_beyond_all_sense_is_no_crash(tmp_path: Path, depth: int) -> None:
    """Its line is printed, skipped, or refused in words, whichever Python can do."""
    path = tmp_path / "s.jsonl"
    start = b'{"type":"user","ts":"","uuid":"a","prev_uuid":null,"payload":'
    path.write_bytes(Draft().bytes() + start + b"[" * depth + b"]" * depth + b"}\n")
    with path.open("ab") as file:
        file.write(sample())
    result = as_process("show", path, "--json")

    assert "Traceback" not in result.err
    assert result.code in (0, 1, 3)
    assert as_process("show", path).code in (0, 3)


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

    assert f"error: symbolic links are not followed: {link}\nhint:  name {session}\n" == error


def test_folder_is_refused(tmp_path: Path) -> None:
    """With the same two lines as any other error."""
    error = refused(thence("show", tmp_path), 1)

    assert error.startswith(f"error: a folder is not a session: {tmp_path}\nhint:  give")


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
        ["inspect"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    """And says on stderr how it is written, as every error is told."""
    error, hint, *rest = refused(thence(*arguments), 2).split("\n")

    assert error.startswith("error: ")
    assert hint.startswith("hint:  thence ")
    assert " see thence " in hint
    assert [""] == rest


@pytest.mark.few(2)
@pytest.mark.parametrize("command", ["show", "export"])
def test_reader_that_goes_away_is_no_error(session: Path, command: str) -> None:
    """`thence show | head` ends quietly, also where scripts look at each part of a pipe."""
    session.write_bytes(sample() * 40)  # more than a pipe holds
    with subprocess.Popen(
        [*ENTRY, command, session, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=BARE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()

    assert (b"", 0) == (errors, process.returncode)


# -- help -------------------------------------------------------------------------------------


def test_help_lists_the_main_commands_and_imports_none() -> None:
    """In titled groups, so that it stays short; and quick."""
    code = (
        "import sys; from thence.cli import thence; "
        "thence(['--help'], standalone_mode=False); "
        "print([m for m in sys.modules if m.startswith('thence.format')])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, encoding="utf-8", env=BARE
    )

    main = [name for names in GROUPS.values() for name in names]
    assert all(f"  {name}  " in result.stdout for name in main)
    assert all(f"\n{title}:\n" in result.stdout for title in GROUPS)
    assert len(main) == len({*main}) <= 19
    assert result.stdout.endswith("[]\n")


def test_help_of_all_lists_every_command() -> None:
    """Those that the short list leaves out as well."""
    lines = shown("help").splitlines()

    assert {*COMMANDS} == {line.split()[0] for line in lines if re.match(r"  \S", line)}
    assert shown("help", "ls") == shown("ls", "--help")


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("serach", "Did you mean `thence search`?"),
        ("stauts", "Did you mean `thence status`?"),
        ("xyzzy", "`thence help` lists commands."),
    ],
)
def test_a_mistyped_command_names_the_nearest_one(typed: str, hint: str) -> None:
    """And exits with 2, as wrong usage does."""
    error, hint_line, *_ = refused(thence(typed, "x"), 2).split("\n")

    assert f"error: unknown command '{typed}'" == error
    assert f"hint:  {hint}" == hint_line


def test_names_that_people_try_first_work() -> None:
    """`list` is `ls`, `view` is `serve`."""
    assert all(name not in COMMANDS and meant in COMMANDS for name, meant in ALIASES.items())
    assert shown("ls", "--help").partition("\n")[2] == shown("list", "--help").partition("\n")[2]


def test_every_earlier_name_has_a_new_one_that_does_the_same() -> None:
    """Which help shows; an option that shows something else takes that command's options."""
    sample = str(resources.files("thence") / "samples" / "tidepool.jsonl")
    listed = shown("help")
    for name, now in MOVED.items():
        first, second = now.split()
        helped = shown(first, "--help")

        assert f"thence {now}" in listed
        assert second in helped
        assert second.startswith("--") == ((first, second) in VIEWS), name
    for options in (["--tree"], ["--tree", "--all"], ["--stats"]):
        old = "tree" if "--tree" in options else "inspect"
        assert thence("show", sample, *options).out == thence(old, sample, *options[1:]).out


@pytest.mark.slow
def test_command_says_in_its_help_what_the_list_says() -> None:
    """One sentence in both places."""
    for name, sentence in COMMANDS.items():
        assert sentence in " ".join(shown(name, "--help").split())


def test_version_is_the_version() -> None:
    """Of the package that runs."""
    assert f"thence, version {__version__}\n" == shown("--version")


# -- hostile content --------------------------------------------------------------------------


def test_messages_are_taken_by_the_api_whatever_a_log_holds(tmp_path: Path) -> None:
    """Ids and names of other servers, pictures it cannot show, an id in two turns: all stay."""
    svg = base64.b64encode(b"<svg/>").decode()
    source = {"type": "base64", "media_type": "image/svg+xml", "data": svg}
    script = Script()
    script.user([{"type": "text", "text": "Look."}, {"type": "image", "source": source}])
    for place in ("here", "there"):
        script.call("functions.exec_command:0", "my server.run it", path=place)
        script.result("functions.exec_command:0", f"what is {place}")
    script.say("Done.")
    path = next(write(tmp_path / "claude", script).glob("*.jsonl"))
    messages = thence("show", path, "--as", "messages").json
    results = [b["content"] for m in messages for b in m["content"] if b["type"] == "tool_result"]

    assert [] == refusals(messages)
    assert ["what is here", "what is there"] == results
    assert "[image left out: image/svg+xml]" == messages[0]["content"][1]["text"]


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


def prompts_in(answer: Any) -> list[Any]:
    """The events of a session that somebody said."""
    return [event for event in answer["events"] if event["kind"] == "user_msg"]


def test_json_loses_nothing_of_a_hostile_log(tmp_path: Path) -> None:
    """Escaped on the way out, the same again when it is read."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(evil().bytes())
    answer = json.loads(shown("show", path, "--as", "events"))

    assert EVIL in [event.get("payload", {}).get("text") for event in prompts_in(answer)]


def test_log_cannot_forge_lines() -> None:
    """A line feed in content starts no line that looks like ours."""
    lines = text(evil(), 200)

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
        output = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # how a terminal says that nobody is left on its other side
                part = b""
            if not part:
                break
            output += part
    os.close(ours)

    assert 0 == process.returncode
    return output.decode().replace("\r\n", "\n")


@pytest.mark.slow
@pytest.mark.parametrize("env", [{}, {"NO_COLOR": ""}], ids=["unset", "empty"])
def test_terminal_gets_colour(env: dict[str, str]) -> None:
    """The same text, coloured."""
    output = on_a_terminal(**env)

    assert "\x1b[" in output
    assert shown("show", "--sample", COLUMNS="80") == re.sub(r"\x1b\[\d*m", "", output)


@pytest.mark.slow
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
def test_every_session_fits_and_is_harmless(steps: list[tuple[str, str]], room: int) -> None:
    """Whatever was said in it, in whatever script."""
    draft = Draft()
    for at, (verb, word) in enumerate(steps):
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
        lines = text(draft, room)

    assert [] == [line for line in lines if columns(line) > room or HARMFUL.search(line)]
