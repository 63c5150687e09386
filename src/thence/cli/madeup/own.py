"""Sessions of our own journal, as a harness that embeds it makes them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from thence.cli.madeup import Homes

if TYPE_CHECKING:
    from thence.journal import Session

MODEL = "claude-sonnet-4-5"


def write(homes: Homes, now: datetime) -> None:  # noqa: ARG001 - a journal writes what the clock says
    """Write sessions with a rewind, a subagent, a saved file, a compaction, a fork and a crash."""
    from thence.journal import Journal

    journal = Journal(homes.thence)
    cwd = homes.work / "tidepool"
    notes = cwd / "NOTES.md"
    notes.write_text("# Notes\n")
    with journal.create(cwd=str(cwd), model=MODEL) as s:
        _say(s, "user", "Write release notes for 2.4.")
        first = _say(s, "assistant", "I will read the changelog.")
        _call(s, "toolu_1", "Bash", {"command": "git log --oneline v2.3.."}, "a1b2 Fix the gap\n")
        with s.sidechain("reader", tool_use_id="toolu_1") as side:
            _say(side, "user", "Sum up the changes.")
            _say(side, "assistant", "Two fixes, one rename.")
            side.finish("Two fixes, one rename.")
        _say(s, "assistant", "Two fixes and a rename. Shall I invent a joke?")
        s.rewind(first)
        s.checkpoint([notes])
        notes.write_text("# Notes\n\n2.4: the clock change\n")
        answer = _say(s, "assistant", "The notes say what changed, no jokes.")
        s.compact("Notes for 2.4 are written.", keep_from=answer)
        s.flush()
    with journal.fork(s.id, at=answer) as other:
        _say(other, "user", "The same in Portuguese.")
        _say(other, "assistant", "Feito.")
        other.flush()
    crashed = journal.create(cwd=str(cwd), model=MODEL)
    _say(crashed, "user", "Tag the release.")
    call = {"type": "tool_use", "id": "toolu_9", "name": "Bash", "input": {"command": "git tag"}}
    crashed.record("assistant", {"role": "assistant", "content": [call]})
    # Nobody ends it: it looks as if the harness had been killed here.


def _say(s: Any, role: str, text: str) -> str:
    payload: dict[str, Any] = {"role": role, "content": text}
    if role == "assistant":
        payload |= {"model": MODEL, "usage": {"input_tokens": 2100, "output_tokens": 90}}
    record = s.record(role, payload)
    return record if isinstance(record, str) else str(record.uuid)


def _call(s: Session, name: str, tool: str, arguments: dict[str, Any], result: str) -> None:
    use = {"type": "tool_use", "id": name, "name": tool, "input": arguments}
    s.record("assistant", {"role": "assistant", "model": MODEL, "content": [use]})
    answer = {"type": "tool_result", "tool_use_id": name, "content": result}
    s.record("user", {"role": "user", "content": [answer]})
