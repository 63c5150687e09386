"""Sessions of further real clients: captured while they are written, exact, resumed as printed.

Each client talks to a model on loopback, whose bills are what ours must be.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agents import thence
from tests.e2e.clients import ALL, PROJECT, Client, get_client, order
from tests.e2e.test_handoff import missing, pairs, parts
from tests.e2e.test_hostile_project import SWEPT
from thence import Journal
from thence.agents.profiles import agents

pytestmark = pytest.mark.e2e

PROMPT = "Which function here finds the low tide? Count the lines too."
ANSWER = "low() does, in tide.py, and it takes the maximum where the minimum is meant."
NEXT = "Say that again in French, please."
DONE = "C'est low(), dans tide.py, qui prend le maximum."
EARLIER = "What is a spring tide?"
COUNT = "wc -l tide.py && false"
SOURCE = Path(__file__).resolve().parent.parent.parent / "src"
LATEST_S = 2.0
"""Within this time of being written, what is said is in our store."""


def answers(client: Client) -> dict[str, list[Any]]:
    """Return what the model says: a read, a command that fails, an answer; then another answer."""
    return {PROMPT: [client.read, client.run(COUNT), ANSWER], NEXT: [DONE]}


def billed(bills: list[dict[str, Any]], client: Client) -> list[int]:
    """Return input, cached input and output of all that the client's files can know of."""
    known = [bill for bill in bills if client.logs_side_calls or not bill["side"]]
    fresh, cached, output = (
        sum(bill[name] for bill in known) for name in ("input", "cached", "output")
    )
    return [fresh, 0 if client.hides_cache else cached, output]


def counted(session: dict[str, Any]) -> list[int]:
    """Return input, cached input and output of a session."""
    spent = [session["spent"][name] for name in ("live", "dead", "side")]
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    fresh, read, written = (sum(usage.get(name, 0) for usage in spent) for name in names)
    return [fresh + read + written, read, sum(usage.get("output_tokens", 0) for usage in spent)]


def summaries(session: dict[str, Any], kind: str) -> list[str]:
    """Return what the events of a kind say."""
    return [event["summary"] for event in session["events"] if event["kind"] == kind]


def shown(client: Client, home: Path, uid: str) -> dict[str, Any]:
    """Return a session after a sweep, as our command shows it."""
    swept, ran = order(client, home, {}, thence("sweep", "--json"), thence("show", uid, "--json"))[
        "ran"
    ]
    assert [0, 0] == [swept["code"], ran["code"]], (swept, ran)
    session: dict[str, Any] = json.loads(ran["out"])
    return session


def resumed(client: Client, home: Path, way: dict[str, Any]) -> dict[str, Any]:
    """Resume a session by the printed command, and ask something more."""
    if client.needs_terminal:
        talk = {"line": way["command"], "shown": ANSWER, "typed": NEXT, "answer": DONE}
        done = order(client, home, answers(client), talks=[talk])
    else:
        command = [f"{key}={value}" for key, value in way["env"].items()]
        command += client.ask_again(way["argv"], NEXT)
        done = order(client, home, answers(client), command)
    assert 0 == done["ran"][0]["code"], done["ran"][0]
    return done


@pytest.mark.parametrize("name", [client.name for client in ALL])
def test_a_session_is_captured_in_time_counted_exactly_and_resumed(
    name: str, tmp_path: Path
) -> None:
    """In our store within two seconds; calls, outcomes, tokens; the printed command works."""
    client = get_client(name)
    home = tmp_path / "home"
    client.settle(home)
    (home / client.folder).mkdir(parents=True, exist_ok=True)
    texts = [PROMPT, ANSWER]
    watch = {"folder": client.folder, "logs": client.logs, "texts": texts, "sweep": thence()}
    first = order(client, home, answers(client), client.ask(PROMPT), watch=watch)
    (ran,) = first["ran"]
    sys.stdout.write(f"{name}: in the store after {list(first['lags'].values())} s\n")
    assert 0 == ran["code"], ran
    resume = thence("resume", "--last", "--json")
    way = json.loads(order(client, home, {}, thence("sweep"), resume)["ran"][1]["out"])
    session = shown(client, home, way["session_uid"])
    shells = [event["call"] for event in session["events"] if event["tool"] == client.shell[0]]

    assert [PROMPT] == summaries(session, "user_msg")
    assert 2 == len(summaries(session, "tool_call")) == len(summaries(session, "tool_result"))
    assert ANSWER in summaries(session, "assistant_msg")
    failed = set() if client.hides_failures else {shells[0]}
    assert failed == {e["call"] for e in session["events"] if e["kind"] == "error"}
    assert billed(first["billed"], client) == counted(session)
    assert {PROMPT, ANSWER} == first["lags"].keys()
    assert all(lag is not None and lag <= LATEST_S for lag in first["lags"].values()), first["lags"]

    if client.not_resumed:
        pytest.skip(f"captured and exact; not resumed: {client.not_resumed}")
    second = resumed(client, home, way)
    sent = json.dumps(second["asked"][0], ensure_ascii=False)
    session = shown(client, home, newest(client, home) if client.is_copied else way["session_uid"])

    assert sent.index(PROMPT) < sent.index(ANSWER) < sent.rindex(NEXT)
    assert [PROMPT, NEXT] == summaries(session, "user_msg")
    assert DONE in summaries(session, "assistant_msg")
    if not client.is_copied:  # of a copy this short nobody can say whose the first part is
        assert billed([*first["billed"], *second["billed"]], client) == counted(session)


def newest(client: Client, home: Path) -> str:
    """Return the session that was written last."""
    ran = order(client, home, {}, thence("sweep", "--json"), thence("ls", "--json"))["ran"]
    return str(json.loads(ran[1]["out"])[0]["session_uid"])


LISTS = """
import json, os, pathlib, sys
from thence.agents.profiles import agents
reader = agents()[sys.argv[1]].reader
roots = reader.roots(pathlib.Path.home(), os.environ)
names = [live.session for root in roots for live in reader.live(root)]
pathlib.Path("running.json").write_text(json.dumps(names))
"""


@pytest.mark.parametrize("name", [c.name for c in ALL if agents()[c.name].offers("status")])
def test_a_session_runs_as_long_as_its_client_does(name: str, tmp_path: Path) -> None:
    """Asked by the agent's own tool while it works, and again when all is over."""
    client = get_client(name)
    if name == "qwen":
        pytest.skip("Qwen Code names the process of sessions in its interface only")
    home = tmp_path / "home"
    client.settle(home)
    # In the project: some clients let no command name a path outside.
    command, listing = (home / "project" / name for name in ("look", "running.json"))
    argv = ["env", f"PYTHONPATH={SOURCE}", sys.executable, "-c", LISTS, name]
    command.write_text(f"#!/bin/sh\nexec {shlex.join(argv)}\n")
    command.chmod(0o755)
    script = {PROMPT: [client.run("./look"), ANSWER]}
    first = order(client, home, script, client.ask(PROMPT))
    assert 0 == first["ran"][0]["code"], first["ran"]
    listed = json.loads(listing.read_text())
    uid = newest(client, home)
    order(client, home, {}, ["./look"])

    assert [uid] == [f"{name}:{session}" for session in listed]
    assert [] == json.loads(listing.read_text())


# -- handoff --------------------------------------------------------------------------------

READERS = ("pi", "qwen", "copilot", "gemini", "kimi", "opencode", "kilo")
WRITERS = ("ours", "pi", "opencode", "hermes")
SYMBOL = "find_symbol"
FAILED = "cat: low.py: No such file or directory"


def journal(home: Path) -> Path:
    """Write a session of our own: a call that others know, one that none knows, one that fails."""
    session = Journal(home / ".thence").create(cwd=PROJECT)
    calls = [
        {"type": "tool_use", "id": "call_look", "name": "shell", "input": {"command": "ls"}},
        {"type": "tool_use", "id": "call_find", "name": SYMBOL, "input": {"name": "low"}},
        {"type": "tool_use", "id": "call_cat", "name": "shell", "input": {"command": "cat low.py"}},
    ]
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"}
    results = [
        {"type": "tool_result", "tool_use_id": "call_find", "content": "tide.py:1"},
        {"type": "tool_result", "tool_use_id": "call_look", "content": "tide.py"},
        {"type": "tool_result", "tool_use_id": "call_cat", "content": FAILED, "is_error": True},
    ]
    turns: list[tuple[str, Any]] = [
        ("user", PROMPT),
        ("assistant", [thought, {"type": "text", "text": "I look."}, *calls]),
        ("user", results),
        ("assistant", [{"type": "text", "text": ANSWER}]),
        ("user", "And the high tide? \N{WATER WAVE}"),
        ("assistant", [{"type": "text", "text": 'high() is missing: say "low" twice.'}]),
    ]
    for role, content in turns:
        session.record(role, {"role": role, "content": content})
    session.close()
    return next((home / ".thence").rglob(f"{session.id}.jsonl"))


def written(writer: str, home: Path) -> str:
    """Have a session written; return its id in the store."""
    if writer == "ours":
        journal(home)
    else:
        client = get_client(writer)
        client.settle(home)
        (ran,) = order(client, home, answers(client), client.ask(PROMPT))["ran"]
        assert 0 == ran["code"], ran
    listing = thence("ls", "--agent", "thence" if writer == "ours" else writer, "--json")
    listed = order(get_client("pi"), home, {}, thence("sweep"), listing)["ran"][1]
    return str(json.loads(listed["out"])[0]["session_uid"])


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("writer", WRITERS)
def test_the_next_client_sends_the_live_chain_in_order(
    writer: str, reader: str, tmp_path: Path
) -> None:
    """Every message, every call with its result, then the new prompt; and nothing counts twice."""
    client = get_client(reader)
    if writer == reader:
        pytest.skip("it is its own session")
    home = tmp_path / "home"
    client.settle(home)
    uid = written(writer, home)
    earlier = order(client, home, {EARLIER: [DONE]}, client.ask(EARLIER))  # as on every machine
    assert 0 == earlier["ran"][0]["code"], earlier["ran"]
    shown_, handed = order(
        client,
        home,
        {},
        thence("show", uid, "--as", "messages", "--json"),
        thence("handoff", uid, "--to", reader, "--json"),
    )["ran"]
    assert 0 == handed["code"], handed
    report, chain = json.loads(handed["out"]), json.loads(shown_["out"])
    done = order(client, home, {NEXT: [DONE]}, client.ask_again(report["argv"], NEXT))
    assert 0 == done["ran"][0]["code"], done["ran"]
    sent = list(parts(done["asked"][0]))
    calls, results = pairs(sent)

    assert [] == missing(chain, sent)
    assert set(calls) == set(results)
    assert any(NEXT in part.text for part in sent[-3:])
    assert report["calls"] == sum(sum(report[n].values()) for n in ("kept", "mapped", "told"))
    if writer == "ours":
        assert {SYMBOL: 1} == report["told"]

    session = shown(client, home, f"{reader}:{report['session']}")
    # `opencode run` puts prompts in quotation marks; they are handed over as its model got them
    states = {event["summary"].strip('"'): event["state"] for event in session["events"]}
    (edge,) = (edge for edge in session["edges"] if edge["link"] == "adopt")
    assert ("replayed", "live", "live") == (states[PROMPT], states[NEXT], states[DONE])
    assert uid == f"{edge['agent']}:{edge['session']}"
    assert billed(done["billed"], client) == counted(session)


# -- hooks and MCP --------------------------------------------------------------------------


@pytest.mark.parametrize("name", [c.name for c in ALL if agents()[c.name].offers("hooks")])
def test_our_hook_is_called_by_the_client(name: str, tmp_path: Path) -> None:
    """Nobody asks for a sweep, and the session is listed; the settings are as before afterwards."""
    client = get_client(name)
    home = tmp_path / "home"
    client.settle(home)
    before = {path: (home / path).read_bytes() for path in client.files}
    ran = order(
        client,
        home,
        answers(client),
        thence("hook", "install", name, "--yes"),
        client.ask(PROMPT),
        ["/bin/sh", "-c", SWEPT],
        thence("ls", "--json"),
        thence("hook", "status", name, "--json"),
        thence("hook", "uninstall", name, "--yes"),
    )["ran"]

    assert [0] * 6 == [command["code"] for command in ran], ran
    assert [(name, "done")] == [(row["flavor"], row["turn"]) for row in json.loads(ran[3]["out"])]
    assert json.loads(ran[4]["out"])[0]["last_nudge"]
    assert before == {path: (home / path).read_bytes() for path in client.files}


@pytest.mark.parametrize("name", [c.name for c in ALL if agents()[c.name].offers("servers")])
def test_our_server_is_asked_by_the_client(name: str, tmp_path: Path) -> None:
    """Installed by our command: the model's question reaches it, its answer the model."""
    client = get_client(name)
    home = tmp_path / "home"
    client.settle(home)
    journal(home)
    before = {path: (home / path).read_bytes() for path in client.files}
    done = order(
        client,
        home,
        {EARLIER: [client.read, *client.search, ANSWER]},  # a prompt that the answer does not hold
        thence("sweep", "--json"),
        thence("mcp", "install", name, "--yes"),
        client.ask(EARLIER),
        thence("mcp", "uninstall", name, "--yes"),
    )
    last = json.dumps(done["asked"][-1], ensure_ascii=False)

    assert [0] * 4 == [ran["code"] for ran in done["ran"]], done["ran"]
    assert "data: thence search, " in last, last[-3000:]
    assert "thence:" in last
    assert "end of data]" in last
    assert before == {path: (home / path).read_bytes() for path in client.files}
