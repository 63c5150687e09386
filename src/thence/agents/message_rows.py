"""What readers of message tables share: rows by their number, and totals of tokens per session.

A row is told when it is first seen. A number never comes back, so rows that are fewer than those
that were read mean that the client replaced some: the table is read again, and what it no longer
holds stays here. Tokens are told for the session as a whole: each change of a total is a record of
its own, from which the bill of the time between two reads follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import ClassVar

import msgspec

from thence.agents import File, Mark, Source
from thence.agents.records import LineReader, Record, fields, moment, note
from thence.agents.sqlite_rows import Database, row
from thence.format.codec import RawRecord
from thence.format.facts import Fact
from thence.format.nodes import Is, Node
from thence.format.records import JSON, Usage, count

MESSAGES, TOTALS = "messages", "usage"
"""What the rows of a session are called, and its totals."""


class MessageRows(LineReader):
    """The rows of one session in a table `messages`; each reader adds `facts`."""

    columns: ClassVar[tuple[str, ...]]
    """The columns that are read besides the number of a row."""

    def __init__(self, database: Database, source: Source, file: File, mark: Mark) -> None:
        super().__init__(source, file, mark)
        self._database = database
        self.version = file.rows.version if file.rows is not None else ""
        at, rows = self._carried.get("at"), self._carried.get("rows")
        self._at: int = at if isinstance(at, int) else 0
        self._rows: int = rows if isinstance(rows, int) else 0

    def carry(self) -> JSON:
        """Return the number of the last row, and how many there were."""
        return {"at": self._at, "rows": self._rows, **fields(super().carry())}

    def is_known(self) -> bool:
        """Return whether all rows that were read are there, or none because all were deleted."""
        if not self._database.has_columns("messages", ("id", "session_id")):
            return True
        query = "SELECT count(*) FROM messages WHERE session_id = ? AND id <= ?"
        ((there,),) = self._database.ask(query, self._session, self._at)
        if there == self._rows:
            return True
        query = "SELECT count(*) FROM messages WHERE session_id = ?"
        ((left,),) = self._database.ask(query, self._session)
        return bool(left == 0)

    def rows(self) -> Iterator[RawRecord]:
        """Yield the rows after the last one that was read."""
        if not self._database.has_columns("messages", ("id", "session_id")):
            return
        after = "WHERE session_id = ? AND id > ? ORDER BY id"
        names = ("id", *self.columns)
        sized_rows = self._database.select_sized("messages", names, after, self._session, self._at)
        for size, *cells in sized_rows:
            value = dict(zip(names, cells, strict=True))
            if not isinstance(number := value["id"], int):
                continue
            self._at, self._rows = number, self._rows + 1
            yield row(number, value, count(size))

    def final_facts(self) -> Iterable[Fact]:
        """Return nothing, unless a reader says otherwise."""
        return ()


class Totals(LineReader):
    """The totals of a session, a record for each that changed; each reader gives `totals`."""

    def __init__(self, database: Database, source: Source, file: File, mark: Mark) -> None:
        super().__init__(source, file, mark)
        self._database = database
        self._line = mark.line
        self.version = file.rows.version if file.rows is not None else ""
        known = self._carried.get("totals")
        self._known: Record = dict(known) if isinstance(known, dict) else {}

    def totals(self) -> Mapping[str, tuple[str | None, Usage]]:
        """Return the model and the tokens so far of each kind of request, by a name."""
        raise NotImplementedError

    def carry(self) -> JSON:
        """Return the totals that were told."""
        return {"totals": self._known}

    def is_known(self) -> bool:
        """Return True: a total that falls has begun anew, which those who add up know."""
        return True

    def rows(self) -> Iterator[RawRecord]:
        """Yield the totals that are others than before."""
        for name, (model, usage) in self.totals().items():
            counts = list(msgspec.structs.astuple(usage)[:4])
            if not usage.total or self._known.get(name) == counts:
                continue
            self._known[name] = counts
            yield row(self._line, {"name": name, "model": model, "counts": counts}, 0)
            self._line += 1

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Return a total as a record of the log that has totals of its kind alone."""
        name, counts = entry.value["name"], entry.value["counts"]
        node = Node(f"usage {name} {' '.join(map(str, counts))}", None, Is.INTERNAL)
        block = note("tokens so far", {"of": name, "tokens": sum(counts)})
        when = self._file.rows.modified if self._file.rows is not None else 0.0
        model = entry.value["model"]
        more = {"blocks": (block,), "model": model, "ts": moment(when or None)}
        made = self._fact(entry, node, "usage", **more)
        # A model may be called anything: a name of a file is made of a hash of it.
        kind = blake2b(name.encode("utf-8", "replace"), digest_size=6).hexdigest()
        file = f"{made.file}/{kind}"
        return [msgspec.structs.replace(made, file=file, running=Usage(*counts))]

    def final_facts(self) -> Iterable[Fact]:
        """Return nothing: every fact has its row."""
        return ()
