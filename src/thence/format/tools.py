"""What a tool call does: its kind, its script, the files it touches, a line for people to read.

Everything known of foreign tools stands here in tables; the functions only read them, so a new tool
is one more name in a row. A `Toolbox` has these names and those that agents add. It judges a call
once, when its session is stored or read; whoever asks later has the `Effect`, and needs no names.

Invariants: nothing raises, whatever the shape of the arguments; time is linear, as far as shell
reads a script; no files, no clock, no state. What is not evident is left out: a path held in a
variable is no touch.

Never here: how a call ended (see errors), test runs (see testruns), events (see derived_events),
the reading of logs (see agents).
"""

# ruff: noqa: A002 - `input` is the name the Messages API gives it

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from thence.format import output, patches, shell
from thence.format.expressions import expression
from thence.format.patches import Change, Touch
from thence.format.testruns import test_runner

SUMMARY_LIMIT = 120


class Effect(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a call does: enough to compare and name it without its input."""

    kind: str = ""
    """The kind of its tool, as `TOOLS` has it; empty when it is none of these."""
    argument: str = ""
    """The argument that holds its script, path or list, where only its agent calls it so."""
    is_script: bool = False
    runner: str | None = None
    """The test runner that its script starts."""
    touches: tuple[tuple[str, str], ...] = ()
    """Files by path, and how each is touched; see `Touch`."""
    retry_key: int | None = None
    """Equal for calls that try the same: the same tests, files or arguments. None for no other."""

    @property
    def edited(self) -> tuple[str, ...]:
        """Paths of the files that it changes."""
        return tuple(path for path, how in self.touches if how != "read")


# fmt: off
TOOLS = (
    ("shell", ("bash shell shell_command exec_command local_shell local_shell_call container.exec "
               "run_terminal_command run_terminal_cmd run_shell_command run_command "
               "execute_command terminal monitor powershell run_commands execute")),
    ("read", ("read read_file readfile view view_file view_image notebookread read_text_file "
              "read_many_files read_files")),
    ("write", "write write_file create create_file"),
    ("edit", ("edit multiedit notebookedit search_replace searchreplace replace edit_file "
              "str_replace_editor str_replace_based_edit_tool replace_string_in_file "
              "notebook_edit patch editor")),
    ("patch", "apply_patch applypatch exec"),
    ("search", ("grep glob rg find search_file_content grep_search file_search codebase_search "
                "search_files search_codebase")),
    ("list", "ls list_dir listdir list_directory tree list"),
    ("fetch", "webfetch web_fetch fetch fetchurl web_extract fetch_web_content"),
    ("web", "websearch web_search google_web_search"),
    ("agent", ("task agent spawn_agent spawn_subagent invoke_agent agentswarm "
               "delegate_task delegate subagent")),
    ("plan", ("todowrite todo_write update_plan taskcreate taskupdate write_todos todolist "
              "task_create task_update todo checklist")),
)
# fmt: on
"""Kind of tool, and the names agents give it, lower case and without an MCP server's prefix."""
_COMMANDS = ("command", "cmd")
# fmt: off
_PATHS = ("file_path", "path", "target_file", "notebook_path", "filePath", "absolute_path",
          "filepath")
# fmt: on
_OF_FILES = frozenset({"read", "write", "edit", "patch"})
_CONTENTS = ("content", "contents", "file_text")
_OLD = ("old_string", "old_str", "oldString", "oldText", "old_text", "before")
_NEW = ("new_string", "new_str", "newString", "newText", "new_text", "after")
_OPERANDS = {"rm": "delete", "unlink": "delete", "touch": "add", "tee": "add"}
_READERS = {
    name: row
    for row in (
        ("cat tac nl less more bat batcat", "", 0),
        ("head tail wc", "-n -c --lines --bytes", 0),
        ("sed", "", 1),
        ("grep egrep fgrep rg", "-A -B -C -m -g -t --include --exclude --glob --type", 1),
        ("awk gawk jq", "-F -v --arg", 1),
    )
    for name in row[0].split()
}
"""Programs that read files by name: names, options with a value, words before the files."""
_SEARCHERS = frozenset({"grep", "egrep", "fgrep", "rg"})
"""Of these, those that take folders as well."""
_PATTERN_OPTION = expression(r"-[a-zA-Z]*[ef]|--expression|--regexp|--file|--from-file")
_FILE_NAME = expression(r"[^/]\.\w+$")
"""How a path ends that is no folder, as far as it tells."""
_VERBS = {"add": "wrote", "edit": "edited", "delete": "deleted", "move": "moved", "read": "read"}
_UNCLEAR = expression(r"[$*?`{}\[\]]|^\d+$|^/(?:dev|proc|tmp|var/tmp)/")
_MAY_TOUCH = expression(
    r">|\b(?:rm|mv|tee|sed|perl|unlink|touch|apply_?patch|cat|tac|nl|less|more|bat|batcat|head|tail"
    r"|wc|[ef]?grep|rg|g?awk|jq)\b"
)


class _Call(NamedTuple):
    """A call as it was really made: its tool, of which kind that is, and its arguments."""

    tool: str
    kind: str
    args: object
    commands: Sequence[str] = _COMMANDS
    """Names of arguments that may hold a script."""
    paths: Sequence[str] = _PATHS
    """Names of arguments that may hold the path of a file."""


class Toolbox(msgspec.Struct, frozen=True, dict=True):
    """The names of tools that are known, and of their arguments."""

    kinds: Mapping[str, str]
    """Kinds of tools by their names, lower case and without an MCP server's prefix."""
    commands: tuple[str, ...] = _COMMANDS
    paths: tuple[str, ...] = _PATHS
    lists: Mapping[str, str] = MappingProxyType({})
    """Of tools that keep a list of todos the argument that holds it."""
    own: Mapping[str, Toolbox] = MappingProxyType({})
    """By agent the names that count for its sessions alone, and all others."""
    agents: frozenset[str] = frozenset()
    """The agents that are installed: only who knows an agent judges what its tools do anew."""

    def with_names(
        self,
        tools: Mapping[str, Iterable[str]],
        *,
        commands: Iterable[str] = (),
        paths: Iterable[str] = (),
        lists: Mapping[str, str] | None = None,
    ) -> Toolbox:
        """Return one with more names, tools by kind; what this one says stays."""
        more = {_name(name): kind for kind, names in reversed([*tools.items()]) for name in names}
        new = {tool: argument for tool, argument in (lists or {}).items() if not self.kind(tool)}
        return Toolbox(
            MappingProxyType({**more, **self.kinds}),
            tuple(dict.fromkeys((*self.commands, *commands))),
            tuple(dict.fromkeys((*self.paths, *paths))),
            MappingProxyType({**new, **self.lists}),
        )

    def of(self, agent: str) -> Toolbox:
        """Return the names that count for the sessions of an agent."""
        return self.own.get(agent, self)

    @cached_property
    def version(self) -> int:
        """A hash, of 48 bits, of all that decides what a call is taken for."""
        tables = sorted(self.kinds.items()), self.commands, self.paths, sorted(self.lists.items())
        return int.from_bytes(blake2b(repr(tables).encode(), digest_size=6).digest())

    def kind(self, tool: object) -> str:
        """Name the kind of a tool as `TOOLS` has it; empty when it is none of these."""
        return self.kinds.get(_name(tool), "")

    def judge(self, tool: str, input: object, known: Effect | None = None) -> tuple[Effect, str]:
        """Return what a call does, and one short line that says so to a human.

        A tool, or an argument, that has no name here is what it is `known` to be from where it
        had one.
        """
        name, args = _unfold(tool, input)
        call = _Call(name, self.kind(name), args, self.commands, self.paths)
        argument = self.lists.get(name, "")
        if known is not None and not call.kind:
            call, argument = _known_call(known, tool, input), known.argument
        elif known is not None and known.argument:
            own, argument = (known.argument,), argument or known.argument
            call = call._replace(commands=(*self.commands, *own), paths=(*self.paths, *own))
        script = _command(call)
        touched = _touches(call, script)
        argument = _argument(call, script, touched) or argument
        line = _summary(call, script, touched)
        touches = tuple((touch.path, touch.how) for touch in touched)
        if script is not None:
            runner = test_runner(script)
            key = _retry_key("shell", runner or " ".join(script.split()))
            return Effect(call.kind, argument, True, runner, touches, key), line  # noqa: FBT003
        try:
            key = _retry_key(f"{tool}", *(sorted(path for path, _ in touches) or [repr(input)]))
        except RecursionError:  # nested deeper than Python follows: the same as nothing else
            return Effect(call.kind, argument), line
        return Effect(call.kind, argument, touches=touches, retry_key=key), line


def command(effect: Effect, tool: str, input: object) -> str | None:
    """Return the script a shell tool was asked to run, or None if it is no shell tool's call."""
    return _command(_known_call(effect, tool, input))


def touches(effect: Effect, tool: str, input: object) -> list[Touch]:
    """Return the files a call edits or reads, as far as its input alone makes that evident."""
    call = _known_call(effect, tool, input)
    return list(_touches(call, _command(call), counts=True))


def changes(effect: Effect, tool: str, input: object) -> list[Change]:
    """Return what a call changes in files, as far as its input holds the very texts."""
    call = _known_call(effect, tool, input)
    kind, args = call.kind, call.args
    script = _command(call)
    if script is not None:
        return patches.changes_in(script) if "*** Begin Patch" in script else []
    if kind == "patch":
        return patches.changes_in(_patch_text(args) or "")
    path = _pick(args, call.paths)
    if kind not in _OF_FILES or not isinstance(args, dict) or not path:
        return []
    if (content := _pick(args, _CONTENTS)) is not None and _pick(args, _OLD) is None:
        return [Change(path, "add", "", content)]
    edits = args.get("edits")
    return [
        Change(path, "edit", old, new)
        for edit in (edits if isinstance(edits, list) else [args])
        if (old := _pick(edit, _OLD)) is not None and (new := _pick(edit, _NEW)) is not None
    ]


def _known_call(effect: Effect, tool: str, input: object) -> _Call:
    """Return a call that was judged before."""
    name, args = _unfold(tool, input)
    if not effect.argument:
        return _Call(name, effect.kind, args)
    return _Call(name, effect.kind, args, (effect.argument,), (effect.argument,))


def _argument(call: _Call, script: str | None, touched: Sequence[Touch]) -> str:
    """Return the argument that holds the script or the path, if only an agent calls it so."""
    usual, names = (_COMMANDS, call.commands) if script is not None else (_PATHS, call.paths)
    args = call.args
    if not (touched or script) or not isinstance(args, dict) or any(n in args for n in usual):
        return ""
    return next((name for name in names if name in args), "")


def _touches(call: _Call, script: str | None, *, counts: bool = False) -> Sequence[Touch]:
    if script is not None:
        return _shell_touches(script)
    if call.kind == "search":
        path = _pick(call.args, call.paths)
        return [Touch(path, "read")] if path and _FILE_NAME.search(path) else []
    return _file_touches(call, counts=counts) if call.kind in _OF_FILES else []


def _command(call: _Call) -> str | None:
    kind, args = call.kind, call.args
    if kind != "shell" and not (
        kind == "patch" and isinstance(args, dict) and _name(call.tool) == "exec"
    ):
        return None
    if isinstance(args, dict):
        action = args.get("action")
        args = action if isinstance(action, dict) else args
        several = args.get("commands")
        args = next((args[name] for name in call.commands if name in args), None)
        if args is None and isinstance(several, list):
            args = "\n".join(line for line in several if isinstance(line, str))
    elif isinstance(args, str) and args.lstrip()[:1] in ("{", "["):
        return None  # arguments the model garbled
    if isinstance(args, list):
        args = _script(args)
    return args if isinstance(args, str) and args.strip() else None


def _file_touches(call: _Call, *, counts: bool) -> list[Touch]:
    """Return the files a tool for files touches; lines are counted only if somebody asks."""
    kind, args = call.kind, call.args
    if kind == "patch":
        return _patch_touches(args)
    if kind == "read" and isinstance(args, dict) and isinstance(args.get("files"), list):
        named = (_pick(file, call.paths) for file in args["files"])
        return [Touch(path, "read") for path in named if path]
    path = _pick(args, call.paths)
    if not isinstance(args, dict) or not path:
        return []
    verb = args.get("command")  # the text editor tool: one tool, its verb among the arguments
    if kind == "read" or (kind == "edit" and verb == "view"):
        return [Touch(path, "read")]
    if kind == "write" or (kind == "edit" and verb == "create"):
        content = _pick(args, _CONTENTS) if counts else None
        return [Touch(path, "add", None if content is None else len(content.splitlines()))]
    return [_edit_touch(path, args) if counts else Touch(path, "edit")]


def _retry_key(*parts: str) -> int:
    text = "\n".join(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=7).digest())


def _summary(call: _Call, script: str | None, touched: Sequence[Touch]) -> str:
    """Return one short line for a human: what the call did."""
    if script is None:
        shown = touched if call.kind in _OF_FILES else ()
        line = _describe_touches(shown) if shown else _describe_call(call)
    elif "*** Begin Patch" in script and touched:
        line = _describe_touches(touched)
    else:
        line = "ran " + shell.without_heredocs(script)
    line = line[: output.CLIP]
    if "  " in line or not line.isprintable():
        line = output.CONTROL.sub(" ", line)
    line = line.strip()
    return line if len(line) <= SUMMARY_LIMIT else line[: SUMMARY_LIMIT - 1] + "…"


def _describe_touches(touched: Sequence[Touch]) -> str:
    verb = _VERBS[touched[0].how]
    if len(touched) == 1:
        return f"{verb} {touched[0].path}"
    if len({touch.how for touch in touched}) > 1:
        verb = "edited"
    names = ", ".join(touch.path for touch in touched[:3])
    return f"{verb} {names}" + (f" and {len(touched) - 3} more" if touched[3:] else "")


def _describe_call(call: _Call) -> str:
    """Say in words what a call of a tool that touches no file asks for."""
    kind, args = call.kind, call.args
    what = _pick(args, ("pattern", "query", "url", "description", "prompt", "task")) or ""
    where = _pick(args, ("path", "dir_path", "target_directory", "dirpath", "directory_path")) or ""
    if kind == "agent":
        return f"asked a subagent: {what}".rstrip(": ")
    if kind == "plan":
        return "updated the plan"
    if kind == "list":
        return f"listed {where or '.'}"
    if kind == "search":
        return f"searched for {what}" + (f" in {where}" if where else "")
    asks = {"fetch": "fetched", "web": "searched the web for"}.get(kind)
    return f"{asks} {what}" if asks else f"called {call.tool or 'a tool'}"


@lru_cache(maxsize=1024)
def _short_name(tool: str) -> str:
    return tool.rsplit("__", 1)[-1].lower()


def _name(tool: object) -> str:
    """Return the name of a tool as tables have it."""
    if not isinstance(tool, str):
        return ""
    return _short_name(tool) if len(tool) < 100 else tool.rsplit("__", 1)[-1].lower()


BUILT_IN = Toolbox(
    MappingProxyType({name: kind for kind, names in reversed(TOOLS) for name in names.split()})
)
"""The names that are known without any agent."""


def _unfold(tool: object, input: object) -> tuple[str, object]:
    """Return the tool really called and its arguments, decoded when they are JSON text."""
    args = _decode_json(input) if isinstance(input, str) else input
    if tool == "use_tool" and isinstance(args, dict):  # a door to MCP servers
        tool, args = args.get("tool_name"), _decode_json(args.get("tool_input"))
    return tool if isinstance(tool, str) else "", args


def _decode_json(value: object) -> object:
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):  # some clients send arguments as text, some as values
            return value
    return value


def _pick(args: object, names: Sequence[str]) -> str | None:
    """Return the first of these arguments that is a text."""
    if isinstance(args, dict):
        for name in names:
            value = args.get(name)
            if isinstance(value, str):
                return value
    return None


def _script(argv: list[object]) -> str | None:
    """Return the script of an argument vector: what a shell was handed, else the words quoted."""
    words = [word for word in argv if isinstance(word, str)]
    if len(words) != len(argv) or not words:
        return None
    handed = shell.script_argument(words)
    return shlex.join(words) if handed is None else handed


def _edit_touch(path: str, args: dict[str, object]) -> Touch:
    """Count the lines of an edit or a list of edits, without the context both texts share."""
    edits = args.get("edits")
    added = removed = 0
    for edit in edits if isinstance(edits, list) else [args]:
        old, new = _pick(edit, _OLD), _pick(edit, _NEW)
        if old is None or new is None or edit.get("replace_all"):
            return Touch(path, "edit")
        before, after = old.splitlines(), new.splitlines()
        while before and after and before[-1] == after[-1]:
            before.pop(), after.pop()
        shared = 0
        while shared < min(len(before), len(after)) and before[shared] == after[shared]:
            shared += 1
        added, removed = added + len(after) - shared, removed + len(before) - shared
    return Touch(path, "edit", added, removed)


def _patch_text(args: object) -> str | None:
    text = args if isinstance(args, str) else _pick(args, ("patch", "input", "patchText"))
    return None if text is None else patches.unquote_patch(text)


def _patch_touches(args: object) -> list[Touch]:
    """Return the files of a patch: its own text, or the one quoted in a code-mode script."""
    text = _patch_text(args)
    return [] if text is None else patches.touches_in(text)


def _shell_touches(script: str) -> tuple[Touch, ...]:
    """Return the files a script changes where that is evident: no variables, globs, temporaries."""
    return _short_touches(script) if len(script) <= shell.SHORT else _script_touches(script)


@lru_cache(maxsize=4096)
def _short_touches(script: str) -> tuple[Touch, ...]:
    return _script_touches(script)


def _script_touches(script: str) -> tuple[Touch, ...]:
    if _MAY_TOUCH.search(script) is None:
        return ()
    touches: list[Touch] = []
    for words, writes in shell.steps(script):
        name = shell.program_name(words[0]) if words else ""
        if name in ("apply_patch", "applypatch"):
            return tuple(patches.touches_in(script))
        if words[:1] != ["[["]:  # there `>` compares
            touches += (Touch(path, "edit" if appends else "add") for path, appends in writes)
        touches += _program_touches(name, words[1:])
    return tuple([touch for touch in touches if touch.path and not _UNCLEAR.search(touch.path)])


def _program_touches(name: str, rest: list[str]) -> list[Touch]:
    """Return the files one of the few programs changes whose operands are files."""
    if name == "git" and rest[:1] in (["rm"], ["mv"]) and "--cached" not in rest:
        name, rest = rest[0], rest[1:]
    options = [word for word in rest if word.startswith("-")]
    files = [word for word in rest if word and not word.startswith("-")]
    if name in ("sed", "perl") and any(re.match(r"-[a-zA-Z]*i|--in-place", o) for o in options):
        scripts = sum(bool(re.fullmatch(r"-[a-zA-Z]*e", option)) for option in options)
        return [Touch(file, "edit") for file in files[max(1, scripts) :]]
    if name == "mv" and len(files) == 2:  # with more, the last is a directory
        return [Touch(files[0], "move"), Touch(files[1], "add")]
    how = "edit" if name == "tee" and "-a" in options else _OPERANDS.get(name)
    if how is None:
        return [Touch(file, "read") for file in _files_read(name, rest)]
    return [Touch(file, how) for file in files]


def _files_read(name: str, rest: list[str]) -> list[str]:
    """Return the files that a program is told to print or to search; folders are left out."""
    if name not in _READERS:
        return []
    _, valued, before = _READERS[name]
    options, files, at = valued.split(), [], 0
    while at < len(rest):
        word, at = rest[at], at + 1
        if before and _PATTERN_OPTION.fullmatch(word):
            before, at = 0, at + 1
        elif word in options:
            at += 1
        elif word and not word.startswith("-"):
            files.append(word)
    files = files[before:]
    return [file for file in files if _FILE_NAME.search(file)] if name in _SEARCHERS else files
