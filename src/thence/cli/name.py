"""`thence name`: what the user calls a session."""

from __future__ import annotations

import click

from thence.cli import options, wiring
from thence.cli.columns import short_id
from thence.cli.terminal import answer, clean
from thence.format.normal import one_line


@click.command("name", help="Name a session. Without NAME: show its name.")
@click.argument("wanted", metavar="ID", shell_complete=options.complete_ids)
@click.argument("words", metavar="[NAME]...", nargs=-1)
@click.option("--off", is_flag=True, help="Remove the name; the session has its own title again.")
@options.as_json
def command(wanted: str, words: tuple[str, ...], *, off: bool, json: bool) -> int:
    """Name a session, or tell its name."""
    from thence.cli import notes
    from thence.memory.labels import MAX_NAME_CHARS

    if off and words:
        raise click.UsageError("give a name or --off, not both")
    with wiring.store() as store:
        session = wiring.session(store, wanted).session
    name = one_line(wiring.gate().text(" ".join(words)), MAX_NAME_CHARS) if words else ""
    if words and not name:
        raise click.UsageError("say what to call it")
    shown = notes.label(session, name="" if off else name or None).name
    return answer(
        {"session_uid": session.session_uid, "name": shown},
        [f"{clean(short_id(session.native_session_id))}  {clean(shown or 'has no name')}"],
        json=json,
    )
