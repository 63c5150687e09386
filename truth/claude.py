"""Cases of Claude Code: `.claude/projects/<folder>/<session>.jsonl`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from truth.case import MODEL, Answers, Case, Usage, encode_lines

A = "5eed0000-0000-4000-8000-00000000000a"
B = "5eed0000-0000-4000-8000-00000000000b"
CWD = "/home/dev/tidepool"
FOLDER = ".claude/projects/-home-dev-tidepool"
RESPONSE_USAGE = Usage(1000, 200, 300, 5000)
"""The usage of a response, unless a case sets another."""


class TranscriptBuilder:
    """Builds a transcript; each record follows the one before."""

    version = "2.1.80"

    def __init__(self, session: str = A, tag: str = "a", start: int = 0) -> None:
        self.session = session
        self.records: list[dict[str, Any]] = []
        self.last: str | None = None
        self._tag = tag
        self._start = start

    def add(self, kind: str, **fields: Any) -> str:
        """Add a record, and return its id."""
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
        """Add a prompt, and return its id."""
        return self.add("user", message={"role": "user", "content": text}, **fields)

    def reply(
        self,
        *blocks: Any,
        usage: Usage = RESPONSE_USAGE,
        name: str = "",
        stop: str = "end_turn",
        **fields: Any,
    ) -> str:
        """Add a response of texts and blocks, and return its id."""
        content = [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks]
        name_suffix = name or f"{self._tag}{self._start + len(self.records):04}"
        message = {
            "id": f"msg_{name_suffix}",
            "type": "message",
            "role": "assistant",
            "model": MODEL,
            "content": content,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": {
                "input_tokens": usage.input,
                "output_tokens": usage.output,
                "cache_creation_input_tokens": usage.write,
                "cache_read_input_tokens": usage.read,
            },
        }
        return self.add("assistant", message=message, requestId=f"req_{name_suffix}", **fields)

    def call(self, call: str, command: str, **fields: Any) -> str:
        """Add a call of a command, and return its id."""
        block = {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": command}}
        return self.reply(block, stop="tool_use", **fields)

    def result(self, call: str, text: str, **fields: Any) -> str:
        """Add the result of a call, and return its id."""
        block = {"type": "tool_result", "tool_use_id": call, "content": text}
        return self.add("user", message={"role": "user", "content": [block]}, **fields)

    def turns(self, *texts: str) -> None:
        """Add prompts and answers, alternately."""
        for turn, text in enumerate(texts):
            (self.reply if turn % 2 else self.prompt)(text)

    @property
    def data(self) -> bytes:
        """Return the bytes of the file."""
        return encode_lines(self.records)

    def write(self, home: Path, data: bytes | None = None) -> Path:
        """Write the file where the client would, and return its path."""
        path = home / FOLDER / f"{self.session}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.data if data is None else data)
        return path


def _conversation() -> TranscriptBuilder:
    """Return a short session, with which most cases start."""
    script = TranscriptBuilder()
    script.turns("Where is quillfern kept?", "In the brackenloft.", "Go on.", "It is done.")
    return script


# -- cases ----------------------------------------------------------------------------------


def _streamed(home: Path) -> None:
    """Write one response as three records; each repeats the usage, the output grows."""
    script = TranscriptBuilder()
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
    """Write a second session that starts with copies of the first."""
    script = _conversation()
    script.write(home)
    other = TranscriptBuilder(B, "b", 20)
    other.records = [record | {"sessionId": B} for record in script.records]
    other.last = script.last
    other.turns("And the fork?", "It leads to the copperweir.")
    other.write(home)


def _rewind(home: Path) -> None:
    """Rewind a turn and write another; a note ends each turn, as with 2.1."""
    script = TranscriptBuilder()
    script.version = "2.1.325"

    def turn(prompt: str, answer: str) -> None:
        script.turns(prompt, answer)
        note = {"subtype": "turn_duration", "durationMs": 1000, "messageCount": 2}
        script.add("system", **note, isMeta=False, entrypoint="cli")

    _add_rewind(script, turn)
    script.write(home)


def _rewind_before(home: Path) -> None:
    """Write the same without the notes."""
    script = TranscriptBuilder()
    script.version = "2.0.76"
    _add_rewind(script, script.turns)
    script.write(home)


def _add_rewind(script: TranscriptBuilder, turn: Callable[[str, str], None]) -> None:
    turn("Where is quillfern kept?", "In the brackenloft.")
    turn("Go on.", "It is done.")
    branch_point = script.last
    turn("Take the thornvault road.", "I took the thornvault road.")
    script.last = branch_point
    turn("Take the other road.", "I took the copperweir road.")


def _compaction(home: Path) -> None:
    """Write a compaction; the log still has what the summary replaces."""
    script = _conversation()
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
    """Write a compaction that names a record of a hook, which the client never writes."""
    script = _conversation()
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
    """Write a plan that runs with an empty context: its prompt has no parent."""
    script = _conversation()
    script.last = None
    script.prompt("Implement the following plan:\n\n# Build the copperweir")
    script.reply("It is built.")
    script.write(home)


def _early_results(home: Path) -> None:
    """Write the first result while the response still streams."""
    script = TranscriptBuilder()
    script.prompt("List the quillfern.")
    for number, answer in ((1, "a marshlamp"), (2, "a brackenloft")):
        usage = Usage(1000, 100 * number, 300, 5000)
        script.call(f"toolu_{number}", f"ls {number}", usage=usage, name="one")
        script.result(f"toolu_{number}", answer)
    script.reply("There are two.")
    script.write(home)


def _subagent_in_progress(home: Path) -> None:
    """Write a subagent's messages to the session's log only, as progress records."""
    script = TranscriptBuilder()
    script.prompt("Ask somebody about quillfern.")
    task = {"description": "look", "prompt": "Look.", "subagent_type": "Explore"}
    script.reply(
        {"type": "tool_use", "id": "toolu_t", "name": "Task", "input": task}, stop="tool_use"
    )
    subagent = TranscriptBuilder(A, "c", 40)
    subagent.prompt("Look.")
    subagent.reply("Behind the brackenloft.")
    for record in subagent.records:
        copied_fields = ("type", "message", "uuid", "timestamp", "requestId")
        message = {name: record[name] for name in copied_fields if name in record}
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
    """Write a subagent's file; its usage belongs to the session."""
    script = TranscriptBuilder()
    script.prompt("Ask somebody about quillfern.")
    task = {"description": "look", "prompt": "Look.", "subagent_type": "Explore"}
    script.reply(
        {"type": "tool_use", "id": "toolu_t", "name": "Task", "input": task}, stop="tool_use"
    )
    script.result("toolu_t", "It is there.", toolUseResult={"agentId": "a5eed000000000001"})
    script.reply("Somebody says it is there.")
    path = script.write(home)
    subagent = TranscriptBuilder(A, "c", 40)
    subagent.prompt("Look.", isSidechain=True, agentId="a5eed000000000001")
    subagent.reply("Behind the brackenloft.", isSidechain=True, agentId="a5eed000000000001")
    folder = path.with_suffix("") / "subagents"
    folder.mkdir(parents=True)
    (folder / "agent-a5eed000000000001.jsonl").write_bytes(subagent.data)
    meta = {"agentType": "Explore", "description": "look", "toolUseId": "toolu_t"}
    (folder / "agent-a5eed000000000001.meta.json").write_text(json.dumps(meta), encoding="utf-8")


def _spill(home: Path) -> None:
    """Write a large result to a file beside the log, and its beginning to the log."""
    script = TranscriptBuilder()
    script.prompt("Print the quillfern list.")
    script.call("toolu_s", "cat list")
    folder = home / FOLDER / A / "tool-results"
    folder.mkdir(parents=True)
    output = "line of the list\n" * 3000 + "the last one is brackenloft\n"
    (folder / "b5eed0001.txt").write_text(output, encoding="ascii")
    text = (
        f"<persisted-output>\nOutput too large ({len(output) / 1000:.1f}KB). Full output saved to: "
        f"{folder / 'b5eed0001.txt'}\n\nPreview (first 2KB):\n{output[:2000]}\n...\n"
        "</persisted-output>"
    )
    result = {
        "stdout": output[:30_000],
        "stderr": "",
        "persistedOutputPath": str(folder / "b5eed0001.txt"),
        "persistedOutputSize": len(output),
    }
    script.result("toolu_s", text, toolUseResult=result)
    script.reply("That was the list.")
    script.write(home)


def _torn(home: Path) -> None:
    """Write half a line, as a killed client leaves it, and continue after it."""
    script = _conversation()
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
"""Synthetic secrets of real kinds, in pieces, so that no secret scanner reports this file."""


def _secrets(home: Path) -> None:
    """Write the output of a command that prints keys."""
    script = TranscriptBuilder()
    script.prompt("Show the quillfern settings.")
    script.call("toolu_k", "env")
    output = f"AWS_ACCESS_KEY_ID={SECRETS[0]}\nGITHUB_TOKEN={SECRETS[1]}\nKEY={SECRETS[2]}\n"
    script.result("toolu_k", output + "PLACE=brackenloft\n")
    script.reply("These are the settings.")
    script.write(home)


def _rewritten(home: Path) -> None:
    """Rewrite the file, shorter, as the client may."""
    script = TranscriptBuilder(A, "d", 60)
    script.turns("Something else.", "Only the copperweir is left.")
    script.write(home)


def _deleted(home: Path) -> None:
    """Delete the file, as the client does after a month."""
    (home / FOLDER / f"{A}.jsonl").unlink()


def _smaller(home: Path) -> None:
    """Write the deleted file again, smaller than before, with new lines."""
    script = TranscriptBuilder(A, "e", 80)
    script.reply("Only the copperweir is left.")
    script.write(home)


def _east_asian(home: Path) -> None:
    """Write prompts in languages without spaces between words."""
    script = TranscriptBuilder()
    script.turns("请检查潮汐窗口的时钟偏差", "時計のずれを修正しました。")
    script.turns("시계창을 다시 검사해줘", "검사했습니다.")
    script.write(home)


def _plain(home: Path) -> None:
    _conversation().write(home)


_WORDS = ("quillfern", "brackenloft")
_TWICE = RESPONSE_USAGE + RESPONSE_USAGE
_THRICE = _TWICE + RESPONSE_USAGE

CASES = (
    Case(
        "claude",
        "streamed usage",
        "one response in three records, each with usage; the last one counts",
        _streamed,
        Answers(1, _TWICE, has_price=True, live_words=(*_WORDS, "marshlamp")),
    ),
    Case(
        "claude",
        "fork",
        "a second session starts with copies of the first; usage counts once",
        _fork,
        Answers(2, _THRICE, has_price=True, live_words=(*_WORDS, "copperweir")),
    ),
    Case(
        "claude",
        "rewind",
        "a turn is rewound: still billed, and discarded",
        _rewind,
        Answers(
            1,
            _TWICE + _TWICE,
            has_price=True,
            live_words=("copperweir",),
            discarded_words=("thornvault",),
        ),
    ),
    Case(
        "claude",
        "rewind, 2.0",
        "the same, as the client of a year ago wrote it",
        _rewind_before,
        Answers(
            1,
            _TWICE + _TWICE,
            has_price=True,
            live_words=("copperweir",),
            discarded_words=("thornvault",),
        ),
    ),
    Case(
        "claude",
        "compaction",
        "what a summary replaced is still found",
        _compaction,
        Answers(1, _THRICE, has_price=True, live_words=(*_WORDS, "copperweir")),
    ),
    Case(
        "claude",
        "subagent",
        "a subagent's file is not a session; its usage counts",
        _subagent,
        Answers(1, _THRICE, has_price=True, live_words=_WORDS),
    ),
    Case(
        "claude",
        "compaction with hooks",
        "the compaction names a record that was never written; what it replaced is not discarded",
        _compaction_with_hooks,
        Answers(
            1, _THRICE, has_price=True, live_words=("copperweir",), never_discarded_words=_WORDS
        ),
    ),
    Case(
        "claude",
        "cleared context",
        "a plan runs with an empty context; what came before is not discarded",
        _cleared,
        Answers(
            1, _THRICE, has_price=True, live_words=("copperweir",), never_discarded_words=_WORDS
        ),
    ),
    Case(
        "claude",
        "early results",
        "a result is between two calls of one response; its usage counts once",
        _early_results,
        Answers(1, _TWICE, has_price=True, live_words=(*_WORDS, "marshlamp")),
    ),
    Case(
        "claude",
        "subagent in progress",
        "a subagent's file is gone; its parent's log has its text and its usage",
        _subagent_in_progress,
        Answers(1, _THRICE, has_price=True, live_words=_WORDS),
    ),
    Case(
        "claude",
        "spill",
        "the end of a large result is in a file beside the log",
        _spill,
        Answers(1, _TWICE, has_price=True, live_words=_WORDS),
    ),
    Case(
        "claude",
        "torn lines",
        "half a line in the middle, another at the end: only these are lost",
        _torn,
        Answers(1, _TWICE + _TWICE, has_price=True, live_words=(*_WORDS, "copperweir")),
    ),
    Case(
        "claude",
        "secrets",
        "no file of the tool contains the keys of a result",
        _secrets,
        Answers(1, _TWICE, has_price=True, live_words=_WORDS, secrets=SECRETS),
    ),
    Case(
        "claude",
        "rewritten source",
        "what was read is not lost when the file is rewritten",
        _plain,
        Answers(1, _THRICE, has_price=True, live_words=(*_WORDS, "copperweir")),
        (_rewritten,),
    ),
    Case(
        "claude",
        "smaller source",
        "a session's file is deleted, its subagent's is not; it returns smaller, with new lines",
        _subagent,
        Answers(1, _THRICE + RESPONSE_USAGE, has_price=True, live_words=(*_WORDS, "copperweir")),
        (_deleted, _smaller),
    ),
    Case(
        "claude",
        "no spaces",
        "words inside sentences of Chinese, Japanese and Korean are found",
        _east_asian,
        Answers(1, _TWICE, has_price=True, live_words=("潮汐窗口", "时钟", "修正", "시계")),
    ),
    Case(
        "claude",
        "deleted source",
        "what was read stays when the file is deleted",
        _plain,
        Answers(1, _TWICE, has_price=True, live_words=_WORDS),
        (_deleted,),
    ),
)
