"""The order of answers: the same on both stores, best first, and what the answer says of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from tests.pace import by_pace
from tests.postgres import Cluster
from tests.rules import rules
from thence.format.derived_events import time_of
from thence.format.normal import Kind
from thence.format.stored import StoredEvent
from thence.memory import index, ranking
from thence.memory.search import SearchAnswer, begun, meta, parse
from thence.memory.sqlite import Sqlite
from thence.memory.store import SessionChange, Store, Words
from thence.team import postgres_search
from thence.team.copying import copy
from thence.team.postgres import Postgres
from thence.testing import stores

DAY = 86_400_000

PAST: dict[str, Sequence[tuple[str, str]]] = {
    "tide": [
        ("user_msg", "the tide window is an hour off since the clock changed"),
        ("assistant_msg", "the tide window was reckoned in local time; it uses the UTC clock now"),
    ],
    "list": [
        ("user_msg", "print all words of the almanac"),
        ("tool_result", "tide moon window door almanac lamp and a thousand others"),
    ],
    "clock": [("user_msg", "buy a clock"), ("tool_result", "an hour of a clock")],
    "window": [("user_msg", "clean the window of the harbour office")],
    "names": [
        ("user_msg", "rename parseHarbourChart please"),
        ("tool_call", "parseHarbourChart mooring_line_length"),
        ("assistant_msg", "deserialization of buoys works again"),
    ],
}


def moved(row: StoredEvent, kind: str, later: timedelta) -> StoredEvent:
    """Return an event of another kind, some time later."""
    moment = time_of(row.event.ts)
    assert moment is not None
    ts = (moment + later).isoformat(timespec="milliseconds")
    event = msgspec.structs.replace(row.event, ts=ts, kind=cast("Kind", kind))
    return msgspec.structs.replace(row, event=event)


def planted(store: Store, name: str, lines: Sequence[tuple[str, str]], day: int) -> SessionChange:
    """A session of this day that says these texts, each as an event of a kind."""
    change = stores._session(store, name, *["-"] * len(lines))
    change.words = [
        Words(row.event.event_id, text, meta("claude", kind, None))
        for row, (kind, text) in zip(change.events, lines, strict=True)
    ]
    change.events = [
        moved(row, kind, timedelta(milliseconds=day * DAY + at))
        for at, (row, (kind, _)) in enumerate(zip(change.events, lines, strict=True))
    ]
    return change


@pytest.fixture(autouse=True)
def _time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a busy machine cut no search short."""
    for module in (index, postgres_search):
        monkeypatch.setattr(module, "BUDGET_S", 600.0)


@pytest.fixture(scope="module")
def both(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Store]]:
    """The same past in both stores."""
    place = tmp_path_factory.mktemp("ranking")
    made: list[Store] = [
        Sqlite(f"{place}/s.db"),
        Postgres(postgres.url(tenant="ranking", machine="here")),
    ]
    for store in made:
        for day, (name, lines) in enumerate(PAST.items()):
            store.write([planted(store, name, lines, day)])
    yield made
    for store in made:
        store.close()


def asked(both: list[Store], text: str, **more: Any) -> tuple[list[str], SearchAnswer]:
    """The sessions that answer, the best first; both stores must say the same."""
    first, second = (store.search(parse(text, **more), 50) for store in both)
    matches = [
        [(f.session_uid, f.event_id, f.kind, f.score, f.seq) for f in answer.matches]
        for answer in (first, second)
    ]
    assert matches[0] == matches[1]
    words = [
        (answer.how, answer.words, answer.instead, answer.total, answer.sessions, answer.count)
        for answer in (first, second)
    ]
    assert words[0] == words[1]
    names = [hit.session_uid.partition(":")[2] for hit in first.matches]
    return list(dict.fromkeys(names)), first


def test_a_sentence_finds_the_session_that_is_about_it(both: list[Store]) -> None:
    """Though no event has all of its words; question words do not count."""
    names, answer = asked(both, "how did we mend the tide window when the clock moved")

    assert "tide" == names[0]
    assert ("any", {"tide", "window", "clock"}) == (answer.how, set(answer.words))
    assert answer.explanation.startswith("no exact match; best matches for: ")


def test_a_session_about_something_comes_before_one_that_names_it(both: list[Store]) -> None:
    """A prompt and an answer before a list that a tool printed, which is newer."""
    names, answer = asked(both, "tide window")

    assert ["tide", "list"] == names[:2]
    assert ("all", "") == (answer.how, answer.explanation)


def test_exact_words_are_all_there(both: list[Store]) -> None:
    """Nothing else answers where that is asked for, or a phrase is quoted."""
    assert (["tide", "list"], []) == (
        asked(both, "tide window", exact=True)[0],
        asked(both, "tide lighthouse", exact=True)[0],
    )
    assert ["tide"] == asked(both, '"tide window"')[0]
    assert [] == asked(both, '"window tide"')[0]


def test_a_quoted_part_of_a_pasted_error_is_one_of_its_words(both: list[Store]) -> None:
    """A must while something has all of it; else the other words answer, and that is said."""
    names, answer = asked(both, 'Error: buoys "of the harbour office" at line 7')

    assert ["window"] == asked(both, 'clean "harbour office"')[0]
    assert "window" in names
    assert "any" == answer.how
    assert answer.explanation.startswith("no exact match; best matches for: ")
    assert [] == asked(both, '"harbour tide" "tide window" file:chart.py')[0]


def test_plurals_and_singulars_are_found_by_each_other(both: list[Store]) -> None:
    """For words that are nowhere, and behind the very word where that is somewhere."""
    names, answer = asked(both, "almanacs moons")
    clocks, _ = asked(both, "clocks buoys lantern")

    assert ["list"] == names
    assert {("almanacs", "almanac"), ("moons", "moon")} == set(answer.instead)
    assert "names" == clocks[0]
    assert {"tide", "clock"} <= set(clocks)


@pytest.mark.parametrize(
    ("typed", "instead"),
    [
        ("harbor", "harbour"),
        ("harbuor", "harbour"),
        ("lighted almanacs", "almanac"),
        ("deserial", "deserial*"),
        ("HarbourOffice", "harbour or office"),
        ("serialization", "deserialization"),
        ("harbourchart", "parseharbourchart"),
    ],
)
def test_a_word_that_is_nowhere_is_looked_for_otherwise(
    both: list[Store], typed: str, instead: str
) -> None:
    """By its parts, its beginning, other forms, near spellings; the answer says which."""
    names, answer = asked(both, typed)

    assert names
    assert "near" == answer.how
    assert instead in [other for _, other in answer.instead]
    assert f"searched {answer.instead[0][1]} instead of" in answer.explanation


def test_nothing_is_found_where_nothing_is_near(both: list[Store]) -> None:
    """And no sentence about it."""
    names, answer = asked(both, "xylophone quartet")

    assert ([], "") == (names, answer.explanation)


def test_the_last_word_may_be_a_beginning_while_it_is_typed(both: list[Store]) -> None:
    """Only the last one, and not after a blank."""
    assert ["names"] == asked(both, begun("parseHar"), exact=True)[0]
    assert [] == asked(both, begun("parseHar "), exact=True)[0]
    assert [] == asked(both, begun("parseHar rename"), exact=True)[0]


def test_filters_alone_list_sessions(both: list[Store]) -> None:
    """The newest first, without an event."""
    names, answer = asked(both, "agent:claude project:o")

    assert names
    assert ("filters", {"session"}) == (answer.how, {hit.kind for hit in answer.matches})
    assert {None} == {hit.event_id for hit in answer.matches}
    assert names[:2] == [
        f.session_uid.partition(":")[2]
        for f in both[0].search(parse("agent:claude project:o"), 2).matches
    ]


def test_an_unknown_filter_is_said_with_a_hint(both: list[Store]) -> None:
    """Whatever else was found; text with a colon that is no filter passes."""
    hints = [
        asked(both, text)[1].hints
        for text in ("projct:tidepool tide", "branch:main tide", "tide https://example.com std::x")
    ]

    assert (
        "projct: is not a filter, so it was searched as text; did you mean project:?",
    ) == hints[0]
    assert hints[1][0].startswith(
        "branch: is not a filter, so it was searched as text; filters are agent,"
    )
    assert () == hints[2]


def test_few_hits_of_a_session_come_before_more_of_it(postgres: Cluster, tmp_path: Path) -> None:
    """Three of each session, so that a long one does not hide the others."""
    made: list[Store] = [
        Sqlite(f"{tmp_path}/s.db"),
        Postgres(postgres.url(tenant="ranking few", machine="here")),
    ]
    for store in made:
        long = [("user_msg", f"kelp number {at}") for at in range(9)]
        store.write([planted(store, "long", long, 2)])
        store.write([planted(store, "short", [("user_msg", "kelp once")], 1)])
    orders = [
        [hit.session_uid.partition(":")[2] for hit in store.search(parse("kelp"), 6).matches]
        for store in made
    ]
    for store in made:
        store.close()

    assert [["long"] * 3 + ["short"] + ["long"] * 2] * 2 == orders


@pytest.mark.slow
@pytest.mark.sampled
def test_both_stores_answer_all_questions_alike(
    shared: Path, postgres: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The questions of the benchmark, over real logs, give the same sessions in the same order."""
    for name in ("MAX_ROWS", "MAX_WORD_ROWS"):  # the newest rows of a copy are those that came last
        monkeypatch.setattr(ranking, name, 100_000)
    from bench import bench_questions
    from tests.memory.stored import sweep

    home = tmp_path / "home"
    bench_questions.copy_logs(home)
    agents = by_pace(("codex",), ("codex",), ("claude", "codex", "grok"))
    sweep(tmp_path / "store", {agent: [home / f".{agent}"] for agent in agents})
    answered = 0
    with (
        closing(Sqlite(f"{tmp_path}/store/s.db")) as local,
        closing(Postgres(postgres.url(tenant="questions", machine="here"))) as remote,
    ):
        copy(local, remote, rules())
        for question in bench_questions.load_questions()[:: by_pace(everyday=30, full=30, prove=1)]:
            query = parse(question.question)
            matches = [
                [(f.session_uid, f.event_id) for f in store.search(query, 20).matches]
                for store in (local, remote)
            ]

            answered += bool(matches[0])

            assert matches[0] == matches[1], question.question
    assert answered > 3
