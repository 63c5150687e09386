"""No way out of thence gives any part of a secret that stands in a log, whichever field has it.

Mirrors no module: every door is walked, of stored sessions and of removed ones that are read from
their logs. What is looked for are parts of secrets, since what is cut leaves parts.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

import pytest
import zstandard

from tests import posts
from tests.agreement.conftest import MadeOnce
from tests.agreement.homes import Home, Run
from tests.agreement.soaked import Soaked
from tests.postgres import Cluster
from tests.serve.test_mcp import over_stdio
from thence.bridge.sync_keys import Key, secret_in
from thence.team.postgres import Postgres
from thence.team.postgres_schema import TABLES

if TYPE_CHECKING:
    from mcp import Client

Doors = Iterator[bytes]

STATES = ("stored", "removed", "imported")
"""Swept; then removed, so that logs are read again; and brought into a home without any log."""

FINE: Final = (0, 1, 3)
"""How a command ends that has nothing to complain of but the logs."""

MARK: Final = b"[REDACTED:"

COMMANDS: Final = (
    *("", "--json", "status", "ls -n 999", "ls -n 999 --json", "ls --running", "ls --todos"),
    *("ls --todos --json", "patterns", "patterns --json", "patterns --signals"),
    *("patterns --signals --json", "cost", "cost --by session --json", "cost --by model"),
    *("project", "files a.py", "files --json tides.py", "history -n 999", "history --json"),
    *("search tides", "search REDACTED -n 99", "search --json -n 99 the", "search ghp"),
    *("search kind:error", "search kind:tool_call --json -n 200", "ask tides"),
    *("ask --json what was decided", "sweep -n", "sweep --json", "doctor", "doctor --json"),
    *("doctor --deep --json", "store gc -n", "config"),
)
"""What is printed of all sessions."""

OF_ONE: Final = (
    *("show {}", "show {} --json", "show {} --branch all", "show {} --tree", "show {} --digest"),
    *("show {} --stats", "show {} --stats --json", "show {} --signals", "digest {} --json"),
    *("resume {}", "resume {} --json", "patterns --signals {}"),
)
"""What is printed of one session."""

HOOK: Final = "SessionStart"

FORMS: Final = ("jsonl", "markdown", "html", "messages", "atif", "otlp")

ORIGINALS: Final = {
    "export {}": "copies the log as the agent wrote it, unless --redacted is added",
    "export {} --as messages": "goes back to a model, which was told all of it before",
    "show {path}": "reads a file that the user names, and stores nothing",
    "note": "shows what the user wrote, as it was written",
    "note --decision": "shows what the user wrote, as it was written",
    "handoff {} --to codex --dry-run": "goes on with a session as it is",
}
"""Commands that work on logs as they are, and why; our own journal's files are logs, too."""


class State:
    """The soaked sessions in one of the states, and a look for secrets in what comes out of it."""

    def __init__(self, data: Soaked, name: str, own: Path | None = None) -> None:
        """Take the home of a state, or a copy in a folder of one's own."""
        self.name = name
        self.data = data
        made = data.empty(f"{name}/.thence") if name == "imported" else of(data, name)
        if own is not None:
            shutil.copytree(made.path, own / ".thence")
            env = {name: value for name, value in made.env.items() if value is not None}
            made = Home(own / ".thence", env, package=made.package)
        self.home = made

    @property
    def uids(self) -> list[str]:
        """All sessions."""
        with closing(sqlite3.connect(self.home.store)) as database:
            rows = database.execute("SELECT uid FROM sessions ORDER BY uid").fetchall()
        return [uid for (uid,) in rows]

    @property
    def some(self) -> list[str]:
        """Of each agent the last sessions, other ones in each state, and what bears a secret."""
        agents: dict[str, list[str]] = {}
        for uid in self.uids:
            agents.setdefault(uid.partition(":")[0], []).append(uid)
        at = STATES.index(self.name)
        named = [uid for uid in self.uids if MARK.decode() in uid]
        own = [uids[at % len(uids)] for uids in agents.values()]
        return list(dict.fromkeys([*own, *named[at :: len(STATES)]]))

    def leaks(self, parts: Iterable[bytes], *, holds: bytes = MARK) -> dict[str, str]:
        """Return the secrets a part of which stands in some bytes that hold something."""
        bodies = [part.replace(str(self.data.folder).encode(), b"") for part in parts]

        assert any(holds in body for body in bodies)
        return self.data.secrets.parts_in(bodies)


def of(data: Soaked, name: str) -> Home:
    """Return a home that reads the soaked logs."""
    return data.home(f"{name}/.thence")


def make(folder: Path) -> None:
    """Write the soaked logs, sweep them in two parts, and bring them into all states."""
    data = Soaked(folder)
    data.write()
    home = of(data, "stored")
    home.run("sweep", ends=FINE)
    shutil.copytree(home.path / "memory", folder / "half")
    data.write_rest()
    home.run("sweep", ends=FINE)
    removed = of(data, "removed")
    shutil.copytree(home.path, removed.path, dirs_exist_ok=True)
    uids = State(data, "stored").uids
    with removed.process() as run:
        run("store", "remove", *uids, "--yes", ends=FINE)
    files = [folder / "files" / f"{number}.thence" for number in range(len(uids))]
    files[0].parent.mkdir()
    with home.process() as run:
        for uid, file in zip(uids, files, strict=True):
            run("share", uid, "-o", file)
    with data.empty("imported/.thence").process() as run:
        run("import", *files, ends=FINE)
    for name in STATES:
        with State(data, name).home.process() as run:
            run("note", f"Use {data.secrets.known[0]} for it.", ends=FINE)
            run("note", "--decision", f"Never {data.secrets.known[1]}.", ends=FINE)
            run("name", uids[0], f"named {data.secrets.known[2]}")
            run("tag", uids[0], f"+{data.secrets.known[3]}", ends=(*FINE, 2))


@pytest.fixture(scope="session")
def soaked(made_once: MadeOnce) -> Soaked:
    """The soaked sessions in all states; change nothing."""
    return Soaked(made_once("agreement-soaked", make))


@pytest.fixture(params=STATES)
def state(soaked: Soaked, request: pytest.FixtureRequest, tmp_path: Path) -> State:
    """Each state, one after the other, in a home of one's own."""
    return State(soaked, request.param, tmp_path)


# -- what is stored --------------------------------------------------------------------------


def unpacked(body: bytes | memoryview, *, across: bool = True) -> bytes:
    """Return what some bytes hold that are compressed; nothing of others."""
    if bytes(body[:4]) != zstandard.FRAME_HEADER:
        return b""
    try:
        reader = zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=across)
        return reader.read()
    except zstandard.ZstdError:
        return b""


def frames(body: bytes) -> Iterator[bytes]:
    """Yield each compressed frame of a file, unpacked."""
    at = body.find(zstandard.FRAME_HEADER)
    while at >= 0:
        yield unpacked(memoryview(body)[at:], across=False)
        at = body.find(zstandard.FRAME_HEADER, at + 4)


def both(value: Any) -> Iterator[bytes]:
    """Yield a value of a table as it is, and unpacked."""
    body = bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode()
    yield from (body, unpacked(body))


def bytes_of(folder: Path) -> Doors:
    """Yield every byte of the files of a folder: as they are, unpacked, every value of tables."""
    for path in folder.rglob("*"):
        if not path.is_file() or path.parent.name == "notes":
            continue
        body = path.read_bytes()
        yield from (str(path.relative_to(folder)).encode(), body, *frames(body))
        if path.suffix == ".db":
            yield from values_of(path)


def values_of(path: Path) -> Doors:
    """Yield every value of every table of a database."""
    with closing(sqlite3.connect(path)) as database:
        database.text_factory = bytes
        for (table,) in database.execute("SELECT name FROM sqlite_master").fetchall():
            with contextlib.suppress(sqlite3.Error):  # an index, or a part of one
                for row in database.execute(f'SELECT * FROM "{table.decode()}"').fetchall():
                    for value in row:
                        yield from both(value)


def test_nothing_that_is_stored_holds_a_part_of_a_secret(state: State) -> None:
    """No table, frame, pack, index, cursor, write-ahead log, state of a sync or name of a file."""
    assert {} == state.leaks(bytes_of(state.home.path))


def test_nothing_that_is_stored_of_half_a_log_holds_a_part_of_a_secret(soaked: Soaked) -> None:
    """Cursors and states of folds that were stored in the middle; and the look sees all secrets."""
    logs = [path.read_bytes() for path in soaked.user.rglob("*") if path.is_file()]
    seen = soaked.secrets.parts_in([*logs, str(soaked.user).encode()])

    assert {} == State(soaked, "stored").leaks(bytes_of(soaked.folder / "half"))
    assert len(seen) > 0.9 * len(soaked.secrets.known) > 3000


# -- the command line ------------------------------------------------------------------------


def printed(run: Run, *commands: str, **names: str | Path) -> Doors:
    """Yield what some commands print, errors too."""
    for words in commands:
        ran = run(
            *(word.format(*names.values(), **names) for word in words.split()), ends=range(12)
        )
        yield f"\n== {words}\n{ran.out}{ran.err}".encode()


@pytest.mark.slow
def test_no_screen_holds_a_part_of_a_secret(state: State) -> None:
    """Of lists, figures, searches, answers and checks; of one session; briefs, by hooks, too."""
    with state.home.process() as run:
        parts = [*printed(run, *COMMANDS)]
        for uid in state.some:
            parts += printed(run, *OF_ONE, uid=uid)
        folders = {row["cwd"] for row in json.loads(run("ls", "-n", "999", "--json").out)}
        for folder in sorted(folder for folder in folders if folder)[::6]:
            parts += printed(run, "brief {}", "brief {} --json", folder=folder)
            asked = json.dumps({"cwd": folder, "session_id": "new", "hook_event_name": HOOK})
            parts.append(run("brief", "--hook", "claude", typed=asked).out.encode())
    assert {} == state.leaks(parts)


@pytest.mark.slow
def test_no_redacted_export_or_share_file_holds_a_part_of_a_secret(state: State) -> None:
    """In any form; where no log is left an export is redacted anyway."""
    redacted = () if state.name == "imported" else ("--redacted",)
    with state.home.process() as run:
        parts: list[bytes] = []
        for uid in state.some:
            for form in FORMS:
                more = ("--content",) if form == "otlp" else ()
                ran = run("export", uid, "--as", form, *redacted, *more, ends=range(12))
                parts.append(f"\n== {form}\n{ran.out}{ran.err}".encode())
    files = [path.read_bytes() for path in (state.data.folder / "files").iterdir()]

    assert {} == state.leaks([*parts, *files])


@pytest.mark.slow
def test_what_works_on_originals_is_known(soaked: Soaked, tmp_path: Path) -> None:
    """Each of these commands prints secrets of a log: whatever else does so is a mistake."""
    state = State(soaked, "stored", tmp_path)
    log = next(path for path in soaked.user.glob(".claude/projects/*lumen/*.jsonl"))
    with state.home.process() as run:
        leaking = {
            words
            for words in ORIGINALS
            if soaked.secrets.parts_in(printed(run, words, uid=f"claude:{log.stem}", path=log))
        }

    assert {*ORIGINALS} == leaking


# -- over HTTP, and to agents ----------------------------------------------------------------

PAGES: Final = (
    *("/", "/sessions", "/sessions?q=tides", "/costs", "/year", "/projects", "/patterns"),
    *("/store", "/suggest?q=ti", "/api/now", "/api/projects", "/api/sessions?limit=500"),
    *("/api/search?q=tides", "/api/search?q=REDACTED&limit=99", "/api/ask?q=what+was+decided"),
    *("/api/digests", "/api/signals", "/api/patterns", "/api/costs?by=session", "/api/work"),
    *("/api/costs?by=model", "/api/plan", "/api/store", "/nowhere/ghp"),
)
OF_ONE_PAGE: Final = (
    *("/sessions/{}", "/sessions/{}?end=1", "/sessions/{}/find?q=ghp", "/sessions/{}/rows"),
    *("/api/sessions/{}", "/api/sessions/{}/events", "/api/sessions/{}/chain"),
    *("/api/sessions/{}/messages", "/api/sessions/{}/digest"),
    *(f"/sessions/{{}}/export/{form}" for form in ("markdown", "html", "jsonl", "messages")),
)
STREAMS: Final = ("/api/live", "/api/sessions/{}/live")
LINKS: Final = re.compile(rb'(?:href|hx-get|data-[a-z-]+)="(/[^"#]+)')
FEW: Final = 4
"""Links of one kind that are followed from the page of a session."""
LISTEN_S: Final = 0.3


class Served:
    """A server in a process of its own: its answers, its streams and its log."""

    def __init__(self, home: Home) -> None:
        program = "from thence.cli import main; main()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, "serve", "--port=0", "--no-open", "--token", "--json"],
            env=home.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        answer = json.loads(self._process.stdout.readline())
        self._port = urlsplit(answer["url"]).port
        self._headers = {"Authorization": f"Bearer {answer['token']}"}

    def ask(self, path: str, seconds: float = 60) -> bytes:
        """Return what is answered; of a stream what comes in some time."""
        link = http.client.HTTPConnection("127.0.0.1", self._port, timeout=seconds)
        link.request("GET", path, headers=self._headers)
        answer = link.getresponse()
        body = b""
        with contextlib.suppress(TimeoutError):
            while piece := answer.read1(1 << 20):
                body += piece
        link.close()
        return f"\n== {path}\n{answer.status} {answer.headers}\n".encode() + body

    def end(self) -> bytes:
        """Stop it; what it printed meanwhile."""
        self._process.terminate()
        out, err = self._process.communicate(timeout=60)
        return b"== log\n" + out + err


def kind_of(link: str, uid: str) -> str:
    """Return what a link leads to, whichever event or session it is of."""
    return re.sub(r"[^/?&=]*\d[^/?&=]*|%[^/?&=]*", "", link.replace(uid, ""))


def pages(served: Served, uid: str) -> Doors:
    """Yield the pages and answers of a session, and those that its page leads to."""
    name = quote(uid, safe="")
    bodies = [served.ask(path.format(name)) for path in OF_ONE_PAGE]
    yield from bodies
    events = json.loads(bodies[OF_ONE_PAGE.index("/api/sessions/{}/events")].split(b"\n\n", 1)[1])
    for event in events.get("events", [])[:: max(1, len(events.get("events", [])) // FEW)]:
        own = quote(str(event["event_id"]), safe="")
        for path in (f"/api/sessions/{name}/events/{own}", f"/sessions/{name}/event/{own}"):
            yield served.ask(path)
        yield served.ask(f"/api/sessions/{name}/events/{own}/raw")
        yield served.ask(f"/sessions/{name}/text/{own}")
    links: dict[str, list[str]] = {}
    for link in dict.fromkeys(LINKS.findall(bodies[0])):
        path = unescape(link.decode())
        if urlsplit(path).path.endswith("/live"):  # a stream, which has no end
            continue
        links.setdefault(kind_of(path, name), []).append(path)
    for several in links.values():
        yield from map(served.ask, several[:FEW])


@pytest.mark.slow
def test_no_answer_or_log_of_the_server_holds_a_part_of_a_secret(state: State) -> None:
    """Pages, what they lead to, the API down to raw payloads, streams, and what it logs."""
    served = Served(state.home)
    try:
        parts = [served.ask(path) for path in PAGES]
        for uid in state.some:
            parts += pages(served, uid)
        streams = [STREAMS[0], *(STREAMS[1].format(quote(uid, safe="")) for uid in state.some[::4])]
        parts += [served.ask(path, LISTEN_S) for path in streams]
    finally:
        parts.append(served.end())

    assert {} == state.leaks(parts)


@pytest.mark.slow
def test_no_answer_to_an_agent_holds_a_part_of_a_secret(state: State) -> None:
    """Over MCP, whatever it asks for."""
    from thence.cli.sample_machine import Homes

    async def talk(client: Client) -> list[str]:
        asked: list[tuple[str, dict[str, Any]]] = [
            *(("search", {"query": query, "limit": 20}) for query in ("tides", "REDACTED", "ghp")),
            *(("todos", {}), ("costs", {"by": "session"}), ("costs", {"by": "model"})),
            *(("files", {"path": "a.py"}), ("seen_error", {"text": "no such file"})),
            ("recall", {"question": "what was decided about the tides"}),
            *(("outline", {"session": uid}) for uid in state.some),
        ]
        answers = [await client.call_tool(name, arguments) for name, arguments in asked]
        return [repr(block) for answer in answers for block in answer.content]

    parts = [text.encode() for text in over_stdio(Homes(state.home.path.parent), talk)]

    assert {} == state.leaks(parts)


# -- what is sent ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("objects", [False, True], ids=["database", "objects"])
def test_nothing_that_is_pushed_holds_a_part_of_a_secret(
    state: State, postgres: Cluster, tmp_path: Path, objects: bool
) -> None:
    """No column of any table, no file of the server and no object."""
    database = postgres.database()
    url = postgres.url(database, tenant="team", machine="m")
    shelf = tmp_path / "objects"
    state.home.run("store", "push", f"{url}#objects=file://{shelf}" if objects else url, ends=FINE)
    with closing(Postgres(url)) as store:
        rows = [row for table in TABLES for row in store._every(f"SELECT * FROM {table}")]
        parts = [part for row in rows for value in row for part in both(value)]
    postgres.sql("CHECKPOINT")
    [(number,)] = postgres.sql(f"SELECT oid FROM pg_database WHERE datname='{database}'")
    files = (postgres.data / "base" / f"{number}").iterdir()
    parts += [path.read_bytes() for path in files if path.is_file()]
    parts += bytes_of(shelf)

    assert {} == state.leaks(parts)


@pytest.mark.slow
def test_no_bundle_of_a_sync_holds_a_part_of_a_secret(state: State, tmp_path: Path) -> None:
    """Opened with the key of the sync."""
    place = tmp_path / "place"
    place.mkdir()
    with state.home.process() as run:
        lines = run("sync", "init", place, "--name", "alpha").lines
        run("sync")
    key = Key(secret_in(next(line.strip() for line in lines if line.startswith("  "))))
    bodies = [key.decrypted(path.read_bytes()) for path in place.rglob("*") if path.is_file()]
    parts = [unpacked(body) for body in bodies if body is not None]

    assert {} == state.leaks(parts)


@pytest.mark.slow
def test_no_parquet_file_holds_a_part_of_a_secret(state: State, tmp_path: Path) -> None:
    """Whatever the column, read back as anybody reads it; nor does a query in SQL."""
    import duckdb

    lake = tmp_path / "lake"
    parts: list[bytes] = []
    with state.home.process() as run:
        run("export", "parquet", lake, ends=FINE)
        for path in (path for path in lake.rglob("*") if path.is_file()):
            parts += [str(path.relative_to(lake)).encode(), path.read_bytes()]
            if path.suffix == ".parquet":
                query = "SELECT * FROM read_parquet(?)"
                rows = duckdb.connect().execute(query, [str(path)]).fetchall()
                parts.append(repr(rows).encode())
        parts += printed(run, "sql SELECT%20*%20FROM%20sessions")

    assert {} == state.leaks(parts)


RULE: Final = '[[session_memory.redact]]\nname = "ticket"\npattern = "TICKET-[0-9]{6}"\n'
"""A rule of the user's own: by other rules sessions are digested again."""


@pytest.mark.slow
def test_nothing_that_is_posted_holds_a_part_of_a_secret(state: State) -> None:
    """Spans to a collector; digests and notes to a hub."""
    with posts.listening() as (url, posted):
        config = state.home.path / "config.toml"
        lines = config.read_text() if config.exists() else ""
        hub = f'[session_memory]\nhub = "{url}"\nhub_digests = true\n{RULE}'
        config.write_text(hub + lines)
        with state.home.process() as run:
            for uid in state.some:
                run("export", uid, "--as", "otlp", "--content", "--to", url, ends=range(12))
            run("note", f"Keep {state.data.secrets.known[4]}.")
            run("sweep", ends=FINE)

    assert {} == state.leaks(post.body for post in posted)
    assert any(b'"type": "digest"' in post.body for post in posted) is (state.name != "removed")
