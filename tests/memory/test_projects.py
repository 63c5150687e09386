"""Which repository a folder belongs to, by names alone."""

from __future__ import annotations

from pathlib import Path

from thence.memory.projects import repository_of


def test_a_folder_inside_a_repository_belongs_to_it(tmp_path: Path) -> None:
    """However deep it lies."""
    (tmp_path / "tidepool" / ".git").mkdir(parents=True)
    deep = tmp_path / "tidepool" / "src" / "a"
    deep.mkdir(parents=True)

    assert tmp_path / "tidepool" == repository_of(deep)
    assert tmp_path / "tidepool" == repository_of(tmp_path / "tidepool" / "gone" / "folder")


def test_a_linked_work_tree_belongs_to_the_main_one(tmp_path: Path) -> None:
    """Its `.git` is a file that names a folder below the main one's."""
    main, linked = tmp_path / "tidepool", tmp_path / "elsewhere" / "fix"
    (main / ".git" / "worktrees" / "fix").mkdir(parents=True)
    linked.mkdir(parents=True)
    (linked / ".git").write_text(f"gitdir: {main}/.git/worktrees/fix\n")

    assert main == repository_of(linked)


def test_a_submodule_is_a_repository_of_its_own(tmp_path: Path) -> None:
    """Its `.git` file names no work tree."""
    part = tmp_path / "tidepool" / "vendor"
    part.mkdir(parents=True)
    (tmp_path / "tidepool" / ".git").mkdir()
    (part / ".git").write_text("gitdir: ../.git/modules/vendor\n")

    assert part == repository_of(part)


def test_a_hostile_pointer_leads_nowhere(tmp_path: Path) -> None:
    """What the file says is text; only the shape of a work tree counts."""
    for body in (b"", b"\xff\xfe" * 9000, b"gitdir:", b"gitdir: /\n", b"gitdir: x/worktrees/y\n"):
        (tmp_path / ".git").write_bytes(body)

        assert tmp_path == repository_of(tmp_path)


def test_a_folder_without_a_repository_is_its_own_project(tmp_path: Path) -> None:
    """And links in its path are not followed."""
    folder = tmp_path / "plain"

    assert folder == repository_of(folder / ".." / "plain")
