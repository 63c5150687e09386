"""A history the way aider writes it."""

from __future__ import annotations

from datetime import datetime, timedelta

from thence.agents.aider.reader import NAME
from thence.agents.samples import STORIES, Machine

MODEL = "claude-sonnet-4-5"
VERSION = "0.86.1"


def write(machine: Machine, now: datetime) -> None:
    """Write a made-up history below a home."""
    _, _, turns = STORIES["umlaut"]
    start = now.astimezone() - timedelta(hours=30)
    lines = ["", f"# aider chat started at {start:%Y-%m-%d %H:%M:%S}", ""]
    lines += [f"> Aider v{VERSION}  ", f"> Main model: {MODEL} with diff edit format  ", ""]
    for turn in turns:
        lines += [f"#### {turn.prompt}  ", "", turn.answer, ""]
        edits = [step.values for step in turn.steps if step.form == "edit"]
        for edit in edits:
            lines += [edit["path"], "```python", "<<<<<<< SEARCH", edit["old"], "======="]
            lines += [edit["new"], ">>>>>>> REPLACE", "```", ""]
        lines += ["> Tokens: 4.1k sent, 212 received. Cost: $0.02 message, $0.02 session.  "]
        lines += [f"> Applied edit to {edit['path']}  " for edit in edits]
        lines += ["> Commit 3f2a91c fix: write the export in UTF-8  ", ""]
    path = machine.home / NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
