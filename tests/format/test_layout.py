"""Names of files: read back as they were made, and nothing from a log ever becomes a path."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.format.layout import (
    HISTORY,
    Segment,
    is_id,
    project_id,
    rollover,
    rollover_of,
    segment_of,
)

IDS = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)

HOSTILE = [
    "",
    ".",
    "..",
    "/",
    "a/b",
    "a\\b",
    "../a",
    "/etc/passwd",
    "a.b",
    ".hidden",
    "a b",
    "a\n",
    "\na",
    "a\0",
    "a\r",
    "ä",
    "\uff11",
    "a" * 65,
    "~root",
    "$HOME",
    "%2e%2e",
    "\u202e",
    "\ud800",
]


# -- ids --------------------------------------------------------------------------------------


@given(IDS)
def test_plain_words_are_ids(text: str) -> None:
    """Uuids and the names of agents are accepted."""
    assert is_id(text)


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_hostile_ids_are_refused(text: str) -> None:
    """What could lead out of a folder, hide, or break a line is no id."""
    assert not is_id(text)


@given(st.text())
def test_an_id_is_one_step_of_a_path(text: str) -> None:
    """Whatever is accepted names one file in the folder it is put in."""
    if is_id(text):
        assert re.fullmatch(r"[\w-]+", text, re.ASCII)
        assert len(text) <= 64


# -- segments ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("segment", "name"),
    [
        (Segment("7f3a"), "7f3a.jsonl"),
        (Segment("7f3a", 1, sealed=True), "7f3a.jsonl.zst"),
        (Segment("7f3a", 2), "7f3a.0002.jsonl"),
        (Segment("7f3a", 12345), "7f3a.12345.jsonl"),
        (Segment("7f3a", 31, sealed=True), "7f3a.0031.jsonl.zst"),
    ],
)
def test_segment_has_its_name(segment: Segment, name: str) -> None:
    """The names on disk are part of the format."""
    assert name == segment.name
    assert segment == segment_of(name)


@given(IDS, st.integers(1, 10**9 - 1), st.booleans())
def test_segment_is_read_back_from_its_name(session: str, number: int, sealed: bool) -> None:
    """Name and segment say the same."""
    segment = Segment(session, number, sealed)

    assert segment == segment_of(segment.name)


@pytest.mark.parametrize(
    "name",
    [
        *(f"{text}.jsonl" for text in HOSTILE if text != "a.b"),
        "a",
        "a.json",
        "a.jsonl.gz",
        "a.jsonl.zst.zst",
        "a.jsonl\n",
        "a.0000.jsonl",
        "a.0001.jsonl",
        "a.00002.jsonl",
        "a.2.jsonl",
        "a.-002.jsonl",
        "a.٢٢٢٢.jsonl",
        "a.0002.0003.jsonl",
        "a.jsonl.0002",
        "sessions/a.jsonl",
        "../a.0002.jsonl",
    ],
    ids=ascii,
)
def test_names_that_are_none_of_ours_are_refused(name: str) -> None:
    """Every segment has one name; other people's files are left alone."""
    assert None is segment_of(name)


@given(st.text() | st.from_regex(r"[a.0-9٢]{0,9}\.jsonl(\.zst)?", fullmatch=True))
def test_a_name_that_is_read_is_the_name_that_is_written(name: str) -> None:
    """No two names lead to one segment."""
    segment = segment_of(name)

    assert segment is None or name == segment.name


def test_segments_sort_in_the_order_they_were_written() -> None:
    """Reading a session takes its files as they sort."""
    written = [Segment("a", 1), Segment("a", 2), Segment("a", 10), Segment("b", 1)]

    assert written == sorted(set(written))


# -- projects ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cwd", "expected"),
    [
        ("/home/dev/tidepool", "tidepool-559185fdcd4c"),
        ("/home/dev/Tide Pool (2)", "tide-pool-2-8f0ed81bf0e3"),
        ("C:\\Users\\dev\\tidepool", "tidepool-d008d15656a4"),
        (f"/x/{'a' * 60}", f"{'a' * 40}-6a28d150cfbe"),
        ("/srv/データ", "8156f8d47dee"),
        ("/", "8a5edab28263"),
        ("", "e3b0c44298fc"),
        ("..", "5ec1f7e700f3"),
    ],
)
def test_project_id_never_changes(cwd: str, expected: str) -> None:
    """Folders on users' disks carry these names."""
    assert expected == project_id(cwd)


@given(st.text() | st.from_regex(r"(/[a-z.\\ ~-]{0,8}){0,5}", fullmatch=True))
def test_project_id_is_never_a_path(cwd: str) -> None:
    """Whatever a log says it ran in, the folder is one harmless short name."""
    name = project_id(cwd)

    assert re.fullmatch(r"(?:[a-z0-9][a-z0-9-]{0,39}-)?[0-9a-f]{12}", name)
    assert is_id(name)


def test_projects_of_one_name_are_told_apart() -> None:
    """The name is for the eye, the hash for identity."""
    first, second = project_id("/home/dev/app"), project_id("/srv/app")

    assert ("app-", "app-") == (first[:4], second[:4])
    assert first != second


def test_folder_whose_name_is_no_text_has_an_id() -> None:
    """Names on disk that are no UTF-8 reach Python as lone surrogates."""
    assert is_id(project_id("/srv/\udce9t\udce9"))


# -- history ----------------------------------------------------------------------------------


@given(st.integers(0, 10**9 - 1))
def test_rollover_is_read_back_from_its_name(number: int) -> None:
    """The current history is number 0."""
    assert number == rollover_of(rollover(number))


def test_current_history_has_no_number() -> None:
    """Rolling over adds one."""
    assert ("history.jsonl", "history.jsonl.1") == (rollover(0), rollover(1))
    assert HISTORY == rollover(0)


@pytest.mark.parametrize(
    "name",
    ["history.jsonl.0", "history.jsonl.01", "history.jsonl.", "history.jsonl.1 ", "x.jsonl", ""],
)
def test_other_files_are_no_history(name: str) -> None:
    """Every rollover has one name."""
    assert None is rollover_of(name)
