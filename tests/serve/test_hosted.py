"""Sessions that clients write into: tabs, branches, conflicts, timers; nothing is ever lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve.conftest import Answer, House, empty
from tests.serve.streams import Listener
from tests.serve.test_api import tried
from thence.agents.sessions import load
from thence.cli.sample_machine import made_id
from thence.format.repair import NO_RESULT_YET
from thence.journal import Journal
from thence.serve.hosted import HostedSessions


class Ticks:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now


class Tab:
    """A client that writes: it remembers the last event that it saw."""

    def __init__(self, house: House, uid: str, tip: str | None) -> None:
        self._house = house
        self.uid = uid
        self.tip = tip

    def post(self, kind: str, **more: Any) -> Answer:
        """Send one event, as it is."""
        body = {"type": kind, **more}
        return self._house.ask(f"/api/sessions/{self.uid}/events", method="POST", body=body)

    def say(self, text: str, kind: str = "user", **more: Any) -> Any:
        """Say something after what was seen last."""
        payload = {"content": text, **more.pop("payload", {})}
        answer = self.post(kind, payload=payload, expected_tip=self.tip, **more)
        assert 201 == answer.status, answer.body
        self.tip = answer.json["tip"]
        return answer.json


@pytest.fixture
def ticks() -> Ticks:
    """The clock of the timers."""
    return Ticks()


@pytest.fixture
def hosting(tmp_path: Path, ticks: Ticks) -> Iterator[House]:
    """A server whose timers do as the test says."""
    house = empty(tmp_path)
    house.context.ticks = ticks
    with house.serving():
        yield house
    house.close()


@pytest.fixture
def listen(hosting: House) -> Iterator[Callable[[str], Listener]]:
    """Open streams that are closed in the end."""
    opened: list[Listener] = []

    def listen(path: str) -> Listener:
        opened.append(Listener(hosting, path))
        return opened[-1]

    yield listen
    for listener in opened:
        listener.close()


def begun(house: House) -> Tab:
    """A new session, and a tab on it."""
    body = {"cwd": str(house.homes.work), "model": "m-1"}
    answer = house.ask("/api/sessions", method="POST", body=body)
    assert 201 == answer.status, answer.body
    return Tab(house, answer.json["session_uid"], answer.json["tip"])


def hosted(house: House) -> HostedSessions:
    """The sessions that are open at the server."""
    assert house.running is not None
    return house.running.hosted


def log_of(house: House, uid: str) -> Path:
    """The file of a session."""
    return next(house.homes.thence.rglob(f"{uid.partition(':')[2]}.jsonl"))


def texts(house: House, uid: str) -> list[str]:
    """All that was ever said in a session, on whatever branch."""
    events = load(log_of(house, uid)).graph.events
    payloads = [event.payload for event in events if event.kind in ("user_msg", "assistant_msg")]
    return [payload["text"] for payload in payloads if isinstance(payload, dict)]


# -- writing --------------------------------------------------------------------------------


def test_what_is_posted_is_in_the_log_and_on_the_stream(
    hosting: House, listen: Callable[[str], Listener]
) -> None:
    """A new session can be followed at once; events come in the order in which they were sent."""
    tab = begun(hosting)
    client = listen(f"/api/sessions/{tab.uid}/live")
    client.wait_for("ready")

    tab.say("why is it red?")
    tab.say("one test", "assistant", payload={"stop_reason": "end_turn"})
    client.wait_for("event", 2)

    assert ["why is it red?", "one test"] == texts(hosting, tab.uid)
    assert ["user_msg", "assistant_msg"] == [message.data["kind"] for message in client.of("event")]
    assert tab.tip == client.of("event")[-1].data["native_id"]


@pytest.mark.slow
def test_two_tabs_on_one_tip_become_two_branches(
    hosting: House, listen: Callable[[str], Listener]
) -> None:
    """Neither loses a word, and each may follow its own branch."""
    left = begun(hosting)
    left.say("start")
    right = Tab(hosting, left.uid, left.tip)

    first = left.say("left")
    second = right.say("right")
    for number in range(3):
        left.say(f"left {number}")
        right.say(f"right {number}")
    lefts = listen(f"/api/sessions/{left.uid}/live?branch={first['uuid']}")
    rights = listen(f"/api/sessions/{left.uid}/live?branch={second['uuid']}")
    left.say("left at last")
    right.say("right at last")
    lefts.wait(lambda c: "left at last" in _heard_texts(c))
    rights.wait(lambda c: "right at last" in _heard_texts(c))

    numbers = [f"{n}" for n in range(3)] + ["at last"]
    assert (False, True) == (first["branched"], second["branched"])
    assert ["start", "left", *(f"left {n}" for n in numbers)] == _heard_texts(lefts)
    assert ["start", "right", *(f"right {n}" for n in numbers)] == _heard_texts(rights)
    assert 11 == len(texts(hosting, left.uid))


def _heard_texts(client: Listener) -> list[str]:
    return [message.data["payload"]["text"] for message in client.of("event")]


@pytest.mark.slow
def test_a_stale_tip_is_a_conflict_for_who_asks_for_it(hosting: House) -> None:
    """Nothing is written; with the tip of now it is."""
    first = begun(hosting)
    first.say("start")
    second = Tab(hosting, first.uid, first.tip)
    first.say("went on")

    refused = second.post(
        "user", payload={"content": "late"}, expected_tip=second.tip, on_stale="conflict"
    )
    before = texts(hosting, first.uid)
    second.tip = first.tip
    second.say("late", on_stale="conflict")

    assert (409, "application/problem+json") == (refused.status, refused.headers["content-type"])
    assert refused.json["hint"]
    assert ["start", "went on"] == before
    assert ["start", "went on", "late"] == texts(hosting, first.uid)


@pytest.mark.slow
def test_an_event_that_is_sent_again_is_there_once(hosting: House) -> None:
    """A client that did not hear the answer may ask again."""
    tab = begun(hosting)

    answers = [
        tab.post("user", payload={"content": "once"}, uuid="my-own-id").json["uuid"]
        for _ in range(3)
    ]

    assert ["my-own-id"] * 3 == answers
    assert ["once"] == texts(hosting, tab.uid)


@pytest.mark.slow
def test_a_session_is_gone_on_with_after_a_restart(tmp_path: Path) -> None:
    """By its id; what was said before is on the line, and no permission is."""
    house = empty(tmp_path)
    with house.serving():
        tab = begun(house)
        tab.say("before")
        tab.say("done", "assistant", payload={"stop_reason": "end_turn"})
    house.close()
    house = House(tmp_path)
    with house.serving():
        again = Tab(house, tab.uid, tab.tip)
        again.say("after")
        open_session = hosted(house)._open(tab.uid)

        assert ["before", "done", "after"] == texts(house, tab.uid)
        assert 0 == len(open_session.session.permissions)
        answer = house.ask(f"/api/sessions/{tab.uid}/messages").json
        assert ["user", "assistant", "user"] == [message["role"] for message in answer["messages"]]
    house.close()


@pytest.mark.slow
def test_a_session_that_another_program_writes_is_branched_not_broken(hosting: House) -> None:
    """What a journal added meanwhile stays; the tab's event hangs where the tab saw the end."""
    tab = begun(hosting)
    tab.say("from the page")
    journal = Journal(hosting.homes.thence)
    with journal.resume(tab.uid.partition(":")[2], mode="continue") as session:
        session.record("user", {"role": "user", "content": "from a program"})

    refused = tab.post("user", payload={"content": "x"}, expected_tip=tab.tip, on_stale="conflict")
    tab.say("from the page again")

    assert 409 == refused.status
    assert ["from the page", "from a program", "from the page again"] == texts(hosting, tab.uid)


@pytest.mark.slow
@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"type": "user", "payload": {}}, 400),
        ({"type": "user", "payload": {"content": 7}}, 400),
        ({"type": "header", "payload": {}}, 400),
        ({"type": "boundary", "payload": {}}, 400),
        ({"type": "tip", "payload": {"to": "x"}}, 400),
        ({"type": "permission_granted", "payload": {}}, 400),
        ({"type": "user", "payload": {"content": "x"}, "uuid": "../../x"}, 400),
        ({"type": "user", "payload": {"content": "x"}, "expected_tip": "nobody"}, 404),
        ({"type": "user", "payload": {"content": "x"}, "surprise": 1}, 400),
        ([], 400),
        ("x", 400),
    ],
)
def test_what_makes_no_sense_is_not_written(hosting: House, body: Any, status: int) -> None:
    """Books, permissions, odd ids, messages without words."""
    tab = begun(hosting)
    before = log_of(hosting, tab.uid).read_bytes()

    answer = hosting.ask(f"/api/sessions/{tab.uid}/events", method="POST", body=body)

    assert (status, "application/problem+json") == (answer.status, answer.headers["content-type"])
    assert before == log_of(hosting, tab.uid).read_bytes()


def test_sessions_of_other_agents_are_only_read(house: House) -> None:
    """Their files are as they were; a session that is not there is not made."""
    uid = f"claude:{made_id('clock-change')}"
    path = next(house.homes.claude.rglob(f"{made_id('clock-change')}.jsonl"))
    before = path.read_bytes()

    statuses = [
        Tab(house, name, None).post("user", payload={"content": "x"}).status
        for name in (uid, "thence:nobody", "nobody", "thence:..")
    ]

    assert [403, 404, 404, 404] == statuses
    assert before == path.read_bytes()


@pytest.mark.slow
def test_nothing_is_hosted_where_nothing_may_be_written(hosting: House) -> None:
    """Who switched persistence off gets a refusal."""
    hosting.context.writes = False

    assert 507 == hosting.ask("/api/sessions", method="POST", body={}).status


@pytest.mark.slow
def test_nothing_that_is_written_breaks_the_server(hosting: House) -> None:
    """Made-up bodies to every operation that writes: no 500."""
    tab = begun(hosting)
    tab.say("start")

    seen = tried(hosting, 10, "post")

    assert {"POST /api/sessions", "POST /api/sessions/{uid}/events"} <= seen.keys()
    assert 201 in seen["POST /api/sessions"]


# -- timers ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_call_that_nobody_approves_gets_a_synthetic_result(
    hosting: House, ticks: Ticks, listen: Callable[[str], Listener]
) -> None:
    """Not before its time; on the branch on which it was asked; seen by who follows."""
    tab = begun(hosting)
    tab.say("build it")
    call = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "make"}}
    asked = tab.post("assistant", payload={"content": [call]}, expected_tip=tab.tip).json
    tab.tip = asked["tip"]
    tab.post("waiting", payload={"waiting_for": "approval", "tool_use_id": "c1"})
    other = Tab(hosting, tab.uid, None)
    client = listen(f"/api/sessions/{tab.uid}/live?branch={asked['uuid']}")
    client.wait_for("ready")
    ticks.now += 299.0
    hosted(hosting).poll()

    assert [] == [
        message for message in client.of("event") if message.data["kind"] == "tool_result"
    ]
    meanwhile = hosting.ask(f"/api/sessions/{tab.uid}/messages").json["messages"][-1]

    assert NO_RESULT_YET == meanwhile["content"][0]["content"]

    other.tip = asked["tip"]
    other.say("something else meanwhile")
    ticks.now += 1.0
    hosted(hosting).poll()
    client.wait(lambda c: any(message.data["kind"] == "tool_result" for message in c.of("event")))
    result = next(
        message.data for message in client.of("event") if message.data["kind"] == "tool_result"
    )

    assert ("c1", asked["uuid"]) == (result["call"], _parent(hosting, tab.uid, result))
    (line,) = [line for line in _results(hosting, tab.uid) if b'"c1"' in line]
    assert b"nobody approved this call within 300 s; it was not run" in line


def _parent(house: House, uid: str, event: dict[str, Any]) -> str:
    session = load(log_of(house, uid)).graph
    return next(
        fact.node.parent or "" for fact in session.facts if fact.node.id == event["native_id"]
    )


def _results(house: House, uid: str) -> list[bytes]:
    lines = log_of(house, uid).read_bytes().splitlines()
    return [line for line in lines if b'"tool_result"' in line]


@pytest.mark.slow
def test_a_call_that_was_answered_gets_nothing_more(hosting: House, ticks: Ticks) -> None:
    """The user's answer came in time."""
    tab = begun(hosting)
    call = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {}}
    tab.tip = tab.post("assistant", payload={"content": [call]}).json["tip"]
    tab.post("waiting", payload={"waiting_for": "approval", "tool_use_id": "c1"})
    done = {"type": "tool_result", "tool_use_id": "c1", "content": "built"}
    tab.post("user", payload={"content": [done]}, expected_tip=tab.tip)
    ticks.now += 10_000.0
    hosted(hosting).poll()

    assert 1 == len(_results(hosting, tab.uid))


@pytest.mark.slow
def test_a_session_that_rests_is_closed_and_opens_again(hosting: House, ticks: Ticks) -> None:
    """Only after its turn ended, only when nobody spoke since; the next word goes on with it."""
    tab = begun(hosting)
    native = tab.uid.partition(":")[2]
    tab.say("hello")
    ticks.now += 10_000.0
    hosted(hosting).poll()
    in_turn = native in hosted(hosting)._open_sessions
    tab.say("hi", "assistant", payload={"stop_reason": "end_turn"})
    ticks.now += 299.0
    hosted(hosting).poll()
    early = native in hosted(hosting)._open_sessions
    ticks.now += 1.0
    hosted(hosting).poll()
    late = native in hosted(hosting)._open_sessions
    closed = log_of(hosting, tab.uid).read_bytes().splitlines()[-1]
    tab.say("are you there?")

    assert (True, True, False) == (in_turn, early, late)
    assert b'"terminator"' in closed
    assert b'"idle"' in closed
    assert ["hello", "hi", "are you there?"] == texts(hosting, tab.uid)


@pytest.mark.slow
def test_a_turn_can_be_ended_by_word(hosting: House, ticks: Ticks) -> None:
    """For harnesses whose model gives no reason to stop."""
    tab = begun(hosting)
    tab.say("hello")
    answer = tab.post("turn", payload={"state": "interrupted"})
    ticks.now += 300.0
    hosted(hosting).poll()

    assert (201, None, tab.tip) == (answer.status, answer.json["uuid"], answer.json["tip"])
    assert tab.uid.partition(":")[2] not in hosted(hosting)._open_sessions
