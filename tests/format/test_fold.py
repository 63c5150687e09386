"""A session that grows is the session put together at once, at a cost that does not grow."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bench.measure import count_executed_lines
from tests.agents import test_growth
from tests.format.growing import Grown, differences
from tests.pace import by_pace
from thence.agents.sessions import read_all
from thence.format import sealing
from thence.format.errors import Evidence
from thence.format.facts import Base, Block, CallStatus, Fact
from thence.format.fold import Fold, FoldState, Unfoldable
from thence.format.nodes import PREVIOUS, Is, Node, Undo
from thence.format.records import Usage
from thence.format.tools import Effect

EFFECTS = (
    Effect(is_script=True, retry_key=1),
    Effect(is_script=True, retry_key=2, runner="pytest"),
    Effect(touches=(("a.py", "edit"),), retry_key=3),
    None,
)
ENDINGS = (
    Evidence(is_structured=True, exit_code=0),
    Evidence(is_structured=True, exit_code=1),
    Evidence(cause="denied"),
    None,
)
"""What calls do, and what results say of how they ended."""


def fact(line: int, name: str, parent: str | None, kind: str, **more: Any) -> Fact:
    """Return one record of a made-up log: a prompt, an answer, a call, a result or a note."""
    node: dict[str, Any] = {"id": name, "parent": parent, **more.pop("node", {})}
    call = more.pop("call", None)
    if kind == "user_msg":
        node["flags"] = node.get("flags", 0) | Is.PROMPT
    elif kind == "assistant_msg":
        node["flags"] = node.get("flags", 0) | Is.REPLY | Is.ENDS
    elif kind == "tool_call":
        node |= {"flags": Is.REPLY, "calls": (call,)}
    elif kind == "tool_result":
        node["answers"] = (call,)
    else:
        node["flags"] = node.get("flags", 0) | Is.INTERNAL
    role = {"user_msg": "user", "tool_result": "tool", "lifecycle": "system"}.get(kind, "assistant")
    tool = "Bash" if kind == "tool_call" else None
    outcome = {"effect": more.pop("effect", None), "evidence": more.pop("evidence", None)}
    block = Block(kind, role, f"{kind} {name}", None, tool, call, **outcome)  # type: ignore[arg-type]
    ts = f"2026-01-01T{line // 3600 % 24:02}:{line // 60 % 60:02}:{line % 60:02}.000Z"
    return Fact(Node(**node), kind, ts, (block,), more.pop("file", "main"), line=line, **more)


def conversation(turns: int, start: int = 1, parent: str | None = None) -> Iterator[Fact]:
    """Return turns with a call each, every answer billed."""
    line = start
    for _ in range(turns):
        for kind in ("user_msg", "tool_call", "tool_result", "assistant_msg"):
            name = f"r{line}"
            call = f"c{line // 4}" if kind.startswith("tool") else None
            call = f"c{line - (kind == 'tool_result')}" if call else None
            bill = {"usage": Usage(line, 1), "usage_key": f"b{line}"} if kind[0] == "a" else {}
            yield fact(line, name, parent, kind, call=call, model="m", **bill)
            parent, line = name, line + 1


@st.composite
def roots(draw: st.DrawFn, last: str) -> tuple[str, dict[str, Any]]:
    """Draw a compaction, whose link may lead nowhere, or a prompt that clears the context."""
    logical = draw(st.sampled_from((None, "never written", last)))
    if not logical:
        return "user_msg", {"flags": Is.CLEARS}
    return "lifecycle", {"logical": logical}


@st.composite
def logs(draw: st.DrawFn) -> list[Fact]:
    """Draw a log with branches, late and parallel results, repeated ids and bills, subagents."""
    out: list[Fact] = []
    names: list[str] = []
    calls: list[str] = []
    for line in range(1, draw(st.integers(2, 60))):
        kind = draw(
            st.sampled_from(
                ("user_msg", "assistant_msg", "tool_call", "tool_result", "lifecycle", "tool_call")
            )
        )
        back = draw(st.sampled_from((1, 1, 1, 1, 1, 1, 2, 3, 9)))
        parent = names[-min(back, len(names))] if names else None
        more: dict[str, Any] = {}
        if draw(st.integers(0, 25)) == 0:
            parent = draw(st.sampled_from((None, "nowhere")))
            kind, more["node"] = draw(st.just((kind, {})) | roots(f"r{line - 1}"))
        name = f"r{line}"
        if names and draw(st.integers(0, 30)) == 0:
            name = draw(st.sampled_from(names))
        if kind == "tool_call":
            more["call"] = f"c{line}" if draw(st.integers(0, 9)) else "c"
            more["effect"] = draw(st.sampled_from(EFFECTS))
            calls.append(more["call"])
        elif kind == "tool_result":
            recent = calls[-2:] if draw(st.integers(0, 9)) else calls
            more["call"] = draw(st.sampled_from(recent)) if recent else "nobody"
            more["evidence"] = draw(st.sampled_from(ENDINGS))
        if kind in ("assistant_msg", "tool_call") and draw(st.booleans()):
            key = draw(st.sampled_from((f"b{line}", f"b{line}", f"b{line - 1}", "b")))
            more |= {"usage": Usage(line, draw(st.integers(0, 5))), "usage_key": key, "model": "m"}
        if draw(st.integers(0, 30)) == 0 and names:
            more["node"] = more.get("node", {}) | {"tip": draw(st.sampled_from(names))}
        if draw(st.integers(0, 12)) == 0:
            more |= {"channel": "side", "file": "side"}
        if calls and draw(st.integers(0, 15)) == 0:
            more["told"] = (CallStatus(draw(st.sampled_from(calls)), failed=True, took_ms=line),)
        out.append(fact(line, name, parent, kind, **more))
        names.append(name)
    return out


# Shrinking takes minutes, and a split of a long log says as much as that of a short one.
PHASES = [phase for phase in Phase if phase is not Phase.shrink]


@pytest.mark.slow
@settings(max_examples=by_pace(everyday=8, full=12, prove=300), phases=PHASES)
@given(logs(), st.data())
def test_a_session_that_grows_is_the_session_read_at_once(
    log: list[Fact], data: st.DataObject
) -> None:
    """After every step, wherever the log is split, whatever branches and repeats it holds."""
    grown = Grown("claude:s")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealing, "WINDOW_RECORDS", 3)
        patch.setattr(sealing, "SIDE_RECORDS", 1)
        while log:
            size = data.draw(st.integers(1, 7))
            grown.add(log[:size])
            log = log[size:]

            assert [] == differences(grown)


@pytest.mark.slow
@settings(max_examples=by_pace(everyday=6, full=10, prove=150), phases=PHASES)
@given(st.data())
def test_a_log_without_links_that_is_rolled_back_grows_as_well(data: st.DataObject) -> None:
    """Rollbacks by number of turns and to a turn, of turns in the window and before it."""
    log: list[Fact] = []
    for line in range(1, data.draw(st.integers(5, 60))):
        kind = data.draw(st.sampled_from(("user_msg", "assistant_msg", "assistant_msg")))
        more: dict[str, Any] = {}
        if data.draw(st.integers(0, 9)) == 0:
            counts = st.integers(0, 6)
            undo = data.draw(st.one_of(st.builds(Undo, counts), st.builds(Undo, st.none(), counts)))
            kind, more = "lifecycle", {"node": {"undo": undo}}
        elif data.draw(st.booleans()):
            total = Usage(line * 10, line)
            more = {"running": total} if data.draw(st.booleans()) else {"usage": Usage(line, 1)}
        log.append(fact(line, f"main#{line}", PREVIOUS, kind, **more))
    grown = Grown("codex:s")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealing, "WINDOW_RECORDS", 3)
        while log:
            size = data.draw(st.integers(1, 5))
            grown.add(log[:size])
            log = log[size:]

            assert [] == differences(grown)


@pytest.mark.slow
@pytest.mark.sampled
def test_work_for_one_line_does_not_grow_with_the_session() -> None:
    """Counted in executed lines, for sessions of 400 to 4,000 events; in `make prove` of 40,000."""
    work = []
    for turns in by_pace((100, 1000), (100, 1000), (100, 1000, 10_000)):
        log = list(conversation(turns + 1))
        grown = Grown("claude:s")
        grown.add(log[:-4])
        grown.add(log[-4:-1])
        work.append(count_executed_lines(partial(grown.add, log[-1:])))

        assert not grown.rebuilt
    assert max(work) <= 1.2 * min(work)


def test_state_stays_small() -> None:
    """It holds the last records, and sums of all others."""
    sizes = []
    for turns in (50, 500):
        grown = Grown("claude:s")
        grown.add(list(conversation(turns)))
        sizes.append(len(msgspec.msgpack.encode(grown.state)))

    assert sizes[1] < 1.2 * sizes[0]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"parent": "r2"}, "a link to a sealed or missing record"),
        ({"parent": "nowhere"}, "a link to a sealed or missing record"),
        ({"name": "r2"}, "a repeated id"),
        ({"kind": "tool_result", "call": "c2"}, "a sealed call"),
        ({"kind": "tool_call", "call": "c2"}, "a sealed call"),
        ({"usage": Usage(1, 1), "usage_key": "b4"}, "a sealed bill"),
        ({"parent": None}, "the line starts elsewhere"),
        ({"generation": 1}, "a rewritten log"),
        ({"line": 3}, "a record out of order"),
        ({"base": Base("main")}, "a log that continues an ancestor"),
        ({"node": {"undo": Undo(200)}, "kind": "lifecycle"}, "a rollback of sealed turns"),
    ],
)
def test_what_reaches_behind_the_window_is_refused(more: dict[str, Any], reason: str) -> None:
    """With its reason, and the state stays as it was."""
    grown = Grown("claude:s")
    grown.add(list(conversation(100)))
    state = grown.state
    fields: dict[str, Any] = {
        "line": 401,
        "name": "new",
        "parent": "r400",
        "kind": "user_msg",
    } | more
    place = [fields.pop(name) for name in ("line", "name", "parent", "kind")]
    new = fact(*place, **fields)
    fold = Fold(grown.uid, grown.index, state)

    with pytest.raises(Unfoldable, match=reason):
        fold.add([new])
    assert state is fold.state


def test_a_rewind_inside_the_window_flips_its_run() -> None:
    """The abandoned records become dead and the session is not rebuilt."""
    grown = Grown("claude:s")
    grown.add(list(conversation(100)))
    delta = grown.add([fact(401, "again", "r392", "user_msg")])

    assert not grown.rebuilt
    assert {"dead"} == {event.state.value for event in delta.altered if event.state}
    assert 8 == len(delta.altered)
    assert [] == differences(grown)


def interleaved(facts: Sequence[Fact], seed: int) -> list[Fact]:
    """Mix the logs of a session, each in its own order."""
    logs: dict[str, list[Fact]] = {}
    for fact in facts:
        logs.setdefault(fact.file, []).append(fact)
    turns = [name for name, log in logs.items() for _ in log]
    random.Random(seed).shuffle(turns)
    left = {name: iter(log) for name, log in logs.items()}
    return [next(left[name]) for name in turns]


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("part", range(4))
def test_every_real_session_grows_to_what_it_is(shared: Path, part: int) -> None:
    """Record by record and in random pieces, its files in turn and mixed."""
    rebuilt = records = 0
    each = by_pace(everyday=48, full=48, prove=4)
    sessions = test_growth.sessions(shared / "data")[part::each]
    for number, (adapter, source) in enumerate(sessions):
        facts = read_all(adapter, source)[0]
        if not facts or len(facts) > by_pace(400, 2000, 20_000):
            continue
        for mixed in (False, True):
            chance = random.Random(number)
            left = interleaved(facts, number) if mixed else list(facts)
            grown = Grown(source.uid)
            while left:
                size = chance.randint(1, 5) if mixed else 1
                while size < len(left) and _is_on_line(left[size - 1], left[size]):
                    size += 1
                grown.add(left[:size])
                left = left[size:]
                if not left or chance.random() < 0.02:
                    assert [] == differences(grown), source.path
            if not mixed:
                records += len(facts)
                rebuilt += grown.rebuilt.total()

    assert rebuilt <= 0.02 * records + 2


def _is_on_line(fact: Fact, other: Fact) -> bool:
    return (fact.file, fact.line) == (other.file, other.line)


def test_a_state_of_another_version_is_not_continued() -> None:
    """What an older program stored is rebuilt."""
    from thence.format.fold import is_resumable

    assert is_resumable(FoldState())
    assert not is_resumable(FoldState(version=0))
