"""Grok's sessions found, named and described; what is not the client's own is left alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.agents.groks import FIRST, SECOND, THIRD, Folder
from thence.agents import AgentPrompt, Live
from thence.agents.grok.reader import Grok, side_file
from thence.agents.sessions import load
from thence.format.facts import Block


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A session of one turn."""
    made = Folder(tmp_path / ".grok")
    made.turn("dig", 0)
    return made


def session_ids(home: Path) -> list[str]:
    """The sessions below a home."""
    return [source.session for source in Grok().find(home)]


# -- finding ----------------------------------------------------------------------------------


def test_homes_are_told_by_the_environment_or_are_usual(tmp_path: Path) -> None:
    """G1: `$GROK_HOME` is looked at as well as `~/.grok`, each once."""
    usual = tmp_path / ".grok"

    assert [Path("/g"), usual] == Grok().roots(tmp_path, {"GROK_HOME": "/g"})
    assert [usual] == Grok().roots(tmp_path, {"GROK_HOME": str(usual)})
    assert [usual] == Grok().roots(tmp_path, {})


def test_sessions_are_found_by_project(tmp_path: Path) -> None:
    """G1: `sessions/<encoded cwd>/<id>/`, and the folder `sessions` by itself."""
    for session, group in ((SECOND, "b"), (FIRST, "a"), (THIRD, "a")):
        Folder(tmp_path, session, group).turn("x", 0)

    assert [FIRST, THIRD, SECOND] == session_ids(tmp_path) == session_ids(tmp_path / "sessions")
    assert [] == session_ids(tmp_path / "sessions" / "a")


def test_other_tools_in_the_same_home_are_not_claimed(tmp_path: Path) -> None:
    """G12: what does not have the client's layout is somebody else's."""
    (tmp_path / "grok.db").write_bytes(b"SQLite format 3\0")
    (tmp_path / "user-settings.json").write_text("{}")
    for name in ("sessions/project/notes", f"sessions/project/{FIRST}", "sessions/a/b"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "sessions/a/b/chat_history.jsonl").write_text("{}\n")
    (tmp_path / "sessions/session_search.sqlite").write_bytes(b"")

    assert [] == session_ids(tmp_path)
    assert [] == [p for p in tmp_path.rglob("*") if Grok().at(p)]


def test_empty_sessions_are_sessions(tmp_path: Path) -> None:
    """R12: an empty log, and an entry in the list without any."""
    Folder(tmp_path, FIRST).write("updates.jsonl", "")
    Folder(tmp_path, SECOND).summary()

    assert [FIRST, SECOND] == session_ids(tmp_path)
    assert [[], []] == [load(s.path, {"grok": Grok()}).graph.events for s in folders(tmp_path)]


def folders(home: Path) -> list[Folder]:
    """The sessions of a home as folders."""
    return [Folder(home, session) for session in (FIRST, SECOND)]


def test_links_are_not_followed(folder: Folder, tmp_path: Path) -> None:
    """R11: a link to a project, a session or a log is no second session."""
    sessions = folder.path.parent.parent
    (sessions / "linked").symlink_to(folder.path.parent)
    (folder.path.parent / SECOND).symlink_to(folder.path)
    other = Folder(folder.home, THIRD)
    (other.path / "updates.jsonl").symlink_to(folder.path / "updates.jsonl")

    assert [FIRST] == session_ids(folder.home)
    assert Grok().at(folder.path.parent / SECOND) is None


@pytest.mark.parametrize(
    "name", ["", "updates.jsonl", "terminal/c1.log", f"subagents/{SECOND}/meta.json"]
)
def test_any_file_of_a_session_leads_to_it(folder: Folder, name: str) -> None:
    """G1: the folder itself, its log, and what lies deeper."""
    path = folder.path / name
    if name and not path.exists():
        folder.write(name, "{}")
    source = Grok().at(path)

    assert source is not None
    assert (FIRST, str(folder.home)) == (source.session, source.root)


def test_a_folder_of_another_name_is_known_by_its_entry(tmp_path: Path) -> None:
    """R11: a session that was put elsewhere keeps its id."""
    folder = Folder(tmp_path, "kept")
    folder.write("chat_history.jsonl", "")
    folder.write("summary.json", {"info": {"id": SECOND}})

    source = Grok().at(folder.path)
    assert source is not None
    assert SECOND == source.session


def test_a_broken_summary_costs_its_own_words_only(folder: Folder) -> None:
    """R4: the session is read, and the document is told as skipped."""
    folder.write("summary.json", '{"info": ')
    loaded = folder.load()

    assert 3 == len(loaded.graph.events)
    assert ["summary.json"] == [Path(skipped.source).name for skipped in loaded.skipped]


def test_files_keep_their_order(folder: Folder) -> None:
    """G1: the log comes first, whatever else there is."""
    folder.summary()
    folder.event("turn_started")
    folder.chat(type="system", content="x")
    keys = [file.key for file in folder.source.files]

    assert (["1-log", "2-events", "4-chat", "5-summary"], sorted(keys)) == (keys, keys)


# -- what the documents tell ------------------------------------------------------------------


def test_the_summary_tells_place_model_and_title(folder: Folder) -> None:
    """G1: where it ran is told by the entry, never by the folder's name."""
    folder.summary(
        generated_title="Pools", session_summary="first words", head_branch="main", agent_name="x"
    )
    session = folder.graph.session()

    assert ("/work/tidepool", "main", "grok-x", "Pools") == (
        session.cwd,
        session.git_branch,
        session.model,
        folder.graph.title,
    )


def test_a_title_given_by_hand_is_the_title(folder: Folder) -> None:
    """R8: the last document counts, a given name before a made-up one."""
    folder.summary(generated_title="Mine", title_is_manual=True)

    assert ("Mine", "Mine") == (folder.graph.title, folder.graph.about["title:custom"])


@pytest.mark.parametrize(
    ("kind", "link"), [("headless", "fork"), ("fork", "fork"), ("subagent_fork", "fork"),
                       ("subagent", "subagent")]
)  # fmt: skip
def test_a_parent_in_the_summary_is_a_tie(folder: Folder, kind: str, link: str) -> None:
    """G8: forks name their parent, whatever their kind; subagents in some versions."""
    folder.summary(parent_session_id=SECOND, session_kind=kind, num_messages=99)

    assert [(link, SECOND, False)] == [(e.link, e.session, e.child) for e in folder.graph.edges]
    assert kind == folder.graph.about["kind"]


def test_a_session_without_a_human_is_automated(folder: Folder) -> None:
    """G10: the client says so itself."""
    folder.write("prompt_context.json", {"is_non_interactive": True})

    assert folder.graph.about["automated"] is True


def test_the_clients_own_totals_are_told_and_never_added(folder: Folder) -> None:
    """G7: its usage file counts what others pay; the bills of the log count."""
    folder.write("usage.json", {"session": {"totalTokens": 9999, "modelCalls": 3}})
    folder.write("signals.json", {"contextTokensUsed": 12, "contextWindowTokens": 200})

    session = folder.graph
    assert 100 == session.spent.own
    assert {"totalTokens": 9999, "modelCalls": 3} == session.about["status:usage"]
    assert 200 == session.about["status:context"]["window"]


def test_children_are_known_from_the_parents_side(folder: Folder) -> None:
    """G8: a subagent names no parent; its parent's folder names it."""
    folder.write(
        f"subagents/{SECOND}/meta.json", {"child_session_id": SECOND, "description": "dig"}
    )

    assert [("subagent", SECOND, True)] == [
        (e.link, e.session, e.child) for e in folder.graph.edges
    ]


# -- whole outputs ----------------------------------------------------------------------------


def test_a_whole_output_is_read_from_the_sessions_own_folder(folder: Folder) -> None:
    """R15: by the call's name."""
    path = folder.write("terminal/c1.log", "0123456789")

    assert str(path) == _output_file(folder, "c1")


@pytest.mark.parametrize("call", ["none", "../../x", "/etc/passwd", "", ".", "a\0b", "linked"])
def test_no_call_leads_out_of_the_folder(folder: Folder, call: str) -> None:
    """R15: neither names nor links."""
    outside = folder.write("../../x.log", "secret")
    (folder.path / "terminal").mkdir()
    (folder.path / "terminal" / "linked.log").symlink_to(outside)

    assert _output_file(folder, call) is None


def _output_file(folder: Folder, call: str) -> str | None:
    block = Block("tool_call", "assistant", "", None, "Bash", call)
    return side_file(folder.source, block, block)


# -- running and history ----------------------------------------------------------------------


def test_only_sessions_whose_process_runs_are_live(tmp_path: Path) -> None:
    """A1: the list outlives a crash; a process that is gone is not running."""
    rows = [
        {"session_id": FIRST, "pid": os.getpid(), "cwd": "/work"},
        {"session_id": SECOND, "pid": 2**31 - 1},
        {"session_id": THIRD},
        {"pid": os.getpid()},
        "junk",
    ]
    (tmp_path / "active_sessions.json").write_text(json.dumps(rows))

    assert [Live(FIRST, os.getpid(), "running", cwd="/work")] == list(Grok().live(tmp_path))


@pytest.mark.parametrize("text", [None, "", "[", "{}", "3"])
def test_no_list_is_no_live_session(tmp_path: Path, text: str | None) -> None:
    """R6: a list that is missing or broken names nobody."""
    if text is not None:
        (tmp_path / "active_sessions.json").write_text(text)

    assert [] == list(Grok().live(tmp_path))


def test_prompts_of_all_projects_come_oldest_first(tmp_path: Path) -> None:
    """G1: the folder's name, or `.cwd` in it, is the project for the eye."""
    for group, when, prompt in (("%2Fwork%2Fa", "2026-02", "later"), ("slug", "2026-01", "first")):
        folder = Folder(tmp_path, FIRST, group)
        row = {"timestamp": when, "session_id": FIRST, "prompt": prompt, "is_bash": False}
        folder.line("../prompt_history.jsonl", row)
        folder.line("../prompt_history.jsonl", "{broken")
    (tmp_path / "sessions" / "slug" / ".cwd").write_text("/work/very/long\n")

    assert [
        AgentPrompt("first", "2026-01", FIRST, "/work/very/long"),
        AgentPrompt("later", "2026-02", FIRST, "/work/a"),
    ] == list(Grok().prompts(tmp_path))


def test_nothing_is_deleted_by_age(tmp_path: Path) -> None:
    """G1: the client keeps its sessions."""
    assert Grok().keeps_days(tmp_path) is None


def test_reading_leaves_no_trace(folder: Folder) -> None:
    """R2: sources are as they were, to the time of their last change."""
    folder.summary()
    before = {p: (p.stat().st_mtime_ns, p.stat().st_mode) for p in folder.home.rglob("*")}
    folder.load()

    assert before == {p: (p.stat().st_mtime_ns, p.stat().st_mode) for p in folder.home.rglob("*")}
