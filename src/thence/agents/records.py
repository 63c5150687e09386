"""What readers of line formats share: facts with their place filled in, common block shapes.

Everything takes values of any shape and never raises.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from thence import system
from thence.agents import AgentPrompt, File, Live, Mark, Source, files
from thence.format import tools
from thence.format.codec import RawRecord
from thence.format.codec import objects as decode_lines
from thence.format.facts import Block, Fact, line_name
from thence.format.nodes import Is, Node
from thence.format.normal import one_line
from thence.format.records import JSON, Usage, count, text_of, time_text, word

Record = dict[str, JSON]

HEAD_BYTES = 64 << 10
"""How much of a file is read to recognise whose it is."""

_MAX_HEAD_LINES = 8
_CLOCK_SLACK_S = 5.0  # the time of the start of the system is rounded, and clocks are set
_MILLISECONDS_ABOVE = 10**11  # as seconds this is the year 5138


class LineReader:
    """The records of one file; each reader adds `facts`."""

    def __init__(self, source: Source, file: File, mark: Mark) -> None:
        """Continue where the mark stands."""
        self._session = source.session
        self._file = file
        self._generation = mark.generation
        self._carried: Record = mark.carry if isinstance(mark.carry, dict) else {}

    def carry(self) -> JSON:
        """Return what later records need to know: nothing, unless a reader says otherwise."""
        return None

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
    """The parts of an adapter whose agent has no list of running sessions and deletes nothing."""

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


def moment(value: JSON) -> str | None:
    """Return a time as text: as it is, or from seconds or milliseconds since 1970."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return text(value)
    return text(time_text(value, per_second=1000 if abs(value) > _MILLISECONDS_ABOVE else 1))


def parse_arguments(arguments: JSON) -> JSON:
    """Return the arguments of a call, parsed if they are JSON in a text."""
    if not isinstance(arguments, str) or arguments.lstrip()[:1] not in ("{", "["):
        return arguments
    try:
        return msgspec.json.decode(arguments)
    except (ValueError, RecursionError):
        # Models write arguments that are no JSON; shown as they are.
        return arguments


def usage_with_cache(
    input_tokens: JSON, output: int, *, read: JSON = 0, written: JSON = 0
) -> Usage:
    """Return a usage of a writer whose input count includes what the cache gave or took."""
    total = count(input_tokens)
    # No part is larger than the sum, whatever a log says: nothing may become negative.
    cached = min(count(read), total)
    stored = min(count(written), total - cached)
    return Usage(total - cached - stored, output, stored, cached)


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
    return Block("tool_call", "assistant", tools.summary(tool, arguments), arguments, tool, name)


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


def first_records(path: str) -> list[Record]:
    """Return the first few objects of a log, whoever wrote it."""
    start = files.start_of(path, HEAD_BYTES)
    if not start:
        return []
    lines = start.split(b"\n", _MAX_HEAD_LINES)
    if len(start) == HEAD_BYTES:
        lines = lines[:-1]  # the last one may be cut
    out: list[Record] = []
    for line in lines[:_MAX_HEAD_LINES]:
        try:
            value = msgspec.json.decode(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            out.append(value)
    return out


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
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
        system = Path("/proc/stat").read_bytes()
        # Field 22. The name before it may hold blanks and brackets: counted from the last bracket.
        ticks = int(status.rpartition(b")")[2].split()[19])
        boot_s = int(system.partition(b"\nbtime ")[2].split()[0])
        return boot_s + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def subfolders(folder: Path) -> list[Path]:
    """Return the folders in a folder, sorted; links are not followed, and noted."""
    return [Path(entry.path) for entry in files.folders_in(str(folder))]


def roots_of(home: Path, env: Mapping[str, str], variable: str, usual: str) -> list[Path]:
    """Return the folder that a variable names, and the usual one below the home."""
    named = env.get(variable)
    return list(dict.fromkeys([*([Path(named).expanduser()] if named else []), home / usual]))


def named_sources(adapter: str, logs: Iterable[tuple[str, str]], root: str) -> Iterator[Source]:
    """Return a session per id, from pairs of id and path; its logs are known by their names.

    Logs of one name in several folders stand beside each other.
    """
    sessions: dict[str, dict[str, File]] = {}
    for session, path in logs:
        own = sessions.setdefault(session, {})
        folder, name = os.path.split(path)
        key = name.removesuffix(".jsonl")
        while key in own:
            key = f"{key}@{Path(folder).name}"
        own[key] = File(path, key)
    for session, own in sorted(sessions.items()):
        yield Source(adapter, session, tuple(own[key] for key in sorted(own)), root)
