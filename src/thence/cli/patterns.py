"""`thence patterns`: what comes back in many sessions, where it was seen, then what helped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from thence.cli import options, wiring
from thence.cli.columns import DIM, short_id
from thence.cli.terminal import answer, clean, cut, several, style, width
from thence.memory.recall import event_name
from thence.memory.store import Filter

if TYPE_CHECKING:
    from thence.memory.patterns import Pattern

DEFAULT_ROWS = 5
"""Patterns of one kind that are shown before the rest is counted."""
MAX_EVIDENCE = 3
"""Places of one pattern that are shown before the rest is counted."""
MAX_CURES = 2

_HEADS = {
    "recurring_error": ("recurring errors", "red"),
    "costly_detour": ("most expensive detours", "yellow"),
    "breaking_file": ("files that keep breaking tests", "yellow"),
    "flaky_test": ("flaky tests", "magenta"),
}


@click.command("patterns")
@click.option("--kind", type=click.Choice(list(_HEADS)), help="Only patterns of this kind.")
@options.agent
@options.project
@options.since
@options.rows(DEFAULT_ROWS)
@options.view("--signals", "List single signals instead: loops, repeated errors, corrections.")
@options.as_json
def command(
    *,
    kind: str | None,
    agent: str | None,
    project: str | None,
    since: str | None,
    number: int,
    json: bool,
) -> int:
    """Print patterns, the weightiest of each kind first."""
    from thence.memory.patterns import memories, patterns
    from thence.memory.search import moment

    wanted = Filter(agent=agent, project=project, after=moment(since) if since else None)
    with wiring.store() as store:
        known = memories(store.read_table("digests", wanted), store.read_table("signals", wanted))
    matches = [pattern for pattern in patterns(known) if kind in (None, pattern.kind)]
    return answer(matches, lines(matches, len(known), number, width()), json=json)


def lines(matches: Sequence[Pattern], sessions: int, number: int, room: int) -> Iterator[str]:
    """Yield patterns, kind by kind, each with where it was seen, then what helped."""
    if not matches:
        yield f"no patterns in {several(sessions, 'session')} yet"
        return
    yield f"{several(len(matches), 'pattern')} in {several(sessions, 'session')}"
    for kind, (head, colour) in _HEADS.items():
        some = [pattern for pattern in matches if pattern.kind == kind]
        if not some:
            continue
        yield ""
        yield style(head, bold=True)
        for pattern in some[:number]:
            yield from _pattern(pattern, colour, room)
        if len(some) > number:
            yield style(f"    and {len(some) - number} more: -n {len(some)}", fg=DIM)


def _pattern(pattern: Pattern, colour: str, room: int) -> Iterator[str]:
    yield style("  ▲ ", fg=colour) + cut(_flat(pattern.text), room - 4)
    shown = pattern.evidence[:MAX_EVIDENCE]
    for proof in shown:
        event = f" {event_name(proof.events[0])}" if proof.events else ""
        seen = f"{short_id(proof.uid.partition(':')[2])}{event}"
        yield style(cut(f"      {seen}  {_flat(proof.quote)}".rstrip(), room), fg=DIM)
    if (more := pattern.sessions - len({proof.uid for proof in shown})) > 0:
        yield style(f"      and {several(more, 'more session')}", fg=DIM)
    for cure in pattern.cures[:MAX_CURES]:
        helped = f"fixed in {several(cure.sessions, 'session')}: {_flat(cure.what)}"
        yield style("    ✓ ", fg="green") + cut(helped, room - 6)


def _flat(text: str) -> str:
    return clean(" ".join(text.split()))
