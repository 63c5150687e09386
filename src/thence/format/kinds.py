"""What a tool call is and how its result ended: one classifier for every agent.

Everything known of foreign tools, test runners and error texts stands here in tables; a row holds
a text it must match and one it must not, and the tests run over the rows themselves. The functions
only read the tables, so a new runner or tool is one more row.

Invariants: nothing raises, whatever the shape of its arguments; time is linear, at most the first
and last 16 KiB of a result and the first 16 KiB of a shell script are looked at; no files, no
clock, no state. What is not evident is left out: a path held in a variable is no touch, a command
that merely names a runner is no test run, a text without a known shape has no error shape.

Never here: events (see joins), the reading of logs (see adapters).
"""

# ruff: noqa: A002 - `input` is the name the Messages API gives it

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

CLIP = 16 << 10
"""Characters looked at from each end of a result; more is never read."""

SUMMARY_LIMIT = 120
SHAPE_LIMIT = 160
_LINES = 500  # of a result from each end, and of the simple commands of a script
_DEPTH = 4  # neither blocks nor `sh -c` nest deeper in earnest


class Touch(msgspec.Struct, frozen=True):
    """One file a call changes or reads.

    `add` gives the whole content (a new file, or one replaced); a move is two touches, `move` of
    the old path and `add` of the new one. Lines are None where the input does not tell.
    """

    path: str
    how: str
    added: int | None = None
    removed: int | None = None


class Ending(msgspec.Struct, frozen=True):
    """How a call ended; `why` is empty unless it failed."""

    failed: bool
    exit_code: int | None = None
    why: str = ""


class Tests(msgspec.Struct, frozen=True):
    """One test run; a count is None where the output does not tell, errors count as failed."""

    runner: str
    passed: int | None = None
    failed: int | None = None
    skipped: int | None = None


class Row(NamedTuple):
    """One row of a table: `yes` must match `pattern`, `no` must not."""

    name: str
    pattern: str
    yes: str
    no: str


# The tables keep a row to a line or two; the formatter would give every cell its own.
# fmt: off
TOOLS = (
    ("shell", ("bash shell shell_command exec_command local_shell local_shell_call container.exec "
               "run_terminal_command run_terminal_cmd run_shell_command run_command "
               "execute_command terminal monitor powershell")),
    ("read", "read read_file readfile view view_file view_image notebookread read_text_file"),
    ("write", "write write_file create create_file"),
    ("edit", ("edit multiedit notebookedit search_replace searchreplace replace edit_file "
              "str_replace_editor str_replace_based_edit_tool replace_string_in_file")),
    ("patch", "apply_patch applypatch exec"),
    ("search", "grep glob rg search_file_content grep_search file_search codebase_search"),
    ("list", "ls list_dir listdir list_directory"),
    ("fetch", "webfetch web_fetch fetch"),
    ("web", "websearch web_search google_web_search"),
    ("agent", "task agent spawn_agent spawn_subagent"),
    ("plan", "todowrite todo_write update_plan taskcreate taskupdate"),
)
"""Kind of tool, and the names agents give it, lower case and without an MCP server's prefix."""

_PATHS = ("file_path", "path", "target_file", "notebook_path", "filePath", "absolute_path")
_CONTENTS = ("content", "contents", "file_text")
_OLD = ("old_string", "old_str", "oldString", "oldText")
_NEW = ("new_string", "new_str", "newString", "newText")

WRAPPERS = (
    ("sudo", "-u -g -C -p", 0), ("time", "-f -o", 0), ("nice", "-n", 0), ("nohup", "", 0),
    ("env", "-u -C", 0), ("timeout", "-s -k --signal --kill-after", 1), ("exec", "", 0),
    ("bash", "-o", 0), ("sh", "-o", 0), ("xargs", "-n -I -P -L -d", 0), ("rtk", "", 0),
    ("uv run", "--with --extra --group --python -p --project --directory --env-file --package", 0),
    ("uvx", "--with --from --python -p", 0), ("pipx run", "--spec", 0), ("poetry run", "-C", 0),
    ("pipenv run", "", 0), ("pdm run", "-p", 0), ("hatch run", "-e", 0), ("rye run", "", 0),
    ("pixi run", "-e", 0), ("conda run", "-n -p", 0), ("coverage run", "--source --rcfile", 0),
    ("python", "-X -W", 0), ("npx", "-p --package", 0), ("bunx", "", 0), ("npm exec", "", 0),
    ("bundle exec", "", 0), ("mise exec", "", 0), ("mise x", "", 0), ("direnv exec", "", 1),
    ("doppler run", "-p -c", 0), ("git bisect run", "", 0), ("php", "-d", 0), ("ruby", "-I", 0),
    ("xvfb-run", "-n -s", 0), ("stdbuf", "", 0), ("docker exec", "-u -w -e", 1),
    ("node", "-r --require --import --loader", 0), ("kubectl exec", "-n -c", 1),
    ("docker run", "-v -e -w -u -p --name --network --platform --mount --entrypoint", 1),
    ("docker compose exec", "-f -u -w -e", 1), ("docker-compose exec", "-f -u -w -e", 1),
    ("docker compose run", "-f -v -e -w -u --name", 1), ("docker-compose run", "-f -v -e -w -u", 1),
)
"""Programs that run another: their words, their options with a value, words before the program."""

_VALUES = {
    "npm": "--prefix -w --workspace -C", "pnpm": "--filter -F -C --dir", "yarn": "--cwd",
    "bun": "--filter -F --cwd", "make": "-C -f -I -o -W", "go": "-C", "mvn": "-f -pl -P",
    "gradle": "-p -b", "cargo": "--manifest-path -p --package --features", "just": "-f -d",
    "turbo": "--filter -F", "ninja": "-C -f -j", "swift": "--package-path", "mise": "-C",
    "nx": "-c -p",
    "xcodebuild": "-scheme -project -workspace -destination -configuration -sdk",
}
"""Options with a value that may stand between a program and the word that says what it does."""

_NOT_A_RUN = {"--version", "--help", "-h", "--collect-only", "--co", "--listTests", "--list-tests",
              "--no-run", "--fixtures", "--markers", "--list", "--init", "--dry-run"}
_KEYWORDS = {"if", "then", "else", "elif", "do", "while", "until", "!", "{"}
_SHELLS = {"bash", "sh", "zsh", "dash", "ksh", "fish", "pwsh", "powershell", "cmd"}
_END = r"(?= |$)"
_JS = r"(?:(?:npm|pnpm|yarn|bun)(?: run| exec| x| dlx)? )?"
_TASK = (r"(?:(?:ci|unit|e2e|integration)[:_-])?(?:tests?|e2e|unit)(?::[\w:.-]+|[-_](?:unit|int\w*|"
         r"e2e|ci|all|cov\w*|once|only|fast|slow|py\w*|js|go|race))?(?= |$)")

RUNNERS = tuple(Row(*row) for row in (
    ("pytest", r"py\.?test(?:-\d[\d.]*)?" + _END, "pytest -q tests", "cat pytest.ini"),
    ("unittest", "unittest" + _END, "python3 -m unittest discover", "python -c 'import unittest'"),
    ("django", r"(?:manage\.py|django-admin) test" + _END, "python manage.py test app",
     "python manage.py testserver"),
    ("", "(?:tox|nox|nose2|stestr|trial|behave|prove|ava|gotestsum|ginkgo|busted|shellspec)" + _END,
     "tox -e py311", "cat tox.ini"),
    ("jest", _JS + r"jest(?:\.js)?" + _END, "npx jest --ci", "npm install jest"),
    ("vitest", _JS + "vitest" + _END, "pnpm vitest run", "yarn add vitest"),
    ("mocha", _JS + "mocha" + _END, "npx mocha test/", "npm ls mocha"),
    ("playwright", _JS + "playwright test" + _END, "npx playwright test", "npx playwright install"),
    ("cypress", _JS + "cypress run" + _END, "npx cypress run", "npx cypress open"),
    ("node test", "(?:node|tsx) --test" + _END, "node --test test/", "node test.js"),
    ("npm test", "npm (?:run(?:-script)? )?(?:t|tst|" + _TASK + ")" + _END, "npm run test:unit",
     "npm run build"),
    ("pnpm test", "pnpm (?:run )?" + _TASK, "pnpm --filter web test", "pnpm add test-utils"),
    ("yarn test", r"yarn (?:workspace \S+ )?(?:run )?" + _TASK, "yarn workspace a test", "yarn up"),
    ("bun test", "bun (?:run )?" + _TASK, "bun test src/", "bun run lint"),
    ("deno test", "deno test" + _END, "deno test -A", "deno run test.ts"),
    ("go test", "go test" + _END, "go test ./...", "go build ./test"),
    ("nextest", r"cargo (?:\+\S+ )?nextest run" + _END, "cargo nextest run", "cargo nextest list"),
    ("cargo test", r"cargo (?:\+\S+ )?(?:t|test)" + _END, "cargo +nightly test", "cargo check"),
    ("maven", r"mvnw?(?: \S+){0,9}? (?:\S+:)?(?:test|verify|integration-test)" + _END,
     "./mvnw -q clean verify", "mvn package -DskipTests"),
    ("gradle", r"gradlew?(?: \S+){0,9}? (?:\S*:)?(?:test|check|\w+Test)" + _END,
     "./gradlew :app:test", "gradle assemble"),
    ("ctest", "ctest" + _END, "ctest --output-on-failure", "cmake --build ."),
    ("rspec", "rspec" + _END, "bundle exec rspec spec/a_spec.rb", "gem install rspec"),
    ("rails", r"rails test(?::\w+)?" + _END, "bin/rails test", "rails db:test:prepare"),
    ("rake", r"rake(?: \S+){0,9}? (?:test|spec)(?::\w+)?" + _END, "rake spec", "rake db:migrate"),
    ("phpunit", "(?:phpunit|pest|paratest|artisan test)" + _END, "vendor/bin/phpunit", "php -v"),
    ("dotnet", "dotnet test" + _END, "dotnet test -c Release", "dotnet build"),
    ("swift test", "swift test" + _END, "swift test", "swift build"),
    ("xcodebuild", r"xcodebuild(?: \S+){0,9}? test" + _END, "xcodebuild -scheme A test",
     "xcodebuild -list"),
    ("mix test", r"mix test(?:\.\w+)?" + _END, "MIX_ENV=test mix test", "mix deps.get"),
    ("bats", "bats" + _END, "bats test/", "brew install bats-core"),
    ("make test", r"make(?: \S+){0,9}? (?:check|" + _TASK + ")" + _END, "make -j 8 test",
     "make all"),
    ("dune", "dune (?:runtest|test)" + _END, "dune runtest", "dune build"),
    ("mise test", "mise (?:run |r )?" + _TASK, "mise run test:integration", "mise run lint"),
    ("", (r"(?:bazel|meson|zig(?: build)?|sbt|lein|stack|cabal|ninja|flutter|dart|forge|ng|"
          r"hatch|inv|composer|elm-test|invoke|just|task|nx|turbo|rush|lerna) (?:run )?(?:\S+:)?"
          + _TASK),
     "just test", "just fmt"),
    ("script", (r"(?:\./tests?|run[-_]?(?:all[-_]?)?tests?(?:\.py)?|(?:\./)?(?:run[-_]?)?"
                r"(?:all[-_]?)?tests?\.(?:sh|bash|ps1))" + _END),
     "bash scripts/run_tests.sh", "test -f setup.py"),
))
"""Known test runners, matched at the start of a simple command freed of wrappers and options;
a row without a name is named by what it matched."""


class Format(NamedTuple):
    """How one runner closes its output: which lines count, added up or the last one alone."""

    name: str
    pattern: str
    add_up: bool
    yes: str
    counts: tuple[int | None, int | None, int | None]
    no: str


FORMATS = tuple(Format(*row) for row in (
    ("pytest", (r"(?:=+ )?(?:no tests ran|\d+ (?:passed|failed|errors?|skipped|xfailed|xpassed|"
                r"deselected|warnings?)\b[^\n]*) in [\d.]+s"), True,
     "== 1 failed, 19 passed, 2 skipped, 1 error in 3.2s ==", (19, 2, 2), "3 passed the exam"),
    ("unittest", r"Ran \d+ tests? in |(?:OK|FAILED) \([a-z ]+=", True,
     "Ran 5 tests in 0.01s\n\nFAILED (failures=1, errors=1, skipped=1)", (2, 2, 1), "OK then"),
    ("jest", r"Tests:\s+\d+ \w+,? ?.*\d+ total", True,
     "Tests:       1 failed, 2 skipped, 3 passed, 6 total", (3, 1, 2), "Tests: none"),
    ("vitest", r"Tests\s+\d+ (?:failed|passed|skipped|todo)\b.*\(\d+\)", True,
     "      Tests  1 failed | 3 passed | 1 skipped (5)", (3, 1, 1), "Tests are run"),
    ("mocha", r"\d+ (?:passing|failing|pending)\b", True,
     "  3 passing (20ms)\n  1 pending\n  2 failing", (3, 2, 1), "passing by"),
    ("bun test", r"\d+ (?:pass|fail|skip|todo)$", True,
     " 1329 pass\n 0 fail\n 2901 expect() calls", (1329, 0, None), "1 pass over"),
    ("playwright", r"\d+ (?:passed|failed|skipped|flaky)(?: \([\d.]+m?s?\))?$", True,
     "  1 failed\n  2 skipped\n  9 passed (10.1s)", (9, 1, 2), "9 passed by"),
    ("node test", r"(?:#|\u2139) (?:tests|pass|fail|skipped|todo) \d+$", True,
     "# tests 5\n# pass 3\n# fail 1\n# skipped 1", (3, 1, 1), "# pass the salt"),
    ("deno test", r"(?:ok|FAILED) \| \d+ passed", True,
     "ok | 5 passed | 0 failed | 1 ignored (10ms)", (5, 0, 1), "ok | fine"),
    ("nextest", r"Summary \[.*\d+ tests? run:", True,
     "     Summary [   0.02s] 10 tests run: 9 passed, 1 failed, 2 skipped", (9, 1, 2), "Summary"),
    ("cargo test", r"test result: ", True,
     "test result: FAILED. 5 passed; 1 failed; 2 ignored; 0 measured", (5, 1, 2), "test resulted"),
    ("maven", r"(?:\[\w+\] )?Tests run: \d+(?!.*Time elapsed)", True,
     "[ERROR] Tests run: 5, Failures: 1, Errors: 1, Skipped: 1", (2, 2, 1),
     "Tests run: 5, Failures: 0, Errors: 0, Skipped: 0, Time elapsed: 1 s - in A"),
    ("gradle", r"\d+ tests? completed\b", True,
     "5 tests completed, 1 failed, 1 skipped", (3, 1, 1), "5 tests planned"),
    ("ctest", r"\d+% tests passed, ", True,
     "90% tests passed, 1 tests failed out of 10", (9, 1, None), "90% done"),
    ("rspec", r"\d+ examples?, \d+ failures?", True,
     "10 examples, 2 failures, 1 pending", (7, 2, 1), "10 examples"),
    ("rails", r"\d+ runs, \d+ assertions, ", True,
     "5 runs, 7 assertions, 1 failures, 1 errors, 1 skips", (2, 2, 1), "5 runs"),
    ("phpunit", r"OK \(\d+ tests?, |Tests: \d+, Assertions: ", True,
     "Tests: 5, Assertions: 7, Failures: 1, Skipped: 1.", (3, 1, 1), "OK (fine)"),
    ("dotnet", r"(?:Passed|Failed)!\s+- Failed:", True,
     "Failed!  - Failed:     1, Passed:     9, Skipped:     2, Total:    12", (9, 1, 2), "Failed!"),
    ("swift test", r"Executed \d+ tests?, with ", False,
     "Executed 2 tests, with 1 failure (0 unexpected)\nExecuted 5 tests, with 1 failure",
     (4, 1, None), "Executed"),
    ("mix test", r"(?:\d+ doctests?, )?(?:\d+ properties, )?\d+ tests?, \d+ failures?", True,
     "1 doctest, 10 tests, 2 failures, 1 skipped", (8, 2, 1), "10 tests"),
))

COUNTED = tuple(Row(*row) for row in (
    ("passed", r"--- PASS: |ok \d+(?!.*# (?i:skip))", "--- PASS: TestA (0.00s)", "=== RUN TestA"),
    ("failed", r"--- FAIL: |not ok \d+(?!.*# (?i:todo|skip))", "not ok 2 - adds", "FAIL"),
    ("skipped", r"--- SKIP: |(?:not )?ok \d+.*# (?i:skip)", "ok 3 # skip no disk", "ok 3 - adds"),
    ("package ok", r"ok\s+\S+\s+(?:\(cached\)|[\d.]+s)", "ok  \texample.org/a\t0.3s", "ok 1 - a"),
    ("package bad", r"FAIL\s+\S+\s+(?:\[.*\]|[\d.]+s)", "FAIL\texample.org/a [build failed]",
     "FAIL"),
))
"""Runners without a closing line (go test, TAP): the lines themselves are counted."""

_BUCKETS = {
    "passed": "passed pass passing",
    "failed": "failed fail failing failures failure errors error",
    "skipped": "skipped skip skips pending ignored todo",
    "total": "tests test examples example runs run total doctests doctest properties",
}

ENVELOPES = tuple(Row(*row) for row in (
    ("codex", (r"(?:(?:Command|Chunk ID|Wall time)\b[^\n]*\n){0,4}(?:Process exited with code |"
               r"Exit code: )(-?\d{1,9})\b[^\n]*(?:\n(?:Wall time|Original token count|Total output"
               r" lines)\b[^\n]*)*(?:\nOutput:)?(?:\n(?:Total output lines|Warning: truncated "
               r"output)[^\n]*)*\n?"),
     "Chunk ID: 4e7e75\nWall time: 0.0 seconds\nProcess exited with code 1\nOutput:\nx",
     "It said: Process exited with code 1"),
    ("codex sandbox", (r"failed in sandbox \w+ with execution error: sandbox denied exec error, "
                       r"exit code: (-?\d{1,9}), stdout: (?:, stderr: )?"),
     ("failed in sandbox LinuxSeccomp with execution error: sandbox denied exec error, "
      "exit code: 1, stdout: , stderr: x"),
     "failed in sandbox None with execution error: command timed out"),
    ("claude", r"(?:Error: )?Exit code (-?\d{1,9})(?:\n|$)", "Exit code 2\nuse", "Exit code 2 is"),
    ("grok", r"exit: (-?\d{1,9})(?: \[truncated[^\n]*)?(?:\n|$)", "exit: 1\nTrace", "exit: 1st"),
))
"""Texts clients put before an output; the first group is the exit code."""

FAILURES = tuple(Row(*row) for row in (
    ("denied", (r"The user doesn't want to (?:proceed|take this action)|User rejected tool use|"
                r"User cancelled the execution|\S+ requested permissions? to |This command "
                r"requires approval|This Bash command contains multiple operations\.|.{1,200} was "
                r"blocked\. For security|Tool `[^`\n]{1,80}` was not executed: Denied|"
                r"(?:exec command|patch) rejected"),
     "This command requires approval", "This command requires sudo"),
    ("interrupted", (r"\[Tool call interrupted|\[Request interrupted by user|Tool execution was "
                     r"cancelled|aborted(?: by user)?\s*$"), "aborted by user", "aborted by code"),
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

FLAGS = (
    ("timed_out", True, "timeout"), ("interrupted", True, "interrupted"), ("is_error", True, ""),
    ("isError", True, ""), ("success", False, ""), ("status", "failed", ""),
    ("status", "error", ""), ("status", "cancelled", "interrupted"),
    ("status", "declined", "denied"),
)
"""Fields of structured results that say it failed, and why if they tell."""

_MARKS = ("Err", "Error", "NoMatchesFound", "FileNotFound")
"""Variants whose mere presence in a structured result is a failure (Codex, Grok)."""

ERRORS = tuple(Row(*row) for row in (
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
_REDIRECTS = {">": "add", ">|": "add", "&>": "add", ">>": "edit", "&>>": "edit"}
_REDIRECTS |= dict.fromkeys(("<", "<&", ">&"), "")  # these change no file
_OPERANDS = {"rm": "delete", "unlink": "delete", "touch": "add", "tee": "add"}
_HOWS = {"Add": "add", "Update": "edit", "Delete": "delete"}
_TEXTS = ("text", "output_for_prompt", "output", "content", "stdout", "stderr", "message", *_MARKS)
_UNCLEAR = re.compile(r"[$*?`{}\[\]]|^\d+$|^/(?:dev|proc|tmp|var/tmp)/")
_PREFACE = re.compile(
    r"(?:(?:Chunk ID|Wall time|Process running|Original token count)\b[^\n]*\n)+(?:Output:\n)?"
)
_TOKEN = re.compile(
    r"(?P<gap>(?:[ \t\r]|\\\n)+)|(?P<note>#[^\n]*)"
    r"|(?P<op>&&|\|\||;;|\|&|&>>|&>|>>|>&|<&|>\||[<>]\(|[;&|()<>\n])"
    r"|(?P<word>(?:[^\s;&|()<>'\"\\]++|'[^']*+'|\"(?:[^\"\\]|\\.)*+\"|\\.|['\"\\]|[^\S \t\r\n])++)",
    re.DOTALL,
)
_QUOTED = re.compile(r"'([^']*+)'|\"((?:[^\"\\]|\\.)*+)\"|\\(.)", re.DOTALL)
_HEREDOC = re.compile(r"(?<!<)<<-?[ \t]*\\?(['\"]?)([A-Za-z_]\w*)\1")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_PATCH_FILE = re.compile(r"\*\*\* (Add|Update|Delete) File: (.+)")
_PATCH_LITERAL = re.compile(r'"(\*\*\* Begin Patch(?:[^"\\]|\\.)*+)"', re.DOTALL)
_CONTROL = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_EXIT_CODE = re.compile(r'"metadata"\s*:\s*\{[^{}]{0,200}"exit_code"\s*:\s*(-?\d{1,9})\b')
_NOISE = re.compile(
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
_WORDS = "|".join(" ".join(_BUCKETS.values()).split())
_COUNT = re.compile(
    rf"\b(\d{{1,9}}) +(?:tests? (?=passed|failed))?({_WORDS})\b"
    rf"|(?<!expected )\b({_WORDS})\s*[:=]?\s*(\d{{1,9}}+)(?!\d|\s*(?:{_WORDS})\b)"
    r"|out of (\d{1,9})",
    re.IGNORECASE,
)


class _Step(NamedTuple):
    """One simple command of a script: its words without quotes, and where it redirects to."""

    words: list[str]
    writes: list[Touch]


def command(tool: str, input: object) -> str | None:
    """Return the script a shell tool was asked to run, or None if it is no shell tool's call."""
    tool, args = _unfold(tool, input)
    if _kind(tool) != "shell" and not (_name(tool) == "exec" and isinstance(args, dict)):
        return None
    if isinstance(args, dict):
        action = args.get("action")
        args = action if isinstance(action, dict) else args
        args = args.get("command", args.get("cmd"))
    elif isinstance(args, str) and args.lstrip()[:1] in ("{", "["):
        return None  # arguments the model garbled
    if isinstance(args, list):
        args = _script(args)
    return args if isinstance(args, str) and args.strip() else None


def touches(tool: str, input: object) -> list[Touch]:
    """Return the files a call edits or reads, as far as its input alone makes that evident."""
    tool, args = _unfold(tool, input)
    kind = _kind(tool)
    if (script := command(tool, args)) is not None:
        return _shell_touches(script)
    if kind == "patch":
        return _patch_touches(args)
    path = _pick(args, _PATHS)
    if not isinstance(args, dict) or not path:
        return []
    verb = args.get("command")  # the text editor tool: one tool, its verb among the arguments
    if kind == "read" or (kind == "edit" and verb == "view"):
        return [Touch(path, "read")]
    if kind == "write" or (kind == "edit" and verb == "create"):
        content = _pick(args, _CONTENTS)
        return [Touch(path, "add", None if content is None else len(content.splitlines()))]
    return [_edited(path, args)] if kind == "edit" else []


def is_edit(tool: str, input: object) -> bool:
    """Say whether a call evidently changes a file."""
    return any(touch.how != "read" for touch in touches(tool, input))


def test_runner(command: str) -> str | None:
    """Return the name of the first test runner a script starts, or None if it starts none."""
    return _runner(command, 0) if isinstance(command, str) else None


def tests(command: str, result_text: str) -> Tests | None:
    """Return what a test run says of itself in its output, or None if it was no test run.

    A runner is named as the command names it; a task (`npm test`) as its output does.
    """
    runner = test_runner(command)
    if runner is None:
        return None
    text = _text(result_text)
    lines = _lines(_opened(text)[1])
    own = [form for form in FORMATS if form.name == runner]
    task = runner == "bun test" or (" " in runner and not own) or runner == "script"
    for form in own if own and not task else FORMATS if runner != "go test" else ():
        found = [line for line in lines if re.match(form.pattern, line.lstrip())]
        if found:
            counts = _counts(" ; ".join(found if form.add_up else found[-1:]))
            return Tests(form.name if task else runner, *counts)
    if task and any(re.match(r"--- (?:PASS|FAIL): |(?:ok  |FAIL)\t", line) for line in lines):
        runner = "go test"
    whole = len(text) <= 2 * CLIP and len(lines) < 2 * _LINES
    return Tests(runner, *_counted(lines, whole=whole))


def ending(
    tool: str, result: object, *, is_error: bool | None = None, exit_code: int | None = None
) -> Ending:
    """Say how a call ended, by the best evidence there is.

    In this order: an exit code (given, or a field of a structured result), `is_error`, a failure
    flag of a structured result, the exit code in a client's text envelope, known failure texts.
    A client that reports "completed" for a failed command (Grok) must not be passed as
    `is_error=False`. Interruption, denial and timeout are named as the reason whoever tells.
    """
    layers = list(_layers(result))
    codes = [exit_code, *(layer.get("exit_code", layer.get("exitCode")) for layer in layers)]
    code = next((c for c in codes if isinstance(c, int) and not isinstance(c, bool)), None)
    flag = next((why for why in map(_flag, layers) if why is not None), None)
    sure = code != 0 if code is not None else is_error if is_error or flag is None else True
    text = _text(result)
    inner, body = (None, text) if _kind(tool) in ("read", "search") else _opened(text)
    code = inner if code is None and sure is not False else code
    cause = _first(FAILURES, body)
    failed = bool(sure) if sure is not None else bool(code or cause)
    if not failed:
        return Ending(failed=False, exit_code=code)
    named = flag or (cause.name if cause and cause.name != "text" else "")
    given = "exit code" if code else "is_error" if sure else "text"
    return Ending(failed=True, exit_code=code, why=named or given)


def error_shape(text: str) -> str | None:
    """Return a fingerprint of an error text, the same wherever that error occurs again.

    It is the kind and the line that names the error, with paths, numbers, hex, times and quoted
    names replaced. An exit code alone is no shape. Meant for results that failed: an output that
    merely quotes an error has one too.
    """
    code, body = _opened(_ANSI.sub("", _text(text)))
    cause = _first(FAILURES, body)
    body = body.replace("<tool_use_error>", "").replace("</tool_use_error>", "").strip()
    if cause is not None and cause.name != "text":
        return _shape(cause.name, body)
    lines = _lines(body)
    if (raised := _raised(lines)) is not None:
        return _shape("exception", raised)
    named = ((line.strip(), _first(ERRORS, line.strip())) for line in lines)
    rows = [(line, row) for line, row in named if row is not None]
    for line, row in [pair for pair in rows if pair[1].name not in _VAGUE] or rows:
        found = re.match(row.pattern, line)
        return _shape(f"{row.name} {found[1]}" if found and found.lastindex else row.name, line)
    if cause is not None or code:
        return _shape("tool" if cause else "output", body)
    return None


def summary(tool: str, input: object) -> str:
    """Return one short line for a human: what the call did."""
    tool, args = _unfold(tool, input)
    touched = touches(tool, args)
    script = command(tool, args)
    if touched and (script is None or "*** Begin Patch" in script):
        line = _touched(touched)
    elif script is not None:
        line = "ran " + _without_heredocs(script)
    else:
        line = _called(tool, args)
    line = _CONTROL.sub(" ", line[:CLIP]).strip()
    return line if len(line) <= SUMMARY_LIMIT else line[: SUMMARY_LIMIT - 1] + "…"


def _touched(touched: list[Touch]) -> str:
    verbs = {"add": "wrote", "edit": "edited", "delete": "deleted", "move": "moved", "read": "read"}
    hows = {touch.how for touch in touched}
    verb = verbs.get(touched[0].how, "touched") if len(hows) == 1 else "edited"
    names = ", ".join(touch.path for touch in touched[:3])
    return f"{verb} {names}" + (f" and {len(touched) - 3} more" if touched[3:] else "")


def _called(tool: str, args: object) -> str:
    """Say in words what a call of a tool that touches no file asks for."""
    what = _pick(args, ("pattern", "query", "url", "description", "prompt")) or ""
    where = _pick(args, ("path", "dir_path", "target_directory")) or ""
    phrase = {
        "search": f"searched for {what}" + (f" in {where}" if where else ""),
        "list": f"listed {where or '.'}",
        "fetch": f"fetched {what}",
        "web": f"searched the web for {what}",
        "agent": f"asked a subagent: {what}".rstrip(": "),
        "plan": "updated the plan",
    }.get(_kind(tool), "")
    return phrase or f"called {tool or 'a tool'}"


def _name(tool: object) -> str:
    return tool.rsplit("__", 1)[-1].lower() if isinstance(tool, str) else ""


def _kind(tool: object) -> str:
    name = _name(tool)
    return next((kind for kind, names in TOOLS if name in names.split()), "")


def _unfold(tool: object, input: object) -> tuple[str, object]:
    """Give the tool really called and its arguments, decoded when they are JSON text."""
    args = _decoded(input)
    if tool == "use_tool" and isinstance(args, dict):  # Grok's door to MCP servers
        tool, args = args.get("tool_name"), _decoded(args.get("tool_input"))
    return tool if isinstance(tool, str) else "", args


def _decoded(value: object) -> object:
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _pick(args: object, names: tuple[str, ...]) -> str | None:
    """Give the first of these arguments that is a text."""
    values = (args.get(name) for name in names) if isinstance(args, dict) else ()
    return next((value for value in values if isinstance(value, str)), None)


def _script(argv: list[object]) -> str | None:
    """Give the script of an argument vector: what a shell was handed, else the words quoted."""
    words = [word for word in argv if isinstance(word, str)]
    if len(words) != len(argv) or not words:
        return None
    handed = _handed(words)
    return shlex.join(words) if handed is None else handed


def _edited(path: str, args: dict[str, object]) -> Touch:
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
    """Give the files of a patch: its own text, or the one quoted in a code-mode script."""
    text = args if isinstance(args, str) else _pick(args, ("patch", "input"))
    if text is None:
        return []
    literal = None if text.lstrip().startswith("***") else _PATCH_LITERAL.search(text)
    return _patched(literal[1].replace("\\n", "\n") if literal else text)


def _patched(text: str) -> list[Touch]:
    """Read the files of one or more apply_patch texts; outside Begin and End nothing counts."""
    found: list[Touch] = []
    path, how, target, added, removed = "", "", "", 0, 0
    for line in [*text[max(0, text.find("*** Begin Patch")) :].split("\n"), "*** End Patch"]:
        head = _PATCH_FILE.match(line)
        if path and (head or line.startswith("*** End Patch")):
            if target:
                found += [Touch(path, "move"), Touch(target, "add", added, removed)]
            else:
                counts = () if how == "delete" else (added, removed if how == "edit" else 0)
                found.append(Touch(path, how, *counts))
            path = ""
        if head:
            path, how, target = head[2].strip(), _HOWS[head[1]], ""
            added = removed = 0
        elif line.startswith("*** Move to: "):
            target = line[13:].strip()
        else:
            added, removed = added + line.startswith("+"), removed + line.startswith("-")
    return found


def _without_heredocs(script: str) -> str:
    """Cut the bodies of here-documents: they are data, whatever commands they quote."""
    kept, at = [], 0
    while (found := _HEREDOC.search(script, at)) and (end := script.find("\n", found.end())) >= 0:
        kept.append(script[at:end])
        at = end
        while at < len(script):
            end = script.find("\n", at + 1)
            end = len(script) if end < 0 else end  # bash, too, takes the rest if no word closes
            line, at = script[at:end], end
            if line.strip() == found[2]:
                break
    return "".join([*kept, script[at:]])


def _steps(script: str) -> Iterator[_Step]:
    """Split a script into its simple commands, as far as quoting and separators tell."""
    step, waiting, word_end, count = _Step([], []), "", -1, 0
    for token in _TOKEN.finditer(_without_heredocs(script)[:CLIP]):
        value = token[0]
        if token.lastgroup == "word":
            word = _QUOTED.sub(lambda m: m[1] or m[2] or m[3] or "", value)
            if not waiting:
                step.words.append(word)
            elif _REDIRECTS[waiting]:
                step.writes.append(Touch(word, _REDIRECTS[waiting]))
            waiting, word_end = "", token.end()
        elif value in _REDIRECTS:
            numbered = token.start() == word_end and step.words and step.words[-1].isdigit()
            waiting = "<" if numbered and step.words.pop() != "1" else value
        elif token.lastgroup == "op" and count < _LINES:
            yield step
            step, waiting, count = _Step([], []), "", count + 1
    yield step


def _shell_touches(script: str) -> list[Touch]:
    """Give the files a script changes where that is evident: no variables, globs, scratch files."""
    found: list[Touch] = []
    for step in _steps(script):
        words = _bare(step.words)
        if words and _base(words[0]) in ("apply_patch", "applypatch"):
            return _patched(script)
        found += step.writes if words[:1] != ["[["] else []  # there `>` compares
        found += _program_touches(_base(words[0]), words[1:]) if words else []
    return [touch for touch in found if touch.path and not _UNCLEAR.search(touch.path)]


def _program_touches(name: str, rest: list[str]) -> list[Touch]:
    """Give the files one of the few programs changes whose operands are files."""
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
    return [Touch(file, how) for file in files] if how else []


def _runner(script: str, depth: int) -> str | None:
    for step in _steps(script):
        words = _bare(step.words)
        for _ in range(8):  # wrappers nest, but not without end
            if not words or _CONTROL.search(words[0]):
                break
            handed = _handed(words)
            if handed is not None:
                found = _runner(handed, depth + 1) if depth < _DEPTH else None
            else:
                found = _started(words)
            if found is not None:
                return found
            words = _bare(_unwrapped(words)) if handed is None else []
    return None


def _started(words: list[str]) -> str | None:
    """Name the runner these words start, wrappers apart."""
    name = _base(words[0])
    line = ["./" + name if "/" in words[0] and name.startswith("test") else name]
    skip = False
    for word in words[1:40]:
        if not skip and not word.isdigit() and (word[:1] != "-" or word == "--test"):
            line.append(word)
        skip = not skip and word in _VALUES.get(name, "").split()
    row = _first(RUNNERS, " ".join(line))
    if row is None or _NOT_A_RUN.intersection(words):
        return None
    found = re.match(row.pattern, " ".join(line))
    return row.name or (found[0] if found else None)


def _unwrapped(words: list[str]) -> list[str]:
    """Give the words of the program a wrapper runs; none if these words are no wrapper's."""
    words = [_base(words[0]), *words[1:]]
    for names, options, extra in WRAPPERS:
        if not names.startswith(words[0]):
            continue
        at = 0
        for part in (*names.split(), *[""] * extra):
            at = _past_options(words, at, options)
            if at >= len(words) or part not in ("", words[at]):
                break
            at += 1
        else:
            return words[_past_options(words, at, options) :]
    return []


def _past_options(words: list[str], at: int, valued: str) -> int:
    while 0 < at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in valued.split() else 1
    return at


def _bare(words: list[str]) -> list[str]:
    """Drop the keywords and assignments before a program."""
    at = 0
    while at < len(words) and (words[at] in _KEYWORDS or _ASSIGNMENT.match(words[at])):
        at += 1
    return words[at:]


def _base(word: str) -> str:
    """Give a program's name without its directory, suffix and, for interpreters, version."""
    name = re.sub(r"\.(?:exe|cmd)$", "", word.rsplit("/", 1)[-1])
    return re.sub(r"^(python|pypy|php|ruby)[\d.]+$", r"\1", name)


def _handed(words: list[str]) -> str | None:
    """Give the script a shell is handed by its -c option, if that is what these words do."""
    if _base(words[0]) in _SHELLS:
        for at, word in enumerate(words[1:6], 2):
            if re.fullmatch(r"-[a-z]*c|-Command|/[cC]", word):
                return words[at] if at < len(words) else None
    return None


def _counts(text: str) -> tuple[int | None, int | None, int | None]:
    """Add up the numbers of a closing line by what stands beside them."""
    sums: dict[str, int] = {}
    for found in _COUNT.finditer(text):
        word = (found[2] or found[3] or "total").lower()
        bucket = next(name for name, words in _BUCKETS.items() if word in words.split())
        sums[bucket] = sums.get(bucket, 0) + int(found[1] or found[4] or found[5])
    failed, skipped = sums.get("failed", 0), sums.get("skipped")
    passed = sums.get("passed")
    if passed is None and "total" in sums:
        passed = max(0, sums["total"] - failed - (skipped or 0))
    return passed, failed if sums else None, skipped


def _counted(lines: list[str], *, whole: bool) -> tuple[int | None, int | None, int | None]:
    """Count the lines of runners that do not; what a cut text does not show is not known."""
    n = {row.name: sum(bool(re.match(row.pattern, line)) for line in lines) for row in COUNTED}
    failed = n["failed"] or n["package bad"]
    known = failed > 0 or (whole and any(n.values()))
    return n["passed"] or None if whole else None, failed if known else None, n["skipped"] or None


def _text(value: object, depth: int = 0) -> str:
    """Give the text of a result of any shape, its middle left out when it is long."""
    if isinstance(value, str):
        return value if len(value) <= 2 * CLIP else f"{value[:CLIP]}\n{value[-CLIP:]}"
    parts: list[object] = []
    if isinstance(value, dict) and depth < _DEPTH:
        parts = [value.get(name) for name in _TEXTS]
    elif isinstance(value, list) and depth < _DEPTH:
        parts = [*value[:32], *value[max(32, len(value) - 32) :]]
    return _text("\n".join(filter(None, (_text(part, depth + 1) for part in parts))))


def _layers(result: object, depth: int = 0) -> Iterator[dict[str, object]]:
    """Give a structured result and those inside it that speak of the same call."""
    if isinstance(result, dict) and depth < _DEPTH:
        yield result
        for name in ("metadata", "result", "output", "Ok"):
            yield from _layers(result.get(name), depth + 1)


def _flag(layer: dict[str, object]) -> str | None:
    """Give the reason a structured result failed ("" if it tells none), None if it did not."""
    for name, bad, why in FLAGS:
        if type(layer.get(name)) is type(bad) and layer[name] == bad:
            return why
    return "" if any(layer.get(mark) for mark in _MARKS) else None


def _opened(text: str) -> tuple[int | None, str]:
    """Take the client's envelope off an output: its exit code, if any, and the output."""
    if text[:1] == "{" and (found := _EXIT_CODE.search(text)):
        return int(found[1]), _unescaped(text)
    for row in ENVELOPES:
        if found := re.match(row.pattern, text):
            return int(found[1]), text[found.end() :]
    found = _PREFACE.match(text)
    return None, text[found.end() :] if found else text


def _unescaped(text: str) -> str:
    """Give the output in Codex's early JSON envelope, also when its middle was left out."""
    try:
        output = json.loads(text)["output"]
    except (ValueError, RecursionError, LookupError, TypeError):
        output = text.replace("\\n", "\n")
    return output if isinstance(output, str) else ""


def _first(rows: tuple[Row, ...], text: str) -> Row | None:
    return next((row for row in rows if re.match(row.pattern, text)), None)


def _lines(text: str) -> list[str]:
    """Give the lines that hold something; of a great many short ones the first and last."""
    lines = [line[:1000].rstrip() for line in _ANSI.sub("", text).split("\n") if line.strip()]
    return lines if len(lines) <= 2 * _LINES else [*lines[:_LINES], *lines[-_LINES:]]


def _raised(lines: list[str]) -> str | None:
    """Give the line a Python traceback ends with: the last one is the error that came out."""
    starts = [at for at, line in enumerate(lines) if line.lstrip().startswith("Traceback (most")]
    rest = lines[starts[-1] + 1 :] if starts else []
    return next((line for line in rest if re.match(r"[A-Za-z_][\w.]*(?::|$)", line)), None)


def _shape(kind: str, text: str) -> str | None:
    """Put kind and first line together, with all replaced that differs between two sessions."""
    line = re.sub(r"^E\s+", "", text.strip().split("\n", 1)[0])[:1000]
    line = _CONTROL.sub(" ", _NOISE.sub(lambda found: f"<{found.lastgroup}>", line)).strip()
    return f"{kind}: {line}"[:SHAPE_LIMIT].rstrip() if line else None
