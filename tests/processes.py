"""Commands in processes of their own that do not start an interpreter each.

One helper process per test process has thence imported and does nothing but fork: each child
runs one command with the environment, folder and module path it is given, and ends. What a
command does to its process (exit, kill, broken packages) stays in that child. The helper has one
thread, so a fork is safe, which it is not in a process that runs tests.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

PRELOADED = (
    "thence.cli.doctor",
    "thence.cli.inspect",
    "thence.cli.ls",
    "thence.cli.show",
    "thence.cli.sweep",
    "thence.memory.digest",
    "thence.memory.sqlite",
    "thence.memory.sweep",
)


class _Helper:
    """The process that forks; calls take turns."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={k: v for k, v in os.environ.items() if not k.startswith(("THENCE_", "COV_"))},
        )
        atexit.register(self._stop)

    def _stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def run(self, request: Mapping[str, object]) -> int:
        """Return the exit code of a command; minus the signal if one ended it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._turn:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())


@lru_cache(maxsize=1)
def _helper() -> _Helper:
    return _Helper()


def run_thence(
    *arguments: str | Path,
    env: Mapping[str, str] | None = None,
    cwd: str | Path = "/",
    path: Sequence[str | Path] = (),
) -> subprocess.CompletedProcess[str]:
    """Run `thence …` in a process of its own; `path` comes first where modules are looked for."""
    command = ["thence", *map(str, arguments)]
    with tempfile.TemporaryDirectory(prefix="thence-run-") as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        request = {
            "argv": command,
            "env": dict(os.environ if env is None else env),
            "cwd": str(cwd),
            "path": [str(part) for part in path],
            "out": str(out),
            "err": str(err),
        }
        code = _helper().run(request)
        return subprocess.CompletedProcess(
            command,
            code,
            out.read_text(encoding="utf-8", errors="replace"),
            err.read_text(encoding="utf-8", errors="replace"),
        )


# -- the helper process ---------------------------------------------------------------------


def _serve() -> None:
    import importlib

    for name in PRELOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _become(json.loads(line))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _become(request: Mapping[str, object]) -> None:
    """Turn into the command; never returns."""
    code = 1
    try:
        for number, name in ((1, "out"), (2, "err")):
            opened = os.open(str(request[name]), os.O_WRONLY | os.O_CREAT, 0o600)
            os.dup2(opened, number)
            os.close(opened)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.environ.clear()
        os.environ.update(request["env"])  # type: ignore[call-overload]
        os.chdir(str(request["cwd"]))
        sys.path[:0] = request["path"]  # type: ignore[assignment]
        sys.argv = list(request["argv"])  # type: ignore[call-overload]
        code = _run()
    except BaseException:  # noqa: BLE001 - whatever it is, this process ends here
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run() -> int:
    import time

    from thence.cli import main

    time.tzset()
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    try:
        main()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        sys.stderr.write(f"{ended.code}\n")
        return 1
    return 0


if __name__ == "__main__":
    _serve()
