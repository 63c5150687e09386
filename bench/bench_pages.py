"""The page of a session of 50 MB: what the server works for it, and when a browser paints it.

Three states: not at hand (the head at once, the rows after it), laid out for the first time, and at
hand. The budget is a first paint within 200 ms where bare Python takes 11, told as a ratio within
this run, on the first look as on later ones; when the rows are there on the first look is told too.
What a browser says is its own measure of the first paint with content; without Chromium the time
until the answer is whole stands for it.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.corpus import Session
from bench.measure import seconds, verdict

SIZE = 50_000_000
BARE = 11
"""Milliseconds of bare Python on the machine the budget was written for."""
PAINT = 200
ROWS = "document.querySelectorAll('li.ev[data-kind]').length > 5 ? performance.now() : null"
PAINTS = """
new PerformanceObserver(list => {
  for (const one of list.getEntriesByName('first-contentful-paint')) console.log(one.startTime)
}).observe({type: 'paint', buffered: true})
"""


def main() -> int:
    """Write one large session, sweep it, and look at it; 1 when a budget was missed."""
    with tempfile.TemporaryDirectory(prefix="thence-bench-") as folder:
        context, uid = _swept(Path(folder))
        bare = seconds(lambda: subprocess.run([sys.executable, "-c", ""], check=True)) * 1000
        _worked(context, uid)
        return _painted(context, uid, bare)


def _swept(folder: Path) -> tuple[Any, str]:
    from thence import config
    from thence.agents import adapters
    from thence.memory.redact import Redactor
    from thence.memory.retention import Policy
    from thence.memory.sqlite import Sqlite
    from thence.memory.sweep import Sweep
    from thence.serve.context import AppContext

    made = Session(random.Random(7), SIZE)
    log = folder / "projects" / "-home-dev-big" / f"{made.id}.jsonl"
    log.parent.mkdir(parents=True)
    with log.open("wb") as file:
        file.writelines(made.lines())
    home, known = folder / ".thence", {"claude": adapters()["claude"]}
    store = Sqlite(str(home / "memory" / "thence.db"))
    with store.sweeping():
        Sweep(store, known, Redactor(key=bytes(32))).run({"claude": [folder]})
    settings = config.settings(home, {})
    context = AppContext(
        store, home=home, settings=settings, known=known, roots={}, policy=Policy()
    )
    return context, f"claude:{made.id}"


def _worked(context: Any, uid: str) -> None:
    """Say what the server works for each state of the page."""
    from thence.serve import pages

    page: Callable[..., Any] = pages.session.fn
    print("pages: processor time of the server for the page of a 50 MB session")
    page(context, uid)  # what is loaded once
    for name, given in (("head alone", {}), ("laid out", {"show_all": "1"}), ("at hand", {})):
        began = time.process_time()
        answer = page(context, uid, **given)
        took = 1000 * (time.process_time() - began)
        print(f"  {name:<12} {took:7.1f} ms  {len(answer.content) / 1000:6.0f} KB")


def _painted(context: Any, uid: str, bare: float) -> int:
    """Look at it with a browser: for the first time, then four times at hand."""
    from thence.serve import app
    from thence.serve.auth import AuthMiddleware
    from thence.serve.context import AppContext

    given = {"known": context.known, "roots": {}, "policy": context.policy}
    context = AppContext(context.store, home=context.home, settings=context.settings, **given)
    listener = app.listener("127.0.0.1", 0)
    gate = AuthMiddleware("127.0.0.1", listener.getsockname()[1], key=bytes(32))
    server = app.server(app.create(context, gate))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        took = _browsed(gate, uid)
    finally:
        server.should_exit = True
        thread.join()
    first, again = took[0], min(took[1:])
    print(f"  first paint  {again:7.1f} ms  where bare Python takes {bare:.0f}")
    print(f"  first look   {first:7.1f} ms")
    missed = verdict("first paint of 50 MB / bare Python", again / bare, PAINT / BARE)
    return missed + verdict("the same on the first look", first / bare, PAINT / BARE)


def _browsed(gate: Any, uid: str) -> list[float]:
    path = shutil.which("chromium")
    if path is None:
        print("  (no chromium: the answer alone)")
        return [_answered(gate, uid) for _ in range(5)]
    from playwright.sync_api import sync_playwright

    with sync_playwright() as kit:
        browser = kit.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(gate.url())
        # Of every document: the head of a first look makes room for the rows when they are there.
        painted: list[float] = []
        page.on("console", lambda said: painted.append(float(said.text)))
        page.add_init_script(PAINTS)
        took: list[float] = []
        for _ in range(5):
            painted.clear()
            page.goto(f"http://{gate.host}:{gate.port}/sessions/{uid}", wait_until="load")
            rows = page.wait_for_function(f"() => {ROWS}").json_value()
            if not took:
                print(f"  its rows     {rows:7.1f} ms  on the first look, after its head")
            took.append(painted[0])
        browser.close()
    return took


def _answered(gate: Any, uid: str) -> float:
    import http.client

    began = time.perf_counter()
    link = http.client.HTTPConnection(gate.host, gate.port)
    link.request("GET", f"/sessions/{uid}", headers={"Authorization": f"Bearer {gate.token}"})
    link.getresponse().read()
    link.close()
    return 1000 * (time.perf_counter() - began)


if __name__ == "__main__":
    sys.exit(main())
