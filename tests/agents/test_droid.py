"""Droid: logs as its client writes them, against what the API billed, and made-up ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.agents import (
    WRITTEN,
    billed,
    counted,
    outcomes,
    prompts_of,
    read_by_steps,
    sessions_of,
    without_requests,
    write_all,
    write_document,
    write_lines,
)
from tests.pace import SUITE_BYTES, SUITE_ROUNDS
from thence.agents.droid.lines import NO_TOTAL, TAKEN_OVER
from thence.agents.droid.reader import Droid
from thence.agents.sessions import load
from thence.memory.readouts import readout_of
from thence.testing import AdapterSuite
from thence.testing.readers import CHECKS

PARENT = "55555555-0000-4000-8000-00000000000a"
FORK = "55555555-0000-4000-8000-00000000000b"
CHILD = "55555555-0000-4000-8000-00000000000c"
KNOWN = {"droid": Droid()}


def message(number: int, above: int, role: str, *content: Any, **more: Any) -> dict[str, Any]:
    """A message."""
    inner = {"role": role, "content": list(content), **more}
    parent = {"parentId": f"m{above}"} if above else {}
    when = f"2026-05-04T10:00:{number:02}.000Z"
    return {"type": "message", "id": f"m{number}", **parent, "timestamp": when, "message": inner}


def text(line: str) -> dict[str, Any]:
    """A text."""
    return {"type": "text", "text": line}


def call(name: str, tool: str, **arguments: Any) -> dict[str, Any]:
    """A call."""
    return {"type": "tool_use", "id": name, "name": tool, "input": arguments}


def gave(name: str, content: str, *, is_error: bool = False) -> dict[str, Any]:
    """The result of a call."""
    result = {"type": "tool_result", "tool_use_id": name}
    return {**result, "is_error": is_error, "content": content}


def ended(number: int, reason: str = "completed") -> dict[str, Any]:
    """The end of a turn."""
    return {"type": "agent_turn_outcome", "turnId": f"m{number}", "reason": reason}


def start(session: str, title: str = "Mend it", **more: Any) -> dict[str, Any]:
    """The first line of a log."""
    first = {"type": "session_start", "id": session, "title": title, "version": 2}
    return {**first, "cwd": "/home/dev/demo", "owner": "dev", **more}


REMINDER = text("<system-reminder>Be brief.</system-reminder>")
MODEL: dict[str, Any] = {"modelId": "custom:Mock-0"}
TALK = [
    message(1, 0, "user", REMINDER),
    message(2, 1, "user", text("Mend it")),
    message(
        *(3, 2, "assistant", {"type": "thinking", "thinking": "Hm."}),
        call("c1", "Execute", command="make"),
        **MODEL,
    ),
    message(4, 3, "user", gave("c1", "no rule\n\n[Process exited with code 2]", is_error=True)),
    message(5, 4, "assistant", call("c2", "Task", prompt="Count"), **MODEL),
    message(6, 5, "user", gave("c2", "Two.")),
    message(7, 6, "assistant", text("It has no rule."), **MODEL),
    ended(2),
]


def path_of(root: Path, session: str) -> Path:
    """Where the log of a session lies."""
    return root / "sessions" / "-home-dev-demo" / f"{session}.jsonl"


def put_total(root: Path, session: str, input_tokens: int, output: int) -> None:
    """Write the total of a session: a hundred of it from the cache."""
    counts = {"inputTokens": input_tokens - 100, "outputTokens": output, "cacheReadTokens": 100}
    inclusive = {"inputTokens": 10**6, "outputTokens": 10**6}
    document = {"model": "custom:Mock-0", "tokenUsage": counts, "inclusiveTokenUsage": inclusive}
    write_document(path_of(root, session).with_suffix(".settings.json"), document)


def write(root: Path) -> Iterator[None]:
    """Write a session with a subagent, another title and a compaction, and a fork, by steps."""
    write_lines(path_of(root, PARENT), start(PARENT), *TALK[:3])
    put_total(root, PARENT, 1000, 30)
    yield
    write_lines(
        path_of(root, CHILD),
        *[
            start(CHILD, callingSessionId=PARENT, callingToolUseId="c2"),
            *(
                {**line, "id": f"s{line['id']}", "parentId": "sm8" if nth else None}
                for nth, line in enumerate(
                    [message(8, 0, "user", text("Count")), message(9, 8, "assistant", text("Two."))]
                )
            ),
        ],
    )
    put_total(root, CHILD, 500, 5)
    yield
    write_lines(path_of(root, PARENT), start(PARENT), *TALK)
    put_total(root, PARENT, 3300, 60)
    yield
    named = start(PARENT, "Mending", isSessionTitleManuallySet=True)
    more = [
        {"type": "compaction_state", "id": "k1", "summaryText": "Mended.", "removedCount": 6},
        message(20, 7, "user", text("Go on")),
        message(21, 20, "user", text("!ls"), visibility="user_only"),
        message(22, 20, "assistant", text("Yes."), **MODEL),
        ended(20),
        {"type": "todo_state", "id": "t1", "todos": []},
    ]
    write_lines(path_of(root, PARENT), named, *TALK, *more)
    put_total(root, PARENT, 4700, 67)
    yield
    tie = {"parent": PARENT, "forkedAtMessageId": "m7"}
    new = [
        message(31, 7, "user", text("Try this")),
        message(32, 31, "assistant", text("So be it."), **MODEL),
        ended(31),
    ]
    write_lines(path_of(root, FORK), start(FORK, **tie), *TALK, *new)
    put_total(root, FORK, 2000, 9)


@pytest.mark.parametrize("scenario", ["tools", "parallel", "subagent", "fork", "error", "killed"])
def test_tokens_calls_and_prompts_are_what_the_api_billed(shared: Path, scenario: str) -> None:
    """Every field is exact, killed calls included; how many requests there were no file says."""
    home = shared / "data" / "agents" / "droid" / scenario
    sessions = sessions_of(Droid(), home / "home/.factory").values()

    counts = counted(Droid(), home / "home/.factory")
    assert without_requests(billed(home)) == without_requests(counts)
    assert [] == [notice for session in sessions for notice in session.unbilled]
    assert {("/home/dev/demo", "Mock-0")} == {
        (session.session().cwd, session.session().model) for session in sessions
    }


def test_a_real_fork_is_tied_to_its_parent_and_pays_for_itself_only(shared: Path) -> None:
    """Its first line names the parent and the last message that was copied."""
    home = shared / "data" / "agents" / "droid" / "fork" / "home/.factory"
    parent, fork = sessions_of(Droid(), home).values()

    assert [("fork", parent.native)] == [(edge.link, edge.session) for edge in fork.edges]
    assert (7165, 3575) == (parent.spent.own, fork.spent.own)
    assert ["replayed", "live"] == [state for _, state in prompts_of(fork)]


def test_a_real_killed_call_has_no_result(shared: Path) -> None:
    """And its tokens are counted."""
    home = shared / "data" / "agents" / "droid" / "killed"
    (killed,) = sessions_of(Droid(), home / "at-kill/.factory").values()

    assert ("running", 1263) == (str(killed.turn().state), killed.spent.own)
    assert [("Execute", False, False, None)] == outcomes(killed)


@pytest.mark.parametrize(
    "scenario", ["agents/droid/compress-resume", "versions/droid/0.225.2-compact-fork"]
)
def test_real_compactions_are_billed_once(shared: Path, scenario: str) -> None:
    """Each goes on in a session whose total starts with that of the one before."""
    home = shared / "data" / scenario
    sessions = sessions_of(Droid(), home / "home/.factory").values()

    counts = counted(Droid(), home / "home/.factory")
    assert without_requests(billed(home)).own == without_requests(counts).own
    assert [] == [notice for session in sessions for notice in session.unbilled]


def test_a_real_session_that_went_on_after_its_compaction_makes_a_minimum(shared: Path) -> None:
    """Its total at the moment of the compaction is in no file any more."""
    home = shared / "data" / "versions/droid/0.225.2-compress-back"
    sessions = sessions_of(Droid(), home / "home/.factory").values()
    truth, counts = billed(home).own, counted(Droid(), home / "home/.factory").own

    assert (111_993, 2_910) == (counts.input, counts.output)
    assert (True, True) == (truth.input > counts.input, truth.output > counts.output)
    assert [TAKEN_OVER] == [n.detail for session in sessions for n in session.unbilled]


@pytest.mark.sampled
@pytest.mark.parametrize("check", CHECKS)
def test_the_adapter_suite_passes(check: str) -> None:
    """Growth, damage, rewriting, moving and hostile values change nothing that must stay."""
    assert [] == AdapterSuite(Droid(), write, rounds=SUITE_ROUNDS, bytewise=SUITE_BYTES).complaints(
        check
    )


def test_made_up_sessions_are_told_in_full(tmp_path: Path) -> None:
    """Calls, the title that was changed, ties, and each total once."""
    parent, fork, child = (
        read_by_steps(Droid(), tmp_path, write(tmp_path))[name] for name in (PARENT, FORK, CHILD)
    )

    assert [("Execute", True, True, 2), ("Task", True, False, None)] == outcomes(parent)
    assert ("Mending", "done") == (parent.title, str(parent.turn().state))
    assert (4767, 2009, 505) == (parent.spent.own, fork.spent.own, child.spent.own)
    assert [("fork", PARENT, None)] == [(e.link, e.session, e.call) for e in fork.edges]
    assert [("subagent", PARENT, "c2")] == [(e.link, e.session, e.call) for e in child.edges]
    assert [("Mend it", "live"), ("Go on", "live")] == prompts_of(parent)
    assert [("Mend it", "replayed"), ("Try this", "live")] == prompts_of(fork)
    assert [] == [event for event in parent.events if event.why == "rewritten"]


def compacted(root: Path, session: str, parent: str, second: int, *more: Any) -> None:
    """Write the log that a session goes on in after its compaction."""
    when = f"2026-05-04T10:00:{second:02}.000Z"
    summary = {"type": "compaction_state", "id": f"k{second}", "summaryText": "Mended."}
    head = start(session, parent=parent)
    write_lines(path_of(root, session), head, {**summary, "timestamp": when}, *more)


@pytest.mark.parametrize("looks", ["each time", "at the end", "parent gone", "parent unknown"])
def test_a_compaction_takes_over_the_total_and_no_token_twice(tmp_path: Path, looks: str) -> None:
    """Three sessions in a row, of which the first goes on once more: 1,030, 505 and 208 tokens.

    What cannot be known of the first total makes a minimum.
    """
    names = PARENT, CHILD, FORK

    def write_chain() -> Iterator[None]:
        write_lines(path_of(tmp_path, PARENT), start(PARENT), *TALK)
        put_total(tmp_path, PARENT, 1000, 30)
        if looks == "each time":
            yield
        compacted(tmp_path, CHILD, PARENT, 20)
        put_total(tmp_path, CHILD, 1300, 35)  # what the compaction itself took
        if looks == "each time":
            yield
        compacted(tmp_path, CHILD, PARENT, 20, message(21, 20, "assistant", text("Yes.")))
        put_total(tmp_path, CHILD, 1500, 35)
        compacted(tmp_path, FORK, CHILD, 30, message(31, 30, "assistant", text("Well.")))
        put_total(tmp_path, FORK, 1700, 43)
        if looks != "at the end":
            yield
        write_lines(path_of(tmp_path, PARENT), start(PARENT), *TALK, message(41, 7, "user"))
        put_total(tmp_path, PARENT, 1100, 31)
        if looks.startswith("parent"):
            path_of(tmp_path, PARENT).with_suffix(".settings.json").unlink()
        if looks == "parent unknown":
            path_of(tmp_path, PARENT).unlink()

    if looks == "parent unknown":
        write_all(write_chain())
    read = read_by_steps(Droid(), tmp_path, () if looks == "parent unknown" else write_chain())
    spent = {name: session.spent.own for name, session in read.items()}
    minimum = {name for name in read if TAKEN_OVER in [n.detail for n in read[name].unbilled]}

    assert {
        "each time": ({PARENT: 1131, CHILD: 505, FORK: 208}, set()),
        "at the end": ({PARENT: 1131, CHILD: 404, FORK: 208}, {CHILD}),
        "parent gone": ({PARENT: 1030, CHILD: 505, FORK: 208}, set()),
        "parent unknown": ({CHILD: 0, FORK: 208}, {CHILD}),
    }[looks] == (spent, minimum)
    assert [("resume", names[names.index(name) - 1]) for name in (CHILD, FORK)] == [
        (edge.link, edge.session) for name in (CHILD, FORK) for edge in read[name].edges
    ]


def test_totals_are_billed_as_they_grow(tmp_path: Path) -> None:
    """So that each part of it is billed at its time; read at once it is one bill."""
    bills = read_by_steps(Droid(), tmp_path, write(tmp_path))[PARENT].bills
    (once,) = sessions_of(Droid(), tmp_path)[PARENT].bills.values()

    assert [1030, 2330, 1407] == [usage.total for usage in bills.values()]
    assert 4767 == once.total


def test_after_a_compaction_the_model_sees_the_summary(tmp_path: Path) -> None:
    """What follows goes on from it, though it names the message before; a `!` command is unseen."""
    write_all(write(tmp_path))
    seen = readout_of(load(path_of(tmp_path, PARENT), KNOWN).graph).messages().messages

    texts = [part["text"] for entry in seen for part in entry["content"]]
    assert ["Mended.", "Go on", "Yes."] == texts


def test_a_rewritten_first_line_is_noticed_though_the_client_restores_the_time(
    tmp_path: Path,
) -> None:
    """The title is the new one, and no event is lost or told twice."""
    path = write_lines(path_of(tmp_path, PARENT), start(PARENT, "Old name"), *TALK)
    (source,) = Droid().find(tmp_path)
    first = Droid().read(source)
    before = path.stat()
    write_lines(path, start(PARENT, "New name"), *TALK)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    session = read_by_steps(Droid(), tmp_path, ())[PARENT]
    again = Droid().read(source, first.cursor)
    assert ("New name", 1 + len(TALK)) == (session.title, again.lines)


def test_a_session_that_is_archived_later_ended_when_it_did(tmp_path: Path) -> None:
    """That changes the time of the document, and no total."""
    path = write_lines(path_of(tmp_path, PARENT), start(PARENT), *TALK)
    put_total(tmp_path, PARENT, 1000, 30)
    os.utime(path, (WRITTEN, WRITTEN))
    os.utime(path.with_suffix(".settings.json"), (WRITTEN + 86_400, WRITTEN + 86_400))
    (session,) = sessions_of(Droid(), tmp_path).values()

    assert "2026-05-04T10:00:07.000Z" == session.session().ended_at


def test_a_session_without_its_total_is_a_lower_bound(tmp_path: Path) -> None:
    """And says why."""
    write_lines(path_of(tmp_path, PARENT), start(PARENT), *TALK)
    (session,) = sessions_of(Droid(), tmp_path).values()

    assert [NO_TOTAL] == [notice.detail for notice in session.unbilled]


@pytest.mark.parametrize(
    ("reason", "state"), [("completed", "done"), ("cancelled", "interrupted"), ("error", "done")]
)
def test_a_turn_ends_as_the_client_says(tmp_path: Path, reason: str, state: str) -> None:
    """An error is an event of its own."""
    path = write_lines(path_of(tmp_path, PARENT), start(PARENT), *TALK[:2], ended(2, reason))
    session = load(path, KNOWN).graph

    if reason != "completed":
        assert state == str(session.turn().state)
    assert (reason == "error") == any(event.kind == "error" for event in session.events)
