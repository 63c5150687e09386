"""The files beside Grok's log: telemetry, rewind points and documents.

`events.jsonl` says when the client waits for an approval and how long calls took; its records
keep the books and stand on no line. Documents are rewritten whole and only tell something of the
session. Invariants: nothing in them raises; they add no tokens, and a child's usage is told as a
share, never as this session's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from thence.agents.grok.file_facts import by_model, cost_of, usage_of
from thence.agents.records import LineReader, Record, fields, note, objects, text
from thence.format.codec import RawRecord
from thence.format.facts import Block, CallStatus, Edge, Fact, Share, handed_over_edges
from thence.format.nodes import PREVIOUS, Is, Node
from thence.format.normal import one_line
from thence.format.records import JSON, Usage, count, word

_FLAGS = {
    "permission_requested": Is.WAITS,
    "permission_resolved": Is.GOES_ON,
    "turn_started": Is.GOES_ON,
    "turn_ended": Is.GOES_ON,
}
_STATUS = {
    "turn_started": "running",
    "permission_requested": "waiting",
    "permission_resolved": "running",
    "turn_ended": "idle",
}
_OUTCOMES = {"error": True, "success": False}


class Telemetry(LineReader):
    """`events.jsonl`: turns, phases, approvals and durations."""

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Return one event that keeps the books."""
        value = entry.value
        kind = word(value.get("type")) or "unknown"
        yield self._fact(
            entry,
            Node(self._name(entry), PREVIOUS, Is.INTERNAL | _FLAGS.get(kind, 0)),
            kind,
            ts=text(value.get("ts")),
            blocks=(Block("lifecycle", "system", _line(kind, value), value),),
            told=_call_statuses(kind, value),
            about=_status(kind, value),
        )


def _line(kind: str, value: Record) -> str:
    names = ("phase", "outcome", "decision", "tool_name")
    what = next((value[name] for name in names if name in value), None)
    return one_line(f"{kind}: {what}") if isinstance(what, str) else kind


def _call_statuses(kind: str, value: Record) -> tuple[CallStatus, ...]:
    call = text(value.get("tool_call_id"))
    if kind != "tool_completed" or call is None:
        return ()
    took = value.get("duration_ms")
    failed = _OUTCOMES.get(word(value.get("outcome")))
    return (CallStatus(call, failed, took_ms=None if took is None else count(took)),)


def _status(kind: str, value: Record) -> Record:
    status = _STATUS.get(kind)
    if status is None:
        return {}
    waiting = word(value.get("tool_name")) if status == "waiting" else ""
    return {"status": status, "status:waiting_for": waiting}


class RewindPoints(LineReader):
    """`rewind_points.jsonl`: which files a prompt found and left; their contents stay there."""

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Return one event that keeps the books."""
        value = entry.value
        snapshot = {"prompt_index": value.get("prompt_index")}
        for name in ("file_snapshots", "after_snapshots"):
            snapshot[name] = sorted(fields(value.get(name)))
        line = f"files before prompt {count(value.get('prompt_index'))}"
        yield self._fact(
            entry,
            Node(self._name(entry), PREVIOUS, Is.INTERNAL),
            "rewind_point",
            ts=text(value.get("created_at")),
            blocks=(note(line, snapshot),),
        )


# -- documents ------------------------------------------------------------------------------

Stated = tuple[Record, tuple[Edge, ...]]
"""What a document says of the session, and the sessions that it ties to it."""


class GrokDocument(LineReader):
    """A JSON file that is rewritten whole."""

    def facts(self, entry: RawRecord) -> Iterator[Fact]:
        """Yield what it says of the session, if it says anything."""
        about, edges = DOCUMENTS.get(self._file.key, _child)(entry.value)
        stated = {n: value for n, value in about.items() if isinstance(value, (str, bool, dict))}
        if stated or edges:
            node = Node(self._name(entry))
            yield self._fact(entry, node, self._file.key, about=stated, edges=edges)


def _summary(value: Record) -> Stated:
    """The session's entry in the client's own list: title, place, model, kind and parent."""
    title = "title:custom" if value.get("title_is_manual") is True else "title:ai"
    about = {
        "cwd": fields(value.get("info")).get("cwd"),
        "git_branch": value.get("head_branch"),
        "git_root": value.get("git_root_dir"),
        "git_commit": value.get("head_commit"),
        "model": value.get("current_model_id"),
        "kind": value.get("session_kind"),
        "agent": value.get("agent_name"),
        "parent": value.get("parent_session_id"),
        "created_at": value.get("created_at"),
        title: value.get("generated_title"),
        "title:summary": value.get("session_summary"),
    }
    return about, _above(value)


def _above(value: Record) -> tuple[Edge, ...]:
    """The parent. A subagent's summary names one in some versions only."""
    parent = text(value.get("parent_session_id"))
    if parent is None:
        handoff = fields(value.get("thence_handoff"))
        return handed_over_edges(handoff.get("from"), handoff.get("event"))
    child = word(value.get("session_kind")) == "subagent"
    return (Edge("subagent" if child else "fork", parent, "its summary.json names the parent"),)


def _usage(value: Record) -> Stated:
    """The client's own total, with subagents and what a fork inherited: no bill of ours."""
    total = value.get("session")
    if not isinstance(total, dict):
        return {}, ()
    counts = {n: count(v) for n, v in total.items() if n.endswith(("Tokens", "Calls"))}
    return {"status:usage": counts}, ()


def _signals(value: Record) -> Stated:
    """How full the model's context is: an estimate, never a bill."""
    used, window = value.get("contextTokensUsed"), value.get("contextWindowTokens")
    context = {"tokens": count(used), "window": count(window)}
    return {"model": value.get("primaryModelId"), "status:context": context}, ()


def _context(value: Record) -> Stated:
    """Whether a human was there."""
    return {"automated": value.get("is_non_interactive")}, ()


def _child(value: Record) -> Stated:
    """A session that this one started."""
    child = text(value.get("child_session_id")) or text(value.get("subagent_id"))
    return {}, (Edge("subagent", child, "meta.json under subagents", child=True),) if child else ()


DOCUMENTS: dict[str, Callable[[Record], Stated]] = {
    "5-summary": _summary,
    "6-usage": _usage,
    "7-signals": _signals,
    "8-context": _context,
}


class ChildUsageDocument(LineReader):
    """The `usage.json` of a session that this one started."""

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Tell what the child was billed, turn by turn."""
        shares = tuple(_shares(word(entry.value.get("sessionId")), entry.value.get("turns")))
        if shares:
            yield self._fact(entry, Node(self._name(entry)), "child usage", shares=shares)


def _shares(session: str, turns: JSON) -> Iterator[Share]:
    for turn in objects(turns):
        ended = text(turn.get("endedAt"))
        for model, part in by_model(turn):
            calls = count(part.get("modelCalls"))
            usage = usage_of(part) or Usage()
            yield Share(session, usage, calls, ended, model, cost_of(part))
