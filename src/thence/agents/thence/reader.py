"""Sessions of thence itself, read back by somebody who shares no code with their writer.

Only `format` is known to both: names from `layout`, lines from `codec`, old versions through
`schema`. One source is one session: all its segments, sealed or not, as one log in several files,
and the logs of its subagents, each a channel of its own. An adopted or forked session names the
event it goes on from; that becomes its base and an edge, and nothing of the ancestor is read here.

Invariants: a session is known by its file's name inside a home, by its header elsewhere. Whose a
subagent's log is that lies beside others, its header says. Of a home only `sessions`, `sidechains`,
`spill` and the history are looked at; never `audit`, which no program reads back. What was spilled
from a result is read along, by the hash that its placeholder names and verified by it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path

import msgspec

from thence.agents import AgentPrompt, Batch, Cursor, File, Mark, Source, files
from thence.agents.records import QuietAgent
from thence.format import codec, layout, schema
from thence.format.facts import Base, Block, Edge, Fact, Link, fact_of
from thence.format.records import (
    INTERNAL,
    JSON,
    Event,
    Header,
    Notice,
    Skipped,
    parse_payload,
    word,
)
from thence.format.spills import Spilled, note, spilled_in

HOME_VARIABLE = "THENCE_HOME"

MAX_SPILL_BYTES = 4 << 20
"""Bytes that a spilled output may have to be kept with its result."""

MAX_SPILL_BYTES_PER_LOG = 64 << 20
"""The same of all that one log names, whatever files they are: a log may name one for ever."""

MAX_LOST_SPILLS = 100
"""Side files that were not found, after which no other folder is searched: a log may name any."""

_PROJECT = re.compile(r"(?:[a-z0-9-]{1,40}-)?[0-9a-f]{12}")
_HEAD_BYTES = 1 << 20  # bytes in which the first record of a log is looked for


class Native(QuietAgent):
    """The reader."""

    name = "thence"
    looks_for = "sessions/*/ID.jsonl"

    def roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """Name the one home; what is kept inside projects is found by path."""
        configured = env.get(HOME_VARIABLE, "").strip()
        return [Path(configured) if configured else home / ".thence"]

    def find(self, root: Path) -> Iterator[Source]:
        """Find the sessions of a home, and those kept in this folder itself."""
        for project in _folders(str(root / layout.SESSIONS)):
            for session, parts in _sessions_in(project).items():
                yield self._source(session, parts, _child_logs(root, session), root)
        yield from self.find_local(root)

    def find_local(self, root: Path) -> Iterator[Source]:
        """Find the sessions that a project keeps with itself."""
        sessions = _sessions_in(str(root / layout.LOCAL_SESSIONS))
        owned: dict[str, list[str]] = {}
        for path in _logs(str(root / layout.LOCAL_SIDECHAINS)) if sessions else ():
            owned.setdefault(_look(path).session or "", []).append(path)
        for session, parts in sessions.items():
            yield self._source(session, parts, owned.get(session, []), root)

    def _source(
        self, session: str, parts: Mapping[int, str], children: Iterable[str], root: Path
    ) -> Source:
        # Nine digits, so that names sort by age; "/" comes after ".", so that subagents come last.
        own = [File(path, _key(session, number)) for number, path in sorted(parts.items())]
        agents = [(Path(path).name.removesuffix(".jsonl"), path) for path in children]
        side = [File(path, f"{session}/{agent}", agent) for agent, path in sorted(agents)]
        return Source(self.name, session, (*own, *side), str(root))

    def at(self, path: Path) -> Source | None:
        """Return the session of a segment or of a subagent's log, wherever it lies."""
        path = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links
        folder, above = path.parent, path.parent.parent
        if folder.name == layout.SIDECHAINS:
            return self._of(path.name, above)
        seen = _look(str(path))
        if not seen.regular or seen.foreign:
            return None
        if above.name == layout.SIDECHAINS:
            return self._of(folder.name, above.parent)
        if folder.name == layout.LOCAL_SIDECHAINS:
            return self._of(seen.session, above)
        segment = layout.segment_of(path.name)
        if segment is not None and folder.name == layout.LOCAL_SESSIONS:
            return self._of(segment.session, above)
        if (
            segment is not None
            and above.name == layout.SESSIONS
            and _PROJECT.fullmatch(folder.name)
        ):
            return self._of(segment.session, above.parent)
        return self._stray(path, seen) if seen.ours else None

    def _of(self, session: str | None, root: Path) -> Source | None:
        """Return one session of a home or a project; one that only subagents are left of, too."""
        if session is None or not layout.is_id(session):
            return None
        for source in self.find(root):
            if source.session == session:
                return source
        children = [path for path in _child_logs(root, session) if _look(path).ours]
        return self._source(session, {}, children, root) if children else None

    def _stray(self, path: Path, seen: _Look) -> Source:
        """Return a session that lies anywhere, with those of its segments that lie beside it."""
        segment = layout.segment_of(path.name)
        parts = _sessions_in(str(path.parent)).get(segment.session) if segment else None
        session = seen.session or (segment.session if segment else path.stem)
        return self._source(session, parts or {1: str(path)}, (), path.parent)

    def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
        """Read what is new since the cursor."""
        skipped: list[Skipped] = []
        notices: list[Notice] = []

        spills = _Spills(source)

        def open_events(_: Source, file: File, mark: Mark) -> _Events:
            return _Events(file, mark, skipped, notices, spills)

        batch = files.read(source, cursor, open_events, is_record=codec.is_event)
        batch.skipped += skipped
        batch.notices += notices
        return batch

    def prompts(self, root: Path) -> Iterator[AgentPrompt]:
        """Yield the history, the files that were rolled over first."""
        numbers = [layout.rollover_of(name) for name in _names(str(root))]
        for number in sorted((n for n in numbers if n is not None), reverse=True):
            yield from _prompts(str(root / layout.rollover(number)))


# -- names ----------------------------------------------------------------------------------


def _key(session: str, number: int) -> str:
    return f"{session}.{number:09d}"


def _names(folder: str, *, folders: bool = False) -> list[str]:
    """Names of the regular files, or of the folders, in a folder; links are neither."""
    return [
        entry.name
        for entry in files.entries_in(folder)
        if (entry.is_dir if folders else entry.is_file)(follow_symlinks=False)
    ]


def _folders(folder: str) -> list[str]:
    return [f"{folder}/{name}" for name in _names(folder, folders=True)]


def _sessions_in(folder: str) -> dict[str, dict[int, str]]:
    """The segments of all sessions in a folder; of a sealed one and its original the latter."""
    sessions: dict[str, dict[int, str]] = {}
    for name in _names(folder):
        segment = layout.segment_of(name)
        if segment is not None:
            parts = sessions.setdefault(segment.session, {})
            if segment.number not in parts or not segment.sealed:
                parts[segment.number] = f"{folder}/{name}"
    return sessions


def _logs(folder: str) -> list[str]:
    return [f"{folder}/{name}" for name in _names(folder) if name.endswith(".jsonl")]


def _child_logs(root: Path, session: str) -> list[str]:
    return _logs(str(root / layout.SIDECHAINS / session))


class _Look(msgspec.Struct, frozen=True):
    """What the first bytes of a file tell: whether it is a log of ours, and whose."""

    regular: bool = False
    ours: bool = False
    foreign: bool = False
    session: str | None = None


def _look(path: str) -> _Look:
    """Look at the first record of a file. One that holds none is nobody's yet."""
    start = files.start_of(path, _HEAD_BYTES)
    if start is None:
        return _Look()
    for entry in codec.objects(start, is_record=codec.is_event):
        if isinstance(entry, Skipped):
            continue
        event = codec.event_of(entry.value)
        if event is None:
            return _Look(regular=True, foreign=True)
        session = event.fields.get("session_id") if event.type == "header" else None
        known = isinstance(session, str) and layout.is_id(session)
        return _Look(regular=True, ours=True, session=session if known else None)
    return _Look(regular=True)


# -- side files -----------------------------------------------------------------------------


class _Spills:
    """The side files of a session's results, which lie in the folder of its oldest ancestor.

    They are known by their hash, so that whichever folder has one has the right one.
    """

    def __init__(self, source: Source) -> None:
        self._folder = f"{source.root}/{_spill_folder(source)}" if source.root else ""
        self._last = f"{self._folder}/{source.session}"  # where the last one was found
        self._lost: set[str] = set()

    def load(self, spilled: Spilled, limit: int) -> bytes | None:
        """Read what a placeholder stands for; None when it is not there, too large or damaged."""
        if not self._folder or spilled.size > limit or spilled.name in self._lost:
            return None
        others = _folders(self._folder) if len(self._lost) < MAX_LOST_SPILLS else ()
        for folder in (self._last, *others):
            if os.path.islink(folder):  # noqa: PTH114 - paths are texts here
                continue
            data = files.read_small(f"{folder}/{spilled.name}", limit)
            if data is not None and sha256(data).hexdigest() == spilled.hash:
                self._last = folder
                return data
        self._lost.add(spilled.name)
        return None


def _spill_folder(source: Source) -> str:
    """Return where the side files of a session are, below its root: a project has its own."""
    is_local = any(
        os.path.basename(os.path.dirname(file.path)) in _LOCAL  # noqa: PTH119, PTH120 - texts here
        for file in source.files
    )
    return layout.LOCAL_SPILL if is_local else layout.SPILL


_LOCAL = (layout.LOCAL_SESSIONS, layout.LOCAL_SIDECHAINS)


# -- records --------------------------------------------------------------------------------


class _Events:
    """The events of one file. What it carries is the version its first record stated."""

    def __init__(
        self,
        file: File,
        mark: Mark,
        skipped: list[Skipped],
        notices: list[Notice],
        spills: _Spills,
    ) -> None:
        self._file = file
        self._generation = mark.generation
        self._skipped = skipped
        self._notices = notices
        self._spills = spills
        carried = mark.carry if isinstance(mark.carry, list) else [mark.carry, 0]
        self._version, self._spilled = (n if isinstance(n, int) else 0 for n in carried[:2])
        self._upcast = schema.upcaster(self._version) if self._version else None

    def carry(self) -> JSON:
        """The version, and how much was spilled so far; nothing before the first record."""
        return [self._version, self._spilled] if self._spilled else self._version or None

    def facts(self, entry: codec.RawRecord) -> tuple[Fact, ...]:
        """Return the fact of one event. An object that is no event is reported as skipped."""
        if not self._version:
            self._begin(entry.value)
        place = entry.place
        event = codec.event_of(self._upcast(entry.value) if self._upcast else entry.value)
        if event is None:
            position = (place.line, place.offset, place.length, codec.NOT_EVENT)
            self._skipped.append(Skipped(*position, source=self._file.path))
            return ()
        more = self._more(event) if event.type in _TELLING and self._is_main else {}
        fact = fact_of(
            event,
            channel=self._file.channel,
            file=self._file.key,
            generation=self._generation,
            line=place.line,
            offset=place.offset,
            **more,
        )
        beside = self._notes(event) if event.type not in _WITHOUT_RESULTS else ()
        return (msgspec.structs.replace(fact, blocks=(*fact.blocks, *beside)) if beside else fact,)

    def _notes(self, event: Event) -> tuple[Block, ...]:
        """Return what was spilled from the results of a record, each as a note beside it."""
        out: list[Block] = []
        for result in _results(event.fields):
            for spilled in spilled_in(result.get("content")):
                data = self._spills.load(
                    spilled, min(MAX_SPILL_BYTES, MAX_SPILL_BYTES_PER_LOG - self._spilled)
                )
                if data is not None:
                    self._spilled += len(data)
                    out.append(note(spilled, data, word(result.get("tool_use_id")) or None))
        return tuple(out)

    @property
    def _is_main(self) -> bool:
        return self._file.channel == "main"

    def _begin(self, value: dict[str, JSON]) -> None:
        """Learn the version from the first record; guess it when that is no header."""
        if value.get("type") == "header":
            self._version = schema.version_of(value)
            notice = schema.notice(self._version)
        else:
            self._version = schema.guess(value)
            notice = Notice("no header", self._file.path)
        if notice is not None:
            self._notices.append(notice)
        self._upcast = schema.upcaster(self._version)

    def _more(self, event: Event) -> dict[str, JSON]:
        """Return what an event says of its session, as fields of a fact."""
        if event.type == "header":
            return _header_fields(event)
        names = _TELLING[event.type]
        fields = {ours: event.fields.get(theirs) for ours, theirs in names.items()}
        return {"about": {name: value for name, value in fields.items() if _is_text(value)}}


_TELLING: dict[str, dict[str, str]] = {
    "header": {},
    "turn": {"title:custom": "title", "git_branch": "branch", "model": "model"},
    "worktree": {"git_branch": "branch"},
    "model": {"model": "model"},
    "cwd": {"cwd": "cwd"},
}
"""Events that tell something of the session, and by which names."""


_WITHOUT_RESULTS = INTERNAL | {"assistant"}


def _results(fields: Mapping[str, JSON]) -> list[Mapping[str, JSON]]:
    """Return the results of tools in a record: blocks of its content, or the record itself."""
    if fields.get("type") == "tool_result":
        return [fields]
    content = fields.get("content")
    blocks = content if isinstance(content, list) else []
    return [b for b in blocks if isinstance(b, dict) and b.get("type") == "tool_result"]


def _is_text(value: JSON) -> bool:
    return isinstance(value, str) and bool(value)


def _header_fields(event: Event) -> dict[str, JSON]:
    """Read a header: where the session began, and what it goes on from."""
    header = parse_payload(event)
    if not isinstance(header, Header):
        return {}
    fields = {"cwd": header.cwd, "model": header.model, "schema_version": header.schema_version}
    out: dict[str, JSON] = {"about": {name: value for name, value in fields.items() if value}}
    origin = header.resumed_from
    if origin is not None:
        number = origin.segment or 1
        # Offsets count from the start of the session: only in its first segment that is known.
        known = number == 1 and origin.offset is not None and origin.length is not None
        offset = (origin.offset or 0) + (origin.length or 0) if known else None
        out["base"] = Base(
            _key(origin.session, number),
            offset=offset,
            session=origin.session,
            event=origin.event,
        )
        link: Link = "adopt" if origin.event is not None else "resume"
        out["edges"] = (Edge(link, origin.session, "header.resumed_from", origin.event),)
    return out


# -- the history ----------------------------------------------------------------------------


class _Line(msgspec.Struct, frozen=True, tag_field="type", tag="prompt"):
    """A line of the history."""

    prompt: str
    ts: str | None = None
    session_id: str | None = None
    project: str | None = None


def _prompts(path: str) -> Iterator[AgentPrompt]:
    for entry in codec.objects(files.chunks_of(path), is_record=lambda _: False):
        if isinstance(entry, Skipped):
            continue
        try:
            line = msgspec.convert(entry.value, _Line)
        except ValueError:
            continue
        yield AgentPrompt(line.prompt, line.ts, line.session_id, line.project)
