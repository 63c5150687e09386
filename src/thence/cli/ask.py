"""`thence ask`: one page about what earlier sessions did, decided and learned."""

from __future__ import annotations

import click

from thence.cli import options, wiring
from thence.cli.columns import DIM, tell
from thence.cli.terminal import as_json, clean, cut, say, style, width

TOKENS = 1_500


@click.command(
    "ask",
    help="Answer a question from past sessions: what was done, decided and learned.",
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
    import msgspec

    from thence.memory.notes import read_notes
    from thence.memory.recap import lines, recap

    with wiring.store(must_exist=True) as store:
        page = recap(store, read_notes(wiring.home()), " ".join(question), sessions=number)
    if json:
        say(as_json(msgspec.to_builtins(page)))
        return 0
    room = width()
    tell(_line(text, room) for text in lines(page, tokens))
    return 0


def _line(text: str, room: int) -> str:
    """Return a line as a terminal shows it: that of a session bold, what is said of it plain."""
    line = cut(clean(text), room)
    if not text.startswith(" "):
        return style(line, bold=True)
    head, colon, rest = line.partition(": ")
    return style(head + colon, fg=DIM) + rest
