"""Processes to kill, forked from one that has imported everything: milliseconds instead of tenths.

`Warm` starts the parent; what it forks runs one function of this folder with plain arguments.
The parent runs this file: a line of JSON in, a process id or a wait status out.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
_ANY_TRACER = 0x59616D61, -1  # PR_SET_PTRACER, PR_SET_PTRACER_ANY
_PDEATHSIG = 1  # PR_SET_PDEATHSIG


class Child:
    """A process that the warm parent forked."""

    def __init__(self, parent: Warm, pid: int) -> None:
        self.pid = pid
        self._parent = parent
        self._ended: int | None = None

    def kill(self) -> None:
        """Kill it; its process id is not reused before `wait`."""
        if self._ended is None:
            os.kill(self.pid, signal.SIGKILL)

    def poll(self) -> int | None:
        """Return its exit code, or None while it runs."""
        if self._ended is None:
            self._ended = self._parent.ask(["poll", self.pid])
        return self._ended

    def wait(self) -> int:
        """Wait for its end, and return its exit code; negative for a signal."""
        if self._ended is None:
            self._ended = self._parent.ask(["wait", self.pid])
        return self._ended or 0


class Warm:
    """The parent process, which forks others without delay."""

    def __init__(self, *modules: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            text=True,
        )

    def ask(self, request: list[Any]) -> int | None:
        """Send a request to the parent, and return its answer."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the warm parent has no pipes")
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return answer if isinstance(answer, int) else None

    def start(self, function: Callable[..., None], *arguments: str | int) -> Child:
        """Run a function of a module in a process of its own."""
        pid = self.ask(["start", function.__module__, function.__qualname__, list(arguments)])
        return Child(self, pid or 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()


# -- the parent -----------------------------------------------------------------------------


def serve() -> None:
    """Fork on request until stdin is closed."""
    for name in sys.argv[1:]:
        importlib.import_module(name)
    for line in sys.stdin:
        verb, *arguments = json.loads(line)
        answer = _start(*arguments) if verb == "start" else _exit_code(arguments[0], verb == "wait")
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def end_with_parent(known: int | None = None) -> None:
    """Have this process killed when the one that started it ends, however that ends.

    Otherwise a writer whose test was killed would write on, until there is no memory left.
    """
    parent = known or os.getppid()
    with contextlib.suppress(OSError, AttributeError):  # Linux only
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _start(module: str, function: str, arguments: list[Any]) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 70
    end_with_parent(parent)  # which may have ended by now
    try:
        with contextlib.suppress(OSError):  # where tracing is for descendants only, let strace in
            ctypes.CDLL(None).prctl(_ANY_TRACER[0], ctypes.c_ulong(_ANY_TRACER[1]), 0, 0, 0)
        os.close(0)
        getattr(importlib.import_module(module), function)(*arguments)
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:  # noqa: BLE001 - the end of a process: told by its exit code
        traceback.print_exc()
        sys.stderr.flush()  # what it says may go to a file
    finally:
        os._exit(code)


def _exit_code(pid: int, wait: bool) -> int | None:
    done, status = os.waitpid(pid, 0 if wait else os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if done else None


if __name__ == "__main__":
    serve()
