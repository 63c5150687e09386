"""`thence cost`: sums that say what they leave out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.agents.transcripts import Script, usage
from tests.cli.desk import ALERTS, WINDOWS, Desk, alerts, windows
from thence.cli.terminal import columns


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Two sessions with prices and one without a bill."""
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(windows(), ago=timedelta(minutes=1))
    desk.write_claude(alerts(), ago=timedelta(days=2))
    desk.write_codex()
    desk.sweep()
    return desk


def test_days_are_the_default(desk: Desk) -> None:
    """Oldest first, discarded branches apart, the sum and its dead share in the first line."""
    ran = desk.run("cost")
    rows = [line.split() for line in ran.lines if line.startswith("    20")]

    assert "in 3 sessions, $0.14" in ran.lines[0]
    assert "on discarded branches" in ran.lines[0]
    assert sorted(row[0] for row in rows) == [row[0] for row in rows]
    assert "$0.14" in {row[3] for row in rows}


@pytest.mark.sampled(3)
@pytest.mark.few(4)
@pytest.mark.parametrize("by", ["day", "model", "project", "agent", "session", "branch", "tag"])
@pytest.mark.parametrize("room", [50, 80, 120])
def test_sums_agree_however_they_are_cut(desk: Desk, by: str, room: int) -> None:
    """Every grouping adds up to the same, and fits the screen."""
    answer = desk.run("cost", "--by", by, "--json").json
    parts = answer["parts"]

    for name in ("usd", "live_usd", "dead_usd", "subagents_usd"):
        assert round(answer["total"][name], 8) == round(sum(part[name] for part in parts), 8)
    assert room >= max(map(columns, desk.run("cost", "--by", by, columns=room).lines))


def test_costs_of_sessions_have_their_names(desk: Desk) -> None:
    """Id and title; the dearest first."""
    rows = desk.run("cost", "--by", "session").lines[3:]

    assert "7f3a91c2  Hourly" in rows[0]
    assert "a41e90bd  Alerts" in rows[1]


def test_costs_of_branches_and_tags(desk: Desk) -> None:
    """A branch is named with its repository; a session with two tags counts for both."""
    desk.run("tag", WINDOWS, "+release", "+clock")
    assert "untagged" in desk.run("cost", "--by", "tag").out
    desk.run("tag", ALERTS, "+release")
    sessions = {
        p["key"]: p["usd"] for p in desk.run("cost", "--by", "session", "--json").json["parts"]
    }
    tags = {p["key"]: p for p in desk.run("cost", "--by", "tag", "--json").json["parts"]}
    branches = [part["key"] for part in desk.run("cost", "--by", "branch", "--json").json["parts"]]

    assert sessions[f"claude:{WINDOWS}"] == tags["clock"]["usd"]
    both = sessions[f"claude:{WINDOWS}"] + sessions[f"claude:{ALERTS}"]
    assert round(both, 8) == round(tags["release"]["usd"], 8)
    assert 2 == tags["release"]["sessions"]
    assert all(":" in key for key in branches if key)
    assert any(branches)


def _priced(session: str, branch: str, *, link: str = "", printed: str = "") -> Script:
    """A session on a branch that costs something; it may open a pull request."""
    script = Script(session, session[:8], cwd="/home/dev/tidepool", gitBranch=branch)
    script.user("mend the sluice")
    if printed:
        script.call("c1", command="git push && gh pr create --title sluice --body 'see #3'")
        script.result("c1", printed)
    if link:
        script.note("pr-link", prUrl=link, prNumber=9, prRepository="dev/tidepool")
    block = [{"type": "text", "text": "done"}]
    script.reply(block, stop="end_turn", usage=usage(1000), model="claude-sonnet-4-5")
    return script


def test_costs_of_pull_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what a call printed or the client recorded; sessions of the same branch count too."""
    desk = Desk(tmp_path, monkeypatch)
    names = [f"{n:08x}-0000-4000-8000-0000000000cc" for n in range(6)]
    printed = "remote: see https://forge.example/dev/other/pull/1\nhttps://forge.example/dev/tidepool/pull/7\n"
    for script in (
        _priced(names[0], "sluice", printed=printed),
        _priced(names[1], "sluice"),
        _priced(names[2], "gate", link="https://forge.example/dev/tidepool/pull/9"),
        _priced(names[3], "main", link="https://forge.example/group/sub/lock/-/merge_requests/2"),
        _priced(names[4], "main"),
        _priced(names[5], "weir"),
    ):
        desk.write_claude(script)
    desk.sweep()
    parts = {p["key"]: p for p in desk.run("cost", "--by", "pr", "--json").json["parts"]}
    text = desk.run("cost", "--by", "pr").out
    desk.run("evict", names[0], "--yes")
    after = {p["key"]: p for p in desk.run("cost", "--by", "pr", "--json").json["parts"]}

    wanted = {"dev/tidepool#7": 2, "dev/tidepool#9": 1, "group/sub/lock!2": 1, None: 2}
    assert wanted == {key: part["sessions"] for key, part in parts.items()}
    each = parts["dev/tidepool#9"]["usd"]
    assert round(2 * each, 8) == round(parts["dev/tidepool#7"]["usd"], 8)
    assert parts == after
    assert "no pull request" in text


def test_a_hook_can_stop_an_agent_when_the_budget_is_used_up(desk: Desk) -> None:
    """Exit code 2 and the reason on stderr; silence while something is left, or without budgets."""
    silent = desk.run("cost", "--check")
    settings = desk.home / "config.toml"
    settings.write_text("[session_memory.budget]\ndaily_usd = 1000.0\n")
    enough = desk.run("cost", "--check")
    settings.write_text("[session_memory.budget]\ndaily_usd = 0.0001\n")
    used = desk.run("cost", "--check")
    elsewhere = '[session_memory.budget.projects]\n"/nowhere" = 0.0\n'
    settings.write_text(elsewhere.replace("0.0", "0.0001"))
    other = desk.run("cost", "--check")

    assert [(0, "", ""), (0, "", ""), (0, "", "")] == [tuple(r) for r in (silent, enough, other)]
    assert (2, "") == (used.code, used.out)
    assert used.err.startswith("Today's budget is used up: $")


def test_unknown_prices_are_not_guessed(desk: Desk) -> None:
    """They are called unknown, and the sum a lower bound."""
    script = alerts("dd000000-0000-4000-8000-00000000000d")
    block = [{"type": "text", "text": "hm"}]
    script.reply(block, stop="end_turn", usage=usage(1234), model="nobody-knows-1")
    desk.write_claude(script)
    desk.sweep()

    ran = desk.run("cost", "--by", "model")
    answer = desk.run("cost", "--by", "model", "--json").json
    part = next(entry for entry in answer["parts"] if entry["key"] == "nobody-knows-1")

    assert (None, 1244) == (part["usd"], part["unpriced_tokens"])
    assert any("nobody-knows-1" in line and "unknown" in line for line in ran.lines)
    assert ran.lines[0].split()[0].endswith("+")
    bound = "not included: 1,244 tokens of nobody-knows-1 (no price known for this model)"
    assert f"▲ {bound}" in ran.lines
    narrow = desk.run("cost", "--by", "model", columns=40).lines
    at = next(at for at, line in enumerate(narrow) if line.startswith("▲ not included"))
    assert bound == " ".join(line[2:] for line in narrow[at : at + 3])


def test_filters(desk: Desk) -> None:
    """What was spent in a time is told by its days."""
    yesterday = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"
    answer = desk.run("cost", "--by", "session", "--since", yesterday, "--json").json

    assert [f"claude:{WINDOWS}"] == [part["key"] for part in answer["parts"]]
    lumen = desk.run("cost", "--by", "session", "--project", "lumen", "--json").json
    assert [f"claude:{ALERTS}"] == [part["key"] for part in lumen["parts"]]
    assert ["no cost data for these sessions"] == desk.run("cost", "--agent", "grok").lines
