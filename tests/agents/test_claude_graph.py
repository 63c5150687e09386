"""Claude Code's records as a graph: links, compactions, leaves, forks and titles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.agents.transcripts import (
    A,
    B,
    Script,
    kinds,
    prompts,
    read,
    sent_lines,
    session_of,
    states,
    text,
    usage,
    write,
)
from thence.format.derived_events import calls
from thence.format.graph import State

ZERO = "00000000-0000-0000-0000-000000000000"


# -- the graph ------------------------------------------------------------------------------


def test_the_records_of_one_response_are_one_message(tmp_path: Path) -> None:
    """D1: a uuid is per record, a message id per response; blocks stay in their order."""
    log = Script()
    log.user("Go.")
    log.reply([{"type": "thinking", "thinking": "hm", "signature": "s"}], id="m", stop="end_turn")
    log.reply([text("Yes.")], id="m", stop="end_turn")

    assert ["u Go.", "a thinking", "a Yes."] == sent_lines(session_of(tmp_path, log))


def test_links_lead_through_what_nobody_said(tmp_path: Path) -> None:
    """D2, D3: chains pass through attachments, system and progress records, and unknown ones."""
    log = Script()
    log.user("Go.")
    log.add("attachment", attachment={"type": "date"})
    log.add("progress", data={"type": "hook_progress"}, parentToolUseID="t")
    log.add("system", subtype="turn_duration", durationMs=5)
    log.add("brand-new", whatever=1)
    log.say("Yes.")
    session = session_of(tmp_path, log)

    assert ["u Go.", "a Yes."] == sent_lines(session)
    assert ["r2", "r3", "r4", "r5"] == states(session, State.INTERNAL)
    assert [] == session.graph.breaks


def test_several_roots_are_normal(tmp_path: Path) -> None:
    """D4: a hook's progress, a prompt and a boundary may all be roots; the last tree is sent."""
    log = Script()
    log.add("progress", data={"type": "hook_progress"}, parentToolUseID="t")
    log.user("First.", parentUuid=None)
    log.say("Yes.")
    log.user("Second.", parentUuid=None)
    log.say("Again.")
    session = session_of(tmp_path, log)

    assert ["u Second.", "a Again."] == sent_lines(session)
    assert [] == states(session, State.DEAD)
    assert ["r2", "r3", "r4", "r5"] == states(session, State.LIVE)


def test_a_compaction_keeps_what_it_says_it_keeps(tmp_path: Path) -> None:
    """D5, D6: summary, then the preserved records, then what was said after the anchor."""
    log = Script()
    log.user("One.")
    log.say("Answer one.")
    head = log.user("Two.")
    tail = log.say("Answer two.")
    segment = {"headUuid": head, "anchorUuid": "sum", "tailUuid": tail}
    log.boundary(compactMetadata={"trigger": "auto", "preTokens": 900, "preservedSegment": segment})
    log.user("What was said.", uuid="sum", isCompactSummary=True, isVisibleInTranscriptOnly=True)
    log.user("Three.")
    log.say("Answer three.")
    session = session_of(tmp_path, log)

    expected = ["u What was said.", "u Two.", "a Answer two.", "u Three.", "a Answer three."]
    assert expected == sent_lines(session)
    assert [("lifecycle", "system", "compacted (auto), 900 tokens")] == kinds(session, "r5")
    assert [] == states(session, State.DEAD)


def test_a_line_that_goes_on_inside_what_was_kept_has_the_summary_too(tmp_path: Path) -> None:
    """D5: the client relinks what it keeps on loading, so every later line leads over it."""
    log = Script()
    log.user("One.")
    head = log.user("Two.")
    tail = log.say("Answer two.")
    segment = {"headUuid": head, "anchorUuid": "sum", "tailUuid": tail}
    log.boundary(compactMetadata={"preservedSegment": segment})
    log.user("What was said.", uuid="sum", isCompactSummary=True)
    log.user("Three.", parentUuid=tail)

    expected = ["u What was said.", "u Two.", "a Answer two.", "u Three."]
    assert expected == sent_lines(session_of(tmp_path, log))


@pytest.mark.parametrize("before", [None, "nobody", 7])
def test_a_boundary_may_go_on_from_nothing(tmp_path: Path, before: Any) -> None:
    """D5: copied into a fork, a boundary names no record, or one that is not there."""
    log = Script()
    log.user("Old.")
    log.boundary(logicalParentUuid=before)
    log.user("What was said.", isCompactSummary=True)
    log.user("New.")

    assert ["u What was said.", "u New."] == sent_lines(session_of(tmp_path, log))


def test_an_attachment_may_stand_between_boundary_and_summary(tmp_path: Path) -> None:
    """D5: so it is after an automatic compaction, and some summaries lack their mark."""
    log = Script()
    log.user("Old.")
    log.boundary()
    log.add("attachment", attachment={"type": "file"})
    log.user("What was said.")
    log.user("New.")

    session = session_of(tmp_path, log)

    assert ["u What was said.", "u New."] == sent_lines(session)
    assert ["Old.", "New."] == prompts(session)


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_summary_is_no_prompt_and_no_answer(tmp_path: Path, role: str) -> None:
    """D7: it has been seen on both sides."""
    log = Script()
    log.user("Old.")
    log.boundary()
    log.add(role, message={"role": role, "content": [text("Sum.")]}, isCompactSummary=True)
    log.user("New.")
    session = session_of(tmp_path, log)

    assert [("lifecycle", role, "Sum.")] == kinds(session, "r3")
    assert ["Old.", "New."] == prompts(session)


def test_records_replayed_by_a_compaction_are_billed_once(tmp_path: Path) -> None:
    """D8: new ids, same parent, same response: the bill is the same one."""
    log = Script()
    asked = log.user("Go.")
    log.reply([text("Yes.")], id="m", request="q", usage=usage(5), parentUuid=asked)
    log.reply([text("Yes.")], id="m", request="q", usage=usage(5), parentUuid=asked)
    log.user("Next.")
    session = session_of(tmp_path, log)

    assert (15, 1) == (session.spent.own, session.spent.responses)


def test_a_dangling_parent_is_bridged_and_told(tmp_path: Path) -> None:
    """D9: it goes on from the record before, as the client itself does."""
    log = Script()
    log.user("One.")
    log.say("Answer.")
    log.user("Two.", parentUuid="nobody")
    session = session_of(tmp_path, log)

    assert ["u One.", "a Answer.", "u Two."] == sent_lines(session)
    assert [(2, "bridged", "nobody")] == [(b.at, b.what, b.wanted) for b in session.graph.breaks]


def test_cycles_are_cut(tmp_path: Path) -> None:
    """D10: a record that is its own ancestor costs nothing but a link."""
    log = Script()
    log.user("One.", uuid="a", parentUuid="b")
    log.user("Two.", uuid="b", parentUuid="a")
    log.user("Three.", uuid="c", parentUuid="c")

    assert "u Three." in sent_lines(session_of(tmp_path, log))


def test_parallel_results_hang_beside_the_line_and_belong_to_it(tmp_path: Path) -> None:
    """D11, D12: each result hangs off its own call; only the last one is continued."""
    log = Script()
    log.user("Go.")
    first = log.reply([{"type": "tool_use", "id": "t1", "name": "A", "input": {}}], id="m")
    two = log.reply([{"type": "tool_use", "id": "t2", "name": "A", "input": {}}], id="m")
    log.result("t1", parentUuid=first)
    log.result("t2", parentUuid=two)
    log.say("Both.")
    session = session_of(tmp_path, log)

    assert ["u Go.", "a t1", "a t2", "u t1", "u t2", "a Both."] == sent_lines(session)
    assert [] == states(session, State.DEAD)


def test_a_rewind_is_a_dead_branch(tmp_path: Path) -> None:
    """D11, U12: what was said before it stays, dead, and its bill counts."""
    log = Script()
    log.user("One.")
    before = log.say("Answer one.")
    log.user("Wrong.")
    log.reply([text("Wrong too.")], usage=usage(7))
    log.user("Right.", parentUuid=before)
    log.note("last-prompt", leafUuid=ZERO, explicit=True)
    log.say("Good.")
    session = session_of(tmp_path, log)

    assert ["u One.", "a Answer one.", "u Right.", "a Good."] == sent_lines(session)
    assert ["r3", "r4"] == states(session, State.DEAD)
    assert 17 == session.spent.dead.total


def test_calls_are_paired_by_id_alone(tmp_path: Path) -> None:
    """D13: results come in any order, also between the blocks of one response."""
    log = Script()
    log.user("Go.")
    log.reply([{"type": "tool_use", "id": "t1", "name": "A", "input": {}}], id="m")
    log.result("t1", "first")
    log.reply([{"type": "tool_use", "id": "t2", "name": "A", "input": {}}], id="m")
    log.result("t2", "second")
    session = session_of(tmp_path, log)

    paired = [(c.call.call, c.result and c.result.payload) for c in calls(session.events)]
    assert [("t1", "first"), ("t2", "second")] == paired


def test_the_leaf_that_the_client_names_is_the_end(tmp_path: Path) -> None:
    """D14: it beats a branch that was written later."""
    log = Script()
    log.user("One.")
    fork = log.say("Answer.")
    log.user("Named.")
    named = log.say("Yes.")
    log.user("Later.", parentUuid=fork)
    log.note("last-prompt", leafUuid=named)

    assert ["u One.", "a Answer.", "u Named.", "a Yes."] == sent_lines(session_of(tmp_path, log))


def test_a_leaf_that_is_named_late_or_early_loses_nothing(tmp_path: Path) -> None:
    """D14: the client flushes it before the record it names, and after others went on from it."""
    late, early = Script(), Script()
    late.user("One.")
    leaf = late.say("Answer.")
    late.user("Two.")
    late.note("last-prompt", leafUuid=leaf)
    early.user("One.")
    early.note("last-prompt", leafUuid="r3")
    early.say("Answer.")
    early.user("Two.")
    for log in (late, early):
        assert ["u One.", "a Answer.", "u Two."] == sent_lines(session_of(tmp_path, log))


def test_of_a_doubled_record_the_one_with_a_parent_counts(tmp_path: Path) -> None:
    """D15: /branch once wrote records twice, one of them without its link."""
    log = Script()
    log.user("One.")
    log.say("Answer.", uuid="twice", parentUuid=None)
    log.records.append({**log.records[-1], "parentUuid": "r1"})
    log.user("Two.", parentUuid="twice")

    assert ["u One.", "a Answer.", "u Two."] == sent_lines(session_of(tmp_path, log))


def test_a_checkpoint_takes_no_records_name(tmp_path: Path) -> None:
    """D16: the messageId of a snapshot names another record; it stands beside the line."""
    log = Script()
    log.note("file-history-snapshot", messageId="r2", snapshot={"trackedFileBackups": {}})
    log.user("Go.")
    session = session_of(tmp_path, log)

    assert ["u Go."] == sent_lines(session)
    assert [State.INTERNAL, State.LIVE] == session.states
    assert "lifecycle" == session.events[0].kind


def test_the_file_names_the_session_whatever_its_records_say(tmp_path: Path) -> None:
    """D17: a resumed file may begin with records of another session, which is a tie to it."""
    log = Script()
    log.user("Old.", sessionId=B)
    log.say("Answer.", sessionId=B)
    log.user("New.")
    session = session_of(tmp_path, log)

    assert f"claude:{A}" == session.uid
    assert [("resume", B)] == [(edge.link, edge.session) for edge in session.edges]
    assert ["u Old.", "a Answer.", "u New."] == sent_lines(session)


# -- lineage --------------------------------------------------------------------------------


def test_copies_of_a_fork_share_their_ids(tmp_path: Path) -> None:
    """F1, F2, F5: nothing names the parent; the same uuids do, and are what a copy is known by."""
    parent = Script()
    parent.user("One.")
    parent.reply([text("Answer.")], id="m", request="q", usage=usage(5))
    fork = Script(B)
    fork.records = [{**record, "sessionId": B} for record in parent.records]
    fork.user("Mine.", uuid="own", parentUuid="r2")
    write(tmp_path, parent, fork)
    original, copy = (read(tmp_path, session).graph for session in (A, B))
    shared = {fact.copy_key or fact.node.id for fact in original.facts}
    known = type(copy)(copy.uid, copy.facts, replayed=shared)

    assert ["r1", "r2"] == states(known, State.REPLAYED)
    assert (15, 0) == (original.spent.own, known.spent.own)
    assert ["u One.", "a Answer.", "u Mine."] == sent_lines(known)
    assert {"m:q"} == {f.usage_key for f in (*original.facts, *copy.facts) if f.usage is not None}


def test_what_has_no_id_is_never_a_copy(tmp_path: Path) -> None:
    """F3: notes without a uuid belong to the file they stand in, even when they look the same."""
    first, second = Script(), Script(B)
    first.note("mode", mode="plan", sessionId="s")
    second.note("mode", mode="plan", sessionId="s")
    names = [session_of(tmp_path, log).facts[0].node.id for log in (first, second)]

    assert all("#" in name for name in names)


def test_a_fork_without_a_word_of_its_own_is_all_copies(tmp_path: Path) -> None:
    """F4: nothing in it is its own, so whoever lists sessions can leave it out."""
    parent, fork = Script(), Script(B)
    parent.user("One.")
    fork.user("One.")
    session = session_of(tmp_path, fork)
    copies = {fact.node.id for fact in session_of(tmp_path, parent).facts}
    known = type(session)(session.uid, session.facts, replayed=copies)

    assert {State.REPLAYED} == set(known.states)


def test_branch_says_where_it_comes_from(tmp_path: Path) -> None:
    """F6: the owner of a copied record is named in it, and so is the last one both have."""
    log = Script(B)
    log.user("One.", forkedFrom={"sessionId": A, "messageUuid": "r1"})
    log.reply([text("Yes.")], usage=usage(5), forkedFrom={"sessionId": A, "messageUuid": "r2"})
    log.user("Mine.")
    session = session_of(tmp_path, log)

    assert [("fork", A, "r2")] == [(e.link, e.session, e.event) for e in session.edges]
    assert [State.REPLAYED, State.REPLAYED, State.LIVE] == session.states
    assert 0 == session.spent.own


def test_summaries_name_records_of_any_session(tmp_path: Path) -> None:
    """F7: titles of other sessions are handed on by the record they name."""
    log = Script()
    log.note("summary", summary="Another one", leafUuid="elsewhere")
    log.note("summary", summary="This one", leafUuid="r3")
    log.user("Go.")
    session = session_of(tmp_path, log)

    assert {"elsewhere": "Another one", "r3": "This one"} == session.about["titles"]
    assert "This one" == session.title


def test_titles_by_precedence(tmp_path: Path) -> None:
    """F8, R8: given, made up, summed up, first prompt; the last of each, an empty one clears."""
    log = Script()
    log.user("Fix it")
    seen = [session_of(tmp_path, log).title]
    for kind, fields in (
        ("summary", {"summary": "Summed", "leafUuid": "r1"}),
        ("ai-title", {"aiTitle": "Made"}),
        ("ai-title", {"aiTitle": "Made anew"}),
        ("custom-title", {"customTitle": "Mine"}),
        ("custom-title", {"customTitle": ""}),
    ):
        log.note(kind, **fields)
        seen.append(session_of(tmp_path, log).title)

    assert ["Fix it", "Summed", "Made", "Made anew", "Mine", "Made anew"] == seen
