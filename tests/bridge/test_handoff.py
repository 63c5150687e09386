"""Sessions written for another agent: whole, private, new, and read back the same."""

from __future__ import annotations

import json
import os
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.agents import rollouts
from tests.agents.transcripts import Script, write
from tests.memory.stored import opened, sweep
from thence.agents.claude.handoff import folder_name
from thence.agents.grok.handoff import usual_model
from thence.agents.profiles import agents
from thence.agents.sessions import LoadedSession, load
from thence.bridge.handoff import Handoff, carry_out, end_of, plan, targets
from thence.bridge.portable_history import writer_of
from thence.errors import BadConfig, Conflict, NotAppendable, SessionNotFound
from thence.format.facts import HANDED
from thence.format.graph import State
from thence.format.records import JSON, text_of
from thence.format.repair import problems
from thence.memory.ancestry import nest_by_ancestry
from thence.memory.readouts import open_loaded, readout_of
from thence.memory.recall import place_of

AT = datetime(2026, 3, 29, 1, 30, 0, 250_000, tzinfo=UTC)
NEW = "01a00000-0000-7000-8000-00000000000b"
WRITTEN = [name for name in targets() if writer_of(name).accept is None]
"""Agents that find a session where it is written; other clients take it in (tests/e2e)."""


def story() -> Script:
    """A prompt, calls that are known and unknown, a discarded branch, an open call."""
    script = Script()
    script.user("What is here?")
    script.reply([{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}], id="m1", stop=None)
    script.call("t1", "Bash", command="ls")
    script.result("t1", "calc.py")
    script.call("t2", "Glob", pattern="*.py")
    base = script.result("t2", "calc.py as well")
    script.say("One file.")
    script.user("Try the wrong way.")
    script.say("It was wrong.")
    script.user("Now the right way.", parentUuid=base)
    script.call("t3", "Bash", command="sleep 9")
    return script


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedSession:
    """The story, as it is read."""
    folder = write(tmp_path / "source", story())
    return load(next(folder.glob("*.jsonl")))


def handed(loaded: LoadedSession, to: str, root: Path, **more: Any) -> Handoff:
    """Hand it over."""
    opened = open_loaded(loaded)
    made = plan(opened, to, root=root, session=NEW, at=AT, here="/home/dev/project", **more)
    carry_out(made)
    return made


def read_back(made: Handoff) -> list[JSON]:
    """Return the messages of what was written, as our own reader of that agent sees it."""
    path = next(path for path in made.report.files if "summary" not in path)
    return readout_of(load(Path(path)).graph).messages().messages


def words(messages: list[JSON]) -> list[str]:
    """Return all texts and calls in order, results beside."""
    return [
        block.get("text") or block.get("id") or text_of(block.get("content"))
        for message in messages
        for block in message["content"]
    ]


@pytest.mark.parametrize("to", WRITTEN)
def test_what_is_written_reads_back_as_what_was_handed(
    loaded: LoadedSession, to: str, tmp_path: Path
) -> None:
    """Our reader of the other agent finds every word, every call answered, in order."""
    made = handed(loaded, to, tmp_path / to)
    messages = read_back(made)
    texts = words(messages)

    assert [] == problems(messages)
    order = ["What is here?", "t1", "calc.py", "Now the right way.", "t3"]
    assert order == [text for text in texts if text in order]
    assert not any("wrong" in text for text in texts)
    assert any("no result yet" in text for text in texts)
    assert made.report.messages == len(messages)


@pytest.mark.parametrize("to", WRITTEN)
def test_the_report_says_what_became_of_everything(
    loaded: LoadedSession, to: str, tmp_path: Path
) -> None:
    """Calls by what became of them, thoughts, answers that were made up, what never goes along."""
    report = handed(loaded, to, tmp_path / to).report
    shell = agents()[to].profile.forms["shell"].tool
    marks = {} if writer_of(to).takes_failures else {"mark of a failed result": 1}

    assert 3 == report.calls
    assert ["t3"] == report.answered
    if to == "claude":
        assert ({"Bash": 2, "Glob": 1}, {}, {}) == (report.unchanged, report.mapped, report.as_text)
        assert {} == report.left
    else:
        same = shell == "Bash"
        unchanged, mapped = ({"Bash": 2}, {}) if same else ({}, {f"Bash → {shell}": 2})
        assert (unchanged, mapped, {"Glob": 1}) == (report.unchanged, report.mapped, report.as_text)
        assert {"thinking": 1} | marks == report.left
    assert any("permissions" in text for text in report.not_handed)
    assert ("claude", to, NEW, "/home/dev/project") == (
        report.agent,
        report.to,
        report.session,
        report.cwd,
    )


@pytest.mark.parametrize("to", WRITTEN)
def test_provenance_is_written_and_no_permission(
    loaded: LoadedSession, to: str, tmp_path: Path
) -> None:
    """The files say what they come from; no record speaks of what was allowed."""
    made = handed(loaded, to, tmp_path / to)
    body = b"".join(made.files.values()).decode()

    assert f'"from": "{loaded.graph.uid}"' in body
    for word in ("permission", "approval", "sandbox", "allowedTools", "turn_context", "yolo"):
        assert word not in body


@pytest.mark.parametrize("to", WRITTEN)
def test_files_are_new_whole_and_the_owners_alone(
    loaded: LoadedSession, to: str, tmp_path: Path
) -> None:
    """Mode 0600 in folders of 0700, nothing half-written beside them, nothing ever replaced."""
    before = Path(loaded.source.path).read_bytes()
    made = handed(loaded, to, tmp_path / to)
    paths = [path for path in (tmp_path / to).rglob("*") if path.is_file()]

    assert sorted(made.report.files) == sorted(map(str, paths))
    assert {0o600} == {path.stat().st_mode & 0o777 for path in paths}
    assert {0o700} == {
        path.stat().st_mode & 0o777 for path in (tmp_path / to).rglob("*") if path.is_dir()
    }
    contents = {path: path.read_bytes() for path in paths}
    with pytest.raises(Conflict):
        carry_out(made)
    assert contents == {
        path: path.read_bytes() for path in (tmp_path / to).rglob("*") if path.is_file()
    }
    assert before == Path(loaded.source.path).read_bytes()


@pytest.mark.few(3)
@pytest.mark.parametrize("to", WRITTEN)
def test_a_disk_that_fails_leaves_nothing(
    loaded: LoadedSession, to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At whichever step: either the whole session stands there afterwards, or no file at all."""
    sync, steps = os.fsync, 0

    def full(handle: int) -> None:
        nonlocal steps
        steps += 1
        if steps == last:
            raise OSError(28, "No space left on device")
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    seen = set()
    for last in range(1, 20):
        root, steps = tmp_path / f"{to}{last}", 0
        try:
            made = handed(loaded, to, root)
        except NotAppendable:
            made = plan(
                open_loaded(loaded), to, root=root, session=NEW, at=AT, here="/home/dev/project"
            )
        left = {str(path) for path in root.rglob("*") if path.is_file()}
        seen.add(len(left))
        assert left in (set(), set(made.files)), last

    assert {0, len(made.files)} == seen


def test_an_earlier_event_ends_the_history(loaded: LoadedSession, tmp_path: Path) -> None:
    """What came after it is not handed over; its call is answered as it was then."""
    session = readout_of(loaded.graph)
    end = end_of(session, place_of(session, "r3"))
    made = handed(loaded, "claude", tmp_path / "c", event=end)

    assert ["What is here?", "t1", "calc.py"] == [word for word in words(read_back(made)) if word]
    assert "r3" == made.report.event


def test_a_branch_is_handed_over_to_its_end(loaded: LoadedSession, tmp_path: Path) -> None:
    """Any event of a discarded branch names all of it."""
    session = readout_of(loaded.graph)
    end = end_of(session, place_of(session, "r8"), branch=True)
    made = handed(loaded, "codex", tmp_path / "c", event=end)
    texts = words(read_back(made))

    assert "It was wrong." == texts[-1]
    assert "Now the right way." not in texts


def test_a_subagents_event_is_refused(tmp_path: Path) -> None:
    """Its history is no session."""
    script = story()
    script.user("Look.", isSidechain=True, uuid="s1", parentUuid=None)
    folder = write(tmp_path / "claude", script)
    session = readout_of(load(next(folder.glob("*.jsonl"))).graph)

    with pytest.raises(BadConfig, match="subagent"):
        end_of(session, place_of(session, "s1"))


def test_nothing_said_is_nothing_to_hand_over(tmp_path: Path) -> None:
    """It is an error, not an empty session."""
    script = Script()
    script.note("custom-title", customTitle="empty")
    folder = write(tmp_path / "claude", script)

    with pytest.raises(SessionNotFound):
        handed(load(next(folder.glob("*.jsonl"))), "codex", tmp_path / "c")


def test_a_folder_that_is_gone_is_replaced_by_where_we_are(
    loaded: LoadedSession, tmp_path: Path
) -> None:
    """And that is said; one that is there is used, without its links."""
    made = plan(open_loaded(loaded), "codex", root=tmp_path, session=NEW, at=AT, here="/here")

    assert "/here" == made.report.cwd
    assert any("/home/dev/project" in note for note in made.report.notes)
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    folder = write(tmp_path / "there", _in(str(link)))
    there = load(next(folder.glob("*.jsonl")))
    made = plan(open_loaded(there), "codex", root=tmp_path, session=NEW, at=AT, here="/here")
    assert (os.path.realpath(real), []) == (made.report.cwd, made.report.notes)


def _in(cwd: str) -> Script:
    script = Script(cwd=cwd)
    script.user("Hello.")
    script.say("Hello.")
    return script


@pytest.mark.parametrize("to", WRITTEN)
def test_a_session_at_rest_is_at_rest_and_owes_nothing(to: str, tmp_path: Path) -> None:
    """Kept later, it is nobody's running session, and its bill stays with the one it is of."""
    folder = write(tmp_path / "source", _in("/home/dev/project"))
    made = handed(load(next(folder.glob("*.jsonl"))), to, tmp_path / to)
    path = next(path for path in made.report.files if "summary" not in path)
    session = load(Path(path)).graph

    assert "done" == session.turn().state
    assert [] == session.unbilled
    assert 0 == sum(usage.total for usage in session.bills.values())


def test_no_folder_of_a_log_leads_out(tmp_path: Path) -> None:
    """A session says it was in `..`: what is written stays in the agent's folder."""
    folder = write(tmp_path / "claude", _in("../../../etc"))
    odd = load(next(folder.glob("*.jsonl")))
    for to in WRITTEN:
        made = handed(odd, to, tmp_path / to)
        for path in made.report.files:
            assert Path(os.path.normpath(path)).is_relative_to(tmp_path / to)


def test_codex_gets_its_own_kinds_of_calls(tmp_path: Path) -> None:
    """Patches stay texts, calls of servers have a namespace, images are data URLs."""
    folder = tmp_path / "codex" / "sessions" / "2026" / "01" / "01"
    folder.mkdir(parents=True)
    thread = "01a00000-0000-7000-8000-00000000000a"
    patch = {"type": "custom_tool_call", "name": "apply_patch", "call_id": "p1", "input": "*** x"}
    done = {"type": "custom_tool_call_output", "call_id": "p1", "output": "ok"}
    lines = [
        rollouts.meta(thread, cwd="/x"),
        rollouts.user("Patch it"),
        {"timestamp": "2026-01-01T00:00:00Z", "type": "response_item", "payload": patch},
        {"timestamp": "2026-01-01T00:00:00Z", "type": "response_item", "payload": done},
        rollouts.assistant("Patched."),
    ]
    path = folder / f"rollout-2026-01-01T00-00-00-{thread}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = handed(load(path), "codex", tmp_path / "new")
    items = [
        line["payload"]
        for line in map(json.loads, next(iter(made.files.values())).splitlines())
        if line["type"] == "response_item"
    ]

    assert patch in items
    assert done in items
    assert {"apply_patch": 1} == made.report.unchanged


LONG = "/home/dev/" + "x" * 230


@pytest.mark.parametrize(
    ("cwd", "name"),
    [
        ("/home/dev/project", "-home-dev-project"),
        ("/a.b c_d", "-a-b-c-d"),
        ("/é/日/😀", "-------"),
        (LONG, "-home-dev-" + "x" * 190 + "-luj6u3"),  # seen in the real client's folder
    ],
)
def test_projects_of_claude_are_named_as_the_client_names_them(cwd: str, name: str) -> None:
    """Each unit of UTF-16 that is no letter or digit is a dash; long ones end in a hash."""
    assert name == folder_name(cwd)


@pytest.mark.parametrize(
    ("settings", "provider"),
    [
        (None, "openai"),
        ('model = "m"\n', "openai"),
        ('model_provider = "mine"\n', "mine"),
        ('\ufeffmodel_provider = "mine"\n', "mine"),
        ('model_provider = "mine"\nprofile = "p"\n[profiles.p]\nmodel_provider = "its"\n', "its"),
        ('model_provider = "mine"\nprofile = "p"\n[profiles.p]\nmodel = "m"\n', "mine"),
        ('model_provider = "mine"\nprofile = "gone"\n', "mine"),
        ("model_provider = 3\nprofile = 4\nprofiles = 5\n", "openai"),
        ("model_provider = ", "openai"),
    ],
)
def test_codex_is_given_the_model_provider_of_its_settings(
    loaded: LoadedSession, settings: str | None, provider: str, tmp_path: Path
) -> None:
    """Its database takes the provider from the session, and resumes none without one."""
    root = tmp_path / "codex"
    root.mkdir()
    if settings is not None:
        (root / "config.toml").write_text(settings)
    made = handed(loaded, "codex", root)
    first = json.loads(next(iter(made.files.values())).splitlines()[0])

    assert provider == first["payload"]["model_provider"]


def test_grok_is_told_the_model_of_its_settings(tmp_path: Path) -> None:
    """Without one in the settings, or with settings that are none, the client takes its own."""
    assert usual_model(tmp_path) is None
    for body, expected in (
        ('[models]\ndefault = "mine"\n', "mine"),
        ("[models]\ndefault = 3\n", None),
        ('models = "x"\n', None),
        ("[models", None),
    ):
        (tmp_path / "config.toml").write_text(body)
        assert expected == usual_model(tmp_path)


# -- counted once ---------------------------------------------------------------------------


def goes_on(made: Handoff, to: str) -> str:
    """Write what the other agent's client adds when it goes on; its words."""
    path = Path(next(path for path in made.report.files if "summary" not in path))
    if to == "grok":
        path = path.with_name("updates.jsonl")
        card = path.with_name("summary.json")  # the client writes it anew, in its own words
        summary = json.loads(card.read_text())
        card.write_text(json.dumps({k: v for k, v in summary.items() if k != "thence_handoff"}))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    text = "And now mend it."
    if to == "claude":
        new = {name: value for name, value in rows[-1].items() if name != "forkedFrom"}
        new |= {"type": "user", "uuid": "own-1", "parentUuid": rows[-1]["uuid"]}
        new["message"] = {"role": "user", "content": text}
    elif to == "codex":
        item = {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": text}],
        }
        new = {"timestamp": "2026-03-29T02:00:00.000Z", "type": "response_item", "payload": item}
    elif to == "pi":
        message = {"role": "user", "content": [{"type": "text", "text": text}]}
        new = {"type": "message", "id": "abcd0001", "parentId": rows[-1]["id"]}
        new |= {"timestamp": "2026-03-29T02:00:00.000Z", "message": message}
    elif to == "copilot":
        new = {"type": "user.message", "data": {"content": text}, "id": "own-1"}
        new |= {"timestamp": "2026-03-29T02:00:00.000Z", "parentId": rows[-1]["id"]}
    elif to == "qwen":
        new = {name: value for name, value in rows[-1].items() if name != "forkedFrom"}
        new |= {"type": "user", "uuid": "own-1", "parentUuid": rows[-1]["uuid"]}
        new |= {"message": {"role": "user", "parts": [{"text": text}]}, "provenance": "real_user"}
    elif to == "gemini":
        new = {"id": "own-1", "timestamp": "2026-03-29T02:00:00.000Z", "type": "user"}
        new["content"] = [{"text": text}]
    elif to == "kimi":
        new = {"type": "turn.prompt", "agentId": "main", "input": [{"type": "text", "text": text}]}
        new |= {"origin": {"kind": "user"}, "promptId": "msg_own", "time": 1_774_749_600_000}
    else:
        update = {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": text}}
        event = {"eventId": f"{NEW}-99", "agentTimestampMs": 1_774_749_600_000}
        params = {"sessionId": NEW, "update": update, "_meta": event}
        new = {"timestamp": 1_774_749_600, "method": "session/update", "params": params}
    with path.open("a") as file:
        file.write(json.dumps(new) + "\n")
    return text


@pytest.mark.parametrize("to", WRITTEN)
def test_what_was_handed_over_counts_where_it_was_said(
    loaded: LoadedSession, to: str, tmp_path: Path
) -> None:
    """Copies are replayed, what comes after them is live; the tie names session and event."""
    made = handed(loaded, to, tmp_path / to)
    text = goes_on(made, to)
    session = load(Path(next(path for path in made.report.files if "summary" not in path))).graph
    live = [event for event in session.events if event.state is State.LIVE]
    (edge,) = session.edges

    assert [text] == [event.summary for event in live]
    assert [] == session.calls
    assert {State.LIVE, State.REPLAYED} >= set(session.states) - {State.INTERNAL}
    assert ("adopt", loaded.graph.uid, "r11", HANDED) == (
        edge.link,
        edge.uid(to),
        edge.event,
        edge.how,
    )
    assert text in words(readout_of(session).messages().messages)
    assert "What is here?" in words(readout_of(session).messages().messages)


@pytest.mark.few(3)
@pytest.mark.parametrize("to", WRITTEN)
def test_a_sweep_of_both_finds_each_thing_once(
    loaded: LoadedSession, to: str, tmp_path: Path
) -> None:
    """No word, no call, no money twice, and the new session stands below the one it came from."""
    home = Path(loaded.source.path).parents[2]
    goes_on(handed(loaded, to, tmp_path / to), to)
    sweep(tmp_path, {"claude": [home]})
    with closing(opened(tmp_path)) as store:
        (alone,) = store.sessions()
    sweep(tmp_path, {"claude": [home, tmp_path / to], to: [tmp_path / to]})
    with closing(opened(tmp_path)) as store:
        rows = list(store.sessions())

    assert [loaded.graph.uid, f"{to}:{NEW}"] == [
        row.session.session_uid for row, _ in nest_by_ancestry(rows)
    ]
    assert [0, 1] == [depth for _, depth in nest_by_ancestry(rows)]
    old, new = (row for row, _ in nest_by_ancestry(rows))
    assert (alone.spent, alone.ticks, alone.states) == (old.spent, old.ticks, old.states)
    assert (0, 1) == (new.spent.responses, new.states["live"])
    assert 0 == sum(new.ticks.values())
