"""The homes that are compared, each made once for all processes that run tests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.agreement.doors import Numbers, normal
from tests.agreement.homes import Growing, Home, MadeUp, Real
from tests.pace import by_pace
from thence.memory.sqlite import Sqlite

MadeOnce = Callable[[str, Callable[[Path], None]], Path]

REAL_STEP = by_pace(everyday=24, full=12, prove=1)
"""Of the folders of real clients every so-many-th is read."""
PIECES = by_pace(everyday=12, full=0, prove=0)
"""In which logs grow; 0: line by line."""
REAL_PIECES = 3

KINDS = ("made up", pytest.param("real", marks=pytest.mark.slow))

Data = MadeUp | Real


def swept(data: Data) -> Home:
    """Return the home that has read all of it at once."""
    return data.home("swept/.thence")


@pytest.fixture(scope="session")
def made_up(made_once: MadeOnce) -> MadeUp:
    """The made-up sessions of all agents, swept; change nothing."""

    def make(folder: Path) -> None:
        data = MadeUp(folder)
        data.write()
        swept(data).run("sweep")
        grow(data, PIECES)

    return MadeUp(made_once("agreement-made-up", make))


@pytest.fixture(scope="session")
def real(shared: Path, made_once: MadeOnce) -> Real:
    """The real sessions, or some of them, swept; change nothing."""

    def make(folder: Path) -> None:
        data = Real(folder)
        data.write(shared, REAL_STEP)
        swept(data).run("sweep", ends=(0, 1, 3))  # some lines of them cannot be read
        grow(data, REAL_PIECES)

    return Real(made_once(f"agreement-real-{REAL_STEP}", make))


@pytest.fixture(params=KINDS)
def data(request: pytest.FixtureRequest) -> Data:
    """Both kinds of sessions, one after the other."""
    chosen: Data = request.getfixturevalue(request.param.replace(" ", "_"))
    return chosen


# -- ways in ---------------------------------------------------------------------------------


def bring(data: Data, folder: Path) -> None:
    """Bring all sessions into further stores by every way there is but a push."""
    origin = swept(data)
    folder.mkdir()
    with closing(Sqlite(str(origin.store))) as store:
        uids = [row.session.session_uid for row in store.sessions()]
    files = [folder / f"{number}.thence" for number in range(len(uids))]
    with origin.process() as run:
        for uid, file in zip(uids, files, strict=True):
            run("share", uid, "-o", file)
    data.empty(folder / "imported").run("import", *files)
    data.empty(folder / "copied").run(
        "store", "copy", origin.store, folder / "copied.db", ends=(0, 1)
    )
    place = folder / "place"
    place.mkdir()
    sender = Home(folder / "sender", {})
    shutil.copytree(origin.path / "memory", sender.path / "memory")
    with sender.process() as run:
        printed = run("sync", "init", place, "--name", "alpha").lines
        run("sync")
    phrase = next(line.strip() for line in printed if line.startswith("  "))
    with data.empty(folder / "synced").process() as run:
        run("sync", "join", place, "--name", "beta", typed=f"{phrase}\n")
        run("sync")


def grown(data: Data) -> Home:
    """Return the home that has read all of it while it was written."""
    return data.home("grown/.thence")


def grow(data: Data, pieces: int) -> None:
    """Sweep all logs into another home while they grow, where they lie."""
    home = grown(data)
    (home.path / "memory").mkdir()  # equal secrets have equal marks in homes with the same key
    shutil.copy(swept(data).path / "memory" / "redact.key", home.path / "memory")
    logs = Growing(data.user)
    logs.shrink()
    pieces = pieces or logs.lines
    with home.process() as run:
        for number in range(1, pieces + 1):
            logs.grow(number, pieces)
            run("sweep", ends=(0, 1, 3))


@pytest.fixture
def brought(data: Data, made_once: MadeOnce) -> Path:
    """A folder of stores into which all sessions were brought."""
    return made_once(f"{data.folder.name}-brought", lambda folder: bring(data, folder))


@pytest.fixture(scope="session")
def brought_made_up(made_up: MadeUp, made_once: MadeOnce) -> Path:
    """The same folder, of the made-up sessions."""
    name = f"{made_up.folder.name}-brought"
    return made_once(name, lambda folder: bring(made_up, folder))


# -- ways out --------------------------------------------------------------------------------


def all_numbers(home: Home) -> dict[str, dict[str, dict[str, Any]]]:
    """Return what the doors say: by number, session and door."""
    out: dict[str, dict[str, dict[str, Any]]] = {}
    numbers = Numbers(home)
    with numbers.house.serving():
        for uid in numbers.uids:
            for number, printed in numbers.of(uid).items():
                out.setdefault(number, {})[uid] = normal(number, printed)
    numbers.close()
    return out


@pytest.fixture
def numbers(data: Data, made_once: MadeOnce) -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """What the doors say of all sessions: by number, session and door."""

    def make(folder: Path) -> None:
        folder.mkdir()
        (folder / "numbers.json").write_text(json.dumps(all_numbers(swept(data))))

    made = made_once(f"{data.folder.name}-numbers", make)
    printed: Mapping[str, Mapping[str, Mapping[str, Any]]]
    printed = json.loads((made / "numbers.json").read_text())
    return printed


@pytest.fixture
def own_store(data: Data, tmp_path: Path) -> Iterator[Sqlite]:
    """A copy of the store of all sessions."""
    shutil.copytree(swept(data).path / "memory", tmp_path / "memory")
    with closing(Sqlite(str(tmp_path / "memory" / "thence.db"))) as store:
        yield store
