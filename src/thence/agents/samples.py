"""What made-up sessions are written with: a clock, ids that follow from names, lines.

Each agent's `sample` writes what its client would have written; `thence demo` shows it. All of it
is invented: a small library of tide tables, and people who mend it. Ids follow from names and times
from the moment that is given, so that two runs of one moment write the same bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from thence.agents import Machine as Machine  # noqa: PLC0414 - samples of others ask here
from thence.agents.handoffs import HandoffHistory
from thence.agents.profiles import ToolForm, agents

Record = dict[str, Any]


class SampleClock:
    """Time in a made-up session: it goes on with every record."""

    def __init__(self, start: datetime) -> None:
        self.now = start.astimezone(UTC)

    def after(self, seconds: float) -> datetime:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)
        return self.now

    @property
    def text(self) -> str:
        """Return the moment the way agents write it."""
        return self.now.strftime("%Y-%m-%dT%H:%M:%S") + f".{self.now.microsecond // 1000:03}Z"

    @property
    def millis(self) -> int:
        """Return it as a number."""
        return int(self.now.timestamp() * 1000)


def made_id(name: str) -> str:
    """Return the id that goes with a name."""
    made = uuid5(NAMESPACE_URL, f"thence:made-up:{name}").hex
    return f"{made[:8]}-{made[8:12]}-4{made[13:16]}-a{made[17:20]}-{made[20:]}"


def timed_id(name: str, at: datetime) -> str:
    """Return an id that begins with its time."""
    start, rest = f"{int(at.timestamp() * 1000):012x}", made_id(name)
    return f"{start[:8]}-{start[8:]}-7{rest[15:18]}-{rest[19:]}"


def put(path: Path, records: Iterable[Record], *, torn: bool = False) -> None:
    """Write records as lines; a torn file ends in the middle of its last one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(r, ensure_ascii=False, separators=(",", ":")) + "\n" for r in records)
    body = text.encode()
    path.write_bytes(body[:-40] if torn else body)


def fake_token() -> str:
    """Return something that looks like a secret and opens nothing."""
    import hashlib
    from string import ascii_letters, digits

    letters = ascii_letters + digits
    drawn = hashlib.sha256(b"made up, opens nothing").digest() * 2
    return "ghp_" + "".join(letters[byte % len(letters)] for byte in drawn[:36])


# -- one history, in the form of any agent --------------------------------------------------


class SampleStep(NamedTuple):
    """A call of a made-up history, and what came of it."""

    form: str
    """What it does: a name of `Profile.forms`."""
    values: dict[str, str]
    """Its arguments, by what they hold."""
    output: str
    exit_code: int = 0


class SampleTurn(NamedTuple):
    """A prompt, the calls that follow, and the answer."""

    prompt: str
    steps: tuple[SampleStep, ...]
    answer: str


class SampleTokens(NamedTuple):
    """What a request of a made-up history took; the cache stands beside the input."""

    fresh: int
    cached: int
    output: int


class SampleMessage(NamedTuple):
    """A message of a made-up history."""

    role: str
    content: list[Record]
    at: datetime
    tokens: SampleTokens | None = None
    """Of an answer: what its request took."""

    @property
    def millis(self) -> int:
        """Return its time as a number."""
        return int(self.at.timestamp() * 1000)

    @property
    def iso(self) -> str:
        """Return its time the way agents write it."""
        return self.at.strftime("%Y-%m-%dT%H:%M:%S.000Z")


class SampleHistory(NamedTuple):
    """A made-up session, in the names of one agent's tools and in no agent's form."""

    session: str
    project: str
    cwd: str
    title: str
    messages: list[SampleMessage]
    exit_codes: dict[str, int]
    """By the ids of calls."""
    tools: dict[str, str]
    """Names of tools, by the ids of their calls."""

    @property
    def start(self) -> datetime:
        """Return when it began."""
        return self.messages[0].at

    def bills(self) -> Iterator[SampleTokens]:
        """Yield what each request took."""
        yield from (message.tokens for message in self.messages if message.tokens is not None)

    def total(self) -> SampleTokens:
        """Return what all requests took."""
        return SampleTokens(*(sum(column) for column in zip(*self.bills(), strict=True)))

    def results(self) -> dict[str, SampleMessage]:
        """Return the messages with results, by the ids of their calls."""
        return {
            message.content[0]["tool_use_id"]: message
            for message in self.messages
            if message.content[0]["type"] == "tool_result"
        }


_TEST = "python3 -m pytest -q"
STORIES: dict[str, tuple[str, str, tuple[SampleTurn, ...]]] = {
    "neap": (
        "tidepool",
        "Neap tides are an hour late",
        (
            SampleTurn(
                "Neap tides come out an hour late in summer. Find out why and fix it.",
                (
                    SampleStep(
                        "read", {"path": "tide.py"}, "def neap(day):\n    return day.hour + 1\n"
                    ),
                    SampleStep("shell", {"command": _TEST}, "1 failed, 11 passed in 0.41s", 1),
                    SampleStep(
                        "edit",
                        {"path": "tide.py", "old": "day.hour + 1", "new": "day.utc.hour"},
                        "The file was changed.",
                    ),
                    SampleStep("shell", {"command": _TEST}, "12 passed in 0.38s"),
                ),
                "neap() added daylight saving time by hand. It counts in UTC now; all tests pass.",
            ),
            SampleTurn(
                "Is any other table affected?",
                (SampleStep("search", {"pattern": "hour \\+ 1"}, "No matches found"),),
                "No: neap() was the only place.",
            ),
        ),
    ),
    "umlaut": (
        "harbour-books",
        "The export loses umlauts",
        (
            SampleTurn(
                "The CSV export turns Möwe into M?we. Please repair it.",
                (
                    SampleStep("search", {"pattern": "open("}, "export.py:9: open(path, 'w')"),
                    SampleStep(
                        "edit",
                        {
                            "path": "export.py",
                            "old": "open(path, 'w')",
                            "new": "open(path, 'w', encoding='utf-8')",
                        },
                        "The file was changed.",
                    ),
                    SampleStep("shell", {"command": _TEST}, "7 passed in 0.22s"),
                ),
                "export.py wrote in the machine's own encoding; now it writes UTF-8.",
            ),
        ),
    ),
    "lamp": (
        "lumen",
        "The lamp dims at noon",
        (
            SampleTurn(
                "The lamp dims at noon instead of at dusk. Write a test first.",
                (
                    SampleStep(
                        "write",
                        {
                            "path": "test_lamp.py",
                            "content": "def test_noon():\n    assert level(12) == 1.0\n",
                        },
                        "The file was written.",
                    ),
                    SampleStep("shell", {"command": _TEST}, "1 failed, 4 passed in 0.19s", 1),
                    SampleStep("read", {"path": "lamp.py"}, "DUSK = 12\n"),
                    SampleStep(
                        "edit",
                        {"path": "lamp.py", "old": "DUSK = 12", "new": "DUSK = 20"},
                        "The file was changed.",
                    ),
                    SampleStep("shell", {"command": _TEST}, "5 passed in 0.17s"),
                ),
                "DUSK was 12 where 20 was meant. The new test and the four others pass.",
            ),
        ),
    ),
}


def history(
    agent: str,
    story: str,
    machine: Machine,
    start: datetime,
    call: Callable[[SampleStep], tuple[str, Record]] | None = None,
) -> SampleHistory:
    """Return a story as messages; `call` names the tool of a step, else the agent's forms do."""
    project, title, turns = STORIES[story]
    clock, name = SampleClock(start), f"{agent}/{story}"
    call = call or _by_forms(agents()[agent].profile.forms)
    messages: list[SampleMessage] = []
    exit_codes: dict[str, int] = {}
    tools: dict[str, str] = {}
    size = 9_000

    def reply(seconds: float, *content: Record) -> None:
        nonlocal size
        fresh = 400 + 130 * len(messages)
        cached = size if len(messages) > 1 else 0
        size += fresh
        tokens = SampleTokens(fresh, cached, 40 + 25 * len(content[0].get("text", "")) // 10)
        messages.append(SampleMessage("assistant", list(content), clock.after(seconds), tokens))

    for turn in turns:
        prompt = {"type": "text", "text": turn.prompt}
        messages.append(SampleMessage("user", [prompt], clock.after(90)))
        for step in turn.steps:
            tool, arguments = call(step)
            call_id = f"call_{made_id(f'{name}/{len(messages)}')[:8]}"
            tools[call_id], exit_codes[call_id] = tool, step.exit_code
            reply(6, {"type": "tool_use", "id": call_id, "name": tool, "input": arguments})
            result: Record = {"type": "tool_result", "tool_use_id": call_id}
            result |= {"content": step.output, "is_error": step.exit_code != 0}
            messages.append(SampleMessage("user", [result], clock.after(2)))
        reply(8, {"type": "text", "text": turn.answer})
    cwd = str(machine.work / project)
    return SampleHistory(made_id(name), project, cwd, title, messages, exit_codes, tools)


def _by_forms(forms: Mapping[str, ToolForm]) -> Callable[[SampleStep], tuple[str, Record]]:
    """Return what names the tool of a step by the forms of an agent."""

    def call(step: SampleStep) -> tuple[str, Record]:
        form = forms.get(step.form)
        if form is None:  # every agent has a shell
            form, values = forms["shell"], {"command": _as_command(step)}
        else:
            values = step.values
        return form.tool, {form.arguments[what]: value for what, value in values.items()} | (
            dict(form.more)
        )

    return call


def _as_command(step: SampleStep) -> str:
    path = step.values.get("path", ".")
    if step.form == "search":
        return f"grep -rn {shlex.quote(step.values['pattern'])} ."
    if step.form == "edit":
        old, new = step.values["old"], step.values["new"]
        return f"sed -i {shlex.quote(f's#{old}#{new}#')} {path}"
    if step.form == "write":
        return f"printf {shlex.quote(step.values['content'])} > {path}"
    return f"cat {path}"


_HANDED = ("handedFrom", "thenceHandoff", "forkedFrom")
"""Where a record says that its session comes from another agent."""


class PacedHistory(HandoffHistory, frozen=True):
    """A history as the writers of handoffs take it, at the pace of a person."""

    def time(self, after: int) -> str:
        """Return a time so many steps after its start."""
        return super().time(after * 9_000)


def handoff_history_of(
    history: SampleHistory, model: str, provider: str | None = None
) -> PacedHistory:
    """Return a history for a writer of handoffs; what comes of it still says whose it was."""
    listed: list[Record] = [
        {"role": message.role, "content": message.content} for message in history.messages
    ]
    source: Record = {"from": "", "event": None, "by": "", "at": ""}
    return PacedHistory(
        history.session,
        listed,
        history.cwd,
        history.start,
        source,
        history.title,
        model,
        "main",
        provider,
        history.project,
    )


def written_logs(
    home: Path, files: Mapping[str, list[Record]]
) -> Iterator[tuple[Path, list[Record]]]:
    """Write the files of a handoff as the client's own; yield the logs, to add what they lack."""
    for name, records in files.items():
        path = home / name
        if name.endswith(".jsonl"):
            for holder in (part for record in records for part in (record, record.get("data", {}))):
                for mark in _HANDED:
                    holder.pop(mark, None)
            yield path, records
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(records[0]))


def put_rows(path: Path, schema: str, rows: Iterable[tuple[str, Record]]) -> None:
    """Write a database of made-up rows, each with its table; objects and lists become JSON."""
    import sqlite3

    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.executescript(schema)
        for table, row in rows:
            names, marks = ", ".join(row), ", ".join("?" for _ in row)
            values = [json.dumps(v) if isinstance(v, (dict, list)) else v for v in row.values()]
            database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", values)  # noqa: S608
        database.commit()


def put_document(path: Path, value: Record | list[Record], at: datetime) -> None:
    """Write a JSON document, as of a moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False))
    os.utime(path, (at.timestamp(), at.timestamp()))
