"""The files beside Grok's log: telemetry, rewind points and documents.

`events.jsonl` says when the client waits for an approval and how long calls took; its records
keep the books and stand on no line. Documents are rewritten whole and only tell something of the
session. Invariants: nothing in them raises; they add no tokens, and a child's usage is told as a
share, never as this session's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from thence.agents.grok.file_facts import GrokReader, by_model, cost_of, usage_of
from thence.agents.records import Record, fields, note, objects, text
from thence.format.codec import RawRecord
from thence.format.facts import Block, CallStatus, Edge, Fact, Share, handed_over_edges
from thence.format.nodes import Is, Node
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


class Telemetry(GrokReader):
    """`events.jsonl`: turns, phases, approvals and durations."""

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Return one event that keeps the books."""
        value = entry.value
        kind = word(value.get("type")) or "unknown"
        yield self._fact(
            entry,
            self._books(entry, _FLAGS.get(kind, 0)),
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


class RewindPoints(GrokReader):
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
            self._books(entry),
            "rewind_point",
            ts=text(value.get("created_at")),
            blocks=(note(line, snapshot),),
        )


# -- documents ------------------------------------------------------------------------------


class GrokDocument(GrokReader):
    """A JSON file that is rewritten whole."""

    def _session_facts(
        self, entry: RawRecord, about: Record, edges: tuple[Edge, ...] = ()
    ) -> Iterator[Fact]:
        stated = {n: value for n, value in about.items() if isinstance(value, (str, bool, dict))}
        if stated or edges:
            node = Node(self._name(entry))
            yield self._fact(entry, node, self._file.key, about=stated, edges=edges)


class SummaryDocument(GrokDocument):
    """`summary.json`: the session's entry in the client's own list."""

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Tell title, place, model, kind and parent."""
        value = entry.value
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
        return self._session_facts(entry, about, _above(value))


def _above(value: Record) -> tuple[Edge, ...]:
    """The parent. A subagent's summary names one in some versions only."""
    parent = text(value.get("parent_session_id"))
    if parent is None:
        handoff = fields(value.get("thence_handoff"))
        return handed_over_edges(handoff.get("from"), handoff.get("event"))
    child = word(value.get("session_kind")) == "subagent"
    return (Edge("subagent" if child else "fork", parent, "its summary.json names the parent"),)


class UsageDocument(GrokDocument):
    """`usage.json`, as the client counts: with subagents, and with what a fork inherited."""

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Tell the client's own total, which is no bill of ours."""
        total = entry.value.get("session")
        if not isinstance(total, dict):
            return ()
        counts = {n: count(v) for n, v in total.items() if n.endswith(("Tokens", "Calls"))}
        return self._session_facts(entry, {"status:usage": counts})


class SignalsDocument(GrokDocument):
    """`signals.json`: counters, and how full the model's context is."""

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Tell the context: an estimate, never a bill."""
        value = entry.value
        used, window = value.get("contextTokensUsed"), value.get("contextWindowTokens")
        context = {"tokens": count(used), "window": count(window)}
        about = {"model": value.get("primaryModelId"), "status:context": context}
        return self._session_facts(entry, about)


class ContextDocument(GrokDocument):
    """`prompt_context.json`: whether a human was there."""

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Tell whether the session was automated."""
        return self._session_facts(entry, {"automated": entry.value.get("is_non_interactive")})


class ChildDocument(GrokDocument):
    """`subagents/<id>/meta.json`: a session that this one started."""

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Tell the tie."""
        value = entry.value
        child = text(value.get("child_session_id")) or text(value.get("subagent_id"))
        tie = (Edge("subagent", child, "meta.json under subagents", child=True),) if child else ()
        return self._session_facts(entry, {}, tie)


class ChildUsageDocument(GrokDocument):
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
