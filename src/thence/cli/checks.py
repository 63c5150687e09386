"""What `thence doctor` looks at. Each check gives findings, and changes nothing.

A finding is ok, a note (worth knowing, nothing wrong), a warning (something to look at), or bad
(something is broken or lost). A check that cannot be made is a finding too.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from thence import system
from thence.agents.profiles import agents
from thence.cli import wiring
from thence.cli.columns import agent_label, present, short_id, since, tilde, when
from thence.cli.deletion import own_names
from thence.cli.source_checks import Finding, Level, clients, skips, sources
from thence.cli.terminal import clean, several, size, size_limit
from thence.errors import ThenceError
from thence.format.figures import argument
from thence.memory.reports import count_losses, losses_of
from thence.memory.store import Filter

if TYPE_CHECKING:
    from thence.agents import Adapter
    from thence.format.records import JSON
    from thence.memory.store import Store

MAX_CLOCK_AHEAD_S: Final = 300
"""Seconds that an event may be in the future before the clock is doubted."""
SILENT_AFTER_S: Final = 86_400
"""Seconds that a hook may be silent while its agent's sessions go on."""
FULL_DISK_BYTES: Final = 16 << 20
"""Free bytes below which a sweep may not end: a transaction and its log need some room."""
LOW_DISK_BYTES: Final = 1 << 30
LOW_DISK_SHARE: Final = 0.05
"""A disk with less free than both, in bytes and as a share of all, is nearly full."""
REMOTE_FILE_SYSTEMS: Final = (
    "nfs",
    "cifs",
    "smb",
    "fuse",
    "9p",
    "afs",
    "ceph",
    "glusterfs",
    "vboxsf",
)
"""Kinds of file systems that do not lock or sync as a store needs it."""


# -- the store ------------------------------------------------------------------------------


def integrity(store: Store, *, deep: bool) -> Iterator[Finding]:
    """Check the database and that every payload that a row names can be read."""
    yield from _database(store, deep=deep)
    yield from _packs(store, deep=deep)
    if losses := losses_of(store):
        details: dict[str, JSON] = {"lost": losses}
        yield Finding("losses", "warning", count_losses(losses), "thence store gc -n", details)


def _database(store: Store, *, deep: bool) -> Iterator[Finding]:
    path = getattr(store, "path", None)
    if not isinstance(path, Path):
        yield Finding("store", "ok", "not a local file; check it with the tools of your database")
        for words, fix in getattr(store, "lacks", list)():
            yield Finding("", "note", words, fix)
        return
    import apsw

    from thence.memory.sqlite_file import DAMAGE_ERRORS, RECOVERY_HINT

    # On a disk that cannot be written to SQLite cannot lock, and nobody can write meanwhile.
    is_fixed = not os.access(path.parent, os.W_OK)
    db = apsw.Connection(
        f"{path.as_uri()}{'?immutable=1' if is_fixed else ''}",
        flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
    )
    try:
        check = "integrity_check" if deep else "quick_check"
        results = [str(row[0]) for row in db.execute(f"PRAGMA {check}(10)")]
    except DAMAGE_ERRORS as error:
        results = [str(error)]
    finally:
        db.close()
    if results == ["ok"]:
        where = clean(tilde(str(path)))
        yield Finding("store", "ok", f"integrity ok, {size(path.stat().st_size)} in {where}")
    else:
        for result in results:
            yield Finding("store", "bad", clean(" ".join(result.split())), RECOVERY_HINT)
    yield from _upgrade_copies(path)


def _upgrade_copies(store: Path) -> Iterator[Finding]:
    """Yield the copies that were saved before the store was migrated, each with where it is."""
    from thence.memory import backup

    for path in backup.upgrade_copies(store):
        words = f"saved before the upgrade from {path.suffix.lstrip('.').replace('-', ' ')}:"
        where = clean(tilde(str(path)))
        yield Finding("", "note", f"{words} {where}", None, {"upgrade_copy": str(path)})


def _packs(store: Store, *, deep: bool) -> Iterator[Finding]:
    rows = [row for row in store.sessions() if row.session.evicted_at is None]
    packed = [row for row in rows if row.pack_bytes]
    look = _read_all if deep else _look_at_pack
    results = {row.session.session_uid: look(store, row.session.session_uid) for row in packed}
    broken = [(uid, why) for uid, (_, why) in results.items() if why]
    paths = {row.session.session_uid: row.session.source_path for row in packed}
    for uid, why in broken:
        name = short_id(uid.partition(":")[2])
        there = os.path.lexists(paths[uid] or "")
        fix = "thence doctor --mend" if there else f"thence store remove {argument(name)}"
        words = f"{name}: {clean(why)}" + ("" if there else ", and its original log is gone")
        yield Finding("packs", "bad", words, fix, {"session_uid": uid})
    strays = _count_strays(store, [row.session.session_uid for row in rows])
    words = f"{several(len(packed), 'pack')}, {len(broken)} broken, {strays} without rows"
    if deep:
        words += f", {several(sum(count for count, _ in results.values()), 'payload')} read"
    yield Finding("packs", "note" if strays or broken else "ok", words, None, {"strays": strays})


def _count_strays(store: Store, uids: Sequence[str]) -> int:
    """Return how many packs belong to no session."""
    from thence.memory.packs import Packs, pack_name

    if not isinstance(store.blobs, Packs) or not store.blobs.folder.is_dir():
        return 0
    names = set(map(pack_name, uids))
    return sum(path.name[:20] not in names for path in store.blobs.folder.glob("*.pack"))


def _look_at_pack(store: Store, uid: str) -> tuple[int, str | None]:
    return 0, None if store.blobs.size(uid) else "its pack is missing"


def _read_all(store: Store, uid: str) -> tuple[int, str | None]:
    refs = [ref for row in store.events(uid) if (ref := row.event.payload_ref)]
    for count, ref in enumerate(refs):
        try:
            store.blobs.read(ref)
        except ThenceError as error:
            return count, error.message
    return len(refs), None


def rules(store: Store) -> Iterator[Finding]:
    """Compare the rules by which sessions were stored with those of today."""
    fingerprint = wiring.fingerprint()
    counts: Counter[str] = Counter()
    for uid, stored in store.known().sessions.items():
        parts = [
            part
            for part in fingerprint.changed_parts(uid, stored)
            if part != "reader" or not stored.gone
        ]
        counts.update(parts[:1])
    details: dict[str, JSON] = {"outdated": dict(counts)}
    if not counts:
        yield Finding("rules", "ok", "all sessions use the current rules", None, details)
        return
    if number := counts["redaction"]:
        words = f"{several(number, 'session')} stored under other redaction rules"
        yield Finding("rules", "warning", words, "thence sweep", details)
    if number := counts.total() - counts["redaction"]:
        words = f"{several(number, 'session')} stored by an older version of thence"
        yield Finding("rules", "note", words, "thence sweep", details)


def caps(store: Store | None) -> Iterator[Finding]:
    """Compare what is held with the caps, of the store and of recorded projects."""
    if store is not None:
        policy = wiring.policy()
        known = store.known()
        used = sum(session.bytes for session in known.sessions.values() if session.evicted is None)
        soft, cap = policy.raw_soft_cap_bytes, policy.distilled_cap_bytes
        over = used > soft
        words = f"transcripts {size(used, soft)} of {size_limit(soft)}"
        yield Finding(
            "caps", "warning" if over else "ok", words, "thence store gc" if over else None
        )
        if known.distilled_bytes > cap:
            words = f"digests use {size(known.distilled_bytes, cap)}, over {size_limit(cap)}"
            yield Finding("", "warning", words, "thence config")
        if known.pending:
            is_file = hasattr(store, "path")
            why = "a reader is active" if is_file else "deleted rows are still in tables"
            yield Finding("", "note", f"removed data is not erased yet: {why}", "thence sweep")
    yield from _projects(store)


def _projects(store: Store | None) -> Iterator[Finding]:
    if system.IS_WINDOWS:  # nothing is recorded there
        return
    from thence import Journal

    settings = wiring.settings()
    journal = Journal(max_bytes=settings["journal.max_bytes"])
    steps = journal.cleanup(dry_run=True, max_sessions=settings["journal.max_sessions"])
    removed = Counter(step.files.project for step in steps if step.what == "remove")
    for project, number in removed.items():
        words = (
            f"recorded project {clean(project)} is over its limit by {several(number, 'session')}"
        )
        yield Finding("", "note", words, "thence store gc -n")
    steps += wiring.left_in_projects(store) if store is not None else []
    left = [step.segment.path for step in steps if step.what == "clear" and step.segment]
    if left:
        words = f"a killed process left {several(len(left), 'file')} without a session: "
        words += clean(tilde(str(left[0]))) + (", …" if len(left) > 1 else "")
        yield Finding("", "note", words, "thence store gc -n")
    stale = [step.files.size for step in steps if step.what == "prune"]
    if stale:
        words = f"the history has {several(len(stale), 'old file')}, {size(sum(stale))}"
        yield Finding("", "note", words, "thence store gc -n")
    warning = journal.history.warning()
    if warning is not None:
        yield Finding("", "note", warning)


def forgotten(store: Store, home: Path) -> Iterator[Finding]:
    """Name what is left of sessions that were deleted for good: they are known by hashes only."""
    known = store.known(())
    if not known.forgotten:
        return
    left: dict[str, str] = {}
    for removal in store.read_table("removals"):
        if known.is_forgotten(uid := str(removal["uid"])):
            left[uid] = "the list of removals"
    for path in _books(home, getattr(store, "path", None)):
        for uid in filter(known.is_forgotten, _ids_in(path)):
            left.setdefault(uid, tilde(str(path)))
    for uid, path in own_names(store):
        if known.is_forgotten(uid):
            left.setdefault(uid, tilde(str(path)))
    for uid, where in left.items():
        words = f"{short_id(uid.partition(':')[2])} was deleted for good, and is named in {where}"
        fix = f"thence store forget {argument(uid)}"
        yield Finding("deleted", "warning", clean(words), clean(fix), {"session_uid": uid})
    if not left:
        words = f"{several(len(known.forgotten), 'session')} deleted for good, none is named"
        yield Finding("deleted", "ok", words)


def _books(home: Path, store: Path | None) -> Iterator[Path]:
    """Yield the files of a home that name sessions: neither logs nor payloads nor a database."""
    from thence.memory.disk import paths_below

    others = (home / "sessions", home / "sync" / "git")
    for path in paths_below(home):
        is_database = store is not None and path.name.startswith(store.name)
        is_other = is_database or path.suffix == ".pack" or any(o in path.parents for o in others)
        if not is_other and path.is_file() and not path.is_symlink():
            yield path


def _ids_in(path: Path) -> Iterator[str]:
    """Yield what looks like the id of a session in the name and the bytes of a file."""
    names = "|".join(map(re.escape, agents()))
    pattern = re.compile(rf"({names})[:-]([0-9A-Za-z][\w.-]{{3,127}})".encode())
    with contextlib.suppress(OSError):  # removed while we look
        body = path.read_bytes()
        for match in pattern.finditer(os.fsencode(path.name) + b"\n" + body):
            agent, name = (part.decode() for part in match.groups())
            # In a packed file the next byte may look like one more letter.
            yield from (
                f"{agent}:{name}",
                f"{agent}:{name.removesuffix('.json')}",
                f"{agent}:{name[:36]}",
            )


# -- the home -------------------------------------------------------------------------------


def modes(home: Path) -> Iterator[Finding]:
    """Find what others may read, or what is not ours."""
    if system.IS_WINDOWS:  # modes say nothing there: the user's folder keeps others out
        return
    from thence.memory.disk import paths_below

    wrong: list[tuple[Path, int]] = []
    for path in chain([home], paths_below(home)):
        try:
            here = path.lstat()
        except OSError:  # removed while we look
            continue
        if not stat.S_ISLNK(here.st_mode) and here.st_mode & 0o077:
            wrong.append((path, here.st_mode & 0o777))
    if not wrong:
        yield Finding("modes", "ok", "only you can read the data folder")
        return
    path, mode = wrong[0]
    more = f" and {len(wrong) - 1:,} more" if len(wrong) > 1 else ""
    words = f"{tilde(str(path))} has mode {mode:04o}: other users can read it{more}"
    fix = f"chmod -R go= {tilde(str(path if len(wrong) == 1 else home))}"
    entries = [{"path": str(path), "mode": f"{mode:04o}"} for path, mode in wrong]
    yield Finding("modes", "warning", clean(words), fix, {"modes": entries})


def untested_system() -> Iterator[Finding]:
    """Tell where nobody has tested what runs here."""
    if system.IS_WINDOWS:
        words = "Windows is untested: sessions can be imported, searched and viewed"
        yield Finding("system", "note", words, "to record sessions and for hooks: thence in WSL")
    elif sys.platform == "darwin":
        yield Finding("system", "note", "macOS is untested")


def place(home: Path, mounts: str = "/proc/self/mountinfo") -> Iterator[Finding]:
    """Tell whether the home is on a disk that locks and syncs as it must."""
    kind = _kind(home, mounts)
    if kind is not None and kind.startswith(REMOTE_FILE_SYSTEMS):
        words = f"the data folder is on {clean(kind)}, where locks and syncs are unreliable"
        yield Finding("place", "warning", words, "set THENCE_HOME to a folder on a local disk")
    else:
        yield Finding(
            "place", "ok", f"{clean(tilde(str(home)))} on {clean(kind or 'a local disk')}"
        )


def access(home: Path) -> Iterator[Finding]:
    """Tell when nothing can be written: what is kept can be read, and nothing is added."""
    if wiring.is_read_only():
        where = clean(tilde(str(home)))
        words = f"{where} is read-only: stored sessions can be read, nothing can be added"
        yield Finding("access", "warning", words, f"make {where} writable, then thence sweep")


def space(home: Path, unread: int) -> Iterator[Finding]:
    """Tell how much room is left for the home, and whether new logs wait for it."""
    place = next(path for path in (home, *home.parents) if path.is_dir())
    disk = shutil.disk_usage(place)
    free, total = disk.free, disk.total
    words = f"{size(free)} free of {size(total)}"
    details: dict[str, JSON] = {"free_bytes": free, "total_bytes": total}
    fix = "free some space, then thence sweep"
    if free < FULL_DISK_BYTES and unread:
        words = f"too little disk space: {words}; {size(unread)} of logs cannot be imported"
        yield Finding("disk", "bad", words, fix, details)
    elif free < FULL_DISK_BYTES:
        yield Finding("disk", "warning", f"too little disk space: {words}", fix, details)
    elif free < LOW_DISK_BYTES and free < LOW_DISK_SHARE * total:
        yield Finding("disk", "warning", f"the disk is nearly full: {words}", fix, details)
    else:
        yield Finding("disk", "ok", words, None, details)


def _kind(home: Path, mounts: str) -> str | None:
    """Return the kind of file system that a path is on, where this system tells."""
    try:
        lines = Path(mounts).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux: nothing is known of the file system
        return None
    best, kind = "", None
    here = f"{home.resolve()}/"
    for line in lines:
        before, _, after = line.partition(" - ")
        point = before.split(" ")[4].encode().decode("unicode_escape")
        if here.startswith(f"{point.rstrip('/')}/") and len(point) >= len(best):
            best, kind = point, after.split(" ")[0]
    return kind


def clock(store: Store | None) -> Iterator[Finding]:
    """Tell whether events come from the future: then this clock or another one is wrong."""
    now = present()
    rows = store.sessions() if store is not None else ()
    ends = sorted(
        ((end, row) for row in rows if (end := when(row.session.ended_at))),
        key=lambda pair: pair[0],
    )
    if not ends:
        yield Finding("clock", "ok", f"{now:%Y-%m-%d %H:%M %Z}")
        return
    newest, row = ends[-1]
    if (newest - now).total_seconds() > MAX_CLOCK_AHEAD_S:
        name = short_id(row.session.native_session_id)
        words = f"an event of {name} lies in the future: {newest:%Y-%m-%d %H:%M}"
        yield Finding("clock", "warning", words, "check the clock of this machine")
        return
    yield Finding("clock", "ok", f"ok; newest event: {since(newest, now)}")


# -- hooks ----------------------------------------------------------------------------------


def hooks(store: Store | None, known: dict[str, Adapter]) -> Iterator[Finding]:
    """Tell which agents call us, and which should have."""
    from thence.cli.hook_install import NAMES, describe_status, fix_of, status_of

    now = present()
    roots = wiring.roots(known)
    without: list[str] = []
    for agent in NAMES.names():
        if agent not in roots:
            continue
        try:
            status = status_of(agent)
        except ThenceError as error:
            yield Finding(
                "hooks", "warning", clean(f"{agent_label(agent)}: {error.message}"), error.hint
            )
            continue
        if not status["installed"] and not status["brief"] and not status["gone"]:
            without.append(agent)
            continue
        mark, words, _ = describe_status(status, now)
        level: Level = "warning" if mark == "▲" else "note" if mark == "○" else "ok"
        fix = fix_of(status) if level != "ok" else None
        if level == "ok" and store is not None and (silent := _silent(store, agent, status)):
            level, words, fix = "warning", silent, f"thence hook install {agent}"
        yield Finding("hooks", level, f"{agent_label(agent)}: {words}", fix, status)
    if without:
        labels = ", ".join(agent_label(agent) for agent in without)
        words = f"not installed for {several(len(without), 'agent')}: {labels}"
        yield Finding("hooks", "note", words, "thence setup", {"without": without})


def _silent(store: Store, agent: str, status: dict[str, JSON]) -> str | None:
    """Say so when sessions went on and the hook did not say so."""
    seen = when(status["last_nudge"])
    if seen is None:
        return None
    after = int((seen.timestamp() + SILENT_AFTER_S) * 1000)
    grown = sum(1 for _ in store.sessions(Filter(agent=agent, after=after)))
    if not grown:
        return None
    heard = since(seen, present())
    return f"installed, last report {heard} while {several(grown, 'session')} grew"


def setup_parts(home: Path) -> Iterator[Finding]:
    """Tell whether what setup installed is there and runs."""
    from thence.cli import launcher, scheduling, setup_parts

    recorded = setup_parts.read_record(home)
    known = {part.name: part for part in setup_parts.PARTS}
    wrong = 0
    for name, whose in recorded.items():
        for owner in whose:
            if problem := known[name].problem(owner):
                wrong += 1
                words = f"{name} of {owner} {problem}"
                details: dict[str, JSON] = {"part": name, "whose": owner}
                yield Finding("setup", "warning", clean(words), "thence setup", details)
    for way in (*scheduling.active_means(), *scheduling.active_services()):
        if stopped := way.problem():
            wrong += 1
            yield Finding("setup", "warning", clean(stopped.words), stopped.fix)
    missed = home / launcher.MISSED
    if missed.exists():
        gone = missed.read_text("utf-8", "replace").strip()
        yield Finding("setup", "warning", clean(f"hooks could not run: {gone} is gone"), "thence")
    elif recorded and not wrong:
        yield Finding("setup", "ok", f"{', '.join(recorded)}: as thence setup left them")


def viewer(home: Path) -> Iterator[Finding]:
    """Tell whether the viewer in the background runs this version."""
    from shlex import join

    from thence import __version__
    from thence.cli import background, scheduling

    server = background.find_running(home)
    if server is not None and server.version != __version__:
        words = f"the viewer runs version {server.version}, this is {__version__}"
        restart = scheduling.restart_command(server.pid)
        fix = join(restart) if restart else "thence serve --background"
        yield Finding("viewer", "warning", clean(words), fix)
    elif server is not None:
        yield Finding("viewer", "ok", f"runs in the background on port {server.port}")


def queue(home: Path) -> Iterator[Finding]:
    """Tell how many nudges nobody has taken yet."""
    try:
        entries = [entry for entry in os.scandir(home / "queue") if entry.is_file()]
    except OSError:  # no hook was ever heard
        return
    old = [
        e for e in entries if time.time() - e.stat(follow_symlinks=False).st_mtime > SILENT_AFTER_S
    ]
    if old:
        words = f"{several(len(old), 'nudge')} older than a day not imported yet"
        yield Finding("queue", "note", words, "thence sweep")


# -- what should run by itself --------------------------------------------------------------

_CADENCE_DAYS = {"daily": 1, "weekly": 7}


def cadence(store: Store | None) -> Iterator[Finding]:
    """Tell whether anything sweeps as often as the settings say."""
    from thence.cli import scheduling

    often: str = wiring.settings()["session_memory.retention.cadence"]
    days = _CADENCE_DAYS.get(often)
    if days is None:  # hooks start the sweeps, and are looked at with the hooks
        return
    details: dict[str, JSON] = {"cadence": often}
    timers = scheduling.active_means()
    for way in timers[:1]:
        if way.problem() is None:  # else it is told with the setup
            more = clean(way.where() or "")
            yield Finding("cadence", "ok", f"{often}, by {way.name}", None, details, more)
    if timers:
        return
    known = store.known().sessions.values() if store is not None else ()
    last = max((session.ingested or 0 for session in known), default=0) / 1000
    late = last and time.time() - last > (days + 1) * 86_400
    words = f"{often}, but no timer is installed"
    yield Finding(
        "cadence", "warning" if late else "note", words, "thence schedule install", details
    )


def journals(store: Store | None) -> Iterator[Finding]:
    """Name journals that projects keep with themselves and of which sessions are not stored."""
    from thence.agents.thence.reader import Native

    inventory = store.known() if store is not None else None
    known = wiring.local_journals(store) if store is not None else []
    here = Path.cwd()
    for folder in dict.fromkeys([*known, here]):
        local = Native().find_local(folder)
        uids = (source.uid for source in local)
        missing = [uid for uid in uids if inventory is None or inventory.is_new(uid)]
        if missing:
            place = clean(tilde(str(folder)))
            words = f"{several(len(missing), 'session')} recorded in {place} not imported"
            fix = "thence sweep" if folder in known else f"thence sweep --root thence={place}"
            yield Finding("journals", "warning", words, fix, {"sessions": missing})


def other_layouts(known: Mapping[str, Adapter]) -> Iterator[Finding]:
    """Tell of logs in `projects/ID/sessions`, which no client that we know writes."""
    for root in chain.from_iterable(wiring.roots(known).values()):
        logs: list[str] = []
        with contextlib.suppress(FileNotFoundError):  # a client removes a folder while we look
            logs = sorted(str(path) for path in root.glob("projects/*/sessions/*.jsonl"))
        if logs:
            words = f"{several(len(logs), 'log')} in projects/*/sessions below {tilde(str(root))}"
            fix = f"move them up one folder, or thence show {tilde(logs[0])}"
            details: dict[str, JSON] = {"logs": logs}
            yield Finding("layout", "warning", clean(f"{words}: not read"), clean(fix), details)


# -- other packages -------------------------------------------------------------------------


def extensions() -> Iterator[Finding]:
    """Name what of other packages cannot be used: adapters, stores, digesters."""
    from thence.agents import guard, packages
    from thence.memory import digest, store

    digest.digesters()
    for point in packages.entry_points(store.GROUP):
        if not packages.is_ours(point):
            try:
                guard.try_import(point)
            except packages.ForeignFailure as error:
                packages.note_problem(point, str(error))
    for problem in packages.problems():
        package = problem.package.partition(" ")[0]
        yield Finding(
            *("packages", "warning"),
            problem.words,
            f"pip install -U {package}, or pip uninstall {package}",
        )


# -- all ------------------------------------------------------------------------------------


def run_all(*, deep: bool) -> list[Finding]:
    """Look at everything; a check that fails is told as such. Words of logs are redacted."""
    home = wiring.home()
    out: list[Finding] = []
    with ExitStack() as stack:
        try:
            gate = wiring.printing_gate()
            known = wiring.adapters()
            store = stack.enter_context(wiring.store()) if wiring.has_store() else None
        except ThenceError as error:  # what needs no store is still worth saying
            return [Finding("setup", "bad", error.message, error.hint), *_run(_homely(home, 0))]
        read = list(_run([("sources", lambda: sources(store, known))]))
        unread = sum(finding.details.get("unread", 0) for finding in read)
        checks: list[tuple[str, Callable[[], Iterable[Finding]]]] = [
            ("agents", lambda: clients(known, deep=deep))
        ]
        if store is not None:
            opened = store  # no longer None, which a lambda could not know of `store`
            checks += [
                ("skips", lambda: skips(opened, known, deep=deep)),
                ("store", lambda: integrity(opened, deep=deep)),
                ("rules", lambda: rules(opened)),
            ]
            if deep:
                checks += [("deleted", lambda: forgotten(opened, home))]
        else:
            out.append(Finding("store", "note", "no sessions stored yet", "thence sweep"))
        checks += [
            ("caps", lambda: caps(store)),
            ("clock", lambda: clock(store)),
            ("hooks", lambda: hooks(store, known)),
            ("setup", lambda: setup_parts(home)),
            ("viewer", lambda: viewer(home)),
            ("cadence", lambda: cadence(store)),
            ("journals", lambda: journals(store)),
            ("layout", lambda: other_layouts(known)),
            ("packages", extensions),
            *_homely(home, unread),
        ]
        findings = [*read, *_run(checks), *out]
        return [
            finding._replace(
                words=gate.value(finding.words),
                more=gate.value(finding.more),
                details=gate.value(finding.details),
            )
            for finding in findings
        ]


def _homely(home: Path, unread: int) -> Sequence[tuple[str, Callable[[], Iterable[Finding]]]]:
    return (
        ("system", untested_system),
        ("queue", lambda: queue(home)),
        ("modes", lambda: modes(home)),
        ("access", lambda: access(home)),
        ("disk", lambda: space(home, unread)),
        ("place", lambda: place(home)),
    )


def _run(checks: Iterable[tuple[str, Callable[[], Iterable[Finding]]]]) -> Iterator[Finding]:
    for topic, check in checks:
        try:
            yield from check()
        except ThenceError as error:
            yield Finding(topic, "bad", error.message, error.hint)
        except Exception as error:  # noqa: BLE001 - of a damaged file anything may come
            yield Finding(topic, "bad", f"check failed: {clean(str(error))}")
