"""The process in which the agent of another package runs: asked by `guard`, it answers.

What that code does to its process (ends it, hangs, fills its memory, writes to its output) stays
here. Answers are plain values; the other side checks them. When nobody asks any more it ends.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import IO, Any

from thence import system
from thence.agents import Adapter
from thence.agents.handoffs import HandoffWriter
from thence.agents.package_protocol import Question, decode_question, encode, plain
from thence.agents.packages import reason_of
from thence.agents.profiles import Profile, object_at
from thence.agents.unread import Notes

MAX_MEMORY_BYTES = 2 << 30
MAX_ITEMS = 500_000
"""Sessions, prompts or running sessions that one question may give."""


class _Package:
    """What an entry point leads to."""

    def __init__(self) -> None:
        self._reader: Any = None

    def load(self, name: str, value: str, group: str) -> dict[str, Any]:
        """Import the package and make its reader; return what it says of itself.

        The entry point names a `Profile`, or, as in earlier versions, the class of a reader.
        """
        there = EntryPoint(name, value, group).load()
        is_profile = isinstance(there, Profile)
        made = (object_at(there.reader) if is_profile else there)()
        if not isinstance(made, Adapter) or not isinstance(made.name, str):
            raise TypeError("its reader lacks a method of the protocol; see docs/writing-agents.md")
        if is_profile and made.name != name:
            raise TypeError(f"its entry point is called {name}, its reader {made.name}")
        self._reader = made
        words = getattr(made, "looks_for", None)
        return {
            "name": made.name,
            "profile": there if is_profile else None,
            "looks_for": words if isinstance(words, str) else None,
        }

    def imports(self, name: str, value: str, group: str) -> dict[str, Any]:
        """Import what is no agent; there is nothing to say of it."""
        EntryPoint(name, value, group).load()
        return {}

    def ask(self, method: str, *arguments: Any) -> Any:
        """Return what a method of the reader gives."""
        if method == "sources_at":
            from thence.agents.row_sources import sources_at

            return sources_at(self._reader, *arguments)
        return getattr(self._reader, method)(*arguments)

    def describe(self, place: str) -> Any:
        """Return the plain fields of a writer of handoffs, and None for those that are called."""
        part = object_at(place)
        if not isinstance(part, HandoffWriter):
            return None
        fields = {name: getattr(part, name) for name in HandoffWriter.__struct_fields__}
        plain = {name: None if callable(value) else value for name, value in fields.items()}
        return plain, [name for name, value in fields.items() if callable(value)]

    def call(self, place: str, field: str, *arguments: Any) -> Any:
        """Return what a part gives: a function, or one that is a field of it."""
        part = object_at(place)
        return (getattr(part, field) if field else part)(*arguments)


def _items(values: Any, into: list[Any]) -> None:
    """Put what an iterator yields into a list; nothing of one that does not end."""
    for value in values:
        into.append(plain(value))
        if len(into) > MAX_ITEMS:
            into.clear()
            raise RuntimeError(f"it goes on after {MAX_ITEMS:,} items")


def _answer(package: _Package, question: Question) -> bytes:
    """Return an answer: the value or the items so far, why no more, and what is not read."""
    what, is_many, arguments = question
    value: Any = []
    why: str | None = None
    notes, noted = Notes(), []
    try:
        with notes.taken():
            result = getattr(package, what)(*arguments)
            if is_many:
                _items(result, value)
            else:
                value = plain(result)
        noted = plain(notes.unread)
    except BaseException as error:  # noqa: BLE001 - somebody else's code, which may do anything
        why = reason_of(error)
    try:
        return encode((value, why, noted))
    except (ValueError, RecursionError) as error:  # nested too deep, or a number too long
        return encode(([], reason_of(error), []))


def _questions(source: IO[bytes]) -> Iterator[Question]:
    """Yield questions as they come; ends the process, whatever it does, when nobody asks."""
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def listen() -> None:
        while len(head := source.read(8)) == 8:
            waiting.put(source.read(int.from_bytes(head, "little")))
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        yield decode_question(waiting.get())


def run() -> None:
    """Answer all questions. Nothing that the package prints gets among the answers."""
    source, out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
        for number, mode in enumerate(("r", "w", "w"))
    )
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asks is interrupted, and then ends this
    system.limit_memory(MAX_MEMORY_BYTES)
    package = _Package()
    for question in _questions(source):
        body = _answer(package, question)
        out.write(len(body).to_bytes(8, "little") + body)
        out.flush()
