"""Other people's files stay as they are: byte by byte, with their times and modes."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

import pytest

from tests.pace import by_pace
from thence.agents import adapters
from thence.agents.sessions import load
from thence.cli.inspect import inspect_file
from thence.cli.session_text import Page
from thence.cli.show import events
from thence.cli.terminal import as_json
from thence.errors import NotReadable
from thence.memory.readouts import open_loaded as opened_session
from thence.memory.readouts import readout_of

LOGS = (".jsonl", ".ndjson", ".zst")


def states(root: Path) -> dict[str, tuple[object, ...]]:
    """All that can be seen of every file and folder below a root."""
    out: dict[str, tuple[object, ...]] = {}
    for folder, _, names in os.walk(root):
        for path in (Path(folder), *(Path(folder, name) for name in names)):
            known = path.lstat()
            body = b"" if path.is_dir() else path.read_bytes()
            out[str(path)] = (
                blake2b(body).hexdigest(),
                known.st_mtime_ns,
                known.st_mode,
                known.st_ino,
                known.st_size,
                known.st_uid,
            )
    return out


def show_all(root: Path) -> int:
    """Run both commands, in all their forms, over every log, or over some of them."""
    known = adapters()
    shown = 0
    logs = sorted(path for path in root.rglob("*") if path.suffix in LOGS)
    for path in logs[:: by_pace(everyday=8, full=8, prove=1)]:
        inspect_file(path)
        try:
            loaded = load(path, known)
        except NotReadable:
            continue
        shown += 1
        Page(opened_session(loaded), 80).lines()
        Page(opened_session(loaded), 120, opened=True).lines()
        for _ in as_json(events(opened_session(loaded))):
            pass
        for _ in as_json(readout_of(loaded.graph).messages().messages):
            pass
    return shown


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("part", ["claude-code", "codex", "grok", "public"])
def test_sources_are_the_same_after_everything(shared: Path, part: str) -> None:
    """Nothing is written, touched, renamed, locked or left behind; not even a folder's time."""
    root = shared / "data" / part
    before = states(root)
    shown = show_all(root)

    assert before == states(root)
    assert by_pace(everyday=2, full=2, prove=20) < shown
