"""The viewer of this home: where it listens, whether it runs, and how a browser gets there."""

from __future__ import annotations

import socket
import sys
from json import dumps
from typing import TYPE_CHECKING

import click

from thence.cli import wiring
from thence.cli.columns import tell
from thence.cli.terminal import clean
from thence.errors import ThenceError

if TYPE_CHECKING:
    from thence.serve.auth import AuthMiddleware

HOST = "127.0.0.1"
PORT = 7331  # outside what systems give out for connections of their own
ANSWER_LIMIT_S = 5.0
"""Seconds that whoever listens on our port has to answer."""
QUICK_LIMIT_S = 0.5
"""The same, where an agent waits for an answer that is worth sending without the link."""


class PortTaken(ThenceError):
    """Somebody else listens there."""

    exit_code = 11


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens there."""
    from thence.serve import app

    try:
        return app.listener(host, port)
    except OSError as error:
        raise PortTaken(
            f"cannot listen on {host} port {port}: {error.strerror or error}",
            hint="choose another with --port; 0 takes any free port",
        ) from error


def is_ours(guard: AuthMiddleware, limit_s: float = ANSWER_LIMIT_S) -> bool:
    """Whether a server of this home listens there; nothing secret is sent to find out."""
    import http.client

    link = http.client.HTTPConnection(guard.host, guard.port, timeout=limit_s)
    try:
        link.request("GET", "/")
        realm = link.getresponse().getheader("www-authenticate") or ""
    except (OSError, http.client.HTTPException):  # something else answers there, or nothing
        return False
    finally:
        link.close()
    return guard.realm in realm


def running_url() -> str | None:
    """Return the URL of the viewer of this home, without a ticket; None if none runs."""
    from thence.cli import background
    from thence.serve import auth

    home = wiring.home()
    if not (home / auth.KEY).exists():
        return None
    running = background.find_running(home)
    guard = auth.AuthMiddleware(HOST, running.port if running else PORT, key=auth.home_key(home))
    is_running = running is not None or is_ours(guard, QUICK_LIMIT_S)
    return f"http://{auth.authority(guard.host, guard.port)}" if is_running else None


def open_again(
    guard: AuthMiddleware,
    *,
    page: str = "",
    json: bool,
    opens: bool,
    note: str = "The viewer is already running",
) -> int:
    """Sign one more browser in at the server that runs; a browser in the terminal is waited for."""
    ticket = guard.sign_ticket()
    url = guard.url(ticket, page)
    if json:
        click.echo(dumps({"url": url, "running": True}))
        return 0
    tell([note, "", f"  {url}", "  one-time link; it signs in one browser"])
    sys.stdout.flush()
    if opens:
        open_browser(guard, ticket, page)
    return 0


def open_browser(guard: AuthMiddleware, ticket: str, at: str) -> None:
    """Open the user's browser at a file that leads to the one-time URL.

    The URL itself would stand in the list of processes, which every user of this machine can read.
    """
    import webbrowser

    from thence.serve import sign_in

    try:
        page = sign_in.write(wiring.home(), guard.url(ticket, at), ticket)
    except OSError as error:
        reason = clean(error.strerror or f"{error}")
        click.echo(f"note: no browser was opened ({reason}): open the link above", err=True)
        return
    if not webbrowser.open(page.as_uri()):  # there is none here: nobody will open the file
        sign_in.remove(wiring.home(), ticket)
