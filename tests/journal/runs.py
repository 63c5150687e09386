"""Random runs of the journal on real files and, beside each, the truth kept by plain lists.

`Run` drives sessions as harnesses do: it records, rewinds, branches, compacts, is killed in the
middle of a line, resumes in every mode, forks, closes. At every step it knows which events are on
the line and which of them the model sees, without a graph: it copies two lists. After every step
it also holds that no file of a session got shorter or changed one of its earlier bytes.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st

from thence.format import codec, repair
from thence.format.records import MESSAGES, Event, blocks
from thence.format.state import Domains
from thence.journal.journal import Journal
from thence.journal.segmented_log import MAX_SEGMENT_BYTES
from thence.journal.session import Session

Script = list[tuple[str, int, int]]

TALK = ("prompt", "reply", "calls", "open_call", "state", "beside")
MOVES = ("rewind", "rewind_above", "branch", "compact")
ENDS = ("kill", "close")
VERBS = (*TALK, *MOVES, *ENDS, "fork")


def drawn(seed: int) -> Script:
    """A long script by chance: hypothesis by itself likes short ones."""
    chance = Random(seed)
    length = chance.randrange(5, 35)
    return [
        (chance.choice(VERBS), chance.randrange(2**16), chance.randrange(2**16))
        for _ in range(length)
    ]


scripts = st.one_of(
    st.integers(0, 2**32).map(drawn),
    st.lists(
        st.tuples(st.sampled_from(VERBS), st.integers(0, 2**16), st.integers(0, 2**16)), max_size=30
    ),
)

TORN = (
    b"",
    b"{",
    b'{"type":"user","ts":"2031-01-01T00:00:00.000Z","uuid":"torn","prev_uuid":nu',
    b'{"type":"user","ts":"2031-01-01T00:00:00.000Z","uuid":"to\xff\xfe',
    b"\x00\x00\x00",
)


def snapshot(root: Path) -> dict[Path, bytes]:
    """All bytes of all session files under a folder."""
    return {path: path.read_bytes() for path in sorted(root.rglob("*.jsonl"))}


def drop(session: Session) -> None:
    """Kill: the object goes without a word; the system closes its handle."""
    if session._log is not None and session._log._handle >= 0:
        os.close(session._log._handle)
        session._log._handle = -1
        session._log._closed = True


class Run:
    """Sessions being used, and what is true of the one in hand."""

    def __init__(self, root: Path, script: Script, *, max_bytes: int = MAX_SEGMENT_BYTES) -> None:
        self.root = root
        self.session: Session
        self.journal = Journal(root, durability="none", max_bytes=max_bytes)
        self.line: list[Event] = []
        self.seen: list[Event] = []
        self.logged: tuple[list[Event], list[Event]] = ([], [])
        self.at: dict[str, tuple[list[Event], list[Event]]] = {}
        self.owner: dict[str, str] = {}
        self.files: dict[Path, bytes] = {}
        self.orphans: repair.Orphans = "answer"
        self.ended: dict[str, str] = {}
        self.steps = 0
        with patch("thence.journal.log.sync_folder"):  # thousands of runs; no power cut among them
            self._began(self.journal.create(cwd="/home/dev/tidepool", model="m1"))
            for verb, a, b in script:
                self.steps += 1
                getattr(self, verb)(a, b)
                self.check()

    # -- talk ---------------------------------------------------------------------------

    def prompt(self, a: int, b: int) -> None:
        """The human says something."""
        self._say("user", {"role": "user", "content": f"prompt {self.steps}"})

    def reply(self, a: int, b: int) -> None:
        """The model answers and rests."""
        text = {"type": "text", "text": f"reply {self.steps}"}
        usage = {"input_tokens": 10, "output_tokens": a % 7}
        self._say("assistant", {"role": "assistant", "content": [text], "usage": usage})

    def calls(self, a: int, b: int) -> None:
        """One to three calls, all answered."""
        self._exchange(1 + a % 3, 1 + a % 3)

    def open_call(self, a: int, b: int) -> None:
        """One to three calls, of which at least one is never answered."""
        self._exchange(1 + a % 3, b % (1 + a % 3))

    def _exchange(self, number: int, answered: int) -> None:
        names = [f"call_{self.steps}_{k}" for k in range(number)]
        asked: list[dict[str, Any]] = [
            {"type": "tool_use", "id": n, "name": "Edit", "input": {"file_path": f"{n}.py"}}
            for n in names
        ]
        self._say("assistant", {"role": "assistant", "content": asked, "stop_reason": "tool_use"})
        for name in names[:answered]:
            result = {"type": "tool_result", "tool_use_id": name, "content": f"of {name}"}
            self._say("user", {"role": "user", "content": [result]})

    def state(self, a: int, b: int) -> None:
        """A domain other than the messages changes."""
        kind, payload = (
            ("cwd", {"cwd": f"/d{b % 5}"}),
            ("todos", {"todos": [{"content": f"todo {b % 5}"}]}),
            ("model", {"model": f"m{b % 5}", "overrides": {"effort": b % 3}}),
            ("worktree", {"branch": f"b{b % 5}"}),
            ("file", {"path": f"f{b % 5}.py", "how": "edit"}),
        )[a % 5]
        self._say(kind, payload)

    def beside(self, a: int, b: int) -> None:
        """Book-keeping hangs beside the line: nothing of it moves the tip."""
        if a % 3 == 0:
            self.session.flush()
        else:
            kind = ("permission_granted", "waiting")[a % 2]
            self.session.record(kind, {"rule": "Bash(*)"} if a % 2 == 0 else {})

    # -- the line -----------------------------------------------------------------------

    def rewind(self, a: int, b: int) -> None:
        """The tip is moved back and the log says so."""
        to = self._somewhere(a)
        self.session.rewind(to)
        self._go(to)
        self.logged = (self.line, self.seen)

    def rewind_above(self, a: int, b: int) -> None:
        """The tip is moved back to what one of the ancestors said, if there is one."""
        others = [e.uuid for e in self.line if self.owner.get(e.uuid) != self.session.id]
        rests = [u for u in others if u in self.at and _is_rest(*self._last_at(u))]
        if not rests:
            return
        to = rests[a % len(rests)]
        receipt = self.session.rewind(to)
        self._go(to)
        self._kept_all(receipt.uuid)

    def _last_at(self, uuid: str) -> tuple[Event, list[Event]]:
        line, seen = self.at[uuid]
        return line[-1], seen

    def _kept_all(self, boundary: str) -> None:
        """The session wrote a boundary of its own that keeps everything."""
        first = self.session._chain[0]
        summary = Event("summary", "", first.uuid, None, {"role": "user", "content": ""})
        self.line = [*self.line, summary, Event("boundary", "", boundary, None, {})]
        self.seen = [summary, *self.seen]
        self._stands(self.line[-1])

    def branch(self, a: int, b: int) -> None:
        """A new prompt goes on from an earlier event."""
        to = self._somewhere(a)
        self._go(to)
        self._say("user", {"role": "user", "content": f"branch {self.steps}"}, parent=to)

    def compact(self, a: int, b: int) -> None:
        """A compaction, with or without events kept."""
        starts = [k for k, e in enumerate(self.seen) if e.type != "summary" and _is_rest(e)]
        remaining = self.seen[starts[a % len(starts)] :] if starts and b % 3 else []
        text = f"summary {self.steps}"
        receipt = self.session.compact(text, keep_from=remaining[0].uuid if remaining else None)
        chain = self.session._chain
        summary = Event("summary", "", chain[0].uuid, None, {"role": "user", "content": text})
        boundary = Event("boundary", "", receipt.uuid, None, {})
        self.line = [*self.line, summary, boundary]
        self.seen = [summary, *remaining]
        self._stands(boundary)

    # -- ends and beginnings ------------------------------------------------------------

    def close(self, a: int, b: int) -> None:
        """A clean end, then a new beginning."""
        self.session.close("idle" if a % 2 else "closed")
        self._resume(a, b)

    def kill(self, a: int, b: int) -> None:
        """The process dies, perhaps in the middle of a line or of a compaction."""
        path = self.session.transcript_path
        assert path is not None
        tip = self.session.tip
        drop(self.session)
        with path.open("ab") as file:
            if a % 7 == 0:
                half = Event(
                    "summary", "", f"half {self.steps}", tip, {"role": "user", "content": "x"}
                )
                file.write(codec.encode(half))
            file.write(TORN[b % len(TORN)])
        self.files = snapshot(self.root)
        self._resume(a // 7, b // 7)

    def fork(self, a: int, b: int) -> None:
        """A new session from any event at which nothing is open, the old one left running."""
        targets = [u for u, (line, seen) in self.at.items() if _is_rest(line[-1], seen)]
        to = targets[a % len(targets)]
        before = snapshot(self.root)
        drop(self.session)
        self.line, self.seen = self.at[to]
        self._began(self.journal.fork(self.owner[to], at=to))

        assert before == {p: d for p, d in snapshot(self.root).items() if p in before}

    def _resume(self, a: int, b: int) -> None:
        orphans: repair.Orphans = ("answer", "drop", "mark")[a % 3]
        name, before = self.session.id, snapshot(self.root)
        self.line, self.seen = self.logged
        if orphans == "drop":
            self._drop()
        if b % 2:
            self.orphans = orphans
            self.session = self.journal.resume(name, mode="continue", orphans=orphans)
            self.ended = dict.fromkeys(open_calls(self.seen), repair.INTERRUPTED)
            self._answered()
            return
        self._began(self.journal.resume(name[:30], orphans=orphans), orphans)

        assert before == {p: d for p, d in snapshot(self.root).items() if p in before}

    def _began(self, session: Session, orphans: repair.Orphans = "answer") -> None:
        """A new session is in hand: its header is on the line."""
        self.session, self.orphans = session, orphans
        self.ended = dict.fromkeys(open_calls(self.seen), repair.INTERRUPTED)
        assert session.tip is not None  # a fork takes over when it is first asked for something
        assert session.transcript_path is not None
        header = codec.decode(session.transcript_path.read_bytes()).events[0]
        self.line = [*self.line, header]
        self._stands(header)
        self._answered()
        chain = session._chain
        if chain and chain[0].type == "summary" and chain[0].uuid not in self.at_summaries():
            self._kept_all(session.tip)  # deep ancestry

    def at_summaries(self) -> set[str]:
        """Summaries that the run knows of."""
        return {event.uuid for event in self.seen if event.type == "summary"}

    def _answered(self) -> None:
        """Calls that a crash left open are answered by appending, unless we asked otherwise."""
        if self.orphans != "answer":
            return
        for call in open_calls(self.seen):
            made = repair.synthetic(self.session.id, call, ts="", prev_uuid=None)
            if made.uuid not in self.at:  # else it stands on a branch that was left; one is enough
                self._grow(made)

    def _drop(self) -> None:
        """Go back to before the exchange that a crash left open in this very session."""
        still = set(open_calls(self.seen))
        cut = len(self.line)
        for k in range(len(self.line) - 1, -1, -1):
            event = self.line[k]
            if any(b.get("id") in still for b in blocks(event.fields.get("content"))):
                cut = k
            elif _is_rest(event):
                break
        if cut < len(self.line):
            self._go(self.line[cut - 1].uuid)

    # -- truth --------------------------------------------------------------------------

    def _say(self, kind: str, payload: dict[str, Any], **how: Any) -> None:
        receipt = self.session.record(kind, payload, **how)
        self._grow(Event(kind, "", receipt.uuid, None, payload))

    def _grow(self, event: Event) -> None:
        self.line = [*self.line, event]
        if event.type in MESSAGES:
            self.seen = [*self.seen, event]
        self._stands(event)

    def _stands(self, event: Event) -> None:
        self.at[event.uuid] = self.logged = (self.line, self.seen)
        self.owner[event.uuid] = self.session.id

    def _go(self, to: str) -> None:
        self.line, self.seen = self.at[to]

    def _somewhere(self, a: int) -> str:
        """An event of the line in this very session, never in the middle of an exchange."""
        own = [e for e in self.line if self.owner.get(e.uuid) == self.session.id]
        rests = [e.uuid for e in own if e.uuid in self.at and _is_rest(e, self.at[e.uuid][1])]
        return rests[a % len(rests)] if rests else own[0].uuid

    def check(self) -> None:
        """The session in hand says what is true, and no file lost a byte."""
        after = snapshot(self.root)
        messages = [{"role": e.fields["role"], "content": e.fields["content"]} for e in self.seen]
        began = [e for e in self.line[:1] if e.type == "header"]
        state = Domains().fold([*began, *(e for e in self.line if e.type != "header")], [])
        state.values.pop("messages")

        assert [e.uuid for e in self.seen] == [e.uuid for e in self.session._chain]
        mended = repair.mend(messages, self.orphans, self.ended, repair.NO_RESULT_YET)
        assert mended.messages == self.session.messages
        assert [] == repair.problems(self.session.messages)
        assert state.values == self.session.state.values
        assert {} == self.session.state.failed
        assert 0 == len(self.session.permissions)
        assert all(after[path].startswith(before) for path, before in self.files.items())
        self.files = after


def open_calls(seen: list[Event]) -> list[str]:
    """Calls that nothing in a list of messages answers, in order."""
    asked = [b for e in seen for b in blocks(e.fields["content"]) if b["type"] == "tool_use"]
    answered = {b.get("tool_use_id") for e in seen for b in blocks(e.fields["content"])}
    return [b["id"] for b in asked if b["id"] not in answered]


def _is_rest(event: Event, seen: list[Event] | None = None) -> bool:
    """Whether no exchange leads through an event and nothing that was seen at it is open."""
    if seen and open_calls(seen):
        return False
    content = event.fields.get("content")
    return event.type in ("user", "assistant", "boundary", "header") and (
        not isinstance(content, list) or all(b["type"] == "text" for b in content)
    )
