"""Whole sessions from their files: who reads them, what is told when nobody can, and lineage."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from thence.agents import Batch, Cursor, File, Mark, Source, adapters, files
from thence.agents.sessions import MAX_ANCESTORS, load, load_source, read_all
from thence.errors import NotReadable, SessionNotFound, ThenceError
from thence.format import codec
from thence.format.facts import Base, Block, Fact, line_name
from thence.format.nodes import PREVIOUS, Is, Node
from thence.format.records import JSON
from thence.memory.readouts import readout_of
from thence.testing import sample

USER, SUMMARY = "user", "summary"


class Plain:
    """A made-up agent with logs of `{"say": text}`; `{"base": [log, line]}` goes on from another.

    Lines name no parents, as in logs that are plain sequences.
    """

    name = "plain"

    def __init__(self, limits: files.Limits | None = None) -> None:
        self.limits = limits
        self.finds = 0

    def roots(self, home: Path, env: object) -> list[Path]:
        """One."""
        return [home]

    def find(self, root: Path) -> Iterator[Source]:
        """A log, a session."""
        self.finds += 1
        for entry in files.walk(str(root), 0):
            if entry.name.endswith(".plain"):
                path = Path(entry.path)
                yield Source(self.name, path.stem, (File(entry.path, path.stem),), str(root))

    def at(self, path: Path) -> Source | None:
        """By its name."""
        return next((s for s in self.find(path.parent) if s.path == str(path)), None)

    def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
        """As all do."""
        return files.read(source, cursor, PlainRecords, limits=self.limits)

    def live(self, root: Path) -> Iterator[JSON]:
        """None."""
        return iter(())

    def prompts(self, root: Path) -> Iterator[JSON]:
        """None."""
        return iter(())

    def keeps_days(self, root: Path) -> int | None:
        """For ever."""
        return None


class PlainRecords:
    """Its records."""

    def __init__(self, source: Source, file: File, mark: Mark) -> None:
        self.file, self.mark = file, mark

    def facts(self, record: codec.RawRecord) -> list[Fact]:
        """One each."""
        value, base = record.value, record.value.get("base")
        text = value.get("say")
        summary = bool(value.get("summary"))
        flags = Is.SUMMARY if summary else Is.PROMPT if text else Is.INTERNAL
        return [
            Fact(
                Node(line_name(self.file.key, record.raw), PREVIOUS, flags),
                blocks=(Block("user_msg", "user" if text else "system", payload=text),),
                file=self.file.key,
                generation=self.mark.generation,
                line=record.place.line,
                offset=record.place.offset,
                ordinal=record.place.line,
                base=Base(base[0], ordinal=base[1]) if base else None,
            )
        ]

    def carry(self) -> JSON:
        """Nothing."""
        return None


def put(folder: Path, name: str, *lines: JSON) -> Path:
    """Write a log."""
    path = folder / f"{name}.plain"
    path.write_bytes(b"".join(codec._encoder.encode(line) + b"\n" for line in lines))
    return path


def say(*texts: str) -> list[JSON]:
    """Lines that say something."""
    return [{"say": text} for text in texts]


def messages_and_notices(path: Path) -> tuple[list[str], list[str]]:
    """What the model would be told, and the notices."""
    loaded = load(path, {"plain": Plain()})
    messages = readout_of(loaded.graph).messages().messages
    texts = [block["text"] for message in messages for block in message["content"]]
    return texts, [notice.what for notice in loaded.notices]


# -- who reads it ---------------------------------------------------------------------------


def test_the_first_adapter_that_knows_a_path_reads_it(tmp_path: Path) -> None:
    """Whoever wrote it, one verb is enough."""
    path = tmp_path / "session.jsonl"
    path.write_bytes(sample())

    assert "thence" == load(path).source.adapter
    assert "plain" == load(put(tmp_path, "a", *say("hi")), {"plain": Plain()}).source.adapter


def raised(path: Path) -> ThenceError:
    """Why a path cannot be read."""
    with pytest.raises(ThenceError) as caught:
        load(path)
    return caught.value


def test_a_path_that_is_not_there_is_told(tmp_path: Path) -> None:
    """By name, and with something to try instead."""
    error = raised(tmp_path / "no")

    assert (SessionNotFound, f"no such file: {tmp_path / 'no'}") == (type(error), error.message)
    assert "--sample" in (error.hint or "")


@pytest.mark.parametrize("data", [b"", b"hello\n", b"{}\n", b"\x89PNG\r\n", b"[1]\n"])
def test_a_file_that_is_nobodys_is_told_with_whose_are_read(tmp_path: Path, data: bytes) -> None:
    """The agents that are known stand in the hint."""
    path = tmp_path / "x.jsonl"
    path.write_bytes(data)
    error = raised(path)

    assert (NotReadable, f"not a session of a known agent: {path}") == (type(error), error.message)
    assert all(name in (error.hint or "") for name in adapters())


def test_a_link_is_told_with_where_it_leads(tmp_path: Path) -> None:
    """It is not followed; whoever means its target can say so."""
    target = tmp_path / "target.jsonl"
    target.write_bytes(sample())
    (tmp_path / "link").symlink_to(target)
    error = raised(tmp_path / "link")

    assert error.message.startswith("symbolic links are not followed")
    assert f"name {target.resolve()}" == error.hint


def test_a_broken_link_and_a_circle_of_links_end(tmp_path: Path) -> None:
    """Neither is followed."""
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / "circle").symlink_to("circle")

    assert 2 == len([raised(tmp_path / name) for name in ("broken", "circle")])


def test_a_pipe_is_told_and_not_waited_for(tmp_path: Path) -> None:
    """Only regular files are read."""
    os.mkfifo(tmp_path / "pipe")

    assert f"not a regular file: {tmp_path / 'pipe'}" == raised(tmp_path / "pipe").message


def test_a_folder_of_many_sessions_is_told(tmp_path: Path) -> None:
    """Which of them is meant has to be said."""
    assert f"a folder is not a session: {tmp_path}" == raised(tmp_path).message


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "file/below"])
def test_a_name_that_cannot_be_is_told(tmp_path: Path, name: str) -> None:
    """No name raises anything but our own errors."""
    (tmp_path / "file").touch()

    assert raised(tmp_path / name).hint


def test_a_file_of_somebody_else_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is the right, not the file."""
    path = put(tmp_path, "a")
    monkeypatch.setattr(os, "access", lambda *_: False)

    assert f"permission denied: {path}" == raised(path).message


def test_every_error_has_a_hint(tmp_path: Path) -> None:
    """Whatever is wrong, something can be done."""
    (tmp_path / "empty").touch()

    assert all(raised(path).hint for path in (tmp_path, tmp_path / "no", tmp_path / "empty"))


# -- all of it ------------------------------------------------------------------------------


def test_a_session_is_read_to_its_end_whatever_the_budget(tmp_path: Path) -> None:
    """A small budget takes more reads and gives the same."""
    path = put(tmp_path, "a", *say(*map(str, range(50))))
    small = Plain(files.Limits(bytes=1))
    source = small.at(path)
    assert source is not None
    events, total = read_all(small, source)
    once, all_of_it = read_all(Plain(), source)

    assert (once, all_of_it.lines, all_of_it.bytes) == (events, total.lines, total.bytes)


def test_an_adapter_that_never_gets_done_ends(tmp_path: Path) -> None:
    """A read that says it is not done and moves nothing is the last."""

    class Stuck(Plain):
        def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
            return Batch([], [], cursor or Cursor(), done=False)

    assert [] == load(put(tmp_path, "a"), {"stuck": Stuck()}).graph.facts


def test_a_torn_tail_is_told_with_its_place(tmp_path: Path) -> None:
    """It is a skipped line of the loaded session, though no batch passes it."""
    path = put(tmp_path, "a", *say("one"))
    with path.open("ab") as log:
        log.write(b'{"say": "tw')
    loaded = load(path, {"plain": Plain()})

    assert [(2, 14, 11, codec.TORN)] == [
        (s.line, s.offset, s.length, s.why) for s in loaded.skipped
    ]
    assert loaded.graph.torn


# -- lineage --------------------------------------------------------------------------------


def test_what_a_log_goes_on_from_is_read_as_well(tmp_path: Path) -> None:
    """X7: by reference, up to the place it names."""
    put(tmp_path, "a", *say("one", "two", "three"))
    path = put(tmp_path, "b", {"base": ["a", 3]}, *say("four"))

    assert (["one", "two", "four"], []) == messages_and_notices(path)


def test_ancestors_of_ancestors_are_read(tmp_path: Path) -> None:
    """To any depth, each of them once, and looked for once."""
    put(tmp_path, "s0", *say("0"))
    for n in range(1, 10):
        path = put(tmp_path, f"s{n}", {"base": [f"s{n - 1}", 99]}, *say(str(n)))
    adapter = Plain()
    source = adapter.at(path)
    assert source is not None
    adapter.finds = 0
    load_source(adapter, source)

    assert (list("0123456789"), []) == messages_and_notices(path)
    assert 1 == adapter.finds


def test_a_summary_takes_the_place_of_ancestors(tmp_path: Path) -> None:
    """What was compacted is not told again."""
    put(tmp_path, "a", *say("one"))
    path = put(tmp_path, "b", {"base": ["a", 9]}, {"say": "in short", "summary": True})

    assert (["in short"], []) == messages_and_notices(path)


def test_a_missing_ancestor_costs_a_notice(tmp_path: Path) -> None:
    """History begins where the log does."""
    path = put(tmp_path, "b", {"base": ["gone", 3]}, *say("four"))

    assert (["four"], ["ancestor missing"]) == messages_and_notices(path)


@pytest.mark.parametrize("names", ["a", "ab", "abc"])
def test_ancestors_in_a_circle_end(tmp_path: Path, names: str) -> None:
    """D10: each is read once."""
    for name, above in zip(names, names[1:] + names[0], strict=True):
        put(tmp_path, name, {"base": [above, 99]}, *say(name))
    texts, notices = messages_and_notices(tmp_path / "a.plain")

    assert list(reversed(names)) == texts
    assert ["ancestors in a circle"] * (len(names) > 1) == notices


def test_only_so_many_ancestors_are_read(tmp_path: Path) -> None:
    """A lineage without an end is told."""
    for n in range(MAX_ANCESTORS + 9):
        path = put(tmp_path, f"s{n}", {"base": [f"s{n - 1}", 99]}, *say(str(n)))
    texts, notices = messages_and_notices(path)

    assert (MAX_ANCESTORS + 1, ["too many ancestors"]) == (len(texts), notices)
