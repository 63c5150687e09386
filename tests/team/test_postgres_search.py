"""Words in Postgres: the same hits as SQLite's, on the same texts, whatever is asked."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.postgres import Cluster
from thence.cli import checks
from thence.memory import ranking
from thence.memory import search as search_module
from thence.memory.cjk_pairs import index_text
from thence.memory.index import every
from thence.memory.search import BadQuery, Query, parse
from thence.memory.sqlite import Sqlite
from thence.memory.store import Filter, SessionChange, Store, Words
from thence.team import postgres_schema as schema
from thence.team import postgres_search as module
from thence.team.postgres import Postgres
from thence.team.postgres_search import (
    Vector,
    VectorDumper,
    marks_of,
    vectors,
    words_in,
)
from thence.testing import stores

TEXTS = (
    "the cat sat on the mat",
    "a dog in test_calc.py, line 12",
    "cat and dog; dead: ValueError('bad thing') at /usr/lib/python3.11/site.py",
    "Ünïcödé naïve café ΣΊΣΥΦΟΣ straße 東京 タワー x²",
    "user@example.com https://example.com/a/b?c=d#e 3.14 -7 1e5 0x1F v1.2.3-rc4",
    "don't o'neil it's 'quoted' back\\slash per%cent under_score semi;colon & | ! ( ) <-> :*",
    "repeat repeat repeat cat repeat",
    "\u0301combining e\u0301 \ue000private \u200dzero\u200bwidth",
)
ODD = "/Wörk/50%_off!/Back\\slash/ÄPFEL"
WORDS = sorted({word for text in TEXTS for word in words_in(text)})


def change_of(
    store: Store, name: str, texts: Sequence[str], agent: str = "claude"
) -> SessionChange:
    """A session whose events say these texts, kinds and tools in turn."""
    change = stores._session(store, name, *["-"] * len(texts))
    kinds = itertools.cycle((("user_msg", None), ("tool_call", "Bash"), ("tool_result", "Bash")))
    change.words = [
        Words(event.event.event_id, text, search_module.meta(agent, kind, tool))
        for event, text, (kind, tool) in zip(change.events, texts, kinds, strict=False)
    ]
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for at, row in enumerate(change.events):
        moment = (start + timedelta(milliseconds=at)).isoformat(timespec="milliseconds")
        event = msgspec.structs.replace(row.event, ts=moment)
        change.events[at] = msgspec.structs.replace(row, event=event)
    return change


@pytest.fixture(scope="module")
def both(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Store]]:
    """The same texts in both stores; pieces so short that many texts are cut."""
    place = tmp_path_factory.mktemp("both")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "MAX_PLACES", 100)
        patched.setattr(module, "OVERLAP_CHARS", 8)
        stored: list[Store] = [
            Sqlite(f"{place}/s.db"),
            Postgres(postgres.url(tenant="same hits", machine="here")),
        ]
        long = " ".join(f"{text} filler{at}" for at, text in enumerate(TEXTS * 30))
        for store in stored:
            store.write([change_of(store, "short", TEXTS), change_of(store, "long", [long, "end"])])
            store.write([change_of(store, "other", [*TEXTS[::-1], "fox " * 300 + "trot"])])
            store.write(digests=[stores._digest("claude:short", 1)])
            odd = change_of(store, "odd", TEXTS[:3])
            session = msgspec.structs.replace(odd.row.session, cwd=ODD, model="Big-Ä_1")
            odd.row = msgspec.structs.replace(odd.row, session=session)
            store.write([odd])
    yield stored
    for store in stored:
        store.close()


def hits(store: Store, query: Query) -> list[tuple[object, ...]]:
    """All that is found, without the numbers of rows."""
    answer = store.search(query, limit=1000)
    return [
        (f.session_uid, f.event_id, f.ts, f.kind, f.state, f.score, f.seq) for f in answer.matches
    ]


@pytest.mark.parametrize(
    "text",
    [
        *("cat", "CAT", "cat dog", '"cat sat"', '"sat cat"', "mat OR dead", "d*", "cat -dog"),
        *("test_calc", "test_calc.py", "file:test_calc.py", "agent:claude cat", "agent:codex"),
        *("tool:Bash", "kind:user_msg", "kind:user_msg cat", "café", "cafe", "naive", "ΣΙΣΥΦΟΣ"),
        *("東京", "タワ*", "straße", "strasse", "x²", "user@example.com", "example.com/a", "3.14"),
        *("-7 cat", "1e5", "0x1f", "v1.2.3", "don't", "o'neil", "back\\slash", "<->", ":*", "!"),
        *('"repeat repeat"', '"repeat repeat repeat cat"', "rep* -cat", "filler0 filler239"),
        *("filler7 -filler200", '"fox trot"', '"fox fox fox trot"', "fox trot -cat", "nothing"),
        *("project:short cat", "project:long filler3", "outcome:unknown cat", "after:2030 cat"),
        *(
            "before:2030 cat",
            "cost<1 cat",
            "cost>1 cat",
            "model:made cat",
            '"combining e"',
            "tool:",
        ),
        *("project:HOR cat", "project:% cat", "project:_ cat", "project:! cat", "project:\\S cat"),
        *("project:50%_O cat", "project:%off cat", "project:wörk cat", "project:WÖRK cat"),
        *(
            "project:äpfel cat",
            "project:ÄP cat",
            "project:k/5 cat",
            "model:IG-Ä cat",
            "model:_1 cat",
        ),
        *("project:\ud800 cat", 'project:"" cat', "model:g_ä cat", "project:nowhere cat"),
        *("file:test*", "file:test_ca*", "file:calc.p*", 'file:"test calc*"', "file:est_calc*"),
        *("\u0301", "\ue000private", "zero OR width", "cat OR fox trot", '""', "-cat tool:bash"),
    ],
)
def test_same_hits_on_both_stores(both: list[Store], text: str) -> None:
    """In the same order, with the same worth; a long text is one, however it is cut."""
    sqlite, postgres = (hits(store, parse(text)) for store in both)

    assert sqlite == postgres


pieces = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from(WORDS).map(lambda word: f"{word[:2]}*"),
    st.lists(st.sampled_from(WORDS), min_size=2, max_size=4).map(lambda ws: f'"{" ".join(ws)}"'),
    st.sampled_from(WORDS).map(lambda word: f"-{word}"),
    st.sampled_from(["OR", "tool:Bash", "kind:tool_call", "agent:claude", "project:o"]),
    st.text(max_size=6),
)


@settings(max_examples=max(settings().max_examples // 2, 25))
@given(st.lists(pieces, min_size=1, max_size=4))
def test_same_hits_whatever_is_asked(both: list[Store], asked: list[str]) -> None:
    """Words, beginnings, phrases, exclusions, alternatives, filters and any text at all."""
    try:
        query = parse(" ".join(asked))
    except BadQuery:
        return

    assert hits(both[0], query) == hits(both[1], query)


def test_pages_are_parts_of_the_whole(both: list[Store]) -> None:
    """On both stores the same parts."""
    query = parse("cat")
    for offset in range(0, 8, 3):
        pages = [
            [(f.session_uid, f.event_id) for f in store.search(query, 3, offset).matches]
            for store in both
        ]
        assert pages[0] == pages[1]


def test_both_say_how_far_they_looked(both: list[Store]) -> None:
    """Back to the first event."""
    first, second = (store.search(parse("cat")) for store in both)

    assert (False, False) == (first.capped, second.capped)
    assert first.searched_back_to == second.searched_back_to


# -- vectors --------------------------------------------------------------------------------


def unpacked(vector: bytes) -> dict[str, list[int]]:
    """Read a packed vector as the database does: words, and where they stand."""
    count, at = int.from_bytes(vector[:4], "big"), 4
    out: dict[str, list[int]] = {}
    for _ in range(count):
        end = vector.index(b"\0", at)
        places = int.from_bytes(vector[end + 1 : end + 3], "big")
        stop = end + 3 + 2 * places
        out[vector[at:end].decode()] = list(struct.unpack(f">{places}H", vector[end + 3 : stop]))
        at = stop
    assert (at, count) == (len(vector), len(out))
    return out


@given(st.text(max_size=300), st.integers(1, 30), st.integers(1, 12))
def test_pieces_hold_every_word_and_every_short_phrase(text: str, places: int, often: int) -> None:
    """However small they are cut: what stands together stands together in one of them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "MAX_PLACES", places)
        patched.setattr(module, "MAX_WORD_PLACES", often)
        patched.setattr(module, "OVERLAP_CHARS", 3)
        cut = [
            {place: word for word, at in unpacked(vector).items() for place in at}
            for vector in vectors(text, ["=mark"])
        ]
    words = words_in(index_text(text))
    phrases = {
        tuple(piece.get(at + step, "") for step in range(4)) for piece in cut for at in piece
    }

    assert set(words) == {word for piece in cut for word in piece.values()}
    assert {tuple(words[at : at + 4]) for at in range(len(words) - 3)} <= phrases


def test_long_text_is_cut_where_the_database_would_lose_places(postgres: Cluster) -> None:
    """A vector keeps 255 places of a word, numbers 16,383 of them, and holds so many bytes."""
    texts = ("again " * 1000, " ".join(map(str, range(40_000))), "é" * 3000 + " " + "z" * 5000)
    counts = []
    with psycopg.connect(postgres.url(), autocommit=True) as db:
        db.adapters.register_dumper(Vector, VectorDumper)
        for text in texts:
            made = vectors(text, marks_of("kindusermsg", "t", 5))
            counts.append(len(made))
            for vector in made:
                expected = {word: places or None for word, places in unpacked(vector).items()}
                rows = db.execute("SELECT lexeme, positions FROM unnest(%s)", (vector,))
                assert expected == dict(rows.fetchall())

    assert [5, 3, 1] == counts


def test_vectors_are_what_the_database_makes_of_their_text(postgres: Cluster) -> None:
    """Sorted as it sorts them: what is packed here it could have read as text, and compares so."""
    with psycopg.connect(postgres.url(), autocommit=True) as db:
        db.adapters.register_dumper(Vector, VectorDumper)
        for text in (*TEXTS, "", "b a b ab aa 東 é z 0", " ".join(TEXTS)):
            [vector] = vectors(text, ["=agentclaude", "#t"])
            spelled = " ".join(
                word + (f":{','.join(map(str, places))}" if places else "")
                for word, places in unpacked(vector).items()
            )
            answer = db.execute("SELECT %s = %s::tsvector", (vector, spelled)).fetchone()
            assert (text, (True,)) == (text, answer)


def test_name_of_a_tool_may_be_of_any_length(postgres: Cluster) -> None:
    """What the database would refuse as a word is cut, where it is kept and where it is asked."""
    store = Postgres(postgres.url(tenant="long tool", machine="here"))
    change = stores._session(store, "one", "hello")
    change.words = [
        Words(event.event.event_id, "hello", search_module.meta("claude", "tool_call", "T" * 5000))
        for event in change.events
    ]
    store.write([change])
    counts = [len(store.search(parse(f"tool:{'t' * size} hello")).matches) for size in (5000, 10)]
    store.close()

    assert [1, 0] == counts


def test_words_are_those_of_sqlite(tmp_path: Path) -> None:
    """One tokenizer cuts texts for both."""
    store = Sqlite(f"{tmp_path}/s.db")
    store.write([change_of(store, "one", TEXTS)])
    db = store._db
    db.execute("CREATE VIRTUAL TABLE temp.seen USING fts5vocab(main, words_000001, instance)")
    rows = every(db, "SELECT term FROM temp.seen WHERE col='body' ORDER BY doc, offset")
    store.close()

    assert [word for text in TEXTS for word in words_in(index_text(text))] == [
        word for (word,) in rows
    ]


# -- going back -----------------------------------------------------------------------------


def test_steps_cover_everything_once(both: list[Store], postgres: Cluster) -> None:
    """From the newest back to the first, in a number of steps that hardly grows."""
    chance = random.Random(5)
    run, era = module.RUN, module.ERA
    drawn = [chance.randrange(1 << chance.randrange(1, 31)) for _ in range(300)]
    with psycopg.connect(postgres.url()) as db:
        for newest in (0, 1, (1 << run) - 1, 1 << run, (1 << era) - 1, 1 << era, *drawn):
            rows = db.execute("SELECT * FROM thence.steps(%s, %s, %s)", (newest, run, era))
            ranges = [
                (low << bits, (high + 1) << bits)
                for sign, low, high in rows.fetchall()
                for bits in [run if sign == "@" else era]
            ]

            assert 0 == ranges[-1][0]
            assert ranges[0][0] <= newest < ranges[0][1]
            assert [low for low, _ in ranges[:-1]] == [high for _, high in ranges[1:]]
            assert len(ranges) < 30


def test_rare_and_common_words_are_found_over_many_runs(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rare word in the first event; of a common one the newest, and that there are more."""
    monkeypatch.setattr(module, "RUN", 3)
    monkeypatch.setattr(module, "ERA", 5)
    monkeypatch.setattr(ranking, "MAX_ROWS", 40)
    database = postgres.database()
    store = Postgres(postgres.url(database, tenant="runs", machine="here"))
    postgres.sql("SELECT setval('thence.event_ids', 1, false)", database)  # few runs below it
    for number in range(8):
        texts = [f"common word{number * 20 + at}" for at in range(20)]
        store.write([change_of(store, f"s{number}", texts)])
    rare = store.search(parse("word0"))
    common = store.search(parse("common"), limit=100)
    every = [len(store.search(parse(f"word{at}")).matches) for at in range(0, 160, 7)]
    store.close()

    assert (["claude:s0"], False) == ([hit.session_uid for hit in rare.matches], rare.capped)
    assert ({"claude:s7", "claude:s6"}, 40, True) == (
        {hit.session_uid for hit in common.matches},
        len(common.matches),
        common.capped,
    )
    assert {1} == set(every)


@pytest.mark.parametrize("analysed", [False, True])
def test_no_plan_goes_back_through_the_rows(postgres: Cluster, *, analysed: bool) -> None:
    """Words are found by their index, common or rare; what the database knows of them or not."""
    database = postgres.database()
    store = Postgres(postgres.url(database, tenant="plans", machine="here"))
    store.search(parse("early"))  # plans are made while there is nothing, and kept
    for number in range(4):
        texts = [f"common word{number * 500 + at} " + "more " * 20 for at in range(500)]
        store.write([change_of(store, f"s{number}", texts)])
        store.write(digests=[stores._digest(f"claude:s{number}", 1)])
    if analysed:
        postgres.sql("ANALYZE", database)
    names = ("words", "words_pkey", "words_body", "events", "events_order")
    scans = []
    for asked in ("common", "word7", "absent", "common word7", "common -word7", "mo*"):
        with store._db.transaction():
            before = _scans(store, names)
            store.search(parse(asked))
            after = _scans(store, names)
        scans.append([after[name] - before[name] for name in names])
    store.close()

    assert [(0, 0, 0)] * 6 == [(words, key, events) for words, key, _, events, _ in scans]
    assert all(body for _, _, body, _, _ in scans)
    # The newest, how far back that was, and one look for each event that is shown.
    assert all(0 < order <= 30 for *_, order in scans)


def _scans(store: Postgres, names: Sequence[str]) -> dict[str, int]:
    """How often this transaction began to go through tables and indexes."""
    rows = store._every(
        "SELECT name, pg_stat_get_xact_numscans(('thence.' || name)::regclass)"
        " FROM unnest(%s::text[]) AS v(name)",
        list(names),
    )
    return dict(rows)


def test_search_is_few_questions_to_the_database(
    both: list[Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However common the words, whatever is filtered by: a server may be far away.

    Rows, words one by one where few have all, what is shown of them; more where nothing is found.
    """
    asked: list[object] = []
    execute = psycopg.Cursor.execute

    def noted(self: Any, query: Any, *args: Any, **more: Any) -> Any:
        asked.append(query)
        return execute(self, query, *args, **more)

    monkeypatch.setattr(psycopg.Cursor, "execute", noted)
    texts = ("cat", "nothing", "cat dog -fox", "d*", "project:short after:2020 cat", '"cat sat"')
    numbers = {}
    for text in texts:
        asked.clear()
        both[1].search(parse(text))
        numbers[text] = len(asked)

    assert numbers.pop("nothing") <= 7
    assert max(numbers.values()) <= 3


def test_parts_of_names_have_an_index(postgres: Cluster) -> None:
    """Of many sessions those are looked at whose project may have the part, not all."""
    database = postgres.database()
    store = Postgres(postgres.url(database, tenant="parts", machine="here"))
    changes = [change_of(store, f"s{at:04}", ["cat"]) for at in range(300)]
    store.write(changes)
    postgres.sql("ANALYZE", database)
    names = ("sessions_parts", "sessions")
    scans, counts = [], []
    for asked in ("s0277", "S00", "%"):
        with store._db.transaction():
            before = _scans(store, names)
            counts.append(len(store.search(parse(f"project:{asked} cat"), limit=1000).matches))
            after = _scans(store, names)
        scans.append([after[name] - before[name] for name in names])
    lacking = store.lacks()
    store.close()

    assert [1, 100, 0] == counts
    assert [1, 0] == scans[0]
    assert [] == lacking


def test_without_the_extension_parts_are_found_all_the_same(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a server does not have it; the store says that it lacks the index."""
    database = postgres.database()
    with monkeypatch.context() as patched:
        steps = [
            schema.Migration(step.statements.replace("pg_trgm", "no_such_thing"), step.oldest)
            for step in schema.MIGRATIONS
        ]
        patched.setattr(schema, "MIGRATIONS", tuple(steps))
        store = Postgres(postgres.url(database, tenant="bare", machine="here"))
    store.write([change_of(store, "one", ["cat"]), change_of(store, "two", ["cat"])])
    uids = [hit.session_uid for hit in store.search(parse("project:TW cat")).matches]
    listed = [row.session.session_uid for row in store.sessions(Filter(project="TW"))]
    messages = [finding.words for finding in checks.integrity(store, deep=False)]
    store.close()

    assert (["claude:two"], ["claude:two"]) == (uids, listed)
    assert 1 == sum("no index for parts of names" in words for words in messages)


def test_amount_of_any_size_is_a_filter(both: list[Store]) -> None:
    """The database's numbers end where a user's need not."""
    texts = (f"cat cost>{'9' * 40}", f"cat cost<{'9' * 40}", f"cat cost>-{'9' * 40}")
    counts = [[len(hits(store, parse(text))) for store in both] for text in texts]

    assert [(0, 0), (True, True), (True, True)] == [(a and a == b, b and a == b) for a, b in counts]
