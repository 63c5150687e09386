"""`thence sweep`: keep what the agents wrote since the last time."""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
import msgspec

from thence import config
from thence.agents.files import is_unchanged, measure_source
from thence.agents.looks import Look
from thence.agents.unread import as_objects
from thence.cli import options, wiring
from thence.cli.columns import TextCell, agent_label, present, table, tell, tilde
from thence.cli.home_sweep import HomeSweep, is_large_first
from thence.cli.interrupts import interruptible
from thence.cli.terminal import (
    as_json,
    clean,
    cut,
    cut_start,
    say,
    several,
    size,
    style,
    width,
    wrap,
)
from thence.cli.unread_lines import describe_problems, describe_unread
from thence.errors import SKIPS, STOPPED, ThenceError
from thence.memory.store import DATA_LOSS, StoreLocked
from thence.memory.unread import read_unread, still_unread

if TYPE_CHECKING:
    from thence.agents import Adapter, Source
    from thence.agents.unread import Unread
    from thence.format.records import JSON
    from thence.memory.derivation import Fingerprint
    from thence.memory.store import Inventory, Store
    from thence.memory.sweep import Progress, SweepReport
    from thence.memory.vectors import VectorProgress

MAX_NAMED = 3
"""Skipped lines that are named before the rest is counted."""

EMBED_LIMIT_S = 60.0
"""Seconds of embedding after which a sweep that nobody watches leaves the rest to the next."""

LOCAL = "thence"
"""The agent whose sessions a project may keep with itself."""

AGENT_GROUPS = ("thence.agents", "thence.adapters")
"""Where packages bring agents: one that is not used may have sessions that were not read."""

Roots = dict[str, list[Path]]


class NotKept(ThenceError):
    """Nothing may be written."""

    exit_code = 2


@click.command(
    "sweep",
    epilog="Exit codes: 0 done, skipped lines included; 3 a session or an agent was not read, or a"
    " session was lost, or with --strict anything was skipped; 11 another sweep is running;"
    " 130 stopped; what was read by then is stored.",
)
@click.option("--watch", is_flag=True, help="Keep running; import whenever something is written.")
@click.option(
    "--agent",
    "agents",
    type=options.AgentFilter(),
    multiple=True,
    help="Only this agent; may be repeated.",
)
@click.option(
    "--root",
    "root_options",
    multiple=True,
    metavar="AGENT=PATH",
    help="Read the sessions of AGENT from this folder.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be read; write nothing.")
@click.option("--strict", is_flag=True, help="Exit with 3 if anything was skipped.")
@click.option("--progress", type=click.Choice(["json"]), help="Print progress as lines on stderr.")
@options.as_json
def command(
    agents: tuple[str, ...],
    root_options: tuple[str, ...],
    progress: Literal["json"] | None,
    *,
    watch: bool,
    dry_run: bool,
    strict: bool,
    json: bool,
) -> int:
    """Sweep once, or again and again."""
    known = wiring.lazy_adapters()
    folders = wiring.roots(known, only=agents, options=root_options, later=watch and not dry_run)
    roots = {name: list(paths) for name, paths in folders.items()}
    if dry_run:
        return _dry(known, roots, json=json, asked=bool(root_options))
    if not config.persistence():
        hint = f"unset {config.OFF} and {config.OFF_ELSEWHERE}, or only look: thence sweep -n"
        raise NotKept("recording is switched off", hint=hint)
    run = SweepRun(
        known, roots, agents, _make_output(progress, json=json), json=json, asked=bool(root_options)
    )
    run.strict = strict
    with interruptible(), wiring.store(must_exist=False) as store:
        if not root_options and (not agents or LOCAL in agents):
            local = [*roots.get(LOCAL, ()), *wiring.local_journals(store)]
            roots |= {LOCAL: list(dict.fromkeys(local))} if local else {}
        before = store.totals()[0].sessions
        try:
            return run.watch(store) if watch else run.once(store)
        except KeyboardInterrupt:
            run.report_stop(store.totals()[0].sessions - before, watching=watch)
            return STOPPED


class SweepRun:
    """Sweeps of the same roots, one or many."""

    def __init__(
        self,
        known: Mapping[str, Adapter],
        roots: Roots,
        only: Sequence[str],
        progress: ProgressOutput,
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
        self._sweep_home: HomeSweep | None = None
        self._far: Progress | None = None
        self.strict = False

    def once(self, store: Store) -> int:
        """Sweep everything, and say what was done."""
        from thence.memory import nudges

        taken = nudges.take(wiring.home(), only=self._only)
        roots = {name: list(paths) for name, paths in self._roots.items()}
        for name, root in taken.roots(self._known):
            if root not in roots.setdefault(name, []) and root.is_dir():
                roots[name].append(root)
        self._sweep_home = HomeSweep(store, self._note)
        report = self._sweep_home(self._known, roots)
        taken.done()
        self._embed(store, report)
        self._progress.end()
        if self._asked and report.sources:
            report.notes += _name_empty(self._known, self._sweep_home.empty_roots)
        if self._json:
            say(as_json(_object(report)))
        else:
            tell(self._describe(report, width()))
        return code(report, strict=self.strict)

    def report_stop(self, imported: int, *, watching: bool) -> None:
        """Say what is kept of a sweep that was stopped."""
        self._progress.end()
        stopped = self._sweep_home.report if self._sweep_home is not None else None
        if self._json and stopped is not None and not watching:
            report = {**_object(stopped), "sessions_new": imported, "interrupted": True}
            say(as_json(report))
        elif watching:
            tell(["stopped watching"])
        else:
            far, of = (self._far.sources, self._far.all_sources) if self._far else (0, 0)
            what = f"stopped after {far:,} of {several(of, 'session')}" if of else "stopped"
            new = several(imported, "new one") if imported else "nothing new"
            verb = "are" if imported > 1 else "is"
            tell([f"{what}, {new} {verb} stored; run it again to continue"])

    def _embed(self, store: Store, report: SweepReport) -> None:
        """Make vectors that are missing, where semantic search is on; all if somebody watches."""
        vectors = getattr(store, "vectors", None)
        if vectors is None:
            return
        from thence.memory.reports import Progress

        def note(far: VectorProgress) -> None:
            all_ = far.done + far.left
            self._progress(Progress("embed", sources=far.done, all_sources=all_, sessions=all_))

        limit_s = None if self._progress.is_shown else EMBED_LIMIT_S
        far = vectors.build(store, limit_s=limit_s, progress=note)
        report.embedded, report.unembedded = far.done, far.left

    def _describe(self, report: SweepReport, room: int) -> Iterator[str]:
        """Say what is not read, and then what was done, or where nothing was found to do."""
        yield from describe_unread(report.not_read, room)
        if report.sources or _count_reprocessed(report):
            yield from describe_report(report, room)
            return
        there = {name: [p for p in paths if p.is_dir()] for name, paths in self._roots.items()}
        yield from describe_empty(
            self._known, {name: paths for name, paths in there.items() if paths}, report.not_read
        )
        yield from _describe_removed(report, room)
        yield from describe_problems(report.problems, room)

    def _note(self, progress: Progress) -> None:
        if progress.stage == "read":
            self._far = progress
        self._progress(progress)

    # -- watching -----------------------------------------------------------------------

    def watch(self, store: Store) -> int:
        """Sweep, then again whenever files change, until it is interrupted."""
        from thence.memory.sweeper import Sweeper
        from thence.memory.watching import DIGEST_LIMIT_S

        sweep_home = self._sweep_home = HomeSweep(store, self._note)
        sweeps = itertools.count()

        def sweep_and_tell(*what: Any, **options: Any) -> SweepReport:
            report = sweep_home(*what, **options)
            self._progress.end()
            self._tell(report, first=not next(sweeps))
            return report

        if is_large_first(store, self._known, self._roots):
            # As long as there are no threads, processes can be forked that read years of logs.
            with contextlib.suppress(StoreLocked):  # another one reads them
                sweep_and_tell(self._known, self._roots, digest_limit_s=DIGEST_LIMIT_S)
        Sweeper(
            store,
            wiring.home(),
            self._known,
            self._roots,
            sweep_home=sweep_and_tell,
            hub=_Nobody(),
        ).run()
        return 0

    def _tell(self, report: SweepReport, *, first: bool = False) -> None:
        if self._json:
            import json

            click.echo(json.dumps(_object(report)))
        elif first or report.events or report.lost or _is_worth_telling(report):
            clock = style(f"{present():%H:%M:%S}", fg="bright_black")
            lines = list(self._describe(report, width() - 10))
            tell([f"{clock}  {lines[0]}", *(f"{' ' * 10}{line}" for line in lines[1:])])


class _Nobody:
    """Nobody sees pages: what is said of sweeps is printed."""

    has_clients = False

    def publish_changes(self, uids: Iterable[str], *, again: bool = False) -> None:
        """Publish nothing."""

    def publish_standing(self) -> None:
        """Publish nothing."""


# -- progress -------------------------------------------------------------------------------


class ProgressOutput:
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


def _make_output(progress: Literal["json"] | None, *, json: bool) -> ProgressOutput:
    if progress == "json":
        return ProgressOutput(_progress_line)
    if json or not sys.stdout.isatty() or not sys.stderr.isatty():
        return ProgressOutput()
    from thence.cli.progress_bar import ProgressBar

    bar = ProgressBar(sys.stderr, width)
    return ProgressOutput(bar, bar.wipe)


def _progress_line(progress: Progress) -> None:
    click.echo(msgspec.json.encode(progress).decode(), err=True)


# -- what was done --------------------------------------------------------------------------


def code(report: SweepReport, *, strict: bool = False) -> int:
    """Return how a sweep ends: 3 for what was lost or not read, if `strict` for any skip."""
    skips = report.skipped or report.problems or report.not_read
    unread = report.failed or any(problem.group in AGENT_GROUPS for problem in report.problems)
    return SKIPS if unread or report.lost or (strict and skips) else 0


def _object(report: SweepReport) -> dict[str, JSON]:
    out: dict[str, JSON] = msgspec.to_builtins(report)
    out["not_read"] = as_objects(report.not_read)
    return out


def describe_empty(
    known: Mapping[str, Adapter], roots: Roots, not_read: Sequence[Unread] = ()
) -> Iterator[str]:
    """Say where no session was found, and what would have been one."""
    if not_read:
        yield "no other sessions of any agent found"
        unread = {item.agent for item in not_read}
        roots = {name: paths for name, paths in roots.items() if name not in unread}
    else:
        yield "no sessions of any agent found" + ("" if roots else " on this machine")
    yield from (f"  {line}" for line in empty(known, roots))
    agent = clean(next(iter(roots or known), "AGENT"))
    yield f"  thence sweep --root {agent}=PATH reads them from elsewhere"


def empty(known: Mapping[str, Adapter], roots: Roots) -> Iterator[str]:
    """Name the roots that hold no session, and say what would have been one."""
    each = ((name, place) for name, places in roots.items() for place in places)
    is_empty = (pair for pair in each if next(iter(known[pair[0]].find(pair[1])), None) is None)
    yield from _name_empty(known, is_empty)


def _name_empty(known: Mapping[str, Adapter], roots: Iterable[tuple[str, Path]]) -> Iterator[str]:
    """Say of roots without a session what would have been one."""
    for name, place in roots:
        wanted = getattr(known[name], "looks_for", None) or "session"
        yield f"{clean(name)}: no {clean(wanted)} below {clean(tilde(str(place)))}"


_CHANGED: dict[str, str] = {
    "redaction": "the redaction rules changed",
    "reader": "the log readers changed",
    "tools": "the known tools changed",
    "fold": "session assembly changed",
    "prices": "the price list changed",
    "digest": "the digest format changed",
}
"""Why stored sessions were processed again."""


def describe_report(report: SweepReport, room: int) -> Iterator[str]:
    """Say in words what a sweep did."""
    took = f"{report.seconds:.2f} s" if report.seconds < 1 else f"{report.seconds:.1f} s"
    if not report.read:
        yield f"nothing new in {several(report.sources, 'session')}, {took}"
    else:
        yield _describe_imported(report, took, room)
    for part, number in report.reprocessed.items():
        if number:
            yield cut(f"  {_CHANGED[part]}: {several(number, 'session')} processed again", room)
    yield from _describe_redactions(report, room)
    if report.embedded or report.unembedded:
        left = f", {report.unembedded:,} left for the next sweep" if report.unembedded else ""
        yield cut(f"  semantic search: {several(report.embedded, 'session')} added{left}", room)
    if report.vanished:
        deleted = several(report.vanished, "session")
        were = "was" if report.vanished == 1 else "were"
        yield cut(f"  {deleted} {were} deleted before they could be read", room)
    yield from _left_out(report, room)
    yield from _describe_removed(report, room)
    yield from describe_problems(report.problems, room)


def _describe_removed(report: SweepReport, room: int) -> Iterator[str]:
    """Say what was removed, what of it is lost, and what the user must know besides."""
    if number := report.evicted - report.lost:
        yield f"  {several(number, 'transcript')} removed; the digests stay"
    if report.only_copies:
        only = several(report.only_copies, "transcript")
        words = f"{only} of these had no original log: only the digest is left"
        yield from _wrap(words, room, "yellow")
    if report.lost:
        from thence.memory.reports import describe_losses

        yield from _wrap(f"LOST: {describe_losses(report.losses)}", room, "red")
    for note in report.notes:
        if not note.startswith(DATA_LOSS):
            yield from _wrap(clean(note), room, "yellow")


def _wrap(text: str, room: int, colour: str) -> Iterator[str]:
    """Yield a sentence that must not be cut."""
    yield from (style(f"  {line}", fg=colour) for line in wrap(text, room - 2))


def _is_worth_telling(report: SweepReport) -> bool:
    """Whether a watching sweep did or missed something that is no new event."""
    return bool(report.skipped or report.failed or _count_reprocessed(report))


def _count_reprocessed(report: SweepReport) -> int:
    """Return how many stored sessions were processed again."""
    return sum(report.reprocessed.values())


def _describe_imported(report: SweepReport, took: str, room: int) -> str:
    imported = report.sessions_new + report.sessions_changed
    if not imported:
        return f"imported nothing new from {several(report.sources, 'session')}, {took}"
    new = f" ({report.sessions_new:,} new)" if report.sessions_new else ""
    return cut(
        f"imported {several(imported, 'session')}{new}, {several(report.events, 'event')},"
        f" {size(report.bytes)} in {took}",
        room,
    )


def _describe_redactions(report: SweepReport, room: int) -> Iterator[str]:
    counts, is_bound = Counter(report.redactions), report.more_redacted
    if not counts and not is_bound:
        return
    redacted = several(counts.total(), "secret", is_bound=is_bound)
    kinds = [f"{number:,} {clean(kind)}" for kind, number in counts.most_common(MAX_NAMED)]
    more = f" and {len(counts) - MAX_NAMED} more kinds" if len(counts) > MAX_NAMED else ""
    named = f": {', '.join(kinds)}{more}" if kinds else ""
    yield cut(f"  {redacted} redacted{named}", room)


def _left_out(report: SweepReport, room: int) -> Iterator[str]:
    if not report.skipped:
        return
    skips = [(outcome.path, skip) for outcome in report.outcomes for skip in outcome.skipped]
    files = len({skip.source or path for path, skip in skips}) or 1
    rest = "the rest of these files is stored" if files > 1 else "the rest of the file is stored"
    yield f"  {several(report.skipped, 'line')} skipped in {several(files, 'file')}; {rest}"
    for path, skip in skips[:MAX_NAMED]:
        what = f":{skip.line}   {skip.why}, {size(skip.length)}"
        where = clean(tilde(skip.source or path))
        yield f"    {cut_start(where, max(room - 4 - len(what), 9))}{what}"
    if report.skipped > MAX_NAMED:
        yield f"    and {report.skipped - MAX_NAMED:,} more: thence doctor"


# -- what would be done ---------------------------------------------------------------------


class PendingSources:
    """What thence sweep would read of one agent."""

    def __init__(self, agent: str, fingerprint: Fingerprint) -> None:
        self.agent = agent
        self._fingerprint = fingerprint
        self.sources = self.new = self.changed = self.bytes = 0

    def add(self, source: Source, inventory: Inventory | None) -> None:
        """Count a session: new, grown, or as it was read."""
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

    def as_object(self) -> dict[str, JSON]:
        """Return the counts under the names of the other answers."""
        return {
            "agent": self.agent,
            "sources": self.sources,
            "sessions_new": self.new,
            "sessions_changed": self.changed,
            "bytes": self.bytes,
        }


def find_pending(
    known: Mapping[str, Adapter], roots: Roots, store: Store | None, look: Look
) -> list[PendingSources]:
    """Find out what thence sweep would read, and open no session."""
    from thence.memory.session_sources import find_sessions

    inventory = store.known() if store is not None else None
    fingerprint = wiring.fingerprint()
    out: list[PendingSources] = []
    for name, places in roots.items():
        agent = PendingSources(name, fingerprint)
        for source in find_sessions(known[name], places, inventory, look):
            agent.add(source, inventory)
        out.append(agent)
    return out


def _dry(known: Mapping[str, Adapter], roots: Roots, *, json: bool, asked: bool) -> int:
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(wiring.store()) if wiring.has_store() else None
        look = Look(read_unread(wiring.home()))
        agents = find_pending(known, roots, store, look)
    not_read = still_unread(wiring.home(), look.unread, wiring.clean_text)
    if json:
        say(
            as_json(
                {
                    "dry_run": True,
                    "sources": sum(agent.sources for agent in agents),
                    "sessions_new": sum(agent.new for agent in agents),
                    "sessions_changed": sum(agent.changed for agent in agents),
                    "bytes": sum(agent.bytes for agent in agents),
                    "agents": [agent.as_object() for agent in agents],
                    "not_read": as_objects(not_read),
                    "seconds": time.monotonic() - began,
                }
            )
        )
        return 0
    if any(agent.sources for agent in agents):
        lines = [_would(agents), *table("<<>>>>", [_cells(agent) for agent in agents], width())]
        lines += [f"  {line}" for line in empty(known, roots)] if asked else []
    else:
        lines = list(describe_empty(known, roots, not_read))
    tell([*describe_unread(not_read, width()), *lines, "nothing was written"])
    return 0


def _would(agents: Sequence[PendingSources]) -> str:
    new, changed = sum(agent.new for agent in agents), sum(agent.changed for agent in agents)
    if not new + changed:
        return f"nothing new in {several(sum(agent.sources for agent in agents), 'session')}"
    much = size(sum(agent.bytes for agent in agents))
    return f"thence sweep would read {several(new + changed, 'session')}, {much}"


def _cells(agent: PendingSources) -> list[TextCell]:
    return [
        TextCell(" "),
        TextCell(agent_label(agent.agent)),
        TextCell(several(agent.sources, "session")),
        TextCell(f"{agent.new:,} new"),
        TextCell(f"{agent.changed:,} changed"),
        TextCell(size(agent.bytes)),
    ]
