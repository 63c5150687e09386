"""What is removed is told: by age after an announcement, and as a loss whatever else happened."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.desk import ALERTS, Desk, alerts
from tests.posts import listening
from thence.memory import retention
from thence.memory.notes import read_notes
from thence.memory.retention import brief_rule, rule
from thence.memory.sqlite import Sqlite

OLD = timedelta(days=60)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine on which a session of Claude Code was swept."""
    made = Desk(tmp_path, monkeypatch)
    made.write_claude(alerts(), ago=OLD)
    made.sweep()
    return made


def configure(desk: Desk, **knobs: str | int) -> None:
    """Write the settings of the retention."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in knobs.items()]
    text = "\n".join(["[session_memory.retention]", *lines, ""])
    (desk.home / "config.toml").write_text(text)


def log_of(desk: Desk) -> Path:
    """Return the file of the session."""
    return next(desk.claude.rglob(f"{ALERTS}.jsonl"))


# -- by age ---------------------------------------------------------------------------------


@pytest.fixture
def aged(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """The same machine 60 days after the sweep, as the planner sees it."""
    real = retention.plan

    def later(policy: Any, inventory: Any, now: datetime) -> retention.RetentionPlan:
        return real(policy, inventory, now + OLD)

    monkeypatch.setattr(retention, "plan", later)
    return desk


def test_the_first_removal_by_age_is_announced_for_seven_days(aged: Desk) -> None:
    """Until then nothing goes, and every sweep and the home screen say when it will."""
    first = aged.run("sweep")
    start = f"{datetime.now(UTC) + timedelta(days=7):%Y-%m-%d}"

    assert f"1 transcript will be removed because of their age from {start} on" in first.out
    assert f"The oldest transcripts are removed from {start} on" in aged.run().out
    assert None is aged.run("ls", "--json").json[0]["evicted_at"]

    notice = aged.home / "notes" / "removal-by-age"
    assert 0o600 == notice.stat().st_mode & 0o777
    notice.write_text((datetime.now(UTC) - timedelta(days=8)).isoformat())
    second = aged.run("sweep")

    assert "1 transcript removed; the digests stay" in second.out
    assert None is not aged.run("ls", "--json").json[0]["evicted_at"]


def test_age_leaves_what_its_source_no_longer_has(aged: Desk) -> None:
    """A session that its agent deleted stays, announced or not."""
    aged.run("sweep")
    (aged.home / "notes" / "removal-by-age").write_text("2020-01-01T00:00:00+00:00")
    log_of(aged).unlink()
    aged.run("sweep")
    plan = aged.run("gc", "-n", "--json").json

    assert [] == plan["items"]
    assert None is aged.run("ls", "--json").json[0]["evicted_at"]


def test_the_rule_stands_on_the_screens(desk: Desk, tmp_path: Path) -> None:
    """In one line on the home screen, and in full before anything is stored."""
    words = rule(retention.Policy()).split()
    home = " ".join(desk.run().out.split())
    (desk.home / "memory").rename(tmp_path / "elsewhere")
    first = " ".join(desk.run().out.split())

    assert brief_rule(retention.Policy()) in home
    assert " ".join(words) in first


def test_a_soft_cap_above_the_hard_one_is_refused(desk: Desk) -> None:
    """With a hint, by every command that needs the settings."""
    configure(desk, raw_soft_cap_bytes="8GiB")
    ran = desk.run("sweep")

    assert 2 == ran.code
    assert "soft_cap_bytes is 8589934592, above" in ran.err
    assert "raise the hard limit" in ran.err


# -- losses ---------------------------------------------------------------------------------


def spoil(desk: Desk) -> None:
    """Leave a session that no digest covers and that cannot be digested, over a hard cap of 0."""
    store = Sqlite(str(desk.home / "memory" / "thence.db"))
    store._db.execute("UPDATE sessions SET analysed=NULL")
    store.close()
    for pack in (desk.home / "memory").rglob("*"):
        if pack.is_file() and not pack.name.startswith("thence.db"):
            pack.write_bytes(b"\0" * pack.stat().st_size)
    configure(desk, raw_soft_cap_bytes=0, raw_hard_cap_bytes=0)


@pytest.mark.parametrize("with_source", [True, False])
def test_a_loss_is_told_whatever_else_the_sweep_found(desk: Desk, *, with_source: bool) -> None:
    """A true sentence, not cut, exit code 3 and a note; also when no source is found."""
    spoil(desk)
    if not with_source:
        log_of(desk).unlink()
    ran = desk.run("sweep", columns=50)
    text = " ".join(ran.out.split())

    assert 3 == ran.code
    assert "LOST: 1 session was removed before it was fully analysed" in text
    assert "and analysis failed" in text
    assert "the digests stay" not in text
    assert [f"claude:{ALERTS}"] == [note.session_uid for note in read_notes(desk.home)]


def test_a_loss_is_posted_to_the_hub(desk: Desk) -> None:
    """When one is set, each loss arrives there."""
    spoil(desk)
    path = desk.home / "config.toml"
    with listening() as (address, posted):
        path.write_text(f'[session_memory]\nhub = "{address}"\n' + path.read_text())
        desk.run("sweep")

    assert [f"claude:{ALERTS}"] == [post.json["session_uid"] for post in posted]


def test_a_loss_by_gc_ends_with_3(desk: Desk) -> None:
    """What a plan loses after a yes is written down as well."""
    spoil(desk)
    ran = desk.run("gc", "--yes")

    assert 3 == ran.code
    assert "LOST: 1 session was removed" in " ".join(ran.out.split())
    assert 1 == len(read_notes(desk.home))
