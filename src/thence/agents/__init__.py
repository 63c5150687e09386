"""The agents, one folder each, and the protocol that the readers of their logs share.

What an agent is to the rest of the program stands in `profiles`. An adapter finds sessions and
turns their records into `Fact`s; it knows nothing of other sessions, of stores or of the journal.
Invariants: sources are opened for reading only, links are
not followed, nothing but regular files is opened, credentials never; content of a log is never
used as a path, except inside the session's own folder; nothing in a log raises. What could not
be read is told with file, line and reason.

Each folder with a `profile` is an agent. Those of other packages are found through the entry point
group `thence.agents` (and its earlier name `thence.adapters`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from thence.format.facts import Fact
from thence.format.normal import session_uid
from thence.format.records import JSON, Notice, Skipped

GROUP = "thence.agents"
OLD_GROUP = "thence.adapters"
"""The group of packages that were written for earlier versions."""


class Rows(msgspec.Struct, frozen=True, omit_defaults=True, order=True):
    """A session's rows in a database that holds those of others too, as they were found."""

    version: str
    """What the rows are known by: another one if there is something to read."""
    size: int = 0
    """About how many bytes they have."""
    modified: float = 0.0
    """When the last of them was written, in seconds since 1970; 0 if nobody says."""
    session: str = ""
    """What the database calls the session; elsewhere a secret in that is a placeholder."""


class File(msgspec.Struct, frozen=True, omit_defaults=True, order=True):
    """One file of a session.

    `key` names it inside the session, stays when the file is moved, and sorts by age. Its
    writer replaces a document as a whole; a file with `rows` is a database; any other file is a log
    of lines that grows.
    """

    path: str
    key: str = ""
    channel: str = "main"
    is_document: bool = msgspec.field(default=False, name="whole")
    rows: Rows | None = None
    beside: tuple[str, ...] = ()
    """Paths of files that are read with a document; it has changed when one of them has."""


class Source(msgspec.Struct, frozen=True, omit_defaults=True):
    """One session as it lies on disk: all of its files."""

    adapter: str
    session: str
    files: tuple[File, ...]
    root: str = ""

    @property
    def uid(self) -> str:
        """The session's name among those of all agents."""
        return session_uid(self.adapter, self.session)

    @property
    def path(self) -> str:
        """The file that stands for the session."""
        return self.files[0].path if self.files else self.root


class Mark(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How far one file has been read, and how to know it again."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    offset: int = 0
    """After the last LF that was read: the next read starts here."""
    line: int = 1
    generation: int = 0
    """How often the file turned out to be another than the one that was read."""
    head: str = ""
    """Hash of its first bytes."""
    anchor: str = ""
    """Hash of the last bytes that facts were made of: those before the offset, and `tail`."""
    tail: int = 0
    """Bytes of a record behind the offset that was read before its LF was there."""
    torn: bool = False
    """Behind the offset stand bytes that are no record yet."""
    carry: JSON = None
    """What the adapter must remember from the lines before: the model, open chunks."""
    ctime_ns: int = 0
    """When the inode changed last, by any program; 0 when that was not noted."""
    place: int = 0
    """Hash of the path the file had then: to move a file changes its inode too."""
    version: str = ""
    """Of rows of a database: the version that was read."""


class Cursor(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How far a session has been read: a mark per file, by the file's key."""

    marks: dict[str, Mark] = {}


class Batch(msgspec.Struct):
    """What one read gave.

    `events` are facts of single records. Store them and the cursor together, or neither. When
    `done` is not set there is more to read from the new cursor on; `torn` files end in a line
    that is not finished, which is not read until it is.
    """

    events: list[Fact]
    skipped: list[Skipped]
    cursor: Cursor
    done: bool = True
    torn: bool = False
    notices: list[Notice] = []
    lines: int = 0
    bytes: int = 0


class Live(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an agent says of a session that may be running now."""

    session: str
    pid: int | None = None
    status: str | None = None
    waiting_for: str | None = None
    cwd: str | None = None
    since: str | None = None


class AgentPrompt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of an agent's own prompt history."""

    text: str
    ts: str | None = None
    session: str | None = None
    cwd: str | None = None


class Machine(NamedTuple):
    """Where an agent of the made-up machine works."""

    home: Path
    """The folder in which the agent keeps its sessions."""
    work: Path
    """The folder of the projects."""


class SourceReader(Protocol):
    """What reads a source: an adapter, or an adapter in several places."""

    def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
        """Read what is new since the cursor, a bounded piece at a time."""


@runtime_checkable
class Adapter(Protocol):
    """The reader of one agent's logs."""

    name: str

    def roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """Name the folders in which the agent keeps its sessions, present or not."""

    def find(self, root: Path) -> Iterator[Source]:
        """Find all sessions below a root, without reading what was said in them."""

    def at(self, path: Path) -> Source | None:
        """Return the session that a file or folder belongs to; None when it is none of ours."""

    def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
        """Read what is new since the cursor, a bounded piece at a time."""

    def live(self, root: Path) -> Iterator[Live]:
        """Tell which sessions the agent itself calls running."""

    def prompts(self, root: Path) -> Iterator[AgentPrompt]:
        """Yield the agent's own prompt history, oldest first."""

    def keeps_days(self, root: Path) -> int | None:
        """After how many days the agent deletes a session; None when it never does."""


def adapters() -> dict[str, Adapter]:
    """Return the readers of all agents that are installed and can be used, by name."""
    from thence.agents.profiles import agents

    return {name: agent.reader for name, agent in agents().items()}
