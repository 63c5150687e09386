"""`thence ask`: one page about what earlier sessions did, decided and learned."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

import click
import msgspec

from thence.cli import options, wiring
from thence.cli.columns import DIM, agent_label, tell, tilde, title_text, when
from thence.cli.terminal import as_json, clean, cut, say, style, width, wrap

if TYPE_CHECKING:
    from thence.memory.recap import RecalledSession, Recap

TOKENS: Final = 1_500
MAX_ROWS: Final = 3
"""Rows of the terminal that one fact about a session takes at most."""


@click.command(
    "ask",
    epilog="The two or three sessions that matter: what was asked, decided and changed, what failed"
    " and what fixed it, how it ended, with the names of the events; thence show ID --around EVENT"
    " opens one. Filters are those of thence search. No model is called.",
)
@click.argument("question", nargs=-1, required=True)
@click.option(
    "--tokens",
    type=click.IntRange(100, 20_000),
    default=TOKENS,
    show_default=True,
    help="Maximum length of the answer.",
)
@click.option("-n", "number", type=click.IntRange(1, 10), default=3, show_default=True)
@options.as_json
def command(question: tuple[str, ...], tokens: int, number: int, *, json: bool) -> int:
    """Print the page."""
    from thence.memory.notes import ALL_KINDS, read_notes
    from thence.memory.recap import CHARACTERS_PER_TOKEN, recap, sections

    with wiring.store(must_exist=True) as store:
        notes, asked = read_notes(wiring.home(), *ALL_KINDS), " ".join(question)
        page = recap(store, notes, asked, wiring.status(), sessions=number)
    if json:
        say(as_json(msgspec.to_builtins(page)))
        return 0
    hint = _open_hint(page)
    parts = sections(page, tokens - len(hint) // CHARACTERS_PER_TOKEN)
    rows = [[*_section(session, texts), ""] for session, texts in parts]
    tell([*chain.from_iterable(rows), hint] if hint else list(chain.from_iterable(rows))[:-1])
    return 0


def _section(session: RecalledSession | None, texts: list[str]) -> list[str]:
    """Return the rows of one session, headed as other screens head it; or of what precedes them."""
    from thence.memory.recap import NAME
    from thence.memory.search import OUTCOME_NAMES

    room = width()
    if session is None:
        return [row for text in texts for row in wrap(text, room)]
    agent, _, native = session.session_uid.partition(":")
    ended = when(session.ended_at)
    about = (
        f"{agent_label(agent)} {native[:NAME]}",
        session.origin,
        f"{ended.astimezone():%Y-%m-%d}" if ended else "undated",
        OUTCOME_NAMES[session.outcome],
        "transcript removed" if session.is_evicted else "",
        tilde(session.project or ""),
    )
    return [
        style(cut(title_text(session.title), room), bold=True),
        style(cut(clean(" · ".join(filter(None, about))), room), fg=DIM),
        *(row for text in texts[1:] for row in _rows(text, room)),
    ]


def _rows(text: str, room: int) -> list[str]:
    """Return one fact about a session, in a few rows at most."""
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    rows = wrap(text.strip(), room - len(indent))
    if len(rows) > MAX_ROWS:
        rows[MAX_ROWS - 1 :] = [cut(f"{rows[MAX_ROWS - 1]} …", room - len(indent))]
    head, colon, rest = rows[0].partition(":")
    return [
        f"{indent[:-2]}{style(head + colon, fg=DIM)}{rest}",
        *(f"{indent}{row}" for row in rows[1:]),
    ]


def _open_hint(page: Recap) -> str:
    """Return how to read on at an event of the best session; empty if no event is named."""
    from thence.memory.recall import event_name
    from thence.memory.recap import NAME

    for session in page.sessions:
        failed = (failure.event_id for failure in session.failed)
        events = (*(quote.event_id for quote in session.quotes), *failed)
        if (event := next(filter(None, events), None)) is not None:
            native = session.session_uid.partition(":")[2][:NAME]
            return f"open one:  thence show {native} --around {event_name(event)}"
    return ""
