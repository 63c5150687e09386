"""How often the rules are right: labelled sessions and prompts, and the confidence they give.

`python -m tests.memory.endings` prints the tables.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.memory import endings
from thence.memory.outcome import CALIBRATION


def test_the_labelled_sets_are_large_enough_and_well_formed() -> None:
    """At least sixty made-up sessions and sixty real ones, of every agent and every outcome."""
    outcomes = {"success", "fail", "abandoned", "waiting", "unknown"}
    made_up, real = endings.cases(), endings.labels()

    assert len(made_up) >= 60
    assert len(real) >= 60
    assert outcomes == {ending.label for _, ending in made_up}
    assert outcomes == {label.label for label in real}
    assert set(endings.AGENTS) == {agent for agent, _ in made_up}
    assert {"claude", "codex", "grok"} == {label.uid.partition(":")[0] for label in real}
    assert len(real) == len({(label.path, label.uid) for label in real})
    assert all(label.reason for label in real)


@pytest.mark.slow
def test_made_up_sessions_are_judged_as_labelled(tmp_path: Path) -> None:
    """Of 87 endings over all agents three hard ones are misjudged, and no other."""
    judged = endings.judge_made_up(tmp_path)
    counts = endings.confusion(judged)
    wrong = {pair: n for pair, n in counts.items() if pair[0] != pair[1]}

    assert {("fail", "success"): 2, ("waiting", "success"): 1} == wrong


@pytest.mark.slow
def test_corrections_and_reports_in_words_are_interventions(tmp_path: Path) -> None:
    """Of 36 prompts by which a human steps in 34 are seen, whatever the agent; no other counts."""
    counts = endings.judge_prompts(tmp_path)
    agents = len(endings.AGENTS)

    assert 34 * agents == counts["stepped in", "stepped in"]
    assert 2 * agents == counts["stepped in", "not"]
    assert 0 == counts["not", "stepped in"]


@pytest.mark.parametrize("agent", endings.AGENTS)
def test_a_first_prompt_is_no_intervention(agent: str, tmp_path: Path) -> None:
    """Who reports a fault at the start gives a task."""
    session = endings.read(agent, tmp_path, ["ask There's a bug in the parser", "say Fixed."])

    assert [] == [event for event in session.derived if event.kind == "human_intervention"]


def test_a_rejection_its_stop_and_the_next_prompt_count_once(tmp_path: Path) -> None:
    """A call that is refused, the stop of the turn and the prompt after it are one."""
    story = ["ask Clean up.", "run rm -rf data", "refuse", "stop", "ask No, keep the data."]
    session = endings.read("claude", tmp_path, [*story, "say I kept it."])
    interventions = [event for event in session.derived if event.kind == "human_intervention"]

    assert ["denied"] == [event.summary for event in interventions]


@pytest.mark.parametrize("agent", ["claude", "codex", "grok"])
def test_a_killed_process_is_no_intervention(agent: str, tmp_path: Path) -> None:
    """Who goes on after a crash did not step in."""
    crash = ["crash"] if agent != "codex" else []
    story = ["ask Run it.", "run sleep 300", *crash, "ask Go on with the job, please", "say Done."]
    session = endings.read(agent, tmp_path, story)

    assert [] == [event for event in session.derived if event.kind == "human_intervention"]


def test_two_corrections_are_two_interventions(tmp_path: Path) -> None:
    """Each prompt counts by itself."""
    for agent in endings.AGENTS:
        prompts = ("No, the other file.", "Now add a test.", "It still fails.")

        assert 2 == endings.stepped_in(agent, tmp_path / agent, *prompts)


def test_an_answer_to_a_question_is_no_correction(tmp_path: Path) -> None:
    """A "no" after a question of the agent says what is wanted, not what went wrong."""
    story = ["ask Fix it.", "say Shall I delete the file?", "ask No, keep it.", "say Kept."]
    session = endings.read("claude", tmp_path, story)

    assert [] == [event for event in session.derived if event.kind == "human_intervention"]


# -- confidence -----------------------------------------------------------------------------


@pytest.mark.slow
def test_the_confidence_covers_what_the_made_up_sessions_show(tmp_path: Path) -> None:
    """The counts that give the confidence include those of the made-up sessions."""
    for basis, (right, judged) in endings.calibration(endings.judge_made_up(tmp_path)).items():
        all_right, all_judged = CALIBRATION[basis]

        assert right <= all_right
        assert judged - right <= all_judged - all_right


@pytest.mark.slow
def test_the_confidence_is_what_was_measured(shared: Path, tmp_path: Path) -> None:
    """The share of right verdicts by basis, over all labelled sessions, is the one in use."""
    judged = endings.judge_made_up(tmp_path)
    judged += endings.judge_real(shared / "data", endings.labels())

    assert endings.calibration(judged) == CALIBRATION


@pytest.mark.slow
def test_held_back_sessions_are_judged_as_a_reader_judged_them(shared: Path) -> None:
    """On real sessions nothing was tuned on, the rules are far better than always success."""
    held_back = [label for label in endings.labels() if label.is_held_back]
    judged = endings.judge_real(shared / "data", held_back)
    right = sum(label == verdict.outcome for label, verdict in judged)
    successes = sum(label == "success" for label, _ in judged)

    assert 61 == len(judged)
    assert right >= 0.95 * len(judged) > successes
