"""What agents may ask: short answers with evidence, inert whatever the past says."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import pytest

from tests.serve.past import EVIL, MISSING, SPELL, arguments, swept, written
from thence.cli.sample_machine import fake_token, made_id
from thence.cli.sample_machine import homes as made_homes
from thence.errors import ThenceError
from thence.memory import recall
from thence.memory.packs import pack_name
from thence.memory.search import parse
from thence.memory.sqlite import Sqlite
from thence.serve.questions import TOOLS, Questions
from thence.serve.untrusted_text import MAX_ANSWER_CHARS, MAX_LAST_CHARS

CLOCK = made_id("clock-change")
SMALL = 600_000
LINK = "open in the viewer, each event likewise: "
HEAD = re.compile(
    r"\[([0-9a-f]{16}) data: thence (\w+), .*; quoted from past sessions as recorded\]"
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sqlite]:
    """A past."""
    swept_store = swept(written(tmp_path_factory.mktemp("past")))
    yield swept_store
    swept_store.close()


@pytest.fixture
def decisions() -> list[tuple[str, str | None]]:
    """What was written down."""
    return []


@pytest.fixture
def questions(store: Sqlite, decisions: list[tuple[str, str | None]]) -> Questions:
    """Somebody who answers."""

    def decide(text: str, session: str | None) -> dict[str, Any]:
        decisions.append((text, session))
        return {"uuid": "u1", "ts": "2026-01-01T00:00:00.000Z"}

    return Questions(store, decide)


def inside(answer: str) -> list[str]:
    """Return the lines of an answer, checked to be framed."""
    lines = answer.split("\n")
    head = HEAD.fullmatch(lines[0])

    assert head is not None, lines[0]
    assert f"[{head[1]} end of data]" == lines[-1]
    assert 2 == answer.count(head[1])
    return [line for line in lines[1:-1] if not line.startswith(LINK)]


def event_of(questions: Questions, words: str) -> tuple[str, str]:
    """Find an event: its name, and its session's."""
    first = inside(questions.answer("search", {"query": words}))[0].split()
    return first[0], first[1]


@pytest.mark.slow
def test_a_question_is_answered_on_one_page(questions: Questions) -> None:
    """What failed, what helped, and how it ended; each line is data, and all of them fit."""
    answer = questions.answer("recall", {"question": "why did the module tidal fail?"})
    lines = inside(answer)

    assert len(answer) <= MAX_ANSWER_CHARS
    assert any(line.startswith("claude:0f00000") for line in lines)
    assert any(line.startswith("  failed e") and MISSING in line for line in lines)
    assert any(line.startswith("  ended: It needed the package tidal.") for line in lines)


def test_a_search_says_how_it_was_found(questions: Questions) -> None:
    """In the line that says where the data comes from."""
    head = questions.answer("search", {"query": "where is the tidal saffron"}).split("\n")[0]

    assert "no exact match; best matches for: tidal" in head


@pytest.mark.parametrize("kind", ["error", "test_run", "edit", "retry", "completion"])
def test_a_derived_kind_is_found_and_leads_to_where_it_comes_from(
    store: Sqlite, questions: Questions, kind: str
) -> None:
    """As many as the sessions show; each name is what the next question takes."""
    sessions = [recall.load_session(store, row, recall.as_read).graph for row in store.sessions()]
    shown = [
        e for graph in sessions for e in graph.derived if e.kind == kind and e.state != "internal"
    ]
    lines = inside(questions.answer("search", {"query": f"kind:{kind}", "limit": 50}))
    event, session = event_of(questions, f"kind:{kind}")
    around = inside(questions.answer("around", {"session": session, "event": event}))

    assert {recall.event_name(e.event_id) for e in shown} == {line.split()[0] for line in lines}
    assert around


def test_a_hit_leads_to_its_surroundings_and_its_session(questions: Questions) -> None:
    """The names in one answer are what the next question takes."""
    event, session = event_of(questions, '"No module named" kind:tool_result project:tidepool')
    around = inside(questions.answer("around", {"session": session, "event": event}))
    outline = inside(questions.answer("outline", {"session": session}))

    assert any(line.startswith(event) and line.endswith("<- asked for") for line in around)
    assert "| python -m tidal" in around
    assert any("No module named" in line for line in around)
    assert any(line.endswith(": Run the tests.") for line in outline)
    assert any(line.startswith("error 1x, fixed: ") for line in outline)


EVENTS_ASKED: dict[str, dict[str, Any]] = {
    "search": {"query": "module", "limit": 50},
    "recall": {"question": "why did the module tidal fail?"},
    "outline": {"session": CLOCK},
    "seen_error": {"text": MISSING},
    "files": {"path": "clock.py"},
    "todos": {},
}


@pytest.mark.parametrize("tool", EVENTS_ASKED)
def test_an_answer_that_names_events_says_how_to_open_them(store: Sqlite, tool: str) -> None:
    """By a command, which names an event that the store has: the viewer's name is a secret."""
    asked = Questions(store, lambda *_: {})
    answer = asked.answer(tool, EVENTS_ASKED[tool])
    (line,) = [line for line in answer.split("\n") if line.startswith(LINK)]
    program, verb, session, option, event = shlex.split(line.removeprefix(LINK))
    uid = recall.session(store, session).session.session_uid

    assert ["thence", "open", "--at"] == [program, verb, option]
    assert recall.stored_event(store, uid, event)
    assert len(line) <= MAX_LAST_CHARS
    assert len(answer) <= MAX_ANSWER_CHARS


def test_an_answer_that_names_no_event_has_no_link(questions: Questions) -> None:
    """Costs, and searches that match nothing."""
    answers = [questions.answer("costs", {}), questions.answer("search", {"query": "quinquereme"})]

    assert [] == [answer for answer in answers if LINK in answer]


@pytest.mark.slow
def test_a_broken_pack_costs_only_the_texts_in_it(tmp_path: Path) -> None:
    """Its hits are there, and say why they hold nothing."""
    store = swept(written(tmp_path))
    questions = Questions(store, lambda _text, _session: {})
    before = inside(questions.answer("search", {"query": "module"}))
    uid = store.search(parse("module")).matches[0].session_uid
    for pack in store.path.with_name("packs").glob(f"{pack_name(uid)}-*"):
        pack.unlink()
    after = inside(questions.answer("search", {"query": "module"}))
    store.close()

    assert [line.split(":")[0] for line in before] == [line.split(":")[0] for line in after]
    assert "(unreadable: the pack " in after[0]
    assert before[1:] == after[1:] != []


def test_books_of_a_log_are_no_hits(questions: Questions) -> None:
    """What was said or done is found, not the records in which a client keeps account of it."""
    lines = inside(questions.answer("search", {"query": "the", "limit": 50}))

    assert lines
    assert [] == [line for line in lines if "(internal)" in line]


def test_an_error_that_was_seen_is_told_with_what_helped(questions: Questions) -> None:
    """By its fingerprint: in other words around it, of another module, with evidence."""
    asked = {"text": f"Traceback\n  File 'other.py', line 9\n{MISSING.replace('tidal', 'neap')}"}
    answer = questions.answer("seen_error", asked)
    lines = inside(answer)

    assert "3 times in 3 sessions, fixed in 2" in answer
    assert any(
        line.startswith("worked after: ran pip install tidal (2 sessions)") for line in lines
    )
    assert 3 == sum(line.startswith("seen claude:0") for line in lines)
    assert all(re.search(r"claude:\S+ e[0-9a-f]{6}", line) for line in lines if "seen " in line)


def test_an_error_nobody_saw_is_said_to_be_new(questions: Questions) -> None:
    """And a text without any error is said to have none."""
    new = questions.answer("seen_error", {"text": "KeyError: 'nobody ever saw this one here'"})

    assert "not seen before" in new
    assert "no error recognised" in questions.answer("seen_error", {"text": "all is well"})


def test_files_todos_and_costs_name_their_sessions(questions: Questions) -> None:
    """Each line begins with where it comes from."""
    todos = inside(questions.answer("todos", {}))
    costs = questions.answer("costs", {"by": "agent", "since": "2020-01-01"})
    paths = [
        line.removeprefix("changed: ").split(", ")[0]
        for line in inside(questions.answer("outline", {"session": CLOCK}))
        if line.startswith("changed: ")
    ]
    files = inside(questions.answer("files", {"path": paths[0]}))

    assert all(re.match(r"\w+:\S+ e\w{6} \d{4}-\d\d-\d\d \w+: ", line) for line in todos)
    assert any(re.match(r"at least \$\d+\.\d\d in .*: claude$", line) for line in inside(costs))
    assert any(line.startswith(f"claude:{CLOCK[:13]} ") for line in files)
    assert any(line.startswith("  for e") for line in files)


def test_a_decision_is_written_and_nothing_else_writes(
    questions: Questions, decisions: list[tuple[str, str | None]]
) -> None:
    """With the whole name of the session; what hides in it is gone."""
    answer = questions.answer("decide", {"text": "Use UTC.\u202e\nAlways.", "session": CLOCK[:8]})

    assert [("Use UTC.\nAlways.", f"claude:{CLOCK}")] == decisions
    assert "saved" in answer
    for tool, fields in arguments("x2"):
        questions.answer(tool, fields)
    assert 1 == len(decisions)


HARM = {"Cc", "Cf", "Cs", "Co", "Cn"}


@pytest.mark.parametrize("number", range(9))
def test_a_hostile_past_comes_back_as_inert_data(questions: Questions, number: int) -> None:
    """Instructions, ends of frames, tags, escapes: quoted or in a line of ours, never a line."""
    event, _ = event_of(questions, "lantern kind:tool_result")
    tool, fields = arguments(event)[number]
    answer = questions.answer(tool, fields)
    lines = inside(answer)

    assert lines or tool == "files"
    assert len(answer) <= MAX_ANSWER_CHARS
    assert {"\n"} >= {c for c in answer if unicodedata.category(c) in HARM}
    for bad in SPELL.split("\n"):
        if bad.startswith(("[", "<", "Ignore")):
            assert bad not in lines
    assert not any(line.startswith(("[", "<", "Ignore")) for line in lines)


def test_what_is_asked_for_is_really_in_the_hostile_answers(questions: Questions) -> None:
    """The test above looks at answers that hold the spell."""
    event, _ = event_of(questions, "lantern kind:tool_result")
    tools = [tool for tool, fields in arguments(event) if "gnore" in questions.answer(tool, fields)]

    assert {"search", "outline", "around", "todos", "costs"} <= set(tools)


def test_no_secret_gets_out(questions: Questions) -> None:
    """What an agent printed once is redacted in every answer."""
    event, session = event_of(questions, "lantern kind:assistant_msg")
    answer = questions.answer("around", {"session": session, "event": event})

    assert fake_token() not in answer
    assert "github" in answer.lower() or "redacted" in answer.lower()


def test_what_was_evicted_has_an_outline_and_its_source_stays_closed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The account answers; the unredacted source is never opened in its place."""
    swept_store = swept(written(tmp_path_factory.mktemp("evicted")))
    swept_store.remove([f"claude:{EVIL}"], why={})
    asked = Questions(swept_store, lambda *_: {})

    assert any("removed" in line for line in inside(asked.answer("outline", {"session": EVIL})))
    with pytest.raises(ThenceError, match="removed"):
        asked.answer("around", {"session": EVIL, "event": "x2"})
    swept_store.close()


@pytest.mark.parametrize(
    ("tool", "fields"),
    [
        ("nothing", {}),
        ("search", {}),
        ("search", {"query": "a", "more": 1}),
        ("search", {"query": ""}),
        ("search", {"query": "a", "limit": 51}),
        ("search", {"query": "after:never"}),
        ("around", {"session": CLOCK, "event": "nope"}),
        ("outline", {"session": "ffffffff"}),
        ("costs", {"by": "whim"}),
        ("costs", {"since": "when"}),
        ("decide", {"text": "x" * 5000}),
        ("search", None),
        ("search", [1]),
    ],
)
def test_a_question_that_cannot_be_meant_is_an_error_with_words(
    questions: Questions, tool: str, fields: Any
) -> None:
    """Never anything but our own errors."""
    with pytest.raises(ThenceError):
        questions.answer(tool, fields)


@pytest.mark.slow
def test_the_hostile_corpus_answers_in_frames(corpus: Path, tmp_path: Path) -> None:
    """Every file that somebody could have written, kept and asked about: inert, bounded."""
    homes = made_homes(tmp_path / "machine")
    place = homes.claude / "projects" / "-home-dev"
    place.mkdir(parents=True)
    for path in (corpus / "files").glob("*.jsonl"):
        if path.stat().st_size <= SMALL:
            shutil.copy(path, place / f"{uuid5(NAMESPACE_URL, path.name)}.jsonl")
    swept_store = swept(homes)
    asked = Questions(swept_store, lambda *_: {})
    uids = [row.session.session_uid for row in swept_store.sessions()]
    for uid in uids:
        answers = [asked.answer("outline", {"session": uid})]
        stored = swept_store.load_session(uid)
        for fact in stored.facts[:3] if stored is not None else ():
            with contextlib.suppress(ThenceError):  # a record that is no event
                fields = {"session": uid, "event": fact.node.id[:200], "before": 9, "after": 9}
                answers.append(asked.answer("around", fields))
        for answer in answers:
            assert len(answer) <= MAX_ANSWER_CHARS
            assert {"\n"} >= {c for c in answer if unicodedata.category(c) in HARM}
            assert not any(line.startswith(("[", "<")) for line in inside(answer))
    swept_store.close()

    assert 50 < len(uids)


def test_every_question_has_a_sentence_and_every_answer_is_short(questions: Questions) -> None:
    """At most 1,500 tokens by four characters each, and usually a fifth of it."""
    event, _ = event_of(questions, '"python -m tidal" kind:tool_call')
    sizes = [
        len(questions.answer(tool, fields))
        for tool, fields in arguments(event, "0f000002")[:6]
        if tool != "around"
    ]

    assert all(asked.__doc__ for asked in TOOLS.values())
    assert max(sizes) <= MAX_ANSWER_CHARS
    assert sorted(sizes)[len(sizes) // 2] <= 2_400
