"""How a tool call ended, and which error its output names: one judge for every agent.

All known failure texts and error lines stand here in tables; a row holds a text that it must match
and one that it must not, and the tests run over the rows themselves.

Invariants: nothing raises, whatever the shape of a result; time is linear, as far as output reads
it. What is not evident is left out: a text without a known shape has no error shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from thence.format import output
from thence.format.expressions import expression
from thence.format.output import Row, Table
from thence.format.testruns import Tests

SHAPE_LIMIT = 160
_MAX_DEPTH = 4  # results nest no deeper in earnest


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


# fmt: off
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
# fmt: on
"""How a result that is no output begins; the name is the reason it gives."""
_BY_USER = expression(
    r"The user doesn't want to |User rejected tool use|User cancelled the execution|\[Request "
    r"interrupted by user|aborted(?: by user|\s*$)|(?:exec command|patch) rejected by user"
)
"""How a result begins that tells of a refusal or an interruption by the user."""
# fmt: off
FLAGS = (
    ("timed_out", True, "timeout"), ("interrupted", True, "interrupted"), ("is_error", True, ""),
    ("isError", True, ""), ("success", False, ""), ("status", "failed", ""),
    ("status", "error", ""), ("status", "cancelled", "interrupted"),
    ("status", "declined", "denied"),
)
# fmt: on
"""Fields of structured results that say it failed, and why if they tell."""
# fmt: off
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
# fmt: on
"""Lines that name an error, in a text of any program; a group in the pattern joins the kind."""
_VAGUE = {"error", "make", "npm", "test"}  # what wraps another program's error is a last resort
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


def evidence_of(kind: str, result: object) -> Evidence:
    """Return what the result of a call of such a tool says of how the call ended."""
    layers = list(_layers(result)) if isinstance(result, dict) else []
    codes = (layer.get("exit_code", layer.get("exitCode")) for layer in layers)
    text = output.text(result)
    inner, body = (None, text) if kind in ("read", "search") else output.open_envelope(text)
    cause = output.first(FAILURES, body)
    return Evidence(
        is_structured=isinstance(result, dict),
        exit_code=next(filter(_is_code, codes), None) if layers else None,  # type: ignore[arg-type] # a code is an int
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
    sure = _sure_failure(code, flag, is_error=is_error)
    code = evidence.text_exit_code if code is None and sure is not False else code
    if code == 0 and cause == "text":
        cause = None  # a command that ended well may print what it likes
    failed = bool(sure) if sure is not None else bool(code or cause)
    if not failed:
        return Ending(failed=False, exit_code=code)
    named = flag or (cause if cause != "text" else "")
    basis = "exit code" if code else "is_error" if sure else "text"
    return Ending(failed=True, exit_code=code, why=named or basis)


def _sure_failure(code: int | None, flag: str | None, *, is_error: bool | None) -> bool | None:
    """Return whether a call failed as far as its client says; None leaves it to the text."""
    if code is not None:
        return code != 0
    return is_error if is_error or flag is None else True


def _is_code(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


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


def _layers(result: object, depth: int = 0) -> Iterator[dict[str, object]]:
    """Yield a structured result and those inside it that speak of the same call."""
    if isinstance(result, dict) and depth < _MAX_DEPTH:
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
    line = output.CONTROL.sub(" ", _NOISE.sub(lambda match: f"<{match.lastgroup}>", line)).strip()
    return f"{kind}: {line}"[:SHAPE_LIMIT].rstrip() if line else None
