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

from tests.agents.transcripts import A, B, Script, read, said, states, text, usage, whole, write
from thence.format import lineage
from thence.format.graph import State
from thence.format.joins import time_of
from thence.format.records import Usage
from thence.format.whole import SessionGraph
from thence.memory.prices import price
from thence.memory.readouts import readout_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "rules.md"
FOLDERS = ("agents", "format")
SHOWN = 3
"""How many tests of one rule the page names."""

PARTS = {
    "R": "Any source",
    "L": "Claude Code: where things lie",
    "D": "Claude Code: the graph",
    "F": "Claude Code: forks, resumes, titles",
    "U": "Claude Code: usage",
    "T": "Claude Code: content",
    "S": "Claude Code: subagents",
    "A": "Where the last turn stands",
    "X": "Codex",
    "G": "Grok",
}

GISTS = {
    "R1": "a line counts once its LF is there; a whole record before that moves no cursor",
    "R2": "a log is known again by its inode, start and last bytes; if not, it is read anew",
    "R3": "reading goes on behind an LF, nowhere else",
    "R4": "a broken line is counted with its place and costs only itself",
    "R5": "lines of many megabytes are read; no line starves the rest",
    "R6": "byte order marks, NULs and lone surrogates break nothing",
    "R7": "records of unknown types are events like others",
    "R8": "of what a session is, the first word counts; of its title, the last",
    "R9": "counts may be text, floats or null",
    "R10": "neither the order of keys nor white space matters",
    "R11": "links and copies make no second session",
    "R12": "a log without a word in it is an empty session, not an error",
    "R13": "what could not be read is tried again: no mark moves past it",
    "R14": "what was read outlives its file",
    "R15": "paths in logs lead nowhere but to plain names in the session's own folder",
    "R16": "times in seconds, milliseconds or text are the same moments",
    "L1": "sessions lie by project below one or several configuration folders",
    "L2": "the name of a project's folder cannot be decoded; records tell where the work was done",
    "L3": "the desktop app keeps projects some folders down",
    "L4": "subagents, workflows and long outputs lie beside a session, in two layouts",
    "L5": "the history of prompts spans all sessions; old lines name none",
    "L6": "the client deletes by age of the file, so reading must not touch it",
    "L7": "a killed process leaves its transcript and its entry behind",
    "D1": "ids are per record, message ids per response",
    "D2": "chains lead through records that nobody said",
    "D3": "all records with an id are linked before any is left out",
    "D4": "several roots are usual",
    "D5": "a boundary goes on from a record that may be moved, kept or missing",
    "D6": "a boundary tells its trigger and its size before and after",
    "D7": "the summary of a compaction is nobody's prompt",
    "D8": "what a compaction wrote again is neither said nor billed twice",
    "D9": "a parent that is missing is bridged and told",
    "D10": "circles of links are cut",
    "D11": "most siblings are no branches; a rewind is one",
    "D12": "a call is open only if no result of it stands anywhere in the file",
    "D13": "results pair by id, in whatever order they come",
    "D14": "the live end is the one the client names, else the last that was written",
    "D15": "of a record written twice the one with a parent counts",
    "D16": "a checkpoint's message id names no record",
    "D17": "the file names the session, whatever its records say",
    "F1": "a fork copies records with their ids and bills",
    "F2": "shared ids are the only sign of most forks",
    "F3": "records without an id are never copies",
    "F4": "a fork with nothing of its own owns nothing",
    "F5": "where the direction is open nothing is cut, and bills are still paid once",
    "F6": "/branch says of each record where it comes from",
    "F7": "a summary may be the title of another session",
    "F8": "titles: given, made up, summed up, first prompt",
    "U1": "of a bill that is repeated the record with most output counts, whole",
    "U2": "without a request id the message id is the key",
    "U3": "a side question that repeats the session is not paid again",
    "U4": "over all sessions each bill is paid once, by the oldest",
    "U5": "ties are broken the same way, whatever the order",
    "U6": "what the client wrote itself costs nothing",
    "U7": "cache writes for an hour are told apart from short ones",
    "U8": "the band for long prompts follows from one request, not from sums",
    "U9": "searches are counted where the client tells them",
    "U10": "requests that leave no bill make the total a lower bound, and it says so",
    "U11": "subagents' spend stands in their own files",
    "U12": "dead branches were paid for",
    "U13": "speed and tier are kept, for they change the price",
    "U14": "costs that old versions wrote down are kept",
    "T1": "a record holds one block as a rule, several as an exception",
    "T2": "records of one response together are its message",
    "T3": "a prompt typed ahead is one prompt, in all four forms it is written in",
    "T4": "injected records go to the model and are no prompts",
    "T5": "what the harness says in the user's name is no prompt; what follows it may be",
    "T6": "sessions of probes and observers are marked, not dropped",
    "T7": "an output that was moved to a file is found by its name alone",
    "T8": "structured results of any shape keep what the text does not say",
    "T9": "no error, null and no word about it are three things",
    "T10": "pictures are kept as pictures",
    "T11": "redacted thoughts, documents and unknown blocks stay as they are",
    "T12": "the second copy of a file that was read is left out",
    "S1": "a subagent's records are a channel of the session they name",
    "S2": "a subagent is tied to its call by any of the five signs there are",
    "S3": "subagents of subagents lie beside them, not below",
    "S4": "a channel goes by the agent's id",
    "S5": "the answer of a subagent in the background is shown once",
    "S6": "workflows are told by their journal and enriched by their snapshot",
    "S7": "progress is kept without the copies in it",
    "S8": "a subagent may grow while its session does not",
    "A1": "a call without a result is open; no log says why",
    "A2": "a torn tail is told beside the state",
    "A3": "permissions are history and reach nobody",
    "X1": "rollouts lie by day, flat in old homes and in the archive",
    "X2": "packed and unpacked again a rollout is the same one",
    "X3": "bare lines of 2025 and wrapped ones are read alike",
    "X4": "a second head is a copy; the first one names the thread",
    "X5": "who spawned a thread is told in several shapes",
    "X6": "what events repeat of the items is not said twice",
    "X7": "history by reference is that of the base, up to the place it names",
    "X8": "copies at the start of an old fork end where the parent never went",
    "X9": "totals become bills; repeats and empty ones add nothing",
    "X10": "input holds the cached part, output the reasoning",
    "X11": "the model is that of the last turn's context",
    "X12": "calls and outputs of all kinds, as JSON text or not",
    "X13": "texts of the client are no prompts; a request behind one is",
    "X14": "a prompt said again right after an interruption is one",
    "X15": "rolled back turns leave the context, not the bill",
    "X16": "a compaction is a boundary with the history that replaces the old",
    "X17": "the log itself says where turns begin, end and break off",
    "X18": "children are named by results, items, activities and older events",
    "X19": "what is encrypted is never shown",
    "X20": "who started it is free text and decides nothing",
    "X21": "titles come from an index, if there is one",
    "X22": "the history of prompts has its own units of time",
    "X23": "the output of `exec --json` is no rollout",
    "X24": "half a record before its whole copy costs nothing",
    "G1": "a session is a folder, found by layout; records tell where the work was done",
    "G2": "the log of updates tells the conversation; the chat is a mirror without times",
    "G3": "prompts are taken out of their wrapping; injected rows are none",
    "G4": "tools of the API are told once, wherever they stand",
    "G5": "chunks join by prompt and stream",
    "G6": "each turn has its bill, and the last word on it counts",
    "G7": "a running context is an estimate and never added",
    "G8": "parents are named by the fork, or by the parent's own folder",
    "G9": "a rewind leaves what it took back, dead, also if the log was cut",
    "G10": "a session without a human says so itself",
    "G11": "a checkpoint of a compaction is a boundary",
    "G12": "other tools of the same home are not claimed",
    "G13": "exit codes tell how a call went, not the word for its state",
}

ELSEWHERE = {
    "R5": "Lines over 64 MB are told and passed over, not read.",
    "R14": "Which version of a reader made a row is the store's matter.",
    "L6": "When the client last deleted is not asked; that it deletes is (`keeps_days`).",
    "D8": "No real file holds such a replay; its first copy shows as a dead branch.",
    "U8": "Rates are in `memory.prices`.",
    "T2": "Real clients write a record per block, so records add; none repeats a growing text.",
    "T12": "What an index leaves out is the store's matter.",
    "S6": "Phases are kept as they are told; drawing them is the viewer's matter.",
    "X9": "A total that falls has started again; it is not refused.",
    "X21": "The client's databases are not opened.",
}
"""What is not tested here, or decided otherwise, and why."""

_IDS = re.compile(r"([A-Z]\d+(?:, [A-Z]\d+)*): ")


def order(rule: str) -> tuple[int, int]:
    """Where a rule stands in the book."""
    return list(PARTS).index(rule[0]), int(rule[1:])


def held() -> dict[str, list[str]]:
    """The tests of each rule, by file and name."""
    out: dict[str, list[str]] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / "tests" / folder).glob("test_*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
                    continue
                found = _IDS.match(ast.get_docstring(node) or "")
                for rule in found[1].split(", ") if found else ():
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
    known = held()
    out = [
        "# Rules of foreign logs",
        "",
        "What reading other agents' logs has taught, a line each, and tests that hold it. Up to",
        f"{SHOWN} are named; the others carry the rule's id in their docstring as well. Made by",
        "`python -m tests.agents.test_rules`.",
    ]
    for letter, title in PARTS.items():
        out += ["", f"## {title}", "", "| rule | says | tests |", "| --- | --- | --- |"]
        for rule in sorted((r for r in GISTS if r[0] == letter), key=order):
            note = f" {ELSEWHERE[rule]}" if rule in ELSEWHERE else ""
            names = "<br>".join(f"`{name}`" for name in chosen(known.get(rule, [])))
            out.append(f"| {rule} | {GISTS[rule][0].upper()}{GISTS[rule][1:]}.{note} | {names} |")
    return "\n".join(out) + "\n"


# -- the table ------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_rule_has_a_test() -> None:
    """None is left out, and no docstring names a rule that is not in the table."""
    assert set(GISTS) == set(held())


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
        for rule, said in gists.items()
        for at in range(len(said) - 6)
        if tuple(said[at : at + 7]) in runs
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
    session = whole(tmp_path, log)

    assert ["u Go.", *expected] == said(session)
    assert ([], []) == (states(session, State.DEAD), session.graph.branch_points)
    assert [] == session.graph.open_calls


def test_a_call_nobody_answered_is_left_behind_with_its_branch(tmp_path: Path) -> None:
    """D11: the second call of a response leads nowhere when the first one's result went on."""
    log = Script()
    log.user("Go.")
    first = log.reply(call("t1"), id="m")
    left = log.reply(call("t2"), id="m")
    log.result("t1", parentUuid=first)
    log.say("Done.")
    session = whole(tmp_path, log)

    assert ["u Go.", "a t1", "u t1", "a Done."] == said(session)
    assert [left] == states(session, State.DEAD)


def test_records_written_again_are_said_once(tmp_path: Path) -> None:
    """D8: new ids, the same parent, time and words: what the model sees does not change."""
    log = Script()
    log.user("Go.")
    before = log.say("Yes.")
    for _ in range(2):
        log.user("Two.", parentUuid=before, timestamp="2026-01-01T00:05:00.000Z")
        log.reply([text("Ok.")], id="m", request="q", usage=usage(5), stop="end_turn")
    session = whole(tmp_path, log)

    assert ["u Go.", "a Yes.", "u Two.", "a Ok."] == said(session)
    assert (15, 1) == (session.spent.own, session.spent.responses)


def test_forks_of_open_direction_are_whole_and_paid_once(tmp_path: Path) -> None:
    """F5, U4: two sessions share a record; nothing tells whose it was, and both keep it."""
    one, other = Script(A, timestamp=...), Script(B, name="s", timestamp=...)
    one.user("Go.", uuid="same")
    one.reply([text("Yes.")], uuid="both", id="m", request="q", usage=usage(5))
    other.records = [{**record, "sessionId": B} for record in one.records]
    one.user("Mine.", parentUuid="both")
    other.user("Also mine.", parentUuid="both")
    write(tmp_path, one, other)
    facts = {name: read(tmp_path, name).whole.facts for name in (A, B)}
    known = lineage.find_shared(facts)
    sessions = [
        SessionGraph(f"claude:{n}", facts[n], replayed=known.replayed[n], billed=known.billed[n])
        for n in (A, B)
    ]

    assert [15, 0] == sorted((s.spent.own for s in sessions), reverse=True)
    assert ["u Go.", "a Yes.", "u Mine."] == said(sessions[0])
    assert ["u Go.", "a Yes.", "u Also mine."] == said(sessions[1])
    assert known == lineage.find_shared(dict(reversed(facts.items())))


def test_long_prompts_are_told_by_request(tmp_path: Path) -> None:
    """U8: events carry the bill of one request, so that its band can be known."""
    log = Script()
    for number in range(2):
        log.user("Go.")
        bill = usage(10, cache_read_input_tokens=150_000)
        log.reply([text("Yes.")], id=f"m{number}", model="claude-sonnet-4-5", usage=bill)
    session = whole(tmp_path, log)
    bills = [event.usage for event in session.events if event.usage is not None]
    single = [price("claude-sonnet-4-5", bill) for bill in bills]
    summed = price("claude-sonnet-4-5", Usage(20, 20, 0, 300_000))

    assert 2 == len([one for one in single if one is not None])
    assert summed is not None
    assert sum(one.usd for one in single if one is not None) < summed.usd


def test_records_of_one_response_are_one_message(tmp_path: Path) -> None:
    """T1, T2: blocks that come in records of their own add up, also behind an end of turn."""
    log = Script()
    log.user("Go.")
    for said_now in ("One.", "Two.", "Three."):
        log.reply([text(said_now)], id="m", stop="end_turn")
    messages = readout_of(whole(tmp_path, log)).messages().messages

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
