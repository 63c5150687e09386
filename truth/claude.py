"""Cases of Claude Code: `.claude/projects/<folder>/<session>.jsonl`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from truth.case import OUR_MODEL, Answers, Case, Usage, lines_of

A = "5eed0000-0000-4000-8000-00000000000a"
B = "5eed0000-0000-4000-8000-00000000000b"
CWD = "/home/dev/tidepool"
FOLDER = ".claude/projects/-home-dev-tidepool"
ONE = Usage(1000, 200, 300, 5000)
"""What a response of these sessions costs, unless a case says otherwise."""


class Script:
    """A transcript in the making: each record goes on from the one before."""

    version = "2.1.80"

    def __init__(self, session: str = A, tag: str = "a", start: int = 0) -> None:
        self.session = session
        self.records: list[dict[str, Any]] = []
        self.last: str | None = None
        self._tag = tag
        self._start = start

    def add(self, kind: str, **fields: Any) -> str:
        """Add a record; gives its id."""
        at = self._start + len(self.records)
        uuid = f"5eed{at:04x}-0000-4000-8000-{self._tag * 12:.12}"
        frame = {
            "parentUuid": self.last,
            "isSidechain": False,
            "userType": "external",
            "cwd": CWD,
            "sessionId": self.session,
            "version": self.version,
            "gitBranch": "main",
            "type": kind,
            "uuid": uuid,
            "timestamp": f"2026-11-10T10:{at // 60:02}:{at % 60:02}.000Z",
        }
        self.records.append(frame | fields)
        self.last = uuid
        return uuid

    def prompt(self, text: str, **fields: Any) -> str:
        """What the human says."""
        return self.add("user", message={"role": "user", "content": text}, **fields)

    def reply(
        self, *blocks: Any, usage: Usage = ONE, name: str = "", stop: str = "end_turn", **more: Any
    ) -> str:
        """What the model answers: texts and blocks."""
        said = [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks]
        own = name or f"{self._tag}{self._start + len(self.records):04}"
        message = {
            "id": f"msg_{own}",
            "type": "message",
            "role": "assistant",
            "model": OUR_MODEL,
            "content": said,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": {
                "input_tokens": usage.input,
                "output_tokens": usage.output,
                "cache_creation_input_tokens": usage.write,
                "cache_read_input_tokens": usage.read,
            },
        }
        return self.add("assistant", message=message, requestId=f"req_{own}", **more)

    def call(self, call: str, command: str, **more: Any) -> str:
        """A call of a command."""
        block = {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": command}}
        return self.reply(block, stop="tool_use", **more)

    def result(self, call: str, text: str, **fields: Any) -> str:
        """What a call gave."""
        block = {"type": "tool_result", "tool_use_id": call, "content": text}
        return self.add("user", message={"role": "user", "content": [block]}, **fields)

    def turns(self, *texts: str) -> None:
        """Prompts and answers, in turn."""
        for turn, text in enumerate(texts):
            (self.reply if turn % 2 else self.prompt)(text)

    @property
    def data(self) -> bytes:
        """The bytes of the file."""
        return lines_of(self.records)

    def write(self, home: Path, data: bytes | None = None) -> Path:
        """Write it where the client would."""
        path = home / FOLDER / f"{self.session}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.data if data is None else data)
        return path


def _talk() -> Script:
    """A short session that most cases begin with."""
    script = Script()
    script.turns("Where is quillfern kept?", "In the brackenloft.", "Go on.", "It is done.")
    return script


# -- cases ----------------------------------------------------------------------------------


def _streamed(home: Path) -> None:
    """One response in three records; each repeats the bill, the output grows."""
    script = Script()
    script.prompt("List the quillfern.")
    for output, block in (
        (1, {"type": "thinking", "thinking": "Let me see.", "signature": "x"}),
        (80, {"type": "text", "text": "I look in the brackenloft."}),
        (200, {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}),
    ):
        script.reply(block, usage=Usage(1000, output, 300, 5000), name="one", stop="tool_use")
    script.result("toolu_1", "a marshlamp")
    script.reply("There is one.")
    script.write(home)


def _fork(home: Path) -> None:
    """A second session that begins with copies of the first."""
    script = _talk()
    script.write(home)
    other = Script(B, "b", 20)
    other.records = [record | {"sessionId": B} for record in script.records]
    other.last = script.last
    other.turns("And the fork?", "It leads to the copperweir.")
    other.write(home)


def _rewind(home: Path) -> None:
    """A turn is taken back and said again in another way; a note ends each turn, as of 2.1."""
    script = Script()
    script.version = "2.1.325"

    def turn(prompt: str, answer: str) -> None:
        script.turns(prompt, answer)
        ended = {"subtype": "turn_duration", "durationMs": 1000, "messageCount": 2}
        script.add("system", **ended, isMeta=False, entrypoint="cli")

    _rewound(script, turn)
    script.write(home)


def _rewind_before(home: Path) -> None:
    """The same without the notes."""
    script = Script()
    script.version = "2.0.76"
    _rewound(script, script.turns)
    script.write(home)


def _rewound(script: Script, turn: Callable[[str, str], None]) -> None:
    turn("Where is quillfern kept?", "In the brackenloft.")
    turn("Go on.", "It is done.")
    here = script.last
    turn("Take the thornvault road.", "I took the thornvault road.")
    script.last = here
    turn("Take the other road.", "I took the copperweir road.")


def _compaction(home: Path) -> None:
    """A summary takes the place of what was said; the log keeps it all."""
    script = _talk()
    before = script.last
    script.last = None
    script.add(
        "system",
        subtype="compact_boundary",
        content="Conversation compacted",
        level="info",
        logicalParentUuid=before,
        compactMetadata={"trigger": "manual", "preTokens": 9000},
    )
    script.prompt("The talk was about a loft.", isCompactSummary=True)
    script.turns("And now?", "Now the copperweir.")
    script.write(home)


def _compaction_with_hooks(home: Path) -> None:
    """The same where hooks run: the client names a record of theirs that it never writes."""
    script = _talk()
    script.last = None
    script.add(
        "system",
        subtype="compact_boundary",
        content="Conversation compacted",
        level="info",
        logicalParentUuid="5eedffff-0000-4000-8000-000000000000",
        compactMetadata={"trigger": "manual", "preTokens": 9000},
    )
    script.prompt("The talk was about a loft.", isCompactSummary=True)
    script.turns("And now?", "Now the copperweir.")
    script.write(home)


def _cleared(home: Path) -> None:
    """A plan is carried out with an empty context: its prompt continues nothing."""
    script = _talk()
    script.last = None
    script.prompt("Implement the following plan:\n\n# Build the copperweir")
    script.reply("It is built.")
    script.write(home)


def _early_results(home: Path) -> None:
    """The client writes the first result while the response still streams."""
    script = Script()
    script.prompt("List the quillfern.")
    for number, answer in ((1, "a marshlamp"), (2, "a brackenloft")):
        usage = Usage(1000, 100 * number, 300, 5000)
        script.call(f"toolu_{number}", f"ls {number}", usage=usage, name="one")
        script.result(f"toolu_{number}", answer)
    script.reply("There are two.")
    script.write(home)


def _subagent_in_progress(home: Path) -> None:
    """The subagent's own file is gone; the session's log holds what it said."""
    script = Script()
    script.prompt("Ask somebody about quillfern.")
    task = {"description": "look", "prompt": "Look.", "subagent_type": "Explore"}
    script.reply(
        {"type": "tool_use", "id": "toolu_t", "name": "Task", "input": task}, stop="tool_use"
    )
    side = Script(A, "c", 40)
    side.prompt("Look.")
    side.reply("Behind the brackenloft.")
    for record in side.records:
        kept = ("type", "message", "uuid", "timestamp", "requestId")
        message = {name: record[name] for name in kept if name in record}
        data = {
            "message": message,
            "normalizedMessages": [],
            "type": "agent_progress",
            "prompt": "Look.",
            "agentId": "a5eed01",
        }
        ids = {"toolUseID": "agent_msg_1", "parentToolUseID": "toolu_t"}
        script.add("progress", data=data, entrypoint="cli", **ids)
    script.result("toolu_t", "It is there.", toolUseResult={"agentId": "a5eed01"})
    script.reply("Somebody says it is there.")
    script.write(home)


def _subagent(home: Path) -> None:
    """A subagent writes a file of its own; its bill is the session's."""
    script = Script()
    script.prompt("Ask somebody about quillfern.")
    task = {"description": "look", "prompt": "Look.", "subagent_type": "Explore"}
    script.reply(
        {"type": "tool_use", "id": "toolu_t", "name": "Task", "input": task}, stop="tool_use"
    )
    script.result("toolu_t", "It is there.", toolUseResult={"agentId": "a5eed000000000001"})
    script.reply("Somebody says it is there.")
    path = script.write(home)
    side = Script(A, "c", 40)
    side.prompt("Look.", isSidechain=True, agentId="a5eed000000000001")
    side.reply("Behind the brackenloft.", isSidechain=True, agentId="a5eed000000000001")
    folder = path.with_suffix("") / "subagents"
    folder.mkdir(parents=True)
    (folder / "agent-a5eed000000000001.jsonl").write_bytes(side.data)
    meta = {"agentType": "Explore", "description": "look", "toolUseId": "toolu_t"}
    (folder / "agent-a5eed000000000001.meta.json").write_text(json.dumps(meta), encoding="utf-8")


def _spill(home: Path) -> None:
    """A large result lies in a file beside the log; the log holds its beginning."""
    script = Script()
    script.prompt("Print the quillfern list.")
    script.call("toolu_s", "cat list")
    folder = home / FOLDER / A / "tool-results"
    folder.mkdir(parents=True)
    whole = "line of the list\n" * 3000 + "the last one is brackenloft\n"
    (folder / "b5eed0001.txt").write_text(whole, encoding="ascii")
    text = (
        f"<persisted-output>\nOutput too large ({len(whole) / 1000:.1f}KB). Full output saved to: "
        f"{folder / 'b5eed0001.txt'}\n\nPreview (first 2KB):\n{whole[:2000]}\n...\n"
        "</persisted-output>"
    )
    told = {
        "stdout": whole[:30_000],
        "stderr": "",
        "persistedOutputPath": str(folder / "b5eed0001.txt"),
        "persistedOutputSize": len(whole),
    }
    script.result("toolu_s", text, toolUseResult=told)
    script.reply("That was the list.")
    script.write(home)


def _torn(home: Path) -> None:
    """The client was killed in a write, and another went on behind the half line."""
    script = _talk()
    script.turns("What of the thornvault?", "Nothing.", "And then?", "The copperweir.")
    lines = script.data.splitlines(keepends=True)
    lines[4] = lines[4][:120] + b"\n"  # the prompt about the vault: a half that was ended later
    script.write(home, b"".join(lines) + b'{"parentUuid":"5eed0007-0000-4000')


SECRETS = (
    "AKIA" + "Q3EGTZKJ7XWMPLNB",
    "ghp_" + "x7Kd93hQpZ2mVb81LwRtYc5NfJ0aGsE64UiO",
    "sk-ant-api03-" + "Zq8Lw2Nv5Rt7Yb1Xc4Ms6Pd9Kf3Hg0JaEuTiOyWlQzXcVbNmAsDfGhJkLpOiUyTrEwQ"
    "1aS2dF3gH4jK5lZ6xCAA",
)
"""Made up, each in the form of a real kind; put together here so that no scanner takes offence."""


def _secrets(home: Path) -> None:
    """A command printed keys."""
    script = Script()
    script.prompt("Show the quillfern settings.")
    script.call("toolu_k", "env")
    said = f"AWS_ACCESS_KEY_ID={SECRETS[0]}\nGITHUB_TOKEN={SECRETS[1]}\nKEY={SECRETS[2]}\n"
    script.result("toolu_k", said + "PLACE=brackenloft\n")
    script.reply("These are the settings.")
    script.write(home)


def _rewritten(home: Path) -> None:
    """The client wrote the file anew, shorter."""
    script = Script(A, "d", 60)
    script.turns("Something else.", "Only the copperweir is left.")
    script.write(home)


def _deleted(home: Path) -> None:
    """The client deleted the file, as it does after a month."""
    (home / FOLDER / f"{A}.jsonl").unlink()


def _smaller(home: Path) -> None:
    """The client writes the deleted file again, smaller than it was, with new lines."""
    script = Script(A, "e", 80)
    script.reply("Only the copperweir is left.")
    script.write(home)


def _east_asian(home: Path) -> None:
    """Prompts in languages that put no space between words."""
    script = Script()
    script.turns("请检查潮汐窗口的时钟偏差", "時計のずれを修正しました。")
    script.turns("시계창을 다시 검사해줘", "검사했습니다.")
    script.write(home)


def _plain(home: Path) -> None:
    _talk().write(home)


_WORDS = ("quillfern", "brackenloft")
_TWICE = ONE + ONE
_THRICE = _TWICE + ONE

CASES = (
    Case(
        "claude",
        "streamed usage",
        "one response in three records, each with a bill; the last one counts",
        _streamed,
        Answers(1, _TWICE, priced=True, live=(*_WORDS, "marshlamp")),
    ),
    Case(
        "claude",
        "fork",
        "a second session begins with copies of the first; a bill counts once",
        _fork,
        Answers(2, _THRICE, priced=True, live=(*_WORDS, "copperweir")),
    ),
    Case(
        "claude",
        "rewind",
        "a turn is taken back: billed all the same, and dead",
        _rewind,
        Answers(1, _TWICE + _TWICE, priced=True, live=("copperweir",), dead=("thornvault",)),
    ),
    Case(
        "claude",
        "rewind, 2.0",
        "the same as the client of a year ago wrote it",
        _rewind_before,
        Answers(1, _TWICE + _TWICE, priced=True, live=("copperweir",), dead=("thornvault",)),
    ),
    Case(
        "claude",
        "compaction",
        "what a summary replaced is still there",
        _compaction,
        Answers(1, _THRICE, priced=True, live=(*_WORDS, "copperweir")),
    ),
    Case(
        "claude",
        "subagent",
        "a subagent's file is no session of its own; its bill counts",
        _subagent,
        Answers(1, _THRICE, priced=True, live=_WORDS),
    ),
    Case(
        "claude",
        "compaction with hooks",
        "the compaction names a record that was never written; what it replaced is not dead",
        _compaction_with_hooks,
        Answers(1, _THRICE, priced=True, live=("copperweir",), not_dead=_WORDS),
    ),
    Case(
        "claude",
        "cleared context",
        "a plan is carried out with an empty context; what led to it is not dead",
        _cleared,
        Answers(1, _THRICE, priced=True, live=("copperweir",), not_dead=_WORDS),
    ),
    Case(
        "claude",
        "early results",
        "a result stands between two calls of one response; its bill counts once",
        _early_results,
        Answers(1, _TWICE, priced=True, live=(*_WORDS, "marshlamp")),
    ),
    Case(
        "claude",
        "subagent in progress",
        "a subagent's own file is gone; its parent's log holds its words and its bill",
        _subagent_in_progress,
        Answers(1, _THRICE, priced=True, live=_WORDS),
    ),
    Case(
        "claude",
        "spill",
        "the end of a large result lies in a file beside the log",
        _spill,
        Answers(1, _TWICE, priced=True, live=_WORDS),
    ),
    Case(
        "claude",
        "torn lines",
        "half a line in the middle, another at the end: each costs itself",
        _torn,
        Answers(1, _TWICE + _TWICE, priced=True, live=(*_WORDS, "copperweir")),
    ),
    Case(
        "claude",
        "secrets",
        "keys in a result are in no file that the tool writes",
        _secrets,
        Answers(1, _TWICE, priced=True, live=_WORDS, secrets=SECRETS),
    ),
    Case(
        "claude",
        "rewritten source",
        "what was read before is not lost when the file is written anew",
        _plain,
        Answers(1, _THRICE, priced=True, live=(*_WORDS, "copperweir")),
        (_rewritten,),
    ),
    Case(
        "claude",
        "smaller source",
        "a session's file is deleted, its subagent's is not; it comes back smaller, with new lines",
        _subagent,
        Answers(1, _THRICE + ONE, priced=True, live=(*_WORDS, "copperweir")),
        (_deleted, _smaller),
    ),
    Case(
        "claude",
        "no spaces",
        "words inside sentences of Chinese, Japanese and Korean are found",
        _east_asian,
        Answers(1, _TWICE, priced=True, live=("潮汐窗口", "时钟", "修正", "시계")),
    ),
    Case(
        "claude",
        "deleted source",
        "what was read stays when the file is deleted",
        _plain,
        Answers(1, _TWICE, priced=True, live=_WORDS),
        (_deleted,),
    ),
)
