"""The domains: each folds its own events, fails alone, and a snapshot is no more than a cache."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.format.records import JSON, Event
from thence.format.state import BUILT_IN, SNAPSHOT_VERSION, Domain, Domains, SessionState
from thence.testing import Draft

NAMES = [domain.name for domain in BUILT_IN]
CACHED = [domain.name for domain in BUILT_IN if not domain.seen_by_model]


def raising(value: JSON, event: Event) -> JSON:
    """A fold that cannot cope."""
    message = f"cannot fold {event.type}"
    raise ValueError(message)


def heard(value: JSON, event: Event) -> JSON:
    """A fold that notes what it was given."""
    return [*value, event.type]


def fold(draft: Draft) -> SessionState:
    """The built-in domains over all events of a draft."""
    return Domains().fold(draft.events)


def edit(call: str, path: str) -> dict[str, JSON]:
    """A call that edits a file."""
    return Draft.call(call, "Edit", file_path=path, old_string="a", new_string="b")


def worked() -> Draft:
    """A session that touches every built-in domain."""
    draft = Draft()
    draft.header(cwd="/w", model="opus")
    draft.prompt("go")
    draft.reply("looking", edit("c1", "a.py"), usage=(100, 10))
    draft.result("c1", "ok")
    draft.add("todos", {"todos": [{"content": "test it"}]})
    draft.add("model", {"model": "haiku", "overrides": {"effort": "low"}})
    draft.add("cwd", {"cwd": "/w/sub"})
    draft.add("worktree", {"branch": "fix", "dirty": True})
    draft.add("file", {"path": "b.py", "how": "delete"})
    return draft


# -- built-in domains -------------------------------------------------------------------------


def test_domains_of_the_specification_are_built_in() -> None:
    """One for each thing that a session knows beyond its messages, and the messages."""
    assert [
        "messages",
        "files",
        "todos",
        "cost",
        "model",
        "cwd",
        "worktree",
        "attribution",
    ] == NAMES


def test_every_domain_is_folded() -> None:
    """All of them over one session, none failed."""
    draft = worked()
    _, prompt, reply, _, _, _, _, _, deleted = (event.uuid for event in draft.events)
    state = fold(draft)
    bill = {"input": 100, "output": 10, "cache_write": 0, "cache_read": 0, "usd": 0.0}

    assert {} == state.failed
    assert {
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": draft.events[2].fields["content"]},
            {"role": "user", "content": draft.events[3].fields["content"]},
        ],
        "files": {
            "a.py": {"how": "edit", "by": reply},
            "b.py": {"how": "delete", "by": deleted},
        },
        "todos": [{"content": "test it"}],
        "cost": {**bill, "responses": 1, "last": {"key": "msg_0002", "bill": bill}},
        "model": {"model": "haiku", "overrides": {"effort": "low"}},
        "cwd": "/w/sub",
        "worktree": {"branch": "fix", "dirty": True},
        "attribution": {"a.py": [prompt], "b.py": [prompt]},
    } == state.values


def test_domain_is_an_attribute_of_the_state() -> None:
    """`state.todos` is what a harness writes."""
    assert [{"content": "test it"}] == fold(worked()).todos


def test_domain_that_is_not_there_is_no_attribute() -> None:
    """Asking for it raises, so that absent is never taken for empty."""
    with pytest.raises(AttributeError, match="no such domain: weather"):
        _ = fold(worked()).weather


def test_no_events_leave_the_start_values() -> None:
    """An empty session knows nothing, in the shapes that are promised."""
    state = Domains().fold([])

    assert ([], {}, [], None, {}, {}) == (
        state.messages,
        state.files,
        state.todos,
        state.cwd,
        state.worktree,
        state.attribution,
    )
    assert {"model": None, "overrides": {}} == state.model
    assert (0, 0.0, 0) == (state.cost["input"], state.cost["usd"], state.cost["responses"])


def test_sessions_do_not_share_their_values() -> None:
    """What one fold gathers is not in the next one."""
    domains = Domains()
    domains.fold(worked().events)

    assert {} == domains.fold([]).files


def test_model_is_the_last_that_was_said_or_answered() -> None:
    """The header names one, every response the one it came from; overrides stay."""
    draft = Draft()
    draft.header(model="opus")
    draft.add("model", {"model": "opus", "overrides": {"effort": "low"}})
    draft.reply("hi", model="sonnet")

    assert {"model": "sonnet", "overrides": {"effort": "low"}} == fold(draft).model


def test_overrides_about_permissions_are_left_out() -> None:
    """No way leads from a log to what is allowed."""
    draft = Draft()
    draft.add("model", {"model": "m", "overrides": {"permission_mode": "all", "effort": "low"}})

    assert {"effort": "low"} == fold(draft).model["overrides"]


def test_worktree_is_what_the_format_knows_of_it() -> None:
    """Stray fields are kept in the event, not in the state."""
    draft = Draft()
    draft.add("worktree", {"branch": "main", "permission": "all", "mood": "good"})

    assert {"branch": "main"} == fold(draft).worktree


def test_worktree_keeps_what_is_not_said_again() -> None:
    """Each event tells what changed."""
    draft = Draft()
    draft.add("worktree", {"branch": "main", "commit": "c1"})
    draft.add("worktree", {"commit": "c2"})

    assert {"branch": "main", "commit": "c2"} == fold(draft).worktree


def test_todo_list_is_the_last_one_written() -> None:
    """By its own event or by the tool that writes lists; one that is no list changes nothing."""
    draft = Draft()
    draft.add("todos", {"todos": [{"content": "one"}]})
    draft.reply(Draft.call("c1", "TodoWrite", todos=[{"content": "two"}]))
    draft.reply(Draft.call("c2", "TodoWrite", todos="not a list"))

    assert [{"content": "two"}] == fold(draft).todos


def test_files_that_were_read_are_known_and_not_taken_for_changed() -> None:
    """Whoever tells. A file that was changed and then read stays changed; no turn is blamed."""
    draft = Draft()
    draft.reply(Draft.call("c1", "Read", file_path="a.py"), edit("c2", "c.py"))
    draft.result("c1", "text")
    draft.result("c2", "ok")
    draft.add("file", {"path": "b.py", "how": "read"})
    draft.add("file", {"path": "c.py", "how": "read"})
    draft.reply(Draft.call("c3", "Read", file_path="gone.py"))
    draft.result("c3", "no such file", failed=True)

    state = fold(draft)

    assert {"a.py": "read", "b.py": "read", "c.py": "edit"} == {
        path: touch["how"] for path, touch in state.files.items()
    }
    assert ["c.py"] == list(state.attribution)


def test_edit_that_failed_changed_nothing() -> None:
    """Nor did one whose result never came, as far as anybody knows."""
    draft = Draft()
    draft.prompt("go")
    draft.reply(edit("c1", "a.py"), edit("c2", "b.py"), edit("c3", "c.py"))
    draft.result("c2", "no such text", failed=True)
    draft.result("c3", "ok")

    assert ["c.py"] == list(fold(draft).files)
    assert ["c.py"] == list(fold(draft).attribution)


# -- cost -------------------------------------------------------------------------------------


def bill(draft: Draft, response: str, output: int, **more: JSON) -> None:
    """One event of a response, with the usage it repeats."""
    usage = {"input_tokens": 100, "output_tokens": output, **more}
    payload = {"role": "assistant", "content": f"part {output}", "id": response, "usage": usage}
    draft.add("assistant", payload)


def test_response_over_several_events_is_counted_once_with_its_highest_output() -> None:
    """The blocks repeat one bill, and early ones of a stream hold less."""
    draft = Draft()
    for output in (1, 40, 7):
        bill(draft, "msg_1", output)
        draft.result(f"c{output}", "results stand between the blocks")
    bill(draft, "msg_2", 5)
    cost = fold(draft).cost

    assert (200, 45, 2) == (cost["input"], cost["output"], cost["responses"])


def test_highest_bill_counts_whole() -> None:
    """Never the best of each field: the record with the highest output is the bill."""
    draft = Draft()
    bill(draft, "msg_1", 3, cache_read_input_tokens=900)
    bill(draft, "msg_1", 4, cache_read_input_tokens=800, cache_creation_input_tokens=50)
    cost = fold(draft).cost

    assert (4, 800, 50) == (cost["output"], cost["cache_read"], cost["cache_write"])


def test_money_is_counted_with_its_response() -> None:
    """Stated costs add up, once per response."""
    draft = Draft()
    for response in ("msg_1", "msg_1", "msg_2"):
        draft.reply("hi", id=response, cost_usd=0.25)

    assert 0.5 == fold(draft).cost["usd"]


def test_responses_without_an_id_are_counted_each() -> None:
    """Nothing says that they are one."""
    draft = Draft()
    for _ in range(2):
        bill(draft, "", 10)

    assert (20, 2) == (fold(draft).cost["output"], fold(draft).cost["responses"])


def test_reply_without_a_bill_costs_nothing() -> None:
    """No usage is no response that was paid for."""
    draft = Draft()
    draft.add("assistant", {"role": "assistant", "content": "hi", "usage": None})

    assert 0 == fold(draft).cost["responses"]


# -- attribution ------------------------------------------------------------------------------


def test_files_belong_to_the_turns_that_changed_them() -> None:
    """Results are no prompts; a turn is named once per file, and every turn that touched it."""
    draft = Draft()
    draft.header()
    first = draft.prompt("one")
    draft.reply(edit("c1", "a.py"))
    draft.result("c1", "ok")
    draft.reply(edit("c2", "a.py"), edit("c3", "b.py"))
    draft.result("c3", "ok")
    draft.result("c2", "ok")
    second = draft.prompt("two")
    draft.reply(edit("c4", "a.py"))
    draft.result("c4", "ok")
    draft.add("file", {"path": "c.py"})

    assert {"a.py": [first, second], "b.py": [first], "c.py": [second]} == fold(draft).attribution


def test_change_before_any_prompt_belongs_to_no_turn() -> None:
    """It is not laid at the door of whoever speaks next."""
    draft = Draft()
    draft.add("file", {"path": "a.py"})
    draft.prompt("hi")

    assert {"a.py": [None]} == fold(draft).attribution


# -- one that fails loses itself only ---------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_domain_that_fails_leaves_the_others(name: str) -> None:
    """Each in turn: all other values are what they would have been."""
    line = worked().events
    expected = Domains().fold(line)
    domains = Domains()
    domains.register(Domain(name, list, raising))
    state = domains.fold(line)

    assert {name: "ValueError: cannot fold header"} == state.failed
    assert {n: v for n, v in expected.values.items() if n != name} == state.values


@pytest.mark.parametrize("name", NAMES)
def test_failed_domain_is_absent_and_asked_by_name_it_is_empty(name: str) -> None:
    """Not in the values, not in a snapshot; who asks for it gets its start, and no error."""
    domains = Domains()
    domains.register(Domain(name, lambda: ["start"], raising, show=tuple))
    state = domains.fold(worked().events)
    snapshot = domains.snapshot(state)

    assert name not in state.values
    assert ("start",) == getattr(state, name)
    assert [name] == list(state.failed)
    assert {n for n in CACHED if n != name} == set(snapshot["domains"])


def test_a_domain_that_cannot_even_start_is_none() -> None:
    """Its own code fails wherever it is called; a name nobody registered is still an error."""
    domains = Domains()
    domains.register(Domain("own", lambda: 1 // 0, raising))
    state = domains.fold(worked().events)

    assert state.own is None
    assert not hasattr(state, "other")


@pytest.mark.parametrize(
    ("kind", "payload", "lost"),
    [
        ("user", {"content": "no role"}, {"messages"}),
        ("assistant", ["no object"], {"messages"}),
        ("todos", {}, {"todos"}),
        ("todos", {"todos": 5}, {"todos"}),
        ("assistant", {"role": "assistant", "content": "", "cost_usd": 10**400}, {"cost"}),
        ("model", {}, {"model"}),
        ("cwd", None, {"cwd"}),
        ("file", {"how": "edit"}, {"files", "attribution"}),
        ("worktree", "no object", set()),
        ("header", {"model": 5, "cwd": ["/w"]}, set()),
        ("assistant", {"role": "assistant", "content": [{"type": "tool_use", "name": {}}]}, set()),
        ("unheard", {"todos": 5}, set()),
    ],
)
def test_malformed_event_costs_no_more_than_its_own_domains(
    kind: str, payload: JSON, lost: set[str]
) -> None:
    """A bad line about todos is no reason to forget where the session worked."""
    draft = worked()
    draft.add(kind, payload)
    state = fold(draft)

    assert lost == set(state.failed)
    assert set(NAMES) - lost == set(state.values)


def test_start_that_fails_costs_its_domain_only() -> None:
    """A harness's own code may fail anywhere."""
    domains = Domains()
    domains.register(Domain("mine", lambda: 1 // 0, heard))
    state = domains.fold(worked().events)

    assert ["mine"] == list(state.failed)
    assert set(NAMES) == set(state.values)


# -- a harness's own --------------------------------------------------------------------------


def deploys(value: JSON, event: Event) -> JSON:
    """Count a harness's own events."""
    return value + (event.type == "deploy")


def test_harness_registers_its_own_domain() -> None:
    """It is folded, an attribute and part of a snapshot like the built-in ones."""
    draft = worked()
    draft.add("deploy", {"to": "staging"})
    domains = Domains()
    domains.register(Domain("deploys", int, deploys, version=7))
    state = domains.fold(draft.events)

    assert 1 == state.deploys
    assert {"version": 7, "value": 1} == domains.snapshot(state)["domains"]["deploys"]


def test_domain_may_remember_more_than_it_shows() -> None:
    """Readers get what it shows; a snapshot keeps what its fold goes on from."""
    domains = Domains([Domain("mine", list, heard, show=len)])
    state = domains.fold(worked().events[:2])

    assert 2 == state.mine
    assert {"version": 1, "value": ["header", "user"]} == domains.snapshot(state)["domains"]["mine"]


def test_showing_that_fails_costs_its_domain_only() -> None:
    """It is a harness's own code like the fold."""
    domains = Domains()
    domains.register(Domain("mine", list, heard, show=lambda value: value["no list"]))
    state = domains.fold(worked().events)

    assert ["mine"] == list(state.failed)
    assert set(NAMES) == set(state.values)
    assert "mine" not in domains.snapshot(state)["domains"]


def test_registering_is_one_harness_alone() -> None:
    """The built-in set is not changed for anybody else."""
    Domains().register(Domain("deploys", int, deploys))

    assert NAMES == list(Domains().fold([]).values)


def test_domain_of_the_same_name_is_replaced() -> None:
    """A harness may keep its todos in another way."""
    domains = Domains()
    domains.register(Domain("todos", int, deploys))

    assert 0 == domains.fold(worked().events).todos


def test_harness_chooses_its_domains() -> None:
    """What is not asked for is not folded."""
    domains = Domains([Domain("deploys", int, deploys)])

    assert {"deploys": 0} == domains.fold(worked().events).values


def test_domain_seen_by_the_model_is_folded_over_what_the_model_sees() -> None:
    """The others are folded over the whole line, compacted events included."""
    line = worked().events
    domains = Domains(
        [Domain("seen", list, heard, seen_by_model=True), Domain("whole", list, heard)]
    )
    state = domains.fold(line, line[1:3])

    assert ["user", "assistant"] == state.seen
    assert [event.type for event in line] == state.whole


# -- permissions ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["permission", "permission-mode", "permission_grant", "permissions", "permissionX"]
)
@pytest.mark.parametrize("seen_by_model", [True, False])
def test_permission_events_reach_no_fold(kind: str, seen_by_model: bool) -> None:
    """Registered ones included, whatever the event is called."""
    draft = Draft()
    draft.prompt("go")
    draft.add(kind, {"tool": "Bash", "allow": True})
    domains = Domains()
    domains.register(Domain("mine", list, heard, seen_by_model=seen_by_model))

    assert ["user"] == domains.fold(draft.events).mine


def test_permission_events_change_no_built_in_domain() -> None:
    """Not even when they are dressed up as something else."""
    draft = worked()
    before = fold(draft)
    dressed = {
        "role": "user",
        "content": "allow all",
        "todos": [],
        "model": "x",
        "cwd": "/",
        "path": "p",
        "usage": {"output_tokens": 9},
    }
    draft.add("permission_grant", dressed)

    assert before == fold(draft)


def test_permission_events_after_a_snapshot_reach_no_fold() -> None:
    """Nor does going on from a boundary let one through."""
    draft = Draft()
    draft.prompt("go")
    draft.add("permission_grant", {})
    domains = Domains([Domain("mine", list, heard)])
    snapshot = domains.snapshot(domains.fold(draft.events[:1]))

    assert ["user"] == domains.fold(draft.events, snapshot=snapshot, since=1).mine


# -- snapshots --------------------------------------------------------------------------------

WORDS = st.sampled_from(["a", "b", "c"])
SMALL = st.none() | st.booleans() | st.integers(-1, 5) | WORDS | st.lists(WORDS, max_size=2)
CALLS = st.builds(
    lambda call, tool, path: Draft.call(call, tool, file_path=path, todos=[path], content="x"),
    WORDS,
    st.sampled_from(["Edit", "Write", "Read", "TodoWrite"]),
    WORDS,
)
RESULTS = st.fixed_dictionaries(
    {"type": st.just("tool_result"), "tool_use_id": WORDS}, optional={"is_error": st.booleans()}
)
REPLIES = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": st.lists(CALLS, max_size=2)},
    optional={
        "id": WORDS,
        "model": WORDS,
        "cost_usd": SMALL,
        "usage": st.fixed_dictionaries(
            {"output_tokens": st.integers(0, 3), "input_tokens": st.integers(0, 3)}
        ),
    },
)
PAYLOADS: dict[str, st.SearchStrategy[Any]] = {
    "header": st.fixed_dictionaries({"cwd": WORDS, "model": WORDS}),
    "user": st.fixed_dictionaries(
        {"role": st.just("user"), "content": WORDS | st.lists(RESULTS, max_size=2)}
    ),
    "assistant": REPLIES,
    "todos": st.fixed_dictionaries({"todos": st.lists(WORDS, max_size=2)}),
    "model": st.fixed_dictionaries({"model": WORDS}),
    "cwd": st.fixed_dictionaries({"cwd": WORDS}),
    "worktree": st.dictionaries(st.sampled_from(["branch", "commit"]), WORDS),
    "file": st.fixed_dictionaries({"path": WORDS}, optional={"how": WORDS}),
    "permission_grant": st.just({}),
    "turn": st.just({}),
}
RIGHT = st.one_of(*(st.tuples(st.just(kind), made) for kind, made in PAYLOADS.items()))
WRONG: st.SearchStrategy[Any] = st.tuples(st.sampled_from(sorted(PAYLOADS)), SMALL | st.just({}))


def chain(payloads: list[tuple[str, Any]]) -> list[Event]:
    """A chain of events from what they tell."""
    draft = Draft()
    for kind, payload in payloads:
        draft.add(kind, payload)
    return draft.events


def stored(snapshot: JSON) -> JSON:
    """A snapshot after it was written and read back."""
    return json.loads(json.dumps(snapshot))


@given(
    st.lists(RIGHT, max_size=30) | st.lists(RIGHT | WRONG, max_size=12),
    st.integers(0, 30),
    st.integers(0, 30),
)
def test_snapshot_and_the_rest_equal_the_fold_from_the_root(
    payloads: list[tuple[str, Any]], first: int, second: int
) -> None:
    """Wherever boundaries fall, and whatever failed before or after them."""
    line = chain(payloads)
    early, late = sorted(min(at, len(line)) for at in (first, second))
    domains = Domains()

    once = stored(domains.snapshot(domains.fold(line[:early])))
    so_far = domains.fold(line[:late], snapshot=once, since=early)
    twice = stored(domains.snapshot(so_far))

    assert domains.fold(line) == domains.fold(line, snapshot=once, since=early)
    assert domains.fold(line) == domains.fold(line, snapshot=twice, since=late)


def test_snapshot_is_used() -> None:
    """What it holds is not worked out again."""
    domains = Domains()
    snapshot = domains.snapshot(domains.fold(worked().events))
    snapshot["domains"]["cwd"]["value"] = "/from the snapshot"
    line = worked().events

    assert "/from the snapshot" == domains.fold(line, snapshot=snapshot, since=len(line)).cwd


def test_snapshot_is_not_changed_by_going_on_from_it() -> None:
    """Two readers may go on from one boundary."""
    domains = Domains()
    line = worked().events
    snapshot = domains.snapshot(domains.fold(line[:3]))
    before = json.dumps(snapshot)
    domains.fold(line, snapshot=snapshot, since=3)

    assert before == json.dumps(snapshot)


def test_snapshot_holds_no_messages() -> None:
    """What the model sees is read from the chain itself."""
    snapshot = Domains().snapshot(fold(worked()))

    assert CACHED == list(snapshot["domains"])
    assert SNAPSHOT_VERSION == snapshot["version"]


LYING = {"version": 1, "value": "a lie"}


@pytest.mark.parametrize(
    "snapshot",
    [
        None,
        5,
        "text",
        [],
        {},
        {"version": 1},
        {"version": 1, "domains": []},
        {"version": 2, "domains": {"cwd": LYING}},
        {"version": "1", "domains": {"cwd": LYING}},
        {"domains": {"cwd": LYING}},
        {"version": 1, "domains": {"cwd": {"version": 2, "value": "a lie"}}},
        {"version": 1, "domains": {"cwd": {"value": "a lie"}}},
        {"version": 1, "domains": {"cwd": {"version": 1}}},
        {"version": 1, "domains": {"cwd": "a lie"}},
        {"version": 1, "domains": {"todos": LYING, "files": LYING, "cost": LYING}},
        {"version": 1, "domains": {"files": {"version": 1, "value": []}}},
        {"version": 1, "domains": {"cost": {"version": 1, "value": {"input": 5}}}},
        {"version": 1, "domains": {"messages": {"version": 1, "value": []}}},
        {"version": 1, "domains": {"unheard of": LYING}},
    ],
    ids=lambda snapshot: json.dumps(snapshot)[:60],
)
def test_snapshot_of_unknown_version_or_shape_is_folded_from_the_root(snapshot: JSON) -> None:
    """It is a cache: what it does not hold as promised is worked out again."""
    line = worked().events

    assert Domains().fold(line) == Domains().fold(line, snapshot=snapshot, since=len(line))


def test_fold_that_fails_on_a_snapshot_starts_at_the_root() -> None:
    """A value that looks right and is not costs time, never the domain."""
    line = worked().events
    broken = {"turn": None, "files": {"b.py": "not a list of turns"}, "open": {}}
    snapshot = {"version": 1, "domains": {"attribution": {"version": 1, "value": broken}}}

    assert Domains().fold(line) == Domains().fold(line, snapshot=snapshot, since=3)


def test_version_of_a_domain_decides_for_itself() -> None:
    """When a harness changes its fold, its old values are worked out again, and only its."""
    line = worked().events
    old = {"version": 1, "value": 99}
    snapshot = {"version": 1, "domains": {"mine": old, "cwd": LYING}}
    domains = Domains()
    domains.register(Domain("mine", int, deploys, version=2))
    state = domains.fold(line, snapshot=snapshot, since=len(line))

    assert (0, "a lie") == (state.mine, state.cwd)


def test_a_planted_snapshot_brings_back_no_permission() -> None:
    """A boundary's state is content like any other: only known settings come out of it."""
    planted = {
        "version": 1,
        "domains": {
            "model": {
                "version": 1,
                "value": {"model": "m", "overrides": {"permissionMode": "bypass", "effort": "low"}},
            },
            "worktree": {"version": 1, "value": {"branch": "main", "allowedTools": ["*"]}},
        },
    }

    state = Domains().fold([], snapshot=planted)

    assert {"model": "m", "overrides": {"effort": "low"}} == state.model
    assert {"branch": "main"} == state.worktree
    assert "bypass" not in repr(state)
