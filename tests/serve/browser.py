"""Debian's Chromium, driven by Playwright: tabs that notice whatever should not happen.

A tab enters by the one-time URL as a person does. It keeps what went wrong: errors of scripts,
violations of the content security policy, requests to anywhere but the server itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright

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
        page.on("pageerror", lambda error: self.errors.append(f"{error}"))
        page.on("console", lambda said: self._said(said.type, said.text))
        page.context.on("request", self._asked)

    def _said(self, kind: str, text: str) -> None:
        if kind == "error":
            self.errors.append(text)

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
        found: list[str] = self.page.evaluate("window.__csp")
        return found

    def complaints(self) -> list[str]:
        """What axe-core finds on this page that keeps somebody out: serious or worse."""
        self.page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text("utf-8"))
        found: dict[str, Any] = self.page.evaluate(
            "axe.run(document, {resultTypes: ['violations']})"
        )
        return [
            f"{one['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"][:3]
        ]


@contextmanager
def launched() -> Iterator[Browser]:
    """Start Debian's Chromium, or skip where there is none."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium: apt-get install chromium")
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


@contextmanager
def tab(
    browser: Browser,
    house: House,
    *,
    width: int | None = None,
    script: bool = True,
) -> Iterator[Tab]:
    """Open a tab that has entered the house, as this test looks at pages."""
    look = looks.current
    width = width or look.width
    context = browser.new_context(
        viewport={"width": width, "height": height_of(width)},
        color_scheme="dark" if look.dark else "light",
        java_script_enabled=script,
        timezone_id="UTC",
    )
    try:
        context.add_init_script(WATCH)
        made = Tab(context.new_page(), house)
        made.page.goto(house.gate.url(), wait_until="load")
        yield made
    finally:
        context.close()
