"""Mistral Vibe: folders as its client writes them, against what the API billed; made-up ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.agents.agents import (
    billed,
    counted,
    outcomes,
    prompts_of,
    read_by_steps,
    sessions_of,
    without_requests,
    write_all,
    write_document,
)
from tests.pace import SUITE_BYTES, SUITE_ROUNDS
from thence.agents.vibe.reader import Vibe
from thence.testing import AdapterSuite
from thence.testing.readers import CHECKS

SESSION = "77777777-0000-4000-8000-00000000000a"
OTHER = "77777777-0000-4000-8000-00000000000b"
AT = 1777888800000


def entry(number: int, kind: str, **more: Any) -> dict[str, Any]:
    """An entry; its id is the same in every session."""
    at = AT + 1000 * number
    status = {"generationStatus": "completed", "createdAt": at, "updatedAt": at}
    return {"id": f"{kind}-{number}", "type": kind, **status, **more}


def message(number: int, role: str, line: str, source: str = "turn_start") -> dict[str, Any]:
    """A message."""
    content = [{"type": "text", "text": line}]
    return entry(number, "message", role=role, content=content, source=source)


def effect(number: int, tool: str, until: int, output: Any, **arguments: Any) -> dict[str, Any]:
    """A call that has ended; one that has no output was cancelled."""
    state: dict[str, Any] = {"status": "completed", "decision": "execute"}
    state["output"] = {"type": "success", "structured_content": output}
    if output is None:
        error = {"code": "effect_recovery_failed", "message": "Action cancelled"}
        state = {"status": "failed", "error": error}
    detail = {"kind": "tool", "toolName": f"file_system.{tool}", "input": arguments}
    return entry(number, "effect", detail=detail, state=state) | {"updatedAt": AT + 1000 * until}


def running(ended: dict[str, Any]) -> dict[str, Any]:
    """A call while it runs."""
    return {**ended, "state": {"status": "running"}, "generationStatus": "in_progress"}


class Client:
    """Writes a session: a snapshot per turn, and a journal since."""

    def __init__(self, root: Path, session: str, **card: Any) -> None:
        self.folder = root / "logs" / "session" / "unified" / session
        self._sequence = self._total = self._output = 0
        self._entries: list[Any] = []
        fields = {"environment": {"working_directory": "/home/dev/demo"}, "title": None}
        names = {"config": {"active_model": "mock", "model_name": "mock-1"}}
        write_document(
            self.folder / "meta.json", {**fields, "title_source": "auto", **names, **card}
        )
        self.snapshot()

    def _session(self) -> dict[str, Any]:
        counts = {"inputTokens": self._total, "outputTokens": self._output}
        return {"tokenUsage": {**counts, "cachedInputTokens": 100} if self._total else None}

    def snapshot(self) -> None:
        """End a turn: all entries go into a chunk, and the journal is dropped."""
        raw = json.dumps(self._entries)
        name = sha256(raw.encode()).hexdigest()
        chunk = self.folder / "chunks" / f"{name}.json"
        chunk.parent.mkdir(exist_ok=True)
        chunk.write_text(raw)
        generation = f"{self._sequence:016}"
        place = self.folder / "generations" / generation
        state = {"snapshot": {"session": self._session(), "history": {"entries": []}}}
        write_document(place / "projection-state.json", state)
        write_document(place / "manifest.json", {"projection_state": {"chunks": [name]}})
        for old in (self.folder / "journal").glob("*"):
            old.unlink()
        self._journal = self.folder / "journal" / f"{self._sequence + 1:016}.jsonl"
        self._journal.parent.mkdir(exist_ok=True)
        self._journal.touch()
        current = {"generation": generation, "snapshot_sequence": self._sequence}
        write_document(self.folder / "CURRENT", current)

    def change(self, op: str, item: dict[str, Any], input_tokens: int = 0, output: int = 0) -> None:
        """Tell of an entry in the journal, and of what the session took so far."""
        self._sequence += 1
        self._total, self._output = self._total + input_tokens, self._output + output
        self._entries = [e for e in self._entries if e["id"] != item["id"] or op == "append_entry"]
        self._entries.append(item)
        self._entries.sort(key=lambda e: e["createdAt"])
        delta = [
            {"op": op, "entry": item},
            {"op": "set_envelope", "state": {"session": self._session()}},
        ]
        line = {"sequence": self._sequence, "type": "projection_delta", "payload": {"delta": delta}}
        with self._journal.open("a") as journal:
            journal.write(json.dumps(line) + "\n")


BASH = effect(*(3, "bash", 4, {"returncode": 2, "stdout": "", "stderr": "no rule"}), command="make")
EDIT = effect(5, "search_replace", 7, {"file": "a.py"}, file_path="a.py", content=[])
READ = effect(6, "read_file", 8, {"content": "all:"}, path="Makefile")


def write(root: Path) -> Iterator[None]:
    """Write a session with calls one after the other and at once, and a second one, by steps."""
    client = Client(root, SESSION, title="Mending", title_source="user")
    yield
    client.change("append_entry", message(1, "user", "Mend it"))
    client.change("append_entry", entry(2, "reasoning", text="Hm."), 1000, 30)
    yield
    for change, item in (
        ("append_entry", running(BASH)),
        ("replace_entry", BASH),
        ("append_entry", running(EDIT)),
        ("append_entry", running(READ)),
        ("replace_entry", EDIT),
        ("replace_entry", READ),
    ):
        client.change(change, item)
        yield
    client.change("append_entry", message(9, "assistant", "It has no rule.", "harness"), 1100, 20)
    yield
    client.snapshot()
    yield
    client.change("append_entry", message(20, "user", "Try this"))
    client.change("append_entry", message(21, "assistant", "Yes.", "harness"), 1200, 10)
    client.snapshot()
    yield
    other = Client(root, OTHER, parent_session_id=SESSION)
    other.change("append_entry", message(1, "user", "Mend that"))
    other.change("append_entry", message(9, "assistant", "So be it.", "harness"), 2000, 9)


@pytest.mark.parametrize("scenario", ["tools", "resume", "compact", "killed"])
def test_tokens_calls_and_prompts_are_what_the_api_billed(shared: Path, scenario: str) -> None:
    """Every field is exact, the call after a kill included; requests are in no file that stays."""
    home = shared / "data" / "agents" / "vibe" / scenario
    (session,) = sessions_of(Vibe(), home / "home/.vibe").values()

    counts = counted(Vibe(), home / "home/.vibe")
    assert without_requests(billed(home)) == without_requests(counts)
    assert ("/home/dev/demo", "mock-1") == (session.session().cwd, session.session().model)
    assert ([], "done") == (session.unbilled, str(session.turn().state))


def test_a_real_kill_is_read_from_the_journal(shared: Path) -> None:
    """No snapshot holds the turn; the call becomes a failure when the session is resumed."""
    home = shared / "data" / "agents" / "vibe" / "killed"
    (killed,) = sessions_of(Vibe(), home / "at-kill/.vibe").values()
    (session,) = sessions_of(Vibe(), home / "home/.vibe").values()

    assert ("running", 1263) == (str(killed.turn().state), killed.spent.own)
    assert [("bash", False, False, None)] == outcomes(killed)
    assert ("bash", True, True, None) == outcomes(session)[0]
    assert {e.event_id for e in killed.events} <= {e.event_id for e in session.events}


@pytest.mark.sampled
@pytest.mark.parametrize("check", CHECKS)
def test_the_adapter_suite_passes(check: str) -> None:
    """Steps, damage, moving and hostile values change nothing that must stay."""
    assert [] == AdapterSuite(Vibe(), write, rounds=SUITE_ROUNDS, bytewise=SUITE_BYTES).complaints(
        check
    )


def test_made_up_sessions_are_told_in_full(tmp_path: Path) -> None:
    """Calls in the order in which they ran, the title, ties, and totals once."""
    session, other = read_by_steps(Vibe(), tmp_path, write(tmp_path)).values()

    assert [
        ("bash", True, True, 2),
        ("edit", True, False, None),
        ("read_file", True, False, None),
    ] == outcomes(session)
    assert ("Mending", 3360, 2009) == (session.title, session.spent.own, other.spent.own)
    assert [("Mend it", "live"), ("Try this", "live")] == prompts_of(session)
    assert [SESSION] == [edge.session for edge in other.edges]
    assert [] == [event for event in session.events if event.why]
    kinds = [event.kind for event in session.events if event.tool]
    calls = ["tool_call", "tool_result", "tool_call", "tool_call", "tool_result", "tool_result"]
    assert calls == kinds


def test_nothing_but_names_of_its_own_leads_to_a_file(tmp_path: Path) -> None:
    """A generation or a chunk with another name is none; the last state stands."""
    write_all(write(tmp_path))
    (source, _) = Vibe().find(tmp_path)
    before = Vibe().read(source)
    for generation in ("../../../etc", "0000000000000000/../x", 7, None):
        write_document(Path(source.path), {"generation": generation, "snapshot_sequence": 0})
        batch = Vibe().read(source, before.cursor)
        assert ([], True) == (batch.events, bool(batch.skipped))


@pytest.mark.parametrize("name", ["chunks", "generations", "journal"])
def test_no_link_is_followed(tmp_path: Path, name: str) -> None:
    """A folder of a session that is a link elsewhere is not read."""
    write_all(write(tmp_path))
    (source, _) = Vibe().find(tmp_path)
    place = Path(source.path).parent / name
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    (source, _) = Vibe().find(tmp_path)
    batch = Vibe().read(source)

    assert ([], True) == ([f for f in batch.events if f.blocks], bool(batch.skipped))


def test_a_snapshot_that_is_replaced_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    """A file that is gone leaves what was read; the next read has all of it."""
    steps = write(tmp_path)
    for _ in range(9):
        next(steps)
    (source,) = Vibe().find(tmp_path)
    first = Vibe().read(source)
    next(steps)
    (chunk, *_) = sorted((Path(source.path).parent / "chunks").glob("*"))
    contents = {path: path.read_bytes() for path in chunk.parent.glob("*")}
    for path in contents:
        path.unlink()
    torn = Vibe().read(source, first.cursor)
    for path, data in contents.items():
        path.write_bytes(data)
    write_all(steps)
    (source, _) = Vibe().find(tmp_path)
    last = Vibe().read(source, torn.cursor)

    assert ([], [], True) == (torn.events, torn.skipped, torn.torn)
    assert ["message", "message"] == [f.type for f in last.events if f.file == "main"]
