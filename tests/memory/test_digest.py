"""Digests: what they tell, that they stay small, and that order and chance have no say."""

from __future__ import annotations

import random
from importlib.metadata import EntryPoint
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.format.derived import judged
from tests.rules import rules
from thence.agents import adapters, packages
from thence.agents.packages import entry_points
from thence.format import codec
from thence.format.facts import Fact, fact_of
from thence.format.records import JSON
from thence.format.session_graph import SessionGraph
from thence.memory import digest as module
from thence.memory import storable_json
from thence.memory.account import (
    MAX_DIGEST_BYTES,
    MAX_SNIPPET_BYTES,
    Digest,
    account,
    noteworthy,
    relative,
)
from thence.memory.derivation import DIGEST_VERSION
from thence.memory.digest import BuiltIn, DigestPart, digest, digesters
from thence.memory.gate import Gate
from thence.memory.growth import Growth
from thence.memory.outcome import TaskPattern
from thence.memory.pricelist import SHIPPED
from thence.memory.readouts import readout_of
from thence.memory.session_timeline import SessionTimeline, short
from thence.memory.signals import Signal
from thence.memory.sqlite import Sqlite
from thence.memory.store import SessionRow
from thence.memory.sweep import Sweep
from thence.testing import Draft, sample

UID = "thence:sample"


def facts_of(draft: Draft) -> list[Fact]:
    """The facts of a made-up session."""
    return judged([fact_of(event, line=line) for line, event in enumerate(draft.events)])


def row_of(graph: SessionGraph) -> SessionRow:
    """The row a sweep makes of a session."""
    session = graph.session(cwd="/home/dev/tidepool", git_branch="alex/ent-109-windows")
    facts = [storable_json.plain_fact(fact) for fact in (*graph.about_only, *graph.facts)]
    growth = Growth(graph.uid, None, facts, torn=graph.torn, prices=SHIPPED)
    return growth.change(SessionRow(session, change=3)).row


def digest_of(draft: Draft) -> Digest:
    """The digest of a made-up session."""
    session = SessionGraph(UID, facts_of(draft))
    return account(SessionTimeline(readout_of(session)), row_of(session))


def shipped() -> list[Fact]:
    """The facts of the session that ships with thence."""
    events = codec.decode(sample()).events
    return judged([fact_of(event, line=line) for line, event in enumerate(events)])


def begun() -> Draft:
    """A session that begins with a prompt."""
    draft = Draft()
    draft.header()
    draft.prompt("Fix the clock.")
    return draft


def did(
    draft: Draft, tool: str, text: str = "ok", *, failed: bool = False, **arguments: JSON
) -> None:
    """One call and its result."""
    call = f"c{len(draft.events)}"
    draft.reply(draft.call(call, tool, **arguments))
    draft.result(call, text, failed=failed)


def ran(draft: Draft, command: str, text: str = "ok", *, failed: bool = False) -> None:
    """One command."""
    did(draft, "Bash", text, failed=failed, command=command)


def sweep(folder: Path, home: Path) -> Sqlite:
    """Sweep Claude's sessions into a new store, and give it."""
    store = Sqlite(str(folder / "s.db"))
    with store.sweeping():
        Sweep(store, adapters(), Gate(key=b"a key for tests, 32 bytes long!!"), rules()).run(
            {"claude": [home]}
        )
    return store


# -- what it tells --------------------------------------------------------------------------


def test_the_sample_is_told_in_full() -> None:
    """Outcome, money, tools, tests, files, branches, promises: all of one session."""
    session = SessionGraph(UID, shipped())
    seen = account(SessionTimeline(readout_of(session)), row_of(session))

    assert (DIGEST_VERSION, "thence", "unknown") == (seen.version, seen.agent, seen.outcome)
    assert ("ENT-109", "branch") == (seen.task_ref, seen.task_from)
    assert (3, 334.0, 1) == (seen.turns, seen.seconds, seen.compactions)
    assert (11520, 2560) == (seen.cost.live.tokens, seen.cost.dead.tokens)
    assert seen.cost.live.ticks > seen.cost.dead.ticks > 0
    assert {"claude-opus-5-5": 11} == seen.models
    assert [("Edit", 4, 0), ("Bash", 3, 1)] == [
        (tool.tool, tool.calls, tool.failed) for tool in seen.tools[:2]
    ]
    assert [("pytest", 2, 1, False, 43)] == [
        (run.runner, run.runs, run.red, run.last_red, run.passed) for run in seen.tests
    ]
    assert ("tidepool/windows.py", 1, 2, 1) == (
        seen.files[0].path,
        seen.files[0].reads,
        seen.files[0].edits,
        seen.files[0].broke,
    )
    assert ["try it with fold=1 then"] == [branch.prompt for branch in seen.branches]
    assert [] == seen.todos
    assert 1 == len(seen.snippets.corrections)


def test_the_same_bills_are_told_as_the_store_has_them() -> None:
    """The digest adds nothing up by itself: its money is the row's."""
    session = SessionGraph(UID, shipped())
    row = row_of(session)
    cost = account(SessionTimeline(readout_of(session)), row).cost

    assert row.ticks == {"live": cost.live.ticks, "dead": cost.dead.ticks}
    assert row.spent.rolled_up == cost.live.tokens + cost.dead.tokens + cost.side.tokens


def test_an_error_is_told_with_the_fix_that_followed() -> None:
    """What was changed before the same command went well."""
    draft = begun()
    ran(draft, "make all", "clock.c:3:1: error: missing brace", failed=True)
    did(draft, "Read", file_path="clock.c")
    did(draft, "Edit", file_path="clock.c", old_string="a", new_string="b")
    ran(draft, "make all")
    (error,) = digest_of(draft).errors

    assert ("compile: <path>: error: missing brace", 1) == (error.fingerprint, error.count)
    assert ["edited clock.c"] == [fix.what for fix in error.fix]
    assert error.settled_by is not None


def test_an_error_that_stayed_has_no_fix() -> None:
    """Nothing is called a fix that did not help."""
    draft = begun()
    ran(draft, "make all", "clock.c:3:1: error: missing brace", failed=True)
    did(draft, "Edit", file_path="clock.c", old_string="a", new_string="b")
    (error,) = digest_of(draft).errors

    assert (None, ()) == (error.settled_by, error.fix)


def test_a_refused_call_is_no_failure_of_its_tool() -> None:
    """What a human or a rule refused is counted apart."""
    draft = begun()
    ran(draft, "git push", "This command requires approval", failed=True)
    ran(draft, "make", "make: *** Error 2", failed=True)
    (tool,) = digest_of(draft).tools

    assert (2, 1, 1) == (tool.calls, tool.failed, tool.refused)
    assert [] == digest_of(draft).interventions  # a rule is no human


def test_commands_that_did_something_are_told_the_last_first() -> None:
    """Commits and the like are remembered, looks are not."""
    draft = begun()
    for command in ("git status", "git commit -m x", "ls; git push", "cat rm.txt"):
        ran(draft, command)

    assert ["push", "commit"] == [entry.what for entry in digest_of(draft).commands]
    assert noteworthy("echo 'git push'") is None
    assert "deploy" == noteworthy("cd infra && terraform apply -auto-approve")
    assert "delete" == noteworthy("rm -rf build")


def test_files_are_told_as_seen_from_the_sessions_folder() -> None:
    """Two checkouts of one project agree on their names."""
    assert "a/b.py" == relative("/w/x/a/b.py", "/w/x/")
    assert "a/b.py" == relative("./a/b.py", "/w/x")
    assert "/w/xy/b.py" == relative("/w/xy/b.py", "/w/x")


def test_a_subagent_is_told_apart() -> None:
    """What it did stands under its own name, its tokens beside the session's own."""
    draft = begun()
    draft.reply("Asking.")
    side = Draft("side")
    side.header(agent_id="a1")
    side.prompt("Look around.")
    side.reply(side.call("s1", "Grep", pattern="clock"), usage=(500, 50), id="msg_side")
    side.result("s1", "clock.py")
    more = [fact_of(e, channel="agent:a1", line=n, file="side") for n, e in enumerate(side.events)]
    session = SessionGraph(UID, [*facts_of(draft), *more])
    (seen,) = account(SessionTimeline(readout_of(session)), row_of(session)).subagents

    assert ("agent:a1", 1, 550, "Look around.") == (
        seen.channel,
        seen.calls,
        seen.tokens,
        seen.asked,
    )


# -- small ----------------------------------------------------------------------------------


def hostile(rounds: int) -> Draft:
    """A long session in which everything is of its own kind, and long."""
    draft = Draft()
    draft.header()
    odd = '\x1b\u202e\U0001f600\\"\udc80'
    for n in range(rounds):
        draft.prompt(f"No, {n} {odd * 40}")
        name = f"{'d/' * 60}{odd}{n}.py"
        draft.reply(
            f"I still need to add test {n} {odd}",
            draft.call(f"e{n}", f"tool{n}{odd}", command=f"git push {n}"),
            draft.call(f"r{n}", "Edit", file_path=name, old_string="a", new_string="b"),
            draft.call(f"b{n}", "Bash", command=f"make {n}; git push {odd}"),
        )
        letters = "".join(random.Random(n).choices("ghijklmnop", k=40))
        draft.result(f"e{n}", f"Error: {letters} {odd * 90}", failed=True)
        draft.result(f"r{n}", "ok")
        draft.result(f"b{n}", f"Error: b{letters} {odd * 90}", failed=True)
    return draft


def test_a_usual_digest_is_a_few_kilobytes() -> None:
    """What is kept for ever has to be small."""
    session = SessionGraph(UID, shipped())

    assert len(msgspec.json.encode(digest(session, row_of(session)).digest)) < 8 << 10


@pytest.mark.slow
def test_a_digest_is_bounded_however_long_the_session() -> None:
    """Lists are cut, what was left out is counted, texts are short and clean."""
    seen = digest_of(hostile(150))
    body = msgspec.json.encode(seen)
    words = seen.snippets

    assert len(body) <= MAX_DIGEST_BYTES
    assert seen.left_out["errors"] >= 250
    assert seen.left_out["files"] >= 90
    assert MAX_SNIPPET_BYTES >= sum(
        len(text.encode())
        for text in (words.first_prompt, words.last_prompt, words.last_reply, *words.corrections)
    )
    assert b"u001b" not in body


@pytest.mark.parametrize(
    ("prompts", "first", "last"),
    [
        (
            ["continue", "Mend the clock.", "Now the bell.", "yes"],
            "Mend the clock.",
            "Now the bell.",
        ),
        (["Mend the clock.", "yes"], "Mend the clock.", ""),
        (["hello", "yes"], "hello", ""),
        (["修复时钟", "继续"], "修复时钟", "继续"),
    ],
)
def test_prompts_that_only_say_to_go_on_are_not_what_was_asked(
    prompts: list[str], first: str, last: str
) -> None:
    """Unless there is nothing else; a word in letters without spaces may be a sentence."""
    draft = Draft()
    for text in prompts:
        draft.prompt(text)
        draft.reply("Done.")
    words = digest_of(draft).snippets

    assert (first, last) == (words.first_prompt, words.last_prompt)


def test_whatever_a_log_holds_can_be_stored() -> None:
    """Lone surrogates and controls, in names, paths, prompts and errors, are cleaned away."""
    draft = hostile(8)
    tip = draft.tip
    draft.prompt("Go back from \udc80 here")
    draft.reply("No \udc80", usage=(9000, 9))
    draft.rewind(tip or "")
    for _ in range(4):
        did(draft, "odd\udc80tool", "Error: it \udc80 broke\x1b", failed=True, a="\udc80")
    session = SessionGraph(UID, facts_of(draft))
    made = digest(session, row_of(session))

    assert {"repeated_error", "retry_loop", "abandoned_branch"} <= {s["kind"] for s in made.signals}
    assert b"u001b" not in msgspec.json.encode([made.digest, made.signals, made.title])


def test_the_longest_lists_are_halved_when_all_together_are_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the limit, it is kept, and the count of what was left out stays true."""
    session = SessionGraph(UID, facts_of(hostile(40)))
    row = row_of(session)
    full = account(SessionTimeline(readout_of(session)), row)
    monkeypatch.setattr("thence.memory.account.MAX_DIGEST_BYTES", 9000)
    small = account(SessionTimeline(readout_of(session)), row)

    assert len(msgspec.json.encode(small)) <= 9000
    for name in ("errors", "files", "tools"):
        stored_count, left = (len(getattr(small, name)), small.left_out.get(name, 0))
        assert len(getattr(full, name)) + full.left_out.get(name, 0) == stored_count + left


@given(st.text(max_size=200), st.integers(4, 60))
def test_short_texts_are_bounded_in_bytes_and_printable(text: str, size: int) -> None:
    """Cut where a character ends, on one line, without controls, and it can be written."""
    cut = short(text, size)

    assert len(cut.encode()) <= size
    assert 1 >= len(cut.splitlines())
    assert cut == short(cut, size)


def test_no_session_makes_it_raise() -> None:
    """An empty one has a digest as well."""
    session = SessionGraph("claude:none", [])

    assert "unknown" == digest(session, row_of(session)).outcome


# -- deterministic --------------------------------------------------------------------------


@given(st.data())
def test_the_order_of_facts_changes_nothing(data: st.DataObject) -> None:
    """Files come in any order; the same facts give the same digest, byte for byte."""
    facts = shipped()
    mixed = SessionGraph(UID, data.draw(st.permutations(facts)))
    session = SessionGraph(UID, facts)

    assert msgspec.json.encode(digest(session, row_of(session))) == msgspec.json.encode(
        digest(mixed, row_of(mixed))
    )


def test_it_can_be_read_back() -> None:
    """What the store gives back is the digest and the signals that went in."""
    session = SessionGraph(UID, shipped())
    row = row_of(session)
    made = digest(session, row)
    body = msgspec.json.decode(msgspec.json.encode(made.digest))
    decoded = msgspec.json.decode(msgspec.json.encode(made.signals))

    assert account(SessionTimeline(readout_of(session)), row) == msgspec.convert(body, Digest)
    assert ["untested_edit", "abandoned_branch", "human_correction"] == [
        msgspec.convert(signal, Signal).kind for signal in decoded
    ]
    assert (UID, 3, "unknown") == (made.uid, made.change, made.outcome)


def test_a_sweep_keeps_it(tmp_path: Path) -> None:
    """What is read by a sweep has its digest in the store, redacted, with its signals."""
    home = tmp_path / "home" / "projects" / "p"
    home.mkdir(parents=True)
    secret = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
    (home / "0b4a4a7e-7f2b-4c55-9a3d-2a1c7c6b1f10.jsonl").write_bytes(
        b"".join(
            msgspec.json.encode(
                {
                    "type": kind,
                    "uuid": f"u{n}",
                    "parentUuid": f"u{n - 1}" if n else None,
                    "sessionId": "0b4a4a7e-7f2b-4c55-9a3d-2a1c7c6b1f10",
                    "timestamp": f"2026-01-01T00:00:0{n}Z",
                    "message": {"role": kind, "content": [{"type": "text", "text": text}]},
                }
            )
            + b"\n"
            for n, (kind, text) in enumerate(
                [
                    ("user", f"Use {secret} for the push."),
                    ("assistant", "Pushed."),
                    ("user", f"No, not with {secret}!"),
                    ("assistant", "Undone."),
                ]
            )
        )
    )
    store = sweep(tmp_path, tmp_path / "home")
    (digest,) = store.read_table("digests")
    (signal,) = store.read_table("signals")
    store.close()

    assert ("success", "Undone.") == (digest["outcome"], digest["snippets"]["last_reply"])
    assert "human_correction" == signal["kind"]
    assert secret not in repr(digest) + repr(signal)


# -- the seam -------------------------------------------------------------------------------


class Counts:
    """A digester that counts."""

    name = "counts"

    def digest(self, timeline: SessionTimeline, row: SessionRow) -> DigestPart:
        """Count the events of the line."""
        signal = Signal("slow_tool", "low", "it was slow")
        return DigestPart({"line": len(timeline.line), "change": row.change}, [signal])


class Breaks:
    """A digester that fails."""

    name = "breaks"

    def digest(self, timeline: SessionTimeline, row: SessionRow) -> DigestPart:
        """Fail."""
        raise RuntimeError("out of order")


def test_another_digester_adds_its_part() -> None:
    """What it says stands under its name, its signals beside ours."""
    session = SessionGraph(UID, shipped())
    made = digest(session, row_of(session), others={"thence": BuiltIn(), "counts": Counts()})

    assert {"counts": {"line": 25, "change": 3}} == made.digest["more"]
    assert "it was slow" == made.signals[-1]["text"]
    assert "unknown" == made.outcome


def test_a_digester_that_fails_costs_its_own_part_only() -> None:
    """Its reason is kept, and the digest stands."""
    session = SessionGraph(UID, shipped())
    made = digest(session, row_of(session), others={"breaks": Breaks()})

    assert {"breaks": {"failed": "RuntimeError: out of order"}} == made.digest["more"]
    assert "unknown" == made.outcome


def test_ours_comes_through_the_same_door() -> None:
    """The built-in one is found by its entry point, like everybody's, or known without asking."""
    (point,) = entry_points(module.GROUP)

    assert BuiltIn is point.load()
    assert [BuiltIn] == [type(digester) for digester in digesters().values()]


@pytest.mark.parametrize(
    ("value", "why"),
    [("thence.memory.nothing:None", "ModuleNotFoundError"), ("builtins:dict", "lacks a name")],
)
def test_a_digester_that_is_none_is_left_out_and_named(
    value: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are used."""
    points = [EntryPoint("odd", value, module.GROUP), *entry_points(module.GROUP)]
    monkeypatch.setattr(module, "others_offer", lambda _group: True)
    monkeypatch.setattr(module, "entry_points", lambda _group: points)
    digesters.cache_clear()
    usable = list(digesters())
    digesters.cache_clear()
    [problem] = packages.problems()

    assert ["thence"] == usable
    assert ("odd", True) == (problem.name, why in problem.why)


def test_tasks_are_found_by_the_users_patterns() -> None:
    """Patterns from the settings take the place of ours."""
    draft = begun()
    draft.prompt("This is story 7.")
    session = SessionGraph(UID, facts_of(draft))
    made = digest(session, row_of(session), tasks=[TaskPattern("story", r"story (\d+)", r"S\1")])

    assert "S7" == made.task_ref
