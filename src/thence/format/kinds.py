"""What a tool call is and how its result ended: one classifier for every agent.

Everything known of foreign tools, failures and error texts stands here in tables; a row holds a
text it must match and one it must not, and the tests run over the rows themselves. The functions
only read the tables, so a new tool is one more row.

Invariants: nothing raises, whatever the shape of its arguments; time is linear, as far as shell
reads a script and output reads a result; no files, no clock; no state but the names that agents
add to the tables (`learn`), of which none that is there changes. What is not evident is left out:
a path held in a variable is no touch, a text without a known shape has no error shape.

Never here: test runs (see testruns), events (see joins), the reading of logs (see adapters).
"""

# ruff: noqa: A002 - `input` is the name the Messages API gives it
# ruff: noqa: PLC0414 - callers may ask here for test runs, too

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b

import msgspec

from thence.format import output, shell
from thence.format.expressions import expression
from thence.format.output import Row, Table
from thence.format.testruns import Tests as Tests
from thence.format.testruns import count_tests as count_tests
from thence.format.testruns import test_runner as test_runner
from thence.format.testruns import tests as tests

SUMMARY_LIMIT = 120
SHAPE_LIMIT = 160
_DEPTH = 4  # results nest no deeper in earnest


class Touch(msgspec.Struct, frozen=True):
    """One file a call changes or reads.

    `add` gives the whole content (a new file, or one replaced); a move is two touches, `move` of
    the old path and `add` of the new one. Lines are None where the input does not tell.
    """

    path: str
    how: str
    added: int | None = None
    removed: int | None = None


class Change(msgspec.Struct, frozen=True):
    """What a call does to one file: a text and the one in its place, or the lines of a patch."""

    path: str
    how: str
    before: str = ""
    after: str = ""
    patch: tuple[str, ...] = ()


class Ending(msgspec.Struct, frozen=True):
    """How a call ended; `why` is empty unless it failed."""

    failed: bool
    exit_code: int | None = None
    why: str = ""


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a result says of how its call ended: enough to `judge` without the result itself."""

    is_structured: bool = False
    exit_code: int | None = None
    """As a field of a structured result."""
    flag: str | None = None
    """The reason a structured result says it failed ("" if it gives none)."""
    text_exit_code: int | None = None
    """In the text that a client puts before an output."""
    cause: str | None = None
    """Which of `FAILURES` the text begins with."""
    is_synthetic: bool = False
    """It was made for a call that never got a result."""
    is_by_user: bool = False
    """It says that the user refused the call or cut it off."""
    tests: Tests | None = None
    """What a test run counted."""
    shape: str | None = None
    """The fingerprint of its error, if it failed."""


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


# The tables keep a row to a line or two; the formatter would give every cell its own.
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
"""Kind of tool, and the names agents give it, lower case and without an MCP server's prefix."""

_COMMANDS = ["command", "cmd"]
_PATHS = ["file_path", "path", "target_file", "notebook_path", "filePath", "absolute_path",
          "filepath"]
_OF_FILES = frozenset({"read", "write", "edit", "patch"})
_CONTENTS = ("content", "contents", "file_text")
_OLD = ("old_string", "old_str", "oldString", "oldText", "old_text", "before")
_NEW = ("new_string", "new_str", "newString", "newText", "new_text", "after")

FAILURES = Table(Row(*row) for row in (
    ("denied", (r"The user doesn't want to (?:proceed|take this action)|User rejected tool use|"
                r"User cancelled the execution|\S+ requested permissions? to |This command "
                r"requires approval|This Bash command contains multiple operations\.|.{1,200} was "
                r"blocked\. For security|Tool `[^`\n]{1,80}` was not executed: Denied|"
                r"(?:exec command|patch) rejected"),
     "This command requires approval", "This command requires sudo"),
    ("interrupted", (r"\[Tool call interrupted|\[Request interrupted by user|Tool execution was "
                     r"(?:cancelled|interrupted)|aborted(?: by user)?\s*$"),
     "aborted by user", "aborted by code"),
    ("timeout", (r"[Cc]ommand timed out|failed in sandbox \w+ with execution error: command timed"),
     "Command timed out after 2m 0.0s", "Commands time out"),
    ("text", (r"<tool_use_error>|(?:Error|error|ERROR|InputValidationError): |Error\s*$|Failed to "
              r"parse arguments for tool|failed to parse function arguments|unsupported call: |"
              r"apply_patch verification failed|Script failed\n|(?:failed in sandbox \w+ with )?"
              r"execution error: |(?:The s|S)tring to replace (?:was )?not found in|File does not "
              r"exist\.|File has (?:not been read yet|been modified since read)|Found \d+ matches "
              r"of the string to replace|Failed to call \w+: |Request failed with status code "),
     "unsupported call: no_such_tool", "Errors were not found"),
))
"""How a result that is no output begins; the name is the reason it gives."""

_BY_USER = expression(
    r"The user doesn't want to |User rejected tool use|User cancelled the execution|\[Request "
    r"interrupted by user|aborted(?: by user|\s*$)|(?:exec command|patch) rejected by user"
)
"""How a result begins that tells of a refusal or an interruption by the user."""

FLAGS = (
    ("timed_out", True, "timeout"), ("interrupted", True, "interrupted"), ("is_error", True, ""),
    ("isError", True, ""), ("success", False, ""), ("status", "failed", ""),
    ("status", "error", ""), ("status", "cancelled", "interrupted"),
    ("status", "declined", "denied"),
)
"""Fields of structured results that say it failed, and why if they tell."""

ERRORS = Table(Row(*row) for row in (
    ("exception", (r"E\s+assert\b|(?:E\s+|Uncaught |Caused by: |Exception in thread \S+ )?"
                   r"(?:[\w$]{1,80}\.){0,9}(?:[A-Z]\w{0,80})?(?:Error|Exception)"
                   r"(?: \[\w+\])?(?::|$)"),
     "E   AssertionError: assert 1 == 2", "ErrorBoundary renders"),
    ("rust", r"error\[(E\d+)\]: ", "error[E0308]: mismatched types", "error E0308"),
    ("typescript", r"(?:[^\s()]{1,300}(?:\(\d+,\d+\)|:\d+:\d+)(?::| -) )?error (TS\d+): ",
     "src/a.ts(3,4): error TS2304: Cannot find name 'x'.", "see TS2304"),
    ("compile", (r"[^\s:]{1,300}:\d+(?::\d+)?(?:: (?:fatal |syntax )?(?:error|undefined|undeclared|"
                 r"cannot|expected|missing|(?:declared|imported) and not used)\b| - error: |:? \S"
                 r".{1,300} \([a-z][\w-]{1,40}\)$)"),
     "a.go:12:3: undefined: foo", "a.go:12: fine"),
    ("panic", (r"panic: |thread '[^'\n]{1,80}' panicked at|fatal error: |Segmentation fault|"
               r"Killed$|Aborted \(core|.{0,40}out of memory"), "panic: nil map",
     "no panic"),
    ("git", r"fatal: |CONFLICT \(|! \[(?:remote )?rejected\]", "fatal: bad object", "conflict"),
    ("npm", r"npm (?:ERR!|error) |\s?ERR_PNPM_\w+", "npm ERR! code ELIFECYCLE", "npm notice"),
    ("make", r"g?make(?:\[\d+\])?: \*\*\* ", "make: *** [all] Error 2", "make: done"),
    ("shell", (r".{1,300}: (?:command not found|No such file or directory|Permission denied|"
               r"Operation not permitted|Is a directory|Not a directory)\b|zsh: command not "
               r"found: "),
     "bash: foo: command not found", "no such command"),
    ("http", r".{0,300}\b(?:status code|HTTP/\d(?:\.\d)?) ([45]\d\d)\b",
     "Request failed with status code 404", "status code 200"),
    ("test", r"FAILED \S+::|--- FAIL: |not ok \d+|test \S+ \.\.\. FAILED|FAIL\s+\S+",
     "--- FAIL: TestA (0.00s)", "FAILED"),
    ("error", (r"(?:\[[\w:-]{1,40}\] )?(?:[\w./-]{1,80}: )?(?:(?:error|Error|ERROR|fatal)"
               r"(?:\[[\w-]+\])?: |ERROR \S)"), "prog: error: bad argument: --x", "0 errors: none"),
))
"""Lines that name an error, in a text of any program; a group in the pattern joins the kind."""
# fmt: on

_VAGUE = {"error", "make", "npm", "test"}  # what wraps another program's error is a last resort
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
_HOWS = {"Add": "add", "Update": "edit", "Delete": "delete"}
_VERBS = {"add": "wrote", "edit": "edited", "delete": "deleted", "move": "moved", "read": "read"}
_UNCLEAR = expression(r"[$*?`{}\[\]]|^\d+$|^/(?:dev|proc|tmp|var/tmp)/")
_MAY_TOUCH = expression(
    r">|\b(?:rm|mv|tee|sed|perl|unlink|touch|apply_?patch|cat|tac|nl|less|more|bat|batcat|head|tail"
    r"|wc|[ef]?grep|rg|g?awk|jq)\b"
)
_PATCH_FILE = expression(r"\*\*\* (Add|Update|Delete) File: (.+)")
_PATCH_LITERAL = expression(r'"(\*\*\* Begin Patch(?:[^"\\]|\\.)*+)"', re.DOTALL)
_CONTROL = expression(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_NOISE = expression(
    r"(?P<time>\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)?"
    r"|(?<!\d)\d{1,2}:\d\d:\d\d(?:[.,]\d+)?)"
    r"|(?P<url>\b[a-z][a-z0-9+.-]{1,15}://[^\s'\"<>)]+)"
    r"|(?P<name>`[^`]{0,200}`|`[^`']{0,200}'|(?<!\w)'[^']{0,200}'(?!\w)|\"[^\"]{0,200}\"|“[^”]{0,200}”)"
    r"|(?P<hex>\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|\b0x[0-9a-fA-F]+"
    r"|\b(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{7,64}\b)"
    r"|(?P<path>(?:(?:~|\.{1,2}|\b[A-Za-z]:)?(?:[/\\][\w.@+%=~-]+)+[/\\]?"
    r"|\b[\w.@+-]+(?:/[\w.@+-]+)+/?|\b[\w.-]+\.(?:py|[jt]sx?|go|rs|rb|java|c|h|cc|cpp|md|json|ya?ml"
    r"|toml|txt|sh|lock|cfg|ini|html|css|php|cs|kt|swift|exs?)\b)(?::\d+)*)"
    r"|(?P<n>\bv\d+(?:\.\d+)*|(?<!\w)[-+]?\d+(?:[.,]\d+)*)"
)


_WELL = Ending(failed=False)


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
        return _patches(script) if "*** Begin Patch" in script else []
    if kind == "patch":
        return _patches(_patch_text(args) or "")
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


def find_ending(
    tool: str, result: object, *, is_error: bool | None = None, exit_code: int | None = None
) -> Ending:
    """Return how a call ended, by the best evidence there is; see `judge`."""
    if is_error is False and exit_code is None and not isinstance(result, dict):
        return _WELL  # nothing but an exit code or a flag could say otherwise
    return judge(evidence_of(tool, result), is_error=is_error, exit_code=exit_code)


def evidence_of(tool: str, result: object) -> Evidence:
    """Return what the result of a tool's call says of how the call ended."""
    layers = list(_layers(result))
    codes = (layer.get("exit_code", layer.get("exitCode")) for layer in layers)
    text = output.text(result)
    inner, body = (None, text) if _kind(tool) in ("read", "search") else output.open_envelope(text)
    cause = output.first(FAILURES, body)
    return Evidence(
        is_structured=isinstance(result, dict),
        exit_code=next(filter(_is_code, codes), None),  # type: ignore[arg-type] # a code is an int
        flag=next((why for why in map(_flag, layers) if why is not None), None),
        text_exit_code=inner,
        cause=None if cause is None else cause.name,
        is_by_user=cause is not None and _BY_USER.match(body) is not None,
    )


def judge(
    evidence: Evidence, *, is_error: bool | None = None, exit_code: int | None = None
) -> Ending:
    """Return how a call ended, by the best evidence there is.

    In this order: an exit code (given, or a field of a structured result), `is_error`, a failure
    flag of a structured result, the exit code in a client's text envelope, known failure texts.
    A client that reports "completed" for a failed command (Grok) must not be passed as
    `is_error=False`. Interruption, denial and timeout are named as the reason whoever tells.
    """
    if is_error is False and exit_code is None and not evidence.is_structured:
        return _WELL  # nothing but an exit code or a flag could say otherwise
    code = exit_code if _is_code(exit_code) else evidence.exit_code
    flag, cause = evidence.flag, evidence.cause
    sure = code != 0 if code is not None else is_error if is_error or flag is None else True
    code = evidence.text_exit_code if code is None and sure is not False else code
    if code == 0 and cause == "text":
        cause = None  # a command that ended well may print what it likes
    failed = bool(sure) if sure is not None else bool(code or cause)
    if not failed:
        return Ending(failed=False, exit_code=code)
    named = flag or (cause if cause and cause != "text" else "")
    basis = "exit code" if code else "is_error" if sure else "text"
    return Ending(failed=True, exit_code=code, why=named or basis)


def _is_code(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


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


def error_shape(text: str) -> str | None:
    """Return a fingerprint of an error text, the same wherever that error occurs again.

    It is the kind and the line that names the error, with paths, numbers, hex, times and quoted
    names replaced. An exit code alone is no shape. Meant for results that failed: an output that
    merely quotes an error has one too.
    """
    code, body = output.open_envelope(output.plain(output.text(text)))
    cause = output.first(FAILURES, body)
    body = body.replace("<tool_use_error>", "").replace("</tool_use_error>", "").strip()
    if cause is not None and cause.name != "text":
        return _shape(cause.name, body)
    lines = output.lines(body)
    if (raised := _exception_line(lines)) is not None:
        return _shape("exception", raised)
    if (telling := _error_line(lines)) is not None:
        line, row = telling
        match = re.match(row.pattern, line)
        return _shape(f"{row.name} {match[1]}" if match and match.lastindex else row.name, line)
    if cause is not None or code:
        return _shape("tool" if cause else "output", body)
    return None


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
        line = _CONTROL.sub(" ", line)
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
        except (ValueError, RecursionError):
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


def _patch_touches(args: object) -> list[Touch]:
    """Return the files of a patch: its own text, or the one quoted in a code-mode script."""
    text = _patch_text(args)
    return [] if text is None else _touches_of_patch(text)


def _patch_text(args: object) -> str | None:
    text = args if isinstance(args, str) else _pick(args, ("patch", "input", "patchText"))
    if text is None:
        return None
    literal = None if text.lstrip().startswith("***") else _PATCH_LITERAL.search(text)
    return literal[1].replace("\\n", "\n") if literal else text


def _patches(text: str) -> list[Change]:
    """Part apply_patch texts into their files, each with its lines."""
    patches: list[tuple[str, str, list[str]]] = []
    inside = False
    for line in text[max(0, text.find("*** Begin Patch")) :].split("\n"):
        if head := _PATCH_FILE.match(line):
            patches.append((head[2].strip(), _HOWS[head[1]], []))
            inside = True
        elif line.startswith("*** End Patch"):
            inside = False
        elif inside and not line.startswith("*** "):
            patches[-1][2].append(line)
    return [Change(path, how, patch=tuple(lines)) for path, how, lines in patches]


def _touches_of_patch(text: str) -> list[Touch]:
    """Read the files of one or more apply_patch texts; outside Begin and End nothing counts."""
    touches: list[Touch] = []
    path, how, target, added, removed = "", "", "", 0, 0
    for line in [*text[max(0, text.find("*** Begin Patch")) :].split("\n"), "*** End Patch"]:
        head = _PATCH_FILE.match(line)
        if path and (head or line.startswith("*** End Patch")):
            if target:
                touches += [Touch(path, "move"), Touch(target, "add", added, removed)]
            else:
                counts = () if how == "delete" else (added, removed if how == "edit" else 0)
                touches.append(Touch(path, how, *counts))
            path = ""
        if head:
            path, how, target = head[2].strip(), _HOWS[head[1]], ""
            added = removed = 0
        elif line.startswith("*** Move to: "):
            target = line[13:].strip()
        else:
            added, removed = added + line.startswith("+"), removed + line.startswith("-")
    return touches


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
            return _touches_of_patch(script)
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


def _layers(result: object, depth: int = 0) -> Iterator[dict[str, object]]:
    """Yield a structured result and those inside it that speak of the same call."""
    if isinstance(result, dict) and depth < _DEPTH:
        yield result
        for name in ("metadata", "result", "output", "Ok"):
            yield from _layers(result.get(name), depth + 1)


def _flag(layer: dict[str, object]) -> str | None:
    """Return the reason a structured result failed ("" if it tells none), None if it did not."""
    for name, bad, why in FLAGS:
        if type(layer.get(name)) is type(bad) and layer[name] == bad:
            return why
    return "" if any(layer.get(mark) for mark in output.MARKS) else None


def _error_line(lines: list[str]) -> tuple[str, Row] | None:
    """Return the line that names an error, one that is not vague before one that is."""
    vague = None
    for line in map(str.strip, lines):
        row = output.first(ERRORS, line)
        if row is not None and row.name not in _VAGUE:
            return line, row
        if row is not None and vague is None:
            vague = line, row
    return vague


def _exception_line(lines: list[str]) -> str | None:
    """Return the line a Python traceback ends with: the last one is the error that came out."""
    starts = [at for at, line in enumerate(lines) if line.lstrip().startswith("Traceback (most")]
    rest = lines[starts[-1] + 1 :] if starts else []
    return next((line for line in rest if re.match(r"[A-Za-z_][\w.]*(?::|$)", line)), None)


def _shape(kind: str, text: str) -> str | None:
    """Put kind and first line together, with all replaced that differs between two sessions."""
    line = re.sub(r"^E\s+", "", text.strip().split("\n", 1)[0])[:1000]
    line = _CONTROL.sub(" ", _NOISE.sub(lambda match: f"<{match.lastgroup}>", line)).strip()
    return f"{kind}: {line}"[:SHAPE_LIMIT].rstrip() if line else None
