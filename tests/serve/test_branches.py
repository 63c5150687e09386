"""A discarded branch is the same one branch for every reader: terminal, viewer, digest, handoff."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.agents.transcripts import Script, usage, write
from tests.cli.desk import Ran, in_process
from tests.memory import logs
from tests.serve import browser as browsers
from tests.serve.conftest import House, empty
from thence.agents.sessions import load

MODEL = "claude-opus-4-5"
SESSION = "5c1f0a3e-0000-4000-8000-000000000009"


def reminder(script: Script) -> None:
    """What the client tells the model after a long turn: part of the log, said by nobody."""
    script.add("attachment", attachment={"type": "task_reminder", "content": [], "itemCount": 0})


def compaction(script: Script) -> None:
    """A summary that replaces what was said before it, on the branch alone."""
    script.boundary()
    script.user("Summary: we try the fold.", isCompactSummary=True)


def nothing(script: Script) -> None:
    """The answer follows the prompt."""
    del script


def discarded(between: Callable[[Script], None]) -> Script:
    """A branch of a prompt, something, two calls at once, and an answer; then a rewind."""
    script = Script(SESSION, "w")
    script.user("The tide table loses an hour.")
    base = script.say("Two places walk the hours.")
    script.user("Try it with fold=1.")
    between(script)
    first = script.call("c1")
    second = script.call("c2")
    script.result("c2", "two", parentUuid=second)
    script.say("The fold hides the gap.", usage=usage(900, input_tokens=100))
    script.result("c1", "one", parentUuid=first)
    script.user("Cut the windows in UTC.", parentUuid=base)
    script.say("Cut.")
    return script


@pytest.fixture(params=[nothing, reminder, compaction], ids=lambda function: function.__name__)
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    """A machine with that one session, swept and served."""
    made = empty(tmp_path)
    write(made.homes.claude, discarded(request.param))
    made.swept()
    with made.serving():
        yield made
    made.close()


def run(machine: House, *arguments: str) -> Ran:
    """Run a command on the machine; it must go well."""
    env = {**machine.homes.env, "HOME": str(machine.folder), "COLUMNS": "100", "TZ": "UTC"}
    ran = in_process(*arguments, env=env)

    assert 0 == ran.code, ran.err
    return ran


def event_of(machine: House, text: str) -> str:
    """Return the name of the event that says a text."""
    events = run(machine, "show", SESSION, "--as", "events").json["events"]
    return next(f"e{e['event_id']:013x}" for e in events if e["summary"].startswith(text))


def test_a_branch_is_shown_as_one_wherever_it_is_shown(machine: House) -> None:
    """Terminal, tree, viewer, its outline and the digest count one branch, where it parted."""
    shown = run(machine, "show", SESSION).lines
    tree = run(machine, "tree", SESSION, "--json").json["branches"]
    page = machine.ask(f"/sessions/claude:{SESSION}").body.decode()
    digest = run(machine, "digest", SESSION, "--json").json

    assert 1 == sum("├─╳  discarded branch, " in line for line in shown)
    assert "├─╳" in shown[shown.index("│    Two places walk the hours.") + 1]
    assert ["w2"] == [branch["from"] for branch in tree]
    assert 1 == len(re.findall(r'<details class="branch"', page))
    assert 1 == len(digest["branches"])


@pytest.mark.slow
def test_any_event_of_a_branch_leads_to_its_end(machine: House) -> None:
    """`show --branch` and `handoff --branch` hold all of it, and nothing of the live line."""
    for text in ("Try it with fold=1.", "one", "The fold hides the gap."):
        event = event_of(machine, text)
        shown = run(machine, "show", SESSION, "--branch", event).out
        handed = run(machine, "handoff", SESSION, "--to", "claude", "--branch", event, "--json")
        body = Path(handed.json["files"][0]).read_text()

        assert "The fold hides the gap." in shown
        assert "Cut the windows" not in shown
        assert "The fold hides the gap." in body
        assert "Cut the windows" not in body


@pytest.mark.slow
def test_states_are_those_of_the_log(machine: House) -> None:
    """Nothing that was said comes alive or dies by the way branches are counted."""
    events = run(machine, "show", SESSION, "--as", "events").json["events"]
    dead = [e["summary"] for e in events if e["state"] == "dead" and e["kind"] == "assistant_msg"]

    assert ["The fold hides the gap."] == dead


@pytest.mark.slow
def test_no_real_session_has_a_branch_that_goes_on_from_another(shared: Path) -> None:
    """What goes on from an event of a branch, over internal records, is on the same branch."""
    seen = 0
    for path in sorted((shared / "data" / "claude-code").rglob("projects/*/*.jsonl")):
        if path.stat().st_size > 5_000_000:
            continue
        graph = load(path).graph.graph
        home = {place: n for n, branch in enumerate(graph.branches) for place in branch.events}
        for number, branch in enumerate(graph.branches):
            at = -1 if branch.at is None else branch.at
            while at >= 0 and graph.states[at] == "internal":
                at = graph.parents[at]

            assert home.get(at, number) == number, path
            seen += 1

    assert seen


def test_a_cleared_context_is_no_branch_in_the_viewer(tmp_path: Path) -> None:
    """What stands before it is folded under its own name, and opens."""
    script = Script(SESSION, "w")
    script.user("Plan the tide table.")
    script.say("This is the plan.", usage=usage(900, input_tokens=100))
    script.user("Implement the following plan: windows in UTC.", parentUuid=None, planContent="x")
    script.say("Carried out.")
    machine = empty(tmp_path)
    write(machine.homes.claude, script)
    machine.swept()
    with machine.serving():
        page = machine.ask(f"/sessions/claude:{SESSION}").body.decode()
        part = machine.ask(f"/sessions/claude:{SESSION}/rows?part=k0").body.decode()
    machine.close()

    assert "Context cleared" in page
    assert '<details class="branch"' not in page
    assert "Carried out." in page
    assert "This is the plan." in part


@pytest.mark.slow
def test_a_branch_that_hangs_on_a_copy_is_where_its_cost_is(
    browser: Browser, tmp_path: Path
) -> None:
    """Counted and opened on its session's page, opened from Costs, and compared with its cost."""
    house = empty(tmp_path)
    parent = logs.script(1, turns=6)
    script = logs.fork(2, parent, 8, turns=0)
    copied = [record["uuid"] for record in script.records]
    at = "2026-01-03T00:00:0{}.000Z".format
    script.user("Try the lamp.", parentUuid=copied[3], timestamp=at(1))
    script.say("It is dark.", model=MODEL, usage=usage(40_000), timestamp=at(2))
    script.user("The wick, then.", parentUuid=copied[-1], timestamp=at(3))
    script.say("It burns.", model=MODEL, usage=usage(30), timestamp=at(4))
    logs.write(house.homes.claude, parent, script)
    house.swept()
    page_of = f"/sessions/claude:{script.session}"
    with house.serving(), browsers.tab(browser, house) as tab:
        page = tab.go(page_of)
        expect(page.locator("#s-facts")).to_contain_text("$1.00 discarded")
        expect(page.locator(".jump", has_text="Discarded")).to_contain_text("Discarded 1")
        branch = page.locator("details.branch[data-state=dead]")
        expect(branch.get_by_text("It is dark.")).to_be_hidden()
        page.keyboard.press("b")
        expect(branch.get_by_text("It is dark.")).to_be_visible()
        page = tab.go("/costs?days=0")
        page.locator(f"a[href*='{script.session}?at=']").first.click()
        expect(branch.get_by_text("It is dark.")).to_be_visible()
        text = tab.go(f"{page_of}/compare/0").locator("main").inner_text()
        assert [] == tab.errors
    house.close()

    assert re.search(r"Cost\s+\$1\.00\s+\$0\.00", text), text
    assert "Both share 3 events" in text
