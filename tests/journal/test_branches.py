"""Moving the tip often: quicker than reading again, and never another answer."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from tests.journal.runs import Run as Played
from tests.journal.runs import Script, scripts
from thence.format import codec
from thence.format.records import Event
from thence.format.state import Domains
from thence.journal import branches as module
from thence.journal.branches import Branches
from thence.journal.journal import Journal
from thence.journal.reader import ReadBack
from thence.journal.session import Session

FEWER = settings(max_examples=(settings.default or settings()).max_examples // 3)


def summary_of(back: ReadBack) -> dict[str, Any]:
    """What a session takes from what was read: messages, their places, and the state they led to.

    The state may come from a boundary's snapshot or from the whole line; it is one state.
    """
    state = Domains().fold(back.since, [], snapshot=back.snapshot).values
    names = ("chain", "end", "starts_with_summary", "root")
    return {name: getattr(back, name) for name in names} | {"where": back.where()} | state


def say(session: Session, text: str, **how: Any) -> str:
    """One prompt."""
    return session.record("user", {"role": "user", "content": text}, **how).uuid


def branches_of(session: Session) -> Branches:
    """An index of its own over a session's log."""
    assert session._run is not None
    assert session._parts.reread is not None
    return Branches(session._run, session._parts.reread, session._boundary)


@pytest.mark.slow
@FEWER
@given(script=scripts)
def test_a_walk_leads_where_reading_does(script: Script) -> None:
    """To every event of the log, in any order: the same chain, state and places."""
    with tempfile.TemporaryDirectory() as folder:
        session = Played(Path(folder), script).session
        assert session._log is not None
        assert session._parts.reread is not None
        index = branches_of(session)
        for event in reversed(codec.decode(session._log.path.read_bytes()).events):
            read = session._parts.reread(event.uuid, None)

            assert summary_of(read) == summary_of(index.back(event.uuid))


ODD: dict[str, list[Event]] = {
    "a copy": [Event("user", "", "a", "root", {"role": "user", "content": "again"})],
    "a parent nobody knows": [Event("user", "", "b", "gone", {"role": "user", "content": "b"})],
    "a parent written later": [
        Event("user", "", "b", "c", {"role": "user", "content": "b"}),
        Event("user", "", "c", "a", {"role": "user", "content": "c"}),
    ],
    "its own parent": [Event("user", "", "b", "b", {"role": "user", "content": "b"})],
    "half a compaction": [Event("summary", "", "b", "a", {"role": "user", "content": "all"})],
    "a boundary that leads nowhere": [
        Event("boundary", "", "b", "a", {"anchor_uuid": "x", "summary_event_uuid": "x"}),
        Event("user", "", "c", "b", {"role": "user", "content": "c"}),
    ],
    "a result beside the line": [
        Event(
            "assistant",
            "",
            "b",
            "a",
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "n"}]},
        ),
        Event(
            "user",
            "",
            "r",
            "b",
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]},
        ),
        Event("user", "", "c", "b", {"role": "user", "content": "c"}),
    ],
    "a response in two lines of which one hangs beside": [
        Event("assistant", "", "b", "a", {"role": "assistant", "content": [], "id": "m"}),
        Event("assistant", "", "r", "b", {"role": "assistant", "content": [], "id": "m"}),
        Event("user", "", "c", "b", {"role": "user", "content": "c"}),
    ],
}


@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_plain_walk_is_left_to_the_graph(odd: str, tmp_path: Path) -> None:
    """Logs that other writers left: every event leads where the graph says."""
    session = Journal(tmp_path, durability="none").create()
    root, path = session.tip, session.transcript_path
    assert path is not None
    assert session._parts.reread is not None
    first = Event("user", "", "a", root, {"role": "user", "content": "a"})
    with path.open("ab") as file:
        file.writelines(codec.encode(event) for event in [first, *ODD[odd]])
    index = branches_of(session)

    for event in codec.decode(path.read_bytes()).events:
        assert summary_of(session._parts.reread(event.uuid, None)) == summary_of(
            index.back(event.uuid)
        )


def test_a_log_is_decoded_once_however_often_the_tip_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work goes with what was written, not with how often one went back."""
    session = Journal(tmp_path, durability="none").create()
    uuids = [say(session, f"{n}") for n in range(300)]
    decoded: list[int] = []
    plain = codec.decode

    def watched(data: bytes, **how: Any) -> codec.Decoded:
        decoded.append(len(data))
        return plain(data, **how)

    monkeypatch.setattr(codec, "decode", watched)
    for n in range(100):
        say(session, f"aside {n}", parent=uuids[n])
    for n in range(100):
        session.rewind(uuids[n])
    path = session.transcript_path
    assert path is not None

    assert path.stat().st_size + 2000 > sum(decoded)
    assert "99" == session.messages[-1]["content"][-1]["text"]


def test_behind_a_boundary_only_what_follows_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large compacted log nobody reads the large part to go back one prompt."""
    session = Journal(tmp_path, durability="none").create()
    for n in range(500):
        say(session, f"{n}" * 100)
    session.compact("so far")
    back = say(session, "after")
    say(session, "too far")
    decoded: list[int] = []
    plain = codec.decode

    def watched(data: bytes, **how: Any) -> codec.Decoded:
        decoded.append(len(data))
        return plain(data, **how)

    monkeypatch.setattr(codec, "decode", watched)
    session.rewind(back)

    assert 20_000 > sum(decoded)
    assert ["so far", "after"] == [b["text"] for m in session.messages for b in m["content"]]


def test_what_others_wrote_can_be_gone_back_to(tmp_path: Path) -> None:
    """The index grows with the file, whoever appends."""
    journal = Journal(tmp_path, durability="none")
    session = journal.create()
    first = say(session, "first")
    session.rewind(first)
    other = journal.resume(session.id, mode="continue")
    theirs = say(other, "theirs")
    session.rewind(theirs)

    assert ["first", "theirs"] == [b["text"] for m in session.messages for b in m["content"]]
    assert module.Branches is type(session._branches)
