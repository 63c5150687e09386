"""Files of the real Grok client: tokens, calls and dead branches against what its API counted."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.groks import Folder, Growing, contents_of, log_lines
from thence.agents import Source
from thence.agents.grok.chat import NO_BILLS
from thence.agents.grok.reader import Grok, side_file
from thence.agents.grok.updates import COMPACTION, KILLED
from thence.agents.sessions import load, load_source, read_all
from thence.format import derived_events, lineage
from thence.format.facts import Block
from thence.format.repair import problems
from thence.format.session_graph import NEVER_BILLED, SessionGraph
from thence.format.turn import TurnState
from thence.memory.readouts import readout_of

KNOWN = {"grok": Grok()}


@pytest.fixture(scope="session")
def data(shared: Path) -> Path:
    """The recorded scenarios."""
    return shared / "data" / "grok"


def sessions(data: Path) -> Iterator[tuple[str, Source, SessionGraph, dict[str, dict[str, int]]]]:
    """Every recorded session with what the API counted in it."""
    for scenario in sorted(path for path in data.iterdir() if path.is_dir()):
        threads = json.loads((scenario / "truth.json").read_text())["threads"]
        for source in Grok().find(scenario / "grok_home"):
            truth = threads[source.session]
            counts = {"turn": truth["by_kind"]["turn"], "calls": truth["tool_calls"]}
            yield scenario.name, source, load_source(Grok(), source).graph, counts


def session_of(data: Path, scenario: str, end: str = "") -> SessionGraph:
    """One session of a scenario, by the end of its id."""
    sources = (s for s in Grok().find(data / scenario / "grok_home") if s.session.endswith(end))
    return load_source(Grok(), next(sources)).graph


def test_tokens_and_calls_are_what_the_api_counted(data: Path) -> None:
    """G6: in every field, or a lower bound that says why: two turns were killed unbilled."""
    short = {}
    for scenario, source, session, truth in sessions(data):
        turn, spent = (
            truth["turn"],
            derived_events.add_usage(session.spent.live, session.spent.dead),
        )
        names = Counter(pair.call.tool for pair in derived_events.calls(session.events))

        assert truth["calls"] == dict(names), source.session
        if session.spent.own != turn["total"]:
            short[scenario] = (
                session.spent.own,
                turn["total"],
                [n.detail for n in session.unbilled],
            )
        else:
            read = spent.cache_read_input_tokens
            counted = (spent.input_tokens + read, read, spent.output_tokens)
            assert (turn["input"], turn["cached"], turn["output"]) == counted, source.session
    assert {
        "killed-mid-tool": (3535, 5075, [KILLED]),
        "tui-approval-killed": (2355, 3895, [KILLED]),
    } == short


def test_all_recorded_sessions_are_read_without_a_loss(data: Path) -> None:
    """R4: no line skipped, every line of the log an event, messages that the API accepts."""
    count = 0
    for _, source, session, _ in sessions(data):
        count += 1
        lines = Path(source.path).read_bytes().count(b"\n")

        assert lines == len({f.line for f in session.facts if f.file == "1-log"}), source.session
        assert [] == problems(readout_of(session).messages().messages), source.session
    assert 23 == count


def test_parents_and_children_add_up_once(data: Path) -> None:
    """G6: 7,005 of its own and 1,530 and 1,878 of its children, of a bill of 10,413."""
    sessions_read = [
        load_source(Grok(), s).graph for s in Grok().find(data / "subagents" / "grok_home")
    ]

    assert [7005, 1530, 1878] == [session.spent.own for session in sessions_read]
    assert {session.native for session in sessions_read[1:]} == {
        edge.session for edge in sessions_read[0].edges
    }
    assert {("subagent", True)} == {(edge.link, edge.child) for edge in sessions_read[0].edges}


def test_compactions_are_told_to_be_unbilled(data: Path) -> None:
    """G11: one where it went well, one per failure where it did not."""
    assert [COMPACTION] == [n.detail for n in session_of(data, "compact-auto").unbilled]
    assert [COMPACTION] * 2 == [n.detail for n in session_of(data, "compact-failed").unbilled]


def test_what_the_model_sees_after_a_compaction(data: Path) -> None:
    """G11: the new history, then what followed; the result that it sums up is not repeated."""
    messages = readout_of(session_of(data, "compact-auto")).messages().messages
    texts = [part["text"] for part in messages[0]["content"]]

    assert ["user", "assistant", "user", "assistant"] == [m["role"] for m in messages]
    assert "Step two of the long task" == texts[1]
    assert texts[2].startswith("This session is being continued")
    assert "Step three done." == messages[-1]["content"][0]["text"]


def test_live_and_dead_events_of_a_rewind(data: Path) -> None:
    """G9: the first "Suggest a docstring" and its answer are taken back, and were paid for."""
    session = session_of(data, "tui-mixed-rewind-fork", "1782eb")
    asked, doc = "Suggest a docstring", '"""Return the sum of a and b."""'

    assert [
        ("What does calc.py do?", "live"),
        ("The user asks about calc.py.", "live"),
        ("calc.py defines add(a, b), but it subtracts.", "live"),
        ("turn end_turn", "live"),
        ("Run the long job", "live"),
        ("Start the long job.", "live"),
        ("Starting the long job.", "live"),
        ("ran echo started > job.txt; sleep 300", "orphaned"),
        ("Execute `echo started > job.txt; sleep 300`", "internal"),
        ("ran echo second", "live"),
        ("Execute `echo second`", "internal"),
        ("exit: 0 second", "live"),
        ("turn cancelled", "live"),
        ("Is that a bug?", "live"),
        ("add should add.", "live"),
        ("Yes: add() returns a - b.", "live"),
        ("turn end_turn", "live"),
        (asked, "rolled_back"),
        (doc, "rolled_back"),
        ("turn end_turn", "rolled_back"),
        ("rewound to prompt 3", "internal"),
        ("Name the functionSuggest a docstring", "live"),
        ("add", "live"),
        ("turn end_turn", "live"),
    ] == log_lines(session)[:24]
    assert (1412, 9243) == (session.spent.dead.total, session.spent.own)
    assert "my calc thread" == session.title


def test_a_forks_copies_are_replayed(data: Path) -> None:
    """G6: its own part is its last turn, of 1,412 tokens; the rest belongs to its parent."""
    session = session_of(data, "tui-mixed-rewind-fork", "8e9687")
    states = [state for _, state in log_lines(session)]

    assert ["replayed"] * 29 + ["internal"] + ["live"] * 3 == states
    assert (1412, []) == (session.spent.own, session.unbilled)


@pytest.mark.parametrize(("scenario", "copies"), [("fork", 9), ("tui-mixed-rewind-fork", 29)])
def test_copies_are_known_without_being_told(data: Path, scenario: str, copies: int) -> None:
    """G6: parent and fork hold records of the same keys."""
    sources = list(Grok().find(data / scenario / "grok_home"))
    shared = lineage.find_shared({s.session: read_all(Grok(), s)[0] for s in sources})

    assert [0, copies] == [len(shared.replayed[s.session]) for s in sources]


def test_failures_of_tools(data: Path) -> None:
    """G13: four failed statuses, and the command that completed with exit code 1."""
    pairs = derived_events.calls(session_of(data, "tools").events)
    failed = [pair.call.call for pair in pairs if pair.ending and pair.ending.failed]

    assert ["call_fail", "call_edit_bad", "call_unknown", "call_missing", "call_badjson"] == failed
    assert {None} == {
        pair.result.took_ms for pair in pairs if pair.result and pair.call.call in failed[2::2]
    }


def test_denials_are_failures(data: Path) -> None:
    """G13: a rule that denies lets the turn go on; nobody to ask ends it."""
    denied, cancelled = (session_of(data, "permission-denied", end) for end in ("891fc8", "cfbcaa"))

    assert [TurnState.DONE, TurnState.INTERRUPTED] == [w.turn().state for w in (denied, cancelled)]
    for session in (denied, cancelled):
        assert ["denied"] == [
            p.ending.why for p in derived_events.calls(session.events) if p.ending
        ]


def test_whole_outputs_lie_beside_the_log(data: Path) -> None:
    """R15: 288,894 bytes, of which the log holds the ends."""
    (source,) = Grok().find(data / "large-output" / "grok_home")
    call = Block("tool_call", "assistant", "", None, None, "call_huge")

    assert 288_894 == Path(side_file(source, call, call) or "").stat().st_size


KILLED_IN = (
    ("killed-mid-tool", TurnState.RUNNING, ("call_long",)),
    ("tui-approval-killed", TurnState.WAITING, ("call_push",)),
)


@pytest.mark.parametrize(("scenario", "state", "calls"), KILLED_IN)
def test_a_session_as_a_kill_left_it(
    data: Path, scenario: str, state: TurnState, calls: tuple[str, ...]
) -> None:
    """A1: open calls, an approval that is waited for, and a bill that is missing."""
    (path,) = (data / scenario / "at-kill" / "sessions").glob("*/0*")
    session = load(path, KNOWN).graph

    assert (state, calls) == (session.turn().state, session.turn().open_calls)
    assert TurnState.INTERRUPTED == session.turn(alive=False).state
    assert [NEVER_BILLED] == [notice.detail for notice in session.unbilled]


@pytest.mark.parametrize("scenario", ["killed-mid-tool", "tui-approval-killed"])
def test_reading_on_after_a_kill_equals_reading_at_once(
    data: Path, tmp_path: Path, scenario: str
) -> None:
    """R1: what the next start appended is all that is read, and the session is the same."""
    (before,) = (data / scenario / "at-kill" / "sessions").glob("*/0*")
    (after,) = (data / scenario / "grok_home" / "sessions").glob("*/0*")
    folder = Folder(tmp_path, before.name)
    shutil.copytree(before, folder.path, dirs_exist_ok=True)
    growing = Growing(folder)
    growing.read()
    lines = growing.lines
    shutil.copytree(after, folder.path, dirs_exist_ok=True)
    session = growing.read()

    logs = [file for file in folder.source.files if not file.is_document]
    assert contents_of(folder.graph) == contents_of(session)
    assert sum(Path(file.path).read_bytes().count(b"\n") for file in logs) >= growing.lines > lines


@pytest.mark.slow
def test_growth_byte_by_byte_equals_reading_at_once(data: Path, tmp_path: Path) -> None:
    """R1: every recorded log, in uneven pieces."""
    for at, (_, source, session, _) in enumerate(sessions(data)):
        folder = Folder(tmp_path / f"{at}", source.session)
        shutil.copytree(Path(source.path).parent, folder.path, dirs_exist_ok=True)
        log = Path(source.path).read_bytes()
        growing = Growing(folder)
        for end in (1, len(log) // 3, len(log) // 2 + 7, len(log) - 1, len(log)):
            (folder.path / "updates.jsonl").write_bytes(log[:end])
            grown = growing.read()

        assert contents_of(folder.graph)["events"] == contents_of(grown)["events"], source.session
        assert [e.event_id for e in session.events] == [e.event_id for e in grown.events]


def test_prompts_of_a_project(data: Path) -> None:
    """G1: the client's own history, headless prompts too, commands to the client not."""
    prompts = list(Grok().prompts(data / "plain-qa" / "grok_home"))

    assert ["What does calc.py do?", "Is that a bug?", "Name the function"] == [
        prompt.text for prompt in prompts
    ]
    assert {"/home/dev/project"} == {prompt.cwd for prompt in prompts}


def test_older_versions_of_public_collections(shared: Path) -> None:
    """G3: sessions that have a chat history only, in rows of two generations."""
    public = shared / "data" / "public" / "grok"
    counts = {}
    for chat in sorted(public.rglob("chat_history.jsonl")):
        session = load(chat, KNOWN).graph
        prompts = sum(event.kind == "user_msg" and not event.block for event in session.events)
        counts[session.native[-4:]] = (
            len(session.facts),
            prompts,
            len(derived_events.calls(session.events)),
        )

        assert [NO_BILLS] == [notice.detail for notice in session.unbilled]
        assert [] == problems(readout_of(session).messages().messages)
    assert {
        "8755": (11, 2, 3),
        "8756": (5, 1, 1),
        "0001": (9, 2, 2),
        "0002": (5, 1, 1),
    } == counts


def test_nothing_that_is_read_changes(data: Path) -> None:
    """R2: the recorded files are as they were."""
    files = [path for path in data.rglob("*") if path.is_file()]
    before = [path.stat().st_mtime_ns for path in files]
    for _ in sessions(data):
        pass

    assert before == [path.stat().st_mtime_ns for path in files]
