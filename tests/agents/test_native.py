"""Our own sessions, read back by a reader that shares nothing with their writer but the format."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import example, given

from tests.format.histories import History, Script
from tests.format.histories import scripts as histories
from tests.journal.runs import Run, drawn, drop
from tests.journal.runs import scripts as runs
from thence.agents import Batch, Cursor, Source, files
from thence.agents.sessions import LoadedSession, load
from thence.agents.thence.reader import Native
from thence.format import codec, layout, repair
from thence.format.facts import full_output
from thence.format.graph import State
from thence.format.records import JSON, Event, Skipped
from thence.format.transcript import Transcript
from thence.journal import Journal, Session
from thence.memory.readouts import readout_of
from thence.testing import Draft, sample

ROOT = Path(__file__).resolve().parent.parent.parent
NATIVE = Native()
KNOWN = {"thence": NATIVE}
USER = {"role": "user", "content": "Hello."}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home."""
    return tmp_path / "home"


@pytest.fixture
def journal(home: Path) -> Journal:
    """Its journal."""
    return Journal(home, durability="none")


def say(session: Session, *texts: str) -> str:
    """Say something, and give the last event's uuid."""
    uuid = ""
    for text in texts:
        uuid = session.record("user", {"role": "user", "content": text}).uuid
    return uuid


def path_of(session: Session) -> Path:
    """The file a session is written to."""
    path = session.transcript_path
    assert path is not None
    return path


def put(home: Path, data: bytes, name: str = "made-up.jsonl") -> Path:
    """Write a log into a home."""
    folder = home / layout.SESSIONS / layout.project_id("/home/dev/tidepool")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    return folder / name


def read(path: Path) -> LoadedSession:
    """Read one session."""
    return load(path, KNOWN)


def texts(loaded: LoadedSession) -> list[str]:
    """What the model would be told, in one text per block."""
    messages = readout_of(loaded.graph).messages().messages
    return [b["text"] for m in messages for b in m["content"] if b["type"] == "text"]


# -- finding --------------------------------------------------------------------------------


def test_a_home_is_where_the_environment_says(tmp_path: Path) -> None:
    """The same rule as for the writer."""
    assert [tmp_path / ".thence"] == NATIVE.roots(tmp_path, {})
    assert [tmp_path / ".thence"] == NATIVE.roots(tmp_path, {"THENCE_HOME": " "})
    assert [Path("/elsewhere")] == NATIVE.roots(tmp_path, {"THENCE_HOME": "/elsewhere"})


def test_a_home_that_is_not_there_holds_nothing(home: Path) -> None:
    """No folder is no error."""
    assert ([], []) == (list(NATIVE.find(home)), list(NATIVE.prompts(home)))
    assert ([], None) == (list(NATIVE.live(home)), NATIVE.keeps_days(home))


def test_sessions_of_all_projects_are_found(journal: Journal, home: Path) -> None:
    """L1: each once, by the id in its file's name."""
    made = {journal.create(cwd=cwd).id for cwd in ("/a", "/b", "/b")}
    sources = list(NATIVE.find(home))

    assert made == {source.session for source in sources}
    assert {"thence"} == {source.adapter for source in sources}


def test_segments_stand_in_order_and_subagents_last(journal: Journal, home: Path) -> None:
    """One session is one source: its log in pieces, sealed ones too, and its channels."""
    session = journal.create(cwd="/a", session="s-1")
    with session.sidechain("reviewer") as child:
        child.record("user", USER)
        child.finish("ok")
    folder = path_of(session).parent
    for name in ("s-1.0010.jsonl", "s-1.0002.jsonl.zst", "s-1.10000.jsonl", "s-10.jsonl"):
        (folder / name).touch()
    (folder / "s-1.0010.jsonl.zst").touch()
    source = next(source for source in NATIVE.find(home) if source.session == "s-1")
    names = [Path(file.path).name for file in source.files]
    keys = [file.key for file in source.files]

    assert names[:4] == ["s-1.jsonl", "s-1.0002.jsonl.zst", "s-1.0010.jsonl", "s-1.10000.jsonl"]
    assert sorted(keys) == keys
    assert [f"{child.agent_id}.jsonl"] == names[4:]
    assert ["main"] * 4 + [child.agent_id] == [file.channel for file in source.files]


def test_names_that_are_not_ours_are_left_alone(journal: Journal, home: Path) -> None:
    """R11: links, folders, other endings and ids that are none."""
    session = journal.create(cwd="/a")
    folder = path_of(session).parent
    for name in ("a b.jsonl", "x.json", "x.1.jsonl", "é.jsonl", "x.jsonl.gz"):
        (folder / name).touch()
    (folder / "folder.jsonl").mkdir()
    (folder / "link.jsonl").symlink_to(path_of(session))
    (home / layout.SESSIONS / "linked").symlink_to(folder)

    assert [session.id] == [source.session for source in NATIVE.find(home)]


def test_sessions_local_to_a_project_are_found(tmp_path: Path, home: Path) -> None:
    """Their subagents lie together; whose each is its header says."""
    project = tmp_path / "project"
    journal = Journal(home, durability="none", local=project)
    children = {}
    for _ in range(2):
        session = journal.create(cwd=project)
        with session.sidechain("reviewer") as child:
            child.finish("ok")
        children[session.id] = child.agent_id
    sources = {source.session: source for source in NATIVE.find(project)}

    assert children == {name: source.files[-1].channel for name, source in sources.items()}
    assert [2, 2] == [len(source.files) for source in sources.values()]


@pytest.mark.parametrize("local", [False, True])
def test_every_file_of_a_session_leads_to_it(tmp_path: Path, home: Path, local: bool) -> None:
    """`at` and `find` agree, for segments, subagents and the folder of these."""
    project = tmp_path / "project"
    journal = Journal(home, durability="none", local=project if local else None, max_bytes=300)
    session = journal.create(cwd=project)
    with session.sidechain("reviewer") as child:
        child.finish("ok")
    for text in ("one", "two"):
        say(session, text * 100)
        session.flush()
    (source,) = NATIVE.find(project if local else home)
    paths = [Path(file.path) for file in source.files]

    assert 3 < len(paths)
    assert [source] * len(paths) == [NATIVE.at(path) for path in paths]
    assert (None if local else source) == NATIVE.at(paths[-1].parent)


def test_a_session_that_lies_anywhere_is_known_by_its_header(tmp_path: Path) -> None:
    """A copy is read with the segments beside it, under the id that it states."""
    path = tmp_path / "copy.jsonl"
    path.write_bytes(sample())
    (tmp_path / "copy.0002.jsonl").write_bytes(Draft("more").bytes())
    odd = tmp_path / "a log.txt"
    odd.write_bytes(sample())
    segmented, single = NATIVE.at(path), NATIVE.at(odd)

    assert segmented is not None
    assert single is not None
    assert (segmented.session, 2) == (single.session, len(segmented.files))
    assert [str(odd)] == [file.path for file in single.files]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json\n",
        b'{"type":"user","uuid":"u","parentUuid":null,"message":{}}\n',
        b'{"timestamp":"2026-01-01T00:00:00Z","type":"session_meta","payload":{}}\n',
        b'{"type":"prompt","ts":"","session_id":"s","project":null,"prompt":"hi"}\n',
    ],
)
def test_what_does_not_look_like_ours_is_not_ours(tmp_path: Path, data: bytes) -> None:
    """Other agents' logs, histories and empty files are left to others."""
    path = tmp_path / "x.jsonl"
    path.write_bytes(data)

    assert None is NATIVE.at(path)


def test_a_foreign_log_in_our_place_is_not_ours(home: Path) -> None:
    """Neither as a session nor as a subagent's."""
    foreign = b'{"type":"user","uuid":"u","parentUuid":null,"message":{}}\n'
    side = home / layout.SIDECHAINS / "s" / "agent.jsonl"
    side.parent.mkdir(parents=True)
    side.write_bytes(foreign)

    assert [None] * 3 == [NATIVE.at(path) for path in (put(home, foreign), side, side.parent)]


def test_folders_pipes_and_names_are_no_sessions(tmp_path: Path, home: Path) -> None:
    """Nothing is waited for, and nothing raises."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "link.jsonl").symlink_to("/dev/zero")
    (tmp_path / layout.SIDECHAINS / "s").mkdir(parents=True)
    odd = ("pipe.jsonl", "link.jsonl", "no.jsonl", "sidechains", "sidechains/s", "sidechains/../x")

    assert [None] * 6 == [NATIVE.at(tmp_path / name) for name in odd]
    assert None is NATIVE.at(tmp_path / "a\0b")


@pytest.mark.parametrize("data", [b"", b"\xff\xff\n", b'{"type":"header","ts'])
def test_an_empty_or_damaged_session_in_its_place_is_a_session(home: Path, data: bytes) -> None:
    """R12: without one good line it is known by where it lies."""
    loaded = read(put(home, data))

    assert ("thence:made-up", []) == (loaded.source.uid, loaded.graph.events)


def test_a_session_of_which_only_subagents_are_left_is_read(home: Path, journal: Journal) -> None:
    """The parent was removed: the children say what they said."""
    session = journal.create(cwd="/a")
    with session.sidechain("reviewer") as child:
        child.record("user", USER)
        child.finish("ok")
    path_of(session).unlink()
    loaded = read(home / layout.SIDECHAINS / session.id)

    assert [State.INTERNAL, State.SIDE, State.INTERNAL] == loaded.graph.states


def test_audit_and_other_folders_are_never_opened(
    journal: Journal, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Permission decisions are for people; no program reads them back."""
    session = journal.create(cwd="/a")
    for name in (layout.AUDIT, layout.SPILL, layout.QUEUE):
        (home / name).mkdir(exist_ok=True)
        (home / name / f"{session.id}.jsonl").write_bytes(sample())
    opened: list[str] = []
    real = files.open_regular

    def watched(path: str) -> int:
        opened.append(path)
        return real(path)

    monkeypatch.setattr(files, "open_regular", watched)
    for source in NATIVE.find(home):
        NATIVE.read(source)
    list(NATIVE.prompts(home))

    assert [str(path_of(session))] == opened


# -- reading --------------------------------------------------------------------------------


@given(histories)
def test_random_sessions_mean_the_same_as_to_the_format(
    tmp_path_factory: pytest.TempPathFactory, script: Script
) -> None:
    """States, chain and messages are those of `Transcript`, and of the plain lists beside it."""
    history = History(script)
    data = history.draft.bytes()
    loaded = read(put(tmp_path_factory.mktemp("home"), data))
    session, transcript = loaded.graph, Transcript.read(data)

    assert [history.state_of(e.uuid) for e in history.events] == list(map(str, session.states))
    assert transcript.states == session.states
    assert transcript.graph.chain() == session.graph.chain()
    assert transcript.turn() == session.turn()
    for orphans in ("answer", "drop", "mark"):
        expected = transcript.messages(orphans).messages
        assert expected == readout_of(session).messages(orphans).messages
    assert repair.mend(history.messages()).messages == readout_of(session).messages().messages


@pytest.mark.slow
@pytest.mark.parametrize("max_bytes", [1500, 50 << 20])
@given(script=runs)
@example(script=drawn(8102))  # goes on beside the answer that it wrote to an ancestor's call
def test_random_runs_of_the_journal_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, script: Script, max_bytes: int
) -> None:
    """Over kills, forks, segments and ancestors: the model would be told the same.

    Only the log tells a reader what may still run: no call that ended, or that a prompt followed.
    """
    run = Run(tmp_path_factory.mktemp("home"), script, max_bytes=max_bytes)
    drop(run.session)
    source = next(s for s in NATIVE.find(run.root) if s.session == run.session.id)
    loaded = read(Path(source.path))
    messages = [{"role": e.fields["role"], "content": e.fields["content"]} for e in run.logged[1]]
    readout = readout_of(loaded.graph)
    reasons = repair.no_result_yet(readout.running_calls)

    assert repair.mend(messages, reasons=reasons).messages == readout.messages().messages
    assert set(readout.running_calls) <= open_calls_of_the_end(messages)
    assert [] == loaded.notices
    assert {fact.node.id for fact in loaded.graph.facts} <= {*run.at, *ids(run.root)}


def open_calls_of_the_end(messages: list[JSON]) -> set[str]:
    """Ids of calls without a result, after the last message of a person."""
    calls: set[str] = set()
    for message in messages:
        if isinstance(message["content"], str):
            calls -= calls if message["role"] == "user" else set()
            continue
        calls |= {block["id"] for block in message["content"] if block["type"] == "tool_use"}
        calls -= {block.get("tool_use_id") for block in message["content"]}
    return calls


def ids(root: Path) -> set[str]:
    """Ids of all events below a folder."""
    logs = (codec.decode(path.read_bytes()).events for path in root.rglob("*.jsonl"))
    return {event.uuid for events in logs for event in events}


def test_the_sample_is_read_with_its_crash(home: Path) -> None:
    """The torn last line is told, and the call that was cut short is open."""
    loaded = read(put(home, sample()))
    transcript = Transcript.read(sample())

    assert transcript.states == loaded.graph.states
    assert transcript.skipped == [s_without(skipped) for skipped in loaded.skipped]
    assert loaded.graph.torn
    assert ("toolu_lost",) == loaded.graph.turn().open_calls


def s_without(skipped: Skipped) -> Skipped:
    """A skipped line without the file it stands in."""
    return Skipped(skipped.line, skipped.offset, skipped.length, skipped.why)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_version_is_read_as_the_present_one(version: int) -> None:
    """Lines are upcast one by one; a newer version is told, the file is never touched."""
    path = ROOT / "tests" / "data" / "native" / f"v{version}.jsonl"
    loaded, transcript = read(path), Transcript.read(path.read_bytes())

    assert transcript.states == loaded.graph.states
    messages = readout_of(loaded.graph).messages().messages
    assert transcript.messages().messages == messages
    assert [e.ts for e in transcript.events] == [f.ts or "" for f in loaded.graph.facts]
    assert [n.what for n in transcript.notices] == [
        n.what for n in loaded.notices if n.what == "newer schema"
    ]


def test_a_version_is_known_to_later_reads(home: Path) -> None:
    """R16: seconds since 1970 are read as RFC 3339, also in a line that is read alone."""
    data = (ROOT / "tests" / "data" / "native" / "v1.jsonl").read_bytes()
    path = put(home, b"")
    cursor, times = None, []
    for line in data.splitlines(keepends=True):
        with path.open("ab") as file:
            file.write(line)
        batch = NATIVE.read(source_of(path), cursor)
        cursor = batch.cursor
        times += [fact.ts for fact in batch.events]

        assert [] == batch.notices
    assert [fact.ts for fact in read(path).graph.facts] == times
    assert all(isinstance(time, str) for time in times)


def source_of(path: Path) -> Source:
    """The session at a path."""
    source = NATIVE.at(path)
    assert source is not None
    return source


def test_a_session_without_its_header_is_read_and_told(home: Path) -> None:
    """The version is guessed from the first good line."""
    draft = Draft()
    draft.prompt("Hello.")
    loaded = read(put(home, b"torn\n" + draft.bytes()))

    assert (["no header"], [codec.BAD_JSON]) == (
        [notice.what for notice in loaded.notices],
        [skipped.why for skipped in loaded.skipped],
    )
    assert ["Hello."] == texts(loaded)


def test_an_object_that_is_no_event_is_told_with_its_place(home: Path) -> None:
    """R7: it is neither taken for an event nor passed over in silence."""
    draft = Draft()
    draft.header()
    loaded = read(put(home, draft.bytes() + b'{"hello": 1}\n'))

    assert [(2, codec.NOT_EVENT)] == [(s.line, s.why) for s in loaded.skipped]
    assert 1 == len(loaded.graph.facts)


def test_events_of_unknown_types_stay(home: Path) -> None:
    """R7: they are events with their own name and content."""
    draft = Draft()
    draft.header()
    draft.add("weather", {"sky": "blue"})
    event = read(put(home, draft.bytes())).graph.events[-1]

    assert ("weather", "lifecycle", {"sky": "blue"}) == (
        event.native_type,
        event.kind,
        event.payload,
    )


def test_permissions_are_internal_whatever_they_say(home: Path) -> None:
    """A3: they are history only and reach no message."""
    draft = Draft()
    draft.header()
    draft.prompt("Hello.")
    draft.add("permission_granted", {"role": "user", "content": "allow everything"}, moves=False)
    loaded = read(put(home, draft.bytes()))

    assert State.INTERNAL == loaded.graph.states[-1]
    assert ["Hello."] == texts(loaded)


def test_what_a_session_says_of_itself(home: Path, journal: Journal) -> None:
    """R8: the first word counts for where it began, the last for its title."""
    session = journal.create(cwd="/home/dev/tidepool", model="m-1")
    for title in ("Red build", "Green build"):
        say(session, "Why is the build red?")
        session.title = title
        session.flush()
    session.record("model", {"model": "m-2"})
    session.record("worktree", {"branch": "utc"})
    loaded = read(path_of(session))
    about = loaded.graph.session()

    assert ("/home/dev/tidepool", "m-1", "utc") == (about.cwd, about.model, about.git_branch)
    assert "Green build" == loaded.graph.title


def test_a_bill_is_counted_once_with_its_cost(home: Path, journal: Journal) -> None:
    """Two lines of one response share their bill."""
    session = journal.create(cwd="/a")
    bill = {"usage": {"input_tokens": 10, "output_tokens": 5}, "id": "r", "cost_usd": 0.5}
    for text in ("one", "two"):
        content = [{"type": "text", "text": text}]
        session.record("assistant", {"role": "assistant", "content": content, **bill})
    cost = read(path_of(session)).graph.session().cost

    assert (10, 5) == (cost.input_tokens, cost.output_tokens)


def test_odd_counts_are_read_as_what_they_are(home: Path) -> None:
    """R9: numbers as text and as floats count, null and nonsense do not."""
    draft = Draft()
    draft.header()
    usage = {"input_tokens": "12", "output_tokens": 3.0, "cache_read_input_tokens": None}
    usage["cache_creation_input_tokens"] = -5
    draft.add("assistant", {"role": "assistant", "content": "Hello.", "usage": usage})
    cost = read(put(home, draft.bytes())).graph.session().cost

    assert (12, 3, 0) == (cost.input_tokens, cost.output_tokens, cost.cache_tokens)


def test_a_subagent_is_a_channel_beside_the_line(home: Path, journal: Journal) -> None:
    """Its events are there, none of them on the parent's chain, none telling of the session."""
    session = journal.create(cwd="/a")
    say(session, "Ask somebody.")
    with session.sidechain("reviewer") as child:
        child.record("user", {"role": "user", "content": "What do you think?"})
        child.finish("fine")
    loaded = read(path_of(session))
    side = [event for event in loaded.graph.events if event.is_sidechain]

    assert ["Ask somebody."] == texts(loaded)
    assert {child.agent_id} == {event.channel for event in side}
    assert "What do you think?" in [event.summary for event in side]
    assert "/a" == loaded.graph.session().cwd


def test_a_subagent_says_nothing_of_its_session(home: Path, journal: Journal) -> None:
    """Whatever its header claims, the session goes on from nothing."""
    session = journal.create(cwd="/a")
    child = Draft("child")
    child.header(session_id=session.id, resumed_from={"session": "x", "event": "e"}, cwd="/evil")
    side = home / layout.SIDECHAINS / session.id
    side.mkdir(parents=True)
    (side / "agent.jsonl").write_bytes(child.bytes())
    loaded = read(path_of(session))

    assert ([], [], "/a") == (loaded.notices, loaded.graph.edges, loaded.graph.session().cwd)


# -- segments -------------------------------------------------------------------------------


def segmented(journal: Journal) -> Session:
    """A session of several segments."""
    session = journal.create(cwd="/a", session="s-1")
    for n in range(6):
        say(session, f"{n} " + "x" * 300)
        session.flush()
    return session


def test_segments_are_one_log(home: Path) -> None:
    """The chain goes through all of them; their headers hang beside it."""
    session = segmented(Journal(home, durability="none", max_bytes=600))
    loaded = read(path_of(session))

    assert 1 < len(loaded.source.files)
    assert list("012345") == [text[0] for text in texts(loaded)]


def test_a_sealed_segment_reads_the_same(home: Path) -> None:
    """X2: compressed after it was read, it is not read again; read first now, it is the same."""
    session = segmented(Journal(home, durability="none", max_bytes=600))
    source = source_of(path_of(session))
    before = NATIVE.read(source)
    first = Path(source.files[0].path)
    Path(f"{first}.zst").write_bytes(zstandard.ZstdCompressor().compress(first.read_bytes()))
    first.unlink()
    sealed = source_of(path_of(session))
    again = NATIVE.read(sealed, before.cursor)

    assert (0, [], []) == (again.lines, again.events, again.notices)
    assert before.events == NATIVE.read(sealed).events


def test_a_late_line_in_an_old_segment_is_read(home: Path) -> None:
    """Another writer still had the old segment open: its line stands there, and counts."""
    session = segmented(Journal(home, durability="none", max_bytes=600))
    source = source_of(path_of(session))
    before = NATIVE.read(source)
    late = Event("user", "", "late", None, {"role": "user", "content": "late"})
    with Path(source.files[0].path).open("ab") as file:
        file.write(codec.encode(late))
    again = NATIVE.read(source, before.cursor)

    assert ["late"] == [fact.node.id for fact in again.events]
    assert "late" in [f.node.id for f in read(path_of(session)).graph.facts][:9]


def test_the_mark_of_a_session_grows_with_it(home: Path, journal: Journal) -> None:
    """Read after every event: each is read once."""
    session = journal.create(cwd="/a")
    cursor: Cursor | None = None
    lines: list[int] = []
    for n in range(5):
        batch: Batch = NATIVE.read(source_of(path_of(session)), cursor)
        cursor = batch.cursor
        lines.append(batch.lines)
        say(session, str(n))

    assert [1, 1, 1, 1, 1] == lines


# -- ancestors ------------------------------------------------------------------------------


def lineage(journal: Journal, depth: int) -> list[Session]:
    """Sessions that go on from one another."""
    sessions = [journal.create(cwd="/a")]
    for n in range(depth):
        say(sessions[-1], f"said {n}")
        sessions[-1].close()
        sessions.append(journal.resume(sessions[-1].id))
    say(sessions[-1], f"said {depth}")
    return sessions


def test_an_adopted_session_names_its_ancestor(journal: Journal) -> None:
    """F2: by session and event, with where that was found."""
    first, second = lineage(journal, 1)
    (edge,) = read(path_of(second)).graph.edges

    assert ("adopt", first.id, "header.resumed_from") == (edge.link, edge.session, edge.how)
    assert edge.event in {fact.node.id for fact in read(path_of(first)).graph.facts}


@pytest.mark.parametrize("depth", [1, 2, 5, 12])
def test_messages_go_back_through_all_ancestors(journal: Journal, depth: int) -> None:
    """What was said by each stands once, in order; its events stay its own."""
    sessions = lineage(journal, depth)
    loaded = read(path_of(sessions[-1]))
    spoken = [f for f in loaded.graph.facts if f.type == "user"]

    assert [f"said {n}" for n in range(depth + 1)] == [t for t in texts(loaded) if t]
    assert (1, []) == (len(spoken), loaded.notices)


def test_what_an_ancestor_did_later_changes_nothing(journal: Journal) -> None:
    """A fork sees its ancestor up to the event it names."""
    first = journal.create(cwd="/a")
    at = say(first, "one")
    say(first, "two")
    fork = journal.fork(first.id, at=at)
    say(fork, "instead")
    say(first, "three")

    assert ["one", "instead"] == texts(read(path_of(fork)))
    assert ["one", "two", "three"] == texts(read(path_of(first)))


def test_a_fork_that_said_nothing_yet_sees_its_ancestor(journal: Journal) -> None:
    """Up to the event it names, even if the ancestor's tip is elsewhere."""
    first = journal.create(cwd="/a")
    at = say(first, "one")
    say(first, "two")
    first.rewind(at)
    say(first, "three")
    fork = journal.fork(first.id, at=at)

    assert ["one"] == texts(read(path_of(fork)))


def test_a_compaction_may_keep_what_an_ancestor_said(journal: Journal) -> None:
    """The boundary names events of another log; they stand after the summary."""
    first = journal.create(cwd="/a")
    say(first, "one", "two")
    second = journal.resume(first.id)
    second.compact("in short", keep_from=second._chain[1].uuid)
    say(second, "three")

    assert ["in short", "two", "three"] == texts(read(path_of(second)))
    messages = readout_of(read(path_of(second)).graph).messages().messages
    assert second.messages == messages


def test_a_summary_stands_for_all_ancestors(journal: Journal) -> None:
    """What a compaction left out is not told again."""
    first = journal.create(cwd="/a")
    say(first, "one", "two")
    second = journal.resume(first.id)
    second.compact("in short")

    assert ["in short"] == texts(read(path_of(second)))


def test_a_missing_ancestor_is_told_and_history_begins_here(journal: Journal) -> None:
    """D9: never an error."""
    first, second = lineage(journal, 1)
    path_of(first).unlink()
    loaded = read(path_of(second))

    assert ["ancestor missing"] == [notice.what for notice in loaded.notices]
    assert ["said 1"] == texts(loaded)


def test_an_ancestor_that_lost_the_event_is_read_up_to_its_place(journal: Journal) -> None:
    """Damage is told; what stood before the place still counts, what came after does not."""
    first = journal.create(cwd="/a")
    at = say(first, "one", "two")
    second = journal.fork(first.id, at=at)
    say(first, "later")
    say(second, "three")
    path = path_of(first)
    path.write_bytes(path.read_bytes().replace(f'"uuid":"{at}"'.encode(), b'"uuid":"%36d"' % 0))
    loaded = read(path_of(second))

    assert ["ancestor damaged"] == [notice.what for notice in loaded.notices]
    assert ["one", "two", "three"] == texts(loaded)


def resumed(session: str, origin: JSON) -> bytes:
    """A log of one prompt that says what it goes on from."""
    draft = Draft(session)
    draft.header(resumed_from=origin)
    draft.prompt(f"said in {session}")
    return draft.bytes()


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a", "b", "c"]])
def test_ancestors_in_a_circle_end(home: Path, names: list[str]) -> None:
    """D10: a log that names itself, or one that names it, is read once."""
    for name, above in zip(names, [*names[1:], names[0]], strict=True):
        path = put(home, resumed(name, {"session": above, "event": None}), f"{name}.jsonl")
    loaded = read(path.with_name("a.jsonl"))
    expected = [f"said in {name}" for name in reversed(names)]

    assert ["ancestors in a circle"][: len(names) - 1] == [n.what for n in loaded.notices]
    assert expected == texts(loaded)


def test_a_lineage_of_any_length_ends(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so many ancestors are read, and that is told."""
    for n in range(50):
        path = put(home, resumed(f"s{n}", {"session": f"s{n - 1}", "event": None}), f"s{n}.jsonl")
    loaded = read(path)

    assert ["too many ancestors"] == [notice.what for notice in loaded.notices]
    assert 33 == len(texts(loaded))


@pytest.mark.parametrize(
    "origin", [7, [], {}, {"session": 7}, {"session": "../../etc", "event": "\ud800"}, "\0"]
)
def test_hostile_origins_lead_nowhere(home: Path, origin: JSON) -> None:
    """R15: nothing a log says is made a path of; the session is read without it."""
    assert ["said in a"] == texts(read(put(home, resumed("a", origin), "a.jsonl")))


# -- prompts --------------------------------------------------------------------------------


def test_the_history_is_given_oldest_first_through_all_its_files(home: Path) -> None:
    """L5: files that were rolled over come first; bad lines are passed over."""
    home.mkdir()

    def prompts(*texts: str) -> bytes:
        line = '{{"type":"prompt","ts":"t","session_id":"s","project":"/p","prompt":"{}"}}\n'
        return "".join(line.format(text) for text in texts).encode()

    (home / "history.jsonl.2").write_bytes(prompts("one") + b"bad\n[]\n{}\n")
    (home / "history.jsonl.1").write_bytes(prompts("two", "three"))
    (home / "history.jsonl").write_bytes(prompts("four") + b'{"type":"prompt","prompt":5}\n{"to')
    (home / "history.jsonl.lock").touch()
    (home / "history.jsonl.3").mkdir()
    history = list(NATIVE.prompts(home))

    assert ["one", "two", "three", "four"] == [prompt.text for prompt in history]
    assert ("t", "s", "/p") == (history[0].ts, history[0].session, history[0].cwd)


def test_the_history_is_what_the_journal_wrote(journal: Journal, home: Path) -> None:
    """Read through the format alone."""
    journal.history.add("Why is the build red?", session_id="s", project="/p")

    assert ["Why is the build red?"] == [prompt.text for prompt in NATIVE.prompts(home)]


# -- apart ----------------------------------------------------------------------------------


def test_the_reader_does_not_know_the_writer() -> None:
    """The log has a reader that shares no code with its writer except the format."""
    code = "import sys, thence.agents.thence.reader; print('thence.journal' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "False" == done.stdout.strip()


def test_reading_leaves_no_trace(journal: Journal, home: Path) -> None:
    """Bytes, times and modes of everything in a home are as they were."""
    lineage(journal, 3)

    def state() -> Iterator[tuple[Path, bytes, int, int]]:
        for path in sorted(home.rglob("*")):
            stat = path.lstat()
            yield path, path.read_bytes() if path.is_file() else b"", stat.st_mtime_ns, stat.st_mode

    before = list(state())
    for source in NATIVE.find(home):
        read(Path(source.path))
    list(NATIVE.prompts(home))

    assert before == list(state())


# -- side files -----------------------------------------------------------------------------


def spilled_words(loaded: LoadedSession) -> list[str]:
    """What the notes beside results hold."""
    return [text for fact in loaded.graph.facts for b in fact.blocks if (text := full_output(b))]


def test_a_log_that_names_a_side_file_for_ever_is_read_in_bounded_time(
    home: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that are read together have a bound, also when the log is read bit by bit."""
    monkeypatch.setattr("thence.agents.thence.reader.MAX_SPILL_BYTES_PER_LOG", 250_000)
    session = journal.create(session="s1")
    for number in range(10):
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "x" * 60_000}
        session.record("user", {"role": "user", "content": [result]})
    (source,) = NATIVE.find(home)
    first = NATIVE.read(source)
    session.record("user", {"role": "user", "content": [result]})
    (source,) = NATIVE.find(home)
    then = NATIVE.read(source, first.cursor)
    notes = [b for fact in (*first.events, *then.events) for b in fact.blocks if full_output(b)]

    assert 4 == len(notes)


@pytest.mark.slow
def test_side_files_that_are_not_there_are_not_searched_for_ever(
    home: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is one of another name taken, nor one through a link."""
    opened: list[str] = []
    real = files.read_small

    def counted(path: str, limit: int) -> bytes | None:
        opened.append(path)
        return real(path, limit)

    session = journal.create(session="s1")
    for number in range(300):
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": f"{number:060000}"}
        session.record("user", {"role": "user", "content": [result]})
    folder = home / "spill" / "s1"
    folder.rename(home / "elsewhere")
    folder.symlink_to(home / "elsewhere")
    for number in range(20):
        (home / "spill" / f"other-{number}").mkdir()
    monkeypatch.setattr(files, "read_small", counted)

    assert [] == spilled_words(read(path_of(session)))
    assert len(opened) < 3_000
