"""Budgets warn on the command line, on the page Now and in the brief; they stop nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from tests.agents.transcripts import write
from tests.cli.desk import Desk, alerts, windows
from tests.serve.conftest import House, empty
from thence import config
from thence.errors import BadConfig
from thence.memory.budgets import Budgets, BudgetUse, budget_uses, budget_warnings
from thence.memory.store import Filter

SETTINGS = """
[session_memory.budget]
daily_usd = 0.4
[session_memory.budget.projects]
"/home/dev/tidepool" = 0.1
"/home/dev/lumen" = 9
"""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[House]:
    """A session that took $0.37 in one project and one that took a cent in another, one day."""
    made = empty(tmp_path)
    write(made.homes.claude, windows(), alerts())
    made.swept()
    (made.homes.thence / config.FILE).write_text(SETTINGS)
    made.context.settings = config.settings(made.homes.thence, {})
    made.context.clock = lambda: ended(made).timestamp()
    yield made
    made.close()


def ended(machine: House) -> datetime:
    """When the last session ended."""
    row = next(iter(machine.store.sessions(Filter(limit=1))))
    return datetime.fromisoformat(row.session.ended_at or "")


def test_the_page_and_the_answer_warn_of_what_is_nearly_used_up(machine: House) -> None:
    """Of the day as a whole and of the project; a budget with much left is not talked of."""
    with machine.serving():
        page = machine.ask("/?tz=UTC").body.decode()
        uses = machine.ask("/api/now?tz=UTC").json["budgets"]

    assert "96 % of today&#39;s budget is used: $0.38 of $0.40" in page
    assert "Today&#39;s budget for tidepool is used up: $0.37 of $0.10" in page
    assert "lumen is" not in page
    assert [None, "/home/dev/lumen", "/home/dev/tidepool"] == [use["project"] for use in uses]


def test_money_of_other_days_and_folders_does_not_count(machine: House) -> None:
    """A day is one of the zone of the clock; a folder has what lies below it, and no neighbour."""
    limits = Budgets(1.0, {"/home/dev": 1.0, "/home/dev/tide": 1.0})
    today = budget_uses(machine.store, limits, ended(machine))
    tomorrow = budget_uses(machine.store, limits, ended(machine) + timedelta(days=1))
    far = ended(machine).astimezone(timezone(timedelta(hours=14))).replace(hour=12)

    assert [0.38, 0.38, 0.0] == [round(use.spent_usd, 2) for use in today]
    assert [0.0, 0.0, 0.0] == [use.spent_usd for use in tomorrow]
    assert [0.0] == [use.spent_usd for use in budget_uses(machine.store, Budgets(1.0), far)] or (
        far.date() == ended(machine).date()
    )
    assert [] == budget_uses(machine.store, Budgets(), ended(machine))


def test_a_brief_warns_of_the_budgets_that_its_project_counts_for() -> None:
    """Its own, that of a folder above it, and that of all."""
    uses = [
        BudgetUse(None, 1.0, 0.9),
        BudgetUse("/w", 1.0, 2.0, is_lower_bound=True),
        BudgetUse("/w/other", 1.0, 2.0),
        BudgetUse("/w/tidepool", 1.0, 0.5),
    ]

    assert [
        "90 % of today's budget is used: $0.90 of $1.00",
        "Today's budget for w is used up: $2.00+ of $1.00",
    ] == budget_warnings(uses, "/w/tidepool")


def test_the_command_line_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`thence` and `thence brief`, of what was spent today and of nothing else."""
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(windows(), ago=timedelta(seconds=1))
    desk.sweep()
    assert "budget" not in desk.run().out
    (desk.home / config.FILE).write_text("[session_memory.budget]\ndaily_usd = 0.01\n")
    answer = desk.run("--json").json
    today = sum(agent["today"]["usd"] or 0 for agent in answer["spent"])
    is_over = today >= 0.01  # not so in the first minutes of a day

    assert round(today, 6) == round(answer["budgets"][0]["spent_usd"], 6)
    assert is_over is ("Today's budget is used up" in desk.run().out)
    assert is_over is ("Today's budget is used up" in desk.run("brief", str(tmp_path)).out)


@pytest.mark.parametrize("line", ['daily_usd = "much"', "daily_usd = 0", "projects = 5"])
def test_an_amount_that_is_none_is_refused_with_a_hint(tmp_path: Path, line: str) -> None:
    """With the name of the setting."""
    (tmp_path / config.FILE).write_text(f"[session_memory.budget]\n{line}\n")
    with pytest.raises(BadConfig, match=r"session_memory\.budget\.") as error:
        config.settings(tmp_path, {})

    assert error.value.hint
