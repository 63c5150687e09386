"""Commands in processes of their own that do not start an interpreter each.

A warm parent (`tests.faults.warm`) with thence imported forks: each child runs one command with
the environment, folder and module path it is given, and ends. What a command does to its process
(exit, kill, broken packages) stays in that child.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import thence.agents
from tests.faults.warm import Warm

_AGENTS = Path(thence.agents.__file__).parent
PRELOADED = (
    *(
        f"thence.agents.{path.parent.name}.{path.stem}"
        for part in ("profile", "reader")
        for path in sorted(_AGENTS.glob(f"*/{part}.py"))
    ),
    "tests.processes",
    "thence.cli.doctor",
    "thence.cli.handoff",
    "thence.cli.hook",
    "thence.cli.inspect",
    "thence.cli.ls",
    "thence.cli.search",
    "thence.cli.show",
    "thence.cli.sweep",
    "thence.journal.journal",
    "thence.memory.digest",
    "thence.memory.sqlite",
    "thence.memory.sweep",
)
_TURN = threading.Lock()


@lru_cache(maxsize=1)
def _parent() -> Warm:
    parent = Warm(*PRELOADED)
    atexit.register(parent.__exit__, None, None, None)
    return parent


def run_thence(
    *arguments: str | Path,
    env: Mapping[str, str] | None = None,
    cwd: str | Path = "/",
    path: Sequence[str | Path] = (),
    terminal: str | None = None,
    umask: int | None = None,
    program: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `thence …` in a process of its own; `path` comes first where modules are looked for.

    `terminal` names a device that takes what is printed instead; `program` is what is run instead.
    """
    command = ["thence", *map(str, arguments)]
    with tempfile.TemporaryDirectory(prefix="thence-run-") as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        request = {
            "argv": command,
            "env": dict(os.environ if env is None else env),
            "cwd": str(cwd),
            "path": [str(part) for part in path],
            "out": terminal or str(out),
            "err": terminal or str(err),
            "umask": umask,
            "program": program,
        }
        with _TURN:
            code = _parent().start(become_thence, json.dumps(request)).wait()
        texts = [
            file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
            for file in (out, err)
        ]
        return subprocess.CompletedProcess(command, code, *texts)


def become_thence(request: str) -> None:
    """Turn this process into a command."""
    wanted = json.loads(request)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for number, name in ((1, wanted["out"]), (2, wanted["err"])):
        opened = os.open(name, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, (stream, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        setattr(sys, stream, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    if wanted["umask"] is not None:
        os.umask(wanted["umask"])
    os.environ.clear()
    os.environ.update(wanted["env"])
    time.tzset()
    os.chdir(wanted["cwd"])
    sys.path[:0] = wanted["path"]
    sys.argv = wanted["argv"]
    from thence.cli import main

    try:
        if wanted["program"] is None:
            main()
        else:
            exec(compile(wanted["program"], "<program>", "exec"), {"__name__": "__main__"})
    except SystemExit as ended:
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
            raise SystemExit(1) from None
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
