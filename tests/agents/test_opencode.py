"""OpenCode and Kilo: databases as their clients write them, against what the API billed."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.agents.agents import Bill, billed, counted, outcomes, sessions_of
from tests.agents.databases import (
    OPENCODE,
    START_MS,
    Step,
    at_once,
    event_rows,
    grown,
    insert,
    only,
    run,
)
from tests.pace import SUITE_BYTES, SUITE_ROUNDS
from thence.agents.kilo.reader import Kilo
from thence.agents.opencode.messages import KILLED, THOUGHTS, TITLE
from thence.agents.opencode.reader import OpenCode
from thence.agents.sessions import load
from thence.memory.readouts import readout_of
from thence.testing import AdapterSuite
from thence.testing.readers import CHECKS

HOME = "home/.local/share/opencode"
PARENT, CHILD, FORK = "ses_b000parent", "ses_a000child", "ses_9000fork"
ADAPTER = OpenCode()


class Writer:
    """Writes sessions as the client does: a row and its event, again for each change."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._numbers: dict[str, int] = {}
        self._session = PARENT

    def event(self, kind: str, **data: Any) -> None:
        """An event of the session that is written, and its number."""
        number = self._numbers.get(self._session, -1) + 1
        self._numbers[self._session] = number
        name = f"evt_{self._session}_{number:03}"
        place = {"aggregate_id": self._session, "seq": number}
        sequence = "INSERT OR REPLACE INTO event_sequence (aggregate_id, seq) VALUES (?, ?)"
        self.steps.append(insert("event", id=name, type=f"{kind}.1", data=data, **place))
        self.steps.append((sequence, (self._session, number)))

    def session(self, name: str, title: str, **more: Any) -> None:
        """A session, or a change of it."""
        self._session = name
        is_new = name not in self._numbers
        info: dict[str, Any] = {"id": name, "directory": "/home/dev/demo", "title": title}
        info |= {"version": "1.18.33", "time": {"created": START_MS}, **more}
        self.event("session.created" if is_new else "session.updated", info=info)
        if is_new:
            row = {"id": name, "parent_id": more.get("parentID"), "directory": "/home/dev/demo"}
            times = {"time_created": START_MS, "time_updated": START_MS}
            self.steps.append(insert("session", title=title, version="1.18.33", **row, **times))

    def message(self, name: str, second: int, role: str, tokens: int = 0, **more: Any) -> None:
        """A message; with tokens it is finished."""
        info: dict[str, Any] = {"id": name, "role": role, "time": {"created": _ms(second)}, **more}
        if role == "assistant":
            cache = {"read": 100, "write": 0} if tokens else {"read": 0, "write": 0}
            counts = {"input": max(tokens - 100, 0), "output": tokens // 100, "reasoning": 0}
            info |= {"modelID": "mock-1", "tokens": {**counts, "cache": cache}}
        self.event("message.updated", info=info)

    def part(self, name: str, message: str, kind: str, **more: Any) -> None:
        """A part of a message."""
        part = {"id": name, "messageID": message, "type": kind, **more}
        self.event("message.part.updated", part=part)

    def prompt(self, name: str, second: int, line: str, **more: Any) -> None:
        """A prompt."""
        self.message(name, second, "user")
        self.part(f"prt_{name}", name, "text", text=line, **more)

    def answer(self, name: str, second: int, line: str, tokens: int) -> None:
        """An answer: its text is empty first."""
        self.message(name, second, "assistant")
        start = {"start": _ms(second)}
        self.part(f"prt_{name}", name, "text", text="", time=start)
        self.part(f"prt_{name}", name, "text", text=line, time={**start, "end": _ms(second) + 9})
        self.message(name, second, "assistant", tokens, finish="stop")

    def call(self, name: str, second: int, tool: str, state: dict[str, Any], tokens: int) -> None:
        """An answer that is a call."""
        self.message(name, second, "assistant")
        place = {"callID": f"call_{name}", "tool": tool}
        self.part(f"prt_{name}", name, "tool", **place, state={"status": "pending", "input": {}})
        begun = {"input": state["input"], "time": {"start": _ms(second)}}
        self.part(f"prt_{name}", name, "tool", **place, state={"status": "running", **begun})
        times = {"start": _ms(second), "end": _ms(second) + 1500}
        ended = {"status": "completed", **state, "time": times}
        self.part(f"prt_{name}", name, "tool", **place, state=ended)
        self.message(name, second, "assistant", tokens, finish="tool-calls")


def _ms(second: int) -> int:
    return START_MS + 1000 * second


def talk(writer: Writer, prefix: str = "msg_1") -> None:
    """A prompt, a call that fails, and an answer."""
    made = {"input": {"command": "make"}, "output": "no rule", "metadata": {"exit": 2}}
    writer.prompt(f"{prefix}0", 1, '"Mend it"')
    writer.call(f"{prefix}1", 2, "bash", made, 1000)
    writer.answer(f"{prefix}2", 3, "It has no rule.", 1100)


def steps() -> list[Step]:
    """A session with a subagent, an undo, a compaction and a kill, and a fork of it."""
    writer = Writer()
    writer.session(PARENT, "New session - now")
    talk(writer)
    writer.session(PARENT, "Mending")
    asked = {"input": {"prompt": "Count"}, "output": "Two.", "metadata": {"sessionId": CHILD}}
    writer.prompt("msg_20", 4, "Delegate")
    writer.call("msg_21", 5, "task", asked, 1200)
    writer.session(CHILD, "Count (@general subagent)", parentID=PARENT)
    writer.prompt("msg_30", 6, "Count")
    writer.answer("msg_31", 7, "Two.", 500)
    writer.session(FORK, "Mending (fork #1)")
    talk(writer, "msg_9")
    writer.prompt("msg_95", 20, "Another way")
    writer.answer("msg_96", 21, "So be it.", 2000)
    writer.session(PARENT, "Mending")
    writer.prompt("msg_40", 8, "Try this")
    writer.answer("msg_41", 9, "No.", 1300)
    writer.session(PARENT, "Mending", revert={"messageID": "msg_40"})
    writer.event("message.removed", messageID="msg_40")
    writer.event("message.removed", messageID="msg_41")
    writer.session(PARENT, "Mending")
    writer.prompt("msg_50", 10, "Go on")
    writer.message("msg_51", 11, "user")
    writer.part("prt_msg_51", "msg_51", "compaction", auto=True)
    writer.message("msg_52", 12, "assistant", summary=True)
    writer.part("prt_msg_52", "msg_52", "text", text="It was mended.", time={"start": 1, "end": 2})
    writer.message("msg_52", 12, "assistant", 3000, summary=True, finish="stop")
    writer.prompt("msg_53", 13, "Continue if you have next steps", synthetic=True)
    writer.answer("msg_54", 14, "Yes.", 1400)
    writer.prompt("msg_60", 15, "Wait")
    writer.message("msg_61", 16, "assistant")
    running = {"status": "running", "input": {"command": "sleep 9"}, "time": {"start": _ms(16)}}
    writer.part("prt_msg_61", "msg_61", "tool", callID="c6", tool="bash", state=running)
    writer.prompt("msg_70", 17, "Still there?")
    error = {"name": "APIError", "data": {"message": "400 bad request"}}
    writer.message("msg_71", 18, "assistant", error=error)
    return writer.steps


def write(root: Path) -> None:
    """Write the made-up sessions."""
    run(root / "opencode.db", OPENCODE, steps())


# -- real sessions --------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["tools", "subagent", "fork", "compact", "revert"])
def test_tokens_calls_and_prompts_are_what_the_api_billed(shared: Path, scenario: str) -> None:
    """Every field is exact but for the title's request, which is said to be in no log."""
    home = shared / "data" / "agents" / "opencode" / scenario
    sessions = sessions_of(ADAPTER, home / HOME).values()

    assert billed(home, unlogged=("side",), side=()) == counted(ADAPTER, home / HOME)
    assert {TITLE} == {notice.detail for session in sessions for notice in session.unbilled}
    assert {"done"} == {str(session.turn().state) for session in sessions}
    assert {"/home/dev/demo"} == {session.session().cwd for session in sessions}
    assert {"mock-1"} == {session.session().model for session in sessions}


def test_kilo_is_read_as_exactly(shared: Path) -> None:
    """Its fork has new ids as well; what it shows while it starts is nobody's text."""
    home = shared / "data" / "agents" / "kilo" / "fork"
    root = home / "home/.local/share/kilo"
    texts = {e.summary for session in sessions_of(Kilo(), root).values() for e in session.events}

    assert billed(home, unlogged=("side",), side=()) == counted(Kilo(), root)
    assert [] == [text for text in texts if "Initializing" in text]


def test_a_killed_request_is_a_lower_bound(shared: Path) -> None:
    """Its call has no result, its tokens are nowhere, and the total says so."""
    home = shared / "data" / "agents" / "opencode" / "killed"
    truth, counts = billed(home, unlogged=("side",), side=()), counted(ADAPTER, home / HOME)
    (killed,) = sessions_of(ADAPTER, home / "at-kill/.local/share/opencode").values()
    (session,) = sessions_of(ADAPTER, home / HOME).values()

    assert (truth.calls, truth.prompts) == (counts.calls, counts.prompts)
    assert Bill(2, truth.own.input - 1230, truth.own.cached, truth.own.output - 33) == counts.own
    assert KILLED in {notice.detail for notice in session.unbilled}
    assert ("bash", False, False, None) == outcomes(session)[0]
    assert ("running", "done") == (str(killed.turn().state), str(session.turn().state))


def test_a_real_fork_is_known_by_what_it_shares(shared: Path) -> None:
    """No row names its parent, and its copies have other ids."""
    from thence.format import lineage

    home = shared / "data" / "agents" / "opencode" / "fork"
    facts = {source.session: ADAPTER.read(source).events for source in ADAPTER.find(home / HOME)}
    edges = lineage.find_shared(facts).edges
    parent = next(name for name in facts if name.endswith("qMGV"))

    assert [("fork", parent)] == [(e.link, e.session) for links in edges.values() for e in links]


def test_a_real_subagent_is_linked_to_its_call(shared: Path) -> None:
    """From both sides."""
    home = shared / "data" / "agents" / "opencode" / "subagent"
    sessions = sessions_of(ADAPTER, home / HOME)
    ties = {(e.link, e.call, e.child) for session in sessions.values() for e in session.edges}

    assert {("subagent", "call_2_0", True), ("subagent", None, False)} == ties


# -- made-up sessions -----------------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.parametrize("check", CHECKS)
def test_the_adapter_suite_passes(check: str) -> None:
    """Growth, damage, deleted rows, moving and hostile values change nothing that must stay."""
    assert [] == AdapterSuite(ADAPTER, write, rounds=SUITE_ROUNDS, bytewise=SUITE_BYTES).complaints(
        check
    )


@pytest.mark.slow
def test_read_after_every_row_it_is_the_session_read_at_once(tmp_path: Path) -> None:
    """A call that runs is told when it runs; its result when it is there."""
    write(tmp_path / "whole")
    one_by_one = grown(
        ADAPTER, tmp_path / "grown", tmp_path / "grown/opencode.db", OPENCODE, steps()
    )

    expected = at_once(ADAPTER, tmp_path / "whole")
    assert {name: event_rows(session) for name, session in expected.items()} == {
        name: event_rows(session) for name, session in one_by_one.items()
    }
    assert {name: session.about for name, session in expected.items()} == {
        name: session.about for name, session in one_by_one.items()
    }


def test_made_up_sessions_are_told_in_full(tmp_path: Path) -> None:
    """Calls with outcome and time, titles, undone turns, compactions, errors, and bills once."""
    write(tmp_path)
    sessions = sessions_of(ADAPTER, tmp_path)
    parent, fork, child = sessions[PARENT], sessions[FORK], sessions[CHILD]

    assert [
        ("bash", True, True, 2),
        ("task", True, False, None),
        ("bash", False, False, None),
    ] == outcomes(parent)
    assert 1500 == parent.calls[0].outcome.duration_ms
    assert ("Mending", "/home/dev/demo") == (parent.title, parent.session().cwd)
    own = {1000: 10, 1100: 11, 1200: 12, 3000: 30, 1400: 14}
    assert (sum(own) + sum(own.values()), 1313) == (
        parent.spent.live.total,
        parent.spent.dead.total,
    )
    assert (2020, 505) == (fork.spent.own, child.spent.own)
    prompts = [(e.summary, str(e.state)) for e in parent.events if e.kind == "user_msg"]
    assert [
        ("Mend it", "live"),
        ("Delegate", "live"),
        ("Try this", "dead"),
        ("Go on", "live"),
        ("Wait", "live"),
        ("Still there?", "live"),
    ] == prompts
    assert ["400 bad request"] == [e.summary for e in parent.events if e.kind == "error"]
    assert [] == [e for e in child.events if e.kind == "user_msg"]


def test_after_a_compaction_the_model_sees_the_summary_and_what_follows(tmp_path: Path) -> None:
    """What was said before it is not sent any more."""
    write(tmp_path)
    messages = readout_of(sessions_of(ADAPTER, tmp_path)[PARENT]).messages().messages
    texts = [part.get("text") for message in messages for part in message["content"]]

    assert ["It was mended.", "Continue if you have next steps", "Yes."] == texts[:3]


def test_what_a_compaction_keeps_in_view_follows_the_summary(tmp_path: Path) -> None:
    """Its part names the first message that stays."""
    writer = Writer()
    writer.session(PARENT, "Mending")
    talk(writer)
    writer.prompt("msg_20", 4, "Go on")
    writer.answer("msg_21", 5, "Yes.", 1200)
    writer.message("msg_30", 6, "user")
    writer.part("prt_msg_30", "msg_30", "compaction", auto=True, tail_start_id="msg_20")
    writer.message("msg_31", 7, "assistant", summary=True)
    writer.part("prt_msg_31", "msg_31", "text", text="It was mended.", time={"end": 1})
    writer.message("msg_31", 7, "assistant", 3000, summary=True, finish="stop")
    writer.prompt("msg_40", 8, "And now?")
    run(tmp_path / "opencode.db", OPENCODE, writer.steps)
    messages = readout_of(sessions_of(ADAPTER, tmp_path)[PARENT]).messages().messages
    texts = [part.get("text") for message in messages for part in message["content"]]

    assert ["It was mended.", "Go on", "Yes.", "And now?"] == texts


def test_a_database_without_events_is_read_from_its_rows(tmp_path: Path) -> None:
    """Versions before that table wrote messages and parts only; a change of them is noticed.

    A message of theirs may be several requests, of which it has the tokens of the last.
    """
    schema = OPENCODE.partition("CREATE TABLE session")[1:]
    times = {"time_created": START_MS, "time_updated": START_MS}
    row = {"id": PARENT, "directory": "/home/dev/demo", "version": "1.1", "title": "Mending"}
    tokens = {"input": 900, "output": 10, "reasoning": 5, "cache": {"read": 100, "write": 0}}
    asked = {"role": "user", "time": {"created": START_MS}}
    message = {"role": "assistant", "time": {"created": _ms(1), "completed": _ms(2)}}
    bill = {"modelID": "mock-1", "tokens": tokens, "finish": "stop"}
    parts = {"session_id": PARENT, **times}
    first = {"type": "step-finish", "tokens": {**tokens, "input": 300}}
    path = run(
        tmp_path / "opencode.db",
        "".join(schema),
        [
            insert("session", **row, **times),
            insert("message", id="msg_1", session_id=PARENT, data=asked, **times),
            insert(
                "part", id="prt_1", message_id="msg_1", data={"type": "text", "text": "Hi"}, **parts
            ),
            insert("message", id="msg_2", session_id=PARENT, data={**message, **bill}, **times),
            insert(
                "part", id="prt_2", message_id="msg_2", data={"type": "text", "text": "Ho"}, **parts
            ),
            *(
                insert("part", id=f"prt_2{nth}", message_id="msg_2", data=step, **parts)
                for nth, step in enumerate((first, {**first, "tokens": tokens}))
            ),
        ],
    )
    source = only(ADAPTER, tmp_path)
    batch = ADAPTER.read(source)
    graph = load(path, {"opencode": ADAPTER}).graph
    assert (1010 + 410, THOUGHTS) == (graph.spent.own, graph.unbilled[-1].detail)

    database = sqlite3.connect(path)
    more = {"type": "text", "text": "More", "time": {"start": 1, "end": 2}}
    statement, values = insert("part", id="prt_3", message_id="msg_2", data=more, **parts)
    database.execute(statement, values)
    database.commit()
    database.close()
    again = ADAPTER.read(only(ADAPTER, tmp_path), batch.cursor)
    from thence.format.session_graph import SessionGraph

    session = SessionGraph("opencode:x", [*batch.events, *again.events])
    assert ["Hi", "Ho", "More"] == [e.summary for e in session.events if e.kind.endswith("_msg")]
    assert 1010 + 410 == session.spent.own


@pytest.mark.parametrize(
    ("tokens", "spent"),
    [
        ({"output": 30, "reasoning": 10, "total": 1040}, 1040),  # beside it, since 1.18
        ({"output": 40, "reasoning": 10, "total": 1040}, 1040),  # part of it, before
        ({"output": 5, "reasoning": 10}, 1015),  # no part is larger than the whole
    ],
)
def test_thoughts_are_counted_once(tmp_path: Path, tokens: dict[str, int], spent: int) -> None:
    """The total tells whether the output has them in it."""
    writer = Writer()
    writer.session(PARENT, "Mending")
    counts = {**tokens, "input": 900, "cache": {"read": 100, "write": 0}}
    info = {"id": "msg_1", "role": "assistant", "modelID": "m", "tokens": counts, "finish": "stop"}
    writer.event("message.updated", info={**info, "time": {"created": _ms(1)}})
    path = run(tmp_path / "opencode.db", OPENCODE, writer.steps)

    assert spent == load(path, {"opencode": ADAPTER}).graph.spent.own


def test_only_the_session_that_changed_has_another_version(tmp_path: Path) -> None:
    """A sweep reads none of the others again."""
    from thence.agents.files import is_unchanged

    write(tmp_path)
    cursors = {s.session: ADAPTER.read(s).cursor for s in ADAPTER.find(tmp_path)}
    writer = Writer()
    writer._numbers = {PARENT: 10_000}
    writer.session(PARENT, "Mending")
    database = sqlite3.connect(tmp_path / "opencode.db")
    for statement, values in writer.steps:
        database.execute(statement, values)
    database.commit()
    database.close()
    changed = [s.session for s in ADAPTER.find(tmp_path) if not is_unchanged(s, cursors[s.session])]

    assert [PARENT] == changed


def test_a_deleted_session_stays_as_it_was_read(tmp_path: Path) -> None:
    """The client deletes its rows and its events."""
    write(tmp_path)
    source = next(s for s in ADAPTER.find(tmp_path) if s.session == FORK)
    batch = ADAPTER.read(source)
    database = sqlite3.connect(tmp_path / "opencode.db")
    for table, column in (("session", "id"), ("event", "aggregate_id")):
        database.execute(f"DELETE FROM {table} WHERE {column} = ?", (FORK,))
    database.execute("DELETE FROM event_sequence WHERE aggregate_id = ?", (FORK,))
    database.commit()
    database.close()
    again = ADAPTER.read(source, batch.cursor)

    assert ([], []) == (again.events, again.notices)
    assert FORK not in {s.session for s in ADAPTER.find(tmp_path)}


def test_the_table_of_credentials_is_never_read(tmp_path: Path) -> None:
    """Neither is any other that is not named."""
    run(
        tmp_path / "opencode.db", OPENCODE, [*steps(), insert("credential", id="x", value="S3CRET")]
    )
    facts = [f for s in ADAPTER.find(tmp_path) for f in ADAPTER.read(s).events]

    assert "S3CRET" not in repr(facts)


def test_roots_follow_the_variables() -> None:
    """The data folder may be moved, and so may the database."""
    home = Path("/home/dev")
    paths = ADAPTER.roots(home, {"XDG_DATA_HOME": "/data", "OPENCODE_DB": "/db/opencode-x.db"})

    assert [Path("/db"), Path("/data/opencode"), home / ".local/share/opencode"] == paths
    assert [home / ".local/share/kilo"] == Kilo().roots(home, {"KILO_DB": "name.db"})
