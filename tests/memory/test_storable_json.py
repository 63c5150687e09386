"""Whatever a log holds, a store can spell it, and nothing else is changed by that."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.memory.stored import dump, sweep
from tests.pace import by_pace
from tests.testing import samples
from thence.agents import Cursor, Mark
from thence.format.facts import Block, CallStatus, Fact
from thence.format.nodes import Node
from thence.format.records import JSON
from thence.memory import storable_json
from thence.memory import sweep as module
from thence.memory.sqlite import Sqlite
from thence.memory.sweep import SweepReport

AGENTS = {
    "claude": samples.claude,
    "codex": samples.codex,
    "grok": samples.grok,
    "thence": samples.native,
}
MARK = "@@here@@"
ODD = {
    "half a character": r'"half \ud800 a character"',
    "a long number": "9" * 400,
    "a far number": "1e999",
    "deep nesting": "[" * 3000 + '"x"' + "]" * 3000,
}


def as_bytes(value: JSON) -> bytes:
    """Return a value as the bytes of a payload."""
    return storable_json.encode(storable_json.plain(value))


@pytest.fixture(params=AGENTS)
def agent(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An agent, whose sessions lie in `home`."""
    name: str = request.param
    (tmp_path / "home").mkdir()
    AGENTS[name](tmp_path / "home")
    return name


# -- values -----------------------------------------------------------------------------------

spellable = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=12,
)
anything = st.recursive(
    spellable | st.text() | st.integers() | st.just(10**400) | st.just(Decimal("1e999")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(spellable)
def test_what_can_be_spelled_stays_what_it_is(value: JSON) -> None:
    """No value that needs no other form is given one."""
    assert value == storable_json.plain(value) == storable_json.load(as_bytes(value))


@given(anything)
def test_every_value_is_spelled_once(value: JSON) -> None:
    """Both encodings take what comes out, and a second time changes nothing."""
    plain = storable_json.plain(value)

    assert plain == msgspec.msgpack.decode(msgspec.msgpack.encode(plain))
    assert plain == storable_json.plain(plain) == storable_json.load(as_bytes(plain))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a\ud800b", "a\ufffdb"),
        ("\ud83d\ude00", "\U0001f600"),
        ({"k\udfff": ["\udfff"]}, {"k\ufffd": ["\ufffd"]}),
        (2**70, "1180591620717411303424"),
        ([Decimal("1e999")], ["1E+999"]),
        ((1, "\ud800"), [1, "\ufffd"]),
    ],
)
def test_odd_parts_take_their_nearest_form(value: JSON, expected: JSON) -> None:
    """Half a character is marked, halves that meet are joined, numbers become their digits."""
    assert expected == storable_json.plain(value)


def test_what_is_nested_too_deep_becomes_text() -> None:
    """The levels that readers can follow stay, what is below them is its JSON."""
    deep: JSON = "core"
    for _ in range(100_000):
        deep = [deep]
    value = storable_json.load(as_bytes(deep))
    for _ in range(storable_json.MAX_LEVELS):
        value = value[0]

    assert isinstance(value, str)
    assert '["core"]' in value


def test_a_value_that_is_deep_for_the_stack_is_given_as_text() -> None:
    """A body that was written elsewhere is shown rather than refused."""
    body = b"[" * 100_000 + b"]" * 100_000

    assert body.decode() == storable_json.load(body)


def test_a_fact_keeps_its_payloads_and_all_that_can_be_spelled() -> None:
    """Ids, names and what is told are put into form; payloads have a form of their own."""
    payload = {"text": "\ud800"}
    fact = Fact(
        Node("a\ud800", "b"),
        blocks=(Block("user_msg", "user", "said \ud800", payload, "Bash"),),
        told=(CallStatus("c", exit_code=1, output=["\ud800", 10**30]),),
        about={"cwd": "/x/\ud800"},
        line=7,
    )
    plain = storable_json.plain_fact(fact)

    assert ("a\ufffd", "b", 7) == (plain.node.id, plain.node.parent, plain.line)
    assert ("said \ufffd", payload, "Bash") == (
        plain.blocks[0].summary,
        plain.blocks[0].payload,
        plain.blocks[0].tool,
    )
    assert CallStatus("c", exit_code=1, output=["\ufffd", str(10**30)]) == plain.told[0]
    assert {"cwd": "/x/\ufffd"} == plain.about


def test_a_cursor_keeps_where_it_stands() -> None:
    """What an adapter remembers of the log is put into form, and nothing else."""
    cursor = Cursor({"k": Mark(1, 2, 3, 4, offset=5, carry={"last": "\ud800"})})
    mark = storable_json.plain_cursor(cursor).marks["k"]

    assert ({"last": "\ufffd"}, 5) == (mark.carry, mark.offset)


# -- whole sweeps -----------------------------------------------------------------------------


def places(value: JSON, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Find every scalar of a record, and every key."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key, None)
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from places(inner, (*path, at))
    else:
        yield path


def put(value: JSON, path: tuple[Any, ...]) -> JSON:
    """Return a copy of a record with a mark at one place."""
    if not path:
        return MARK
    at, *rest = path
    if rest == [None]:
        return {(f"{MARK}{k}" if k == at else k): v for k, v in value.items()}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    made = {k: put(v, tuple(rest)) if k == at else v for k, v in items}
    return made if isinstance(value, dict) else list(made.values())


def spoiled(home: Path, odd: str) -> list[tuple[Path, bytes]]:
    """Return every file of a home with something odd in each place in turn."""
    out = []
    for path in sorted(home.rglob("*.json*")):
        if path.suffix == ".zst":
            continue
        lines = [path.read_text()] if path.suffix == ".json" else path.read_text().splitlines()
        for number, line in enumerate(lines):
            try:
                record = json.loads(line)
            except ValueError:  # the sample is torn in places
                continue
            for place in places(record):
                text = json.dumps(put(record, place))
                text = text.replace(f'"{MARK}"', odd).replace(MARK, r"\udc00")
                out.append((path, "\n".join([*lines[:number], text, *lines[number + 1 :], ""])))
    return [(path, text.encode()) for path, text in out]


def check(store: Path, report: SweepReport, log: bytes) -> None:
    """Nothing failed, all was digested, and every row can be read."""
    sqlite = Sqlite(str(store / "s.db"))
    undigested = [uid for uid, entry in sqlite.known().sessions.items() if entry.analysed is None]
    sqlite.close()

    assert ([], 0, []) == (
        [outcome for outcome in report.outcomes if outcome.what in ("failed", "undigested")],
        report.failed,
        undigested,
    ), log
    assert {} != dump(store)["sessions"]


def spoil_each(tmp_path: Path, agent: str, odd: str, share: float) -> None:
    """Sweep homes that are spoiled in one place each."""
    chance = random.Random(agent + odd)
    for path, data in spoiled(tmp_path / "home", odd):
        if chance.random() > share:
            continue
        home, store = tmp_path / "spoiled", tmp_path / "store"
        shutil.copytree(tmp_path / "home", home)
        (home / path.relative_to(tmp_path / "home")).write_bytes(data)
        check(store, sweep(store, {agent: [home]}), data)
        shutil.rmtree(home)
        shutil.rmtree(store)


@pytest.mark.sampled(3)
@pytest.mark.few(5)
@pytest.mark.parametrize("odd", ODD)
def test_no_content_of_a_log_costs_its_session(agent: str, tmp_path: Path, odd: str) -> None:
    """Half characters, endless numbers and endless nesting anywhere, keys included."""
    spoil_each(tmp_path, agent, ODD[odd], 0.01)


@pytest.mark.slow
@pytest.mark.sampled(8, 3)
@pytest.mark.parametrize("odd", ODD)
def test_hardly_any_place_of_a_log_is_left_out(agent: str, tmp_path: Path, odd: str) -> None:
    """The same in a fifth of all places there are; of some agents in fewer with all tests."""
    spoil_each(tmp_path, agent, ODD[odd], by_pace(everyday=0.02, full=0.03, prove=0.2))


def test_half_characters_grow_in_the_store_as_at_once(tmp_path: Path) -> None:
    """Ids that a cursor remembers and ids that facts hold are put into the same form."""
    home = tmp_path / "home"
    home.mkdir()
    samples.claude(home)
    path = next(iter(sorted(home.glob("projects/*/*.jsonl"))))
    data = path.read_bytes().replace(b'uuid": "0001-', rb'uuid": "\ud800-')
    data = data.replace(b'Uuid": "0001-', rb'Uuid": "\ud800-')
    lines = data.splitlines(keepends=True)

    assert rb"\ud800-" in data
    for count in range(2, len(lines) + 1):
        path.write_bytes(b"".join(lines[:count]))
        sweep(tmp_path / "pieces", {"claude": [home]})
    sweep(tmp_path / "once", {"claude": [home]})

    assert dump(tmp_path / "once") == dump(tmp_path / "pieces")


@pytest.mark.few(3)
@pytest.mark.parametrize("alone", [True, False], ids=["one process", "three"])
def test_names_that_are_no_text_cost_nothing(
    agent: str, tmp_path: Path, *, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders and files named with any bytes are swept, once, in other processes too."""
    home = tmp_path / "home"
    for file in [path for path in home.rglob("*") if path.is_file()]:
        beside, ending = os.fsencode(file.parent) + b"-\xff", os.fsencode(file.suffix)
        Path(os.fsdecode(beside)).mkdir(exist_ok=True)
        for name in (beside + b"/" + os.fsencode(file.name), os.fsencode(file)[:-3] + b"\xff"):
            copy = Path(os.fsdecode(name + (b"" if name.endswith(ending) else ending)))
            copy.write_bytes(file.read_bytes() + b"\xff{\n")
    monkeypatch.setattr(module, "OWN_PARCEL_BYTES", 1 << 30 if alone else 0)
    address = f"sqlite:{tmp_path / 'store' / 's.db'}"
    first = sweep(tmp_path / "store", {agent: [home]}, address=address)
    again = sweep(tmp_path / "store", {agent: [home]}, address=address)

    assert 0 < first.read
    assert (0, 0, 0) == (first.failed, again.failed, again.read)
    check(tmp_path / "store", first, b"")
