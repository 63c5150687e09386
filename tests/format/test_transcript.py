"""One session read back from its bytes: everything in it, however little is left of it."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.format import codec, schema
from thence.format.nodes import Is, Span
from thence.format.records import PAYLOADS, Event, Header, Notice, Skipped
from thence.format.repair import NO_RESULT_YET, Orphans, problems, synthetic
from thence.format.state import Domain, Domains
from thence.format.todos import Step, Todo
from thence.format.transcript import Transcript, node_of, steps
from thence.format.turn import TurnNow, TurnState
from thence.testing import SAMPLE_SESSION, Draft, sample

OPEN = Notice("not closed", "no terminator, so still running or crashed")


def read(draft: Draft) -> Transcript:
    """A draft as its bytes tell it."""
    return Transcript.read(draft.bytes())


def begun() -> Draft:
    """A session with a header, a prompt and an answer."""
    draft = Draft()
    draft.header()
    draft.prompt("go")
    draft.reply("gone")
    return draft


def message_texts(transcript: Transcript) -> list[Any]:
    """The messages for the model, texts alone."""
    messages = transcript.messages().messages
    return [[block.get("text") for block in message["content"]] for message in messages]


def answer_all(transcript: Transcript) -> None:
    """Ask everything there is to ask; the messages must be valid."""
    for orphans in get_args(Orphans):
        assert [] == problems(transcript.messages(orphans).messages)
    assert len(transcript.events) == len(transcript.places) == sum(transcript.counts().values())
    _ = transcript.header, transcript.pending, transcript.degraded, transcript.turn()
    assert transcript.report() == transcript.report()
    for at in range(len(transcript.events)):
        assert transcript.events[at] in transcript.chain(at)


# -- the sample -------------------------------------------------------------------------------


def test_sample_has_one_of_every_state_it_shows() -> None:
    """Live, dead, orphaned and internal events; every event in one state."""
    transcript = Transcript.read(sample())

    assert 29 == len(transcript.events)
    assert {
        "replayed": 0,
        "internal": 4,
        "rolled_back": 0,
        "side": 0,
        "dead": 4,
        "orphaned": 1,
        "live": 20,
    } == transcript.counts()


def test_sample_has_its_header() -> None:
    """The first line tells which session it is."""
    header = Transcript.read(sample()).header

    assert (
        Header(
            SAMPLE_SESSION,
            "2026-11-15T13:12:00.000Z",
            None,
            schema.CURRENT,
            "/home/dev/tidepool",
            "claude-opus-5-5",
            0.0,
        )
        == header
    )


def test_promise_of_the_last_answer_is_owed() -> None:
    """What the agent said it still needs to do, if nothing came after it."""
    draft = begun()
    draft.reply("Windows are cut in UTC now. I still need to add a test for Lord Howe.")
    transcript = read(draft)

    assert [
        Todo(
            "add a test for Lord Howe",
            "pending",
            "intention",
            transcript.events[-1].uuid,
            key="add a test for lord howe",
        )
    ] == transcript.pending


def test_sample_owes_nothing() -> None:
    """What it still needed to do was said before the last prompt."""
    assert [] == Transcript.read(sample()).pending


def test_sample_stopped_in_a_call() -> None:
    """Running as far as the log knows, its last line torn."""
    transcript = Transcript.read(sample())

    assert TurnNow(TurnState.RUNNING, True, ("toolu_lost",), 28) == transcript.turn()
    assert TurnState.INTERRUPTED == transcript.turn(alive=False).state


def test_sample_lost_nothing_but_its_torn_line() -> None:
    """Line, offset, length and reason are told."""
    transcript = Transcript.read(sample())
    offset = sample().rindex(b"\n") + 1

    assert [Skipped(30, offset, 57, codec.TORN)] == transcript.skipped
    assert (True, offset) == (transcript.torn, transcript.end)
    assert (None, [], [OPEN]) == (transcript.degraded, transcript.notices, transcript.report())


def test_sample_is_a_history_the_api_accepts() -> None:
    """Compacted, rewound and cut short as it is."""
    mended = Transcript.read(sample()).messages()
    first, last = mended.messages[0], mended.messages[-1]

    assert [] == problems(mended.messages)
    assert 15 == len(mended.messages)
    assert first["content"][0]["text"].startswith("Cause: windows walked local time.")
    assert (NO_RESULT_YET, "toolu_lost") == (
        last["content"][0]["content"],
        last["content"][0]["tool_use_id"],
    )
    assert ["toolu_lost"] == [call["id"] for call in mended.open_calls]
    assert ([], False) == (mended.left_out, mended.opened)


@pytest.mark.parametrize(("orphans", "length"), [("answer", 15), ("drop", 13), ("mark", 14)])
def test_sample_is_valid_however_orphans_are_treated(orphans: Orphans, length: int) -> None:
    """The caller chooses."""
    messages = Transcript.read(sample()).messages(orphans).messages

    assert [] == problems(messages)
    assert length == len(messages)


def test_sample_shows_the_model_no_dead_branch() -> None:
    """What was rewound is in the file and not in the history."""
    shown = json.dumps(Transcript.read(sample()).messages().messages)

    assert b"fold=1" in sample()
    assert "fold=1" not in shown


def test_sample_knows_its_state() -> None:
    """Cost, files, model and place, compacted events included."""
    state = Transcript.read(sample()).state
    cost = {name: state.cost[name] for name in ("input", "output", "responses", "usd")}

    assert {"input": 10800, "output": 720, "responses": 9, "usd": 0.0} == cost
    assert ["tidepool/windows.py", "tidepool/feed.py", "tidepool/alerts.py"] == list(state.files)
    assert {"model": "claude-opus-5-5", "overrides": {}} == state.model
    assert ("/home/dev/tidepool", [], {}) == (state.cwd, state.todos, state.worktree)
    assert [1, 1, 1] == [len(turns) for turns in state.attribution.values()]
    assert 2 == len({turns[0] for turns in state.attribution.values()})


# -- next to nothing --------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"\n", b"\n\n \n\t\n"], ids=repr)
def test_no_bytes_are_an_empty_session(data: bytes) -> None:
    """Nothing is there and nothing is wrong."""
    transcript = Transcript.read(data)

    assert ([], [], [], None) == (
        transcript.events,
        transcript.skipped,
        transcript.report(),
        transcript.header,
    )
    assert ([], [], TurnState.DONE, False) == (
        transcript.messages().messages,
        transcript.pending,
        transcript.turn().state,
        transcript.torn,
    )
    answer_all(transcript)


@pytest.mark.parametrize(
    "data",
    [
        b"garbage\nmore garbage\n",
        b"\x00" * 4096 + b"\n",
        b"\xff\xfe\xfd\n",
        b"[]\n5\n",
        b"{}\n",
        b'{"type":"user"',
    ],
    ids=repr,
)
def test_garbage_is_an_empty_session_that_says_so(data: bytes) -> None:
    """Every line is listed with its reason."""
    transcript = Transcript.read(data)

    assert [] == transcript.events
    assert len(data.splitlines()) == len(transcript.skipped)
    answer_all(transcript)


def test_header_alone_is_a_session() -> None:
    """It was opened, and nobody spoke."""
    draft = Draft()
    draft.header()
    transcript = read(draft)

    assert transcript.header is not None
    assert SAMPLE_SESSION == transcript.header.session_id
    assert ([], "/home/dev/tidepool", TurnState.DONE) == (
        transcript.messages().messages,
        transcript.state.cwd,
        transcript.turn().state,
    )


def test_session_without_its_header_is_read() -> None:
    """Its loss is told and costs no message."""
    draft = begun()
    lines = draft.lines()
    transcript = Transcript.read(b"".join(lines[1:]))

    assert None is transcript.header
    assert Notice("no header", "the first line is no header") == transcript.notices[0]
    assert [["go"], ["gone"]] == message_texts(transcript)


def test_header_that_makes_no_sense_is_none() -> None:
    """And what it says wrongly is not taken over."""
    draft = Draft()
    uuid = draft.add("header", {"session_id": 5, "cwd": ["/w"], "model": {}})
    draft.prompt("go")
    transcript = read(draft)

    assert [Notice("malformed header", uuid), OPEN] == transcript.report()
    assert (None, None, None) == (
        transcript.header,
        transcript.state.cwd,
        transcript.state.model["model"],
    )
    assert [["go"]] == message_texts(transcript)


def test_header_beside_the_line_is_still_heard() -> None:
    """Writers that link their first prompt to nothing have a header all the same."""
    draft = Draft()
    draft.header(cwd="/w")
    draft.tip = None
    draft.prompt("go")

    assert "/w" == read(draft).state.cwd


# -- versions ---------------------------------------------------------------------------------


def test_old_session_is_read_as_the_present_one() -> None:
    """Each line is upcast when it is read; the bytes stay."""
    lines = [
        {
            "type": "header",
            "ts": 1.5,
            "uuid": "h",
            "prev_uuid": None,
            "payload": {"session_id": "s"},
        },
        {
            "type": "user",
            "ts": 2.5,
            "uuid": "u",
            "prev_uuid": "h",
            "payload": {"role": "user", "content": "hi"},
        },
    ]
    transcript = Transcript.read(b"".join(json.dumps(line).encode() + b"\n" for line in lines))

    assert (1, []) == (transcript.version, transcript.notices)
    assert ["1970-01-01T00:00:01.500Z", "1970-01-01T00:00:02.500Z"] == [
        event.ts for event in transcript.events
    ]
    assert transcript.header is not None
    assert [["hi"]] == message_texts(transcript)


def test_newer_session_is_read_and_announced() -> None:
    """Best effort, and it says so."""
    draft = Draft()
    draft.header(schema_version=99, mood="new")
    draft.prompt("hi")
    transcript = read(draft)

    assert 99 == transcript.version
    assert "newer schema" == transcript.report()[0].what
    assert [["hi"]] == message_texts(transcript)


# -- two passes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "texts"),
    [
        ({"content": "no role"}, ["go", "no role"]),
        ({"message": {"role": "user", "content": "nested"}}, ["go", "nested"]),
        ({"role": "user"}, ["go"]),
        ({}, ["go"]),
        ("no object", ["go"]),
        (None, ["go"]),
    ],
    ids=["no role", "nested", "no content", "empty", "text", "null"],
)
def test_session_whose_state_cannot_be_read_gives_its_messages_alone(
    payload: Any, texts: list[str]
) -> None:
    """The second pass takes them from whatever lines still hold one, and says so."""
    draft = Draft()
    draft.header()
    draft.prompt("go")
    draft.add("user", payload)
    draft.reply("gone")
    transcript = read(draft)

    assert transcript.degraded is not None
    assert transcript.degraded.startswith("KeyError")
    assert [texts, ["gone"]] == message_texts(transcript)
    assert [] == problems(transcript.messages().messages)


def test_degraded_session_says_so_in_its_report() -> None:
    """Beside what else was found."""
    draft = begun()
    draft.add("user", {})

    assert [Notice("state lost", "messages: KeyError: 'role'"), OPEN] == read(draft).report()


def test_degraded_session_keeps_its_other_state() -> None:
    """The messages' fold failed, nobody else's."""
    draft = begun()
    draft.add("cwd", {"cwd": "/elsewhere"})
    draft.add("user", {})
    transcript = read(draft)

    assert "/elsewhere" == transcript.state.cwd
    assert {"messages"} == set(transcript.state.failed)
    assert 1 == transcript.state.cost["responses"]


def test_whole_session_is_not_degraded() -> None:
    """Another domain's failure does not cost the messages."""
    draft = begun()
    draft.add("todos", {})
    transcript = read(draft)

    assert None is transcript.degraded
    assert [["go"], ["gone"]] == message_texts(transcript)
    assert ["todos"] == list(transcript.state.failed)


@pytest.mark.parametrize("kind", ["permission_grant", "permission-mode", "turn", "cwd", "todos"])
def test_second_pass_takes_no_message_from_what_is_none(kind: str) -> None:
    """Not from events about permissions, nor from any other known type."""
    draft = begun()
    draft.add("user", {})
    draft.add(kind, {"role": "user", "content": "allow all", "cwd": "/w", "todos": []})

    assert [["go"], ["gone"]] == message_texts(read(draft))


def test_second_pass_answers_open_calls_too() -> None:
    """What it gives is as valid as the first pass."""
    draft = begun()
    draft.add("user", {"content": "and now"})
    draft.reply(Draft.call("a", "Bash", command="ls"))
    transcript = read(draft)

    assert transcript.degraded
    assert [] == problems(transcript.messages().messages)
    assert ["a"] == [call["id"] for call in transcript.messages().open_calls]


# -- boundaries -------------------------------------------------------------------------------


def compacted(state: Any, *, after: Any = None) -> Draft:
    """A session with a todo, compacted by a boundary with a state of its own."""
    draft = begun()
    draft.add("todos", {"todos": ["from the root"]})
    summary = draft.add("summary", {"role": "user", "content": "so far"})
    draft.add("boundary", {"anchor_uuid": summary, "summary_event_uuid": summary, "state": state})
    if after is not None:
        draft.add("todos", {"todos": after})
    draft.prompt("and now")
    return draft


def snapshot(version: int = 1, todos: int = 1) -> dict[str, Any]:
    """A boundary's state that says something else than the events before it."""
    value = {"version": todos, "value": ["from the snapshot"]}
    return {"version": version, "domains": {"todos": value}}


def test_state_of_a_boundary_is_used() -> None:
    """What it holds is not folded again, and the rest comes from the root."""
    state = read(compacted(snapshot())).state

    assert ["from the snapshot"] == state.todos
    assert ("/home/dev/tidepool", 1) == (state.cwd, state.cost["responses"])


def test_events_after_a_boundary_go_on_from_its_state() -> None:
    """It is a state as of the boundary, no more."""
    assert ["later"] == read(compacted(snapshot(), after=["later"])).state.todos


@pytest.mark.parametrize(
    "state",
    [
        snapshot(version=2),
        snapshot(todos=2),
        {"version": 1, "domains": {"todos": {"version": 1, "value": 5}}},
        {"version": 1},
        "no object",
        None,
    ],
    ids=["version", "domain", "shape", "empty", "text", "none"],
)
def test_state_that_is_not_understood_is_folded_from_the_root(state: Any) -> None:
    """A cache that cannot be read costs time only."""
    transcript = read(compacted(state))

    assert ["from the root"] == transcript.state.todos
    assert {} == transcript.state.failed


def test_promise_from_before_a_compaction_is_still_owed() -> None:
    """The summary need not repeat it; the next prompt makes it old news."""
    draft = begun()
    draft.reply("- [ ] Add a test for leap years")
    draft.compact("so far")
    draft.prompt("and now")

    assert ["Add a test for leap years"] == [todo.text for todo in read(draft).pending]


def test_line_holds_what_the_chain_leaves_out() -> None:
    """The originals stay readable through any number of compactions."""
    transcript = read(compacted(None))
    types = [event.type for event in transcript.line()]

    assert ["header", "user", "assistant", "todos", "summary", "boundary", "user"] == types
    assert ["summary", "boundary", "user"] == [event.type for event in transcript.chain()]


def test_boundary_off_the_chain_is_not_used() -> None:
    """Whoever rewinds to before it is before it in every respect."""
    draft = compacted(snapshot())
    draft.rewind(draft.events[3].uuid)

    assert ["from the root"] == read(draft).state.todos


def test_model_sees_the_summary_and_what_came_after() -> None:
    """The originals stay readable on the whole line."""
    transcript = read(compacted(None))

    assert [["so far", "and now"]] == message_texts(transcript)
    assert 2 == sum(event.type == "user" for event in transcript.events)


def test_boundary_that_points_nowhere_is_told_at_once() -> None:
    """It patches nothing; the first report is as full as the second."""
    draft = begun()
    uuid = draft.add("boundary", {"anchor_uuid": "gone", "summary_event_uuid": "gone"})
    draft.prompt("and now")
    transcript = read(draft)

    assert [Notice("boundary link", uuid), OPEN] == transcript.report()
    assert [["go"], ["gone"], ["and now"]] == message_texts(transcript)


def test_broken_links_are_told() -> None:
    """Bridged, and named by the event that had them."""
    draft = begun()
    uuid = draft.prompt("who?", parent="gone")
    transcript = read(draft)

    assert [Notice("bridged link", uuid), OPEN] == transcript.report()
    assert [["go"], ["gone"], ["who?"]] == message_texts(transcript)


# -- what a crash leaves half done ------------------------------------------------------------


def test_session_that_was_closed_has_nothing_to_report() -> None:
    """A whole session is silent."""
    draft = compacted(None)
    draft.add("sidechain", {"agent_id": "a", "completion_status": "running"}, moves=False)
    draft.add("sidechain", {"agent_id": "a", "completion_status": "finished"}, moves=False)
    draft.close()

    assert [] == read(draft).report()


def test_half_a_compaction_is_told() -> None:
    """Killed between the summary and its boundary: the chain before it holds."""
    draft = begun()
    uuid = draft.add("summary", {"role": "user", "content": "lost"})
    transcript = read(draft)

    assert Notice("half a compaction", uuid) in transcript.report()
    assert [["go"], ["gone"]] == message_texts(transcript)


def test_compaction_in_the_other_spelling_is_whole() -> None:
    """Whoever wrote it."""
    draft = begun()
    uuid = draft.add("summary", {"role": "user", "content": "so far"})
    draft.add("boundary", {"anchorUuid": uuid, "summaryEventUuid": uuid})

    assert [OPEN] == read(draft).report()


@pytest.mark.parametrize("status", ["running", None])
def test_subagent_of_which_nothing_more_was_heard_is_told(status: str | None) -> None:
    """Never taken for one that said nothing."""
    draft = begun()
    draft.add("sidechain", {"agent_id": "a", "completion_status": status}, moves=False)

    assert Notice("subagent never ended", "a") in read(draft).report()


@pytest.mark.parametrize("payload", [None, [], {"anchor_uuid": []}, {"agent_id": {}, "to": []}])
def test_report_is_given_whatever_the_books_hold(payload: Any) -> None:
    """Damage in what keeps the books is told like any other."""
    draft = begun()
    for kind in ("boundary", "sidechain", "summary", "header", "terminator", "tip"):
        draft.add(kind, payload, moves=False)

    assert [["go"], ["gone"]] == message_texts(read(draft))
    assert read(draft).report()


# -- nodes ------------------------------------------------------------------------------------


def node(kind: str, payload: Any) -> Any:
    """The node of an event."""
    return node_of(Event(kind, "", "e", "p", payload))


@pytest.mark.parametrize(
    ("kind", "payload", "flags"),
    [
        ("user", {"content": "hi"}, Is.PROMPT),
        ("user", {"content": [{"type": "text", "text": "hi"}]}, Is.PROMPT),
        ("user", {"content": [{"type": "tool_result", "tool_use_id": "c"}]}, 0),
        ("user", None, Is.PROMPT),
        ("assistant", {"content": "hi"}, Is.REPLY | Is.ENDS),
        ("assistant", {"content": [{"type": "text"}]}, Is.REPLY | Is.ENDS),
        ("assistant", {"content": [{"type": "tool_use", "id": "c"}]}, Is.REPLY),
        ("assistant", {"content": "hi", "stop_reason": "tool_use"}, Is.REPLY),
        ("assistant", {"content": [], "stop_reason": "tool_use"}, Is.REPLY),
        ("summary", {"content": "so far"}, Is.SUMMARY),
        ("header", {}, Is.INTERNAL),
        ("turn", {}, Is.INTERNAL),
        ("sidechain", {}, Is.INTERNAL),
        ("tip", {"to": "x"}, Is.INTERNAL),
        ("boundary", {}, Is.INTERNAL),
        ("terminator", {}, Is.INTERNAL | Is.CLOSES),
        ("waiting", {}, Is.INTERNAL | Is.WAITS),
        ("interrupted", {}, Is.INTERRUPTS | Is.BY_USER),
        ("interrupted", {"by": "timer"}, Is.INTERRUPTS),
        ("permission_grant", {"role": "user", "content": "x"}, Is.INTERNAL),
        ("permission-mode", {}, Is.INTERNAL),
        ("cwd", {"cwd": "/w"}, 0),
        ("deploy", {}, 0),
    ],
)
def test_node_says_what_its_event_is(kind: str, payload: Any, flags: int) -> None:
    """As much as the graph needs, and permissions are internal everywhere."""
    assert flags == node(kind, payload).flags


def test_node_names_calls_answers_and_response() -> None:
    """Ids of any other shape are none."""
    odd: list[Any] = ["a", 5, None, ["b"], "c"]
    blocks = [{"type": "tool_use", "id": call} for call in odd]
    reply = node("assistant", {"content": [*blocks, "text", None], "id": "msg_1"})
    answers = [{"type": "tool_result", "tool_use_id": call} for call in [*odd, {}]]

    assert (("a", "c"), "msg_1") == (reply.calls, reply.response)
    assert ("a", "c") == node("user", {"content": answers}).answers
    assert None is node("assistant", {"content": [], "id": 5}).response


def test_node_of_a_repair_is_synthetic() -> None:
    """So that a real result that comes later wins."""
    event = synthetic("s", "c", ts="", prev_uuid=None)

    assert Is.SYNTHETIC == node_of(event).flags


def test_node_of_a_boundary_spans_what_it_keeps() -> None:
    """In either spelling; one that does not hold together patches nothing."""
    ours = {"anchor_uuid": "a", "summary_event_uuid": "a", "head_uuid": "h", "tail_uuid": "t"}
    theirs = {"anchorUuid": "a", "summaryEventUuid": "a", "headUuid": "h", "tailUuid": "t"}

    assert Span("a", "h", "t") == node("boundary", ours).span == node("boundary", theirs).span
    assert Span("") == node("boundary", ours | {"summary_event_uuid": "b"}).span
    assert Span("") == node("boundary", ours | {"head_uuid": 5}).span


# -- what was said and done -------------------------------------------------------------------


def test_steps_pair_calls_with_their_results() -> None:
    """In chain order, with how each ended."""
    draft = Draft()
    draft.prompt("go")
    reply = draft.reply("trying", Draft.call("a", "Bash", command="x"), Draft.call("b", "Read"))
    draft.result("a", "no", failed=True)
    draft.add("cwd", {"cwd": "/w"})
    prompt = draft.events[0].uuid

    assert [
        Step(prompt, "user", "go"),
        Step(reply, "assistant", "trying"),
        Step(reply, "assistant", tool="Bash", input={"command": "x"}, result="no", failed=True),
        Step(reply, "assistant", tool="Read", input={}, failed=True),
    ] == steps(draft.events)


def test_steps_take_ids_of_any_shape() -> None:
    """One that cannot be a key pairs with nothing."""
    blocks = [{"type": "tool_use", "id": []}, {"type": "tool_result", "tool_use_id": {}}]
    draft = Draft()
    draft.add("assistant", {"role": "assistant", "content": blocks})

    assert [Step(draft.events[0].uuid, "assistant")] == steps(draft.events)


# -- a harness's own domains ------------------------------------------------------------------


def test_harness_reads_its_own_state() -> None:
    """Its domains are folded over the same line."""
    draft = begun()
    draft.add("deploy", {"to": "staging"})
    domains = Domains()
    domains.register(Domain("deploys", int, lambda value, event: value + (event.type == "deploy")))
    transcript = Transcript.read(draft.bytes(), domains=domains)

    assert 1 == transcript.state.deploys


# -- anything ---------------------------------------------------------------------------------

IDS = st.sampled_from(["a", "b", "c", "d", "e", ""])
SMALL = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["a", "b", "user", "assistant", "text"])
)
FIELDS = "role content type id tool_use_id name input usage text todos model cwd to path"
ANY = st.recursive(
    SMALL,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(FIELDS.split()), inner, max_size=5)
    ),
    max_leaves=8,
)
BLOCKS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "tool_result", "thinking"])},
    optional={
        "text": ANY,
        "id": IDS | ANY,
        "tool_use_id": IDS | ANY,
        "name": st.sampled_from(["Bash", "Edit", "TodoWrite"]) | ANY,
        "input": ANY,
        "content": ANY,
        "is_error": SMALL,
    },
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["user", "assistant"]) | ANY,
        "content": st.lists(BLOCKS | ANY, max_size=3) | ANY,
        "id": IDS | ANY,
        "usage": ANY,
        "model": ANY,
        "cost_usd": SMALL,
        "synthetic": SMALL,
    },
)
SNAPSHOTS = st.fixed_dictionaries(
    {
        "version": st.just(1) | SMALL,
        "domains": st.dictionaries(
            st.sampled_from(["messages", "files", "todos", "cost", "model", "cwd", "attribution"]),
            st.fixed_dictionaries({"version": st.just(1) | SMALL}, optional={"value": ANY}) | SMALL,
            max_size=3,
        )
        | SMALL,
    }
)
BOUNDARIES = st.fixed_dictionaries(
    {"anchor_uuid": IDS, "summary_event_uuid": IDS},
    optional={"head_uuid": IDS, "tail_uuid": IDS, "state": SNAPSHOTS | ANY},
)
EVENTS = st.lists(
    st.builds(
        Event,
        st.sampled_from([*PAYLOADS, "permission_grant", "deploy", "interrupted"]),
        st.sampled_from(["", "2026-11-15T13:12:00.000Z"]),
        IDS,
        st.none() | IDS,
        MESSAGES | BOUNDARIES | st.fixed_dictionaries({"to": IDS}) | ANY,
    ),
    max_size=8,
)


@given(EVENTS)
def test_no_events_make_reading_raise(events: list[Event]) -> None:
    """Whatever a writer links and says, every question has an answer."""
    data = b"".join(codec.encode(event) for event in events)
    transcript = Transcript.read(data)

    assert len(events) == len(transcript.events)
    answer_all(transcript)


HARM = st.lists(
    st.tuples(
        st.integers(0, len(sample())),
        st.integers(0, 400),
        st.binary(max_size=8) | st.sampled_from([b"\n", b"{}", b"\0" * 99, sample()[:900]]),
    ),
    max_size=5,
)


@given(HARM)
def test_no_damage_makes_reading_raise(harm: list[tuple[int, int, bytes]]) -> None:
    """Bytes of the sample cut out, written over and put in."""
    data = sample()
    for at, length, put in harm:
        data = data[:at] + put + data[at + length :]

    answer_all(Transcript.read(data))


@given(st.integers(0, len(sample())))
def test_every_prefix_of_a_session_is_a_session(length: int) -> None:
    """A kill at any byte costs the last line at most."""
    data = sample()[:length]
    transcript = Transcript.read(data)
    events = Transcript.read(sample()).events

    assert data.count(b"\n") <= len(transcript.events) <= data.count(b"\n") + 1
    assert events[: len(transcript.events)] == transcript.events
    answer_all(transcript)
