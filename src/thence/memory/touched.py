"""Which sessions touched a file, and why: one of the questions that a memory is asked.

The digests tell which sessions read or changed it, evicted ones included; the events of those
that are still whole tell for which prompt that was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from thence.format import kinds
from thence.format.facts import Block, Fact
from thence.format.nodes import Is
from thence.format.records import JSON
from thence.memory.recall import body
from thence.memory.store import Filter, Held, Store

# -- which ----------------------------------------------------------------------------------


def touched(store: Store, wanted: Filter, path: str) -> list[dict[str, JSON]]:
    """Give the sessions whose digest names the file, the newest first."""
    names = _names(path)
    out: list[dict[str, JSON]] = []
    for digest in store.kept("digests", wanted):
        listed = digest.get("files")
        files = [
            {name: one.get(name) or 0 for name in ("path", "reads", "edits", "broke")}
            for one in (listed if isinstance(listed, list) else ())
            if isinstance(one, dict) and _is(one.get("path"), digest.get("cwd"), names)
        ]
        if files:
            out.append(
                {
                    "session_uid": digest["uid"],
                    "title": digest.get("title"),
                    "ended_at": digest.get("ended_at"),
                    "outcome": digest.get("outcome"),
                    "cwd": digest.get("cwd"),
                    "files": files,
                }
            )
    out.sort(key=lambda one: one["ended_at"] or "", reverse=True)
    return out


def _names(path: str) -> list[str]:
    """Give what a path may be called: as it was given, and in full if it is there."""
    given = path.removeprefix("./").rstrip("/")
    full = str(Path(path).expanduser().absolute())
    return list(dict.fromkeys([given, full] if Path(full).exists() else [given]))


def _is(told: JSON, cwd: JSON, names: Sequence[str]) -> bool:
    """Whether a path that a session names is one of these, or ends in it."""
    if not isinstance(told, str):
        return False
    full = told if told.startswith("/") or not isinstance(cwd, str) else f"{cwd}/{told}"
    return any(full == name or full.endswith(f"/{name}") for name in names)


# -- why ------------------------------------------------------------------------------------


def reasons(store: Store, uid: str, paths: Sequence[str]) -> list[dict[str, JSON]]:
    """Give the prompts for which a session touched files; none of one that was evicted."""
    held = store.held(uid)
    return list(_Reasons(store, held, paths).found()) if held is not None else []


class _Reasons:
    """Prompts, and what was done to some files until the next one."""

    def __init__(self, store: Store, held: Held, paths: Sequence[str]) -> None:
        self._blobs = store.blobs
        self._facts = held.facts
        self._paths = frozenset(paths)
        self._ends = tuple({path.rpartition("/")[2] for path in paths})
        self._failed = set(_failed(held.facts))

    def found(self) -> Iterator[dict[str, JSON]]:
        """Go through a session in the order in which it was written."""
        prompt: Fact | None = None
        edits = reads = 0
        ordered = sorted(self._facts, key=lambda fact: (fact.ts or "", fact.file, fact.line))
        for fact in ordered:
            if fact.node.flags & Is.PROMPT and fact.channel == "main":
                yield from _told(prompt, edits, reads)
                prompt, edits, reads = fact, 0, 0
            for block in fact.blocks:
                if block.kind == "tool_call" and (how := self._touch(block)) is not None:
                    edits, reads = edits + how, reads + (not how)
        yield from _told(prompt, edits, reads)

    def _touch(self, block: Block) -> bool | None:
        """Whether a call changed one of the files; None when it did not touch any."""
        if block.ref is None or block.call in self._failed:
            return None
        if not any(end in block.summary for end in self._ends):
            return None
        payload = body(self._blobs, block.ref)
        named = [path for path in kinds.paths(block.tool or "", payload) if self._names(path)]
        return kinds.is_edit(block.tool or "", payload) if named else None

    def _names(self, path: str) -> bool:
        return any(
            path == one or path.endswith(f"/{one}") or one.endswith(f"/{path}")
            for one in self._paths
        )


def _failed(facts: Sequence[Fact]) -> Iterator[str]:
    """Give the calls that are known to have gone wrong."""
    for fact in facts:
        for block in fact.blocks:
            if block.kind == "tool_result" and block.failed and block.call is not None:
                yield block.call
        yield from (told.call for told in fact.told if told.failed or told.exit_code)


def _told(prompt: Fact | None, edits: int, reads: int) -> Iterator[dict[str, JSON]]:
    if prompt is None or not edits + reads:
        return
    said = next((block.summary for block in prompt.blocks if block.summary), "")
    yield {"ts": prompt.ts, "prompt": said, "edits": edits, "reads": reads}
