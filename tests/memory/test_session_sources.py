"""One session in two folders: whatever happens to its files, what was ever there is kept once.

Histories are drawn at random: logs are written, grow, are cut, replaced, deleted, copied and moved,
with or without a sweep after each step. What must be kept is counted beside it from the bytes of
the files alone; none of our code takes part in that.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.cli.desk import Ran, in_process

CLAUDE = "0a000000-0000-4000-8000-00000000000a"
CODEX = "01a00000-0000-7000-8000-00000000000a"
MAIN, SIDE, ROLLOUT = "main", "side", "rollout"
PATHS = {
    MAIN: f"claude/projects/-home-dev-project/{CLAUDE}.jsonl",
    SIDE: f"claude/projects/-home-dev-project/{CLAUDE}/subagents/agent-a1.jsonl",
    ROLLOUT: f"codex/sessions/2026/01/01/rollout-2026-01-01T00-00-00-{CODEX}.jsonl",
}
FOLDERS = ("here", "there")
WAYS = ("write", "grow", "cut", "replace", "delete", "copy", "move", "repeat", "tear")

Line = dict[str, Any]


class Writer:
    """Makes lines as the clients write them, none of them twice."""

    def __init__(self) -> None:
        self._number = 0

    def lines(self, log: str, count: int, last: str | None) -> list[Line]:
        """Return new lines of a log that continue one of its records."""
        out: list[Line] = []
        for _ in range(count):
            self._number += 1
            line = self._rollout() if log == ROLLOUT else self._claude(log, last)
            last = line.get("uuid")
            out.append(line)
        return out

    def _moment(self) -> str:
        return f"2026-01-01T{self._number // 60:02}:{self._number % 60:02}:00.000Z"

    def _claude(self, log: str, parent: str | None) -> Line:
        number = self._number
        line: Line = {
            "parentUuid": parent,
            "isSidechain": log == SIDE,
            "uuid": f"{number:08x}-0000-4000-8000-000000000001",
            "timestamp": self._moment(),
            "sessionId": CLAUDE,
            "cwd": "/home/dev/project",
            "version": "2.1.325",
        }
        if log == SIDE:
            line["agentId"] = "a1"
        if number % 3 == 0:
            return {**line, "type": "user", "message": {"role": "user", "content": f"w{number}."}}
        message = {
            "role": "assistant",
            "model": "claude-opus-5-5",
            # Two records of one response, the first with less of it.
            "id": f"msg_{log}_{number // 3}",
            "content": [{"type": "text", "text": f"w{number}."}],
            "usage": {"input_tokens": 10 + number // 3, "output_tokens": number},
        }
        return {**line, "type": "assistant", "message": message}

    def _rollout(self) -> Line:
        number = self._number
        if number % 3 == 0:
            usage = {
                "input_tokens": 20,
                "cached_input_tokens": 0,
                "output_tokens": number,
                "reasoning_output_tokens": 0,
                "total_tokens": 20 + number,
            }
            bill = {"thread_id": CODEX, "turn_id": "t", "response_id": f"r{number}", "usage": usage}
            return {"timestamp": self._moment(), "type": "token_usage_record", "payload": bill}
        role, kind = ("user", "input_text") if number % 3 == 1 else ("assistant", "output_text")
        content = [{"type": kind, "text": f"w{number}."}]
        message = {"type": "message", "role": role, "content": content}
        return {"timestamp": self._moment(), "type": "response_item", "payload": message}


def head(log: str) -> list[Line]:
    """Return the lines that a log always begins with."""
    if log != ROLLOUT:
        return []
    payload = {"id": CODEX, "cwd": "/home/dev/project", "cli_version": "0.166.0"}
    return [{"timestamp": "2026-01-01T00:00:00.000Z", "type": "session_meta", "payload": payload}]


def text_of(line: Line) -> str | None:
    """Return the text of a record by which it is known again."""
    content = (line.get("message") or line.get("payload") or {}).get("content")
    if isinstance(content, list):
        return str(content[0]["text"])
    return content


def bill_of(line: Line) -> tuple[str, int, int] | None:
    """Return response, tokens in and tokens out of a record that is billed."""
    payload = line.get("message") or line.get("payload") or {}
    if "usage" not in payload:
        return None
    usage = payload["usage"]
    response = payload.get("id") or payload["response_id"]
    return response, usage["input_tokens"], usage["output_tokens"]


class Expected:
    """What the files held whenever they were swept: texts and bills."""

    def __init__(self) -> None:
        self.texts: dict[str, Counter[str]] = {"claude": Counter(), "codex": Counter()}
        self.bills: dict[str, dict[str, tuple[int, int]]] = {"claude": {}, "codex": {}}

    def note(self, agent: str, lines: list[Line]) -> None:
        """Add what a file holds. Records of Codex have no id: one that is there twice is two."""
        texts = Counter(text for line in lines if (text := text_of(line)))
        self.texts[agent] |= Counter(set(texts)) if agent == "claude" else texts
        for line in lines:
            if bill := bill_of(line):
                response, input_tokens, out = bill
                before = self.bills[agent].get(response, (0, 0))
                self.bills[agent][response] = max(before, (input_tokens, out), key=lambda b: b[1])

    def tokens(self, agent: str) -> tuple[int, int, int]:
        """Return how many responses there were, and what they took."""
        bills = self.bills[agent].values()
        return (
            len(bills),
            sum(input_tokens for input_tokens, _ in bills),
            sum(out for _, out in bills),
        )


class Machine:
    """Two folders of either agent's sessions, and what is kept of them."""

    def __init__(self, folder: Path, *, one_root: bool) -> None:
        self.folder = folder
        self._one_root = one_root
        self._env = {"HOME": str(folder), "TZ": "UTC", "CLAUDE_CONFIG_DIR": f"{folder}/here/claude"}
        self._env["CODEX_HOME"] = f"{folder}/here/codex"
        self._writer = Writer()
        self.expected = Expected()
        for place in FOLDERS:
            for agent in ("claude/projects", "codex/sessions"):
                (folder / place / agent).mkdir(parents=True)
        home = folder / ".thence"
        home.mkdir(mode=0o700)
        sources = "".join(f'{a} = ["{folder}/there/{a}"]\n' for a in ("claude", "codex"))
        (home / "config.toml").write_text(f"[session_memory.sources]\n{sources}", encoding="utf-8")

    def path(self, place: str, log: str) -> Path:
        """Return where a log lies: below another root, or in another project of the same root."""
        if self._one_root and place == "there" and log != ROLLOUT:
            return self.folder / "here" / PATHS[log].replace("-project/", "-other/")
        return self.folder / place / PATHS[log]

    def lines(self, place: str, log: str) -> list[Line]:
        """Return the finished lines of a log; none when it is not there."""
        path = self.path(place, log)
        raw = path.read_bytes() if path.exists() else b""
        return [json.loads(line) for line in raw.split(b"\n")[:-1]]

    def run(self, *arguments: str) -> Ran:
        """Run one command as `thence …` would."""
        return in_process(*arguments, env=self._env)

    # -- what may happen ----------------------------------------------------------------

    def act(self, chance: random.Random) -> None:
        """Let something happen to a log in one of the folders."""
        place, log = chance.choice(FOLDERS), chance.choice([*PATHS])
        path, lines = self.path(place, log), self.lines(place, log)
        other = self.path(FOLDERS[place == "here"], log)
        count = chance.randint(1, 4)
        match chance.choice(WAYS):
            case "write":
                self.write(place, log, head(log) + self._writer.lines(log, count, None))
            case "grow":
                last = lines[-1].get("uuid") if lines else None
                more = self._writer.lines(log, count, last)
                self.write(place, log, (lines or head(log)) + more)
            case "cut":
                self.write(place, log, lines[: max(len(lines) - count, len(head(log)))])
            case "replace":
                rest = [line for line in lines[1:] if chance.random() < 0.5]
                more = self._writer.lines(log, count, None)
                self.write(place, log, head(log) + more + rest)
            case "repeat" if lines:
                self.write(place, log, [*lines, chance.choice(lines)])
            case "tear" if lines:
                path.write_bytes(path.read_bytes()[:-9])
            case "delete" if path.exists():
                self.delete(path)
            case "copy" if other.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(other, path)
            case "move" if other.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                other.rename(path)
                self.delete(other)

    def write(self, place: str, log: str, lines: list[Line]) -> None:
        """Write a log anew, or go on with it where it begins with the same bytes."""
        data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        path = self.path(place, log)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and data.startswith(before := path.read_bytes()):
            with path.open("ab") as file:
                file.write(data[len(before) :])
        else:
            path.write_bytes(data)

    def delete(self, path: Path) -> None:
        """Delete a log, and the folder of its session's subagents with the last of these."""
        path.unlink(missing_ok=True)
        if path.parent.name == "subagents":
            shutil.rmtree(path.parent.parent)

    def sweep(self) -> None:
        """Keep what is there, and note it."""
        ran = self.run("sweep", "--json")

        assert 0 == ran.code, ran
        for place in FOLDERS:
            for log in PATHS:
                self.expected.note(agent_of(log), self.lines(place, log))

    # -- what is kept -------------------------------------------------------------------

    def shown_events(self, agent: str) -> list[Line]:
        """Return the events that show the texts of one agent's session; none before it is known."""
        uid = f"{agent}:{CLAUDE if agent == 'claude' else CODEX}"
        ran = self.run("show", uid, "--json")
        events = ran.json["events"] if ran.code == 0 else []
        wanted = ("user_msg", "assistant_msg")
        return [e for e in events if e["kind"] in wanted and "derived_from" not in e]

    def billed(self, agent: str) -> tuple[int, int, int]:
        """Return how many responses of one agent are billed, and what they took."""
        total = self.run("cost", "--by", "session", "--agent", agent, "--json").json["total"]
        return total["responses"], total["tokens"]["input"], total["tokens"]["output"]

    def check(self) -> None:
        """Compare what is kept with what was there."""
        for agent in ("claude", "codex"):
            events = self.shown_events(agent)
            texts = Counter(event["payload"]["text"] for event in events)
            rewritten = {e["payload"]["text"] for e in events if e.get("why") == "rewritten"}

            assert self.expected.texts[agent] == texts
            assert self.expected.tokens(agent) == self.billed(agent)
            assert set() == rewritten & self.texts_there(agent)

    def texts_there(self, agent: str) -> set[str]:
        """Return the texts that some folder holds now."""
        logs = [log for log in PATHS if agent_of(log) == agent]
        lines = [line for place in FOLDERS for log in logs for line in self.lines(place, log)]
        return {text for line in lines if (text := text_of(line))}

    def check_doctor(self) -> None:
        """Compare what `thence doctor` says of the files with what is kept of them."""
        findings = self.run("doctor", "--json").json["findings"]
        unread = {
            f["agent"]: f["unread"] for f in findings if f["topic"] == "sources" and "agent" in f
        }
        wrong = [
            f
            for f in findings
            if f["topic"] in ("skips", "store", "packs")
            if f["level"] in ("warning", "bad")
        ]

        assert [] == wrong
        for agent, number in unread.items():
            if agent in self.expected.texts:
                new = self.texts_there(agent) - self.expected.texts[agent].keys()
                assert bool(number) >= bool(new), "it says that all is kept"


def agent_of(log: str) -> str:
    """Return whose log it is."""
    return "codex" if log == ROLLOUT else "claude"


@pytest.mark.slow
@settings(phases=[Phase.generate])  # a history is short enough to be read as it was drawn
@given(st.integers(0, 2**32), st.booleans())
def test_no_history_of_two_folders_loses_or_doubles_anything(seed: int, one_root: bool) -> None:
    """The union of all that was ever swept is kept: each record once, each bill once."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder), one_root=one_root)
        for _ in range(chance.randint(2, 14)):
            machine.act(chance)
            if chance.random() < 0.5:
                machine.sweep()
        machine.check_doctor()
        machine.sweep()
        machine.check()
        again = machine.run("sweep", "--json").json

        assert (0, 0) == (again["read"], again["lines"])
        machine.check_doctor()
