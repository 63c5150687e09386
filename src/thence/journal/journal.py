"""All sessions of one home: make one, go on with one, list them.

    <root>/sessions/<project-id>/<session>.jsonl      and what layout names besides

`resume` goes on from an earlier session in one of three ways: *adopt* (the default) opens a new
session that names its ancestor and copies nothing, so that one session can be resumed many
times; *continue* appends to the same session; *fork* adopts at any event. Whichever way:
messages and state come back, cost starts fresh, permissions do not come back.
"""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from thence.errors import BadConfig, Conflict, NotReadable, SessionNotFound
from thence.format import layout, repair, schema
from thence.format.records import JSON, Event, Header, Notice, Origin, word
from thence.format.state import Domains
from thence.journal.arguments import Amount, Count, check_value, checked, line_of
from thence.journal.batches import Batches, headers_in
from thence.journal.beginnings import begin
from thence.journal.catalog import Catalog, SessionEntry, name_of
from thence.journal.checkpoint import Checkpoint, Checkpoints
from thence.journal.cleanup import MAX_SESSIONS, CleanupStep, apply, inventory, leftovers, plan
from thence.journal.history import History
from thence.journal.idle import TIMEOUT_S
from thence.journal.ids import checked_id, now_text, uuid7
from thence.journal.lineage import MAX_ANCESTRY_DEPTH, Lineage, last_model
from thence.journal.log import Durability, make_folder
from thence.journal.permissions import Rules, rules_from
from thence.journal.reader import ReadBack, UnfinishedSubagent, Where
from thence.journal.segmented_log import MAX_SEGMENT_BYTES, SegmentedLog, header_of
from thence.journal.segments import is_begun
from thence.journal.session import Session, SessionParts
from thence.journal.sidechain import CAP_BYTES, Sidechains
from thence.journal.spill import Budget, Spill

SETTINGS = "config.toml"
"""The file of a home in which its user writes settings."""

Mode = Literal["adopt", "continue", "fork"]


@checked
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
        sidechain_cap: Count = CAP_BYTES,
        max_bytes: Count = MAX_SEGMENT_BYTES,
        history_retain_days: Amount | None = None,
        idle_timeout: Amount = TIMEOUT_S,
        approval_timeout: Amount = TIMEOUT_S,
        spill_per_result: Count = Budget.per_result,
        spill_per_session: Count = Budget.per_session,
    ) -> None:
        self.root = Path(_absolute(root))
        self.enabled = enabled
        self._durability = durability
        self._local = Path(_absolute(local)) if local is not None else None
        self._catalog = Catalog(self.root, self._local)
        self._domains = domains or Domains()
        self._cap = sidechain_cap
        self._max_bytes = max_bytes
        self._timeouts = (idle_timeout, approval_timeout)
        self._budget = (spill_per_result, spill_per_session)
        self.history = History(self.root, retain_days=history_retain_days, enabled=enabled)
        # Weak: a session that nobody holds must not stay open for our sake.
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()

    # -- making -------------------------------------------------------------------------

    def create(
        self, *, cwd: Path | str | None = None, model: str | None = None, session: str | None = None
    ) -> Session:
        """Begin a session in `cwd`, whose full path is its project.

        An id of your own is a `Conflict` when a session of the home has it.
        """
        made = _Beginning(_folder(cwd), model)
        return self._session(*self._begin(made, session))

    def create_or_resume(
        self, session: str, *, cwd: Path | str | None = None, model: str | None = None
    ) -> Session:
        """Begin a session of this id, or go on in it (`mode="continue"`) if it was begun.

        Of several processes that call it at once one begins the session and the others go on in
        it. `cwd` and `model` are those it is begun with; a session of another project is a
        `Conflict`.
        """
        create = partial(self.create, cwd=cwd, model=model, session=checked_id(session))
        for pause in (0.001, 0.01, 0.1):
            with contextlib.suppress(Conflict):
                return create()
            path = self._catalog.path_of(session)
            if path is not None:
                break
            time.sleep(pause)  # another process begins or removes it in this moment
        else:
            return create()  # another kind of file has the name: the error is told
        if cwd is not None and path.parent != self._catalog.folder(_folder(cwd)):
            raise Conflict(
                f"session {session} belongs to another project than {cwd}",
                hint=f"resume({session!r}) goes on in it; or give another id",
            )
        return self._go_on(path, "continue", project=_folder(cwd))

    def _begin(self, made: _Beginning, own_id: str | None = None) -> tuple[_Place, ReadBack]:
        """Make the log of a session, with its header in it."""
        session = uuid7() if own_id is None else checked_id(own_id)
        folder = self._catalog.folder(made.cwd)
        header = Header(
            session_id=session,
            start_ts=now_text(),
            resumed_from=made.origin,
            schema_version=schema.CURRENT,
            cwd=made.cwd,
            model=made.model,
            inherited_cost=made.inherited_cost,
        )
        event = Event("header", now_text(), uuid7(), None, _plain(header))
        # One that we drew is nobody else's.
        claim = contextlib.nullcontext() if own_id is None else self._claimed(session, folder)
        with claim:
            if self.enabled:
                self._make_log(folder, session, event)
        run = self._open(folder, session)
        back = ReadBack(
            header=header,
            root=event.uuid,
            end=event.uuid,
            since=[event] if made.origin is None else [],
            inherited_cost=made.inherited_cost,
            stop=(1, len(line_of(event))),
        )
        before = made.family[0] if made.family else None
        family = [session, *made.family]
        return _Place(session, folder, run, made.cwd, family, before, made.title), back

    @contextlib.contextmanager
    def _claimed(self, session: str, folder: Path) -> Iterator[None]:
        """Keep an id that a caller gave for the session that is begun with it."""
        if self.enabled:
            make_folder(folder.parent, durable=self._durability != "none")
        with self._catalog.claimed(session, folder):
            yield

    def _make_log(self, folder: Path, session: str, header: Event) -> None:
        """Make the file of a session, durable before anybody hears of it."""
        durable = self._durability != "none"
        # In a project's own folder: transcripts must not be committed with its code.
        make_folder(folder, durable=durable)
        if self._local is not None:
            side = self._catalog.side(session)
            make_folder(side, durable=durable)
            for each in (folder, side):
                _write_gitignore(each, durable=durable)
        path = folder / layout.Segment(session).name
        if not begin(path, line_of(header), durable=durable):
            raise Conflict(f"session {session} exists", hint="resume it, or give another id")

    def _open(self, folder: Path, session: str, tip: str | None = None) -> SegmentedLog | None:
        if not self.enabled:
            return None
        return SegmentedLog(
            folder, session, durability=self._durability, max_bytes=self._max_bytes, tip=tip
        )

    def _session(
        self,
        place: _Place,
        back: ReadBack,
        *,
        orphans: repair.Orphans = "answer",
        later: Callable[[Session], None] | None = None,
    ) -> Session:
        made = Session(
            place.session,
            place.run,
            back=back,
            parts=self._parts(place) if self.enabled else SessionParts(),
            later=later,
            domains=self._domains,
            orphans=orphans,
            title=place.title,
            timeouts=self._timeouts,
        )
        self._sessions.add(made)
        return made

    def _parts(self, place: _Place) -> SessionParts:
        """The side files of a session; what was spilled and saved is its oldest ancestor's."""
        session, cwd, family = place.session, place.cwd, place.family
        # A fork may rewind to what its ancestor saved.
        saved = self.root / layout.CHECKPOINTS / family[-1]
        spill = partial(self._spill, family[-1])
        return SessionParts(
            spill=spill(),
            sidechains=self._sidechains(session, spill),
            checkpoints=None
            if cwd is None
            else lambda: self._checkpoints(saved, cwd, place.folder),
            saved=lambda: self._checkpoints_of(family),
            last_prompt=lambda: self._last_prompt(session),
            reread=partial(self._load, place.folder, session),
            above=partial(self._above, place.folder, session),
            line=partial(self._line, place.folder, session),
            unfinished=partial(self._unfinished_subagents, place.before),
        )

    def _spill(self, ancestor: str) -> Spill:
        """Open the side files of a lineage: in the project if its transcripts are there."""
        per_result, per_session = self._budget
        folder = earlier = self.root / layout.SPILL / ancestor
        if self._local is not None:
            folder = self._local / layout.LOCAL_SPILL / ancestor
        return Spill(
            folder,
            earlier=earlier if folder != earlier else None,
            per_result=per_result,
            per_session=per_session,
        )

    def _sidechains(self, session: str, spill: Callable[[], Spill] | None = None) -> Sidechains:
        return Sidechains(
            self._catalog.side(session),
            cap=self._cap,
            durability=self._durability,
            session=session if self._local is not None else None,
            spill=spill,
        )

    def _unfinished_subagents(self, session: str | None) -> list[UnfinishedSubagent]:
        """Find the subagents that a session left without an end."""
        return self._sidechains(session).unfinished(session) if session is not None else []

    def _checkpoints(self, saved: Path, cwd: str, folder: Path) -> Checkpoints:
        """Open the saved files of a lineage. No rewind may touch the journal's own files."""
        # A rewind that restored a journal would take back what is recorded.
        own = [self.root, folder]
        if self._local is not None:
            own += [self._local / layout.LOCAL_SESSIONS, self._local / layout.LOCAL_SIDECHAINS]
        return Checkpoints(saved, Path(cwd), closed=own)

    def _last_prompt(self, session: str) -> int | None:
        prompts = self.history.recent(1, session_id=session)
        return prompts[0].offset if prompts else None

    def _checkpoints_of(self, family: list[str]) -> list[Checkpoint]:
        with self._lineage() as lineage:
            return lineage.checkpoints(family)

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
        place = self._project(project)
        path = self._catalog.find(session, place)
        return self._go_on(path, mode, at, orphans, place)

    def _go_on(
        self,
        path: Path,
        mode: Mode,
        at: str | None = None,
        orphans: repair.Orphans = "answer",
        project: str | None = None,
    ) -> Session:
        """Go on from the session of a file; `project` says where if its header is lost."""
        name = name_of(path)
        with self._lineage(project) as lineage:
            lineage.open(name, path.parent)
            if mode == "continue":
                return self._continue(lineage, path.parent, name, at, orphans)
            origin = lineage.holder(name, at) if at is not None else None
            if at is not None and origin is None:
                raise _no_event(at, name)
            # To drop an orphan its call must be known, so the ancestor is read at once.
            if mode == "fork" and orphans != "drop":
                origin = origin or lineage.last_line(name)
                if origin is not None:
                    return self._fork(lineage, origin, orphans)
            return self._adopt(lineage, origin or Origin(name), orphans)

    def fork(
        self,
        session: str | None = None,
        *,
        at: str | None = None,
        orphans: repair.Orphans = "answer",
    ) -> Session:
        """Begin a session from any event of another one; nothing is copied.

        Nothing is read either but the place it goes on from, so that it takes no longer for a
        large session: messages and state are read when they are first asked for.
        """
        return self.resume(session, mode="fork", at=at, orphans=orphans)

    def _continue(
        self, lineage: Lineage, folder: Path, name: str, at: str | None, orphans: repair.Orphans
    ) -> Session:
        """Append to the same session, at the right tip."""
        back = lineage.load(name, at=at)
        ours = back.end is not None or at is None
        if at is not None and not ours:
            if lineage.holder(name, at) is None:
                raise _no_event(at, name)
            # An event of an ancestor: our own line goes on as it is, then it is rewound to.
            back = lineage.load(name)
        if at is None and orphans == "drop" and back.tip not in (None, back.end):
            recovery = back.recovery  # what the first reading found is what is told
            back = lineage.load(name, at=back.tip)
            back.recovery = recovery
        back.recovery.writer = lineage.writer(name)  # before we have it open ourselves
        other = self._catalog.namesake(name)
        if other is not None:
            what = f"{other} has it as well: prompts and checkpoints mix, and an import joins both"
            back.recovery.notices.append(Notice("id used twice", what))
        back.stop = lineage.end(name)
        run = self._open(folder, name, back.end)
        back.cost = lineage.spent(name)
        cwd = lineage.cwd(back.header)
        family = lineage.family(name)
        place = _Place(name, folder, run, cwd, family, name, lineage.title(family))
        going = self._session(place, back, orphans=orphans)
        if ours:
            _mend(going, back, orphans)
        if at is not None:
            going.rewind(at)
        return going

    def _adopt(self, lineage: Lineage, origin: Origin, orphans: repair.Orphans) -> Session:
        """Open a new session that names the event it goes on from."""
        back = lineage.ancestor(origin)
        if origin.event is None and orphans == "drop" and back.tip not in (None, back.end):
            recovery = back.recovery
            origin = lineage.reference(origin.session, back.tip)
            back = lineage.ancestor(origin)
            back.recovery = recovery
        elif origin.event is None:
            origin = lineage.reference(origin.session, back.end)
        made = self._goes_on(lineage, origin, back.header, last_model(back))
        place, new = self._begin(made)
        going = self._session(place, _taken_over(new, back), orphans=orphans)
        self._settle(going, lineage, back, made.family, orphans)
        return going

    def _fork(self, lineage: Lineage, origin: Origin, orphans: repair.Orphans) -> Session:
        """The same, with everything but the reference put off until it is asked for."""
        model = lineage.turn(origin.session, origin).get("model")
        made = self._goes_on(lineage, origin, lineage.header(origin.session), word(model))
        place, new = self._begin(made)

        def later(going: Session) -> None:
            with self._lineage() as again:
                back = again.ancestor(origin)
                going.take(_taken_over(new, back))
                self._settle(going, again, back, made.family, orphans)

        return self._session(place, new, orphans=orphans, later=later)

    def _goes_on(
        self, lineage: Lineage, origin: Origin, header: Header | None, model: str | None
    ) -> _Beginning:
        """How a session begins that goes on from another one, which last used a model."""
        before = header.inherited_cost if header is not None else 0.0
        family = lineage.family(origin.session)
        return _Beginning(
            lineage.cwd(header),
            model or (header.model if header is not None else None),
            origin,
            before + float(lineage.spent(origin.session)["usd"]),
            family,
            lineage.title(family, origin),
        )

    def _settle(
        self,
        going: Session,
        lineage: Lineage,
        back: ReadBack,
        family: list[str],
        orphans: repair.Orphans,
    ) -> None:
        """Mend what was taken over, and do not let the ancestry grow without bound."""
        _mend(going, back, orphans)
        # Each resume reads the ancestors' files: a boundary with the state ends the chain of them.
        if lineage.depth(family) >= MAX_ANCESTRY_DEPTH and back.chain:
            going.compact("", keep_from=back.chain[0].uuid)

    # -- reading ------------------------------------------------------------------------

    def _lineage(self, project: str | None = None) -> Lineage:
        return Lineage(self._catalog, self._domains.covers, project)

    def _load(
        self, folder: Path, name: str, at: str | None = None, where: Where | None = None
    ) -> ReadBack:
        """Read a session up to its end, or up to one of its own events."""
        with self._lineage() as lineage:
            lineage.open(name, folder)
            return lineage.load(name, at=at, where=where)

    def _above(self, folder: Path, name: str, event: str) -> ReadBack | None:
        """Read up to an event of one of those that a session goes on from."""
        with self._lineage() as lineage:
            lineage.open(name, folder)
            origin = lineage.holder(name, event)
            return None if origin is None else lineage.ancestor(origin)

    def _line(self, folder: Path, name: str, event: str) -> list[tuple[Event, Where]]:
        """Read the messages that lead to an event as they were written, ancestors' first."""
        with self._lineage() as lineage:
            lineage.open(name, folder)
            return lineage.line(name, event)

    # -- finding ------------------------------------------------------------------------

    @property
    def open_sessions(self) -> list[Session]:
        """Sessions made here that somebody still holds and nobody has closed."""
        # A copy: a session that is collected meanwhile changes the set.
        return [session for session in list(self._sessions) if not session.closed]

    def flush_on_signals(self) -> Callable[[], None]:
        """Flush what is open on SIGTERM and SIGINT, then do as before; gives the way to undo it."""
        from thence.journal.signals import flush_on_signals

        return flush_on_signals(self)

    def has(self, session: str) -> bool:
        """Whether a session of exactly this id is there; a prefix of one does not count."""
        return self._catalog.path_of(session) is not None

    def sessions(
        self, project: Path | str | None = None, *, limit: Count = 20
    ) -> list[SessionEntry]:
        """List sessions, newest first, from the first and last bytes of their files."""
        return self._catalog.sessions(self._project(project), limit=limit)

    def _project(self, project: Path | str | None) -> str | None:
        """Return the project that is meant: a folder, or one that lists have under a name."""
        if project is None:
            return None
        folder, name = _absolute(project), str(project)
        is_name = not self._catalog.folder(folder).is_dir() and self._catalog.folder(name).is_dir()
        return name if is_name else folder

    def read_spill(self, session: str, name: str) -> bytes:
        """Return a result that was spilled in a session, or in one it goes on from, by its name."""
        with self._lineage() as lineage:
            family = lineage.family(session)
        return self._spill(family[-1]).load(name)

    # -- lists of others ----------------------------------------------------------------

    def batches(
        self,
        session: str,
        *,
        project: str | None = None,
        cwd: Path | str | None = None,
        agent: str | None = None,
        **header: JSON,
    ) -> Batches:
        """Return a session as a list of another program's records; it is begun when first written.

        `project` says in which folder it lies, `cwd` where checkpoints of it may save files.
        With `agent` it is the channel of a subagent. What else is named goes into its header.
        """
        check_value(header)
        name = session if agent is None else agent
        if agent is not None:
            header["agent_id"] = agent
        folder = self._catalog.folder(project) if agent is None else self._catalog.side(session)
        first = partial(header_of, session, cwd=_folder(cwd), **header)
        open_list = partial(self._open_list, folder, name, first, is_session=agent is None)
        return Batches(folder, checked_id(name), open_list, first)

    def _open_list(
        self, folder: Path, name: str, header: Callable[[], JSON], *, is_session: bool
    ) -> SegmentedLog | None:
        """Open the log of a list; it is begun if need be."""
        if self.enabled and not is_begun(folder, name):
            event = Event("header", now_text(), uuid7(), None, header())
            claim = self._claimed(name, folder) if is_session else contextlib.nullcontext()
            try:
                with claim, contextlib.suppress(Conflict):  # another was quicker
                    self._make_log(folder, name, event)
            except Conflict:
                if not is_begun(folder, name):  # the id is taken in another project
                    raise
        return self._open(folder, name)

    def read_headers(
        self, project: str | None = None, *, session: str | None = None
    ) -> list[dict[str, JSON]]:
        """Return what the headers of a project's sessions say, or of a session's subagents."""
        if session is None:
            return headers_in(self._catalog.folder(project))
        return headers_in(self._catalog.side(session), whose=session)

    # -- cleaning up --------------------------------------------------------------------

    def cleanup(
        self, *, dry_run: bool = False, max_sessions: Count = MAX_SESSIONS
    ) -> list[CleanupStep]:
        """Remove lineages over the cap of each project, seal segments; only when asked.

        What killed processes left goes as well, and files of prompts that were rolled over and are
        a month old.
        """
        now = time.time()
        sessions = inventory(self.root, local=self._local)
        steps = plan(sessions, max_sessions=max_sessions, max_bytes=self._max_bytes, now=now)
        steps += leftovers(self.root, local=self._local, now=now)
        apply(steps, dry_run=dry_run or not self.enabled)
        return [*steps, *self.history.clean_up(dry_run=dry_run)]

    # -- settings -----------------------------------------------------------------------

    def rules(self) -> Rules:
        """Read what the user always allows, asks about or denies: `[permissions]` in config.toml.

        The file of this home, read each time; without one there are no rules. What makes no sense
        raises `BadConfig`: it might have been the rule that denies.
        """
        path = self.root / SETTINGS
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            text = ""
        except (OSError, ValueError) as error:
            raise BadConfig(f"{path}: cannot be read: {error}", hint="fix or remove it") from error
        return rules_from(text, source=str(path))


class _Beginning(msgspec.Struct, frozen=True):
    """How a session begins, and what it goes on from."""

    cwd: str | None
    model: str | None
    origin: Origin | None = None
    inherited_cost: float = 0.0
    family: list[str] = msgspec.field(default_factory=list)
    """Those it goes on from, youngest first."""
    title: str | None = None


class _Place(NamedTuple):
    """Where a session is written, and the family it belongs to, itself first."""

    session: str
    folder: Path
    run: SegmentedLog | None
    cwd: str | None
    family: list[str]
    before: str | None = None
    """The session that is gone on with: itself, or its ancestor; none of a new one."""
    title: str | None = None


def _taken_over(new: ReadBack, back: ReadBack) -> ReadBack:
    """What a new session has of its ancestor: messages, state and what was found, no more."""
    return msgspec.structs.replace(
        back,
        root=new.root,
        end=new.end,
        tip=new.end,
        moved=False,
        cost=None,
        inherited_cost=new.inherited_cost,
        stop=new.stop,
    )


def _mend(going: Session, back: ReadBack, orphans: repair.Orphans) -> None:
    """Answer what a crash left open, by appending; two resumers write the same events."""
    if orphans != "answer" or back.settled:
        return
    # A stopped call is told from one that a crash cut off.
    stopped = repair.stopped_calls(back.since)
    # A call of a session that somebody else runs may get its result yet.
    unknown = repair.NO_RESULT_YET if back.recovery.writer else repair.INTERRUPTED
    for call in [block["id"] for block in going.mended().open_calls]:
        why = stopped.get(call, unknown)
        made = repair.synthetic(going.id, call, ts=now_text(), prev_uuid=None, why=why)
        going.record("user", made.payload, uuid=made.uuid)
        back.recovery.mended.append(call)


def _no_event(event: str, session: str) -> SessionNotFound:
    return SessionNotFound(
        f"no event {event[:64]} in session {session[:8]}",
        hint="`thence show PATH` shows events; fork goes on from an ancestor's",
    )


def _plain(header: Header) -> JSON:
    """Return a header's payload, leaving out what only segments and sidechains say."""
    fields: dict[str, JSON] = msgspec.to_builtins(header)
    for name in ("segment", "base_offset", "base_line", "agent_id"):
        if fields[name] in (None, 0, 1):
            del fields[name]
    return fields


def _absolute(path: Path | str) -> str:
    """Return a folder by its full name, so that `.` here and `.` elsewhere are two."""
    try:
        return os.path.abspath(path)  # noqa: PTH100 - `..` goes as well
    except OSError as error:
        raise NotReadable(
            f"the current folder is gone, so that {path} leads nowhere",
            hint="give the whole path, or change to another folder",
        ) from error


def _folder(path: Path | str | None) -> str | None:
    return None if path is None else _absolute(path)


def _write_gitignore(folder: Path, *, durable: bool) -> None:
    """Keep a project-local folder out of version control from the moment it is made."""
    note = folder / ".gitignore"
    if not note.exists() or not note.stat().st_size:  # empty: left by a kill of an earlier version
        begin(note, b"*\n", durable=durable)
