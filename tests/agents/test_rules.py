"""The rule book of foreign logs: each rule has a test, and `docs/rules.md` says which.

A test names its rules at the start of its docstring: `X15: …` or `R1, R3: …`. The page is made
from these docstrings; renew it with `python -m tests.agents.test_rules`. Below the table stand
tests of rules that belong to no single module.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.agents.transcripts import (
    A,
    B,
    Script,
    read,
    sent_lines,
    session_of,
    states,
    text,
    usage,
    write,
)
from thence.format import lineage
from thence.format.derived_events import time_of
from thence.format.graph import State
from thence.format.records import Usage
from thence.format.session_graph import SessionGraph
from thence.memory.pricelist import SHIPPED
from thence.memory.prices import tariff
from thence.memory.readouts import readout_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "rules.md"
FOLDERS = ("agents", "format")
SHOWN = 3
"""How many tests of one rule the page names."""

PARTS = {
    "R": "Any source",
    "L": "Claude Code: files and folders",
    "D": "Claude Code: the graph",
    "F": "Claude Code: forks, resumes, titles",
    "U": "Claude Code: usage",
    "T": "Claude Code: content",
    "S": "Claude Code: subagents",
    "A": "State of the last turn",
    "X": "Codex",
    "G": "Grok",
}

GISTS = {
    "R1": "a line counts once its LF is written; a record without LF moves no cursor",
    "R2": "a log is recognized by its inode, first and last bytes; otherwise it is read again",
    "R3": "reading resumes only after an LF",
    "R4": "a broken line is counted with its position and costs only itself",
    "R5": "lines of many megabytes are read; no line blocks the rest",
    "R6": "byte order marks, NULs and lone surrogates break nothing",
    "R7": "records of unknown types are normal events",
    "R8": "for session facts the first record counts, for the title the last",
    "R9": "counts may be text, floats or null",
    "R10": "neither the order of keys nor white space matters",
    "R11": "links and copies make no second session",
    "R12": "a log without text is an empty session, not an error",
    "R13": "what could not be read is tried again; the cursor does not move past it",
    "R14": "imported data outlives its file",
    "R15": "a path in a log is used only as a plain file name in the session's own folder",
    "R16": "times in seconds, milliseconds or text are the same moments",
    "L1": "sessions are grouped by project below one or several configuration folders",
    "L2": "the name of a project folder cannot be decoded; records say where the work was done",
    "L3": "the desktop app stores projects several folders deeper",
    "L4": "subagents, workflows and long outputs are beside a session, in two layouts",
    "L5": "the prompt history spans all sessions; old lines name no session",
    "L6": "the client deletes by age of the file, so reading must not touch it",
    "L7": "a killed process leaves its transcript and its entry behind",
    "D1": "ids are per record, message ids per response",
    "D2": "chains pass through records that hold no message",
    "D3": "all records with an id are linked before any is filtered out",
    "D4": "several roots are normal",
    "D5": "a boundary follows a record that may be moved, kept or missing",
    "D6": "a boundary has its trigger and its size before and after",
    "D7": "the summary of a compaction is not a prompt",
    "D8": "what a compaction repeats is neither shown nor billed twice",
    "D9": "a missing parent is bridged and reported",
    "D10": "cycles of links are cut",
    "D11": "most siblings are not branches; a rewind is one",
    "D12": "a call is open only if the file has no result for it",
    "D13": "results are matched by id, in any order",
    "D14": "the live tip is the one the client names, otherwise the last one written",
    "D15": "if a record is written twice, the copy with a parent counts",
    "D16": "a checkpoint's message id names no record",
    "D17": "the file name gives the session id, whatever its records say",
    "F1": "a fork copies records with their ids and bills",
    "F2": "shared ids are the only sign of most forks",
    "F3": "records without an id are never copies",
    "F4": "a fork without own records owns nothing",
    "F5": "if the direction is unclear nothing is cut, and usage still counts once",
    "F6": "/branch marks each record with its origin",
    "F7": "a summary may be the title of another session",
    "F8": "title order: given, generated, summary, first prompt",
    "U1": "if usage is repeated, the record with the most output counts",
    "U2": "without a request id the message id is the key",
    "U3": "a side question that repeats the session is not billed again",
    "U4": "across all sessions each response is billed once, to the oldest",
    "U5": "ties are resolved the same way in any order",
    "U6": "what the client wrote itself costs nothing",
    "U7": "one-hour cache writes are counted apart from short ones",
    "U8": "the rate for long prompts depends on one request, not on sums",
    "U9": "searches are counted where the client reports them",
    "U10": "requests without usage make the total a minimum, and it says so",
    "U11": "the usage of subagents is in their own files",
    "U12": "discarded branches were billed",
    "U13": "speed and tier are stored, because they change the price",
    "U14": "costs recorded by old versions are kept",
    "T1": "a record usually holds one block, sometimes several",
    "T2": "the records of one response form its message",
    "T3": "a queued prompt is one prompt, in all four forms",
    "T4": "injected records go to the model and are not prompts",
    "T5": "text that the harness sends in the user's name is not a prompt; what follows may be",
    "T6": "sessions of probes and observers are marked, not dropped",
    "T7": "an output that was moved to a file is found by its file name",
    "T8": "structured results of any shape keep what the text lacks",
    "T9": "no error, null and a missing field are three cases",
    "T10": "images are stored as images",
    "T11": "redacted thinking, documents and unknown blocks stay unchanged",
    "T12": "the second copy of a file that was read is left out",
    "S1": "a subagent's records are a channel of the session they name",
    "S2": "a subagent is linked to its call by any of five signs",
    "S3": "subagents of subagents are beside them, not below",
    "S4": "a channel is named by the agent's id",
    "S5": "the answer of a background subagent is shown once",
    "S6": "workflows are read from their journal and completed from their snapshot",
    "S7": "progress is stored without the copies in it",
    "S8": "a subagent may grow while its session does not",
    "A1": "a call without a result is open; no log says why",
    "A2": "a torn last line is reported beside the state",
    "A3": "permissions are history and never restored",
    "X1": "rollouts are in folders by day, flat in old homes and in the archive",
    "X2": "a rollout stays the same when it is compressed or unpacked",
    "X3": "bare lines of 2025 and wrapped lines are read alike",
    "X4": "a second header is a copy; the first one names the thread",
    "X5": "the parent of a thread is recorded in several forms",
    "X6": "events that repeat items are not shown twice",
    "X7": "history by reference is that of the base, up to the named place",
    "X8": "copies at the start of an old fork end where it differs from the parent",
    "X9": "totals become usage per response; repeated and empty totals add nothing",
    "X10": "input includes the cached part, output the reasoning",
    "X11": "the model is the one of the last turn context",
    "X12": "calls and outputs of all kinds are read, as JSON text or not",
    "X13": "text of the client is not a prompt; a request after it is",
    "X14": "a prompt repeated right after an interruption is one prompt",
    "X15": "rolled back turns leave the context, not the bill",
    "X16": "a compaction is a boundary with the history that replaces the old",
    "X17": "the log itself says where turns begin, end and are interrupted",
    "X18": "children are named by results, items, activities and older events",
    "X19": "what is encrypted is never shown",
    "X20": "the originator is free text and decides nothing",
    "X21": "titles come from an index, if there is one",
    "X22": "the prompt history has its own time units",
    "X23": "the output of `exec --json` is not a rollout",
    "X24": "half a record before its complete copy costs nothing",
    "G1": "a session is a folder, found by its layout; records say where the work was done",
    "G2": "the update log holds the conversation; the chat is a copy without times",
    "G3": "prompts are unwrapped; injected rows are not prompts",
    "G4": "tools of the API are shown once, wherever they are recorded",
    "G5": "chunks are joined by prompt and stream",
    "G6": "each turn has its usage; the last record of it counts",
    "G7": "the running context size is an estimate and never added",
    "G8": "parents are named by the fork, or by the parent's own folder",
    "G9": "what a rewind removed stays as discarded, also if the log was cut",
    "G10": "a session without a human is marked by the client",
    "G11": "a checkpoint of a compaction is a boundary",
    "G12": "other tools of the same home are not claimed",
    "G13": "exit codes say how a call ended, not the name of its state",
}

ELSEWHERE = {
    "R5": "Lines over 64 MB are skipped and reported.",
    "R14": "The store records which version of a reader made a row.",
    "L6": "When the client last deleted is unknown; that it deletes is known (`keeps_days`).",
    "D8": "No real file holds such a replay; its first copy shows as a discarded branch.",
    "U8": "Rates are in `memory.prices`.",
    "T2": "Real clients write a record per block, so records add; none repeats a growing text.",
    "T12": "The store decides what the index leaves out.",
    "S6": "Phases are stored as recorded; the viewer draws them.",
    "X9": "A falling total has started again; it is accepted.",
    "X21": "The client's databases are not opened.",
}
"""What is not tested here, or decided otherwise, and why."""

_IDS = re.compile(r"([A-Z]\d+(?:, [A-Z]\d+)*): ")


def order(rule: str) -> tuple[int, int]:
    """Where a rule stands in the book."""
    return list(PARTS).index(rule[0]), int(rule[1:])


def rule_tests() -> dict[str, list[str]]:
    """The tests of each rule, by file and name."""
    out: dict[str, list[str]] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / "tests" / folder).glob("test_*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
                    continue
                match = _IDS.match(ast.get_docstring(node) or "")
                for rule in match[1].split(", ") if match else ():
                    name = f"{folder}/{path.stem.removeprefix('test_')}: {node.name[5:]}"
                    out.setdefault(rule, []).append(name)
    return out


def chosen(names: list[str]) -> list[str]:
    """Some tests of a rule, from as many files as can be."""
    first: dict[str, str] = {}
    for name in names:
        first.setdefault(name.partition(":")[0], name)
    return list(dict.fromkeys([*first.values(), *names]))[:SHOWN]


def page() -> str:
    """The page, as the docstrings have it now."""
    known = rule_tests()
    out = [
        "# Rules that readers keep",
        "",
        "Rules that the readers of other agents' logs follow, and the tests that check them. Up to",
        f"{SHOWN} tests per rule are named; others have its id in their docstring. Generated by",
        "`python -m tests.agents.test_rules`.",
    ]
    for letter, title in PARTS.items():
        out += ["", f"## {title}", "", "| rule | text | tests |", "| --- | --- | --- |"]
        for rule in sorted((r for r in GISTS if r[0] == letter), key=order):
            note = f" {ELSEWHERE[rule]}" if rule in ELSEWHERE else ""
            names = "<br>".join(f"`{name}`" for name in chosen(known.get(rule, [])))
            out.append(f"| {rule} | {GISTS[rule][0].upper()}{GISTS[rule][1:]}.{note} | {names} |")
    return "\n".join(out) + "\n"


# -- the table ------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_rule_has_a_test() -> None:
    """None is left out, and no docstring names a rule that is not in the table."""
    assert set(GISTS) == set(rule_tests())


def test_rules_are_those_of_the_book(shared: Path) -> None:
    """The table has the rules of the book it was made from, all of them and no other."""
    book = (shared / "formats" / "rules.md").read_text(encoding="utf-8")
    rules = re.findall(r"^- \*\*([A-Z]\d+)\*\*", book, re.MULTILINE)

    assert sorted(rules, key=order) == list(GISTS)


def test_gists_are_our_own_words(shared: Path) -> None:
    """No run of seven words is taken from the book."""
    book = _words((shared / "formats" / "rules.md").read_text(encoding="utf-8"))
    runs = {tuple(book[at : at + 7]) for at in range(len(book))}
    gists = {rule: _words(gist) for rule, gist in GISTS.items()}
    taken = {
        rule
        for rule, words in gists.items()
        for at in range(len(words) - 6)
        if tuple(words[at : at + 7]) in runs
    }

    assert set() == taken


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


@pytest.mark.slow
def test_the_page_is_up_to_date() -> None:
    """Renew it with `python -m tests.agents.test_rules`."""
    assert page() == PAGE.read_text(encoding="utf-8")


# -- rules of no single module --------------------------------------------------------------


def call(name: str) -> list[dict[str, object]]:
    """The content of a record that makes a call."""
    return [{"type": "tool_use", "id": name, "name": "A", "input": {}}]


def lagging(log: Script) -> None:
    """The model spoke on while the result of its call was on the way."""
    asked = log.reply(call("t1"))
    log.say("More.", parentUuid=asked)
    log.result("t1", parentUuid=asked)


def beside_the_next_call(log: Script) -> None:
    """A result hangs off its call, and so does the response's next call."""
    asked = log.reply(call("t1"), id="m")
    log.result("t1", parentUuid=asked)
    log.reply(call("t2"), id="m", parentUuid=asked)
    log.result("t2")
    log.say("More.")


def through_progress(log: Script) -> None:
    """The line goes on from a progress record, the result stands beside it."""
    asked = log.reply(call("t1"))
    log.result("t1", parentUuid=asked)
    seen = log.add("progress", data={"type": "hook_progress"}, parentUuid=asked)
    log.say("More.", parentUuid=seen)


@pytest.mark.parametrize(
    ("write_it", "expected"),
    [
        (lagging, ["a t1", "u t1", "a More."]),
        (beside_the_next_call, ["a t1", "a t2", "u t1", "u t2", "a More."]),
        (through_progress, ["a t1", "u t1", "a More."]),
    ],
    ids=["lagging", "beside_the_next_call", "through_progress"],
)
def test_siblings_that_are_no_branches(
    tmp_path: Path, write_it: object, expected: list[str]
) -> None:
    """D11, D12: results and calls that hang off one record are one line, and none is dead."""
    log = Script()
    log.user("Go.")
    assert callable(write_it)
    write_it(log)
    session = session_of(tmp_path, log)

    assert ["u Go.", *expected] == sent_lines(session)
    assert ([], []) == (states(session, State.DEAD), session.graph.branches)
    assert [] == session.graph.open_calls


def test_a_call_nobody_answered_is_left_behind_with_its_branch(tmp_path: Path) -> None:
    """D11: the second call of a response leads nowhere when the first one's result went on."""
    log = Script()
    log.user("Go.")
    first = log.reply(call("t1"), id="m")
    left = log.reply(call("t2"), id="m")
    log.result("t1", parentUuid=first)
    log.say("Done.")
    session = session_of(tmp_path, log)

    assert ["u Go.", "a t1", "u t1", "a Done."] == sent_lines(session)
    assert [left] == states(session, State.DEAD)


def test_records_written_again_are_said_once(tmp_path: Path) -> None:
    """D8: new ids, the same parent, time and words: what the model sees does not change."""
    log = Script()
    log.user("Go.")
    before = log.say("Yes.")
    for _ in range(2):
        log.user("Two.", parentUuid=before, timestamp="2026-01-01T00:05:00.000Z")
        log.reply([text("Ok.")], id="m", request="q", usage=usage(5), stop="end_turn")
    session = session_of(tmp_path, log)

    assert ["u Go.", "a Yes.", "u Two.", "a Ok."] == sent_lines(session)
    assert (15, 1) == (session.spent.own, session.spent.responses)


def test_forks_of_open_direction_are_whole_and_paid_once(tmp_path: Path) -> None:
    """F5, U4: two sessions share a record; nothing tells whose it was, and both keep it."""
    first, second = Script(A, timestamp=...), Script(B, name="s", timestamp=...)
    first.user("Go.", uuid="same")
    first.reply([text("Yes.")], uuid="both", id="m", request="q", usage=usage(5))
    second.records = [{**record, "sessionId": B} for record in first.records]
    first.user("Mine.", parentUuid="both")
    second.user("Also mine.", parentUuid="both")
    write(tmp_path, first, second)
    facts = {name: read(tmp_path, name).graph.facts for name in (A, B)}
    known = lineage.find_shared(facts)
    sessions = [
        SessionGraph(f"claude:{n}", facts[n], replayed=known.replayed[n], billed=known.billed[n])
        for n in (A, B)
    ]

    assert [15, 0] == sorted((s.spent.own for s in sessions), reverse=True)
    assert ["u Go.", "a Yes.", "u Mine."] == sent_lines(sessions[0])
    assert ["u Go.", "a Yes.", "u Also mine."] == sent_lines(sessions[1])
    assert known == lineage.find_shared(dict(reversed(facts.items())))


def test_long_prompts_are_told_by_request(tmp_path: Path) -> None:
    """U8: events carry the bill of one request, so that its band can be known."""
    log = Script()
    for number in range(2):
        log.user("Go.")
        bill = usage(10, cache_read_input_tokens=150_000)
        log.reply([text("Yes.")], id=f"m{number}", model="claude-sonnet-4-5", usage=bill)
    session = session_of(tmp_path, log)
    bills = [event.usage for event in session.events if event.usage is not None]
    rates = tariff(SHIPPED, "claude-sonnet-4-5")

    assert 2 == len(bills)
    assert rates is not None
    single = sum(rates.ticks(bill) or 0 for bill in bills)
    assert 0 < single < (rates.ticks(Usage(20, 20, 0, 300_000)) or 0)


def test_records_of_one_response_are_one_message(tmp_path: Path) -> None:
    """T1, T2: blocks that come in records of their own add up, also behind an end of turn."""
    log = Script()
    log.user("Go.")
    for said_now in ("One.", "Two.", "Three."):
        log.reply([text(said_now)], id="m", stop="end_turn")
    messages = readout_of(session_of(tmp_path, log)).messages().messages

    assert ["user", "assistant"] == [message["role"] for message in messages]
    assert ["One.", "Two.", "Three."] == [block["text"] for block in messages[1]["content"]]


@pytest.mark.parametrize(
    "spelling",
    ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000+00:00", "2026-01-02T04:04:05+01:00"],
)
def test_one_moment_may_be_spelled_in_many_ways(spelling: str) -> None:
    """R16: equal instants are equal."""
    assert time_of("2026-01-02T03:04:05.000Z") == time_of(spelling)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
