"""The protocol of adapters, and the door through which all of them come."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import msgspec
import pytest

import thence.agents
from thence.agents import Adapter, Batch, Cursor, File, Mark, Source, adapters, packages
from thence.format.records import Notice


def test_built_in_adapters_are_found_through_the_door() -> None:
    """They are entry points like other people's, and named as they are."""
    found = adapters()

    assert {"claude", "codex", "grok", "thence"} <= set(found)
    assert all(isinstance(one, Adapter) for one in found.values())
    assert list(found) == [one.name for one in found.values()]


def installed(monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    """Pretend that nothing but some other package is installed."""
    points = EntryPoints(EntryPoint("other", value, thence.agents.GROUP) for value in values)
    monkeypatch.setattr(thence.agents, "entry_points", lambda group: points)


def test_another_package_comes_in_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the name of the group is known of it."""
    installed(monkeypatch, "thence.agents.native:Native")

    assert ["thence"] == list(adapters())


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("pathlib:Path", "docs/adapters.md"),
        ("no.such.module:Adapter", "ModuleNotFoundError"),
        ("thence.agents.native:Nothing", "AttributeError"),
    ],
)
def test_what_is_no_adapter_is_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch, value: str, why: str
) -> None:
    """Whoever installed it learns which package it is, and what is wrong with it."""
    installed(monkeypatch, value)
    usable = adapters()
    [problem] = packages.problems()

    assert {} == usable
    assert ("thence.agents", "other", value) == (problem.group, problem.name, problem.package)
    assert why in problem.why


def test_of_two_adapters_of_one_name_one_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of them reads a log must not depend on chance; the same one twice does no harm."""
    native, other = "thence.agents.native:Native", "thence.agents.grok:Grok"
    installed(monkeypatch, native, native)
    twice = list(adapters()), packages.problems()
    monkeypatch.setattr("thence.agents.grok.Grok.name", "thence")
    installed(monkeypatch, native, other)

    assert (["thence"], []) == twice
    assert ["Native"] == [type(one).__name__ for one in adapters().values()]
    assert [True] == ["is called thence" in problem.why for problem in packages.problems()]


def test_a_session_is_named_by_its_agent_and_stands_for_its_first_file() -> None:
    """One name for all agents together."""
    source = Source("grok", "s", (File("/a/updates.jsonl", "updates"), File("/a/b", "b")), "/r")

    assert ("grok:s", "/a/updates.jsonl") == (source.uid, source.path)
    assert "/r" == Source("grok", "s", (), "/r").path


def test_a_cursor_comes_back_from_a_store_as_it_went() -> None:
    """All of it is JSON."""
    mark = Mark(1, 2, 3, 4, 5, 6, 7, "h", "a", 8, torn=True, carry={"model": "m", "open": [1]})
    cursor = Cursor({"log": mark, "other": Mark(1, 2, 3, 4)})

    assert cursor == msgspec.json.decode(msgspec.json.encode(cursor), type=Cursor)


def test_batches_share_nothing() -> None:
    """What one read finds is not told by the next."""
    one, other = Batch([], [], Cursor()), Batch([], [], Cursor())
    one.notices.append(Notice("x"))

    assert [] == other.notices


def test_looking_for_adapters_loads_no_database_and_no_terminal_kit(tmp_path: Path) -> None:
    """A hook that only wants to know who claims a file stays quick."""
    heavy = ["apsw", "asyncio", "click", "rich", "sqlite3", "zstandard"]
    code = (
        "import sys; from thence.agents import adapters; adapters(); "
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "[]" == done.stdout.strip()
