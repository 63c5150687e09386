"""Where the sessions of one home lie, and how one is found: by id, by prefix, or the latest.

Only names and the first and last bytes of files are looked at. Invariants: an id that is no name
leads nowhere; a prefix finds a session only if it is the only one; a session counts by the first
of its segments that is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from thence.errors import SessionNotFound
from thence.format import codec, layout
from thence.format.records import blocks, text_of
from thence.journal.reader import head
from thence.journal.segments import Segments, last_modified, names_in, parts_of, sessions_in

ANCESTORS = 8
"""How many sessions back a list looks for a title and for the first prompt."""


class SessionEntry(msgspec.Struct, frozen=True):
    """A session as a list shows it, told from the first and last bytes of its file."""

    session_id: str
    path: Path
    size: int
    modified: float
    cwd: str | None = None
    model: str | None = None
    title: str | None = None
    first_prompt: str | None = None
    branch: str | None = None
    usd: float | None = None
    resumed_from: str | None = None
    closed: bool = False


class Catalog:
    """The folders of one home, or with `local` those inside one project."""

    def __init__(self, root: Path, local: Path | None = None) -> None:
        self.root = root
        self.local = local

    def folder(self, cwd: str | None) -> Path:
        """Where the sessions of a working directory are."""
        if self.local is not None:
            return self.local / layout.LOCAL_SESSIONS
        return self.root / layout.SESSIONS / layout.project_id(cwd or "")

    def side(self, session: str) -> Path:
        """Where the subagents of a session write."""
        if self.local is not None:
            return self.local / layout.LOCAL_SIDECHAINS
        return self.root / layout.SIDECHAINS / session

    def path_of(self, session: str) -> Path | None:
        """Return the first segment of the session of exactly this id."""
        return next(iter(self._exact(session)), None)

    def _exact(self, session: str) -> list[Path]:
        """First segments of the sessions of exactly this id, of which a home should have one.

        Nearly always it has the plain name, so that no folder of a large home is read for it.
        """
        if not layout.is_id(session):
            return []
        folders = self._folders(None)
        name = layout.Segment(session).name
        plain = [path for folder in folders if (path := folder / name).is_file()]
        others = (parts_of(folder, session)[:1] for folder in folders) if not plain else ()
        return plain or [path for first in others for path in first if _is_file(path)]

    def find(self, session: str | None, project: str | None) -> Path:
        """Find one session by id, by unique prefix, or the latest."""
        if session is None:
            latest = self.sessions(project, limit=1)
            if not latest:
                raise SessionNotFound("no session yet", hint="create one first")
            return latest[0].path
        if project is None and len(exact := self._exact(session)) == 1:
            return exact[0]
        paths = [parts[0] for parts in self._parts(project)]
        matches = [path for path in paths if path.name.startswith(session)]
        named = [path for path in matches if path.name.startswith(f"{session}.")]
        if len(named or matches) == 1:
            return (named or matches)[0]
        if not matches:
            raise SessionNotFound(
                f"no session {session[:64]}", hint="journal.sessions() lists them"
            )
        names = ", ".join(path.name[:13] for path in matches[:5])
        raise SessionNotFound(
            f"{session[:64]} names {len(matches)} sessions: {names}",
            hint="give more characters of the id",
        )

    def sessions(self, project: str | None = None, *, limit: int = 20) -> list[SessionEntry]:
        """List sessions, newest first, from the first and last bytes of their files."""
        paths = [(last_modified(parts) or 0.0, parts[0]) for parts in self._parts(project)]
        paths.sort(key=lambda pair: (pair[0], pair[1].name), reverse=True)
        known: dict[str, SessionEntry] = {}
        listed = [_read_entry(path, when) for when, path in paths[:limit]]
        known.update((entry.session_id, entry) for entry in listed)
        return [self._with_past(entry, known) for entry in listed]

    def _with_past(self, listed: SessionEntry, known: dict[str, SessionEntry]) -> SessionEntry:
        """Return a session with the title and the first prompt of those that it goes on from.

        The nearest title counts, and the oldest prompt: a conversation is known by its start.
        """
        title, first, above = listed.title, listed.first_prompt, listed
        for _ in range(ANCESTORS):
            name = above.resumed_from
            if name is None:
                break
            if name not in known:
                path = self.path_of(name)
                if path is None:
                    break
                known[name] = _read_entry(path, 0.0)
            above = known[name]
            title, first = title or above.title, above.first_prompt or first
        return msgspec.structs.replace(listed, title=title, first_prompt=first)

    def _folders(self, project: str | None) -> list[Path]:
        if self.local is not None or project is not None:
            return [self.folder(project)]
        every = self.root / layout.SESSIONS
        return [every / name for name in names_in(every)]

    def _parts(self, project: str | None) -> Iterator[list[Path]]:
        """Segments of all sessions, or of one project's."""
        for folder in self._folders(project):
            for parts in sessions_in(folder).values():
                if _is_file(parts[0]):
                    yield parts


def name_of(path: Path) -> str:
    """The id of the session that a file belongs to."""
    segment = layout.segment_of(path.name)
    return segment.session if segment is not None else path.name


def _is_file(path: Path) -> bool:
    """Whether a segment is a file, also if it was sealed since its folder was listed."""
    return path.is_file() or path.with_name(f"{path.name}.zst").is_file()


def _read_entry(path: Path, modified: float) -> SessionEntry:
    """Tell a session from the head and the tail of its file."""
    name = name_of(path)
    with Segments(parts_of(path.parent, name)) as segments:
        header = head(segments).header
        tail = segments.read(max(0, segments.size - (64 << 10)), segments.size)
        first = _first_prompt(segments.read(0, 64 << 10))
        turns = [e for e in codec.decode(tail).events if e.type in ("turn", "terminator")]
        size = segments.size
    turn = next((e.fields for e in reversed(turns) if e.type == "turn"), {})
    totals = turn.get("totals") or {}
    return SessionEntry(
        session_id=name,
        path=path,
        size=size,
        modified=modified,
        cwd=header.cwd if header else None,
        model=turn.get("model") or (header.model if header else None),
        title=turn.get("title"),
        first_prompt=first,
        branch=turn.get("branch"),
        usd=totals.get("usd") if isinstance(totals, dict) else None,
        resumed_from=header.resumed_from.session if header and header.resumed_from else None,
        closed=bool(turns) and turns[-1].type == "terminator",
    )


def _first_prompt(data: bytes) -> str | None:
    for event in codec.decode(data).events:
        content = event.fields.get("content")
        if event.type == "user" and not any(
            block.get("type") == "tool_result" for block in blocks(content)
        ):
            return text_of(content)[:200]
    return None
