"""No token twice: what made-up clients were billed, and what a store says, whenever it looks.

Each client answers, copies sessions as its real one does, and writes line by line; between any two
lines a store may look. It never counts more than was billed, and when the client rests it counts
all of it, or says that it is a minimum. The same logs, read by another store one session after the
other in any order, give what the responses in them add up to.
"""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.agents.agents import write_document
from tests.agents.databases import OPENCODE, START_MS, run
from tests.agents.test_opencode import Writer
from tests.memory.stored import KEY, opened
from tests.pace import by_pace
from tests.rules import rules
from thence.agents import adapters
from thence.memory.gate import Gate
from thence.memory.store import SessionRow
from thence.memory.sweep import Sweep

ACTIONS = 12
LOOKS = 0.15
"""How often a store looks between two lines."""

Line = dict[str, Any]


class Talk:
    """One session: its lines, and the responses in them, its own and copied ones."""

    def __init__(self, session: str, path: Path) -> None:
        self.session, self.path = session, path
        self.lines: list[Line] = []
        self.bills: dict[int, int] = {}
        self.took = 0


class Client:
    """An agent at work in a home; each one says how it writes, and how it copies."""

    agent = ""
    home = ""
    is_exact = True
    """Its logs hold all of every bill, whoever reads them in whatever order."""

    def __init__(self, root: Path, chance: random.Random, look: Callable[[], None]) -> None:
        self.root, self.chance, self._look = root / self.home, chance, look
        self.talks: list[Talk] = []
        self.billed: dict[int, int] = {}
        self._clock = 0

    def uuid(self) -> str:
        """An id of its own."""
        return str(UUID(int=self.chance.getrandbits(128), version=4))

    def now(self) -> str:
        """The next moment."""
        self._clock += 1
        minutes, second = divmod(self._clock, 60)
        return f"2026-05-04T{minutes // 60 + 10:02}:{minutes % 60:02}:{second:02}.000Z"

    def _place(self, session: str) -> Path:
        """Where the log of a session lies."""
        raise NotImplementedError

    def _response(self, talk: Talk, number: int, tokens: int) -> Iterable[Line]:
        """What is written of a prompt and its response; ten of its tokens are output."""
        raise NotImplementedError

    def _header(self, _talk: Talk, _parent: Talk | None) -> list[Line]:
        """What a log begins with."""
        return []

    def _copy(self, _talk: Talk, parent: Talk) -> list[Line]:
        """The lines of a parent as its fork has them."""
        return parent.lines

    def begin(self, parent: Talk | None = None) -> Talk:
        """Start a session, or fork one."""
        session = self.uuid()
        talk = Talk(session, self._place(session))
        lines = self._header(talk, parent)
        if parent is not None:
            talk.bills = dict(parent.bills)
            lines = [*lines, *self._copy(talk, parent)]
        self.talks.append(talk)
        for line in lines:
            self._put(talk, line)
        return talk

    def bill(self, talk: Talk) -> tuple[int, int]:
        """Bill one response."""
        number, tokens = len(self.billed), self.chance.randrange(100, 10_000)
        talk.bills[number] = self.billed[number] = tokens
        talk.took += tokens
        return number, tokens

    def answer(self, talk: Talk) -> None:
        """Answer a prompt."""
        for line in self._response(talk, *self.bill(talk)):
            self._put(talk, line)

    def other(self, talk: Talk) -> None:
        """Do what only this client does."""
        self.answer(talk)

    def _put(self, talk: Talk, line: Line, path: Path | None = None) -> None:
        """Write a line, half of it first; somebody may look before and after."""
        if path is None:
            talk.lines.append(line)
        raw = json.dumps(line).encode() + b"\n"
        path = path or talk.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            for piece in (raw[: len(raw) // 2], raw[len(raw) // 2 :]):
                file.write(piece)
                file.flush()
                self.look()

    def look(self) -> None:
        """Let somebody look, now and then."""
        if self.chance.random() < LOOKS:
            self._look()

    def act(self) -> None:
        """Do one thing: most often answer."""
        if not self.talks:
            self.begin()
        talk = self.chance.choice(self.talks)
        choice = self.chance.random()
        if choice < 0.6:
            self.answer(talk)
        elif choice < 0.85:
            self.answer(self.begin(talk))
        else:
            self.other(talk)


class Claude(Client):
    """A fork has the records of its parent under its own session."""

    agent, home = "claude", ".claude"

    def _place(self, session: str) -> Path:
        return self.root / "projects" / "-p" / f"{session}.jsonl"

    def _copy(self, talk: Talk, parent: Talk) -> list[Line]:
        return [{**line, "sessionId": talk.session} for line in parent.lines]

    def _response(self, talk: Talk, number: int, tokens: int) -> Iterator[Line]:
        yield self._record(talk, "user", {"role": "user", "content": f"Go {number}"})
        usage = {"input_tokens": tokens - 10, "output_tokens": 10}
        for text in ("Well.", "Done."):
            content = [{"type": "text", "text": text}]
            message = {"role": "assistant", "content": content, "id": f"msg_{number}"}
            yield self._record(talk, "assistant", {**message, "model": "m", "usage": usage})

    def _record(self, talk: Talk, kind: str, message: Line) -> Line:
        above = talk.lines[-1]["uuid"] if talk.lines else None
        frame = {"type": kind, "uuid": self.uuid(), "parentUuid": above, "timestamp": self.now()}
        return {**frame, "sessionId": talk.session, "cwd": "/p", "message": message}


class Codex(Client):
    """Running totals, which a fork takes over with its parent's lines, under new times."""

    agent, home = "codex", ".codex"

    def _place(self, session: str) -> Path:
        return self.root / "sessions/2026/05/04" / f"rollout-2026-05-04T10-00-00-{session}.jsonl"

    def _header(self, talk: Talk, parent: Talk | None) -> list[Line]:
        talk.took = parent.took if parent else 0
        fork = {"forked_from_id": parent.session} if parent else {}
        meta = {"id": talk.session, "cwd": "/p", "cli_version": "0.130.0", **fork}
        return [self._line("session_meta", meta)]

    def _copy(self, _talk: Talk, parent: Talk) -> list[Line]:
        now = self.now()
        return [{**line, "timestamp": now} for line in parent.lines]

    def _response(self, talk: Talk, number: int, tokens: int) -> Iterator[Line]:
        yield self._line("event_msg", {"type": "task_started", "turn_id": f"t{number}"})
        for role, kind in (("user", "input_text"), ("assistant", "output_text")):
            content = [{"type": kind, "text": f"Go {number}"}]
            yield self._line("response_item", {"type": "message", "role": role, "content": content})
        last, total = self._usage(tokens), self._usage(talk.took)
        info = {"total_token_usage": total, "last_token_usage": last}
        yield self._line("event_msg", {"type": "token_count", "info": info})
        yield self._line("event_msg", {"type": "task_complete", "turn_id": f"t{number}"})

    def _line(self, kind: str, payload: Line) -> Line:
        return {"timestamp": self.now(), "type": kind, "payload": payload}

    def _usage(self, tokens: int) -> Line:
        return {"input_tokens": tokens - 10, "output_tokens": 10, "total_tokens": tokens}


class Kimi(Client):
    """Bills before or behind the end of a step; a fork is a copy with a card; subagents."""

    agent, home = "kimi", ".kimi-code"

    def _place(self, session: str) -> Path:
        return self.root / f"sessions/wd_p_0123456789ab/session_{session}/agents/main/wire.jsonl"

    def _header(self, talk: Talk, parent: Talk | None) -> list[Line]:
        fork = {"forkedFrom": f"session_{parent.session}"} if parent else {}
        card = talk.path.parent.parent.parent / "state.json"
        write_document(card, {"cwd": "/p", "version": 2, **fork})
        return [] if parent else [{"type": "metadata", "protocol_version": "1.4"}]

    def _copy(self, _talk: Talk, parent: Talk) -> list[Line]:
        return [*parent.lines, {"type": "forked"}]

    def _response(self, _talk: Talk, number: int, tokens: int) -> Iterator[Line]:
        prompt = [{"type": "text", "text": f"Go {number}"}]
        yield self._event("turn.prompt", input=prompt, origin={"kind": "user"})
        usage = {"inputOther": tokens - 10, "output": 10}
        step = {"uuid": self.uuid()}
        yield self._loop("step.begin", **step)
        text = {"type": "text", "text": "Done."}
        yield self._loop("content.part", uuid=self.uuid(), part=text)
        end = self._loop("step.end", **step, finishReason="end_turn", usage=usage)
        record = self._event("usage.record", model="m", usage=usage)
        tellings = ([record, end], [end, record], [end], [record])
        yield from self.chance.choice(tellings)

    def other(self, talk: Talk) -> None:
        """Let a subagent answer."""
        side = talk.path.parent.parent / "agent-0" / "wire.jsonl"
        lines = [] if side.exists() else [{"type": "metadata", "protocol_version": "1.4"}]
        for line in (*lines, *self._response(talk, *self.bill(talk))):
            self._put(talk, line, side)

    def _event(self, kind: str, **more: Any) -> Line:
        self.now()
        return {"type": kind, **more, "time": START_MS + self._clock}

    def _loop(self, kind: str, **more: Any) -> Line:
        return self._event("context.append_loop_event", event={"type": kind, **more})


class Droid(Client):
    """A total beside each log; a compaction goes on in another session, with the total so far."""

    agent, home = "droid", ".factory"
    is_exact = False  # what a compaction took over can only be seen while it is new

    def _place(self, session: str) -> Path:
        return self.root / "sessions" / "-p" / f"{session}.jsonl"

    def _header(self, talk: Talk, parent: Talk | None) -> list[Line]:
        tie = (
            {"parent": parent.session, "forkedAtMessageId": parent.lines[-1]["id"]}
            if parent
            else {}
        )
        return [{"type": "session_start", "id": talk.session, "cwd": "/p", **tie}]

    def _copy(self, _talk: Talk, parent: Talk) -> list[Line]:
        return parent.lines[1:]

    def _response(self, talk: Talk, number: int, _tokens: int) -> Iterator[Line]:
        for role in ("user", "assistant"):
            content = [{"type": "text", "text": f"Go {number}"}]
            frame = {"type": "message", "id": self.uuid(), "timestamp": self.now()}
            yield {**frame, "message": {"role": role, "content": content}}
        self._total(talk)

    def other(self, talk: Talk) -> None:
        """Compact: of the two requests it takes, the session before has the first."""
        self.bill(talk)
        self._total(talk)
        session = self.uuid()
        child = Talk(session, self._place(session))
        child.took = talk.took
        self.bill(child)
        self.talks.append(child)
        start = {"type": "session_start", "id": session, "cwd": "/p", "parent": talk.session}
        state = {"type": "compaction_state", "id": self.uuid(), "timestamp": self.now()}
        if is_first := self.chance.random() < 0.5:
            self._total(child)
        for line in (start, {**state, "summaryText": "Done."}):
            self._put(child, line)
        if not is_first:
            self._total(child)

    def _total(self, talk: Talk) -> None:
        usage = {"inputTokens": talk.took - 10, "outputTokens": 10}
        write_document(talk.path.with_suffix(".settings.json"), {"tokenUsage": usage})
        self.look()


class Gemini(Client):
    """A session made from the log of another one begins with its messages; forks are deleted."""

    agent, home = "gemini", ".gemini"

    def _place(self, session: str) -> Path:
        return self.root / "tmp/p/chats" / f"session-2026-05-04T10-00-{session[:8]}.jsonl"

    def _header(self, talk: Talk, parent: Talk | None) -> list[Line]:
        head = {"sessionId": talk.session, "projectHash": "ab", "kind": "main"}
        lines = [{**head, "startTime": self.now()}]
        if parent is not None:
            info = {"id": "import-1", "timestamp": self.now(), "type": "info"}
            lines.append({**info, "content": f"Imported session from {parent.path}"})
        return lines

    def _copy(self, _talk: Talk, parent: Talk) -> list[Line]:
        last = {
            line["id"]: line for line in parent.lines if line.get("id", "import-1") != "import-1"
        }
        return list(last.values())

    def _response(self, _talk: Talk, number: int, tokens: int) -> Iterator[Line]:
        yield self._message("user", [{"text": f"Go {number}"}])
        used = {"input": tokens - 10, "output": 4, "thoughts": 6, "total": tokens}
        answer = {**self._message("gemini", "Well."), "model": "m", "tokens": used}
        yield answer
        output = {"functionResponse": {"id": f"c{number}", "response": {"output": "ok"}}}
        call = {"id": f"c{number}", "name": "list_directory", "args": {}, "status": "success"}
        yield {**answer, "toolCalls": [{**call, "result": [output]}]}

    def other(self, talk: Talk) -> None:
        """Delete a fork, as the next process does; what nobody saw of it nobody can count."""
        self._look()
        if len(self.talks) > 1 and len(talk.lines) > 1 and talk.lines[1].get("id") == "import-1":
            talk.path.unlink()
            self.talks.remove(talk)

    def _message(self, kind: str, content: Any) -> Line:
        return {"id": self.uuid(), "timestamp": self.now(), "type": kind, "content": content}


class Pi(Client):
    """A fork names its parent's log and has its entries."""

    agent, home = "pi", ".pi/agent"

    def _place(self, session: str) -> Path:
        return self.root / "sessions" / "--p--" / f"2026-05-04T10-00-00-000Z_{session}.jsonl"

    def _header(self, talk: Talk, parent: Talk | None) -> list[Line]:
        tie = {"parentSession": str(parent.path)} if parent else {}
        head = {"type": "session", "version": 3, "id": talk.session, "cwd": "/p"}
        return [{**head, "timestamp": self.now(), **tie}]

    def _copy(self, _talk: Talk, parent: Talk) -> list[Line]:
        return parent.lines[1:]

    def _response(self, talk: Talk, number: int, tokens: int) -> Iterator[Line]:
        usage = {"input": tokens - 10, "output": 10, "totalTokens": tokens}
        bill = {"model": "m", "usage": usage, "stopReason": "stop", "responseId": f"r{number}"}
        for role, more in (("user", {}), ("assistant", bill)):
            text = [{"type": "text", "text": f"Go {number}"}]
            above = talk.lines[-1]["id"] if len(talk.lines) > 1 else None
            frame = {"type": "message", "id": self.uuid()[:8], "parentId": above}
            stamp = {"timestamp": self.now()}
            message = {"role": role, "content": text, "timestamp": START_MS + self._clock, **more}
            yield {**frame, **stamp, "message": message}


class Qwen(Client):
    """Telemetry and the response have one bill; a fork's records name their original."""

    agent, home = "qwen", ".qwen"

    def _place(self, session: str) -> Path:
        return self.root / "projects" / "-p" / "chats" / f"{session}.jsonl"

    def _copy(self, talk: Talk, parent: Talk) -> list[Line]:
        return [
            {
                **line,
                "sessionId": talk.session,
                "forkedFrom": {"sessionId": parent.session, "messageUuid": line["uuid"]},
            }
            for line in parent.lines
        ]

    def _response(self, talk: Talk, number: int, tokens: int) -> Iterator[Line]:
        message = {"role": "user", "parts": [{"text": f"Go {number}"}]}
        yield self._record(talk, "user", message=message)
        event = {"event.name": "qwen-code.api_response", "response_id": f"r{number}", "model": "m"}
        counts = {"input_token_count": tokens - 10, "output_token_count": 10}
        payload = {"uiEvent": {**event, **counts}}
        yield self._record(talk, "system", subtype="ui_telemetry", systemPayload=payload)
        usage = {"promptTokenCount": tokens - 10, "candidatesTokenCount": 10}
        message = {"role": "model", "parts": [{"text": "Done."}]}
        yield self._record(talk, "assistant", message=message, model="m", usageMetadata=usage)

    def _record(self, talk: Talk, kind: str, **more: Any) -> Line:
        above = talk.lines[-1]["uuid"] if talk.lines else None
        frame = {"uuid": self.uuid(), "parentUuid": above, "sessionId": talk.session}
        return {**frame, "timestamp": self.now(), "type": kind, "cwd": "/p", **more}


class Cline(Client):
    """A document that is written anew; a restored session has the messages of another one."""

    agent, home = "cline", ".cline"

    def _place(self, session: str) -> Path:
        return self.root / "data/sessions" / session / f"{session}.messages.json"

    def _response(self, _talk: Talk, number: int, tokens: int) -> Iterator[Line]:
        for role in ("user", "assistant"):
            text = {"type": "text", "text": f"Go {number}"}
            self.now()
            ts = START_MS + 1000 * self._clock
            line = {"id": f"msg_{self.uuid()}", "role": role, "content": [text], "ts": ts}
            metrics = {"inputTokens": tokens - 10, "outputTokens": 10}
            yield line if role == "user" else {**line, "modelInfo": {"id": "m"}, "metrics": metrics}

    def _put(self, talk: Talk, line: Line, _path: Path | None = None) -> None:
        talk.lines.append(line)
        origin = {"source": "cli", "sessionId": talk.session}
        document = {"version": 1, "agent": "lead", "origin": origin, "messages": talk.lines}
        write_document(talk.path, document)
        card = talk.path.with_name(f"{talk.session}.json")
        write_document(card, {"session_id": talk.session, "status": "running", "cwd": "/p"})
        self.look()


class OpenCode(Client):
    """One database; a fork says the same under new ids."""

    agent, home = "opencode", "opencode"

    def _place(self, session: str) -> Path:
        path = self.root / "opencode.db"
        if not path.exists():
            run(path, OPENCODE, ())
            self._writer = Writer()
        return path

    def _header(self, talk: Talk, _parent: Talk | None) -> list[Line]:
        return [{"session": talk.session, "title": f"New session - {self.now()}"}]

    def _copy(self, _talk: Talk, parent: Talk) -> list[Line]:
        return parent.lines[1:]

    def _response(self, _talk: Talk, number: int, tokens: int) -> Iterator[Line]:
        self.now()
        yield {"second": self._clock, "text": f"Go {number}"}
        self.now()
        usage = {"input": tokens - 10, "output": 10, "reasoning": 0, "total": tokens}
        yield {"second": self._clock, "text": f"Done {number}.", "tokens": usage}

    def _put(self, talk: Talk, line: Line, _path: Path | None = None) -> None:
        talk.lines.append(line)
        first, name = len(self._writer.steps), f"msg_{len(self._writer.steps):09}"
        self._writer.session(f"ses_{talk.session}", talk.lines[0]["title"])
        if "tokens" in line:
            self._writer.answer(name, line["second"], line["text"], 0)
            info = {"id": name, "role": "assistant", "modelID": "m", "finish": "stop"}
            times = {"created": START_MS + 1000 * line["second"]}
            self._writer.event(
                "message.updated", info={**info, "time": times, "tokens": line["tokens"]}
            )
        elif "text" in line:
            self._writer.prompt(name, line["second"], line["text"])
        database = sqlite3.connect(talk.path)
        for statement, values in self._writer.steps[first:]:
            database.execute(statement, values)
            database.commit()
        database.close()
        self.look()


CLIENTS = (Claude, Codex, Kimi, Droid, Gemini, Pi, Qwen, Cline, OpenCode)


class Watcher:
    """A store that looks into a home whenever it is asked to."""

    def __init__(self, folder: Path, agent: str, root: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._store = opened(folder)
        self._agent, self._root = agent, root

    def look(self) -> tuple[int, bool]:
        """Sweep; return all tokens of all sessions, and whether they are a minimum."""
        known = {self._agent: adapters()[self._agent]}
        with self._store.sweeping():
            Sweep(self._store, known, Gate(key=KEY), rules()).run({self._agent: [self._root]})
        rows = self.rows()
        parts = [part for row in rows for part in (row.spent.live, row.spent.dead, row.spent.side)]
        return sum(part.total for part in parts), any(row.lower_bound for row in rows)

    def rows(self) -> list[SessionRow]:
        """All sessions."""
        return list(self._store.sessions())

    def close(self) -> None:
        """Close the store."""
        self._store.close()


@pytest.mark.sampled
@pytest.mark.parametrize("make", CLIENTS)
@pytest.mark.parametrize("seed", range(by_pace(1, 1, 40)))
def test_no_token_is_counted_twice(tmp_path: Path, make: type[Client], seed: int) -> None:
    """Whatever copies, compacts or forks, whenever somebody looks, in whatever order."""
    chance = random.Random(f"{make.agent} {seed}")
    watcher = Watcher(tmp_path / "store", make.agent, tmp_path / "home" / make.home)

    def look() -> None:
        assert watcher.look()[0] <= sum(client.billed.values())

    client = make(tmp_path / "home", chance, look)
    for _ in range(ACTIONS):
        client.act()
        spent, is_minimum = watcher.look()
        billed = sum(client.billed.values())
        assert spent <= billed if is_minimum and not make.is_exact else spent == billed
    watcher.close()
    there = {number: tokens for talk in client.talks for number, tokens in talk.bills.items()}

    other = Watcher(tmp_path / "other", make.agent, tmp_path / "later" / make.home)
    folders = [talk.path for talk in client.talks]
    for path in chance.sample(folders, len(folders)):
        for file in _files_of(path, client.root):
            target = tmp_path / "later" / make.home / file.relative_to(client.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target)
        spent, _ = other.look()
    other.close()

    known = sum(there.values())
    assert spent == known if make.is_exact else spent <= known


def _files_of(path: Path, root: Path) -> list[Path]:
    """Return the files of a session: its own folder, or those beside it that begin as its log."""
    own = path.parent
    if own.name == "main":
        own = own.parent.parent
        return [file for file in own.rglob("*") if file.is_file()]
    return [file for file in own.iterdir() if file.name.startswith(path.name.split(".")[0])]


@pytest.mark.parametrize("runs", [(1, 2, 3, 4), (2, 3, 4), (4, 3, 2, 1)])
def test_real_forks_that_are_deleted_later_are_billed_once(
    shared: Path, tmp_path: Path, runs: tuple[int, ...]
) -> None:
    """A fork, a fork of it, and the first one resumed: seen after each run, in any order.

    The client deletes forks when it starts again, and the session that was copied may have said
    nothing since: the copy is the younger one all the same.
    """
    folder = shared / "data/agents/gemini/fork-twice"
    truth = json.loads((folder / "truth.json").read_text())
    home = tmp_path / "home"
    for run_number in runs:
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(folder / f"at-run-{run_number}", home, copy_function=shutil.copyfile)
        watcher = Watcher(tmp_path / "store", "gemini", home / ".gemini")
        spent, is_minimum = watcher.look()
        ties = {
            row.session.native_session_id: sorted(edge.session for edge in row.edges)
            for row in watcher.rows()
        }
        watcher.close()

    stem, fork, second = (run["session"] for run in truth["runs"][:3])
    usages = [request["usage"] for request in truth["requests"]]
    billed = sum(usage["input"] + usage["output"] + usage["reasoning"] for usage in usages)
    assert (billed, False) == (spent, is_minimum)
    assert {stem: [], fork: [stem], second: sorted([stem, fork])} == ties
