"""Placeholders: what stands in a transcript for a result that was moved to a side file.

A placeholder says how much was moved and under which name, which is the SHA-256 of the bytes and
how they are written (`.txt`: the text, `.json`: blocks of another kind). Writer and readers share
this text and nothing else. Pure: `restore` and `texts_of` ask the caller for the bytes. Invariants:
a text that is a placeholder reads back as what it was made of; no name that could be a path passes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping

import msgspec

from thence.format.facts import WHOLE_OUTPUT, Block
from thence.format.records import JSON, word

PREVIEW = 2000
"""Characters of a spilled text that stay in view, most from its start and some from its end."""

SPILL = "spill"
"""In the payload of a note beside a result: the name of the side file that the whole output is."""

NOTE = "details"
"""The summary of such a note."""

NAME = re.compile(r"([0-9a-f]{64})\.(txt|json)")
"""Names of side files."""

_TEXT_FIELDS = {"type", "text", "cache_control"}
_PLACEHOLDER = re.compile(
    r"\[Spilled: (\d{1,18}) characters, (\d{1,18}) bytes, kept outside this conversation\. "
    r"To see all of it, ask for spill ([0-9a-f]{64}\.(?:txt|json)), named after its SHA-256\. "
    r"Preview:\]\n(.*)\n\[End of preview\]",
    re.DOTALL,
)

Load = Callable[["Spilled"], bytes | None]
"""Gives the bytes of a side file; None when they are not to be had."""


class Spilled(msgspec.Struct, frozen=True):
    """Something that was moved to a side file, as its placeholder tells it. FROZEN."""

    name: str
    hash: str
    size: int
    """Bytes of the side file."""
    characters: int
    preview: str


def placeholder(spilled: Spilled) -> str:
    """What the model sees in place of the content. FROZEN: it is read back from transcripts."""
    return (
        f"[Spilled: {spilled.characters} characters, {spilled.size} bytes, "
        f"kept outside this conversation. To see all of it, ask for spill {spilled.name}, "
        f"named after its SHA-256. Preview:]\n{spilled.preview}\n[End of preview]"
    )


def read(text: str) -> Spilled | None:
    """Read a text that is a placeholder and nothing else."""
    match = _PLACEHOLDER.fullmatch(text) if text.startswith("[Spilled: ") else None
    if match is None:
        return None
    characters, size, name, preview = match.groups()
    spilled = Spilled(name, name.partition(".")[0], int(size), int(characters), preview)
    return spilled if placeholder(spilled) == text else None


def spilled_in(content: JSON) -> list[Spilled]:
    """Read the placeholders back from recorded content, in order."""
    spills = (read(text) for item in items(content) if (text := plain_text(item)) is not None)
    return [spilled for spilled in spills if spilled is not None]


def items(content: JSON) -> list[JSON]:
    """Return content as a list: a bare value is its only item."""
    return content if isinstance(content, list) else [content]


def plain_text(item: JSON) -> str | None:
    """The text of a plain text block, or of a bare string; None for anything else."""
    if isinstance(item, str):
        return item
    if isinstance(item, dict) and item.get("type") == "text" and item.keys() <= _TEXT_FIELDS:
        text = item.get("text")
        return text if isinstance(text, str) else None
    return None


def restore(content: JSON, load: Load) -> JSON:
    """Return recorded content with everything that was spilled from it back in its place.

    What cannot be loaded stays as its placeholder.
    """
    if not isinstance(content, list):
        return _back(content, load)
    back = [_back(item, load) for item in content]
    # No block is a list: this one is the content itself.
    return back[0] if len(back) == 1 and isinstance(back[0], list) else back


def _back(item: JSON, load: Load) -> JSON:
    text = plain_text(item)
    spilled = None if text is None else read(text)
    data = load(spilled) if spilled is not None else None
    if spilled is None or data is None:
        return item
    if spilled.name.endswith(".json"):
        try:
            return value_of(data)
        except (ValueError, RecursionError):  # redacted, so that it is no JSON any more
            return {"type": "text", "text": data.decode("utf-8", "replace")}
    back = data.decode("utf-8", "surrogatepass")
    return back if isinstance(item, str) else {**item, "text": back}


def value_of(data: bytes) -> JSON:
    """Read the bytes of a `.json` side file."""
    try:
        return msgspec.json.decode(data)
    except ValueError:  # a lone surrogate or a number out of range: ours all the same
        return json.loads(data.decode("utf-8", "surrogatepass"))


# -- what readers know of them --------------------------------------------------------------


def note(spilled: Spilled, data: bytes, call: str | None) -> Block:
    """Return the note that stands beside a result and holds what was spilled from it."""
    text = data.decode("utf-8", "replace")
    return Block("lifecycle", "system", NOTE, {WHOLE_OUTPUT: text, SPILL: spilled.name}, call=call)


def text_in(payload: JSON, name: str) -> str | None:
    """Return the text that a note holds of the side file of this name; None for another's."""
    if not isinstance(payload, dict) or payload.get(SPILL) != name:
        return None
    text = payload.get(WHOLE_OUTPUT)
    return text if isinstance(text, str) else None


def texts(payloads: Iterable[JSON]) -> dict[str, str]:
    """Return what notes hold of spilled results, by the names of the side files."""
    out: dict[str, str] = {}
    for payload in payloads:
        name = word(payload.get(SPILL)) if isinstance(payload, dict) else ""
        if name and (text := text_in(payload, name)) is not None:
            out[name] = text
    return out


def inline_known(
    messages: Iterable[dict[str, JSON]], known: Mapping[str, str]
) -> list[dict[str, JSON]]:
    """Return messages whose results hold again what was spilled from them, as far as known."""
    return [
        {**message, "content": [_result_back(block, known) for block in items(message["content"])]}
        for message in messages
    ]


def resolve_placeholders(content: JSON, known: Mapping[str, str]) -> JSON:
    """Return a result with the texts of its placeholders in place, as far as they are known."""

    def load(spilled: Spilled) -> bytes | None:
        text = known.get(spilled.name)
        return None if text is None else text.encode("utf-8", "replace")

    return restore(content, load)


def _result_back(block: JSON, known: Mapping[str, str]) -> JSON:
    if not isinstance(block, dict) or block.get("type") != "tool_result":
        return block
    return {**block, "content": resolve_placeholders(block.get("content"), known)}
