"""Ctrl-C and SIGTERM in commands that start processes of their own."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence


@contextlib.contextmanager
def handling(
    numbers: Sequence[signal.Signals], handler: Callable[[int, object], None]
) -> Iterator[None]:
    """Handle signals while this lasts; not in other threads, where who runs us handles them."""
    try:
        before = [(number, signal.signal(number, handler)) for number in numbers]
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        for number, previous in before:
            signal.signal(number, previous)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM stop this process: what it started is ended by it, without a word."""
    here = os.getpid()

    def stop(number: int, _frame: object) -> None:
        if os.getpid() == here:
            raise KeyboardInterrupt
        if number == signal.SIGTERM:  # sent by this process: Ctrl-C reaches all of them
            os._exit(128 + number)

    with handling([signal.SIGINT, signal.SIGTERM], stop):
        yield
