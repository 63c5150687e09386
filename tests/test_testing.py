"""The helpers we ship for tests: the same bytes every time, and the sample in the package."""

from __future__ import annotations

from importlib import resources

from thence.format import codec
from thence.format.records import PAYLOADS, Malformed, parse_payload
from thence.testing import SAMPLE_SESSION, Draft, sample


def test_sample_in_the_package_is_the_one_that_is_made() -> None:
    """Byte for byte: `thence show --sample` and the tests look at one session."""
    shipped = resources.files("thence").joinpath("samples/tidepool.jsonl").read_bytes()

    assert sample() == shipped


def test_sample_is_always_the_same() -> None:
    """Neither clock nor chance is in it."""
    assert sample() == sample()


def test_sample_is_made_of_whole_payloads_and_one_torn_line() -> None:
    """Whatever it shows, it shows on purpose."""
    decoded = codec.decode(sample())

    assert {event.type for event in decoded.events} <= set(PAYLOADS)
    assert [] == [event for event in decoded.events if isinstance(parse_payload(event), Malformed)]
    assert [codec.TORN] == [skipped.why for skipped in decoded.skipped]


def test_draft_gives_the_same_bytes_for_the_same_words() -> None:
    """Ids and times follow from what was written before."""

    def export_session(session: str) -> bytes:
        draft = Draft(session)
        draft.header()
        draft.prompt("hi")
        draft.reply("hello")
        return draft.bytes()

    assert export_session("a") == export_session("a")
    assert export_session("a") != export_session("b")


def test_draft_writes_what_the_codec_reads() -> None:
    """Every verb appends one event, linked to the one before."""
    draft = Draft()
    uuids = [
        draft.header(),
        draft.prompt("hi"),
        draft.reply("on it", Draft.call("c", "Bash", command="ls")),
        draft.result("c", "files", failed=True),
    ]
    decoded = codec.decode(draft.bytes())

    assert draft.events == decoded.events
    assert uuids == [event.uuid for event in decoded.events]
    assert [None, *uuids[:-1]] == [event.prev_uuid for event in decoded.events]
    assert draft.lines() == draft.bytes().splitlines(keepends=True)


def test_draft_moves_its_tip_only_when_asked() -> None:
    """A rewind hangs beside the line, and so does a terminator."""
    draft = Draft()
    first = draft.prompt("one")
    draft.prompt("two")
    draft.rewind(first)
    after = draft.prompt("instead")
    draft.close()

    assert after == draft.tip
    assert [None, first, first, first, after] == [event.prev_uuid for event in draft.events]


def test_clock_of_a_draft_moves_by_itself() -> None:
    """Times rise, in UTC with milliseconds, wherever the start was said."""
    draft = Draft(start="2026-11-15T14:12:00+01:00")
    draft.header()
    draft.prompt("hi")
    draft.wait(0.25)
    draft.add("cwd", {"cwd": "/w"})

    assert [
        "2026-11-15T13:12:00.000Z",
        "2026-11-15T13:12:40.000Z",
        "2026-11-15T13:12:40.250Z",
    ] == [event.ts for event in draft.events]


def test_sample_is_the_session_it_says() -> None:
    """Its name is fixed: other tests and the documents use it."""
    (header,) = (event for event in codec.decode(sample()).events if event.type == "header")

    assert SAMPLE_SESSION == header.fields["session_id"]
