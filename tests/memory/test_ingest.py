"""One session into the store: nothing that was not redacted, everything in its place."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agents.transcripts import Script, usage
from tests.memory import logs
from tests.memory.stored import KEY
from tests.rules import rules
from tests.secrets import sample
from thence.agents import Batch, Cursor, File, Mark, Source, adapters
from thence.format import codec
from thence.format.facts import Block, Fact
from thence.format.nodes import PREVIOUS, Is, Node
from thence.format.normal import SessionEvent
from thence.format.records import JSON, Usage
from thence.format.stored import events_of_session
from thence.memory.gate import Gate
from thence.memory.growth import Growing, light
from thence.memory.ingest import CarriedSpend, Ingester, IngestResult
from thence.memory.packs import Packs
from thence.memory.payloads import with_payloads
from thence.memory.placeholders import count_by_rule
from thence.memory.pricelist import SHIPPED
from thence.memory.prices import tariff
from thence.memory.redact import RULES, Redactor
from thence.memory.spending import ticks_of, with_price
from thence.memory.store import (
    NothingStored,
    SessionChange,
    Spend,
    StoredSession,
    Tail,
    unpack_facts,
    unpack_fold,
)

SECRET = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"


@pytest.fixture
def ingester(tmp_path: Path) -> Ingester:
    """A ingester with packs of its own."""
    return Ingester(Packs(tmp_path / "packs"), Gate(key=KEY), rules(domains={"project": "work"}))


def growing(change: SessionChange, *, folded: bool = True) -> Growing:
    """Return a session as a store has it after its first change."""
    stored = StoredSession(change.row, change.cursor, unpack_facts(change.facts))
    state, spend = unpack_fold(change.fold) if folded else (None, ())
    nothing = frozenset[str]()
    tail = Tail(change.row, change.cursor, state, spend, nothing, nothing, (), NothingStored())
    return Growing(tail, lambda: stored)


def source_of(home: Path, script: Script) -> Source:
    """The source of a session on disk."""
    logs.write(home, script)
    return next(iter(adapters()["claude"].find(home)))


def read_script(
    ingester: Ingester, home: Path, script: Script, grown: Growing | None = None
) -> IngestResult:
    """Read a session from disk."""
    return ingester.read(adapters()["claude"], source_of(home, script), None, grown)


def test_secrets_are_counted_by_rule_as_a_session_grows(ingester: Ingester, tmp_path: Path) -> None:
    """Each once, however often it is said; what was counted before goes on counting."""
    script = logs.script(1)
    script.user(f"use {SECRET} please")
    first = read_script(ingester, tmp_path / "home", script)
    assert first.change is not None
    row = first.change.row
    script.user(f"or {SECRET}, and {SECRET[:-1]}9")
    script.user("or none")
    second = read_script(ingester, tmp_path / "home", script, growing(first.change))
    assert second.change is not None

    assert [{"github-token": 1}, {"github-token": 2}] == [
        count_by_rule(row.secrets),
        count_by_rule(second.change.row.secrets),
    ]


def test_no_secret_gets_past(ingester: Ingester, tmp_path: Path) -> None:
    """Not in payloads, summaries, words, facts, titles, nor what a record tells of its session."""
    script = logs.script(1, cwd=f"/home/dev/{SECRET}")
    script.user(f"use {SECRET} please")
    script.call("c9", command=f"curl -H 'authorization: {SECRET}' https://host")
    script.result("c9", f"{'x' * 110} {SECRET}", toolUseResult={"stdout": f"got {SECRET}"})
    script.note("custom-title", customTitle=f"with {SECRET}")
    change = read_script(ingester, tmp_path / "home", script).change
    assert change is not None
    ingester.sync()
    data = msgspec.json.encode(change.row) + repr(change.words).encode()
    data += repr(unpack_facts(change.facts)).encode()
    packs = Packs(tmp_path / "packs")
    bodies = [packs.read(ref) for row in change.events if (ref := row.event.payload_ref)]

    assert SECRET.encode() not in data
    assert not any(SECRET.encode() in body for body in bodies)
    assert any(b"[REDACTED:" in body for body in bodies)


EXAMPLES = [rule.example for rule in RULES if rule.example]


def plant(which: int, seed: int, before: str, after: str) -> str:
    """A text with a secret in it."""
    return f"{before}{sample(EXAMPLES[which % len(EXAMPLES)], seed)}{after}"


short = st.text(max_size=9)
planted = st.builds(plant, st.integers(0, 999), st.integers(0, 99), short, short)
values = st.recursive(
    st.one_of(planted, st.text(max_size=20), st.integers(), st.none()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["text", "password", "a", "token", "value"]), inner),
    ),
    max_leaves=6,
)


@given(values)
def test_one_look_at_the_json_misses_nothing(value: JSON) -> None:
    """Whatever the walk through a value finds, its spelling as JSON is under suspicion."""
    redactor = Redactor(key=KEY)
    suspects = redactor.doubts(codec.dump(value))
    clean = redactor.redact_json(value)

    assert suspects or clean == value
    if isinstance(value, str):
        assert clean == redactor.redact(value, suspects)


def test_secret_that_was_cut_in_two_is_found(ingester: Ingester) -> None:
    """Some writers cut one text into many records: it is joined before it is searched."""
    facts = [
        Fact(
            Node(f"n{at}", PREVIOUS, Is.REPLY),
            "chunk",
            f"2026-01-01T00:00:0{at}.000Z",
            (Block("assistant_msg", "assistant", part, {"type": "text", "text": part}),),
            file="log",
            line=at + 1,
            piece="p",
        )
        for at, part in enumerate((f"token {SECRET[:9]}", SECRET[9:], " done"))
    ]
    source = Source("grok", "s", (File("f", "log"),))
    out = ingester.ingest_batch(
        source, Batch(facts, [], Cursor({"log": Mark(1, 2, 3, 4)})), None, None
    )
    assert out.change is not None

    assert 1 == len(out.change.events)
    assert "REDACTED" in out.change.words[0].body
    assert SECRET[9:] not in out.change.words[0].body


def test_what_is_stored_is_light_and_leads_back(ingester: Ingester, tmp_path: Path) -> None:
    """Facts hold refs in place of payloads; the refs lead to these very payloads."""
    out = read_script(ingester, tmp_path / "home", logs.script(1))
    assert out.change is not None
    assert out.delta is not None
    graph = out.delta.window
    facts = unpack_facts(out.change.facts)
    packs = Packs(tmp_path / "packs")
    ingester.sync()
    payloads = {
        block.ref: json.loads(packs.read(block.ref))
        for fact in facts
        for block in fact.blocks
        if block.ref is not None
    }

    assert all(block.payload is None for fact in facts for block in fact.blocks)
    assert {e.payload_ref: e.payload for e in graph.events if e.payload_ref} == payloads
    assert [with_price(row, SHIPPED) for row in events_of_session(graph)] == out.change.events
    assert out.change.row.raw_bytes > out.change.row.pack_bytes > 0


class PlantedBlock(Block, frozen=True, omit_defaults=True, gc=False):
    """A block as it may look one day: with a field more."""

    planted: str = ""


def test_no_copy_of_a_block_drops_a_field(tmp_path: Path) -> None:
    """On the way into the store and out of it, whatever fields a block has."""
    packs = Packs(tmp_path / "packs")
    (ref,) = packs.append("thence:s", [b'"all of it"'])
    block = PlantedBlock("tool_result", "tool", payload="all of it", ref=ref, planted="stays")
    fact = Fact(Node("n", None, 0), "user", blocks=(block,))
    stored = light(fact)
    (back,) = with_payloads([stored], packs)

    assert None is stored.blocks[0].payload
    assert ["stays", "stays"] == [fact.blocks[0].planted for fact in (stored, back)]  # type: ignore[attr-defined]
    assert fact == back


@pytest.mark.parametrize("folded", [False, True])
def test_a_line_more_is_one_event_more(ingester: Ingester, tmp_path: Path, *, folded: bool) -> None:
    """Whether the session is continued or rebuilt, its row is that of a session read at once."""
    adapter, script = adapters()["claude"], logs.script(1)
    source = source_of(tmp_path / "home", script)
    first = ingester.read(adapter, source, None, None).change
    assert first is not None
    script.user("and one thing more")
    source = source_of(tmp_path / "home", script)
    grown = ingester.read(adapter, source, None, growing(first, folded=folded))
    fresh = Ingester(
        Packs(tmp_path / "others"), Gate(key=KEY), rules(domains={"project": "work"})
    ).read(adapter, source, None, None)
    assert grown.change is not None
    assert fresh.change is not None

    assert 1 == grown.new_events
    assert folded is (grown.rebuilt is None)
    assert fresh.change.row == msgspec.structs.replace(
        grown.change.row,
        change=1,
        raw_bytes=fresh.change.row.raw_bytes,
        pack_bytes=fresh.change.row.pack_bytes,
    )
    assert fresh.change.spend == grown.change.spend


def test_nothing_new_is_no_change(ingester: Ingester, tmp_path: Path) -> None:
    """Read again from where it was read to."""
    adapter, source = adapters()["claude"], source_of(tmp_path / "home", logs.script(1))
    first = ingester.read(adapter, source, None, None).change
    assert first is not None

    assert ingester.read(adapter, source, None, growing(first)).change is None


def test_row_tells_of_the_project(ingester: Ingester, tmp_path: Path) -> None:
    """Its name, and its domain as the settings have it."""
    change = read_script(ingester, tmp_path / "home", logs.script(1)).change
    assert change is not None
    session = change.row.session

    assert ("project", "work", "/home/dev/project") == (session.repo, session.domain, session.cwd)
    assert 1 == change.row.change


def test_last_line_without_its_end_is_one_event(ingester: Ingester, tmp_path: Path) -> None:
    """It is given before and after its LF is there, and kept once."""
    script = logs.script(1)
    source = source_of(tmp_path / "home", script)
    path = Path(source.path)
    path.write_bytes(script.data[:-1])
    adapter = adapters()["claude"]
    first = ingester.read(adapter, source, None, None).change
    assert first is not None
    path.write_bytes(script.data)
    second = ingester.read(adapter, source, None, growing(first)).change

    assert second is None or ([], [], []) == (second.events, second.altered, second.vanished)


def test_carried_money_is_added_to_what_came_later(ingester: Ingester, tmp_path: Path) -> None:
    """And bills up to the moment it goes to are counted there, not here."""
    script = Script(logs.name(1))
    script.user("go")
    script.reply([{"type": "text", "text": "a"}], usage=usage(5))
    script.reply([{"type": "text", "text": "b"}], usage=usage(7))
    spend = (Spend("2025-12-31", "claude-opus-5-5", "live", Usage(100, 1), 3, 9),)
    carried = CarriedSpend(spend, "2026-01-01T00:00:02.000Z", 4)
    adapter, source = adapters()["claude"], source_of(tmp_path / "home", script)
    change = ingester.read(adapter, source, None, None, carried=carried).change
    assert change is not None

    assert {("2025-12-31", 101, 3), ("2026-01-01T00:00", 17, 1)} == {
        (spend.day, spend.usage.total, spend.responses) for spend in change.spend
    }
    assert 118 == change.row.spent.own


@settings(max_examples=15)
@given(
    st.builds(Usage, *[st.integers(0, 10**6)] * 4),
    st.sampled_from(["claude-opus-4-5", "gpt-5", "nobody-knows", ""]),
    st.sampled_from([None, 0.0, 0.25]),
)
def test_bill_costs_what_the_list_says(given_usage: Usage, model: str, cost: float | None) -> None:
    """Or what the log itself says, where it does."""
    event = SessionEvent(
        "claude:s", 1, "assistant_msg", ts="2026-01-31T10:00:00Z", model=model, cost_usd=cost
    )
    rates = tariff(SHIPPED, model, "2026-01-31")
    listed = None if rates is None else rates.ticks(given_usage)

    assert (2_500_000_000 if cost else listed) == ticks_of(event, given_usage, SHIPPED)
