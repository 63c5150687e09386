"""How a browser gets in: from a file that only the user can read, in Chromium."""

from __future__ import annotations

import os
import stat
from pathlib import Path

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
