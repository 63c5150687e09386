"""Batches: a session as a list, whole batches only, nothing ever removed."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from thence.errors import BadArgument
from thence.format import codec
from thence.format.records import JSON
from thence.format.transcript import Transcript
from thence.journal import Journal
from thence.journal.batches import MARK, BatchEntry, Batches


def entry(text: str, uuid: str | None = None, parent: str | None = None) -> BatchEntry:
    """A record of a made-up SDK."""
    payload = {"role": "user", "content": text, MARK: {"is": "test"}}
    return BatchEntry("user", payload, uuid, parent)


def opened(home: Path, name: str = "list", **options: JSON) -> Batches:
    """A list in a home."""
    return Journal(home, **options).batches(name, project="p")


def texts(batches: Batches) -> list[str]:
    """What a reader sees on the line, oldest first."""
    batches.look()
    events = batches.read(batches.line())
    return [event.fields["content"] for event in events if event.type == "user"]


def file_of(home: Path) -> Path:
    """The one file that was written."""
    (path,) = (home / "sessions").rglob("*.jsonl")
    return path


def test_what_is_appended_is_read_back_in_order(tmp_path: Path) -> None:
    """By the same object and by another one."""
    batches = opened(tmp_path)
    batches.append([entry("one")])
    batches.append([entry("two"), entry("three")])

    assert ["one", "two", "three"] == texts(batches)
    assert ["one", "two", "three"] == texts(opened(tmp_path))


def test_reading_makes_no_file(tmp_path: Path) -> None:
    """A list that nobody wrote is empty and stays away from the disk."""
    batches = opened(tmp_path)

    assert [] == texts(batches)
    assert batches.modified() is None
    assert not (tmp_path / "sessions").exists()


@pytest.mark.slow
def test_a_batch_that_was_cut_anywhere_counts_whole_or_not_at_all(tmp_path: Path) -> None:
    """Every byte of a batch of three; what comes next is read, whatever was left."""
    first = opened(tmp_path / "home")
    first.append([entry("before")])
    start = file_of(tmp_path / "home").stat().st_size
    first.append([entry("a"), entry("b"), entry("c")])
    data = file_of(tmp_path / "home").read_bytes()
    seen = set()
    for cut in range(start, len(data) + 1, 7):
        home = tmp_path / str(cut)
        opened(home).append([entry("made")])
        file_of(home).write_bytes(data[:cut])
        seen.add(tuple(texts(opened(home))))
        again = opened(home)
        again.append([entry("next"), entry("last")])

        assert ["next", "last"] == texts(opened(home))[-2:]
        assert texts(opened(home))[:-2] in (["before"], ["before", "a", "b", "c"])
    file_of(tmp_path / str(start)).write_bytes(data)

    assert ["before", "a", "b", "c"] == texts(opened(tmp_path / str(start)))
    assert ("before",) in seen


def test_a_batch_that_was_cut_is_appended_again_under_the_same_ids(tmp_path: Path) -> None:
    """An id of a batch that never counted is not taken."""
    batches = opened(tmp_path)
    batches.append([entry("a", "1"), entry("b", "2"), entry("c", "3")])
    path = file_of(tmp_path)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
    again = opened(tmp_path)

    assert [] == texts(again)
    assert ["1", "2"] == again.append([entry("a", "1"), entry("b", "2")])
    assert ["3"] == again.append([entry("b", "2"), entry("c", "3")])
    assert ["a", "b", "c"] == texts(opened(tmp_path))


def test_an_id_counts_once(tmp_path: Path) -> None:
    """In one batch, in two, and in another process's."""
    first, second = opened(tmp_path), opened(tmp_path)
    first.append([entry("a", "1"), entry("twice", "1")])
    second.append([entry("again", "1"), entry("b", "2")])

    assert [] == first.append([entry("b", "2")])
    assert ["a", "b"] == texts(first) == texts(second)


def test_a_rewind_removes_nothing(tmp_path: Path) -> None:
    """What was left is in the log, off the line; what comes next goes on from there."""
    batches = opened(tmp_path)
    (first,) = batches.append([entry("kept")])
    batches.append([entry("left")])
    batches.rewind(first)
    batches.append([entry("instead")])
    read = Transcript.read(file_of(tmp_path).read_bytes())

    assert ["kept", "instead"] == texts(opened(tmp_path))
    assert b"left" in file_of(tmp_path).read_bytes()
    assert ["kept", "instead"] == [
        block["text"] for message in read.messages().messages for block in message["content"]
    ]


def test_an_emptied_list_goes_on_from_its_beginning(tmp_path: Path) -> None:
    """And what stood before stays before."""
    batches = opened(tmp_path)
    batches.append([entry("old"), entry("older")])
    batches.rewind(None)

    assert [] == texts(batches)
    batches.append([entry("new")])
    assert ["new"] == texts(batches) == texts(opened(tmp_path))


def test_a_record_may_go_on_from_an_earlier_one(tmp_path: Path) -> None:
    """Before and after the tip was moved: the last record is on the line either way."""
    batches = opened(tmp_path)
    (uuid,) = batches.append([entry("one")])
    batches.append([entry("two")])
    batches.append([entry("fork", parent=uuid)])

    assert ["one", "fork"] == texts(opened(tmp_path))
    batches.rewind(uuid)
    batches.append([entry("three"), entry("four")])
    batches.append([entry("five", parent=uuid)])
    assert ["one", "five"] == texts(batches) == texts(opened(tmp_path))
    read = Transcript.read(file_of(tmp_path).read_bytes())
    (message,) = read.messages().messages
    assert ["one", "five"] == [block["text"] for block in message["content"]]


def test_a_parent_that_nobody_knows_is_no_parent(tmp_path: Path) -> None:
    """The record goes on from the tip."""
    batches = opened(tmp_path)
    batches.append([entry("one")])
    batches.append([entry("two", parent="nowhere")])

    assert ["one", "two"] == texts(batches)


def test_a_damaged_line_costs_itself(tmp_path: Path) -> None:
    """Those before and behind it are read; it is counted."""
    batches = opened(tmp_path)
    for text in ("one", "two", "three"):
        batches.append([entry(text)])
    lines = file_of(tmp_path).read_bytes().splitlines(keepends=True)
    lines[2] = b'{"type":"user","ts"' + lines[2][30:]
    file_of(tmp_path).write_bytes(b"".join(lines))
    again = opened(tmp_path)
    news = [event.fields.get("content") for event in again.look()]

    assert ["one", "three"] == news
    assert 1 == again.skipped


def test_what_a_harness_records_in_between_is_left_alone(tmp_path: Path) -> None:
    """A session that is open beside the list: both see their own, and one log."""
    batches = opened(tmp_path)
    batches.append([entry("one")])
    with Journal(tmp_path).resume("list", mode="continue", project="p") as session:
        session.record("decision", {"text": "keep it simple"})
        batches.append([entry("two"), entry("three")])
    kinds = [event.type for event in codec.decode(file_of(tmp_path).read_bytes()).events]

    assert ["one", "two", "three"] == texts(batches)
    assert "decision" in kinds


def test_threads_and_objects_append_together_and_nothing_is_lost(tmp_path: Path) -> None:
    """Four writers, two objects, batches of two: each batch stands together."""
    lists = [opened(tmp_path), opened(tmp_path)]

    def write(number: int) -> None:
        for turn in range(25):
            lists[number % 2].append([entry(f"{number} {turn} a"), entry(f"{number} {turn} b")])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = texts(opened(tmp_path))

    assert 200 == len(stored) == len(set(stored))
    assert [text[:-1] + "b" for text in stored[::2]] == stored[1::2]


@pytest.mark.slow
def test_processes_append_together_and_an_id_counts_once(tmp_path: Path) -> None:
    """Three processes append the same ids: whoever is first."""
    script = (
        "import sys; from thence.journal import Journal\n"
        "from thence.journal.batches import BatchEntry as Entry\n"
        "batches = Journal(sys.argv[1]).batches('list', project='p')\n"
        "for n in range(40):\n"
        "    batches.append([Entry('user', {'role': 'user', 'content': str(n)}, f'id-{n}')])\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script, tmp_path]) for _ in range(3)]

    assert [0, 0, 0] == [writer.wait() for writer in writers]
    assert [str(number) for number in range(40)] == texts(opened(tmp_path))


def test_a_list_is_kept_in_memory_where_nothing_is_written(tmp_path: Path) -> None:
    """Every verb works, and the home stays empty."""
    batches = opened(tmp_path, enabled=False)
    (uuid,) = batches.append([entry("one")])
    batches.append([entry("two"), entry("three")])

    assert ["one", "two", "three"] == texts(batches)
    batches.rewind(uuid)
    assert ["one"] == texts(batches)
    batches.close()
    assert [] == list(tmp_path.iterdir())


def test_a_record_longer_than_any_reader_follows_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its reason, before anything is written."""
    monkeypatch.setattr(codec, "LINE_LIMIT", 1000)
    batches = opened(tmp_path)
    batches.append([entry("short")])
    with pytest.raises(BadArgument, match="longer than any reader follows"):
        batches.append([entry("also short"), entry("x" * 2000)])

    assert ["short"] == texts(batches)


def test_a_closed_list_can_be_appended_to_again(tmp_path: Path) -> None:
    """Closing ends the session cleanly and no more."""
    batches = opened(tmp_path)
    batches.append([entry("one")])
    batches.close()
    closed = Journal(tmp_path).sessions("p")[0].closed
    batches.append([entry("two")])

    assert closed
    assert ["one", "two"] == texts(batches) == texts(opened(tmp_path))


def test_a_long_list_goes_on_in_further_segments(tmp_path: Path) -> None:
    """A sync after the cap begins the next file; readers see one list."""
    batches = opened(tmp_path, max_bytes=2000)
    other = opened(tmp_path, max_bytes=2000)
    for number in range(40):
        (batches if number % 3 else other).append([entry(f"{number} {'x' * 100}")])
        batches.sync()
    numbers = [text.partition(" ")[0] for text in texts(opened(tmp_path))]

    assert [str(number) for number in range(40)] == numbers
    assert 1 < len(list((tmp_path / "sessions").rglob("*.jsonl")))
    assert numbers == [text.partition(" ")[0] for text in texts(other)]


def test_a_subagents_list_lies_beside_its_session(tmp_path: Path) -> None:
    """In the sidechains, told apart by the header."""
    journal = Journal(tmp_path)
    journal.batches("list", project="p").append([entry("parent")])
    journal.batches("list", project="p", agent="helper", name="sub/one").append([entry("child")])

    assert ["helper.jsonl"] == [path.name for path in (tmp_path / "sidechains").rglob("*.jsonl")]
    assert ["sub/one"] == [header["name"] for header in journal.read_headers("p", session="list")]
    assert ["list"] == [header["session_id"] for header in journal.read_headers("p")]
    assert [] == journal.read_headers("p", session="other")
