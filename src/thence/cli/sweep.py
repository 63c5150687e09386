"""`thence sweep`: keep what the agents wrote since the last time."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from thence import config
from thence.cli import options, wiring
from thence.cli.columns import Cell, Column, present, table, tell, tilde
from thence.cli.terminal import as_json, clean, cut, say, several, size, style, width, wrap
from thence.errors import SKIPS, STOPPED, ThenceError
from thence.memory.store import DATA_LOSS

if TYPE_CHECKING:
    from thence.agents import Adapter, Source
    from thence.format.records import JSON
    from thence.memory.derivation import Fingerprint
    from thence.memory.store import Inventory, Store
    from thence.memory.sweep import Progress, Report
    from thence.memory.vectors import VectorProgress

NAMED = 3
"""Skipped lines that are named before the rest is counted."""
WAIT = 30.0
"""Seconds that a watching sweep waits for another one to end."""

REST, LONGEST = 1.0, 5.0
"""How long a watching sweep rests, for each second that it took; it leaves the machine to work."""
QUIET, LATEST, SHARE = 5.0, 60.0, 9.0
"""Seconds without a change after which what was swept is digested; after which that is done though
there is no quiet; and how much longer than digesting took the rest of it waits."""
DIGEST_LIMIT_S = 0.3
"""Seconds of digesting after which a watching sweep looks for new lines again."""

EMBED_LIMIT_S = 60.0
"""Seconds of embedding after which a sweep that nobody watches leaves the rest to the next."""

LOCAL = "thence"
"""The agent whose sessions a project may keep with itself."""

Roots = dict[str, list[Path]]


class NotKept(ThenceError):
    """Nothing may be written."""

    exit_code = 2


@click.command(
    "sweep",
    help="Import what your agents wrote since the last time.",
    epilog="Exit codes: 0 done, skipped lines included; 3 a session was not read or was lost, or"
    " with --strict anything was skipped; 11 another sweep is running; 130 stopped; what was read"
    " by then is stored.",
)
@click.option("--watch", is_flag=True, help="Keep running; import whenever something is written.")
@click.option("--agent", "agents", multiple=True, help="Only this agent; may be repeated.")
@click.option(
    "--root", "given", multiple=True, metavar="AGENT=PATH", help="Read this folder instead."
)
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be read; write nothing.")
@click.option("--strict", is_flag=True, help="Exit with 3 if anything was skipped.")
@click.option("--progress", type=click.Choice(["json"]), help="Print progress as lines on stderr.")
@options.as_json
def command(
    agents: tuple[str, ...],
    given: tuple[str, ...],
    progress: Literal["json"] | None,
    *,
    watch: bool,
    dry_run: bool,
    strict: bool,
    json: bool,
) -> int:
    """Sweep once, or again and again."""
    known = wiring.adapters()
    found = wiring.roots(known, only=agents, given=given, later=watch and not dry_run)
    roots = {name: list(paths) for name, paths in found.items()}
    if dry_run:
        return _dry(known, roots, json=json, asked=bool(given))
    if not config.persistence():
        hint = f"unset {config.OFF} and {config.OFF_ELSEWHERE}, or only look: thence sweep -n"
        raise NotKept("recording is switched off", hint=hint)
    run = Run(known, roots, agents, _telling(progress, json=json), json=json, asked=bool(given))
    run.strict = strict
    with interruptible(), wiring.store(must_exist=False) as store:
        if not given and (not agents or LOCAL in agents):
            local = [*roots.get(LOCAL, ()), *wiring.local_journals(store)]
            roots |= {LOCAL: list(dict.fromkeys(local))} if local else {}
        before = store.totals()[0].sessions
        try:
            return run.watch(store) if watch else run.once(store)
        except KeyboardInterrupt:
            run.stopped(store.totals()[0].sessions - before, watching=watch)
            return STOPPED


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C stop this process only: what it started is ended by it, without a word."""
    if not hasattr(signal, "SIGINT"):
        yield
        return
    here = os.getpid()

    def stop(_number: int, _frame: object) -> None:
        if os.getpid() == here:
            raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGINT, stop)
    except ValueError:  # not in the main thread: who runs us handles signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Run:
    """Sweeps of the same roots, one or many."""

    def __init__(
        self,
        known: Mapping[str, Adapter],
        roots: Roots,
        only: Sequence[str],
        progress: Telling,
        *,
        json: bool,
        asked: bool = False,
    ) -> None:
        """With `asked` somebody named the roots: one that holds nothing is told of."""
        self._known = known
        self._roots = roots
        self._only = only
        self._progress = progress
        self._json = json
        self._asked = asked
        self._report: Report | None = None
        self._far: Progress | None = None
        self.strict = False

    def once(self, store: Store) -> int:
        """Sweep everything, and say what was done."""
        report = self._sweep(store, self._known, self._roots)
        if self._asked and report.sources:
            report.notes += empty(self._known, self._roots)
        if self._json:
            say(as_json(_object(report)))
        else:
            tell(self._said(report, width()))
        return code(report, strict=self.strict)

    def stopped(self, kept: int, *, watching: bool) -> None:
        """Say what is kept of a sweep that was stopped: what was read last may not be."""
        self._progress.end()
        if self._json and self._report is not None and not watching:
            told = {**_object(self._report), "sessions_new": kept, "interrupted": True}
            say(as_json(told))
        elif watching:
            tell(["stopped watching"])
        else:
            far, of = (self._far.sources, self._far.all_sources) if self._far else (0, 0)
            what = f"stopped after {far:,} of {several(of, 'session')}" if of else "stopped"
            tell([f"{what}, {kept:,} new ones are stored; run it again to continue"])

    def _sweep(
        self,
        store: Store,
        known: Mapping[str, Adapter],
        roots: Roots,
        *,
        wait: float = 0.0,
        digests: bool = True,
        digest_limit_s: float | None = None,
    ) -> Report:
        from thence.memory import nudges

        with store.sweeping(wait):
            taken = nudges.take(wiring.home(), only=self._only)
            roots = {name: list(paths) for name, paths in roots.items()}
            for name, root in taken.roots(known):
                if root not in roots.setdefault(name, []) and root.is_dir():
                    roots[name].append(root)
            sweep = wiring.sweep_of(
                store, known, evicts=wiring.policy(), progress=self._note, digests=digests
            )
            self._report = sweep.report
            report = sweep.run(roots, digest_limit_s)
            if report.sessions_new:
                wiring.refresh_folders(store)
            if report.evicted or sweep.redacted_again:
                wiring.let_go(store, sweep.redacted_again)
            taken.done()
        if digests:
            self._embed(store, report, limit_s=digest_limit_s)
        self._progress.end()
        if report.losses or sweep.digested:
            from thence.cli.notes import post_digests, write_losses

            report.notes += write_losses(report.losses)
            if problem := post_digests(store, sweep.digested):
                report.notes.append(problem)
        return report

    def _embed(self, store: Store, report: Report, *, limit_s: float | None) -> None:
        """Make vectors that are missing, where semantic search is on; all if somebody watches."""
        vectors = getattr(store, "vectors", None)
        if vectors is None:
            if wiring.settings()["session_memory.semantic"]:
                report.notes.append("semantic search needs a store in SQLite; this one has none")
            return
        from thence.memory.reports import Progress

        def note(far: VectorProgress) -> None:
            all_ = far.done + far.left
            self._progress(Progress("embed", sources=far.done, all_sources=all_, sessions=all_))

        if limit_s is None and not self._progress.is_shown:
            limit_s = EMBED_LIMIT_S
        far = vectors.build(store, limit_s=limit_s, progress=note)
        report.embedded, report.unembedded = far.done, far.left

    def _said(self, report: Report, room: int) -> Iterator[str]:
        """Say what was done, or where nothing was found to do."""
        if report.sources or _reprocessed(report):
            yield from said(report, room)
            return
        there = {name: [p for p in paths if p.is_dir()] for name, paths in self._roots.items()}
        yield from looked(self._known, {name: paths for name, paths in there.items() if paths})
        yield from _removed(report, room)
        yield from _not_used(report, room)

    def _note(self, progress: Progress) -> None:
        if progress.stage == "read":
            self._far = progress
        self._progress(progress)

    # -- watching -----------------------------------------------------------------------

    def watch(self, store: Store) -> int:
        """Sweep, then again whenever files change; ends when it is stopped."""
        from thence.memory import nudges
        from thence.memory.watching import changes, narrow_to

        folders = [path for paths in self._roots.values() for path in paths]
        changed = changes(folders, wiring.home() / nudges.FOLDER, rest=QUIET)
        self._tell(self._sweep(store, self._known, self._roots, wait=WAIT), first=True)
        due = time.monotonic() + LATEST
        for paths in changed:
            known, roots = narrow_to(self._known, self._roots, paths)
            # To digest a session all of it is read, for every line that it grows by.
            digests = not paths or time.monotonic() > due
            report = self._sweep(
                store, known, roots, wait=WAIT, digests=digests, digest_limit_s=DIGEST_LIMIT_S
            )
            if digests:
                later = SHARE * report.seconds if report.undigested else LATEST
                due = time.monotonic() + later
            self._tell(report)
            time.sleep(min(REST * report.seconds, LONGEST))  # what changes meanwhile is gathered
        return 0

    def _tell(self, report: Report, *, first: bool = False) -> None:
        if self._json:
            import json

            click.echo(json.dumps(_object(report)))
        elif first or report.events or report.lost or _is_worth_telling(report):
            clock = style(f"{present():%H:%M:%S}", fg="bright_black")
            lines = list(self._said(report, width() - 10))
            tell([f"{clock}  {lines[0]}", *(f"{' ' * 10}{line}" for line in lines[1:])])


# -- progress -------------------------------------------------------------------------------


class Telling:
    """Where progress goes, and how what is left of it goes away."""

    def __init__(
        self, note: Callable[[Progress], None] | None = None, end: Callable[[], None] | None = None
    ) -> None:
        self._note = note
        self._end = end

    def __call__(self, progress: Progress) -> None:
        """Tell how far it is."""
        if self._note is not None:
            self._note(progress)

    @property
    def is_shown(self) -> bool:
        """Whether somebody sees it."""
        return self._note is not None

    def end(self) -> None:
        """Nothing more will come."""
        if self._end is not None:
            self._end()


def _telling(progress: Literal["json"] | None, *, json: bool) -> Telling:
    if progress == "json":
        return Telling(_progress_line)
    if json or not sys.stdout.isatty() or not sys.stderr.isatty():
        return Telling()
    from thence.cli.bar import Bar

    bar = Bar(sys.stderr, width)
    return Telling(bar, bar.wipe)


def _progress_line(progress: Progress) -> None:
    import msgspec

    click.echo(msgspec.json.encode(progress).decode(), err=True)


# -- what was done --------------------------------------------------------------------------


def code(report: Report, *, strict: bool = False) -> int:
    """Return how a sweep ends: 3 for what was lost or not read, if `strict` for any skip."""
    skips = report.skipped or report.problems or report.links
    return SKIPS if report.failed or report.lost or (strict and skips) else 0


def _object(report: Report) -> dict[str, JSON]:
    import msgspec

    told: dict[str, JSON] = msgspec.to_builtins(report)
    return told


def looked(known: Mapping[str, Adapter], roots: Roots) -> Iterator[str]:
    """Say where no session was found, and what would have been one."""
    yield "no sessions of any agent found" + ("" if roots else " on this machine")
    yield from (f"  {line}" for line in empty(known, roots))
    agent = clean(next(iter(roots or known), "AGENT"))
    yield f"  thence sweep --root {agent}=PATH reads them from elsewhere"


def empty(known: Mapping[str, Adapter], roots: Roots) -> Iterator[str]:
    """Name the roots that hold no session, and say what would have been one."""
    for name, places in roots.items():
        wanted = getattr(known[name], "looks_for", None) or "session"
        for place in places:
            if next(iter(known[name].find(place)), None) is None:
                yield f"{clean(name)}: no {clean(wanted)} below {clean(tilde(str(place)))}"


_CHANGED: dict[str, str] = {
    "redaction": "the redaction rules changed",
    "reader": "the log readers changed",
    "fold": "session assembly changed",
    "digest": "the digest format changed",
}
"""Why stored sessions were processed again."""


def said(report: Report, room: int) -> Iterator[str]:
    """Say in words what a sweep did."""
    took = f"{report.seconds:.2f} s" if report.seconds < 1 else f"{report.seconds:.1f} s"
    if not report.read:
        yield f"nothing new in {several(report.sources, 'session')}, {took}"
    else:
        yield _kept(report, took, room)
    for part, number in report.reprocessed.items():
        if number:
            yield cut(f"  {_CHANGED[part]}: {several(number, 'session')} processed again", room)
    yield from _redacted(report, room)
    if report.embedded or report.unembedded:
        left = f", {report.unembedded:,} left for the next sweep" if report.unembedded else ""
        yield cut(f"  semantic search: {several(report.embedded, 'session')} added{left}", room)
    if report.vanished:
        deleted = several(report.vanished, "session")
        were = "was" if report.vanished == 1 else "were"
        yield cut(f"  {deleted} {were} deleted before they could be read", room)
    yield from _left_out(report, room)
    yield from _removed(report, room)
    yield from _not_used(report, room)


def _removed(report: Report, room: int) -> Iterator[str]:
    """Say what was removed, what of it is lost, and what the user must know besides."""
    if number := report.evicted - report.lost:
        yield f"  {several(number, 'transcript')} removed; the digests stay"
    if report.only_copies:
        only = several(report.only_copies, "transcript")
        words = f"{only} of these had no original log: only the digest is left"
        yield from _wrapped(words, room, "yellow")
    if report.lost:
        yield from _wrapped(f"LOST: {lost_words(report.losses)}", room, "red")
    for note in report.notes:
        if not note.startswith(DATA_LOSS):
            yield from _wrapped(clean(note), room, "yellow")


def lost_words(losses: Mapping[str, str]) -> str:
    """Say in a sentence how many sessions were lost, and why the first of them was."""
    many, reason = several(len(losses), "session"), next(iter(losses.values()), "")
    were = "was" if len(losses) == 1 else "were"
    why = reason.removesuffix(": data loss")
    return f"{many} {were} removed before it was fully analysed: {why}"


def _wrapped(text: str, room: int, colour: str) -> Iterator[str]:
    """Give a sentence that must not be cut."""
    yield from (style(f"  {line}", fg=colour) for line in wrap(text, room - 2))


def _not_used(report: Report, room: int) -> Iterator[str]:
    """Name links that were not followed, and what of other packages was left out."""
    if report.links:
        first = clean(tilde(report.links[0]))
        more = f" and {len(report.links) - 1:,} more" if len(report.links) > 1 else ""
        words = f"  {several(len(report.links), 'link')} not followed: {first}{more}"
        yield style(cut(words, room), fg="yellow")
    for problem in report.problems:
        what = problem.group.rpartition(".")[2].removesuffix("s")
        words = f"  {what} {problem.name} of {problem.package} is not used: {problem.why}"
        yield style(cut(clean(words), room), fg="yellow")


def _is_worth_telling(report: Report) -> bool:
    """Whether a watching sweep did or missed something that is no new event."""
    return bool(report.skipped or report.failed or _reprocessed(report))


def _reprocessed(report: Report) -> int:
    """Return how many stored sessions were processed again."""
    return sum(report.reprocessed.values())


def _kept(report: Report, took: str, room: int) -> str:
    kept = report.sessions_new + report.sessions_changed
    if not kept:
        return f"imported nothing new from {several(report.sources, 'session')}, {took}"
    new = f" ({report.sessions_new:,} new)" if report.sessions_new else ""
    return cut(
        f"imported {several(kept, 'session')}{new}, {several(report.events, 'event')},"
        f" {size(report.bytes)} in {took}",
        room,
    )


def _redacted(report: Report, room: int) -> Iterator[str]:
    counts = Counter(report.redactions)
    if not (total := counts.total()):
        return
    kinds = [f"{number:,} {clean(kind)}" for kind, number in counts.most_common(NAMED)]
    more = f" and {len(counts) - NAMED} more kinds" if len(counts) > NAMED else ""
    yield cut(f"  {several(total, 'secret')} redacted: {', '.join(kinds)}{more}", room)


def _left_out(report: Report, room: int) -> Iterator[str]:
    failed = [one for one in report.outcomes if one.what == "failed"]
    for one in failed[:NAMED]:
        where = one.path.rpartition("/")[2]
        yield style(cut(f"  not read: {clean(where)}: {clean(one.why or '')}", room), fg="red")
    if len(failed) > NAMED:
        yield f"  and {several(len(failed) - NAMED, 'more session')} not read: thence doctor"
    if not report.skipped:
        return
    skips = [(one.path, skip) for one in report.outcomes for skip in one.skipped]
    files = len({skip.source or path for path, skip in skips}) or 1
    rest = "the rest of these files is stored" if files > 1 else "the rest of the file is stored"
    yield f"  {several(report.skipped, 'line')} skipped in {several(files, 'file')}; {rest}"
    for path, skip in skips[:NAMED]:
        what = f":{skip.line}   {skip.why}, {size(skip.length)}"
        where = clean(tilde(skip.source or path))
        yield f"    {_end_of(where, room - 4 - len(what))}{what}"
    if report.skipped > NAMED:
        yield f"    and {report.skipped - NAMED:,} more: thence doctor"


def _end_of(path: str, room: int) -> str:
    """Cut a path at its beginning: the end tells files apart."""
    return path if len(path) <= room else f"…{path[-max(room - 1, 8) :]}"


# -- what would be done ---------------------------------------------------------------------


class Pending:
    """What thence sweep would read of one agent."""

    def __init__(self, agent: str, fingerprint: Fingerprint) -> None:
        self.agent = agent
        self._fingerprint = fingerprint
        self.sources = self.new = self.changed = self.bytes = 0

    def add(self, source: Source, inventory: Inventory | None) -> None:
        """Count a session: new, grown, or as it was read."""
        from thence.agents.files import is_unchanged, measure_source

        self.sources += 1
        if inventory is not None and inventory.is_forgotten(source.uid):
            return
        before = inventory.sessions.get(source.uid) if inventory is not None else None
        if before is None:
            self.new += 1
            self.bytes += measure_source(source)[0]
            return
        again = before.evicted is None and self._fingerprint.needs_source(before)
        if again or not is_unchanged(source, before.cursor):
            self.changed += 1
            done = 0 if again else sum(m.offset for m in before.cursor.marks.values())
            self.bytes += max(measure_source(source)[0] - done, 0)

    def told(self) -> dict[str, JSON]:
        """Give it under the names of the other answers."""
        return {
            "agent": self.agent,
            "sources": self.sources,
            "sessions_new": self.new,
            "sessions_changed": self.changed,
            "bytes": self.bytes,
        }


def pending(known: Mapping[str, Adapter], roots: Roots, store: Store | None) -> list[Pending]:
    """Find out what thence sweep would read, and open no session."""
    from thence.memory.places import find_sessions

    inventory = store.known() if store is not None else None
    fingerprint = wiring.fingerprint()
    out: list[Pending] = []
    for name, places in roots.items():
        one = Pending(name, fingerprint)
        for source in find_sessions(known[name], places, inventory):
            one.add(source, inventory)
        out.append(one)
    return out


def _dry(known: Mapping[str, Adapter], roots: Roots, *, json: bool, asked: bool) -> int:
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(wiring.store()) if wiring.has_store() else None
        found = pending(known, roots, store)
    if json:
        say(
            as_json(
                {
                    "dry_run": True,
                    "sources": sum(one.sources for one in found),
                    "sessions_new": sum(one.new for one in found),
                    "sessions_changed": sum(one.changed for one in found),
                    "bytes": sum(one.bytes for one in found),
                    "agents": [one.told() for one in found],
                    "seconds": time.monotonic() - began,
                }
            )
        )
        return 0
    if any(one.sources for one in found):
        lines = [_would(found), *table(_PENDING, [_cells(one) for one in found], width())]
        lines += [f"  {line}" for line in empty(known, roots)] if asked else []
    else:
        lines = list(looked(known, roots))
    tell([*lines, "nothing was written"])
    return 0


_PENDING = (
    *(Column(), Column(), Column(right=True), Column(right=True)),
    *(Column(right=True), Column(right=True)),
)


def _would(found: Sequence[Pending]) -> str:
    new, changed = sum(one.new for one in found), sum(one.changed for one in found)
    if not new + changed:
        return f"nothing new in {several(sum(one.sources for one in found), 'session')}"
    much = size(sum(one.bytes for one in found))
    return f"thence sweep would read {several(new + changed, 'session')}, {much}"


def _cells(one: Pending) -> list[Cell]:
    return [
        Cell(" "),
        Cell(one.agent),
        Cell(several(one.sources, "session")),
        Cell(f"{one.new:,} new"),
        Cell(f"{one.changed:,} changed"),
        Cell(size(one.bytes)),
    ]
