"""A page about earlier sessions, as lines."""

from __future__ import annotations

import pytest

from thence.memory.recap import Mention, RecalledSession, Recap, lines


def page(*, command: str) -> Recap:
    """Return a page of one session in which one command was run."""
    commands = [Mention(command, 7, "commit")]
    session = RecalledSession(
        "claude:1", "t", None, None, "success", False, 1.0, [], [], [], [], commands, [], "done"
    )
    return Recap("q", "", [session], [])


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("git add a && git commit -m 'Mend the lamp' && git push", "Mend the lamp"),
        ('git commit -qam "Mend it\n\nIt\'s dark."', "Mend it It's dark."),
        ('git commit --message="Mend the long, long', "Mend the long, long"),
        ("git commit -F message.txt", "git commit -F message.txt"),
        ("git commit; grep -m 'x' y", "git commit; grep -m 'x' y"),
    ],
)
def test_a_commit_is_told_by_its_message(command: str, message: str) -> None:
    """Also where its end was cut off; the command where there is none."""
    assert f"  commit e000000: {message}" in lines(page(command=command))
