"""The reader of Pebble's sessions. Pebble is an agent that does not exist.

It writes one log per session, `~/.pebble/<session>.jsonl`, with one record per line:

    {"id": "n1", "parent": null, "speaker": "user", "text": "Hi.", "time": "2026-01-01T00:00:00Z"}
    {"id": "n2", "parent": "n1", "speaker": "pebble", "tool": "ls", "input": {"path": "."}}
    {"id": "n3", "parent": "n2", "speaker": "tool", "call": "n2", "text": "a.txt"}
    {"id": "n4", "parent": "n3", "speaker": "pebble", "text": "One file.", "tokens": [12, 3],
     "model": "claude-sonnet-4-5"}

`parent` is the record that this one follows, `tokens` are those of input and output, `"failed":
true` marks a result that is an error, and `"ends_turn": true` the last record of a turn. Records
about the session, such as `{"cwd": "/home/dev"}`, have no id and are not part of the conversation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from thence.agents import AgentPrompt, Batch, Cursor, File, Live, Mark, Source, files
from thence.agents.records import is_running
from thence.format.codec import RawRecord
from thence.format.facts import Block, Fact, line_name
from thence.format.nodes import Is, Node
from thence.format.normal import one_line
from thence.format.records import JSON, Usage, count, word

HEAD_BYTES = 4096
"""How much of an unknown file is read to recognise a log of Pebble."""

SPEAKERS = {"user": Is.PROMPT, "pebble": Is.REPLY, "tool": 0}
"""The flags of a record, by its speaker."""


class Pebble:
    """Finds and reads the sessions of Pebble."""

    name = "pebble"

    def roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """Return the folder of the logs; $PEBBLE_HOME moves it."""
        return [Path(env["PEBBLE_HOME"]) if env.get("PEBBLE_HOME") else home / ".pebble"]

    def find(self, root: Path) -> Iterator[Source]:
        """Yield one source per log."""
        for entry in files.walk(str(root), 0):
            if entry.name.endswith(".jsonl"):
                yield self._source(Path(entry.path))

    def at(self, path: Path) -> Source | None:
        """Return the source of a log, wherever it is, or None for a file of somebody else."""
        head = files.start_of(str(path), HEAD_BYTES) if path.suffix == ".jsonl" else None
        if head is None:
            return None
        is_ours = path.parent.name == ".pebble" or b'"speaker"' in head
        return self._source(path) if is_ours else None

    def _source(self, path: Path) -> Source:
        # "log" names the file inside its session. It must stay the same when the file is moved. The
        # last value is the folder that roots() names: thence resume sets $PEBBLE_HOME to it.
        return Source(self.name, path.stem, (File(str(path), "log"),), str(path.parent))

    def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
        """Return the new records as facts; `files.read` handles cursors, damage and rewrites."""
        return files.read(source, cursor, PebbleLog, is_record=lambda value: "speaker" in value)

    def live(self, root: Path) -> Iterator[Live]:
        """Yield running sessions: Pebble writes its process id to `<session>.running`."""
        for entry in files.walk(str(root), 0):
            if entry.name.endswith(".running"):
                pid = files.document(entry.path).get("pid")
                if is_running(pid):  # after a crash the file is still there
                    yield Live(entry.name.removesuffix(".running"), pid, "running")

    def prompts(self, root: Path) -> Iterator[AgentPrompt]:  # noqa: ARG002 - the protocol's
        """Yield nothing: Pebble has no prompt history."""
        return iter(())

    def keeps_days(self, root: Path) -> int | None:  # noqa: ARG002 - the protocol's
        """Return None: Pebble never deletes a session."""
        return None


class PebbleLog:
    """Turns the records of one log into facts.

    A log can hold anything: any value can have any type, and nothing here may raise.
    """

    def __init__(self, _: Source, file: File, mark: Mark) -> None:
        self._file = file
        self._generation = mark.generation

    def carry(self) -> JSON:
        """Return None: no record depends on an earlier one."""
        return None

    def facts(self, record: RawRecord) -> Iterable[Fact]:
        """Yield one fact per record, also for a record of an unknown kind."""
        value = record.value
        record_id, speaker = word(value.get("id")), word(value.get("speaker"))
        flags = SPEAKERS.get(speaker, Is.INTERNAL) if record_id else Is.INTERNAL
        if value.get("ends_turn") is True:
            flags |= Is.ENDS
        block = _block(value, record_id, speaker)
        usage = _usage(value.get("tokens"))
        yield Fact(
            Node(
                record_id or line_name(self._file.key, record.raw),
                word(value.get("parent")) or None,
                flags,
                (record_id,) if block.kind == "tool_call" else (),
                (block.call,) if block.kind == "tool_result" and block.call else (),
            ),
            speaker,
            word(value.get("time")) or None,
            (block,),
            file=self._file.key,
            channel=self._file.channel,
            generation=self._generation,
            line=record.place.line,
            offset=record.place.offset,
            usage=usage,
            usage_key=record_id if usage else None,
            model=word(value.get("model")) or None,  # gives the tokens a price
            about={"cwd": value["cwd"]} if word(value.get("cwd")) else {},
        )


def _block(value: dict[str, JSON], record_id: str, speaker: str) -> Block:
    """Return the content of a record: a text, a tool call, a tool result, or the record itself."""
    if not record_id or speaker not in SPEAKERS:
        return Block("lifecycle", "system", speaker or "note", value)
    text = word(value.get("text"))
    if speaker == "tool":
        call = word(value.get("call")) or None
        failed = value.get("failed") is True
        return Block("tool_result", "tool", one_line(text), text, call=call, failed=failed)
    if tool := word(value.get("tool")):
        return Block("tool_call", "assistant", tool, value.get("input"), tool, record_id)
    content = {"type": "text", "text": text}
    if speaker == "user":
        return Block("user_msg", "user", one_line(text), content)
    return Block("assistant_msg", "assistant", one_line(text), content)


def _usage(tokens: JSON) -> Usage | None:
    """Return the tokens of a response; None for a record without them."""
    return Usage(*map(count, tokens[:2])) if isinstance(tokens, list) else None
