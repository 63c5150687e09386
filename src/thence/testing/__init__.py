"""For tests, ours and other people's: sessions made up on purpose.

`Draft` writes a session event by event with ids and times that are always the same, so that two
runs give the same bytes. `sample` is the session that ships with thence: it holds one of
everything a log can hold (a rewind, parallel calls, a compaction, a subagent, a crash).

`CrashSuite` kills, cuts and crowds any store of events; `AgentSuite` puts any agent's reader
through what logs do (grow, tear, move, lie), and tries whatever else the agent offers.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import NAMESPACE_URL, uuid5

from thence.format import codec, schema
from thence.format.records import JSON, Event
from thence.format.repair import Block
from thence.testing.crashes import SAMPLE_SESSION, CrashReport, CrashSuite, JournalSubject
from thence.testing.readers import AdapterSuite, AgentSuite

__all__ = [
    "SAMPLE_SESSION",
    "AdapterSuite",
    "AgentSuite",
    "CrashReport",
    "CrashSuite",
    "Draft",
    "JournalSubject",
    "sample",
]


class Draft:
    """A session being made up. Every verb appends one event and gives its uuid."""

    def __init__(
        self, session: str = SAMPLE_SESSION, *, start: str = "2026-11-15T13:12:00Z"
    ) -> None:
        self.session = session
        self.events: list[Event] = []
        self.tip: str | None = None
        self._now = datetime.fromisoformat(start).astimezone(UTC)

    def add(
        self, kind: str, payload: JSON, *, parent: str | None = None, moves: bool = True
    ) -> str:
        """Append any event. One that does not move the tip hangs beside the line."""
        uuid = str(uuid5(NAMESPACE_URL, f"{self.session}/{len(self.events)}"))
        prev = self.tip if parent is None else parent
        self.events.append(Event(kind, self.ts, uuid, prev, payload))
        if moves:
            self.tip = uuid
        return uuid

    @property
    def ts(self) -> str:
        """The draft's own clock; `wait` moves it."""
        return self._now.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self._now += timedelta(seconds=seconds)

    def header(self, **fields: JSON) -> str:
        """Begin."""
        known = {
            "session_id": self.session,
            "start_ts": self.ts,
            "resumed_from": None,
            "schema_version": schema.CURRENT,
            "cwd": "/home/dev/tidepool",
            "model": "claude-opus-5-5",
            "inherited_cost": 0.0,
        }
        return self.add("header", known | fields)

    def prompt(self, text: str, *, parent: str | None = None) -> str:
        """The human says something."""
        self.wait(40)
        return self.add("user", {"role": "user", "content": text}, parent=parent)

    def reply(
        self, *parts: str | Block, usage: tuple[int, int] = (1200, 80), **fields: JSON
    ) -> str:
        """The model answers: texts and `call` blocks."""
        self.wait(6)
        content = [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts]
        calls = any(block["type"] == "tool_use" for block in content)
        payload = {
            "role": "assistant",
            "content": content,
            "id": f"msg_{len(self.events):04d}",
            "model": "claude-opus-5-5",
            "stop_reason": "tool_use" if calls else "end_turn",
            "usage": {"input_tokens": usage[0], "output_tokens": usage[1]},
        }
        return self.add("assistant", payload | fields)

    @staticmethod
    def call(call: str, name: str, **arguments: JSON) -> Block:
        """Return a tool call for `reply`."""
        return {"type": "tool_use", "id": call, "name": name, "input": arguments}

    def result(
        self, call: str, text: str, *, failed: bool = False, parent: str | None = None
    ) -> str:
        """A tool answers."""
        self.wait(2)
        block: Block = {"type": "tool_result", "tool_use_id": call, "content": text}
        if failed:
            block["is_error"] = True
        return self.add("user", {"role": "user", "content": [block]}, parent=parent)

    def rewind(self, to: str) -> str:
        """Move the tip back; what was said since is a dead branch."""
        self.wait(90)
        moved = self.add("tip", {"to": to}, parent=to, moves=False)
        self.tip = to
        return moved

    def compact(self, summary: str, *, keep_from: str | None = None) -> str:
        """Write the summary, then the boundary that commits it."""
        tail = self.tip
        anchor = self.add("summary", {"role": "user", "content": summary})
        ends = {"head_uuid": keep_from, "tail_uuid": tail} if keep_from else {}
        payload = {"head_uuid": None, "tail_uuid": None, **ends, "anchor_uuid": anchor}
        return self.add("boundary", {**payload, "summary_event_uuid": anchor})

    def close(self, reason: str = "closed") -> str:
        """End cleanly."""
        return self.add("terminator", {"end_ts": self.ts, "reason": reason}, moves=False)

    def lines(self) -> list[bytes]:
        """The session's lines."""
        return [codec.encode(event) for event in self.events]

    def bytes(self) -> bytes:
        """The session's bytes."""
        return b"".join(self.lines())


def sample() -> bytes:
    """Return the session that ships with thence."""
    draft = Draft()
    draft.header()
    draft.prompt(
        "The hourly tide table for Europe/Lisbon loses 02:00 to 03:00 on 29 March. "
        "Find out why, fix it, and keep the shape of the API as it is."
    )
    draft.reply(
        "Two places walk the hours. I will look at both before I change one.",
        draft.call("toolu_grep", "Grep", pattern="local_hours\\(", path="tidepool"),
        draft.call("toolu_read", "Read", file_path="tidepool/windows.py"),
    )
    draft.result("toolu_read", "at = datetime.combine(day, time.min, tzinfo=zone)")
    draft.result("toolu_grep", "windows.py:52\nfeed.py:17\nalerts.py:88")
    answer = draft.reply("The windows walk local wall-clock time; in spring one hour is skipped.")
    draft.prompt("try it with fold=1 then")
    draft.reply(
        "I will add the missing hour after the loop when the day has 23 hours.",
        draft.call(
            "toolu_dead", "Edit", file_path="tidepool/windows.py", old_string="a", new_string="b"
        ),
    )
    draft.result("toolu_dead", "1 replacement")
    draft.reply("Added the hour after the loop.")
    draft.rewind(answer)
    ask = draft.prompt(
        "No. Do not patch the gap afterwards. Cut the windows in UTC and use local time only "
        "for the label."
    )
    draft.reply(
        draft.call(
            "toolu_edit",
            "Edit",
            file_path="tidepool/windows.py",
            old_string="tzinfo=zone)",
            new_string="tzinfo=zone).astimezone(UTC)",
        )
    )
    draft.result("toolu_edit", "1 replacement")
    draft.reply(draft.call("toolu_test", "Bash", command="pytest tests/windows"))
    draft.result("toolu_test", "2 failed, 41 passed in 3.1s", failed=True)
    draft.reply(
        draft.call(
            "toolu_fix", "Edit", file_path="tidepool/feed.py", old_string="k", new_string="key"
        )
    )
    draft.result("toolu_fix", "1 replacement")
    draft.reply(draft.call("toolu_again", "Bash", command="pytest tests/windows"))
    draft.result("toolu_again", "43 passed in 3.1s")
    draft.reply("Windows are cut in UTC now. I still need to add a test for Lord Howe.")
    draft.compact(
        "Cause: windows walked local time. Fixed in windows.py and feed.py; 43 tests pass. "
        "Open: a test for Lord Howe, and alerts.py:88 uses the label as a key.",
        keep_from=ask,
    )
    draft.prompt("Fix alerts.py too and run the whole suite.")
    draft.reply(
        "A helper looks for other callers while I edit.",
        draft.call("toolu_help", "Task", description="callers of label", prompt="who uses label?"),
        draft.call(
            "toolu_alerts", "Edit", file_path="tidepool/alerts.py", old_string="x", new_string="y"
        ),
    )
    draft.add(
        "sidechain",
        {
            "agent_id": "explorer",
            "tool_use_id": "toolu_help",
            "completion_status": "finished",
            "summary": "three callers; only alerts.py:88 is at risk",
        },
        moves=False,
    )
    draft.result("toolu_help", "three callers; only alerts.py:88 is at risk")
    draft.result("toolu_alerts", "1 replacement")
    draft.reply(draft.call("toolu_lost", "Bash", command="pytest -q tests"))
    # The process died while the tests ran, in the middle of a write.
    return (
        draft.bytes() + codec.encode(Event("user", draft.ts, "torn", None, {"role": "user"}))[:57]
    )
