"""Stored sessions of Grok that grow: texts in pieces, bills of turns, files beside the log."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from bench.measure import count_executed_lines
from tests.agents.groks import Folder
from tests.memory.stored import KEY, dump, opened, sweep
from tests.rules import rules
from thence.agents import adapters
from thence.memory.gate import Gate
from thence.memory.search import parse
from thence.memory.sweep import Sweep, SweepReport

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
"""Looks like a secret, and is none."""


def steps(folder: Folder, turns: int, seed: int = 0) -> list[Callable[[], object]]:
    """Return what the client writes in so many turns, write by write."""
    chance = random.Random(seed)
    out: list[Callable[[], object]] = [folder.summary]
    for turn in range(turns):
        out += [
            partial(folder.event, "turn_started", turn=turn),
            partial(folder.prompt, f"mend lantern {turn}", turn),
            partial(folder.thought, f"lantern {turn}, "),
            partial(folder.thought, "then the wick"),
        ]
        for number in range(chance.randint(1, 3)):
            call = f"call-{turn}-{number}"
            done = {"tool_call_id": call, "outcome": "success", "duration_ms": 12}
            text = f"output of {call}"
            out += [
                partial(folder.call, call, command="make test"),
                partial(folder.event, "tool_started", tool_call_id=call),
                partial(folder.result, call, text, chance.randint(0, 1)),
                partial(folder.event, "tool_completed", **done),
                partial(folder.chat, type="tool_result", tool_call_id=call, content=text),
            ]
        out += [partial(folder.say, word) for word in ("The ", "lantern ", "burns. ")]
        out += [
            folder.done,
            partial(folder.event, "turn_ended", turn=turn),
            partial(folder.summary, generated_title=f"Lantern {turn}"),
        ]
    return out


def swept(folder: Path, home: Path) -> tuple[int, SweepReport]:
    """Sweep without digests, and count the lines that are executed."""
    store = opened(folder)
    reports: list[SweepReport] = []
    with store.sweeping():
        run = Sweep(store, adapters(), Gate(key=KEY), rules(), digests=False)
        number = count_executed_lines(lambda: reports.append(run.run({"grok": [home]})))
    store.close()
    return number, reports[0]


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(3))
def test_a_session_swept_after_every_write_is_the_session_swept_once(
    tmp_path: Path, seed: int
) -> None:
    """Rows, states, spend, words; and it is rebuilt for hardly any of the writes."""
    home, chance = tmp_path / "home", random.Random(seed)
    rebuilt, sweeps = 0, 0
    left = steps(Folder(home), 9, seed)
    while left:
        for _ in range(chance.randint(1, 2)):
            if left:
                left.pop(0)()
        rebuilt += sweep(tmp_path / "grown", {"grok": [home]}, digests=False).rebuilt
        sweeps += 1
    sweep(tmp_path / "grown", {"grok": [home]})
    sweep(tmp_path / "once", {"grok": [home]})
    grown, once = dump(tmp_path / "grown"), dump(tmp_path / "once")
    # A text that was being written is stored more than once, each time with more of it.
    grown.pop("facts")
    once.pop("facts")

    assert once == grown
    assert rebuilt <= 0.05 * sweeps


@pytest.mark.slow
def test_a_line_more_costs_the_same_in_a_session_of_any_length(tmp_path: Path) -> None:
    """Counted in executed lines, for what a turn writes; nothing is rebuilt."""
    work = []
    for turns in (12, 120):
        home, store = tmp_path / f"home{turns}", tmp_path / f"store{turns}"
        folder = Folder(home)
        for step in steps(folder, turns):
            step()
        sweep(store, {"grok": [home]}, digests=False)
        folder.prompt("and one thing more", turns)
        swept(store, home)
        numbers = []
        for text in ("Yes, ", "the lantern ", "is lit."):
            folder.say(text)
            folder.event("phase", phase="streaming")
            number, report = swept(store, home)
            numbers.append(number)

            assert {} == report.rebuilt_because
        work.append(max(numbers))

    assert max(work) <= 1.2 * min(work)


@pytest.mark.slow
def test_a_long_turn_does_not_stay_in_the_window(tmp_path: Path) -> None:
    """However many calls it makes: its bill comes at its end."""
    home, store = tmp_path / "home", tmp_path / "store"
    folder = Folder(home)
    folder.prompt("mend all lanterns", 0)
    work = []
    for calls in (30, 300):
        for number in range(calls):
            folder.call(f"call-{calls}-{number}", command="make test")
            folder.result(f"call-{calls}-{number}", "fine")
        sweep(store, {"grok": [home]}, digests=False)
        folder.say("going on")
        number, report = swept(store, home)
        work.append(number)

        assert {} == report.rebuilt_because
    assert work[1] <= 1.2 * work[0]


def test_a_text_that_goes_on_is_found_whole(tmp_path: Path) -> None:
    """By its first words and by its last, in one event, and read as one text."""
    home, place = tmp_path / "home", tmp_path / "store"
    folder = Folder(home)
    folder.prompt("tell me", 0)
    for text in ("harbour lan", "tern and fer", "ry"):
        folder.say(text)
        sweep(place, {"grok": [home]}, digests=False)
    store = opened(place)
    hits = [
        store.search(parse(word), 5).matches for word in ("harbour", "lantern", "harbour ferry")
    ]
    rows = list(store.events(f"grok:{folder.session}"))
    bodies = [store.blobs.read(row.event.payload_ref or "") for row in rows[1:]]
    store.close()

    assert [[rows[1].event.event_id]] * 3 == [[hit.event_id for hit in matches] for matches in hits]
    assert 1 == len(bodies)
    assert b"harbour lantern and ferry" in bodies[0]


def test_a_secret_that_was_cut_in_two_is_nowhere(tmp_path: Path) -> None:
    """Not in the rest, nor in what was stored of its beginning."""
    home, place = tmp_path / "home", tmp_path / "store"
    folder = Folder(home)
    folder.prompt("what is the token", 0)
    for text in (f"It is {TOKEN[:20]}", f"{TOKEN[20:]} and no other"):
        folder.say(text)
        sweep(place, {"grok": [home]}, digests=False)
    store = opened(place)
    stored = store.load_session(f"grok:{folder.session}")
    assert stored is not None
    refs = [block.ref for fact in stored.facts for block in fact.blocks if block.ref]
    bodies = b"".join(map(store.blobs.read, refs))
    hits = store.search(parse(TOKEN[:20]), 5).matches
    store.close()

    assert b"[REDACTED:" in bodies
    assert TOKEN[:20].encode() not in bodies
    assert TOKEN[20:].encode() not in bodies
    assert not hits
