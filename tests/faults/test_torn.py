"""A session's file cut at every byte, opened, appended to and read: only the cut event is gone."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.faults.crowd import MEMORY_FOLDER, UncleanSubject
from tests.pace import by_pace
from thence.format import codec
from thence.journal import Journal
from thence.testing import SAMPLE_SESSION, CrashSuite, Draft, JournalSubject

EVENT_COUNT = 24
STEP_BYTES = by_pace(everyday=97, full=29, prove=1)

pytestmark = pytest.mark.sampled


@pytest.mark.slow
def test_a_cut_at_any_byte_costs_the_cut_event_only() -> None:
    """Going on with a torn session never shortens it, and its next event can be read."""
    subject = UncleanSubject(largest=8, durability="none")
    with TemporaryDirectory(dir=MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else None) as folder:
        store = Path(folder)
        list(subject.write(store, 1, EVENT_COUNT))
        size = subject.file(store).stat().st_size
        report = CrashSuite(subject).cuts(store, subject.file(store), every=STEP_BYTES)

    assert 0 == report.violations
    assert (EVENT_COUNT, -(-size // STEP_BYTES) + 1) == (report.acknowledged, report.rounds)


@pytest.mark.slow
def test_model_sees_all_but_the_cut_event(tmp_path: Path) -> None:
    """What goes to the model is the same story, as far as it was whole."""
    file = JournalSubject().file(tmp_path)
    file.parent.mkdir(parents=True)
    draft = Draft(SAMPLE_SESSION)
    draft.header(cwd=None)
    for number in range(6):
        draft.prompt(f"prompt {number}")
        draft.reply(f"reply {number}")
    data = draft.bytes()
    wrong = []
    for cut in range(len(draft.lines()[0]), len(data), by_pace(everyday=97, full=41, prove=3)):
        file.write_bytes(data[:cut])
        with Journal(tmp_path, durability="none").resume(
            SAMPLE_SESSION, mode="continue"
        ) as session:
            session.record("user", {"role": "user", "content": "next"})
            messages = str(session.messages)
        left = [event for event in codec.decode(data[:cut]).events if event.type != "header"]
        contents = [str(event.fields["content"]) for event in left]
        texts = [f"{word} {n}" for n in range(6) for word in ("prompt", "reply")][: len(contents)]
        wrong += [cut] * any(text not in messages for text in [*texts, "next"])

    assert [] == wrong
