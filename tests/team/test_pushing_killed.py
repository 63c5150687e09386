"""A push or sweep that is killed, or whose server is, comes to the same rows the next time."""

from __future__ import annotations

import random
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.faults.warm import Warm
from tests.memory import killed_postgres, logs, test_sweep
from tests.memory.stored import KEY, everything
from tests.pace import by_pace
from tests.postgres import Cluster
from tests.rules import rules
from thence.agents import adapters
from thence.errors import ThenceError
from thence.memory import sweep
from thence.memory.gate import Gate
from thence.memory.sqlite import Sqlite
from thence.memory.sweep import Sweep
from thence.team import pushing
from thence.team.postgres import Postgres
from thence.team.postgres_write import Writer

POINTS = 130
"""About what a whole push, or a sweep, does to the other store."""


class Stage:
    """One machine, swept, and what its push comes to when nobody disturbs it."""

    def __init__(self, folder: Path, postgres: Cluster, warm: Warm) -> None:
        self.postgres = postgres
        self.warm = warm
        self.home = folder / "home"
        first = logs.script(1, turns=8)
        logs.write(self.home, first, *(logs.script(number) for number in range(2, 6)))
        logs.write(self.home, logs.fork(7, first, 6), logs.fork(8, first, 9))
        self.local = str(folder / "s.db")
        store = Sqlite(self.local)
        with store.sweeping():
            Sweep(store, adapters(), Gate(key=KEY), rules()).run({"claude": [self.home]})
        store.close()
        self._folder = folder
        self._tenants = 0
        killed_postgres.push(self.local, self.fresh())
        self.pushed = self.there()
        self._sweep(self.fresh())
        self.swept = self.there()

    def fresh(self) -> str:
        """The address of a store of its own, empty still."""
        self._tenants += 1
        tenant = quote(f"{self._folder} {self._tenants}")
        self.url = self.postgres.url(tenant=tenant, machine="here")
        return self.url

    def there(self) -> dict[str, Any]:
        """What the store at hand holds."""
        store = Postgres(self.url)
        try:
            return everything(store)
        finally:
            store.close()

    def _sweep(self, url: str) -> None:
        store = Postgres(url)
        try:
            with store.sweeping(wait=60):
                Sweep(store, adapters(), Gate(key=KEY), rules()).run({"claude": [self.home]})
        finally:
            store.close()

    def again(self, what: str) -> dict[str, Any]:
        """Do once more what was cut short, undisturbed."""
        if what == "push":
            killed_postgres.push(self.local, self.url)
        else:
            self._sweep(self.url)
        return self.there()

    def client_killed(self, what: str, point: int) -> int:
        """Kill who pushes or sweeps; how it ended."""
        work: Any = killed_postgres.pushed if what == "push" else killed_postgres.swept
        source = self.local if what == "push" else None
        url = self.fresh()
        arguments = (source, url, point) if source else (url, str(self.home), point)
        child = self.warm.start(work, *arguments)
        ended = child.wait()
        test_sweep._gone(child.pid)
        return ended

    def server_killed(self, what: str, point: int) -> int:
        """Kill the server at a moment of a push or sweep; whether that was noticed."""
        left, url = [point], self.fresh()
        many = Writer._many

        def crash(self: Writer, statement: str, rows: Any, stage: Stage = self) -> int:
            count = many(self, statement, rows)
            left[0] -= 1
            if not left[0]:
                stage.postgres.stop("immediate")
                stage.postgres.start()
            return count

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Writer, "_many", crash)
            for name in ("PIECE_BYTES", "BATCH_SESSIONS"):
                patch.setattr(pushing, name, {"PIECE_BYTES": 3000, "BATCH_SESSIONS": 2}[name])
            patch.setattr(sweep, "COMMIT_BYTES", 2500)
            try:
                if what == "push":
                    killed_postgres.push(self.local, url)
                else:
                    self._sweep(url)
            except ThenceError:
                return 1
        return int(left[0] <= 0)


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    """A parent of processes to kill."""
    with Warm("tests.memory.killed_postgres") as parent:
        yield parent


@pytest.fixture
def stage(tmp_path: Path, postgres: Cluster, warm: Warm) -> Stage:
    """A machine that is about to push."""
    return Stage(tmp_path, postgres, warm)


def kill(stage: Stage, what: str, *, clients: int, servers: int) -> None:
    """Kill so many of both at random points, and compare what it comes to in the end."""
    chance = random.Random(f"{what} {clients} {servers}")
    ends: Counter[int] = Counter()
    calm = stage.pushed if what == "push" else stage.swept
    for _ in range(clients):
        point = chance.randrange(1, POINTS)
        ends[stage.client_killed(what, point)] += 1

        assert calm == stage.again(what), point
    noticed = 0
    for _ in range(servers):
        point = chance.randrange(1, 40)
        noticed += stage.server_killed(what, point)

        assert calm == stage.again(what), point
    assert not clients or ends[-signal.SIGKILL] > clients // 3
    assert not servers or noticed > servers // 3


@pytest.mark.slow
@pytest.mark.sampled
def test_killed_push_converges(stage: Stage) -> None:
    """Whoever is killed, wherever it was; a second push then finds nothing to send."""
    kill(stage, "push", clients=by_pace(4, 4, 8), servers=by_pace(1, 1, 2))
    store, target = Sqlite(stage.local), Postgres(stage.url)
    with target.sweeping(wait=60):
        report = pushing.Pusher(store, target, Gate(key=KEY), rules()).run()
    store.close()
    target.close()

    assert (0, 0) == (report.sessions, report.events)


@pytest.mark.slow
@pytest.mark.sampled
def test_killed_push_of_what_grew_converges(stage: Stage, tmp_path: Path) -> None:
    """It goes on behind what is there, whatever had arrived, and comes to what all at once is."""
    before = tmp_path / "before"
    before.mkdir()
    for path in (tmp_path / "s.db", tmp_path / "packs"):
        (shutil.copytree if path.is_dir() else shutil.copy)(path, before / path.name)
    long = logs.script(1, turns=8)
    long.user("one more question")
    logs.write(stage.home, long, logs.script(2, turns=9))
    store = Sqlite(stage.local)
    with store.sweeping():
        Sweep(store, adapters(), Gate(key=KEY), rules()).run({"claude": [stage.home]})
    store.close()
    killed_postgres.push(stage.local, stage.fresh())
    calm = stage.there()
    ends: Counter[int] = Counter()
    points = (2, 5, 9, 14, 20, 27, 35)[:: by_pace(3, 3, 1)]
    for point in points:
        killed_postgres.push(str(before / "s.db"), stage.fresh())
        child = stage.warm.start(killed_postgres.pushed, stage.local, stage.url, point)
        ends[child.wait()] += 1
        test_sweep._gone(child.pid)

        assert calm == stage.again("push"), point
    assert ends[-signal.SIGKILL] > len(points) // 2


@pytest.mark.prove
@pytest.mark.parametrize("what", ["push", "sweep"])
def test_one_of_two_hundred_kills_is_as_good_as_none(stage: Stage, what: str) -> None:
    """A hundred pushes and a hundred sweeps, four of five killed here, one of five there."""
    kill(stage, what, clients=80, servers=20)


@pytest.mark.slow
@pytest.mark.sampled
def test_many_machines_push_at_once(tmp_path: Path, postgres: Cluster, warm: Warm) -> None:
    """No event is lost or doubled, nobody waits for ever; a copy of one session is one session."""
    machines, sessions = 4, by_pace(6, 6, 20)
    first, uid = logs.script(900), f"claude:{logs.name(900)}"
    database = postgres.database()
    url = postgres.url(database, tenant="crowd")
    Postgres(f"{url}&machine=m").close()
    count = 0
    for number in range(machines):
        home = tmp_path / f"{number}" / "home"
        # Each its own, some that fork a session of all, and one that all hold as it is.
        logs.write(home, *(logs.script(100 * number + n, turns=1) for n in range(sessions)))
        logs.write(home, first, logs.fork(901 + number, first, 6))
        store = Sqlite(f"{tmp_path}/{number}/s.db")
        with store.sweeping():
            Sweep(store, adapters(), Gate(key=KEY), rules()).run({"claude": [home]})
        count += sum(row.events for row in store.sessions() if row.session.session_uid != uid)
        shared = next(row.events for row in store.sessions() if row.session.session_uid == uid)
        store.close()
    children = [
        warm.start(killed_postgres.pushed, f"{tmp_path}/{number}/s.db", f"{url}&machine=m{number}")
        for number in range(machines)
    ]
    ends = [child.wait() for child in children]
    team = Postgres(f"{url}&machine=*")
    rows = {row.session.session_uid: row.events for row in team.sessions()}
    doubled = team._every(
        "SELECT uid, event_id FROM events WHERE tenant='crowd' GROUP BY 1, 2 HAVING count(*)>1"
    )
    [(events, words, counted)] = team._every(
        "SELECT count(*), count(DISTINCT id), (SELECT count(DISTINCT id) FROM words) FROM events"
        " WHERE NOT derived"
    )
    spent = team.totals()[0].responses
    team.close()
    all_homes = Sqlite(f"{tmp_path}/all/s.db")
    with all_homes.sweeping():
        homes = [tmp_path / f"{number}" / "home" for number in range(machines)]
        Sweep(all_homes, adapters(), Gate(key=KEY), rules()).run({"claude": homes})
    alone = {row.session.session_uid: row.events for row in all_homes.sessions()}
    responses = all_homes.totals()[0].responses
    all_homes.close()

    assert [0] * machines == ends
    assert alone == rows
    assert [] == doubled
    assert (count + shared, events) == (events, words)
    assert 0 < counted <= events
    assert responses == spent
