"""A log begins whole or not at all; an id belongs to one session of the home."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.journal.runs import drop
from tests.journal.test_journal import path_of, reply, say, texts
from thence.errors import Conflict, NotAppendable, NotReadable, SessionNotFound, ThenceError
from thence.format import codec, layout
from thence.journal import log
from thence.journal.batches import BatchEntry
from thence.journal.beginnings import begin
from thence.journal.cleanup import CleanupStep
from thence.journal.journal import Journal
from thence.journal.log import Disk
from thence.journal.session import Session

LINE = b'{"type":"header","ts":"","uuid":"h","prev_uuid":null,"payload":{"session_id":"s"}}\n'
NEVER_BEGUN = [b"", b"\n\n", b"\x00" * 100, b'{"type":"header","ts":"20', b"[]\n"]
OLD_NS = 10**18


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A journal in a folder of its own."""
    return Journal(tmp_path / "home", durability="none")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The name of a log to be begun."""
    return tmp_path / "s.jsonl"


class Dies(BaseException):
    """Stands for a kill: nobody handles it."""


class FailingDisk(Disk):
    """A disk on which the nth call fails."""

    def __init__(self, at: int, why: BaseException) -> None:
        self._left, self._why = at, why
        for name in ("open", "write", "pread", "fsync"):
            setattr(self, name, self._failing(getattr(Disk, name)))

    def _failing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            self._left -= 1
            if not self._left:
                raise self._why
            return call(*arguments, **options)

        return wrapped


@pytest.mark.parametrize("why", [Dies(), OSError(errno.ENOSPC, "No space left on device")])
@pytest.mark.parametrize("earlier", [None, b'{"type":"hea'])
def test_whichever_call_fails_there_is_a_whole_log_or_none(
    why: BaseException, earlier: bytes | None, path: Path
) -> None:
    """Each call of the disk in turn: what stands under the name is the line, or what was there."""
    seen = set()
    for at in range(1, 30):
        path.unlink(missing_ok=True)
        if earlier is not None:
            path.write_bytes(earlier)
        try:
            made = begin(path, LINE, disk=FailingDisk(at, why))
        except (NotAppendable, Dies):
            seen.add(path.read_bytes() if path.exists() else None)
        else:
            break

    assert made
    assert at > 4
    assert seen <= {earlier, LINE, None}
    assert LINE == path.read_bytes()
    assert [path] == list(path.parent.iterdir())


@pytest.mark.parametrize("error", [errno.EPERM, errno.EOPNOTSUPP])
@pytest.mark.parametrize("earlier", [None, b"", LINE])
def test_a_disk_without_links_is_as_safe(
    error: int, earlier: bytes | None, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rename under a lock: nobody's place is taken."""

    def no_links(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "link", no_links)
    if earlier is not None:
        path.write_bytes(earlier)
    other = LINE.replace(b'"h"', b'"i"')
    made = begin(path, other)

    assert (earlier != LINE) is made
    assert (other if made else LINE) == path.read_bytes()


def test_who_opens_a_log_before_its_folder_is_durable_makes_it_so(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The maker was killed before the sync: a scratch name is left, by which the next one knows."""
    path.write_bytes(LINE)
    path.with_name(f".thence-{'0' * 32}.tmp").hardlink_to(path)
    synced: list[Path] = []
    monkeypatch.setattr(log, "sync_folder", lambda folder, disk: synced.append(folder))
    log.Log(path, begun=True).close()

    assert [path.parent] == synced


# -- what earlier versions left -----------------------------------------------------------


@pytest.mark.parametrize("data", NEVER_BEGUN)
def test_a_file_that_was_never_begun_is_no_session(journal: Journal, data: bytes) -> None:
    """The latest of a project is the one with the work; the id of the other is free."""
    work = journal.create(cwd="/w")
    say(work, "long work")
    work.close()
    left = path_of(work).with_name("job-7.jsonl")
    left.write_bytes(data)
    resumed = [journal.resume(project="/w") for _ in range(3)]
    with pytest.raises(SessionNotFound, match="never begun") as error:
        journal.resume("job-7", mode="continue")
    listed = {entry.session_id for entry in journal.sessions("/w")}
    begun = journal.create(cwd="/w", session="job-7")
    say(begun, "on")

    assert [["long work"]] * 3 == [texts(session) for session in resumed]
    assert {left.parent} == {path_of(session).parent for session in resumed}
    assert {work.id, *(session.id for session in resumed)} == listed
    assert "create" in (error.value.hint or "")
    assert ["on"] == texts(journal.resume("job-7"))
    assert not journal.has("job-8")


@pytest.mark.parametrize("mode", ["adopt", "continue", "fork"])
def test_a_session_whose_header_is_lost_goes_on_in_its_project(journal: Journal, mode: Any) -> None:
    """What has events is a session: they come back, and the project is the one that was asked."""
    session = journal.create(cwd="/w")
    say(session, "long work")
    drop(session)
    data = path_of(session).read_bytes()
    path_of(session).write_bytes(b"\x00" * data.index(b"\n") + data[data.index(b"\n") :])
    again = [journal.resume(project="/w", mode=mode) for _ in range(3)]

    assert [["long work"]] * 3 == [texts(each) for each in again]
    assert {path_of(session).parent} == {path_of(each).parent for each in again}


def test_clean_up_removes_what_holds_nothing_and_nothing_else(journal: Journal) -> None:
    """Empty files and old scratch names go; what is young, held, damaged or of others stays."""
    session = journal.create(cwd="/w")
    session.sidechain("reader").finish("done")
    folder, side = path_of(session).parent, journal.root / "sidechains" / session.id
    before = {path: path.read_bytes() for path in journal.root.rglob("*") if path.is_file()}
    scratch = [folder / f".thence-{digit * 32}.tmp" for digit in "ab"]
    for path in (folder / "empty.jsonl", side / "empty.jsonl", *scratch):
        path.write_bytes(b'{"type":"header"')
    os.utime(scratch[0], ns=(OLD_NS, OLD_NS))
    (folder / "damaged.jsonl").write_bytes(b"\x00\x01\n{}\n")
    in_use = log.Log(folder / "held.jsonl")
    planned = _cleared(journal.cleanup(dry_run=True))
    there = all(path.exists() for path in scratch)
    journal.cleanup()
    left = {path for path in journal.root.rglob("*") if path.is_file()}
    in_use.close()

    assert there
    assert {folder / "empty.jsonl", side / "empty.jsonl", scratch[0]} == planned
    assert {*before, scratch[1], folder / "damaged.jsonl", folder / "held.jsonl"} == left
    assert before == {path: path.read_bytes() for path in before}


def _cleared(steps: list[CleanupStep]) -> set[Path]:
    return {step.segment.path for step in steps if step.what == "clear" and step.segment}


def test_a_removed_session_leaves_no_second_name(journal: Journal) -> None:
    """A kill left the scratch name of the log: it goes with it."""
    session = journal.create(cwd="/w")
    say(session, "a secret")
    session.close()
    path_of(session).with_name(f".thence-{'0' * 32}.tmp").hardlink_to(path_of(session))
    journal.create(cwd="/w").close()
    os.utime(path_of(session), ns=(OLD_NS, OLD_NS))
    journal.cleanup(max_sessions=1)

    assert "a secret" not in "".join(p.read_text() for p in path_of(session).parent.iterdir())


def test_a_folder_in_a_project_is_ignored_by_git_from_its_first_moment(tmp_path: Path) -> None:
    """The note is there whole or not at all; one that a kill left empty is written again."""
    project = tmp_path / "project"
    journal = Journal(tmp_path / "home", local=project)
    journal.create().close()
    notes = [project / name / ".gitignore" for name in (".transcripts", ".sidechains")]
    first = [note.read_text() for note in notes]
    notes[0].write_text("")
    notes[1].write_text("mine\n")
    journal.create().close()

    assert ["*\n", "*\n"] == first
    assert ["*\n", "mine\n"] == [note.read_text() for note in notes]


# -- projects -------------------------------------------------------------------------------


def test_the_same_relative_path_in_two_folders_is_two_projects(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is saved and restored is that of the folder in which the session was begun."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        (folder / "a.txt").write_text(folder.name)
    monkeypatch.chdir(first)
    session = journal.create(cwd=".")
    say(session, "work")
    before = session.checkpoint(["a.txt"])
    drop(session)
    monkeypatch.chdir(second)
    with pytest.raises(SessionNotFound, match=f"no session yet in {second}"):
        journal.resume(project=".")
    resumed = journal.resume(project="../first")
    (first / "a.txt").write_text("edited")
    resumed.rewind_files(before)

    assert ["work"] == texts(resumed)
    assert ["first", "second"] == [(each / "a.txt").read_text() for each in (first, second)]
    assert str(first) == resumed.state.cwd
    assert [] == journal.sessions(".")
    assert 2 == len(journal.sessions(f"{first}/")) == len(journal.sessions(first))


def test_a_journal_stays_where_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A harness that changes to another folder finds its sessions, and writes to no other place."""
    monkeypatch.chdir(tmp_path)
    journal = Journal("home", local="project")
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    session = journal.create(session="run-42")

    assert path_of(session).is_relative_to(tmp_path / "project")
    assert journal.root == tmp_path / "home"
    assert [] == list((tmp_path / "else").iterdir())


def test_a_relative_path_in_a_folder_that_is_gone_is_an_error(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows what it means; a whole path does."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(NotReadable, match="the current folder is gone"):
        journal.create(cwd=".")

    assert "/w" == journal.create(cwd="/w").state.cwd


# -- ids ------------------------------------------------------------------------------------


def test_an_id_is_one_sessions_of_the_home(journal: Journal) -> None:
    """Also in another project, sealed or not; who gives it again is told what to do."""
    journal.create(cwd="/p1", session="run-42").close()
    errors = []
    for cwd in ("/p1", "/p2", None):
        with pytest.raises(Conflict, match=r"run-42 exists, in /p1") as error:
            journal.create(cwd=cwd, session="run-42")
        errors.append(error.value.hint)

    assert ["resume it, or give another id; create_or_resume does either"] * 3 == errors
    assert [layout.project_id("/p1")] == [p.name for p in (journal.root / "sessions").iterdir()]


def test_a_journal_inside_a_project_takes_no_id_of_the_home(
    journal: Journal, tmp_path: Path
) -> None:
    """What lies in the home by id, as checkpoints and prompts do, would be that of both."""
    journal.create(cwd="/p1", session="run-42")
    local = Journal(journal.root, local=tmp_path / "pool")
    with pytest.raises(Conflict, match=r"run-42 exists, in /p1"):
        local.create(cwd=tmp_path / "pool", session="run-42")
    local.create(cwd=tmp_path / "pool", session="run-43")
    with pytest.raises(Conflict, match="run-43 exists"):
        local.create(cwd=tmp_path / "pool", session="run-43")

    assert ["run-43.jsonl"] == [path.name for path in (tmp_path / "pool").rglob("*.jsonl")]


def test_an_id_that_the_home_took_later_is_told(journal: Journal, tmp_path: Path) -> None:
    """The home does not know the project: who goes on in it hears that the id stands for two."""
    local = Journal(journal.root, local=tmp_path / "pool")
    local.create(cwd=tmp_path / "pool", session="run-42").close()
    before = local.resume("run-42", mode="continue")
    drop(before)
    taken = journal.create(cwd="/p1", session="run-42")
    (notice,) = local.create_or_resume("run-42").recovery.notices

    assert [] == before.recovery.notices
    assert "id used twice" == notice.what
    assert notice.detail.startswith(f"{path_of(taken)} ")


def test_a_list_of_another_program_keeps_its_id_in_the_home(journal: Journal) -> None:
    """Whoever is second is told: a session or a list, in any project. It goes on in its own."""
    record = BatchEntry("user", {"role": "user", "content": "one"})
    journal.batches("run-42", project="/p1").append([record])
    journal.create(cwd="/p2", session="run-43")
    for name, project in (("run-42", "/p2"), ("run-43", "/p1")):
        with pytest.raises(Conflict, match="exists, in"):
            journal.batches(name, project=project).append([record])
    with pytest.raises(Conflict, match="run-42 exists"):
        journal.create(cwd="/p3", session="run-42")
    again = journal.batches("run-42", project="/p1")
    again.append([record])

    assert ["one", "one"] == [e.fields["content"] for e in again.read(again.line()[1:])]
    assert 2 == len(list(journal.root.rglob("run-4*.jsonl")))


def test_an_id_that_stands_twice_is_told_with_its_projects(journal: Journal) -> None:
    """By an earlier version: nobody guesses which was meant, and the project tells them apart."""
    first = journal.create(cwd="/p1", session="run-42")
    say(first, "one")
    second = journal.create(cwd="/p2", session="other")
    say(second, "two")
    path_of(second).rename(path_of(second).with_name("run-42.jsonl"))
    with pytest.raises(SessionNotFound, match=r"run-42 in /p1, run-42 in /p2") as error:
        journal.resume("run-42")

    assert "say which with project=…" == error.value.hint
    assert ["two"] == texts(journal.resume("run-42", project="/p2"))


WRONG_IDS = ["my session", "../x", "a.b", "x" * 65, "é"]


@pytest.mark.parametrize("name", WRONG_IDS)
def test_an_id_outside_the_alphabet_is_an_error_with_a_hint(journal: Journal, name: str) -> None:
    """Whoever is given it, and nothing is written."""
    session = journal.create(cwd="/w")
    before = sorted(journal.root.rglob("*.*"))
    hints = set()
    for call in (
        lambda: journal.create(session=name),
        lambda: journal.create_or_resume(name),
        lambda: journal.resume(name),
        lambda: journal.fork(name),
        lambda: journal.batches(name),
        lambda: session.sidechain("reader", agent_id=name),
    ):
        with pytest.raises(ThenceError, match="not an id") as error:
            call()
        hints.add(error.value.hint)

    assert {"an id has 1 to 64 of A-Z a-z 0-9 _ -"} == hints
    assert before == sorted(journal.root.rglob("*.*"))


def test_create_or_resume_does_either(journal: Journal) -> None:
    """The first call begins the session, the next go on in it: one file, one history."""
    for number in range(3):
        with journal.create_or_resume("run-42", cwd="/w", model="m-1") as session:
            say(session, str(number))
            reply(session, "ok")
    with pytest.raises(Conflict, match="another project"):
        journal.create_or_resume("run-42", cwd="/elsewhere")

    assert ["0", "ok", "1", "ok", "2", "ok"] == texts(journal.create_or_resume("run-42"))
    assert ["run-42.jsonl"] == [path.name for path in path_of(session).parent.iterdir()]


def test_a_name_that_is_taken_by_no_log_is_a_conflict(journal: Journal) -> None:
    """A folder, a link: nobody waits for it for ever, and it stays."""
    folder = path_of(journal.create(cwd="/w")).parent
    (folder / "one.jsonl").mkdir()
    (folder / "two.jsonl").symlink_to("/nowhere")
    for name in ("one", "two"):
        with pytest.raises(Conflict):
            journal.create_or_resume(name, cwd="/w")

    assert (folder / "one.jsonl").is_dir()
    assert (folder / "two.jsonl").is_symlink()


def test_a_journal_that_is_switched_off_creates_and_resumes_in_memory(journal: Journal) -> None:
    """What is there is read, and nothing is written."""
    say(journal.create(session="run-42"), "one")
    off = Journal(journal.root, enabled=False)

    assert ["one"] == texts(off.create_or_resume("run-42"))
    assert [] == texts(off.create_or_resume("run-43"))
    assert not journal.has("run-43")


@pytest.mark.parametrize("earlier", [None, b""])
@pytest.mark.parametrize("each", ["create", "create_or_resume", "create in a project each"])
def test_of_many_who_begin_one_id_at_once_one_does(
    tmp_path: Path, each: str, earlier: bytes | None
) -> None:
    """Threads with a journal each stand for processes: their locks keep them apart as well."""
    if earlier is not None:
        folder = tmp_path / "sessions" / layout.project_id("/w")
        folder.mkdir(parents=True)
        (folder / "run-42.jsonl").write_bytes(earlier)
    results: list[Session | Conflict] = []
    start = threading.Barrier(8)

    def work(number: int) -> None:
        journal = Journal(tmp_path)
        cwd = f"/w{number}" if each.endswith("each") else "/w"
        start.wait()
        try:
            if each == "create_or_resume":
                results.append(journal.create_or_resume("run-42", cwd=cwd))
            else:
                results.append(journal.create(session="run-42", cwd=cwd))
            say(results[-1], str(number))  # type: ignore[arg-type]
        except Conflict as error:
            results.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sessions = [result for result in results if isinstance(result, Session)]
    files = [path for path in tmp_path.rglob("run-42*.jsonl") if path.stat().st_size]
    events = codec.decode(files[0].read_bytes()).events

    assert 8 == len(results)
    assert (8 if each == "create_or_resume" else 1) == len(sessions)
    assert 1 == len(files)
    assert ["header"] == [event.type for event in events if event.type == "header"]
    assert len(sessions) == sum(event.type == "user" for event in events)
