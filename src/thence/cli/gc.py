"""`thence gc`: keep the caps. Shows what goes and why, then does it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from thence import config
from thence.cli import options, wiring
from thence.cli.columns import DIM, TextCell, short_id, table, tell
from thence.cli.file_changes import confirm
from thence.cli.terminal import as_json, clean, say, several, size, style, width, wrap
from thence.errors import SKIPS

if TYPE_CHECKING:
    from thence.format.records import JSON
    from thence.journal import Journal
    from thence.journal.cleanup import CleanupStep
    from thence.memory.retention import PlannedRemoval, RetentionPlan
    from thence.memory.retention_run import RetentionRun
    from thence.memory.store import Store

_COLOURS = {"drop_unanalysed": "red", "alert": "yellow", "remove": "red", "prune": "red"}
_LOSES = frozenset({"remove", "prune"})
_WORDS = {"evict": "remove", "drop_unanalysed": "lose", "analyse": "analyse"}


@click.command(
    "gc",
    epilog="Asks before it removes what cannot be restored: sessions without a digest, recorded"
    " sessions, and prompt history that is older than a month.",
)
@click.option(
    "-n", "--dry-run", is_flag=True, help="Show what would be removed and why; change nothing."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--max-sessions",
    type=click.IntRange(1, 1_000_000),
    help="Recorded sessions to keep per project; default: journal.max_sessions, 100.",
)
@click.option(
    "--max-bytes",
    metavar="SIZE",
    help="Size at which a journal file is sealed; default: journal.max_bytes, 50MiB.",
)
@options.as_json
def command(
    *, dry_run: bool, yes: bool, max_sessions: int | None, max_bytes: str | None, json: bool
) -> int:
    """Plan, show, and do it."""
    from thence import Journal
    from thence.cli.notes import write_losses
    from thence.memory.reports import describe_losses
    from thence.memory.retention import RetentionPlan

    settings = wiring.settings()
    journal = Journal(max_bytes=_size(max_bytes) if max_bytes else settings["journal.max_bytes"])
    most = max_sessions or settings["journal.max_sessions"]
    steps = journal.cleanup(dry_run=True, max_sessions=most)
    steps = [step for step in steps if step.what != "keep"]
    run: RetentionRun | None = None
    plan = RetentionPlan((), 0, 0)  # our own sessions can be cleaned up though nothing was swept
    pending: list[str] = []
    losses: dict[str, str] = {}  # what went without a digest, and why
    with contextlib.ExitStack() as stack:
        if wiring.has_store():
            store = stack.enter_context(wiring.store())
            stack.enter_context(store.sweeping(wiring.SWEEP_WAIT_S))
            steps += wiring.left_in_projects(store)
            run = _retention_run(store)
            plan = run.plan() if dry_run else run.plan_finally()
        if not json:
            tell(lines(plan, steps, width(), would=dry_run))
            _warn(journal)
        if not dry_run:
            if plan.of("drop_unanalysed") or any(step.what in _LOSES for step in steps):
                confirm(yes=yes, json=json, what="continue")
            if run is not None:
                removed = run.carry_out(plan)
                wiring.purge_exports(store)
                pending, losses = removed.pending, removed.lost
            _clean_up(journal, steps)
    problems = write_losses(losses)
    if json:
        more = {"pending": pending, "losses": losses, "notes": problems}
        say(as_json(_object(plan, steps, dry_run=dry_run) | more))
    elif losses:
        words = [f"LOST: {describe_losses(losses)}", *problems]
        tell(style(line, fg="red") for sentence in words for line in wrap(clean(sentence), width()))
    return SKIPS if losses else 0


def _size(text: str) -> int:
    """Read the size that an option gives."""
    try:
        return config.size(text)
    except ValueError as error:
        raise click.UsageError(f"--max-bytes: {error.args[0]}; {error.args[1]}") from None


def _warn(journal: Journal) -> None:
    warning = journal.history.warning()
    if warning is not None:
        tell([f"▲ {clean(warning)}"])


def _clean_up(journal: Journal, steps: Sequence[CleanupStep]) -> None:
    """Do exactly what was shown."""
    if steps and journal.enabled:
        from thence.journal import cleanup

        cleanup.apply(steps)
        if any(step.what == "prune" for step in steps):
            journal.history.sweep()


def _retention_run(store: Store) -> RetentionRun:
    """Return the policy of this home, ready to be carried out."""
    from thence.memory.retention_run import RetentionRun, running_sessions

    def analyse(uids: Sequence[str]) -> set[str]:
        wiring.sweep_of(store).run({})  # no folders: what is here and not digested, is
        known = store.known().sessions
        return {uid for uid in uids if uid not in known or known[uid].analysed is None}

    adapters = wiring.adapters()
    return RetentionRun(
        store,
        wiring.policy(),
        running=lambda: running_sessions(adapters, wiring.roots(adapters)),
        analyse=analyse,
    )


# -- telling --------------------------------------------------------------------------------


def _object(plan: RetentionPlan, steps: Sequence[CleanupStep], *, dry_run: bool) -> dict[str, JSON]:
    return {
        "dry_run": dry_run,
        "usage_before": plan.usage_before,
        "usage_after": plan.usage_after,
        "items": msgspec.to_builtins(plan.items),
        "journal": [
            {
                "action": step.what,
                "session": step.session,
                "project": step.files.project,
                "bytes": step.segment.size if step.segment else step.files.size,
                "reason": step.reason,
            }
            for step in steps
        ],
    }


def lines(
    plan: RetentionPlan, steps: Sequence[CleanupStep], room: int, *, would: bool
) -> Iterator[str]:
    """Say what goes and why."""
    gone = [*plan.of("evict"), *plan.of("drop_unanalysed")]
    if not plan.items and not steps:
        used = size(plan.usage_before)
        yield f"nothing to do: transcripts use {used}, below all limits"
        return
    yield f"{'would remove' if would else 'removing'} {_describe_counts(gone, steps)}"
    rows = [_cells(item) for item in plan.items] + [_step_cells(step) for step in steps]
    if room >= 100:
        yield from table("<<<>~", rows, room)
        return
    heads = table("<<<>", [row[:-1] for row in rows], room)
    for row, head in zip(rows, heads, strict=True):  # the reason matters most: it is never cut
        yield head
        yield from (style(f"      {line}", fg=DIM) for line in wrap(row[-1].text, room - 6))


def _describe_counts(gone: Sequence[PlannedRemoval], steps: Sequence[CleanupStep]) -> str:
    removed = [step for step in steps if step.what == "remove"]
    pruned = [step for step in steps if step.what == "prune"]
    words = f"{several(len(gone), 'transcript')}, {size(sum(item.bytes for item in gone))}"
    if removed:
        words += f", and {several(len(removed), 'session')} recorded by thence"
    if pruned:
        words += f", and {several(len(pruned), 'file')} of old prompts"
    cleared = [step for step in steps if step.what == "clear"]
    if cleared:
        words += f", and {several(len(cleared), 'file')} of sessions that were never begun"
    return words


def _cells(item: PlannedRemoval) -> list[TextCell]:
    agent, _, name = (item.session_uid or ":").partition(":")
    colour = _COLOURS.get(item.action)
    return [
        TextCell("▲" if colour else "○", colour),
        TextCell(_WORDS.get(item.action, item.action), colour),
        TextCell(f"{clean(agent)} {short_id(name)}".strip()),
        TextCell(size(item.bytes)),
        TextCell(clean(item.reason)),
    ]


def _step_cells(step: CleanupStep) -> list[TextCell]:
    colour = _COLOURS.get(step.what)
    return [
        TextCell("▲" if colour else "○", colour),
        TextCell(step.what, colour),
        TextCell(step.session if step.what == "prune" else f"thence {short_id(step.session)}"),
        TextCell(size(step.segment.size if step.segment else step.files.size)),
        TextCell(clean(step.reason)),
    ]
