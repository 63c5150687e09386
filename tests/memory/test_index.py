"""Questions to the words of a store: what is found, in which order, and how far back."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agents.transcripts import Script, usage
from tests.memory import logs
from tests.memory.stored import sweep
from thence.errors import SessionNotFound
from thence.format.normal import KINDS
from thence.memory import index, ranking, sqlite, sqlite_schema
from thence.memory.packs import CACHED_BYTES, Frames, Packs, Ref
from thence.memory.ranking import Row
from thence.memory.search import BadQuery, Query, SearchAnswer, hits, parse
from thence.memory.sqlite import Sqlite
from thence.memory.store import STATES

WORD = "saltmarsh"


def write(home: Path, script: Script, *, day: int = 1, project: str = "-home-dev-reeds") -> None:
    """Write a session that was on this day of January."""
    for record in script.records:
        record["timestamp"] = record["timestamp"].replace("2026-01-01", f"2026-01-{day:02}")
    logs.write(home, script, project=project)


def script(number: int, cwd: str = "/home/dev/reeds") -> Script:
    """An empty session."""
    return Script(logs.name(number), f"s{number}-", cwd=cwd)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home of Claude's."""
    return tmp_path / "home"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the store goes."""
    return tmp_path / "store"


def opened(place: Path, home: Path) -> Sqlite:
    """Sweep, and open what came of it."""
    sweep(place, {"claude": [home]})
    return Sqlite(str(place / "s.db"))


def snippets(store: Sqlite, text: str, **page: int) -> list[str]:
    """The snippets of an answer, without their marks."""
    query = parse(text)
    page_hits = hits(store.search(query, **page), query, store.blobs).hits
    return [hit.snippet.replace("\x02", "").replace("\x03", "") for hit in page_hits]


# -- order and pages ----------------------------------------------------------------------------


def test_pages_are_parts_of_one_answer(home: Path, place: Path) -> None:
    """Put together they are the whole, each hit once, whatever their size."""
    for number in range(1, 6):
        log = script(number)
        for turn in range(9):
            log.user(f"{WORD} number {number} turn {turn}")
        write(home, log, day=number)
    store = opened(place, home)
    expected = snippets(store, WORD, limit=100)
    pages = [snippets(store, WORD, limit=7, offset=at) for at in range(0, 49, 7)]

    assert 45 == len(set(expected))
    assert expected == [text for page in pages for text in page]


def test_newer_comes_before_older(home: Path, place: Path) -> None:
    """Of the same kind of event, whichever was read first."""
    for number, day in ((1, 20), (2, 3), (3, 11)):
        log = script(number)
        log.user(f"{WORD} of day {day}")
        write(home, log, day=day)
    texts = snippets(opened(place, home), WORD)

    assert [f"{WORD} of day {day}" for day in (20, 11, 3)] == texts


def test_a_note_of_the_harness_comes_behind_the_message_that_it_repeats() -> None:
    """Also where the message was taken back: it is what somebody said."""
    kinds, states = list(KINDS), [state.value for state in STATES]
    prompt, noted = kinds.index("user_msg"), kinds.index("lifecycle")

    def worth(kind: int, state: str) -> float:
        return ranking.WORTHS[kind][states.index(state)]

    assert worth(prompt, "live") > worth(prompt, "rolled_back") > worth(noted, "internal")


def test_what_people_said_comes_before_what_tools_printed(home: Path, place: Path) -> None:
    """And both before what was left behind."""
    log = script(1)
    start = log.user("look at it")
    log.call("c1", "Bash", command="ls")
    log.result("c1", f"{WORD} as a tool prints it")
    log.user(f"{WORD} as somebody left it behind", parentUuid=start)
    log.user(f"{WORD} as somebody says it", parentUuid=start)
    write(home, log)
    texts = snippets(opened(place, home), WORD)

    assert f"{WORD} as somebody says it" == texts[0]
    assert {f"{WORD} as a tool prints it", f"{WORD} as somebody left it behind"} == set(texts[1:])


# -- what it takes ----------------------------------------------------------------------------


class _Work:
    """What a search does: statements, packs that are opened, frames that are inflated."""

    def __init__(self, store: Sqlite, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: list[str] = []
        self.packs: list[str] = []
        self.frames: list[tuple[str, int]] = []
        open_pack, decode = Packs._open_pack, Packs._decode

        def note_statement(_: apsw.Cursor, statement: str, __: object) -> bool:
            self.statements.append(statement)
            return True

        def note_pack(packs: Packs, where: Ref) -> int:
            self.packs.append(where.file)
            return open_pack(packs, where)

        def note_frame(packs: Packs, handle: int, where: Ref) -> bytes:
            self.frames.append((where.file, where.offset))
            return decode(packs, handle, where)

        store._db.exec_trace = note_statement
        monkeypatch.setattr(Packs, "_open_pack", note_pack)
        monkeypatch.setattr(Packs, "_decode", note_frame)


def test_a_search_does_as_little_for_many_hits_as_for_few(
    home: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No statement a hit, no page of events; each pack is opened and each frame inflated once."""
    for number in range(1, 5):
        log = script(number)
        for line in range(200):
            log.user(f"{WORD} number {line} of session {number}")
        write(home, log, day=number)
    with contextlib.closing(opened(place, home)) as store:
        monkeypatch.setattr(index, "BUDGET_S", 60.0)
        work = _Work(store, monkeypatch)
        few = snippets(store, WORD, limit=4)
        statements = len(work.statements)
        seen: tuple[list[Any], ...] = (work.statements, work.packs, work.frames)
        for noted in seen:
            noted.clear()
        store.blobs._frames = Frames(CACHED_BYTES)  # type: ignore[attr-defined]
        many = snippets(store, WORD, limit=60)

    assert (4, 60) == (len(few), len(many))
    assert all(WORD in text for text in many)
    assert statements == len(work.statements) <= 8
    assert not any("event_pages" in text or "facts" in text for text in work.statements)
    assert sorted(set(work.packs)) == sorted(work.packs)
    assert sorted(set(work.frames)) == sorted(work.frames)
    assert 4 == len(work.packs)


# -- how far --------------------------------------------------------------------------------------


@pytest.fixture
def many_tables(home: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sqlite]:
    """Twelve days, each in a table of its own."""
    monkeypatch.setattr(index, "TABLE_BYTES", 64)
    for day in range(1, 13):
        log = script(day, cwd=f"/home/dev/{'old' if day == 1 else 'new'}")
        log.user(f"{WORD} " + "and much else that fills a table " * 4)
        write(home, log, day=day)
    store = opened(place, home)
    yield store
    store.close()


def test_everything_is_searched_while_there_is_time(
    many_tables: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then nothing was left out, and the answer says so."""
    monkeypatch.setattr(index, "BUDGET_S", 60.0)
    answer = many_tables.search(parse(WORD), 100)

    assert (12, False) == (len(answer.matches), answer.capped)
    assert (answer.searched_back_to or "").startswith("2026-01-01")


def test_without_time_the_newest_are_searched_and_that_is_told(
    many_tables: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far back as it takes to have enough, and not a table further."""
    monkeypatch.setattr(index, "BUDGET_S", -1.0)
    answer = many_tables.search(parse(WORD), 3)

    assert answer.capped
    assert "2026-01-01" < (answer.searched_back_to or "")[:10] < "2026-01-12"
    assert ["2026-01-12", "2026-01-11", "2026-01-10"] == days(answer)


def test_a_long_word_that_is_nowhere_spares_the_others(
    many_tables: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All words together are looked for only where the longest of them is, with the same answer."""
    monkeypatch.setattr(index, "BUDGET_S", 60.0)
    asked: list[str] = []
    table = index.SqliteWords._table

    def counted(source: index.SqliteWords, name: str, query: Query, cap: int) -> list[Row]:
        asked.append(query.match)
        return table(source, name, query, cap)

    monkeypatch.setattr(index.SqliteWords, "_table", counted)
    answer = many_tables.search(parse(f"{WORD} fills table /srv/app/nowhere.py:1"), 100)
    spared = [match for match in asked if " AND " in match]
    asked.clear()
    few = many_tables.search(parse(f"{WORD} fills table much"), 100)

    assert [] == spared
    assert 12 == len(answer.matches) == len(few.matches)
    assert ("any", "all") == (answer.how, few.how)
    assert 12 == sum(" AND " in match for match in asked)


def test_words_that_look_like_marks_of_events_are_found_in_texts_only(
    home: Path, place: Path
) -> None:
    """Every prompt is marked as one; who types such a mark means the word."""
    for day, text in ((1, "kindusermsg is a token"), (2, "nothing of that kind")):
        log = script(day)
        log.user(text)
        write(home, log, day=day)
    with contextlib.closing(opened(place, home)) as store:
        assert ["2026-01-01"] == days(store.search(parse("kindusermsg"), 5))
        assert ["2026-01-01"] == days(store.search(parse("kinduser*"), 5))
        assert ["2026-01-02"] == days(store.search(parse("nothing kind -token"), 5))


def days(answer: SearchAnswer) -> list[str]:
    """The days of what was found."""
    return [str(index.time_column(hit.ts))[:10] for hit in answer.matches]


def test_filters_come_before_the_cap(many_tables: Sqlite, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wanted is found, however much newer there is that is not."""
    monkeypatch.setattr(ranking, "MAX_ROWS", 2)

    assert ["2026-01-01"] == days(many_tables.search(parse(f"project:old {WORD}")))
    assert ["2026-01-03", "2026-01-02"] == days(
        many_tables.search(parse(f"after:2026-01-02 before:2026-01-04 {WORD}"))
    )
    assert many_tables.search(parse(WORD)).capped


# -- the language -----------------------------------------------------------------------------


@pytest.fixture
def reeds(home: Path, place: Path) -> Iterator[Sqlite]:
    """Two sessions: one that went well and cost money, one that got no answer."""
    first, second = script(1), script(2, cwd="/home/dev/dunes")
    first.user("the heron walks in the reeds")
    first.call("c1", "Bash", command="grep heron birds_of_passage.txt")
    first.result("c1", "heron: grey")
    first.reply([{"type": "text", "text": "done, the heron is grey"}], usage=usage(900_000))
    second.user("the bittern booms; ein Käuzchen auch")
    write(home, first, day=5)
    write(home, second, day=9, project="-home-dev-dunes")
    store = opened(place, home)
    yield store
    store.close()


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("heron", 4),
        ("HERON", 4),
        ("heron reeds", 1),
        ('"heron walks"', 1),
        ('"walks heron"', 0),
        ("her*", 4),
        ("her", 0),
        ("heron -grey", 2),
        ("heron OR bittern", 5),
        ("kauzchen", 1),
        ("birds_of_passage", 1),
        ("file:birds_of_passage.txt", 1),
        ("tool:Bash heron", 2),
        ("kind:user_msg heron", 1),
        ("agent:claude heron", 4),
        ("agent:codex heron", 0),
        ("project:dunes bittern", 1),
        ("project:dunes heron", 0),
        ("model:nothing heron", 0),
        ("after:2026-01-06 heron", 0),
        ("before:2026-01-06 heron", 4),
        ("outcome:unknown bittern", 1),
        ("outcome:unknown heron", 0),
        ("cost>1000000 heron", 0),
        ("cost<1000000 heron", 4),
    ],
)
def test_every_word_of_the_language_narrows_as_it_says(
    reeds: Sqlite, text: str, number: int
) -> None:
    """On a real index, with what it makes of case, accents and signs."""
    assert number == len(reeds.search(parse(text, exact=True)).matches)


def test_evicted_sessions_are_found_by_their_digests(reeds: Sqlite) -> None:
    """Without an event to lead to, and without those that are still there twice."""
    uid = f"claude:{logs.name(1)}"
    reeds.remove([uid], why={uid: "asked"})
    query = parse("heron")
    [hit] = hits(reeds.search(query), query, reeds.blobs).hits

    assert (uid, "digest", None, None) == (hit.session_uid, hit.kind, hit.seq, hit.event_id)
    assert "heron" in hit.snippet
    assert 1 == len(reeds.search(parse("bittern")).matches)


_signs = st.text(st.sampled_from("ab *\"'()-:^{}+\\NEAR AND OR NOT\0\n%_;<>=é\ud800"), max_size=24)
_pieces = st.sampled_from(
    [
        *(
            '"',
            "a*",
            "*",
            "-",
            "OR",
            "AND",
            "NOT",
            "NEAR(a b)",
            "body:",
            "meta : x",
            "kind:user_msg",
        ),
        *(
            "agent:",
            "cost>1",
            "cost<",
            "before:2026",
            "after:1w",
            "file:a.py",
            "tool:a;b",
            "^a",
            "{a}",
        ),
    ]
)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sqlite]:
    """A store with a word in it, and a digest whose session was evicted."""
    folder = tmp_path_factory.mktemp("asked")
    for number in (1, 2):
        log = script(number)
        log.user("a ab b")
        write(folder / "home", log)
    store = opened(folder / "store", folder / "home")
    store.remove([f"claude:{logs.name(2)}"], why={})
    yield store
    store.close()


@given(st.one_of(_signs, st.lists(_pieces | _signs, max_size=5).map(" ".join)))
def test_no_question_breaks_the_index(asked: Sqlite, text: str) -> None:
    """Whatever is typed is answered, or refused in words."""
    with contextlib.suppress(BadQuery):
        matches = asked.search(parse(text)).matches

        assert len(matches) <= 2


# -- going ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [64, 2048, index.TABLE_BYTES])
@pytest.mark.parametrize("together", [3, 250])
def test_many_sessions_go_at_once_and_no_other(
    home: Path, place: Path, monkeypatch: pytest.MonkeyPatch, size: int, together: int
) -> None:
    """However they share the tables of the index, and however few go in one transaction."""
    monkeypatch.setattr(index, "TABLE_BYTES", size)
    monkeypatch.setattr(sqlite, "BATCH_SESSIONS", together)
    for number in range(20):
        log = script(number)
        log.call("c1", "Bash", command="cat notes")
        log.result("c1", f"{number}th {WORD} " * 9)
        write(home, log)
    store = opened(place, home)
    going = [f"claude:{logs.name(number)}" for number in range(20) if number % 7 > 1]
    pending = store.remove(going, why={})
    remaining = {f"claude:{logs.name(number)}" for number in range(20)} - {*going}
    uids = {hit.session_uid for hit in store.search(parse(WORD), 100).matches}

    assert [] == pending
    assert remaining == uids
    assert {f"{number}th" for number in range(20) if number % 7 < 2} == _terms(place)


def _terms(place: Path) -> set[str]:
    """The numbers that stand in the index, whether a search would show them or not."""
    with contextlib.closing(apsw.Connection(str(place / "s.db"))) as db:
        terms: set[str] = set()
        for (name,) in db.execute("SELECT name FROM tables").fetchall():
            db.execute(f"CREATE VIRTUAL TABLE temp.v_{name} USING fts5vocab(main, {name}, row)")
            terms |= {term for (term,) in db.execute(f"SELECT term FROM temp.v_{name}")}
    return {term for term in terms if re.fullmatch(r"\d+th", term)}


def test_a_session_that_is_not_there_is_said_before_any_goes(home: Path, place: Path) -> None:
    """So that a mistake costs nothing."""
    write(home, script(1))
    log = script(2)
    log.user(WORD)
    write(home, log)
    store = opened(place, home)
    with pytest.raises(SessionNotFound):
        store.remove([f"claude:{logs.name(2)}", "claude:nobody"], why={})

    assert [WORD] == snippets(store, WORD)


def test_rows_of_a_session_that_goes_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not once for every table there is: with many of both that took minutes."""
    monkeypatch.setattr(index, "TABLE_BYTES", 100)
    db = apsw.Connection(":memory:")
    for migration in sqlite_schema.MIGRATIONS:
        db.execute(migration)
    words = index.WordIndex(db)
    rows = [(number, number % 5, number) for number in range(1, 101)]
    db.executemany("INSERT INTO events VALUES(?, ?, ?, 0, 0, 0, NULL, 0, NULL, 0, 0, NULL)", rows)
    words.add((number, "eight words that fill a part of a table", "") for number, *_ in rows)
    asked: list[str] = []

    def trace(_cursor: apsw.Cursor, sql: str, _bindings: object) -> bool:
        asked.append(sql)
        return True

    db.exec_trace = trace
    words.delete(range(4))

    assert 20 <= len(db.execute("SELECT name FROM tables").fetchall())
    assert 4 == sum("session=?" in sql for sql in asked)
