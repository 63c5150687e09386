"""T15: what a log says is never run, never loaded, never believed by a browser.

Thirty-six payloads stand in every field of a session that reaches a page. Every page of them is
opened in a real browser, all folds opened, and nothing happens: no script runs, no request leaves
the loopback, the content security policy has nothing to stop.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser

from tests import hostile as hosts
from tests.pace import by_pace
from tests.serve import browser as browsers
from tests.serve.conftest import House
from thence.agents.claude.sample import SampleTranscript
from thence.cli.sample_machine import Record, homes, made_id
from thence.memory.store import Filter
from thence.serve.markdown import render

pytestmark = pytest.mark.slow
ONE_LOOK = True
"""What a page does is not a matter of its width or its colours."""

PAYLOADS = (
    "<script>window.__pwned=1</script>",
    "<img src=x onerror=window.__pwned=1>",
    "<svg onload=window.__pwned=1>",
    '"><script>window.__pwned=1</script>',
    "'><img src=x onerror='window.__pwned=1'>",
    "<iframe srcdoc='<script>parent.__pwned=1</script>'>",
    "[click](javascript:window.__pwned=1)",
    "[click](JaVaScRiPt:window.__pwned=1)",
    "[click](data:text/html,<script>window.__pwned=1</script>)",
    "![image](https://evil.example/track.png)",
    "![image](javascript:window.__pwned=1)",
    "<a href='javascript:window.__pwned=1' autofocus onfocus=window.__pwned=1>x</a>",
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<style>@import url(https://evil.example/x.css);</style>",
    "<base href=https://evil.example/>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "<form action=https://evil.example/><input autofocus onfocus=window.__pwned=1>",
    "<div hx-get=https://evil.example/ hx-trigger=load>x</div>",
    "<div hx-on:load=window.__pwned=1 hx-trigger=load>x</div>",
    "</title></textarea></pre></code><script>window.__pwned=1</script>",
    "{{ 7 * 7 }}{% raw %}{{ cycler.__init__.__globals__ }}<script>window.__pwned=1</script>",
    "\x1b]8;;javascript:window.__pwned=1\x07x\x1b]8;;\x07<script>window.__pwned=1</script>",
    "\u202e<script>window.__pwned=1</script>\ud800",
    "```html\n<script>window.__pwned=1</script>\n```\n<script>window.__pwned=1</script>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.__pwned=1>",
    "<svg><script href=data:,window.__pwned=1 /></svg>",
    "<svg><a xlink:href=javascript:window.__pwned=1><text y=9>x</text></a></svg>",
    "<object data=data:text/html,<script>parent.__pwned=1</script>></object>",
    "<embed src=https://evil.example/x.swf>",
    "<video poster=https://evil.example/x.png src=x onerror=window.__pwned=1></video>",
    "<details open ontoggle=window.__pwned=1>x</details>",
    "<template><script>window.__pwned=1</script></template><!--><script>window.__pwned=1</script>",
    '`<img src=x onerror=window.__pwned=1>` <https://evil.example/"onmouseover=window.__pwned=1>',
    "[x]: javascript:window.__pwned=1\n\n[x][x] ![x][x]",
    "&lt;script&gt;window.__pwned=1&lt;/script&gt; &#60;img src=x onerror=window.__pwned=1&#62;",
    "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' onload='window.__pwned=1'/>",
)
"""What people write who want a browser to do something."""


SVG = "<svg xmlns='http://www.w3.org/2000/svg' onload='parent.__pwned=1;window.__pwned=1'/>"
IMAGES = (
    ("image/svg+xml", SVG),
    ("text/html", "<script>parent.__pwned=1</script>"),
    ('image/png" onerror="window.__pwned=1', SVG),
)
"""Images that are none: their type, and what they hold."""


def test_there_are_thirty_six_payloads() -> None:
    """The twenty-five of the threat model and eleven more."""
    assert len(PAYLOADS) == len(set(PAYLOADS)) == 36


def planted(folder: Path, number: int, payload: str) -> None:
    """Write a session that says a payload wherever it can say anything."""
    place = homes(folder)
    cwd = place.work / f"hostile-{number}"
    s = SampleTranscript(
        f"hostile-{number}", cwd, datetime.now(UTC) - timedelta(hours=2), branch=payload
    )
    s._cwd = f"/home/{payload}/{payload}"
    s.records += [{"type": "custom-title", "customTitle": payload, "sessionId": s.id}]
    s.prompt(payload)
    s.says({"type": "thinking", "thinking": f"{payload} {'x' * 9000}", "signature": payload})
    s.says({"type": "thinking", "thinking": payload, "signature": payload})
    s.says({"type": "text", "text": payload})
    s.call(payload, {payload: payload, "command": payload}, payload)
    s.call("Bash", {"command": f"echo {payload}"}, payload)
    s.call("Bash", {"command": f"pytest -q {payload}"}, f"FAILED {payload}\n1 failed", failed=True)
    s.call("Read", {"file_path": f"/{payload}"}, f"Error: {payload}", failed=True)
    s.edit(payload, payload, f"{payload}\n{payload}")
    s.call("Write", {"file_path": f"/tmp/{payload}.html", "content": payload}, "written")
    s.call("WebFetch", {"url": payload, "prompt": payload}, payload)
    s.call("mcp__evil__tool", {"x": [payload]}, payload)
    _helper(place.claude, f"hostile-{number}", s, payload)
    _todos(s, payload)
    _compacted(s, payload)
    s.prompt(f"no, {payload}")
    before = s.tip
    s.text(payload)
    s.tip = before
    s.chain("system", subtype="api_error", content=payload, level="error", error=payload)
    s.chain("user", isMeta=True, message={"role": "user", "content": payload})
    s.chain("user", message={"role": "user", "content": [{"type": payload, "source": payload}]})
    images = [_image(kind, body) for kind, body in IMAGES]
    s.chain("user", message={"role": "user", "content": [*images, {"type": "text", "text": "x"}]})
    s.call("Read", {"file_path": f"/{payload}.svg"}, images)  # type: ignore[arg-type] # as it is
    s.text(f"{payload}\n\n- [ ] {payload}\n\nI will {payload}.")
    s.call("Bash", {"command": payload}, None)
    for record in s.records:
        if isinstance(record.get("message"), dict) and "model" in record["message"]:
            record["message"] = {**record["message"], "model": payload}
    put(place.claude / "projects" / f"hostile-{number}" / f"{s.id}.jsonl", s.records)


def _image(kind: str, body: str) -> Record:
    data = b64encode(body.encode()).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


def put(path: Path, records: list[Record]) -> None:
    """Write records as lines of ASCII: halves of characters have no bytes of their own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def _helper(root: Path, name: str, s: SampleTranscript, payload: str) -> None:
    """A subagent that is named, told and heard in the same way."""
    agent = made_id(f"{s.id}-agent").replace("-", "")[:17]
    side = SampleTranscript("x", Path("/x"), s.clock.now, agent=agent)
    side.prompt(payload)
    side.call(payload, {"pattern": payload}, payload)
    side.text(payload)
    arguments = {"description": payload, "prompt": payload, "subagent_type": payload}
    s.call("Task", arguments, payload, structured={"agentId": agent, "status": payload})
    folder = root / "projects" / name / s.id / "subagents"
    put(folder / f"agent-{agent}.jsonl", side.records)
    meta = {"agentType": payload, "description": payload, "finished": True}
    (folder / f"agent-{agent}.meta.json").write_text(json.dumps(meta))


def _todos(s: SampleTranscript, payload: str) -> None:
    todos = [{"content": payload, "status": "pending", "activeForm": payload}]
    s.call("TodoWrite", {"todos": todos}, payload)


def _compacted(s: SampleTranscript, payload: str) -> None:
    last, s.tip = s.tip, None
    s.chain(
        "system",
        subtype="compact_boundary",
        content=payload,
        logicalParentUuid=last,
        compactMetadata={"trigger": payload, "preTokens": 148_000},
    )
    s.prompt(payload, isCompactSummary=True)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A machine whose every session says nothing but payloads."""
    folder = tmp_path_factory.mktemp("hostile")
    decisions = []
    for number, payload in enumerate(PAYLOADS):
        planted(folder, number, payload)
        decision = {"text": payload, "session_uid": f"claude:{made_id(f'hostile-{number}')}"}
        decisions.append(
            {
                "type": "decision",
                "ts": "2026-01-01T00:00:00.000Z",
                "uuid": f"d{number}",
                "prev_uuid": None,
                "payload": {**decision, "cwd": f"/{payload}", "origin": "mcp"},
            }
        )
    put(folder / ".thence" / "notes" / "decisions.jsonl", decisions)
    made = House(folder)
    made.swept()
    with made.serving():
        yield made
    made.close()


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A machine with sessions of Codex and Grok, payloads in every text leaf and in keys."""
    folder = tmp_path_factory.mktemp("strangers")
    hosts.plant(folder, ("codex", "grok"), PAYLOADS, 8)
    (folder / ".thence").mkdir()
    made = House(folder)
    made.swept()
    with made.serving():
        yield made
    made.close()


POPPED = """
document.querySelectorAll("[popover]:not(:popover-open)").forEach((p) => p.showPopover())
"""


def harmless(tab: browsers.Tab, where: str) -> None:
    """Hold a page to it: nothing ran, nothing was asked for, nothing had to be stopped."""
    tab.opened()
    tab.page.evaluate(POPPED)

    assert tab.page.evaluate("typeof window.__pwned") == "undefined", where
    assert [] == tab.violations(), where
    assert [] == tab.strangers, where
    problems: list[str] = tab.page.evaluate(
        '[...document.querySelectorAll(\'script:not([src^="/static/"]), iframe, style, base, img,'
        " object, embed, [style], [onerror], [onload], [onfocus]')].map((el) => el.outerHTML)"
        ".filter((html) => !html.startsWith('<meta'))"
    )
    assert [] == problems, where


@pytest.mark.sampled
def test_no_session_makes_a_browser_do_anything(browser: Browser, hostile: House) -> None:
    """Each payload in every field: the session with all its folds, its subagent alone."""
    rows = list(hostile.store.sessions(Filter()))
    assert len(rows) >= len(PAYLOADS)
    with browsers.tab(browser, hostile) as tab:
        for number, row in enumerate(rows[:: by_pace(everyday=12, full=12, prove=1)]):
            page = tab.go(f"/sessions/{quote(row.session.session_uid, safe=':')}")
            harmless(tab, f"{row.title!r}")
            assert page.locator("#thread .ev").count() > 10, row.title
            assert page.get_by_text("Decision, by an agent, unconfirmed").is_visible()
            if number % by_pace(everyday=3, full=3, prove=1):
                continue
            alone = page.locator("a", has_text="Open on its own page").first.get_attribute("href")
            assert alone is not None
            tab.go(alone)
            harmless(tab, f"alone {row.title!r}")


@pytest.mark.sampled
def test_no_session_of_another_agent_makes_a_browser_do_anything(
    browser: Browser, strangers: House
) -> None:
    """Tool names, models, titles, folders, branches and keys of Codex and Grok as well."""
    rows = list(strangers.store.sessions(Filter()))
    assert {"codex": 24, "grok": 8} == Counter(row.session.flavor for row in rows)
    with browsers.tab(browser, strangers) as tab:
        each = {row.session.flavor: row for row in rows}
        for row in by_pace(everyday=[*each.values()], full=[*each.values()], prove=rows):
            page = tab.go(f"/sessions/{quote(row.session.session_uid, safe=':')}")
            harmless(tab, f"{row.session.session_uid} {row.title!r}")
            assert page.locator("#thread .ev").count() > 2, row.title
        for path in (
            "/",
            "/sessions",
            "/sessions?q=window",
            "/patterns",
            "/costs?by=model&days=90",
        ):
            tab.go(path)
            harmless(tab, path)


@pytest.mark.sampled
def test_no_list_makes_a_browser_do_anything(browser: Browser, hostile: House) -> None:
    """Now, sessions, costs by each thing, patterns, store: with every payload on them."""
    paths = ["/", "/sessions", "/sessions?sort=cost", "/patterns", "/store"]
    paths += ["/sessions?q=kind:decision"]
    paths += [f"/costs?by={by}&days=90" for by in ("model", "project", "agent", "session")]
    paths = paths[:: by_pace(everyday=2, full=2, prove=1)]
    with browsers.tab(browser, hostile) as tab:
        for path in paths:
            page = tab.go(path)
            harmless(tab, path)
            assert page.locator("h1").is_visible()


@pytest.mark.sampled
def test_no_address_makes_a_browser_do_anything(browser: Browser, hostile: House) -> None:
    """A search, a filter, an id and a name that are payloads themselves."""
    each = by_pace(everyday=1, full=1, prove=5)
    uid = next(hostile.store.sessions(Filter())).session.session_uid
    with browsers.tab(browser, hostile) as tab:
        for number, payload in enumerate(PAYLOADS[:: by_pace(everyday=8, full=8, prove=1)]):
            quoted = quote(payload.encode("utf-8", "replace").decode(), safe="")
            paths = (
                f"/sessions?q={quoted}",
                f"/sessions?project={quoted}&model={quoted}&agent={quoted}&after={quoted}",
                f"/costs?project={quoted}&model={quoted}&agent={quoted}&day={quoted}&by={quoted}",
                f"/patterns?kind={quoted}",
                f"/sessions/{quote(uid, safe=':')}?at={quoted}&end={quoted}",
            )
            for at in range(number, number + each):
                tab.go(paths[at % len(paths)])
                harmless(tab, paths[at % len(paths)])


def test_the_text_of_an_event_is_a_file_and_no_page(hostile: House) -> None:
    """Whatever it says: text, as an attachment, and nobody guesses at its type."""
    row = next(hostile.store.sessions(Filter()))
    for stored_event in hostile.store.events(row.session.session_uid, limit=10):
        name = f"e{stored_event.event.event_id:013x}"
        answer = hostile.ask(f"/sessions/{row.session.session_uid}/text/{name}")

        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/plain")
        assert answer.headers["content-disposition"].startswith("attachment")
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_markdown_gives_an_element_that_acts(payload: str) -> None:
    """Nothing but text, emphasis, code, tables and links out."""
    made: Any = render(payload)
    for sign in ("<script", "<img", "<svg", "<iframe", "<style", "<form", "<base", "<meta"):
        assert sign not in str(made).lower()
    assert 'href="javascript' not in str(made).lower()
    assert 'href="data:' not in str(made).lower()
