"""A terminal for the clients' own interface: it shows, it answers what is asked of it, it is typed.

`converse` runs a command line on a pseudo-terminal. It waits until a text stands on the screen,
types a line, waits until the answer stands there too, and closes the terminal. Escape sequences
are not drawn: a text counts as shown when its letters come in this order.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path

SIZE = struct.pack("HHHH", 50, 160, 0, 0)
"""Rows and columns, then pixels, which nobody asks for."""
QUIET_S = 3.0
"""A screen that has been still for so long waits for a key."""
LIMIT_S = 120
"""How long a text may take to appear; only a client that fails takes so long."""

_ESCAPES = re.compile(
    rb"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[P_^][^\x1b]*\x1b\\|\x1b\[[0-?]*[ -/]*[@-~]|\x1b."
)
_QUESTIONS = {
    re.compile(rb"\x1b\[6n"): b"\x1b[1;1R",
    re.compile(rb"\x1b\[0?c"): b"\x1b[?62;22c",
    re.compile(rb"\x1b\]1[01];\?(?:\x07|\x1b\\)"): b"",
}
"""What programs ask a terminal for before they draw: the cursor's place, its abilities."""


class _Screen:
    """One terminal and the program that runs on it."""

    def __init__(self, line: str, cwd: Path, env: dict[str, str], prepare: Callable[[], None]):
        self.master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, SIZE)
        self.seen = b""
        self._answered = 0

        def start() -> None:
            prepare()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.program = subprocess.Popen(
            ["/bin/sh", "-c", line],
            cwd=cwd,
            env=env,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=start,  # noqa: PLW1509 - nobody else forks here
        )
        os.close(slave)

    def press(self, keys: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self.master, keys.encode())

    def has(self, text: str, since: int = 0) -> bool:
        shown = _ESCAPES.sub(b"", self.seen[since:]).decode("utf-8", "replace")
        return "".join(text.split()) in "".join(shown.split())

    def read(self) -> bool:
        """Take what is shown within a moment; false when nothing was, or the program has ended."""
        ready, _, _ = select.select([self.master], [], [], 0.2)
        if not ready:
            return False
        try:
            self.seen += os.read(self.master, 1 << 16)
        except OSError:
            return False
        for question, answer in _QUESTIONS.items():
            for _ in question.finditer(self.seen, self._answered):
                self.press(answer.decode())
        self._answered = max(self._answered, self.seen.rfind(b"\x1b", 0, -16))
        return True

    def wait(self, text: str, since: int = 0) -> bool:
        """Wait for a text; Enter takes the choice that a dialog in between proposes."""
        until, still = time.monotonic() + LIMIT_S, time.monotonic()
        while time.monotonic() < until:
            if self.has(text, since):
                return True
            if self.read():
                still = time.monotonic()
            elif self.program.poll() is not None:
                return self.has(text, since)
            elif time.monotonic() - still > QUIET_S:
                self.press("\r")
                still = time.monotonic()
        return False

    def rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.read()

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.program.pid, signal.SIGTERM)
        self.rest(1)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.program.pid, signal.SIGKILL)
        os.close(self.master)
        self.program.wait()


def converse(  # noqa: PLR0917 - a program, and what is said to it
    line: str,
    cwd: Path,
    env: dict[str, str],
    prepare: Callable[[], None],
    shown: str,
    typed: str,
    answer: str,
) -> dict[str, object]:
    """Run a command line, type a text when another is shown; return what was reached and seen."""
    screen = _Screen(line, cwd, env, prepare)
    try:
        if reached := screen.wait(shown):
            screen.rest(QUIET_S)
            since = len(screen.seen)
            screen.press(typed)
            screen.rest(1)  # else Enter is taken for part of what was pasted
            screen.press("\r")
            reached = screen.wait(answer, since)
    finally:
        screen.close()
    text = _ESCAPES.sub(b"", screen.seen).decode("utf-8", "replace")
    return {"code": 0 if reached else screen.program.returncode or 1, "out": text, "err": ""}
