"""A made-up machine, swept, served by a real server on a free port of the loopback."""

from __future__ import annotations

import http.client
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest
from litestar import Litestar
from litestar.di import Provide

from tests.restored import restore
from tests.rules import rules
from tests.serve import looks
from tests.serve.looks import Look
from thence import config
from thence.agents import Adapter, adapters
from thence.cli import sample_machine
from thence.memory.gate import Gate
from thence.memory.reports import SweepReport
from thence.memory.retention import Policy
from thence.memory.sqlite import Sqlite
from thence.memory.sweep import Sweep
from thence.serve import app as serving
from thence.serve import live, request_timeouts
from thence.serve.app import App
from thence.serve.auth import AuthMiddleware
from thence.serve.context import AppContext

if TYPE_CHECKING:
    from playwright.sync_api import Browser

KEY = bytes(range(32))
"""The key of all made-up homes: its secrets open nothing."""
OFTEN = (
    (live, "CHECK_INTERVAL_S"),
    (live, "UNUSED_CHECK_INTERVAL_S"),
    (request_timeouts, "TICK_S"),
    (request_timeouts, "UNUSED_TICK_S"),
)
"""What a server does every few seconds, and tests wait for."""
LONG = 60.0
"""Seconds after which what should happen will not: a busy machine is slow."""


class Answer(NamedTuple):
    """What a request came to."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as the value it is."""
        return msgspec.json.decode(self.body)


class House:
    """A made-up machine with a context and a server."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.folder = folder
        self.homes = sample_machine.homes(folder)
        self.store = Sqlite(str(self.homes.thence / "memory" / "thence.db"))
        self.context = self._make_context()
        self._listener = serving.listener("127.0.0.1", port)
        self.port: int = self._listener.getsockname()[1]
        self.gate = AuthMiddleware("127.0.0.1", self.port, key=KEY)
        self.url = self.gate.origin
        self.running: App | None = None

    def _make_context(self) -> AppContext:
        known = adapters()
        env = self.homes.env
        roots = {name: adapter.roots(self.folder, env) for name, adapter in known.items()}
        self.roots = {n: [p for p in paths if p.is_dir()] for n, paths in roots.items()}
        return AppContext(
            self.store,
            home=self.homes.thence,
            settings=config.settings(self.homes.thence, {}),
            known=known,
            roots=self.roots,
            policy=Policy(),
            sweep_home=self.sweep_home,
            gate=cache(lambda: Gate(key=KEY)),
        )

    def sweep(self, known: Mapping[str, Adapter] | None = None, *, digests: bool = True) -> Sweep:
        """Make a sweep of this machine."""
        return Sweep(self.store, known or adapters(), Gate(key=KEY), rules(), digests=digests)

    def sweep_home(
        self,
        known: Mapping[str, Adapter],
        roots: Mapping[str, Sequence[Path]],
        *,
        wait_s: float = 0.0,
        digests: bool = True,
        digest_limit_s: float | None = None,
        only_found: bool = False,
    ) -> SweepReport:
        """Sweep as the server does."""
        with self.store.sweeping(wait_s):
            sweep = self.sweep(known, digests=digests)
            return sweep.run(roots, digest_limit_s, only_found=only_found)

    def swept(self) -> None:
        """Import what was written."""
        self.sweep_home(adapters(), self.roots, wait_s=LONG)

    @contextmanager
    def serving(self) -> Iterator[House]:
        """Answer requests meanwhile."""
        with _registered() as make_routes, pytest.MonkeyPatch.context() as patch:
            patch.setattr(serving, "Litestar", make_routes)
            self.running = serving.App(self.context, self.gate)
            patch.undo()
            for module, name in OFTEN:
                patch.setattr(module, name, 0.2)
            with self._answering(self.running):
                yield self

    @contextmanager
    def _answering(self, app: App) -> Iterator[None]:
        server = serving.server(app)
        thread = threading.Thread(target=server.run, args=([self._listener],), daemon=True)
        thread.start()
        until = time.monotonic() + LONG
        while not server.started and thread.is_alive() and time.monotonic() < until:
            time.sleep(0.01)
        assert server.started
        try:
            yield
        finally:
            server.should_exit = True
            thread.join(LONG)
            assert not thread.is_alive()

    def close(self) -> None:
        """Let go of everything."""
        self._listener.close()
        self.store.close()

    # -- asking -------------------------------------------------------------------------

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        bearer: bool = True,
    ) -> Answer:
        """Ask the server, as a program that has the token does, or as a browser."""
        program = {"Authorization": f"Bearer {self.gate.token}"}
        sent_headers = program if bearer else {"Host": self.gate.origin.partition("//")[2]}
        data = None if body is None else msgspec.json.encode(body)
        if data is not None:
            sent_headers["Content-Type"] = "application/json"
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG)
        try:
            link.request(method, path, data, {**sent_headers, **(headers or {})})
            answer = link.getresponse()
            fields = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, fields, answer.read())
        finally:
            link.close()


_IDLE: list[Litestar] = []
"""All our routes, registered, of servers that have ended: this takes longer than most tests."""


@contextmanager
def _registered() -> Iterator[Callable[..., Litestar]]:
    """Return what makes the routes of one server; those of one that has ended are used again."""
    used: list[Litestar] = []

    def make(
        handlers: list[Any],
        *,
        dependencies: Mapping[str, Provide],
        lifespan: list[Any],
        **settings: Any,
    ) -> Litestar:
        if _IDLE:
            app = _IDLE.pop()
            for name, provide in dependencies.items():
                known = app.dependencies[name]
                assert isinstance(known, Provide)
                known.dependency = provide.dependency
            app._lifespan_managers[: len(lifespan)] = lifespan
        else:
            app = Litestar(
                handlers, dependencies={**dependencies}, lifespan=[*lifespan], **settings
            )
        used.append(app)
        return app

    yield make
    _IDLE.extend(used)  # not after an error: it may be in use still


def built(folder: Path) -> House:
    """Write the made-up sessions, and keep them."""
    sample_machine.write(folder, datetime.now(UTC), ("claude", "codex", "grok"))
    house = House(folder)
    house.swept()
    return house


def empty(folder: Path) -> House:
    """A machine on which no agent has said anything yet."""
    homes = sample_machine.homes(folder)
    for home in (homes.claude, homes.thence, homes.work):
        home.mkdir()
    return House(folder)


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests in a browser at every look, unless they choose a width or are not about looks."""
    names = metafunc.fixturenames
    if "browser" not in names or "width" in names or hasattr(metafunc.module, "ONE_LOOK"):
        return
    sampled = pytest.mark.sampled(len(looks.LOOKS))
    cases = [
        pytest.param(look, id=look.name, marks=sampled)
        for look in looks.looks_of(metafunc.function.__name__)
    ]
    metafunc.parametrize("look", cases, indirect=True)


@pytest.fixture(autouse=True)
def look(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Look:
    """How pages are looked at in this test."""
    chosen: Look = getattr(request, "param", Look())
    monkeypatch.setattr(looks, "current", chosen)
    return chosen


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium; for a file of tests, as its loop would be in the way of others."""
    from tests.serve.browser import launched

    with launched() as made:
        yield made


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A machine that is served, for all tests that change nothing."""
    made = built(tmp_path_factory.mktemp("house"))
    with made.serving():
        yield made
    made.close()


@pytest.fixture(scope="session")
def as_built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A machine that was swept, and a copy of all its files."""
    base = tmp_path_factory.mktemp("own")
    built(base / "house").close()
    shutil.copytree(base / "house", base / "copy", symlinks=True)
    return base / "house", base / "copy"


@pytest.fixture
def own_house(as_built: tuple[Path, Path]) -> Iterator[House]:
    """A machine that is served, to write on; the next test finds it as it was built."""
    restore(*as_built)
    made = House(as_built[0])
    made.swept()  # files that were put back are new files
    with made.serving():
        yield made
    made.close()
