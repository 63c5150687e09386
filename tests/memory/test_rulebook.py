"""One rulebook: what calls do is judged by all names that are known, whatever way sessions come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.memory import logs
from tests.memory.stored import opened
from tests.rules import rules
from thence.agents import adapters
from thence.agents.aider.sample import write
from thence.agents.profiles import Agent, Profile, agents, toolbox, toolbox_of
from thence.agents.samples import Machine
from thence.bridge.import_files import Importer, read_file
from thence.format.tools import BUILT_IN, Toolbox
from thence.memory.derivation import READER_VERSION
from thence.memory.gate import Gate
from thence.memory.reports import SweepReport
from thence.memory.store import SessionChange, Store
from thence.memory.sweep import Sweep

KEY = b"a key for tests, 32 bytes long!!"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store, held."""
    made = opened(tmp_path / "store")
    with made.sweeping():
        yield made
    made.close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A repository in which aider edited a file."""
    write(Machine(tmp_path / "aider", tmp_path / "work"), datetime(2026, 3, 1, tzinfo=UTC))
    return tmp_path / "aider"


def sweep(store: Store, known: Toolbox, roots: Mapping[str, Any]) -> SweepReport:
    """Sweep by some names of tools."""
    book = msgspec.structs.replace(rules(), toolbox=known)
    return Sweep(store, adapters(), Gate(key=KEY), book).run(roots)


def edits(store: Store) -> dict[str, set[str]]:
    """Return the files that were edited, by session."""
    uids = [row.session.session_uid for row in store.sessions()]
    return {
        uid: {p for row in store.events(uid) if row.outcome for p in row.outcome.edited}
        for uid in uids
    }


def written_by_an_older_thence(store: Store) -> None:
    """Let rows say that they are by the readers of today, and nothing of the names of tools."""
    known = store.known().sessions
    for row in store.sessions():
        old = msgspec.structs.replace(row, reader=READER_VERSION)
        store.write([SessionChange(old, known[row.session.session_uid].cursor)])


def test_what_was_imported_without_the_names_has_its_edits_after_the_next_sweep(
    store: Store, home: Path
) -> None:
    """As `copy` and `import` wrote it: no log of it is here, and its rows look up to date."""
    book = msgspec.structs.replace(rules(), toolbox=BUILT_IN)
    importer = Importer(store, Gate(key=KEY), book)
    incoming = read_file(next(home.glob(".aider*")))
    for parcel in incoming.parcels:
        for fact in parcel.facts:
            for block in fact.blocks:
                msgspec.structs.force_setattr(block, "effect", None)
        importer.bring_in(parcel, "share", name="a", by="b")
    written_by_an_older_thence(store)
    before = edits(store)
    report = sweep(store, toolbox(), {})

    assert [set()] == list(before.values())
    assert [{"export.py"}] == list(edits(store).values())
    assert 1 == report.reprocessed["tools"]
    assert ["edited export.py"] == [
        row.event.summary
        for uid in before
        for row in store.events(uid)
        if row.event.kind == "tool_call"
    ]
    assert 0 == sum(sweep(store, toolbox(), {}).reprocessed.values())


def test_a_session_that_is_found_again_is_judged_anew_without_its_log(
    store: Store, home: Path
) -> None:
    """And goes on from there: what is read later is judged by the same names."""
    sweep(store, BUILT_IN, {"aider": [home]})
    before = edits(store)
    report = sweep(store, toolbox(), {"aider": [home]})

    assert [set()] == list(before.values())
    assert [{"export.py"}] == list(edits(store).values())
    assert (0, 1) == (report.lines, report.reprocessed["tools"])


def test_a_package_changes_the_sessions_of_its_agent_alone(store: Store, tmp_path: Path) -> None:
    """Installed or removed: nothing else is derived again."""
    home = tmp_path / "claude"
    logs.write(home, logs.script(1))
    heron = Agent("heron", Profile(label="Heron", tools={"edit": ("Bash", "peck")}))
    more = toolbox_of((*agents().values(), heron))
    sweep(store, toolbox(), {"claude": [home]})

    assert 0 == sum(sweep(store, more, {"claude": [home]}).reprocessed.values())
    assert ("edit", "") == (more.of("heron").kind("peck"), more.of("claude").kind("peck"))
    assert "shell" == more.of("heron").kind("Bash")
    assert more.of("heron").version != more.of("claude").version == toolbox().version


def test_who_forgets_the_rulebook_is_told(store: Store) -> None:
    """No way in has one of its own."""
    with pytest.raises(TypeError):
        Sweep(store, adapters(), Gate(key=KEY))  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Importer(store, Gate(key=KEY))  # type: ignore[call-arg]
