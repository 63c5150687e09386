"""What every agent must stand, ours and other people's: its reader, and whatever else it offers.

    suite = AgentSuite(Agent("mine", PROFILE), write)   # or the reader alone: MyReader()
    assert [] == suite.complaints()                     # or one check by its name, see CHECKS

`write(root)` puts sample sessions under a folder.

The suite copies the samples and does to the copies what happens to logs: they grow by lines and
by bytes, are torn, rewritten and moved, hold garbage and lies. After each it reads them and says
in words what should not be: an event that came or went, a line that nobody told of, a source that
was touched. Chance follows from a seed. An error that the agent raises is a complaint, too: it
names the line of the agent's code.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, wraps
from pathlib import Path

import msgspec

from thence.agents import Adapter, AgentPrompt, Batch, Cursor, File, Live, Source
from thence.agents.profiles import Agent, Profile
from thence.agents.sessions import read_all
from thence.format.facts import Fact
from thence.format.normal import SessionEvent
from thence.format.records import JSON, parse_json
from thence.format.session_graph import REWRITTEN, SessionGraph
from thence.memory.readouts import readout_of
from thence.memory.watching import SUFFIXES
from thence.testing import meanings, offers, rows

Write = Callable[[Path], object]

CHECKS = (
    "protocol",
    "finding",
    "values",
    "records",
    "roles",
    "calls",
    "bills",
    "channels",
    "reading_twice",
    "growing_by_lines",
    "growing_by_bytes",
    "growing_by_writes",
    "any_order",
    "every_line",
    "torn_tails",
    "rewriting",
    "mending",
    "damaged_documents",
    "moving",
    "hostile_lines",
    "hostile_values",
    "no_trace",
    "labelling",
    "resuming",
    "tool_forms",
    "settings",
    "handing_over",
    "made_up",
)
"""The checks, each a method that gives its complaints. Those of parts that an agent does not have
have none."""

_BAD = (
    b"",
    b" ",
    b"\0" * 40,
    b"\xff\xfe",
    b"not json",
    b"[1, 2]",
    b"null",
    b'{"half": ',
    b"{}",
    b'{"type": "of the future", "n": [[[]]]}',
    b"{" * 3000,
)

_LIES: tuple[JSON, ...] = (
    None,
    True,
    -1,
    2**70,
    1e300,
    "",
    "\0\x1b[2J",
    "\ud800",
    "../../../etc/passwd",
    "/dev/zero",
    "x" * 5000,
    [],
    [[[]]],
    {},
    {"type": {"type": []}, "id": 7, "content": 7},
)


PROTOCOL = ("name", "roots", "find", "at", "read", "live", "prompts", "keeps_days")


def _of_facts(check: Callable[[meanings.Reading], Iterator[str]]) -> Callable[..., Iterator[str]]:
    """Return a check of what the facts of each session mean as a method."""

    @wraps(check)
    def method(self: AgentSuite) -> Iterator[str]:
        for source in self._each():
            events, batch = read_all(self.adapter, source)
            yield from check(meanings.Reading(self.agent, source, events, batch))

    return method


def _of_agent(check: Callable[[Agent], Iterator[str]]) -> Callable[..., Iterator[str]]:
    """Return a check of what an agent offers as a method."""

    @wraps(check)
    def method(self: AgentSuite) -> Iterator[str]:
        return check(self.agent)

    return method


class AgentSuite:
    """An agent, or its reader alone, and sample sessions."""

    def __init__(
        self,
        agent: Agent | Adapter,
        write: Write,
        *,
        seed: int = 0,
        rounds: int = 60,
        bytewise: int = 4096,
        mirrors: Sequence[str] = (),
        folder: Path | None = None,
    ) -> None:
        """Take an agent and what writes samples of its logs.

        `rounds` is how often chance is tried, `bytewise` up to which size of a log it grows byte
        by byte (larger ones in as many steps). `mirrors` are names of files that only repeat
        what stands in others: of them not every line has to be told. A `write` that yields after
        each step of a client shows how documents come to be, which are written anew each time.
        """
        if not isinstance(agent, Agent):
            name = getattr(agent, "name", "")
            agent = Agent(name, Profile(label=name), reader=agent)
        self.agent = agent
        self._write = write
        self._seed = seed
        self._rounds = rounds
        self._bytewise = bytewise
        self._mirrors = mirrors
        self._folder = folder

    def complaints(self, *checks: str) -> list[str]:
        """Run some checks, or all, and say what should not be."""
        out: list[str] = []
        raised: set[str] = set()
        for name in checks or CHECKS:
            check: Callable[[], Iterator[str]] = getattr(self, name)
            try:
                out.extend(f"{name}: {complaint}" for complaint in check())
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - somebody else's code, which may do anything
                words = meanings.error_text(error)
                out += [] if words in raised else [f"{name}: {words}"]
                raised.add(words)
        return out

    @cached_property
    def adapter(self) -> Adapter:
        """The reader, loaded by the first check."""
        return self.agent.reader

    @contextmanager
    def _samples(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            root = Path(folder).resolve() / "root"
            root.mkdir()
            for _ in self._steps(root):
                pass
            yield root

    def _steps(self, root: Path) -> Iterator[None]:
        """Write the samples, a step at a time if they come in steps."""
        made = self._write(root)
        if isinstance(made, Iterator):
            yield from made
        yield None

    def _sessions(self, root: Path) -> list[Source]:
        return sorted(self.adapter.find(root), key=lambda source: source.uid)

    def _each(self) -> Iterator[Source]:
        """Yield the sessions of the samples, which are there until the last was taken."""
        with self._samples() as root:
            yield from self._sessions(root)

    def _load(self, source: Source) -> SessionGraph:
        events, batch = read_all(self.adapter, source)
        return SessionGraph(source.uid, events, torn=batch.torn)

    # -- what it is ---------------------------------------------------------------------

    def protocol(self) -> Iterator[str]:
        """It has every method, and none of them minds a folder that is not there."""
        adapter, anything = self.adapter, [self.adapter]
        if not all(isinstance(candidate, Adapter) for candidate in anything):
            missing = [name for name in PROTOCOL if not hasattr(adapter, name)]
            yield f"of the protocol is missing: {', '.join(missing)}"
            return
        if not adapter.name or ":" in adapter.name:
            yield f"{adapter.name!r} is no name: it stands before the colon of a session's uid"
        with self._samples() as root:
            nowhere = root / "nowhere"
            roots = adapter.roots(nowhere, {})
            if not roots or not all(isinstance(path, Path) for path in roots):
                yield "roots() names no folder without an environment"
            for path in (nowhere, *roots):
                if any(adapter.find(path)) or any(adapter.prompts(path)):
                    yield f"something was found in {path}, which is not there"
                list(adapter.live(path))
                adapter.keeps_days(path)
            if adapter.at(nowhere) is not None:
                yield "at() takes a path that is not there for a session"
            yield from self._check_types(root)

    def _check_types(self, root: Path) -> Iterator[str]:
        """Say which method gives something else than it should."""
        adapter = self.adapter
        results: list[tuple[str, object, type]] = [
            *(("live()", item, Live) for item in adapter.live(root)),
            *(("prompts()", item, AgentPrompt) for item in adapter.prompts(root)),
        ]
        for source in adapter.find(root):
            results.append(("find()", source, Source))
            if isinstance(source, Source):
                batch = adapter.read(source)
                results.append(("read()", batch, Batch))
                if isinstance(batch, Batch):
                    results += [("read()", fact, Fact) for fact in batch.events]
        if (days := adapter.keeps_days(root)) is not None:
            results.append(("keeps_days()", days, int))
        for method, item, kind in results:
            if not isinstance(item, kind):
                yield f"{method} gives {type(item).__name__}, not {kind.__name__}"
                return

    def finding(self) -> Iterator[str]:
        """All sessions are found, each once, and every log leads to its own."""
        with self._samples() as root:
            sources = self._sessions(root)
            if not sources:
                yield "find() gives no session of the samples"
            if sources != self._sessions(root):
                yield "find() gives something else the second time"
            for uid, times in Counter(source.uid for source in sources).items():
                if times > 1:
                    yield f"{uid} is found {times} times"
            for source in sources:
                yield from self._check_source(source)
                yield from self._check_root(source, root)

    def _check_source(self, source: Source) -> Iterator[str]:
        keys = [file.key for file in source.files]
        if source.adapter != self.adapter.name:
            yield f"{source.uid} is not under the adapter's name"
        if not keys or len(keys) != len(set(keys)) or "" in keys:
            yield f"{source.uid} has files without a key of their own"
        endings = (*SUFFIXES, *self.agent.profile.file_endings)
        paths = [path for file in source.files for path in (file.path, *file.beside)]
        is_watched = any(path.endswith(endings) for path in paths)
        if self.agent.profile.reader and not is_watched:  # a reader alone names none
            yield f"{source.uid} is not watched: file_endings does not name its files"
        for file in _logs(source):
            if self.adapter.at(Path(file.path)) != source:
                yield f"at() does not lead from {_name(file)} to {source.uid}"

    def _check_root(self, source: Source, root: Path) -> Iterator[str]:
        """Say where the last field of a source is not the folder that `find` was asked for."""
        profile = self.agent.profile
        if Path(source.root) != root and not profile.home_file:  # that names a file anywhere
            where = os.path.relpath(source.root, root) if source.root else "empty"
            yield f"{source.uid}: Source.root is not the folder that find() was given, but {where}"
            if profile.home_variable:
                home = profile.home_of(Path(source.root)).replace(str(root), "HOME")
                yield f"{source.uid}: thence resume shows {profile.home_variable}={home}"

    # -- what its facts mean, and what else it offers -----------------------------------

    values = _of_facts(meanings.values)
    records = _of_facts(meanings.records)
    roles = _of_facts(meanings.roles)
    calls = _of_facts(meanings.calls)
    bills = _of_facts(meanings.bills)
    channels = _of_facts(meanings.channels)
    labelling = _of_agent(offers.labelling)
    resuming = _of_agent(offers.resuming)
    tool_forms = _of_agent(offers.tool_forms)
    settings = _of_agent(offers.settings)
    handing_over = _of_agent(offers.handing_over)
    made_up = _of_agent(offers.made_up)

    # -- growing ------------------------------------------------------------------------

    def reading_twice(self) -> Iterator[str]:
        """What has not changed is not read again."""
        for source in self._each():
            _, first = read_all(self.adapter, source)
            if not self.adapter.read(source, first.cursor).done:
                yield f"{source.uid}: at its end read() says that there is more to read"
            again = self.adapter.read(source, _round_trip(first.cursor))
            if again.lines or again.bytes or again.events or not again.done:
                yield f"{source.uid}: {again.lines} lines were read again"
            if not first.lines:
                yield f"{source.uid}: the sample holds no line"

    def growing_by_lines(self) -> Iterator[str]:
        """Read after every line, in any order of the files, it is the session read at once."""
        yield from self._grow_in_pieces(lambda data: data.splitlines(keepends=True))

    def growing_by_bytes(self) -> Iterator[str]:
        """Read after every byte, it is the session read at once."""

        def pieces(data: bytes) -> list[bytes]:
            step = max(1, -(-len(data) // self._bytewise))
            return [data[at : at + step] for at in range(0, len(data), step)]

        yield from self._grow_in_pieces(pieces)

    def _grow_in_pieces(self, pieces: Callable[[bytes], list[bytes]]) -> Iterator[str]:
        chance = random.Random(self._seed)  # noqa: S311 - an order to write in, no secret
        for source in self._each():
            logs = [file for file in _logs(source) if not file.path.endswith(".zst")]
            once = self._load(source)
            left = {file.path: pieces(Path(file.path).read_bytes()) for file in logs}
            for path in left:
                Path(path).write_bytes(b"")
            events, cursor = self._read(source, None)
            while left:
                path = chance.choice(sorted(left))
                with Path(path).open("ab") as file:
                    file.write(left[path].pop(0))
                left = {name: rest for name, rest in left.items() if rest}
                more, cursor = self._read(source, cursor)
                events += more
            yield from _differences(source.uid, once, SessionGraph(source.uid, events))

    def _read(self, source: Source, cursor: Cursor | None) -> tuple[list[Fact], Cursor]:
        """Read all that is new; the cursor goes through JSON, as in a store."""
        events: list[Fact] = []
        while True:
            batch = self.adapter.read(source, cursor)
            events += batch.events
            before, cursor = cursor, _round_trip(batch.cursor)
            if batch.done or before == cursor:
                return events, cursor

    def growing_by_writes(self) -> Iterator[str]:
        """Read after every step of its client, it is the session read at once, and what it lost."""
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            root = Path(folder).resolve()
            events: dict[str, list[Fact]] = {}
            cursors: dict[str, Cursor] = {}
            for _ in self._steps(root):
                for source in self._sessions(root):
                    more, cursors[source.uid] = self._read(source, cursors.get(source.uid))
                    events.setdefault(source.uid, []).extend(more)
            for source in self._sessions(root):
                once, grown = self._load(source), SessionGraph(source.uid, events[source.uid])
                if _current_events(once) != _current_events(grown):
                    yield f"{source.uid}: other events than when read at once"
                if once.about != grown.about:
                    yield f"{source.uid}: it says something else of itself than when read at once"
                has_lost = any(event.why == REWRITTEN for event in grown.events)
                if once.spent.own > grown.spent.own or (
                    once.spent.own != grown.spent.own and not has_lost
                ):
                    yield f"{source.uid}: {grown.spent.own} tokens, at once {once.spent.own}"

    def any_order(self) -> Iterator[str]:
        """Facts in any order, and files in any order, are the same session."""
        chance = random.Random(self._seed)  # noqa: S311 - an order, no secret
        for source in self._each():
            once = self._load(source)
            turned = msgspec.structs.replace(source, files=source.files[::-1])
            yield from _differences(f"{source.uid} turned round", once, self._load(turned))
            events, _ = read_all(self.adapter, source)
            lines: dict[tuple[str, int], list[Fact]] = {}  # what one line gave stays together
            for fact in events:
                lines.setdefault((fact.file, fact.line), []).append(fact)
            for _ in range(3):
                groups = list(lines.values())
                chance.shuffle(groups)
                mixed = SessionGraph(source.uid, [fact for group in groups for fact in group])
                yield from _differences(f"{source.uid} shuffled", once, mixed)

    # -- damage -------------------------------------------------------------------------

    def every_line(self) -> Iterator[str]:
        """A line is an event, blank, told as skipped, or a last one that was cut short."""
        for source in self._each():
            self._insert(source, b'{"type": "of the future"}', b"not json", b"", b"[]")
            events, batch = read_all(self.adapter, source)
            reported = {(fact.file, fact.line) for fact in events if fact.blocks}
            marks = batch.cursor.marks
            reported |= {(key, mark.line) for key, mark in marks.items() if mark.torn}
            for file in _logs(source):
                if _name(file) in self._mirrors:
                    continue
                reported |= {(file.key, s.line) for s in batch.skipped if s.source == file.path}
                silent = [n for n in _lines(file) if (file.key, n) not in reported]
                if silent:
                    yield f"{_name(file)}: nobody tells of lines {silent[:5]}"

    def _insert(self, source: Source, *more: bytes) -> None:
        """Put further lines into the middle of each log."""
        for file in _logs(source):
            lines = _content(file)
            middle = len(lines) // 2
            _put(file, [*lines[:middle], *(line + b"\n" for line in more), *lines[middle:]])

    def torn_tails(self) -> Iterator[str]:
        """A log that was cut anywhere holds what its whole lines hold, and grows whole again."""
        chance = random.Random(self._seed)  # noqa: S311 - places to cut at, no secret
        for source in self._each():
            once = self._load(source)
            for file in _logs(source):
                lines = _content(file)
                data = b"".join(lines)
                if file.path.endswith(".zst") or not data:
                    continue
                cut = chance.randrange(len(data))
                _put(file, [data[:cut]])
                events, cursor = self._read(source, None)
                _put(file, [data])
                more, _ = self._read(source, cursor)
                again = SessionGraph(source.uid, [*events, *more])
                yield from _differences(f"{_name(file)} cut at {cut}", once, again)

    def mending(self) -> Iterator[str]:
        """What stands behind half a record in one line is read all the same."""
        for source in self._each():
            for file in _logs(source):
                lines = _content(file)
                places = [at for at, line in enumerate(lines) if line.startswith(b"{")][:9]
                if not places or _name(file) in self._mirrors:
                    continue
                if not any(self._is_mended(source, file, lines, at) for at in places):
                    yield (
                        f"{_name(file)}: no record is read behind half of another:"
                        " is_record of files.read refuses all records of the sample"
                    )
                _put(file, lines)

    def _is_mended(self, source: Source, file: File, lines: list[bytes], at: int) -> bool:
        _put(file, [*lines[:at], b'{"half": "of a rec' + lines[at], *lines[at + 1 :]])
        events, _ = read_all(self.adapter, source)
        return any(fact.line == at + 1 and fact.file == file.key for fact in events)

    def rewriting(self) -> Iterator[str]:
        """What a rewritten log no longer holds stays, dead; what it still holds is the same."""
        for source in self._each():
            for file in _logs(source):
                yield from self._rewrite_log(source, file)
            for path in _databases(source):
                yield from self._rows_replaced(source, path)

    def _rewrite_log(self, source: Source, file: File) -> Iterator[str]:
        lines = _content(file)
        events, cursor = self._read(source, None)
        first = _ids(SessionGraph(source.uid, events))
        for state in (lines[:-1], [b"\n", *lines[1:]], lines):
            _put(file, state)
            more, cursor = self._read(source, cursor)
            events += more
        last = SessionGraph(source.uid, events)
        if first - _ids(last):
            yield f"{_name(file)}: {len(first - _ids(last))} events vanished in a rewrite"
        if _ids(last) - first:
            yield f"{_name(file)}: {len(_ids(last) - first)} events got another id in a rewrite"
        if any(event.why == REWRITTEN for event in last.events):
            yield f"{_name(file)}: events that are there again are still told as rewritten"

    def _rows_replaced(self, source: Source, path: Path) -> Iterator[str]:
        """Delete the last rows of each table, and put them back."""
        events, cursor = self._read(source, None)
        first = _ids(SessionGraph(source.uid, events))
        data = path.read_bytes()
        with rows.open_for_change(path) as database:
            rows.delete_last(database)
        more, cursor = self._read(source, cursor)
        path.write_bytes(data)
        again, _ = self._read(source, cursor)
        lost = first - _ids(SessionGraph(source.uid, [*events, *more, *again]))
        if lost:
            yield f"{path.name}: {len(lost)} events vanished with their rows"

    def damaged_documents(self) -> Iterator[str]:
        """A document that is half written, or makes no sense, changes nothing of what was read."""
        chance = random.Random(self._seed)  # noqa: S311 - places to cut at, no secret
        for source in self._each():
            for file in (file for file in source.files if file.is_document):
                (data,) = _content(file)
                cuts = [data[: chance.randrange(len(data))] for _ in range(3)]
                events, cursor = self._read(source, None)
                first = SessionGraph(source.uid, events)
                for damaged in (*cuts, *_BAD, b"{}", data):
                    _put(file, [damaged])
                    more, cursor = self._read(source, cursor)
                    events += more
                    if _ids(first) - _ids(SessionGraph(source.uid, events)):
                        yield f"{_name(file)}: {damaged[:20]!r} cost events"
                yield from _differences(_name(file), first, SessionGraph(source.uid, events))

    def moving(self) -> Iterator[str]:
        """In another place, and read with the old cursor, it is the same session."""
        with self._samples() as root:
            before = {source.uid: source for source in self._sessions(root)}
            read = {uid: self._read(source, None) for uid, source in before.items()}
            away = root.with_name("elsewhere")
            root.rename(away)
            after = {source.uid: source for source in self._sessions(away)}
            if before.keys() != after.keys():
                yield f"other sessions after the move: {sorted(before.keys() ^ after.keys())}"
            for uid in before.keys() & after.keys():
                events, cursor = read[uid]
                more, _ = self._read(after[uid], cursor)
                if more:
                    yield f"{uid}: {len(more)} facts were read again after the move"
                yield from _differences(uid, SessionGraph(uid, events), self._load(after[uid]))

    def hostile_lines(self) -> Iterator[str]:
        """Garbage costs itself: everything else is there, and nothing raises."""
        chance = random.Random(self._seed)  # noqa: S311 - garbage, no secret
        for source in self._each():
            known = _ids(self._load(source))
            for file in _logs(source):
                lines = _content(file)
                for _ in range(max(1, self._rounds // 10)):
                    bad = [chance.choice(_BAD) + b"\n" for _ in range(4)]
                    mixed = [*lines]
                    for line in bad:
                        mixed.insert(chance.randrange(1, len(mixed) + 1), line)
                    _put(file, mixed)
                    lost = known - _ids(_use_all(self._load(source)))
                    if lost:
                        yield f"{_name(file)}: garbage between lines cost {len(lost)} events"
                _put(file, lines)

    def hostile_values(self) -> Iterator[str]:
        """Whatever stands in a field, of whatever type, nothing raises."""
        chance = random.Random(self._seed)  # noqa: S311 - lies, no secret
        with self._samples() as root:
            for source in self._sessions(root):
                for path in _databases(source):
                    self._lied_rows(root, source, path, chance)
                for file in source.files:
                    if file.rows is not None:
                        continue
                    lines = _content(file)
                    for _ in range(self._rounds):
                        lied = [_lie_in(line, chance) for line in lines]
                        _put(file, lied)
                        _use_all(self._load(source))
                        for again in self.adapter.find(root):
                            self.adapter.at(Path(again.path))
                    _put(file, lines)
        yield from ()

    def _lied_rows(self, root: Path, source: Source, path: Path, chance: random.Random) -> None:
        """Put something unexpected in a cell, or in the JSON of one, again and again."""
        data = path.read_bytes()
        for _ in range(self._rounds):
            with rows.open_for_change(path) as database:
                rows.lie(database, chance, _LIES, lambda cell: _lie_in(cell, chance).rstrip(b"\n"))
            _use_all(self._load(source))
            for again in self.adapter.find(root):
                self.adapter.at(Path(again.path))
            path.write_bytes(data)

    def no_trace(self) -> Iterator[str]:
        """Bytes, times and modes are as they were, and nothing was left behind."""
        with self._samples() as root:
            before = _state(root)
            for source in self._sessions(root):
                _use_all(self._load(source))
                self.adapter.at(Path(source.path))
            list(self.adapter.live(root))
            list(self.adapter.prompts(root))
            self.adapter.keeps_days(root)
            after = _state(root)
            for path in sorted(before.keys() | after.keys()):
                if before.get(path) != after.get(path):
                    yield f"{path} was touched"


# -- sessions -------------------------------------------------------------------------------


AdapterSuite = AgentSuite
"""Its earlier name."""


def _logs(source: Source) -> list[File]:
    return [file for file in source.files if not file.is_document and file.rows is None]


def _databases(source: Source) -> list[Path]:
    """Return the files of a session that are databases, each once."""
    paths = (file.path for file in source.files if file.rows is not None)
    return [Path(path) for path in dict.fromkeys(paths)]


def _name(file: File) -> str:
    return Path(file.path).name


def _round_trip(cursor: Cursor) -> Cursor:
    return msgspec.json.decode(msgspec.json.encode(cursor), type=Cursor)


def _ids(session: SessionGraph) -> set[int]:
    return {event.event_id for event in session.events}


def _current_events(session: SessionGraph) -> list[SessionEvent]:
    """Return the events of a session as its files have them now, without book-keeping."""
    return [e for e in session.events if e.why != REWRITTEN and e.role != "system"]


def _use_all(session: SessionGraph) -> SessionGraph:
    """Ask a session for everything."""
    _ = (
        session.derived,
        session.spent,
        session.unbilled,
        session.title,
        session.edges,
        session.turn(),
    )
    readout_of(session).messages()
    session.session()
    return session


def _differences(what: str, expected: SessionGraph, actual: SessionGraph) -> Iterator[str]:
    """Say in what two readings of one session differ."""
    if expected.events == actual.events and expected.about == actual.about:
        return
    lost, more = _ids(expected) - _ids(actual), _ids(actual) - _ids(expected)
    difference = f"{len(lost)} events missing, {len(more)} too many"
    if not lost and not more:
        names = [
            mine.native_id
            for mine, theirs in zip(expected.events, actual.events, strict=True)
            if mine != theirs
        ]
        difference = f"the same events, but differently read or ordered: {names[:3]}"
    yield f"{what}: {difference}"


# -- files ----------------------------------------------------------------------------------


def _content(file: File) -> list[bytes]:
    data = Path(file.path).read_bytes()
    if file.path.endswith(".zst"):
        import zstandard

        data = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
    return data.splitlines(keepends=True) if not file.is_document else [data]


def _put(file: File, lines: list[bytes]) -> None:
    """Write a file anew, so that nobody can take it for unchanged."""
    path = Path(file.path)
    data = b"".join(lines)
    if file.path.endswith(".zst"):
        import zstandard

        data = zstandard.ZstdCompressor().compress(data)
    before = path.stat()
    path.write_bytes(data)
    later = max(before.st_mtime_ns, path.stat().st_mtime_ns) + 1_000_000
    os.utime(path, ns=(later, later))


def _lines(file: File) -> list[int]:
    """Numbers of the lines that are not blank."""
    return [n for n, line in enumerate(_content(file), 1) if line.strip()]


def _state(root: Path) -> dict[str, tuple[bytes, int, int]]:
    out: dict[str, tuple[bytes, int, int]] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        out[str(path.relative_to(root))] = (data, status.st_mtime_ns, status.st_mode)
    return out


def _lie_in(line: bytes, chance: random.Random) -> bytes:
    """Put something unexpected in one place of a record."""
    value = parse_json(line)
    places = list(_places(value)) if value is not None else []
    if not places or chance.random() < 0.3:
        return line
    holder, key = chance.choice(places)
    holder[key] = chance.choice(_LIES)
    try:
        return msgspec.json.encode(value) + b"\n"
    except (UnicodeEncodeError, OverflowError):
        import json

        return json.dumps(value).encode() + b"\n"


def _places(value: JSON) -> Iterator[tuple[JSON, JSON]]:
    """All places of a value in which another could stand."""
    todo = [value]
    while todo:
        holder = todo.pop()
        pairs = holder.items() if isinstance(holder, dict) else enumerate(holder)
        for key, inner in list(pairs):
            yield holder, key
            if isinstance(inner, (dict, list)):
                todo.append(inner)
