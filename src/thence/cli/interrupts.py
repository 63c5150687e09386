"""Ctrl-C in commands that start processes of their own."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C stop this process only: what it started is ended by it, without a word."""
    if not hasattr(signal, "SIGINT"):
        yield
        return
    here = os.getpid()

    def stop(_number: int, _frame: object) -> None:
        if os.getpid() == here:
            raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGINT, stop)
    except ValueError:  # not in the main thread: who runs us handles signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
