"""Random histories and, beside each, the truth about it kept by plain lists.

`History` writes a session as harnesses do (prompts, calls, parallel results, rewinds, branches,
compactions, kills) and knows at every step which events are on the line and which of them the
model sees, without a graph: it copies two lists. The product must come to the same answer.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from thence.format.records import Event
from thence.format.repair import synthetic
from thence.testing import Draft

Script = list[tuple[str, int, int]]

VERBS = (
    "prompt",
    "reply",
    "calls",
    "parallel",
    "rewind",
    "branch",
    "compact",
    "half_compact",
    "beside",
    "state",
    "kill_answer",
    "kill_drop",
)

scripts = st.lists(
    st.tuples(st.sampled_from(VERBS), st.integers(0, 2**16), st.integers(0, 2**16)),
    max_size=40,
)


class History:
    """A session being written, and what is true of it."""

    def __init__(self, script: Script, *, verbs: tuple[str, ...] = VERBS) -> None:
        self.draft = Draft("model")
        header = self.draft.header()
        self.line: list[str] = [header]
        self.seen: list[str] = []
        self.at: dict[str, tuple[list[str], list[str]]] = {header: ([header], [])}
        self.open: set[str] = set()
        self.unanswered: dict[str, str] = {}
        self.internal: set[str] = {header}
        self.responses = 0
        for verb, a, b in script:
            if verb in verbs:
                getattr(self, verb)(a, b)

    # -- verbs --------------------------------------------------------------------------

    def prompt(self, a: int, b: int) -> None:
        """The human says something."""
        self._grow(self.draft.prompt(f"prompt {len(self.draft.events)}"))

    def reply(self, a: int, b: int) -> None:
        """The model answers and rests."""
        self._grow(self.draft.reply(f"reply {len(self.draft.events)}"))

    def state(self, a: int, b: int) -> None:
        """The working directory changes."""
        self._grow(self.draft.add("cwd", {"cwd": f"/d{a % 5}"}))

    def beside(self, a: int, b: int) -> None:
        """Book-keeping hangs beside the line."""
        self.internal.add(self.draft.add("turn", {"state": "done"}, moves=False))

    def calls(self, a: int, b: int) -> None:
        """One event with one to three calls, answered one after the other."""
        names = self._names(1 + a % 3)
        self._grow(self.draft.reply("on it", *(Draft.call(n, "Bash", command="ls") for n in names)))
        for name in names if b % 2 else reversed(names):
            self._grow(self.draft.result(name, f"result of {name}"))

    def parallel(self, a: int, b: int) -> None:
        """One response as several events; each result hangs off its own call."""
        names = self._names(1 + a % 3)
        self.responses += 1
        events = []
        for name in names:
            block = Draft.call(name, "Bash", command="true")
            events.append(self.draft.reply(block, id=f"response_{self.responses}"))
            self._grow(events[-1])
        order = sorted(range(len(names)), key=lambda k: (b >> k) & 1)
        for k in order:
            result = self.draft.result(names[k], f"result of {names[k]}", parent=events[k])
            self._grow(result)

    def _names(self, number: int) -> list[str]:
        first = len(self.draft.events)
        return [f"call_{first}_{k}" for k in range(number)]

    def rewind(self, a: int, b: int) -> None:
        """The tip is moved back and the log says so."""
        to = self._somewhere(a)
        self.internal.add(self.draft.rewind(to))
        self._go(to)

    def branch(self, a: int, b: int) -> None:
        """A new prompt goes on from an earlier event; nothing says that the tip moved.

        Once a tip was moved, only moving it again leaves its line: then this is a rewind.
        """
        if any(event.type == "tip" for event in self.events):
            self.rewind(a, b)
        else:
            self._go(self._somewhere(a))
            self.draft.tip = self.line[-1]
        self.prompt(a, b)

    def compact(self, a: int, b: int) -> None:
        """A compaction, with or without events kept."""
        visible = [u for u in self.seen if u not in self.internal]
        starts = [k for k, u in enumerate(visible) if self._is_rest(u)]
        keep = visible[starts[a % len(starts)] :] if starts and b % 3 else []
        tail = keep[-1] if keep else None
        if tail is not None and self.line[-1] != tail:
            keep = []  # only what reaches the end of the line can be kept
        boundary = self.draft.compact(f"summary {a}", keep_from=keep[0] if keep else None)
        summary = self.draft.events[-2].uuid
        self.internal.add(boundary)
        self.line = [*self.line, summary, boundary]
        self.seen = [summary, *keep]
        self.at[boundary] = (list(self.line), list(self.seen))

    def half_compact(self, a: int, b: int) -> None:
        """Killed between the summary and its boundary."""
        tip = self.draft.tip
        self.draft.add("summary", {"role": "user", "content": "lost"})
        self.draft.tip = tip

    def kill_answer(self, a: int, b: int) -> None:
        """Killed with calls open; the next process answers them."""
        names = self._crash(1 + a % 2)
        for name in names:
            made = synthetic("model", name, ts=self.draft.ts, prev_uuid=self.draft.tip)
            self.draft.events.append(made)
            self.draft.tip = made.uuid
            self._grow(made.uuid)
            self.open.discard(self.unanswered.pop(name))

    def kill_drop(self, a: int, b: int) -> None:
        """Killed with calls open; the next process goes on from before them."""
        before = self.line[-1]
        self._crash(1 + a % 2)
        self._go(before)
        self.draft.tip = before
        self.prompt(a, b)

    def _crash(self, number: int) -> list[str]:
        names = self._names(number)
        reply = self.draft.reply(*(Draft.call(name, "Bash", command="x") for name in names))
        self._grow(reply)
        self.open.add(reply)
        self.unanswered |= dict.fromkeys(names, reply)
        return names

    # -- truth --------------------------------------------------------------------------

    def _grow(self, uuid: str) -> None:
        self.line = [*self.line, uuid]
        self.seen = [*self.seen, uuid]
        self.at[uuid] = (self.line, self.seen)

    def _go(self, to: str) -> None:
        self.line, self.seen = (list(part) for part in self.at[to])

    def _somewhere(self, a: int) -> str:
        """An event of the line to go back to, never into the middle of an exchange."""
        steps = [u for u in self.line if u in self.at and self._is_rest(u)]
        return steps[a % len(steps)] if steps else self.line[0]

    def _is_rest(self, uuid: str) -> bool:
        event = next(e for e in self.draft.events if e.uuid == uuid)
        content = event.fields.get("content")
        return event.type in ("user", "assistant", "boundary", "header", "summary") and (
            not isinstance(content, list) or all(b["type"] == "text" for b in content)
        )

    @property
    def events(self) -> list[Event]:
        """All events, in written order."""
        return self.draft.events

    def state_of(self, uuid: str) -> str:
        """The state an event must end in."""
        if uuid in self.internal:
            return "internal"
        if uuid not in self.line:
            return "dead"
        return "orphaned" if uuid in self.open else "live"

    def messages(self) -> list[dict[str, Any]]:
        """What the model saw last."""
        by_uuid = {event.uuid: event for event in self.events}
        return [
            {"role": by_uuid[u].fields["role"], "content": by_uuid[u].fields["content"]}
            for u in self.seen
            if by_uuid[u].type in ("user", "assistant", "summary")
        ]
