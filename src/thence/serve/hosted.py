"""Sessions of our own that clients write into through the server, and their timers.

    POST /api/sessions                begin one
    POST /api/sessions/{uid}/events   add to one: with the tip that the client saw

Several tabs may write into one session. Each says after which event it speaks; when the session
went on meanwhile, its event becomes a branch, or is refused with 409, as it asks: nothing that was
said is ever lost. An event with the `uuid` of the client may be sent again and is there once.

Timers run here for sessions that were begun or gone on with here: one that rests for long enough
is closed, a call that nobody approves in time gets a synthetic result, on the branch on which it
was asked, so that no session waits for ever.

Invariants: only our own journals are written, never a log of another agent; book-keeping and
anything about permissions is refused; a session that is gone on with starts with no permissions.
"""

from __future__ import annotations

import functools
import logging
import threading
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from litestar import post
from litestar.di import NamedDependency
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, JSONBody

from thence.errors import NotAppendable, SessionNotFound, ThenceError
from thence.format import layout
from thence.format.normal import session_uid
from thence.format.records import JSON, blocks
from thence.format.repair import not_approved, synthetic

if TYPE_CHECKING:
    from thence.journal import Journal, Session
    from thence.journal.idle import Idle
    from thence.serve.context import AppContext
    from thence.serve.live import Hub

AGENT: Final = "thence"
POLL_INTERVAL_S: Final = 0.25
"""Seconds between two checks of the timers."""
MAX_SWEEP_WAIT_S: Final = 2.0
"""Seconds that a client waits until what it wrote can be read, at most; it is written before."""

Id = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]
Kind = Literal[
    "user",
    "assistant",
    "decision",
    "todos",
    "model",
    "cwd",
    "worktree",
    "file",
    "interrupted",
    "waiting",
    "turn",
]
"""What a client may say. `turn` ends a turn, `waiting` asks for an approval."""

_log = logging.getLogger(__name__)


class NotWritable(ThenceError):
    """A log of another agent is only read."""


class NewSession(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a session begins."""

    cwd: Annotated[str, msgspec.Meta(max_length=4096)] | None = None
    """The folder it is about: text to show, never a place that is opened."""
    model: Annotated[str, msgspec.Meta(max_length=200)] | None = None


class NewEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that was said or done."""

    type: Kind
    payload: dict[str, JSON] = {}
    uuid: Id | None = None
    """Sent again with the same one it is there once."""
    expected_tip: Id | None = None
    """The last event that the client saw."""
    on_stale: Literal["branch", "conflict"] = "branch"
    """What becomes of it when the session went on since."""


class BegunOut(msgspec.Struct, frozen=True):
    """A session that can be written to."""

    session_uid: str
    tip: str | None


class WrittenOut(msgspec.Struct, frozen=True):
    """An event is in the log."""

    session_uid: str
    uuid: str | None
    """Null when a turn was ended, which is no event to speak after."""
    tip: str | None
    """The event to speak after next."""
    branched: bool
    """The session had gone on: this is a branch."""


class OpenSession:
    """A session that is open here."""

    def __init__(self, session: Session, idle: Idle) -> None:
        self.session = session
        self.idle = idle
        self.asked: dict[str, str | None] = {}
        """Calls that wait for approval, and the events after which they were asked."""
        self.mutex = threading.RLock()


class HostedSessions:
    """All sessions that are open here."""

    def __init__(self, context: AppContext, hub: Hub) -> None:
        self._context = context
        self._hub = hub
        self._open_sessions: dict[str, OpenSession] = {}
        self._mutex = threading.RLock()
        self._stop = threading.Event()
        self._is_used = threading.Event()
        """Whether a session was opened here: before that there are no timers."""
        self._thread = threading.Thread(target=self._run, name="thence-hosted", daemon=True)

    @functools.cached_property
    def _journal(self) -> Journal:
        """The journal of this home: loaded for the first client that writes."""
        from thence.journal import Journal

        return Journal(self._context.home, enabled=self._context.writes)

    # -- living -------------------------------------------------------------------------

    def start(self) -> None:
        """Start the timers."""
        self._thread.start()

    def stop(self) -> None:
        """Stop them, and close what is open."""
        self._stop.set()
        self._is_used.set()  # wakes the thread if no session was ever opened
        if self._thread.is_alive():
            self._thread.join()
        with self._mutex:
            for opened in self._open_sessions.values():
                opened.idle.close()
                opened.session.close("server ended")
            self._open_sessions.clear()

    def _run(self) -> None:
        self._is_used.wait()  # no session, no timers: a server that only shows sleeps
        while not self._stop.wait(POLL_INTERVAL_S):
            try:
                self.poll()
            except Exception:  # noqa: BLE001 - the timers of the others must go on
                _log.exception("hosted.failed")

    def poll(self) -> None:
        """Close idle sessions, and answer approvals that nobody answered."""
        with self._mutex:
            # A copy: closing an idle session takes it out while we go through them.
            opened = list(self._open_sessions.values())
        for session in opened:
            with session.mutex:
                session.idle.poll()

    # -- opening ------------------------------------------------------------------------

    def create(self, new: NewSession) -> BegunOut:
        """Begin a session."""
        self._may_write()
        session = self._journal.create(cwd=new.cwd, model=new.model)
        with self._mutex:
            self._hold(session)
        self._tell(session, wait=True)  # the client may ask for it at once
        return BegunOut(session_uid(AGENT, session.id), session.tip)

    def _may_write(self) -> None:
        if self._context.is_read_only:
            raise NotAppendable(
                f"{self._context.home} is read-only",
                hint="make it writable, then restart the server",
            )
        if not self._context.writes:
            raise NotAppendable("recording is switched off", hint="unset THENCE_NO_PERSISTENCE")

    def _hold(self, session: Session) -> OpenSession:
        from thence.journal.idle import Idle
        from thence.journal.ids import now_text

        def close_idle() -> None:
            session.close("idle")
            with self._mutex:
                self._open_sessions.pop(session.id, None)
            opened.idle.close()
            self._tell(session)

        def answer_for_user(call: str) -> None:
            why = not_approved(context.approval_timeout)
            made = synthetic(session.id, call, ts=now_text(), prev_uuid=None, why=why)
            after = opened.asked.pop(call, None)
            session.record("user", made.payload, uuid=made.uuid, parent=after)
            self._tell(session)

        context = self._context
        idle = Idle(
            context.idle_timeout,
            context.approval_timeout,
            context.ticks,
            close_idle,
            answer_for_user,
        )
        opened = self._open_sessions[session.id] = OpenSession(session, idle)
        self._is_used.set()
        return opened

    def _open(self, name: str) -> OpenSession:
        """Return a session that is open here; one that is not is opened."""
        agent, _, native = name.rpartition(":")
        if agent not in ("", AGENT):
            raise NotWritable(f"{agent} writes its own sessions", hint="thence only reads them")
        with self._mutex:
            opened = self._open_sessions.get(native)
            if opened is not None:
                return opened
            # Checked before a path is made of it.
            if not layout.is_id(native) or not self._journal.has(native):
                raise SessionNotFound(
                    f"no recorded session {native[:64]!r}", hint="give the full id"
                )
            return self._hold(self._journal.resume(native, mode="continue"))

    # -- writing ------------------------------------------------------------------------

    def add(self, name: str, event: NewEvent) -> WrittenOut:
        """Add an event to a session."""
        self._may_write()
        opened = self._open(name)
        uid = session_uid(AGENT, opened.session.id)
        with opened.mutex:
            tip = opened.session.tip
            branched = event.expected_tip not in (None, tip)
            if event.type == "turn":
                self._ends(opened, event)
                written = WrittenOut(uid, None, opened.session.tip, branched=False)
            else:
                written = self._record(opened, uid, event, branched=branched)
        self._tell(opened.session, wait=True)
        return written

    def _record(
        self, opened: OpenSession, uid: str, event: NewEvent, *, branched: bool
    ) -> WrittenOut:
        payload = event.payload
        if event.type in ("user", "assistant"):
            payload = {**payload, "role": event.type}
        receipt = opened.session.record(
            event.type,
            payload,
            uuid=event.uuid,
            expected_tip=event.expected_tip,
            on_stale=event.on_stale,
        )
        self._time(opened, event)
        # A question for approval is nothing to speak after.
        tip = opened.session.tip if event.type == "waiting" else receipt.uuid
        return WrittenOut(uid, receipt.uuid, tip, branched or receipt.branched)

    def _time(self, opened: OpenSession, event: NewEvent) -> None:
        """Start and stop the timers that an event concerns."""
        if event.type == "waiting":
            call = event.payload.get("tool_use_id")
            if isinstance(call, str):
                # The first time counts: a client that repeats itself must not move it.
                opened.asked.setdefault(call, event.expected_tip or opened.session.tip)
                opened.idle.approval_asked(call)
        elif event.type == "user":
            answered = [block.get("tool_use_id") for block in blocks(event.payload.get("content"))]
            for call in answered:
                if isinstance(call, str) and opened.asked.pop(call, "") != "":
                    opened.idle.approval_answered(call)
            opened.idle.turn_started()
        elif event.type == "assistant":
            opened.idle.turn_started()
            if event.payload.get("stop_reason") not in (None, "tool_use", "pause_turn"):
                opened.session.flush()
                opened.idle.turn_ended()

    def _ends(self, opened: OpenSession, event: NewEvent) -> None:
        state = event.payload.get("state")
        opened.session.flush(state=state if state in _STATES else "done")
        opened.idle.turn_ended()

    def _tell(self, session: Session, *, wait: bool = False) -> None:
        """Import the session now, so that its followers and its writer see the event."""
        if session.transcript_path is not None and self._hub.sweeper is not None:
            swept = self._hub.sweeper.nudge([session.transcript_path])
            if wait:
                swept.wait(MAX_SWEEP_WAIT_S)


_STATES = ("done", "interrupted")


# -- handlers -------------------------------------------------------------------------------

HostedDependency = NamedDependency[HostedSessions]


@post("/api/sessions", sync_to_thread=True)
def begin(hosted: HostedDependency, data: JSONBody[NewSession]) -> BegunOut:
    """Begin a session of our own."""
    return hosted.create(data)


@post("/api/sessions/{uid:str}/events", sync_to_thread=True)
def add(hosted: HostedDependency, uid: FromPath[str], data: JSONBody[NewEvent]) -> WrittenOut:
    """Add an event to a session of our own; one that is stale becomes a branch, or 409."""
    return hosted.add(uid, data)


ROUTES: list[HTTPRouteHandler] = [begin, add]
