"""`thence search`: what is found, shown with what was asked for."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from tests.agents.transcripts import Script
from tests.cli.desk import WINDOWS, Desk, alerts, windows
from tests.memory import logs
from thence.cli.search import highlight, split_marks
from thence.cli.terminal import columns
from thence.memory.packs import pack_name
from thence.memory.search import CLOSE, OPEN


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Three sessions, kept."""
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(windows())
    desk.write_claude(alerts(), ago=timedelta(days=2, hours=1))
    desk.write_codex()
    desk.sweep()
    return desk


def test_hits_stand_under_their_session(desk: Desk) -> None:
    """The first line counts, each hit says where it is, the last line opens one."""
    ran = desk.run("search", "lighthouse")

    assert ran.lines[0].startswith("1 match in 1 session, ")
    assert ran.lines[2].startswith("  7f3a91c2  Hourly windows lose an hour")
    assert ran.lines[2].endswith("3 h")
    assert "answer   Windows are cut in UTC. The [lighthouse] keeper agrees." in ran.lines[3]
    assert ran.lines[-1].startswith("open one at the match:  thence show 7f3a91c2 --around e")


def test_what_lies_on_a_dead_branch_is_marked(desk: Desk) -> None:
    """It was said, and then left behind."""
    assert "╳ answer" in desk.run("search", "lantern").out


def test_object_is_the_contracts(desk: Desk) -> None:
    """Snippets are plain text, with the places of what was asked for beside them."""
    answer = desk.run("search", "lighthouse", "--json").json
    hit = answer["hits"][0]
    names = {"session_uid", "event_id", "seq", "ts", "kind", "snippet", "score"}

    about = {"total", "sessions", "capped", "searched_back_to", "how", "explanation", "hints"}
    assert {"hits", "notes", *about} == set(answer)
    assert names <= set(hit)
    assert f"claude:{WINDOWS}" == hit["session_uid"]
    assert ["lighthouse"] == [hit["snippet"][start:end] for start, end in hit["marks"]]


def test_a_broken_pack_costs_only_the_texts_in_it(desk: Desk) -> None:
    """Its hits are shown without a text, and counted; a script can tell by the exit code."""
    asked = ("search", "windows OR clock")
    intact = desk.run(*asked, "--json")
    for pack in (desk.home / "memory" / "packs").glob(f"{pack_name(f'claude:{WINDOWS}')}-*"):
        pack.unlink()
    ran, as_json = desk.run(*asked), desk.run(*asked, "--json")
    unread = [hit for hit in as_json.json["hits"] if hit["unread"]]

    assert (0, 3, 3) == (intact.code, ran.code, as_json.code)
    assert len(intact.json["hits"]) == len(as_json.json["hits"]) > len(unread) > 0
    assert {f"claude:{WINDOWS}"} == {hit["session_uid"] for hit in unread}
    assert "text unreadable" in ran.out
    assert f"{len(unread)} matches without text: the pack " in ran.lines[-1]


def test_a_hit_is_the_event_with_its_number(desk: Desk) -> None:
    """`seq` leads to the event in what `show` gives of the session."""
    hits = desk.run("search", "windows", "--json").json["hits"]
    shown = {
        uid: {
            event["seq"]: event
            for event in desk.run("show", uid, "--as", "events", "--json").json["events"]
        }
        for uid in {hit["session_uid"] for hit in hits}
    }

    assert 2 < len(hits)
    for hit in (hit for hit in hits if hit["kind"] != "title"):
        event = shown[hit["session_uid"]][hit["seq"]]

        assert (hit["event_id"], hit["seq"]) == (event["event_id"], event["seq"])


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("query", "sessions"),
    [
        (["agent:codex", "dump"], 1),
        (["project:tidepool", "windows"], 1),
        (["kind:user_msg", "clock"], 1),
        (["nine", "OR", "lighthouse"], 2),
        (["--", "windows", "-lantern", "-lighthouse", "-tide"], 1),
        (["nowhere"], 0),
    ],
)
def test_filters(desk: Desk, query: list[str], sessions: int) -> None:
    """The language of a search is told in its help."""
    answer = desk.run("search", "--json", *query).json

    assert sessions == len({hit["session_uid"] for hit in answer["hits"]})


@pytest.mark.parametrize("name", ["codex", "Codex", "CODEX"])
@pytest.mark.parametrize("claude", ["claude", "claude-code", '"Claude Code"'])
def test_agents_are_asked_for_by_either_of_their_names(desk: Desk, name: str, claude: str) -> None:
    """The stored name, or the one that other screens show, with words and alone."""
    codex = desk.run("search", f"agent:{name}", "--json").json["hits"]
    ours = desk.run("search", f"agent:{claude} windows", "--json").json["hits"]

    assert ["codex"] == [hit["session_uid"].partition(":")[0] for hit in codex]
    assert {"claude"} == {hit["session_uid"].partition(":")[0] for hit in ours}


def test_a_decision_alone_is_counted_alone(desk: Desk) -> None:
    """The first line names what was found, not what was not."""
    desk.run("decide", "Windows stay in UTC.")
    ran = desk.run("search", "kind:decision")

    assert re.match(r"1 decision, \d", ran.lines[0])


def test_nothing_found_is_no_error(desk: Desk) -> None:
    """It says so."""
    ran = desk.run("search", "xylophone")

    assert 0 == ran.code
    assert ran.out.startswith("no matches, ")


@pytest.mark.parametrize("query", ["-only", "before:someday", "kind:nonsense x", "cost>much x"])
def test_questions_that_mean_nothing_are_refused(desk: Desk, query: str) -> None:
    """With a hint, and the exit code of a wrong use."""
    ran = desk.run("search", "--", query)

    assert (2, "") == (ran.code, ran.out)
    assert ran.err.startswith("error: ")


@pytest.mark.parametrize("room", [40, 60, 80])
def test_snippets_fit_and_show_what_was_asked_for(room: int) -> None:
    """However far to the right it stands."""
    snippet = f"{'before ' * 20}{OPEN}needle{CLOSE}{' after' * 20}"
    shown = highlight(snippet, room)

    assert room >= columns(shown)
    assert "[needle]" in shown


def test_marks_are_parted_from_the_text() -> None:
    """Several of them, side by side too."""
    text, marks = split_marks(f"a {OPEN}b{CLOSE}{OPEN}c{CLOSE} d")

    assert ("a bc d", [[2, 3], [3, 4]]) == (text, marks)


def test_hits_are_coloured_on_a_terminal(desk: Desk) -> None:
    """Bold yellow in place of brackets."""
    out = desk.run("search", "lighthouse", tty=True).out

    assert "[lighthouse]" not in out
    assert "\x1b[33m\x1b[1mlighthouse\x1b[0m" in out


# -- kinds ----------------------------------------------------------------------------------


@pytest.fixture
def trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """One session with events of every kind, kept, and a decision and a note about it."""
    desk = Desk(tmp_path, monkeypatch)
    script = logs.trials(1)
    desk.write_claude(script)
    desk.sweep()
    desk.run("decide", "The lantern burns oil.", "--session", script.session)
    desk.run("note", "The lantern is heavy.", "--session", script.session)
    return desk


def helped_kinds(desk: Desk) -> list[str]:
    """Return the kinds that the help of `thence search` names."""
    text = " ".join(desk.run("search", "--help").out.split())
    listed = re.search(r"kind: takes ([\w, ]+)\.", text)

    assert listed is not None, text
    return re.findall(r"[a-z_]+", listed[1].replace(" and ", " "))


def test_every_kind_of_the_help_finds_its_events(trials: Desk) -> None:
    """Alone and with a word, and not with a word that nothing has."""
    kinds = helped_kinds(trials)
    for kind in kinds:
        asked = ("search", f"kind:{kind}")
        alone, with_word, other = (
            trials.run(*asked, *words, "--json").json for words in ((), ("lantern",), ("saffron",))
        )

        assert [*alone["hits"], *alone["notes"]], kind
        assert [*with_word["hits"], *with_word["notes"]], kind
        assert [] == [*other["hits"], *other["notes"]], kind
    assert 14 == len(kinds)


@pytest.mark.slow
def test_every_filter_of_the_help_finds_the_session(
    trials: Desk,
) -> None:
    """Alone and with a word; with what nothing has it finds nothing."""
    text = " ".join(trials.run("search", "--help").out.split())
    named = re.findall(r"([a-z]+)[:>]\S", text.partition("filters: ")[2].partition(". kind:")[0])
    values = {
        "agent": (":claude", ":codex"),
        "project": (":project", ":nowhere"),
        "model": (":claude", ":gpt"),
        "tool": (":Bash", ":Teleport"),
        "kind": (":tool_call", ":note saffron"),
        "file": (":test_lantern.py", ":nosuch.rs"),
        "after": (":2020-01-01", ":2090-01-01"),
        "before": (":2090-01-01", ":2001-01-01"),
        "outcome": (f":{_outcome(trials)}", ":abandoned"),
        "cost": ("<1000", ">1000"),
        "tag": (":wick", ":wick agent:codex"),
    }
    [row] = trials.run("ls", "--json").json
    trials.run("tag", row["native_session_id"], "+wick")
    for name in named:
        right, wrong = (f"{name}{value}" for value in values[name])
        answers = [
            trials.run("search", "--json", *words.split()).json["hits"]
            for words in (right, f"{right} lantern", wrong, f"{wrong} lantern")
        ]

        assert [True, True, False, False] == [bool(hits) for hits in answers], name
    assert set(named) == set(values)


def _outcome(trials: Desk) -> str:
    [row] = trials.run("ls", "--json").json
    return str(row["outcome"])


def test_every_form_of_the_help_finds_what_it_says(trials: Desk) -> None:
    """A sentence, words, a phrase, a beginning, an exclusion, an alternative."""
    for words in (
        ["where did we light the lantern?"],
        ["lantern"],
        ['"tests/test_lantern.py"'],
        ["lanter*"],
        ["lantern", "OR", "saffron"],
    ):
        assert trials.run("search", "--json", "--", *words).json["hits"], words
    excluded = trials.run("search", "--json", "--", "lantern", "-lantern").json

    assert [] == excluded["hits"]


def test_the_answer_says_how_it_was_found(desk: Desk) -> None:
    """In a line below the first, and under names of their own in JSON."""
    sentence = ("search", "how did the lighthouse keeper lose the saffron")
    ran, answer = desk.run(*sentence), desk.run(*sentence, "--json").json
    exact = desk.run(*sentence, "--exact")
    typo = desk.run("search", "lihgthouse")

    assert ran.lines[1].startswith("no exact match; best matches for: ")
    assert ("any", ran.lines[1]) == (answer["how"], answer["explanation"])
    assert exact.out.startswith("no matches, ")
    assert "searched lighthouse instead of lihgthouse" == typo.lines[1]


def test_an_unknown_filter_is_said(desk: Desk) -> None:
    """With the name that was meant, found or not."""
    for words in (["lighthouse", "projct:tide"], ["xylophone", "projct:tide"]):
        out = desk.run("search", *words).out

        assert "projct: is not a filter, so it was searched as text; did you mean project:?" in out


def test_filters_alone_list_sessions(desk: Desk) -> None:
    """The newest first, each with its title."""
    answer = desk.run("search", "agent:claude", "--json").json
    lines = desk.run("search", "agent:claude").lines

    assert lines[0].startswith("2 sessions, ")
    assert 2 == sum(line.startswith("  ") for line in lines)
    assert ["session", "session"] == [hit["kind"] for hit in answer["hits"]]
    assert f"claude:{WINDOWS}" == answer["hits"][0]["session_uid"]


def test_a_kind_finds_the_events_that_show_gives(trials: Desk) -> None:
    """By their ids, for every kind that is derived from other events."""
    events = trials.run("show", logs.name(1), "--json").json["events"]
    for kind in logs.DERIVED:
        hits = trials.run("search", f"kind:{kind}", "--json").json["hits"]

        assert {e["event_id"] for e in events if e["kind"] == kind} == {
            hit["event_id"] for hit in hits
        }
        assert {e["derived_from"] for e in events if e["kind"] == kind} == {
            hit["derived_from"] for hit in hits
        }


def test_what_was_tried_again_is_found_and_opened(trials: Desk) -> None:
    """The terminal names the kind; the last line opens the session at the call."""
    ran = trials.run("search", "kind:retry", "pytest")
    name, event = ran.lines[-1].split("thence show ")[1].split(" --around ")
    opened = trials.run("show", name, "--around", event)

    assert ran.lines[0].startswith("1 match in 1 session, ")
    assert re.search(r"e[0-9a-f]{6}\s+retry\s+\[pytest\] tests/test_lantern.py", ran.out)
    assert 0 == opened.code
    assert "pytest tests/test_lantern.py" in opened.out


def test_a_kind_changes_when_the_session_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edit counts once it went well; an answer is an end until the agent goes on."""
    desk = Desk(tmp_path, monkeypatch)
    script = Script(logs.name(1))
    seen = []

    def sweep() -> None:
        logs.write(desk.claude, script)
        desk.sweep()
        counts = (
            len(desk.run("search", f"kind:{kind}", "--json").json["hits"])
            for kind in ("edit", "completion", "human_intervention")
        )
        seen.append(tuple(counts))

    script.user("Please mend the lantern.")
    script.say("I will.")
    sweep()
    script.call("c1", "Write", file_path="/p/lantern.py", content="oil")
    sweep()
    script.result("c1", "File created successfully at: /p/lantern.py")
    sweep()
    script.user("Wait.")
    script.say("Waiting.")
    sweep()

    assert [(0, 1, 0), (0, 0, 0), (1, 0, 0), (1, 1, 1)] == seen
