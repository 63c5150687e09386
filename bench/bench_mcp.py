"""What an agent pays for asking its past: tokens of the tools and of each answer.

By four characters a token, which is near enough for English and code. How long an answer took is
shown beside.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from bench.measure import verdict
from thence.agents import adapters
from thence.cli.sample_machine import Homes, made_id, write
from thence.format.records import JSON
from thence.memory.redact import Redactor
from thence.memory.sqlite import Sqlite
from thence.memory.sweep import Sweep
from thence.serve import mcp
from thence.serve.questions import Questions

TOKEN = 4
"""Characters of a token, about."""
CLOCK = made_id("clock-change")
BUDGETS: list[tuple[str, dict[str, JSON], int]] = [
    ("search", {"query": "tide"}, 700),
    ("recall", {"question": "how did we mend the tide windows"}, 1_600),
    ("outline", {"session": CLOCK}, 700),
    ("around", {"session": CLOCK, "event": ""}, 1500),
    ("seen_error", {"text": "AssertionError: assert 1 == 2"}, 500),
    ("files", {"path": "windows.py"}, 500),
    ("todos", {}, 500),
    ("costs", {"since": "2020-01-01"}, 500),
]


def main() -> int:
    """Ask everything once."""
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        store = _swept(write(Path(folder), datetime.now(UTC)))
        asked = Questions(store, Redactor(key=bytes(32)).redact, lambda *_: {})
        told = sum(
            len(tool.model_dump_json(by_alias=True, exclude_none=True, exclude={"annotations"}))
            for tool in mcp.tools()
        )
        missed += verdict("mcp: tokens of all tools, once a session", told // TOKEN, 800)
        for tool, tokens, budget, took in _answers(asked):
            name = f"mcp: tokens of {tool} ({took * 1000:.0f} ms)"
            missed += verdict(name, tokens, budget)
        store.close()
    return missed


def _answers(asked: Questions) -> Iterator[tuple[str, int, int, float]]:
    event = asked.answer("search", {"query": "windows agent:claude"}).split("\n")[1].split()[0]
    for tool, given, budget in BUDGETS:
        if "event" in given:
            found = asked.answer("search", {"query": "windows agent:claude"}).split("\n")[1]
            given = {"event": event, "session": found.split()[1]}  # noqa: PLW2901
        start = time.perf_counter()
        answer = asked.answer(tool, given)
        yield tool, len(answer) // TOKEN, budget, time.perf_counter() - start


def _swept(homes: Homes) -> Sqlite:
    homes.thence.mkdir(parents=True, exist_ok=True)
    store = Sqlite(str(homes.thence / "memory" / "thence.db"))
    known = adapters()
    roots = {n: one.roots(homes.work.parent, homes.env) for n, one in known.items()}
    with store.sweeping(60):
        Sweep(store, known, Redactor(key=bytes(32))).run(
            {n: [path for path in paths if path.is_dir()] for n, paths in roots.items()}
        )
    return store
