"""All sessions of one home: make one, go on with one, list them.

    <root>/sessions/<project-id>/<session>.jsonl      and what layout names besides

`resume` goes on from an earlier session in one of three ways: *adopt* (the default) opens a new
session that names its ancestor and copies nothing, so that one session can be resumed many
times; *continue* appends to the same session; *fork* adopts at any event. Whichever way:
messages and state come back, cost starts fresh, permissions do not come back.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec

from thence.errors import SessionNotFound
from thence.format import codec, layout, repair, schema
from thence.format.records import JSON, Event, Header, Notice, Origin, blocks, text_of
from thence.format.state import Domains
from thence.journal.checkpoint import Checkpoints
from thence.journal.history import History
from thence.journal.ids import now_text, uuid7
from thence.journal.log import Durability, Log, make_folder
from thence.journal.reader import Back, Source, find_event, head, read_back
from thence.journal.segments import Segments, parts_of
from thence.journal.session import Parts, Session
from thence.journal.sidechain import CAP, Sidechains
from thence.journal.spill import Spill

Mode = Literal["adopt", "continue", "fork"]

DEPTH = 8
"""Ancestors a session may have before it writes a boundary of its own, so that opening it stays
bounded."""

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
        history_retain_days: float | None = None,
    ) -> None:
        self.root = Path(root)
        self.enabled = enabled
        self._durability = durability
        self._local = Path(local) if local is not None else None
        self._domains = domains or Domains()
        self._cap = sidechain_cap
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
        path = folder / layout.Segment(session).name
        log = self._open(path, folder)
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
        back.since = [event, *back.since] if origin is None else [*back.since, event]
        back.end = event.uuid
        back.moved = False
        return self._session(session, log, back, folder, cwd, orphans)

    def _open(self, path: Path, folder: Path) -> Log | None:
        if not self.enabled:
            return None
        make_folder(folder)
        if self._local is not None:
            _ignored(folder)
        return Log(path, durability=self._durability)

    def _session(
        self,
        session: str,
        log: Log | None,
        back: Back,
        folder: Path,
        cwd: str | None,
        orphans: repair.Orphans,
    ) -> Session:
        parts = Parts()
        if self.enabled:
            saved = self.root / layout.CHECKPOINTS / session
            parts = Parts(
                spill=Spill(self.root / layout.SPILL / session),
                sidechains=Sidechains(self._side(session), cap=self._cap, durability=self._durability),
                checkpoints=None if cwd is None else lambda: Checkpoints(saved, Path(cwd)),
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
        back = self._load(path.parent, name, at=at)
        if at is not None and back.end is None:
            raise SessionNotFound(f"no event {at} in session {name[:8]}", hint="thence show PATH")
        if orphans == "drop" and back.tip != back.end:
            found_at, back = back.recovery, self._load(path.parent, name, at=back.tip)
            back.recovery = found_at
        if mode == "continue":
            return self._continue(path.parent, name, back, orphans)
        return self._adopt(path.parent, name, back, orphans)

    def fork(
        self, session: str | None = None, *, at: str | None = None, orphans: repair.Orphans = "answer"
    ) -> Session:
        """Begin a session from any event of another one; nothing is copied."""
        return self.resume(session, mode="fork", at=at, orphans=orphans)

    def _continue(
        self, folder: Path, name: str, back: Back, orphans: repair.Orphans
    ) -> Session:
        """Append to the same session, at the right tip."""
        header = back.header
        log = self._open(parts_of(folder, name)[-1], folder)
        going = self._session(name, log, back, folder, header.cwd if header else None, orphans)
        self._mend(going, back, orphans)
        return going

    def _adopt(self, folder: Path, name: str, back: Back, orphans: repair.Orphans) -> Session:
        """Open a new session that names the event it goes on from."""
        header = back.header
        origin = self._origin(folder, name, back.end)
        back.inherited_cost += self._spent(folder, name, back)
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
            return Origin(name, event, 1, place[0], place[1], digest)

    def _spent(self, folder: Path, name: str, back: Back) -> float:
        """What the ancestor itself took, dead branches included, by its last word on it."""
        with Segments(parts_of(folder, name)) as segments:
            turn = _last_turn(segments)
        totals = (turn.fields.get("totals") if turn else None) or back.cost or {}
        usd = totals.get("usd") if isinstance(totals, dict) else None
        return float(usd) if isinstance(usd, (int, float)) else 0.0

    # -- reading ------------------------------------------------------------------------

    def _load(self, folder: Path, name: str, *, at: str | None = None) -> Back:
        """Read a session and, as far as its chain needs them, those it goes on from."""
        opened: dict[str, Segments] = {}
        try:
            back = self._read(folder, name, opened, at=at)
            seen = {name}
            oldest = back
            while not back.whole and (origin := _origin_of(oldest)) and origin.session not in seen:
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

        segments = opened.setdefault(name, Segments(parts_of(folder, name)))
        source = Source(name, segments, other)
        return read_back(source, at=at, stop=stop, covers=self._domains.covers)

    def _read_ancestor(self, origin: Origin, opened: dict[str, Segments]) -> Back | None:
        path = self._path_of(origin.session)
        if path is None:
            return None
        placed = origin.offset is not None and origin.length is not None
        stop = (origin.offset or 0) + (origin.length or 0) + 1 if placed else None
        back = self._read(path.parent, origin.session, opened, at=origin.event, stop=stop)
        if back.end is None and stop is not None:  # moved: look for the event itself
            back = self._read(path.parent, origin.session, opened, at=origin.event)
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

    def has(self, session: str) -> bool:
        """Whether a session of exactly this id is there; a prefix of one does not count."""
        return self._path_of(session) is not None

    def sessions(self, project: Path | str | None = None, *, limit: int = 20) -> list[Listed]:
        """List sessions, newest first, from the first and last bytes of their files."""
        paths = [(path.stat().st_mtime, path) for path in self._paths(_text(project))]
        paths.sort(key=lambda pair: (pair[0], pair[1].name), reverse=True)
        return [_listed(path, when) for when, path in paths[:limit]]

    def _paths(self, project: str | None = None) -> Iterator[Path]:
        """First segments of all sessions, or of one project's."""
        if self._local is not None or project is not None:
            folders = [self._folder(project)]
        else:
            folders = sorted((self.root / layout.SESSIONS).glob("*"))
        for folder in folders:
            for path in sorted(folder.glob("*.jsonl*")):
                segment = layout.segment_of(path.name)
                if segment is not None and segment.number == 1 and path.is_file():
                    yield path

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
            raise SessionNotFound(f"no session {session[:64]}", hint="journal.sessions() lists them")
        names = ", ".join(path.name[:13] for path in found[:5])
        raise SessionNotFound(
            f"{session[:64]} names {len(found)} sessions: {names}", hint="give more of the id"
        )


def _join(back: Back, above: Back) -> None:
    """Put an ancestor's part in front."""
    back.chain = [*above.chain, *back.chain]
    own, older = back.where, above.where
    back.where = lambda: {**older(), **own()}
    back.since = [*above.since, *back.since]
    back.snapshot, back.whole = above.snapshot, above.whole
    if back.end is None or not back.chain:
        back.end, back.tip = back.end or above.end, back.tip or above.tip
    back.recovery.notices += above.recovery.notices


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


def _last_turn(segments: Segments) -> Event | None:
    at = segments.find_back(_TURN, segments.size)
    if at < 0:
        return None
    line = segments.read(at + 1, segments.line_end(at + 1))
    return next(iter(codec.decode(line).events), None)


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
