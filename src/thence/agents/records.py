"""What readers of line formats share: facts with their place filled in, common block shapes.

Everything takes values of any shape and never raises.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from thence import system
from thence.agents import AgentPrompt, Batch, Cursor, File, Live, Mark, Source, files
from thence.agents.profiles import agents, object_at
from thence.format.codec import RawRecord, accept_any
from thence.format.codec import objects as decode_lines
from thence.format.facts import Block, Fact, line_name
from thence.format.nodes import Is, Node
from thence.format.normal import one_line
from thence.format.records import (
    JSON,
    MAX_NUMBER,
    Usage,
    count,
    parse_json,
    text_of,
    time_text,
    word,
)
from thence.format.tools import BUILT_IN

Record = dict[str, JSON]

HEAD_BYTES = 64 << 10
"""How much of a file is read to recognise whose it is."""

_MAX_HEAD_LINES = 8
_CLOCK_SLACK_S = 5.0  # the time of the start of the system is rounded, and clocks are set
_MILLISECONDS_ABOVE = 10**11  # as seconds this is the year 5138


class LineReader:
    """The records of one file; each reader adds `facts`."""

    carries: ClassVar[tuple[str, ...]] = ()
    """What later records need to know: names of attributes, without the underscore."""

    def __init__(self, source: Source, file: File, mark: Mark) -> None:
        """Continue where the mark stands."""
        self._session = source.session
        self._file = file
        self._generation = mark.generation
        self._carried: Record = mark.carry if isinstance(mark.carry, dict) else {}

    def carry(self) -> JSON:
        """Return what later records need to know, as far as it says anything."""
        known = {name: copy(getattr(self, f"_{name}")) for name in self.carries}
        return {name: value for name, value in known.items() if value} or None

    def _name(self, entry: RawRecord) -> str:
        return line_name(self._file.key, entry.raw)

    def _fact(self, entry: RawRecord, node: Node, type_: str, **more: Any) -> Fact:
        more.setdefault("channel", self._file.channel)
        return Fact(
            node,
            type_,
            file=self._file.key,
            generation=self._generation,
            line=entry.place.line,
            offset=entry.place.offset,
            **more,
        )

    def _document(self, entry: RawRecord, type_: str, **more: Any) -> Fact:
        """Return what a document says of its session: a fact without an event."""
        return self._fact(entry, Node(self._name(entry), flags=Is.INTERNAL), type_, **more)


class QuietAgent:
    """The parts of an adapter that most agents share: its folders, and the reading of its logs.

    The agent has no list of running sessions and deletes nothing, unless a reader says otherwise.
    """

    name: str
    opens = ""
    """The place of what reads a file. Beside it stands `is_record`, if lines may be damaged."""

    def roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """Return the folder that its variable names, and the usual ones."""
        return agents()[self.name].profile.roots(home, env)

    def find(self, root: Path) -> Iterator[Source]:
        """Yield all sessions; each reader says how."""
        raise NotImplementedError

    def holder(self, root: Path | None, path: Path) -> Source | None:
        """Return the session below a root that a file belongs to."""
        sources = self.find(root) if root is not None else iter(())
        matches = (s for s in sources if any(file.path == str(path) for file in s.files))
        return next(matches, None)

    def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
        """Read what is new since the cursor."""
        module, _, _ = self.opens.partition(":")
        is_record = getattr(import_module(module), "is_record", accept_any)
        return files.read(source, cursor, object_at(self.opens), is_record=is_record)

    def live(self, _root: Path) -> Iterator[Live]:
        """Return no session: the agent does not list running ones."""
        return iter(())

    def prompts(self, _root: Path) -> Iterator[AgentPrompt]:
        """Return no prompt: the agent has no prompt history of its own that is read."""
        return iter(())

    def keeps_days(self, _root: Path) -> int | None:
        """Return None: the agent deletes no session by age."""
        return None


# -- values ---------------------------------------------------------------------------------


def text(value: JSON) -> str | None:
    """Return a text; None if it is none or empty."""
    return value if isinstance(value, str) and value else None


def fields(value: JSON) -> Record:
    """Return an object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def objects(value: JSON) -> list[Record]:
    """Return the objects of a list; none for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def integer_of(value: JSON) -> int | None:
    """Return a whole number, as of an exit code; None for anything else, truths among it.

    A number that nobody can store is none either.
    """
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and abs(value) < MAX_NUMBER else None


def moment(value: JSON) -> str | None:
    """Return a time as text: as it is, or from seconds or milliseconds since 1970."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return text(value)
    return text(time_text(value, per_second=1000 if abs(value) > _MILLISECONDS_ABOVE else 1))


def parse_arguments(arguments: JSON) -> JSON:
    """Return the arguments of a call, parsed if they are JSON in a text."""
    if not isinstance(arguments, str) or arguments.lstrip()[:1] not in ("{", "["):
        return arguments
    # Models write arguments that are no JSON; shown as they are.
    value = parse_json(arguments)
    return arguments if value is None else value


def usage_with_cache(
    input_tokens: JSON, output: int, *, read: JSON = 0, written: JSON = 0
) -> Usage:
    """Return a usage of a writer whose input count includes what the cache gave or took."""
    total = count(input_tokens)
    # No part is larger than the sum, whatever a log says: nothing may become negative.
    cached = min(count(read), total)
    stored = min(count(written), total - cached)
    return Usage(total - cached - stored, output, stored, cached)


def usage_beside_cache(value: JSON, names: Sequence[str]) -> Usage | None:
    """Return a usage of a writer whose input count leaves the cache out; None for no object.

    The names are those of input, output, and what the cache was given and gave.
    """
    if not isinstance(value, dict):
        return None
    return Usage(*(count(value.get(name)) for name in names))


# -- blocks ---------------------------------------------------------------------------------


def note(summary: str, payload: JSON) -> Block:
    """Return a block that no model saw."""
    return Block("lifecycle", "system", one_line(summary), payload)


def unindexed_note(summary: str, value: JSON) -> Block:
    """Return a block that no model answered and that is no use to search: prompts of the client."""
    return note(summary, {"type": "document", "content": value})


def injected_text(words: str) -> Block:
    """Return text that the harness put into the user's mouth."""
    return Block("lifecycle", "user", one_line(words), {"type": "text", "text": words})


def prompt(words: str) -> Block:
    """Return text that a human wrote."""
    return Block("user_msg", "user", one_line(words), {"type": "text", "text": words})


def answer(words: str) -> Block:
    """Return text that the model wrote."""
    return Block("assistant_msg", "assistant", one_line(words), {"type": "text", "text": words})


def thought(words: str) -> Block:
    """Return what the model thought."""
    return Block("thinking", "assistant", one_line(words), {"type": "thinking", "thinking": words})


def call(tool: str, arguments: JSON, name: str | None) -> Block:
    """Return a tool call."""
    return Block("tool_call", "assistant", "", arguments, tool, name)


def line_of(block: Block) -> str:
    """Return the line of a block that is told once more, as a note."""
    if block.kind != "tool_call":
        return block.summary
    return BUILT_IN.judge(block.tool or "", block.payload)[1]


def result(content: JSON, name: str | None, tool: str | None, *, failed: bool | None) -> Block:
    """Return the result of a tool call."""
    return Block("tool_result", "tool", one_line(text_of(content)), content, tool, name, failed)


def image(media: JSON, data: JSON) -> Record:
    """Return an image as the Messages API has it."""
    source = {"type": "base64", "media_type": word(media), "data": word(data)}
    return {"type": "image", "source": source}


def linked_image(part: Record) -> Record:
    """Return an image whose data is in its address as the Messages API has it; others as is."""
    url = word(fields(part.get("imageUrl")).get("url")) or word(part.get("url"))
    head, _, data = url.partition(";base64,")
    return image(head.removeprefix("data:"), data) if data else part


# -- files ----------------------------------------------------------------------------------


def first_records(
    path: str, head_bytes: int = HEAD_BYTES, lines: int = _MAX_HEAD_LINES
) -> list[Record]:
    """Return the first few objects of a log, whoever wrote it."""
    start = files.start_of(path, head_bytes) or b""
    # The last one may be cut, and is none then.
    return objects([parse_json(line) for line in start.split(b"\n", lines)[:lines]])


def lines_of(path: str) -> Iterator[Record]:
    """Yield the objects of a small log, such as a prompt history; damaged lines are left out."""
    for entry in decode_lines(files.chunks_of(path)):
        if isinstance(entry, RawRecord):
            yield entry.value


def is_running(pid: JSON, noted: JSON = None) -> bool:
    """Return whether a process with this number runs.

    `noted` is when its client noted the number, as text or in seconds or milliseconds since 1970: a
    process that began later has it by chance.
    """
    # To `kill`, 0 and numbers below it are groups of processes; larger ones raise.
    if not isinstance(pid, int) or isinstance(pid, bool) or not 0 < pid < 1 << 31:
        return False
    if not system.is_running(pid):
        return False
    noted_s = _seconds(noted)
    began_s = _process_start(pid) if noted_s is not None else None
    return began_s is None or noted_s is None or began_s <= noted_s + _CLOCK_SLACK_S


def _seconds(time: JSON) -> float | None:
    try:
        return datetime.fromisoformat(moment(time) or "").timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _process_start(pid: int) -> float | None:
    """Return when a process began, in seconds since 1970; None where the system does not say."""
    ticks = start_ticks(pid)
    try:
        boot_s = int(Path("/proc/stat").read_bytes().partition(b"\nbtime ")[2].split()[0])
        return None if ticks is None else boot_s + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def start_ticks(pid: int) -> int | None:
    """Return when a process began, as its system counts; None where that does not say."""
    try:
        # Field 22. The name before it may hold blanks and brackets: counted from the last bracket.
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def subfolders(folder: Path) -> list[Path]:
    """Return the folders in a folder, sorted; links are not followed, and noted."""
    return [Path(entry.path) for entry in files.folders_in(str(folder))]


def folder_above(path: Path, *names: str, steps: int = 5) -> Path | None:
    """Return the folder that holds the folder of such a name in which a file lies, some way up."""
    return next((above.parent for above in path.parents[:steps] if above.name in names), None)


def add_log(own: dict[str, File], file: File, folder: str) -> None:
    """Add a file under its key; one of another folder with the same key stands beside it."""
    key = file.key
    while key in own:
        key = f"{key}@{folder}"
    own[key] = file if key == file.key else File(file.path, key, file.channel, file.is_document)


def named_sources(adapter: str, logs: Iterable[tuple[str, str]], root: str) -> Iterator[Source]:
    """Return a session per id, from pairs of id and path; its logs are known by their names.

    Logs of one name in several folders stand beside each other.
    """
    sessions: dict[str, dict[str, File]] = {}
    for session, path in logs:
        own = sessions.setdefault(session, {})
        folder, name = os.path.split(path)
        add_log(own, File(path, name.removesuffix(".jsonl")), folder.rpartition(os.sep)[2])
    for session, own in sorted(sessions.items()):
        yield Source(adapter, session, tuple(own[key] for key in sorted(own)), root)
