"""`thence open`: the viewer in the browser, at a session if one is named."""

from __future__ import annotations

from secrets import token_bytes

import click

from thence.cli import background, options, serve, wiring
from thence.cli.completion import ids


@click.command(
    "open",
    help="Open the viewer in the browser, at a session if one is named.",
    epilog="Uses the running server. If there is none, starts one, as thence serve does.",
)
@click.argument("wanted", metavar="[ID]", required=False, shell_complete=ids)
@click.option("--port", type=click.IntRange(1, 65535), default=serve.PORT, show_default=True)
@click.option("--no-open", is_flag=True, help="Print the link only.")
@options.as_json
@click.pass_context
def command(ctx: click.Context, wanted: str | None, port: int, *, no_open: bool, json: bool) -> int:
    """Open the viewer."""
    from thence.serve import gate

    page = ""
    if wanted is not None:
        with wiring.store() as store:
            page = f"/sessions/{wiring.session(store, wanted).session.session_uid}"
    home = wiring.home()
    if (runs := background.running(home)) is not None:
        port = runs.port
    key = gate.home_key(home) if (home / gate.KEY).exists() else token_bytes(32)
    there = gate.AuthMiddleware(serve.HOST, port, key=key)
    if serve.is_ours(there):
        return serve.open_again(there, page=page, json=json, opens=not no_open)
    code: int = ctx.invoke(
        serve.command,
        host=serve.HOST,
        port=port,
        team=None,
        token=False,
        no_open=no_open,
        json=json,
        page=page,
    )
    return code
