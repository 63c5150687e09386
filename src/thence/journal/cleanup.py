"""Clean-up of a home: which sessions go, which segments are sealed, and doing it.

Runs only when asked. `inventory` looks, `plan` decides and touches nothing, `apply` does it.
What `plan` keeps to: at most so many lineages a project (a session and all that go on from it,
or it from, count as one and go as one), the longest unused first, no more than needed; never a
lineage that somebody is writing; never anything for its size: an old segment, or a last one over
the cap, is sealed, which loses nothing. Every step gives its reason.

What `apply` keeps to: nothing is touched without the exclusive lock that writers hold shared, so
that whoever writes makes it `SessionBusy`; descendants go before their ancestors; a segment's
compressed copy is on the disk under its name, and was read back and compared, before the
original goes. Stopped at any point, sealing leaves a session that reads the same; a removal
leaves the first segments, and whatever was stopped, the next clean-up finishes. The audit of
permissions stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec

from thence import system
from thence.errors import NotReadable, SessionBusy
from thence.format import layout
from thence.format.figures import size, size_limit
from thence.journal.blobs import LEFTOVER_AGE_S, is_scratch
from thence.journal.log import DISK, sync_folder
from thence.journal.reader import head
from thence.journal.segmented_log import MAX_SEGMENT_BYTES
from thence.journal.segments import Segments, names_in, sessions_in

MAX_SESSIONS = 100
"""Lineages of one project that are kept."""

NEVER_BEGUN = "it was never begun: the file has no whole header"

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_BLOCK_BYTES = 1 << 20

_GLANCE_S = 0.002
"""Seconds after which whoever only asks whether a log is in use has let go of it."""


class SegmentFile(msgspec.Struct, frozen=True):
    """One segment of a session: its number, where it lies, and whether somebody writes it."""

    number: int
    path: Path
    size: int
    sealed: bool = False
    running: bool = False


class SessionFiles(msgspec.Struct, frozen=True):
    """A session that is there, as far as clean-up needs to know it."""

    session: str
    project: str
    size: int
    modified: float
    resumed_from: str | None = None
    segments: tuple[SegmentFile, ...] = ()
    running: bool = False
    beside: tuple[Path, ...] = ()
    """Its side files and folders: sidechains, spill, checkpoints."""
    begun: bool = True
    """Whether anything stands in its file; if not, it never was a session."""


class CleanupStep(msgspec.Struct, frozen=True):
    """What is to become of a session, of one of its segments or of a file of prompts, and why."""

    what: Literal["remove", "seal", "keep", "prune", "clear"]
    """To prune is to remove a file of the history that was rolled over long ago, to clear one that
    a killed process left and that holds nothing."""
    files: SessionFiles
    reason: str
    segment: SegmentFile | None = None

    @property
    def session(self) -> str:
        """The session it is about."""
        return self.files.session


# -- looking --------------------------------------------------------------------------------


def inventory(root: Path, *, local: Path | None = None) -> list[SessionFiles]:
    """List all sessions of a home, or those local to a project. Changes nothing."""
    sessions = root / layout.SESSIONS
    folders = [sessions / name for name in names_in(sessions)]
    sides, spill = [], []
    if local is not None:  # a clone may bring links, which would lead out of the project
        folders, sides, spill = (
            [path for path in [local / name] if not path.is_symlink()]
            for name in (layout.LOCAL_SESSIONS, layout.LOCAL_SIDECHAINS, layout.LOCAL_SPILL)
        )
    shared = _by_session(sides[0]) if sides else {}
    out: list[SessionFiles] = []
    for folder in folders:
        for session, paths in sessions_in(folder).items():
            with contextlib.suppress(FileNotFoundError):  # another clean-up was as quick
                beside = [*shared.get(session, []), *(path / session for path in spill)]
                out.append(_inspect_session(root, session, paths, beside))
    return out


def _inspect_session(
    root: Path, session: str, paths: list[Path], children: list[Path]
) -> SessionFiles:
    beside = [*children, *(root / name / session for name in _BESIDE)]
    side = (root / layout.SIDECHAINS / session).glob("*.jsonl")
    logs = [*(path for path in children if path.suffix == ".jsonl"), *side]
    with Segments(paths) as segments:
        header, begun = head(segments).header, segments.is_begun
    if not begun:  # what lies beside it is another's, who has this id
        beside, logs = [], []
    stats = [(path, path.stat(follow_symlinks=False)) for path in paths]
    files = [_file(path, status.st_size) for path, status in stats]
    origin = header.resumed_from if header is not None else None
    return SessionFiles(
        session=session,
        project=paths[0].parent.name,
        size=sum(file.size for file in files),
        modified=max(status.st_mtime for _, status in stats),
        resumed_from=origin.session if origin is not None else None,
        segments=tuple(files),
        running=any(file.running for file in files) or any(is_held(path) for path in logs),
        beside=tuple(path for path in beside if path.exists()),
        begun=begun,
    )


def leftovers(root: Path, *, local: Path | None = None, now: float) -> list[CleanupStep]:
    """Find what killed processes left beside the sessions: scratch names, empty sidechains."""
    if local is not None:
        main, sides = [local / layout.LOCAL_SESSIONS], [local / layout.LOCAL_SIDECHAINS]
    else:
        main = sorted((root / layout.SESSIONS).glob("*"))
        sides = sorted((root / layout.SIDECHAINS).glob("*"))
    files = [folder / name for folder in main for name in names_in(folder) if is_scratch(name)]
    files += [folder / name for folder in sides for name in names_in(folder)]
    out = []
    for path in files:
        with contextlib.suppress(OSError):  # gone since it was listed, or no file of ours
            status = path.stat(follow_symlinks=False)
            why = _why_left(path, status, now - LEFTOVER_AGE_S)
            if why is not None and not is_held(path):
                left = SegmentFile(1, path, status.st_size)
                place = (path.name, path.parent.name, status.st_size, status.st_mtime)
                out.append(CleanupStep("clear", SessionFiles(*place, begun=False), why, left))
    return out


def _why_left(path: Path, status: os.stat_result, oldest: float) -> str | None:
    """Say why a file holds nothing; None when it may hold something, or somebody is at it now."""
    if is_scratch(path.name):
        return "a killed process left it" if status.st_mtime < oldest else None
    return NEVER_BEGUN if path.suffix == ".jsonl" and not _is_begun(path) else None


def _is_begun(path: Path) -> bool:
    with Segments([path]) as file:
        return file.is_begun


_BESIDE = (layout.SIDECHAINS, layout.SPILL, layout.CHECKPOINTS)


def _file(path: Path, size: int) -> SegmentFile:
    segment = layout.segment_of(path.name)
    number, sealed = (segment.number, segment.sealed) if segment else (1, False)
    return SegmentFile(number, path, size, sealed, running=not sealed and is_held(path))


def is_held(path: Path) -> bool:
    """Whether somebody has a log open for writing."""
    try:
        with _lock_out_writers(path):
            return False
    except SessionBusy:
        return True
    except FileNotFoundError:
        return False


def writer_of(path: Path) -> str:
    """Say which other process has a log open for writing, and when it was written; else empty."""
    try:
        for _ in range(2):
            if not is_held(path):
                return ""
            time.sleep(_GLANCE_S)  # whoever only asks whether it is in use holds it for a moment
        age_s = max(0, round(time.time() - path.stat().st_mtime))
    except OSError:  # sealed meanwhile, or nobody can tell
        return ""
    holders = system.lock_holders(path)
    others = [pid for pid in holders if pid != os.getpid()]
    if holders and not others:
        return ""
    who = f"pid {others[0]}" if others else "another process"
    return f"{who} has the session open; last written {age_s} s ago"


def _by_session(folder: Path) -> dict[str, list[Path]]:
    """Subagents' logs that lie in one folder, by the session that their headers name."""
    out: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        with Segments([path]) as segments:
            header = head(segments).header
        if header is not None:
            out.setdefault(header.session_id, []).append(path)
    return out


# -- deciding -------------------------------------------------------------------------------


def plan(
    sessions: Sequence[SessionFiles],
    *,
    max_sessions: int = MAX_SESSIONS,
    max_bytes: int = MAX_SEGMENT_BYTES,
    now: float,
) -> list[CleanupStep]:
    """Decide what goes, what is sealed and what stays. Pure; the same whatever the order."""
    by_project: dict[str, list[list[SessionFiles]]] = {}
    for lineage in lineages(member for member in sessions if member.begun):
        by_project.setdefault(lineage[-1].project, []).append(lineage)
    removed: list[CleanupStep] = []
    others = [
        CleanupStep("clear", each, NEVER_BEGUN, each.segments[0])
        for each in sessions
        if not (each.begun or each.running)
    ]
    for project in sorted(by_project):
        candidates = by_project[project]
        over = max(0, len(candidates) - max_sessions)
        free = [lineage for lineage in candidates if not any(member.running for member in lineage)]
        reason = f"unused for {{}}; {len(candidates)} lineages here, {max_sessions} are kept"
        for lineage in free[:over]:
            age = _age(now - lineage[-1].modified)
            removed += [
                CleanupStep("remove", member, reason.format(age))
                for member in _children_first(lineage)
            ]
        gone = {id(lineage) for lineage in free[:over]}
        for lineage in candidates:
            if id(lineage) not in gone:
                others += [
                    step
                    for member in lineage
                    for step in _keep_and_seal(member, lineage, max_bytes)
                ]
    return removed + others


def lineages(sessions: Iterable[SessionFiles]) -> list[list[SessionFiles]]:
    """Group sessions that go on from one another: members and groups by when last used."""
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        while leader.setdefault(name, name) != name:
            leader[name] = name = leader[leader[name]]
        return name

    ordered = sorted(sessions, key=_last_used_key)
    there = {member.session for member in ordered}
    for member in ordered:
        if member.resumed_from in there:
            leader[find(member.session)] = find(member.resumed_from or "")
    groups: dict[str, list[SessionFiles]] = {}
    for member in ordered:
        groups.setdefault(find(member.session), []).append(member)
    return sorted(groups.values(), key=lambda lineage: _last_used_key(lineage[-1]))


def _last_used_key(session: SessionFiles) -> tuple[float, str, str]:
    return session.modified, session.session, session.project


def _children_first(lineage: list[SessionFiles]) -> list[SessionFiles]:
    """Order a lineage so that a stop half way leaves nobody without an ancestor."""
    above = {member.session: member.resumed_from for member in lineage}
    depths: dict[str, int] = {}
    for start in above:
        path, name = [], start
        while name in above and name not in depths and name not in path:
            path.append(name)
            name = above[name] or ""
        depth = depths.get(name, 0)
        for session in reversed(path):
            depth += 1
            depths[session] = depth
    return sorted(lineage, key=lambda member: -depths[member.session])


def _keep_and_seal(
    session: SessionFiles, lineage: list[SessionFiles], max_bytes: int
) -> Iterator[CleanupStep]:
    """Keep a session; seal what of it nobody will write again."""
    if session.running:
        reason = "another process is writing it"
    elif any(other.running for other in lineage):
        reason = "another process is writing a session of its lineage"
    else:
        reason = "its lineage is among those kept"
    yield CleanupStep("keep", session, reason)
    for file in session.segments:
        if file.sealed or file.running:
            continue
        if file.number < session.segments[-1].number:
            yield CleanupStep("seal", session, "the session went on in a later segment", file)
        elif file.size > max_bytes and not session.running:
            taken, cap = size(file.size, max_bytes), size_limit(max_bytes)
            yield CleanupStep("seal", session, f"{taken}, the cap is {cap}", file)


def _age(seconds: float) -> str:
    days = max(0, int(seconds // 86400))
    return f"{days} day{'' if days == 1 else 's'}"


# -- doing ----------------------------------------------------------------------------------


def apply(steps: Iterable[CleanupStep], *, dry_run: bool = False) -> list[CleanupStep]:
    """Do what was planned, and give the steps that changed, or would change, something."""
    wanted = [step for step in steps if step.what != "keep"]
    for step in wanted if not dry_run else ():
        if step.what == "remove":
            remove(step.files)
        elif step.what == "seal" and step.segment is not None:
            seal(step.segment.path)
        elif step.what == "clear" and step.segment is not None:
            _clear(step.segment.path)
    return wanted


def _clear(path: Path) -> None:
    """Remove a file that holds nothing, unless somebody came to it meanwhile."""
    with contextlib.suppress(FileNotFoundError, SessionBusy), _lock_out_writers(path) as handle:
        if _is_still(path, handle) and (is_scratch(path.name) or not _is_begun(path)):
            path.unlink()
            sync_folder(path.parent)


def remove(session: SessionFiles) -> None:
    """Remove a session and its side files, the last segment last: it is there or it is not."""
    folder = session.segments[0].path.parent
    with contextlib.ExitStack() as locks:
        for path in _logs(session):
            locks.enter_context(_lock_out_writers(path))
        now = {path: path.stat().st_size for path in sessions_in(folder).get(session.session, [])}
        if now != {file.path: file.size for file in session.segments}:
            raise SessionBusy(
                f"somebody wrote {session.session} since clean-up looked", hint="clean up again"
            )
        second = [link for path in _logs(session) for link in _scratch_links(path)]
        for path in [*session.beside, *second]:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        names = [path.name for path in folder.iterdir() if _belongs(path.name, session.session)]
        for name in sorted(names, key=_last_first):
            (folder / name).unlink(missing_ok=True)
        for changed in {folder, *(path.parent for path in session.beside)}:
            sync_folder(changed)


def named_sessions(root: Path, projects: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Yield the sessions that files of a home, and of projects, are named after, each with one."""
    journals = (project / layout.LOCAL_SESSIONS for project in projects)
    for folder in (*(root / layout.SESSIONS).glob("*"), *journals):
        yield from ((session, paths[0]) for session, paths in sessions_in(folder).items())
    for name in _BESIDE:
        yield from ((path.name, path) for path in (root / name).glob("*"))


def remove_side_files(root: Path, session: str) -> None:
    """Remove what lies beside a session of which no log is there."""
    for name in _BESIDE if layout.is_id(session) else ():
        path = root / name / session
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)


def _last_first(name: str) -> tuple[int, str]:
    segment = layout.segment_of(name)
    return (-segment.number if segment is not None else -(10**9), name)


def _logs(session: SessionFiles) -> list[Path]:
    """All files of a session that a writer may hold."""
    main = [file.path for file in session.segments if not file.sealed]
    sides = [p for at in session.beside for p in ([at] if at.is_file() else at.glob("*.jsonl"))]
    return [path for path in [*main, *sides] if path.suffix == ".jsonl" and path.exists()]


def _scratch_links(path: Path) -> list[Path]:
    """Return the scratch names by which a log is there a second time, after a kill."""
    here = path.stat()
    if here.st_nlink < 2:
        return []
    names = [path.with_name(name) for name in names_in(path.parent) if is_scratch(name)]
    return [each for each in names if each.stat(follow_symlinks=False).st_ino == here.st_ino]


def _belongs(name: str, session: str) -> bool:
    """Whether a file is a segment of a session, or what sealing or locking one left behind."""
    for ending in ("", ".tmp", ".lock"):
        if name.endswith(ending):
            segment = layout.segment_of(name.removesuffix(ending))
            if segment is not None and segment.session == session:
                return True
    return False


def seal(path: Path) -> Path:
    """Put a compressed copy in a segment's place; `SessionBusy` when somebody writes it."""
    sealed = path.with_name(path.name + ".zst")
    made = path.with_name(path.name + ".zst.tmp")
    with _lock_out_writers(path) as source:
        if not _is_still(path, source):
            return sealed  # another clean-up was quicker
        digest = _compress(source, made)
        if digest != _digest_of_sealed(made):
            made.unlink()
            raise NotReadable(
                f"{path.name} differs from its sealed copy",
                hint="the original is unchanged; check the disk",
            )
        made.replace(sealed)
        sync_folder(path.parent)
        path.unlink()
        sync_folder(path.parent)
    return sealed


def _is_still(path: Path, handle: int) -> bool:
    here = os.fstat(handle)
    try:
        there = path.stat(follow_symlinks=False)
    except FileNotFoundError:  # removed or sealed meanwhile
        return False
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _compress(source: int, made: Path) -> str:
    """Write a durable compressed copy that states its length; the hash of what went in."""
    import zstandard

    status = os.fstat(source)
    size = status.st_size
    digest = sha256()
    with contextlib.suppress(FileNotFoundError):
        made.unlink()  # a clean-up before this one was stopped
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(made, flags, 0o600), "wb") as out:
        with zstandard.ZstdCompressor(write_checksum=True).stream_writer(
            out, size=size, closefd=False
        ) as packed:
            for start in range(0, size, _BLOCK_BYTES):
                some = os.pread(source, min(_BLOCK_BYTES, size - start), start)
                digest.update(some)
                packed.write(some)
        out.flush()
        # A sealed session is not a used one: lists and later clean-ups go by this time.
        os.utime(out.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
        os.fsync(out.fileno())
        DISK.datasync(out.fileno())
    return digest.hexdigest()


def _digest_of_sealed(path: Path) -> str:
    import zstandard

    digest = sha256()
    with path.open("rb") as file:
        try:
            for some in zstandard.ZstdDecompressor().read_to_iter(file, read_size=_BLOCK_BYTES):
                digest.update(some)
        except zstandard.ZstdError:  # then the hashes differ, and the original stays
            return "broken"
    return digest.hexdigest()


@contextlib.contextmanager
def _lock_out_writers(path: Path) -> Iterator[int]:
    """Hold the lock that keeps writers of a log out, or find that there are some."""
    handle = os.open(path, _READ)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise SessionBusy(
            f"another process is writing {path.name}", hint="close the session, then clean up again"
        ) from None
    try:
        yield handle
    finally:
        os.close(handle)
