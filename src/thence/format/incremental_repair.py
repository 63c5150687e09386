"""A chain that grows, mended at the cost of what is new.

`repair.mend` goes over a whole list. `Mending` gives the same messages for a list that only gets
longer and keeps what cannot change any more: all that stands before an answer of the model, once
every call before it has its result. What speaks of something older (a late result, an id used
again, a further block of an earlier response) sends it back to the start. Invariants: the messages
are those of `repair.mend`; what is handed out is the caller's, and changes nothing here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from thence.format import content, repair
from thence.format.records import JSON, blocks, word
from thence.format.repair import ApiMessage, Mended, Orphans


class Mending:
    """Messages of one chain, and what of them is mended for good."""

    def __init__(self, orphans: Orphans = "answer") -> None:
        self._orphans = orphans
        self._messages: list[ApiMessage] = []
        self._places: dict[str, int] = {}  # where each id of a call was last spoken of
        self._open: Counter[str] = Counter()
        self._response = ""
        self._parts_answers = False  # what the user said since the last answer parts it from one
        self._forget()

    def _forget(self) -> None:
        self._done = Mended([], [], [])
        self._settled = 0  # messages that `_done` is made of
        self._cut = 0  # those that could be settled

    def __len__(self) -> int:
        """Return how many messages were added."""
        return len(self._messages)

    def add(self, messages: Iterable[ApiMessage]) -> None:
        """Take further messages of the chain."""
        for message in messages:
            self._look(message)
            self._messages.append(message)

    def _look(self, message: ApiMessage) -> None:
        """Find out whether all before a message can be settled, or no longer can."""
        at, role = len(self._messages), message.get("role")
        if role not in ("user", "assistant"):
            return
        response = word(message.get("id")) if role == "assistant" else ""
        again = bool(response) and response == self._response
        if role == "assistant" and self._parts_answers and not self._open and not again:
            self._cut = at
        body = message.get("content")
        self._parts_answers = role == "user" and (self._parts_answers or _says_something(body))
        for name, opened in _names(body, str(role)):
            self._parts_answers |= opened < 0 < self._open[name]
            before = self._places.get(name, at)
            if before < self._settled:
                self._forget()
            elif before < self._cut:
                self._cut = self._settled
            self._places[name] = at
            self._open[name] = max(0, self._open[name] + opened)
            if not self._open[name]:
                del self._open[name]
        self._response = response if role == "assistant" else self._response

    def mend(
        self, reasons: Mapping[str, str] | None = None, why: str = repair.INTERRUPTED
    ) -> Mended:
        """Return the chain so far as `repair.mend` gives it."""
        if self._cut > self._settled:
            part = repair.mend(self._messages[self._settled : self._cut], self._orphans)
            if part.renamed:  # new ids have to be told from those of the whole chain
                return repair.mend(self._messages, self._orphans, reasons, why)
            self._done = _join(self._done, part, self._done.messages)
            self._settled = self._cut
        rest = repair.mend(self._messages[self._settled :], self._orphans, reasons, why)
        if rest.renamed:
            return repair.mend(self._messages, self._orphans, reasons, why)
        return _join(self._done, rest, [_copy(message) for message in self._done.messages])


def _says_something(body: JSON) -> bool:
    """Return whether a message of the user is more than results: one without words is left out."""
    return any(
        content.accept(block, "user", {}) is not None
        for block in blocks(body)
        if block.get("type") not in ("tool_use", "tool_result")
    )


def _names(body: JSON, role: str) -> Iterator[tuple[str, int]]:
    """Yield the ids of calls in a message, and how many of each it opens or closes."""
    for block in blocks(body):
        kind = block.get("type")
        if kind == "tool_use":
            yield word(block.get("id")), 1 if role == "assistant" else 0
        elif kind == "tool_result":
            yield word(block.get("tool_use_id")), -1 if role == "user" else 0


def _join(first: Mended, then: Mended, messages: list[ApiMessage]) -> Mended:
    """Put two parts of a chain together, the messages of the second behind these."""
    opened = then.opened and not messages
    later = then.messages[1:] if then.opened and messages else then.messages
    if messages and later and messages[-1]["role"] == later[0]["role"]:
        messages[-1] = {**messages[-1], "content": [*messages[-1]["content"], *later[0]["content"]]}
        later = later[1:]
    messages += later
    reworded = dict(first.reworded)
    for what, number in then.reworded.items():
        reworded[what] = reworded.get(what, 0) + number
    return Mended(
        messages,
        [*first.open_calls, *then.open_calls],
        [*first.left_out, *then.left_out],
        first.opened or opened,
        [*first.renamed, *then.renamed],
        [*first.answered, *then.answered],
        reworded,
    )


def _copy(message: ApiMessage) -> ApiMessage:
    return {"role": message["role"], "content": list(map(dict.copy, message["content"]))}
