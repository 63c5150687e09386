"""The sample harness of docs/embed.md, killed at any moment from the start of its process.

The first start in a home runs the sample as it is: a session is created and resumed. Each later
one resumes the project, some times in a row; each time it is forked and a subagent is started, too.
Segments are small, so that sessions roll over. Every text whose `record` returned is written down.
After each kill `resume(project=…)` has to give all of them, in the project's folder: a project in
which it does not is poisoned.
"""

from __future__ import annotations

import ast
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from tests.faults.warm import end_with_parent
from thence.errors import SessionNotFound
from thence.format import layout
from thence.journal import Journal

ROOT = Path(__file__).resolve().parents[2]
PROJECT = ROOT / "tidepool"
"""Where the sample of the page works, which is started at the root."""
STARTS_PER_HOME = 10
RESUMES = 4
"""How often a later start resumes and forks: so that kills find it beginning sessions."""
SEGMENT_BYTES = 600
"""The header and one or two events: each turn rolls over."""

_START = "import sys; from tests.faults.harness import run; run(*sys.argv[1:])"


class StartReport(msgspec.Struct):
    """What was done to the harness and what that cost. The last three should be 0."""

    kills: int = 0
    ends: int = 0
    """Starts that were through before they were killed."""
    acknowledged: int = 0
    sessions: int = 0
    crashed: int = 0
    """Starts that ended with an error of their own, for what an earlier one had left."""
    lost: int = 0
    poisoned: int = 0
    """Looks at which the project does not go on, or a log has no whole header."""

    @property
    def violations(self) -> int:
        """How often a promise was broken."""
        return self.crashed + self.lost + self.poisoned


def sample() -> tuple[str, str, str]:
    """Return the first program of the page: what it defines, how it creates, how it resumes."""
    page = (ROOT / "docs" / "embed.md").read_text()
    shown = re.search(r"<!-- executed -->\n```python\n(.*?)```", page, re.DOTALL)
    if shown is None:
        raise RuntimeError("docs/embed.md shows no program")
    program = shown[1]
    statements = [ast.get_source_segment(program, node) or "" for node in ast.parse(program).body]
    first = next(n for n, text in enumerate(statements) if text.startswith("with journal.create("))
    then = next(n for n, text in enumerate(statements) if "journal.resume(project=" in text)
    return "\n".join(statements[:first]), statements[first], statements[then]


def run(home: str, acknowledged: str, created: str) -> None:
    """Run the sample in a home, all prompts and replies made unique. Runs in a process of its own.

    Nothing but the home, the texts, the writing down and what follows a resume is ours.
    """
    defines, creates, resumes = sample()
    names: dict[str, Any] = {}
    exec(defines.replace("tempfile.mkdtemp()", f"{home!r}, max_bytes={SEGMENT_BYTES}"), names)
    _write_down(acknowledged)
    turn, model = names["turn"], names["model"]
    numbers = (f"{os.getpid()}-{time.time_ns()}-{number}" for number in count())

    def unique(messages: Any) -> Any:
        reply = model(messages)
        return {**reply, "content": f"{reply['content']} {next(numbers)}"}

    names["turn"] = lambda session, prompt, _: turn(session, f"{prompt} {next(numbers)}", unique)
    if not created:
        exec(creates, names)
    for _ in range(RESUMES):
        exec(resumes, names)
        with names["journal"].fork() as fork, fork.sidechain("reader") as side:
            side.finish("seen")


def _write_down(path: str) -> None:
    """Write down what was recorded, once `record` has returned."""
    from thence.journal import Session

    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    record: Callable[..., Any] = Session.record

    def recording(self: Session, kind: str, payload: Any = None, **more: Any) -> Any:
        receipt = record(self, kind, payload, **more)
        if kind in ("user", "assistant"):
            os.write(descriptor, json.dumps(payload["content"]).encode() + b"\n")
        return receipt

    Session.record = recording  # type: ignore[method-assign]


def kill_starts(kills: int, folder: Path, seed: int) -> StartReport:
    """Start the harness, kill it at a moment of chance, look at what is left; many times.

    A start that is through before its moment is looked at too, and does not count as a kill.
    """
    chance = random.Random(seed)
    report = StartReport()
    # One in each part of that time, so that a few are spread over all of it.
    moments = [(number + chance.random()) / kills for number in range(kills)]
    chance.shuffle(moments)
    while moments:
        home = folder / f"home-{len(moments)}"
        took = _seconds_of_a_start(folder / f"whole-{len(moments)}")  # now: others may run beside
        for _ in range(min(STARTS_PER_HOME, len(moments))):
            process = _start(home)
            time.sleep(moments.pop() * took)
            process.kill()
            code = process.wait()
            if code == -signal.SIGKILL:
                report.kills += 1
            elif code:
                report.crashed += 1
            else:  # it was through before: killed at another moment
                report.ends += 1
                moments.insert(0, chance.random())
            _look(home, report)
        report.acknowledged += len(_texts(home))
        logs = (home / layout.SESSIONS).rglob("*.jsonl")
        report.sessions += len({path.name.partition(".")[0] for path in logs})
    return report


def _start(home: Path) -> subprocess.Popen[bytes]:
    created = any((home / layout.SESSIONS).rglob("*.jsonl"))
    arguments = [str(home), f"{home}.log", "created" if created else ""]
    return subprocess.Popen(
        [sys.executable, "-c", _START, *arguments],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        preexec_fn=end_with_parent,  # noqa: PLW1509 - no threads here
    )


def _seconds_of_a_start(home: Path) -> float:
    """Measure how long a start takes that nobody kills: moments are drawn from that."""
    began = time.monotonic()
    if _start(home).wait():
        raise RuntimeError("the sample of docs/embed.md ends with an error")
    return time.monotonic() - began


def _texts(home: Path) -> list[str]:
    log = Path(f"{home}.log")
    lines = log.read_bytes().split(b"\n")[:-1] if log.exists() else []
    return [json.loads(line) for line in lines]


def _look(home: Path, report: StartReport) -> None:
    """Resume the project; nothing has to be there as long as nothing was acknowledged."""
    texts = _texts(home)
    try:
        session = Journal(home).resume(project=PROJECT)
    except SessionNotFound:
        report.lost += len(texts)
        report.poisoned += bool(texts)
        return
    with session:
        messages = str(session.messages)
        lost = sum(text not in messages for text in texts)
        path = session.transcript_path
        is_there = path is not None and path.parent.name == layout.project_id(str(PROJECT))
        odd = any(notice.what == "no header" for notice in session.recovery.notices)
    logs = [
        *(home / layout.SESSIONS).rglob("*.jsonl"),
        *(home / layout.SIDECHAINS).rglob("*.jsonl"),
    ]
    odd |= any(not path.read_bytes().startswith(b'{"type":"header"') for path in logs)
    report.lost += lost
    report.poisoned += bool(lost or odd or not is_there)
