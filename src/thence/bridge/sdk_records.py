"""Records of another SDK beside what a reader is shown of them, without keeping long texts twice.

An event shows a record in our own words: roles, texts, calls, results. The SDK wants its record
back as it was, every field of it. So the original is kept as well, `folded`: a long text that
stands in what is shown is named by its number there. Invariants: unfolding gives a value equal to
the original, whatever it holds; what was folded against other words than those at hand gives
nothing, never a wrong text; walks are iterative.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import msgspec

from thence.bridge.worker import Worker
from thence.errors import MissingPackage, ThenceError
from thence.format import codec
from thence.format.records import JSON, Event
from thence.journal import Journal
from thence.journal.batches import MARK, Batches

LONG = 48
"""Characters from which a text is named rather than kept twice."""

_TEXT = "="
"""The only key of an object that stands for a text."""


class NotPlain(ThenceError, TypeError):
    """A record that JSON has no words for; a `TypeError` too, as the SDKs' own stores raise."""


class MissingSdk(MissingPackage, ModuleNotFoundError):
    """The SDK of a bridge is not installed; a `ModuleNotFoundError` too, as an import raises."""


@contextmanager
def importing(package: str, *, extra: str) -> Iterator[None]:
    """Raise MissingSdk, with the command that installs the extra, where an import fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingSdk("this bridge", package, extra=extra) from error


def session_name(bridge: str, scope: str, name: str) -> str:
    """Return the id of the session that keeps a list: its own id if it is a uuid, else a hash.

    A uuid names one thing in the world; any other word may be two things in two SDKs.
    """
    try:
        own = str(UUID(name))
    except ValueError:
        own = ""
    if own == name:
        return name
    text = f"thence\0{bridge}\0{scope}\0{name}"
    return str(uuid5(NAMESPACE_URL, text.encode("utf-8", "backslashreplace").decode()))


def open_batches(
    journal: Journal, bridge: str, session: str, cwd: Path | str | None, *, name: str
) -> Batches:
    """Open the session that keeps what the SDK calls by a name."""
    project = None if cwd is None else str(cwd)
    return journal.batches(session, project=project, cwd=cwd, bridge=bridge, name=name)


class AwaitedBatches:
    """What the SDKs' sessions share: to write to the disk, and to end."""

    _batches: Batches
    _worker: Worker

    async def flush(self) -> None:
        """Return when everything added so far is on the disk itself."""
        await self._worker.run(self._batches.sync)

    async def aclose(self) -> None:
        """End cleanly; the session can be used again."""
        await self._worker.run(self._batches.close)

    def close(self) -> None:
        """The same for code without an event loop."""
        self._batches.close()


def plain(value: Any) -> JSON:
    """Copy a value as JSON has it, so that what its owner does to it later does not show."""
    try:
        written = codec.dump(value)
    except (TypeError, ValueError) as error:
        raise NotPlain(f"not a JSON value: {error}", hint="give plain data") from error
    return read(written)


def read(written: bytes) -> JSON:
    """Return the value that `codec.dump` wrote."""
    try:
        return msgspec.json.decode(written)
    except ValueError:  # a lone surrogate or a number out of range: ours all the same
        record: Any = next(iter(codec.objects(b'{"value":' + written + b"}\n")))
        return record.value["value"]


def mark_of(event: Event, bridge: str) -> dict[str, JSON] | None:
    """Return what a bridge noted in an event; None when the event is not one of its own."""
    mark = event.fields.get(MARK)
    return mark if isinstance(mark, dict) and mark.get("is") == bridge else None


def shown_in(event: Event) -> dict[str, JSON]:
    """Return what an event shows in our own words."""
    return {name: value for name, value in event.fields.items() if name != MARK}


def fold(original: JSON, shown: JSON) -> JSON:
    """Return an original with the long texts that are shown as well left out.

    One that has none of them, or words that could be taken for ours, is given whole, in a list.
    """
    numbers = {text: number for number, text in reversed(list(enumerate(_long(shown))))}
    if not numbers or not isinstance(original, dict):
        return [original]
    out: list[JSON] = [original]
    todo: list[tuple[Any, Any]] = [(out, 0)]
    while todo:
        into, at = todo.pop()
        value = into[at]
        if isinstance(value, str) and value in numbers:
            into[at] = {_TEXT: numbers[value]}
        elif isinstance(value, dict):
            if value.keys() == {_TEXT}:  # would be taken for a name
                return [original]
            into[at] = dict(value)
            todo += [(into[at], name) for name in into[at]]
        elif isinstance(value, list):
            into[at] = list(value)
            todo += [(into[at], place) for place in range(len(value))]
    return out[0]


def unfold(folded: JSON, shown: JSON) -> JSON:
    """Return the original back; None when it does not belong to what is shown."""
    if isinstance(folded, list):
        return folded[0] if len(folded) == 1 else None
    texts = list(_long(shown))
    out: list[JSON] = [folded]
    todo: list[tuple[Any, Any]] = [(out, 0)]
    while todo:
        into, at = todo.pop()
        value = into[at]
        if isinstance(value, dict) and value.keys() == {_TEXT}:
            number = value[_TEXT]
            if type(number) is not int or not 0 <= number < len(texts):
                return None
            into[at] = texts[number]
        elif isinstance(value, dict):
            todo += [(value, name) for name in value]
        elif isinstance(value, list):
            todo += [(value, place) for place in range(len(value))]
    return out[0]


def _long(value: JSON) -> Iterator[str]:
    """All long texts in a value, in one order."""
    todo = [value]
    while todo:
        part = todo.pop()
        if isinstance(part, str):
            if len(part) >= LONG:
                yield part
        elif isinstance(part, dict):
            todo += part.values()
        elif isinstance(part, list):
            todo += part
