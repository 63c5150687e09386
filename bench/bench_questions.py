"""How well searches answer: questions over ../shared/data whose answers were fixed by grep.

Three kinds are asked: sentences, keywords and texts of errors. A question is answered where one of
its sessions is among the first one, five or ten sessions that a search gives. Answers were fixed by
a literal text of the raw logs before anything was tuned. Every other question is of a half kept for
checking: nothing is fitted to its single questions, but its figures were seen while limits were
chosen. Sentences were written with the first prompts at hand, and share words with them. Where
agentsview is installed (`AGENTSVIEW=path`) it is asked the same. A second set is made by a fixed
recipe (`fresh_questions`); search by words was not tuned with it; a third by the same recipe of
other draws and further agents, when search was done. With the extra `semantic` both
are asked by meaning as well; how the two are fused was chosen with all these figures at hand.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Final, NamedTuple
from unittest.mock import patch
from urllib.parse import quote

from bench.bench_agentsview import Theirs
from bench.bench_sweep import ran
from bench.fresh_questions import SEED, UNSEEN_SEED, fresh_questions
from bench.measure import verdict
from thence.memory import index
from thence.memory.encoder import MiniLM, weights_folder
from thence.memory.search import parse
from thence.memory.sqlite import Sqlite

QUESTIONS: Final = Path(__file__).with_name("questions.jsonl")
SHARED: Final = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
PLACES: Final = (1, 5, 10)
ASKED_HITS: Final = 50
BUDGETS: Final = {"sentence": 0.15, "keywords": 0.15, "error": 0.15}
"""The share of questions that may have no answer among the first ten sessions."""

_OLD = frozenset({"growth", "before_resume", "before_rewind", "at-kill", "other-snapshots"})
_LOOSE = ("agentcmd", "episodic-memory", "git-ai", "agentsview", "agent-sessions")

Ask = Callable[[str], Iterable[str]]
"""Return the sessions that answer a question, the best first; some more than once."""


class Question(NamedTuple):
    """A question, and the sessions that answer it."""

    kind: str
    half: str
    question: str
    answers: list[str]


def questions() -> list[Question]:
    """Return all questions."""
    lines = QUESTIONS.read_text(encoding="utf-8").splitlines()
    return [Question(**json.loads(line)) for line in lines]


def gather(home: Path) -> None:
    """Copy the logs of all agents into a home, each at the place its client would use."""
    projects = home / ".claude" / "projects"
    roots = [*_folders("projects", "claude", "claude-code")]
    for root in [*roots, SHARED / "public/claude/claude-code-log/real_projects"]:
        for project in sorted(path for path in root.iterdir() if path.is_dir()):
            shutil.copytree(project, projects / project.name, dirs_exist_ok=True)
    for name in _LOOSE:
        (projects / f"-{name}").mkdir(parents=True, exist_ok=True)
        for log in sorted((SHARED / "public/claude" / name).rglob("*.jsonl")):
            if "subagent" not in str(log):
                shutil.copy(log, projects / f"-{name}" / log.name)
    for agent in ("codex", "grok"):
        for root in _folders("sessions", agent):
            shutil.copytree(root, home / f".{agent}" / "sessions", dirs_exist_ok=True)
    _gather_further(home)


def _gather_further(home: Path) -> None:
    """Copy the logs of further agents: those of the lab, and published ones."""
    for agent in ("pi", "qwen", "gemini", "copilot"):
        for folder in sorted((SHARED / "agents" / agent).glob("*/home")):
            shutil.copytree(folder, home, dirs_exist_ok=True)
    public = SHARED / "public"
    places = {
        "pi/**/*.jsonl": ".pi/agent/sessions/--home-dev-public--",
        "qwen/**/*.jsonl": ".qwen/projects/-home-dev-public/chats",
        "gemini/**/*session-*.json": ".gemini/tmp/public/chats",
    }
    for pattern, place in places.items():
        (home / place).mkdir(parents=True, exist_ok=True)
        for log in sorted(public.glob(pattern)):
            name = log.name[max(log.name.find("session-"), 0) :]
            shutil.copy(log, home / place / name)
    for log in sorted(public.glob("copilot/**/session-state/*/events.jsonl")):
        shutil.copytree(
            log.parent, home / ".copilot/session-state" / log.parent.name, dirs_exist_ok=True
        )


def _folders(name: str, *agents: str) -> Iterable[Path]:
    for path in sorted(SHARED.rglob(name)):
        parts = set(path.relative_to(SHARED).parts)
        if path.is_dir() and parts.intersection(agents) and not parts & _OLD:
            yield path


def measured(
    who: str, ask: Ask, fresh: Sequence[Question] = ()
) -> dict[tuple[str, str], list[float]]:
    """Ask everything; print and return the shares of answers among the first, by kind and half."""
    places: dict[tuple[str, str], list[int]] = {}
    took: list[float] = []
    for asked in (*questions(), *fresh):
        start = time.thread_time()
        sessions = list(dict.fromkeys(ask(asked.question)))
        took.append(time.thread_time() - start)
        place = next((n for n, uid in enumerate(sessions) if uid in asked.answers), 1000)
        places.setdefault((asked.kind, asked.half), []).append(place)
        if os.environ.get("BENCH_MISSED") == asked.half and place >= 1:
            print(f"  {place:>4}  {asked.kind}: {asked.question}")
    shares = {}
    for key, all_ in sorted(places.items()):
        shares[key] = [sum(place < most for place in all_) / len(all_) for most in PLACES]
        told = ", ".join(f"@{n} {s:.0%}" for n, s in zip(PLACES, shares[key], strict=True))
        print(f"{who}: {key[0]}, {key[1]} half of {len(all_)}: {told}")
    high = statistics.quantiles(took, n=20)[-1]
    middle = statistics.median(took)
    print(f"{who}: our processor p50 {middle * 1e3:.1f} ms, p95 {high * 1e3:.1f} ms")
    return shares


def _fresh(home: Path) -> list[Question]:
    return [
        Question(asked.kind, half, asked.question, asked.answers)
        for half, seed in (("fresh", SEED), ("unseen", UNSEEN_SEED))
        for asked in fresh_questions(home, seed)
    ]


def _theirs(home: Path, program: str, fresh: Sequence[Question]) -> None:
    side = Theirs(home / ".claude", home / "agentsview", program)
    side.env["CODEX_SESSIONS_DIR"] = str(home / ".codex" / "sessions")
    side.env["HOME"] = str(home)
    side.fresh()
    side.read()
    with side.serving() as link:

        def ask(path: str) -> Ask:
            def sessions(question: str) -> Iterable[str]:
                link.request("GET", path + quote(question))
                told = json.loads(link.getresponse().read())
                for hit in told.get("results") or told.get("matches") or []:
                    name = str(hit["session_id"])
                    yield name if ":" in name else f"claude:{name}"

            return sessions

        for name, path in side.ways().items():
            measured(f"agentsview, {name}", ask(path), fresh)


def _by_meaning(store: Sqlite, ask: Ask, fresh: Sequence[Question]) -> None:
    """Make vectors, say what that took, and ask everything again."""
    store.use_encoder(MiniLM())
    assert store.vectors is not None
    start = time.process_time()
    sessions = store.vectors.build(store).done
    took = time.process_time() - start
    print(f"thence by meaning: vectors of {sessions} sessions in {took:.0f} s of processor")
    measured("thence by meaning", ask, fresh)


def main() -> int:
    """Ask, print, and say how many budgets were missed."""
    if not SHARED.is_dir():
        print("no ../shared/data: no questions to ask")
        return 0
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        gather(home)
        program = str(Path(sys.executable).parent / "thence")
        env = {"PATH": os.environ["PATH"], "HOME": name, "THENCE_HOME": f"{name}/thence"}
        ran([program, "sweep", "--json"], {**env, "LC_ALL": "C.UTF-8"})
        # On a busy machine a clock would cut searches short: they go by the processor's time.
        clock = patch.object(index, "time", SimpleNamespace(monotonic=time.thread_time))
        with clock, closing(Sqlite(f"{name}/thence/memory/thence.db")) as store:

            def ask(question: str) -> Iterable[str]:
                found = store.search(parse(question), ASKED_HITS).matches
                return [one.session_uid for one in found]

            ask("warm")
            fresh = _fresh(home)
            shares = measured("thence", ask, fresh)
            if weights_folder() is not None and find_spec("numpy") is not None:
                _by_meaning(store, ask, fresh)
        theirs = os.environ.get("AGENTSVIEW") or shutil.which("agentsview")
        if theirs is not None:
            _theirs(home, theirs, fresh)
    return sum(
        verdict(f"{kind}: without an answer among ten sessions", 1 - shares[kind, half][2], budget)
        for kind, budget in BUDGETS.items()
        for half in ("untouched",)
    )


if __name__ == "__main__":
    sys.exit(main())
