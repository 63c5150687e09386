"""The adapter of Claude Code: reading in pieces, damage, and what else the client keeps."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.agents.transcripts import (
    A,
    B,
    Script,
    alone,
    lines,
    read,
    sent_lines,
    session_of,
    sources,
    text,
    usage,
    write,
)
from thence.agents import Adapter, Cursor, adapters
from thence.agents.claude.reader import DEFAULT_KEPT_DAYS, Claude
from thence.agents.claude.spills import read_spill
from thence.agents.sessions import read_all
from thence.format.facts import WHOLE_OUTPUT, Fact
from thence.format.graph import State
from thence.format.session_graph import SessionGraph


def story() -> Script:
    """A session with something of everything, so that reading it in pieces can go wrong."""
    log = Script(version="2.1.23")
    log.note("queue-operation", operation="enqueue", content="Go.")
    log.note("queue-operation", operation="dequeue")
    log.user("Go.")
    log.call("t1", "Task", prompt="Count.", description="x")
    inside = log.user("Count.", isSidechain=True, parentUuid=None)
    log.say("3", isSidechain=True, parentUuid=inside, message_extra=1)
    log.note("queue-operation", operation="enqueue", content="Also.")
    log.add("progress", data={"agentId": "a1"}, parentToolUseID="t1", parentUuid="r4")
    log.note("queue-operation", operation="remove")
    log.result("t1", "3", parentUuid="r4", toolUseResult={"agentId": "a1"})
    log.reply([text("Three.")], usage=usage(5), id="m", stop="end_turn")
    log.boundary()
    log.add("attachment", attachment={"type": "file"})
    log.user("Sum.")
    log.user("More.", cwd="/elsewhere", sessionId=B)
    log.note("last-prompt", leafUuid="r15")
    log.note("mode", mode="x")
    log.note("mode", mode="x")
    return log


def view(facts: list[Fact]) -> tuple[Any, ...]:
    """All that a session tells."""
    session = SessionGraph(f"claude:{A}", facts)
    return session.events, session.derived, session.about, session.edges, sent_lines(session)


def test_the_adapter_is_found_by_its_entry_point() -> None:
    """L1: like any other."""
    assert isinstance(adapters()["claude"], Adapter)


@pytest.mark.parametrize(
    ("env", "expected"),
    [({}, [".claude", ".config/claude"]), ({"CLAUDE_CONFIG_DIR": "/a, /b,,/a"}, ["/a", "/b"]),
     ({"CLAUDE_CONFIG_DIR": ""}, [".claude", ".config/claude"])],
)  # fmt: skip
def test_roots(env: dict[str, str], expected: list[str]) -> None:
    """L1, L3: the variable may hold several folders; the desktop app has its own."""
    home = Path("/home/dev")
    roots = Claude().roots(home, env)
    desktop = [root for root in roots if root.name == "local-agent-mode-sessions"]

    assert [home / name for name in expected] == [root for root in roots if root not in desktop]
    assert 3 == len(desktop)


# -- reading --------------------------------------------------------------------------------


def test_any_pieces_give_the_same_session(tmp_path: Path) -> None:
    """R1, R3: at every byte, with the cursor written down and read again in between."""
    data = story().data
    path = tmp_path / f"{A}.jsonl"
    path.write_bytes(data)
    once, _ = read_all(Claude(), alone(path))
    path.unlink()
    path.touch()
    cursor, facts = Cursor(), []
    for at in range(len(data)):
        with path.open("ab") as file:
            file.write(data[at : at + 1])
        if data[at : at + 1] == b"\n" or not at % 7:
            batch = Claude().read(alone(path), cursor)
            facts += batch.events
            cursor = batch.cursor
    assert view(once) == view(facts)
    assert 0 == Claude().read(alone(path), cursor).lines


def test_any_order_of_files_gives_the_same_session(tmp_path: Path) -> None:
    """S8: a subagent may be read before its session, or come when it has not changed."""
    folder = write(tmp_path, story())
    for agent in ("a1", "a2"):
        log = Script(name=agent, isSidechain=True, agentId=agent)
        log.user("Count.")
        log.reply([text("3")], usage=usage(2), id="m" if agent == "a1" else "n")
        (folder / f"agent-{agent}.jsonl").write_bytes(log.data)
    facts, _ = read_all(Claude(), sources(tmp_path)[A])
    expected = view(facts)
    chance = random.Random(7)
    for _ in range(5):
        chance.shuffle(facts)
        assert expected == view(facts)


def test_a_last_line_without_its_end_is_read_and_not_passed(tmp_path: Path) -> None:
    """R1, R2: its writer may go on with it; a whole record is shown, half of one is not."""
    log = Script()
    log.user("One.")
    log.say("Two.")
    path = tmp_path / f"{A}.jsonl"
    path.write_bytes(log.data[:-20])
    half = Claude().read(alone(path))
    with path.open("ab") as file:
        file.write(log.data[-20:-1])
    more = Claude().read(alone(path), half.cursor)

    assert (1, True) == (len(_events(half.events)), half.torn)
    assert (1, False) == (len(_events(more.events)), more.torn)
    for batch in (half, more):
        assert log.data.index(b"\n") + 1 == batch.cursor.marks["main"].offset


def test_a_rewritten_file_keeps_what_it_held(tmp_path: Path) -> None:
    """R2, R13: read again from the start; what is gone stays, dead, with the reason."""
    first, second = Script(), Script(name="s")
    first.user("Old.")
    second.user("New.")
    path = tmp_path / f"{A}.jsonl"
    path.write_bytes(first.data)
    before = Claude().read(alone(path))
    path.write_bytes(second.data + second.data)
    after = Claude().read(alone(path), before.cursor)
    session = SessionGraph(f"claude:{A}", [*before.events, *after.events])

    assert ["u New."] == sent_lines(session)
    gone = next(event for event in session.events if event.native_id == "r1")
    assert (State.DEAD, "rewritten") == (gone.state, gone.why)


@pytest.mark.parametrize("glue", [b"", b"\n"])
def test_what_was_glued_to_a_torn_record_is_saved(tmp_path: Path, glue: bytes) -> None:
    """R4: older clients append to a torn line; the line is counted as bad, its record kept."""
    log = Script()
    log.user("One.")
    torn = Script(name="t")
    torn.reply([text("a long answer that was never finished")])
    more = Script(name="m")
    more.user("Two.", parentUuid="r1")
    path = tmp_path / f"{A}.jsonl"
    path.write_bytes(log.data + torn.data[:120] + glue + more.data)
    facts, batch = read_all(Claude(), alone(path))

    assert ["u One.", "u Two."] == sent_lines(SessionGraph(f"claude:{A}", facts))
    assert [(2, 0 if glue else 1)] == [(bad.line, bad.salvaged) for bad in batch.skipped]


@pytest.mark.parametrize("odd", [b"\xef\xbb\xbf", b"\0\0\0\n", b"\xff\xfe\n", b"\r\n\r\n", b"[]\n"])
def test_odd_bytes_cost_their_own_line(tmp_path: Path, odd: bytes) -> None:
    """R4, R6: a BOM, NULs, other encodings, blank lines, and lines that are no object."""
    log = Script()
    log.user("caf\u00e9 \ud800")
    path = tmp_path / f"{A}.jsonl"
    path.write_bytes(odd + log.data.replace(b"\n", b"\r\n"))
    facts, batch = read_all(Claude(), alone(path))

    assert 1 == len(_events(facts))
    assert len(batch.skipped) == (odd[:1] in b"\0\xff[")


@pytest.mark.slow
def test_a_line_of_many_megabytes_is_read(tmp_path: Path) -> None:
    """R5: results hold whole files, and pictures."""
    log = Script()
    log.user("x" * (20 << 20))
    log.say("Long.")

    assert 2 == len(session_of(tmp_path, log).facts)


@pytest.mark.parametrize(
    ("ts", "expected"),
    [("2026-11-15T13:12:00.250Z", "2026-11-15T13:12:00.250Z"), (None, None), (True, None),
     (1794748320250, "2026-11-15T13:12:00.250Z"), (1794748320.25, "2026-11-15T13:12:00.250Z"),
     (10**40, None)],
)  # fmt: skip
def test_times_are_read_in_every_spelling(tmp_path: Path, ts: Any, expected: str | None) -> None:
    """R16: text, seconds, milliseconds."""
    log = Script()
    log.user("Go.", timestamp=ts)

    assert [expected] == [event.ts for event in session_of(tmp_path, log).events]


def test_sources_are_not_touched(tmp_path: Path) -> None:
    """L6, L7: not a byte, not a time: the client deletes by it."""
    folder = write(tmp_path, story())
    path = folder / f"{A}.jsonl"
    os.utime(path, (1, 1))
    path.chmod(0o400)
    read(tmp_path)
    status = path.stat()

    assert (1, 0o400, story().data) == (status.st_mtime, status.st_mode & 0o777, path.read_bytes())


# -- what else the client keeps -------------------------------------------------------------


def test_running_sessions(tmp_path: Path) -> None:
    """L7: the client's own word, if the process is there; killed ones leave theirs behind."""
    folder = tmp_path / "sessions"
    folder.mkdir()
    here = {"pid": os.getpid(), "sessionId": A, "cwd": "/p", "startedAt": 1794767213286}
    waits = {"status": "waiting", "waitingFor": "permission prompt"}
    (folder / "1.json").write_text(json.dumps({**here, **waits}))
    (folder / "2.json").write_text(json.dumps({**here, "sessionId": B, "procStart": "1"}))
    (folder / "3.json").write_text(json.dumps({**here, "sessionId": B, "pid": 2**22 + 1}))
    (folder / "4.json").write_text(json.dumps({"pid": "x", "sessionId": 7}))
    (folder / "5.json").write_text("{")
    (folder / "6.json").write_text(json.dumps({**here, "sessionId": B, "pid": 10**40}))
    live = [
        (live.session, live.status, live.waiting_for, live.since)
        for live in Claude().live(tmp_path)
    ]
    expected = (A, "waiting", "permission prompt", "2026-11-15T18:26:53.286Z")

    assert expected == live[0]
    # Only where processes tell when they started can one be known to be another.
    assert (1 if Path("/proc/self/stat").exists() else 2) == len(live)


def test_prompts_typed(tmp_path: Path) -> None:
    """L5: old lines name no session; pasted texts are put back, from their own folder only."""
    cache = tmp_path / "paste-cache"
    cache.mkdir()
    (cache / "0123456789abcdef.txt").write_text("a\nb")
    pasted = {"1": {"id": 1, "type": "text", "contentHash": "0123456789abcdef"}}
    stolen = {"1": {"id": 1, "contentHash": "../settings"}, "2": {"content": "inline"}, "3": 7}
    (tmp_path / "history.jsonl").write_bytes(
        lines(
            [
                {"display": "old", "timestamp": 1794767213286, "project": "/p"},
                {
                    "display": "[Pasted text #1 +1 lines] see",
                    "pastedContents": pasted,
                    "sessionId": A,
                },
                {"display": "[Pasted text #1] [Pasted text #2]", "pastedContents": stolen},
                {"display": 7},
            ]
        )
        + b"{torn"
    )
    (tmp_path / "settings.txt").write_text("secret")
    typed = list(Claude().prompts(tmp_path))

    assert ["old", "a\nb see", "[Pasted text #1] inline"] == [prompt.text for prompt in typed]
    assert [(None, "/p"), (A, None), (None, None)] == [(p.session, p.cwd) for p in typed]
    assert "2026-11-15T18:26:53.286Z" == typed[0].ts
    assert [] == list(Claude().prompts(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (None, DEFAULT_KEPT_DAYS),
        ('{"cleanupPeriodDays": 99999}', 99999),
        ('{"cleanupPeriodDays": 0}', 0),
        ('{"cleanupPeriodDays": "x"}', DEFAULT_KEPT_DAYS),
        ('{"cleanupPeriodDays": true}', DEFAULT_KEPT_DAYS),
        ("{", DEFAULT_KEPT_DAYS),
        ("[]", DEFAULT_KEPT_DAYS),
    ],
)
def test_how_long_sessions_are_kept(tmp_path: Path, settings: str | None, expected: int) -> None:
    """L6: 30 days unless the user said otherwise."""
    if settings is not None:
        (tmp_path / "settings.json").write_text(settings)

    assert expected == Claude().keeps_days(tmp_path)


def test_spilled_outputs_are_read_from_the_sessions_own_folder(tmp_path: Path) -> None:
    """T7, R15: by name alone, no link, no more than asked for."""
    log = Script()
    log.call("t")
    where = f"/home/dev/.claude/projects/x/{A}/tool-results/b1.txt"
    log.result("t", f"<persisted-output>\nToo large. Full output saved to: {where}\n\nPreview")
    results = write(tmp_path, log) / A / "tool-results"
    results.mkdir(parents=True)
    session = read(tmp_path)
    block = session.graph.facts[1].blocks[0]

    assert read_spill(session.source, block) is None
    (results / "b1.txt").write_bytes(b"all of it")
    assert b"all of it" == read_spill(session.source, block)
    assert b"all of it" == read_spill(session.source, session.graph.events[1])
    assert read_spill(session.source, block, limit=3) is None
    (results / "b1.txt").rename(results / "b2.txt")
    (results / "b1.txt").symlink_to(results / "b2.txt")
    assert read_spill(session.source, block) is None
    assert read_spill(session.source, session.graph.facts[0].blocks[0]) is None


def spills(tmp_path: Path, *bodies: str) -> Path:
    """A session whose results were too large for its log, with the files beside it."""
    log = Script()
    for at, body in enumerate(bodies):
        path = f"/home/dev/.claude/projects/x/{A}/tool-results/b{at}.txt"
        log.call(f"t{at}")
        result = {"stdout": body[:5], "stderr": "", "persistedOutputPath": path}
        text = f"<persisted-output>\nFull output saved to: {path}\n\nPreview"
        log.result(f"t{at}", text, toolUseResult=result)
    results = write(tmp_path, log) / A / "tool-results"
    results.mkdir(parents=True)
    for at, body in enumerate(bodies):
        (results / f"b{at}.txt").write_text(body)
    return results


def outputs(tmp_path: Path) -> list[object]:
    """What is kept of each result beside its text."""
    facts = read(tmp_path).graph.facts
    details = [fact.blocks[1].payload for fact in facts if len(fact.blocks) == 2]
    return [detail.get(WHOLE_OUTPUT, detail.get("stdout")) for detail in details]


def test_a_spilled_output_is_kept_with_its_result(tmp_path: Path) -> None:
    """The client deletes both; the whole stands in the place of its beginning."""
    results = spills(tmp_path, "all of it", "all of that")

    assert ["all of it", "all of that"] == outputs(tmp_path)
    (results / "b0.txt").unlink()
    (results / "b1.txt").write_text("other words")
    assert ["all o", "other words"] == outputs(tmp_path)
    details = [fact.blocks[1].payload for fact in read(tmp_path).graph.facts[1::2]]
    assert "all o" == details[1]["stdout"]


def test_no_more_of_spilled_outputs_is_kept_than_there_is_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of one nor of all that a log names: it may name the same one for ever."""
    spills(tmp_path, "0123456789", "01234567", "abcdefgh", "ABCDEFGH")
    monkeypatch.setattr("thence.agents.claude.spills.MAX_STORED_BYTES", 8)
    monkeypatch.setattr("thence.agents.claude.spills.MAX_STORED_BYTES_PER_LOG", 18)

    assert ["01234", "01234567", "abcdefgh", "ABCDE"] == outputs(tmp_path)


def test_spilled_outputs_in_a_linked_folder_are_not_read(tmp_path: Path) -> None:
    """R15: a link out of the session is a way to any file."""
    log = Script()
    log.call("t")
    log.result("t", "<persisted-output> saved to: /x/tool-results/b1.txt")
    folder = write(tmp_path, log)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "b1.txt").write_text("secret")
    (folder / A).mkdir()
    (folder / A / "tool-results").symlink_to(tmp_path / "secret")
    session = read(tmp_path)

    assert read_spill(session.source, session.graph.facts[1].blocks[0]) is None


def _events(facts: list[Fact]) -> list[Fact]:
    return [fact for fact in facts if fact.blocks]
