"""`thence serve`: look at everything in the browser, live. Listens on this machine only."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack, nullcontext
from functools import partial
from json import dumps
from secrets import token_bytes
from typing import TYPE_CHECKING

import click

from thence import config
from thence.cli import background as background_server
from thence.cli import options, viewer, wiring
from thence.cli.columns import tell, tilde
from thence.cli.home_sweep import ServerSweep
from thence.cli.terminal import clean
from thence.errors import BadConfig

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from thence.memory.store import Store
    from thence.serve.app import Server
    from thence.serve.auth import AuthMiddleware
    from thence.serve.context import AppContext

ANYWHERE = ("", "0.0.0.0", "::", "*")  # noqa: S104 - these are refused


@click.command(
    "serve",
    epilog="It listens on this machine only. The link that it prints signs one browser in, once;"
    " programs send the token of --token as Authorization: Bearer.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=viewer.PORT, show_default=True)
@click.option(
    "--host",
    show_default=viewer.HOST,
    help="Address to listen on and of the link; other than loopback needs --token. Safari needs"
    " localhost.",
)
@click.option(
    "--store",
    "team",
    metavar="URL",
    help="Serve this store, such as a team's; import nothing into it.",
)
@click.option("--token", is_flag=True, help="Print the access token for programs.")
@click.option("--no-open", is_flag=True, help="Do not open the browser.")
@click.option(
    "--background", is_flag=True, help="Start it in the background, one per home, and return."
)
@click.option("--stop", is_flag=True, help="Stop the one in the background.")
@click.option("--service", is_flag=True, hidden=True, help="Be the one in the background.")
@options.as_json
def command(
    host: str | None,
    port: int,
    team: str | None,
    *,
    token: bool,
    no_open: bool,
    json: bool,
    background: bool = False,
    stop: bool = False,
    service: bool = False,
    page: str = "",
) -> int:
    """Serve until it is stopped; the browser opens at a page, the first one by default."""
    if stop:
        return _stop(json=json)
    if background:
        return _start(host or viewer.HOST, port, json=json, opens=not no_open)
    from thence.serve import auth, sign_in

    is_shared = host is not None
    host = host or viewer.HOST
    _check(host, token=token, loopback=auth.is_loopback(host))
    home = wiring.home()
    is_read_only = wiring.is_read_only()
    key = auth.home_key(home) if not is_read_only or (home / auth.KEY).exists() else token_bytes(32)
    try:
        listeners = viewer.listen(host, port)
    except viewer.PortTaken:
        there = auth.AuthMiddleware(host, port, key=key, is_shared=is_shared)
        if not viewer.is_ours(there):
            raise
        if service:  # whoever started it tries again later
            raise background_server.NotStarted(
                f"another viewer of this home runs on port {port}",
                hint="the service starts when that one has ended",
            ) from None
        return viewer.open_again(there, page=page, json=json, opens=not no_open)
    guard = auth.AuthMiddleware(
        host,
        listeners[0].getsockname()[1],
        key=key,
        on_sign_in=partial(sign_in.remove, home),
        home=home,
        is_shared=is_shared,
    )
    ticket = guard.ticket()
    if service:
        return _serve_in_background(guard, listeners, ticket, team)

    def announce(_server: Server) -> None:
        link = guard.url(ticket, page)
        _say(guard, link, token=token, json=json, is_shared=is_shared)
        if is_read_only and team is None:
            click.echo(
                f"note: {clean(tilde(str(home)))} is read-only: no new sessions are imported",
                err=True,
            )
        if not no_open and not json:
            threading.Thread(
                target=viewer.open_browser, args=(guard, ticket, page), daemon=True
            ).start()

    _serve(guard, listeners, ticket, team, announce)
    return 0


def _serve(
    guard: AuthMiddleware,
    listeners: list[socket.socket],
    ticket: str,
    team: str | None,
    on_started: Callable[[Server], None],
    *,
    claimed: AbstractContextManager[None] | None = None,
) -> None:
    """Serve until the server is stopped; `on_started` is called in its event loop."""
    from thence.serve import app, sign_in

    sign_in.remove_leftovers(wiring.home())
    with wiring.store(must_exist=False) if team is None else wiring.team(team) as store:
        context = make_context(store, team=team is not None)
        server = app.server(app.App(context, guard), lambda: on_started(server))
        app.settle()
        try:
            with ExitStack() as stack:
                for listener in listeners:
                    stack.enter_context(listener)
                stack.enter_context(claimed or nullcontext())
                server.run(listeners)
        finally:
            sign_in.remove(wiring.home(), ticket)
            if isinstance(context.sweep_home, ServerSweep):
                context.sweep_home.stop()


def _serve_in_background(
    guard: AuthMiddleware, listeners: list[socket.socket], ticket: str, team: str | None
) -> int:
    """Be the server of this home; a link that signs in is never printed, as a log would keep it."""
    home = wiring.home()
    upgrades = background_server.UpgradeWatch(home)

    def watch(server: Server) -> None:
        def end() -> None:
            server.should_exit = True

        upgrades.start(end)

    claimed = background_server.claim(home, guard.port)
    _serve(guard, listeners, ticket, team, watch, claimed=claimed)
    if upgrades.is_upgraded:
        click.echo("thence was upgraded; the viewer starts again", err=True)
        background_server.run_again(home, guard.port)
    return 0


def _start(host: str, port: int, *, json: bool, opens: bool) -> int:
    """Have a server of this home in the background, and sign one browser in there."""
    from thence.serve import auth

    if host != viewer.HOST:
        raise BadConfig("--background listens on this machine only", hint="leave out --host")
    home = wiring.home()
    key = auth.home_key(home)
    if port and background_server.find_running(home) is None:
        foreground = auth.AuthMiddleware(viewer.HOST, port, key=key)
        if viewer.is_ours(foreground):
            return viewer.open_again(foreground, json=json, opens=opens)
    there = background_server.start(home, port)
    guard = auth.AuthMiddleware(viewer.HOST, there.port, key=key)
    note = "The viewer runs in the background; thence serve --stop stops it"
    return viewer.open_again(guard, json=json, opens=opens, note=note)


def _stop(*, json: bool) -> int:
    """Stop the server in the background."""
    there = background_server.stop(wiring.home())
    if json:
        click.echo(dumps({"stopped": there is not None, "port": there.port if there else None}))
    else:
        tell(["stopped" if there is not None else "no viewer runs in the background"])
    return 0


def make_context(store: Store, *, team: bool = False) -> AppContext:
    """Lay out what is kept in this home; of a team's store nothing is of this machine."""
    from thence.serve.context import AppContext

    known = {} if team else wiring.adapters()
    is_read_only = not team and wiring.is_read_only()
    writes = config.persistence() and not team and not is_read_only
    sweep_home = ServerSweep(store) if writes else None
    return AppContext(
        store,
        home=wiring.home(),
        settings=wiring.settings(),
        known=known,
        roots=wiring.roots(known, later=True),
        policy=wiring.policy(),
        gate=wiring.latest_gate,
        sweep_home=sweep_home,
        first_import=sweep_home.progress if sweep_home is not None else None,
        idle_timeout=config.idle_timeout(),
        approval_timeout=config.approval_timeout(),
        writes=writes,
        is_read_only=is_read_only,
    )


def _check(host: str, *, token: bool, loopback: bool) -> None:
    """Refuse to listen where others can reach us, unless that is asked for twice."""
    if host in ANYWHERE:
        raise BadConfig(
            f"--host {host}: this means every address of this machine",
            hint="choose one address; requests must name it, too",
        )
    if not loopback and not token:
        raise BadConfig(
            f"--host {host}: other machines could read every session",
            hint="add --token to allow it: whoever has the token can read everything",
        )


def _say(guard: AuthMiddleware, url: str, *, token: bool, json: bool, is_shared: bool) -> None:
    from thence.serve.auth import is_loopback

    loopback = is_loopback(guard.host)
    if json:
        click.echo(dumps({"url": url, "token": guard.token if token else None, "port": guard.port}))
    else:
        tell(["Viewer on this machine only" if loopback else "Viewer"])
        if not loopback:
            tell(["warning: other machines can reach it, and the connection is not encrypted"])
        elif is_shared:
            host = clean(guard.host)
            tell([f"warning: the browser sends its cookie to all servers on {host}, on any port"])
        tell(["", f"  {url}", "  one-time link; it signs in one browser"])
        if not is_shared and sys.platform == "darwin":
            tell(["  Safari cannot open it: thence serve --host localhost"])
        if token:
            tell([f"  Authorization: Bearer {guard.token}"])
        tell(["", "Ctrl-C stops it"])
    sys.stdout.flush()
