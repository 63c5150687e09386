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
from thence.journal import Journal, Session
from thence.journal.idle import Idle
from thence.journal.ids import now_text

if TYPE_CHECKING:
    from thence.serve.desk import Desk
    from thence.serve.live import Hub

AGENT: Final = "thence"
LOOK: Final = 0.25
"""Seconds between two looks at the timers."""
SEEN: Final = 2.0
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


class NotOurs(ThenceError):
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


class Begun(msgspec.Struct, frozen=True):
    """A session that can be written to."""

    session_uid: str
    tip: str | None


class Written(msgspec.Struct, frozen=True):
    """An event is in the log."""

    session_uid: str
    uuid: str | None
    """Null when a turn was ended, which is no event to speak after."""
    tip: str | None
    """The event to speak after next."""
    branched: bool
    """The session had gone on: this is a branch."""


class Held:
    """A session that is open here."""

    def __init__(self, session: Session, idle: Idle) -> None:
        self.session = session
        self.idle = idle
        self.asked: dict[str, str | None] = {}
        """Calls that wait for approval, and the events after which they were asked."""
        self.mutex = threading.RLock()


class Hosted:
    """All sessions that are open here."""

    def __init__(self, desk: Desk, hub: Hub) -> None:
        self._desk = desk
        self._hub = hub
        self._journal = Journal(desk.home, enabled=desk.writes)
        self._held: dict[str, Held] = {}
        self._mutex = threading.RLock()
        self._stop = threading.Event()
        self._is_used = threading.Event()
        """Whether a session was opened here: before that there are no timers."""
        self._thread = threading.Thread(target=self._run, name="thence-hosted", daemon=True)

    # -- living -------------------------------------------------------------------------

    def start(self) -> None:
        """Let the timers run."""
        self._thread.start()

    def stop(self) -> None:
        """Stop them, and close what is open."""
        self._stop.set()
        self._is_used.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._mutex:
            for held in self._held.values():
                held.idle.close()
                held.session.close("server ended")
            self._held.clear()

    def _run(self) -> None:
        self._is_used.wait()
        while not self._stop.wait(LOOK):
            try:
                self.poll()
            except Exception:  # noqa: BLE001 - the timers of the others must go on
                _log.exception("hosted.failed")

    def poll(self) -> None:
        """Do what is due: close who rests, answer for who does not."""
        with self._mutex:
            held = list(self._held.values())
        for one in held:
            with one.mutex:
                one.idle.poll()

    # -- opening ------------------------------------------------------------------------

    def create(self, new: NewSession) -> Begun:
        """Begin a session."""
        self._may_write()
        session = self._journal.create(cwd=new.cwd, model=new.model)
        with self._mutex:
            self._hold(session)
        self._tell(session, wait=True)
        return Begun(session_uid(AGENT, session.id), session.tip)

    def _may_write(self) -> None:
        if self._desk.is_read_only:
            raise NotAppendable(
                f"{self._desk.home} is read-only", hint="make it writable, then restart the server"
            )
        if not self._desk.writes:
            raise NotAppendable("recording is switched off", hint="unset THENCE_NO_PERSISTENCE")

    def _hold(self, session: Session) -> Held:
        def rested() -> None:
            session.close("idle")
            with self._mutex:
                self._held.pop(session.id, None)
            held.idle.close()
            self._tell(session)

        def unanswered(call: str) -> None:
            why = not_approved(desk.approval_timeout)
            made = synthetic(session.id, call, ts=now_text(), prev_uuid=None, why=why)
            after = held.asked.pop(call, None)
            session.record("user", made.payload, uuid=made.uuid, parent=after)
            self._tell(session)

        desk = self._desk
        idle = Idle(desk.idle_timeout, desk.approval_timeout, desk.ticks, rested, unanswered)
        held = self._held[session.id] = Held(session, idle)
        self._is_used.set()
        return held

    def _open(self, name: str) -> Held:
        """Give a session that is open here, or go on with one that is not."""
        agent, _, native = name.rpartition(":")
        if agent not in ("", AGENT):
            raise NotOurs(f"{agent} writes its own sessions", hint="thence only reads them")
        with self._mutex:
            held = self._held.get(native)
            if held is not None:
                return held
            if not layout.is_id(native) or not self._journal.has(native):
                raise SessionNotFound(
                    f"no recorded session {native[:64]!r}", hint="give the full id"
                )
            return self._hold(self._journal.resume(native, mode="continue"))

    # -- writing ------------------------------------------------------------------------

    def add(self, name: str, event: NewEvent) -> Written:
        """Add an event to a session."""
        self._may_write()
        if event.type in ("user", "assistant"):
            _check(event)
        held = self._open(name)
        uid = session_uid(AGENT, held.session.id)
        with held.mutex:
            tip = held.session.tip
            branched = event.expected_tip not in (None, tip)
            if event.type == "turn":
                self._ends(held, event)
                written = Written(uid, None, held.session.tip, branched=False)
            else:
                written = self._record(held, uid, event, branched=branched)
        self._tell(held.session, wait=True)
        return written

    def _record(self, held: Held, uid: str, event: NewEvent, *, branched: bool) -> Written:
        payload = event.payload
        if event.type in ("user", "assistant"):
            payload = {**payload, "role": event.type}
        receipt = held.session.record(
            event.type,
            payload,
            uuid=event.uuid,
            expected_tip=event.expected_tip,
            on_stale=event.on_stale,
        )
        self._time(held, event)
        tip = held.session.tip if event.type == "waiting" else receipt.uuid
        return Written(uid, receipt.uuid, tip, branched)

    def _time(self, held: Held, event: NewEvent) -> None:
        """Let the timers know."""
        if event.type == "waiting":
            call = event.payload.get("tool_use_id")
            if isinstance(call, str):
                held.asked.setdefault(call, event.expected_tip or held.session.tip)
                held.idle.approval_asked(call)
        elif event.type == "user":
            answered = [one.get("tool_use_id") for one in blocks(event.payload.get("content"))]
            for call in answered:
                if isinstance(call, str) and held.asked.pop(call, "") != "":
                    held.idle.approval_answered(call)
            held.idle.turn_started()
        elif event.type == "assistant":
            held.idle.turn_started()
            if event.payload.get("stop_reason") not in (None, "tool_use", "pause_turn"):
                held.session.flush()
                held.idle.turn_ended()

    def _ends(self, held: Held, event: NewEvent) -> None:
        state = event.payload.get("state")
        held.session.flush(state=state if state in _STATES else "done")
        held.idle.turn_ended()

    def _tell(self, session: Session, *, wait: bool = False) -> None:
        """Have it swept now, so that who follows it sees it, and who wrote it reads it."""
        if session.transcript_path is not None and self._desk.sweeps is not None:
            kept = self._hub.sweeper.nudge([session.transcript_path])
            if wait:
                kept.wait(SEEN)


_STATES = ("done", "interrupted")


def _check(event: NewEvent) -> None:
    """Refuse a message that no model could have said or heard."""
    content = event.payload.get("content")
    if not isinstance(content, str | list):
        raise ThenceError(
            f"a {event.type} event needs content", hint='{"content": "text"}, or a list of blocks'
        )


# -- handlers -------------------------------------------------------------------------------

AtHosted = NamedDependency[Hosted]


@post("/api/sessions", sync_to_thread=True)
def begin(hosted: AtHosted, data: JSONBody[NewSession]) -> Begun:
    """Begin a session of our own."""
    return hosted.create(data)


@post("/api/sessions/{uid:str}/events", sync_to_thread=True)
def add(hosted: AtHosted, uid: FromPath[str], data: JSONBody[NewEvent]) -> Written:
    """Add an event to a session of our own; one that is stale becomes a branch, or 409."""
    return hosted.add(uid, data)


ROUTES: list[HTTPRouteHandler] = [begin, add]
