"""How a call went, put together from its result and from what other records tell."""

from __future__ import annotations

import pytest

from tests.format.derived import find_ending
from thence.format import errors, outcomes
from thence.format.facts import Block, CallStatus
from thence.format.outcomes import CallOutcome, judge_call
from thence.format.tools import BUILT_IN, Effect


def judged(
    *, ended: bool = True, status: CallStatus | None = None, tool: str = "Bash", **asked: str
) -> CallOutcome:
    """Return the outcome of a call a minute before its result, which ended with code 0."""
    effect, _ = BUILT_IN.judge(tool, asked)
    result = Block("tool_result", "tool", "done", "done") if ended else None
    return judge_call(
        effect,
        result=result,
        evidence=errors.Evidence(is_structured=True, exit_code=0) if ended else None,
        status=status,
        started="2026-01-01T00:00:00Z",
        finished="2026-01-01T00:01:00Z",
    )


def test_what_another_record_tells_comes_first() -> None:
    """Exit code, time, failure."""
    outcome = judged(status=CallStatus("c", failed=True, exit_code=2, took_ms=5))

    assert (2, 5, True, True) == (
        outcome.exit_code,
        outcome.duration_ms,
        outcome.failed,
        outcome.ended,
    )


def test_a_failure_that_any_record_tells_stands() -> None:
    """An exit code of 0 does not make a call good that its result calls an error."""
    result = Block("tool_result", "tool", "no", "no", failed=True)
    outcome = judge_call(
        Effect("shell"),
        result=result,
        evidence=errors.evidence_of("shell", "no"),
        status=CallStatus("c", failed=False, exit_code=0),
        started=None,
        finished=None,
    )

    assert (True, 0, "is_error") == (outcome.failed, outcome.exit_code, outcome.reason)


def test_time_is_measured_or_taken_from_the_clock() -> None:
    """But not for what is done at once: there it is the time somebody took to allow it."""
    assert 9 == judged(status=CallStatus("c", took_ms=9)).duration_ms
    assert 60_000 == judged(command="make").duration_ms
    assert 60_000 == judged(command="make > log.txt").duration_ms
    assert None is judged(tool="Edit", file_path="a").duration_ms
    assert 60_000 == judged(tool="Edit", file_path="a").elapsed_ms
    assert None is judged(ended=False).duration_ms


def test_call_ended_if_anybody_says_so() -> None:
    """Its result, or another record."""
    assert [True, False, True, False] == [
        outcome.ended
        for outcome in (
            judged(),
            judged(ended=False),
            judged(ended=False, status=CallStatus("c")),
            judged(ended=False, status=CallStatus("c", ended=False)),
        )
    ]


def test_effects_that_try_the_same_share_a_key() -> None:
    """The same tests in any folder, the same files, or the very same arguments."""
    keys = [
        BUILT_IN.judge(tool, arguments)[0].retry_key
        for tool, arguments in (
            ("Bash", {"command": "pytest -q"}),
            ("Bash", {"command": "cd a && pytest tests/b.py"}),
            ("Bash", {"command": "ls  -l"}),
            ("Bash", {"command": "ls -l"}),
            ("Edit", {"file_path": "a", "old_string": "x", "new_string": "y"}),
            ("Edit", {"file_path": "a", "old_string": "y", "new_string": "z"}),
            ("Grep", {"pattern": "a"}),
            ("Grep", {"pattern": "b"}),
        )
    ]

    assert [True, True, True, False] == [keys[n] == keys[n + 1] for n in range(0, 8, 2)]


def test_input_nested_deeper_than_python_follows_is_a_retry_of_nothing() -> None:
    """It has no key, and costs nothing else."""
    deep: object = "end"
    for _ in range(100_000):
        deep = [deep]

    assert Effect("search") == BUILT_IN.judge("Grep", {"pattern": deep})[0]


def test_a_real_result_is_taken_before_a_synthetic_one() -> None:
    """Then the first that follows its call, else the first; a second call of an id gets none."""
    calls = [(1, "a"), (2, "b"), (5, "c"), (7, "a")]
    results = {
        "a": [(3, True), (4, False)],
        "b": [(0, False), (6, False)],
        "c": [(0, False), (1, False)],
    }

    assert [4, 6, 0, None] == outcomes.match_results(calls, results)


RESULTS = (
    "Exit code 2\nuse",
    "exit: 0\nError: a",
    "aborted by user",
    "",
    {"exit_code": 3, "output": "x"},
    {"metadata": {"exitCode": 0}, "success": False},
    {"status": "declined"},
    [{"type": "text", "text": "This command requires approval"}],
)


@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("tool", ["Bash", "Read"])
def test_evidence_alone_gives_the_ending_that_the_result_gives(tool: str, result: object) -> None:
    """Whatever else is known: a store without payloads judges as one with them."""
    evidence = errors.evidence_of(BUILT_IN.kind(tool), result)

    for is_error in (None, True, False):
        for code in (None, 0, 1):
            ended = find_ending(tool, result, is_error=is_error, exit_code=code)

            assert ended == errors.judge(evidence, is_error=is_error, exit_code=code)
