"""Going on from an earlier session, finding one, listing them: never a wrong one, never a blank."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.journal.runs import drop, snapshot
from thence.errors import SessionNotFound
from thence.format import codec, repair
from thence.format.records import Event
from thence.format.repair import INTERRUPTED
from thence.format.transcript import Transcript
from thence.journal import journal as module
from thence.journal import lineage
from thence.journal.journal import Journal, Mode
from thence.journal.lineage import MAX_ANCESTRY_DEPTH
from thence.journal.permissions import Action
from thence.journal.reader import ReadBack, SessionSource, read_back
from thence.journal.segments import Segments
from thence.journal.session import Session

MODES: tuple[Mode, ...] = ("adopt", "continue", "fork")


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A journal in a folder of its own."""
    return Journal(tmp_path / "home", durability="none")


def say(session: Session, text: str, **how: Any) -> str:
    """Record a prompt and give its id."""
    return session.record("user", {"role": "user", "content": text}, **how).uuid


def reply(session: Session, text: str, **fields: Any) -> str:
    """Record an answer of the model and give its id."""
    payload = {"role": "assistant", "content": [{"type": "text", "text": text}], **fields}
    return session.record("assistant", payload).uuid


def call(session: Session, *names: str, text: str = "on it") -> str:
    """Record an answer with calls and give its id."""
    asked = [{"type": "tool_use", "id": n, "name": "Bash", "input": {}} for n in names]
    content = [{"type": "text", "text": text}, *asked]
    return session.record("assistant", {"role": "assistant", "content": content}).uuid


def answer(session: Session, name: str, text: str = "done") -> str:
    """Record a result and give its id."""
    result = {"type": "tool_result", "tool_use_id": name, "content": text}
    return session.record("user", {"role": "user", "content": [result]}).uuid


def texts(session: Session) -> list[str]:
    """What is said in a session, block by block."""
    return [b["text"] for m in session.messages for b in m["content"] if b["type"] == "text"]


def results(session: Session) -> dict[str, Any]:
    """What tools answered, by call."""
    results = (b for m in session.messages for b in m["content"] if b["type"] == "tool_result")
    return {block["tool_use_id"]: block["content"] for block in results}


def path_of(session: Session) -> Path:
    """The file of a session."""
    assert session.transcript_path is not None
    return session.transcript_path


def events_of(session: Session) -> list[Event]:
    """The events in a session's file."""
    return codec.decode(path_of(session).read_bytes()).events


# -- the resumption cases of the session-DAG document -----------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_resuming_after_an_idle_timeout(journal: Journal, mode: Mode) -> None:
    """A session closed for idleness goes on as if nothing had been; it was clean."""
    session = journal.create(cwd="/w")
    say(session, "hello")
    reply(session, "hi")
    session.flush()
    session.close("idle")
    again = journal.resume(session.id, mode=mode)

    assert session.messages == again.messages
    assert again.recovery.clean
    assert (
        b'"reason":"idle"'
        in path_of(session).read_bytes().splitlines()[-1 if mode != "continue" else 4]
    )


@pytest.mark.parametrize("mode", MODES)
def test_resuming_after_a_kill_during_approval(journal: Journal, mode: Mode) -> None:
    """The call is on the disk, its result is not: it is answered as interrupted, and listed."""
    session = journal.create()
    say(session, "write a file")
    call(session, "toolu_write")
    session.record("waiting", {"waiting_for": "approval", "tool_use_id": "toolu_write"})
    drop(session)
    again = journal.resume(session.id, mode=mode)

    assert {"toolu_write": INTERRUPTED} == results(again)
    assert ["toolu_write"] == again.recovery.open_calls
    assert ["toolu_write"] == again.recovery.mended
    assert not again.recovery.clean
    assert [] == repair.problems(again.messages)


def test_resuming_right_after_a_call_was_recorded(journal: Journal) -> None:
    """Killed before anybody was asked: the same, whatever else was in the middle of its line."""
    session = journal.create()
    say(session, "write a file")
    call(session, "toolu_write")
    drop(session)
    with path_of(session).open("ab") as file:
        file.write(b'{"type":"waiting","ts":"2031-01-01T00:00:00.000Z","uu')
    again = journal.resume(session.id, mode="continue")
    say(again, "go on")

    assert again.recovery.torn
    assert ["write a file", "on it", "go on"] == texts(again)
    assert again.messages == journal.resume(session.id).messages


def test_rapid_calls_with_kills_between(journal: Journal) -> None:
    """Ten times a call, a kill, a resume: every call has one answer, all words are there."""
    session = journal.create()
    say(session, "begin")
    for n in range(10):
        call(session, f"call_{n}", f"also_{n}", text=f"try {n}")
        if n % 2:
            answer(session, f"call_{n}")
        drop(session)
        session = journal.resume(session.id, mode=("adopt", "continue")[n % 2])
    expected = {f"call_{n}": "done" if n % 2 else INTERRUPTED for n in range(10)}

    assert ["begin", *(f"try {n}" for n in range(10))] == texts(session)
    assert expected | {f"also_{n}": INTERRUPTED for n in range(10)} == results(session)
    assert [] == repair.problems(session.messages)


def test_resuming_with_an_orphaned_call_in_the_history(journal: Journal) -> None:
    """An orphan of an earlier turn, talked over long ago, does not stand in the way."""
    session = journal.create()
    say(session, "first")
    call(session, "lost")
    say(session, "never mind")
    reply(session, "fine")
    drop(session)
    again = journal.resume(session.id, orphans="drop")

    assert ["first", "on it", "never mind", "fine"] == texts(again)
    assert {} == results(again)
    assert [] == repair.problems(again.messages)


@pytest.mark.parametrize("mode", MODES)
def test_resuming_from_an_old_branch(journal: Journal, mode: Mode) -> None:
    """Any event can be gone on from, not only the latest; the other line stays in the log."""
    session = journal.create()
    first = say(session, "first")
    old = reply(session, "old branch")
    say(session, "new branch", parent=first)
    again = journal.resume(session.id, mode=mode, at=old)
    say(again, "more")
    last = journal.resume(again.id)

    assert ["first", "old branch", "more"] == texts(again)
    assert again.messages == last.messages
    assert b"new branch" in path_of(session).read_bytes()


def test_resuming_with_missing_events_and_broken_links(journal: Journal) -> None:
    """A lost line costs itself: what hung on it is bridged, and the recovery says so."""
    session = journal.create()
    for n in range(6):
        say(session, f"{n}")
    drop(session)
    lines = path_of(session).read_bytes().splitlines(keepends=True)
    lines[3] = lines[3][:30] + b"#" + lines[3][31:-40] + b"\n"
    path_of(session).write_bytes(b"".join(lines))
    again = journal.resume(session.id)

    assert ["0", "1", "3", "4", "5"] == texts(again)
    assert 1 == len(again.recovery.skipped)
    assert ["bridged link"] == [notice.what for notice in again.recovery.notices]


@pytest.mark.slow
def test_resuming_a_very_long_session_with_many_branches(journal: Journal) -> None:
    """A thousand events, two hundred branches: the live line and nothing else."""
    session = journal.create()
    line = [(say(session, "root"), "root")]
    for n in range(200):
        line += [(say(session, f"{n}.{k}"), f"{n}.{k}") for k in range(5)]
        del line[len(line) - n % 7 :]
        text = f"{n} again"
        line.append((say(session, text, parent=line[-1][0]), text))
    session.close()
    again = journal.resume(session.id)

    assert [text for _, text in line] == texts(again)
    assert 100 < len(Transcript.read(path_of(session).read_bytes()).graph.branches)


# -- orphans ----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_orphans_are_answered_by_appending(journal: Journal, mode: Mode) -> None:
    """A real result stays; the missing one is an event of its own in the session that goes on."""
    session = journal.create()
    say(session, "go")
    call(session, "a", "b")
    answer(session, "b", "real")
    drop(session)
    again = journal.resume(session.id, mode=mode)
    seen = results(again)
    made = [event for event in events_of(again) if event.fields.get("synthetic")]

    assert {"a": INTERRUPTED, "b": "real"} == seen
    assert [repair.synthetic(again.id, "a", ts="", prev_uuid=None).uuid] == [e.uuid for e in made]
    assert again.messages == journal.resume(again.id).messages


@pytest.mark.parametrize("mode", MODES)
def test_orphans_are_dropped_with_their_exchange(journal: Journal, mode: Mode) -> None:
    """The new message attaches to the last complete one; before and after agree."""
    session = journal.create()
    say(session, "go")
    reply(session, "complete")
    say(session, "again")
    call(session, "a", "b", text="abandoned")
    answer(session, "b", "real")
    drop(session)
    again = journal.resume(session.id, mode=mode, orphans="drop")
    before = again.messages
    say(again, "more")
    after = texts(journal.resume(again.id))

    assert ["go", "complete", "again"] == [b["text"] for m in before for b in m["content"]]
    assert ["go", "complete", "again", "more"] == after
    assert ["a"] == again.recovery.open_calls


def test_a_session_that_begins_with_an_orphan_can_drop_it(journal: Journal) -> None:
    """Nothing complete was said: going on starts at the header, not at the orphan."""
    session = journal.create(cwd="/w")
    call(session, "a")
    drop(session)
    again = journal.resume(session.id, orphans="drop")
    say(again, "fresh")

    assert ["fresh"] == texts(again)
    assert ["fresh"] == texts(journal.resume(again.id))
    assert "/w" == journal.resume(again.id).state.cwd


@pytest.mark.parametrize("mode", MODES)
def test_orphans_are_marked_in_words(journal: Journal, mode: Mode) -> None:
    """Nothing is appended; the call is told as interrupted and stays open for the harness."""
    session = journal.create()
    say(session, "go")
    call(session, "a")
    drop(session)
    again = journal.resume(session.id, mode=mode, orphans="mark")

    assert any("interrupted" in text for text in texts(again))
    assert ["a"] == [block["id"] for block in again.mended().open_calls]
    assert not any(event.fields.get("synthetic") for event in events_of(again))


def test_two_resumers_write_one_answer(journal: Journal) -> None:
    """Both continue the same crashed session at the same time: one synthetic event, no double."""
    session = journal.create()
    say(session, "go")
    call(session, "a")
    drop(session)
    real, synthetic_of = module._mend, []

    def both(going: Session, *rest: Any) -> None:
        synthetic_of.append(going)
        if len(synthetic_of) == 1:  # the second opens before the first has answered
            journal.resume(going.id, mode="continue")
        real(going, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_mend", both)
        again = journal.resume(session.id, mode="continue")
    third = journal.resume(session.id, mode="continue")

    assert 2 == len(synthetic_of)
    assert 1 == sum(bool(event.fields.get("synthetic")) for event in events_of(session))
    assert {"a": INTERRUPTED} == results(third) == results(again)


@pytest.mark.parametrize("mode", MODES)
def test_a_real_result_that_comes_later_wins(journal: Journal, mode: Mode) -> None:
    """The tool had run after all: its result takes the place of the stand-in."""
    session = journal.create()
    say(session, "go")
    call(session, "a")
    drop(session)
    again = journal.resume(session.id, mode=mode)
    answer(again, "a", "real")

    assert {"a": "real"} == results(again)
    assert {"a": "real"} == results(journal.resume(again.id))


# -- what comes back, and what does not -------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_the_ancestor_is_not_touched(journal: Journal, mode: Mode) -> None:
    """Adopt and fork leave every byte that was there; continue only adds."""
    session = journal.create()
    say(session, "go")
    call(session, "a")
    drop(session)
    before = snapshot(journal.root)
    say(journal.resume(session.id, mode=mode), "more")
    after = snapshot(journal.root)

    assert all(after[path].startswith(data) for path, data in before.items())
    assert (mode == "continue") == (before != {path: after[path] for path in before})


def test_one_session_can_be_resumed_many_times(journal: Journal) -> None:
    """Each adoption is a session of its own that names the same event."""
    session = journal.create()
    last = say(session, "go")
    session.close()
    made = [journal.resume(session.id) for _ in range(3)]
    for n, resumed in enumerate(made):
        say(resumed, f"line {n}")
    origins = [events_of(resumed)[0].fields["resumed_from"] for resumed in made]

    assert [["go", f"line {n}"] for n in range(3)] == [texts(resumed) for resumed in made]
    assert [(session.id, last)] * 3 == [(o["session"], o["event"]) for o in origins]
    assert {"session", "event", "segment", "offset", "length", "prefix_hash"} == set(origins[0])


def test_an_ancestor_that_goes_on_does_not_reach_its_children(journal: Journal) -> None:
    """What the old session says after the adoption is its own."""
    session = journal.create()
    say(session, "shared")
    child = journal.resume(session.id)
    say(session, "later")
    session.compact("all of it")
    say(child, "child")

    assert ["shared", "child"] == texts(journal.resume(child.id))


@pytest.mark.parametrize("mode", MODES)
def test_a_session_that_said_nothing_can_be_resumed(journal: Journal, mode: Mode) -> None:
    """Only a header: nothing to say, but where and with which model is known."""
    session = journal.create(cwd="/w", model="m")
    drop(session)
    again = journal.resume(session.id, mode=mode)
    say(again, "first")
    last = journal.resume(again.id)

    assert ["first"] == texts(last)
    assert ("/w", "m") == (last.state.cwd, last.state.model["model"])
    assert [] == last.recovery.notices


@pytest.mark.parametrize("mode", MODES)
def test_permissions_never_come_back(journal: Journal, mode: Mode) -> None:
    """A log full of grants, a ledger full of grants: what is opened holds none of it."""
    session = journal.create()
    session.permissions.grant(Action("Bash", "ls"), scope="session")
    for kind in ("permission", "permission_granted", "permissions"):
        session.record(kind, {"rule": "Bash(*)", "decision": "allow", "scope": "always"})
    say(session, "go")
    session.record("model", {"model": "m", "overrides": {"permission_mode": "bypass"}})
    session.close()
    again = journal.resume(session.id, mode=mode)

    assert 0 == len(again.permissions)
    assert again.permissions is not session.permissions
    assert again.permissions.decision(Action("Bash", "ls")) is None
    assert "permission" not in json.dumps(again.state.values) + json.dumps(again.messages)
    assert "permission" not in json.dumps(again.state.folded)


def test_money_starts_fresh_and_adds_up_over_the_ancestry(journal: Journal) -> None:
    """Each session's own cost is its own; the header carries what came before."""
    spent = []
    session = journal.create()
    for n in range(4):
        usage = {"input_tokens": 1, "output_tokens": 1}
        reply(session, "x", cost_usd=0.25, usage=usage, id=f"r{n}")
        spent.append((session.cost, session.cumulative_cost))
        session.close()
        session = journal.resume(session.id)

    assert [(0.25, 0.25), (0.25, 0.5), (0.25, 0.75), (0.25, 1.0)] == spent
    assert (0.0, 1.0) == (session.cost, session.cumulative_cost)
    assert 1.0 == events_of(session)[0].fields["inherited_cost"]


def test_money_of_a_killed_session_is_not_forgotten(journal: Journal) -> None:
    """Since the last turn's end, on dead branches, before continuing: all of it counts."""
    session = journal.create()
    usage = {"input_tokens": 1, "output_tokens": 1}
    start = reply(session, "x", cost_usd=0.5, usage=usage, id="r0")
    session.flush()
    reply(session, "dead", cost_usd=0.25, usage=usage, id="r1")
    session.rewind(start)
    drop(session)
    going = journal.resume(session.id, mode="continue")
    fresh = (going.cost, going.cumulative_cost)
    reply(going, "y", cost_usd=0.125, usage=usage, id="r2")
    going.flush()
    turns = [event for event in events_of(session) if event.type == "turn"]

    assert (0.0, 0.75) == fresh
    assert (0.125, 0.875) == (going.cost, going.cumulative_cost)
    assert [0.5, 0.875] == [turn.fields["totals"]["usd"] for turn in turns]
    assert 0.875 == journal.resume(session.id).inherited_cost


def test_a_damaged_sum_is_added_up_again(journal: Journal) -> None:
    """Totals of a turn are a cache; hostile ones send the reader to the bills themselves."""
    session = journal.create()
    reply(session, "x", cost_usd=0.5, usage={"output_tokens": 1}, id="r0")
    for totals in ({"usd": -5}, {"usd": "nan"}, [1], None):
        session._write("turn", {"state": "done", "totals": totals})
        assert 0.5 == journal.resume(session.id).inherited_cost


# -- ancestry ---------------------------------------------------------------------------


def test_a_missing_ancestor_is_said_and_not_raised(journal: Journal) -> None:
    """History starts at the reference; what the session itself holds is all there."""
    old = journal.create(cwd="/w")
    say(old, "old")
    new = journal.resume(old.id)
    say(new, "new")
    new.close()
    path_of(old).unlink()
    again = journal.resume(new.id)

    assert ["new"] == texts(again)
    assert ["ancestor missing"] == [notice.what for notice in again.recovery.notices]
    assert old.id in again.recovery.notices[0].detail


def test_a_lost_event_of_the_ancestor_costs_itself_only(journal: Journal) -> None:
    """The very event that was gone on from is damaged: the history goes on before it."""
    old = journal.create()
    say(old, "first")
    say(old, "second")
    new = journal.resume(old.id)
    say(new, "new")
    data = path_of(old).read_bytes()
    path_of(old).write_bytes(data.replace(b'"content":"second"', b'"content":"second '))
    again = journal.resume(new.id)

    assert ["first", "new"] == texts(again)
    assert "ancestor damaged" in [notice.what for notice in again.recovery.notices]


def test_an_ancestry_that_bites_its_tail_ends(journal: Journal) -> None:
    """Two sessions that name one another are read once each."""
    old = journal.create()
    say(old, "old")
    new = journal.resume(old.id)
    say(new, "new")
    header = events_of(old)[0]
    fields = {**header.fields, "resumed_from": {"session": new.id}}
    lines = path_of(old).read_bytes().splitlines(keepends=True)
    line = codec.encode(Event("header", header.ts, header.uuid, None, fields))
    path_of(old).write_bytes(line + b"".join(lines[1:]))

    assert ["old", "new"] == texts(journal.resume(new.id))


@pytest.mark.slow
def test_deep_ancestry_opens_with_a_boundary_of_its_own(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the line of sessions, opening one touches a bounded number of files."""
    session = journal.create(cwd="/w")
    say(session, "0")
    for n in range(1, 3 * MAX_ANCESTRY_DEPTH):
        session.record("cwd", {"cwd": f"/d{n}"})
        session.close()
        session = journal.resume(session.id)
        say(session, f"{n}")
    expected = [str(n) for n in range(3 * MAX_ANCESTRY_DEPTH)]
    sessions = [session]
    while origin := events_of(sessions[-1])[0].fields["resumed_from"]:
        sessions.append(journal.resume(origin["session"], mode="continue"))
    with_boundary = [any(e.type == "boundary" for e in events_of(member)) for member in sessions]

    assert expected == texts(session)
    assert expected == texts(journal.resume(session.id))
    assert f"/d{3 * MAX_ANCESTRY_DEPTH - 1}" == journal.resume(session.id).state.cwd
    assert 2 == sum(with_boundary)
    read: list[str] = []
    plain = read_back

    def watched(source: SessionSource, **how: Any) -> ReadBack:
        read.append(source.session)
        return plain(source, **how)

    monkeypatch.setattr(lineage, "read_back", watched)
    journal.resume(session.id)
    assert MAX_ANCESTRY_DEPTH + 2 >= len(read)


# -- finding ----------------------------------------------------------------------------


def test_the_latest_of_a_project_is_found(journal: Journal) -> None:
    """Without an id: the newest of that project, else the newest of all."""
    first, second = journal.create(cwd="/one"), journal.create(cwd="/two")
    say(first, "one")
    say(second, "two")
    os.utime(path_of(first), (2e9, 2e9))

    assert ["two"] == texts(journal.resume(project="/two"))
    os.utime(path_of(first), (3e9, 3e9))
    assert ["one"] == texts(journal.resume())


def test_a_session_is_found_by_id_and_unique_prefix(journal: Journal) -> None:
    """An id that is also the beginning of another one is still exact."""
    for name in ("abc", "abcd", "xyz"):
        say(journal.create(session=name), name)

    assert ["abc"] == texts(journal.resume("abc"))
    assert ["abcd"] == texts(journal.resume("abcd"))
    assert ["xyz"] == texts(journal.resume("x", mode="continue"))


def test_an_ambiguous_prefix_is_an_error_that_names_them(journal: Journal) -> None:
    """Never a guess."""
    for name in ("abc1", "abc2"):
        journal.create(session=name)
    with pytest.raises(SessionNotFound) as caught:
        journal.resume("abc")

    assert "abc1" in caught.value.message
    assert "abc2" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("name", ["nowhere", "../../etc", "*", "\x00", "a" * 5000])
def test_an_unknown_id_is_an_error_with_a_hint(journal: Journal, name: str) -> None:
    """Whatever the text: not found, and what to do."""
    journal.create()
    with pytest.raises(SessionNotFound) as caught:
        journal.resume(name)

    assert 10 == caught.value.exit_code
    assert caught.value.hint
    assert 200 > len(caught.value.message)


def test_an_empty_home_has_no_latest(journal: Journal) -> None:
    """Nothing yet is an error with a hint, and makes no folder."""
    with pytest.raises(SessionNotFound) as caught:
        journal.resume()

    assert caught.value.hint
    assert not journal.root.exists()


@pytest.mark.parametrize("mode", MODES)
def test_an_unknown_event_is_an_error_with_a_hint(journal: Journal, mode: Mode) -> None:
    """Not in the session, not in any it goes on from; nothing was made or changed."""
    old = journal.create()
    say(old, "old")
    new = journal.resume(old.id)
    before = snapshot(journal.root)
    with pytest.raises(SessionNotFound) as caught:
        journal.resume(new.id, mode=mode, at="nowhere")

    assert caught.value.hint
    assert before == snapshot(journal.root)


# -- listing ----------------------------------------------------------------------------


def test_sessions_are_listed_newest_first(journal: Journal) -> None:
    """At most so many, of one project or of all."""
    for n in range(6):
        made = journal.create(cwd=f"/p{n % 2}", session=f"s{n}")
        os.utime(path_of(made), (2e9 - n, 2e9 - n))

    assert ["s0", "s1", "s2"] == [entry.session_id for entry in journal.sessions(limit=3)]
    assert ["s1", "s3", "s5"] == [entry.session_id for entry in journal.sessions("/p1")]


def test_a_listed_session_says_what_it_is(journal: Journal) -> None:
    """Title, first prompt, model, money, branch, ancestor, how it ended."""
    session = journal.create(cwd="/w", model="m1")
    say(session, "fix the tide table")
    session.record("worktree", {"branch": "tides"})
    reply(session, "done", model="m2", cost_usd=0.5, usage={"output_tokens": 1})
    session.title = "Tides"
    session.flush()
    session.close()
    child = journal.resume(session.id)
    listed = {entry.session_id: entry for entry in journal.sessions()}
    entry = listed[session.id]

    assert ("Tides", "fix the tide table", "m2") == (entry.title, entry.first_prompt, entry.model)
    assert (0.5, "tides", "/w", True) == (entry.usd, entry.branch, entry.cwd, entry.closed)
    assert (session.id, False) == (listed[child.id].resumed_from, listed[child.id].closed)
    assert path_of(session).stat().st_size == entry.size


def test_a_large_session_is_listed_from_its_ends(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty megabytes, a few blocks read."""
    session = journal.create(model="m")
    say(session, "the first")
    for _ in range(20):
        reply(session, "x" * (1 << 20))
    session.title = "Large"
    session.flush()
    read: list[int] = []
    plain = Segments.read

    def counted(self: Segments, start: int, stop: int) -> bytes:
        data = plain(self, start, stop)
        read.append(len(data))
        return data

    monkeypatch.setattr(Segments, "read", counted)
    entry = journal.sessions()[0]

    assert ("Large", "the first") == (entry.title, entry.first_prompt)
    assert 20 << 20 < entry.size
    assert 3 << 20 > sum(read)


def test_a_title_is_carried_over_from_a_session_of_one_turn(journal: Journal) -> None:
    """Also right after its first flush, where the turn is written after the last event."""
    session = journal.create()
    session.title = "Tides"
    say(session, "fix the tide table")
    session.flush()
    adopted, forked = journal.resume(session.id), journal.resume(session.id, mode="fork")

    assert ["Tides", "Tides"] == [adopted.title, forked.title]
    assert "Tides" == journal.resume(adopted.id).title


def test_damaged_files_are_listed_and_harm_no_other(journal: Journal) -> None:
    """Binary, foreign, a link, a folder, hostile values: each is a row or is passed over."""
    session = journal.create(session="good")
    say(session, "good")
    folder = path_of(session).parent
    (folder / "binary.jsonl").write_bytes(bytes(range(256)) * 50)
    (folder / "sealed.jsonl.zst").write_bytes(b"no zstandard")
    hostile = {"title": {"a": 1}, "totals": [], "model": 7, "branch": None, "state": "done"}
    turn = codec.encode(Event("turn", "", "t", None, hostile))
    (folder / "hostile.jsonl").write_bytes(b'{"type":"header","payload":5}\n' + turn)
    (folder / "folder.jsonl").mkdir()
    (folder / "link.jsonl").symlink_to("/etc/hosts")
    (folder / "gone.jsonl").symlink_to("/nowhere")
    names = {entry.session_id for entry in journal.sessions()}

    assert {"good", "binary", "sealed", "hostile"} <= names
    assert "folder" not in names
    assert "good" == next(o.first_prompt for o in journal.sessions() if o.session_id == "good")


@pytest.mark.parametrize("data", [b"[]\n[]\n", b"\x00" * 70_000, b'{"type":"user"}\n'])
def test_a_damaged_file_can_be_resumed(journal: Journal, data: bytes) -> None:
    """No content of a file raises: history is what can be read, and going on works."""
    session = journal.create(session="s")
    drop(session)
    path_of(session).write_bytes(data)
    again = journal.resume("s", mode="continue")
    say(again, "on")

    assert ["on"] == texts(again)
    assert ["on"] == texts(journal.resume("s"))
    assert path_of(session).read_bytes().startswith(data)


# -- the layout local to a project ------------------------------------------------------


@pytest.mark.skipif(shutil.which("git") is None, reason="no git here")
def test_a_local_layout_is_ignored_by_git_from_the_start(tmp_path: Path) -> None:
    """`.transcripts/<session>.jsonl` and `.sidechains/<agent>.jsonl` in the project itself."""
    project = tmp_path / "project"
    project.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    subprocess.run(["git", "init", "-q"], cwd=project, env=environment, check=True)
    journal = Journal(tmp_path / "home", local=project)
    session = journal.create(cwd=project)
    child = session.sidechain("helper")
    child.record("user", {"role": "user", "content": "x"})
    status = ["git", "status", "--porcelain", "--untracked-files=all"]
    done = subprocess.run(status, cwd=project, env=environment, capture_output=True, check=True)

    assert b"" == done.stdout
    assert project / ".transcripts" / f"{session.id}.jsonl" == session.transcript_path
    assert (project / ".sidechains" / f"{child.agent_id}.jsonl").is_file()
    assert [session.id] == [entry.session_id for entry in journal.sessions()]


def test_every_folder_and_file_is_the_owners_alone(journal: Journal) -> None:
    """Other users of the machine see none of it."""
    session = journal.create()
    session.sidechain("helper")
    modes = {path: path.stat().st_mode & 0o777 for path in journal.root.rglob("*")}

    assert modes
    assert {} == {p: oct(m) for p, m in modes.items() if m != (0o700 if p.is_dir() else 0o600)}
