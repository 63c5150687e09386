"""Codex's files: which there are, whose they are, and what becomes of them when they change."""

from __future__ import annotations

import json
import random
from pathlib import Path

import msgspec
import pytest
import zstandard

from tests.agents.rollouts import (
    SEGMENT,
    A,
    B,
    Home,
    Line,
    assistant,
    billed,
    bytes_of,
    call,
    completed,
    counted,
    envelope,
    event,
    meta,
    numbered,
    output,
    started,
    tokens,
    user,
)
from thence.agents import Adapter, Cursor, files
from thence.agents.codex.reader import Codex
from thence.agents.sessions import read_all
from thence.format.facts import Fact
from thence.format.graph import State
from thence.format.session_graph import REWRITTEN, SessionGraph

TALK = [
    meta(),
    started("t1"),
    user("Name it"),
    assistant("I will look."),
    call("exec_command", "c1", cmd="ls"),
    billed(A, "r1", tokens(100, 10, 40)),
    output("c1", "Exit code: 0\nOutput:\na"),
    assistant("add"),
    billed(A, "r2", tokens(150, 5, 100)),
    completed("t1"),
]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """An empty home of Codex."""
    return Home(tmp_path)


def texts(session: SessionGraph, *states: State) -> list[str]:
    """What was said, of events in these states."""
    kinds = ("user_msg", "assistant_msg")
    return [e.summary for e in session.events if e.kind in kinds and e.state in states]


def view(session: SessionGraph) -> object:
    """All that a session comes to."""
    return session.events, session.about, session.edges, session.unbilled, session.spent


# -- where they are -------------------------------------------------------------------------


def test_it_is_an_adapter() -> None:
    """The protocol is kept."""
    assert isinstance(Codex(), Adapter)


def test_home_is_named_by_the_environment(tmp_path: Path) -> None:
    """X1: `CODEX_HOME` decides, else `.codex` in the user's home."""
    assert [tmp_path / ".codex"] == Codex().roots(tmp_path, {})
    assert [Path("/elsewhere")] == Codex().roots(tmp_path, {"CODEX_HOME": "/elsewhere"})


def test_rollouts_are_found_by_day_flat_and_archived(home: Home) -> None:
    """X1: the tree of days, the old flat layout, and the archive."""
    home.write(TALK)
    (home.root / "sessions" / home.path(B).name).write_bytes(bytes_of([meta(B)]))
    home.path(SEGMENT, archived=True).write_bytes(b"")
    (home.root / "sessions" / "notes.jsonl").write_text("{}\n")

    assert {A, B, SEGMENT} == {source.session for source in home.adapter.find(home.root)}


def test_segments_of_a_thread_are_one_session(home: Home) -> None:
    """Files of one thread are one source, the first segment first, keyed by the last uuid."""
    later = home.write([meta()], A, SEGMENT)
    first = home.write(TALK)
    (source,) = home.adapter.find(home.root)

    assert [A, SEGMENT] == [file.key for file in source.files]
    assert source == home.adapter.at(first) == home.adapter.at(later)


def test_plain_file_is_read_rather_than_its_packed_copy(home: Home) -> None:
    """X2: both may exist for a moment; they have the same identity."""
    path = home.write(TALK)
    Path(f"{path}.zst").write_bytes(zstandard.compress(path.read_bytes()))
    (source,) = home.adapter.find(home.root)

    assert [str(path)] == [file.path for file in source.files]


def test_file_in_both_places_is_one(home: Home) -> None:
    """R11: the same rollout, archived and not."""
    path = home.write(TALK)
    home.path(archived=True).write_bytes(path.read_bytes())
    (source,) = home.adapter.find(home.root)

    assert [str(path)] == [file.path for file in source.files]


def test_file_that_is_packed_or_archived_meanwhile_goes_on(home: Home) -> None:
    """X2: what had been read of the plain file is not read again from the packed one."""
    path = home.write(TALK)
    (source,) = home.adapter.find(home.root)
    first = home.adapter.read(source)
    packed = Path(f"{path}.zst")
    packed.write_bytes(zstandard.compress(path.read_bytes() + bytes_of([user("more")])))
    path.unlink()
    second = home.adapter.read(source, first.cursor)
    home.path(archived=True).write_bytes(zstandard.decompress(packed.read_bytes()))
    packed.unlink()
    third = home.adapter.read(source, second.cursor)

    assert (1, []) == (second.lines, second.skipped)
    assert (0, []) == (third.lines, third.skipped)


def test_loose_file_is_known_by_its_first_lines(tmp_path: Path) -> None:
    """A copy under any name is a session of its own, named as it says itself."""
    path = tmp_path / "copy.jsonl"
    path.write_bytes(bytes_of(TALK))
    source = Codex().at(path)

    assert source is not None
    assert (A, str(path)) == (source.session, source.path)


@pytest.mark.parametrize(
    "line",
    [
        {"type": "user", "uuid": "u", "parentUuid": None, "sessionId": "s", "message": {}},
        {"type": "header", "ts": "", "uuid": "u", "prev_uuid": None, "payload": {}},
        {"timestamp": 1, "method": "session/update", "params": {}},
        {"session_id": A, "ts": 1, "text": "a prompt"},
        {"type": "thread.started", "thread_id": A},
        {"type": "item.completed", "item": {"type": "agent_message"}},
        ["session_meta"],
    ],
)
def test_logs_of_others_are_not_claimed(tmp_path: Path, line: object) -> None:
    """X23: other agents' logs, histories, and what `codex exec --json` prints are no rollouts."""
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(line) + "\n")

    assert Codex().at(path) is None


def test_first_line_of_another_thread_does_not_rename_a_file(home: Home) -> None:
    """Identity is the name's; what a log says is never a path."""
    path = home.write([meta("../../../etc/passwd")])

    loaded = home.load()

    assert (A, str(path)) == (loaded.source.session, loaded.source.path)


def test_empty_and_header_only_files_are_sessions(home: Home) -> None:
    """R12: nothing was said in them, and nothing is wrong with them."""
    home.write([])
    home.write([meta(B)], B)
    empty, only = home.load().graph, home.load(None, B).graph

    assert ([], []) == (empty.events, texts(only, *State))
    assert "/p" == only.about["cwd"]


def test_name_without_first_line_is_enough(home: Home) -> None:
    """Without a session_meta the name of the file tells the thread."""
    assert A == home.load([user("hi")]).source.session


# -- histories and names --------------------------------------------------------------------


def test_prompt_history_in_all_units_of_time(home: Home) -> None:
    """X22, R16: seconds, milliseconds, text; lines that are no prompt are passed over."""
    lines: list[Line] = [
        {"session_id": A, "ts": 1794768192, "text": "one"},
        {"session_id": A, "ts": 1794768192000, "text": "two"},
        {"text": "three", "ts": "2026-11-15T18:43:12Z"},
        {"session_id": A, "ts": 1},
    ]
    (home.root / "history.jsonl").write_bytes(bytes_of(lines) + b"{torn")

    prompts = list(home.adapter.prompts(home.root))

    assert ["one", "two", "three"] == [prompt.text for prompt in prompts]
    assert prompts[0].ts == prompts[1].ts == "2026-11-15T18:43:12.000Z"
    assert (A, None) == (prompts[0].session, prompts[2].session)


def test_last_name_in_the_index_is_the_title(home: Home) -> None:
    """X21, R8: names are appended; the last one counts, and only for its thread."""
    names = [(A, "first"), (B, "other"), (A, "second")]
    rows = [{"id": thread, "thread_name": name} for thread, name in names]
    (home.root / "session_index.jsonl").write_bytes(bytes_of(rows))

    assert {A: "second", B: "other"} == home.adapter.titles(home.root)
    assert "second" == home.load(TALK).graph.title


def test_title_is_the_first_prompt_without_an_index(home: Home) -> None:
    """X21: databases and index are optional; their absence is normal."""
    assert "Name it" == home.load(TALK).graph.title


def test_name_given_in_the_log_counts(home: Home) -> None:
    """R8: some versions write the name into the rollout; the last one wins."""
    names = [event("thread_name_updated", thread_name=name) for name in ("old", "new")]

    assert "new" == home.load([*TALK, *names]).graph.title


def test_nothing_else_is_opened(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials and databases stay closed."""
    home.write(TALK)
    for name in ("auth.json", "state_5.sqlite", "config.toml"):
        (home.root / name).write_text("{}")
    opened: list[str] = []
    real = files.open_regular

    def noted(path: str) -> int:
        opened.append(path)
        return real(path)

    monkeypatch.setattr(files, "open_regular", noted)
    home.load()
    list(home.adapter.prompts(home.root))

    assert {"rollout-2026", "history.json"} >= {Path(path).name[:12] for path in opened}


def test_codex_says_nothing_of_running_and_deletes_nothing(home: Home) -> None:
    """No status is told, and no session ever expires."""
    assert ([], None) == (list(home.adapter.live(home.root)), home.adapter.keeps_days(home.root))


# -- growth and change ----------------------------------------------------------------------

GROWING = [
    *TALK,
    counted(tokens(250, 15)),
    started("t2"),
    user("And now?"),
    call("spawn_agent", "c2", message="x"),
    output("c2", json.dumps({"agent_id": B})),
    event("turn_aborted", turn_id="t2", reason="interrupted"),
    event("thread_rolled_back", num_turns=1),
    started("t3"),
    user("Once more"),
    envelope("compacted", {"message": "sum", "replacement_history": [user("Name it")["payload"]]}),
    assistant("yes"),
]


def test_reading_line_by_line_gives_the_same_session(home: Home) -> None:
    """Every prefix of lines, then the rest: as reading at once; then there is nothing to read."""
    data, path = bytes_of(GROWING), home.path()
    path.write_bytes(data)
    (source,) = home.adapter.find(home.root)
    session = SessionGraph(source.uid, read_all(home.adapter, source)[0])
    events: list[Fact] = []
    cursor: Cursor | None = None
    path.write_bytes(b"")
    for line in data.splitlines(keepends=True):
        with path.open("ab") as file:
            for piece in (line[: len(line) // 2], line[len(line) // 2 :]):
                file.write(piece)
                file.flush()
                batch = home.adapter.read(source, cursor)
                events, cursor = events + batch.events, batch.cursor

    assert view(session) == view(SessionGraph(source.uid, events))
    assert (0, []) == ((again := home.adapter.read(source, cursor)).lines, again.events)


def test_order_of_facts_and_files_does_not_matter(home: Home) -> None:
    """The same facts in any order are the same session, segments included."""
    home.write(GROWING)
    base = {"thread_id": A, "end_byte_offset": len(bytes_of(TALK))}
    home.write([meta(history_base=base), user("Elsewhere"), assistant("there")], A, SEGMENT)
    (source,) = home.adapter.find(home.root)
    facts, _ = read_all(home.adapter, source)
    shuffled = list(facts)
    random.Random(1).shuffle(shuffled)
    turned = msgspec.structs.replace(source, files=source.files[::-1])

    expected = view(SessionGraph(source.uid, facts))
    assert expected == view(SessionGraph(source.uid, shuffled))
    assert expected == view(SessionGraph(source.uid, read_all(home.adapter, turned)[0]))


def test_migrated_file_keeps_what_was_said(home: Home) -> None:
    """A rollout rewritten in place: what it still says is the same events, the rest is dead."""
    old = [
        meta(version="0.130.0"),
        started("t1"),
        user("Name it"),
        event("user_message", message="Name it"),
        call("exec_command", "c1", cmd="ls"),
        counted(tokens(100, 10)),
        output("c1", "a"),
        assistant("add"),
        counted(tokens(250, 15), tokens(150, 5)),
        completed("t1"),
    ]
    path = home.write(old)
    (source,) = home.adapter.find(home.root)
    first = home.adapter.read(source)
    before = SessionGraph(source.uid, first.events)
    new = [line for line in old if line["payload"].get("type") != "user_message"]
    for number, line in enumerate(new):
        if line["type"] == "response_item":
            line["payload"]["id"] = f"item-{number}"
    path.write_bytes(bytes_of(numbered(new)))
    second = home.adapter.read(source, first.cursor)
    after = SessionGraph(source.uid, first.events + second.events)

    assert [REWRITTEN] == [notice.what for notice in second.notices]
    assert before.spent == after.spent
    assert {e.event_id for e in before.events} <= {e.event_id for e in after.events}
    assert ["user_message"] == [e.summary for e in after.events if e.why == REWRITTEN]
    assert ["Name it", "add"] == texts(after, State.LIVE)


def test_every_line_is_an_event_or_told(home: Home) -> None:
    """R4, R7: unknown types are events, bad lines are counted, nothing vanishes."""
    path = home.write([*TALK, envelope("future_thing", {"x": 1}), event("zorp")])
    with path.open("ab") as file:
        file.write(b'{"timestamp":"x","type":"response_item","payl\n{"a":1}\n[]\n\n')
    (source,) = home.adapter.find(home.root)
    facts, batch = read_all(home.adapter, source)

    lines = {fact.line for fact in facts if fact.blocks} | {bad.line for bad in batch.skipped}
    assert set(range(1, len(TALK) + 6)) == lines
    assert ["bad json", "not an object"] == [bad.why for bad in batch.skipped]


def test_half_a_record_before_its_whole_copy_costs_nothing(home: Home) -> None:
    """X24, R6: a torn half, a BOM, NULs and lone surrogates around records."""
    half = bytes_of([assistant("lost")])[:40]
    path = home.write([])
    path.write_bytes(
        b"\xef\xbb\xbf"
        + bytes_of([meta()])
        + half
        + bytes_of([user("Kept")])
        + b"\0\0"
        + bytes_of([assistant("a \ud800 b")])
    )
    loaded = home.load()

    assert ["Kept", "a \ud800 b"] == texts(loaded.graph, State.LIVE)
    assert [1, 1] == [bad.salvaged for bad in loaded.skipped]


def test_sources_stay_as_they_are(home: Home) -> None:
    """Nothing is written, not even a time."""
    path = home.write(TALK)
    before = path.stat()
    home.load()
    after = path.stat()

    assert before[:7] == after[:7]
    assert before.st_mtime_ns == after.st_mtime_ns
    assert [path] == [p for p in home.root.rglob("*") if p.is_file()]
