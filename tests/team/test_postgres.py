"""The store in Postgres tells the story of all stores, and keeps its own promises."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from tests.postgres import Cluster
from tests.rules import rules
from thence.agents import Cursor
from thence.errors import BadConfig
from thence.format.normal import SEQ_STEP
from thence.memory.gate import Gate
from thence.memory.search import parse
from thence.memory.sqlite import Sqlite
from thence.memory.store import Filter, SessionChange, Store, StoreLocked, open_store
from thence.team import postgres as module
from thence.team import postgres_events, postgres_migrations
from thence.team import postgres_schema as schema
from thence.team import postgres_search as module_search
from thence.team.postgres import Postgres, StoreLost
from thence.team.pushing import Pusher
from thence.testing import stores
from thence.testing.stores import CANARY, CHECKS, StoreSuite

_TENANTS = itertools.count()


def opened(cluster: Cluster, database: str = "postgres", **more: str) -> Postgres:
    """An empty store: a tenant of its own."""
    options = {"tenant": f"t{next(_TENANTS)}", "machine": "here", **more}
    return Postgres(cluster.url(database, **options))


def files(cluster: Cluster, database: str) -> list[Path]:
    """All files of all tables of a database, as they lie on the disk."""
    cluster.sql("CHECKPOINT")
    [(number,)] = cluster.sql(f"SELECT oid FROM pg_database WHERE datname='{database}'")
    return [path for path in (cluster.data / "base" / f"{number}").iterdir() if path.is_file()]


def session(store: Store, name: str, *texts: str) -> SessionChange:
    """A made-up session, as a sweep keeps it."""
    return stores._session(store, name, *texts)


@pytest.fixture
def store(postgres: Cluster) -> Iterator[Postgres]:
    """An empty store."""
    made = opened(postgres)
    yield made
    made.close()


# -- the story ------------------------------------------------------------------------------


@pytest.mark.parametrize("check", CHECKS)
def test_story(postgres: Cluster, check: str) -> None:
    """What every store must do."""
    assert [] == StoreSuite(lambda: opened(postgres)).complaints(check)


@pytest.mark.parametrize("check", ["evicting", "forgetting"])
def test_what_is_removed_is_in_no_file_of_a_table(postgres: Cluster, check: str) -> None:
    """Nor in one of an index, which would keep its words for ever."""
    database = postgres.database()

    def all_files(_: Store) -> list[Path]:
        return files(postgres, database)

    assert [] == StoreSuite(lambda: opened(postgres, database), files=all_files).complaints(check)


def test_address_opens_a_store(postgres: Cluster) -> None:
    """By either name of the database; what is ours in it does not reach the server."""
    url = postgres.url(tenant="red", machine="m1")
    both = [open_store(url), open_store(url.replace("postgresql:", "postgres:"))]
    names = [(store.tenant, store.machine) for store in both if isinstance(store, Postgres)]
    for store in both:
        store.close()

    assert [("red", "m1")] * 2 == names


def test_server_that_is_not_there_is_told(tmp_path: Path) -> None:
    """With what to do, and without the password."""
    with pytest.raises(BadConfig, match="cannot open the store") as caught:
        Postgres(f"postgresql://me:sesame@/x?host={tmp_path}")

    assert "psql" in (caught.value.hint or "")
    assert "sesame" not in caught.value.message


def test_texts_that_the_database_refuses_are_kept(store: Postgres) -> None:
    """Zeros and half characters: as they are in the row, and told otherwise beside it."""
    change = session(store, "one", "zero \0 here", "half \ud800 there")
    row = change.row
    odd = msgspec.structs.replace(row.session, cwd="/p/\0odd", model="m\0")
    change.row = msgspec.structs.replace(row, session=odd)
    event = msgspec.structs.replace(change.events[0].event, tool="to\0ol")
    change.events[0] = msgspec.structs.replace(change.events[0], event=event)
    store.write([change])
    listed = list(store.sessions(Filter(project="\0ODD", model="M\0")))

    assert ["/p/\0odd"] == [row.session.cwd for row in listed]
    assert [1, 1] == [len(store.search(parse(ask)).matches) for ask in ("zero here", "there")]
    assert 0 == len(store.search(parse("zero project:\0x")).matches)


def test_write_that_is_refused_half_way_leaves_nothing(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the database takes one lot of words while the next is made; then it goes on."""
    monkeypatch.setattr(postgres_events, "_LOT_BYTES", 1)
    change = session(store, "one", *(f"text number{at}" for at in range(20)))
    where = {"tenant": store.tenant, "event": change.events[10].event.event_id}
    store._db.execute(
        "INSERT INTO words(tenant, uid, event_id, piece, machine, pieces, id, ts, body)"
        " VALUES(%(tenant)s, 'claude:one', %(event)s, 0, 'm', 1, 1, 0, '')",
        where,
    )
    with pytest.raises(StoreLost, match="refused"):
        store.write([change])
    there = [len(list(store.sessions())), len(store.search(parse("text")).matches)]
    store._db.execute("DELETE FROM words WHERE tenant=%(tenant)s AND pieces=1 AND id=1", where)
    store.write([change])
    hits = store.search(parse("text"), limit=50).matches

    assert [0, 0] == there
    assert [SEQ_STEP * at for at in range(20)] == sorted(hit.seq or 0 for hit in hits)


def test_what_is_told_twice_in_one_write_is_there_as_told_last(store: Postgres) -> None:
    """Rows that came before in the same transaction do not come back."""
    first = session(store, "one", "first words", "second words")
    again = session(store, "one", "other words")
    again.row = msgspec.structs.replace(again.row, change=2)
    store.write([first, again])
    [(events, words)] = store._every(
        "SELECT (SELECT count(*) FROM events WHERE tenant=%s),"
        " (SELECT count(*) FROM words WHERE tenant=%s)",
        *(store.tenant, store.tenant),
    )

    assert [0, 0, 1] == [
        len(store.search(parse(word)).matches) for word in ("first", "second", "other")
    ]
    assert (1, 1) == (events, words)


# -- many machines --------------------------------------------------------------------------


def test_machines_sweep_beside_each_other(postgres: Cluster) -> None:
    """One sweep of each at a time; each knows its own sessions, and all are listed and pinned."""
    first = opened(postgres, tenant="team", machine="one")
    second = opened(postgres, tenant="team", machine="two")
    with first.sweeping(), second.sweeping():
        first.write([session(first, "a", "hello")])
        second.write([session(second, "b", "hello")])
        again = opened(postgres, tenant="team", machine="one")
        with pytest.raises(StoreLocked), again.sweeping():
            pass
    with again.sweeping(wait=20):
        pass

    [row] = second.sessions(Filter(uids=("claude:a",)))
    second.write([SessionChange(msgspec.structs.replace(row, pinned=True), Cursor())])

    assert [["claude:a"], ["claude:b"]] == [list(s.known().sessions) for s in (first, second)]
    assert first.known().sessions["claude:a"].pinned
    assert [["", "from machine two"], ["from machine one", ""]] == [
        [row.origin for row in sorted(store.sessions(), key=lambda row: row.session.session_uid)]
        for store in (first, second)
    ]
    assert 2 == len(list(first.sessions())) == len(second.search(parse("hello")).matches)
    for store in (first, second, again):
        store.close()


def test_session_of_two_machines_is_that_of_the_one_with_more_of_it(postgres: Cluster) -> None:
    """A copy that lags behind changes nothing; one that leads takes over."""
    first = opened(postgres, tenant="copied", machine="one")
    second = opened(postgres, tenant="copied", machine="two")
    first.write([session(first, "a", "first", "second")])
    second.write([session(second, "a", "first")])
    lagging = [sorted(s.known().sessions) for s in (first, second)]
    second.write([session(second, "a", "first", "second", "third")])
    leading = [sorted(s.known().sessions) for s in (first, second)]
    stored = first.load_session("claude:a")

    assert [["claude:a"], []] == lagging
    assert [[], ["claude:a"]] == leading
    assert stored is not None
    assert (3, 3, 2) == (len(stored.facts), len(first.events("claude:a")), stored.row.change)
    assert [1, 1] == [len(first.search(parse(word)).matches) for word in ("first", "third")]
    for store in (first, second):
        store.close()


def test_many_writers_lose_and_double_nothing(postgres: Cluster) -> None:
    """Families whose members come from all machines at once, each claiming what others claim."""
    errors: list[BaseException] = []
    machines, rounds = 6, 8

    def work(number: int) -> None:
        try:
            store = opened(postgres, tenant="crowd", machine=f"m{number}")
            for at in range(rounds):
                changes = [session(store, f"s{number}-{at}-{n}", "shared words") for n in range(3)]
                for shift, change in enumerate(changes):
                    keys = [(at * 7 + shift * 3 + step) % 40 for step in range(12)]
                    change.claims = keys if number % 2 else keys[::-1]
                    change.owned = [(keys[5], f"claude:s{number}-{at}-0")]
                store.write(changes)
            store.close()
        except BaseException as error:  # noqa: BLE001 - told below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(machines)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = opened(postgres, tenant="crowd", machine="looker")
    count = machines * rounds * 3
    family = store._kin_of("claude:s0-0-0")
    listed = len(list(store.sessions()))
    store.close()

    assert [] == errors
    assert count == listed
    assert count - 1 == len(family)
    assert [(count,), (count,), (40,)] == [
        row
        for table in ("events", "words", "owners")
        for row in postgres.sql(f"SELECT count(*) FROM thence.{table} WHERE tenant='crowd'")
    ]


def test_changes_are_told_as_they_happen(postgres: Cluster) -> None:
    """To whoever listens, whichever machine writes; not to those of another tenant."""
    writers = [opened(postgres, tenant="live", machine=name) for name in ("one", "two")]
    reader = opened(postgres, tenant="live", machine="*")
    other = opened(postgres, tenant="other", machine="*")
    writers[0].write([session(writers[0], "zero", "before")])
    seen: list[str] = []
    with reader.listening() as heard, other.listening() as heard_there:
        for name, writer in zip(("one", "two"), writers, strict=True):
            writer.write([session(writer, name, "x")])
            seen += [uid for some in heard(60.0) for uid in some]
        writers[0].write(digests=[stores._digest("claude:one", 1)])
        seen += [uid for some in heard(60.0) for uid in some]
        nothing = [*heard(0.0), *heard_there(0.0)]
    for store in (*writers, reader, other):
        store.close()

    assert ["claude:one", "claude:two", "claude:one"] == seen
    assert [] == nothing


def test_store_of_all_machines_is_read_alone(postgres: Cluster) -> None:
    """It knows the sessions of each, and names no file of theirs."""
    own = opened(postgres, tenant="everyone", machine="one")
    every = opened(postgres, tenant="everyone", machine="*")
    own.write([session(own, "a", "hello")])
    known = list(every.known().sessions)
    paths = [row.session.source_path for store in (own, every) for row in store.sessions()]
    with pytest.raises(BadConfig, match="read-only"):
        every.write([session(own, "b", "hello")])
    with pytest.raises(BadConfig, match="read-only"), every.sweeping():
        pass
    for store in (own, every):
        store.close()

    assert ["claude:a"] == known
    assert [True, False] == [path is not None for path in paths]


# -- schema ---------------------------------------------------------------------------------


def test_every_table_carries_tenant_and_machine(store: Postgres) -> None:
    """As the catalog tells, and has a policy that goes by the tenant."""
    tables = store._every(
        "SELECT c.relname, c.relrowsecurity,"
        " array_agg(a.attname::text) @> ARRAY['tenant', 'machine'],"
        " (SELECT count(*) FROM pg_policies AS p WHERE p.tablename=c.relname"
        "  AND p.qual LIKE '%%tenant = ANY%%')"
        " FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid=c.oid"
        " WHERE c.relnamespace='thence'::regnamespace AND c.relkind IN ('r', 'p')"
        " AND c.relname!='versions' GROUP BY c.oid, c.relname, c.relrowsecurity"
    )

    assert set(schema.TABLES) == {name for name, *_ in tables}
    assert [] == [row for row in tables if row[1:3] != (True, True) or not row[3]]


def test_every_unique_key_begins_with_the_tenant(store: Postgres) -> None:
    """As the catalog tells: the tenant can be what tables are spread by."""
    keys = store._every(
        "SELECT i.indexrelid::regclass::text, a.attname FROM pg_index AS i"
        " JOIN pg_class AS c ON c.oid=i.indrelid"
        " JOIN pg_attribute AS a ON a.attrelid=c.oid AND a.attnum=i.indkey[0]"
        " WHERE c.relnamespace='thence'::regnamespace AND i.indisunique AND c.relname!='versions'"
    )
    foreign = store._every(
        "SELECT conname FROM pg_constraint WHERE connamespace='thence'::regnamespace"
        " AND contype='f'"
    )

    assert len(schema.TABLES) == len(keys)
    assert {"tenant"} == {column for _, column in keys}
    assert [] == foreign


def test_every_statement_names_the_tenant(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of each table that it reads or writes; so no statement needs rows of two tenants."""
    seen: set[str] = set()
    execute = psycopg.Cursor.execute
    executemany = psycopg.Cursor.executemany

    def noted(self: Any, query: Any, *args: Any, **more: Any) -> Any:
        seen.add(query.decode() if isinstance(query, bytes) else str(query))
        return execute(self, query, *args, **more)

    def noted_many(self: Any, query: Any, *args: Any, **more: Any) -> Any:
        seen.add(query.decode())
        return executemany(self, query, *args, **more)

    opened(postgres).close()
    monkeypatch.setattr(psycopg.Cursor, "execute", noted)
    monkeypatch.setattr(psycopg.Cursor, "executemany", noted_many)
    assert [] == StoreSuite(lambda: opened(postgres)).complaints()
    with closing(Sqlite(str(tmp_path / "s.db"))) as source, closing(opened(postgres)) as target:
        source.write([session(source, "one", "hello"), session(source, "two", "hello")])
        source.write(digests=[stores._digest("claude:one", 1)])
        source.remove(["claude:one"], why={})
        assert 2 == Pusher(source, target, Gate(key=bytes(32)), rules()).run().sessions
    monkeypatch.undo()

    statements = [
        statement
        for statement in seen
        if not statement.startswith(("SET", "RESET", "CREATE TEMP", "VACUUM"))
    ]
    about = [
        statement
        for statement in statements
        if any(f" {table}" in statement for table in schema.TABLES)
    ]
    assert 40 < len(about)
    assert [] == [statement for statement in about if _tables(statement) > _tenants(statement)]


def test_every_join_of_a_function_carries_the_tenant(store: Postgres) -> None:
    """As the catalog holds them; `members`, which says who may read what, is on every node."""
    bodies = store._every(
        "SELECT proname, prosrc FROM pg_proc WHERE pronamespace='thence'::regnamespace"
    )
    asked = {name: body for name, body in bodies if _tables(body)}

    names = "found found_in_pieces found_digests looked met mine removed shown titled words_like"
    assert {*names.split(), "vectors_stale"} == set(asked)
    for name in asked.keys() - {"mine"}:
        spaced = asked[name].replace("tenant = ", "tenant=").replace("tenant || ''", "tenant")
        assert _tables(asked[name]) <= _tenants(spaced.replace("tenant = ", "tenant=")), name


def _tables(statement: str) -> int:
    """How often a statement names one of our tables."""
    words = statement.replace("(", " ").replace(",", " ").split()
    starts = ("FROM", "JOIN", "INTO", "UPDATE", "USING")
    return sum(
        words[at] in schema.TABLES and words[at - 1] in starts for at in range(1, len(words))
    )


def _tenants(statement: str) -> int:
    """How often a statement says which tenant it means."""
    return statement.count("tenant=") + statement.count("(tenant,") + statement.count("tenant, m")


def test_migrations_are_made_once_by_many_at_a_time(postgres: Cluster) -> None:
    """Whoever comes first makes them; the others find them made."""
    database = postgres.database()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            opened(postgres, database).close()
        except BaseException as error:  # noqa: BLE001 - told below
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == errors
    versions = postgres.sql("SELECT version FROM thence.versions ORDER BY 1", database)
    assert [(number + 1,) for number in range(len(schema.MIGRATIONS))] == versions


def test_fleet_survives_a_migration(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A pusher, a sweeper and a reader of the schema before go on through it: no error, no loss."""
    database = postgres.database()
    old, laptop, reader = (
        opened(postgres, database, tenant="fleet", machine=name) for name in ("old", "laptop", "*")
    )
    errors: list[BaseException] = []
    counts, done = Counter[str](), threading.Event()
    source = Sqlite(str(tmp_path / "s.db"))

    def sweep(number: int) -> None:
        old.write([session(old, f"s{number}", "hello")])
        old.write(digests=[stores._digest(f"claude:s{number}", 1)])

    def push(number: int) -> None:
        source.write([session(source, f"p{number}", "hello")])
        source.write(digests=[stores._digest(f"claude:p{number}", 1)])
        assert 1 == Pusher(source, laptop, Gate(key=bytes(32)), rules()).run().sessions

    def read(_: int) -> None:
        assert len(reader.search(parse("hello"), limit=1000).matches) <= len(
            list(reader.sessions())
        )

    threads = [
        threading.Thread(target=_repeat, args=(work, done, counts, errors))
        for work in (sweep, push, read)
    ]
    for thread in threads:
        thread.start()
    newer = schema.Migration(
        "ALTER TABLE events ADD COLUMN added text; ALTER TABLE sessions ADD COLUMN more bigint"
        " NOT NULL DEFAULT 7; CREATE TABLE extra(tenant text, machine text);"
        " CREATE INDEX events_added ON events(tenant, added)",
        1,
    )
    while min(counts[name] for name in ("sweep", "push", "read")) < 2 and not errors:
        done.wait(0.01)
    with (
        psycopg.connect(postgres.url(database), autocommit=True) as db,
        monkeypatch.context() as patched,
    ):
        patched.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, newer))
        postgres_migrations.migrate(db)
    done.set()
    for thread in threads:
        thread.join()
    listed = len(list(reader.sessions()))
    hits = reader.search(parse("hello"), limit=1000).matches
    for store in (old, laptop, reader, source):
        store.close()

    assert [] == errors
    assert counts["sweep"] + counts["push"] == listed == len(hits)
    assert [(len(schema.MIGRATIONS) + 1,)] == postgres.sql(
        "SELECT max(version) FROM thence.versions", database
    )


def _repeat(
    work: Callable[[int], None],
    done: threading.Event,
    counts: Counter[str],
    errors: list[BaseException],
) -> None:
    """Do something again and again, ten times at least, until it is enough."""
    try:
        while not done.is_set() or counts[work.__name__] < 10:
            work(counts[work.__name__])
            counts[work.__name__] += 1
    except BaseException as error:  # noqa: BLE001 - told by who started it
        errors.append(error)


def test_store_that_left_this_program_behind_is_refused(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a newer schema says that older programs would not understand it."""
    database = postgres.database()
    steps = schema.MIGRATIONS
    with monkeypatch.context() as patched:
        newer = schema.Migration("SELECT 1", len(steps) + 1)
        patched.setattr(schema, "MIGRATIONS", (*steps, newer))
        opened(postgres, database).close()

    with pytest.raises(BadConfig, match="newer thence"):
        opened(postgres, database)


def test_member_of_the_schema_before_searches_after_a_migration(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whom the owner admitted once need not be admitted again for what a step adds."""
    database = postgres.database()
    role = f"{database}_early"
    postgres.sql(f"CREATE ROLE {role} LOGIN")
    with monkeypatch.context() as patched:
        later = ("folds", "calls", "event_pages", "vectors")
        tables = tuple(name for name in schema.TABLES if name not in later)
        patched.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:3])
        patched.setattr(module, "TABLES", tables)
        owner = opened(postgres, database, tenant="early")
        owner.admit(role, writes=True)
        owner.close()
    owner = opened(postgres, database, tenant="early")
    owner.write([session(owner, "one", "hello")])
    owner.close()
    member = Postgres(postgres.url(database, role, tenant="early", machine="here"))
    hits = member.search(parse("hello")).matches
    stored = member.load_session("claude:one")
    member.write([stores._grow(member, stored, "one", "hello", "again")] if stored else [])
    tail = member.tail("claude:one")
    member.close()

    assert ["claude:one"] == [hit.session_uid for hit in hits]
    assert tail is not None
    assert (2, 2) == (
        tail.row.events,
        tail.state and tail.state.sealed.events + len(tail.state.rows),
    )


def test_member_with_a_newer_program_is_told_to_wait_for_the_owner(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """She may not migrate; that she is not admitted would be wrong."""
    database = postgres.database()
    role = f"{database}_eager"
    postgres.sql(f"CREATE ROLE {role} LOGIN")
    with monkeypatch.context() as patched:
        patched.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:-1])
        owner = opened(postgres, database, tenant="eager")
        owner.admit(role)
        owner.close()

    with pytest.raises(BadConfig, match="is of an earlier thence"):
        Postgres(postgres.url(database, role, tenant="eager", machine="here"))


def test_program_of_the_schema_before_leaves_no_state_behind(postgres: Cluster) -> None:
    """It knows nothing of states: what it removes is gone, what it continues is rebuilt."""
    store = opened(postgres)
    store.write([session(store, name, "hello") for name in ("one", "two", "three")])
    where = f"WHERE tenant='{store.tenant}' AND uid="
    for statement in (
        f"UPDATE sessions SET evicted=1 {where}'claude:one'",
        f"DELETE FROM sessions {where}'claude:two'",
        f"UPDATE sessions SET change=2 {where}'claude:three'",
    ):
        store._db.execute(statement.encode())
    left = store._every("SELECT uid FROM folds WHERE tenant=%s", store.tenant)
    tail = store.tail("claude:three")
    store.close()

    assert [("claude:three",)] == left
    assert tail is not None
    assert tail.state is None


# -- who may read ---------------------------------------------------------------------------


@contextmanager
def two_teams(postgres: Cluster) -> Iterator[dict[str, Postgres]]:
    """Two teams in a new database, each with a reader; and one who may write for the red one."""
    database = postgres.database()
    stored = {name: opened(postgres, database, tenant=name) for name in ("red", "blue")}
    for name, store in stored.items():
        store.write([session(store, name, f"{CANARY} of {name}")])
        store.write(digests=[stores._digest(f"claude:{name}", 1)])
        for role in (f"{database}_{name}", f"{database}_{name}_writer"):
            postgres.sql(f"CREATE ROLE {role} LOGIN")
            store.admit(role, writes=role.endswith("writer"))
    url = {
        role: postgres.url(database, f"{database}_{role}", tenant=role.partition("_")[0])
        for role in ("red", "blue", "red_writer")
    }
    members = {role: Postgres(f"{where}&machine=theirs") for role, where in url.items()}
    crossed = url["red"].replace("tenant=red", "tenant=blue")
    members["red in blue"] = Postgres(crossed)
    postgres.sql("ANALYZE", database)
    yield members
    for store in (*members.values(), *stored.values()):
        store.close()


@pytest.fixture(scope="module")
def teams(postgres: Cluster) -> Iterator[dict[str, Postgres]]:
    """Two teams that tests read from, and whose members try what they may not; change nothing."""
    with two_teams(postgres) as members:
        yield members


@pytest.fixture
def own_teams(postgres: Cluster) -> Iterator[dict[str, Postgres]]:
    """Two teams of one test, which may change them."""
    with two_teams(postgres) as members:
        yield members


def test_member_reads_her_team(teams: dict[str, Postgres]) -> None:
    """Lists, digests, payloads and words."""
    for name in ("red", "blue"):
        store = teams[name]
        hits = store.search(parse(CANARY)).matches
        stored = store.load_session(f"claude:{name}")

        assert [f"claude:{name}"] == [row.session.session_uid for row in store.sessions()]
        assert [f"claude:{name}"] == [hit.session_uid for hit in hits]
        assert [f"claude:{name}"] == [row["uid"] for row in store.read_table("digests")]
        assert stored is not None
        assert b"of " in store.blobs.read(hits[0].ref or "")


def test_member_sees_nothing_of_another_team(teams: dict[str, Postgres]) -> None:
    """Whatever she asks: our own questions, any statement, the functions that search."""
    red, crossed = teams["red"], teams["red in blue"]

    assert [] == list(crossed.sessions())
    assert [] == crossed.search(parse(CANARY)).matches
    assert crossed.load_session("claude:blue") is None
    assert [] == list(crossed.read_table("digests"))
    assert 0 == crossed.totals()[0].sessions
    for table in schema.TABLES:
        assert {("red",)} >= set(red._every(f"SELECT DISTINCT tenant FROM {table}")), table
    ask = "found('blue', '''#'':*', false, NULL, NULL, NULL, 10)"
    assert [] == red._every(f"SELECT * FROM {ask}")
    assert [1] == [len(red._every(f"SELECT * FROM {ask.replace('blue', 'red')}"))]
    of_blue, of_red = (_looked(red, tenant) for tenant in ("blue", "red"))
    assert (0, True) == (of_blue, of_red > 1)


TRICKS = (
    "SET row_security = off; SELECT tenant FROM sessions",
    "SET ROLE thence; SELECT tenant FROM sessions",
    "SET SESSION AUTHORIZATION thence; SELECT tenant FROM sessions",
    "SELECT set_config('role', 'thence', false); SELECT tenant FROM sessions",
    (
        "CREATE TEMP TABLE members(tenant text, role text, writes boolean); "
        "INSERT INTO pg_temp.members VALUES('blue', current_user, true); "
        "SET search_path TO pg_temp, thence; SELECT tenant FROM thence.sessions"
    ),
    (
        "CREATE FUNCTION pg_temp.leak(text) RETURNS boolean COST 0.0001 LANGUAGE plpgsql AS"
        " 'BEGIN RAISE NOTICE ''%%'', $1;RETURN true;END'; "
        "SELECT tenant FROM thence.sessions WHERE pg_temp.leak(tenant)"
    ),
    "UPDATE sessions SET tenant = 'blue'; SELECT tenant FROM sessions",
    "SELECT most_common_vals::text FROM pg_stats WHERE schemaname = 'thence'",
    "SELECT uid FROM found('blue', '''#'':*', false, NULL, NULL, NULL, 10)",
)


@pytest.mark.few(3)
@pytest.mark.parametrize("trick", TRICKS)
@pytest.mark.parametrize("role", ["red", "red_writer"])
def test_no_trick_of_a_member_shows_another_team(
    teams: dict[str, Postgres], role: str, trick: str
) -> None:
    """Roles, settings, tables and functions of her own: refused, or her own team alone."""
    seen: list[str] = []
    with psycopg.connect(teams[role].address, autocommit=True) as db:
        db.execute("SET search_path TO thence, pg_temp")
        db.add_notice_handler(lambda notice: seen.append(str(notice.message_primary)))
        try:
            for statement in trick.replace("%%", "%").split("; "):
                rows = db.execute(statement.encode())
                seen += map(str, rows.fetchall() if rows.description else [])
        except psycopg.Error as error:
            refused = str(error)
            assert "row-level security" in refused or "permission denied" in refused, refused

    assert [] == [text for text in seen if "blue" in text]


@pytest.mark.parametrize(
    "asked", ["'; DROP TABLE words; --", "\\'", "a' & 'b", ":* | !x", '"unended', "file:')", "\0z"]
)
def test_no_search_reaches_another_team_or_breaks_out(
    teams: dict[str, Postgres], asked: str
) -> None:
    """Whatever signs the words hold, they are words."""
    uids = [hit.session_uid for hit in teams["red"].search(parse(asked)).matches]
    again = [hit.session_uid for hit in teams["red"].search(parse(CANARY)).matches]

    assert [] == [uid for uid in uids if uid != "claude:red"]
    assert ["claude:red"] == again


def _looked(store: Postgres, tenant: str) -> int:
    """How much the function that searches tells of a tenant, by whatever store it is asked."""
    rows = module_search.PostgresWords(store._db, tenant)
    [lists] = rows.lists([parse(CANARY)], 20, 20).rows
    events = rows.look_up([((number, tenant, 0, 0, 0), 1.0) for number in range(1, 50)])
    return len(lists) + len(events) + len(rows.words(CANARY[:3].lower(), ""))


def test_reader_does_not_write(own_teams: dict[str, Postgres]) -> None:
    """And a writer writes for her own team alone."""
    change = session(own_teams["red_writer"], "new", "hello")
    with pytest.raises(StoreLost, match="permission denied"):
        own_teams["red"].write([change])
    own_teams["red_writer"].write([change])
    for table in ("sessions", "members"):
        with pytest.raises(StoreLost, match=r"row-level security|permission denied"):
            own_teams["red_writer"]._run(
                f'INSERT INTO {table} SELECT (jsonb_populate_record(t, \'{{"tenant": "blue"}}\''
                f")).* FROM {table} AS t LIMIT 1"
            )

    assert 2 == len(list(own_teams["red"].sessions()))


def test_what_a_member_removes_is_pending_until_the_owner_comes(
    own_teams: dict[str, Postgres],
) -> None:
    """Who does not own the tables cannot write them anew; nobody finds it all the same."""
    store = own_teams["red_writer"]
    pending = store.remove(["claude:red"], why={})

    assert ["claude:red"] == pending
    assert store.known().pending
    assert [] == [hit for hit in store.search(parse(CANARY)).matches if hit.kind != "digest"]


# -- removing -------------------------------------------------------------------------------


def test_table_that_is_in_use_or_large_makes_an_eviction_pending(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is done when the others are gone, and asked of the next sweep until then."""
    database = postgres.database()
    store = opened(postgres, database)
    monkeypatch.setattr(module, "_LOCK_TIMEOUT", "50ms")
    store.write([session(store, "one", CANARY), session(store, "two", "other")])
    with psycopg.connect(postgres.url(database)) as reader:
        reader.execute("SELECT count(*) FROM thence.words")
        blocked = store.remove(["claude:one"], why={})
    waiting = store.known().pending
    again = store.remove((), why={})
    settled = store.known().pending
    monkeypatch.setattr(module, "REWRITE_AT_BYTES", 0)
    large = store.remove(["claude:two"], why={})
    left = [path for path in files(postgres, database) if CANARY.encode() in path.read_bytes()]
    store.close()

    assert (["claude:one"], True, [], False) == (blocked, waiting, again, settled)
    assert ["claude:two"] == large
    assert [] == left


# -- a server that goes away ----------------------------------------------------------------


def test_connection_that_was_lost_is_made_again(postgres: Cluster) -> None:
    """What was going on is told; what comes next finds the server again."""
    store = opened(postgres)
    store.write([session(store, "one", "hello")])
    postgres.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name='thence' AND pid!=pg_backend_pid()"
    )
    with pytest.raises(StoreLost, match="lost the store"):
        list(store.sessions())

    assert 1 == len(list(store.sessions()))
    store.close()
