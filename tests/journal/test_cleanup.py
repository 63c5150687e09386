"""Clean-up removes no more than it must, seals without loss, and only when asked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.errors import NotReadable, SessionBusy
from thence.format import layout
from thence.journal import cleanup
from thence.journal.cleanup import (
    CleanupStep,
    SegmentFile,
    SessionFiles,
    apply,
    inventory,
    lineages,
    plan,
    seal,
)
from thence.journal.journal import Journal
from thence.journal.segments import Segments, parts_of
from thence.journal.session import Session

DAY = 86400.0
SMALL = 1500


# -- the plan -------------------------------------------------------------------------------


@st.composite
def homes(draw: st.DrawFn) -> list[SessionFiles]:
    """Sessions of up to three projects that go on from one another, from nobody, in a circle."""
    names = [f"s{n}" for n in range(draw(st.integers(0, 12)))]
    return [
        SessionFiles(
            session=name,
            project=draw(st.sampled_from(("p", "q", "r"))),
            size=0,
            modified=float(draw(st.integers(0, 5))),
            resumed_from=draw(st.sampled_from([None, None, "gone", *names])),
            segments=draw(files(name)),
            running=draw(st.integers(0, 9)) == 0,
        )
        for name in names
    ]


@st.composite
def files(draw: st.DrawFn, name: str) -> tuple[SegmentFile, ...]:
    """The segments of one session."""
    made = []
    for number in range(1, draw(st.integers(1, 4)) + 1):
        sealed = draw(st.booleans())
        path = Path(layout.Segment(name, number, sealed).name)
        running = not sealed and draw(st.integers(0, 5)) == 0
        made.append(SegmentFile(number, path, draw(st.integers(0, 200)), sealed, running))
    return tuple(made)


def removed(steps: list[CleanupStep]) -> list[SessionFiles]:
    """The sessions a plan removes, in order."""
    return [step.files for step in steps if step.what == "remove"]


def remaining(steps: list[CleanupStep]) -> list[SessionFiles]:
    """The sessions a plan keeps."""
    return [step.files for step in steps if step.what == "keep"]


@given(sessions=homes(), cap=st.integers(0, 4))
def test_no_ancestor_of_a_kept_session_is_removed(sessions: list[SessionFiles], cap: int) -> None:
    """Whatever the shape of the lineages, circles included."""
    steps = plan(sessions, max_sessions=cap, now=DAY)
    gone = {member.session for member in removed(steps)}

    assert set() == {member.resumed_from for member in remaining(steps)} & gone


@given(sessions=homes(), cap=st.integers(0, 4))
def test_every_session_has_one_fate_and_every_step_a_reason(
    sessions: list[SessionFiles], cap: int
) -> None:
    """Nothing is passed over in silence."""
    steps = plan(sessions, max_sessions=cap, now=DAY)
    fates = [step.session for step in steps if step.what != "seal"]

    assert sorted(member.session for member in sessions) == sorted(fates)
    assert all(step.reason for step in steps)


@given(sessions=homes(), cap=st.integers(0, 4))
def test_no_more_is_removed_than_the_cap_asks_for(sessions: list[SessionFiles], cap: int) -> None:
    """Lineages are counted and go whole; running ones stay, and only they may exceed the cap."""
    gone = {member.session for member in removed(plan(sessions, max_sessions=cap, now=DAY))}
    for project in ("p", "q", "r"):
        mine = [line for line in lineages(sessions) if line[-1].project == project]
        free = [line for line in mine if not any(member.running for member in line)]
        went = [line for line in mine if {member.session for member in line} & gone]

        assert min(max(0, len(mine) - cap), len(free)) == len(went)
        assert all({member.session for member in line} <= gone for line in went)
        assert all(line in free for line in went)


@given(sessions=homes(), cap=st.integers(0, 4))
def test_the_longest_unused_lineage_goes_first(sessions: list[SessionFiles], cap: int) -> None:
    """What goes was last used no later than whatever could have gone instead."""
    steps = plan(sessions, max_sessions=cap, now=DAY)
    gone = {member.session for member in removed(steps)}
    order = [member.session for member in removed(steps)]
    for project in ("p", "q", "r"):
        mine = [line for line in lineages(sessions) if line[-1].project == project]
        free = [line for line in mine if not any(member.running for member in line)]
        went = [line for line in free if line[0].session in gone]
        stayed = [line for line in free if line[0].session not in gone]
        firsts = [min(order.index(member.session) for member in line) for line in went]

        assert all(a[-1].modified <= b[-1].modified for a in went for b in stayed)
        assert sorted(firsts) == firsts


@given(sessions=homes(), cap=st.integers(0, 4), shuffle=st.randoms())
def test_a_plan_does_not_depend_on_the_order_of_the_inventory(
    sessions: list[SessionFiles], cap: int, shuffle: Any
) -> None:
    """The same home gives the same plan, step by step."""
    mixed = list(sessions)
    shuffle.shuffle(mixed)

    assert plan(sessions, max_sessions=cap, now=DAY) == plan(mixed, max_sessions=cap, now=DAY)


@given(sessions=homes())
def test_after_a_plan_was_done_there_is_nothing_left_to_remove(
    sessions: list[SessionFiles],
) -> None:
    """Planning again over what was kept removes nothing."""
    left = remaining(plan(sessions, max_sessions=2, now=DAY))

    assert [] == removed(plan(left, max_sessions=2, now=DAY))


@given(sessions=homes(), cap=st.integers(0, 4))
def test_descendants_go_before_their_ancestors(sessions: list[SessionFiles], cap: int) -> None:
    """A removal that is stopped half way leaves no session whose ancestor is gone."""
    order = [member.session for member in removed(plan(sessions, max_sessions=cap, now=DAY))]
    above = {member.session: member.resumed_from for member in sessions}
    for at, name in enumerate(order):
        later = set(order[at + 1 :])
        seen, up = {name}, above[name]
        while up in above and up not in seen:
            seen.add(up or "")
            up = above[up or ""]
        circle = up in seen

        assert circle or not any(above[other] == name for other in later)


@given(sessions=homes(), cap=st.integers(0, 4))
def test_only_segments_that_nobody_will_write_are_sealed(
    sessions: list[SessionFiles], cap: int
) -> None:
    """Old ones, and a last one over the cap of a session at rest; of kept sessions only."""
    steps = plan(sessions, max_sessions=cap, max_bytes=100, now=DAY)
    expected = [
        (member.session, file.number)
        for member in remaining(steps)
        for file in member.segments
        if not file.sealed and not file.running
        if file is not member.segments[-1] or (file.size > 100 and not member.running)
    ]

    assert expected == [(s.session, s.segment.number) for s in steps if s.segment is not None]


def test_a_lineage_is_as_young_as_its_youngest_session() -> None:
    """An old session that was gone on from yesterday is kept with what goes on from it."""
    old = SessionFiles("old", "p", 0, 1 * DAY)
    child = SessionFiles("child", "p", 0, 90 * DAY, resumed_from="old")
    middle = SessionFiles("middle", "p", 0, 50 * DAY)
    steps = plan([old, child, middle], max_sessions=1, now=100 * DAY)

    assert [middle] == removed(steps)
    assert ["unused for 50 days; 2 lineages here, 1 are kept"] == [
        step.reason for step in steps if step.what == "remove"
    ]


# -- doing it -------------------------------------------------------------------------------


def talk(session: Session, turns: int) -> Session:
    """Say something in so many turns, and close."""
    for n in range(turns):
        session.record("user", {"role": "user", "content": f"{n} " * 40})
        content = [{"type": "text", "text": f"answer {n}"}]
        session.record("assistant", {"role": "assistant", "content": content})
        session.flush()
    session.close()
    return session


def tree(root: Path) -> dict[str, bytes | None]:
    """All files and folders, with their bytes."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
    }


def bytes_of(folder: Path, session: str) -> bytes:
    """All bytes of a session as one run."""
    with Segments(parts_of(folder, session)) as segments:
        return segments.read(0, segments.size)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """A journal with small segments and three sessions: old, its child, and a young one."""
    made = Journal(tmp_path / "home", max_bytes=SMALL)
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("a")
    session = made.create(cwd=work, session="old")
    with session.sidechain("helper") as child:
        child.record("user", {"role": "user", "content": "look"})
        child.finish("seen")
    session.checkpoint([work / "a.txt"])
    large = [{"type": "tool_result", "tool_use_id": "t", "content": "x" * 50_000}]
    session.record("user", {"role": "user", "content": large})
    talk(session, 12)
    made.resume("old").close()
    talk(made.create(cwd=work, session="young"), 3)
    yield made
    for left in made.open_sessions:
        left.close()


def folder_of(journal: Journal) -> Path:
    """The one project's folder."""
    return next((journal.root / layout.SESSIONS).iterdir())


def test_the_inventory_tells_what_is_there(journal: Journal) -> None:
    """Sizes, segments, lineage, side files; nobody writes."""
    sessions = {member.session: member for member in inventory(journal.root)}
    child = next(member for member in sessions.values() if member.resumed_from is not None)

    assert 3 == len(sessions)
    assert "old" == child.resumed_from
    assert sessions["old"].size == len(bytes_of(folder_of(journal), "old"))
    assert len(sessions["old"].segments) > 2
    assert {"sidechains", "spill", "checkpoints"} == {p.parent.name for p in sessions["old"].beside}
    assert [False] * 3 == [member.running for member in sessions.values()]


def test_a_dry_run_changes_nothing(journal: Journal) -> None:
    """It says what would be done, and that is all."""
    before = tree(journal.root)
    steps = journal.cleanup(dry_run=True, max_sessions=0)

    assert {"remove"} == {step.what for step in steps}
    assert before == tree(journal.root)


def test_a_removed_lineage_leaves_its_audit_and_nothing_else(journal: Journal) -> None:
    """Segments, sidechains, spill and checkpoints go; others' files stay byte for byte."""
    audit = journal.root / layout.AUDIT / "old.jsonl"
    audit.parent.mkdir(exist_ok=True)
    audit.write_text("{}\n")
    young = bytes_of(folder_of(journal), "young")
    steps = journal.cleanup(max_sessions=1)
    gone = {member.session for member in removed(steps)}

    assert 2 == len(gone)
    assert ["young"] == [listed.session_id for listed in journal.sessions()]
    assert young == bytes_of(folder_of(journal), "young")
    assert ["audit/old.jsonl"] == [p for p in tree(journal.root) if any(g in p for g in gone)]


def test_a_running_session_is_neither_removed_nor_its_last_segment_sealed(
    journal: Journal,
) -> None:
    """Nor is its lineage; old segments that nobody holds are sealed all the same."""
    going = journal.resume("old", mode="continue")
    steps = journal.cleanup(max_sessions=0)
    names = sorted(path.name for path in parts_of(folder_of(journal), "old"))

    assert ["young"] == [member.session for member in removed(steps)]
    assert going.transcript_path is not None
    assert [going.transcript_path.name] == [name for name in names if name.endswith(".jsonl")]
    going.record("user", {"role": "user", "content": "still here"})
    going.flush()


def test_a_session_with_a_running_subagent_is_running(journal: Journal) -> None:
    """Its own log may be closed; the child's is not."""
    going = journal.resume("young", mode="continue")
    child = going.sidechain("helper")
    going.close()
    sessions = {member.session: member for member in inventory(journal.root)}

    assert sessions["young"].running
    assert child._log is not None
    child._log.close()
    assert not {member.session: member for member in inventory(journal.root)}["young"].running


def test_who_writes_makes_it_busy(journal: Journal) -> None:
    """A plan that was made before somebody began to write is refused, and nothing goes."""
    steps = plan(inventory(journal.root), max_sessions=0, now=DAY)
    before = tree(journal.root)
    mine = [step for step in steps if step.session == "young"]
    going = journal.resume("young", mode="continue")
    now = tree(journal.root)

    with pytest.raises(SessionBusy):
        apply(mine)
    with pytest.raises(SessionBusy):
        seal(going.transcript_path or Path())
    assert now == tree(journal.root)
    assert before == now


def test_a_session_that_was_used_since_the_plan_is_not_removed(journal: Journal) -> None:
    """It was closed again, but it is not the session that was planned for."""
    steps = plan(inventory(journal.root), max_sessions=0, now=DAY)
    mine = [step for step in steps if step.session == "young"]
    talk(journal.resume("young", mode="continue"), 1)
    now = tree(journal.root)

    with pytest.raises(SessionBusy):
        apply(mine)
    assert now == tree(journal.root)


def test_a_sealed_session_reads_the_same_and_resumes_the_same(journal: Journal) -> None:
    """Byte for byte through segments; the same messages, state and cost on resuming."""
    folder = folder_of(journal)
    before = bytes_of(folder, "old")
    back = journal._load(folder, "old")
    listed = {entry.session_id: entry.modified for entry in journal.sessions()}
    steps = journal.cleanup()
    names = [path.name for path in parts_of(folder, "old")]
    after = journal._load(folder, "old")

    assert {"keep", "seal"} == {step.what for step in steps}
    assert len(names) - 1 == sum(name.endswith(".zst") for name in names) > 1
    assert before == bytes_of(folder, "old")
    assert back.chain == after.chain
    assert (back.snapshot, back.since, back.end) == (after.snapshot, after.since, after.end)
    assert listed == {entry.session_id: entry.modified for entry in journal.sessions()}
    assert [] == [path for path in folder.iterdir() if path.suffix == ".tmp"]


def test_a_last_segment_over_the_cap_is_sealed_and_the_session_goes_on(tmp_path: Path) -> None:
    """Nobody ended a turn after it grew; the next writer begins the next segment."""
    large = {"role": "user", "content": "x" * 5000}
    with Journal(tmp_path).create(session="one") as session:
        session.record("user", large)
    journal = Journal(tmp_path, max_bytes=SMALL)
    folder = folder_of(journal)
    before = bytes_of(folder, "one")
    journal.cleanup()
    with journal.resume("one", mode="continue") as going:
        going.record("user", {"role": "user", "content": "more"})

        assert ["one.0002.jsonl", "one.jsonl.zst"] == sorted(p.name for p in folder.iterdir())
        assert [large["content"], "more"] == [e.fields["content"] for e in going._chain]
    assert bytes_of(folder, "one").startswith(before)


class Stop(Exception):
    """The process ends here."""


STEPS: dict[str, tuple[object, str]] = {
    "before the copy": (cleanup, "_compress"),
    "before reading it back": (cleanup, "_digest_of_sealed"),
    "before its rename": (Path, "replace"),
    "before the folder is synced": (cleanup, "sync_folder"),
    "before the original goes": (Path, "unlink"),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("when", STEPS)
def test_sealing_stopped_at_any_step_leaves_the_session_whole(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """It reads, lists and resumes the same, and the next clean-up finishes the work."""
    folder = folder_of(journal)
    before, names = bytes_of(folder, "old"), [entry.session_id for entry in journal.sessions()]
    chain = journal._load(folder, "old").chain
    with monkeypatch.context() as patch:
        patch.setattr(*STEPS[when], _stop(when))
        with pytest.raises(Stop):
            journal.cleanup()

    assert before == bytes_of(folder, "old")
    assert names == [entry.session_id for entry in journal.sessions()]
    assert chain == journal._load(folder, "old").chain
    journal.cleanup()
    assert before == bytes_of(folder, "old")
    assert chain == journal._load(folder, "old").chain
    left = [path.name for path in folder.iterdir() if path.name.startswith("old.")]
    assert 1 == sum(not name.endswith(".zst") for name in left)


def _stop(when: str) -> Callable[..., None]:
    def stop(*args: object, **_: object) -> None:
        if when == "before the original goes" and str(args[0]).endswith(".tmp"):
            raise FileNotFoundError  # no copy of an earlier clean-up is there
        raise Stop

    return stop


def test_a_removal_that_was_stopped_is_finished_next_time(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any number of unlinked files the rest is still found and goes."""
    real, room = Path.unlink, [4]

    def unlink(path: Path, *, missing_ok: bool = False) -> None:
        room[0] -= 1
        if room[0] < 0:
            raise Stop
        real(path, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", unlink)
        with pytest.raises(Stop):
            journal.cleanup(max_sessions=0)
    journal.cleanup(max_sessions=0)

    assert [] == journal.sessions()
    assert [] == list(folder_of(journal).iterdir())


def test_a_copy_that_does_not_read_back_is_thrown_away(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The original is left as it is, and somebody is told."""
    before = tree(journal.root)
    path = parts_of(folder_of(journal), "old")[0]
    monkeypatch.setattr(cleanup, "_digest_of_sealed", lambda _: "other")

    with pytest.raises(NotReadable):
        seal(path)
    assert before == tree(journal.root)


def test_a_file_beside_its_sealed_copy_is_sealed_again(journal: Journal) -> None:
    """A clean-up was stopped and the file grew since: what it holds now is what is sealed."""
    path = parts_of(folder_of(journal), "young")[-1]
    copy = path.read_bytes()
    sealed = seal(path)
    path.write_bytes(copy)
    talk(journal.resume("young", mode="continue"), 1)
    grown = bytes_of(folder_of(journal), "young")
    seal(path)

    assert copy in grown
    assert grown == bytes_of(folder_of(journal), "young")
    assert sealed.exists()
    assert not path.exists()


def test_local_sessions_are_cleaned_with_their_own_sidechains(tmp_path: Path) -> None:
    """Sidechains of all sessions share a folder there; only the session's own go."""
    journal = Journal(tmp_path / "home", local=tmp_path / "work")
    for name in ("one", "two"):
        with journal.create(cwd=tmp_path, session=name) as session:
            child = session.sidechain("helper")
            child.finish(name)
        os.utime(session.transcript_path or "", (len(name), 1000 if name == "one" else 2000))
    journal.cleanup(max_sessions=1)
    left = list((tmp_path / "work" / layout.LOCAL_SIDECHAINS).glob("*.jsonl"))

    assert ["two"] == [listed.session_id for listed in journal.sessions()]
    assert 1 == len(left)
    assert b'"session_id":"two"' in left[0].read_bytes()


def test_a_home_that_cannot_be_read_is_not_said_to_be_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of another user: an error that says so, not "nothing to do"."""

    def refuse(folder: Path) -> list[str]:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(os, "listdir", refuse)
    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(NotReadable, match="Permission denied") as caught:
        Journal(tmp_path).cleanup(dry_run=True)

    assert "permissions" in str(caught.value.hint)
