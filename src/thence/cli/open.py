"""`thence open`: the viewer in the browser, at a session if one is named."""

from __future__ import annotations

import re
from secrets import token_bytes
from typing import Final

import click

from thence.cli import background, load_command, options, viewer, wiring

EVENT_NAME: Final = re.compile(r"e[0-9a-f]{1,13}")


@click.command(
    "open",
    epilog="Uses the running server. If there is none, starts one, as thence serve does.",
)
@click.argument("wanted", metavar="[ID]", required=False, shell_complete=options.complete_ids)
@click.option("--at", metavar="EVENT", help="At this event, as search and show name it.")
@click.option("--port", type=click.IntRange(1, 65535), default=viewer.PORT, show_default=True)
@click.option("--no-open", is_flag=True, help="Print the link only.")
@options.as_json
@click.pass_context
def command(
    ctx: click.Context, wanted: str | None, at: str | None, port: int, *, no_open: bool, json: bool
) -> int:
    """Open the viewer."""
    from thence.serve import auth

    page = ""
    if at is not None and (wanted is None or not EVENT_NAME.fullmatch(at)):
        raise click.UsageError("name a session and one of its events, such as e4c01a6")
    if wanted is not None:
        with wiring.store() as store:
            page = f"/sessions/{wiring.session(store, wanted).session.session_uid}"
        page += f"?at={at}" if at else ""
    home = wiring.home()
    if (runs := background.find_running(home)) is not None:
        port = runs.port
    key = auth.home_key(home) if (home / auth.KEY).exists() else token_bytes(32)
    there = auth.AuthMiddleware(viewer.HOST, port, key=key)
    if viewer.is_ours(there):
        return viewer.open_again(there, page=page, json=json, opens=not no_open)
    code: int = ctx.invoke(
        load_command("serve"),
        host=None,
        port=port,
        team=None,
        token=False,
        no_open=no_open,
        json=json,
        page=page,
    )
    return code
