"""Folders that were moved keep their sessions: renamed, cloned again, work trees, another case."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.machines import Machine
from thence.bridge import folders
from thence.memory.projects import plain_remote, remote_of

FIRST, SECOND = (f"{digit * 8}-2222-4222-8222-222222222222" for digit in "ab")


def _git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


def _repository(folder: Path, remote: str | None = "git@example.org:team/tide.git") -> Path:
    folder.mkdir(parents=True)
    _git(folder, "init", "--quiet")
    _git(folder, "commit", "--quiet", "--allow-empty", "-m", f"first of {folder.name}")
    if remote:
        _git(folder, "remote", "add", "origin", remote)
    return folder


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine without sessions."""
    return Machine(tmp_path / "alpha")


def _begun(machine: Machine, folder: Path, session: str = FIRST) -> None:
    machine.write_claude(session, ["mend the gauge", "mended"], str(folder))
    assert 0 == machine.run("sweep").returncode


def _in(machine: Machine, folder: Path) -> list[str]:
    """Return the sessions that count as a folder's."""
    return [row["session_uid"] for row in machine.json("ls", "--project", str(folder))]


@pytest.mark.parametrize("remote", ["git@example.org:team/tide.git", None])
@pytest.mark.parametrize("new", ["harbour", "Tide"])
def test_a_renamed_folder_keeps_its_sessions(
    machine: Machine, tmp_path: Path, remote: str | None, new: str
) -> None:
    """By its remote or its first commit; also where only the case of a letter changed."""
    old = _repository(tmp_path / "work" / "tide", remote)
    _begun(machine, old)
    moved = old.rename(tmp_path / "work" / new)
    listed = machine.run("resume", here=moved)

    assert [f"claude:{FIRST}"] == _in(machine, moved)
    assert new in listed.stdout
    assert 1 == len(machine.sessions())


def test_a_clone_in_another_place_keeps_the_sessions(machine: Machine, tmp_path: Path) -> None:
    """The old folder is gone, a new clone has the same remote, however that is written."""
    old = _repository(tmp_path / "tide")
    (old / "part").mkdir()
    _begun(machine, old / "part")
    shutil.rmtree(old)
    new = _repository(tmp_path / "elsewhere" / "tide-again", "https://me@EXAMPLE.org/team/tide")
    _begun(machine, new, SECOND)

    assert {f"claude:{FIRST}", f"claude:{SECOND}"} == set(_in(machine, new))
    assert 2 == len(machine.sessions())


def test_a_work_tree_that_is_gone_counts_as_its_repository(
    machine: Machine, tmp_path: Path
) -> None:
    """Its sessions are those of the main work tree."""
    main = _repository(tmp_path / "tide")
    tree = tmp_path / "tide-feature"
    _git(main, "worktree", "add", "--quiet", str(tree))
    _begun(machine, tree)
    _git(main, "worktree", "remove", str(tree))
    machine.run("resume", here=main)

    assert [f"claude:{FIRST}"] == _in(machine, main)


def test_other_repositories_stay_apart(machine: Machine, tmp_path: Path) -> None:
    """Neither another remote, nor a folder that is gone and was none, is taken for it."""
    old = _repository(tmp_path / "tide")
    _begun(machine, old)
    _begun(machine, tmp_path / "never-there", SECOND)
    shutil.rmtree(old)
    other = _repository(tmp_path / "gulls", "git@example.org:team/gulls.git")
    machine.run("resume", here=other)

    assert [] == _in(machine, other)
    assert [f"claude:{FIRST}"] == _in(machine, old)


def test_a_folder_that_comes_back_has_its_sessions(machine: Machine, tmp_path: Path) -> None:
    """What counted as another folder's is its own again."""
    old = _repository(tmp_path / "tide")
    _begun(machine, old)
    moved = old.rename(tmp_path / "harbour")
    machine.run("resume", here=moved)
    moved.rename(old)
    machine.run("resume", here=old)

    assert [f"claude:{FIRST}"] == _in(machine, old)
    assert [] == _in(machine, moved)


def test_two_names_of_one_folder_are_one_project(machine: Machine, tmp_path: Path) -> None:
    """A link to a folder, as on disks that know no case: its own name counts."""
    old = _repository(tmp_path / "tide")
    link = tmp_path / "tide-link"
    link.symlink_to(old)
    _begun(machine, link)
    _begun(machine, old, SECOND)

    assert {f"claude:{FIRST}", f"claude:{SECOND}"} == {
        row["session_uid"] for row in machine.json("ls") if row["session_uid"] in _in(machine, old)
    }
    assert str(link) in machine.run("project", "list").stdout


def test_a_session_whose_folder_is_gone_offers_a_copy_here(
    machine: Machine, tmp_path: Path
) -> None:
    """No `cd` that fails is printed: it says so, and how to go on here, which works."""
    old = _repository(tmp_path / "tide")
    _begun(machine, old)
    moved = old.rename(tmp_path / "harbour")
    refused = machine.run("resume", FIRST, here=moved)
    copied = machine.run("resume", FIRST, "--with", "claude", "--yes", here=tmp_path)

    assert "" == refused.stdout
    assert f"is gone: {old}; it is {moved} now" in refused.stderr
    assert f"thence resume {FIRST[:13]} --with claude" in refused.stderr
    assert 0 == copied.returncode, copied.stderr
    assert copied.stdout.startswith(f"cd {moved} && claude --resume ")
    files = list((machine.folder / ".claude" / "projects").rglob("*.jsonl"))
    assert 2 == len(files)


def test_merge_lets_lists_costs_and_search_follow(machine: Machine, tmp_path: Path) -> None:
    """Sessions of the old folder count as the new one's everywhere, until that is undone."""
    old, new = tmp_path / "old", tmp_path / "new"
    new.mkdir()
    _begun(machine, old)
    _begun(machine, new, SECOND)
    done = machine.run("project", "merge", str(old), str(new))
    both = {f"claude:{FIRST}", f"claude:{SECOND}"}
    machine.write_claude(FIRST, ["mend the gauge", "mended", "more", "yes"], str(old))
    machine.run("sweep")
    costs = machine.json("cost", "--by", "project")
    answer = machine.json("search", "gauge", f"project:{new.name}")

    assert 0 == done.returncode, done.stderr
    assert both == set(_in(machine, new))
    assert [] == _in(machine, old)
    assert str(old) not in str(costs)
    assert FIRST in str(answer)
    assert str(old) in machine.run("project", "list").stdout

    undone = machine.run("project", "merge", str(old), "--undo")

    assert 0 == undone.returncode, undone.stderr
    assert [f"claude:{FIRST}"] == _in(machine, old)
    assert [f"claude:{SECOND}"] == _in(machine, new)


def test_merges_in_a_circle_end(machine: Machine, tmp_path: Path) -> None:
    """Merged one way and then the other, the last one counts."""
    old, new = tmp_path / "old", tmp_path / "new"
    _begun(machine, old)
    _begun(machine, new, SECOND)
    machine.run("project", "merge", str(old), str(new))
    machine.run("project", "merge", str(new), str(old))

    assert {f"claude:{FIRST}", f"claude:{SECOND}"} == set(_in(machine, old))


def test_sessions_of_another_machine_belong_to_the_clone_here(
    machine: Machine, tmp_path: Path
) -> None:
    """Another path there, the same repository: it is one project."""
    pytest.importorskip("pyrage")
    other, shared = Machine(tmp_path / "beta"), tmp_path / "shared"
    shared.mkdir()
    theirs = _repository(tmp_path / "their" / "tide")
    _begun(other, theirs)
    machine.join(str(shared), other.begin(str(shared), "beta-host"), "alpha-host")
    other.sync()
    shutil.rmtree(theirs)
    ours = _repository(tmp_path / "our" / "tide", "ssh://git@example.org:22/team/tide.git")
    _begun(machine, ours, SECOND)
    machine.sync()

    assert {f"claude:{FIRST}", f"claude:{SECOND}"} == set(_in(machine, ours))


def test_nothing_of_a_repository_runs(tmp_path: Path) -> None:
    """Settings that name programs are read past: no hook, monitor, pager or helper is started."""
    repository = _repository(tmp_path / "tide", None)
    trap, mark = tmp_path / "trap", tmp_path / "ran"
    trap.write_text(f"#!/bin/sh\ntouch {mark}\n")
    trap.chmod(0o755)
    config = repository / ".git" / "config"
    lines = [f"{name} = {trap}" for name in ("fsmonitor", "pager", "sshCommand", "askPass")]
    lines += [f"alternateRefsCommand = {trap}", f"hooksPath = {tmp_path}", f"editor = {trap}"]
    config.write_text(config.read_text() + "[core]\n" + "\n".join(lines) + "\n")
    known = folders.look(str(repository))

    assert known is not None
    assert 40 == len(known.root)
    assert not mark.exists()


def test_without_git_the_remote_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first commit is left out where there is no git."""
    repository = _repository(tmp_path / "tide")
    monkeypatch.setattr("shutil.which", lambda _: None)

    assert folders.Repository(str(repository), "example.org/team/tide") == folders.look(
        str(repository)
    )


def test_a_damaged_repository_is_none(tmp_path: Path) -> None:
    """Whatever lies in `.git`, nothing is raised, and no more than a bounded part is read."""
    for number, body in enumerate((b"\0" * 100, b'[remote "origin"]\nurl = ' + b"x" * 10**6)):
        git = tmp_path / f"{number}" / ".git"
        git.mkdir(parents=True)
        (git / "config").write_bytes(body)

        assert len(remote_of(git)) <= 2000
        folders.look(str(git.parent))
    os.mkfifo(tmp_path / "pipe")

    assert folders.look(str(tmp_path / "pipe")) is None
    assert folders.look("relative") is None


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("git@example.org:team/tide.git", "example.org/team/tide"),
        ("https://me:secret@Example.org/team/tide.git/", "example.org/team/tide"),
        ("ssh://git@example.org:2222/team/tide", "example.org/team/tide"),
        ("/srv/git/tide.git", "/srv/git/tide.git"),
        ("file:///srv/git/tide.git", "/srv/git/tide.git"),
        ("", ""),
    ],
)
def test_all_ways_to_write_a_remote_are_one(url: str, plain: str) -> None:
    """No user, password, port or ending is left."""
    assert plain == plain_remote(url)
