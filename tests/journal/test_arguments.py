"""What callers pass: wrong calls of all public methods, from one table of wrong values."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

import thence
from tests.journal.test_journal import path_of
from thence.errors import BadArgument, ThenceError
from thence.format import codec
from thence.journal import Journal, Session
from thence.journal.aio import AsyncSession
from thence.journal.arguments import Content, Names, check_value, checked
from thence.journal.history import History
from thence.journal.idle import IdleThread, watch
from thence.journal.permissions import Action
from thence.journal.signals import flush_on_signals
from thence.journal.tools import Tools

NO_TEXT: list[Any] = [7, 1.5, True, b"x", "", [], {}, {"a"}, object(), int]
NO_PATH: list[Any] = [7, 1.5, True, b"x", "", [], {}, {"a"}, object(), "a\0b", "\ud800"]
NO_NUMBER: list[Any] = ["7", None, True, b"7", [7], {}, float("nan"), -1, float("inf"), object()]
NO_CHOICE: list[Any] = ["contineu", "", "Adopt", 7, True, None, b"adopt", ["adopt"], {}, object()]
NO_SWITCH: list[Any] = [None, "yes", "", 0, 1, 1.5, [], {}, b"x", object()]
NO_ID: list[Any] = ["no such", "a/b", "..", "*", *NO_TEXT]
MAYBE_TEXT: list[Any] = [7, 1.5, True, b"x", [], {}, {"a"}, object(), int, b""]
MAYBE_NUMBER: list[Any] = ["7", True, b"7", [7], {}, float("nan"), -1, float("inf"), object(), ""]
NO_CONTENT: list[Any] = [
    *(None, 7, b"x", {"type": "text", "text": "x"}, [7], [None], [{}], [{"type": "text"}]),
    *([{"type": 7}], [{"type": "image", "data": b"x"}], [{"type": "x", "y": float("nan")}]),
]
NO_PAYLOAD: list[Any] = [
    *("fix the bug", None, 7, [], {}, {"role": "user"}, {"content": "x"}),
    {"role": "assistant", "content": "x"},
    {"role": "user", "content": None},
    {"role": "user", "content": {"type": "text", "text": "x"}},
    {"role": "user", "content": [{"type": "tool_result", "content": "x"}]},
    {"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {}}]},
    {"role": "user", "content": "x", "cost_usd": float("nan")},
    {"role": "user", "content": "x", "raw": b"x"},
    {"role": "user", "content": "x", "about": [{"deep": [object()]}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": 7}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "is_error": "no"}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [7]}]},
]
NO_ABOUT: list[tuple[str, list[Any]]] = [
    ("usage", ["lots", 7, [1]]),
    ("cost_usd", ["0.1", -1, True]),
    ("model", [7, {}]),
    ("id", [7]),
    ("stop_reason", [True]),
]
NO_ANSWER: list[Any] = [
    {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": "ls"}]},
    *(
        {"role": "assistant", "content": "x", name: value}
        for name, wrong in NO_ABOUT
        for value in wrong
    ),
]


def nested(levels: int) -> Any:
    """Return lists in lists."""
    out: list[Any] = []
    for _ in range(levels):
        out = [out]
    return out


NO_VALUE: list[Any] = [
    *(float("nan"), Decimal("NaN"), Decimal("Infinity"), b"x", {"a"}, object(), int),
    *({1: 2}, {None: 2}, {b"x": 2}, {(1, 2): 3}, {"a": [{1.5: 2}]}),
    msgspec.Raw(b"1\n2"),
    nested(1000),
    "x" * (codec.LINE_LIMIT + 1),
]
NO_TYPE: list[Any] = [
    *("header", "terminator", "boundary", "tip", "turn", "sidechain", "checkpoint", "summary"),
    *("todos", "model", "", 7, None, b"user", ["user"]),
]
NO_MESSAGE_TYPE: list[Any] = [
    *("User", "human", "prompt", "message", "ai", "Assistant", "system", "chat", "input", "text"),
]
NO_OBJECT: list[Any] = [None, 7, "x", b"x", [], {}, True, 1.5, object(), int, {"a"}, ()]
NO_FUNCTION: list[Any] = [None, 7, "x", b"x", [], {}, True, 1.5, object(), {"a"}, ()]


class Row(NamedTuple):
    """A call that is right but for one argument, and the wrong values of that."""

    method: str
    name: str
    wrong: list[Any]
    rest: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it


def without(wrong: list[Any], *right: Any) -> list[Any]:
    """Return wrong values without those that are right here."""
    return [value for value in wrong if all(value != each for each in right)]


PROMPTS: list[tuple[str, dict[str, Any]]] = [
    ("prompt", {"session_id": "x"}),
    ("session_id", {"prompt": "x"}),
    ("project", {"prompt": "x", "session_id": "x"}),
]
ROWS = [
    Row("Journal.__init__", "root", NO_PATH),
    Row("Journal.__init__", "local", NO_PATH, {"root": "home"}),
    Row("Journal.__init__", "durability", NO_CHOICE, {"root": "home"}),
    Row("Journal.__init__", "enabled", NO_SWITCH, {"root": "home"}),
    Row("Journal.__init__", "domains", without(NO_OBJECT, None), {"root": "home"}),
    *(
        Row("Journal.__init__", name, NO_NUMBER, {"root": "home"})
        for name in (
            *("spill_per_result", "spill_per_session", "sidechain_cap", "max_bytes"),
            *("idle_timeout", "approval_timeout"),
        )
    ),
    Row("Journal.__init__", "history_retain_days", MAYBE_NUMBER, {"root": "home"}),
    Row("Journal.create", "session", NO_ID),
    Row("Journal.create", "cwd", NO_PATH),
    Row("Journal.create", "model", NO_TEXT),
    Row("Journal.create_or_resume", "session", NO_ID),
    Row("Journal.create_or_resume", "cwd", NO_PATH, {"session": "s-3"}),
    Row("Journal.create_or_resume", "model", NO_TEXT, {"session": "s-3"}),
    Row("Journal.resume", "session", NO_ID),
    Row("Journal.resume", "mode", NO_CHOICE),
    Row("Journal.resume", "orphans", NO_CHOICE),
    Row("Journal.resume", "at", NO_ID),
    Row("Journal.resume", "project", NO_PATH),
    Row("Journal.fork", "session", NO_ID),
    Row("Journal.fork", "at", NO_ID),
    Row("Journal.fork", "orphans", NO_CHOICE),
    Row("Journal.has", "session", NO_TEXT),
    Row("Journal.sessions", "limit", NO_NUMBER),
    Row("Journal.sessions", "project", NO_PATH),
    Row("Journal.read_spill", "session", NO_ID, {"name": "x"}),
    Row("Journal.read_spill", "name", NO_ID, {"session": "SESSION"}),
    Row("Journal.batches", "session", NO_ID),
    Row("Journal.batches", "cwd", NO_PATH, {"session": "s-2"}),
    Row("Journal.batches", "project", NO_TEXT, {"session": "s-2"}),
    Row("Journal.batches", "agent", NO_ID, {"session": "s-2"}),
    Row("Journal.batches", "header", NO_VALUE[:-1], {"session": "s-2"}),
    Row("Journal.read_headers", "project", NO_TEXT),
    Row("Journal.read_headers", "session", NO_TEXT),
    Row("Journal.cleanup", "dry_run", NO_SWITCH),
    Row("Journal.cleanup", "max_sessions", NO_NUMBER),
    Row("Session.record", "payload", NO_PAYLOAD, {"kind": "user"}),
    Row("Session.record", "payload", NO_ANSWER, {"kind": "assistant"}),
    Row("Session.record", "payload", NO_VALUE, {"kind": "note"}),
    Row("Session.record", "kind", NO_TYPE, {"payload": {"role": "user"}}),
    Row("Session.record", "kind", NO_MESSAGE_TYPE, {"payload": {"role": "user", "content": "x"}}),
    *(
        Row("Session.record", name, NO_TEXT, {"kind": "note", "payload": {}})
        for name in ("uuid", "parent", "expected_tip")
    ),
    Row("Session.record", "on_stale", NO_CHOICE, {"kind": "note", "payload": {}}),
    Row("Session.record", "any_parent", NO_SWITCH, {"kind": "note", "payload": {}, "uuid": "n-1"}),
    Row("Session.user", "content", NO_CONTENT),
    Row("Session.assistant", "content", NO_CONTENT),
    Row("Session.assistant", "usage", without(NO_OBJECT, None, {}), {"content": "x"}),
    Row("Session.assistant", "cost_usd", MAYBE_NUMBER, {"content": "x"}),
    Row("Session.assistant", "model", NO_TEXT, {"content": "x"}),
    Row("Session.assistant", "response_id", NO_TEXT, {"content": "x"}),
    Row("Session.assistant", "stop_reason", NO_TEXT, {"content": "x"}),
    Row("Session.tool_result", "call_id", NO_TEXT, {"content": "x"}),
    Row("Session.tool_result", "content", NO_CONTENT, {"call_id": "c"}),
    Row("Session.tool_result", "failed", NO_SWITCH, {"call_id": "c", "content": "x"}),
    Row("Session.rewind", "to", NO_ID),
    Row("Session.compact", "keep_from", NO_ID, {"summary": "x"}),
    Row("Session.compact", "summary", NO_PAYLOAD[1:2] + NO_CONTENT),
    Row("Session.flush", "state", NO_CHOICE),
    Row("Session.close", "reason", NO_TEXT),
    Row("Session.idle", "timeout", MAYBE_NUMBER),
    Row("Session.idle", "approval_timeout", MAYBE_NUMBER),
    Row("Session.idle", "clock", NO_FUNCTION),
    Row("Session.idle", "on_idle", without(NO_FUNCTION, None)),
    Row("Session.sidechain", "agent", NO_TEXT),
    Row("Session.sidechain", "agent_id", NO_ID, {"agent": "x"}),
    Row("Session.sidechain", "tool_use_id", NO_TEXT, {"agent": "x"}),
    Row("Session.checkpoint", "paths", [*NO_OBJECT[:4], True, 1.5, object(), [7], [""], [b"x"]]),
    Row("Session.rewind_files", "to", NO_OBJECT),
    Row("Session.rewind_files", "dry_run", NO_SWITCH, {"to": "CHECKPOINT"}),
    Row("Session.full_result", "spilled", NO_ID),
    *(Row("History.add", name, MAYBE_TEXT, rest) for name, rest in PROMPTS),
    Row("History.forget", "session_id", NO_TEXT),
    Row("History.recent", "limit", NO_NUMBER),
    Row("History.recent", "project", MAYBE_TEXT),
    Row("History.recent", "session_id", MAYBE_TEXT),
    Row("History.read", "limit", NO_NUMBER),
    Row("History.read", "reverse", NO_SWITCH),
    Row("History.search", "text", MAYBE_TEXT),
    Row("History.search", "prefix", NO_SWITCH, {"text": "x"}),
    Row("History.search", "limit", NO_NUMBER, {"text": "x"}),
    Row("History.cursor", "prefix", MAYBE_TEXT),
    Row("History.sweep", "dry_run", NO_SWITCH),
    Row("History.clean_up", "dry_run", NO_SWITCH),
]


BY_THE_LIBRARY = {"Session.__init__", "Session.take", "History.__init__"}
"""Called by a journal alone."""


def methods(kind: type) -> dict[str, list[inspect.Parameter]]:
    """Return what each public method of a class takes."""
    return {
        f"{kind.__name__}.{name}": list(inspect.signature(method).parameters.values())[1:]
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if name == "__init__" or not name.startswith("_")
    }


CHECKED = {
    called: takes
    for kind in (Journal, Session, History)
    for called, takes in methods(kind).items()
    if called not in BY_THE_LIBRARY
}
"""All that a caller may call, and what it takes."""


def test_every_argument_of_a_public_method_has_ten_wrong_calls() -> None:
    """One that is added fails here until it has a row."""
    wanted = {f"{called}.{each.name}" for called, takes in CHECKED.items() for each in takes}
    wrong = dict.fromkeys(wanted, 0)
    for row in ROWS:
        wrong[f"{row.method}.{row.name}"] += len(row.wrong)

    assert [] == sorted(name for name, number in wrong.items() if number < 10)


def method_of(called: str, journal: Journal, session: Session) -> Any:
    """Return a public method, bound to what it is called on."""
    kind, _, method = called.partition(".")
    owner = {"Journal": journal, "Session": session, "History": journal.history}[kind]
    return Journal if method == "__init__" else getattr(owner, method)


@pytest.mark.parametrize("called", CHECKED)
def test_a_call_of_the_wrong_form_is_an_error_with_a_hint(called: str, tmp_path: Path) -> None:
    """Also of a method that takes nothing: too much, too little, an option it does not have."""
    journal = Journal(tmp_path / "home")
    session = journal.create(cwd=tmp_path)
    call, takes = method_of(called, journal, session), CHECKED[called]
    needed = [each for each in takes if each.default is each.empty and each.kind < each.VAR_KEYWORD]
    wrong: list[tuple[list[Any], dict[str, Any]]] = [(["x"] * n, {}) for n in range(15, 25)]
    wrong += [([], {each.name: "x" for each in needed if each is not left}) for left in needed]
    if all(each.kind != each.VAR_KEYWORD for each in takes):
        wrong += [([], {**{each.name: "x" for each in needed}, "mispelt": 1})]
    accepted = []
    for arguments, options in wrong:
        try:
            call(*arguments, **options)
            accepted.append((arguments, options))
        except ThenceError as error:
            accepted += [] if error.hint else [(arguments, options)]

    assert [] == accepted


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.method}-{row.name}")
def test_a_wrong_call_is_an_error_with_a_hint(row: Row, tmp_path: Path) -> None:
    """Whatever is passed: not taken for something else, and the session goes on as it was."""
    journal = Journal(tmp_path / "home")
    session = journal.create(cwd=tmp_path)
    session.user("hello")
    call, method = method_of(row.method, journal, session), row.method
    made = {"SESSION": session.id, "CHECKPOINT": session.checkpoint([]) if "files" in method else 0}
    before = session.tip
    rest = {n: made.get(v, v) if isinstance(v, str) else v for n, v in row.rest.items()}
    accepted = []
    for value in row.wrong:
        try:
            call(**rest, **{row.name: value})
            accepted.append(value)
        except ThenceError as error:
            accepted += [] if error.hint else [error]

    assert [] == accepted
    assert before == session.tip
    assert ["hello"] == [message["content"][0]["text"] for message in session.messages]


def others(journal: Journal, session: Session) -> dict[str, Callable[[Any], Any]]:
    """Return what is offered beside the three classes, to be called with one wrong value."""
    action, later, tools = Action("Bash", command="ls"), AsyncSession(session), Tools(journal)
    untyped: Any = thence.Journal
    return {
        "thence.Journal": lambda value: untyped(journal.root, value),
        "thence.Journal.local": lambda value: thence.Journal(journal.root, local=value),
        "AsyncSession": AsyncSession,
        "AsyncSession.run": later.run,
        "AsyncSession.user": later.user,
        "AsyncSession.close": later.close,
        "AsyncSession.flush": lambda value: later.flush(state=value),
        "Tools": Tools,
        "Tools.call": lambda value: tools.call(value, {}),
        "Tools.read_history": tools.read_history,
        "IdleThread": IdleThread,
        "watch": watch,
        "flush_on_signals": flush_on_signals,
        "Ledger.grant": lambda value: session.permissions.grant(action, scope=value),
    }


OTHERS = [
    *("thence.Journal", "thence.Journal.local", "IdleThread", "watch", "flush_on_signals"),
    *(f"AsyncSession{method}" for method in ("", ".run", ".user", ".close", ".flush")),
    *(f"Tools{method}" for method in ("", ".call", ".read_history")),
    "Ledger.grant",
]
WRONG: list[Any] = [
    *(7j, b"x", {7j: 7}, {None}, object(), -1, float("nan"), [7j], [b"x"], [None], True, (True,)),
]


@pytest.mark.parametrize("called", OTHERS)
def test_what_else_is_offered_tells_a_wrong_call(called: str, tmp_path: Path) -> None:
    """At once, not when a signal comes or the timers run out; the session is as open as before."""
    journal = Journal(tmp_path / "home")
    session = journal.create(cwd=tmp_path)
    call, accepted = others(journal, session)[called], []

    async def awaited(value: Any) -> Any:
        result = call(value)
        return await result if inspect.isawaitable(result) else result

    for value in WRONG:
        try:
            accepted.append((value, asyncio.run(awaited(value))))
        except ThenceError as error:
            accepted += [] if error.hint else [(value, error)]

    assert [] == accepted
    assert sorted(OTHERS) == sorted(others(journal, session))
    assert not session.closed


WRONG_FORMS: dict[str, Callable[[Any, Any], object]] = {
    "Journal.create: too many positional arguments": lambda j, _: j.create("/w"),
    "Journal.resume: got an unexpected keyword argument 'mod'": lambda j, _: j.resume(mod="fork"),
    "Session.user: missing a required argument: 'content'": lambda _, s: s.user(),
    "Session.record: missing a required argument: 'payload'": lambda _, s: s.record("user"),
    "Session.record: `x` is no on_stale: branch or conflict": lambda _, s: s.record(
        "note", {}, on_stale="x"
    ),
    "Session.tool_result: missing a required argument: 'content'": lambda _, s: s.tool_result("c"),
    "Session.user: content is a dict, not text or a list": lambda _, s: s.user({}),
}


@pytest.mark.parametrize("message", WRONG_FORMS)
def test_a_wrong_call_is_told_with_the_form_of_the_method(message: str, tmp_path: Path) -> None:
    """By the name that the caller knows, also where arguments are too many, or misspelt."""
    journal = Journal(tmp_path)
    with pytest.raises(BadArgument) as caught:
        WRONG_FORMS[message](journal, journal.create())
    method = message.partition(":")[0].partition(".")[2]

    assert message == caught.value.message
    assert str(caught.value.hint).startswith(f"{method}(")


def test_a_title_that_is_no_text_is_refused_where_it_is_set(tmp_path: Path) -> None:
    """Not when the turn ends, which it would keep from ending."""
    session = Journal(tmp_path).create()
    session.title = "Tides"
    untyped: Any = session
    with pytest.raises(BadArgument, match="title is 7, not text or None"):
        untyped.title = 7
    session.user("x")
    session.flush()

    assert ["Tides"] == [entry.title for entry in Journal(tmp_path).sessions()]


TAKEN: list[Any] = [
    *("", "a\ud800b", 2**70, 1e308, Decimal("1.5"), True, None, [], {}, {"": [[{"é": "\n"}]]}),
    nested(390),
    "x" * (codec.LINE_LIMIT - 1000),
]


@pytest.mark.parametrize("value", TAKEN, ids=range(len(TAKEN)))
def test_what_is_taken_comes_back(value: Any, tmp_path: Path) -> None:
    """Nothing that was acknowledged is skipped by a reader, or read as something else."""
    journal = Journal(tmp_path, durability="none")
    session = journal.create()
    session.record("note", {"value": value})
    read = codec.decode(path_of(session).read_bytes())
    session.close()
    resumed = journal.resume(session.id, mode="continue")
    notes = [event.payload for event in read.events if event.type == "note"]

    assert ([], []) == (read.skipped, resumed.recovery.skipped)
    assert [{"value": float(value) if isinstance(value, Decimal) else value}] == notes


def test_a_tool_that_says_nothing_and_an_empty_answer_are_recorded(tmp_path: Path) -> None:
    """Many a command has no output; a model may end its turn without a word."""
    session = Journal(tmp_path).create()
    session.user("Clean up.")
    call = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "rm a"}}
    session.assistant([call])
    session.tool_result("c1", "")
    session.assistant("", cost_usd=0.25)

    assert "" == session.messages[-1]["content"][0]["content"]
    assert 0.25 == session.cost


def test_an_error_says_the_right_form(tmp_path: Path) -> None:
    """Choices are listed, a message is shown, numbers and names are described."""
    journal = Journal(tmp_path)
    session = journal.create()
    words = {}
    untyped: Any = journal
    calls: dict[str, Callable[[], object]] = {
        "mode": lambda: untyped.resume(mode="contineu"),
        "number": lambda: Journal(tmp_path, spill_per_result=-1),
        "prompt": lambda: session.record("user", "fix the bug"),
        "role": lambda: session.record("assistant", {"role": "user", "content": "x"}),
        "tip": lambda: session.record("tip", {"to": "x"}),
        "todos": lambda: session.record("todos", {"todos": 17}),
        "nan": lambda: session.record("note", {"a": [{"b": float("nan")}]}),
    }
    for name, call in calls.items():
        with pytest.raises(BadArgument) as caught:
            call()
        words[name] = (caught.value.message, caught.value.hint)

    resume = "resume(session=None, *, mode='adopt', at=None, orphans='answer', project=None)"
    message = 'record(\'user\', {"role": "user", "content": "…"}), or a list of blocks as content'
    assert ("Journal.resume: `contineu` is no mode: adopt, continue or fork", resume) == words[
        "mode"
    ]
    assert "Journal: spill_per_result is -1, not a whole number of 0 or more" == words["number"][0]
    assert ("the payload of a user event is 'fix the bug', not a message", message) == words[
        "prompt"
    ]
    assert "the payload of a assistant event has the role 'user'" == words["role"][0]
    assert ("`tip` is kept by the library", "use: session.rewind(uuid)") == words["tip"]
    assert (
        "a todos event: Expected `array`, got `int` - at `$.todos`",
        "its fields are todos",
    ) == (words["todos"])
    assert "payload.a[0].b is nan, which JSON has no form for" == words["nan"][0]


def test_a_payload_that_contains_itself_is_refused() -> None:
    """It has no end, so that it must not be written, nor looked through for ever."""
    endless: dict[str, Any] = {}
    endless["again"] = endless

    with pytest.raises(BadArgument, match="lists and dicts"):
        check_value(endless)


def test_helpers_record_messages_of_the_right_form(tmp_path: Path) -> None:
    """A user, an answer with its bill, a result that failed: in the session and a sidechain."""
    session = Journal(tmp_path).create()
    session.user("Why?")
    call = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls"}}
    bill: Names = {"input_tokens": 3, "output_tokens": 4}
    session.assistant([call], usage=bill, cost_usd=0.25, model="m-2", response_id="r1")
    receipt = session.tool_result("c1", "no such folder", failed=True)
    with session.sidechain("helper") as side:
        side.user("Look.")
        side.assistant("Seen.")
        side.finish("")
    result = session.messages[-1]["content"][0]

    assert (0.25, "m-2") == (session.cost, session.state.model["model"])
    assert 4 == session.state.cost["output"]
    assert ("c1", True) == (result["tool_use_id"], result["is_error"])
    assert receipt.uuid != session.tip or receipt.line > 1


def test_a_new_choice_and_a_new_method_are_checked_at_once() -> None:
    """The types of the signature are what is held to; nothing is written twice."""

    @checked
    class Door:
        def open(self, content: Content, *, wide: bool = False) -> str:
            return f"{content} {wide}"

    assert "a True" == Door().open("a", wide=True)
    door: Any = Door()
    for wrong in ({"content": 7}, {"content": "a", "wide": 1}):
        with pytest.raises(BadArgument):
            door.open(**wrong)
