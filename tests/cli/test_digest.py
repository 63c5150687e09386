"""`thence digest`, `signals`, `patterns`, `todos`: what is pinned, read back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.desk import TITLE, WINDOWS, Desk, alerts, windows
from thence.cli import wiring
from thence.cli.digest import DigestText
from thence.cli.terminal import columns
from thence.memory.store import Filter


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Two sessions, kept."""
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(windows(), alerts())
    desk.sweep()
    return desk


def test_account_of_a_session(desk: Desk) -> None:
    """How it ended and why, what it took, what was asked, changed and left open."""
    ran = desk.run("digest", "7f3a")
    named = {line.split()[0] for line in ran.lines[3:] if line[2:3].strip()}

    assert "Hourly windows lose an hour when the clock changes" == ran.lines[0]
    assert ran.lines[1].startswith(
        "7f3a91c2 · Claude Code · claude-sonnet-4-5 · tidepool fix/dst-gap"
    )
    assert {"outcome", "took", "asked", "answered", "files", "to-dos"} <= named
    assert "windows.py  1 edit, 1 read" in ran.out
    assert "Fix alerts.py too" in ran.out
    assert 80 >= max(map(columns, ran.lines))


def test_object_is_the_digest(desk: Desk) -> None:
    """As it is kept, with its signals."""
    answer = desk.run("digest", "7f3a", "--json").json

    assert f"claude:{WINDOWS}" == answer["session_uid"]
    assert {"outcome", "files", "todos", "signals"} <= set(answer)


def test_digest_outlives_its_session(desk: Desk) -> None:
    """An evicted session is read by its digest; its tree says where to look."""
    with wiring.store() as store:
        store.remove([f"claude:{WINDOWS}"], why={})
    (desk.claude / "projects" / "-home-dev-project" / f"{WINDOWS}.jsonl").unlink()

    assert "transcript removed" in desk.run("digest", "7f3a").out
    tree = desk.run("tree", "7f3a")
    assert 1 == tree.code
    assert "thence show 7f3a91c2-0000 --digest" in tree.err


@pytest.mark.parametrize("odd", [{}, {"files": 3, "snippets": [], "tests": [None], "reasons": "x"}])
def test_digests_of_any_shape_are_shown(desk: Desk, odd: dict[str, object]) -> None:
    """One of another version, or of nobody's, costs no traceback."""
    with wiring.store() as store:
        row = next(iter(store.sessions(Filter(uid="7f3a"))))

    assert "outcome" in "\n".join(DigestText(row, odd, [{}], utc=True).lines(80))


def test_signals_are_listed_by_weight(desk: Desk) -> None:
    """Each with its session; kinds can be chosen; nothing is no error."""
    signals = desk.run("signals", "--json").json
    ran = desk.run("signals")
    kind = signals[0]["kind"]

    assert f"claude:{WINDOWS}" == signals[0]["session_uid"]
    assert ran.lines[0].startswith(f"{len(signals)} signal")
    assert "7f3a91c2" in ran.out
    assert {kind} == {
        signal["kind"] for signal in desk.run("signals", "--kind", kind, "--json").json
    }
    assert ["no signals found"] == desk.run("signals", "a41e").lines
    assert TITLE[:28] not in ran.out
    assert TITLE[:28] in desk.run("signals", columns=120).out


def test_open_promises_of_all_sessions(desk: Desk) -> None:
    """What a todo tool was told and nobody did; what is done is not there."""
    ran = desk.run("todos")
    todos = desk.run("todos", "--json").json

    assert "1 open to-do in 1 session" == ran.lines[0]
    assert ran.lines[2].startswith("  ○ Fix alerts.py too")
    assert ["Fix alerts.py too"] == [todo["text"] for todo in todos]
    assert ["no open to-dos"] == desk.run("todos", "--project", "lumen").lines


def test_patterns_need_several_sessions(desk: Desk) -> None:
    """The same error in two sessions is one: what they share, where it was seen, what helped."""
    error_text = "ModuleNotFoundError: No module named 'lantern'"
    for number in range(2):
        script = alerts(f"ab{number}00000-0000-4000-8000-00000000000{number}")
        script.call(f"p{number}", "Bash", command="python run.py")
        script.result(f"p{number}", f"Traceback:\n{error_text}", wrong=True)
        script.call(f"q{number}", "Bash", command="pip install lantern")
        script.result(f"q{number}", "Successfully installed lantern-1.0")
        script.call(f"r{number}", "Bash", command="python run.py")
        script.result(f"r{number}", "lit")
        desk.write_claude(script)
    desk.sweep()

    patterns = desk.run("patterns", "--json").json
    ran = desk.run("patterns")
    error = next(pattern for pattern in patterns if pattern["kind"] == "recurring_error")

    assert 2 == error["sessions"]
    assert "recurring errors" in ran.lines
    at = next(at for at, line in enumerate(ran.lines) if error_text in line and "▲" in line)
    seen, fixed = ran.lines[at + 1 : at + 3], ran.lines[at + 3]
    assert {"ab000000", "ab100000"} == {line.split()[0] for line in seen}
    assert all(re.match(r"      \w{8} e\w{6}  .*No module named", line) for line in seen)
    assert "✓ fixed in 2 sessions: ran pip install lantern" == fixed.strip()
    assert (
        [] == desk.run("patterns", "--project", "tidepool", "--kind", "flaky_test", "--json").json
    )


@pytest.mark.few(4)
@pytest.mark.parametrize("room", [40, 59, 80, 130])
@pytest.mark.parametrize("name", ["signals", "patterns", "todos", "digest"])
def test_any_width(desk: Desk, name: str, room: int) -> None:
    """No line is longer than the screen."""
    arguments = ["7f3a"] if name == "digest" else []

    assert room >= max(map(columns, desk.run(name, *arguments, columns=room).lines))


@pytest.mark.parametrize("room", [60, 80])
def test_what_it_took_is_told_whole(desk: Desk, room: int) -> None:
    """Broken into lines between its figures, never cut; so are the reasons of the outcome."""
    lines = desk.run("digest", "7f3a", columns=room).lines
    start = next(at for at, line in enumerate(lines) if line.startswith("  outcome"))
    end = next(at for at, line in enumerate(lines) if line.startswith("  asked"))

    assert [] == [line for line in lines[start:end] if "…" in line or len(line) > room]
    assert any(" turns" in line or " turn" in line for line in lines[start:end])
