"""`thence show`: one session of any agent, from its files, or as it is kept."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Literal, get_args

import click

from thence.cli.reading import exit_code, notices, promises
from thence.cli.terminal import as_json, say, width
from thence.format.repair import Orphans

if TYPE_CHECKING:
    from thence.adapters.sessions import Loaded
    from thence.format.records import JSON

Form = Literal["text", "messages", "events"]
Shown = Literal["live", "all"]


@click.command(
    "show",
    help="Read one session: its live chain, branches and damage.",
    epilog="Exit codes: 0 done, 1 not readable, 3 done but lines were skipped, 10 no such session.",
)
@click.argument("path", required=False, metavar="ID|PATH")
@click.option("--sample", is_flag=True, help="Show the session that ships with thence.")
@click.option("--as", "form", type=click.Choice(get_args(Form)), default="text", show_default=True)
@click.option(
    "--branch",
    "shown",
    type=click.Choice(get_args(Shown)),
    default="live",
    show_default=True,
    help="all: dead branches, subagents and what was compacted are opened.",
)
@click.option("--full", is_flag=True, help="Leave out no part of a long text.")
@click.option("--around", metavar="EVENT", help="Only what was said around an event.")
@click.option(
    "--orphans",
    type=click.Choice(get_args(Orphans)),
    default="answer",
    show_default=True,
    help="What to do in messages with calls that never got a result.",
)
@click.option("--json", "json", is_flag=True, help="Print JSON.")
def command(
    path: str | None,
    form: Form,
    shown: Shown,
    orphans: Orphans,
    around: str | None,
    *,
    full: bool,
    sample: bool,
    json: bool,
) -> int:
    """Print a session in the form that was asked for."""
    if sample == bool(path):
        message = "give the id of a session or the path of its file, or --sample"
        raise click.UsageError(message)
    from thence.cli.kept import around as near
    from thence.cli.kept import named

    loaded = _sample() if path is None else named(path)
    if form == "messages":
        lines = as_json(loaded.whole.messages(orphans).messages)
    elif form == "events" or json:
        lines = as_json(events(loaded))
    else:
        from thence.cli.page import Page

        page = Page(loaded, width(), opened=shown == "all", full=full)
        lines = iter(page.lines() if around is None else near(page, around))
    say(lines)
    return exit_code(loaded.skipped)


def _sample() -> Loaded:
    from thence.adapters.sessions import load

    with resources.as_file(resources.files("thence") / "samples" / "tidepool.jsonl") as path:
        return load(path)


def events(loaded: Loaded) -> JSON:
    """Give every event with its number and state, those derived from them, and what was found."""
    from collections import Counter

    from thence.format.normal import numbered

    whole = loaded.whole
    states = Counter(event.state for event in whole.events)
    return {
        "session_id": whole.native,
        "session": whole.session(),
        "title": whole.title,
        "counts": {state.value: number for state, number in states.items() if state},
        "turn": whole.turn(),
        "spent": whole.spent,
        "edges": whole.edges,
        "pending": promises(whole),
        "skipped": loaded.skipped,
        "notices": notices(loaded),
        "events": numbered([*whole.events, *whole.derived]),
    }
