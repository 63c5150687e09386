"""Projects that are never captured are known by names alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.agents import File, Source
from thence.memory.exclusion import Exclusion, project_in_head

HOME = Path("/home/dev")


@pytest.mark.parametrize(
    ("pattern", "project", "meant"),
    [
        ("~/private", "/home/dev/private", True),
        ("~/private", "/home/dev/private/deep/down", True),
        ("~/private/", "/home/dev/private", True),
        ("~/private", "/home/dev/private2", False),
        ("~/private/*", "/home/dev/private", False),
        ("~/private/*", "/home/dev/private/one", True),
        ("*/secret", "/anywhere/at/all/secret", True),
        ("*/secret", "/anywhere/secrets", False),
        ("/srv/[ab]*", "/srv/beta/x", True),
        ("C:\\work", "C:\\work\\deep", True),
        ("~/private", "", False),
        ("/", "/anything", True),
    ],
)
def test_pattern_means_a_folder_and_all_below(pattern: str, project: str, meant: bool) -> None:
    """And nothing that only begins the same."""
    assert meant == Exclusion([pattern], HOME).means(project)


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/c/projects/-home-dev-private/a.jsonl", True),
        ("/c/projects/-home-dev-private-deep/a.jsonl", True),
        ("/c/projects/-home-dev-private2/a.jsonl", False),
        ("/c/sessions/%2Fhome%2Fdev%2Fprivate/a/updates.jsonl", True),
        ("/c/sessions/%2Fhome%2Fdev%2Fopen/a/updates.jsonl", False),
        ("/c/projects/-home-dev-private.jsonl", False),
    ],
)
def test_names_of_folders_tell(path: str, meant: bool) -> None:
    """As the agents spell projects in them; the file's own name says nothing."""
    source = Source("claude", "a", (File(path),), root="/c")

    assert meant == Exclusion(["~/private"], HOME).means_source(source)


def test_root_inside_an_excluded_project_is_no_reason() -> None:
    """Where the agent's own folder lies does not say what its sessions are about."""
    root = "/home/dev/private/.claude"
    source = Source("claude", "a", (File(f"{root}/projects/-work/a.jsonl"),), root=root)

    assert not Exclusion(["~/private"], HOME).means_source(source)


@pytest.mark.parametrize(
    ("start", "project"),
    [
        (b'{"type":"session_meta","payload":{"cwd":"/home/dev/a"}}', "/home/dev/a"),
        (b'{"cwd" : "/with \\"quotes\\" and \\u00e4"}', '/with "quotes" and \u00e4'),
        (b'{"cwd":"/cut off at the e', None),
        (b"not JSON at all", None),
        (b"", None),
    ],
)
def test_project_is_told_by_the_beginning_of_a_log(start: bytes, project: str | None) -> None:
    """Where no folder is named after it."""
    assert project == project_in_head(start)


@given(st.lists(st.text(max_size=20), max_size=3), st.text(max_size=60))
def test_no_text_raises(patterns: list[str], project: str) -> None:
    """Patterns come from a file that people write."""
    made = Exclusion(patterns, HOME)
    source = Source("claude", "a", (File(f"/c/{project}/a"),), root="/c")

    assert made.means(project) in (True, False)
    assert made.means_source(source) in (True, False)
    assert not Exclusion().means(project)
