"""Sessions of Pebble, an agent that does not exist, for thence.

Pebble keeps one log per session, `~/.pebble/<session>.jsonl`, a record per line:

    {"id": "n1", "after": null, "who": "you", "text": "Hello.", "at": "2026-01-01T00:00:00Z"}
    {"id": "n2", "after": "n1", "who": "pebble", "text": "Hello.", "tokens": [12, 3], "rests": true}
    {"id": "n3", "after": "n2", "who": "pebble", "tool": "ls", "given": {"path": "."}}
    {"id": "n4", "after": "n3", "who": "tool", "of": "n3", "text": "a.txt"}

`after` is the record that this one goes on from. Records that say something else (`{"cwd": …}`)
have no id and stand beside the line.
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

TURNS = {"you": Is.PROMPT, "pebble": Is.REPLY, "tool": 0}


class Pebble:
    """The reader."""

    name = "pebble"

    def roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """One folder, which a variable may move."""
        return [Path(env["PEBBLE_HOME"]) if env.get("PEBBLE_HOME") else home / ".pebble"]

    def find(self, root: Path) -> Iterator[Source]:
        """One log is one session."""
        for entry in files.walk(str(root), 0):
            if entry.name.endswith(".jsonl"):
                yield self._source(Path(entry.path))

    def at(self, path: Path) -> Source | None:
        """Ours is what lies in a folder of that name, or begins as our records do."""
        start = files.start_of(str(path), 4096) if path.suffix == ".jsonl" else None
        ours = start is not None and (path.parent.name == ".pebble" or b'"who"' in start)
        return self._source(path) if ours else None

    def _source(self, path: Path) -> Source:
        # The key names the log in its session and must not change when the file is moved.
        return Source(self.name, path.stem, (File(str(path), "log"),), str(path.parent))

    def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
        """Read what is new. Cursors, damage, budgets and rewriting are the loop's business."""
        return files.read(source, cursor, Notes, is_record=lambda value: "who" in value)

    def live(self, root: Path) -> Iterator[Live]:
        """Pebble leaves `<session>.running` with the number of its process, which may be gone."""
        for entry in files.walk(str(root), 0):
            if entry.name.endswith(".running"):
                pid = files.document(entry.path).get("pid")
                if is_running(pid):
                    yield Live(entry.name.removesuffix(".running"), pid, "running")

    def prompts(self, root: Path) -> Iterator[AgentPrompt]:  # noqa: ARG002 - the protocol's
        """Pebble keeps no history of prompts."""
        return iter(())

    def keeps_days(self, root: Path) -> int | None:  # noqa: ARG002 - the protocol's
        """Pebble never deletes a session."""
        return None


class Notes:
    """The records of one log. Anything in them may be of any type: nothing here may raise."""

    def __init__(self, _: Source, file: File, mark: Mark) -> None:
        self._file = file
        self._generation = mark.generation

    def carry(self) -> JSON:
        """Records need nothing of those before them."""
        return None

    def facts(self, found: RawRecord) -> Iterable[Fact]:
        """One fact per record, whatever it is."""
        value = found.value
        own, after = word(value.get("id")), word(value.get("after"))
        flags = TURNS.get(word(value.get("who")), Is.INTERNAL) if own else Is.INTERNAL
        block = _block(value, own)
        call = (own,) if block.kind == "tool_call" else ()
        answer = (block.call,) if block.kind == "tool_result" and block.call else ()
        if value.get("rests") is True:
            flags |= Is.ENDS
        told = value.get("tokens")
        usage = Usage(*map(count, told[:2])) if isinstance(told, list) else None
        yield Fact(
            # A record without an id is named by its bytes.
            Node(own or line_name(self._file.key, found.raw), after or None, flags, call, answer),
            word(value.get("who")),
            word(value.get("at")) or None,
            (block,),
            file=self._file.key,
            channel=self._file.channel,
            generation=self._generation,
            line=found.place.line,
            offset=found.place.offset,
            usage=usage,
            usage_key=own if usage else None,
            about={"cwd": value["cwd"]} if word(value.get("cwd")) else {},
        )


def _block(value: dict[str, JSON], own: str) -> Block:
    """What a record says: words, a call, a result, or something else that is kept all the same."""
    who, text = word(value.get("who")), word(value.get("text"))
    if not own or who not in TURNS:
        return Block("lifecycle", "system", who or "note", value)
    if who == "tool":
        return Block(
            "tool_result", "tool", one_line(text), text, call=word(value.get("of")) or None
        )
    if tool := word(value.get("tool")):
        return Block("tool_call", "assistant", tool, value.get("given"), tool, own)
    said = {"type": "text", "text": text}
    if who == "you":
        return Block("user_msg", "user", one_line(text), said)
    return Block("assistant_msg", "assistant", one_line(text), said)
