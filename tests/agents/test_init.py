"""The protocol of adapters, and the door through which all of them come."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import msgspec
import pytest

import thence.agents
from thence.agents import Adapter, Batch, Cursor, File, Mark, Source, adapters, packages, profiles
from thence.agents.profiles import agents
from thence.agents.thence.reader import Native
from thence.format.records import Notice


def test_built_in_readers_are_named_as_their_agents() -> None:
    """A session's uid leads back to its agent."""
    known = adapters()

    assert {"claude", "codex", "grok", "thence"} <= set(known)
    assert all(isinstance(adapter, Adapter) for adapter in known.values())
    assert list(known) == [adapter.name for adapter in known.values()]


class Elsewhere(Native):
    """A reader of another package."""

    name = "elsewhere"


class OtherGrok(Native):
    """A reader of another package with the name of one of ours."""

    name = "grok"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[str]]]:
    """Pretend that another package offers something; returns the readers besides ours."""

    def offers(*values: str) -> list[str]:
        points = [EntryPoint("elsewhere", value, thence.agents.GROUP) for value in values]
        monkeypatch.setattr(profiles, "others_offer", lambda _group: True)
        monkeypatch.setattr(
            profiles, "entry_points", lambda group: points if group == thence.agents.GROUP else []
        )
        profiles._others.cache_clear()
        return [name for name in adapters() if name not in profiles._folders()]

    monkeypatch.setattr(packages, "_PROBLEMS", {})
    yield offers
    profiles._others.cache_clear()


def test_another_package_comes_in_by_its_entry_point(installed: Callable[..., list[str]]) -> None:
    """Nothing but the name of the group is known of it."""
    assert ["elsewhere"] == installed(f"{__name__}:Elsewhere")
    assert "elsewhere" == agents()["elsewhere"].label


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("pathlib:Path", "docs/writing-agents.md"),
        ("no.such.module:Adapter", "ModuleNotFoundError"),
        (f"{__name__}:Nothing", "AttributeError"),
    ],
)
def test_what_is_no_adapter_is_left_out_and_named(
    installed: Callable[..., list[str]], value: str, why: str
) -> None:
    """Whoever installed it learns which package it is, and what is wrong with it."""
    usable = installed(value)
    [problem] = packages.problems()

    assert [] == usable
    assert ("thence.agents", "elsewhere", value) == (problem.group, problem.name, problem.package)
    assert why in problem.why


def test_of_two_readers_of_one_name_one_is_used(
    installed: Callable[..., list[str]],
) -> None:
    """Which of them reads a log must not depend on chance; ours are never replaced."""
    others = installed(f"{__name__}:OtherGrok")

    assert [] == others
    assert "Grok" == type(adapters()["grok"]).__name__
    assert [True] == ["is called grok" in problem.why for problem in packages.problems()]


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
    first, second = Batch([], [], Cursor()), Batch([], [], Cursor())
    first.notices.append(Notice("x"))

    assert [] == second.notices


def test_looking_for_adapters_loads_no_database_and_no_terminal_kit(tmp_path: Path) -> None:
    """A hook that only wants to know who claims a file stays quick."""
    heavy = ["apsw", "asyncio", "click", "rich", "sqlite3", "zstandard"]
    code = (
        "import sys; from thence.agents import adapters; adapters(); "
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "[]" == done.stdout.strip()
