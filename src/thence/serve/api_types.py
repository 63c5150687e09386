"""What the API answers with: a struct for each thing, which is also its OpenAPI."""

from __future__ import annotations

import msgspec

from thence.format.normal import Session, SessionEvent
from thence.format.outcomes import CallOutcome
from thence.format.records import JSON
from thence.memory import retention, session_status
from thence.memory.budgets import BudgetUse
from thence.memory.cost_totals import By, Unpriced
from thence.memory.notes import Note
from thence.memory.patterns import Pattern
from thence.memory.search import Hit, How


class SessionOut(Session, frozen=True, kw_only=True):
    """A session: what its log says, where it stands, and what it took."""

    title: str | None = None
    turn: str | None = None
    standing: session_status.Standing | None = None
    usd: dict[str, float] = msgspec.field(default_factory=dict)
    """By where it went: live, dead, side."""
    unpriced_tokens: int = 0
    lower_bound: list[str] = msgspec.field(default_factory=list)
    events: int = 0
    states: dict[str, int] = msgspec.field(default_factory=dict)
    skipped: int = 0
    source_gone: bool = False
    pinned: bool = False
    tags: list[str] = msgspec.field(default_factory=list)
    """What the user tagged it with."""
    origin: str = ""
    """Where it comes from, in words: a file, another machine; empty for this machine."""


class Sessions(msgspec.Struct, frozen=True):
    """One page of sessions."""

    sessions: list[SessionOut]
    total: int
    """All that fit, on all pages."""
    cursor: str | None = None
    """Gives the next page; null on the last one."""


class RelatedSession(msgspec.Struct, frozen=True):
    """A session that this one comes from, or that comes from it."""

    link: str
    session_uid: str
    child: bool
    how: str
    event: str | None = None


class AgentOut(msgspec.Struct, frozen=True):
    """A subagent of a session."""

    agent: str
    events: int
    session_uid: str
    """The session that holds what it said: the same one, or one of its own."""


class SessionDetail(msgspec.Struct, frozen=True):
    """All that is known of a session but what was said in it."""

    session: SessionOut
    change: int
    """Grows with everything that is written of it."""
    ties: list[RelatedSession]
    agents: list[AgentOut]
    digest: dict[str, JSON] | None
    notices: list[str]
    notes: list[Note] = []
    """Decisions and notes that belong to it."""


class EventOut(SessionEvent, frozen=True, omit_defaults=False, kw_only=True):
    """One event, the short name that pages give it, and how it went if it is a call."""

    name: str = ""
    outcome: CallOutcome | None = None


class Border(msgspec.Struct, frozen=True):
    """How many events of a chain stand in a session that this one continues."""

    session_uid: str
    events: int


class EventsOut(msgspec.Struct, frozen=True):
    """One page of events."""

    events: list[EventOut]
    total: int
    change: int
    cursor: str | None = None
    continued_from: list[Border] = []
    """Sessions whose events stand at the beginning of the chain, the oldest first."""


class MessagesOut(msgspec.Struct, frozen=True):
    """A chain as messages that a model API accepts."""

    messages: list[JSON]
    change: int


class ProjectOut(msgspec.Struct, frozen=True):
    """A folder that agents worked in."""

    project: str
    """Its id: the folder's name and a hash of its path."""
    path: str
    sessions: int
    usd: float
    dead_usd: float
    unpriced_tokens: int
    is_lower_bound: bool


class Projects(msgspec.Struct, frozen=True):
    """All projects, the costliest first."""

    projects: list[ProjectOut]


class AgentSession(msgspec.Struct, frozen=True):
    """What one subagent did."""

    project: str
    agent: str
    session_uid: str
    events: list[EventOut]
    total: int
    cursor: str | None = None


class SearchOut(msgspec.Struct, frozen=True):
    """Answers to a search; `⟦` and `⟧` stand around what was looked for in a snippet."""

    hits: list[Hit]
    total: int
    """Matches in all, in so many `sessions`; at least that where it is `capped`."""
    sessions: int
    capped: bool
    """The search stopped before all of the store was searched."""
    searched_back_to: str | None
    cursor: str | None = None
    notes: list[Note] = []
    """Decisions and notes that match, on the first page."""
    how: How = "all"
    """By all words, by any of them, by words near to those that were typed, or by filters alone."""
    explanation: str = ""
    """How it was found, in words; empty where that goes without saying."""
    hints: tuple[str, ...] = ()
    """What to say of the question itself: names of filters that are none."""


class ToolOut(msgspec.Struct, frozen=True):
    """How often a tool was called."""

    tool: str
    calls: int
    failed: int


class ChangedFileOut(msgspec.Struct, frozen=True):
    """A file that sessions changed."""

    folder: str
    path: str
    edits: int
    sessions: int


class WorkOut(msgspec.Struct, frozen=True):
    """What sessions did: all tools and all files that they changed, the most used first."""

    tools: list[ToolOut]
    files: list[ChangedFileOut]


class Digests(msgspec.Struct, frozen=True):
    """One page of digests, each with its `uid`."""

    digests: list[dict[str, JSON]]
    cursor: str | None = None


class SignalsOut(msgspec.Struct, frozen=True):
    """One page of signals, each with its `uid`."""

    signals: list[dict[str, JSON]]
    cursor: str | None = None


class Patterns(msgspec.Struct, frozen=True):
    """What comes back in many sessions."""

    sessions: int
    patterns: list[Pattern]


class TokensOut(msgspec.Struct, frozen=True):
    """Tokens by what was done with them."""

    input: int
    output: int
    cache: int


class Sum(msgspec.Struct, frozen=True):
    """What was spent; `usd` is null where no price is known."""

    sessions: int
    responses: int
    usd: float | None
    live_usd: float
    dead_usd: float
    subagents_usd: float
    unpriced_tokens: int
    is_lower_bound: bool
    """Usage or prices are missing: the money is a minimum."""
    tokens: TokensOut


class CostPart(Sum, frozen=True, kw_only=True):
    """A day's, a model's, a project's, an agent's or a session's share."""

    key: str | None


class LowerBoundReason(msgspec.Struct, frozen=True):
    """Why the sum of a session is a lower bound."""

    session_uid: str
    why: list[str]


class CostsOut(msgspec.Struct, frozen=True):
    """What was spent, by one thing."""

    by: By
    parts: list[CostPart]
    total: Sum
    lower_bounds: list[LowerBoundReason]
    unpriced: list[Unpriced] = []
    """Tokens without a known price, by model."""
    tz: str = "UTC"
    """The zone of days."""


class PlanOut(msgspec.Struct, frozen=True):
    """What would go to keep the caps, and why."""

    usage_before: int
    usage_after: int
    items: list[retention.PlannedRemoval]


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """Something that went, when, and why."""

    at: str | None
    what: str
    uid: str
    bytes: int = 0
    why: str = ""


class StoreOut(msgspec.Struct, frozen=True):
    """How full the store is, against its caps, and how it is doing."""

    sessions: int
    evicted: int
    not_analysed: int
    raw_bytes: int
    distilled_bytes: int
    policy: retention.Policy
    skipped: int
    """Lines that could not be read, in all sessions."""
    sessions_with_skips: int
    sources_gone: int
    """Sessions whose agent has deleted them: the store has all there is."""
    pending: bool
    """An eviction is not in every page yet."""
    to_be_repacked: int
    forgotten: int
    redacted: dict[str, int]
    """Secrets that were taken out before anything was stored, by rule."""
    more_redacted: bool
    """There may be more: of one session at most 1,000 are told apart."""
    removals: list[Removal]
    """The last ones, the newest first."""


class RiskOut(msgspec.Struct, frozen=True):
    """A session that its agent deletes soon, and that is not kept as it is now."""

    session_uid: str
    path: str
    bytes: int
    deleted_in_days: float
    is_stored: bool = msgspec.field(name="kept")


class UnreadOut(msgspec.Struct, frozen=True):
    """What is there of an agent and is not read."""

    agent: str
    kind: str
    count: int
    why: str
    path: str


class NowOut(msgspec.Struct, frozen=True):
    """What needs somebody, what goes on, what it takes today."""

    waiting: list[SessionOut]
    running: list[SessionOut]
    idle: list[SessionOut]
    waiting_for: dict[str, str]
    """What agents say that they wait for, by session."""
    at_risk: list[RiskOut]
    today: Sum
    week: Sum
    budgets: list[BudgetUse] = []
    """Budgets, and what was spent of them today."""
    lost: dict[str, str] = {}
    """Sessions that were removed before a digest covered all of them, and why."""
    not_read: list[UnreadOut] = []
    """What the last sweep came upon and did not read."""
