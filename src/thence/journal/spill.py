"""Large tool results moved to side files, and what stands in their place.

The transcript keeps a placeholder: a preview, the size and the hash, which is also the name of
the side file. Promises, each with a test: a side file is durable before its placeholder is handed
out; the whole content comes back exactly, verified by its hash; the same content in the same
state of the budget gives the same bytes; a placeholder in recorded content is always ours,
because a text that only looks like one is spilled itself. No name is made from content.

Text is kept as UTF-8 with lone surrogates passed through (`.txt`: any tool can show it), anything
else as JSON in the same encoding (`.json`). What would hardly get shorter stays where it is, over
the budget or not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

import msgspec

from thence.errors import ThenceError
from thence.format.records import INTERNAL, JSON, MESSAGES, Event
from thence.format.spills import (
    NAME,
    PREVIEW,
    Spilled,
    items,
    placeholder,
    plain_text,
    restore,
    spilled_in,
)
from thence.journal.blobs import Blobs
from thence.journal.log import DISK, Disk

BULKY_CHARS = 256
"""Characters from which a copied value is worth dropping. Ids, codes and short errors have less."""

KEPT_KEYS = frozenset(
    [
        "agentId",
        "agent_id",
        "diff",
        "error",
        "errors",
        "exitCode",
        "exit_code",
        "gitDiff",
        "hunks",
        "patch",
        "stderr",
        "structuredPatch",
        "structured_patch",
    ]
)
"""Fields of a result's copy that stay whatever they hold."""

COPIES = frozenset({"toolUseResult", "tool_use_result"})
"""Fields of a payload in which clients repeat a result."""

_JSON_PREVIEW_CHARS = 200
_SURROGATE = re.compile("[\ud800-\udfff]")
_encoder = msgspec.json.Encoder(decimal_format="number")


class Budget:
    """How much of the tools' results stays in the transcript."""

    per_result = 30_000
    """Characters of one result."""
    per_session = 2 << 20
    """Bytes of all results of a session together."""


class _Replacement(msgspec.Struct, frozen=True):
    """A spill that was decided on: what takes its place, and the bytes still to be written."""

    instead: JSON
    spilled: Spilled
    data: bytes


def _preview(text: str, most: int) -> str:
    """Shorten a text to its start and its end, without what has no UTF-8 form."""
    if len(text) > most:
        head, tail = most * 3 // 4, most // 4
        left_out = f"\n[… {len(text) - head - tail} characters left out …]\n"
        text = text[:head] + left_out + text[len(text) - tail :]
    return _SURROGATE.sub("\ufffd", text)


# -- content --------------------------------------------------------------------------------


def _measure(item: JSON) -> tuple[int, int]:
    """Count characters, and bytes as a log gives them back: two halves of a pair become one."""
    text = plain_text(item)
    if text is None:
        text = (_to_json(item) or b"").decode("utf-8", "surrogatepass")
    if _SURROGATE.search(text):
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return len(text), len(joined.encode())
    return len(text), len(text.encode())


def _to_json(value: JSON) -> bytes | None:
    """Write a value as JSON; None for what has no such form, which is left for the log to judge."""
    try:
        return _encoder.encode(value)
    except (UnicodeEncodeError, OverflowError, RecursionError, TypeError):
        # Surrogates or huge numbers: spelled out below.
        pass
    try:
        spelled = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return spelled.encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError, TypeError):  # no JSON at all: stays where it is
        return None


def inline_bytes(content: JSON) -> int:
    """Count the bytes that recorded content takes of the session's budget."""
    return sum(_measure(item)[1] for item in items(content))


# -- spill ----------------------------------------------------------------------------------


class Spill:
    """The side files of one session, and its budget.

    `inline_so_far` is the sum of `inline_bytes` over the results recorded before: with it, a
    resumed session decides as the first one would have. What is not in `folder` is looked for in
    `earlier`, where an older version wrote it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        earlier: Path | None = None,
        per_result: int = Budget.per_result,
        per_session: int = Budget.per_session,
        inline_so_far: int = 0,
        disk: Disk = DISK,
    ) -> None:
        self.inline_so_far = inline_so_far
        self._per_result = per_result
        self._per_session = per_session
        self._preview = min(PREVIEW, per_result // 4)
        self._blobs = {
            "txt": Blobs(folder, suffix=".txt", disk=disk),
            "json": Blobs(folder, suffix=".json", disk=disk),
        }
        self._earlier = None if earlier is None else Spill(earlier, disk=disk)

    def fit(self, content: JSON) -> tuple[JSON, list[Spilled]]:
        """Return the content to record, and what was spilled from it, by now on the disk.

        The largest blocks go first, until the rest fits; a list of many small ones goes whole.
        """
        parts = items(content)
        sizes = [_measure(item) for item in parts]
        quoted = [bool(spilled_in([item])) for item in parts]
        characters, size = sum(size[0] for size in sizes), sum(size[1] for size in sizes)
        moved: dict[int, _Replacement] = {}
        for at in sorted(range(len(parts)), key=lambda at: (not quoted[at], -sizes[at][0], at)):
            if not quoted[at] and not self._over(characters, size):
                break
            replacement = self._move(parts[at], must=quoted[at])
            if replacement is not None:
                moved[at] = replacement
                less = _measure(replacement.instead)
                characters += less[0] - sizes[at][0]
                size += less[1] - sizes[at][1]
        recorded = [moved[at].instead if at in moved else item for at, item in enumerate(parts)]
        if isinstance(content, list) and self._over(characters, size):
            all_of_it = self._move_json(content)
            if all_of_it is not None:
                moved, recorded = {0: all_of_it}, [all_of_it.instead]
        self._keep(moved.values())
        self.inline_so_far += inline_bytes(recorded)
        spilled = [moved[at].spilled for at in sorted(moved)]
        return recorded if isinstance(content, list) else recorded[0], spilled

    def _over(self, characters: int, size: int) -> bool:
        return characters > self._per_result or self.inline_so_far + size > self._per_session

    def _move(self, item: JSON, *, must: bool) -> _Replacement | None:
        """Decide what takes an item's place; None when it stays."""
        text = plain_text(item)
        if text is not None:
            data = text.encode("utf-8", "surrogatepass")
            spilled = _describe_spill(data, "txt", text, self._preview)
            instead = placeholder(spilled)
            if must or 2 * len(instead) <= len(text):
                block = instead if isinstance(item, str) else {**item, "text": instead}
                return _Replacement(block, spilled, data)
            return None
        return self._move_json(item) if isinstance(item, dict) else None

    def _move_json(self, value: JSON) -> _Replacement | None:
        data = _to_json(value)
        if data is None:
            return None
        text = data.decode("utf-8", "surrogatepass")
        spilled = _describe_spill(data, "json", text, min(_JSON_PREVIEW_CHARS, self._preview))
        instead = placeholder(spilled)
        if 2 * len(instead) > len(text):
            return None
        return _Replacement({"type": "text", "text": instead}, spilled, data)

    def _keep(self, moved: Iterable[_Replacement]) -> None:
        used = set()
        for item in moved:
            blobs = self._blobs[item.spilled.name.rpartition(".")[2]]
            blobs.add([item.data])
            used.add(blobs)
        for blobs in used:
            blobs.sync()

    def load(self, spilled: Spilled | str) -> bytes:
        """Read a side file, named by its placeholder or by its name; verified by its hash."""
        name = spilled if isinstance(spilled, str) else spilled.name
        size = None if isinstance(spilled, str) else spilled.size
        match = NAME.fullmatch(name)
        if match is None:
            raise ThenceError(
                f"not the name of a spill: {name[:80]!r}", hint="placeholders contain the names"
            )
        try:
            return self._blobs[match[2]].load(match[1], size)
        except ThenceError:
            if self._earlier is None:
                raise
            return self._earlier.load(spilled)

    def restore(self, content: JSON) -> JSON:
        """Return recorded content with everything that was spilled from it back in its place."""
        return restore(content, self.load)

    def record(self, kind: str, payload: JSON) -> JSON:
        """Return the payload to record of an event: results over the budget in side files.

        Of the copy of a result that some clients add, what stands in the result as well goes.
        The budget is that of what the model sees: results under other types take none of it.
        """
        if not has_results(kind, payload):
            return payload
        before = self.inline_so_far
        if payload.get("type") == "tool_result":
            recorded = {**payload, "content": self.fit(payload["content"])[0]}
        else:
            content = payload["content"]
            fitted = [
                {**block, "content": self.fit(block["content"])[0]} if _is_result(block) else block
                for block in content
            ]
            recorded = _slim_payload(payload, content) | {"content": fitted}
        if kind not in MESSAGES:
            self.inline_so_far = before
        return payload if recorded == payload else recorded

    def recount(self, chain: Iterable[Event]) -> None:
        """Count the results of what the model sees: a compaction gives their room back."""
        self.inline_so_far = sum(
            inline_bytes(block["content"]) for event in chain for block in _results(event.fields)
        )


def has_results(kind: str, payload: JSON) -> bool:
    """Whether an event of this type may have something to spill."""
    return isinstance(payload, dict) and kind not in INTERNAL and bool(_results(payload))


def _results(payload: JSON) -> list[dict[str, JSON]]:
    """The results in a payload: blocks of its content, or the payload itself."""
    if _is_result(payload):
        return [payload]
    content = payload.get("content")
    return [b for b in content if _is_result(b)] if isinstance(content, list) else []


def _is_result(block: JSON) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result" and "content" in block


def _slim_payload(payload: dict[str, JSON], content: JSON) -> dict[str, JSON]:
    """Return a payload whose copies of results hold only what the results do not."""
    out = dict(payload)
    for name in COPIES & payload.keys():
        left = slim(payload[name], [block for block in content if _is_result(block)])
        if left is None:
            del out[name]
        else:
            out[name] = left
    return out


def _describe_spill(data: bytes, kind: str, text: str, most: int) -> Spilled:
    key = sha256(data).hexdigest()
    return Spilled(f"{key}.{kind}", key, len(data), len(text), _preview(text, most))


# -- copies ---------------------------------------------------------------------------------


def slim(result: JSON, blocks: JSON) -> JSON:
    """Drop from a result's second copy the long texts that stand in its tool_result as well.

    Give the blocks as they were before `fit`. Only equal values go (of the long texts in real
    clients' logs that stand in the blocks at all, 98 % are equal to a whole one); numbers, ids,
    errors and diffs stay. What is left is a copy; nothing given is changed.
    """
    long_texts = {text for text in _texts(blocks) if len(text) >= BULKY_CHARS}
    if isinstance(result, str):
        failed = any(isinstance(b, dict) and b.get("is_error") for b in items(blocks))
        return None if result in long_texts and not failed else result
    out = [result]
    todo: list[tuple[JSON, JSON]] = [(out, 0)]
    while todo:
        into, at = todo.pop()
        value = into[at]
        if isinstance(value, dict):
            into[at] = slimmed = {
                name: inner
                for name, inner in value.items()
                if name in KEPT_KEYS or not isinstance(inner, str) or inner not in long_texts
            }
            todo += [(slimmed, name) for name in slimmed if name not in KEPT_KEYS]
        elif isinstance(value, list):
            into[at] = list(value)
            todo += [(into[at], index) for index in range(len(value))]
    return out[0]


def _texts(value: JSON) -> Iterator[str]:
    """Every text in a value, however deep."""
    todo = [value]
    while todo:
        part = todo.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            todo += part.values()
        elif isinstance(part, list):
            todo += part
