"""Spills of a session: the budget of what the model sees, copies dropped, every kind of record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.journal.runs import drop
from tests.journal.test_journal import answer, call, say
from thence.format.spills import spilled_in
from thence.journal.journal import Journal
from thence.journal.session import Session

BIG = "".join(f"line {number}\n" for number in range(20_000))


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A journal whose budget is soon used up."""
    return Journal(tmp_path / "home", durability="none", spill_per_session=60_000)


def epoch(session: Session, start: int, count: int = 12) -> list[int]:
    """Record results of 10,000 characters and give what is left of each in the transcript."""
    for number in range(start, start + count):
        call(session, f"c{number}")
        answer(session, f"c{number}", str(number % 10) * 10_000)
    return lengths(session)


def lengths(session: Session) -> list[int]:
    """How long the results are that the model sees."""
    content = [block for message in session.messages for block in message["content"]]
    return [len(block["content"]) for block in content if block["type"] == "tool_result"]


def test_a_compaction_gives_the_spill_budget_back(journal: Journal) -> None:
    """Time after time: an empty context never starts with previews."""
    session = journal.create()
    first = epoch(session, 0)
    for number in range(1, 4):
        session.compact("all done")

        assert first == epoch(session, number * 100)
    assert first[0] == 10_000 > first[-1]


def test_live_and_resumed_sessions_spill_alike(journal: Journal, tmp_path: Path) -> None:
    """Compacted with a part kept, rewound, then resumed in the middle or not at all."""
    seen = []
    for resumed in (False, True):
        session = journal.create()
        epoch(session, 0, 4)
        start = say(session, "from here")
        epoch(session, 10, 3)
        session.compact("all done", keep_from=start)
        back = say(session, "and back")
        epoch(session, 20, 3)
        session.rewind(back)
        if resumed:
            drop(session)
            session = journal.resume(session.id, mode="continue")
        seen.append(epoch(session, 30, 6))

    assert seen[0] == seen[1]
    assert 10_000 in seen[0][3:]
    assert min(seen[0]) < 10_000


def test_the_budget_can_be_set(tmp_path: Path) -> None:
    """Of a result, and of all of them."""
    session = Journal(tmp_path, spill_per_result=9_000).create()

    assert max(epoch(session, 0, 2)) < 9_000


def test_a_bulky_copy_of_a_result_is_dropped(journal: Journal) -> None:
    """Only what stands in the result as well: ids, codes, errors and diffs stay."""
    session = journal.create()
    call(session, "c1")
    block = {"type": "tool_result", "tool_use_id": "c1", "content": BIG}
    copy = {"stdout": BIG, "stderr": "", "exitCode": 3, "agentId": "a", "more": "words " * 100}
    session.record("user", {"role": "user", "content": [block], "toolUseResult": copy})
    assert session.transcript_path is not None
    line = session.transcript_path.read_bytes().splitlines()[-1]

    assert len(line) < 5_000
    assert b"stdout" not in line
    assert all(word in line for word in (b'"exitCode":3', b'"agentId":"a"', b"words words"))


def test_a_copy_that_is_the_result_again_goes_whole(journal: Journal) -> None:
    """A text; one of a failed call stays, as an error does."""
    session = journal.create()
    seen = []
    for failed in (False, True):
        block = {"type": "tool_result", "tool_use_id": "c", "content": BIG[:5000]}
        payload = {
            "role": "user",
            "content": [{**block, "is_error": failed}],
            "toolUseResult": BIG[:5000],
        }
        session.record("user", payload)
        assert session.transcript_path is not None
        seen.append(b"toolUseResult" in session.transcript_path.read_bytes().splitlines()[-1])

    assert [False, True] == seen


def test_results_in_sidechains_are_spilled(journal: Journal) -> None:
    """Into the side files of the session, from where it gives them back."""
    session = journal.create()
    with session.sidechain("reviewer") as side:
        result = {"type": "tool_result", "tool_use_id": "c1", "content": BIG}
        side.record("user", {"role": "user", "content": [result]})
        side.finish("read it")

    assert side.path.stat().st_size < 10_000
    (spilled,) = spilled_in(_content(side.path))
    assert BIG.encode() == session.full_result(spilled)


@pytest.mark.parametrize(
    "wrap", [lambda block: {"content": [block]}, lambda block: block], ids=["in content", "bare"]
)
def test_results_under_any_type_are_spilled(journal: Journal, wrap: Any) -> None:
    """They take nothing of the budget of what the model sees."""
    session = journal.create()
    for number in range(10):
        result = {"type": "tool_result", "tool_use_id": "c1", "content": f"{number}{BIG}"}
        session.record("tool_output", wrap(result))
    assert session.transcript_path is not None

    assert session.transcript_path.stat().st_size < 50_000
    assert [10_000] * 4 == epoch(session, 0, 4)


def _content(path: Path) -> Any:
    import json

    events = [json.loads(line) for line in path.read_text().splitlines()]
    return next(event["payload"]["content"] for event in events if event["type"] == "user")[0][
        "content"
    ]
