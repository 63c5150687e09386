"""Sessions that continue another one are read with it: over HTTP, live, on the page, by agents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.serve.conftest import House, empty
from tests.serve.streams import Listener
from thence import Journal
from thence.format.figures import short_id
from thence.memory import recall
from thence.serve.questions import Questions


class Lineage(NamedTuple):
    """Three sessions, each of which goes on with the one before; the first is called so."""

    house: House
    first: str
    second: str
    third: str

    def get(self, path: str) -> Any:
        """What the API answers."""
        answer = self.house.ask(path)
        assert 200 == answer.status, answer.body
        return answer.json


def turn(session: Any, prompt: str, reply: str) -> None:
    """Record one turn that cost a cent."""
    session.record("user", {"role": "user", "content": prompt})
    answer = {"role": "assistant", "content": reply, "model": "claude-sonnet-4-5", "cost_usd": 0.01}
    session.record("assistant", {**answer, "usage": {"input_tokens": 10, "output_tokens": 5}})
    session.flush()


@pytest.fixture(scope="module")
def lineage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lineage]:
    """A machine with three generations of a session."""
    house = empty(tmp_path_factory.mktemp("lineage"))
    journal = Journal(house.homes.thence)
    with journal.create(cwd="/home/dev/tidepool", model="m-1") as first:
        turn(first, "Why is the build red?", "A test fails.")
        turn(first, "Which one?", "The tide table.")
    with journal.resume(first.id) as second:
        turn(second, "And now?", "It is green.")
    with journal.resume(second.id) as third:
        turn(third, "Push it.", "Pushed.")
    house.swept()
    with house.serving():
        yield Lineage(house, first.id, second.id, third.id)
    house.close()


PROMPTS = ["Why is the build red?", "Which one?", "And now?", "Push it."]


def prompts(events: list[Any]) -> list[str]:
    """What the user said in these events."""
    return [event["summary"] for event in events if event["kind"] == "user_msg"]


def test_messages_and_chain_begin_where_the_lineage_began(lineage: Lineage) -> None:
    """`/messages` and `/chain` hold the ancestors' part; the chain says where it ends."""
    messages = lineage.get(f"/api/sessions/{lineage.third}/messages")["messages"]
    chain = lineage.get(f"/api/sessions/{lineage.third}/chain")

    assert PROMPTS == [m["content"][0]["text"] for m in messages if m["role"] == "user"]
    assert PROMPTS == prompts(chain["events"])
    assert [
        {"session_uid": f"thence:{lineage.first}", "events": 4},
        {"session_uid": f"thence:{lineage.second}", "events": 2},
    ] == chain["continued_from"]


def test_own_leaves_the_ancestors_out(lineage: Lineage) -> None:
    """With `own=1` messages and chain are those of the session itself."""
    messages = lineage.get(f"/api/sessions/{lineage.third}/messages?own=1")["messages"]
    chain = lineage.get(f"/api/sessions/{lineage.third}/chain?own=1")

    assert ["user", "assistant"] == [message["role"] for message in messages]
    assert (PROMPTS[3:], []) == (prompts(chain["events"]), chain["continued_from"])


def test_inherited_events_are_those_of_their_own_session(lineage: Lineage) -> None:
    """An event has one id wherever it is read: no reader makes a second event of it."""
    own = lineage.get(f"/api/sessions/{lineage.first}/chain")["events"]
    inherited = lineage.get(f"/api/sessions/{lineage.third}/chain")["events"][: len(own)]

    assert [event["event_id"] for event in own] == [event["event_id"] for event in inherited]


@pytest.mark.parametrize(("query", "expected"), [("", PROMPTS), ("?own=1", PROMPTS[3:])])
def test_a_replay_begins_where_the_lineage_began(
    lineage: Lineage, query: str, expected: list[str]
) -> None:
    """Who follows an adopted session gets the ancestors' part first."""
    listener = Listener(lineage.house, f"/api/sessions/{lineage.third}/live{query}")
    listener.wait_for("ready")
    listener.close()

    assert expected == prompts([heard.data for heard in listener.of("event")])


def test_the_page_shows_the_ancestors_and_the_border(lineage: Lineage) -> None:
    """The session's page begins with what it continues, and says whose it is."""
    page = lineage.house.ask(f"/sessions/thence:{lineage.third}").body.decode()
    own = lineage.house.ask(f"/sessions/thence:{lineage.third}?own=1").body.decode()

    assert all(prompt in page for prompt in PROMPTS)
    assert f'Continued from <a href="/sessions/thence:{lineage.first}">' in page
    assert "</a>: its 4 messages are above" in page
    assert "this session begins here" in page
    assert [f">turn 1 of {short_id(name)}</a>" in page for name in lineage[1:3]] == [True, True]
    assert 1 == page.count(">turn 1</a>")
    assert PROMPTS[1] not in own


def test_money_and_events_stay_those_of_a_session(lineage: Lineage) -> None:
    """What an ancestor took is not counted again in who goes on with it."""
    sessions = lineage.get("/api/sessions")["sessions"]
    usd = {
        session["native_session_id"]: round(sum(session["usd"].values()), 4) for session in sessions
    }

    assert {lineage.first: 0.02, lineage.second: 0.01, lineage.third: 0.01} == usd


def test_the_first_prompt_of_the_lineage_is_the_title(lineage: Lineage) -> None:
    """A session that nobody named is called as the one it continues: in lists, on its page."""
    listed = {session["title"] for session in lineage.get("/api/sessions")["sessions"]}
    title = lineage.get(f"/api/sessions/{lineage.third}")["session"]["title"]
    page = lineage.house.ask(f"/sessions/thence:{lineage.third}").body.decode()

    assert ({PROMPTS[0]}, PROMPTS[0]) == (listed, title)
    assert f">{PROMPTS[0]}</h1>" in page


def test_agents_are_told_the_lineage(lineage: Lineage) -> None:
    """`outline` names the prompts of all generations, `around` reaches over the border."""
    questions = Questions(lineage.house.store, lambda _text, _uid: {})
    outline = questions.answer("outline", {"session": lineage.third})
    chain = lineage.get(f"/api/sessions/{lineage.third}/chain?own=1")["events"]
    name = recall.event_name(chain[0]["event_id"])
    around = questions.answer("around", {"session": lineage.third, "event": name})

    assert all(prompt in outline for prompt in PROMPTS)
    assert f"continued from thence:{lineage.second[:13]}, 2 messages" in outline
    assert "It is green." in around


def test_a_forgotten_ancestor_is_gone_from_every_reader_at_once(tmp_path: Path) -> None:
    """What was put together before keeps nothing of it, though the session did not change."""
    house = empty(tmp_path)
    journal = Journal(house.homes.thence)
    with journal.create(cwd="/home/dev/tidepool") as first:
        turn(first, "A lantern is to be forgotten", "Done.")
    with journal.resume(first.id) as second:
        turn(second, "And now?", "Green.")
    house.swept()
    paths = [f"/api/sessions/{second.id}/{name}" for name in ("messages", "chain")]
    paths.append(f"/sessions/thence:{second.id}")
    with house.serving():
        before = [b"lantern" in house.ask(path).body for path in paths]
        for path in house.homes.thence.rglob(f"{first.id}*.jsonl"):
            path.unlink()
        uid = f"thence:{first.id}"
        house.store.remove([uid], why={uid: "asked for"}, forget=True)
        after = [b"lantern" in house.ask(path).body for path in paths]
    house.close()

    assert ([True] * 3, [False] * 3) == (before, after)


def test_an_evicted_ancestor_is_read_from_its_source_redacted(tmp_path: Path) -> None:
    """The part of an evicted ancestor is shown, and secrets in its source stay out of it."""
    house = empty(tmp_path)
    journal = Journal(house.homes.thence)
    key = "AKIA" + "Q7RT2MZX4LPW6KBD"
    with journal.create(cwd="/home/dev/tidepool") as first:
        turn(first, f"Deploy with {key} today", "Done.")
    with journal.resume(first.id) as second:
        turn(second, "And now?", "Green.")
    house.swept()
    house.store.remove([f"thence:{first.id}"], why={f"thence:{first.id}": "too old"})
    with house.serving():
        messages = house.ask(f"/api/sessions/{second.id}/messages").body.decode()
        chain = house.ask(f"/api/sessions/{second.id}/chain").body.decode()
        page = house.ask(f"/sessions/thence:{second.id}").body.decode()
    house.close()

    assert ["Deploy with" in text for text in (messages, chain, page)] == [True] * 3
    assert not any(key in text for text in (messages, chain, page))
