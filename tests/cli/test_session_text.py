"""The page of a session: what stands on it, and where, for sessions made up of facts."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.format.derived import judged
from thence.agents import Source
from thence.agents.sessions import LoadedSession
from thence.cli.session_text import MAX_ROWS, Page
from thence.format.facts import Block, CallStatus, Edge, Fact, answers_of, calls_of
from thence.format.nodes import PREVIOUS, Is, Node, Undo
from thence.format.records import JSON, Notice, Skipped, Usage
from thence.format.session_graph import SessionGraph
from thence.memory.readouts import open_loaded as opened_session


class Facts:
    """A session being made up, one fact after the other."""

    def __init__(self) -> None:
        self.all: list[Fact] = []

    def add(
        self,
        name: str,
        *blocks: Block,
        flags: int = 0,
        parent: str | None = PREVIOUS,
        undo: Undo | None = None,
        **more: JSON,
    ) -> Facts:
        """One more record."""
        node = Node(name, parent, flags, calls_of(blocks), answers_of(blocks), undo=undo)
        line = len(self.all) + 1
        ts = more.pop("ts", f"2026-11-15T13:{line // 60:02}:{line % 60:02}.000Z")
        self.all.append(Fact(node, "made up", ts, blocks, file="log", line=line, **more))
        return self

    def prompt(self, name: str, text: str, **more: JSON) -> Facts:
        """The human says something."""
        return self.add(name, text_block("user_msg", "user", text), flags=Is.PROMPT, **more)

    def reply(self, name: str, *blocks: str | Block, tokens: int = 0, **more: JSON) -> Facts:
        """The model answers."""
        made = [
            text_block("assistant_msg", "assistant", b) if isinstance(b, str) else b for b in blocks
        ]
        usage = Usage(output_tokens=tokens) if tokens else None
        more.setdefault("flags", Is.REPLY if calls_of(made) else Is.REPLY | Is.ENDS)
        return self.add(name, *made, usage=usage, usage_key=name if usage else None, **more)

    def result(
        self, name: str, call: str, text: str, failed: bool | None = None, **more: JSON
    ) -> Facts:
        """A tool answers."""
        block = Block("tool_result", "tool", text, text, None, call, failed)
        return self.add(name, block, **more)


def text_block(kind: str, role: str, text: str) -> Block:
    """A block of text."""
    return Block(kind, role, text[:100], {"type": "text", "text": text})  # type: ignore[arg-type]


def call(name: str, tool: str = "Bash", **arguments: JSON) -> Block:
    """A block that calls a tool."""
    return Block("tool_call", "assistant", "", arguments, tool, name)


def page(
    facts: Facts,
    *,
    room: int = 80,
    opened: bool = False,
    skipped: Iterable[Skipped] = (),
    notices: Iterable[Notice] = (),
    torn: bool = False,
    own: bool = False,
) -> list[str]:
    """The lines of its page."""
    session = SessionGraph(
        "codex:0199a000-0000-7000-8000-000000000001", judged(facts.all), torn=torn
    )
    loaded = LoadedSession(
        Source("codex", session.native, ()), session, list(skipped), list(notices)
    )
    return Page(opened_session(loaded), room, opened=opened, own=own).lines()


# -- the first lines --------------------------------------------------------------------------


def test_first_lines_say_what_the_session_is() -> None:
    """Title; date, place, cost, turns and tokens; agent, model, id."""
    about = {"cwd": "/w/tidepool", "git_branch": "fix/gap", "title:custom": "Mend the gap"}
    facts = Facts().prompt("a", "go", about=about).reply("b", "done", tokens=1200, model="gpt-5.5")

    assert [
        "Mend the gap",
        "2026-11-15 13:00 · tidepool fix/gap · $0.04 · 1 turn · 1.2k tokens · Codex",
        "gpt-5.5 · 0199a000-0000",
    ] == page(facts)[:3]


def test_missing_bill_makes_the_total_a_lower_bound() -> None:
    """And the reason stands at the end."""
    facts = Facts().prompt("a", "go").reply("b", "x", tokens=10, unbilled="killed").reply("c", "y")
    lines = page(facts)

    assert "at least 10 tokens" in lines[1]
    assert "note: cost is a minimum: killed" in lines


def test_session_without_anything_is_shown() -> None:
    """Nothing is no error."""
    assert ["untitled", "●    done", "events: none"] == [page(Facts())[at] for at in (0, 3, 5)]


# -- calls ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "text", "failed", "row"),
    [
        (call("c", command="ls"), "a", None, ["│  › ran ls"]),
        (call("c", command="pytest"), "3 passed in 1s", None, ["✓    ran pytest   3 passed"]),
        (call("c", command="pytest"), "1 failed, 2 passed in 1s", True, ["✗    ran pytest   1 failed, 2 passed"]),  # noqa: E501
        (call("c", "Edit", file_path="a.py"), "ok", None, ["■    edited a.py"]),
        (call("c", command="make"), "x\nmake: *** [all] Error 2", True, ["✗    ran make", "│      make: *** [all] Error 2"]),  # noqa: E501
        (call("c", "Read", file_path="a"), "File does not exist.\nx", True, ["✗    read a", "│      File does not exist."]),  # noqa: E501
        (call("c", command="rm x"), "The user doesn't want to proceed", True, ["✗    ran rm x denied"]),  # noqa: E501
        (call("c", command="sleep 9"), "[Request interrupted by user]", True, ["○    ran sleep 9 interrupted"]),  # noqa: E501
    ],
)  # fmt: skip
def test_call_and_its_result_are_one_row(
    block: Block, text: str, failed: bool | None, row: list[str]
) -> None:
    """Its mark says how it went; of a failure the line that tells most is shown."""
    facts = Facts().prompt("a", "go", ts=None).reply("b", block, ts=None)
    lines = page(facts.result("c", "c", text, failed, ts=None).reply("d", "done", ts=None))
    start = lines.index("│    go") + 1
    shown = [" ".join(line.split()) for line in lines[start : start + len(row)]]

    assert [" ".join(line.split()) for line in row] == shown
    assert "│    done" == lines[start + len(row)]


def test_exit_code_and_time_stand_at_the_right() -> None:
    """Told by another record, or by the clock."""
    statuses = (CallStatus("c", failed=True, exit_code=2, took_ms=3100),)
    facts = Facts().prompt("a", "go").reply("b", call("c", command="make")).result("d", "c", "no")
    facts.add("e", Block("lifecycle", "system", "told"), flags=Is.INTERNAL, told=statuses)
    row = next(line for line in page(facts) if line.startswith("✗"))

    assert 80 == len(row)
    assert row.endswith("exit 2  3.1 s")


def test_call_without_a_result_is_shown_as_interrupted() -> None:
    """Unless another record says that it ended."""
    facts = Facts().prompt("a", "go").reply("b", call("c", command="make"))
    ended = Facts().prompt("a", "go").reply("b", call("c", command="make"), told=(CallStatus("c"),))

    assert any(line.startswith("○    ran make") for line in page(facts))
    assert "│  › ran make" in page(ended)


def test_paths_below_the_working_folder_are_short() -> None:
    """The folder is named once, at the top."""
    block = call("c", "Edit", file_path="/w/p/src/a.py")
    facts = Facts().prompt("a", "go", about={"cwd": "/w/p"}).reply("b", block)

    assert "■    edited src/a.py" in page(facts.result("d", "c", "ok"))


# -- what is no conversation ------------------------------------------------------------------


def test_injected_text_takes_one_line() -> None:
    """It went to the model, but nobody said it."""
    text = "<system-reminder>\n" + "Do not forget. " * 100
    facts = Facts().add("a", text_block("lifecycle", "user", text)).prompt("b", "go")
    lines = page(facts)
    row = next(line for line in lines if line.startswith("·"))

    assert row.startswith("·    <system-reminder> Do not forget.")
    assert row.endswith("1.5 KB")
    assert "● 1  you  13:00" in lines


def test_book_keeping_is_counted_and_not_shown() -> None:
    """Events that no model saw and no reader misses."""
    facts = Facts().prompt("a", "go")
    facts.add("b", Block("lifecycle", "system", "token_count"), flags=Is.INTERNAL)

    assert not any("token_count" in line for line in page(facts))
    assert "events: live 1 · internal 1" in page(facts)


def test_errors_thoughts_and_interruptions_have_their_marks() -> None:
    """One line each."""
    facts = (
        Facts()
        .prompt("a", "go")
        .add("b", Block("error", "system", "529 overloaded", "529 overloaded"))
    )
    facts.reply("c", Block("thinking", "assistant", "Look first."), Block("thinking", "assistant"))
    facts.add("d", text_block("lifecycle", "user", "[stopped]"), flags=Is.INTERRUPTS)

    assert [
        "▲    529 overloaded",
        "│    … Look first.",
        "│    … thought",
        "○    [stopped]",
        "○    interrupted",
    ] == page(facts)[5:10]


# -- branches ---------------------------------------------------------------------------------


def rolled_back() -> Facts:
    """A session whose second turn was taken back."""
    facts = Facts().prompt("a", "one").reply("b", "yes", tokens=10)
    facts.prompt("c", "in vain").reply("d", "sure", tokens=500)
    facts.add("e", Block("lifecycle", "system", "undo"), undo=Undo(turns=1))
    return facts.prompt("f", "instead").reply("g", "fine", tokens=10)


def test_branch_is_marked_where_it_parts_with_what_it_cost() -> None:
    """Closed it takes one line."""
    lines = page(rolled_back())
    at = lines.index("│    yes")

    assert lines[at + 1].startswith("├─╳  rolled back, 1 prompt, 2 events, 500 tokens  ")
    assert lines[at + 2].startswith("● 2  you")
    assert "520 tokens, 500 discarded" in lines[1]


def test_branch_is_opened_in_its_place() -> None:
    """A step to the right of the line."""
    lines = page(rolled_back(), opened=True)
    at = lines.index("│    yes")

    assert [
        "├─╮  rolled back, 1 prompt, 2 events, 500 tokens",
        "│ ●    you  13:00",
        "│ │    in vain",
        "│ │    sure",
        "│ ╳",
    ] == lines[at + 1 : at + 6]


def test_many_branches_at_one_place_are_summed_up() -> None:
    """So that a log of nothing but rewinds can be read."""
    facts = Facts().prompt("a", "one", parent=None)
    for number in range(100):
        facts.prompt(f"p{number}", "again", parent="a")
    lines = [line for line in page(facts) if line.startswith("├─╳")]

    assert MAX_ROWS == len(lines)
    assert "├─╳  95 more discarded branches, 95 prompts, 95 events" == lines[-1]


def test_branch_that_parts_from_nothing_is_shown_first() -> None:
    """A second root that nobody went on from."""
    facts = Facts().prompt("a", "lost", parent=None).prompt("b", "kept", parent=None)

    assert page(facts)[3].startswith("├─╳  discarded branch, 1 prompt, 1 event  ")


def test_branch_of_book_keeping_is_moved_to_what_is_shown() -> None:
    """It parts from an event that is not on the line, but below one that is."""
    facts = Facts().prompt("a", "one", parent=None)
    facts.add("s", text_block("assistant_msg", "assistant", "side"), parent="a", channel="agent")
    facts.prompt("c", "lost", parent="s").prompt("d", "kept", parent="a")
    lines = page(facts)

    assert lines[lines.index("│    one") + 1].startswith(
        "├─╳  discarded branch, 1 prompt, 1 event  "
    )


# -- compaction, subagents, copies ------------------------------------------------------------


def compacted() -> Facts:
    """A session that was compacted after its first turn."""
    facts = Facts().prompt("a", "one").reply("b", "yes", tokens=10)
    block = text_block("user_msg", "user", "one")
    reminder = text_block("lifecycle", "user", "<reminder>")
    facts.add(
        "s", block, text_block("lifecycle", "user", "The story so far."), reminder, flags=Is.SUMMARY
    )
    return facts.prompt("c", "two").reply("d", "done")


def test_compaction_says_what_it_stands_for() -> None:
    """How much, and the summary; what was kept beside it takes a line."""
    lines = page(compacted())

    assert [
        "═    compacted 13:00, 1 prompt, 2 events, 10 tokens summed up",
        "·    one",
        "│    The story so far.",
        "·    <reminder>",
        "● 2  you  13:00",
    ] == lines[3:8]


def test_compaction_is_opened_in_its_place() -> None:
    """What it summed up stands before it."""
    lines = page(compacted(), opened=True)

    assert lines.index("│    yes") < lines.index("═    compacted 13:00")


@pytest.mark.parametrize("how", ["about", "edge", "none"])
def test_subagent_stands_below_its_call(how: str) -> None:
    """As far as the log says which call started it; else at the end."""
    block = call("t", "Task", description="count")
    about: JSON = {"x": "t", "x:type": "explorer"} if how == "about" else {"x:type": "explorer"}
    edges = (Edge("subagent", "x", "its result", call="t", child=True),) if how == "edge" else ()
    facts = Facts().prompt("a", "go", about=about, edges=edges).reply("b", block)
    facts.add("x1", text_block("assistant_msg", "assistant", "two"), parent=None, channel="x")
    facts.result("r", "t", "<used>Bash</used>\ntwo files", parent="b").reply("c", "done")
    closed, opened = page(facts), page(facts, opened=True)
    at = closed.index("├─▸  explorer, 1 event")

    assert closed[at - 1].startswith(
        "│    done" if how == "none" else "│  › asked a subagent: count"
    )
    assert ("│    returned: two files" == closed[at + 1]) is (how != "none")
    assert "│ │    two" == opened[opened.index("├─▸  explorer, 1 event") + 1]


def test_subagent_that_is_a_session_of_its_own_is_named() -> None:
    """Below its call, and not again at the end."""
    block = call("t", "spawn_agent", prompt="count")
    edges = (Edge("subagent", "child-1", "its result", call="t", child=True),)
    facts = Facts().prompt("a", "go").reply("b", block, edges=edges).result("r", "t", "ok")

    assert ["├─▸  its session is child-1"] == [line for line in page(facts) if "child-1" in line]


def test_copies_of_another_sessions_events_are_shown_with_their_border() -> None:
    """They are read with the session, counted with their owner, and left out if asked."""
    facts = Facts().prompt("a", "one", origin="older").reply("b", "yes", origin="older", tokens=50)
    facts.prompt("c", "two").reply("d", "done")
    lines, own = page(facts), page(facts, own=True)
    border = "┄┄   continued from older, 2 messages"

    assert lines.index("│    yes") < lines.index(border) < lines.index("│    two")
    assert "0 tokens" in lines[1]
    assert f"{border}, not shown" == own[3]
    assert "│    yes" not in own
    assert "│    yes" in page(facts, opened=True)


# -- the last lines ---------------------------------------------------------------------------


def test_last_lines_say_what_became_of_the_rest() -> None:
    """Ties, skipped lines, notices; of many the first few."""
    facts = Facts().prompt("a", "go", edges=(Edge("fork", "older", "forked_from_id"),))
    skipped = [Skipped(at, 0, 7, "bad json", 1, "f") for at in range(2, 10)]
    lines = page(
        facts, skipped=skipped, notices=[Notice("rewritten", "f"), Notice("rewritten", "g")]
    )

    assert "forked from older (forked_from_id)" in lines
    assert "skipped line 2, 7 bytes: bad json, 1 record recovered" in lines
    assert "and 3 more skipped lines" in lines
    assert "note: rewritten: f and 1 more" in lines


def test_what_a_rewritten_log_no_longer_holds_is_told() -> None:
    """Dead, and said why."""
    facts = Facts().prompt("a", "one").prompt("b", "two")
    facts.all = [*facts.all, *(_again(fact) for fact in facts.all[:1])]

    assert "1 event no longer in any log, which was rewritten" in page(facts)


def _again(fact: Fact) -> Fact:
    return Fact(fact.node, fact.type, fact.ts, fact.blocks, file="log", generation=1, line=1)


def test_torn_last_line_is_told_beside_the_turn() -> None:
    """It is no state of its own."""
    facts = Facts().prompt("a", "go").reply("b", call("c", command="make"))

    lines = page(facts, torn=True)

    assert "○    stopped in the middle of a turn · no process is working on it" in lines
    assert "its last line is cut off" in lines


# -- hostile content --------------------------------------------------------------------------

EVIL = "\x1b[2J\r\u202e\x9b \u200b\U000e0041\n● 9  you\tx"


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("room", [40, 80, 120])
def test_no_text_of_a_log_is_obeyed_and_no_row_is_too_wide(room: int, opened: bool) -> None:
    """Wherever it stands: names, channels, errors, results, ties, titles."""
    long = f"{EVIL} {'漢' * 90}"
    about = {
        "cwd": f"/{long}",
        "git_branch": long,
        "title:custom": long,
        long: "t",
        f"{long}:type": long,
    }
    edges = (Edge("fork", long, long), Edge("subagent", long, long, call="t2", child=True))
    facts = Facts().prompt("a", long, about=about, edges=edges, ts=long)
    facts.reply("b", call("t", long, x=long), call("t2", "Task", prompt=long), long, model=long)
    facts.add("s", text_block("assistant_msg", "assistant", long), parent=None, channel=long)
    facts.result("r", "t", long, True).add("e", text_block("error", "system", long))
    facts.add("i", text_block("lifecycle", "user", long), flags=Is.INTERRUPTS)
    facts.add("j", text_block("lifecycle", "user", long), text_block("thinking", "assistant", long))
    facts.add("k", text_block("decision", "assistant", long)).prompt("z", long, origin=long)
    lines = page(facts, room=room, opened=opened, skipped=[Skipped(0, 0, 0, long, 0, long)])

    assert [] == [line for line in lines if _columns(line) > room]
    assert not any(
        mark in line for line in lines for mark in "\x1b\r\x9b\u202e\u200b\U000e0041\n\t"
    )
    assert not any(line.startswith("● 9") for line in lines)


def _columns(line: str) -> int:
    return sum(2 if c == "漢" else 1 for c in line)
