"""What the first line of a rollout says, and how Codex spells usage. Pure.

A first line names the session, whom it comes from and what it goes on from; in the bare form of
2025 it is an id, a time and instructions, without a type.
"""

from __future__ import annotations

from thence.agents.codex.items import Item
from thence.format.facts import Base, Edge
from thence.format.records import JSON, Usage, count, word


def is_bare_head(value: Item) -> bool:
    """Whether an object is the first line of the bare form: an id, a time, the instructions."""
    return "type" not in value and "id" in value and "timestamp" in value


def head_of(value: Item) -> Item | None:
    """Return what a first line says of its session, in either form."""
    payload = value.get("payload")
    if value.get("type") == "session_meta" and isinstance(payload, dict):
        return payload
    return value if is_bare_head(value) else None


def base_of(meta: Item) -> Base | None:
    """Return what a rollout goes on from: a part of another one, by the last uuid of its name."""
    base = meta.get("history_base")
    if not isinstance(base, dict) or not isinstance(base.get("thread_id"), str):
        return None
    return Base(
        base["thread_id"],
        _as_offset(base.get("end_byte_offset")),
        _as_offset(base.get("end_ordinal_exclusive")),
    )


def _as_offset(value: JSON) -> int | None:
    good = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if good else None


def ties(meta: Item, *, own: tuple[str, str], segment: bool) -> tuple[Edge, ...]:
    """Whom a session comes from: the parent of a subagent, or what it was forked from.

    A later segment of a thread goes on from an earlier one of the same.
    """
    parent, how = _parent(meta)
    if parent and parent not in own:
        return (Edge("subagent", parent, how),)
    forked, base = word(meta.get("forked_from_id")), meta.get("history_base")
    how = "forked_from_id"
    if not forked and isinstance(base, dict) and not segment:
        forked, how = word(base.get("thread_id")), "history_base"
    return (Edge("fork", forked, how),) if forked and forked not in own else ()


def about_session(meta: Item) -> dict[str, JSON]:
    """Return what a first line says of its session."""
    git = meta.get("git")
    fields = {
        "cwd": meta.get("cwd"),
        "git_branch": git.get("branch") if isinstance(git, dict) else None,
        "version": meta.get("cli_version"),
        "originator": meta.get("originator"),
        "agent": meta.get("agent_nickname"),
    }
    return {name: value for name, value in fields.items() if isinstance(value, str) and value}


def _parent(meta: Item) -> tuple[str, str]:
    """Who spawned a subagent, and which field says so."""
    source = meta.get("source")
    subagent = source.get("subagent") if isinstance(source, dict) else None
    spawn = subagent.get("thread_spawn") if isinstance(subagent, dict) else None
    spawner = word(spawn.get("parent_thread_id")) if isinstance(spawn, dict) else ""
    if parent := word(meta.get("parent_thread_id")):
        return parent, "parent_thread_id"
    if spawner:
        return spawner, "source.subagent"
    if subagent is not None or meta.get("thread_source") == "subagent":
        return word(meta.get("session_id")), "session_id"
    return "", ""


def usage_of(value: JSON) -> Usage | None:
    """Read Codex's usage: its input includes what was read from the cache and written to it."""
    if not isinstance(value, dict):
        return None
    input_tokens = count(value.get("input_tokens"))
    cached = min(count(value.get("cached_input_tokens")), input_tokens)
    written = min(count(value.get("cache_write_input_tokens")), input_tokens - cached)
    return Usage(
        input_tokens - cached - written, count(value.get("output_tokens")), written, cached
    )
