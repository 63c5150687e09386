"""Where the sessions of one home lie, and how one is found: by id, by prefix, or the latest.

Only names and the first and last bytes of files are looked at. Invariants: an id that is no name
leads nowhere; a prefix finds a session only if it is the only one; a session counts by the first
of its segments that is there; a file that was never begun is none. An id belongs to one session
of the home: who begins one under an id of its own holds the lock of the home meanwhile.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import msgspec

from thence.errors import Conflict, NotAppendable, SessionNotFound, remedy
from thence.format import codec, layout
from thence.format.records import blocks, text_of
from thence.journal.blobs import FOLDER, locked
from thence.journal.ids import checked_id
from thence.journal.reader import head
from thence.journal.segments import (
    Segments,
    is_begun,
    last_modified,
    names_in,
    parts_of,
    sessions_in,
)

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
        name = layout.Segment(session).name
        plain = [path for path in self._named(name) if path.is_file() and _is_session(path)]
        folders = self._folders(None) if not plain else ()
        others = (parts_of(folder, session)[:1] for folder in folders)
        return plain or [path for first in others for path in first if _is_session(path)]

    def _named(self, *names: str, of_home: bool = False) -> list[Path]:
        """Return the files that have one of these names, of all projects that we look into.

        Only the projects are listed. Texts are joined here: paths take as long as the system.
        """
        every, folders = self.root / layout.SESSIONS, ["."]
        if self.local is not None and not of_home:
            every = self.folder(None)
        else:
            folders = names_in(every)
        ends = [f"{folder}{os.sep}{name}" for folder in folders for name in names]
        start = f"{every}{os.sep}"
        return [every / end for end in ends if os.access(start + end, os.F_OK)]

    @contextlib.contextmanager
    def claimed(self, session: str, folder: Path) -> Iterator[None]:
        """Keep others from beginning a session of this id in the home; a `Conflict` if it is there.

        It is to be begun in a project's folder. A journal inside a project shares the ids of the
        home: history, checkpoints and notes of both lie there by id.

        Two names are looked for in each project: a list of ids would have to be kept true.
        """
        with contextlib.ExitStack() as stack:
            for place in dict.fromkeys((folder.parent, self.root / layout.SESSIONS)):
                if not place.is_dir():
                    continue
                try:
                    handle = os.open(place, FOLDER)
                except OSError as error:
                    raise NotAppendable(
                        f"cannot look into {place}: {error.strerror or error}",
                        hint=f"nothing was changed; {remedy(error)}, then try again",
                    ) from error
                stack.callback(os.close, handle)
                with contextlib.suppress(OSError):  # no locks of folders here, as in some networks
                    stack.enter_context(locked(handle))
            path = self._holder_of(session, folder)
            if path is not None:
                raise Conflict(
                    f"session {session} exists, in {_project_of(path)}",
                    hint="resume it, or give another id; create_or_resume does either",
                )
            yield

    def namesake(self, session: str) -> Path | None:
        """Return the session of the home that was begun later, under the id of a project's own."""
        return Catalog(self.root).path_of(session) if self.local is not None else None

    def _holder_of(self, session: str, folder: Path) -> Path | None:
        """Return the file by which an id is taken: of a plain, a sealed or a rolled session."""
        name = layout.Segment(session).name
        rolled = parts_of(folder, session)[:1]  # of which the first segment may be lost
        taken = chain(rolled, self._named(name, f"{name}.zst", of_home=True))
        return next((path for path in taken if _is_session(path)), None)

    def find(self, session: str | None, project: str | None) -> Path:
        """Find one session by id, by unique prefix, or the latest."""
        if session is None:
            latest = self.sessions(project, limit=1)
            if not latest:
                where = f" in {project}" if project is not None else ""
                raise SessionNotFound(f"no session yet{where}", hint="create one first")
            return latest[0].path
        checked_id(session, SessionNotFound)
        if project is None and len(exact := self._exact(session)) == 1:
            return exact[0]
        paths = [parts[0] for parts in self._parts(project)]
        matches = [path for path in paths if path.name.startswith(session)]
        named = [path for path in matches if name_of(path) == session]
        sessions = [path for path in named or matches if _is_session(path)]
        if len(sessions) == 1:
            return sessions[0]
        if not matches:
            raise SessionNotFound(f"no session {session}", hint="journal.sessions() lists them")
        if not sessions:
            raise SessionNotFound(
                f"session {name_of(matches[0])} was never begun: its file has no whole header",
                hint="create it under this id; `thence store gc` removes the file",
            )
        names = ", ".join(path.name[:13] for path in sessions[:5])
        hint = "give more characters of the id"
        if named:
            names = ", ".join(f"{session} in {_project_of(path)}" for path in sessions[:5])
            hint = "say which with project=…"
        raise SessionNotFound(f"{session} names {len(sessions)} sessions: {names}", hint=hint)

    def sessions(self, project: str | None = None, *, limit: int = 20) -> list[SessionEntry]:
        """List sessions, newest first, from the first and last bytes of their files."""
        paths = [(last_modified(parts) or 0.0, parts[0]) for parts in self._parts(project)]
        paths.sort(key=lambda pair: (pair[0], pair[1].name), reverse=True)
        known: dict[str, SessionEntry] = {}
        entries = (_read_entry(path, when) for when, path in paths)
        listed = list(islice((entry for entry in entries if entry is not None), max(limit, 0)))
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
                entry = _read_entry(path, 0.0) if path is not None else None
                if entry is None:
                    break
                known[name] = entry
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


def _is_session(path: Path) -> bool:
    """Whether a file is the first segment of a session that was begun."""
    if not _is_file(path):
        return False
    with Segments([path]) as file:
        if file.is_begun:
            return True
    return is_begun(path.parent, name_of(path))  # its later segments may be there


def _project_of(path: Path) -> str:
    """Name the project of a session for the eye: the folder it worked in, if its header says so."""
    with Segments([path]) as file:
        header = head(file).header
    return header.cwd if header is not None and header.cwd else path.parent.name


def _read_entry(path: Path, modified: float) -> SessionEntry | None:
    """Tell a session from the head and the tail of its file; None when it was never begun."""
    name = name_of(path)
    with Segments(parts_of(path.parent, name)) as segments:
        if not segments.is_begun:
            return None
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
