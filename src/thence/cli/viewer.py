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
IPV6_HOST = "::1"
PORT = 7331  # outside what systems give out for connections of their own
ANSWER_LIMIT_S = 5.0
"""Seconds that whoever listens on our port has to answer."""


class PortTaken(ThenceError):
    """Somebody else listens there."""

    exit_code = 11


def listen(host: str, port: int) -> list[socket.socket]:
    """Return the sockets that listen there, all on one port.

    A browser looks for names of this machine at `::1` first: whoever else listened there would get
    its cookie.
    """
    first = _listen(host, port)
    if host not in (HOST, "localhost") or not _has_ipv6():
        return [first]
    try:
        return [first, _listen(IPV6_HOST, first.getsockname()[1])]
    except PortTaken:
        first.close()
        if port:
            raise
        return listen(host, port)  # any port that is free on both


def _listen(host: str, port: int) -> socket.socket:
    from thence.serve import app

    try:
        return app.listener(host, port)
    except OSError as error:
        raise PortTaken(
            f"cannot listen on {host} port {port}: {error.strerror or error}",
            hint="choose another with --port; 0 takes any free port",
        ) from error


def _has_ipv6() -> bool:
    """Whether anybody can listen at `::1`."""
    try:
        socket.create_server((IPV6_HOST, 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def is_ours(guard: AuthMiddleware) -> bool:
    """Whether a server of this home listens there; nothing secret is sent to find out."""
    import http.client

    link = http.client.HTTPConnection(guard.host, guard.port, timeout=ANSWER_LIMIT_S)
    try:
        link.request("GET", "/")
        realm = link.getresponse().getheader("www-authenticate") or ""
    except (OSError, http.client.HTTPException):  # something else answers there, or nothing
        return False
    finally:
        link.close()
    return guard.realm in realm


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
