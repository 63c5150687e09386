"""What every part that an agent offers must stand: commands, tools, settings, handoff, samples.

Each function takes an agent and says in words what should not be; of a part that the agent does
not have it says nothing.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from thence.agents.handoffs import HandoffHistory, HandoffSettings, HandoffWriter
from thence.agents.profiles import Agent, HookFile, ToolForm, agents, toolbox_of
from thence.agents.samples import Machine
from thence.agents.sessions import load_source
from thence.format import tools
from thence.format.records import JSON, blocks, word
from thence.memory.readouts import readout_of

SESSION = "01890a5d-ac96-774b-bcce-b302099a8057"
MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FORMS = {
    "shell": ({"command"}, "shell"),
    "read": ({"path"}, "read"),
    "write": ({"path", "content"}, "write"),
    "edit": ({"path", "old", "new"}, "edit"),
    "search": ({"pattern"}, "search"),
    "todos": ({"items", "text", "status"}, "plan"),
    "server": ({"name", "input"}, ""),
}
"""What each form's arguments hold, and the kind of its tool."""

_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")


def labelling(agent: Agent) -> Iterator[str]:
    """It has a name, a label and colours that pages can show."""
    if not agent.label.strip():
        yield "the label is empty"
    if not _NAME.fullmatch(agent.name):
        yield f"{agent.name!r} is no name: small letters, digits, - and _"
    if agent.reader.name != agent.name:
        yield f"the reader is called {agent.reader.name}, the agent {agent.name}"
    if not all(map(_COLOUR.fullmatch, agent.profile.colours or ())):
        yield f"colours are written as #rrggbb: {agent.profile.colours}"


def resuming(agent: Agent) -> Iterator[str]:
    """Its command resumes a session, and no id can be taken for an option."""
    if not agent.offers("resume"):
        return
    profile = agent.profile
    program, *words = profile.resume_option
    if not program or program.startswith("-") or "/" in program:
        yield f"resume_option begins with a program that PATH names, not with {program!r}"
    if profile.is_positional:
        return
    if not words or not words[-1].startswith("-"):
        yield "resume_option ends with the option that takes an id, unless is_positional is set"
    elif profile.takes_equals and not (profile.long_option or words[-1]).startswith("--"):
        yield "an id that begins with a dash needs a long option: name it as long_option"


def tool_forms(agent: Agent) -> Iterator[str]:
    """Its tools are known for what they are, with the arguments that are needed."""
    toolbox = toolbox_of((*agents().values(), agent)).of(agent.name)
    known = {kind for kind, _ in tools.TOOLS}
    for kind, names in agent.profile.tools.items():
        if kind not in known:
            yield f"no kind of tool is called {kind}: {', '.join(sorted(known))}"
        yield from (f"{name} is no {kind}" for name in names if toolbox.kind(name) != kind)
    for what, form in agent.profile.forms.items():
        yield from _form(what, form, toolbox)


def _form(what: str, form: ToolForm, toolbox: tools.Toolbox) -> Iterator[str]:
    if what not in FORMS:
        yield f"no form is called {what}: {', '.join(FORMS)}"
        return
    arguments, kind = FORMS[what]
    if form.arguments.keys() != arguments:
        yield f"the form {what} names {', '.join(sorted(arguments))}"
    elif kind and toolbox.kind(form.tool) != kind:
        yield f"{form.tool} is not known as {kind}: name it in `tools`"


def settings(agent: Agent) -> Iterator[str]:
    """Our hooks and our server go into its settings and out again, byte for byte."""
    for file in agent.profile.hooks:
        for body in _bodies(file.form):
            yield from _check_hooks(agent.name, file, body)
    servers = agent.profile.servers
    for body in _bodies(servers.form) if servers is not None else ():
        yield from _check_server(agent, body)


def _bodies(form: str) -> tuple[bytes | None, ...]:
    """Return settings before ours come in: none, empty ones, and some of other people."""
    if form in ("json", "hooks"):
        return (None, b"{}\n", b'{\n  "theme": "dark"\n}\n')
    if form == "script":
        return (None, b"")
    return (None, b"", b"theme: dark # mine\n" if form == "yaml" else b'theme = "dark" # mine\n')


def _check_hooks(name: str, file: HookFile, body: bytes | None) -> Iterator[str]:
    from thence.cli import hook_settings
    from thence.cli.file_changes import carry_out

    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / ".thence"
        place = hook_settings.place_in(Path(folder) / "agent", name, file)
        _put(place.path, body)
        carry_out(hook_settings.install(place, home), keep=True)
        state = hook_settings.state(place, home)
        if not state.installed or state.missing or state.elsewhere:
            yield f"{file.path}: our hooks are not found again"
        carry_out(hook_settings.uninstall(place, home), keep=False)
        if _body(place.path) != body:
            yield f"{file.path}: it is not as it was after our hooks were taken out"


def _check_server(agent: Agent, body: bytes | None) -> Iterator[str]:
    from thence.cli import mcp_settings
    from thence.cli.file_changes import carry_out

    servers = agent.profile.servers
    assert servers is not None  # noqa: S101 - asked for such agents only
    with tempfile.TemporaryDirectory() as folder:
        place = mcp_settings.ServerPlace(agent.name, Path(folder) / servers.path, servers)
        _put(place.path, body)
        entry = mcp_settings.server_entry(Path(folder) / ".thence", Path.home() / ".thence")
        carry_out(mcp_settings.install(place, entry))
        if mcp_settings.state(place, entry) != "installed":
            yield f"{servers.path}: our server is not found again"
        carry_out(mcp_settings.uninstall(place))
        if _body(place.path) != body:
            yield f"{servers.path}: it is not as it was after our server was taken out"


def _put(path: Path, body: bytes | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if body is not None:
        path.write_bytes(body)


def _body(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


# -- sessions of other agents ---------------------------------------------------------------


def history(agent: Agent) -> list[JSON]:
    """Return messages that any agent must take: words, a call with its result, words."""
    shell = agent.profile.forms.get("shell")
    name, argument = (shell.tool, shell.arguments["command"]) if shell else ("mcp__a__run", "cmd")
    call = {"type": "tool_use", "id": "call_1", "name": name, "input": {argument: "ls -1"}}
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": "tide.py"}
    return [
        {"role": "user", "content": [{"type": "text", "text": "What lies here?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "I will look."}, call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [{"type": "text", "text": "One file: tide.py."}]},
    ]


def handing_over(agent: Agent) -> Iterator[str]:
    """A session written for it is read back by its own reader, word for word."""
    if not agent.offers("handoff"):
        return
    if not agent.offers("resume"):
        yield "a session can be handed over, and no command resumes it"
    writer = agent.writer
    if not isinstance(writer, HandoffWriter):
        yield f"{agent.profile.handoff} is no Writer"
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / "root"
        root.mkdir()
        named = writer.settings(root) if writer.settings is not None else HandoffSettings()
        messages = history(agent)
        source = {"from": "other:one", "event": "e1", "by": "thence", "at": MOMENT.isoformat()}
        session = writer.session_id(SESSION) if writer.session_id is not None else SESSION
        bound = HandoffHistory(
            session, messages, "/work", MOMENT, source, "Tides", named.model, None, named.provider
        )
        for name, rows in writer.files(bound).items():
            path = root / name
            if not path.resolve().is_relative_to(root):
                yield f"a file outside the agent's folder: {name}"
                return
            _put(path, _encode_rows(name, rows))
        if writer.accept is not None:
            yield from _check_accept(agent, writer, root)
        else:
            yield from _read_back(agent, root, messages)


def _check_accept(agent: Agent, writer: HandoffWriter, root: Path) -> Iterator[str]:
    """Say what keeps the client from taking the one file in; only it can write its sessions."""
    assert writer.accept is not None  # noqa: S101 - asked for such writers only
    paths = [str(path) for path in root.rglob("*") if path.is_file()]
    if len(paths) != 1:
        yield f"one file is taken in, not {len(paths)}"
        return
    program, *words = writer.accept(paths[0])
    if program != agent.profile.program or paths[0] not in words:
        yield f"accept names {agent.profile.program} and the file, not {program} {words}"


def _encode_rows(name: str, rows: list[JSON]) -> bytes:
    if not name.endswith(".jsonl"):
        return json.dumps(rows[0]).encode()
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _read_back(agent: Agent, root: Path, messages: list[JSON]) -> Iterator[str]:
    sources = list(agent.reader.find(root))
    if [source.session for source in sources] != [SESSION]:
        yield f"the reader finds {[source.uid for source in sources]}, not {SESSION}"
        return
    loaded = load_source(agent.reader, sources[0])
    if loaded.skipped:
        yield f"the reader skips lines of it: {loaded.skipped[0].why}"
    if (got := _contents(readout_of(loaded.graph).messages().messages)) != _contents(messages):
        yield f"it reads back as {got}"


def _contents(messages: list[JSON]) -> list[tuple[str, str]]:
    """Return the texts, calls and results of a history, in order."""
    return [
        (f"{block.get('type')}", _text(block))
        for message in messages
        for block in blocks(message["content"])
    ]


def _text(block: JSON) -> str:
    if block.get("type") == "tool_use":
        return json.dumps(block["input"], sort_keys=True)
    if block.get("type") == "tool_result":
        return "".join(word(part.get("text")) for part in blocks(block.get("content"))).strip()
    return word(block.get("text"))


# -- samples --------------------------------------------------------------------------------


def made_up(agent: Agent) -> Iterator[str]:
    """Its made-up sessions are found, and always the same."""
    write = agent.sample
    if write is None:
        return
    wrote: list[dict[str, bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder).resolve() / "home", Path(folder).resolve() / "work")
        for _ in range(2):
            write(machine, MOMENT)
            paths = sorted(path for path in machine.home.rglob("*") if path.is_file())
            wrote.append({str(path): path.read_bytes() for path in paths})
        if not any(agent.reader.find(machine.home)):
            yield "the reader finds no session among them"
        if machine.work.exists() and any(machine.work.iterdir()):
            yield "they write into the projects"
    if wrote[0] != wrote[1]:
        yield "one moment does not always write the same bytes"
