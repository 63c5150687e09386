"""Packages of other people that break: each costs its own part, is named, and all else goes on.

Real distributions on the path of a real process, as pip would leave them.
"""

from __future__ import annotations

import json
import os
import subprocess
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from tests.cli.desk import Desk, alerts
from tests.processes import run_thence
from tests.testing.samples import CLAUDE, Claude
from thence.agents import adapters
from thence.agents.guard import GuardedAdapter

READER = """
from pathlib import Path
from thence.agents import Batch, Cursor, File, Source

class Reader:
    name = "acme"
    def roots(self, home, env): return [home / ".acme"]
    def find(self, root): yield Source("acme", "s1", (File(str(root / "a.log")),), str(root))
    def at(self, path): return None
    def read(self, source, cursor=None): return Batch([], [], Cursor())
    def live(self, root): return iter(())
    def prompts(self, root): return iter(())
    def keeps_days(self, root): return None
"""

DIGESTER = """
class Reader:
    name = "acme"
    def digest(self, course, row): {}
"""

READERS = {
    "import raises": ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
    "import exits": ("import sys; sys.exit(5)", "ended the process with 5"),
    "odd name": (READER.replace('"acme"', '"claude:x"'), "'claude:x' is no name of an agent"),
    "no such class": ("x = 1", "Reader"),
    "init exits": ("class Reader:\n    def __init__(self): raise SystemExit", "ended the process"),
    "lacks methods": ("class Reader:\n    name = 'acme'", "lacks a method of the protocol"),
    "taken name": (READER.replace('name = "acme"', 'name = "claude"'), "is called claude"),
    "roots exit": (READER + "    def roots(self, home, env): raise SystemExit(0)", "ended the"),
    "roots are junk": (READER + "    def roots(self, home, env): return 7", "TypeError"),
    "find raises": (READER + "    def find(self, root): raise OSError('gone')", "OSError: gone"),
    "find exits": (READER + "    def find(self, root):\n        yield from exit(9)", "with 9"),
    "find gives junk": (
        READER + "    def find(self, root): yield 'a session'",
        "Expected `object`",
    ),
    "writes among answers": (
        READER + "    def find(self, root):\n        import os\n        for pipe in range(3, 9):\n"
        "            try: os.write(pipe, b'\\5' + bytes(7) + b'[1,2]')\n"
        "            except OSError: pass\n        return iter(())",
        "was ended by signal 9",
    ),
    "live exits": (READER + "    def live(self, root): exit(9)", None),
}


def install(place: Path, group: str, body: str) -> None:
    """Leave a package as pip does: a module, and what it offers."""
    place.mkdir()
    (place / "acme_tools.py").write_text(body, encoding="utf-8")
    info = place / "acme_tools-1.4.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-tools\nVersion: 1.4\n")
    (info / "entry_points.txt").write_text(f"[{group}]\nacme = acme_tools:Reader\n")


def thence(place: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, with the package installed."""
    env = {**os.environ, "PYTHONPATH": str(place), "COLUMNS": "200", **more}
    return run_thence(*arguments, env=env, path=[place])


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine with one session of Claude Code, and a folder of the other agent."""
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(alerts())
    (desk.user / ".acme").mkdir()
    (desk.user / ".acme" / "a.log").write_text("x\n", encoding="utf-8")
    return desk


def findings(ran: subprocess.CompletedProcess[str]) -> list[Any]:
    """What the doctor says of packages."""
    return [
        finding for finding in json.loads(ran.stdout)["findings"] if finding["topic"] == "packages"
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("desk")
@pytest.mark.sampled(3)
@pytest.mark.parametrize(("body", "why"), READERS.values(), ids=READERS)
def test_a_broken_reader_is_left_out_and_named(tmp_path: Path, body: str, why: str | None) -> None:
    """Sessions of other agents are kept; sweep, its JSON and doctor say which package, and why."""
    place = tmp_path / "site"
    install(place, "thence.agents", body)
    swept = thence(place, "sweep")
    again = thence(place, "sweep", "--json")
    strict = thence(place, "sweep", "--strict")
    listed = thence(place, "ls", "--json")
    looked = thence(place, "doctor", "--json")

    assert "" == swept.stderr == looked.stderr
    assert {0 if why is None else 3} == {swept.returncode, again.returncode}
    assert ["claude:" + alerts().session] == [
        row["session_uid"] for row in json.loads(listed.stdout) if row["flavor"] == "claude"
    ]
    problems = json.loads(again.stdout)["problems"]
    if why is None:
        assert ([], []) == (problems, findings(looked))
        return
    assert [("thence.agents", "acme", "acme-tools 1.4")] == [
        (problem["group"], problem["name"], problem["package"]) for problem in problems
    ]
    assert why in problems[0]["why"]
    assert "agent acme of acme-tools 1.4 is not used" in swept.stdout
    assert 3 == strict.returncode
    [finding] = findings(looked)
    assert ("warning", True) == (finding["level"], why in finding["words"])


NONSENSE = {
    "raise ValueError('bad line')": "ValueError: bad line",
    "raise KeyboardInterrupt": "KeyboardInterrupt",
    "raise BaseException('odd')": "BaseException: odd",
    "exit(4)": "ended the process with 4",
    "os._exit(0)": "ended the process with 0",
    "os.kill(os.getpid(), 11)": "ended by signal 11",
    "return self.read(source)": "RecursionError",
    "time.sleep(3600)": "no answer within 5 s",
    "return [b'x' * 2**20] * 2**30": "MemoryError",
    "return batch(say, text='x' * 2**21)": "2 MB at once",
    "return None": "Expected `object`, got `null`",
    "return batch(None)": "`$.events[0]`",
    "return batch(Fact(Node(None)))": "Expected `str`, got `null` - at `$.events[0].node.id`",
    "return batch(Fact(Node('n'), ts=1700000000))": "Expected `str | null`, got `int`",
    "return batch(say, usage={'input_tokens': '12'})": "Expected `int`, got `str`",
    "return batch(say, usage={'tokens': object()})": "object is no plain value",
    "return batch(say, usage=Usage(-5))": "input_tokens is -5",
    "return batch(say, line=2**70)": "line is",
    "return batch(say, cost_usd=float('nan'))": "cost_usd is nan",
    "return batch(say, usage_key=['a'])": "Expected `str | null`, got `array`",
    "return batch(Fact(Node('n'), blocks=(Block('assistant', 'assistant'),)))": "'assistant'",
    "return batch(Fact({'id': 'n'}), type={1, 2})": "Expected `str`, got `array`",
    "return batch(Fact(Node('n'), blocks=(Block('user_msg', 'user', ref='p'),)))": "has a ref",
    "return batch(say, done=False)": "more to read, again and again",
}
"""What `read` may do, and what is said then."""

NONSENSE_FOUND = {
    "return itertools.repeat(item)": "it goes on after",
    "yield Source('claude', 's1', (), '')": "as one of claude",
    "yield item; os._exit(1)": "ended the process with 1",
}
"""What `find` may do."""

IMPORTED = {
    "import os; os._exit(7)": "ended the process with 7",
    "import time; time.sleep(3600)": "no answer within 5 s",
    "raise KeyboardInterrupt": "KeyboardInterrupt",
}
"""What its module may do."""

BATCH = """
import os, time, msgspec
from thence.agents import Mark
from thence.format.facts import Block, Fact
from thence.format.nodes import Is, Node
from thence.format.records import Usage

say = "say"
def batch(fact, text="Hello.", done=True, **more):
    if fact == say:
        fact = Fact(Node("n", None, Is.PROMPT), blocks=(Block("user_msg", "user", "", text),))
    fact = msgspec.structs.replace(fact, **more) if more else fact
    return Batch([fact], [], Cursor({"": Mark(1, 1, 1, 1)}), bytes=1, lines=1, done=done)
"""

QUICK = """
from thence.agents import guard
from thence.cli import main
guard.START_LIMIT_S, guard.MAX_ANSWER_BYTES = 5.0, 1 << 20
guard.ANSWER_LIMIT_S = 5.0 if {is_short} else 60.0
main()
"""
"""A command that does not wait for long, nor takes much."""


def install_all(place: Path, bodies: dict[str, str]) -> None:
    """Leave one package that brings many agents, each in a module of its own."""
    info = place / "acme_tools-1.4.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-tools\nVersion: 1.4\n")
    points = [f"{name} = acme_{name}:Reader\n" for name in bodies]
    (info / "entry_points.txt").write_text("[thence.agents]\n" + "".join(points))
    for name, body in bodies.items():
        text = body.replace('"acme"', f'"{name}"')
        (place / f"acme_{name}.py").write_text(text, encoding="utf-8")


def run_quick(place: Path, *words: str, is_short: bool) -> subprocess.CompletedProcess[str]:
    """Run a command that waits five seconds for a package, and if `is_short` for an answer."""
    env = {**os.environ, "PYTHONPATH": str(place), "COLUMNS": "200"}
    return run_thence(*words, env=env, path=[place], program=QUICK.format(is_short=is_short))


@pytest.mark.slow
def test_a_reader_that_gives_nonsense_costs_its_own_sessions(tmp_path: Path, desk: Desk) -> None:
    """Two dozen of them beside a good one: each is named with its reason; all else is stored."""
    place = tmp_path / "site"
    read = "    def read(self, source, cursor=None): "
    bodies = {f"r{n}": f"{READER}{read}{how}\n{BATCH}" for n, how in enumerate(NONSENSE)}
    bodies["good"] = READER + f"{read}return batch(say)\n{BATCH}"
    install_all(place, bodies)
    os.truncate(desk.user / ".acme" / "a.log", 9 << 20)  # so much that other processes read it
    swept = run_quick(place, "sweep", "--json", is_short=True)
    answer = json.loads(swept.stdout)
    listed = json.loads(run_quick(place, "ls", "--json", is_short=True).stdout)
    failed = {out["uid"]: out["why"] for out in answer["outcomes"] if out["what"] == "failed"}
    reasons = dict(zip((f"r{n}:s1" for n in range(len(NONSENSE))), NONSENSE.values(), strict=True))

    assert (3, "") == (swept.returncode, swept.stderr)
    stored = {row["session_uid"] for row in listed}
    assert {"claude:" + alerts().session, "good:s1", list(reasons)[-1]} == stored  # as far as read
    assert reasons.keys() == failed.keys()
    assert {} == {uid: failed[uid] for uid, why in reasons.items() if why not in failed[uid]}
    assert {"acme-tools 1.4"} == {problem["package"] for problem in answer["problems"]}
    assert {uid.partition(":")[0] for uid in reasons} == {p["name"] for p in answer["problems"]}


@pytest.mark.slow
def test_a_reader_that_finds_nonsense_or_hangs_costs_its_own_sessions(
    tmp_path: Path, desk: Desk
) -> None:
    """The sweep goes on and ends with 3; it and the doctor name package, agent and reason."""
    place = tmp_path / "site"
    line = "        item = Source(self.name, 's1', (File(str(root / 'a.log')),), str(root))\n"
    bodies = {
        f"f{n}": f"import itertools, os\n{READER}    def find(self, root):\n{line}        {how}\n"
        for n, how in enumerate(NONSENSE_FOUND)
    }
    bodies |= {f"i{n}": how for n, how in enumerate(IMPORTED)}
    install_all(place, bodies)
    reasons = dict(zip(bodies, [*NONSENSE_FOUND.values(), *IMPORTED.values()], strict=True))
    swept = run_quick(place, "sweep", "--json", is_short=False)
    looked = json.loads(run_quick(place, "doctor", "--json", is_short=False).stdout)
    problems = json.loads(swept.stdout)["problems"]
    why = {problem["name"]: problem["why"] for problem in problems}
    words = {f["words"] for f in looked["findings"] if f["topic"] == "packages"}

    assert (3, "") == (swept.returncode, swept.stderr)
    assert reasons.keys() == why.keys()
    assert {} == {name: why[name] for name, reason in reasons.items() if reason not in why[name]}
    assert {f"agent {name} of acme-tools 1.4 is not used: {why[name]}" for name in why} == words
    assert 1 == json.loads(swept.stdout)["sessions_new"]


SILENT_READERS = {
    "import": "import time; time.sleep(3600)",
    "live": READER + "    def live(self, root):\n        import time; time.sleep(3600)",
}


@pytest.mark.slow
@pytest.mark.parametrize("body", SILENT_READERS.values(), ids=SILENT_READERS)
def test_a_package_that_gave_no_answer_is_asked_again_when_it_changed(
    tmp_path: Path, desk: Desk, body: str
) -> None:
    """Until then commands do not wait for it, and the first page names it; the doctor asks it."""
    desk.sweep()
    place, asked = tmp_path / "site", tmp_path / "asked"
    count = f"open({str(asked)!r}, 'a').write('.')"
    install(place, "thence.agents", body.replace("import time;", f"import time; {count};"))
    words = "agent acme of acme-tools 1.4 is not used: it gave no answer within 5 s"
    first = run_quick(place, "ls", is_short=True)
    page = run_quick(place, is_short=True)
    problems = json.loads(run_quick(place, "--json", is_short=True).stdout)["problems"]
    number = len(asked.read_text())
    again = json.loads(run_quick(place, "doctor", "--json", is_short=True).stdout)
    more = len(asked.read_text())
    (place / "acme_tools.py").write_text(READER, encoding="utf-8")
    mended = run_quick(place, is_short=True)

    assert (0, 0, 0, 1) == (first.returncode, page.returncode, mended.returncode, number)
    assert words in page.stdout
    assert ["acme"] == [problem["name"] for problem in problems]
    assert "acme" not in mended.stdout
    if "def live" not in body:  # the doctor does not ask who is running
        assert more > number
        assert words in {finding["words"] for finding in again["findings"]}


HOOK = """
import io, sys
sys.stdin = io.StringIO({request!r})
from thence.cli import main
main()
"""
"""A command that is asked by the hook of an agent."""


def test_a_package_that_hangs_does_not_keep_the_brief_from_other_agents(
    tmp_path: Path, desk: Desk
) -> None:
    """The hook of Claude Code imports no package: it would get no answer within its time."""
    desk.sweep()
    place = tmp_path / "site"
    install(place, "thence.agents", "import time; time.sleep(3600)")
    cwd = desk.run("ls", "--json").json[0]["cwd"]
    program = HOOK.format(request=json.dumps({"cwd": cwd, "session_id": "new"}))
    env = {**os.environ, "PYTHONPATH": str(place)}
    asked = run_thence("brief", "--hook", "claude", env=env, path=[place], program=program)

    assert (0, "") == (asked.returncode, asked.stderr)
    assert alerts().session in asked.stdout


def test_what_a_sound_reader_gives_arrives_unchanged(tmp_path: Path) -> None:
    """Whatever its log holds: halves of characters, long numbers, nesting, names of any bytes."""
    odd = {"half": "\ud800", "long": 2**70, "deep": json.loads("[" * 90 + "]" * 90), "": None}
    log = Claude(tmp_path / "projects" / "-p" / f"{CLAUDE}.jsonl")
    log.say("user", [{"type": "text", "text": "Look.", **odd}, {"type": "odd", **odd}])
    log.line("of the future", **odd)
    with log.path.open("ab") as file:
        file.write(b"no json\n")
    point = EntryPoint("claude", "thence.agents.claude.reader:Claude", "thence.agents")
    own, guarded = adapters()["claude"], GuardedAdapter(point)
    (source,) = own.find(tmp_path)
    batch = own.read(source)

    assert batch == guarded.read(source)
    assert own.read(source, batch.cursor) == guarded.read(source, batch.cursor)
    assert [source] == list(guarded.find(tmp_path)) == guarded.sources_at(log.path)
    assert guarded.at(tmp_path) is None


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.usefixtures("desk")
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("raise RuntimeError('no licence')", "no licence"),
        ("import sys; sys.exit(5)", "ended the process with 5"),
        ("import os; os._exit(5)", "ended the process with 5"),
        ("class Reader: pass", "lacks a name"),
        (DIGESTER.replace("{}", "exit(3)"), "ended the process with 3"),
        (DIGESTER.replace("{}", "raise KeyError('x')"), "KeyError"),
        (DIGESTER.replace('"acme"', '"thence"'), "is called thence"),
    ],
)
def test_a_broken_digester_is_left_out_and_named(tmp_path: Path, body: str, why: str) -> None:
    """Sessions are kept and digested by ours."""
    place = tmp_path / "site"
    install(place, "thence.digesters", body)
    swept = thence(place, "sweep", "--json")
    answer = json.loads(swept.stdout)
    digest = thence(place, "digest", alerts().session, "--json")

    assert (0, "") == (swept.returncode, swept.stderr)
    assert (1, 1) == (answer["sessions_new"], answer["digested"])
    assert [("thence.digesters", "acme")] == [(p["group"], p["name"]) for p in answer["problems"]]
    assert why in answer["problems"][0]["why"]
    assert 0 == digest.returncode


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.usefixtures("desk")
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("raise RuntimeError('no licence')", "no licence"),
        ("import sys; sys.exit(5)", "ended the process with 5"),
        ("class Reader:\n    def __init__(self, url): pass", "it lacks"),
        ("class Reader:\n    def __init__(self, url): exit(6)", "ended the process with 6"),
    ],
)
def test_a_broken_store_is_an_error_only_where_it_is_asked_for(
    tmp_path: Path, body: str, why: str
) -> None:
    """Ours is used as ever; theirs, where it is set, ends with 2, its name and the reason."""
    place = tmp_path / "site"
    install(place, "thence.stores", body)
    ours = thence(place, "sweep", "--json")
    theirs = thence(place, "sweep", THENCE_STORE="acme://x")
    looked = thence(place, "doctor", "--json")

    assert (0, 1) == (ours.returncode, json.loads(ours.stdout)["sessions_new"])
    assert (2, "") == (theirs.returncode, theirs.stdout)
    assert "the store acme (acme_tools:Reader) cannot be opened" in theirs.stderr
    assert why in theirs.stderr
    assert "Traceback" not in theirs.stderr
    if not body.startswith("class"):
        assert [True] == [why in finding["words"] for finding in findings(looked)]
