"""The store of a team, served: what machines push is there at once, and another team's is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.postgres import Cluster
from tests.rules import rules
from tests.serve.conftest import House
from tests.serve.streams import Listener
from thence import config
from thence.agents import adapters
from thence.cli import sample_machine
from thence.memory.gate import Gate
from thence.memory.retention import Policy
from thence.memory.sqlite import Sqlite
from thence.memory.sweep import Sweep
from thence.serve.context import AppContext
from thence.team.postgres import Postgres
from thence.team.pushing import Pusher

KEY = bytes(range(32))


class Office(House):
    """A server of a team: nothing of the machine it runs on is the team's."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url_of_store = url
        folder.mkdir()
        (folder / ".thence").mkdir()
        super().__init__(folder)

    def _make_context(self) -> AppContext:
        self.store.close()
        self.team = Postgres(f"{self.url_of_store}&machine=*")
        home = self.homes.thence
        return AppContext(
            self.team,
            home=home,
            settings=config.settings(home, {}),
            known={},
            roots={},
            policy=Policy(),
            writes=False,
            gate=lambda: Gate(key=KEY),
        )

    def close(self) -> None:
        """Let go of everything."""
        super().close()
        self.team.close()


class Machine:
    """One machine of a team, with made-up sessions."""

    def __init__(self, folder: Path, url: str) -> None:
        self.homes = sample_machine.write(folder, datetime.now(UTC), ("claude", "codex", "grok"))
        self._roots = {
            name: [path for path in adapter.roots(folder, self.homes.env) if path.is_dir()]
            for name, adapter in adapters().items()
        }
        self._store = f"{folder}/s.db"
        self._url = url

    def push(self) -> int:
        """Sweep, and push what is new; how many sessions that were."""
        store, target = Sqlite(self._store), Postgres(self._url)
        try:
            with store.sweeping():
                Sweep(store, adapters(), Gate(key=KEY), rules()).run(self._roots)
            with target.sweeping(60):
                return Pusher(store, target, Gate(key=KEY), rules()).run().sessions
        finally:
            store.close()
            target.close()


@contextmanager
def served(folder: Path, url: str) -> Iterator[Office]:
    """Serve a team."""
    office = Office(folder, url)
    try:
        with office.serving():
            yield office
    finally:
        office.close()


@pytest.fixture
def database(postgres: Cluster) -> str:
    """A database of its own, for its roles."""
    return postgres.database()


def test_what_a_machine_pushes_is_heard_of_at_once(
    tmp_path: Path, postgres: Cluster, database: str
) -> None:
    """By who looks at all sessions, and by who follows one; a server that is started anew too."""
    url = postgres.url(database, tenant="tide")
    machine = Machine(tmp_path / "one", f"{url}&machine=one")
    with served(tmp_path / "office", url) as office:
        everything = Listener(office, "/api/live")
        everything.wait_for("ready")
        sent = machine.push()
        everything.wait(
            lambda listener: (
                len({h.data["session"]["session_uid"] for h in listener.of("changed")}) >= sent
            )
        )
        listed = office.ask("/api/sessions").json
        everything.close()
        uid = f"claude:{sample_machine.made_id('clock-change')}"
        session_listener = Listener(office, f"/api/sessions/{quote(uid)}/live")
        ready = session_listener.wait_for("ready")
        _say(machine, "and one more thing")
        machine.push()
        heard = session_listener.wait_for("event", ready.data["events"] + 1)
        session_listener.close()

    assert sent > 3
    assert sent == len(_rows(listed))
    assert "and one more thing" in str(heard.data)


def test_second_role_sees_nothing_of_another_team(
    tmp_path: Path, postgres: Cluster, database: str
) -> None:
    """Through the API, the pages, the search and the stream; her own team's she sees."""
    for team in ("red", "blue"):
        url = postgres.url(database, tenant=team, machine="one")
        Machine(tmp_path / team, url).push()
        postgres.sql(f"CREATE ROLE {database}_{team} LOGIN")
        owner = Postgres(url)
        owner.admit(f"{database}_{team}")
        owner.close()
    her = {team: postgres.url(database, f"{database}_red", tenant=team) for team in ("red", "blue")}
    uid = quote(f"claude:{sample_machine.made_id('clock-change')}")
    asked = (
        "/api/sessions",
        "/api/search?q=tide",
        f"/api/sessions/{uid}",
        f"/api/sessions/{uid}/events",
        "/",
        "/sessions?q=tide",
        f"/sessions/{uid}",
        "/costs",
        "/patterns",
        "/store",
    )
    answers: dict[str, list[Any]] = {}
    for team, url in her.items():
        with served(tmp_path / f"office-{team}", url) as office:
            answers[team] = [office.ask(path) for path in asked]
            stream = Listener(office, "/api/live")
            answers[team].append(stream.wait_for("ready").data["sessions"])
            stream.close()

    own, other = answers["red"], answers["blue"]
    pages = [*other[4:6], *other[7:10]]
    assert [200] * 10 == [answer.status for answer in own[:10]]
    assert len(_rows(own[0].json)) > 3
    assert b"tide" in own[1].body.lower().replace(b"q=tide", b"")
    assert [[], []] == [_rows(other[0].json), other[1].json["hits"]]
    assert [404, 404, 404] == [other[at].status for at in (2, 3, 6)]
    assert [] == [
        answer for answer in pages if sample_machine.made_id("clock-change").encode() in answer.body
    ]
    assert [200] * 5 == [answer.status for answer in pages]
    assert (len(_rows(own[0].json)), 0) == (own[10], other[10])


def test_path_of_another_machine_is_no_file_of_the_server(
    tmp_path: Path, postgres: Cluster, database: str
) -> None:
    """A session that was evicted is not read from where its source lay on its own machine."""
    url = postgres.url(database, tenant="tide")
    Machine(tmp_path / "one", f"{url}&machine=one").push()
    uid = f"claude:{sample_machine.made_id('clock-change')}"
    store = Postgres(f"{url}&machine=one")
    store.remove([uid], why={})
    store.close()
    with served(tmp_path / "office", url) as office:
        answer = office.ask(f"/api/sessions/{quote(uid)}/events")

    assert 200 != answer.status
    assert b"its original log is gone" in answer.body


def _rows(listed: Any) -> list[Any]:
    return list(listed["sessions"] if isinstance(listed, dict) else listed)


def _say(machine: Machine, text: str) -> None:
    """Let a session go on by a prompt."""
    import json
    from uuid import uuid4

    path = next(machine.homes.claude.rglob(f"{sample_machine.made_id('clock-change')}.jsonl"))
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    last = [record for record in lines if record.get("uuid")][-1]
    record = {**last, "uuid": str(uuid4()), "parentUuid": last["uuid"], "type": "user"}
    record["message"] = {"role": "user", "content": text}
    record.pop("requestId", None)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
