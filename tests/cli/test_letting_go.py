"""`thence store gc`, `evict`, `keep`, `forget`, `backup`: what goes, why, and what surely stays."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import apsw
import click
import pytest
from click.testing import CliRunner

from tests.cli.conftest import Run
from tests.cli.desk import Desk
from thence.cli import forget, thence, wiring
from thence.cli.evict import NotEvicted
from thence.cli.file_changes import NotAnswered
from thence.cli.sample_machine import Homes, made_id
from thence.errors import NotReadable, SessionNotFound
from thence.journal import Journal
from thence.memory.store import Filter, SessionRow

IMPORT = made_id("gauge-import")
QUESTION = made_id("what-does-clock-do")


def configure(homes: Homes, **knobs: object) -> None:
    """Set the policy."""
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in knobs.items())
    (homes.thence / "config.toml").write_text(f"[session_memory.retention]\n{lines}")


def rows(**wanted: Any) -> list[SessionRow]:
    """The sessions of the store."""
    with wiring.store() as store:
        return list(store.sessions(Filter(**wanted)))


def row(name: str) -> SessionRow:
    """One session of the store."""
    return rows(uid=name)[0]


# -- gc -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_under_all_caps_there_is_nothing_to_do(machine: Homes, run: Run) -> None:
    """Nothing goes, and it says how much there is."""
    answer = json.loads(run("gc", "--json").stdout)

    assert ([], []) == (answer["items"], answer["journal"])
    assert "nothing to do" in run("gc").stdout
    assert all(entry.session.evicted_at is None for entry in rows())


def test_the_plan_has_a_reason_for_each_and_changes_nothing(machine: Homes, run: Run) -> None:
    """A dry run says what it would do, item by item."""
    configure(machine, raw_soft_cap_bytes=1)
    answer = json.loads(run("gc", "--dry-run", "--json").stdout)

    assert {"evict"} == {item["action"] for item in answer["items"]}
    assert all("over the storage limit" in item["reason"] for item in answer["items"])
    assert answer["usage_after"] < answer["usage_before"]
    assert all(entry.session.evicted_at is None for entry in rows())

    text = run("gc", "-n").stdout

    assert text.startswith("would remove")
    assert all(len(line) <= 80 for line in text.splitlines())


def test_what_is_planned_is_done_and_what_is_kept_stays(machine: Homes, run: Run) -> None:
    """Evicted sessions keep their digest; a pinned one keeps everything."""
    run("keep", IMPORT[:8])
    configure(machine, raw_soft_cap_bytes=1)
    run("gc")
    left = [entry.session.native_session_id for entry in rows(evicted=False)]

    assert [IMPORT] == left
    assert len(rows()) == len(rows(analysed=True))
    assert json.loads(run("gc", "--json").stdout)["usage_before"] > 0


def test_old_sessions_of_our_own_go_only_after_a_yes(machine: Homes, run: Run) -> None:
    """Over the cap of a project the plan names them; nobody is there to say yes: all stay."""
    (machine.thence / "config.toml").write_text("[journal]\nmax_sessions = 1\n")
    answer = json.loads(run("gc", "-n", "--json").stdout)

    assert {"remove"} == {step["action"] for step in answer["journal"]}
    assert all(step["reason"] for step in answer["journal"])
    with pytest.raises(NotAnswered):
        run("gc")
    assert 3 == len(list((machine.thence / "sessions").rglob("*.jsonl")))

    run("gc", "--yes")

    assert 3 > len(list((machine.thence / "sessions").rglob("*.jsonl")))


def test_gc_takes_the_number_of_sessions_and_the_size_of_files_as_options(
    machine: Homes, run: Run
) -> None:
    """An option wins over the settings; a size that is none is refused."""
    (machine.thence / "config.toml").write_text("[journal]\nmax_sessions = 100\n")
    some = json.loads(run("gc", "-n", "--json", "--max-sessions", "1").stdout)["journal"]
    small = json.loads(run("gc", "-n", "--json", "--max-bytes", "1KB").stdout)["journal"]

    assert "remove" in {step["action"] for step in some}
    assert {"seal"} == {step["action"] for step in small}
    with pytest.raises(click.UsageError, match="not a size"):
        run("gc", "-n", "--max-bytes", "many")


# -- keep and evict -------------------------------------------------------------------------


def test_kept_is_kept_until_it_is_taken_back(machine: Homes, run: Run) -> None:
    """The pin survives a sweep of the session that goes on."""
    run("keep", IMPORT)
    path = next(machine.claude.rglob(f"{IMPORT}.jsonl"))
    path.write_bytes(path.read_bytes() + path.read_bytes().splitlines(keepends=True)[-1])
    run("sweep")

    assert row(IMPORT).pinned
    with pytest.raises(NotEvicted, match="is pinned"):
        run("evict", IMPORT, "--yes")

    run("keep", IMPORT, "--off")

    assert not row(IMPORT).pinned


def test_evicting_leaves_the_digest(machine: Homes, run: Run) -> None:
    """Rows and packs go, the digest and the costs stay; again is no error."""
    answer = json.loads(run("evict", IMPORT, QUESTION, "--yes", "--json").stdout)
    after = row(IMPORT)

    assert 2 == len(answer["items"])
    assert (0, True) == (after.raw_bytes, after.session.evicted_at is not None)
    assert after.session.analyzed_at is not None
    with wiring.store() as store:
        assert [IMPORT] == [
            record["uid"].partition(":")[2]
            for record in store.read_table("digests", Filter(uids=(f"claude:{IMPORT}",)))
        ]
        assert store.load_session(f"claude:{IMPORT}") is None
    assert "already removed" in run("evict", IMPORT, "--yes").stdout


def test_evicting_asks(machine: Homes, run: Run) -> None:
    """Without a yes nothing goes; a dry run needs none."""
    with pytest.raises(NotAnswered):
        run("evict", IMPORT)
    run("evict", IMPORT, "-n")

    assert row(IMPORT).session.evicted_at is None


# -- forget ---------------------------------------------------------------------------------


def test_a_forgotten_session_is_in_no_byte_of_the_home(machine: Homes, run: Run) -> None:
    """Rows, index, digest, pack and nudge go; the proof names the files; it does not come back."""
    nudge = machine.thence / "queue" / f"claude-{IMPORT}.json"
    nudge.parent.mkdir(exist_ok=True)
    nudge.write_text(json.dumps({"agent": "claude", "session": IMPORT}))
    title = row(IMPORT).title or ""
    answer = json.loads(run("forget", IMPORT[:8], "--yes", "--json").stdout)

    assert ([], False) == (answer["traces"], answer["pending"])
    assert str(machine.thence / "memory/thence.db") in answer["files_checked"]
    for path in machine.thence.rglob("*"):
        if path.is_file():
            assert IMPORT.encode() not in path.read_bytes(), path
            assert title.encode() not in path.read_bytes(), path

    run("sweep")

    assert [] == rows(uid=IMPORT)
    with pytest.raises(SessionNotFound):
        run("forget", IMPORT, "--yes")


def test_others_files_are_left_alone_and_named(machine: Homes, run: Run) -> None:
    """What Claude Code wrote is its own; the way to remove it is said."""
    path = next(machine.claude.rglob(f"{IMPORT}.jsonl"))
    before = path.read_bytes()
    text = run("forget", IMPORT, "--yes").stdout

    assert before == path.read_bytes()
    assert f"rm ~/{path.relative_to(machine.work.parent)}"[:60] in text
    assert "deleted; checked" in text


def test_a_session_of_our_own_goes_with_its_files_and_prompts(machine: Homes, run: Run) -> None:
    """Transcript, sidechains, spill, checkpoints and prompts; other prompts stay."""
    journal = Journal(machine.thence)
    with journal.create(cwd=str(machine.work)) as made:
        made.record("user", {"role": "user", "content": "an unusual sentence about barnacles"})
        journal.history.add("an unusual sentence about barnacles", session_id=made.id)
        journal.history.add("something else", session_id="other")
        made.flush()
    run("sweep")
    run("forget", made.id, "--yes")

    assert not list(machine.thence.rglob(f"*{made.id}*"))
    assert [] == forget.prove(machine.thence, [made.id, "about barnacles"]).traces
    assert ["something else"] == [prompt.prompt for prompt in journal.history.recent(9)]


WRITER = """
import sys
import time
from pathlib import Path
from thence.journal.history import History
folder, name, least = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
history = History(folder, limit_entries=1_000)
print("ready", flush=True)
number, stop = 0, folder / "stop"
while number < least or (number < 100_000 and not stop.exists()):
    history.add(f"{name} {number}", session_id=name)
    number += 1
    if number > least:  # no more than the other needs to be in the way
        time.sleep(0.002)
history.close()
print(number)
"""


@pytest.mark.slow
@pytest.mark.parametrize("least", [300, pytest.param(3_000, marks=pytest.mark.slow)])
def test_no_prompt_of_another_session_is_lost_by_forgetting(
    machine: Homes, run: Run, least: int
) -> None:
    """Two programs add prompts all the while, and the history rolls over under them."""
    journal = Journal(machine.thence)
    made = []
    for number in range(8):
        with journal.create(cwd=str(machine.work)) as session:
            session.record("user", {"role": "user", "content": f"question {number}"})
            journal.history.add(f"question {number}", session_id=session.id)
            session.flush()
            made.append(session.id)
    run("sweep")
    writers = {
        name: subprocess.Popen(
            [sys.executable, "-c", WRITER, str(machine.thence), name, str(least)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    }
    for writer in writers.values():
        assert writer.stdout is not None
        writer.stdout.readline()
    try:
        for session_id in made:
            run("forget", session_id, "--yes")
    finally:
        (machine.thence / "stop").touch()
    counts = {name: int(writer.communicate()[0]) for name, writer in writers.items()}
    left = Counter(prompt.session_id for prompt in journal.history.recent(10**9))

    assert counts == {name: left[name] for name in counts}
    assert not left.keys() & set(made)
    assert min(counts.values()) >= least
    assert 0 == journal.history.skipped


def test_the_proof_can_fail(tmp_path: Path) -> None:
    """A trace anywhere is found, in whatever file and in its name."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a/clean").write_bytes(b"nothing")
    (tmp_path / "a/dirty").write_bytes(b"\x00" * 5000 + b"needle" + b"\xff")
    (tmp_path / "empty").touch()
    (tmp_path / "z needle.json").touch()
    (tmp_path / "link").symlink_to(tmp_path / "a/dirty")
    proof = forget.prove(tmp_path, ["needle"])

    named = [tmp_path / "a/dirty", tmp_path / "z needle.json"]
    assert [(path, "needle") for path in named] == sorted(proof.traces)
    assert 4 == len(proof.files)


def test_forgetting_asks(machine: Homes, run: Run) -> None:
    """Without a yes, and in a dry run, all stays."""
    with pytest.raises(NotAnswered):
        run("forget", IMPORT)
    assert json.loads(run("forget", IMPORT, "-n", "--json").stdout)["dry_run"]
    assert 1 == len(rows(uid=IMPORT))


# -- backup ---------------------------------------------------------------------------------


def test_a_backup_is_a_store_without_transcripts(
    machine: Homes, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Digests and costs are the same there; no event, no word, no pack, no key."""
    saved = tmp_path / "saved.db"
    before = rows()
    answer = json.loads(run("backup", str(saved), "--json").stdout)

    assert len(before) == answer["sessions"]
    assert 0o600 == saved.stat().st_mode & 0o777
    assert ["saved.db"] == [path.name for path in tmp_path.glob("*saved*")]
    db = apsw.Connection(str(saved))
    count = "SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM facts)"

    assert [(0,)] == db.execute(count).fetchall()
    assert [] == db.execute("SELECT name FROM sqlite_master WHERE name LIKE 'words%'").fetchall()
    db.close()
    monkeypatch.setenv("THENCE_STORE", f"sqlite:{saved}")
    after = {entry.session.session_uid: entry.ticks for entry in rows()}

    assert {entry.session.session_uid: entry.ticks for entry in before} == after
    assert run("digest", IMPORT, "--json").exit_code == 0


@pytest.mark.slow
def test_a_backup_in_the_place_of_a_lost_store_goes_on(
    machine: Homes, run: Run, tmp_path: Path
) -> None:
    """The next sweep reads again what the lost one held, where its log is still there.

    What was evicted before stays so, what has no log keeps its digest; nothing counts twice.
    """
    run("sweep")
    run("evict", IMPORT, "--yes")
    before = {entry.session.session_uid: entry.ticks for entry in rows()}
    run("backup", str(tmp_path / "saved.db"))
    shutil.rmtree(machine.thence / "memory")
    (machine.thence / "memory").mkdir()
    (tmp_path / "saved.db").replace(machine.thence / "memory/thence.db")
    next(machine.claude.rglob(f"{QUESTION}.jsonl")).unlink()
    answer = json.loads(run("sweep", "--json").stdout)

    assert len(before) - 2 == answer["read"]
    assert before == {entry.session.session_uid: entry.ticks for entry in rows()}
    evicted = [entry.session.session_uid for entry in rows() if entry.session.evicted_at]
    assert sorted(evicted) == sorted(
        entry.session.session_uid for entry in (row(IMPORT), row(QUESTION))
    )
    assert 0 == json.loads(run("sweep", "--json").stdout)["read"]


def test_a_file_that_is_there_is_not_overwritten_unasked(
    machine: Homes, run: Run, tmp_path: Path
) -> None:
    """`--force` says that it may be."""
    saved = tmp_path / "saved.db"
    saved.write_text("mine")
    with pytest.raises(NotReadable, match="exists"):
        run("backup", str(saved))

    assert "mine" == saved.read_text()

    run("backup", str(saved), "--force")

    assert saved.read_bytes().startswith(b"SQLite format 3")


def test_without_a_store_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each says what to do first; gc has nothing to do."""
    monkeypatch.setenv("THENCE_HOME", str(tmp_path / "none"))
    for command in (["keep", "x"], ["evict", "x"], ["forget", "x"], ["backup", "f"]):
        result = CliRunner().invoke(thence, command)

        assert isinstance(result.exception, SessionNotFound), command
    assert 0 == CliRunner().invoke(thence, ["gc"]).exit_code


@pytest.mark.parametrize("place", ["in the home", "in a project"])
def test_gc_and_doctor_tell_of_files_that_were_never_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A kill of an earlier version left them: nothing is lost, so nobody is asked."""
    desk = Desk(tmp_path, monkeypatch)
    project = tmp_path / "project"
    local = project if place == "in a project" else None
    session = Journal(desk.home, local=local).create(cwd=project)
    session.record("user", {"role": "user", "content": "long work"})
    session.close()
    assert session.transcript_path is not None
    left = session.transcript_path.with_name("job-7.jsonl")
    left.touch(mode=0o600)
    if place == "in a project":
        assert desk.run("sweep", "--root", f"thence={project}").code == 0
    swept = desk.run("sweep", "--json")
    problems = desk.run("doctor").out
    shown = desk.run("gc", "-n").out
    acted = desk.run("gc", "--json").json

    assert 0 == swept.code, swept
    assert "long work" in desk.run("ls").out
    assert "a killed process left 1 file without a session" in problems
    assert "never begun" in shown
    assert [("clear", "job-7")] == [(step["action"], step["session"]) for step in acted["journal"]]
    assert [session.transcript_path] == list(left.parent.glob("*.jsonl"))
    assert "a killed process" not in desk.run("doctor").out
