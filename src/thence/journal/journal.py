"""All sessions of one home: make one, go on with one, list them.

    <root>/sessions/<project-id>/<session>.jsonl      and what layout names besides

`resume` goes on from an earlier session in one of three ways: *adopt* (the default) opens a new
session that names its ancestor and copies nothing, so that one session can be resumed many
times; *continue* appends to the same session; *fork* adopts at any event. Whichever way:
messages and state come back, cost starts fresh, permissions do not come back.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec

from thence.errors import Conflict, NotReadable, SessionNotFound
from thence.format import codec, layout, repair, schema
from thence.format.records import JSON, Event, Header, Notice, Origin, blocks, text_of
from thence.format.state import Domains, cost_of
from thence.journal.checkpoint import Checkpoint, Checkpoints
from thence.journal.cleanup import MAX_SESSIONS, Step, apply, inventory, plan
from thence.journal.history import History
from thence.journal.ids import now_text, uuid7
from thence.journal.log import Durability, make_folder
from thence.journal.reader import Back, Source, find_event, head, read_back
from thence.journal.run import MAX_BYTES, Run
from thence.journal.segments import Segments, names_in, parts_of, sessions_in
from thence.journal.session import Parts, Session
from thence.journal.sidechain import CAP, Sidechains
from thence.journal.spill import Spill

_CHECKPOINT = b'\n{"type":"checkpoint",'

Mode = Literal["adopt", "continue", "fork"]

DEPTH = 8
"""Ancestors a session may have before it writes a boundary of its own, so that opening it stays
bounded."""

_BOUNDARY = b'\n{"type":"boundary",'
_TURN = b'\n{"type":"turn",'


class Listed(msgspec.Struct, frozen=True):
    """A session as a list shows it, told from the first and last bytes of its file."""

    session_id: str
    path: Path
    size: int
    modified: float
    cwd: str | None = None
    model: str | None = None
    title: str | None = None
    first_prompt: str | None = None
    branch: str | None = None
    usd: float | None = None
    resumed_from: str | None = None
    closed: bool = False


class Journal:
    """The journal of one home folder."""

    def __init__(
        self,
        root: Path | str,
        *,
        durability: Durability = "turn",
        local: Path | str | None = None,
        enabled: bool = True,
        domains: Domains | None = None,
        sidechain_cap: int = CAP,
        max_bytes: int = MAX_BYTES,
        history_retain_days: float | None = None,
    ) -> None:
        self.root = Path(root)
        self.enabled = enabled
        self._durability = durability
        self._local = Path(local) if local is not None else None
        self._domains = domains or Domains()
        self._cap = sidechain_cap
        self._max_bytes = max_bytes
        self.history = History(self.root, retain_days=history_retain_days, enabled=enabled)
        self._held: weakref.WeakSet[Session] = weakref.WeakSet()

    # -- making -------------------------------------------------------------------------

    def create(
        self, *, cwd: Path | str | None = None, model: str | None = None, session: str | None = None
    ) -> Session:
        """Begin a session."""
        return self._begin(Back(), cwd=_text(cwd), model=model, origin=None, session=session)

    def _begin(
        self,
        back: Back,
        *,
        cwd: str | None,
        model: str | None,
        origin: Origin | None,
        session: str | None = None,
        orphans: repair.Orphans = "answer",
    ) -> Session:
        session = session or uuid7()
        folder = self._folder(cwd)
        if parts_of(folder, session):
            raise Conflict(f"session {session[:64]} exists", hint="resume it, or give another id")
        log = self._open(folder, session)
        header = Header(
            session_id=session,
            start_ts=now_text(),
            resumed_from=origin,
            schema_version=schema.CURRENT,
            cwd=cwd,
            model=model,
            inherited_cost=back.inherited_cost,
        )
        event = Event("header", now_text(), uuid7(), None, _plain(header))
        if log is not None:
            log.append(codec.encode(event))
            log.sync()
        if origin is None:  # an adopting header restates how it all began, not how things stand
            back.since = [event]
        back.end = event.uuid
        back.moved = False
        return self._session(session, log, back, folder=folder, cwd=cwd, orphans=orphans)

    def _open(self, folder: Path, session: str, tip: str | None = None) -> Run | None:
        if not self.enabled:
            return None
        durable = self._durability != "none"
        make_folder(folder, durable=durable)
        if self._local is not None:
            _ignored(folder)
            make_folder(self._side(session), durable=durable)
            _ignored(self._side(session))
        return Run(folder, session, durability=self._durability, max_bytes=self._max_bytes, tip=tip)

    def _session(
        self,
        session: str,
        log: Run | None,
        back: Back,
        *,
        folder: Path,
        cwd: str | None,
        orphans: repair.Orphans,
    ) -> Session:
        parts = Parts()
        if self.enabled:
            family = self._family(folder, session)
            saved = self.root / layout.CHECKPOINTS / family[-1]
            parts = Parts(
                spill=Spill(self.root / layout.SPILL / family[-1]),
                sidechains=Sidechains(
                    self._side(session),
                    cap=self._cap,
                    durability=self._durability,
                    session=session if self._local is not None else None,
                ),
                checkpoints=None if cwd is None else lambda: self._checkpoints(saved, cwd, folder),
                saved=lambda: self._saved(family),
                last_prompt=lambda: self._last_prompt(session),
            )
        made = Session(
            session,
            log,
            back=back,
            parts=parts,
            reread=(lambda at: self._load(folder, session, at=at)) if log is not None else None,
            domains=self._domains,
            orphans=orphans,
        )
        self._held.add(made)
        return made

    def _checkpoints(self, saved: Path, cwd: str, folder: Path) -> Checkpoints:
        """Open the saved files of a lineage. No rewind may touch the journal's own files."""
        own = [self.root, folder]
        if self._local is not None:
            own += [self._local / layout.LOCAL_SESSIONS, self._local / layout.LOCAL_SIDECHAINS]
        return Checkpoints(saved, Path(cwd), closed=own)

    def _family(self, folder: Path, session: str) -> list[str]:
        """A session and those it goes on from, youngest first; side files are the oldest's.

        So a spilled result and a saved file are found from every session of a lineage, and go
        when it goes.
        """
        out, where = [session], folder
        while len(out) < 1000:
            with Segments(parts_of(where, out[-1])) as segments:
                header, _, _ = head(segments)
            origin = header.resumed_from if header is not None else None
            if origin is None or not layout.is_id(origin.session) or origin.session in out:
                break
            out.append(origin.session)
            path = self._path_of(origin.session)
            if path is None:
                break
            where = path.parent
        return out

    def _last_prompt(self, session: str) -> int | None:
        found = self.history.recent(1, session_id=session)
        return found[0].offset if found else None

    def _saved(self, family: list[str]) -> list[Checkpoint]:
        """Read the checkpoints that the logs of a lineage name, oldest first."""
        out: list[Checkpoint] = []
        for name in reversed(family):
            path = self._path_of(name)
            with Segments(parts_of(path.parent, name) if path else []) as segments:
                out += _checkpoints_in(segments)
        return out

    def _folder(self, cwd: str | None) -> Path:
        if self._local is not None:
            return self._local / layout.LOCAL_SESSIONS
        return self.root / layout.SESSIONS / layout.project_id(cwd or "")

    def _side(self, session: str) -> Path:
        if self._local is not None:
            return self._local / layout.LOCAL_SIDECHAINS
        return self.root / layout.SIDECHAINS / session

    # -- going on -----------------------------------------------------------------------

    def resume(
        self,
        session: str | None = None,
        *,
        mode: Mode = "adopt",
        at: str | None = None,
        orphans: repair.Orphans = "answer",
        project: Path | str | None = None,
    ) -> Session:
        """Go on from an earlier session: by id, by unique prefix, or the latest of a project."""
        path = self._find(session, project)
        found = layout.segment_of(path.name)
        name = found.session if found else path.name
        if at is not None:
            path, name, back = self._load_at(path, name, at, mode)
        else:
            back = self._load(path.parent, name)
            if orphans == "drop" and back.tip is not None and back.tip != back.end:
                told = back.recovery
                path, name, back = self._load_at(path, name, back.tip, mode)
                back.recovery = told
        if mode == "continue":
            going = self._continue(path.parent, name, back, orphans)
            if at is not None:
                going.rewind(at)
            return going
        return self._adopt(path.parent, name, back, orphans)

    def _load_at(self, path: Path, name: str, at: str, mode: Mode) -> tuple[Path, str, Back]:
        """Read a session up to one event, which a new one may also take from an ancestor."""
        seen: set[str] = set()
        while True:
            stop = None if mode == "continue" else self._end_of(path.parent, name, at)
            back = self._load(path.parent, name, at=at, stop=stop)
            if back.end is not None:
                return path, name, back
            seen.add(name)
            origin = _origin_of(back) if mode != "continue" else None
            above = self._path_of(origin.session) if origin else None
            if origin is None or above is None or origin.session in seen:
                raise SessionNotFound(
                    f"no event {at[:64]} in session {name[:8]}",
                    hint="`thence show PATH` shows events; fork goes on from an ancestor's",
                )
            path, name = above, origin.session

    def _end_of(self, folder: Path, name: str, event: str) -> int | None:
        """Where the line of an event ends, LF included: a new session sees no further."""
        with Segments(parts_of(folder, name)) as segments:
            place = find_event(segments, event)
        return None if place is None else place[0] + place[1] + 1

    def fork(
        self,
        session: str | None = None,
        *,
        at: str | None = None,
        orphans: repair.Orphans = "answer",
    ) -> Session:
        """Begin a session from any event of another one; nothing is copied."""
        return self.resume(session, mode="fork", at=at, orphans=orphans)

    def _continue(self, folder: Path, name: str, back: Back, orphans: repair.Orphans) -> Session:
        """Append to the same session, at the right tip."""
        header = back.header
        log = self._open(folder, name, back.end)
        back.cost = self._spent(folder, name)
        cwd = header.cwd if header else None
        going = self._session(name, log, back, folder=folder, cwd=cwd, orphans=orphans)
        self._mend(going, back, orphans)
        return going

    def _adopt(self, folder: Path, name: str, back: Back, orphans: repair.Orphans) -> Session:
        """Open a new session that names the event it goes on from."""
        header = back.header
        origin = self._origin(folder, name, back.end)
        back.inherited_cost += self._spent(folder, name)["usd"]
        back.cost = None
        going = self._begin(
            back,
            cwd=header.cwd if header else None,
            model=header.model if header else None,
            origin=origin,
            orphans=orphans,
        )
        self._mend(going, back, orphans)
        if self._depth(folder, name) >= DEPTH and back.chain:
            going.compact("", keep_from=back.chain[0].uuid)
        return going

    def _mend(self, going: Session, back: Back, orphans: repair.Orphans) -> None:
        """Answer what a crash left open, by appending; two resumers write the same events."""
        if orphans != "answer":
            return
        for call in [block["id"] for block in going.mended().open_calls]:
            made = repair.synthetic(going.id, call, ts=now_text(), prev_uuid=None)
            going.record("user", made.payload, uuid=made.uuid)
            back.recovery.mended.append(call)

    def _origin(self, folder: Path, name: str, event: str | None) -> Origin:
        with Segments(parts_of(folder, name)) as segments:
            place = find_event(segments, event) if event is not None else None
            if place is None:
                return Origin(session=name, event=event)
            line = segments.read(place[0], place[0] + place[1])
            digest = sha256(line).hexdigest()[:32]
            return Origin(name, event, *segments.address(place[0]), place[1], digest)

    def _spent(self, folder: Path, name: str) -> dict[str, JSON]:
        """What a session itself took, dead branches included: its last word, and what followed."""
        with Segments(parts_of(folder, name)) as segments:
            at = segments.find_any_back((_TURN, _BOUNDARY), segments.size)[0]
            said = codec.decode(segments.read(max(at, 0), segments.size)).events
            totals = _amounts(said[0].fields.get("totals")) if said and at >= 0 else None
            if totals is None and at >= 0:
                said = codec.decode(segments.read(0, segments.size)).events
        return cost_of(said, totals)

    # -- reading ------------------------------------------------------------------------

    def _load(
        self, folder: Path, name: str, *, at: str | None = None, stop: int | None = None
    ) -> Back:
        """Read a session and, as far as its chain needs them, those it goes on from."""
        opened: dict[str, Segments] = {}
        try:
            back = self._read(folder, name, opened, at=at, stop=stop)
            _heed(opened[name], back)
            if at is not None and back.end is None:
                return back
            seen = {name}
            oldest = back
            while (origin := _wanted(back, oldest)) and origin.session not in seen:
                seen.add(origin.session)
                above = self._read_ancestor(origin, opened)
                if above is None:
                    text = f"session {origin.session} is not there; history starts here"
                    back.recovery.notices.append(Notice("ancestor missing", text))
                    break
                _join(back, above)
                oldest = above
            back.inherited_cost = back.header.inherited_cost if back.header else 0.0
            return back
        finally:
            for segments in opened.values():
                segments.close()

    def _read(
        self,
        folder: Path,
        name: str,
        opened: dict[str, Segments],
        *,
        at: str | None = None,
        stop: int | None = None,
    ) -> Back:
        def other(session: str) -> Segments | None:
            if session not in opened:
                path = self._path_of(session)
                if path is None:
                    return None
                opened[session] = Segments(parts_of(path.parent, session))
            return opened[session]

        if name not in opened:
            opened[name] = Segments(parts_of(folder, name))
        source = Source(name, opened[name], other)
        return read_back(source, at=at, stop=stop, covers=self._domains.covers)

    def _read_ancestor(self, origin: Origin, opened: dict[str, Segments]) -> Back | None:
        path = self._path_of(origin.session)
        if path is None:
            return None
        if origin.session not in opened:
            opened[origin.session] = Segments(parts_of(path.parent, origin.session))
        stop = _stop(opened[origin.session], origin)
        back = self._read(path.parent, origin.session, opened, at=origin.event, stop=stop)
        if back.end is None and stop is not None:  # moved: look for the event itself
            back = self._read(path.parent, origin.session, opened, at=origin.event)
        if back.end is None and origin.event is not None:
            back = self._read(path.parent, origin.session, opened, stop=stop)
            text = f"event {origin.event} of session {origin.session}; history goes on before it"
            back.recovery.notices.append(Notice("ancestor damaged", text))
        return back

    def _depth(self, folder: Path, name: str) -> int:
        """How many ancestors a session has, up to the one that need not be read further."""
        depth, path = 0, folder / layout.Segment(name).name
        while depth < DEPTH:
            with Segments(parts_of(path.parent, name)) as segments:
                header, _, _ = head(segments)
                if header is None or header.resumed_from is None:
                    return depth
                if segments.find_back(b'\n{"type":"boundary",', segments.size) >= 0:
                    return depth
            name = header.resumed_from.session
            above = self._path_of(name)
            if above is None:
                return depth
            path, depth = above, depth + 1
        return depth

    # -- finding ------------------------------------------------------------------------

    @property
    def open_sessions(self) -> list[Session]:
        """Sessions made here that somebody still holds and nobody has closed."""
        return [session for session in list(self._held) if not session.closed]

    def flush_on_signals(self) -> Callable[[], None]:
        """Flush what is open on SIGTERM and SIGINT, then do as before; gives the way to undo it."""
        from thence.journal.signals import flush_on_signals

        return flush_on_signals(self)

    def has(self, session: str) -> bool:
        """Whether a session of exactly this id is there; a prefix of one does not count."""
        return self._path_of(session) is not None

    def sessions(self, project: Path | str | None = None, *, limit: int = 20) -> list[Listed]:
        """List sessions, newest first, from the first and last bytes of their files."""
        paths = [(_modified(parts), parts[0]) for parts in self._parts(_text(project))]
        paths.sort(key=lambda pair: (pair[0], pair[1].name), reverse=True)
        return [_listed(path, when) for when, path in paths[:limit]]

    def _paths(self, project: str | None = None) -> Iterator[Path]:
        """First segments of all sessions, or of one project's."""
        return (parts[0] for parts in self._parts(project))

    def _parts(self, project: str | None = None) -> Iterator[list[Path]]:
        """Segments of all sessions, or of one project's."""
        if self._local is not None or project is not None:
            folders = [self._folder(project)]
        else:
            every = self.root / layout.SESSIONS
            folders = [every / name for name in names_in(every)]
        for folder in folders:
            for parts in sessions_in(folder).values():
                if parts[0].is_file():
                    yield parts

    def _path_of(self, session: str) -> Path | None:
        if not layout.is_id(session):
            return None
        for path in self._paths():
            segment = layout.segment_of(path.name)
            if segment is not None and segment.session == session:
                return path
        return None

    def _find(self, session: str | None, project: Path | str | None) -> Path:
        """Find one session by id, by unique prefix, or the latest."""
        if session is None:
            latest = self.sessions(project, limit=1)
            if not latest:
                raise SessionNotFound("no session here yet", hint="create one first")
            return latest[0].path
        found = [p for p in self._paths(_text(project)) if p.name.startswith(session)]
        exact = [p for p in found if p.name.startswith(f"{session}.")]
        if len(exact or found) == 1:
            return (exact or found)[0]
        if not found:
            raise SessionNotFound(
                f"no session {session[:64]}", hint="journal.sessions() lists them"
            )
        names = ", ".join(path.name[:13] for path in found[:5])
        raise SessionNotFound(
            f"{session[:64]} names {len(found)} sessions: {names}", hint="give more of the id"
        )

    # -- cleaning up --------------------------------------------------------------------

    def cleanup(self, *, dry_run: bool = False, max_sessions: int = MAX_SESSIONS) -> list[Step]:
        """Remove lineages over the cap of each project, seal segments; only when asked."""
        held = inventory(self.root, local=self._local)
        steps = plan(held, max_sessions=max_sessions, max_bytes=self._max_bytes, now=time.time())
        apply(steps, dry_run=dry_run or not self.enabled)
        return steps


def _heed(segments: Segments, back: Back) -> None:
    """Tell which segments could not be read. Without the last one nobody knows where to go on."""
    last = segments.parts[-1].segment.number if segments.parts else 0
    for path, why in segments.unreadable:
        found = layout.segment_of(path.name)
        if found is None or found.number > last:
            raise NotReadable(
                f"cannot read {path.name}: {why}",
                hint="nothing was changed; mend the disk or the file's mode, then try again",
            )
        back.recovery.notices.append(Notice("segment unreadable", f"{path.name}: {why}"))


def _checkpoints_in(segments: Segments) -> list[Checkpoint]:
    """The checkpoints that one session's log names, oldest first; malformed ones left out."""
    out: list[Checkpoint] = []
    at = segments.find_back(_CHECKPOINT, segments.size)
    while at >= 0:
        line = segments.read(at + 1, segments.line_end(at + 1))
        for event in codec.decode(line).events:
            with contextlib.suppress(msgspec.ValidationError):
                out.append(msgspec.convert(event.payload, Checkpoint))
        at = segments.find_back(_CHECKPOINT, at)
    return out[::-1]


def _join(back: Back, above: Back) -> None:
    """Put an ancestor's part in front: what the model saw, unless a summary stands for it."""
    if not back.whole:
        back.chain = [*above.chain, *back.chain]
        own, older = back.where, above.where
        back.where = lambda: {**older(), **own()}
        back.whole = above.whole
    later = [event for event in back.since if event.type != "header"]  # as it began is not as it is
    back.since = [*above.since, *later]
    back.snapshot = above.snapshot
    back.end, back.tip = back.end or above.end, back.tip or above.tip
    back.recovery.notices += above.recovery.notices


def _wanted(back: Back, oldest: Back) -> Origin | None:
    """Which ancestor has more of the chain, or of the line that the state is folded from."""
    return None if back.whole and back.snapshot is not None else _origin_of(oldest)


def _origin_of(back: Back) -> Origin | None:
    return back.header.resumed_from if back.header is not None else None


def _plain(header: Header) -> JSON:
    """Give a header's payload, leaving out what only segments and sidechains say."""
    fields: dict[str, JSON] = msgspec.to_builtins(header)
    for name in ("segment", "base_offset", "base_line", "agent_id"):
        if fields[name] in (None, 0, 1):
            del fields[name]
    return fields


def _text(path: Path | str | None) -> str | None:
    return None if path is None else str(path)


def _ignored(folder: Path) -> None:
    """Keep a project-local folder out of version control from the moment it is made."""
    note = folder / ".gitignore"
    if not note.exists():
        note.write_text("*\n")


def _stop(segments: Segments, origin: Origin) -> int | None:
    """Where in the run the line a session goes on from ends; None when that is not known."""
    if origin.offset is None or origin.length is None:
        return None
    at = segments.at(origin.segment or 1, origin.offset, origin.length)
    return None if at is None else at + origin.length + 1


def _modified(parts: list[Path]) -> float:
    """When any segment of a session was last written."""
    times = []
    for path in parts:
        with contextlib.suppress(FileNotFoundError):  # sealed or removed just now
            times.append(path.stat().st_mtime)
    return max(times, default=0.0)


def _amounts(totals: JSON) -> dict[str, JSON] | None:
    """Running totals of a log, if they are such."""
    start = cost_of(())
    wanted = start.keys() - {"last"}
    if not isinstance(totals, dict) or not wanted <= totals.keys():
        return None
    if not all(type(totals[n]) in (int, float) and 0 <= totals[n] < 2**53 for n in wanted):
        return None
    return start | {name: totals[name] for name in wanted}


def _listed(path: Path, modified: float) -> Listed:
    """Tell a session from the head and the tail of its file."""
    segment = layout.segment_of(path.name)
    name = segment.session if segment else path.name
    with Segments(parts_of(path.parent, name)) as segments:
        header, _, _ = head(segments)
        tail = segments.read(max(0, segments.size - (64 << 10)), segments.size)
        first = _first_prompt(segments.read(0, 64 << 10))
        turns = [e for e in codec.decode(tail).events if e.type in ("turn", "terminator")]
        size = segments.size
    turn = next((e.fields for e in reversed(turns) if e.type == "turn"), {})
    totals = turn.get("totals") or {}
    return Listed(
        session_id=name,
        path=path,
        size=size,
        modified=modified,
        cwd=header.cwd if header else None,
        model=turn.get("model") or (header.model if header else None),
        title=turn.get("title"),
        first_prompt=first,
        branch=turn.get("branch"),
        usd=totals.get("usd") if isinstance(totals, dict) else None,
        resumed_from=header.resumed_from.session if header and header.resumed_from else None,
        closed=bool(turns) and turns[-1].type == "terminator",
    )


def _first_prompt(data: bytes) -> str | None:
    for event in codec.decode(data).events:
        content = event.fields.get("content")
        if event.type == "user" and not any(
            block.get("type") == "tool_result" for block in blocks(content)
        ):
            return text_of(content)[:200]
    return None
