"""The tokens that an agent spends on the MCP server: the tool list, and the answer of each tool.

A token is counted as four characters, which is close enough for English and code. The time of each
answer is printed.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from bench.measure import verdict
from tests.rules import rules
from thence.agents import adapters
from thence.cli.sample_machine import Homes, made_id, write
from thence.format.records import JSON
from thence.memory.gate import Gate
from thence.memory.sqlite import Sqlite
from thence.memory.sweep import Sweep
from thence.serve.questions import Questions
from thence.serve.stdio import tool_list

CHARS_PER_TOKEN = 4
"""Approximate characters per token."""
CLOCK_SESSION = made_id("clock-change")
TOKEN_BUDGETS: list[tuple[str, dict[str, JSON], int]] = [
    ("search", {"query": "tide"}, 700),
    ("recall", {"question": "how did we mend the tide windows"}, 1_600),
    ("outline", {"session": CLOCK_SESSION}, 700),
    ("around", {"session": CLOCK_SESSION, "event": ""}, 1500),
    ("seen_error", {"text": "AssertionError: assert 1 == 2"}, 500),
    ("files", {"path": "windows.py"}, 500),
    ("todos", {}, 500),
    ("costs", {"since": "2020-01-01"}, 500),
]


def main() -> int:
    """Call every tool once; return how many budgets were missed."""
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        store = _make_store(write(Path(folder), datetime.now(UTC)))
        questions = Questions(store, lambda *_: {})
        chars = sum(
            len(json.dumps({**tool, "annotations": None}, separators=(",", ":")))
            for tool in tool_list()
        )
        missed += verdict(
            "tokens of the tool list, sent once per session", chars // CHARS_PER_TOKEN, 800
        )
        for tool, tokens, budget, seconds in _ask_all(questions):
            print(f"mcp: {tool} answers in {seconds * 1000:.0f} ms")
            missed += verdict(f"tokens of {tool}", tokens, budget)
        store.close()
    return missed


def _ask_all(questions: Questions) -> Iterator[tuple[str, int, int, float]]:
    event = questions.answer("search", {"query": "windows agent:claude"}).split("\n")[1].split()[0]
    for tool, arguments, budget in TOKEN_BUDGETS:
        if "event" in arguments:
            first_hit = questions.answer("search", {"query": "windows agent:claude"}).split("\n")[1]
            arguments = {"event": event, "session": first_hit.split()[1]}  # noqa: PLW2901
        start = time.perf_counter()
        answer = questions.answer(tool, arguments)
        yield tool, len(answer) // CHARS_PER_TOKEN, budget, time.perf_counter() - start


def _make_store(homes: Homes) -> Sqlite:
    homes.thence.mkdir(parents=True, exist_ok=True)
    store = Sqlite(str(homes.thence / "memory" / "thence.db"))
    known = adapters()
    roots = {name: adapter.roots(homes.work.parent, homes.env) for name, adapter in known.items()}
    with store.sweeping(60):
        Sweep(store, known, Gate(key=bytes(32)), rules()).run(
            {name: [path for path in paths if path.is_dir()] for name, paths in roots.items()}
        )
    return store
