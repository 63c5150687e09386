"""Live: what is written reaches who listens; who is late, comes back or is slow loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.agents.transcripts import Script
from tests.serve.conftest import LONG, House, built
from tests.serve.streams import Listener
from thence.cli import nudge
from thence.cli.sample_machine import made_id
from thence.format import layout
from thence.journal import Journal
from thence.memory import nudges, sweeper, watching
from thence.memory.store import Filter
from thence.memory.watching import changes
from thence.serve import clients, live
from thence.serve.clients import Client, frame
from thence.serve.event_lines import EventLine

MAIN = made_id("clock-change")
UID = f"claude:{MAIN}"
STREAM = f"/api/sessions/{UID}/live"


@pytest.fixture
def listen(own_house: House) -> Iterator[Callable[..., Listener]]:
    """Open streams that are closed in the end."""
    opened: list[Listener] = []

    def listen(path: str = STREAM, **more: Any) -> Listener:
        opened.append(Listener(own_house, path, **more))
        return opened[-1]

    yield listen
    for listener in opened:
        listener.close()


def log_of(house: House) -> Path:
    """The file of the session that most tests write to."""
    return next(house.homes.claude.rglob(f"{MAIN}.jsonl"))


def say(house: House, *texts: str, path: Path | None = None) -> None:
    """Let the session go on: prompts, one after the other."""
    path = path or log_of(house)
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    last = [record for record in records if record.get("uuid")][-1]
    with path.open("a", encoding="utf-8") as file:
        for text in texts:
            message = {"role": "user", "content": text}
            record = {**last, "uuid": str(uuid4()), "parentUuid": last["uuid"], "type": "user"}
            last = {**record, "message": message}
            last.pop("requestId", None)
            file.write(json.dumps(last) + "\n")


def line_now(house: House, uid: str = UID) -> list[int]:
    """The line of a session as the store has it."""
    return EventLine(house.context.open_session(house.context.row(uid)).session).ids


# -- late joiners ---------------------------------------------------------------------------


@pytest.mark.slow
def test_who_comes_late_gets_the_line_and_then_what_comes(
    own_house: House, listen: Callable[..., Listener]
) -> None:
    """No discarded branch, no books, none of a subagent; then, once, what is written."""
    client = listen()
    ready = client.wait_for("ready")
    session = own_house.context.open_session(own_house.context.row(UID)).session
    line = [e.event_id for e in session.events_along(session.graph.chain(boundaries=False))]

    assert (line, len(line)) == (client.line, ready.data["events"])
    assert {"live"} == {message.data["state"] for message in client.of("event")}

    say(own_house, "and the lighthouse?")
    event = client.wait_for("event", len(line) + 1)

    assert "and the lighthouse?" == event.data["payload"]["text"]
    assert line_now(own_house) == client.line


@pytest.mark.slow
def test_replays_of_all_sessions_have_their_pairs_whole(house: House) -> None:
    """Whole, and of the last few events: no result without its call, nothing dead or internal."""
    for row in house.store.sessions():
        for last in ("", "?last=3"):
            client = Listener(house, f"/api/sessions/{row.session.session_uid}/live{last}")
            client.wait_for("ready")
            client.close()
            shown = [message.data for message in client.of("event")]
            calls = {event["call"] for event in shown if event["kind"] == "tool_call"}
            results = {event["call"] for event in shown if event["kind"] == "tool_result"}
            late = [event for event in shown if event["kind"] in ("user_msg", "assistant_msg")]

            assert results <= calls
            assert {event["state"] for event in shown} <= {"live", "replayed", "orphaned"}
            if row.turn != "done" and not late:
                assert calls == results


@pytest.mark.slow
def test_an_open_call_is_pending_until_its_result_is_there(
    own_house: House, listen: Callable[..., Listener]
) -> None:
    """It is told apart, then sent together with its result."""
    with Journal(own_house.homes.thence).create(cwd=own_house.homes.work) as session:
        session.record("user", {"role": "user", "content": "build it"})
        call = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "make"}}
        session.record("assistant", {"role": "assistant", "content": [call]})
        uid = f"thence:{session.id}"
        wait_until(lambda: bool(list(own_house.store.sessions(_only(uid)))))
        client = listen(f"/api/sessions/{uid}/live")
        client.wait_for("ready")
        waiting = client.wait_for("pending").data

        assert [("tool_call", {"command": "make"})] == [(e["kind"], e["payload"]) for e in waiting]
        assert ["user_msg"] == [message.data["kind"] for message in client.of("event")]

        done = {"type": "tool_result", "tool_use_id": "c1", "content": "built"}
        session.record("user", {"role": "user", "content": [done]})
        client.wait_for("event", 3)

        assert ["user_msg", "tool_call", "tool_result"] == [
            message.data["kind"] for message in client.of("event")
        ]
        client.wait(lambda listener: listener.of("pending")[-1].data == [])


def _only(uid: str) -> Any:
    from thence.memory.store import Filter

    return Filter(uids=(uid,))


def wait_until(fits: Callable[[], bool]) -> None:
    """Look again and again, for long."""
    until = time.monotonic() + LONG
    while not fits():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.slow
def test_what_is_written_while_watching_begins_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long that takes: the first sweep waits until what follows it will be told."""
    house = built(tmp_path)

    def slow(*folders: Any, **options: Any) -> Iterator[set[Path]]:
        time.sleep(1.0)
        say(house, "said meanwhile")
        return changes(*folders, **options)

    monkeypatch.setattr(sweeper, "changes", slow)
    before = house.context.row(UID).events
    with house.serving():
        wait_until(lambda: house.context.row(UID).events > before)
    house.close()


# -- coming back ----------------------------------------------------------------------------


@pytest.mark.slow
def test_who_comes_back_gets_exactly_what_was_missed(
    own_house: House, listen: Callable[..., Listener]
) -> None:
    """From wherever it stopped; what it has is not sent again."""
    first = listen()
    first.wait_for("ready")
    first.close()
    for stopped in first.of("event")[::7]:
        say(own_house, "meanwhile")
        wait_until(lambda: own_house.context.row(UID).change > 1)

        again = listen(after=stopped.mark)
        again.wait_for("ready")
        have = first.line[: first.heard.index(stopped)]  # `start` stands before the first

        assert line_now(own_house) == have + again.line
        assert [] == again.of("start")


@pytest.mark.slow
def test_a_server_that_was_started_anew_goes_on(tmp_path: Path) -> None:
    """What was written while it was down is there; nothing is missing, nothing comes twice."""
    house = built(tmp_path)
    port = house.port
    with house.serving():
        client, everywhere = Listener(house, STREAM), Listener(house, "/api/live")
        client.wait_for("ready")
        everywhere.wait_for("ready")
        say(house, "before it ends")
        client.wait(lambda listener: "before it ends" in _texts(listener))
        everywhere.wait_for("changed")
    client.close()
    everywhere.close()
    house.close()
    say(house, "while it is down", "and once more")
    house = House(tmp_path, port)
    with house.serving():
        again = Listener(house, STREAM, after=client.last_id)
        also = Listener(house, "/api/live", after=everywhere.last_id)
        again.wait(lambda listener: "and once more" in _texts(listener))
        also.wait_for("changed")
        say(house, "after it began")
        again.wait(lambda listener: "after it began" in _texts(listener))
        also.wait_for("changed", 2)
        again.close()
        also.close()
        line = line_now(house)
    house.close()

    assert ["while it is down", "and once more", "after it began"] == _texts(again)
    assert line == client.line + again.line
    assert [] == again.of("start") + again.of("rewound")
    assert {UID} == {message.data["session"]["session_uid"] for message in also.of("changed")}


def _texts(client: Listener) -> list[str]:
    prompts = [message.data for message in client.of("event") if message.data["kind"] == "user_msg"]
    return [prompt["payload"]["text"] for prompt in prompts if isinstance(prompt["payload"], dict)]


@pytest.mark.slow
def test_a_server_that_starts_while_another_sweeps_catches_up_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers meanwhile, and what was written before it began is published in the end."""
    monkeypatch.setattr(sweeper, "LOCK_TIMEOUT_S", 0.0)
    monkeypatch.setattr(sweeper, "TICK_S", 0.1)
    house = built(tmp_path)
    say(house, "before it began")
    other = contextlib.ExitStack()
    other.enter_context(house.store.sweeping())
    with house.serving():
        client = Listener(house, STREAM)
        client.wait_for("ready")
        early = _texts(client)
        other.close()
        client.wait(lambda listener: "before it began" in _texts(listener))
        client.close()
    house.close()

    assert "before it began" not in early


@pytest.mark.slow
def test_a_client_with_a_mark_that_is_none_begins_anew(
    own_house: House, listen: Callable[..., Listener]
) -> None:
    """Whatever it says: it is told so, and gets all of it."""
    for odd in ("", "x", "0" * 13 + "-9-00000000", "0" * 13 + "-0-00000000"):
        client = listen(after=odd)
        client.wait_for("ready")

        assert line_now(own_house) == client.line


@pytest.mark.slow
def test_a_page_says_where_it_stands_in_its_first_question(
    own_house: House, listen: Callable[..., Listener]
) -> None:
    """A browser cannot send the header the first time; the mark of what it shows is enough."""
    session = own_house.context.open_session(own_house.context.row(UID)).session
    mark = EventLine(session).mark()
    client = listen(f"{STREAM}?after={mark}")
    client.wait_for("ready")

    assert [] == client.of("event")


# -- what happens to sessions ---------------------------------------------------------------


def test_a_line_that_is_rewound_is_rewound_at_the_client(
    own_house: House, listen: Callable[..., Listener]
) -> None:
    """Who is there is told how much holds still; who comes back from the discarded branch, too."""
    with Journal(own_house.homes.thence).create(cwd=own_house.homes.work) as session:
        first = session.record("user", {"role": "user", "content": "one"})
        session.record("user", {"role": "user", "content": "two"})
        session.record("user", {"role": "user", "content": "three"})
        uid = f"thence:{session.id}"
        wait_until(lambda: any(r.events > 3 for r in own_house.store.sessions(_only(uid))))
        client = listen(f"/api/sessions/{uid}/live")
        client.wait_for("ready")
        gone = client.last_id

        session.rewind(first.uuid)
        session.record("user", {"role": "user", "content": "another two"})
        client.wait(lambda listener: "another two" in _texts(listener))
        back = listen(f"/api/sessions/{uid}/live", after=gone)
        back.wait_for("ready")

    assert 1 == client.of("rewound")[-1].data["count"]
    assert line_now(own_house, uid) == client.line
    assert ["another two"] == _texts(back)
    assert [1] == [message.data["count"] for message in back.of("rewound")]


@pytest.mark.slow
def test_a_subagent_that_goes_on_has_its_own_event(
    own_house: House, listen: Callable[..., Listener]
) -> None:
    """The line of its parent does not move."""
    client = listen()
    client.wait_for("ready")
    before = client.wait_for("agent").data
    path = next(own_house.homes.claude.rglob("agent-*.jsonl"))

    say(own_house, "look there as well", path=path)
    agent = client.wait_for("agent", 2).data

    nudge = client.wait_for("agentSessionChanged", 2).data
    cwd = next(own_house.store.sessions(Filter(uids=(agent["session_uid"],)))).session.cwd or ""

    assert {**before, "events": before["events"] + 1} == agent
    assert {"projectId": layout.project_id(cwd), "agentSessionId": agent["agent"]} == nudge
    assert line_now(own_house) == client.line


@pytest.mark.slow
def test_a_subagent_with_a_session_of_its_own_is_told_to_its_parent(
    own_house: House, listen: Callable[..., Listener]
) -> None:
    """Its session is named, so that it can be followed."""
    child = next(
        row for row in own_house.store.sessions() if any(e.link == "subagent" for e in row.edges)
    )
    parent = f"{child.session.flavor}:{child.edges[0].session}"
    client = listen(f"/api/sessions/{parent}/live")
    client.wait_for("ready")
    path = Path(child.session.source_path or "")
    last = path.read_text(encoding="utf-8").splitlines()[-1]

    with path.open("a", encoding="utf-8") as file:
        file.write(last + "\n")
    agent = client.wait_for("agent").data

    assert child.session.session_uid == agent["session_uid"]


@pytest.mark.slow
def test_all_sessions_tell_when_they_change_and_who_waits(
    own_house: House, listen: Callable[..., Listener]
) -> None:
    """A new session, one that went on, one that its agent says is waiting for its user."""
    client = listen("/api/live")
    client.wait_for("standing")

    say(own_house, "one more")
    changed = client.wait_for("changed").data["session"]
    registry = own_house.homes.claude / "sessions"
    registry.mkdir(exist_ok=True)
    process = {
        "sessionId": MAIN,
        "pid": os.getpid(),
        "status": "waiting",
        "waitingFor": "your word",
    }
    (registry / "1.json").write_text(json.dumps(process), encoding="utf-8")
    client.wait(lambda listener: listener.of("standing")[-1].data["waiting"] == [UID])

    assert UID == changed["session_uid"]
    assert {UID: "your word"} == client.of("standing")[-1].data["waiting_for"]


@pytest.mark.slow
def test_what_comes_to_rest_is_digested(own_house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at every line, which would cost more than the lines; soon after the last one."""
    monkeypatch.setattr(watching, "IDLE_BEFORE_DIGEST_S", 0.1)
    say(own_house, "one more")

    wait_until(lambda: own_house.context.row(UID).change > 1)
    wait_until(lambda: own_house.context.row(UID).session.analyzed_at is not None)


@pytest.mark.slow
def test_a_sweep_that_fails_is_not_the_last(
    own_house: House,
    listen: Callable[..., Listener],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is logged, and what is written next is published with the rest."""
    client = listen()
    client.wait_for("ready")
    failed = list[int]()

    def once(*what: Any, **options: Any) -> Any:
        if not failed:
            failed.append(1)
            raise RuntimeError("no sweep today")
        return own_house.sweep_home(*what, **options)

    assert own_house.running is not None
    monkeypatch.setattr(own_house.running.hub.sweeper, "_sweep_home", once)
    with caplog.at_level(logging.ERROR):
        say(own_house, "unheard")
        wait_until(lambda: bool(failed))
        say(own_house, "heard")
        client.wait(lambda listener: "heard" in _texts(listener))

    assert ["unheard", "heard"] == _texts(client)[-2:]
    assert "no sweep today" in caplog.text


def test_a_nudge_of_a_hook_is_swept_at_once(own_house: House, tmp_path: Path) -> None:
    """Though the log lies where nobody watches; a hook that names no file means a known session."""
    script = Script("0000000f-0000-4000-8000-000000000000", "n-")
    script.user("out of sight")
    log = tmp_path / "elsewhere" / "projects" / "-home-dev-reeds" / f"{script.session}.jsonl"
    log.parent.mkdir(parents=True)
    log.write_bytes(script.data)
    uid, fields = f"claude:{script.session}", {"session_id": script.session}
    home, queue = own_house.homes.thence, own_house.homes.thence / nudges.FOLDER

    nudge.leave("claude", str(home), json.dumps({**fields, "transcript_path": str(log)}))
    wait_until(lambda: bool(list(own_house.store.sessions(_only(uid)))))
    events = own_house.context.row(uid).events
    script.say("heard of all the same")
    log.write_bytes(script.data)
    nudge.leave("claude", str(home), json.dumps(fields))
    wait_until(lambda: own_house.context.row(uid).events > events)
    wait_until(lambda: not list(queue.iterdir()))

    assert ["claude"] == [path.name for path in (home / nudges.LAST_NUDGES_FOLDER).iterdir()]


# -- clients --------------------------------------------------------------------------------


class Clock:
    """The clock of a loop, as far as the hub looks at it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.due: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []

    def time(self) -> float:
        """The time."""
        return self.now

    def call_at(self, when: float, call: Callable[..., None], *arguments: Any) -> None:
        """Note what is to be called."""
        self.due.append((when, call, arguments))

    def passes(self, seconds: float) -> None:
        """Let time pass, and call what is due."""
        self.now += seconds
        due, self.due = self.due, [timer for timer in self.due if timer[0] > self.now]
        for when, call, arguments in due:
            if when <= self.now:
                call(*arguments)


def test_what_comes_quicker_than_it_can_be_written_is_gathered(house: House) -> None:
    """The first goes out at once; the more clients there are, the longer the next one waits."""
    clock, hub = Clock(), live.Hub(house.context)
    heard: list[bytes] = []

    async def write(data: bytes) -> None:
        heard.append(data)

    async def delivered() -> list[set[bytes]]:
        there = [Client() for _ in range(100)]
        tasks = [asyncio.create_task(client.send(write)) for client in there]
        await asyncio.sleep(0)
        gap, out = len(there) / live.MAX_WRITES_PER_S, list[set[bytes]]()
        for seconds in (0, gap / 2, gap / 3, gap / 3):
            hub._deliver(clock, there, [b"x"])  # type: ignore[arg-type]
            clock.passes(seconds)
            out.append(set(heard))
            heard.clear()
        for client in there:
            client.close()
        await asyncio.gather(*tasks)
        return out

    assert [{b"x"}, set(), set(), {b"xxx"}] == asyncio.run(delivered())


@pytest.mark.slow
def test_a_slow_client_is_let_go_and_finds_the_rest(
    own_house: House, listen: Callable[..., Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads nothing for a while; the others are served all the same."""
    monkeypatch.setattr(clients, "MAX_PENDING_BYTES", 400_000)
    monkeypatch.setattr(live, "SEND_TIMEOUT_S", 10 * LONG)  # how long this takes says nothing
    quick = listen(f"{STREAM}?last=1")
    quick.wait_for("ready")
    slow = socket.create_connection(("127.0.0.1", own_house.port), timeout=LONG)
    asked = f"GET {STREAM}?last=1 HTTP/1.1\r\nHost: 127.0.0.1:{own_house.port}\r\n"
    asked += "Connection: close\r\n"  # else it is open for five seconds more
    slow.sendall(f"{asked}Authorization: Bearer {own_house.gate.token}\r\n\r\n".encode())
    wait_until(lambda: _followers(own_house) == 2)
    hub, sent = _hub(own_house), 0
    while _lost(own_house) == 0:
        hub._send(hub._streams[UID, None, False].clients, [frame("large", "x" * 100_000)])
        sent += 1
        quick.wait_for("large", sent)
        assert sent < 300
    say(own_house, "for those who are here")
    quick.wait(lambda listener: "for those who are here" in _texts(listener))
    data = b""
    while piece := slow.recv(1 << 20):
        data += piece
    slow.close()
    marks = [line[4:] for line in data.decode().splitlines() if line.startswith("id: ")]
    back = listen(after=marks[-1])
    back.wait_for("ready")

    assert b"event: lost" in data
    assert ["for those who are here"] == _texts(back)
    assert [] == back.of("start")


def _followers(house: House) -> int:
    return len(_hub(house)._clients)


def _lost(house: House) -> int:
    return sum(client.lost for client in list(_hub(house)._clients))


def _hub(house: House) -> live.Hub:
    assert house.running is not None
    return house.running.hub


@pytest.mark.slow
def test_silence_is_broken_by_a_beat(
    own_house: House, listen: Callable[..., Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a client can tell a quiet server from one that is gone."""
    monkeypatch.setattr(live, "HEARTBEAT_S", 0.05)
    client = listen("/api/live")
    client.wait_for("ready")

    wait_until(lambda: client.beats > 3)


@pytest.mark.slow
def test_nobody_is_looked_for_who_has_gone(
    own_house: House, listen: Callable[..., Listener]
) -> None:
    """When the last client of a session has left, nothing of it is kept."""
    first, second = listen(), listen()
    for client in (first, second):
        client.wait_for("ready")
    first.close()
    wait_until(lambda: _followers(own_house) == 1)
    still = dict(_hub(own_house)._streams)
    second.close()
    wait_until(lambda: _followers(own_house) == 0)

    assert ([(UID, None, False)], {}) == (list(still), _hub(own_house)._streams)


@pytest.mark.slow
def test_too_many_streams_are_refused(
    own_house: House, listen: Callable[..., Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a word, and the ones that are open stay."""
    monkeypatch.setattr(live, "MAX_CLIENTS", 1)
    client = listen()
    client.wait_for("ready")

    assert 503 == own_house.ask("/api/live").status
    assert not client.ended


@pytest.mark.parametrize(
    ("path", "status"),
    [("/api/sessions/nobody/live", 404), (f"{STREAM}?last=many", 400), (f"{STREAM}?last=-1", 400)],
)
def test_an_odd_stream_is_refused_before_it_begins(house: House, path: str, status: int) -> None:
    """As any other question."""
    answer = house.ask(path)

    assert (status, "application/problem+json") == (answer.status, answer.headers["content-type"])
