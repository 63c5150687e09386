"""The rules that a user writes down: in the settings file of the home, read by the journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.desk import Desk
from thence.errors import BadConfig
from thence.journal.journal import Journal
from thence.journal.permissions import Action, Ledger, decide

RULES = """
[permissions]
allow = ["Bash(git log:*)"]
deny = ["Bash(curl:*)"]

[session_memory]
exclude = []
"""


def test_the_journal_reads_the_rules_of_its_home(tmp_path: Path) -> None:
    """Beside other settings; without a file nothing is allowed for good."""
    journal = Journal(tmp_path)
    action = Action("Bash", "git log -5")

    assert "ask" == decide(action, journal.rules(), Ledger()).verdict

    (tmp_path / "config.toml").write_text(RULES)

    assert "allow" == decide(action, journal.rules(), Ledger()).verdict
    assert "deny" == decide(Action("Bash", "curl x"), journal.rules(), Ledger()).verdict


@pytest.mark.parametrize(
    "text", ["[permissions]\nallwo = []", "[permissions]\nallow = [''", "\xff"]
)
def test_rules_that_make_no_sense_are_an_error(tmp_path: Path, text: str) -> None:
    """Never skipped: it might have been the one that denies."""
    (tmp_path / "config.toml").write_bytes(text.encode("latin-1"))

    with pytest.raises(BadConfig):
        Journal(tmp_path).rules()


def test_commands_work_beside_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is everybody's; a key that is none is still named."""
    desk = Desk(tmp_path, monkeypatch)
    desk.home.mkdir(parents=True)
    (desk.home / "config.toml").write_text(RULES)

    assert 0 == desk.run("sweep").code

    (desk.home / "config.toml").write_text("[permissions]\nallwo = []")
    ran = desk.run("sweep")

    assert 2 == ran.code
    assert "permissions.allwo" in ran.err
    assert "permissions.allow" in ran.err
