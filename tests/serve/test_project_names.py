"""Names, tags and notes of sessions: shown everywhere and found, until they are forgotten."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Browser, expect

from tests.agents.transcripts import Script, write
from tests.cli.desk import Ran, in_process
from tests.serve import browser as browsers
from tests.serve.conftest import House, empty
from tests.serve.test_mcp import over_stdio, text_of
from thence.memory.labels import BadTag, read_labels, tag_of
from thence.memory.notes import note_path, read_notes
from thence.memory.watching import narrow_to

if TYPE_CHECKING:
    from mcp import Client

FIRST = "5c1f0a3e-0000-4000-8000-000000000021"
SECOND = "7d2f0a3e-0000-4000-8000-000000000022"
UID = f"claude:{FIRST}"
TOKEN = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[House]:
    """Two sessions that say the same word, served."""
    made = empty(tmp_path)
    for number, session in enumerate((FIRST, SECOND)):
        script = Script(session, f"s{number}")
        script.user(f"Count the limpets of pool {number}.")
        script.say("There are nine limpets.")
        write(made.homes.claude, script)
    made.swept()
    with made.serving():
        yield made
    made.close()


def run(machine: House, *arguments: str, code: int = 0) -> Ran:
    """Run a command on the machine."""
    env = {**machine.homes.env, "HOME": str(machine.folder), "COLUMNS": "110", "TZ": "UTC"}
    ran = in_process(*arguments, env=env)

    assert code == ran.code, ran.err
    return ran


def listed(machine: House, *arguments: str) -> dict[str, dict[str, Any]]:
    """Return what `ls` lists, by uid."""
    return {row["session_uid"]: row for row in run(machine, "ls", "--json", *arguments).json}


@pytest.mark.slow
def test_a_name_and_tags_are_shown_and_found_everywhere(machine: House) -> None:
    """In lists, on pages, over HTTP and MCP; by their words, by tag: and by --tag."""
    assert (
        "Rock pool census" == run(machine, "name", FIRST, "Rock pool census", "--json").json["name"]
    )
    tags = run(machine, "tag", FIRST, "+Survey", "beach", "--json").json["tags"]

    assert ["beach", "survey"] == tags
    row = listed(machine)[UID]
    assert ("Rock pool census", ["beach", "survey"]) == (row["title"], row["tags"])
    assert [UID] == list(listed(machine, "--tag", "survey"))
    assert "Rock pool census #beach #survey" in run(machine, "ls").out
    assert "Rock pool census" in run(machine, "show", FIRST).lines[0]
    assert "#survey" in run(machine, "digest", FIRST).out
    answer = run(machine, "search", "census", "--json").json
    assert [("name", UID)] == [(note["kind"], note["session_uid"]) for note in answer["notes"]]
    hits = run(machine, "search", "limpets", "tag:survey", "--json").json["hits"]
    assert {UID} == {hit["session_uid"] for hit in hits}
    assert [UID] == [
        hit["session_uid"] for hit in run(machine, "search", "tag:beach", "--json").json["hits"]
    ]
    unknown = run(machine, "search", "limpets", "tag:beech", "--json", code=2)
    assert "did you mean beach?" == json.loads(unknown.err)["hint"]
    over_http = machine.ask(f"/api/sessions/{UID}").json["session"]
    assert ("Rock pool census", ["beach", "survey"]) == (over_http["title"], over_http["tags"])
    assert [UID] == [
        session["session_uid"]
        for session in machine.ask("/api/sessions?tag=beach").json["sessions"]
    ]
    assert "Rock pool census" in machine.ask("/sessions?q=tag:beach").body.decode()
    assert "pool 1" not in machine.ask("/sessions?q=tag:beach").body.decode()
    assert f'<a href="/sessions/{UID}">Rock pool census</a>' in (
        machine.ask("/sessions?q=census").body.decode()
    )

    async def talk(client: Client) -> str:
        return text_of(await client.call_tool("outline", {"session": FIRST}))

    outline = str(over_stdio(machine.homes, talk))
    assert "title: Rock pool census" in outline
    assert "tags: beach, survey" in outline


def test_labels_outlive_what_happens_to_the_store(machine: House) -> None:
    """Eviction, a session that goes on and one that is read from the start again."""
    run(machine, "name", FIRST, "Rock pool census")
    run(machine, "tag", FIRST, "+survey")
    run(machine, "evict", FIRST, "--yes")
    assert "Rock pool census" == listed(machine)[UID]["title"]
    script = Script(FIRST, "s0")
    script.user("Count the whelks instead.")
    write(machine.homes.claude, script)
    machine.swept()

    row = listed(machine)[UID]
    assert ("Rock pool census", ["survey"]) == (row["title"], row["tags"])


def test_every_change_can_be_taken_back(machine: House) -> None:
    """A removed name gives the title back; a tag that is removed finds nothing."""
    title = listed(machine)[UID]["title"]
    run(machine, "name", FIRST, "One")
    run(machine, "name", FIRST, "Two")
    run(machine, "tag", FIRST, "+a", "+b")
    run(machine, "tag", FIRST, "-a")

    assert "Two" == listed(machine)[UID]["title"]
    assert [] == run(machine, "search", "One", "--json", "--exact").json["notes"]
    assert [{"tag": "b", "sessions": 1}] == run(machine, "tag", "--json").json
    run(machine, "name", FIRST, "--off")
    assert title == listed(machine)[UID]["title"]
    run(machine, "tag", FIRST, "+two words", code=2)
    assert ["b"] == run(machine, "tag", FIRST, "--json").json["tags"]


def test_secrets_reach_no_label_and_forgetting_takes_all_that_was_written(machine: House) -> None:
    """Names, tags, notes and decisions of the session go; those of others stay."""
    run(machine, "name", FIRST, f"Key {TOKEN} leaked here")
    run(machine, "tag", FIRST, "+secret-pool")
    run(machine, "decide", "--session", FIRST, "Count at low tide.")
    run(machine, "note", "--session", FIRST, "Half of them are counted.")
    run(machine, "name", SECOND, "The other pool")
    home = machine.homes.thence
    assert TOKEN not in note_path(home, "name").read_text()
    assert "leaked here" in run(machine, "name", FIRST).out
    run(machine, "forget", FIRST, "--yes")

    left = "".join(path.read_text() for path in note_path(home, "name").parent.glob("*.jsonl"))
    assert FIRST not in left
    assert "low tide" not in left
    assert ["The other pool"] == [label.name for label in read_labels(home).values()]


def test_the_viewer_names_tags_and_notes_for_its_own_pages_only(machine: House) -> None:
    """Behind the gate that pinning has; what is no tag is refused; a removed note is gone."""
    path, note = f"/sessions/{UID}/label", f"/sessions/{UID}/notes"
    foreign = {"Origin": "http://evil.example"}
    assert 403 == machine.ask(path, method="POST", body={"name": "x"}, headers=foreign).status
    assert 403 == machine.ask(note, method="POST", body={"text": "x"}, headers=foreign).status
    assert 400 == machine.ask(path, method="POST", body={"tags": ["two words"]}).status
    machine.context.writes = False
    assert 403 == machine.ask(path, method="POST", body={"name": "x"}).status
    assert 403 == machine.ask(note, method="POST", body={"text": "x"}).status
    assert {} == read_labels(machine.homes.thence)
    machine.context.writes = True
    body = {"name": f"Pool {TOKEN}", "tags": ["a"]}
    named = machine.ask(path, method="POST", body=body).json
    assert named["title"].startswith("Pool ")
    assert TOKEN not in named["title"]
    added = machine.ask(note, method="POST", body={"text": "<b>Look</b> again."}).json
    assert "&lt;b&gt;Look&lt;/b&gt; again." in machine.ask(f"/sessions/{UID}").body.decode()
    assert "written in the viewer" in run(machine, "show", FIRST).out
    other = f"/sessions/claude:{SECOND}/notes/removed"
    assert 404 == machine.ask(other, method="POST", body={"uuid": added["uuid"]}).status
    assert 200 == machine.ask(f"{note}/removed", method="POST", body={"uuid": added["uuid"]}).status

    assert [] == read_notes(machine.homes.thence)


@pytest.mark.parametrize("text", ["", "two words", "a/b", "-x", "x" * 41, "#x", "a\nb", "\x1b[1m"])
def test_what_is_no_word_is_no_tag(text: str) -> None:
    """A tag is typed behind tag: and stands in addresses."""
    with pytest.raises(BadTag):
        tag_of(text)


@pytest.mark.slow
def test_a_session_is_named_tagged_and_noted_on_its_page(browser: Browser, machine: House) -> None:
    """Each with an undo, and on the next page as well."""
    with browsers.tab(browser, machine) as tab:
        page = tab.go(f"/sessions/{UID}")
        before = page.locator("#s-title").inner_text()
        for form, text, done in (
            ("name", "Rock pool census", "Renamed"),
            ("tags", "survey beach", "Tags saved"),
            ("note", "Ask the warden.", "Note added"),
        ):
            page.get_by_role("button", name="Name and note").click()
            assert [] == tab.complaints()
            page.locator(f"form[data-write={form}] [name=text]").fill(text)
            page.locator(f"form[data-write={form}] button").click()
            expect(page.locator("#toast")).to_contain_text(done)
        expect(page.locator("#s-title")).to_have_text("Rock pool census")
        expect(page.locator("#s-tags")).to_contain_text("#beach #survey")
        expect(page.locator("#s-notes")).to_contain_text("Ask the warden.")
        assert tab.fits()
        page.locator("#toast button").click()
        expect(page.locator("#toast")).to_contain_text("Note removed")
        page.reload()
        expect(page.locator("#s-title")).to_have_text("Rock pool census")
        expect(page.locator("#s-notes")).not_to_contain_text("Ask the warden.")
        page.get_by_role("button", name="Name and note").click()
        page.locator("form[data-write=name] [name=text]").fill("Another")
        page.locator("form[data-write=name] button").click()
        expect(page.locator("#s-title")).to_have_text("Another")
        page.locator("#toast button").click()
        expect(page.locator("#s-title")).to_have_text("Rock pool census")
        page.locator("#s-tags a").first.click()
        expect(page.locator("main")).to_contain_text("Rock pool census")
        expect(page.locator("main")).not_to_contain_text("pool 1")
        assert before != "Rock pool census"
        assert [] == tab.errors


@pytest.mark.slow
def test_names_tags_and_decisions_are_in_the_tables_for_analysts(machine: House) -> None:
    """As columns and events, redacted; a change is exported, and evicted sessions keep them."""
    decisions = "SELECT session_uid, summary FROM events WHERE kind = 'decision'"
    assert [] == run(machine, "sql", decisions, "--json").json
    run(machine, "name", FIRST, "Rock pool census")
    run(machine, "tag", FIRST, "+survey", "+beach")
    run(machine, "decide", "--session", FIRST, f"Count at low tide, not with {TOKEN}.")
    run(machine, "decide", "Of no session.")
    [row] = run(machine, "sql", decisions, "--json").json
    named = "SELECT title FROM sessions WHERE list_contains(tags, 'survey')"

    assert UID == row["session_uid"]
    assert row["summary"].startswith("Count at low tide, not with ")
    assert TOKEN not in row["summary"]
    assert [{"title": "Rock pool census"}] == run(machine, "sql", named, "--json").json
    run(machine, "evict", FIRST, "--yes")
    assert [row] == run(machine, "sql", decisions, "--json").json
    run(machine, "tag", FIRST, "-survey")
    assert [] == run(machine, "sql", named, "--json").json


def test_a_decision_is_an_event_wherever_events_are_read(machine: House) -> None:
    """In `show`, over HTTP, in a digest and as a hit of a search: with one and the same id."""
    run(machine, "decide", "--session", FIRST, "Count at low tide.")
    run(machine, "decide", "Of no session.")
    [shown] = [
        event
        for event in run(machine, "show", FIRST, "--as", "events").json["events"]
        if event["kind"] == "decision"
    ]
    [served] = [
        event
        for event in machine.ask(f"/api/sessions/{UID}/events?limit=200").json["events"]
        if event["kind"] == "decision"
    ]
    notes = run(machine, "search", "kind:decision", "--json").json["notes"]
    over_http = machine.ask("/api/search?q=kind:decision+low").json["notes"]

    assert shown["event_id"] == served["event_id"]
    assert {None, shown["event_id"]} == {note["event_id"] for note in notes}
    assert [shown["event_id"]] == [note["event_id"] for note in over_http]
    assert "Count at low tide." in run(machine, "digest", FIRST).out


def test_an_export_has_the_name_the_tags_and_the_decisions(machine: House) -> None:
    """From the command line and from the page."""
    run(machine, "name", FIRST, "Rock pool census")
    run(machine, "tag", FIRST, "+survey")
    run(machine, "decide", "--session", FIRST, "Count at low tide.")
    lines = run(machine, "export", FIRST, "--json").json["lines"]

    assert ("Rock pool census", ["survey"]) == (lines[0]["name"], lines[0]["tags"])
    assert ["Count at low tide."] == [
        line["payload"] for line in lines[1:] if line["kind"] == "decision"
    ]
    assert "# Rock pool census" == run(machine, "export", FIRST, "--as", "markdown").lines[0]
    assert "Rock pool census" in machine.ask(f"/sessions/{UID}/export/html").body.decode()
    assert "low tide" in machine.ask(f"/sessions/{UID}/export/json").body.decode()


@pytest.mark.slow
def test_what_is_written_while_the_viewer_runs_is_no_session(machine: House) -> None:
    """The watcher sees the files of notes change; they are event lines, but not a log."""
    run(machine, "decide", "Count at low tide.")
    known, roots = machine.context.known, machine.context.roots
    changed = note_path(machine.homes.thence, "decision")
    readers, _ = narrow_to(known, roots, [changed])

    assert known == readers
