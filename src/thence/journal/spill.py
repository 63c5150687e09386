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
from thence.format.records import JSON
from thence.journal.blobs import Blobs
from thence.journal.log import DISK, Disk

PREVIEW = 2000
"""Characters of a spilled text that stay in view, most from its start and some from its end."""

BULKY = 256
"""Characters from which a copied value is worth dropping. Ids, codes and short errors have less."""

KEPT = frozenset(
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

_JSON_PREVIEW = 200
_TEXT_FIELDS = {"type", "text", "cache_control"}
_SURROGATE = re.compile("[\ud800-\udfff]")
_NAME = re.compile(r"([0-9a-f]{64})\.(txt|json)")
_PLACEHOLDER = re.compile(
    r"\[Spilled: (\d{1,18}) characters, (\d{1,18}) bytes, kept outside this conversation\. "
    r"To see all of it, ask for spill ([0-9a-f]{64}\.(?:txt|json)), named after its SHA-256\. "
    r"Preview:\]\n(.*)\n\[End of preview\]",
    re.DOTALL,
)
_encoder = msgspec.json.Encoder(decimal_format="number")


class Budget:
    """How much of the tools' results stays in the transcript."""

    per_result = 30_000
    """Characters of one result."""
    per_session = 2 << 20
    """Bytes of all results of a session together."""


class Spilled(msgspec.Struct, frozen=True):
    """Something that was moved to a side file, as its placeholder tells it. FROZEN."""

    name: str
    hash: str
    size: int
    """Bytes of the side file."""
    characters: int
    preview: str


class _Moved(msgspec.Struct, frozen=True):
    """A spill that was decided on: what takes its place, and the bytes still to be written."""

    instead: JSON
    spilled: Spilled
    data: bytes


# -- placeholders ---------------------------------------------------------------------------


def placeholder(spilled: Spilled) -> str:
    """What the model sees in place of the content. FROZEN: it is read back from transcripts."""
    return (
        f"[Spilled: {spilled.characters} characters, {spilled.size} bytes, "
        f"kept outside this conversation. To see all of it, ask for spill {spilled.name}, "
        f"named after its SHA-256. Preview:]\n{spilled.preview}\n[End of preview]"
    )


def spilled_in(content: JSON) -> list[Spilled]:
    """Read the placeholders back from recorded content, in order."""
    read = (_read(text) for item in _items(content) if (text := _text(item)) is not None)
    return [spilled for spilled in read if spilled is not None]


def _read(text: str) -> Spilled | None:
    """Read a text that is a placeholder and nothing else."""
    match = _PLACEHOLDER.fullmatch(text)
    if match is None:
        return None
    characters, size, name, preview = match.groups()
    spilled = Spilled(name, name.partition(".")[0], int(size), int(characters), preview)
    return spilled if placeholder(spilled) == text else None


def _preview(text: str, most: int) -> str:
    """Shorten a text to its start and its end, without what has no UTF-8 form."""
    if len(text) > most:
        head, tail = most * 3 // 4, most // 4
        left_out = f"\n[… {len(text) - head - tail} characters left out …]\n"
        text = text[:head] + left_out + text[len(text) - tail :]
    return _SURROGATE.sub("\ufffd", text)


# -- content --------------------------------------------------------------------------------


def _items(content: JSON) -> list[JSON]:
    return content if isinstance(content, list) else [content]


def _text(item: JSON) -> str | None:
    """The text of a plain text block, or of a bare string; None for anything else."""
    if isinstance(item, str):
        return item
    if isinstance(item, dict) and item.get("type") == "text" and item.keys() <= _TEXT_FIELDS:
        text = item.get("text")
        return text if isinstance(text, str) else None
    return None


def _measure(item: JSON) -> tuple[int, int]:
    """Count characters, and bytes as a log gives them back: two halves of a pair become one."""
    text = _text(item)
    if text is None:
        text = (_written(item) or b"").decode("utf-8", "surrogatepass")
    if _SURROGATE.search(text):
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return len(text), len(joined.encode())
    return len(text), len(text.encode())


def _written(value: JSON) -> bytes | None:
    """Write a value as JSON; None for what has no such form, which is left for the log to judge."""
    try:
        return _encoder.encode(value)
    except (UnicodeEncodeError, OverflowError, RecursionError, TypeError):
        pass
    try:
        spelled = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return spelled.encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError, TypeError):
        return None


def inline_bytes(content: JSON) -> int:
    """Count the bytes that recorded content takes of the session's budget."""
    return sum(_measure(item)[1] for item in _items(content))


# -- spill ----------------------------------------------------------------------------------


class Spill:
    """The side files of one session, and its budget.

    `inline_so_far` is the sum of `inline_bytes` over the results recorded before: with it, a
    resumed session decides as the first one would have.
    """

    def __init__(
        self,
        folder: Path,
        *,
        per_result: int = Budget.per_result,
        per_session: int = Budget.per_session,
        inline_so_far: int = 0,
        disk: Disk = DISK,
    ) -> None:
        self.inline_so_far = inline_so_far
        self._per_result = per_result
        self._per_session = per_session
        self._preview = min(PREVIEW, per_result // 4)
        self._kept = {
            "txt": Blobs(folder, suffix=".txt", disk=disk),
            "json": Blobs(folder, suffix=".json", disk=disk),
        }

    def fit(self, content: JSON) -> tuple[JSON, list[Spilled]]:
        """Give the content to record, and what was spilled from it, by now on the disk.

        The largest blocks go first, until the rest fits; a list of many small ones goes whole.
        """
        items = _items(content)
        sizes = [_measure(item) for item in items]
        quoted = [bool(spilled_in([item])) for item in items]
        characters, size = sum(size[0] for size in sizes), sum(size[1] for size in sizes)
        moved: dict[int, _Moved] = {}
        for at in sorted(range(len(items)), key=lambda at: (not quoted[at], -sizes[at][0], at)):
            if not quoted[at] and not self._over(characters, size):
                break
            one = self._move(items[at], must=quoted[at])
            if one is not None:
                moved[at] = one
                less = _measure(one.instead)
                characters += less[0] - sizes[at][0]
                size += less[1] - sizes[at][1]
        recorded = [moved[at].instead if at in moved else item for at, item in enumerate(items)]
        if isinstance(content, list) and self._over(characters, size):
            whole = self._move_json(content)
            if whole is not None:
                moved, recorded = {0: whole}, [whole.instead]
        self._keep(moved.values())
        self.inline_so_far += inline_bytes(recorded)
        spilled = [moved[at].spilled for at in sorted(moved)]
        return recorded if isinstance(content, list) else recorded[0], spilled

    def _over(self, characters: int, size: int) -> bool:
        return characters > self._per_result or self.inline_so_far + size > self._per_session

    def _move(self, item: JSON, *, must: bool) -> _Moved | None:
        """Decide what takes an item's place; None when it stays."""
        text = _text(item)
        if text is not None:
            data = text.encode("utf-8", "surrogatepass")
            spilled = _spilled(data, "txt", text, self._preview)
            instead = placeholder(spilled)
            if must or 2 * len(instead) <= len(text):
                block = instead if isinstance(item, str) else {**item, "text": instead}
                return _Moved(block, spilled, data)
            return None
        return self._move_json(item) if isinstance(item, dict) else None

    def _move_json(self, value: JSON) -> _Moved | None:
        data = _written(value)
        if data is None:
            return None
        text = data.decode("utf-8", "surrogatepass")
        spilled = _spilled(data, "json", text, min(_JSON_PREVIEW, self._preview))
        instead = placeholder(spilled)
        if 2 * len(instead) > len(text):
            return None
        return _Moved({"type": "text", "text": instead}, spilled, data)

    def _keep(self, moved: Iterable[_Moved]) -> None:
        used = set()
        for one in moved:
            kept = self._kept[one.spilled.name.rpartition(".")[2]]
            kept.add([one.data])
            used.add(kept)
        for kept in used:
            kept.sync()

    def load(self, spilled: Spilled | str) -> bytes:
        """Read a side file, named by its placeholder or by its name; verified by its hash."""
        name = spilled if isinstance(spilled, str) else spilled.name
        size = None if isinstance(spilled, str) else spilled.size
        match = _NAME.fullmatch(name)
        if match is None:
            raise ThenceError(
                f"not the name of a spill: {name[:80]!r}", hint="placeholders tell the names"
            )
        return self._kept[match[2]].load(match[1], size)

    def whole(self, content: JSON) -> JSON:
        """Give recorded content with everything that was spilled from it back in its place."""
        if not isinstance(content, list):
            return self._back(content)
        items = [self._back(item) for item in content]
        # No block is a list: this one is the content itself.
        return items[0] if len(items) == 1 and isinstance(items[0], list) else items

    def _back(self, item: JSON) -> JSON:
        text = _text(item)
        spilled = None if text is None else _read(text)
        if spilled is None:
            return item
        data = self.load(spilled)
        if spilled.name.endswith(".json"):
            return _value(data)
        back = data.decode("utf-8", "surrogatepass")
        return back if isinstance(item, str) else {**item, "text": back}


def _spilled(data: bytes, kind: str, text: str, most: int) -> Spilled:
    key = sha256(data).hexdigest()
    return Spilled(f"{key}.{kind}", key, len(data), len(text), _preview(text, most))


def _value(data: bytes) -> JSON:
    try:
        return msgspec.json.decode(data)
    except ValueError:  # a lone surrogate or a number out of range: ours all the same
        return json.loads(data.decode("utf-8", "surrogatepass"))


# -- copies ---------------------------------------------------------------------------------


def slim(result: JSON, blocks: JSON) -> JSON:
    """Drop from a result's second copy the long texts that stand in its tool_result as well.

    Give the blocks as they were before `fit`. Only equal values go (of the long texts in real
    clients' logs that stand in the blocks at all, 98 % are equal to a whole one); numbers, ids,
    errors and diffs stay. What is left is a copy; nothing given is changed.
    """
    told = {text for text in _texts(blocks) if len(text) >= BULKY}
    if isinstance(result, str):
        failed = any(isinstance(b, dict) and b.get("is_error") for b in _items(blocks))
        return None if result in told and not failed else result
    out = [result]
    todo: list[tuple[JSON, JSON]] = [(out, 0)]
    while todo:
        into, at = todo.pop()
        value = into[at]
        if isinstance(value, dict):
            into[at] = kept = {
                name: inner
                for name, inner in value.items()
                if name in KEPT or not isinstance(inner, str) or inner not in told
            }
            todo += [(kept, name) for name in kept if name not in KEPT]
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
