"""Sessions that change agents, with the real clients: what the next one sends is the whole history.

One client, or our journal, writes a session; `thence handoff` gives it to another; that one's own
client goes on with it. What it then asks its model holds every message of the chain that was
handed over, in order, every call with its result.
"""

from __future__ import annotations

import base64
import functools
import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e import cell
from tests.e2e.agents import AGENTS, ANSWER, CLIENTS, ENV, PROMPT, Agent, thence
from thence import Journal

pytestmark = pytest.mark.e2e

NEXT = "Then mend it, please."
DONE = "Mended, it adds now."
EARLIER = "That was another session."
READS = {
    "claude": ("Read", {"file_path": f"{cell.HOME}/project/calc.py"}),
    "grok": ("list_dir", {"target_directory": "."}),
    "codex": ("update_plan", {"plan": [{"step": "look", "status": "completed"}]}),
}
"""A second call of each client: one that others do not know by this name."""

LOGO = (
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAAeUlEQVR4nO3PQQkAMAzAwCqpfymTNRF7HINABFzm"
    "7H7dcEEDWtCAFjSgBQ1oQQNa0IAWNKAFDWhBA1rQgBY0oAUNaEEDWtCAFjSgBQ1oQQNa0IAWNKAFDWhBA1rQgBY0"
    "oAUNaEEDWtCAFjSgBQ1oQQNa0IAWNKAFj13Kp0DxHeM4GQAAAABJRU5ErkJggg=="
)
"""A picture that every client takes for large enough, in base64."""

SURROUNDINGS = "<environment_context>"
"""How Codex's words about its sandbox begin, which stay behind."""

OLDER = "claude-2.1.80"
WRITERS = ("claude", "codex", "grok", "ours")
READERS = ("claude", OLDER, "codex", "grok")


@functools.cache
def no_cell() -> str:
    """Say why nothing can run here."""
    return cell.missing()


def client(name: str) -> Agent:
    """Return a client, or skip with the reason why there is none."""
    if why := no_cell():
        pytest.skip(why)
    if not (CLIENTS / "bin" / name).exists():
        reason = CLIENTS / f"{name}.reason"
        pytest.skip(reason.read_text() if reason.exists() else "scripts/clients was not run")
    return AGENTS["codex notify" if name == "codex" else name.partition("-")[0]]


def going_on(name: str, session: str) -> list[str]:
    """Return the command with which a client goes on with a session of its own."""
    program = str(CLIENTS / "bin" / name)
    if name == "codex":
        sure = "--dangerously-bypass-approvals-and-sandbox"
        return [program, "exec", "--skip-git-repo-check", sure, "resume", session, NEXT]
    if name == "grok":
        prompt = ("--system-prompt-override", "You are a coding agent.")
        return [program, "-p", NEXT, "-r", session, "--always-approve", *prompt]
    return [program, "-p", NEXT, "--resume", session]


def order(
    agent: Agent,
    home: Path,
    prompt: str,
    answers: list[Any],
    *commands: list[str],
    talks: Sequence[dict[str, str]] = (),
) -> dict[str, Any]:
    """Run commands in the home, with a model that answers so to the prompt."""
    return cell.run(
        {
            "home": str(home),
            "commands": commands,
            "talks": talks,
            "env": ENV | agent.env,
            "prompt": prompt,
            "answers": answers,
            "harm": "none",
        }
    )


def written(writer: str, home: Path) -> Path:
    """Have a session written; gives its file."""
    if writer == "ours":
        return _by_our_journal(home)
    agent = client(writer)
    agent.settle(home)
    answers = [agent.tool, READS[agent.name], ANSWER]
    asked = order(agent, home, PROMPT, answers, agent.ask())["ran"][0]
    assert 0 == asked["code"], asked
    logs = {"claude": "projects/*/*.jsonl", "codex": "sessions/*/*/*/*.jsonl"}
    paths = (home / agent.folder).glob(logs.get(writer, "sessions/*/*/updates.jsonl"))
    return next(iter(paths))


def with_an_image(writer: str, home: Path) -> Path:
    """Have a session written in which a picture was read, and for Claude Code a file was named."""
    agent = client(writer)
    agent.settle(home)
    (home / "project" / "logo.png").write_bytes(base64.b64decode(LOGO))
    looks = {
        "claude": ("Read", {"file_path": f"{cell.HOME}/project/logo.png"}),
        "grok": ("read_file", {"target_file": "logo.png"}),
    }
    ask = [f"{word} See @calc.py" if word == PROMPT else word for word in agent.ask()]
    asked = order(agent, home, PROMPT, [looks[writer], ANSWER], ask)["ran"][0]
    assert 0 == asked["code"], asked
    logs = {"claude": "projects/*/*.jsonl", "grok": "sessions/*/*/updates.jsonl"}
    return next(iter((home / agent.folder).glob(logs[writer])))


def _by_our_journal(home: Path) -> Path:
    project = home / "project"
    project.mkdir(parents=True)
    (home / ".thence").mkdir(mode=0o700)
    session = Journal(home / ".thence").create(cwd=str(cell.HOME / "project"))
    look = {"type": "tool_use", "id": "call_look", "name": "shell", "input": {"command": "ls"}}
    find = {"type": "tool_use", "id": "call_find", "name": "find_symbol", "input": {"name": "add"}}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"}
    turns: list[tuple[str, Any]] = [
        ("user", PROMPT),
        ("assistant", [thought, {"type": "text", "text": "I look."}, look, find]),
        ("user", [_result("call_find", "calc.py:1"), _result("call_look", "calc.py")]),
        ("assistant", [{"type": "text", "text": ANSWER}]),
    ]
    for role, content in turns:
        session.record(role, {"role": role, "content": content})
    session.close()
    return next((home / ".thence").rglob(f"{session.id}.jsonl"))


def _result(call: str, text: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": text}


def inside(path: Path, home: Path) -> str:
    """Return a file's name inside the cell."""
    return str(cell.HOME / path.relative_to(home))


class Handed(NamedTuple):
    """A session that was handed over, and what its new agent asked its model then."""

    chain: list[dict[str, Any]]
    report: dict[str, Any]
    asked: list[dict[str, Any]]
    after: dict[str, Any]
    """The new session, as we read it when the client has gone on with it."""


def used(agent: Agent, reader: str, home: Path) -> None:
    """Make a home one in which a client has run before, as every user's is."""
    folder = home / agent.folder
    folder.mkdir(exist_ok=True)
    settings = folder / "config.toml"
    if agent.settings and not settings.exists():
        settings.write_text(agent.settings)
    ask = [str(CLIENTS / "bin" / reader), *agent.program]
    (ran,) = order(agent, home, PROMPT, [EARLIER], ask)["ran"]
    assert 0 == ran["code"], ran
    if agent.name == "codex":
        assert list(folder.glob("state_*.sqlite"))


def talked(agent: Agent, home: Path, line: str) -> dict[str, Any]:
    """Run a command line on a terminal; type the next prompt when the history is shown."""
    card = home / ".claude.json"
    if agent.name == "claude":  # questions that a client asks once in its life
        known = json.loads(card.read_text())
        known |= {"hasCompletedOnboarding": True, "theme": "dark"}
        known["customApiKeyResponses"] = {"approved": ["none"], "rejected": []}
        known["projects"] = {f"{cell.HOME}/project": {"hasTrustDialogAccepted": True}}
        card.write_text(json.dumps(known))
    line = f"PATH={CLIENTS}/bin:$PATH; export PATH; {line}"
    talk = {"line": line, "shown": ANSWER, "typed": NEXT, "answer": DONE}
    done = order(agent, home, NEXT, [DONE], talks=[talk])
    assert 0 == done["ran"][0]["code"], done["ran"][0]["out"][-3000:]
    return done


def handed(reader: str, path: Path, home: Path, *options: str) -> Handed:
    """Hand a session over and let the other client go on with it."""
    agent = client(reader)
    used(agent, reader, home)
    before = path.read_bytes()
    here = inside(path, home)
    hand = thence("handoff", here, "--to", agent.name, "--json", *options)
    show = thence("show", here, "--as", "messages", "--json")
    shown, gave = order(agent, home, PROMPT, [ANSWER], show, hand)["ran"]
    assert 0 == gave["code"], gave
    report = json.loads(gave["out"])
    done = order(agent, home, NEXT, [DONE], going_on(reader, report["session"]))
    assert 0 == done["ran"][0]["code"], done["ran"][0]
    assert before == path.read_bytes()
    log = next(name for name in report["files"] if not name.endswith("summary.json"))
    again = thence("show", log, "--json")
    (after,) = order(agent, home, PROMPT, [ANSWER], again)["ran"]
    assert 0 == after["code"], after
    return Handed(json.loads(shown["out"]), report, done["asked"], json.loads(after["out"]))


# -- what was sent --------------------------------------------------------------------------


class Part(NamedTuple):
    """One part of a request."""

    kind: str
    role: str
    text: str
    call: str = ""


def parts(body: dict[str, Any]) -> Iterator[Part]:
    """Yield the parts of a request of any API, in order."""
    for message in body.get("contents", ()):
        yield from _parts_of_gemini(message)
    for message in body.get("messages", ()):
        yield from _parts_of_message(message)
    for item in body.get("input", ()):
        kind = item.get("type", "message")
        if kind.endswith("_call_output"):
            yield Part("result", "user", _text(item["output"]), item["call_id"])
        elif kind.endswith("_call"):
            yield Part("call", "assistant", item["name"], item["call_id"])
        elif kind == "message":
            yield Part("text", item["role"], _text(item["content"]))
        else:
            yield Part(kind, "", "")


def _parts_of_message(message: dict[str, Any]) -> Iterator[Part]:
    """Yield the parts of a message of the Messages or the Chat Completions API."""
    content = message.get("content") or []
    if message["role"] == "tool":
        yield Part("result", "user", _text(content), message["tool_call_id"])
        return
    for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        if block["type"] == "tool_use":
            yield Part("call", "assistant", block["name"], block["id"])
        elif block["type"] == "tool_result":
            yield Part("result", "user", _text(block["content"]), block["tool_use_id"])
        else:
            yield Part(block["type"], message["role"], block.get("text", ""))
    for call in message.get("tool_calls") or ():
        yield Part("call", "assistant", call["function"]["name"], call["id"])


def _parts_of_gemini(message: dict[str, Any]) -> Iterator[Part]:
    role = "assistant" if message["role"] == "model" else "user"
    for part in message["parts"]:
        if "functionCall" in part:
            call = part["functionCall"]
            yield Part("call", role, call["name"], call.get("id", ""))
        elif "functionResponse" in part:
            answer = part["functionResponse"]
            yield Part("result", role, json.dumps(answer["response"]), answer.get("id", ""))
        else:
            yield Part("text", role, part.get("text", ""))


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)


def missing(chain: list[dict[str, Any]], sent: list[Part]) -> list[str]:
    """Say what of a chain is not in a request, or not in its place."""
    out: list[str] = []
    at = 0
    results = {
        block["tool_use_id"]: _text(block["content"])
        for message in chain
        for block in message["content"]
        if block["type"] == "tool_result"
    }
    for message in chain:
        last = at
        for block in message["content"]:
            if block.get("text", "").startswith(SURROUNDINGS):
                continue
            places = [i for i in range(at, len(sent)) if _says(sent[i], block, message, results)]
            skipped = block["type"] in ("thinking", "tool_result") and not places
            if not places and not skipped:
                out.append(f"{message['role']}: {json.dumps(block)[:200]}")
            last = max(last, places[0] if places else last)
        at = last
    return out


def _says(part: Part, block: dict[str, Any], message: dict[str, Any], results: Any) -> bool:
    if block["type"] == "text":
        return part.role == message["role"] and block["text"].strip() in part.text
    if block["type"] == "tool_result":
        return part.kind == "result" and part.call == block["tool_use_id"]
    if block["type"] == "tool_use":
        is_told = f"I called {block['name']}," in part.text and results[block["id"]] in part.text
        return (part.kind == "call" and part.call == block["id"]) or (
            part.kind == "text" and part.role == "assistant" and is_told
        )
    return False


def pairs(sent: list[Part]) -> tuple[list[str], list[str]]:
    """Return the calls of a request and what was answered."""
    calls = [part.call for part in sent if part.kind == "call"]
    return sorted(calls), sorted(part.call for part in sent if part.kind == "result")


def counted_once(done: Handed) -> None:
    """Check that what was handed over is a copy, what came after it is not, and the tie is told."""
    events = done.after["events"]
    states = {event["summary"]: event["state"] for event in events if event["summary"]}
    (edge,) = (edge for edge in done.after["edges"] if edge["link"] == "adopt")

    assert ("replayed", "live") == (states[PROMPT], states[NEXT])
    assert "live" == states[DONE]
    assert [] == [e for e in events if e["kind"] == "tool_call" and e["state"] != "replayed"]
    assert done.report["session_uid"] == f"{edge['agent']}:{edge['session']}"
    assert edge["event"]


# -- tests ----------------------------------------------------------------------------------


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("writer", WRITERS)
def test_the_next_client_sends_the_whole_history(writer: str, reader: str, tmp_path: Path) -> None:
    """Every message of the live chain, in order, every call answered, then the new prompt."""
    client(reader)
    home = tmp_path / "home"
    done = handed(reader, written(writer, home), home)
    sent = list(parts(done.asked[0]))
    calls, results = pairs(sent)

    assert [] == missing(done.chain, sent)
    assert calls == results
    assert NEXT in sent[-1].text or any(NEXT in part.text for part in sent[-3:])
    assert [] == [part for part in sent if part.kind in ("thinking", "reasoning")]
    report = done.report
    counted = [sum(report[name].values()) for name in ("kept", "mapped", "told")]
    assert 2 == report["calls"] == sum(counted)
    if writer != reader.partition("-")[0]:
        assert report["mapped"]
    assert (writer == "codex") == (SURROUNDINGS in report["left"])
    counted_once(done)


@pytest.mark.parametrize("reader", ["claude", OLDER])
def test_a_session_goes_on_from_an_earlier_event(reader: str, tmp_path: Path) -> None:
    """What was said after that event is not sent; what led to it is, with its result."""
    client(reader)
    home = tmp_path / "home"
    path = written("claude", home)
    call = next(
        record
        for record in map(json.loads, path.read_text().splitlines())
        if any(
            isinstance(block, dict) and block.get("name") == "Bash"
            for block in (record.get("message") or {}).get("content") or ()
        )
    )
    done = handed(reader, path, home, "--at", call["uuid"])
    sent = list(parts(done.asked[0]))
    calls, results = pairs(sent)

    assert [] == missing(done.chain[:2], sent)
    assert [call["message"]["content"][0]["id"]] == calls == results
    assert [] == [part for part in sent if ANSWER in part.text]
    assert call["uuid"] == done.report["event"]


@pytest.mark.parametrize(
    ("writer", "reader"),
    [("claude", "codex"), ("grok", "codex"), ("codex", "claude"), ("codex", "grok")],
)
def test_the_printed_command_resumes_in_the_clients_own_interface(
    writer: str, reader: str, tmp_path: Path
) -> None:
    """In a home where the client has run: the history is shown, and sent with the next prompt."""
    agent = client(reader)
    home = tmp_path / "home"
    path = written(writer, home)
    used(agent, reader, home)
    hand = thence("handoff", inside(path, home), "--to", agent.name, "--json")
    show = thence("show", inside(path, home), "--as", "messages", "--json")
    shown, gave = order(agent, home, PROMPT, [ANSWER], show, hand)["ran"]
    done = talked(agent, home, json.loads(gave["out"])["command"])
    sent = list(parts(done["asked"][0]))
    calls, results = pairs(sent)

    assert [] == missing(json.loads(shown["out"]), sent)
    assert calls == results
    assert any(NEXT in part.text for part in sent[-3:])


def test_resume_with_codex_goes_on_in_one_step(tmp_path: Path) -> None:
    """`thence resume ID --with codex --exec` hands the session over and runs the client on it."""
    agent = client("codex")
    home = tmp_path / "home"
    path = written("claude", home)
    used(agent, "codex", home)
    run = shlex.join(thence("resume", path.stem, "--with", "codex", "--yes", "--exec"))
    (swept,) = order(agent, home, PROMPT, [ANSWER], thence("sweep", "--json"))["ran"]
    assert 0 == swept["code"], swept
    done = talked(agent, home, run)
    sent = list(parts(done["asked"][0]))

    assert any(PROMPT in part.text for part in sent)
    assert any(ANSWER in part.text for part in sent)
    assert any(NEXT in part.text for part in sent[-3:])


@pytest.mark.parametrize(("writer", "reader"), [("claude", "grok"), ("grok", "claude")])
def test_an_image_in_a_result_reaches_the_next_model(
    writer: str, reader: str, tmp_path: Path
) -> None:
    """The next client sends the picture itself, in the result of the call that read it."""
    client(reader)
    home = tmp_path / "home"
    done = handed(reader, with_an_image(writer, home), home)
    items = done.asked[0].get("input") or [
        block for message in done.asked[0]["messages"] for block in message["content"]
    ]
    kinds = ("tool_result", "function_call_output")
    results = [item for item in items if isinstance(item, dict) and item.get("type") in kinds]

    assert 1 == len(results)
    assert LOGO in json.dumps(results[0])
    assert not any("image" in name for name in done.report["left"])


@pytest.mark.parametrize("reader", ["claude", OLDER, "codex", "grok"])
def test_a_file_that_a_prompt_names_reaches_the_next_model(reader: str, tmp_path: Path) -> None:
    """Its content is sent, and where that is another agent's model not as the user's words."""
    client(reader)
    home = tmp_path / "home"
    done = handed(reader, with_an_image("claude", home), home)
    texts = [part.text for part in parts(done.asked[0]) if "1\tdef add(a, b):" in part.text]

    assert 1 == len(texts)
    if reader in ("codex", "grok"):
        assert texts[0].startswith("[Recorded by claude, not written by the user:]")
        assert "<user_query>" not in texts[0]


@pytest.mark.parametrize("reader", ["claude", "codex", "grok"])
def test_a_session_with_files_and_images_resumes_in_the_clients_own_interface(
    reader: str, tmp_path: Path
) -> None:
    """What the user did not write is no prompt on the screen, and is sent with the next one."""
    agent = client(reader)
    home = tmp_path / "home"
    path = with_an_image("claude", home)
    used(agent, reader, home)
    hand = thence("handoff", inside(path, home), "--to", agent.name, "--json")
    (gave,) = order(agent, home, PROMPT, [ANSWER], hand)["ran"]
    done = talked(agent, home, json.loads(gave["out"])["command"])
    sent = list(parts(done["asked"][0]))

    assert any("1\tdef add(a, b):" in part.text for part in sent)
    assert any(NEXT in part.text for part in sent[-3:])
