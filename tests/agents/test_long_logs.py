"""Long sessions of further agents, read record by record: rows as read at once, nothing rebuilt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.agents import (
    test_cline,
    test_continue,
    test_copilot,
    test_droid,
    test_gemini,
    test_kimi,
    test_pi,
    test_qwen,
    test_vibe,
)
from tests.agents.agents import write_lines
from tests.format.growing import Grown, differences
from thence.agents import Adapter, Cursor
from thence.agents.cline.reader import Cline
from thence.agents.continue_.reader import Continue
from thence.agents.copilot.reader import Copilot
from thence.agents.droid.reader import Droid
from thence.agents.gemini.reader import Gemini
from thence.agents.kimi.reader import Kimi
from thence.agents.pi.reader import Pi
from thence.agents.qwen.reader import Qwen
from thence.agents.sessions import read_all
from thence.agents.vibe.reader import Vibe

TURNS = 30
"""Far more than what is looked at again when a record is added."""

Lines = Iterator[dict[str, Any]]
Write = Callable[[Path], Path]


def timed(lines: Lines) -> list[dict[str, Any]]:
    """Return each record a moment of its own."""
    return [
        {**line, "timestamp": f"2026-05-04T{10 + at // 3600}:{at // 60 % 60:02}:{at % 60:02}.000Z"}
        for at, line in enumerate(lines)
    ]


def pi(root: Path) -> Path:
    """A session of pi."""

    def lines() -> Lines:
        number = count(1)
        above: int | None = None
        for turn in range(TURNS):
            asked, called, gave, answered = (next(number) for _ in range(4))
            yield test_pi.message_line(asked, above, "user", f"prompt {turn}")
            call = test_pi.tool("bash", f"c{turn}", command="ls")
            yield test_pi.reply(called, asked, call, stop="toolUse")
            yield test_pi.message_line(gave, called, "toolResult", "x", toolCallId=f"c{turn}")
            yield test_pi.reply(answered, gave, test_pi.text("ok"))
            above = answered

    path = test_pi.path_of(root, test_pi.PARENT, 0)
    return write_lines(path, test_pi.header(test_pi.PARENT, 0), *timed(lines()))


def qwen(root: Path) -> Path:
    """A session of Qwen Code."""

    def lines() -> Lines:
        above: int | None = None
        for turn in range(TURNS):
            at = 6 * turn + 1
            yield test_qwen.asked(at, above, f"prompt {turn}")
            yield test_qwen.telemetry(at + 1, at, 1000 + turn, 10)
            call = test_qwen.tool("run_shell_command", f"c{turn}", command="ls")
            yield test_qwen.answered(at + 2, at + 1, call, **test_qwen.usage(1000 + turn, 10))
            yield test_qwen.gave(at + 3, at + 2, f"c{turn}", output="x")
            yield test_qwen.telemetry(at + 4, at + 3, 2000 + turn, 10)
            bill = test_qwen.usage(2000 + turn, 10)
            yield test_qwen.answered(at + 5, at + 4, {"text": "ok"}, **bill)
            above = at + 5

    path = root / "projects" / "x" / "chats" / f"{test_qwen.PARENT}.jsonl"
    return write_lines(path, *timed(lines()))


def copilot(root: Path) -> Path:
    """A session of Copilot CLI."""

    def lines() -> Lines:
        yield test_copilot.START
        for turn in range(TURNS):
            at = 6 * turn + 1
            yield test_copilot.event(at, "user.message", content=f"prompt {turn}")
            yield test_copilot.usage(at + 1, inputTokens=1000, outputTokens=10)
            yield test_copilot.reply(at + 2, "", (f"c{turn}", "bash", {"command": "ls"}))
            yield test_copilot.gave(at + 3, f"c{turn}", "x", shellExecution={"exitCode": 0})
            yield test_copilot.usage(at + 4, inputTokens=1000, outputTokens=10)
            yield test_copilot.reply(at + 5, "ok")

    path = root / "session-state" / test_copilot.SESSION / "events.jsonl"
    return write_lines(path, *timed(lines()))


def gemini(root: Path) -> Path:
    """A session of Gemini CLI."""

    def lines() -> Lines:
        for turn in range(TURNS):
            at = 4 * turn + 1
            call = test_gemini.call("run_shell_command", f"c{turn}", "x")
            yield test_gemini.asked(at, f"prompt {turn}")
            yield test_gemini.reply(at + 1, "", 1000)
            yield test_gemini.reply(at + 1, "", 1000, call)
            yield test_gemini.asked(at + 2, call["result"])
            yield test_gemini.reply(at + 3, "ok", 1000)

    head = (test_gemini.header(), test_gemini.listed(test_gemini.CONTEXT))
    return write_lines(test_gemini.path_of(root), *head, *timed(lines()))


def kimi(root: Path) -> Path:
    """A session of Kimi Code."""

    def lines() -> Lines:
        yield test_kimi.HEADER
        for turn in range(TURNS):
            at = 6 * turn + 1
            yield from test_kimi.asked(at, f"prompt {turn}")
            yield test_kimi.usage(at + 1, 1000, 10)
            yield test_kimi.call(at + 2, "Bash", f"c{turn}", command="ls")
            yield test_kimi.gave(at + 3, at + 2, f"c{turn}", "x")
            yield test_kimi.usage(at + 4, 1000, 10)
            yield test_kimi.text(at + 5, "ok")
            yield test_kimi.ended(at + 5)

    return write_lines(test_kimi.path_of(root, test_kimi.PARENT), *lines())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("adapter", "write"),
    [
        (Copilot(), copilot),
        (Gemini(), gemini),
        (Kimi(), kimi),
        (Pi(), pi),
        (Qwen(), qwen),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_long_session_grows_without_being_rebuilt(
    tmp_path: Path, adapter: Adapter, write: Write
) -> None:
    """Its calls and bills are those of the whole log, and the cost of a record stays the same."""
    source = adapter.at(write(tmp_path))
    assert source is not None
    facts = read_all(adapter, source)[0]
    grown = Grown(source.uid)
    while facts:
        line = [fact for fact in facts if (fact.file, fact.line) == (facts[0].file, facts[0].line)]
        grown.add(line)
        facts = facts[len(line) :]

    assert [] == differences(grown)
    assert 0 == grown.rebuilt.total()


# -- documents ------------------------------------------------------------------------------


def cline(root: Path) -> Iterator[None]:
    """A session of Cline, a step at a time."""
    talk: list[Any] = []
    for turn in range(TURNS):
        at, call = 4 * turn, test_cline.call(f"c{turn}", "run_commands", commands=["ls"])
        for message in (
            test_cline.asked(at, f"prompt {turn}"),
            test_cline.replied(at + 1, 1000, 10, call),
            test_cline.gave(at + 2, f"c{turn}", "run_commands", "x"),
            test_cline.replied(at + 3, 1000, 10, test_cline.text("ok")),
        ):
            talk.append(message)
            test_cline.put(root, test_cline.SESSION, "running", *talk)
            yield


def continued(root: Path) -> Iterator[None]:
    """A session of Continue, a turn at a time."""
    talk: list[Any] = []
    for turn in range(TURNS):
        call = test_continue.call(f"c{turn}", "Bash", "done", "x", command="ls")
        talk += [
            test_continue.asked(f"prompt {turn}"),
            test_continue.replied(1000, 10, "", call),
            test_continue.replied(1000, 10, f"ok {turn}"),
        ]
        test_continue.put(root, test_continue.SESSION, *talk)
        yield


def droid(root: Path) -> Iterator[None]:
    """A session of Droid, a turn at a time."""
    talk: list[Any] = [test_droid.start(test_droid.PARENT)]
    for turn in range(TURNS):
        at = 2 * turn + 1
        talk += [
            test_droid.message(at, at - 1, "user", test_droid.text(f"prompt {turn}")),
            test_droid.message(at + 1, at, "assistant", test_droid.text("ok")),
        ]
        test_droid.put_total(root, test_droid.PARENT, 1000 * turn + 1000, 10 * turn + 10)
        write_lines(test_droid.path_of(root, test_droid.PARENT), *talk)
        yield


def vibe(root: Path) -> Iterator[None]:
    """A session of Mistral Vibe, a few entries at a time."""
    client = test_vibe.Client(root, test_vibe.SESSION)
    for turn in range(TURNS):
        at = 3 * turn
        effect = test_vibe.effect(at + 1, "bash", at + 2, {"returncode": 0}, command="ls")
        client.change("append_entry", test_vibe.message(at, "user", f"prompt {turn}"))
        client.change("append_entry", test_vibe.running(effect), 1000, 10)
        yield
        client.change("replace_entry", effect)
        client.change("append_entry", test_vibe.message(at + 2, "assistant", "ok"), 1000, 10)
        if turn % 2:
            client.snapshot()
        yield


@pytest.mark.slow
@pytest.mark.parametrize(
    ("adapter", "write"),
    [(Cline(), cline), (Continue(), continued), (Droid(), droid), (Vibe(), vibe)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_long_document_grows_without_being_rebuilt(
    tmp_path: Path, adapter: Adapter, write: Callable[[Path], Iterator[None]]
) -> None:
    """Read after every step, each item is told once, and rows are those of the whole."""
    cursor: Cursor | None = None
    grown: Grown | None = None
    for _ in write(tmp_path):
        (source,) = adapter.find(tmp_path)
        batch = adapter.read(source, cursor)
        grown, cursor = grown or Grown(source.uid), batch.cursor
        grown.add(batch.events)

    assert grown is not None
    once = read_all(adapter, source)[0]
    lines = [(f.file, f.line) for f in grown.facts if f.blocks and f.type != "total"]
    assert [(f.file, f.line) for f in once if f.blocks and f.type != "total"] == sorted(lines)
    assert [] == differences(grown)
    assert 0 == grown.rebuilt.total()
