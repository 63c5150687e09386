"""Our tokens against those of Harbor's own converters, on every log that both can read.

Harbor needs Python 3.12 and much else, so it lives in an environment of its own, which
`make conformance` brings; `THENCE_HARBOR` names the Python of another one. Without it, or without
the shared sessions, these are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from thence.agents.sessions import LoadedSession, load
from thence.bridge.atif import trajectory_of
from thence.format.facts import MIRRORED

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = ROOT.parent / "shared" / "data"
SCRIPT = ROOT / "scripts" / "harbor_totals.py"
READY = ROOT / ".venv" / "harbor" / "ready"
BROUGHT = str(READY.with_name("bin") / "python") if READY.is_file() else ""
HARBOR = os.environ.get("THENCE_HARBOR", BROUGHT)

pytestmark = pytest.mark.skipif(
    not HARBOR or not DATA.is_dir(),
    reason="needs harbor (make conformance brings it) and the shared sessions",
)


def _claude_logs() -> Iterator[Path]:
    for path in sorted(DATA.rglob("projects/*/*.jsonl")):
        if not path.name.startswith("agent-"):
            yield path


def _codex_logs() -> Iterator[Path]:
    yield from sorted(DATA.rglob("rollout-*.jsonl"))


def _alone(log: Path, folder: Path) -> Path:
    """Copy a session, with its subagents, into a folder of its own."""
    folder.mkdir(parents=True)
    shutil.copy(log, folder / log.name)
    beside = log.with_suffix("")
    if (beside / "subagents").is_dir():
        shutil.copytree(beside / "subagents", folder / beside.name / "subagents")
    return folder


def _harbor(agent: str, folders: list[Path]) -> dict[str, Any]:
    command = [HARBOR, str(SCRIPT), agent, *map(str, folders)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    totals: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return totals


def _ours(loaded: LoadedSession) -> tuple[int, int, int]:
    """Sum up all bills of a session's own trajectories."""
    root = trajectory_of(loaded, agent="x", by="test")
    todo, sums = [root], [0, 0, 0]
    while todo:
        trajectory = todo.pop()
        if trajectory["extra"]["thence"].get("role") == "ancestor":
            continue
        final = trajectory["final_metrics"]
        names = ("total_prompt_tokens", "total_completion_tokens", "total_cached_tokens")
        sums = [a + final[name] for a, name in zip(sums, names, strict=True)]
        todo += trajectory.get("subagent_trajectories", [])
    return sums[0], sums[1], sums[2]


class Comparison(NamedTuple):
    """How many logs give equal tokens, and which do not: with a reason, and without."""

    equal: int
    explained: dict[str, str]
    different: dict[str, Any]


def _compared(agent: str, logs: list[Path], tmp_path: Path) -> Comparison:
    folders = {str(tmp_path / str(n)): log for n, log in enumerate(logs)}
    totals = _harbor(agent, [_alone(log, Path(folder)) for folder, log in folders.items()])
    equal = 0
    explained: dict[str, str] = {}
    different: dict[str, Any] = {}
    for folder, log in folders.items():
        final = totals[folder]
        if final is None or "error" in final:
            continue
        names = ("total_prompt_tokens", "total_completion_tokens", "total_cached_tokens")
        theirs = tuple(final[name] or 0 for name in names)
        ours = _ours(load(log if agent == "codex" else Path(folder) / log.name))
        if ours == theirs:
            equal += 1
        elif (why := _why(agent, log)) is not None:
            explained[str(log.relative_to(DATA))] = why
        else:
            different[str(log.relative_to(DATA))] = {"ours": ours, "harbor": theirs}
    return Comparison(equal, explained, different)


def _why(agent: str, log: Path) -> str | None:
    """Return what Harbor's converter cannot know of a log; None when it could."""
    loaded = load(log)
    facts = loaded.generations[0].facts
    if any(fact.type.startswith(MIRRORED) for fact in facts):
        return "subagents whose only copy are progress records"
    if len(loaded.source.files) > 1 and agent == "codex":
        return "one session in several files"
    if len(loaded.generations) > 1:
        return "totals begin with those of the session it continues"
    if agent == "codex" and _restarts(log):
        return "its running total begins anew after a resume"
    if agent == "codex" and len(loaded.graph.bills) > log.read_text().count('"last_token_usage"'):
        return "a response of a killed turn, whose bill the log does not have"
    return None


def _restarts(log: Path) -> bool:
    """Whether the running total of a log is ever smaller than before."""
    last = 0
    for line in log.read_text(errors="replace").splitlines():
        if '"total_token_usage"' not in line:
            continue
        info = json.loads(line).get("payload", {}).get("info") or {}
        total = info.get("total_token_usage", {}).get("total_tokens", 0)
        if total < last:
            return True
        last = total
    return False


@pytest.mark.parametrize(("agent", "least"), [("claude", 90), ("codex", 40)])
def test_tokens_are_those_of_harbors_converter(agent: str, least: int, tmp_path: Path) -> None:
    """Where both can read all of a log both count the same; all else has a reason."""
    logs = list(_claude_logs() if agent == "claude" else _codex_logs())
    compared = _compared(agent, logs, tmp_path)

    assert {} == compared.different
    assert least <= compared.equal
    assert len(compared.explained) < compared.equal / 3
