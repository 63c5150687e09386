"""The planted corpora: the same bytes every time, and thence's answers to every question."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.cli.desk import in_process
from truth import harness
from truth.__main__ import CASES
from truth.case import Case, Usage
from truth.tools import Thence

KNOWN: set[tuple[str, str]] = set()
"""What thence is known not to answer right."""


class InProcess(Thence):
    """Our command without a process for each question."""

    def run(self, *command: str | Path, **env: str) -> str:
        """Run what stands behind the entry."""
        result = in_process(*command[len(self._entry) :], env={"HOME": str(self.home), **env})
        assert result.code in (0, 3), result.err
        return result.out


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["claude", "codex", "grok"])
def test_thence_gives_the_planted_answers(agent: str) -> None:
    """Sessions, tokens, cost, words, dead branches and secrets of every case of an agent."""
    answers = [a for case in CASES if case.agent == agent for a in harness.run(case, InProcess)]
    wrong = {(f"{a.agent} {a.case}", a.question) for a in answers if a.verdict != harness.RIGHT}

    assert {known for known in KNOWN if known[0].startswith(agent)} == wrong
    assert 12 < len(answers)


def test_thence_is_right_about_a_rewind() -> None:
    """One case every day: billed all the same, found, and told as dead."""
    [case] = [case for case in CASES if (case.agent, case.name) == ("claude", "rewind")]

    assert {harness.RIGHT} == {answer.verdict for answer in harness.run(case, InProcess)}


@pytest.mark.sampled(4)
@pytest.mark.few(6)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.agent} {case.name}")
def test_a_case_is_the_same_every_time(case: Case, tmp_path: Path) -> None:
    """Two homes hold the same files but for the names of the homes in them."""
    hashes = []
    for name in ("one", "two"):
        home = tmp_path / name
        case.plant(home)
        hashes.append(
            {
                str(path.relative_to(home)): hashlib.sha256(
                    path.read_bytes().replace(str(home).encode(), b"~")
                ).hexdigest()
                for path in home.rglob("*")
                if path.is_file()
            }
        )
        for change in case.changes:
            change(home)

    assert hashes[0] == hashes[1] != {}


def test_no_two_cases_share_a_name() -> None:
    """And each agent has the cases that its logs can have."""
    names = [f"{case.agent} {case.name}" for case in CASES]

    assert len(names) == len(set(names))
    assert {"claude": 17, "codex": 8, "grok": 6} == {
        agent: sum(case.agent == agent for case in CASES) for agent in ("claude", "codex", "grok")
    }


def test_a_bill_is_added_up() -> None:
    """Every kind by itself, and the price of each."""
    usage = Usage(1_000_000, 0, 0, 0) + Usage(0, 1_000_000, 0, 0) + Usage(0, 0, 1, 2)

    assert Usage(1_000_000, 1_000_000, 1, 2) == usage
    assert 2_000_003 == usage.total
    assert round(18 + (3.75 + 0.6) / 1e6, 12) == round(usage.cost, 12)
