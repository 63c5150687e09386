"""All ways into a store give equal rows of a session, whoever brings it and in however many pieces.

Mirrors no module: what is compared are whole stores. What they must say alike, and which fields
cannot be the same, is told in `pictures`.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from tests.agreement.conftest import Data, grown, swept
from tests.agreement.pictures import differences, picture
from tests.agreement.planted import Planted
from tests.memory import stored
from tests.pace import by_pace
from tests.postgres import Cluster
from thence.agents import adapters
from thence.cli import sample_machine
from thence.memory.sqlite import Sqlite
from thence.memory.store import Store
from thence.team.postgres import Postgres

TOTALS_BESIDE = {"row lower_bound", "digest cost"}
"""Of a session of Droid that goes on from another: what its total has of the other's is known by
the logs beside it as they are when the total is read first. Here that is before they are whole."""

FILES = {"imported": "imported/memory/thence.db", "copied": "copied.db"}
FILES |= {"synced": "synced/memory/thence.db"}


def pictures(store: Store, **how: bool) -> dict[str, dict[str, Any]]:
    """Return the pictures of all sessions of a store."""
    uids = [row.session.session_uid for row in store.sessions()]
    return {uid: picture(store, uid, **how) for uid in uids}


def differing(
    here: Mapping[str, Mapping[str, Any]], there: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, tuple[Any, Any]]]:
    """Return what differs, by session; a session that one of them lacks differs in all."""
    out = {uid: differences(here.get(uid, {}), there.get(uid, {})) for uid in {*here, *there}}
    return {uid: parts for uid, parts in sorted(out.items()) if parts}


def opened(path: Path, own: Path) -> Sqlite:
    """Open a copy of a store: a file that is read is locked, and grows."""
    shutil.copytree(path.parent, own, ignore=lambda _, names: {n for n in names if ".sock" in n})
    return Sqlite(str(own / path.name))


def by_file(data: Data, brought: Path, tmp_path: Path, way: str) -> dict[str, Any]:
    """Return what differs in the store of a file, by session."""
    is_copy = way == "copied"
    with (
        closing(opened(swept(data).store, tmp_path / "here")) as here,
        closing(opened(brought / FILES[way], tmp_path / "there")) as there,
    ):
        expected = pictures(here, of_a_file=not is_copy)
        if way == "synced":  # where nothing was said, nothing is sent
            expected = {uid: parts for uid, parts in expected.items() if parts.get("row events")}
        return differing(expected, pictures(there, of_a_file=not is_copy))


@pytest.mark.parametrize("way", FILES)
def test_a_session_that_was_brought_is_the_one_that_was_swept(
    data: Data, brought: Path, tmp_path: Path, way: str
) -> None:
    """Shared and imported in a fresh home, copied, or synced: in processes that swept nothing."""
    assert {} == by_file(data, brought, tmp_path, way)


def test_a_session_that_was_pushed_is_the_one_that_was_swept(
    data: Data, postgres: Cluster, tmp_path: Path
) -> None:
    """In a real Postgres, by a process that swept nothing."""
    url = postgres.url(postgres.database(), tenant="team", machine="m")
    swept(data).run("store", "push", url)
    with (
        closing(opened(swept(data).store, tmp_path / "here")) as here,
        closing(Postgres(url)) as there,
    ):
        different = differing(pictures(here), pictures(there))

    assert {} == different


def test_a_session_that_grew_is_the_one_that_was_swept_at_once(data: Data, tmp_path: Path) -> None:
    """Made-up logs line by line, real ones in three pieces, with a sweep after each."""
    with (
        closing(opened(swept(data).store, tmp_path / "here")) as here,
        closing(opened(grown(data).store, tmp_path / "there")) as there,
    ):
        swept_rows, grew = pictures(here), pictures(there)
        different = differing(swept_rows, {uid: grew[uid] for uid in grew if uid in swept_rows})
    # A public log whose name is not its session's id was known by its name, until it told the id.
    paths = {parts["row source_path"] for parts in swept_rows.values()}
    early = [uid for uid in grew if uid not in swept_rows]
    different = {
        uid: parts
        for uid, parts in different.items()
        if not (uid.startswith("droid:") and parts.keys() <= TOTALS_BESIDE)
    }

    assert {} == different
    assert [] == [uid for uid in early if grew[uid]["row source_path"] not in paths]


@pytest.mark.slow
@pytest.mark.sampled
def test_a_log_read_in_parts_says_the_same_as_one_read_at_once(
    tmp_path: Path,
) -> None:
    """A cursor without secrets leads on: no event, fact, bill or tie is other than without it."""
    user = tmp_path / "user"
    env = sample_machine.homes(user).env
    roots = {name: adapter.roots(user, env) for name, adapter in adapters().items()}
    session = resources.files("thence") / "samples" / "tidepool.jsonl"
    with resources.as_file(session) as path:
        planted = Planted(user, tmp_path / "scratch", path, step=by_pace(36, 36, 3))
    planted.name_after_tokens()
    for share in (0.3, 0.5, 0.7, 1.0):
        planted.write(share)
        stored.sweep(tmp_path / "parts", roots)
    stored.sweep(tmp_path / "at-once", roots)
    parts, at_once = stored.dump(tmp_path / "parts"), stored.dump(tmp_path / "at-once")

    assert at_once["events"] == parts["events"]
    assert at_once["facts"] == parts["facts"]
    assert at_once["spend"] == parts["spend"]
    assert at_once["families"] == parts["families"]
