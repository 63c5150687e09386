"""`thence signals`: what went wrong in sessions, each with its evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, get_args

import click

from thence.cli import options, wiring
from thence.cli.columns import DIM, WIDE, TextCell, ago, present, short_ids, table, when
from thence.cli.terminal import answer, clean, cut, several, style, width

if TYPE_CHECKING:
    from thence.format.records import JSON

DEFAULT_ROWS = 30
_WEIGHT = {"high": 0, "medium": 1, "low": 2}
_MARKS = {"high": TextCell("▲", "red"), "medium": TextCell("◆", "yellow")}


@click.command("signals")
@click.argument("session", required=False)
@click.option("--kind", help="Only signals of this kind, such as retry_loop.")
@options.agent
@options.project
@options.since
@options.rows(DEFAULT_ROWS)
@options.utc
@options.as_json
def command(
    *,
    session: str | None,
    kind: str | None,
    agent: str | None,
    project: str | None,
    since: str | None,
    number: int,
    utc: bool,
    json: bool,
) -> int:
    """Print signals, the weightiest and newest first."""
    from thence.memory.labels import add_labels
    from thence.memory.search import moment, named
    from thence.memory.signals import Kind
    from thence.memory.store import Filter

    if kind is not None:
        named("kind", kind, get_args(Kind))
    titles: dict[str, str] = {}
    with wiring.store() as store:
        uid = wiring.session(store, session).session.session_uid if session else None
        wanted = Filter(
            uids=(uid,) if uid else None,
            agent=agent,
            project=project,
            after=moment(since) if since else None,
        )
        signals = [
            signal
            for signal in store.read_table("signals", wanted)
            if kind in (None, signal.get("kind"))
        ]
        signals.sort(key=lambda signal: signal.get("ts") or "", reverse=True)
        signals.sort(key=lambda signal: _WEIGHT.get(f"{signal.get('severity')}", 3))
        if not json and width() >= WIDE:
            uids = tuple({signal["uid"] for signal in signals[:number]})
            rows = add_labels(list(store.sessions(Filter(uids=uids))), wiring.labels())
            titles = {row.session.session_uid: row.title or "" for row in rows}
    return answer(
        lambda: [{"session_uid": signal.pop("uid"), **signal} for signal in signals[:number]],
        lines(signals, number, present(utc=utc), width(), titles),
        json=json,
    )


def lines(
    signals: Sequence[dict[str, JSON]],
    number: int,
    at: datetime,
    room: int,
    titles: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[str]:
    """Yield signals as rows, what kinds there are first; with titles, those of the sessions."""
    if not signals:
        yield "no signals found"
        return
    kinds = Counter(f"{signal.get('kind')}".replace("_", " ") for signal in signals)
    named = ", ".join(f"{count} {clean(name)}" for name, count in kinds.most_common(4))
    yield cut(f"{several(len(signals), 'signal')}: {named}", room)
    yield ""
    shown = signals[:number]
    ids = short_ids([signal["uid"].partition(":")[2] for signal in shown])
    rows = [
        [
            _MARKS.get(f"{signal.get('severity')}", TextCell("·")),
            TextCell(ids[signal["uid"].partition(":")[2]], DIM),
            TextCell(clean(" ".join(f"{signal.get('text') or ''}".split()))),
            *([_title(titles.get(signal["uid"], ""))] if titles else []),
            TextCell(ago(when(signal.get("ts")), at), DIM),
        ]
        for signal in shown
    ]
    yield from table("<<~<>" if titles else "<<~>", rows, room)
    if len(signals) > number:
        yield style(f"    and {len(signals) - number:,} more: -n {len(signals)}", fg=DIM)


def _title(text: str) -> TextCell:
    return TextCell(cut(clean(" ".join(text.split())), _TITLE_COLUMNS), DIM)


_TITLE_COLUMNS = 30
