"""Search by meaning in a team's store: as in SQLite, in the same order, gone with its texts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.agents.transcripts import Script
from tests.cli.desk import Desk
from tests.cli.test_semantic import (
    BOAT,
    DIMENSIONS,
    LAMP,
    ON,
    SECRET,
    MadeUpEncoder,
    sessions_found,
)
from tests.postgres import Cluster
from thence.memory import encoder as encoders
from thence.memory.search import parse
from thence.memory.sqlite import Sqlite
from thence.team.postgres import Postgres

pytest.importorskip("numpy", reason="semantic search computes with numpy")
pytestmark = pytest.mark.slow

NET = "00000003-0000-4000-8000-0000000000bb"
TEXTS = {
    LAMP: (f"the lamp lights the harbour token {SECRET}", "the lamp lights it all night"),
    BOAT: ("the boat leaks at the stern", "the boat leaks no more since noon"),
    NET: ("mend the net before the boat leaves", "the net is mended and dry"),
}
QUESTIONS = (
    *("lantern illuminates", "vessel sinks", "boat leaks at", "the vessel", "net lantern"),
    *("boat", "vessel sinks noon lamp", "nothing of this", "stern harbour night"),
)


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> MadeUpEncoder:
    """Stand for the model."""
    made = MadeUpEncoder()
    monkeypatch.setattr(encoders, "MiniLM", lambda: made)
    return made


@pytest.fixture
def desk(tmp_path: Path, postgres: Cluster, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Three sessions, a store in Postgres, and the setting that turns semantic search on."""
    made = Desk(tmp_path, monkeypatch)
    for session, (prompt, answer) in TEXTS.items():
        script = Script(session, session[:8], cwd="/home/dev/tidepool")
        script.user(prompt)
        script.say("one moment please while I look")
        script.say(answer)
        made.write_claude(script)
    made.home.mkdir(mode=0o700)
    (made.home / "config.toml").write_text(ON)
    monkeypatch.setenv("THENCE_STORE", postgres.url(tenant=tenant_of(tmp_path), machine="a"))
    return made


def tenant_of(path: Path) -> str:
    """Return a tenant that no other test has."""
    return f"vectors {path}"


@contextmanager
def team(postgres: Cluster, path: Path, machine: str, made: MadeUpEncoder) -> Iterator[Postgres]:
    """Open the store as a machine, with an encoder."""
    with closing(Postgres(postgres.url(tenant=tenant_of(path), machine=machine))) as store:
        store.use_encoder(made)
        yield store


def rows(postgres: Cluster, path: Path) -> dict[str, tuple[int, int, bool]]:
    """Return events and bytes of vectors by session, and whether its digest has one."""
    with psycopg.connect(postgres.url()) as db:
        return {
            uid: (count, size, has)
            for uid, count, size, has in db.execute(
                "SELECT uid, length(events)/8, length(body), digest IS NOT NULL"
                " FROM thence.vectors WHERE tenant=%s",
                (tenant_of(path),),
            )
        }


def test_both_stores_give_the_same_order(
    desk: Desk,
    tmp_path: Path,
    postgres: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    encoder: MadeUpEncoder,
) -> None:
    """The same sessions, events and scores, whatever is asked; `ask` finds by meaning too."""
    swept = desk.run("sweep", "--json").json
    asked = desk.run("ask", "lantern illuminates", "--json").json
    monkeypatch.delenv("THENCE_STORE")
    desk.sweep()
    path = str(desk.home / "memory" / "thence.db")
    with closing(Sqlite(path)) as local, team(postgres, tmp_path, "a", encoder) as shared:
        local.use_encoder(encoder)
        answers = [
            [
                [(hit.session_uid, hit.event_id, round(hit.score, 6)) for hit in answer.matches]
                for answer in (store.search(parse(question), 20) for question in QUESTIONS)
            ]
            for store in (local, shared)
        ]

    assert (3, 0) == (swept["embedded"], swept["unembedded"])
    assert answers[0] == answers[1]
    assert all(answers[0][:7])
    assert [f"claude:{LAMP}"] == [page["session_uid"] for page in asked["sessions"]]


def test_vectors_go_with_what_they_were_made_from(
    desk: Desk, tmp_path: Path, postgres: Cluster, encoder: MadeUpEncoder
) -> None:
    """An eviction leaves the digest's, forgetting nothing, new rules make them anew."""
    desk.sweep()
    first = rows(postgres, tmp_path)
    desk.run("evict", LAMP, "--yes")
    evicted = rows(postgres, tmp_path)[f"claude:{LAMP}"]
    still = sessions_found(desk, "lantern illuminates")
    desk.run("forget", LAMP, "--yes")
    left = set(rows(postgres, tmp_path))
    rule = '[[session_memory.redact]]\nname = "part"\npattern = "stern"\nkeywords = ["stern"]\n'
    (desk.home / "config.toml").write_text(ON + rule)
    before = list(encoder.texts)
    encoder.texts.clear()
    desk.sweep()

    assert {f"claude:{n}": (2, 2 * DIMENSIONS, True) for n in TEXTS} == first
    assert (0, 0, True) == evicted
    assert [f"claude:{LAMP}"] == still
    assert {f"claude:{BOAT}", f"claude:{NET}"} == left == set(rows(postgres, tmp_path))
    assert any("at the stern" in text for text in before)
    assert any("the boat leaks" in text for text in encoder.texts)
    assert not any("stern" in text for text in encoder.texts)
    assert not any(SECRET in text for text in before)


def test_a_program_of_the_schema_before_leaves_no_vector_behind(
    desk: Desk, tmp_path: Path, postgres: Cluster, encoder: MadeUpEncoder
) -> None:
    """It removes rows that it knows; triggers see to the others."""
    desk.sweep()
    uids = [f"claude:{n}" for n in (LAMP, BOAT, NET)]
    with psycopg.connect(postgres.url()) as db:
        for statement, uid in zip(
            (
                "DELETE FROM thence.sessions WHERE tenant=%s AND uid=%s",
                "UPDATE thence.sessions SET evicted=1 WHERE tenant=%s AND uid=%s",
                "UPDATE thence.digests SET body=body WHERE tenant=%s AND uid=%s",
            ),
            uids,
            strict=True,
        ):
            db.execute(statement, (tenant_of(tmp_path), uid))

    assert {uids[1]: (0, 0, True), uids[2]: (2, 2 * DIMENSIONS, False)} == rows(postgres, tmp_path)


def test_one_machine_makes_the_vectors_of_all(
    desk: Desk, tmp_path: Path, postgres: Cluster, encoder: MadeUpEncoder
) -> None:
    """While one does, others wait for the next time; who may only read searches."""
    (desk.home / "config.toml").write_text("")
    desk.sweep()
    with (
        team(postgres, tmp_path, "b", encoder) as other,
        team(postgres, tmp_path, "c", encoder) as third,
        team(postgres, tmp_path, "*", encoder) as reader,
    ):
        assert other.vectors is not None
        assert third.vectors is not None
        assert reader.vectors is not None
        progress: list[tuple[int, int]] = []
        during: list[tuple[int, int]] = []

        def note(far: tuple[int, int]) -> None:
            progress.append(far)
            during.append(third.vectors.build(third))  # type: ignore[union-attr]

        built = other.vectors.build(other, progress=note)
        after = third.vectors.build(third)
        read = reader.vectors.build(reader)
        answers = reader.search(parse("lantern illuminates")).matches

    assert ((3, 0), (0, 0), (0, 0)) == (built, after, read)
    assert [(1, 2), (2, 1), (3, 0)] == progress
    assert [0, 0, 0] == [done for done, _ in during]
    assert f"claude:{LAMP}" == answers[0].session_uid


def test_a_search_reads_only_the_vectors_that_changed(
    desk: Desk, tmp_path: Path, postgres: Cluster, encoder: MadeUpEncoder
) -> None:
    """The rest is at hand from the search before."""
    desk.sweep()
    with team(postgres, tmp_path, "a", encoder) as store:
        assert store.vectors is not None
        vector_rows = store.vectors._rows
        store.search(parse("lantern illuminates"))
        before = dict(vector_rows._read)  # type: ignore[attr-defined]
        store.remove([f"claude:{BOAT}"], why={})
        store.search(parse("vessel sinks"))
        after = vector_rows._read  # type: ignore[attr-defined]

    assert 3 == len(before) == len(after)
    assert 2 == sum(before[session] is after[session] for session in before)


def test_who_may_read_searches_and_others_see_nothing(
    desk: Desk, tmp_path: Path, postgres: Cluster, encoder: MadeUpEncoder
) -> None:
    """A member reads the vectors of the tenant, one of another tenant none of them."""
    desk.sweep()
    tenant, other = tenant_of(tmp_path), tenant_of(tmp_path / "elsewhere")
    for role, where in (("vectors_reader", tenant), ("vectors_stranger", other)):
        with psycopg.connect(postgres.url(), autocommit=True) as db:
            db.execute(f"DROP ROLE IF EXISTS {role}")
            db.execute(f"CREATE ROLE {role} LOGIN")
        with closing(Postgres(postgres.url(tenant=where))) as owner:
            owner.admit(role)
    seen = []
    for role in ("vectors_reader", "vectors_stranger"):
        url = postgres.url(user=role, tenant=tenant, machine="*")
        with closing(Postgres(url)) as store:
            store.use_encoder(encoder)
            seen.append([hit.session_uid for hit in store.search(parse("lantern")).matches])

    assert [[f"claude:{LAMP}"], []] == [list(dict.fromkeys(uids)) for uids in seen]
