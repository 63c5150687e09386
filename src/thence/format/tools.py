"""What a tool call does: its kind, its script, the files it touches, a line for people to read.

Everything known of foreign tools stands here in tables; the functions only read them, so a new tool
is one more name in a row. Agents add the names that only they have (`learn`).

Invariants: nothing raises, whatever the shape of the arguments; time is linear, as far as shell
reads a script; no files, no clock; no state but the names that agents add, of which none that is
there changes. What is not evident is left out: a path held in a variable is no touch.

Never here: how a call ended (see errors), test runs (see testruns), events (see derived_events),
the reading of logs (see agents).
"""

# ruff: noqa: A002 - `input` is the name the Messages API gives it

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b

import msgspec

from thence.format import output, patches, shell
from thence.format.expressions import expression
from thence.format.patches import Change, Touch
from thence.format.testruns import test_runner

SUMMARY_LIMIT = 120


class Effect(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a call does: enough to compare and name it without its input."""

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
_COMMANDS = ["command", "cmd"]
# fmt: off
_PATHS = ["file_path", "path", "target_file", "notebook_path", "filePath", "absolute_path",
          "filepath"]
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


class ToolAction(msgspec.Struct, frozen=True):
    """What a call does: the script it runs, if any, and the files it touches."""

    script: str | None
    touches: list[Touch]

    @property
    def edits(self) -> bool:
        """Whether it evidently changes a file."""
        return any(touch.how != "read" for touch in self.touches)


def action_of(tool: str, input: object) -> ToolAction:
    """Return what a call does, found out once for all who ask; lines are not counted."""
    return _action_of(*_unfold(tool, input))


def command(tool: str, input: object) -> str | None:
    """Return the script a shell tool was asked to run, or None if it is no shell tool's call."""
    tool, args = _unfold(tool, input)
    return _command(tool, _kind(tool), args)


def touches(tool: str, input: object) -> list[Touch]:
    """Return the files a call edits or reads, as far as its input alone makes that evident."""
    return _action_of(*_unfold(tool, input), counts=True).touches


def changes(tool: str, input: object) -> list[Change]:
    """Return what a call changes in files, as far as its input holds the very texts."""
    tool, args = _unfold(tool, input)
    kind = _kind(tool)
    script = _command(tool, kind, args)
    if script is not None:
        return patches.changes_in(script) if "*** Begin Patch" in script else []
    if kind == "patch":
        return patches.changes_in(_patch_text(args) or "")
    path = _pick(args, _PATHS)
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


def paths(tool: str, input: object) -> list[str]:
    """Return the files a call edits or reads, by name."""
    return [touch.path for touch in action_of(tool, input).touches]


def _action_of(tool: str, args: object, *, counts: bool = False) -> ToolAction:
    kind = _kind(tool)
    script = _command(tool, kind, args)
    if script is not None:
        return ToolAction(script, _shell_touches(script))
    if kind == "search":
        path = _pick(args, _PATHS)
        return ToolAction(None, [Touch(path, "read")] if path and _FILE_NAME.search(path) else [])
    return ToolAction(None, _file_touches(kind, args, counts=counts) if kind in _OF_FILES else [])


def _command(tool: str, kind: str, args: object) -> str | None:
    if kind != "shell" and not (
        kind == "patch" and isinstance(args, dict) and _name(tool) == "exec"
    ):
        return None
    if isinstance(args, dict):
        action = args.get("action")
        args = action if isinstance(action, dict) else args
        several = args.get("commands")
        args = next((args[name] for name in _COMMANDS if name in args), None)
        if args is None and isinstance(several, list):
            args = "\n".join(line for line in several if isinstance(line, str))
    elif isinstance(args, str) and args.lstrip()[:1] in ("{", "["):
        return None  # arguments the model garbled
    if isinstance(args, list):
        args = _script(args)
    return args if isinstance(args, str) and args.strip() else None


def _file_touches(kind: str, args: object, *, counts: bool) -> list[Touch]:
    """Return the files a tool for files touches; lines are counted only if somebody asks."""
    if kind == "patch":
        return _patch_touches(args)
    if kind == "read" and isinstance(args, dict) and isinstance(args.get("files"), list):
        named = (_pick(file, _PATHS) for file in args["files"])
        return [Touch(path, "read") for path in named if path]
    path = _pick(args, _PATHS)
    if not isinstance(args, dict) or not path:
        return []
    verb = args.get("command")  # the text editor tool: one tool, its verb among the arguments
    if kind == "read" or (kind == "edit" and verb == "view"):
        return [Touch(path, "read")]
    if kind == "write" or (kind == "edit" and verb == "create"):
        content = _pick(args, _CONTENTS) if counts else None
        return [Touch(path, "add", None if content is None else len(content.splitlines()))]
    return [_edit_touch(path, args) if counts else Touch(path, "edit")]


def effect_of(tool: str, input: object) -> Effect:
    """Return what a call does, as it is stored beside the call."""
    action = action_of(tool, input)
    touches = tuple((touch.path, touch.how) for touch in action.touches)
    if action.script is not None:
        runner = test_runner(action.script)
        key = _retry_key("shell", runner or " ".join(action.script.split()))
        return Effect(is_script=True, runner=runner, touches=touches, retry_key=key)
    if touches:
        return Effect(touches=touches, retry_key=_retry_key(tool, *sorted(p for p, _ in touches)))
    try:
        return Effect(retry_key=_retry_key(tool, repr(input)))
    except RecursionError:  # nested deeper than Python follows: the same as nothing else
        return Effect()


def _retry_key(*parts: str) -> int:
    text = "\n".join(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=7).digest())


def summary(tool: str, input: object) -> str:
    """Return one short line for a human: what the call did."""
    tool, args = _unfold(tool, input)
    kind = _kind(tool)
    script = _command(tool, kind, args)
    if script is None:
        touched = _file_touches(kind, args, counts=False) if kind in _OF_FILES else []
        line = _describe_touches(touched) if touched else _describe_call(tool, args)
    elif "*** Begin Patch" in script and (touched := _shell_touches(script)):
        line = _describe_touches(touched)
    else:
        line = "ran " + shell.without_heredocs(script)
    line = line[: output.CLIP]
    if "  " in line or not line.isprintable():
        line = output.CONTROL.sub(" ", line)
    line = line.strip()
    return line if len(line) <= SUMMARY_LIMIT else line[: SUMMARY_LIMIT - 1] + "…"


def _describe_touches(touched: list[Touch]) -> str:
    verb = _VERBS[touched[0].how]
    if len(touched) == 1:
        return f"{verb} {touched[0].path}"
    if len({touch.how for touch in touched}) > 1:
        verb = "edited"
    names = ", ".join(touch.path for touch in touched[:3])
    return f"{verb} {names}" + (f" and {len(touched) - 3} more" if touched[3:] else "")


def _describe_call(tool: str, args: object) -> str:
    """Say in words what a call of a tool that touches no file asks for."""
    what = _pick(args, ("pattern", "query", "url", "description", "prompt", "task")) or ""
    where = _pick(args, ("path", "dir_path", "target_directory", "dirpath", "directory_path")) or ""
    kind = _kind(tool)
    if kind == "agent":
        return f"asked a subagent: {what}".rstrip(": ")
    if kind == "plan":
        return "updated the plan"
    if kind == "list":
        return f"listed {where or '.'}"
    if kind == "search":
        return f"searched for {what}" + (f" in {where}" if where else "")
    asks = {"fetch": "fetched", "web": "searched the web for"}.get(kind)
    return f"{asks} {what}" if asks else f"called {tool or 'a tool'}"


def tool_kind(tool: str) -> str:
    """Name the kind of a tool as `TOOLS` has it; empty when it is none of these."""
    return _kind(tool)


def learn(
    tools: Mapping[str, Iterable[str]], *, commands: Iterable[str] = (), paths: Iterable[str] = ()
) -> None:
    """Let more names be known: tools by kind, arguments that hold scripts and paths of files.

    What the tables here say stays. An agent is taught before its first record is read.
    """
    for kind, names in tools.items():
        for name in names:
            _KINDS.setdefault(_name(name), kind)
    _COMMANDS.extend(name for name in commands if name not in _COMMANDS)
    _PATHS.extend(name for name in paths if name not in _PATHS)
    _short_kind.cache_clear()


def _name(tool: object) -> str:
    return tool.rsplit("__", 1)[-1].lower() if isinstance(tool, str) else ""


_KINDS = {name: kind for kind, names in reversed(TOOLS) for name in names.split()}


def _kind(tool: object) -> str:
    short = isinstance(tool, str) and len(tool) < 100
    return _short_kind(tool) if short else _KINDS.get(_name(tool), "")


@lru_cache(maxsize=1024)
def _short_kind(tool: str) -> str:
    return _KINDS.get(_name(tool), "")


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


def _shell_touches(script: str) -> list[Touch]:
    """Return the files a script changes where that is evident: no variables, globs, temporaries."""
    return list(_short_touches(script) if len(script) <= shell.SHORT else _script_touches(script))


@lru_cache(maxsize=4096)
def _short_touches(script: str) -> list[Touch]:
    return _script_touches(script)


def _script_touches(script: str) -> list[Touch]:
    if _MAY_TOUCH.search(script) is None:
        return []
    touches: list[Touch] = []
    for words, writes in shell.steps(script):
        name = shell.program_name(words[0]) if words else ""
        if name in ("apply_patch", "applypatch"):
            return patches.touches_in(script)
        if words[:1] != ["[["]:  # there `>` compares
            touches += (Touch(path, "edit" if appends else "add") for path, appends in writes)
        touches += _program_touches(name, words[1:])
    return [touch for touch in touches if touch.path and not _UNCLEAR.search(touch.path)]


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
