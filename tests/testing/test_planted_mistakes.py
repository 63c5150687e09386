"""Mistakes that authors of agents make: the suite names each, and where it is.

The sound agent, Heron, keeps a folder per session: a log, and one for each subagent. Each mistake
is an edit of its source.
"""

from __future__ import annotations

import sys
from importlib import util
from pathlib import Path
from types import ModuleType

import pytest

from thence.agents.profiles import Agent
from thence.testing import AgentSuite

HERON = """
import json
from datetime import UTC, datetime
from pathlib import Path

from thence.agents import Batch, Cursor, File, Live, Source, files
from thence.agents.profiles import Profile, ToolForm
from thence.format.facts import Block, Edge, Fact, line_name
from thence.format.nodes import PREVIOUS, Is, Node
from thence.format.normal import one_line
from thence.format.records import Usage, blocks, count, time_text, word

PROFILE = Profile(
    "Heron",
    reader=f"{__name__}:Reader",
    resume_option=("heron", "--resume"),
    home_variable="HERON_HOME",
    tools={"shell": ("heron_run",)},
    forms={"shell": ToolForm("heron_run", {"command": "script"})},
)


class Log:
    def __init__(self, source, file, mark):
        self.file, self.mark = file, mark

    def carry(self):
        return None

    def facts(self, record):
        value = record.value
        who, text = word(value.get("who")), word(value.get("text"))
        name = word(value.get("id")) or line_name(self.file.key, record.raw)
        calls = [call for call in blocks(value.get("calls")) if word(call.get("id"))]
        flags, made = Is.INTERNAL, (Block("lifecycle", "system", who or "note", value),)
        answered = ()
        if who == "human":
            flags, made = Is.PROMPT, (Block("user_msg", "user", one_line(text), text),)
        elif who == "heron":
            flags, made = Is.REPLY, (Block("assistant_msg", "assistant", one_line(text), text),)
            made += tuple(
                Block("tool_call", "assistant", "", call.get("input"), word(call.get("tool")),
                      word(call.get("id")))
                for call in calls
            )
        elif who == "tool":
            answered, flags = (word(value.get("of")),), 0
            failed = value.get("ok") is False
            made = (Block("tool_result", "tool", one_line(text), text, None, answered[0], failed),)
        tokens = value.get("tokens")
        usage = Usage(*map(count, tokens[:2])) if isinstance(tokens, list) else None
        yield Fact(
            Node(name, PREVIOUS, flags, tuple(word(call.get("id")) for call in calls), answered),
            who,
            word(time_text(value.get("ms"), per_second=1000)) or None,
            made,
            file=self.file.key,
            channel=self.file.channel,
            generation=self.mark.generation,
            line=record.place.line,
            offset=record.place.offset,
            usage=usage,
            usage_key=name if usage else None,
            model=word(value.get("model")) or None,
            about={"cwd": value["cwd"]} if word(value.get("cwd")) else {},
        )


class Reader:
    name = "heron"

    def roots(self, home, env):
        return [Path(env["HERON_HOME"]) if env.get("HERON_HOME") else home / ".heron"]

    def find(self, root):
        for entry in files.walk(str(root)):
            if entry.name == "log.jsonl":
                yield self._source(Path(entry.path).parent)

    def at(self, path):
        folder = path if path.is_dir() else path.parent
        return self._source(folder) if (folder / "log.jsonl").is_file() else None

    def _source(self, folder):
        logs = [File(str(folder / "log.jsonl"), "log")]
        for path in sorted(folder.glob("sub-*.jsonl")):
            logs.append(File(str(path), path.stem, channel=path.stem))
        return Source(self.name, folder.name, tuple(logs), str(folder.parents[1]))

    def read(self, source, cursor=None):
        return files.read(source, cursor, Log, is_record=lambda value: "who" in value)

    def live(self, root):
        return iter(())

    def prompts(self, root):
        return iter(())

    def keeps_days(self, root):
        return None


def write(root):
    folder = root / "sessions" / "h-1"
    folder.mkdir(parents=True)
    say = lambda n, who, text, **more: {"id": f"n{n}", "who": who, "text": text,
                                        "ms": 1780000000000 + n * 1000, **more}
    reply = {"tokens": [1200, 90], "model": "claude-sonnet-4-5"}
    call = lambda n: [{"id": f"c{n}", "tool": "heron_run", "input": {"script": "make test"}}]
    records = [
        {"cwd": "/home/dev/tidepool"},
        say(1, "human", "Run the tests."),
        say(2, "heron", "I run them.", calls=call(1), **reply),
        say(3, "tool", "broken pipe", of="c1", ok=False),
        say(4, "heron", "They fail.", **reply | {"tokens": [1400, 40]}),
        say(5, "human", "Again."),
        say(6, "heron", "Once more.", calls=call(2), **reply | {"tokens": [1500, 40]}),
        say(7, "tool", "3 passed", of="c2", ok=True),
        say(8, "heron", "They pass.", **reply | {"tokens": [1600, 20]}),
    ]
    sub = [say(n, "heron", f"Step {n}.", **reply) | {"id": f"s{n}"} for n in (6, 7)]
    for name, lines in (("log.jsonl", records), ("sub-a.jsonl", sub)):
        (folder / name).write_text("".join(json.dumps(line) + "\\n" for line in lines))
"""
"""A sound agent, its profile and its sample."""

MISTAKES = {
    # -- what is lost or wrong, without a word
    "results name no call": (
        "None, answered[0], failed)",
        "None, None, failed)",
        "a result of None",
    ),
    "results lead nowhere": ('word(value.get("of"))', '"c9"', "a result of 'c9', which no call"),
    "answers are not linked": (
        '(call.get("id")) for call in calls), answered)',
        '(call.get("id")) for call in calls))',
        "Node.answers",
    ),
    "calls are not linked": (
        'tuple(word(call.get("id")) for call in calls), answered)',
        "(), answered)",
        "Node.calls does not name the call 'c1'",
    ),
    "one key for all bills": (
        "usage_key=name if",
        'usage_key="usage" if',
        "has its usage_key, 'usage'",
    ),
    "no key of bills": ("usage_key=name if usage else None", "usage_key=None", "without usage_key"),
    "no model": ('model=word(value.get("model")) or None', "model=None", "no Fact.model"),
    "kind of a block": (
        'Block("assistant_msg", ',
        'Block("assistant", ',
        "Invalid enum value 'assistant'",
    ),
    "kind of a note": (
        'Block("lifecycle", ',
        'Block("note", ',
        "log.jsonl line 1: ValidationError: Invalid",
    ),
    "a role": (
        '"assistant_msg", "assistant"',
        '"assistant_msg", "model"',
        "no role is called 'model'",
    ),
    "subagent on main": (", channel=path.stem", "", "sub-a.jsonl are both on the channel main"),
    "no prompt": (
        "flags, made = Is.PROMPT",
        "flags, made = 0",
        "no record of the session has Is.PROMPT",
    ),
    "no reply": (
        "flags, made = Is.REPLY",
        "flags, made = 0",
        "no record of the session has Is.REPLY",
    ),
    "is_record never holds": (
        '"who" in value',
        '"what" in value',
        "is_record of files.read refuses",
    ),
    "root of a source": ("folder.parents[1]", "folder.parent", "HERON_HOME=HOME/sessions"),
    "file of a fact": ("file=self.file.key", 'file="x"', "Fact.file is 'x'"),
    "reads for ever": (
        "return files.read(",
        "return Batch([], [], Cursor(), done=False) or files.read(",
        "says that there is more to read",
    ),
    # -- wrong types
    "a number as time": (
        'word(time_text(value.get("ms"), per_second=1000)) or None',
        'value.get("ms")',
        "log.jsonl line 2: ValidationError: Expected `str | null`, got `int` - at `$.ts`",
    ),
    "no time": (
        'word(time_text(value.get("ms"), per_second=1000)) or None',
        '"yesterday"',
        "'yesterday' is no time",
    ),
    "usage as it came": (
        "Usage(*map(count, tokens[:2]))",
        '{"input": tokens[0]}',
        "usage is a dict",
    ),
    "no Batch": ("return files.read(", "files.read(", "read() gives NoneType, not Batch"),
    "no Fact": (
        "        yield Fact(",
        "        yield None\n        yield Fact(",
        "read() gives NoneType, not Fact",
    ),
    "no number of days": (
        "def keeps_days(self, root):\n        return None",
        "def keeps_days(self, root):\n        return '30'",
        "keeps_days() gives str, not int",
    ),
    "no Live": ("return iter(())", 'return iter(["h-1"])', "live() gives str, not Live"),
    "no Source": (
        "yield self._source(Path(entry.path).parent)",
        "yield entry.path",
        "find() gives str, not Source",
    ),
    # -- errors of the author's code
    "trusts a type": (
        'word(value.get("text"))',
        'value["text"].strip()',
        "KeyError: 'text' (heron.py line",
    ),
    "a name that is not there": (
        "calls = [",
        "calls = [call for call in cals] or [",
        "NameError: name 'cals' is not defined (heron.py line",
    ),
    "exits": (
        "answered = ()\n",
        "answered = exit(3) or ()\n",
        "ended the process with 3 (heron.py line",
    ),
    "find raises": (
        "for entry in files.walk(str(root)):",
        "for entry in root.walkers():",
        "in find: for entry",
    ),
    "lacks a method": (
        "def keeps_days(self, root)",
        "def keep_days(self, root)",
        "of the protocol is missing: keeps_days",
    ),
    "no such reader": ("class Reader:", "class Header:", "has no attribute 'Reader'"),
    # -- that had a good sentence before
    "at leads nowhere": (
        'if (folder / "log.jsonl").is_file() else None',
        "if False else None",
        "at() does not lead from log.jsonl",
    ),
    "an unknown tool": ('ToolForm("heron_run"', 'ToolForm("heron_walk"', "name it in `tools`"),
    "reads again": ("cursor, Log", "None, Log", "were read again"),
    "ids by place": (
        'word(value.get("id")) or',
        "str(record.place.line) or",
        "garbage between lines cost",
    ),
    "loses lines": (
        "        yield Fact(",
        "        if not who:\n            return\n        yield Fact(",
        "nobody tells of lines",
    ),
}
"""What is written instead of what, and what the suite says then."""


def load_heron(folder: Path, name: str, text: str) -> ModuleType:
    """Return the module of an agent, as its author has it."""
    path = folder / "heron.py"
    path.write_text(text, encoding="utf-8")
    spec = util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def complaints(folder: Path, name: str, text: str) -> list[str]:
    """Return what the suite says of an agent."""
    try:
        heron = load_heron(folder, name, text)
        suite = AgentSuite(Agent("heron", heron.PROFILE), heron.write, rounds=1, bytewise=5)
        return suite.complaints()
    finally:
        sys.modules.pop(name, None)


def test_the_sound_agent_passes(tmp_path: Path) -> None:
    """Nothing is said where nothing is wrong."""
    assert [] == complaints(tmp_path, "heron_sound", HERON)


@pytest.mark.few(5)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_named(tmp_path: Path, mistake: str) -> None:
    """The suite ends, and one of its sentences says what is wrong."""
    before, after, words = MISTAKES[mistake]
    sentences = complaints(tmp_path, "heron_planted", HERON.replace(before, after))

    assert before in HERON
    assert [] != [sentence for sentence in sentences if words in sentence], sentences
