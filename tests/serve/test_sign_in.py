"""How a browser gets in: from a file that only the user can read, in Chromium."""

from __future__ import annotations

import os
import stat
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.serve.browser import WAIT, launched
from tests.serve.conftest import KEY, House, empty
from thence.cli import viewer
from thence.serve import sign_in
from thence.serve.auth import AuthMiddleware


@pytest.mark.slow
def test_a_browser_gets_in_by_the_file_and_is_told_when_it_is_signed_out(tmp_path: Path) -> None:
    """The file leads to the first page; after a restart the page says what to do."""
    house = empty(tmp_path)
    home = house.homes.thence
    house.gate = AuthMiddleware(
        "127.0.0.1", house.port, key=KEY, on_sign_in=lambda ticket: sign_in.remove(home, ticket)
    )
    ticket = house.gate.ticket()
    path = sign_in.write(home, house.gate.url(ticket), ticket)
    mode = stat.S_IMODE(path.stat().st_mode)
    with launched() as browser:
        page = browser.new_context().new_page()
        page.set_default_timeout(WAIT)
        with house.serving():
            page.goto(path.as_uri())
            page.wait_for_url(f"{house.url}/")
            heading = page.locator("h1").inner_text()
            files = list(home.glob("sign-in-*"))
            page.locator(".beat[data-state=live]").wait_for(state="attached")
        house.close()
        again = House(tmp_path, house.port)
        with again.serving():
            page.locator(".beat", has_text="signed out: run thence serve").wait_for(
                state="attached"
            )
            page.goto(f"{house.url}/sessions")
            text = page.locator("main").inner_text()
        again.close()

    assert (0o600, []) == (mode, files)
    assert heading
    assert text.startswith("Not signed in\n\nRun thence serve and open the link it prints.")


class Listener(BaseHTTPRequestHandler):
    """Another user's server on another port: it keeps what browsers bring."""

    def do_GET(self) -> None:
        """Lead on to a second page of its own, which loads a picture."""
        got: list[str] = self.server.got  # type: ignore[attr-defined]
        got.append(f"{self.path} {self.headers}")
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        is_first = self.path == "/"
        self.wfile.write(b"<script>location = '/again'</script>" if is_first else b"<img src=/own>")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.slow
def test_a_server_on_another_port_learns_nothing_that_lets_in(tmp_path: Path) -> None:
    """A page of another site leads a browser there, as does a link in the viewer.

    With all that it collects, the API gives nothing.
    """
    house = empty(tmp_path)
    spy = ThreadingHTTPServer(("127.0.0.1", 0), Listener)
    got: list[str] = []
    spy.got = got  # type: ignore[attr-defined]
    Thread(target=spy.serve_forever, daemon=True).start()
    hosts = ("127.0.0.1", "localhost", "a.localhost")
    places = [f"http://{host}:{spy.server_port}/" for host in hosts]
    with launched() as browser, house.serving():
        context = browser.new_context()
        lead_on = "<script>location = location.search.slice(1)</script>"
        context.route(
            "http://evil.example/**",
            lambda route: route.fulfill(body=lead_on, content_type="text/html"),
        )
        page = context.new_page()
        page.set_default_timeout(WAIT)
        page.goto(house.gate.url())
        page.wait_for_url(f"{house.url}/")
        for place in places:
            page.goto(f"http://evil.example/?{place}", wait_until="commit")
            page.wait_for_url(f"{place}again")
            page.goto(f"{house.url}/")
            page.evaluate("to => { location = to }", place)
            page.wait_for_url(f"{place}again")
        page.goto(f"{house.url}/")
        page.locator(".beat[data-state=live]").wait_for(state="attached")
        secret = context.cookies()[0]["value"]
        cookie = {"Cookie": f"{house.gate.cookie_name}={secret}"}
        stolen = [
            house.ask("/api/sessions", bearer=False, headers=cookie | {"Host": host})
            for host in (f"127.0.0.1:{house.port}", f"localhost:{house.port}")
        ]
    spy.shutdown()
    spy.server_close()
    house.close()

    name = house.url.partition("//")[2].partition(".")[0]
    assert len(got) >= 4 * len(places)
    assert [] == [request for request in got if "\nCookie: " in request]
    assert [] == [request for request in got if name in request or secret in request]
    assert [401, 401] == [answer.status for answer in stolen]


def test_files_of_killed_servers_are_removed(tmp_path: Path) -> None:
    """Old ones go; one that a browser may be about to read, and other files, stay."""
    old, new = (sign_in.write(tmp_path, "http://127.0.0.1/", name) for name in ("a", "b"))
    other = tmp_path / "sign-in.html"
    other.touch()
    for path in (old, other):
        os.utime(path, (1000, 1000))

    sign_in.remove_leftovers(tmp_path)

    assert [False, True, True] == [path.exists() for path in (old, new, other)]


@pytest.mark.parametrize("has_browser", [True, False])
def test_a_file_stays_only_where_a_browser_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_browser: bool
) -> None:
    """Nobody else would open it."""
    monkeypatch.setenv("THENCE_HOME", str(tmp_path))
    monkeypatch.setattr("webbrowser.open", lambda _: has_browser)
    guard = AuthMiddleware("127.0.0.1", 7331, key=KEY)

    viewer.open_browser(guard, guard.sign_ticket(), "")

    assert has_browser == any(tmp_path.glob("sign-in-*"))
