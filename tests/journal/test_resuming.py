"""What a resumed session tells and restores: to-dos, what was lost, the title, the words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import thence
from tests.journal.runs import drop
from tests.journal.test_journal import answer, call, reply, say
from thence.errors import Conflict, SessionNotFound, ThenceError
from thence.format import repair
from thence.format.transcript import Transcript
from thence.journal.journal import Journal, Mode
from thence.journal.session import Session
from thence.journal.tools import Tools

MODES: tuple[Mode, ...] = ("adopt", "continue", "fork")


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A journal in a folder of its own."""
    return Journal(tmp_path / "home", durability="none")


def use(session: Session, name: str, tool: str, arguments: Any, result: str = "ok") -> None:
    """Record a call of a tool and its result."""
    block = {"type": "tool_use", "id": name, "name": tool, "input": arguments}
    session.record("assistant", {"role": "assistant", "content": [block]})
    answer(session, name, result)


def todo_words(session: Session) -> list[str]:
    """The texts of what is pending, the same by both ways to ask."""
    pending = [todo.text for todo in session.pending]

    assert pending == [todo.text for todo in session.recovery.pending]
    return pending


# -- to-dos ---------------------------------------------------------------------------------

LISTS: dict[str, tuple[str, Any, str]] = {
    "claude": ("TodoWrite", {"todos": [{"content": "feed the fish", "status": "pending"}]}, "ok"),
    "codex": ("update_plan", {"plan": [{"step": "feed the fish", "status": "pending"}]}, "ok"),
    "tasks": ("TaskCreate", {"subject": "feed the fish"}, "Task #1 created successfully"),
    "gemini": ("write_todos", {"todos": [{"description": "feed the fish"}]}, "ok"),
}


@pytest.mark.parametrize("agent", LISTS)
@pytest.mark.parametrize("mode", MODES)
def test_resume_tells_the_open_to_dos_of_every_agents_tool(
    journal: Journal, agent: str, mode: Mode
) -> None:
    """And of a session that was compacted since, however often."""
    tool, arguments, result = LISTS[agent]
    session = journal.create()
    say(session, "look after the tank")
    use(session, "c1", tool, arguments, result)
    reply(session, "The list is made.")
    session.compact("A list was made.")
    say(session, "go on")
    reply_uuid = reply(session, "Going on.")
    session.compact("Still at it.", keep_from=reply_uuid)
    drop(session)

    assert ["feed the fish"] == todo_words(journal.resume(session.id, mode=mode))


def test_resume_tells_check_lists_and_what_the_agent_said_last(journal: Journal) -> None:
    """Todos that a harness records itself come first."""
    session = journal.create()
    session.record("todos", {"todos": [{"content": "weigh the crabs", "status": "pending"}]})
    say(session, "what is left?")
    reply(session, "Plan:\n- [x] count the crabs\n- [ ] name the crabs")
    say(session, "and?")
    reply(session, "I still need to add an edge case test for the tide table.")
    session.flush()

    words = todo_words(journal.resume(session.id))

    assert ["weigh the crabs", "name the crabs"] == words[:2]
    assert "edge case test" in words[2]


def test_a_to_do_that_was_done_after_a_compaction_is_not_pending(journal: Journal) -> None:
    """What the boundary carries is changed by what follows it."""
    session = journal.create()
    use(session, "c1", "TaskCreate", {"subject": "feed the fish"}, "Task #1 created")
    use(session, "c2", "TaskCreate", {"subject": "clean the glass"}, "Task #2 created")
    session.compact("Two tasks.")
    use(session, "c3", "TaskUpdate", {"taskId": "1", "status": "completed"}, "Updated task #1")
    session.compact("One is done.", keep_from=say(session, "next"))

    assert ["clean the glass"] == [todo.text for todo in session.pending]
    assert ["clean the glass"] == todo_words(journal.resume(session.id, mode="continue"))


def test_the_to_dos_of_recovery_are_those_it_was_opened_with(journal: Journal) -> None:
    """Asked late, it does not tell of what was done since."""
    session = journal.create()
    use(session, "c1", *LISTS["claude"][:2])
    drop(session)
    again = journal.resume(session.id)
    use(again, "c2", "TodoWrite", {"todos": [{"content": "sleep", "status": "pending"}]})
    again.compact("Slept.")

    assert ["feed the fish"] == [todo.text for todo in again.recovery.pending]
    assert ["sleep"] == [todo.text for todo in again.pending]


# -- what was lost --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_half_a_compaction_is_a_notice(journal: Journal, mode: Mode) -> None:
    """A crash between the summary and its boundary leaves the messages, and is told."""
    session = journal.create()
    say(session, "hello")
    session.compact("hello was said")
    assert session.transcript_path is not None
    data = session.transcript_path.read_bytes()
    session.transcript_path.write_bytes(data[: data.rindex(b'{"type":"boundary"')])
    drop(session)

    again = journal.resume(session.id, mode=mode)

    assert ["half a compaction"] == [notice.what for notice in again.recovery.notices]
    assert "hello" == again.messages[0]["content"][0]["text"]


_KILLED = """
import os, sys, thence
session = thence.Journal(sys.argv[1], enabled=True).create(session="parent")
session.record("user", {"role": "user", "content": "review it"})
side = session.sidechain("reviewer", agent_id="task-7")
side.record("user", {"role": "user", "content": "Review tide.txt."})
done = session.sidechain("other")
done.finish("fine")
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("mode", MODES)
def test_a_subagent_that_was_killed_is_told_with_its_last_event(tmp_path: Path, mode: Mode) -> None:
    """By SIGKILL in the middle of its work; one that ended is not told."""
    subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], check=False)

    again = Journal(tmp_path).resume("parent", mode=mode)
    lost = again.recovery.subagents

    assert [("task-7", "reviewer", "lost", "user")] == [
        (subagent.agent_id, subagent.name, subagent.status, subagent.last_type) for subagent in lost
    ]
    assert ["subagent never ended"] == [notice.what for notice in again.recovery.notices]
    assert "reviewer task-7: lost with its process" in again.recovery.notices[0].detail
    assert not again.recovery.clean


def test_a_subagent_that_still_runs_is_told_as_running(journal: Journal) -> None:
    """Somebody holds its log."""
    session = journal.create()
    side = session.sidechain("reviewer")

    assert ["running"] == [
        subagent.status for subagent in journal.resume(session.id).recovery.subagents
    ]

    side.finish("fine")
    assert [] == journal.resume(session.id).recovery.subagents


@pytest.mark.parametrize("mode", MODES)
def test_a_lost_domain_is_empty_and_told(journal: Journal, mode: Mode) -> None:
    """The session that loses its todo list loses nothing else, and raises nothing."""
    session = journal.create(cwd="/tidepool")
    say(session, "hello")
    session._write("todos", {"todos": 17})
    drop(session)

    again = journal.resume(session.id, mode=mode)

    assert ([], "/tidepool") == (again.state.todos, again.state.cwd)
    assert ["state lost"] == [notice.what for notice in again.recovery.notices]
    assert again.recovery.notices[0].detail.startswith("todos: ")


# -- title, model, first prompt -------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_title_model_and_first_prompt_are_carried_on(journal: Journal, mode: Mode) -> None:
    """Over two generations, before the first turn ended and after it."""
    session = journal.create(model="m-1")
    session.title = "Tide tables"
    say(session, "Why is the tide low?")
    reply(session, "The moon.", model="m-2")
    session.close()
    name = session.id
    for _ in range(2):
        again = journal.resume(name, mode=mode)
        listed = next(entry for entry in journal.sessions() if entry.session_id == again.id)

        assert "Tide tables" == again.title == listed.title
        assert ("m-2", "Why is the tide low?") == (listed.model, listed.first_prompt)

        say(again, "And now?")
        again.flush()
        again.close()
        name = again.id
        listed = next(entry for entry in journal.sessions() if entry.session_id == name)

        assert ("Tide tables", "m-2") == (listed.title, listed.model)


# -- words of synthetic results -------------------------------------------------------------


def _answers(session: Session) -> list[str]:
    content = [block for message in session.messages for block in message["content"]]
    return [block["content"] for block in content if block["type"] == "tool_result"]


def test_a_call_that_nobody_approved_is_told_as_not_run(journal: Journal) -> None:
    """Not as a crash: the session goes on, and the call surely never ran."""
    now = [0.0]
    session = journal.create()
    say(session, "build")
    call(session, "c1")
    idle = session.idle(0, 11, clock=lambda: now[0])
    idle.approval_asked("c1")
    now[0] = 11.0
    idle.poll()
    words = "[not run: nobody approved this call within 11 s; it was not run.]"

    assert [words] == _answers(session)
    drop(session)
    again = journal.resume(session.id, mode="continue")
    assert [words] == _answers(again)

    answer(again, "c1", "built after all")
    assert ["built after all"] == _answers(again)


@pytest.mark.parametrize(
    ("by", "words"), [("user", repair.USER_STOPPED), ("limit", repair.TURN_STOPPED)]
)
def test_a_call_that_was_interrupted_is_told_so(journal: Journal, by: str, words: str) -> None:
    """While the session runs on, and after a resume, which writes it down; then a crash's."""
    session = journal.create()
    say(session, "build")
    call(session, "c1")
    session.record("interrupted", {"by": by})

    assert [words] == _answers(session)

    say(session, "once more")
    call(session, "c2")
    drop(session)
    again = journal.resume(session.id)

    assert [words, repair.INTERRUPTED] == _answers(again)
    assert ["c1", "c2"] == again.recovery.mended


# -- timers from the environment ------------------------------------------------------------


def test_idle_takes_its_timeouts_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the caller gives others."""
    monkeypatch.setenv("IDLE_TIMEOUT", "20")
    monkeypatch.setenv("APPROVAL_TIMEOUT", "7")
    session = thence.Journal(tmp_path).create()
    due = []
    for timers in (session.idle(clock=lambda: 100.0), session.idle(5, 6, clock=lambda: 100.0)):
        timers.turn_ended()
        due.append(timers.next_deadline())
        timers.queued()
        timers.approval_asked("c1")
        due.append(timers.next_deadline())

    assert [120.0, 107.0, 105.0, 106.0] == due


# -- work -----------------------------------------------------------------------------------


def test_messages_cost_what_is_new_in_every_turn(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The messages that are mended are counted, live and in a session that goes on."""
    work = [0]
    real = repair.mend

    def counted(messages: Any, *rest: Any) -> repair.Mended:
        listed = list(messages)
        work[-1] += len(listed)
        return real(listed, *rest)

    monkeypatch.setattr(repair, "mend", counted)
    session = journal.create()
    for turn in range(60):
        if turn == 30:
            session = journal.resume(session.id)
            session.messages  # noqa: B018 - the first look mends what was there
        work.append(0)
        say(session, f"question {turn}")
        session.messages  # noqa: B018 - what a harness sends
        call(session, f"c{turn}")
        answer(session, f"c{turn}")
        session.messages  # noqa: B018
        reply(session, "answer")

    del work[30:32]  # the resume itself

    assert max(work) <= 8


# -- smaller ones ---------------------------------------------------------------------------


def test_a_tool_may_name_a_parent_that_nobody_knows(journal: Journal) -> None:
    """The caller is responsible: it is written down, and the event goes on from the tip."""
    with Tools(journal) as tools:
        for uuid, parent in (("e1", None), ("e2", "nowhere"), ("e3", "e2")):
            event = {
                "type": "user",
                "uuid": uuid,
                "prev_uuid": parent,
                "payload": {"role": "user", "content": uuid},
            }
            tools.append_transcript({"session_id": "s-1", "event": event})
    again = journal.resume("s-1", mode="continue")
    texts = [block["text"] for message in again.messages for block in message["content"]]

    assert ["e1", "e2", "e3"] == texts
    assert [True] == [notice.what.endswith(" link") for notice in again.recovery.notices]


def test_a_parent_that_nobody_knows_is_an_error_for_a_harness(journal: Journal) -> None:
    """Unless it says otherwise."""
    session = journal.create()

    with pytest.raises(SessionNotFound):
        say(session, "hello", parent="nowhere")


def test_a_sidechain_has_the_name_its_caller_gives(journal: Journal) -> None:
    """A task's id, once; what is no name is refused."""
    session = journal.create()
    with session.sidechain("reviewer", agent_id="task-7") as side:
        side.finish("fine")

    assert ("task-7", "task-7.jsonl") == (side.agent_id, side.path.name)
    with pytest.raises(Conflict):
        session.sidechain("reviewer", agent_id="task-7")
    with pytest.raises(ThenceError):
        session.sidechain("reviewer", agent_id="../up")


@pytest.mark.parametrize("adopted", [False, True])
def test_compact_can_keep_from_before_the_last_boundary(journal: Journal, *, adopted: bool) -> None:
    """The originals come back, for us, for who resumes and for who reads the bytes."""
    session = journal.create()
    say(session, "one")
    reply(session, "first")
    second = say(session, "two")
    reply(session, "second")
    session.compact("one and two", keep_from=reply(session, "third"))
    if adopted:
        session.close()
        session = journal.resume(session.id)
    say(session, "three")
    reply(session, "fourth")
    session.compact("one", keep_from=second)
    say(session, "five")

    def texts(messages: list[Any]) -> list[str]:
        return [block["text"] for message in messages for block in message["content"]]

    expected = ["one", "two", "second", "third", "three", "fourth", "five"]
    assert expected == texts(session.messages)
    assert expected == texts(journal.resume(session.id).messages)
    if not adopted:
        assert session.transcript_path is not None
        data = session.transcript_path.read_bytes()
        assert expected == texts(Transcript.read(data).messages().messages)
    with pytest.raises(SessionNotFound):
        session.compact("none", keep_from="nowhere")


def test_persistence_switched_off_still_tells_what_is_pending(tmp_path: Path) -> None:
    """Nothing is kept, everything else works."""
    session = Journal(tmp_path / "none", enabled=False).create()
    use(session, "c1", *LISTS["claude"][:2])
    session.compact("made a list")

    assert ["feed the fish"] == [todo.text for todo in session.pending]
    assert not os.path.exists(tmp_path / "none")  # noqa: PTH110
