"""To-dos that were dismissed: they stay so, and can be shown again."""

from __future__ import annotations

from pathlib import Path

from thence.memory.open_todos import FILE, dismissed_todos, set_dismissed, todo_key

TODO = {"session_uid": "claude:1", "text": "write the tests", "status": "pending"}


def test_the_last_change_decides_and_bad_lines_change_nothing(tmp_path: Path) -> None:
    """Whatever somebody else wrote into the file."""
    first, second = todo_key(TODO), todo_key({**TODO, "text": "run them"})
    assert frozenset() == dismissed_todos(tmp_path)
    set_dismissed(tmp_path, first, is_dismissed=True)
    set_dismissed(tmp_path, second, is_dismissed=True)
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'\xff{"todo": 3}\nnull\n')
    set_dismissed(tmp_path, second, is_dismissed=False)

    assert {first} == dismissed_todos(tmp_path)
    assert 0o600 == (tmp_path / FILE).stat().st_mode & 0o777


def test_a_name_follows_from_session_and_text_and_repeats_neither(tmp_path: Path) -> None:
    """Its status may change; the file holds no text of a log."""
    assert todo_key(TODO) == todo_key({**TODO, "status": "in_progress"})
    assert todo_key(TODO) != todo_key({**TODO, "session_uid": "claude:2"})
    set_dismissed(tmp_path, todo_key(TODO), is_dismissed=True)

    assert b"write" not in (tmp_path / FILE).read_bytes()
