"""Sessions of every agent with a token in every field of every record, one field at a time.

A session is a list of files, a file a list of records (or one document). In variant number n of a
session every record has a token in its nth field: in its place, or behind what stood there, or as
the name of a field. Tokens are all different, and made up.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.agents import groks, rollouts
from tests.agents.transcripts import Script, usage
from tests.secrets import sample
from thence.format.layout import project_id

Files = dict[str, list[Any] | dict[str, Any]]
"""Records of a log, or a document, by the path of the file below the session's folder."""

MODES = ("instead", "behind", "name")


class Garden:
    """Plants tokens, and remembers them."""

    def __init__(self) -> None:
        self.tokens: list[str] = []

    def token(self) -> str:
        """Make up another token."""
        self.tokens.append(sample("ghp" + "_{A36}", len(self.tokens)))
        return self.tokens[-1]

    def plant(self, record: Any, number: int, mode: str) -> Any:
        """Return a record with a token in one of its fields."""
        record = copy.deepcopy(record)
        places = list(_boxes(record) if mode == "name" else _leaves(record))
        if not places:
            return record
        box, key = places[number % len(places)]
        if mode == "name":
            box[self.token()] = self.token()
        elif mode == "behind" and isinstance(box[key], str):
            box[key] = f"{box[key]} {self.token()}"
        else:
            box[key] = self.token()
        return record

    def planted(self, files: Files, number: int, mode: str) -> Files:
        """Return a session with a token in each record; which field differs from one to the next.

        The field of the record at hand is `number` plus its place, so that all fields of all
        records have their turn as `number` grows, and one variant is not all of the same field.
        """
        out: Files = {}
        for name, records in files.items():
            if isinstance(records, dict):
                out[name] = self.plant(records, number, mode)
            else:
                out[name] = [
                    self.plant(record, number + 5 * at, mode) for at, record in enumerate(records)
                ]
        return out


def _leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield where each value that is no box stands."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in list(entries):
        if isinstance(part, dict | list):
            yield from _leaves(part)
        else:
            yield value, key


def _boxes(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the objects in a value."""
    if isinstance(value, dict):
        yield value, None
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, dict | list):
            yield from _boxes(part)


def fields(files: Files) -> int:
    """Count the fields of the record that has most of them."""
    every = [
        record
        for records in files.values()
        for record in ([records] if isinstance(records, dict) else records)
    ]
    return max(len(list(_leaves(record))) for record in every)


# -- one session of each agent ----------------------------------------------------------------


def claude(session: str) -> Files:
    """Return a session of Claude Code with every type of record."""
    s = Script(session, "r")
    s.note("queue-operation", operation="enqueue", content="wait for it", timestamp="2026-01-01")
    s.note("file-history-snapshot", messageId="m1", snapshot={"trackedFileBackups": {"a.py": {}}})
    s.user("Look at the tides.", promptId="p1", permissionMode="default", userType="external")
    s.reply([{"type": "thinking", "thinking": "Hm.", "signature": "sig"}], usage=usage(3))
    s.reply(
        [{"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls a"}}],
        stop="tool_use",
        usage=usage(5),
        request="req1",
    )
    s.result("c1", "a.py", toolUseResult={"stdout": "a.py", "stderr": "", "interrupted": False})
    s.call("c2", "Task", prompt="Count them", description="count", subagent_type="Explore")
    s.note("queue-operation", operation="remove", timestamp="2026-01-01T00:01:00Z")
    s.add("progress", data={"type": "agent_progress", "agentId": "ag1"}, parentToolUseID="c2")
    s.result("c2", [{"type": "text", "text": "two"}], toolUseResult={"agentId": "ag1"})
    s.call("c3", "Edit", file_path="/p/a.py", old_string="x", new_string="y")
    s.result("c3", "no such file", wrong=True, toolUseResult="Error: no such file")
    s.call("c4", "TodoWrite", todos=[{"content": "mend", "status": "pending"}])
    s.result("c4", "ok")
    s.add("attachment", attachment={"type": "queued_command", "prompt": "and then"})
    s.add("attachment", attachment={"type": "file", "filename": "b.py", "content": {"x": "y"}})
    s.add("attachment", attachment={"type": "todo", "content": []})
    s.add("system", subtype="local_command", content="<command-name>/cost</command-name>")
    s.add("system", subtype="api_error", content="overloaded", error={"status": 529})
    s.add("system", subtype="informational", content="note", level="info")
    s.user("side", isSidechain=True, parentUuid=None, agentId="ag2")
    s.reply([{"type": "text", "text": "aside"}], isSidechain=True)
    s.user("old side", isSidechain=True, parentUuid=None)
    s.boundary(compactMetadata={"trigger": "auto", "preTokens": 9})
    s.user("Summary: tides.", isCompactSummary=True)
    s.note("summary", summary="Tides", leafUuid="r3")
    s.note("custom-title", customTitle="Tides again")
    s.note("ai-title", aiTitle="About tides")
    s.note("agent-name", agentName="walrus")
    s.note("mode", mode="plan")
    s.note("last-prompt", lastPrompt="go", leafUuid="r3")
    s.note("cost-state", totalCostUSD=0.5)
    s.note("something-new", payload={"a": ["b", 1]})
    s.user("Fork", forkedFrom={"sessionId": "11111111-0000-4000-8000-000000000001"})
    s.user("Resumed", sessionId="11111111-0000-4000-8000-000000000002", gitBranch="other")
    s.say("Done.", usage=usage(2))
    agent = Script(session, "g", isSidechain=True, agentId="ag1")
    agent.user("Count them")
    agent.say("two", usage=usage(1))
    return {
        f"{session}.jsonl": s.records,
        f"{session}/subagents/agent-ag1.jsonl": agent.records,
        f"{session}/subagents/agent-ag1.meta.json": {"agentType": "Explore", "toolUseId": "c2"},
        f"{session}/custom-title.json": {"customTitle": "By hand"},
    }


def codex(session: str) -> Files:
    """Return a session of Codex with every type of record."""
    r, turn = rollouts, f"turn-{session}"  # a turn is of one session, unless it was copied
    lines = [
        r.meta(
            session,
            git={"branch": "main", "commit_hash": "aa", "repository_url": "u"},
            originator="cli",
            agent_nickname="walrus",
            forked_from_id="01a00000-0000-7000-8000-0000000000ff",
        ),
        r.started(turn),
        r.envelope("turn_context", {"turn_id": turn, "cwd": "/p", "model": "gpt-5"}),
        r.user("Look at the tides"),
        r.event("user_message", message="Look at the tides", images=[]),
        r.item("reasoning", summary=[{"type": "summary_text", "text": "Hm"}], content=None),
        r.event("agent_reasoning", text="Hm"),
        r.call("shell", "k1", command=["bash", "-lc", "ls"]),
        r.event("exec_command_end", call_id="k1", exit_code=0, stdout="a", command=["ls"]),
        r.output("k1", "a.py"),
        r.item("custom_tool_call", name="apply_patch", call_id="k2", input="*** Begin Patch"),
        r.item("custom_tool_call_output", call_id="k2", output="{}"),
        r.item("local_shell_call", call_id="k3", action={"type": "exec", "command": ["ls"]}),
        r.item("web_search_call", id="w1", action={"type": "search", "query": "tides"}),
        r.call("spawn_agent", "k4", message="count"),
        r.output("k4", json.dumps({"agent_id": "01a00000-0000-7000-8000-0000000000fe"})),
        r.call("update_plan", "k5", plan=[{"step": "mend", "status": "pending"}]),
        r.counted(r.tokens(10, 5)),
        r.billed(session, "resp1", r.tokens(10, 5)),
        r.assistant("Fine."),
        r.event("agent_message", message="Fine."),
        r.finished("agent_message", id="i1", text="Fine."),
        r.event("turn_aborted", reason="interrupted"),
        r.envelope("compacted", {"message": "so far", "replacement_history": []}),
        r.event("thread_name_updated", thread_name="Tides"),
        r.event("error", message="overloaded"),
        r.event("something_new", a=["b", {"c": "d"}]),
        r.envelope("something_else", {"a": "b"}),
        r.completed(turn),
    ]
    return {f"rollout-2026-01-01T00-00-00-{session}.jsonl": lines}


def grok(session: str, folder: Path) -> Files:
    """Return a session of Grok with every type of record."""
    g = groks.Folder(folder, session)
    g.summary(session_summary="Tides", parent_session_id="p", head_branch="main")
    g.prompt("Look at the tides", 0)
    g.thought("Hm")
    g.call("k1", command="ls")
    g.result("k1", "a.py")
    g.update("tool_call_update", toolCallId="k9", status="in_progress", title="Run it")
    g.update("plan", entries=[{"content": "mend", "status": "pending"}])
    g.say("Fine.")
    g.done()
    g.update("subagent_spawned", subagent_id="s1", child_session_id="s1", description="count")
    g.update("subagent_finished", subagent_id="s1", status="done")
    g.update("task_completed", task_id="b1", output="x")
    g.update("hook_execution", hook="session_end", name="n")
    g.update("rewind_marker", target_prompt_index=0)
    g.update("compaction_checkpoint", summary="so far")
    g.update("auto_compact_failed", error="no")
    g.update("something_new", a=["b", {"c": "d"}])
    g.prompt("And then?", 1)
    g.done()
    g.chat(type="user", content="hi", model_id="grok-x")
    g.chat(type="assistant", content="ho", tool_calls=[{"id": "k1", "name": "x"}])
    g.event("phase_changed", phase="waiting", tool_call_id="k1")
    g.event("permission_requested", tool_call_id="k1", tool_name="run")
    logs = {path.name: path for path in g.path.iterdir()}
    files: Files = {
        name: [json.loads(line) for line in path.read_text().splitlines()]
        for name, path in logs.items()
        if path.suffix == ".jsonl"
    }
    return {**files, "summary.json": json.loads(logs["summary.json"].read_text())}


def native(session: str, sample_path: Path) -> Files:
    """Return a session of our own journal: the one that ships with thence, but its torn line."""
    text = sample_path.read_text().replace("7f3a91c2-55d0-4c1e-9a53-0d6c1f2b7e10", session)
    return {f"{session}.jsonl": [json.loads(line) for line in text.splitlines()[:-1]]}


# -- on the disk ------------------------------------------------------------------------------


class Planted:
    """Homes of all agents; `write` writes the first lines of every log, or all of them."""

    def __init__(self, user: Path, scratch: Path, sample_path: Path, step: int = 1) -> None:
        """Plant in every `step`th field; 1 for all of them."""
        self.garden = Garden()
        self._user = user
        self._sessions: list[tuple[Path, Files]] = []
        for at, agent in enumerate(("claude", "codex", "grok", "native")):
            first = self._of(agent, _id(at, 0), scratch, sample_path)[1]
            number = 0
            for mode in MODES:
                for field in range(0, fields(first), step):
                    number += 1
                    folder, files = self._of(agent, _id(at, number), scratch, sample_path)
                    self._sessions.append((folder, self.garden.planted(files, field, mode)))

    def _of(self, agent: str, session: str, scratch: Path, sample_path: Path) -> tuple[Path, Files]:
        user = self._user
        if agent == "claude":
            return user / ".claude/projects/-home-dev-project", claude(session)
        if agent == "codex":
            return user / ".codex/sessions/2026/01/01", codex(session)
        if agent == "grok":
            folder = user / ".grok/sessions/%2Fwork%2Ftidepool" / session
            return folder, grok(session, scratch)
        folder = user / ".thence/sessions" / project_id("/home/dev/tidepool")
        return folder, native(session, sample_path)

    def name_after_tokens(self) -> None:
        """Add sessions whose folders and files are named after tokens."""
        user, token = self._user, self.garden.token
        secret = token()
        cwd = f"/home/dev/{secret}/app"
        script = Script(_id(5, 1), "r", cwd=cwd, gitBranch=f"feature/{token()}")
        script.user("Go.")
        script.say("Done.", usage=usage(1))
        dashed = cwd.replace("/", "-").replace("_", "-")
        self.garden.tokens.append(secret.replace("_", "-"))
        self._sessions.append(
            (user / ".claude/projects" / dashed, {f"{script.session}.jsonl": script.records})
        )
        named = groks.Folder(user / ".unused", _id(5, 2))
        named.summary()
        named.turn("Go.", 0)
        log = [json.loads(line) for line in (named.path / "updates.jsonl").read_text().splitlines()]
        document = {"info": {"id": named.session, "cwd": f"/w/{token()}"}}
        self._sessions.append(
            (
                user / f".grok/sessions/%2Fw%2F{token()}" / named.session,
                {"updates.jsonl": log, "summary.json": document},
            )
        )
        ours = token()
        records = [{"type": "user", "ts": "2026-01-01T00:00:00Z", "uuid": "u1", "prev_uuid": None}]
        records[0]["payload"] = {"role": "user", "content": "Go."}  # type: ignore[assignment]
        self._sessions.append(
            (user / ".thence/sessions/app-0123456789ab", {f"{ours}.jsonl": records})
        )

    def write(self, share: float = 1.0) -> None:
        """Write so much of every log, and the documents with the last of it."""
        for folder, files in self._sessions:
            for name, records in files.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                if isinstance(records, dict):
                    if share == 1.0:
                        path.write_text(json.dumps(records))
                    continue
                lines = [
                    json.dumps(record) + "\n" for record in records[: int(len(records) * share)]
                ]
                there = len(path.read_text()) if path.exists() else 0
                if more := "".join(lines)[there:]:  # an agent appends
                    with path.open("a") as log:
                        log.write(more)


def _id(agent: int, number: int) -> str:
    return f"0{agent}a1e000-0000-7000-8000-{number:012x}"
