"""What readers of line formats share: foreign values of any shape become facts or nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from thence.agents import records
from thence.format.facts import words_of
from thence.format.records import Usage

ANYTHING: tuple[Any, ...] = (None, True, -1, 2**70, 1e300, "", "x", [], [[]], {}, {"a": {}})


@pytest.mark.parametrize("value", ANYTHING)
def test_no_value_raises(value: Any) -> None:
    """Whatever stands in a log."""
    records.text(value), records.fields(value), records.objects(value), records.moment(value)
    records.parse_arguments(value), records.is_running(value)
    usage = records.usage_with_cache(value, 1, read=value, written=value)

    assert usage.input_tokens >= 0


def test_a_cache_inside_the_input_is_taken_out_once() -> None:
    """Also where the parts are larger than the whole."""
    assert Usage(60, 5, 10, 30) == records.usage_with_cache(100, 5, read=30, written=10)
    assert Usage(0, 5, 0, 100) == records.usage_with_cache(100, 5, read=300, written=10)


def test_times_are_read_in_every_spelling() -> None:
    """Seconds, milliseconds, text."""
    text = "2026-05-04T10:00:00.000Z"

    assert {text} == {records.moment(value) for value in (1777888800, 1777888800000, text)}


def test_prompts_of_a_client_are_no_words_to_search() -> None:
    """They are the same in every session."""
    assert "" == words_of(records.unindexed_note("system prompt", "You are a client."))


def test_the_start_of_a_log_is_read_whatever_it_is(tmp_path: Path) -> None:
    """Bad lines and lines that are cut are passed over."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"a": 1}\nnot json\n[1]\n{"b": 2}\n{"c": "' + b"x" * records.HEAD_BYTES)

    assert [{"a": 1}, {"b": 2}] == records.first_records(str(path))
    assert [] == records.first_records(str(tmp_path / "nothing"))


def test_a_process_is_known_by_its_number() -> None:
    """The own process runs; a number that no process has does not."""
    assert (True, False) == (records.is_running(os.getpid()), records.is_running(2**31))


@pytest.mark.parametrize(
    ("written", "expected"),
    [(2, 2), (-1, -1), (2**70, None), (-(2**70), None), (True, None), ("2", None), (2.0, None)],
)
def test_a_number_that_nobody_can_store_is_none(written: object, expected: int | None) -> None:
    """An exit code of 22 digits cost its session."""
    assert expected == records.integer_of(written)
