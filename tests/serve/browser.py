"""Debian's Chromium, driven by Playwright: tabs that notice whatever should not happen.

A tab is signed in; tests of signing in use the one-time URL. It keeps what went wrong: errors of
scripts, violations of the content security policy, requests to anywhere but the server itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from typing import Any, Final
from weakref import WeakKeyDictionary

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Error,
    Page,
    Request,
    expect,
    sync_playwright,
)

from tests.pace import PROVING
from tests.serve import looks
from tests.serve.conftest import House
from tests.serve.looks import Look

WAIT: Final = 60_000
"""Milliseconds after which what should happen will not: a busy machine is slow."""

expect.set_options(timeout=WAIT)

WATCH: Final = """
window.__csp = [];
document.addEventListener("securitypolicyviolation", (e) =>
  window.__csp.push(`${e.violatedDirective} ${e.blockedURI} ${e.sourceFile}`));
"""


OPEN: Final = """
document.querySelectorAll("details:not([open])").forEach((d) => { d.open = true; })
"""

FETCHED: Final = """
() => document.readyState === "complete" && !document.querySelector(
  ".htmx-request, .htmx-swapping, .htmx-added, .htmx-settling, details[open] > .in > .unfetched,"
  + "details[open] > ol > .unfetched, details[open] > .in > ol > .unfetched")
"""
"""Whether all that was opened has come."""


class Tab:
    """One page of a browser, and what went wrong in it."""

    def __init__(self, page: Page, house: House) -> None:
        self.page = page
        self.house = house
        self.errors: list[str] = []
        self.strangers: list[str] = []
        page.set_default_timeout(WAIT)
        page.on("pageerror", self._failed)
        page.on("console", self._on_console)
        page.context.on("request", self._asked)

    def forget(self) -> None:
        """Leave the page as a new one is, for another tab."""
        for other in self.page.context.pages:
            if other is not self.page:
                other.close()
        self.page.remove_listener("pageerror", self._failed)
        self.page.remove_listener("console", self._on_console)
        self.page.context.remove_listener("request", self._asked)
        self.page.unroute_all()
        if self.page.url.startswith(self.house.url):
            self.page.evaluate("localStorage.clear(), sessionStorage.clear()")
        self.page.goto("about:blank")
        self.page.context.clear_permissions()

    def _failed(self, error: Error) -> None:
        self.errors.append(f"{error}")

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def _asked(self, request: Request) -> None:
        own = request.url.startswith((f"{self.house.url}/", "about:", "data:text/html,blank"))
        if not own:
            self.strangers.append(request.url)

    def go(self, path: str) -> Page:
        """Open a page of the house."""
        self.page.goto(f"{self.house.url}{path}", wait_until="load")
        return self.page

    def set_look(self, look: Look) -> None:
        """Look at this page and the next ones in another way."""
        self.page.set_viewport_size({"width": look.width, "height": height_of(look.width)})
        self.page.emulate_media(color_scheme="dark" if look.dark else "light")

    def fits(self) -> bool:
        """Whether nothing sticks out to the side."""
        wide: bool = self.page.evaluate(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )
        return wide

    def opened(self) -> None:
        """Open all folds, those within others too, and wait for what is in them."""
        for _ in range(3):
            self.page.evaluate(OPEN)
            self.page.wait_for_function(FETCHED)

    def violations(self) -> list[str]:
        """What the content security policy stopped on this page."""
        violations: list[str] = self.page.evaluate("window.__csp")
        return violations

    def complaints(self, *, contrast: bool = PROVING) -> list[str]:
        """What axe-core finds on this page that keeps somebody out: serious or worse.

        Contrast takes most of the time, and is that of the theme: `test_pages` looks at it on
        every page, `make prove` wherever this is asked.
        """
        self.page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text("utf-8"))
        report: dict[str, Any] = self.page.evaluate(
            "contrast => axe.run(document, {resultTypes: ['violations'], preload: false,"
            " rules: {'color-contrast': {enabled: contrast}}})",
            contrast,
        )
        return [
            f"{violation['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
            for violation in report["violations"]
            if violation["impact"] in ("serious", "critical")
            for node in violation["nodes"][:3]
        ]


@contextmanager
def launched() -> Iterator[Browser]:
    """Start Debian's Chromium, without its windows where that is installed; or skip."""
    path = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium: apt-get install chromium-headless-shell")
    with sync_playwright() as kit:
        # Without its sandbox: containers run as root, and what is opened is our own pages.
        browser = kit.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def height_of(width: int) -> int:
    """Return the height of a screen of a width."""
    return 900 if width > 640 else 844


_FREE: Final[WeakKeyDictionary[Browser, Page]] = WeakKeyDictionary()
"""The page of a browser that no test uses now: a new one costs as much as opening five pages."""

MAX_ENTRIES: Final = 30
"""Entries of its history with which a page is used again: a browser counts them up to 50."""


@contextmanager
def tab(
    browser: Browser,
    house: House,
    *,
    width: int | None = None,
    script: bool = True,
) -> Iterator[Tab]:
    """Return a tab that is signed in to the house, as this test looks at pages.

    It is blank and has no memory, though the page of an earlier test may be used again.
    """
    page = _FREE.pop(browser, None) if script else None
    if page is None:
        context = browser.new_context(java_script_enabled=script, timezone_id="UTC")
        context.add_init_script(WATCH)
        page = context.new_page()
    made = Tab(page, house)
    made.set_look(looks.current._replace(width=width or looks.current.width))
    name, value = house.gate.cookie_name, house.gate._cookies.add()
    page.context.add_cookies([{"name": name, "value": value, "url": house.url}])
    try:
        yield made
        if script:
            with suppress(Error):  # a page that is about to lead elsewhere is not used again
                made.forget()
                if page.evaluate("history.length") < MAX_ENTRIES:
                    _FREE[browser] = page
    finally:
        if page is not _FREE.get(browser):
            page.context.close()
