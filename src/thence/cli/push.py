"""`thence push`: send what is kept here to the store of a team, redacted; what is there stays."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click
import msgspec

from thence.cli import options, wiring
from thence.cli.columns import tell, tilde
from thence.cli.push_marks import PushMarks
from thence.cli.terminal import answer, clean, several, size, width
from thence.errors import STOPPED, BadConfig, ThenceError

if TYPE_CHECKING:
    from thence.memory.store import Store
    from thence.team.postgres import Postgres
    from thence.team.pushing import PushMark, PushPlan, PushProject, PushReport


class NotReachable(ThenceError):
    """The store of the team does not answer; nothing is lost by that."""

    exit_code = 1


@click.command(
    "push",
    help="Send sessions to the store of a team, redacted. Sends only"
    " what is new. URL is postgresql://…?tenant=TEAM, with #objects=URL appended if payloads are"
    " stored elsewhere; default: session_memory.push.url.",
    epilog="Projects in session_memory.push.private and session_memory.exclude are never sent."
    " The next push continues an interrupted one. Exit codes: 0 done, 1 not reachable,"
    " 2 not permitted, 11 another push of this machine is running.",
)
@click.argument("url", required=False)
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be sent; send nothing.")
@options.as_json
def command(url: str | None, *, dry_run: bool, json: bool) -> int:
    """Send what is new, or say what would be."""
    settings = wiring.settings()
    address: str | None = url or settings["session_memory.push.url"]
    if address is None:
        raise BadConfig(
            "no URL given", hint="thence store push postgresql://…, or set session_memory.push.url"
        )
    if not address.startswith(("postgresql:", "postgres:")):
        raise BadConfig(
            "only a Postgres store can receive pushes",
            hint="use thence store copy to copy an entire store",
        )
    exclude = [*settings["session_memory.exclude"], *settings["session_memory.push.private"]]
    noted = PushMarks(wiring.home(), address)
    with wiring.store() as store:
        if dry_run:
            return _dry(store, address, noted, exclude, json=json)
        return _push(store, address, noted, exclude, json=json)


# -- pushing --------------------------------------------------------------------------------


def _push(store: Store, address: str, noted: PushMarks, exclude: list[str], *, json: bool) -> int:
    from thence.cli.interrupts import interruptible
    from thence.cli.progress_bar import ProgressBar
    from thence.team.postgres import NotPermitted, StoreLost, Unreachable
    from thence.team.pushing import Pusher

    bar = ProgressBar(sys.stderr, width)
    shown = not json and sys.stdout.isatty() and sys.stderr.isatty()
    progress = bar if shown else lambda _: None
    pusher = None
    try:
        with interruptible(), _open(address) as target, target.sweeping(wiring.SWEEP_WAIT_S):
            rules = wiring.gate(), wiring.rules()
            pusher = Pusher(store, target, *rules, exclude=exclude, progress=progress)
            pusher.run()
    except NotPermitted:
        raise
    except (Unreachable, StoreLost) as error:
        if pusher is not None:
            noted.write(pusher.marks)
        raise _waits(store, error, noted, exclude) from error
    except KeyboardInterrupt:
        bar.wipe()
        tell(["stopped; what arrived stays, push again to continue"])
        return STOPPED
    finally:
        bar.wipe()
        if pusher is not None:
            noted.write(pusher.marks)
    return answer(pusher.report, _lines(pusher.report), json=json)


@contextlib.contextmanager
def _open(address: str) -> Iterator[Postgres]:
    """Open the store of the team."""
    from thence.memory.store import open_store
    from thence.team.postgres import Postgres

    store = open_store(address)
    try:
        if not isinstance(store, Postgres):
            raise BadConfig(f"cannot push to {type(store).__name__}", hint="postgresql://…")
        yield store
    finally:
        store.close()


def _waits(store: Store, error: ThenceError, noted: PushMarks, exclude: list[str]) -> NotReachable:
    """Say what waits for the next push."""
    plan = _plan(store, noted.read(), exclude)
    return NotReachable(
        f"not reachable, {several(plan.sessions, 'session')} waiting: {error.message}",
        hint="what arrived stays; the next push continues from here",
    )


def _lines(report: PushReport) -> list[str]:
    if not report.sessions and not report.forgotten:
        out = [f"nothing new: {several(report.unchanged, 'session')} already there"]
    else:
        done = (
            f"pushed {several(report.sessions, 'session')}, {report.unchanged:,} already there;"
            f" {several(report.events, 'event')}, payloads of {size(report.payload_bytes)},"
            f" {several(report.digests, 'digest')}"
        )
        out = [done]
    counts = {
        "excluded, not sent": report.excluded,
        "already sent by another machine": report.elsewhere,
        "deleted there as well": report.forgotten,
        "compared with those of other machines": report.settled,
        "compared from the start, because earlier parts changed": report.rebuilt,
        "changed meanwhile; sent with the next push": report.waiting,
    }
    return out + [f"  {count:,} {what}" for what, count in counts.items() if count]


# -- what would leave -----------------------------------------------------------------------


def _plan(store: Store, marks: Mapping[str, tuple[PushMark, bool]], exclude: list[str]) -> PushPlan:
    from thence.memory.exclusion import Exclusion
    from thence.team.pushing import Due

    return Due(store, marks, Exclusion(exclude)).plan


def _dry(store: Store, address: str, noted: PushMarks, exclude: list[str], *, json: bool) -> int:
    """Say what would be sent, by what the other side has, or had when it was last reached."""
    from thence.team.postgres import NotPermitted, StoreLost, Unreachable
    from thence.team.pushing import marks_in

    try:
        with _open(address) as target:
            marks, reached = marks_in(target.push_marks()), True
    except NotPermitted:
        raise
    except (Unreachable, StoreLost):
        marks, reached = noted.read(), False
    plan = _plan(store, marks, exclude)
    return answer(
        {"reached": reached, **msgspec.to_builtins(plan)},
        _describe_plan(plan, reached=reached),
        json=json,
    )


def _describe_plan(plan: PushPlan, *, reached: bool) -> Iterator[str]:
    if not reached:
        yield "not reachable; based on the last push"
    yield (
        f"would send {several(plan.sessions, 'session')}, {several(plan.events, 'event')},"
        f" payloads of {size(plan.bytes)}, redacted; {plan.unchanged:,} already there"
    )
    yield from map(_project, plan.projects)
    if plan.elsewhere:
        yield f"{several(plan.elsewhere, 'session')} already sent by another machine"
    if plan.excluded:
        yield "excluded, never sent:"
        yield from map(_project, plan.excluded)


def _project(project: PushProject) -> str:
    name = clean(tilde(project.project)) if project.project else "(no folder)"
    counts = f"{several(project.sessions, 'session')}, {several(project.events, 'event')}"
    return f"  {name}: {counts}, {size(project.bytes)}"
