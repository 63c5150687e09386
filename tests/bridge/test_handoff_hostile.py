"""The hostile corpus handed over: what can be read can be given on, and comes out whole."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.pace import by_pace
from thence.agents.sessions import LoadedSession, load
from thence.bridge.handoff import Handoff, carry_out, plan, targets
from thence.bridge.portable_history import writer_of
from thence.errors import ThenceError
from thence.format.repair import problems
from thence.memory.readouts import open_loaded, readout_of

SMALL = 600_000
AT = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
NEW = "01a00000-0000-7000-8000-00000000000b"


def load_if_spoken(path: Path) -> LoadedSession | None:
    """Return a session, if somebody wrote it and something was said in it."""
    try:
        session = load(path)
    except ThenceError:
        return None
    return session if readout_of(session.graph).messages().messages else None


def depth(value: Any) -> int:
    """How deeply a value is nested."""
    deepest, level = 0, [value]
    while level:
        deepest += 1
        level = [
            inner
            for item in level
            if isinstance(item, (dict, list))
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return deepest


def faults(made: Handoff) -> list[str]:
    """Say what is wrong with what was written: what a strict client would not read."""
    out: list[str] = []
    for path, body in made.files.items():
        text = body.decode("utf-8")
        lines = [text] if path.endswith((".json", ".yaml")) else text.splitlines()
        for line in lines:
            value = json.loads(line)
            if depth(value) > 100:
                out.append(f"{path}: nested {depth(value)} levels")
            try:
                json.dumps(value, ensure_ascii=False).encode()
            except UnicodeEncodeError:
                out.append(f"{path}: half a character")
    return out


@pytest.mark.slow
@pytest.mark.sampled
def test_every_hostile_session_is_handed_over_whole(corpus: Path, tmp_path: Path) -> None:
    """Every line is one that a strict reader takes; it reads back as a history the API accepts."""
    handed = 0
    step = by_pace(everyday=6, full=4, prove=1)
    for number, path in enumerate(sorted((corpus / "files").iterdir())[::step]):
        if path.stat().st_size > SMALL or (session := load_if_spoken(path)) is None:
            continue
        for to in (name for name in targets() if writer_of(name).accept is None):
            root = tmp_path / f"{number}-{to}"
            made = plan(open_loaded(session), to, root=root, session=NEW, at=AT, here="/home/dev")
            carry_out(made)
            back = load(Path(next(p for p in made.report.files if "summary" not in p)))

            assert [] == faults(made), path.name
            assert [] == problems(readout_of(back.graph).messages().messages), path.name
            assert [] == back.skipped, path.name
        handed += 1

    assert 50 // step < handed
