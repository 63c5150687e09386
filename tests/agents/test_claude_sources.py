"""Which files make up a session of Claude Code, in every layout it ever had."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agents.transcripts import (
    PROJECT,
    A,
    B,
    Script,
    read,
    sent_lines,
    sources,
    text,
    usage,
    write,
)
from thence.agents import Source
from thence.agents.claude.reader import Claude
from thence.agents.claude.sources import HEAD_BYTES, is_claudes
from thence.format.turn import TurnState


def keys(source: Source | None) -> list[tuple[str, str]]:
    """The files of a session: names and channels."""
    return [(file.key, file.channel) for file in source.files] if source else []


def talk(session: str = A, **frame: object) -> Script:
    """A session of one exchange."""
    log = Script(session, **frame)  # type: ignore[arg-type]
    log.user("Go.")
    log.say("Done.")
    return log


def side(agent: str, session: str = A) -> Script:
    """A subagent's own log."""
    return talk(session, name=agent, isSidechain=True, agentId=agent)


def test_sessions_lie_in_the_folders_of_their_projects(tmp_path: Path) -> None:
    """L1, L2: the name of a folder says nothing; where the work was done is in the records."""
    write(tmp_path, talk(A))
    write(tmp_path, talk(B, cwd="/a.b c_d"), project="-a-b-c-d")

    assert {A, B} == set(sources(tmp_path))
    assert "/a.b c_d" == read(tmp_path, B).graph.about["cwd"]


def test_a_folder_of_projects_can_be_the_root(tmp_path: Path) -> None:
    """L1: so other people's collections are read."""
    write(tmp_path, talk())

    assert [A] == [source.session for source in Claude().find(tmp_path / "projects")]


def test_the_desktop_apps_projects_lie_deep(tmp_path: Path) -> None:
    """L3: some folders down, each with projects of its own."""
    write(tmp_path / "x" / "y" / "z", talk(A))
    write(tmp_path / "x" / "w", talk(B))

    assert {A, B} == set(sources(tmp_path))


def test_a_session_has_files_beside_its_transcript(tmp_path: Path) -> None:
    """L4, S3, S4, S6: subagents, nested ones too, workflows, and what is told of them."""
    folder = write(tmp_path, talk()) / A
    run = folder / "subagents" / "workflows" / "run1"
    run.mkdir(parents=True)
    (folder / "workflows").mkdir()
    (folder / "subagents" / "agent-a1.jsonl").write_bytes(side("a1").data)
    (folder / "subagents" / "agent-a1.meta.json").write_text(
        json.dumps({"agentType": "Explore", "toolUseId": "t1", "parentAgentId": "a0"})
    )
    (run / "agent-a2.jsonl").write_bytes(side("a2").data)
    (run / "journal.jsonl").write_text('{"type":"started","key":"k","agentId":"a2"}\n')
    (folder / "workflows" / "run1.json").write_text('{"name":"review","agentCount":1}')
    (folder / "custom-title.json").write_text('{"customTitle":"Mine"}')
    session = read(tmp_path)

    assert [
        ("main", "main"),
        ("side/a1", "agent:a1"),
        ("side/a1.meta", "main"),
        ("side/run1/a2", "agent:a2"),
        ("title", "main"),
        ("workflow/run1.json", "main"),
        ("workflow/run1/journal", "workflow:run1"),
    ] == keys(session.source)
    about = session.graph.about
    assert ("t1", "Explore", "a0") == tuple(about[f"agent:a1{n}"] for n in ("", ":type", ":parent"))
    assert ({"name": "review", "agentCount": 1}, "Mine") == (
        about["workflow:run1"],
        about["title:custom"],
    )
    assert ["u Go.", "a Done."] == sent_lines(session.graph)


def test_subagents_of_the_older_kind_lie_beside_the_sessions(tmp_path: Path) -> None:
    """L4, S1: they belong to the session that their records name."""
    folder = write(tmp_path, talk(A), talk(B))
    for agent, session in (("a1", A), ("b1", B), ("a2", A)):
        (folder / f"agent-{agent}.jsonl").write_bytes(side(agent, session).data)

    assert [("main", "main"), ("side/a1", "agent:a1"), ("side/a2", "agent:a2")] == (
        keys(sources(tmp_path)[A])
    )
    for path in (folder / f"{A}.jsonl", folder / "agent-a2.jsonl"):
        assert keys(sources(tmp_path)[A]) == keys(Claude().at(path))


def test_a_subagent_without_its_session_still_belongs_to_it(tmp_path: Path) -> None:
    """S8: in both layouts, when the session's own file is gone or not there yet."""
    folder = write(tmp_path)
    (folder / "agent-a1.jsonl").write_bytes(side("a1", A).data)
    (folder / B / "subagents").mkdir(parents=True)
    (folder / B / "subagents" / "agent-b1.jsonl").write_bytes(side("b1", B).data)

    assert {A, B} == set(sources(tmp_path))
    assert (A, B) == tuple(
        (Claude().at(path) or Source("", "", ())).session
        for path in (folder / "agent-a1.jsonl", folder / B / "subagents" / "agent-b1.jsonl")
    )


def test_warm_up_agents_are_noise(tmp_path: Path) -> None:
    """T5: kept, and marked as nobody's."""
    folder = write(tmp_path, talk())
    warm = Script(name="w", isSidechain=True, agentId="a1")
    warm.user("Warmup")
    warm.reply([text("I'm ready.")], usage=usage(3))
    (folder / "agent-a1.jsonl").write_bytes(warm.data)
    session = read(tmp_path).graph

    assert "warmup" == session.about["agent:a1:automated"]
    assert "Go." == session.title


def test_a_session_in_two_projects_is_one(tmp_path: Path) -> None:
    """R11: a copy, or one that went on elsewhere; what both hold counts once."""
    log = talk()
    log.reply([text("Bill.")], usage=usage(5))
    write(tmp_path, log)
    log.user("More.")
    write(tmp_path, log, project="-other")
    session = read(tmp_path)

    assert [("main", "main"), ("main@-other", "main")] == keys(session.source)
    assert ["u Go.", "a Done.", "a Bill.", "u More."] == sent_lines(session.graph)
    assert (15, 4) == (session.graph.spent.own, len(session.graph.events))


@pytest.mark.parametrize("linked", ["file", "folder"])
def test_links_are_not_followed(tmp_path: Path, linked: str) -> None:
    """R11, R15: neither to a transcript nor to a project."""
    elsewhere = write(tmp_path / "elsewhere", talk())
    home = write(tmp_path / "home", talk(B))
    if linked == "file":
        (home / f"{A}.jsonl").symlink_to(elsewhere / f"{A}.jsonl")
    else:
        (home.parent / "linked").symlink_to(elsewhere)

    assert {B} == set(sources(tmp_path / "home"))
    assert linked == "folder" or Claude().at(home / f"{A}.jsonl") is None


def test_empty_files_are_empty_sessions(tmp_path: Path) -> None:
    """R12: 0 bytes, or nothing but a title for another session."""
    folder = write(tmp_path)
    (folder / f"{A}.jsonl").touch()
    (folder / f"{B}.jsonl").write_text('{"type":"summary","summary":"x","leafUuid":"y"}\n')

    assert (0, 0) == (len(read(tmp_path).graph.facts), len(read(tmp_path).skipped))
    assert TurnState.DONE == read(tmp_path, B).graph.turn().state
    for name in (A, B):
        assert name == (Claude().at(folder / f"{name}.jsonl") or Source("", "", ())).session


def test_a_transcript_is_known_wherever_it_lies(tmp_path: Path) -> None:
    """L7: by its first records; a name that is no session's gives way to what they say."""
    path = tmp_path / "copy of it.jsonl"
    path.write_bytes(b"\xef\xbb\xbfgarbage\n\n" + talk().data)
    named = tmp_path / f"{B}.jsonl"
    named.write_bytes(talk().data)

    assert A == (Claude().at(path) or Source("", "", ())).session
    assert B == (Claude().at(named) or Source("", "", ())).session


def test_a_first_line_longer_than_the_head_is_known() -> None:
    """R5: a prompt of any length."""
    log = Script()
    log.user("x" * 2 * HEAD_BYTES)

    assert is_claudes(log.data[:HEAD_BYTES])


@pytest.mark.parametrize(
    "line",
    ['{"timestamp":"x","type":"session_meta","payload":{"id":"a"}}',
     '{"type":"user","ts":"x","uuid":"a","prev_uuid":null,"payload":{}}',
     '{"timestamp":1,"method":"session/update","params":{"sessionId":"a"}}',
     '{"uuid":"a","parentUuid":null,"sessionId":"s","type":"user","message":{"parts":[]}}',
     '{"type":"user","content":"x"}', '{"display":"x","sessionId":"a"}', "", "no json", "[1]"],
)  # fmt: skip
def test_other_agents_logs_are_not_claimed(tmp_path: Path, line: str) -> None:
    """L1: Codex, our own, Grok, Qwen, and what could be anybody's."""
    path = tmp_path / "log.jsonl"
    path.write_text(line + "\n")

    assert Claude().at(path) is None
    assert Claude().at(tmp_path) is None


def test_names_from_records_lead_nowhere(tmp_path: Path) -> None:
    """R15: a session id is a name, never a path."""
    folder = write(tmp_path)
    hostile = side("a1", f"../../../elsewhere/{A}")
    (folder / "agent-a1.jsonl").write_bytes(hostile.data)
    elsewhere = tmp_path.parent / "elsewhere"
    source = Claude().at(folder / "agent-a1.jsonl")

    assert source is not None
    assert [str(folder / "agent-a1.jsonl")] == [file.path for file in source.files]
    assert not elsewhere.exists()


def test_the_folder_of_a_session_is_the_session(tmp_path: Path) -> None:
    """L4: also a file inside it; a project's folder is none."""
    folder = write(tmp_path, talk())
    agents = folder / A / "subagents"
    agents.mkdir(parents=True)
    (agents / "agent-a1.jsonl").write_bytes(side("a1").data)
    (agents / "agent-a1.meta.json").write_text("{}")
    expected = keys(sources(tmp_path)[A])

    for path in (folder / A, agents / "agent-a1.jsonl", agents / "agent-a1.meta.json"):
        assert expected == keys(Claude().at(path))
    assert Claude().at(tmp_path / "projects" / PROJECT) is None
