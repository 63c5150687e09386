"""Content in the shape of the Gemini API, which two agents write: parts with text, calls, results.

Everything takes values of any shape and never raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from thence.agents.records import Record, answer, fields, image, objects, text, thought
from thence.format.facts import Block
from thence.format.normal import one_line
from thence.format.records import JSON, Usage, count, word

_MEDIA: Final = ("inlineData", "fileData")


def parts_of(content: JSON) -> list[Record]:
    """Return the parts of a message: a list, a single part, or a text."""
    if isinstance(content, str):
        return [{"text": content}]
    if isinstance(content, dict):
        return [content]
    if isinstance(content, list):
        return [{"text": item} if isinstance(item, str) else fields(item) for item in content]
    return []


def text_of_parts(content: JSON) -> str:
    """Return all text of a message; thoughts, calls and results left out."""
    texts = (part.get("text") for part in parts_of(content) if not part.get("thought"))
    return "\n".join(line for line in texts if isinstance(line, str))


def media(part: Record) -> Record | None:
    """Return an image or file of a message as the Messages API has it; None if it is neither."""
    inline = fields(part.get("inlineData"))
    if inline:
        return image(inline.get("mimeType"), inline.get("data"))
    named = fields(part.get("fileData"))
    uri = text(named.get("fileUri"))
    return {"type": "text", "text": uri} if uri else None


def answer_blocks(content: JSON) -> Iterator[Block]:
    """Yield the texts, thoughts and images of the model; calls are left to the reader."""
    for part in parts_of(content):
        words = text(part.get("text"))
        if words and part.get("thought"):
            yield thought(words)
        elif words:
            yield answer(words)
        elif (picture := media(part)) is not None:
            yield Block("assistant_msg", "assistant", "", picture)


def calls_in(content: JSON) -> Iterator[Record]:
    """Yield the function calls of a message."""
    for part in parts_of(content):
        if isinstance(part.get("functionCall"), dict):
            yield part["functionCall"]


def responses_in(content: JSON) -> Iterator[Record]:
    """Yield the function responses of a message."""
    for part in parts_of(content):
        if isinstance(part.get("functionResponse"), dict):
            yield part["functionResponse"]


def output_of(response: Record) -> tuple[JSON, bool]:
    """Return what a function gave, and whether it is an error."""
    value = response.get("response")
    outcome = fields(value)
    for name in ("output", "error"):
        if name in outcome:
            inner = outcome[name]
            return (inner if isinstance(inner, (str, list)) else [_as_text(inner)]), name == "error"
    pictures = [picture for part in objects(response.get("parts")) if (picture := media(part))]
    return (pictures or value if isinstance(value, str) else [_as_text(value)]), False


def _as_text(value: JSON) -> Record:
    if isinstance(value, str):
        return {"type": "text", "text": value}
    import msgspec

    try:
        return {"type": "text", "text": msgspec.json.encode(value).decode()}
    except (ValueError, TypeError, RecursionError, OverflowError):
        # Nested too deeply, or NaN: no text, but the event stays.
        return {"type": "text", "text": ""}


def usage_of_counts(counts: Record, names: tuple[str, str, str, str, str]) -> Usage | None:
    """Return a usage; `names` are those of input, output, cache, thoughts and total.

    Input includes the cache. Thoughts are part of the output for some providers and stand beside
    it for others: the total tells.
    """
    prompt_tokens, output, cached, thoughts, total = (count(counts.get(name)) for name in names)
    if not prompt_tokens and not output:
        return None
    if thoughts and total == prompt_tokens + output + thoughts:
        output += thoughts
    cached = min(cached, prompt_tokens)
    return Usage(prompt_tokens - cached, output, 0, cached)


def summary_blocks(history: JSON) -> tuple[Block, ...]:
    """Return a history that a compaction left: it goes to the model and is nobody's event."""
    out: list[Block] = []
    for message in objects(history):
        role = "assistant" if message.get("role") in ("model", "assistant") else "user"
        content = message.get("parts", message.get("content"))
        for part in parts_of(content):
            if words := word(part.get("text")):
                payload = {"type": "text", "text": words}
                out.append(Block("lifecycle", role, one_line(words), payload))
    return tuple(out)
