"""One piece of work from its first prompt to its last reader: every reader tells the same story.

A harness records it, is killed, goes on in two further sessions, takes one turn back and hands the
work over to another agent. Then everything is swept, and read from all sides.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.cli.desk import Ran, in_process
from tests.serve.conftest import House, empty
from tests.serve.streams import Listener
from thence import Journal
from thence.serve.questions import Questions

TITLE = "Tide tables lose an hour"
OPEN_TODO = "Write the notes for Lisbon"
SPILLED_WORD = "neaptide"
KILLED_PROGRAM = """
import os, signal, sys
from thence import Journal

journal = Journal(sys.argv[1])
session = journal.create(cwd=sys.argv[2], model="claude-sonnet-4-5")
session.title = {title!r}


def say(role, content, **more):
    return session.record(role, {{"role": role, "content": content, **more}})


def reply(content):
    usage = {{"input_tokens": 1000, "output_tokens": 100}}
    return say("assistant", content, model="claude-sonnet-4-5", usage=usage, cost_usd=0.25)


def call(name, tool, **arguments):
    return reply([{{"type": "tool_use", "id": name, "name": tool, "input": arguments}}])


def result(name, text):
    return say("user", [{{"type": "tool_result", "tool_use_id": name, "content": text}}])


say("user", "Why does the table of 29 March lose an hour?")
todos = [{{"content": {open!r}, "status": "pending", "activeForm": "Writing"}}]
call("c1", "TodoWrite", todos=todos)
result("c1", "noted")
call("c2", "Bash", command="cat tides.log")
result("c2", "line of the log\\n" * 6000 + {spilled!r} + "\\n" + "line of the log\\n" * 6000)
reply("The clock changes that night.")
session.flush()
kept = say("user", "Which function is it?")
reply("It is windows().")
session.flush()
session.compact("The table loses an hour because the clock changes.", keep_from=kept.uuid)
say("user", "Fix it.")
call("c3", "Bash", command="sleep 600")
session.flush(state="running")
print(session.id, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


class Story(NamedTuple):
    """What happened, and the machine on which it did."""

    house: House
    sessions: list[str]
    """Three generations: the killed one, and two that go on with it."""
    messages: list[str]
    """What the last one holds, as its journal gave it."""
    cost: float
    total_cost: float
    """What the last one took, and all three."""

    @property
    def last(self) -> str:
        """The session that is read."""
        return self.sessions[-1]

    def run(self, *arguments: str) -> Ran:
        """Run a command on this machine."""
        folder = str(self.house.folder)
        env = {**self.house.homes.env, "HOME": folder, "PATH": os.environ["PATH"]}
        return in_process(*arguments, env={**env, "COLUMNS": "100", "TZ": "UTC"})

    def get(self, path: str) -> Any:
        """What the API answers."""
        answer = self.house.ask(path)
        assert 200 == answer.status, answer.body
        return answer.json


def texts_of(messages: list[Any]) -> list[str]:
    """What was said in messages, tools left out."""
    return [
        block["text"]
        for message in messages
        for block in message["content"]
        if block["type"] == "text"
    ]


def record_turn(session: Any, prompt: str, answer: str) -> None:
    """Record one turn that cost a quarter."""
    session.record("user", {"role": "user", "content": prompt})
    reply = {"role": "assistant", "content": answer, "model": "claude-sonnet-4-5", "cost_usd": 0.25}
    session.record("assistant", {**reply, "usage": {"input_tokens": 1000, "output_tokens": 100}})
    session.flush()


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Let it happen, once."""
    house = empty(tmp_path_factory.mktemp("story"))
    home, project = house.homes.thence, house.homes.work / "tidepool"
    project.mkdir()
    program = KILLED_PROGRAM.format(title=TITLE, open=OPEN_TODO, spilled=SPILLED_WORD)
    done = subprocess.run(
        [sys.executable, "-c", program, str(home), str(project)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert -signal.SIGKILL == done.returncode, done.stderr
    first = done.stdout.strip()
    journal = Journal(home)
    with journal.resume(first) as second:
        record_turn(second, "You were interrupted. Fix it.", "Windows are cut in UTC now.")
    with journal.resume(second.id) as third:
        record_turn(third, "Is it tested?", "Yes, for Lisbon.")
        before = third.tip
        assert before is not None
        record_turn(third, "Add a test for Reykjavik.", "Reykjavik has no change of the clock.")
        third.rewind(before)
        record_turn(third, "Then add one for Azores.", "Added.")
        texts, cost, total_cost = texts_of(third.messages), third.cost, third.cumulative_cost
    recorded = Story(house, [first, second.id, third.id], texts, cost, total_cost)
    result = recorded.run("sweep")
    assert (0, "") == (result.code, result.err), result
    handoff = recorded.run("handoff", third.id, "--to", "claude", "--yes")
    assert 0 == handoff.code, handoff
    assert 0 == recorded.run("sweep").code
    with house.serving():
        yield recorded
    house.close()


@pytest.mark.slow
def test_every_reader_gives_the_same_messages(story: Story) -> None:
    """Journal, command line and HTTP: the summary, what was kept, and all generations."""
    shown = story.run("show", story.last, "--as", "messages").json
    asked = story.get(f"/api/sessions/{story.last}/messages")["messages"]

    assert story.messages == texts_of(shown)
    assert story.messages == texts_of(asked)
    assert "Add a test for Reykjavik." not in story.messages
    assert "Then add one for Azores." in story.messages


def test_what_was_handed_over_is_the_same_conversation(story: Story) -> None:
    """The other agent's session holds what the first agent's does, under the same title."""
    listed = story.run("ls", "--agent", "claude", "--json").json
    assert [TITLE] == [row["title"] for row in listed]
    copied = story.run("show", listed[0]["session_uid"], "--as", "messages").json

    assert story.messages == texts_of(copied)


def test_chain_stream_and_pages_show_the_same_prompts(story: Story) -> None:
    """What no reader leaves out, and no reader invents."""
    prompts = [
        "You were interrupted. Fix it.",
        "Is it tested?",
        "Then add one for Azores.",
    ]
    chain = story.get(f"/api/sessions/{story.last}/chain?limit=1000")["events"]
    listener = Listener(story.house, f"/api/sessions/{story.last}/live")
    listener.wait_for("ready")
    listener.close()
    streamed = [event.data for event in listener.of("event")]
    outputs = [
        story.run("show", story.last).out,
        story.run("tree", story.last).out,
        story.run("show", story.last, "--as", "markdown").out,
        story.house.ask(f"/sessions/thence:{story.last}").body.decode(),
        Questions(story.house.store, lambda _t, _u: {}).answer("outline", {"session": story.last}),
    ]

    for events in (chain, streamed):
        summaries = [event["summary"] for event in events if event["kind"] == "user_msg"]
        assert prompts == [summary for summary in summaries if summary in prompts]
        assert "Add a test for Reykjavik." not in summaries
    for text in outputs:
        assert all(prompt in text for prompt in prompts)


def test_the_whole_work_has_its_title_and_its_money(story: Story) -> None:
    """The name that the first session was given; each session's own cost, once."""
    listed = story.run("ls", "--agent", "thence", "--json").json
    cost = {row["native_session_id"]: sum(row["usd"].values()) for row in listed}

    assert {TITLE} == {row["title"] for row in listed}
    assert pytest.approx(story.cost) == cost[story.last]
    assert pytest.approx(story.total_cost) == sum(cost.values())


def test_what_was_left_open_stays_open_in_who_goes_on(story: Story) -> None:
    """The to-do of the killed session is known to the journal and to every reader."""
    with Journal(story.house.homes.thence).resume(story.last) as session:
        own = [todo["content"] for todo in session.state.todos]
    shown = story.run("show", story.last, "--json").json["pending"]
    listed = story.run("todos", "--json").json

    assert [OPEN_TODO] == own
    assert OPEN_TODO in [todo["text"] for todo in shown]
    assert OPEN_TODO in [todo["text"] for todo in listed]


@pytest.mark.slow
def test_a_browser_shows_the_same_story(story: Story) -> None:
    """Title, messages in order, money, to-dos, what was taken back, and the spilled result."""
    browsers = pytest.importorskip("tests.serve.browser", reason="no playwright")
    with browsers.launched() as browser, browsers.tab(browser, story.house) as tab:
        page = tab.go(f"/sessions/thence:{story.last}")
        title, facts = page.locator("#s-title").inner_text(), page.locator("#s-facts").inner_text()
        shown = page.locator("main").inner_text()
        branch = page.locator(".branch").first
        branch.locator("summary").first.click()
        browsers.expect(branch).to_contain_text("Add a test for Reykjavik.")
        tab.opened()
        everything = page.locator("main").inner_text()
        to_dos = tab.go("/").locator("main").inner_text()
        results = tab.go("/sessions?q=Azores").locator("main").inner_text()
        page = tab.go(f"/sessions/thence:{story.sessions[0]}?q={SPILLED_WORD}")
        tab.opened()
        links = page.locator("a[href*='/spill/']")
        spilled = [link.get_attribute("href") for link in links.all()]
        errors = [*tab.errors, *tab.strangers]

    assert TITLE == title
    assert f"${story.cost:.2f}" in facts
    places = [shown.find(text) for text in story.messages if text in shown]
    assert places == sorted(places)
    assert [] == [text for text in story.messages if text not in everything]
    assert (False, True) == tuple("Reykjavik has no" in text for text in (shown, everything))
    assert OPEN_TODO in to_dos
    assert TITLE in results
    assert [True] == [SPILLED_WORD in story.house.ask(str(path)).body.decode() for path in spilled]
    assert [] == errors


def test_what_was_said_is_found(story: Story) -> None:
    """Words of any generation lead to the session that holds them."""
    hits = story.run("search", "Azores", "--json").json["hits"]

    assert f"thence:{story.last}" in {hit["session_uid"] for hit in hits}
