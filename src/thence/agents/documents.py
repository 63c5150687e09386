"""Documents that hold a conversation and are written anew at every step.

Such a document is read as if its list were a log: items that were read before are recognised by a
checksum and passed over, new ones are read, under their number as line. A list that lost or changed
an item is the next generation, and all of it is read again: what it no longer holds stays in the
session, dead, as of any log that was rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from thence.agents import File, Mark, Source
from thence.agents.files import UnreadableDocument
from thence.agents.records import LineReader, Record, moment, note
from thence.format import codec
from thence.format.codec import RawRecord
from thence.format.facts import Block, Fact, answers_of, calls_of, line_name
from thence.format.nodes import PREVIOUS, Is, Node
from thence.format.records import JSON, Place, Usage, count, word

NO_LIST = "holds no list of messages"


class ListReader(LineReader):
    """A document with a list; each reader adds `items` and `item_facts`, and may add `about`."""

    def __init__(self, source: Source, file: File, mark: Mark) -> None:
        super().__init__(source, file, mark)
        self.generation = mark.generation
        self._known: Record = {}

    def items(self, _entry: RawRecord) -> Sequence[Record]:
        """Return the items of a document, oldest first; raise Unreadable if it has no list."""
        return ()

    def item_facts(self, _entry: RawRecord) -> Iterable[Fact]:
        """Return the facts of one item."""
        return ()

    def about(self, _document: Record) -> dict[str, Any]:
        """Return what a document says of its session, as fields of a fact."""
        return {}

    def begin(self, _carried: Record) -> None:
        """Go on after items that were read before, with what `remember` returned then.

        At the start of a list it is empty.
        """

    def remember(self) -> Record:
        """Return what the next items need to know."""
        return {}

    def facts(self, entry: RawRecord) -> Iterator[Fact]:
        """Yield the facts of the items that are new, and what the document says as a whole."""
        items = self.items(entry)
        carried = self._carried
        first, total = count(carried.get("items")), blake2b(digest_size=12)
        # What was read is hashed again: a list that was changed there is another one.
        for item in items[:first]:
            _add(total, codec.dump(item))
        if "sum" not in carried or carried["sum"] == total.hexdigest():
            # Each new version of a file counts as a generation; a list that only grew is the same.
            self.generation = max(self.generation - 1, 0)
        else:
            carried, first, total = {}, 0, blake2b(digest_size=12)
        self._generation = self.generation
        self.begin(carried)
        for nth, item in enumerate(items[first:], first + 1):
            raw = codec.dump(item)
            _add(total, raw)
            yield from self.item_facts(RawRecord(item, Place(nth, 0, len(raw)), raw))
        line = max(len(items), count(carried.get("line")))
        about = self.about(entry.value)
        name = line_name(self._file.key, repr(sorted(about.items())).encode("utf-8", "replace"))
        if about and name != word(carried.get("about")):
            line += first == len(items)
            place = RawRecord(entry.value, Place(line, 0, 0), b"")
            yield self._fact(place, Node(name, flags=Is.INTERNAL), "document", **about)
        self._known = {
            "items": len(items),
            "sum": total.hexdigest(),
            "line": line,
            "about": name,
            **self.remember(),
        }

    def _message_fact(
        self,
        entry: RawRecord,
        kind: str,
        name: str,
        parts: Sequence[Block],
        *,
        flags: int = 0,
        response: str | None = None,
        **more: Any,
    ) -> Fact:
        """Return the event of an item that follows the one before it."""
        made = calls_of(parts), answers_of(parts)
        node = Node(name, PREVIOUS, flags, *made, response=response)
        shown = tuple(parts) or (note("empty message", None),)
        return self._fact(entry, node, kind, blocks=shown, **more)

    def carry(self) -> JSON:
        """Return how many items were read, their checksum, and what the next ones need."""
        return self._known


class TotalReader(LineReader):
    """A document with the total of a session; each reader adds `total`.

    A total is told when it has changed. What it adds to the one before is the bill, at the time at
    which the document was written.
    """

    carries = ("line", "counts")
    """The last total, and how many there were."""

    def __init__(self, source: Source, file: File, mark: Mark) -> None:
        super().__init__(source, file, mark)
        self.generation = self._generation = max(mark.generation - 1, 0)
        self._moment = moment(mark.mtime_ns / 10**9)
        self._line = count(self._carried.get("line"))
        self._counts = self._carried.get("counts")

    def total(self, _entry: RawRecord) -> tuple[Usage, str | None] | None:
        """Return the total of a session, and its model; None if it has none yet."""
        raise NotImplementedError

    def facts(self, entry: RawRecord) -> Iterator[Fact]:
        """Yield the total, if it has changed since the last read."""
        usage, model = self.total(entry) or (Usage(), None)
        counts = list(msgspec.structs.astuple(usage))
        if counts == self._counts or not usage.total:
            return
        self._line, self._counts = self._line + 1, counts
        yield self._fact(
            RawRecord({}, Place(self._line, 0, 0), b""),
            Node(f"{self._file.key}#{self._line}", None, Is.INTERNAL),
            "total",
            ts=self._moment,
            blocks=(note(f"{usage.total} tokens so far", msgspec.to_builtins(usage)),),
            model=model,
            running=usage,
        )


def version_name(name: str | None, content: JSON, else_name: str) -> str:
    """Return the id of a message as it stands: another one if it is changed later.

    Without an id of its own it has `else_name`.
    """
    if name is None:
        return else_name
    return f"{name} {blake2b(codec.dump(content), digest_size=4).hexdigest()}"


def list_items(value: JSON) -> list[Record]:
    """Return the items of a list in a document; raise Unreadable if it is none."""
    if not isinstance(value, list):
        raise UnreadableDocument(NO_LIST)
    return [item if isinstance(item, dict) else {"unknown": item} for item in value]


def _add(total: Any, raw: bytes) -> None:
    # With the length of each: two items could else be taken for one.
    total.update(b"%d," % len(raw))
    total.update(raw)
