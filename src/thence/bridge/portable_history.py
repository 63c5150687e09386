"""What of a history another agent can take: its calls mapped or told in words, the rest counted.

Pure. `convert_messages` takes messages of one agent that an API accepts, and returns those that the
next one's API accepts, with an account of every change. Invariants: texts stay word for word and
in order; a call stays a call, with its result, only under a name and with arguments that the next
agent knows, else both are told in words; a tool's result never becomes the user's words, for these
are obeyed; thoughts that another model signed, and what the harness told of its own rules and
permissions, stay behind; nothing is left out silently.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

from thence.agents.handoffs import HandoffWriter
from thence.agents.profiles import ToolForm, agents, toolbox
from thence.errors import BadConfig
from thence.format import repair, tools
from thence.format.facts import recorder_name
from thence.format.records import JSON, blocks, word
from thence.format.tools import Toolbox

Block = dict[str, JSON]

DEEPEST: Final = 60
"""Levels that a call's arguments may have: clients skip lines that are nested much deeper."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONE: Final = re.compile("[\ud800-\udfff]")
_FENCE: Final = re.compile("`{3,}")

_STEPS: Final = frozenset({"pending", "in_progress", "completed"})

_TAGS: Final = (
    *("system-reminder", "environment_context", "permissions instructions", "user_instructions"),
    *("INSTRUCTIONS", "collaboration_mode", "model_switch", "recommended_plugins", "skill"),
    *("codex_internal_context", "git_status", "agent_skills", "mcp_servers"),
)
"""Texts in the user's mouth that tell a harness's rules, surroundings and permissions."""
_INSTRUCTIONS: Final = "# AGENTS.md instructions"
_NOT_WRITTEN: Final = (
    *("<bash-input>", "<bash-stdout>", "<bash-stderr>", "<local-command-"),
    *("<command-name>", "<command-message>", "<command-args>", "<task-notification>"),
    *("<user-prompt-submit-hook>", "<teammate-message", "<subagent_notification>"),
    *("<user_shell_command>", "<user_action>", "<turn_aborted>", "<hook_prompt"),
)
"""How texts in the user's mouth begin that hold output of commands, hooks and other agents."""
_ATTACHED: Final = re.compile(
    r"<system-reminder>\n((?:Called the|Result of calling the) \w+ tool.*)\n</system-reminder>",
    re.DOTALL,
)
"""How a client tells of a file that a prompt names."""
_IMAGE_LABEL: Final = re.compile(r"<image(?: [^>\n]*)?>|</image>")
"""What a client puts around an image."""
_USER_INFO: Final = "<user_info>"


def writer_of(target: str) -> HandoffWriter:
    """Return what writes sessions for an agent; says so where nothing does."""
    agent = agents().get(target)
    if agent is None:
        raise BadConfig(f"unknown agent {target!r}", hint=f"one of {', '.join(agents())}")
    agent.require("handoff")
    agent.require("resume")
    writer = agent.writer
    if not isinstance(writer, HandoffWriter):
        raise BadConfig(f"{agent.label}: its package has no writer", hint="update the package")
    return writer


class ConversionCounts:
    """What became of the parts of a history."""

    def __init__(self) -> None:
        self.unchanged: Counter[str] = Counter()
        """Calls that stay as they are, by tool."""
        self.mapped: Counter[str] = Counter()
        """Calls under another name, as `Bash → exec_command`."""
        self.as_text: Counter[str] = Counter()
        """Calls told in words with their results, by tool."""
        self.left: Counter[str] = Counter()
        """What stayed behind, by what it is."""


def convert_messages(
    messages: Iterable[Block], source: str, target: str
) -> tuple[list[Block], ConversionCounts]:
    """Return messages of one agent as another one can take them."""
    work = _Carrying(source, target)
    originals = list(messages)
    work.results = {
        block["tool_use_id"]: block
        for message in originals
        for block in blocks(message.get("content"))
        if block.get("type") == "tool_result"
    }
    out = [work.message(message) for message in originals]
    return repair.mend(out).messages, work.account


class _Carrying:
    """One history on its way."""

    def __init__(self, source: str, target: str) -> None:
        self.same = source == target
        self.source, self.target, self.writer = source, target, writer_of(target)
        self.toolbox = toolbox().of(source)
        self.results: dict[str, Block] = {}
        self.stays: dict[str, str] = {}
        """Calls that stay calls: their id, and their id from now on."""
        self.account = ConversionCounts()

    def message(self, message: Block) -> Block:
        role = message["role"]
        out: list[Block] = []
        for block in blocks(message.get("content")):
            made = self._assistant(block) if role == "assistant" else self._user(block)
            out += [made] if made is not None else []
        if role == "assistant" and not self.same:
            # Words that now stand beside calls go before them, where every API takes them.
            out.sort(key=lambda block: block.get("type") == "tool_use")
        return {"role": role, "content": out}

    def _left(self, what: str) -> None:
        self.account.left[what] = self.account.left.get(what, 0) + 1

    # -- the model's side ---------------------------------------------------------------

    def _assistant(self, block: Block) -> Block | None:
        kind = block.get("type")
        if kind == "text":
            return _text(word(block.get("text")))
        if kind == "tool_use":
            return self._call(block)
        if kind in ("thinking", "redacted_thinking"):
            signed = block.get("signature") or block.get("data")
            if self.same and self.writer.takes_signed_thoughts and isinstance(signed, str):
                return block
            self._left("thinking")
            return None
        self._left(f"{kind}")
        return None

    def _call(self, call: Block) -> Block:
        name, arguments = word(call.get("name")), call.get("input")
        if self.same:
            made = self._same(name, arguments)
        else:
            made = map_call(name, arguments, self.target, self.toolbox)
        if made is None or not _NAME.fullmatch(made[0]) or not is_plain(made[1]):
            return self._in_words(call)
        new = call_id(call["id"])
        self.stays[call["id"]] = new
        if made[0] == name:
            self._count(self.account.unchanged, name)
        else:
            self._count(self.account.mapped, f"{name} → {made[0]}")
        return {"type": "tool_use", "id": new, "name": made[0], "input": _clean_json(made[1])}

    @staticmethod
    def _same(name: str, arguments: JSON) -> tuple[str, Block] | None:
        return (name, arguments) if isinstance(arguments, dict) else None

    @staticmethod
    def _count(where: dict[str, int], name: str) -> None:
        where[name] = where.get(name, 0) + 1

    def _in_words(self, call: Block) -> Block:
        """Tell a call and its result as words of the model, whose doing it was."""
        name = word(call.get("name")) or "a tool"
        self._count(self.account.as_text, name)
        result = self.results.get(call["id"], {})
        failed = " (failed)" if result.get("is_error") is True else ""
        output = self._flat(result.get("content"))
        lines = (
            f"[I called {name}, a tool of {self.source} that is not offered here.]",
            f"input: {_write_json(call.get('input'))}",
            f"result{failed}:",
            fence_text(output),
        )
        return _text("\n".join(lines))

    def _flat(self, content: JSON) -> str:
        """Return a result as one text; what is no text is named and counted."""
        parts: list[str] = []
        for part in blocks(content):
            if part.get("type") == "text":
                parts.append(word(part.get("text")))
            else:
                self._left(f"{part.get('type')} in a result")
                parts.append(f"[{part.get('type')}]")
        return "\n".join(parts)

    # -- the user's side ----------------------------------------------------------------

    def _user(self, block: Block) -> Block | None:
        kind = block.get("type")
        if kind == "text":
            return self._words(word(block.get("text")))
        if kind == "tool_result":
            return self._result(block)
        if self._goes_along(block):
            return block
        self._left(f"{kind}")
        return _text(f"[{kind}]")

    def _goes_along(self, block: Block) -> bool:
        """Whether a block that is no text stays as it is."""
        return block.get("type") in self.writer.takes and isinstance(block.get("source"), dict)

    def _words(self, text: str) -> Block | None:
        """Return a text of the user's side; what the user did not write is marked as such."""
        if (attached := _ATTACHED.fullmatch(text.strip())) is not None:
            return _text(text if self.same else recorder_name(attached[1], self.source))
        if _IMAGE_LABEL.fullmatch(text.strip()) and not self.same:
            return None  # what it stands before goes along
        words, gone = without_harness(text)
        for tag in gone:
            self._left(f"<{tag}>")
        if not words.strip():
            return None
        if words.lstrip().startswith(_NOT_WRITTEN) and not self.same:
            return _text(recorder_name(words.strip(), self.source))
        return _text(words)

    def _result(self, block: Block) -> Block | None:
        new = self.stays.get(block["tool_use_id"])
        if new is None:
            return None  # told in words, with its call
        content = block.get("content")
        if isinstance(content, list):
            content = [self._part(part) for part in content]
        else:
            content = _clean_text(word(content))
        out = {"type": "tool_result", "tool_use_id": new, "content": content}
        if block.get("is_error") is not True:
            return out
        if not self.writer.takes_failures:
            self._left("mark of a failed result")  # its text still says so
        return {**out, "is_error": True}

    def _part(self, part: Block) -> Block:
        if part.get("type") == "text":
            return _text(word(part.get("text")))
        if self._goes_along(part):
            return part
        self._left(f"{part.get('type')} in a result")
        return _text(f"[{part.get('type')}]")


# -- tools ----------------------------------------------------------------------------------


def map_call(name: str, arguments: JSON, target: str, toolbox: Toolbox) -> tuple[str, Block] | None:
    """Return a call as the target knows it; None when it has nothing that says the same."""
    if not isinstance(arguments, dict):
        return None
    forms = agents()[target].profile.forms
    effect, _ = toolbox.judge(name, arguments)
    script = tools.command(effect, name, arguments) if effect.kind == "shell" else None
    if script is not None and "shell" in forms:
        # Only the script: what else was asked for may be a permission.
        return _make_call(forms["shell"], {"command": script})
    server = _of_a_server(name, arguments)
    if server is not None:
        return _to_a_server(*server, forms.get("server"))
    is_plan = effect.kind == "plan" and "todos" in forms
    plan = _plan(arguments, forms["todos"]) if is_plan else None
    return plan or _form(name, arguments, forms)


def _make_call(form: ToolForm, values: dict[str, JSON]) -> tuple[str, Block]:
    """Return a call with these values, by what they are."""
    return form.tool, {form.arguments[what]: value for what, value in values.items()} | form.more


_SAME: Final = ("read", "write", "edit", "search")
"""Tools that say the same under other names; a call with any further argument is none of them."""


def _form(name: str, arguments: Block, forms: Mapping[str, ToolForm]) -> tuple[str, Block] | None:
    arguments = {name: value for name, value in arguments.items() if value not in (False, None)}
    for agent in agents().values():
        for kind in _SAME:
            known = agent.profile.forms.get(kind)
            if known is None or known.tool != name or kind not in forms:
                continue
            if arguments.keys() == set(known.arguments.values()):
                values = {what: arguments[mine] for what, mine in known.arguments.items()}
                return _make_call(forms[kind], values)
    return None


def _of_a_server(name: str, values: Block) -> tuple[str, str, JSON] | None:
    """Return server, tool and arguments of a call to an MCP server, whoever made it."""
    arguments: JSON = values
    for agent in agents().values():
        door = agent.profile.forms.get("server")
        if door is not None and door.tool == name:
            name = f"mcp__{word(values.get(door.arguments['name']))}"
            arguments = values.get(door.arguments["input"])
            break
    prefix, _, rest = name.partition("__")
    server, _, tool = rest.partition("__")
    return (server, tool, arguments) if prefix == "mcp" and server and tool else None


def _to_a_server(
    server: str, tool: str, arguments: JSON, door: ToolForm | None
) -> tuple[str, Block] | None:
    if door is not None:
        return _make_call(door, {"name": f"{server}__{tool}", "input": arguments})
    return (f"mcp__{server}__{tool}", arguments) if isinstance(arguments, dict) else None


def _plan(arguments: Block, form: ToolForm) -> tuple[str, Block] | None:
    """Return a list of todos as another agent has it."""
    todos = arguments.get("todos")
    if not isinstance(todos, list):
        return None
    text, status = form.arguments["text"], form.arguments["status"]
    items = [
        {text: todo["content"], status: todo["status"]}
        for todo in todos
        if isinstance(todo, dict)
        and isinstance(todo.get("content"), str)
        and todo.get("status") in _STEPS
    ]
    return (form.tool, {form.arguments["items"]: items}) if len(items) == len(todos) else None


# -- texts ----------------------------------------------------------------------------------


def without_harness(text: str) -> tuple[str, list[str]]:
    """Take away what a harness put before a prompt; the rest, and the names of what went."""
    gone: list[str] = []
    rest = text
    while (start := rest.lstrip()).startswith(("<", _INSTRUCTIONS)):
        if start.startswith(_USER_INFO) and "<user_query>" not in start:
            return "", [*gone, "user_info"]
        tag = next((t for t in _TAGS if re.match(rf"<{t}[\s>]", start)), None)
        if start.startswith(_INSTRUCTIONS):
            tag = "INSTRUCTIONS"
        if tag is None:
            break
        end = f"</{tag}>" if f"</{tag}>" in start else f"</{tag.partition(' ')[0]}>"
        _, marker, rest_of = start.partition(end)
        if not marker:
            break
        gone.append(tag)
        rest = rest_of.lstrip("\n")
    return rest, gone


def fence_text(text: str) -> str:
    """Set a text between fences that it does not hold itself."""
    longest = max((len(run) for run in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{_clean_text(text)}\n{fence}"


def call_id(name: str) -> str:
    """Return a call's id if every API takes it, else one made of it."""
    if _NAME.fullmatch(name):
        return name
    return f"call_{blake2b(name.encode('utf-8', 'backslashreplace'), digest_size=12).hexdigest()}"


def is_plain(value: JSON) -> bool:
    """Whether every client reads a value back: not too deep, and of JSON's own numbers."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for entry in level
            if isinstance(entry, (dict, list))
            for inner in (entry.values() if isinstance(entry, dict) else entry)
        ]
        if not level:
            break
    try:
        return not level and bool(json.dumps(value, allow_nan=False))
    except (ValueError, TypeError, RecursionError):
        return False


def _clean_json(value: JSON) -> JSON:
    """Replace lone surrogates everywhere: a strict reader drops the whole line for one."""
    if isinstance(value, str):
        return _clean_text(value)
    if isinstance(value, list):
        return [_clean_json(entry) for entry in value]
    if isinstance(value, dict):
        return {_clean_text(name): _clean_json(entry) for name, entry in value.items()}
    return value


def _write_json(value: JSON) -> str:
    try:
        return _clean_text(json.dumps(value, ensure_ascii=False))
    except (ValueError, TypeError, RecursionError):
        return "[nested too deeply to be told]"


def _clean_text(text: str) -> str:
    return _LONE.sub("\N{REPLACEMENT CHARACTER}", text)


def _text(text: str) -> Block:
    return {"type": "text", "text": _clean_text(text)}
