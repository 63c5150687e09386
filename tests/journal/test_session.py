"""A session on the disk: whatever happens to its writer, what was recorded comes back as it was."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.journal.runs import Run, Script, drop, scripts, snapshot
from thence.errors import Conflict, NotAppendable, SessionNotFound
from thence.format import codec
from thence.format.records import Event
from thence.format.state import BUILT_IN, Domain, Domains
from thence.format.transcript import Transcript
from thence.journal.journal import Journal
from thence.journal.session import Session

WRITER = """
import sys
from thence.journal.journal import Journal
root, session, name, count = sys.argv[1:]
journal = Journal(root, durability="none")
going = journal.resume(session, mode="continue", orphans="mark")
print("ready", flush=True)
sys.stdin.readline()
for n in range(int(count)):
    payload = {"role": "user", "content": f"{name} {n}"}
    going.record("user", payload, uuid=f"{name}-{n}" if n % 10 == 0 else None)
    if n % 10 == 0:
        going.record("user", payload, uuid=f"{name}-{n}")
        going.record("user", {"role": "user", "content": "shared"}, uuid=f"shared-{n}")
"""


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A journal in a folder of its own."""
    return Journal(tmp_path / "home")


def say(session: Session, text: str, **how: Any) -> str:
    """Record a prompt and give its id."""
    return session.record("user", {"role": "user", "content": text}, **how).uuid


def texts(session: Session) -> list[str]:
    """What is said in a session, block by block."""
    return [b["text"] for m in session.messages for b in m["content"] if b["type"] == "text"]


def lines_of(session: Session) -> list[bytes]:
    """The lines of a session's file."""
    assert session.transcript_path is not None
    return session.transcript_path.read_bytes().splitlines()


# -- the model --------------------------------------------------------------------------


def test_a_response_in_several_events_is_one_message(journal: Journal) -> None:
    """A harness that writes results while the response streams: calls first, then all results."""
    session = journal.create()
    say(session, "Look at both.")
    for name in ("a", "b"):
        call: dict[str, Any] = {"type": "tool_use", "id": name, "name": "Read", "input": {}}
        session.record("assistant", {"role": "assistant", "content": [call], "id": "msg_1"})
        answer = {"type": "tool_result", "tool_use_id": name, "content": name}
        session.record("user", {"role": "user", "content": [answer]})
    log = b"".join(line + b"\n" for line in lines_of(session))
    read_back = Transcript(codec.decode(log)).messages().messages

    for messages in (session.messages, journal.resume(session.id).messages, read_back):
        assert ["user", "assistant", "user"] == [message["role"] for message in messages]
        assert ["a", "b"] == [block["id"] for block in messages[1]["content"]]
        assert ["a", "b"] == [block["tool_use_id"] for block in messages[2]["content"]]


@given(script=scripts)
def test_every_run_gives_back_what_was_there(script: Script) -> None:
    """Messages, chain and state match plain lists after every step; no file loses a byte."""
    with tempfile.TemporaryDirectory() as folder:
        Run(Path(folder), script)


@settings(max_examples=(settings.default or settings()).max_examples // 2)
@given(script=scripts)
def test_a_run_over_many_segments_is_one_session(script: Script) -> None:
    """The same with a cap that every turn passes: rolling on changes nothing that is read."""
    with tempfile.TemporaryDirectory() as folder:
        Run(Path(folder), script, max_bytes=1200)


# -- recording --------------------------------------------------------------------------


def test_a_receipt_says_where_the_event_stands(journal: Journal) -> None:
    """Offset and line lead to the event, without reading it back for the caller."""
    session = journal.create()
    receipts = [session.record("user", {"role": "user", "content": str(n)}) for n in range(5)]
    lines = lines_of(session)

    assert [r.uuid for r in receipts] == [json.loads(lines[r.line - 1])["uuid"] for r in receipts]
    assert [2, 3, 4, 5, 6] == [receipt.line for receipt in receipts]


def test_a_record_survives_the_process_without_a_flush(journal: Journal) -> None:
    """Nothing waits in memory: the bytes are the system's when `record` returns."""
    session = journal.create()
    say(session, "kept")

    assert b'"kept"' in lines_of(session)[-1]
    assert not session.transcript_flushed


def test_a_flush_writes_the_totals_of_the_turn_once(journal: Journal) -> None:
    """Flushing twice is one turn event; nothing new means nothing to write."""
    session = journal.create()
    say(session, "a")
    session.flush()
    session.flush()

    assert 1 == sum(b'"type":"turn"' in line for line in lines_of(session))
    assert session.transcript_flushed


def test_closing_says_good_bye_once(journal: Journal) -> None:
    """One terminator, and nothing after it."""
    with journal.create() as session:
        say(session, "a")
    session.close()
    with pytest.raises(NotAppendable):
        say(session, "late")

    assert 1 == sum(b'"type":"terminator"' in line for line in lines_of(session))
    assert b'"reason":"closed"' in lines_of(session)[-1]


def test_an_error_in_the_block_is_the_reason_of_the_end(journal: Journal) -> None:
    """Who leaves by an exception did not close cleanly, and the log says so."""
    session = journal.create()
    with pytest.raises(ZeroDivisionError), session:
        _ = 1 / 0

    assert b'"reason":"error"' in lines_of(session)[-1]


@pytest.mark.parametrize(
    "text",
    [
        "a\u2028b\u2029c",
        "next\u0085line",
        "nul\x00byte",
        '"\\\n\r\t\x1b',
        "𐀀é",
    ],
)
def test_odd_text_comes_back_as_it_was(journal: Journal, text: str) -> None:
    """Line separators of all kinds and NUL: content is content."""
    session = journal.create()
    say(session, text)
    session.close()
    before = session.messages

    assert before == journal.resume(session.id).messages
    assert [text] == texts(journal.resume(session.id, mode="continue"))


def test_a_lone_surrogate_stays_in_the_log_and_no_request_holds_it(journal: Journal) -> None:
    """The line has it as it was said; messages have U+FFFD, since it has no UTF-8 form."""
    session = journal.create()
    say(session, "\ud800 lone \udfff")
    session.close()

    assert any(b"\\ud800 lone \\udfff" in line for line in lines_of(session))
    assert ["\N{REPLACEMENT CHARACTER} lone \N{REPLACEMENT CHARACTER}"] == texts(
        journal.resume(session.id, mode="continue")
    )


@settings(max_examples=50)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip))
def test_any_text_comes_back_as_it_was(text: str) -> None:
    """Whatever a tool or a person may write; lone surrogates have a test of their own."""
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(folder, durability="none")
        session = journal.create()
        say(session, text)
        drop(session)
        again = journal.resume(session.id)
        drop(again)

        assert [text] == texts(again)


@pytest.mark.slow
def test_five_megabytes_in_one_text_come_back(journal: Journal) -> None:
    """Size is no reason to cut what the model saw."""
    session = journal.create()
    text = "\u2028 é \x00 " * (1 << 20)
    say(session, text)
    session.close()

    assert [text] == texts(journal.resume(session.id))


def test_a_large_result_gives_the_model_the_same_bytes_again(journal: Journal) -> None:
    """What was spilled before writing is what a resumed session sends, byte for byte."""
    session = journal.create()
    call = {"type": "tool_use", "id": "c", "name": "Bash", "input": {}}
    session.record("assistant", {"role": "assistant", "content": [call]})
    result = {"type": "tool_result", "tool_use_id": "c", "content": "x" * (5 << 20)}
    session.record("user", {"role": "user", "content": [result]})
    session.close()
    before = session.messages

    assert before == journal.resume(session.id).messages
    assert 100_000 > len(lines_of(session)[-2])


# -- the same event again ---------------------------------------------------------------


def test_the_same_uuid_again_is_a_no_op(journal: Journal) -> None:
    """In one process, after reopening, and through an older handle: the first receipt, one line."""
    session = journal.create()
    first = session.record("user", {"role": "user", "content": "once"}, uuid="mine")
    say(session, "between")
    again = session.record("user", {"role": "user", "content": "once"}, uuid="mine")
    reopened = journal.resume(session.id, mode="continue")
    third = reopened.record("user", {"role": "user", "content": "once"}, uuid="mine")

    assert [(first.uuid, first.offset, 2)] * 3 == [
        (r.uuid, r.offset, r.line) for r in (first, again, third)
    ]
    assert 1 == sum(b'"uuid":"mine"' in line for line in lines_of(session))
    assert ["once", "between"] == texts(reopened)


def test_the_same_uuid_from_another_process_is_a_no_op(journal: Journal) -> None:
    """What another process wrote since we last looked is known before we write."""
    session = journal.create()
    say(session, "start")
    code = (
        "import sys; from thence.journal.journal import Journal;"
        "s = Journal(sys.argv[1]).resume(sys.argv[2], mode='continue');"
        "print(s.record('user', {'role': 'user', 'content': 'x'}, uuid='theirs').offset)"
    )
    run = [sys.executable, "-c", code, str(journal.root), session.id]
    done = subprocess.run(run, capture_output=True, text=True, check=True, timeout=60)
    receipt = session.record("user", {"role": "user", "content": "x"}, uuid="theirs")

    assert int(done.stdout) == receipt.offset
    assert 1 == sum(b'"uuid":"theirs"' in line for line in lines_of(session))


def test_a_half_written_line_registers_no_uuid(journal: Journal) -> None:
    """An event whose line was torn was never recorded: the same uuid is written."""
    session = journal.create()
    path = session.transcript_path
    assert path is not None
    earlier = session.record("user", {"role": "user", "content": "x" * 50}, uuid="torn")
    drop(session)
    path.write_bytes(path.read_bytes()[:-20])
    again = journal.resume(session.id, mode="continue")
    receipt = again.record("user", {"role": "user", "content": "x" * 50}, uuid="torn")

    assert receipt.offset > earlier.offset
    assert ["x" * 50] == texts(journal.resume(session.id))


# -- several writers --------------------------------------------------------------------


def test_a_stale_tip_becomes_a_branch(journal: Journal) -> None:
    """Two clients answer the same event: both answers are in the log, the last one is live."""
    session = journal.create()
    start = say(session, "start")
    other = journal.resume(session.id, mode="continue")
    say(other, "theirs", expected_tip=start)
    say(session, "ours", expected_tip=start)

    assert ["start", "ours"] == texts(session)
    assert ["start", "ours"] == texts(journal.resume(session.id))
    assert any(b'"theirs"' in line for line in lines_of(session))


def test_a_stale_tip_is_a_conflict_when_asked_for(journal: Journal) -> None:
    """Nothing is written, nothing is lost, and the caller is told where the session is now."""
    session = journal.create()
    start = say(session, "start")
    other = journal.resume(session.id, mode="continue")
    theirs = say(other, "theirs")
    before = lines_of(session)
    with pytest.raises(Conflict) as caught:
        say(session, "ours", expected_tip=start, on_stale="conflict")

    assert before == lines_of(session)
    assert theirs in caught.value.message
    assert 11 == caught.value.exit_code
    assert caught.value.hint


def test_the_tip_another_process_left_can_be_gone_on_from(journal: Journal) -> None:
    """Who looked and expects the present tip continues it, whatever its own memory held."""
    session = journal.create()
    say(session, "start")
    other = journal.resume(session.id, mode="continue")
    theirs = say(other, "theirs")
    say(session, "after", expected_tip=theirs, on_stale="conflict")

    assert ["start", "theirs", "after"] == texts(session)
    assert ["start", "theirs", "after"] == texts(journal.resume(session.id))


def test_going_on_from_before_another_processes_rewind_counts(journal: Journal) -> None:
    """Once a log holds a moved tip, a branch of ours moves it again: our words are live."""
    session = journal.create()
    first, second = say(session, "first"), say(session, "second")
    other = journal.resume(session.id, mode="continue")
    other.rewind(first)
    say(session, "third", parent=second)
    say(session, "fourth", parent=second)

    assert ["first", "second", "fourth"] == texts(journal.resume(session.id))


def test_threads_share_a_session(journal: Journal) -> None:
    """Eight threads record into one session: every line whole, every event there, one chain."""
    session = journal.create()
    threads = [
        threading.Thread(target=lambda k=k: [say(session, f"{k} {n}") for n in range(50)])
        for k in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    session.close()

    assert 400 == len(texts(session))
    assert texts(session) == texts(journal.resume(session.id))


@pytest.mark.slow
def test_processes_share_a_session(journal: Journal) -> None:
    """Four processes: no line is torn or mixed, no uuid stands twice, all of it is read back."""
    session = journal.create()
    start = say(session, "start")
    session.close()
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(journal.root), session.id, f"w{k}", "250"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for k in range(4)
    ]
    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.readline()
    for worker in workers:
        worker.communicate("go\n", timeout=120)
    assert session.transcript_path is not None
    read = Transcript.read(session.transcript_path.read_bytes())
    contents = {event.fields["content"] for event in read.events if event.type == "user"}
    ids = [event.uuid for event in read.events]

    assert [0] * 4 == [worker.returncode for worker in workers]
    assert [] == read.skipped
    assert len(set(ids)) == len(ids)
    assert {f"w{k} {n}" for k in range(4) for n in range(250)} < contents
    assert 25 == sum(uuid.startswith("shared-") for uuid in ids)
    assert start == next(e.uuid for e in read.chain() if e.type == "user")


# -- the line ---------------------------------------------------------------------------


def test_a_rewind_to_nowhere_changes_nothing(journal: Journal) -> None:
    """An event that is not there is an error with a hint; memory and file stay as they were."""
    session = journal.create()
    say(session, "a")
    before = lines_of(session)
    for move in (session.rewind, lambda to: say(session, "b", parent=to)):
        with pytest.raises(SessionNotFound) as caught:
            move("nowhere")
        assert caught.value.hint

    assert before == lines_of(session)
    assert ["a"] == texts(session)
    say(session, "c")
    assert ["a", "c"] == texts(journal.resume(session.id))


def test_a_rewind_past_the_beginning_goes_on_in_an_ancestor(journal: Journal) -> None:
    """An ancestor's event is as good as one's own: for the model, the state, and who resumes."""
    old = journal.create(cwd="/w")
    first = say(old, "first")
    old.record("cwd", {"cwd": "/elsewhere"})
    say(old, "second")
    middle = journal.resume(old.id)
    say(middle, "third")
    new = journal.resume(middle.id)
    left = say(new, "fourth")
    before = lines_of(old), lines_of(middle)
    new.rewind(first)
    seen = texts(new), new.state.cwd
    say(new, "fifth")

    assert (["first"], "/w") == seen
    assert (before, ["first", "fifth"]) == ((lines_of(old), lines_of(middle)), texts(new))
    for mode in ("adopt", "continue", "fork"):
        again = journal.resume(new.id, mode=mode)
        assert (["first", "fifth"], "/w") == (texts(again), again.state.cwd)
    new.rewind(left)
    assert ["first", "second", "third", "fourth"] == texts(new)
    assert ["first", "second", "third", "fourth"] == texts(journal.resume(new.id))


def test_going_on_from_an_ancestors_event_is_a_branch(journal: Journal) -> None:
    """`parent=` leads there as well, and so does resuming the session itself at it."""
    old = journal.create()
    first = say(old, "first")
    say(old, "second")
    new = journal.resume(old.id)
    say(new, "third")
    say(new, "aside", parent=first)
    new.close()
    again = journal.resume(new.id, mode="continue")
    seen = texts(again)
    again.close()
    back = journal.resume(new.id, mode="continue", at=first)

    assert ["first", "aside"] == seen
    assert ["first"] == texts(back) == texts(journal.resume(new.id))
    assert ["first"] == texts(journal.fork(new.id, at=first))


def test_compacting_from_nowhere_is_refused(journal: Journal) -> None:
    """`keep_from` names something the model sees, or nothing happens."""
    session = journal.create()
    say(session, "a")
    before = lines_of(session)
    with pytest.raises(SessionNotFound):
        session.compact("s", keep_from="nowhere")

    assert before == lines_of(session)


def test_a_compaction_stays_readable_through_further_ones(journal: Journal) -> None:
    """Originals stay in the log; rewinding past a compaction brings them back."""
    session = journal.create()
    first = say(session, "first")
    for n in range(4):
        say(session, f"more {n}")
        session.compact(f"summary {n}")
    assert ["summary 3"] == texts(session)
    session.rewind(first)

    assert ["first"] == texts(session)
    assert ["first"] == texts(journal.resume(session.id))


# -- the off switch ---------------------------------------------------------------------


def test_switched_off_everything_works_and_nothing_is_on_the_disk(tmp_path: Path) -> None:
    """The same verbs, the same answers, no file and no folder."""
    journal = Journal(tmp_path / "home", enabled=False)
    with journal.create(cwd="/w", model="m") as session:
        first = say(session, "first")
        say(session, "mine", uuid="mine")
        say(session, "mine", uuid="mine")
        session.record("cwd", {"cwd": "/elsewhere"})
        assert ["first", "mine"] == texts(session)
        assert "/elsewhere" == session.state.cwd
        with pytest.raises(Conflict):
            say(session, "x", expected_tip=first, on_stale="conflict")
        session.rewind(first)
        assert ("/w", ["first"]) == (session.state.cwd, texts(session))
        say(session, "dead")
        say(session, "second", parent=first)
        third = say(session, "third", expected_tip=session.tip)
        with session.sidechain("helper") as child:
            child.record("user", {"role": "user", "content": "x"})
            child.finish("done")
        session.compact("sum", keep_from=third)
        session.flush()
        assert ["sum", "third"] == texts(session)

    assert session.transcript_path is None
    assert [] == journal.sessions()
    assert {} == snapshot(tmp_path)
    assert [] == list(tmp_path.iterdir())


# -- what a session costs ---------------------------------------------------------------


def test_one_response_in_several_events_is_billed_once(journal: Journal) -> None:
    """Blocks of one response repeat its bill; dead branches stay paid for."""
    session = journal.create()
    start = say(session, "go")
    bill = {"role": "assistant", "content": "x", "id": "r1", "cost_usd": 0.5}
    usage = {"input_tokens": 1, "output_tokens": 1}
    session.record("assistant", {**bill, "usage": usage})
    session.record("assistant", {**bill, "usage": usage})
    session.rewind(start)
    session.record("assistant", {**bill, "id": "r2", "usage": usage})

    assert 1.0 == session.cost


def test_the_first_line_is_a_header_and_every_line_an_event(journal: Journal) -> None:
    """Envelope and header have the names of the wire format, in order."""
    with journal.create(cwd="/w", model="m") as session:
        say(session, "a")
        session.flush()
    lines = [json.loads(line) for line in lines_of(session)]
    header = ["session_id", "start_ts", "resumed_from", "schema_version", "cwd", "model"]

    assert {("type", "ts", "uuid", "prev_uuid", "payload")} == {tuple(line) for line in lines}
    assert ["header", "user", "turn", "terminator"] == [line["type"] for line in lines]
    assert [*header, "inherited_cost"] == list(lines[0]["payload"])
    assert {"end_ts", "reason"} == set(lines[-1]["payload"])
    assert 4 == len(codec.decode(b"\n".join(lines_of(session)) + b"\n").events)


# -- state, a little at a time ----------------------------------------------------------


def counting(seen: list[str], *, fails_at: str = "") -> Domain[Any]:
    """A domain that counts prompts, and notes every event it is shown."""

    def fold(value: int, event: Event) -> int:
        seen.append(event.uuid)
        if event.uuid == fails_at:
            raise ValueError(fails_at)
        return value + (event.type == "user")

    return Domain("prompts", lambda: 0, fold)


def test_the_end_of_a_turn_folds_what_the_turn_added(tmp_path: Path) -> None:
    """Each event is folded once, however many turns follow it."""
    seen: list[str] = []
    domains = Domains([*BUILT_IN, counting(seen)])
    session = Journal(tmp_path, durability="none", domains=domains).create()
    for n in range(30):
        say(session, f"{n}")
        session.flush()

    assert 31 == len(seen) == len(set(seen))
    assert 30 == session.state.prompts


def test_a_domain_that_failed_stays_absent_from_turn_to_turn(tmp_path: Path) -> None:
    """It is not started anew from the middle of the line, as if nothing had come before."""
    seen: list[str] = []
    domains = Domains([*BUILT_IN, counting(seen, fails_at="bad")])
    session = Journal(tmp_path, durability="none", domains=domains).create()
    say(session, "first", uuid="bad")
    session.flush()
    say(session, "second")
    session.flush()

    assert "prompts" not in session.state.values
    assert ["prompts"] == list(session.state.failed)


def test_what_a_caller_does_to_the_state_is_not_kept(journal: Journal) -> None:
    """State is handed out as a copy; the next one is as if nobody had touched it."""
    session = journal.create(cwd="/w")
    session.record("file", {"path": "a.py", "how": "edit"})
    session.state.files.clear()
    session.state.values["model"]["model"] = "mine"
    session.flush()

    assert ["a.py"] == list(session.state.files)
    assert session.state.model["model"] is None
