"""`thence show`: one session of any agent, from its files, or as it is kept."""

from __future__ import annotations

from collections import Counter
from datetime import UTC
from importlib import resources
from typing import TYPE_CHECKING, Literal, get_args

import click
import msgspec

from thence.cli import options
from thence.cli.columns import present
from thence.cli.read_notices import exit_code, notices, promises
from thence.cli.screen import say, tell, width
from thence.cli.terminal import as_json, clean
from thence.format.derived_events import log_ends
from thence.format.normal import number_events
from thence.format.repair import Orphans
from thence.memory.readouts import open_loaded

if TYPE_CHECKING:
    from thence.agents.sessions import LoadedSession
    from thence.format.records import JSON
    from thence.memory.notes import Note
    from thence.memory.readouts import OpenedSession

Form = Literal["text", "messages", "events", "markdown", "html"]


@click.command(
    "show",
    epilog="Exit codes: 0 done, 1 not readable, 3 done but lines were skipped, 10 no such session.",
)
@click.argument("path", required=False, metavar="ID|PATH")
@click.option("--sample", is_flag=True, help="Show the session that ships with thence.")
@click.option("--as", "form", type=click.Choice(get_args(Form)), default="text", show_default=True)
@click.option(
    "--branch",
    metavar="live|all|EVENT",
    default="live",
    show_default=True,
    help="all: opens discarded branches, subagents and compacted turns; an event: its branch.",
)
@click.option("--full", is_flag=True, help="Show long text in full.")
@click.option("--around", metavar="EVENT", help="Only the messages around an event.")
@click.option(
    "--orphans",
    type=click.Choice(get_args(Orphans)),
    default="answer",
    show_default=True,
    help="How to treat calls without a result in messages.",
)
@options.view("--tree", "Draw its branches instead; --all: every event.")
@options.view("--digest", "Show its digest instead.")
@options.view("--signals", "Show what went wrong in it instead.")
@options.view("--stats", "Count what its file holds instead: records, calls, tokens, damage.")
@options.own
@options.utc
@options.as_json
def command(
    path: str | None,
    form: Form,
    branch: str,
    orphans: Orphans,
    around: str | None,
    *,
    full: bool,
    sample: bool,
    own: bool,
    utc: bool,
    json: bool,
) -> int:
    """Print a session in the form that was asked for."""
    if json and form in ("markdown", "html"):
        raise click.UsageError(f"--json works with text, messages and events, not with {form}")
    if sample == bool(path):
        message = "give a session id, the path of a session file, or --sample"
        raise click.UsageError(message)
    from thence.cli.lookup import around as near
    from thence.cli.lookup import end_of, open_named

    every = branch == "all"
    zone = present(utc=utc).tzinfo or UTC
    opened = open_loaded(_sample()) if path is None else open_named(path)
    to = None if branch in ("live", "all") else end_of(opened.session, branch)
    if form == "messages":
        say(as_json(opened.session.messages(orphans, to=to, own=own, full=full).messages))
    elif form == "events" or json:
        say(as_json(events(opened, to, own=own)))
    elif form == "text":
        from thence.cli import wiring
        from thence.cli.session_text import Page

        page = Page(
            *(opened, width()),
            opened=every,
            full=full,
            to=to,
            zone=zone,
            notes=_notes(opened.session.uid),
            own=own,
            label=wiring.labels().get(opened.session.uid),
            standing=wiring.standing(opened.session),
        )
        tell(page.lines() if around is None else near(page, around))
    else:
        from thence.format import export_formats

        write = export_formats.markdown if form == "markdown" else export_formats.page
        lines = write(opened.session, export_formats.BranchChoice(to, every, own, full), zone)
        tell(clean(line) for part in lines for line in part.split("\n"))
    return exit_code(opened.skipped)


def _notes(uid: str) -> list[Note]:
    """Return the decisions and notes that belong to a session."""
    from thence.cli import wiring
    from thence.memory.notes import read_notes

    return [note for note in read_notes(wiring.home()) if note.session_uid == uid]


def _sample() -> LoadedSession:
    from thence.agents.sessions import load

    with resources.as_file(resources.files("thence") / "samples" / "tidepool.jsonl") as path:
        return load(path)


def events(opened: OpenedSession, to: int | None = None, *, own: bool = False) -> JSON:
    """Return every event with its number and state, those derived from them, and what was found.

    Events of the sessions that this one continues stand apart, unless only its `own` are wanted.
    """
    from thence.cli import wiring
    from thence.memory.labels import Label
    from thence.memory.notes import note_events
    from thence.memory.session_status import outcome_now, turn_object

    session, standing = opened.session, wiring.standing(opened.session)
    own_session = session.head.session
    notes = _notes(session.uid)
    inherited = [] if own else session.inherited(to, boundaries=False)
    label = wiring.labels().get(session.uid, Label())
    states = Counter(event.state for event in session.events)
    all_events = [*session.events, *session.derived(), *log_ends(session.events)]
    return {
        "session_id": session.native,
        "session": msgspec.structs.replace(
            own_session, outcome=outcome_now(own_session.outcome, standing)
        ),
        "title": label.name or session.title,
        "name": label.name,
        "tags": list(label.tags),
        "counts": {state.value: number for state, number in states.items() if state},
        "turn": turn_object(session.turn(), standing),
        "spent": session.head.spent,
        "edges": session.edges,
        "pending": promises(session),
        "notes": notes,
        "skipped": opened.skipped,
        "notices": notices(opened),
        "continued_from": [
            {
                "session_uid": part.session.uid,
                "messages": part.messages,
                "events": [row.event.to_object() for row in part.session.along(part.places)],
            }
            for part in inherited
        ],
        "events": number_events([*all_events, *note_events(notes, session.uid)], session.numbers),
    }
