"""Sessions by their id: shown as they are kept, whole or around one event."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.agents import rollouts
from tests.cli.desk import WINDOWS, Desk, alerts, windows
from thence.cli import wiring
from thence.memory.packs import pack_name
from thence.memory.recall import event_name


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Two sessions, kept."""
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(windows(), alerts())
    desk.sweep()
    return desk


def test_kept_session_reads_as_its_file_does(desk: Desk) -> None:
    """By the beginning of its id, with or without the agent, or by its path."""
    path = desk.claude / "projects" / "-home-dev-project" / f"{WINDOWS}.jsonl"
    by_path = desk.run("show", str(path))

    assert 0 == by_path.code
    for name in ("7f3a", WINDOWS, f"claude:{WINDOWS}"):
        assert by_path.out == desk.run("show", name).out
    assert desk.run("show", "7f3a", "--as", "messages").json == (
        desk.run("show", str(path), "--as", "messages").json
    )


def test_kept_session_outlives_its_file(desk: Desk) -> None:
    """And one whose events were evicted is read from its file while that is there."""
    path = desk.claude / "projects" / "-home-dev-project" / f"{WINDOWS}.jsonl"
    with wiring.store() as store:
        store.remove([f"claude:{WINDOWS}"], why={})
    evicted = desk.run("show", "7f3a")
    path.unlink()

    assert (0, 1) == (evicted.code, desk.run("show", "7f3a").code)
    assert "Cut the windows in UTC" in evicted.out
    assert 0 == desk.run("show", "a41e").code


def test_a_broken_pack_costs_only_its_texts(desk: Desk) -> None:
    """The log is gone, too: what the rows know is shown, and what is lost is counted."""
    both = [desk.run("show", "7f3a", "--as", "events", "--json").json["events"]]
    (desk.claude / "projects" / "-home-dev-project" / f"{WINDOWS}.jsonl").unlink()
    for pack in (desk.home / "memory" / "packs").glob(f"{pack_name(f'claude:{WINDOWS}')}-*"):
        pack.write_bytes(bytes(pack.stat().st_size))
    ran = desk.run("show", "7f3a")
    both.append(desk.run("show", "7f3a", "--as", "events", "--json").json["events"])

    assert 3 == ran.code
    assert "its text is unavailable" in ran.out
    assert "text lost: thence doctor --deep --mend" in ran.out
    ids = [[event["event_id"] for event in some if not event.get("derived_from")] for some in both]
    assert ids[0] == ids[1] != []


def test_search_leads_to_the_event(desk: Desk) -> None:
    """The command that a search ends with shows what it found, on a discarded branch too."""
    for word in ("lighthouse", "lantern"):
        last = desk.run("search", word).lines[-1]
        shown = re.findall(r"thence (show \S+ --around \S+)", last)

        assert word in desk.run(*shown[0].split()).out


def test_only_what_stands_around_is_shown(desk: Desk) -> None:
    """What comes before and after is counted."""
    script = alerts()
    for number in range(40):
        script.user(f"question {number}")
        script.say(f"answer {number}")
    desk.write_claude(script)
    desk.sweep()
    hit = next(
        hit
        for hit in desk.run("search", '"question 20"', "--json").json["hits"]
        if hit["snippet"] == "question 20"
    )

    by_name = desk.run("show", "a41e", "--around", event_name(hit["event_id"]))
    by_id = desk.run("show", "a41e", "--around", f"{hit['event_id']}")

    assert by_name.out == by_id.out
    assert "question 20" in by_name.out
    assert ("question 2\n" in by_name.out, "question 39" in by_name.out) == (False, False)
    assert "┊    36 records before" in by_name.lines
    assert "┊    29 records after" in by_name.lines


@pytest.mark.parametrize("wanted", ["e000000", "nonsense", "e", ""])
def test_unknown_events_are_told(desk: Desk, wanted: str) -> None:
    """Exit code 10."""
    assert 10 == desk.run("show", "7f3a", "--around", wanted).code


def test_without_a_store_a_name_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As before anything was kept."""
    ran = Desk(tmp_path, monkeypatch).run("show", "7f3a")

    assert 10 == ran.code
    assert "no sessions stored yet" in ran.err


# -- what a session continues ---------------------------------------------------------------


def forked(desk: Desk) -> tuple[Path, Path]:
    """Write a session of Codex and a fork of it that holds its own lines alone."""
    home = rollouts.Home(desk.codex)
    first_turns = rollouts.numbered(
        [
            rollouts.meta(),
            rollouts.user("Where is the quillfern?"),
            rollouts.call("shell", "k1", command=["ls"]),
            rollouts.output("k1", "brackenloft"),
            rollouts.assistant("In the brackenloft."),
        ]
    )
    later = [rollouts.user("Never mind."), rollouts.assistant("Fine.")]
    parent = home.write([*first_turns, *rollouts.numbered(later, len(first_turns))])
    base = {
        "thread_id": rollouts.A,
        "end_ordinal_exclusive": len(first_turns),
        "end_byte_offset": len(rollouts.bytes_of(first_turns)),
    }
    head = rollouts.meta(rollouts.B, forked_from_id=rollouts.A, history_base=base)
    own = [head, rollouts.user("And the marshlamp?"), rollouts.assistant("Beside it.")]
    return parent, home.write(rollouts.numbered(own, len(first_turns)), rollouts.B)


def test_a_fork_by_reference_is_shown_with_what_it_continues(desk: Desk) -> None:
    """By its id as by its file; by its id also when the file it continues is gone."""
    parent, fork = forked(desk)
    desk.sweep()
    wanted = desk.run("show", str(fork), "--as", "messages").json
    text = desk.run("show", str(fork)).lines
    stored = desk.run("show", rollouts.B, "--as", "messages").json
    stored_text = desk.run("show", rollouts.B).lines
    parent.unlink()
    without = desk.run("show", rollouts.B, "--as", "messages").json

    assert "Where is the quillfern?" == wanted[0]["content"][0]["text"]
    assert 6 == len(wanted)
    assert wanted == stored
    assert text == stored_text
    assert wanted == without


def test_a_fork_whose_origin_is_stored_nowhere_says_so(desk: Desk) -> None:
    """What it holds itself is shown; the rest is missing, in words."""
    parent, _ = forked(desk)
    parent.unlink()
    desk.sweep()
    ran = desk.run("show", rollouts.B)

    assert "And the marshlamp?" in ran.out
    assert "ancestor missing" in ran.out + ran.err


def test_ids_that_differ_at_their_end_are_short_and_can_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client starts several sessions within a millisecond: both ends of their ids are shown."""
    desk = Desk(tmp_path, monkeypatch)
    names = [f"01a1e085-f0de-78d3-9788-a9200000000{end}" for end in (1, 2)]
    for name in names:
        desk.write_claude(alerts(name))
    desk.sweep()
    shown = [line.split()[1] for line in desk.run("ls").lines[:2]]

    assert ["01a1e0…000001", "01a1e0…000002"] == sorted(shown)
    assert [13, 13] == [len(short) for short in shown]
    for short in shown:
        digest = desk.run("digest", short, "--json").json
        assert digest["session_uid"].endswith(short[-6:])
