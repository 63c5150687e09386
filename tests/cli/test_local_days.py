"""Days are local days: those of the terminal or of `--tz`, with the zone shown."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.transcripts import Script, usage, write
from tests.cli.desk import Desk


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """A machine with one session over the midnight of India: at 18:20, 18:40 and 23:30 UTC."""
    made = Desk(tmp_path, monkeypatch)
    script = Script()
    for at in ("18:20", "18:40", "23:30"):
        script.user("Go.", timestamp=f"2026-01-01T{at}:00.000Z")
        script.say("Done.", usage=usage(1000), timestamp=f"2026-01-01T{at}:30.000Z")
    write(made.claude, script)
    made.sweep()
    yield made
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def days(desk: Desk, *arguments: str) -> dict[str, int]:
    """Responses by day, as `cost` has them."""
    answer = desk.run("cost", "--by", "day", "--json", *arguments).json
    assert isinstance(answer, dict)
    return {part["key"]: part["responses"] for part in answer["parts"]}


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        ("UTC", {"2026-01-01": 3}),
        ("Europe/Berlin", {"2026-01-01": 2, "2026-01-02": 1}),
        ("Asia/Kolkata", {"2026-01-01": 1, "2026-01-02": 2}),
        ("America/New_York", {"2026-01-01": 3}),
    ],
)
def test_days_are_those_of_the_zone_that_is_asked_for(
    desk: Desk, zone: str, expected: dict[str, int]
) -> None:
    """Each bill counts on its local day, to the quarter of an hour."""
    assert expected == days(desk, "--tz", zone)
    assert f"day, {zone}" in desk.run("cost", "--tz", zone, columns=100).out


def test_days_are_those_of_the_terminal_by_default(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The zone of the machine counts, and is shown."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()

    assert {"2026-01-01": 1, "2026-01-02": 2} == days(desk)
    assert "day, IST" in desk.run("cost", columns=100).out


def test_sums_do_not_depend_on_the_zone(desk: Desk) -> None:
    """Another zone moves money between days, and changes nothing else."""
    answers = [
        desk.run("cost", "--by", "day", "--json", "--tz", zone).json
        for zone in ("UTC", "Asia/Kolkata", "Pacific/Chatham")
    ]

    assert 1 == len({answer["total"]["usd"] for answer in answers})
    for answer in answers:
        assert answer["total"]["usd"] == pytest.approx(sum(part["usd"] for part in answer["parts"]))


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../../etc/passwd", "x" * 300])
def test_a_zone_that_does_not_exist_is_an_error(desk: Desk, zone: str) -> None:
    """It is named, with a hint, and nothing is guessed."""
    ran = desk.run("cost", "--tz", zone)

    assert (2, "") == (ran.code, ran.out)
    assert "unknown time zone" in ran.err


@pytest.mark.parametrize(
    ("zone", "day", "prompts"),
    [
        ("UTC", 1, 3),
        ("UTC", 2, 0),
        ("Asia/Kolkata", 1, 1),
        ("Asia/Kolkata", 2, 2),
        ("Europe/Berlin", 2, 1),
        ("America/New_York", 2, 0),
    ],
)
def test_days_of_a_search_begin_at_midnight_of_the_zone(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, zone: str, day: int, prompts: int
) -> None:
    """`after:` and `before:` count the same days, whether the zone is the machine's or named."""
    asked = ("search", f"kind:user_msg after:2026-01-0{day} before:2026-01-0{day + 1} go", "--json")

    assert prompts == len(desk.run(*asked, "--tz", zone).json["hits"])

    monkeypatch.setenv("TZ", zone)
    time.tzset()

    assert prompts == len(desk.run(*asked).json["hits"])
    assert [3, 0][day - 1] == len(desk.run(*asked, "--utc").json["hits"])


def test_a_moment_in_a_search_is_taken_to_the_minute(desk: Desk) -> None:
    """With its own zone, or in the zone that is asked for."""
    for moment, zone in (("18:30Z", "Asia/Kolkata"), ("19:30", "Europe/Berlin")):
        asked = f"kind:user_msg after:2026-01-01T{moment} go"
        assert 2 == len(desk.run("search", asked, "--tz", zone, "--json").json["hits"])


@pytest.mark.parametrize(("zone", "sessions"), [("UTC", 0), ("Asia/Kolkata", 1)])
def test_since_is_a_local_day_too(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, zone: str, sessions: int
) -> None:
    """In lists as in `search`."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()

    assert sessions == len(desk.run("ls", "--since", "2026-01-02", "--json").json)


@pytest.mark.parametrize("text", ["0001", "9999-12-31", "2026-13", "2026-01-01T99:00", "+1-1-1"])
def test_days_at_the_ends_of_time_are_answered_or_refused(desk: Desk, text: str) -> None:
    """No zone makes them an error of ours."""
    for zone in ("Pacific/Kiritimati", "America/Los_Angeles"):
        assert desk.run("search", f"after:{text} go", "--tz", zone).code in (0, 2)
