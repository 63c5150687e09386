"""The owners' own suites on our bridges, as `make conformance` runs them: counts, not claims.

Each suite has a least number that must pass and the number that are run; either one changing is
an error, so that a new version of theirs is looked at and not waved through. `--crashes` makes
the table of docs/bridges.md, `--verbose` names what fails.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SDKS = ROOT / ".venv" / "conformance"

KIT = 14
CLAUDE = [
    "tests/test_session_store_conformance.py",
    "tests/test_session_helpers_store.py",
    "tests/test_session_import.py",
    "tests/test_session_resume.py",
    "tests/test_session_summary.py",
    "tests/test_transcript_mirror.py",
]
OPENAI = [
    "tests/memory/test_session.py",
    "tests/memory/test_session_limit.py",
    "tests/extensions/memory/test_encrypt_session.py",
]
CAPABILITIES = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}


class Outcome(NamedTuple):
    """What came of a suite."""

    name: str
    passed: int
    run: int
    least: int
    failed: list[str]

    @property
    def holds(self) -> bool:
        """Whether as much passed as must."""
        return self.passed >= self.least


def kit() -> Outcome:
    """Run the fourteen contracts of the Claude Agent SDK on a journal."""
    from thence.bridge.claude_agent_sdk import JournalSessionStore
    from thence.journal import Journal

    with tempfile.TemporaryDirectory() as home:
        made = iter(range(1000))
        return _contracts(
            "claude-agent-sdk, kit", lambda: JournalSessionStore(Journal(f"{home}/{next(made)}"))
        )


def _contracts(name: str, made: Callable[[], Any]) -> Outcome:
    """Run the kit; the first contract that fails ends it."""
    from claude_agent_sdk.testing import run_session_store_conformance

    failed = []
    try:
        asyncio.run(run_session_store_conformance(made))
    except AssertionError as error:
        failed = [str(error)]
    return Outcome(name, 0 if failed else KIT, KIT, KIT, failed)


def objects_kit() -> Outcome:
    """Run the contracts on a store of objects."""
    from thence.bridge.claude_shared import SharedSessionStore

    return _contracts("claude-agent-sdk, kit, on objects", lambda: SharedSessionStore("memory:///"))


def postgres_kit() -> Outcome:
    """Run the contracts on a Postgres of their own, each as a tenant of its own."""
    from tests.postgres import cluster
    from thence.bridge.claude_shared import SharedSessionStore

    with cluster() as server:
        made = iter(range(1000))
        return _contracts(
            "claude-agent-sdk, kit, on Postgres",
            lambda: SharedSessionStore(server.url(tenant=f"t{next(made)}")),
        )


def on_postgres() -> Outcome:
    """Run their tests on a Postgres. Those that count rounds of the loop give a server no time."""
    from tests.postgres import cluster

    with cluster() as server:
        name = "claude-agent-sdk, its tests, on Postgres"
        return swapped(name, "swap_claude_store", CLAUDE, 342, THENCE_STORE=server.url())


def langgraph() -> Outcome:
    """Run LangGraph's suite over the eight capabilities."""
    from langgraph.checkpoint.conformance import checkpointer_test, validate

    from thence.bridge.langgraph import JournalSaver
    from thence.journal import Journal

    async def made() -> AsyncIterator[Any]:
        with tempfile.TemporaryDirectory() as home:
            yield JournalSaver(Journal(home))

    report = asyncio.run(validate(checkpointer_test(name="JournalSaver")(made)))
    failed = [f"{name}: {line}" for name, r in report.results.items() for line in r.failures]
    passed = {name: result.tests_passed for name, result in report.results.items()}
    failed += [
        f"{name}: {passed.get(name)}" for name, n in CAPABILITIES.items() if passed[name] < n
    ]
    every = sum(CAPABILITIES.values())
    return Outcome("langgraph", sum(passed.values()), every, every, failed)


def swapped(name: str, plugin: str, files: list[str], least: int, **env: str) -> Outcome:
    """Run tests from a source package with our class in place of theirs."""
    package, _, _ = name.partition(",")
    (folder,) = (SDKS / "sources").glob(f"{package.replace('-', '_')}-*/")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", plugin, "-p", "no:cacheprovider", *files],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (SDKS, HERE))), **env},
    )
    matches = re.findall(r"(\d+) (passed|failed|skipped|error)", done.stdout.splitlines()[-1])
    counts = {word: int(number) for number, word in matches}
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return Outcome(name, counts.get("passed", 0), sum(counts.values()), least, failed)


SUITES: dict[str, Callable[[], Outcome]] = {
    "kit": kit,
    "claude": lambda: swapped("claude-agent-sdk, its tests", "swap_claude_store", CLAUDE, 349),
    "objects-kit": objects_kit,
    "postgres-kit": postgres_kit,
    "postgres": on_postgres,
    "openai": lambda: swapped("openai-agents, its tests", "swap_openai_session", OPENAI, 111),
    "langgraph": langgraph,
}


def main(options: list[str]) -> int:
    """Run the suites that are named, or all; 1 when one does not hold."""
    if "--crashes" in options:
        from tests.bridge.crashes import table

        for line in table(rounds=12):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        return 0
    named = [option for option in options if option in SUITES] or list(SUITES)
    outcomes = [SUITES[name]() for name in named]
    for outcome in outcomes:
        verdict = "ok" if outcome.holds else f"FEWER THAN {outcome.least}"
        lines = [f"{outcome.name:41} {outcome.passed:4} of {outcome.run:4}   {verdict}"]
        if "--verbose" in options or not outcome.holds:
            lines += [f"    {line}" for line in outcome.failed]
        sys.stdout.write("\n".join(lines) + "\n")
    return 0 if all(outcome.holds for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
