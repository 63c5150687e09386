"""`thence sweep`: what is kept, what is said of it, and how it is stopped."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from tests.cli.desk import ALERTS, WINDOWS, Desk, alerts, windows
from thence.agents import adapters as installed
from thence.agents import profiles
from thence.agents.thence.reader import Native
from thence.cli import home_sweep, interrupts, progress_bar, sweep, wiring
from thence.cli.terminal import columns
from thence.memory import nudges, sweeper, watching
from thence.memory.digest import digesters
from thence.memory.sweep import Progress, SweepReport

LONG_S = 60.0


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Two sessions of two agents, not kept yet."""
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(windows())
    desk.write_codex()
    return desk


def test_sweep_says_what_was_kept(desk: Desk) -> None:
    """One line when all went well; the next one has nothing to do."""
    first, again = desk.sweep(), desk.sweep()

    assert first.out.startswith("imported 2 sessions (2 new), ")
    assert again.out.startswith("nothing new in 2 sessions, ")


@pytest.mark.slow
def test_a_sweep_that_finds_nothing_new_imports_no_code_that_reads(desk: Desk) -> None:
    """Counted, since machines are busy: what is imported decides how long it takes."""
    desk.sweep()
    code = (
        "import sys; sys.argv = ['thence', 'sweep']; from thence.cli import main; main()\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    readers = {name for name in loaded if name.endswith(".reader")}
    memory = ("ingest", "growth", "families", "digest", "prices", "vectors", "zones", "parcels")

    assert done.stdout.startswith("nothing new in 2 sessions")
    assert {f"thence.agents.{name}.reader" for name in ("claude", "codex", "thence")} == readers
    assert loaded.isdisjoint({f"thence.memory.{name}" for name in memory})
    assert loaded.isdisjoint({"thence.agents.claude.records", "tempfile", "zoneinfo", "socket"})


LOOKS_FOR = {
    "claude": "projects/*/ID.jsonl",
    "codex": "sessions/**/rollout-*.jsonl",
    "grok": "sessions/*/ID",
    "thence": "sessions/*/ID.jsonl",
}


@pytest.mark.parametrize("agent", LOOKS_FOR)
@pytest.mark.parametrize("dry", [[], ["-n"]], ids=["sweep", "dry"])
def test_a_folder_without_sessions_is_told_with_what_was_looked_for(
    desk: Desk, agent: str, dry: list[str]
) -> None:
    """Who gave the wrong folder sees what would have been a session, and where it would lie."""
    place = desk.user / "empty"
    place.mkdir()
    ran = desk.run("sweep", *dry, "--root", f"{agent}={place}")

    assert (0, "no sessions of any agent found") == (ran.code, ran.lines[0])
    assert f"  {agent}: no {LOOKS_FOR[agent]} below ~/empty" == ran.lines[1]
    assert f"--root {agent}=PATH" in ran.lines[2]


def test_an_agent_may_be_named_as_screens_name_it(desk: Desk) -> None:
    """`journal` is what people see of our own sessions; what nobody knows is said to be unknown."""
    place = desk.user / "empty"
    place.mkdir()
    named = desk.run("sweep", "-n", "--root", f"journal={place}", "--agent", "journal")
    unknown = desk.run("sweep", "-n", "--root", f"jornal={place}")

    assert (0, "  thence: no sessions/*/ID.jsonl below ~/empty") == (named.code, named.lines[1])
    assert 2 == unknown.code
    assert "unknown agent 'jornal'" in unknown.err


@pytest.mark.parametrize("dry", [[], ["-n"]], ids=["sweep", "dry"])
def test_of_several_folders_those_without_sessions_are_told(desk: Desk, dry: list[str]) -> None:
    """Those that were asked for; the usual ones are often empty."""
    place = desk.user / "empty"
    place.mkdir()
    line = f"  codex: no {LOOKS_FOR['codex']} below ~/empty"
    full = ("--root", f"claude={desk.user}/.claude")

    assert line in desk.run("sweep", *dry, *full, "--root", f"codex={place}").lines
    assert line not in desk.run("sweep", *dry).lines


def test_our_own_adapters_are_those_of_the_packages_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which are asked only where another package brings one."""
    own = {name: type(adapter) for name, adapter in wiring.adapters().items()}
    place = tmp_path / "theirs-1.0.dist-info"
    place.mkdir()
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    points = "[thence.agents]\nsilent = tests.cli.test_sweep:Silent\n"
    (place / "entry_points.txt").write_text(points)

    assert own == {name: type(adapter) for name, adapter in installed().items()}
    monkeypatch.syspath_prepend(tmp_path)
    profiles._others.cache_clear()
    there = list(wiring.adapters())
    profiles._others.cache_clear()

    assert [*own, "silent"] == there


class Silent(Native):
    """An adapter of somebody else's, which does not say what it looks for."""

    name = "silent"
    looks_for = ""


def test_an_adapter_need_not_say_what_it_looks_for(tmp_path: Path) -> None:
    """Other people's do not: their roots are told all the same."""
    lines = list(sweep.describe_empty({"x": Silent()}, {"x": [tmp_path]}))

    assert f"  x: no session below {tmp_path}" == lines[1]
    assert "on this machine" in next(sweep.describe_empty({}, {}))


def test_object_has_the_names_of_the_contract(desk: Desk) -> None:
    """One object on stdout, whatever happened."""
    answer = desk.run("sweep", "--json").json
    names = "sources read unchanged sessions_new sessions_changed events skipped redactions"

    assert {*names.split(), "evicted", "seconds"} <= set(answer)
    assert (2, 2, 0) == (answer["sources"], answer["sessions_new"], answer["unchanged"])


def test_progress_lines_go_to_stderr(desk: Desk) -> None:
    """So that stdout stays one object."""
    ran = desk.run("sweep", "--json", "--progress", "json")
    stages = [json.loads(line)["stage"] for line in ran.err.splitlines()]

    assert 2 == ran.json["sessions_new"]
    assert ("find", "done") == (stages[0], stages[-1])
    assert "read" in stages


def test_bar_is_shown_on_a_terminal_only_and_leaves_nothing(desk: Desk) -> None:
    """What stays on the screen is the answer."""
    quiet, shown = desk.run("sweep", "-n"), desk.run("sweep", tty=True)

    assert "" == quiet.err
    assert shown.err.endswith("\r\x1b[2K\x1b[1A\r\x1b[2K")
    assert shown.out.startswith("imported 2 sessions")


def test_dry_run_writes_nothing(desk: Desk) -> None:
    """It counts what is new, and makes no home."""
    ran = desk.run("sweep", "--dry-run")
    answer = desk.run("sweep", "-n", "--json").json

    assert ran.lines[0].startswith("thence sweep would read 2 sessions, ")
    assert "nothing was written" == ran.lines[-1]
    assert {"claude": 1, "codex": 1} == {
        agent["agent"]: agent["sessions_new"] for agent in answer["agents"]
    }
    assert not desk.home.exists()
    desk.sweep()
    assert "nothing new in 2 sessions" == desk.run("sweep", "-n").lines[0]
    desk.write_claude(alerts())
    assert 1 == desk.run("sweep", "-n", "--json").json["sessions_new"]


def test_one_agent_or_one_folder_can_be_swept_alone(desk: Desk, tmp_path: Path) -> None:
    """Roots that are given take the place of the usual ones."""
    assert 1 == desk.run("sweep", "--agent", "codex", "--json").json["sources"]
    elsewhere = tmp_path / "old"
    (elsewhere / "projects" / "p").mkdir(parents=True)
    (elsewhere / "projects" / "p" / f"{ALERTS}.jsonl").write_bytes(alerts().data)

    answer = desk.run("sweep", "--root", f"claude={elsewhere}", "--json").json

    assert (1, 1) == (answer["sources"], answer["sessions_new"])
    assert 2 == desk.run("sweep", "--root", "nobody=/").code
    assert 1 == desk.run("sweep", "--root", f"claude={tmp_path}/none").code
    assert 2 == desk.run("sweep", "--agent", "nobody").code


def test_skipped_lines_are_named_and_change_the_exit_code_if_asked(desk: Desk) -> None:
    """Everything else is kept, so that it is no failure; `--strict` makes it one."""
    script = alerts()
    folder = desk.write_claude(script)
    path = folder / f"{ALERTS}.jsonl"
    path.write_bytes(b'{"torn": \n' + script.data)

    ran = desk.run("sweep", "--strict")
    path.write_bytes(b'{"torn": \n' + path.read_bytes())

    assert 3 == ran.code
    assert 0 == desk.run("sweep").code
    assert "  1 line skipped in 1 file; the rest of the file is stored" in ran.lines
    assert f"{ALERTS}.jsonl:1 " in ran.out
    assert 80 >= max(map(columns, ran.lines))


def test_secrets_are_counted_by_kind(desk: Desk) -> None:
    """What was taken out is told, and is not in the store."""
    secret = "ghp_" + "x1Y2z3W4v5U6t7S8r9Q0p1O2n3M4l5K6j7H8"
    desk.write_claude(alerts(prompt=f"use {secret} to push"))

    ran = desk.run("sweep")

    assert "1 secret redacted: 1 " in ran.out
    assert [] == [
        path
        for path in desk.home.rglob("*")
        if path.is_file() and secret.encode() in path.read_bytes()
    ]


def test_home_is_the_owners_alone(desk: Desk) -> None:
    """Everything that is made: it holds what people said to their agents."""
    desk.sweep()
    made = [desk.home, *desk.home.rglob("*")]

    assert {0o700} == {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_dir()}
    assert {0o600} == {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_file()}


def test_nothing_is_written_when_that_is_switched_off(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The switch of other tools counts as well."""
    monkeypatch.setenv("CLAUDE_NO_SESSION_PERSISTENCE", "1")

    ran = desk.run("sweep")

    assert (2, "") == (ran.code, ran.out)
    assert not desk.home.exists()


def test_excluded_projects_are_not_kept(desk: Desk) -> None:
    """As the settings say, before a file is read."""
    desk.home.mkdir()
    settings = '[session_memory]\nexclude = ["/home/dev/tidepool"]\n'
    (desk.home / "config.toml").write_text(settings, encoding="utf-8")
    desk.sweep()

    assert [] == [row for row in desk.run("ls", "--json").json if "tidepool" in row["cwd"]]


OTHERS = """
class Prompts:
    name = "prompts"

    def digest(self, timeline, row):
        from thence.memory.digest import DigestPart

        return DigestPart({"said": len(timeline.prompts), "agent": row.session.flavor})


class Odd:
    name = "odd"

    def digest(self, timeline, row):
        from thence.memory.digest import DigestPart

        return DigestPart({"what": object()})
"""


@pytest.fixture
def others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package of somebody else's is installed, which brings two digesters."""
    place = tmp_path / "site"
    about = place / "theirs-1.0.dist-info"
    about.mkdir(parents=True)
    (place / "theirs.py").write_text(OTHERS)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    points = "[thence.digesters]\nprompts = theirs:Prompts\nodd = theirs:Odd\n"
    (about / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(place)
    digesters.cache_clear()
    yield
    digesters.cache_clear()
    sys.modules.pop("theirs", None)


def _more(desk: Desk, settings: str) -> dict[str, Any]:
    """What others say of the session of Claude's, swept with these settings."""
    desk.home.mkdir(exist_ok=True)
    (desk.home / "config.toml").write_text(settings, encoding="utf-8")
    desk.sweep()
    digest: dict[str, Any] = desk.run("digest", WINDOWS, "--json").json
    return digest


@pytest.mark.usefixtures("others")
def test_installed_digesters_are_asked(desk: Desk) -> None:
    """Each adds its part; one that says what cannot be stored costs its own part only."""
    more = _more(desk, "")["more"]

    assert {"prompts", "odd"} == set(more)
    assert "claude" == more["prompts"]["agent"]
    assert 0 < more["prompts"]["said"]
    assert "object" in more["odd"]["failed"]


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize("named", ["prompts", "theirs:Prompts"])
def test_settings_choose_the_digesters(desk: Desk, named: str) -> None:
    """By the name their package gives them, or by where they are; ours is always asked."""
    digest = _more(desk, f"session_memory.digesters = ['{named}']")

    assert {"prompts"} == set(digest["more"])
    assert digest["outcome"]


def test_a_digester_that_is_not_there_is_named(desk: Desk) -> None:
    """Before anything is read, with what there is."""
    desk.home.mkdir()
    (desk.home / "config.toml").write_text("session_memory.digesters = ['prompts']")
    ran = desk.run("sweep")

    assert 2 == ran.code
    assert "no digester 'prompts' is installed" in ran.err
    assert "installed: thence" in ran.err


def test_tasks_are_named_as_the_settings_say(desk: Desk) -> None:
    """The user's patterns tie sessions to tasks, in place of the usual ones."""
    settings = "[[session_memory.tasks]]\nname = 'place'\npattern = '/dev/(tide)'\nref = 'T-\\1'\n"

    assert "T-tide" == _more(desk, settings)["task_ref"]


def test_machine_without_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so, and how to name a folder."""
    ran = Desk(tmp_path, monkeypatch).run("sweep")

    assert 0 == ran.code
    assert "--root" in ran.out


def test_sweep_beside_another_one_is_refused(desk: Desk) -> None:
    """Exit code 11, and a hint."""
    from thence.cli import wiring

    desk.sweep()
    with wiring.store() as store, store.sweeping():
        ran = desk.run("sweep")

    assert 11 == ran.code
    assert "another sweep" in ran.err


def test_interrupted_sweep_keeps_what_it_read(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends with 130 and says how to go on; the next sweep does."""
    from thence.memory.sweep import Sweep

    run = Sweep.run

    def stopped(self: Sweep, *values: Any, **options: Any) -> SweepReport:
        run(self, *values, **options)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("not stopped")

    with monkeypatch.context() as patch:
        patch.setattr(Sweep, "run", stopped)
        ran = desk.run("sweep")

    assert 130 == ran.code
    assert ran.out.startswith("stopped after 2 of 2 sessions, 2 new ones are stored; run it again")
    assert desk.sweep().out.startswith("nothing new")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_interruption_ends_only_the_process_that_was_asked() -> None:
    """What a sweep started gets the same signal, and must not print a trace of it."""
    with interrupts.interruptible():
        child = os.fork()
        if not child:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
            os._exit(7)
        _, status = os.waitpid(child, 0)

    assert 7 == os.waitstatus_to_exitcode(status)


# -- the queue ------------------------------------------------------------------------------


def nudge(desk: Desk, name: str, **fields: object) -> Path:
    """What a hook leaves."""
    folder = desk.home / "queue"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(json.dumps(fields), encoding="utf-8")
    return path


def test_nudges_are_drained_and_lead_to_folders_nobody_named(desk: Desk, tmp_path: Path) -> None:
    """A session outside the usual folders is found through its hook."""
    elsewhere = tmp_path / "other"
    (elsewhere / "projects" / "p").mkdir(parents=True)
    path = elsewhere / "projects" / "p" / f"{ALERTS}.jsonl"
    path.write_bytes(alerts().data)
    nudge(desk, "a.json", agent="claude", session=ALERTS, transcript_path=str(path), ts=1.5)
    nudge(desk, "b.json", agent="claude", session=ALERTS, event="Stop", ts="2026")
    nudge(desk, "c.json.17.tmp", agent="claude")
    (desk.home / "queue" / "broken.json").write_text("{", encoding="utf-8")

    answer = desk.run("sweep", "--json").json

    assert 3 == answer["sessions_new"]
    assert ["c.json.17.tmp"] == [file.name for file in (desk.home / "queue").iterdir()]


def test_nudges_of_other_agents_wait(desk: Desk) -> None:
    """Who sweeps one agent leaves the others' nudges for the next sweep."""
    nudge(desk, "a.json", agent="claude", session="x")
    nudge(desk, "b.json", agent="codex", session="y")

    taken = nudges.take(desk.home, only=["codex"])

    assert ["y"] == [entry.session for entry in taken.nudges]
    assert {"a.json", ".taken-b.json"} == {path.name for path in (desk.home / "queue").iterdir()}
    assert {"x", "y"} == {entry.session for entry in nudges.take(desk.home).nudges}


@pytest.mark.parametrize(
    "fields",
    [
        {"agent": "claude", "transcript_path": "/etc/passwd"},
        {"agent": "claude", "transcript_path": "../../x"},
        {"agent": "nobody", "transcript_path": "/tmp"},
        {"agent": "claude", "transcript_path": None},
    ],
)
def test_nudges_are_not_believed(desk: Desk, fields: dict[str, object]) -> None:
    """A path counts only if the agent's own reader takes it for a session."""
    from thence.agents import adapters

    nudge(desk, "a.json", session="x", **fields)

    assert [] == list(nudges.take(desk.home).roots(adapters()))


# -- watching -------------------------------------------------------------------------------


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> SimpleQueue[SweepReport]:
    """What a watching sweep has said, as it says it."""
    queue, tell = SimpleQueue[SweepReport](), sweep.SweepRun._tell

    def tell_and_put(run: sweep.SweepRun, report: SweepReport, *, first: bool = False) -> None:
        tell(run, report, first=first)
        queue.put(report)

    monkeypatch.setattr(sweep.SweepRun, "_tell", tell_and_put)
    return queue


def _press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_watching_sweeps_what_changed_alone(
    desk: Desk, reports: SimpleQueue[SweepReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first sweep takes everything, each further one the sessions of the files that changed.

    These are digested when nothing changes any more.
    """
    folder = desk.claude / "projects" / "-home-dev-project"

    def changes(*_: object, **__: object) -> object:
        reports.get(timeout=LONG_S)
        desk.write_claude(alerts())
        with (folder / f"{WINDOWS}.jsonl").open("ab") as file:
            file.write(b"\n")
        yield {folder / f"{ALERTS}.jsonl"}
        while not reports.get(timeout=LONG_S).digested:
            pass
        _press_ctrl_c()

    monkeypatch.setattr(sweeper, "changes", changes)
    monkeypatch.setattr(watching, "IDLE_BEFORE_DIGEST_S", 0.0)
    ran = desk.run("sweep", "--watch", "--json")
    *lines, _stopped = ran.lines

    assert 130 == ran.code
    assert [(2, 2, 2), (1, 1, 0), (0, 0, 1)] == [
        (report["sources"], report["sessions_new"], report["digested"])
        for report in map(json.loads, lines)
    ]


def test_watching_begins_with_a_sweep_that_may_fork(
    desk: Desk, reports: SimpleQueue[SweepReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is much to read: no thread of ours runs yet."""
    started: list[bool] = []
    start = sweeper.Sweeper.run

    def run(self: sweeper.Sweeper) -> None:
        started.append(reports.empty())
        start(self)

    def changes(*_: object, **__: object) -> object:
        for _report in range(2):
            reports.get(timeout=LONG_S)
        _press_ctrl_c()
        yield set()

    monkeypatch.setattr(home_sweep, "MIN_FIRST_SWEEP_BYTES", 1)
    monkeypatch.setattr(sweeper.Sweeper, "run", run)
    monkeypatch.setattr(sweeper, "changes", changes)
    ran = desk.run("sweep", "--watch")

    assert [False] == started
    assert "imported 2 sessions (2 new)" in ran.lines[0]
    assert "stopped watching" == ran.lines[-1]


def test_watching_begins_before_any_agent_was_used(
    tmp_path: Path, reports: SimpleQueue[SweepReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that nothing is there, names no folder that is not, and sweeps what comes."""
    desk = Desk(tmp_path, monkeypatch)

    def changes(folders: Sequence[Path], *_: object, **__: object) -> object:
        def paths() -> object:
            assert desk.claude in folders
            reports.get(timeout=LONG_S)
            desk.write_claude(alerts())
            yield {desk.claude / "projects" / "-home-dev-project" / f"{ALERTS}.jsonl"}
            reports.get(timeout=LONG_S)
            _press_ctrl_c()

        return paths()

    monkeypatch.setattr(sweeper, "changes", changes)
    ran = desk.run("sweep", "--watch")

    assert ran.lines[0].endswith("no sessions of any agent found")
    assert "claude:" not in "".join(ran.lines[:3])
    assert "imported 1 session (1 new)" in ran.lines[3]


@pytest.mark.slow
def test_watching_ends_when_it_is_told(
    desk: Desk, reports: SimpleQueue[SweepReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while nothing happens."""
    monkeypatch.setitem(__import__("sys").modules, "watchfiles", None)  # as if not installed
    monkeypatch.setattr(watching, "POLL_S", 0.01)

    def press_ctrl_c() -> None:
        reports.get(timeout=LONG_S)
        _press_ctrl_c()

    press = threading.Thread(target=press_ctrl_c)
    press.start()
    ran = desk.run("sweep", "--watch")
    press.join()

    assert 130 == ran.code
    assert "imported 2 sessions (2 new)" in ran.lines[0]
    assert "stopped watching" == ran.lines[-1]


# -- the bar --------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [79, 119])
def test_bar_fits_its_line(room: int) -> None:
    """Bytes, speed, what is left, and how many sessions."""
    progress = Progress("read", 71_000_000, 103_000_000, 144, 212, 139)
    first, second = progress_bar.lines(progress, room, 2.3)

    assert room >= max(columns(first), columns(second))
    assert "68 %  71 MB of 103 MB  31 MB/s  1 s left" in first
    assert "144 of 212 sessions read, 139 imported" in second


@pytest.mark.parametrize("stage", ["find", "read", "digest", "evict"])
def test_bar_of_any_stage(stage: str) -> None:
    """Nothing to do, or nothing known yet, breaks nothing."""
    for progress in (Progress(stage), Progress(stage, 5, 0, 3, 2, 9)):  # type: ignore[arg-type]
        assert 2 == len(progress_bar.lines(progress, 40, 0.0))


def test_what_the_system_refuses_is_told_in_two_lines(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home that cannot be made: no traceback, and a hint."""
    monkeypatch.setenv("THENCE_HOME", "/proc/none/of/this")

    ran = desk.run("sweep")

    assert (1, "") == (ran.code, ran.out)
    assert ["error:", "hint: "] == [line[:6] for line in ran.err.splitlines()]


@pytest.mark.parametrize("growing", [False, True])
def test_sessions_deleted_while_sweeping_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, growing: bool
) -> None:
    """They are counted and told of; the lists hold those that were read, and no skipped line."""
    desk = Desk(tmp_path, monkeypatch)
    names = [f"{number:08d}-0000-4000-8000-000000000000" for number in range(6)]
    folder = desk.write_claude(*(alerts(name, f"question {name}") for name in names))
    if growing:
        desk.sweep()
        for name in names:
            with (folder / f"{name}.jsonl").open("ab") as file:
                file.write(b'{"type": "summary", "summary": "later"}\n')

    def delete(progress: Progress) -> None:
        if progress.stage == "find":
            for name in names[1:]:
                (folder / f"{name}.jsonl").unlink(missing_ok=True)

    with monkeypatch.context() as patch:
        patch.setattr(sweep, "_make_output", lambda *_, **__: sweep.ProgressOutput(delete))
        ran = desk.run("sweep")
    listed = desk.run("ls", "--json").json
    looked = desk.run("doctor", "--json").json["findings"]

    assert (0, "") == (ran.code, ran.err)
    assert "  5 sessions were deleted before they could be read" in ran.lines
    assert (6 if growing else 1) == len(listed)
    assert [] == [row for row in listed if not row["events"]]
    skips = [finding["words"] for finding in looked if finding["topic"] == "skips"]
    assert ["no unreadable lines"] == skips
