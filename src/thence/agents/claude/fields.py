"""Fields of Claude Code's records, read one by one; nothing raises."""

from __future__ import annotations

from hashlib import blake2b

from thence.agents.claude import text as texts
from thence.format.fact_assembly import MAX_UNDERSTATED_TOKENS
from thence.format.facts import Fact
from thence.format.nodes import Span
from thence.format.records import JSON, Usage, count, text_of, word

Record = dict[str, JSON]

_RECORD_KEYS = frozenset({"uuid", "sessionId", "leafUuid", "snapshot", "messageId", "agentId"})

MAX_REMEMBERED = 256  # names of one kind that are remembered; older ones are forgotten


def prompt_marks(fact: Fact) -> list[int]:
    """Return the `word_marks` of the prompt that a fact is; none when it is no prompt."""
    prompts = (block.summary for block in fact.blocks if block.kind == "user_msg")
    return texts.word_marks(next(prompts, ""))


def compaction_line(about: JSON) -> str:
    """Return the summary of a compaction's boundary."""
    metadata = about if isinstance(about, dict) else {}
    trigger, before, after = (
        metadata.get("trigger"),
        metadata.get("preTokens"),
        metadata.get("postTokens"),
    )
    line = f"compacted ({trigger})" if isinstance(trigger, str) else "compacted"
    if count(before):
        line += f", {count(before)} tokens"
        line += f" to {count(after)}" if count(after) else ""
    return line


def preserved_span(segment: JSON) -> Span | None:
    """Return the records that a compaction left in view; None unless it names all three ends."""
    if not isinstance(segment, dict):
        return None
    anchor, head, tail = (segment.get(f"{name}Uuid") for name in ("anchor", "head", "tail"))
    if not isinstance(anchor, str) or not isinstance(head, str) or not isinstance(tail, str):
        return None
    return Span(anchor, head, tail, relinks=True)


def error_text(record: Record) -> str:
    """Return the message of an error, in either shape."""
    error = record.get("error")
    return word(error.get("message")) if isinstance(error, dict) else word(error)


def automated_by(record: Record, content: JSON) -> Record | None:
    """Return what a prompt says of who started the session, if that was no person."""
    if isinstance(content, str) and len(content) < 200:
        if content == texts.WARMUP:
            return {"automated": "warmup"}
        probe = record.get("entrypoint") != "cli" and record.get("parentUuid") is None
        if probe and texts.command_line(content) == "/usage":
            return {"automated": "usage probe"}
    text = content if isinstance(content, str) else text_of(content)
    if texts.is_observer(text):
        return {"automated": "memory observer"}
    named = texts.parse_notification(text) if text.startswith("<task-notification>") else None
    return {f"agent:{named[0]}": named[1]} if named else None


def is_small_bill(usage: Usage | None) -> bool:
    """Return whether a bill is so small that it may be the one of a stream's start."""
    return usage is not None and usage.output_tokens <= MAX_UNDERSTATED_TOKENS


def remember(names: dict[str, str], name: str, value: str) -> None:
    """Add a name, or renew it; the oldest of too many is forgotten."""
    names.pop(name, None)
    names[name] = value
    if len(names) > MAX_REMEMBERED:
        del names[next(iter(names))]


def digest_of(text: str) -> str:
    """Return a short hash of a text."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def is_record(value: Record) -> bool:
    """Whether an object found on a damaged line is a record and not a part of one."""
    return isinstance(value.get("type"), str) and not _RECORD_KEYS.isdisjoint(value)
